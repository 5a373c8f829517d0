//! The metadata server of one MDT: a volume, an ordered table, sessions, and the executor that runs the rules of `meta`.
//!
//! Who brings a mutating request takes the writer's role, or leaves it to who has it. The holder runs the rules of all who came meanwhile
//! one after the other over snapshot + overlay, appends one log entry, applies it, publishes the new state and tells them.
//! Reads run over the published state and never wait for a request that changes something.
//!
//! mds-M1: log order is apply order: both are done by who has the writer's role.  mds-M2: nothing is visible or answered before its entry
//! is in the log.  mds-M3: a refused request changes nothing and leaves no entry; sent again it is judged again.
//! mds-M4: a request that was carried out is never carried out again: its reply is in the entry that changed things.
//! mds-M5: ids (fid, lease, session) come from blocks whose limit was flushed before the first was used (rule mds-O5).
//! mds-M6: objects are destroyed only after the entry that made them dead is flushed.
//! mds-M7: a reply that lets a client write to objects anew is sent only after its entry is flushed.
//!
//! Use: `Mdt::format` once, `Mdt::open`, then `join` with what the MGS answered; put it into a `net::Hub`.

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

/// The engine below the executor: the only place that names one. Tests of this crate run over one that has nothing in memory before
/// it was asked for, so that whatever reads here is shown to start over.
#[cfg(not(test))]
type Records = kv::Table;
#[cfg(test)]
type Records = kv::away::AwayTable;

/// An MDT that serves. Dropping it stops its threads and nothing else: what a killed process leaves behind.
pub struct Mdt {
    core: Arc<Core>,
    workers: Workers,
}

/// What the serving threads and the background threads share.
/// Taken in this order: `checking` or `copying`, `ending`, `checkpointing` or `reserving`, the role.
pub(crate) struct Core {
    volume: Volume,
    kv: Records,
    role: execute::Role,
    sessions: Sessions,
    sharers: shared::Sharers,
    /// One attach, detach or eviction at a time.
    ending: Mutex<()>,
    /// With the copies that the last checkpoint has.
    checkpointing: Mutex<kept::Kept>,
    reserving: Mutex<()>,
    joined: ArcSwapOption<Joined>,
    /// This start's; the volume's own accessor takes a lock.
    incarnation: Incarnation,
    was_clean: bool,
    /// When it did, seconds since 1970.
    started_sec: u64,
    /// Our mirror's, as the newest map says.
    epoch: AtomicU32,
    /// Many counts of directories wait to go into their records.
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
    /// Of `Ids`.
    newest_lease: Arc<AtomicU64>,
    /// mds-M7: the last entry that let a client change objects.
    change_let_by: AtomicU64,
    /// The fsck that is under way, if one is.
    checking: Mutex<Option<check::Run>>,
    /// States of those two. Whoever ends them holds `checkpointing`.
    walks: look::Walks<Records>,
    /// The backup that is under way, if one is.
    copying: Mutex<Option<backup::Copy>>,
    grace: grace::Grace,
}

impl Mdt {
    /// Who this target is, as its superblock says.
    pub fn label(&self) -> Label {
        self.core.volume.label()
    }

    /// False if the last process that served this target did not stop cleanly, so that the log was replayed.
    pub fn was_clean(&self) -> bool {
        self.core.was_clean
    }

    /// Takes the place in the cluster that the MGS gave; from here on requests are served and dead objects destroyed.
    /// The first time it writes the identity to the superblock; later it refuses another one.
    pub fn join(&self, reply: &RegisterReply, fabric: Arc<Fabric>) -> Result<(), Fault> {
        self.core.join(reply, fabric)?;
        self.workers.start_purge(&self.core);
        Ok(())
    }

    /// A newer cluster map (new OSTs to place on, targets that moved). Older ones are ignored.
    pub fn set_map(&self, map: &ClusterMap) -> Result<(), Fault> {
        self.core.set_map(map)
    }

    /// Makes everything acknowledged so far durable.
    pub fn flush(&self) -> Result<(), Fault> {
        self.core.flush().map(|_| ())
    }

    /// Writes all records to a checkpoint, after which the log is as good as empty. The keeper does so when it is half full.
    pub fn checkpoint(&self) -> Result<(), Fault> {
        self.core.checkpoint_now()
    }

    /// Ends it: requests are refused with `NotReady`, threads end. `clean` writes a checkpoint and the clean mark, so that
    /// the next start replays nothing and keeps its incarnation. Calling it twice is fine.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        self.workers.stop(&self.core);
        self.core.close(clean)
    }

    /// What reading requests look at and do not write, but for the time at which a session was last heard of: for who counts that
    /// with breakpoints.
    pub fn words(&self) -> Vec<Word> {
        let mut words = self.core.kv.words();
        words.extend(
            self.core.joined.load().as_ref().map(|j| Word::count("count of the place in the cluster", j)),
        );
        words.extend(self.core.sessions.words());
        words
    }

    /// What its records take, and how much of that is in memory.
    pub fn figures(&self) -> kv::Figures {
        self.core.kv.figures()
    }

    /// Do several sessions share it, or does one ask to come in?
    pub fn is_sharing(&self) -> bool {
        self.core.sharers.is_sharing()
    }

    /// Live sessions, for status displays: id, the client's name, milliseconds since it was last heard of.
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
