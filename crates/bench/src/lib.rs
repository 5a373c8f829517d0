//! `stria bench`: measurements of any mounted file system, as plans that can be run, compared and shown.
//!
//! What is measured is a *plan* (`plan`) of steps, whose points become
//! *jobs* (`job`) of *workers* (`worker`), which are processes that a *crew* starts and lets begin together; what they got done
//! becomes *records* (`record`), of which everything else is made.

mod aligned;
mod cache;
pub mod compare;
mod content;
pub mod crew;
pub mod job;
mod memory;
pub mod mpi;
mod needs;
mod pattern;
pub mod plan;
mod progress;
pub mod record;
pub mod report;
pub mod run;
pub mod runner;
pub mod stats;
pub mod system;
mod targets;
#[cfg(test)]
mod testdir;
pub mod tools;
mod work;
pub mod worker;
pub mod wrap;

pub use cache::CacheState;
pub use pattern::Checked;
