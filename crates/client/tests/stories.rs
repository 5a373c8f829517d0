//! Stories of one client and a cluster: what programs see, also when servers and power fail.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, SetAttr, Settings, fsck};
use common::{Cluster, SECRET, Wiring, ost_target, pattern, read};
use disk::Crash;
use types::{Buf, Code, Cred, Fid, Kind, ObjectId, Time};
use wire::meta::{RENAME_EXCHANGE, RENAME_NOREPLACE};

const MIB: usize = 1 << 20;

fn root() -> Cred {
    Cred::root()
}
fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, h) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &root()).expect(name);
    (attr.fid, h)
}
fn names(fs: &Fs, dir: Fid) -> Vec<String> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let page = fs.readdir(dir, cookie, 3, true).expect("readdir");
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        all.extend(page.into_iter().map(|i| String::from_utf8(i.name).expect("ours are ASCII")));
    }
    all.sort();
    all
}
fn check_clean(fs: &Fs) {
    // The purge of what was removed waits for the MDT's flush.
    fs.fsync_dir(Fid::ROOT).expect("fsync_dir");
    let pause = Duration::from_millis(300);
    let report = fsck::check_with_pause(fs, &SECRET, pause).expect("fsck");
    assert_eq!(report.findings, []);
}
fn both(story: fn(Wiring)) {
    story(Wiring::Local);
    story(Wiring::Tcp);
}

#[test]
fn names_behave_as_posix_says() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 2);
        let fs = cluster.mount();
        let d = fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).expect("mkdir");
        let (_, h) = fs.create(d.fid, b"f", 0o600, OpenFlags::read_write(), &root()).expect("create");
        fs.write(h, 0, b"hello").expect("write");
        let f = fs.lookup(d.fid, b"f").expect("lookup");
        assert_eq!((f.size, f.kind, f.mode, f.nlink), (5, Kind::File, 0o600, 1));
        assert_eq!(fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).unwrap_err().code, Code::Exists);
        assert_eq!(fs.link(f.fid, Fid::ROOT, b"g", &root()).expect("link").nlink, 2);
        let l = fs.symlink(d.fid, b"l", b"../g", &root()).expect("symlink");
        assert_eq!(fs.readlink(l.fid).expect("readlink"), b"../g");
        let p = fs.mknod(d.fid, b"p", Kind::Fifo, 0o644, 0, &root()).expect("mknod");
        assert_eq!(p.kind, Kind::Fifo);
        assert_eq!(names(&fs, d.fid), [".", "..", "f", "l", "p"]);
        let dots = fs.readdir(d.fid, 0, 10, false).expect("readdir");
        assert_eq!((dots[0].fid, dots[1].fid, dots[0].cookie, dots[1].cookie), (d.fid, Fid::ROOT, 1, 2));
        assert_eq!(fs.rmdir(Fid::ROOT, b"d", &root()).unwrap_err().code, Code::NotEmpty);
        let no = fs.rename(d.fid, b"f", d.fid, b"l", RENAME_NOREPLACE, &root());
        assert_eq!(no.unwrap_err().code, Code::Exists);
        fs.rename(d.fid, b"f", d.fid, b"p", RENAME_EXCHANGE, &root()).expect("exchange");
        assert_eq!(fs.lookup(d.fid, b"p").expect("lookup").fid, f.fid);
        fs.rename(d.fid, b"p", d.fid, b"f", 0, &root()).expect("replace");
        for name in [&b"f"[..], b"l"] {
            fs.unlink(d.fid, name, &root()).expect("unlink");
        }
        fs.rmdir(Fid::ROOT, b"d", &root()).expect("rmdir");
        assert_eq!(fs.lookup(Fid::ROOT, b"d").unwrap_err().code, Code::NotFound);
        assert_eq!(read(&fs, h, 0, 100).expect("read"), b"hello");
        fs.release(h);
        check_clean(&fs);
        fs.shutdown().expect("shutdown");
    });
}

#[test]
fn attributes_and_xattrs() {
    let cluster = Cluster::new(Wiring::Local, 2);
    let fs = cluster.mount();
    let (fid, h) = make(&fs, "f");
    let set =
        SetAttr { mode: Some(0o4711), uid: Some(7), mtime: Some(Time::new(5, 6)), ..SetAttr::default() };
    let attr = fs.setattr(fid, &set, &root()).expect("setattr");
    assert_eq!((attr.mode, attr.uid, attr.mtime), (0o4711, 7, Time::new(5, 6)));
    fs.setxattr(fid, b"user.a", b"1", 0, &root()).expect("setxattr");
    assert_eq!(fs.getxattr(fid, b"user.a").expect("getxattr"), b"1");
    assert_eq!(fs.listxattr(fid).expect("listxattr"), [b"user.a".to_vec()]);
    fs.removexattr(fid, b"user.a", &root()).expect("removexattr");
    assert_eq!(fs.getxattr(fid, b"user.a").unwrap_err().code, Code::NoData);
    assert_eq!(fs.getxattr(fid, b"stria.path").expect("path"), b"/f");
    assert_eq!(fs.getxattr(fid, b"stria.fid").expect("fid"), fid.to_string().into_bytes());
    assert_eq!(fs.setxattr(fid, b"stria.fid", b"1", 0, &root()).unwrap_err().code, Code::Perm);
    let df = String::from_utf8(fs.getxattr(fid, b"stria.df").expect("df")).expect("text");
    assert_eq!(df.matches("\"kind\":\"ost\"").count(), 2, "{df}");
    let stat = fs.statfs().expect("statfs");
    assert!(stat.bytes_total > 0 && stat.bytes_available <= stat.bytes_total && stat.files_free > 0);
    // A time set by hand is not overtaken by the settling of writes that came before it.
    fs.write(h, 0, &pattern(1, 200_000)).expect("write");
    let set = SetAttr { mtime: Some(Time::new(9, 0)), ..SetAttr::default() };
    fs.setattr(fid, &set, &root()).expect("setattr");
    fs.fsync(h, false).expect("fsync");
    assert_eq!(fs.getattr(fid).expect("getattr").mtime, Time::new(9, 0));
}

#[test]
fn a_target_that_lost_what_it_said_was_flushed_is_found_out() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let (data, more) = (pattern(1, 200_000), pattern(2, 200_000));
    let (_, safe) = make(&fs, "safe");
    fs.write(safe, 0, &data).unwrap();
    fs.fsync(safe, false).unwrap();
    // 1. The medium as it is now is what a lying disk goes back to, whatever it says of flushes from here on.
    let liar = Arc::new(cluster.ost_disk(0).crash(Crash::KeepAll));
    let (_, lost) = make(&fs, "lost");
    for n in 0..20 {
        fs.write(lost, n * 200_000, &data).unwrap();
    }
    fs.fsync(lost, false).unwrap();
    cluster.stop_ost(0, Crash::KeepAll);
    cluster.restart_ost(0, liar);
    // 2. The client hears of it with its next request: the file that lost bytes says so, the others go on.
    fs.write(safe, 0, &more).unwrap();
    assert_eq!(fs.fsync(lost, false).unwrap_err().code, Code::Io);
    assert_eq!(fs.flush(lost).unwrap_err().code, Code::Io);
    // 3. What is written from now on is flushed when fsync says so, though its entries have numbers that were flushed once.
    fs.fsync(safe, false).unwrap();
    let (_, new) = make(&fs, "new");
    fs.write(new, 0, &more).unwrap();
    fs.fsync(new, false).unwrap();
    fs.abort();
    cluster.lose_power();
    std::thread::sleep(cluster.session_ttl);
    let fs = cluster.mount();
    for name in [&b"safe"[..], b"new"] {
        let fid = fs.lookup(Fid::ROOT, name).unwrap().fid;
        let (h, _) = fs.open(fid, OpenFlags::read_only()).unwrap();
        assert!(read(&fs, h, 0, 200_000).unwrap() == more);
    }
}

#[test]
fn striping_is_set_and_shown() {
    let cluster = Cluster::new(Wiring::Local, 3);
    let fs = cluster.mount();
    let d = fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).expect("mkdir").fid;
    let spec = b"-E 1M -c 1 -S 64K -E -1 -c 3 -S 64K --inline 0";
    fs.setxattr(d, b"stria.layout", spec, 0, &root()).expect("setstripe");
    let shown = fs.getxattr(d, b"stria.layout").expect("getstripe");
    assert_eq!(
        plan::stripe::parse(std::str::from_utf8(&shown).expect("text")).expect("parses").components.len(),
        2
    );
    let bad = fs.setxattr(d, b"stria.layout", b"-S 5K", 0, &root()).unwrap_err();
    assert!(bad.code == Code::Invalid && bad.detail.contains("'5K'"), "{bad}");
    let (attr, h) = fs.create(d, b"f", 0o644, OpenFlags::read_write(), &root()).expect("create");
    let data = pattern(3, 3 * MIB + 77);
    fs.write(h, 5, &data).expect("write");
    assert_eq!(read(&fs, h, 5, data.len()).expect("read"), data);
    let text = String::from_utf8(fs.getxattr(attr.fid, b"stria.layout").expect("getstripe")).expect("text");
    assert!(text.contains("lcm_entry_count:   2") && text.contains("lmm_stripe_count:  3"), "{text}");
    assert!(fs.layout_shown(attr.fid, plan::show::yaml).expect("yaml").contains("stripe_size: 65536"));
    let planned = String::from_utf8(fs.getxattr(d, b"stria.layout.text").expect("text")).expect("text");
    assert!(planned.contains("-E 1M -c 1 -S 64K") && planned.contains("stripe_count:  3"), "{planned}");
    fs.removexattr(d, b"stria.layout", &root()).expect("remove");
    assert_eq!(fs.getxattr(d, b"stria.layout").unwrap_err().code, Code::NoData);
    fs.release(h);
    fs.shutdown().expect("shutdown");
}

/// One file against a vector: random writes, appends, reads, truncates, fsyncs, reopens.
fn model_story(wiring: Wiring, inline_max: u32, seed: u64) {
    let cluster = Cluster::with_inline_max(wiring, 3, inline_max);
    let fs = cluster.mount();
    let spec = b"-E 256K -c 1 -S 64K -E -1 -c 3 -S 64K";
    fs.setxattr(Fid::ROOT, b"stria.layout", spec, 0, &root()).expect("setstripe");
    let (fid, mut h) = make(&fs, "f");
    let mut model: Vec<u8> = Vec::new();
    let mut rng = disk::SplitMix::new(seed);
    for step in 0..120 {
        let at = rng.below(700_000) as usize;
        let longest = if rng.below(4) == 0 { 300_000 } else { 9000 };
        let len = 1 + rng.below(longest) as usize;
        match rng.below(12) {
            0..=4 => {
                let data = pattern(seed * 1000 + step, len);
                fs.write(h, at as u64, &data).expect("write");
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].copy_from_slice(&data);
            }
            5..=7 => {
                let want = &model[at.min(model.len())..(at + len).min(model.len())];
                assert!(
                    read(&fs, h, at as u64, len).expect("read") == want,
                    "seed {seed} step {step} at {at} len {len}"
                );
            }
            8 => {
                let size = if rng.below(3) == 0 { 0 } else { at };
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                assert_eq!(fs.setattr(fid, &set, &root()).expect("truncate").size, size as u64);
                model.resize(size, 0);
            }
            9 => fs.fsync(h, rng.below(2) == 0).expect("fsync"),
            10 => {
                let flags = OpenFlags { append: true, ..OpenFlags::read_write() };
                let (h, _) = fs.open(fid, flags).expect("open");
                let data = pattern(seed * 7000 + step, 5000);
                fs.write(h, 0, &data).expect("append");
                model.extend_from_slice(&data);
                fs.release(h);
            }
            _ => {
                fs.release(h);
                h = fs.open(fid, OpenFlags::read_write()).expect("open").0;
            }
        }
        assert_eq!(fs.getattr(fid).expect("getattr").size, model.len() as u64, "seed {seed} step {step}");
    }
    assert!(read(&fs, h, 0, model.len() + 10).expect("read") == model, "seed {seed}");
    fs.release(h);
    fs.shutdown().expect("shutdown");
    // Another client finds the same.
    let fs = cluster.mount();
    let attr = fs.lookup(Fid::ROOT, b"f").expect("lookup");
    assert_eq!(attr.size, model.len() as u64);
    let (h, _) = fs.open(fid, OpenFlags::read_only()).expect("open");
    assert!(read(&fs, h, 0, model.len()).expect("read") == model, "seed {seed}, second mount");
    check_clean(&fs);
}

#[test]
fn a_file_is_what_was_written_to_it() {
    model_story(Wiring::Local, 65536, 1);
    model_story(Wiring::Local, 0, 2);
    model_story(Wiring::Tcp, 65536, 3);
}

#[test]
fn holes_read_as_zeros_and_sizes_are_exact() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 2);
        let fs = cluster.mount();
        let (fid, h) = make(&fs, "sparse");
        fs.write(h, 70 << 20, b"end").expect("write");
        let attr = fs.getattr(fid).expect("getattr");
        assert_eq!(attr.size, (70 << 20) + 3);
        assert_eq!(read(&fs, h, (70 << 20) - 4, 100).expect("read"), b"\0\0\0\0end");
        assert_eq!(read(&fs, h, 0, 3 * MIB).expect("read"), vec![0; 3 * MIB]);
        fs.release(h);
        fs.shutdown().expect("shutdown");
        let fs = cluster.mount();
        let attr = fs.getattr(fid).expect("getattr");
        assert!(attr.size == (70 << 20) + 3 && attr.blocks * 512 < MIB as u64, "{attr:?}");
    });
}

#[test]
fn what_was_fsynced_survives_the_loss_of_all_power() {
    both(|wiring| {
        let mut cluster = Cluster::quiet(wiring, 3);
        let fs = cluster.mount_lazy();
        let (small, big) = (pattern(1, 3000), pattern(2, 2 * MIB + 5));
        let (_, hs) = make(&fs, "small");
        fs.write(hs, 0, &small).expect("write");
        fs.fsync(hs, false).expect("fsync");
        let (_, hb) = make(&fs, "big");
        fs.write(hb, 0, &big).expect("write");
        fs.fsync(hb, true).expect("fdatasync");
        fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).expect("mkdir");
        fs.fsync_dir(Fid::ROOT).expect("fsync_dir");
        fs.abort();
        cluster.lose_power();
        std::thread::sleep(cluster.session_ttl);
        let fs = cluster.mount();
        assert_eq!(names(&fs, Fid::ROOT), [".", "..", "big", "d", "small"]);
        for (name, want) in [("small", &small), ("big", &big)] {
            let attr = fs.lookup(Fid::ROOT, name.as_bytes()).expect(name);
            assert_eq!(attr.size, want.len() as u64);
            let (h, _) = fs.open(attr.fid, OpenFlags::read_only()).expect("open");
            assert!(&read(&fs, h, 0, want.len()).expect("read") == want, "{name}");
        }
    });
}

#[test]
fn the_background_settles_what_nobody_fsyncs() {
    let mut cluster = Cluster::quiet(Wiring::Local, 2);
    let fs = cluster.mount();
    let (fid, h) = make(&fs, "f");
    let data = pattern(9, 300_000);
    fs.write(h, 0, &data).expect("write");
    fs.release(h);
    // Told to the MDT after the OSTs' flush; its own flush is what fsync_dir does here.
    let until = Instant::now() + Duration::from_secs(5);
    let observer = cluster.mount_with(Settings { observer: true, ..cluster.settings() });
    while observer.getattr(fid).expect("getattr").size != data.len() as u64 {
        assert!(Instant::now() < until, "not settled");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs.fsync_dir(Fid::ROOT).expect("fsync_dir");
    fs.abort();
    cluster.lose_power();
    std::thread::sleep(cluster.session_ttl);
    let fs = cluster.mount();
    let (h, _) = fs.open(fid, OpenFlags::read_only()).expect("open");
    assert!(read(&fs, h, 0, data.len()).expect("read") == data);
}

#[test]
fn a_restarted_target_is_sent_again_what_it_lost() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 3);
    let fs = cluster.mount_lazy();
    let (fid, h) = make(&fs, "f");
    let mut data = pattern(4, 3 * MIB);
    fs.write(h, 0, &data).expect("write");
    // Overlapping writes: their order matters.
    for n in 0..5u8 {
        let at = 100_000 * n as usize;
        data[at..at + 200_000].fill(n);
        fs.write(h, at as u64, &vec![n; 200_000]).expect("write");
    }
    for n in 0..3 {
        cluster.crash_ost(n, Crash::DropAll);
    }
    assert!(read(&fs, h, 0, data.len()).expect("read") == data, "after the OSTs' restart");
    // Names too, with the fids that they had.
    let d = fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).expect("mkdir").fid;
    let (inner, hi) = {
        let (a, h) = fs.create(d, b"inner", 0o644, OpenFlags::read_write(), &root()).expect("create");
        (a.fid, h)
    };
    fs.write(hi, 0, b"inline").expect("write");
    cluster.crash_mdt(Crash::DropAll);
    assert_eq!(fs.lookup(Fid::ROOT, b"d").expect("lookup").fid, d);
    assert_eq!(fs.lookup(d, b"inner").expect("lookup").fid, inner);
    assert_eq!(read(&fs, hi, 0, 10).expect("read"), b"inline");
    assert_eq!(fs.getattr(fid).expect("getattr").size, data.len() as u64);
    fs.fsync(h, false).expect("fsync");
    fs.fsync(hi, false).expect("fsync");
    fs.abort();
    cluster.lose_power();
    std::thread::sleep(cluster.session_ttl);
    let fs = cluster.mount();
    let (h, _) = fs.open(fid, OpenFlags::read_only()).expect("open");
    assert!(read(&fs, h, 0, data.len()).expect("read") == data, "after the loss of all power");
    check_clean(&fs);
}

#[test]
fn acknowledged_bytes_that_are_lost_for_good_are_an_error_and_never_silence() {
    // Nothing is kept for targets in this process: if one restarts alone, its unflushed bytes are gone.
    let mut cluster = Cluster::quiet(Wiring::Local, 1);
    let fs = cluster.mount_lazy();
    let (_, h) = make(&fs, "f");
    fs.write(h, 0, &pattern(4, MIB)).expect("write");
    cluster.crash_ost(0, Crash::DropAll);
    assert_eq!(fs.fsync(h, false).unwrap_err().code, Code::Io);
    assert_eq!(fs.flush(h).unwrap_err().code, Code::Io, "close tells too");
    assert_eq!(read(&fs, h, 0, 10).unwrap_err().code, Code::Io);
    fs.release(h);
    // Another file is fine.
    let (_, h) = make(&fs, "g");
    fs.write(h, 0, &pattern(5, MIB)).expect("write");
    fs.fsync(h, false).expect("fsync");
}

#[test]
fn a_dead_clients_file_is_recovered_by_who_finds_it() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 3);
        let fs = cluster.mount_lazy();
        let data = pattern(6, 2 * MIB + 123);
        let (fid, h) = make(&fs, "f");
        fs.write(h, 0, &data).expect("write");
        fs.abort();
        let impatient = client::Settings { op_timeout: cluster.session_ttl / 4, ..cluster.settings() };
        assert_eq!(cluster.try_mount(impatient).err().map(|f| f.code), Some(Code::Timeout));
        std::thread::sleep(cluster.session_ttl + Duration::from_millis(100));
        let fs = cluster.mount();
        assert_eq!(fs.lookup(Fid::ROOT, b"f").expect("lookup").size, data.len() as u64);
        let (h, attr) = fs.open(fid, OpenFlags::read_write()).expect("open");
        assert_eq!(attr.size, data.len() as u64);
        assert!(read(&fs, h, 0, data.len()).expect("read") == data);
        fs.write(h, data.len() as u64, b"more").expect("write");
        fs.release(h);
        fs.shutdown().expect("shutdown");
        check_clean(&cluster.mount());
    });
}

#[test]
fn an_unlinked_file_lives_until_its_last_close() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 2);
        let fs = cluster.mount();
        let data = pattern(7, MIB + 9);
        for name in ["a", "b"] {
            let (fid, h) = make(&fs, name);
            fs.write(h, 0, &data).expect("write");
            match name {
                "a" => fs.unlink(Fid::ROOT, b"a", &root()).expect("unlink"),
                _ => {
                    let (_, other) = make(&fs, "other");
                    fs.release(other);
                    fs.rename(Fid::ROOT, b"other", Fid::ROOT, b"b", 0, &root()).expect("rename")
                }
            }
            assert_eq!(fs.getattr(fid).expect("getattr").nlink, 0);
            fs.write(h, 0, b"still").expect("write");
            fs.fsync(h, false).expect("fsync");
            assert_eq!(read(&fs, h, 0, 5).expect("read"), b"still");
            assert!(read(&fs, h, 5, data.len()).expect("read") == data[5..]);
            fs.release(h);
            // What lost its name may be on another call's way for a second; then `stat` knows of it only.
            let until = std::time::Instant::now() + Duration::from_secs(10);
            let is_there = || fs.open(fid, OpenFlags::read_only()).map(|(h, _)| fs.release(h)).is_ok();
            while is_there() && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(!is_there());
        }
        fs.fsync_dir(Fid::ROOT).expect("the purge waits for the flush");
        check_clean(&fs);
        fs.shutdown().expect("shutdown");
    });
}

#[test]
fn a_missing_object_is_damage_and_not_zeros() {
    let cluster = Cluster::with_inline_max(Wiring::Local, 1, 0);
    let fs = cluster.mount();
    let (fid, h) = make(&fs, "f");
    fs.write(h, 0, &pattern(8, 10_000)).expect("write");
    fs.fsync(h, false).expect("fsync");
    let object = ObjectId { fid, generation: types::Generation(1), component: 0, stripe: 0, snapshot: 0 };
    let cap = object::cap::make_admin(&SECRET, u64::MAX);
    let head = wire::Header { fs: types::FsId(1), target: ost_target(0), ..Default::default() };
    let destroy = wire::object::Destroy { cap: cap.clone(), objects: vec![object] };
    let soon = Instant::now() + Duration::from_secs(5);
    let peer = cluster.peer(ost_target(0));
    net::rpc::call(&*peer, head, &destroy, &[], &mut Buf::new(), soon).expect("sent").2.expect("destroyed");
    assert_eq!(read(&fs, h, 0, 100).unwrap_err().code, Code::Damaged);
    let list = wire::object::DamageList { cap };
    let said =
        net::rpc::call(&*peer, head, &list, &[], &mut Buf::new(), soon).expect("sent").2.expect("listed");
    assert!(said.damage.iter().any(|d| d.object == object && d.kind == 2), "{:?}", said.damage);
    let report = fsck::check_with_pause(&fs, &SECRET, Duration::from_millis(10)).expect("fsck");
    let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.path.as_str())).collect();
    assert_eq!(found, [(fsck::Problem::MissingObject, "/f")]);
}

#[test]
fn a_dead_target_costs_no_more_than_the_time_out_and_its_requests_cannot_come_late() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    let settings = Settings { op_timeout: Duration::from_millis(700), ..cluster.settings() };
    let fs = cluster.mount_with(settings);
    let (fid, h) = make(&fs, "f");
    fs.write(h, 0, b"first").expect("write");
    let image = cluster.stop_ost(0, Crash::KeepAll);
    let begin = Instant::now();
    assert_eq!(fs.write(h, 0, b"given up").unwrap_err().code, Code::Timeout);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    cluster.restart_ost(0, image);
    fs.write(h, 0, b"second").expect("write");
    assert_eq!(&read(&fs, h, 0, 6).expect("read"), b"second");
    fs.fsync(h, false).expect("fsync");
    assert_eq!(&read(&fs, h, 0, 6).expect("read"), b"second");
    assert!(fs.getattr(fid).expect("getattr").size >= 6);
}

#[test]
fn abort_ends_waiting_calls_at_once() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    let fs = cluster.mount();
    let (_, h) = make(&fs, "f");
    fs.write(h, 0, b"first").expect("write");
    let _image = cluster.stop_ost(0, Crash::KeepAll);
    let (writer, begin) = (fs.clone(), Instant::now());
    let waiting = std::thread::spawn(move || writer.write(h, 0, b"never"));
    std::thread::sleep(Duration::from_millis(100));
    fs.abort();
    assert!(waiting.join().expect("no panic").is_err());
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[test]
fn an_observer_reads_names_and_changes_nothing() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount();
    make(&fs, "f");
    let observer = cluster.mount_with(Settings { observer: true, ..cluster.settings() });
    assert_eq!(names(&observer, Fid::ROOT), [".", "..", "f"]);
    assert_eq!(observer.mkdir(Fid::ROOT, b"d", 0o755, &root()).unwrap_err().code, Code::ReadOnly);
    assert!(observer.statfs().is_ok());
    check_clean(&observer);
}

#[test]
fn many_threads_share_a_file_and_a_directory() {
    both(|wiring| {
        let cluster = Cluster::new(wiring, 3);
        let fs = cluster.mount();
        let (fid, shared) = make(&fs, "shared");
        let threads: Vec<_> = (0..4u8)
            .map(|t| {
                let fs: Arc<Fs> = fs.clone();
                std::thread::spawn(move || {
                    for n in 0..12u64 {
                        let own = format!("t{t}.{n}");
                        let (_, h) = make(&fs, &own);
                        fs.write(h, 0, own.as_bytes()).expect("write");
                        fs.release(h);
                        // Every thread's slice of the shared file, through a descriptor of its own.
                        let (h, _) = fs.open(fid, OpenFlags::read_write()).expect("open");
                        let at = (n * 4 + t as u64) * 50_000;
                        fs.write(h, at, &[t + 1; 50_000]).expect("write");
                        assert_eq!(read(&fs, h, at, 50_000).expect("read"), [t + 1; 50_000]);
                        if n % 4 == 0 {
                            fs.fsync(h, false).expect("fsync");
                        }
                        fs.release(h);
                        if n % 3 == 0 {
                            fs.unlink(Fid::ROOT, own.as_bytes(), &root()).expect("unlink");
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
        let all = read(&fs, shared, 0, 48 * 50_000 + 1).expect("read");
        assert_eq!(all.len(), 48 * 50_000);
        assert!(all.chunks(50_000).enumerate().all(|(n, c)| c.iter().all(|b| *b == (n % 4) as u8 + 1)));
        assert_eq!(names(&fs, Fid::ROOT).len(), 3 + 4 * 8);
        fs.release(shared);
        fs.fsync_dir(Fid::ROOT).expect("fsync_dir");
        check_clean(&fs);
        fs.shutdown().expect("shutdown");
    });
}

/// Writers go on while every server is killed again and again with nothing unflushed left: no acknowledged byte is missing.
#[test]
fn writers_do_not_notice_servers_that_restart() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 2);
    // Room for a few requests only: past it a writer flushes.
    let fs = cluster.mount_with(Settings { retain_bytes_max: MIB, ..cluster.settings() });
    let writers: Vec<_> = (0..3u64)
        .map(|t| {
            let fs: Arc<Fs> = fs.clone();
            std::thread::spawn(move || {
                let (fid, mut h) = make(&fs, &format!("w{t}"));
                let mut model: Vec<u8> = Vec::new();
                let mut rng = disk::SplitMix::new(t + 77);
                for step in 0..150 {
                    let (at, len) = (rng.below(400_000) as usize, 1 + rng.below(40_000) as usize);
                    let data = pattern(t * 1000 + step, len);
                    fs.write(h, at as u64, &data).expect("write");
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].copy_from_slice(&data);
                    match step % 50 {
                        17 => fs.fsync(h, false).expect("fsync"),
                        33 => {
                            let size = rng.below(300_000);
                            let set = SetAttr { size: Some(size), ..SetAttr::default() };
                            fs.setattr(fid, &set, &root()).expect("truncate");
                            model.resize(size as usize, 0);
                        }
                        40 => {
                            fs.release(h);
                            h = fs.open(fid, OpenFlags::read_write()).expect("open").0;
                        }
                        _ => {}
                    }
                    assert!(
                        read(&fs, h, 0, model.len() + 1).expect("read") == model,
                        "writer {t} step {step}"
                    );
                }
                fs.fsync(h, false).expect("fsync");
                fs.release(h);
                (fid, model)
            })
        })
        .collect();
    let mut round = 0;
    while writers.iter().any(|w| !w.is_finished()) {
        std::thread::sleep(Duration::from_millis(30));
        match round % 3 {
            2 => cluster.crash_mdt(Crash::DropAll),
            n => cluster.crash_ost(n, Crash::DropAll),
        }
        round += 1;
    }
    let models: Vec<_> = writers.into_iter().map(|w| w.join().expect("no panic")).collect();
    assert!(round > 3, "servers were killed {round} times");
    fs.abort();
    cluster.lose_power();
    std::thread::sleep(cluster.session_ttl + Duration::from_millis(100));
    let fs = cluster.mount();
    for (fid, model) in models {
        assert_eq!(fs.getattr(fid).expect("getattr").size, model.len() as u64);
        let (h, _) = fs.open(fid, OpenFlags::read_only()).expect("open");
        assert!(read(&fs, h, 0, model.len()).expect("read") == model);
        fs.release(h);
    }
}

#[test]
fn a_shrink_that_was_interrupted_is_finished_before_anything_else() {
    let mut cluster = Cluster::with_inline_max(Wiring::Tcp, 1, 0);
    let settings = Settings { op_timeout: Duration::from_millis(600), ..cluster.settings() };
    let fs = cluster.mount_with(settings);
    let (fid, h) = make(&fs, "f");
    let data = pattern(1, 100_000);
    fs.write(h, 0, &data).expect("write");
    fs.fsync(h, false).expect("fsync");
    let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    // The same client goes on.
    let image = cluster.stop_ost(0, Crash::KeepAll);
    assert_eq!(fs.setattr(fid, &set(5000), &root()).unwrap_err().code, Code::Timeout);
    cluster.restart_ost(0, image);
    assert_eq!(read(&fs, h, 0, 200_000).expect("read"), data[..5000]);
    fs.setattr(fid, &set(20_000), &root()).expect("extend");
    let got = read(&fs, h, 0, 200_000).expect("read");
    assert!(got[..5000] == data[..5000] && got[5000..] == [0; 15_000], "no old bytes come back");
    // The client dies in the middle, and another finds it.
    fs.fsync(h, false).expect("fsync");
    let image = cluster.stop_ost(0, Crash::KeepAll);
    assert_eq!(fs.setattr(fid, &set(3000), &root()).unwrap_err().code, Code::Timeout);
    fs.abort();
    cluster.restart_ost(0, image);
    std::thread::sleep(cluster.session_ttl + Duration::from_millis(200));
    let fs = cluster.mount();
    assert_eq!(fs.lookup(Fid::ROOT, b"f").expect("lookup").size, 3000);
    let (h, _) = fs.open(fid, OpenFlags::read_write()).expect("open");
    assert_eq!(read(&fs, h, 0, 200_000).expect("read"), data[..3000]);
    fs.setattr(fid, &set(10_000), &root()).expect("extend");
    assert!(read(&fs, h, 0, 200_000).expect("read")[3000..] == [0; 7000]);
    fs.release(h);
    fs.shutdown().expect("shutdown");
    check_clean(&cluster.mount());
}

/// [S-replay] A file that was put is there with all its content, or is put again.
#[test]
fn what_was_put_survives_its_server() {
    for crash in [Crash::KeepAll, Crash::DropAll] {
        let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
        let fs = cluster.mount_lazy();
        let put = |fs: &Fs, name: &str| fs.put(Fid::ROOT, name.as_bytes(), 0o644, name.as_bytes(), &root());
        let first = put(&fs, "first").expect("put").fid;
        cluster.crash_mdt(crash);
        put(&fs, "second").expect("put");
        fs.rename(Fid::ROOT, b"second", Fid::ROOT, b"moved", 0, &root()).expect("rename");
        cluster.crash_mdt(crash);
        assert_eq!(names(&fs, Fid::ROOT), [".", "..", "first", "moved"], "{crash:?}");
        assert_eq!(fs.lookup(Fid::ROOT, b"first").expect("lookup").fid, first);
        for (name, want) in [("first", "first"), ("moved", "second")] {
            let fid = fs.lookup(Fid::ROOT, name.as_bytes()).expect("lookup").fid;
            let (h, _) = fs.open(fid, OpenFlags::read_only()).expect("open");
            assert_eq!(read(&fs, h, 0, 99).expect("read"), want.as_bytes(), "{crash:?}");
            fs.release(h);
        }
        check_clean(&fs);
    }
}
