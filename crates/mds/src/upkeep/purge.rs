//! The purge: objects of files that are gone are destroyed, then their records.
//!
//! mds-P1 (mds-M6): nothing is destroyed before the entry that made it dead is flushed; else a power loss brings the file back
//! without its bytes.  mds-P2: a record goes only after the OSTs flushed the destruction; else a power loss brings objects back
//! that nobody remembers.  Destroying twice is harmless, so a crash anywhere starts over.
//! mds-P3: every dead file has its turn. Rounds walk through the list, and begin anew only at its end: however many files of an
//! OST that is down come first, those behind them are freed.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meta::View;
use net::rpc;
use types::{Buf, Code, Fault, Fid, Key, Layout, ObjectId, TargetId};
use wire::object::{Capability, Destroy};
use wire::purge::{Dying, DyingReply};
use wire::session::Flush;
use wire::{Header, Request};

use crate::Core;
use crate::joined::Joined;
use crate::records::ids::no_lease;
use crate::records::look::{SnapView, look_around};

/// Files looked at in a round; doubled up to the maximum while some of them cannot be purged: each round waits for an OST
/// that is down, and few rounds should do.
const FILES_MIN: usize = 256;
const FILES_MAX: usize = 16 * 1024;
/// Objects named in one request: 24 KiB of body.
const OBJECTS_MAX: usize = 1024;
/// Records forgotten in one entry.
const FORGET_MAX: usize = 256;
/// An OST that takes longer is tried again later; a stop waits no longer than this.
const CALL_MAX: Duration = Duration::from_secs(3);
/// Longest pause after failures.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// Dead records looked at for who asks whether any names a mirror: first few, since mostly one of the first does. What lies behind
/// them is taken to name it.
const LOOKS: [usize; 2] = [64, 4096];
/// The capability is made anew each round.
const CAPABILITY_SEC: u64 = 3600;

/// What a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Purged {
    pub files: usize,
    /// Files whose OSTs did not all answer.
    pub left: usize,
}

/// How far the list of dead files has been walked through.
#[derive(Default)]
pub struct Walk {
    /// The last record that was looked at. None: it begins anew.
    at: Option<Key>,
    /// What this walk's rounds came to, or the last one's.
    sum: Purged,
    /// The news when it began: it comes by all of them.
    news: u64,
    /// Those that failed in the last round. They are asked last: the others' space need not wait until their time is over.
    failed: BTreeSet<TargetId>,
}

impl Walk {
    pub fn is_under_way(&self) -> bool {
        self.at.is_some()
    }
}

/// What the purge has come to since the start, for those who wait for it.
pub struct Counts {
    walks_begun: AtomicU64,
    walks_ended: AtomicU64,
    rounds: AtomicU64,
    /// Dead records that are gone.
    freed: AtomicU64,
    /// What a walk may find that one before it did not: dead records that were added, and new maps, by which OSTs may have come back.
    /// Counted when it can be seen: a walk that saw it uncounted has one to come.
    news: AtomicU64,
    /// The news when a whole walk began that left some and freed none, or one that failed; `GOES_ON` if something was freed since.
    held_up_at: AtomicU64,
}

const GOES_ON: u64 = u64::MAX;

impl Default for Counts {
    fn default() -> Counts {
        let zero = AtomicU64::default;
        Counts {
            walks_begun: zero(),
            walks_ended: zero(),
            rounds: zero(),
            freed: zero(),
            news: zero(),
            held_up_at: AtomicU64::new(GOES_ON),
        }
    }
}

impl Counts {
    pub fn on_died(&self, records: usize) {
        self.news.fetch_add(records as u64, Ordering::SeqCst);
    }

    pub fn on_new_map(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
    }
}

/// The records behind `key`, as the rules see them.
struct Behind<'a> {
    view: &'a SnapView<'a>,
    key: Option<Key>,
    /// The last one that was seen.
    seen: Cell<Option<Key>>,
}

impl View for Behind<'_> {
    fn get(&self, key: &Key) -> Option<Cow<'_, [u8]>> {
        self.view.get(key)
    }
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool) {
        let begin = self.key.map_or(*from, |key| key.max(*from));
        if begin >= *to {
            return;
        }
        self.view.range(&begin, to, &mut |key, value| {
            if Some(*key) == self.key {
                return true;
            }
            self.seen.set(Some(*key));
            f(key, value)
        });
    }
}

impl Core {
    /// The purge thread.
    pub fn purge(&self) {
        let (mut max, mut pause, mut back_off) = (FILES_MIN, self.commit_interval(), Duration::ZERO);
        let mut walk = Walk::default();
        while !self.is_stopping() {
            self.bells.purge.wait(pause);
            if self.is_stopping() {
                return;
            }
            let round = self.purge_round(&mut walk, max);
            let sum = walk.sum;
            if round.is_ok() {
                max = if sum.left == 0 { FILES_MIN } else { (max * 2).min(FILES_MAX) };
            }
            // mds-P3: the longer pauses come at the end of a walk that freed nothing.
            let is_vain = round.is_err() || (!walk.is_under_way() && sum.files == 0 && sum.left > 0);
            if is_vain {
                back_off =
                    (back_off * 2).clamp(self.commit_interval(), BACK_OFF_MAX.max(self.commit_interval()));
            } else if sum.files > 0 || sum.left == 0 {
                back_off = Duration::ZERO;
            }
            let is_busy = walk.is_under_way() && sum.left == 0;
            pause = match (is_vain, is_busy) {
                (true, _) => back_off,
                // Much to do: go on at once.
                (false, true) => Duration::ZERO,
                (false, false) => self.commit_interval(),
            };
            if let Err(fault) = round {
                tracing::warn!(%fault, "the purge of removed files' objects failed; it will be tried again");
            }
        }
    }

    /// Destroys the objects of the next `max` dead files of the walk.
    pub fn purge_round(&self, walk: &mut Walk, max: usize) -> Result<Purged, Fault> {
        if !walk.is_under_way() {
            // Before the snapshot is taken: who reads a smaller count afterwards saw nothing that this walk may miss.
            self.purged.walks_begun.fetch_add(1, Ordering::SeqCst);
            walk.sum = Purged::default();
            walk.news = self.purged.news.load(Ordering::SeqCst);
        }
        let round = self.purge_next(walk, max);
        if let Ok(Purged { files, left }) = round {
            walk.sum = Purged { files: walk.sum.files + files, left: walk.sum.left + left };
            self.purged.freed.fetch_add(files as u64, Ordering::SeqCst);
        }
        let is_vain = !walk.is_under_way() && walk.sum.files == 0 && walk.sum.left > 0;
        if round.is_err() || is_vain {
            self.purged.held_up_at.store(walk.news, Ordering::SeqCst);
        } else if walk.sum.files > 0 {
            self.purged.held_up_at.store(GOES_ON, Ordering::SeqCst);
        }
        self.purged.rounds.fetch_add(1, Ordering::SeqCst);
        if !walk.is_under_way() {
            self.purged.walks_ended.fetch_add(1, Ordering::SeqCst);
        }
        round
    }

    fn purge_next(&self, walk: &mut Walk, max: usize) -> Result<Purged, Fault> {
        let joined = self.joined()?;
        let (dead, seen) = look_around(&self.kv, &mut |view| {
            let behind = Behind { view, key: walk.at, seen: Cell::new(None) };
            (self.rules.dead_list(&behind, max), behind.seen.get())
        })?;
        walk.at = if dead.len() < max { None } else { seen };
        if dead.is_empty() {
            return Ok(Purged::default());
        }
        assert!(dead.len() <= max, "a round has its bound");
        // mds-P1: everything that was seen is flushed after this.
        self.flush()?;
        walk.failed = self.destroy_all(&joined, &dead, &walk.failed);
        let failed = &walk.failed;
        let (done, left): (Vec<_>, Vec<_>) = dead.into_iter().partition(|(fid, layout)| {
            targets_of(&joined, *fid, layout).all(|(_, target)| target.is_some_and(|t| !failed.contains(&t)))
        });
        for some in done.chunks(FORGET_MAX) {
            self.transact(&no_lease(), &mut |txn| {
                some.iter().for_each(|(fid, layout)| self.rules.forget_dead(txn, *fid, layout.generation));
                Ok(vec![])
            })?;
        }
        Ok(Purged { files: done.len(), left: left.len() })
    }

    /// Somebody found OSTs full: is space about to be free there?
    pub fn on_dying(&self, req: &Dying) -> Result<DyingReply, Fault> {
        let (dying, walks_begun) = look_around(&self.kv, &mut |view| {
            // A walk that begins later than this sees everything that is dead in the view.
            let walks_begun = self.purged.walks_begun.load(Ordering::SeqCst);
            let dying = LOOKS.iter().any(|max| {
                let dead = self.rules.dead_list(view, *max);
                let mut mirrors =
                    dead.iter().flat_map(|(fid, layout)| layout.objects(*fid)).map(|(_, m, _)| m);
                mirrors.any(|m| req.mirrors.contains(&m)) || (dead.len() == *max && LOOKS.last() == Some(max))
            });
            (dying, walks_begun)
        })?;
        let news = self.purged.news.load(Ordering::SeqCst);
        let held_up = dying && self.purged.held_up_at.load(Ordering::SeqCst) == news;
        // Else its longer pauses would be void for as long as somebody finds an OST full.
        if dying && !held_up {
            self.bells.purge.ring();
        }
        let walks_ended = self.purged.walks_ended.load(Ordering::SeqCst);
        Ok(DyingReply {
            dying,
            held_up,
            walks_begun,
            walks_ended,
            rounds: self.purged.rounds.load(Ordering::SeqCst),
            freed: self.purged.freed.load(Ordering::SeqCst),
            news,
        })
    }

    /// Destroys on every target what is dead there, and flushes; returns the targets where that did not work. Those of `late` come last.
    fn destroy_all(
        &self,
        joined: &Joined,
        dead: &[(Fid, Layout)],
        late: &BTreeSet<TargetId>,
    ) -> BTreeSet<TargetId> {
        let mut by_target = BTreeMap::<TargetId, Vec<ObjectId>>::new();
        for (fid, layout) in dead {
            for (object, target) in targets_of(joined, *fid, layout) {
                // A mirror that the map does not know has no target: its files stay on the list.
                if let Some(target) = target {
                    by_target.entry(target).or_default().push(object);
                }
            }
        }
        let (last, first): (Vec<_>, Vec<_>) = by_target.into_iter().partition(|(t, _)| late.contains(t));
        let (mut failed, mut is_news) = (BTreeSet::new(), false);
        for (target, objects) in first.into_iter().chain(last) {
            if is_news && late.contains(&target) {
                // What was destroyed until here is free: who waits for it tries again now.
                self.purged.rounds.fetch_add(1, Ordering::SeqCst);
                is_news = false;
            }
            let outcome = match self.is_stopping() {
                true => Err(Fault::new(Code::NotReady, "stopping")),
                false => self.destroy(joined, target, &objects),
            };
            match outcome {
                Ok(()) => is_news = true,
                Err(fault) => {
                    tracing::debug!(target_id = target.0, %fault, "objects could not be destroyed yet");
                    failed.insert(target);
                }
            }
        }
        failed
    }

    fn destroy(&self, joined: &Joined, target: TargetId, objects: &[ObjectId]) -> Result<(), Fault> {
        let cap = self.admin_capability(joined);
        for some in objects.chunks(OBJECTS_MAX) {
            self.ask(joined, target, &Destroy { cap: cap.clone(), objects: some.to_vec() })?;
        }
        // mds-P2.
        self.ask(joined, target, &Flush {})?;
        Ok(())
    }

    fn admin_capability(&self, joined: &Joined) -> Capability {
        object::cap::make_admin(&joined.secret, self.clock.wall().sec.max(0) as u64 + CAPABILITY_SEC)
    }

    fn ask<R: Request>(&self, joined: &Joined, target: TargetId, req: &R) -> Result<R::Reply, Fault> {
        let unreachable = |why: String| Fault::new(Code::Timeout, format!("OST target {target}: {why}"));
        let peer = joined.fabric.peer(target).map_err(|e| unreachable(e.to_string()))?;
        let head =
            Header { fs: joined.fs, target, ms_left: CALL_MAX.as_millis() as u32, ..Header::default() };
        let (_, _, reply) = rpc::call(&*peer, head, req, &[], &mut Buf::new(), Instant::now() + CALL_MAX)
            .map_err(|e| unreachable(e.to_string()))?;
        reply
    }
}

/// Each object of a file with the target that has it, as the map says.
fn targets_of<'a>(
    joined: &'a Joined,
    fid: Fid,
    layout: &'a Layout,
) -> impl Iterator<Item = (ObjectId, Option<TargetId>)> + 'a {
    let primaries: &HashMap<_, _> = &joined.primaries;
    layout.objects(fid).map(|(object, mirror, _)| (object, primaries.get(&mirror).copied()))
}
