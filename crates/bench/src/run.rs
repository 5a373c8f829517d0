//! Runs a plan: its steps, points and phases one after the other, each repeated until it is known well enough or time is up.
//!
//! bench-R1. Each record is on disk before the next phase begins; Ctrl-C or a failure loses no finished record.
//! bench-R2. Nothing is left in the measured directory, however it ends (but for a kill).
//! bench-R3. Making, settling, cooling and removing are never inside a measured time.
//! bench-R4. A step that cannot be run is skipped with a line that says why, and never counted.
//! bench-R5. On several file systems at once each has a record of its own, and the sum has all bytes over the time of the slowest.

mod jobs;
mod machine;
mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::jobs::{Holds, holds_of, note_holds, placed, renew, stays};
use self::workspace::Workspace;
use crate::cache::{self, CacheState};
use crate::crew::{Crew, Launcher, Root, Stopped};
use crate::hosts::Hosts;
use crate::job::{Data, Engine, Job, Work};
use crate::limits::Wanted;
use crate::plan::schema::Need;
use crate::plan::{
    self, Environment, Plan, PlannedPart, PlannedPhase, PlannedPoint, PlannedStep, Program, Scale,
};
use crate::progress::Progress;
use crate::record::{self, End, Header, Line, Outcome, Output, Record, Recorder, Skipped};
use crate::report::RECORDS;
use crate::runner::Runner;
use crate::sampler::Samplers;
use crate::stats::estimate;
use crate::tools::Found;
use crate::usage::Watch;
use crate::{memory, needs, system, targets, uneven};

/// How long removed space is waited for, and how often it is looked at.
const SPACE_WAIT: Duration = Duration::from_secs(20);
const SPACE_LOOK: Duration = Duration::from_millis(200);

/// How a plan is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The measured directories, which exist: one on each file system.
    pub dirs: Vec<Root>,
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
    /// Hosts that have the workers, in place of this machine.
    pub hosts: Option<Hosts>,
    /// The command that reaches a host, for the record.
    pub launch: String,
    /// Commands that print lines of numbers while the plan is run.
    pub samplers: Vec<Vec<String>>,
    /// How the limits of this machine are measured first; `None`: not at all.
    pub limits: Option<Wanted>,
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
    ensure!(!settings.dirs.is_empty(), "no directory to measure was given");
    for Root { here, .. } in &settings.dirs {
        ensure!(here.is_dir(), "{}: it is no directory", here.display());
    }
    std::fs::create_dir_all(&settings.out).with_context(|| format!("making {}", settings.out.display()))?;
    let path = settings.out.join(RECORDS);
    ensure!(
        !path.exists(),
        "{} holds a result already: give another directory with --out, or remove that one",
        settings.out.display()
    );
    // First the steps that may be refused: an empty result would be in the way of the next attempt.
    let workspace = Workspace::new(&settings.dirs)?;
    let mut recorder = Recorder::create(&path)?;
    let found = programs(&steps);
    recorder.write(&Line::Header(Box::new(header(plan, &steps, &scale, settings, &found))))?;
    let begun = Instant::now();
    let root = workspace.dirs[0].clone();
    let mut crew = match &settings.hosts {
        Some(hosts) => Crew::on_hosts(hosts.clone(), root, settings.stop.clone()),
        None => Crew::new(launcher, root, settings.stop.clone()),
    };
    crew.set_roots(workspace.roots.clone());
    let least = repeats(&scale, settings)[0];
    let progress = Progress::new(settings.progress, executions(&steps, settings.dirs.len() as u32, least));
    let mut running = Running {
        settings,
        scale,
        recorder,
        begun,
        begun_ns: crate::work::now_ns(),
        workspace,
        crew,
        samplers: Samplers::start(&settings.samplers, &settings.program, begun),
        progress,
        watch: None,
        found,
        before: Box::new(before),
        ran: Ran::default(),
    };
    running.crew.watch(running.progress.watcher());
    let result = running.limits().and_then(|()| running.steps(&steps));
    running.progress.end();
    running.samplers.end();
    running.samples()?;
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
fn executions(steps: &[PlannedStep], file_systems: u32, repeats: u32) -> u64 {
    let sides = |phase: &PlannedPhase| 1 + u64::from(phase.against.is_some());
    let of_point = |point: &PlannedPoint| point.phases.iter().map(sides).sum::<u64>();
    let points = steps.iter().flat_map(|step| &step.points);
    points.filter(|p| p.file_systems() <= file_systems).map(of_point).sum::<u64>() * u64::from(repeats)
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
    let absolute = |root: &Root| std::path::absolute(&root.here).unwrap_or_else(|_| root.here.clone());
    let dirs: Vec<PathBuf> = settings.dirs.iter().map(absolute).collect();
    let file_system =
        |dir: &PathBuf| system::mount_of(dir).map_or_else(|| "unknown".into(), |mount| mount.file_system);
    let file_systems: Vec<String> = dirs.iter().map(file_system).collect();
    let shown: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    // Evaluated: tables divide by them.
    let values = plan::expand::variables(plan, &settings.scale, &settings.environment);
    let values = values.map(|vars| vars.values()).unwrap_or_default();
    let mut system = system::describe(&dirs[0]);
    if dirs.len() > 1 {
        let each = shown.iter().zip(&file_systems).enumerate();
        system.extend(each.map(|(n, (dir, fs))| (name_of_file_system(n as u32), format!("{dir}: {fs}"))));
    }
    let hosts = settings.hosts.as_ref().map(|hosts| hosts.names.clone()).unwrap_or_default();
    if !hosts.is_empty() {
        system.push(("hosts".into(), format!("{} by {}", hosts.join(", "), settings.launch)));
    }
    system.extend(settings.samplers.iter().map(|words| ("sampler".to_owned(), words.join(" "))));
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
        set: set_of(plan, &settings.environment),
        dir: shown.join(", "),
        file_system: file_systems.join(", "),
        hosts,
        command: settings.command.clone(),
        begun: system::utc_now(),
        system,
    }
}

/// Variables that differ from the scale's; a label is none of them.
fn set_of(plan: &Plan, environment: &Environment) -> Vec<String> {
    environment.overrides.keys().filter(|name| !plan.labels.contains_key(*name)).cloned().collect()
}

/// `fs1` is the first of the directories that were given.
fn name_of_file_system(number: u32) -> String {
    format!("fs{}", number + 1)
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
    samplers: Samplers,
    progress: Progress,
    /// Where the workers are on this machine, and its limits are asked for.
    watch: Option<Watch>,
    found: Found,
    before: Box<dyn FnMut() -> Result<()> + 'a>,
    ran: Ran,
}

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
            let mut told = 0;
            for (number, point) in step.points.iter().enumerate() {
                let count = point.file_systems();
                if count as usize > self.settings.dirs.len() {
                    if told != count {
                        let given = self.settings.dirs.len();
                        let why =
                            format!("points with {count} file systems: {given} given, name more with --dir");
                        self.skip(step, why, false)?;
                        told = count;
                    }
                    continue;
                }
                self.crew.set_placement(point.placement);
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
        let (dir, environment) = (&self.settings.dirs[0].here, &self.settings.environment);
        let missing = |need: &Need| needs::missing(*need, dir, environment, &mut self.found);
        if let Some(missing) = step.needs.iter().find_map(missing) {
            return Some(missing);
        }
        if let Some(program) = self.settings.hosts.as_ref().and_then(|_| program_of_others(step)) {
            return Some(format!(
                "{} runs on this machine alone: leave out the hosts to measure with it",
                program.title()
            ));
        }
        if self.is_over_budget() {
            return Some(format!(
                "the {} s for the plan are used up: give more with --budget",
                self.budget_seconds()
            ));
        }
        let phases = step.points.iter().flat_map(|p| p.phases.iter().map(|phase| (phase, p.processes)));
        // Of all hosts, as if they were like this machine.
        let ram =
            self.settings.environment.ram.saturating_mul(u64::from(self.settings.environment.hosts.max(1)));
        if let Some((phase, why)) = phases.into_iter().find_map(|(phase, processes)| {
            let jobs = phase.parts.iter().map(|part| &part.job);
            Some((phase, memory::refusal(jobs, processes, ram)?))
        }) {
            return Some(format!("phase {}: {why}", phase.name));
        }
        let needed = plan::estimate::space_bytes(step);
        let used = step.points.iter().map(PlannedPoint::file_systems).max().unwrap_or(1) as usize;
        self.settings.dirs.iter().take(used).find_map(|root| {
            let free = self.free_bytes(&root.here, needed)?;
            let (dir, needed_mib, free_mib) = (root.here.display(), needed >> 20, free >> 20);
            (needed > free).then(|| {
                format!(
                    "it needs {needed_mib} MiB and {free_mib} MiB are free in {dir}: take a smaller scale"
                )
            })
        })
    }

    /// Free space of a measured directory. Many file systems free the space of removed files late: waits for that if it would
    /// suffice.
    fn free_bytes(&self, dir: &Path, needed: u64) -> Option<u64> {
        let begun = Instant::now();
        loop {
            let stat = rustix::fs::statvfs(dir).ok()?;
            let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
            let is_hopeless = bytes(stat.f_blocks) < needed || begun.elapsed() > SPACE_WAIT;
            if bytes(stat.f_bavail) >= needed || is_hopeless || self.settings.stop.load(Ordering::Relaxed) {
                return Some(bytes(stat.f_bavail));
            }
            std::thread::sleep(SPACE_LOOK);
        }
    }

    fn command(&mut self, step: &PlannedStep, command: &[String]) -> Result<()> {
        let dir = self.settings.dirs[0].here.display().to_string();
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
            let name = format!("{}.{number}.{repeat}", step.id);
            let dirs = self.workspace.make(&name, point.file_systems())?;
            let once = self.once(step, point, repeat, &dirs, &mut samples);
            let removed = workspace::remove(&dirs);
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
        dirs: &[PathBuf],
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
                let of_side = |dir: &PathBuf| if has_sides { dir.join(side.title()) } else { dir.clone() };
                let roots: Vec<PathBuf> = dirs.iter().map(of_side).collect();
                roots.iter().try_for_each(|root| workspace::make(root))?;
                let at = At { step, point, phase, side, repeat };
                for (name, outcome) in self.phase(&at, &roots, &mut holds)? {
                    samples.entry((name, side)).or_default().push(outcome);
                }
            }
        }
        Ok(())
    }

    /// One phase by one side. Gives the value of each record by the name of its phase.
    fn phase(&mut self, at: &At<'_>, roots: &[PathBuf], holds: &mut Holds) -> Result<Vec<(String, f64)>> {
        if self.settings.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        (self.before)()?;
        self.progress.begin_phase(&at.title(), &at.phase.parts);
        let is_read_only = at.phase.parts.iter().all(|part| part.job.work.is_read_only());
        let cache = if at.phase.cold {
            self.crew.cool()?
        } else {
            self.crew.settle()?;
            cache_of(&at.phase.parts, is_read_only)
        };
        let parts: Vec<(String, Job)> = at
            .phase
            .parts
            .iter()
            .map(|part| {
                let mut job = placed(&part.job, &roots[part.file_system as usize]);
                if stays(&part.job) {
                    renew(&mut job, at.repeat);
                }
                job.forget_pages = cache == CacheState::Advised;
                job.holds = holds_of(&part.job, (at.side, part.file_system), holds);
                (part.name.clone(), job)
            })
            .collect();
        let released = crate::work::now_ns();
        let (mut outcomes, command) = match at.side {
            Program::Stria => (self.crew.run(&parts, at.point.processes)?, String::new()),
            program => {
                let done = crate::tools::run(program, &parts, &roots[0], &self.settings.stop)?;
                (done.outcomes, done.command)
            }
        };
        for (part, outcome) in at.phase.parts.iter().zip(&mut outcomes) {
            outcome.per_target = match at.point.file_systems {
                Some(_) => vec![targets::of_part(&part.job, outcome, name_of_file_system(part.file_system))],
                None => targets::shares(&part.job, outcome),
            };
            note_holds(&part.job, (at.side, part.file_system), outcome, holds);
        }
        self.progress.end_phase();
        self.samples()?;
        if !at.phase.measured {
            return Ok(Vec::new());
        }
        for (part, outcome) in at.phase.parts.iter().zip(&outcomes) {
            ensure_measured(part, outcome).with_context(|| at.title())?;
        }
        let mut values = Vec::new();
        for measured in measured(at, outcomes, &command)? {
            let rate = rate_of(&measured.outcome, &at.phase.parts);
            values.push((measured.phase.clone(), rate));
            self.record(at, measured, cache, released)?;
        }
        Ok(values)
    }

    fn record(&mut self, at: &At<'_>, measured: Measured, cache: CacheState, released: u64) -> Result<()> {
        let Measured { phase, mut outcome, workers, parts, command } = measured;
        let usage = self.usage_of(&outcome, released);
        if let Some(timeline) = &mut outcome.timeline {
            // Of the clock of workers; a program outside tells none.
            timeline.begin_seconds -= self.begun_ns as f64 / 1e9;
        }
        outcome.uneven = uneven::of_outcome(&outcome);
        let engine = self.found.here(at.side).map_or_else(|| engine_title(&at.phase.parts), str::to_owned);
        let record = Record {
            step: at.step.id.clone(),
            point: at.point.values.clone(),
            phase,
            repeat: at.repeat,
            workers,
            processes: at.point.processes.saturating_mul(parts).min(workers),
            engine,
            command,
            cache,
            usage,
            outcome,
        };
        self.progress.measured(&at.title(), &record);
        self.recorder.write(&Line::Record(Box::new(record)))?;
        self.ran.records += 1;
        Ok(())
    }

    /// Records what samplers printed since the last time.
    fn samples(&mut self) -> Result<()> {
        for line in self.samplers.drain() {
            if let Line::Warning(warning) = &line {
                self.progress.say(&format!("warning: {}", warning.text));
            }
            self.recorder.write(&line)?;
        }
        Ok(())
    }
}

/// A record that a phase becomes.
struct Measured {
    phase: String,
    outcome: Outcome,
    workers: u32,
    /// That ran at once, each with processes of its own.
    parts: u32,
    command: String,
}

/// The records of a phase: one for each part and file system, and the sums of parts (bench-R5).
fn measured(at: &At<'_>, outcomes: Vec<Outcome>, command: &str) -> Result<Vec<Measured>> {
    let planned = &at.phase.parts;
    let on_several = at.point.file_systems() > 1;
    let named = |part: &PlannedPart| match part.name.as_str() {
        "" => at.phase.name.clone(),
        name => format!("{}.{name}", at.phase.name),
    };
    let sum = |phase: String, of: &[(&PlannedPart, &Outcome)]| {
        let outcomes: Vec<Outcome> = of.iter().map(|(_, outcome)| (*outcome).clone()).collect();
        let workers = of.iter().map(|(part, _)| part.job.workers).sum();
        let outcome = Outcome::together(&outcomes);
        Measured { phase, outcome, workers, parts: of.len() as u32, command: String::new() }
    };
    let both: Vec<(&PlannedPart, &Outcome)> = planned.iter().zip(&outcomes).collect();
    let mut all = Vec::new();
    for (part, outcome) in &both {
        let name = named(part);
        let phase =
            if on_several { format!("{name}.{}", name_of_file_system(part.file_system)) } else { name };
        let command = if command.is_empty() { serde_json::to_string(&part.job)? } else { command.to_owned() };
        let workers = part.job.workers;
        all.push(Measured { phase, outcome: (*outcome).clone(), workers, parts: 1, command });
    }
    let mut names: Vec<&str> = planned.iter().map(|part| part.name.as_str()).collect();
    names.dedup();
    if on_several && names.len() > 1 {
        for name in &names {
            let of: Vec<_> = both.iter().filter(|(part, _)| part.name == *name).copied().collect();
            all.push(sum(named(of[0].0), &of));
        }
    }
    if both.len() > 1 {
        all.push(sum(at.phase.name.clone(), &both));
    }
    Ok(all)
}

/// A program of others that the step starts.
fn program_of_others(step: &PlannedStep) -> Option<Program> {
    let phases = step.points.iter().flat_map(|point| &point.phases);
    phases.flat_map(|phase| [Some(phase.program), phase.against]).flatten().find(|p| *p != Program::Stria)
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

#[cfg(test)]
mod tests;
