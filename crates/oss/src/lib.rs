//! The object storage server of one OST: the store, capabilities, fencing, exactly once, and its background threads.
//!
//! A request runs on the thread that received it: admit (incarnation, epoch, capability), slot, store, reply.
//! oss-P1: no request is carried out without a capability that allows it, except the handshake and the numbers for `df`.
//! oss-P2: a slotted request is carried out once: its record is in the log entry of its change, and a repeat is answered from the record.
//! oss-P3: a request for another incarnation is refused (`Moved`) before it changes anything, so no new request overtakes a replay.
//! oss-P4: every reply carries epoch, incarnation and flushed_seq.
//! oss-P5: found damage is recorded once, and logged as an error with object and offset. When the list is full, only the first is logged.
//!
//! Use: `Ost::format` once, `Ost::open`, then `join` with the MGS's reply; then add it to a `net::Hub`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod admit;
mod damage;
mod destroy;
mod format;
mod glimpse;
mod grant;
mod joined;
mod list;
mod mirror;
mod nodemap;
mod ost;
mod owners;
mod pace;
mod punch;
mod range;
mod read;
mod repair;
mod reserve;
mod scrub;
mod seek;
mod serve;
mod session;
mod settings;
mod stat;
mod truncate;
mod verify;
mod workers;
mod write;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use disk::Disk;
use disk::volume::{Label, Media};
use net::{Answer, Service};
use parking_lot::{Mutex, RwLock};
use store::{DamageKind, Engine, ObjectStore};
use types::{Fault, Seq};
use wire::Header;
use wire::map::ClusterMap;
use wire::mgmt::RegisterReply;

pub use format::FormatSpec;
pub use settings::Settings;

use joined::Joined;
use workers::Workers;

/// Locks that the slots share. A request holds its slot's lock, so that a repeat waits for the first to end.
const SLOT_LOCKS: usize = 1024;
const _: () =
    assert!(SLOT_LOCKS.is_multiple_of(wire::session::SLOTS as usize), "slots of a session share no lock");

/// A serving OST. Dropping it only stops its threads, as a killed process would.
pub struct Ost {
    core: Arc<Core>,
    workers: Workers,
}

/// State that the serving threads and the background threads share.
pub(crate) struct Core {
    /// Itself, for answers that come later.
    me: Weak<Core>,
    store: Arc<dyn ObjectStore>,
    /// The store as a member of a mirror. `None`: a store of another kind, which is in no mirror.
    engine: Option<Arc<Engine>>,
    role: RwLock<mirror::Role>,
    /// The entry of the mirror that is put off, by its hash, and since when.
    put_off: Mutex<Option<(u64, std::time::Instant)>>,
    /// The other member, in either role.
    peer: RwLock<Option<Arc<dyn pair::Peer>>>,
    /// The incarnation of this start, or of the life that began when the member took over.
    incarnation: AtomicU32,
    joined: RwLock<Option<Arc<Joined>>>,
    slot_locks: Vec<Mutex<()>>,
    ranges: range::RangeLocks,
    owners: owners::Owners,
    guests: nodemap::Guests,
    settings: Settings,
    bell: workers::Bell,
    scrubber: scrub::Scrubber,
    verifier: verify::Verifier,
    pace: pace::Pace,
    stopping: AtomicBool,
    /// Seconds since 1970.
    started_sec: u64,
    /// How often damage was found that the full list could not take, since the list was last cleared.
    unlisted_damage: AtomicU64,
}

impl Ost {
    /// Makes an empty OST on a medium. A medium that is not blank is refused, unless the specification forces it.
    pub fn format(disk: &dyn Disk, spec: &FormatSpec) -> Result<(), Fault> {
        Ok(Engine::format_as(disk, spec.label(), spec.division(disk.size()), spec.force)?)
    }

    /// Opens and recovers an OST. Requests are refused with `NotReady` until `join`.
    pub fn open(media: impl Into<Media>, settings: Settings) -> Result<Arc<Ost>, Fault> {
        let store = Engine::open_with(media, settings.store)?;
        Ost::with_engine(store, settings)
    }

    /// As `open`, and cuts the log behind mirror seq `after`: the mirror went on from there without this member.
    pub fn open_cut(media: impl Into<Media>, settings: Settings, after: Seq) -> Result<Arc<Ost>, Fault> {
        let store = Engine::open_cut(media, settings.store, after)?;
        Ost::with_engine(store, settings)
    }

    fn with_engine(store: Engine, settings: Settings) -> Result<Arc<Ost>, Fault> {
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
                "sound entries after the log's end were discarded: they were not flushed, which is normal after a power loss; after anything else check the medium"
            );
        }
        let store = Arc::new(store);
        let ost = Ost::of(store.clone(), Some(store), settings);
        let (target, found_sec) = (ost.label().target, (ost.core.settings.clock)());
        for (object, offset) in unreadable {
            let kind = DamageKind::Medium;
            ost.core
                .keep_damage(target, store::Damage { object, offset, kind, found_sec, is_repaired: false });
        }
        Ok(ost)
    }

    /// Serves any store.
    pub fn with_store(store: Arc<dyn ObjectStore>, settings: Settings) -> Arc<Ost> {
        Ost::of(store, None, settings)
    }

    fn of(store: Arc<dyn ObjectStore>, engine: Option<Arc<Engine>>, settings: Settings) -> Arc<Ost> {
        let started_sec = (settings.clock)();
        store.begin_service(started_sec);
        let core = Arc::new_cyclic(|me: &Weak<Core>| Core {
            me: me.clone(),
            engine,
            role: RwLock::default(),
            put_off: Mutex::default(),
            peer: RwLock::default(),
            incarnation: AtomicU32::new(store.incarnation().0),
            scrubber: scrub::Scrubber::new(store.scrub()),
            verifier: verify::Verifier::default(),
            pace: pace::Pace::new(std::time::Instant::now()),
            store,
            joined: RwLock::default(),
            ranges: Default::default(),
            owners: Default::default(),
            guests: Default::default(),
            slot_locks: (0..SLOT_LOCKS).map(|_| Mutex::default()).collect(),
            settings,
            bell: Default::default(),
            stopping: AtomicBool::new(false),
            started_sec,
            unlisted_damage: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&core);
        core.store.on_parked(Box::new(move || weak.upgrade().iter().for_each(|core| core.bell.ring())));
        core.follow_params();
        Arc::new(Ost { workers: Workers::start(&core), core })
    }

    /// As the call OstStat tells them.
    pub fn counters(&self) -> wire::ost::OstStatReply {
        self.core.ost_stat((self.core.settings.clock)())
    }

    /// The target's identity, from its superblock.
    pub fn label(&self) -> Label {
        self.core.store.label()
    }

    /// Takes the place in the cluster that the MGS assigned; from then on requests are served. The first call writes the identity to the
    /// superblock; later ones refuse a different identity.
    pub fn join(&self, reply: &RegisterReply) -> Result<(), Fault> {
        self.core.join(reply)
    }

    /// Takes a newer cluster map, for its nodemaps and the key of capabilities.
    pub fn set_map(&self, map: &ClusterMap) {
        self.core.set_map(map);
    }

    /// Ends sessions that were used by revoked certificates only (oss-P7). Called after each new revocation list.
    pub fn end_revoked(&self, is_revoked: &dyn Fn(pki::Serial) -> bool) {
        self.core.end_revoked(is_revoked);
    }

    /// Makes all acknowledged requests durable.
    pub fn flush(&self) -> Result<(), Fault> {
        self.core.store.flush()?;
        Ok(())
    }

    /// Stops the OST: requests are refused with `NotReady`, and its threads end. `clean` writes a checkpoint and the clean mark, so that
    /// the next start replays nothing and keeps its incarnation. A second call does nothing more.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        let was_stopping = self.core.stopping.swap(true, Ordering::AcqRel);
        self.workers.stop(&self.core);
        if clean && !was_stopping {
            if let Err(error) = self.core.save_scrub() {
                tracing::warn!(%error, "the scrub's position was not saved; it reads a part again after the next start");
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
