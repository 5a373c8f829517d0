//! Counts of directories: learned from each entry, pending in memory, and folded into their records. The rules are in `meta::counts`.

use std::sync::atomic::Ordering;

use kv::{Batch, Change, Engine, Value};
use meta::counts::{Changed, FOLD_MAX, Learned, Pending, Recount, begun};
use types::{Fault, Key, Seq, SessionId};
use wire::Header;

use crate::Core;
use crate::executor::draft::Draft;
use crate::executor::execute::{Seat, Stop};
use crate::records::look::{Next, Page, SnapView, Trouble, Walk, page, until_loaded};
use crate::records::overlay::Layer;
use crate::reply::Done;
use crate::reply::{parse, plain};

/// Records of one entry when a file system is counted for the first time.
const SLICE: usize = 1024;
const SLICE_BYTES: usize = 1 << 20;

/// An entry's changes, in the form of the rules.
pub fn changed(changes: &Batch) -> impl Iterator<Item = Changed<'_>> + Clone {
    changes.0.iter().map(|Change { key, value }| (key, value.as_ref().map(|v| v.raw())))
}

impl Core {
    /// Learns an entry's effect on the counts. Call it before the entry is encoded, because it adds deletions of obsolete records to
    /// `changes`. Add the result to `counts` once the entry is in the log.
    pub fn learn_counts(&self, counts: &Pending, changes: &mut Batch) -> Result<Learned, Stop> {
        if !self.rules.counts() {
            return Ok(Learned::default());
        }
        let reader = self.kv.reader();
        let view = SnapView::new(&reader);
        let learned = counts.learn(&view, changed(changes));
        let obsolete = learned.obsolete(&view);
        not_absent(view)?;
        obsolete.into_iter().for_each(|key| changes.delete(key));
        Ok(learned)
    }

    /// The call `Counts`: the sum of the newest state and the pending counts.
    pub fn on_counts(&self, head: &Header, body: &[u8]) -> Result<Done, Fault> {
        self.joined()?;
        self.check_incarnation(head)?;
        let mut user = None;
        if head.session != SessionId(0) {
            self.check_session(head.session)?;
            self.check_come_back()?;
            user = self.sessions.one_user(head.session)?;
        }
        let mut req: wire::meta::Counts = parse(body)?;
        // meta-J1: the judged user replaces the claimed one.
        if let Some(judged) = self.judged(user.as_ref(), head.call, body) {
            req.cred = judged.cred;
        }
        let reply = until_loaded(&self.kv, &mut || {
            let (snap, counts) = {
                let seat = self.role.hold();
                (self.kv.snapshot(), seat.counts.clone())
            };
            let view = SnapView::new(&snap);
            let reply = counts.answer(&view, &req);
            view.finish().map(|()| reply)
        })?;
        reply.map(plain)
    }

    /// Folds pending counts into the records, if they are many. The thread whose entry made them many does so, after its entry.
    pub fn fold_counts(&self) -> Result<(), Fault> {
        // One thread of the batch does it.
        if !self.counts_long.load(Ordering::Relaxed) || !self.counts_long.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // A few attempts load all records that it needs. If they do not stay in memory, each further attempt folds half as many.
        let mut max = 8 * FOLD_MAX;
        until_loaded(&self.kv, &mut || {
            let mut seat = self.role.hold();
            if seat.closed || !seat.counts.is_long() {
                return Ok(());
            }
            max /= 2;
            let fold = {
                let reader = self.kv.reader();
                let view = SnapView::new(&reader);
                let fold = seat.counts.fold(&view, max);
                not_absent(view)?;
                fold
            };
            // On a full log it does nothing: a checkpoint comes soon, and a later entry folds.
            match self.commit_puts(&mut seat, fold.puts) {
                Ok(_) => {
                    seat.counts.fold_ended(fold.end);
                    Ok(())
                }
                Err(Stop::LogFull { .. } | Stop::NoIds) => Ok(()),
                Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
                // The volume has failed; the next request reports that.
                Err(Stop::Refused(_)) => Ok(()),
            }
        })
    }

    /// Counts a file system that an older program made without counts. Runs before requests are served.
    pub fn begin_counts(&self) -> Result<(), Fault> {
        if !self.rules.counts() || self.role.hold().counts.is_counting() {
            return Ok(());
        }
        let (walk, mut recount, mut from) =
            (Walk::over(self.kv.snapshot()), Recount::default(), Key::default());
        loop {
            let read = |snap: &_| page(&self.kv, snap, &from, SLICE, SLICE_BYTES);
            let Page { records, next } = walk.slice(&self.kv, read)?;
            records.iter().for_each(|(key, value)| recount.take(key, value));
            from = match next {
                Next::Nothing => break,
                Next::More(key) => key,
                Next::Damage(damage) => {
                    tracing::error!(%damage, "these are left out of the directories' counts");
                    damage.end
                }
            };
        }
        // The walk's snapshot keeps leaves' places, which the checkpoints below may need.
        drop(walk);
        let puts: Vec<(Key, Vec<u8>)> = recount
            .finish()
            .into_iter()
            .map(|(dir, counts)| (meta::keys::counts(dir), counts.encode()))
            .collect();
        tracing::info!(directories = puts.len(), "the directories' contents were counted for the first time");
        // The last record marks the end; without it a start counts anew.
        for slice in puts.chunks(SLICE).chain([&[begun()][..]]) {
            self.commit_alone(slice)?;
        }
        debug_assert!(self.role.hold().counts.is_counting(), "the last record begins counting");
        Ok(())
    }

    fn commit_puts(&self, seat: &mut Seat, puts: Vec<(Key, Vec<u8>)>) -> Result<Seq, Stop> {
        let puts = puts.into_iter().map(|(key, value)| (key, Some(Value::new(&value))));
        self.commit_changes(seat, puts.collect())
    }

    /// Makes an internal entry of changes that do not depend on the state.
    pub fn commit_changes(&self, seat: &mut Seat, changes: Layer) -> Result<Seq, Stop> {
        let snap = self.kv.snapshot();
        let mut draft = Draft::new(&snap);
        draft.changes = changes;
        self.commit(seat, draft)
    }

    /// Makes an internal entry of its own, and checkpoints if the log is full.
    fn commit_alone(&self, puts: &[(Key, Vec<u8>)]) -> Result<(), Fault> {
        loop {
            match self.until_here(&mut || self.commit_puts(&mut self.role.hold(), puts.to_vec()))? {
                Ok(_) => return Ok(()),
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(stop) => return Err(stop.fault()),
            }
        }
    }
}

/// Passes on absence, and only logs damage: counting must not stop entries, requests for the record report the damage, and fsck finds
/// wrong sums.
fn not_absent(view: SnapView<'_>) -> Result<(), Trouble> {
    match view.finish() {
        Err(trouble @ Trouble::Absent(_)) => Err(trouble),
        Err(trouble) => {
            let why = Fault::from(trouble);
            tracing::error!(%why, "the counts of some directories are wrong from here on");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}
