//! Events of the member, and its effects.

use std::collections::VecDeque;
use std::mem::discriminant;
use std::sync::atomic::Ordering;

use mirror::order::Copies;
use mirror::{Effect, Letter, Member, Note};
use types::{Code, Epoch, Fault, Incarnation, Seq};

use super::{End, Shared, State, kept};
use crate::letters::{mirror_seq, seq};
use crate::{Logged, Place};

impl Shared {
    /// One event, with all that follows from it here. `entry`: the one that came with the letter. `replies`: takes the letters to the other
    /// member, which the sender takes otherwise.
    pub fn event(
        &self,
        state: &mut State,
        entry: Option<&Logged>,
        replies: Option<&mut Vec<Letter>>,
        run: impl FnOnce(&mut Member, u64, &mut Vec<Effect>),
    ) {
        if state.end.is_some() {
            return;
        }
        if self.expects_stop.load(Ordering::Acquire) {
            state.member.on_stopping();
        }
        let mut out = Vec::new();
        run(&mut state.member, self.clock.boot_ms(), &mut out);
        self.carry_out(state, out, entry, replies);
    }

    /// Effects in order, each completely. One that fails, or that only another life can carry out, is the last one.
    pub fn carry_out(
        &self,
        state: &mut State,
        out: Vec<Effect>,
        entry: Option<&Logged>,
        mut replies: Option<&mut Vec<Letter>>,
    ) {
        let mut left = VecDeque::from(out);
        while let Some(effect) = left.pop_front() {
            let done = match effect {
                Effect::Record => self.keep_note(state),
                Effect::Flush => state.replica.flush().map(|up_to| {
                    let mut more = Vec::new();
                    state.member.on_flushed(mirror_seq(up_to), &mut more);
                    left.extend(more);
                }),
                Effect::Append(at) => {
                    let entry = entry.expect("the letter of an entry has its content");
                    assert_eq!(entry.place.last, seq(at.seq), "the entry is the letter's");
                    let done = self.note_line(state).and_then(|()| state.replica.append(entry));
                    if state.member.standing().is_filling
                        && done.is_ok()
                        && let Some(since) = state.replica.filled_since(&entry.content)
                    {
                        let mut more = Vec::new();
                        state.member.on_filled(mirror_seq(since), &mut more);
                        left.extend(more);
                    }
                    done
                }
                Effect::Cut(after) => return self.end_life(state, End::Cut(seq(after))),
                Effect::Refill if state.replica.is_filled_live() && state.replica.is_emptied_at_once() => {
                    let end = state.member.history().end();
                    state.replica.begin_refill(Epoch(end.line.0), seq(end.seq))
                }
                Effect::Refill => return self.end_life(state, End::Refill),
                Effect::Outlive(number) => {
                    state.outlived = Some(number);
                    let kept = state.replica.keep_note(&self.note(state, None).encode());
                    return self.end_life(state, kept.map_or_else(End::Failed, |()| End::Outlived));
                }
                Effect::Ship(_) => {
                    state.must_ship = true;
                    self.send_bell.notify_all();
                    Ok(())
                }
                Effect::Send(letter) => {
                    match replies.as_deref_mut() {
                        Some(replies) => put(replies, letter),
                        None => {
                            put(&mut state.outbox, letter);
                            self.send_bell.notify_all();
                        }
                    }
                    Ok(())
                }
                Effect::Request(request) => {
                    state.requests.retain(|other| discriminant(other) != discriminant(&request));
                    state.requests.push(request);
                    self.ask_bell.notify_all();
                    Ok(())
                }
            };
            if let Err(fault) = done {
                return self.end_life(state, End::Failed(fault));
            }
        }
        self.settle(state);
    }

    /// After each event: what callers look at.
    fn settle(&self, state: &mut State) {
        let now_ms = self.clock.boot_ms();
        let member = &state.member;
        if state.serves_above.is_some() && !state.is_leaving && member.map().primary != self.me {
            return self.end_life(state, End::Deposed);
        }
        // pair-S14.
        state.is_doubted &= !member.map().is_sole(self.me);
        if state.is_doubted && !member.map().is_in_sync(self.me) && kept!(self, DoubtIsNoted) {
            return self.end_life(state, End::Doubted);
        }
        self.serves_until_ms.store(member.serves_until_ms(now_ms), Ordering::Release);
        let epoch = member.map().epoch;
        if self.reads_epoch.load(Ordering::Relaxed) != epoch.0 {
            // A reader of either epoch is refused in between.
            self.reads_until_ms.store(0, Ordering::SeqCst);
            self.reads_epoch.store(epoch.0, Ordering::SeqCst);
        }
        self.reads_until_ms.store(member.reads_until_ms(now_ms), Ordering::SeqCst);
        if state.serves_above.is_none() && member.role(now_ms).orders() {
            // As the epoch rises with each primary, so do the incarnations that clients see of the mirror.
            state.serves_above = Some(Incarnation(member.map().epoch.0.saturating_mul(1 << 12)));
            self.turn_bell.notify_all();
        }
        // pair-S8: the join has the other member flush all up to here before it is in sync. Another life of it has not told yet what is
        // durable there, and has lost none of that.
        if member.copies() == Copies::Both {
            let is_joining = state.copies == Copies::One && kept!(self, FlushedHolds);
            let joined = if is_joining { seq(member.answerable(now_ms)) } else { Seq(0) };
            state.flushed_floor = state.flushed_floor.max(joined).max(seq(member.peer_flushed()));
        }
        state.copies = member.copies();
        let acked = member.peer_acked().map_or(Seq(0), seq);
        while state.pending.front().is_some_and(|entry| entry.place.last <= acked) {
            state.pending.pop_front();
        }
        if member.fills().is_some() || state.filling.is_some() {
            self.fill_bell.notify_all();
        }
        self.changed.notify_all();
    }

    /// pair-S2.
    fn keep_note(&self, state: &mut State) -> Result<(), Fault> {
        if kept!(self, NotesAreKept) {
            state.replica.keep_note(&self.note(state, None).encode())?;
        }
        state.noted = state.member.history().lines().last().map(|(line, _)| *line);
        Ok(())
    }

    /// pair-S3: before the log has the first entry of a line.
    fn note_line(&self, state: &mut State) -> Result<(), Fault> {
        let last = state.member.history().lines().last().map(|(line, _)| *line);
        if last == state.noted || !kept!(self, LinesAreNoted) { Ok(()) } else { self.keep_note(state) }
    }

    /// mirror-O1, step 1.
    pub fn order_entry(&self, state: &mut State, count: u32) -> Result<Place, Fault> {
        self.check_life(state)?;
        let is_ordering = !state.is_leaving;
        let ordered = is_ordering.then(|| state.member.order(self.clock.boot_ms(), count)).flatten();
        let Some((before, at)) = ordered else {
            let next = "send the request to the mirror's primary, or again in a second";
            let why = format!("this member of mirror {} may not order entries now; {next}", self.mirror);
            return Err(Fault::new(Code::NotReady, why));
        };
        if let Err(fault) = self.note_line(state) {
            self.end_life(state, End::Failed(fault.clone()));
            return Err(fault);
        }
        state.ordered += 1;
        Ok(Place { line: Epoch(at.line.0), first: seq(before.seq.next()), last: seq(at.seq) })
    }

    /// A letter of the other member.
    pub fn hear(
        &self,
        state: &mut State,
        (letter, entry): (Letter, Option<Logged>),
        replies: Option<&mut Vec<Letter>>,
    ) {
        state.heard_ms = self.clock.boot_ms();
        match &letter.note {
            Note::Hello { .. } => {
                state.member.on_trimmed(mirror_seq(state.replica.first().max(state.log_from)))
            }
            Note::Ack { .. } => state.is_taking = true,
            _ => {}
        }
        // pair-S6.
        let is_fit = |entry: &Logged| state.replica.can_append(&entry.content) || !kept!(self, TargetIsAsked);
        if entry.as_ref().is_none_or(is_fit) {
            self.event(state, entry.as_ref(), replies, |member, now_ms, out| {
                member.on_letter(letter, now_ms, out)
            });
        } else {
            self.event(state, None, replies, |member, now_ms, out| {
                member.on_map(letter.map, now_ms, out);
                member.acknowledge_again(out);
            });
        }
    }
}

/// Adds a letter. An older one of its kind says nothing any more.
fn put(letters: &mut Vec<Letter>, letter: Letter) {
    letters.retain(|other| discriminant(&other.note) != discriminant(&letter.note));
    letters.push(letter);
}
