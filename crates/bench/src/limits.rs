//! Limits of this machine, measured at the begin of each run: the rates of its device, processors and network without a file system.
//!
//! A report states each row as a percentage of them. A limit that cannot be measured is recorded with the reason.
//! bench-L1. The measurement is bounded: `seconds_of` says how long each of its parts takes at most.
//! bench-L2. It leaves nothing behind, in whichever directory it was made.

mod cpu;
mod device;
mod network;
mod place;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use place::{Device, backing, uses_network};

/// A part of the machine that can be the limit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    Device,
    Cpu,
    Network,
}

impl Resource {
    pub fn title(self) -> &'static str {
        match self {
            Resource::Device => "device",
            Resource::Cpu => "processors",
            Resource::Network => "network",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Direct transfers of 1 MiB in sequence, several in flight: bytes per second.
    DeviceWrite,
    DeviceRead,
    /// Direct transfers of 4 KiB at random places, many in flight: operations per second.
    DeviceRandomRead,
    DeviceRandomWrite,
    /// The median of direct 4 KiB reads at random places, one at a time: microseconds.
    DeviceLatency,
    /// Overwrites of 4 KiB with an fsync each, one at a time: operations per second.
    DeviceSync,
    /// All processors copy memory: bytes per second.
    MemoryCopy,
    /// All processors read a byte of a file in memory by a system call: calls per second.
    SystemCalls,
    /// Loopback TCP, one stream per two processors: bytes per second.
    NetworkStream,
    /// One byte there and one back over loopback TCP: microseconds.
    NetworkRoundTrip,
}

impl Measure {
    pub fn resource(self) -> Resource {
        match self {
            Measure::DeviceWrite
            | Measure::DeviceRead
            | Measure::DeviceRandomRead
            | Measure::DeviceRandomWrite
            | Measure::DeviceLatency
            | Measure::DeviceSync => Resource::Device,
            Measure::MemoryCopy | Measure::SystemCalls => Resource::Cpu,
            Measure::NetworkStream | Measure::NetworkRoundTrip => Resource::Network,
        }
    }

    /// Of the recorded value.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::DeviceWrite | Measure::DeviceRead | Measure::MemoryCopy | Measure::NetworkStream => {
                "bytes/s"
            }
            Measure::DeviceRandomRead
            | Measure::DeviceRandomWrite
            | Measure::DeviceSync
            | Measure::SystemCalls => "ops/s",
            Measure::DeviceLatency | Measure::NetworkRoundTrip => "us",
        }
    }
}

/// A measured limit, in the unit of its measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub measure: Measure,
    pub value: f64,
    /// For readers of the record; `Measure::unit` says the same.
    pub unit: String,
}

/// A resource without limits, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmeasured {
    pub resource: Resource,
    pub why: String,
}

/// The limits of a run.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// The block device that holds the data: `/dev/nvme0n1`. Empty if it is not known.
    pub device: String,
    /// Where and how the device was measured. Empty if it was not.
    pub how: String,
    /// Share of the processors that other programs had before the run, 0 to 1.
    #[serde(default)]
    pub busy_before: Option<f64>,
    /// That the measurement took.
    pub seconds: f64,
    pub limits: Vec<Limit>,
    pub unmeasured: Vec<Unmeasured>,
}

impl Limits {
    pub fn get(&self, measure: Measure) -> Option<f64> {
        let found = self.limits.iter().find(|limit| limit.measure == measure)?;
        Some(found.value).filter(|value| value.is_finite() && *value > 0.0)
    }

    /// Why a resource has no limit; `None` if it has some.
    pub fn why_not(&self, resource: Resource) -> Option<&str> {
        self.unmeasured.iter().find(|one| one.resource == resource).map(|one| one.why.as_str())
    }

    fn add(&mut self, measure: Measure, value: f64) {
        self.limits.push(Limit { measure, value, unit: measure.unit().into() });
    }

    fn miss(&mut self, resource: Resource, why: impl Into<String>) {
        self.unmeasured.push(Unmeasured { resource, why: why.into() });
    }
}

/// How limits are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// A directory on the device that holds the data, in place of the one that the mount table tells.
    pub device_dir: Option<PathBuf>,
}

/// The place of a run.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// A directory of the run in the first measured one.
    pub dir: &'a std::path::Path,
    /// `TYPE on SOURCE`.
    pub file_system: &'a str,
    pub has_hosts: bool,
    pub has_targets: bool,
    /// Of the whole plan.
    pub budget_seconds: u64,
}

/// Seconds of each part of the measurement: a two-hundredth of the plan's budget, within bounds.
pub fn seconds_of(budget_seconds: u64) -> f64 {
    /// Below it one stall of a shared disk would be the limit.
    const LEAST: f64 = 0.2;
    /// Above it the value changes no more.
    const MOST: f64 = 1.5;
    (budget_seconds as f64 / 200.0).clamp(LEAST, MOST)
}

/// Measures all limits that this run can have. `device` is the one that `backing` found.
pub fn measure(
    wanted: &Wanted,
    site: &Site<'_>,
    device: &Result<Device, String>,
    stop: &Arc<AtomicBool>,
) -> Limits {
    let begun = Instant::now();
    let seconds = seconds_of(site.budget_seconds);
    let mut limits = Limits { busy_before: crate::usage::busy_of_others(), ..Limits::default() };
    if site.has_hosts {
        let why = "workers are on hosts, and this machine's processors are not theirs";
        limits.miss(Resource::Cpu, why);
    } else {
        let short = Duration::from_secs_f64(seconds / 2.0);
        limits.add(Measure::MemoryCopy, cpu::copy_bytes_per_second(short));
        match cpu::calls_per_second(short) {
            Ok(rate) => limits.add(Measure::SystemCalls, rate),
            Err(error) => limits.miss(Resource::Cpu, format!("system calls: {error}")),
        }
    }
    match device {
        Err(why) => limits.miss(Resource::Device, why.clone()),
        Ok(_) if site.has_targets => {
            limits.miss(Resource::Device, "--targets are the devices themselves: their rows are the limit");
        }
        Ok(device) => {
            limits.device = device.name.clone();
            let dir = wanted.device_dir.as_ref().or(device.dir.as_ref());
            match device::measure(dir.map_or(site.dir, |dir| dir.as_path()), seconds, stop) {
                Ok(measured) => {
                    limits.how = measured.how;
                    measured.values.into_iter().for_each(|(measure, value)| limits.add(measure, value));
                }
                Err(error) => limits.miss(Resource::Device, format!("{error:#}")),
            }
        }
    }
    match network::wanted(site.file_system, site.has_hosts) {
        Err(why) => limits.miss(Resource::Network, why),
        Ok(()) => match network::measure(Duration::from_secs_f64(seconds)) {
            Ok((rate, round_trip_us)) => {
                limits.add(Measure::NetworkStream, rate);
                limits.add(Measure::NetworkRoundTrip, round_trip_us);
            }
            Err(error) => limits.miss(Resource::Network, format!("loopback TCP: {error}")),
        },
    }
    limits.seconds = begun.elapsed().as_secs_f64();
    limits
}

#[cfg(test)]
mod tests;
