//! The line to the MDT, and the effects of the notices that come over it.
//!
//! client-EA1: a notice wakes threads, sets flags and drops what is cached. It waits for replies to the kernel that are being written, and at most
//!     for the time-outs of names that the kernel has.
//! client-EA2: after each answer to a keep-alive the line is open and no notice is missing, or the client listens anew. So a lost notice shows
//!     within a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use net::notices::{Listener, Taken};
use net::{Listening, Peer, rpc};
use parking_lot::Mutex;
use types::Buf;
use wire::notice::{Evicted, Forget, GiveBack, Listen, LocksFree, LookAround, ModeChanged};
use wire::session::KeepAliveReply;
use wire::{Header, Request, Wire};

use crate::session::identity::Identity;
use crate::session::sharing::Attach;

/// Lines that are begun one after the other while notices come before the answer.
const LISTENS_MAX: usize = 4;

/// The line to the MDT.
#[derive(Default)]
pub(crate) struct Ear {
    taken: Arc<Taken>,
    line: Mutex<Option<(Listening, Arc<Listener>)>>,
    /// One thread begins a line at a time, so that the last one that the MDT knows is the one that is kept.
    beginning: Mutex<()>,
    /// Notices came before the answer to the last `Listen`, and no other one acknowledged them.
    owes_taken: AtomicBool,
    /// Notices that the last keep-alive's answer told of and that had not come. They may be under way.
    missing: Mutex<Option<u64>>,
}

impl Ear {
    /// client-EA2: must the client listen anew?
    pub fn is_due(&self, reply: &KeepAliveReply) -> bool {
        let owes_taken = self.owes_taken.load(Ordering::SeqCst);
        if !self.is_open() || owes_taken || !self.taken.has_all(reply.outbox, 0) {
            return true;
        }
        let mut missing = self.missing.lock();
        if self.taken.has_all(reply.outbox, reply.notices) {
            *missing = None;
            return false;
        }
        // A notice and the answer may overtake each other, so it is missing only if it is at the second look.
        let before = missing.replace(reply.notices);
        before.is_some_and(|before| !self.taken.has_all(reply.outbox, before))
    }

    pub fn is_open(&self) -> bool {
        self.line.lock().as_ref().is_some_and(|(line, _)| line.is_open())
    }

    /// Begins a line.
    pub fn listen(
        &self,
        id: &Arc<Identity>,
        peer: &dyn Peer,
        head: Header,
        deadline: Instant,
    ) -> Result<(), rpc::RpcError> {
        let _one = self.beginning.lock();
        for _ in 0..LISTENS_MAX {
            if !self.listen_once(id, peer, head, deadline)? {
                break;
            }
        }
        Ok(())
    }

    /// True: listen again, which acknowledges the notices that came before the answer.
    fn listen_once(
        &self,
        id: &Arc<Identity>,
        peer: &dyn Peer,
        head: Header,
        deadline: Instant,
    ) -> Result<bool, rpc::RpcError> {
        // A notice that the earlier line is handing over counts as taken: its effect ends first.
        self.end();
        let (weak, since) = (Arc::downgrade(id), id.sharing.attach());
        let hear = move |head: &Header, body: &[u8]| {
            weak.upgrade().iter().for_each(|id| heard(id, since, head, body));
        };
        let listener = Listener::new(self.taken.clone(), Box::new(hear));
        let mut into = Buf::new();
        let request = self.taken.request();
        let mut call = rpc::prepare(head, &request, &[], &mut into, deadline);
        let (head, body, listening) = peer.listen(&mut call, listener.clone())?;
        let (_, _, reply) = rpc::read::<Listen>((head, body))?;
        match reply {
            Ok(reply) => {
                *self.missing.lock() = None;
                if !self.taken.knows(&reply) {
                    // Before any notice is acknowledged: those that are lost may have told what to forget.
                    id.leased.void_with_names();
                }
                *self.line.lock() = Some((listening, listener.clone()));
                // The attach or keep-alive before this has told the mode.
                let begun = listener.begin(&reply);
                if begun.looks_around {
                    id.locks.look();
                    id.want_map();
                }
                self.owes_taken.store(begun.owes_taken, Ordering::SeqCst);
                return Ok(begun.owes_taken);
            }
            // The next keep-alive tries again.
            Err(fault) => tracing::debug!("the MDT refused a line for notices: {fault}"),
        }
        Ok(false)
    }

    /// Ends the line. When this returns, no notice is at work.
    pub fn end(&self) {
        if let Some((line, listener)) = self.line.lock().take() {
            listener.end();
            drop(line);
        }
    }
}

/// client-EA1. A malformed notice counts as `LookAround`.
fn heard(id: &Identity, since: Attach, head: &Header, body: &[u8]) {
    match head.call {
        ModeChanged::CALL => match ModeChanged::from_bytes(body) {
            Ok(notice) => id.sharing.told(since, notice.mode),
            Err(_) => look_around(id),
        },
        LocksFree::CALL => match LocksFree::from_bytes(body) {
            Ok(notice) => id.locks.free(&notice.tickets),
            Err(_) => look_around(id),
        },
        Evicted::CALL => {
            let why = Evicted::from_bytes(body).map_or(String::new(), |notice| notice.why);
            tracing::warn!("the MDT has ended this client's session: {why}");
            id.leased.void();
            id.alive.ring();
        }
        Forget::CALL => match Forget::from_bytes(body) {
            Ok(notice) => id.leased.forget(&notice.items),
            Err(_) => id.leased.void_with_names(),
        },
        // A malformed one is told again.
        GiveBack::CALL => {
            GiveBack::from_bytes(body).into_iter().for_each(|notice| id.sharing.recalls.add(notice.items))
        }
        LookAround::CALL => {
            id.leased.void_with_names();
            look_around(id)
        }
        other => tracing::debug!("notice {other:#06x} is of a newer release, and is ignored"),
    }
}

fn look_around(id: &Identity) {
    id.alive.ring();
    id.locks.look();
    id.want_map();
}
