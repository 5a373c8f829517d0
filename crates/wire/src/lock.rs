//! A client and an MDT: locks of files (decision 0015). None of these is logged; each may be sent twice.

use types::*;

use crate::Empty;
use crate::codec::{Malformed, Reader, Wire, bodies, calls};

/// Last byte of a lock that reaches to the end of the file, wherever that will be: the kernel's `OFFSET_MAX`.
pub const LOCK_END_MAX: u64 = i64::MAX as u64;
/// Most locks in one `Reclaim`, and most tickets in one `AwaitLocks`: bodies stay below 256 KiB.
pub const LOCKS_PER_CALL_MAX: usize = 4096;

bodies! {
    /// The order of a session's lock requests. `number` rises with each; `floor` is the lowest that is not answered yet. A request
    /// below the highest floor that the MDT has seen is a copy that came late, and is refused.
    Turn { number: u64, floor: u64 }
    /// Takes a lock, changes one, or gives bytes back (`Unlock`). The same request again gives the same state. With `wait` a
    /// request that conflicts is queued under `ticket` (unique in the session) and answered `Wait`; it keeps its place if the client
    /// asks again, by this call or by `AwaitLocks`, within two seconds.
    Lock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind, pid: u32, wait: bool, ticket: u64, turn: Turn }
    LockReply { outcome: LockOutcome }
    /// The lock that would stand in the way of this one.
    TestLock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind }
    TestLockReply { found: Option<FoundLock> }
    FoundLock { session: SessionId, start: u64, end: u64, kind: LockKind, pid: u32 }
    /// Gives a place in the queue up.
    CancelLock { fid: Fid, space: LockSpace, ticket: u64, turn: Turn }
    /// After a restart of the MDT: what this session held. The last call of a series says so (`more` false).
    Reclaim { locks: Vec<HeldLock>, more: bool }
    /// Those that could not be given back, by their place in `locks`.
    ReclaimReply { refused: Vec<u32> }
    HeldLock { fid: Fid, space: LockSpace, owner: u64, start: u64, end: u64, kind: LockKind, pid: u32 }
    /// Gives back all that an owner holds of a file.
    DropOwner { fid: Fid, space: LockSpace, owner: u64, turn: Turn }
    /// Keeps places in queues; answered when one of them may be taken, or after `patience_ms`, or at once if the session's turn has
    /// come at a place that is not in the list.
    AwaitLocks { waiting: Vec<WaitingLock>, patience_ms: u32 }
    WaitingLock { fid: Fid, space: LockSpace, ticket: u64 }
    /// The tickets to ask for now (also those that the MDT does not know any more).
    AwaitLocksReply { ready: Vec<u64> }
}

macro_rules! numbered {
    ($($(#[$m:meta])* $name:ident, $what:literal { $($(#[$vm:meta])* $v:ident = $n:literal,)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vm])* $v = $n,)* }
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                match u8::get(r)? {
                    $($n => Ok($name::$v),)*
                    _ => Err(Malformed($what)),
                }
            }
        }
    )*};
}

numbered! {
    /// Which locks of a file know of each other.
    LockSpace, "lock space" {
        /// fcntl: a process's, or an open file description's.
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
        /// Another holds it, and the request would not wait.
        Conflict = 2,
        /// Queued: ask again.
        Wait = 3,
        /// To wait would be to wait for ever.
        Deadlock = 4,
        /// The session has as many locks as one may have.
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
