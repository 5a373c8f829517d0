//! The rows of `stria bench quick` that have a bar, and the plan that measures them and no others.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bench::plan::schema::{Quantities, Quantity, TableRow};
use bench::plan::{self, Environment, Plan};
use bench::record::Unit;

/// A row, its bar for Stria ÷ pass-through, and the best peer's ratio to ext4 where one was measured.
pub struct Bar {
    pub title: &'static str,
    pub bar: f64,
    pub peer: Option<f64>,
}

const fn bar(title: &'static str, bar: f64, peer: Option<f64>) -> Bar {
    Bar { title, bar, peer }
}

/// The bars; a latency counts as its inverse, so that higher is better everywhere (1.5 × slower = 0.667).
/// Peers: the best of GlusterFS, SeaweedFS, JuiceFS, MooseFS and CephFS ÷ ext4 on such a machine.
const ROAD: &[Bar] = &[
    bar("N-N sequential write", 0.8, Some(0.736)),
    bar("N-N sequential read", 0.8, Some(0.586)),
    bar("N-1 sequential write", 0.8, Some(0.458)),
    bar("N-1 sequential read", 0.8, Some(0.337)),
    bar("random 4 KiB read", 0.7, Some(0.271)),
    bar("4 KiB read latency, one at a time", 1.0 / 1.5, None),
    bar("4 KiB overwrite + fsync, one worker", 0.8, Some(1.52)),
    bar("empty files: create", 0.9, Some(0.071)),
    bar("empty files: stat", 0.9, Some(0.063)),
    bar("empty files: remove", 0.9, Some(0.0534)),
    bar("4 KiB files: create", 1.0, Some(0.0247)),
];

/// Known ratios of the yardsticks to ext4: (row, pass-through, null).
pub const YARDSTICKS: &[(&str, f64, f64)] = &[
    ("empty files: create", 0.16, 0.24),
    ("4 KiB files: create", 0.13, 0.21),
    ("empty files: stat", 0.19, 0.26),
    ("N-N sequential write", 0.81, 1.03),
];

pub const SCALE: &str = "full";
/// What differs from the plan's scale: a pair of sides ends in some 40 s.
const VALUES: &[(&str, &str)] = &[("threads", "4"), ("total", "512M"), ("files", "1500"), ("seconds", "3")];
/// Each worker's operations at random places end after so many: what most pages are read by is then still a read of their own.
const RANDOM_OPS: i64 = 8000;

/// A bar, and which measurement in which unit is held against it.
pub struct Row {
    pub bar: &'static Bar,
    pub step: String,
    pub phase: String,
    pub unit: Unit,
}

/// The rows whose title contains one of `wanted`, which are separated by commas.
pub fn rows(wanted: &str) -> Result<Vec<Row>> {
    let plan = plan::load("quick")?;
    let is_wanted = |bar: &&Bar| wanted.split(',').any(|part| bar.title.contains(part));
    let row_of = |bar: &'static Bar| {
        let mut known = plan.tables.iter().flat_map(|table| &table.rows);
        let row = known.find(|row| row.name == bar.title);
        let TableRow { step, phase, unit, .. } =
            row.with_context(|| format!("the plan quick has no row {}", bar.title))?.clone();
        Ok(Row { bar, step, phase, unit })
    };
    let rows: Vec<Row> = ROAD.iter().filter(is_wanted).map(row_of).collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "no row's title contains any of: {wanted}");
    Ok(rows)
}

/// The plan quick with the phases of `rows`, and unmeasured those that make what they use: a step's first.
pub fn plan_of(rows: &[Row], verify: bool) -> Result<Plan> {
    let mut plan = plan::load("quick")?;
    for step in &mut plan.steps {
        let is_row = |phase: &str| rows.iter().any(|row| row.step == step.id && row.phase == phase);
        let mut number = 0;
        step.phases.retain(|phase| {
            number += 1;
            number == 1 || is_row(&phase.name)
        });
        for phase in &mut step.phases {
            phase.unmeasured = !is_row(&phase.name);
            if let Some(data) = phase.data.as_mut().filter(|data| data.contains_key("order")) {
                data.entry("ops").or_insert(RANDOM_OPS.into());
            }
        }
        // Threads, as the harness has always had them.
        step.processes = Some(Quantity::Whole(1));
        step.data.insert("verify".into(), verify.into());
        step.names.insert("verify".into(), verify.into());
    }
    plan.steps.retain(|step| step.phases.iter().any(|phase| !phase.unmeasured));
    Ok(plan)
}

pub fn environment() -> Environment {
    let one = |text: &str| Quantities::One(Quantity::Text(text.into()));
    let overrides: BTreeMap<_, _> = VALUES.iter().map(|(name, value)| ((*name).into(), one(value))).collect();
    Environment { overrides, ..Environment::here() }
}

#[cfg(test)]
mod tests {
    use bench::job::{DataOp, Work};

    use super::*;

    /// Step, phase and whether it is measured of all that would be run.
    fn phases(wanted: &str) -> Vec<(String, bool)> {
        let plan = plan_of(&rows(wanted).unwrap(), true).unwrap();
        let steps = plan::expand(&plan, SCALE, &environment()).unwrap();
        let of_point = |step: &plan::PlannedStep| {
            let id = step.id.clone();
            let phases = step.points[0].phases.clone();
            phases.into_iter().map(move |phase| (format!("{id} {}", phase.name), phase.measured))
        };
        steps.iter().flat_map(of_point).collect()
    }

    #[test]
    fn every_bar_is_measured_once_and_every_yardstick_is_a_bar() {
        let measured = phases("").into_iter().filter(|(_, measured)| *measured).count();
        assert_eq!(measured, ROAD.len());
        for (title, ..) in YARDSTICKS {
            assert!(ROAD.iter().any(|bar| bar.title == *title), "{title}");
        }
    }

    #[test]
    fn a_row_alone_has_what_it_needs() {
        let of = |list: &[(&str, bool)]| list.iter().map(|(p, m)| ((*p).into(), *m)).collect::<Vec<_>>();
        assert_eq!(phases("random"), of(&[("own write", false), ("own random-read", true)]));
        assert_eq!(phases("fsync"), of(&[("fsync make", false), ("fsync fsync", true)]));
        let stat = [("empty make empty", false), ("empty create", false), ("empty stat", true)];
        assert_eq!(phases("files: stat"), of(&stat));
        assert!(rows("no such row").is_err());
    }

    #[test]
    fn sizes_are_those_of_the_bars() {
        let plan = plan_of(&rows("").unwrap(), false).unwrap();
        let steps = plan::expand(&plan, SCALE, &environment()).unwrap();
        for phase in steps.iter().flat_map(|step| &step.points[0].phases).filter(|phase| phase.measured) {
            let job = &phase.parts[0].job;
            assert!(!job.verify && job.limit.seconds == Some(3.0), "{}", phase.name);
            match &job.work {
                Work::Names(names) => assert_eq!((job.workers, names.items_per_dir), (4, 1500)),
                Work::Data(data) if data.transfer_bytes == 4096 => {
                    let most = if data.op == DataOp::Read && job.workers == 1 { 2000 } else { 8000 };
                    assert_eq!(data.ops_max, Some(most), "{}", phase.name);
                }
                Work::Data(data) => {
                    let bytes = data.block_bytes * data.segments * u64::from(job.workers);
                    assert_eq!((data.transfer_bytes, bytes), (1 << 20, 512 << 20), "{}", phase.name);
                }
            }
        }
    }
}
