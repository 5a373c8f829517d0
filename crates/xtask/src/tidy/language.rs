//! Plain language (CONTRIBUTING.md): sentences that tidy can see to be riddles are counted per crate, and a count may only fall.
//!
//! A riddle has a personal pronoun where a component has a name, or more than `WORDS_MAX` words. Counted are
//! comments and string literals of product sources, and documents. `layers.toml` keeps the counts; one that fell is written there, so that
//! it cannot rise again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::is_test_file;

/// The rule asks for 25. A sentence above this one is too long beyond doubt.
const WORDS_MAX: usize = 40;
/// A sentence begins with one of these.
const OPENINGS: &[&str] = &["Who ", "Whoever ", "What is ", "What was ", "He ", "Somebody ", "Nobody "];
/// Or has one of these words somewhere.
const WITHIN: &[&str] = &["who", "whoever", "whom", "he", "him", "his", "somebody", "nobody"];

/// Documents that are kept as they were written: decisions, formats of the past, what other programs printed.
const LEFT_OUT: &[&str] = &["docs/decisions", "docs/characterization", "docs/proof", "docs/man", "docs/json"];

pub fn check(files: &[PathBuf], kept: &BTreeMap<String, usize>, findings: &mut Vec<String>) -> Result<()> {
    let mut counts: BTreeMap<String, usize> = kept.keys().map(|place| (place.clone(), 0)).collect();
    for path in files {
        let Some(place) = place_of(path) else { continue };
        let Ok(text) = fs::read_to_string(path) else { continue };
        let riddles = sentences_of(path, &text).iter().filter(|s| is_riddle(s)).count();
        *counts.entry(place).or_default() += riddles;
    }
    for (place, found) in &counts {
        let most = kept.get(place).copied().unwrap_or(0);
        if *found > most {
            findings.push(format!(
                "language of {place}: {found} riddles, at most {most}; `cargo xtask tidy --riddles {place}` shows them (CONTRIBUTING.md)"
            ));
        } else if *found < most {
            findings.push(format!(
                "language of {place}: {found} riddles; write that into layers.toml, which has {most}"
            ));
        }
    }
    Ok(())
}

/// Prints the riddles of one place.
pub fn show(files: &[PathBuf], place: &str) -> Result<()> {
    for path in files.iter().filter(|path| place_of(path).is_some_and(|p| p == place)) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        for riddle in sentences_of(path, &text).iter().filter(|s| is_riddle(s)) {
            println!("{}: {riddle}", path.display());
        }
    }
    Ok(())
}

/// The crate of a product source, or `docs`.
fn place_of(path: &Path) -> Option<String> {
    let shown = path.to_string_lossy();
    match path.extension()?.to_str()? {
        "rs" => {
            let (krate, rest) = shown.strip_prefix("crates/")?.split_once('/')?;
            (rest.starts_with("src/") && !is_test_file(path)).then(|| krate.to_owned())
        }
        "md" => (!LEFT_OUT.iter().any(|out| path.starts_with(out))).then(|| "docs".to_owned()),
        _ => None,
    }
}

fn sentences_of(path: &Path, text: &str) -> Vec<String> {
    let paragraphs = match path.extension().is_some_and(|e| e == "rs") {
        true => paragraphs_of_source(text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()),
        false => paragraphs_of_document(text),
    };
    paragraphs.iter().flat_map(|p| sentences(p)).collect()
}

/// Blocks of comment lines, and string literals that read like a sentence.
fn paragraphs_of_source(text: &str) -> Vec<String> {
    let (mut all, mut block, mut in_code) = (Vec::new(), String::new(), false);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let Some(comment) = trimmed.strip_prefix("//").map(|c| c.trim_start_matches(['/', '!']).trim())
        else {
            all.push(std::mem::take(&mut block));
            in_code = false;
            let literals = trimmed.split('"').skip(1).step_by(2);
            all.extend(literals.filter(|l| l.split(' ').count() > 3).map(str::to_owned));
            continue;
        };
        if comment.starts_with("```") {
            in_code = !in_code;
        } else if comment.is_empty() || starts_item(comment) {
            all.push(std::mem::take(&mut block));
        }
        if !in_code && !comment.starts_with("```") {
            block = format!("{block} {comment}");
        }
    }
    all.push(block);
    all
}

fn paragraphs_of_document(text: &str) -> Vec<String> {
    let (mut all, mut block, mut in_code) = (Vec::new(), String::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            in_code = !in_code;
        } else if line.starts_with('|') && !line.contains("~~") {
            all.extend(line.split(" | ").map(str::to_owned));
        } else if !in_code && !line.starts_with('|') {
            if line.is_empty() || starts_item(line) || line.starts_with('#') {
                all.push(std::mem::take(&mut block));
            }
            block = format!("{block} {line}");
        }
    }
    all.push(block);
    all
}

fn starts_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("- ")
        || line.starts_with("* ")
        || (number.len() < line.len() && number.starts_with(". "))
}

fn sentences(paragraph: &str) -> Vec<String> {
    let (mut all, mut sentence) = (Vec::new(), String::new());
    for word in paragraph.split_whitespace().filter(|w| *w != "-" && *w != "|") {
        sentence = if sentence.is_empty() { word.to_owned() } else { format!("{sentence} {word}") };
        if word.ends_with(['.', '!', '?', ':']) || word.ends_with(".)") || word.ends_with(".**") {
            all.push(std::mem::take(&mut sentence));
        }
    }
    all.push(sentence);
    all
}

fn is_riddle(sentence: &str) -> bool {
    let bare = sentence.trim_start_matches(['*', '(', '`', '_']);
    OPENINGS.iter().any(|o| bare.starts_with(o))
        || bare.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| WITHIN.contains(&word))
        || sentence.split(' ').count() > WORDS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riddles_are_told_from_plain_sentences() {
        for (sentence, riddle) in [
            ("Who finds the role free takes it.", true),
            ("It waits for him who comes.", true),
            ("A job of who has the role.", true),
            ("A thread waits for nobody's lock.", true),
            ("A thread that finds the executor idle becomes its leader.", false),
            ("The heron flies over the chimney.", false),
            ("word ".repeat(WORDS_MAX + 1).trim_end(), true),
        ] {
            assert_eq!(is_riddle(sentence), riddle, "{sentence}");
        }
    }

    #[test]
    fn comments_literals_and_documents_are_read_as_sentences() {
        let source = "//! One thing. Who\n//! goes on.\n//! ```text\n//! he \n//! ```\nlet a = \"Who is there and asks\"; // Who\n";
        let all = sentences_of(Path::new("a.rs"), source);
        assert_eq!(all.iter().filter(|s| is_riddle(s)).count(), 2, "{all:?}");
        let document = "# Who has it\n\nWho asks.\n\n```\nWho runs\n```\n| Who | What is said |\n";
        let all = sentences_of(Path::new("a.md"), document);
        assert_eq!(all.iter().filter(|s| is_riddle(s)).count(), 2, "{all:?}");
    }
}
