//! Going into the background: the command starts itself again with `--foreground`, in a session of its own, with its log as
//! stderr, and waits until that child says that it is ready.
//!
//! The child's stdout is a pipe to the waiting parent, with one line per message: `+ <line to print>`, at the end `ok`, or
//! `! <exit code> <error line>`. A child that dies without either is reported with where its log is.
//! I1: the parent ends with the child's answer; it never says "ready" of a child that is not.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::exit::{Exit, Failure};

/// Where a starting process says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Herald {
    /// A terminal or whatever stdout is.
    Stdout,
    /// The parent that waits for us.
    Parent,
}

impl Herald {
    pub fn new(detached: bool) -> Herald {
        if detached { Herald::Parent } else { Herald::Stdout }
    }

    /// Tells one line. A parent that is gone is no reason to fail.
    pub fn say(self, line: &str) {
        let prefix = if self == Herald::Parent { "+ " } else { "" };
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{prefix}{line}").and_then(|()| out.flush());
    }

    /// Tells a line to who waits for a process in the background; in the foreground the log has it.
    pub fn say_to_parent(self, line: &str) {
        if self == Herald::Parent {
            self.say(line);
        }
    }

    /// The last word of a good start.
    pub fn ready(self) {
        if self == Herald::Parent {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "ok").and_then(|()| out.flush());
        }
    }

    /// The last word of a start that failed.
    pub fn failed(self, err: &anyhow::Error) {
        if self == Herald::Parent {
            let text = crate::exit::line_of(err).replace('\n', " ");
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "! {} {text}", crate::exit::code_of(err) as u8).and_then(|()| out.flush());
        }
    }
}

/// What the child calls first: a session of its own, so that no terminal's signals reach it, and no directory kept busy.
pub fn become_daemon() -> anyhow::Result<()> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Runs this program with `args` in the background and waits until it is ready, printing what it says meanwhile. `log` is open for
/// its lines and lies at `log_path`.
pub fn run_detached(args: &[std::ffi::OsString], log: File, log_path: &Path) -> anyhow::Result<Exit> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = child.spawn()?;
    let pipe = child.stdout.take().expect("stdout was asked to be a pipe");
    match relay(BufReader::new(pipe), &mut std::io::stdout())? {
        Some(Ok(())) => Ok(Exit::Done),
        Some(Err(failure)) => {
            child.wait()?;
            Err(failure.into())
        }
        None => {
            let status = child.wait()?;
            let next = format!("its last words are in {}", log_path.display());
            Err(Failure::failed("start", format!("the process in the background ended with {status}"), next)
                .into())
        }
    }
}

/// Prints what the child says until its last word; `None` if it ended without one.
fn relay(child: impl BufRead, out: &mut impl Write) -> std::io::Result<Option<Result<(), Failure>>> {
    for line in child.lines() {
        let line = line?;
        if line == "ok" {
            return Ok(Some(Ok(())));
        } else if let Some(text) = line.strip_prefix("+ ") {
            writeln!(out, "{text}")?;
        } else if let Some((code, text)) = line.strip_prefix("! ").and_then(|l| l.split_once(' ')) {
            let exit = if code == "2" { Exit::Unusable } else { Exit::Findings };
            return Ok(Some(Err(Failure::relayed(exit, text.to_owned()))));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(text: &str) -> (Option<Result<(), Failure>>, String) {
        let mut out = Vec::new();
        let end = relay(text.as_bytes(), &mut out).unwrap();
        (end, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_childs_words_are_passed_on_until_the_last() {
        let (end, out) = relayed("+ one\n+   two\nok\n+ never\n");
        assert!(matches!(end, Some(Ok(()))));
        assert_eq!(out, "one\n  two\n");
    }

    #[test]
    fn an_error_keeps_its_text_and_code() {
        let (end, _) = relayed("+ one\n! 2 up: D is foreign; choose another\n");
        let failure = end.unwrap().unwrap_err();
        assert_eq!(failure.exit, Exit::Unusable);
        assert_eq!(failure.to_string(), "up: D is foreign; choose another");
        let (end, _) = relayed("! 1 broken\n");
        assert_eq!(end.unwrap().unwrap_err().exit, Exit::Findings);
    }

    #[test]
    fn a_child_that_dies_silently_is_not_ready() {
        assert!(relayed("+ one\n").0.is_none());
        assert!(relayed("").0.is_none());
    }
}
