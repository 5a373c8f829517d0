//! Leaves: the records of one key range, packed into one piece of memory.
//!
//! The common prefix of all keys of a leaf is stored once. A record's *head* is the four bytes of its key behind the prefix, as a number.
//! A search compares heads, which lie side by side, and compares keys only where heads are equal.
//!
//! | bytes | what |
//! |---|---|
//! | 4 each | heads, zeros where a key is shorter |
//! | 2 each | where each cell ends |
//! | ... | cells: length of the key's rest (1), length of the value (2), its CRC (4), what the rest has behind the head, the value |
//!
//! A value of more than `SMALL_MAX` bytes lies beside the leaf (`large`), and its cell has an index into `large` instead. A change copies
//! the leaf but not such a value.
//!
//! kv-L1: keys rise.  kv-L2: a leaf has at least one record; with more than one it has no more than `Shape::leaf_bytes`.
//! kv-L3: the cells' lengths lead from one cell to the next and to the end.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use types::Key;
use types::key::KEY_MAX;

use crate::home::Home;
use crate::{Size, Value, record_bytes};

mod form;

/// Longest value in a cell: directory entries, inodes and unlink records fit. Inline pages, most xattrs and wide layouts are longer.
pub const SMALL_MAX: usize = 512;
/// In place of a value's length: the CRC field holds an index into `large`.
const IS_LARGE: u16 = u16::MAX;
/// Weight of a value in `large`: it goes to the medium with its leaf, which should stay at some ten pages.
fn weight_of_large(len: usize) -> usize {
    192 + len / 16
}
const HEAD: usize = 4;
/// Bytes of a record beside its cell: the head, and where the cell ends.
const INDEX: usize = HEAD + 2;
/// Bytes of a cell before the key: key length, value length, CRC.
const CELL: usize = 1 + 2 + 4;

/// One version of the records of one key range. All but large values is one piece of memory, so that a search with cold caches waits for
/// memory once.
#[derive(Debug)]
pub struct Leaf<B: ?Sized = [u8]> {
    /// The common prefix of all keys. `prefix_len` is its length.
    prefix: Key,
    prefix_len: u8,
    records: u16,
    /// A reader used the leaf since the clock passed. Readers write it only if it is clear, so that they share the cache line.
    used: AtomicBool,
    large: Box<[Value]>,
    /// Where this leaf lies on the medium, unchanged, once a durable checkpoint has written it. Weak: the list of what the head names holds
    /// the home, and an old version must not.
    home: Mutex<Weak<Home>>,
    /// May end with zeros.
    bytes: B,
}

/// Memory beside a leaf: reference counts and the allocator's header. A large value also has its place in `large`.
const COUNTS: usize = 32;
const LARGE_OVERHEAD: usize = COUNTS + size_of::<Value>();

/// A leaf's length in bytes is a multiple of this, because each length is a type of its own.
const STEP: usize = 128;
/// The longest of these types.
const BYTES_MAX: usize = 32 * STEP;

/// A leaf of at least `bytes` bytes, all zeros.
fn blank(prefix: Key, prefix_len: u8, records: u16, bytes: usize) -> Arc<Leaf> {
    macro_rules! of_len {
        ($($steps:literal)*) => {
            match bytes.div_ceil(STEP).max(1) {
                $($steps => {
                    let (large, home, used) = (Box::default(), Mutex::default(), AtomicBool::new(true));
                    let bytes = [0; STEP * $steps];
                    Arc::new(Leaf { prefix, prefix_len, records, used, large, home, bytes })
                })*
                _ => unreachable!("kv-L2: a leaf of {bytes} bytes"),
            }
        };
    }
    of_len!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32)
}

/// A record's value in a leaf.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    Small { bytes: &'a [u8], crc: u32 },
    Large(&'a Value),
}

impl<'a> Content<'a> {
    pub fn of(value: &'a Value) -> Content<'a> {
        match value.raw().len() {
            ..=SMALL_MAX => Content::Small { bytes: value.raw(), crc: value.crc() },
            _ => Content::Large(value),
        }
    }
    pub fn raw(self) -> &'a [u8] {
        match self {
            Content::Small { bytes, .. } => bytes,
            Content::Large(value) => value.raw(),
        }
    }
    pub fn crc(self) -> u32 {
        match self {
            Content::Small { crc, .. } => crc,
            Content::Large(value) => value.crc(),
        }
    }
}

/// The four bytes of a key behind the prefix, as a number that sorts like the bytes.
#[inline]
fn head_of(key: &Key, prefix: usize) -> u32 {
    (key.word_at(prefix) >> 32) as u32
}

/// The estimated position of a record in a leaf, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1 << 16;
    pub const HALF: Share = Share(Share::WHOLE / 2);

    /// The fraction `n` of `of`, at most one.
    #[inline]
    pub fn of(n: u64, of: u64) -> Share {
        // Both lose the same low bits, so that a 32-bit division is enough.
        let cut = (of | 1).leading_zeros();
        let (n, of) = ((n.min(of) << cut >> 32) as u32, (of << cut >> 48) as u32);
        Share((n / of.max(1)).min(Share::WHOLE))
    }

    #[inline]
    pub fn part(self, of: usize) -> usize {
        (of * self.0 as usize) >> 16
    }
}

/// A cache line.
const LINE: usize = 64;
/// Lines of cells to touch before and behind the estimate: of 90 records whose keys are hashes, two of three lie within this.
const LINES_AROUND: usize = 2;

/// A decoded cell.
struct Cell<'a> {
    /// Bytes of the key behind the prefix.
    rest_len: usize,
    /// The key's bytes behind prefix and head.
    tail: &'a [u8],
    content: Content<'a>,
}

impl Leaf {
    pub fn records(&self) -> usize {
        self.records.into()
    }

    fn head(&self, i: usize) -> u32 {
        u32::from_le_bytes(self.bytes[HEAD * i..HEAD * (i + 1)].try_into().expect("four bytes"))
    }

    fn prefix_len(&self) -> usize {
        self.prefix_len.into()
    }

    /// Where cell `i` begins, which is where the one before it ends.
    #[inline]
    fn begin_of(&self, i: usize) -> usize {
        match i {
            0 => INDEX * self.records(),
            _ => {
                let at = HEAD * self.records() + 2 * (i - 1);
                u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]).into()
            }
        }
    }

    #[inline]
    fn cell(&self, i: usize) -> Cell<'_> {
        let cell = &self.bytes[self.begin_of(i)..self.begin_of(i + 1)];
        let rest_len = usize::from(cell[0]);
        let tail_len = rest_len.saturating_sub(HEAD);
        let value_len = u16::from_le_bytes([cell[1], cell[2]]);
        let number = u32::from_le_bytes([cell[3], cell[4], cell[5], cell[6]]);
        let (tail, bytes) = cell[CELL..].split_at(tail_len);
        let content = match value_len {
            IS_LARGE => Content::Large(&self.large[number as usize]),
            _ => Content::Small { bytes, crc: number },
        };
        Cell { rest_len, tail, content }
    }

    fn key_of(&self, i: usize, cell: &Cell<'_>) -> Key {
        let mut bytes = [0; KEY_MAX + HEAD];
        let p = self.prefix_len();
        bytes[..p].copy_from_slice(self.prefix.as_bytes());
        bytes[p..p + HEAD].copy_from_slice(&self.head(i).to_be_bytes());
        bytes[p + HEAD..][..cell.tail.len()].copy_from_slice(cell.tail);
        Key::new(&bytes[..p + cell.rest_len]).expect("it was made of a key")
    }

    pub fn key(&self, i: usize) -> Key {
        self.key_of(i, &self.cell(i))
    }

    pub fn first(&self) -> Key {
        self.key(0)
    }

    pub fn last(&self) -> Key {
        self.key(self.records() - 1)
    }

    pub fn size(&self) -> Size {
        let bytes =
            (0..self.records()).map(|i| self.record(i)).map(|(key, v)| record_bytes(&key, v.raw().len()));
        Size { records: self.records.into(), bytes: bytes.sum() }
    }

    pub fn home(&self) -> Option<Arc<Home>> {
        self.home.lock().upgrade()
    }

    /// The first home stays while it is alive: all homes of a leaf have the same bytes. A home can be gone if a change hid the leaf from a
    /// head, and was undone before it reached the tree.
    pub fn set_home(&self, home: &Arc<Home>) {
        let mut own = self.home.lock();
        if own.strong_count() == 0 {
            *own = Arc::downgrade(home);
        }
    }

    /// Marks the leaf as used.
    #[inline]
    pub fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Was the leaf used since the last call?
    pub fn take_used(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        if used {
            self.used.store(false, Ordering::Relaxed);
        }
        used
    }

    /// Bytes that the leaf takes in memory, with its large values.
    pub fn memory_bytes(&self) -> u64 {
        let large: usize = self.large.iter().map(|value| LARGE_OVERHEAD + value.raw().len()).sum();
        (size_of_val(self) + COUNTS + large) as u64
    }

    /// Touches the cache lines that a search will need, if the record is `share` of the way through the `records`. The caller knows both
    /// from the parent node. All lines then come from memory together, where the search would wait for one after the other.
    #[inline]
    pub fn bring(&self, records: usize, share: Share) {
        let (heads, index, last) = (HEAD * records, INDEX * records, self.bytes.len() - 1);
        let mut seen = 0;
        let mut look = |at: usize| seen |= self.bytes[at.min(last)];
        (0..heads).step_by(LINE).for_each(&mut look);
        let end = heads + 2 * share.part(records);
        [end.saturating_sub(LINE / 2), end + LINE / 2].into_iter().for_each(&mut look);
        let cell = index + share.part(last.saturating_sub(index));
        let around = cell.saturating_sub(LINES_AROUND * LINE);
        (0..=2 * LINES_AROUND).for_each(|n| look(around + n * LINE));
        // The result is not used, so the processor does not wait for it.
        std::hint::black_box(seen);
    }

    /// The record with this key, or the position where it would be.
    #[inline]
    fn find(&self, key: &Key) -> Result<(usize, Content<'_>), usize> {
        if !key.starts_with(&self.prefix) {
            return Err(if *key < self.prefix { 0 } else { self.records() });
        }
        let rest = &key.as_bytes()[self.prefix_len()..];
        let head = head_of(key, self.prefix_len());
        let heads = self.bytes[..HEAD * self.records()].as_chunks::<HEAD>().0;
        // Compares all heads: that is a few vector instructions, and the lines of memory come side by side. A binary search would wait for
        // one after the other.
        let low =
            heads.iter().map(|other| u32::from(u32::from_le_bytes(*other) < head)).sum::<u32>() as usize;
        let same = heads[low..].iter().take_while(|other| u32::from_le_bytes(**other) == head).count();
        // A binary search among equal heads: nearly always there is one at most.
        let (mut low, mut high) = (low, low + same);
        while low < high {
            let middle = (low + high) / 2;
            let cell = self.cell(middle);
            let order = match rest.len().min(cell.rest_len) >= HEAD {
                true => cell.tail.cmp(&rest[HEAD..]),
                // Heads are equal, so the shorter key is a prefix of the longer one.
                false => cell.rest_len.cmp(&rest.len()),
            };
            match order {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok((middle, cell.content)),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    pub fn get(&self, key: &Key) -> Option<Content<'_>> {
        self.find(key).ok().map(|(_, content)| content)
    }

    /// Indexes of the records with `from <= key`, and `key < to` if that is given.
    pub fn within(&self, from: &Key, to: Option<&Key>) -> Range<usize> {
        let at = |key| self.find(key).map_or_else(|i| i, |(i, _)| i);
        at(from)..to.map_or(self.records(), at)
    }

    pub fn record(&self, i: usize) -> (Key, Content<'_>) {
        let cell = self.cell(i);
        (self.key_of(i, &cell), cell.content)
    }

    /// The measure by which a leaf is too small or too large.
    pub fn weight(&self) -> usize {
        let large = self.large.iter().map(|value| weight_of_large(value.raw().len()));
        self.begin_of(self.records()) + large.sum::<usize>()
    }

    /// Bytes that a run of its records takes in a leaf whose common prefix has `prefix` bytes; an upper bound.
    fn bytes_of(&self, run: &Range<usize>, prefix: usize) -> usize {
        let cells = self.begin_of(run.end) - self.begin_of(run.start);
        let longer = self.prefix_len().saturating_sub(prefix);
        cells + (INDEX + longer) * run.len()
    }

    /// The weight of the large values of a run.
    fn beside(&self, run: &Range<usize>) -> usize {
        let of_large = |i| match self.cell(i).content {
            Content::Large(value) => weight_of_large(value.raw().len()),
            Content::Small { .. } => 0,
        };
        if self.large.is_empty() { 0 } else { run.clone().map(of_large).sum() }
    }

    fn weight_of(&self, run: &Range<usize>, prefix: usize) -> usize {
        self.bytes_of(run, prefix) + self.beside(run)
    }
}

/// A part of the input from which leaves are packed.
#[derive(Clone, Debug)]
pub enum Piece<'a> {
    /// Records of an existing leaf.
    Old(&'a Leaf, Range<usize>),
    New(&'a Key, &'a Value),
}

impl Piece<'_> {
    fn first(&self) -> Key {
        match self {
            Piece::Old(leaf, run) => leaf.key(run.start),
            Piece::New(key, _) => **key,
        }
    }
    fn last(&self) -> Key {
        match self {
            Piece::Old(leaf, run) => leaf.key(run.end - 1),
            Piece::New(key, _) => **key,
        }
    }
    fn bytes(&self, prefix: usize) -> usize {
        match self {
            Piece::Old(leaf, run) => leaf.bytes_of(run, prefix),
            Piece::New(key, value) => {
                let tail = key.as_bytes().len().saturating_sub(prefix + HEAD);
                let small = Some(value.raw().len()).filter(|len| *len <= SMALL_MAX);
                INDEX + CELL + tail + small.unwrap_or(0)
            }
        }
    }
    fn weight(&self, prefix: usize) -> usize {
        let beside = match self {
            Piece::Old(leaf, run) => leaf.beside(run),
            Piece::New(_, value) if value.raw().len() > SMALL_MAX => weight_of_large(value.raw().len()),
            Piece::New(..) => 0,
        };
        self.bytes(prefix) + beside
    }
}

/// A change to a leaf: a new value, or a deletion.
pub type Edit<'a> = (&'a Key, Option<&'a Value>);

/// The pieces of a leaf after changes, which are in key order. `None`: the leaf does not change.
pub fn edited<'a>(leaf: &'a Leaf, edits: &[Edit<'a>]) -> Option<Vec<Piece<'a>>> {
    debug_assert!(edits.is_sorted_by(|a, b| a.0 < b.0), "changes are in key order, each key once");
    let mut pieces = Vec::with_capacity(2 * edits.len() + 1);
    let mut at = 0;
    let mut is_same = true;
    for (key, value) in edits {
        let (upto, next) = match leaf.find(key) {
            Ok((i, _)) => (i, i + 1),
            Err(i) => (i, i),
        };
        is_same &= value.is_none() && upto == next;
        if at < upto {
            pieces.push(Piece::Old(leaf, at..upto));
        }
        pieces.extend(value.map(|value| Piece::New(key, value)));
        at = next;
    }
    if at < leaf.records() {
        pieces.push(Piece::Old(leaf, at..leaf.records()));
    }
    (!is_same).then_some(pieces)
}

/// Packs pieces, which are in key order, into as few leaves as hold them (kv-L2). Records appended behind all others, as inodes are, fill
/// leaves one by one. Other records are divided evenly, so that each leaf has space for more.
pub fn pack(pieces: Vec<Piece<'_>>, leaf_bytes: usize) -> Vec<Arc<Leaf>> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Vec::new() };
    let prefix = first.first().common_prefix(&last.last()).as_bytes().len();
    let total: usize = pieces.iter().map(|piece| piece.weight(prefix)).sum::<usize>();
    if total <= leaf_bytes {
        return vec![packed(&pieces)];
    }
    let limit = match is_appended(&pieces, prefix, leaf_bytes) {
        true => leaf_bytes,
        false => total.div_ceil(total.div_ceil(leaf_bytes)),
    };
    assert!(limit <= leaf_bytes, "kv-L2: an even share is no more than a leaf may have");
    let groups = Groups { rest: pieces.into(), prefix, limit, room: leaf_bytes };
    let leaves: Vec<_> = groups.map(|group| packed(&group)).collect();
    debug_assert!(leaves.iter().all(|leaf| leaf.records() == 1 || leaf.weight() <= leaf_bytes), "kv-L2");
    debug_assert!(leaves.is_sorted_by(|a, b| a.last() < b.first()), "kv-L1: keys rise from leaf to leaf");
    leaves
}

/// Is it a run of new records that does not fit, with next to nothing behind it? Keys at random places come by ones and twos.
fn is_appended(pieces: &[Piece<'_>], prefix: usize, room: usize) -> bool {
    const ROW_MIN: usize = 4;
    let is_new = |piece: &Piece<'_>| matches!(piece, Piece::New(..));
    let sum = |pieces: &[Piece<'_>]| pieces.iter().map(|piece| piece.weight(prefix)).sum::<usize>();
    let Some(last) = pieces.iter().rposition(is_new) else { return false };
    let first = pieces[..last].iter().rposition(|piece| !is_new(piece)).map_or(0, |i| i + 1);
    last - first + 1 >= ROW_MIN && sum(&pieces[..first]) <= room && sum(&pieces[last + 1..]) * 4 < room
}

/// Divides pieces into groups of about `limit` bytes, and at most `room`.
struct Groups<'a> {
    rest: std::collections::VecDeque<Piece<'a>>,
    prefix: usize,
    limit: usize,
    room: usize,
}

impl<'a> Iterator for Groups<'a> {
    type Item = Vec<Piece<'a>>;

    fn next(&mut self) -> Option<Vec<Piece<'a>>> {
        let mut group: Vec<Piece<'a>> = Vec::new();
        let mut weight = 0;
        while let Some(piece) = self.rest.pop_front() {
            let more = piece.weight(self.prefix);
            if weight + more <= self.limit {
                weight += more;
                group.push(piece);
                continue;
            }
            match piece {
                Piece::Old(leaf, run) => {
                    // As many records as fit; the first of a group is taken whatever it weighs.
                    let least = run.start + usize::from(group.is_empty());
                    let fits = |n: usize| weight + leaf.weight_of(&(run.start..n), self.prefix) <= self.limit;
                    let end = (least + 1..=run.end).take_while(|n| fits(*n)).last().unwrap_or(least);
                    if end > run.start {
                        group.push(Piece::Old(leaf, run.start..end));
                    }
                    if end < run.end {
                        self.rest.push_front(Piece::Old(leaf, end..run.end));
                    }
                }
                Piece::New(..) if group.is_empty() => group.push(piece),
                Piece::New(..) => self.rest.push_front(piece),
            }
            return self.with_end(group);
        }
        (!group.is_empty()).then_some(group)
    }
}

impl<'a> Groups<'a> {
    /// Joins the rest to this group if both fit within `room`, so that the last group is not tiny.
    fn with_end(&mut self, mut group: Vec<Piece<'a>>) -> Option<Vec<Piece<'a>>> {
        let mut left = self.room;
        let all = group.iter().chain(&self.rest);
        let fits = all.map(|piece| piece.weight(self.prefix)).all(|weight| {
            let has_room = weight <= left;
            left = left.saturating_sub(weight);
            has_room
        });
        if fits {
            group.extend(self.rest.drain(..));
        }
        Some(group)
    }
}

/// One leaf of all these pieces.
fn packed(pieces: &[Piece<'_>]) -> Arc<Leaf> {
    let (first, last) = (pieces[0].first(), pieces[pieces.len() - 1].last());
    let begin = first.common_prefix(&last);
    let prefix = begin.as_bytes().len();
    let records: usize = pieces.iter().map(|p| if let Piece::Old(_, run) = p { run.len() } else { 1 }).sum();
    let bytes: usize = pieces.iter().map(|piece| piece.bytes(prefix)).sum();
    let mut leaf = blank(begin, prefix as u8, u16::try_from(records).expect("a leaf is short"), bytes);
    let new = Arc::get_mut(&mut leaf).expect("it was just made and is not shared");
    let (heads, rest) = new.bytes.split_at_mut(HEAD * records);
    let (ends, cells) = rest.split_at_mut(2 * records);
    let mut out =
        Packing { heads, ends, cells, begin: INDEX * records, at: 0, next: 0, prefix, large: Vec::new() };
    for piece in pieces {
        match piece {
            Piece::New(key, value) => out.put(key, Content::of(value)),
            Piece::Old(leaf, run) if leaf.prefix_len() == prefix && leaf.large.is_empty() => {
                out.put_run(leaf, run.clone())
            }
            Piece::Old(leaf, run) => run.clone().for_each(|i| {
                let (key, content) = leaf.record(i);
                out.put(&key, content)
            }),
        }
    }
    assert!(records > 0, "kv-L2: a leaf has at least one record");
    assert_eq!(out.next, records, "each record was counted");
    assert!(INDEX * records + out.at <= bytes, "the pieces' sizes are upper bounds");
    new.large = out.large.into();
    debug_assert!((1..records).all(|i| leaf.key(i - 1) < leaf.key(i)), "kv-L1: keys rise");
    leaf
}

/// A leaf being packed.
struct Packing<'a> {
    heads: &'a mut [u8],
    ends: &'a mut [u8],
    cells: &'a mut [u8],
    /// Where the first cell begins in the leaf.
    begin: usize,
    /// The write position in `cells`.
    at: usize,
    next: usize,
    prefix: usize,
    large: Vec<Value>,
}

impl Packing<'_> {
    fn put(&mut self, key: &Key, content: Content<'_>) {
        let rest = &key.as_bytes()[self.prefix..];
        let is_small = matches!(content, Content::Small { .. });
        assert_eq!(is_small, content.raw().len() <= SMALL_MAX, "only a long value lies beside its leaf");
        let (value_len, number, value) = match content {
            Content::Small { bytes, crc } => (bytes.len() as u16, crc, bytes),
            Content::Large(value) => {
                self.large.push(value.clone());
                (IS_LARGE, self.large.len() as u32 - 1, &[][..])
            }
        };
        self.add(&[rest.len() as u8]);
        self.add(&value_len.to_le_bytes());
        self.add(&number.to_le_bytes());
        self.add(rest.get(HEAD..).unwrap_or(&[]));
        self.add(value);
        self.heads[HEAD * self.next..HEAD * (self.next + 1)]
            .copy_from_slice(&head_of(key, self.prefix).to_le_bytes());
        self.end_cell(self.begin + self.at);
    }

    /// Copies records of a leaf with the same prefix and without large values as they are.
    fn put_run(&mut self, leaf: &Leaf, run: Range<usize>) {
        let heads = HEAD * self.next..HEAD * (self.next + run.len());
        self.heads[heads].copy_from_slice(&leaf.bytes[HEAD * run.start..HEAD * run.end]);
        let (from, to) = (leaf.begin_of(run.start), self.begin + self.at);
        self.add(&leaf.bytes[from..leaf.begin_of(run.end)]);
        run.for_each(|i| self.end_cell(leaf.begin_of(i + 1) - from + to));
    }

    fn add(&mut self, bytes: &[u8]) {
        self.cells[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn end_cell(&mut self, end: usize) {
        let end = u16::try_from(end).expect("a leaf is short");
        self.ends[2 * self.next..2 * (self.next + 1)].copy_from_slice(&end.to_le_bytes());
        self.next += 1;
    }
}

#[cfg(test)]
pub mod tests;
