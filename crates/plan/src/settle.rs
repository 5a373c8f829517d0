//! A client's state of a striped file that the MDT does not have yet: size, times, written bits, and the log entries that hold the
//! unflushed bytes.
//!
//! plan-O3: every value that the MDT gets was in a `Snapshot` taken before the flush of every mark in it.
//! plan-S2: changes after the snapshot stay pending for the next update.  plan-S3: a mark goes only when a flush covered it.
//! plan-S4: a truncate voids earlier snapshots: settled late, their size would bring cut bytes back as zeros.

use types::{Incarnation, MirrorId, ObjectId, PAGE_SIZE, Seq, TargetId, Time};
use wire::meta::WrittenBits;

use crate::size::{has_bit, set_bit};

/// The highest log entry of a mirror that holds bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub mirror: MirrorId,
    pub at: At,
    pub seq: Seq,
}

/// One life of a member of a mirror. Sequence numbers of different lives do not compare: a restarted target may use a number again, and
/// another member counts its own incarnations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct At {
    pub target: TargetId,
    pub incarnation: Incarnation,
}

impl Mark {
    /// True if the mirror's present life and its flushed entries cover this mark.
    pub fn is_covered(&self, at: At, flushed: Seq) -> bool {
        self.at == at && self.seq <= flushed
    }
}

/// The state before a flush, to be sent to the MDT after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub size: u64,
    pub blocks: u64,
    pub mtime: Time,
    pub written: Vec<WrittenBits>,
    /// Log entries that must be flushed before the MDT gets any of the above.
    pub marks: Vec<Mark>,
    change: u64,
    data_change: u64,
    cuts: u64,
    /// Of `blocks`: what this client's writes added, and the MDT was not told.
    pub added: u64,
}

/// A file's state at this client.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    pub size: u64,
    /// 512-byte units.
    pub blocks: u64,
    /// Of these: what this client's writes added since it took the MDT's value or told it.
    added: u64,
    pub mtime: Time,
    /// When bytes were last written. Unlike `mtime`, a user cannot set it.
    pub written_at: Time,
    written: Vec<WrittenBits>,
    marks: Vec<Mark>,
    /// Counts of changes: all that the MDT should know, and those that readers of the bytes need (size, written bits).
    change: u64,
    data_change: u64,
    told: u64,
    data_told: u64,
    /// How often a truncate set the size, as opposed to a write that extended it.
    cuts: u64,
}

impl Progress {
    /// Begins with the values that the MDT reports.
    pub fn new(size: u64, blocks: u64, mtime: Time) -> Progress {
        Progress { size, blocks, mtime, ..Progress::default() }
    }

    /// Notes that an object has acknowledged bytes. `known`: the MDT has the object's written bit.
    pub fn wrote(&mut self, object: ObjectId, known: bool, mark: Mark) {
        self.change += 1;
        if !known && !has_bit(&self.written, object.component, object.stripe) {
            set_bit(&mut self.written, object.component, object.stripe);
            self.data_change += 1;
        }
        match self.marks.iter_mut().find(|m| m.mirror == mark.mirror) {
            Some(m) if m.at == mark.at => m.seq = m.seq.max(mark.seq),
            Some(m) => *m = mark,
            None => self.marks.push(mark),
        }
        assert!(
            self.marks.iter().any(|m| m.at == mark.at && m.seq >= mark.seq && m.mirror == mark.mirror),
            "plan-S3: a mark covers each acknowledged entry until it is flushed"
        );
        debug_assert!(
            self.marks.iter().all(|m| self.marks.iter().filter(|n| n.mirror == m.mirror).count() == 1),
            "a mirror has one mark: its highest entry"
        );
    }

    /// Adds pages that had no space before. (The repeat of a lost answer does not report them; the settle at close counts them.)
    pub fn took(&mut self, pages: u64) {
        let blocks = pages * (PAGE_SIZE as u64 / 512);
        self.blocks += blocks;
        self.added += blocks;
    }

    /// Notes that the file's bytes up to `end` were acknowledged at `now`.
    pub fn reached(&mut self, end: u64, now: Time) {
        self.change += 1;
        self.mtime = now;
        self.written_at = now;
        if end > self.size {
            self.size = end;
            self.data_change += 1;
        }
    }

    /// Notes that space was allocated or freed, or bytes became zeros: the file now takes `blocks`.
    pub fn changed(&mut self, blocks: u64, now: Time) {
        self.change += 1;
        self.blocks = blocks;
        self.mtime = now;
        self.written_at = now;
    }

    /// Takes an mtime that a user set.
    pub fn set_mtime(&mut self, mtime: Time) {
        self.mtime = mtime
    }

    /// Takes the size that a truncate set. The MDT has it already, or the truncating caller settles it.
    pub fn set_size(&mut self, size: u64, blocks: u64, mtime: Time) {
        (self.size, self.blocks, self.mtime) = (size, blocks, mtime);
        self.cuts += 1;
    }

    /// Takes the MDT's values, in a file that other clients change too. Own unflushed bytes stay pending. A snapshot with a larger size
    /// than the file has now is void (plan-S4).
    pub fn adopt(&mut self, size: u64, blocks: u64, mtime: Time) {
        self.cuts += (size < self.size) as u64;
        (self.size, self.blocks, self.mtime, self.added) = (size, blocks, mtime, 0);
    }

    /// Takes the MDT's values of a file that others wrote beside this client, and did not cut.
    pub fn join(&mut self, size: u64, blocks: u64, mtime: Time) {
        (self.size, self.mtime) = (self.size.max(size), self.mtime.max(mtime));
        self.blocks = blocks + self.added;
    }

    /// Blocks that this client's writes added, and the MDT was not told.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Starts over with a new generation of empty objects: pending state of the old ones is dropped.
    pub fn start_anew(&mut self, size: u64, blocks: u64, mtime: Time) {
        *self = Progress { cuts: self.cuts + 1, ..Progress::new(size, blocks, mtime) }
    }

    /// True if this client wrote the object and the MDT may not know.
    pub fn has_written(&self, object: ObjectId) -> bool {
        has_bit(&self.written, object.component, object.stripe)
    }

    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// True if the MDT lacks an update: of any kind, or of the kind that readers of the bytes need.
    pub fn is_untold(&self) -> bool {
        self.change != self.told
    }
    pub fn is_data_untold(&self) -> bool {
        self.data_change != self.data_told
    }
    /// True if this client changed the file since it took the MDT's values.
    pub fn is_changed(&self) -> bool {
        self.change > 0
    }
    /// True if there is nothing to flush and nothing to settle.
    pub fn is_clean(&self) -> bool {
        !self.is_untold() && self.marks.is_empty()
    }

    /// Takes a snapshot. plan-O3: the caller then flushes its marks, and only then sends it to the MDT.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            size: self.size,
            blocks: self.blocks,
            mtime: self.mtime,
            written: self.written.clone(),
            marks: self.marks.clone(),
            change: self.change,
            data_change: self.data_change,
            cuts: self.cuts,
            added: self.added,
        }
    }

    /// True if the file did not change since the snapshot.
    pub fn is_still(&self, snapshot: &Snapshot) -> bool {
        self.change == snapshot.change
    }

    /// plan-S4: true if no truncate set the size since the snapshot.
    pub fn is_valid(&self, snapshot: &Snapshot) -> bool {
        self.cuts == snapshot.cuts
    }

    /// Drops the snapshot's marks: they are flushed.
    pub fn flushed(&mut self, snapshot: &Snapshot) {
        // plan-S3: a mark that a later write raised since the snapshot stays.
        self.marks.retain(|m| !snapshot.marks.contains(m));
        debug_assert!(
            snapshot.marks.iter().all(|m| !self.marks.contains(m)),
            "plan-S3: a flushed mark is not flushed again"
        );
    }

    /// Notes that the MDT has taken the snapshot.
    pub fn was_told(&mut self, snapshot: &Snapshot) {
        debug_assert!(snapshot.change <= self.change, "plan-S2: a snapshot is not newer than its file");
        self.told = self.told.max(snapshot.change);
        self.data_told = self.data_told.max(snapshot.data_change);
        self.added = self.added.saturating_sub(snapshot.added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Fid, Generation};

    fn object(stripe: u16) -> ObjectId {
        ObjectId { fid: Fid(9), generation: Generation(1), component: 0, stripe, snapshot: 0 }
    }
    fn life(target: u32, incarnation: u32) -> At {
        At { target: TargetId(target), incarnation: Incarnation(incarnation) }
    }
    fn mark(mirror: u32, incarnation: u32, seq: u64) -> Mark {
        Mark { mirror: MirrorId(mirror), at: life(1, incarnation), seq: Seq(seq) }
    }
    fn at(sec: i64) -> Time {
        Time::new(sec, 0)
    }

    #[test]
    fn what_changes_after_the_snapshot_stays_untold() {
        let mut p = Progress::new(0, 0, at(0));
        p.wrote(object(0), false, mark(1, 1, 10));
        p.reached(100, at(1));
        let first = p.snapshot();
        p.wrote(object(1), false, mark(2, 1, 7));
        p.wrote(object(0), false, mark(1, 1, 11));
        p.reached(200, at(2));
        p.flushed(&first);
        p.was_told(&first);
        assert_eq!((first.size, first.mtime, first.marks.as_slice()), (100, at(1), &[mark(1, 1, 10)][..]));
        assert!(!has_bit(&first.written, 0, 1));
        assert!(p.is_untold() && p.is_data_untold() && !p.is_still(&first));
        assert_eq!(p.marks(), [mark(1, 1, 11), mark(2, 1, 7)]);
        let second = p.snapshot();
        p.flushed(&second);
        p.was_told(&second);
        assert!(p.is_clean() && !p.is_data_untold() && p.is_still(&second));
    }

    #[test]
    fn an_overwrite_changes_only_the_time() {
        let mut p = Progress::new(4096, 8, at(0));
        p.wrote(object(0), true, mark(1, 1, 3));
        p.reached(4096, at(9));
        assert!(p.is_untold() && !p.is_data_untold());
        assert_eq!((p.size, p.blocks, p.mtime), (4096, 8, at(9)));
    }

    /// Several clients write, and each tells what it added.
    #[test]
    fn blocks_are_told_as_what_was_added_since() {
        let mut p = Progress::new(4096, 8, at(0));
        p.took(2);
        let first = p.snapshot();
        p.took(1);
        assert_eq!((first.added, p.added(), p.blocks), (16, 24, 32));
        p.was_told(&first);
        assert_eq!(p.added(), 8);
        p.reached(9000, at(2));
        p.join(8000, 100, at(3));
        assert_eq!((p.size, p.blocks, p.mtime), (9000, 108, at(3)));
        p.adopt(20_000, 200, at(4));
        assert_eq!((p.size, p.blocks, p.added()), (20_000, 200, 0));
    }

    #[test]
    fn marks_of_another_incarnation_or_member_are_never_covered() {
        let m = mark(1, 4, 10);
        for (at, flushed, covered) in [
            (life(1, 4), 10, true),
            (life(1, 4), 9, false),
            (life(1, 5), 10, false),
            (life(1, 5), 999, false),
            (life(2, 4), 999, false),
        ] {
            assert_eq!(m.is_covered(at, Seq(flushed)), covered);
        }
        let mut p = Progress::default();
        p.wrote(object(0), false, mark(1, 1, 50));
        p.wrote(object(0), false, mark(1, 2, 3));
        assert_eq!(p.marks(), [mark(1, 2, 3)]);
    }

    #[test]
    fn new_objects_forget_what_the_old_ones_owed() {
        let mut p = Progress::default();
        p.wrote(object(0), false, mark(1, 1, 50));
        p.reached(1 << 20, at(1));
        let before = p.snapshot();
        p.start_anew(0, 0, at(2));
        assert!(!p.is_valid(&before) && p.is_valid(&p.snapshot()));
        p.set_size(0, 0, at(2));
        assert!(!p.is_valid(&before));
        assert!(p.is_clean() && p.size == 0 && !p.has_written(object(0)));
    }
}
