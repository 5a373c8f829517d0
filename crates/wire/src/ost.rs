//! Statistics of an OST for a tool: its counters, and its use of space. Both calls need `RIGHT_ADMIN`.

use types::*;

use crate::codec::{bodies, calls};
use crate::object::Capability;

bodies! {
    /// Reads the OST's counters since its start.
    OstStat { cap: Capability }
    OstStatReply {
        /// Seconds since 1970.
        started_sec: u64,
        now_sec: u64,
        /// The device's size in bytes.
        device_bytes: u64,
        /// Writes to the device: one record per purpose.
        writes: Vec<OstWrites>,
        reads: OstSizes,
        flushes: u64,
        bytes_discarded: u64,
        user: OstUser,
        small: OstSmall,
        log_bytes_used: u64,
        log_bytes_total: u64,
        /// Begin of the next two counters, seconds since 1970; 0 = not known.
        service_since_sec: u64,
        service_bytes_written: u64,
        service_user_bytes_written: u64,
        /// Size of the log's own device in bytes; 0: it has none. With one, the log's writes go there and are not in
        /// `service_bytes_written`.
        log_device_bytes: u64,
        /// Sound log entries that the start discarded, since the entries before them were missing.
        log_cut_entries: u64,
        log_cut_bytes: u64,
        index: OstIndex,
        /// The reason why the target refuses all changes; empty if it accepts them.
        failure: String,
    }
    /// Writes for one purpose.
    OstWrites {
        /// 1 = data, 2 = log, 3 = checkpoint, 4 = superblock, 5 = destage.
        purpose: u8,
        sizes: OstSizes,
    }
    /// Requests by size: below 1 KiB, below 2 KiB and so on; the last also counts all larger ones.
    OstSizes { counts: Vec<u64>, bytes: u64 }
    /// Requests of callers.
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
    /// The index of objects, and its share in memory.
    OstIndex {
        memory_bytes: u64,
        memory_bytes_max: u64,
        /// Leaves of the last checkpoint, and how many of them are in memory.
        leaves: u64,
        leaves_loaded: u64,
        /// Objects changed since the last checkpoint began.
        objects_changed: u64,
    }
    /// Reads the use of space: free space, and a part of the objects: those after `after` (`None` first, then `next_after` of the reply).
    OstSpace { cap: Capability, after: Option<ObjectId> }
    /// In parts after the first, all fields but the objects are 0.
    OstSpaceReply {
        bytes_total: u64,
        bytes_free: u64,
        /// Bytes that were superseded and are not sealed yet.
        bytes_waiting: u64,
        bytes_discarding: u64,
        /// Part of the free bytes: promised to objects.
        bytes_reserved: u64,
        /// Part of the free bytes: kept for truncation.
        bytes_reserve: u64,
        /// Part of the free bytes: kept for clients.
        grants: Vec<OstGrant>,
        /// Unit of allocation in bytes.
        sub_block_bytes: u64,
        /// Free runs: element i counts those of 2^i pages to less than twice that.
        free_runs: Vec<OstAmount>,
        largest_run_bytes: u64,
        /// The objects of this part; the sum over all parts is the total.
        objects: OstObjects,
        /// Where the next part begins; `None`: this was the last.
        next_after: Option<ObjectId>,
    }
    /// A session and the bytes kept for it.
    OstGrant { session: SessionId, bytes: u64 }
    OstAmount { count: u64, bytes: u64 }
    /// Space of the objects.
    OstObjects {
        objects: u64,
        /// Objects with bytes on the medium.
        with_bytes: u64,
        /// Pieces that are not contiguous on the medium.
        fragments: u64,
        fragments_max: u64,
        bytes_reserved: u64,
        /// Extents by size: element i counts those of up to 2^i pages and more than half that.
        classes: Vec<OstClass>,
    }
    OstClass { extents: u64, bytes_allocated: u64, bytes_stored: u64 }
}

/// Values of `OstWrites::purpose`.
pub mod purpose {
    pub const DATA: u8 = 1;
    pub const LOG: u8 = 2;
    pub const CHECKPOINT: u8 = 3;
    pub const SUPERBLOCK: u8 = 4;
    pub const DESTAGE: u8 = 5;

    /// The word for people and tools.
    pub fn word(purpose: u8) -> &'static str {
        match purpose {
            DATA => "data",
            LOG => "log",
            CHECKPOINT => "checkpoint",
            SUPERBLOCK => "superblock",
            DESTAGE => "destage",
            _ => "other",
        }
    }
}

calls! {
    0x0310 OstStat => OstStatReply, read;
    0x0311 OstSpace => OstSpaceReply, read;
}
