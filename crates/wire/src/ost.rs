//! A tool and an OST: what the target did and how its space is used. Both ask for `RIGHT_ADMIN`.

use types::*;

use crate::codec::{bodies, calls};
use crate::object::Capability;

bodies! {
    /// What the OST did since its start.
    OstStat { cap: Capability }
    OstStatReply {
        /// Seconds since 1970.
        started_sec: u64,
        now_sec: u64,
        /// The device's size.
        device_bytes: u64,
        /// Writes to the device, each purpose once.
        writes: Vec<OstWrites>,
        reads: OstSizes,
        flushes: u64,
        bytes_discarded: u64,
        user: OstUser,
        small: OstSmall,
        log_bytes_used: u64,
        log_bytes_total: u64,
        /// Since when the next two count, seconds since 1970; 0 = not known.
        service_since_sec: u64,
        service_bytes_written: u64,
        service_user_bytes_written: u64,
        /// The size of the device that the log has of its own; 0: it has none. Then the writes for the log go there, and are not in
        /// `service_bytes_written`.
        log_device_bytes: u64,
        /// Sound log entries that the start left out, since what goes before them was not there.
        log_cut_entries: u64,
        log_cut_bytes: u64,
        index: OstIndex,
        /// Why the target refuses all changes; empty if it does not.
        failure: String,
    }
    /// Writes for one purpose.
    OstWrites {
        /// 1 = data, 2 = log, 3 = checkpoint, 4 = superblock, 5 = destage.
        purpose: u8,
        sizes: OstSizes,
    }
    /// Requests by size: below 1 KiB, below 2 KiB and so on; the last also has all that are larger.
    OstSizes { counts: Vec<u64>, bytes: u64 }
    /// What callers wrote and read.
    OstUser { writes: u64, bytes_written: u64, reads: u64, bytes_read: u64 }
    /// The small-write log.
    OstSmall {
        patched_writes: u64,
        patched_bytes: u64,
        destaged_pages: u64,
        destaged_bytes: u64,
        overlay_bytes: u64,
        overlay_bytes_max: u64,
    }
    /// The index of objects: what lies in memory of it.
    OstIndex {
        memory_bytes: u64,
        memory_bytes_max: u64,
        /// Of the last checkpoint, and those of them that are in memory.
        leaves: u64,
        leaves_loaded: u64,
        /// Since the last checkpoint began.
        objects_changed: u64,
    }
    /// How space is used: what is free, and a part of the objects, of those behind `after`. (`None` first, then as the reply before says.)
    OstSpace { cap: Capability, after: Option<ObjectId> }
    /// But for the objects, all is 0 in parts after the first.
    OstSpaceReply {
        bytes_total: u64,
        bytes_free: u64,
        /// Superseded and not yet sealed.
        bytes_waiting: u64,
        bytes_discarding: u64,
        /// Of what is free: promised to objects.
        bytes_reserved: u64,
        /// Of what is free: kept for truncation.
        bytes_reserve: u64,
        /// Of what is free: kept for clients.
        grants: Vec<OstGrant>,
        /// Space is given out in pieces of this.
        sub_block_bytes: u64,
        /// Free runs of 2^i pages to less than twice that.
        free_runs: Vec<OstAmount>,
        largest_run_bytes: u64,
        /// Of this part: parts add up.
        objects: OstObjects,
        /// Where to go on; `None`: that was all.
        next_after: Option<ObjectId>,
    }
    /// A session and what is kept for it.
    OstGrant { session: SessionId, bytes: u64 }
    OstAmount { count: u64, bytes: u64 }
    /// What objects take.
    OstObjects {
        objects: u64,
        /// Objects with bytes on the medium.
        with_bytes: u64,
        /// Pieces that lie apart on the medium.
        fragments: u64,
        fragments_max: u64,
        bytes_reserved: u64,
        /// Extents of up to 2^i pages, and more than half that.
        classes: Vec<OstClass>,
    }
    OstClass { extents: u64, bytes_allocated: u64, bytes_stored: u64 }
}

/// `OstWrites::purpose`.
pub mod purpose {
    pub const DATA: u8 = 1;
    pub const LOG: u8 = 2;
    pub const CHECKPOINT: u8 = 3;
    pub const SUPERBLOCK: u8 = 4;
    pub const DESTAGE: u8 = 5;
}

calls! {
    0x0310 OstStat => OstStatReply, read;
    0x0311 OstSpace => OstSpaceReply, read;
}
