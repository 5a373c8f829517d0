//! The state of the purge, for a client that lacks free space: objects of removed files are destroyed a moment later, which frees their
//! space.

use types::*;

use crate::codec::{bodies, calls};

bodies! {
    /// Asks whether files in the unlink log have objects on these mirrors. If so, the MDT hurries the purge unless it is held up.
    Dying { mirrors: Vec<MirrorId> }
    /// The purge walks the unlink log in rounds, and begins a new walk at its end. Counts are since the MDT's start. A record that
    /// existed at this call has been visited once a walk that began later has ended.
    DyingReply {
        dying: bool,
        /// The purge makes no progress for now: the last whole walk freed nothing, and nothing was removed since it began. Some OST does
        /// not answer; the purge tries it again later.
        held_up: bool,
        walks_begun: u64,
        walks_ended: u64,
        rounds: u64,
        /// Records of the unlink log that are gone.
        freed: u64,
        /// Records added to the unlink log, and newer maps: changes by which a walk may find more than the one before it.
        news: u64,
    }
}

calls! {
    0x0280 Dying => DyingReply, read;
}
