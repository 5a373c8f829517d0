//! The verdict on a row: how near it comes to a limit of this machine, and which limit that is.
//!
//! bench-V1. `judge` depends on its arguments alone.
//! bench-V2. A share is never above 1: a row that is faster than the device was served by a cache, and says so.

use serde::Serialize;

use super::load::{Family, Load};
use super::number::{number, percent};
use crate::limits::{Limits, Measure, Resource};
use crate::usage::Usage;

/// From this share of its limit on, a device or network limits the row: its last tenths are lost between transfers.
const FULL: f64 = 0.75;
/// Processors that are so busy have no time left; in lower shares one of them may be full.
const BUSY: f64 = 0.85;
/// Rates above the device's limit by more than this are no noise of the measurement.
const ABOVE: f64 = 1.15;
/// Flushes vary more, and no cache of this machine may take them.
const ABOVE_OF_FLUSHES: f64 = 2.0;
/// A read of which the device read less than this share came from a cache.
const MISSED: f64 = 0.25;

/// The measured values of a row: medians over its repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    pub load: Load,
    pub bytes_per_second: f64,
    /// Of those bytes.
    pub read_bytes_per_second: f64,
    pub ops_per_second: f64,
    pub p50_us: Option<f64>,
    pub usage: Option<Usage>,
}

/// The cause that keeps a row from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limiter {
    Device,
    Cpu,
    Network,
    /// Each caller waits for its own operation; more of them would do more.
    Callers,
    /// No limit of the device holds: a cache served the row.
    Cache,
    Unknown,
}

impl Limiter {
    pub fn words(self) -> &'static str {
        match self {
            Limiter::Device => "the device",
            Limiter::Cpu => "the processors",
            Limiter::Network => "the network",
            Limiter::Callers => "the latency of one caller",
            Limiter::Cache => "a cache",
            Limiter::Unknown => "not known",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub limiter: Limiter,
    /// 0 to 1, of the limit of `of`. `None`: no limit was measured that the row could reach.
    pub share: Option<f64>,
    pub of: Option<Resource>,
    /// The share of the device, whichever limits it; 0 to 1.
    pub device: Option<f64>,
    /// One sentence.
    pub why: String,
}

/// The shares of a row in each limit; not bounded.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
struct Shares {
    device: Option<f64>,
    cpu: Option<f64>,
    network: Option<f64>,
}

pub fn judge(row: &Row, limits: Option<&Limits>) -> Verdict {
    let Some(limits) = limits else {
        let why = "this run did not measure the limits of its machine".into();
        return Verdict { limiter: Limiter::Unknown, share: None, of: None, device: None, why };
    };
    let shares = Shares {
        device: device_share(row, limits),
        cpu: row.usage.map(|usage| usage.cpu_busy),
        network: limits.get(Measure::NetworkStream).map(|most| row.bytes_per_second / most),
    };
    let of_device = shares.device.map(|share| share.min(1.0));
    if let Some(why) = served_by_cache(row, shares.device, limits) {
        let of = of_device.map(|_| Resource::Device);
        return Verdict { limiter: Limiter::Cache, share: of_device, of, device: of_device, why };
    }
    let reached = |limiter, of: Resource, share: f64, why: String| {
        Some(Verdict { limiter, share: Some(share.min(1.0)), of: Some(of), device: of_device, why })
    };
    let device = shares.device.filter(|share| *share >= FULL).and_then(|share| {
        let why = format!("it does {} of what the device does alone", percent(share.min(1.0)));
        reached(Limiter::Device, Resource::Device, share, why)
    });
    let network = shares.network.filter(|share| *share >= FULL).and_then(|share| {
        let why = format!("it moves {} of what the network moves alone", percent(share.min(1.0)));
        reached(Limiter::Network, Resource::Network, share, why)
    });
    let cpu = shares.cpu.filter(|share| *share >= BUSY).and_then(|share| {
        let why = format!("the processors were {} busy with all that ran on this machine", percent(share));
        reached(Limiter::Cpu, Resource::Cpu, share, why)
    });
    // The device first: a row that has all of it would gain nothing by more processors.
    device.or(network).or(cpu).unwrap_or_else(|| below(row, limits, &shares))
}

/// The share of the device: of its latency for one caller, of its rates else. The bytes that the device really moved count where they are more.
fn device_share(row: &Row, limits: &Limits) -> Option<f64> {
    let Load { family, reads, writes, .. } = row.load;
    let get = |measure| limits.get(measure);
    match family {
        Family::Latency if reads => Some(get(Measure::DeviceLatency)? / row.p50_us.filter(|us| *us > 0.0)?),
        Family::Sync if row.load.in_flight <= 1.0 => Some(row.ops_per_second / get(Measure::DeviceSync)?),
        Family::Names => moved_share(row, limits),
        _ => {
            let read_part = if row.bytes_per_second > 0.0 {
                row.read_bytes_per_second / row.bytes_per_second
            } else {
                f64::from(u8::from(reads))
            };
            let part = |share: f64, stream, random| -> Option<f64> {
                if share == 0.0 {
                    return Some(0.0);
                }
                let bytes = row.bytes_per_second * share / get(stream)?;
                let ops = row.ops_per_second * share / get(random)?;
                // In sequence a device joins transfers; at random places each one counts.
                Some(if family == Family::Stream { bytes } else { bytes.max(ops) })
            };
            let read_part = if reads && writes { read_part } else { f64::from(u8::from(reads)) };
            let own = part(read_part, Measure::DeviceRead, Measure::DeviceRandomRead)?
                + part(1.0 - read_part, Measure::DeviceWrite, Measure::DeviceRandomWrite)?;
            let moved = if writes { moved_share(row, limits) } else { None };
            Some(own.max(moved.unwrap_or(0.0).min(1.0)))
        }
    }
}

/// The device's own counters against its limits: journals and copies count.
fn moved_share(row: &Row, limits: &Limits) -> Option<f64> {
    let moved = row.usage?.device?;
    let read = (moved.read_bytes / limits.get(Measure::DeviceRead)?)
        .max(moved.reads / limits.get(Measure::DeviceRandomRead)?);
    let write = (moved.write_bytes / limits.get(Measure::DeviceWrite)?)
        .max(moved.writes / limits.get(Measure::DeviceRandomWrite)?);
    Some(read + write)
}

fn served_by_cache(row: &Row, device: Option<f64>, limits: &Limits) -> Option<String> {
    if row.load.family == Family::Names {
        return None;
    }
    let read = row.usage.and_then(|usage| usage.device).map(|device| device.read_bytes);
    let is_read = row.load.reads && !row.load.writes;
    if let Some(read) = read.filter(|read| is_read && *read < MISSED * row.bytes_per_second) {
        let part = percent((read / row.bytes_per_second).min(1.0));
        return Some(format!("served by a cache: the device read {part} of the bytes that the row read"));
    }
    let most = if row.load.family == Family::Sync { ABOVE_OF_FLUSHES } else { ABOVE };
    let above = device.filter(|share| *share > most)?;
    let times = number(above);
    match row.load.family {
        Family::Latency => {
            let own = number(limits.get(Measure::DeviceLatency)?);
            Some(format!("served by a cache: one read of the device takes {own} µs"))
        }
        _ if is_read => Some(format!("served by a cache: it is {times} times as fast as the device")),
        _ => Some(format!("taken by a cache: it is {times} times as fast as the device")),
    }
}

/// No limit is reached.
fn below(row: &Row, limits: &Limits, shares: &Shares) -> Verdict {
    let known =
        [(Resource::Device, shares.device), (Resource::Network, shares.network), (Resource::Cpu, shares.cpu)];
    let told: Vec<String> = known
        .iter()
        .filter_map(|(of, share)| Some(format!("{} {}", of.title(), percent((*share)?.min(1.0)))))
        .collect();
    let highest =
        known.iter().filter_map(|(of, share)| Some((*of, (*share)?))).max_by(|a, b| a.1.total_cmp(&b.1));
    // The device's share says how good the row is, and busy processors do not; so it is shown first.
    let shown = shares.device.map(|share| (Resource::Device, share)).or(highest);
    let (of, share) = (shown.map(|s| s.0), shown.map(|s| s.1.min(1.0)));
    let device = shares.device.map(|share| share.min(1.0));
    if row.load.in_flight <= 1.0 {
        let why = match (
            row.p50_us,
            limits.get(Measure::DeviceLatency).filter(|_| row.load.family == Family::Latency),
        ) {
            (Some(us), Some(own)) => format!(
                "one caller waits {} µs for each operation, {} µs of them for the device; the rest is software on the way",
                number(us),
                number(own.min(us))
            ),
            (Some(us), None) => format!("one caller waits {} µs for each operation", number(us)),
            (None, _) => "one caller waits for each operation".into(),
        };
        return Verdict { limiter: Limiter::Callers, share, of, device, why };
    }
    let missing: Vec<&str> = [Resource::Device, Resource::Cpu, Resource::Network]
        .into_iter()
        .filter(|of| known.iter().all(|(k, share)| k != of || share.is_none()))
        // A mount without a network misses nothing.
        .filter(|of| {
            *of != Resource::Network || limits.why_not(*of).is_none_or(|why| !why.contains("no network"))
        })
        .map(Resource::title)
        .collect();
    let mut why = match told.is_empty() {
        true => "nothing was measured that could limit it".to_owned(),
        false => format!("no limit is reached ({})", told.join(", ")),
    };
    if !missing.is_empty() {
        why.push_str(&format!("; not measured: {}", missing.join(", ")));
    }
    Verdict { limiter: Limiter::Unknown, share, of, device, why }
}

#[cfg(test)]
mod tests;
