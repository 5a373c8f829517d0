//! A crew: worker processes that begin together, wherever they were started.
//!
//! Each gets its share of the job and prepares; when all are ready, the crew starts them together. The measured time is from the
//! first start to the last end; counts are added up. After the work, the crew lets all workers read their data back.
//! bench-C1. A worker that fails, or dies, fails the phase: no rate is reported of which a part is missing.
//! bench-C2. When a crew goes, its workers' input ends, and with it the workers.
//! bench-C3. On several hosts the time of a phase is the coordinator's, from the release to the last worker's end.

mod sum;
mod team;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::sum::{HostReport, Sum};
use self::team::{Event, Heard, Team};
use crate::cache::{self, CacheState};
use crate::hosts::{self, Hosts, Placement, on_host};
use crate::job::Job;
use crate::record::Outcome;
use crate::runner::Runner;
use crate::work::now_ns;
use crate::worker::{Answer, Order, Share};

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
#[derive(Clone, Copy, Debug)]
struct Seat {
    part: usize,
    first: u32,
    stride: u32,
    host: usize,
    /// Among the processes of its host.
    process: usize,
}

/// A measured directory: as this process sees it, and its name on the hosts, where `{host}` stands for the host's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub here: PathBuf,
    pub on_hosts: String,
}

impl Root {
    /// One that has the same name everywhere.
    pub fn plain(here: PathBuf) -> Root {
        let on_hosts = std::path::absolute(&here).unwrap_or_else(|_| here.clone()).display().to_string();
        Root { here, on_hosts }
    }
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
    team: Team,
    root: PathBuf,
    roots: Vec<Root>,
    placement: Placement,
    stop: Arc<AtomicBool>,
    watch: Box<dyn FnMut(Live<'_>)>,
}

impl Crew {
    /// Workers of this machine. `root`: base of relative paths in jobs.
    pub fn new(launcher: impl Launcher + 'static, root: PathBuf, stop: Arc<AtomicBool>) -> Crew {
        Crew::of(Team::here(Box::new(launcher)), root, stop)
    }

    /// Workers of hosts.
    pub fn on_hosts(hosts: Hosts, root: PathBuf, stop: Arc<AtomicBool>) -> Crew {
        Crew::of(Team::on_hosts(hosts), root, stop)
    }

    fn of(team: Team, root: PathBuf, stop: Arc<AtomicBool>) -> Crew {
        let watch = Box::new(|_: Live<'_>| {});
        Crew { team, root, roots: Vec::new(), placement: Placement::default(), stop, watch }
    }

    /// Is called a few times a second while a phase runs.
    pub fn watch(&mut self, watch: impl FnMut(Live<'_>) + 'static) {
        self.watch = Box::new(watch);
    }

    pub fn set_root(&mut self, root: PathBuf) {
        self.root = root;
    }

    /// Paths of jobs that lie in one of these directories are given to each host as it has them.
    pub fn set_roots(&mut self, roots: Vec<Root>) {
        self.roots = roots;
    }

    /// How the next phases spread processes over hosts.
    pub fn set_placement(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// Writes dirty data back, here and on all hosts.
    pub fn settle(&mut self) -> Result<()> {
        cache::settle();
        self.caches(false).map(drop)
    }

    /// Drops caches here and on all hosts. The weakest measure that was taken is told.
    pub fn cool(&mut self) -> Result<CacheState> {
        let here = cache::cool();
        let there = self.caches(true)?;
        Ok(if there.contains(&CacheState::Advised) { CacheState::Advised } else { here })
    }

    fn caches(&mut self, drop: bool) -> Result<Vec<CacheState>> {
        let done = self.team.caches(drop, &self.stop);
        done.inspect_err(|_| self.team.disband())
    }

    /// Where each process of the parts sits.
    fn seats(&self, shares: &[u32]) -> Vec<Seat> {
        let hosts = hosts::place(self.placement, self.team.hosts(), shares);
        let mut of_host = vec![0; self.team.hosts()];
        let parts = shares.iter().enumerate();
        let seats = parts.flat_map(|(part, stride)| (0..*stride).map(move |first| (part, first, *stride)));
        let seat = |((part, first, stride), host): ((usize, u32, u32), usize)| {
            of_host[host] += 1;
            Seat { part, first, stride, host, process: of_host[host] - 1 }
        };
        seats.zip(hosts).map(seat).collect()
    }

    /// The job with its paths as a host has them.
    fn share(&self, job: &Job, seat: Seat) -> Share {
        let mut job = job.clone();
        let mut root = self.root.clone();
        if let Some(name) = self.team.host_name(seat.host) {
            let there = |path: &Path| on_that_host(path, &self.roots, name);
            job.map_paths(there);
            root = there(&root);
        }
        Share { job, root, first: seat.first, stride: seat.stride }
    }

    fn tell_all(&mut self, seats: &[Seat], order: &Order) {
        for seat in seats {
            // One that is gone is noticed by its answers' end.
            self.team.tell(seat.host, seat.process, order).ok();
        }
    }

    fn perform(&mut self, parts: &[(String, Job)], processes: u32) -> Result<Vec<Sum>> {
        // Which processes each part has: its workers are spread round-robin over them.
        let shares: Vec<u32> = parts.iter().map(|(_, job)| processes.clamp(1, job.workers.max(1))).collect();
        let seats = self.seats(&shares);
        let count = seats.len();
        self.team.grow(&seats)?;
        for seat in &seats {
            let share = self.share(&parts[seat.part].1, *seat);
            self.team.tell(seat.host, seat.process, &Order::Job(Box::new(share)))?;
        }
        let mut sums: Vec<Sum> = parts.iter().map(|(_, job)| Sum::new(job.limit)).collect();
        let mut live: Vec<Vec<(u64, u64)>> = vec![Vec::new(); count];
        let (mut ready, mut worked, mut left) = (0, 0, count);
        let mut go_ns = 0;
        let mut failure: Option<anyhow::Error> = None;
        let mut is_stopping = false;
        while left > 0 {
            let event = self.team.next(LOOK)?;
            if !is_stopping && (self.stop.load(Ordering::Relaxed) || failure.is_some()) {
                is_stopping = true;
                self.tell_all(&seats, &Order::Stop);
            }
            let Some(Event { host, heard }) = event else { continue };
            let (process, answer, at_ns) = match heard {
                Heard::Process { process, answer, at_ns } => (process, answer, at_ns),
                // A host that is slow to answer an earlier request.
                Heard::Cache(_) => continue,
                Heard::Lost(why) => bail!("{why}"),
            };
            let is_it = |seat: &Seat| (seat.host, seat.process) == (host, process);
            let Some(number) = seats.iter().position(is_it) else { continue };
            let seat = seats[number];
            match answer {
                Some(Answer::Ready) => {
                    ready += 1;
                    if ready == count && !is_stopping {
                        go_ns = now_ns();
                        self.tell_all(&seats, &Order::Go);
                    } else if is_stopping {
                        // It became ready after the others were stopped.
                        self.team.tell(host, process, &Order::Stop).ok();
                    }
                }
                Some(Answer::Progress { workers }) => {
                    live[number] = workers;
                    (self.watch)(Live { workers: &named(parts, &seats, &live) });
                }
                Some(Answer::Worked) => {
                    worked += 1;
                    sums[seat.part].worked(at_ns);
                    if is_stopping {
                        self.team.tell(host, process, &Order::Stop).ok();
                    } else if worked == count {
                        self.tell_all(&seats, &Order::Check);
                    }
                }
                Some(Answer::Done(report)) => {
                    left -= 1;
                    sums[seat.part].reports.push(HostReport { host, report: *report });
                }
                Some(Answer::Failed { why }) => {
                    left -= 1;
                    failure.get_or_insert_with(|| anyhow::anyhow!("{}{why}", self.whose(parts, seat)));
                }
                None => bail!(
                    "{}a worker process has ended: it was killed, or says above why",
                    self.whose(parts, seat)
                ),
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if self.team.host_name(0).is_some() {
            sum::align(&mut sums, go_ns);
        }
        Ok(sums)
    }

    /// `host h2: read: `, as far as there are hosts and parts.
    fn whose(&self, parts: &[(String, Job)], seat: Seat) -> String {
        let host = self.team.host_name(seat.host).map(|name| format!("host {name}: ")).unwrap_or_default();
        let part = &parts[seat.part].0;
        if part.is_empty() { host } else { format!("{host}{part}: ") }
    }
}

/// A path in one of the measured directories, as the host has it; other paths stay.
fn on_that_host(path: &Path, roots: &[Root], host: &str) -> PathBuf {
    let inside = |root: &Root| {
        let rest = path.strip_prefix(&root.here).ok()?;
        Some(Path::new(&on_host(&root.on_hosts, host)).join(rest))
    };
    roots.iter().find_map(inside).unwrap_or_else(|| path.to_owned())
}

impl Runner for Crew {
    fn run(&mut self, parts: &[(String, Job)], processes: u32) -> Result<Vec<Outcome>> {
        // After a failure the state of all workers is unknown, so that all end.
        let sums = self.perform(parts, processes).inspect_err(|_| self.team.disband())?;
        let names = |host| self.team.host_name(host).map(str::to_owned);
        Ok(sums.into_iter().map(|sum| sum.outcome(&names)).collect())
    }
}

/// The workers' progress as their processes reported it, with the workers' names.
fn named<'a>(parts: &'a [(String, Job)], seats: &[Seat], said: &[Vec<(u64, u64)>]) -> Vec<LiveWorker<'a>> {
    let of_process = |(seat, said): (&Seat, &Vec<(u64, u64)>)| {
        let Seat { first, stride, .. } = *seat;
        let part = parts[seat.part].0.as_str();
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

#[cfg(test)]
mod tests;
