//! The machine that a plan is expanded for: memory, processors, files or devices to be used, values set by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::schema::Quantities;
use crate::system;

/// The machine and the settings for which a plan is expanded.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Bytes of memory.
    pub ram: u64,
    pub cpus: u32,
    /// Files or devices that `files = "given"` means, absolute, and the bytes of the smallest. Their content is overwritten.
    pub targets: Vec<PathBuf>,
    pub target_bytes: u64,
    /// Hosts with workers, and directories of file systems; 0 is one of each.
    pub hosts: u32,
    pub file_systems: u32,
    /// `--set threads=1,2,4`: overrides the scale's values.
    pub overrides: BTreeMap<String, Quantities>,
}

impl Environment {
    /// This machine, with nothing given or set.
    pub fn here() -> Environment {
        Environment { ram: system::ram_bytes(), cpus: system::cpus() as u32, ..Environment::default() }
    }
}
