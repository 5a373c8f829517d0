//! Calls on a file's content, and the leases that they need beside other clients (`cache::hold`, `wire::shared`).
//!
//! A lease is granted by `Enter`, whose answer says what the file is now. It outlives the call. While it is shared, no client changes the
//! content. While it is a many lease, several clients write, and each knows only its own writes (client-CL8). While it is exclusive, no
//! other client uses it, and this one tells the MDT sizes and times only when it gives the lease back, or
//! settles the file. The notice `GiveBack` asks for that.
//!
//! client-CL5: before an exclusive or many lease is given back, the MDT has heard the size and times that the client knows.
//! client-CL6: past the end of this client's term a lease is confirmed before each use: the MDT may have ended the session (mds-X10).
//! client-CL7: an answer that confirms a lease changes nothing of what this client knows better.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use net::Bell;
use parking_lot::{Mutex, RwLock};
use types::{Attr, Code, Fault, Fid};
use wire::meta::Settle;
use wire::notice::Wanted;
use wire::shared::Enter;

use crate::Fs;
use crate::cache::api::Handle;
use crate::cache::content::Changing;
use crate::cache::files::{File, Found};
use crate::cache::hold::{Hold, KEPT_FOR_APPENDS, Recalled, Return, To, Way, Wish};
use crate::session::request::Answer;
use crate::wait_for_bell;

/// Leases that this client keeps, of the 65,536 that the MDT gives a session. Past it a lease ends with its call.
pub(crate) const KEPT_MAX: usize = 32_768;
/// Threads that give leases back. One that waits for a target delays no other.
pub(crate) const THREADS: usize = 8;
/// client-CL9: how often a thread looks whether appends go on.
const KEPT_LOOK: Duration = Duration::from_millis(1);
/// Longest time of one try.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(10);

/// Leases that other clients want, until a thread looks at them, and files whose lease could not be given back.
#[derive(Default)]
pub(crate) struct Recalls {
    wanted: Mutex<Vec<Wanted>>,
    pub bell: Bell,
    owed: Mutex<Vec<Arc<File>>>,
    /// Leases to be given back by threads that may wait for the kernel.
    returns: Mutex<Vec<(Arc<File>, Return)>>,
    drop_pages: RwLock<Option<DropPages>>,
    has_old_pages: AtomicBool,
    /// Pages from a time without leases are among them.
    are_pages_of_alone_old: AtomicBool,
}

/// Makes the kernel drop its pages of a range of a file, dirty ones after it has written them. It may wait for answers to requests for pages.
pub type DropPages = Box<dyn Fn(Fid, &Range<u64>) + Send + Sync>;

impl Recalls {
    /// client-CP4: the session has ended.
    pub fn pages_are_old(&self, was_alone: bool) {
        self.are_pages_of_alone_old.fetch_or(was_alone, Ordering::SeqCst);
        self.has_old_pages.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// client-EA1.
    pub fn add(&self, items: Vec<Wanted>) {
        self.wanted.lock().extend(items);
        self.bell.ring();
    }
}

/// client-H1: a call on a file's content, from its beginning to its end.
pub(crate) struct Section<'a> {
    fs: &'a Fs,
    pub file: Arc<File>,
    _change: Option<Changing>,
    /// The lease that it uses; `None`: this client is alone.
    lease: Option<To>,
    pub deadline: Instant,
    /// The file as it was at the beginning, if the MDT was asked.
    pub attr: Option<Attr>,
    is_parked: bool,
}

/// client-WB3: a section that goes from the thread that began it to another one. It is to be taken up again.
pub(crate) struct Parked {
    file: Arc<File>,
    change: Option<Changing>,
    lease: Option<To>,
}

impl Section<'_> {
    pub fn park(mut self) -> Parked {
        self.is_parked = true;
        Parked { file: self.file.clone(), change: self._change.take(), lease: self.lease }
    }
    pub fn is_among_others(&self) -> bool {
        self.lease.is_some()
    }
    pub fn is_exclusive(&self) -> bool {
        self.lease == Some(To::Change)
    }
    /// client-CL8: it may do no more than that.
    pub fn is_many(&self) -> bool {
        self.lease == Some(To::Many)
    }
    /// Attributes that the MDT told during this call, with what this client knows better.
    pub fn attr_of(&self, attr: Attr) -> Result<Attr, Fault> {
        match self.lease {
            Some(To::Change) => self.file.overlay(attr, self.deadline),
            // After a restart the MDT shows the flushed size only, until a client has asked the objects (meta-H1).
            Some(To::Read) => self.file.overlay_size(attr, self.deadline),
            Some(To::Many) => Ok(attr),
            None => self.fs.overlay(&self.file, attr, self.deadline),
        }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.is_parked {
            return;
        }
        match self.lease.is_some() {
            false => _ = self.fs.id.sharing.alone.fetch_sub(1, Ordering::SeqCst),
            true => self.file.hold.end().into_iter().for_each(|back| self.fs.go_back(&self.file, back)),
        }
    }
}

impl Fs {
    /// client-H7: of a file that is pinned and noted, and was made and opened by one request with this answer; the MDT had been told `times` what is
    /// held here before that was sent. No lock of the file is held.
    pub(crate) fn hold_made(
        &self,
        file: &Arc<File>,
        made: Attr,
        times: u64,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        let sharing = &self.id.sharing;
        if !sharing.is_shared() || sharing.times_told() == times {
            return Ok(made);
        }
        match self.section(file, To::Read, deadline) {
            // Another has taken it away before the MDT could know. It was made all the same, and only then removed: to say otherwise would
            // have its maker make it twice. The next use of its content fails with `Stale`.
            Err(fault) if fault.code == Code::Stale => {
                // The kernel asks for attributes before its `open` returns. With `ESTALE` it would look up the path anew, and make a second file.
                self.id.gone.remember(Attr { nlink: 0, ..made });
                Ok(made)
            }
            held => held.map(|_| made),
        }
    }

    /// client-H3: begins a call on the content of a pinned file. No lock of the file is held.
    pub(crate) fn section(&self, file: &Arc<File>, to: To, deadline: Instant) -> Result<Section<'_>, Fault> {
        self.section_for(file, to.into(), deadline)
    }

    /// Takes up a section of another thread.
    pub(crate) fn take_up(&self, Parked { file, change, lease }: Parked, deadline: Instant) -> Section<'_> {
        Section { fs: self, file, _change: change, lease, deadline, attr: None, is_parked: false }
    }

    /// As `section`, also for calls of the kernel about its pages. client-WB1: after the writes behind.
    pub(crate) fn section_for(
        &self,
        file: &Arc<File>,
        wish: Wish,
        deadline: Instant,
    ) -> Result<Section<'_>, Fault> {
        self.await_behind(file, deadline)?;
        self.section_beside(file, wish, deadline)
    }

    /// As `section_for`, beside writes behind: for calls that do not look at the bytes.
    pub(crate) fn section_beside(
        &self,
        file: &Arc<File>,
        wish: Wish,
        deadline: Instant,
    ) -> Result<Section<'_>, Fault> {
        let is_for_pages = wish.is_for_pages();
        let section = self.begin_section(file, wish, deadline)?;
        if is_for_pages && section.is_among_others() {
            self.guard_pages_of(file.fid);
        }
        Ok(section)
    }

    fn begin_section(&self, file: &Arc<File>, wish: Wish, deadline: Instant) -> Result<Section<'_>, Fault> {
        let (sharing, to) = (&self.id.sharing, wish.to);
        let _change = (to != To::Read).then(|| Changing::begin(file));
        let file = file.clone();
        let mut section =
            Section { fs: self, file, _change, lease: None, deadline, attr: None, is_parked: false };
        // Counted first, looked second: a change of mode sees us, or we see it.
        sharing.alone.fetch_add(1, Ordering::SeqCst);
        if !sharing.is_shared() || self.settings.observer {
            if to != To::Read {
                section.file.meta.lock().knows_better = true;
            }
            return Ok(section);
        }
        let Some(found) = self.take_lease(&mut section, wish.clone())? else { return Ok(section) };
        match found {
            Found::Settled => Ok(section),
            // The client with the exclusive lease finishes the file that a dead session left.
            Found::LeftOver if section.is_exclusive() => self.finish_left_over(section),
            Found::LeftOver => {
                let file = section.file.clone();
                drop(section);
                let finished = self.section(&file, To::Change, deadline).map(drop);
                match finished {
                    // Not this user's to finish: what the MDT shows is what there is.
                    Err(fault) if fault.code == Code::Access && to == To::Read => {
                        self.section_as_shown(&file, deadline)
                    }
                    finished => finished.and_then(|()| self.section_for(&file, wish, deadline)),
                }
            }
        }
    }

    /// A call that needs no more than the shared or exclusive lease which is held; `None`: none is. Sends nothing.
    pub(crate) fn section_if_held(&self, file: &Arc<File>) -> Option<Section<'_>> {
        self.section_if(file, Hold::begin_if_held)
    }

    /// client-CL8: a call that needs no more than the many lease which is held.
    pub(crate) fn section_if_many(&self, file: &Arc<File>) -> Option<Section<'_>> {
        self.section_if(file, Hold::begin_if_many)
    }

    fn section_if(&self, file: &Arc<File>, begin: fn(&Hold, u64, bool) -> Option<To>) -> Option<Section<'_>> {
        let sharing = &self.id.sharing;
        if !sharing.is_shared() || self.settings.observer {
            return None;
        }
        let to = begin(&file.hold, sharing.life(), self.id.leased.is_valid())?;
        let (file, deadline) = (file.clone(), self.deadline());
        Some(Section {
            fs: self,
            file,
            _change: None,
            lease: Some(to),
            deadline,
            attr: None,
            is_parked: false,
        })
    }

    /// For a reader, of a file that a dead session left.
    fn section_as_shown(&self, file: &Arc<File>, deadline: Instant) -> Result<Section<'_>, Fault> {
        let file = file.clone();
        let mut section =
            Section { fs: self, file, _change: None, lease: None, deadline, attr: None, is_parked: false };
        self.id.sharing.alone.fetch_add(1, Ordering::SeqCst);
        self.take_lease(&mut section, To::Read.into())?;
        // Asked about again with the next call.
        section.file.own_body(deadline)?.is_loaded = true;
        section.file.hold.doubt();
        Ok(section)
    }

    /// Takes the lease for a section that counts as alone until then. `None`: the MDT was not asked.
    fn take_lease(&self, section: &mut Section<'_>, wish: Wish) -> Result<Option<Found>, Fault> {
        let (sharing, file, deadline) = (&self.id.sharing, section.file.clone(), section.deadline);
        loop {
            let life = sharing.life();
            let new_token = || sharing.held.lock().new_token();
            let (token, to, is_held) =
                match file.hold.begin(wish.clone(), life, self.id.leased.is_valid(), deadline, new_token) {
                    Way::Use(held) => {
                        self.is_leased_now(section, held);
                        return Ok(None);
                    }
                    Way::Ask { token, to, is_held } => (token, to, is_held),
                    Way::GiveBack(back) => {
                        self.go_back(&file, back);
                        continue;
                    }
                    Way::Late => return Err(late(file.fid)),
                    Way::Old => return Err(self.poison_old(&file)),
                    Way::Again => return Err(Code::NotReady.into()),
                };
            let pages = wish.is_for_pages();
            let asked = self.enter(&file, token, to, (is_held, life, pages), deadline);
            let is_over = sharing.life() != life;
            if !matches!(asked, Ok(Some(_))) || is_over {
                let back = file.hold.refused(token);
                back.into_iter().for_each(|back| self.go_back(&file, back));
                // The MDT may have granted it all the same.
                if !is_held || is_over {
                    self.leave(file.fid, token, deadline);
                }
                // A session that ended meanwhile makes its token void, whatever was answered.
                if !is_over {
                    asked?;
                }
                continue;
            }
            let Some((to, attr, found)) = asked? else { continue };
            // Inline content needs no lease but for pages: the MDT orders its reads and writes.
            let is_worth = wish.is_for_pages() || !file.is_inline();
            let is_kept =
                is_worth && self.id.leased.is_valid() && sharing.held.lock().sections.len() <= KEPT_MAX;
            let is_doubtful = found == Found::LeftOver;
            let old = file.hold.granted((token, to, life), is_kept, is_doubtful, wish.is_for_pages());
            self.is_leased_now(section, to);
            section.attr = Some(attr);
            old.into_iter().for_each(|old| self.leave(file.fid, old, deadline));
            return Ok(Some(found));
        }
    }

    fn is_leased_now(&self, section: &mut Section<'_>, to: To) {
        section.lease = Some(to);
        self.id.sharing.alone.fetch_sub(1, Ordering::SeqCst);
    }

    /// Asks the MDT until it grants the lease, and returns its kind. `None`: pages of the file are dropped, and that may wait for this call about pages.
    fn enter(
        &self,
        file: &Arc<File>,
        token: u64,
        to: To,
        (is_held, life, is_for_pages): (bool, u64, bool),
        deadline: Instant,
    ) -> Result<Option<(To, Attr, Found)>, Fault> {
        let (fid, sharing) = (file.fid, &self.id.sharing);
        let write = file.meta.lock().writers > 0;
        let kind = to.into();
        self.note_open(file, deadline)?;
        loop {
            let (floor, times) = (sharing.held.lock().floor(), sharing.times_told());
            let req = Enter { fid, token, floor, kind, write, now: self.now(), held: file.held() };
            let Answer { reply, mark, .. } = self.ask_until(fid, &req, deadline)?;
            if let (Some(kind), Some(open)) = (reply.granted, reply.open) {
                let attr = open.inode.attr;
                // client-H4: from here on a restarted MDT is told of it; if it was started anew since it let us in, it does not know.
                sharing.held.lock().sections.insert((fid, token), kind);
                // (After a clean stop its incarnation is the old one, but it asked again what is held.)
                if !self.mdt(fid)?.is_in(mark.at) || sharing.times_told() != times {
                    continue;
                }
                let _order = file.lock_order(deadline)?;
                // client-CL7.
                let found = match is_held && sharing.life() == life {
                    true => self.take_open_as(file, open, mark, true, deadline)?,
                    false => self.adopt(file, open, mark, deadline)?,
                };
                return Ok(Some((kind.into(), attr, found)));
            }
            if is_for_pages && file.hold.is_clearing() {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(late(fid));
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

    // ---- leases that go back ----

    /// Gives a lease back, on another thread if that may wait for the kernel: this one may serve it.
    fn go_back(&self, file: &Arc<File>, back: Return) {
        // An ending client has no other threads any more, and its kernel no mount.
        match back.has_pages && !self.is_stopping() {
            false => self.give_back(file, back),
            true => {
                self.id.sharing.recalls.returns.lock().push((file.clone(), back));
                self.id.sharing.recalls.bell.ring();
            }
        }
    }

    /// Gives back what threads that have ended left.
    pub(crate) fn finish_returns(&self) {
        let next = || self.id.sharing.recalls.returns.lock().pop();
        while let Some((file, back)) = next() {
            self.give_back(&file, back);
        }
        self.retry_returns();
    }

    /// client-CP1.
    fn drop_pages(&self, file: &File) {
        let size = file.meta.lock().progress.size;
        let drop_pages = self.id.sharing.recalls.drop_pages.read();
        file.hold.clear(size, |gap| drop_pages.iter().for_each(|drop_pages| drop_pages(file.fid, gap)));
    }

    /// Drops all pages that the kernel has of a file, whatever lease they came under. May wait for the kernel.
    pub(crate) fn drop_all_pages(&self, fid: Fid) {
        let drop_pages = self.id.sharing.recalls.drop_pages.read();
        drop_pages.iter().for_each(|drop_pages| drop_pages(fid, &(0..u64::MAX)));
    }

    /// client-CP4: a program stored into a page under a lease that has ended since.
    fn poison_old(&self, file: &File) -> Fault {
        let why = format!(
            "file {}: the session in which it was mapped was ended; what was stored and not synced is lost",
            file.fid
        );
        let fault = Fault::new(Code::Io, why);
        file.meta.lock().poison.get_or_insert(fault.clone());
        fault
    }

    /// client-CP4.
    fn drop_old_pages(&self) {
        let recalls = &self.id.sharing.recalls;
        if recalls.are_pages_of_alone_old.swap(false, Ordering::SeqCst) {
            self.files.all().iter().for_each(|file| file.hold.pages_are_old());
        }
        if !recalls.has_old_pages.swap(false, Ordering::SeqCst) {
            return;
        }
        let life = self.id.sharing.life();
        for file in self.files.all().into_iter().filter(|file| file.hold.has_old_pages(life)) {
            self.drop_all_pages(file.fid);
            file.hold.old_pages_dropped();
        }
    }

    /// client-CL5. A return that fails is tried again later.
    fn give_back(&self, file: &Arc<File>, back: Return) {
        if back.has_pages {
            self.drop_pages(file);
        }
        // The MDT does not answer: before that is waited for, pages of all files are dropped (client-CL6).
        if back.has_pages && self.id.leased.is_valid() && self.id.leased.is_ending() && !self.is_stopping() {
            file.hold.put_off();
            self.id.sharing.recalls.owed.lock().push(file.clone());
            return;
        }
        let deadline = Instant::now() + RETURN_MAX.min(self.op_timeout());
        if back.life == self.id.sharing.life() {
            if back.to != To::Read
                && let Err(fault) = self.show_written(file, back.to, deadline)
            {
                tracing::debug!("the lease of file {} goes back later: {fault}", file.fid);
                file.hold.put_off();
                self.id.sharing.recalls.owed.lock().push(file.clone());
                return;
            }
            self.leave(file.fid, back.token, deadline);
        }
        let next = file.hold.returned(back.token);
        next.into_iter().for_each(|next| self.go_back(file, next));
    }

    /// Other clients are to see what this one has written, though it is not flushed yet.
    fn show_written(&self, file: &Arc<File>, to: To, deadline: Instant) -> Result<(), Fault> {
        let Some(generation) = file.share_body(deadline)?.layout.as_ref().map(|l| l.generation) else {
            return Ok(());
        };
        let is_part = to == To::Many;
        let (size, blocks, mtime) = {
            let meta = file.meta.lock();
            if !meta.progress.is_untold() || meta.is_gone {
                return Ok(());
            }
            let blocks = if is_part { meta.progress.added() } else { meta.progress.blocks };
            (meta.progress.size, blocks, meta.progress.mtime)
        };
        let (written, done, hint) = (vec![], false, true);
        let (fid, held) = (file.fid, file.held());
        let req = Settle { fid, generation, size, blocks, mtime, written, done, hint, is_part, held };
        match self.ask_until(file.fid, &req, deadline) {
            Ok(answer) => {
                file.meta.lock().saw(answer.mark);
                Ok(())
            }
            // The file or these objects are gone: there is nothing to tell.
            Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Tries leases again that could not be given back.
    pub(crate) fn retry_returns(&self) {
        let owed = std::mem::take(&mut *self.id.sharing.recalls.owed.lock());
        for file in owed {
            file.hold.retry().into_iter().for_each(|back| self.go_back(&file, back));
        }
    }

    /// client-CP1: this client's leases are about to run out.
    pub(crate) fn give_up_pages(&self) {
        self.files.all().iter().for_each(|file| self.give_up_pages_of(file));
    }
    pub(crate) fn give_up_pages_of(&self, file: &Arc<File>) {
        file.hold.give_up_pages().into_iter().for_each(|back| self.go_back(file, back));
    }

    /// The kernel keeps the pages that it has of the file over an open.
    pub fn keeps_pages(&self, fid: Fid) -> bool {
        let is_held = |file: &Arc<File>| file.hold.keeps_pages(self.id.sharing.life());
        self.files.get(fid).as_ref().is_some_and(is_held)
    }

    /// A program may store through mappings of the file from here on: pages that the kernel has of it need the exclusive lease.
    pub fn own_pages(&self, fid: Fid) -> Result<(), Fault> {
        let has_pages = self.keeps_pages(fid) || self.is_dropping_pages(fid);
        match self.files.get(fid).filter(|_| has_pages) {
            Some(file) => self.section(&file, To::Change, self.deadline()).map(drop),
            None => Ok(()),
        }
    }

    /// The kernel's pages of the file are being dropped, because another client wants it.
    pub fn is_dropping_pages(&self, fid: Fid) -> bool {
        self.is_shared() && self.files.get(fid).is_some_and(|file| file.hold.is_clearing())
    }

    /// The content is in the MDT's record. Whether that is so may change at any time.
    pub fn is_inline(&self, handle: Handle) -> bool {
        self.opened(handle).is_ok_and(|opened| opened.file.is_inline())
    }

    /// `drop_pages` is called by threads that may wait for the kernel.
    pub fn on_recall(&self, drop_pages: DropPages) {
        *self.id.sharing.recalls.drop_pages.write() = Some(drop_pages);
    }

    fn recalled(&self, Wanted { fid, token }: Wanted) {
        if self.dir_recalled(fid, token) {
            return;
        }
        let file = self.files.get(fid);
        // client-CL9.
        let until = Instant::now() + KEPT_FOR_APPENDS;
        let is_kept = |now| file.as_ref().is_some_and(|file| file.hold.is_kept_for_appends(token, now));
        while !self.is_stopping() && is_kept(Instant::now()) && Instant::now() < until {
            std::thread::sleep(KEPT_LOOK);
        }
        match file.as_ref().map_or(Recalled::Unknown, |file| file.hold.recall(token)) {
            Recalled::Now(back) => file.iter().for_each(|file| self.give_back(file, back)),
            Recalled::Later => {}
            // A file that is open no more, whose close the MDT has not heard yet.
            Recalled::Unknown => {
                let is_noted = self.id.sharing.held.lock().sections.contains_key(&(fid, token));
                match is_noted {
                    true => self.leave(fid, token, Instant::now() + RETURN_MAX),
                    // Or a directory from an earlier time of sharing.
                    false => self.leave_dir(fid, token),
                }
            }
        }
    }
}

fn late(fid: Fid) -> Fault {
    let why = format!(
        "file {fid}: another client's call on it does not end; see 'stria lease list' and 'stria status'"
    );
    Fault::new(Code::Timeout, why)
}

/// A thread that gives leases back which other clients want.
pub(crate) fn recall_loop(weak: &Weak<Fs>) {
    while !wait_for_bell(weak, Duration::from_secs(1), |id| &id.sharing.recalls.bell) {
        let Some(fs) = weak.upgrade() else { return };
        fs.drop_old_pages();
        let next = || fs.id.sharing.recalls.wanted.lock().pop();
        while let Some(wanted) = next() {
            if !fs.id.sharing.recalls.wanted.lock().is_empty() {
                // For another thread.
                fs.id.sharing.recalls.bell.ring();
            }
            fs.recalled(wanted);
        }
        let next = || fs.id.sharing.recalls.returns.lock().pop();
        while let Some((file, back)) = next() {
            if !fs.id.sharing.recalls.returns.lock().is_empty() {
                fs.id.sharing.recalls.bell.ring();
            }
            fs.give_back(&file, back);
        }
    }
}
