//! The clock: takes leaves out of memory that lie on the medium and that nobody read since it came by last.
//!
//! It goes a stretch of the tree at a time, and makes a new tree as an edit does, in which those leaves are `Away`. On its way it puts
//! leaves that were brought in their places: a search has one step less there.

use std::sync::Arc;

use types::Key;

use super::{Child, Inner, Sums, Tree};
use crate::home::Away;

/// One step of the clock.
pub struct Sweep {
    /// Where it begins.
    pub from: Key,
    /// Leaves that it looks at.
    pub leaves: usize,
    /// Bytes of memory that are to be freed; 0: leaves are put in their places, and none goes.
    pub over_bytes: u64,
}

/// What came of it.
#[derive(Default)]
pub struct Swept {
    /// Where the next one begins; `None`: it came to the end.
    pub next: Option<Key>,
    pub evicted: u64,
    pub freed_bytes: u64,
    /// Leaves that were read since it came by last: the next time they may go.
    pub spared: u64,
    /// Leaves that were brought and are in their places now.
    pub placed: u64,
    /// Of leaves that are not on the medium.
    pub unwritten_bytes: u64,
    made: Sums,
    replaced: Sums,
}

impl Tree {
    /// The tree with fewer leaves in memory, and the same records. Whoever changes a record later must find its leaf in memory.
    pub fn swept(&self, mut sweep: Sweep) -> (Tree, Swept) {
        let mut swept = Swept::default();
        let from = sweep.from;
        let root = self.root.as_ref().map(|root| {
            root.swept(&Key::default(), &from, &mut sweep, &mut swept).unwrap_or_else(|| root.clone())
        });
        (Tree { root, sums: self.sums.plus(swept.made).minus(swept.replaced) }, swept)
    }
}

impl Tree {
    /// The same records, and nothing of what was brought.
    pub fn forgotten(&self) -> Tree {
        let root = self.root.as_ref().map(|root| root.forgotten().unwrap_or_else(|| root.clone()));
        Tree { root, sums: self.sums }
    }
}

impl Child {
    /// `None`: nothing below was brought.
    fn forgotten(&self) -> Option<Child> {
        match self {
            Child::Away(away) => {
                away.found()?.ok()?;
                Some(Child::Away(Arc::new(Away::new(away.home.clone()))))
            }
            Child::Inner(inner) => {
                let mut copy: Option<Inner> = None;
                for i in 0..inner.count {
                    if let Some(new) = inner.child(i).forgotten() {
                        copy.get_or_insert_with(|| Inner::clone(inner)).children[i] = Some(new);
                    }
                }
                copy.map(|copy| Child::Inner(Arc::new(copy)))
            }
            Child::Leaf(..) | Child::Lost(_) => None,
        }
    }

    /// What it becomes, whose keys are from `first` on; `None`: it stays.
    fn swept(&self, first: &Key, from: &Key, sweep: &mut Sweep, swept: &mut Swept) -> Option<Child> {
        let Child::Inner(inner) = self else {
            if sweep.leaves == 0 {
                swept.next = Some(*first);
                return None;
            }
            sweep.leaves -= 1;
            let new = self.decided(sweep, swept)?;
            swept.made = swept.made.plus(new.sums());
            swept.replaced = swept.replaced.plus(self.sums());
            if let Child::Away(away) = self {
                away.replaced();
            }
            return Some(new);
        };
        let mut copy: Option<Inner> = None;
        for i in inner.way(from)..inner.count {
            let first = if i == 0 { first } else { &inner.firsts[i] };
            if let Some(new) = inner.child(i).swept(first, from, sweep, swept) {
                copy.get_or_insert_with(|| Inner::clone(inner)).children[i] = Some(new);
            }
            if swept.next.is_some() {
                break;
            }
        }
        copy.map(|copy| Child::Inner(Arc::new(copy)))
    }

    fn decided(&self, sweep: &mut Sweep, swept: &mut Swept) -> Option<Child> {
        let (leaf, home) = match self {
            Child::Leaf(leaf, _) => match leaf.home() {
                Some(home) => (leaf, home),
                None => {
                    swept.unwritten_bytes += leaf.memory_bytes();
                    return None;
                }
            },
            Child::Away(away) => (away.found()?.ok()?, away.home.clone()),
            Child::Inner(_) | Child::Lost(_) => return None,
        };
        let is_spared = sweep.over_bytes > 0 && leaf.take_used();
        swept.spared += u64::from(is_spared);
        if is_spared || sweep.over_bytes == 0 {
            let is_away = matches!(self, Child::Away(_));
            swept.placed += u64::from(is_away);
            return is_away.then(|| Child::here(leaf.clone()));
        }
        let bytes = leaf.memory_bytes();
        sweep.over_bytes = sweep.over_bytes.saturating_sub(bytes);
        swept.freed_bytes += bytes;
        swept.evicted += 1;
        Some(Child::Away(Arc::new(Away::new(home))))
    }
}
