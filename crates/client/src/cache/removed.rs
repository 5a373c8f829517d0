//! Inodes that lost their last name a moment ago and stay as orphans of this session: calls by path may be on their way to them.
//!
//! A call by path takes two steps: name → fid, and fid → call. A removal between them is `ESTALE`, and the kernel walks the path only once
//! more. The MDT therefore keeps every replaced file, and every other removed inode while it sees walks that meet removals (rule mds-GR1 of
//! `mds`). This client releases them when no call can be on its way any more.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Code, Fault, Fid};
use wire::meta::Release;

use crate::Fs;

/// How long a call may be on its way between its two steps.
const GRACE: Duration = Duration::from_secs(1);
/// Most inodes that wait; past it a removal releases the oldest itself, before its time.
const WAITING_MAX: usize = 8192;

#[derive(Default)]
pub(crate) struct Removed {
    /// In the order of their removal.
    list: Mutex<VecDeque<(Instant, Fid)>>,
}

impl Removed {
    /// `fid` has lost its last name just now. Gives back what is to make room for it.
    fn add(&self, fid: Fid) -> Option<Fid> {
        let mut list = self.list.lock();
        list.push_back((Instant::now(), fid));
        if list.len() > WAITING_MAX { list.pop_front().map(|(_, fid)| fid) } else { None }
    }

    /// Is one kept that was removed by then?
    pub fn has_before(&self, then: Instant) -> bool {
        self.list.lock().front().is_some_and(|(since, _)| *since <= then)
    }

    /// One whose time is over.
    fn take_due(&self, now: Instant) -> Option<(Instant, Fid)> {
        let mut list = self.list.lock();
        list.front().filter(|(since, _)| now.duration_since(*since) >= GRACE)?;
        list.pop_front()
    }

    /// It could not be let go yet.
    fn put_back(&self, kept: (Instant, Fid)) {
        self.list.lock().push_front(kept);
    }
}

impl Fs {
    /// This inode lost its last name, and the MDT keeps it as an orphan of this session.
    pub(crate) fn keep_removed(&self, fid: Fid, deadline: Instant) {
        if let Some(oldest) = self.removed.add(fid) {
            self.let_go(oldest, deadline).unwrap_or_else(|fault| stays(oldest, &fault));
        }
    }

    /// Lets those go whose time is over, all of them by the deadline. An MDT that does not answer is asked for one only; that one and the
    /// others wait for the next call. At the end of the session the MDT does it for all.
    pub(crate) fn release_removed(&self, deadline: Instant) -> Result<(), Fault> {
        while let Some((since, fid)) = self.removed.take_due(Instant::now()) {
            match self.let_go(fid, deadline) {
                Err(fault) if fault.code == Code::Timeout => {
                    self.removed.put_back((since, fid));
                    return Err(fault);
                }
                Err(fault) => stays(fid, &fault),
                Ok(()) => {}
            }
            if self.is_stopping() {
                break;
            }
        }
        Ok(())
    }

    /// True if the file is open here. Then its last close releases it.
    fn release_at_last_close(&self, fid: Fid) -> bool {
        self.files.get(fid).is_some_and(|file| {
            let mut meta = file.meta.lock();
            meta.is_orphan |= meta.pins > 0;
            meta.pins > 0
        })
    }

    fn let_go(&self, fid: Fid, deadline: Instant) -> Result<(), Fault> {
        // No open comes between the look and the release.
        let _fid_lock = self.names.lock_fid(fid, deadline)?;
        if self.release_at_last_close(fid) {
            return Ok(());
        }
        if let Some(file) = self.files.get(fid) {
            file.meta.lock().is_gone = true;
        }
        self.id.gone.add(fid, None);
        self.ask_until(fid, &Release { fid }, deadline).map(drop)
    }
}

fn stays(fid: Fid, fault: &Fault) {
    tracing::warn!("the removed file {fid} stays until this session ends: {fault}");
}
