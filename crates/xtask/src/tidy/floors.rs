//! Floors inside a crate. The folders of `client`, `mds` and `store` have an order in `layers.toml`, and a file imports from its own floor
//! or from a lower one, as a crate imports from its own layer or a lower one.
//!
//! Read are `crate::` paths of product files. A method call names no path, so a method on a type of a lower floor may stand higher up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::is_test_file;

/// Files that lie directly in `src`.
const GROUND: &str = ".";

/// Crate → its floors, top to bottom.
pub type Floors = BTreeMap<String, Vec<String>>;

pub fn check(files: &[PathBuf], floors: &Floors, findings: &mut Vec<String>) -> Result<()> {
    for (krate, order) in floors {
        let src = Path::new("crates").join(krate).join("src");
        let of_crate: Vec<&Path> = files.iter().filter_map(|f| f.strip_prefix(&src).ok()).collect();
        for file in &of_crate {
            let Ok(text) = fs::read_to_string(src.join(file)) else { continue };
            let Some(own) = floor_of(file) else { continue };
            let Some(at) = order.iter().position(|f| *f == own) else {
                findings.push(format!("crates/{krate}/src/{}: no floor of layers.toml", file.display()));
                continue;
            };
            for upper in upward(&product(&text), &order[..at], &of_crate) {
                findings.push(format!(
                    "crates/{krate}/src/{}: floor {own} imports {upper}, which is above it",
                    file.display()
                ));
            }
        }
    }
    Ok(())
}

/// The floor of a product file, by its path in `src`. None of `lib.rs`, which joins them, and of tests.
fn floor_of(file: &Path) -> Option<String> {
    if file.extension().is_none_or(|e| e != "rs") || file == Path::new("lib.rs") || is_test_file(file) {
        return None;
    }
    let first = file.components().next()?.as_os_str().to_string_lossy().into_owned();
    Some(match file.components().count() {
        1 => GROUND.to_owned(),
        _ => first,
    })
}

/// Without tests at the end of the file, and without comments.
fn product(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = code.lines().map(|l| l.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Paths into floors of `above`.
fn upward(code: &str, above: &[String], files: &[&Path]) -> Vec<String> {
    let is_above = |module: &str| match above.iter().any(|f| f == module) {
        true => true,
        // A module that is a file directly in `src` belongs to the ground floor, if that is above.
        false => {
            above.iter().any(|f| f == GROUND)
                && files.contains(&Path::new(&format!("{module}.rs")))
                && !files.iter().any(|f| f.starts_with(module))
        }
    };
    let mut found: Vec<String> = modules(code).into_iter().filter(|m| is_above(m)).collect();
    found.sort();
    found.dedup();
    found
}

/// First modules of all `crate::` paths, those of a group too.
fn modules(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            None => all.extend(word(rest)),
            Some(group) => all.extend(group_of(group).iter().filter_map(|part| word(part.trim_start()))),
        }
    }
    all
}

/// The parts of `a::b, c::{d, e}}`, up to the bracket that ends it.
fn group_of(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&text[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts
}

fn word(text: &str) -> Option<String> {
    let word: String =
        text.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect();
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_from_a_higher_floor_is_found() {
        let above = ["verbs".to_owned(), GROUND.to_owned()];
        let files = [Path::new("fs.rs"), Path::new("verbs/read.rs"), Path::new("cache/files.rs")];
        let code = product(
            "use crate::{Fs, cache::files, verbs::{read, write}};\nuse crate::fs::Fs; // crate::verbs\nuse crate::session::x;",
        );
        assert_eq!(upward(&code, &above, &files), ["fs", "verbs"]);
        assert!(upward(&code, &[], &files).is_empty());
    }

    #[test]
    fn tests_and_the_root_have_no_floor() {
        for (file, floor) in [
            ("lib.rs", None),
            ("verbs/tests.rs", None),
            ("fs.rs", Some(".")),
            ("verbs/open/late.rs", Some("verbs")),
        ] {
            assert_eq!(floor_of(Path::new(file)).as_deref(), floor, "{file}");
        }
    }
}
