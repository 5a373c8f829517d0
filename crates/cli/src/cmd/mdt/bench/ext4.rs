//! ext4's side: the same operations by system calls on descriptors of directories, so that each call looks up one name.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, mkdirat, openat, statat, syncfs, unlinkat};

use super::tree::{self, Hand, Name, Side, Tree};
use crate::cmd::measure::ext4::Ext4;

/// Buffer of one getdents64, as in glibc.
const LIST_BYTES: usize = 32 << 10;

pub struct OnExt4 {
    root: Arc<OwnedFd>,
    dirs: Vec<OwnedFd>,
    /// Kernel memory in bytes before the file system was made.
    slab_before: u64,
    /// Unmounted last, after all descriptors on it are closed.
    _mounted: Ext4,
}

fn directory(at: &OwnedFd, name: &std::ffi::CStr) -> std::io::Result<OwnedFd> {
    Ok(openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

impl OnExt4 {
    pub fn make(device: &Path, inodes: u64, tree: Tree, stop: &AtomicBool) -> anyhow::Result<OnExt4> {
        let slab_before = slab_bytes();
        let mounted = Ext4::make(device, Some(inodes))?;
        let root = std::fs::File::open(&mounted.dir).with_context(|| mounted.dir.display().to_string())?;
        let root = Arc::new(root.into());
        let mut side = OnExt4 { root, dirs: vec![], slab_before, _mounted: mounted };
        side.dirs = tree::fill(&side, tree, stop)?;
        Ok(side)
    }

    /// Kernel memory for its dentries and inodes, without the page cache. It includes what other processes allocate meanwhile.
    pub fn memory_bytes(&self) -> u64 {
        slab_bytes().saturating_sub(self.slab_before)
    }
}

fn slab_bytes() -> u64 {
    crate::memory::of("/proc/meminfo", "Slab:")
}

impl Side for OnExt4 {
    type Dir = OwnedFd;
    type Hand = Caller;

    fn hand(&self, _: usize) -> anyhow::Result<Caller> {
        Ok(Caller { root: self.root.clone(), list: Box::new([MaybeUninit::uninit(); LIST_BYTES]) })
    }
    fn dirs(&self) -> &[OwnedFd] {
        &self.dirs
    }
    fn flush(&self) -> anyhow::Result<()> {
        Ok(syncfs(&self.root)?)
    }
}

pub struct Caller {
    root: Arc<OwnedFd>,
    list: Box<[MaybeUninit<u8>; LIST_BYTES]>,
}

impl Hand for Caller {
    type Dir = OwnedFd;

    fn make_dir(&mut self, name: &Name) -> anyhow::Result<OwnedFd> {
        mkdirat(&self.root, name.c(), Mode::from_raw_mode(0o755))?;
        Ok(directory(&self.root, name.c())?)
    }

    fn create(&mut self, dir: &OwnedFd, name: &Name) -> anyhow::Result<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(dir, name.c(), flags, Mode::from_raw_mode(0o644))?);
        Ok(())
    }

    fn remove(&mut self, dir: &OwnedFd, name: &Name) -> anyhow::Result<()> {
        Ok(unlinkat(dir, name.c(), AtFlags::empty())?)
    }

    fn stat(&mut self, dir: &OwnedFd, name: &Name) -> anyhow::Result<()> {
        std::hint::black_box(statat(dir, name.c(), AtFlags::SYMLINK_NOFOLLOW)?);
        Ok(())
    }

    fn list(&mut self, dir: &OwnedFd) -> anyhow::Result<u64> {
        let opened = directory(dir, c".")?;
        let mut entries = RawDir::new(&opened, &mut self.list[..]);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let name = entry?;
            let name = name.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            std::hint::black_box(statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)?);
            count += 1;
        }
        Ok(count)
    }
}
