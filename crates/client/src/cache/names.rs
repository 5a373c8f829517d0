//! Locks on names and fids. They order create, open, unlink and rename of the same file at this client: an unlink must know whether the file is
//! open here.
//!
//! client-N1: a thread locks at most two names and one fid, names first, in index order, and holds no file lock yet. A thread that locks several
//!     fids does so in index order, and holds no name.

use std::collections::BTreeSet;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use types::{Code, Fault, Fid, h64};

/// More than there are threads, so that different names rarely share a lock.
const LOCKS: usize = 256;

pub(crate) struct NameLocks {
    names: Vec<Mutex<()>>,
    fids: Vec<Mutex<()>>,
}

impl NameLocks {
    pub fn new() -> NameLocks {
        let locks = || (0..LOCKS).map(|_| Mutex::new(())).collect();
        NameLocks { names: locks(), fids: locks() }
    }

    fn index(parent: Fid, name: &[u8]) -> usize {
        // h64 keeps its low bits free.
        ((h64(name) >> 8) ^ parent.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as usize % LOCKS
    }

    pub fn lock(&self, parent: Fid, name: &[u8], deadline: Instant) -> Result<MutexGuard<'_, ()>, Fault> {
        self.names[Self::index(parent, name)].try_lock_until(deadline).ok_or_else(busy)
    }

    /// client-N1: both names of a rename.
    pub fn lock_two(
        &self,
        a: (Fid, &[u8]),
        b: (Fid, &[u8]),
        deadline: Instant,
    ) -> Result<(MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>), Fault> {
        let (a, b) = (Self::index(a.0, a.1), Self::index(b.0, b.1));
        let first = self.names[a.min(b)].try_lock_until(deadline).ok_or_else(busy)?;
        let second = match a == b {
            true => None,
            false => Some(self.names[a.max(b)].try_lock_until(deadline).ok_or_else(busy)?),
        };
        Ok((first, second))
    }

    /// client-N1: of several files, in index order; no name is locked.
    pub fn lock_fids(&self, fids: &[Fid], deadline: Instant) -> Result<Vec<MutexGuard<'_, ()>>, Fault> {
        let all: BTreeSet<usize> = fids.iter().map(|fid| fid.0 as usize % LOCKS).collect();
        all.into_iter().map(|n| self.fids[n].try_lock_until(deadline).ok_or_else(busy)).collect()
    }

    pub fn lock_fid(&self, fid: Fid, deadline: Instant) -> Result<MutexGuard<'_, ()>, Fault> {
        self.fids[fid.0 as usize % LOCKS].try_lock_until(deadline).ok_or_else(busy)
    }
}

fn busy() -> Fault {
    Fault::new(Code::Timeout, "another call on the same name does not end; the MDT may be down")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_rename_onto_itself_locks_once_and_opposite_renames_cannot_deadlock() {
        let names = NameLocks::new();
        let soon = Instant::now() + Duration::from_millis(20);
        assert!(names.lock_two((Fid(1), b"a"), (Fid(1), b"a"), soon).is_ok());
        let held = names.lock_two((Fid(1), b"a"), (Fid(1), b"b"), soon).expect("free");
        assert!(names.lock_two((Fid(1), b"b"), (Fid(1), b"a"), soon).is_err());
        drop(held);
        assert!(
            names.lock_two((Fid(1), b"b"), (Fid(1), b"a"), Instant::now() + Duration::from_secs(1)).is_ok()
        );
    }
}
