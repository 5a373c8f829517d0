//! A host's end: starts the host's processes, and passes lines between them and the coordinator.
//!
//! bench-HS1. When the coordinator's lines end, or stay away too long, the host's processes end.

use std::io::{BufRead, Write};
use std::process::Child;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::BEAT;
use super::line::{FromHost, ToHost};
use crate::cache::{self, CacheState};
use crate::crew::{Launcher, Link};

/// A coordinator that says nothing for so long is gone: its host lost its network, and no end of input comes.
const SILENCE: Duration = Duration::from_secs(120);
/// Processes of one host: more is a garbled line.
const PROCESSES_MAX: usize = 4096;
/// A process whose call hangs in a file system is killed when it has not ended by then.
const GRACE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

type Output = Arc<Mutex<Box<dyn Write + Send>>>;

/// Serves the coordinator's lines until they end.
pub fn serve(
    input: impl BufRead + Send + 'static,
    output: impl Write + Send + 'static,
    launcher: &dyn Launcher,
    version: &str,
) -> Result<()> {
    let output: Output = Arc::new(Mutex::new(Box::new(output)));
    say(&output, FromHost::Hello(version))?;
    let (sender, lines) = channel();
    std::thread::Builder::new().name("lines".into()).spawn(move || {
        input.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
    })?;
    // Beats go on while the main thread writes dirty data back. They end when this sender does.
    let (_beating, ends) = channel::<()>();
    let beats = output.clone();
    std::thread::Builder::new().name("beats".into()).spawn(move || {
        while ends.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) && say(&beats, FromHost::Beat).is_ok()
        {
        }
    })?;
    let mut processes = Processes { launcher, output, all: Vec::new() };
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                if let Err(error) = processes.take(&line) {
                    say(&processes.output, FromHost::Fails(&format!("{error:#}")))?;
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the coordinator said nothing for {} s", SILENCE.as_secs())
            }
        }
    }
}

/// One write, so that lines of several threads stay whole.
fn say(output: &Output, line: FromHost<'_>) -> Result<()> {
    let text = format!("{line}\n");
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("the coordinator is gone")
}

struct Processes<'a> {
    launcher: &'a dyn Launcher,
    output: Output,
    all: Vec<Process>,
}

struct Process {
    input: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl Processes<'_> {
    fn take(&mut self, line: &str) -> Result<()> {
        match ToHost::parse(line).with_context(|| format!("a line that cannot be read: {line}"))? {
            ToHost::Beat => Ok(()),
            ToHost::Settle => {
                cache::settle();
                say(&self.output, FromHost::Cache(CacheState::Fresh))
            }
            ToHost::Cool => say(&self.output, FromHost::Cache(cache::cool())),
            ToHost::Process(number, order) => self.tell(number, order),
        }
    }

    fn tell(&mut self, number: usize, order: &str) -> Result<()> {
        ensure!(number < PROCESSES_MAX, "process {number} of one host: {PROCESSES_MAX} are the most");
        while self.all.len() <= number {
            self.launch()?;
        }
        let text = format!("{order}\n");
        // The end of a process's output tells the coordinator that it is gone.
        if let Some(input) = &mut self.all[number].input {
            input.write_all(text.as_bytes()).and_then(|()| input.flush()).ok();
        }
        Ok(())
    }

    fn launch(&mut self) -> Result<()> {
        let number = self.all.len();
        let Link { input, output, child } = self.launcher.launch()?;
        self.all.push(Process { input: Some(input), child });
        let to = self.output.clone();
        std::thread::Builder::new().name("answers".into()).spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if say(&to, FromHost::Process(number, &line)).is_err() {
                    return;
                }
            }
            say(&to, FromHost::Ended(number)).ok();
        })?;
        Ok(())
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        self.all.iter_mut().for_each(|process| process.input = None);
        let begun = Instant::now();
        for child in self.all.iter_mut().filter_map(|process| process.child.as_mut()) {
            while !matches!(child.try_wait(), Ok(Some(_))) {
                if begun.elapsed() > GRACE {
                    child.kill().ok();
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
    }
}
