//! A medium that can lose power: it knows which writes were flushed and can show what might be left of the others.
//!
//! Sectors of 512 bytes are atomic: after a crash a sector holds its flushed content or its content after any one of the
//! unflushed writes that touched it. That covers lost, torn and reordered writes, and nothing that a page cache over an
//! honest device cannot do: a sector is written back whole, so a kept later write carries the earlier bytes of its sector.
//!
//! S1: a crash changes only sectors with unflushed writes.  S2: the same seed gives the same image.

use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::{Disk, end_within};

/// The unit that power loss does not tear.
pub const SECTOR_BYTES: usize = 512;
/// Discarded bytes read as anything; this, so that whoever counts on zeros is found out.
const DISCARDED: u8 = 0xa5;

/// What becomes of the unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed: all of them stay.
    KeepAll,
    /// Power failed before the first reached the medium.
    DropAll,
    /// Each write is kept or lost as a whole, by a coin; so later ones may be there without earlier ones.
    Writes(u64),
    /// Each sector of each write is kept or lost by a coin of its own.
    Sectors(u64),
    /// Some first writes are kept, the next is torn at a sector, the others are lost.
    Torn(u64),
}

/// What happened to the medium, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write { offset: u64, data: Vec<u8> },
    Discard { offset: u64, len: u64 },
    Flush,
}

/// The events of a medium since recording began, and what it held then: a crash can be made at every point.
#[derive(Clone, Debug)]
pub struct Recording {
    base: Vec<u8>,
    pub events: Vec<Event>,
}

impl Recording {
    /// The medium after a crash that came when the first `count` events had happened.
    pub fn crash_at(&self, count: usize, crash: Crash) -> SimDisk {
        let mut state = State::new(self.base.clone());
        self.events[..count].iter().for_each(|e| state.apply(e));
        SimDisk::from_bytes(state.after(crash))
    }
}

/// A medium in memory that can lose power.
pub struct SimDisk {
    state: Mutex<State>,
    size_bytes: u64,
}

struct State {
    /// What power loss leaves.
    durable: Vec<u8>,
    /// What reads see.
    current: Vec<u8>,
    /// Whole sectors as they were after each write since the last flush.
    unflushed: Vec<Piece>,
    recording: Option<Recording>,
}

struct Piece {
    offset: usize,
    data: Vec<u8>,
}

impl SimDisk {
    /// A medium of zeros, all flushed.
    pub fn new(size_bytes: u64) -> SimDisk {
        SimDisk::from_bytes(vec![0; size_bytes as usize])
    }

    /// A medium with this content, all flushed.
    pub fn from_bytes(bytes: Vec<u8>) -> SimDisk {
        SimDisk { size_bytes: bytes.len() as u64, state: Mutex::new(State::new(bytes)) }
    }

    /// The medium as it may be after a crash now; this one stays as it is.
    pub fn crash(&self, crash: Crash) -> SimDisk {
        SimDisk::from_bytes(self.state.lock().after(crash))
    }

    /// Begins to record events; what was unflushed counts as flushed for the recording.
    pub fn record(&self) {
        let mut state = self.state.lock();
        state.recording = Some(Recording { base: state.current.clone(), events: Vec::new() });
    }

    /// Ends the recording and gives it out; `None` if there was none.
    pub fn take_recording(&self) -> Option<Recording> {
        self.state.lock().recording.take()
    }

    /// How many events the recording holds so far.
    pub fn events(&self) -> usize {
        self.state.lock().recording.as_ref().map_or(0, |r| r.events.len())
    }

    /// How many writes and discards wait for a flush.
    pub fn unflushed(&self) -> usize {
        self.state.lock().unflushed.len()
    }

    fn happen(&self, event: Event) {
        let mut state = self.state.lock();
        state.apply(&event);
        if let Some(r) = &mut state.recording {
            r.events.push(event);
        }
    }
}

impl State {
    fn new(bytes: Vec<u8>) -> State {
        State { durable: bytes.clone(), current: bytes, unflushed: Vec::new(), recording: None }
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { offset, data } => {
                let range = *offset as usize..*offset as usize + data.len();
                self.current[range.clone()].copy_from_slice(data);
                self.touched(range);
            }
            Event::Discard { offset, len } => {
                let range = *offset as usize..(*offset + *len) as usize;
                self.current[range.clone()].fill(DISCARDED);
                self.touched(range);
            }
            Event::Flush => {
                for p in self.unflushed.drain(..) {
                    self.durable[p.offset..p.offset + p.data.len()].copy_from_slice(&p.data);
                }
            }
        }
    }

    fn touched(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let begin = range.start / SECTOR_BYTES * SECTOR_BYTES;
        let end = range.end.next_multiple_of(SECTOR_BYTES).min(self.current.len());
        self.unflushed.push(Piece { offset: begin, data: self.current[begin..end].to_vec() });
    }

    fn after(&self, crash: Crash) -> Vec<u8> {
        let mut image = self.durable.clone();
        let mut keep = |p: &Piece, sectors: Range<usize>| {
            let range = sectors.start * SECTOR_BYTES..(sectors.end * SECTOR_BYTES).min(p.data.len());
            image[p.offset + range.start..p.offset + range.end].copy_from_slice(&p.data[range]);
        };
        let count = |p: &Piece| p.data.len().div_ceil(SECTOR_BYTES);
        match crash {
            Crash::KeepAll => self.unflushed.iter().for_each(|p| keep(p, 0..count(p))),
            Crash::DropAll => {}
            Crash::Writes(seed) => {
                let mut rng = SplitMix::new(seed);
                self.unflushed.iter().filter(|_| rng.below(2) == 1).for_each(|p| keep(p, 0..count(p)));
            }
            Crash::Sectors(seed) => {
                let mut rng = SplitMix::new(seed);
                for p in &self.unflushed {
                    (0..count(p)).filter(|_| rng.below(2) == 1).for_each(|s| keep(p, s..s + 1));
                }
            }
            Crash::Torn(seed) => {
                let mut rng = SplitMix::new(seed);
                let whole = rng.below(self.unflushed.len() as u64 + 1) as usize;
                self.unflushed[..whole].iter().for_each(|p| keep(p, 0..count(p)));
                if let Some(p) = self.unflushed.get(whole) {
                    keep(p, 0..rng.below(count(p) as u64 + 1) as usize);
                }
            }
        }
        image
    }
}

impl Disk for SimDisk {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = end_within(self.size_bytes, offset, buf.len() as u64)?;
        buf.copy_from_slice(&self.state.lock().current[offset as usize..end as usize]);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        self.happen(Event::Write { offset, data: buf.to_vec() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.happen(Event::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, len)?;
        self.happen(Event::Discard { offset, len });
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): the seeded coin of crashes and model tests. Ours, so that a seed means the same
/// for ever.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit
    }
}

#[cfg(test)]
mod tests;
