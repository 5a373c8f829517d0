//! An OST is drained by one client while another one uses the files: no byte, hole or reserved page is lost, and no stale layout is used.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use client::drain::{How, Report, Why, drain};
use client::{Allocate, Fs, Handle, OpenFlags, Settings, Whence, fsck};
use common::{Cluster, MDT, SECRET, Wiring, inode, ost_target, pattern, read};
use disk::Crash;
use net::{Answer, Service};
use types::{Cred, Fid, MirrorId};
use wire::meta::{CutOver, Migrate};
use wire::object::List;
use wire::{Header, Request};

const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;
/// The OST that is drained.
const OFF: MirrorId = MirrorId(10);

fn cluster(osts: usize) -> Cluster {
    let mut cluster = Cluster::new(Wiring::Tcp, osts);
    cluster.sessions_live(Duration::from_millis(1500));
    cluster
}

fn mark(cluster: &mut Cluster, draining: bool) {
    cluster.map.version += 1;
    cluster.map.draining = if draining { vec![OFF] } else { vec![] };
    cluster.mdt.as_ref().unwrap().0.set_map(&cluster.map).expect("a newer map");
}

fn quick() -> How {
    let until = Some(Instant::now() + Duration::from_secs(20));
    How { page: 7, pause: (Duration::from_millis(20), Duration::from_millis(200)), until, ..How::TOOL }
}

fn run(fs: &Fs) -> Report {
    drain(fs, &SECRET, OFF, &quick(), &AtomicBool::new(false), &|_| ()).expect("drained")
}

fn make(fs: &Fs, name: &str, striping: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &Cred::root()).expect("create");
    if !striping.is_empty() {
        fs.setxattr(attr.fid, b"stria.layout", striping.as_bytes(), 0, &Cred::root()).expect("striping");
    }
    (attr.fid, h)
}

/// Mirrors that the file's layout names.
fn mirrors(cluster: &Cluster, fid: Fid) -> Vec<MirrorId> {
    let layout = inode(cluster, fid).layout;
    let mut all: Vec<_> = layout.iter().flat_map(|l| &l.components).flat_map(|c| c.mirrors.clone()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn objects_on(cluster: &Cluster, n: usize) -> usize {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let cap = object::cap::make_admin(&SECRET, now + 1000);
    let head = Header { fs: types::FsId(1), target: ost_target(n), ..Header::default() };
    let soon = Instant::now() + Duration::from_secs(10);
    let req = List { cap, after: None, max: 1000 };
    let said = net::rpc::call(&*cluster.peer(ost_target(n)), head, &req, &[], &mut types::Buf::new(), soon);
    said.expect("answered").2.expect("listed").objects.len()
}

fn check_sound(cluster: &Cluster) {
    let fs = cluster.mount_with(Settings { observer: true, ..cluster.settings() });
    let report = fsck::check_with_pause(&fs, &SECRET, Duration::from_millis(300)).expect("fsck");
    assert_eq!(report.findings, []);
}

/// [S-drained]
#[test]
fn a_drained_ost_is_empty_and_each_file_is_as_it_was() {
    let mut cluster = cluster(3);
    let a = cluster.mount();
    let mut files = Vec::new();
    for n in 0..6u64 {
        let (fid, h) = make(&a, &format!("one{n}"), "");
        let data = pattern(n, 100 * KIB + 7 * n as usize);
        a.write(h, 0, &data).unwrap();
        files.push((fid, h, data));
    }
    let (fid, h) = make(&a, "inline", "");
    a.write(h, 0, b"small").unwrap();
    files.push((fid, h, b"small".to_vec()));
    let (fid, wide) = make(&a, "wide", "-c -1 -S 64K");
    let data = pattern(50, 5 * MIB + 333);
    a.write(wide, 0, &data).unwrap();
    files.push((fid, wide, data));
    // Holes, and reserved pages within and behind the file.
    let (sparse, hs) = make(&a, "sparse", "-c -1 -S 64K");
    let mut data = vec![0; 3 * MIB];
    for at in [0, 200 * KIB, MIB, 3 * MIB - 5000] {
        let part = pattern(at as u64, 5000);
        a.write(hs, at as u64, &part).unwrap();
        data[at..at + 5000].copy_from_slice(&part);
    }
    a.fallocate(hs, 2 * MIB as u64, 300 * KIB as u64, Allocate::KeepSize).unwrap();
    a.fallocate(hs, 4 * MIB as u64, 300 * KIB as u64, Allocate::KeepSize).unwrap();
    files.push((sparse, hs, data));
    a.fsync(hs, false).unwrap();
    let holes = |fs: &Fs| {
        let (mut found, mut at) = (vec![], 0);
        while let Some(data) = fs.seek(hs, at, Whence::Data).unwrap() {
            let hole = fs.seek(hs, data, Whence::Hole).unwrap().unwrap();
            found.push((data, hole));
            at = hole;
        }
        found
    };
    let (before, before_attr) = (holes(&a), a.getattr(sparse).unwrap());
    assert!(before.len() == 4 && objects_on(&cluster, 0) > 3);
    mark(&mut cluster, true);
    let d = cluster.mount();
    let report = run(&d);
    assert!(report.is_empty() && report.files > 3 && report.repointed > 0, "{report:?}");
    assert_eq!((objects_on(&cluster, 0), report.left), (0, vec![]));
    for (fid, h, data) in &files {
        assert!(!mirrors(&cluster, *fid).contains(&OFF));
        assert!(read(&a, *h, 0, data.len() + 9).unwrap() == *data, "file {fid}");
    }
    let after = a.getattr(sparse).unwrap();
    assert_eq!(holes(&a), before);
    assert_eq!(
        (after.size, after.blocks, after.mtime, after.ctime),
        (before_attr.size, before_attr.blocks, before_attr.mtime, before_attr.ctime)
    );
    // New files, and parts of old ones that are written for the first time.
    let (fid, h) = make(&a, "new", "-c -1 -i 0");
    a.write(h, 0, &pattern(7, 9 * MIB)).unwrap();
    assert!(!mirrors(&cluster, fid).contains(&OFF));
    a.write(files[0].1, 70 * MIB as u64, b"far").unwrap();
    assert_eq!(
        (objects_on(&cluster, 0), read(&a, files[0].1, 70 * MIB as u64, 3).unwrap()),
        (0, b"far".to_vec())
    );
    drop(d);
    check_sound(&cluster);
}

/// client-MG4: a client that wrote to an OST, and has not heard that the drain flushed it, loses nothing with its removal.
#[test]
fn the_removal_of_a_drained_ost_loses_nothing() {
    let mut cluster = cluster(3);
    // It flushes nothing by itself.
    let a = cluster.mount_with(Settings { commit_interval: Duration::from_secs(60), ..cluster.settings() });
    let d = cluster.mount();
    let (fid, h) = make(&a, "open", "-c 1 -i 0");
    let (closed, hc) = make(&a, "closed", "-c 1 -i 0");
    let data = pattern(1, 300 * KIB);
    a.write(h, 0, &data).unwrap();
    a.write(hc, 0, &data).unwrap();
    a.release(hc);
    mark(&mut cluster, true);
    assert!(run(&d).is_empty());
    cluster.map.version += 1;
    cluster.map.draining.clear();
    cluster.map.mirrors.retain(|mirror| mirror.id != OFF);
    cluster.map.targets.retain(|target| target.mirror != OFF);
    cluster.map.ids_used.mirror = cluster.map.ids_used.mirror.max(MirrorId(10 + 3));
    assert!(cluster.map.is_removed(OFF));
    cluster.mdt.as_ref().unwrap().0.set_map(&cluster.map).expect("a newer map");
    a.set_map(cluster.map.clone());
    d.set_map(cluster.map.clone());
    // Time for the verdict.
    std::thread::sleep(Duration::from_millis(800));
    for fid in [fid, closed] {
        let (h, _) = a.open(fid, OpenFlags::read_write()).unwrap();
        assert!(read(&a, h, 0, data.len()).unwrap() == data, "file {fid}");
        a.fsync(h, false).expect("nothing was lost");
        a.append(h, b"more").unwrap();
        a.fsync(h, false).unwrap();
    }
    a.fsync(h, false).unwrap();
    drop(d);
    check_sound(&cluster);
}

/// A client goes on with the files that are open: its writes are in the new objects, and it reads nothing else.
#[test]
fn files_in_use_move_and_every_write_counts() {
    let mut cluster = cluster(3);
    let (a, d) = (cluster.mount(), cluster.mount());
    let files: Vec<_> = (0..4)
        .map(|n| {
            let (fid, h) = make(&a, &format!("f{n}"), if n % 2 == 0 { "-c 2 -S 64K -i 0" } else { "-i 0" });
            let data = pattern(n, 300 * KIB);
            a.write(h, 0, &data).unwrap();
            (fid, h, data)
        })
        .collect();
    mark(&mut cluster, true);
    let stop = Arc::new(AtomicBool::new(false));
    let users: Vec<_> = files
        .into_iter()
        .enumerate()
        .map(|(n, (fid, h, mut want))| {
            let (a, stop) = (a.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut rng = disk::SplitMix::new(n as u64);
                let mut rounds = 0;
                while !stop.load(Ordering::SeqCst) || rounds < 20 {
                    let (at, len) =
                        (rng.next_u64() as usize % (250 * KIB), 1 + rng.next_u64() as usize % 9000);
                    let data = pattern(rng.next_u64(), len);
                    if rounds % 3 == 0 {
                        a.append(h, &data).unwrap();
                        want.extend_from_slice(&data);
                    } else {
                        a.write(h, at as u64, &data).unwrap();
                        want[at..at + len].copy_from_slice(&data);
                    }
                    assert!(read(&a, h, at as u64, len).unwrap() == want[at..at + len], "file {fid}");
                    rounds += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
                (fid, h, want)
            })
        })
        .collect();
    let report = run(&d);
    stop.store(true, Ordering::SeqCst);
    let files: Vec<_> = users.into_iter().map(|user| user.join().unwrap()).collect();
    assert!(report.is_empty() && report.files >= 4, "{report:?}");
    for (fid, h, want) in &files {
        assert_eq!(a.getattr(*fid).unwrap().size, want.len() as u64);
        for (fs, h) in [(&a, *h), (&d, d.open(*fid, OpenFlags::read_only()).unwrap().0)] {
            assert!(read(fs, h, 0, want.len() + 1).unwrap() == *want, "file {fid}");
        }
        a.fsync(*h, false).unwrap();
        assert!(!mirrors(&cluster, *fid).contains(&OFF));
    }
    assert_eq!(objects_on(&cluster, 0), 0);
    check_sound(&cluster);
    // All is where it is durable.
    cluster.lose_power();
    for (_, h, want) in &files {
        assert!(read(&a, *h, 0, want.len() + 1).unwrap() == *want);
    }
}

/// A client that is alone keeps sizes and layouts itself. The drain ends that, and afterwards it is alone again with the new layouts.
#[test]
fn a_client_that_was_alone_before_and_after_writes_to_the_new_objects() {
    let mut cluster = cluster(2);
    let lazy = Settings { commit_interval: Duration::from_secs(600), ..cluster.settings() };
    let a = cluster.mount_with(lazy);
    let (fid, h) = make(&a, "f", "-i 0");
    let mut want = pattern(1, 400 * KIB);
    a.write(h, 0, &want).unwrap();
    let (gone, hg) = make(&a, "closed", "-i 0");
    a.write(hg, 0, &want).unwrap();
    a.release(hg);
    assert!(!a.is_shared() && mirrors(&cluster, fid).contains(&OFF));
    mark(&mut cluster, true);
    let d = cluster.mount();
    let report = run(&d);
    assert!(report.is_empty() && report.files == 2, "{report:?}");
    d.shutdown().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while a.is_shared() {
        assert!(Instant::now() < until, "it is alone again");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The client tells its size and times, though its layout is an old one.
    a.fsync(h, false).unwrap();
    a.write(h, 1000, b"more").unwrap();
    want[1000..1004].copy_from_slice(b"more");
    assert!(read(&a, h, 0, want.len()).unwrap() == want);
    a.append(h, b"end").unwrap();
    want.extend_from_slice(b"end");
    a.fsync(h, false).unwrap();
    assert_eq!((objects_on(&cluster, 0), mirrors(&cluster, gone)), (0, vec![MirrorId(11)]));
    cluster.lose_power();
    assert!(read(&a, h, 0, want.len() + 1).unwrap() == want);
    a.shutdown().unwrap();
    check_sound(&cluster);
}

#[test]
fn an_unlinked_file_is_waited_for_and_a_removed_mark_lets_objects_come_back() {
    let mut cluster = cluster(2);
    let (a, d) = (cluster.mount(), cluster.mount());
    let (_, h) = make(&a, "f", "-i 0");
    a.write(h, 0, &pattern(1, 100 * KIB)).unwrap();
    a.unlink(Fid::ROOT, b"f", &Cred::root()).unwrap();
    mark(&mut cluster, true);
    let how = How { until: Some(Instant::now() + Duration::from_millis(700)), ..quick() };
    let report = drain(&d, &SECRET, OFF, &how, &AtomicBool::new(false), &|_| ()).unwrap();
    assert!(!report.is_empty() && report.is_ended, "{report:?}");
    assert_eq!(report.left.iter().map(|left| left.why).collect::<Vec<_>>(), [Why::Unlinked]);
    a.release(h);
    assert!(run(&d).is_empty());
    mark(&mut cluster, false);
    let (fid, h) = make(&a, "g", "-i 0");
    a.write(h, 0, &pattern(1, 100 * KIB)).unwrap();
    assert_eq!(mirrors(&cluster, fid)[0], OFF);
}

/// The MDT, which dies at a call of a migration: before it, or after it with its answer lost.
struct Dies {
    mdt: Arc<dyn Service>,
    at: (u16, bool),
    met: AtomicU32,
}

impl Service for Dies {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let is_it = head.call == self.at.0 && self.met.load(Ordering::SeqCst) == 0;
        if is_it && !self.at.1 {
            self.met.store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(50));
        }
        self.mdt.serve(head, body, bulk, answer);
        if is_it && self.at.1 {
            self.met.store(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The MDT loses power while it begins or ends a migration; the drain goes on when it is back.
#[test]
fn a_power_loss_of_the_mdt_leaves_the_old_layout_or_the_new_one() {
    for (call, after) in [Migrate::CALL, CutOver::CALL].into_iter().flat_map(|c| [(c, false), (c, true)]) {
        let mut cluster = cluster(3);
        let (a, d) = (cluster.mount(), cluster.mount());
        let files: Vec<_> = (0..3u64)
            .map(|n| {
                let (fid, h) = make(&a, &format!("f{n}"), "-c -1 -S 64K");
                let data = pattern(n, 500 * KIB);
                a.write(h, 0, &data).unwrap();
                a.fsync(h, false).unwrap();
                (fid, h, data)
            })
            .collect();
        mark(&mut cluster, true);
        let dies = Arc::new(Dies { mdt: cluster.process(MDT), at: (call, after), met: AtomicU32::new(0) });
        cluster.hub.add(MDT, dies.clone());
        let drained = {
            let d = d.clone();
            std::thread::spawn(move || run(&d))
        };
        let until = Instant::now() + Duration::from_secs(10);
        while dies.met.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "the call comes");
            std::thread::sleep(Duration::from_millis(1));
        }
        cluster.crash_mdt(Crash::DropAll);
        let report = drained.join().unwrap();
        assert!(report.is_empty(), "{report:?}");
        for (fid, h, data) in &files {
            assert!(!mirrors(&cluster, *fid).contains(&OFF));
            assert!(read(&a, *h, 0, data.len() + 1).unwrap() == *data);
        }
        assert_eq!(objects_on(&cluster, 0), 0);
        check_sound(&cluster);
    }
}
