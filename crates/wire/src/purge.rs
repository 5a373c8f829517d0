//! The purge, as who lacks room asks after it: what was removed is destroyed a moment later, and its space is free then.

use types::*;

use crate::codec::{bodies, calls};

bodies! {
    /// Do dead records name objects of these mirrors? If so the purge is hurried, unless it is held up.
    Dying { mirrors: Vec<MirrorId> }
    /// The purge walks through the dead records in rounds, and begins a new walk at their end. Counted from the MDT's start: a record
    /// that was there when this was asked has had its turn when a walk that began later has ended.
    DyingReply {
        dying: bool,
        /// Nothing comes of it for now: the last whole walk freed nothing, and nothing was removed since it began. Some OST does not
        /// answer, and is tried again in its time.
        held_up: bool,
        walks_begun: u64,
        walks_ended: u64,
        rounds: u64,
        /// Dead records that are gone.
        freed: u64,
        /// Dead records that were added, and newer maps: what a walk may find that one before it did not.
        news: u64,
    }
}

calls! {
    0x0280 Dying => DyingReply, read;
}
