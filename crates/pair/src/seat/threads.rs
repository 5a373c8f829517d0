//! The threads of a seat, and the steps that they take.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use disk::Trouble;
use mirror::promise::ASK_MS;
use mirror::{Position, Request, Role};
use parking_lot::MutexGuard;
use types::{Code, Fault, Seq};
use wire::pair::Letter;

use super::{End, Shared, State, kept};
use crate::Logged;
use crate::letters::{self, mirror_seq, seq};

/// Content of the entries of one trip, unless the first one alone has more.
const SHIP_BYTES: usize = 512 << 10;

/// The work of a thread, until the seat stops.
type Run = fn(&Shared);

pub fn start(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, Fault> {
    let mut threads: Vec<(&str, Run)> =
        vec![("pair-tick", Shared::tick), ("pair-send", Shared::send), ("pair-ask", Shared::ask)];
    if shared.state.lock().replica.is_filled_live() {
        threads.push(("pair-fill", Shared::fill));
    }
    let mut started = Vec::new();
    for (name, run) in threads {
        let of_thread = shared.clone();
        match Builder::new().name(name.to_owned()).spawn(move || run(&of_thread)) {
            Ok(thread) => started.push(thread),
            Err(why) => {
                shared.state.lock().is_stopping = true;
                shared.ring_all();
                started.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                let next = "raise the limit of threads";
                return Err(Fault::new(
                    Code::Io,
                    format!("thread {name} of a mirror's member: {why}; {next}"),
                ));
            }
        }
    }
    Ok(started)
}

impl Shared {
    fn tick(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            self.tick_now(&mut state);
            if !std::mem::take(&mut state.is_poked) {
                self.tick_bell.wait_for(&mut state, Duration::from_millis(ASK_MS));
            }
        }
    }

    fn send(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            if !self.send_now(&mut state) {
                self.send_bell.wait(&mut state);
            }
        }
    }

    fn ask(&self) {
        let mut state = self.state.lock();
        while !state.is_stopping {
            if !self.ask_now(&mut state) {
                self.ask_bell.wait(&mut state);
            }
        }
    }

    /// The end of a life whose medium is in trouble, and whose other member is in sync by the map. Alone a member goes on, as an unmirrored
    /// target does.
    pub fn end_of_medium(&self, state: &State) -> Option<End> {
        let trouble = state.replica.trouble().filter(|_| kept!(self, FailuresEndLives))?;
        if !state.member.map().is_in_sync(self.me.other()) {
            return None;
        }
        let role = state.member.role(self.clock.boot_ms());
        let is_in_contact = matches!(role, Role::Primary | Role::Backup) || !kept!(self, LastCopyStays);
        match trouble {
            // pair-S11.
            Trouble::Failed(why) => Some(End::Medium(Fault::new(Code::Io, why))),
            // pair-S12.
            Trouble::Unreadable(why) => (is_in_contact && !self.keeps_content).then(|| {
                let next =
                    "the other member of the mirror takes over, and fills this one anew; look at the medium";
                End::Unreadable(Fault::new(Code::Damaged, format!("{why}; {next}")))
            }),
            Trouble::Refused { why, is_full } => is_in_contact.then(|| {
                let code = if is_full { Code::NoSpace } else { Code::Io };
                End::Failed(Fault::new(code, format!("{why}; the other member of the mirror takes over")))
            }),
        }
    }

    pub fn tick_now(&self, state: &mut MutexGuard<'_, State>) {
        if state.end.is_some() {
            return;
        }
        // pair-S11, pair-S12.
        match self.end_of_medium(state) {
            Some(end) => {
                // If both have trouble, as on two hosts that became full at once, the follower goes first, and the primary stays.
                let was_troubled = std::mem::replace(&mut state.is_troubled, true);
                let is_first = was_troubled || state.member.map().primary != self.me;
                if is_first || matches!(end, End::Medium(_)) {
                    return self.end_by_medium(state, end);
                }
            }
            None => state.is_troubled = false,
        }
        let first = mirror_seq(state.replica.first().max(state.log_from));
        state.member.on_trimmed(first);
        self.event(state, None, None, |member, now_ms, out| member.on_tick(now_ms, out));
        if self.must_flush(state) {
            self.ask_bell.notify_all();
        }
        if std::mem::take(&mut state.must_read_again) {
            state.must_ship = true;
            self.send_bell.notify_all();
        }
    }

    /// Ends a life that hands over. The other member is told, so that it need not wait for this one's promise.
    fn end_by_medium(&self, state: &mut MutexGuard<'_, State>, end: End) {
        state.is_leaving = true;
        self.event(state, None, None, |member, now_ms, out| member.on_leave(now_ms, out));
        self.send_outbox(state);
        self.end_life(state, end);
    }

    /// The sender's next step. False: there is none.
    pub fn send_now(&self, state: &mut MutexGuard<'_, State>) -> bool {
        if state.end.is_some() {
            false
        } else if !state.outbox.is_empty() {
            self.send_outbox(state);
            true
        } else if state.must_ship && !state.is_shipping {
            state.must_ship = self.ship(state);
            true
        } else {
            false
        }
    }

    /// True if the letters arrived.
    pub fn send_outbox(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let letters = state.outbox.drain(..).map(|letter| letters::sent(&letter)).collect();
        let replies = MutexGuard::unlocked(state, || self.post.letters(letters));
        self.hear_replies(state, replies)
    }

    pub fn hear_replies(&self, state: &mut State, replies: Result<Vec<Letter>, Fault>) -> bool {
        let Ok(replies) = replies else {
            state.is_taking = false;
            return false;
        };
        // An entry comes with a request, and a letter that cannot be read is none.
        let readable = replies.into_iter().filter_map(|letter| letters::received(letter).ok());
        for (letter, _) in readable.filter(|(_, entry)| entry.is_none()) {
            self.hear(state, (letter, None), None);
        }
        true
    }

    /// pair-S5: entries of one trip, behind what the other member has. True if it has more now. No other thread ships meanwhile.
    pub fn ship(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let Some(acked) = state.member.peer_acked().filter(|_| state.end.is_none()) else { return false };
        if acked >= state.member.history().end().seq {
            return false;
        }
        assert!(!state.is_shipping, "pair-S5: one thread ships");
        state.is_shipping = true;
        self.ship_behind(state, seq(acked));
        let is_more = state.member.peer_acked() > Some(acked);
        state.is_shipping = false;
        self.changed.notify_all();
        // The sender has nothing to do with entries that their own threads ship.
        if state.must_ship {
            self.send_bell.notify_all();
        }
        is_more
    }

    /// Entries up to the end of the log are not shipped any more.
    fn unreadable_to(&self, state: &mut State) {
        state.log_from = Seq(seq(state.member.history().end().seq).0 + 1);
    }

    fn ship_behind(&self, state: &mut MutexGuard<'_, State>, acked: Seq) -> Option<()> {
        let mut entries = self.take_pending(state, acked);
        let is_of_log = entries.is_empty();
        if is_of_log {
            let replica = state.replica.clone();
            match MutexGuard::unlocked(state, || replica.entries(acked, SHIP_BYTES)) {
                Ok(of_log) => entries = of_log,
                Err(fault) => {
                    // Trimmed meanwhile, or it cannot be read. This member has the state that the entries made, so it goes on.
                    let is_trimmed = replica.first() > Seq(acked.0 + 1);
                    // A member in sync waits for them, and has all that was answered: it takes over (pair-S12).
                    if !is_trimmed && let Some(end) = self.end_of_medium(state) {
                        self.end_by_medium(state, end);
                        return None;
                    }
                    // A passing error. It must not be filled, as it is in sync: the next tick tries again.
                    if !is_trimmed && state.member.map().is_in_sync(self.me.other()) {
                        (state.is_taking, state.must_read_again) = (false, true);
                        return None;
                    }
                    if !is_trimmed {
                        tracing::error!(mirror = self.mirror.0, %fault, "log entries for the other member of a mirror cannot be read, so it takes the whole content; look at this member's medium");
                    }
                    self.unreadable_to(state);
                }
            }
            let first = replica.first().max(state.log_from);
            state.member.on_trimmed(mirror_seq(first));
        }
        // A log that was trimmed past the other member's end is the member's to see (mirror-J6).
        if entries.first().is_none_or(|entry| entry.place.first != Seq(acked.0 + 1)) {
            state.is_taking = false;
            return None;
        }
        let end = seq(state.member.history().end().seq);
        let letters = entries.into_iter().take_while(|entry| entry.place.last <= end).map(|entry| {
            let letter = state.member.entry(mirror_seq(entry.place.first), mirror_seq(entry.place.last));
            letters::sent_entry(&letter, entry)
        });
        let letters = letters.collect();
        let replies = MutexGuard::unlocked(state, || self.post.letters(letters));
        let is_answered = self.hear_replies(state, replies);
        if state.member.peer_acked() <= Some(mirror_seq(acked)) {
            // It may lack the pages of an entry, which the log has (pair-S6).
            state.is_taking = false;
            state.must_ship |= is_answered && !is_of_log;
        }
        Some(())
    }

    /// Entries at hand that follow one another behind this seq. Others are in the log.
    fn take_pending(&self, state: &mut State, acked: Seq) -> Vec<Logged> {
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, acked);
        while let Some(entry) = state.pending.front() {
            if entry.place.first != Seq(last.0 + 1) || (bytes > 0 && bytes + entry.content.len() > SHIP_BYTES)
            {
                break;
            }
            (last, bytes) = (entry.place.last, bytes + entry.content.len());
            entries.extend(state.pending.pop_front());
        }
        entries
    }

    /// A step of the thread that may wait for the MGS or the medium. False: there is none.
    pub fn ask_now(&self, state: &mut MutexGuard<'_, State>) -> bool {
        if state.end.is_some() {
            return false;
        }
        if !state.requests.is_empty() {
            let mut request = state.requests.remove(0);
            // pair-S14: a member that lost its end only goes before one that may have lost anything. Of two such, the longer log does.
            if let Request::Ask { end, .. } = &mut request
                && state.is_doubted
            {
                end.line = Position::ZERO.line;
            }
            let request = letters::asking(request);
            let answer = MutexGuard::unlocked(state, || self.post.ask(request));
            let members = answer.and_then(|reply| {
                state.mgs_said = reply.why;
                letters::members(&reply.members).map_err(|why| Fault::new(Code::BadRequest, why.to_string()))
            });
            match members {
                Ok(map) => {
                    self.event(state, None, None, |member, now_ms, out| member.on_map(map, now_ms, out))
                }
                Err(fault) => state.mgs_said = fault.to_string(),
            }
            return true;
        }
        if self.must_flush(state) {
            state.flushed_ms = self.clock.boot_ms();
            let replica = state.replica.clone();
            match MutexGuard::unlocked(state, || replica.flush()) {
                Ok(up_to) => self.event(state, None, None, |member, _, out| {
                    member.on_flushed(mirror_seq(up_to), out);
                }),
                Err(fault) => self.end_life(state, End::Failed(fault)),
            }
            return true;
        }
        false
    }

    /// A member that takes entries is to flush them.
    fn must_flush(&self, state: &State) -> bool {
        let member = &state.member;
        member.is_streaming()
            && member.own_flushed() < member.history().end().seq
            && state.flushed_ms + self.commit_interval_ms <= self.clock.boot_ms()
    }
}
