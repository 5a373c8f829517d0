//! The sections of a file in their order (X3), and those that a session has left (X4).

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use types::SessionId;

/// Who waits for a section and does not ask again within this has given up.
pub const ASKS_WITHIN: Duration = Duration::from_secs(2);
/// Sections that were left while an older one of the session goes on.
const ENDED_MAX: usize = 1 << 20;

/// The sections that a session has left.
#[derive(Default)]
pub struct Ended {
    /// All below it.
    floor: u64,
    pub others: BTreeSet<u64>,
}

impl Ended {
    pub fn raise(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.others = self.others.split_off(&floor);
        }
    }
    pub fn left(&mut self, token: u64) {
        if token >= self.floor {
            self.others.insert(token);
        }
        // Only a client that never raises its floor comes here.
        if self.others.len() > ENDED_MAX
            && let Some(lowest) = self.others.first().copied()
        {
            self.raise(lowest + 1);
        }
    }
    pub fn is_over(&self, token: u64) -> bool {
        token < self.floor || self.others.contains(&token)
    }
}

#[derive(Default)]
pub struct Sections {
    pub inside: Vec<Section>,
    pub queue: VecDeque<(Section, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    pub session: SessionId,
    pub token: u64,
    pub exclusive: bool,
}

impl Section {
    pub fn is(&self, other: &Section) -> bool {
        (self.session, self.token) == (other.session, other.token)
    }
}

impl Sections {
    /// X3: lets `who` in if its turn has come.
    pub fn admit(&mut self, who: Section, now: Instant) -> bool {
        if self.inside.iter().any(|s| s.is(&who)) {
            return true;
        }
        self.queue.retain(|(s, asked)| s.is(&who) || now.duration_since(*asked) < ASKS_WITHIN);
        let is_free = |exclusive: bool| match exclusive {
            true => self.inside.is_empty(),
            false => self.inside.iter().all(|s| !s.exclusive),
        };
        let at = self.queue.iter().position(|(s, _)| s.is(&who)).unwrap_or(self.queue.len());
        let is_turn = match who.exclusive {
            true => at == 0,
            false => self.queue.iter().take(at).all(|(s, _)| !s.exclusive),
        };
        if is_turn && is_free(who.exclusive) {
            self.queue.retain(|(s, _)| !s.is(&who));
            self.inside.push(who);
            return true;
        }
        match self.queue.get_mut(at) {
            Some((_, asked)) => *asked = now,
            None => self.queue.push_back((who, now)),
        }
        false
    }

    /// Does another session wait for this one's end?
    pub fn is_wanted_of(&self, session: SessionId, now: Instant) -> bool {
        let is_waiting = |asked: Instant| now.duration_since(asked) < ASKS_WITHIN;
        self.queue.iter().any(|(s, asked)| s.session != session && is_waiting(*asked))
    }

    pub fn is_over(&self) -> bool {
        self.inside.is_empty() && self.queue.is_empty()
    }
}
