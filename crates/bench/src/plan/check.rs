//! Finds all errors of a plan before it runs.
//!
//! Names, figures and tables are looked at here; everything that needs a point's values is found by expanding each scale.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::environment::Environment;
use super::expand::{expand, variables};
use super::finding::{Finding, Findings, Trouble};
use super::schema::{ALL_PHASES, Figure, FigureKind, Phase, Plan, Step, Table, TableKind};
use crate::hosts;
use crate::record::Unit;

/// Columns of tables that have published values.
const COLUMNS: [&str; 10] =
    ["peak", "sustained", "max", "min", "mean", "stddev", "value", "total", "needed", "block"];

/// File systems that figures and tables may name one by one.
const FILE_SYSTEMS_NAMED: u32 = 9;

/// All that is wrong with the plan, at each of its scales, in this environment.
pub fn check(plan: &Plan, environment: &Environment) -> Result<(), Findings> {
    let mut findings = Findings::new(&plan.name);
    names(plan, &mut findings);
    steps(plan, &mut findings);
    let known = Known::new(plan, environment);
    for figure in &plan.figures {
        check_figure(figure, &known, &mut findings);
    }
    for table in &plan.tables {
        check_table(table, &known, &mut findings);
    }
    for scale in plan.scales.keys() {
        if let Err(found) = expand(plan, scale, environment) {
            for finding in found.list {
                let place = format!("scale {scale}, {}", finding.place);
                // Once for all scales: the same word is wrong at each.
                let seen = |known: &Finding| {
                    let at = known.place.split_once(", ").filter(|(first, _)| first.starts_with("scale "));
                    at.is_some_and(|(_, rest)| rest == finding.place)
                };
                if !findings.list.iter().any(seen) {
                    findings.add(Finding { place, ..finding });
                }
            }
        }
    }
    findings.or(())
}

fn names(plan: &Plan, findings: &mut Findings) {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if plan.name.is_empty() || !plan.name.chars().all(is_word) {
        let what = format!("'{}' does not do", plan.name);
        findings.add(Finding::new("name", Trouble::new(what, "use a-z, 0-9 and -")));
    }
    if !plan.hosts.is_empty()
        && let Err(error) = hosts::check_names(&plan.hosts)
    {
        let trouble = Trouble::new(error.to_string(), "write hosts = [\"h1\", \"h2\"]");
        findings.add(Finding::new("hosts", trouble));
    }
    if let Some(Err(error)) = plan.launch.as_deref().map(hosts::words) {
        findings
            .add(Finding::new("launch", Trouble::new(error.to_string(), "write launch = \"ssh {host}\"")));
    }
    for (name, values) in &plan.labels {
        let is_taken = plan.steps.iter().any(|step| step.sweep.contains_key(name))
            || plan.scales.values().any(|scale| scale.values.contains_key(name));
        if values.is_empty() || is_taken {
            let what = "a label has values of its own and is no variable of a scale or sweep";
            let next = "write labels = { routers = [0, 1] }, and a name that is not used otherwise";
            findings.add(Finding::new(format!("label {name}"), Trouble::new(what, next)));
        }
    }
    if plan.scales.is_empty() {
        findings.add(Finding::new("scales", Trouble::new("there is no scale", "add [scales.small]")));
    }
    for (name, scale) in &plan.scales {
        let [least, most] = scale.repeats;
        if least == 0 || most < least {
            let what = format!("from {least} to {most} repeats is no range");
            let trouble = Trouble::new(what, "write the fewest, 1 or more, and the most");
            findings.add(Finding::new(format!("scale {name}, repeats"), trouble));
        }
    }
    let mut unique = |kind: &str, ids: Vec<&str>| {
        let mut seen = BTreeSet::new();
        for id in ids.into_iter().filter(|id| !seen.insert(id.to_string())) {
            let trouble = Trouble::new("there are two of this name", "name one of them otherwise");
            findings.add(Finding::new(format!("{kind} {id}"), trouble));
        }
    };
    unique("step", plan.steps.iter().map(|step| step.id.as_str()).collect());
    unique("figure", plan.figures.iter().map(|figure| figure.id.as_str()).collect());
    unique("table", plan.tables.iter().map(|table| table.id.as_str()).collect());
    for step in &plan.steps {
        let kind = format!("step {}, phase", step.id);
        unique(&kind, step.phases.iter().map(|phase| phase.name.as_str()).collect());
        for phase in &step.phases {
            let kind = format!("step {}, phase {}, part", step.id, phase.name);
            unique(&kind, phase.together.iter().map(|part| part.name.as_str()).collect());
        }
    }
}

fn steps(plan: &Plan, findings: &mut Findings) {
    if plan.steps.is_empty() {
        findings.add(Finding::new("steps", Trouble::new("there is no step", "add [[steps]]")));
    }
    for step in &plan.steps {
        for scale in step.scales.iter().filter(|scale| !plan.scales.contains_key(*scale)) {
            let trouble = Trouble::new(format!("there is no scale {scale}"), format!("add [scales.{scale}]"));
            findings.add(Finding::new(format!("step {}, scales", step.id), trouble));
        }
        if step.phases.is_empty() == step.commands.is_empty() {
            let trouble =
                Trouble::new("it must have phases or commands, and not both", "split it, or fill it");
            findings.add(Finding::new(format!("step {}", step.id), trouble));
        }
        if step.commands.iter().any(Vec::is_empty) {
            let trouble = Trouble::new("a command has no word", "write a program and its arguments");
            findings.add(Finding::new(format!("step {}, commands", step.id), trouble));
        }
        for phase in &step.phases {
            let said = [&phase.name].into_iter().chain(phase.together.iter().map(|part| &part.name));
            if said.clone().any(|name| name.is_empty() || name.contains('.')) {
                let trouble = Trouble::new("its name is empty or has a point", "points part phase and part");
                findings.add(Finding::of_phase(step, phase, trouble.at("name")));
            }
        }
    }
}

/// The names that figures and tables may use.
struct Known<'a> {
    steps: BTreeMap<&'a str, KnownStep<'a>>,
    variables: BTreeSet<&'a str>,
}

struct KnownStep<'a> {
    step: &'a Step,
    /// Phases that leave records, with `PHASE.PART`.
    phases: BTreeMap<String, bool>,
    /// By swept parameter, its values at all scales.
    swept: BTreeMap<&'a str, Vec<Value>>,
}

impl<'a> Known<'a> {
    fn new(plan: &'a Plan, environment: &Environment) -> Known<'a> {
        let scales: Vec<_> = plan.scales.keys().filter_map(|s| variables(plan, s, environment)).collect();
        let labels: Vec<(&str, Vec<Value>)> = plan
            .labels
            .iter()
            .map(|(name, values)| (name.as_str(), values.iter().map(|value| (*value).into()).collect()))
            .collect();
        let steps = plan.steps.iter().map(|step| {
            let values = |quantities| {
                let lists = scales.iter().filter_map(|vars| vars.list(quantities).ok());
                lists.flatten().map(|(shown, _)| shown).collect()
            };
            let swept = step.sweep.iter().map(|(name, list)| (name.as_str(), values(list)));
            let records = |phase| names_of_records(phase, step.file_systems.is_some());
            let known = KnownStep {
                step,
                phases: step.phases.iter().flat_map(records).collect(),
                swept: swept.chain(labels.iter().cloned()).collect(),
            };
            (step.id.as_str(), known)
        });
        let variables = plan.scales.values().flat_map(|scale| scale.values.keys().map(String::as_str));
        Known { steps: steps.collect(), variables: variables.collect() }
    }

    /// Are there such records?
    fn check(
        &self,
        place: &str,
        (step, phase, is_sampled): (&str, &str, bool),
        at: &BTreeMap<String, Value>,
        findings: &mut Findings,
    ) -> Option<&KnownStep<'a>> {
        let mut add = |field: &str, what: String, next: String| {
            findings.add(Finding::new(place, Trouble::new(what, next).at(field)));
        };
        let Some(known) = self.steps.get(step) else {
            let all: Vec<&str> = self.steps.keys().copied().collect();
            add("step", format!("there is no step {step}"), format!("name one of: {}", all.join(", ")));
            return None;
        };
        match known.phases.get(phase) {
            Some(true) => {}
            None if phase == ALL_PHASES && is_sampled => {}
            Some(false) => {
                let what = format!("phase {phase} of step {step} is unmeasured and leaves no record");
                add("phase", what, "measure it, or name another one".into());
            }
            None => {
                let all: Vec<&str> = known.phases.keys().map(String::as_str).collect();
                let what = format!("step {step} has no phase {phase}");
                add("phase", what, format!("name one of: {}", all.join(", ")));
            }
        }
        for (name, value) in at {
            match known.swept.get(name.as_str()) {
                None => {
                    let what = format!("step {step} does not sweep {name}");
                    let all: Vec<&str> = known.swept.keys().copied().collect();
                    add("at", what, format!("name one of: {}", all.join(", ")));
                }
                Some(values) if !values.contains(value) => {
                    let what = format!("{name} of step {step} is {value} at no scale");
                    add("at", what, "write it as the sweep does: 4, or \"64K\"".into());
                }
                Some(_) => {}
            }
        }
        Some(known)
    }
}

/// `NAME`, `NAME.PART`, and on several file systems each of them with `.fs1`, `.fs2` and so on.
fn names_of_records(phase: &Phase, on_several: bool) -> Vec<(String, bool)> {
    let measured = !phase.unmeasured;
    let parts = phase.together.iter().map(|part| format!("{}.{}", phase.name, part.name));
    let names: Vec<String> = parts.chain([phase.name.clone()]).collect();
    let each = |name: &String| (1..=FILE_SYSTEMS_NAMED).map(|n| format!("{name}.fs{n}")).collect::<Vec<_>>();
    let of_each = names.iter().filter(|_| on_several).flat_map(each).collect::<Vec<_>>();
    names.into_iter().chain(of_each).map(|name| (name, measured)).collect()
}

fn check_figure(figure: &Figure, known: &Known<'_>, findings: &mut Findings) {
    let place = format!("figure {}", figure.id);
    if figure.series.is_empty() {
        findings.add(Finding::new(&place, Trouble::new("it shows no series", "add [[figures.series]]")));
    }
    if figure.kind == FigureKind::Lines && figure.x.is_empty() {
        findings.add(Finding::new(
            &place,
            Trouble::new("its lines have no x", "name the swept parameter").at("x"),
        ));
    }
    let is_sampled = figure.sampled.is_some();
    if is_sampled && figure.kind != FigureKind::Timeline {
        let trouble = Trouble::new("samples are drawn over time", "make the figure's kind timeline");
        findings.add(Finding::new(&place, trouble.at("sampled")));
    }
    for series in &figure.series {
        let place = format!("{place}, series {}", series.name);
        let step = known.check(&place, (&series.step, &series.phase, is_sampled), &series.at, findings);
        let is_swept = |known: &KnownStep<'_>| known.swept.contains_key(figure.x.as_str());
        if let Some(known) = step.filter(|known| !figure.x.is_empty() && !is_swept(known))
            && figure.kind != FigureKind::Timeline
        {
            let what = format!("step {} does not sweep {}", known.step.id, figure.x);
            findings.add(Finding::new(&place, Trouble::new(what, "take a parameter that it sweeps").at("x")));
        }
    }
}

fn check_table(table: &Table, known: &Known<'_>, findings: &mut Findings) {
    if table.rows.is_empty() && table.kind != TableKind::Outputs {
        let trouble = Trouble::new("it has no rows", "add [[tables.rows]]");
        findings.add(Finding::new(format!("table {}", table.id), trouble));
    }
    for row in &table.rows {
        let place = format!("table {}, row {}", table.id, row.name);
        known.check(&place, (&row.step, &row.phase, false), &row.at, findings);
        for column in row.published.keys().filter(|column| !COLUMNS.contains(&column.as_str())) {
            let trouble = super::expand::unknown(column, &COLUMNS).at("published");
            findings.add(Finding::new(&place, trouble));
        }
        let is_rate = matches!(row.unit, Unit::GBps | Unit::MBps | Unit::MiBps | Unit::Ops | Unit::Iops);
        if table.kind == TableKind::Targets && !is_rate {
            let trouble =
                Trouble::new("of each target only rates are known", "take MB/s, GB/s or IOPS").at("unit");
            findings.add(Finding::new(&place, trouble));
        }
        if row.per.is_some() && table.kind != TableKind::Rates {
            let trouble = Trouble::new("only rates are divided", "make the table's kind rates").at("per");
            findings.add(Finding::new(&place, trouble));
        }
        if let Some(per) = row.per.as_deref().filter(|per| !known.variables.contains(per)) {
            let what = format!("no scale has a variable {per}");
            findings.add(Finding::new(&place, Trouble::new(what, "name one that all scales have").at("per")));
        }
    }
}
