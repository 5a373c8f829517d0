//! The purge: destroys the objects of unlinked files, then deletes their records from the unlink log.
//!
//! mds-P1: no object is destroyed before the entry that put it into the unlink log is flushed (mds-M6). Otherwise a power loss would bring
//!     the file back without its bytes.
//! mds-P2: a record is deleted only after the OSTs flushed the destruction. Otherwise a power loss would bring back objects without a record.
//! mds-P3: every record has its turn. Rounds walk through the unlink log and begin anew only at its end, so files of an OST that is down do not
//!     keep later ones from being freed.
//! mds-P4: a file's objects on a mirror that was removed from the cluster do not keep its record: they are gone with their target.
//!
//! Destroying an object twice is harmless, so a crash at any point starts over.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use meta::View;
use net::rpc;
use types::{Buf, Code, Fault, Fid, Key, Layout, MirrorId, ObjectId, TargetId};
use wire::object::{Capability, Destroy};
use wire::purge::{Dying, DyingReply};
use wire::session::Flush;
use wire::{Header, Request};

use crate::Core;
use crate::joined::Joined;
use crate::records::ids::no_lease;
use crate::records::look::{SnapView, look_around};

/// Files per round. The number doubles up to the maximum while some files cannot be purged: each round waits for an OST that is down, so
/// there should be few rounds.
const FILES_MIN: usize = 256;
const FILES_MAX: usize = 16 * 1024;
/// Most objects of one request: 24 KiB of body.
const OBJECTS_MAX: usize = 1024;
/// Most records that one entry deletes.
const FORGET_MAX: usize = 256;
/// An OST that takes longer is tried again later. A stop waits for this time at most.
const CALL_MAX: Duration = Duration::from_secs(3);
/// Longest pause after failures.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// Records of the unlink log that are read to tell whether any names a mirror: few at first, since mostly one of the first does. If there
/// are more records, the answer is yes.
const LOOKS: [usize; 2] = [64, 4096];
/// Validity of the capability, which is made anew each round.
const CAPABILITY_SEC: u64 = 3600;

/// Result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Purged {
    pub files: usize,
    /// Files of which an OST did not answer.
    pub left: usize,
}

/// Position of a walk through the unlink log.
#[derive(Default)]
pub struct Walk {
    /// The last record that was read. `None`: the walk begins anew.
    at: Option<Key>,
    /// Sum of the rounds of this walk, or of the last one.
    sum: Purged,
    /// `Counts::news` when the walk began. The walk passes all of them.
    news: u64,
    /// Targets that failed in the last round. They are asked last, so that space on other OSTs does not wait for their time-out.
    failed: BTreeSet<TargetId>,
}

impl Walk {
    pub fn is_under_way(&self) -> bool {
        self.at.is_some()
    }
}

/// Progress of the purge since the start, for requests that wait for free space.
pub struct Counts {
    walks_begun: AtomicU64,
    walks_ended: AtomicU64,
    rounds: AtomicU64,
    /// Records deleted from the unlink log.
    freed: AtomicU64,
    /// Events that give a walk more to do than the one before: added records, and new maps, which may bring OSTs back. Counted after the event
    /// is visible. A walk that sees an event before it is counted is followed by one more walk.
    news: AtomicU64,
    /// `news` at the begin of a whole walk that failed, or left records and freed none. `GOES_ON` if something was freed since.
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

/// A view of the records behind `key`.
struct Behind<'a> {
    view: &'a SnapView<'a>,
    key: Option<Key>,
    /// The last record that was read.
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
            // mds-P3: only a whole walk that freed nothing makes the pause longer.
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
                // There is more to do, so go on at once.
                (false, true) => Duration::ZERO,
                (false, false) => self.commit_interval(),
            };
            if let Err(fault) = round {
                tracing::warn!(%fault, "the purge of removed files' objects failed; it will be tried again");
            }
        }
    }

    /// Destroys the objects of the next `max` files of the walk.
    pub fn purge_round(&self, walk: &mut Walk, max: usize) -> Result<Purged, Fault> {
        if !walk.is_under_way() {
            // Before the snapshot: a request that reads the smaller count saw no record that this walk may miss.
            self.purged.walks_begun.fetch_add(1, Ordering::SeqCst);
            walk.sum = Purged::default();
            walk.news = self.purged.news.load(Ordering::SeqCst);
        }
        let round = self.purge_next(walk, max);
        if let Ok(Purged { files, left }) = round {
            assert!(files + left <= max, "a round has its bound");
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
            let ended = self.purged.walks_ended.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(ended <= self.purged.walks_begun.load(Ordering::SeqCst), "a walk ends after it began");
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
        // mds-P1: flushes every record that was read.
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

    /// A client found OSTs full. Tells whether space is about to become free there.
    pub fn on_dying(&self, req: &Dying) -> Result<DyingReply, Fault> {
        let (dying, walks_begun) = look_around(&self.kv, &mut |view| {
            // A walk that begins after this sees every record of the view.
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
        // A purge that is held up is not rung, or its longer pauses would have no effect while a client finds an OST full.
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

    /// Destroys the objects on every target, and flushes. Returns the targets that failed. Targets of `late` come last.
    fn destroy_all(
        &self,
        joined: &Joined,
        dead: &[(Fid, Layout)],
        late: &BTreeSet<TargetId>,
    ) -> BTreeSet<TargetId> {
        let mut by_target = BTreeMap::<TargetId, Vec<ObjectId>>::new();
        for (fid, layout) in dead {
            for (object, target) in targets_of(joined, *fid, layout) {
                // A mirror that the map does not know has no target, so its files stay in the unlink log.
                if let Some(target) = target {
                    by_target.entry(target).or_default().push(object);
                }
            }
        }
        let (last, first): (Vec<_>, Vec<_>) = by_target.into_iter().partition(|(t, _)| late.contains(t));
        let (mut failed, mut is_news) = (BTreeSet::new(), false);
        for (target, objects) in first.into_iter().chain(last) {
            if is_news && late.contains(&target) {
                // The objects destroyed so far are free, so clients that wait for space may try again now.
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

/// The objects of a file, each with its target in the map. Objects of a removed mirror are left out: they are gone with it (mds-P4).
fn targets_of<'a>(
    joined: &'a Joined,
    fid: Fid,
    layout: &'a Layout,
) -> impl Iterator<Item = (ObjectId, Option<TargetId>)> + 'a {
    let primaries: &HashMap<_, _> = &joined.primaries;
    let is_there = |mirror: &MirrorId| !joined.is_removed(*mirror);
    layout
        .objects(fid)
        .filter(move |(_, mirror, _)| is_there(mirror))
        .map(|(object, mirror, _)| (object, primaries.get(&mirror).copied()))
}
