//! Several sessions at one file system, until leases exist: they cache nothing, and take turns at a file's content.
//!
//! A client that shares brackets each call on a file's content by `Enter` and `Leave` (a *section*). `Enter` answers as an open
//! does, so what the client knows of the file is true as long as the section lasts. The MDT also keeps in mind which session has
//! which file open, so that what one unlinks lives on for the others. Neither is logged: after a restart of the MDT each client
//! says by `Hold` what it holds, and nothing is changed before all have, or are dead.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};
use crate::meta::OpenReply;
use crate::object::Capability;

/// `CaughtUp::next` of who has nothing left to send again.
pub const ALL: Seq = Seq(u64::MAX);

bodies! {
    /// Begins the section `token` of `fid`. Exclusive ones are alone; others share. Sections are given in the order in which they
    /// were asked for; who is not `granted` asks again soon, and keeps its place for two seconds.
    /// With `write` it counts as an open for writing, too. `held` as in `Open`.
    /// Tokens rise within a session; below `floor`, here and in what follows, none is in use any more. A section that was left is not
    /// begun again: what asks for it is a copy that came late.
    Enter { fid: Fid, token: u64, floor: u64, exclusive: bool, write: bool, now: Time, held: Option<Capability> }
    EnterReply {
        granted: bool,
        /// As `Open` answers; there if granted.
        open: Option<OpenReply>,
    }
    /// Ends a section. Fine for one that is not held.
    Leave { fid: Fid, token: u64, floor: u64 }
    /// What this session holds: all of it, in one or several parts (`more`). With the last part the session lives by `mode`.
    /// `targets`: the OSTs that it uses.
    Hold { mode: u32, floor: u64, opens: Vec<OpenFile>, sections: Vec<HeldSection>, targets: Vec<CaughtUp>, more: bool }
    OpenFile { fid: Fid, write: bool }
    HeldSection { fid: Fid, token: u64, exclusive: bool }
    /// The session speaks with this incarnation of `target`, and has sent again all that the target lost of entries below `next` of
    /// its earlier life; `ALL`: everything.
    CaughtUp { target: TargetId, incarnation: Incarnation, next: Seq }
    /// Said when a target is found to have restarted, before anything is sent to it, and again when `next` has risen.
    CatchUp { at: CaughtUp }
    /// What the target had lost may be sent again below `until`. `ALL`: the others have sent all, too, and anything new may follow.
    CatchUpReply { until: Seq }
    /// The session has these files open no more. Its token is one of those of `Enter`: a `Close` that was done, or left, does nothing
    /// when it comes again, or late.
    Close { token: u64, floor: u64, fids: Vec<Fid> }
}

calls! {
    0x0270 Enter => EnterReply, mutate;
    0x0271 Leave => Empty, read;
    0x0272 Hold => Empty, read;
    0x0274 CatchUp => CatchUpReply, read;
    0x0275 Close => Empty, read;
}
