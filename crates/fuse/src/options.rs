//! Options of a mount: names, limits and time-outs, each with its default and the reason for it.

use std::sync::Arc;
use std::time::Duration;

use fusedev::Calls;
use rustix::mount::MountFlags;

use crate::jobs::JobIds;

/// Largest read or write of one FUSE request: the kernel's own limit (256 pages) and the client's `BULK_MAX`.
pub const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// Pages that the pieces of one call can touch: the 1,024 pieces that a call may have, with the first and the last page of each, and those
/// that the largest request fills.
const VECTOR_PAGES_MAX: u16 = 2 * 1024 + (MAX_REQUEST_BYTES / 4096) as u16;
/// The kernel's limit of pages per request. It is 256 unless root has raised it (Linux 6.13 and later).
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// Background requests that the kernel may have in flight (read-ahead, asynchronous direct I/O). It is twice the deepest queue that DESIGN
/// section 2 asks for, so that read-ahead of several files does not wait for each other.
pub const MAX_BACKGROUND: u16 = 64;
/// Read-ahead window per open file: two requests in flight while a program consumes one. The kernel's 128 KiB would cut requests to an
/// eighth of their capacity.
pub const READ_AHEAD_KIB: u32 = 4096;
/// Threads that serve requests. A thread may block in its own I/O, so this is the queue depth of a mount.
pub const THREADS: usize = 16;
// A request that frees space must find a thread that does not wait for space.
const _: () = assert!(2 * client::WAITERS_MAX as usize <= THREADS);
/// How long the kernel of a client that is alone may cache a name or attributes. All changes come through that mount, so the value bounds
/// how far recovery can change them, and how long an attaching client must wait.
pub const ENTRY_TIMEOUT: Duration = Duration::from_secs(1);

/// The pages per request to ask for, if root has raised the limit. A call of many pieces, or from unaligned memory, is one request then.
pub fn pages_of_vectors() -> Option<u16> {
    let limit: u32 = std::fs::read_to_string(PAGES_LIMIT).ok()?.trim().parse().ok()?;
    let pages = limit.min(VECTOR_PAGES_MAX as u32) as u16;
    (pages as u32 > MAX_REQUEST_BYTES / 4096).then_some(pages)
}

/// Settings of one mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in `mount` and `df`: `nid:/fsname`.
    pub source: String,
    /// The type is shown as `fuse.<subtype>`.
    pub subtype: String,
    /// Users other than the mounting one may use the mount. Default: only if root mounts.
    pub allow_other: bool,
    /// Read-only, nosuid, noatime and so on.
    pub flags: MountFlags,
    /// The mount may be idmapped; then only the kernel checks permissions (decision 0049).
    pub idmap: bool,
    /// Largest read request; `None`: as large as the largest write.
    pub max_read: Option<u32>,
    /// Threads that serve requests; at least 1.
    pub threads: usize,
    pub attr_timeout: Duration,
    pub entry_timeout: Duration,
    pub max_background: u16,
    pub read_ahead_kib: u32,
    /// How the job of a request is found. It may change later.
    pub jobid: Arc<JobIds>,
    /// Where the kernel's requests are counted.
    pub calls: Arc<Calls>,
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
            jobid: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// The time-out for replies that have one for both name and attributes.
    pub fn both_timeout(&self) -> Duration {
        self.attr_timeout.min(self.entry_timeout)
    }
}
