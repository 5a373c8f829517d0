//! How `stria` ends: three exit codes that scripts may rely on, and error lines of one shape.
//!
//! An error line reads `stria: <what>: <why>; <next step>`: the attempt, the obstacle, and what to do now.
//! cli-E1: the numbers of `Exit` never change their meaning.

use std::fmt;

/// The exit codes. They are documented in `stria --help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, and nothing is wrong.
    Done = 0,
    /// It was done and found something, or it was tried and failed.
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

/// Keeps an error that has a next step; replaces any other.
pub fn unless_said(err: anyhow::Error, or: impl FnOnce() -> Failure) -> anyhow::Error {
    if err.is::<Failure>() { err } else { or().into() }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
impl std::error::Error for Failure {}

/// The exit code of an error; errors without one are failures.
pub fn code_of(err: &anyhow::Error) -> Exit {
    err.chain().find_map(|e| e.downcast_ref::<Failure>()).map_or(Exit::Findings, |f| f.exit)
}

/// The whole error line. An error without a next step gets one by its cause.
pub fn line_of(err: &anyhow::Error) -> String {
    let has_next = err.chain().any(|e| e.is::<Failure>());
    if has_next { format!("{err:#}") } else { format!("{err:#}; {}", next_step(err)) }
}

/// The system's text of `ENOSPC`; some errors arrive as text only.
pub const NO_SPACE: &str = "No space left on device";

fn next_step(err: &anyhow::Error) -> &'static str {
    use std::io::ErrorKind;
    use types::{Code, Fault};
    let fault = err.chain().find_map(|e| e.downcast_ref::<Fault>()).map(|f| f.code);
    let io = err.chain().find_map(|e| e.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    let refused = err.chain().any(|e| e.is::<net::NetError>());
    match (fault, io) {
        // Errors of a server's disk arrive as text.
        (Some(Code::Io), _) if format!("{err:#}").contains(NO_SPACE) => "make room on the disk that holds it",
        (Some(Code::NotReady | Code::Timeout | Code::Moved), _) => {
            "see `stria status`, and try again when all targets are up"
        }
        (Some(Code::Busy), _) => "end what holds it, or wait until it is done",
        (Some(Code::Damaged), _) => {
            "see `stria damage list` and `stria fsck`; keep a copy before any attempt"
        }
        (Some(Code::NoSpace), _) => "see `stria df`, and remove files or add room",
        (Some(Code::Access | Code::Perm), _) => "do it as root, or as the owner",
        (Some(Code::NotFound | Code::Invalid), _) => "correct what was asked for; `--help` shows the form",
        (_, Some(ErrorKind::PermissionDenied)) => "do it as root, or check the permissions",
        (_, Some(ErrorKind::NotFound)) => "check the path",
        (_, Some(ErrorKind::StorageFull)) => "make room on the disk that holds it",
        (_, Some(ErrorKind::ReadOnlyFilesystem)) => "choose a place that can be written",
        _ if refused => "check that the server runs and that its address is right",
        _ => "docs/errors.md lists what it may be; the log says more",
    }
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

    #[test]
    fn what_names_no_next_step_is_given_one() {
        let said = Failure::failed("mount", "in use", "end it");
        assert_eq!(line_of(&anyhow::Error::new(said).context("up")), "up: mount: in use; end it");
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let line = line_of(&anyhow::Error::new(denied).context("make /d"));
        assert!(
            line.starts_with("make /d: ") && line.ends_with("; do it as root, or check the permissions"),
            "{line}"
        );
        let fault = types::Fault::new(types::Code::NotReady, "no OST");
        assert!(line_of(&fault.into()).contains("; see `stria status`"));
        assert!(line_of(&anyhow::anyhow!("disk on fire")).contains("docs/errors.md"));
        let full =
            types::Fault::new(types::Code::Io, "writing /d/map.tmp: No space left on device (os error 28)");
        assert!(line_of(&full.into()).ends_with("; make room on the disk that holds it"));
    }
}
