//! Settling: the MDT learns sizes, times and written bits after the bytes that prove them are flushed (client-C2, rule plan-O3).
//!
//! In the background, once per commit interval: each dirty target is flushed once, for all files together, and the MDT is told of
//! several files in one frame.
//!
//! client-B1: a thread that closes a file while too many files wait settles some of them. One background thread does not keep up with
//! many threads that create files, and each waiting file takes memory here and needs recovery if this client dies.
//!
//! client-T1: a target that does not answer holds up its own files only: in a round it is waited for once and briefly, and what a
//! settle can do without (counted blocks) it does without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use plan::settle::{Mark, Snapshot};
use plan::size::proven;
use types::{Code, Fault, Generation, Layout, MirrorId, ObjectId, TargetId};
use wire::meta::{Settle, SettleReply};
use wire::object::Capability;

use crate::Fs;
use crate::cache::files::File;
use crate::cache::files::mark_written;
use crate::session::link::Link;
use crate::session::request::Answer;
use crate::session::request::IN_FLIGHT_MAX;
use crate::session::sharing::{Section, To};

/// Longest wait of a round for a file that another call has in hand: as many may be held up as the mount has threads.
const BUSY_MAX: Duration = Duration::from_millis(50);
/// Longest wait for the counted blocks of a file that was closed. An OST that is well answers in a millisecond, and without
/// an answer the estimate is told.
const GLIMPSE_MAX: Duration = plan::retry::BACKOFF_MAX;
/// Longest that a round works on one shrink that did not get through before.
const CUT_MAX: Duration = Duration::from_secs(2);

/// client-B1: closed files that wait to be settled. Two commit intervals' worth of a fast mount; about as many are in the hands of
/// the background, and a client that ends settles them all within a second.
const BACKLOG_MAX: usize = 4096;
/// Files that a closer settles: enough to share a flush, few enough for a pause of some ten milliseconds.
const HELP_FILES: usize = 256;
/// Longest pause of a closer for that.
const HELP_MAX: Duration = Duration::from_secs(2);

/// How long a settle waits for whom, and what is known of the targets since the round began.
struct Round {
    /// Did not answer in this round: not waited for again.
    down: BTreeSet<TargetId>,
    /// Longest wait for a lock of the file.
    busy_max: Duration,
    /// The end of all waiting; none for the background.
    limit: Option<Instant>,
    /// The MDT did not take a settle in time: there is no use in more of them.
    is_over: bool,
}

impl Round {
    fn new(busy_max: Duration, limit: Option<Instant>) -> Round {
        Round { down: BTreeSet::new(), busy_max, limit, is_over: false }
    }
    /// A deadline of `time` from now on.
    fn within(&self, time: Duration) -> Instant {
        let then = Instant::now() + time;
        self.limit.map_or(then, |limit| then.min(limit))
    }
    fn until_free(&self) -> Instant {
        self.within(self.busy_max)
    }
}

/// What a file is told as.
struct Due(Settle);

/// The blocks that the objects of a generation take.
struct Counted {
    generation: Generation,
    blocks: u64,
}

/// A file that nobody else tells of meanwhile.
struct Settling<'f> {
    /// `None`: there is nothing to tell.
    due: Option<Due>,
    _order: MutexGuard<'f, ()>,
    _section: Section<'f>,
}

impl Fs {
    /// One round, until `limit` if there is one. Files that cannot be settled now are tried again in the next round.
    pub(crate) fn settle_round(&self, limit: Option<Instant>) {
        let mut queue = self.files.take_queue();
        queue.append(&mut self.put_off.lock());
        self.settle_files(&queue, limit);
    }

    /// client-B1: takes part in settling if too many files wait for it. Those that have been tried in vain wait for the background.
    pub(crate) fn help_settling(&self, deadline: Instant) {
        if let Some(some) = self.files.take_beyond(BACKLOG_MAX, HELP_FILES) {
            self.settle_files(&some, Some(deadline.min(Instant::now() + HELP_MAX)));
        }
    }

    fn settle_files(&self, queue: &[Arc<File>], limit: Option<Instant>) {
        if queue.is_empty() {
            return;
        }
        let mut round = Round::new(BUSY_MAX, limit);
        // 1. client-C2: what is told is what stands here before the flush.
        let snapshots: Vec<Snapshot> = queue.iter().map(|f| f.meta.lock().progress.snapshot()).collect();
        // 2. Each target once.
        self.flush_for(&snapshots, &mut round);
        // 3. Each file.
        let (mut left, mut first) = (Vec::new(), None);
        let all: Vec<_> = queue.iter().zip(&snapshots).collect();
        let told = all.chunks(IN_FLIGHT_MAX).flat_map(|some| self.settle_some(some, &mut round));
        for (file, told) in queue.iter().zip(told) {
            match told {
                Err(fault) if file.meta.lock().needs_settling() => {
                    left.push(file.clone());
                    first.get_or_insert(fault);
                }
                _ => {
                    self.files.dequeued(file);
                    self.files.enqueue(file);
                }
            }
        }
        if let (Some(file), Some(fault)) = (left.first(), first) {
            let (left, all, fid) = (left.len(), queue.len(), file.fid);
            tracing::warn!("{left} of {all} files are not settled yet; file {fid}: {fault}");
        }
        self.put_off.lock().append(&mut left);
    }

    /// Settles until nothing is left, or until the deadline.
    pub(crate) fn settle_all(&self, deadline: Instant) -> Result<(), Fault> {
        let mut last = Ok(());
        while Instant::now() < deadline {
            self.files.all().iter().for_each(|f| self.files.enqueue(f));
            self.settle_round(Some(deadline));
            let left = self.files.all().into_iter().find(|f| f.meta.lock().needs_settling());
            let Some(file) = left else { return Ok(()) };
            last = Err(Fault::new(Code::Timeout, format!("file {} could not be settled", file.fid)));
            if !self.wait_a_little(deadline) {
                break;
            }
        }
        last
    }

    fn wait_a_little(&self, deadline: Instant) -> bool {
        self.mdt(types::Fid::ROOT).is_ok_and(|mdt| mdt.wait(plan::retry::BACKOFF_MAX / 10, deadline))
    }

    /// Flushes every target that has unflushed entries of the snapshots, once.
    fn flush_for(&self, snapshots: &[Snapshot], round: &mut Round) {
        let mut links = BTreeMap::new();
        for mark in snapshots.iter().flat_map(|s| &s.marks) {
            match self.cluster.target(mark.target) {
                Some(link) if !link.covers(mark) => links.insert(mark.target, link),
                _ => None,
            };
        }
        let links: Vec<_> = links.into_values().collect();
        let soon = round.within(self.settings.commit_interval.max(plan::retry::BACKOFF_MAX));
        round.down.extend(failing(&links, &|link| link.flush(soon)));
    }

    /// Some files whose targets were flushed: in one frame those that nobody else has in hand, as long as this client is alone.
    fn settle_some(&self, some: &[(&Arc<File>, &Snapshot)], round: &mut Round) -> Vec<Result<(), Fault>> {
        // 1. What is asked of other targets, before anything is held: client-T1.
        let mut counted: Vec<_> =
            some.iter().map(|(file, snapshot)| self.count_if_done(file, snapshot, round)).collect();
        // 2. What is to be told. Who holds `order` of one file waits for that of no other.
        let mdt = some.first().and_then(|(file, _)| self.mdt(file.fid).ok());
        let is_its = |file: &File| {
            self.mdt(file.fid).is_ok_and(|m| mdt.as_ref().is_some_and(|mdt| Arc::ptr_eq(mdt, &m)))
        };
        let mut held = Vec::with_capacity(some.len());
        for ((file, snapshot), counted) in some.iter().zip(&mut counted) {
            held.push(match is_its(file) {
                true => self.begin_settle(file, snapshot, counted.take(), round),
                false => None,
            });
        }
        // 3. Tell it.
        let dues = held.iter().flatten().filter_map(|h| h.due.as_ref());
        let asked: Vec<_> = dues.map(|Due(req)| (req.fid, req.clone(), &[][..])).collect();
        let until = round.within(self.settings.op_timeout);
        let mut answers = mdt.iter().flat_map(|mdt| mdt.ask_together(&asked, until));
        // 4. Take note of the answers; then those that were not held.
        let mut told: Vec<Option<Result<(), Fault>>> = Vec::with_capacity(some.len());
        for ((file, snapshot), held) in some.iter().zip(&held) {
            told.push(held.as_ref().map(|held| match &held.due {
                Some(due) => {
                    let answer = answers.next().expect("one for each");
                    self.was_settled(file, snapshot, due, answer, round)
                }
                None => Ok(()),
            }));
        }
        drop(held);
        let rest = some.iter().zip(told).map(|((file, snapshot), told)| match told {
            Some(told) => told,
            None => self.settle_after_flush(file, snapshot, round),
        });
        rest.collect()
    }

    /// `None`: it is settled alone, or cannot be settled now.  client-H3: the section first.
    fn begin_settle<'f>(
        &'f self,
        file: &'f Arc<File>,
        snapshot: &Snapshot,
        counted: Option<Counted>,
        round: &mut Round,
    ) -> Option<Settling<'f>> {
        self.check_round(snapshot, round).ok()?;
        if self.is_shared() || file.meta.lock().cutting.is_some() {
            return None;
        }
        // client-T1: who holds others' order waits for no target that has restarted since its flush.
        let is_flushed = |m: &Mark| self.cluster.target(m.target).is_some_and(|link| link.covers(m));
        if !snapshot.marks.iter().all(is_flushed) {
            return None;
        }
        let section = self.section(file, To::Change, round.until_free()).ok()?;
        if section.is_among_others() {
            return None;
        }
        let order = file.order.try_lock()?;
        let due = self.due_of(file, snapshot, counted, round).ok()?;
        Some(Settling { due, _order: order, _section: section })
    }

    /// May the file be settled in this round?
    fn check_round(&self, snapshot: &Snapshot, round: &Round) -> Result<(), Fault> {
        // A client that ends settles in a round with a limit.
        if round.is_over || (round.limit.is_none() && self.is_stopping()) {
            return Err(Fault::new(Code::NotReady, "the round is over"));
        }
        let is_open =
            |m: &plan::settle::Mark| !self.cluster.target(m.target).is_some_and(|link| link.covers(m));
        match snapshot.marks.iter().find(|m| round.down.contains(&m.target) && is_open(m)) {
            Some(mark) => Err(Fault::new(Code::NotReady, format!("target {} was not flushed", mark.target))),
            None => Ok(()),
        }
    }

    fn settle_after_flush(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        round: &mut Round,
    ) -> Result<(), Fault> {
        self.check_round(snapshot, round)?;
        // client-H1: among others the file is looked at in its turn.
        let section = self.section(file, To::Change, round.until_free())?;
        let due = file.meta.lock().cutting.is_some();
        if due {
            return self.cut_in_round(file, round);
        }
        let _order = file.lock_order(round.until_free())?;
        if section.is_among_others() {
            // Others may have written since: what is told is what stands now.
            let snapshot = file.meta.lock().progress.snapshot();
            return self.settle_in_round(file, &snapshot, round);
        }
        self.settle_in_round(file, snapshot, round)
    }

    fn cut_in_round(&self, file: &Arc<File>, round: &mut Round) -> Result<(), Fault> {
        let mirrors = {
            let body = file.share_body(round.until_free())?;
            let objects = body.layout.iter().flat_map(|l| l.objects(file.fid));
            objects.map(|(_, mirror, _)| mirror).collect::<BTreeSet<_>>()
        };
        let links = self.links_up(&mirrors, round)?;
        let done = self.finish_cut(file, round.within(CUT_MAX));
        if done.is_err() {
            self.find_down(&links, round);
        }
        done
    }

    /// The links to these mirrors, unless one of them is known to be down.
    fn links_up(&self, mirrors: &BTreeSet<MirrorId>, round: &Round) -> Result<Vec<Arc<Link>>, Fault> {
        let links = mirrors.iter().map(|m| self.cluster.ost(*m)).collect::<Result<Vec<_>, _>>()?;
        match links.iter().find(|l| round.down.contains(&l.target)) {
            None => Ok(links),
            Some(link) => Err(link.timeout("it did not answer a moment ago")),
        }
    }

    /// A request to several targets failed: which of them is it?
    fn find_down(&self, links: &[Arc<Link>], round: &mut Round) {
        let soon = round.within(GLIMPSE_MAX);
        round.down.extend(failing(links, &|link| link.keep_alive(soon)));
    }

    /// The blocks that the objects take; none if a target does not answer soon.
    fn count_blocks(
        &self,
        cap: &Capability,
        layout: &Layout,
        objects: Vec<(ObjectId, MirrorId)>,
        round: &mut Round,
    ) -> Option<u64> {
        let links = self.links_up(&objects.iter().map(|(_, m)| *m).collect(), round).ok()?;
        match self.glimpse(cap, objects.into_iter(), round.within(GLIMPSE_MAX)) {
            Ok(stats) => Some(proven(layout, &stats).blocks),
            Err(fault) => {
                if fault.code == Code::Timeout {
                    self.find_down(&links, round);
                }
                None
            }
        }
    }

    /// Tells the MDT a snapshot whose marks are flushed. `order` is held.
    pub(crate) fn settle_snapshot(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let mut round = Round::new(self.settings.op_timeout, Some(deadline));
        self.settle_in_round(file, snapshot, &mut round)
    }

    fn settle_in_round(&self, file: &Arc<File>, snapshot: &Snapshot, round: &mut Round) -> Result<(), Fault> {
        let counted = self.count_if_done(file, snapshot, round);
        let Some(due) = self.due_of(file, snapshot, counted, round)? else { return Ok(()) };
        let answer = self.ask_until(file.fid, &due.0, round.within(self.settings.op_timeout));
        self.was_settled(file, snapshot, &due, answer, round)
    }

    /// At the end the blocks are counted rather than estimated.
    fn count_if_done(&self, file: &Arc<File>, snapshot: &Snapshot, round: &mut Round) -> Option<Counted> {
        self.check_round(snapshot, round).ok()?;
        let (cap, written) = {
            let meta = file.meta.lock();
            let is_done = meta.writers == 0 && meta.progress.is_still(snapshot) && meta.needs_settling();
            (meta.cap.clone().filter(|_| is_done)?, meta.progress.clone())
        };
        let layout = file.share_body(round.until_free()).ok()?.layout.clone()?;
        let is_written = |(o, _, bit): &(ObjectId, MirrorId, bool)| *bit || written.has_written(*o);
        let objects = layout.objects(file.fid).filter(is_written).map(|(o, m, _)| (o, m)).collect();
        let blocks = self.count_blocks(&cap, &layout, objects, round)?;
        Some(Counted { generation: layout.generation, blocks })
    }

    /// What is to be told of a file, if anything is. `order` is held.
    fn due_of(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        counted: Option<Counted>,
        round: &mut Round,
    ) -> Result<Option<Due>, Fault> {
        // 1. A mark may have been lost in a restart instead of flushed.
        self.flush_marks(file, &snapshot.marks, round.within(round.busy_max.max(GLIMPSE_MAX)))?;
        let (is_valid, is_due, done) = {
            let mut meta = file.meta.lock();
            let is_valid = meta.progress.is_valid(snapshot);
            if is_valid {
                meta.progress.flushed(snapshot);
            }
            // `done`: nobody writes any more, and this is all there is.
            let done = meta.writers == 0 && meta.progress.is_still(snapshot);
            (is_valid, meta.needs_settling(), done)
        };
        if !is_valid || !is_due {
            return Ok(None);
        }
        let Some(generation) = file.share_body(round.until_free())?.layout.as_ref().map(|l| l.generation)
        else {
            // Inline by now: the MDT knows it all.
            let mut meta = file.meta.lock();
            meta.progress.was_told(snapshot);
            meta.is_marked = false;
            return Ok(None);
        };
        // 2. What was counted counts if nothing was changed since.
        let counted = counted.filter(|c| done && c.generation == generation);
        let blocks = counted.map_or(snapshot.blocks, |c| c.blocks);
        let Snapshot { size, mtime, ref written, .. } = *snapshot;
        let req = Settle {
            fid: file.fid,
            generation,
            size,
            blocks,
            mtime,
            written: written.clone(),
            done,
            hint: false,
            held: file.held(),
        };
        Ok(Some(Due(req)))
    }

    /// What the MDT said to that.
    fn was_settled(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        Due(Settle { done, blocks, .. }): &Due,
        answer: Result<Answer<SettleReply>, Fault>,
        round: &mut Round,
    ) -> Result<(), Fault> {
        match answer {
            Ok(answer) => {
                self.learn_written(file, snapshot, round.until_free())?;
                let mut meta = file.meta.lock();
                meta.progress.was_told(snapshot);
                if *done {
                    meta.progress.blocks = *blocks;
                }
                meta.is_marked = !done;
                meta.saw(answer.mark);
                Ok(())
            }
            Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => {
                let mut meta = file.meta.lock();
                if meta.pins > 0 {
                    // The file or its objects went without our doing, while it is open here: these bytes are lost.
                    let why = format!("file {}: its objects are not the file's any more: {fault}", file.fid);
                    meta.poison.get_or_insert(Fault::new(Code::Io, why));
                }
                // Removed after its last close: there is nothing to tell any more.
                meta.progress.was_told(snapshot);
                meta.is_marked = false;
                Ok(())
            }
            Err(fault) => {
                round.is_over |= fault.code == Code::Timeout;
                Err(fault)
            }
        }
    }

    /// Tells the MDT what is flushed though nothing of it may be news, for what others have written.
    pub(crate) fn tell_flushed(
        &self,
        file: &File,
        snapshot: &Snapshot,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let Some(generation) = file.share_body(deadline)?.layout.as_ref().map(|l| l.generation) else {
            return Ok(());
        };
        let Snapshot { size, blocks, mtime, ref written, .. } = *snapshot;
        let (written, done, hint) = (written.clone(), false, false);
        let req =
            Settle { fid: file.fid, generation, size, blocks, mtime, written, done, hint, held: file.held() };
        let answer = self.ask_until(file.fid, &req, deadline)?;
        self.learn_written(file, snapshot, deadline)?;
        let mut meta = file.meta.lock();
        meta.progress.flushed(snapshot);
        meta.progress.was_told(snapshot);
        meta.saw(answer.mark);
        Ok(())
    }

    /// The layout's own bits follow what the MDT was told, so that pieces carry them.
    fn learn_written(&self, file: &File, snapshot: &Snapshot, deadline: Instant) -> Result<(), Fault> {
        let is_news = {
            let body = file.share_body(deadline)?;
            let known = |component: u16, stripe: u16| {
                body.layout
                    .as_ref()
                    .and_then(|l| l.components.get(component as usize))
                    .is_none_or(|c| c.is_written(stripe))
            };
            snapshot.written.iter().any(|w| {
                (0..w.bits.len() as u16 * 64)
                    .any(|s| w.bits[s as usize / 64] >> (s % 64) & 1 == 1 && !known(w.component, s))
            })
        };
        if is_news && let Some(layout) = &mut file.own_body(deadline)?.layout {
            snapshot.written.iter().for_each(|w| mark_written(layout, w));
        }
        Ok(())
    }
}

/// Asks all at once; returns those that did not say yes.
pub(crate) fn failing(
    links: &[Arc<Link>],
    ask: &(dyn Fn(&Link) -> Result<(), Fault> + Sync),
) -> Vec<TargetId> {
    let alone =
        |links: &[Arc<Link>]| links.iter().filter(|l| ask(l).is_err()).map(|l| l.target).collect::<Vec<_>>();
    // Targets of this process answer on this thread; asked in order they do the same thing each time.
    if links.len() <= 1 || links.iter().all(|l| !l.keeps()) {
        return alone(links);
    }
    let mut failed = Vec::new();
    for some in links.chunks(IN_FLIGHT_MAX) {
        // A thread each: one that hangs must not use up the time of those that are asked after it.
        std::thread::scope(|scope| {
            let run = |link| {
                let one = std::slice::from_ref(link);
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || alone(one));
                (one, thread)
            };
            let asked: Vec<_> = some.iter().map(run).collect();
            for (one, thread) in asked {
                failed.extend(match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| vec![one[0].target]),
                    // No thread is to be had.
                    Err(_) => alone(one),
                });
            }
        });
    }
    failed
}
