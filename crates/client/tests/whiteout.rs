//! A rename that leaves a whiteout, and what overlayfs does with one, over the loss of what the MDT had not flushed.

mod common;

use std::sync::Arc;
use std::time::Duration;

use client::{Fs, OpenFlags, Settings};
use common::{Cluster, MDT, Wiring};
use disk::Crash;
use net::{Answer, Service};
use parking_lot::{Condvar, Mutex};
use types::{Cred, Fid, Kind, SessionId};
use wire::meta::{RENAME_WHITEOUT, Rename};
use wire::{Header, Request};

fn make(fs: &Fs, name: &[u8]) -> Fid {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, handle) = fs.create(Fid::ROOT, name, 0o644, flags, &Cred::root()).expect("create");
    fs.release(handle);
    fs.fsync_dir(Fid::ROOT).expect("fsync");
    attr.fid
}

/// [S-exactly-once] Later operations address the whiteout by its number, so the replay of the rename creates it under that number.
#[test]
fn a_whiteout_keeps_its_number_when_the_mdt_loses_power() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let root = Cred::root();
    let fid = make(&fs, b"f");
    let find = |name: &[u8]| fs.lookup(Fid::ROOT, name).map(|a| (a.fid, a.kind, a.nlink)).expect("lookup");

    fs.rename(Fid::ROOT, b"f", Fid::ROOT, b"g", RENAME_WHITEOUT, &root).expect("rename");
    let (whiteout, kind, _) = find(b"f");
    assert_eq!((kind, find(b"g")), (Kind::Char, (fid, Kind::File, 1)));
    fs.link(whiteout, Fid::ROOT, b"h", &root).expect("link");

    cluster.crash_mdt(Crash::DropAll);
    assert_eq!(find(b"f"), (whiteout, Kind::Char, 2));
    assert_eq!(find(b"h"), (whiteout, Kind::Char, 2));
    assert_eq!(find(b"g"), (fid, Kind::File, 1));
}

/// The MDT, whose answers to renames of one session do not arrive.
struct Mute {
    mdt: Arc<dyn Service>,
    session: Mutex<Option<SessionId>>,
    changed: Condvar,
}

impl Mute {
    fn set(&self, session: Option<SessionId>) {
        *self.session.lock() = session;
        self.changed.notify_all();
    }
}

impl Service for Mute {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        self.mdt.serve(head, body, bulk, answer);
        if head.call == Rename::CALL {
            self.changed.wait_while(&mut self.session.lock(), |muted| *muted == Some(head.session));
        }
    }
}

/// [S-exactly-once] Its maker heard nothing of it, and another found it and gave it a second name.
#[test]
fn a_whiteout_that_another_found_is_made_again_under_its_number() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let (op_timeout, commit_interval) = (Duration::from_secs(2), Duration::from_secs(600));
    let a = cluster.mount_with(Settings { op_timeout, commit_interval, ..cluster.settings() });
    let b = cluster.mount_lazy();
    let root = Cred::root();
    make(&a, b"f");
    let mute =
        Arc::new(Mute { mdt: cluster.process(MDT), session: Mutex::default(), changed: Condvar::new() });
    cluster.hub.add(MDT, mute.clone());
    mute.set(Some(a.session()));
    a.rename(Fid::ROOT, b"f", Fid::ROOT, b"g", RENAME_WHITEOUT, &root).expect_err("no answer comes");
    mute.set(None);
    // Another fid is given out to this one.
    a.mkdir(Fid::ROOT, b"d", 0o755, &root).expect("mkdir");
    let whiteout = b.lookup(Fid::ROOT, b"f").expect("lookup").fid;
    b.link(whiteout, Fid::ROOT, b"h", &root).expect("link");
    cluster.crash_mdt(Crash::DropAll);
    let find = |name: &[u8]| b.lookup(Fid::ROOT, name).map(|attr| attr.fid).expect("lookup");
    assert_eq!((find(b"f"), find(b"h")), (whiteout, whiteout));
}
