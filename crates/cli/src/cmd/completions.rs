//! `stria completions`: shell completions of the command line, with the values of options.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, CommandFactory, ValueEnum};

use crate::exit::Exit;

/// Print completions for a shell: commands, options, and the values of options that have a set of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria completions bash > /usr/share/bash-completion/completions/stria
Example: source <(stria completions zsh)
Example: stria completions fish > ~/.config/fish/completions/stria.fish")]
pub struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub fn run(self) -> anyhow::Result<Exit> {
        out!("{}", text(self.shell));
        Ok(Exit::Done)
    }
}

pub fn text(shell: Shell) -> String {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut root = super::Cli::command().version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    clap_complete::generate(generator, &mut root, "stria", &mut text);
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if shell == Shell::Fish {
        root.build();
        root.get_subcommands().for_each(|c| offer_to_fish(c, &[], &mut text));
    }
    text
}

/// The generator for fish omits the values of positional arguments.
fn offer_to_fish(command: &clap::Command, above: &[&str], text: &mut String) {
    let path = [above, &[command.get_name()]].concat();
    let seen = match path.as_slice() {
        [first] => format!("__fish_stria_using_subcommand {first}"),
        [first, .., last] => {
            format!("__fish_stria_using_subcommand {first}; and __fish_seen_subcommand_from {last}")
        }
        [] => return,
    };
    for arg in command.get_positionals() {
        let words: Vec<String> = arg.get_possible_values().iter().map(|v| v.get_name().to_owned()).collect();
        if !words.is_empty() {
            *text += &format!("complete -c stria -n \"{seen}\" -a \"{}\"\n", words.join(" "));
        }
    }
    let shown = command.get_subcommands().filter(|c| c.get_name() != "help");
    shown.for_each(|c| offer_to_fish(c, &path, text));
}

/// Accepts any text, and offers the known values to shells: a plan is a name or the path of a file.
#[derive(Clone)]
pub struct Offered(pub fn() -> Vec<&'static str>);

impl TypedValueParser for Offered {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// Names of the built-in plans.
pub fn plans() -> Vec<&'static str> {
    bench::plan::BUILT_IN.iter().map(|(name, _)| *name).collect()
}

/// Scales of the built-in plans; a user's plan may have others.
pub fn scales() -> Vec<&'static str> {
    vec!["min", "small", "full"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_are_told_commands_options_and_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = text(shell);
            for word in ["setstripe", "completions", "stripe-count", "pixstor-nvme", "small", "unlink"] {
                assert!(text.contains(word), "no {word} for {shell:?}");
            }
        }
    }

    #[test]
    fn scales_are_those_of_the_plans() {
        let mut all = std::collections::BTreeSet::new();
        for plan in plans() {
            all.extend(bench::plan::load(plan).unwrap().scales.into_keys());
        }
        assert_eq!(all, scales().into_iter().map(String::from).collect());
    }

    #[test]
    fn bash_takes_what_is_printed_for_it() {
        let script = format!(
            "{}\nCOMP_WORDS=(stria bench show pix); COMP_CWORD=3; _stria stria pix show; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            text(Shell::Bash)
        );
        // Through a file: an argument has at most 128 KiB.
        let dir = crate::testdir::TestDir::new("completions");
        let file = dir.path().join("script");
        std::fs::write(&file, script).unwrap();
        let out = std::process::Command::new("bash").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(said.contains("pixstor-nvme"), "{said}{}", String::from_utf8_lossy(&out.stderr));
    }
}
