//! The memtable: the latest changes of a table in key order. One writer adds changes; a version sees those that it had when it was made.
//!
//! Changes lie in an array in the order of arrival, and are never changed or moved. A skip list over the array gives the key order; of
//! several changes of one key the latest comes first. A version sees the first `seen` changes and skips later ones. Adding a change is
//! therefore one search and a few links: nothing is copied, and a replaced change is freed with the array. A filter has a bit for each
//! key that has a change, because most keys that are looked up have none.
//!
//! kv-N1: a change is complete before a link leads to it: links are stored with release and read with acquire.
//! kv-N2: links only lead forward in the order. A stored link is only ever changed to lead to a change between its two ends.
//! kv-N3: of all versions that share an array, one is the newest: it sees all changes of the array. Adding to an older version, or to a
//!     full array, first copies the changes that this version shows to an array of its own.

use std::iter;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use types::Key;

use crate::value::Value;

/// One change in four has a link of the next level: enough for some thousand changes.
const LEVELS: usize = 6;
/// Filter words. With twelve hundred changes, one key in twenty without a change is searched for in vain.
const FILTER_WORDS: usize = 384;
/// The end of a chain of links.
const END: u32 = u32::MAX;

/// The links of the head, or of one change.
type Links = [AtomicU32; LEVELS];

fn no_links() -> Links {
    [const { AtomicU32::new(END) }; LEVELS]
}

struct Node {
    key: Key,
    /// `None`: a tombstone, the record is deleted.
    value: Option<Value>,
    next: Links,
}

struct Changes {
    /// The filter: a bit for each key that has a change.
    keys: [AtomicU64; FILTER_WORDS],
    head: Links,
    nodes: Box<[OnceLock<Node>]>,
}

/// One version's part of a memtable. A clone only raises a reference count.
#[derive(Clone)]
pub struct Memtable {
    array: Arc<Changes>,
    /// This version sees so many changes from the beginning of the array.
    seen: u32,
    /// Bytes of the values of those changes.
    bytes: u64,
}

impl Default for Memtable {
    /// Empty and without capacity: for versions to which nothing is added.
    fn default() -> Memtable {
        Memtable::with_capacity(0)
    }
}

impl Memtable {
    pub fn with_capacity(changes: usize) -> Memtable {
        assert!(changes < END as usize, "a link can name each change");
        let nodes = iter::repeat_with(OnceLock::new).take(changes).collect();
        let keys = [const { AtomicU64::new(0) }; FILTER_WORDS];
        Memtable { array: Arc::new(Changes { keys, head: no_links(), nodes }), seen: 0, bytes: 0 }
    }

    pub fn is_same(&self, other: &Memtable) -> bool {
        Arc::ptr_eq(&self.array, &other.array)
    }

    /// Number of changes, including those that a later change of the same key replaced.
    pub fn changes(&self) -> usize {
        self.seen as usize
    }

    /// Bytes of the values of all these changes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The latest change of `key`: `Some(None)` is a tombstone.
    pub fn get(&self, key: &Key) -> Option<Option<&Value>> {
        if !self.array.may_have(key) {
            return None;
        }
        let node = self.from(self.array.seek(key, |_, _| {})).next().filter(|node| node.key == *key)?;
        Some(node.value.as_ref())
    }

    /// The latest change of each key with `from <= key`, and `key < to` if that is given, in order.
    pub fn range<'a>(
        &'a self,
        from: &Key,
        to: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, Option<&'a Value>)> + use<'a> {
        let (to, mut shown) = (to.copied(), None);
        self.from(self.array.seek(from, |_, _| {}))
            .take_while(move |node| to.is_none_or(|to| node.key < to))
            // Of several changes of one key the latest comes first.
            .filter(move |node| shown.replace(node.key) != Some(node.key))
            .map(|node| (&node.key, node.value.as_ref()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, Option<&Value>)> {
        self.range(&Key::default(), None)
    }

    /// Adds a change: this version sees it, and no clone that was made before does.
    pub fn add(&mut self, key: Key, value: Option<Value>) {
        let is_newest = match self.array.nodes.get(self.seen as usize) {
            Some(next) => next.get().is_none(),
            None => false,
        };
        if !is_newest {
            // kv-N3. The copy has at least the old capacity. Otherwise a few keys that change again and again would fill it at once.
            let capacity = (2 * self.iter().count()).max(16).max(self.array.nodes.len());
            let mut own = Memtable::with_capacity(capacity);
            self.iter().for_each(|(key, value)| own.push(*key, value.cloned()));
            debug_assert_eq!(own.changes(), own.iter().count(), "kv-N3: a copy has each key once");
            *self = own;
        }
        assert!(
            (self.seen as usize) < self.array.nodes.len(),
            "kv-N3: the array has space for one more change"
        );
        self.push(key, value);
    }

    fn push(&mut self, key: Key, value: Option<Value>) {
        self.bytes += value.as_ref().map_or(0, |value| value.raw().len() as u64);
        let mut before: [&Links; LEVELS] = [&self.array.head; LEVELS];
        // The position of the latest change of this key: before all other changes of it.
        self.array.seek(&key, |level, links| before[level] = links);
        let before = &before[..levels(self.seen)];
        let next = no_links();
        for (level, links) in before.iter().enumerate() {
            next[level].store(links[level].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let follower = self.array.node(next[0].load(Ordering::Relaxed));
        debug_assert!(follower.is_none_or(|node| key <= node.key), "kv-N2: links lead forward in key order");
        self.array.note(&key);
        let is_new = self.array.nodes[self.seen as usize].set(Node { key, value, next }).is_ok();
        assert!(is_new, "one writer adds at a time");
        for (level, links) in before.iter().enumerate() {
            links[level].store(self.seen, Ordering::Release);
        }
        self.seen += 1;
    }

    /// The changes from `at` on, in key order, that this version sees.
    fn from(&self, at: u32) -> impl Iterator<Item = &Node> {
        let mut at = at;
        iter::from_fn(move || {
            loop {
                let (number, node) = (at, self.array.node(at)?);
                at = node.next[0].load(Ordering::Acquire);
                if number < self.seen {
                    return Some(node);
                }
            }
        })
    }
}

/// The filter's word, and the bit in it.
#[inline]
fn bit_of(key: &Key) -> (usize, u64) {
    let hash = [0, 8, 16]
        .map(|at| key.word_at(at))
        .into_iter()
        .fold(0u64, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let lot = (hash >> 32) as usize;
    ((lot * FILTER_WORDS) >> 32, 1 << (lot & 63))
}

impl Changes {
    #[inline]
    fn may_have(&self, key: &Key) -> bool {
        let (word, bit) = bit_of(key);
        self.keys[word].load(Ordering::Relaxed) & bit != 0
    }

    /// Sets the key's filter bit before the change is linked, so that a reader of a version with this change sees the bit.
    fn note(&self, key: &Key) {
        let (word, bit) = bit_of(key);
        self.keys[word].store(self.keys[word].load(Ordering::Relaxed) | bit, Ordering::Relaxed);
    }

    fn node(&self, number: u32) -> Option<&Node> {
        self.nodes.get(number as usize)?.get()
    }

    /// The first of all changes in the array whose key is not before `key`. Shows `passed`, on each level, the links that lead to it or
    /// beyond.
    #[inline]
    fn seek<'a>(&'a self, key: &Key, mut passed: impl FnMut(usize, &'a Links)) -> u32 {
        let (mut links, mut at, mut not_before) = (&self.head, END, END);
        for level in (0..LEVELS).rev() {
            loop {
                at = links[level].load(Ordering::Acquire);
                // This level must stop where the level above stopped.
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

/// Levels of the change with this number: at least one, and each further one for a quarter of the changes, spread by a hash.
fn levels(number: u32) -> usize {
    let lot = (number ^ number >> 7).wrapping_mul(0x9e37_79b1).rotate_left(15).wrapping_mul(0x85eb_ca77);
    (1 + lot.leading_zeros() as usize / 2).min(LEVELS)
}

#[cfg(test)]
mod tests;
