//! A medium in a regular file (sparse) or a block device, through the page cache: `pread`, `pwrite`, `fdatasync`.
//!
//! F1: no two processes write one medium: it is claimed while it is open (`claim`).
//! F2: the size is read once at open and never changes; a write cannot make the file grow.
//! F3: space of a sparse file is taken when it is first written, or ahead of that by `reserve`; on copy-on-write file systems
//!     (btrfs, ZFS) also a reserved range may meet a full host.
//! F4: an acknowledged write is in the page cache, so it outlives the process and not the power.
//! F5: reads of the medium itself go by a second descriptor with `O_DIRECT`, where the file system has it; the kernel writes dirty
//!     pages of the range out first.

mod claim;

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use ring::Buffers;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::{Disk, end_within};
use claim::Claim;

/// Holes are punched in multiples of this: the block size of common file systems and devices.
const HOLE_BYTES: u64 = 4096;

/// A regular file or block device.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    access: Access,
    direct: OnceLock<Option<Direct>>,
    _claim: Claim,
}

/// A way past the page cache.
#[derive(Debug)]
struct Direct {
    file: File,
    /// As many as were read into at once.
    spare: Mutex<Vec<Buffers>>,
}

/// Bytes of one direct read.
const DIRECT_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadWrite,
    ReadOnly,
}

impl FileDisk {
    /// Makes a new sparse file of `size_bytes` and opens it. Refuses a path that exists.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> io::Result<FileDisk> {
        let path = path.as_ref();
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|e| explain(e, path, "cannot be created"))?;
        let claim = Claim::of_new(&file, path)?;
        file.set_len(size_bytes).map_err(|e| {
            // Leave no empty file behind that the next try would stumble over; the first error is the one to tell.
            let _ = std::fs::remove_file(path);
            explain(e, path, "cannot be given its size")
        })?;
        // Size and name must be durable before anything in the file can be: fdatasync promises neither.
        file.sync_all().map_err(|e| explain(e, path, "cannot be flushed"))?;
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|d| d.sync_all()).map_err(|e| explain(e, parent, "cannot be flushed"))?;
        let (path, access) = (path.to_owned(), Access::ReadWrite);
        Ok(FileDisk { file, path, size_bytes, access, direct: OnceLock::new(), _claim: claim })
    }

    /// Opens an existing file or block device for reading and writing; fails at once if another process has it open.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        FileDisk::open_with(path.as_ref(), Access::ReadWrite)
    }

    /// Opens for reading. Other readers may have it open too, a writer may not.
    pub fn open_read_only(path: impl AsRef<Path>) -> io::Result<FileDisk> {
        FileDisk::open_with(path.as_ref(), Access::ReadOnly)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open_with(path: &Path, access: Access) -> io::Result<FileDisk> {
        let (mut file, claim) = Claim::open(path, access)?;
        // Seeking to the end gives the size of files and of block devices alike; metadata knows only files.
        let size_bytes =
            file.seek(SeekFrom::End(0)).map_err(|e| explain(e, path, "does not tell its size"))?;
        let (path, direct) = (path.to_owned(), OnceLock::new());
        Ok(FileDisk { file, path, size_bytes, access, direct, _claim: claim })
    }

    /// `None` where there is no way past the page cache (tmpfs of old kernels, some network file systems), or not now.
    fn direct(&self) -> Option<&Direct> {
        if let Some(known) = self.direct.get() {
            return known.as_ref();
        }
        // By the descriptor and not by the name: that may be another file's by now.
        let same = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let opened = match OpenOptions::new().read(true).custom_flags(flags).open(same) {
            Ok(file) => Some(Direct { file, spare: Mutex::default() }),
            // It has none, and will have none.
            Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => None,
            // For want of descriptors or memory, say: the next read asks again.
            Err(_) => return None,
        };
        self.direct.get_or_init(|| opened).as_ref()
    }

    /// Past the page cache where that can be.
    fn read_direct(&self, direct: &Direct, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let spare = direct.spare.lock().pop();
        let mut space = spare.map_or_else(|| Buffers::new(1, DIRECT_BYTES), Ok)?;
        for (part, at) in buf.chunks_mut(DIRECT_BYTES).zip((offset..).step_by(DIRECT_BYTES)) {
            let bytes = &mut space.get(0)[..part.len()];
            match direct.file.read_exact_at(bytes, at) {
                Ok(()) => part.copy_from_slice(bytes),
                Err(e) if is_of_medium(&e) => return Err(self.at(e, "direct read", at, part.len())),
                // Larger blocks than our pages, or no memory, or no room to write dirty pages out: nothing that is the medium's.
                Err(_) => self.read_at(part, at)?,
            }
        }
        direct.spare.lock().push(space);
        Ok(())
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

    fn at(&self, e: io::Error, verb: &str, offset: u64, len: usize) -> io::Error {
        io::Error::new(
            e.kind(),
            format!("{}: {verb} of {len} bytes at {offset} failed: {e}", self.path.display()),
        )
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        let len = buf.len();
        self.file.read_exact_at(buf, offset).map_err(|e| self.at(e, "read", offset, len))
    }

    fn read_medium_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        end_within(self.size_bytes, offset, buf.len() as u64)?;
        let is_aligned = |n: u64| n.is_multiple_of(HOLE_BYTES);
        let direct = self.direct().filter(|_| is_aligned(offset) && is_aligned(buf.len() as u64));
        let Some(direct) = direct else { return self.read_at(buf, offset) };
        self.read_direct(direct, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        self.file.write_all_at(buf, offset).map_err(|e| self.at(e, "write", offset, buf.len()))
    }

    fn flush(&self) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.file).map_err(|e| explain(e.into(), &self.path, "flush failed"))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = self.check_write(offset, len)?;
        // Only whole blocks give space back, and a block device refuses parts of them.
        let (begin, end) = (offset.next_multiple_of(HOLE_BYTES), end / HOLE_BYTES * HOLE_BYTES);
        if begin >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, begin, end - begin) {
            // The bytes may read as anything, so a file system that cannot punch holes has done enough by doing nothing.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV) => Ok(()),
            Err(e) => Err(self.at(e.into(), "discard", offset, len as usize)),
        }
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
                Err(rustix::io::Errno::INTR) => {}
                // File systems without it, and block devices, whose space is their own.
                Ok(())
                | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV | rustix::io::Errno::NOSYS) => {
                    return Ok(());
                }
                Err(e) => return Err(self.at(e.into(), "reservation", offset, len as usize)),
            }
        }
    }

    fn will_read(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // Only a hint: a medium that cannot take it is read all the same.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }
}

/// Does the error say that the medium cannot give these bytes?
fn is_of_medium(e: &io::Error) -> bool {
    let errno = e.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::IO | Errno::ILSEQ | Errno::NODATA | Errno::NXIO | Errno::REMOTEIO | Errno::TIMEDOUT)
    )
}

/// The error with the path and what was tried; its kind stays.
fn explain(e: io::Error, path: &Path, what: &str) -> io::Error {
    io::Error::new(e.kind(), format!("{} {what}: {e}", path.display()))
}

#[cfg(test)]
mod tests;
