//! The lock around one operation on a file's content, among the clients of a file system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use types::{Code, Fault, Fid};
use wire::lock::{LOCK_END_MAX, LockKind, LockOutcome, LockSpace};

use super::{Debt, FileLock};
use crate::Fs;

/// How long a request stays at the MDT before it asks again.
const PATIENCE_MS: u32 = 100;

/// Held as long as it lives; then given back, in the background if the MDT does not answer.
#[must_use]
pub struct BodyLock<'a> {
    fs: &'a Fs,
    fid: Fid,
    owner: u64,
    is_given: AtomicBool,
}

impl Fs {
    /// Waits for its turn, first come, first served. A holder must not ask for the same file again.
    pub fn lock_body(&self, fid: Fid, kind: LockKind, deadline: Instant) -> Result<BodyLock<'_>, Fault> {
        let (owner, ticket) = {
            let mut state = self.id.locks.state.lock();
            (state.new_number(), state.new_number())
        };
        let lock = FileLock { space: LockSpace::Body, owner, start: 0, end: LOCK_END_MAX, kind, pid: 0 };
        let held = BodyLock { fs: self, fid, owner, is_given: AtomicBool::new(false) };
        loop {
            let give_up = |fault| {
                held.is_given.store(true, Ordering::Relaxed);
                self.owe(Debt::Cancel { fid, space: LockSpace::Body, ticket });
                Err(fault)
            };
            match self.send_lock(fid, &lock, Some(ticket), PATIENCE_MS, deadline) {
                Ok(LockOutcome::Granted) => return Ok(held),
                Ok(LockOutcome::Wait) if Instant::now() < deadline => {}
                Ok(LockOutcome::Full) => {
                    return give_up(Fault::new(Code::Busy, "this client holds too many locks at once"));
                }
                Ok(_) => {
                    let why = format!("file {fid}: another client's operation on it does not end");
                    return give_up(Fault::new(Code::Timeout, why));
                }
                Err(fault) => return give_up(fault),
            }
        }
    }
}

impl BodyLock<'_> {
    /// False if the session that it belonged to has ended: others may be at the content.
    pub fn is_held(&self) -> bool {
        !self.fs.id.locks.state.lock().held_of(self.fid, LockSpace::Body, self.owner).is_empty()
    }
}

impl Drop for BodyLock<'_> {
    fn drop(&mut self) {
        if self.is_given.load(Ordering::Relaxed) {
            return;
        }
        let given = self.fs.drop_locks(self.fid, LockSpace::Body, self.owner, self.fs.deadline());
        if let Err(fault) = given {
            tracing::debug!("giving file {} back: {fault}; it is tried again", self.fid);
        }
    }
}
