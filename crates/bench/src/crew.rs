//! A crew: worker processes that begin together, wherever they were started.
//!
//! Each gets its share of the job and prepares; when all are ready, the crew starts them together. The measured time is from the
//! first start to the last end; counts are added up. After the work, the crew lets all workers read their data back.
//! bench-C1. A worker that fails, or dies, fails the phase: no rate is reported of which a part is missing.
//! bench-C2. When a crew goes, its workers' input ends, and with it the workers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::job::{Job, Limit};
use crate::record::{Outcome, Stonewall, Timeline, WorkerShare};
use crate::runner::Runner;
use crate::worker::{Answer, Buckets, Order, Part, Report, Share};

/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Starts worker processes: here, on other hosts, through a scheduler.
pub trait Launcher: Send {
    fn launch(&self) -> Result<Link>;
}

/// The two ends of a worker's talk.
pub struct Link {
    pub input: Box<dyn Write + Send>,
    pub output: Box<dyn BufRead + Send>,
    /// If it is a process of this machine.
    pub child: Option<Child>,
}

/// Processes of this machine.
pub struct Local {
    /// The program and its arguments that make it a worker.
    pub command: Vec<PathBuf>,
}

impl Launcher for Local {
    fn launch(&self) -> Result<Link> {
        let (program, arguments) = self.command.split_first().context("a worker's command is empty")?;
        let mut command = Command::new(program);
        // A process group of its own: Ctrl-C reaches only the coordinating process, which then stops the workers.
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child =
            command.spawn().with_context(|| format!("starting a worker: {}", program.display()))?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let output = child.stdout.take().context("its output is a pipe")?;
        Ok(Link { input: Box::new(input), output: Box::new(BufReader::new(output)), child: Some(child) })
    }
}

/// Workers as threads of this process: no time to start, for tests and small measurements.
pub struct Inside;

impl Launcher for Inside {
    fn launch(&self) -> Result<Link> {
        let (orders_out, orders_in) = std::io::pipe()?;
        let (answers_out, answers_in) = std::io::pipe()?;
        std::thread::Builder::new().name("worker".into()).spawn(move || {
            // A failure here closes the answer stream, which the crew notices.
            crate::worker::serve(BufReader::new(orders_out), answers_in).ok();
        })?;
        Ok(Link { input: Box::new(orders_in), output: Box::new(BufReader::new(answers_out)), child: None })
    }
}

/// Progress of a phase, as the workers last reported it.
pub struct Live<'a> {
    pub workers: &'a [LiveWorker<'a>],
}

/// A worker has the same name throughout a phase, whichever process it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveWorker<'a> {
    /// Of a phase whose parts run at once; else empty.
    pub part: &'a str,
    pub number: u32,
    pub ops: u64,
    pub bytes: u64,
}

/// Which workers a process has: `first`, `first + stride` and so on, of one part.
#[derive(Clone, Copy)]
struct Seat {
    part: usize,
    first: u32,
    stride: u32,
}

/// It was asked to stop: nothing is wrong.
#[derive(Debug)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped by a signal")
    }
}
impl std::error::Error for Stopped {}

pub struct Crew {
    launcher: Box<dyn Launcher>,
    root: PathBuf,
    stop: Arc<AtomicBool>,
    watch: Box<dyn FnMut(Live<'_>)>,
    members: Vec<Member>,
    sender: Sender<(usize, Option<Answer>)>,
    answers: Receiver<(usize, Option<Answer>)>,
}

struct Member {
    input: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.input = None;
        if let Some(child) = &mut self.child {
            // The worker ends when its input ends. This wait lasts as long as a call of it hangs in a file system.
            child.wait().ok();
        }
    }
}

impl Crew {
    /// `root`: base of relative paths in jobs.
    pub fn new(launcher: impl Launcher + 'static, root: PathBuf, stop: Arc<AtomicBool>) -> Crew {
        let (sender, answers) = channel();
        let watch = Box::new(|_: Live<'_>| {});
        Crew { launcher: Box::new(launcher), root, stop, watch, members: Vec::new(), sender, answers }
    }

    /// Is called a few times a second while a phase runs.
    pub fn watch(&mut self, watch: impl FnMut(Live<'_>) + 'static) {
        self.watch = Box::new(watch);
    }

    pub fn set_root(&mut self, root: PathBuf) {
        self.root = root;
    }

    /// Makes sure that there are so many processes.
    fn grow(&mut self, count: usize) -> Result<()> {
        while self.members.len() < count {
            let number = self.members.len();
            let Link { input, output, child } = self.launcher.launch()?;
            let sender = self.sender.clone();
            std::thread::Builder::new().name("answers".into()).spawn(move || {
                for line in output.lines() {
                    let answer = line.ok().and_then(|l| serde_json::from_str(&l).ok());
                    let is_end = answer.is_none();
                    if sender.send((number, answer)).is_err() || is_end {
                        return;
                    }
                }
                sender.send((number, None)).ok();
            })?;
            self.members.push(Member { input: Some(input), child });
        }
        Ok(())
    }

    fn tell(&mut self, number: usize, order: &Order) -> Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let input = self.members[number].input.as_mut().context("a worker that is gone")?;
        input.write_all(line.as_bytes()).and_then(|()| input.flush()).context("a worker process has ended")
    }

    fn tell_all(&mut self, count: usize, order: &Order) {
        for number in 0..count {
            // One that is gone is noticed by its answers' end.
            self.tell(number, order).ok();
        }
    }

    /// Ends all workers: after a failure their state is unknown.
    fn disband(&mut self) {
        self.dismiss();
        let (sender, answers) = channel();
        (self.sender, self.answers) = (sender, answers);
    }

    fn perform(&mut self, parts: &[(String, Job)], processes: u32) -> Result<Vec<Vec<Report>>> {
        // Which processes each part has: its workers are spread round-robin over them.
        let shares: Vec<u32> = parts.iter().map(|(_, job)| processes.clamp(1, job.workers.max(1))).collect();
        let count = shares.iter().sum::<u32>() as usize;
        self.grow(count)?;
        let mut seats: Vec<Seat> = Vec::with_capacity(count);
        for (part, ((_, job), stride)) in parts.iter().zip(&shares).enumerate() {
            for first in 0..*stride {
                let share = Share { job: job.clone(), root: self.root.clone(), first, stride: *stride };
                self.tell(seats.len(), &Order::Job(Box::new(share)))?;
                seats.push(Seat { part, first, stride: *stride });
            }
        }
        let mut reports: Vec<Vec<Report>> = parts.iter().map(|_| Vec::new()).collect();
        let mut live: Vec<Vec<(u64, u64)>> = vec![Vec::new(); count];
        let (mut ready, mut worked, mut left) = (0, 0, count);
        let mut failure: Option<anyhow::Error> = None;
        let mut is_stopping = false;
        while left > 0 {
            let answer = match self.answers.recv_timeout(LOOK) {
                Ok((number, answer)) => Some((number, answer)),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("all workers are gone"),
            };
            if !is_stopping && (self.stop.load(Ordering::Relaxed) || failure.is_some()) {
                is_stopping = true;
                self.tell_all(count, &Order::Stop);
            }
            let Some((number, answer)) = answer else { continue };
            match answer {
                Some(Answer::Ready) => {
                    ready += 1;
                    if ready == count && !is_stopping {
                        self.tell_all(count, &Order::Go);
                    } else if is_stopping {
                        // It became ready after the others were stopped.
                        self.tell(number, &Order::Stop).ok();
                    }
                }
                Some(Answer::Progress { workers }) => {
                    live[number] = workers;
                    (self.watch)(Live { workers: &named(parts, &seats, &live) });
                }
                Some(Answer::Worked) => {
                    worked += 1;
                    if is_stopping {
                        self.tell(number, &Order::Stop).ok();
                    } else if worked == count {
                        self.tell_all(count, &Order::Check);
                    }
                }
                Some(Answer::Done(report)) => {
                    left -= 1;
                    reports[seats[number].part].push(*report);
                }
                Some(Answer::Failed { why }) => {
                    left -= 1;
                    let name = &parts[seats[number].part].0;
                    let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
                    failure.get_or_insert_with(|| anyhow::anyhow!("{name}{why}"));
                }
                None => bail!("a worker process has ended: it was killed, or says above why"),
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        failure.map_or(Ok(reports), Err)
    }
}

impl Crew {
    /// Closes all inputs before it waits for any worker, so that one that hangs does not keep the others running.
    fn dismiss(&mut self) {
        self.members.iter_mut().for_each(|member| member.input = None);
        self.members.clear();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl Runner for Crew {
    fn run(&mut self, parts: &[(String, Job)], processes: u32) -> Result<Vec<Outcome>> {
        let reports = self.perform(parts, processes).inspect_err(|_| self.disband())?;
        Ok(parts.iter().zip(reports).map(|((_, job), reports)| outcome_of(&job.limit, reports)).collect())
    }
}

/// The workers' progress as their processes reported it, with the workers' names.
fn named<'a>(parts: &'a [(String, Job)], seats: &[Seat], said: &[Vec<(u64, u64)>]) -> Vec<LiveWorker<'a>> {
    let of_process = |(seat, said): (&Seat, &Vec<(u64, u64)>)| {
        let (part, first, stride) = (parts[seat.part].0.as_str(), seat.first, seat.stride);
        let name = move |(n, (ops, bytes)): (usize, &(u64, u64))| LiveWorker {
            part,
            number: first + n as u32 * stride,
            ops: *ops,
            bytes: *bytes,
        };
        said.iter().enumerate().map(name).collect::<Vec<_>>()
    };
    seats.iter().zip(said).flat_map(of_process).collect()
}

/// The sum over the processes of one part.
fn outcome_of(limit: &Limit, reports: Vec<Report>) -> Outcome {
    let mut sum = Report::default();
    let mut latency: BTreeMap<String, _> = BTreeMap::new();
    for report in reports {
        sum.workers.extend(report.workers);
        sum.checked += report.checked;
        sum.cpu_seconds += report.cpu_seconds;
        sum.timeline.add(&report.timeline);
        for (what, part) in report.latency {
            latency.entry(what).or_insert_with(crate::record::Latency::default).add(&part);
        }
    }
    sum.workers.sort_by_key(|part| part.worker);
    let parts = &sum.workers;
    let begin_ns = parts.iter().map(|p| p.begin_ns).min().unwrap_or(0);
    let warm_ns = parts.iter().map(|p| p.warm_ns).min().unwrap_or(0);
    let first_ns = parts.iter().map(|p| p.end_ns).min().unwrap_or(0);
    let last_ns = parts.iter().map(|p| p.end_ns).max().unwrap_or(0);
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let total = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
    let (ops, bytes, late) = (total(|p| p.ops), total(|p| p.bytes), total(|p| p.late));
    let mut extra = BTreeMap::new();
    if limit.pace.is_some() && ops > 0 {
        extra.insert("late_share".to_owned(), late as f64 / ops as f64);
    }
    extra.extend(stages(parts).into_iter().flatten());
    let share = |p: &Part| WorkerShare {
        ops: p.ops,
        bytes: p.bytes,
        seconds: seconds(p.warm_ns, p.end_ns),
        done: p.done,
    };
    Outcome {
        // A phase shorter than a clock tick cannot be divided by.
        seconds: seconds(warm_ns, last_ns).max(1e-9),
        first_done: seconds(begin_ns, first_ns),
        last_done: seconds(begin_ns, last_ns),
        ops,
        bytes,
        read_bytes: total(|p| p.read_bytes),
        stonewall: (parts.len() > 1).then(|| {
            let wall = stonewall(&sum.timeline, warm_ns, first_ns, last_ns);
            // The timeline counts an operation when it ends, even if it began within the warm-up.
            Stonewall { ops: wall.ops.min(ops as f64), bytes: wall.bytes.min(bytes as f64), ..wall }
        }),
        per_worker: parts.iter().map(share).collect(),
        per_target: Vec::new(),
        latency,
        timeline: (!sum.timeline.counts.is_empty()).then(|| Timeline {
            width_seconds: sum.timeline.width_ns as f64 / 1e9,
            ops: sum.timeline.counts.iter().map(|c| c.0).collect(),
            bytes: sum.timeline.counts.iter().map(|c| c.1).collect(),
            begin_seconds: sum.timeline.begin_ns as f64 / 1e9,
        }),
        checked: sum.checked,
        cpu_seconds: sum.cpu_seconds,
        extra,
    }
}

/// Opening, moving (with the flush) and closing of files: each from the first worker's begin of it to the last one's end, as IOR
/// counts. They overlap where workers are not equally far.
fn stages(parts: &[Part]) -> Option<[(String, f64); 3]> {
    let is_there = !parts.is_empty() && parts.iter().all(|p| p.opened_ns > 0 && p.moved_ns > 0);
    let stage = |name: &str, from: fn(&Part) -> u64, to: fn(&Part) -> u64| {
        let first = parts.iter().map(from).min().unwrap_or(0);
        let last = parts.iter().map(to).max().unwrap_or(0);
        (format!("{name}_seconds"), last.saturating_sub(first) as f64 / 1e9)
    };
    is_there.then(|| {
        [
            stage("open", |p| p.begin_ns, |p| p.opened_ns),
            stage("access", |p| p.opened_ns, |p| p.moved_ns),
            stage("close", |p| p.moved_ns, |p| p.end_ns),
        ]
    })
}

/// Operations and bytes from the end of the warm-up until the first worker was done; buckets at the borders count in proportion.
fn stonewall(timeline: &Buckets, from_ns: u64, to_ns: u64, last_ns: u64) -> Stonewall {
    let mut wall = Stonewall { seconds: to_ns.saturating_sub(from_ns) as f64 / 1e9, ops: 0.0, bytes: 0.0 };
    for (i, (ops, bytes)) in timeline.counts.iter().enumerate() {
        let begin = timeline.begin_ns + i as u64 * timeline.width_ns;
        // The last one is as wide as there was work.
        let end = (begin + timeline.width_ns).min(last_ns).max(begin + 1);
        let inside = end.min(to_ns).saturating_sub(begin.max(from_ns));
        let share = inside as f64 / (end - begin) as f64;
        wall.ops += *ops as f64 * share;
        wall.bytes += *bytes as f64 * share;
    }
    wall
}

#[cfg(test)]
mod tests;
