//! Finds deadlocks. A waiting owner points at the holders of the locks it waits for; a path back to the asking owner is a deadlock.
//!
//! The pointers are not stored. They are computed each time from the present locks and waiters, so they are never out of date.

use std::collections::HashSet;

use super::{Ask, LockTable, Owner};

impl LockTable {
    pub(super) fn would_deadlock(&self, ask: &Ask, now_ms: u64) -> bool {
        let mut seen: HashSet<Owner> = HashSet::new();
        let mut next: Vec<Owner> = self.holders(ask).collect();
        while let Some(owner) = next.pop() {
            if owner == ask.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            for resource in self.blocked.get(&owner).into_iter().flatten() {
                let waits = self.file(*resource).waits_of(owner).filter(|w| w.is_alive(now_ms));
                next.extend(waits.flat_map(|w| self.holders(&w.ask)));
            }
        }
        false
    }

    fn holders(&self, ask: &Ask) -> impl Iterator<Item = Owner> {
        self.file(ask.resource).conflicts(ask).map(|held| held.owner)
    }
}
