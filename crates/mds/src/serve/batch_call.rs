//! A batch: several requests of one session in one frame (`wire::batch`).
//!
//! mds-B1: the whole batch is checked before any operation runs. A refused batch changed nothing.
//! mds-B2: operations that change something are queued as single requests, each with its slot, and take turns with other sessions (mds-W4).
//!     They share a log entry as far as it has space.
//! mds-B3: neighbouring reads of a batch see one state.
//! mds-B4: an answer that does not fit is `TooMuch`, and so are all behind it, which are not begun. An operation that was carried out by
//!     then is answered from its slot when it is sent again.

use std::cell::Cell;

use kv::Engine;
use meta::Space;
use net::Answer;
use types::{Buf, Code, Cred, Fault, Seq, SessionId};
use wire::batch::{ANSWER_BYTES_MAX, BATCH_BYTES_MAX, Batch, OPS_MAX, Op};
use wire::meta::OpenRead;
use wire::shared::Enter;
use wire::{Flags, Header, ReplyHead, Request, Wire};

use crate::Core;
use crate::executor::ask::OwnAsk;
use crate::executor::call::Around;
use crate::executor::execute::Carried;
use crate::joined::Joined;
use crate::records::look::{SnapView, until_loaded};
use crate::reply::parse;
use crate::reply::refuse_observer;
use crate::sessions::nodemap::Terms;
use crate::sessions::shared::Doom;

/// Kinds of operations, each carried out differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Mutate,
    Read,
    /// An open that changes nothing. It is noted as open, and may read twice.
    OpenRead,
}

/// The sender of a batch.
#[derive(Clone, Copy)]
struct By<'a> {
    /// The one user that the session may act for.
    user: Option<&'a Cred>,
    terms: Option<&'a Terms>,
}

impl Core {
    pub fn on_batch(
        &self,
        joined: &Joined,
        head: &Header,
        body: &[u8],
        mut bulk: &[u8],
        answer: &mut Answer<'_>,
        terms: Option<&Terms>,
    ) -> Result<(), Fault> {
        // 1. mds-B1.
        if body.len() > BATCH_BYTES_MAX {
            return Err(refuse("it is longer than a batch may be"));
        }
        let Batch { mut ops } = parse(body)?;
        let ways = self.ways_of(head, &ops, bulk.len())?;
        self.check_incarnation(head)?;
        let mut user = None;
        if head.session != SessionId(0) {
            self.check_session(head.session)?;
            self.check_come_back()?;
            // Read once for the whole batch: if the session ended in between, later operations would run with another user's rights.
            user = self.sessions.one_user(head.session)?;
        }
        let by = By { user: user.as_ref(), terms };
        if ways.contains(&Way::Mutate) {
            if head.session == SessionId(0) {
                return Err(refuse_observer());
            }
            self.check_whole()?;
        }
        for op in &ops {
            answer.count_part(op.call, op.bulk_len);
            self.await_makers(head.session, op.call, &op.body)?;
        }
        // 2. Run neighbouring operations of one kind together.
        let mut answers = Answers::begin(answer, ops.len(), self.flushed_seq());
        let mut at = 0;
        while at < ops.len() {
            let way = ways[at];
            let len = ways[at..].iter().take_while(|w| **w == way).count();
            let run = &mut ops[at..at + len];
            let own = run.iter().map(|op| op.bulk_len as usize).sum();
            let (bulk_of_run, rest) = bulk.split_at(own);
            match way {
                _ if answers.is_full => run.iter().for_each(|_| answers.too_much()),
                Way::Mutate => self.mutate_all(head, by, (run, bulk_of_run), joined, &mut answers),
                Way::Read => self.read_all(head, by, run, joined, &mut answers),
                Way::OpenRead => run.iter().for_each(|op| self.open_one(joined, head, by, op, &mut answers)),
            }
            assert!(len > 0, "each run has an operation");
            (at, bulk) = (at + len, rest);
        }
        assert!(bulk.is_empty(), "mds-B1: the operations have all bulk bytes of the batch");
        Ok(())
    }

    /// mds-B1: the kind of each operation, or why the batch is refused.
    fn ways_of(&self, head: &Header, ops: &[Op], bulk_bytes: usize) -> Result<Vec<Way>, Fault> {
        if head.flags & Flags::REPLAY != 0 || ops.len() > OPS_MAX {
            return Err(refuse("it has too many operations, or is sent again as one"));
        }
        if ops.iter().map(|op| op.bulk_len as usize).sum::<usize>() != bulk_bytes {
            return Err(refuse("its operations have other bulk bytes than it has"));
        }
        let mut slots: Vec<u32> = ops.iter().filter(|op| op.sequence != 0).map(|op| op.slot).collect();
        slots.sort_unstable();
        if slots.windows(2).any(|two| two[0] == two[1]) {
            return Err(refuse("two of its operations have one slot"));
        }
        let way = |op: &Op| match self.rules.is_mutation(op.call) {
            Some(true) if op.call != Enter::CALL => Ok(Way::Mutate),
            Some(false) if op.bulk_len > 0 => Err(refuse("what only reads has no bulk bytes")),
            Some(false) if op.call == OpenRead::CALL => Ok(Way::OpenRead),
            Some(false) => Ok(Way::Read),
            _ => Err(Fault::new(Code::Unsupported, format!("call {:#06x} cannot be in a batch", op.call))),
        };
        ops.iter().map(way).collect()
    }

    /// mds-B2.
    fn mutate_all(
        &self,
        head: &Header,
        by: By<'_>,
        (ops, mut bulk): (&mut [Op], &[u8]),
        joined: &Joined,
        answers: &mut Answers<'_, '_>,
    ) {
        let (mut asks, mut refused) = (Vec::with_capacity(ops.len()), Vec::with_capacity(ops.len()));
        let root = by.terms.and_then(|terms| terms.root.as_ref());
        let mut bodies = Vec::with_capacity(ops.len());
        for op in ops.iter_mut() {
            let (own, rest) = bulk.split_at(op.bulk_len as usize);
            bulk = rest;
            let Op { call, slot, sequence, .. } = *op;
            let body = std::mem::take(&mut op.body.0);
            let may = self.check_may_change(by.terms, call, &body);
            let may = may.and_then(|()| self.check_migration(call, &body));
            match may.and_then(|()| Ok(self.request_ids(by.terms, call, &body)?.into_owned())) {
                Err(fault) => refused.push(Some(fault)),
                Ok(body) => {
                    refused.push(None);
                    let judged = self.judged(by.user, by.terms, call, &body);
                    let head = Header { call, slot, sequence, ..*head };
                    bodies.push((call, by.terms.map(|_| body.clone()).unwrap_or_default()));
                    asks.push(OwnAsk {
                        head,
                        body,
                        bulk: own.to_vec(),
                        judged,
                        root: root.cloned(),
                        forgot: vec![],
                    });
                }
            }
        }
        let count = asks.len();
        let mut carried = match count {
            0 => vec![],
            _ => self.carry_out_all(head.session, asks, joined),
        };
        assert_eq!(carried.len(), count, "mds-B2: each operation has one outcome");
        // mds-M7: one flush for the batch.
        if carried.iter().flatten().any(|c| c.must_flush)
            && let Err(fault) = self.flush_let_changes()
        {
            carried.iter_mut().for_each(|c| *c = Err(fault.clone()));
        }
        answers.flushed_seq = self.flushed_seq();
        let mut carried = carried.into_iter().zip(bodies);
        for refused in refused {
            let outcome = match refused {
                Some(fault) => Err(fault),
                None => {
                    let (carried, (call, body)) = carried.next().expect("each operation has an outcome");
                    carried.and_then(|Carried { done, .. }| {
                        let mapped = self.reply_ids(by.terms, call, &body, &done.reply)?;
                        Ok((done, mapped))
                    })
                }
            };
            match outcome {
                Ok((done, mapped)) => answers.done(done.seq, mapped.as_deref().unwrap_or(&done.reply), &[]),
                Err(fault) => answers.refused(&self.of_member(fault)),
            }
        }
    }

    /// mds-B3. A read that fails does not affect the others.
    fn read_all(
        &self,
        head: &Header,
        by: By<'_>,
        ops: &[Op],
        joined: &Joined,
        answers: &mut Answers<'_, '_>,
    ) {
        let (doom, lease_high) = (Doom::new(&self.sharers), Cell::new(0));
        let root = by.terms.and_then(|terms| terms.root.as_deref());
        // The number of moves is read before the state.
        let seen = root.map(|root| root.seen(self.roots.now(), true));
        let (snap, mut reply, mut bulk) = (self.kv.snapshot(), Vec::new(), Buf::new());
        for op in ops {
            if answers.is_full {
                answers.too_much();
                continue;
            }
            let judged = self.judged(by.user, by.terms, op.call, &op.body);
            let around = Around {
                head,
                joined,
                judged: judged.as_ref(),
                space: Space::AMPLE,
                doom: &doom,
                root: seen.as_ref(),
            };
            let said = until_loaded(&self.kv, &mut || {
                reply.clear();
                bulk.clear();
                let view = SnapView::new(&snap);
                let said = self.with_ctx(around, &lease_high, &mut |ctx| {
                    self.rules.read(ctx, &view, op.call, &op.body, &mut reply, &mut bulk)
                });
                // mds-V1.
                view.finish().map(|()| said)
            });
            let said = said.flatten().and_then(|()| {
                if let Some(mapped) = self.reply_ids(by.terms, op.call, &op.body, &reply)? {
                    reply = mapped;
                }
                // mds-RP2: as for single reads.
                self.check_mirror(op.call)
            });
            match said {
                Ok(()) => answers.done(Seq(0), &reply, &bulk),
                Err(fault) => answers.refused(&self.of_member(fault)),
            }
        }
    }

    fn open_one(&self, joined: &Joined, head: &Header, by: By<'_>, op: &Op, answers: &mut Answers<'_, '_>) {
        if answers.is_full {
            return answers.too_much();
        }
        let (mut bulk, head) = (Buf::new(), Header { call: op.call, ..*head });
        let mut alone = Answer::new(head, &mut bulk);
        match self.on_read(joined, &head, &op.body, &mut alone, by.terms) {
            Ok(()) => answers.whole(&alone.body, alone.bulk),
            Err(fault) => answers.refused(&self.of_member(fault)),
        }
    }
}

fn refuse(why: &str) -> Fault {
    Fault::new(Code::BadRequest, format!("a batch: {why}"))
}

/// A `BatchReply` that is being written.
struct Answers<'a, 'b> {
    answer: &'a mut Answer<'b>,
    begin: usize,
    flushed_seq: Seq,
    /// mds-B4: an answer did not fit.
    is_full: bool,
}

impl<'a, 'b> Answers<'a, 'b> {
    fn begin(answer: &'a mut Answer<'b>, count: usize, flushed_seq: Seq) -> Answers<'a, 'b> {
        ReplyHead::done(Seq(0), flushed_seq).put(&mut answer.body);
        (count as u32).put(&mut answer.body);
        let begin = answer.body.len();
        Answers { answer, begin, flushed_seq, is_full: false }
    }

    fn done(&mut self, seq: Seq, reply: &[u8], bulk: &[u8]) {
        let head = ReplyHead::done(seq, self.flushed_seq);
        self.add(&[&head.to_bytes(), reply], bulk);
    }

    fn refused(&mut self, fault: &Fault) {
        self.add(&[&ReplyHead::refused(fault, self.flushed_seq).to_bytes()], &[]);
    }

    fn whole(&mut self, reply: &[u8], bulk: &[u8]) {
        self.add(&[reply], bulk);
    }

    fn too_much(&mut self) {
        let fault = Fault::from(Code::TooMuch);
        self.put(&[&ReplyHead::refused(&fault, self.flushed_seq).to_bytes()], &[]);
    }

    fn add(&mut self, parts: &[&[u8]], bulk: &[u8]) {
        let bytes = parts.iter().map(|p| p.len()).sum::<usize>();
        let (body_bytes, bulk_bytes) = (self.answer.body.len(), self.answer.bulk.len());
        self.is_full |=
            body_bytes - self.begin + bytes > ANSWER_BYTES_MAX || bulk_bytes + bulk.len() > types::BULK_MAX;
        match self.is_full {
            true => self.too_much(),
            false => self.put(parts, bulk),
        }
    }

    /// Appends an `OpReply`.
    fn put(&mut self, parts: &[&[u8]], bulk: &[u8]) {
        let Answer { body, bulk: all, .. } = &mut *self.answer;
        (bulk.len() as u32).put(body);
        (parts.iter().map(|p| p.len() as u32).sum::<u32>()).put(body);
        parts.iter().for_each(|p| body.extend_from_slice(p));
        let at = all.len();
        all.space(at + bulk.len())[at..].copy_from_slice(bulk);
    }
}
