//! Rules of a mirror: two members with one content, of which any one may be lost.
//!
//! The crate has no I/O, no clock and no randomness. A daemon gives a `Member` events with the time, and carries out its effects. The MGS
//! asks `next_members` which map follows from a request. Decision 0065 tells the design, and where the model corrected it.
//!
//! ```text
//! order     mirror-O1 to O6   the order of entries, answers, flushed sequences
//! reads     mirror-R1, R2     reads at either member
//! promise   mirror-P1 to P4   promises not to act alone
//! member    mirror-E1 to E4   roles, askings, admission
//!           mirror-J2 to J6   return
//! history   mirror-J1         how far two logs are the same
//! resync    mirror-F1 to F6   resync by log or by fills, beside live writes
//! decide    mirror-D1 to D4   the MGS's decisions
//! behind    mirror-D5         the same for a map that was restored
//! ```
//!
//! The rules promise these six, and `model` checks them:
//!
//! 1. Never two members that order at one moment; none that serves beside one that is alone; alone only if the map says so.
//! 2. A write that was answered or read is lost only if every in-sync member lost it by a loss of power before a flush.
//! 3. A write that was reported as flushed is durable at every member that the map has in sync.
//! 4. Reads of one object never go back in time, at whichever member.
//! 5. The backup that serves has no entry that its primary has not.
//! 6. In contact, with no fault any more, both members are in sync again with equal logs; a lone in-sync member serves.

pub mod behind;
pub mod decide;
mod history;
mod letter;
mod member;
pub mod on_map;
pub mod order;
mod planted;
pub mod promise;
pub mod reads;
pub mod resync;
mod types;

pub use decide::{Reports, Request, Verdict, Why, next_members};
pub use history::History;
pub use letter::{Effect, Letter, Note};
pub use member::Member;
pub use types::{Ending, Ends, Line, MemberId, MemberState, Members, MirrorSeq, Position, Role, Standing};

#[cfg(test)]
mod model;
