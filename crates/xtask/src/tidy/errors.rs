//! docs/errors.md against the source, both ways: every code has its line with the errno that programs get, every message that the page
//! lists is one that the source can say, and every message that the source can say is on the page or is listed as internal, with
//! the reason why nobody needs a row for it.

mod said;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use types::Code;

use said::Source;

const PAGE: &str = "docs/errors.md";
/// Messages without a row, in groups; what is quoted must stand in a message.
const INTERNAL: &str = "crates/xtask/src/tidy/errors/internal.txt";
/// Whose words no user meets: a message that only a test expects is none.
const PROOF: [&str; 4] = ["hammer", "testkit", "xtask", "yardstick"];
/// Of one part of a message on the page.
const MESSAGE_BYTES_MIN: usize = 4;
/// Where every message of a log or an error line has a row.
const COMPLETE: [&str; 13] = [
    "cli", "client", "disk", "fuse", "fusedev", "mapstore", "mds", "mgmt", "mgs", "net", "oss", "pki",
    "store",
];

pub fn check(tracked: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    let page = fs::read_to_string(PAGE).context(PAGE)?;
    let internal = fs::read_to_string(INTERNAL).context(INTERNAL)?;
    let (mut literals, mut said) = (String::new(), Vec::new());
    for (path, source) in sources(Path::new("."), tracked)? {
        source.literals.iter().for_each(|l| literals.extend([l, "\n"]));
        if crate_of(&path).is_some_and(|c| COMPLETE.contains(&c)) {
            let named = |m: said::Message| (format!("{}:{}", path.display(), m.line), m.text);
            said.extend(source.messages().into_iter().map(named));
        }
    }
    codes(&page, findings);
    messages(&page, &literals, findings);
    rows(&page, &internal, &said, findings);
    Ok(())
}

fn crate_of(path: &Path) -> Option<&str> {
    path.strip_prefix("crates").ok()?.iter().next()?.to_str()
}

/// The sources of the binary, without test directories and test modules.
fn sources(root: &Path, tracked: &[PathBuf]) -> Result<Vec<(PathBuf, Source)>> {
    let is_source = |p: &&PathBuf| {
        p.extension().is_some_and(|e| e == "rs")
            && crate_of(p).is_some_and(|c| !PROOF.contains(&c))
            && p.iter().nth(2).is_some_and(|d| d == "src")
    };
    let mut files = Vec::new();
    let mut test_modules = BTreeSet::new();
    for path in tracked.iter().filter(is_source) {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        let after = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|t| t.split_once(';'));
        let name = |(name, _): (&str, &str)| Some((crate_of(path)?.to_owned(), name.to_owned()));
        test_modules.extend(after.filter_map(name));
        files.push((path.clone(), text));
    }
    let is_test = |path: &Path| {
        let names = path.with_extension("");
        let krate = crate_of(path).unwrap_or_default();
        names
            .iter()
            .filter_map(|n| n.to_str())
            .any(|n| test_modules.contains(&(krate.to_owned(), n.to_owned())))
    };
    files.retain(|(path, _)| !is_test(path));
    Ok(files.into_iter().map(|(path, text)| (path, Source::read(&text))).collect())
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
    for message in on_page(page) {
        // A quotation within a quotation leaves short parts, which every message would contain.
        if message.split('…').all(|part| part.trim().len() < MESSAGE_BYTES_MIN) {
            findings.push(format!("{PAGE}: '{message}' is too little to know a message by"));
        }
        if !message.split('…').all(|part| source.contains(part)) {
            findings.push(format!("{PAGE}: nothing says '{message}'"));
        }
    }
}

fn on_page(page: &str) -> impl Iterator<Item = &str> {
    let tables = page.split("\n## ").filter(|part| part.contains("| what you see |"));
    let rows = tables.flat_map(|part| part.lines().filter(|l| l.starts_with("| ")));
    let cells = rows.filter_map(|row| row[2..].split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// Finds messages that are neither on the page nor internal. Finds internal ones that no source has any more, or that are on the page, too.
fn rows(page: &str, internal: &str, said: &[(String, String)], findings: &mut Vec<String>) {
    let public: Vec<&str> = on_page(page).collect();
    let listed: Vec<&str> = internal.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    for (place, text) in said {
        let is_public = public.iter().any(|row| row.split('…').all(|part| text.contains(part)));
        let is_internal = listed.iter().any(|line| text.contains(line));
        if !is_public && !is_internal {
            let text = text.replace('\n', " / ");
            findings.push(format!("{place}: {PAGE} has no row for '{text}', and {INTERNAL} no line"));
        }
    }
    for line in listed {
        if !said.iter().any(|(_, text)| text.contains(line)) {
            findings.push(format!("{INTERNAL}: nothing says '{line}'"));
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
        let nested = page.replace("`which is none of`", "`which is none of```");
        assert_eq!(found(&nested, &said), ["docs/errors.md: '' is too little to know a message by"]);
    }

    #[test]
    fn what_is_said_has_a_row_or_is_internal() {
        let page = "\n## Here\n| what you see | x |\n| `it is full`, `gave up … s` | x | y |\n";
        let said =
            |texts: &[&str]| -> Vec<_> { texts.iter().map(|t| ("f.rs:7".into(), t.to_string())).collect() };
        let found = |said: &[(String, String)]| {
            let mut findings = Vec::new();
            rows(page, "# why\nodd state\n", said, &mut findings);
            findings
        };
        let known = ["disk\nit is full: {e}\nmake room", "gave up after {n} s", "an odd state {x}"];
        assert_eq!(found(&said(&known)), Vec::<String>::new());
        let new = found(&said(&[known[2], "it is\nfuller"]));
        assert_eq!(new.len(), 1);
        assert!(new[0].starts_with("f.rs:7: docs/errors.md has no row for 'it is / fuller'"), "{new:?}");
        assert_eq!(found(&said(&known[..1])), [format!("{INTERNAL}: nothing says 'odd state'")]);
    }

    #[test]
    fn sources_are_what_is_built_without_tests() {
        let all = [
            "crates/cli/src/mounts.rs",
            "crates/cli/src/testdir.rs",
            "crates/cli/src/main.rs",
            "crates/cli/src/cmd/tests.rs",
            "crates/net/tests/adversary.rs",
            "crates/xtask/src/main.rs",
            "crates/cli/src/cmd/up.rs",
        ];
        let taken = sources(root(), &all.map(PathBuf::from)).unwrap();
        let taken: Vec<_> = taken.iter().map(|(p, _)| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(taken, ["mounts.rs", "main.rs", "up.rs"]);
    }
}
