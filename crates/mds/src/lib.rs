//! The metadata server of one MDT: a volume, an ordered table, sessions, and the executor that runs the rules of `meta`.
//!
//! A thread with a mutating request becomes the executor's leader, or queues the request for the present leader. The leader runs the rules
//! of all queued requests in order over snapshot + overlay. It appends one log entry, applies it, publishes the new state and reports.
//! Reads run over the published state and never wait for a mutating request.
//!
//! Folders, top to bottom (a file imports only from its own folder and those below): `start`, `upkeep`, `serve`, `executor`, `sessions`,
//! `records`, and the files beside this one.
//!
//! mds-M1: log order is apply order, because the leader does both.
//! mds-M2: no change is visible or answered before its entry is in the log.
//! mds-M3: a refused request changes nothing and leaves no entry; a repeat of it is judged again.
//! mds-M4: a request is carried out once: its reply is in the entry with its changes.
//! mds-M5: ids (fid, lease, session) come from blocks whose limit was flushed before the first was used (rule mds-O5).
//! mds-M6: objects are destroyed only after the flush of the entry that put them into the unlink log.
//! mds-M7: a reply that lets a client write to objects anew is sent only after its entry is flushed.
//!
//! Use: `Mdt::format` once, `Mdt::open`, then `join` with the MGS's reply; put it into a `net::Hub`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod bell;
mod clock;
mod executor;
mod joined;
mod judge;
mod records;
mod reply;
mod rules;
mod serve;
mod sessions;
mod settings;
mod start;
mod upkeep;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use arc_swap::ArcSwapOption;
use disk::volume::{Label, Volume};
use kv::Engine;
use net::{Answer, Fabric, Service};
use parking_lot::Mutex;
use types::{Fault, Incarnation, SessionId, Word};
use wire::Header;
use wire::map::ClusterMap;
use wire::mgmt::RegisterReply;

pub use clock::{Clock, MachineClock};
pub use executor::room::usable_bytes;
pub use judge::{Groups, MachineUsers, Squash, UserDatabase};
pub use records::record;
pub use rules::{MetaRules, Rules};
pub use settings::Settings;
pub use start::format::FormatSpec;
pub use upkeep::backup;

use executor::{execute, room};
use joined::Joined;
use records::{kept, look};
use sessions::{Sessions, grace, locks, shared};
use start::workers::Workers;
use upkeep::{check, purge};

/// The engine below the executor; no other place names one. The tests of this crate use an engine that loads each record only after a miss.
/// So they show that every reader starts over.
#[cfg(not(test))]
type Records = kv::Table;
#[cfg(test)]
type Records = kv::away::AwayTable;

/// An MDT that serves. Dropping it stops its threads and does nothing else, so the medium is as after a kill.
pub struct Mdt {
    core: Arc<Core>,
    workers: Workers,
}

/// The state that serving and background threads share.
/// Lock order: `checking` or `copying`, `ending`, `checkpointing` or `reserving`, then leadership (`role`).
pub(crate) struct Core {
    volume: Volume,
    kv: Records,
    role: execute::Role,
    sessions: Sessions,
    sharers: shared::Sharers,
    /// One attach, detach or eviction at a time.
    ending: Mutex<()>,
    /// One checkpoint at a time. Holds the copies of records in the last one.
    checkpointing: Mutex<kept::Kept>,
    reserving: Mutex<()>,
    joined: ArcSwapOption<Joined>,
    /// A copy, because the volume's own accessor takes a lock.
    incarnation: Incarnation,
    was_clean: bool,
    /// Time of this start, seconds since 1970.
    started_sec: u64,
    /// The epoch of this MDT's mirror in the newest map.
    epoch: AtomicU32,
    /// Many pending counts of directories wait for `fold_counts`.
    counts_long: AtomicBool,
    /// The changelog takes more than its share.
    changes_long: AtomicBool,
    rules: Arc<dyn Rules>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    bells: bell::Bells,
    purged: purge::Counts,
    known_groups: judge::Known,
    stopping: AtomicBool,
    room: room::Room,
    locks: locks::Locks,
    /// Shared with `Ids`.
    newest_lease: Arc<AtomicU64>,
    /// mds-M7: seq of the last entry that let a client change objects.
    change_let_by: AtomicU64,
    /// The running fsck.
    checking: Mutex<Option<check::Run>>,
    /// Snapshots of fsck and backup. A thread that ends them holds `checkpointing`.
    walks: look::Walks<Records>,
    /// The running backup.
    copying: Mutex<Option<backup::Copy>>,
    grace: grace::Grace,
}

impl Mdt {
    /// This target's identity in its superblock.
    pub fn label(&self) -> Label {
        self.core.volume.label()
    }

    /// False if the last stop was not clean, so that the log was replayed.
    pub fn was_clean(&self) -> bool {
        self.core.was_clean
    }

    /// Joins the cluster with the MGS's reply. From here on requests are served and the purge runs.
    /// The first join writes the identity to the superblock; a later one with another identity is refused.
    pub fn join(&self, reply: &RegisterReply, fabric: Arc<Fabric>) -> Result<(), Fault> {
        self.core.join(reply, fabric)?;
        self.workers.start_purge(&self.core);
        Ok(())
    }

    /// A newer cluster map (new OSTs to place on, targets that moved). Older ones are ignored.
    pub fn set_map(&self, map: &ClusterMap) -> Result<(), Fault> {
        self.core.set_map(map)
    }

    /// Makes everything durable that was acknowledged so far.
    pub fn flush(&self) -> Result<(), Fault> {
        self.core.flush().map(|_| ())
    }

    /// Writes all records to a checkpoint, which trims the log. The keeper does so when the log is half full.
    pub fn checkpoint(&self) -> Result<(), Fault> {
        self.core.checkpoint_now()
    }

    /// Stops: requests are refused with `NotReady`, and threads end. `clean` writes a checkpoint and the clean mark, so that
    /// the next start replays nothing and keeps its incarnation. A second call does nothing.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        self.workers.stop(&self.core);
        self.core.close(clean)
    }

    /// Words that reading requests load and do not write (but for a session's time of the last request). A benchmark counts writes to them
    /// with breakpoints.
    pub fn words(&self) -> Vec<Word> {
        let mut words = self.core.kv.words();
        words.extend(
            self.core.joined.load().as_ref().map(|j| Word::count("count of the place in the cluster", j)),
        );
        words.extend(self.core.sessions.words());
        words
    }

    /// Size of the table, and how much of it is in memory.
    pub fn figures(&self) -> kv::Figures {
        self.core.kv.figures()
    }

    /// Do several sessions share the file system, or does a client ask to attach beside one?
    pub fn is_sharing(&self) -> bool {
        self.core.sharers.is_sharing()
    }

    /// Live sessions, for status displays: id, the client's name, milliseconds since its last request.
    pub fn sessions(&self) -> Vec<(SessionId, String, u64)> {
        self.core.sessions.list(self.core.clock.boot_ms())
    }
}

impl Service for Mdt {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.core.serve(head, body, bulk, answer)
    }
}

impl Drop for Mdt {
    fn drop(&mut self) {
        self.workers.stop(&self.core)
    }
}
