//! Reference FUSE programs for the bars: `passfs` forwards each request to a directory below, `nullfs` answers from memory.
//!
//! They show what a FUSE mount can reach on a machine, so they are made as quick as a plain program is: the same fuser, threads,
//! time-outs and kernel flags as Stria's own mount (`fuse::attach`, `fuse::kernel_config`), no copies or locks that are not needed.
//! They promise nothing else: no crash safety of their own, no permissions beyond the kernel's, root only.

mod inodes;
pub mod null;
mod null_tree;
pub mod pass;
mod run;

pub use run::run;
