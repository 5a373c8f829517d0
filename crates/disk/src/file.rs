//! A medium in a regular file (sparse) or a block device: `pread`, `pwrite`, `fdatasync` through the page cache, and for data pages, if
//! configured, direct I/O past it.
//!
//! disk-F1: no two processes write one medium: it is claimed while it is open (`claim`).
//! disk-F2: the size is read once at open and never changes; a write cannot make the file grow.
//! disk-F3: space of a sparse file is allocated when it is first written, or before that by `reserve`; on copy-on-write file systems
//!     (btrfs, ZFS) also a reserved range may meet a full host.
//! disk-F4: an acknowledged write is in the page cache or on the device: it survives the process, and not a power loss. `fdatasync` makes
//!     both durable: it applies to the file, not to the descriptor.
//! disk-F5: reads of the medium itself use a second descriptor with `O_DIRECT`, where the file system supports it; the kernel first writes
//!     out dirty pages of the range.
//! disk-F6: two I/O paths to one medium agree if they share no page. `read_many` and `write_many` are for data pages, and bypass the page
//!     cache if the disk is direct: the data region of a volume, which begins and ends at page boundaries. All else (superblocks, log,
//!     checkpoints) uses `read_at` and `write_at` through the cache. A tool that reads a data page by `read_at` gets right bytes as long as
//!     no write runs meanwhile: a direct read first writes out the range's dirty pages, a direct write drops the cached ones. The same
//!     holds for a medium that was cached in one run and is direct in the next. Scrub reads the data region by disk-F5, recovery by
//!     `read_many`.
//! disk-F7: if the device hangs, a caller gets an error after a deadline, and its thread is free again (`direct`, `aside`, `opening`). A
//!     read of cached data pages cannot be interrupted: then all other callers get an error at once, and `lost` reports it (`cached`).

mod aside;
mod cached;
mod claim;
mod direct;
mod lane;
mod opening;
mod share;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::{Disk, end_within, read_each};
use aside::{Aside, Call, PATIENCES, Progress};
use cached::Cached;
use claim::Claim;
use direct::Direct;
use share::Share;

/// Holes are punched in multiples of this: the block size of common file systems and devices.
const HOLE_BYTES: u64 = 4096;
/// How long a direct read or write may take before the device counts as hung: what the kernel gives a disk before it resets it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long opening may take, before the configured patience is known: as long as a flush, since writes that are queued go first.
const OPEN_WAIT: Duration = Duration::from_secs(PATIENCE.as_secs() * PATIENCES as u64);

/// How data pages are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Io {
    /// Directly on block devices, through the page cache in files: a sparse file's direct writes wait for space to be allocated.
    #[default]
    Auto,
    Direct,
    Cached,
}

/// A regular file or block device.
#[derive(Debug)]
pub struct FileDisk {
    file: Arc<File>,
    path: PathBuf,
    size_bytes: u64,
    is_device: bool,
    access: Access,
    patience: Duration,
    /// Data pages bypass the page cache, and `direct` is set.
    is_direct: bool,
    /// `None` inside: the medium has no direct I/O.
    direct: OnceLock<Option<Direct>>,
    /// Serializes opening `direct`. The opener holds another reference, also if it was left behind.
    turn: Mutex<Arc<()>>,
    /// The claim of disk-F1 belongs to this file. It is `file`, or, of a direct disk, the file of its direct operations (disk-D2).
    claimed: Arc<File>,
    aside: Aside,
    cached: Cached,
    /// Share of the free space of the file system that the file lies on.
    share: Option<Share>,
    _claim: Claim,
}

/// Why there is no direct I/O.
#[derive(Debug)]
enum Unfit {
    NoDirect,
    LargeBlocks,
    NotNow(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

impl FileDisk {
    /// Makes a new sparse file of `size_bytes` and opens it. Refuses a path that exists.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> io::Result<FileDisk> {
        let path = path.as_ref().to_owned();
        FileDisk::make(OPEN_WAIT, &path.clone(), move || FileDisk::create_here(&path, size_bytes))
    }

    /// Runs `create`. A file that it makes after the limit is removed while it is still claimed.
    fn make(
        limit: Duration,
        path: &Path,
        create: impl FnOnce() -> io::Result<FileDisk> + Send + 'static,
    ) -> io::Result<FileDisk> {
        opening::within_or_undo(limit, path, "cannot be created", create, |late| {
            // No caller waits any more, so an error cannot be reported.
            let _ = std::fs::remove_file(&late.path);
        })
    }

    fn create_here(path: &Path, size_bytes: u64) -> io::Result<FileDisk> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|e| explain(e, path, "cannot be created"))?;
        let claim = Claim::of_new(&file, path)?;
        FileDisk::fill_new(file, claim, path, size_bytes).inspect_err(|_| {
            // Leave no file behind, or the next try would fail; the first error is the one to report.
            let _ = std::fs::remove_file(path);
        })
    }

    fn fill_new(file: File, claim: Claim, path: &Path, size_bytes: u64) -> io::Result<FileDisk> {
        file.set_len(size_bytes).map_err(|e| explain(e, path, "cannot be given its size"))?;
        // Size and name must be durable before anything in the file can be: fdatasync promises neither.
        file.sync_all().map_err(|e| explain(e, path, "cannot be flushed"))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|d| d.sync_all()).map_err(|e| explain(e, parent, "cannot be flushed"))?;
        FileDisk::over(file, claim, path, size_bytes, Access::ReadWrite)
    }

    /// Opens an existing file or block device for reading and writing; fails at once if another process has it open.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        FileDisk::open_with(path.as_ref(), Access::ReadWrite)
    }

    /// Opens for reading. Other readers may have it open too, a writer may not.
    pub fn open_read_only(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        FileDisk::open_with(path.as_ref(), Access::ReadOnly)
    }

    /// Opens for reading what another process may have open for writing. Bytes that it writes meanwhile may be torn: read only what has a
    /// checksum.
    pub fn open_unclaimed(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        let (owned, path) = (path.as_ref().to_owned(), path.as_ref());
        opening::within(OPEN_WAIT, path, "cannot be opened", move || {
            FileDisk::of_claimed(Claim::none(&owned)?, &owned, Access::ReadOnly)
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_with(path: &Path, access: Access) -> io::Result<FileDisk> {
        let owned = path.to_owned();
        opening::within(OPEN_WAIT, path, "cannot be opened", move || FileDisk::open_here(&owned, access))
    }

    fn open_here(path: &Path, access: Access) -> io::Result<FileDisk> {
        FileDisk::of_claimed(Claim::open(path, access)?, path, access)
    }

    fn of_claimed((mut file, claim): (File, Claim), path: &Path, access: Access) -> io::Result<FileDisk> {
        // Seeking to the end gives the size of files and of block devices alike; metadata knows only files.
        let size_bytes =
            file.seek(SeekFrom::End(0)).map_err(|e| explain(e, path, "does not tell its size"))?;
        FileDisk::over(file, claim, path, size_bytes, access)?.with_io_here(Io::Auto)
    }

    fn over(file: File, claim: Claim, path: &Path, size_bytes: u64, access: Access) -> io::Result<FileDisk> {
        let (path, patience) = (path.to_owned(), PATIENCE);
        let (direct, turn) = Default::default();
        let (claimed, file) = (Arc::new(file.try_clone()?), Arc::new(file));
        let (aside, cached) = (aside_of(&file, &claimed, patience), cached_of(&file, patience));
        let is_device = file.metadata()?.file_type().is_block_device();
        let is_direct = false;
        let share = (!is_device && access == Access::ReadWrite).then(|| Share::of(&file)).flatten();
        Ok(FileDisk {
            file,
            path,
            size_bytes,
            is_device,
            access,
            patience,
            is_direct,
            direct,
            turn,
            claimed,
            aside,
            cached,
            share,
            _claim: claim,
        })
    }

    /// Sets the I/O path of data pages. `Io::Direct` fails, with the reason, where direct I/O is impossible; `Io::Auto` then uses the page
    /// cache.
    pub fn with_io(self, io: Io) -> io::Result<FileDisk> {
        let path = self.path.clone();
        opening::within(OPEN_WAIT, &path, "cannot be opened for direct I/O", move || self.with_io_here(io))
    }

    fn with_io_here(mut self, io: Io) -> io::Result<FileDisk> {
        if io == Io::Cached || (io == Io::Auto && !self.is_device) {
            self.is_direct = false;
            return Ok(self);
        }
        match self.turn_direct() {
            Ok(()) => self.is_direct = true,
            Err(_) if io == Io::Auto => {}
            Err(unfit) => return Err(self.explain_unfit(unfit)),
        }
        Ok(self)
    }

    /// Makes the claimed file the direct one: operations under way when the process ends hold it open, and with it the claim (disk-D2).
    fn turn_direct(&mut self) -> Result<(), Unfit> {
        if self.direct.get().is_some_and(|d| d.as_ref().is_some_and(|d| d.is_over(&self.claimed))) {
            return Ok(());
        }
        // Tried with a descriptor of its own first: the claimed one stays as it is if that fails.
        open_direct(&self.file, &self.path, self.patience)?;
        let cached = reopen(&self.file, self.access, OFlags::empty()).map_err(Unfit::NotNow)?;
        rustix::fs::fcntl_getfl(&self.claimed)
            .and_then(|flags| rustix::fs::fcntl_setfl(&self.claimed, flags | OFlags::DIRECT))
            .map_err(|_| Unfit::NoDirect)?;
        self.file = Arc::new(cached);
        self.aside = aside_of(&self.file, &self.claimed, self.patience);
        self.cached = cached_of(&self.file, self.patience);
        let direct = Direct::by_rings(self.claimed.clone(), self.path.clone(), self.patience);
        self.direct = OnceLock::from(Some(direct));
        Ok(())
    }

    /// Sets how long a direct operation may take; others may take four times as long.
    pub fn with_patience(mut self, patience: Duration) -> FileDisk {
        self.patience = patience;
        self.aside.set_patience(patience);
        self.cached.set_patience(patience);
        if let Some(Some(direct)) = self.direct.get_mut() {
            direct.set_patience(patience);
        }
        self
    }

    /// Do data pages go past the page cache?
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    fn explain_unfit(&self, unfit: Unfit) -> io::Error {
        let no = |what| explain(io::ErrorKind::Unsupported.into(), &self.path, what);
        match unfit {
            Unfit::NoDirect => no("has no direct I/O; use the page cache"),
            Unfit::LargeBlocks => {
                no("cannot be read directly in 4096 bytes (larger blocks?); use the page cache")
            }
            Unfit::NotNow(e) => explain(e, &self.path, "cannot be opened for direct I/O"),
        }
    }

    /// `None` if direct I/O is impossible (tmpfs of old kernels, some network file systems), or fails for now. An error if the device
    /// hangs: bytes from the page cache would prove nothing about it.
    fn direct(&self) -> io::Result<Option<&Direct>> {
        let (file, path, patience) = (self.file.clone(), self.path.clone(), self.patience);
        self.direct_by(move || open_direct(&file, &path, patience))
    }

    fn direct_by(
        &self,
        open: impl FnOnce() -> Result<Direct, Unfit> + Send + 'static,
    ) -> io::Result<Option<&Direct>> {
        if let Some(known) = self.direct.get() {
            return Ok(known.as_ref());
        }
        const WHAT: &str = "cannot be read directly";
        let turn = self.turn.lock();
        if let Some(known) = self.direct.get() {
            return Ok(known.as_ref());
        }
        if Arc::strong_count(&turn) > 1 {
            // Otherwise each try would leave a thread and a descriptor behind.
            let why = "the device hangs: one that tries is left behind";
            return Err(explain(io::Error::new(io::ErrorKind::TimedOut, why), &self.path, WHAT));
        }
        let ours = turn.clone();
        let opened = opening::within(self.patience * PATIENCES, &self.path, WHAT, move || {
            let _ours = ours;
            Ok(open())
        });
        let opened = match opened {
            Ok(Ok(direct)) => Some(direct),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
            // Descriptors or memory may be short: the next read tries again.
            Err(_) | Ok(Err(Unfit::NotNow(_))) => return Ok(None),
            Ok(Err(_)) => None,
        };
        Ok(self.direct.get_or_init(|| opened).as_ref())
    }

    /// The direct path, if data pages use it and all of these are whole pages.
    fn direct_for(&self, mut parts: impl Iterator<Item = (u64, usize)>) -> Option<&Direct> {
        let direct = self.direct.get().filter(|_| self.is_direct)?.as_ref();
        direct.filter(|_| parts.all(|(offset, len)| Direct::fits(offset, len)))
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<u64> {
        if self.access == Access::ReadOnly {
            return Err(explain(
                io::ErrorKind::ReadOnlyFilesystem.into(),
                &self.path,
                "was opened read-only",
            ));
        }
        end_within(self.size_bytes, offset, len)
    }

    fn at(&self, e: io::Error, verb: &'static str, offset: u64, len: usize) -> io::Error {
        at_place(&self.path, e, verb, offset, len)
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        let len = buf.len();
        // Copy what the page cache has; a system without RWF_NOWAIT returns nothing here.
        let mut to = [IoSliceMut::new(buf)];
        let done = rustix::io::preadv2(&self.file, &mut to, offset, ReadWriteFlags::NOWAIT).unwrap_or(0);
        if done < len {
            let rest = Call::Read { offset: offset + done as u64, len: len - done };
            let bytes = self.aside.run(rest).map_err(|e| self.at(e, "read", offset, len))?;
            buf[done..].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        let Some(direct) = self.direct()?.filter(|_| Direct::fits(offset, buf.len())) else {
            return self.read_at(buf, offset);
        };
        match direct.read(&mut [(offset, &mut *buf)]) {
            // Memory is short, or dirty pages cannot be written out: that says nothing about the medium.
            Err(e) if !is_of_medium(&e) => self.read_at(buf, offset),
            done => done,
        }
    }

    fn read_many(&self, parts: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        for (offset, bytes) in parts.iter() {
            end_within(self.size_bytes, *offset, bytes.len() as u64)?;
        }
        match self.direct_for(parts.iter().map(|(offset, bytes)| (*offset, bytes.len()))) {
            Some(direct) => direct.read(parts),
            None => read_each(
                parts,
                |offset, len| self.will_read(offset, len),
                |bytes, offset| {
                    let len = bytes.len();
                    self.cached.read(bytes, offset).map_err(|e| self.at(e, "read", offset, len))
                },
            ),
        }
    }

    fn write_many(&self, parts: &[(u64, &[u8])]) -> io::Result<()> {
        for (offset, bytes) in parts {
            self.check_write(*offset, bytes.len() as u64)?;
        }
        match self.direct_for(parts.iter().map(|(offset, bytes)| (*offset, bytes.len()))) {
            Some(direct) => {
                // A discard that was left behind may still be carried out (disk-A2).
                self.aside.check_not_hung().map_err(|e| explain(e, &self.path, "cannot be written"))?;
                direct.write(parts)
            }
            None => parts.iter().try_for_each(|(offset, bytes)| self.write_at(bytes, *offset)),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        let done = match self.aside.is_slow() {
            false => self.file.write_all_at(buf, offset),
            true => self.aside.run(Call::Write { offset, bytes: buf.to_vec() }).map(|_| ()),
        };
        done.map_err(|e| self.at(e, "write", offset, buf.len()))
    }

    fn flush(&self) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        self.aside.run(Call::Flush).map(|_| ()).map_err(|e| explain(e, &self.path, "flush failed"))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = self.check_write(offset, len)?;
        // Only whole blocks free space, and a block device refuses parts of them.
        let (begin, end) = (offset.next_multiple_of(HOLE_BYTES), end / HOLE_BYTES * HOLE_BYTES);
        if begin >= end {
            return Ok(());
        }
        let done = self.aside.run(Call::Discard { offset: begin, len: end - begin });
        done.map(|_| ()).map_err(|e| self.at(e, "discard", offset, len as usize))
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let done = self.aside.run(Call::Reserve { offset, len });
        done.map(|_| ()).map_err(|e| self.at(e, "reservation", offset, len as usize))
    }

    fn lost(&self) -> Option<String> {
        let direct = self.direct.get().and_then(Option::as_ref);
        let is_lost = self.aside.check_not_hung().is_err()
            || self.cached.is_lost()
            || direct.and_then(Direct::hung_for).is_some_and(|time| time >= self.patience * PATIENCES);
        is_lost.then(|| {
            let (path, limit) = (self.path.display(), self.patience * PATIENCES);
            format!("{path}: the device hangs, an operation was not done after {limit:?}")
        })
    }

    fn is_device(&self) -> bool {
        self.is_device
    }
    fn room_below(&self) -> Option<u64> {
        self.share.as_ref().and_then(Share::room)
    }
    fn is_cached(&self) -> bool {
        !self.is_direct
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // Only a hint: a medium that does not support it can still be read.
            let _ =
                self.cached.watched(|| rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed));
        }
    }
}

/// Carries out the calls of `aside`. They hold the claimed file too: while one is left behind, no other process can claim the medium.
fn aside_of(file: &Arc<File>, claimed: &Arc<File>, patience: Duration) -> Aside {
    let progress = progress_of(file);
    let (file, claimed) = (file.clone(), claimed.clone());
    let carry = move |call: &Call| match call {
        Call::Flush => Ok(rustix::fs::fdatasync(&file).map(|()| Vec::new())?),
        Call::Write { offset, bytes } => file.write_all_at(bytes, *offset).map(|()| Vec::new()),
        Call::Read { offset, len } => {
            let mut bytes = vec![0; *len];
            file.read_exact_at(&mut bytes, *offset).map(|()| bytes)
        }
        Call::Reserve { offset, len } => loop {
            match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, *offset, *len) {
                Err(Errno::INTR) => {}
                // File systems without it, and block devices, whose space is their own.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV | Errno::NOSYS) => return Ok(Vec::new()),
                Err(e) => return Err(e.into()),
            }
        },
        Call::Discard { offset, len } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Uses the claimed descriptor: the kernel refuses holes through another one while a device is claimed.
            match rustix::fs::fallocate(&claimed, flags, *offset, *len) {
                // The bytes may read as anything, so a file system that cannot punch holes has done enough by doing nothing.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NODEV) => Ok(Vec::new()),
                Err(e) => Err(e.into()),
            }
        }
    };
    Aside::new(Arc::new(carry), progress, patience)
}

fn cached_of(file: &Arc<File>, patience: Duration) -> Cached {
    let (file, progress) = (file.clone(), progress_of(file));
    Cached::new(Box::new(move |bytes, offset| file.read_exact_at(bytes, offset)), progress, patience)
}

fn progress_of(file: &File) -> Box<Progress> {
    let stat = stat_of(file);
    Box::new(move || completed(&std::fs::read_to_string(stat.as_ref()?).ok()?))
}

/// Opens a descriptor of its own, for reading.
fn open_direct(file: &File, path: &Path, patience: Duration) -> Result<Direct, Unfit> {
    let is_none =
        |e: &io::Error| matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported);
    let file = match reopen(file, Access::ReadOnly, OFlags::DIRECT) {
        Ok(file) => Arc::new(file),
        Err(e) if is_none(&e) => return Err(Unfit::NoDirect),
        Err(e) => return Err(Unfit::NotNow(e)),
    };
    // Some systems open such a descriptor and cannot use it, and some devices have larger blocks than 4 KiB.
    match direct::probe(&file) {
        Err(e) if is_none(&e) => Err(Unfit::LargeBlocks),
        // Errors of the medium itself are left to its readers.
        _ => Ok(Direct::by_rings(file, path.to_owned(), patience)),
    }
}

/// The kernel's file with counters of completed requests, for the device that the file is or lies on. Not all files lie on a device.
fn stat_of(file: &File) -> Option<PathBuf> {
    let about = file.metadata().ok()?;
    let number = if about.file_type().is_block_device() { about.rdev() } else { about.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat")))
}

/// Number of completed reads, writes, discards and flushes, from a line in the form of the kernel's Documentation/block/stat.rst. Reads
/// count too, because they also show that the device responds.
fn completed(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat.split_whitespace().map_while(|n| n.parse().ok()).collect();
    let [reads, writes] = [fields.first()?, fields.get(4)?];
    let of_later_kernels = [11, 15].into_iter().filter_map(|i| fields.get(i));
    Some(of_later_kernels.fold(reads.wrapping_add(*writes), |sum, n| sum.wrapping_add(*n)))
}

/// Does the error say that the medium cannot return these bytes?
fn is_of_medium(e: &io::Error) -> bool {
    if e.kind() == io::ErrorKind::TimedOut {
        return true;
    }
    let cause = e.get_ref().and_then(|inner| inner.downcast_ref::<At>());
    let errno = cause.map_or(e, |at| &at.cause).raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::IO | Errno::ILSEQ | Errno::NODATA | Errno::NXIO | Errno::REMOTEIO | Errno::TIMEDOUT)
    )
}

/// The failed operation and its place.
#[derive(Debug, thiserror::Error)]
#[error("{}: {verb} of {len} bytes at {offset} failed: {cause}", path.display())]
struct At {
    path: PathBuf,
    verb: &'static str,
    len: usize,
    offset: u64,
    cause: io::Error,
}

/// Adds the operation to an error, and keeps its kind.
fn at_place(path: &Path, cause: io::Error, verb: &'static str, offset: u64, len: usize) -> io::Error {
    io::Error::new(cause.kind(), At { path: path.to_owned(), verb, len, offset, cause })
}

/// Opens another descriptor of the same file. By descriptor and not by name: the name may belong to another file by now.
fn reopen(file: &File, access: Access, flags: OFlags) -> io::Result<File> {
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    let write = access == Access::ReadWrite;
    OpenOptions::new().read(true).write(write).custom_flags(flags.bits() as i32).open(same)
}

/// Adds the path and the operation to an error, and keeps its kind.
fn explain(e: io::Error, path: &Path, what: &str) -> io::Error {
    io::Error::new(e.kind(), format!("{} {what}: {e}", path.display()))
}

#[cfg(test)]
mod tests;
