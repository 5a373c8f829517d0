//! The numbers for `statfs` and status.

use std::sync::atomic::Ordering;

use disk::volume::Volume;
use kv::{Engine, View};
use types::Fault;
use wire::mdt::{MdtStat, MdtStatReply};
use wire::session::TargetStatReply;

use crate::executor::room::Room;
use crate::records::look::look;
use crate::rules::Rules;
use crate::{Core, Records};

/// Bytes per file in the estimate of free inodes: entry and inode of a typical name, with an inline page now and then. Inodes are not
/// pre-allocated, so the documents call their free number an estimate.
const FILE_BYTES: u64 = 512;

/// An MDT's volume and records, which serve clients or stand by.
pub struct Stood<'s> {
    pub volume: &'s Volume,
    pub kv: &'s Records,
    pub rules: &'s dyn Rules,
    pub room: &'s Room,
    pub sessions: u32,
}

impl Stood<'_> {
    pub fn target_stat(&self) -> Result<TargetStatReply, Fault> {
        let label = self.volume.label();
        let used = self.room.taken(self.kv.reader().medium_bytes());
        let inodes = look(self.kv, &mut |view| self.rules.inodes(view))?;
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
            sessions: self.sessions,
            // Damage of records is reported to the request that meets it. There is no list of it yet.
            damage_count: 0,
            log_bytes_used: self.volume.log_used().min(self.volume.log_capacity()),
            log_bytes_total: self.volume.log_capacity(),
            last_seq: self.volume.last_seq(),
            failure: self.volume.failure().unwrap_or_default().into(),
            superblock_copies: self.volume.superblock_copies_good(),
            late_bytes: 0,
            late_us: 0,
        })
    }
}

impl Core {
    pub fn target_stat(&self) -> Result<TargetStatReply, Fault> {
        let sessions = self.sessions.count() as u32;
        let (volume, kv, rules, room) = (&*self.volume, &self.kv, &*self.rules, &self.room);
        Stood { volume, kv, rules, room, sessions }.target_stat()
    }

    pub fn on_mdt_stat(&self, req: &MdtStat) -> Result<MdtStatReply, Fault> {
        self.check_admin(&req.cap)?;
        self.mdt_stat()
    }

    pub fn mdt_stat(&self) -> Result<MdtStatReply, Fault> {
        let counts = &self.leases.counts;
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
            inline_max: self.inline_max(&*self.joined()?),
            inline_limit: self.room.inline_step(used).map_or(u32::MAX, |(_, max)| *max),
            memory_bytes: figures.memory_bytes,
            memory_bytes_max: figures.memory_bytes_max,
            leaves_brought: figures.loads,
            leaves_taken_out: figures.evictions,
            stretches_lost: self.kv.lost(),
            moves: figures.moves,
            states_kept: figures.states_kept as u64,
            log_bytes_used: self.volume.log_used().min(self.volume.log_capacity()),
            log_bytes_total: self.volume.log_capacity(),
            leases: self.leases.held() as u64,
            recalls: counts.recalls.load(Ordering::Relaxed),
            recall_us: counts.waited_us.load(Ordering::Relaxed),
            recall_us_max: counts.longest_us.load(Ordering::Relaxed),
            failure: self.volume.failure().unwrap_or_default().into(),
        })
    }
}
