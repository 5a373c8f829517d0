//! Space in the index: it must fit the checkpoint slots, or the log could never be trimmed again (store-S5).
//!
//! store-RM1: objects stay within `index_bytes_max` and sessions within `sessions_bytes_max`. (Writes that passed the check concurrently
//!     may exceed the first by the margin `ADMITTED_BYTES`, which `checkpoint` keeps free for them.)
//! store-RM2: writes leave space for fences: a client can attach to a full OST, and its files can be recovered and removed.

use crate::records::codec::{EXTENT_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::records::error::StoreError;
use crate::records::leaf::objects_bytes_max;
use crate::records::named::Named;
use crate::records::scrub_state::SCRUB_BYTES;
use crate::state::engine::Engine;
use crate::state::service::SERVICE_BYTES;
use disk::leaves::head_bytes;

/// Most sessions of one target: slots of 1.5 KiB each make 48 MiB of memory.
pub const SESSIONS_MAX: usize = 32_768;

/// Most records kept, 41 bytes each. More of them would not change an operator's decision.
pub const DAMAGE_MAX: usize = 4096;

/// Session 8, begun 10, used slots 1, each used slot: number 1, sequence 5, seq 10, answer 10.
pub const SESSION_BYTES_MAX: u64 = 19 + 64 * 26;
/// A damage record: object 24, offset 8, kind 1, time 8.
pub const DAMAGE_BYTES: u64 = 41;
/// Kept free for writes that were admitted and are not yet in the index: 64 concurrent ones of 257 pages each.
const ADMITTED_BYTES: u64 = 64 * (OBJECT_BYTES_MAX + 257 * (EXTENT_BYTES_MAX + 4));

/// A leaf: its first object 21, objects 5, bytes 5, CRC 4, count of runs 3; and a run: place 6, pages 3.
const LEAF_BYTES_MAX: u64 = 38;
const RUN_BYTES_MAX: u64 = 9;

/// Bytes that objects may take in leaves, in slots of `slot_bytes`. The rest is for writes that were admitted but not yet applied.
pub fn index_bytes_max(slot_bytes: u64) -> u64 {
    objects_bytes_max(slot_bytes).saturating_sub(ADMITTED_BYTES)
}

/// Bytes that sessions may take in the head of a checkpoint, on a medium with `data_pages` pages of data.
pub fn sessions_bytes_max(slot_bytes: u64, data_pages: u64) -> u64 {
    let head = head_bytes(slot_bytes);
    let chunk_heads = (head / (1 << 20) + 2) * 32;
    let damage = DAMAGE_MAX as u64 * DAMAGE_BYTES;
    // As for leaves half a page long and a page apart: more leaves than can exist.
    let area_pages = 2 * (slot_bytes - head) / 4096;
    let leaves = area_pages / 4 * (LEAF_BYTES_MAX + RUN_BYTES_MAX);
    let rest = SCRUB_BYTES + SERVICE_BYTES + Named::bytes_max(data_pages) + 128;
    head.saturating_sub(chunk_heads + damage + leaves + rest)
}

/// Sessions for which there is always space, 105 KiB in all.
pub const SESSIONS_KEPT: usize = 64;
/// Writes leave this share of the index to the lease versions of objects that do not exist: 1700 on the smallest OST. The recovery
/// of a file fences all objects that its layout names, written or not.
const FENCE_SHARE: u64 = 16;

/// The kinds of requests for space.
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
