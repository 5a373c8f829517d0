//! The locks of one file and space, and the queue of waiters.

use types::SessionId;
use wire::lock::LockKind;

use super::{Ask, Owner, PLACE_MS, Range};

/// A held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub owner: Owner,
    pub range: Range,
    pub kind: LockKind,
    pub pid: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    pub ticket: u64,
    pub asked_ms: u64,
    pub ask: Ask,
    /// Its client was told that its turn has come, and has not asked since.
    pub is_told: bool,
}

/// The effect of a change on other parts of the table.
#[derive(Default)]
pub struct Change {
    /// A waiter may be able to take its lock now.
    pub frees: bool,
    /// By session: the change of its number of locks and of queue positions.
    pub counts: Vec<(SessionId, i32, i32)>,
}

#[derive(Default)]
pub struct Queue {
    /// In the order of first bytes.
    held: Vec<Held>,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
}

/// Most locks of a file for which debug builds check meta-L3 at each change.
const CHECKED_MAX: usize = 64;

fn excludes(a: LockKind, b: LockKind) -> bool {
    a == LockKind::Write || b == LockKind::Write
}

impl Queue {
    pub const fn new() -> Queue {
        Queue { held: Vec::new(), waiting: Vec::new() }
    }

    pub fn held(&self) -> &[Held] {
        &self.held
    }
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
    pub fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }
    pub fn has_ticket(&self, session: SessionId, ticket: u64) -> bool {
        self.waiting.iter().any(|w| w.is(session, ticket))
    }
    pub fn waits_of(&self, owner: Owner) -> impl Iterator<Item = &Waiter> {
        self.waiting.iter().filter(move |w| w.ask.owner == owner)
    }
    pub fn concerns(&self, session: SessionId) -> bool {
        let is = |owner: &Owner| owner.session == session;
        self.held.iter().any(|h| is(&h.owner)) || self.waiting.iter().any(|w| is(&w.ask.owner))
    }
    /// True if the owner holds a lock of another kind than it asks for.
    pub fn has_other_kind(&self, ask: &Ask) -> bool {
        self.held.iter().any(|h| h.owner == ask.owner && h.kind != ask.kind)
    }

    /// True if an unlock leaves both ends of a lock, which makes one lock more.
    pub fn splits(&self, ask: &Ask) -> bool {
        let within = |h: &&Held| h.range.start < ask.range.start && ask.range.end < h.range.end;
        self.held.iter().filter(|h| h.owner == ask.owner).any(|h| within(&h))
    }

    /// The first lock of another owner that excludes `ask`.
    pub fn conflict(&self, ask: &Ask) -> Option<&Held> {
        self.conflicts(ask).next()
    }
    pub fn conflicts(&self, ask: &Ask) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |h| {
            h.owner != ask.owner && h.range.overlaps(&ask.range) && excludes(h.kind, ask.kind)
        })
    }

    /// True if an earlier waiter, whose lock is free, must have it first. A request that does not wait may take any free lock.
    pub fn is_others_turn(&self, ask: &Ask) -> bool {
        let Some(ticket) = ask.ticket else { return false };
        let mut before = self.waiting.iter().take_while(|w| !w.is(ask.owner.session, ticket));
        before.any(|w| {
            let is_rival = w.ask.owner != ask.owner && w.ask.range.overlaps(&ask.range);
            is_rival && excludes(w.ask.kind, ask.kind) && self.conflict(&w.ask).is_none()
        })
    }

    /// True if a request for the ticket would be granted now. Also true without a queue position: the owner must ask for a new one.
    pub fn is_due(&self, session: SessionId, ticket: u64) -> bool {
        let waiter = self.waiting.iter().find(|w| w.is(session, ticket));
        waiter.is_none_or(|w| self.conflict(&w.ask).is_none() && !self.is_others_turn(&w.ask))
    }

    /// Sessions and tickets of the waiters that would be granted their locks now. Each is told once until it asks.
    pub fn take_due(&mut self) -> Vec<(SessionId, u64)> {
        let is_due =
            |w: &Waiter| !w.is_told && self.conflict(&w.ask).is_none() && !self.is_others_turn(&w.ask);
        let due: Vec<usize> = (0..self.waiting.len()).filter(|n| is_due(&self.waiting[*n])).collect();
        let tell = |n: usize| {
            let waiter = &mut self.waiting[n];
            waiter.is_told = true;
            (waiter.ask.owner.session, waiter.ticket)
        };
        due.into_iter().map(tell).collect()
    }

    /// Sets the owner's locks in the range to `ask`, whatever others hold, and drops its queue position.
    pub fn put(&mut self, ask: &Ask) -> Change {
        let (mine, range) = (ask.owner, ask.range);
        let had = self.held.iter().filter(|h| h.owner == mine).count();
        let mut frees = false;
        let mut made = Held { owner: mine, range, kind: ask.kind, pid: ask.pid };
        let mut left = Vec::with_capacity(self.held.len() + 2);
        for held in self.held.drain(..) {
            if held.owner != mine {
                left.push(held);
            } else if held.kind == ask.kind && touches(&held.range, &range) {
                // meta-L3: merge with its neighbours.
                made.range.start = made.range.start.min(held.range.start);
                made.range.end = made.range.end.max(held.range.end);
            } else if held.range.overlaps(&range) {
                frees |= held.kind == LockKind::Write || ask.kind == LockKind::Unlock;
                left.extend(outside(&held, &range));
            } else {
                left.push(held);
            }
        }
        if ask.kind != LockKind::Unlock {
            left.push(made);
        }
        left.sort_by_key(|h| (h.range.start, h.owner));
        self.held = left;
        debug_assert!(
            self.held.len() > CHECKED_MAX || self.is_merged(mine),
            "meta-L3: ranges of an owner are merged"
        );
        let waited = self.waiting.len();
        if let Some(ticket) = ask.ticket {
            self.waiting.retain(|w| !w.is(mine.session, ticket));
        }
        let has = self.held.iter().filter(|h| h.owner == mine).count();
        let (held, waiting) = (has as i32 - had as i32, self.waiting.len() as i32 - waited as i32);
        // A waiter behind this one may be able to take its lock now.
        Change { frees: frees || waiting != 0, counts: vec![(mine.session, held, waiting)] }
    }

    /// meta-L3 for the locks of one owner. Quadratic, so callers bound the number of locks.
    fn is_merged(&self, owner: Owner) -> bool {
        let of_owner: Vec<&Held> = self.held.iter().filter(|h| h.owner == owner).collect();
        of_owner.iter().enumerate().all(|(n, a)| {
            of_owner[n + 1..]
                .iter()
                .all(|b| !(a.range.overlaps(&b.range) || a.kind == b.kind && touches(&a.range, &b.range)))
        })
    }

    /// Adds a waiter to the end of the queue, or keeps its position.
    pub fn wait(&mut self, waiter: Waiter) -> Change {
        let session = waiter.ask.owner.session;
        match self.waiting.iter_mut().find(|w| w.is(session, waiter.ticket)) {
            Some(place) => {
                *place = waiter;
                Change::default()
            }
            None => {
                self.waiting.push(waiter);
                Change { frees: false, counts: vec![(session, 0, 1)] }
            }
        }
    }

    pub fn refresh(&mut self, session: SessionId, ticket: u64, now_ms: u64) {
        if let Some(waiter) = self.waiting.iter_mut().find(|w| w.is(session, ticket)) {
            waiter.asked_ms = now_ms;
        }
    }

    /// meta-L2: drops waiters that stopped asking.
    pub fn expire(&mut self, now_ms: u64) -> Change {
        if self.waiting.iter().all(|w| w.is_alive(now_ms)) {
            return Change::default();
        }
        self.retain(|_| true, |w| w.is_alive(now_ms))
    }

    pub fn cancel(&mut self, session: SessionId, ticket: u64) -> Change {
        self.retain(|_| true, |w| !w.is(session, ticket))
    }

    pub fn retain(&mut self, held: impl Fn(&Held) -> bool, waiting: impl Fn(&Waiter) -> bool) -> Change {
        let mut change = Change::default();
        self.held.retain(|h| {
            let stays = held(h);
            if !stays {
                change.counts.push((h.owner.session, -1, 0));
            }
            stays
        });
        self.waiting.retain(|w| {
            let stays = waiting(w);
            if !stays {
                change.counts.push((w.ask.owner.session, 0, -1));
            }
            stays
        });
        change.frees = !change.counts.is_empty();
        change
    }
}

impl Waiter {
    fn is(&self, session: SessionId, ticket: u64) -> bool {
        self.ask.owner.session == session && self.ticket == ticket
    }
    pub fn is_alive(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.asked_ms) <= PLACE_MS
    }
}

/// True if the ranges overlap or are adjacent.
fn touches(a: &Range, b: &Range) -> bool {
    a.start <= b.end.saturating_add(1) && b.start <= a.end.saturating_add(1)
}

/// The parts of a lock outside `range`.
fn outside(held: &Held, range: &Range) -> impl Iterator<Item = Held> {
    let Range { start, end } = held.range;
    let before = (start < range.start).then(|| Range { start, end: range.start - 1 });
    let after = (end > range.end).then(|| Range { start: range.end + 1, end });
    let held = *held;
    [before, after].into_iter().flatten().map(move |range| Held { range, ..held })
}
