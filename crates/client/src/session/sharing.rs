//! Several clients at one file system: the mode of this one, and what it holds that the MDT keeps in memory only.
//!
//! A client lives by a *mode* that the MDT names. Alone (even), it knows better than the MDT what it writes, and tells it once a
//! second. Sharing (odd), each call on content needs a lease of the file (`section`).
//!
//! client-H1: a call works by the mode that held when it began; a change of mode waits for those that began before it.
//! client-H2: before the MDT hears that this client shares, it has leases of the files that it knows better, or has flushed and told what it
//!     knows. Names that the kernel has by leases that are void have run out (client-LE5).
//! client-H3: a lease is taken before locks of the file are (client-C1).
//! client-H4: what a restarted MDT is told of leases is what this client holds: noted after the grant, struck out before the return.
//! client-H5: a token is in use from the first request for its lease until the MDT has heard of its end; the floor is the lowest in use.
//! client-H6: how far this client is with sending again what a target lost is noted before it asks whether it shares: who begins to share
//!     meanwhile tells it, or it asks for its turn (`Link::wait_turn`).
//! client-H7: a file is noted as open before the MDT is asked to open it. One that the same request makes cannot be: if the MDT was told meanwhile
//!     what is open here, it may not know of this one, since it restarted or others came, and is asked once more.
//! client-H8: a `Close` that was given up may come late, and is void before one of its files is opened again: it has a token, which is left.
//! client-H9: a client that was alone takes exclusive leases of the files that it has in hand, before it tells the MDT that it shares.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use net::Bell;
use parking_lot::Mutex;
use types::{Code, Fault, Fid, MirrorId};
use wire::shared::{ALL, CaughtUp, Close, HeldDir, HeldSection, Hold, LeaseKind, Leave, OpenFile};

use crate::Fs;
use crate::cache::files::File;
use crate::cache::hold::To;
use crate::session::guarded::Guarded;
use crate::session::section::{KEPT_MAX, Recalls};
use crate::wait_for_bell;

/// How often a mode that the MDT wants is looked at, and files that were closed are told.
const TICK: Duration = Duration::from_millis(100);
/// Entries of one `Hold`: some ten KiB.
const PART_MAX: usize = 1024;
/// Files of one `Close`: as long as the MDT takes for it, opens of some of the others wait.
const CLOSE_MAX: usize = 64;

/// By what this client lives, and what it holds that the MDT keeps in mind only.
#[derive(Default)]
pub(crate) struct Sharing {
    mode: AtomicU32,
    /// The mode that the MDT wants, and in the upper half how often this client has attached.
    wanted: AtomicU64,
    /// It was alone, and begins to share: what it knew better is not told yet, so it must not say that it shares.
    is_beginning: AtomicBool,
    /// Rings when that changes.
    pub due: Bell,
    /// How often others came.
    seasons: AtomicU64,
    /// How often the MDT said that this client is alone, and goes on so.
    times_alone: AtomicU64,
    /// The MDT is to hear what is open here though the mode is as it wants it: the session is new, or what it was told did not get through.
    owes_hold: AtomicBool,
    /// How often the MDT was told what is held here.
    times_told: AtomicU64,
    /// Calls on content that began while alone.
    pub alone: AtomicUsize,
    pub held: Mutex<Held>,
    /// client-CL4. It changes with the session, and when this client is alone again.
    life: AtomicU64,
    /// The last number of a call under range locks (client-RL1).
    pub range_locks: AtomicU64,
    /// Leases that other clients want.
    pub recalls: Recalls,
    pub guarded: Guarded,
    /// client-H6: OSTs that are in use.
    mirrors: Mutex<HashMap<MirrorId, CaughtUp>>,
}

/// An attach to the MDT.
#[derive(Clone, Copy)]
pub(crate) struct Attach(u64);

#[derive(Default)]
pub(crate) struct Held {
    opens: HashMap<Fid, bool>,
    /// Leases of files.
    pub sections: BTreeMap<(Fid, u64), LeaseKind>,
    /// Leases whose return the MDT did not hear, and each `Close` that was given up, with one of its files.
    not_left: Vec<(Fid, u64)>,
    /// client-H8: the files of these.
    may_close: HashMap<Fid, u64>,
    /// client-H5.
    in_use: BTreeSet<u64>,
    last_token: u64,
}

impl Held {
    pub fn new_token(&mut self) -> u64 {
        self.last_token += 1;
        self.in_use.insert(self.last_token);
        self.last_token
    }
    pub fn floor(&self) -> u64 {
        self.in_use.first().copied().unwrap_or(self.last_token + 1)
    }
    /// The MDT has let go of all that was held. Calls that are under way keep their tokens.
    fn clear(&mut self) {
        self.opens.clear();
        for (_, token) in std::mem::take(&mut self.sections).into_keys() {
            self.in_use.remove(&token);
        }
        let (late, over): (Vec<_>, Vec<_>) = std::mem::take(&mut self.not_left)
            .into_iter()
            .partition(|(_, token)| self.may_close.values().any(|t| t == token));
        self.not_left = late;
        for (_, token) in over {
            self.in_use.remove(&token);
        }
    }
    fn has_left(&mut self, token: u64) {
        self.in_use.remove(&token);
        self.may_close.retain(|_, t| *t != token);
    }
    /// The MDT has taken the file as closed, with all leases of it.
    fn has_closed(&mut self, fid: Fid) {
        self.opens.remove(&fid);
        let tokens: Vec<u64> =
            self.sections.range((fid, 0)..=(fid, u64::MAX)).map(|((_, token), _)| *token).collect();
        for token in tokens {
            self.sections.remove(&(fid, token));
            self.in_use.remove(&token);
        }
    }
}

impl Sharing {
    pub fn mode(&self) -> u32 {
        self.mode.load(Ordering::SeqCst)
    }
    pub fn is_shared(&self) -> bool {
        self.mode() % 2 == 1
    }
    /// An attach has told the mode. Words of the MDT from before it count no more: after a restart modes are counted anew.
    pub fn want(&self, mode: u32) {
        let next = |wanted: u64| Some((wanted >> 32).wrapping_add(1) << 32 | u64::from(mode));
        let _ = self.wanted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }
    fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::SeqCst) as u32
    }
    /// Names the last attach, for `told` and `heard`. Take it before the request whose answer they are given.
    pub fn attach(&self) -> Attach {
        Attach(self.wanted.load(Ordering::SeqCst) >> 32)
    }
    pub fn is_beginning(&self) -> bool {
        self.is_beginning.load(Ordering::SeqCst)
    }
    /// The MDT has said by which mode to live. Modes rise, so an older word that comes late does not count.
    pub fn told(&self, since: Attach, mode: u32) {
        let is_newer = |wanted: u64| wanted >> 32 == since.0 && (wanted as u32) < mode;
        let next = |wanted: u64| is_newer(wanted).then_some(since.0 << 32 | u64::from(mode));
        if self.wanted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok() {
            self.due.ring();
        }
    }
    /// The MDT's answer to a sign of life.
    pub fn heard(&self, since: Attach, mode: u32) {
        self.told(since, mode);
        if !self.is_shared() && mode == self.mode() {
            self.times_alone.fetch_add(1, Ordering::SeqCst);
        }
    }
    pub fn times_alone(&self) -> u64 {
        self.times_alone.load(Ordering::SeqCst)
    }
    /// Another client waits until this one shares.
    pub fn others_come(&self) -> bool {
        self.wanted() % 2 == 1 && !self.is_shared() || self.is_beginning()
    }
    fn is_due(&self) -> bool {
        self.wanted() != self.mode() || self.owes_hold.load(Ordering::SeqCst)
    }
    /// The MDT counts anew after a restart; what it means is the same.
    pub fn renew(&self, mode: u32) {
        self.want(mode);
        self.mode.store(mode, Ordering::SeqCst);
    }
    pub fn life(&self) -> u64 {
        self.life.load(Ordering::SeqCst)
    }
    /// A new session lives by what the MDT told it at its beginning. What a client has open from an earlier one, it tells soon.
    pub fn begin(&self, mode: u32) {
        self.life.fetch_add(1, Ordering::SeqCst);
        self.recalls.pages_are_old(!self.is_shared());
        self.held.lock().clear();
        // Nothing of the old session can be sent again.
        self.mirrors.lock().values_mut().for_each(|at| at.next = ALL);
        if mode % 2 == 1 {
            self.seasons.fetch_add(1, Ordering::SeqCst);
        }
        self.renew(mode);
        self.is_beginning.store(false, Ordering::SeqCst);
        self.owes_hold.store(mode % 2 == 1, Ordering::SeqCst);
    }

    /// The MDT hears, by what is asked next, that this file is open here, if it is. client-H8: the token of a `Close` of it that may still come.
    pub fn note_open(&self, file: &File) -> Option<u64> {
        if !self.is_shared() {
            return None;
        }
        let write = {
            let mut meta = file.meta.lock();
            if meta.pins == 0 {
                return None;
            }
            // From here on its last close is noted, too.
            meta.is_noted = true;
            meta.writers > 0
        };
        let mut held = self.held.lock();
        *held.opens.entry(file.fid).or_default() |= write;
        held.may_close.get(&file.fid).copied()
    }

    pub fn times_told(&self) -> u64 {
        self.times_told.load(Ordering::SeqCst)
    }

    /// client-H6. What is noted here the MDT hears by the next `Hold`, or by `CatchUp`.
    pub fn note_mirror(&self, at: CaughtUp) {
        self.mirrors.lock().insert(at.mirror, at);
    }

    /// All that is held, in parts; the last says so.
    /// `dirs`: directories that are leased for changes, asked for once the telling has begun.
    pub fn hold(&self, dirs: impl FnOnce() -> Vec<HeldDir>) -> Vec<Hold> {
        let held = self.held.lock();
        // Under the lock: what is noted after this is not in it.
        self.times_told.fetch_add(1, Ordering::SeqCst);
        let opens: Vec<_> =
            held.opens.iter().map(|(fid, write)| OpenFile { fid: *fid, write: *write }).collect();
        let sections = held.sections.iter().map(|((fid, token), kind)| HeldSection {
            fid: *fid,
            token: *token,
            kind: *kind,
        });
        let (mode, floor) = (self.mode(), held.floor());
        let part = |opens: &[OpenFile], sections: &[HeldSection]| {
            let (opens, sections) = (opens.to_vec(), sections.to_vec());
            Hold { mode, floor, opens, sections, dirs: vec![], mirrors: vec![], more: true }
        };
        let dirs = dirs();
        let mut parts: Vec<_> = opens.chunks(PART_MAX).map(|some| part(some, &[])).collect();
        let sections: Vec<_> = sections.collect();
        parts.extend(sections.chunks(PART_MAX).map(|some| part(&[], some)));
        let mirrors = self.mirrors.lock().values().cloned().collect();
        let of_dirs = |dirs: &[HeldDir]| Hold { dirs: dirs.to_vec(), ..part(&[], &[]) };
        parts.extend(dirs.chunks(PART_MAX).map(of_dirs));
        parts.push(Hold { mirrors, more: false, ..part(&[], &[]) });
        parts
    }
}

impl Fs {
    /// Do other clients work on this file system, so that nothing may be cached?
    pub fn is_shared(&self) -> bool {
        self.id.sharing.is_shared()
    }

    /// How often other clients came since this one began: what was cached before the last time may be old.
    pub fn seasons_shared(&self) -> u64 {
        self.id.sharing.seasons.load(Ordering::SeqCst)
    }

    // ---- changes of mode ----

    /// Tells closed files, and changes the mode when the MDT wants that.
    fn share_round(&self, until: &mut Instant) {
        self.tell_closed();
        if !self.id.sharing.is_due() {
            return;
        }
        let wanted = self.id.sharing.wanted();
        match wanted % 2 {
            0 => self.be_alone(wanted),
            _ => {
                let Err(fault) = self.begin_sharing(wanted) else { return };
                // Its own calls share already; the MDT has not heard so, and keeps the others out until it has.
                self.id.sharing.owes_hold.store(true, Ordering::SeqCst);
                if Instant::now() >= *until {
                    tracing::warn!(
                        "another client waits to come in, and what this one has in hand is not told yet: {fault}"
                    );
                    *until = Instant::now() + Duration::from_secs(5);
                }
            }
        }
    }

    fn be_alone(&self, mode: u32) {
        let life = self.id.sharing.life();
        self.id.sharing.held.lock().clear();
        self.id.sharing.owes_hold.store(false, Ordering::SeqCst);
        self.id.sharing.is_beginning.store(false, Ordering::SeqCst);
        // Of a file without a lease others may have changed what is known here. The MDT has let go of all of them.
        for file in self.files.all() {
            let (is_current, is_many) = (file.hold.is_current(life), file.hold.is_many(life));
            file.hold.end_leases();
            let mut meta = file.meta.lock();
            (meta.is_stale, meta.is_part, meta.is_noted) = (!is_current, is_many, false);
        }
        self.id.sharing.mode.store(mode, Ordering::SeqCst);
        self.id.sharing.life.fetch_add(1, Ordering::SeqCst);
        tracing::info!("this client is alone again");
    }

    /// client-H2.
    fn begin_sharing(&self, mode: u32) -> Result<(), Fault> {
        let (sharing, deadline) = (&self.id.sharing, self.deadline());
        // 1. Calls that begin from here on share; files that are open are held.
        if !sharing.is_shared() {
            tracing::info!("another client comes in: from here on content is cached under leases");
            // Counted before the mode: who sees this client alone later sees that it was not.
            sharing.seasons.fetch_add(1, Ordering::SeqCst);
            // Until step 5, also if the MDT restarts meanwhile.
            sharing.is_beginning.store(true, Ordering::SeqCst);
            _ = self.claim_files();
        }
        sharing.mode.store(mode, Ordering::SeqCst);
        let late = |what: &str| Err(Fault::new(Code::Timeout, what.to_string()));
        // 2. Those before them end.
        while sharing.alone.load(Ordering::SeqCst) > 0 {
            if self.is_stopping() || Instant::now() >= deadline {
                return late("calls that began before do not end");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // client-U4.
        self.id.unshipped.end_leases();
        self.ship_all(deadline)?;
        // 3. Of files that are leased now the MDT hears with their return. Of others it hears all that is known better here.
        // (A client that began among others claims nothing: they hold leases.)
        let others = if sharing.is_beginning() { self.claim_files() } else { self.files.all() };
        for file in others {
            self.tell_better(&file, deadline)?;
        }
        // 4. After a restart of the MDT: the kernel may know names by leases of before (client-LE5).
        let until = Instant::now() + self.id.leased.void_names_left();
        while Instant::now() < until {
            if self.is_stopping() {
                return late("the client ends");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // 5. From here on others may come in. client-GU1.
        self.guard_all();
        self.leave_late_closes(deadline)?;
        self.files.all().iter().for_each(|file| _ = sharing.note_open(file));
        sharing.owes_hold.store(false, Ordering::SeqCst);
        sharing.is_beginning.store(false, Ordering::SeqCst);
        for part in sharing.hold(|| self.id.unshipped.held()) {
            self.ask_until(Fid::ROOT, &part, deadline)?;
        }
        // 6. What was opened while the MDT knew of them and this client did not is told, too, when it is closed, or was.
        for file in self.files.all() {
            file.meta.lock().is_noted = true;
        }
        self.files.tell_left_alone();
        Ok(())
    }

    /// client-H9. Returns the files that this client knows better and has no lease of by this.
    fn claim_files(&self) -> Vec<Arc<File>> {
        let (sharing, mut others) = (&self.id.sharing, Vec::new());
        let life = sharing.life();
        for file in self.files.all() {
            let (token, count) = {
                let mut held = sharing.held.lock();
                (held.new_token(), held.sections.len())
            };
            let is_cut = file.meta.lock().cutting.is_some();
            let is_claimed = !is_cut && count < KEPT_MAX && file.hold.claim(token, life);
            file.hold.note_pages();
            {
                let mut held = sharing.held.lock();
                match is_claimed {
                    true => _ = held.sections.insert((file.fid, token), LeaseKind::Exclusive),
                    false => _ = held.in_use.remove(&token),
                }
            }
            if file.hold.is_exclusive(life) {
                // The MDT hears of it before another client does (client-CL5).
                file.meta.lock().knows_better = false;
            } else {
                others.push(file.clone());
            }
        }
        others
    }

    /// client-H8, of all files: they are about to be told as open.
    fn leave_late_closes(&self, deadline: Instant) -> Result<(), Fault> {
        let next = || self.id.sharing.held.lock().may_close.iter().next().map(|(fid, token)| (*fid, *token));
        while let Some((fid, token)) = next() {
            self.try_leave(fid, token, deadline)?;
        }
        Ok(())
    }

    /// Tells what this client knows of a file from when it was alone. Nobody writes it meanwhile.
    fn tell_better(&self, file: &Arc<File>, deadline: Instant) -> Result<(), Fault> {
        let is_due = || {
            let meta = file.meta.lock();
            meta.knows_better && meta.needs_settling()
        };
        while is_due() {
            let _section = self.section(file, To::Change, deadline)?;
            if file.meta.lock().cutting.is_some() {
                self.finish_cut(file, deadline)?;
            }
            let _order = file.lock_order(deadline)?;
            let snapshot = file.meta.lock().progress.snapshot();
            self.settle_snapshot(file, &snapshot, deadline)?;
        }
        Ok(())
    }

    /// Tells which files are open no more, and which leases are given back.
    fn tell_closed(&self) {
        self.retry_returns();
        let not_left = std::mem::take(&mut self.id.sharing.held.lock().not_left);
        let soon = Instant::now() + self.settings.commit_interval.max(Duration::from_secs(1));
        for (fid, token) in not_left {
            self.leave(fid, token, soon);
        }
        if !self.id.sharing.held.lock().may_close.is_empty() {
            return;
        }
        let left = self.files.take_left();
        if !self.is_shared() {
            // The MDT has let go of all that, unless it has taken note of some since, for others who come.
            left.into_iter().for_each(|fid| self.files.left_unnoted(fid));
            return;
        }
        let mut chunks = left.chunks(CLOSE_MAX);
        while let Some(some) = chunks.next() {
            if self.close_some(some, soon).is_err() {
                // Those that were not tried go before those that failed, which may fail for ever.
                self.files.left_before(chunks.flatten());
                return;
            }
        }
    }

    /// What is not closed is told of later.
    fn close_some(&self, some: &[Fid], deadline: Instant) -> Result<(), Fault> {
        // No open of them begins between the look and the word.
        let Ok(_fid_locks) = self.names.lock_fids(some, deadline) else {
            some.iter().for_each(|fid| self.files.left(*fid));
            return Ok(());
        };
        // Open again, or on the way to it: its next last close tells.
        let is_open = |fid: &Fid| {
            let file = self.files.get(*fid);
            file.iter().for_each(|file| {
                file.meta.lock().is_noted = true;
                self.leave_unknown(file);
            });
            file.is_some()
        };
        let fids: Vec<Fid> = some.iter().filter(|fid| !is_open(fid)).copied().collect();
        let Some(first) = fids.first().copied() else { return Ok(()) };
        let held = &self.id.sharing.held;
        let (token, floor) = {
            let mut held = held.lock();
            (held.new_token(), held.floor())
        };
        let told = self.ask_until(first, &Close { token, floor, fids: fids.clone() }, deadline);
        let mut held = held.lock();
        match &told {
            Ok(_) => {
                held.has_left(token);
                fids.iter().for_each(|fid| held.has_closed(*fid));
            }
            // client-H8: before the locks of the files are let go.
            Err(_) => {
                held.not_left.push((first, token));
                held.may_close.extend(fids.iter().map(|fid| (*fid, token)));
                fids.iter().for_each(|fid| self.files.left(*fid));
            }
        }
        told.map(|_| ())
    }

    /// Leases from before the file was opened anew, which its close does not end.
    fn leave_unknown(&self, file: &File) {
        let held = &self.id.sharing.held;
        let of_file = (file.fid, 0)..=(file.fid, u64::MAX);
        let tokens: Vec<u64> = held.lock().sections.range(of_file).map(|((_, token), _)| *token).collect();
        // Before `held` is locked: a call locks it while it has the lock of the hold.
        let unknown: Vec<u64> = tokens.into_iter().filter(|token| !file.hold.knows(*token)).collect();
        held.lock().not_left.extend(unknown.into_iter().map(|token| (file.fid, token)));
    }

    pub(crate) fn leave(&self, fid: Fid, token: u64, deadline: Instant) {
        if self.try_leave(fid, token, deadline).is_err() {
            self.id.sharing.held.lock().not_left.push((fid, token));
        }
    }

    /// client-H4: a lease that is given back is not claimed any more, before the MDT hears of it.
    fn try_leave(&self, fid: Fid, token: u64, deadline: Instant) -> Result<(), Fault> {
        let held = &self.id.sharing.held;
        let floor = {
            let mut held = held.lock();
            held.sections.remove(&(fid, token));
            held.floor()
        };
        self.ask_until(fid, &Leave { fid, token, floor }, deadline)?;
        held.lock().has_left(token);
        Ok(())
    }

    /// client-H7, client-H8: the MDT may be asked to open it after this.
    pub(crate) fn note_open(&self, file: &File, deadline: Instant) -> Result<(), Fault> {
        let sharing = &self.id.sharing;
        match sharing.note_open(file) {
            Some(late) => self.try_leave(file.fid, late, deadline),
            None => Ok(()),
        }
    }
}

/// The thread that changes modes.
pub(crate) fn share_loop(weak: &Weak<Fs>) {
    let mut silent_until = Instant::now();
    while !wait_for_bell(weak, TICK, |id| &id.sharing.due) {
        let Some(fs) = weak.upgrade() else { return };
        fs.share_round(&mut silent_until);
    }
}
