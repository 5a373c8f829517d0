//! How `stria` ends: three exit codes that scripts may rely on, and error lines of one shape.
//!
//! An error line reads `stria: <what>: <why>; <next step>`: what was attempted, what stood in the way, what to do now.
//! I1: the numbers of `Exit` never change their meaning.

use std::fmt;

/// The exit codes. They are documented in `stria --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and nothing is wrong.
    Done = 0,
    /// It was carried out and found something, or it was tried and failed.
    Findings = 1,
    /// It could not be tried: wrong usage, wrong directory, nothing to look at.
    Unusable = 2,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    text: String,
}

impl Failure {
    /// It was tried and failed.
    pub fn failed(what: impl fmt::Display, why: impl fmt::Display, next: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Findings, text: line(what, why, next) }
    }
    /// It could not be tried.
    pub fn unusable(what: impl fmt::Display, why: impl fmt::Display, next: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Unusable, text: line(what, why, next) }
    }
    /// An error line that a child process wrote, passed on as it is.
    pub fn relayed(exit: Exit, text: String) -> Failure {
        Failure { exit, text }
    }
}

fn line(what: impl fmt::Display, why: impl fmt::Display, next: impl fmt::Display) -> String {
    format!("{what}: {why}; {next}")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
impl std::error::Error for Failure {}

/// The exit code that an error asks for; errors that say nothing of it are failures.
pub fn code_of(err: &anyhow::Error) -> Exit {
    err.chain().find_map(|e| e.downcast_ref::<Failure>()).map_or(Exit::Findings, |f| f.exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn an_error_line_has_three_parts_and_keeps_its_code_under_context() {
        let err = anyhow::Error::new(Failure::unusable(
            "status of /d",
            "no cluster.toml there",
            "give another --dir",
        ));
        assert_eq!(format!("{err:#}"), "status of /d: no cluster.toml there; give another --dir");
        assert_eq!(code_of(&err), Exit::Unusable);
        let outer = Err::<(), _>(err).context("fsck").unwrap_err();
        assert_eq!(code_of(&outer), Exit::Unusable);
        assert_eq!(code_of(&anyhow::anyhow!("disk on fire")), Exit::Findings);
    }
}
