//! A medium that can lose power: it knows which writes were flushed, and can show what may be left of the others.
//!
//! Sectors of 512 bytes are atomic: after a crash a sector holds its flushed content or its content after any one of the
//! unflushed writes that touched it. That covers lost, torn and reordered writes, and nothing that a page cache over an
//! honest device cannot do: a sector is written back whole, so a kept later write carries the earlier bytes of its sector.
//!
//! Two media that lose power at once are one such medium, divided (`pair.rs`).
//!
//! disk-S1: a crash changes only sectors with unflushed writes.  disk-S2: the same seed gives the same image.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Disk, end_within};
use image::Image;
pub use pair::{Outage, Side};

mod image;
mod pair;

/// The unit that power loss does not tear.
pub const SECTOR_BYTES: usize = 512;
/// Discarded bytes may read as anything. Reads return this, so that a caller that relies on zeros is found.
const DISCARDED: u8 = 0xa5;

/// The fate of the unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process was killed: all of them stay.
    KeepAll,
    /// Power failed before the first reached the medium.
    DropAll,
    /// Each write is kept or lost as a whole, by a coin; so a later one may be there without an earlier one.
    Writes(u64),
    /// Each sector of each write is kept or lost by a coin of its own.
    Sectors(u64),
    /// The first few writes are kept, the next is torn at a sector, the others are lost.
    Torn(u64),
    /// One sector of one write is lost, all others are kept.
    OneLost(u64),
    /// One write is kept, all others are lost.
    OneKept(u64),
}

/// The events of a medium, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    Discard {
        offset: u64,
        len: u64,
    },
    /// A flush of all media.
    Flush,
    /// A flush of one medium of two.
    FlushSide(Side),
}

/// The events of a medium since recording began, and its content at that time: a crash can be made at every point.
#[derive(Clone, Debug)]
pub struct Recording {
    durable: Image,
    current: Image,
    unflushed: Vec<Piece>,
    pub events: Vec<Event>,
}

impl Recording {
    /// The medium after a crash that came when the first `count` events had happened.
    pub fn crash_at(&self, count: usize, crash: impl Into<Outage>) -> SimDisk {
        let mut playback = self.play();
        playback.go_to(count);
        playback.crash(crash).0
    }

    /// The medium before the first event, to be advanced through the events.
    pub fn play(&self) -> Playback<'_> {
        let mut state = State::new(self.durable.clone());
        (state.current, state.unflushed) = (self.current.clone(), self.unflushed.clone());
        Playback { recording: self, state, at: 0 }
    }
}

/// A recording up to some event. Crashes at many points in order are cheaper this way than by `crash_at`.
pub struct Playback<'a> {
    recording: &'a Recording,
    state: State,
    at: usize,
}

impl Playback<'_> {
    /// Applies events until `count` have happened; it does not go back.
    pub fn go_to(&mut self, count: usize) {
        self.recording.events[self.at..count].iter().for_each(|e| self.state.apply(e));
        self.at = count;
    }

    /// The medium after a crash now, and the number of the first event that it lost, wholly or in part, if it lost any.
    pub fn crash(&self, crash: impl Into<Outage>) -> (SimDisk, Option<usize>) {
        let (image, lost) = self.state.after(crash.into());
        (SimDisk::from_image(image), lost)
    }

    /// The medium as it is now, with unflushed writes that a later crash may lose.
    pub fn medium(&self) -> SimDisk {
        self.state.medium()
    }
}

/// A medium in memory that can lose power.
pub struct SimDisk {
    state: Mutex<State>,
    size_bytes: u64,
    /// Equal to the image's.
    second_at: u64,
}

struct State {
    /// The content that a power loss leaves.
    durable: Image,
    /// The content that reads return.
    current: Image,
    /// Whole sectors as they were after each write since the last flush.
    unflushed: Vec<Piece>,
    /// Events since the medium was made or played.
    events: usize,
    recording: Option<Recording>,
}

#[derive(Clone, Debug)]
struct Piece {
    event: usize,
    offset: usize,
    data: Arc<[u8]>,
}

impl SimDisk {
    /// A medium of zeros, all flushed.
    pub fn new(size_bytes: u64) -> SimDisk {
        SimDisk::from_image(Image::zeros(size_bytes as usize))
    }

    /// A medium with this content, all flushed.
    pub fn from_bytes(bytes: Vec<u8>) -> SimDisk {
        SimDisk::from_image(Image::from_bytes(&bytes))
    }

    fn from_image(image: Image) -> SimDisk {
        SimDisk::from_state(State::new(image))
    }

    fn from_state(state: State) -> SimDisk {
        let (size_bytes, second_at) = (state.current.len() as u64, state.current.second_at as u64);
        SimDisk { state: Mutex::new(state), size_bytes, second_at }
    }

    /// The medium as it may be after a crash now; this one stays as it is.
    pub fn crash(&self, crash: impl Into<Outage>) -> SimDisk {
        SimDisk::from_image(self.state.lock().after(crash.into()).0)
    }

    /// A copy, with the same unflushed writes.
    pub fn copy(&self) -> SimDisk {
        self.state.lock().medium()
    }

    /// Begins to record events; unflushed writes count as flushed for the recording.
    pub fn record(&self) {
        let mut state = self.state.lock();
        let (durable, current) = (state.current.clone(), state.current.clone());
        state.recording = Some(Recording { durable, current, unflushed: Vec::new(), events: Vec::new() });
    }

    /// As `record`, but crashes of the recording may lose the unflushed writes. They count as part of the first event.
    pub fn record_with_unflushed(&self) {
        let mut state = self.state.lock();
        let (durable, current) = (state.durable.clone(), state.current.clone());
        let unflushed = state.unflushed.iter().map(|p| Piece { event: 0, ..p.clone() }).collect();
        state.recording = Some(Recording { durable, current, unflushed, events: Vec::new() });
    }

    /// Ends the recording and returns it; `None` if there was none.
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
    fn new(image: Image) -> State {
        State { durable: image.clone(), current: image, unflushed: Vec::new(), events: 0, recording: None }
    }

    fn medium(&self) -> SimDisk {
        let (durable, current) = (self.durable.clone(), self.current.clone());
        let (unflushed, events) = (self.unflushed.clone(), self.events);
        SimDisk::from_state(State { durable, current, unflushed, events, recording: None })
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { offset, data } => {
                self.current.write(*offset as usize, data);
                self.touched(*offset as usize..*offset as usize + data.len());
            }
            Event::Discard { offset, len } => {
                self.current.write(*offset as usize, &vec![DISCARDED; *len as usize]);
                self.touched(*offset as usize..(*offset + *len) as usize);
            }
            Event::Flush => self.flush(|_| true),
            Event::FlushSide(side) => {
                let second_at = self.current.second_at;
                self.flush(|p| (p.offset >= second_at) == (*side == Side::Second));
            }
        }
        self.events += 1;
    }

    fn flush(&mut self, is_meant: impl Fn(&Piece) -> bool) {
        for p in self.unflushed.extract_if(.., |p| is_meant(p)) {
            self.durable.write(p.offset, &p.data);
        }
    }

    fn touched(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let begin = range.start / SECTOR_BYTES * SECTOR_BYTES;
        let end = range.end.next_multiple_of(SECTOR_BYTES).min(self.current.len());
        let mut data = vec![0; end - begin];
        self.current.read(begin, &mut data);
        self.unflushed.push(Piece { event: self.events, offset: begin, data: data.into() });
    }

    /// The content that a crash leaves, and the first event that it loses, wholly or in part.
    fn after(&self, outage: Outage) -> (Image, Option<usize>) {
        let mut image = self.durable.clone();
        let of_first = |p: &&Piece| p.offset < self.current.second_at;
        let (first, second): (Vec<_>, Vec<_>) = self.unflushed.iter().partition(of_first);
        let lost = [lose(&mut image, &first, outage.first), lose(&mut image, &second, outage.second)];
        (image, lost.into_iter().flatten().min())
    }
}

/// Applies to an image the writes that survive a crash; returns the first event that it loses, wholly or in part.
fn lose(image: &mut Image, pieces: &[&Piece], crash: Crash) -> Option<usize> {
    let mut lost = None;
    let mut pass = |p: &Piece, is_kept: &mut dyn FnMut(usize) -> bool| {
        for (i, sector) in p.data.chunks(SECTOR_BYTES).enumerate() {
            match is_kept(i) {
                true => image.write(p.offset + i * SECTOR_BYTES, sector),
                false => lost = lost.or(Some(p.event)),
            }
        }
    };
    let count = |p: &Piece| p.data.len().div_ceil(SECTOR_BYTES);
    match crash {
        Crash::KeepAll => pieces.iter().for_each(|p| pass(p, &mut |_| true)),
        Crash::DropAll => pieces.iter().for_each(|p| pass(p, &mut |_| false)),
        Crash::Writes(seed) => {
            let mut rng = SplitMix::new(seed);
            for p in pieces {
                let is_kept = rng.below(2) == 1;
                pass(p, &mut |_| is_kept);
            }
        }
        Crash::Sectors(seed) => {
            let mut rng = SplitMix::new(seed);
            pieces.iter().for_each(|p| pass(p, &mut |_| rng.below(2) == 1));
        }
        Crash::Torn(seed) => {
            let mut rng = SplitMix::new(seed);
            let whole = rng.below(pieces.len() as u64 + 1) as usize;
            for (n, p) in pieces.iter().enumerate() {
                let some = if n == whole { rng.below(count(p) as u64 + 1) as usize } else { 0 };
                pass(p, &mut |i| n < whole || i < some);
            }
        }
        Crash::OneLost(seed) => {
            let mut rng = SplitMix::new(seed);
            let chosen = rng.below(pieces.len().max(1) as u64) as usize;
            for (n, p) in pieces.iter().enumerate() {
                let bad = rng.below(count(p) as u64) as usize;
                pass(p, &mut |i| n != chosen || i != bad);
            }
        }
        Crash::OneKept(seed) => {
            let chosen = SplitMix::new(seed).below(pieces.len().max(1) as u64) as usize;
            pieces.iter().enumerate().for_each(|(n, p)| pass(p, &mut |_| n == chosen));
        }
    }
    lost
}

impl Disk for SimDisk {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        self.state.lock().current.read(offset as usize, buf);
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

/// SplitMix64 (Steele, Lea, Flood 2014): the seeded generator of crashes and model tests. Stria's own, so that a seed always means the
/// same.
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
