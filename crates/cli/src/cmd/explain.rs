//! `stria explain`: what a word, an error message or a metric means, by the documents of this release.

use bench::wrap::wrap;
use clap::Args;

use crate::exit::{Exit, Failure};

const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");
const ERRORS: &str = include_str!("../../../../docs/errors.md");
const METRICS: &str = include_str!("../../../../docs/metrics.md");
/// A shorter piece of a message is in too many.
const PIECE_MIN: usize = 10;
/// Most entries that are shown, and near terms that are named.
const SHOWN_MAX: usize = 8;

/// Explain a term, an error message, a code such as ENOSPC or a metric, as the documents of this release do.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria explain lease
Example: stria explain stria_mirror_in_sync
Example: stria explain 'stria: mount: the server has all the connections that it may have'
Exit codes: 0 it is explained; 1 it is not known.")]
pub struct Explain {
    /// The term, or the message as it was printed.
    #[arg(required = true)]
    words: Vec<String>,
}

impl Explain {
    pub fn run(self) -> anyhow::Result<Exit> {
        let asked = self.words.join(" ");
        let mut found = entries(&asked);
        if found.is_empty() {
            let near = near(&asked);
            let next = match near.is_empty() {
                true => "docs/glossary.md and docs/errors.md have all terms and messages".to_owned(),
                false => format!("near it: {}", near.join(", ")),
            };
            return Err(Failure::failed(asked, "it is in no document of this release", next).into());
        }
        found.truncate(SHOWN_MAX);
        outln!("{}", found.join("\n\n"));
        Ok(Exit::Done)
    }
}

/// The cells of each row of the tables in a document, without their head lines.
fn rows(document: &str) -> impl Iterator<Item = Vec<String>> {
    let is_row = |line: &&str| line.starts_with("| ") && line.ends_with(" |");
    document.lines().filter(is_row).map(|line| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
}

/// The terms of a first cell: `epoch, seq`.
fn terms(cell: &str) -> impl Iterator<Item = String> {
    cell.split(", ").map(|term| term.trim_matches('`').to_lowercase())
}

/// Between backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Does the row of this message explain what was printed? Dots of a message stand for anything.
fn is_of(message: &str, asked: &str) -> bool {
    let pieces: Vec<&str> = message.split('…').map(str::trim).filter(|piece| !piece.is_empty()).collect();
    let longest = pieces.iter().map(|piece| piece.len()).max().unwrap_or(0);
    if longest < PIECE_MIN {
        return false;
    }
    let mut rest = asked;
    pieces.iter().all(|piece| match rest.split_once(piece) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

fn entries(asked: &str) -> Vec<String> {
    let plain = asked.trim().to_lowercase();
    let mut found = Vec::new();
    for row in rows(GLOSSARY).filter(|row| row.len() >= 2) {
        if terms(&row[0]).any(|term| term == plain) {
            found.push(wrap(&format!("{}: {}", row[0], row[1..].join(" | ")), 4));
        }
    }
    for row in rows(METRICS).filter(|row| row.len() == 4) {
        if terms(&row[0]).any(|name| name == plain || name.trim_end_matches("_total") == plain) {
            found.push(wrap(&format!("{} ({}): {}", row[0], row[1], row[3]), 4));
        }
    }
    for row in rows(ERRORS).filter(|row| row.len() >= 3) {
        let is_code = row.len() == 4
            && quoted(&format!("{} {}", row[0], row[1])).any(|code| code.eq_ignore_ascii_case(&plain));
        let is_message = quoted(&row[0]).any(|message| is_of(message, asked));
        if is_code || is_message {
            let (what, next) = (&row[row.len() - 2], &row[row.len() - 1]);
            let name = if is_code { format!("{}, {}", row[0], row[1]) } else { row[0].clone() };
            let lines = [name, format!("    means: {what}"), format!("    next: {next}")];
            found.push(lines.map(|line| wrap(&line, 8)).join("\n"));
        }
    }
    found
}

/// Terms that have a word of what was asked in them.
fn near(asked: &str) -> Vec<String> {
    let words: Vec<String> = asked.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let is_near = |term: &String| words.iter().any(|word| word.len() > 2 && term.contains(word.as_str()));
    let all = rows(GLOSSARY).chain(rows(METRICS)).filter(|row| row.len() >= 2);
    all.flat_map(|row| terms(&row[0]).collect::<Vec<_>>()).filter(is_near).take(SHOWN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_term_of_the_glossary_and_each_metric_is_explained() {
        let all: Vec<Vec<String>> =
            rows(GLOSSARY).chain(rows(METRICS)).filter(|row| row.len() >= 2).collect();
        assert!(all.len() > 150, "{} rows", all.len());
        for row in all {
            for term in terms(&row[0]) {
                assert!(!entries(&term).is_empty(), "{term}");
            }
        }
    }

    #[test]
    fn a_message_is_found_as_it_was_printed() {
        let text = entries("stria: metrics at 10.0.0.1:1: address in use; give an address").join("\n");
        assert!(text.contains("the page of metrics cannot listen"), "{text}");
        let text = entries("mount: 127.0.0.1:7@tcp0: the server has all the connections that it may have")
            .join("\n");
        assert!(text.contains("next: "), "{text}");
        let text = entries("enospc").join("\n");
        assert!(text.contains("`NoSpace`") && text.contains("stria df"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn an_unknown_word_leads_to_near_ones() {
        assert!(entries("leasing").is_empty());
        assert!(near("mirror in sync").iter().any(|term| term.contains("mirror")));
    }
}
