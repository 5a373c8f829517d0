//! Reference FUSE programs for the bars: `passfs` forwards each request to a directory below, `nullfs` answers from memory.
//!
//! They show the speed that a FUSE mount can reach on a machine. They use the same mount, threads, gate, time-outs and kernel flags
//! as Stria's own mount (`session.rs`), and no needless copies or locks. Their transport is the crate fuser, not Stria's own, so that
//! a slower transport of Stria would show.
//! They promise nothing else: no crash safety of their own, no permissions beyond the kernel's, root only.

pub mod faults;
mod gated;
mod inodes;
pub mod null;
mod null_tree;
pub mod pass;
mod run;
mod session;
pub mod volatile;

pub use run::run;
pub use session::attach;
