//! The verdict on ratios of pairs against a bar.

use bench::stats::Estimate;

/// The verdict of the pairs so far on a bar. `lower_is_better` ratios are turned round before they come here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Met,
    Missed,
    Unsure,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "MET",
            Verdict::Missed => "MISSED",
            Verdict::Unsure => "UNSURE",
        }
    }
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
    fn verdicts() {
        let e = |median, low, high| Estimate { median, low, high };
        assert_eq!(verdict(e(0.9, 0.8, 1.0), 0.8), Verdict::Met);
        assert_eq!(verdict(e(0.78, 0.7, 0.85), 0.8), Verdict::Met);
        assert_eq!(verdict(e(0.7, 0.6, 0.85), 0.8), Verdict::Unsure);
        assert_eq!(verdict(e(0.7, 0.6, 0.79), 0.8), Verdict::Missed);
    }
}
