//! Finds the host, file system or device that is slower than its twins: the one bad memory module of a cluster.
//!
//! bench-U1. A thing is uneven when its rate for each of its workers is below `UNEVEN` of the median of the others. The rule is
//! pure: it knows rates, and neither clocks nor hosts.

use serde::{Deserialize, Serialize};

use crate::record::{HostShare, Outcome, TargetShare};

/// The study's file system with a bad memory module had 80 % of the other's rate. Repeats on one machine differ by less than 10 %.
pub const UNEVEN: f64 = 0.85;

/// A shorter time is no evidence: starting and flushing are most of it.
const SECONDS_MIN: f64 = 0.5;

/// One that is slower than its twins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uneven {
    /// `host h2`, `fs2`.
    pub name: String,
    /// Its rate as a share of the median of the others.
    pub share: f64,
}

impl std::fmt::Display for Uneven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {:.0} % of its twins", self.name, self.share * 100.0)
    }
}

/// The slow ones among things of one kind, given by name and rate, slowest first.
pub fn uneven(rates: &[(String, f64)], threshold: f64) -> Vec<Uneven> {
    let mut sorted: Vec<f64> = rates.iter().map(|(_, rate)| *rate).filter(|rate| rate.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle_of_others = |rate: f64| {
        let own = rate.is_finite().then(|| sorted.partition_point(|other| other.total_cmp(&rate).is_lt()));
        let others = sorted.len() - usize::from(own.is_some());
        // Of an even number the lower of the two in the middle: one quick thing makes no others slow.
        let at = others.checked_sub(1)? / 2;
        // Behind its own place the others are one further.
        sorted.get(at + usize::from(own.is_some_and(|own| own <= at))).copied()
    };
    let mut found: Vec<Uneven> = rates
        .iter()
        .filter_map(|(name, rate)| {
            let share = rate / middle_of_others(*rate)?;
            (share < threshold).then(|| Uneven { name: name.clone(), share })
        })
        .collect();
    found.sort_by(|a, b| a.share.total_cmp(&b.share));
    found
}

/// Name and rate of each host, for each of its workers. Where bytes are moved they count, else operations. None of a short phase.
pub fn of_hosts(outcome: &Outcome) -> Vec<(String, f64)> {
    let each = |h: &HostShare| (format!("host {}", h.host), rate(h.bytes, h.ops, h.workers, h.seconds));
    of_long(outcome, outcome.per_host.iter().map(each).collect())
}

/// The same of each file system, file or device.
pub fn of_targets(outcome: &Outcome) -> Vec<(String, f64)> {
    let each = |t: &TargetShare| (t.target.clone(), rate(t.bytes, t.ops, t.workers, t.seconds));
    of_long(outcome, outcome.per_target.iter().map(each).collect())
}

fn of_long(outcome: &Outcome, rates: Vec<(String, f64)>) -> Vec<(String, f64)> {
    if outcome.seconds < SECONDS_MIN { Vec::new() } else { rates }
}

fn rate(bytes: u64, ops: u64, workers: u32, seconds: f64) -> f64 {
    let amount = if bytes > 0 { bytes } else { ops };
    amount as f64 / f64::from(workers.max(1)) / seconds.max(1e-9)
}

/// The slow hosts, and the slow file systems or devices, of one record.
pub fn of_outcome(outcome: &Outcome) -> Vec<Uneven> {
    [uneven(&of_hosts(outcome), UNEVEN), uneven(&of_targets(outcome), UNEVEN)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rates: &[(&str, f64)]) -> Vec<String> {
        let rates: Vec<_> = rates.iter().map(|(name, rate)| ((*name).to_owned(), *rate)).collect();
        uneven(&rates, UNEVEN).iter().map(Uneven::to_string).collect()
    }

    /// The rule, word by word.
    #[test]
    fn each_is_compared_with_the_median_of_the_others() {
        let mut seed = 7_u64;
        for count in 0..40 {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if seed >> 60 == 0 { f64::NAN } else { (seed >> 58) as f64 + 1.0 }
            };
            let rates: Vec<(String, f64)> = (0..count).map(|n| (n.to_string(), next())).collect();
            let wanted: Vec<(String, f64)> = (0..count)
                .filter_map(|at| {
                    let others =
                        rates.iter().enumerate().filter(|(n, (_, rate))| *n != at && rate.is_finite());
                    let mut others: Vec<f64> = others.map(|(_, (_, rate))| *rate).collect();
                    others.sort_by(f64::total_cmp);
                    let share = rates[at].1 / others.get(others.len().checked_sub(1)? / 2)?;
                    (share < UNEVEN).then(|| (rates[at].0.clone(), share))
                })
                .collect();
            let mut got: Vec<_> =
                uneven(&rates, UNEVEN).into_iter().map(|one| (one.name, one.share)).collect();
            got.sort_by_key(|(name, _)| name.parse::<usize>().ok());
            assert_eq!(got, wanted, "{rates:?}");
        }
    }

    #[test]
    fn the_one_that_is_slower_than_its_twins_is_named() {
        assert_eq!(found(&[("h1", 100.0), ("h2", 41.0)]), ["h2 at 41 % of its twins"]);
        // The study: 500 and 400 MB/s.
        assert_eq!(found(&[("fs1", 500.0), ("fs2", 400.0)]), ["fs2 at 80 % of its twins"]);
        let many = [("h1", 100.0), ("h2", 101.0), ("h3", 60.0), ("h4", 100.0), ("h5", 30.0)];
        assert_eq!(found(&many), ["h5 at 30 % of its twins", "h3 at 60 % of its twins"]);
    }

    #[test]
    fn twins_that_are_alike_and_one_alone_are_even() {
        let none: [String; 0] = [];
        assert_eq!(found(&[("h1", 100.0), ("h2", 86.0)]), none);
        assert_eq!(found(&[("h1", 100.0)]), none);
        assert_eq!(found(&[]), none);
        assert_eq!(found(&[("h1", 0.0), ("h2", 0.0)]), none);
        // One that is faster than all is no fault of the others.
        assert_eq!(found(&[("h1", 100.0), ("h2", 100.0), ("h3", 300.0)]), none);
    }

    #[test]
    fn a_host_with_fewer_workers_is_judged_by_each_of_them() {
        let host = |name: &str, workers, bytes| HostShare {
            host: name.into(),
            workers,
            ops: 9,
            bytes,
            seconds: 2.0,
        };
        let per_host = vec![host("h1", 2, 2000), host("h2", 1, 1000), host("h3", 2, 1000)];
        let said = |seconds| {
            let outcome = Outcome { per_host: per_host.clone(), seconds, ..Outcome::default() };
            of_outcome(&outcome).iter().map(Uneven::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said(2.0), ["host h3 at 50 % of its twins"]);
        assert!(said(0.01).is_empty(), "a short phase is no evidence");
    }
}
