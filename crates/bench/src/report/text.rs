//! Output at the end of a run on a terminal: the plan's tables, and the steps that were not measured.

use super::grid::{Grid, printable};
use super::group::{Group, groups};
use super::{first, incomplete, remarks, series, tables};
use crate::record::Results;
use crate::wrap::wrap;

/// Columns of the table of all series that a terminal has room for: name, unit, median, interval, repeats, p50, p99, caches.
const NARROW: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 13];

pub fn text(results: &Results) -> String {
    let header = &results.header;
    let groups = groups(results);
    let mut out = format!(
        "{} at scale {}: {} ({})\n",
        printable(&header.plan.name),
        printable(&header.scale),
        printable(&header.dir),
        printable(&header.file_system)
    );
    if !header.hosts.is_empty() {
        out.push_str(&format!("workers on: {}\n", printable(&header.hosts.join(", "))));
    }
    if let Some(why) = incomplete(results) {
        out.push_str(&format!("NOT COMPLETE: {}\n", printable(&why)));
    }
    out.push('\n');
    for line in first::text(results, &first::judged(results, &groups)).lines() {
        out.push_str(&format!("{}\n", wrap(line, 2)));
    }
    for remark in remarks::remarks(results, &groups) {
        out.push_str(&format!("{}\n", wrap(&printable(&remark), 2)));
    }
    let mut grids = tables::of_plan(results, &groups);
    // Without tables of the plan's own the whole is the table.
    if grids.is_empty() {
        grids.push(narrow(&groups));
    }
    grids.extend(tables::ratios(&groups));
    for grid in grids.iter().filter(|g| !g.rows.is_empty()) {
        out.push('\n');
        out.push_str(&grid.text());
    }
    let uneven = super::targets::uneven_lines(&groups);
    if !uneven.is_empty() {
        out.push_str("\nuneven: slower than its twins\n");
        uneven.iter().for_each(|line| out.push_str(&format!("{}\n", printable(line))));
    }
    for warning in &results.warnings {
        out.push_str(&format!("\nwarning: {}\n", printable(&warning.text)));
    }
    out.push_str(&honesty(results));
    if !results.skipped.is_empty() {
        out.push_str("\nnot measured\n");
        for skipped in &results.skipped {
            let word = if skipped.failed { "FAILED" } else { "skipped" };
            out.push_str(&format!("{word} {}: {}\n", printable(&skipped.step), printable(&skipped.why)));
        }
    }
    out
}

/// How caches were handled, and how much content was checked.
fn honesty(results: &Results) -> String {
    let mut checked = crate::pattern::Checked::default();
    let mut caches: Vec<&str> = Vec::new();
    for record in &results.records {
        checked += record.outcome.checked;
        caches.push(series::cache_words(record.cache));
    }
    caches.sort_unstable();
    caches.dedup();
    let caches = if caches.is_empty() { "-".into() } else { caches.join(", ") };
    format!(
        "\ncaches of this machine: {caches} (those of servers elsewhere keep what they have)\n\
         content: {} stamped pages were read and right, {} files were as long as written\n",
        checked.pages, checked.sizes
    )
}

fn narrow(groups: &[Group]) -> Grid {
    let all = series::grid(groups);
    let pick = |cells: Vec<String>| NARROW.iter().filter_map(|at| cells.get(*at).cloned()).collect();
    Grid {
        columns: NARROW.iter().filter_map(|at| all.columns.get(*at).cloned()).collect(),
        rows: all.rows.into_iter().map(pick).collect(),
        ..all
    }
}
