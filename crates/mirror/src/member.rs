//! One member of a mirror: its role, and its part in every exchange. The daemon gives it events and carries out effects.
//!
//! A life of a pair, from both in sync to both in sync:
//!
//! ```text
//! 1 contact     Hello both ways; the primary says Start, ships what the backup lacks, and both ask for promises.
//! 2 service     each serves while it holds the other's promise.
//! 3 lost        a member that holds no promise any more flushes, records that it asks, and asks the MGS to be alone.
//! 4 admitted    the map has a new epoch with one member in sync. It waits until its own promise is over, and serves alone.
//! 5 return      Hello, Start: the other cuts its log after what both share, and receives the rest.
//! 6 join        the primary is bound to both; the other flushes and is whole; the MGS declares it in sync.
//! ```
//!
//! mirror-E1: a member that has asked to be alone is silent under that epoch, in its next lives too: it serves, acknowledges, promises
//!     nothing. The MGS may carry the asking out at any later time, and the member must then have everything that the mirror has answered.
//! mirror-E2: a member flushes its log before it asks. It may lose power before the answer.
//! mirror-E3: a member that lost power is not whole: it serves, acknowledges and promises nothing as a member in sync, until it is alone
//!     by the map or has joined again.
//! mirror-E4: a lone member that starts asks for a new epoch, so that a line is never continued behind a lost tail.
//! mirror-E5: a follower whose process stops does not ask to be alone when its primary leaves, and returns that one's promise. So a stop of both
//!     leaves both in sync, and either has everything afterwards. A primary whose process stops still asks: its last requests wait for it.
//! mirror-J2: before the primary asks for the other to be declared in sync, it holds the other's promise, promises in turn, and answers only
//!     what both have. It goes back to being alone by a new epoch only, as the request may be carried out at any later time.
//! mirror-J3: the other flushes what it copied before it says that it is whole.
//! mirror-J4: a primary has the other cut its log only if it is whole, not silent, and, where it is alone by its map, has heard of that epoch
//!     in this life. After a loss of power the map may have the other in sync without either knowing, and the other's log is the better one.
//! mirror-J5: a receiver begins one stream for two lives and an epoch, by a `Start` that answers a greeting to that very life of the primary.
//!     A greeting to an earlier one may be old, and the log may have grown since.
//! mirror-J6: a stream begins behind an entry that both logs have, if the primary's log still has the next one. Otherwise the other is filled.

use ::types::{Epoch, Incarnation};

use crate::decide::Request;
use crate::history::History;
use crate::letter::{Effect, Letter, Note};
use crate::order::{self, Arrival, Copies, arrival};
use crate::planted::{Rule, kept};
use crate::promise::{Given, Held, PROMISE_MS, Token};
use crate::reads::{self, Read};
use crate::resync::{Way, way};
use crate::types::{Ending, Ends, Line, MemberId, Members, MirrorSeq, Position, Role, Standing};

/// The other member's present life, as far as its letters tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    life: Incarnation,
    /// It knows this life: its letters name it.
    knows_me: bool,
    is_whole: bool,
    is_leaving: bool,
    /// At a primary: the peer's log ends elsewhere than in this one. A member in sync is not so.
    is_apart: bool,
    is_filling: bool,
    /// At a primary: it is known which entries the peer has.
    is_matched: bool,
    acked: MirrorSeq,
    flushed: MirrorSeq,
    /// At a receiver: entries follow one another since a `Start`.
    is_streaming: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    me: MemberId,
    life: Incarnation,
    standing: Standing,
    history: History,
    flushed: MirrorSeq,
    pub(crate) given: Given,
    pub(crate) held: Held,
    /// The member waits at least so long for contact before it asks to be alone.
    pub(crate) patient_until_ms: u64,
    /// mirror-E4: the map's epoch has been heard of in this life.
    is_confirmed: bool,
    is_leaving: bool,
    /// mirror-E5.
    pub(crate) is_stopping: bool,
    /// mirror-J2: alone by the map, and bound to both.
    is_joint: bool,
    /// mirror-F5: the end of the history that this member took over to be filled.
    filled_from: MirrorSeq,
    committed: MirrorSeq,
    /// The oldest entry that the log still has.
    log_first: MirrorSeq,
    peer: Option<Peer>,
}

impl Member {
    /// A start. `history` is that of the recovered log, which is flushed. `life` is greater than that of any earlier start.
    pub fn start(
        me: MemberId,
        life: Incarnation,
        (standing, history): (Standing, History),
        ending: Ending,
        now_ms: u64,
        out: &mut Vec<Effect>,
    ) -> Member {
        let mut member = Member {
            me,
            life,
            standing,
            flushed: history.end().seq,
            history,
            given: Given::at_start(ending == Ending::Clean { is_free: true }, now_ms),
            held: Held::nothing(life),
            patient_until_ms: now_ms + PROMISE_MS,
            is_confirmed: false,
            is_leaving: false,
            is_stopping: false,
            is_joint: false,
            filled_from: MirrorSeq(0),
            committed: MirrorSeq(0),
            log_first: MirrorSeq(1),
            peer: None,
        };
        // mirror-E3.
        if ending == Ending::PowerLost && kept(Rule::PowerLossTold) {
            member.standing.is_whole = false;
        }
        if !kept(Rule::AskIsRecorded) {
            member.standing.asked = None;
        }
        out.push(Effect::Record);
        out.push(member.hello());
        member
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }
    pub fn history(&self) -> &History {
        &self.history
    }
    pub fn map(&self) -> &Members {
        &self.standing.map
    }
    pub fn life(&self) -> Incarnation {
        self.life
    }

    /// The role at this moment. It is asked for each request, after the request was received and when its state is looked at.
    pub fn role(&self, now_ms: u64) -> Role {
        let map = self.map();
        if self.is_silent() {
            return Role::Stopped;
        }
        if !map.is_in_sync(self.me) {
            return if self.is_streaming() { Role::Resyncing } else { Role::Stopped };
        }
        let is_ready = self.standing.is_whole && self.peer.as_ref().is_none_or(|peer| !peer.is_leaving);
        if self.is_alone() {
            // mirror-P2.
            let may_act = self.is_confirmed && self.standing.is_whole && self.given.is_over(now_ms);
            return if may_act { Role::Alone } else { Role::Stopped };
        }
        if !is_ready || self.has_lost_peer() || (!self.held.is_held(now_ms) && kept(Rule::ServeUnderPromise))
        {
            return Role::Stopped;
        }
        if map.primary == self.me { Role::Primary } else { Role::Backup }
    }

    /// mirror-O1, step 1: the position of the next entry, which takes `count` sequences and is named by the last one, behind the position
    /// before it. The caller appends it to its log, then sends `entry`.
    pub fn order(&mut self, now_ms: u64, count: u32) -> Option<(Position, Position)> {
        assert!(count > 0, "an entry takes a sequence");
        if !self.role(now_ms).orders() {
            return None;
        }
        let before = self.history.end();
        let seq = MirrorSeq(before.seq.0 + u64::from(count));
        let at = Position { line: Line::of(self.map().epoch), seq };
        self.history.append(at);
        Some((before, at))
    }

    /// The letter for an entry of the log, by its first and its last sequence.
    pub fn entry(&self, first: MirrorSeq, last: MirrorSeq) -> Letter {
        let before = self.history.position(MirrorSeq(first.0 - 1));
        self.letter(Note::Entry { before, at: self.history.position(last) })
    }

    /// The time until which this member orders if no event comes. 0: it does not order.
    pub fn serves_until_ms(&self, now_ms: u64) -> u64 {
        match self.role(now_ms) {
            Role::Alone => u64::MAX,
            Role::Primary => self.held.until_ms,
            Role::Backup | Role::Resyncing | Role::Stopped => 0,
        }
    }

    /// The same for reads, which a backup serves as well.
    pub fn reads_until_ms(&self, now_ms: u64) -> u64 {
        match self.role(now_ms) {
            Role::Alone => u64::MAX,
            Role::Primary | Role::Backup => self.held.until_ms,
            Role::Resyncing | Role::Stopped => 0,
        }
    }

    /// The log was trimmed: this is the oldest entry that it still has.
    pub fn on_trimmed(&mut self, first: MirrorSeq) {
        self.log_first = first;
    }

    /// How many members must have an entry before it is answered.
    pub fn copies(&self) -> Copies {
        if self.is_alone() { Copies::One } else { Copies::Both }
    }

    /// The other member's present life.
    pub fn peer_life(&self) -> Option<Incarnation> {
        self.peer.as_ref().map(|peer| peer.life)
    }

    /// At a primary: the other member takes entries of this life, and has all up to here. `None`: it is not in contact, or leaves.
    pub fn peer_acked(&self) -> Option<MirrorSeq> {
        let takes = |peer: &&Peer| peer.is_matched && !peer.is_leaving;
        self.peer.as_ref().filter(takes).map(|peer| peer.acked)
    }

    /// The last entry that this member has made durable.
    pub fn own_flushed(&self) -> MirrorSeq {
        self.flushed
    }

    /// The last entry that the other member has made durable.
    pub fn peer_flushed(&self) -> MirrorSeq {
        self.peer.as_ref().map_or(MirrorSeq(0), |peer| peer.flushed)
    }

    /// At a receiver: entries follow one another since a `Start`.
    pub fn is_streaming(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_streaming)
    }

    /// True if the promise that this member gave is over: a stop at this moment binds its next life to nothing.
    pub fn is_free(&self, now_ms: u64) -> bool {
        self.given.is_over(now_ms)
    }

    /// At a receiver: the acknowledgement of what the log has, for an entry that cannot be appended yet.
    pub fn acknowledge_again(&self, out: &mut Vec<Effect>) {
        if self.is_streaming() && !self.is_silent() {
            self.acknowledge(out);
        }
    }

    /// mirror-O2: entries up to here may be applied and answered.
    pub fn answerable(&self, now_ms: u64) -> MirrorSeq {
        match self.copies() {
            Copies::One if self.role(now_ms) != Role::Alone => self.committed,
            copies => self.committed.max(order::answerable(copies, self.history.end().seq, self.committed)),
        }
    }

    /// A read of an object whose last entry in this log is `last`.
    pub fn read(&self, last: MirrorSeq, now_ms: u64) -> Read {
        reads::read(self.role(now_ms), last, self.answerable(now_ms))
    }

    /// mirror-O4: what answers may report as flushed; nothing if the member does not order.
    pub fn flushed(&self, now_ms: u64) -> MirrorSeq {
        if !self.role(now_ms).orders() {
            return MirrorSeq(0);
        }
        let other = self.peer.as_ref().map_or(MirrorSeq(0), |peer| peer.flushed);
        order::flushed(self.copies(), self.flushed, other)
    }

    /// A flush of the log has ended that began when the log ended here.
    pub fn on_flushed(&mut self, up_to: MirrorSeq, out: &mut Vec<Effect>) {
        self.flushed = self.flushed.max(up_to.min(self.history.end().seq));
        if self.is_streaming() {
            self.acknowledge(out);
        }
    }

    /// To be called every `ASK_MS`.
    pub fn on_tick(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        // 1. Contact.
        let is_known = self.peer.as_ref().is_some_and(|peer| peer.knows_me);
        if !is_known || (self.map().primary != self.me && !self.is_streaming()) {
            out.push(self.hello());
        }
        // 2. The promise, and entries that have not arrived.
        if self.needs_promise() {
            self.ask_promise(now_ms, out);
        }
        if let Some(peer) = &self.peer
            && self.orders_by_map()
            && peer.acked < self.history.end().seq
        {
            // The log may have been trimmed past the other member's end while it was behind.
            // A member that may be in sync by now is not emptied.
            let is_bound = self.is_joint && !peer.is_filling;
            let has_next = self.log_first <= peer.acked.next() || !peer.is_matched || is_bound;
            let fill = || Effect::Send(self.letter(Note::Fill { history: self.history.clone() }));
            out.push(if has_next || !self.leads() { Effect::Ship(peer.acked) } else { fill() });
        }
        if self.is_streaming() && !self.map().is_in_sync(self.me) {
            // The last one may have been lost, and a greeting of before may have arrived after it.
            self.acknowledge(out);
        }
        self.advance_join(now_ms, out);
        // 3. The MGS.
        self.turn_to_mgs(now_ms, out);
    }

    /// Its process has begun to stop, and `on_leave` follows.
    pub fn on_stopping(&mut self) {
        self.is_stopping = true;
    }

    /// True once the other member has said that it leaves.
    pub fn is_left(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.is_leaving)
    }

    /// A planned stop: what was ordered is flushed by the caller, which takes no requests any more.
    pub fn on_leave(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        self.is_leaving = true;
        let token = self.held.give_back(now_ms);
        out.push(Effect::Send(self.letter(Note::Return(token))));
        out.push(Effect::Send(self.letter(Note::Leaving)));
    }

    /// A map from the MGS, or by the other member.
    pub fn on_map(&mut self, map: Members, now_ms: u64, out: &mut Vec<Effect>) {
        if map.epoch <= self.map().epoch {
            return;
        }
        let was_streaming = self.is_streaming();
        let is_sole = map.is_sole(self.me);
        self.standing.map = map;
        self.standing.asked = None;
        self.is_confirmed = true;
        self.is_joint = false;
        self.patient_until_ms = now_ms + PROMISE_MS;
        if is_sole {
            // Nothing in sync has more: this log is the truth now.
            (self.standing.is_whole, self.standing.is_filling) = (true, false);
        } else if !map.is_in_sync(self.me) {
            (self.standing.is_whole, self.committed) = (false, MirrorSeq(0));
        }
        if let Some(peer) = &mut self.peer {
            peer.is_streaming = false;
            peer.is_apart = false;
            peer.is_matched &= !peer.is_filling;
            peer.is_whole &= map.is_in_sync(self.me.other());
        }
        out.push(Effect::Record);
        if is_sole && self.peer.is_some() {
            // It serves alone, so it relies on no promise.
            let token = self.held.give_back(now_ms);
            out.push(Effect::Send(self.letter(Note::Return(token))));
        } else if was_streaming {
            out.push(self.hello());
        }
    }

    pub fn on_letter(&mut self, letter: Letter, now_ms: u64, out: &mut Vec<Effect>) {
        // 1. The map: a newer one is taken over, and a letter of an older one is void.
        self.on_map(letter.map, now_ms, out);
        if letter.map.epoch < self.map().epoch {
            out.push(self.hello());
            return;
        }
        // 2. mirror-O5: the two lives.
        let Ends { from, to } = letter.ends;
        let knows_me = to == Some(self.life);
        // mirror-O6.
        if let Some(to) = to.filter(|to| self.life < *to && kept(Rule::LowLivesAreTold)) {
            out.push(Effect::Outlive(to));
            return;
        }
        if let Note::Hello { history, flushed, is_whole, is_filling } = letter.note {
            self.on_hello((from, knows_me), (history, flushed), (is_whole, is_filling), out);
            return;
        }
        let is_peer = self.peer.as_ref().is_some_and(|peer| peer.life == from);
        if !(is_peer && knows_me) && kept(Rule::LivesAreTold) {
            return;
        }
        let Some(peer) = &mut self.peer else { return };
        peer.knows_me |= knows_me;
        // 3. The note.
        match letter.note {
            Note::Hello { .. } => unreachable!("handled above"),
            Note::Start { after } => self.on_start(after, out),
            Note::Fill { history } => self.on_fill(history, out),
            Note::Entry { before, at } => self.on_entry(before, at, out),
            Note::Ack { end, flushed, is_whole, is_filling } => {
                if self.orders_by_map() && end <= self.history.end().seq {
                    let peer = self.peer.as_mut().expect("the letter came from it");
                    peer.acked = peer.acked.max(end);
                    peer.flushed = peer.flushed.max(flushed);
                    (peer.is_whole, peer.is_filling) = (is_whole, is_filling);
                    // Only a member whose stream has begun acknowledges.
                    peer.is_matched = true;
                    self.commit();
                    self.advance_join(now_ms, out);
                }
            }
            Note::Join { up_to } => self.on_join(up_to, out),
            Note::Ask(token) => self.on_ask(token, now_ms, out),
            Note::Promise(token) => {
                self.held.on_promise(token, now_ms);
                self.advance_join(now_ms, out);
            }
            Note::Return(token) => self.given.on_return(token),
            Note::Leaving => {
                peer.is_leaving = true;
                if self.follows_stop() {
                    let token = self.held.give_back(now_ms);
                    out.push(Effect::Send(self.letter(Note::Return(token))));
                }
                self.turn_to_mgs(now_ms, out);
            }
        }
    }

    /// Step 1: the greeting of the other's life, or news in it.
    fn on_hello(
        &mut self,
        (from, knows_me): (Incarnation, bool),
        (history, flushed): (History, MirrorSeq),
        (is_whole, is_filling): (bool, bool),
        out: &mut Vec<Effect>,
    ) {
        if self.peer.as_ref().is_some_and(|peer| from < peer.life) {
            // mirror-O6. An old greeting that comes late costs an answer to the present life.
            if kept(Rule::LowLivesAreTold) {
                out.push(self.hello());
            }
            return;
        }
        if self.peer.as_ref().is_none_or(|peer| peer.life < from) {
            self.peer = Some(Peer {
                life: from,
                knows_me,
                is_whole,
                is_leaving: false,
                is_apart: false,
                is_filling,
                is_matched: false,
                acked: MirrorSeq(0),
                flushed: MirrorSeq(0),
                is_streaming: false,
            });
        }
        if !knows_me {
            out.push(self.hello());
        }
        let (leads, is_pair) = (self.leads(), self.map().is_pair());
        let peer = self.peer.as_mut().expect("set above");
        let is_under_way = peer.is_matched && peer.is_filling && is_filling;
        peer.knows_me |= knows_me;
        (peer.is_whole, peer.is_filling) = (is_whole, is_filling);
        // mirror-J5.
        if !leads || (!knows_me && kept(Rule::LivesAreTold)) {
            return;
        }
        // mirror-F3: a log beside half-filled content shares nothing. mirror-J6.
        let log_first = if kept(Rule::LogHasNext) { self.log_first } else { MirrorSeq(0) };
        let shared = self.history.shared(&history).filter(|_| !is_filling);
        match shared.filter(|_| way(shared, log_first) != Way::Whole) {
            Some(shared) => {
                // A member in sync has a beginning of this log (mirror-O1); one that has not is treated like one that is not whole.
                peer.is_apart = is_pair && shared != history.end();
                // Unless it has more: then this log has lost its end, as on a medium that was put back old.
                if peer.is_apart && is_whole && shared == self.history.end() {
                    self.standing.is_whole = false;
                    out.push(Effect::Record);
                    return;
                }
                peer.is_matched = true;
                peer.acked = peer.acked.max(shared.seq);
                peer.flushed = peer.flushed.max(flushed.min(shared.seq));
                self.commit();
                out.push(Effect::Send(self.letter(Note::Start { after: shared })));
            }
            // Its filling is under way: this greeting is from before.
            None if is_under_way => {}
            None => {
                (peer.is_apart, peer.is_filling, peer.is_matched) = (is_pair, true, false);
                out.push(Effect::Send(self.letter(Note::Fill { history: self.history.clone() })));
            }
        }
    }

    /// Step 1 and 5, at the receiver.
    fn on_start(&mut self, after: Position, out: &mut Vec<Effect>) {
        let is_in_sync = self.map().is_in_sync(self.me);
        // A member in sync has nothing to cut, and one that is not whole waits for another map.
        let is_fit = if is_in_sync { self.standing.is_whole && after == self.history.end() } else { true };
        if self.map().primary == self.me || self.is_silent() || self.is_streaming() || !is_fit {
            return;
        }
        if after != self.history.end() {
            self.history.cut(after.seq);
            self.flushed = self.flushed.min(after.seq);
            out.push(Effect::Cut(after.seq));
        }
        if let Some(peer) = &mut self.peer {
            peer.is_streaming = true;
        }
        self.acknowledge(out);
    }

    /// mirror-O3.
    fn on_entry(&mut self, before: Position, at: Position, out: &mut Vec<Effect>) {
        if self.is_silent() || !self.is_streaming() {
            return;
        }
        if arrival(&self.history, before, at) == Arrival::Append {
            self.history.append(at);
            out.push(Effect::Append(at));
        }
        self.acknowledge(out);
    }

    /// Step 6, at the receiver. mirror-J3.
    fn on_join(&mut self, up_to: MirrorSeq, out: &mut Vec<Effect>) {
        if !self.is_streaming() || self.history.end().seq < up_to || self.standing.is_filling {
            return;
        }
        if !self.standing.is_whole {
            if kept(Rule::FlushBeforeInSync) {
                self.flush(out);
            }
            self.standing.is_whole = true;
            out.push(Effect::Record);
        }
        self.acknowledge(out);
    }

    fn on_ask(&mut self, token: Token, now_ms: u64, out: &mut Vec<Effect>) {
        // A member in sync that is not whole serves nothing, and the other is to do without it (mirror-E3).
        let is_behind = self.map().is_in_sync(self.me) && !self.standing.is_whole;
        // A follower that has less than it had serves no reads, and this member is about to ask for being alone.
        let has_lost = self.orders_by_map() && self.has_lost_peer();
        if !is_behind && !has_lost && !self.is_silent() {
            self.given.promise(token, now_ms);
            out.push(Effect::Send(self.letter(Note::Promise(token))));
        }
    }

    /// Step 6, at the primary. mirror-J2: first the other's promise, then bound to both, then the request.
    fn advance_join(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if !self.map().is_sole(self.me) || self.is_silent() {
            return;
        }
        let end = self.history.end().seq;
        let (is_held, role) = (self.held.is_held(now_ms), self.role(now_ms));
        let Some(peer) = self.peer.as_ref().filter(|peer| !peer.is_leaving && !peer.is_filling) else {
            return;
        };
        if !self.is_joint && peer.acked == end && role == Role::Alone {
            if !is_held && kept(Rule::BoundBeforeInSync) {
                self.ask_promise(now_ms, out);
                return;
            }
            (self.committed, self.patient_until_ms) = (end, now_ms + PROMISE_MS);
            self.is_joint = kept(Rule::BoundBeforeInSync);
            out.push(Effect::Send(self.letter(Note::Join { up_to: end })));
            if self.is_joint {
                return;
            }
        }
        let peer = self.peer.as_ref().expect("it was there");
        let is_bound = self.is_joint && is_held || !kept(Rule::BoundBeforeInSync);
        if !is_bound {
            return;
        }
        if peer.is_whole {
            out.push(Effect::Request(Request::InSync { epoch: self.map().epoch }));
        } else {
            out.push(Effect::Send(self.letter(Note::Join { up_to: self.committed })));
        }
    }

    /// Steps 3 and 4: asks to be alone, or for the map.
    fn turn_to_mgs(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        let epoch = self.map().epoch;
        if !self.map().is_in_sync(self.me) || self.is_leaving {
            // Also while entries arrive: it may be in sync by now, and the primary gone.
            if !self.is_leaving {
                out.push(Effect::Request(Request::Fetch { epoch }));
            }
            return;
        }
        if self.standing.asked == Some(epoch) {
            out.push(Effect::Request(self.asking(epoch)));
            return;
        }
        let is_lapsed = !self.held.is_held(now_ms) && self.patient_until_ms <= now_ms;
        let must_ask = if self.is_alone() {
            !self.is_confirmed
        } else {
            !self.standing.is_whole || self.is_left() || is_lapsed || self.has_lost_peer()
        };
        if must_ask && !self.follows_stop() {
            // mirror-E2, mirror-E1: durable in this order, and silent from here on.
            if kept(Rule::FlushBeforeAsk) {
                self.flush(out);
            }
            self.standing.asked = Some(epoch);
            out.push(Effect::Record);
            out.push(Effect::Request(self.asking(epoch)));
        }
    }

    fn asking(&self, epoch: Epoch) -> Request {
        Request::Ask {
            epoch,
            is_whole: self.standing.is_whole,
            end: self.history.end(),
            is_planned: self.is_left(),
        }
    }

    fn ask_promise(&mut self, now_ms: u64, out: &mut Vec<Effect>) {
        if self.peer.as_ref().is_some_and(|peer| peer.knows_me) {
            let token = self.held.ask(now_ms);
            out.push(Effect::Send(self.letter(Note::Ask(token))));
        }
    }

    fn needs_promise(&self) -> bool {
        self.map().is_in_sync(self.me) && !self.is_alone() && self.standing.is_whole && !self.is_silent()
    }

    /// mirror-E1.
    fn is_silent(&self) -> bool {
        self.is_leaving || (self.standing.asked == Some(self.map().epoch) && kept(Rule::SilentAfterAsk))
    }
    fn orders_by_map(&self) -> bool {
        self.map().primary == self.me && self.map().is_in_sync(self.me)
    }
    /// mirror-J4.
    fn leads(&self) -> bool {
        let is_settled =
            self.standing.is_whole && (self.map().is_pair() || self.is_confirmed) && !self.is_silent();
        self.orders_by_map() && (is_settled || !kept(Rule::SettledLeads))
    }
    /// mirror-E5.
    fn follows_stop(&self) -> bool {
        self.is_stopping && !self.orders_by_map()
    }
    /// Alone by the map, and not bound to both.
    fn is_alone(&self) -> bool {
        self.map().is_sole(self.me) && !self.is_joint
    }
    /// A member in sync by the map that has less than it had.
    fn has_lost_peer(&self) -> bool {
        let is_behind = |peer: &Peer| !peer.is_whole || peer.is_apart;
        self.map().is_pair() && self.peer.as_ref().is_some_and(is_behind)
    }

    fn commit(&mut self) {
        // A member that is filled lacks content, whatever it acknowledges.
        let peer = self.peer.as_ref().filter(|peer| !peer.is_filling);
        let acked = peer.map_or(MirrorSeq(0), |peer| peer.acked);
        self.committed = self.committed.max(acked.min(self.history.end().seq));
    }
    fn flush(&mut self, out: &mut Vec<Effect>) {
        self.flushed = self.history.end().seq;
        out.push(Effect::Flush);
    }
    fn acknowledge(&self, out: &mut Vec<Effect>) {
        let Standing { is_whole, is_filling, .. } = self.standing;
        let note = Note::Ack { end: self.history.end().seq, flushed: self.flushed, is_whole, is_filling };
        out.push(Effect::Send(self.letter(note)));
    }
    fn hello(&self) -> Effect {
        let Standing { is_whole, is_filling, .. } = self.standing;
        let note = Note::Hello { history: self.history.clone(), flushed: self.flushed, is_whole, is_filling };
        Effect::Send(self.letter(note))
    }
    fn letter(&self, note: Note) -> Letter {
        let ends = Ends { from: self.life, to: self.peer.as_ref().map(|peer| peer.life) };
        Letter { map: *self.map(), ends, note }
    }

    /// The primary's log is trimmed up to here, and no client retains a request so old.
    pub fn forget(&mut self, seq: MirrorSeq) {
        self.history.forget(seq);
    }

    /// The other member was told of this one's stop.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }
}

mod fill;

#[cfg(test)]
mod tests;
