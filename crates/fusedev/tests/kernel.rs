//! The transport against this machine's kernel, with a file system of one file. Needs root and /dev/fuse; elsewhere it says so.

#![allow(clippy::unwrap_used, reason = "a test: a failure of its own preparation is a failure of the test")]

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, UNIX_EPOCH};

use fusedev::*;
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::mount::{MountFlags, UnmountFlags};

const FILE: INodeNo = INodeNo(2);
const TEMPORARY: INodeNo = INodeNo(3);
const BIRTH: Duration = Duration::from_secs(1_000_000_007);

/// Refuses every lock; counts lookups.
#[derive(Default)]
struct Toy {
    lookups: AtomicU64,
    waiting: Mutex<HashMap<RequestId, ReplyEmpty>>,
    seen: Mutex<Option<Sender<Seen>>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Waits {
        is_flock: bool,
    },
    /// In the midst of `around`?
    Interrupted {
        is_around: bool,
    },
}

thread_local! {
    static IS_AROUND: Cell<bool> = const { Cell::new(false) };
}

fn attr(ino: INodeNo) -> FileAttr {
    let kind = if ino == ROOT { FileType::Directory } else { FileType::RegularFile };
    let time = UNIX_EPOCH - Duration::from_millis(700);
    FileAttr {
        ino,
        size: 5,
        blocks: 1,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: UNIX_EPOCH + BIRTH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Longer than any test: only notices make the kernel ask again.
const TTL: Duration = Duration::from_secs(3600);

struct Shared(Arc<Toy>, Option<Sender<()>>);

impl Filesystem for Shared {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS | InitFlags::FUSE_POSIX_LOCKS).unwrap();
        Ok(())
    }
    fn destroy(&mut self) {
        if let Some(told) = self.1.take() {
            told.send(()).unwrap();
        }
    }
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.lookups.fetch_add(1, Ordering::SeqCst);
        match name.to_str() {
            Some("file") => reply.entry(&TTL, &attr(FILE), Generation(0)),
            _ => reply.absent(&TTL),
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &attr(ino));
    }
    fn statx(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, _: u32, _: u32, reply: ReplyStatx) {
        reply.statx(&TTL, &attr(ino), &StatxAttr::default());
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(b"bytes".get(offset as usize..).unwrap_or(&[]));
    }
    fn tmpfile(&self, _: &Request, _: INodeNo, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let attr = FileAttr { perm: mode as u16 & 0o7777, nlink: 0, ..attr(TEMPORARY) };
        reply.created(&TTL, &TTL, &attr, Generation(0), FileHandle(9), FopenFlags::empty());
    }
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        // Dropped without an answer.
        drop(reply);
    }
    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        cookie: u64,
        _: OpenFlags,
        mut reply: ReplyDirectory,
    ) {
        for n in cookie + 1..=1000 {
            if reply.add(INodeNo(n + 100), n, FileType::RegularFile, format!("name.{n}")) {
                break;
            }
        }
        reply.ok();
    }
    fn setlk(
        &self,
        rq: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        if !sleep {
            return reply.error(Errno::EAGAIN);
        }
        self.0.waiting.lock().unwrap().insert(rq.unique(), reply);
        self.0.tell(Seen::Waits { is_flock: rq.is_flock() });
        if rq.is_interrupted() {
            self.interrupt(rq.unique());
        }
    }
    fn interrupt(&self, unique: RequestId) {
        if let Some(reply) = self.0.waiting.lock().unwrap().remove(&unique) {
            self.0.tell(Seen::Interrupted { is_around: IS_AROUND.get() });
            reply.error(Errno::EINTR);
        }
    }
}

impl Toy {
    fn tell(&self, seen: Seen) {
        if let Some(told) = &*self.seen.lock().unwrap() {
            told.send(seen).unwrap();
        }
    }
    fn watch(&self) -> Receiver<Seen> {
        let (told, seen) = channel();
        *self.seen.lock().unwrap() = Some(told);
        seen
    }
}

struct Rig {
    dir: PathBuf,
    toy: Arc<Toy>,
    notifier: Notifier,
    destroyed: Receiver<()>,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl Rig {
    fn new(name: &str) -> Option<Rig> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("stria-fusedev-test.{}.{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let options = mount::Options {
            source: "toy".into(),
            subtype: "toy".into(),
            flags: MountFlags::NOSUID,
            allow_other: false,
            max_read: None,
        };
        let device = mount::mount(&dir, &options).unwrap();
        let (told, destroyed) = channel();
        let toy = Arc::new(Toy::default());
        let session = Session::start(Shared(toy.clone(), Some(told)), device).unwrap();
        let notifier = session.notifier();
        let around = |_, work: &mut dyn FnMut()| {
            IS_AROUND.set(true);
            work();
            IS_AROUND.set(false);
        };
        let server = std::thread::spawn(move || session.run(4, around));
        Some(Rig { dir, toy, notifier, destroyed, server: Some(server) })
    }
    fn file(&self) -> PathBuf {
        self.dir.join("file")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.dir, UnmountFlags::DETACH).ok();
        if let Some(server) = self.server.take() {
            server.join().unwrap().unwrap();
        }
        fs::remove_dir(&self.dir).ok();
    }
}

#[test]
fn attributes_birth_and_content_arrive() {
    let Some(rig) = Rig::new("attr") else { return };
    assert_eq!(fs::read(rig.file()).unwrap(), b"bytes");
    let stat = fs::metadata(rig.file()).unwrap();
    assert_eq!((stat.ino(), stat.size(), stat.mode()), (2, 5, 0o100755));
    // 0.7 s before 1970 is second -1 and 300 ms on.
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (-1, 300_000_000));
    let birth = statx(rustix::fs::CWD, rig.file(), AtFlags::empty(), StatxFlags::BTIME).unwrap();
    assert!(birth.stx_mask & StatxFlags::BTIME.bits() != 0);
    assert_eq!(birth.stx_btime.tv_sec, BIRTH.as_secs() as i64);
    assert_eq!(birth.stx_mtime.tv_sec, -1);
    assert_eq!(fs::read_dir(&rig.dir).unwrap().count(), 1000);
}

#[test]
fn a_file_without_a_name_is_opened() {
    let Some(rig) = Rig::new("tmpfile") else { return };
    let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
    let file =
        OpenOptions::new().read(true).write(true).mode(0o640).custom_flags(flags).open(&rig.dir).unwrap();
    let stat = file.metadata().unwrap();
    assert_eq!(stat.ino(), TEMPORARY.0);
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"bytes");
}

#[test]
fn a_reply_that_is_dropped_is_eio_and_what_is_unknown_is_not_asked_again() {
    let Some(rig) = Rig::new("dropped") else { return };
    let mut value = [0; 10];
    let got = rustix::fs::getxattr(rig.file(), "user.a", &mut value);
    assert_eq!(got, Err(rustix::io::Errno::IO));
    // Not implemented, so the kernel answers on its own; and goes on.
    let file = File::open(rig.file()).unwrap();
    assert!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).is_ok());
    assert!(fs::metadata(rig.file()).is_ok());
}

/// A killed process that waits for a lock ends only when its request is answered: here, because it was interrupted.
#[test]
fn a_lock_that_is_waited_for_can_be_given_up() {
    let Some(rig) = Rig::new("interrupt") else { return };
    for round in 0..20 {
        let seen = rig.toy.watch();
        let mut waiter = Command::new("flock").arg(rig.file()).arg("true").spawn().unwrap();
        // From the second half on without waiting until it waits: the interrupt may come before, at or after any moment of its life.
        if round < 10 {
            assert_eq!(seen.recv().unwrap(), Seen::Waits { is_flock: true });
        }
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        if round < 10 {
            assert_eq!(seen.recv().unwrap(), Seen::Interrupted { is_around: true });
        }
    }
}

#[test]
fn notices_make_the_kernel_ask_again() {
    let Some(rig) = Rig::new("notices") else { return };
    let asked = || rig.toy.lookups.load(Ordering::SeqCst);
    let look = || fs::metadata(rig.file()).unwrap();
    look();
    let before = asked();
    look();
    assert_eq!(asked(), before, "it is cached for an hour");
    rig.notifier.inval_entry(ROOT, OsStr::new("file")).unwrap();
    look();
    assert_eq!(asked(), before + 1);
    rig.notifier.expire_entry(ROOT, OsStr::new("file")).unwrap();
    look();
    assert_eq!(asked(), before + 2);
    match rig.notifier.inc_epoch() {
        Ok(()) => {
            look();
            assert_eq!(asked(), before + 3);
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "only older kernels lack it"),
    }
    rig.notifier.inval_inode(FILE, 0, 0).unwrap();
    rig.notifier.delete(ROOT, FILE, OsStr::new("file")).unwrap();
    // Nothing is known of it: fine.
    rig.notifier.inval_inode(INodeNo(999), 0, 0).unwrap();
    rig.notifier.inval_entry(ROOT, OsStr::new("never seen")).unwrap();
}

#[test]
fn the_session_ends_with_the_mount_and_says_so_once() {
    let Some(mut rig) = Rig::new("end") else { return };
    let open = File::open(rig.file()).unwrap();
    rustix::mount::unmount(&rig.dir, UnmountFlags::DETACH | UnmountFlags::FORCE).unwrap();
    rig.server.take().unwrap().join().unwrap().unwrap();
    rig.destroyed.recv().unwrap();
    assert!(open.read_at(&mut [0; 5], 0).is_err());
    // Without a listener nothing is cached either.
    rig.notifier.inval_inode(FILE, 0, 0).unwrap();
}
