//! Clears set-user-id and set-group-id bits, which the kernel leaves to the file system (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! A write, truncation or change of owner by a process without CAP_FSETID clears the bits. The kernel marks each such write. Reading the
//! mode each time would double the requests of every user but root. So each handle is remembered as *clear* under an epoch, which rises
//! whenever this mount may have set such bits on any file.
//! fuse-S1. A handle counts as clear only if its mode was read after the epoch under which it is filed.
//! fuse-S2. It counts for a second at most, and is filed only while this client is alone. The arrival of other clients raises the epoch, so
//! none of them has set bits since.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::RwLock;

use crate::options::ENTRY_TIMEOUT;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;

/// Whether a mode has set-id bits.
pub fn has_set_id(mode: u32) -> bool {
    mode & (SET_UID | SET_GID) != 0
}

/// Whether a write, truncation or change of owner clears bits of a mode. Set-gid without group execution is not a privilege but the old
/// mark of mandatory locking: members of the group keep it, as in the kernel.
pub fn loses_privileges(mode: u32, is_in_group: impl FnOnce() -> bool) -> bool {
    mode & SET_UID != 0 || mode & SET_GID != 0 && (mode & GROUP_EXEC != 0 || !is_in_group())
}

/// The moment before a mode was read.
#[derive(Clone, Copy)]
pub struct Look {
    epoch: u64,
    at: Instant,
}

/// Open files that are known to have no set-id bits.
#[derive(Default)]
pub struct SetIdWatch {
    epoch: AtomicU64,
    clear: RwLock<HashMap<u64, Look>>,
}

impl SetIdWatch {
    /// To be taken before the caller checks for other clients and reads the mode. `seasons`: how often other clients came.
    pub fn look(&self, now: Instant, seasons: u64) -> Look {
        // Both only rise, so equal sums are of equal parts.
        Look { epoch: self.epoch.load(Ordering::SeqCst) + seasons, at: now }
    }

    pub fn is_clear(&self, handle: u64, look: Look) -> bool {
        let clear = self.clear.read();
        let is_new = |c: &Look| look.at.saturating_duration_since(c.at) < ENTRY_TIMEOUT;
        clear.get(&handle).is_some_and(|c| c.epoch == look.epoch && is_new(c))
    }

    /// fuse-S1, fuse-S2: `look` was taken before the mode was read and before the check for other clients.
    pub fn learn_clear(&self, handle: u64, look: Look) {
        self.clear.write().insert(handle, look);
    }

    /// A file may have such bits now.
    pub fn on_mode(&self, mode: u32) {
        if has_set_id(mode) {
            self.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn forget(&self, handle: u64) {
        // Root's handles are never filed, so for them it stays at this look under the shared lock.
        if self.clear.read().contains_key(&handle) {
            self.clear.write().remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_go_as_in_the_kernel() {
        for mode in [0o4755, 0o6755, 0o2755, 0o6644] {
            assert!(loses_privileges(mode, || true), "{mode:o}");
        }
        for mode in [0o0644, 0o2644, 0o1777] {
            assert!(!loses_privileges(mode, || true), "{mode:o}");
        }
        assert!(loses_privileges(0o2644, || false), "a stranger to the group");
    }

    #[test]
    fn a_chmod_after_the_look_is_not_missed() {
        let watch = SetIdWatch::default();
        let now = Instant::now();
        let is_clear = || watch.is_clear(7, watch.look(now, 0));
        assert!(!is_clear());
        let look = watch.look(now, 0);
        watch.learn_clear(7, look);
        assert!(is_clear());
        watch.on_mode(0o755);
        assert!(is_clear());
        watch.on_mode(0o4755);
        assert!(!is_clear());
        // A look from before the chmod must not count.
        watch.learn_clear(7, look);
        assert!(!is_clear());
        watch.learn_clear(7, watch.look(now, 0));
        assert!(!watch.is_clear(7, watch.look(now, 1)), "others were here since");
        watch.forget(7);
        assert!(!is_clear());
    }

    /// fuse-S2.
    #[test]
    fn what_another_client_may_have_set_since_is_asked_for() {
        let watch = SetIdWatch::default();
        let now = Instant::now();
        watch.learn_clear(7, watch.look(now, 0));
        assert!(watch.is_clear(7, watch.look(now + ENTRY_TIMEOUT / 2, 0)));
        assert!(!watch.is_clear(7, watch.look(now + ENTRY_TIMEOUT, 0)));
    }
}
