//! A session's line for notices of the MDT. All sessions of a process listen through one fabric, whose few threads take the notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use net::notices::{Listener, Taken};
use net::{Listening, Peer, rpc};
use types::{Buf, FsId, SessionId, TargetId};
use wire::notice::{Evicted, Listen, ModeChanged};
use wire::{Header, Request};

/// As in the client.
const LISTEN_MAX: Duration = Duration::from_secs(1);

/// Notices since the last look.
#[derive(Default)]
struct Told {
    has_mode_changed: AtomicBool,
    is_evicted: AtomicBool,
}

pub struct Ear {
    peer: Arc<dyn Peer>,
    taken: Arc<Taken>,
    told: Arc<Told>,
    line: Option<(Listening, Arc<Listener>)>,
}

impl Ear {
    pub fn new(peer: Arc<dyn Peer>) -> Ear {
        let (taken, told) = Default::default();
        Ear { peer, taken, told, line: None }
    }

    pub fn is_open(&self) -> bool {
        self.line.as_ref().is_some_and(|(line, _)| line.is_open())
    }

    /// Begins a line in place of an earlier one. True: it is open.
    pub fn listen(&mut self, session: SessionId, fs: FsId, target: TargetId) -> bool {
        self.end();
        let told = self.told.clone();
        let heard = move |head: &Header, _: &[u8]| match head.call {
            ModeChanged::CALL => told.has_mode_changed.store(true, Ordering::SeqCst),
            Evicted::CALL => told.is_evicted.store(true, Ordering::SeqCst),
            _ => {}
        };
        let listener = Listener::new(self.taken.clone(), Box::new(heard));
        let head = Header { fs, target, session, ..Header::default() };
        let (request, mut into) = (self.taken.request(), Buf::new());
        let mut call = rpc::prepare(head, &request, &[], &mut into, Instant::now() + LISTEN_MAX);
        let Ok((head, body, line)) = self.peer.listen(&mut call, listener.clone()) else { return false };
        let Ok((_, _, Ok(reply))) = rpc::read::<Listen>((head, body)) else { return false };
        // A session without caches and locks has nothing to look around for.
        listener.begin(&reply);
        self.line = Some((line, listener));
        true
    }

    /// True once after the MDT has told of another mode.
    pub fn has_mode_changed(&self) -> bool {
        self.told.has_mode_changed.swap(false, Ordering::SeqCst)
    }
    /// True once after the MDT has told that the session has ended.
    pub fn is_evicted(&self) -> bool {
        self.told.is_evicted.swap(false, Ordering::SeqCst)
    }

    pub fn end(&mut self) {
        if let Some((line, listener)) = self.line.take() {
            listener.end();
            drop(line);
        }
    }
}
