//! The rows of `stria bench quick` that have a bar, and the plan that measures them and no others.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use bench::plan::schema::{Quantities, Quantity, Step, TableRow};
use bench::plan::{self, Environment, Plan};
use bench::record::Unit;

/// A row, its bar for Stria ÷ the set's yardstick if it has one, and the best peer's ratio to ext4 where one was measured.
pub struct Bar {
    pub title: &'static str,
    pub bar: Option<f64>,
    pub peer: Option<f64>,
}

const fn bar(title: &'static str, bar: f64, peer: Option<f64>) -> Bar {
    Bar { title, bar: Some(bar), peer }
}

const fn ahead_of(title: &'static str, peer: f64) -> Bar {
    Bar { title, bar: None, peer: Some(peer) }
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

/// Of the metadata service, Stria ÷ the null file system, whose own bar is that it answers from memory.
const MDS: &[Bar] = &[
    bar("empty files: create", 0.7, Some(0.071)),
    bar("empty files: stat", 0.7, Some(0.063)),
    bar("empty files: open, close", 0.7, Some(0.0478)),
    bar("empty files: remove", 0.7, Some(0.0534)),
    bar("4 KiB files: create", 0.7, Some(0.0247)),
    bar("4 KiB files: stat", 0.7, Some(0.0844)),
    bar("4 KiB files: open, read, close", 0.7, Some(0.15)),
    bar("4 KiB files: remove", 0.7, Some(0.116)),
    bar("empty files: create (shared directory)", 0.7, Some(0.058)),
    bar("empty files: stat (shared directory)", 0.7, Some(0.0644)),
    bar("empty files: open, close (shared directory)", 0.7, Some(0.0387)),
    bar("empty files: remove (shared directory)", 0.7, Some(0.0291)),
    bar("4 KiB files: create (shared directory)", 0.7, None),
    bar("4 KiB files: stat (shared directory)", 0.7, None),
    bar("4 KiB files: open, read, close (shared directory)", 0.7, None),
    bar("4 KiB files: remove (shared directory)", 0.7, None),
    ahead_of("empty files: stat again", 0.576),
    ahead_of("4 KiB files: stat again", 0.349),
    ahead_of("empty files: stat again (shared directory)", 0.647),
    ahead_of("32 KiB files: create", 0.0427),
    ahead_of("32 KiB files: stat", 0.085),
    ahead_of("32 KiB files: stat again", 0.783),
    ahead_of("32 KiB files: open, read, close", 0.2),
    ahead_of("32 KiB files: remove", 0.0959),
];

/// The rows, and the side that Stria is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    Road,
    Mds,
}

impl Set {
    fn bars(self) -> &'static [Bar] {
        match self {
            Set::Road => ROAD,
            Set::Mds => MDS,
        }
    }
    /// The yardstick whose turns alternate with Stria's.
    pub fn yardstick(self) -> &'static str {
        match self {
            Set::Road => "pass-through",
            Set::Mds => "null",
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            Set::Road => "road",
            Set::Mds => "mds",
        }
    }
}

/// The plan quick; its stats of names again, when they are cached; its steps on names once more with one directory for all workers, and with
/// files of 32 KiB.
fn quick() -> Result<Plan> {
    let mut plan = plan::load("quick")?;
    stat_again(&mut plan);
    more(&mut plan, &["empty", "small"], "-shared", |step| {
        step.names.insert("shared".into(), true.into());
    });
    more(&mut plan, &["small"], "-32k", |step| {
        for what in ["write", "read"] {
            step.names.insert(what.into(), "32K".into());
        }
    });
    for row in plan.tables.iter_mut().flat_map(|table| &mut table.rows) {
        if row.step.ends_with("-shared") {
            row.name += " (shared directory)";
        } else if row.step.ends_with("-32k") {
            row.name = row.name.replace("4 KiB", "32 KiB");
        }
    }
    Ok(plan)
}

/// So often, as one round is over in a few milliseconds.
const STAT_ROUNDS: i64 = 20;

fn stat_again(plan: &mut Plan) {
    for step in &mut plan.steps {
        let Some(at) = step.phases.iter().position(|phase| phase.name == "stat") else { continue };
        let mut again = step.phases[at].clone();
        (again.name, again.cold) = ("stat-again".into(), false);
        again.names.get_or_insert_default().insert("epochs".into(), STAT_ROUNDS.into());
        step.phases.insert(at + 1, again);
    }
    for table in &mut plan.tables {
        let rows: Vec<_> = table.rows.iter().filter(|row| row.phase == "stat").cloned().collect();
        table.rows.extend(rows.into_iter().map(|row| TableRow {
            name: row.name + " again",
            phase: "stat-again".into(),
            ..row
        }));
    }
}

/// Steps once more, made other by `change`, and their rows.
fn more(plan: &mut Plan, ids: &[&str], suffix: &str, change: impl Fn(&mut Step)) {
    let mut steps: Vec<_> =
        plan.steps.iter().filter(|step| ids.contains(&step.id.as_str())).cloned().collect();
    for step in &mut steps {
        step.id += suffix;
        // Steps meet by it.
        step.names.insert("name".into(), step.id.clone().into());
        change(step);
    }
    plan.steps.extend(steps);
    for table in &mut plan.tables {
        let rows: Vec<_> =
            table.rows.iter().filter(|row| ids.contains(&row.step.as_str())).cloned().collect();
        table.rows.extend(rows.into_iter().map(|row| TableRow { step: row.step + suffix, ..row }));
    }
}

/// Known ratios of the yardsticks to ext4: (row, pass-through, null).
pub const YARDSTICKS: &[(&str, f64, f64)] = &[
    ("empty files: create", 0.16, 0.24),
    ("4 KiB files: create", 0.13, 0.21),
    ("empty files: stat", 0.19, 0.26),
    ("N-N sequential write", 0.81, 1.03),
];

pub const SCALE: &str = "full";
/// Values that differ from the plan's scale: a pair of sides ends in some 40 s.
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
pub fn rows(set: Set, wanted: &str) -> Result<Vec<Row>> {
    let plan = quick()?;
    let is_wanted = |bar: &&Bar| wanted.split(',').any(|part| bar.title.contains(part));
    let row_of = |bar: &'static Bar| {
        let mut known = plan.tables.iter().flat_map(|table| &table.rows);
        let row = known.find(|row| row.name == bar.title);
        let TableRow { step, phase, unit, .. } =
            row.with_context(|| format!("the plan quick has no row {}", bar.title))?.clone();
        Ok(Row { bar, step, phase, unit })
    };
    let rows: Vec<Row> = set.bars().iter().filter(is_wanted).map(row_of).collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "no row's title contains any of: {wanted}");
    Ok(rows)
}

/// The plan quick with the phases of `rows`. A step's first phase, which creates their files, is kept unmeasured.
pub fn plan_of(rows: &[Row], verify: bool) -> Result<Plan> {
    let mut plan = quick()?;
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
    fn phases(set: Set, wanted: &str) -> Vec<(String, bool)> {
        let plan = plan_of(&rows(set, wanted).unwrap(), true).unwrap();
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
        for set in [Set::Road, Set::Mds] {
            let measured = phases(set, "").into_iter().filter(|(_, measured)| *measured).count();
            assert_eq!(measured, set.bars().len());
        }
        for (title, ..) in YARDSTICKS {
            assert!(ROAD.iter().any(|bar| bar.title == *title), "{title}");
        }
    }

    #[test]
    fn a_row_alone_has_what_it_needs() {
        let of = |list: &[(&str, bool)]| list.iter().map(|(p, m)| ((*p).into(), *m)).collect::<Vec<_>>();
        assert_eq!(phases(Set::Road, "random"), of(&[("own write", false), ("own random-read", true)]));
        assert_eq!(phases(Set::Road, "fsync"), of(&[("fsync make", false), ("fsync fsync", true)]));
        let stat = [("empty make empty", false), ("empty create", false), ("empty stat", true)];
        assert_eq!(phases(Set::Road, "files: stat"), of(&stat));
        assert!(rows(Set::Road, "no such row").is_err());
        let shared = phases(Set::Mds, "empty files: remove (shared");
        let make = ("empty-shared make empty-shared", false);
        assert_eq!(shared, of(&[make, ("empty-shared create", false), ("empty-shared remove", true)]));
    }

    #[test]
    fn sizes_are_those_of_the_bars() {
        let plan = plan_of(&rows(Set::Road, "").unwrap(), false).unwrap();
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
