//! The latest changes of a table, in the order of their keys: one writer adds, states see what was there when they were made.
//!
//! Changes lie in a row as they came, are never changed and never moved. Over them is a skip list, in the order of keys, of one key the
//! latest first. A state sees the first so many changes of the row and passes over later ones, so that adding one is a search and a
//! few links: nothing is copied, and what a change replaced goes with the row. Beside the list is a bit for each key that has a change:
//! most keys that are asked for have none.
//!
//! kv-N1: a change is whole before a link leads to it: links are stored with release and read with acquire.
//! kv-N2: links only lead forward in the order. One that was stored is only ever changed to lead to a change between its two ends.
//! kv-N3: of a row, one state is the newest: the one that sees all of it. Who adds to another state, or to a row that is full, gets a row of
//!     his own with what that state shows.

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use types::Key;

use crate::value::Value;

/// One change in four has a link of the next level: enough for some thousand.
const LEVELS: usize = 6;
/// Bits for keys: of twelve hundred changes one key in twenty that has none is searched for all the same.
const FILTER_WORDS: usize = 384;
/// A link that leads nowhere.
const END: u32 = u32::MAX;

/// Where links begin: at the head, or at a change.
type Links = [AtomicU32; LEVELS];

fn no_links() -> Links {
    [const { AtomicU32::new(END) }; LEVELS]
}

struct Node {
    key: Key,
    /// `None`: the record is gone.
    value: Option<Value>,
    next: Links,
}

struct Row {
    /// A bit for each key that has a change: most keys that are asked for have none.
    keys: [AtomicU64; FILTER_WORDS],
    head: Links,
    nodes: Box<[OnceLock<Node>]>,
}

/// What one state sees of a row. A clone costs a count.
#[derive(Clone)]
pub struct Memtable {
    row: Arc<Row>,
    /// So many changes from the beginning.
    seen: u32,
    /// Of their values.
    bytes: u64,
}

impl Default for Memtable {
    /// Shows nothing, and has no room: for states to which nothing is added.
    fn default() -> Memtable {
        Memtable::with_room(0)
    }
}

impl Memtable {
    pub fn with_room(changes: usize) -> Memtable {
        let nodes = iter::repeat_with(OnceLock::new).take(changes).collect();
        let keys = [const { AtomicU64::new(0) }; FILTER_WORDS];
        Memtable { row: Arc::new(Row { keys, head: no_links(), nodes }), seen: 0, bytes: 0 }
    }

    pub fn is_same_memtable(&self, other: &Memtable) -> bool {
        Arc::ptr_eq(&self.row, &other.row)
    }

    /// Changes, those among them that a later one replaced.
    pub fn changes(&self) -> usize {
        self.seen as usize
    }

    /// Of all their values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latest change of `key`: `Some(None)` says that its record is gone.
    pub fn get(&self, key: &Key) -> Option<Option<&Value>> {
        if !self.row.may_have(key) {
            return None;
        }
        let node = self.from(self.row.seek(key, |_, _| {})).next().filter(|node| node.key == *key)?;
        Some(node.value.as_ref())
    }

    /// The latest change of each key with `from <= key`, and `key < to` if that is given, in order.
    pub fn range<'a>(
        &'a self,
        from: &Key,
        to: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Value>)> + use<'a> {
        let (to, mut shown) = (to.copied(), None);
        self.from(self.row.seek(from, |_, _| {}))
            .take_while(move |node| to.is_none_or(|to| node.key < to))
            // Of one key the latest comes first.
            .filter(move |node| shown.replace(node.key) != Some(node.key))
            .map(|node| (&node.key, node.value.as_ref()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.range(&Key::default(), None)
    }

    /// Adds a change: this state sees it, and no clone that was made before does.
    pub fn add(&mut self, key: Key, value: Option<Value>) {
        let is_newest = match self.row.nodes.get(self.seen as usize) {
            Some(next) => next.get().is_none(),
            None => false,
        };
        if !is_newest {
            // kv-N3.
            // As long as the one before, or a few keys that change again and again would fill it at once.
            let room = (2 * self.iter().count()).max(16).max(self.row.nodes.len());
            let mut own = Memtable::with_room(room);
            self.iter().for_each(|(key, value)| own.push(*key, value.cloned()));
            *self = own;
        }
        self.push(key, value);
    }

    fn push(&mut self, key: Key, value: Option<Value>) {
        self.bytes += value.as_ref().map_or(0, |value| value.raw().len() as u64);
        let mut before: [&Links; LEVELS] = [&self.row.head; LEVELS];
        // The latest of its key: before all others of it.
        self.row.seek(&key, |level, links| before[level] = links);
        let before = &before[..levels(self.seen)];
        let next = no_links();
        for (level, links) in before.iter().enumerate() {
            next[level].store(links[level].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.row.note(&key);
        let is_new = self.row.nodes[self.seen as usize].set(Node { key, value, next }).is_ok();
        assert!(is_new, "one writer adds at a time");
        for (level, links) in before.iter().enumerate() {
            links[level].store(self.seen, Ordering::Release);
        }
        self.seen += 1;
    }

    /// Changes from `at` on, in order, those that this state sees.
    fn from(&self, at: u32) -> impl Iterator<Item = &Node> {
        let mut at = at;
        iter::from_fn(move || {
            loop {
                let (number, node) = (at, self.row.node(at)?);
                at = node.next[0].load(Ordering::Acquire);
                if number < self.seen {
                    return Some(node);
                }
            }
        })
    }
}

/// Which bit of which word.
#[inline]
fn bit_of(key: &Key) -> (usize, u64) {
    let hash = [0, 8, 16]
        .map(|at| key.word_at(at))
        .into_iter()
        .fold(0u64, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let lot = (hash >> 32) as usize;
    ((lot * FILTER_WORDS) >> 32, 1 << (lot & 63))
}

impl Row {
    #[inline]
    fn may_have(&self, key: &Key) -> bool {
        let (word, bit) = bit_of(key);
        self.keys[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Before the change: who is given a state that has it sees its bit.
    fn note(&self, key: &Key) {
        let (word, bit) = bit_of(key);
        self.keys[word].store(self.keys[word].load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)?.get()
    }

    /// The first change, of all in the row, whose key is not before `key`. Shows `passed` on each level the links that lead to it or beyond.
    #[inline]
    fn seek<'a>(&'a self, key: &Key, mut passed: impl FnMut(usize, &'a Links)) -> u32 {
        let (mut links, mut at, mut not_before) = (&self.head, END, END);
        for level in (0..LEVELS).rev() {
            loop {
                at = links[level].load(Ordering::Acquire);
                // Where the level above stopped, this one does.
                if at == not_before {
                    break;
                }
                match self.node(at) {
                    Some(node) if node.key < *key => links = &node.next,
                    _ => break,
                }
            }
            not_before = at;
            passed(level, links);
        }
        at
    }
}

/// Levels of the change of that number: one and a further one for a quarter of them each, spread as if by lot.
fn levels(number: u32) -> usize {
    let lot = (number ^ number >> 7).wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca77);
    (1 + lot.leading_zeros() as usize / 2).min(LEVELS)
}

#[cfg(test)]
mod tests;
