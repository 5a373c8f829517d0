//! Files that a rename has just replaced: they live a little longer, whether somebody had them open here or not.
//!
//! Whoever opens a name does it in two steps, name → fid and fid → open. A replacement between them would be `ESTALE`, which the
//! kernel tries again only once: a program that reads a file which others replace in a loop would meet it. POSIX lets it have the
//! old file. So the MDT keeps every replaced file as an orphan of our session, and we let it go when no open can be on its way
//! to it any more. (An unlink needs no such thing: the second try finds no name, which is the right answer.)

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::{Code, Fault, Fid};
use wire::meta::Release;

use crate::Fs;

/// How long an open may be on its way between its two steps.
const GRACE: Duration = Duration::from_secs(1);
/// Most files that wait; past it a rename lets the oldest go itself, before its time.
const WAITING_MAX: usize = 8192;

#[derive(Default)]
pub(crate) struct Replaced {
    /// In the order of their replacement.
    list: Mutex<VecDeque<(Instant, Fid)>>,
}

impl Replaced {
    /// `fid` has lost its last name just now. Gives back what is to make room for it.
    fn add(&self, fid: Fid) -> Option<Fid> {
        let mut list = self.list.lock();
        list.push_back((Instant::now(), fid));
        if list.len() > WAITING_MAX { list.pop_front().map(|(_, fid)| fid) } else { None }
    }

    /// Is one kept that was replaced by then?
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
    /// A rename took the last name of this file, which the MDT keeps for us.
    pub(crate) fn keep_replaced(&self, fid: Fid, deadline: Instant) {
        if let Some(oldest) = self.replaced.add(fid) {
            self.let_go(oldest, deadline).unwrap_or_else(|fault| stays(oldest, &fault));
        }
    }

    /// Lets those go whose time is over, all of them by the deadline. An MDT that does not answer is asked for one only; that one and the
    /// others wait for the next call. At the end of the session the MDT does it for all.
    pub(crate) fn release_replaced(&self, deadline: Instant) -> Result<(), Fault> {
        while let Some((since, fid)) = self.replaced.take_due(Instant::now()) {
            match self.let_go(fid, deadline) {
                Err(fault) if fault.code == Code::Timeout => {
                    self.replaced.put_back((since, fid));
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

    /// If somebody has the file open: its last close lets it go.
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
    tracing::warn!("the replaced file {fid} stays until this session ends: {fault}");
}
