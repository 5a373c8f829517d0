//! The engine's side: a new OST on the whole device, and its rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use disk::content::{self, Content};
use disk::{Disk, FileDisk};
use oss::{FormatSpec, Ost, Settings};
use store::{Engine, ObjectStore};
use types::{Fid, ObjectId};

use super::load::{Figure, Load};
use super::rows::Row;
use super::state::{self, State};
use crate::exit::Failure;
use crate::serve::register::new_uuid;

/// The log of a device that is large enough for it; of smaller ones the log is an eighth.
pub const LOG_BYTES: u64 = 512 << 20;
/// The object of a device that is large enough for it; of smaller ones it is a quarter: what is overwritten takes new space before it
/// gives its old space back.
pub const OBJECT_BYTES: u64 = 2 << 30;
/// What must be zeros for a device to count as blank.
const HEAD_BYTES: usize = 1 << 20;
/// Rounds of destaging before a burst; the second has nothing to wait for.
const DESTAGE_ROUNDS_MAX: usize = 8;
/// A device below this has no room for a log and an object that say anything.
const DEVICE_BYTES_MIN: u64 = 32 << 20;

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

pub fn log_bytes(device_bytes: u64) -> u64 {
    LOG_BYTES.min(device_bytes / 8)
}

/// The device's size. Refuses one that is too small, or that holds anything unless forced, as `stria mkfs` would; writes nothing.
pub fn take(device: &Path, force: bool) -> anyhow::Result<u64> {
    let refuse = |why: String, next: &str| Failure::unusable(device.display(), why, next);
    let disk =
        FileDisk::open(device).map_err(|e| refuse(e.to_string(), "give a block device or a regular file"))?;
    if disk.size() < DEVICE_BYTES_MIN {
        let why = format!("{} bytes are too few", disk.size());
        return Err(
            refuse(why, "give a device of at least 32 MiB, for figures that say something of 8 GiB").into()
        );
    }
    if force {
        return Ok(disk.size());
    }
    let next = "look at the medium (`dmesg`)";
    match content::look(&disk).map_err(|e| Failure::failed(device.display(), e, next))? {
        Content::Blank => Ok(disk.size()),
        found => {
            let next = "give another device, or --force if all of it may be lost";
            Err(refuse(format!("it holds: {found}"), next).into())
        }
    }
}

impl Rig {
    /// B1: a new OST on the device, whatever it holds, served as the daemon does.
    pub fn make(device: &Path, size: u64, stop: Arc<AtomicBool>) -> anyhow::Result<Rig> {
        let disk = FileDisk::open(device)?;
        // Blank, it is not discarded: a loop device would give its file's blocks back, and every first write would pay for new ones.
        disk.write_at(&vec![0; HEAD_BYTES], 0)?;
        let log_bytes = Some(log_bytes(disk.size()));
        Ost::format(&disk, &FormatSpec { log_bytes, ..FormatSpec::new("bench", new_uuid()?) })?;
        let store = Arc::new(Engine::open(Arc::new(disk))?);
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
