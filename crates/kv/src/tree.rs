//! A persistent B+tree over leaves: each change makes a new tree, which shares all untouched nodes with the one before.
//!
//! Changes come many at a time and in key order, so that each touched node is copied once for all of them.
//!
//! kv-T1: child `i` of a node has the keys from `firsts[i]` on and below `firsts[i + 1]`; child 0 also has the keys below `firsts[0]`.
//! kv-T2: all leaves are equally deep.  kv-T3: no node is empty, and a small node or leaf was joined with its neighbour, if that is in
//! memory.
//!
//! `Away` stands for a leaf that lies on the medium and need not be in memory. `Lost` stands for a leaf that cannot be read back: only its
//! key range is known, and a change of a key in the range divides it.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use types::Key;

use crate::home::{Away, Broken, Home};
use crate::leaf::{Content, Edit, Leaf, Piece, Share, edited, pack};

mod sums;
mod sweep;

use sums::Sums;
pub use sweep::Sweep;

/// Bounds of leaves, nodes and the memtable.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub leaf_bytes: usize,
    /// Children of a node.
    pub fanout: usize,
    /// Changes in the memtable before they move to the tree.
    pub changes: usize,
}

impl Default for Shape {
    /// A leaf is a page of the medium. A node is copied with its leaves, and a copy raises the counts of all its children; with this fanout
    /// that costs no more than the leaf. `changes` is large enough that one move changes a leaf several times where a directory is small,
    /// and small enough that the mover ends before the next memtable is full (decision 0037).
    fn default() -> Shape {
        Shape { leaf_bytes: 4096 - 64, fanout: FANOUT_MAX, changes: 1024 }
    }
}

impl Shape {
    /// A leaf or node below this is joined with its neighbour. The line is well under half, so that a node that was just divided stays so.
    fn is_small(&self, child: &Child) -> bool {
        match child {
            Child::Leaf(leaf, _) => leaf.weight() * 4 < self.leaf_bytes,
            Child::Inner(inner) => inner.count * 4 < self.fanout,
            // Joining is not worth a read of the medium.
            Child::Away(_) | Child::Lost(_) => false,
        }
    }
}

/// Most children of a node.
const FANOUT_MAX: usize = 32;

#[derive(Clone, Debug)]
enum Child {
    Inner(Arc<Inner>),
    /// With its number of records: a search uses it to estimate a position before it has touched the leaf.
    Leaf(Arc<Leaf>, u16),
    Away(Arc<Away>),
    Lost(Arc<Stretch>),
}

/// A key range, from `first` on and below `end`, whose records are lost: it is unknown whether there were any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub first: Key,
    pub end: Key,
}

impl Stretch {
    /// The key range of a leaf's records.
    fn of(home: &Home) -> Stretch {
        Stretch { first: home.first, end: home.last.after() }
    }
    /// `None`: the range is empty.
    fn between(first: Key, end: Key) -> Option<Stretch> {
        (first < end).then_some(Stretch { first, end })
    }
    fn meets(&self, from: &Key, to: Option<&Key>) -> bool {
        to.is_none_or(|to| self.first < *to) && *from < self.end
    }
    fn has(&self, key: &Key) -> bool {
        (self.first..self.end).contains(key)
    }
    /// The parts before and behind the other range.
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

/// One entry at the leaves' depth of a tree.
pub enum Tip<'a> {
    Here(&'a Arc<Leaf>),
    Away(&'a Arc<Away>),
    Lost(&'a Stretch),
}

/// Why a tree cannot show a record.
#[derive(Clone, Copy, Debug)]
pub enum Gap<'a> {
    Away(&'a Arc<Away>),
    Lost(Stretch),
}

impl Gap<'_> {
    /// The gap has no record below this key.
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

    /// The leaf of a child at the leaves' depth.
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
            Child::Inner(_) => unreachable!("kv-T2: a node at the leaves' depth"),
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

/// A node, one piece of memory like a leaf. The common prefix of `firsts` is stored once, and `heads` are the eight bytes behind it: a
/// search compares those.
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
        assert!(inner.count > 0, "kv-T3: no node is empty");
        debug_assert!(inner.firsts()[1..].is_sorted_by(|a, b| a < b), "kv-T1: keys rise from child to child");
        // No search compares the first child's key (kv-T1), so it does not count for the prefix.
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

    /// The index of the child that has the key if there is one: the number of `firsts`, without the first one, that are not above the key.
    fn way(&self, key: &Key) -> usize {
        if !key.starts_with(&self.prefix) {
            return if *key < self.prefix { 0 } else { self.count - 1 };
        }
        let head = key.word_at(self.prefix.as_bytes().len());
        // Compares all heads, as a leaf does.
        let i = self.heads[1..self.count].iter().map(|of_child| u64::from(*of_child < head)).sum::<u64>()
            as usize;
        let same = self.heads[1 + i..self.count].iter().take_while(|of_child| **of_child == head).count();
        match same {
            0 => i,
            _ => i + self.firsts[1 + i..1 + i + same].partition_point(|first| first <= key),
        }
    }

    /// The position of the key between the begins of child `i` and of the next one, as a fraction. Keys of a kind are hashes or consecutive
    /// numbers, so the fraction is also the key's estimated position in the child.
    #[inline]
    fn share(&self, i: usize, key: &Key) -> Share {
        // The begin of the first child and the end of the last one are unknown: assume the width of the child beside it.
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

/// The result of an edit.
#[derive(Debug, Default)]
pub struct Edited {
    pub tree: Tree,
    /// `Away`s that the new tree replaced by leaves.
    pub replaced: Vec<Arc<Away>>,
    /// A key of each leaf that was emptied: its neighbour, which may not be in memory, has such keys now.
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

/// An edit under way: the shape of leaves, and sums over the leaves that it made and replaced.
struct Work<'a> {
    shape: &'a Shape,
    made: Cell<Sums>,
    replaced: Cell<Sums>,
    /// The `Away`s among the leaves that it replaced.
    aways: RefCell<Vec<Arc<Away>>>,
    /// See `Edited`.
    emptied: RefCell<Vec<Key>>,
    /// A range known as empty: it is cut out of every lost range.
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
    /// The leaf's place that has the key, and the key's estimated position in it.
    fn tip(&self, key: &Key) -> Option<(&Child, Share)> {
        let (mut at, mut share) = (self.root.as_ref()?, Share::HALF);
        while let Child::Inner(inner) = at {
            let i = inner.way(key);
            (at, share) = (inner.child(i), inner.share(i, key));
        }
        Some((at, share))
    }

    /// The leaf that must be loaded before the key is changed.
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

    /// Builds a tree of leaves on the medium and the lost ranges between them, in key order.
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

    /// The sums, counted anew over all leaves; for checks. Lost records cannot be counted, and are taken as they are.
    fn counted(&self) -> Sums {
        let mut sums = Sums { lost: self.sums.lost, ..Sums::default() };
        let mut tip = |child: &Child| {
            sums = sums.plus(child.sums());
            ControlFlow::<()>::Continue(())
        };
        let _ = self.root.as_ref().map(|root| visit(root, &Key::default(), None, &mut tip));
        sums
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

    /// Shows `f` the leaves' places that may have records with `from <= key`, and `key < to` if that is given, in order, until it breaks.
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
                Child::Inner(_) => unreachable!("kv-T2: a node at the leaves' depth"),
            })
        };
        self.root.as_ref().map_or(ControlFlow::Continue(()), |root| visit(root, from, to, &mut tip))
    }

    /// Leaves with such keys that are not in memory: at most `max` of them, among the first `within`.
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

    /// Ranges with such keys that are known to be lost.
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

    /// Shows `f` the records with `from <= key`, and `key < to` if that is given, in order, until it breaks. `gap` provides a leaf for one
    /// that is not in memory, or breaks.
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

    /// The tree after changes, which are in key order, each key once. The leaves of all these keys are in memory, or lost.
    pub fn edit(&self, edits: &[Edit<'_>], shape: &Shape) -> Tree {
        self.edited(edits, shape).tree
    }

    /// As `edit`; also returns the `Away`s that were replaced and the keys of emptied leaves.
    pub fn edited(&self, edits: &[Edit<'_>], shape: &Shape) -> Edited {
        self.changed(edits, None, shape)
    }

    /// The tree with a range marked as known empty; returns as `edited` does. Leaves that may have keys in the range are in memory, or
    /// lost.
    pub fn bared(&self, bare: &Stretch, shape: &Shape) -> Edited {
        // One key of each lost range leads the edit there. The keys have no record, so deleting them changes nothing else.
        let lost = self.lost(&bare.first, Some(&bare.end));
        let keys: Vec<Key> = lost.iter().map(|l| l.first.max(bare.first)).collect();
        self.changed(&keys.iter().map(|key| (key, None)).collect::<Vec<_>>(), Some(bare), shape)
    }

    fn changed(&self, edits: &[Edit<'_>], bare: Option<&Stretch>, shape: &Shape) -> Edited {
        if edits.is_empty() {
            return Edited::same(self);
        }
        debug_assert!(edits.is_sorted_by(|a, b| a.0 < b.0), "changes are in key order, each key once");
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
        debug_assert_eq!(tree.counted(), tree.sums, "sums are those over the leaves");
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

/// The children in place of one child, whose keys are below `end`; `None`: it does not change.
fn edit(at: &Child, end: Option<&Key>, edits: &[Edit<'_>], work: &Work<'_>) -> Option<Row> {
    match at {
        Child::Inner(inner) => {
            // 1. Edit each child that has changes.
            let (mut rest, mut changed) = (edits, Vec::with_capacity(edits.len().min(inner.count)));
            while let Some((key, _)) = rest.first() {
                let i = inner.way(key);
                let next = inner.firsts().get(i + 1).or(end);
                let mine = next.map_or(rest.len(), |next| rest.partition_point(|(key, _)| *key < next));
                changed.extend(edit(inner.child(i), next, &rest[..mine], work).map(|new| (i, new)));
                rest = &rest[mine..];
            }
            // 2. Nearly always each child stays one child: copy this node.
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
            // 3. Otherwise build a new row of children.
            let mut row = Row::with_capacity(inner.count + 2);
            let mut changed = changed.into_iter().peekable();
            for (i, (first, child)) in inner.children().enumerate() {
                match changed.next_if(|(at, _)| *at == i) {
                    None => row.push((first, child)),
                    Some((_, new)) => {
                        // kv-T1: keys below the first record still belong to this child.
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
                Err(Gap::Away(away)) => {
                    unreachable!("kv-I3: {:?} is to change, and was not loaded", away.home)
                }
            };
            if new.as_ref().is_some_and(Vec::is_empty) {
                work.emptied.borrow_mut().extend(edits.first().map(|(key, _)| **key));
            }
            new
        }
    }
}

/// A lost range, divided at the keys that have changes: their records are known again.
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

/// Nodes over these children, as even as possible.
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

/// kv-T3: joins small neighbours.
fn joined(row: Row, work: &Work<'_>) -> Row {
    let shape = work.shape;
    if row.len() < 2 || !row.iter().any(|(_, child)| shape.is_small(child)) {
        return row;
    }
    let mut out = Row::with_capacity(row.len());
    for (first, child) in row {
        // A leaf that is not in memory is not joined.
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
                    // The parent has the true begin of a node; the node's own first key may be higher.
                    inner
                        .children()
                        .enumerate()
                        .map(move |(i, (f, child))| (if i == 0 { first } else { f }, child))
                });
                // Children of two nodes are neighbours now, and may be small.
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
