//! Requests that are sent again: after a restart of the target, and those with an unknown outcome.

use super::renew::Renewed;
use super::*;

impl Link {
    pub(super) fn resend_stuck(&self, mut stuck: Sendable, deadline: Instant) -> Result<(), Fault> {
        let (mut tries, mut renewed) = (0, Renewed::default());
        let fault = loop {
            tries += 1;
            let (_, incarnation) = match self.ready(deadline) {
                Ok(ready) => ready,
                Err(fault) => break fault,
            };
            if stuck.head.session != self.session() {
                // Its session has ended. The target never carries it out, so it blocks no later request.
                self.id.losses.add(stuck.fid, "the session of a request that was given up has ended");
                self.slots.unstick(stuck.head.slot);
                return Ok(());
            }
            // An OST may never have carried it out, so it waits for range locks like a new request (oss-RL2).
            let flag = if self.is_mdt { Flags::REPLAY } else { 0 };
            match self.resend(&mut stuck, (incarnation, flag), &mut renewed, deadline) {
                Ok(answered) => {
                    self.slots.unstick(stuck.head.slot);
                    // Its touches were not noted at this time.
                    self.id.leased.void();
                    if let Some(done) = answered {
                        self.keep_again(done, stuck);
                    }
                    return Ok(());
                }
                // The target has restarted. Attach, then send it again.
                Err(fault) if fault.code == Code::Moved => {
                    self.detached(incarnation);
                    if !self.wait(backoff(tries), deadline) {
                        break fault;
                    }
                }
                Err(fault) => break fault,
            }
        };
        self.slots.put_stuck_back(stuck);
        Err(self.timeout(&fault.detail))
    }

    fn keep_again(&self, Resent { seq, reply }: Resent, mut what: Sendable) {
        self.acknowledged.fetch_max(seq.0, Ordering::AcqRel);
        if seq.0 > 0 && self.keeps() && seq > self.flushed() {
            // The first answer was never read. The file that the request made has its fid, and other clients may know it by now.
            amend_sent(what.head.call, &mut what.body, &reply);
            let (slot, sequence) = (what.head.slot, what.head.sequence);
            let bytes = what.body.len() + what.bulk.len();
            self.retained.lock().kept.keep(Kept { seq, slot, sequence, bytes, what });
        }
    }

    /// Sends a request again under its own slot and sequence, in the present session and incarnation, with this flag. `None`: the target refused it, so it was
    /// not and will not be carried out.
    fn resend(
        &self,
        request: &mut Sendable,
        (incarnation, flag): (Incarnation, u16),
        renewed: &mut Renewed,
        deadline: Instant,
    ) -> Result<Option<Resent>, Fault> {
        renewed.apply(request);
        let (target, peer) = self.find_peer(deadline)?;
        let mut into = Buf::new();
        let mut tries = 0;
        loop {
            tries += 1;
            let head = Header { flags: request.head.flags | flag, incarnation, ..request.head };
            let body = request.body.clone();
            let mut call = net::Call { head, body, bulk: &request.bulk, into: &mut into, back: 0, deadline };
            let fault = match peer.call(&mut call) {
                Ok((_, body)) => match reply_of(&body) {
                    Ok((reply, rest)) => match Code::from_u16(reply.code) {
                        Code::Ok => return Ok(Some(Resent { seq: reply.seq, reply: rest.to_vec() })),
                        Code::NotReady => self.timeout(&reply.detail),
                        Code::Moved | Code::NoSession => {
                            return Err(Fault::new(Code::Moved, reply.detail));
                        }
                        // client-KY4
                        Code::Fenced
                            if self.renew(request, flag & Flags::REPLAY != 0, renewed, deadline)? =>
                        {
                            continue;
                        }
                        code => {
                            tracing::warn!("{} refused a replay: {code:?} {}", self.describe(), reply.detail);
                            return Ok(None);
                        }
                    },
                    Err(why) => self.timeout(&format!("the answer to a replay: {why}")),
                },
                Err(e) => self.timeout(&e.to_string()),
            };
            if !self.wait(backoff(tries), deadline) {
                return Err(fault);
            }
            // The former primary may stand still as long as its host does.
            if self.target() != target {
                return Err(Fault::new(Code::Moved, "another member of its mirror serves now"));
            }
        }
    }

    /// Takes the seqs of a new incarnation, which may be lower than those of the last one. A seq that is too high would make new entries
    /// count as flushed.
    pub(super) fn begin_anew(&self, reply: &AttachReply) {
        let flushed = self.flushed.swap(reply.flushed_seq.0, Ordering::AcqRel);
        self.acknowledged.store(reply.last_seq.0, Ordering::Release);
        if reply.last_seq.0 >= flushed {
            return;
        }
        let (who, have) = (self.describe(), reply.last_seq);
        let why = format!(
            "{who} came back with entries up to {have}; it had said that those up to {flushed} were flushed"
        );
        tracing::error!("{why}: is its medium sound?");
        for fid in self.retained.lock().kept.take_released_above(have) {
            self.id.losses.add(fid, &why);
        }
    }

    /// client-H6: waits until this client may replay lost entries from `next` on; with `ALL`, until it may send new requests. Returns the entry
    /// below which it may go on.
    pub(super) fn wait_turn(
        &self,
        incarnation: Incarnation,
        next: Seq,
        deadline: Instant,
    ) -> Result<Seq, Attempt> {
        if self.id.observer {
            return Ok(ALL);
        }
        let until = (Instant::now() + TURN_WAIT).min(deadline);
        let at = CaughtUp { mirror: self.mirror, incarnation, next };
        if !self.is_mdt {
            self.id.sharing.note_mirror(at.clone());
        }
        while self.id.sharing.is_shared() {
            let given = self.ask_turn(&at, deadline)?;
            if given == ALL || given > next {
                return Ok(given);
            }
            if !self.wait(TURN_PAUSE, until) {
                let who = self.describe();
                return Err(Attempt::Again(Fault::new(
                    Code::NotReady,
                    format!(
                        "{who} restarted, and other clients have not sent again yet what it lost of theirs"
                    ),
                )));
            }
        }
        Ok(ALL)
    }

    fn ask_turn(&self, at: &CaughtUp, deadline: Instant) -> Result<Seq, Attempt> {
        let target = if self.is_mdt { self.target() } else { TargetId(self.id.mdt.load(Ordering::Acquire)) };
        let peer = self.fabric.peer(target).map_err(|e| Attempt::Again(self.unreachable(&e)))?;
        let head = Header { session: self.session(), target, ..self.header() };
        match rpc::call(&*peer, head, &CatchUp { at: at.clone() }, &[], &mut Buf::new(), deadline) {
            Ok((_, _, Ok(reply))) => Ok(reply.until),
            Ok((_, _, Err(fault))) => Err(Attempt::Again(fault)),
            Err(e) => Err(Attempt::Again(self.unreachable(&e))),
        }
    }

    /// plan-P1, plan-P2: replays requests that the restarted target lost, in acknowledged order, under their old slots and sequences.
    pub(super) fn replay(
        &self,
        unsent: &mut VecDeque<Kept<Sendable>>,
        reply: &AttachReply,
        at: At,
        deadline: Instant,
    ) -> Result<(), Attempt> {
        let incarnation = at.incarnation;
        // 1. Requests that were replayed to an earlier incarnation come before those that were not replayed yet.
        let mut lost = {
            let mut retained = self.retained.lock();
            // From here on an answer of the old incarnation is not retained. Its request is sent again.
            retained.at = at;
            retained.kept.take_lost(&reply.slots)
        };
        lost.extend(unsent.drain(..));
        self.id.gone.sift(&mut lost, |kept| &kept.what);
        if !lost.is_empty() {
            tracing::warn!("{} restarted; sending {} requests again", self.describe(), lost.len());
        }
        unsent.extend(lost);

        // 2. Send them one by one. A request that this incarnation carried out already is answered from its slot.
        let (mut until, mut told, mut renewed) = (Seq(0), Instant::now(), Renewed::default());
        while let Some(kept) = unsent.front_mut() {
            // mds-X6: entries of other sessions may come first. mds-X7: a client that reports no progress counts as gone.
            if kept.seq >= until || told.elapsed() >= TELL {
                until = self.wait_turn(incarnation, kept.seq, deadline)?;
                told = Instant::now();
            }
            let answered =
                self.resend(&mut kept.what, (incarnation, Flags::REPLAY), &mut renewed, deadline)?;
            let Some(kept) = unsent.pop_front() else { break };
            match answered {
                Some(done) => self.keep_again(done, kept.what),
                None => {
                    let why = format!("{} refused to take it again after its restart", self.describe());
                    kept.what.concerns().for_each(|fid| self.id.losses.add(fid, &why));
                }
            }
        }
        Ok(())
    }

    pub(super) fn lose_session(&self, ended: SessionId, unsent: &mut VecDeque<Kept<Sendable>>) {
        let why = format!("session {ended} was ended by {}", self.describe());
        self.lose_requests(unsent, &why);
        if self.is_mdt {
            ship::lose_all(&self.id, &why);
            self.id.locks.lose(&self.id.losses, &why);
        }
    }

    fn lose_requests(&self, unsent: &mut VecDeque<Kept<Sendable>>, why: &str) {
        for request in self.drop_requests(unsent) {
            request.concerns().for_each(|fid| self.id.losses.add(fid, why));
        }
    }

    /// All requests that are retained, and those that wait for an answer which does not come.
    fn drop_requests(&self, unsent: &mut VecDeque<Kept<Sendable>>) -> Vec<Sendable> {
        let kept = self.retained.lock().kept.take_all();
        let mut all: Vec<Sendable> = kept.into_iter().chain(unsent.drain(..)).map(|kept| kept.what).collect();
        all.extend(self.slots.drop_stuck());
        all
    }

    /// The target was removed from the cluster: what it had not flushed is lost, if no drain has moved it. False: that was known.
    pub fn leave(&self) -> bool {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return false;
        }
        let why = self.removed().detail;
        for request in self.drop_requests(&mut VecDeque::new()) {
            // client-MG4.
            request.concerns().for_each(|fid| self.id.doubts.add(fid, self.mirror, &why));
        }
        self.id.alive_osts.ring();
        // Calls that wait for the target end now.
        self.id.sleepers.1.notify_all();
        self.slots.wake_all();
        true
    }

    pub(super) fn refuse_left(&self) -> Result<(), Fault> {
        match self.has_left() {
            true => Err(self.removed()),
            false => Ok(()),
        }
    }

    fn removed(&self) -> Fault {
        Fault::new(
            Code::Io,
            format!("{} was removed from the cluster, with the bytes there", self.describe()),
        )
    }
}

/// The answer to a request that was sent again.
struct Resent {
    seq: Seq,
    /// The reply's body without its head.
    reply: Vec<u8>,
}

fn reply_of(body: &[u8]) -> Result<(ReplyHead, &[u8]), Malformed> {
    let mut r = Reader::new(body);
    let head = ReplyHead::get(&mut r)?;
    Ok((head, r.take(r.remaining())?))
}
