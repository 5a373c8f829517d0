//! Every plan in the program expands at each scale, on a small and on a large machine; the studies' rules come out as published.

use std::collections::BTreeMap;

use super::*;
use crate::job::{Data, Names, Work};

mod findings;
mod versions;

fn machines() -> [Environment; 2] {
    let machine = |cpus, ram: u64| Environment { cpus, ram: ram << 30, ..Environment::default() };
    [machine(2, 24), machine(16 * 36, 128)]
}

fn plans() -> Vec<Plan> {
    BUILT_IN.iter().map(|(name, _)| load(name).unwrap()).collect()
}

#[test]
fn built_in_plans_expand_at_every_scale_without_findings() {
    for plan in plans() {
        let (known, _) = BUILT_IN.iter().find(|(name, _)| *name == plan.name).expect("listed under its name");
        assert_eq!(plan.scales.keys().collect::<Vec<_>>(), ["full", "min", "small"], "{known}");
        for machine in machines() {
            check::check(&plan, &machine).unwrap_or_else(|found| panic!("{found}"));
            for scale in plan.scales.keys() {
                let steps = expand(&plan, scale, &machine).unwrap();
                assert!(steps.iter().all(|step| step.points.is_empty() != step.commands.is_empty()));
                assert_eq!(steps, expand(&plan, scale, &machine).unwrap(), "bench-E1");
            }
        }
    }
}

/// On a machine of 2 processors with a medium of 500 MB/s; steps that need what is not there everywhere are left out.
#[test]
fn min_and_small_are_as_short_as_they_say() {
    for plan in plans() {
        for (scale, most_seconds, most_bytes) in [("min", 90.0, 1 << 30), ("small", 600.0, 8 << 30)] {
            let steps = expand(&plan, scale, &machines()[0]).unwrap();
            let least = f64::from(plan.scales[scale].repeats[0]);
            let seconds: f64 = steps.iter().map(|step| estimate::of_step(step).seconds).sum();
            assert!(seconds * least < most_seconds, "{} at {scale}: {:.0} s", plan.name, seconds * least);
            for step in &steps {
                let bytes = estimate::space_bytes(step);
                assert!(bytes <= most_bytes, "{} at {scale}: {} keeps {bytes} bytes", plan.name, step.id);
            }
        }
    }
}

/// `stria bench compare` finds no difference between three samples and three.
#[test]
fn the_small_scales_have_enough_repeats_to_compare_two_runs() {
    for plan in plans() {
        for scale in ["min", "small"] {
            let least = plan.scales[scale].repeats[0] as usize;
            let samples: Vec<f64> = (1..=least).map(|n| n as f64).collect();
            let later: Vec<f64> = samples.iter().map(|value| value + 100.0).collect();
            let change = crate::stats::change(&samples, &later).unwrap();
            assert!(change.could_tell && change.is_significant(), "{} at {scale}: {least}", plan.name);
        }
    }
}

fn step(plan: &str, scale: &str, id: &str) -> PlannedStep {
    let steps = expand(&load(plan).unwrap(), scale, &machines()[0]).unwrap();
    steps.into_iter().find(|step| step.id == id).unwrap()
}

fn phase<'a>(point: &'a PlannedPoint, name: &str) -> &'a PlannedPhase {
    point.phases.iter().find(|phase| phase.name == name).unwrap()
}

fn data<'a>(point: &'a PlannedPoint, name: &str) -> &'a Data {
    match &phase(point, name).parts[0].job.work {
        Work::Data(data) => data,
        Work::Names(_) => panic!("{name} is of names"),
    }
}

fn names<'a>(point: &'a PlannedPoint, name: &str) -> &'a Names {
    match &phase(point, name).parts[0].job.work {
        Work::Names(names) => names,
        Work::Data(_) => panic!("{name} is of data"),
    }
}

fn threads(point: &PlannedPoint) -> u64 {
    point.values["threads"].as_u64().unwrap()
}

#[test]
fn pixstor_spreads_names_as_its_table_3_says() {
    let step = step("pixstor-nvme", "full", "metadata");
    let rule: BTreeMap<u64, u32> =
        step.points.iter().map(|point| (threads(point), names(point, "create").branch)).collect();
    let published = [
        (1, 2048),
        (2, 1024),
        (4, 512),
        (8, 256),
        (16, 128),
        (32, 64),
        (64, 32),
        (128, 16),
        (256, 8),
        (512, 4),
    ];
    assert_eq!(rule, BTreeMap::from(published));
    let plan = load("pixstor-nvme").unwrap();
    let table = plan.tables.iter().find(|table| table.id == "table-3").unwrap();
    let shown =
        table.rows.iter().map(|row| (row.at["threads"].as_u64().unwrap(), row.published["value"] as u32));
    assert_eq!(shown.collect::<BTreeMap<_, _>>(), rule);
    for point in &step.points {
        let names = names(point, "create");
        assert_eq!(names.items_per_worker() * threads(point), 1 << 21);
        assert!(names.leaves_only && names.flush && !names.shared && names.depth == 1);
        assert_eq!(point.phases[0].name, "make tree");
        assert!(!point.phases[0].measured);
    }
}

#[test]
fn pixstor_moves_twice_the_clients_memory_and_no_less_per_thread_below_16() {
    for id in ["nn-sequential", "n1-sequential"] {
        let step = step("pixstor-nvme", "full", id);
        for point in &step.points {
            let gib = match threads(point) {
                threads @ ..16 => 256 * threads,
                _ => 4096,
            };
            assert_eq!(
                data(point, "write").block_bytes * threads(point),
                gib << 30,
                "{id} {:?}",
                point.values
            );
            assert_eq!(point.processes as u64, threads(point).min(64));
        }
    }
}

#[test]
fn fsx_shares_a_tebibyte_as_ior_rounded_it() {
    let step = step("fsx-lustre", "full", "ior");
    let point = step.points.iter().find(|point| threads(point) == 72).unwrap();
    let (write, read) = (data(point, "write"), data(point, "read"));
    // -b 14563m: 14.22 GiB each, 1023.96 GiB in all, as the study's summary says.
    assert_eq!(write.block_bytes, 14563 << 20);
    let gib = (write.block_bytes * 72) as f64 / f64::from(1 << 30);
    assert_eq!(format!("{gib:.2}"), "1023.96");
    // -C: each reads what was written on the next of 9 nodes.
    assert_eq!((read.shift, read.transfer_bytes, read.block_bytes), (8, 1 << 20, write.block_bytes));
    assert_eq!(read.accept, [write.version]);
}

#[test]
fn fsx_names_are_those_of_144_tasks() {
    let step = step("fsx-lustre", "full", "mdtest");
    assert_eq!(step.points.len(), 1);
    let names = names(&step.points[0], "create");
    assert_eq!(names.items_per_worker() * threads(&step.points[0]), 144_000);
    assert!(phase(&step.points[0], "make-tree").measured && phase(&step.points[0], "remove-tree").measured);
}

/// The first writes fill the drives; what follows uses 5 % of each, from its begin.
#[test]
fn vss_fills_drives_and_uses_five_percent() {
    let twelve = (0..12).map(|n| std::path::PathBuf::from(format!("/dev/d{n}"))).collect();
    let given = Environment { targets: twelve, target_bytes: 1 << 40, ..machines()[1].clone() };
    let plan = load("vss2249p").unwrap();
    for (environment, devices, bytes) in [(&machines()[1], 24, 30_720_000_000_000), (&given, 12, 1 << 40)] {
        let steps = expand(&plan, "full", environment).unwrap();
        let point = &steps[1].points[0];
        let (fill, random) = (data(point, "fill"), data(point, "random-read-64k"));
        assert_eq!(fill.block_bytes, bytes >> 20 << 20);
        let crate::job::Files::Given { paths } = &random.files else { panic!("{:?}", random.files) };
        assert_eq!(paths.len(), devices);
        assert_eq!(phase(point, "random-read-64k").workers() as usize, devices * 4);
        let share = (random.block_bytes * 4) as f64 / bytes as f64;
        assert!((0.0499..0.0501).contains(&share), "{share}");
        // Everything that was written before may stand there.
        assert_eq!(random.accept.len(), 4);
        assert_eq!(fill.create, environment.targets.is_empty());
    }
    assert_eq!(estimate::space_bytes(&expand(&plan, "full", &given).unwrap()[1]), 0);
}

#[test]
fn parts_at_once_have_files_of_their_own_or_accept_what_the_others_write() {
    let step = step("lnet-routers", "small", "few");
    let both = phase(&step.points[0], "both");
    let jobs: Vec<_> = both.parts.iter().map(|part| (part.name.as_str(), &part.job.work)).collect();
    let [("write", Work::Data(write)), ("read", Work::Data(read))] = jobs[..] else { panic!("{jobs:?}") };
    assert_ne!(write.files, read.files);
    assert_eq!(read.accept, [data(&step.points[0], "write").version]);

    let mut plan = load("lnet-routers").unwrap();
    let part = plan.steps[0].phases[2].together[0].data.as_mut().unwrap();
    part.insert("overwrite".into(), true.into());
    part.remove("name");
    let steps = expand(&plan, "small", &machines()[0]).unwrap();
    let both = phase(&steps[0].points[0], "both");
    let Work::Data(read) = &both.parts[1].job.work else { panic!() };
    let Work::Data(write) = &both.parts[0].job.work else { panic!() };
    assert!(read.accept.contains(&write.version) && read.accept.len() == 2, "{:?}", read.accept);
}

#[test]
fn what_overwrites_at_random_is_read_back_and_reads_accept_it() {
    let step = step("quick", "small", "own");
    let point = &step.points[0];
    let (first, random, latency) =
        (data(point, "write"), data(point, "random-write"), data(point, "latency"));
    assert_eq!((first.read_back, random.read_back, latency.read_back), (0, 256, 0));
    assert!(first.create && !random.create && random.version != first.version);
    assert_eq!(latency.accept, [first.version]);
    // One worker reads a file of the size that each of four wrote.
    assert_eq!((latency.block_bytes, phase(point, "latency").workers()), (first.block_bytes, 1));
}

/// A total that no number of threads divides is rounded by each phase: none reads what another did not write.
#[test]
fn any_number_of_threads_can_be_set() {
    for plan in plans() {
        for threads in [3, 5, 7] {
            let mut environment = machines()[0].clone();
            let variables = [
                "threads",
                "tasks",
                "readers",
                "shared_threads",
                "scaling_threads",
                "peak_threads",
                "devices",
            ];
            let is_there = |name: &&str| plan.scales["small"].values.contains_key(*name);
            for name in variables.into_iter().filter(is_there) {
                let threads = schema::Quantities::One(schema::Quantity::Whole(threads));
                environment.overrides.insert(name.into(), threads);
            }
            expand(&plan, "small", &environment).unwrap_or_else(|found| panic!("{threads}: {found}"));
        }
    }
}

/// The document's example is a plan that is in order.
#[test]
fn the_documented_example_is_in_order() {
    let text = include_str!("../../../../docs/bench-plans.md");
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let plan: Plan = toml::from_str(example).unwrap();
    for machine in machines() {
        check::check(&plan, &machine).unwrap_or_else(|found| panic!("{found}"));
    }
    assert_eq!(expand(&plan, "small", &machines()[0]).unwrap()[0].points.len(), 6, "2 cpus: no value twice");
}
