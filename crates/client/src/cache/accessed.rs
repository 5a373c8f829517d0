//! Access times, as by `relatime`. A read notes its time here; the settle thread reports many to the MDT at once, within a commit
//! interval. A time that is not reported then is lost: an access time is no promise.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Attr, Cred, Fid, Time};
use wire::accessed::{Accessed, ReadTime};

use crate::Fs;

/// What is noted at most between two tellings; of further ones nothing is kept. A walk over more in a second finds them the next time.
const NOTED_MAX: usize = 65_536;
/// Records that one entry of the MDT's log changes: some 300 KiB.
const TOLD_MAX: usize = 1024;
/// Longest wait for the MDT in the background; settles are more important.
const TELL_MAX: Duration = Duration::from_secs(2);
const DAY_SECONDS: i64 = 24 * 60 * 60;

#[derive(Default)]
pub(crate) struct Noted {
    /// Whether there are any: a look at attributes asks no more than that.
    any: AtomicBool,
    reads: Mutex<HashMap<Fid, Note>>,
}

struct Note {
    atime: Time,
    sure: bool,
    cred: Cred,
}

impl Fs {
    /// `fid` is being read on behalf of `cred`. With its attributes at hand it is decided here whether its access time is due;
    /// without, by the MDT.
    pub fn accessed(&self, fid: Fid, known: Option<&Attr>, cred: impl FnOnce() -> Cred) {
        let now = self.now();
        if self.settings.observer || known.is_some_and(|attr| !is_due(attr, now)) {
            return;
        }
        let mut reads = self.noted.reads.lock();
        let is_full = reads.len() >= NOTED_MAX;
        match reads.entry(fid) {
            Entry::Occupied(mut there) => {
                there.get_mut().atime = now;
                there.get_mut().sure |= known.is_some();
            }
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(free) => {
                free.insert(Note { atime: now, sure: known.is_some(), cred: cred() });
                self.noted.any.store(true, Ordering::Release);
            }
        }
    }

    /// Before attributes of `fid` are shown: what was noted of it is told. True if there was something.
    pub fn tell_accessed_of(&self, fid: Fid) -> bool {
        let is_noted = self.noted.any.load(Ordering::Acquire) && self.noted.reads.lock().contains_key(&fid);
        if is_noted {
            self.tell_accessed(self.deadline());
        }
        is_noted
    }

    /// An access time is set by hand: what was read before it does not overrule it.
    pub(crate) fn forget_accessed(&self, fid: Fid) {
        if self.noted.any.load(Ordering::Acquire) {
            self.noted.reads.lock().remove(&fid);
        }
    }

    /// Tells the MDT what was noted, waiting for it until `limit` at most.
    pub(crate) fn tell_accessed(&self, limit: Instant) {
        if !self.noted.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let noted = std::mem::take(&mut *self.noted.reads.lock());
        let deadline = limit.min(Instant::now() + TELL_MAX);
        let mut by_cred: Vec<(Cred, Vec<ReadTime>)> = Vec::new();
        for (fid, Note { atime, sure, cred }) in noted {
            let read = ReadTime { fid, atime, sure };
            match by_cred.iter_mut().find(|(c, reads)| *c == cred && reads.len() < TOLD_MAX) {
                Some((_, reads)) => reads.push(read),
                None => by_cred.push((cred, vec![read])),
            }
        }
        for (cred, reads) in by_cred {
            let Some(first) = reads.first().map(|read| read.fid) else { continue };
            if let Err(fault) = self.ask_until(first, &Accessed { reads, cred }, deadline) {
                tracing::debug!(%fault, "access times are lost");
                return;
            }
        }
    }
}

/// As Linux's `relatime`: not read since the last change, or not for a day.
fn is_due(attr: &Attr, now: Time) -> bool {
    let Attr { atime, mtime, ctime, .. } = *attr;
    atime <= mtime || atime <= ctime || now.sec.saturating_sub(atime.sec) >= DAY_SECONDS
}
