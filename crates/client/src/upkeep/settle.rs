//! Size and attribute updates (`Settle`): the client reports sizes, times and written bits to the MDT, after the bytes behind them are
//! flushed (client-C2, plan-O3).
//!
//! A background round runs once per commit interval. It flushes each dirty target once, for all files together, and reports several files in
//! one frame.
//!
//! client-B1: a thread that closes a file while too many files wait settles some of them. One background thread does not keep up with
//! many threads that create files, and each waiting file takes memory here and needs recovery if this client dies.
//!
//! client-T1: a target that does not answer delays its own files only. A round waits for it once, briefly. An update that only lacks counted
//!     blocks is sent without them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use plan::settle::{Mark, Snapshot};
use plan::size::{Proven, proven};
use types::{Code, Fault, Generation, Layout, MirrorId, ObjectId, Time};
use wire::meta::{Settle, SettleReply};
use wire::object::Capability;

use crate::Fs;
use crate::cache::files::File;
use crate::cache::files::mark_written;
use crate::cache::hold::To;
use crate::session::asks::Asks;
use crate::session::link::Link;
use crate::session::request::Answer;
use crate::session::request::IN_FLIGHT_MAX;
use crate::session::section::Section;

/// Longest wait of a round for a file that another call has locked. There may be as many such files as the mount has threads.
const BUSY_MAX: Duration = Duration::from_millis(50);
/// Longest wait for the counted blocks of a closed file. A healthy OST answers in a millisecond; without an answer the update has an
/// estimate.
const GLIMPSE_MAX: Duration = plan::retry::BACKOFF_MAX;
/// Longest time that a round spends on one truncation that failed before.
const CUT_MAX: Duration = Duration::from_secs(2);

/// client-B1: most closed files that wait for an update. A fast mount closes as many in two commit intervals. About as many more are in the
/// present round, and an ending client updates all of them within a second.
const BACKLOG_MAX: usize = 4096;
/// Files that a closing thread updates: enough to share a flush, few enough for a delay of some ten milliseconds.
const HELP_FILES: usize = 256;
/// Longest delay of a closing thread.
const HELP_MAX: Duration = Duration::from_secs(2);

/// Limits of one round, and the targets that failed in it.
struct Round {
    /// Targets that did not answer in this round. It does not wait for them again.
    down: BTreeSet<MirrorId>,
    /// Longest wait for a lock of the file.
    busy_max: Duration,
    /// The end of all waits. `None` for the background.
    limit: Option<Instant>,
    /// The MDT did not take an update in time, so the round sends no more.
    is_over: bool,
}

impl Round {
    fn new(busy_max: Duration, limit: Option<Instant>) -> Round {
        Round { down: BTreeSet::new(), busy_max, limit, is_over: false }
    }
    /// A deadline `time` from now, or the round's limit.
    fn within(&self, time: Duration) -> Instant {
        let then = Instant::now() + time;
        self.limit.map_or(then, |limit| then.min(limit))
    }
    fn until_free(&self) -> Instant {
        self.within(self.busy_max)
    }
}

/// The update of a file that is to be sent.
struct Due(Settle);

/// A file's size and blocks as this client knows them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    All,
    /// What it wrote itself, beside other clients (client-CL8).
    Part,
}

/// Blocks that the objects of a layout generation use.
struct Counted {
    generation: Generation,
    blocks: u64,
}

/// A file whose locks are held until its update is answered.
struct Settling<'f> {
    /// `None`: there is nothing to report.
    due: Option<Due>,
    _order: MutexGuard<'f, ()>,
    _section: Section<'f>,
}

impl Fs {
    /// One round, until `limit` if there is one. The next round tries files again that cannot be updated now.
    pub(crate) fn settle_round(&self, limit: Option<Instant>) {
        let mut queue = self.files.take_queue();
        queue.append(&mut self.put_off.lock());
        self.settle_files(&queue, limit);
    }

    /// client-B1: updates some files if too many wait. Files that failed before are left to the background.
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
        // 1. client-C2: updates report the state before the flush.
        let snapshots: Vec<Snapshot> = queue.iter().map(|f| f.meta.lock().progress.snapshot()).collect();
        // 2. Flush each target once.
        self.flush_for(&snapshots, &mut round);
        // 3. Report each file.
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

    /// Runs rounds until no file needs an update, or until the deadline.
    pub(crate) fn settle_all(&self, deadline: Instant) -> Result<(), Fault> {
        loop {
            let in_time = Instant::now() < deadline;
            if in_time {
                self.files.all().iter().for_each(|f| self.files.enqueue(f));
                self.settle_round(Some(deadline));
            }
            let left = self.files.all().into_iter().find(|f| f.meta.lock().needs_settling());
            let Some(file) = left else { return Ok(()) };
            if !in_time || !self.wait_a_little(deadline) {
                return Err(Fault::new(Code::Timeout, format!("file {} could not be settled", file.fid)));
            }
        }
    }

    fn wait_a_little(&self, deadline: Instant) -> bool {
        self.mdt(types::Fid::ROOT).is_ok_and(|mdt| mdt.wait(plan::retry::BACKOFF_MAX / 10, deadline))
    }

    /// Flushes once every target that has unflushed entries of the snapshots.
    fn flush_for(&self, snapshots: &[Snapshot], round: &mut Round) {
        let mut links = BTreeMap::new();
        for mark in snapshots.iter().flat_map(|s| &s.marks) {
            match self.cluster.link(mark.mirror) {
                Some(link) if !link.covers(mark) => links.insert(mark.mirror, link),
                _ => None,
            };
        }
        let links: Vec<_> = links.into_values().collect();
        let soon = round.within(self.settings.commit_interval.max(plan::retry::BACKOFF_MAX));
        round.down.extend(failing(&links, &|link| link.flush(soon)));
    }

    /// Reports files whose targets were flushed. While this client is alone, files that no other call has locked share one frame; the
    /// others follow one by one.
    fn settle_some(&self, some: &[(&Arc<File>, &Snapshot)], round: &mut Round) -> Vec<Result<(), Fault>> {
        // 1. client-T1: ask OSTs before any lock is held.
        let mut counted: Vec<_> =
            some.iter().map(|(file, snapshot)| self.count_if_done(file, snapshot, round)).collect();
        // 2. Build the updates. A thread that holds `order` of one file does not wait for `order` of another.
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
        // 3. Send them.
        let dues = held.iter().flatten().filter_map(|h| h.due.as_ref());
        let asked: Vec<_> = dues.map(|Due(req)| (req.fid, req.clone(), &[][..])).collect();
        let until = round.within(self.op_timeout());
        let mut answers = mdt.iter().flat_map(|mdt| mdt.ask_together(&asked, until));
        // 4. Note the answers. Then report the files that were locked.
        let mut told: Vec<Option<Result<(), Fault>>> = Vec::with_capacity(some.len());
        for ((file, snapshot), held) in some.iter().zip(&held) {
            told.push(held.as_ref().map(|held| match &held.due {
                Some(due) => {
                    let answer = answers.next().expect("`ask_together` answers each request");
                    self.was_settled(file, snapshot, due, answer, round)
                }
                None => Ok(()),
            }));
        }
        assert_eq!(told.len(), some.len(), "each file has one outcome");
        drop(held);
        let rest = some.iter().zip(told).map(|((file, snapshot), told)| match told {
            Some(told) => told,
            None => self.settle_after_flush(file, snapshot, round),
        });
        rest.collect()
    }

    /// Locks a file and builds its update. `None`: it is reported by itself, or not in this round. client-H3: the section comes first.
    fn begin_settle<'f>(
        &'f self,
        file: &'f Arc<File>,
        snapshot: &Snapshot,
        counted: Option<Counted>,
        round: &mut Round,
    ) -> Option<Settling<'f>> {
        self.check_round(snapshot, round).ok()?;
        let is_alone_in_it = {
            let meta = file.meta.lock();
            meta.cutting.is_none() && !meta.is_stale
        };
        if self.is_shared() || !is_alone_in_it {
            return None;
        }
        // client-T1: this thread holds `order` of other files, so it waits for no target that restarted after its flush.
        let is_flushed = |m: &Mark| self.cluster.link(m.mirror).is_some_and(|link| link.covers(m));
        if !snapshot.marks.iter().all(is_flushed) {
            return None;
        }
        let section = self.section_beside(file, To::Change.into(), round.until_free()).ok()?;
        if section.is_among_others() {
            return None;
        }
        let order = file.order.try_lock()?;
        let due = self.due_of(file, snapshot, counted, Knows::All, round).ok()?;
        Some(Settling { due, _order: order, _section: section })
    }

    /// Refuses a file that cannot be updated in this round.
    fn check_round(&self, snapshot: &Snapshot, round: &Round) -> Result<(), Fault> {
        // An ending client runs its rounds with a limit.
        if round.is_over || (round.limit.is_none() && self.is_stopping()) {
            return Err(Fault::new(Code::NotReady, "the round is over"));
        }
        let is_open =
            |m: &plan::settle::Mark| !self.cluster.link(m.mirror).is_some_and(|link| link.covers(m));
        match snapshot.marks.iter().find(|m| round.down.contains(&m.mirror) && is_open(m)) {
            Some(mark) => Err(Fault::new(Code::NotReady, format!("mirror {} was not flushed", mark.mirror))),
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
        // client-H1: beside other clients the file is read in its section only. No other client changes it under a shared lease.
        let due = file.meta.lock().cutting.is_some();
        // A file without writers is told for the last time, with all that is known of it.
        let is_written = !due && file.meta.lock().writers > 0;
        if is_written && let Some(_section) = self.section_if_many(file) {
            let _order = file.lock_order(round.until_free())?;
            let snapshot = file.meta.lock().progress.snapshot();
            return self.settle_in_round(file, &snapshot, Knows::Part, round);
        }
        let to = if self.is_shared() && !due { To::Read } else { To::Change };
        let section = match due {
            true => self.section(file, to, round.until_free())?,
            false => self.section_beside(file, to.into(), round.until_free())?,
        };
        if due {
            return self.cut_in_round(file, round);
        }
        let _order = file.lock_order(round.until_free())?;
        if section.is_among_others() {
            // Another client may have written since the snapshot, so the update reports the present state.
            let snapshot = file.meta.lock().progress.snapshot();
            return self.settle_in_round(file, &snapshot, Knows::All, round);
        }
        self.settle_in_round(file, snapshot, Knows::All, round)
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
        match links.iter().find(|l| round.down.contains(&l.mirror)) {
            None => Ok(links),
            Some(link) => Err(link.timeout("it did not answer a moment ago")),
        }
    }

    /// A request to several targets failed: finds the target that is down.
    fn find_down(&self, links: &[Arc<Link>], round: &mut Round) {
        let soon = round.within(GLIMPSE_MAX);
        round.down.extend(failing(links, &|link| link.keep_alive(soon)));
    }

    /// Blocks that the objects use. `None`: they cannot be counted now.
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

    /// Reports a snapshot whose marks are flushed. The caller holds `order`.
    pub(crate) fn settle_snapshot(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let mut round = Round::new(self.op_timeout(), Some(deadline));
        self.settle_in_round(file, snapshot, Knows::All, &mut round)
    }

    fn settle_in_round(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        knows: Knows,
        round: &mut Round,
    ) -> Result<(), Fault> {
        let counted = match knows {
            Knows::All => self.count_if_done(file, snapshot, round),
            Knows::Part => None,
        };
        let Some(due) = self.due_of(file, snapshot, counted, knows, round)? else { return Ok(()) };
        let answer = self.ask_until(file.fid, &due.0, round.within(self.op_timeout()));
        self.was_settled(file, snapshot, &due, answer, round)
    }

    /// Counts the blocks of a file without writers, so that its last update has no estimate.
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

    /// The update of a file, if one is due. The caller holds `order`.
    fn due_of(
        &self,
        file: &Arc<File>,
        snapshot: &Snapshot,
        counted: Option<Counted>,
        knows: Knows,
        round: &mut Round,
    ) -> Result<Option<Due>, Fault> {
        // 0. Other clients worked on it until a moment ago, and may have moved it to other objects.
        if file.meta.lock().is_stale && !self.is_shared() {
            let deadline = round.within(self.op_timeout());
            match self.open_in_order(file, Asks::Again, deadline) {
                // It is removed: the update is refused, too.
                Err(fault) if !matches!(fault.code, Code::NotFound | Code::Stale) => return Err(fault),
                _ => {}
            }
        }
        // 1. Check the marks again: a target that restarted since the round's flush has replayed entries that are unflushed.
        self.flush_marks(file, &snapshot.marks, round.within(round.busy_max.max(GLIMPSE_MAX)))?;
        let (is_valid, is_due, done) = {
            let mut meta = file.meta.lock();
            let is_valid = meta.progress.is_valid(snapshot);
            if is_valid {
                meta.progress.flushed(snapshot);
            }
            // `done`: the file has no writer, and the snapshot has all changes.
            let done = knows == Knows::All && meta.writers == 0 && meta.progress.is_still(snapshot);
            (is_valid, meta.needs_settling(), done)
        };
        if !is_valid || !is_due {
            return Ok(None);
        }
        let Some(generation) = file.share_body(round.until_free())?.layout.as_ref().map(|l| l.generation)
        else {
            // The file is inline by now, so the MDT has everything.
            let mut meta = file.meta.lock();
            meta.progress.was_told(snapshot);
            meta.is_marked = false;
            return Ok(None);
        };
        // 2. Counted blocks hold only if the file did not change since.
        let counted = counted.filter(|c| done && c.generation == generation);
        let blocks = match knows {
            Knows::All => counted.map_or(snapshot.blocks, |c| c.blocks),
            Knows::Part => snapshot.added,
        };
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
            is_part: knows == Knows::Part,
            held: file.held(),
        };
        Ok(Some(Due(req)))
    }

    /// Notes the MDT's answer to an update.
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
                    // Another client removed the file or its objects while it is open here, so these bytes are lost.
                    let why = format!("file {}: its objects are not the file's any more: {fault}", file.fid);
                    meta.poison.get_or_insert(Fault::new(Code::Io, why));
                }
                // The file or this generation of its layout is gone, so the MDT needs no update.
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

    /// Reports size, blocks and written stripes that a glimpse found. Returns also whether that was its last update for now: it has no writer. The objects are
    /// flushed (plan-O3), and the caller holds `order` and `body`.
    pub(crate) fn report_proven(
        &self,
        file: &File,
        layout: &mut Layout,
        size: u64,
        mtime: Time,
        proven: &Proven,
        deadline: Instant,
    ) -> Result<(Answer<SettleReply>, bool), Fault> {
        let done = file.meta.lock().writers == 0;
        let req = Settle {
            fid: file.fid,
            generation: layout.generation,
            size,
            blocks: proven.blocks,
            mtime,
            written: proven.written.clone(),
            done,
            hint: false,
            is_part: false,
            held: file.held(),
        };
        let answer = self.ask_until(file.fid, &req, deadline)?;
        proven.written.iter().for_each(|w| mark_written(layout, w));
        Ok((answer, done))
    }

    /// Reports flushed state even if this client wrote none of it: other clients may have written it.
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
        let (written, done, hint, is_part) = (written.clone(), false, false, false);
        let (fid, held) = (file.fid, file.held());
        let req = Settle { fid, generation, size, blocks, mtime, written, done, hint, is_part, held };
        let answer = self.ask_until(file.fid, &req, deadline)?;
        self.learn_written(file, snapshot, deadline)?;
        let mut meta = file.meta.lock();
        meta.progress.flushed(snapshot);
        meta.progress.was_told(snapshot);
        meta.saw(answer.mark);
        Ok(())
    }

    /// Sets the reported written bits in the layout, so that later pieces carry them.
    fn learn_written(&self, file: &File, snapshot: &Snapshot, deadline: Instant) -> Result<(), Fault> {
        // The body would be waited for. Until a later update this client knows the bits by its own writes.
        if file.is_behind() {
            return Ok(());
        }
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

/// Asks all targets at once. Returns those that failed.
pub(crate) fn failing(
    links: &[Arc<Link>],
    ask: &(dyn Fn(&Link) -> Result<(), Fault> + Sync),
) -> Vec<MirrorId> {
    let alone =
        |links: &[Arc<Link>]| links.iter().filter(|l| ask(l).is_err()).map(|l| l.mirror).collect::<Vec<_>>();
    // Targets in this process are asked in order on this thread, so that tests repeat.
    if links.len() <= 1 || links.iter().all(|l| !l.keeps()) {
        return alone(links);
    }
    let mut failed = Vec::new();
    for some in links.chunks(IN_FLIGHT_MAX) {
        // One thread per target: a hung target must not use up the time of the others.
        std::thread::scope(|scope| {
            let run = |link| {
                let one = std::slice::from_ref(link);
                let thread = std::thread::Builder::new().spawn_scoped(scope, move || alone(one));
                (one, thread)
            };
            let asked: Vec<_> = some.iter().map(run).collect();
            for (one, thread) in asked {
                failed.extend(match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| vec![one[0].mirror]),
                    // No thread could be started.
                    Err(_) => alone(one),
                });
            }
        });
    }
    failed
}
