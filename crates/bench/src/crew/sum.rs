//! The sum over the processes of one part: counts are added, times go from the first begin to the last end.

use std::collections::BTreeMap;

use crate::job::Limit;
use crate::record::{HostShare, Latency, Outcome, Stonewall, Timeline, WorkerShare};
use crate::worker::{Buckets, Part, Report};

/// A process's report, and the number of its host.
pub struct HostReport {
    pub host: usize,
    pub report: Report,
}

/// The answers of the processes of one part.
pub struct Sum {
    limit: Limit,
    pub reports: Vec<HostReport>,
    /// When the last process said that it had worked, by the coordinator's clock.
    worked_ns: u64,
    /// The same, where hosts took part: the end of the measured time.
    wall_end_ns: Option<u64>,
}

/// Moves the times of all hosts to the coordinator's clock, as if each host had been released at `go_ns`.
pub fn align(sums: &mut [Sum], go_ns: u64) {
    // bench-H3: a host's own release is its first process's, over all parts.
    let mut released: BTreeMap<usize, u64> = BTreeMap::new();
    for HostReport { host, report } in sums.iter().flat_map(|sum| &sum.reports) {
        let first = released.entry(*host).or_insert(report.go_ns);
        *first = report.go_ns.min(*first);
    }
    for sum in sums {
        for HostReport { host, report } in &mut sum.reports {
            report.shift(released.get(host).copied().unwrap_or(go_ns), go_ns);
        }
        sum.wall_end_ns = Some(sum.worked_ns);
    }
}

impl Sum {
    pub fn new(limit: Limit) -> Sum {
        Sum { limit, reports: Vec::new(), worked_ns: 0, wall_end_ns: None }
    }

    pub fn worked(&mut self, at_ns: u64) {
        self.worked_ns = self.worked_ns.max(at_ns);
    }

    /// The whole. `names` has the name of a host, or `None` for this machine.
    pub fn outcome(self, names: &dyn Fn(usize) -> Option<String>) -> Outcome {
        let per_host = per_host(&self.reports, names);
        let wall_end_ns = self.wall_end_ns;
        let reports = self.reports.into_iter().map(|one| one.report).collect();
        let mut outcome = outcome_of(&self.limit, reports, wall_end_ns);
        outcome.per_host = per_host;
        outcome
    }
}

/// Each host's own part, over its own time.
fn per_host(reports: &[HostReport], names: &dyn Fn(usize) -> Option<String>) -> Vec<HostShare> {
    let mut hosts: BTreeMap<usize, (HostShare, u64, u64)> = BTreeMap::new();
    for HostReport { host, report } in reports {
        let Some(name) = names(*host) else { continue };
        let none = HostShare { host: name, workers: 0, ops: 0, bytes: 0, seconds: 0.0 };
        let (share, from, to) = hosts.entry(*host).or_insert((none, u64::MAX, 0));
        for part in &report.workers {
            share.workers += 1;
            share.ops += part.ops;
            share.bytes += part.bytes;
            (*from, *to) = (part.warm_ns.min(*from), part.end_ns.max(*to));
        }
        share.seconds = to.saturating_sub(*from) as f64 / 1e9;
    }
    hosts.into_values().map(|(share, _, _)| share).collect()
}

/// Of one part, with the coordinator's end of it if hosts took part.
fn outcome_of(limit: &Limit, reports: Vec<Report>, wall_end_ns: Option<u64>) -> Outcome {
    let mut sum = Report::default();
    let mut latency: BTreeMap<String, _> = BTreeMap::new();
    for report in reports {
        sum.workers.extend(report.workers);
        sum.checked += report.checked;
        sum.cpu_seconds += report.cpu_seconds;
        sum.timeline.add(&report.timeline);
        for (what, part) in report.latency {
            latency.entry(what).or_insert_with(Latency::default).add(&part);
        }
    }
    sum.workers.sort_by_key(|part| part.worker);
    let parts = &sum.workers;
    let begin_ns = parts.iter().map(|p| p.begin_ns).min().unwrap_or(0);
    let warm_ns = parts.iter().map(|p| p.warm_ns).min().unwrap_or(0);
    let first_ns = parts.iter().map(|p| p.end_ns).min().unwrap_or(0);
    let last_ns = parts.iter().map(|p| p.end_ns).max().unwrap_or(0);
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let total = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
    let (ops, bytes, late) = (total(|p| p.ops), total(|p| p.bytes), total(|p| p.late));
    let mut extra = BTreeMap::new();
    if limit.pace.is_some() && ops > 0 {
        extra.insert("late_share".to_owned(), late as f64 / ops as f64);
    }
    extra.extend(stages(parts).into_iter().flatten());
    // bench-C3. The difference is what orders and answers took on their way.
    let end_ns = wall_end_ns.map_or(last_ns, |wall| wall.max(last_ns));
    if wall_end_ns.is_some() {
        extra.insert("coordination_seconds".to_owned(), seconds(last_ns, end_ns));
    }
    let share = |p: &Part| WorkerShare {
        ops: p.ops,
        bytes: p.bytes,
        seconds: seconds(p.warm_ns, p.end_ns),
        done: p.done,
    };
    Outcome {
        // A phase shorter than a clock tick cannot be divided by.
        seconds: seconds(warm_ns, end_ns).max(1e-9),
        first_done: seconds(begin_ns, first_ns),
        last_done: seconds(begin_ns, last_ns),
        ops,
        bytes,
        read_bytes: total(|p| p.read_bytes),
        stonewall: (parts.len() > 1).then(|| {
            let wall = stonewall(&sum.timeline, warm_ns, first_ns, last_ns);
            // The timeline counts an operation when it ends, even if it began within the warm-up.
            Stonewall { ops: wall.ops.min(ops as f64), bytes: wall.bytes.min(bytes as f64), ..wall }
        }),
        per_worker: parts.iter().map(share).collect(),
        per_target: Vec::new(),
        per_host: Vec::new(),
        uneven: Vec::new(),
        latency,
        timeline: (!sum.timeline.counts.is_empty()).then(|| Timeline {
            width_seconds: sum.timeline.width_ns as f64 / 1e9,
            ops: sum.timeline.counts.iter().map(|c| c.0).collect(),
            bytes: sum.timeline.counts.iter().map(|c| c.1).collect(),
            begin_seconds: sum.timeline.begin_ns as f64 / 1e9,
        }),
        checked: sum.checked,
        cpu_seconds: sum.cpu_seconds,
        extra,
    }
}

/// Opening, moving (with the flush) and closing of files: each from the first worker's begin of it to the last one's end, as IOR
/// counts. They overlap where workers are not equally far.
fn stages(parts: &[Part]) -> Option<[(String, f64); 3]> {
    let is_there = !parts.is_empty() && parts.iter().all(|p| p.opened_ns > 0 && p.moved_ns > 0);
    let stage = |name: &str, from: fn(&Part) -> u64, to: fn(&Part) -> u64| {
        let first = parts.iter().map(from).min().unwrap_or(0);
        let last = parts.iter().map(to).max().unwrap_or(0);
        (format!("{name}_seconds"), last.saturating_sub(first) as f64 / 1e9)
    };
    is_there.then(|| {
        [
            stage("open", |p| p.begin_ns, |p| p.opened_ns),
            stage("access", |p| p.opened_ns, |p| p.moved_ns),
            stage("close", |p| p.moved_ns, |p| p.end_ns),
        ]
    })
}

/// Operations and bytes from the end of the warm-up until the first worker was done; buckets at the borders count in proportion.
pub(super) fn stonewall(timeline: &Buckets, from_ns: u64, to_ns: u64, last_ns: u64) -> Stonewall {
    let mut wall = Stonewall { seconds: to_ns.saturating_sub(from_ns) as f64 / 1e9, ops: 0.0, bytes: 0.0 };
    for (i, (ops, bytes)) in timeline.counts.iter().enumerate() {
        let begin = timeline.begin_ns + i as u64 * timeline.width_ns;
        // The last one is as wide as there was work.
        let end = (begin + timeline.width_ns).min(last_ns).max(begin + 1);
        let inside = end.min(to_ns).saturating_sub(begin.max(from_ns));
        let share = inside as f64 / (end - begin) as f64;
        wall.ops += *ops as f64 * share;
        wall.bytes += *bytes as f64 * share;
    }
    wall
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// One worker that begins `begin` after its host's release and works for `seconds`, on a host whose clock says `clock`.
    fn report(host: usize, clock: u64, begin: u64, took: u64) -> HostReport {
        let at = |ns: u64| clock + ns;
        let part = Part {
            worker: host as u32,
            begin_ns: at(begin),
            opened_ns: at(begin),
            moved_ns: at(begin + took),
            warm_ns: at(begin),
            end_ns: at(begin + took),
            ops: 10,
            bytes: 1000,
            ..Part::default()
        };
        let timeline = Buckets { begin_ns: at(begin), width_ns: SECOND, counts: vec![(10, 1000)] };
        HostReport {
            host,
            report: Report { workers: vec![part], timeline, go_ns: clock, ..Report::default() },
        }
    }

    #[test]
    fn clocks_of_hosts_that_differ_by_years_change_nothing() {
        let years = 40_000_000 * SECOND;
        let of = |clocks: [u64; 2]| {
            let mut sum = Sum::new(Limit::default());
            sum.reports =
                vec![report(0, clocks[0], 0, 2 * SECOND), report(1, clocks[1], SECOND / 2, 3 * SECOND)];
            let go = 77 * SECOND;
            sum.worked(go + 2 * SECOND);
            sum.worked(go + 4 * SECOND);
            let mut sums = [sum];
            align(&mut sums, go);
            let [sum] = sums;
            sum.outcome(&|host| Some(format!("h{}", host + 1)))
        };
        let (same, other) = (of([5, 5]), of([years, 3]));
        assert_eq!(same, other);
        // From the release to the last answer; the hosts' own times beside it.
        assert_eq!((same.seconds, same.bytes, same.last_done, same.first_done), (4.0, 2000, 3.5, 2.0));
        assert_eq!(same.extra["coordination_seconds"], 0.5);
        let hosts: Vec<_> = same.per_host.iter().map(|h| (h.host.as_str(), h.workers, h.seconds)).collect();
        assert_eq!(hosts, [("h1", 1, 2.0), ("h2", 1, 3.0)]);
        assert_eq!(same.timeline.unwrap().begin_seconds, 77.0);
    }

    #[test]
    fn workers_of_this_machine_keep_their_own_times() {
        let mut sum = Sum::new(Limit::default());
        sum.reports = vec![report(0, 5, 0, 2 * SECOND), report(0, 5, 0, SECOND)];
        sum.worked(99 * SECOND);
        let outcome = sum.outcome(&|_| None);
        assert_eq!((outcome.seconds, outcome.per_host.len()), (2.0, 0));
        assert!(!outcome.extra.contains_key("coordination_seconds"));
    }
}
