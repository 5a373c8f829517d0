//! Other capabilities for requests that are sent again.
//!
//! client-KY4: an OST may refuse the capability of a request that it lost, since the key of capabilities changed while it was down, or since
//!     the capability has expired. The request is sent again with a new one, at the same place in the order. It is a loss only if the MDT
//!     refuses the file.
//!
//! The caller may hold the link's `attaching`. Nothing here waits for an OST: the MDT is asked over its own link, which never asks an OST.

use std::collections::HashMap;

use types::Cred;
use wire::Request;
use wire::meta::{FileState, Open};
use wire::object::{Capability, Write};

use super::*;
use crate::Fs;
use crate::session::sent::renew_sent;

/// Capabilities that one file gets in one replay at most: 3 s with the pauses. Servers hear of another key one after another (client-KY1).
const RENEWALS_MAX: u32 = 16;
/// Of these, tries without a pause.
const AT_ONCE: u32 = 2;

/// New capabilities of files, in one replay.
#[derive(Default)]
pub(super) struct Renewed(HashMap<Fid, Renewal>);

#[derive(Default)]
struct Renewal {
    cap: Option<Capability>,
    count: u32,
}

impl Renewed {
    /// Puts the file's new capability in, if there is one.
    pub fn apply(&self, request: &mut Sendable) {
        if let Some(cap) = self.0.get(&request.fid).and_then(|renewal| renewal.cap.as_ref()) {
            renew_sent(request.head.call, &mut request.body, cap);
        }
    }
}

impl Link {
    /// After a refusal as `Fenced`. True: the request has a new capability.
    pub(super) fn renew(
        &self,
        request: &mut Sendable,
        is_replay: bool,
        renewed: &mut Renewed,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        if self.is_mdt || !is_replay && is_locked(request) {
            return Ok(false);
        }
        let renewal = renewed.0.entry(request.fid).or_default();
        renewal.count += 1;
        if renewal.count > RENEWALS_MAX {
            return Ok(false);
        }
        if let Some(late) = renewal.count.checked_sub(AT_ONCE + 1)
            && !self.wait(backoff(late + 1), deadline)
        {
            return Err(self.timeout("it refuses the capabilities of requests that it lost"));
        }
        let Some(fs) = self.id.owner.get().and_then(std::sync::Weak::upgrade) else { return Ok(false) };
        let cap = match fs.cap_anew(request.fid, deadline) {
            Ok(cap) => Some(cap),
            Err(fault) if is_passing(fault.code) => return Err(fault),
            Err(fault) => {
                tracing::warn!("{} needs a new capability of file {}: {fault}", self.describe(), request.fid);
                None
            }
        };
        // The MDT has ended the session meanwhile. The next attach finds that, and reports what is lost.
        if cap.as_ref().is_some_and(|cap| cap.session != request.head.session) {
            return Err(self.timeout("its session changes"));
        }
        renewal.cap = cap;
        let Some(cap) = &renewal.cap else {
            // The other requests for the file need not ask again.
            renewal.count = RENEWALS_MAX;
            return Ok(false);
        };
        Ok(renew_sent(request.head.call, &mut request.body, cap))
    }
}

/// True if the request was sent under a range lock. That has ended, so the OST refuses the request with any capability. Replays need no lock.
fn is_locked(request: &Sendable) -> bool {
    request.head.call == Write::CALL && Write::from_bytes(&request.body).is_ok_and(|write| write.lock != 0)
}

/// True if the MDT has not decided about the file.
fn is_passing(code: Code) -> bool {
    matches!(code, Code::Timeout | Code::NotReady | Code::Moved | Code::NoSession)
}

impl Fs {
    /// client-KY4: a capability for changes of a file that was changed before. The file need not be open any more.
    fn cap_anew(&self, fid: Fid, deadline: Instant) -> Result<Capability, Fault> {
        let held = self.files.get(fid).and_then(|file| file.held());
        let (now, cred) = (self.now(), Cred::root());
        let again = Open {
            fid,
            read: false,
            write: false,
            append: false,
            truncate: false,
            keep_write: true,
            held,
            now,
            cred,
        };
        let answer = match self.ask_until(fid, &again, deadline) {
            // A judged session's proof is by the former key. Its user may still have the right to write the file.
            Err(fault) if fault.code == Code::Access => {
                let anew = Open { write: true, append: true, keep_write: false, held: None, ..again };
                self.ask_until(fid, &anew, deadline)
            }
            answer => answer,
        };
        // The MDT may count the file as open now, even if it refused. The end of that is reported.
        match self.files.get(fid) {
            Some(file) => {
                let mut meta = file.meta.lock();
                meta.is_noted |= self.is_shared();
                // The file is to be settled again, if the MDT had it as settled.
                let state = answer.as_ref().ok().map(|answer| answer.reply.inode.state);
                meta.is_marked |= state == Some(FileState::Writing(self.session()));
                drop(meta);
                self.files.enqueue(&file);
            }
            None if self.is_shared() => self.files.left(fid),
            None => self.files.left_unnoted(fid),
        }
        let missing = || Fault::new(Code::NotFound, format!("file {fid} has no objects any more"));
        answer?.reply.cap.ok_or_else(missing)
    }
}
