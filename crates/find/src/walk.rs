//! The walk: threads take directories from one list, read them, and test their entries.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, openat, readlinkat, statx,
};
use rustix::io::Errno;
use types::Time;

use crate::expr::{Context, Kind, Stat, Subject};
use crate::parse::Query;
use crate::striping::Striping;

/// Results are given on in pieces of about this size.
const PIECE: usize = 64 * 1024;
/// Longer paths are opened in parts (`PATH_MAX` is 4096).
const PATH_PART: usize = 4000;
/// For the kernel's directory entries.
const ENTRIES: usize = 64 * 1024;

/// The work of a walk on each entry. Several threads call it.
pub trait Visitor: Sync {
    /// Tests one entry. True if it is a result, which it may append to `out`.
    ///
    /// # Errors
    /// Those of the entry's answers.
    fn visit(&self, of: &impl Subject, out: &mut Vec<u8>) -> io::Result<bool>;

    /// All entries of a directory were visited, by its inode number.
    fn listed(&self, _directory: u64) {}
}

struct Search<'a> {
    query: &'a Query,
    context: &'a Context,
}

impl Visitor for Search<'_> {
    fn visit(&self, of: &impl Subject, out: &mut Vec<u8>) -> io::Result<bool> {
        match self.query.expr.holds(of, self.context)? {
            true => self.query.show.add(out, of, self.context).map(|()| true),
            false => Ok(false),
        }
    }
}

/// Counts of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub matches: u64,
    pub tested: u64,
    /// Paths that could not be read.
    pub errors: u64,
}

/// A directory that is to be read.
struct Dir {
    path: Vec<u8>,
    start_len: usize,
    depth: usize,
    /// The file system of the start.
    device: u64,
}

#[derive(Default)]
struct Queue {
    dirs: Vec<Dir>,
    /// Threads that read a directory and may find more.
    busy: usize,
    is_stopped: bool,
}

struct Shared<'a, V, O, E> {
    query: &'a Query,
    visitor: &'a V,
    queue: Mutex<Queue>,
    more: Condvar,
    output: Mutex<O>,
    on_error: E,
    matches: AtomicU64,
    tested: AtomicU64,
    errors: AtomicU64,
    failed: Mutex<Option<io::Error>>,
}

/// Tests everything below the query's paths. `output` gets whole results, from one thread at a time, in no order. `on_error` gets paths
/// that could not be read; the walk goes on.
///
/// # Errors
/// Those of `output`. They end the walk.
pub fn walk(
    query: &Query,
    context: &Context,
    output: impl FnMut(&[u8]) -> io::Result<()> + Send,
    on_error: impl Fn(&Path, &io::Error) + Sync,
) -> io::Result<Found> {
    visit(query, &Search { query, context }, output, on_error)
}

/// As `walk`, with a visitor in place of the query's tests.
///
/// # Errors
/// Those of `output`. They end the walk.
pub fn visit(
    query: &Query,
    visitor: &impl Visitor,
    output: impl FnMut(&[u8]) -> io::Result<()> + Send,
    on_error: impl Fn(&Path, &io::Error) + Sync,
) -> io::Result<Found> {
    let shared = Shared {
        query,
        visitor,
        queue: Mutex::default(),
        more: Condvar::new(),
        output: Mutex::new(output),
        on_error,
        matches: AtomicU64::new(0),
        tested: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        failed: Mutex::default(),
    };
    shared.begin();
    thread::scope(|scope| {
        for _ in 0..query.threads {
            scope.spawn(|| shared.work());
        }
    });
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let found = Found {
        matches: count(&shared.matches),
        tested: count(&shared.tested),
        errors: count(&shared.errors),
    };
    shared.failed.into_inner().map_or(Ok(found), Err)
}

impl<V: Visitor, O: FnMut(&[u8]) -> io::Result<()> + Send, E: Fn(&Path, &io::Error) + Sync>
    Shared<'_, V, O, E>
{
    /// Tests the starts.
    fn begin(&self) {
        let mut out = Vec::new();
        for start in &self.query.paths {
            let path = start.as_bytes();
            let about = match look(CWD, start, self.query.is_lazy) {
                Ok(about) => about,
                Err(error) => {
                    self.tell(path, &error);
                    continue;
                }
            };
            let entry = Entry::start(path, CWD, start, self.query.is_lazy);
            let kind = entry.kind_is(kind_of(FileType::from_raw_mode(about.stx_mode.into())));
            let device = device_of(&about);
            let _ = entry.statx.set(about);
            self.test(&entry, &mut out);
            if kind == Some(Kind::Directory) {
                let dir = Dir { path: path.to_vec(), start_len: path.len(), depth: 0, device };
                self.queue.lock().dirs.push(dir);
            }
        }
        // The last one that is pushed is taken first.
        self.queue.lock().dirs.reverse();
        self.give(&mut out);
    }

    fn work(&self) {
        let (mut out, mut entries) = (Vec::new(), Vec::with_capacity(ENTRIES));
        while let Some(dir) = self.next() {
            if dir.depth < self.query.depth_max
                && let Err(error) = self.read(&dir, &mut out, &mut entries)
                // Below a start it was removed meanwhile.
                && (dir.depth == 0 || error.kind() != io::ErrorKind::NotFound)
            {
                self.tell(&dir.path, &error);
            }
            let mut queue = self.queue.lock();
            queue.busy -= 1;
            if queue.busy == 0 && queue.dirs.is_empty() {
                self.more.notify_all();
            }
        }
        self.give(&mut out);
    }

    fn next(&self) -> Option<Dir> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopped {
                return None;
            }
            if let Some(dir) = queue.dirs.pop() {
                queue.busy += 1;
                return Some(dir);
            }
            if queue.busy == 0 {
                return None;
            }
            self.more.wait(&mut queue);
        }
    }

    fn read(&self, dir: &Dir, out: &mut Vec<u8>, entries: &mut Vec<u8>) -> io::Result<()> {
        let fd = open(&dir.path)?;
        let about = rustix::fs::fstat(&fd)?;
        if !self.query.crosses && about.st_dev != dir.device {
            return Ok(());
        }
        let mut below = Vec::new();
        let mut reader = RawDir::new(&fd, entries.spare_capacity_mut());
        while let Some(entry) = reader.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let mut path = dir.path.clone();
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let of = Entry {
                parent: Parent { fd: fd.as_fd(), ino: about.st_ino },
                start_len: dir.start_len,
                depth: dir.depth + 1,
                listed_ino: Some(entry.ino()),
                ..Entry::start(&path, fd.as_fd(), OsStr::from_bytes(name), self.query.is_lazy)
            };
            of.kind_is(kind_of(entry.file_type()));
            self.test(&of, out);
            if out.len() >= PIECE {
                self.give(out);
            }
            let (start_len, depth, device) = (dir.start_len, dir.depth + 1, dir.device);
            if depth < self.query.depth_max && of.kind().is_ok_and(|kind| kind == Kind::Directory) {
                below.push(Dir { path, start_len, depth, device });
            }
        }
        self.visitor.listed(about.st_ino);
        if !below.is_empty() {
            self.queue.lock().dirs.extend(below);
            self.more.notify_all();
        }
        Ok(())
    }

    fn test(&self, of: &Entry<'_>, out: &mut Vec<u8>) {
        self.tested.fetch_add(1, Ordering::Relaxed);
        if of.depth < self.query.depth_min {
            return;
        }
        let before = out.len();
        let shown = self.visitor.visit(of, out);
        match shown {
            Ok(true) => {
                self.matches.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => {}
            Err(error) => {
                out.truncate(before);
                // It was removed after its directory had been read.
                if of.depth == 0 || error.kind() != io::ErrorKind::NotFound {
                    self.tell(of.path, &error);
                }
            }
        }
    }

    fn give(&self, out: &mut Vec<u8>) {
        if out.is_empty() {
            return;
        }
        let mut output = self.output.lock();
        if let Err(error) = output(out) {
            *self.failed.lock() = Some(error);
            self.queue.lock().is_stopped = true;
            self.more.notify_all();
        }
        out.clear();
    }

    fn tell(&self, path: &[u8], error: &io::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        (self.on_error)(Path::new(OsStr::from_bytes(path)), error);
    }
}

/// The directory in which an entry was found. A start has none.
#[derive(Clone, Copy)]
struct Parent<'a> {
    fd: BorrowedFd<'a>,
    ino: u64,
}

/// An entry of a directory, with what was asked about it so far.
struct Entry<'a> {
    parent: Parent<'a>,
    path: &'a [u8],
    start_len: usize,
    depth: usize,
    name: &'a OsStr,
    is_lazy: bool,
    listed_ino: Option<u64>,
    kind: OnceCell<Kind>,
    statx: OnceCell<Statx>,
}

impl<'a> Entry<'a> {
    /// An entry at which a walk starts. `name` leads to it from `fd`.
    fn start(path: &'a [u8], fd: BorrowedFd<'a>, name: &'a OsStr, is_lazy: bool) -> Entry<'a> {
        let (kind, statx, parent) = (OnceCell::new(), OnceCell::new(), Parent { fd, ino: 0 });
        let start_len = path.len();
        Entry { parent, path, start_len, depth: 0, name, is_lazy, listed_ino: None, kind, statx }
    }

    fn kind_is(&self, kind: Option<Kind>) -> Option<Kind> {
        kind.inspect(|kind| {
            let _ = self.kind.set(*kind);
        })
    }

    fn statx(&self) -> io::Result<Statx> {
        if let Some(about) = self.statx.get() {
            return Ok(*about);
        }
        let about = look(self.parent.fd, self.name, self.is_lazy)?;
        let _ = self.statx.set(about);
        Ok(about)
    }
}

impl Subject for Entry<'_> {
    fn path(&self) -> &[u8] {
        self.path
    }

    fn name(&self) -> &[u8] {
        match self.depth {
            // As in find: the last part of a start, without the `/` at its end.
            0 => {
                let end = self.path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
                let from = self.path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
                if end == 0 { self.path } else { &self.path[from..end] }
            }
            _ => self.name.as_bytes(),
        }
    }

    fn start_len(&self) -> usize {
        self.start_len
    }

    fn parent(&self) -> u64 {
        self.parent.ino
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn ino(&self) -> io::Result<u64> {
        self.listed_ino.map_or_else(|| self.stat().map(|stat| stat.ino), Ok)
    }

    fn kind(&self) -> io::Result<Kind> {
        if let Some(kind) = self.kind.get() {
            return Ok(*kind);
        }
        let kind = kind_of(FileType::from_raw_mode(self.statx()?.stx_mode.into()));
        self.kind_is(kind).ok_or_else(|| io::Error::other("its type is unknown"))
    }

    fn stat(&self) -> io::Result<Stat> {
        self.statx().map(|about| stat_of(&about))
    }

    fn striping(&self) -> io::Result<Option<Striping>> {
        match self.kind()? {
            // The path may be too long, and a name alone is relative to another directory.
            Kind::File | Kind::Directory if self.parent.fd.as_raw_fd() != CWD.as_raw_fd() => {
                let mut place = PathBuf::from(format!("/proc/self/fd/{}", self.parent.fd.as_raw_fd()));
                place.push(self.name);
                Striping::of(&place)
            }
            Kind::File | Kind::Directory => Striping::of(Path::new(self.name)),
            _ => Ok(None),
        }
    }

    fn is_empty_directory(&self) -> io::Result<bool> {
        let fd = openat(self.parent.fd, self.name, DIRECTORY, Mode::empty())?;
        let mut entries = Vec::with_capacity(1024);
        let mut reader = RawDir::new(&fd, entries.spare_capacity_mut());
        while let Some(entry) = reader.next() {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn target(&self) -> io::Result<Vec<u8>> {
        Ok(readlinkat(self.parent.fd, self.name, Vec::new())?.into_bytes())
    }
}

/// Answers of one entry, without a walk. The path may have any length.
///
/// # Errors
/// Those of the answers.
pub fn entry<T>(path: &Path, ask: impl FnOnce(&dyn Subject) -> io::Result<T>) -> io::Result<T> {
    let bytes = path.as_os_str().as_bytes();
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if bytes.len() > PATH_PART => {
            let fd = open(parent.as_os_str().as_bytes())?;
            ask(&Entry::start(bytes, fd.as_fd(), name, false))
        }
        _ => ask(&Entry::start(bytes, CWD, path.as_os_str(), false)),
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory by a path of any length.
fn open(path: &[u8]) -> io::Result<OwnedFd> {
    let (mut rest, mut at): (&[u8], Option<OwnedFd>) = (path, None);
    loop {
        let end = match rest.len() > PATH_PART {
            true => rest[..PATH_PART].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?,
            false => rest.len(),
        };
        // A start may be a symlink with a `/` behind it.
        let part = OsStr::from_bytes(&rest[..end.max(1)]);
        let from = at.as_ref().map_or(CWD, AsFd::as_fd);
        let fd = openat(from, part, DIRECTORY, Mode::empty())?;
        if end == rest.len() {
            return Ok(fd);
        }
        (rest, at) = (&rest[end + 1..], Some(fd));
    }
}

fn look(dir: BorrowedFd<'_>, name: &OsStr, is_lazy: bool) -> io::Result<Statx> {
    let sync = if is_lazy { AtFlags::STATX_DONT_SYNC } else { AtFlags::empty() };
    let what = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | sync, what)?)
}

/// Of a path's end. A symlink there is not followed, as by `find -P`.
pub fn stat_of_path(path: &Path) -> io::Result<Stat> {
    let what = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(stat_of(&statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, what)?))
}

/// As `st_dev`.
fn device_of(about: &Statx) -> u64 {
    rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor)
}

fn stat_of(about: &Statx) -> Stat {
    let time = |t: rustix::fs::StatxTimestamp| Time::new(t.tv_sec, t.tv_nsec);
    let has_birth = StatxFlags::from_bits_retain(about.stx_mask).contains(StatxFlags::BTIME);
    Stat {
        ino: about.stx_ino,
        mode: u32::from(about.stx_mode) & 0o7777,
        nlink: about.stx_nlink.into(),
        uid: about.stx_uid,
        gid: about.stx_gid,
        size: about.stx_size,
        blocks: about.stx_blocks,
        atime: time(about.stx_atime),
        mtime: time(about.stx_mtime),
        ctime: time(about.stx_ctime),
        btime: has_birth.then(|| time(about.stx_btime)),
    }
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    Some(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Unknown => return None,
    })
}
