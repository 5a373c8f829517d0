use std::path::Path;

use super::*;
use crate::testdir::TestDir;

#[test]
fn the_limits_of_this_machine_are_measured_in_bounded_time_and_leave_nothing() {
    let dir = TestDir::new("limits");
    let site = Site {
        dir: dir.path(),
        file_system: "ext4 on /dev/x",
        has_hosts: false,
        has_targets: false,
        budget_seconds: 1,
    };
    let device = backing(dir.path(), None, site.file_system);
    let limits = measure(&Wanted::default(), &site, &device, &Arc::default());
    assert!(limits.get(Measure::MemoryCopy).unwrap() > 1e8, "{limits:?}");
    assert!(limits.get(Measure::SystemCalls).unwrap() > 1e4, "{limits:?}");
    assert_eq!(limits.why_not(Resource::Network), Some("the mount uses no network"));
    // In a directory without a device, or without direct I/O, there is a reason in place of the values.
    let has_device = limits.get(Measure::DeviceRead).is_some();
    assert_eq!(has_device, limits.why_not(Resource::Device).is_none(), "{limits:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "bench-L2");
    let line = serde_json::to_string(&limits).unwrap();
    let read: Limits = serde_json::from_str(&line).unwrap();
    assert_eq!(read.limits.len(), limits.limits.len());
}

#[test]
fn the_loopback_has_a_rate_and_a_round_trip() {
    let (rate, round_trip_us) = network::measure(Duration::from_millis(50)).unwrap();
    assert!(rate > 1e6 && (0.1..1e6).contains(&round_trip_us), "{rate} {round_trip_us}");
}

#[test]
fn parts_take_a_share_of_the_budget_within_bounds() {
    assert_eq!([10, 100, 10_000].map(seconds_of), [0.2, 0.5, 1.5]);
}

#[test]
fn the_network_is_a_limit_only_where_the_mount_uses_it() {
    let table = [
        ("fuse.stria on 10.0.0.1@tcp:/fs", Some("10.0.0.1")),
        ("fuse.stria on 10.0.0.1:988@tcp0:/fs", Some("10.0.0.1")),
        ("nfs4 on server:/export", Some("server")),
        ("nfs4 on [fe80::1]:/export", Some("fe80::1")),
        ("fuse.stria on unix:/d/run/stria.sock@local0:/stria", None),
        ("ext4 on /dev/vda", None),
        ("tmpfs on tmpfs", None),
        ("unknown", None),
    ];
    for (file_system, server) in table {
        assert_eq!(place::server_of(file_system).as_deref(), server, "{file_system}");
        assert_eq!(uses_network(file_system), server.is_some());
    }
    assert_eq!(network::wanted("fuse.stria on 127.0.0.1@tcp:/fs", false), Ok(()));
    let away = network::wanted("fuse.stria on 192.0.2.1@tcp:/fs", false).unwrap_err();
    assert!(away.contains("another machine"), "{away}");
    assert!(network::wanted("fuse.stria on 127.0.0.1@tcp:/fs", true).unwrap_err().contains("hosts"));
}

#[test]
fn a_directory_without_a_device_has_a_reason() {
    let proc = Path::new("/proc");
    let said = |file_system| backing(proc, None, file_system).unwrap_err();
    assert!(said("tmpfs on tmpfs").contains("in memory"));
    assert!(said("nfs4 on server:/export").contains("--device-dir"));
    assert!(backing(proc, Some(proc), "nfs4 on server:/export").unwrap_err().contains("no block device"));
}
