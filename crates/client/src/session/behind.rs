//! Writes behind of all files: those that wait, those under way, and the calls that wait for them (rules in `plan::behind`).

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{ArcRwLockReadGuard, Condvar, Mutex, MutexGuard, RawRwLock};
use plan::behind::{Due, Line};
use types::{Fid, MirrorId, SessionId, Time};

use crate::cache::files::{Body, File};
use crate::session::grants::Share;
use crate::session::section::Parked;

/// Writes under way at once, over all files: enough to hide a link's latency, few enough for a program's own calls to find slots.
pub(crate) const SENDERS: usize = 16;
/// client-WB6: how long `close` waits for a file of which no write ends. Longer than a slow drive needs for one write.
const CLOSE_IDLE: Duration = Duration::from_secs(2);
/// Buffers that are kept for later writes.
const BUFS_MAX: usize = 2 * SENDERS;

/// A write that its program was told is done. It holds what a write under way holds: its use of the lease, and the body shared.
pub(crate) struct Job {
    pub bytes: Vec<u8>,
    pub held: Parked,
    /// `None`: another write's remedy needed the body, so it is taken anew.
    pub body: Option<ArcRwLockReadGuard<RawRwLock, Body>>,
    /// When the program wrote the last of its bytes.
    pub mtime: Time,
    /// The program's job.
    pub tag: u32,
    /// client-WB4: space that OSTs keep for it.
    pub shares: Vec<(MirrorId, Share)>,
    pub session: SessionId,
}

/// A write to be carried out. `ended` ends it.
pub(crate) struct Started {
    pub file: Arc<File>,
    pub due: Due<Job>,
}

#[derive(Default)]
pub(crate) struct Behind {
    /// A parameter of the mount may change it.
    bytes_max: AtomicUsize,
    /// Files with writes behind. At 0 no call waits.
    count: AtomicUsize,
    pub has_senders: AtomicBool,
    state: Mutex<State>,
    work: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    files: HashMap<Fid, Entry>,
    /// Files of which a write can be started, each once.
    ready: VecDeque<Fid>,
    bytes: usize,
    is_over: bool,
    bufs: Vec<Vec<u8>>,
}

struct Entry {
    file: Arc<File>,
    line: Line<Job>,
    is_ready: bool,
    /// Calls that wait for its writes.
    waiters: u32,
    /// When a write of it was added, or ended.
    moved: Instant,
}

impl State {
    /// True if a write of the file can be started, and no sender was told yet.
    fn is_news(&mut self, fid: Fid) -> bool {
        let Some(entry) = self.files.get_mut(&fid) else { return false };
        if entry.is_ready || !entry.line.can_start(entry.waiters > 0) {
            return false;
        }
        entry.is_ready = true;
        self.ready.push_back(fid);
        true
    }

    fn overlaps(&self, fid: Fid, range: &Range<u64>) -> bool {
        self.files.get(&fid).is_some_and(|entry| entry.line.overlaps(range))
    }
}

impl Behind {
    pub fn new(bytes_max: usize) -> Behind {
        Behind { bytes_max: AtomicUsize::new(bytes_max), ..Behind::default() }
    }

    pub fn is_on(&self) -> bool {
        self.bytes_max() > 0
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Takes effect with the next write. Those that are behind already are sent as before.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        // Writes that waited for room may have it now.
        self.ended.notify_all();
    }

    /// client-WB2: waits until `range` overlaps no write behind, and its bytes find room. False: the deadline has passed.
    pub fn await_turn(&self, fid: Fid, range: &Range<u64>, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            let overlaps = state.overlaps(fid, range);
            if !overlaps && self.has_room(&state, range) {
                return true;
            }
            if !self.wait(&mut state, overlaps.then_some(fid), deadline) {
                return false;
            }
        }
    }

    fn has_room(&self, state: &State, range: &Range<u64>) -> bool {
        state.bytes == 0 || state.bytes + (range.end - range.start) as usize <= self.bytes_max()
    }

    /// Waits for the end of some write. The last write of `fid` is started although it may grow.
    fn wait(&self, state: &mut MutexGuard<'_, State>, fid: Option<Fid>, deadline: Instant) -> bool {
        if let Some(entry) = fid.and_then(|fid| state.files.get_mut(&fid)) {
            entry.waiters += 1;
        }
        if fid.is_some_and(|fid| state.is_news(fid)) {
            self.work.notify_one();
        }
        let is_late = self.ended.wait_until(state, deadline).timed_out();
        // The entry may be another one by now. It starts a write a little later then.
        if let Some(entry) = fid.and_then(|fid| state.files.get_mut(&fid)) {
            entry.waiters = entry.waiters.saturating_sub(1);
        }
        !is_late
    }

    /// client-WB1: waits until all present writes of the file have ended, well or not. False: the deadline has passed.
    pub fn await_file(&self, fid: Fid, deadline: Instant) -> bool {
        self.await_until(fid, |_| deadline)
    }

    /// client-WB6: as `await_file`, but only while writes of the file end.
    pub fn await_close(&self, fid: Fid, deadline: Instant) {
        self.await_until(fid, |entry| deadline.min(entry.moved + CLOSE_IDLE));
    }

    fn await_until(&self, fid: Fid, until: impl Fn(&Entry) -> Instant) -> bool {
        // A program's own write was counted before it returned.
        if self.count.load(Ordering::SeqCst) == 0 {
            return true;
        }
        let mut state = self.state.lock();
        let Some(end) = state.files.get(&fid).map(|entry| entry.line.end()) else { return true };
        loop {
            let until = match state.files.get(&fid) {
                Some(entry) if !entry.line.has_ended_below(end) => until(entry),
                _ => return true,
            };
            if Instant::now() >= until {
                return false;
            }
            self.wait(&mut state, Some(fid), until);
        }
    }

    /// Waits for all writes of all files.
    pub fn await_all(&self, deadline: Instant) {
        let files: Vec<Fid> = self.state.lock().files.keys().copied().collect();
        files.into_iter().for_each(|fid| _ = self.await_file(fid, deadline));
    }

    /// A copy of the bytes of a write.
    pub fn copy(&self, data: &[u8]) -> Vec<u8> {
        let mut bytes = self.state.lock().bufs.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(data);
        bytes
    }

    /// Adds a write at the offset `at`, or joins it to one that waits. Returns the rest of a joined one, for the caller to end, and whether
    /// it is the file's first one, which keeps the caller's pin until `ended`. `Err`: another write came between.
    pub fn add(&self, file: &Arc<File>, at: u64, job: Job) -> Result<(Option<Job>, bool), Job> {
        let (fid, len) = (file.fid, job.bytes.len());
        let (range, mtime, now) = (at..at + len as u64, job.mtime, Instant::now());
        let mut state = self.state.lock();
        if state.is_over || state.overlaps(fid, &range) || !self.has_room(&state, &range) {
            return Err(job);
        }
        let mut is_first = false;
        let entry = state.files.entry(fid).or_insert_with(|| {
            is_first = true;
            self.count.fetch_add(1, Ordering::SeqCst);
            Entry { file: file.clone(), line: Line::default(), is_ready: false, waiters: 0, moved: now }
        });
        entry.moved = now;
        assert!(Arc::ptr_eq(&entry.file, file), "client-WB3: a file with writes behind stays in the table");
        let is_alike = |last: &Job| last.tag == job.tag && last.session == job.session;
        let rest = match entry.line.join(&range, is_alike) {
            Some(last) => {
                last.bytes.extend_from_slice(&job.bytes);
                last.shares.extend_from_slice(&job.shares);
                last.mtime = last.mtime.max(job.mtime);
                Some(job)
            }
            None => {
                entry.line.add(range.clone(), job);
                None
            }
        };
        state.bytes += len;
        let mut meta = file.meta.lock();
        let (end, latest) = meta.behind.unwrap_or((0, mtime));
        meta.behind = Some((end.max(range.end), latest.max(mtime)));
        drop(meta);
        if state.is_news(fid) {
            self.work.notify_one();
        }
        Ok((rest, is_first))
    }

    /// For a sender: waits for a write to carry out. `None`: the client ends.
    pub fn next(&self) -> Option<Started> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            let Some(fid) = state.ready.pop_front() else {
                self.work.wait(&mut state);
                continue;
            };
            let Some(entry) = state.files.get_mut(&fid) else { continue };
            entry.is_ready = false;
            let (file, due) = (entry.file.clone(), entry.line.start(entry.waiters > 0));
            if state.is_news(fid) {
                self.work.notify_one();
            }
            if let Some(due) = due {
                return Some(Started { file, due });
            }
        }
    }

    /// Ends a write. If it was the last one of the file, `unpin` removes the pin, or leaves that to the caller; its result is returned.
    pub fn ended<T>(
        &self,
        file: &Arc<File>,
        number: u64,
        bytes: Vec<u8>,
        unpin: impl FnOnce() -> T,
    ) -> Option<T> {
        let mut state = self.state.lock();
        state.bytes -= bytes.len();
        if state.bufs.len() < BUFS_MAX {
            state.bufs.push(bytes);
        }
        let entry = state.files.get_mut(&file.fid).expect("client-WB3: a write that ends has its entry");
        entry.line.ended(number);
        entry.moved = Instant::now();
        let unpinned = entry.line.is_empty().then(|| {
            state.files.remove(&file.fid);
            file.meta.lock().behind = None;
            self.count.fetch_sub(1, Ordering::SeqCst);
            unpin()
        });
        if state.is_news(file.fid) {
            self.work.notify_one();
        }
        self.ended.notify_all();
        unpinned
    }

    /// The writes of the file that wait hold the body no more.
    pub fn let_go(&self, fid: Fid) {
        if let Some(entry) = self.state.lock().files.get_mut(&fid) {
            entry.line.waiting_mut().for_each(|job| job.body = None);
        }
    }

    /// The senders end. Writes that wait are lost with the client.
    pub fn end(&self) {
        self.state.lock().is_over = true;
        self.work.notify_all();
    }
}
