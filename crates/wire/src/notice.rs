//! Notices from a server to a client, over a line (`net::notices`). A notice's request id is its number.

use types::*;

use crate::codec::{bodies, calls};

bodies! {
    /// Begins a line for the sender's session. `outbox` and `taken`: the outbox whose notices the client took last, and up to which number.
    Listen { outbox: u64, taken: u64 }
    /// `next`: the number of the first notice that the client has not taken.
    ListenReply { outbox: u64, next: u64 }
    /// Answers a notice: all up to `taken` were taken.
    Taken { taken: u64 }
    /// Notices were dropped: ask for everything that they tell of.
    LookAround {}
    /// The mode by which the client must live has changed: another client came, or left (`KeepAliveReply::mode`).
    ModeChanged { mode: u32 }
    /// Locks that the session waits for are free: ask for these tickets.
    LocksFree { tickets: Vec<u64> }
    /// The session was ended by the MDT. What the client has not written back is lost.
    Evicted { why: String }
    /// Other sessions change these. The client forgets them before it takes the notice.
    Forget { items: Vec<Forgotten> }
    /// `fid`: attributes to forget, of this child of `dir`. `h64`: a name in `dir` to forget, by its hash; 0: none. `whole`: all that is cached
    /// of `dir`, whose lease ends.
    Forgotten { dir: Fid, h64: u64, fid: Fid, whole: bool }
    /// Other sessions want these content leases: give them back, once the calls that use them have ended.
    GiveBack { items: Vec<Wanted> }
    /// The lease of `fid` that was granted with this token (`wire::shared::Enter`).
    Wanted { fid: Fid, token: u64 }
    /// Begins a line at the MGS, over which it sends `NewMap`. The answer has the version of the present map.
    WatchMap {}
    WatchMapReply { version: u64 }
    /// There is a newer cluster map: fetch it. Not acknowledged.
    NewMap { version: u64 }
}

calls! {
    0x0110 Listen => ListenReply, read;
    0x0111 LookAround => Taken, read;
    0x0112 ModeChanged => Taken, read;
    0x0113 LocksFree => Taken, read;
    0x0114 Evicted => Taken, read;
    0x0115 Forget => Taken, read;
    0x0116 GiveBack => Taken, read;
    0x0404 WatchMap => WatchMapReply, read;
    0x0405 NewMap => Taken, read;
}

/// Most items of one `Forget`.
pub const FORGOTTEN_MAX: usize = 256;
/// Most tickets in one `LocksFree`.
pub const TICKETS_MAX: usize = 512;
