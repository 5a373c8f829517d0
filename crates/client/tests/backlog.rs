//! Files that were closed and wait to be settled are never many, however slow the background is.

mod common;

use client::OpenFlags;
use common::{Cluster, Wiring, inode};
use types::{Cred, Fid};
use wire::meta::FileState;

#[test]
fn closers_settle_what_the_background_does_not_get_done() {
    const FILES: usize = 6000;
    let cluster = Cluster::with_inline_max(Wiring::Local, 2, 0);
    // Its background does nothing at all.
    let fs = cluster.mount_lazy();
    let make = |n: usize| {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let name = format!("f{n}");
        let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect("create");
        fs.write(h, 0, &[1; 100]).expect("write");
        fs.release(h);
        attr.fid
    };
    let fids: Vec<Fid> = (0..FILES).map(make).collect();
    let states: Vec<_> = fids.iter().map(|fid| inode(&cluster, *fid)).collect();
    let settled = states.iter().filter(|i| i.state == FileState::Settled).collect::<Vec<_>>();
    assert!((FILES - settled.len()) < 5000, "{} of {FILES} wait", FILES - settled.len());
    assert!(settled.iter().all(|i| i.attr.size == 100));
    fs.shutdown().expect("the rest is settled in time");
    assert!(fids.iter().all(|fid| inode(&cluster, *fid).state == FileState::Settled));
}
