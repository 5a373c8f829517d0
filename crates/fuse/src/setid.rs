//! Dropping set-user-id and set-group-id bits, which the kernel leaves to us (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! A write, truncation or change of owner by someone without CAP_FSETID takes the bits away. The kernel marks each such write;
//! asking for the mode each time would double the requests of every user but root. So each handle is remembered as *clear* under
//! an epoch that rises whenever this mount may have set such bits anywhere.
//! I1. A handle counts as clear only if its mode was read after the epoch that it is filed under.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;

/// Whether a mode has bits to watch.
pub fn has_set_id(mode: u32) -> bool {
    mode & (SET_UID | SET_GID) != 0
}

/// The mode that is left when the privileges go, if that is another one. Set-gid without group execution is not a privilege but
/// mandatory locking's old mark: to members of the group it stays, as in the kernel.
pub fn without_privileges(mode: u32, is_in_group: impl FnOnce() -> bool) -> Option<u32> {
    let mut left = mode & !SET_UID;
    if mode & SET_GID != 0 && (mode & GROUP_EXEC != 0 || !is_in_group()) {
        left &= !SET_GID;
    }
    (left != mode).then_some(left)
}

/// Which open files are known to carry no set-id bits.
#[derive(Default)]
pub struct SetIdWatch {
    epoch: AtomicU64,
    clear: RwLock<HashMap<u64, u64>>,
}

impl SetIdWatch {
    /// To be read before the mode is asked for, and given to `learn_clear`.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub fn is_clear(&self, handle: u64) -> bool {
        self.clear.read().get(&handle) == Some(&self.epoch())
    }

    /// I1: `epoch` was read before the mode was.
    pub fn learn_clear(&self, handle: u64, epoch: u64) {
        self.clear.write().insert(handle, epoch);
    }

    /// Some file may have such bits now.
    pub fn on_mode(&self, mode: u32) {
        if has_set_id(mode) {
            self.epoch.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn forget(&self, handle: u64) {
        // Root's handles are never filed: the look under the shared lock is all that they pay.
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
        let table = [
            (0o0644, None),
            (0o4755, Some(0o0755)),
            (0o6755, Some(0o0755)),
            (0o2755, Some(0o0755)),
            (0o2644, None),
            (0o6644, Some(0o2644)),
            (0o1777, None),
        ];
        for (mode, left) in table {
            assert_eq!(without_privileges(mode, || true), left, "{mode:o}");
        }
        assert_eq!(without_privileges(0o2644, || false), Some(0o0644), "a stranger to the group");
    }

    #[test]
    fn a_chmod_after_the_look_is_not_missed() {
        let watch = SetIdWatch::default();
        assert!(!watch.is_clear(7));
        let epoch = watch.epoch();
        watch.learn_clear(7, epoch);
        assert!(watch.is_clear(7));
        watch.on_mode(0o755);
        assert!(watch.is_clear(7));
        watch.on_mode(0o4755);
        assert!(!watch.is_clear(7));
        // A look that began before the chmod must not count.
        watch.learn_clear(7, epoch);
        assert!(!watch.is_clear(7));
        watch.learn_clear(7, watch.epoch());
        watch.forget(7);
        assert!(!watch.is_clear(7));
    }
}
