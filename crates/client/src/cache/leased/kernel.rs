//! Names that the kernel may use without asking (client-LE5).
//!
//! The kernel has a notice for a name. It takes the lock of the directory, whose holder may be a call here that waits for another client, whose call
//! waits for this notice. So the notice is given on a thread apart, and the time-out of the name ends the wait. The notice makes the kernel drop a
//! directory's entry, also one that is a working directory or has mounts below. So it is used for a name that another client changes,
//! and for files. Where all names of a directory are to be forgotten, those of its subdirectories run out: the MDT tells of changes until then
//! (lease-L5).

use std::sync::mpsc;

use super::*;

/// Names of one shard that the kernel may know. Past it no time-out is given.
pub(super) const SHARD_MAX: usize = NAMES_MAX / 4;
/// Names in a directory that was given back get no time-out for so long: it may be contested, and then each change would have to tell the kernel.
const REST_MS: u64 = 2 * lease::REST_MS;
/// Entries of a shard before those that ran out are looked for.
const SWEEP_MIN: usize = 1024;

/// What a client tells its kernel.
pub trait Kernel: Send + Sync {
    /// To forget the attributes of these inodes. Waits for nothing but the end of an inode.
    fn attributes(&self, fids: &[Fid]);
    /// To forget these names, with their directories, and to call `done` then. Returns at once.
    fn names(&self, names: Vec<(Fid, Box<[u8]>)>, done: Box<dyn FnOnce() + Send>);
}

pub(super) struct InKernel {
    pub name: Box<[u8]>,
    pub until_ms: u64,
    pub is_dir: bool,
}

#[derive(Default)]
pub(super) struct KernelNames {
    dirs: HashMap<Fid, HashMap<u64, InKernel>>,
    /// Directories that were given back, and until when they rest.
    resting: HashMap<Fid, u64>,
    pub count: usize,
    sweep_at: usize,
}

/// Names that the kernel is to forget, and when the last of their time-outs ends.
#[derive(Default)]
pub(super) struct Recalled {
    names: Vec<(Fid, Box<[u8]>)>,
    names_end_ms: u64,
}

impl KernelNames {
    /// False: there is no room.
    pub fn note(&mut self, (dir, h64): (Fid, u64), of: InKernel) -> bool {
        if self.count >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep();
        }
        if self.count >= SHARD_MAX {
            return false;
        }
        // Of two names with one hash the kernel may know both. The later one has no time-out.
        let names = self.dirs.entry(dir).or_default();
        if names.get(&h64).is_some_and(|old| old.name != of.name && old.until_ms > now_ms()) {
            return false;
        }
        let until_ms = names.get(&h64).map_or(0, |old| old.until_ms).max(of.until_ms);
        self.count += usize::from(names.insert(h64, InKernel { until_ms, ..of }).is_none());
        true
    }

    fn sweep(&mut self) {
        let now = now_ms();
        self.resting.retain(|_, until_ms| *until_ms > now);
        self.dirs.retain(|_, names| {
            names.retain(|_, name| name.until_ms > now);
            !names.is_empty()
        });
        self.count = self.dirs.values().map(HashMap::len).sum();
        self.sweep_at = 2 * self.count;
    }

    fn take(&mut self, dir: Fid, h64: u64, to: &mut Recalled) {
        let Some(of) = self.dirs.get_mut(&dir).and_then(|names| names.remove(&h64)) else { return };
        self.count -= 1;
        if of.until_ms > now_ms() {
            to.names_end_ms = to.names_end_ms.max(of.until_ms);
            to.names.push((dir, of.name));
        }
    }

    /// Subdirectories stay noted until their time-outs have ended.
    fn take_all(&mut self, dir: Fid, to: &mut Recalled) {
        let now = now_ms();
        if self.resting.len() >= SWEEP_MIN {
            self.resting.retain(|_, until_ms| *until_ms > now);
        }
        self.resting.insert(dir, now + REST_MS);
        let Some(names) = self.dirs.get_mut(&dir) else { return };
        let before = names.len();
        for (_, of) in names.extract_if(|_, of| !of.is_dir || of.until_ms <= now) {
            if of.until_ms > now {
                to.names_end_ms = to.names_end_ms.max(of.until_ms);
                to.names.push((dir, of.name));
            }
        }
        self.count -= before - names.len();
    }
}

impl Leased {
    fn names_in_kernel(&self, dir: Fid) -> parking_lot::MutexGuard<'_, KernelNames> {
        self.shard(dir).in_kernel.lock()
    }

    /// The kernel is about to be told of a name, and may have a time-out for it. For one that does not exist, from the second time on: most programs
    /// look a name up once before they make it, and then the kernel is busy with it.
    pub(super) fn may_time_out(&self, leave: &Leave, name: &[u8]) -> bool {
        let (dir, h64) = (leave.dir, leave.h64);
        let mut names = self.names_in_kernel(dir);
        if names.resting.get(&dir).is_some_and(|until_ms| *until_ms > now_ms()) {
            return false;
        }
        let was_asked = || names.dirs.get(&dir).is_some_and(|of| of.contains_key(&h64));
        if leave.fid != Fid(0) || was_asked() {
            return true;
        }
        names.note((dir, h64), InKernel { name: name.into(), until_ms: 0, is_dir: false });
        false
    }

    /// The kernel is about to know a name until then. False: it must not.
    pub(super) fn note_in_kernel(
        &self,
        (dir, h64): (Fid, u64),
        name: &[u8],
        is_dir: bool,
        until_ms: u64,
    ) -> bool {
        let is_noted =
            self.names_in_kernel(dir).note((dir, h64), InKernel { name: name.into(), until_ms, is_dir });
        if is_noted {
            self.names_end_ms.fetch_max(until_ms, Ordering::SeqCst);
        }
        is_noted
    }

    /// The kernel is about to move what it knows by the first name to the second one, with its time-out. Returns how long it may use it there, and
    /// whether that is noted; `None`: it asks.
    pub fn kernel_moves(&self, from: (Fid, &[u8]), to: (Fid, &[u8])) -> Option<(Duration, bool)> {
        let (until_ms, is_dir) = {
            let of = self.names_in_kernel(from.0);
            let name = of.dirs.get(&from.0)?.get(&h64(from.1))?;
            (name.until_ms, name.is_dir)
        };
        let left = left_until(until_ms);
        (!left.is_zero()).then(|| (left, self.note_in_kernel((to.0, h64(to.1)), to.1, is_dir, until_ms)))
    }

    /// The kernel learns that a name exists which it knew as absent, under the directory's lock, and has no time-out for it.
    pub(super) fn has_no_time_out(&self, dir: Fid, h64: u64) {
        self.names_in_kernel(dir).take(dir, h64, &mut Recalled::default());
    }

    /// The MDT tells this client of changes in `dir`.
    pub fn is_told_of(&self, dir: Fid) -> bool {
        self.flags_for(dir) == Flags::LEASE_HELD
    }

    /// No other client has changed anything in the directory since.
    pub fn is_unchanged(&self, dir: Fid, since: Since) -> bool {
        self.holds(since, self.dirs.get(dir.0))
    }

    /// Replies that were judged before have left.
    pub(super) fn recall(&self, dir: Fid, h64: u64, whole: bool, to: &mut Recalled) {
        let mut names = self.names_in_kernel(dir);
        if h64 != 0 {
            names.take(dir, h64, to);
        }
        if whole {
            names.take_all(dir, to);
        }
    }

    /// client-LE3: returns once the kernel uses none of these names.
    pub(super) fn drop_in_kernel(&self, recalled: Recalled) {
        let Recalled { names, names_end_ms } = recalled;
        if !names.is_empty()
            && let Some(kernel) = self.kernel.read().as_ref()
        {
            let (done, is_done) = mpsc::channel();
            kernel.names(names, Box::new(move || _ = done.send(())));
            if is_done.recv_timeout(left_until(names_end_ms)).is_err() {
                tracing::debug!("the kernel was busy: names that others changed ran out");
            }
        }
    }

    /// As `void`, and no name of the kernel's is left.
    pub fn void_with_names(&self) {
        self.void();
        let left = self.void_names_left();
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }

    /// How long the kernel may use names whose leases are void.
    pub fn void_names_left(&self) -> Duration {
        left_until(self.void_names_end_ms.load(Ordering::SeqCst))
    }

    /// Called by `void`, once replies that were judged before have left.
    pub(super) fn names_are_void(&self) {
        self.void_names_end_ms.fetch_max(self.names_end_ms.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

fn left_until(end_ms: u64) -> Duration {
    Duration::from_millis(end_ms.saturating_sub(now_ms()))
}
