//! Roots of sessions: the directory that a nodemap shows to its clients as the file system's root (rules: `meta::below`).
//!
//! mds-N5: the path becomes a directory when a session attaches. The session keeps that directory if it is renamed. If it is removed, the
//!     session sees no file any more. A node whose root is no directory is refused. A session whose nodemap gets another root is evicted.
//! mds-N6: a request of such a session passes the check before it has any effect (leases, recalls, locks), and again together with its rule.
//!
//! Directories that were found below a root are remembered until any directory gets another parent. A request that finds its directories among
//! them reads no parents.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use kv::{Engine, Miss};
use meta::Space;
use meta::below::Check;
use meta::records::EntryRecord;
use mgmt::nodemap;
use parking_lot::{Mutex, RwLock};
use types::{Fault, Fid, Kind, Seq};
use wire::Header;
use wire::map::Nodemap;
use wire::shared::Hold;

use crate::Core;
use crate::executor::call::Around;
use crate::joined::not_joined;
use crate::records::look::look;
use crate::sessions::nodemap::Terms;
use crate::sessions::shared::Doom;

/// Directories that are remembered below one root: 16 bytes each, about.
const KNOWN_MAX: usize = 64 * 1024;

/// A directory that sessions have as their root.
#[derive(Debug)]
pub struct Root {
    pub top: Fid,
    known: RwLock<Known>,
}

/// Directories below the root, as of a number of moves.
#[derive(Debug, Default)]
struct Known {
    moves: u64,
    dirs: HashSet<Fid>,
}

/// The roots in use, and the count of directories that got another parent.
#[derive(Default)]
pub struct Roots {
    is_any: AtomicBool,
    moves: AtomicU64,
    by_dir: Mutex<HashMap<Fid, Weak<Root>>>,
}

impl Roots {
    pub fn of(&self, top: Fid) -> Arc<Root> {
        let mut by_dir = self.by_dir.lock();
        if let Some(root) = by_dir.get(&top).and_then(Weak::upgrade) {
            return root;
        }
        by_dir.retain(|_, root| root.strong_count() > 0);
        self.is_any.store(true, Ordering::SeqCst);
        let root = Arc::new(Root { top, known: RwLock::default() });
        by_dir.insert(top, Arc::downgrade(&root));
        root
    }

    /// Called after the change is visible and before it is answered: a look that begins later finds the new parents.
    pub fn moved(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    pub fn now(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }
}

/// A root for one check, whose records are of `moves` or newer.
pub struct Seen<'a> {
    root: &'a Root,
    moves: u64,
    /// A change may rest on others that are dropped with it, and so teaches nothing.
    learns: bool,
}

impl Root {
    pub fn seen(&self, moves: u64, learns: bool) -> Seen<'_> {
        Seen { root: self, moves, learns }
    }
}

impl meta::below::Below for Seen<'_> {
    fn top(&self) -> Fid {
        self.root.top
    }
    fn has(&self, dir: Fid) -> bool {
        let known = self.root.known.read();
        known.moves == self.moves && known.dirs.contains(&dir)
    }
    fn learn(&self, dirs: &[Fid]) {
        if !self.learns {
            return;
        }
        let mut known = self.root.known.write();
        if known.moves < self.moves || known.dirs.len() + dirs.len() > KNOWN_MAX {
            *known = Known { moves: self.moves.max(known.moves), dirs: HashSet::new() };
        }
        if known.moves == self.moves {
            known.dirs.extend(dirs);
        }
    }
}

impl Core {
    /// mds-N5; `None`: its nodes see the whole file system.
    pub fn root_of(&self, found: &Nodemap) -> Result<Option<Arc<Root>>, Fault> {
        if !nodemap::has_root(found) {
            return Ok(None);
        }
        let dir = look(&self.kv, &mut |view| self.rules.dir_of_path(view, &mut nodemap::root_names(found)))??;
        dir.map(|dir| Some(self.roots.of(dir))).ok_or_else(|| nodemap::root_missing(found))
    }

    /// mds-N6, before the request does anything.
    pub fn check_root(&self, terms: Option<&Terms>, head: &Header, body: &[u8]) -> Result<(), Fault> {
        let Some((terms, root)) = terms.and_then(|terms| Some((terms, terms.root.as_ref()?))) else {
            return Ok(());
        };
        match self.rules.root_check(head.call, body)? {
            Check::Free | Check::Each => Ok(()),
            Check::Refused => Err(nodemap::below_root(terms)),
            Check::Files(_) => {
                self.with_root(root, head, &mut |ctx, view| self.rules.check_root(ctx, view, head.call, body))
            }
        }
    }

    /// Runs `look` over the newest records, for a session below a root.
    fn with_root<T>(
        &self,
        root: &Root,
        head: &Header,
        check: &mut dyn FnMut(&meta::Ctx<'_>, &dyn meta::View) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let joined = self.joined.load();
        let joined = joined.as_deref().ok_or_else(not_joined)?;
        let (doom, lease_high) = (Doom::new(&self.sharers), Cell::new(0));
        let seen = root.seen(self.roots.now(), true);
        let around =
            Around { head, joined, judged: None, space: Space::AMPLE, doom: &doom, root: Some(&seen) };
        self.with_ctx(around, &lease_high, &mut |ctx| look(&self.kv, &mut |view| check(ctx, view))?)
    }

    /// The files of `fids` that exist and that the sender may use.
    pub fn usable(&self, root: &Root, head: &Header, fids: &[Fid]) -> Result<HashSet<Fid>, Fault> {
        self.with_root(root, head, &mut |ctx, view| {
            let mut usable = HashSet::new();
            for fid in fids {
                if self.rules.may_hold(ctx, view, *fid)? {
                    usable.insert(*fid);
                }
            }
            Ok(usable)
        })
    }

    /// The files that a session below a root may report as held: those that it may use. A file that does not exist yet could be another's later.
    pub fn held_below(&self, terms: Option<&Terms>, head: &Header, mut hold: Hold) -> Result<Hold, Fault> {
        if let Some(root) = terms.and_then(|terms| terms.root.as_ref()) {
            let fids =
                hold.opens.iter().map(|open| open.fid).chain(hold.sections.iter().map(|held| held.fid));
            let usable = self.usable(root, head, &fids.collect::<Vec<_>>())?;
            hold.opens.retain(|open| usable.contains(&open.fid));
            hold.sections.retain(|held| usable.contains(&held.fid));
            // It gets no such lease.
            hold.dirs.clear();
        }
        Ok(hold)
    }

    /// True if a session may hold the lease of a directory.
    pub fn may_lease(&self, root: Option<&Root>, dir: Fid) -> Result<bool, Fault> {
        let Some(root) = root else { return Ok(true) };
        let seen = root.seen(self.roots.now(), true);
        look(&self.kv, &mut |view| self.rules.is_dir_below(view, &seen, dir))
    }

    /// Makes changes visible.
    pub fn publish(&self, snap: &dyn kv::View, last: Seq, changes: kv::Batch) {
        let moves_dirs = self.moves_dirs(snap, &changes);
        self.kv.apply(last, changes);
        if moves_dirs {
            self.roots.moved();
        }
    }

    /// True if the changes give a directory another parent. A directory that was made or removed is in no root's memory.
    fn moves_dirs(&self, snap: &dyn kv::View, changes: &kv::Batch) -> bool {
        if !self.roots.is_any.load(Ordering::SeqCst) {
            return false;
        }
        let put_dir = |change: &kv::Change| {
            meta::keys::parse_entry(&change.key)?;
            let entry = EntryRecord::decode(change.value.as_ref()?.raw()).ok()?;
            Some(entry.fid).filter(|_| entry.kind == Kind::Dir)
        };
        let was_there = |dir: Fid| match snap.get(&meta::keys::inode(dir)) {
            Ok(inode) => inode.is_some(),
            Err(Miss::Absent(_) | Miss::Damage(_)) => true,
        };
        changes.0.iter().filter_map(put_dir).any(was_there)
    }
}

#[cfg(test)]
mod tests {
    use meta::below::Below;

    use super::*;

    #[test]
    fn what_was_found_below_a_root_is_forgotten_when_a_directory_moves() {
        let roots = Roots::default();
        let root = roots.of(Fid(9));
        let (before, dirs) = (roots.now(), [Fid(10), Fid(11)]);
        root.seen(before, true).learn(&dirs);
        assert!(dirs.iter().all(|dir| root.seen(before, false).has(*dir)));
        roots.moved();
        let now = root.seen(roots.now(), true);
        assert!(!now.has(Fid(10)));
        // A look that began before the move.
        root.seen(before, true).learn(&dirs);
        assert!(root.seen(before, true).has(Fid(10)) && !now.has(Fid(10)));
        now.learn(&[Fid(10)]);
        root.seen(before, true).learn(&dirs);
        assert!(now.has(Fid(10)) && !now.has(Fid(11)), "it teaches nothing any more");
        let unlearning = root.seen(roots.now(), false);
        unlearning.learn(&[Fid(12)]);
        assert!(!unlearning.has(Fid(12)));
        assert!(Arc::ptr_eq(&root, &roots.of(Fid(9))) && !Arc::ptr_eq(&root, &roots.of(Fid(8))));
    }

    #[test]
    fn the_memory_of_a_root_is_bounded() {
        let roots = Roots::default();
        let root = roots.of(Fid(9));
        for at in 0..KNOWN_MAX as u64 + 10 {
            root.seen(0, true).learn(&[Fid(100 + at)]);
        }
        assert!(root.known.read().dirs.len() <= KNOWN_MAX);
        assert!(root.seen(0, true).has(Fid(100 + KNOWN_MAX as u64 + 9)));
    }
}
