//! The client of one file system: the state and the helpers of all verbs.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use net::{Bell, Fabric};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use types::{Buf, Code, Fault, Fid, FsId, MirrorId, SessionId, Time, Uuid};
use wire::map::ClusterMap;
use wire::meta::Release;
use wire::session::Detach;

use crate::cache::api::{Handle, Settings, StatFs};
use crate::cache::files::{Body, File, Files, For, Opened};
use crate::cache::listing::Listings;
use crate::cache::names::NameLocks;
use crate::cache::removed::Removed;
use crate::session::behind::Behind;
use crate::session::cluster::Cluster;
use crate::session::doubts::Doubts;
use crate::session::gone::Gone;
use crate::session::identity::Identity;
use crate::session::link::Link;
use crate::session::losses::Losses;
use crate::session::request::Answer;
use crate::session::root::Root;
use crate::session::section;
use crate::session::sent::Sent;
use crate::upkeep::alive;
use crate::upkeep::elsewhere::Elsewhere;
use crate::upkeep::room::Waits;

/// Pause between two looks for a new map.
const MAP_EACH: Duration = Duration::from_millis(20);
/// Buffers kept for reads that cross objects: as many as one thread has in flight.
const BUFS_MAX: usize = 32;
/// Longest time of `shutdown`. Files without an update by then are recovered at their next open.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);
/// Longest sleep of the background thread, after which it checks for its end.
const TICK_MAX: Duration = Duration::from_millis(250);

/// A client of a file system: see the crate's documentation for its methods.
pub struct Fs {
    pub(crate) id: Arc<Identity>,
    pub(crate) cluster: Cluster,
    pub(crate) files: Files,
    /// Files whose update failed in the last round. They count as queued.
    pub(crate) put_off: Mutex<Vec<Arc<File>>>,
    pub(crate) removed: Removed,
    pub(crate) waits: Arc<Waits>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) listings: Listings,
    pub(crate) noted: crate::cache::accessed::Noted,
    pub(crate) content_bytes: Arc<AtomicUsize>,
    /// Number of extended attributes that were set here.
    pub(crate) xattrs_set: AtomicU64,
    pub(crate) names: NameLocks,
    pub(crate) behind: Arc<Behind>,
    pub(crate) settings: Settings,
    /// A parameter of the mount may change it.
    pub(crate) op_timeout_ms: AtomicU64,
    pub(crate) statfs_cache: Mutex<Option<(Instant, StatFs)>>,
    pub(crate) fabric: Arc<Fabric>,
    bufs: Mutex<Vec<Buf>>,
    stop: (Mutex<bool>, Condvar),
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Fs {
    /// Attaches to the MDT of `fs` in `map` and starts the background thread. OSTs are attached when they are first used,
    /// so a mount comes up while one is down. Refused with `Busy` while another client is attached.
    pub fn connect(
        fabric: Arc<Fabric>,
        map: ClusterMap,
        fs: FsId,
        settings: Settings,
    ) -> Result<Arc<Fs>, Fault> {
        let entry = map.fs(fs).ok_or_else(|| {
            Fault::new(
                Code::NotFound,
                format!("file system {fs} is not in the cluster map; see 'stria status'"),
            )
        })?;
        let id = Arc::new(Identity {
            fs,
            fs_uuid: entry.uuid,
            client: Uuid(rand::random()),
            name: settings.name.clone(),
            observer: settings.observer,
            claims: settings.claims.clone(),
            wants_own_locks: settings.own_locks,
            own_locks: AtomicBool::new(false),
            judges: AtomicBool::new(false),
            knows_groups: AtomicBool::new(false),
            root: Default::default(),
            retain_bytes_max: settings.retain_bytes_max,
            session: AtomicU64::new(0),
            ticket: Default::default(),
            losses: Losses::default(),
            doubts: Doubts::default(),
            locks: Default::default(),
            gone: Gone::default(),
            sharing: Default::default(),
            leased: Default::default(),
            unshipped: Default::default(),
            ear: Default::default(),
            jobs: Default::default(),
            alive: Default::default(),
            alive_osts: Default::default(),
            map_wanted: Default::default(),
            mdt: Default::default(),
            owner: Default::default(),
            alive_answers: Default::default(),
            aborted: AtomicBool::new(false),
            sleepers: (Mutex::new(()), Condvar::new()),
        });
        let params = settings.params.as_ref().map(|tuned| tuned.params.clone());
        params.iter().for_each(|params| params.follow_for_mount(&map, fs));
        let fs = Arc::new(Fs {
            cluster: Cluster::new(fabric.clone(), id.clone(), map),
            id,
            files: Files::new(),
            put_off: Mutex::default(),
            removed: Removed::default(),
            waits: Arc::default(),
            elsewhere: Elsewhere::default(),
            listings: Listings::default(),
            noted: Default::default(),
            content_bytes: Arc::default(),
            xattrs_set: AtomicU64::new(0),
            names: NameLocks::new(),
            behind: Arc::new(Behind::new(settings.write_behind)),
            op_timeout_ms: AtomicU64::new(settings.op_timeout.as_millis() as u64),
            settings,
            statfs_cache: Mutex::new(None),
            fabric,
            bufs: Mutex::default(),
            stop: (Mutex::new(false), Condvar::new()),
            threads: Mutex::default(),
        });
        fs.id.owner.set(Arc::downgrade(&fs)).expect("a client is made once");
        fs.follow_params();
        fs.mdt(Fid::ROOT)?.ready(fs.deadline())?;
        fs.start_threads()
            .map_err(|e| Fault::new(Code::Io, format!("cannot start the client's threads: {e}")))?;
        Ok(fs)
    }

    fn start_threads(self: &Arc<Fs>) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        let spawn = |name: &str, run: fn(&Weak<Fs>)| {
            let weak = Arc::downgrade(self);
            std::thread::Builder::new().name(name.into()).spawn(move || run(&weak))
        };
        if !self.settings.observer {
            threads.push(spawn("stria-settle", settle_loop)?);
            threads.push(spawn("stria-locks", crate::session::locks::wait_loop)?);
            threads.push(spawn("stria-alive", alive::mdt_loop)?);
            threads.push(spawn("stria-listen", alive::ost_loop)?);
            threads.push(spawn("stria-ship", crate::session::ship::ship_loop)?);
            threads.push(spawn("stria-guard", crate::session::guarded::sign_loop)?);
            threads.push(spawn("stria-share", crate::session::sharing::share_loop)?);
            for _ in 0..section::THREADS {
                threads.push(spawn("stria-recall", section::recall_loop)?);
            }
        }
        Ok(())
    }

    /// The session at the MDT; 0 for observers.
    pub fn session(&self) -> SessionId {
        SessionId(self.id.session.load(Ordering::Acquire))
    }

    /// The directory that this client sees as its root.
    pub fn root(&self) -> &Root {
        &self.id.root
    }

    /// The identity of the file system, given when it was made.
    pub fn uuid(&self) -> Uuid {
        self.id.fs_uuid
    }

    /// True if a read request needs its caller's own `Cred`. Otherwise root's is enough, since the kernel has checked.
    pub fn is_judged(&self) -> bool {
        self.id.judges.load(Ordering::Relaxed)
    }

    /// True if the MDT looks up supplementary groups itself, so that requests need none.
    pub fn knows_groups(&self) -> bool {
        self.id.knows_groups.load(Ordering::Relaxed)
    }

    /// `want` is called when a target may have moved: it has a newer map fetched, and waits for nothing.
    pub fn on_map_wanted(&self, want: Box<dyn Fn() + Send + Sync>) {
        *self.id.map_wanted.lock() = Some(want);
    }

    /// Takes over a newer cluster map.
    pub fn set_map(&self, map: ClusterMap) {
        self.take_kept(&map);
        if self.cluster.set_map(map) {
            // An MDT that took over waits for all its clients, also for those that have nothing to ask.
            self.tell_servers();
        }
    }

    /// Reports outstanding updates, and ends the session. Returns after at most 10 s, with the first error.
    pub fn shutdown(&self) -> Result<(), Fault> {
        let most = self.op_timeout().min(SHUTDOWN_MAX);
        if !self.settings.observer {
            // While the threads run: some of them may wait for that.
            self.behind.await_all(Instant::now() + most);
            _ = self.ship_all(Instant::now() + most);
        }
        self.end_threads();
        let deadline = Instant::now() + most;
        if self.settings.observer {
            return Ok(());
        }
        self.ship_rest(deadline);
        self.finish_returns();
        // 1. Close open files, so that their updates are final.
        for opened in self.files.take_handles() {
            self.close(&opened, deadline);
        }
        // 2. Flush bytes, report sizes, then flush names.
        self.tell_accessed(deadline);
        let settled = self.settle_all(deadline);
        let flushed = self
            .mdt(Fid::ROOT)
            .and_then(|mdt| if mdt.is_all_flushed() { Ok(()) } else { mdt.flush(deadline) });
        // 3. Detach, from the MDT last, since it gave the session. If an update failed, other clients may know sizes without bytes behind them.
        // Then this client does not detach: the MDT evicts it, and the next open of such a file asks its objects.
        let mut links = self.cluster.attached();
        links.sort_by_key(|l| l.is_mdt);
        for link in links.into_iter().filter(|l| !l.is_mdt || settled.is_ok()) {
            if let Err(fault) = link.ask(Fid(0), &Detach { session: self.session() }, deadline) {
                tracing::warn!("detaching from {}: {fault}", link.describe());
            }
        }
        settled.and(flushed)
    }

    /// Ends every waiting and later call with an error, at once, and sends nothing more. For unmounting while servers are dead.
    pub fn abort(&self) {
        self.id.aborted.store(true, Ordering::Release);
        self.fabric.abort();
        self.id.sleepers.1.notify_all();
        self.cluster.attached().iter().for_each(|l| l.slots.wake_all());
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
    }

    /// Sends a sign of life to all servers at once. They note the certificate of this host by it, so a new one is known before the former is
    /// revoked.
    pub fn tell_servers(&self) {
        self.id.alive.ring();
        self.id.alive_osts.ring();
    }

    /// The tag of a job and user, for `set_job`. The servers are told a new one at once.
    pub fn job_tag(&self, job: &str, uid: u32) -> u32 {
        let (tag, is_new) = self.id.jobs.tag(job, uid, Instant::now());
        if is_new {
            self.tell_servers();
        }
        tag
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.0.lock()
    }

    fn end_threads(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.id.locks.wake();
        self.id.alive.ring();
        self.id.alive_osts.ring();
        self.id.sharing.due.ring();
        self.id.unshipped.bell.ring();
        self.behind.end();
        (0..section::THREADS).for_each(|_| self.id.sharing.recalls.bell.ring());
        let me = std::thread::current().id();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // The background thread may hold the last reference, and run this itself.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a thread of the client panicked; mount again, and report the lines above");
            }
        }
        self.id.ear.end();
    }

    // ---- helpers of the verbs ----

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.op_timeout()
    }
    pub(crate) fn now(&self) -> Time {
        SystemTime::now().into()
    }
    pub(crate) fn mdt(&self, fid: Fid) -> Result<Arc<Link>, Fault> {
        self.cluster.mdt_of(fid)
    }

    /// The link to the target of `mirror`. For a mirror that is newer than the map, asks an MGS in this process, or waits for the map that a
    /// heartbeat brings.
    pub(crate) fn ost(&self, mirror: MirrorId, deadline: Instant) -> Result<Arc<Link>, Fault> {
        while !self.cluster.has_mirror(mirror) && !self.cluster.is_removed(mirror) {
            match self.cluster.newer_map(deadline) {
                Some(map) => {
                    self.take_kept(&map);
                    self.cluster.set_map(map);
                }
                None if self.cluster.has_mgs() || self.is_stopping() || Instant::now() >= deadline => break,
                None => {
                    self.id.want_map();
                    std::thread::sleep(MAP_EACH);
                }
            }
        }
        self.cluster.ost(mirror)
    }

    /// One request to the MDT of `fid`.
    pub(crate) fn ask<R: Sent>(&self, fid: Fid, req: &R) -> Result<R::Reply, Fault> {
        Ok(self.ask_until(fid, req, self.deadline())?.reply)
    }
    pub(crate) fn ask_until<R: Sent>(
        &self,
        fid: Fid,
        req: &R,
        deadline: Instant,
    ) -> Result<Answer<R::Reply>, Fault> {
        self.mdt(fid)?.ask(fid, req, deadline)
    }

    pub(crate) fn refuse_observer(&self) -> Result<(), Fault> {
        match self.settings.observer {
            true => Err(Fault::new(Code::ReadOnly, "this client is an observer: it only reads")),
            false => Ok(()),
        }
    }

    pub(crate) fn opened(&self, handle: Handle) -> Result<Arc<Opened>, Fault> {
        self.files
            .handle(handle)
            .ok_or_else(|| Fault::new(Code::Invalid, format!("handle {} is not open", handle.0)))
    }

    /// Fails if the file lost bytes that a program was told are written. The file is then errored until its last descriptor is closed.
    pub(crate) fn check_poison(&self, file: &File) -> Result<(), Fault> {
        self.check_acknowledged(file)?;
        match &file.meta.lock().failed_behind {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// The same of bytes that a target had acknowledged.
    pub(crate) fn check_acknowledged(&self, file: &File) -> Result<(), Fault> {
        let is_held = file.meta.lock().pins > 0;
        let loss = match is_held {
            true => self.id.losses.of(file.fid),
            // The background asks. The loss stays for the next open.
            false => self.id.losses.peek(file.fid),
        };
        let mut meta = file.meta.lock();
        if let Some(fault) = loss {
            meta.poison.get_or_insert(fault);
        }
        if meta.session != self.session() && meta.progress.is_untold() && meta.session != SessionId(0) {
            let why = format!(
                "file {}: the session that wrote it was ended; what was not fsynced may be lost",
                file.fid
            );
            meta.poison.get_or_insert(Fault::new(Code::Io, why));
        }
        match &meta.poison {
            Some(fault) => Err(fault.clone()),
            None => Ok(()),
        }
    }

    /// Removes the pin of a descriptor or a call. The last pin of an orphan releases the file.
    pub(crate) fn unpin(&self, file: &Arc<File>, why: For, deadline: Instant) {
        // Under the fid lock no open comes between the end of the last pin and the release. If the lock is not free in time, this goes on
        // without it: the caller cannot get an error, and a later open finds the file gone.
        let is_orphan = file.meta.lock().is_orphan;
        let _fid_lock = is_orphan.then(|| self.names.lock_fid(file.fid, deadline));
        let is_released = self.files.unpin(file, why);
        self.after_unpin(file, is_released, deadline);
    }

    pub(crate) fn after_unpin(&self, file: &Arc<File>, is_released: bool, deadline: Instant) {
        if is_released {
            self.id.gone.add(file.fid, None);
            if let Err(fault) = self.ask_until(file.fid, &Release { fid: file.fid }, deadline) {
                // The orphan is removed with the session then.
                tracing::warn!("releasing the unlinked file {}: {fault}", file.fid);
            }
        }
        if file.meta.lock().pins == 0 {
            self.id.losses.forget(file.fid);
        }
    }

    pub(crate) fn close(&self, opened: &Opened, deadline: Instant) {
        let why = if opened.flags.write { For::Writing } else { For::Reading };
        if opened.flags.write {
            // Their pin keeps the file if this takes too long.
            self.behind.await_close(opened.file.fid, deadline);
        }
        self.unpin(&opened.file, why, deadline);
        if why == For::Writing {
            self.help_settling(deadline);
        }
    }

    pub(crate) fn take_buf(&self) -> Buf {
        self.bufs.lock().pop().unwrap_or_default()
    }
    pub(crate) fn give_buf(&self, buf: Buf) {
        let mut bufs = self.bufs.lock();
        if bufs.len() < BUFS_MAX {
            bufs.push(buf);
        }
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// client-W1: a write of one request, or of several, until it ends.
pub(crate) struct Whole<'a> {
    _one: Option<RwLockReadGuard<'a, ()>>,
    _several: Option<RwLockWriteGuard<'a, ()>>,
}

/// client-C1: waits for locks of a file end with the call's deadline.
impl File {
    pub fn lock_order(&self, deadline: Instant) -> Result<MutexGuard<'_, ()>, Fault> {
        self.order.try_lock_until(deadline).ok_or_else(|| self.busy())
    }
    pub fn share_body(&self, deadline: Instant) -> Result<RwLockReadGuard<'_, Body>, Fault> {
        self.body.try_read_until(deadline).ok_or_else(|| self.busy())
    }
    pub fn own_body(&self, deadline: Instant) -> Result<RwLockWriteGuard<'_, Body>, Fault> {
        self.body.try_write_until(deadline).ok_or_else(|| self.busy())
    }
    /// client-W1.
    pub fn keep_whole(&self, is_one_request: bool, deadline: Instant) -> Result<Whole<'_>, Fault> {
        let whole = match is_one_request {
            true => Whole { _one: self.whole.try_read_until(deadline), _several: None },
            false => Whole { _one: None, _several: self.whole.try_write_until(deadline) },
        };
        let is_held = whole._one.is_some() || whole._several.is_some();
        is_held.then_some(whole).ok_or_else(|| self.busy())
    }
    fn busy(&self) -> Fault {
        Fault::new(
            Code::Timeout,
            format!("file {}: another call on it does not end; a server may be down", self.fid),
        )
    }
}

/// As `wait_for_stop`, and returns early when the bell rings.
pub(crate) fn wait_for_bell(weak: &Weak<Fs>, time: Duration, bell: fn(&Identity) -> &Bell) -> bool {
    let until = Instant::now() + time;
    let living = || weak.upgrade().filter(|fs| !fs.is_stopping());
    while let Some(fs) = living() {
        let id = fs.id.clone();
        // No thread keeps the client while it sleeps.
        drop(fs);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || bell(&id).wait(left.min(TICK_MAX)) {
            return living().is_none();
        }
    }
    true
}

/// Waits for the client's end, at most `time`. True: it has ended.
pub(crate) fn wait_for_stop(weak: &Weak<Fs>, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let Some(fs) = weak.upgrade() else { return true };
        let left = until.saturating_duration_since(Instant::now());
        let mut stop = fs.stop.0.lock();
        if !*stop && !left.is_zero() {
            fs.stop.1.wait_for(&mut stop, left.min(TICK_MAX));
        }
        if *stop {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
    }
}

/// Runs one round of flushes and updates per commit interval.
fn settle_loop(weak: &Weak<Fs>) {
    let Some(interval) = weak.upgrade().map(|fs| fs.settings.commit_interval) else { return };
    while !wait_for_stop(weak, interval) {
        let Some(fs) = weak.upgrade() else { return };
        fs.settle_round(None);
        fs.tell_accessed(fs.deadline());
        if let Err(why) = fs.release_removed(fs.deadline()) {
            tracing::debug!(%why, "removed files are let go later");
        }
    }
}
