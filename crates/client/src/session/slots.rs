//! Slots of a session at one target: each carries one mutating request at a time, under rising sequences.
//!
//! client-C3 here: a slot is *stuck* if its request may or may not have been carried out. The request stays with the slot, and is sent again
//! under the same sequence before the slot or the target gets a newer request. So an abandoned write never arrives after a later one.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use types::Fid;
use wire::Header;
use wire::session::{SLOTS, comes_after, next_sequence};

/// A request with everything that is needed to send it again.
#[derive(Debug)]
pub(crate) struct Sendable {
    pub head: Header,
    pub body: Vec<u8>,
    pub bulk: Vec<u8>,
    /// The file that has the loss if it is lost; 0: the name space.
    pub fid: Fid,
}

impl Sendable {
    /// Files that have the loss if it is lost. A lost creation concerns its directory and the new file.
    pub fn concerns(&self) -> impl Iterator<Item = Fid> {
        [Some(self.fid), crate::session::sent::made_by(self.head.call, &self.body)].into_iter().flatten()
    }
}

pub(crate) struct Slots {
    state: Mutex<State>,
    freed: Condvar,
    /// Stuck requests, including those that are just being sent again.
    stuck_count: AtomicUsize,
}

struct State {
    free: Vec<u32>,
    /// Last sequence used, by slot.
    sequences: Vec<u32>,
    stuck: Vec<Sendable>,
}

/// A slot in use. Dropping it frees the slot, unless it got stuck.
pub(crate) struct Taken<'a> {
    slots: &'a Slots,
    pub slot: u32,
    pub sequence: u32,
    is_stuck: bool,
}

impl Slots {
    pub fn new() -> Slots {
        let state =
            State { free: (0..SLOTS).rev().collect(), sequences: vec![0; SLOTS as usize], stuck: Vec::new() };
        Slots { state: Mutex::new(state), freed: Condvar::new(), stuck_count: AtomicUsize::new(0) }
    }

    /// A free slot with its next sequence; `None` when the deadline passes first.
    pub fn take(&self, deadline: Instant) -> Option<Taken<'_>> {
        let mut state = self.state.lock();
        while state.free.is_empty() {
            if self.freed.wait_until(&mut state, deadline).timed_out() && state.free.is_empty() {
                return None;
            }
        }
        Self::take_free(self, &mut state)
    }

    /// A free slot, if there is one now. A thread that holds slots must not wait for more.
    pub fn try_take(&self) -> Option<Taken<'_>> {
        Self::take_free(self, &mut self.state.lock())
    }

    fn take_free<'a>(&'a self, state: &mut State) -> Option<Taken<'a>> {
        let slot = state.free.pop()?;
        let last = &mut state.sequences[slot as usize];
        let before = *last;
        *last = next_sequence(before);
        assert!(comes_after(*last, before), "client-C3: sequences of a slot rise");
        assert!(*last != 0, "sequence 0 means that a slot was never used");
        Some(Taken { slots: self, slot, sequence: *last, is_stuck: false })
    }

    /// Raises sequences to those that the target has for this session.
    pub fn raise(&self, carried_out: &[u32]) {
        for (mine, theirs) in self.state.lock().sequences.iter_mut().zip(carried_out) {
            if *theirs != 0 && comes_after(*theirs, *mine) {
                *mine = *theirs;
            }
        }
    }

    pub fn has_stuck(&self) -> bool {
        self.stuck_count.load(Ordering::Acquire) > 0
    }

    /// Takes a stuck request out, to send it again. The caller then calls `unstick` for its slot, or puts it back.
    pub fn take_stuck(&self) -> Option<Sendable> {
        self.state.lock().stuck.pop()
    }
    pub fn put_stuck_back(&self, request: Sendable) {
        self.state.lock().stuck.push(request)
    }

    /// The outcome of the slot's stuck request is known, so the slot is free.
    pub fn unstick(&self, slot: u32) {
        let before = self.stuck_count.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "client-C3: a slot is unstuck once");
        self.give_back(slot);
    }

    fn give_back(&self, slot: u32) {
        assert!(slot < SLOTS, "a slot that is given back is one of the session's");
        let mut state = self.state.lock();
        debug_assert!(!state.free.contains(&slot), "client-C3: a slot is given back once");
        state.free.push(slot);
        drop(state);
        self.freed.notify_one();
    }

    /// Removes all stuck requests of a session that has ended, since they can never be answered.
    pub fn drop_stuck(&self) -> Vec<Sendable> {
        let stuck = std::mem::take(&mut self.state.lock().stuck);
        stuck.iter().for_each(|s| self.unstick(s.head.slot));
        stuck
    }

    pub fn wake_all(&self) {
        self.freed.notify_all();
    }
}

impl Taken<'_> {
    /// The outcome is unknown, so the slot stays in use with its request.
    pub fn stick(mut self, request: Sendable) {
        assert_eq!(request.head.slot, self.slot, "client-C3: a stuck request keeps its slot");
        assert_eq!(request.head.sequence, self.sequence, "client-C3: a stuck request keeps its sequence");
        self.is_stuck = true;
        self.slots.stuck_count.fetch_add(1, Ordering::AcqRel);
        self.slots.put_stuck_back(request);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if !self.is_stuck {
            self.slots.give_back(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sequences_rise_within_a_slot_and_never_fall_below_the_targets() {
        let slots = Slots::new();
        let soon = Instant::now() + Duration::from_millis(5);
        let first = slots.take(soon).expect("free").slot;
        let again = slots.take(soon).expect("free");
        assert_eq!((again.slot, again.sequence), (first, 2), "the warm slot is used again");
        drop(again);
        slots.raise(&[90; SLOTS as usize]);
        assert_eq!(slots.take(soon).expect("free").sequence, 91);
    }

    #[test]
    fn slots_are_bounded_and_stuck_ones_stay_away() {
        let slots = Slots::new();
        let soon = Instant::now() + Duration::from_millis(5);
        let mut all: Vec<_> = (0..SLOTS).map(|_| slots.take(soon).expect("free")).collect();
        assert!(slots.take(soon).is_none() && slots.try_take().is_none());
        let taken = all.pop().expect("just taken");
        let head = Header { slot: taken.slot, sequence: taken.sequence, ..Header::default() };
        taken.stick(Sendable { head, body: vec![], bulk: vec![], fid: Fid(1) });
        assert!(slots.try_take().is_none() && slots.has_stuck());
        let stuck = slots.take_stuck().expect("one is stuck");
        slots.unstick(stuck.head.slot);
        assert_eq!(slots.try_take().map(|t| t.sequence), Some(2));
    }
}
