//! Every plan in the program expands at each scale, on a small and on a large machine; the studies' rules come out as published.

use std::collections::BTreeMap;

use super::*;
use crate::job::{Data, Names, Work};

mod findings;

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
                assert_eq!(steps, expand(&plan, scale, &machine).unwrap(), "I1");
            }
        }
    }
}

/// On a machine of 2 processors with a medium of 500 MB/s; steps that need what is not there everywhere are left out.
#[test]
fn min_and_small_are_as_short_as_they_say() {
    for plan in plans() {
        for (scale, most_seconds, most_bytes) in [("min", 60.0, 1 << 30), ("small", 400.0, 8 << 30)] {
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
