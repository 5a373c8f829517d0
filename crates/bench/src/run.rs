//! Runs a plan: its steps, points and phases one after the other, each repeated until it is known well enough or time is up.
//!
//! bench-R1. Each record is on disk before the next phase begins; Ctrl-C or a failure loses no finished record.
//! bench-R2. Nothing is left in the measured directory, however it ends (but for a kill).
//! bench-R3. Making, settling, cooling and removing are never inside a measured time.
//! bench-R4. A step that cannot be run is skipped with a line that says why, and never counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cache::{self, CacheState};
use crate::crew::{Crew, Launcher, Stopped};
use crate::job::{Data, DataOp, Engine, Files, Job, NamesOp, Work};
use crate::plan::schema::Need;
use crate::plan::{
    self, Environment, Plan, PlannedPart, PlannedPhase, PlannedPoint, PlannedStep, Program, Scale,
};
use crate::progress::Progress;
use crate::record::{self, End, Header, Line, Outcome, Output, Record, Recorder, Skipped};
use crate::report::RECORDS;
use crate::runner::Runner;
use crate::stats::estimate;
use crate::tools::Found;
use crate::{memory, needs, system, targets};

/// How long removed space is waited for, and how often it is looked at.
const SPACE_WAIT: Duration = Duration::from_secs(20);
const SPACE_LOOK: Duration = Duration::from_millis(200);

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The measured directory, which exists.
    pub dir: PathBuf,
    /// Where the result goes: a directory, made if it is not there.
    pub out: PathBuf,
    pub scale: String,
    pub environment: Environment,
    /// Path of this program: plans may ask for its output.
    pub program: PathBuf,
    /// The command line, for the record.
    pub command: String,
    /// Of the program.
    pub version: String,
    pub progress: bool,
    /// In place of the scale's.
    pub repeats: Option<[u32; 2]>,
    pub budget_seconds: Option<u64>,
    /// Set from outside (Ctrl-C): the current phase ends, and the files of the run are removed.
    pub stop: Arc<AtomicBool>,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    pub records: u64,
    pub skipped: u64,
    pub failed: u64,
    /// Ctrl-C came.
    pub stopped: bool,
}

/// Runs the plan by workers that `launcher` starts; the result is in `settings.out`.
pub fn run(plan: &Plan, settings: &Settings, launcher: impl Launcher + 'static) -> Result<Ran> {
    run_with(plan, settings, launcher, || Ok(()))
}

/// The same; `before` is called before each phase, and then caches are settled or dropped.
pub fn run_with(
    plan: &Plan,
    settings: &Settings,
    launcher: impl Launcher + 'static,
    before: impl FnMut() -> Result<()>,
) -> Result<Ran> {
    let steps = plan::expand(plan, &settings.scale, &settings.environment)?;
    let scale = plan.scales.get(&settings.scale).context("a scale that was expanded is there")?.clone();
    ensure!(settings.dir.is_dir(), "{}: it is no directory", settings.dir.display());
    std::fs::create_dir_all(&settings.out).with_context(|| format!("making {}", settings.out.display()))?;
    let path = settings.out.join(RECORDS);
    ensure!(
        !path.exists(),
        "{} holds a result already: give another directory with --out, or remove that one",
        settings.out.display()
    );
    // First the steps that may be refused: an empty result would be in the way of the next attempt.
    let workspace = Workspace::new(&settings.dir)?;
    let mut recorder = Recorder::create(&path)?;
    let found = programs(&steps);
    recorder.write(&Line::Header(Box::new(header(plan, &steps, &scale, settings, &found))))?;
    let begun = Instant::now();
    let crew = Crew::new(launcher, workspace.0.clone(), settings.stop.clone());
    let progress = Progress::new(settings.progress, executions(&steps, repeats(&scale, settings)[0]));
    let mut running = Running {
        settings,
        scale,
        recorder,
        begun,
        begun_ns: crate::work::now_ns(),
        workspace,
        crew,
        progress,
        found,
        before: Box::new(before),
        ran: Ran::default(),
    };
    running.crew.watch(running.progress.watcher());
    let result = running.steps(&steps);
    running.progress.end();
    let why = result.as_ref().err().map(|e| format!("{e:#}")).unwrap_or_default();
    let end = End { complete: result.is_ok(), why, seconds: begun.elapsed().as_secs_f64() };
    running.recorder.write(&Line::End(end))?;
    match result {
        Err(error) if error.is::<Stopped>() => running.ran.stopped = true,
        result => result?,
    }
    Ok(running.ran)
}

fn repeats(scale: &Scale, settings: &Settings) -> [u32; 2] {
    let [least, most] = settings.repeats.unwrap_or(scale.repeats);
    [least.max(1), most.max(least).max(1)]
}

/// Phases that will be run at least.
fn executions(steps: &[PlannedStep], repeats: u32) -> u64 {
    let sides = |phase: &PlannedPhase| 1 + u64::from(phase.against.is_some());
    let of_point = |point: &PlannedPoint| point.phases.iter().map(sides).sum::<u64>();
    steps.iter().flat_map(|step| &step.points).map(of_point).sum::<u64>() * u64::from(repeats)
}

/// Asks those that take part for their versions.
fn programs(steps: &[PlannedStep]) -> Found {
    let mut found = Found::default();
    let phases = steps.iter().flat_map(|step| &step.points).flat_map(|point| &point.phases);
    for program in phases.flat_map(|phase| std::iter::once(phase.program).chain(phase.against)) {
        found.here(program);
    }
    found
}

/// How this run handles caches; each record has the state of its own phase.
fn caches_of(steps: &[PlannedStep]) -> &'static str {
    let mut phases = steps.iter().flat_map(|step| &step.points).flat_map(|point| &point.phases);
    match (phases.any(|phase| phase.cold), cache::may_drop()) {
        (false, _) => "left as they were: no phase is cold",
        (true, true) => "dropped before cold phases",
        (true, false) => {
            "not dropped (no right to): before cold phases pages of files are asked to go, names stay"
        }
    }
}

fn header(plan: &Plan, steps: &[PlannedStep], scale: &Scale, settings: &Settings, found: &Found) -> Header {
    let dir = std::path::absolute(&settings.dir).unwrap_or_else(|_| settings.dir.clone());
    // Evaluated: tables divide by them.
    let values = plan::expand::variables(plan, &settings.scale, &settings.environment);
    let values = values.map(|vars| vars.values()).unwrap_or_default();
    let mut system = system::describe(&dir);
    let programs: Vec<&str> = found.all().map(|(_, version)| version).collect();
    if !programs.is_empty() {
        system.push(("programs of others".into(), programs.join(", ")));
    }
    system.push(("caches".into(), caches_of(steps).into()));
    for target in &settings.environment.targets {
        system.push(("target".into(), target.display().to_string()));
    }
    let [least, most] = repeats(scale, settings);
    system.push((
        "repeats".into(),
        format!("{least} to {most}, until narrower than {} %", scale.narrow * 100.0),
    ));
    Header {
        format: record::FORMAT,
        version: settings.version.clone(),
        plan: plan.clone(),
        scale: settings.scale.clone(),
        values,
        dir: dir.display().to_string(),
        file_system: system::mount_of(&settings.dir).map_or_else(|| "unknown".into(), |m| m.file_system),
        command: settings.command.clone(),
        begun: system::utc_now(),
        system,
    }
}

/// A directory of ours inside the measured one, which goes with all that is in it.
struct Workspace(PathBuf);

impl Workspace {
    fn new(dir: &Path) -> Result<Workspace> {
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let path = dir.join(format!("stria-bench.{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Workspace(path))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("stria bench: {} is left behind: {error}", self.0.display());
        }
    }
}

struct Running<'a> {
    settings: &'a Settings,
    scale: Scale,
    recorder: Recorder,
    begun: Instant,
    /// The same moment by the clock of workers.
    begun_ns: u64,
    crew: Crew,
    // After the crew, whose workers may still have files in it.
    workspace: Workspace,
    progress: Progress,
    found: Found,
    before: Box<dyn FnMut() -> Result<()> + 'a>,
    ran: Ran,
}

/// How much of a file each worker's part really holds, by the file's name and the side that wrote it.
type Holds = BTreeMap<(String, Program), Vec<u64>>;

impl Running<'_> {
    fn steps(&mut self, steps: &[PlannedStep]) -> Result<()> {
        for step in steps {
            if let Some(why) = self.reason_to_skip(step) {
                self.skip(step, why, false)?;
                continue;
            }
            for command in &step.commands {
                self.command(step, command)?;
            }
            for (number, point) in step.points.iter().enumerate() {
                match self.point(step, number, point) {
                    // Whatever a program said that was ended in the middle: it was the stop.
                    Err(_) if self.settings.stop.load(Ordering::Relaxed) => return Err(Stopped.into()),
                    // The other steps can still tell something; the exit code says that one failed.
                    Err(error) => {
                        self.skip(step, format!("{error:#}"), true)?;
                        break;
                    }
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    fn skip(&mut self, step: &PlannedStep, why: String, failed: bool) -> Result<()> {
        self.progress.say(&format!("{} {}: {why}", if failed { "FAILED" } else { "skipped" }, step.id));
        self.ran.skipped += u64::from(!failed);
        self.ran.failed += u64::from(failed);
        self.recorder.write(&Line::Skipped(Skipped { step: step.id.clone(), why, failed }))
    }

    fn budget_seconds(&self) -> u64 {
        self.settings.budget_seconds.unwrap_or(self.scale.budget_seconds)
    }

    fn is_over_budget(&self) -> bool {
        self.begun.elapsed().as_secs_f64() > self.budget_seconds() as f64
    }

    fn reason_to_skip(&mut self, step: &PlannedStep) -> Option<String> {
        let dir = &self.settings.dir;
        let missing = |need: &Need| needs::missing(*need, dir, &mut self.found);
        if let Some(missing) = step.needs.iter().find_map(missing) {
            return Some(missing);
        }
        if self.is_over_budget() {
            return Some(format!(
                "the {} s for the plan are used up: give more with --budget",
                self.budget_seconds()
            ));
        }
        let phases = step.points.iter().flat_map(|p| p.phases.iter().map(|phase| (phase, p.processes)));
        let ram = self.settings.environment.ram;
        if let Some((phase, why)) = phases.into_iter().find_map(|(phase, processes)| {
            let jobs = phase.parts.iter().map(|part| &part.job);
            Some((phase, memory::refusal(jobs, processes, ram)?))
        }) {
            return Some(format!("phase {}: {why}", phase.name));
        }
        let needed = plan::estimate::space_bytes(step);
        let free = self.free_bytes(needed)?;
        (needed > free).then(|| {
            format!("it needs {} MiB and {} MiB are free: take a smaller scale", needed >> 20, free >> 20)
        })
    }

    /// Free space of the measured directory. Many file systems free the space of removed files late: waits for that if it would
    /// suffice.
    fn free_bytes(&self, needed: u64) -> Option<u64> {
        let begun = Instant::now();
        loop {
            let stat = rustix::fs::statvfs(&self.settings.dir).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            let is_hopeless = bytes(stat.f_blocks) < needed || begun.elapsed() > SPACE_WAIT;
            if bytes(stat.f_bavail) >= needed || is_hopeless || self.settings.stop.load(Ordering::Relaxed) {
                return Some(bytes(stat.f_bavail));
            }
            std::thread::sleep(SPACE_LOOK);
        }
    }

    fn command(&mut self, step: &PlannedStep, command: &[String]) -> Result<()> {
        let dir = self.settings.dir.display().to_string();
        let words: Vec<String> = command.iter().map(|word| word.replace("{dir}", &dir)).collect();
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        // The program itself, wherever it was started from.
        let program = if program == "stria" { self.settings.program.clone() } else { program.into() };
        let text = match Command::new(program).args(arguments).output() {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return self.skip(step, format!("{}: {why}", words.join(" ")), false);
            }
            Err(error) => return self.skip(step, format!("{}: {error}", words.join(" ")), false),
        };
        let output = Output { step: step.id.clone(), command: words.join(" "), text };
        self.recorder.write(&Line::Output(output))
    }

    fn point(&mut self, step: &PlannedStep, number: usize, point: &PlannedPoint) -> Result<()> {
        let [least, most] = repeats(&self.scale, self.settings);
        let mut samples: BTreeMap<(String, Program), Vec<f64>> = BTreeMap::new();
        for repeat in 0..most {
            if repeat > 0 && self.is_over_budget() {
                break;
            }
            if repeat >= least && samples.values().all(|s| estimate(s).width() <= self.scale.narrow) {
                break;
            }
            self.progress.begin_repeat(repeat, least, executions_of(point));
            let dir = self.workspace.0.join(format!("{}.{number}.{repeat}", step.id));
            std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
            let once = self.once(step, point, repeat, &dir, &mut samples);
            let removed =
                std::fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()));
            once?;
            removed?;
        }
        Ok(())
    }

    /// All phases of a point, once.
    fn once(
        &mut self,
        step: &PlannedStep,
        point: &PlannedPoint,
        repeat: u32,
        dir: &Path,
        samples: &mut BTreeMap<(String, Program), Vec<f64>>,
    ) -> Result<()> {
        let has_sides = point.phases.iter().any(|phase| phase.against.is_some());
        let mut holds = Holds::new();
        for phase in &point.phases {
            let mut sides: Vec<Program> = std::iter::once(phase.program).chain(phase.against).collect();
            // The sides alternate in going first, so that drift favours neither.
            if repeat % 2 == 1 {
                sides.reverse();
            }
            for side in sides {
                let root = if has_sides { dir.join(side.title()) } else { dir.to_owned() };
                std::fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
                let at = At { step, point, phase, side, repeat };
                for (name, outcome) in self.phase(&at, &root, &mut holds)? {
                    samples.entry((name, side)).or_default().push(outcome);
                }
            }
        }
        Ok(())
    }

    /// One phase by one side. Gives the value of each record by the name of its phase.
    fn phase(&mut self, at: &At<'_>, root: &Path, holds: &mut Holds) -> Result<Vec<(String, f64)>> {
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        (self.before)()?;
        self.progress.begin_phase(&at.title(), &at.phase.parts);
        let is_read_only = at.phase.parts.iter().all(|part| part.job.work.is_read_only());
        let cache = if at.phase.cold {
            cache::cool()
        } else {
            cache::settle();
            cache_of(&at.phase.parts, is_read_only)
        };
        let parts: Vec<(String, Job)> = at
            .phase
            .parts
            .iter()
            .map(|part| {
                let mut job = placed(&part.job, root);
                if stays(&part.job) {
                    renew(&mut job, at.repeat);
                }
                job.forget_pages = cache == CacheState::Advised;
                job.holds = holds_of(&part.job, at.side, holds);
                (part.name.clone(), job)
            })
            .collect();
        let (mut outcomes, command) = match at.side {
            Program::Stria => (self.crew.run(&parts, at.point.processes)?, String::new()),
            program => {
                let done = crate::tools::run(program, &parts, root, &self.settings.stop)?;
                (done.outcomes, done.command)
            }
        };
        for (part, outcome) in at.phase.parts.iter().zip(&mut outcomes) {
            outcome.per_target = targets::shares(&part.job, outcome);
            note_holds(&part.job, at.side, outcome, holds);
        }
        self.progress.end_phase();
        if !at.phase.measured {
            return Ok(Vec::new());
        }
        for (part, outcome) in at.phase.parts.iter().zip(&outcomes) {
            ensure_measured(part, outcome).with_context(|| at.title())?;
        }
        let mut values = Vec::new();
        let together = (outcomes.len() > 1).then(|| Outcome::together(&outcomes));
        let mut all: Vec<(String, Outcome, u32, String)> = Vec::new();
        for (part, outcome) in at.phase.parts.iter().zip(outcomes) {
            let name = if part.name.is_empty() {
                at.phase.name.clone()
            } else {
                format!("{}.{}", at.phase.name, part.name)
            };
            let command =
                if command.is_empty() { serde_json::to_string(&part.job)? } else { command.clone() };
            all.push((name, outcome, part.job.workers, command));
        }
        if let Some(together) = together {
            let workers = all.iter().map(|(_, _, workers, _)| workers).sum();
            all.push((at.phase.name.clone(), together, workers, String::new()));
        }
        for (name, mut outcome, workers, command) in all {
            if let Some(timeline) = &mut outcome.timeline {
                // Of the clock of workers; a program outside tells none.
                timeline.begin_seconds -= self.begun_ns as f64 / 1e9;
            }
            let engine =
                self.found.here(at.side).map_or_else(|| engine_title(&at.phase.parts), str::to_owned);
            let record = Record {
                step: at.step.id.clone(),
                point: at.point.values.clone(),
                phase: name.clone(),
                repeat: at.repeat,
                workers,
                processes: at.point.processes.min(workers),
                engine,
                command,
                cache,
                outcome,
            };
            let rate = rate_of(&record.outcome, &at.phase.parts);
            self.progress.measured(&at.title(), &record);
            values.push((name, rate));
            self.recorder.write(&Line::Record(Box::new(record)))?;
            self.ran.records += 1;
        }
        Ok(values)
    }
}

fn executions_of(point: &PlannedPoint) -> u64 {
    point.phases.iter().map(|phase| 1 + u64::from(phase.against.is_some())).sum()
}

/// Where in a plan something is done.
struct At<'a> {
    step: &'a PlannedStep,
    point: &'a PlannedPoint,
    phase: &'a PlannedPhase,
    side: Program,
    repeat: u32,
}

impl At<'_> {
    fn title(&self) -> String {
        let values: Vec<String> =
            self.point.values.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
        let side =
            if self.side == Program::Stria { String::new() } else { format!(" by {}", self.side.title()) };
        format!("{} [{}] {}{side}", self.step.id, values.join(" "), self.phase.name)
    }
}

/// Text without its quotes.
fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Fails with the reason if nothing was measured, since no rate can be given.
fn ensure_measured(part: &PlannedPart, outcome: &Outcome) -> Result<()> {
    let warmup = part.job.limit.warmup_seconds;
    let of = if part.name.is_empty() { String::new() } else { format!("part {}: ", part.name) };
    if outcome.ops > 0 || outcome.bytes > 0 {
        return Ok(());
    }
    ensure!(
        warmup == 0.0,
        "{of}nothing was measured: no operation began after the {warmup} s of warm-up; give it more seconds, more to do, or less warm-up"
    );
    bail!(
        "{of}nothing was measured: there was nothing to do, since a phase before had done it, or had been stopped before it made something"
    )
}

/// The cache state when no cache was dropped.
fn cache_of(parts: &[PlannedPart], is_read_only: bool) -> CacheState {
    let is_direct = parts.iter().all(|part| matches!(&part.job.work, Work::Data(Data { direct: true, .. })));
    match (is_direct, is_read_only) {
        (true, _) => CacheState::Direct,
        (false, true) => CacheState::Warm,
        (false, false) => CacheState::Fresh,
    }
}

/// By which repeats are judged: bytes where data is moved in large pieces or small, operations else. Any fixed choice will do.
fn rate_of(outcome: &Outcome, parts: &[PlannedPart]) -> f64 {
    let moves_data = parts.iter().any(|part| matches!(part.job.work, Work::Data(_)));
    let amount = if moves_data { outcome.bytes } else { outcome.ops };
    amount as f64 / outcome.seconds.max(1e-9)
}

/// How our own workers call.
fn engine_title(parts: &[PlannedPart]) -> String {
    let engine = |part: &PlannedPart| match &part.job.work {
        Work::Data(Data { engine: Engine::Uring { depth }, .. }) => format!("io_uring x{depth}"),
        Work::Data(Data { engine: Engine::Null, .. }) => "null".into(),
        _ => "sync".into(),
    };
    let mut all: Vec<String> = parts.iter().map(engine).collect();
    all.dedup();
    all.join(" + ")
}

/// The job with its paths in the directory of its point.
fn placed(job: &Job, root: &Path) -> Job {
    let mut job = job.clone();
    match &mut job.work {
        Work::Data(data) => match &mut data.files {
            Files::Own { stem } => *stem = root.join(&*stem),
            Files::Shared { path } => *path = root.join(&*path),
            Files::Given { paths } => paths.iter_mut().for_each(|path| *path = root.join(&*path)),
        },
        Work::Names(names) => names.root = root.join(&names.root),
    }
    job
}

/// Do its files outlive a repeat? Those that were given from outside do; others lie in the point's own directory.
fn stays(job: &Job) -> bool {
    let Work::Data(Data { files: Files::Given { paths }, .. }) = &job.work else { return false };
    paths.iter().any(|path| path.is_absolute())
}

/// For files that stay between repeats: the version tells the repeat, so that a lost write cannot look like a successful one.
fn renew(job: &mut Job, repeat: u32) {
    if let Work::Data(Data { version, accept, .. }) = &mut job.work {
        accept.iter_mut().chain([version]).for_each(|version| *version |= u64::from(repeat) << 32);
    }
}

/// Key of a job's files: reads use it to look up how far the writes came.
fn key_of(job: &Job) -> Option<String> {
    match &job.work {
        Work::Data(Data { files: Files::Own { stem }, .. }) => Some(format!("own {}", stem.display())),
        Work::Data(Data { files: Files::Shared { path }, .. }) => Some(format!("shared {}", path.display())),
        // Its parts are not those that were written.
        Work::Data(Data { files: Files::Given { .. }, .. }) => None,
        Work::Names(names) => {
            let kind = match names.op {
                NamesOp::Create | NamesOp::Stat | NamesOp::Read | NamesOp::Remove => "files",
                NamesOp::MakeDir | NamesOp::StatDir | NamesOp::RemoveDir => "directories",
                NamesOp::MakeTree | NamesOp::RemoveTree | NamesOp::Ask => return None,
            };
            Some(format!("{kind} {}", names.root.display()))
        }
    }
}

/// Is it this job that makes the files, which others then find?
fn makes(job: &Job) -> bool {
    match &job.work {
        Work::Data(data) => data.create && data.op == DataOp::Write,
        Work::Names(names) => matches!(names.op, NamesOp::Create | NamesOp::MakeDir),
    }
}

fn holds_of(job: &Job, side: Program, holds: &Holds) -> Vec<u64> {
    let held = key_of(job).and_then(|key| holds.get(&(key, side)));
    // Parts of a shared file have other offsets with another number of workers; a worker's own file does not change.
    let is_cut = matches!(&job.work, Work::Data(Data { files: Files::Shared { .. }, .. }));
    let held = held.filter(|held| !makes(job) && (!is_cut || held.len() == job.workers as usize));
    held.into_iter().flatten().map(|amount| amount / unit_of(job)).collect()
}

/// The unit of holds: bytes of data, as phases of one file may have transfers of different sizes; items of names.
fn unit_of(job: &Job) -> u64 {
    match &job.work {
        Work::Data(data) => data.transfer_bytes.max(1),
        Work::Names(_) => 1,
    }
}

fn note_holds(job: &Job, side: Program, outcome: &Outcome, holds: &mut Holds) {
    if let (true, Some(key)) = (makes(job), key_of(job)) {
        holds.insert(
            (key, side),
            outcome.per_worker.iter().map(|worker| worker.done.saturating_mul(unit_of(job))).collect(),
        );
    }
}

#[cfg(test)]
mod tests;
