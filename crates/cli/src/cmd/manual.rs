//! Man pages and shell completions, generated from the command line's definition. They are stored in the repository, so that packaging
//! needs no generator.
//!
//! cli-P1: the committed pages are those of this source: a test compares them, and `make man` (STRIA_MAN=write) writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::Cli;
use super::completions::{self, Shell};

/// Directory below the root of the repository.
const PAGES: &str = "docs/man";
const COMPLETIONS: &str = "packaging/completions";

/// Path in the repository → content.
fn made() -> BTreeMap<PathBuf, Vec<u8>> {
    let mut root = Cli::command().version(env!("CARGO_PKG_VERSION"));
    let mut files = BTreeMap::new();
    for (shell, name) in [(Shell::Bash, "stria.bash"), (Shell::Zsh, "_stria"), (Shell::Fish, "stria.fish")] {
        files.insert(Path::new(COMPLETIONS).join(name), completions::text(shell).into_bytes());
    }
    root.build();
    pages_of(&root, &mut files);
    // `mount -t stria` calls the same command.
    files.insert(Path::new(PAGES).join("mount.stria.8"), b".so man1/stria-mount.1\n".to_vec());
    files
}

fn pages_of(command: &clap::Command, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    files.insert(Path::new(PAGES).join(format!("{name}.1")), page(command, &name));
    with_a_page(command).for_each(|c| pages_of(c, files));
}

fn with_a_page(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help")
}

fn page(command: &clap::Command, name: &str) -> Vec<u8> {
    let version = concat!("Stria ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name).section("1").source(version).manual("Stria");
    let mut out = Vec::new();
    let written: std::io::Result<()> = (|| {
        man.render_title(&mut out)?;
        man.render_name_section(&mut out)?;
        synopsis(command).to_writer(&mut out)?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        commands(command, name).to_writer(&mut out)?;
        after_help(command).to_writer(&mut out)?;
        see_also(command, name).to_writer(&mut out)
    })();
    written.expect("a Vec takes all that is written");
    out
}

/// Each option with its value; optional ones are in brackets.
fn synopsis(command: &clap::Command) -> Roff {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut line = vec![bold(name)];
    let (words, options): (Vec<_>, Vec<_>) =
        command.get_arguments().filter(|a| !a.is_hide_set()).partition(|a| a.is_positional());
    for arg in options.into_iter().chain(words) {
        let (open, close) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
        line.push(roman(open));
        let names = [arg.get_short().map(|c| format!("-{c}")), arg.get_long().map(|l| format!("--{l}"))];
        let names = names.into_iter().flatten().collect::<Vec<_>>().join("|");
        line.extend(Some(names).filter(|n| !n.is_empty()).map(bold));
        if arg.get_action().takes_values() {
            let id = arg.get_id().as_str().to_uppercase();
            let value = arg.get_value_names().map_or(id, |v| v.join(" "));
            line.extend([roman(if arg.is_positional() { "" } else { " " }), italic(value)]);
            let is_many = arg.get_num_args().is_some_and(|n| n.max_values() > 1);
            line.push(roman(if is_many { "..." } else { "" }));
        }
        line.push(roman(close));
    }
    if with_a_page(command).next().is_some() {
        line.extend([roman(" "), italic("COMMAND")]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(line);
    roff
}

/// Subcommands with a page of their own: all but `help` and hidden ones.
fn commands(command: &clap::Command, name: &str) -> Roff {
    let mut roff = Roff::new();
    for (n, c) in with_a_page(command).enumerate() {
        if n == 0 {
            roff.control("SH", ["SUBCOMMANDS"]);
        }
        let about = c.get_about().map(ToString::to_string).unwrap_or_default();
        roff.control("TP", []).text([roman(format!("{name}-{}(1)", c.get_name()))]).text([roman(about)]);
    }
    roff
}

/// The text after the options: examples as they are typed, and each other line as a paragraph.
fn after_help(command: &clap::Command) -> Roff {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.starts_with("Example: "));
    let mut roff = Roff::new();
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        // A line that begins with a capital letter starts a paragraph; others continue it.
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
    pages.extend(with_a_page(command).map(|c| format!("{name}-{}", c.get_name())));
    // A command's own name may have a dash.
    let above = name.strip_suffix(command.get_name()).and_then(|above| above.strip_suffix('-'));
    pages.extend(above.map(str::to_owned));
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
fn pages_name_only_pages_that_are_there_and_options_with_their_values() {
    let pages = made();
    for (path, text) in pages.iter().filter(|(p, _)| p.starts_with(PAGES)) {
        let text = String::from_utf8_lossy(text).replace("\\-", "-").replace("\\fR", "");
        let before =
            |(at, _): (usize, &str)| text[..at].rsplit(|c: char| c != '-' && !c.is_alphanumeric()).next();
        for name in text.match_indices("(1)").filter_map(before).filter(|n| n.contains("stria")) {
            // `\fBstria` is bold.
            let name = name.trim_start_matches("fB");
            let page = Path::new(PAGES).join(format!("{name}.1"));
            assert!(pages.contains_key(&page), "{} names {name}(1)", path.display());
        }
    }
    let up = String::from_utf8_lossy(&pages[Path::new("docs/man/stria-up.1")]).replace("\\-", "-");
    assert!(up.contains("\\fB--dir\\fR \\fIDIR\\fR [\\fB--osts\\fR \\fIN\\fR]"), "{up}");
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
