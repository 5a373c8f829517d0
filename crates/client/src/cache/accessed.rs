//! Access times, as by `relatime`. A read notes its time here, and one request per commit interval reports many of them. A time that is not
//! reported in time is lost, since an access time is no promise.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Attr, Cred, Fid, Time};
use wire::accessed::{Accessed, ReadTime};

use crate::Fs;

/// Most times that are noted between two reports. Further ones are dropped; the next walk over those files notes them.
const NOTED_MAX: usize = 65_536;
/// Records that one entry of the MDT's log changes: some 300 KiB.
const TOLD_MAX: usize = 1024;
/// Longest wait of the background for the MDT, since it has more important reports.
const TELL_MAX: Duration = Duration::from_secs(2);
const DAY_SECONDS: i64 = 24 * 60 * 60;

#[derive(Default)]
pub(crate) struct Noted {
    /// True if there are any. A look at attributes reads only this.
    any: AtomicBool,
    reads: Mutex<HashMap<Fid, Note>>,
}

struct Note {
    atime: Time,
    sure: bool,
    cred: Cred,
}

impl Fs {
    /// Notes a read of `fid` by `cred`. With `known` attributes this client decides whether the access time is due, otherwise the MDT does.
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

    /// Reports the noted time of `fid`, before its attributes are shown. True if there was one.
    pub fn tell_accessed_of(&self, fid: Fid) -> bool {
        let is_noted = self.noted.any.load(Ordering::Acquire) && self.noted.reads.lock().contains_key(&fid);
        if is_noted {
            self.tell_accessed(self.deadline());
        }
        is_noted
    }

    /// Drops the noted time of `fid`, whose access time is set by hand: an earlier read must not overrule it.
    pub(crate) fn forget_accessed(&self, fid: Fid) {
        if self.noted.any.load(Ordering::Acquire) {
            self.noted.reads.lock().remove(&fid);
        }
    }

    /// Reports all noted times, and waits for the MDT until `limit` at most.
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
