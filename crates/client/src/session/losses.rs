//! The files that lost acknowledged bytes. Sessions add them when a replay fails; fsync and close read them.
//!
//! client-L1: a loss is kept until it was reported and then the file's last descriptor was closed (a directory's: until reported). The loss
//!     of a file that is not open is kept for its next open.
//! client-L2: memory is bounded. Past `FILES_MAX` a file that is not listed may be suspected falsely, but only if it is older than the loss, and
//!     only until that was reported and the file closed once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use types::{Code, Fault, Fid};

/// Most files that are listed, in some 50 MiB. The 256 MiB of requests that are retained for a target may name more.
const FILES_MAX: usize = 1 << 20;

pub(crate) struct Losses {
    any: AtomicBool,
    files_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_fid: HashMap<Fid, Loss>,
    /// client-L2: more files than could be listed.
    more: Option<More>,
    /// The last reason, shared: one restart gives the same reason for each file.
    why: Option<Arc<str>>,
}

struct Loss {
    why: Arc<str>,
    is_told: bool,
}

struct More {
    why: Arc<str>,
    /// The highest fid that was not listed. Fids rise, so a higher one is of a file that was made later.
    last: Fid,
    /// Files that were suspected. True: closed since, and trusted again.
    told: HashMap<Fid, bool>,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses::with_max(FILES_MAX)
    }
}

impl Losses {
    fn with_max(files_max: usize) -> Losses {
        Losses { any: AtomicBool::new(false), files_max, state: Mutex::default() }
    }

    /// Notes a loss. Fid 0 is no file: a change of names was lost, which only fsync of a directory reports.
    pub fn add(&self, fid: Fid, why: &str) {
        tracing::error!(
            "file {fid} lost acknowledged changes: {why}; its next fsync says EIO: write it again or restore it"
        );
        let mut state = self.state.lock();
        let why = match state.why.take() {
            Some(last) if &*last == why => last,
            _ => Arc::from(why),
        };
        state.why = Some(why.clone());
        if state.by_fid.len() < self.files_max || state.by_fid.contains_key(&fid) {
            state.by_fid.insert(fid, Loss { why, is_told: false });
        } else {
            let more = state.more.get_or_insert_with(|| More { why, last: fid, told: HashMap::new() });
            more.last = more.last.max(fid);
            more.told.remove(&fid);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Why `fid` lost something, if it did. The caller reports it. Cheap while nothing was ever lost.
    pub fn of(&self, fid: Fid) -> Option<Fault> {
        self.look(fid, true)
    }

    /// As `of`, for a file that is not open, so that the loss is not reported.
    pub fn peek(&self, fid: Fid) -> Option<Fault> {
        self.look(fid, false)
    }

    fn look(&self, fid: Fid, is_told: bool) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let state = &mut *self.state.lock();
        let why = match (state.by_fid.get_mut(&fid), &mut state.more) {
            (Some(loss), _) => {
                loss.is_told |= is_told;
                &loss.why
            }
            (None, Some(more)) if more.suspects(fid) => {
                if is_told {
                    more.note(fid, false, self.files_max);
                }
                &more.why
            }
            _ => return None,
        };
        Some(Fault::new(Code::Io, format!("file {fid} lost acknowledged changes: {why}")))
    }

    /// The last descriptor is closed, or a directory's loss was reported. client-L1: a loss that was not reported stays.
    pub fn forget(&self, fid: Fid) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let state = &mut *self.state.lock();
        if state.by_fid.get(&fid).is_some_and(|loss| loss.is_told) {
            state.by_fid.remove(&fid);
            if let Some(more) = &mut state.more {
                more.note(fid, true, self.files_max);
            }
        } else if let Some(is_trusted) = state.more.as_mut().and_then(|more| more.told.get_mut(&fid)) {
            *is_trusted = true;
        }
        self.any.store(!state.by_fid.is_empty() || state.more.is_some(), Ordering::Release);
    }
}

impl More {
    fn suspects(&self, fid: Fid) -> bool {
        fid <= self.last && self.told.get(&fid) != Some(&true)
    }

    /// Notes a suspected file. Without space the file stays suspected: client-L1 goes before client-L2.
    fn note(&mut self, fid: Fid, is_trusted: bool, files_max: usize) {
        if self.told.len() < files_max.saturating_mul(2) || self.told.contains_key(&fid) {
            self.told.insert(fid, is_trusted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_kept_until_it_was_reported_and_the_file_closed() {
        let losses = Losses::default();
        losses.add(Fid(5), "why");
        losses.forget(Fid(5));
        assert!(losses.peek(Fid(5)).is_some(), "closed by who did not ask");
        losses.forget(Fid(5));
        assert!(losses.of(Fid(5)).is_some() && losses.of(Fid(6)).is_none());
        assert!(losses.of(Fid(5)).is_some(), "until it is closed");
        losses.forget(Fid(5));
        assert!(losses.of(Fid(5)).is_none() && !losses.any.load(Ordering::Acquire));
    }

    #[test]
    fn more_losses_than_can_be_listed_do_not_outlive_their_report() {
        let losses = Losses::with_max(5);
        (10..20).for_each(|n| losses.add(Fid(n), "why"));
        assert!((10..20).all(|n| losses.of(Fid(n)).is_some()), "none is silent");
        assert!(losses.of(Fid(20)).is_none(), "made later: it cannot be one of them");
        (10..20).for_each(|n| losses.forget(Fid(n)));
        assert!((10..20).all(|n| losses.of(Fid(n)).is_none()), "reported and closed");
        losses.add(Fid(17), "again");
        assert!(losses.of(Fid(17)).is_some(), "a second loss counts");
    }

    #[test]
    fn without_room_a_file_stays_suspect_rather_than_silent() {
        let losses = Losses::with_max(1);
        (10..20).for_each(|n| losses.add(Fid(n), "why"));
        for n in 11..13 {
            assert!(losses.of(Fid(n)).is_some());
            losses.forget(Fid(n));
        }
        assert!((11..13).all(|n| losses.of(Fid(n)).is_none()));
        assert!((13..20).chain([10]).all(|n| losses.of(Fid(n)).is_some()));
        (13..20).for_each(|n| losses.forget(Fid(n)));
        assert!((13..20).all(|n| losses.of(Fid(n)).is_some()));
        assert!(losses.of(Fid(21)).is_none());
    }
}
