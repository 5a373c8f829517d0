//! OstStat and OstSpace: the target's counters and its use of space, for tools.

use disk::counted::Sizes;
use store::{Amount, ClassUse, Cursor, SpaceReport, Survey};
use types::Fault;
use wire::Wire;
use wire::object::RIGHT_ADMIN;
use wire::ost::{
    OstAmount, OstClass, OstGrant, OstIndex, OstObjects, OstSizes, OstSmall, OstSpace, OstSpaceReply,
    OstStat, OstStatReply, OstUser, OstWrites, purpose,
};

use crate::Core;
use crate::serve::{Ctx, Served};

/// Objects of one reply: a survey of a few milliseconds.
const OBJECTS_AT_ONCE: u64 = 16 << 10;

impl Core {
    pub fn on_ost_stat(&self, ctx: &Ctx<'_>, s: OstStat, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &s.cap, RIGHT_ADMIN)?;
        self.ost_stat(ctx.now_sec).put(reply);
        Ok(Served::READ)
    }

    pub fn ost_stat(&self, now_sec: u64) -> OstStatReply {
        let s = self.store.stats();
        let d = &s.device;
        let by_purpose = [
            (purpose::DATA, &d.data),
            (purpose::LOG, &d.log),
            (purpose::CHECKPOINT, &d.checkpoint),
            (purpose::SUPERBLOCK, &d.superblock),
            (purpose::DESTAGE, &d.destage),
        ];
        let writes = |(purpose, sizes)| OstWrites { purpose, sizes: sizes_on_wire(sizes) };
        OstStatReply {
            started_sec: self.started_sec,
            now_sec,
            device_bytes: d.bytes,
            writes: by_purpose.map(writes).into(),
            reads: sizes_on_wire(&d.reads),
            flushes: d.flushes,
            bytes_discarded: d.bytes_discarded,
            user: OstUser {
                writes: s.user.writes,
                bytes_written: s.user.bytes_written,
                reads: s.user.reads,
                bytes_read: s.user.bytes_read,
            },
            small: OstSmall {
                patched_writes: s.small.patched_writes,
                patched_bytes: s.small.patched_bytes,
                destaged_pages: s.small.destaged_pages,
                destaged_bytes: s.small.destaged_bytes,
                overlay_bytes: s.small.overlay_bytes,
                overlay_bytes_max: s.small.overlay_bytes_max,
            },
            log_bytes_used: s.log_bytes_used,
            log_bytes_total: s.log_bytes_total,
            service_since_sec: s.service.since_sec,
            service_bytes_written: s.service.bytes_written,
            service_user_bytes_written: s.service.user_bytes_written,
            log_device_bytes: d.log_device_bytes,
            log_cut_entries: s.cut_off.entries,
            log_cut_bytes: s.cut_off.bytes,
            index: OstIndex {
                memory_bytes: s.index.memory_bytes,
                memory_bytes_max: s.index.memory_bytes_max,
                leaves: s.index.leaves,
                leaves_loaded: s.index.leaves_loaded,
                objects_changed: s.index.objects_changed,
            },
            failure: self.store.health().failure.unwrap_or_default(),
        }
    }

    fn grants(&self) -> Vec<OstGrant> {
        self.store.grants().into_iter().map(|(session, bytes)| OstGrant { session, bytes }).collect()
    }

    pub fn on_ost_space(&self, ctx: &Ctx<'_>, s: OstSpace, reply: &mut Vec<u8>) -> Result<Served, Fault> {
        self.check_cap_right(ctx, &s.cap, RIGHT_ADMIN)?;
        let (part, next) = self.store.survey(Cursor::behind(s.after), OBJECTS_AT_ONCE)?;
        // The space report is the same for all parts, and needs a walk over the allocator. Only the first part has it.
        let is_first = s.after.is_none();
        let space = if is_first { self.store.space() } else { SpaceReport::default() };
        let amount = |a: &Amount| OstAmount { count: a.count, bytes: a.bytes };
        OstSpaceReply {
            bytes_total: space.bytes_total,
            bytes_free: space.bytes_free,
            bytes_waiting: space.bytes_waiting,
            bytes_discarding: space.bytes_discarding,
            bytes_reserved: space.bytes_reserved,
            bytes_reserve: space.bytes_reserve,
            grants: if is_first { self.grants() } else { vec![] },
            sub_block_bytes: space.sub_block_bytes,
            free_runs: space.free_runs.iter().map(amount).collect(),
            largest_run_bytes: space.largest_run_bytes,
            objects: objects_on_wire(&part),
            next_after: next.and_then(|next| next.after()),
        }
        .put(reply);
        Ok(Served::READ)
    }
}

fn sizes_on_wire(s: &Sizes) -> OstSizes {
    OstSizes { counts: s.counts.into(), bytes: s.bytes }
}

fn objects_on_wire(s: &Survey) -> OstObjects {
    let class = |c: &ClassUse| {
        let ClassUse { extents, bytes_allocated, bytes_stored } = *c;
        OstClass { extents, bytes_allocated, bytes_stored }
    };
    OstObjects {
        objects: s.objects,
        with_bytes: s.objects_with_bytes,
        fragments: s.fragments,
        fragments_max: s.fragments_max,
        bytes_reserved: s.bytes_reserved,
        classes: s.classes.iter().map(class).collect(),
    }
}
