//! The object storage server of one OST: the store, capabilities, fencing, exactly once, and three background threads.
//!
//! A request runs on the thread that received it: admit (incarnation, epoch, capability), slot, store, reply.
//! oss-P1: no request is carried out without a capability that allows it, but for the handshake and the numbers of `df`.
//! oss-P2: a slotted request is carried out once: its record is in the log entry of its change; a repeat is answered from it.
//! oss-P3: a request for another incarnation is refused (`Moved`) before anything is done, so nothing new passes a replay.
//! oss-P4: every reply carries epoch, incarnation and flushed_seq.
//! oss-P5: damage that is found is recorded, once, and logged as an error with object and offset; once only, if the list is full.
//!
//! Use: `Ost::format` once, `Ost::open`, then `join` with what the MGS answered; put it into a `net::Hub`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod admit;
mod damage;
mod destroy;
mod format;
mod glimpse;
mod grant;
mod joined;
mod list;
mod ost;
mod punch;
mod read;
mod reserve;
mod scrub;
mod seek;
mod serve;
mod session;
mod settings;
mod stat;
mod truncate;
mod workers;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::Disk;
use disk::volume::{Label, Media};
use net::{Answer, Service};
use parking_lot::{Mutex, RwLock};
use store::{DamageKind, Engine, ObjectStore};
use types::{Fault, Incarnation};
use wire::Header;
use wire::mgmt::RegisterReply;

pub use format::FormatSpec;
pub use settings::Settings;

use joined::Joined;
use workers::Workers;

/// Locks that slots share; a slot's request holds its lock, so that a repeat waits for the first to end.
const SLOT_LOCKS: usize = 1024;

/// An OST that serves. Dropping it stops its threads and nothing else: what a killed process leaves behind.
pub struct Ost {
    core: Arc<Core>,
    workers: Workers,
}

/// What the serving threads and the background threads share.
pub(crate) struct Core {
    store: Arc<dyn ObjectStore>,
    /// This start's.
    incarnation: Incarnation,
    joined: RwLock<Option<Arc<Joined>>>,
    slot_locks: Vec<Mutex<()>>,
    settings: Settings,
    bell: workers::Bell,
    scrubber: scrub::Scrubber,
    stopping: AtomicBool,
    /// Seconds since 1970.
    started_sec: u64,
    /// How often damage was met that the list had no room for, since it was cleared.
    unlisted_damage: AtomicU64,
}

impl Ost {
    /// Makes an empty OST on a medium. A medium that is not blank is refused, unless the specification forces it.
    pub fn format(disk: &dyn Disk, spec: &FormatSpec) -> Result<(), Fault> {
        Ok(Engine::format_as(disk, spec.label(), spec.division(disk.size()), spec.force)?)
    }

    /// Opens and recovers; requests are refused with `NotReady` until `join`.
    pub fn open(media: impl Into<Media>, settings: Settings) -> Result<Arc<Ost>, Fault> {
        let store = Engine::open_with(media, settings.store)?;
        let unreadable = store.take_unreadable();
        if store.health().superblock_copies < 2 {
            let index = store.label().index;
            tracing::warn!(
                index,
                "one of the two superblock copies was bad and is written anew: is the medium sound?"
            );
        }
        let cut_off = store.stats().cut_off;
        if cut_off.entries > 0 {
            let (index, disk::CutOff { entries, bytes }) = (store.label().index, cut_off);
            tracing::warn!(
                index,
                entries,
                bytes,
                "sound entries behind the log's end were left out: they were not flushed, so after a power loss this is in order; after anything else look at the medium"
            );
        }
        let ost = Ost::with_store(Arc::new(store), settings);
        let (target, found_sec) = (ost.label().target, (ost.core.settings.clock)());
        for (object, offset) in unreadable {
            let kind = DamageKind::Medium;
            ost.core.keep_damage(target, store::Damage { object, offset, kind, found_sec });
        }
        Ok(ost)
    }

    /// Serves any store.
    pub fn with_store(store: Arc<dyn ObjectStore>, settings: Settings) -> Arc<Ost> {
        let started_sec = (settings.clock)();
        store.begin_service(started_sec);
        let core = Arc::new(Core {
            incarnation: store.incarnation(),
            scrubber: scrub::Scrubber::new(store.scrub()),
            store,
            joined: RwLock::default(),
            slot_locks: (0..SLOT_LOCKS).map(|_| Mutex::default()).collect(),
            settings,
            bell: Default::default(),
            stopping: AtomicBool::new(false),
            started_sec,
            unlisted_damage: AtomicU64::new(0),
        });
        Arc::new(Ost { workers: Workers::start(&core), core })
    }

    /// Who this target is, as its superblock says.
    pub fn label(&self) -> Label {
        self.core.store.label()
    }

    /// Takes the place in the cluster that the MGS gave; from here on requests are served. The first time it writes the
    /// identity to the superblock; later it refuses another one.
    pub fn join(&self, reply: &RegisterReply) -> Result<(), Fault> {
        self.core.join(reply)
    }

    /// Makes everything acknowledged so far durable.
    pub fn flush(&self) -> Result<(), Fault> {
        self.core.store.flush()?;
        Ok(())
    }

    /// Ends it: requests are refused with `NotReady`, threads end. `clean` writes a checkpoint and the clean mark, so that
    /// the next start replays nothing and keeps its incarnation. Calling it twice is fine.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        let was_stopping = self.core.stopping.swap(true, Ordering::AcqRel);
        self.workers.stop(&self.core);
        if clean && !was_stopping {
            if let Err(error) = self.core.save_scrub() {
                tracing::warn!(%error, "how far the scrub is was not kept; it reads a part again after the next start");
            }
            self.core.store.close()?;
        }
        Ok(())
    }
}

impl Service for Ost {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.core.serve(head, body, bulk, answer);
    }
}

impl Drop for Ost {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::Release);
        self.workers.stop(&self.core);
    }
}
