//! TargetStat: the target's numbers, for `statfs`, `df` and `status`.

use std::time::Instant;

use types::Fault;
use wire::Wire;
use wire::session::TargetStatReply;

use crate::Core;
use crate::serve::{Ctx, Served};

impl Core {
    pub fn on_target_stat(&self, ctx: &Ctx<'_>, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        let u = self.store.usage();
        let health = self.store.health();
        assert!(u.bytes_available <= u.bytes_free, "the reserve is part of the free space");
        assert!(u.bytes_free <= u.bytes_total, "free space is part of the medium");
        let (late_bytes, late_us) = self.pace.of_late(Instant::now());
        TargetStatReply {
            target: ctx.joined.target,
            is_mdt: false,
            index: ctx.joined.index,
            uuid: self.store.label().uuid,
            bytes_total: u.bytes_total,
            bytes_free: u.bytes_free,
            bytes_available: u.bytes_available,
            files_total: u.objects + u.objects_free,
            files_free: u.objects_free,
            sessions: self.store.session_count() as u32,
            damage_count: self.store.damage().len() as u64,
            // Two numbers that change meanwhile, and a log of an earlier release may use one page more.
            log_bytes_used: u.log_bytes_used.min(u.log_bytes_total),
            log_bytes_total: u.log_bytes_total,
            last_seq: self.store.last_seq(),
            failure: health.failure.or(health.index_damage).unwrap_or_default(),
            superblock_copies: health.superblock_copies,
            late_bytes,
            late_us,
        }
        .put(reply);
        Ok(Served::READ)
    }
}
