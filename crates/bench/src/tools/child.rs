//! A child in a process group of its own, whose output is read to its end, and which ends when it shall.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// So often it is looked whether the child shall end: a person does not wait longer.
const LOOK: Duration = Duration::from_millis(50);
/// mpirun needs a moment to end its tasks after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// Lines of an error that are shown.
const TAIL_LINES: usize = 12;

/// Output of a program.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The last lines of its errors, or of its output if it said no error.
    pub fn tail(&self) -> String {
        let text = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

/// Runs a program to its end. An error has the command and the last lines of its output.
pub fn run(command: &[String], environment: &[(&str, &str)], dir: &Path, stop: &AtomicBool) -> Result<Said> {
    let shown = quoted(command);
    let (program, args) = command.split_first().context("an empty command")?;
    let mut child = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("LC_ALL", "C")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {program}: is it installed and in the path?"))?;
    let said = collect(&mut child, stop);
    let status = child.wait().with_context(|| format!("waiting for {program}"))?;
    let said = said?;
    ensure!(status.success(), "{shown}: {status}\n{}", said.tail());
    Ok(said)
}

/// Both outputs until their ends. The group is ended when `stop` is set; then that is the error.
fn collect(child: &mut Child, stop: &AtomicBool) -> Result<Said> {
    let (sender, receiver) = mpsc::channel();
    reader(child.stdout.take(), sender.clone(), |said, text| said.stdout = text);
    reader(child.stderr.take(), sender, |said, text| said.stderr = text);
    let group = Pid::from_child(child);
    let mut said = Said::default();
    while let Some(put) = next(&receiver, || stop.load(Ordering::Relaxed)) {
        match put {
            Some(put) => put(&mut said),
            None => {
                end(group, &receiver);
                bail!("stopped");
            }
        }
    }
    Ok(said)
}

type Put = Box<dyn FnOnce(&mut Said) + Send>;

fn reader<R: Read + Send + 'static>(from: Option<R>, to: Sender<Put>, put: fn(&mut Said, String)) {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // After a read error, the output so far is used.
            from.read_to_end(&mut bytes).ok();
        }
        to.send(Box::new(move |said| put(said, String::from_utf8_lossy(&bytes).into_owned()))).ok();
    });
}

/// The next output that is complete, `Some(None)` when it shall end, `None` when both are complete.
fn next(receiver: &Receiver<Put>, stop: impl Fn() -> bool) -> Option<Option<Put>> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(put) => return Some(Some(put)),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if stop() => return Some(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn end(group: Pid, receiver: &Receiver<Put>) {
    kill_process_group(group, Signal::TERM).ok();
    let begin = Instant::now();
    while begin.elapsed() < GRACE {
        match receiver.recv_timeout(GRACE.saturating_sub(begin.elapsed())) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    kill_process_group(group, Signal::KILL).ok();
}

/// Output of a short query such as a version; `None` if the program is not installed.
pub fn ask(program: &str, args: &[&str]) -> Option<Said> {
    let output = Command::new(program)
        .args(args)
        .current_dir("/")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Said { stdout: text(&output.stdout), stderr: text(&output.stderr) })
}

/// As a shell reads it.
pub fn quoted(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let word = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}
