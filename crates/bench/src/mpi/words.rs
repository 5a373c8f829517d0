//! An option list as IOR and mdtest take it: `-vv`, `-b 4m`, `-b4m`, `-b=4m`, `--posix.odirect`, `-posix`; flags in one word.

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;

/// A refused option, the reason, and the advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub why: String,
    pub next: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.next)
    }
}
impl std::error::Error for Refused {}

pub fn refuse<T>(why: impl fmt::Display, next: impl fmt::Display) -> Result<T> {
    Err(Refused { why: why.to_string(), next: next.to_string() }.into())
}

/// The options of a program: letters, words, and options that are not supported here, each with an alternative.
pub struct Known {
    pub flags: &'static str,
    pub valued: &'static str,
    /// Long options by what they are called here; those that end in `=` have a value.
    pub words: &'static [(&'static str, &'static str)],
    pub refused: &'static [(&'static str, &'static str)],
}

/// An option as it was given: its letter or word, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub name: String,
    pub value: String,
}

impl Given {
    /// The option as the user typed it, for messages.
    fn shown(&self) -> String {
        let dashes = if self.name.len() > 1 { "--" } else { "-" };
        format!("{dashes}{} {}", self.name, self.value)
    }

    pub fn number(&self) -> Result<u64> {
        match self.value.parse() {
            Ok(number) => Ok(number),
            Err(_) => refuse(format!("{}: that is no whole number", self.shown()), "give one, 0 or more"),
        }
    }

    pub fn small(&self) -> Result<u32> {
        match self.value.parse() {
            Ok(number) => Ok(number),
            Err(_) => {
                refuse(format!("{}: that is no whole number in reach", self.shown()), "give a smaller one")
            }
        }
    }

    /// `8`, `4k`, `2m`, `1g`, `1t`: powers of 1024, in either case.
    pub fn size(&self) -> Result<u64> {
        let text = self.value.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" => Some(0),
            "k" => Some(10),
            "m" => Some(20),
            "g" => Some(30),
            "t" => Some(40),
            "p" => Some(50),
            _ => None,
        };
        let bytes = shift.and_then(|shift| digits.parse::<u64>().ok()?.checked_mul(1 << shift));
        match bytes {
            Some(bytes) => Ok(bytes),
            None => refuse(format!("{}: that is no size", self.shown()), "give one like 4096, 4k, 2m or 1g"),
        }
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.value)
    }
}

impl Known {
    pub fn read(&self, args: &[String]) -> Result<Vec<Given>> {
        let mut args = args.iter();
        let mut given = Vec::new();
        while let Some(arg) = args.next() {
            let mut value = |name: &str, attached: Option<&str>| match attached
                .or_else(|| args.next().map(String::as_str))
            {
                Some(value) => Ok(value.to_owned()),
                None => {
                    refuse(format!("{name} stands without its value"), format!("give it, as in {name} 1"))
                }
            };
            let Some(word) = arg.strip_prefix('-').filter(|word| !word.is_empty()) else {
                return refuse(
                    format!("{arg}: only options are understood here"),
                    "leave it out, or give it an option's dash",
                );
            };
            let long = word.trim_start_matches('-');
            let (name, attached) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if let Some((known, meant)) =
                self.words.iter().find(|(known, _)| known.trim_end_matches('=') == name)
            {
                let value = if known.ends_with('=') { value(arg, attached)? } else { String::new() };
                given.push(Given { name: (*meant).to_owned(), value });
                continue;
            }
            if word.starts_with('-') {
                return self.refuse(&format!("--{name}"));
            }
            self.letters(word, &mut value, &mut given)?;
        }
        Ok(given)
    }

    /// One word of letters: flags, and at the end perhaps one with a value.
    fn letters(
        &self,
        word: &str,
        value: &mut dyn FnMut(&str, Option<&str>) -> Result<String>,
        given: &mut Vec<Given>,
    ) -> Result<()> {
        let mut rest = word;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let name = letter.to_string();
            if self.flags.contains(letter) {
                given.push(Given { name, value: String::new() });
            } else if self.valued.contains(letter) {
                let attached = Some(rest.strip_prefix('=').unwrap_or(rest)).filter(|rest| !rest.is_empty());
                let value = value(&format!("-{letter}"), attached)?;
                given.push(Given { name, value });
                return Ok(());
            } else {
                return self.refuse(&format!("-{letter}"));
            }
        }
        Ok(())
    }

    fn refuse<T>(&self, option: &str) -> Result<T> {
        match self.refused.iter().find(|(name, _)| *name == option) {
            Some((_, next)) => refuse(format!("{option} is not understood here"), next),
            None => refuse(
                format!("{option} is not understood here"),
                "leave it out; docs/bench-tools.md has the options that are",
            ),
        }
    }
}
