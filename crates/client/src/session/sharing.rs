//! Several clients at one file system, until content has leases: it is not cached, and calls on it take turns.
//!
//! A client lives by a *mode* that the MDT names. Alone (even), it knows better than the MDT what it writes, and tells it once a
//! second. Sharing (odd), it knows nothing better: each call on content is bracketed by a section (`wire::shared`), whose
//! beginning brings what the file is now and whose end has told what became of it.
//!
//! client-H1: a call works by the mode that held when it began; a change of mode waits for those that began before it.
//! client-H2: before the MDT hears that this client shares, all that it knew better is flushed and told, and the names that the kernel was
//!     allowed to remember have run out (client-LE5).
//! client-H3: a section is entered before locks of the file are taken (client-C1).
//! client-H4: what a restarted MDT is told of sections is what this client is in: noted after it was let in, struck out before it leaves.
//! client-H5: a token is in use from the first request for its section until the MDT has heard of its end; the floor is the lowest in use.
//! client-H6: how far this client is with sending again what a target lost is noted before it asks whether it shares: who begins to share
//!     meanwhile tells it, or it asks for its turn (`Link::wait_turn`).
//! client-H7: a file is noted as open before the MDT is asked to open it. One that the same request makes cannot be: if the MDT was told meanwhile
//!     what is open here, it may not know of this one, since it restarted or others came, and is asked once more.
//! client-H8: a `Close` that was given up may come late, and is void before one of its files is opened again: it has a token, which is left.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use net::Bell;
use parking_lot::Mutex;
use types::{Attr, Code, Fault, Fid, TargetId};
use wire::meta::Settle;
use wire::shared::{ALL, CaughtUp, Close, Enter, HeldSection, Hold, Leave, OpenFile};

use crate::Fs;
use crate::cache::content::Changing;
use crate::cache::files::File;
use crate::cache::files::Found;
use crate::session::request::Answer;
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
    alone: AtomicUsize,
    held: Mutex<Held>,
    /// client-H6: OSTs that are in use.
    targets: Mutex<HashMap<TargetId, CaughtUp>>,
}

/// An attach to the MDT.
#[derive(Clone, Copy)]
pub(crate) struct Attach(u64);

#[derive(Default)]
struct Held {
    opens: HashMap<Fid, bool>,
    sections: HashMap<(Fid, u64), bool>,
    /// Sections whose end the MDT did not hear, and each `Close` that was given up, with one of its files.
    not_left: Vec<(Fid, u64)>,
    /// client-H8: the files of these.
    may_close: HashMap<Fid, u64>,
    /// client-H5.
    in_use: BTreeSet<u64>,
    last_token: u64,
}

impl Held {
    fn new_token(&mut self) -> u64 {
        self.last_token += 1;
        self.in_use.insert(self.last_token);
        self.last_token
    }
    fn floor(&self) -> u64 {
        self.in_use.first().copied().unwrap_or(self.last_token + 1)
    }
    /// The MDT has let go of all that was held. Calls that are under way keep their tokens.
    fn clear(&mut self) {
        (self.opens, self.sections) = Default::default();
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
    fn is_due(&self) -> bool {
        self.wanted() != self.mode() || self.owes_hold.load(Ordering::SeqCst)
    }
    /// The MDT counts anew after a restart; what it means is the same.
    pub fn renew(&self, mode: u32) {
        self.want(mode);
        self.mode.store(mode, Ordering::SeqCst);
    }
    /// A new session lives by what the MDT told it at its beginning. What a client has open from an earlier one, it tells soon.
    pub fn begin(&self, mode: u32) {
        self.held.lock().clear();
        // Nothing of the old session can be sent again.
        self.targets.lock().values_mut().for_each(|at| at.next = ALL);
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
    pub fn note_target(&self, at: CaughtUp) {
        self.targets.lock().insert(at.target, at);
    }

    /// All that is held, in parts; the last says so.
    pub fn hold(&self) -> Vec<Hold> {
        let held = self.held.lock();
        // Under the lock: what is noted after this is not in it.
        self.times_told.fetch_add(1, Ordering::SeqCst);
        let opens: Vec<_> =
            held.opens.iter().map(|(fid, write)| OpenFile { fid: *fid, write: *write }).collect();
        let sections = held.sections.iter().map(|((fid, token), exclusive)| HeldSection {
            fid: *fid,
            token: *token,
            exclusive: *exclusive,
        });
        let (mode, floor) = (self.mode(), held.floor());
        let mut parts: Vec<_> = opens
            .chunks(PART_MAX)
            .map(|some| Hold {
                mode,
                floor,
                opens: some.to_vec(),
                sections: vec![],
                targets: vec![],
                more: true,
            })
            .collect();
        let targets = self.targets.lock().values().cloned().collect();
        let sections = sections.collect();
        parts.push(Hold { mode, floor, opens: vec![], sections, targets, more: false });
        parts
    }
}

/// client-H1: a call on a file's content, from its beginning to its end.
pub(crate) struct Section<'a> {
    fs: &'a Fs,
    pub file: Arc<File>,
    _change: Option<Changing>,
    /// 0: alone.
    token: u64,
    pub deadline: Instant,
    /// The file as it was at the beginning, if the MDT was asked.
    pub attr: Option<Attr>,
}

impl Section<'_> {
    pub fn is_among_others(&self) -> bool {
        self.token != 0
    }
}

/// What a call does to the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    Read,
    /// Alone among all clients.
    Change,
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

    /// client-H7: of a file that is pinned and noted, and was made and opened by one request; the MDT had been told `times` what is held here before
    /// that was sent. No lock of the file is held.
    pub(crate) fn hold_made(&self, file: &Arc<File>, times: u64, deadline: Instant) -> Result<(), Fault> {
        let sharing = &self.id.sharing;
        if !sharing.is_shared() || sharing.times_told() == times {
            return Ok(());
        }
        match self.section(file, To::Read, deadline) {
            // Another has taken it away before the MDT could know. It was made all the same, and only then removed: to say otherwise would
            // have its maker make it twice. Who uses the descriptor hears that it is gone.
            Err(fault) if fault.code == Code::Stale => Ok(()),
            held => held.map(drop),
        }
    }

    /// client-H3: begins a call on the content of a pinned file. No lock of the file is held.
    pub(crate) fn section(&self, file: &Arc<File>, to: To, deadline: Instant) -> Result<Section<'_>, Fault> {
        let sharing = &self.id.sharing;
        let _change = (to == To::Change).then(|| Changing::begin(file));
        let mut section = Section { fs: self, file: file.clone(), _change, token: 0, deadline, attr: None };
        // Counted first, looked second: a change of mode sees us, or we see it.
        sharing.alone.fetch_add(1, Ordering::SeqCst);
        if !sharing.is_shared() || self.settings.observer {
            if to == To::Change {
                file.meta.lock().knows_better = true;
            }
            return Ok(section);
        }
        section.token = sharing.held.lock().new_token();
        sharing.alone.fetch_sub(1, Ordering::SeqCst);
        match self.enter(file, &mut section, to == To::Change)? {
            Found::Settled => Ok(section),
            // What a dead session left is finished by who is alone with it.
            Found::LeftOver if to == To::Change => self.finish_left_over(section),
            Found::LeftOver => {
                drop(section);
                let finished = self.section(file, To::Change, deadline).map(drop);
                match finished {
                    // Not this user's to finish: what the MDT shows is what there is.
                    Err(fault) if fault.code == Code::Access => self.section_as_shown(file, deadline),
                    finished => finished.and_then(|()| self.section(file, to, deadline)),
                }
            }
        }
    }

    /// For a reader, of a file that a dead session left.
    fn section_as_shown(&self, file: &Arc<File>, deadline: Instant) -> Result<Section<'_>, Fault> {
        let token = self.id.sharing.held.lock().new_token();
        let mut section =
            Section { fs: self, file: file.clone(), _change: None, token, deadline, attr: None };
        self.enter(file, &mut section, false)?;
        // Asked about again with the next call.
        file.own_body(deadline)?.is_loaded = true;
        Ok(section)
    }

    fn enter(&self, file: &Arc<File>, section: &mut Section<'_>, exclusive: bool) -> Result<Found, Fault> {
        let (fid, token, deadline) = (file.fid, section.token, section.deadline);
        let write = file.meta.lock().writers > 0;
        self.note_open(file, deadline)?;
        loop {
            let (floor, times) = (self.id.sharing.held.lock().floor(), self.id.sharing.times_told());
            let req = Enter { fid, token, floor, exclusive, write, now: self.now(), held: file.held() };
            let Answer { reply, mark, .. } = self.ask_until(fid, &req, deadline)?;
            if let (true, Some(open)) = (reply.granted, reply.open) {
                section.attr = Some(open.inode.attr);
                // client-H4: from here on a restarted MDT is told of it; if it was started anew since it let us in, it does not know.
                self.id.sharing.held.lock().sections.insert((fid, token), exclusive);
                // (After a clean stop its incarnation is the old one, but it asked again what is held.)
                if !self.mdt(fid)?.is_in(mark.incarnation) || self.id.sharing.times_told() != times {
                    continue;
                }
                let _order = file.lock_order(deadline)?;
                let found = self.adopt(file, open, mark, deadline)?;
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(Fault::new(
                    Code::Timeout,
                    format!("file {fid}: another client's call on it does not end; see 'stria status'"),
                ));
            }
        }
    }

    fn finish_left_over<'a>(&'a self, mut section: Section<'a>) -> Result<Section<'a>, Fault> {
        let file = section.file.clone();
        let _order = file.lock_order(section.deadline)?;
        section.attr = Some(self.recover_open(&file, section.deadline)?);
        drop(_order);
        Ok(section)
    }

    /// Other clients are to see what this call has written, though it is not flushed yet.
    pub(crate) fn show_written(&self, section: &Section<'_>) -> Result<(), Fault> {
        let file = &section.file;
        if section.token == 0 {
            return Ok(());
        }
        let Some(generation) = file.share_body(section.deadline)?.layout.as_ref().map(|l| l.generation)
        else {
            return Ok(());
        };
        let (size, blocks, mtime) = {
            let meta = file.meta.lock();
            (meta.progress.size, meta.progress.blocks, meta.progress.mtime)
        };
        let (written, done, hint) = (vec![], false, true);
        let req =
            Settle { fid: file.fid, generation, size, blocks, mtime, written, done, hint, held: file.held() };
        let answer = self.ask_until(file.fid, &req, section.deadline)?;
        file.meta.lock().saw(answer.mark);
        Ok(())
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
        self.id.sharing.held.lock().clear();
        self.id.sharing.owes_hold.store(false, Ordering::SeqCst);
        self.id.sharing.is_beginning.store(false, Ordering::SeqCst);
        // What is known of open files is as old as their last section, and the MDT has let go of them.
        for file in self.files.all() {
            let mut meta = file.meta.lock();
            (meta.is_stale, meta.is_noted) = (true, false);
        }
        self.id.sharing.mode.store(mode, Ordering::SeqCst);
        tracing::info!("this client is alone again");
    }

    /// client-H2.
    fn begin_sharing(&self, mode: u32) -> Result<(), Fault> {
        let (sharing, deadline) = (&self.id.sharing, self.deadline());
        // 1. Calls that begin from here on share; files that are open are held.
        if !sharing.is_shared() {
            tracing::info!("another client comes in: from here on no content is cached");
            // Counted before the mode: who sees this client alone later sees that it was not.
            sharing.seasons.fetch_add(1, Ordering::SeqCst);
            // Until step 5, also if the MDT restarts meanwhile.
            sharing.is_beginning.store(true, Ordering::SeqCst);
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
        // 3. The MDT hears all that is known better here: in one round, then of each file in its turn, for writers go on.
        let files = self.files.all();
        files.iter().for_each(|file| self.files.enqueue(file));
        self.settle_round(Some(deadline));
        for file in &files {
            self.tell_better(file, deadline)?;
        }
        // 4. client-LE5: what the kernel remembers of names runs out.
        let until = Instant::now() + self.id.leased.names_left();
        while Instant::now() < until {
            if self.is_stopping() {
                return late("the client ends");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // 5. From here on others may come in.
        self.leave_late_closes(deadline)?;
        self.files.all().iter().for_each(|file| _ = sharing.note_open(file));
        sharing.owes_hold.store(false, Ordering::SeqCst);
        sharing.is_beginning.store(false, Ordering::SeqCst);
        for part in sharing.hold() {
            self.ask_until(Fid::ROOT, &part, deadline)?;
        }
        // 6. What was opened while the MDT knew of them and this client did not is told, too, when it is closed, or was.
        for file in self.files.all() {
            file.meta.lock().is_noted = true;
        }
        self.files.tell_left_alone();
        Ok(())
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

    /// Tells which files are open no more, and which sections have ended.
    fn tell_closed(&self) {
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
        let is_open = |fid: &Fid| self.files.get(*fid).inspect(|f| f.meta.lock().is_noted = true).is_some();
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
                fids.iter().for_each(|fid| _ = held.opens.remove(fid));
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

    fn leave(&self, fid: Fid, token: u64, deadline: Instant) {
        if self.try_leave(fid, token, deadline).is_err() {
            self.id.sharing.held.lock().not_left.push((fid, token));
        }
    }

    /// client-H4: a section that ends is not claimed any more, before the MDT hears of it.
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

impl Drop for Section<'_> {
    fn drop(&mut self) {
        match self.token {
            0 => {
                self.fs.id.sharing.alone.fetch_sub(1, Ordering::SeqCst);
            }
            token => self.fs.leave(self.file.fid, token, self.deadline),
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
