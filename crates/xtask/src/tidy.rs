//! `cargo xtask tidy`: rules of this repository that the compiler does not check.
//!
//! - Structure: edges between layers, floors inside crates, purity of rule crates, places of `unsafe`, sizes of files and of the build.
//! - Documents: SEMANTICS paragraphs with their tests, ids of rules, source files that documents name, docs/errors.md.
//! - Language: see `language`, and words that do not belong in a repository.

mod errors;
mod floors;
mod language;
mod paths;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The content of `layers.toml`.
struct Layers {
    /// Crate → layer.
    layer_of: BTreeMap<String, String>,
    /// Layer → layers that it may import.
    imports: BTreeMap<String, BTreeSet<String>>,
    /// Single edges `from to` that are allowed beside.
    edges: BTreeSet<String>,
    pure_crates: BTreeSet<String>,
    unsafe_crates: BTreeSet<String>,
    default_graph_crates_max: usize,
    file_lines_max: usize,
    floors: floors::Floors,
    /// Riddles by crate, see `language`.
    riddles: BTreeMap<String, usize>,
}

pub fn run() -> Result<()> {
    let layers = read_layers()?;
    let mut findings = Vec::new();
    check_edges(&layers, &mut findings)?;
    check_sources(&layers, &mut findings)?;
    check_semantics(&mut findings)?;
    let files = tracked_files()?;
    errors::check(&files, &mut findings)?;
    let names = layers.layer_of.keys().cloned().collect();
    rules::check(&files, &names, &mut findings)?;
    paths::check(&files, &names, &mut findings)?;
    floors::check(&files, &layers.floors, &mut findings)?;
    language::check(&files, &layers.riddles, &mut findings)?;
    let crates = check_default_graph(&layers, &mut findings)?;
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!(
        "tidy: layers, purity, unsafe, sizes, semantics, ids of rules, floors, language and error messages hold; {crates} crates in the default build (at most {})",
        layers.default_graph_crates_max
    );
    Ok(())
}

/// Prints the riddles of a crate, or of `docs`.
pub fn show_riddles(place: &str) -> Result<()> {
    language::show(&tracked_files()?, place)
}

fn strings(v: Option<&toml::Value>) -> Vec<String> {
    v.and_then(|v| v.as_array())
        .map(|a| a.iter().filter_map(|s| s.as_str().map(str::to_owned)).collect())
        .unwrap_or_default()
}

fn read_layers() -> Result<Layers> {
    let text = fs::read_to_string("layers.toml").context("layers.toml: run from the root of the checkout")?;
    let table: toml::Table = text.parse()?;
    let mut layers = Layers {
        layer_of: BTreeMap::new(),
        imports: BTreeMap::new(),
        edges: BTreeSet::new(),
        pure_crates: BTreeSet::new(),
        unsafe_crates: strings(table.get("unsafe").and_then(|u| u.get("crates"))).into_iter().collect(),
        default_graph_crates_max: limit(&table, "default_graph_crates_max")?,
        file_lines_max: limit(&table, "file_lines_max")?,
        floors: table.get("floors").and_then(|f| f.as_table()).map(orders).unwrap_or_default(),
        riddles: table.get("language").and_then(|l| l.as_table()).map(counts).unwrap_or_default(),
    };
    for (name, layer) in
        table.iter().filter(|(n, _)| !matches!(n.as_str(), "unsafe" | "limits" | "floors" | "language"))
    {
        for krate in strings(layer.get("crates")) {
            layers.layer_of.insert(krate.clone(), name.clone());
            if layer.get("no_io").and_then(|b| b.as_bool()) == Some(true) {
                layers.pure_crates.insert(krate);
            }
        }
        layers.imports.insert(name.clone(), strings(layer.get("imports")).into_iter().collect());
        layers.edges.extend(strings(layer.get("beside")));
        layers.edges.extend(strings(layer.get("extra")));
    }
    Ok(layers)
}

fn orders(table: &toml::Table) -> floors::Floors {
    table.iter().map(|(krate, floor)| (krate.clone(), strings(floor.get("order")))).collect()
}

fn counts(table: &toml::Table) -> BTreeMap<String, usize> {
    let count = |(name, n): (&String, &toml::Value)| Some((name.clone(), n.as_integer()? as usize));
    table.iter().filter_map(count).collect()
}

fn limit(table: &toml::Table, name: &str) -> Result<usize> {
    let n = table.get("limits").and_then(|l| l.get(name)).and_then(|n| n.as_integer());
    n.map(|n| n as usize).with_context(|| format!("layers.toml: limits.{name} is missing"))
}

fn metadata() -> Result<Value> {
    let out = Command::new("cargo").args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    Ok(serde_json::from_slice(&out.stdout)?)
}

/// `stria-kv` and `stria` (the binary) as `layers.toml` names them.
fn short(package: &str) -> &str {
    match package {
        "stria" => "cli",
        other => other.strip_prefix("stria-").unwrap_or(other),
    }
}

fn check_edges(layers: &Layers, findings: &mut Vec<String>) -> Result<()> {
    let meta = metadata()?;
    for package in meta["packages"].as_array().into_iter().flatten() {
        let from = short(package["name"].as_str().unwrap_or_default());
        let Some(layer) = layers.layer_of.get(from) else {
            findings.push(format!("crate {from} is in no layer of layers.toml"));
            continue;
        };
        for dep in package["dependencies"].as_array().into_iter().flatten() {
            let name = dep["name"].as_str().unwrap_or_default();
            // Tests may reach for anything: the proof layer is above all others.
            if dep["path"].is_null() || dep["kind"] == "dev" {
                continue;
            }
            let to = short(name);
            let Some(to_layer) = layers.layer_of.get(to) else { continue };
            let allowed =
                layers.imports[layer].contains(to_layer) || layers.edges.contains(&format!("{from} {to}"));
            if !allowed {
                findings.push(format!(
                    "{from} ({layer}) imports {to} ({to_layer}); layers.toml does not allow it"
                ));
            }
        }
    }
    Ok(())
}

/// Words that a pure crate has no business with, outside its tests.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "Instant::now",
    "SystemTime::now",
    "std::process",
    "rand::",
    "tokio",
];
/// Strings that no file may contain. Written in two parts so that this file does not find itself.
const UNWANTED: &[(&str, &str)] =
    &[("/wo", "rk/"), ("/ro", "ot/"), ("todo", "!("), ("unimple", "mented!("), ("dbg", "!(")];

fn check_sources(layers: &Layers, findings: &mut Vec<String>) -> Result<()> {
    for path in tracked_files()? {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let shown = path.display();
        for (a, b) in UNWANTED {
            if text.contains(&format!("{a}{b}")) {
                findings.push(format!("{shown}: contains {a}{b}"));
            }
        }
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let lines = text.lines().count();
        if lines > layers.file_lines_max {
            findings.push(format!("{shown}: {lines} lines, at most {}", layers.file_lines_max));
        }
        let krate = path
            .components()
            .nth(1)
            .map(|c| c.as_os_str().to_string_lossy().into_owned())
            .unwrap_or_default();
        let in_src = path.components().nth(2).is_some_and(|c| c.as_os_str() == "src");
        let product =
            if is_test_file(&path) { "" } else { text.split("#[cfg(test)]").next().unwrap_or_default() };
        if in_src && layers.pure_crates.contains(&krate) {
            for word in IMPURE.iter().filter(|w| code_contains(product, w)) {
                findings.push(format!("{shown}: a pure crate uses {word}"));
            }
        }
        if in_src && !layers.unsafe_crates.contains(&krate) && code_contains(product, "unsafe {") {
            findings.push(format!("{shown}: unsafe outside {:?}", layers.unsafe_crates));
        }
        if code_contains(product, "TODO") || code_contains(product, "FIXME") {
            findings.push(format!("{shown}: an open end in a comment; it belongs into an issue"));
        }
    }
    Ok(())
}

fn is_test_file(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests") || path.file_name().is_some_and(|n| n == "tests.rs")
}

fn code_contains(text: &str, word: &str) -> bool {
    text.lines().any(|l| l.contains(word) && !l.trim_start().starts_with("//"))
}

fn tracked_files() -> Result<Vec<PathBuf>> {
    let out =
        Command::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]).output()?;
    let list = String::from_utf8(out.stdout)?;
    // The lock file is the registry's text, not ours.
    Ok(list.lines().filter(|l| !l.ends_with("Cargo.lock")).map(PathBuf::from).collect())
}

/// Every paragraph of SEMANTICS has an id in brackets, and some test quotes it; no test quotes an id that is not there.
fn check_semantics(findings: &mut Vec<String>) -> Result<()> {
    let text = fs::read_to_string("docs/SEMANTICS.md").context("docs/SEMANTICS.md")?;
    let promised = ids(&text);
    if promised.is_empty() {
        findings.push("docs/SEMANTICS.md has no paragraph with an id".into());
    }
    let mut quoted = BTreeSet::new();
    for path in tracked_files()?.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
        if let Ok(source) = fs::read_to_string(path) {
            quoted.extend(ids(&source));
        }
    }
    findings.extend(promised.difference(&quoted).map(|id| format!("docs/SEMANTICS.md: no test quotes {id}")));
    findings.extend(
        quoted.difference(&promised).map(|id| format!("a test quotes {id}, which docs/SEMANTICS.md has not")),
    );
    Ok(())
}

/// Ids such as `S-word-word`, in brackets.
fn ids(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (at, _) in text.match_indices("[S-") {
        let rest = &text[at + 1..];
        if let Some(end) = rest.find(']') {
            let id = &rest[..end];
            if id.len() > 2
                && id[2..].chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            {
                out.insert(id.to_owned());
            }
        }
    }
    out
}

fn check_default_graph(layers: &Layers, findings: &mut Vec<String>) -> Result<usize> {
    let out = Command::new("cargo")
        .args([
            "tree",
            "--package",
            "stria",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .output()?;
    let text = String::from_utf8(out.stdout)?;
    let crates: BTreeSet<&str> =
        text.lines().filter(|l| !l.is_empty()).map(|l| l.trim_end_matches(" (*)")).collect();
    if crates.len() > layers.default_graph_crates_max {
        findings.push(format!(
            "{} crates in the default build, at most {}",
            crates.len(),
            layers.default_graph_crates_max
        ));
    }
    Ok(crates.len())
}
