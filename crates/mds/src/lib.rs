//! The metadata server of one MDT: a volume, an ordered table, sessions, and the executor that runs the rules of `meta`.
//!
//! A thread with a mutating request becomes the leader of the executor, or queues the request for the leader. The leader runs the rules of
//! queued requests one after the other over snapshot + overlay, appends one log entry, applies it, publishes the new state and reports
//! the outcomes. Reads run over the published state and never wait for a request that changes something.
//!
//! mds-M1: log order is apply order, since one leader does both.
//! mds-M2: a change is neither visible nor answered before its entry is in the log.
//! mds-M3: a refused request changes nothing and leaves no entry. Sent again, it is judged again.
//! mds-M4: a request that was carried out is never carried out again: its reply is in the entry of its change.
//! mds-M5: ids (fid, lease, session) come from blocks whose limit was flushed before the first id was used (mds-O5).
//! mds-M6: objects are destroyed only after the entry that put them into the unlink log is flushed.
//! mds-M7: a reply that lets a client write to objects anew leaves only after its entry is flushed.
//!
//! Use: `Mdt::format` once, `Mdt::open`, then `join` with the MGS's answer; put it into a `net::Hub`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod bell;
mod clock;
mod executor;
mod joined;
mod judge;
mod pair;
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

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Weak};

use ::pair::{Companion, Copied, Logged, Place, RecordPeer, Replica};
use arc_swap::ArcSwapOption;
use disk::Trouble;
use disk::volume::{Label, ReadEntry, Volume};
use kv::Engine;
use net::{Answer, Fabric, Service};
use parking_lot::Mutex;
use types::{Code, Epoch, Fault, Incarnation, Seq, SessionId, Word};
use wire::Header;
use wire::map::ClusterMap;
use wire::mgmt::RegisterReply;
use wire::pair::ListLostReply;

pub use clock::{Clock, MachineClock};
pub use executor::room::usable_bytes;
pub use judge::{Groups, MachineUsers, Squash, UserDatabase};
pub use records::record;
pub use rules::{MetaRules, Rules};
pub use settings::Settings;
pub use start::fill::{fill, keep_note_on, note_on};
pub use start::format::FormatSpec;
pub use start::standby::Standby;
pub use upkeep::backup;
pub use upkeep::scrub::{SCRUB_EVERY_MS, SCRUB_RATE};

use executor::{execute, room};
use joined::Joined;
use records::{kept, look};
use sessions::{Sessions, below, grace, leases, locks, makers, shared};
use start::workers::Workers;
use upkeep::{check, hold, purge, scrub, verify, whole};

/// The engine below the executor; no other place names one. Tests of this crate use an engine that has no record in memory before it was
/// asked for, so that every read shows that it starts over.
#[cfg(not(test))]
type Records = kv::Table;
#[cfg(test)]
type Records = kv::away::AwayTable;

/// An MDT that serves. Dropping it only stops its threads, and leaves the medium as a killed process would.
pub struct Mdt {
    core: Arc<Core>,
    workers: Workers,
}

/// State that serving threads and background threads share.
/// Locks are taken in this order: `checking`, `copying`, `giving` or `verifier`, `ending`, `checkpointing` or `reserving`, the executor, `hold`.
pub(crate) struct Core {
    /// Itself, for answers that come later.
    me: Weak<Core>,
    volume: Arc<Volume>,
    kv: Records,
    executor: execute::Executor,
    sessions: Sessions,
    sharers: shared::Sharers,
    leases: Arc<leases::Leases>,
    makers: makers::Makers,
    roots: below::Roots,
    /// One attach, detach or eviction at a time.
    ending: Mutex<()>,
    /// Held during a checkpoint; has the copies of the last one.
    checkpointing: Mutex<kept::Kept>,
    reserving: Mutex<()>,
    joined: ArcSwapOption<Joined>,
    /// Incarnation of this start. The volume's own accessor takes a lock.
    incarnation: Incarnation,
    was_clean: bool,
    /// Time of the start, in seconds since 1970.
    started_sec: u64,
    /// Epoch of this mirror in the newest map.
    epoch: AtomicU32,
    /// Many pending counts wait to be folded into records.
    counts_long: AtomicBool,
    /// The changelog exceeds its share.
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
    /// The fsck in progress.
    checking: Mutex<Option<check::Run>>,
    /// Snapshots of the fsck and of the backup. Ending them requires `checkpointing`.
    walks: look::Walks<Records>,
    /// The backup in progress.
    copying: Mutex<Option<backup::Copy>>,
    grace: grace::Grace,
    /// The part of the log that the mirror's other member still needs.
    hold: Mutex<Option<hold::Hold>>,
    /// The copy of the whole content in progress.
    giving: Mutex<Option<whole::Giving>>,
    copies: AtomicU64,
    /// The comparison with the mirror's other member.
    verifier: verify::Verifier,
    scrubber: scrub::Scrubber,
    /// The mirror of this MDT, if it has one.
    pair: crate::pair::Pair,
}

impl Mdt {
    /// Identity of this target, from its superblock.
    pub fn label(&self) -> Label {
        self.core.volume.label()
    }

    /// False if the last stop was not clean, so that the log was replayed.
    pub fn was_clean(&self) -> bool {
        self.core.was_clean
    }

    /// Takes the place in the cluster that the MGS gave. From here on the MDT serves requests and destroys unlinked objects. The first call
    /// writes the identity to the superblock; later calls refuse another identity.
    pub fn join(&self, reply: &RegisterReply, fabric: Arc<Fabric>) -> Result<(), Fault> {
        self.core.join(reply, fabric)?;
        self.workers.start_purge(&self.core);
        Ok(())
    }

    /// Takes a newer cluster map (new OSTs, targets that moved). Ignores older ones.
    pub fn set_map(&self, map: &ClusterMap) -> Result<(), Fault> {
        self.core.set_map(map)
    }

    /// Evicts sessions that were used by revoked certificates only (mds-S5). Called after each new revocation list.
    pub fn end_revoked(&self, is_revoked: &dyn Fn(pki::Serial) -> bool) {
        self.core.end_revoked(is_revoked);
    }

    /// From here on this MDT, which had no mirror, is the primary of one. `begin` gets the lines of the log with their first seqs, and the
    /// last seq of the log; no entry comes between that and the first order.
    pub fn set_companion(
        &self,
        begin: impl FnOnce(Vec<(Epoch, Seq)>, Seq) -> Result<Arc<dyn Companion>, Fault>,
    ) -> Result<(), Fault> {
        self.core.set_companion(begin)
    }

    /// The mirror's other member, with which an administrator may compare this one.
    pub fn set_peer(&self, peer: Arc<dyn RecordPeer>) {
        self.core.pair.set_peer(peer);
    }

    /// Makes everything durable that was acknowledged so far.
    pub fn flush(&self) -> Result<(), Fault> {
        self.core.flush().map(|_| ())
    }

    /// Writes all records to a checkpoint, which trims the log. The keeper does so when the log is half full.
    pub fn checkpoint(&self) -> Result<(), Fault> {
        self.core.checkpoint_now()
    }

    /// Stops the MDT: requests are refused with `NotReady`, and threads end. A request that waits for the mirror to commit its entry ends
    /// with the companion, so the owner of a mirrored MDT ends that first. `clean` writes a checkpoint and the clean mark, so that the next
    /// start replays nothing and keeps its incarnation. A second call does nothing.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        self.workers.stop(&self.core);
        self.core.close(clean)
    }

    /// Memory words that reading requests share, for counting their writes with hardware breakpoints. Readers write none of them except the
    /// time at which a session was last heard of.
    pub fn words(&self) -> Vec<Word> {
        let mut words = self.core.kv.words();
        words.extend(
            self.core.joined.load().as_ref().map(|j| Word::count("count of the place in the cluster", j)),
        );
        words.extend(self.core.sessions.words());
        words
    }

    /// Sizes of the table, and its share in memory.
    pub fn figures(&self) -> kv::Figures {
        self.core.kv.figures()
    }

    /// True if several sessions share the MDT, or if one waits to attach.
    pub fn is_sharing(&self) -> bool {
        self.core.sharers.is_sharing()
    }

    /// As the call MdtStat tells them. Errors: not joined yet, damage.
    pub fn counters(&self) -> Result<wire::mdt::MdtStatReply, Fault> {
        self.core.mdt_stat()
    }

    /// Live sessions, for status displays: id, client name, milliseconds since the last sign of life.
    pub fn sessions(&self) -> Vec<(SessionId, String, u64)> {
        self.core.sessions.list(self.core.clock.boot_ms())
    }
}

impl Service for Mdt {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.core.serve(head, body, bulk, answer)
    }
}

/// As the member of a mirror that orders.
impl Replica for Mdt {
    fn keep_note(&self, note: &[u8]) -> Result<(), Fault> {
        self.core.volume.set_note(note).map_err(|e| self.core.volume_fault(e))
    }

    fn flush(&self) -> Result<Seq, Fault> {
        self.core.flush_own()
    }

    fn trouble(&self) -> Option<Trouble> {
        self.core.volume.trouble()
    }

    fn first(&self) -> Seq {
        self.core.volume.first_seq()
    }

    fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Logged>, Fault> {
        Ok(self.core.entries(after, bytes_max)?.into_iter().map(logged).collect())
    }

    fn append(&self, entry: &Logged) -> Result<(), Fault> {
        let why = format!("entry {:?} came to the member that orders; restart this MDT", entry.place);
        Err(Fault::new(Code::NotReady, why))
    }

    /// Ranges of records that the table knows to be lost.
    fn list_lost(&self) -> Result<ListLostReply, Fault> {
        Ok(ListLostReply { lost: self.core.kv.lost(), places: vec![] })
    }

    fn copy_out(&self, copy: u64, part: u64) -> Result<Copied, Fault> {
        self.core.give_part(copy, part)
    }
}

fn logged(entry: ReadEntry) -> Logged {
    let ReadEntry { epoch: line, first, last, payload: content, .. } = entry;
    Logged { place: Place { line, first, last }, content }
}

impl Drop for Mdt {
    fn drop(&mut self) {
        self.workers.stop(&self.core)
    }
}
