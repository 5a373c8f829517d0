//! Documents name source files: each that is named must be there, or a reader looks for it in vain.
//!
//! Read are words such as `mds/src/upkeep/purge.rs` in backticks. Decisions tell of the past, and may name what has gone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

pub fn check(files: &[PathBuf], crates: &BTreeSet<String>, findings: &mut Vec<String>) -> Result<()> {
    for path in files {
        let is_document = path.extension().is_some_and(|e| e == "md") && !path.starts_with("docs/decisions");
        let is_source = path.extension().is_some_and(|e| e == "rs");
        if !is_document && !is_source {
            continue;
        }
        let Ok(text) = fs::read_to_string(path) else { continue };
        for (n, line) in text.lines().enumerate() {
            if is_source && !line.trim_start().starts_with("//") {
                continue;
            }
            for named in named(line, crates).filter(|named| !Path::new("crates").join(named).exists()) {
                findings.push(format!("{}:{}: names {named}, which is not there", path.display(), n + 1));
            }
        }
    }
    Ok(())
}

/// Source files that a line names, from the crate's name on.
fn named<'a>(line: &'a str, crates: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    let words = line.split('`').skip(1).step_by(2).map(|word| word.trim_start_matches("crates/"));
    words.filter(|word| {
        let (krate, rest) = word.split_once('/').unwrap_or_default();
        let is_file = rest.ends_with(".rs") && (rest.starts_with("src/") || rest.starts_with("tests/"));
        is_file && !word.contains(' ') && !word.contains('…') && !word.contains('*') && crates.contains(krate)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_in_backticks() {
        let crates = ["mds", "kv"].map(str::to_owned).into();
        let line = "`mds/src/upkeep/purge.rs` `on_dying`, `crates/kv/src/a.rs`, mds/src/b.rs, `oss/src/c.rs`, `kv/src/…/d.rs`, `mds/src`";
        assert_eq!(named(line, &crates).collect::<Vec<_>>(), ["mds/src/upkeep/purge.rs", "kv/src/a.rs"]);
    }
}
