//! Empties an OST that is marked as draining: moves the objects of all files to other OSTs, while other clients work (decision 0077).
//!
//! A round scans all inodes. Files whose layout names the OST go to several workers (`migrate.rs`). Rounds go on until no file names it and
//! no object is on it, or only files are left that another round does not help.
//!
//! client-DR1: a drain keeps no state of its own. It can end at any time, and the next one goes on with what it finds.

mod migrate;
mod pace;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use types::{Fault, Fid, Generation, Layout, MirrorId, Uuid};
use wire::meta::{PathOf, ScanRecord};
use wire::object::{Capability, List};

use crate::Fs;
use crate::fsck::sweep;
use migrate::{Kept, Moved, Pace};
use pace::Bucket;

/// Validity of the capability. A drain of a very large OST takes days, and makes a new one each round.
const CAPABILITY_SEC: u64 = 7 * 24 * 3600;
/// Files that wait for a worker.
const QUEUE_MAX: usize = 256;
/// Most files that are remembered as left, and most paths that are looked up.
const LEFT_MAX: usize = 4096;
const NAMED_MAX: usize = 20;
/// From this round on a file of at most `FORCED_BYTES_MAX` is copied also while other clients wait for it: about a second.
const FORCED_FROM: u32 = 4;
const FORCED_BYTES_MAX: u64 = 64 << 20;
/// Most objects that are looked at one by one. More are not left by chance.
const LEAKS_MAX: usize = 1000;
/// Rounds without a change after which objects that no record names count as leaked.
const LEAKED_AFTER: u32 = 4;

/// Parameters of a drain.
#[derive(Clone, Debug)]
pub struct How {
    /// Files that are copied at the same time.
    pub workers: usize,
    /// Bytes per second of all workers together; `None`: no bound.
    pub rate: Option<u64>,
    /// The drain ends then, with what is left.
    pub until: Option<Instant>,
    /// Records and objects per request.
    pub page: u32,
    /// First and longest pause between two rounds that moved nothing. It doubles.
    pub pause: (Duration, Duration),
}

impl How {
    /// As `stria target drain` does.
    pub const TOOL: How = How {
        workers: 4,
        rate: None,
        until: None,
        page: 1024,
        pause: (Duration::from_millis(200), Duration::from_secs(5)),
    };
}

/// Why a file is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Other clients use it again and again, or a server restarts.
    Busy,
    /// It has no name, and is open somewhere: it goes with its last close.
    Unlinked,
    /// It cannot be read or written: another round does not help.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    pub fid: Fid,
    /// Known for the first ones in a report.
    pub path: String,
    pub why: Why,
    pub what: String,
}

/// The state of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub rounds: u32,
    /// Files whose content was copied.
    pub files: u64,
    /// Bytes that were copied, also by attempts that were given up.
    pub bytes: u64,
    /// Files that had no object there, and whose layout named it.
    pub repointed: u64,
    /// Files that are left, by the last round.
    pub left: Vec<Left>,
    pub left_count: u64,
    /// Objects on the OST, and those of them that no file names.
    pub objects: u64,
    pub leaked: u64,
    /// The caller ended it.
    pub is_ended: bool,
}

impl Report {
    /// No file has bytes there, or would write there.
    pub fn is_empty(&self) -> bool {
        self.left_count == 0 && self.objects == self.leaked && !self.is_ended
    }
}

/// Drains `mirror`. `tell` gets the state after each file or so; `stop` ends the drain soon. `secret` is the file system's key.
pub fn drain(
    fs: &Fs,
    secret: &Uuid,
    mirror: MirrorId,
    how: &How,
    stop: &AtomicBool,
    tell: &(dyn Fn(&Report) + Sync),
) -> Result<Report, Fault> {
    let work = Work { fs, mirror, how, stop, tell, bucket: Bucket::new(how.rate), report: Mutex::default() };
    let (mut pause, mut quiet) = (how.pause.0, 0);
    let is_whole = loop {
        let before = work.report.lock().clone();
        let cap = admin(secret);
        let (objects, is_whole) = work.round(&cap)?;
        if !is_whole {
            // Files that the round before left are left still, as far as this one knows.
            let mut report = work.report.lock();
            if report.left_count < before.left_count {
                (report.left, report.left_count) = (before.left, before.left_count);
            }
            break false;
        }
        let now = work.report.lock().clone();
        let has_moved = (now.files, now.repointed) != (before.files, before.repointed);
        let is_quiet = !has_moved && (now.objects, now.left_count) == (before.objects, before.left_count);
        quiet = if is_quiet && before.rounds > 0 { quiet + 1 } else { 0 };
        if now.left_count == 0 && now.objects > 0 && quiet >= LEAKED_AFTER {
            work.report.lock().leaked = work.count_leaked(&cap, &objects)?;
        }
        let now = work.report.lock().clone();
        let is_hopeless = now.left_count > 0 && now.left.iter().all(|left| left.why == Why::Failed);
        if work.is_over() || now.is_empty() || is_hopeless {
            break true;
        }
        (work.tell)(&now);
        pause = if has_moved { how.pause.0 } else { (pause * 2).min(how.pause.1) };
        work.rest(pause);
    };
    let mut report = work.report.into_inner();
    let is_over = stop.load(Ordering::SeqCst) || how.until.is_some_and(|until| Instant::now() >= until);
    report.is_ended = !is_whole || (is_over && (report.left_count > 0 || report.objects > report.leaked));
    for left in report.left.iter_mut().take(NAMED_MAX) {
        left.path = match fs.ask(left.fid, &PathOf { fid: left.fid }) {
            Ok(reply) => String::from_utf8_lossy(&reply.path).into_owned(),
            Err(_) => format!("<{}>", left.fid),
        };
    }
    Ok(report)
}

fn admin(secret: &Uuid) -> Capability {
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    object::cap::make_admin(secret, now_sec + CAPABILITY_SEC)
}

/// A file for a worker.
struct Job {
    fid: Fid,
    size: u64,
    pending: Option<Generation>,
}

struct Work<'a> {
    fs: &'a Fs,
    mirror: MirrorId,
    how: &'a How,
    stop: &'a AtomicBool,
    tell: &'a (dyn Fn(&Report) + Sync),
    bucket: Bucket,
    report: Mutex<Report>,
}

impl Work<'_> {
    fn is_over(&self) -> bool {
        let is_late = self.how.until.is_some_and(|until| Instant::now() >= until);
        is_late || self.stop.load(Ordering::SeqCst) || self.fs.is_stopping()
    }

    /// Waits, but not past the end of the drain.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One round. Returns the first objects that are on the OST after it, and whether all inodes were scanned.
    fn round(&self, cap: &Capability) -> Result<(Vec<(Fid, Generation)>, bool), Fault> {
        let round = {
            let mut report = self.report.lock();
            report.left.clear();
            (report.left_count, report.leaked) = (0, 0);
            report.rounds += 1;
            report.rounds
        };
        let (jobs, queue) = mpsc::sync_channel::<Job>(QUEUE_MAX);
        let queue = Mutex::new(queue);
        let mut is_whole = true;
        let scanned = std::thread::scope(|scope| {
            for _ in 0..self.how.workers.max(1) {
                scope.spawn(|| {
                    loop {
                        // The lock is held while a worker waits: the others wait for it instead.
                        let job = queue.lock().recv();
                        let Ok(job) = job else { return };
                        self.move_file(&job, cap, round);
                    }
                });
            }
            let scanned = sweep::scan(self.fs, sweep::inodes(), self.how.page, &mut |record| {
                // Inodes are followed by records of other kinds.
                let ScanRecord::Inode { inode, pending, .. } = record else { return false };
                let is_meant = self.names(&inode.layout) || self.names(&pending);
                let (fid, size) = (inode.attr.fid, inode.attr.size);
                if is_meant && inode.attr.nlink == 0 {
                    self.leave(fid, Why::Unlinked, "it is unlinked, and open somewhere".into());
                } else if is_meant {
                    let pending = pending.filter(|p| self.names(&Some(p.clone()))).map(|p| p.generation);
                    // Workers end after the last job, so one takes it.
                    _ = jobs.send(Job { fid, size, pending });
                }
                is_whole = !self.is_over();
                is_whole
            });
            drop(jobs);
            scanned
        });
        scanned?;
        Ok((self.list(cap)?, is_whole))
    }

    fn names(&self, layout: &Option<Layout>) -> bool {
        let is_its = |l: &Layout| l.components.iter().any(|c| c.mirrors.contains(&self.mirror));
        layout.as_ref().is_some_and(is_its)
    }

    fn move_file(&self, job: &Job, cap: &Capability, round: u32) {
        if self.is_over() {
            return self.leave(job.fid, Why::Busy, "the drain ended before".into());
        }
        let is_forced = round >= FORCED_FROM && job.size <= FORCED_BYTES_MAX;
        let go_on = |bytes: u64, must_end: &dyn Fn() -> bool| {
            self.report.lock().bytes += bytes;
            if !is_forced {
                self.bucket.take(bytes, &|| self.is_over() || must_end());
            }
            !self.is_over()
        };
        let pace = Pace { gives_way: !is_forced, go_on: &go_on };
        let moved = self.fs.migrate(job.fid, cap, self.mirror, job.pending, &pace);
        match moved {
            Ok(Moved::Copied) => self.report.lock().files += 1,
            Ok(Moved::Repointed) => self.report.lock().repointed += 1,
            Ok(Moved::Nothing) => {}
            Err(Kept::Busy(what)) => self.leave(job.fid, Why::Busy, what),
            Err(Kept::Unlinked) => {
                self.leave(job.fid, Why::Unlinked, "it is unlinked, and open somewhere".into())
            }
            Err(Kept::Ended) => self.leave(job.fid, Why::Busy, "the drain ended before".into()),
            Err(Kept::Failed(fault)) => self.leave(job.fid, Why::Failed, fault.to_string()),
        }
        let report = self.report.lock().clone();
        (self.tell)(&report);
    }

    fn leave(&self, fid: Fid, why: Why, what: String) {
        let mut report = self.report.lock();
        report.left_count += 1;
        if report.left.len() < LEFT_MAX {
            report.left.push(Left { fid, path: String::new(), why, what });
        }
    }

    /// Counts the objects that are on the OST.
    fn list(&self, cap: &Capability) -> Result<Vec<(Fid, Generation)>, Fault> {
        let (mut after, mut count) = (None, 0);
        let mut first = BTreeSet::new();
        let link = self.fs.ost(self.mirror, self.fs.deadline())?;
        loop {
            let req = List { cap: cap.clone(), after, max: self.how.page };
            let reply = link.ask(Fid(0), &req, self.fs.deadline())?.reply;
            count += reply.objects.len() as u64;
            let room = (LEAKS_MAX + 1).saturating_sub(first.len());
            first.extend(reply.objects.iter().take(room).map(|s| (s.object.fid, s.object.generation)));
            after = reply.objects.last().map(|stat| stat.object);
            if !reply.more || after.is_none() || self.is_over() {
                self.report.lock().objects = count;
                return Ok(first.into_iter().collect());
            }
        }
    }

    /// Objects that neither a file nor the unlink log names: they only take space (`stria fsck` finds them).
    fn count_leaked(&self, cap: &Capability, objects: &[(Fid, Generation)]) -> Result<u64, Fault> {
        if objects.len() > LEAKS_MAX {
            return Ok(0);
        }
        for (fid, generation) in objects {
            let is_its = |l: &Option<Layout>| l.as_ref().is_some_and(|l| l.generation == *generation);
            let is_named = match sweep::inode(self.fs, *fid)? {
                Some(ScanRecord::Inode { inode, pending, .. }) => is_its(&inode.layout) || is_its(&pending),
                _ => false,
            };
            if is_named || sweep::is_dead(self.fs, *fid)? {
                return Ok(0);
            }
        }
        self.list(cap)?;
        Ok(self.report.lock().objects)
    }
}
