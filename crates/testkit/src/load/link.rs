//! One session's requests to one target, each with one definite outcome: done, refused, or to be sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net::{Peer, rpc};
use types::{Buf, Code, Fault, FsId, Incarnation, SessionId, TargetId};
use wire::session::{comes_after, next_sequence};
use wire::{Header, Request};

/// Longest wait for one answer. Others of the same driver wait meanwhile, and a request that is given up is sent again.
const CALL_MAX: Duration = Duration::from_secs(10);
/// Pauses between two tries, as in the client.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The outcome of one try.
pub enum Said<T> {
    Done(T),
    /// No answer, or a refusal that passes: the same request is sent again.
    Again,
    /// The target has restarted or does not know the session: the session attaches first.
    Detached,
    Refused(Fault),
}

impl<T> Said<T> {
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Said<U> {
        match self {
            Said::Done(reply) => Said::Done(of(reply)),
            Said::Again => Said::Again,
            Said::Detached => Said::Detached,
            Said::Refused(fault) => Said::Refused(fault),
        }
    }
}

/// The session's end at one target.
pub struct Link {
    pub target: TargetId,
    peer: Arc<dyn Peer>,
    fs: FsId,
    /// 0: not attached.
    pub incarnation: Incarnation,
    /// Of the last attach.
    pub last: Incarnation,
    pub alive_at: Instant,
    /// Last sequence of slot 0 that was sent, and last one that was answered.
    pub sent: u32,
    pub answered: u32,
    pub tries: u32,
}

impl Link {
    pub fn new(target: TargetId, peer: Arc<dyn Peer>, fs: FsId, now: Instant) -> Link {
        let none = Incarnation(0);
        Link {
            target,
            peer,
            fs,
            incarnation: none,
            last: none,
            alive_at: now,
            sent: 0,
            answered: 0,
            tries: 0,
        }
    }

    pub fn is_attached(&self) -> bool {
        self.incarnation != Incarnation(0)
    }
    pub fn attached(&mut self, incarnation: Incarnation) {
        (self.incarnation, self.last, self.tries) = (incarnation, incarnation, 0);
    }
    pub fn detach(&mut self) {
        self.incarnation = Incarnation(0);
    }

    /// The pause before the next try.
    pub fn pause(&mut self) -> Duration {
        self.tries += 1;
        PAUSE_MIN.saturating_mul(1 << (self.tries - 1).min(16)).min(PAUSE_MAX)
    }

    /// The sequence of a new request that changes something.
    pub fn next_sequence(&mut self) -> u32 {
        self.sent = next_sequence(self.sent);
        self.sent
    }

    /// Compares what the target has carried out in slot 0 with what this session knows.
    pub fn check_slot(&self, carried_out: &[u32]) -> Result<(), String> {
        let theirs = carried_out.first().copied().unwrap_or_default();
        if self.answered != 0 && (theirs == 0 || comes_after(self.answered, theirs)) {
            return Err(format!("target {} has lost request {}", self.target, self.answered));
        }
        if theirs != 0 && (self.sent == 0 || comes_after(theirs, self.sent)) {
            return Err(format!("target {} has carried out {theirs}, which was never sent", self.target));
        }
        Ok(())
    }

    /// Sends a request of the attached session. `sequence` 0: it changes nothing.
    pub fn ask<R: Request>(&mut self, session: SessionId, sequence: u32, req: &R) -> Said<R::Reply> {
        self.exchange(session, sequence, req, &[], &mut Buf::new())
    }

    /// As `ask`, with bulk bytes out or in.
    pub fn exchange<R: Request>(
        &mut self,
        session: SessionId,
        sequence: u32,
        req: &R,
        bulk: &[u8],
        into: &mut Buf,
    ) -> Said<R::Reply> {
        assert!(R::MUTATES == (sequence != 0), "exactly the requests that change something have a sequence");
        let head = Header { incarnation: self.incarnation, sequence, ..self.header(session) };
        let said = match rpc::call(&*self.peer, head, req, bulk, into, Instant::now() + CALL_MAX) {
            Ok((head, _, Ok(reply))) if head.incarnation == self.incarnation => Said::Done(reply),
            // It may have been carried out by the incarnation that is gone.
            Ok((_, _, Ok(_))) => Said::Detached,
            Ok((_, _, Err(fault))) => refused(fault),
            Err(rpc::RpcError::Net(_)) => Said::Again,
            Err(e @ rpc::RpcError::Malformed { .. }) => Said::Refused(Fault::new(Code::Io, e.to_string())),
        };
        match &said {
            Said::Done(_) => {
                self.tries = 0;
                self.answered = if sequence == 0 { self.answered } else { sequence };
            }
            Said::Detached => self.detach(),
            Said::Again | Said::Refused(_) => {}
        }
        said
    }

    /// Sends a request that needs no attach, and tells the incarnation that answered.
    pub fn greet<R: Request>(&self, session: SessionId, req: &R) -> Said<(Incarnation, R::Reply)> {
        match rpc::call(
            &*self.peer,
            self.header(session),
            req,
            &[],
            &mut Buf::new(),
            Instant::now() + CALL_MAX,
        ) {
            Ok((head, _, Ok(reply))) => Said::Done((head.incarnation, reply)),
            Ok((_, _, Err(fault))) => refused(fault),
            Err(rpc::RpcError::Net(_)) => Said::Again,
            Err(e @ rpc::RpcError::Malformed { .. }) => Said::Refused(Fault::new(Code::Io, e.to_string())),
        }
    }

    fn header(&self, session: SessionId) -> Header {
        Header { fs: self.fs, target: self.target, session, ..Header::default() }
    }
}

fn refused<T>(fault: Fault) -> Said<T> {
    match fault.code {
        Code::NotReady => Said::Again,
        Code::Moved | Code::NoSession => Said::Detached,
        _ => Said::Refused(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Fabric;

    #[test]
    fn a_slot_that_lost_an_answered_request_or_has_an_unsent_one_is_told() {
        // sent, answered, carried out by the target, right?
        let table = [
            (0, 0, 0, true),
            (1, 1, 1, true),
            (2, 1, 1, true),
            (2, 1, 2, true),
            (2, 2, 1, false),
            (1, 1, 0, false),
            (1, 1, 2, false),
            (0, 0, 1, false),
        ];
        let peer = Fabric::new(None).peer_at("127.0.0.1:1@tcp0", TargetId(1));
        let mut link = Link::new(TargetId(1), peer, FsId(1), Instant::now());
        for (sent, answered, carried_out, want) in table {
            (link.sent, link.answered) = (sent, answered);
            let row = (sent, answered, carried_out);
            assert_eq!(link.check_slot(&[carried_out]).is_ok(), want, "{row:?}");
        }
    }
}
