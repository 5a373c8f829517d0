//! A table's leaves on the medium. A checkpoint writes the leaves that are not there yet, and a head that names all of them. A start reads
//! the head, and no leaf.
//!
//! kv-D1: a leaf that the durable head names is not overwritten: its home is released only once a head without it is durable.
//! kv-D2: a leaf learns its home only once a durable head names it; until then the checkpoint that wrote it holds the home.
//! kv-D3: therefore the newest version has no leaf on the medium that the durable head does not name.

use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use disk::alloc::Run;
use disk::leaves::{LeafArea, Place, Row, head_bytes};
use disk::{Disk, Troubles};
use parking_lot::Mutex;
use types::Key;
use types::key::KEY_MAX;

use crate::checkpoint::{StreamError, Writer};
use crate::home::{Away, Ground, Home};
use crate::leaf::Leaf;
use crate::tree::{Shape, Stretch, Tip, Tree};
use crate::{CheckedLeaves, RECORD_OVERHEAD_BYTES, Room, Size, VALUE_MAX};

/// Where a table lies, for `Table::over`.
pub struct Medium {
    pub disk: Arc<dyn Disk>,
    /// The two checkpoint slots. A head lies at the begin of one of them; leaves lie behind the heads.
    pub slots: [Range<u64>; 2],
    /// The part of its slot that the last checkpoint takes, if there is one.
    pub checkpoint: Option<Range<u64>>,
    /// Memory that leaves and their names may take: the bound of `Figures::memory_bytes`.
    pub cache_bytes: Arc<AtomicU64>,
    /// Of the volume: leaves that cannot be read are noted there.
    pub troubles: Arc<Troubles>,
}

const PAGE: u64 = types::PAGE_SIZE as u64;
/// Bytes of a leaf's name before its last key, and of each run of pages behind that.
const NAME_BYTES: usize = 24;
const RUN_BYTES: usize = 12;
/// Most records of a leaf: its counter has 16 bits.
const RECORDS_MAX: u32 = u16::MAX as u32;
/// Longest leaf: one record with the longest value, or many records that count as 4 KiB.
const LEAF_BYTES_MAX: u64 = 8192 + VALUE_MAX as u64;

/// The leaves that the durable head names, and those of the checkpoint under way.
pub struct OnMedium {
    pub ground: Arc<Ground>,
    /// Memory for leaves.
    pub cache_bytes: Arc<AtomicU64>,
    head_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    named: Vec<Arc<Home>>,
    /// A checkpoint of an earlier release. It lies where leaves do, and they must not be written over it.
    old_stream: Option<Range<u64>>,
    making: Option<Making>,
}

#[derive(Default)]
struct Making {
    named: Vec<Arc<Home>>,
    written: Vec<(Arc<Leaf>, Arc<Home>)>,
}

/// An entry of a head: a leaf, or a key range whose records are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Leaf(Named),
    Lost(Stretch),
}

impl Item {
    pub fn first(&self) -> Key {
        match self {
            Item::Leaf(named) => named.first,
            Item::Lost(stretch) => stretch.first,
        }
    }

    fn is_before(&self, next: &Item) -> bool {
        let last = match self {
            Item::Leaf(named) => named.last,
            Item::Lost(stretch) => stretch.first,
        };
        last < next.first()
    }

    pub fn encode(&self) -> Vec<u8> {
        match self {
            Item::Leaf(named) => named.encode(),
            Item::Lost(Stretch { end, .. }) => {
                let mut out = vec![0; NAME_BYTES];
                out.extend_from_slice(end.as_bytes());
                out
            }
        }
    }

    pub fn decode(first: Key, bytes: &[u8]) -> Result<Item, StreamError> {
        match bytes.strip_prefix(&[0; NAME_BYTES]) {
            None => Named::decode(first, bytes).map(Item::Leaf),
            Some(end) => {
                let end = Key::new(end).ok_or(StreamError::Malformed("the end of what is lost"))?;
                match first < end {
                    true => Ok(Item::Lost(Stretch { first, end })),
                    false => Err(StreamError::Malformed("the end of what is lost")),
                }
            }
        }
    }
}

/// The next entry of a head. It waits until the new leaves before it have been written.
enum Unnamed {
    Lost(Stretch),
    Leaf(Arc<Home>),
    New(Arc<Leaf>),
}

/// A row of new leaves that is not full is written when so many entries wait for it.
const UNNAMED_MAX: usize = 1 << 16;

/// A leaf's name in a head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub first: Key,
    pub last: Key,
    pub records: u32,
    /// Bytes of its records by themselves: `Size::bytes`.
    pub record_bytes: u64,
    pub place: Place,
}

impl From<&Home> for Named {
    fn from(home: &Home) -> Named {
        let Size { records, bytes } = home.size;
        let (first, last, place) = (home.first, home.last, home.place.clone());
        Named { first, last, records: records as u32, record_bytes: bytes, place }
    }
}

impl Named {
    pub fn encode(&self) -> Vec<u8> {
        let last = self.last.as_bytes();
        let mut out = Vec::with_capacity(NAME_BYTES + 1 + last.len() + RUN_BYTES * self.place.runs.len());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.place.crc.to_le_bytes());
        out.extend_from_slice(&self.record_bytes.to_le_bytes());
        out.extend_from_slice(&self.place.bytes.to_le_bytes());
        out.push(last.len() as u8);
        out.extend_from_slice(last);
        for run in &self.place.runs {
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.pages.to_le_bytes());
        }
        out
    }

    pub fn decode(first: Key, bytes: &[u8]) -> Result<Named, StreamError> {
        let wrong = StreamError::Malformed("the name of a leaf");
        let u32_of = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let u64_of = |b: &[u8]| u64::from(u32_of(b)) | u64::from(u32_of(&b[4..])) << 32;
        let Some((head, [last_len, rest @ ..])) = bytes.split_first_chunk::<NAME_BYTES>() else {
            return Err(wrong);
        };
        let Some((last, runs)) = rest.split_at_checked(usize::from(*last_len)) else { return Err(wrong) };
        let Some(last) = Key::new(last) else { return Err(wrong) };
        let (records, record_bytes) = (u32_of(head), u64_of(&head[8..]));
        let runs: Vec<Run> = runs
            .chunks(RUN_BYTES)
            .map(|run| (run.len() == RUN_BYTES).then(|| Run { start: u64_of(run), pages: u32_of(&run[8..]) }))
            .collect::<Option<_>>()
            .unwrap_or_default();
        let (bytes, pages) = (u64_of(&head[16..]), runs.iter().map(|run| u64::from(run.pages)).sum::<u64>());
        // The number of records has the bounds of a leaf, and their bytes fit the leaf's length, all keys in full included.
        let least = u64::from(records) * RECORD_OVERHEAD_BYTES;
        let most = bytes.saturating_add(u64::from(records) * (RECORD_OVERHEAD_BYTES + KEY_MAX as u64));
        // The pages are as many as the bytes need, and each lies within the largest possible medium.
        let is_medium = |run: &Run| run.pages > 0 && run.start < 1 << 52;
        if bytes == 0
            || bytes > LEAF_BYTES_MAX
            || bytes.div_ceil(PAGE) != pages
            || !runs.iter().all(is_medium)
            || !(1..=RECORDS_MAX).contains(&records)
            || !(least..=most).contains(&record_bytes)
            || last < first
            || (records == 1) != (last == first)
        {
            return Err(wrong);
        }
        let place = Place { bytes, crc: u32_of(&head[4..]), runs };
        Ok(Named { first, last, records, record_bytes, place })
    }
}

impl OnMedium {
    pub fn new(medium: Medium) -> io::Result<OnMedium> {
        let Medium { disk, slots, checkpoint, cache_bytes, troubles } = medium;
        let head_bytes = head_bytes(slots[0].end - slots[0].start);
        let ground = Arc::new(Ground::new(LeafArea::new(disk, &slots), troubles));
        if checkpoint.is_none() {
            ground.area.free_all_but(std::iter::empty(), None)?;
        }
        let state = State { old_stream: checkpoint, ..State::default() };
        Ok(OnMedium { ground, cache_bytes, head_bytes, state: Mutex::new(state) })
    }

    /// Builds the tree of a head's entries, none of its leaves in memory. All other space is free from here on.
    pub fn open(&self, items: Vec<Item>, shape: &Shape) -> Result<Tree, StreamError> {
        if items.windows(2).any(|two| !two[0].is_before(&two[1])) {
            return Err(StreamError::Malformed("the order of its leaves"));
        }
        let mut state = self.state.lock();
        assert!(state.named.is_empty(), "a table is opened once");
        assert!(state.making.is_none(), "a table is opened before its first checkpoint");
        // A checkpoint of an earlier release names no leaves, and lies where leaves do.
        let kept = state.old_stream.take().filter(|_| items.is_empty());
        let places = items.iter().filter_map(|item| match item {
            Item::Leaf(named) => Some(&named.place),
            Item::Lost(_) => None,
        });
        self.ground.area.free_all_but(places, kept.clone())?;
        state.old_stream = kept;
        let leaves = items.into_iter().map(|item| match item {
            Item::Lost(stretch) => Err(stretch),
            Item::Leaf(named) => {
                let home = self.home(named);
                state.named.push(home.clone());
                Ok(Arc::new(Away::new(home)))
            }
        });
        Ok(Tree::of(leaves, shape))
    }

    fn home(&self, Named { first, last, records, record_bytes, place }: Named) -> Arc<Home> {
        let size = Size { records: records.into(), bytes: record_bytes };
        Arc::new(Home { first, last, size, place, ground: self.ground.clone() })
    }

    /// Writes the leaves that are not on the medium yet, and names all leaves in `out`.
    pub fn write(&self, tree: &Tree, out: &mut Writer<'_>) -> io::Result<()> {
        // A checkpoint that was begun before and never named is abandoned.
        self.end(false);
        // If the write fails, dropping this frees all that it wrote.
        let mut making = Making::default();
        let (mut row, mut unnamed, mut bytes) = (Row::default(), Vec::new(), Vec::new());
        let mut take = |tip: Tip<'_>| {
            unnamed.push(match tip {
                Tip::Lost(stretch) => Unnamed::Lost(*stretch),
                Tip::Away(away) => Unnamed::Leaf(away.home.clone()),
                Tip::Here(leaf) => match leaf.home() {
                    Some(home) => Unnamed::Leaf(home),
                    None => {
                        leaf.encode(&mut bytes)
                            .map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage))?;
                        row.push(&bytes);
                        Unnamed::New(leaf.clone())
                    }
                },
            });
            match row.is_full() || unnamed.len() >= UNNAMED_MAX {
                true => self.name(&mut row, &mut unnamed, &mut making, out),
                false => Ok(()),
            }
        };
        let done = tree.tips(&Key::default(), None, &mut |tip| match take(tip) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => ControlFlow::Break(e),
        });
        done.break_value().map_or(Ok(()), Err)?;
        self.name(&mut row, &mut unnamed, &mut making, out)?;
        self.state.lock().making = Some(making);
        Ok(())
    }

    /// Writes a row of new leaves, then names all entries that wait, in order.
    fn name(
        &self,
        row: &mut Row,
        unnamed: &mut Vec<Unnamed>,
        making: &mut Making,
        out: &mut Writer<'_>,
    ) -> io::Result<()> {
        let new = || {
            unnamed.iter().filter_map(|next| if let Unnamed::New(leaf) = next { Some(leaf) } else { None })
        };
        let places = self.ground.area.write_row(row)?;
        assert_eq!(places.len(), new().count(), "each new leaf has its place");
        let written = new().zip(places).map(|(leaf, place)| {
            let Size { records, bytes: record_bytes } = leaf.size();
            let (first, last, records) = (leaf.first(), leaf.last(), records as u32);
            (leaf.clone(), self.home(Named { first, last, records, record_bytes, place }))
        });
        let begin = making.written.len();
        making.written.extend(written);
        let mut written = making.written[begin..].iter().map(|(_, home)| home);
        for next in unnamed.drain(..) {
            let home = match next {
                Unnamed::Lost(stretch) => {
                    out.name(&Item::Lost(stretch))?;
                    continue;
                }
                Unnamed::Leaf(home) => home,
                Unnamed::New(_) => written.next().expect("each has its place in the row").clone(),
            };
            let pages = home.place.runs.iter().map(|run| u64::from(run.pages)).sum::<u64>();
            assert_eq!(pages, home.place.bytes.div_ceil(PAGE), "a leaf has as many pages as its bytes need");
            assert!(home.first <= home.last, "kv-L1: a leaf's last key is not before its first");
            let named = Named::from(&*home);
            assert!((1..=RECORDS_MAX).contains(&named.records), "kv-L2: a leaf has at least one record");
            debug_assert!(
                Named::decode(named.first, &named.encode()).is_ok_and(|read| read == named),
                "a name that is written can be read"
            );
            out.name(&Item::Leaf(named))?;
            let before = making.named.last();
            assert!(before.is_none_or(|before| before.last < home.first), "leaves are named in key order");
            making.named.push(home);
        }
        assert!(written.next().is_none(), "each leaf that was written is named");
        Ok(())
    }

    /// The last head is durable now, or, with false, never will be.
    pub fn end(&self, is_named: bool) {
        let old = {
            let mut state = self.state.lock();
            let Some(making) = state.making.take() else { return };
            if !is_named {
                making
            } else {
                let is_its = |(leaf, home): &(Arc<Leaf>, Arc<Home>)| {
                    (leaf.first(), leaf.last()) == (home.first, home.last)
                };
                debug_assert!(making.written.iter().all(is_its), "a home is that of its leaf");
                // kv-D2: from here on the leaves know their homes.
                making.written.iter().for_each(|(leaf, home)| leaf.set_home(home));
                if let Some(stream) = state.old_stream.take() {
                    self.ground.area.let_go(stream);
                }
                Making { named: std::mem::replace(&mut state.named, making.named), ..Making::default() }
            }
        };
        // kv-D1: this frees the homes that only the old head names.
        drop(old);
    }

    /// See `Engine::check_leaves`.
    pub fn check(&self, after: Option<&Key>, max: usize) -> CheckedLeaves {
        // These keep their pages while they are read (kv-H1).
        let mut homes: Vec<Arc<Home>> = {
            let named = &self.state.lock().named;
            let begin = after.map_or(0, |after| named.partition_point(|home| home.first <= *after));
            named[begin..].iter().take(max).cloned().collect()
        };
        let next = homes.last().filter(|_| homes.len() == max).map(|last| last.first);
        let mut checked = CheckedLeaves { next, ..CheckedLeaves::default() };
        homes.sort_unstable_by_key(|home| home.at());
        for home in homes {
            match home.check() {
                // All of them are read again.
                Err(e) if disk::is_passing(&e) => {
                    return CheckedLeaves { is_passing: true, ..CheckedLeaves::default() };
                }
                Err(_) => checked.bad.push(home.first),
                Ok(()) => {}
            }
            checked.leaves += 1;
            checked.records += home.size.records;
            checked.bytes += home.place.bytes.next_multiple_of(PAGE);
        }
        checked
    }

    /// Leaves such that another copy of all always finds space; a head without the volume's own chunk headers.
    pub fn room(&self) -> Room {
        let chunks = self.head_bytes / (1 << 20) + 2;
        Room { leaves_bytes: leaves_bytes(&self.ground.area), head_bytes: self.head_bytes - chunks * 32 }
    }
}

/// Bytes that leaves may take, so that another copy of all always finds space.
pub fn leaves_bytes(area: &LeafArea) -> u64 {
    area.pages() / 2 * PAGE
}

#[cfg(test)]
mod tests;
