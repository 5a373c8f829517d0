//! Remarks on a result, in sentences: rates that fall when load is added, and programs that disagree about the same work.
//!
//! bench-RM1. The rules depend on their arguments alone, and name a cause only where the record has a number for it.

use super::first::{row_of, usage_of, words_of};
use super::group::{Group, OURS, phase_of, quantity};
use super::load::{Load, load_of};
use super::number::{number, percent};
use super::verdict::{Limiter, judge};
use crate::job::{Job, Work};
use crate::plan::schema::FigureKind;
use crate::record::{Results, Unit};
use crate::stats::{Estimate, estimate};

/// A fall below this share of the point before is named where repeats show that it is no chance.
const FALL: f64 = 0.85;
/// The same where there is one sample of each.
const FALL_OF_ONE: f64 = 0.7;
/// Two programs that do the same work differ by their own costs up to this factor.
const APART: f64 = 1.5;
/// Processors that are so busy share their time among the workers.
const BUSY: f64 = 0.85;
/// Opening and closing weigh in rows that are shorter.
const SHORT_SECONDS: f64 = 0.25;
/// Latencies that differ by less say nothing.
const SLOWER: f64 = 1.3;
/// Remarks of one page.
const REMARKS_MAX: usize = 12;

/// One side of a remark.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// `threads 2`, or `fio`.
    pub label: String,
    pub value: Estimate,
    pub repeats: usize,
    pub seconds: f64,
    pub p50_us: Option<f64>,
    pub cpu_busy: Option<f64>,
    /// Bytes that the row's files have; 0 if it is not known.
    pub footprint_bytes: f64,
    pub is_cached: bool,
}

/// All remarks on a result.
pub fn remarks(results: &Results, groups: &[Group]) -> Vec<String> {
    let mut all = dips(results, groups);
    all.extend(disagreements(results, groups));
    all.truncate(REMARKS_MAX);
    all
}

/// Over the sweeps that the plan draws.
fn dips(results: &Results, groups: &[Group]) -> Vec<String> {
    let figures =
        results.header.plan.figures.iter().filter(|f| f.kind == FigureKind::Lines && !f.x.is_empty());
    let mut said = Vec::new();
    for figure in figures.filter(|figure| !figure.unit.is_lower_better()) {
        for series in &figure.series {
            let mut picked = super::group::select(groups, &series.step, &series.phase, &series.at);
            let x = |group: &Group| group.point.get(&figure.x).and_then(quantity).unwrap_or(f64::NAN);
            picked.retain(|group| x(group).is_finite());
            picked.sort_by(|a, b| x(a).total_cmp(&x(b)));
            let sides: Vec<Side> = picked
                .iter()
                .map(|group| {
                    side(results, group, figure.unit, format!("{} {}", figure.x, number_of(x(group))))
                })
                .collect();
            if let Some((from, to)) = dip(&sides) {
                let name = format!("{}, {}", figure.title, series.name);
                let text = dip_text(&name, figure.unit, from, to);
                if !said.contains(&text) {
                    said.push(text);
                }
            }
        }
    }
    said
}

fn number_of(x: f64) -> String {
    super::number::tick(x)
}

fn side(results: &Results, group: &Group, unit: Unit, label: String) -> Side {
    let samples = group.samples(unit);
    let load = load_of(results, group);
    let verdict = load.map(|load| judge(&row_of(group, load), results.limits.as_ref()));
    let p50 = group.median_of(|r| r.outcome.value(Unit::P50));
    Side {
        label,
        value: estimate(&samples),
        repeats: samples.len(),
        seconds: group.median_of(|r| Some(r.outcome.seconds)),
        p50_us: Some(p50).filter(|us| us.is_finite()),
        cpu_busy: usage_of(group).map(|usage| usage.cpu_busy),
        footprint_bytes: footprint(group),
        is_cached: verdict.is_some_and(|verdict| verdict.limiter == Limiter::Cache),
    }
}

fn footprint(group: &Group) -> f64 {
    let job = group.records.first().and_then(|r| serde_json::from_str::<Job>(&r.command).ok());
    match job.map(|job| (f64::from(job.workers), job.work)) {
        Some((workers, Work::Data(data))) => data.block_bytes as f64 * data.segments as f64 * workers,
        _ => 0.0,
    }
}

/// The steepest fall from one point to the next, if it is no chance.
pub fn dip(points: &[Side]) -> Option<(&Side, &Side)> {
    let steps = points.windows(2).map(|two| (&two[0], &two[1]));
    let share = |(from, to): &(&Side, &Side)| to.value.median / from.value.median;
    let is_one = |(from, to): &(&Side, &Side)| from.repeats < 2 || to.repeats < 2;
    let is_fall = |pair: &(&Side, &Side)| match is_one(pair) {
        true => share(pair) < FALL_OF_ONE,
        false => share(pair) < FALL && pair.1.value.high < pair.0.value.low,
    };
    steps.filter(is_fall).min_by(|a, b| share(a).total_cmp(&share(b)))
}

pub fn dip_text(name: &str, unit: Unit, from: &Side, to: &Side) -> String {
    let (high, low) = (number(from.value.median), number(to.value.median));
    let unit = unit.words();
    format!(
        "{name}: the rate falls from {high} {unit} at {} to {low} {unit} at {}, {} of it. {}",
        from.label,
        to.label,
        percent(to.value.median / from.value.median),
        dip_cause(from, to)
    )
}

/// The cause of a fall, as far as the record tells.
pub fn dip_cause(from: &Side, to: &Side) -> String {
    let slower = from
        .p50_us
        .zip(to.p50_us)
        .filter(|(a, b)| b / a > SLOWER)
        .map(|(a, b)| format!(" An operation takes {} µs in place of {} µs.", number(b), number(a)));
    let slower = slower.unwrap_or_default();
    if from.is_cached && !to.is_cached {
        return format!(
            "At {} a cache served the row, and at {} the device did.{slower}",
            from.label, to.label
        );
    }
    if let Some(busy) = to.cpu_busy.filter(|busy| *busy >= BUSY) {
        return format!(
            "The processors are {} busy at {}, so workers, servers and kernel share them.{slower}",
            percent(busy),
            to.label
        );
    }
    let grown = to.footprint_bytes / from.footprint_bytes;
    let more = match grown > SLOWER && grown.is_finite() {
        true => format!(
            " The files have {} MiB at {} and {} MiB at {}, so a cache below the mount may hold the smaller ones only.",
            number(from.footprint_bytes / f64::from(1 << 20)),
            from.label,
            number(to.footprint_bytes / f64::from(1 << 20)),
            to.label
        ),
        false => String::new(),
    };
    let busy = match to.cpu_busy {
        Some(busy) => format!(" The processors were {} busy.", percent(busy)),
        None => " The use of processors was not recorded.".into(),
    };
    format!(
        "The cause is not known from this run.{slower}{busy}{more} Run the two points alone, and watch `stria top` and the device meanwhile."
    )
}

/// The same work by two programs: in one phase in turn, or in phases of one name in two steps.
fn disagreements(results: &Results, groups: &[Group]) -> Vec<String> {
    let mut said = Vec::new();
    let loads: Vec<Option<Load>> = groups.iter().map(|group| load_of(results, group)).collect();
    for (ours, load) in groups.iter().zip(&loads).filter(|(g, l)| g.program == OURS && l.is_some()) {
        let is_same = |(theirs, other): &(&Group, &Option<Load>)| {
            theirs.program != OURS
                && theirs.point == ours.point
                && *other == load
                && is_same_work(results, ours, theirs)
        };
        for (theirs, _) in groups.iter().zip(&loads).filter(is_same) {
            let unit = ours.unit;
            let a = side(results, ours, unit, "our workers".into());
            let b = side(results, theirs, unit, theirs.program.to_owned());
            if let Some(text) = disagreement(&title_of(results, ours, theirs), unit, &a, &b) {
                said.push(text);
            }
        }
    }
    said
}

/// Phases of one name whose steps say the same of data and names: one step, or one for each program.
fn is_same_work(results: &Results, ours: &Group, theirs: &Group) -> bool {
    let step = |group: &Group| results.header.plan.steps.iter().find(|step| step.id == group.step);
    let phase = |group: &Group| phase_of(results, group.step, group.phase);
    let is_same = || {
        let (a, b) = (step(ours)?, step(theirs)?);
        let (p, q) = (phase(ours)?, phase(theirs)?);
        Some(a.data == b.data && a.names == b.names && p.data == q.data && p.names == q.names)
    };
    ours.phase == theirs.phase && (ours.step == theirs.step || is_same().unwrap_or(false))
}

fn title_of(results: &Results, ours: &Group, theirs: &Group) -> String {
    // The plan's tables name the rows of one of the two.
    let names = [words_of(results, theirs), words_of(results, ours)];
    let name = names.iter().find(|name| !name.contains(" · ")).unwrap_or(&names[1]);
    let point = ours.point_text();
    if point.is_empty() { name.clone() } else { format!("{name}, {point}") }
}

/// A sentence where two programs differ by more than their own costs explain.
pub fn disagreement(name: &str, unit: Unit, ours: &Side, theirs: &Side) -> Option<String> {
    let ratio = ours.value.median / theirs.value.median;
    let (fast, slow) = if ratio >= 1.0 { (ours, theirs) } else { (theirs, ours) };
    let times = fast.value.median / slow.value.median;
    if !times.is_finite() || times < APART {
        return None;
    }
    let unit = unit.words();
    Some(format!(
        "{name}: {} and {} disagree, {} {unit} against {} {unit}, {} times as much. {}",
        fast.label,
        slow.label,
        number(fast.value.median),
        number(slow.value.median),
        number(times),
        disagreement_cause(fast, slow)
    ))
}

/// Why two programs disagree, as far as the record tells.
pub fn disagreement_cause(fast: &Side, slow: &Side) -> String {
    if fast.is_cached && !slow.is_cached {
        return format!("A cache served {}, and the device served {}.", fast.label, slow.label);
    }
    let short = fast.seconds.min(slow.seconds);
    if short < SHORT_SECONDS {
        return format!(
            "A row lasts {} s only, so the opening and closing of files weigh in it: give it more to do, with larger files.",
            number(short)
        );
    }
    let overlap = slow.value.high >= fast.value.low;
    if overlap && fast.repeats > 1 && slow.repeats > 1 {
        return "Their repeats overlap, so the difference may be chance: give more repeats.".into();
    }
    // Processors that were as busy for the fast one do not explain the slow one.
    let is_other = |busy: f64| fast.cpu_busy.is_none_or(|other| other < busy - 0.1);
    if let Some(busy) = slow.cpu_busy.filter(|busy| *busy >= BUSY && is_other(*busy)) {
        return format!("The processors were {} busy while {} ran.", percent(busy), slow.label);
    }
    "The cause is not known from this run: compare the exact commands below, and run both in turn with `stria bench run truth`.".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(label: &str, values: &[f64]) -> Side {
        Side {
            label: label.into(),
            value: estimate(values),
            repeats: values.len(),
            seconds: 2.0,
            p50_us: None,
            cpu_busy: None,
            footprint_bytes: 0.0,
            is_cached: false,
        }
    }

    /// Random reads of pixstor-nvme at one thread and at two.
    #[test]
    fn a_fall_from_one_thread_to_two_is_named_with_what_is_known_of_its_cause() {
        let one = side("threads 1", &[62e3, 63e3, 64e3]);
        let two = side("threads 2", &[27e3, 28e3, 29e3]);
        let four = side("threads 4", &[27.5e3, 28.5e3, 29.5e3]);
        let sides = [one.clone(), two.clone(), four];
        let (from, to) = dip(&sides).unwrap();
        let text = dip_text("Random 4 KiB, read", Unit::Iops, from, to);
        assert!(
            text.starts_with("Random 4 KiB, read: the rate falls from 63,000 IOPS at threads 1 to 28,000 IOPS at threads 2, 44 % of it."),
            "{text}"
        );
        assert!(
            text.contains("The cause is not known from this run.") && text.contains("stria top"),
            "{text}"
        );
        let busy = Side { cpu_busy: Some(0.98), p50_us: Some(1100.0), ..two.clone() };
        let alone = Side { p50_us: Some(240.0), ..one.clone() };
        let cause = dip_cause(&alone, &busy);
        assert_eq!(
            cause,
            "The processors are 98 % busy at threads 2, so workers, servers and kernel share them. An operation takes 1,100 µs in \
             place of 240 µs."
        );
        let cached = Side { is_cached: true, ..one.clone() };
        assert!(dip_cause(&cached, &two).contains("a cache served the row"));
        let (small, large) = (Side { footprint_bytes: 128e6, ..one }, Side { footprint_bytes: 256e6, ..two });
        assert!(dip_cause(&small, &large).contains("a cache below the mount may hold the smaller ones only"));
    }

    #[test]
    fn a_fall_that_may_be_chance_is_not_named() {
        let points = |a: &[f64], b: &[f64]| [side("threads 1", a), side("threads 2", b)];
        let table: [(&[f64], &[f64], bool); 6] = [
            (&[60.0, 62.0, 64.0], &[28.0, 29.0, 30.0], true),
            (&[60.0, 62.0, 64.0], &[40.0, 50.0, 61.0], false),
            (&[60.0, 62.0, 64.0], &[57.0, 58.0, 59.0], false),
            (&[60.0], &[50.0], false),
            (&[60.0], &[30.0], true),
            (&[28.0, 29.0], &[60.0, 61.0], false),
        ];
        for (one, two, wanted) in table {
            assert_eq!(dip(&points(one, two)).is_some(), wanted, "{one:?} {two:?}");
        }
    }

    /// Work of N-N files is not that of one file, though transfers and workers are the same.
    #[test]
    fn only_the_same_work_is_compared() {
        let results = super::super::sample::of_plan(crate::plan::load("pixstor-nvme").unwrap(), "small", 1);
        let groups = super::super::group::groups(&results);
        let find =
            |step: &str, phase: &str| groups.iter().find(|g| (g.step, g.phase) == (step, phase)).unwrap();
        let ours = find("nn-sequential", "read");
        assert!(is_same_work(&results, ours, find("nn-sequential-iozone", "read")));
        assert!(!is_same_work(&results, ours, find("nn-sequential-iozone", "write")));
        assert!(!is_same_work(&results, ours, find("n1-sequential-ior", "read")));
    }

    /// Reads of vss2249p by our workers and by fio.
    #[test]
    fn programs_that_disagree_are_named_with_what_is_known_of_the_cause() {
        let ours = side("our workers", &[1.0, 1.1, 1.2]);
        let fio = side("fio", &[2.9, 3.0, 3.1]);
        let text = disagreement("read 64k", Unit::GBps, &ours, &fio).unwrap();
        let begin =
            "read 64k: fio and our workers disagree, 3.00 GB/s against 1.10 GB/s, 2.73 times as much.";
        assert!(text.starts_with(begin) && text.contains("not known from this run"), "{text}");
        let short = Side { seconds: 0.05, ..fio.clone() };
        assert!(disagreement_cause(&short, &ours).contains("A row lasts 0.05 s only"));
        let cached = Side { is_cached: true, ..fio.clone() };
        assert_eq!(
            disagreement_cause(&cached, &ours),
            "A cache served fio, and the device served our workers."
        );
        let busy = Side { cpu_busy: Some(0.99), ..ours.clone() };
        let both = Side { cpu_busy: Some(0.98), ..fio.clone() };
        assert!(disagreement_cause(&both, &busy).contains("not known from this run"));
        assert!(disagreement_cause(&fio, &busy).contains("99 % busy while our workers ran"));
        let wide = side("fio", &[1.15, 3.0, 3.1]);
        assert!(disagreement_cause(&wide, &ours).contains("may be chance"));
        assert_eq!(disagreement("read 64k", Unit::GBps, &ours, &side("fio", &[1.3])), None);
    }
}
