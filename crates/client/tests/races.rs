//! Races: another event happens while the MDT processes a request of this client.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use client::{Fs, Handle, OpenFlags, SetAttr, Settings};
use common::{Cluster, MDT, Wiring, ost_target, pattern, read};
use disk::Crash;
use net::{Answer, Fabric, Service};
use parking_lot::{Mutex, RwLock};
use types::{Buf, Code, Cred, Fid, FsId};
use wire::object::{Read, ReportMissing};
use wire::session::Detach;
use wire::{Flags, Header, Request, Wire};

/// Runs around the service of one request; its second argument serves the request.
type Hook = dyn Fn(&Header, &mut dyn FnMut()) + Send + Sync;

/// A service with a hook in front that sees each request.
struct Tap {
    inner: RwLock<Arc<dyn Service>>,
    hook: Mutex<Option<Arc<Hook>>>,
}

impl Tap {
    fn over(inner: Arc<dyn Service>) -> Arc<Tap> {
        Arc::new(Tap { inner: RwLock::new(inner), hook: Mutex::new(None) })
    }
    fn set(&self, hook: impl Fn(&Header, &mut dyn FnMut()) + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }
    fn clear(&self) {
        *self.hook.lock() = None;
    }
}

impl Service for Tap {
    fn serve(&self, head: &Header, body: &[u8], bulk: &[u8], answer: &mut Answer<'_>) {
        let hook = self.hook.lock().clone();
        let mut serve = || {
            let inner = self.inner.read().clone();
            inner.serve(head, body, bulk, answer);
        };
        match hook {
            Some(hook) => hook(head, &mut serve),
            None => serve(),
        }
    }
}

fn tap_mdt(cluster: &Cluster) -> Arc<Tap> {
    let tap = Tap::over(cluster.mdt.as_ref().unwrap().0.clone());
    cluster.hub.add(MDT, tap.clone());
    tap
}

fn root() -> Cred {
    Cred::root()
}

fn make(fs: &Fs, name: &str) -> (Fid, Handle) {
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (attr, handle) = fs.create(Fid::ROOT, name.as_bytes(), 0o644, flags, &root()).unwrap();
    (attr.fid, handle)
}

/// The MDT itself has no record of the file any more. (`getattr` would tell what the client remembers of it.)
fn is_gone(cluster: &Cluster, fid: Fid) -> bool {
    cluster_inode(cluster, fid).is_err_and(|fault| fault.code == Code::Stale)
}

/// A file that was unlinked while open is destroyed a second later, or with its last descriptor if that comes after.
fn wait_until_gone(cluster: &Cluster, fid: Fid, what: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_gone(cluster, fid) {
        assert!(Instant::now() < until, "{what}: file {fid} stays");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The MDT has given this client up.
fn end_session(cluster: &Cluster, fs: &Fs) {
    let mut bulk = Buf::new();
    let mut answer = Answer::new(Header::default(), &mut bulk);
    let head = Header { call: Detach::CALL, target: MDT, fs: FsId(1), ..Header::default() };
    let body = Detach { session: fs.session() }.to_bytes();
    cluster.mdt.as_ref().unwrap().0.serve(&head, &body, &[], &mut answer);
}

/// [S-unlinked-open] A file that is closed while its unlink is under way goes, and does not wait for the end of the mount.
#[test]
fn the_last_close_may_come_while_the_unlink_is_under_way() {
    for size in [100, 200_000] {
        let cluster = Cluster::new(Wiring::Tcp, 1);
        let fs = cluster.mount();
        let tap = tap_mdt(&cluster);
        let (fid, handle) = make(&fs, "tmp");
        fs.write(handle, 0, &pattern(1, size)).unwrap();
        let (closer, is_closed) = (fs.clone(), AtomicBool::new(false));
        tap.set(move |head, serve| {
            serve();
            if head.call == wire::meta::Unlink::CALL && !is_closed.swap(true, Ordering::SeqCst) {
                // As the kernel's RELEASE of an earlier close, which is asynchronous.
                closer.release(handle);
            }
        });
        fs.unlink(Fid::ROOT, b"tmp", &root()).unwrap();
        tap.clear();
        wait_until_gone(&cluster, fid, &format!("{size} bytes"));
    }
}

/// The same without help from a tap.
#[test]
fn closes_and_unlinks_at_once_leave_nothing() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = Cluster::new(wiring, 1);
        let fs = cluster.mount();
        let mut all = Vec::new();
        for _ in 0..1000 {
            let (fid, handle) = make(&fs, "t");
            all.push(fid);
            fs.write(handle, 0, b"x").unwrap();
            let both = Barrier::new(2);
            std::thread::scope(|s| {
                s.spawn(|| {
                    both.wait();
                    fs.release(handle);
                });
                both.wait();
                fs.unlink(Fid::ROOT, b"t", &root()).unwrap();
            });
        }
        all.iter().for_each(|fid| wait_until_gone(&cluster, *fid, &format!("{wiring:?}")));
    }
}

/// [S-unlinked-open] An open that succeeds holds the file, also if its unlink is under way at that moment: the open waits for it
/// and then finds no file, or comes before it and keeps the file.
#[test]
fn an_open_during_the_unlink_of_the_only_file_gets_all_or_nothing() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let fs = cluster.mount();
    let (fid, handle) = make(&fs, "f");
    fs.write(handle, 0, b"hello").unwrap();
    fs.release(handle);
    let tap = tap_mdt(&cluster);
    let opening = Arc::new(Mutex::new(None));
    let (opener, place) = (fs.clone(), opening.clone());
    tap.set(move |head, serve| {
        if head.call == wire::meta::Unlink::CALL {
            let (opener, (has_opened, opened)) = (opener.clone(), mpsc::channel());
            *place.lock() = Some(std::thread::spawn(move || {
                let opened = opener.open(fid, OpenFlags::read_write());
                let _ = has_opened.send(());
                opened
            }));
            // An open that does not wait for the unlink is through long before; one that waits goes on after it.
            let _ = opened.recv_timeout(Duration::from_millis(300));
        }
        serve()
    });
    fs.unlink(Fid::ROOT, b"f", &root()).unwrap();
    tap.clear();
    let opened = opening.lock().take().unwrap().join().unwrap();
    match opened {
        Ok((handle, _)) => assert_eq!(read(&fs, handle, 0, 10).unwrap(), b"hello", "what is open stays"),
        Err(fault) => assert_eq!(fault.code, Code::Stale),
    }
}

/// A directory that was removed while it is a process's working directory: `stat` still works, with no links.
#[test]
fn a_removed_directory_can_still_be_looked_at() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount();
    let dir = fs.mkdir(Fid::ROOT, b"d", 0o751, &root()).unwrap();
    fs.rmdir(Fid::ROOT, b"d", &root()).unwrap();
    let attr = fs.getattr(dir.fid).unwrap();
    assert_eq!((attr.nlink, attr.mode, attr.kind), (0, 0o751, types::Kind::Dir));
    assert_eq!(fs.lookup(dir.fid, b"..x").unwrap_err().code, Code::NotFound);
}

/// [S-replay] The MDT loses power again while what it lost the first time is being sent again: all of it arrives in the end.
#[test]
fn a_second_power_loss_during_a_replay_loses_nothing() {
    const DIRS: u32 = 6;
    for second_at in 0..DIRS {
        let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
        let fs = cluster.mount_lazy();
        let name = |n: u32| format!("d{n}").into_bytes();
        for n in 0..DIRS {
            fs.mkdir(Fid::ROOT, &name(n), 0o755, &root()).unwrap();
        }
        cluster.crash_mdt(Crash::DropAll);
        let (mdt, disk) = cluster.mdt.take().unwrap();
        let tap = Tap::over(mdt);
        let (register, map, hub) = (cluster.register(MDT), cluster.map.clone(), cluster.hub.clone());
        let (ttl, replays, me) = (cluster.session_ttl, AtomicU32::new(0), Arc::downgrade(&tap));
        tap.set(move |head, serve| {
            if head.flags & Flags::REPLAY != 0 && replays.fetch_add(1, Ordering::SeqCst) == second_at {
                let image = Arc::new(disk.crash(Crash::DropAll));
                let settings = mds::Settings { session_ttl: ttl, ..mds::Settings::default() };
                let again = mds::Mdt::open(image, settings).unwrap();
                let fabric = Fabric::new(Some(hub.clone()));
                fabric.set_map(&map);
                again.join(&register, fabric).unwrap();
                *me.upgrade().unwrap().inner.write() = again;
            }
            serve()
        });
        cluster.hub.add(MDT, tap.clone());
        for n in 0..DIRS {
            assert!(
                fs.lookup(Fid::ROOT, &name(n)).is_ok(),
                "directory {n}, second power loss at {second_at}"
            );
        }
        fs.fsync_dir(Fid::ROOT).unwrap();
    }
}

/// A request that was given up belongs to a session that the MDT has ended meanwhile: it is lost, and the mount goes on.
#[test]
fn a_given_up_request_of_an_ended_session_does_not_stand_in_the_way() {
    let cluster = Cluster::new(Wiring::Tcp, 1);
    let op_timeout = Duration::from_millis(300);
    let fs = cluster.mount_with(Settings { op_timeout, ..cluster.settings() });
    let tap = tap_mdt(&cluster);
    let is_cut = Arc::new(AtomicBool::new(true));
    let cut = is_cut.clone();
    tap.set(move |_, serve| {
        // The network drops everything: no reply until it is healed.
        while cut.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        serve()
    });
    assert_eq!(fs.mkdir(Fid::ROOT, b"a", 0o755, &root()).unwrap_err().code, Code::Timeout);
    // Meanwhile the MDT ends the silent session.
    end_session(&cluster, &fs);
    is_cut.store(false, Ordering::SeqCst);
    tap.clear();
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(fault) = fs.mkdir(Fid::ROOT, b"b", 0o755, &root()) {
        assert!(Instant::now() < until, "the mount is stuck: {fault}");
    }
    fs.mkdir(Fid::ROOT, b"c", 0o755, &root()).unwrap();
}

/// [S-replay] A creation that was lost with the session is told to who fsyncs the new file, and to who fsyncs its directory.
#[test]
fn a_lost_creation_is_an_error_at_fsync_of_the_file_and_of_its_directory() {
    let mut cluster = Cluster::quiet(Wiring::Tcp, 1);
    let fs = cluster.mount_lazy();
    let dir = fs.mkdir(Fid::ROOT, b"d", 0o755, &root()).unwrap().fid;
    fs.fsync_dir(dir).unwrap();
    let flags = OpenFlags { exclusive: true, ..OpenFlags::read_write() };
    let (_, handle) = fs.create(dir, b"f", 0o644, flags, &root()).unwrap();
    cluster.crash_mdt(Crash::DropAll);
    // Before this client hears of the restart and sends the creation again.
    end_session(&cluster, &fs);
    assert!(fs.fsync(handle, false).is_err());
    assert!(fs.fsync_dir(dir).is_err());
}

/// [S-rename] A name that is replaced between the two steps of an open gives the old file, whole; it is destroyed at the last close.
#[test]
fn an_open_that_a_rename_overtakes_gets_the_old_file() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        for size in [100, 200_000] {
            let cluster = Cluster::new(wiring, 1);
            let fs = cluster.mount();
            let put = |name: &str, seed: u64| {
                let (fid, handle) = make(&fs, name);
                fs.write(handle, 0, &pattern(seed, size)).unwrap();
                fs.release(handle);
                fid
            };
            let replace = |name: &str| fs.rename(Fid::ROOT, name.as_bytes(), Fid::ROOT, b"name", 0, &root());
            let first = put("name", 1);
            let second = put("new", 2);
            // The name was looked up; then it was replaced, twice.
            assert_eq!(fs.lookup(Fid::ROOT, b"name").unwrap().fid, first);
            replace("new").unwrap();
            let third = put("newer", 3);
            replace("newer").unwrap();
            let (handle, attr) = fs.open(first, OpenFlags::read_only()).unwrap();
            assert_eq!((attr.size, attr.nlink), (size as u64, 0));
            assert!(read(&fs, handle, 0, size).unwrap() == pattern(1, size));
            // An unlinked file that is not open is destroyed by itself, an open one is not.
            let until = Instant::now() + Duration::from_secs(20);
            while !is_gone(&cluster, second) {
                assert!(Instant::now() < until, "a replaced file stays");
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(read(&fs, handle, 0, size).unwrap() == pattern(1, size), "still open");
            fs.release(handle);
            assert!(is_gone(&cluster, first), "the last close lets it go");
            assert_eq!(fs.lookup(Fid::ROOT, b"name").unwrap().fid, third);
        }
    }
}

/// [S-rename] Of two who open a name that is replaced, the one that closes first does not take the old file from the other.
#[test]
fn the_close_of_a_replaced_file_leaves_it_to_who_is_about_to_open_it() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        let cluster = Cluster::new(wiring, 1);
        let fs = cluster.mount();
        let (old, handle) = make(&fs, "name");
        fs.write(handle, 0, &pattern(1, 200_000)).unwrap();
        let (_, new) = make(&fs, "new");
        fs.release(new);
        // One has it open when it is replaced; the other has looked it up, and comes to its open when the first has closed it.
        fs.rename(Fid::ROOT, b"new", Fid::ROOT, b"name", 0, &root()).unwrap();
        fs.release(handle);
        let (handle, attr) = fs.open(old, OpenFlags::read_only()).expect("the old file, whole");
        assert_eq!((attr.size, attr.nlink), (200_000, 0));
        assert!(read(&fs, handle, 0, 200_000).unwrap() == pattern(1, 200_000));
        fs.release(handle);
        let until = Instant::now() + Duration::from_secs(20);
        while !is_gone(&cluster, old) {
            assert!(Instant::now() < until, "a replaced file stays");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// [S-read-your-writes] The OST says that the object is absent, and before that answer is read the object's first write is acknowledged.
/// The read gives zeros: no error, and no damage record.
#[test]
fn read_answered_before_the_first_write_of_its_object_is_a_hole() {
    for wiring in [Wiring::Local, Wiring::Tcp] {
        for (read_at, len) in [(0u64, 4096), (8 << 20, 4096), (0, 3 << 20)] {
            let cluster = Cluster::with_inline_max(wiring, 2, 0);
            let fs = cluster.mount_lazy();
            let (fid, handle) = make(&fs, "sparse");
            // A layout with its first object; the object of the second component stays absent.
            fs.write(handle, 0, b"begin").unwrap();
            let size = Some(200 << 20);
            fs.setattr(fid, &SetAttr { size, ..SetAttr::default() }, &root()).unwrap();
            let begin = 80 << 20;
            let (is_first, is_reported) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
            for n in 0..2 {
                let tap = Tap::over(cluster.process(ost_target(n)));
                cluster.hub.add(ost_target(n), tap.clone());
                let (writer, is_first, is_reported) = (fs.clone(), is_first.clone(), is_reported.clone());
                tap.set(move |head, serve| {
                    serve();
                    is_reported.fetch_or(head.call == ReportMissing::CALL, Ordering::SeqCst);
                    if head.call == Read::CALL && is_first.swap(false, Ordering::SeqCst) {
                        writer.write(handle, begin, &pattern(3, 4 << 20)).unwrap();
                    }
                });
            }
            let got = read(&fs, handle, begin + read_at, len).unwrap();
            assert!(!is_first.load(Ordering::SeqCst), "no read reached an OST");
            assert_eq!(got.len(), len);
            // Each stripe reads as zeros or as written, depending on which of them was answered first.
            let want = pattern(3, 4 << 20);
            for (k, part) in got.chunks(1 << 20).enumerate() {
                let written = want.get(read_at as usize + (k << 20)..).map(|w| &w[..part.len()]);
                assert!(part.iter().all(|b| *b == 0) || Some(part) == written, "stripe {k}");
            }
            assert!(!is_reported.load(Ordering::SeqCst), "a hole is told as damage");
            fs.abort();
        }
    }
}

/// [S-no-estale] A call by path whose file was removed between its two steps is tried once more by the kernel. What that second walk finds
/// is there for it, though another removal comes between its steps, too: of this client or of another one.
#[test]
fn second_walk_finds_its_inode_though_the_name_is_removed_again() {
    for clients in [1, 2] {
        let cluster = Cluster::new(Wiring::Tcp, 1);
        let walker = cluster.mount();
        let remover = if clients == 1 { walker.clone() } else { cluster.mount() };
        let cred = root();
        let file = |n: usize| {
            let name = format!("f{n}");
            let (attr, handle) =
                remover.create(Fid::ROOT, name.as_bytes(), 0o644, OpenFlags::read_write(), &cred).unwrap();
            remover.write(handle, 0, b"content").unwrap();
            remover.release(handle);
            (name, attr.fid)
        };
        // 1. The first walk meets the removal.
        let (name, first) = file(1);
        remover.unlink(Fid::ROOT, name.as_bytes(), &cred).unwrap();
        assert_eq!(walker.open(first, OpenFlags::read_only()).unwrap_err().code, Code::Stale);
        // 2. The name is made anew, the second walk finds it, and it is removed again.
        let (name, fid) = file(2);
        remover.unlink(Fid::ROOT, name.as_bytes(), &cred).unwrap();
        let (handle, attr) = walker.open(fid, OpenFlags::read_only()).unwrap();
        assert_eq!((attr.nlink, read(&walker, handle, 0, 100).unwrap().as_slice()), (0, &b"content"[..]));
        walker.release(handle);
        let link = remover.symlink(Fid::ROOT, b"l", b"target", &cred).unwrap().fid;
        remover.unlink(Fid::ROOT, b"l", &cred).unwrap();
        assert_eq!(walker.readlink(link).unwrap(), b"target");
        let dir = remover.mkdir(Fid::ROOT, b"d", 0o755, &cred).unwrap().fid;
        remover.rmdir(Fid::ROOT, b"d", &cred).unwrap();
        let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        assert_eq!(walker.setattr(dir, &mode, &cred).unwrap().nlink, 0);
        assert_eq!(walker.lookup(dir, b"x").unwrap_err().code, Code::NotFound);
        let made = walker.mkdir(dir, b"x", 0o755, &cred);
        assert_eq!(made.unwrap_err().code, Code::NotFound, "a removed directory takes no names");
        // 3. What was kept goes; nothing is left behind.
        [fid, link, dir].iter().for_each(|fid| wait_until_gone(&cluster, *fid, "an orphan"));
    }
}

/// An inode as the MDT holds it.
fn cluster_inode(cluster: &Cluster, fid: Fid) -> Result<wire::meta::Inode, types::Fault> {
    let head = Header { fs: FsId(1), target: MDT, ..Header::default() };
    let soon = Instant::now() + Duration::from_secs(10);
    let req = wire::meta::GetAttr { fid };
    net::rpc::call(&*cluster.peer(MDT), head, &req, &[], &mut Buf::new(), soon).expect("answered").2
}

/// [S-no-estale] A directory that is gone has no names: calls below it are `ENOENT`, as on ext4, and are not tried again.
#[test]
fn calls_below_a_removed_directory_find_no_name() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let (fs, cred) = (cluster.mount(), root());
    let dir = fs.mkdir(Fid::ROOT, b"d", 0o755, &cred).unwrap().fid;
    fs.rmdir(Fid::ROOT, b"d", &cred).unwrap();
    let refused = |what: &str, fault: types::Fault| assert_eq!(fault.code, Code::NotFound, "{what}");
    refused("lookup", fs.lookup(dir, b"x").unwrap_err());
    refused("create", fs.create(dir, b"x", 0o644, OpenFlags::read_write(), &cred).unwrap_err());
    refused("mkdir", fs.mkdir(dir, b"x", 0o755, &cred).unwrap_err());
    refused("symlink", fs.symlink(dir, b"x", b"t", &cred).unwrap_err());
    refused("unlink", fs.unlink(dir, b"x", &cred).unwrap_err());
    refused("rmdir", fs.rmdir(dir, b"x", &cred).unwrap_err());
    refused("rename", fs.rename(dir, b"x", Fid::ROOT, b"y", 0, &cred).unwrap_err());
    let (other, _) = make(&fs, "f");
    refused("rename to", fs.rename(Fid::ROOT, b"f", dir, b"y", 0, &cred).unwrap_err());
    refused("link to", fs.link(other, dir, b"y", &cred).unwrap_err());
}

/// More inodes are kept than the list holds: a removal releases the oldest itself, and waits for no lock that it has.
#[test]
fn removals_past_the_kept_ones_release_the_oldest() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount_with(Settings { op_timeout: Duration::from_secs(1), ..cluster.settings() });
    // With something open a removal asks whether its file is.
    let (_, _open) = make(&fs, "open");
    let (gone, handle) = make(&fs, "gone");
    fs.release(handle);
    fs.unlink(Fid::ROOT, b"gone", &root()).unwrap();
    let mut all = Vec::new();
    for n in 0..9500 {
        if n % 100 == 0 {
            assert_eq!(fs.open(gone, OpenFlags::read_only()).unwrap_err().code, Code::Stale);
        }
        let (fid, handle) = make(&fs, "f");
        fs.release(handle);
        fs.unlink(Fid::ROOT, b"f", &root()).unwrap();
        all.push(fid);
    }
    all.iter().for_each(|fid| wait_until_gone(&cluster, *fid, "kept"));
}

/// [S-atime] An access time that is set by hand stays, though the file was read before and that is told later.
#[test]
fn an_earlier_read_does_not_overrule_an_access_time_that_is_set() {
    let cluster = Cluster::new(Wiring::Local, 1);
    let fs = cluster.mount_lazy();
    let (fid, _handle) = make(&fs, "f");
    fs.accessed(fid, None, root);
    let old = types::Time::new(1_000_000_000, 5);
    fs.setattr(fid, &SetAttr { atime: Some(old), ..SetAttr::default() }, &root()).unwrap();
    fs.tell_accessed_of(fid);
    assert_eq!(fs.getattr(fid).unwrap().atime, old);
    // A later read changes it.
    fs.accessed(fid, None, root);
    fs.tell_accessed_of(fid);
    assert!(fs.getattr(fid).unwrap().atime > old);
    fs.abort();
}
