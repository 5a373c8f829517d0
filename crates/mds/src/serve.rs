//! Dispatch of requests, and the fields that every reply has.

mod mutate;
mod read;

pub use mutate::{lets_objects_change, refuse_late};

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meta::{Ctx, Judge, Space};
use net::Answer;
use object::LeaseVersion;
use types::{Code, Fault, Fid, Generation, Incarnation, Seq, SessionId};
use wire::batch::Batch;
use wire::check::{Check, CopyOut, Repair};
use wire::mdt::MdtStat;
use wire::meta::Counts;
use wire::object::Capability;
use wire::purge::Dying;
use wire::session::{Attach, Detach, Flush, KeepAlive, TargetStat};
use wire::shared::{CatchUp, Close, Hold, Leave};
use wire::{Empty, Flags, Header, Malformed, ReplyHead, Request, Wire};

use crate::Core;
use crate::execute::Done;
use crate::joined::Joined;
use crate::judge::Judged;
use crate::shared::{Doom, Others};

/// Validity of a capability. Nothing renews one before there are leases, and a job may hold a file open for weeks. A truncation or an eviction
/// ends access by the lease version, not by this time.
const CAPABILITY_SEC: u64 = 90 * 24 * 3600;

/// A request and the state that its rule needs.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    pub head: &'a Header,
    pub joined: &'a Joined,
    pub judged: Option<&'a Judged>,
    pub space: Space,
    pub doom: &'a Doom<'a>,
}

impl Core {
    pub fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        answer.bulk.clear();
        answer.body.clear();
        let outcome = self.dispatch(head, body, bulk, answer);
        let flushed_seq = self.volume.flushed_seq();
        answer.head.epoch = self.epoch();
        answer.head.incarnation = self.incarnation;
        match outcome {
            Ok(None) => {}
            Ok(Some(Done { reply, seq })) => {
                ReplyHead::done(seq, flushed_seq).put(&mut answer.body);
                answer.body.extend_from_slice(&reply);
            }
            Err(fault) => {
                // Observers walk no paths.
                if head.session != SessionId(0) {
                    self.grace.on_refusal(head.call, &fault, self.clock.boot_ms());
                }
                answer.bulk.clear();
                answer.body.clear();
                ReplyHead::refused(&fault, flushed_seq).put(&mut answer.body);
            }
        }
    }

    /// Runs a request. `None`: the answer has its body already.
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
        let done = match head.call {
            Attach::CALL => self.on_attach(&parse(body)?).map(plain),
            KeepAlive::CALL => self.on_keep_alive(&parse(body)?).map(plain),
            Detach::CALL => self.on_detach(head.session, &parse(body)?).map(plain),
            Flush::CALL => self.on_flush(head),
            0x0260..=0x026f => self.on_lock_call(head, body),
            Leave::CALL => {
                self.check_session(head.session)?;
                self.sharers.leave(head.session, &parse(body)?, &self.sessions)?;
                Ok(plain(Empty {}))
            }
            Hold::CALL => {
                // mds-X1: a `Hold` for an earlier incarnation is refused: its client must replay its requests first.
                self.check_incarnation(head)?;
                self.on_hold(head.session, &parse(body)?).map(plain)
            }
            Close::CALL => {
                self.check_incarnation(head)?;
                self.on_close(head.session, &parse(body)?).map(plain)
            }
            CatchUp::CALL => self.on_catch_up(head.session, head.target, &parse(body)?).map(plain),
            Dying::CALL => {
                self.check_session(head.session)?;
                self.on_dying(&parse(body)?).map(plain)
            }
            0x02a0..=0x02a4 => self.on_changelog_call(head, body),
            TargetStat::CALL => self.target_stat().map(plain),
            MdtStat::CALL => self.on_mdt_stat(&parse(body)?).map(plain),
            Batch::CALL => return self.on_batch(head, body, bulk, answer).map(|()| None),
            Check::CALL if self.rules.counts() => self.on_check(&parse(body)?).map(plain),
            CopyOut::CALL => self.on_copy_out(&parse(body)?).map(plain),
            Repair::CALL if self.rules.counts() => self.on_repair(&parse(body)?).map(plain),
            Counts::CALL if self.rules.counts() => self.on_counts(head, body),
            call => match self.rules.is_mutation(call) {
                Some(true) => self.on_mutation(head, body, bulk),
                Some(false) => return self.on_read(head, body, answer).map(|()| None),
                None => {
                    Err(Fault::new(Code::Unsupported, format!("call {call:#06x} is not known to this MDT")))
                }
            },
        };
        done.map(Some)
    }

    /// Makes acknowledged entries durable. A client that has not noticed a restart is refused, since its earlier entries may be lost.
    fn on_flush(&self, head: &Header) -> Result<Done, Fault> {
        self.check_incarnation(head)?;
        self.sessions.touch(head.session, self.clock.boot_ms());
        self.flush()?;
        Ok(plain(Empty {}))
    }

    /// Calls `f` with the context that rules see.
    pub fn with_ctx<T>(
        &self,
        Around { head, joined, judged, space, doom }: Around<'_>,
        lease_high: &Cell<u32>,
        run: &mut dyn FnMut(&Ctx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (epoch, replay) = (self.epoch(), head.flags & Flags::REPLAY != 0);
        let make_cap = |fid: Fid, generation: Generation, rights: u8, counter: u32| -> Capability {
            let lease = LeaseVersion { epoch: epoch.0.wrapping_add(lease_high.get()), counter };
            let expiry_sec = self.clock.wall().sec.max(0) as u64 + CAPABILITY_SEC;
            object::cap::make(&joined.secret, fid, generation, rights, lease, head.session, expiry_sec)
        };
        // meta-J2: other capabilities count by their own rights.
        let is_ours = |cap: &Capability| {
            let now_sec = self.clock.wall().sec.max(0) as u64;
            cap.session == head.session && object::cap::check_right(&joined.secret, cap, 0, now_sec).is_ok()
        };
        let judge =
            judged.map(|j| Judge { cred: j.cred.clone(), is_anybody: j.is_anybody, is_ours: &is_ours });
        run(&Ctx {
            judge,
            session: head.session,
            replay,
            inline_max: joined.inline_max,
            ost_mirrors: &joined.ost_mirrors,
            shard: joined.shard,
            epoch,
            make_cap: &make_cap,
            sharing: Some(&Others { core: self, session: head.session, lease_high, doom }),
            // A replayed request had space when it was acknowledged.
            space: if replay { Space::AMPLE } else { space },
        })
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

pub fn parse<T: Wire>(body: &[u8]) -> Result<T, Fault> {
    T::from_bytes(body)
        .map_err(|Malformed(what)| Fault::new(Code::BadRequest, format!("the request's body: {what}")))
}

/// A reply without a log entry.
pub fn plain<T: Wire>(reply: T) -> Done {
    Done { reply: Arc::from(reply.to_bytes()), seq: Seq(0) }
}
