//! How a mount is made: names, limits, time-outs, each with its default and the reason for it.

use std::time::Duration;

use rustix::mount::MountFlags;

/// Largest read or write of one FUSE request: the kernel's own limit (256 pages) and the client's `BULK_MAX`.
pub const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Requests that the kernel may have under way in the background (read-ahead, asynchronous direct I/O): twice the deepest
/// queue that DESIGN section 2 wants, so that read-ahead of several files does not wait for each other.
pub const MAX_BACKGROUND: u16 = 64;
/// Read-ahead window per open file. Two requests under way while one is consumed; the kernel's 128 KiB would cut requests to an
/// eighth of what they can carry.
pub const READ_AHEAD_KIB: u32 = 4096;
/// Threads that serve requests. A thread may block in its own I/O, so this is the queue depth one mount can reach.
pub const THREADS: usize = 16;
// Who removes something to make room must find one that does not wait for room.
const _: () = assert!(2 * client::WAITERS_MAX as usize <= THREADS);
/// How long the kernel of a mount that is alone may use a name or attributes without asking again. All changes come through such a
/// mount, so it bounds what recovery changes, and how long another mount that comes in must wait.
pub const ENTRY_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings of one mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What `mount` and `df` show as the source: `nid:/fsname`.
    pub source: String,
    /// The type is shown as `fuse.<subtype>`.
    pub subtype: String,
    /// Others than who mounted may use it. Default: when root mounts.
    pub allow_other: bool,
    /// Read-only, nosuid, noatime and their like.
    pub flags: MountFlags,
    /// Mounts of it may be idmapped: the kernel alone judges who may do what (decision 0049).
    pub idmap: bool,
    /// Largest read request; `None`: as large as a write.
    pub max_read: Option<u32>,
    /// Threads that serve requests; at least 1.
    pub threads: usize,
    pub attr_timeout: Duration,
    pub entry_timeout: Duration,
    pub max_background: u16,
    pub read_ahead_kib: u32,
}

impl MountOptions {
    pub fn new(source: impl Into<String>) -> MountOptions {
        MountOptions {
            source: source.into(),
            subtype: "stria".into(),
            allow_other: rustix::process::geteuid().is_root(),
            flags: MountFlags::empty(),
            idmap: false,
            max_read: None,
            threads: THREADS,
            attr_timeout: ENTRY_TIMEOUT,
            entry_timeout: ENTRY_TIMEOUT,
            max_background: MAX_BACKGROUND,
            read_ahead_kib: READ_AHEAD_KIB,
        }
    }

    /// For replies that carry one time-out for the name and the attributes.
    pub fn both_timeout(&self) -> Duration {
        self.attr_timeout.min(self.entry_timeout)
    }
}
