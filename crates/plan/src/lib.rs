//! What a client does next, decided without doing it: pure rules over values, with table tests.
//!
//! - `range`: a file range becomes pieces of objects; what came back becomes bytes, holes or damage.
//! - `size`: what a glimpse of objects proves about a file; how a shrink cuts objects.
//! - `spans`: whole ranges as spans of objects; where a file has bytes and where holes.
//! - `settle`: what may be told to the MDT after which flushes (rule plan-O3).
//! - `retry`: whether and when a request is sent again.
//! - `elsewhere`: on which OSTs a growing file goes on when one is full.
//! - `room`: whether who found an OST full waits for what is being destroyed there.
//! - `replay`: what is kept until it is flushed, and in which order it is sent again.
//! - `stripe`: striping as text, as users write it and as `getstripe` shows it.
//! - `fsck`: the name space compared with the objects.
//!
//! Nothing here has a clock, a socket, a file or a thread; `now` is an argument.

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
