//! Free space of an MDT, and the numbers for `statfs` and status.
//!
//! The next checkpoint must find space, or the log could never be trimmed again. So growth ends before that: requests that create are
//! refused first, and requests that delete always work.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use disk::Volume;
use disk::leaves::LeafArea;
use kv::Engine;
use meta::Space;
use types::{Code, Fault};

use crate::Records;
use crate::executor::draft::{Draft, put_bytes};
use crate::executor::execute::Stop;
use crate::executor::slots::Slots;
use crate::records::overlay::Layer;

/// From this share of the space on, the MDT is full: rules refuse requests that create files or add bytes.
const FULL_PERCENT: u64 = 90;
/// Shares of the usable space, and the inline limit from that share on. Content can move to objects, and names cannot. The lowest limit is about
/// the size of a layout.
const INLINE_STEPS: [(u64, u32); 3] = [(80, 512), (65, 4 << 10), (50, 16 << 10)];
/// From this share on, every transaction that grows the table is refused. The rest is for deletions (which add to the unlink log before they
/// free records), ids, sessions and slots.
const CLOSED_PERCENT: u64 = 96;
/// The changelog's part of the usable space.
const CHANGES_SHARE: u64 = 8;
/// Bytes of a leaf's name in the head of a checkpoint: a key of 18 bytes, one run, and a little more.
const NAME_BYTES: u64 = 72;

/// Space for records.
pub struct Room {
    /// Most bytes of leaves, such that another copy of them fits.
    capacity_bytes: u64,
    /// Most bytes of a checkpoint's head, which names the leaves and has the slots.
    head_bytes: u64,
    /// Bytes of slots, for threads that are not the leader.
    slots_bytes: AtomicU64,
    /// The lowest of `INLINE_STEPS` that was logged.
    inline_told: AtomicU32,
}

impl Room {
    pub fn new(kv: &Records, slots: &Slots) -> Room {
        let kv::Room { leaves_bytes, head_bytes } = kv.room();
        Room {
            capacity_bytes: leaves_bytes,
            head_bytes,
            slots_bytes: AtomicU64::new(slots.bytes()),
            inline_told: AtomicU32::new(u32::MAX),
        }
    }

    /// Used part of `capacity_bytes`. `table_bytes`: see `kv::View::medium_bytes`.
    fn used(&self, table_bytes: u64, slots_bytes: u64) -> u64 {
        let head = u128::from(slots_bytes + table_bytes / types::PAGE_SIZE as u64 * NAME_BYTES);
        // The fuller of leaves and head decides.
        table_bytes.max((head * u128::from(self.capacity_bytes) / u128::from(self.head_bytes)) as u64)
    }

    /// Called after each change of slots.
    pub fn note_slots(&self, slots: &Slots) {
        self.slots_bytes.store(slots.bytes(), Ordering::Relaxed);
    }
    /// Bytes that users may take.
    pub fn usable(&self) -> u64 {
        self.share(FULL_PERCENT)
    }
    /// Used part of `usable`. `table_bytes`: see `kv::View::medium_bytes`.
    pub fn taken(&self, table_bytes: u64) -> u64 {
        self.used(table_bytes, self.slots_bytes.load(Ordering::Relaxed))
    }

    /// The step of `INLINE_STEPS` that holds at this use.
    pub fn inline_step(&self, used: u64) -> Option<&'static (u64, u32)> {
        INLINE_STEPS.iter().find(|(percent, _)| used >= self.usable() / 100 * percent)
    }

    /// The free space in the form that rules see.
    pub fn space(&self, table_bytes: u64) -> Space {
        let used = self.taken(table_bytes);
        let (usable, step) = (self.usable(), self.inline_step(used));
        if let Some((percent, bytes)) = step
            && *bytes < self.inline_told.load(Ordering::Relaxed)
        {
            self.inline_told.store(*bytes, Ordering::Relaxed);
            tracing::warn!(
                "the MDT's records take {percent} % of their room: what is written to files lies on OSTs from {bytes} bytes on, to leave room for \
                 names; move the MDT to a larger device, or set less with `stria setstripe --inline`"
            );
        }
        assert!(usable <= self.capacity_bytes, "users have a share of the space");
        Space { is_full: used >= usable, inline_max: step.map_or(u32::MAX, |(_, bytes)| *bytes) }
    }

    /// True if every transaction that grows the table is refused.
    pub fn is_closed(&self, table_bytes: u64) -> bool {
        self.taken(table_bytes) >= self.share(CLOSED_PERCENT)
    }
    /// Most bytes of the changelog.
    pub fn changes_max(&self) -> u64 {
        self.usable() / CHANGES_SHARE
    }

    fn share(&self, percent: u64) -> u64 {
        self.capacity_bytes / 100 * percent
    }

    /// Refuses changes, on top of those of `draft`, for which there is no space.
    pub fn check(&self, draft: &Draft<'_>, slots: &Slots, changes: &Layer) -> Result<(), Stop> {
        let (used, put) = (self.used(draft.table_bytes(), slots.bytes()), put_bytes(changes));
        if used + put <= self.share(CLOSED_PERCENT) || put <= draft.replaced(changes)? {
            return Ok(());
        }
        let fault = Fault::new(
            Code::NoSpace,
            format!(
                "the MDT's records take {used} of {} bytes; delete files, or move the MDT to a larger device",
                self.capacity_bytes
            ),
        );
        Err(fault.into())
    }
}

/// Bytes that users may take of an MDT that is not served now. While it is served, `TargetStatReply::bytes_total` tells it.
pub fn usable_bytes(volume: &Volume) -> u64 {
    let area = LeafArea::new(volume.disk().clone(), &volume.layout().slots);
    kv::leaves_bytes(&area) / 100 * FULL_PERCENT
}
