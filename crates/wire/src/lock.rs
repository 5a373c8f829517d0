//! File locks between a client and an MDT (decision 0015). None of these calls is logged; each may be sent twice.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls, numbered};

/// Last byte of a lock that reaches to the end of the file, however long it grows: the kernel's `OFFSET_MAX`.
pub const LOCK_END_MAX: u64 = i64::MAX as u64;
/// Most locks in one `Reclaim`, and most tickets in one `AwaitLocks`: bodies stay below 256 KiB.
pub const LOCKS_PER_CALL_MAX: usize = 4096;

bodies! {
    /// The order of a session's lock requests. `number` rises with each; `floor` is the lowest that is not answered yet. The MDT refuses
    /// a request below the highest floor that it has seen: it is a late copy.
    Turn { number: u64, floor: u64 }
    /// Takes a lock, changes one, or gives bytes back (`Unlock`). A repeat gives the same state. With `wait` a conflicting request is
    /// queued under `ticket` (unique in the session) and answered `Wait`. It keeps its queue position if the client asks again within two
    /// seconds, by this call or by `AwaitLocks`.
    Lock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind, pid: u32, wait: bool, ticket: u64, turn: Turn }
    LockReply { outcome: LockOutcome }
    /// Looks for a lock that conflicts with this one.
    TestLock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind }
    TestLockReply { found: Option<FoundLock> }
    FoundLock { session: SessionId, start: u64, end: u64, kind: LockKind, pid: u32 }
    /// Gives up a queue position.
    CancelLock { fid: Fid, space: LockSpace, ticket: u64, turn: Turn }
    /// Reports, after a restart of the MDT, the locks that this session held. `more` is false in the last call of a series.
    Reclaim { locks: Vec<HeldLock>, more: bool }
    /// The locks that the MDT could not restore, by their position in `locks`.
    ReclaimReply { refused: Vec<u32> }
    HeldLock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind, pid: u32 }
    /// Releases all locks of an owner on a file.
    DropOwner { fid: Fid, space: LockSpace, owner: u64, turn: Turn }
    /// Keeps queue positions. It is answered at once; a lock that becomes free is told by the notice `LocksFree`.
    AwaitLocks { waiting: Vec<WaitingLock> }
    WaitingLock { fid: Fid, space: LockSpace, ticket: u64 }
    /// The tickets to ask for now, with those that the MDT does not know.
    AwaitLocksReply { ready: Vec<u64> }
}

numbered! {
    /// The space of a lock: locks of different spaces do not conflict.
    LockSpace, "lock space" {
        /// fcntl: a lock of a process, or of an open file description.
        Posix = 1,
        /// flock.
        Flock = 2,
    }
    LockKind, "lock kind" {
        Read = 1,
        Write = 2,
        Unlock = 3,
    }
    LockOutcome, "lock outcome" {
        Granted = 1,
        /// Another owner holds a conflicting lock, and the request does not wait.
        Conflict = 2,
        /// Queued: the client asks again.
        Wait = 3,
        /// Waiting would be a deadlock.
        Deadlock = 4,
        /// The session holds as many locks as one may hold.
        Full = 5,
    }
}

calls! {
    0x0260 Lock => LockReply, read;
    0x0261 TestLock => TestLockReply, read;
    0x0262 CancelLock => Empty, read;
    0x0263 Reclaim => ReclaimReply, read;
    0x0264 DropOwner => Empty, read;
    0x0265 AwaitLocks => AwaitLocksReply, read;
}
