//! The FUSE door: a thin adapter between the kernel's FUSE protocol and `client::Fs`.
//!
//! It promises what a local file system promises on one node, as far as `client` does. It refuses kernel write-back: the kernel would own
//! size and mtime.
//! fuse-I1. An inode number is the fid, which names one file for ever. The generation is the same for all files of a file system and tells
//! handles of different file systems apart. The door keeps no state per inode, so `forget` has nothing to do.
//! fuse-I2. A thread that serves requests never waits until the kernel has changed this mount (invalidation, unmount). It sends no notice
//! that waits for a lock, or about a file that its request does not keep in use (`forget`).
//! fuse-I3. While this client is alone, all changes come through this mount, so the kernel's page cache stays valid over open. The first open
//! after that drops the pages from before (`pages`).
//! fuse-P1. Among other clients the kernel has pages of a file only under the client's lease (client-CP1). Descriptors that write bypass the
//! pages, but for mappings and for descriptors from before.
//! fuse-P2. While a program may store into pages without a request, by a mapping or such a descriptor, pages are read under the exclusive
//! lease. So no shared lease has dirty pages, and a write of pages never waits for another client that waits for these pages.
//! fuse-I4. The door clears set-id bits, which the kernel leaves to the file system (`setid`).

mod aside;
mod attributes;
mod coherence;
mod cred;
mod data;
mod door;
mod entry;
mod forget;
mod fsflags;
pub mod gate;
mod handles;
mod inuse;
mod jobs;
mod list;
mod lock;
mod mount;
mod mountinfo;
mod options;
mod pages;
mod remount;
mod reply;
mod served;
mod session;
mod setid;
mod synced;
mod write;

pub use fusedev::Calls;
pub use fusedev::{INodeNo, Notifier, Switch};
pub use jobs::{JobId, JobIds};
pub use mount::{MountError, Mounted, Serve, Unmount, attach, attach_with, mount};
pub use options::{ENTRY_TIMEOUT, MAX_BACKGROUND, MAX_REQUEST_BYTES, MountOptions, READ_AHEAD_KIB, THREADS};
pub use remount::{Present, present, remount};
pub use rustix::mount::MountFlags;
pub use session::{WANTED, fopen_flags, kernel_config};
