//! What a request to an OST means, decided without touching anything: pure rules over values.
//!
//! - `cap`: capabilities are made and checked here, with one key per file system.
//! - `fence`: lease versions rise only; a request with a lower one than the object has seen is refused.
//! - `slots`: exactly once: a repeated `(session, slot, sequence)` is answered from what was recorded, never carried out again.
//! - `check`: ranges, lengths and counts of requests, before anything is locked or written.
//!
//! Nothing here has a clock, a socket, a file or a thread; `now` is an argument.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should"))]

pub mod cap;
pub mod check;
pub mod fence;
pub mod slots;

pub use fence::LeaseVersion;
