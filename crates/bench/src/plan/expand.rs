//! Expands a plan at one scale: steps, their points, and phases with resolved jobs.
//!
//! bench-E1. The expansion depends on plan, scale and environment alone: a second run has the same jobs and seeds.
//! bench-E2. A planned read covers only data that an earlier phase of the same point wrote.

mod data;
mod names;
mod state;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::state::State;
use super::environment::Environment;
use super::finding::{Finding, Findings, Trouble};
use super::schema::{Need, Phase, Plan, Quantities, Quantity, Step};
use super::value::Variables;
use crate::hosts::Placement;
use crate::job::{Data, DataOp, Engine, Job, Limit, NamesOp, Order, Work};

/// Worker processes of a point that says nothing else: a process each, but no more than this. Threads share the rest.
pub const PROCESSES_MAX: u32 = 64;
/// Of one phase: more threads than this no machine starts, and sums of parts stay far from their end.
const WORKERS_MAX: u32 = 1 << 16;
/// File systems that a step uses at once.
const FILE_SYSTEMS_MAX: u32 = 64;
/// Of a step's id: a directory's name is made of it, and lines of reports.
const ID_MAX: usize = 64;
/// Points of one step. More is a mistake: a minute each would be a week.
const POINTS_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    pub id: String,
    pub title: String,
    pub needs: Vec<Need>,
    /// Run before the points, output kept; `{dir}` is replaced.
    pub commands: Vec<Vec<String>>,
    pub points: Vec<PlannedPoint>,
}

/// One combination of swept parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPoint {
    pub values: BTreeMap<String, serde_json::Value>,
    pub processes: u32,
    pub placement: Placement,
    /// `None`: the step does not say, and has the first.
    pub file_systems: Option<u32>,
    pub phases: Vec<PlannedPhase>,
}

impl PlannedPoint {
    /// How many of the given file systems it takes.
    pub fn file_systems(&self) -> u32 {
        self.file_systems.unwrap_or(1)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPhase {
    pub name: String,
    pub cold: bool,
    pub measured: bool,
    pub program: Program,
    /// The program that does the same in turn with it.
    pub against: Option<Program>,
    /// Parts that run at the same time; more than one for `together`.
    pub parts: Vec<PlannedPart>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPart {
    /// Empty if the phase has one part only.
    pub name: String,
    /// Its paths are relative: to the directory that the point gets.
    pub job: Job,
    /// Which of the file systems it is done on, from 0. All parts of one name are the same work on different ones.
    pub file_system: u32,
}

/// The program that executes a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    Stria,
    Fio,
    Ior,
    Mdtest,
    Iozone,
}

impl Program {
    pub fn title(self) -> &'static str {
        match self {
            Program::Stria => "stria",
            Program::Fio => "fio",
            Program::Ior => "ior",
            Program::Mdtest => "mdtest",
            Program::Iozone => "iozone",
        }
    }

    /// The need that a step with this program must declare.
    pub fn need(self) -> Option<Need> {
        match self {
            Program::Stria => None,
            Program::Fio => Some(Need::Fio),
            Program::Ior => Some(Need::Ior),
            Program::Mdtest => Some(Need::Mdtest),
            Program::Iozone => Some(Need::Iozone),
        }
    }

    fn parse(word: &str) -> Result<Program, Trouble> {
        let all = [Program::Stria, Program::Fio, Program::Ior, Program::Mdtest, Program::Iozone];
        let known = all.into_iter().find(|program| program.title() == word);
        known.ok_or_else(|| unknown(word, &all.map(Program::title)))
    }
}

/// All that there is to do, or all that is wrong.
pub fn expand(plan: &Plan, scale: &str, environment: &Environment) -> Result<Vec<PlannedStep>, Findings> {
    let mut findings = Findings::new(&plan.name);
    let Some(vars) = variables(plan, scale, environment) else {
        let has: Vec<&str> = plan.scales.keys().map(String::as_str).collect();
        let what = format!("there is no scale {scale}");
        let next = format!("take one that there is ({}), or add [scales.{scale}]", has.join(", "));
        findings.add(Finding::new("scales", Trouble::new(what, next)));
        return Err(findings);
    };
    for name in environment.overrides.keys().filter(|name| !is_variable(plan, name)) {
        let what = format!("no scale or sweep has a variable {name}");
        let next = format!("take one of: {}", names_of_variables(plan).join(", "));
        findings.add(Finding::new("--set", Trouble::new(what, next)));
    }
    labels(plan, environment, &mut findings);
    let steps = plan.steps.iter().filter(|step| is_at(step, scale));
    let mut expander = Expander { plan, environment, findings };
    let planned = steps.map(|step| expander.step(step, &vars)).collect();
    expander.findings.or(planned)
}

/// The variables of one scale here; `None` without that scale.
pub fn variables(plan: &Plan, scale: &str, environment: &Environment) -> Option<Variables> {
    let mut vars = Variables::new(plan.scales.get(scale)?);
    let number = |n: u64| Quantities::One(Quantity::Whole(n));
    vars.set("ram", number(environment.ram));
    vars.set("cpus", number(u64::from(environment.cpus)));
    vars.set("hosts", number(u64::from(environment.hosts.max(1))));
    for (name, values) in &plan.labels {
        vars.set(name, number(values.first().copied().unwrap_or(0)));
    }
    let targets = environment.targets.len() as u64;
    if targets > 0 {
        // Not more of a device than the scale has, nor than it has itself.
        let said = Quantity::Text("$device_bytes".into());
        let bytes = vars.whole(&said).unwrap_or(environment.target_bytes).min(environment.target_bytes);
        vars.set("device_bytes", number(bytes));
        vars.set("devices", number(targets));
    }
    for (name, value) in &environment.overrides {
        vars.set(name, value.clone());
    }
    Some(vars)
}

/// Refuses a label that is none of those that the plan has: no figure would show its records.
fn labels(plan: &Plan, environment: &Environment, findings: &mut Findings) {
    for (name, values) in &plan.labels {
        let is_one = match environment.overrides.get(name) {
            None => true,
            Some(Quantities::One(Quantity::Whole(value))) => values.contains(value),
            Some(_) => false,
        };
        if !is_one {
            let all: Vec<String> = values.iter().map(u64::to_string).collect();
            let what = format!("{name} is a label of a run and has one of the values of the plan");
            let next = format!("give one of: {}", all.join(", "));
            findings.add(Finding::new("--set", Trouble::new(what, next)));
        }
    }
}

/// Is the step run at this scale?
pub fn is_at(step: &Step, scale: &str) -> bool {
    step.scales.is_empty() || step.scales.iter().any(|s| s == scale)
}

fn names_of_variables(plan: &Plan) -> Vec<&str> {
    let of_scales = plan.scales.values().flat_map(|scale| scale.values.keys());
    let of_steps = plan.steps.iter().flat_map(|step| step.sweep.keys());
    let known = of_scales.chain(of_steps).chain(plan.labels.keys());
    let all: std::collections::BTreeSet<&str> = known.map(String::as_str).collect();
    all.into_iter().collect()
}

fn is_variable(plan: &Plan, name: &str) -> bool {
    ["ram", "cpus"].contains(&name) || names_of_variables(plan).contains(&name)
}

/// A word that is none of those that may stand there.
pub(super) fn unknown(word: &str, known: &[&str]) -> Trouble {
    Trouble::new(format!("'{word}' is not known"), format!("write one of: {}", known.join(", ")))
}

/// Directories are named by it.
fn check_id(id: &str) -> Result<(), Trouble> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=ID_MAX).contains(&id.len()) && id.chars().all(is_word) {
        return Ok(());
    }
    let next = format!("use a-z, 0-9 and -, {ID_MAX} at most");
    Err(Trouble::new(format!("'{}' does not do", id.escape_debug()), next))
}

struct Expander<'a> {
    plan: &'a Plan,
    environment: &'a Environment,
    findings: Findings,
}

impl Expander<'_> {
    fn step(&mut self, step: &Step, vars: &Variables) -> PlannedStep {
        if let Err(trouble) = check_id(&step.id) {
            self.findings.add(Finding::new(format!("step {}", step.id.escape_debug()), trouble.at("id")));
        }
        let points = self.sweep(step, vars);
        PlannedStep {
            id: step.id.clone(),
            title: step.title.clone(),
            needs: step.needs.clone(),
            commands: step.commands.clone(),
            points: match step.phases.is_empty() {
                true => Vec::new(),
                false => points.into_iter().map(|point| self.point(step, vars, point)).collect(),
            },
        }
    }

    /// Every combination of the swept values; the last parameter's changes fastest.
    fn sweep(&mut self, step: &Step, vars: &Variables) -> Vec<BTreeMap<String, (Value, f64)>> {
        let mut points = vec![BTreeMap::new()];
        for (name, quantities) in &step.sweep {
            // `--set` of a parameter that the step lists itself takes the place of that list.
            let values = vars.list(self.environment.overrides.get(name).unwrap_or(quantities));
            let refused = match values {
                Err(trouble) => trouble,
                Ok(list) if list.is_empty() => Trouble::new("it has no value", "give it one at least"),
                Ok(list) if list.len() * points.len() > POINTS_MAX => {
                    Trouble::new(format!("more than {POINTS_MAX} points"), "sweep less")
                }
                Ok(list) => {
                    let with = |point: &BTreeMap<String, (Value, f64)>| {
                        let add = |value: &(Value, f64)| {
                            let mut point = point.clone();
                            point.insert(name.clone(), value.clone());
                            point
                        };
                        list.iter().map(add).collect::<Vec<_>>()
                    };
                    points = points.iter().flat_map(with).collect();
                    continue;
                }
            };
            self.findings
                .add(Finding::new(format!("step {}", step.id), refused.at(&format!("sweep.{name}"))));
            return Vec::new();
        }
        points
    }

    fn point(
        &mut self,
        step: &Step,
        vars: &Variables,
        swept: BTreeMap<String, (Value, f64)>,
    ) -> PlannedPoint {
        let mut vars = vars.clone();
        for (name, (_, number)) in &swept {
            vars.sweep(name, *number);
        }
        let mut values: BTreeMap<String, Value> =
            swept.into_iter().map(|(name, (shown, _))| (name, shown)).collect();
        let seed = seed_of(&self.plan.name, &step.id, &values);
        let mut state = State::default();
        let mut phases = Vec::new();
        for phase in &step.phases {
            let at = PhaseAt { step, phase, vars: &vars, targets: &self.environment.targets, seed };
            match at.expand(&mut state) {
                Ok(planned) => phases.extend(planned),
                Err(trouble) => {
                    // The phase's writes are unknown, so later phases get no findings about missing data.
                    state.is_incomplete = true;
                    let values = point_text(&values);
                    let what = format!("{}{values}", trouble.what);
                    self.findings.add(Finding::of_phase(step, phase, Trouble { what, ..trouble }));
                }
            }
        }
        phases.extend(names::remove_trees(&state, &phases));
        // Of one file system: on several, each part has as many processes again.
        let workers = phases.iter().map(PlannedPhase::workers).max().unwrap_or(1);
        let processes = match (&step.processes, &step.ppn) {
            (None, None) => workers.min(PROCESSES_MAX),
            (Some(quantity), None) => self.count(step, &vars, quantity, ("processes", u32::MAX)),
            (None, Some(ppn)) => {
                let hosts = self.environment.hosts.max(1);
                self.count(step, &vars, ppn, ("ppn", WORKERS_MAX)).saturating_mul(hosts)
            }
            (Some(_), Some(_)) => {
                let trouble = Trouble::new("it has `processes` and `ppn`", "leave one of them out");
                self.findings.add(Finding::new(format!("step {}", step.id), trouble.at("ppn")));
                1
            }
        };
        let file_systems = step.file_systems.as_ref();
        let file_systems = file_systems
            .map(|quantity| self.count(step, &vars, quantity, ("file-systems", FILE_SYSTEMS_MAX)));
        if file_systems.is_some() {
            phases.iter_mut().for_each(|phase| phase.spread(file_systems.unwrap_or(1)));
            self.refuse_given(step, &phases);
        }
        values.extend(self.labels(&vars));
        let (placement, processes) = (step.placement, processes.clamp(1, workers.max(1)));
        PlannedPoint { values, processes, placement, file_systems, phases }
    }

    /// A number of processes or file systems, from 1 to `most`.
    fn count(&mut self, step: &Step, vars: &Variables, quantity: &Quantity, at: (&str, u32)) -> u32 {
        let (field, most) = at;
        let trouble = match vars.count(quantity) {
            Ok(count) if (1..=most).contains(&count) => return count,
            Ok(count) => {
                Trouble::new(format!("{count} is out of range"), format!("give a number from 1 to {most}"))
            }
            Err(trouble) => trouble,
        };
        self.findings.add(Finding::new(format!("step {}", step.id), trouble.at(field)));
        1
    }

    /// The labels of this run.
    fn labels(&self, vars: &Variables) -> BTreeMap<String, Value> {
        let value = |name: &String| vars.whole(&Quantity::Text(format!("${name}"))).ok();
        self.plan.labels.keys().filter_map(|name| Some((name.clone(), value(name)?.into()))).collect()
    }

    /// A file or device that was given lies on no file system of the run's.
    fn refuse_given(&mut self, step: &Step, phases: &[PlannedPhase]) {
        let mut parts = phases.iter().flat_map(|phase| &phase.parts);
        if parts.any(|part| state::is_outside(&part.job)) {
            let trouble =
                Trouble::new("it uses given files and several file systems", "leave one of them out");
            self.findings.add(Finding::new(format!("step {}", step.id), trouble.at("file-systems")));
        }
    }
}

impl PlannedPhase {
    /// Of all parts together.
    pub fn workers(&self) -> u32 {
        self.parts.iter().map(|part| part.job.workers).sum()
    }

    /// Has each part done on so many file systems.
    fn spread(&mut self, file_systems: u32) {
        let on_each = |part: PlannedPart| {
            (0..file_systems).map(move |file_system| PlannedPart { file_system, ..part.clone() })
        };
        self.parts = std::mem::take(&mut self.parts).into_iter().flat_map(on_each).collect();
    }
}

/// Refuses creation in random order with a limit: if it stops early, the files have holes that later reads would find.
fn refuse_holes(work: &Work, limit: &Limit) -> Result<(), Trouble> {
    let (makes, order, ops) = match work {
        Work::Data(data) => (data.create && data.op == DataOp::Write, data.order, data.ops_max),
        Work::Names(names) => (matches!(names.op, NamesOp::Create | NamesOp::MakeDir), names.order, None),
    };
    if makes && order == Order::Random && (limit.seconds.is_some() || ops.is_some()) {
        let what = "files that are made in random order would have holes where it was stopped";
        return Err(Trouble::new(what, "leave out seconds and ops, or make them in order first"));
    }
    // A depth is kept full; a pace waits between operations.
    if let (Work::Data(Data { engine: Engine::Uring { depth: 2.. }, .. }), Some(_)) = (work, limit.pace) {
        return Err(Trouble::new(
            "a pace is for one operation at a time",
            "leave out the depth, or the pace",
        ));
    }
    Ok(())
}

/// A phase and the inputs of its expansion.
struct PhaseAt<'a> {
    step: &'a Step,
    phase: &'a Phase,
    vars: &'a Variables,
    targets: &'a [PathBuf],
    seed: u64,
}

impl PhaseAt<'_> {
    /// The phase, after those that must come before it.
    fn expand(&self, state: &mut State) -> Result<Vec<PlannedPhase>, Trouble> {
        let word = |word: &Option<String>, field| {
            word.as_deref().map(|w| Program::parse(w).map_err(|t| t.at(field))).transpose()
        };
        let program = word(&self.phase.engine, "engine")?.unwrap_or(Program::Stria);
        let against = word(&self.phase.against, "against")?;
        for used in [Some(program), against].into_iter().flatten() {
            if let Some(need) = used.need()
                && !self.step.needs.contains(&need)
            {
                let what = format!("{} is used and the step does not say that it needs it", used.title());
                let next = format!("add needs = [\"{}\"] to the step", used.title());
                return Err(Trouble::new(what, next).at("engine"));
            }
        }
        let mut before = Vec::new();
        let mut parts = Vec::new();
        for (name, at) in self.parts()? {
            let job = self.job(&at, state).map_err(|trouble| match name.is_empty() {
                true => trouble,
                false => Trouble { field: format!("together {name} {}", trouble.field), ..trouble },
            })?;
            if program == Program::Stria {
                self.check_needs(&job)?;
            }
            // Trees of an outside program are its own affair.
            before.extend(names::make_tree(&job, state).filter(|_| program == Program::Stria));
            parts.push(PlannedPart { name, job, file_system: 0 });
        }
        for part in &parts {
            let others = parts.iter().filter(|other| other.name != part.name);
            state.check(&part.job, others.map(|other| &other.job))?;
        }
        state.note(&parts.iter().map(|part| &part.job).collect::<Vec<_>>());
        let with_parallel_writes = parts.clone();
        for part in &mut parts {
            state::accept_parallel(&mut part.job, &with_parallel_writes);
        }
        before.push(PlannedPhase {
            name: self.phase.name.clone(),
            cold: self.phase.cold,
            measured: !self.phase.unmeasured,
            program,
            against,
            parts,
        });
        Ok(before)
    }

    /// A step must declare optional features of file systems and kernels, so that it is skipped without them and does not fail.
    fn check_needs(&self, job: &Job) -> Result<(), Trouble> {
        let Work::Data(data) = &job.work else { return Ok(()) };
        let is_uring = matches!(data.engine, Engine::Uring { .. });
        let used = [
            (data.direct, Need::Direct, "data.direct", "direct"),
            (is_uring, Need::Uring, "data.depth", "uring"),
        ];
        for (is_used, need, field, word) in used {
            if is_used && !self.step.needs.contains(&need) {
                let what = format!("it needs {word} and the step does not say so");
                return Err(Trouble::new(what, format!("add needs = [\"{word}\"] to the step")).at(field));
            }
        }
        Ok(())
    }

    /// The parts that run at the same time. The only part of a phase without `together` has no name.
    fn parts(&self) -> Result<Vec<(String, PartAt<'_>)>, Trouble> {
        let phase = self.phase;
        let own = PartAt {
            data: phase.data.as_ref(),
            names: phase.names.as_ref(),
            workers: phase.workers.as_ref(),
            pace: phase.pace.as_ref(),
        };
        if phase.together.is_empty() {
            return Ok(vec![(String::new(), own)]);
        }
        if own.data.is_some() || own.names.is_some() {
            let what = "it has `together` and a work of its own";
            return Err(Trouble::new(what, "make that work one of the parts"));
        }
        let parts = phase.together.iter().map(|part| {
            let at = PartAt {
                data: part.data.as_ref(),
                names: part.names.as_ref(),
                workers: part.workers.as_ref().or(own.workers),
                pace: part.pace.as_ref().or(own.pace),
            };
            (part.name.clone(), at)
        });
        Ok(parts.collect())
    }

    fn job(&self, part: &PartAt<'_>, state: &mut State) -> Result<Job, Trouble> {
        let vars = self.vars;
        let workers = match part.workers {
            Some(workers) => vars.count(workers),
            None => vars.count(&Quantity::Text("$threads".into())),
        };
        let workers = workers.map_err(|t| t.at("workers"))?;
        if workers == 0 {
            return Err(Trouble::new("no worker would do it", "give 1 at least").at("workers"));
        }
        if workers > WORKERS_MAX {
            let what = format!("{workers} workers are too many");
            return Err(Trouble::new(what, format!("give {WORKERS_MAX} at most")).at("workers"));
        }
        let limit = self.limit(part.pace)?;
        let (work, verify) = match (part.data, part.names) {
            (Some(own), None) => {
                let (data, verify) = data::resolve(&self.step.data, own, workers, vars, self.targets, state)?;
                (Work::Data(data), verify)
            }
            (None, Some(own)) => {
                let (names, verify) = names::resolve(&self.step.names, own, workers, vars, state)?;
                (Work::Names(names), verify)
            }
            _ => {
                let what = "it must have one work: `data` or `names`";
                return Err(Trouble::new(what, "write one of them ({} if the step says all), or `together`"));
            }
        };
        refuse_holes(&work, &limit)?;
        Ok(Job { work, workers, limit, verify, seed: self.seed, forget_pages: false, holds: Vec::new() })
    }

    fn limit(&self, pace: Option<&Quantity>) -> Result<Limit, Trouble> {
        let real = |quantity: Option<&Quantity>, field| match quantity.map(|q| self.vars.real(q)) {
            Some(Ok(value)) if value > 0.0 => Ok(Some(value)),
            Some(Ok(value)) => Err(Trouble::new(format!("{value} is not above 0"), "leave it out").at(field)),
            Some(Err(trouble)) => Err(trouble.at(field)),
            None => Ok(None),
        };
        let seconds = real(self.phase.seconds.as_ref(), "seconds")?;
        let warmup = real(self.phase.warmup_seconds.as_ref(), "warmup-seconds")?;
        let warmup_seconds = warmup.unwrap_or(0.0);
        if seconds.is_some_and(|seconds| seconds <= warmup_seconds) {
            let what = "the phase ends before its warm-up does";
            return Err(Trouble::new(what, "give more seconds").at("warmup-seconds"));
        }
        Ok(Limit { seconds, warmup_seconds, pace: real(pace, "pace")? })
    }
}

/// The plan's fields for one part.
struct PartAt<'a> {
    data: Option<&'a toml::Table>,
    names: Option<&'a toml::Table>,
    workers: Option<&'a Quantity>,
    pace: Option<&'a Quantity>,
}

/// A step's words and over them the phase's own. Of words that exclude one another only the phase's are left.
fn merge<T: serde::de::DeserializeOwned>(
    common: &toml::Table,
    own: &toml::Table,
    rivals: [&str; 2],
) -> Result<T, Trouble> {
    let mut all = common.clone();
    for (word, rival) in [(rivals[0], rivals[1]), (rivals[1], rivals[0])] {
        if own.contains_key(word) && !own.contains_key(rival) {
            all.remove(rival);
        }
    }
    all.extend(own.clone());
    all.try_into().map_err(|error: toml::de::Error| {
        Trouble::new(error.message().trim().replace('\n', " "), "docs/bench-plans.md has the words")
    })
}

/// ` (at threads = 4)`, or nothing.
fn point_text(values: &BTreeMap<String, Value>) -> String {
    let pairs: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if pairs.is_empty() { String::new() } else { format!(" (at {})", pairs.join(", ")) }
}

/// The same for the same point of the same plan, on every machine: FNV-1a, without its highest bit, since fio reads seeds as signed.
fn seed_of(plan: &str, step: &str, values: &BTreeMap<String, Value>) -> u64 {
    let text = format!("{plan}\0{step}\0{}", point_text(values));
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix) >> 1
}
