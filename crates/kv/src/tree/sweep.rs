//! The clock: evicts leaves that lie on the medium and that no reader used since the clock passed last.
//!
//! Each step handles a part of the tree and makes a new tree, as an edit does, in which evicted leaves are `Away`. The step also replaces
//! an `Away` that was filled by its leaf, which saves a search one step.

use std::sync::Arc;

use types::Key;

use super::{Child, Inner, Sums, Tree};
use crate::home::Away;

/// One step of the clock.
pub struct Sweep {
    /// The first key of the step.
    pub from: Key,
    /// Leaves that the step examines.
    pub leaves: usize,
    /// Bytes of memory to free; 0: filled leaves are put in the tree, and none is evicted.
    pub over_bytes: u64,
}

/// The result of a step.
#[derive(Default)]
pub struct Swept {
    /// Where the next step begins; `None`: the round has ended.
    pub next: Option<Key>,
    pub evicted: u64,
    pub freed_bytes: u64,
    /// Leaves that were used since the clock passed last: the next round may evict them.
    pub spared: u64,
    /// Leaves that had been loaded and are in the tree now.
    pub placed: u64,
    /// Memory of leaves that are not on the medium.
    pub unwritten_bytes: u64,
    made: Sums,
    replaced: Sums,
}

impl Tree {
    /// The tree with fewer leaves in memory, and the same records. A later change must first load its leaf.
    pub fn swept(&self, mut sweep: Sweep) -> (Tree, Swept) {
        let mut swept = Swept::default();
        let from = sweep.from;
        let root = self.root.as_ref().map(|root| {
            root.swept(&Key::default(), &from, &mut sweep, &mut swept).unwrap_or_else(|| root.clone())
        });
        assert_eq!(swept.made.leaves, swept.replaced.leaves, "a sweep keeps every leaf in its place");
        assert_eq!(swept.made.pages, swept.replaced.pages, "a sweep keeps every page on the medium");
        (Tree { root, sums: self.sums.plus(swept.made).minus(swept.replaced) }, swept)
    }
}

impl Tree {
    /// The same records, with an empty `Away` for each filled one.
    pub fn forgotten(&self) -> Tree {
        let root = self.root.as_ref().map(|root| root.forgotten().unwrap_or_else(|| root.clone()));
        Tree { root, sums: self.sums }
    }
}

impl Child {
    /// `None`: nothing below was loaded.
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

    /// The child in its place, whose keys are from `first` on; `None`: it does not change.
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
