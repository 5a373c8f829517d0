//! Man pages and shell completions, made of the command line itself and kept in the repository, so that nothing that ships needs
//! what makes them.
//!
//! I1: the committed pages are those of this source: a test compares them, and `make man` (STRIA_MAN=write) writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::Cli;

/// Below the root of the repository.
const PAGES: &str = "docs/man";
const COMPLETIONS: &str = "packaging/completions";

/// Path in the repository → content.
fn made() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut root = Cli::command().version(env!("CARGO_PKG_VERSION"));
    let mut files = BTreeMap::new();
    for (shell, name) in [(Shell::Bash, "stria.bash"), (Shell::Zsh, "_stria"), (Shell::Fish, "stria.fish")] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut root.clone(), "stria", &mut text);
        files.insert(Path::new(COMPLETIONS).join(name), text);
    }
    root.build();
    pages_of(&root, &mut files);
    // What `mount -t stria` calls is the same command.
    files.insert(Path::new(PAGES).join("mount.stria.8"), b".so man1/stria-mount.1\n".to_vec());
    files
}

fn pages_of(command: &clap::Command, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    files.insert(Path::new(PAGES).join(format!("{name}.1")), page(command, &name));
    command
        .get_subcommands()
        .filter(|c| !c.is_hide_set() && c.get_name() != "help")
        .for_each(|c| pages_of(c, files));
}

fn page(command: &clap::Command, name: &str) -> Vec<u8> {
    let version = concat!("Stria ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).section("1").source(version).manual("Stria");
    let mut out = Vec::new();
    let written: std::io::Result<()> = (|| {
        man.render_title(&mut out)?;
        man.render_name_section(&mut out)?;
        man.render_synopsis_section(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        if command.get_subcommands().any(|c| c.get_name() != "help") {
            man.render_subcommands_section(&mut out)?;
        }
        after_help(command).to_writer(&mut out)?;
        see_also(command, name).to_writer(&mut out)
    })();
    written.expect("a Vec takes all that is written");
    out
}

/// The words after the options: examples as they are typed, each of the others a paragraph.
fn after_help(command: &clap::Command) -> Roff {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with("Example: "));
    let mut roff = Roff::new();
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        // A line that begins with a capital letter begins a paragraph; others go on.
        for line in notes {
            if line.starts_with(char::is_uppercase) {
                roff.control("PP", []);
            }
            roff.text([roman(line)]);
        }
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for example in examples {
            roff.text([roman(example.trim_start_matches("Example: "))]);
        }
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(
        "0: done, and nothing is wrong. 1: it failed, or it found something. 2: it could not be tried.",
    )]);
    roff
}

fn see_also(command: &clap::Command, name: &str) -> Roff {
    let mut pages: Vec<String> = vec![];
    pages.extend(command.get_subcommands().map(|c| format!("{name}-{}", c.get_name())));
    pages.extend(name.rsplit_once('-').map(|(above, _)| above.to_owned()));
    pages.retain(|p| !p.ends_with("-help"));
    let mut words = Vec::new();
    for (n, page) in pages.iter().enumerate() {
        words.extend([bold(page.as_str()), roman(if n + 1 < pages.len() { "(1), " } else { "(1)" })]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]).text(words);
    roff.control("PP", [])
        .text([roman("docs/errors.md lists what error lines mean, docs/operations.md how it is run.")]);
    roff
}

#[test]
fn man_pages_and_completions_are_those_of_this_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = made();
    assert!(made.len() > 15, "a page per command");
    if std::env::var_os("STRIA_MAN").is_some_and(|v| v == "write") {
        for dir in [PAGES, COMPLETIONS] {
            let _ = std::fs::remove_dir_all(root.join(dir));
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        made.iter().for_each(|(path, text)| std::fs::write(root.join(path), text).unwrap());
    }
    for (path, text) in &made {
        let there = std::fs::read(root.join(path)).unwrap_or_default();
        assert!(there == *text, "{} is not what this source makes: run `make man`", path.display());
    }
    for dir in [PAGES, COMPLETIONS] {
        for entry in std::fs::read_dir(root.join(dir)).unwrap() {
            let path = Path::new(dir).join(entry.unwrap().file_name());
            assert!(
                made.contains_key(&path),
                "{}: no command has it any more: run `make man`",
                path.display()
            );
        }
    }
}

#[test]
fn every_command_has_a_page_with_an_example() {
    let pages = made();
    let pages = pages.iter().filter(|(p, _)| p.starts_with(PAGES) && !p.ends_with("mount.stria.8"));
    for (path, text) in pages {
        let text = String::from_utf8_lossy(text);
        for part in [".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""] {
            assert!(text.contains(part), "{} has no {part}", path.display());
        }
    }
}
