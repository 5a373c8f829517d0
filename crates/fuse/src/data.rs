//! `fallocate`, `lseek` for data and holes, and `copy_file_range`.

use client::{Allocate, Handle, Whence};
use fusedev::{Errno, Request};
use types::{Fault, Fid};

use crate::cred::is_root;
use crate::door::Door;

/// Modes of fallocate(2).
const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const ZERO_RANGE: i32 = 0x10;
/// Whences of lseek(2); the kernel handles all others itself.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Collapsing, inserting and unsharing ranges is not supported, as on other FUSE file systems.
fn allocation(mode: i32) -> Option<Allocate> {
    const PUNCH: i32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEP: i32 = ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Some(Allocate::Grow),
        KEEP_SIZE => Some(Allocate::KeepSize),
        PUNCH => Some(Allocate::Punch),
        ZERO_RANGE => Some(Allocate::Zero),
        ZERO_KEEP => Some(Allocate::ZeroKeepSize),
        _ => None,
    }
}

/// `None` for whences that the kernel never sends.
pub fn whence(whence: i32) -> Option<Whence> {
    match whence {
        SEEK_DATA => Some(Whence::Data),
        SEEK_HOLE => Some(Whence::Hole),
        _ => None,
    }
}

/// Logs a fault and returns its errno.
type Told = fn(&str, &Fault) -> Errno;

impl Door {
    /// Clears set-id bits, as a write does. The kernel leaves that to the file system, and does not ask for it with these calls.
    fn drop_privileges_of(&self, rq: &Request, fid: Fid) -> Result<(), Fault> {
        if is_root(rq) { Ok(()) } else { self.drop_privileges(rq, fid).map(|_| ()) }
    }

    pub fn allocate(
        &self,
        (rq, fid): (&Request, Fid),
        handle: Handle,
        offset: u64,
        len: u64,
        mode: i32,
        told: Told,
    ) -> Result<(), Errno> {
        let what = allocation(mode).ok_or(Errno::EOPNOTSUPP)?;
        let done = self
            .drop_privileges_of(rq, fid)
            .and_then(|()| {
                let end = offset.saturating_add(len);
                let allocate = || self.fs().fallocate(handle, offset, len, what);
                match what {
                    Allocate::Grow | Allocate::Zero => {
                        self.growing(rq, fid, (offset, end), false, allocate, |()| end)
                    }
                    _ => allocate(),
                }
            })
            .and_then(|()| self.fs().sync_if_asked(handle));
        done.map_err(|fault| told("fallocate", &fault))
    }

    pub fn copy(
        &self,
        (rq, target): (&Request, Fid),
        from: (Handle, u64),
        to: (Handle, u64),
        len: u64,
        told: Told,
    ) -> Result<u32, Errno> {
        let copied = self
            .drop_privileges_of(rq, target)
            .and_then(|()| {
                let copy = || self.fs().copy(from.0, from.1, to.0, to.1, len);
                self.growing(rq, target, (to.1, to.1.saturating_add(len)), false, copy, |n| to.1 + n)
            })
            .and_then(|n| self.fs().sync_if_asked(to.0).map(|()| n));
        // One call copies less than 4 GiB.
        copied.map(|n| n as u32).map_err(|fault| told("copy_file_range", &fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_make_no_sense_here_are_refused() {
        //           collapse, insert, unshare, no hide stale, punch without keep, punch and zero
        for mode in [0x08, 0x20, 0x40, 0x04, 0x02, 0x13, 0x09, 0x80] {
            assert_eq!(allocation(mode), None, "{mode:#x}");
        }
        assert_eq!(allocation(3), Some(Allocate::Punch));
        assert_eq!(allocation(0x11), Some(Allocate::ZeroKeepSize));
    }
}
