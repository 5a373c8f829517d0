//! Space in the index: it must fit the checkpoint slots, or the log could never be trimmed again (store-S5).
//!
//! store-RM1: objects stay within `index_bytes_max` and sessions within `sessions_bytes_max`. (Writes that passed the check concurrently
//!     may exceed the first by the margin `ADMITTED_BYTES`, which `checkpoint` keeps free for them.)
//! store-RM2: writes leave space for fences: a client can attach to a full OST, and its files can be recovered and removed.

use crate::checkpoint::SESSION_BYTES_MAX;
use crate::codec::OBJECT_BYTES_MAX;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::sessions::SESSIONS_MAX;

/// Sessions for which there is always space, 105 KiB in all.
pub const SESSIONS_KEPT: usize = 64;
/// Writes leave this share of the index to the lease versions of objects that do not exist: 1700 on the smallest OST. The recovery
/// of a file fences all objects that its layout names, written or not.
const FENCE_SHARE: u64 = 16;

/// The kind of request that needs space in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Write,
    Fence,
}

impl Engine {
    pub(crate) fn check_index_room(&self, wanted_bytes: u64, wish: Wish) -> Result<(), StoreError> {
        match wanted_bytes <= self.index_room(wish) {
            true => Ok(()),
            false => Err(StoreError::NoSpace("the index of objects is full")),
        }
    }

    /// Objects that writes may still create, if each has one extent at most.
    pub(crate) fn objects_free(&self) -> u64 {
        self.index_room(Wish::Write) / OBJECT_BYTES_MAX
    }

    fn index_room(&self, wish: Wish) -> u64 {
        let fences = match wish {
            Wish::Write => self.index_bytes_max / FENCE_SHARE,
            Wish::Fence => 0,
        };
        self.index_bytes_max.saturating_sub(self.index.bytes() + fences)
    }

    /// Whether the checkpoint has space for one session more than `count`.
    pub(crate) fn has_session_room(&self, count: usize) -> bool {
        let wanted = (count as u64 + 1) * SESSION_BYTES_MAX;
        count < SESSIONS_KEPT || (count < SESSIONS_MAX && wanted <= self.sessions_bytes_max)
    }
}
