//! How many requests an MDT hears for what programs do most.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::{Allocate, Fs, OpenFlags, SetAttr, Settings};
use common::{Cluster, MDT, Wiring, inode, pattern};
use net::{Answer, Service};
use types::{Code, Cred, Fid};
use wire::batch::Batch;
use wire::meta::{CALLS, FileState, GetAttrs, Settle};
use wire::{Header, Request, Wire};

/// An MDT that keeps in mind what it was asked.
struct Heard {
    mdt: Arc<dyn Service>,
    /// Names of metadata calls, and of what came in batches.
    calls: Mutex<Vec<String>>,
}

impl Heard {
    fn over(cluster: &Cluster) -> Arc<Heard> {
        let heard = Arc::new(Heard { mdt: cluster.mdt_service(), calls: Mutex::default() });
        cluster.hub.add(MDT, heard.clone());
        heard
    }

    /// The requests that were seen since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

fn name_of(call: u16) -> Option<&'static str> {
    let lists = [CALLS, wire::shared::CALLS, wire::batch::CALLS];
    lists.into_iter().flatten().find(|(n, _)| *n == call).map(|(_, name)| *name)
}

impl Service for Heard {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if let Some(name) = name_of(head.call) {
            let parts = Batch::from_bytes(body).ok().filter(|_| head.call == Batch::CALL);
            let parts: Vec<_> = parts.iter().flat_map(|b| &b.ops).filter_map(|op| name_of(op.call)).collect();
            let said = match parts.as_slice() {
                [] => name.to_string(),
                [first, ..] => format!("{name} of {} {first}", parts.len()),
            };
            self.calls.lock().unwrap().push(said);
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

fn both(story: fn(Wiring)) {
    story(Wiring::Local);
    story(Wiring::Tcp);
}

fn make(fs: &Fs, name: &str, len: usize) -> Fid {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).unwrap();
    fs.write(h, 0, &pattern(1, len)).unwrap();
    fs.flush(h).unwrap();
    fs.release(h);
    attr.fid
}

#[test]
fn what_was_closed_is_told_of_in_one_frame() {
    both(|wiring| {
        let cluster = Cluster::with_inline_max(wiring, 2, 4096);
        let heard = Heard::over(&cluster);
        let fs = cluster.mount_lazy();
        let fids: Vec<_> = (0..20).map(|n| make(&fs, &format!("f{n}"), 10_000 + n)).collect();
        heard.take();
        fs.shutdown().unwrap();
        assert_eq!(heard.take(), ["Batch of 20 Settle"]);
        for (n, fid) in fids.into_iter().enumerate() {
            let inode = inode(&cluster, fid);
            assert_eq!((inode.attr.size, inode.state), (10_000 + n as u64, FileState::Settled));
        }
    });
}

#[test]
fn one_closed_file_is_told_of_alone() {
    let cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 4096);
    let heard = Heard::over(&cluster);
    let fs = cluster.mount_lazy();
    make(&fs, "f", 10_000);
    heard.take();
    fs.shutdown().unwrap();
    assert_eq!(heard.take(), [name_of(Settle::CALL).unwrap()]);
}

#[test]
fn attributes_of_many_are_one_request() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 1);
        let heard = Heard::over(&cluster);
        let fs = cluster.mount_with(Settings { ..cluster.settings() });
        let mut fids: Vec<_> = (0..30).map(|n| make(&fs, &format!("f{n}"), n)).collect();
        fids.push(Fid(u64::from(u32::MAX)));
        heard.take();
        let attrs = fs.getattrs(&fids).unwrap();
        assert_eq!(heard.take(), [name_of(GetAttrs::CALL).unwrap()]);
        let sizes: Vec<_> = attrs.into_iter().map(|a| a.map(|a| a.size)).collect();
        assert_eq!(sizes, (0..30).map(Some).chain([None]).collect::<Vec<_>>());
    });
}

fn open_read(fs: &Fs, fid: Fid) -> Vec<u8> {
    let (h, attr) = fs.open(fid, OpenFlags::read_only()).unwrap();
    let bytes = common::read(fs, h, 0, 100_000).unwrap();
    assert_eq!(bytes.len() as u64, attr.size);
    fs.flush(h).unwrap();
    fs.release(h);
    bytes
}

/// Made, asked for its capabilities by the kernel, written, closed; then opened, read, closed.
#[test]
fn a_small_file_of_a_lone_client() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 1);
        let heard = Heard::over(&cluster);
        let fs = cluster.mount();
        heard.take();
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let (attr, h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
        assert_eq!(fs.getxattr(attr.fid, b"security.capability").unwrap_err().code, Code::NoData);
        fs.write(h, 0, &pattern(1, 4096)).unwrap();
        fs.flush(h).unwrap();
        fs.release(h);
        assert_eq!(heard.take(), ["Create", "WriteInline"]);
        assert!(open_read(&fs, attr.fid) == pattern(1, 4096));
        assert_eq!(heard.take(), ["OpenRead"]);
        make(&fs, "empty", 0);
        assert_eq!(heard.take(), ["Create"]);
    });
}

/// Each change of content is seen by the next read, whichever descriptor it came through.
#[test]
fn content_that_came_with_the_open_is_given_up_at_the_first_change() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let heard = Heard::over(&cluster);
    let fs = cluster.mount();
    let fid = make(&fs, "f", 10_000);
    let (h, _) = fs.open(fid, OpenFlags::read_only()).unwrap();
    let mut want = pattern(1, 10_000);
    let check = |want: &[u8], how: &[&str]| {
        heard.take();
        assert!(common::read(&fs, h, 0, 100_000).unwrap() == want);
        assert!(common::read(&fs, h, 9000, 100_000).unwrap() == want[9000.min(want.len())..]);
        assert_eq!(heard.take(), how);
    };
    let through_another = |change: &dyn Fn(client::Handle)| {
        let (w, _) = fs.open(fid, OpenFlags::read_write()).unwrap();
        change(w);
        fs.release(w);
    };
    check(&want, &[]);
    through_another(&|w| _ = fs.write(w, 20, b"new").unwrap());
    want[20..23].copy_from_slice(b"new");
    check(&want, &["ReadInline", "ReadInline"]);
    // Another open brings it again.
    assert!(open_read(&fs, fid) == want);
    check(&want, &[]);
    through_another(&|w| fs.fallocate(w, 100, 100, Allocate::Punch).unwrap());
    want[100..200].fill(0);
    check(&want, &["ReadInline", "ReadInline"]);
    assert!(open_read(&fs, fid) == want);
    check(&want, &[]);
    fs.setattr(fid, &SetAttr { size: Some(5000), ..SetAttr::default() }, &Cred::root()).unwrap();
    want.truncate(5000);
    check(&want, &["ReadInline", "ReadInline"]);
}

/// An attribute that is set on a newly created file is returned.
#[test]
fn a_new_file_has_the_attributes_that_it_was_given() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let heard = Heard::over(&cluster);
    let fs = cluster.mount();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, _h) = fs.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
    let name = b"security.selinux";
    heard.take();
    assert_eq!(fs.getxattr(attr.fid, name).unwrap_err().code, Code::NoData);
    assert_eq!(fs.getxattr(attr.fid, b"user.a").unwrap_err().code, Code::NoData);
    assert_eq!(heard.take(), ["GetXattr"], "who may ask for what users set, the MDT knows");
    fs.setxattr(attr.fid, name, b"label", 0, &Cred::root()).unwrap();
    assert_eq!(fs.getxattr(attr.fid, name).unwrap(), b"label");
}

/// The same among two, of whom nobody keeps anything: one request to make it, one to write it, two to open and read it. That it is closed
/// is told a moment later, of many at once.
#[test]
fn a_small_file_among_two_clients() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 1);
        let heard = Heard::over(&cluster);
        let (a, b) = (cluster.mount(), cluster.mount());
        assert!(a.is_shared() && b.is_shared());
        let asked = || {
            let mut calls = heard.take();
            calls.retain(|call| call != "Close");
            calls
        };
        asked();
        let fid = make(&a, "f", 4096);
        assert_eq!(asked(), ["Create", "WriteInline"]);
        for fs in [&b, &a] {
            assert!(open_read(fs, fid) == pattern(1, 4096));
            assert_eq!(asked(), ["OpenRead", "ReadInline"]);
        }
        // Written over, and at its end.
        let (h, attr) = b.open(fid, OpenFlags::read_write()).unwrap();
        assert_eq!((attr.size, asked()), (4096, vec!["Open".to_string()]));
        b.write(h, 100, b"new").unwrap();
        b.append(h, b"more").unwrap();
        b.write_mapped(h, 4096, b"MORE and nothing").unwrap();
        // Pages of a mapping come under a lease.
        assert_eq!(asked(), ["WriteInline", "WriteInline", "Enter", "WriteInline"]);
        assert!(
            common::read(&a, a.open(fid, OpenFlags::read_only()).unwrap().0, 4095, 99).unwrap()[1..]
                == *b"MORE"
        );
        asked();
        // A write that does not fit inline is not sent to the MDT only to be refused.
        b.write(h, 60_000, &pattern(2, 9000)).unwrap();
        let calls = asked();
        assert_eq!(calls[..2], ["GetStripe", "Grow"], "it holds the lease");
        assert!(!calls.iter().any(|call| call == "WriteInline") && calls.iter().any(|call| call == "Switch"));
        make(&a, "empty", 0);
        assert_eq!(asked(), ["Create"]);
    });
}

fn content(fs: &Fs, fid: Fid, len: usize) -> Vec<u8> {
    let (h, _) = fs.open(fid, OpenFlags::read_only()).unwrap();
    let bytes = common::read(fs, h, 0, len + 1).unwrap();
    fs.release(h);
    bytes
}

/// A whole small file is one request, also among several clients; there its end is told with those of others.
#[test]
fn a_small_file_that_is_put() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 1);
        let heard = Heard::over(&cluster);
        let fs = cluster.mount_lazy();
        let put = |name: &str, bytes: &[u8]| fs.put(Fid::ROOT, name.as_bytes(), 0o640, bytes, &Cred::root());
        for len in [0, 1, 4096, 65_536] {
            heard.take();
            let attr = put(&format!("f{len}"), &pattern(1, len)).unwrap();
            assert_eq!(heard.take(), ["CreateWith"]);
            assert_eq!((attr.size, attr.mode, attr.nlink), (len as u64, 0o640, 1));
            assert_eq!(fs.getattr(attr.fid).unwrap(), attr);
            assert!(content(&fs, attr.fid, len) == pattern(1, len));
        }
        assert_eq!(put("f1", b"other").unwrap_err().code, Code::Exists);
        let user = Cred { uid: 7, gid: 7, groups: vec![] };
        assert_eq!(fs.put(Fid::ROOT, b"no", 0o644, b"x", &user).unwrap_err().code, Code::Access);
        // A file that does not fit inline is created as any other file.
        let long = put("long", &pattern(2, 100_000)).unwrap();
        assert!(long.size == 100_000 && content(&fs, long.fid, 100_000) == pattern(2, 100_000));
        let small = fs.mkdir(Fid::ROOT, b"small", 0o755, &Cred::root()).unwrap().fid;
        fs.setxattr(small, b"stria.layout", b"--inline 4096", 0, &Cred::root()).unwrap();
        let grown = fs.put(small, b"f", 0o644, &pattern(3, 5000), &Cred::root()).unwrap();
        assert!(grown.size == 5000 && content(&fs, grown.fid, 5000) == pattern(3, 5000));
        fs.shutdown().unwrap();
    });
}

/// Clients that flush at once hold no thread of the MDT each.
#[test]
fn many_flushes_at_once_are_all_answered_by_few_threads() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    std::thread::scope(|scope| {
        for n in 0..100 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("f{n}-{round}");
                    fs.create(Fid::ROOT, name.as_bytes(), 0o644, OpenFlags::read_write(), &Cred::root())
                        .expect("create");
                    fs.fsync_dir(Fid::ROOT).expect("flushed");
                }
            });
        }
    });
    let (workers, _) = cluster.server.load();
    assert!(workers < 20, "{workers} threads serve");
}

/// client-CL1, client-CL5: a lease serves all calls until another client wants the file. The first call there brings what is new.
#[test]
fn calls_under_a_lease_ask_the_mdt_nothing() {
    both(|wiring| {
        let cluster = Cluster::with_inline_max(wiring, 2, 0);
        let heard = Heard::over(&cluster);
        let settings = || Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() };
        let (a, b) = (cluster.mount_with(settings()), cluster.mount_with(settings()));
        let asked = || {
            let mut calls = heard.take();
            // Sent once for each target.
            calls.retain(|call| call != "CatchUp");
            calls.sort();
            calls
        };
        let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
        let (attr, ha) = a.create(Fid::ROOT, b"f", 0o644, flags, &Cred::root()).unwrap();
        a.write(ha, 0, &pattern(1, 5000)).unwrap();
        asked();
        let mut all = pattern(1, 5000);
        for n in 0..20 {
            let more = pattern(n, 3000);
            a.append(ha, &more).unwrap();
            all.extend(more);
            assert!(common::read(&a, ha, 0, 100_000).unwrap() == all);
        }
        assert_eq!(asked(), [""; 0], "{wiring:?}");
        let hb = b.open(attr.fid, OpenFlags::read_only()).unwrap().0;
        assert_eq!(asked(), ["Enter", "Leave", "OpenRead", "Settle"], "{wiring:?}");
        for _ in 0..20 {
            assert!(common::read(&b, hb, 0, 100_000).unwrap() == all);
        }
        assert_eq!(asked(), [""; 0], "{wiring:?}");
        a.write(ha, 0, b"new").unwrap();
        all[..3].copy_from_slice(b"new");
        assert_eq!(asked(), ["Enter", "Leave"], "{wiring:?}");
        assert!(common::read(&b, hb, 0, 100_000).unwrap() == all);
        assert_eq!(asked(), ["Enter", "Leave", "Settle"], "{wiring:?}");
        assert_eq!(b.getattr(attr.fid).unwrap().size, all.len() as u64);
    });
}
