//! `stria bench`: measurements of any mounted file system, as plans that can be run, compared and shown.
//!
//! A *plan* (`plan`) has steps, whose points become *jobs* (`job`) of *workers* (`worker`). A *crew* starts the worker processes
//! and lets them begin together. Their results become *records* (`record`), from which all reports are made.

mod aligned;
mod cache;
pub mod compare;
mod content;
pub mod crew;
pub mod hosts;
pub mod job;
pub mod limits;
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
mod sampler;
pub mod stats;
pub mod system;
mod targets;
#[cfg(test)]
mod testdir;
pub mod tools;
pub mod uneven;
pub mod usage;
mod work;
pub mod worker;
pub mod wrap;

pub use cache::CacheState;
pub use pattern::Checked;
