//! Promised values, measured values and verdicts, as a table.

use std::fmt::Write;

use anyhow::{Result, bail};
use bench::stats::Estimate;
use serde::Deserialize;

use super::stats::{Verdict, verdict};

/// One line of the verdict.
#[derive(Debug, PartialEq)]
pub struct Bar {
    pub what: String,
    pub got: String,
    pub bar: String,
    pub verdict: Verdict,
}

impl Bar {
    /// Higher is better. A bar that was not measured is not met.
    pub fn of_ratio(what: String, ratio: Option<Estimate>, bar: f64) -> Bar {
        let wanted = format!("≥ {bar:.2}");
        let Some(r) = ratio else {
            return Bar { what, got: "not measured".into(), bar: wanted, verdict: Verdict::Unsure };
        };
        let got = format!("{:.2} ({:.2}–{:.2})", r.median, r.low, r.high);
        Bar { what, got, bar: wanted, verdict: verdict(r, bar) }
    }
}

/// An estimate as the benches' JSON has it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl From<Span> for Estimate {
    fn from(Span { median, low, high }: Span) -> Estimate {
        Estimate { median, low, high }
    }
}

pub fn verdicts(bars: &[Bar]) -> String {
    let mut out = String::from("| bar | measured | wanted | verdict |\n|---|---|---|---|\n");
    for b in bars {
        let _ = writeln!(out, "| {} | {} | {} | {} |", b.what, b.got, b.bar, b.verdict.word());
    }
    out
}

/// The set fails if one bar is not met.
pub fn all_met(bars: &[Bar]) -> Result<()> {
    let missed = bars.iter().filter(|b| b.verdict != Verdict::Met).count();
    if missed > 0 {
        bail!("{missed} of {} bars are not met", bars.len());
    }
    Ok(())
}
