//! Statistics of few samples: the median with its interval, and whether two series differ.
//!
//! Nothing here assumes how samples are distributed: rates on shared machines have long tails, and means follow them.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};
use statrs::stats_tests::Alternative;
use statrs::stats_tests::mannwhitneyu::{MannWhitneyUMethod, mannwhitneyu};

/// Error probability of each interval and test here: the complement of a 95 % interval.
pub const ALPHA: f64 = 0.05;
/// Up to so many pairs of samples the distribution of ranks is counted out; beyond, a normal one stands for it.
const COUNTED_PAIRS_MAX: usize = 400;

/// A median and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Estimate {
    const NONE: Estimate = Estimate { median: f64::NAN, low: f64::NAN, high: f64::NAN };

    /// Width of the interval as a part of the median.
    pub fn width(&self) -> f64 {
        (self.high - self.low) / self.median.abs()
    }
}

/// The median with a distribution-free interval: order statistics at quantiles of a binomial(n, 1/2). Fewer than six samples have
/// no such interval of 95 %; then it is their range. NaN without samples.
pub fn estimate(samples: &[f64]) -> Estimate {
    let sorted = sorted(samples);
    match sorted.len() {
        0 => Estimate::NONE,
        n => {
            Estimate { median: median(&sorted), low: sorted[low_rank(n)], high: sorted[n - 1 - low_rank(n)] }
        }
    }
}

/// Of sorted values; NaN of none.
pub fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The largest index `k` with P(fewer than or equal `k` of `n` fair coins) ≤ 2.5 %; 0 if there is none.
fn low_rank(n: usize) -> usize {
    let (mut term, mut below) = (0.5f64.powi(n as i32), 0.0);
    for k in 0..n {
        below += term;
        if below > ALPHA / 2.0 {
            return k.saturating_sub(1);
        }
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    0
}

/// The change of a quantity between two series of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// After ÷ before: the median over all pairs (Hodges and Lehmann, 1963, of logarithms) and its interval.
    pub ratio: Estimate,
    /// Chance that a sample from after is larger than one from before, ties counting half (Vargha and Delaney, 2000). 0.5: no
    /// difference.
    pub superiority: f64,
    /// Chance of ranks at least so unequal if both series came from one distribution (Mann and Whitney, 1947; two-sided).
    pub p: f64,
    /// Are there enough samples that any outcome could be significant? Three against three are not.
    pub could_tell: bool,
}

impl Change {
    pub fn is_significant(&self) -> bool {
        self.p <= ALPHA
    }
}

/// Compares two series of positive samples. `None` if one is empty or has a sample that is not positive and finite.
pub fn change(before: &[f64], after: &[f64]) -> Option<Change> {
    let is_good = |samples: &[f64]| !samples.is_empty() && samples.iter().all(|v| v.is_finite() && *v > 0.0);
    if !is_good(before) || !is_good(after) {
        return None;
    }
    let pairs = before.len() * after.len();
    let method = MannWhitneyUMethod::AsymptoticInclContinuityCorrection;
    let (u, p) = mannwhitneyu(after, before, method, Alternative::TwoSided).ok()?;
    let is_counted = pairs <= COUNTED_PAIRS_MAX && !has_ties(before, after);
    let p = if is_counted { counted_p(u as usize, before.len(), after.len()) } else { p };
    let logs: Vec<f64> = after.iter().flat_map(|a| before.iter().map(move |b| (a / b).ln())).collect();
    let logs = sorted(&logs);
    let at = pair_rank(before.len(), after.len());
    let (low, high) = at.map_or((0, pairs - 1), |at| (at, pairs - 1 - at));
    let ratio = Estimate { median: median(&logs).exp(), low: logs[low].exp(), high: logs[high].exp() };
    Some(Change { ratio, superiority: u / pairs as f64, p, could_tell: at.is_some() })
}

fn has_ties(before: &[f64], after: &[f64]) -> bool {
    let all = sorted(&[before, after].concat());
    all.windows(2).any(|two| two[0] == two[1])
}

/// P of a U as far from its middle as this one or farther. (statrs counts every order one by one, and the wrong ones.)
fn counted_p(u: usize, n: usize, m: usize) -> f64 {
    let ways = rank_sums(n, m);
    let tail: f64 = ways.iter().take(u.min(n * m - u) + 1).sum();
    (2.0 * tail / ways.iter().sum::<f64>()).min(1.0)
}

/// The index of the lower end of the ratio's interval among all pairs in order: the largest `k` with P(U ≤ k) ≤ 2.5 %. `None` if
/// even the smallest U is likelier than that.
fn pair_rank(n: usize, m: usize) -> Option<usize> {
    if n * m > COUNTED_PAIRS_MAX {
        let (pairs, all) = ((n * m) as f64, (n + m + 1) as f64);
        let quantile = Normal::standard().inverse_cdf(ALPHA / 2.0);
        return Some((pairs / 2.0 + quantile * (pairs * all / 12.0).sqrt()).floor().max(0.0) as usize);
    }
    let ways = rank_sums(n, m);
    let total: f64 = ways.iter().sum();
    let mut below = 0.0;
    let mut is_rare = |count: &f64| {
        below += count / total;
        below <= ALPHA / 2.0
    };
    ways.iter().take_while(|count| is_rare(count)).count().checked_sub(1)
}

/// How many of the orders of `n` and `m` samples have each value of U, from 0 to `n * m`: the coefficients of the Gaussian binomial.
fn rank_sums(n: usize, m: usize) -> Vec<f64> {
    let mut ways = vec![0.0; n * m + 1];
    ways[0] = 1.0;
    for i in 1..=m {
        // Times (1 - q^(n+i)), then divided by (1 - q^i), both cut at q^(n*m).
        (n + i..ways.len()).rev().for_each(|at| ways[at] -= ways[at - n - i]);
        (i..ways.len()).for_each(|at| ways[at] += ways[at - i]);
    }
    ways
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Rates as they are: a median of 100 and a long tail.
    fn rates(rng: &mut StdRng, n: usize, factor: f64) -> Vec<f64> {
        let normal = Normal::standard();
        (0..n)
            .map(|_| 100.0 * factor * (0.2 * normal.inverse_cdf(rng.random_range(1e-9..1.0))).exp())
            .collect()
    }

    /// The part of 4,000 rounds in which something holds.
    fn part(mut holds: impl FnMut(&mut StdRng) -> bool) -> f64 {
        let mut rng = StdRng::seed_from_u64(7);
        (0..4000).filter(|_| holds(&mut rng)).count() as f64 / 4000.0
    }

    #[test]
    fn interval_ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: ranks (from 1) of the 95 % interval of a median.
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6)] {
            assert_eq!(low_rank(n) + 1, rank, "n = {n}");
        }
        let e = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!((e.median, e.low, e.high), (5.0, 2.0, 8.0));
        assert_eq!(e.width(), 6.0 / 5.0);
        assert!(estimate(&[]).median.is_nan());
        let few = estimate(&[3.0, 1.0]);
        assert_eq!((few.median, few.low, few.high), (2.0, 1.0, 3.0));
    }

    #[test]
    fn rank_sums_are_those_of_the_tables() {
        assert_eq!(rank_sums(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(rank_sums(1, 3), [1.0; 4]);
        assert_eq!(rank_sums(5, 7).iter().sum::<f64>(), 792.0, "12 over 5");
        // Critical values of U at 5 %, two-sided: significant up to these.
        for (n, m, critical) in
            [(4, 4, Some(0)), (5, 5, Some(2)), (8, 8, Some(13)), (5, 12, Some(11)), (3, 3, None)]
        {
            assert_eq!(pair_rank(n, m), critical, "{n} and {m}");
            assert_eq!(pair_rank(m, n), critical);
        }
    }

    #[test]
    fn an_interval_of_a_median_covers_it_as_often_as_it_says() {
        for n in [6, 9, 15, 30] {
            let covered = part(|rng| {
                let e = estimate(&rates(rng, n, 1.0));
                e.low <= 100.0 && 100.0 <= e.high
            });
            // At least 95 %, and not so wide that it says nothing.
            assert!((0.945..0.985).contains(&covered), "{n} samples: {covered}");
        }
    }

    #[test]
    fn the_test_of_change_errs_as_often_as_it_says_and_finds_what_is_there() {
        for (n, m) in [(4, 4), (5, 9), (15, 15), (25, 30)] {
            let series =
                |rng: &mut StdRng, factor| change(&rates(rng, n, 1.0), &rates(rng, m, factor)).unwrap();
            let errs = part(|rng| series(rng, 1.0).is_significant());
            assert!((0.01..0.06).contains(&errs), "{n} and {m}: {errs}");
            let covers = part(|rng| {
                let ratio = series(rng, 1.5).ratio;
                ratio.low <= 1.5 && 1.5 <= ratio.high
            });
            assert!(covers > 0.94, "{n} and {m}: {covers}");
        }
        let found = part(|rng| {
            let c = change(&rates(rng, 15, 1.0), &rates(rng, 15, 1.3)).unwrap();
            c.is_significant() && c.ratio.low > 1.0 && c.superiority > 0.5
        });
        assert!(found > 0.85, "{found}");
    }

    #[test]
    fn what_cannot_be_told_is_not() {
        let three = change(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]).unwrap();
        assert!(!three.is_significant() && !three.could_tell);
        assert_eq!(three.superiority, 1.0);
        assert!((three.ratio.low - 10.0 / 3.0).abs() < 1e-9 && (three.ratio.high - 30.0).abs() < 1e-9);
        assert_eq!(three.p, 0.1);
        let same = change(&[5.0; 8], &[5.0; 8]).unwrap();
        assert!(!same.is_significant() && same.could_tell);
        assert_eq!((same.superiority, same.ratio.median), (0.5, 1.0));
        for bad in [&[][..], &[0.0], &[-1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(change(bad, &[1.0]), None);
            assert_eq!(change(&[1.0], bad), None);
        }
    }
}
