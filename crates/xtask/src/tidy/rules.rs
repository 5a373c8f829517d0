//! Ids of rules. A rule is `crate-L1`: the crate that keeps it, one or two letters, a number.
//!
//! The head of one product file defines it (`//! mds-M7: …`); comments, tests and documents cite it. An id that is defined twice says
//! two things, and one that nothing defines says nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::is_test_file;

/// Places by id.
type Places = BTreeMap<String, Vec<String>>;

/// Documents that cite rules as they are today. Decisions tell of the past, and may name what has gone.
fn cites_rules(path: &Path) -> bool {
    path.starts_with("docs")
        && !path.starts_with("docs/decisions")
        && path.extension().is_some_and(|e| e == "md")
}

pub fn check(files: &[PathBuf], crates: &BTreeSet<String>, findings: &mut Vec<String>) -> Result<()> {
    let (mut defined, mut cited) = (Places::new(), Places::new());
    for path in files {
        let is_source = path.starts_with("crates") && path.extension().is_some_and(|e| e == "rs");
        if !is_source && !cites_rules(path) {
            continue;
        }
        let Ok(text) = fs::read_to_string(path) else { continue };
        for (n, line) in text.lines().enumerate() {
            let place = || format!("{}:{}", path.display(), n + 1);
            for id in ids(line, crates) {
                let defines = is_source && !is_test_file(path) && defines(line, id);
                if defines {
                    defined.entry(id.to_owned()).or_default().push(place());
                } else {
                    cited.entry(id.to_owned()).or_default().push(place());
                }
            }
        }
    }
    findings.extend(judge(&defined, &cited));
    Ok(())
}

fn judge(defined: &Places, cited: &Places) -> Vec<String> {
    let twice = defined.iter().filter(|(_, at)| at.len() > 1);
    let twice = twice.map(|(id, at)| format!("rule {id} is defined twice: {}", at.join(", ")));
    let loose = cited.iter().filter(|(id, _)| !defined.contains_key(*id));
    let loose = loose.map(|(id, at)| format!("{}: cites rule {id}, which no file defines", at[0]));
    twice.chain(loose).collect()
}

/// The ids in a line.
fn ids<'a>(line: &'a str, crates: &BTreeSet<String>) -> Vec<&'a str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    line.split(|c: char| !is_part(c)).filter(|word| is_id(word, crates)).collect()
}

fn is_id(word: &str, crates: &BTreeSet<String>) -> bool {
    let Some((krate, tag)) = word.split_once('-') else { return false };
    let letters = tag.chars().take_while(char::is_ascii_uppercase).count();
    let digits = &tag[letters..];
    let is_tag = (1..=2).contains(&letters)
        && (1..=2).contains(&digits.len())
        && digits.chars().all(|c| c.is_ascii_digit());
    is_tag && crates.contains(krate)
}

/// Is this the line of a module's head that says what the rule is? There may be several in a line, two spaces or a full stop apart, and a
/// name in brackets may follow the id.
fn defines(line: &str, id: &str) -> bool {
    let Some(head) = line.trim_start().strip_prefix("//!") else { return false };
    let Some(at) = head.find(id) else { return false };
    let (before, after) = (head[..at].trim_end(), &head[at + id.len()..]);
    let begins = before.is_empty() || before == " -" || before.ends_with(['.', ')']);
    let after = match after.strip_prefix(" (").and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => after,
    };
    begins && (after.starts_with(": ") || after.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_defines_and_everything_else_cites() {
        for (line, defines_it) in [
            ("//! mds-M7: a reply waits.", true),
            ("//! - mds-M7: a reply waits.", true),
            ("//! mds-M7 (flush): a reply waits.", true),
            ("//! mds-M6: so.  mds-M7: a reply waits.", true),
            ("//! mds-M7 here: as there.", false),
            ("//! A reply waits (mds-M7).", false),
            ("/// mds-M7: why this waits.", false),
            ("    // mds-M7: why this waits.", false),
        ] {
            assert_eq!(defines(line, "mds-M7"), defines_it, "{line}");
        }
    }

    #[test]
    fn an_id_names_a_crate() {
        let crates = ["mds", "kv"].map(str::to_owned).into();
        assert_eq!(
            ids("rules mds-M7, mds-GR1 and kv-K5; utf-8, md-M7, mds-m7, mds-M, mds-M123", &crates),
            ["mds-M7", "mds-GR1", "kv-K5"]
        );
    }

    #[test]
    fn two_definitions_and_a_loose_citation_are_found() {
        let places = |ids: &[(&str, usize)]| -> Places {
            ids.iter().map(|(id, n)| ((*id).to_owned(), vec!["a.rs:1".to_owned(); *n])).collect()
        };
        let found = judge(&places(&[("kv-K1", 2), ("kv-K2", 1)]), &places(&[("kv-K1", 1), ("kv-K3", 1)]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("kv-K1 is defined twice") && found[1].contains("kv-K3"), "{found:?}");
    }
}
