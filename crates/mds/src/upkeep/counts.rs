//! Counts of directories: learns them from entries, and folds them into the directories' records. The rules are in `meta::counts`.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use kv::{Batch, Change, Engine, Value};
use meta::counts::{Changed, FOLD_MAX, Learned, Pending, Recount, begun};
use meta::{Ctx, Space};
use types::{Fault, Key, Seq, SessionId};
use wire::Header;

use crate::Core;
use crate::executor::call::Around;
use crate::executor::draft::Draft;
use crate::executor::execute::{ExecutorState, Stop};
use crate::records::look::{Next, Page, SnapView, Trouble, Walk, page, until_loaded};
use crate::records::overlay::Layer;
use crate::reply::Done;
use crate::reply::{parse, plain};
use crate::sessions::nodemap::Terms;
use crate::sessions::shared::Doom;

/// Most records and bytes per entry while a file system is counted for the first time.
const SLICE: usize = 1024;
const SLICE_BYTES: usize = 1 << 20;

/// An entry's changes in the form of the rules.
pub fn changed(changes: &Batch) -> impl Iterator<Item = Changed<'_>> + Clone {
    changes.0.iter().map(|Change { key, value }| (key, value.as_ref().map(|v| v.raw())))
}

impl Core {
    /// Effects of an entry on the counts. Call it before the entry is encoded, since it may add deletions of count records. Add the result to
    /// `counts` once the entry is in the log.
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

    /// The call `Counts`: counts of the newest state, with pending ones.
    pub fn on_counts(&self, head: &Header, body: &[u8], terms: Option<&Terms>) -> Result<Done, Fault> {
        self.check_incarnation(head)?;
        let mut user = None;
        if head.session != SessionId(0) {
            self.check_session(head.session)?;
            self.check_come_back()?;
            user = self.sessions.one_user(head.session)?;
        }
        let mut req: wire::meta::Counts = parse(body)?;
        // meta-J1: the judged credentials replace those of the request.
        if let Some(judged) = self.judged(user.as_ref(), terms, head.call, body) {
            req.cred = judged.cred;
        }
        let joined = self.joined()?;
        let (doom, lease_high) = (Doom::new(&self.sharers), Cell::new(0));
        let root = terms.and_then(|terms| terms.root.as_deref());
        let seen = root.map(|root| root.seen(self.roots.now(), true));
        let root = seen.as_ref();
        let around = Around { head, joined: &joined, judged: None, space: Space::AMPLE, doom: &doom, root };
        let mut answer = |ctx: &Ctx<'_>| {
            until_loaded(&self.kv, &mut || {
                let (snap, counts) = {
                    let seat = self.executor.lead();
                    (self.kv.snapshot(), seat.counts.clone())
                };
                let view = SnapView::new(&snap);
                let may = self.rules.check_root(ctx, &view, head.call, body);
                let reply = may.and_then(|()| counts.answer(&view, &req));
                view.finish().map(|()| reply)
            })?
        };
        let reply = self.with_ctx(around, &lease_high, &mut answer)?;
        // mds-RP2: as for reads.
        self.check_mirror(head.call)?;
        Ok(plain(reply))
    }

    /// Folds some pending counts into records if there are many. The thread whose entry made them many does it, after its entry.
    pub fn fold_counts(&self) -> Result<(), Fault> {
        // One thread of those whose requests were in that batch.
        if !self.counts_long.load(Ordering::Relaxed) || !self.counts_long.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // A few attempts load all records. If they leave memory again before that, the next attempt folds fewer.
        let mut max = 8 * FOLD_MAX;
        until_loaded(&self.kv, &mut || {
            let mut seat = self.executor.lead();
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
            // A full log has no space for it. A checkpoint is under way, and the next call tries again.
            match self.commit_puts(&mut seat, fold.puts) {
                Ok(_) => {
                    seat.counts.fold_ended(fold.end);
                    Ok(())
                }
                Err(Stop::LogFull { .. } | Stop::NoIds | Stop::Leased(_) | Stop::Made(..)) => Ok(()),
                Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
                // The volume refuses. The next request reports that.
                Err(Stop::Refused(_)) => Ok(()),
            }
        })
    }

    /// Counts a file system that an older program made without counts. Runs before any request is served.
    pub fn begin_counts(&self) -> Result<(), Fault> {
        if !self.rules.counts() || self.executor.lead().counts.is_counting() {
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
        // The walk keeps leaves' places from being reused by checkpoints.
        drop(walk);
        let puts: Vec<(Key, Vec<u8>)> = recount
            .finish()
            .into_iter()
            .map(|(dir, counts)| (meta::keys::counts(dir), counts.encode()))
            .collect();
        tracing::info!(directories = puts.len(), "the directories' contents were counted for the first time");
        // A start before the last record counts anew.
        for slice in puts.chunks(SLICE).chain([&[begun()][..]]) {
            self.commit_alone(slice)?;
        }
        debug_assert!(self.executor.lead().counts.is_counting(), "the last record begins counting");
        Ok(())
    }

    fn commit_puts(&self, seat: &mut ExecutorState, puts: Vec<(Key, Vec<u8>)>) -> Result<Seq, Stop> {
        let puts = puts.into_iter().map(|(key, value)| (key, Some(Value::new(&value))));
        self.commit_changes(seat, puts.collect())
    }

    /// An internal entry whose changes do not depend on the state.
    pub fn commit_changes(&self, seat: &mut ExecutorState, changes: Layer) -> Result<Seq, Stop> {
        let snap = self.kv.snapshot();
        let mut draft = Draft::new(&snap);
        draft.changes = changes;
        self.commit(seat, draft)
    }

    /// Makes an internal entry of its own, and checkpoints if the log is full.
    fn commit_alone(&self, puts: &[(Key, Vec<u8>)]) -> Result<(), Fault> {
        loop {
            match self.until_here(&mut || self.commit_puts(&mut self.executor.lead(), puts.to_vec()))? {
                Ok(_) => return Ok(()),
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(stop) => return Err(stop.fault()),
            }
        }
    }
}

/// Ignores damage: the request that needs the record reports it, and fsck finds wrong sums. Here it would only stop other work.
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
