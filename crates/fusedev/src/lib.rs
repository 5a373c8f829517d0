//! The kernel's FUSE protocol (7.31 to 7.45 and later) over `/dev/fuse`: requests in, replies and notices out, mounting.
//!
//! Use: implement `Filesystem`, get a device from `mount::mount`, `Session::start` it, `Session::run` it on as many threads as
//! requests shall be served at once. A `Reply…` may be sent to another thread and answered there, later.
//! It refuses kernels older than 7.31 (Linux 5.4), and knows neither CUSE, DAX, passthrough nor io_uring.
//! fusedev-I1. Bytes from the device are decoded without panics: what cannot be read is answered `EINVAL`, what is unknown `ENOSYS`.
//! fusedev-I2. Every request that wants an answer gets exactly one; a reply that is dropped answers `EIO`.
//! fusedev-I3. A reply goes to the descriptor that the request came from: each clone of the device has its own list of requests.
//! fusedev-I4. `unsafe` stands in `clone.rs` alone (decision 0016).

mod attr;
mod clone;
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
    /// An inode, as the file system numbers it.
    INodeNo;
    /// What `open` gave the kernel to name the open file with.
    FileHandle;
    /// Tells uses of one inode number apart.
    Generation;
    /// Who holds a lock: a table of descriptors (fcntl), or an open file (flock, OFD).
    LockOwner;
    /// Names a request until it is answered.
    RequestId;
}
