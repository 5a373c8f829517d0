//! Reports of a result: a self-contained page, CSV and JSON with every number, and a table for the terminal.
//!
//! bench-RP1. The page is self-contained: no script, no network, no external font.
//! bench-RP2. The page depends on the result alone, so that it can be made again from `records.jsonl`.
//! bench-RP3. The page stays below 1 MiB (`PAGE_BYTES_MAX`): parts that grow with the records are cut, with a note where the rest is.

mod axis;
mod bars;
mod csv;
mod figure;
mod first;
mod grid;
mod group;
mod join;
mod lines;
mod load;
pub(crate) mod number;
mod page;
mod paint;
mod remarks;
mod sampled;
mod series;
mod tables;
mod targets;
mod text;
mod timeline;
mod verdict;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::record::Results;

pub use csv::csv;
pub use group::{Group, groups, word};
pub use join::join;
pub use page::html;
pub use text::text;

/// Reports are kept beside one another in repositories and sent by mail.
pub const PAGE_BYTES_MAX: usize = 1 << 20;
/// Names of the files that are written beside the records.
pub const PAGE: &str = "report.html";
const CSV: &str = "summary.csv";
const JSON: &str = "summary.json";
/// The records themselves, in the directory that a run was given.
pub const RECORDS: &str = "records.jsonl";

/// `summary.json`.
pub fn json(results: &Results) -> String {
    series::json(results, &groups(results))
}

/// Writes page, CSV and JSON into a directory; gives back the page's path.
pub fn write(results: &Results, dir: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for (name, text) in [(CSV, csv(results)), (JSON, json(results)), (PAGE, html(results))] {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(dir.join(PAGE))
}

/// The records that a path stands for: a file of them, or the directory that a run wrote into.
pub fn records_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RECORDS) } else { path.to_owned() }
}

/// Why a result is not all of its plan; `None` if it is.
fn incomplete(results: &Results) -> Option<String> {
    match &results.end {
        None => Some("the run ended without a word, or is still under way".into()),
        Some(end) if end.complete => None,
        Some(end) if end.why.is_empty() => Some("the run was stopped".into()),
        Some(end) => Some(end.why.clone()),
    }
}
