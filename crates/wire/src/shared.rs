//! Several sessions of one file system: leases of files' content, and what each session has open.
//!
//! `Enter` takes a lease (decision 0054; in code also *section*), and `Leave` gives it back. `Enter` answers like an open, so the client's
//! knowledge of the file is current as long as a shared or exclusive lease lasts. The MDT also remembers which session has which file open,
//! so that a file that one session unlinks stays for the others. Neither is logged. After a restart of the MDT each client reports by `Hold`
//! what it holds. The MDT allows changes once all sessions have reported or are evicted.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls, numbered};
use crate::meta::OpenReply;
use crate::object::Capability;

/// `CaughtUp::next` of a session that has no more requests to replay.
pub const ALL: Seq = Seq(u64::MAX);

bodies! {
    /// Takes the lease `token` of `fid`. With `Many` the MDT grants an exclusive lease, or a many lease if other sessions write the file
    /// (decision 0055). Leases are granted in FIFO order. A client without `granted` asks again soon, and keeps its queue position for two seconds. With `write` it also counts as an open for
    /// writing. `held` as in `Open`. Tokens rise within a session; below `floor`, here and in the next calls, no token is in use any
    /// more. A section that was left does not begin again: such a request is a late copy.
    Enter { fid: Fid, token: u64, floor: u64, kind: LeaseKind, write: bool, now: Time, held: Option<Capability> }
    EnterReply {
        /// The kind of the lease that is held now; `None`: it is not granted yet.
        granted: Option<LeaseKind>,
        /// The answer of an `Open`; present if granted.
        open: Option<OpenReply>,
    }
    /// Ends a section. No error if it is not held.
    Leave { fid: Fid, token: u64, floor: u64 }
    /// Reports everything that this session holds, in one or several parts (`more`). With the last part the session takes `mode`.
    /// `mirrors`: those of the OSTs that it uses. `dirs`: directories with changes that the MDT may not have heard of.
    Hold { mode: u32, floor: u64, opens: Vec<OpenFile>, sections: Vec<HeldSection>, dirs: Vec<HeldDir>, mirrors: Vec<CaughtUp>,
        more: bool,
    }
    /// A lease that `LeaseDir` gave.
    HeldDir { dir: Fid, number: u64 }
    OpenFile { fid: Fid, write: bool }
    HeldSection { fid: Fid, token: u64, kind: LeaseKind }
    /// The session uses this incarnation of `mirror`. It has replayed all requests that the mirror lost of entries below `next` of its
    /// earlier incarnation; `ALL`: every one.
    CaughtUp { mirror: MirrorId, incarnation: Incarnation, next: Seq }
    /// Sent when a target is found to have restarted, before any other request to it, and again when `next` has risen.
    CatchUp { at: CaughtUp }
    /// The client may replay lost requests below `until`. `ALL`: the other sessions have replayed theirs too, and new requests may
    /// follow.
    CatchUpReply { until: Seq }
    /// Reports that the session no longer has these files open. Its token is from the same sequence as those of `Enter`: a `Close` whose
    /// token has ended (it was carried out, left, or is below the floor) has no effect when it comes again or late.
    Close { token: u64, floor: u64, fids: Vec<Fid> }
}

numbered! {
    /// A lease of a file's content. Leases of different sessions conflict, unless both are shared or both are many.
    LeaseKind, "lease kind" {
        /// The content does not change.
        Shared = 1,
        /// Several sessions write, and none caches anything (decision 0055).
        Many = 2,
        /// No other session uses the content.
        Exclusive = 3,
    }
}

calls! {
    0x0270 Enter => EnterReply, mutate;
    0x0271 Leave => Empty, read;
    0x0272 Hold => Empty, read;
    0x0274 CatchUp => CatchUpReply, read;
    0x0275 Close => Empty, read;
}
