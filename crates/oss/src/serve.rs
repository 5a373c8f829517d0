//! Entry point of requests: dispatch by call number, and the fields that every reply carries.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use net::Answer;
use pki::Role;
use types::{Buf, Code, Fault, Seq, SessionId};
use wire::object::{
    DamageClear, DamageList, Destroy, Glimpse, Grant, List, LockRange, Punch, Read, Release, ReportMissing,
    Reserve, ScrubControl, Seek, SeekReserved, Truncate, UnlockRange, Verify, Write,
};
use wire::ost::{OstSpace, OstStat};
use wire::pair::VerifyMirror;
use wire::session::{Attach, Detach, Flush, KeepAlive, TargetStat};
use wire::{Empty, Header, Malformed, ReplyHead, Request, Wire};

use crate::Core;
use crate::joined::Joined;

/// The context of a request: its header and the target's place in the cluster.
pub struct Ctx<'a> {
    pub head: &'a Header,
    pub joined: &'a Joined,
    pub now_sec: u64,
}

/// The result of a request; the reply's bytes are in the answer already.
pub struct Served {
    /// The log entry that holds the change; 0 for reads.
    pub seq: Seq,
}

impl Served {
    pub const READ: Served = Served { seq: Seq(0) };
}

impl Core {
    pub fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        answer.bulk.clear();
        let mut reply = Vec::new();
        let outcome = self
            .check_role(head)
            .and_then(|()| self.admit_sender(head, body, answer))
            .and_then(|()| self.admit_node(head, body, answer));
        let outcome = outcome.and_then(|()| match head.call {
            Flush::CALL => self.on_flush(head, answer),
            _ => self.dispatch(head, body, bulk, answer.bulk, &mut reply).map(Some),
        });
        // oss-P9: the state that was read may be old if this member stood still meanwhile.
        let outcome = outcome.and_then(|served| self.check_role(head).map(|()| served));
        self.fill(answer, outcome, &reply);
    }

    /// pki-R1 and oss-P6: the sender's role may make the call, and the sessions that the request names are the sender's.
    fn admit_sender(&self, head: &Header, body: &[u8], answer: &Answer<'_>) -> Result<(), Fault> {
        let Some(sender) = answer.sender() else { return Ok(()) };
        answer.check_role(head.call)?;
        match head.call {
            Attach::CALL => self.check_ticket(&*self.joined()?, &parse(body)?, answer),
            KeepAlive::CALL => {
                self.check_owner(head.session, answer)?;
                self.check_owner(parse::<KeepAlive>(body)?.session, answer)
            }
            // Servers and administrators may end the rest of a dead client.
            Detach::CALL if head.session == SessionId(0) && sender.role != Role::Client => Ok(()),
            Detach::CALL => {
                self.check_owner(head.session, answer)?;
                self.check_owner(parse::<Detach>(body)?.session, answer)
            }
            _ => self.check_owner(head.session, answer),
        }
    }

    /// `None`: another thread flushes, and answers then. So clients that flush hold no thread, however many they are.
    fn on_flush(&self, head: &Header, answer: &mut Answer<'_>) -> Result<Option<Served>, Fault> {
        self.check_served(head)?;
        let flushed = self.store.flush_or_park(&mut || {
            let (later, me) = (answer.later()?, self.me.clone());
            Some(Box::new(move |flushed| {
                let Some(core) = me.upgrade() else { return };
                let outcome = flushed.map(|_| Some(Served::READ)).map_err(Fault::from);
                later.answer(|answer| core.fill(answer, outcome, &Empty {}.to_bytes()));
            }))
        });
        let Some(flushed) = flushed else { return Ok(None) };
        Ok(flushed.map(|_| Some(Served::READ))?)
    }

    /// Completes an answer: its head's fields and its body. `None`: it comes later.
    fn fill(&self, answer: &mut Answer<'_>, outcome: Result<Option<Served>, Fault>, reply: &[u8]) {
        let Some(outcome) = outcome.transpose() else {
            assert!(answer.is_parked(), "an answer that does not come now comes later");
            return;
        };
        // oss-P4: flushed_seq is read after the work, so that the reply of a Flush shows its effect.
        let flushed_seq = self.store.flushed_seq();
        debug_assert!(flushed_seq <= self.store.last_seq(), "oss-P4: a flushed entry is in the log");
        answer.head.epoch = self.joined.read().as_ref().map_or(Default::default(), |j| j.epoch);
        answer.head.incarnation = self.incarnation();
        answer.body.clear();
        match outcome {
            Ok(served) => {
                debug_assert!(served.seq <= self.store.last_seq(), "an answered change is in the log");
                ReplyHead::done(served.seq, flushed_seq).put(&mut answer.body);
                answer.body.extend_from_slice(reply);
            }
            Err(fault) => {
                let fault = self.of_member(fault);
                answer.bulk.clear();
                ReplyHead::refused(&fault, flushed_seq).put(&mut answer.body);
            }
        }
    }

    /// The target's place in the cluster, if it serves this request.
    fn check_served(&self, head: &Header) -> Result<Arc<Joined>, Fault> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Fault::new(Code::NotReady, "this OST is stopping; try again when it is back"));
        }
        let joined = self.joined()?;
        self.check_address(&Ctx { head, joined: &joined, now_sec: (self.settings.clock)() })?;
        Ok(joined)
    }

    fn dispatch(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        out: &mut Buf,
        reply: &mut Vec<u8>,
    ) -> Result<Served, Fault> {
        let joined = self.check_served(head)?;
        let ctx = Ctx { head, joined: &joined, now_sec: (self.settings.clock)() };
        match head.call {
            Write::CALL => self.on_write(&ctx, parse(body)?, bulk, reply),
            Read::CALL => self.on_read(&ctx, parse(body)?, out, reply),
            LockRange::CALL => self.on_lock_range(&ctx, parse(body)?, reply),
            UnlockRange::CALL => self.on_unlock_range(&ctx, parse(body)?, reply),
            Truncate::CALL => self.on_truncate(&ctx, parse(body)?, reply),
            Grant::CALL => self.on_grant(&ctx, parse(body)?, reply),
            Reserve::CALL => self.on_reserve(&ctx, parse(body)?, reply),
            Release::CALL => self.on_release(&ctx, parse(body)?, reply),
            Punch::CALL => self.on_punch(&ctx, parse(body)?, reply),
            Seek::CALL => self.on_seek(&ctx, parse(body)?, reply),
            SeekReserved::CALL => self.on_seek_reserved(&ctx, parse(body)?, reply),
            Destroy::CALL => self.on_destroy(&ctx, parse(body)?, reply),
            Glimpse::CALL => self.on_glimpse(&ctx, parse(body)?, reply),
            List::CALL => self.on_list(&ctx, parse(body)?, reply),
            Verify::CALL => self.on_verify(&ctx, parse(body)?, reply),
            ReportMissing::CALL => self.on_report_missing(&ctx, parse(body)?, reply),
            DamageList::CALL => self.on_damage_list(&ctx, parse(body)?, reply),
            DamageClear::CALL => self.on_damage_clear(&ctx, parse(body)?, reply),
            ScrubControl::CALL => self.on_scrub(&ctx, parse(body)?, reply),
            VerifyMirror::CALL => self.on_verify_mirror(&ctx, parse(body)?, reply),
            OstStat::CALL => self.on_ost_stat(&ctx, parse(body)?, reply),
            OstSpace::CALL => self.on_ost_space(&ctx, parse(body)?, reply),
            Attach::CALL => self.on_attach(&ctx, parse(body)?, reply),
            KeepAlive::CALL => self.on_keep_alive(parse(body)?, reply),
            Detach::CALL => self.on_detach(&ctx, parse(body)?, reply),
            TargetStat::CALL => self.on_target_stat(&ctx, reply),
            call => Err(Fault::new(Code::Unsupported, format!("call {call:#06x} is not known to this OST"))),
        }
    }
}

pub fn parse<T: Wire>(body: &[u8]) -> Result<T, Fault> {
    T::from_bytes(body)
        .map_err(|Malformed(what)| Fault::new(Code::BadRequest, format!("the request's body: {what}")))
}
