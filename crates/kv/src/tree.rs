//! A persistent B+tree over leaves: each change makes a new tree, which shares with the one before all that it did not touch.
//!
//! Changes come many at a time and in order, so that each node they touch is copied once for all of them.
//!
//! kv-T1: child `i` of a node has the keys from `firsts[i]` on that are below `firsts[i + 1]`; the first one also has what is below it.
//! kv-T2: all leaves are equally deep.  kv-T3: no node is empty, and what has become small was joined with its neighbour, if that is in
//! memory.
//!
//! A leaf that lies on the medium need not be in memory: `Away` stands for it. What cannot be read back is known only by its keys'
//! stretch, and a change of one of them divides that (`Lost`).

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use types::Key;

use crate::Size;
use crate::home::{Away, Broken, Home};
use crate::leaf::{Content, Edit, Leaf, Piece, Share, edited, pack};

mod sweep;

pub use sweep::Sweep;

/// How large leaves, nodes and the row of the latest changes grow.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub leaf_bytes: usize,
    /// Children of a node.
    pub fanout: usize,
    /// Changes in the row before they move to the tree.
    pub changes: usize,
}

impl Default for Shape {
    /// A leaf is a page of the medium. A node is copied with its leaves, and each copy counts all of its children anew: few enough that
    /// this costs no more than the leaf does. So many changes move together that a leaf takes several where a directory is small,
    /// and that who moves them comes to it before the next row is full (decision 0037).
    fn default() -> Shape {
        Shape { leaf_bytes: 4096 - 64, fanout: FANOUT_MAX, changes: 1024 }
    }
}

impl Shape {
    /// Below this a leaf or a node is joined with its neighbour: well under half, so that what was just divided stays so.
    fn is_small(&self, child: &Child) -> bool {
        match child {
            Child::Leaf(leaf, _) => leaf.weight() * 4 < self.leaf_bytes,
            Child::Inner(inner) => inner.count * 4 < self.fanout,
            // Neither is worth a read.
            Child::Away(_) | Child::Lost(_) => false,
        }
    }
}

/// Children of a node, at most.
const FANOUT_MAX: usize = 32;

#[derive(Clone, Debug)]
enum Child {
    Inner(Arc<Inner>),
    /// And how many records it has: a search knows by this where to look before it has seen any of it.
    Leaf(Arc<Leaf>, u16),
    Away(Arc<Away>),
    Lost(Arc<Stretch>),
}

/// Keys of which nobody knows whether there were records: from `first` on, and below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: Key,
    pub end: Key,
}

impl Stretch {
    /// Of a leaf's records.
    fn of(home: &Home) -> Stretch {
        Stretch { first: home.first, end: home.last.after() }
    }
    /// `None`: there are none.
    fn between(first: Key, end: Key) -> Option<Stretch> {
        (first < end).then_some(Stretch { first, end })
    }
    fn meets(&self, from: &Key, to: Option<&Key>) -> bool {
        to.is_none_or(|to| self.first < *to) && *from < self.end
    }
    fn has(&self, key: &Key) -> bool {
        (self.first..self.end).contains(key)
    }
    /// What is before the other one, and behind it.
    fn without(self, other: Option<&Stretch>) -> [Option<Stretch>; 2] {
        match other {
            None => [Some(self), None],
            Some(other) => [
                Stretch::between(self.first, self.end.min(other.first)),
                Stretch::between(self.first.max(other.end), self.end),
            ],
        }
    }
}

/// What a tree has in place of a leaf: at its leaves' depth, in order.
pub enum Tip<'a> {
    Here(&'a Arc<Leaf>),
    Away(&'a Arc<Away>),
    Lost(&'a Stretch),
}

/// Why it has no answer.
#[derive(Clone, Copy, Debug)]
pub enum Gap<'a> {
    Away(&'a Arc<Away>),
    Lost(Stretch),
}

impl Gap<'_> {
    /// There is no record below it.
    pub fn first(&self) -> &Key {
        match self {
            Gap::Away(away) => &away.home.first,
            Gap::Lost(stretch) => &stretch.first,
        }
    }

    fn meets(&self, from: &Key, to: Option<&Key>) -> bool {
        match self {
            Gap::Away(away) => to.is_none_or(|to| away.home.first < *to) && *from <= away.home.last,
            Gap::Lost(stretch) => stretch.meets(from, to),
        }
    }

    fn has(&self, key: &Key) -> bool {
        match self {
            Gap::Away(away) => (away.home.first..=away.home.last).contains(key),
            Gap::Lost(stretch) => stretch.has(key),
        }
    }
}

impl Child {
    fn here(leaf: Arc<Leaf>) -> Child {
        let records = leaf.records() as u16;
        Child::Leaf(leaf, records)
    }

    /// The leaf, of what is at a leaf's place.
    #[inline]
    fn leaf(&self) -> Result<&Arc<Leaf>, Gap<'_>> {
        match self {
            Child::Leaf(leaf, _) => Ok(leaf),
            Child::Away(away) => match away.found() {
                Some(Ok(leaf)) => Ok(leaf),
                Some(Err(Broken)) => Err(Gap::Lost(Stretch::of(&away.home))),
                None => Err(Gap::Away(away)),
            },
            Child::Lost(stretch) => Err(Gap::Lost(**stretch)),
            Child::Inner(_) => unreachable!("it is no node's place (kv-T2)"),
        }
    }

    fn sums(&self) -> Sums {
        match self {
            Child::Leaf(leaf, _) => {
                Sums { leaves: 1, pages: leaf.pages(), here_bytes: leaf.memory_bytes(), ..Sums::default() }
            }
            Child::Away(away) => {
                let pages = away.home.place.bytes.div_ceil(types::PAGE_SIZE as u64);
                Sums { leaves: 1, pages, away: 1, ..Sums::default() }
            }
            Child::Inner(_) | Child::Lost(_) => Sums::default(),
        }
    }
}

/// Over the leaves of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub leaves: u64,
    /// That they take on the medium.
    pub pages: u64,
    /// That those take in memory which are `Here`.
    pub here_bytes: u64,
    /// Those that are `Away`, filled or not.
    pub away: u64,
    /// What there was in leaves that are given up.
    pub lost: Size,
}

impl Sums {
    fn plus(self, more: Sums) -> Sums {
        Sums {
            leaves: self.leaves + more.leaves,
            pages: self.pages + more.pages,
            here_bytes: self.here_bytes + more.here_bytes,
            away: self.away + more.away,
            lost: Size {
                records: self.lost.records + more.lost.records,
                bytes: self.lost.bytes + more.lost.bytes,
            },
        }
    }
    fn minus(self, less: Sums) -> Sums {
        Sums {
            leaves: self.leaves - less.leaves,
            pages: self.pages - less.pages,
            here_bytes: self.here_bytes - less.here_bytes,
            away: self.away - less.away,
            lost: self.lost,
        }
    }
}

/// One piece of memory, as a leaf is. What `firsts` begin with alike is there once too, and heads of what they have behind that: the
/// search looks at those.
#[derive(Clone, Debug)]
struct Inner {
    count: usize,
    prefix: Key,
    heads: [u64; FANOUT_MAX],
    children: [Option<Child>; FANOUT_MAX],
    firsts: [Key; FANOUT_MAX],
}

/// Children with the least key that belongs to each.
type Row = Vec<(Key, Child)>;

impl Inner {
    fn new(row: impl Iterator<Item = (Key, Child)>) -> Inner {
        let mut inner = Inner {
            count: 0,
            prefix: Key::default(),
            heads: [0; FANOUT_MAX],
            children: [const { None }; FANOUT_MAX],
            firsts: [Key::default(); FANOUT_MAX],
        };
        for (first, child) in row {
            (inner.firsts[inner.count], inner.children[inner.count]) = (first, Some(child));
            inner.count += 1;
        }
        // Of the first child's nobody asks.
        if let [_, second, .., last] = &inner.firsts[..inner.count] {
            inner.prefix = second.common_prefix(last);
        }
        let prefix = inner.prefix.as_bytes().len();
        for i in 1..inner.count {
            inner.heads[i] = inner.firsts[i].word_at(prefix);
        }
        inner
    }

    fn firsts(&self) -> &[Key] {
        &self.firsts[..self.count]
    }

    fn child(&self, i: usize) -> &Child {
        self.children[i].as_ref().expect("it is one of `count`")
    }

    /// The child that has the key if there is one: as many of `firsts` are not above the key, without the first one's.
    fn way(&self, key: &Key) -> usize {
        if !key.starts_with(&self.prefix) {
            return if *key < self.prefix { 0 } else { self.count - 1 };
        }
        let head = key.word_at(self.prefix.as_bytes().len());
        // All of them, as a leaf does it.
        let i = self.heads[1..self.count].iter().map(|of_child| u64::from(*of_child < head)).sum::<u64>()
            as usize;
        let same = self.heads[1 + i..self.count].iter().take_while(|of_child| **of_child == head).count();
        match same {
            0 => i,
            _ => i + self.firsts[1 + i..1 + i + same].partition_point(|first| first <= key),
        }
    }

    /// How far the key is from where child `i` begins to where the next one does. Keys of a kind are hashes or numbers in a row, so
    /// that it is as far into the child's records.
    #[inline]
    fn share(&self, i: usize, key: &Key) -> Share {
        // The first one begins, and the last one ends, nobody knows where: as far from here as the child beside it.
        let heads = &self.heads[1..self.count];
        let (begin, end) = match (i, heads) {
            (0, [a, b, ..]) => (a.saturating_sub(b - a), *a),
            (i, [.., a, b]) if i == heads.len() => (*b, b.saturating_add(b - a)),
            (1.., _) if i < heads.len() => (heads[i - 1], heads[i]),
            _ => return Share::HALF,
        };
        let head = key.word_at(self.prefix.as_bytes().len());
        Share::of(head.saturating_sub(begin), end - begin)
    }

    fn children(&self) -> impl Iterator<Item = (Key, Child)> {
        (0..self.count).map(|i| (self.firsts[i], self.child(i).clone()))
    }
}

/// What a tree becomes.
#[derive(Debug, Default)]
pub struct Edited {
    pub tree: Tree,
    /// What it has leaves in place of.
    pub replaced: Vec<Arc<Away>>,
    /// A key of each leaf that is there no more: its neighbour, which may not be in memory, has such keys now.
    pub emptied: Vec<Key>,
}

impl Edited {
    fn same(tree: &Tree) -> Edited {
        Edited { tree: tree.clone(), ..Edited::default() }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: Option<Child>,
    sums: Sums,
}

/// An edit under way: how leaves are to be, and sums over those that it made and those that it replaced.
struct Work<'a> {
    shape: &'a Shape,
    made: Cell<Sums>,
    replaced: Cell<Sums>,
    /// Of those that it replaced.
    aways: RefCell<Vec<Arc<Away>>>,
    /// See `Edited`.
    emptied: RefCell<Vec<Key>>,
    /// No key of it had a record, whatever is lost.
    bare: Option<&'a Stretch>,
}

impl Work<'_> {
    fn replaces(&self, child: &Child) {
        self.replaced.set(self.replaced.get().plus(child.sums()));
        if let Child::Away(away) = child {
            self.aways.borrow_mut().push(away.clone());
        }
    }
}

impl Tree {
    /// What has the key, if anything does, and how far into that it probably is.
    fn tip(&self, key: &Key) -> Option<(&Child, Share)> {
        let (mut at, mut share) = (self.root.as_ref()?, Share::HALF);
        while let Child::Inner(inner) = at {
            let i = inner.way(key);
            (at, share) = (inner.child(i), inner.share(i, key));
        }
        Some((at, share))
    }

    /// The leaf that must be brought before the key is changed.
    pub fn needs(&self, key: &Key) -> Option<&Arc<Away>> {
        match self.tip(key)?.0.leaf() {
            Err(Gap::Away(away)) => Some(away),
            _ => None,
        }
    }

    pub fn get(&self, key: &Key) -> Result<Option<Content<'_>>, Gap<'_>> {
        let Some((tip, share)) = self.tip(key) else { return Ok(None) };
        if let Child::Leaf(leaf, records) = tip {
            leaf.bring((*records).into(), share);
        }
        match tip.leaf() {
            Ok(leaf) => {
                leaf.touch();
                Ok(leaf.get(key))
            }
            Err(gap) if gap.has(key) => Err(gap),
            Err(_) => Ok(None),
        }
    }

    /// Of leaves in order, which lie on the medium, and what is lost between them.
    pub fn of(leaves: impl Iterator<Item = Result<Arc<Away>, Stretch>>, shape: &Shape) -> Tree {
        let child = |leaf| match leaf {
            Ok(away) => Child::Away(away),
            Err(stretch) => Child::Lost(Arc::new(stretch)),
        };
        let row: Row = leaves
            .map(|leaf| {
                let first = leaf.as_ref().map_or_else(|stretch| stretch.first, |away| away.home.first);
                (first, child(leaf))
            })
            .collect();
        let sums = row.iter().fold(Sums::default(), |sums, (_, child)| sums.plus(child.sums()));
        Tree::over(row, shape, sums)
    }

    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    fn over(mut row: Row, shape: &Shape, sums: Sums) -> Tree {
        while row.len() > 1 {
            row = nodes(row, shape);
        }
        let mut root = row.pop().map(|(_, child)| child);
        while let Some(Child::Inner(inner)) = &root
            && inner.count == 1
        {
            root = Some(inner.child(0).clone());
        }
        Tree { root, sums }
    }

    /// Shows `f` what may have records with `from <= key`, and `key < to` if that is given, in order, until it breaks.
    pub fn tips<'a, B>(
        &'a self,
        from: &Key,
        to: Option<&Key>,
        f: &mut impl FnMut(Tip<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut tip = |child: &'a Child| {
            f(match child {
                Child::Leaf(leaf, _) => Tip::Here(leaf),
                Child::Away(away) => Tip::Away(away),
                Child::Lost(stretch) => Tip::Lost(stretch),
                Child::Inner(_) => unreachable!("it is no node's place (kv-T2)"),
            })
        };
        self.root.as_ref().map_or(ControlFlow::Continue(()), |root| visit(root, from, to, &mut tip))
    }

    /// Leaves with such keys that are not in memory, `max` of them at most, among the first `within`.
    pub fn absent(&self, from: &Key, to: Option<&Key>, max: usize, within: usize) -> Vec<Arc<Away>> {
        let (mut absent, mut seen) = (Vec::new(), 0);
        let _ = self.tips(from, to, &mut |tip| {
            match tip {
                Tip::Away(away) if away.found().is_none() => absent.push(away.clone()),
                _ => {}
            }
            seen += 1;
            match absent.len() < max && seen < within {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        absent
    }

    /// Stretches with such keys that are known to be lost.
    pub fn lost(&self, from: &Key, to: Option<&Key>) -> Vec<Stretch> {
        let mut lost = Vec::new();
        let _ = self.tips::<()>(from, to, &mut |tip| {
            let stretch = match tip {
                Tip::Lost(stretch) => Some(*stretch),
                Tip::Away(away) => {
                    away.found().and_then(|found| found.err()).map(|_| Stretch::of(&away.home))
                }
                Tip::Here(_) => None,
            };
            lost.extend(stretch.filter(|stretch| stretch.meets(from, to)));
            ControlFlow::Continue(())
        });
        lost
    }

    /// Shows `f` the records with `from <= key`, and `key < to` if that is given, in order, until it breaks; `gap` says what stands for
    /// a leaf that is not here.
    pub fn range<'a, B>(
        &'a self,
        from: &Key,
        to: Option<&Key>,
        f: &mut impl FnMut(Key, Content<'_>) -> ControlFlow<B>,
        gap: &mut impl FnMut(Gap<'a>) -> ControlFlow<B, Arc<Leaf>>,
    ) -> ControlFlow<B> {
        let mut show = |leaf: &Leaf| {
            leaf.within(from, to).try_for_each(|i| {
                let (key, content) = leaf.record(i);
                f(key, content)
            })
        };
        let mut tip = |child: &'a Child| match child.leaf() {
            Ok(leaf) => {
                leaf.touch();
                show(leaf)
            }
            Err(what) if what.meets(from, to) => show(&gap(what)?),
            Err(_) => ControlFlow::Continue(()),
        };
        self.root.as_ref().map_or(ControlFlow::Continue(()), |root| visit(root, from, to, &mut tip))
    }

    /// The tree after changes, which are in order, each key once. The leaves of all of them are in memory, or lost.
    pub fn edit(&self, edits: &[Edit<'_>], shape: &Shape) -> Tree {
        self.edited(edits, shape).tree
    }

    /// As `edit`; and what it has leaves in place of.
    pub fn edited(&self, edits: &[Edit<'_>], shape: &Shape) -> Edited {
        self.changed(edits, None, shape)
    }

    /// The tree that knows that none of these keys had a record; as `edited`. Leaves that may have such keys are in memory, or lost.
    pub fn bared(&self, bare: &Stretch, shape: &Shape) -> Edited {
        // To go where they are: of each the first such key, which nobody has.
        let lost = self.lost(&bare.first, Some(&bare.end));
        let keys: Vec<Key> = lost.iter().map(|l| l.first.max(bare.first)).collect();
        self.changed(&keys.iter().map(|key| (key, None)).collect::<Vec<_>>(), Some(bare), shape)
    }

    fn changed(&self, edits: &[Edit<'_>], bare: Option<&Stretch>, shape: &Shape) -> Edited {
        if edits.is_empty() {
            return Edited::same(self);
        }
        let (made, replaced, aways) = (Cell::default(), Cell::default(), RefCell::default());
        let work = Work { shape, made, replaced, aways, emptied: RefCell::default(), bare };
        let row = match &self.root {
            None => leaves(edits.iter().filter_map(|(k, v)| Some(Piece::New(k, (*v)?))).collect(), &work),
            Some(root) => match edit(root, None, edits, &work) {
                None => return Edited::same(self),
                Some(row) => row,
            },
        };
        let sums = self.sums.plus(work.made.get()).minus(work.replaced.get());
        let tree = Tree::over(row, shape, sums);
        Edited { tree, replaced: work.aways.into_inner(), emptied: work.emptied.into_inner() }
    }
}

fn visit<'a, B>(
    at: &'a Child,
    from: &Key,
    to: Option<&Key>,
    tip: &mut impl FnMut(&'a Child) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let Child::Inner(inner) = at else { return tip(at) };
    for i in inner.way(from)..inner.count {
        if i > 0 && to.is_some_and(|to| inner.firsts[i] >= *to) {
            break;
        }
        visit(inner.child(i), from, to, tip)?;
    }
    ControlFlow::Continue(())
}

/// What a child becomes, whose keys are below `end`; `None`: it stays.
fn edit(at: &Child, end: Option<&Key>, edits: &[Edit<'_>], work: &Work<'_>) -> Option<Row> {
    match at {
        Child::Inner(inner) => {
            // 1. What each child becomes that some change is for.
            let (mut rest, mut changed) = (edits, Vec::with_capacity(edits.len().min(inner.count)));
            while let Some((key, _)) = rest.first() {
                let i = inner.way(key);
                let next = inner.firsts().get(i + 1).or(end);
                let mine = next.map_or(rest.len(), |next| rest.partition_point(|(key, _)| *key < next));
                changed.extend(edit(inner.child(i), next, &rest[..mine], work).map(|new| (i, new)));
                rest = &rest[mine..];
            }
            // 2. Nearly always each is one again.
            if changed.is_empty() {
                return None;
            }
            if changed.iter().all(|(_, new)| matches!(&new[..], [(_, child)] if !work.shape.is_small(child)))
            {
                let mut new = Inner::clone(inner);
                for (i, row) in changed {
                    new.children[i] = row.into_iter().next().map(|(_, child)| child);
                }
                return Some(vec![(new.firsts[0], Child::Inner(Arc::new(new)))]);
            }
            // 3. Else there is another row of them.
            let mut row = Row::with_capacity(inner.count + 2);
            let mut changed = changed.into_iter().peekable();
            for (i, (first, child)) in inner.children().enumerate() {
                match changed.next_if(|(at, _)| *at == i) {
                    None => row.push((first, child)),
                    Some((_, new)) => {
                        // kv-T1: what lies below the first record is this child's yet.
                        let firsts = std::iter::once(first).chain(new.iter().skip(1).map(|(f, _)| *f));
                        row.extend(firsts.zip(new.iter().map(|(_, child)| child.clone())));
                    }
                }
            }
            Some(nodes(joined(row, work), work.shape))
        }
        tip => {
            let new = match tip.leaf() {
                Ok(leaf) => edited(leaf, edits).map(|pieces| {
                    work.replaces(tip);
                    leaves(pieces, work)
                }),
                Err(Gap::Lost(stretch)) => divided(tip, stretch, edits, work),
                Err(Gap::Away(away)) => unreachable!("{:?} is to change, and was not loaded", away.home),
            };
            if new.as_ref().is_some_and(Vec::is_empty) {
                work.emptied.borrow_mut().extend(edits.first().map(|(key, _)| **key));
            }
            new
        }
    }
}

/// What is lost, without the keys that were changed since: of those it is known what they are.
fn divided(lost: &Child, stretch: Stretch, edits: &[Edit<'_>], work: &Work<'_>) -> Option<Row> {
    if !edits.iter().any(|(key, value)| value.is_some() || stretch.has(key)) {
        return None;
    }
    work.replaces(lost);
    if let Child::Away(away) = lost {
        let lost = away.home.size;
        work.made.set(work.made.get().plus(Sums { lost, ..Sums::default() }));
    }
    let mut row = Row::new();
    let push = |row: &mut Row, between: Option<Stretch>| {
        let pieces = between.into_iter().flat_map(|stretch| stretch.without(work.bare)).flatten();
        row.extend(pieces.map(|stretch| (stretch.first, Child::Lost(Arc::new(stretch)))));
    };
    let mut rest = Some(stretch);
    for (key, value) in edits {
        if let Some(now) = rest.filter(|rest| rest.first <= **key) {
            let upto = if now.has(key) { **key } else { now.end };
            push(&mut row, Stretch::between(now.first, upto));
            rest = Stretch::between(key.after(), now.end).filter(|_| now.has(key));
        }
        row.extend(value.map(|value| leaves(vec![Piece::New(key, value)], work)).into_iter().flatten());
    }
    push(&mut row, rest);
    Some(row)
}

fn leaves(pieces: Vec<Piece<'_>>, work: &Work<'_>) -> Row {
    let leaves = pack(pieces, work.shape.leaf_bytes).into_iter();
    let row: Row = leaves.map(|leaf| (leaf.first(), Child::here(leaf))).collect();
    work.made.set(row.iter().fold(work.made.get(), |made, (_, child)| made.plus(child.sums())));
    row
}

/// Nodes over these children, as even as they can be.
fn nodes(row: Row, shape: &Shape) -> Row {
    if row.is_empty() {
        return row;
    }
    let each = row.len().div_ceil(row.len().div_ceil(shape.fanout));
    let mut children = row.into_iter().peekable();
    let mut made = Row::new();
    while let Some((first, _)) = children.peek() {
        let first = *first;
        made.push((first, Child::Inner(Arc::new(Inner::new(children.by_ref().take(each))))));
    }
    made
}

/// kv-T3.
fn joined(row: Row, work: &Work<'_>) -> Row {
    let shape = work.shape;
    if row.len() < 2 || !row.iter().any(|(_, child)| shape.is_small(child)) {
        return row;
    }
    let mut out = Row::with_capacity(row.len());
    for (first, child) in row {
        // What is not in memory stays by itself.
        let is_here = |child: &Child| matches!(child, Child::Inner(_)) || child.leaf().is_ok();
        let is_one =
            |b: &Child| (shape.is_small(b) || shape.is_small(&child)) && is_here(b) && is_here(&child);
        let Some((first_before, before)) = out.pop_if(|(_, b)| is_one(b)) else {
            out.push((first, child));
            continue;
        };
        let mut both = match (&before, &child) {
            (Child::Inner(a), Child::Inner(b)) => {
                let children = [(first_before, a), (first, b)].into_iter().flat_map(|(first, inner)| {
                    // What lies above the node knows better where it begins.
                    inner
                        .children()
                        .enumerate()
                        .map(move |(i, (f, child))| (if i == 0 { first } else { f }, child))
                });
                // Two that were in different nodes are neighbours now.
                nodes(joined(children.collect(), work), shape)
            }
            tips => match (tips.0.leaf(), tips.1.leaf()) {
                (Ok(a), Ok(b)) => {
                    [tips.0, tips.1].into_iter().for_each(|tip| work.replaces(tip));
                    leaves(vec![Piece::Old(a, 0..a.records()), Piece::Old(b, 0..b.records())], work)
                }
                _ => unreachable!("both are in memory"),
            },
        };
        if let Some((first, _)) = both.first_mut() {
            *first = first_before;
        }
        out.extend(both);
    }
    out
}

#[cfg(test)]
mod tests;
