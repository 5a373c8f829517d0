//! mgmt-PA1: a mount follows the parameters that the cluster map keeps, and shows and sets its own.

mod common;

use std::sync::Arc;

use client::{Settings, Tuned};
use common::{Cluster, Wiring};
use disk::Crash;
use mgmt::params::{Param, Params};
use types::{Code, Cred, Fid, FsId};
use wire::map::KeptParam;

const PARAMS: &[u8] = b"stria.params";

/// Longer than any test: a call that ends by it fails the run.
fn base(param: Param) -> u64 {
    if param == Param::MountOpTimeout { 600_000 } else { 2000 }
}

fn keep(cluster: &mut Cluster, param: Param, value: u64) {
    let name = param.def().name.to_owned();
    cluster.map.params.push(KeptParam { fs: FsId(1), targets: "*-client".into(), name, value: Some(value) });
    cluster.map.version += 1;
}

#[test]
fn a_call_ends_within_the_kept_time_that_came_with_a_newer_map() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let params = Some(Tuned { params: Arc::default(), base });
    let fs = cluster.mount_with(Settings { params, ..cluster.settings() });
    keep(&mut cluster, Param::MountOpTimeout, 1000);
    fs.set_map(cluster.map.clone());
    let _image = cluster.stop_mdt(Crash::DropAll);
    let refused = fs.lookup(Fid::ROOT, b"none").map(drop).expect_err("the MDT is down");
    assert_eq!(refused.code, Code::Timeout, "{refused}");
}

#[test]
fn a_mount_shows_its_parameters_and_root_sets_them() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    keep(&mut cluster, Param::MountReadAhead, 5);
    keep(&mut cluster, Param::MountWriteBehind, 6);
    let own = Arc::new(Params::of_mount(&[(Param::MountWriteBehind, 7)]));
    let params = Some(Tuned { params: own.clone(), base });
    let fs = cluster.mount_with(Settings { params, ..cluster.settings() });
    let shown = || String::from_utf8(fs.getxattr(Fid::ROOT, PARAMS).expect("shown")).expect("text");
    let has = |line: &str| assert!(shown().contains(line), "{line}: {}", shown());
    has(r#"{"name":"mount.read_ahead","value":5,"base":2000,"given":null,"kept":5,"live":null}"#);
    has(r#"{"name":"mount.write_behind","value":7,"base":2000,"given":7,"kept":6,"live":null}"#);
    let set = |text: &str, cred: &Cred| fs.setxattr(Fid::ROOT, PARAMS, text.as_bytes(), 0, cred);
    let user = Cred { uid: 7, gid: 7, groups: vec![] };
    assert_eq!(set("mount.read_ahead=9", &user).expect_err("no root").code, Code::Perm);
    for bad in ["mount.read_ahead", "mount.read_ahead=x", "resync.rate=1", "mount.op_timeout=1"] {
        let refused = set(&format!("mount.write_behind=8\n{bad}"), &Cred::root());
        assert_eq!(refused.is_err(), bad != "mount.read_ahead", "{bad}");
    }
    has(r#""name":"mount.write_behind","value":8"#);
    set("mount.write_behind\n", &Cred::root()).expect("it ends");
    has(r#""name":"mount.write_behind","value":7"#);
    // A client without parameters, as a tool, has no such attribute.
    let tool = cluster.mount();
    assert_eq!(tool.getxattr(Fid::ROOT, PARAMS).expect_err("none").code, Code::NoData);
}
