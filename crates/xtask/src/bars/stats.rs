//! Ratios of pairs, their median with a 95 % interval, and the verdict against a bar.

/// What the pairs so far say about a bar. `lower_is_better` ratios are turned round before they come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
    Unsure,
}

/// Median of ratios with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// Distribution-free interval of the median: order statistics at binomial(n, 1/2) quantiles; for fewer than six pairs no
/// 95 % interval exists, and the range is given.
pub fn estimate(ratios: &[f64]) -> Estimate {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 {
        return Estimate { median: f64::NAN, low: f64::NAN, high: f64::NAN };
    }
    let median = match n % 2 {
        1 => sorted[n / 2],
        _ => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    };
    let rank = low_rank(n);
    Estimate { median, low: sorted[rank], high: sorted[n - 1 - rank] }
}

/// The largest index `k` with P(fewer than or equal `k` of `n` fair coins) ≤ 2.5 %; 0 if there is none.
fn low_rank(n: usize) -> usize {
    let (mut term, mut below) = (0.5f64.powi(n as i32), 0.0);
    for k in 0..n {
        below += term;
        if below > 0.025 {
            return k.saturating_sub(1);
        }
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    0
}

/// MET if the interval reaches the bar and the median 0.95 of it; MISSED if wholly below; else UNSURE.
pub fn verdict(e: Estimate, bar: f64) -> Verdict {
    match () {
        _ if e.high >= bar && e.median >= 0.95 * bar => Verdict::Met,
        _ if e.high < bar => Verdict::Missed,
        _ => Verdict::Unsure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics: ranks (from 1) of the 95 % interval of a median.
        for (n, rank) in [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6)] {
            assert_eq!(low_rank(n) + 1, rank, "n = {n}");
        }
        let e = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!((e.median, e.low, e.high), (5.0, 2.0, 8.0));
    }

    #[test]
    fn verdicts() {
        let e = |median, low, high| Estimate { median, low, high };
        assert_eq!(verdict(e(0.9, 0.8, 1.0), 0.8), Verdict::Met);
        assert_eq!(verdict(e(0.78, 0.7, 0.85), 0.8), Verdict::Met);
        assert_eq!(verdict(e(0.7, 0.6, 0.85), 0.8), Verdict::Unsure);
        assert_eq!(verdict(e(0.7, 0.6, 0.79), 0.8), Verdict::Missed);
    }
}
