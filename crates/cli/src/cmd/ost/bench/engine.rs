//! The engine's side: a new OST on the whole device, its log on a second one if there is one, and its rows.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use disk::{Disk, FileDisk, Media, NewLog, Volume};
use oss::{FormatSpec, Ost, Settings};
use store::{Engine, ObjectStore};
use types::{Fid, ObjectId};

use super::load::{Figure, Load};
use super::rows::Row;
use super::state::{self, State};
use crate::cmd::measure::device::{blank, take};
use crate::serve::register::new_uuid;

/// The log of a device that is large enough for it; of smaller ones the log is an eighth.
const LOG_BYTES: u64 = 512 << 20;
/// The object of a device that is large enough for it; of smaller ones it is a quarter: what is overwritten takes new space before it
/// gives its old space back.
pub const OBJECT_BYTES: u64 = 2 << 30;
/// Rounds of destaging before a burst; the second has nothing to wait for.
const DESTAGE_ROUNDS_MAX: usize = 8;
/// A device below this has no room for a log and an object that say anything.
const DEVICE_BYTES_MIN: u64 = 32 << 20;
/// And one of the log alone below this, no room for what the smallest device has for it.
const LOG_DEVICE_BYTES_MIN: u64 = 4 << 20;
/// What a log's medium has before its ring; see docs/formats/volume.md.
const LOG_HEAD_BYTES: u64 = 128 << 10;

/// An OST that serves, without a network.
pub struct Rig {
    store: Arc<Engine>,
    /// Its background threads.
    ost: Arc<Ost>,
    size: u64,
    stop: Arc<AtomicBool>,
}

/// The object that is worked on.
const OBJECT: ObjectId = object(Fid::FIRST);

pub const fn object(fid: u64) -> ObjectId {
    ObjectId { fid: Fid(fid), generation: types::Generation(0), component: 0, stripe: 0, snapshot: 0 }
}

/// What the OST lies on.
#[derive(Clone, Debug)]
pub struct Devices {
    pub main: PathBuf,
    /// Of the log, if it has one of its own.
    pub log: Option<PathBuf>,
}

/// Their bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub main: u64,
    pub log: Option<u64>,
}

impl Sizes {
    fn of(main: &FileDisk, log: Option<&FileDisk>) -> Sizes {
        Sizes { main: main.size(), log: log.map(|log| log.size()) }
    }

    /// The log is as large as it would be on the one device, or takes the smaller one of its own whole.
    pub fn log_bytes(&self) -> u64 {
        match self.log {
            None => LOG_BYTES.min(self.main / 8),
            Some(log) => LOG_BYTES.min((log - LOG_HEAD_BYTES) / 4096 * 4096),
        }
    }
}

impl Devices {
    /// Their sizes. Refuses what is too small, or holds anything unless forced, as `stria mkfs` would; writes nothing.
    pub fn take(&self, force: bool) -> anyhow::Result<Sizes> {
        let main = take(&self.main, DEVICE_BYTES_MIN, "for figures that say something of 8 GiB", force)?;
        // Both at once: one device is not two.
        let log = self.log.as_deref();
        let log =
            log.map(|log| take(log, LOG_DEVICE_BYTES_MIN, "for a log that says something of 512 MiB", force));
        Ok(Sizes::of(&main, log.transpose()?.as_ref()))
    }
}

impl Rig {
    /// cli-BO1: a new OST on the devices, whatever they hold, served as the daemon does.
    pub fn make(devices: &Devices, size: u64, stop: Arc<AtomicBool>) -> anyhow::Result<Rig> {
        let main = blank(&devices.main)?;
        let log = devices.log.as_deref().map(blank).transpose()?;
        let log_bytes = Some(Sizes::of(&main, log.as_ref()).log_bytes());
        let format = FormatSpec { log_bytes, ..FormatSpec::new("bench", new_uuid()?) }.format(main.size());
        let uuid = new_uuid()?;
        let new_log = log.as_ref().map(|disk| NewLog { disk, uuid });
        Volume::format_on(&main, new_log, &format, false)?;
        let log = log.map(|log| -> Arc<dyn Disk> { Arc::new(log) });
        let store = Arc::new(Engine::open(Media { main: Arc::new(main), log })?);
        let ost = Ost::with_store(store.clone(), Settings { scrub: false, ..Settings::default() });
        Ok(Rig { store, ost, size, stop })
    }

    /// What the OST goes through before it gets the object.
    pub fn prepare(&self, state: State, age: u64) -> anyhow::Result<()> {
        match state {
            State::Fresh => return Ok(()),
            State::Full => state::fill(&*self.store, self.size, &self.stop)?,
            State::Aged => state::age(&*self.store, age, &self.stop)?,
        }
        self.settle()
    }

    /// Nothing waits to be destaged or flushed, and the log is as good as empty.
    pub fn settle(&self) -> anyhow::Result<()> {
        // A round that finds nothing new since the one before destages all.
        for _ in 0..DESTAGE_ROUNDS_MAX {
            if self.store.stats().small.overlay_bytes == 0 {
                break;
            }
            self.store.destage()?;
        }
        self.store.flush()?;
        self.store.mark()?;
        self.store.checkpoint()?;
        Ok(())
    }

    /// Writes the whole object in order, and flushes it.
    pub fn fill(&self) -> anyhow::Result<()> {
        super::load::fill(&*self.store, OBJECT, self.size)
    }

    pub fn measure(&self, row: &Row, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        Load { store: &*self.store, row, object: OBJECT, size: self.size, time, seed, stop: &self.stop }.run()
    }

    /// Ends it; what it leaves on the device is of no use.
    pub fn end(self) -> anyhow::Result<()> {
        self.ost.stop(false).context("stopping")
    }
}
