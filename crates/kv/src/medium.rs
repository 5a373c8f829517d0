//! A table's leaves on the medium. A checkpoint writes those that are not there yet, and a head that names all of them; a start reads
//! the head and then the leaves.
//!
//! D1: what the durable head names is not overwritten: its places are given back once a head without them is named.
//! D2: a leaf knows its place only while the named head has it; before that the checkpoint that wrote it does. The head's places are the only
//! strong ones.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::Disk;
use disk::alloc::Run;
use disk::leaves::{LeafArea, Place, head_bytes};
use parking_lot::Mutex;
use types::Key;

use crate::checkpoint::{StreamError, Writer};
use crate::leaf::Leaf;
use crate::tree::{Shape, Tree};
use crate::{Room, Size, VALUE_MAX};

/// Where a table lies, for `Table::over`.
pub struct Medium {
    pub disk: Arc<dyn Disk>,
    /// The two slots of checkpoints. A head lies at the begin of one; leaves behind the heads.
    pub slots: [Range<u64>; 2],
    /// What the last checkpoint takes of its slot, if there is one.
    pub checkpoint: Option<Range<u64>>,
}

const PAGE: u64 = types::PAGE_SIZE as u64;
/// Of the name of a leaf before its runs, and of a run.
const NAME_BYTES: usize = 24;
const RUN_BYTES: usize = 12;
/// Leaves that are announced to the medium before they are read: enough that a device works on many at once.
const ANNOUNCED: usize = 64;
/// One record of the longest value, or many that count as 4 KiB.
const LEAF_BYTES_MAX: u64 = 8192 + VALUE_MAX as u64;

/// The leaves that a head names, and the one being made.
pub struct OnMedium {
    area: LeafArea,
    head_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    named: Vec<Arc<Place>>,
    /// A checkpoint of an earlier release, which leaves must not be written over.
    old_stream: Option<Range<u64>>,
    making: Option<Making>,
}

struct Making {
    named: Vec<Arc<Place>>,
    written: Vec<(Arc<Leaf>, Arc<Place>)>,
}

/// A leaf as a head has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub first: Key,
    pub records: u32,
    /// What its records take by themselves: `Size::bytes`.
    pub record_bytes: u64,
    pub place: Place,
}

impl Named {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(NAME_BYTES + RUN_BYTES * self.place.runs.len());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.place.crc.to_le_bytes());
        out.extend_from_slice(&self.record_bytes.to_le_bytes());
        out.extend_from_slice(&self.place.bytes.to_le_bytes());
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
        let Some((head, runs)) = bytes.split_first_chunk::<NAME_BYTES>() else { return Err(wrong) };
        let runs: Vec<Run> = runs
            .chunks(RUN_BYTES)
            .map(|run| (run.len() == RUN_BYTES).then(|| Run { start: u64_of(run), pages: u32_of(&run[8..]) }))
            .collect::<Option<_>>()
            .unwrap_or_default();
        let (bytes, pages) = (u64_of(&head[16..]), runs.iter().map(|run| u64::from(run.pages)).sum::<u64>());
        // As many pages as the bytes need, each within what a medium can have.
        let is_medium = |run: &Run| run.pages > 0 && run.start < 1 << 52;
        if bytes == 0
            || bytes > LEAF_BYTES_MAX
            || bytes.div_ceil(PAGE) != pages
            || !runs.iter().all(is_medium)
        {
            return Err(wrong);
        }
        let place = Place { bytes, crc: u32_of(&head[4..]), runs };
        Ok(Named { first, records: u32_of(head), record_bytes: u64_of(&head[8..]), place })
    }
}

impl OnMedium {
    pub fn new(medium: Medium) -> io::Result<OnMedium> {
        let Medium { disk, slots, checkpoint } = medium;
        let head_bytes = head_bytes(slots[0].end - slots[0].start);
        let area = LeafArea::new(disk, &slots);
        if checkpoint.is_none() {
            area.free_all_but(std::iter::empty(), None)?;
        }
        let state = State { old_stream: checkpoint, ..State::default() };
        Ok(OnMedium { area, head_bytes, state: Mutex::new(state) })
    }

    /// The leaves of a head, in order; all else is free from here on.
    pub fn read(&self, named: Vec<Named>, shape: &Shape) -> Result<Tree, StreamError> {
        let mut state = self.state.lock();
        // One of an earlier release: it names nothing, and lies where leaves do.
        let kept = state.old_stream.take().filter(|_| named.is_empty());
        self.area.free_all_but(named.iter().map(|n| &n.place), kept.clone())?;
        state.old_stream = kept;
        // As they lie, each announced a while before: what was written at once is read at once, and the rest side by side.
        let mut order: Vec<usize> = (0..named.len()).collect();
        order.sort_unstable_by_key(|i| self.area.begin(&named[*i].place));
        let mut leaves: Vec<Option<Arc<Leaf>>> = vec![None; named.len()];
        for (n, i) in order.iter().enumerate() {
            if let Some(later) = order.get(n + ANNOUNCED) {
                self.area.will_read(&named[*later].place);
            }
            leaves[*i] = Some(self.leaf(&named[*i])?);
        }
        let leaves: Vec<Arc<Leaf>> = leaves.into_iter().flatten().collect();
        if let Some(i) = (1..leaves.len()).find(|i| leaves[i - 1].last() >= leaves[*i].first()) {
            return Err(self.wrong(&named[i], "the leaf before it has keys of it"));
        }
        for (leaf, Named { place, .. }) in leaves.iter().zip(named) {
            let place = Arc::new(place);
            leaf.set_place(&place);
            state.named.push(place);
        }
        Ok(Tree::of(leaves, shape))
    }

    fn leaf(&self, named: &Named) -> Result<Arc<Leaf>, StreamError> {
        let bytes = self.area.read(&named.place).map_err(|e| self.wrong(named, &e.to_string()))?;
        let leaf = Leaf::decode(&bytes).map_err(|why| self.wrong(named, why))?;
        let size = Size { records: named.records.into(), bytes: named.record_bytes };
        match leaf.first() == named.first && leaf.size() == size {
            true => Ok(leaf),
            false => Err(self.wrong(named, "it is not the one that was written there")),
        }
    }

    fn wrong(&self, named: &Named, why: &str) -> StreamError {
        let (first, at) = (named.first, self.area.begin(&named.place));
        let why = format!("the leaf of {first:?} at medium offset {at}: {why}");
        StreamError::Io(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Writes the leaves that are not on the medium yet, and names all.
    pub fn write(&self, tree: &Tree, out: &mut Writer<'_>) -> io::Result<()> {
        // One that was begun and never named.
        self.end(false);
        let mut making = Making { named: Vec::new(), written: Vec::new() };
        let mut bytes = Vec::new();
        let done = tree.each_leaf(&mut |leaf| {
            let place = match leaf.place() {
                Some(place) => place,
                None => {
                    leaf.encode(&mut bytes)
                        .map_err(|damage| io::Error::new(io::ErrorKind::InvalidData, damage))?;
                    let place = Arc::new(self.area.write(&mut bytes)?);
                    making.written.push((leaf.clone(), place.clone()));
                    place
                }
            };
            let size = leaf.size();
            let (records, record_bytes) = (size.records as u32, size.bytes);
            out.leaf(&Named { first: leaf.first(), records, record_bytes, place: (*place).clone() })?;
            making.named.push(place);
            Ok(())
        });
        match done {
            Ok(()) => {
                self.state.lock().making = Some(making);
                Ok(())
            }
            Err(e) => {
                self.give_back(making.written.iter().map(|(_, place)| place));
                Err(e)
            }
        }
    }

    /// The head that was made last is named now, or never will be.
    pub fn end(&self, is_named: bool) {
        let mut state = self.state.lock();
        let Some(making) = state.making.take() else { return };
        if !is_named {
            return self.give_back(making.written.iter().map(|(_, place)| place));
        }
        // D2.
        making.written.iter().for_each(|(leaf, place)| leaf.set_place(place));
        let kept: HashSet<u64> = making.named.iter().filter_map(|p| Some(p.runs.first()?.start)).collect();
        let old = std::mem::replace(&mut state.named, making.named);
        let is_kept = |place: &Place| place.runs.first().is_some_and(|run| kept.contains(&run.start));
        self.give_back(old.iter().filter(|place| !is_kept(place)));
        if let Some(stream) = state.old_stream.take() {
            self.area.let_go(stream);
        }
    }

    /// So many leaves that there is always room for another copy of all; a head without what the volume adds to it.
    pub fn room(&self) -> Room {
        let chunks = self.head_bytes / (1 << 20) + 2;
        Room { leaves_bytes: self.area.pages() / 2 * PAGE, head_bytes: self.head_bytes - chunks * 32 }
    }

    fn give_back<'a>(&self, places: impl Iterator<Item = &'a Arc<Place>>) {
        places.for_each(|place| self.area.give_back(place));
    }
}

#[cfg(test)]
mod tests;
