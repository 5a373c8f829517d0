use super::*;
use crate::limits::{Limit, Unmeasured};
use crate::usage::DeviceUsage;

/// A device of 1 GB/s each way, 100,000 reads and 50,000 writes a second, 80 µs for one read, 5,000 flushes a second.
pub fn limits() -> Limits {
    let limit = |(measure, value): (Measure, f64)| Limit { measure, value, unit: measure.unit().into() };
    let all = [
        (Measure::DeviceWrite, 1e9),
        (Measure::DeviceRead, 1e9),
        (Measure::DeviceRandomRead, 100e3),
        (Measure::DeviceRandomWrite, 50e3),
        (Measure::DeviceLatency, 80.0),
        (Measure::DeviceSync, 5e3),
        (Measure::MemoryCopy, 10e9),
    ];
    let unmeasured =
        vec![Unmeasured { resource: Resource::Network, why: "the mount uses no network".into() }];
    Limits {
        device: "/dev/x".into(),
        how: "direct".into(),
        limits: all.map(limit).to_vec(),
        unmeasured,
        ..Limits::default()
    }
}

fn row(family: Family, reads: bool, bytes: f64, ops: f64, in_flight: f64) -> Row {
    let transfer_bytes = if ops > 0.0 { bytes / ops } else { 0.0 };
    Row {
        load: Load { family, reads, writes: !reads, transfer_bytes, in_flight },
        bytes_per_second: bytes,
        read_bytes_per_second: if reads { bytes } else { 0.0 },
        ops_per_second: ops,
        p50_us: None,
        usage: None,
    }
}

fn used(row: Row, cpu_busy: f64, read_bytes: f64, write_bytes: f64) -> Row {
    let device = DeviceUsage { read_bytes, write_bytes, reads: 0.0, writes: 0.0 };
    Row { usage: Some(Usage { cpu_busy, device: Some(device) }), ..row }
}

/// The share is of the limit that is named, and never above 1 (bench-V2).
#[test]
fn each_row_has_its_limit_and_its_share_of_it() {
    let latency = |us| Row { p50_us: Some(us), ..row(Family::Latency, true, 4e7, 1e4, 1.0) };
    let table = [
        ("stream", row(Family::Stream, true, 0.9e9, 900.0, 4.0), Limiter::Device, Some(0.9)),
        ("a little above", row(Family::Stream, true, 1.1e9, 1100.0, 4.0), Limiter::Device, Some(1.0)),
        ("cached", row(Family::Stream, true, 5e9, 5000.0, 4.0), Limiter::Cache, Some(1.0)),
        ("slow stream", row(Family::Stream, false, 0.2e9, 200.0, 4.0), Limiter::Unknown, Some(0.2)),
        ("random", row(Family::Random, true, 80e3 * 4096.0, 80e3, 64.0), Limiter::Device, Some(0.8)),
        ("large random", row(Family::Random, true, 0.8e9, 12e3, 64.0), Limiter::Device, Some(0.8)),
        ("flushes", row(Family::Sync, false, 4e3 * 4096.0, 4e3, 1.0), Limiter::Device, Some(0.8)),
        ("quick flushes", row(Family::Sync, false, 24e6, 6e3, 1.0), Limiter::Device, Some(1.0)),
        ("flushes that reach no device", row(Family::Sync, false, 8e7, 2e4, 1.0), Limiter::Cache, Some(1.0)),
        ("slow flushes", row(Family::Sync, false, 4e6, 1e3, 1.0), Limiter::Callers, Some(0.2)),
        ("device latency", latency(90.0), Limiter::Device, Some(80.0 / 90.0)),
        ("long way", latency(400.0), Limiter::Callers, Some(0.2)),
        ("cached latency", latency(4.0), Limiter::Cache, Some(1.0)),
        ("names", row(Family::Names, false, 0.0, 1e4, 4.0), Limiter::Unknown, None),
    ];
    for (name, row, limiter, share) in table {
        let found = judge(&row, Some(&limits()));
        assert_eq!((found.limiter, found.share), (limiter, share), "{name}: {found:?}");
        assert!(found.share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{name}: {found:?}");
    }
}

#[test]
fn busy_processors_limit_a_row_that_leaves_the_device_idle() {
    let names = used(row(Family::Names, false, 0.0, 1e4, 4.0), 0.97, 0.0, 0.1e9);
    let found = judge(&names, Some(&limits()));
    assert_eq!((found.limiter, found.of, found.share), (Limiter::Cpu, Some(Resource::Cpu), Some(0.97)));
    assert!(found.why.contains("97 % busy"), "{}", found.why);
    // A full device comes first.
    let stream = used(row(Family::Stream, false, 0.9e9, 900.0, 4.0), 0.97, 0.0, 0.9e9);
    assert_eq!(judge(&stream, Some(&limits())).limiter, Limiter::Device);
    // A journal that writes all twice fills the device at half its rate.
    let twice = used(row(Family::Stream, false, 0.48e9, 480.0, 4.0), 0.3, 0.0, 0.96e9);
    assert_eq!(judge(&twice, Some(&limits())).share, Some(0.96));
}

#[test]
fn a_read_that_the_device_did_not_do_was_served_by_a_cache() {
    let read = row(Family::Random, true, 50e3 * 4096.0, 50e3, 4.0);
    let found = judge(&used(read, 0.3, 1e6, 0.0), Some(&limits()));
    assert_eq!(found.limiter, Limiter::Cache);
    assert!(found.why.starts_with("served by a cache: the device read 0.49 %"), "{}", found.why);
    assert_eq!(judge(&used(read, 0.3, 50e3 * 4096.0, 0.0), Some(&limits())).limiter, Limiter::Unknown);
}

#[test]
fn what_is_not_known_names_what_is_missing() {
    let stream = row(Family::Stream, true, 0.2e9, 200.0, 4.0);
    let found = judge(&stream, Some(&limits()));
    assert_eq!(found.why, "no limit is reached (device 20 %); not measured: processors");
    let none = judge(&stream, None);
    assert_eq!((none.limiter, none.share), (Limiter::Unknown, None));
    assert!(none.why.contains("did not measure"), "{}", none.why);
    let found = judge(&stream, Some(&Limits::default()));
    assert_eq!(
        found.why,
        "nothing was measured that could limit it; not measured: device, processors, network"
    );
}

#[test]
fn a_network_mount_is_held_against_the_network() {
    let mut limits = limits();
    limits.unmeasured.clear();
    let measure = Measure::NetworkStream;
    limits.limits.push(Limit { measure, value: 0.4e9, unit: measure.unit().into() });
    let found = judge(&row(Family::Stream, true, 0.35e9, 350.0, 4.0), Some(&limits));
    assert_eq!((found.limiter, found.share), (Limiter::Network, Some(0.875)));
}
