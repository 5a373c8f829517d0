//! The rules of a request to an OST: pure functions over values that touch no store.
//!
//! - `cap`: makes and checks capabilities, with one key per file system.
//! - `fence`: lease versions only rise; a request with a lower version than the object has seen is refused.
//! - `slots`: exactly once: a repeated `(session, slot, sequence)` is answered from its record and never carried out again.
//! - `ticket`: a session's owner, as an MDT tells it to OSTs.
//! - `ranges`: locks of byte ranges, for calls that cross objects.
//! - `check`: ranges, lengths and counts of requests, before the OST locks or writes.
//!
//! Nothing here has a clock, a socket, a file or a thread; `now` is an argument.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

pub mod cap;
pub mod check;
pub mod fence;
pub mod ranges;
pub mod slots;
pub mod ticket;

pub use fence::LeaseVersion;
