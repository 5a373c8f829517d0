//! Records the events of all media of a story in one order, so that a test can cut the power at every single event.

use std::io;
use std::sync::Arc;

use disk::{Crash, Disk, Event, SimDisk};
use parking_lot::Mutex;

use super::crash_of;

/// Records while it runs.
#[derive(Default)]
pub(crate) struct Tape(Mutex<Option<Film>>);

/// The media at the start of the recording, and every event since.
pub struct Film {
    bases: Vec<Vec<u8>>,
    events: Vec<(usize, Event)>,
}

impl Tape {
    pub fn record(&self, bases: Vec<Vec<u8>>) {
        *self.0.lock() = Some(Film { bases, events: vec![] });
    }
    pub fn events(&self) -> usize {
        self.0.lock().as_ref().map_or(0, |f| f.events.len())
    }
    pub fn take(&self) -> Option<Film> {
        self.0.lock().take()
    }

    /// Holds the lock during the event, so that the tape has the events in their real order.
    fn happen(
        &self,
        medium: usize,
        event: impl FnOnce() -> Event,
        act: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut film = self.0.lock();
        act()?;
        if let Some(film) = &mut *film {
            film.events.push((medium, event()));
        }
        Ok(())
    }
}

impl Film {
    pub fn len(&self) -> usize {
        self.events.len()
    }
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
    pub fn player(&self) -> Player<'_> {
        let media = self.bases.iter().cloned().map(SimDisk::from_bytes).collect();
        Player { film: self, media, at: 0 }
    }
}

/// Plays a film forward, and gives the media as a power cut at the current position would leave them.
pub struct Player<'a> {
    film: &'a Film,
    media: Vec<SimDisk>,
    at: usize,
}

impl Player<'_> {
    /// Plays up to the first `count` events. `count` may not be lower than before.
    pub fn play_to(&mut self, count: usize) {
        for (medium, event) in &self.film.events[self.at..count] {
            let disk = &self.media[*medium];
            let done = match event {
                Event::Write { offset, data } => disk.write_at(data, *offset),
                Event::Discard { offset, len } => disk.discard(*offset, *len),
                // Each event on a tape belongs to one medium.
                Event::Flush | Event::FlushSide(_) => disk.flush(),
            };
            done.expect("it happened before");
        }
        self.at = count;
    }

    /// All media after power failed here.
    pub fn cut(&self, seed: u64) -> Vec<SimDisk> {
        let crash = |n: usize| crash_of(seed.wrapping_mul(31).wrapping_add(n as u64));
        self.media.iter().enumerate().map(|(n, d)| d.crash(crash(n))).collect()
    }

    /// All media after every process was killed here.
    pub fn kill(&self) -> Vec<SimDisk> {
        self.media.iter().map(|d| d.crash(Crash::KeepAll)).collect()
    }
}

/// A medium whose events are recorded on the tape.
pub(crate) struct TapedDisk {
    pub below: Arc<SimDisk>,
    pub medium: usize,
    pub tape: Arc<Tape>,
}

impl Disk for TapedDisk {
    fn size(&self) -> u64 {
        self.below.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.below.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let event = || Event::Write { offset, data: buf.to_vec() };
        self.tape.happen(self.medium, event, || self.below.write_at(buf, offset))
    }
    fn flush(&self) -> io::Result<()> {
        self.tape.happen(self.medium, || Event::Flush, || self.below.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let event = || Event::Discard { offset, len };
        self.tape.happen(self.medium, event, || self.below.discard(offset, len))
    }
}
