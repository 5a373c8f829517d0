//! Dispatch of requests, and the fields that every reply has.

pub mod attach;
mod batch_call;
mod mutate;
mod read;
pub mod stat;

use std::sync::atomic::Ordering;

use net::Answer;
use types::{Code, Fault, Incarnation, SessionId};
use wire::batch::Batch;
use wire::check::{Check, CopyOut, Repair};
use wire::mdt::{EvictSession, MdtLeases, MdtStat, ScrubRecords};
use wire::meta::{Counts, LeaseDir, LeaveDir, WatchDir};
use wire::notice::Listen;
use wire::pair::VerifyRecords;
use wire::purge::Dying;
use wire::session::{Attach, Detach, Flush, KeepAlive, TargetStat};
use wire::shared::{CatchUp, Close, Hold, Leave};
use wire::{Empty, Header, ReplyHead, Request, Wire};

use crate::Core;
use crate::joined::not_joined;
use crate::reply::{Done, parse, plain};
use crate::sessions::makers;
use crate::sessions::nodemap::tells_all;

impl Core {
    pub fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        answer.bulk.clear();
        answer.body.clear();
        let outcome = self.dispatch(head, body, bulk, answer);
        self.fill(answer, outcome);
    }

    /// Completes an answer: its head's fields, and the body if `outcome` has it.
    pub fn fill(&self, answer: &mut Answer<'_>, outcome: Result<Option<Done>, Fault>) {
        let flushed_seq = self.flushed_seq();
        debug_assert!(flushed_seq <= self.volume.last_seq(), "only what is in the log is flushed");
        answer.head.epoch = self.epoch();
        answer.head.incarnation = self.incarnation;
        match outcome {
            Ok(None) => {
                assert!(
                    answer.is_parked() || !answer.body.is_empty(),
                    "an answer has its head, or comes later"
                )
            }
            Ok(Some(Done { reply, seq })) => {
                assert!(answer.body.is_empty(), "an answer has one head");
                ReplyHead::done(seq, flushed_seq).put(&mut answer.body);
                answer.body.extend_from_slice(&reply);
            }
            Err(fault) => {
                let fault = self.of_member(fault);
                // Observers walk no paths.
                if answer.head.session != SessionId(0) {
                    self.grace.on_refusal(answer.head.call, &fault, self.clock.boot_ms());
                }
                answer.bulk.clear();
                answer.body.clear();
                ReplyHead::refused(&fault, flushed_seq).put(&mut answer.body);
                debug_assert!(answer.bulk.is_empty(), "a refusal has no bulk bytes");
            }
        }
    }

    /// Runs a request. `None`: the answer has its body already, or comes later.
    fn dispatch(
        &self,
        head: &Header,
        body: &[u8],
        bulk: &[u8],
        answer: &mut Answer<'_>,
    ) -> Result<Option<Done>, Fault> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back"));
        }
        self.check_mirror(head.call)?;
        answer.check_role(head.call)?;
        self.check_begun(head)?;
        self.check_owner(head.session, answer)?;
        // mds-N7: one map for the nodemap and for capabilities. With a former nodemap none is made by a newer key.
        let joined = self.joined.load();
        let joined = joined.as_deref();
        let terms = self.terms_of(joined, head, answer)?;
        let terms = terms.as_deref();
        self.check_root(terms, head, body)?;
        let done = match head.call {
            Attach::CALL => self.on_attach(&parse(body)?, answer).map(plain),
            Listen::CALL => self.on_listen(head.session, &parse(body)?, answer).map(plain),
            KeepAlive::CALL => self.on_keep_alive(&parse(body)?, answer).map(plain),
            Detach::CALL => self.on_detach(head.session, &parse(body)?, answer).map(plain),
            Flush::CALL => return self.on_flush(head, answer),
            0x0260..=0x026f => self.on_lock_call(head, body, terms),
            Leave::CALL => {
                self.check_session(head.session)?;
                self.sharers.leave(head.session, &parse(body)?, &self.sessions)?;
                Ok(plain(Empty {}))
            }
            Hold::CALL => {
                // mds-X1: a `Hold` for an earlier incarnation is refused: its client must replay its requests first.
                self.check_incarnation(head)?;
                let held = self.held_below(terms, head, parse(body)?)?;
                self.on_hold(head.session, &held).map(plain)
            }
            Close::CALL => {
                self.check_incarnation(head)?;
                self.on_close(head.session, &parse(body)?).map(plain)
            }
            CatchUp::CALL => self.on_catch_up(head.session, &parse(body)?).map(plain),
            LeaseDir::CALL if tells_all(terms) => Ok(plain(makers::NONE)),
            LeaseDir::CALL => self.on_lease_dir(head, &parse(body)?).map(plain),
            LeaveDir::CALL => self.on_leave_dir(head.session, &parse(body)?).map(plain),
            WatchDir::CALL => self.on_watch_dir(head, &parse(body)?).map(plain),
            Dying::CALL => {
                self.check_session(head.session)?;
                self.on_dying(&parse(body)?).map(plain)
            }
            0x02a0..=0x02a4 => self.on_changelog_call(head, body),
            TargetStat::CALL => self.target_stat().map(plain),
            MdtStat::CALL => self.on_mdt_stat(&parse(body)?).map(plain),
            MdtLeases::CALL => self.on_leases(&parse(body)?).map(plain),
            EvictSession::CALL => self.on_evict(&parse(body)?).map(plain),
            ScrubRecords::CALL => self.on_scrub_records(&parse(body)?).map(plain),
            Batch::CALL => {
                let joined = joined.ok_or_else(not_joined)?;
                return self.on_batch(joined, head, body, bulk, answer, terms).map(|()| None);
            }
            Check::CALL if self.rules.counts() => self.on_check(&parse(body)?).map(plain),
            CopyOut::CALL => self.on_copy_out(&parse(body)?).map(plain),
            VerifyRecords::CALL => self.on_verify_records(&parse(body)?).map(plain),
            Repair::CALL if self.rules.counts() => self.on_repair(&parse(body)?).map(plain),
            Counts::CALL if self.rules.counts() => {
                self.await_makers(head.session, head.call, body)?;
                self.on_counts(head, body, terms)
            }
            call => match self.rules.is_mutation(call) {
                Some(true) => {
                    let joined = joined.ok_or_else(not_joined)?;
                    self.on_mutation(joined, head, body, bulk, answer, terms)
                }
                Some(false) => {
                    let joined = joined.ok_or_else(not_joined)?;
                    return self.on_read(joined, head, body, answer, terms).map(|()| None);
                }
                None => {
                    Err(Fault::new(Code::Unsupported, format!("call {call:#06x} is not known to this MDT")))
                }
            },
        };
        done.map(Some)
    }

    /// Makes acknowledged entries durable. A client that has not noticed a restart is refused, since its earlier entries may be lost.
    /// `None`: another thread flushes, and answers then. So clients that flush hold no thread, however many they are.
    fn on_flush(&self, head: &Header, answer: &mut Answer<'_>) -> Result<Option<Done>, Fault> {
        self.check_incarnation(head)?;
        self.sessions.touch(head.session, self.clock.boot_ms());
        let done = || Some(plain(Empty {}));
        let want = self.pair.has();
        if self.pair.is_mirrored() {
            // A parked answer asks the mirror, on the thread of whichever flush ends first. That may be the mirror's own.
            self.flush_own()?;
            return self.flush_other(want).map(|()| done());
        }
        let flushed = self.volume.flush_or_park(|| {
            let (later, me) = (answer.later()?, self.me.clone());
            Some(Box::new(move |flushed| {
                let Some(core) = me.upgrade() else { return };
                let flushed = flushed.map_err(|e| core.volume_fault(e));
                let outcome = flushed.and_then(|_| core.flush_other(want)).map(|()| done());
                later.answer(|answer| core.fill(answer, outcome));
            }))
        });
        let Some(flushed) = flushed else { return Ok(None) };
        flushed.map_err(|e| self.volume_fault(e))?;
        self.flush_other(want).map(|()| done())
    }

    pub fn check_session(&self, session: SessionId) -> Result<(), Fault> {
        match self.sessions.touch(session, self.clock.boot_ms()) {
            true => Ok(()),
            false => Err(object::slots::unknown(session)),
        }
    }

    /// Refuses a request for an earlier incarnation. Its client must first replay requests that may be lost, in order, before it sends a new
    /// one.
    pub fn check_incarnation(&self, head: &Header) -> Result<(), Fault> {
        let known = head.incarnation;
        if known == Incarnation(0) || known == self.incarnation {
            return Ok(());
        }
        Err(Fault::new(
            Code::Moved,
            format!(
                "this MDT restarted: it is {}, the request is for {known}; attach again and replay",
                self.incarnation
            ),
        ))
    }
}
