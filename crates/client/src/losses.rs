//! The files that lost acknowledged bytes: written by the sessions when a replay fails, read by fsync and close.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use types::{Code, Fault, Fid};

/// Most files remembered; past it one fault stands for all (a lost target under a very large working set).
const FILES_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Losses {
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_fid: HashMap<Fid, String>,
    /// Everything is suspect: more files than `FILES_MAX`.
    all: Option<String>,
}

impl Losses {
    /// Fid 0 is no file: a change of names was lost; it is logged, and nobody waits for it but fsync of a directory.
    pub fn add(&self, fid: Fid, why: &str) {
        tracing::error!("file {fid} lost acknowledged changes: {why}");
        let mut state = self.state.lock();
        if state.by_fid.len() < FILES_MAX || state.by_fid.contains_key(&fid) {
            state.by_fid.insert(fid, why.to_string());
        } else {
            state.all = Some(why.to_string());
        }
        self.any.store(true, Ordering::Release);
    }

    /// Why `fid` lost something, if it did. Cheap while nothing was ever lost.
    pub fn of(&self, fid: Fid) -> Option<Fault> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        let why = state.by_fid.get(&fid).or(state.all.as_ref())?;
        Some(Fault::new(Code::Io, format!("file {fid} lost acknowledged changes: {why}")))
    }

    /// The last descriptor is closed: nobody is left to be told.
    pub fn forget(&self, fid: Fid) {
        if self.any.load(Ordering::Acquire) {
            self.state.lock().by_fid.remove(&fid);
        }
    }
}
