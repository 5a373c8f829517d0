//! Free space of an MDT, and the numbers for `statfs` and status.
//!
//! The next checkpoint must find space, or the log could never be trimmed again. So growth ends before that: requests that create are
//! refused first, and requests that delete always work.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use disk::Volume;
use disk::leaves::LeafArea;
use kv::{Engine, View};
use meta::Space;
use types::{Code, Fault};
use wire::mdt::{MdtStat, MdtStatReply};
use wire::session::TargetStatReply;

use crate::draft::{Draft, put_bytes};
use crate::execute::Stop;
use crate::look::look;
use crate::overlay::Layer;
use crate::slots::Slots;
use crate::{Core, Records};

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
/// Bytes per file in the estimate of free inodes: entry and inode of a typical name, with an inline page now and then. Inodes are not
/// pre-allocated, so the documents call their free number an estimate.
const FILE_BYTES: u64 = 512;

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
        // The fuller of the two decides.
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
    fn taken(&self, table_bytes: u64) -> u64 {
        self.used(table_bytes, self.slots_bytes.load(Ordering::Relaxed))
    }

    /// The step of `INLINE_STEPS` that holds at this use.
    fn inline_step(&self, used: u64) -> Option<&'static (u64, u32)> {
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

impl Core {
    pub fn target_stat(&self) -> Result<TargetStatReply, Fault> {
        let label = self.volume.label();
        let used = self.room.taken(self.kv.reader().medium_bytes());
        let inodes = look(&self.kv, &mut |view| self.rules.inodes(view))?;
        let total = self.room.usable();
        let free = total.saturating_sub(used);
        // A sparse file may promise more than its host file system has.
        let room_below = self.volume.disk().room_below().unwrap_or(u64::MAX);
        Ok(TargetStatReply {
            target: label.target,
            is_mdt: true,
            index: label.index,
            uuid: label.uuid,
            bytes_total: total,
            bytes_free: free,
            bytes_available: free.min(room_below),
            files_total: inodes + free / FILE_BYTES,
            files_free: free / FILE_BYTES,
            sessions: self.sessions.count() as u32,
            // Damage of records is reported to the request that meets it. There is no list of it yet.
            damage_count: 0,
            log_bytes_used: self.volume.log_used(),
            log_bytes_total: self.volume.log_capacity(),
            last_seq: self.volume.last_seq(),
            failure: self.volume.failure().unwrap_or_default().into(),
            superblock_copies: self.volume.superblock_copies_good(),
        })
    }

    pub fn on_mdt_stat(&self, req: &MdtStat) -> Result<MdtStatReply, Fault> {
        self.check_admin(&req.cap)?;
        let (figures, used) = (self.kv.figures(), self.room.taken(self.kv.reader().medium_bytes()));
        Ok(MdtStatReply {
            started_sec: self.started_sec,
            now_sec: self.clock.wall().sec.max(0) as u64,
            last_seq: self.volume.last_seq().0,
            sessions: self.sessions.count() as u32,
            records: figures.size.records,
            leaves: figures.leaves,
            room_bytes_used: used,
            room_bytes_total: self.room.usable(),
            inline_max: self.joined()?.inline_max,
            inline_limit: self.room.inline_step(used).map_or(u32::MAX, |(_, max)| *max),
            memory_bytes: figures.memory_bytes,
            memory_bytes_max: figures.memory_bytes_max,
            leaves_brought: figures.loads,
            leaves_taken_out: figures.evictions,
            stretches_lost: self.kv.lost(),
            moves: figures.moves,
            states_kept: figures.states_kept as u64,
            log_bytes_used: self.volume.log_used(),
            log_bytes_total: self.volume.log_capacity(),
            failure: self.volume.failure().unwrap_or_default().into(),
        })
    }
}
