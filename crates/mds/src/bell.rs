//! The bells of the background threads.

use std::sync::atomic::AtomicBool;

use net::Bell;

/// A bell for each background thread that waits on one.
#[derive(Default)]
pub struct Bells {
    pub flush: Bell,
    pub checkpoint: Bell,
    pub purge: Bell,
    pub verify: Bell,
    /// Too many leaves in memory cannot be evicted before a checkpoint.
    pub unwritten: AtomicBool,
}
