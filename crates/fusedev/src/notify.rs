//! Notices: messages of the file system to the kernel that no request asked for.
//!
//! A notice may wait for the kernel's locks of its inode, and a request that waits for its reply may hold these. So a serving thread sends
//! only notices about attributes (`inval_inode` with a negative offset), and only of a file that its own request keeps in use. Such a
//! notice waits at most for an inode that is being created or freed (fuse-I2).

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::io::Errno;

use crate::INodeNo;
use crate::encode::Body;

const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const RETRIEVE: u32 = 5;
const DELETE: u32 = 6;
const INC_EPOCH: u32 = 8;
const EXPIRE_ONLY: u32 = 1;

/// Sends notices and keeps the device open. After the end of the session they return `Ok`: nothing is cached any more.
#[derive(Clone)]
pub struct Notifier(pub(crate) Arc<OwnedFd>);

impl Notifier {
    /// Drops the inode's attributes, and its pages from `offset` on (`len` 0: to the end). A negative offset drops attributes only.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, len: i64) -> io::Result<()> {
        let mut body = Body::<24>::new();
        body.u64(ino.0).u64(offset as u64).u64(len as u64);
        self.send(INVAL_INODE, body.bytes(), None)
    }

    /// Asks which of the inode's pages in `[offset, offset + size)` the kernel holds, up to the kernel's file size. The answer comes soon,
    /// as `Filesystem::retrieved` with the number `question`; the kernel waits for nothing. `NotFound`: the kernel does not know the inode.
    pub fn retrieve(&self, question: u64, ino: INodeNo, offset: u64, size: u32) -> io::Result<()> {
        let mut body = Body::<32>::new();
        body.u64(question).u64(ino.0).u64(offset).u32(size).u32(0);
        Ok(self.write(RETRIEVE, body.bytes(), None)?)
    }

    /// Drops a name. The kernel returns ENOTEMPTY or EBUSY if its inode is in use as a mount point.
    pub fn inval_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel look the name up again at its next use; open files and mounts below it stay.
    pub fn expire_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: INodeNo, name: &OsStr, flags: u32) -> io::Result<()> {
        let mut body = Body::<16>::new();
        body.u64(parent.0).u32(name.len() as u32).u32(flags);
        self.send(INVAL_ENTRY, body.bytes(), Some(name))
    }

    /// Reports that `child` no longer has the name `name`; watchers (inotify) are notified.
    pub fn delete(&self, parent: INodeNo, child: INodeNo, name: &OsStr) -> io::Result<()> {
        let mut body = Body::<24>::new();
        body.u64(parent.0).u64(child.0).u32(name.len() as u32);
        self.send(DELETE, body.bytes(), Some(name))
    }

    /// Makes the kernel look up every name again at its next use. Needs 7.44 (Linux 6.17); `Unsupported` before.
    pub fn inc_epoch(&self) -> io::Result<()> {
        match self.send(INC_EPOCH, &[], None) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Err(io::ErrorKind::Unsupported.into())
            }
            other => other,
        }
    }

    fn send(&self, code: u32, body: &[u8], name: Option<&OsStr>) -> io::Result<()> {
        match self.write(code, body, name) {
            // ENOENT: the kernel does not cache it, so there is nothing to drop.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A name is sent with its terminating NUL.
    fn write(&self, code: u32, body: &[u8], name: Option<&OsStr>) -> Result<(), Errno> {
        let (name, end): (&[u8], &[u8]) = name.map_or((&[], &[]), |n| (n.as_bytes(), &[0]));
        let len = 16 + body.len() + name.len() + end.len();
        let mut head = Body::<16>::new();
        head.u32(len as u32).u32(code).u64(0);
        let parts = [head.bytes(), body, name, end].map(IoSlice::new);
        rustix::io::writev(&*self.0, &parts).map(drop)
    }
}
