//! Lines between the coordinator and a host.
//!
//! `N JSON` is an order to process `N` of the host, or its answer. Lines that begin with `!` are for the host itself. A line of
//! another form comes from a login script or from the command: it is kept as something that the host said.

use crate::cache::CacheState;

/// From the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHost<'a> {
    /// For one of its processes, which is started if it is not there.
    Process(usize, &'a str),
    /// Write dirty data back, or drop caches too; the host answers when it is done.
    Settle,
    Cool,
    Beat,
}

/// From a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromHost<'a> {
    /// The host is there, with this version of the program.
    Hello(&'a str),
    Beat,
    Process(usize, &'a str),
    /// The output of a process has ended.
    Ended(usize),
    /// The caches were handled.
    Cache(CacheState),
    /// The host cannot go on.
    Fails(&'a str),
}

impl std::fmt::Display for ToHost<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToHost::Process(number, order) => write!(f, "{number} {order}"),
            ToHost::Settle => f.write_str("!settle"),
            ToHost::Cool => f.write_str("!cool"),
            ToHost::Beat => f.write_str("!beat"),
        }
    }
}

impl<'a> ToHost<'a> {
    /// `None`: the line is of none of these forms.
    pub fn parse(line: &'a str) -> Option<ToHost<'a>> {
        match line {
            "!settle" => Some(ToHost::Settle),
            "!cool" => Some(ToHost::Cool),
            "!beat" => Some(ToHost::Beat),
            _ => process(line).map(|(number, order)| ToHost::Process(number, order)),
        }
    }
}

/// Words of the caches' states.
const CACHES: [(CacheState, &str); 3] =
    [(CacheState::Fresh, "settled"), (CacheState::Dropped, "dropped"), (CacheState::Advised, "advised")];

impl std::fmt::Display for FromHost<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FromHost::Hello(version) => write!(f, "!hello {version}"),
            FromHost::Beat => f.write_str("!beat"),
            FromHost::Process(number, answer) => write!(f, "{number} {answer}"),
            FromHost::Ended(number) => write!(f, "!ended {number}"),
            FromHost::Cache(state) => {
                let word =
                    CACHES.iter().find(|(known, _)| known == state).map_or("advised", |(_, word)| word);
                write!(f, "!cache {word}")
            }
            FromHost::Fails(why) => write!(f, "!fails {}", why.replace('\n', "; ")),
        }
    }
}

impl<'a> FromHost<'a> {
    /// `None`: the line is of none of these forms.
    pub fn parse(line: &'a str) -> Option<FromHost<'a>> {
        let Some(word) = line.strip_prefix('!') else {
            return process(line).map(|(number, answer)| FromHost::Process(number, answer));
        };
        let (word, rest) = word.split_once(' ').unwrap_or((word, ""));
        match word {
            "hello" => Some(FromHost::Hello(rest)),
            "beat" => Some(FromHost::Beat),
            "ended" => rest.parse().ok().map(FromHost::Ended),
            "cache" => {
                CACHES.iter().find(|(_, known)| *known == rest).map(|(state, _)| FromHost::Cache(*state))
            }
            "fails" => Some(FromHost::Fails(rest)),
            _ => None,
        }
    }
}

/// A process's number, and what is said to it or by it: JSON, so that a login script's `2 users` is none.
fn process(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.split_once(' ')?;
    let number = number.parse().ok()?;
    rest.starts_with(['{', '"']).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        for line in [ToHost::Process(7, "{\"go\":1}"), ToHost::Settle, ToHost::Cool, ToHost::Beat] {
            assert_eq!(ToHost::parse(&line.to_string()), Some(line));
        }
        let from = [
            FromHost::Hello("1.2.3"),
            FromHost::Beat,
            FromHost::Process(0, "\"ready\""),
            FromHost::Ended(3),
            FromHost::Cache(CacheState::Fresh),
            FromHost::Cache(CacheState::Dropped),
            FromHost::Cache(CacheState::Advised),
            FromHost::Fails("no such file"),
        ];
        for line in from {
            assert_eq!(FromHost::parse(&line.to_string()), Some(line));
        }
        assert_eq!(FromHost::Fails("a\nb").to_string(), "!fails a; b");
    }

    #[test]
    fn a_login_script_says_no_line_of_ours() {
        for line in ["Last login: Mon", "", "2 users", "!", "!what", "!ended x", "-1 {}", "!cache none"] {
            assert_eq!(FromHost::parse(line), None, "{line}");
            assert_eq!(ToHost::parse(line), None, "{line}");
        }
    }
}
