//! Leases of names over two clients: what one caches costs no request, and what the other changes shows at once.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Fs, Kernel, Lister, OpenFlags, SetAttr};
use common::{Cluster, MDT, Wiring, pattern};
use disk::{Crash, SplitMix};
use net::{Answer, Service};
use types::{Attr, Buf, Code, Cred, Fid, Kind};
use wire::Header;
use wire::meta::CALLS;

/// The MDT, which counts what it is asked of names and attributes.
struct Counted {
    mdt: Arc<dyn Service>,
    asked: AtomicU64,
}

impl Service for Counted {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        if CALLS.iter().any(|(call, _)| *call == head.call) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.mdt.serve(head, body, bulk, answer)
    }
}

fn counted(cluster: &Cluster) -> Arc<Counted> {
    let counted = Arc::new(Counted { mdt: cluster.process(MDT), asked: AtomicU64::new(0) });
    cluster.hub.add(MDT, counted.clone());
    counted
}

impl Counted {
    fn take(&self) -> u64 {
        self.asked.swap(0, Ordering::SeqCst)
    }
}

fn cluster(wiring: Wiring) -> Cluster {
    let mut cluster = Cluster::new(wiring, 1);
    cluster.sessions_live(Duration::from_secs(10));
    cluster
}

fn make(fs: &Fs, dir: Fid, name: &str) -> Fid {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(dir, name.as_bytes(), 0o644, flags, &Cred::root()).unwrap();
    fs.release(h);
    attr.fid
}

fn mkdir(fs: &Fs, dir: Fid, name: &str) -> Fid {
    fs.mkdir(dir, name.as_bytes(), 0o755, &Cred::root()).unwrap().fid
}

/// All names of a directory with their attributes, as `ls -l` asks for them.
fn list(fs: &Fs, dir: Fid) -> Vec<(String, Attr)> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let lister = Lister { pid: 1, uid: 0 };
        let items = fs.readdir_of(lister, dir, cookie, 64, true, &Cred::root()).unwrap();
        let Some(last) = items.last() else { break };
        cookie = last.cookie;
        for item in items.into_iter().filter(|item| !matches!(&item.name[..], b"." | b"..")) {
            let attr = fs.lookup(dir, &item.name).unwrap();
            all.push((String::from_utf8(item.name).unwrap(), attr));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn a_second_listing_asks_nothing_and_a_change_elsewhere_shows_at_once() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = cluster(wiring);
        let mdt = counted(&cluster);
        let (a, b) = (cluster.mount(), cluster.mount());
        let dir = mkdir(&a, Fid::ROOT, "d");
        let fids: Vec<Fid> = (0..50).map(|n| make(&b, dir, &format!("f{n}"))).collect();
        assert_eq!(list(&a, dir).len(), 50);
        std::thread::sleep(Duration::from_millis(1100));
        list(&a, dir);
        mdt.take();
        assert_eq!(list(&a, dir).len(), 50);
        assert_eq!(a.lookup(dir, b"absent").unwrap_err().code, Code::NotFound);
        assert_eq!(mdt.take(), 0, "all of it is cached");
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        b.setattr(fids[7], &set, &Cred::root()).unwrap();
        assert_eq!(a.getattr(fids[7]).unwrap().mode & 0o777, 0o600);
        b.unlink(dir, b"f8", &Cred::root()).unwrap();
        assert_eq!(a.lookup(dir, b"f8").unwrap_err().code, Code::NotFound);
        make(&b, dir, "absent");
        assert_eq!(a.lookup(dir, b"absent").unwrap().kind, Kind::File);
        mdt.take();
        a.lookup(dir, b"f20").unwrap();
        assert_eq!(mdt.take(), 0, "what was not changed is cached still");
        // The third change within a second: from here on only its changer caches the names of the directory.
        b.rename(dir, b"f9", Fid::ROOT, b"moved", 0, &Cred::root()).unwrap();
        assert_eq!(a.lookup(dir, b"f9").unwrap_err().code, Code::NotFound);
        assert_eq!(a.lookup(Fid::ROOT, b"moved").unwrap().fid, fids[9]);
        let names: Vec<String> = list(&a, dir).into_iter().map(|(name, _)| name).collect();
        assert!(names.len() == 49 && !names.contains(&"f8".into()) && names.contains(&"absent".into()));
    }
}

/// Every kind of change, each seen by a client that has everything cached before it.
#[test]
fn each_kind_of_change_shows_at_once() {
    let cluster = cluster(Wiring::Tcp);
    let (a, b) = (cluster.mount(), cluster.mount());
    let root = Cred::root();
    let dir = mkdir(&a, Fid::ROOT, "d");
    let other = mkdir(&a, Fid::ROOT, "e");
    let f = make(&a, dir, "f");
    let look = |fs: &Fs, dir: Fid, name: &str| fs.lookup(dir, name.as_bytes()).map(|attr| attr.fid).ok();
    // Both look at everything, change by change, and must agree.
    let names = ["f", "g", "h", "s", "x", "t"];
    let look_at_all = || {
        for fs in [&a, &b] {
            for d in [Fid::ROOT, dir, other] {
                names.iter().for_each(|name| _ = look(fs, d, name));
            }
        }
    };
    let check = |what: &str, change: &dyn Fn(), seen: &dyn Fn() -> bool| {
        look_at_all();
        change();
        assert!(seen(), "{what}");
        // The directories' own attributes, too.
        for d in [dir, other, Fid::ROOT] {
            let (here, there) = (a.getattr(d).unwrap(), b.getattr(d).unwrap());
            assert_eq!(here, there, "{what}: attributes of {d}");
        }
    };
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    check("chmod", &|| _ = b.setattr(f, &mode(0o640), &root).unwrap(), &|| {
        a.getattr(f).unwrap().mode & 0o777 == 0o640
    });
    check("chmod of a directory", &|| _ = b.setattr(dir, &mode(0o711), &root).unwrap(), &|| {
        a.lookup(Fid::ROOT, b"d").unwrap().mode & 0o777 == 0o711
    });
    check("chmod of the root", &|| _ = b.setattr(Fid::ROOT, &mode(0o751), &root).unwrap(), &|| {
        a.getattr(Fid::ROOT).unwrap().mode & 0o777 == 0o751
    });
    check("create", &|| _ = make(&b, dir, "g"), &|| look(&a, dir, "g").is_some());
    check("link", &|| _ = b.link(f, other, b"h", &root).unwrap(), &|| {
        look(&a, other, "h") == Some(f) && a.getattr(f).unwrap().nlink == 2
    });
    check("chmod by another name", &|| _ = b.setattr(f, &mode(0o444), &root).unwrap(), &|| {
        a.lookup(dir, b"f").unwrap().mode & 0o777 == 0o444
            && a.lookup(other, b"h").unwrap().mode & 0o777 == 0o444
    });
    check("unlink of one of two", &|| b.unlink(dir, b"f", &root).unwrap(), &|| {
        look(&a, dir, "f").is_none() && a.getattr(f).unwrap().nlink == 1
    });
    check("chmod of what is left", &|| _ = b.setattr(f, &mode(0o400), &root).unwrap(), &|| {
        a.lookup(other, b"h").unwrap().mode & 0o777 == 0o400
    });
    check("symlink", &|| _ = b.symlink(dir, b"s", b"to", &root).unwrap(), &|| look(&a, dir, "s").is_some());
    check("mkdir", &|| _ = mkdir(&b, dir, "x"), &|| look(&a, dir, "x").is_some());
    let x = look(&a, dir, "x").unwrap();
    check("rename of a directory", &|| b.rename(dir, b"x", other, b"x", 0, &root).unwrap(), &|| {
        look(&a, dir, "x").is_none() && look(&a, other, "x") == Some(x)
    });
    check("chmod of what was moved", &|| _ = b.setattr(x, &mode(0o700), &root).unwrap(), &|| {
        a.getattr(x).unwrap().mode & 0o777 == 0o700
    });
    check("rename over a name", &|| b.rename(other, b"h", dir, b"g", 0, &root).unwrap(), &|| {
        look(&a, dir, "g") == Some(f) && look(&a, other, "h").is_none()
    });
    check("exchange", &|| b.rename(dir, b"g", dir, b"s", 2, &root).unwrap(), &|| {
        look(&a, dir, "s") == Some(f)
    });
    check("rmdir", &|| b.rmdir(other, b"x", &root).unwrap(), &|| look(&a, other, "x").is_none());
    check(
        "a write",
        &|| {
            let (h, _) = b.open(f, OpenFlags::read_write()).unwrap();
            b.write(h, 0, &pattern(1, 100)).unwrap();
            b.release(h);
        },
        &|| a.getattr(f).unwrap().size == 100,
    );
    check(
        "a write to objects",
        &|| {
            let (h, _) = b.open(f, OpenFlags::read_write()).unwrap();
            b.write(h, 0, &pattern(1, 300_000)).unwrap();
            b.release(h);
        },
        &|| a.getattr(f).unwrap().size == 300_000,
    );
    check(
        "truncate",
        &|| {
            b.setattr(f, &SetAttr { size: Some(7), ..SetAttr::default() }, &root).unwrap();
        },
        &|| a.getattr(f).unwrap().size == 7,
    );
    check("an attribute", &|| b.setxattr(f, b"user.a", b"1", 0, &root).unwrap(), &|| {
        a.getattr(f).unwrap().ctime == b.getattr(f).unwrap().ctime
    });
}

#[test]
fn changes_here_are_seen_here() {
    let cluster = cluster(Wiring::Local);
    let a = cluster.mount();
    let root = Cred::root();
    let dir = mkdir(&a, Fid::ROOT, "d");
    assert!(list(&a, dir).is_empty());
    for n in 0..20 {
        assert_eq!(a.lookup(dir, format!("f{n}").as_bytes()).unwrap_err().code, Code::NotFound);
        let fid = make(&a, dir, &format!("f{n}"));
        assert_eq!(a.lookup(dir, format!("f{n}").as_bytes()).unwrap().fid, fid);
        assert_eq!(list(&a, dir).len(), n + 1);
        assert_eq!(a.getattr(dir).unwrap().mtime, a.lookup(Fid::ROOT, b"d").unwrap().mtime);
    }
    a.rename(dir, b"f1", dir, b"g1", 0, &root).unwrap();
    assert!(a.lookup(dir, b"f1").is_err() && a.lookup(dir, b"g1").is_ok());
    a.unlink(dir, b"g1", &root).unwrap();
    assert!(a.lookup(dir, b"g1").is_err());
    let sub = mkdir(&a, dir, "sub");
    assert_eq!(a.getattr(dir).unwrap().nlink, 3);
    a.rmdir(dir, b"sub", &root).unwrap();
    assert!(a.lookup(dir, b"sub").is_err() && a.lookup(sub, b"x").is_err());
    assert_eq!((list(&a, dir).len(), a.getattr(dir).unwrap().nlink), (19, 2));
}

/// mds-X1: a restarted MDT knows of no lease, and changes nothing before each client has none.
#[test]
fn nothing_old_is_cached_after_a_restart_of_the_mdt() {
    for is_clean in [false, true] {
        let mut cluster = cluster(Wiring::Tcp);
        let (a, b) = (cluster.mount(), cluster.mount());
        let dir = mkdir(&a, Fid::ROOT, "d");
        let f = make(&a, dir, "f");
        for round in 0..3u32 {
            list(&a, dir);
            match is_clean {
                true => cluster.restart_mdt_cleanly(),
                false => cluster.crash_mdt(Crash::KeepAll),
            }
            let set = SetAttr { mode: Some(0o600 + round), ..SetAttr::default() };
            b.setattr(f, &set, &Cred::root()).unwrap();
            assert_eq!(a.getattr(f).unwrap().mode & 0o777, 0o600 + round, "clean: {is_clean}");
            make(&b, dir, &format!("g{round}"));
            assert!(a.lookup(dir, format!("g{round}").as_bytes()).is_ok());
        }
    }
}

/// Two clients in random storms; after each change both are asked, and must agree with a client that has cached nothing.
/// A kernel that is busy, so that names run out.
struct Busy;

impl Kernel for Busy {
    fn attributes(&self, _: &[Fid]) {}
    fn names(&self, _: Vec<(Fid, Box<[u8]>)>, _: &Arc<AtomicBool>, done: Box<dyn FnOnce() + Send>) {
        // The wait ends by the time-out.
        std::mem::forget(done);
    }
}

/// client-LE5: beside others a restarted MDT hears of a client once its kernel uses no name by a lease of before.
#[test]
fn no_name_of_a_kernel_outlives_a_restart_of_the_mdt_and_a_change_after_it() {
    let mut cluster = cluster(Wiring::Tcp);
    let (a, b) = (cluster.mount(), cluster.mount());
    a.on_forget(Arc::new(Busy));
    let dir = mkdir(&b, Fid::ROOT, "d");
    for name in ["f0", "f1"] {
        make(&b, dir, name);
        // A name that b has just made is not cached at once.
        let until = Instant::now() + Duration::from_secs(20);
        let ends = loop {
            let (attr, leave) = a.lookup_leased(dir, name.as_bytes(), &Cred::root());
            attr.unwrap();
            let time_out = a.reply(leave.dir()).time_outs(&leave, Some((name.as_bytes(), false))).name;
            if !time_out.is_zero() {
                break Instant::now() + time_out;
            }
            assert!(Instant::now() < until, "the kernel caches it");
            std::thread::sleep(Duration::from_millis(50));
        };
        cluster.crash_mdt(Crash::KeepAll);
        let unlinked = std::thread::scope(|scope| {
            // So that a attaches at once.
            scope.spawn(|| a.lookup(dir, b"none").unwrap_err());
            b.unlink(dir, name.as_bytes(), &Cred::root()).unwrap();
            Instant::now()
        });
        assert!(unlinked >= ends, "a's kernel still had it");
    }
}

#[test]
fn random_changes_of_two_clients_show_at_once() {
    let cluster = cluster(Wiring::Tcp);
    let clients = [cluster.mount(), cluster.mount()];
    let root = Cred::root();
    let dirs = [mkdir(&clients[0], Fid::ROOT, "d0"), mkdir(&clients[1], Fid::ROOT, "d1")];
    let name = |n: u64| format!("n{n}").into_bytes();
    let mut rng = SplitMix::new(11);
    for step in 0..1500 {
        let fs = &clients[rng.next_u64() as usize % 2];
        let (from, to) = (dirs[rng.next_u64() as usize % 2], dirs[rng.next_u64() as usize % 2]);
        let (one, two) = (name(rng.next_u64() % 6), name(rng.next_u64() % 6));
        // What both can cache.
        for other in &clients {
            let _ = (other.lookup(from, &one), other.lookup(to, &two));
            if step % 7 == 0 {
                list(other, from);
            }
        }
        // Errors are as good as changes.
        match rng.next_u64() % 7 {
            0 | 1 => {
                let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
                if let Ok((_, h)) = fs.create(from, &one, 0o644, flags, &root) {
                    fs.release(h);
                }
            }
            2 => _ = fs.unlink(from, &one, &root),
            3 => _ = fs.rename(from, &one, to, &two, 0, &root),
            4 => {
                if let Ok(attr) = fs.lookup(from, &one) {
                    _ = fs.link(attr.fid, to, &two, &root);
                }
            }
            5 => {
                if let Ok(attr) = fs.lookup(from, &one) {
                    let mode = Some(0o400 + (rng.next_u64() % 256) as u32);
                    _ = fs.setattr(attr.fid, &SetAttr { mode, ..SetAttr::default() }, &root);
                }
            }
            _ => _ = fs.symlink(from, &one, b"to", &root),
        }
        let truth = |dir: Fid, name: &[u8]| {
            let req = wire::meta::Lookup { parent: dir, name: name.into(), cred: root.clone() };
            let head = Header { fs: types::FsId(1), target: MDT, ..Header::default() };
            let soon = Instant::now() + Duration::from_secs(10);
            let said = net::rpc::call(&*cluster.peer(MDT), head, &req, &[], &mut types::Buf::new(), soon);
            said.unwrap().2.map(|inode| inode.attr).map_err(|fault| fault.code)
        };
        for (dir, name) in [(from, &one), (to, &two)] {
            let want = truth(dir, name);
            for (n, other) in clients.iter().enumerate() {
                let got = other.lookup(dir, name).map_err(|fault| fault.code);
                assert_eq!(got, want, "step {step}, client {n}");
                if let Ok(attr) = got {
                    assert_eq!(other.getattr(attr.fid).unwrap(), attr, "step {step}, client {n}");
                }
            }
        }
    }
}

/// A guard process: the time that it was told, and its files.
#[derive(Default, Clone)]
struct Guarded(Arc<Mutex<(u64, HashMap<u32, u64>)>>);

impl client::Guard for Guarded {
    fn until(&self, boot_ms: u64) {
        self.0.lock().unwrap().0 = boot_ms;
    }
    fn file(&self, place: u32, fid: u64) {
        self.0.lock().unwrap().1.insert(place, fid);
    }
}

impl Guarded {
    fn is_told(&self, fid: Fid) -> bool {
        let told = self.0.lock().unwrap();
        told.0 > 0 && told.1.values().any(|known| *known == fid.0)
    }
}

/// client-GU1, client-GU3: the guard hears of pages before their reader has them, and of no time when no pages are left, or no other client.
#[test]
fn gu1_the_guard_knows_the_files_with_pages_beside_other_clients() {
    let cluster = cluster(Wiring::Tcp);
    let fid = cluster_file(&cluster);
    let a = cluster.mount();
    let guard = Guarded::default();
    a.guard_by(Box::new(guard.clone()));
    let (handle, _) = a.open(fid, OpenFlags::read_only()).unwrap();
    let read = |fs: &Fs| fs.read_pages(handle, (0, 4096), false, false, &mut Buf::default()).unwrap();
    read(&a);
    assert!(!guard.is_told(fid), "a lone client's pages cannot become old");
    let b = cluster.mount();
    assert!(guard.is_told(fid), "what the kernel has from the time alone was told before another came in");
    let (writer, _) = b.open(fid, OpenFlags::read_write()).unwrap();
    b.write(writer, 0, b"new").unwrap();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let late = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < late, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("pages were dropped, and the guard was not told", &|| !guard.is_told(fid));
    read(&a);
    assert!(guard.is_told(fid));
    b.shutdown().unwrap();
    until("alone again, and the guard was not told", &|| !guard.is_told(fid));
}

/// A file with objects, made by a client that has left.
fn cluster_file(cluster: &Cluster) -> Fid {
    let maker = cluster.mount();
    let (attr, handle) =
        maker.create(Fid::ROOT, b"paged", 0o644, OpenFlags::read_write(), &Cred::root()).unwrap();
    maker.write(handle, 0, &[7; 300_000]).unwrap();
    maker.release(handle);
    maker.shutdown().unwrap();
    attr.fid
}
