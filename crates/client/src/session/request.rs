//! One request to one target, from its first try to its answer: the same slot and sequence through every try.
//!
//! `Pending::run` sends and waits. To keep several targets busy from one thread, `send` several, `land` all, then `run` each.
//!
//! client-C6 here: a thread with requests under way waits for nothing that other threads may hold (a slot, a connection, an attach), since
//! those may wait for something that it holds. A request that cannot be sent at once is sent after all answers are in.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use net::{Call, NetError, Peer, Ticket};
use plan::replay::Kept;
use plan::retry::{Ended, Next, next};
use plan::settle::{At, Mark};
use types::{Buf, Code, Fault, Fid, Seq, SessionId, TargetId};
use wire::batch::{Batch, BatchReply, Op};
use wire::codec::Bytes;
use wire::meta::Inode;
use wire::{Header, Reader, ReplyHead, Request, Wire, decode_reply};

use crate::cache::leased::{Fate, Leased, Leave, OwnChange, Since, Told};
use crate::session::aside::Known;
use crate::session::link::Link;
use crate::session::sent::{Sent, Wish};
use crate::session::slots::{Sendable, Taken};

/// Most requests that one thread has under way; half of a session's slots at a target, so that two threads get along.
pub(crate) const IN_FLIGHT_MAX: usize = 32;

/// A target's answer.
pub(crate) struct Answer<T> {
    pub reply: T,
    /// The entry of the change; seq 0: nothing was changed.
    pub mark: Mark,
    /// What the kernel may cache of it.
    pub leave: Leave,
    /// For answers that are cached by the caller.
    pub told: Told,
    /// client-M2: the mirror's other member gave it.
    pub is_aside: bool,
}

pub(crate) struct Pending<'a, R: Sent> {
    link: &'a Link,
    fid: Fid,
    slot: Option<Taken<'a>>,
    call: Call<'a>,
    /// The first try, while it is under way.
    under_way: Option<(Arc<dyn Peer>, Ticket)>,
    /// Its end, if `land` has received it.
    landed: Option<Result<(Header, Vec<u8>), NetError>>,
    tries: u32,
    /// client-M2: the first try goes to the mirror's other member, and has a deadline of its own.
    aside: Option<(Arc<Known>, Instant)>,
    is_aside: bool,
    /// The target that was asked last.
    asked: TargetId,
    /// The last try may have been carried out.
    is_unknown: bool,
    /// What the answer has that may be cached: a name in a directory, or attributes.
    wish: (Fid, Option<Box<[u8]>>),
    since: Since,
    /// In which it was sent last; at first that in which it was made.
    session: SessionId,
    change: Option<OwnChange<'a>>,
    of: PhantomData<R>,
}

/// Whether a request may wait for something that other threads hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Wait,
    /// client-C6: its thread has requests under way.
    None,
}
impl Patience {
    pub fn of(is_any_under_way: bool) -> Patience {
        if is_any_under_way { Patience::None } else { Patience::Wait }
    }
}

impl<'a, R: Sent> Pending<'a, R> {
    /// Takes a slot if the request changes something. `Ok(None)`: no slot is free now, and `patience` is `None`.
    pub fn new(
        link: &'a Link,
        fid: Fid,
        req: &R,
        bulk: &'a [u8],
        into: &'a mut Buf,
        deadline: Instant,
        patience: Patience,
    ) -> Result<Option<Pending<'a, R>>, Fault> {
        let slot = match (R::MUTATES, patience) {
            (false, _) => None,
            (true, Patience::Wait) => {
                link.make_room(deadline)?;
                Some(link.slots.take(deadline).ok_or_else(|| link.timeout("no request slot came free"))?)
            }
            // `make_room` would wait. Without it the request would pass a stuck one (client-C3), and the bound for replay (plan-P3).
            (true, Patience::None) if !link.has_room() => return Ok(None),
            (true, Patience::None) => match link.slots.try_take() {
                None => return Ok(None),
                slot => slot,
            },
        };
        assert_eq!(
            slot.is_some(),
            R::MUTATES,
            "client-C3: exactly the requests that change something hold a slot"
        );
        let (number, sequence) = slot.as_ref().map_or((0, 0), |s| (s.slot, s.sequence));
        let leased = link.leased().filter(|_| link.is_mdt);
        // client-LE1: stamped and noted before it leaves.
        let change = leased.filter(|_| R::MUTATES).map(|leased| leased.change(req.touches(fid)));
        let since = leased.map_or(Since::default(), Leased::since);
        // A request that was given up may be carried out at any time, and its change is noted by no one.
        let granted = leased.filter(|_| !link.slots.has_stuck());
        let (flags, wish) = match (req.wish(), granted) {
            (Wish::Name(dir, name), Some(leased)) => (leased.flags_for(dir), (dir, Some(name.into()))),
            (Wish::Names(dir), Some(leased)) => (leased.flags_for(dir), (dir, None)),
            (Wish::Attr(fid), Some(leased)) => (leased.flags_for_attr(fid), (fid, None)),
            (Wish::Nothing, _) | (_, None) => (0, (Fid(0), None)),
        };
        let head = Header { call: R::CALL, flags, slot: number, sequence, ..link.header() };
        let call = Call { head, body: req.to_bytes(), bulk, into, back: req.bulk_back() as usize, deadline };
        Ok(Some(Pending {
            link,
            fid,
            slot,
            call,
            under_way: None,
            landed: None,
            tries: 0,
            aside: None,
            is_aside: false,
            asked: link.target(),
            is_unknown: false,
            wish,
            since,
            session: link.session(),
            change,
            of: PhantomData,
        }))
    }

    /// client-M2: the first try goes to the mirror's other member.
    pub fn go_aside(&mut self, known: Arc<Known>) {
        known.address(&mut self.call.head);
        let whole = self.call.deadline;
        self.call.deadline = self.link.aside_deadline(whole);
        self.aside = Some((known, whole));
    }

    /// The end of the try at the other member; `None`: the primary is to be asked.
    fn land_aside(&mut self) -> Option<(Header, Vec<u8>)> {
        let (known, deadline) = self.aside.take()?;
        let landed = match self.landed.take() {
            Some(landed) => landed,
            None => known.peer.call(&mut self.call),
        };
        let has_reply = |body: &[u8]| matches!(decode_reply::<R::Reply>(body), Ok((_, Ok(_))));
        if let Ok((head, body)) = landed
            && has_reply(&body)
        {
            self.is_aside = true;
            self.link.aside.has_answered();
            return Some((head, body));
        }
        self.link.aside.has_failed(&known);
        self.call.deadline = deadline;
        self.call.into.clear();
        let Header { target, epoch, .. } = self.link.header();
        (self.call.head.target, self.call.head.epoch) = (target, epoch);
        None
    }

    /// Starts the first try, if `patience` allows it. `run` has its outcome. True: it is under way.
    pub fn send(&mut self, patience: Patience) -> bool {
        // `run` meets a failure again, and handles it.
        let sent = match patience {
            _ if self.aside.is_some() => self.send_aside(patience),
            Patience::Wait => self.aim().ok().and_then(|p| Some((p.send(&mut self.call).ok()?, p))),
            Patience::None if !self.link.is_ready() => None,
            Patience::None => self.aim().ok().and_then(|p| Some((p.send_more(&mut self.call).ok()?, p))),
        };
        self.under_way = sent.map(|(ticket, peer)| (peer, ticket));
        self.under_way.is_some()
    }

    fn send_aside(&mut self, patience: Patience) -> Option<(Ticket, Arc<dyn Peer>)> {
        let peer = self.aside.as_ref()?.0.peer.clone();
        let sent = match patience {
            Patience::Wait => peer.send(&mut self.call),
            Patience::None => peer.send_more(&mut self.call),
        };
        Some((sent.ok()?, peer))
    }

    pub fn body_bytes(&self) -> usize {
        self.call.body.len()
    }

    /// Sends the first try of all of them in one frame. Each one's `run` has its outcome. Sends nothing if the target is not attached: a thread
    /// with several slots does not wait for that (client-C6).
    pub fn send_together(pending: &mut [Pending<'a, R>], deadline: Instant) {
        let Some(link) = pending.first().map(|p| p.link).filter(|link| link.is_ready()) else { return };
        let mut peer = None;
        for p in pending.iter_mut() {
            let Ok(aimed) = p.aim() else { return };
            peer = Some(aimed);
        }
        let Some(peer) = peer else { return };
        let op = |p: &Pending<'a, R>| Op {
            call: R::CALL,
            slot: p.call.head.slot,
            sequence: p.call.head.sequence,
            bulk_len: p.call.bulk.len() as u32,
            body: Bytes(p.call.body.clone()),
        };
        let body = Batch { ops: pending.iter().map(op).collect() }.to_bytes();
        let bulk: Vec<u8> = pending.iter().flat_map(|p| p.call.bulk).copied().collect();
        let Header { session, incarnation, .. } = pending[0].call.head;
        // Requests of an earlier attach would be refused.
        if pending.iter().any(|p| (p.call.head.session, p.call.head.incarnation) != (session, incarnation)) {
            return;
        }
        let head = Header { call: Batch::CALL, session, incarnation, ..link.header() };
        let back = pending.iter().map(|p| p.call.back).sum();
        let mut into = Buf::new();
        match peer.call(&mut Call { head, body, bulk: &bulk, into: &mut into, back, deadline }) {
            Ok((head, body)) => {
                let answers = decode_reply::<BatchReply>(&body).map(|(_, reply)| reply);
                match answers {
                    Ok(Ok(BatchReply { answers })) if answers.len() == pending.len() => {
                        let mut rest = &into[..];
                        for (p, answer) in pending.iter_mut().zip(answers) {
                            let (own, others) = rest.split_at((answer.bulk_len as usize).min(rest.len()));
                            p.land_with(head, answer.body.0, own);
                            rest = others;
                        }
                    }
                    // mds-B1: no operation was carried out. Each request is sent by itself then.
                    Ok(Err(_)) => {}
                    Ok(Ok(_)) | Err(_) => pending.iter_mut().for_each(|p| {
                        let (peer, why) = (link.describe(), "its answer to a batch cannot be read".into());
                        p.landed = Some(Err(NetError::NoAnswer { peer, why }));
                    }),
                }
            }
            Err(e) => pending.iter_mut().for_each(|p| p.landed = Some(Err(again(&e)))),
        }
    }

    /// Takes this request's part of the answer to a batch.
    fn land_with(&mut self, head: Header, body: Vec<u8>, bulk: &[u8]) {
        let code = ReplyHead::get(&mut Reader::new(&body)).map(|said| said.code);
        if code == Ok(Code::TooMuch as u16) {
            // client-C3: it may have been carried out.
            self.is_unknown = self.slot.is_some();
            return;
        }
        self.call.into.set(bulk);
        self.landed = Some(Ok((head, body)));
    }

    /// Waits for the answer to `send`, and for nothing else. Afterwards it holds no connection. `run` handles the outcome.
    pub fn land(&mut self) {
        if let Some((peer, ticket)) = self.under_way.take() {
            self.landed = Some(peer.receive(ticket, &mut self.call));
        }
    }

    /// Sends until there is an answer or the deadline has passed.
    pub fn run(mut self) -> Result<Answer<R::Reply>, Fault> {
        let mut reattached = 0;
        loop {
            self.tries += 1;
            let (ended, fault) = match self.attempt() {
                Ok((head, body)) => match self.read_answer(head, body)? {
                    Read::Done(answer) => return Ok(answer),
                    Read::Repeat => continue,
                    Read::Refused(fault) => (Ended::Refused(fault.code), fault),
                },
                Err(Miss::Link(fault)) => return Err(self.give_up(fault)),
                // client-KY2: programs are told at once. A new certificate of this node counts from its next call on.
                Err(Miss::Net(e)) if e.is_revoked() => {
                    self.link.lost_contact();
                    self.is_unknown |= matches!(e, NetError::NoAnswer { .. });
                    let fault = Fault::new(Code::Access, format!("{}: {e}", self.link.describe()));
                    return Err(self.give_up(fault));
                }
                Err(Miss::Net(e)) => {
                    self.link.lost_contact();
                    self.is_unknown |= matches!(e, NetError::NoAnswer { .. });
                    let ended = if self.is_unknown { Ended::NoAnswer } else { Ended::NotSent };
                    (ended, Fault::new(Code::Timeout, format!("{}: {e}", self.link.describe())))
                }
            };
            let asked = std::mem::replace(&mut self.asked, self.link.target());
            if self.asked != asked {
                // Another member serves now: the pauses begin anew.
                self.tries = 1;
            }
            match next(ended, self.tries) {
                Next::Again { after } if self.link.wait(after, self.call.deadline) => {}
                Next::Reattach if self.link.wait(std::time::Duration::ZERO, self.call.deadline) => {
                    if ended == Ended::Refused(Code::Moved) {
                        self.link.want_map();
                    }
                    self.link.detached(self.call.head.incarnation);
                    reattached += 1;
                    // A target that refuses right after each attach is asked with pauses.
                    if reattached > 3 && !self.link.wait(plan::retry::backoff(reattached), self.call.deadline)
                    {
                        return Err(self.give_up(fault));
                    }
                }
                Next::Again { .. } | Next::Reattach => {
                    let fault = Fault::new(Code::Timeout, format!("gave up: {}", fault.detail));
                    return Err(self.give_up(fault));
                }
                Next::Refresh | Next::GiveUp => {
                    if is_definite(fault.code) && !self.is_unknown {
                        self.change.take().into_iter().for_each(OwnChange::did_nothing);
                    }
                    return Err(fault);
                }
            }
        }
    }

    /// One try, or the end of the one that `send` began.
    fn attempt(&mut self) -> Result<(Header, Vec<u8>), Miss> {
        self.land();
        if let Some(answer) = self.land_aside() {
            return Ok(answer);
        }
        if let Some(ended) = self.landed.take() {
            return ended.map_err(Miss::Net);
        }
        let peer = self.aim().map_err(Miss::Link)?;
        peer.call(&mut self.call).map_err(Miss::Net)
    }

    /// Attaches if needed and stamps session and incarnation.
    fn aim(&mut self) -> Result<Arc<dyn Peer>, Fault> {
        let (peer, incarnation) = self.link.ready(self.call.deadline)?;
        let session = self.link.session();
        // plan-Y1: the slot with the first answer went with the session.
        let is_of_session = R::IS_LATE || R::IS_ONCE && self.is_unknown;
        if is_of_session && session != self.session {
            return Err(Fault::new(Code::NoSession, "the session in which this change was made was ended"));
        }
        (self.call.head.incarnation, self.call.head.session, self.session) = (incarnation, session, session);
        Ok(peer)
    }

    fn read_answer(&mut self, head: Header, body: Vec<u8>) -> Result<Read<R::Reply>, Fault> {
        let (reply_head, reply) = decode_reply::<R::Reply>(&body).map_err(|why| {
            Fault::new(
                Code::Io,
                format!("{}: the answer to call {:#06x}: {why}", self.link.describe(), R::CALL),
            )
        })?;
        self.link.note(&head, &reply_head);
        // A refusal before the target has looked at the slot says nothing of the tries before.
        self.is_unknown &= matches!(&reply, Err(fault) if is_before_slot(fault.code));
        let reply = match reply {
            Ok(reply) => reply,
            Err(fault) => {
                if fault.code == Code::NotFound && !R::MUTATES {
                    self.keep_name(&self.told(head.flags), None);
                }
                return Ok(Read::Refused(fault));
            }
        };
        if !self.keep(&head, &reply_head, &reply) {
            return Ok(Read::Repeat);
        }
        if head.incarnation != self.call.head.incarnation {
            self.link.detached(self.call.head.incarnation);
        }
        let mark = Mark { mirror: self.link.mirror, at: at_of(&head), seq: reply_head.seq };
        let told = self.told(head.flags);
        let leave = match self.change.take() {
            Some(change) => change.end((head.flags, told.me), self.fate(&reply, reply_head.seq)),
            None => self.keep_name(&told, R::named(&reply)),
        };
        Ok(Read::Done(Answer { reply, mark, leave, told, is_aside: self.is_aside }))
    }

    fn told(&self, flags: u16) -> Told {
        Told { since: self.since, flags, me: self.link.session() }
    }

    /// The answer to a lookup.
    fn keep_name(&self, told: &Told, inode: Option<&Inode>) -> Leave {
        // A directory in which changes wait is not as the MDT has it.
        if inode.is_some_and(|inode| self.link.has_changes_in(inode.attr.fid)) {
            return Leave::default();
        }
        match (self.link.leased(), &self.wish) {
            (Some(leased), (dir, Some(name))) => leased.keep(told, *dir, name, inode),
            _ => Leave::default(),
        }
    }

    fn fate<'r>(&'r self, reply: &'r R::Reply, seq: Seq) -> Fate<'r> {
        match (R::named(reply), &self.wish.1) {
            // Nothing was changed, or it was the earlier answer of a repeat.
            _ if seq == Seq(0) => Fate::Nothing,
            (Some(inode), Some(name)) => Fate::Made(name, inode),
            _ if R::REMOVES => Fate::Removed,
            _ => Fate::Other,
        }
    }

    /// Retains the request until it is flushed. False: the target has restarted since its answer. Then the request is sent again, to find out
    /// whether the target still has the change.
    fn keep(&mut self, head: &Header, reply_head: &ReplyHead, reply: &R::Reply) -> bool {
        let Some(slot) = self.slot.as_ref().filter(|_| reply_head.seq.0 > 0 && self.link.keeps()) else {
            return true;
        };
        // Copied before the lock is taken, since other threads wait for it.
        let bulk = self.call.bulk.to_vec();
        let mut retained = self.link.retained.lock();
        if retained.at != at_of(head) && retained.at != At::default() {
            return false;
        }
        if reply_head.seq <= self.link.flushed() {
            return true;
        }
        let mut body = std::mem::take(&mut self.call.body);
        R::amend(&mut body, reply);
        let what = Sendable { head: self.call.head, body, bulk, fid: self.fid };
        let bytes = what.body.len() + what.bulk.len();
        retained.kept.keep(Kept {
            seq: reply_head.seq,
            slot: slot.slot,
            sequence: slot.sequence,
            bytes,
            what,
        });
        true
    }

    /// client-C3: the slot of a request that may have happened stays stuck with it.
    fn give_up(self, fault: Fault) -> Fault {
        if let Some(slot) = self.slot.filter(|_| self.is_unknown) {
            let body = self.call.body;
            slot.stick(Sendable { head: self.call.head, body, bulk: self.call.bulk.to_vec(), fid: self.fid });
            self.link.leased().filter(|_| self.link.is_mdt).into_iter().for_each(Leased::void);
        }
        fault
    }
}

/// The life of the target that gave this answer.
pub(crate) fn at_of(answer: &Header) -> At {
    At { target: answer.target, incarnation: answer.incarnation }
}

/// A copy of the failure, for each request of a batch.
fn again(e: &NetError) -> NetError {
    let copy = |peer: &String, why: &String| (peer.clone(), why.clone());
    match e {
        NetError::NotSent { peer, why } => {
            let (peer, why) = copy(peer, why);
            NetError::NotSent { peer, why }
        }
        NetError::NoAnswer { peer, why } => {
            let (peer, why) = copy(peer, why);
            NetError::NoAnswer { peer, why }
        }
    }
}

enum Miss {
    /// The target cannot be attached in time.
    Link(Fault),
    Net(NetError),
}

enum Read<T> {
    Done(Answer<T>),
    Repeat,
    Refused(Fault),
}

/// Refusals of a server that does not serve now, or does not know the session.
fn is_before_slot(code: Code) -> bool {
    matches!(code, Code::NotReady | Code::Moved | Code::NoSession)
}

/// Is it certain that what was refused with this code did not happen, and is not going to be tried again?
pub(crate) fn is_definite(code: Code) -> bool {
    !matches!(code, Code::Timeout | Code::Fenced)
}
