//! How much room there is, and the numbers for `statfs` and status.
//!
//! The next checkpoint must find room, or the log could never be trimmed again. So growth ends below that: what creates is
//! refused first, and what deletes goes on working to the end.

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

/// From this share of the room on, rules are told that the MDT is full and refuse what makes files or adds bytes.
const FULL_PERCENT: u64 = 90;
/// Shares of what users may take, from which on new content of a file lies inline up to so many bytes only: it can lie in objects, and names
/// cannot. The least is about what the layout of objects takes.
const INLINE_STEPS: [(u64, u32); 3] = [(80, 512), (65, 4 << 10), (50, 16 << 10)];
/// From this share on, every transaction that makes the table larger is refused. The rest is for what deletes (which adds
/// records of dead objects before it frees others), for ids, sessions and slots.
const CLOSED_PERCENT: u64 = 96;
/// What the changelog may take, of what users may.
const CHANGES_SHARE: u64 = 8;
/// What a file is reckoned to take when free inodes are estimated: entry and inode of a typical name, with an inline page now
/// and then. Inodes are not pre-allocated, so their free number is an estimate and is said to be one in the documents.
const FILE_BYTES: u64 = 512;

/// Of a leaf's name in the head of a checkpoint: with a key of 18 bytes and one run, and a little more.
const NAME_BYTES: u64 = 72;

/// The room for records.
pub struct Room {
    /// What leaves may take: another copy of them always fits.
    capacity_bytes: u64,
    /// What the head of a checkpoint may, which names the leaves and has the slots.
    head_bytes: u64,
    /// For who has not the writer's role.
    slots_bytes: AtomicU64,
    /// The least of `INLINE_STEPS` that was told of.
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

    /// Of `capacity_bytes`. `table_bytes`: as `kv::View::medium_bytes` has them.
    fn used(&self, table_bytes: u64, slots_bytes: u64) -> u64 {
        let head = u128::from(slots_bytes + table_bytes / types::PAGE_SIZE as u64 * NAME_BYTES);
        // The fuller of the two decides.
        table_bytes.max((head * u128::from(self.capacity_bytes) / u128::from(self.head_bytes)) as u64)
    }

    /// By who changed them.
    pub fn note_slots(&self, slots: &Slots) {
        self.slots_bytes.store(slots.bytes(), Ordering::Relaxed);
    }
    /// What users may take.
    pub fn usable(&self) -> u64 {
        self.share(FULL_PERCENT)
    }
    /// What is taken of `usable`; `table_bytes`: as `kv::View::medium_bytes` has them.
    fn taken(&self, table_bytes: u64) -> u64 {
        self.used(table_bytes, self.slots_bytes.load(Ordering::Relaxed))
    }

    /// What new content may take inline where so much is taken, and from which share of the room on that is so.
    fn inline_step(&self, used: u64) -> Option<&'static (u64, u32)> {
        INLINE_STEPS.iter().find(|(percent, _)| used >= self.usable() / 100 * percent)
    }

    /// What rules are told.
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

    /// Is everything refused that grows?
    pub fn is_closed(&self, table_bytes: u64) -> bool {
        self.taken(table_bytes) >= self.share(CLOSED_PERCENT)
    }
    /// What the changelog may take.
    pub fn changes_max(&self) -> u64 {
        self.usable() / CHANGES_SHARE
    }

    fn share(&self, percent: u64) -> u64 {
        self.capacity_bytes / 100 * percent
    }

    /// May these changes be made after those of `draft`?
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

/// What users may take of an MDT's medium that is not served now: as `TargetStatReply::bytes_total` says while it is.
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
        // A sparse file promises more than its host has.
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
            // Damage of an MDT's records is reported to whoever meets it; a list of it comes with the scrub.
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
