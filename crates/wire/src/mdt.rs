//! Statistics of an MDT for a tool: the space of its records, and their share in memory. Needs `RIGHT_ADMIN`.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};
use crate::object::{Capability, ScrubReply};
use crate::shared::LeaseKind;

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
    /// Leases that clients hold, of names and of content. `fid`: only those of this file or directory; 0: all. Needs `RIGHT_ADMIN`.
    MdtLeases { cap: Capability, fid: Fid }
    MdtLeasesReply {
        clients: Vec<ClientLeases>,
        /// Leases of content, at most `LEASES_MAX`.
        files: Vec<FileLease>,
        /// Calls that wait for a lease of content, at most `LEASES_MAX`.
        waits: Vec<LeaseWait>,
        /// There are more than these.
        more: bool,
        /// Changes of names and attributes that wait for clients to forget.
        changes_waiting: u64,
        /// Their inodes and holders, at most `LEASES_MAX`.
        names: Vec<NameWait>,
    }
    /// A session, milliseconds since it was heard of and until its leases end, and how many it holds: of directories and of files.
    ClientLeases { session: SessionId, name: String, silent_ms: u64, left_ms: u64, dirs: u64, files: u64 }
    /// `wanted_ms`: milliseconds since another session wanted it first; 0: none does.
    FileLease { fid: Fid, session: SessionId, kind: LeaseKind, wanted_ms: u64 }
    LeaseWait { fid: Fid, session: SessionId, kind: LeaseKind, waited_ms: u64 }
    /// A change of a session that waits for a holder: of the names in directory `fid`, or of the attributes of inode `fid`.
    NameWait { fid: Fid, session: SessionId, holder: SessionId, waited_ms: u64 }
    /// Ends a session, as if its client were dead. Needs `RIGHT_ADMIN`.
    EvictSession { cap: Capability, session: SessionId }
    /// Reads or changes the state of this member's scrub: it reads the records from the medium and checks them. `action` is a number of
    /// `object::scrub_action`. `rate`: bytes per second until this member ends; 0 = no bound. In the reply objects are records and pages are
    /// leaves; those are repaired that were written anew.
    ScrubRecords { action: u8, rate: Option<u64> }
}

/// Most leases in one answer.
pub const LEASES_MAX: usize = 10_000;

calls! {
    0x02c0 MdtStat => MdtStatReply, read;
    0x02c1 MdtLeases => MdtLeasesReply, read;
    0x02c2 EvictSession => Empty, read;
    0x02c3 ScrubRecords => ScrubReply, read;
}
