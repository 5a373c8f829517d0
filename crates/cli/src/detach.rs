//! Runs a command in the background: it starts itself again with `--foreground`, in a session of its own, with its log as stderr, and waits
//! until that child reports that it is ready.
//!
//! The child's stdout is a pipe to the waiting parent, with one line per message: `+ <line to print>`, `~ <line for stderr>`, and at the
//! end `ok` or `! <exit code> <error line>`. If a child dies without either, the error names its log.
//! cli-D1: the parent ends with the child's result; it never reports an unready child as ready.
//! cli-D2: a child that is not ready ends with its parent. The parent passes signals (Ctrl-C) on and waits until the child is gone. If the
//! parent is killed, the child notices that the pipe has no reader.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::{Exit, Failure};

/// Where a starting process reports its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Herald {
    /// Directly to stdout.
    Stdout,
    /// To the waiting parent.
    Parent,
}

impl Herald {
    pub fn new(detached: bool) -> Herald {
        if detached { Herald::Parent } else { Herald::Stdout }
    }

    /// Reports one line. A missing parent is no error.
    pub fn say(self, line: &str) {
        let prefix = if self == Herald::Parent { "+ " } else { "" };
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{prefix}{line}").and_then(|()| out.flush());
    }

    /// Reports what a start in the background waits for; in the foreground the log shows it.
    pub fn say_to_parent(self, line: &str) {
        if self == Herald::Parent {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "~ {line}").and_then(|()| out.flush());
        }
    }

    /// Reports a successful start.
    pub fn ready(self) {
        if self == Herald::Parent {
            let mut out = std::io::stdout().lock();
            IS_READY.store(true, Ordering::SeqCst);
            if writeln!(out, "ok").and_then(|()| out.flush()).is_err() {
                end_without_parent();
            }
        }
    }

    /// Reports a failed start.
    pub fn failed(self, err: &anyhow::Error) {
        if self == Herald::Parent {
            let text = crate::exit::line_of(err).replace('\n', " ");
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "! {} {text}", crate::exit::code_of(err) as u8).and_then(|()| out.flush());
        }
    }
}

/// Set before the parent is told: from then on the child needs no parent.
static IS_READY: AtomicBool = AtomicBool::new(false);

/// Makes the child a daemon: a session of its own, without signals of a terminal, and no working directory kept in use.
pub fn become_daemon() -> anyhow::Result<()> {
    rustix::process::setsid()?;
    std::env::set_current_dir("/")?;
    // cli-D2. The thread ends with the parent.
    std::thread::Builder::new().name("parent-watch".into()).spawn(|| {
        let stdout = std::io::stdout();
        let mut pipe = [PollFd::new(&stdout, PollFlags::empty())];
        while rustix::event::poll(&mut pipe, None) == Err(Errno::INTR) {}
        if !IS_READY.load(Ordering::SeqCst) {
            end_without_parent();
        }
    })?;
    Ok(())
}

/// Sends itself SIGTERM, so that the begun start is undone.
fn end_without_parent() {
    tracing::error!("the command that started this process has ended before it was ready: stopping");
    if let Err(e) = kill_process(rustix::process::getpid(), Signal::TERM) {
        tracing::error!("it cannot be stopped by a signal: {e}");
    }
}

/// Runs this program with `args` in the background and waits until it is ready. Prints to `out` what the child reports meanwhile. `log` is
/// its stderr, at `log_path`.
pub fn run_detached(
    what: &str,
    args: &[std::ffi::OsString],
    log: File,
    log_path: &Path,
    out: &mut impl Write,
) -> anyhow::Result<Exit> {
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut child = child.spawn()?;
    // Not by pid: the child's pid is free once it was waited for, and a late signal could reach another process.
    let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let pipe = child.stdout.take().expect("stdout was asked to be a pipe");
    let passed_on = Arc::new(AtomicBool::new(false));
    let passes = passed_on.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            // The second signal kills a child that ignores the first.
            let how = if passes.swap(true, Ordering::SeqCst) { Signal::KILL } else { Signal::TERM };
            pass_on(&process, how, signal);
        }
    })?;
    let word = relay(BufReader::new(pipe), out)?;
    let is_stopped = || passed_on.load(Ordering::SeqCst);
    match word {
        Some(Ok(())) if !is_stopped() => Ok(Exit::Done),
        Some(Err(failure)) => {
            child.wait()?;
            Err(failure.into())
        }
        // The child had not noticed the signal when it reported that it is ready.
        Some(Ok(())) | None => {
            let status = child.wait()?;
            if is_stopped() {
                return Err(Failure::failed(what, "stopped by a signal", "start it again").into());
            }
            let next = format!("its last words are in {}", log_path.display());
            Err(Failure::failed("start", format!("the process in the background ended with {status}"), next)
                .into())
        }
    }
}

/// Without a child, the signal ends this process, as it would without this thread: the caller may still wait for another `up`.
fn pass_on(child: &impl AsFd, how: Signal, signal: i32) {
    if rustix::process::pidfd_send_signal(child, how) == Err(Errno::SRCH) {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Prints the child's lines until its last message; `None` if it ended without one.
fn relay(child: impl BufRead, out: &mut impl Write) -> std::io::Result<Option<Result<(), Failure>>> {
    for line in child.lines() {
        let line = line?;
        if line == "ok" {
            return Ok(Some(Ok(())));
        } else if let Some(text) = line.strip_prefix("+ ") {
            writeln!(out, "{text}")?;
        } else if let Some(text) = line.strip_prefix("~ ") {
            crate::logs::tell(text);
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
        let (end, out) = relayed("+ one\n~ waits\n+   two\nok\n+ never\n");
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
    fn a_signal_reaches_the_child_and_none_other_after_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = rustix::process::pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        pass_on(&process, Signal::TERM, SIGTERM);
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
        // SIGWINCH is ignored by default, so that this process lives on.
        pass_on(&process, Signal::TERM, signal_hook::consts::SIGWINCH);
    }

    #[test]
    fn a_child_that_dies_silently_is_not_ready() {
        assert!(relayed("+ one\n").0.is_none());
        assert!(relayed("").0.is_none());
    }
}
