//! Names and attributes that this client may cache under leases, in its memory and in the kernel's (crate `lease`, decision 0053).
//!
//! client-LE1: what is cached was answered as leased, and nothing that it has of it changed since the request left: *stamps* tell.
//! client-LE2: nothing is used, and no time-out is given to the kernel, past the lease's end. The end counts from before the request left
//!     that renewed it.
//! client-LE3: when `forget` returns, neither this cache nor the kernel's has what was to be forgotten: replies to the kernel that were
//!     judged before it have left.
//! client-LE4: attributes are cached with the one name of their inode, so whatever drops the name drops them.
//! client-LE5: a name has a time-out in the kernel only if it is noted here, under the lease of the directory that it has there (`kernel`).

mod change;
mod keep;
mod kernel;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use lease::{KEPT_MS, TERM_MS, Touch};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use types::{Attr, Fid, Kind, SessionId, Time, h64};
use wire::Flags;
use wire::meta::{FileState, Inode};
use wire::notice::Forgotten;

use crate::cache::listing::Listing;

pub(crate) use change::{Fate, OwnChange};
pub use kernel::Kernel;
use kernel::{KernelNames, Recalled};
pub(crate) use kernel::{Moved, Moving};

/// More than there are threads, so that different directories rarely share a lock.
const SHARDS: usize = 64;
/// Stamps of each kind. Two that share one only keep each other from being cached.
const STAMPS: usize = 4096;
/// Stamps of names: so many that few creates of several threads share one.
const NAME_STAMPS: usize = 65_536;
/// Names and directories that are cached, some 400 bytes each. Past it whole directories are dropped.
const NAMES_MAX: usize = 131_072;
/// Names of a directory that are asked for one by one before all names are.
const MISSES_MAX: u32 = 4;
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;
/// In the place of the root's name.
const NO_NAME: &[u8] = b"";
/// Longest time-out of a name: a change elsewhere waits so long if the kernel cannot be told (`kernel`).
const NAME_MS: u64 = 1_000;
/// The same beside other clients. Two that begin to make files in one directory at once wait for this: each call holds the directory's lock
/// in its kernel until the other client has forgotten the directory. A look at the name after that costs the MDT no request.
const SHARED_NAME_MS: u64 = 200;
/// The same of a directory. lease-L5: the MDT tells of changes for so long after its lease was given back, and more.
const DIR_NAME_MS: u64 = KEPT_MS / 2;
const _: () = assert!(DIR_NAME_MS + MARGIN_MS < KEPT_MS);
/// Three renewals have failed then.
const ENDING_MS: u64 = 1_500;
/// Kept back from each time-out: the kernel counts it from the reply, a moment after it was computed here.
const MARGIN_MS: u64 = 100;

pub(crate) struct Leased {
    /// The lease ends at this boot time in milliseconds; 0: none.
    ends_ms: AtomicU64,
    /// Raised when everything is void.
    life: AtomicU64,
    /// Counts changes of this client and of others.
    clock: AtomicU64,
    /// When a name changed here; when any name of a directory did; when attributes did; when another client changed something in a directory.
    names: Stamps,
    listings: Stamps,
    attrs: Stamps,
    dirs: Stamps,
    shards: Vec<Shard>,
    /// The name of each inode whose attributes may be cached.
    places: Vec<Mutex<HashMap<Fid, Place>>>,
    count: AtomicUsize,
    kernel: RwLock<Option<Arc<dyn Kernel>>>,
    /// The kernel uses no name past this time by its clock; none that it learned before everything was void the last time.
    names_end_ms: AtomicU64,
    void_names_end_ms: AtomicU64,
    has_kernel: AtomicBool,
}

struct Stamps(Vec<AtomicU64>);

impl Stamps {
    fn new(count: usize) -> Stamps {
        Stamps((0..count).map(|_| AtomicU64::new(0)).collect())
    }
    fn at(&self, hash: u64) -> &AtomicU64 {
        &self.0[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % self.0.len()]
    }
    fn set(&self, hash: u64, stamp: u64) {
        self.at(hash).fetch_max(stamp, Ordering::SeqCst);
    }
    fn get(&self, hash: u64) -> u64 {
        self.at(hash).load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct Shard {
    dirs: Mutex<HashMap<Fid, Dir>>,
    in_kernel: Mutex<KernelNames>,
    /// Shared by replies to the kernel about names and attributes of these directories.
    replying: RwLock<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    dir: Fid,
    h64: u64,
}

#[derive(Default)]
struct Dir {
    /// The MDT gave the lease.
    is_held: bool,
    /// `names` has all names that exist.
    is_complete: bool,
    listing: Option<Arc<Listing>>,
    /// By the hash. Of two names with one hash the last one is cached.
    names: HashMap<u64, Name>,
    misses: u32,
}

impl Dir {
    /// Some names may not be known any more.
    fn lose_names(&mut self) {
        (self.is_complete, self.listing, self.misses) = (false, None, 0);
    }
}

struct Name {
    name: Box<[u8]>,
    /// `None`: there is no such name.
    fid: Option<Fid>,
    inode: Option<Inode>,
}

/// Context of an answer: when its request left, the flags of the reply, and the session of this client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub since: Since,
    pub flags: u16,
    pub me: SessionId,
}

/// Taken before a request leaves (client-LE1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    life: u64,
    at: u64,
}

/// Parts of an answer that the kernel may cache, if nothing changed since: see `Fs::reply`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leave {
    since: Since,
    dir: Fid,
    h64: u64,
    fid: Fid,
    has_name: bool,
    has_attr: bool,
    is_made: bool,
}

/// Time-outs for a reply to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeOuts {
    pub name: Duration,
    pub attr: Duration,
}

impl Leave {
    pub(crate) fn with_attr_if(self, may: bool) -> Leave {
        Leave { has_attr: self.has_attr && may, ..self }
    }
    /// Of a name that the kernel knew as absent until now, and for which it gets no time-out.
    pub(crate) fn made_without_name(self) -> Leave {
        Leave { has_name: false, is_made: true, ..self }
    }
    /// The directory whose lease allows it.
    pub fn dir(&self) -> Fid {
        self.dir
    }
}

/// The cached state of a name.
pub(crate) enum Known {
    Absent,
    /// Its inode, and the attributes if they are cached.
    There(Fid, Option<Inode>),
}

fn name_hash(dir: Fid, h64: u64) -> u64 {
    dir.0.rotate_left(32) ^ (h64 >> 8)
}

/// CLOCK_BOOTTIME in milliseconds: a lease runs out while the machine sleeps, too.
pub fn now_ms() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

impl Default for Leased {
    fn default() -> Leased {
        Leased {
            ends_ms: AtomicU64::new(0),
            life: AtomicU64::new(1),
            clock: AtomicU64::new(1),
            names: Stamps::new(NAME_STAMPS),
            listings: Stamps::new(STAMPS),
            attrs: Stamps::new(STAMPS),
            dirs: Stamps::new(STAMPS),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            places: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            kernel: RwLock::new(None),
            names_end_ms: AtomicU64::new(0),
            void_names_end_ms: AtomicU64::new(0),
            has_kernel: AtomicBool::new(false),
        }
    }
}

/// The time before a request that renews the lease.
#[derive(Clone, Copy)]
pub(crate) struct Renewal(u64);

impl Leased {
    fn shard(&self, dir: Fid) -> &Shard {
        &self.shards[dir.0 as usize % SHARDS]
    }
    fn place_of(&self, fid: Fid) -> &Mutex<HashMap<Fid, Place>> {
        &self.places[fid.0 as usize % SHARDS]
    }

    pub fn on_forget(&self, kernel: Option<Arc<dyn Kernel>>) {
        self.has_kernel.store(kernel.is_some(), Ordering::SeqCst);
        *self.kernel.write() = kernel;
    }
    /// A kernel asks, which checks rights itself.
    pub fn has_kernel(&self) -> bool {
        self.has_kernel.load(Ordering::Relaxed)
    }

    // ---- the term ----

    pub fn renewal() -> Renewal {
        Renewal(now_ms())
    }

    /// The MDT has answered a request that renews the lease.
    pub fn renewed(&self, sent: Renewal) {
        if self.ends_ms.load(Ordering::SeqCst) <= now_ms() {
            // It may have run out, and others may have changed anything meanwhile.
            self.void();
            self.drop_all_in_kernel();
        }
        self.ends_ms.fetch_max(sent.0 + TERM_MS, Ordering::SeqCst);
    }

    /// Past the lease's end the kernel must forget too: its own clock stands still while the machine sleeps.
    pub fn void_if_over(&self) {
        let ends = self.ends_ms.load(Ordering::SeqCst);
        if ends > 0 && ends <= now_ms() {
            self.void();
            self.drop_all_in_kernel();
        }
    }

    /// This client's leases have not run out.
    pub fn is_valid(&self) -> bool {
        self.left_ms() > 0
    }

    /// The kernel asks for the attributes before it shows them again: this client has begun to write the file, and others may do so.
    pub fn kernel_forgets(&self, fid: Fid) {
        self.tell_kernel(&[fid]);
    }

    /// It is long since the lease was renewed: what takes a moment to forget is to be forgotten now.
    pub fn is_ending(&self) -> bool {
        self.left_ms() < ENDING_MS
    }

    /// client-GU2: the kernel must not use pages past this boot time, unless this process runs until then and tells of a later one.
    pub fn pages_end_ms(&self) -> u64 {
        let (ends, now) = (self.ends_ms.load(Ordering::SeqCst), now_ms());
        if ends.saturating_sub(now) < ENDING_MS { now + TERM_MS } else { ends }
    }

    /// Milliseconds until the lease ends.
    fn left_ms(&self) -> u64 {
        self.ends_ms.load(Ordering::SeqCst).saturating_sub(now_ms())
    }

    /// Everything is void: the session or the MDT's knowledge of it has ended, or the lease.
    pub fn void(&self) {
        self.ends_ms.store(0, Ordering::SeqCst);
        self.life.fetch_add(1, Ordering::SeqCst);
        let mut fids = Vec::new();
        for shard in &self.shards {
            let dirs = std::mem::take(&mut *shard.dirs.lock());
            dirs.into_values().for_each(|dir| self.dropped(dir, &mut fids));
            drop(shard.replying.write());
        }
        self.names_are_void();
        self.tell_kernel(&fids);
    }

    /// A directory in its shard.
    fn dir_in<'d>(&self, shard: &'d mut HashMap<Fid, Dir>, dir: Fid) -> &'d mut Dir {
        shard.entry(dir).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::Relaxed);
            Dir::default()
        })
    }

    fn dropped(&self, mut dir: Dir, fids: &mut Vec<Fid>) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let names: Vec<u64> = dir.names.keys().copied().collect();
        fids.extend(names.into_iter().filter_map(|h64| self.drop_name(&mut dir, h64)));
    }

    fn tell_kernel(&self, fids: &[Fid]) {
        if let Some(kernel) = self.kernel.read().as_ref().filter(|_| !fids.is_empty()) {
            kernel.attributes(fids);
        }
    }

    // ---- requests ----

    pub fn since(&self) -> Since {
        Since { life: self.life.load(Ordering::SeqCst), at: self.clock.load(Ordering::SeqCst) }
    }

    fn holds(&self, since: Since, stamp: u64) -> bool {
        since.life == self.life.load(Ordering::SeqCst) && stamp <= since.at
    }

    /// Flags of a request whose answer is to be cached, of a directory.
    pub fn flags_for(&self, dir: Fid) -> u16 {
        if self.left_ms() == 0 {
            return 0;
        }
        match self.shard(dir).dirs.lock().get(&dir).is_some_and(|dir| dir.is_held) {
            true => Flags::LEASE_HELD,
            false => Flags::LEASE_WANTED,
        }
    }
    /// The same for attributes by fid: only with its name they may be cached.
    pub fn flags_for_attr(&self, fid: Fid) -> u16 {
        if fid == Fid::ROOT {
            return self.flags_for(fid);
        }
        let place = self.place_of(fid).lock().get(&fid).copied();
        match place.map(|place| self.flags_for(place.dir)) {
            Some(Flags::LEASE_HELD) => Flags::LEASE_HELD,
            _ => 0,
        }
    }

    // ---- use ----

    /// The cached state of a name.
    pub fn name(&self, dir: Fid, name: &[u8]) -> Option<(Known, Leave)> {
        let (h64, since) = (h64(name), self.since());
        let shard = self.shard(dir).dirs.lock();
        let of = shard.get(&dir)?;
        let leave = Leave { since, dir, h64, fid: Fid(0), has_name: true, ..Leave::default() };
        let known = match of.names.get(&h64).filter(|known| *known.name == *name) {
            Some(Name { fid: None, .. }) => (Known::Absent, leave),
            Some(Name { fid: Some(fid), inode, .. }) => {
                let leave = Leave { fid: *fid, has_attr: inode.is_some(), ..leave };
                (Known::There(*fid, inode.clone()), leave)
            }
            None if of.is_complete && is_plain(name) && !of.names.contains_key(&h64) => {
                (Known::Absent, leave)
            }
            None => return None,
        };
        // client-LE2: looked at last.
        (self.left_ms() > 0).then_some(known)
    }

    /// Cached attributes.
    pub fn attr(&self, fid: Fid) -> Option<(Inode, Leave)> {
        let since = self.since();
        let Place { dir, h64 } = self.place_of(fid).lock().get(&fid).copied()?;
        let shard = self.shard(dir).dirs.lock();
        let name = shard.get(&dir)?.names.get(&h64).filter(|name| name.fid == Some(fid))?;
        let inode = name.inode.clone()?;
        let leave = Leave { since, dir, h64, fid, has_name: true, has_attr: true, is_made: false };
        (self.left_ms() > 0).then_some((inode, leave))
    }

    /// A listing of all names, as they are now, if it is known in which directory this one lies.
    pub fn listing(&self, dir: Fid) -> Option<Arc<Listing>> {
        let shard = self.shard(dir).dirs.lock();
        let listing = shard.get(&dir)?.listing.clone()?;
        let above = self.place_of(dir).lock().get(&dir).map(|place| place.dir);
        (above == Some(listing.parent) && self.left_ms() > 0).then_some(listing)
    }

    /// True: so many names were asked for that it pays to ask for all.
    pub fn wants_all(&self, dir: Fid) -> bool {
        let mut shard = self.shard(dir).dirs.lock();
        let Some(of) = shard.get_mut(&dir).filter(|of| of.is_held && !of.is_complete) else { return false };
        of.misses += 1;
        of.misses == MISSES_MAX
    }

    /// client-LE3: while it exists, no notice for names in `dir` is acknowledged.
    pub fn replying(&self, dir: Fid) -> RwLockReadGuard<'_, ()> {
        self.shard(dir).replying.read()
    }

    /// For a reply that has `replying`. `name`: that of `leave`, and true for a directory's, if the reply tells a name.
    /// `is_shared`: there are other clients.
    pub fn time_outs(&self, leave: &Leave, name: Option<(&[u8], bool)>, is_shared: bool) -> TimeOuts {
        let is_so = |stamp| self.holds(leave.since, stamp);
        if leave.is_made {
            self.has_no_time_out(leave.dir, leave.h64);
        }
        if !(leave.has_name || leave.has_attr) || !is_so(self.dirs.get(leave.dir.0)) {
            return TimeOuts::default();
        }
        let has_name = leave.has_name && is_so(self.names.get(name_hash(leave.dir, leave.h64)));
        let has_attr = leave.has_attr && is_so(self.attrs.get(leave.fid.0));
        let left_ms = self.left_ms().saturating_sub(MARGIN_MS);
        let may = |name| has_name && left_ms > 0 && self.may_time_out(leave, name);
        let name_ms = match name.filter(|(name, _)| may(name)) {
            Some((name, is_dir)) => {
                let name_ms = left_ms.min(match (is_dir, is_shared) {
                    (true, _) => DIR_NAME_MS,
                    (false, false) => NAME_MS,
                    (false, true) => SHARED_NAME_MS,
                });
                let is_noted = self.note_in_kernel((leave.dir, leave.h64), name, is_dir, name_ms);
                if is_noted { name_ms } else { 0 }
            }
            None => 0,
        };
        let attr_ms = if has_attr { left_ms } else { 0 };
        TimeOuts { name: Duration::from_millis(name_ms), attr: Duration::from_millis(attr_ms) }
    }

    fn drop_attr(&self, fid: Fid) {
        let Some(Place { dir, h64 }) = self.place_of(fid).lock().get(&fid).copied() else { return };
        let mut shard = self.shard(dir).dirs.lock();
        let name = shard.get_mut(&dir).and_then(|of| of.names.get_mut(&h64));
        if let Some(name) = name.filter(|name| name.fid == Some(fid)) {
            name.inode = None;
        }
    }

    /// client-LE3: others change these. Waits for the kernel, at most as long as it may use a name.
    pub fn forget(&self, items: &[Forgotten]) {
        let mut recalled = Recalled::default();
        let mut fids = Vec::new();
        for item in items {
            self.forget_here(item, &mut fids);
            // Replies that were judged before the stamp have left.
            self.recall(item.dir, item.h64, item.whole, &mut recalled);
        }
        self.tell_kernel(&fids);
        self.drop_in_kernel(recalled);
    }

    /// In this cache. Replies to the kernel that were judged before have left when it returns. `fids`: attributes that the kernel has to forget.
    fn forget_here(&self, item: &Forgotten, fids: &mut Vec<Fid>) {
        let Forgotten { dir, h64, fid, whole } = item;
        let stamp = self.clock.fetch_add(1, Ordering::SeqCst) + 1;
        self.dirs.set(dir.0, stamp);
        let shard = self.shard(*dir);
        {
            let mut dirs = shard.dirs.lock();
            if *whole {
                dirs.remove(dir).into_iter().for_each(|of| self.dropped(of, fids));
            } else if let Some(of) = dirs.get_mut(dir).filter(|_| *h64 != 0) {
                of.lose_names();
                fids.extend(self.drop_name(of, *h64));
            }
        }
        if *fid != Fid(0) {
            self.drop_attr(*fid);
            fids.push(*fid);
        }
        drop(shard.replying.write());
    }

    /// For want of memory. The lease stays, so the kernel keeps the names.
    fn drop_for_room(&self, dir: Fid) {
        let mut fids = Vec::new();
        self.forget_here(&Forgotten { dir, h64: 0, fid: Fid(0), whole: true }, &mut fids);
        self.tell_kernel(&fids);
    }
}

/// False: `..` is no entry of its directory, and the MDT says of a name that is too long that it is.
fn is_plain(name: &[u8]) -> bool {
    name != b".." && name.len() <= NAME_BYTES_MAX
}
