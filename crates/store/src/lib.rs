//! The OST engine: objects on one volume, copy-on-write, checksummed to the page, recovered after any crash.
//!
//! `ObjectStore` is what the daemon sees; `Engine` is the engine. It promises:
//! - store-S1 (whole pages): a write goes to newly allocated pages; after a crash each page is old or new, never mixed.
//! - store-S2 (verified): fragment CRCs are verified on arrival before anything is written, page CRCs on every read.
//! - store-S3 (one order): log order is apply order; the answer, the slot and the change are one log entry.
//! - store-O1 (reuse): space is reused only after the entry that superseded it is sealed.
//! - store-O2 (recovery): the data of entries after the last flush mark is verified; the log is cut at the first that fails.
//! - store-S4 (zeros): bytes of an object's last page past its length are zero, so that extension reads zeros.
//! - store-S5 (full): a full medium refuses writes before anything is written; removing always works.
//! - store-O5 (incarnation): a new incarnation is durable before anything is served under it; no incarnation is served twice.
//! - store-S6 (reserved): a write to reserved pages finds space, whatever else was written meanwhile.
//!
//! It refuses requests whose gate (the caller's rule) says no, bad checksums, and what does not fit. It has no clock and no
//! thread of its own: the daemon calls `flush`, `seal` and `checkpoint`. Byte formats: docs/formats/ost.md. Of the scrub it keeps the
//! state and verifies parts of objects (scrub.rs).

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

mod records;
mod state;
mod upkeep;
mod verbs;

#[cfg(test)]
mod tests;

pub use records::error::{DamageKind, StoreError};
pub use records::index::{BadLeaf, IndexStats, VerifiedLeaves};
pub use records::scrub_state::{Pass, SCRUB_EVERY_SEC, SCRUB_RATE, Scrub, Scrubbing};
pub use records::settings::Settings;
pub use state::engine::Engine;
pub use state::grants::GRANT_SEC;
pub use state::room::{DAMAGE_MAX, SESSIONS_MAX};
pub use state::service::Service;
pub use state::stats::{DeviceStats, SmallStats, Stats, UserStats};
pub use state::waste::{MIXED_FILES, Mix, SubBlock, Waste};
pub use upkeep::format::{Geometry, LOG_BYTES_MAX, geometry};
pub use upkeep::scrub::Verified;
pub use upkeep::survey::{Amount, ClassUse, Cursor, RUN_CLASSES, SUB_BLOCK_CLASSES, SpaceReport, Survey};
pub use verbs::damage::Recorded;
pub use verbs::list::Readable;
pub use verbs::reserve::Reservation;
pub use verbs::write::Written;

use std::time::Duration;

use disk::volume::Label;
use types::{Buf, Epoch, Fault, Fid, Incarnation, ObjectId, Seq, SessionId, Time};

/// Objects on a medium. Every method may be called from any thread; changes to different objects do their data I/O at once.
pub trait ObjectStore: Send + Sync {
    /// Writes bytes; makes the object if there is none. Answers as `Written` says.
    fn write(&self, write: &Write<'_>) -> Result<Done, StoreError>;
    /// Reads up to `len` bytes at `offset` into `into`; fewer at the object's end; holes are zeros. `crcs` gets one CRC per
    /// fragment. `Ok(false)`: there is no such object.
    fn read(&self, read: &Read<'_>, into: &mut Buf, crcs: &mut Vec<u32>) -> Result<bool, StoreError>;
    /// Cuts or extends an object; an absent one stays absent. Answers with the object's length.
    fn truncate(&self, truncate: &Truncate<'_>) -> Result<Done, StoreError>;
    /// Promises space to each page of a range that has none; makes the object if there is none. All or nothing. Answers as
    /// `reserve::Reservation` says.
    fn reserve(&self, reserve: &Reserve<'_>) -> Result<Done, StoreError>;
    /// Takes promises back that no write has used.
    fn release(&self, release: &Release<'_>) -> Result<Done, StoreError>;
    /// Makes bytes zeros: whole pages become holes, or stay reserved. An absent object stays absent. Answers with the object's
    /// length.
    fn punch(&self, punch: &Punch<'_>) -> Result<Done, StoreError>;
    /// The first page with bytes and the first without, at or after an offset, as offsets. Reserved pages are without.
    fn seek(&self, object: ObjectId, offset: u64, gate: Gate<'_>) -> Result<Found, StoreError>;
    /// Removes objects; absent ones are fine.
    fn destroy(&self, objects: &[ObjectId], origin: Option<Origin>) -> Result<Done, StoreError>;
    /// Raises the lease version that an object has seen, also of one that does not exist yet. Nothing is logged if it does not
    /// rise.
    fn fence(&self, object: ObjectId, lease: u64) -> Result<(), StoreError>;
    /// `None`: there is no such object.
    fn stat(&self, object: ObjectId) -> Result<Option<Attrs>, StoreError>;
    /// The lease version that the object has seen, existing or not.
    fn lease(&self, object: ObjectId) -> Result<u64, StoreError>;
    /// Existing objects in id order after `after`, at most `max`; true if there are more.
    fn list(&self, after: Option<ObjectId>, max: usize)
    -> Result<(Vec<(ObjectId, Attrs)>, bool), StoreError>;
    /// No object that the store knows of has a greater id.
    fn last_object(&self) -> Option<ObjectId>;
    /// Reads and checks pages of an object from page `from` on, `pages_max` at most.
    fn verify(&self, object: ObjectId, from: u32, pages_max: u32) -> Result<Verified, StoreError>;
    /// Existing objects after `after`, at most `max`, but for those in parts of the index that are lost. It ends where one of these begins,
    /// and where nothing exists: what it costs is bounded.
    fn list_readable(&self, after: Option<ObjectId>, max: usize) -> Result<Readable, StoreError>;
    /// Reads and checks the leaves of the index whose first object is behind `after` and not behind `until`, up to the first bad one or some
    /// number of bytes.
    fn verify_leaves(&self, after: ObjectId, until: ObjectId) -> Result<VerifiedLeaves, StoreError>;
    /// The scrub's state as it was kept last.
    fn scrub(&self) -> Scrub;
    /// Keeps it: after a restart `scrub` gives it back.
    fn set_scrub(&self, scrub: Scrub) -> Result<(), StoreError>;

    /// Makes everything acknowledged so far durable; everything up to the answer is flushed.
    fn flush(&self) -> Result<Seq, StoreError>;
    /// Logs what is flushed, if that is not logged yet, so that the next flush lets superseded space be reused.
    fn mark(&self) -> Result<(), StoreError>;
    /// True if something was acknowledged and is not flushed, or flushed and not sealed.
    fn is_dirty(&self) -> bool;
    /// True if the log is long enough that a checkpoint should be made.
    fn is_checkpoint_due(&self) -> bool;
    /// Writes the index out, so that the log before it is not needed any more.
    fn checkpoint(&self) -> Result<(), StoreError>;
    /// Brings small writes that are a while old, or all when nothing was written since the last call, from the log to where they
    /// belong. For the background, once in a commit interval; it also looks whether the medium has hung for too long, and then the store
    /// has failed.
    fn destage(&self) -> Result<(), StoreError>;
    /// Waits until the log or the memory for small writes fills; true if that is so, then `relieve` should be called.
    fn wait_pressed(&self, at_most: Duration) -> bool;
    /// Brings small writes to where they belong until there is room for others.
    fn relieve(&self) -> Result<(), StoreError>;
    /// Gives space back to the medium that was freed 60 to 120 calls ago and is free still. For the background, once in a commit
    /// interval.
    fn discard(&self) -> Result<(), StoreError>;
    /// Checkpoint, flush and the mark of a clean stop. Nothing can be changed afterwards.
    fn close(&self) -> Result<(), StoreError>;

    /// Makes a session known (again is fine): it then has slots. If there is no room (`SESSIONS_MAX`,
    /// or a full index) the one that did nothing for longest is forgotten: a dead client that nobody detached.
    fn begin_session(&self, session: SessionId) -> Result<(), StoreError>;
    fn end_session(&self, session: SessionId) -> Result<(), StoreError>;
    fn session_count(&self) -> usize;
    /// What was done last in each slot in order; `None`: no such session.
    fn slots(&self, session: SessionId) -> Option<Vec<Slot>>;
    /// What was done last in one slot; `None`: no such session or slot.
    fn slot(&self, session: SessionId, slot: u32) -> Option<Slot>;

    /// Makes the space that is kept for a session as large as it wishes or as can be, for `GRANT_SEC`; how large it is. Bytes.
    fn grant(&self, session: SessionId, bytes: u64, now_sec: u64) -> u64;
    /// Ends grants that were not renewed in time.
    fn lapse_grants(&self, now_sec: u64);
    /// Sessions with grants, and how large they are.
    fn grants(&self) -> Vec<(SessionId, u64)>;

    /// Keeps a piece of damage. At most `DAMAGE_MAX` are kept.
    fn record_damage(&self, damage: Damage) -> Result<Recorded, StoreError>;
    /// Known damage in object order.
    fn damage(&self) -> Vec<Damage>;
    /// Forgets the damage of a file (all for fid 0).
    fn clear_damage(&self, fid: Fid) -> Result<(), StoreError>;

    fn label(&self) -> Label;
    /// Flushed on return.
    fn set_label(&self, label: Label) -> Result<(), StoreError>;
    fn usage(&self) -> Usage;
    /// What is free, and in what pieces.
    fn space(&self) -> SpaceReport;
    /// What objects take: of about `objects_max` of them from `at` on, and where to go on.
    fn survey(&self, at: Cursor, objects_max: u64) -> Result<(Survey, Option<Cursor>), StoreError>;
    /// What was done since the opening.
    fn stats(&self) -> Stats;
    /// If nobody has yet, says when the target's service began; the next checkpoint keeps it.
    fn begin_service(&self, now_sec: u64);
    fn health(&self) -> Health;
    fn last_seq(&self) -> Seq;
    fn flushed_seq(&self) -> Seq;
    fn incarnation(&self) -> Incarnation;
    /// The epoch that later entries are named with; never lower than before.
    fn set_epoch(&self, epoch: Epoch);
}

/// The caller's rule, asked with what the object is like at the moment of the change, under the store's short lock: it must be
/// quick, must not call the store, and must ask nothing of the mtime: small overwrites on their way to the log may raise it yet. It
/// may be asked more than once.
pub type Gate<'a> = &'a (dyn Fn(&Attrs) -> Result<(), Fault> + Sync);

/// Bytes to write. `crcs`: one per fragment (see `types::crc`).
pub struct Write<'a> {
    pub object: ObjectId,
    pub offset: u64,
    pub data: &'a [u8],
    pub crcs: &'a [u32],
    /// The object keeps the latest it has seen.
    pub mtime: Time,
    /// The object keeps the highest it has seen.
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
    /// Whose grant may be used if there is no other space.
    pub holder: Option<SessionId>,
}

pub struct Read<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    pub gate: Gate<'a>,
}

pub struct Truncate<'a> {
    pub object: ObjectId,
    /// Bytes.
    pub len: u64,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Reserve<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1.
    pub len: u64,
    /// The object is at least this long afterwards, bytes.
    pub end: u64,
    pub mtime: Time,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Release<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1.
    pub len: u64,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

pub struct Punch<'a> {
    pub object: ObjectId,
    pub offset: u64,
    /// Bytes; at least 1. Past the object's end there is nothing to punch but reservations.
    pub len: u64,
    pub leave: Leave,
    pub mtime: Time,
    pub lease: u64,
    pub gate: Gate<'a>,
    pub origin: Option<Origin>,
}

/// What pages with bytes are after they were punched; those without stay what they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Holes; pages that were only reserved, too.
    Hole,
    /// Their space stays promised to them.
    Reserved,
}

/// What `seek` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Found {
    pub exists: bool,
    /// `None`: no bytes from there on.
    pub data: Option<u64>,
    /// There always is one, behind the end if nowhere else.
    pub hole: u64,
}

/// Whose request a change carries out: it is recorded in the same log entry (exactly once).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
}

/// A change was made (acknowledged, not yet flushed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The log entry that holds it; 0 if nothing had to be changed.
    pub seq: Seq,
    /// The request's one answer: an object's length in bytes, or 0, or what the call's own type says.
    pub answer: u64,
}

/// What was done last in a slot; sequence 0: nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot {
    pub sequence: u32,
    pub seq: Seq,
    pub answer: u64,
}

/// An object as acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attrs {
    /// False for one that was never written: only its lease version may be known.
    pub exists: bool,
    /// Bytes.
    pub len: u64,
    /// Bytes on the medium, those that are reserved too.
    pub used: u64,
    /// Where the last reserved page ends, bytes; 0 if none is.
    pub reserved_end: u64,
    pub mtime: Time,
    /// Highest lease version seen.
    pub lease: u64,
}

/// One piece of known damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    pub object: ObjectId,
    /// Of the bad page in the object, bytes.
    pub offset: u64,
    pub kind: DamageKind,
    /// Seconds since 1970.
    pub found_sec: u64,
}

/// How the medium does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Why nothing can be changed any more, if so.
    pub failure: Option<String>,
    /// Why some objects cannot be told of, if so; all others are well.
    pub index_damage: Option<String>,
    /// Of the two superblock copies, how many were good at open.
    pub superblock_copies: u8,
}

/// Space and counts, for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub bytes_total: u64,
    /// Free now, or as soon as what superseded it is sealed, and promised to nobody.
    pub bytes_free: u64,
    /// What writes may still take: the rest is the reserve that truncation needs.
    pub bytes_available: u64,
    pub objects: u64,
    /// How many more objects the index has room for.
    pub objects_free: u64,
    pub log_bytes_used: u64,
    pub log_bytes_total: u64,
}
