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
/// Time between two such looks.
pub(super) const SWEEP_EACH_MS: u64 = 100;

/// The kernel of a mount, as its client tells it what to forget.
pub trait Kernel: Send + Sync {
    /// To forget the attributes of these inodes. Waits for nothing but the end of an inode.
    fn attributes(&self, fids: &[Fid]);
    /// To forget these names, with their directories, and to call `done` then. Returns at once. Names that are left once `is_given_up` is set have run
    /// out. Dropped, `done` means that no thread is there for it.
    fn names(
        &self,
        names: Vec<(Fid, Box<[u8]>)>,
        is_given_up: &Arc<AtomicBool>,
        done: Box<dyn FnOnce() + Send>,
    );
}

pub(super) struct InKernel {
    pub name: Box<[u8]>,
    /// On the clock by which the kernel counts.
    pub until_ms: u64,
    pub is_dir: bool,
}

#[derive(Default)]
pub(super) struct KernelNames {
    dirs: HashMap<Fid, HashMap<u64, Noted>>,
    /// Names of renames that are under way.
    moving: HashMap<(Fid, u64), usize>,
    /// Directories that were given back, and until when they rest.
    resting: HashMap<Fid, u64>,
    pub count: usize,
    sweep_at: usize,
    swept_ms: u64,
    notes: u64,
}

struct Noted {
    of: InKernel,
    /// The number of the note.
    number: u64,
}

/// Names that the kernel is to forget, by the numbers of their notes, and when the last of their time-outs ends. They stay noted until then: a rename
/// here may be about to move them.
#[derive(Default)]
pub(super) struct Recalled {
    names: Vec<(Fid, Box<[u8]>)>,
    numbers: Vec<(Fid, u64, u64)>,
    names_end_ms: u64,
}

impl Recalled {
    fn add(&mut self, dir: Fid, h64: u64, noted: &Noted) {
        self.names_end_ms = self.names_end_ms.max(noted.of.until_ms);
        self.names.push((dir, noted.of.name.clone()));
        self.numbers.push((dir, h64, noted.number));
    }
}

/// The kernel's clock for time-outs in milliseconds: it stands still while the machine sleeps.
fn kernel_ms() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

impl KernelNames {
    /// False: there is no room.
    pub fn note(&mut self, (dir, h64): (Fid, u64), of: InKernel) -> bool {
        let now = kernel_ms();
        if self.count >= self.sweep_at.max(SWEEP_MIN) && self.swept_ms + SWEEP_EACH_MS <= now {
            self.sweep(now);
        }
        if self.count >= SHARD_MAX {
            return false;
        }
        self.notes += 1;
        let number = self.notes;
        let names = self.dirs.entry(dir).or_default();
        let old = names.get(&h64).map(|noted| &noted.of).filter(|old| old.until_ms > now);
        // Of two names with one hash the kernel may know both. The later one has no time-out.
        if old.is_some_and(|old| old.name != of.name) {
            return false;
        }
        let until_ms = old.map_or(0, |old| old.until_ms).max(of.until_ms);
        // A name that may be a file's is told like one.
        let is_dir = of.is_dir && old.is_none_or(|old| old.is_dir);
        let noted = Noted { of: InKernel { until_ms, is_dir, ..of }, number };
        self.count += usize::from(names.insert(h64, noted).is_none());
        true
    }

    fn sweep(&mut self, now: u64) {
        self.resting.retain(|_, until_ms| *until_ms > now);
        self.dirs.retain(|_, names| {
            names.retain(|_, noted| noted.of.until_ms > now);
            !names.is_empty()
        });
        self.count = self.dirs.values().map(HashMap::len).sum();
        (self.sweep_at, self.swept_ms) = ((2 * self.count).min(SHARD_MAX), now);
    }

    fn get(&self, dir: Fid, h64: u64) -> Option<&InKernel> {
        Some(&self.dirs.get(&dir)?.get(&h64)?.of)
    }

    /// Strikes a note out, if it was not made anew.
    fn strike(&mut self, dir: Fid, h64: u64, number: u64) {
        let Some(names) = self.dirs.get_mut(&dir) else { return };
        if names.get(&h64).is_some_and(|noted| noted.number == number) {
            names.remove(&h64);
            self.count -= 1;
        }
        if names.is_empty() {
            self.dirs.remove(&dir);
        }
    }

    fn take(&self, dir: Fid, h64: u64, to: &mut Recalled) {
        let noted = self.dirs.get(&dir).and_then(|names| names.get(&h64));
        if let Some(noted) = noted.filter(|noted| noted.of.until_ms > kernel_ms()) {
            to.add(dir, h64, noted);
        }
    }

    /// Subdirectories stay noted until their time-outs have ended.
    fn take_all(&mut self, dir: Fid, to: &mut Recalled) {
        let now = kernel_ms();
        if self.resting.len() >= SWEEP_MIN {
            self.resting.retain(|_, until_ms| *until_ms > now);
        }
        self.resting.insert(dir, now + REST_MS);
        let names = self.dirs.get(&dir).into_iter().flatten();
        let is_told = |noted: &Noted| !noted.of.is_dir && noted.of.until_ms > now;
        names.filter(|(_, noted)| is_told(noted)).for_each(|(h64, noted)| to.add(dir, *h64, noted));
    }
}

/// A rename is under way. Its names get no time-out in the kernel, which moves the one that it has.
pub(crate) struct Moving<'a> {
    leased: &'a Leased,
    names: [(Fid, u64); 2],
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        for (dir, h64) in self.names {
            let mut of = self.leased.names_in_kernel(dir);
            if let Some(count) = of.moving.get_mut(&(dir, h64)) {
                *count -= 1;
                if *count == 0 {
                    of.moving.remove(&(dir, h64));
                }
            }
        }
    }
}

/// How long the kernel may use a name that a rename moves, and whether that is noted.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    pub left: Duration,
    pub is_noted: bool,
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
        let is_resting = names.resting.get(&dir).is_some_and(|until_ms| *until_ms > kernel_ms());
        if is_resting || names.moving.contains_key(&(dir, h64)) {
            return false;
        }
        let was_asked = || names.get(dir, h64).is_some();
        if leave.fid != Fid(0) || was_asked() {
            return true;
        }
        names.note((dir, h64), InKernel { name: name.into(), until_ms: 0, is_dir: false });
        false
    }

    /// The kernel is about to know a name for so long. False: it must not.
    pub(super) fn note_in_kernel(&self, (dir, h64): (Fid, u64), name: &[u8], is_dir: bool, ms: u64) -> bool {
        let until_ms = kernel_ms() + ms + MARGIN_MS;
        let of = InKernel { name: name.into(), until_ms, is_dir };
        let is_noted = self.names_in_kernel(dir).note((dir, h64), of);
        if is_noted {
            self.names_end_ms.fetch_max(until_ms, Ordering::SeqCst);
        }
        is_noted
    }

    /// A rename begins: the kernel is about to move what it knows by the first name to the second one, with its time-out, and the other way in an
    /// exchange. The first of the two concerns the second name. `None`: the kernel will ask.
    pub fn kernel_moves<'a>(
        &'a self,
        from: (Fid, &[u8]),
        to: (Fid, &[u8]),
        is_exchange: bool,
    ) -> (Moving<'a>, [Option<Moved>; 2]) {
        let names = [(from.0, h64(from.1)), (to.0, h64(to.1))];
        for (dir, h64) in names {
            *self.names_in_kernel(dir).moving.entry((dir, h64)).or_default() += 1;
        }
        let moving = Moving { leased: self, names };
        // Both are read before one is noted.
        let known = names.map(|(dir, h64)| {
            let of = self.names_in_kernel(dir);
            of.get(dir, h64).map(|of| (of.until_ms, of.is_dir))
        });
        let note = |known: Option<(u64, bool)>, (dir, name): (Fid, &[u8])| {
            let (until_ms, is_dir) = known?;
            let left = left_until(until_ms);
            let of = InKernel { name: name.into(), until_ms, is_dir };
            (!left.is_zero()).then(|| {
                let is_noted = self.names_in_kernel(dir).note((dir, h64(name)), of);
                Moved { left, is_noted }
            })
        };
        let moved = [note(known[0], to), if is_exchange { note(known[1], from) } else { None }];
        (moving, moved)
    }

    /// The kernel learns that a name exists which it knew as absent, under the directory's lock, and has no time-out for it.
    pub(super) fn has_no_time_out(&self, dir: Fid, h64: u64) {
        let mut of = self.names_in_kernel(dir);
        if let Some(noted) = of.dirs.get_mut(&dir).and_then(|names| names.get_mut(&h64)) {
            // The reply is on its way.
            noted.of.until_ms = noted.of.until_ms.min(kernel_ms() + MARGIN_MS);
        }
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
        let Recalled { names, numbers, names_end_ms } = recalled;
        let kernel = self.kernel.read().clone();
        let Some(kernel) = kernel.filter(|_| !names.is_empty()) else { return };
        let (done, is_done) = mpsc::channel();
        let is_given_up = Arc::new(AtomicBool::new(false));
        kernel.names(names, &is_given_up, Box::new(move || _ = done.send(())));
        match is_done.recv_timeout(left_until(names_end_ms)) {
            Ok(()) => {
                for (dir, h64, number) in numbers {
                    self.names_in_kernel(dir).strike(dir, h64, number);
                }
            }
            Err(_) => {
                is_given_up.store(true, Ordering::SeqCst);
                // No thread could be had.
                std::thread::sleep(left_until(names_end_ms));
                tracing::debug!("the kernel was busy: names that others changed ran out");
            }
        }
    }

    /// Tells the kernel to forget all files by name, without a wait. The machine has slept: the kernel's clock stood still.
    pub(super) fn drop_all_in_kernel(&self) {
        let mut recalled = Recalled::default();
        for shard in &self.shards {
            let mut of = shard.in_kernel.lock();
            let dirs: Vec<Fid> = of.dirs.keys().copied().collect();
            dirs.into_iter().for_each(|dir| of.take_all(dir, &mut recalled));
        }
        if let Some(kernel) = self.kernel.read().as_ref().filter(|_| !recalled.names.is_empty()) {
            kernel.names(recalled.names, &Arc::default(), Box::new(|| {}));
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
    Duration::from_millis(end_ms.saturating_sub(kernel_ms()))
}
