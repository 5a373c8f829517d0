//! Short measurements of single rows by threads of this process, for harnesses that alternate sides (`cargo xtask bars`).
//!
//! It promises: fresh files for each write, this machine's caches defeated before each cold read (or said that they could
//! not be; those of servers elsewhere are not touched), the stamps of all content and a sample of its bytes verified, its
//! files removed at the end, also when it is stopped. It refuses to report a row whose content was wrong, and to start where
//! space is short. Workers are threads of this process.
//! I1. Preparing, settling, cooling and cleaning up are never inside a measured time; the flush at a write's end always is.
//! I2. What a file must contain follows from seed, file, offset and version alone; nothing read is trusted to say what was written.

mod files;
mod kind;
mod names;
mod sample;
mod sync;
mod workers;
mod workspace;

use std::path::Path;

use anyhow::Result;

pub use kind::{Better, Kind};
pub use sample::Sample;
pub use workspace::{Params, Workspace};

/// One sample of one row in `dir`, with everything it needs made before and removed after: for harnesses that alternate sides.
pub fn row(kind: Kind, dir: &Path, params: &Params) -> Result<Sample> {
    let mut workspace = Workspace::new(dir, params)?;
    let sample = workspace.run(kind)?;
    workspace.close()?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
