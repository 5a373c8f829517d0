//! Name leases: what sessions may cache, and the wait of a change until others have forgotten what it touches (decision 0053).
//!
//! The rules and the order of steps are in the crate `lease`. This file has the locks, the bars and the waits.
//!
//! mds-L1: a read loads the bars after its grant and before the state that it answers from (lease-L1).
//! mds-L2: an entry is published while the bars of all that it touches stand, and after the look at their holders (lease-L2, lease-L3).
//! mds-L3: no thread waits for a session under a lock or as the leader.
//! mds-L5: a session reports its holds only after it has attached to this start, so that it knows that its leases are void.
//! mds-L4: a session's lease ends a term after its last renewal. One that ended without saying so counts as a holder until then.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kv::Miss;
use lease::{GivenBack, Holder, TERM_MS, Table, Touch, What};
use parking_lot::Mutex;
use types::{Code, Fault, Fid, SessionId};
use wire::meta::{WatchDir, WatchDirReply};
use wire::notice::{FORGOTTEN_MAX, Forget, Forgotten};
use wire::{Flags, Header};

use crate::Core;
use crate::executor::draft::Draft;
use crate::executor::execute::Stop;
use crate::records::look::look;
use crate::records::overlay::Layer;
use crate::sessions::below::Root;
use crate::sessions::recalls::{Awaited, Recalling, Recalls};
use crate::sessions::{Session, Sessions};

/// Tables, each under a lock of its own.
const TABLES: usize = 256;
/// Words of bars. Fids that share one only keep each other from being cached for a moment.
const BARS: usize = 1 << 16;
/// A session that renews its lease and gives nothing back for so long is evicted.
pub const RECALL_MAX: Duration = Duration::from_secs(30);
/// A directory is watched once no change in it is under way: how long that is tried, and how often.
const WATCH_TRIES: Duration = Duration::from_millis(50);
const WATCH_PAUSE: Duration = Duration::from_millis(2);
/// Longest wait for one session between two looks at its lease.
pub const LOOK_EACH: Duration = Duration::from_millis(100);
/// `Leases::holder`: several sessions may hold leases.
const SEVERAL: u64 = u64::MAX;

/// The leases of one MDT. They are in memory only: after a restart no session has one (mds-X1 keeps changes back until all know).
pub struct Leases {
    tables: Vec<Shard>,
    bars: Vec<AtomicU32>,
    /// The only session that may hold a lease; 0: none; `SEVERAL`.
    holder: AtomicU64,
    /// mds-L4: sessions that were evicted, and the end of their lease in boot time.
    ghosts: Mutex<HashMap<SessionId, u64>>,
    /// A session has ended since the last `tidy`, or is a ghost.
    is_untidy: AtomicBool,
    pub counts: Counts,
    /// Changes that wait now.
    pub recalls: Recalls,
}

#[derive(Default)]
struct Shard {
    table: Mutex<Table>,
    /// Contests of the table, to be read without its lock.
    contests: AtomicUsize,
}

/// Totals since the start.
#[derive(Default)]
pub struct Counts {
    /// Changes that waited until other sessions had forgotten something.
    pub recalls: AtomicU64,
    pub longest_us: AtomicU64,
    pub waited_us: AtomicU64,
}

impl Counts {
    /// A wait that began then has ended.
    pub fn note(&self, began: Instant) {
        let us = began.elapsed().as_micros() as u64;
        self.recalls.fetch_add(1, Ordering::Relaxed);
        self.waited_us.fetch_add(us, Ordering::Relaxed);
        self.longest_us.fetch_max(us, Ordering::Relaxed);
    }
}

/// What other sessions must forget before a change.
#[derive(Clone, Debug)]
pub struct Recall {
    session: SessionId,
    /// All that the change touches.
    touches: Vec<Touch>,
    wants: Vec<Want>,
}

#[derive(Clone, Debug)]
struct Want {
    touch: Touch,
    /// The directory whose holders may cache it.
    dir: Fid,
    from: Vec<Holder>,
    /// lease-L4.
    is_contested: bool,
    /// lease-L5: the directory has subdirectories.
    has_dirs: bool,
}

impl Recall {
    /// Each inode and holder once: a new name is one of a directory's names, and changes its attributes.
    fn awaited(&self) -> BTreeSet<Awaited> {
        let of_one = |want: &Want| {
            let fid = want.touch.fid();
            want.from.iter().map(move |(session, _)| (fid, *session)).collect::<Vec<_>>()
        };
        self.wants.iter().flat_map(of_one).collect()
    }
}

/// Where a lease of an inode's attributes lies, and whether it has subdirectories itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Home {
    pub parent: Option<Fid>,
    pub has_dirs: bool,
}

/// Touches that no other session caches any more: their bars stood before they were taken back.
pub type Forgot = Vec<Touch>;

/// Bars of some changes (lease-L3), until it is dropped.
pub struct Bars {
    leases: Arc<Leases>,
    places: Mutex<Vec<usize>>,
}

impl std::fmt::Debug for Bars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bars", self.places.lock().len())
    }
}

impl Bars {
    pub fn new(leases: &Arc<Leases>) -> Bars {
        Bars { leases: leases.clone(), places: Mutex::default() }
    }

    pub fn set(&self, fid: Fid) {
        let place = place(fid);
        let before = self.leases.bars[place].fetch_add(1, Ordering::SeqCst);
        assert!(before < u32::MAX, "bars are as few as changes under way");
        self.places.lock().push(place);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        for place in self.places.get_mut().drain(..) {
            self.leases.bars[place].fetch_sub(1, Ordering::SeqCst);
        }
    }
}

pub fn mixed(fid: Fid) -> usize {
    (fid.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}
fn place(fid: Fid) -> usize {
    mixed(fid) % BARS
}

impl Leases {
    pub fn new() -> Arc<Leases> {
        Arc::new(Leases {
            tables: (0..TABLES).map(|_| Shard::default()).collect(),
            bars: (0..BARS).map(|_| AtomicU32::new(0)).collect(),
            holder: AtomicU64::new(0),
            ghosts: Mutex::default(),
            is_untidy: AtomicBool::new(false),
            counts: Counts::default(),
            recalls: Recalls::default(),
        })
    }

    fn with<T>(&self, fid: Fid, run: impl FnOnce(&mut Table) -> T) -> T {
        let shard = &self.tables[mixed(fid) % TABLES];
        let mut table = shard.table.lock();
        let done = run(&mut table);
        shard.contests.store(table.contests(), Ordering::SeqCst);
        done
    }

    /// Step 1 of a read: the session holds the lease of `dir` from here on. False: it must not cache.
    pub fn grant(&self, dir: Fid, session: SessionId, now_ms: u64) -> bool {
        let merge = |holder: u64| match holder {
            0 => Some(session.0),
            one if one == session.0 || one == SEVERAL => None,
            _ => Some(SEVERAL),
        };
        let _ = self.holder.fetch_update(Ordering::SeqCst, Ordering::SeqCst, merge);
        self.with(dir, |table| table.grant(dir, session, now_ms))
    }

    /// As `grant`, and every change that begins from here on is told to the session (lease-L4). False: one that is under way may not be.
    pub fn watch(&self, dir: Fid, session: SessionId, now_ms: u64) -> bool {
        let is_granted = self.grant(dir, session, now_ms);
        if is_granted {
            self.with(dir, |table| table.end_sole(dir, What::Names, session));
        }
        is_granted && self.may_cache(dir, What::Names, session, now_ms)
    }

    /// Another session may cache names in `dir`.
    pub fn has_others(&self, dir: Fid, session: SessionId, now_ms: u64) -> bool {
        self.with(dir, |table| {
            // Ends leases that were given back.
            _ = table.is_sole(dir, What::Names, session, now_ms);
            !table.others(dir, session).is_empty()
        })
    }
    pub fn holds(&self, dir: Fid, session: SessionId) -> bool {
        self.with(dir, |table| table.holds(dir, session))
    }

    /// Steps 2 to 4 of a read (mds-L1). It writes no shared memory unless something is contested.
    pub fn may_cache(&self, fid: Fid, what: What, session: SessionId, now_ms: u64) -> bool {
        let shard = &self.tables[mixed(fid) % TABLES];
        let has_bars = || self.bars[place(fid)].load(Ordering::SeqCst) > 0;
        let is_contested = || {
            shard.contests.load(Ordering::SeqCst) > 0
                && !self.with(fid, |table| table.may_cache(fid, what, session, now_ms))
        };
        // The first look is for a change that is making it contested, the second for one that relies on a contest that has ended since.
        !has_bars() && !is_contested() && !has_bars()
    }

    /// Sets the bars of what a change touches, then finds what others must forget before it. `home_of`: of an inode as it was before the change.
    pub fn conflicts(
        &self,
        session: SessionId,
        touches: &[Touch],
        bars: &Bars,
        forgot: &Forgot,
        now_ms: u64,
        home_of: impl Fn(Fid) -> Result<Home, Stop>,
    ) -> Result<Option<Recall>, Stop> {
        touches.iter().for_each(|touch| bars.set(touch.fid()));
        let holder = self.holder.load(Ordering::SeqCst);
        if holder == 0 || holder == session.0 {
            return Ok(None);
        }
        let mut wants = Vec::new();
        // No session caches a touch that was taken back: a session that was granted the lease since met the bars.
        for touch in touches.iter().filter(|touch| !forgot.contains(touch)) {
            let dir = match *touch {
                Touch::Name { dir, .. } => dir,
                Touch::Attr { fid } => match home_of(fid)?.parent {
                    Some(dir) => dir,
                    // Without a name, or new: no session may cache it.
                    None => continue,
                },
            };
            let (fid, what) = (touch.fid(), touch.what());
            if self.with(fid, |table| table.is_sole(fid, what, session, now_ms)) {
                continue;
            }
            let from = self.with(dir, |table| table.others(dir, session));
            if !from.is_empty() {
                let is_contested = self.with(fid, |table| table.note_conflict(fid, what, now_ms));
                let has_dirs = is_contested && what == What::Names && home_of(dir)?.has_dirs;
                wants.push(Want { touch: *touch, dir, from, is_contested, has_dirs });
            }
        }
        Ok((!wants.is_empty()).then(|| Recall { session, touches: touches.to_vec(), wants }))
    }

    /// These inodes have gone.
    pub fn gone(&self, fids: impl Iterator<Item = Fid>) {
        if self.holder.load(Ordering::SeqCst) != 0 {
            fids.for_each(|fid| self.with(fid, |table| table.gone(fid)));
        }
    }

    /// mds-L4: an evicted session counts as a holder until its lease ends.
    pub fn evicted(&self, session: SessionId, ends_ms: u64) {
        self.ghosts.lock().insert(session, ends_ms);
    }
    /// A session has ended.
    pub fn ended(&self) {
        self.is_untidy.store(true, Ordering::SeqCst);
    }

    /// Drops what says nothing any more. `sessions`: all that live; no session begins meanwhile.
    pub fn tidy_if_due(&self, sessions: &Sessions, now_ms: u64) {
        if self.is_untidy.swap(false, Ordering::SeqCst) {
            self.tidy(&sessions.ids(), now_ms);
        }
    }

    fn tidy(&self, sessions: &[SessionId], now_ms: u64) {
        let ghosts = {
            let mut ghosts = self.ghosts.lock();
            ghosts.retain(|_, ends| *ends > now_ms);
            ghosts.clone()
        };
        let lives = |id: SessionId| sessions.binary_search(&id).is_ok() || ghosts.contains_key(&id);
        for shard in &self.tables {
            let mut table = shard.table.lock();
            table.drop_dead(lives, now_ms);
            shard.contests.store(table.contests(), Ordering::SeqCst);
        }
        if ghosts.is_empty() && sessions.len() < 2 {
            let holder = sessions.first().map_or(0, |id| id.0);
            self.holder.store(holder, Ordering::SeqCst);
        }
        self.is_untidy.fetch_or(!ghosts.is_empty(), Ordering::SeqCst);
    }

    /// How many directories among those of which `is_it` holds each session has leased.
    pub fn by_session(&self, is_it: impl Fn(Fid) -> bool) -> HashMap<SessionId, u64> {
        let mut counts = HashMap::new();
        for shard in &self.tables {
            let table = shard.table.lock();
            for (_, holders) in table.all().filter(|(fid, _)| is_it(*fid)) {
                holders.iter().for_each(|(session, _)| *counts.entry(*session).or_default() += 1);
            }
        }
        counts
    }

    /// Leases held, one for each directory and session.
    pub fn held(&self) -> usize {
        self.tables.iter().map(|shard| shard.table.lock().held()).sum()
    }
}

impl Core {
    /// Steps 1 to 4 of a read: what the client may cache of the answer, as flags of the reply.
    pub fn lease_of_read(&self, head: &Header, body: &[u8], root: Option<&Root>) -> Result<u16, Fault> {
        const ASKED: u16 = Flags::LEASE_WANTED | Flags::LEASE_HELD;
        if head.flags & ASKED == 0 || head.session == SessionId(0) {
            return Ok(0);
        }
        let (session, now_ms, mut flags) = (head.session, self.clock.boot_ms(), 0);
        match self.rules.leased_dir(head.call, body) {
            Some(dir) if !self.may_lease(root, dir)? => return Ok(0),
            Some(dir) => {
                if head.flags & Flags::LEASE_WANTED != 0 && !self.leases.grant(dir, session, now_ms) {
                    return Ok(0);
                }
                if self.leases.may_cache(dir, What::Names, session, now_ms)
                    && !self.makers.is_held_elsewhere(dir, session)
                {
                    flags |= Flags::NAMES_LEASED;
                }
            }
            // Attributes by fid: the directory is known here only.
            None => {
                let dir = look(&self.kv, &mut |view| self.rules.dir_of_attributes(view, head.call, body))?;
                let Some(dir) = dir else { return Ok(0) };
                if !self.may_lease(root, dir)? {
                    return Ok(0);
                }
                let is_held = match head.flags & Flags::LEASE_WANTED != 0 {
                    true => self.leases.grant(dir, session, now_ms),
                    false => self.leases.holds(dir, session),
                };
                if !is_held {
                    return Ok(0);
                }
            }
        }
        // Which inodes the answer has is found first, since their bars must be loaded before the answer's state is read.
        let fids = look(&self.kv, &mut |view| self.rules.answers_for(view, head.call, body))?;
        let may = |fid: &Fid| {
            self.leases.may_cache(*fid, What::Attr, session, now_ms)
                && !self.makers.is_held_elsewhere(*fid, session)
        };
        if fids.is_some_and(|fids| fids.iter().all(may)) {
            flags |= Flags::ATTRS_LEASED;
        }
        Ok(flags)
    }

    /// A client's kernel is about to move a name with its time-out into this directory (client-LE5).
    pub fn on_watch_dir(&self, head: &Header, req: &WatchDir) -> Result<WatchDirReply, Fault> {
        self.check_incarnation(head)?;
        self.check_session(head.session)?;
        let until = Instant::now() + WATCH_TRIES;
        let watch = || self.leases.watch(req.dir, head.session, self.clock.boot_ms());
        loop {
            let is_told = watch();
            if is_told || Instant::now() >= until {
                return Ok(WatchDirReply { is_told });
            }
            std::thread::sleep(WATCH_PAUSE);
        }
    }

    /// As `lease_of_read`, for a change that makes a name. No other session knows the inode that it makes.
    pub fn lease_of_change(&self, head: &Header, body: &[u8], root: Option<&Root>) -> u16 {
        let Some(dir) = self.rules.leased_dir(head.call, body) else { return 0 };
        if !self.may_lease(root, dir).unwrap_or(false) {
            return 0;
        }
        let (session, now_ms) = (head.session, self.clock.boot_ms());
        let is_held = match head.flags {
            flags if flags & Flags::REPLAY != 0 => false,
            flags if flags & Flags::LEASE_WANTED != 0 => self.leases.grant(dir, session, now_ms),
            flags => flags & Flags::LEASE_HELD != 0,
        };
        match is_held && self.leases.may_cache(dir, What::Names, session, now_ms) {
            true => Flags::NAMES_LEASED | Flags::ATTRS_LEASED,
            false => 0,
        }
    }

    /// The leader asks this before a change joins its batch.
    pub fn check_leases(
        &self,
        session: SessionId,
        draft: &Draft<'_>,
        changes: &Layer,
        bars: &Bars,
        forgot: &Forgot,
    ) -> Result<(), Stop> {
        let mut touches: Vec<Touch> = changes.keys().filter_map(|key| self.rules.touch_of(key)).collect();
        let made = touches.iter().find(|touch| self.makers.is_held_elsewhere(touch.fid(), session));
        if let Some(touch) = made.filter(|_| session != SessionId(0)) {
            return Err(Stop::Made(touch.fid(), session));
        }
        // mds-Z2: no other session caches it.
        touches.retain(|touch| !self.makers.is_held_by(touch.fid(), session));
        let home_of = |fid| {
            let key = meta::keys::inode(fid);
            let of = |raw: &[u8]| Home {
                parent: self.rules.parent_in(fid, raw),
                has_dirs: self.rules.has_dirs(fid, raw),
            };
            match draft.changes.get(&key) {
                Some(value) => Ok(value.as_ref().map_or(Home::default(), |value| of(value.raw()))),
                None => match draft.snap.get(&key) {
                    Ok(value) => Ok(value.map_or(Home::default(), |value| of(&value))),
                    Err(Miss::Damage(_)) => Ok(Home::default()),
                    Err(Miss::Absent(what)) => Err(Stop::Absent(what)),
                },
            }
        };
        let now_ms = self.clock.boot_ms();
        match self.leases.conflicts(session, &touches, bars, forgot, now_ms, home_of)? {
            None => Ok(()),
            Some(recall) => {
                // The bars stand on for the request's own thread, which waits and starts over.
                let own = Bars::new(&self.leases);
                touches.iter().for_each(|touch| own.set(touch.fid()));
                Err(Stop::Leased(Arc::new((recall, own))))
            }
        }
    }

    /// Waits until all sessions have forgotten what a change touches, or have no lease any more, and notes that in `forgot`.
    pub fn recall(&self, recall: &Recall, forgot: &mut Forgot) -> Result<(), Fault> {
        let began = Instant::now();
        let of = recall.awaited();
        let _waiting = self.leases.recalls.begin(Recalling { session: recall.session, began, of })?;
        let mut items: BTreeMap<SessionId, Vec<Forgotten>> = BTreeMap::new();
        for want in &recall.wants {
            let Want { touch, dir, from, is_contested, .. } = want;
            let item = match *touch {
                Touch::Name { h64, .. } => Forgotten { dir: *dir, h64, fid: Fid(0), whole: *is_contested },
                Touch::Attr { fid } => Forgotten { dir: *dir, h64: 0, fid, whole: false },
            };
            from.iter().for_each(|(session, _)| items.entry(*session).or_default().push(item.clone()));
        }
        let mut waits = Vec::new();
        for (id, items) in &items {
            let Some(session) = self.sessions.get(*id) else { continue };
            let last = items
                .chunks(FORGOTTEN_MAX)
                .map(|some| session.notices.push(&Forget { items: some.to_vec() }));
            let number = last.max().unwrap_or(0);
            waits.push((session, number));
        }
        let _wait = spent::waiting(spent::Cause::Lock);
        for (session, number) in waits {
            self.await_forgotten(&session, number, began)?;
        }
        self.await_ghosts(items.keys().copied())?;
        let now_ms = self.clock.boot_ms();
        forgot.extend(recall.touches.iter().copied());
        for Want { touch, from, is_contested, has_dirs, .. } in &recall.wants {
            if *is_contested {
                let fid = touch.fid();
                let given_back = GivenBack { leases: from, has_dirs: *has_dirs };
                let of = (fid, touch.what());
                self.leases.with(fid, |table| table.make_sole(of, recall.session, given_back, now_ms));
            }
        }
        self.leases.counts.note(began);
        Ok(())
    }

    fn await_forgotten(&self, session: &Arc<Session>, number: u64, began: Instant) -> Result<(), Fault> {
        while !session.notices.wait_taken(number, Instant::now() + LOOK_EACH) {
            if self.is_stopping() {
                return Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back"));
            }
            // mds-L4. One that was ended is a ghost from here on.
            if session.lease_ends_ms() <= self.clock.boot_ms() || self.sessions.get(session.id).is_none() {
                return Ok(());
            }
            if began.elapsed() >= RECALL_MAX {
                // This thread may hold it, if it ends a session itself.
                let Some(_one) = self.ending.try_lock_for(LOOK_EACH) else {
                    let why = "a client gives no lease back, and no session can be ended now; try again";
                    return Err(Fault::new(Code::NotReady, why));
                };
                tracing::warn!(
                    session = session.id.0,
                    client = session.name,
                    "a client gives no lease back, though it is alive; it is evicted"
                );
                self.evict(session.id)?;
                return Ok(());
            }
        }
        Ok(())
    }

    fn await_ghosts(&self, sessions: impl Iterator<Item = SessionId> + Clone) -> Result<(), Fault> {
        loop {
            let now_ms = self.clock.boot_ms();
            let is_ghost = {
                let ghosts = self.leases.ghosts.lock();
                sessions.clone().any(|id| ghosts.get(&id).is_some_and(|ends| *ends > now_ms))
            };
            if !is_ghost {
                return Ok(());
            }
            if self.is_stopping() {
                return Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back"));
            }
            std::thread::sleep(LOOK_EACH / 4);
        }
    }
}

impl Session {
    /// The client counts its lease from before it sent the request that renews it (mds-L4).
    pub fn renew_lease(&self, now_ms: u64) {
        self.leased_ms.fetch_max(now_ms, Ordering::SeqCst);
    }
    /// Its lease has ended, and it has sent nothing since. (A client that has no line renews none, and asks before each use.)
    pub fn is_lease_over(&self, now_ms: u64) -> bool {
        self.lease_ends_ms() <= now_ms && self.silent_ms(now_ms) >= TERM_MS
    }
    pub fn lease_ends_ms(&self) -> u64 {
        self.leased_ms.load(Ordering::SeqCst) + TERM_MS
    }
}
