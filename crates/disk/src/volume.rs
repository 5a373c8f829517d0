//! The volume below an MDT or an OST. It has one medium (or two, `media`) with a superblock (two copies), a log ring, two checkpoint slots
//! and a data region that its owner uses. Formats: docs/formats/volume.md.
//!
//! Life: `open` → `checkpoint_reader` (load the state) → `replay` (apply the later entries) → `start` → `append`, `flush`,
//! `checkpoint` … → `close_clean`. A call out of this order is refused.
//!
//! disk-V1: from entry to entry the seq rises by the operations of the entry before, mostly one, and the position by its bytes; a scan
//!     accepts nothing else. disk-V8: the volume's own flush marks take no seq, so two volumes with the same entries give them the same seqs.
//! disk-V2: an entry that was once behind a cut tail is never accepted. Each start without a clean stop makes the superblock say
//!     "from this position on only incarnation ≥ n", durably, before the first append. So does each new life of a started volume.
//! disk-V3: `flushed_seq` is raised only by a device flush that began after the entry was written, and `sealed_seq` only to a
//!     flushed_seq that is itself durable, in a flushed entry or in the superblock.
//! disk-V4: the ring never overwrites an entry at or after the log start that either superblock copy names, not even with zeros: appends
//!     write whole pages, and one page of the ring stays free.
//! disk-V5: a checkpoint slot is written only while both superblock copies name the other one.
//! disk-V6: after one failed write or flush the volume refuses every call that would promise something. (Not after a failed write to a
//!     checkpoint slot that no superblock names yet: that checkpoint is abandoned, and the one before it stays valid.)
//! disk-V7: the tail lock is never held during a device flush.

mod append;
mod bytes;
mod checkpoint;
mod entry;
mod error;
mod flush;
mod format;
mod media;
mod read_log;
mod replay;
mod superblock;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use types::{Epoch, Incarnation, MirrorId, Seq, TargetId, Uuid};

pub use append::{Entries, PAYLOAD_BYTES_MAX};
pub use checkpoint::CheckpointReader;
pub use error::VolumeError;
pub use flush::OnFlushed;
pub use format::{NewLog, slot_bytes_reserved};
pub use media::{LogLabel, LogMedium, Media};
pub use read_log::ReadEntry;
pub use replay::{CutOff, LogEntry, Lost, ReplaySummary, Verdict};

use crate::Disk;
use crate::counted::{Counted, Counts};
use crate::{Trouble, Troubles};
pub use superblock::NOTE_BYTES_MAX;
pub(crate) use superblock::{LOG_BEGIN, PLACES, SUPERBLOCK_BYTES};
use superblock::{Regions, Superblock};

/// The kind of target on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    Mdt = 1,
    Ost = 2,
}

/// A volume's identity, kept in the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub kind: Kind,
    /// 1 to `FS_NAME_BYTES_MAX` bytes.
    pub fs_name: String,
    pub fs_uuid: Uuid,
    pub uuid: Uuid,
    pub target: TargetId,
    pub index: u32,
    pub mirror: MirrorId,
    pub epoch: Epoch,
}

/// Longest file system name in bytes; what the superblock has room for.
pub const FS_NAME_BYTES_MAX: usize = superblock::FS_NAME_BYTES;

/// How to divide a medium. What log and checkpoints leave is the data region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    pub label: Label,
    /// Rounded up to 4 KiB; at least `LOG_BYTES_MIN`.
    pub log_bytes: u64,
    /// Of each of the two slots; rounded up to 4 KiB.
    pub checkpoint_bytes: u64,
}

/// The regions of a medium, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The log's own medium, if it has one; then `log` is a range of that medium.
    pub log_medium: Option<Uuid>,
    pub log: Range<u64>,
    /// The two checkpoint slots.
    pub slots: [Range<u64>; 2],
    pub data: Range<u64>,
}

/// A ring smaller than this holds too little to be worth its header.
pub const LOG_BYTES_MIN: u64 = 16 * 1024;

/// A place in the log: everything up to and including entry `seq` lies before byte `pos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    pub seq: Seq,
    /// Logical byte offset; it never wraps.
    pub pos: u64,
}

/// An open volume. All methods take `&self` and may be called from many threads.
pub struct Volume {
    /// The main medium, with its requests counted.
    disk: Arc<dyn Disk>,
    /// The medium of the log ring: the main one, or one of its own (disk-M1).
    log: Arc<dyn Disk>,
    counts: Arc<Counts>,
    troubles: Arc<Troubles>,
    access: Access,
    regions: Regions,
    /// Folded from the uuid and stored in every log entry, so that entries of an earlier volume on this medium are not accepted.
    tag: u64,
    /// Number of superblock copies that were good at open, of two.
    copies_good: u8,
    was_clean: bool,
    /// The superblock as last committed.
    superblock: Mutex<Superblock>,
    /// Serializes commits and is held during their flushes; of the locks of this struct, only `slots` may be held when it is taken.
    commits: Mutex<()>,
    /// Serializes checkpoints and the clean stop.
    slots: Mutex<()>,
    tail: Mutex<Tail>,
    /// Copies of the tail's numbers, readable without its lock, which is held while the ring is written.
    seen: Seen,
    group: flush::Group,
    flushed_seq: AtomicU64,
    /// The log is durable up to this position. Marks have one too, and no seq.
    flushed_pos: AtomicU64,
    sealed_seq: AtomicU64,
    /// Where the last `read_log` ended: the next one mostly goes on there.
    read_end: Mutex<Option<LogPoint>>,
    /// Entries that the last replay left out.
    cut_off: Mutex<CutOff>,
    /// Once the volume has failed.
    failed: OnceLock<Failure>,
}

#[derive(Debug)]
struct Failure {
    why: String,
    /// A write found no space, and no flush has failed. So nothing that was acknowledged is lost.
    is_full: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

/// The steps of the volume's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opened,
    Replayed { cut: bool, lost: Option<Lost> },
    Started,
    Closed,
}

/// The log's moving end. `start..pos` is the live part of the ring.
struct Tail {
    phase: Phase,
    incarnation: Incarnation,
    start: u64,
    pos: u64,
    seq: u64,
    /// flushed_seq as stored in the last entry, or in the superblock at start.
    mark: u64,
    /// The ring is known to have been written below this position, at most the ring's length (the first lap).
    prepared: u64,
    /// The content of the log's last page below `pos`, known from the start on. Appends write that page whole.
    page: Vec<u8>,
    /// Reused buffer for appends of one entry.
    own: Entries,
}

/// The tail's numbers as of the last append or trim. None is ahead of what is written.
#[derive(Debug, Default)]
struct Seen {
    is_started: AtomicBool,
    start: AtomicU64,
    pos: AtomicU64,
    seq: AtomicU64,
    mark: AtomicU64,
}

impl Volume {
    /// Opens for reading and writing; reads the superblocks and writes nothing.
    pub fn open(media: impl Into<Media>) -> Result<Volume, VolumeError> {
        Volume::open_with(media.into(), Access::ReadWrite)
    }

    /// Opens for inspection: `checkpoint_reader` and `replay` work, calls that would write are refused.
    pub fn open_read_only(media: impl Into<Media>) -> Result<Volume, VolumeError> {
        Volume::open_with(media.into(), Access::ReadOnly)
    }

    /// The label of the volume on this medium, without opening it.
    pub fn label_on(disk: &dyn Disk) -> Result<Label, VolumeError> {
        Ok(Volume::identity_on(disk)?.0)
    }

    /// Label and note of the volume on this medium, both of one moment, without opening it. The note is empty if there is none.
    pub fn identity_on(disk: &dyn Disk) -> Result<(Label, Vec<u8>), VolumeError> {
        superblock::read(disk)?.best.map(|sb| (sb.label, sb.note)).ok_or(VolumeError::NoSuperblock)
    }

    /// Number of the two places that hold a superblock, or a log label, with a valid checksum.
    pub(crate) fn copies_on(disk: &dyn Disk) -> usize {
        let is_good = |place: u64| {
            let mut block = vec![0; SUPERBLOCK_BYTES];
            place + SUPERBLOCK_BYTES as u64 <= disk.size()
                && disk.read_at(&mut block, place).is_ok()
                && (superblock::counts(&block) || media::counts(&block))
        };
        PLACES.into_iter().filter(|p| is_good(*p)).count()
    }

    /// The uuid of the log's own medium; `None` if the log is on this one.
    pub fn log_on(disk: &dyn Disk) -> Result<Option<Uuid>, VolumeError> {
        let sb = superblock::read(disk)?.best.ok_or(VolumeError::NoSuperblock)?;
        Ok(sb.log_medium.map(|l| l.uuid))
    }

    fn open_with(media: Media, access: Access) -> Result<Volume, VolumeError> {
        let disk = media.main.clone();
        let found = superblock::read(&*disk)?;
        let sb = found.best.ok_or(VolumeError::NoSuperblock)?;
        sb.check_features(access == Access::ReadOnly)?;
        sb.check_fits(disk.size())?;
        let log_disk = media::log_of(&media, sb.label.uuid, sb.regions.log, sb.log_medium)?;
        let counts = Arc::new(Counts::default());
        let troubles = Arc::new(Troubles::default());
        let Regions { log, slots: [a, b], data } = &sb.regions;
        let slots = a.begin.min(b.begin)..a.range().end.max(b.range().end);
        let disk: Arc<dyn Disk> = Arc::new(Counted::new(disk, counts.clone(), troubles.clone()));
        let log_disk: Arc<dyn Disk> = if sb.log_medium.is_some() {
            counts.set_places(0..0, slots, data.range());
            Arc::new(Counted::of_log(log_disk, counts.clone(), troubles.clone()))
        } else {
            counts.set_places(log.range(), slots, data.range());
            disk.clone()
        };
        let tail = Tail {
            phase: Phase::Opened,
            incarnation: sb.incarnation,
            start: sb.log_start.pos,
            pos: sb.log_start.pos,
            seq: sb.log_start.seq.0,
            mark: sb.log_start.seq.0,
            prepared: sb.prepared.min(sb.regions.log.len()),
            page: Vec::new(),
            own: Entries::default(),
        };
        let volume = Volume {
            access,
            regions: sb.regions.clone(),
            // The log's uuid is folded in too: its ring may hold entries of an earlier volume whose main medium was formatted anew.
            tag: entry::tag_of(&sb.label.uuid) ^ sb.log_medium.map_or(0, |l| entry::tag_of(&l.uuid)),
            copies_good: found.copies_good,
            was_clean: sb.clean,
            commits: Mutex::new(()),
            slots: Mutex::new(()),
            tail: Mutex::new(tail),
            group: flush::Group::default(),
            flushed_seq: AtomicU64::new(sb.flushed_seq.0),
            flushed_pos: AtomicU64::new(0),
            sealed_seq: AtomicU64::new(sb.log_start.seq.0),
            read_end: Mutex::default(),
            cut_off: Mutex::default(),
            failed: OnceLock::new(),
            superblock: Mutex::new(sb),
            disk,
            log: log_disk,
            counts,
            troubles,
            seen: Seen::default(),
        };
        volume.publish(&volume.tail.lock());
        Ok(volume)
    }

    /// Allows appends from here on and returns the incarnation: the old one after a clean stop, else a new one. All entries
    /// that `replay` kept are flushed when this returns. Fails with `LogDamaged` if replay found that a flushed entry is
    /// unreadable.
    pub fn start(&self) -> Result<Incarnation, VolumeError> {
        let phase = self.tail.lock().phase;
        match phase {
            Phase::Replayed { lost: Some(lost), .. } => Err(VolumeError::LogDamaged(lost)),
            _ => self.start_accepting_loss(),
        }
    }

    /// As `start`, but cuts a damaged log at the damage and so abandons flushed entries. Only an operator decides that.
    pub fn start_accepting_loss(&self) -> Result<Incarnation, VolumeError> {
        self.check_writable()?;
        let (phase, pos, seq) = {
            let tail = self.tail.lock();
            (tail.phase, tail.pos, tail.seq)
        };
        let Phase::Replayed { cut, lost } = phase else {
            return Err(VolumeError::WrongOrder("start comes once, after replay"));
        };
        // 1. After a killed process, replayed entries may be in the page cache only: make them durable, so that they are flushed.
        self.flush_media()?;
        if self.superblock.lock().incarnation.0 >= u32::MAX - 1 {
            return Err(VolumeError::Malformed("its starts are used up; format it under a new uuid"));
        }
        // 2. disk-V2: record durably, before the first append, that no older entry behind the tail is valid.
        self.commit(|sb| {
            if !sb.clean || cut || lost.is_some() {
                sb.incarnation = Incarnation(sb.incarnation.0 + 1);
                sb.cut_pos = pos;
                sb.cut_incarnation = sb.incarnation;
            }
            sb.clean = false;
            sb.flushed_seq = Seq(seq);
            sb.incompat |= superblock::MARKS_WITHOUT_SEQ;
            if sb.label.kind == Kind::Mdt {
                sb.incompat |= superblock::ENTRIES_OF_OPS;
            }
        })?;
        // 3. Open for appends.
        let page = self.read_tail_page(pos)?;
        let mut tail = self.tail.lock();
        assert_eq!(tail.pos, pos, "the log's end does not move before the start");
        assert_eq!(
            page.len() as u64,
            pos % append::PAGE_BYTES,
            "the tail's page is known up to the log's end"
        );
        tail.incarnation = self.superblock.lock().incarnation;
        tail.mark = seq;
        // Bytes behind the tail may be stale; on the first lap everything below the tail has been written.
        tail.prepared = tail.prepared.max(pos).min(self.regions.log.len());
        tail.page = page;
        tail.phase = Phase::Started;
        self.publish(&tail);
        self.flushed_seq.store(seq, Ordering::Release);
        self.flushed_pos.store(pos, Ordering::Release);
        self.sealed_seq.store(seq, Ordering::Release);
        Ok(tail.incarnation)
    }

    /// Begins another life of a started volume, whose incarnation is above `above` and above the present one: its owner was a
    /// standby of a mirror, and serves clients from now on. Flushes the log. The caller lets no other thread append meanwhile.
    pub fn begin_life(&self, above: Incarnation) -> Result<Incarnation, VolumeError> {
        self.check_started()?;
        // disk-V2: all before the new cut is durable, so that the cut before it is not needed any more.
        self.flush()?;
        let pos = self.position().pos;
        let next = above.max(self.incarnation());
        if next.0 >= u32::MAX - 1 {
            return Err(VolumeError::Malformed("its starts are used up; format it under a new uuid"));
        }
        self.commit(|sb| {
            sb.incarnation = Incarnation(next.0 + 1);
            sb.cut_pos = pos;
            sb.cut_incarnation = sb.incarnation;
        })?;
        let mut tail = self.tail.lock();
        assert_eq!(tail.pos, pos, "disk-V2: no entry comes between the old life and the new one");
        tail.incarnation = self.superblock.lock().incarnation;
        Ok(tail.incarnation)
    }

    /// Flushes, sets the clean flag and closes: later appends are refused, and the next start keeps the incarnation.
    pub fn close_clean(&self) -> Result<(), VolumeError> {
        let _slots = self.slots.lock();
        self.check_started()?;
        {
            let mut tail = self.tail.lock();
            tail.phase = Phase::Closed;
            self.publish(&tail);
        }
        self.flush_now()?;
        self.commit(|sb| sb.clean = true)
    }

    pub fn label(&self) -> Label {
        self.superblock.lock().label.clone()
    }

    /// Rewrites the label, flushed on return. Kind and uuid cannot change: log entries are tied to them.
    pub fn set_label(&self, label: Label) -> Result<(), VolumeError> {
        let old = self.label();
        if label.kind != old.kind || label.uuid != old.uuid {
            return Err(VolumeError::BadFormat(
                "kind and uuid of a volume cannot change; format it anew".into(),
            ));
        }
        format::check_label(&label)?;
        self.commit(|sb| sb.label = label)
    }

    /// The bytes that the owner keeps beside the log; empty if there are none.
    pub fn note(&self) -> Vec<u8> {
        self.superblock.lock().note.clone()
    }

    /// Replaces the note, durably: a power loss leaves the old or the new one. Allowed in each step of the volume's life.
    pub fn set_note(&self, note: &[u8]) -> Result<(), VolumeError> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(VolumeError::TooLarge { len: note.len(), max: NOTE_BYTES_MAX });
        }
        self.commit(|sb| {
            sb.note = note.to_vec();
            sb.incompat &= !superblock::NOTE;
            sb.incompat |= if note.is_empty() { 0 } else { superblock::NOTE };
        })
    }

    pub fn layout(&self) -> Layout {
        Layout { log_medium: self.superblock.lock().log_medium.map(|l| l.uuid), ..self.regions.layout() }
    }
    pub fn data_region(&self) -> Range<u64> {
        self.regions.data.range()
    }
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }
    /// Counts of all requests to the medium since it was opened, those through `disk` included.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
    /// Whether the last stop before this opening was clean.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }
    /// Valid entries that the start left out of the log; worth a warning.
    pub fn cut_off(&self) -> CutOff {
        *self.cut_off.lock()
    }
    /// The size of the log's own medium; 0 if it has none.
    pub fn log_medium_bytes(&self) -> u64 {
        if Arc::ptr_eq(&self.disk, &self.log) { 0 } else { self.log.size() }
    }
    /// Number of superblock copies that were good when the volume was opened, of two; 1 is worth a warning.
    pub fn superblock_copies_good(&self) -> u8 {
        self.copies_good
    }
    /// The incarnation on the medium; `start` may raise it.
    pub fn incarnation(&self) -> Incarnation {
        self.superblock.lock().incarnation
    }
    /// The last entry's seq; before `replay`, the checkpoint's.
    pub fn last_seq(&self) -> Seq {
        Seq(self.seen.seq.load(Ordering::Acquire))
    }
    /// Entries up to here are durable, and so is everything written to the medium before they were appended.
    pub fn flushed_seq(&self) -> Seq {
        Seq(self.flushed_seq.load(Ordering::Acquire))
    }
    /// True if everything in the log is durable, marks too.
    pub fn is_all_flushed(&self) -> bool {
        self.flushed_pos.load(Ordering::Acquire) >= self.seen.pos.load(Ordering::Acquire)
    }
    /// After a crash, recovery knows that entries up to here were flushed, so the space that they superseded may be reused (disk-O1,
    /// disk-O2).
    pub fn sealed_seq(&self) -> Seq {
        Seq(self.sealed_seq.load(Ordering::Acquire))
    }
    /// The log's tail now. For a checkpoint, call it under the lock that keeps state and log in agreement.
    pub fn position(&self) -> LogPoint {
        let tail = self.tail.lock();
        LogPoint { seq: Seq(tail.seq), pos: tail.pos }
    }
    /// Bytes of the ring in use.
    pub fn log_used(&self) -> u64 {
        // Both only rise: loading the start first keeps it at or below the end. If both rise between the two loads, the difference is more
        // than was ever in use.
        let start = self.seen.start.load(Ordering::Acquire);
        (self.seen.pos.load(Ordering::Acquire) - start).min(self.regions.log.len())
    }
    /// Bytes of the ring that entries may take: one page stays free. A log of an earlier release may have used that page too.
    pub fn log_capacity(&self) -> u64 {
        self.regions.log.len() - append::PAGE_BYTES
    }
    /// The reason of the volume's failure, if it has failed.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(|failed| failed.why.as_str())
    }
    /// The reason for which the other member of a mirror should take over, if there is one.
    pub fn trouble(&self) -> Option<Trouble> {
        match self.failed.get() {
            Some(Failure { why, is_full: true }) => {
                Some(Trouble::Refused { why: why.clone(), is_full: true })
            }
            Some(Failure { why, is_full: false }) => Some(Trouble::Failed(why.clone())),
            None => self.troubles.now(),
        }
    }
    /// Where the volume's owner notes troubles that the volume does not see.
    pub fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// Writes the changed superblock to both places one after the other, each flushed, so that a single damaged copy loses nothing.
    fn commit(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), VolumeError> {
        self.commit_rising(change, |was, sb| {
            assert!(sb.log_start.pos >= was.log_start.pos, "disk-V4: the log's start only rises");
            assert!(sb.log_start.seq >= was.log_start.seq, "disk-V4: the log's start only rises");
        })
    }

    /// As `commit`, with the caller's own check of the change: `check(before, after)`.
    fn commit_rising(
        &self,
        change: impl FnOnce(&mut Superblock),
        check: impl FnOnce(&Superblock, &Superblock),
    ) -> Result<(), VolumeError> {
        self.check_writable()?;
        let _turn = self.commits.lock();
        let mut sb = self.superblock.lock().clone();
        {
            let tail = self.tail.lock();
            sb.prepared = tail.prepared;
            // Before the start the log may still be cut below what was flushed once.
            if matches!(tail.phase, Phase::Started | Phase::Closed) {
                sb.flushed_seq = self.flushed_seq();
                assert!(sb.flushed_seq.0 <= tail.seq, "disk-V3: no entry is flushed before it is written");
            }
        }
        let was = sb.clone();
        change(&mut sb);
        assert_eq!(sb.regions, was.regions, "the regions of a volume never change");
        assert_eq!(sb.label.uuid, was.label.uuid, "the uuid of a volume never changes");
        assert!(sb.incarnation >= was.incarnation, "disk-V2: the incarnation only rises");
        check(&was, &sb);
        let mut before = None;
        for _ in 0..2 {
            sb.generation += 1;
            let at = superblock::place_of(sb.generation);
            assert_ne!(before.replace(at), Some(at), "the two copies have a place each");
            debug_assert!(sb.reads_back(), "a superblock that is written can be read");
            self.disk.write_at(&sb.encode(), at).map_err(|e| self.fail_write("superblock write", e))?;
            self.disk.flush().map_err(|e| self.fail("superblock flush", e))?;
        }
        // disk-V3: the superblock's flushed_seq is a durable flush mark too. (After `reset` the owner has no entry yet.)
        self.sealed_seq.fetch_max(sb.flushed_seq.0, Ordering::AcqRel);
        *self.superblock.lock() = sb;
        Ok(())
    }

    /// disk-V6: fails the volume if a medium has hung for too long, even if no call of the volume waits for it: an abandoned write may
    /// still be carried out at any time. The owner calls this regularly.
    pub fn check_media(&self) -> Result<(), VolumeError> {
        self.check_alive()?;
        match self.disk.lost().or_else(|| self.log.lost()) {
            Some(why) => Err(self.fail("a medium", io::Error::new(io::ErrorKind::TimedOut, why))),
            None => Ok(()),
        }
    }

    /// Copies the tail's numbers to `seen`. Call it under the tail lock after each change of them.
    fn publish(&self, tail: &Tail) {
        assert!(tail.start <= tail.pos, "the log's start is not behind its end");
        assert!(tail.pos - tail.start <= self.regions.log.len(), "disk-V4: the live log fits the ring");
        assert!(tail.mark <= tail.seq, "disk-V3: a flush mark names an entry that was written");
        let Seen { is_started, start, pos, seq, mark } = &self.seen;
        is_started.store(tail.phase == Phase::Started, Ordering::Release);
        // A flush loads the position first, and then the numbers of all entries before it.
        seq.store(tail.seq, Ordering::Release);
        mark.store(tail.mark, Ordering::Release);
        pos.store(tail.pos, Ordering::Release);
        start.store(tail.start, Ordering::Release);
    }

    /// As `fail`, of a write: all that was acknowledged before is where it was.
    fn fail_write(&self, what: &str, e: io::Error) -> VolumeError {
        let is_full = crate::is_full(&e);
        self.fail_as(what, e, is_full)
    }

    fn fail(&self, what: &str, e: io::Error) -> VolumeError {
        self.fail_as(what, e, false)
    }

    /// disk-V6: records the first failure; it stays.
    fn fail_as(&self, what: &str, e: io::Error, is_full: bool) -> VolumeError {
        // Operations under way may still be carried out late: only a later process can know what is on the medium.
        let is_hang = e.kind() == io::ErrorKind::TimedOut;
        let advice = if is_hang {
            "; see the kernel's log, and restart the target once the device answers"
        } else {
            ""
        };
        let why = format!("{what} failed: {e}{advice}");
        VolumeError::Failed(self.failed.get_or_init(|| Failure { why, is_full }).why.clone())
    }

    fn check_alive(&self) -> Result<(), VolumeError> {
        self.failure().map_or(Ok(()), |why| Err(VolumeError::Failed(why.into())))
    }

    fn check_writable(&self) -> Result<(), VolumeError> {
        match self.access {
            Access::ReadOnly => Err(VolumeError::ReadOnly),
            Access::ReadWrite => self.check_alive(),
        }
    }

    fn check_started(&self) -> Result<(), VolumeError> {
        self.check_writable()?;
        match self.seen.is_started.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.tail.lock().check_started(),
        }
    }
}

impl Tail {
    fn check_started(&self) -> Result<(), VolumeError> {
        match self.phase {
            Phase::Started => Ok(()),
            Phase::Closed => Err(VolumeError::WrongOrder("the volume was closed")),
            _ => Err(VolumeError::WrongOrder("the volume was not started")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
