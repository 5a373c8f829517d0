//! A rename that leaves a whiteout, and what overlayfs does with one, over the loss of what the MDT had not flushed.

mod common;

use client::OpenFlags;
use common::{Cluster, Wiring};
use disk::Crash;
use types::{Cred, Fid, Kind};
use wire::meta::RENAME_WHITEOUT;

/// [S-exactly-once] What was done to the whiteout by its number is replayed, so the replay of the rename makes it under that number.
#[test]
fn a_whiteout_keeps_its_number_when_the_mdt_loses_power() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let root = Cred::root();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, handle) = fs.create(Fid::ROOT, b"f", 0o644, flags, &root).expect("create");
    fs.release(handle);
    fs.fsync_dir(Fid::ROOT).expect("fsync");
    let find = |name: &[u8]| fs.lookup(Fid::ROOT, name).map(|a| (a.fid, a.kind, a.nlink)).expect("lookup");

    fs.rename(Fid::ROOT, b"f", Fid::ROOT, b"g", RENAME_WHITEOUT, &root).expect("rename");
    let (whiteout, kind, _) = find(b"f");
    assert_eq!((kind, find(b"g")), (Kind::Char, (attr.fid, Kind::File, 1)));
    fs.link(whiteout, Fid::ROOT, b"h", &root).expect("link");

    cluster.crash_mdt(Crash::DropAll);
    assert_eq!(find(b"f"), (whiteout, Kind::Char, 2));
    assert_eq!(find(b"h"), (whiteout, Kind::Char, 2));
    assert_eq!(find(b"g"), (attr.fid, Kind::File, 1));
}
