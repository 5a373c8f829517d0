//! Room in the index: it must fit the slots of checkpoints, or the log could never be trimmed again (store-S5).
//!
//! store-RM1: what objects take stays within `index_bytes_max`, and what sessions take within `sessions_bytes_max`. (Writes that passed the
//!     check at once may pass it by what `checkpoint` keeps beside it for them.)
//! store-RM2: writes leave room for fences: a full OST can be attached to, its files recovered and removed.

use crate::records::codec::{EXTENT_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::records::error::StoreError;
use crate::records::leaf::objects_bytes_max;
use crate::records::named::Named;
use crate::records::scrub_state::SCRUB_BYTES;
use crate::state::engine::Engine;
use crate::state::service::SERVICE_BYTES;
use disk::leaves::head_bytes;

/// Most sessions of one target: 1.5 KiB of slots each make 24 MiB of memory.
pub const SESSIONS_MAX: usize = 16_384;

/// Most records kept: 41 bytes each, and an operator who has this many does not need more to know what to do.
pub const DAMAGE_MAX: usize = 4096;

/// Session 8, begun 10, used slots 1, each used slot: number 1, sequence 5, seq 10, answer 10.
pub const SESSION_BYTES_MAX: u64 = 19 + 64 * 26;
/// A damage record: object 24, offset 8, kind 1, time 8.
pub const DAMAGE_BYTES: u64 = 41;
/// Kept free for writes that were admitted and are not yet in the index: 64 at once of 257 pages each.
const ADMITTED_BYTES: u64 = 64 * (OBJECT_BYTES_MAX + 257 * (EXTENT_BYTES_MAX + 4));

/// A leaf: its first object 21, objects 5, bytes 5, CRC 4, count of runs 3; and a run: place 6, pages 3.
const LEAF_BYTES_MAX: u64 = 38;
const RUN_BYTES_MAX: u64 = 9;

/// Bytes that objects may take in leaves, in slots of `slot_bytes`; the rest is for writes under way.
pub fn index_bytes_max(slot_bytes: u64) -> u64 {
    objects_bytes_max(slot_bytes).saturating_sub(ADMITTED_BYTES)
}

/// Bytes that sessions may take in the head of a checkpoint, of a medium with so many pages of data.
pub fn sessions_bytes_max(slot_bytes: u64, data_pages: u64) -> u64 {
    let head = head_bytes(slot_bytes);
    let chunk_heads = (head / (1 << 20) + 2) * 32;
    let damage = DAMAGE_MAX as u64 * DAMAGE_BYTES;
    // Of leaves half a page long and a page apart, more than there can be.
    let area_pages = 2 * (slot_bytes - head) / 4096;
    let leaves = area_pages / 4 * (LEAF_BYTES_MAX + RUN_BYTES_MAX);
    let rest = SCRUB_BYTES + SERVICE_BYTES + Named::bytes_max(data_pages) + 128;
    head.saturating_sub(chunk_heads + damage + leaves + rest)
}

/// Sessions that always have room, 105 KiB in all.
pub const SESSIONS_KEPT: usize = 64;
/// Of the index, writes leave this share to the lease versions of objects that do not exist: 1700 of the smallest OST. Who
/// recovers a file fences all objects that its layout names, written or not.
const FENCE_SHARE: u64 = 16;

/// What wants room.
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

    /// Objects that writes may still make, if they are of one extent at most.
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

    /// Is there room for one session more than `count`?
    pub(crate) fn has_session_room(&self, count: usize) -> bool {
        let wanted = (count as u64 + 1) * SESSION_BYTES_MAX;
        count < SESSIONS_KEPT || (count < SESSIONS_MAX && wanted <= self.sessions_bytes_max)
    }
}
