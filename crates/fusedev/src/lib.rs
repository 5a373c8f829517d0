//! The kernel's FUSE protocol (7.31 to 7.45 and later) over `/dev/fuse`: mounting, requests, replies and notices.
//!
//! Use: implement `Filesystem`, get a device from `mount::mount`, call `Session::start` with it, then `Session::run` with as many threads
//! as there shall be concurrent requests. A `Reply…` may be moved to another thread and answered there later. The crate refuses kernels
//! older than 7.31 (Linux 5.4) and does not support CUSE, DAX, passthrough or io_uring.
//! fusedev-I1. Bytes from the device are decoded without panics. A malformed request gets `EINVAL`, an unknown one `ENOSYS`.
//! fusedev-I2. Every request that expects a reply gets exactly one; dropping a reply sends `EIO`.
//! fusedev-I3. A reply goes to the descriptor from which the request was read: each clone of the device has its own list of requests.
//! fusedev-I4. `unsafe` stands in `clone.rs` alone (decision 0016).

mod attr;
mod calls;
mod clone;
mod control;
mod dispatch;
mod encode;
mod errno;
mod filesystem;
mod flags;
mod init;
mod interrupt;
pub mod mount;
mod notify;
pub mod opcode;
mod reply;
pub mod request;
mod session;
mod xattr_dir_reply;

pub use attr::{FileAttr, FileType, StatxAttr, TimeOrNow};
pub use calls::{Called, Calls};
pub use control::Switch;
pub use errno::Errno;
pub use filesystem::{Filesystem, Request, UNKNOWN_ID};
pub use flags::*;
pub use init::{KernelConfig, MAX_WRITE_BYTES};
pub use notify::Notifier;
pub use reply::*;
pub use session::Session;
pub use xattr_dir_reply::*;

/// The inode number of a file system's root.
pub const ROOT: INodeNo = INodeNo(1);

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);)*
    };
}

number! {
    /// An inode number, chosen by the file system.
    INodeNo;
    /// The file system's handle of an open file, from its reply to `open`.
    FileHandle;
    /// Distinguishes successive uses of one inode number.
    Generation;
    /// The owner of a lock: a table of descriptors (fcntl) or an open file (flock, OFD).
    LockOwner;
    /// Identifies a request until it is answered.
    RequestId;
}
