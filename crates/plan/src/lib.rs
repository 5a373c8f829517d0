//! The client's decisions as pure rules over values, with table tests; nothing here performs them.
//!
//! - `behind`: the order of writes that a program was told are done.
//! - `range`: splits a file range into pieces of objects; judges each answer as bytes, hole or damage.
//! - `size`: the size that a glimpse of objects proves; the cuts of a shrink.
//! - `spans`: long ranges as spans of objects; search for data and holes.
//! - `settle`: which size and attribute updates the MDT may get after which flushes (rule plan-O3).
//! - `retry`: whether and when a request is sent again.
//! - `elsewhere`: the OSTs on which a growing file continues when one is full.
//! - `room`: whether a client that found an OST full waits for the purge.
//! - `replay`: retained requests until they are flushed, and the order of a replay.
//! - `stripe`: striping as text, as users write it and as `getstripe` shows it.
//! - `fsck`: the name space compared with the objects.
//!
//! Nothing here has a clock, a socket, a file or a thread; `now` is an argument.

pub mod behind;
pub mod elsewhere;
pub mod fsck;
pub mod range;
pub mod replay;
pub mod retry;
pub mod room;
pub mod settle;
pub mod show;
pub mod size;
pub mod spans;
pub mod stripe;
