//! A persistent B+tree over leaves: each change makes a new tree, which shares with the one before all that it did not touch.
//!
//! Changes come many at a time and in order, so that each node they touch is copied once for all of them.
//!
//! T1: child `i` of a node has the keys from `firsts[i]` on that are below `firsts[i + 1]`; the first one also has what is below it.
//! T2: all leaves are equally deep.  T3: no node is empty, and what has become small was joined with its neighbour.

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use types::Key;

use crate::leaf::{Content, Edit, Leaf, Piece, edited, pack};

/// How large leaves and nodes grow.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub leaf_bytes: usize,
    /// Children of a node.
    pub fanout: usize,
}

impl Default for Shape {
    /// A leaf is a page of the medium. A node is copied with its leaves, and each copy counts all of its children anew: few enough that
    /// this costs no more than the leaf does.
    fn default() -> Shape {
        Shape { leaf_bytes: 4096 - 64, fanout: FANOUT_MAX }
    }
}

impl Shape {
    /// Below this a leaf or a node is joined with its neighbour: well under half, so that what was just divided stays so.
    fn is_small(&self, child: &Child) -> bool {
        match child {
            Child::Leaf(leaf) => leaf.weight() * 4 < self.leaf_bytes,
            Child::Inner(inner) => inner.count * 4 < self.fanout,
        }
    }
}

/// Children of a node, at most.
const FANOUT_MAX: usize = 32;

#[derive(Clone, Debug)]
enum Child {
    Inner(Arc<Inner>),
    Leaf(Arc<Leaf>),
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

/// The first bytes of a key behind so many, as a number that sorts as they do.
fn head_of(key: &Key, prefix: usize) -> u64 {
    let rest = &key.as_bytes()[prefix..];
    match rest.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => rest.iter().rev().fold(0, |head, byte| head >> 8 | u64::from(*byte) << 56),
    }
}

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
            inner.heads[i] = head_of(&inner.firsts[i], prefix);
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
        let head = head_of(key, self.prefix.as_bytes().len());
        // All of them, as a leaf does it.
        let i = self.heads[1..self.count].iter().map(|of_child| u64::from(*of_child < head)).sum::<u64>()
            as usize;
        let same = self.heads[1 + i..self.count].iter().take_while(|of_child| **of_child == head).count();
        match same {
            0 => i,
            _ => i + self.firsts[1 + i..1 + i + same].partition_point(|first| first <= key),
        }
    }

    fn children(&self) -> impl Iterator<Item = (Key, Child)> {
        (0..self.count).map(|i| (self.firsts[i], self.child(i).clone()))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: Option<Child>,
    /// That its leaves take on the medium.
    pages: u64,
}

/// An edit under way: how leaves are to be, and the pages of those that it made and of those that it replaced.
struct Work<'a> {
    shape: &'a Shape,
    made: Cell<u64>,
    replaced: Cell<u64>,
}

impl Work<'_> {
    fn replaces(&self, leaf: &Leaf) {
        self.replaced.set(self.replaced.get() + leaf.pages());
    }
}

impl Tree {
    pub fn get(&self, key: &Key) -> Option<Content<'_>> {
        let mut at = self.root.as_ref()?;
        loop {
            match at {
                Child::Inner(inner) => at = inner.child(inner.way(key)),
                Child::Leaf(leaf) => return leaf.get(key),
            }
        }
    }

    /// Of leaves in order, none of them empty.
    pub fn of(leaves: Vec<Arc<Leaf>>, shape: &Shape) -> Tree {
        let pages = leaves.iter().map(|leaf| leaf.pages()).sum();
        Tree::over(leaves.into_iter().map(|leaf| (leaf.first(), Child::Leaf(leaf))).collect(), shape, pages)
    }

    /// That its leaves take on the medium.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    fn over(mut row: Row, shape: &Shape, pages: u64) -> Tree {
        while row.len() > 1 {
            row = nodes(row, shape);
        }
        let mut root = row.pop().map(|(_, child)| child);
        while let Some(Child::Inner(inner)) = &root
            && inner.count == 1
        {
            root = Some(inner.child(0).clone());
        }
        Tree { root, pages }
    }

    pub fn each_leaf(&self, f: &mut impl FnMut(&Arc<Leaf>) -> io::Result<()>) -> io::Result<()> {
        fn below(at: &Child, f: &mut impl FnMut(&Arc<Leaf>) -> io::Result<()>) -> io::Result<()> {
            match at {
                Child::Leaf(leaf) => f(leaf),
                Child::Inner(inner) => (0..inner.count).try_for_each(|i| below(inner.child(i), f)),
            }
        }
        self.root.as_ref().map_or(Ok(()), |root| below(root, f))
    }

    /// Shows `f` the records with `from <= key`, and `key < to` if that is given, in order, until it breaks.
    pub fn range<'a, B>(
        &'a self,
        from: &Key,
        to: Option<&Key>,
        f: &mut impl FnMut(Key, Content<'a>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.root.as_ref().map_or(ControlFlow::Continue(()), |root| visit(root, from, to, f))
    }

    /// The tree after changes, which are in order, each key once.
    pub fn edit(&self, edits: &[Edit<'_>], shape: &Shape) -> Tree {
        let work = Work { shape, made: Cell::new(0), replaced: Cell::new(0) };
        let row = match &self.root {
            None => leaves(edits.iter().filter_map(|(k, v)| Some(Piece::New(k, (*v)?))).collect(), &work),
            Some(root) => match edit(root, edits, &work) {
                None => return self.clone(),
                Some(row) => row,
            },
        };
        Tree::over(row, shape, self.pages + work.made.get() - work.replaced.get())
    }
}

fn visit<'a, B>(
    at: &'a Child,
    from: &Key,
    to: Option<&Key>,
    f: &mut impl FnMut(Key, Content<'a>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    match at {
        Child::Inner(inner) => {
            for i in inner.way(from)..inner.count {
                if i > 0 && to.is_some_and(|to| inner.firsts[i] >= *to) {
                    break;
                }
                visit(inner.child(i), from, to, f)?;
            }
        }
        Child::Leaf(leaf) => {
            for i in leaf.within(from, to) {
                let (key, content) = leaf.record(i);
                f(key, content)?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// What a child becomes; `None`: it stays.
fn edit(at: &Child, edits: &[Edit<'_>], work: &Work<'_>) -> Option<Row> {
    match at {
        Child::Leaf(leaf) => edited(leaf, edits).map(|pieces| {
            work.replaces(leaf);
            leaves(pieces, work)
        }),
        Child::Inner(inner) => {
            // 1. What each child becomes that some change is for.
            let (mut rest, mut changed) = (edits, Vec::with_capacity(edits.len().min(inner.count)));
            while let Some((key, _)) = rest.first() {
                let i = inner.way(key);
                let mine = match inner.firsts().get(i + 1) {
                    Some(next) => rest.partition_point(|(key, _)| *key < next),
                    None => rest.len(),
                };
                changed.extend(edit(inner.child(i), &rest[..mine], work).map(|new| (i, new)));
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
                        // T1: what lies below the first record is this child's yet.
                        let firsts = std::iter::once(first).chain(new.iter().skip(1).map(|(f, _)| *f));
                        row.extend(firsts.zip(new.iter().map(|(_, child)| child.clone())));
                    }
                }
            }
            Some(nodes(joined(row, work), work.shape))
        }
    }
}

fn leaves(pieces: Vec<Piece<'_>>, work: &Work<'_>) -> Row {
    let leaves = pack(pieces, work.shape.leaf_bytes);
    work.made.set(work.made.get() + leaves.iter().map(|leaf| leaf.pages()).sum::<u64>());
    let leaves = leaves.into_iter();
    leaves.map(|leaf| (leaf.first(), Child::Leaf(leaf))).collect()
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

/// T3.
fn joined(row: Row, work: &Work<'_>) -> Row {
    let shape = work.shape;
    if row.len() < 2 || !row.iter().any(|(_, child)| shape.is_small(child)) {
        return row;
    }
    let mut out = Row::with_capacity(row.len());
    for (first, child) in row {
        let Some((first_before, before)) = out.pop_if(|(_, b)| shape.is_small(b) || shape.is_small(&child))
        else {
            out.push((first, child));
            continue;
        };
        let mut both = match (&before, &child) {
            (Child::Leaf(a), Child::Leaf(b)) => {
                [a, b].into_iter().for_each(|leaf| work.replaces(leaf));
                leaves(vec![Piece::Old(a, 0..a.records()), Piece::Old(b, 0..b.records())], work)
            }
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
            _ => unreachable!("leaves are equally deep (T2)"),
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
