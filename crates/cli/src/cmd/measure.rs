//! Common parts of `stria ost bench` and `stria mdt bench`: a device that may be overwritten, threads that work until a limit, an ext4 to
//! compare with, and the selection of rows.

pub mod device;
pub mod ext4;
pub mod threads;

use bench::stats::{Estimate, estimate};

/// Parses a number of seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
    seconds.ok_or_else(|| "give seconds, from 0.01 to 86400".into())
}

/// The rows whose name contains one of the words in `wanted`, which are separated by commas.
pub fn named<R>(rows: &'static [R], name: fn(&R) -> &str, wanted: &str) -> Vec<&'static R> {
    rows.iter().filter(|row| wanted.split(',').any(|part| name(row).contains(part))).collect()
}

pub fn middle<F>(figures: &[F], of: impl Fn(&F) -> f64) -> f64 {
    estimate(&figures.iter().map(of).collect::<Vec<_>>()).median
}

/// The ratio of each turn to its partner; `None` without pairs.
pub fn ratio_of_pairs(ours: &[f64], others: &[f64]) -> Option<Estimate> {
    let ratios: Vec<f64> = ours.iter().zip(others).map(|(ours, other)| ours / other).collect();
    (!ratios.is_empty()).then(|| estimate(&ratios))
}

pub fn shown_ratio(ratio: Option<Estimate>) -> String {
    ratio.map_or("–".into(), |e| format!("{:.2} ({:.2}–{:.2})", e.median, e.low, e.high))
}
