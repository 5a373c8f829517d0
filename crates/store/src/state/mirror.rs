//! The mirror as the engine sees it: numbers of entries in the mirror, the other member, and the part that this member plays.
//!
//! An entry has a log seq, which is private to the volume, and a *mirror seq* (decision 0069). Damage, scrub and destaging take log seqs
//! only, so two members with the same entries have them under the same mirror seqs. Replies, slots and flush marks name mirror seqs.
//!
//! store-RP1: the primary logs a public entry, commits it at the other member, and only then applies and answers it.
//! store-RP2: after a fault of that commit nothing is logged, applied or checkpointed any more; the next start decides.
//! store-RP3: the flushed seq that is told is flushed by both members, and it never falls.
//! store-RP4: a standby takes public entries from its mirror only, and without a gap.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::volume::VolumeError;
use parking_lot::{Mutex, RwLock};
use types::{Code, Epoch, Fault, ObjectId, Seq};

use crate::records::error::StoreError;
use crate::records::record::At;
use crate::records::shipped::{Place, StageId};
use crate::state::engine::Engine;
use crate::state::under_way::UnderWay;

/// The other member, as the engine sees it that orders. Same contract as `pair::Companion`, which daemons adapt: the store lies below
/// that crate.
pub trait Companion: Send + Sync {
    /// The place of the next entry of `count` records. A refusal leaves everything as it was.
    fn order(&self, count: u32) -> Result<Place, Fault>;
    /// Returns once each member that must have the entry has it. A fault ends the engine (store-RP2).
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault>;
    /// The last seq that the other member has made durable; the highest number if there is none that must.
    fn flushed(&self) -> Seq;
    /// Has the other member make its entries up to `want` durable.
    fn flush(&self, want: Seq) -> Result<(), Fault>;
    /// Gives pages to the other member ahead of their entry. `None`: they travel in the entry.
    fn stage(&self, pages: &[u8]) -> Option<StageId>;
    /// As `stage`. `meanwhile` may be called once, while the pages are on their way.
    fn stage_beside(&self, pages: &[u8], _meanwhile: &mut dyn FnMut()) -> Option<StageId> {
        self.stage(pages)
    }
}

/// The pages of a record on their way to the other member.
#[derive(Debug)]
pub enum Carried {
    Staged(StageId),
    /// In the order of the record.
    Pages(Vec<u8>),
    /// Staged pages of a fill, whose record has no CRCs.
    StagedFill(StageId, Vec<u32>),
    /// As `Pages`. `lost`: pages that could not be read.
    Read {
        bytes: Vec<u8>,
        lost: Vec<bool>,
    },
}

/// Why a batch was not carried out.
#[derive(Debug)]
pub(crate) enum BatchError {
    Volume(VolumeError),
    /// Nothing was logged.
    Refused(Fault),
    /// The entry may be at the other member.
    Ended(String),
}

impl BatchError {
    pub fn for_another(&self) -> BatchError {
        match self {
            BatchError::Volume(e) => BatchError::Volume(e.for_another()),
            BatchError::Refused(fault) => BatchError::Refused(fault.clone()),
            BatchError::Ended(why) => BatchError::Ended(why.clone()),
        }
    }
}

impl From<VolumeError> for BatchError {
    fn from(e: VolumeError) -> BatchError {
        BatchError::Volume(e)
    }
}

impl From<BatchError> for StoreError {
    fn from(e: BatchError) -> StoreError {
        match e {
            BatchError::Volume(e) => e.into(),
            BatchError::Refused(fault) => StoreError::Refused(fault),
            BatchError::Ended(why) => StoreError::Ended(why),
        }
    }
}

/// At log entry `log` the last public entry has mirror seq `seq`. From there to the next mark each entry is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    log: u64,
    seq: u64,
}

#[derive(Debug, Default)]
struct Marks(VecDeque<Mark>);

impl Marks {
    /// Entries from log seq `log` on, with mirror seqs from `seq` on; `seq` is the last one before if the entry is private.
    fn note(&mut self, log: u64, seq: u64) {
        if self.at(log) != Some(seq) {
            self.0.push_back(Mark { log, seq });
        }
    }

    /// `None`: before the first mark.
    fn at(&self, log: u64) -> Option<u64> {
        let after = self.0.partition_point(|mark| mark.log <= log);
        let mark = self.0.get(after.checked_sub(1)?)?;
        Some(mark.seq + (log - mark.log))
    }

    /// The last log seq at which `seq` is the last mirror seq.
    fn log_of(&self, seq: u64) -> u64 {
        let after = self.0.partition_point(|mark| mark.seq <= seq);
        after.checked_sub(1).and_then(|i| self.0.get(i)).map_or(0, |mark| mark.log + (seq - mark.seq))
    }

    /// Forgets marks that no entry from `log` on needs.
    fn drop_before(&mut self, log: u64) {
        while self.0.get(1).is_some_and(|next| next.log <= log) {
            self.0.pop_front();
        }
    }
}

#[derive(Default)]
pub struct Mirror {
    /// Mirror seq of the last public entry that both members have. It is applied, or about to be.
    end: AtomicU64,
    applied: AtomicU64,
    /// The replay has passed the checkpoint.
    is_past_checkpoint: AtomicBool,
    marks: RwLock<Marks>,
    /// Lines of the log since its checkpoint, each with its first mirror seq.
    lines: Mutex<Vec<(Epoch, Seq)>>,
    /// Entries up to here were written by a release without mirror seqs, and are not shipped.
    unshipped: AtomicU64,
    /// The log seq before the log's first entry.
    log_begin: AtomicU64,
    /// The flushed seq that was told last.
    told: AtomicU64,
    has_companion: AtomicBool,
    companion: RwLock<Option<Arc<dyn Companion>>>,
    is_standby: AtomicBool,
    pub under_way: UnderWay,
    /// Why this life has ended (store-RP2).
    ended: OnceLock<String>,
}

impl Mirror {
    pub fn end(&self) -> Seq {
        Seq(self.end.load(Ordering::Acquire))
    }

    /// One load on an unmirrored OST.
    pub fn companion(&self) -> Option<Arc<dyn Companion>> {
        match self.has_companion.load(Ordering::Acquire) {
            true => self.companion.read().clone(),
            false => None,
        }
    }

    pub fn set_companion(&self, companion: Option<Arc<dyn Companion>>) {
        let mut now = self.companion.write();
        self.has_companion.store(companion.is_some(), Ordering::Release);
        *now = companion;
    }

    pub fn is_standby(&self) -> bool {
        self.is_standby.load(Ordering::Acquire)
    }
    pub fn set_standby(&self, is_standby: bool) {
        self.is_standby.store(is_standby, Ordering::Release);
    }

    pub fn end_life(&self, why: String) -> String {
        self.ended.get_or_init(|| why).clone()
    }
    pub fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }
    pub fn check_alive(&self) -> Result<(), BatchError> {
        self.ended.get().map_or(Ok(()), |why| Err(BatchError::Ended(why.clone())))
    }

    /// Every public entry up to here is applied.
    pub fn applied(&self) -> Seq {
        Seq(self.applied.load(Ordering::Acquire))
    }
    pub fn note_applied(&self) {
        self.applied.store(self.end().0, Ordering::Release);
    }

    /// Sets the end of a checkpoint that was loaded.
    pub fn begin(&self, at: At) {
        self.end.store(at.seq.0, Ordering::Release);
        *self.lines.lock() = vec![(at.line, at.seq)];
    }

    /// The log goes on behind `at`, whatever it had before; its last entry has log seq `log`.
    pub fn begin_anew(&self, at: At, log: Seq) {
        // Numbers may fall: nothing of before is told by a standby.
        let mut marks = self.marks.write();
        *self.lines.lock() = vec![(at.line, at.seq)];
        *marks = Marks::default();
        marks.note(log.0, at.seq.0);
        self.told.store(0, Ordering::Release);
        self.end.store(at.seq.0, Ordering::Release);
        self.applied.store(at.seq.0, Ordering::Release);
        self.unshipped.store(0, Ordering::Release);
    }

    /// The replay passes the checkpoint, whose last entry has log seq `log`.
    pub fn pass_checkpoint(&self, log: Seq) {
        if !self.is_past_checkpoint.swap(true, Ordering::AcqRel) {
            self.marks.write().note(log.0, self.end().0);
        }
    }

    pub fn set_unshipped(&self, upto: Seq) {
        self.unshipped.fetch_max(upto.0, Ordering::AcqRel);
    }

    /// Notes an entry before the checkpoint that the log still has, for `first`.
    pub fn note_old(&self, log: Seq, at: At) {
        if at.seq.0 > 0 {
            let mut marks = self.marks.write();
            if marks.0.is_empty() {
                marks.note(log.0.saturating_sub(1), at.seq.0 - 1);
            }
            marks.note(log.0, at.seq.0);
        }
    }

    /// Notes `count` public entries from log seq `log` on, before they are applied.
    pub fn note_public(&self, log: Seq, at: At, count: u64) {
        self.marks.write().note(log.0, at.seq.0);
        let mut lines = self.lines.lock();
        if lines.last().is_none_or(|(line, _)| *line != at.line) {
            lines.push((at.line, at.seq));
        }
        drop(lines);
        self.end.store(at.seq.0 + count - 1, Ordering::Release);
    }

    /// Notes an entry that has no mirror seq.
    pub fn note_private(&self, log: Seq) {
        let end = self.end().0;
        self.marks.write().note(log.0, end);
    }

    /// The log begins behind this entry.
    pub fn set_log_begin(&self, log: Seq) {
        self.log_begin.store(log.0, Ordering::Release);
        self.marks.write().drop_before(log.0);
    }

    /// The mirror seq of the last public entry up to log seq `log`.
    pub fn at(&self, log: Seq) -> Seq {
        // In this order: an entry whose mark is missing is behind the end too.
        let end = self.end();
        let marks = self.marks.read();
        Seq(marks.at(log.0).map_or(0, |seq| seq.min(end.0)))
    }

    /// The log seq behind which the entries after mirror seq `seq` lie.
    pub fn log_of(&self, seq: Seq) -> Seq {
        Seq(self.marks.read().log_of(seq.0))
    }

    /// Place of the last entry.
    pub fn at_end(&self) -> At {
        let line = self.lines.lock().last().map_or(Epoch(0), |(line, _)| *line);
        At { line, seq: self.end() }
    }

    pub fn lines(&self) -> Vec<(Epoch, Seq)> {
        self.lines.lock().clone()
    }

    /// The oldest mirror seq that the log still has. One behind the end if it has none.
    pub fn first(&self) -> Seq {
        let begin = self.log_begin.load(Ordering::Acquire);
        let marks = self.marks.read();
        let before = marks.at(begin).or(marks.0.front().map(|mark| mark.seq)).unwrap_or(0);
        let unshipped = self.unshipped.load(Ordering::Acquire);
        Seq(before.max(unshipped) + 1)
    }
}

/// The message for a place that does not follow the log.
pub(crate) fn gap(place: Place, end: Seq) -> String {
    let Place { line, first, last } = place;
    format!("an entry with mirror seqs {first} to {last} of line {line} does not follow {end}")
}

impl Engine {
    /// Mirrors later changes; `None`: no longer. The caller has both members hold the same entries.
    pub fn set_companion(&self, companion: Option<Arc<dyn Companion>>) {
        // No batch is between its order and its commit.
        let _tail = self.tail.still();
        self.mirror.set_companion(companion);
    }

    /// store-RP4: refuses changes by requests from here on.
    pub fn stand_by(&self) {
        let _tail = self.tail.still();
        self.mirror.set_standby(true);
    }

    /// store-RP7: to be called before a request reads the object. False: an entry of it is under way for long.
    pub fn await_entries(&self, object: &ObjectId) -> bool {
        self.mirror.under_way.wait_for(object)
    }

    /// Lines of the log since its last checkpoint at the start, each with its first mirror seq. The first is of the checkpoint itself: its
    /// seq is the last one that the checkpoint has.
    pub fn lines(&self) -> Vec<(Epoch, Seq)> {
        self.mirror.lines()
    }

    /// The oldest mirror seq that `entries` can give; one behind the end if the log has none.
    pub fn first_seq(&self) -> Seq {
        self.mirror.first()
    }

    /// Flushes this member only. Returns the last mirror seq that it has made durable.
    pub fn flush_own(&self) -> Result<Seq, StoreError> {
        self.vol.flush()?;
        self.reclaim_now();
        Ok(self.own_flushed())
    }

    pub(crate) fn own_flushed(&self) -> Seq {
        self.mirror.at(self.vol.flushed_seq())
    }

    /// store-RP3.
    pub(crate) fn told_flushed(&self) -> Seq {
        let own = self.own_flushed();
        let both = self.mirror.companion().map_or(own, |other| own.min(other.flushed()));
        if self.mirror.told.load(Ordering::Acquire) < both.0 {
            self.mirror.told.fetch_max(both.0, Ordering::AcqRel);
        }
        Seq(self.mirror.told.load(Ordering::Acquire))
    }

    /// Has the other member flush what this one has flushed.
    pub(crate) fn flush_other(&self, want: Seq) -> Result<Seq, StoreError> {
        if let Some(other) = self.mirror.companion() {
            other.flush(want).map_err(StoreError::Refused)?;
        }
        Ok(self.told_flushed())
    }

    /// Whether bytes of changes are kept for the other member.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.mirror.has_companion.load(Ordering::Acquire)
    }

    /// The place of the next public entries of a batch. store-RP4: a standby gives none.
    pub(crate) fn next_place(
        &self,
        companion: Option<&Arc<dyn Companion>>,
        count: u32,
    ) -> Result<Place, BatchError> {
        let end = self.mirror.end();
        if self.mirror.is_standby() {
            let what = "this member of the mirror does not serve; ask for the map";
            return Err(BatchError::Refused(Fault::new(Code::Moved, what)));
        }
        let Some(companion) = companion else {
            let line = Epoch(self.epoch.load(Ordering::Relaxed));
            return Ok(Place { line, first: Seq(end.0 + 1), last: Seq(end.0 + u64::from(count)) });
        };
        let place = companion.order(count).map_err(BatchError::Refused)?;
        let follows = place.first.0 == end.0 + 1 && place.last.0 == end.0 + u64::from(count);
        match follows {
            true => Ok(place),
            false => Err(BatchError::Ended(self.mirror.end_life(gap(place, end)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_give_the_mirror_seq_of_each_log_entry() {
        let mut marks = Marks::default();
        // Log entries 3 to 20 from mirror seq 1 on, some private.
        let mut seq = 0;
        let mut want = vec![];
        for log in 3..=20u64 {
            let is_public = ![5, 6, 11, 20].contains(&log);
            seq += u64::from(is_public);
            marks.note(log, seq);
            want.push((log, seq));
        }
        assert!(marks.0.len() < 10, "runs of public entries share a mark: {marks:?}");
        for (log, seq) in &want {
            assert_eq!(marks.at(*log), Some(*seq), "{log}");
        }
        assert_eq!(marks.at(2), None);
        for seq in 1..=want.last().unwrap().1 {
            let last = want.iter().rfind(|(_, at)| *at == seq).unwrap().0;
            assert_eq!(marks.log_of(seq), last, "mirror seq {seq}");
        }
        marks.drop_before(12);
        for (log, seq) in want.iter().filter(|(log, _)| *log >= 12) {
            assert_eq!(marks.at(*log), Some(*seq), "{log}");
        }
        assert!(marks.0.len() < 4);
    }

    #[test]
    fn a_logged_private_entry_that_has_no_mark_yet_raises_nothing() {
        let mirror = Mirror::default();
        mirror.begin(At { line: Epoch(1), seq: Seq(7) });
        mirror.pass_checkpoint(Seq(10));
        assert_eq!((mirror.at(Seq(10)), mirror.at(Seq(11))), (Seq(7), Seq(7)));
        mirror.note_private(Seq(11));
        mirror.note_public(Seq(12), At { line: Epoch(2), seq: Seq(8) }, 3);
        assert_eq!([10, 11, 12, 14].map(|log| mirror.at(Seq(log)).0), [7, 7, 8, 10]);
        assert_eq!(mirror.lines(), [(Epoch(1), Seq(7)), (Epoch(2), Seq(8))]);
        assert_eq!(mirror.at_end(), At { line: Epoch(2), seq: Seq(10) });
    }
}
