//! `stria bench quick`: a short, honest measurement of any directory of any file system.
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
mod progress;
mod report;
mod sync;
mod workers;
mod workspace;

use std::path::Path;

use anyhow::Result;

pub use kind::{Better, Kind};
pub(crate) use report::number;
pub use report::{Report, Row, Sample};
pub use workspace::{Params, Workspace};

/// How `quick` measures.
#[derive(Clone, Debug)]
pub struct Options {
    pub params: Params,
    /// Samples per row; the table shows their median and spread.
    pub repeats: usize,
    /// Aim for the whole run in seconds: it bounds each phase, so that a slow file system moves less instead of taking longer.
    pub budget_seconds: u64,
    /// Show progress on stderr, if that is a terminal.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { params: Params::default(), repeats: 3, budget_seconds: 60, progress: true }
    }
}

impl Options {
    /// Half of a sample's share of the budget is left for what is not measured: preparing, cooling, cleaning.
    fn phase_params(&self) -> Params {
        let samples = (Kind::ALL.len() * self.repeats.max(1)) as f64;
        let share = std::time::Duration::from_secs_f64(self.budget_seconds as f64 / samples / 2.0);
        Params { phase_limit: self.params.phase_limit.min(share), ..self.params.clone() }
    }
}

/// Measures every row `repeats` times in `dir` and leaves nothing behind.
pub fn quick(dir: &Path, options: &Options) -> Result<Report> {
    let params = options.phase_params();
    let bar = progress::Progress::new(options.progress, Kind::ALL.len() * options.repeats);
    let mut samples = vec![Vec::new(); Kind::ALL.len()];
    for repeat in 0..options.repeats {
        // A workspace per repeat: rows that read use what the rows before them wrote, and each repeat writes fresh files.
        let mut workspace = Workspace::new(dir, &params)?;
        for (kind, samples) in Kind::ALL.into_iter().zip(&mut samples) {
            bar.begin(kind, repeat + 1, options.repeats);
            samples.push(workspace.run(kind)?);
            bar.step();
        }
        workspace.close()?;
    }
    bar.end();
    Ok(Report::new(dir, &params, Kind::ALL.into_iter().zip(samples)))
}

/// One sample of one row in `dir`, with everything it needs made before and removed after: for harnesses that alternate sides.
pub fn row(kind: Kind, dir: &Path, params: &Params) -> Result<Sample> {
    let mut workspace = Workspace::new(dir, params)?;
    let sample = workspace.run(kind)?;
    workspace.close()?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
