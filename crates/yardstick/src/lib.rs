//! Reference FUSE programs for the bars: `passfs` forwards each request to a directory below, `nullfs` answers from memory.
//!
//! They show what a FUSE mount can reach on a machine, so they are made as quick as a plain program is: the same mounting, threads,
//! gate, time-outs and kernel flags as Stria's own mount (`session.rs`), no copies or locks that are not needed. Their transport is
//! the crate fuser, which is not ours: if ours were slower, it would show.
//! They promise nothing else: no crash safety of their own, no permissions beyond the kernel's, root only.

mod gated;
mod inodes;
pub mod null;
mod null_tree;
pub mod pass;
mod run;
mod session;

pub use run::run;
pub use session::attach;
