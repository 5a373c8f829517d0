//! docs/errors.md against the source: every code has its line with the errno that programs get, and every message that the page
//! lists is one that the source can say.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use types::Code;

const PAGE: &str = "docs/errors.md";

pub fn check(tracked: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    let page = fs::read_to_string(PAGE).context(PAGE)?;
    let mut source = String::new();
    // Not the proof's own words: a message that only a test expects is none.
    for path in
        tracked.iter().filter(|p| p.extension().is_some_and(|e| e == "rs") && !p.starts_with("crates/xtask"))
    {
        source.push_str(&joined(&fs::read_to_string(path)?));
    }
    codes(&page, findings);
    messages(&page, &source, findings);
    Ok(())
}

/// A string literal that goes on after a backslash is one line.
fn joined(source: &str) -> String {
    let mut parts = source.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start())
}

fn codes(page: &str, findings: &mut Vec<String>) {
    for code in Code::ALL {
        let begin = format!("| `{code:?}` | ");
        let number = client::errno_of(*code);
        match page.lines().find_map(|l| l.strip_prefix(&begin)) {
            None => findings.push(format!("{PAGE}: no line for the code {code:?}")),
            Some(rest) if !rest.split(" | ").next().is_some_and(|c| is_number(c, number)) => {
                findings.push(format!("{PAGE}: programs get errno {number} for {code:?}"))
            }
            Some(_) => {}
        }
    }
}

/// `ENOENT` 2, or 0.
fn is_number(cell: &str, number: i32) -> bool {
    cell.split(' ').next_back() == Some(number.to_string().as_str())
}

/// In the tables below the codes, what stands in backquotes in the first column is a message; `…` stands for what differs.
fn messages(page: &str, source: &str, findings: &mut Vec<String>) {
    let tables = page.split("\n## ").filter(|part| part.contains("| what you see |"));
    let rows = tables.flat_map(|part| part.lines().filter(|l| l.starts_with("| `")));
    for row in rows {
        let cell = row.split(" | ").next().unwrap_or_default();
        for message in cell.split('`').skip(1).step_by(2) {
            let known = message.split('…').all(|part| source.contains(part));
            if !known {
                findings.push(format!("{PAGE}: nothing says '{message}'"));
            }
        }
    }
}

/// For tests that are run from a crate's directory.
#[cfg(test)]
fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_code_a_wrong_number_and_an_unknown_message_are_found() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let found = |page: &str, source: &str| {
            let mut findings = Vec::new();
            codes(page, &mut findings);
            messages(page, source, &mut findings);
            findings
        };
        let said = page.replace('…', "`");
        assert_eq!(found(&page, &said), Vec::<String>::new());
        let wrong = page.replace("| `NoSpace` | `ENOSPC` 28 |", "| `NoSpace` | `ENOSPC` 27 |");
        assert_eq!(found(&wrong, &said), ["docs/errors.md: programs get errno 28 for NoSpace"]);
        let missing = page.replace("| `Loop` |", "| `Knot` |");
        assert_eq!(found(&missing, &said), ["docs/errors.md: no line for the code Loop"]);
        let unsaid = said.replace("gave up after", "lost patience after");
        assert_eq!(found(&page, &unsaid), ["docs/errors.md: nothing says 'gave up after'"]);
    }

    #[test]
    fn literals_over_several_lines_are_joined() {
        assert_eq!(joined("\"one \\\n      two\""), "\"one two\"");
    }
}
