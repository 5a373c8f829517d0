//! A worker process: reads orders from its standard input, answers on its standard output, a line of JSON each.
//!
//! `Job`: threads are started and prepare; all are prepared: `Ready`. `Go`: they begin together; `Progress` now and then; all have ended:
//! `Worked`. `Check`, when the workers of all processes have ended: some of the written data is read back; `Done` with the results of
//! each of them. `Stop` ends the work early; so does the end of the input, since then the crew is gone.
//! bench-W1. A worker process knows one job at a time and keeps nothing from one to the next.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::pattern::Checked;
use crate::record::Latency;
use crate::work::{self, Clock, Counted, Gauge, Prepared, Shared};

/// How often a process says how far it is.
const PROGRESS: Duration = Duration::from_millis(250);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Job(Box<Share>),
    Go,
    Check,
    Stop,
}

/// One process's part of a job: workers `first`, `first + stride` and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub job: Job,
    /// Base of the job's relative paths.
    pub root: PathBuf,
    pub first: u32,
    pub stride: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Ready,
    /// Operations and bytes of each worker of this process.
    Progress {
        workers: Vec<(u64, u64)>,
    },
    Worked,
    Done(Box<Report>),
    Failed {
        why: String,
    },
}

/// Results of a process's threads. Times are of a clock that all processes of one machine share.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// When this process was released from the barrier.
    #[serde(default)]
    pub go_ns: u64,
    pub workers: Vec<Part>,
    pub latency: Vec<(String, Latency)>,
    pub timeline: Buckets,
    pub checked: Checked,
    pub cpu_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Part {
    pub worker: u32,
    pub begin_ns: u64,
    pub opened_ns: u64,
    pub moved_ns: u64,
    pub end_ns: u64,
    pub warm_ns: u64,
    pub ops: u64,
    pub bytes: u64,
    pub read_bytes: u64,
    pub done: u64,
    pub late: u64,
}

/// Operations and bytes by time; bucket `i` begins at `begin_ns + i * width_ns`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Buckets {
    pub begin_ns: u64,
    pub width_ns: u64,
    pub counts: Vec<(u64, u64)>,
}

impl Buckets {
    /// Adds the counts of another timeline, at the coarser of the two widths.
    pub fn add(&mut self, other: &Buckets) {
        if self.counts.is_empty() {
            *self = other.clone();
            return;
        }
        if other.counts.is_empty() {
            return;
        }
        let begin_ns = self.begin_ns.min(other.begin_ns);
        let width_ns = self.width_ns.max(other.width_ns);
        let mut sum = Buckets { begin_ns, width_ns, counts: Vec::new() };
        for part in [&*self, other] {
            for (i, (ops, bytes)) in part.counts.iter().enumerate() {
                let at = part.begin_ns + i as u64 * part.width_ns - begin_ns;
                let index = (at / width_ns) as usize;
                if index >= sum.counts.len() {
                    sum.counts.resize(index + 1, (0, 0));
                }
                sum.counts[index] = (sum.counts[index].0 + ops, sum.counts[index].1 + bytes);
            }
        }
        *self = sum;
    }
}

/// Serves orders until the input ends.
pub fn serve(input: impl BufRead + Send + 'static, mut output: impl Write) -> Result<()> {
    let (sender, events) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = Reader { sender: sender.clone(), stop: stop.clone() };
    std::thread::Builder::new().name("orders".into()).spawn(move || reader.run(input))?;
    let mut say = move |answer: &Answer| -> Result<()> {
        let mut line = serde_json::to_string(answer)?;
        line.push('\n');
        output.write_all(line.as_bytes())?;
        Ok(output.flush()?)
    };
    loop {
        match events.recv() {
            Ok(Event::Order(Order::Job(share))) => {
                stop.store(false, Ordering::Relaxed);
                match perform(&share, &stop, &sender, &events, &mut say) {
                    Ok(Some(report)) => say(&Answer::Done(Box::new(report)))?,
                    Ok(None) => return Ok(()),
                    Err(error) => say(&Answer::Failed { why: format!("{error:#}") })?,
                }
            }
            // A stop that came after the work was done.
            Ok(Event::Order(Order::Stop)) => {}
            Ok(Event::Order(Order::Go | Order::Check)) => bail!("a go without a job"),
            Ok(Event::Garbled(why)) => bail!("an order that cannot be read: {why}"),
            Ok(Event::End) | Err(_) => return Ok(()),
            Ok(Event::Ready(_) | Event::Finished(..) | Event::Checked(..)) => {
                bail!("a thread of an earlier job is still there")
            }
        }
    }
}

enum Event {
    Order(Order),
    Garbled(String),
    End,
    /// A thread is prepared, or says why it cannot be.
    Ready(Option<String>),
    /// A thread is done: its worker's number and counts.
    Finished(u32, Result<Box<Counted>>),
    /// A thread has read back its worker's data.
    Checked(u32, Result<Checked>),
}

struct Reader {
    sender: Sender<Event>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    fn run(self, input: impl BufRead) {
        for line in input.lines() {
            let event = match line
                .map_err(|e| e.to_string())
                .and_then(|l| serde_json::from_str::<Order>(&l).map_err(|e| e.to_string()))
            {
                Ok(order) => {
                    if order == Order::Stop {
                        // At once: threads look at it before each operation.
                        self.stop.store(true, Ordering::Relaxed);
                    }
                    Event::Order(order)
                }
                Err(why) => Event::Garbled(why),
            };
            if self.sender.send(event).is_err() {
                return;
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        self.sender.send(Event::End).ok();
    }
}

/// One job. `None`: the input ended.
fn perform(
    share: &Share,
    stop: &AtomicBool,
    sender: &Sender<Event>,
    events: &Receiver<Event>,
    say: &mut impl FnMut(&Answer) -> Result<()>,
) -> Result<Option<Report>> {
    let job = &share.job;
    let content = work::content_of(job);
    let shared = Shared { job, root: &share.root, content: &content, stop };
    let workers: Vec<u32> = (share.first..job.workers).step_by(share.stride.max(1) as usize).collect();
    if workers.is_empty() {
        bail!("no workers for this process: start fewer");
    }
    let gauges: Vec<Gauge> = workers.iter().map(|_| Gauge::default()).collect();
    // Threads that failed to prepare reach the barrier too, so that the others do not wait for ever.
    let barrier = Barrier::new(workers.len() + 1);
    let called_off = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut releases = Vec::with_capacity(workers.len());
        for (worker, gauge) in workers.iter().zip(&gauges) {
            let (shared, barrier, called_off, sender) = (&shared, &barrier, &called_off, sender.clone());
            let (release, released) = channel();
            releases.push(release);
            scope.spawn(move || {
                let prepared = Prepared::new(shared, *worker);
                let why = prepared.as_ref().err().map(|e| format!("worker {worker}: {e:#}"));
                sender.send(Event::Ready(why)).ok();
                barrier.wait();
                let (Ok(mut prepared), false) = (prepared, called_off.load(Ordering::Relaxed)) else {
                    return;
                };
                let result = prepared.run(Clock::start(shared.job.limit, shared.stop), gauge).map(Box::new);
                sender.send(Event::Finished(*worker, result)).ok();
                // Nothing comes where it is not worth while: a worker failed, or it was stopped.
                if let Ok(()) = released.recv() {
                    sender.send(Event::Checked(*worker, prepared.read_back())).ok();
                }
            });
        }
        let team = Team { gauges: &gauges, barrier: &barrier, called_off: &called_off, stop, releases };
        team.conduct(events, say).inspect_err(|_| stop.store(true, Ordering::Relaxed))
    })
}

/// The threads of a job, as the main thread has them.
struct Team<'a> {
    gauges: &'a [Gauge],
    barrier: &'a Barrier,
    called_off: &'a AtomicBool,
    stop: &'a AtomicBool,
    /// Lets each thread read back; it ends when this is gone.
    releases: Vec<Sender<()>>,
}

/// Does the process go on with its job?
enum Then {
    Goes,
    /// The input ended.
    Ends,
}

impl Team<'_> {
    /// The main thread's part while the threads work.
    fn conduct(
        self,
        events: &Receiver<Event>,
        say: &mut impl FnMut(&Answer) -> Result<()>,
    ) -> Result<Option<Report>> {
        let begun = self.begin(events, say);
        // Whatever was said, the threads wait there.
        self.called_off.store(!matches!(begun, Ok(Then::Goes)), Ordering::Relaxed);
        let (cpu, go_ns) = (cpu_seconds(), work::now_ns());
        self.barrier.wait();
        if let Then::Ends = begun? {
            return Ok(None);
        }
        let mut report = Report { go_ns, ..Report::default() };
        if let Then::Ends = self.work(&mut report, events, say)? {
            return Ok(None);
        }
        report.cpu_seconds = cpu_seconds() - cpu;
        report.workers.sort_by_key(|part| part.worker);
        say(&Answer::Worked)?;
        match self.check(&mut report, events)? {
            Then::Goes => Ok(Some(report)),
            Then::Ends => Ok(None),
        }
    }

    fn begin(&self, events: &Receiver<Event>, say: &mut impl FnMut(&Answer) -> Result<()>) -> Result<Then> {
        let mut failure = None;
        let mut has_ended = false;
        for _ in &self.releases {
            loop {
                match events.recv().context("the threads are gone")? {
                    Event::Ready(why) => {
                        failure = failure.or(why);
                        break;
                    }
                    Event::End => has_ended = true,
                    // A stop has set its flag already.
                    _ => {}
                }
            }
        }
        if has_ended {
            return Ok(Then::Ends);
        }
        if let Some(failure) = failure {
            bail!("{failure}");
        }
        say(&Answer::Ready)?;
        loop {
            match events.recv().context("the threads are gone")? {
                Event::Order(Order::Go) => return Ok(Then::Goes),
                Event::Order(Order::Stop) => bail!("it was called off before it began"),
                Event::End => return Ok(Then::Ends),
                _ => {}
            }
        }
    }

    fn work(
        &self,
        report: &mut Report,
        events: &Receiver<Event>,
        say: &mut impl FnMut(&Answer) -> Result<()>,
    ) -> Result<Then> {
        let mut failure = None;
        let mut then = Then::Goes;
        let mut left = self.releases.len();
        while left > 0 {
            match events.recv_timeout(PROGRESS) {
                Ok(Event::Finished(worker, Ok(counted))) => {
                    left -= 1;
                    report.take(worker, counted);
                }
                Ok(Event::Finished(worker, Err(error))) => {
                    left -= 1;
                    // The phase has failed, so the other workers may stop.
                    self.stop.store(true, Ordering::Relaxed);
                    failure.get_or_insert(format!("worker {worker}: {error:#}"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let read = |g: &Gauge| (g.ops.load(Ordering::Relaxed), g.bytes.load(Ordering::Relaxed));
                    say(&Answer::Progress { workers: self.gauges.iter().map(read).collect() })?;
                }
                Ok(Event::End) => then = Then::Ends,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the threads are gone"),
            }
        }
        match (then, failure) {
            (Then::Goes, Some(failure)) => bail!("{failure}"),
            (then, _) => Ok(then),
        }
    }

    /// Waits until the workers of all processes have ended; then reads the written data back.
    fn check(&self, report: &mut Report, events: &Receiver<Event>) -> Result<Then> {
        loop {
            match events.recv().context("the threads are gone")? {
                Event::Order(Order::Check) => break,
                Event::Order(Order::Stop) => bail!("it was stopped before what it wrote was read back"),
                Event::End => return Ok(Then::Ends),
                _ => {}
            }
        }
        let mut failure = None;
        let mut then = Then::Goes;
        for release in &self.releases {
            release.send(()).context("a thread is gone")?;
        }
        let mut left = self.releases.len();
        while left > 0 {
            match events.recv().context("the threads are gone")? {
                Event::Checked(worker, checked) => {
                    left -= 1;
                    match checked {
                        Ok(checked) => report.checked += checked,
                        Err(error) => {
                            failure.get_or_insert(format!("worker {worker}: {error:#}"));
                        }
                    }
                }
                Event::End => then = Then::Ends,
                _ => {}
            }
        }
        match (then, failure) {
            (Then::Goes, Some(failure)) => bail!("{failure}"),
            (then, _) => Ok(then),
        }
    }
}

impl Report {
    /// Moves all times, so that `from` becomes `to`.
    pub fn shift(&mut self, from: u64, to: u64) {
        let moved = |ns: u64| to.saturating_add(ns).saturating_sub(from);
        for part in &mut self.workers {
            // 0 says that there was no file.
            for ns in [&mut part.opened_ns, &mut part.moved_ns].into_iter().filter(|ns| **ns > 0) {
                *ns = moved(*ns);
            }
            for ns in [&mut part.begin_ns, &mut part.warm_ns, &mut part.end_ns] {
                *ns = moved(*ns);
            }
        }
        self.timeline.begin_ns = moved(self.timeline.begin_ns);
        self.go_ns = moved(self.go_ns);
    }

    fn take(&mut self, worker: u32, counted: Box<Counted>) {
        for (what, histogram) in
            [("read", &counted.reads), ("write", &counted.writes), ("op", &counted.others)]
        {
            if histogram.is_empty() {
                continue;
            }
            let latency = work::latency_of(histogram);
            match self.latency.iter_mut().find(|(other, _)| other == what) {
                Some((_, sum)) => sum.add(&latency),
                None => self.latency.push((what.into(), latency)),
            }
        }
        self.timeline.add(&Buckets {
            begin_ns: counted.begin_ns,
            width_ns: counted.width_ns,
            counts: counted.buckets,
        });
        self.checked += counted.checked;
        self.workers.push(Part {
            worker,
            begin_ns: counted.begin_ns,
            opened_ns: counted.opened_ns,
            moved_ns: counted.moved_ns,
            end_ns: counted.end_ns,
            warm_ns: counted.warm_ns,
            ops: counted.ops,
            bytes: counted.bytes,
            read_bytes: counted.read_bytes,
            done: counted.done,
            late: counted.late,
        });
    }
}

/// Of this process, user and system.
fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}
