//! The engine's side: a new OST on the whole device, its log on a second one if given, and its rows.

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

/// The log size on a large device; on smaller ones it is an eighth.
const LOG_BYTES: u64 = 512 << 20;
/// The object size on a large device; on smaller ones it is a quarter. An overwrite takes new space before it frees the old space.
pub const OBJECT_BYTES: u64 = 2 << 30;
/// Rounds of destaging before a burst; the second has no page to wait for.
const DESTAGE_ROUNDS_MAX: usize = 8;
/// A smaller device has no space for a log and an object of useful sizes.
const DEVICE_BYTES_MIN: u64 = 32 << 20;
/// A smaller log device cannot hold the log of the smallest device.
const LOG_DEVICE_BYTES_MIN: u64 = 4 << 20;
/// The bytes before the ring on a log's medium; see docs/formats/volume.md.
const LOG_HEAD_BYTES: u64 = 128 << 10;

/// A serving OST, without a network.
pub struct Rig {
    store: Arc<Engine>,
    /// Its background threads.
    ost: Arc<Ost>,
    size: u64,
    stop: Arc<AtomicBool>,
}

/// The object for the rows.
const OBJECT: ObjectId = object(Fid::FIRST);

pub const fn object(fid: u64) -> ObjectId {
    ObjectId { fid: Fid(fid), generation: types::Generation(0), component: 0, stripe: 0, snapshot: 0 }
}

/// The devices of the OST.
#[derive(Clone, Debug)]
pub struct Devices {
    pub main: PathBuf,
    /// The log's device, if it has one.
    pub log: Option<PathBuf>,
}

/// Sizes of the devices in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub main: u64,
    pub log: Option<u64>,
}

impl Sizes {
    fn of(main: &FileDisk, log: Option<&FileDisk>) -> Sizes {
        Sizes { main: main.size(), log: log.map(|log| log.size()) }
    }

    /// The log has the size that it would have on a single device, or takes a smaller device whole.
    pub fn log_bytes(&self) -> u64 {
        match self.log {
            None => LOG_BYTES.min(self.main / 8),
            Some(log) => LOG_BYTES.min((log - LOG_HEAD_BYTES) / 4096 * 4096),
        }
    }
}

impl Devices {
    /// Their sizes. Refuses a device that is too small, or that has content unless forced, as `stria mkfs` does. Writes nothing.
    pub fn take(&self, force: bool) -> anyhow::Result<Sizes> {
        let main = take(&self.main, DEVICE_BYTES_MIN, "for useful results 8 GiB", force)?;
        // Both at once, so that one device given twice is noticed.
        let log = self.log.as_deref();
        let log = log.map(|log| take(log, LOG_DEVICE_BYTES_MIN, "for useful results 512 MiB", force));
        Ok(Sizes::of(&main, log.transpose()?.as_ref()))
    }
}

impl Rig {
    /// cli-BO1: makes a new OST on the devices, whatever they hold, and serves it as the daemon does.
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

    /// Brings the OST into a state before it gets the object.
    pub fn prepare(&self, state: State, age: u64) -> anyhow::Result<()> {
        match state {
            State::Fresh => return Ok(()),
            State::Full => state::fill(&*self.store, self.size, &self.stop)?,
            State::Aged => state::age(&*self.store, age, &self.stop)?,
        }
        self.settle()
    }

    /// Waits until no page is to be destaged or flushed, and the log is nearly empty.
    pub fn settle(&self) -> anyhow::Result<()> {
        // A round destages everything if no write came since the round before.
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

    /// Ends it; the content of the device is not needed any more.
    pub fn end(self) -> anyhow::Result<()> {
        self.ost.stop(false).context("stopping")
    }
}
