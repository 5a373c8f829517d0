//! Groups records that are repeats of the same step, point, phase and program.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::plan;
use crate::plan::schema::ALL_PHASES;
use crate::record::{Record, Results, Unit};
use crate::stats::{self, Estimate};

/// Engines of records that are programs of others; all else is ours.
const PROGRAMS: [&str; 4] = ["fio", "ior", "mdtest", "iozone"];
/// Name of our own program in plans.
pub const OURS: &str = "stria";

/// The repeats of one measurement.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    pub step: &'a str,
    pub phase: &'a str,
    pub point: &'a BTreeMap<String, Value>,
    /// `stria`, `fio`, `ior`, `mdtest`, `iozone`.
    pub program: &'a str,
    /// Is it the program that the plan's figures and tables are of, and not the one that is measured against it?
    pub is_main: bool,
    /// Does it measure what a published value of it measures? Only then is a share of that value shown.
    pub compares: bool,
    /// Default unit for display.
    pub unit: Unit,
    /// Never empty.
    pub records: Vec<&'a Record>,
}

impl Group<'_> {
    /// Values in a unit, by repeat; those that there are.
    pub fn samples(&self, unit: Unit) -> Vec<f64> {
        self.records.iter().filter_map(|r| r.outcome.value(unit)).filter(|v| v.is_finite()).collect()
    }

    /// The same, or the sums of the file systems' own rates.
    pub fn samples_of(&self, unit: Unit, summed: bool) -> Vec<f64> {
        match summed {
            false => self.samples(unit),
            true => self.records.iter().filter_map(|r| sum_of(r, unit)).collect(),
        }
    }

    pub fn estimate(&self, unit: Unit) -> Estimate {
        stats::estimate(&self.samples(unit))
    }

    /// `threads 4, transfer 1048576`; nothing if nothing was swept.
    pub fn point_text(&self) -> String {
        let parts: Vec<String> =
            self.point.iter().map(|(name, value)| format!("{name} {}", word(value))).collect();
        parts.join(", ")
    }

    /// `step · phase · threads 4`, and the program where it is not ours.
    pub fn title(&self) -> String {
        let point = self.point_text();
        let program = if self.program == OURS { "" } else { self.program };
        let parts = [self.step, self.phase, &point, program];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
    }

    /// The median over the repeats of something that records have.
    pub fn median_of(&self, of: impl Fn(&Record) -> Option<f64>) -> f64 {
        let values: Vec<f64> = self.records.iter().filter_map(|r| of(r)).filter(|v| v.is_finite()).collect();
        stats::estimate(&values).median
    }
}

/// The rates of a record's file systems, each over its own time, added; the record's own rate if it has none.
fn sum_of(record: &Record, unit: Unit) -> Option<f64> {
    let targets = &record.outcome.per_target;
    if targets.is_empty() {
        return record.outcome.value(unit);
    }
    targets.iter().map(|t| super::series::rate(unit, t.bytes as f64, t.ops as f64, t.seconds)).sum()
}

/// All groups, in the order in which they were first measured.
pub fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut index: BTreeMap<(&str, String, &str, &str), usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for record in &results.records {
        let program = program_of(&record.engine);
        let point = serde_json::to_string(&record.point).unwrap_or_default();
        let at = *index.entry((&record.step, point, &record.phase, program)).or_insert_with(|| {
            let phase = phase_of(results, &record.step, &record.phase);
            let wanted = phase.and_then(|p| p.engine.as_deref()).unwrap_or(OURS);
            let has_two = phase.is_some_and(|p| p.against.is_some());
            groups.push(Group {
                step: &record.step,
                phase: &record.phase,
                point: &record.point,
                program,
                is_main: !has_two || wanted == program,
                compares: false,
                unit: unit_of(results, record),
                records: Vec::new(),
            });
            groups.len() - 1
        });
        groups[at].records.push(record);
    }
    if is_as_published(results) {
        for group in &mut groups {
            group.compares = !is_cached(results, group);
        }
    }
    groups
}

/// Are the amounts those of the published study? At a smaller scale files fit into caches, and rates are of something else.
pub fn is_as_published(results: &Results) -> bool {
    let header = &results.header;
    header.set.is_empty() && header.plan.scales.get(&header.scale).is_some_and(|scale| scale.as_published)
}

fn is_cached(results: &Results, group: &Group) -> bool {
    let Some(load) = super::load::load_of(results, group) else { return false };
    let row = super::first::row_of(group, load);
    super::verdict::judge(&row, results.limits.as_ref()).limiter == super::verdict::Limiter::Cache
}

/// Of these, the plan's main measurements of a phase at points that have all of `at`.
pub fn select<'g, 'a>(
    groups: &'g [Group<'a>],
    step: &str,
    phase: &str,
    at: &BTreeMap<String, Value>,
) -> Vec<&'g Group<'a>> {
    let is_phase = |g: &Group| g.phase == phase || (phase == ALL_PHASES && !g.phase.contains('.'));
    let fits = |g: &&Group| {
        g.is_main
            && g.step == step
            && is_phase(g)
            && at.iter().all(|(name, wanted)| g.point.get(name).is_some_and(|is| is_same(is, wanted)))
    };
    groups.iter().filter(fits).collect()
}

/// A value of a point as a number: sizes such as `8M` are numbers too.
pub fn quantity(value: &Value) -> Option<f64> {
    match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s
            .parse::<types::Size>()
            .map(|s| s.0 as f64)
            .ok()
            .or_else(|| s.parse().ok())
            .filter(|v| v.is_finite()),
        _ => None,
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    a == b || quantity(a).is_some_and(|x| quantity(b) == Some(x))
}

/// A value as people write it: without quotes.
pub fn word(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        Value::Array(many) => many.iter().map(word).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The plan's phase of a record; parts of a phase (`NAME.PART`) are of it.
pub fn phase_of<'a>(results: &'a Results, step: &str, phase: &str) -> Option<&'a plan::Phase> {
    let step = results.header.plan.steps.iter().find(|s| s.id == step)?;
    let find = |name: &str| step.phases.iter().find(|p| p.name == name);
    find(phase).or_else(|| find(phase.split_once('.')?.0))
}

pub fn program_of(engine: &str) -> &str {
    let first = engine.split(' ').next().unwrap_or(engine);
    PROGRAMS.into_iter().find(|p| *p == first).unwrap_or(OURS)
}

/// The unit in which the plan's tables or figures show a phase; else bytes per second, or operations where names are worked on.
fn unit_of(results: &Results, record: &Record) -> Unit {
    let plan = &results.header.plan;
    let is_it = |step: &str, phase: &str| step == record.step && phase == record.phase;
    let row = plan.tables.iter().flat_map(|t| &t.rows).find(|r| is_it(&r.step, &r.phase)).map(|r| r.unit);
    let figure =
        plan.figures.iter().find(|f| f.series.iter().any(|s| is_it(&s.step, &s.phase))).map(|f| f.unit);
    row.or(figure).unwrap_or_else(|| {
        let step = plan.steps.iter().find(|s| s.id == record.step);
        let phase = phase_of(results, &record.step, &record.phase);
        let is_names = phase.is_some_and(|p| {
            p.names.is_some()
                || (p.data.is_none() && p.together.is_empty() && step.is_some_and(|s| !s.names.is_empty()))
        });
        if is_names || record.outcome.bytes == 0 { Unit::Ops } else { Unit::MBps }
    })
}
