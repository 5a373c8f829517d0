//! The first part of a report: how good the file system is, and what limits it. A sentence or two, then a bar per row.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::group::{Group, OURS};
use super::load::{Family, Load, load_of};
use super::number::{escape, grouped, number, percent};
use super::tables::{interval, peak};
use super::verdict::{Limiter, Row, Verdict, judge};
use crate::limits::{Limits, Measure, Resource};
use crate::plan::schema::{TableKind, TableRow};
use crate::record::{Record, Results, Unit};
use crate::stats::Estimate;
use crate::usage::{DeviceUsage, Usage};

/// Other programs that take more of the processors than this are named.
const QUIET: f64 = 0.2;
/// Rows with a bar; a plan of ours has fewer.
const ROWS_MAX: usize = 60;
/// Cards of each family, so that each has a place.
const CARDS_MAX: usize = 4;
/// Transfers up to this are counted rather than weighed.
const COUNTED_BYTES: f64 = 16_384.0;

/// A row: the best point of a step's phase.
pub struct Judged<'a> {
    pub group: &'a Group<'a>,
    pub name: String,
    pub load: Load,
    pub unit: Unit,
    pub value: Estimate,
    pub verdict: Verdict,
}

macro_rules! put {
    ($out:expr, $($text:tt)*) => { write!($out, $($text)*).expect("writing to a string cannot fail") };
}

/// The rows in order of their families, each with its verdict.
pub fn judged<'a>(results: &Results, groups: &'a [Group<'a>]) -> Vec<Judged<'a>> {
    let mut order: Vec<(&str, &str)> = Vec::new();
    let mut phases: BTreeMap<(&str, &str), Vec<&Group>> = BTreeMap::new();
    // Parts of a phase are in its sum.
    for group in groups.iter().filter(|g| g.is_main && !g.phase.contains('.')) {
        let key = (group.step, group.phase);
        if !phases.contains_key(&key) {
            order.push(key);
        }
        phases.entry(key).or_default().push(group);
    }
    let mut rows: Vec<Judged> = order.iter().filter_map(|key| best(results, &phases[key])).collect();
    rows.sort_by_key(|row| row.load.family);
    rows.truncate(ROWS_MAX);
    rows
}

fn best<'a>(results: &Results, picked: &[&'a Group<'a>]) -> Option<Judged<'a>> {
    let load = load_of(results, picked.first()?)?;
    let unit = unit_of(&load, picked[0].unit);
    let best = peak(picked, unit)?;
    let group = picked.iter().find(|g| g.estimate(unit) == best.best)?;
    // Points differ in their numbers of workers.
    let load = load_of(results, group).unwrap_or(load);
    let verdict = judge(&row_of(group, load), results.limits.as_ref());
    let name = name_of(results, group, picked.len() > 1);
    Some(Judged { group, name, load, unit, value: best.best, verdict })
}

fn unit_of(load: &Load, shown: Unit) -> Unit {
    match load.family {
        Family::Latency => Unit::P50,
        Family::Sync => Unit::Ops,
        Family::Random if load.transfer_bytes <= COUNTED_BYTES => Unit::Iops,
        _ if shown.is_lower_better() && load.transfer_bytes > 0.0 => Unit::MBps,
        _ if shown.is_lower_better() => Unit::Ops,
        _ => shown,
    }
}

/// The plan's own words for a row, with its point where there are several.
fn name_of(results: &Results, group: &Group, many: bool) -> String {
    let mut name = words_of(results, group);
    // Two programs may have rows of one name.
    if group.program != OURS {
        name.push_str(&format!(" ({})", group.program));
    }
    let point = group.point_text();
    if many && !point.is_empty() { format!("{name} · {point}") } else { name }
}

/// The name of a row that a table of rates gives it; a table of directories names points.
pub fn words_of(results: &Results, group: &Group) -> String {
    let tables = results.header.plan.tables.iter().filter(|table| table.kind != TableKind::Directories);
    let is_it = |row: &&TableRow| row.at.is_empty() && (&*row.step, &*row.phase) == (group.step, group.phase);
    let found = tables.flat_map(|table| &table.rows).find(is_it);
    found.map_or_else(|| format!("{} · {}", group.step, group.phase), |row| row.name.clone())
}

/// Medians over the repeats.
pub fn row_of(group: &Group, load: Load) -> Row {
    let per_second = |of: fn(&Record) -> u64| {
        let rate = group.median_of(|r| Some(of(r) as f64 / r.outcome.seconds.max(1e-9)));
        if rate.is_finite() { rate } else { 0.0 }
    };
    let bytes_per_second = per_second(|r| r.outcome.bytes);
    let read = per_second(|r| r.outcome.read_bytes);
    let is_read = load.reads && !load.writes;
    let p50_us = Some(group.median_of(|r| r.outcome.value(Unit::P50))).filter(|us| us.is_finite());
    Row {
        load,
        bytes_per_second,
        // Only mixes tell how much of them was read.
        read_bytes_per_second: if is_read { bytes_per_second } else { read },
        ops_per_second: per_second(|r| r.outcome.ops),
        p50_us,
        usage: usage_of(group),
    }
}

pub fn usage_of(group: &Group) -> Option<Usage> {
    let median = |of: &dyn Fn(&Usage) -> Option<f64>| {
        Some(group.median_of(|r| of(&r.usage?))).filter(|value| value.is_finite())
    };
    let device = |of: fn(&DeviceUsage) -> f64| median(&|usage| usage.device.as_ref().map(of));
    let all = device(|d| d.read_bytes).zip(device(|d| d.write_bytes)).zip(device(|d| d.reads));
    let device = all.zip(device(|d| d.writes)).map(|(((read_bytes, write_bytes), reads), writes)| {
        DeviceUsage { read_bytes, write_bytes, reads, writes }
    });
    Some(Usage { cpu_busy: median(&|usage| Some(usage.cpu_busy))?, device })
}

/// How good it is, and what limits it: two sentences.
pub fn sentences(results: &Results, rows: &[Judged]) -> Vec<String> {
    if rows.is_empty() {
        return vec!["Nothing was measured that could be judged.".into()];
    }
    if results.limits.is_none() {
        return vec![
            "This run did not measure the limits of its machine, so its rows have no percentages of them."
                .into(),
        ];
    }
    // A row that a cache served says nothing of the device, and busy processors say nothing of how good it is.
    let told = |family: Family| {
        let of_it = rows.iter().filter(|r| r.load.family == family && r.verdict.limiter != Limiter::Cache);
        let share = of_it.filter_map(|r| r.verdict.device).max_by(f64::total_cmp)?;
        Some(format!("{} {}", family.noun(), percent(share)))
    };
    let parts: Vec<String> = Family::ALL.into_iter().filter_map(told).collect();
    let good = match parts.is_empty() {
        true => "No row could be held against a limit of this machine.".to_owned(),
        false => format!("The best rows reach, of the device's limit: {}.", parts.join(", ")),
    };
    let count = |limiter: Limiter| rows.iter().filter(|r| r.verdict.limiter == limiter).count();
    let by = [
        (Limiter::Device, "limited by the device"),
        (Limiter::Cpu, "limited by the processors"),
        (Limiter::Network, "limited by the network"),
        (Limiter::Callers, "limited by the latency of one caller"),
        (Limiter::Cache, "served by a cache"),
        (Limiter::Unknown, "below every limit that was measured"),
    ];
    let counted: Vec<String> = by
        .iter()
        .map(|(l, words)| (count(*l), words))
        .filter(|(n, _)| *n > 0)
        .map(|(n, w)| format!("{n} {w}"))
        .collect();
    let mut said = vec![good, format!("Of {} rows: {}.", rows.len(), counted.join(", "))];
    let others = results.limits.as_ref().and_then(|limits| limits.busy_before);
    if let Some(busy) = others.filter(|busy| *busy > QUIET) {
        said.push(format!(
            "Other programs had {} of the processors before the run began, so their work is in each row.",
            percent(busy)
        ));
    }
    said
}

/// `97 % of the processors, 37 % of the device`.
fn share_words(verdict: &Verdict) -> String {
    let (Some(share), Some(of)) = (verdict.share, verdict.of) else { return "–".into() };
    let said = format!("{} of the {}", percent(share), of.title());
    match verdict.device.filter(|_| of != Resource::Device) {
        Some(device) => format!("{said}, {} of the device", percent(device)),
        None => said,
    }
}

fn limit_words(verdict: &Verdict) -> String {
    match verdict.limiter {
        Limiter::Unknown => format!("Limit not known: {}.", verdict.why),
        Limiter::Cache => format!("{}{}.", verdict.why[..1].to_uppercase(), &verdict.why[1..]),
        limiter => format!("Limited by {}: {}.", limiter.words(), verdict.why),
    }
}

/// The machine and its limits, in lines of name and text.
pub fn hardware(results: &Results) -> Vec<(String, String)> {
    let known =
        |name: &str| results.header.system.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let (dir, file_system) = (&results.header.dir, &results.header.file_system);
    let mut lines = vec![("File system".to_owned(), format!("{file_system}, measured in {dir}"))];
    let machine: Vec<String> = ["processors", "memory", "kernel"].into_iter().filter_map(known).collect();
    if !machine.is_empty() {
        let is_virtual = known("virtual machine").is_some_and(|word| word == "yes");
        let tail = if is_virtual { ", a virtual machine" } else { "" };
        lines.push(("Machine".to_owned(), format!("{}{tail}", machine.join(", "))));
    }
    let Some(limits) = &results.limits else { return lines };
    for resource in [Resource::Device, Resource::Cpu, Resource::Network] {
        let values = limit_values(limits, resource);
        let why = limits.why_not(resource).map(|why| format!("not measured: {why}"));
        let said: Vec<String> = values.into_iter().chain(why).collect();
        let title = match resource {
            Resource::Device if !limits.device.is_empty() => {
                format!("Limit of the device, {}", limits.device)
            }
            _ => format!("Limit of the {}", resource.title()),
        };
        if !said.is_empty() {
            lines.push((title, said.join("; ")));
        }
    }
    lines
}

fn limit_values(limits: &Limits, resource: Resource) -> Vec<String> {
    let gb = |value: f64| format!("{} GB/s", number(value / 1e9));
    let ops = |value: f64| grouped(value.round());
    let all: [(Measure, &dyn Fn(f64) -> String); 10] = [
        (Measure::DeviceRead, &|v| format!("reads {}", gb(v))),
        (Measure::DeviceWrite, &|v| format!("writes {}", gb(v))),
        (Measure::DeviceRandomRead, &|v| format!("4 KiB reads {} IOPS", ops(v))),
        (Measure::DeviceRandomWrite, &|v| format!("4 KiB writes {} IOPS", ops(v))),
        (Measure::DeviceLatency, &|v| format!("one read {} µs", number(v))),
        (Measure::DeviceSync, &|v| format!("fsync {}/s", ops(v))),
        (Measure::MemoryCopy, &|v| format!("memory copy {}", gb(v))),
        (Measure::SystemCalls, &|v| format!("{} system calls/s", ops(v))),
        (Measure::NetworkStream, &|v| format!("TCP {}", gb(v))),
        (Measure::NetworkRoundTrip, &|v| format!("round trip {} µs", number(v))),
    ];
    let of_it = all.iter().filter(|(measure, _)| measure.resource() == resource);
    of_it.filter_map(|(measure, words)| Some(words(limits.get(*measure)?))).collect()
}

pub fn html(out: &mut String, results: &Results, rows: &[Judged]) {
    out.push_str("<section class=\"first\" aria-labelledby=\"first\"><h2 id=\"first\">How good is it, and what limits it</h2>");
    let said: Vec<String> = sentences(results, rows).iter().map(|s| escape(s)).collect();
    put!(out, "<p class=\"lead\">{}</p>", said.join(" "));
    out.push_str("<dl class=\"facts hardware\">");
    for (name, text) in hardware(results) {
        put!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&text));
    }
    out.push_str("</dl>\n");
    if results.limits.is_some() {
        bars(out, rows);
    }
    cards(out, rows);
    out.push_str("</section>\n");
}

fn bars(out: &mut String, rows: &[Judged]) {
    for family in Family::ALL {
        let of_it: Vec<&Judged> = rows.iter().filter(|row| row.load.family == family).collect();
        if of_it.is_empty() {
            continue;
        }
        put!(out, "<h3>{}</h3><ul class=\"shares\">\n", family.title());
        for row in of_it {
            let share = share_words(&row.verdict);
            let width = row.verdict.share.unwrap_or(0.0) * 100.0;
            let kind = match row.verdict.limiter {
                Limiter::Device | Limiter::Network => "full",
                Limiter::Cpu => "busy",
                Limiter::Cache => "cache",
                Limiter::Callers | Limiter::Unknown => "below",
            };
            put!(
                out,
                "<li><span class=\"name\">{}</span><span class=\"value\">{} {}</span>\
                 <span class=\"bar\" role=\"img\" aria-label=\"{share}\"><i class=\"{kind}\" style=\"width:{width:.1}%\"></i></span>\
                 <span class=\"share\">{share}</span><span class=\"why\">{}</span></li>\n",
                escape(&row.name),
                number(row.value.median),
                row.unit.words(),
                escape(&limit_words(&row.verdict))
            );
        }
        out.push_str("</ul>\n");
    }
}

/// The rows of each family that say most, as cards.
fn cards(out: &mut String, rows: &[Judged]) {
    if rows.is_empty() {
        return;
    }
    out.push_str("<h3 id=\"short\">In short</h3><p class=\"soft\">The best median of each row.</p><ul class=\"tiles\">\n");
    for family in Family::ALL {
        for row in rows.iter().filter(|row| row.load.family == family).take(CARDS_MAX) {
            let mut more = Vec::new();
            if row.value.low != row.value.high {
                more.push(interval(&row.value));
            }
            more.extend(tail(row));
            if row.verdict.share.is_some() {
                more.push(share_words(&row.verdict));
            }
            put!(
                out,
                "<li><div class=\"name\">{}: {}</div><div class=\"value\">{} <small>{}</small></div><div class=\"more\">{}</div></li>\n",
                family.title(),
                escape(&row.name),
                number(row.value.median),
                row.unit.words(),
                escape(&more.join("; "))
            );
        }
    }
    out.push_str("</ul>\n");
}

/// The tail of latency, where one operation at a time matters.
fn tail(row: &Judged) -> Option<String> {
    if !matches!(row.load.family, Family::Latency | Family::Sync | Family::Random) {
        return None;
    }
    let of = |unit| Some(row.group.estimate(unit).median).filter(|v: &f64| v.is_finite()).map(number);
    Some(format!("median {} µs, p99 {} µs", of(Unit::P50)?, of(Unit::P99)?))
}

/// For the terminal.
pub fn text(results: &Results, rows: &[Judged]) -> String {
    let mut out = String::new();
    for line in sentences(results, rows) {
        put!(out, "{line}\n");
    }
    for (name, text) in hardware(results) {
        put!(out, "{}: {}\n", super::grid::printable(&name), super::grid::printable(&text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{group::groups, sample};
    use super::*;

    #[test]
    fn a_report_begins_with_how_good_it_is_and_a_card_for_each_family() {
        let results = sample::of_plan(crate::plan::load("quick").unwrap(), "min", 4);
        let groups = groups(&results);
        let rows = judged(&results, &groups);
        let said = sentences(&results, &rows);
        assert!(said[0].starts_with("The best rows reach, of the device's limit: streams "), "{said:?}");
        assert!(said[1].starts_with("Of 16 rows: ") && said.len() == 2, "{said:?}");
        let mut page = String::new();
        html(&mut page, &results, &rows);
        for card in ["Random I/O: random 4 KiB read", "Latency: 4 KiB read latency", "fsync: 4 KiB overwrite"]
        {
            assert!(page.contains(card), "{card}");
        }
        assert_eq!(page.matches("class=\"bar\"").count(), 16);
        let mut busy = results.clone();
        if let Some(limits) = &mut busy.limits {
            limits.busy_before = Some(0.9);
        }
        assert!(sentences(&busy, &rows)[2].contains("Other programs had 90 % of the processors"));
        busy.limits = None;
        assert!(sentences(&busy, &rows)[0].contains("did not measure the limits"));
        assert!(sentences(&results, &[])[0].starts_with("Nothing was measured"));
    }
}
