//! What one row of one measurement came to.

use serde::Serialize;

use super::kind::Kind;
use super::workers::Done;
use crate::cache::CacheState;
use crate::pattern::Checked;

/// One measurement of one row.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub kind: Kind,
    /// In the row's unit.
    pub value: f64,
    pub seconds: f64,
    pub ops: u64,
    pub bytes: u64,
    pub checked: Checked,
    /// Microseconds per operation, where each was timed.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub cache: CacheState,
}

impl Sample {
    pub(crate) fn new(kind: Kind, done: &Done, seconds: f64, cache: CacheState) -> Sample {
        let percentile =
            |q: f64| (!done.latency.is_empty()).then(|| done.latency.value_at_quantile(q) as f64 / 1e3);
        let (p50_us, p99_us) = (percentile(0.5), percentile(0.99));
        let value = match kind.unit() {
            "MiB/s" => done.bytes as f64 / f64::from(1 << 20) / seconds,
            "us" => p50_us.unwrap_or(f64::NAN),
            _ => done.ops as f64 / seconds,
        };
        Sample {
            kind,
            value,
            seconds,
            ops: done.ops,
            bytes: done.bytes,
            checked: done.checked,
            p50_us,
            p99_us,
            cache,
        }
    }
}
