//! Made-up results for tests: a record for each phase at each point of a plan, from a seed.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::cache::CacheState;
use crate::limits::Limits;
use crate::pattern::Checked;
use crate::plan::Plan;
use crate::plan::schema::{Quantities, Quantity, Step};
use crate::record::*;

/// A plan with a figure and a table of each kind.
pub const PLAN: &str = include_str!("sample.toml");

pub fn plan() -> Plan {
    toml::from_str(PLAN).unwrap()
}

/// As a run writes it, but for its end.
pub fn save(results: &Results, path: &std::path::Path) {
    let mut recorder = Recorder::create(path).unwrap();
    recorder.write(&Line::Header(Box::new(results.header.clone()))).unwrap();
    for record in &results.records {
        recorder.write(&Line::Record(Box::new(record.clone()))).unwrap();
    }
}

/// The result of a run of a plan with all its programs installed: each measured phase, `repeats` times.
pub fn of_plan(plan: Plan, scale: &str, repeats: u32) -> Results {
    use crate::plan::{Environment, PlannedPart, Program, expand};
    let mut environment = Environment { ram: 64 << 30, cpus: 32, ..Environment::default() };
    // Behind one router, where a plan has them.
    if plan.labels.contains_key("routers") {
        let one = Quantities::One(crate::plan::schema::Quantity::Whole(1));
        environment.overrides.insert("routers".into(), one);
    }
    let steps = expand(&plan, scale, &environment).expect("plans of ours can be expanded");
    let values = crate::plan::expand::variables(&plan, scale, &environment).unwrap().values();
    let mut results = results(Plan { steps: Vec::new(), ..plan.clone() }, scale, 0);
    (results.header.plan, results.header.values) = (plan, values);
    let (mut rng, mut clock) = (StdRng::seed_from_u64(7), 0.0);
    for step in &steps {
        for command in &step.commands {
            let command = command.join(" ");
            results.outputs.push(Output { step: step.id.clone(), command, text: "a  b\n1  2\n".into() });
        }
        let phases =
            step.points.iter().flat_map(|point| point.phases.iter().map(move |phase| (point, phase)));
        for (point, phase) in phases.filter(|(_, phase)| phase.measured) {
            for repeat in 0..repeats {
                let of_all = |of: &[&PlannedPart]| of.iter().map(|part| part.job.workers).sum::<u32>();
                let all: Vec<&PlannedPart> = phase.parts.iter().collect();
                let mut names = vec![(phase.name.clone(), of_all(&all))];
                let mut parts: Vec<&str> = phase.parts.iter().map(|part| part.name.as_str()).collect();
                parts.dedup();
                for part in parts.iter().filter(|part| !part.is_empty()) {
                    let of_it: Vec<_> = all.iter().copied().filter(|other| other.name == **part).collect();
                    names.push((format!("{}.{part}", phase.name), of_all(&of_it)));
                }
                let is_names = matches!(phase.parts[0].job.work, crate::job::Work::Names(_));
                for program in [Some(phase.program), phase.against].into_iter().flatten() {
                    let engine = if program == Program::Stria { "sync" } else { program.title() };
                    for (name, workers) in &names {
                        let what = Made {
                            step: &step.id,
                            point: &point.values,
                            name,
                            engine,
                            workers: *workers,
                            is_names,
                        };
                        let mut record = record(what, phase.cold, &mut rng, clock);
                        record.repeat = repeat;
                        if let Some(count) = point.file_systems {
                            record.outcome.per_target = file_systems(count, &record.outcome);
                        }
                        record.command = serde_json::to_string(&phase.parts[0].job).unwrap();
                        results.records.push(record);
                    }
                }
                clock += 3.0;
            }
        }
    }
    let sampled = results.header.plan.figures.iter().filter_map(|figure| figure.sampled.as_ref());
    let fields = sampled.flat_map(|sampled| &sampled.fields).map(|name| name.replace('*', "tcp0."));
    let fields: Vec<String> = fields.collect();
    let row = |second: u32| (f64::from(second), vec![Some(100.0 + f64::from(second % 7)); fields.len()]);
    let rows = (0..clock as u32 + 3).map(row).collect();
    results.samples.push(Samples { sampler: "stria router stat".into(), fields: fields.clone(), rows });
    results
}

/// Even shares; the second file system is slower.
fn file_systems(count: u32, outcome: &Outcome) -> Vec<TargetShare> {
    let share = |n: u32| TargetShare {
        target: format!("fs{}", n + 1),
        workers: 1,
        ops: outcome.ops / u64::from(count),
        bytes: outcome.bytes / u64::from(count),
        seconds: outcome.seconds * if n == 1 { 1.25 } else { 1.0 },
    };
    (0..count).map(share).collect()
}

/// All of a plan at a scale, `repeats` times each.
pub fn results(plan: Plan, scale: &str, repeats: u32) -> Results {
    let mut rng = StdRng::seed_from_u64(7);
    let mut results = Results {
        header: header(plan, scale),
        limits: Some(limits()),
        records: Vec::new(),
        samples: Vec::new(),
        warnings: Vec::new(),
        skipped: vec![Skipped {
            step: "routers".into(),
            why: "no routers: this file system has none".into(),
            failed: false,
        }],
        outputs: vec![Output {
            step: "views".into(),
            command: "df -hT /mnt".into(),
            text: "Filesystem Type Size\nx y 1T\n".into(),
        }],
        end: Some(End { complete: true, why: String::new(), seconds: 421.5 }),
    };
    let mut clock = 0.0;
    for step in results.header.plan.steps.clone() {
        for point in points(&step, &results.header) {
            for phase in &step.phases {
                for repeat in 0..repeats {
                    let mut names = vec![phase.name.clone()];
                    names.extend(phase.together.iter().map(|p| format!("{}.{}", phase.name, p.name)));
                    let engines: Vec<String> =
                        [phase.engine.clone().or(Some("sync".into())), phase.against.clone()]
                            .into_iter()
                            .flatten()
                            .collect();
                    for (name, engine) in names.iter().flat_map(|n| engines.iter().map(move |e| (n, e))) {
                        let workers = point.get("threads").and_then(Value::as_u64).unwrap_or(4) as u32;
                        let is_names = phase.names.is_some() || !step.names.is_empty();
                        let what = Made { step: &step.id, point: &point, name, engine, workers, is_names };
                        let mut record = record(what, phase.cold, &mut rng, clock);
                        record.repeat = repeat;
                        results.records.push(record);
                    }
                    clock += results.records.last().map_or(0.0, |r| r.outcome.last_done + 0.8);
                }
            }
        }
    }
    results
}

pub fn header(plan: Plan, scale: &str) -> Header {
    let values = plan.scales.get(scale).map(|s| s.values.clone()).unwrap_or_default();
    Header {
        format: FORMAT,
        version: "0.9.0".into(),
        plan,
        scale: scale.into(),
        values: values.into_iter().map(|(name, value)| (name, Value::Array(list(&value)))).collect(),
        set: Vec::new(),
        dir: "/mnt/stria/bench".into(),
        file_system: "fuse.stria on 10.0.0.1@tcp:/fs".into(),
        hosts: Vec::new(),
        command: "stria bench run sample --dir /mnt/stria/bench --out out --scale small".into(),
        begun: "2026-11-22T10:00:00Z".into(),
        system: vec![("kernel".into(), "6.18.0".into()), ("memory".into(), "64 GiB".into())],
    }
}

fn list(value: &Quantities) -> Vec<Value> {
    let one = |q: &Quantity| match q {
        Quantity::Whole(n) => json!(n),
        Quantity::Real(r) => json!(r),
        Quantity::Text(t) => json!(t),
    };
    match value {
        Quantities::Many(all) => all.iter().map(one).collect(),
        Quantities::One(q) => vec![one(q)],
    }
}

fn points(step: &Step, header: &Header) -> Vec<BTreeMap<String, Value>> {
    let mut points = vec![BTreeMap::new()];
    for (name, values) in &step.sweep {
        let resolve = |v: Value| match v.as_str().and_then(|s| s.strip_prefix('$')) {
            Some(variable) => {
                header.values.get(variable).and_then(|v| v.as_array().cloned()).unwrap_or_default()
            }
            None => vec![v],
        };
        let values: Vec<Value> = list(values).into_iter().flat_map(resolve).collect();
        let with = |p: &BTreeMap<String, Value>, v: &Value| {
            let mut p = p.clone();
            p.insert(name.clone(), v.clone());
            p
        };
        points = points.iter().flat_map(|p| values.iter().map(move |v| with(p, v))).collect();
    }
    points
}

/// The step, point and phase of a record.
struct Made<'a> {
    step: &'a str,
    point: &'a BTreeMap<String, Value>,
    name: &'a str,
    engine: &'a str,
    workers: u32,
    is_names: bool,
}

fn record(made: Made, is_cold: bool, rng: &mut StdRng, clock: f64) -> Record {
    let Made { step, point, name, engine, workers, is_names } = made;
    let kind = f64::from(name.bytes().chain(step.bytes()).map(u32::from).sum::<u32>() % 7 + 1);
    let scaling = f64::from(workers).powf(0.7);
    let seconds = 2.0 + rng.random::<f64>() * 0.2;
    let rate = kind * scaling * (0.9 + 0.2 * rng.random::<f64>());
    let (ops, bytes) = match is_names {
        true => ((rate * 4000.0 * seconds) as u64, 0),
        false => ((rate * 150.0 * seconds) as u64, (rate * 150e6 * seconds) as u64),
    };
    let buckets = (seconds * 5.0).ceil() as usize;
    let wave = |n: u64| {
        (0..buckets)
            .map(|i| (n as f64 / buckets as f64 * (1.0 + 0.2 * (i as f64 * kind).sin())) as u64)
            .collect()
    };
    let latency = |shift: u64| {
        Latency(
            (0..40).map(|i| (40_000 * shift + i * i * 900, 1 + (ops / 40).saturating_sub(i * 3))).collect(),
        )
    };
    let share = |w: u32| WorkerShare {
        ops: ops / u64::from(workers),
        bytes: bytes / u64::from(workers),
        done: ops / u64::from(workers),
        seconds: seconds * (0.9 + 0.1 * f64::from(w + 1) / f64::from(workers)),
    };
    let target = |t: u32| {
        let WorkerShare { ops, bytes, seconds, .. } = share(t);
        TargetShare { target: format!("drive.{t}"), workers: 1, ops, bytes, seconds }
    };
    let targets = if is_names { Vec::new() } else { (0..workers).map(target).collect() };
    Record {
        step: step.into(),
        point: point.clone(),
        phase: name.into(),
        repeat: 0,
        workers,
        processes: workers.min(64),
        engine: engine.into(),
        command: job(is_names, workers),
        cache: if is_cold { CacheState::Dropped } else { CacheState::Fresh },
        usage: Some(usage(kind, bytes as f64 / seconds, is_names)),
        outcome: Outcome {
            seconds,
            first_done: seconds * 0.9,
            last_done: seconds,
            ops,
            bytes,
            read_bytes: 0,
            stonewall: Some(Stonewall {
                seconds: seconds * 0.9,
                ops: ops as f64 * 0.91,
                bytes: bytes as f64 * 0.91,
            }),
            per_worker: (0..workers).map(share).collect(),
            per_target: targets,
            per_host: Vec::new(),
            uneven: Vec::new(),
            latency: [("op".to_owned(), latency(kind as u64))].into(),
            timeline: Some(Timeline {
                width_seconds: 0.2,
                ops: wave(ops),
                bytes: wave(bytes),
                begin_seconds: clock,
            }),
            checked: Checked { pages: 128, whole_pages: 4, sizes: 4 },
            cpu_seconds: 0.5,
            extra: [("late_share".to_owned(), 0.01)].into(),
        },
    }
}

/// A device that some rows fill and others do not.
pub fn limits() -> Limits {
    use crate::limits::{Limit, Measure, Resource, Unmeasured};
    let limit = |(measure, value): (Measure, f64)| Limit { measure, value, unit: measure.unit().into() };
    let all = [
        (Measure::DeviceRead, 3.2e9),
        (Measure::DeviceWrite, 2.1e9),
        (Measure::DeviceRandomRead, 400e3),
        (Measure::DeviceRandomWrite, 210e3),
        (Measure::DeviceLatency, 84.0),
        (Measure::DeviceSync, 9.5e3),
        (Measure::MemoryCopy, 21e9),
        (Measure::SystemCalls, 8.3e6),
    ];
    Limits {
        device: "/dev/nvme0n1".into(),
        how: "direct I/O in a file of 256 MiB".into(),
        busy_before: Some(0.02),
        seconds: 3.1,
        limits: all.map(limit).to_vec(),
        unmeasured: vec![Unmeasured { resource: Resource::Network, why: "the mount uses no network".into() }],
    }
}

fn usage(kind: f64, bytes_per_second: f64, is_names: bool) -> crate::usage::Usage {
    let device = crate::usage::DeviceUsage {
        read_bytes: bytes_per_second,
        write_bytes: if is_names { 40e6 } else { 0.0 },
        reads: 0.0,
        writes: 0.0,
    };
    crate::usage::Usage { cpu_busy: (0.3 + kind / 10.0).min(0.97), device: Some(device) }
}

/// Workers of names have `2048 / workers` directories of 1024 files.
fn job(is_names: bool, workers: u32) -> String {
    use crate::job::*;
    let names = Names {
        op: NamesOp::Create,
        root: "tree".into(),
        shared: false,
        branch: 2048 / workers.max(1),
        depth: 1,
        leaves_only: true,
        items_per_dir: 1024,
        write_bytes: 4096,
        read_bytes: 4096,
        open_to_write: false,
        flush: true,
        shift: 0,
        order: Order::Sequential,
        epochs: 1,
        version: 0,
        null: false,
    };
    let job = Job {
        work: Work::Names(names),
        workers,
        limit: Limit::default(),
        verify: true,
        seed: 7,
        forget_pages: false,
        holds: Vec::new(),
    };
    if is_names { serde_json::to_string(&job).unwrap() } else { format!("fio --numjobs={workers}") }
}
