//! Statistics of an MDT for a tool: the space of its records, and their share in memory. Needs `RIGHT_ADMIN`.

use crate::codec::{bodies, calls};
use crate::object::Capability;

bodies! {
    MdtStat { cap: Capability }
    MdtStatReply {
        /// Seconds since 1970.
        started_sec: u64,
        now_sec: u64,
        /// Number of the last change: the difference of two replies is the number of changes between them.
        last_seq: u64,
        sessions: u32,
        records: u64,
        leaves: u64,
        /// Space of the leaves on the medium, and the space that users may take there. Bytes.
        room_bytes_used: u64,
        room_bytes_total: u64,
        /// Content up to this many bytes lies inline, unless `setstripe` set another limit.
        inline_max: u32,
        /// New content beyond this many bytes lies inline nowhere, because free space is low; `u32::MAX`: there is enough.
        inline_limit: u32,
        /// Memory of the records, and its bound (`mdt_cache`). Bytes.
        memory_bytes: u64,
        memory_bytes_max: u64,
        /// Leaves brought into memory and removed from it, since the start.
        leaves_brought: u64,
        leaves_taken_out: u64,
        /// Ranges of records that are known to be lost.
        stretches_lost: u64,
        /// How often the mover moved changes to the tree, since the start.
        moves: u64,
        /// Snapshots that are kept for readers, beside the newest state.
        states_kept: u64,
        log_bytes_used: u64,
        log_bytes_total: u64,
        /// Name leases held, one for each directory and session.
        leases: u64,
        /// Changes that waited until other clients had forgotten what they cached, since the start; microseconds of all these waits, and of the
        /// longest.
        recalls: u64,
        recall_us: u64,
        recall_us_max: u64,
        /// The reason why the target refuses all changes; empty if it accepts them.
        failure: String,
    }
}

calls! {
    0x02c0 MdtStat => MdtStatReply, read;
}
