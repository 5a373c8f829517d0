//! Space for the table's records: when rules are told that the MDT is full, and when growing transactions are refused.
//!
//! The next checkpoint must find space, or the log could never be trimmed again. So creation is refused first; deletion always works.

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

/// Percent of the space from which rules get `is_full`, and refuse to make files or add bytes.
const FULL_PERCENT: u64 = 90;
/// (percent of the users' space, bytes): from this percentage on, new file content lies inline up to so many bytes only. Content can move
/// to objects, names cannot. The smallest limit is about the size of a layout of objects.
const INLINE_STEPS: [(u64, u32); 3] = [(80, 512), (65, 4 << 10), (50, 16 << 10)];
/// Percent of the space from which every transaction that grows the table is refused. The rest is for deletions (which add to the unlink
/// log before they free records), ids, sessions and slots.
const CLOSED_PERCENT: u64 = 96;
/// The changelog's share of the users' space: one part in so many.
const CHANGES_SHARE: u64 = 8;
/// Bytes of a leaf's name in the head of a checkpoint: with a key of 18 bytes and one run, and a little more.
const NAME_BYTES: u64 = 72;

/// The space for records.
pub struct Room {
    /// Bytes that leaves may take, so that a second copy of them always fits.
    capacity_bytes: u64,
    /// Bytes that the head of a checkpoint may take. It names the leaves and has the slots.
    head_bytes: u64,
    /// A copy for threads that do not lead the executor.
    slots_bytes: AtomicU64,
    /// The smallest limit of `INLINE_STEPS` that was logged.
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

    /// Used bytes of `capacity_bytes`. `table_bytes`: from `kv::View::medium_bytes`.
    fn used(&self, table_bytes: u64, slots_bytes: u64) -> u64 {
        let head = u128::from(slots_bytes + table_bytes / types::PAGE_SIZE as u64 * NAME_BYTES);
        // The fuller of leaves and head decides.
        table_bytes.max((head * u128::from(self.capacity_bytes) / u128::from(self.head_bytes)) as u64)
    }

    /// Called by the leader after each change of the slots.
    pub fn note_slots(&self, slots: &Slots) {
        self.slots_bytes.store(slots.bytes(), Ordering::Relaxed);
    }
    /// Bytes that users may take.
    pub fn usable(&self) -> u64 {
        self.share(FULL_PERCENT)
    }
    /// Used bytes of `usable`. `table_bytes`: from `kv::View::medium_bytes`.
    pub fn taken(&self, table_bytes: u64) -> u64 {
        self.used(table_bytes, self.slots_bytes.load(Ordering::Relaxed))
    }

    /// The step of `INLINE_STEPS` that applies when `used` bytes are taken.
    pub fn inline_step(&self, used: u64) -> Option<&'static (u64, u32)> {
        INLINE_STEPS.iter().find(|(percent, _)| used >= self.usable() / 100 * percent)
    }

    /// The space as the rules see it.
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

    /// Is every growing transaction refused?
    pub fn is_closed(&self, table_bytes: u64) -> bool {
        self.taken(table_bytes) >= self.share(CLOSED_PERCENT)
    }
    /// Bytes that the changelog may take.
    pub fn changes_max(&self) -> u64 {
        self.usable() / CHANGES_SHARE
    }

    fn share(&self, percent: u64) -> u64 {
        self.capacity_bytes / 100 * percent
    }

    /// Refuses changes, on top of those of `draft`, that grow a table which is nearly full.
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

/// Bytes that users may take of the medium of a stopped MDT: the same as `TargetStatReply::bytes_total` of a running one.
pub fn usable_bytes(volume: &Volume) -> u64 {
    let area = LeafArea::new(volume.disk().clone(), &volume.layout().slots);
    kv::leaves_bytes(&area) / 100 * FULL_PERCENT
}
