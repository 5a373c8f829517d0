//! The coordinator's end of the hosts: starts each one's command, passes lines, and notices one that is gone or silent.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::line::{FromHost, ToHost};
use super::{BEAT, Hosts, Pipes};
use crate::cache::CacheState;
use crate::work::now_ns;
use crate::worker::Answer;

/// Last lines of a host that are shown when it fails, and how long one may be.
const SAID_LINES: usize = 4;
const SAID_BYTES: usize = 500;
/// After the end of its output the command ends too, and its errors with it; longer than this is not waited for either.
const END_WAIT: Duration = Duration::from_secs(1);
/// A command that has not ended so long after its input did is killed.
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

/// A line or the end of a host.
pub enum Heard {
    /// An answer of one of its processes, or `None` at the end of that process, with the coordinator's time of it.
    Process {
        process: usize,
        answer: Option<Answer>,
        at_ns: u64,
    },
    Cache(CacheState),
    /// The phase has failed, and why.
    Lost(String),
}

/// All hosts of a run. They are reached when a phase first needs them, and again after a failure.
pub struct Fleet {
    pub hosts: Hosts,
    links: Vec<HostLink>,
}

struct HostLink {
    /// `None`: its input is closed.
    lines: Option<Sender<String>>,
    child: Arc<Mutex<Option<Child>>>,
    said: Said,
    heard_ns: Arc<AtomicU64>,
    shown: String,
}

/// The last lines that were none of ours.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    fn add(&self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line.chars().filter(|c| !c.is_control()).take(SAID_BYTES).collect());
        while lines.len() > SAID_LINES {
            lines.pop_front();
        }
    }

    fn words(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.is_empty() {
            true => "it said nothing".into(),
            false => format!("it last said: {}", lines.iter().cloned().collect::<Vec<_>>().join(" | ")),
        }
    }
}

impl Fleet {
    pub fn new(hosts: Hosts) -> Fleet {
        Fleet { hosts, links: Vec::new() }
    }

    pub fn name(&self, host: usize) -> &str {
        self.hosts.names.get(host).map_or("", String::as_str)
    }

    /// Reaches all hosts, if they are not. Lines go to `hear` with the host's number.
    pub fn reach(&mut self, hear: &Arc<dyn Fn(usize, Heard) -> bool + Send + Sync>) -> Result<()> {
        if self.links.len() == self.hosts.names.len() {
            return Ok(());
        }
        self.dismiss();
        for (number, name) in self.hosts.names.iter().enumerate() {
            let shown = self.hosts.dial.shown(name);
            let pipes = self.hosts.dial.dial(name).with_context(|| format!("host {name}: {shown}"))?;
            let hear = hear.clone();
            let hear = move |heard| hear(number, heard);
            self.links.push(HostLink::new(pipes, name, shown, self.hosts.version.clone(), hear)?);
        }
        Ok(())
    }

    /// A host that is gone is noticed by the end of its lines.
    pub fn tell(&self, host: usize, line: ToHost<'_>) {
        if let Some(lines) = self.links.get(host).and_then(|link| link.lines.as_ref()) {
            lines.send(line.to_string()).ok();
        }
    }

    /// A host that said nothing for too long, in words.
    pub fn silent(&self, now_ns: u64) -> Option<String> {
        let limit = self.hosts.silence;
        let silence = |link: &HostLink| now_ns.saturating_sub(link.heard_ns.load(Ordering::Relaxed));
        let all = self.links.iter().map(silence).enumerate();
        // The one that was heard longest ago: others may be late because this machine is busy.
        let (at, longest) = all.max_by_key(|(_, silence)| *silence)?;
        if u128::from(longest) <= limit.as_nanos() {
            return None;
        }
        let (name, link) = (self.name(at), &self.links[at]);
        let seconds = limit.as_secs_f64();
        Some(format!("host {name} ({}): it is silent for {seconds} s; {}", link.shown, link.said.words()))
    }

    /// Ends all hosts: first every input is closed, then each command is waited for, and killed if it stays.
    pub fn dismiss(&mut self) {
        self.links.iter_mut().for_each(|link| link.lines = None);
        let begun = Instant::now();
        for link in self.links.drain(..) {
            let mut child = link.child.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(child) = child.as_mut() else { continue };
            while !matches!(child.try_wait(), Ok(Some(_))) {
                if begun.elapsed() > GRACE {
                    kill_process_group(Pid::from_child(child), Signal::KILL).ok();
                    child.wait().ok();
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl HostLink {
    fn new(
        pipes: Pipes,
        name: &str,
        shown: String,
        version: String,
        hear: impl Fn(Heard) -> bool + Send + 'static,
    ) -> Result<HostLink> {
        let Pipes { input, output, errors, child } = pipes;
        let (lines, to_write) = channel();
        std::thread::Builder::new().name("host-orders".into()).spawn(move || write(input, &to_write))?;
        let link = HostLink {
            lines: Some(lines),
            child: Arc::new(Mutex::new(child)),
            said: Said::default(),
            heard_ns: Arc::new(AtomicU64::new(now_ns())),
            shown,
        };
        let (said, (done, errors_end)) = (link.said.clone(), channel::<()>());
        std::thread::Builder::new().name("host-errors".into()).spawn(move || {
            let lines = errors.map(std::io::BufReader::new).into_iter().flat_map(BufRead::lines);
            lines.map_while(Result::ok).for_each(|line| said.add(&line));
            drop(done);
        })?;
        let reader = Reader {
            title: format!("host {name} ({})", link.shown),
            child: link.child.clone(),
            said: link.said.clone(),
            heard_ns: link.heard_ns.clone(),
            version,
            hear,
        };
        std::thread::Builder::new()
            .name("host-answers".into())
            .spawn(move || reader.run(output, &errors_end))?;
        Ok(link)
    }
}

/// Writes lines as they come, and beats between them. A host that takes no lines blocks this thread alone.
fn write(mut input: Box<dyn Write + Send>, lines: &Receiver<String>) {
    loop {
        let line = match lines.recv_timeout(BEAT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => ToHost::Beat.to_string(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let line = line + "\n";
        if input.write_all(line.as_bytes()).and_then(|()| input.flush()).is_err() {
            return;
        }
    }
}

struct Reader<F> {
    title: String,
    child: Arc<Mutex<Option<Child>>>,
    said: Said,
    heard_ns: Arc<AtomicU64>,
    version: String,
    hear: F,
}

impl<F: Fn(Heard) -> bool> Reader<F> {
    fn run(self, output: Box<dyn BufRead + Send>, errors_end: &Receiver<()>) {
        let mut is_there = false;
        for line in output.lines().map_while(Result::ok) {
            let at_ns = now_ns();
            self.heard_ns.store(at_ns, Ordering::Relaxed);
            let heard = match FromHost::parse(&line) {
                None => {
                    self.said.add(&line);
                    continue;
                }
                Some(FromHost::Hello(version)) if version == self.version => {
                    is_there = true;
                    continue;
                }
                Some(FromHost::Hello(version)) => {
                    let (title, ours) = (&self.title, &self.version);
                    Heard::Lost(format!(
                        "{title}: it has stria {version} and this is {ours}: install the same on both"
                    ))
                }
                Some(FromHost::Beat) => continue,
                Some(FromHost::Process(process, answer)) => match serde_json::from_str(answer) {
                    Ok(answer) => Heard::Process { process, answer: Some(answer), at_ns },
                    Err(error) => {
                        Heard::Lost(format!("{}: an answer that cannot be read: {error}", self.title))
                    }
                },
                Some(FromHost::Ended(process)) => Heard::Process { process, answer: None, at_ns },
                Some(FromHost::Cache(state)) => Heard::Cache(state),
                Some(FromHost::Fails(why)) => Heard::Lost(format!("{}: {why}", self.title)),
            };
            if !(self.hear)(heard) {
                return;
            }
        }
        // Its errors come by another pipe, which a program in the background may hold open.
        errors_end.recv_timeout(END_WAIT).ok();
        let when = if is_there { "it ended" } else { "it ended before it was there" };
        (self.hear)(Heard::Lost(format!("{}: {when}{}; {}", self.title, self.status(), self.said.words())));
    }

    /// ` (exit status: 255)`, if it is known by now.
    fn status(&self) -> String {
        let begun = Instant::now();
        while begun.elapsed() < END_WAIT {
            let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
            match child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => return format!(" ({status})"),
                Some(Ok(None)) => {}
                Some(Err(_)) | None => return String::new(),
            }
            drop(child);
            std::thread::sleep(LOOK);
        }
        String::new()
    }
}
