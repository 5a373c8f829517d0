//! Small files that are made and removed before the MDT hears of it: what programs see, what is lost, and what is asked.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Fs, OpenFlags, SetAttr, Settings, fsck};
use common::{Cluster, MDT, SECRET, Wiring, pattern};
use disk::{Crash, SplitMix};
use net::{Answer, Service};
use types::{Attr, Code, Cred, Fault, Fid, Seq};
use wire::batch::Batch;
use wire::meta::{Create, CreateWith, LeaseDir};
use wire::{Empty, Header, ReplyHead, Request, Wire};

fn root() -> Cred {
    Cred::root()
}

/// Counts requests, and holds back or refuses some.
struct Door {
    mdt: Arc<dyn Service>,
    creates: AtomicUsize,
    shipped: AtomicUsize,
    leases: AtomicUsize,
    others: AtomicUsize,
    refuses: AtomicBool,
    /// Frames with changes get no answer in time.
    is_silent: AtomicBool,
}

impl Door {
    fn over(cluster: &Cluster) -> Arc<Door> {
        let door = Arc::new(Door {
            mdt: cluster.process(MDT),
            creates: AtomicUsize::new(0),
            shipped: AtomicUsize::new(0),
            leases: AtomicUsize::new(0),
            others: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        });
        cluster.hub.add(MDT, door.clone());
        door
    }
    fn take(count: &AtomicUsize) -> usize {
        count.swap(0, Ordering::SeqCst)
    }
}

impl Service for Door {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let ops =
            Batch::from_bytes(body).ok().filter(|_| head.call == Batch::CALL).map_or(0, |b| b.ops.len());
        let ships = ops > 0 || head.call == CreateWith::CALL;
        let count = match head.call {
            Create::CALL => &self.creates,
            LeaseDir::CALL => &self.leases,
            _ if ships => &self.shipped,
            _ => &self.others,
        };
        count.fetch_add(ops.max(1), Ordering::SeqCst);
        let code = match ships {
            true if self.refuses.load(Ordering::SeqCst) => Some(Code::NoSpace),
            true if self.is_silent.load(Ordering::SeqCst) => Some(Code::NotReady),
            _ => None,
        };
        match code {
            // Refusals of a whole batch have its requests sent one by one.
            Some(code) => {
                let fault = Fault::new(code, "this test says so");
                answer.body = wire::encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>);
            }
            None => self.mdt.serve(head, body, bulk, answer),
        }
    }
}

fn settings(cluster: &Cluster) -> Settings {
    Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() }
}

fn flags() -> OpenFlags {
    OpenFlags { exclusive: true, ..OpenFlags::read_write() }
}

/// A directory whose names the client has all.
fn known_dir(fs: &Fs, name: &[u8]) -> Fid {
    let dir = fs.mkdir(Fid::ROOT, name, 0o755, &root()).unwrap().fid;
    for n in 0..6 {
        assert_eq!(fs.lookup(dir, format!("none{n}").as_bytes()).unwrap_err().code, Code::NotFound);
    }
    dir
}

fn make(fs: &Fs, dir: Fid, name: &str, bytes: &[u8]) -> Attr {
    let (attr, h) = fs.create(dir, name.as_bytes(), 0o640, flags(), &root()).unwrap();
    if !bytes.is_empty() {
        assert_eq!(fs.write(h, 0, bytes).unwrap(), bytes.len());
    }
    fs.flush(h).unwrap();
    fs.release(h);
    let now = fs.getattr(attr.fid).unwrap();
    assert_eq!((now.size, now.fid, now.mode), (bytes.len() as u64, attr.fid, 0o640));
    now
}

/// A directory that the client has leased: its next change in it waits to be shipped.
fn leased_dir(fs: &Fs) -> Fid {
    let dir = known_dir(fs, b"d");
    (0..3).for_each(|n| _ = make(fs, dir, &format!("w{n}"), b"w"));
    fs.fsync_dir(dir).unwrap();
    dir
}

fn content(fs: &Fs, fid: Fid) -> Vec<u8> {
    let (h, attr) = fs.open(fid, OpenFlags::read_only()).unwrap();
    let bytes = common::read(fs, h, 0, attr.size as usize + 1).unwrap();
    fs.release(h);
    bytes
}

fn names(fs: &Fs, dir: Fid) -> Vec<String> {
    let page = fs.readdir(dir, 2, 10_000, false).unwrap();
    let mut all: Vec<_> = page.into_iter().map(|item| String::from_utf8(item.name).unwrap()).collect();
    all.sort();
    all
}

#[test]
fn many_small_files_cost_a_frame_for_each_32() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let door = Door::over(&cluster);
    let fs = cluster.mount_with(settings(&cluster));
    let dir = known_dir(&fs, b"d");
    make(&fs, dir, "first", b"1");
    make(&fs, dir, "second", b"22");
    Door::take(&door.others);
    assert_eq!((Door::take(&door.creates), Door::take(&door.leases), Door::take(&door.shipped)), (2, 0, 0));
    let mut made: Vec<(String, Vec<u8>, Attr)> = Vec::new();
    for n in 0..200_usize {
        let (name, bytes) = (format!("f{n}"), pattern(n as u64, n * 37 % 9000));
        let attr = make(&fs, dir, &name, &bytes);
        made.push((name, bytes, attr));
    }
    fs.fsync_dir(dir).unwrap();
    assert_eq!((Door::take(&door.creates), Door::take(&door.leases)), (0, 1));
    assert_eq!(Door::take(&door.shipped), 200, "in frames, each once");
    // The flush, and sizes and times of the directory are known here.
    let parent = fs.getattr(dir).unwrap();
    let others = Door::take(&door.others);
    assert!(others <= 4, "{others}: a flush, and signs of life");
    // All is at the MDT as it was told here.
    assert_eq!(common::inode(&cluster, dir).attr, parent, "client-U5");
    for (name, bytes, attr) in &made {
        assert_eq!(common::inode(&cluster, attr.fid).attr, *attr, "client-U5");
        assert_eq!(fs.lookup(dir, name.as_bytes()).unwrap(), *attr);
        assert!(content(&fs, attr.fid) == *bytes);
    }
    // Removed in frames, too.
    Door::take(&door.others);
    for (name, ..) in &made {
        fs.unlink(dir, name.as_bytes(), &root()).unwrap();
        assert_eq!(fs.lookup(dir, name.as_bytes()).unwrap_err().code, Code::NotFound);
    }
    assert_eq!(names(&fs, dir), ["first", "second"]);
    assert_eq!(Door::take(&door.shipped), 200);
    assert_eq!(fs.getattr(made[7].2.fid).map(|attr| attr.nlink), Ok(0), "a program may have had it in hand");
    fs.shutdown().unwrap();
}

/// Each kind of call sees what was changed here before it.
#[test]
fn what_waits_is_seen_by_every_call() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount_with(settings(&cluster));
    let dir = known_dir(&fs, b"d");
    (0..3).for_each(|n| _ = make(&fs, dir, &format!("w{n}"), b"w"));
    let all =
        || (0..3).map(|n| format!("w{n}")).chain(["a".into()]).collect::<std::collections::BTreeSet<_>>();
    let a = make(&fs, dir, "a", b"abc");
    assert_eq!(names(&fs, dir), all().into_iter().collect::<Vec<_>>());
    let b = make(&fs, dir, "b", b"");
    fs.rename(dir, b"b", dir, b"c", 0, &root()).unwrap();
    assert_eq!(fs.lookup(dir, b"c").unwrap().fid, b.fid);
    fs.link(a.fid, dir, b"again", &root()).unwrap();
    assert_eq!(fs.getattr(a.fid).unwrap().nlink, 2);
    let d = make(&fs, dir, "d", b"");
    fs.setattr(d.fid, &SetAttr { mode: Some(0o600), ..SetAttr::default() }, &root()).unwrap();
    assert_eq!(fs.lookup(dir, b"d").unwrap().mode, 0o600);
    let (_, h) = fs.create(dir, b"e", 0o640, flags(), &root()).unwrap();
    // Grown out of what lies inline, with a hole.
    assert_eq!(fs.write(h, 0, b"begin").unwrap(), 5);
    assert_eq!(fs.append(h, b" and more").unwrap(), 9);
    assert_eq!(common::read(&fs, h, 0, 99).unwrap(), b"begin and more");
    fs.write(h, 100, b"behind a hole").unwrap();
    fs.write(h, 100_000, b"end").unwrap();
    assert_eq!(common::read(&fs, h, 99_998, 99).unwrap(), b"\0\0end");
    fs.release(h);
    // A directory may have a lower inline limit.
    let low = known_dir(&fs, b"low");
    fs.setxattr(low, b"stria.layout", b"--inline 1000", 0, &root()).unwrap();
    for n in 0..8 {
        let attr = make(&fs, low, &format!("l{n}"), &pattern(n, 300 * n as usize));
        assert!(content(&fs, attr.fid) == pattern(n, 300 * n as usize));
    }
    let (_, h) = fs.create(dir, b"g", 0o640, flags(), &root()).unwrap();
    fs.setxattr(fs.lookup(dir, b"g").unwrap().fid, b"user.a", b"b", 0, &root()).unwrap();
    // Open files stay when they lose their name.
    fs.unlink(dir, b"g", &root()).unwrap();
    fs.write(h, 0, b"orphan").unwrap();
    assert_eq!(common::read(&fs, h, 0, 99).unwrap(), b"orphan");
    fs.release(h);
    make(&fs, dir, "x", b"x");
    assert_eq!(fs.rmdir(Fid::ROOT, b"d", &root()).unwrap_err().code, Code::NotEmpty);
    assert_eq!(fs.create(dir, b"x", 0o640, flags(), &root()).unwrap_err().code, Code::Exists);
    assert_eq!(fs.du(dir, &root()).map(|du| du.counts.own.files).unwrap(), names(&fs, dir).len() as u64 - 1);
    // A directory that gives its files more than a client can tell is not leased.
    fs.setattr(dir, &SetAttr { mode: Some(0o2755), gid: Some(77), ..SetAttr::default() }, &root()).unwrap();
    assert_eq!(make(&fs, dir, "grouped", b"").gid, 77);
    (0..4).for_each(|n| assert_eq!(make(&fs, dir, &format!("grouped{n}"), b"").gid, 77));
    fs.fsync_dir(dir).unwrap();
    assert_eq!(fsck::check_with_pause(&fs, &SECRET, Duration::from_millis(300)).unwrap().findings, []);
    fs.shutdown().unwrap();
}

/// Nothing that was acknowledged is lost when the MDT dies, before or after it has heard of it.
#[test]
fn a_kill_of_the_mdt_loses_no_change() {
    for seed in 0..6_u64 {
        let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
        let fs = cluster.mount_with(settings(&cluster));
        let dir = known_dir(&fs, b"d");
        let mut rng = SplitMix::new(seed);
        let mut want: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for n in 0..300_u64 {
            let name = format!("f{}", rng.next_u64() % 90);
            match want.remove(&name) {
                Some(_) => fs.unlink(dir, name.as_bytes(), &root()).unwrap(),
                None => {
                    let bytes = pattern(n, (rng.next_u64() % 5000) as usize);
                    make(&fs, dir, &name, &bytes);
                    want.insert(name, bytes);
                }
            }
            if n % 100 == 60 + seed {
                cluster.crash_mdt(if seed % 2 == 0 { Crash::DropAll } else { Crash::KeepAll });
            }
        }
        assert_eq!(names(&fs, dir), want.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
        for (name, bytes) in &want {
            let attr = fs.lookup(dir, name.as_bytes()).unwrap();
            assert!(content(&fs, attr.fid) == *bytes, "seed {seed}: {name}");
        }
        fs.fsync_dir(dir).unwrap();
        assert_eq!(fsck::check_with_pause(&fs, &SECRET, Duration::from_millis(300)).unwrap().findings, []);
        fs.shutdown().unwrap();
    }
}

/// What was fsynced is on the medium; of the rest a kill of the client and the MDT together leaves a beginning.
#[test]
fn what_was_fsynced_survives_client_and_power() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_with(settings(&cluster));
    let dir = known_dir(&fs, b"d");
    for n in 0..100 {
        let (_, h) = fs.create(dir, format!("f{n:03}").as_bytes(), 0o640, flags(), &root()).unwrap();
        fs.write(h, 0, format!("content {n}").as_bytes()).unwrap();
        if n == 70 {
            fs.fsync(h, false).unwrap();
        }
        fs.release(h);
    }
    fs.abort();
    drop(fs);
    cluster.lose_power();
    cluster.session_ttl = Duration::from_millis(300);
    let fs = cluster.mount();
    let dir = fs.lookup(Fid::ROOT, b"d").unwrap().fid;
    let left = names(&fs, dir);
    assert!(left.len() >= 71, "{}", left.len());
    for (n, name) in left.iter().enumerate() {
        assert_eq!(*name, format!("f{n:03}"), "in order");
        let fid = fs.lookup(dir, name.as_bytes()).unwrap().fid;
        assert_eq!(content(&fs, fid), format!("content {n}").as_bytes());
    }
    fs.shutdown().unwrap();
}

#[test]
fn a_change_that_the_mdt_refuses_is_told_by_fsync() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let door = Door::over(&cluster);
    let fs = cluster.mount_with(settings(&cluster));
    let dir = leased_dir(&fs);
    door.refuses.store(true, Ordering::SeqCst);
    let (attr, h) = fs.create(dir, b"lost", 0o640, flags(), &root()).unwrap();
    fs.write(h, 0, b"lost").unwrap();
    assert_eq!(fs.fsync(h, false).unwrap_err().code, Code::Io);
    assert_eq!(fs.flush(h).unwrap_err().code, Code::Io);
    fs.release(h);
    assert_eq!(fs.fsync_dir(dir).unwrap_err().code, Code::Io);
    door.refuses.store(false, Ordering::SeqCst);
    assert_eq!(fs.lookup(dir, b"lost").unwrap_err().code, Code::NotFound);
    assert_eq!(fs.getattr(attr.fid).unwrap_err().code, Code::Stale);
    make(&fs, dir, "lost", b"made again");
    fs.fsync_dir(dir).unwrap();
    fs.shutdown().unwrap();
}

#[test]
fn an_mdt_that_does_not_answer_delays_and_loses_nothing() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let door = Door::over(&cluster);
    let fs = cluster.mount_with(Settings { op_timeout: Duration::from_secs(2), ..settings(&cluster) });
    let dir = leased_dir(&fs);
    door.is_silent.store(true, Ordering::SeqCst);
    let made: Vec<_> = (0..50).map(|n| make(&fs, dir, &format!("f{n}"), &pattern(n, 500))).collect();
    fs.unlink(dir, b"f7", &root()).unwrap();
    // A call that must come after them ends by its deadline.
    assert_eq!(fs.fsync_dir(dir).unwrap_err().code, Code::Timeout);
    assert_eq!(fs.readdir(dir, 2, 1000, true).unwrap_err().code, Code::Timeout);
    std::thread::sleep(Duration::from_secs(4));
    door.is_silent.store(false, Ordering::SeqCst);
    fs.fsync_dir(dir).unwrap();
    assert_eq!(names(&fs, dir).len(), 52);
    for (n, attr) in made.iter().enumerate().filter(|(n, _)| *n != 7) {
        assert!(content(&fs, attr.fid) == pattern(n as u64, 500));
    }
    fs.shutdown().unwrap();
}

/// Before another client comes in, the MDT hears of everything.
#[test]
fn a_second_client_finds_all_of_it() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let a = cluster.mount_with(settings(&cluster));
    let dir = known_dir(&a, b"d");
    (0..100).for_each(|n| _ = make(&a, dir, &format!("f{n}"), &pattern(n, 700)));
    let (_, h) = a.create(dir, b"open", 0o640, flags(), &root()).unwrap();
    a.write(h, 0, b"in hand").unwrap();
    let b = cluster.mount_with(settings(&cluster));
    assert_eq!(names(&b, dir).len(), 101);
    for n in 0..100 {
        assert!(content(&b, b.lookup(dir, format!("f{n}").as_bytes()).unwrap().fid) == pattern(n, 700));
    }
    let fid = b.lookup(dir, b"open").unwrap().fid;
    assert_eq!(content(&b, fid), b"in hand");
    a.write(h, 7, b", still").unwrap();
    assert_eq!(content(&b, fid), b"in hand, still");
    b.unlink(dir, b"open", &root()).unwrap();
    assert_eq!(common::read(&a, h, 0, 99).unwrap(), b"in hand, still");
    a.release(h);
    [a, b].iter().for_each(|fs| fs.shutdown().unwrap());
}

#[test]
fn changes_of_a_session_that_was_ended_are_lost_and_told() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let door = Door::over(&cluster);
    let fs = cluster.mount_with(settings(&cluster));
    let dir = leased_dir(&fs);
    door.is_silent.store(true, Ordering::SeqCst);
    let (_, h) = fs.create(dir, b"lost", 0o640, flags(), &root()).unwrap();
    (0..40).for_each(|n| _ = fs.create(dir, format!("l{n}").as_bytes(), 0o640, flags(), &root()).unwrap());
    cluster.end_session(fs.session());
    door.is_silent.store(false, Ordering::SeqCst);
    _ = fs.getattr(dir);
    assert_eq!(fs.fsync_dir(dir).unwrap_err().code, Code::Io);
    // client-U8: also those that were under way.
    assert_eq!(fs.fsync(h, false).unwrap_err().code, Code::Io);
    assert_eq!(names(&fs, dir), ["w0", "w1", "w2"]);
    make(&fs, dir, "after", b"after");
    fs.fsync_dir(dir).unwrap();
    fs.shutdown().unwrap();
}

/// Random calls by several threads in two directories, against a model for each thread's own names.
#[test]
fn threads_make_and_remove_at_once() {
    let mut cluster = Cluster::new(Wiring::Tcp, 2);
    let fs = cluster.mount_with(settings(&cluster));
    let dirs = [known_dir(&fs, b"d"), known_dir(&fs, b"e")];
    let run = |thread: u64| {
        let mut rng = SplitMix::new(thread);
        let mut want: BTreeMap<(usize, String), (Fid, Vec<u8>)> = BTreeMap::new();
        for n in 0..400_u64 {
            let at = (rng.next_u64() % 2) as usize;
            let name = format!("t{thread}-{}", rng.next_u64() % 40);
            let key = (at, name.clone());
            match (rng.next_u64() % 10, want.get(&key).cloned()) {
                (0..=4, None) => {
                    let bytes = pattern(n, (rng.next_u64() % 3000) as usize);
                    let attr = make(&fs, dirs[at], &name, &bytes);
                    want.insert(key, (attr.fid, bytes));
                }
                (0..=4, Some(_)) => {
                    let again = fs.create(dirs[at], name.as_bytes(), 0o640, flags(), &root());
                    assert_eq!(again.unwrap_err().code, Code::Exists);
                }
                (5..=6, Some(_)) => {
                    fs.unlink(dirs[at], name.as_bytes(), &root()).unwrap();
                    want.remove(&key);
                }
                (7, Some((fid, bytes))) => assert!(content(&fs, fid) == bytes),
                (8, Some(has)) => {
                    let (to, new) = (1 - at, format!("t{thread}-{}", rng.next_u64() % 40));
                    if !want.contains_key(&(to, new.clone())) {
                        fs.rename(dirs[at], name.as_bytes(), dirs[to], new.as_bytes(), 0, &root()).unwrap();
                        want.remove(&key);
                        want.insert((to, new), has);
                    }
                }
                (_, found) => {
                    let seen = fs.lookup(dirs[at], name.as_bytes());
                    assert_eq!(seen.map(|attr| attr.fid).ok(), found.map(|(fid, _)| fid), "{name}");
                }
            }
        }
        want
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    fs.fsync_dir(dirs[0]).unwrap();
    cluster.crash_mdt(Crash::DropAll);
    let mut found = 0;
    for ((at, name), (fid, bytes)) in &all {
        assert_eq!(fs.lookup(dirs[*at], name.as_bytes()).unwrap().fid, *fid);
        assert!(content(&fs, *fid) == *bytes);
        found += 1;
    }
    assert_eq!(found, names(&fs, dirs[0]).len() + names(&fs, dirs[1]).len());
    assert_eq!(fsck::check_with_pause(&fs, &SECRET, Duration::from_millis(300)).unwrap().findings, []);
    fs.shutdown().unwrap();
}

/// Beside another client that idles, or works elsewhere, it is as alone; whoever comes to the directory finds all of it.
#[test]
fn a_directory_of_ones_own_beside_another_client() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let door = Door::over(&cluster);
    let (a, b) = (cluster.mount_with(settings(&cluster)), cluster.mount_with(settings(&cluster)));
    assert!(a.is_shared() && b.is_shared());
    let dir = known_dir(&a, b"d");
    assert_eq!(b.lookup(Fid::ROOT, b"d").unwrap().fid, dir);
    (0..3).for_each(|n| _ = make(&a, dir, &format!("w{n}"), b"w"));
    a.fsync_dir(dir).unwrap();
    Door::take(&door.creates);
    for n in 0..100 {
        make(&a, dir, &format!("f{n}"), &pattern(n, 700));
    }
    assert_eq!(Door::take(&door.creates), 0);
    // Times and size of the directory, its names, and a file of it, as the other asks first.
    let first: [&dyn Fn(u64); 4] = [
        &|n| {
            let mine = a.getattr(dir).unwrap();
            assert_eq!(b.getattr(dir).unwrap(), mine, "{n}");
        },
        &|n| assert_eq!(names(&b, dir).len() as u64, 104 + n),
        &|n| assert_eq!(content(&b, b.lookup(dir, format!("g{n}").as_bytes()).unwrap().fid), b"g"),
        &|n| {
            let found = b.readdir(Fid::ROOT, 2, 100, true).unwrap();
            assert_eq!(found[0].attr, Some(a.getattr(dir).unwrap()), "{n}");
        },
    ];
    for (n, look) in (0_u64..).zip(first) {
        // Since it was wanted it rests, so that changes are sent at once for a second.
        std::thread::sleep(Duration::from_millis(1200));
        (0..4).for_each(|m| _ = a.lookup(dir, format!("none{m}").as_bytes()));
        for m in 0..3 {
            if n > 0 && a.lookup(dir, format!("t{n}{m}").as_bytes()).is_ok() {
                continue;
            }
            let name = format!("t{n}{m}");
            make(&a, dir, &name, b"");
            a.unlink(dir, name.as_bytes(), &root()).unwrap();
        }
        make(&a, dir, &format!("g{n}"), b"g");
        look(n);
    }
    // The other makes a file there, and then both do.
    make(&b, dir, "of b", b"b");
    assert_eq!(a.create(dir, b"of b", 0o640, flags(), &root()).unwrap_err().code, Code::Exists);
    make(&a, dir, "of a", b"a");
    assert_eq!(b.create(dir, b"of a", 0o640, flags(), &root()).unwrap_err().code, Code::Exists);
    assert_eq!(b.rmdir(Fid::ROOT, b"d", &root()).unwrap_err().code, Code::NotEmpty);
    for name in names(&a, dir) {
        b.unlink(dir, name.as_bytes(), &root()).unwrap();
    }
    b.rmdir(Fid::ROOT, b"d", &root()).unwrap();
    assert_eq!(a.create(dir, b"x", 0o640, flags(), &root()).unwrap_err().code, Code::NotFound);
    [a, b].iter().for_each(|fs| fs.shutdown().unwrap());
}

/// Random calls of two clients in three directories against one model, one call after the other; the MDT is killed now and then.
#[test]
fn two_clients_see_each_others_changes_at_once() {
    for seed in 0..6_u64 {
        let mut cluster = Cluster::new(Wiring::Tcp, 1);
        // A loaded machine may keep a client back for longer than the usual life of a session in tests.
        cluster.sessions_live(Duration::from_millis(1500));
        let both = [cluster.mount_with(settings(&cluster)), cluster.mount_with(settings(&cluster))];
        let dirs = [known_dir(&both[0], b"d"), known_dir(&both[1], b"e"), known_dir(&both[0], b"f")];
        let mut rng = SplitMix::new(seed);
        let mut want: BTreeMap<(usize, String), (Fid, Vec<u8>)> = BTreeMap::new();
        // Clients work in a directory of their own for a while, and then look into others.
        let (mut shipped, mut who) = (0, 0);
        for n in 0..700_u64 {
            if rng.next_u64().is_multiple_of(25) {
                who = 1 - who;
            }
            let fs = &both[who];
            let at = if rng.next_u64().is_multiple_of(12) { (rng.next_u64() % 3) as usize } else { who };
            let name = format!("n{}", rng.next_u64() % 40);
            let key = (at, name.clone());
            let found = fs.lookup(dirs[at], name.as_bytes()).map(|attr| (attr.fid, attr.size));
            let has = want.get(&key).cloned();
            assert_eq!(
                found.ok(),
                has.as_ref().map(|(fid, bytes)| (*fid, bytes.len() as u64)),
                "seed {seed}, {n}"
            );
            match (rng.next_u64() % 12, has) {
                (0..=6, None) => {
                    let bytes = pattern(n, (rng.next_u64() % 3000) as usize);
                    let attr = make(fs, dirs[at], &name, &bytes);
                    want.insert(key, (attr.fid, bytes));
                    shipped += 1;
                }
                (0..=3, Some(_)) => {
                    fs.unlink(dirs[at], name.as_bytes(), &root()).unwrap();
                    want.remove(&key);
                }
                (4..=5, Some((fid, bytes))) => assert!(content(fs, fid) == bytes, "seed {seed}, {n}"),
                (6, Some(has)) => {
                    let (to, new) = ((at + 1) % 3, format!("n{}", rng.next_u64() % 40));
                    fs.rename(dirs[at], name.as_bytes(), dirs[to], new.as_bytes(), 0, &root()).unwrap();
                    want.remove(&key);
                    want.insert((to, new), has);
                }
                (7, Some((fid, mut bytes))) => {
                    let (h, _) = fs.open(fid, OpenFlags::read_write()).unwrap();
                    fs.append(h, b"more").unwrap();
                    fs.release(h);
                    bytes.extend(b"more");
                    want.insert(key, (fid, bytes));
                }
                (8, _) => {
                    let all: Vec<_> = want.keys().filter(|k| k.0 == at).map(|k| k.1.clone()).collect();
                    let mut all = all;
                    all.sort();
                    assert_eq!(names(fs, dirs[at]), all, "seed {seed}, {n}");
                }
                (9, _) => {
                    let (mine, others) =
                        (fs.getattr(dirs[at]).unwrap(), both[1 - who].getattr(dirs[at]).unwrap());
                    assert_eq!(mine, others, "seed {seed}, {n}");
                }
                _ => {}
            }
            if n % 233 == 200 {
                cluster.crash_mdt(if seed % 2 == 0 { Crash::DropAll } else { Crash::KeepAll });
            }
        }
        assert!(shipped > 50);
        for ((at, name), (fid, bytes)) in &want {
            for fs in &both {
                assert_eq!(fs.lookup(dirs[*at], name.as_bytes()).unwrap().fid, *fid);
                assert!(content(fs, *fid) == *bytes);
            }
        }
        both[0].fsync_dir(dirs[0]).unwrap();
        both[1].fsync_dir(dirs[0]).unwrap();
        let found = fsck::check_with_pause(&both[0], &SECRET, Duration::from_millis(300)).unwrap().findings;
        assert_eq!(found, [], "seed {seed}");
        both.iter().for_each(|fs| fs.shutdown().unwrap());
    }
}

/// A client that is gone loses what it had not shipped; others wait for it no longer than for its lease.
#[test]
fn a_dead_client_gives_its_directories_free() {
    let mut cluster = Cluster::new(Wiring::Tcp, 1);
    cluster.sessions_live(Duration::from_millis(700));
    let (a, b) = (cluster.mount_with(settings(&cluster)), cluster.mount_with(settings(&cluster)));
    let dir = leased_dir(&a);
    (0..10).for_each(|n| _ = make(&a, dir, &format!("f{n}"), b"f"));
    a.abort();
    drop(a);
    let left = names(&b, dir);
    assert!((3..=13).contains(&left.len()), "{left:?}");
    make(&b, dir, "new", b"new");
    assert_eq!(names(&b, dir).len(), left.len() + 1);
    b.shutdown().unwrap();
}
