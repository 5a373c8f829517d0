//! A tool and an MDT: what its records take, and how much of that is in memory. It asks for `RIGHT_ADMIN`.

use crate::codec::{bodies, calls};
use crate::object::Capability;

bodies! {
    MdtStat { cap: Capability }
    MdtStatReply {
        /// Seconds since 1970.
        started_sec: u64,
        now_sec: u64,
        /// Of the last change: two of them tell how many there were.
        last_seq: u64,
        sessions: u32,
        records: u64,
        leaves: u64,
        /// What they take on the medium, and what users may take there.
        room_bytes_used: u64,
        room_bytes_total: u64,
        /// Content lies inline up to so many bytes, where `setstripe` said nothing else.
        inline_max: u32,
        /// New content nowhere does beyond so many, since little room is left; `u32::MAX`: there is enough.
        inline_limit: u32,
        /// What is in memory, and its bound (`mdt_cache`).
        memory_bytes: u64,
        memory_bytes_max: u64,
        /// Leaves, since its start: brought into memory, and taken out of it.
        leaves_brought: u64,
        leaves_taken_out: u64,
        /// Stretches of records that are known to be lost.
        stretches_lost: u64,
        /// How often changes were moved to the tree, since its start.
        moves: u64,
        /// States that somebody reads or read, beside the newest.
        states_kept: u64,
        log_bytes_used: u64,
        log_bytes_total: u64,
        /// Why the target refuses all changes; empty if it does not.
        failure: String,
    }
}

calls! {
    0x02c0 MdtStat => MdtStatReply, read;
}
