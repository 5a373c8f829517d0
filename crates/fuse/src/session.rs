//! The negotiation with the kernel, in one place for the door and for the yardsticks that it is compared with.

use std::io;

use fusedev::{FopenFlags, InitFlags, KernelConfig};

use crate::options::{self, MAX_REQUEST_BYTES, MountOptions};

/// Capabilities to request if the kernel has them. Kernel write-back is not among them: the kernel would own size and mtime. Nor is O_TRUNC
/// with the open: only after that the kernel finds that the file is a running program (`ETXTBSY`), whose text would be lost by then.
pub const WANTED: [InitFlags; 11] = [
    // Reads of one file may be answered in any order.
    InitFlags::FUSE_ASYNC_READ,
    // Direct I/O larger than one request is sent in parallel.
    InitFlags::FUSE_ASYNC_DIO,
    // Lookups and creates in one directory run in parallel.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // A listing carries attributes if the kernel sees that programs use them.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // The door clears set-id bits, so the kernel need not read security.capability before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // Files that several clients use are opened for direct I/O; programs may still map them.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // The kernel checks ACLs. The MDT applies the umask, since a default ACL takes its place.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // A file is found by its number alone (`.` and `..`), so a handle outlives the kernel's cache.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // A symlink's target never changes for a fid.
    InitFlags::FUSE_CACHE_SYMLINKS,
];

/// Asks the kernel to send fcntl and flock locks to the servers. Without it the kernel handles them.
pub fn ask_for_locks(config: &mut KernelConfig) -> bool {
    config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS).is_ok()
}

/// Allows idmapped mounts. The kernel then checks permissions and does not name the caller, so it is refused if the MDT checks each
/// request.
pub fn ask_for_idmap(config: &mut KernelConfig, is_judged: bool) -> io::Result<()> {
    if is_judged {
        return Err(io::Error::other(
            "idmap: the servers judge each request by its user, which an idmapped mount does not tell them; leave idmap out",
        ));
    }
    config.add_capabilities(InitFlags::FUSE_ALLOW_IDMAP).map_err(|_| {
        io::Error::other(
            "idmap: this kernel cannot idmap FUSE mounts (Linux 6.12 and later can); leave idmap out",
        )
    })
}

/// Sets the limits and capabilities of the connection; to be called from `Filesystem::init`.
pub fn kernel_config(config: &mut KernelConfig, options: &MountOptions) {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!(?flag, "this kernel lacks a FUSE capability; going on without it");
        }
    }
    // Each setter returns the nearest value that it accepts: a kernel with lower limits gets its own.
    if let Err(nearest) = config.set_max_write(MAX_REQUEST_BYTES) {
        config.set_max_write(nearest).ok();
    }
    if let Err(nearest) = config.set_max_readahead(options.read_ahead_kib.saturating_mul(1024)) {
        config.set_max_readahead(nearest).ok();
    }
    config.set_max_background(options.max_background.max(1)).ok();
    if let Some(pages) = options::pages_of_vectors() {
        config.set_max_pages(pages);
    }
}

/// Among other clients (fuse-P1). `is_direct`: the kernel keeps no pages for the descriptor, but for mappings. Direct writes within the file run
/// in parallel: the client keeps overlapping ones apart (client-W1). `close_asks`: as below.
pub fn fopen_flags_shared(is_direct: bool, close_asks: bool) -> FopenFlags {
    match (is_direct, close_asks) {
        (true, _) => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        (false, true) => FopenFlags::empty(),
        (false, false) => FopenFlags::FOPEN_NOFLUSH,
    }
}

/// How the kernel may treat an open file: keep its pages (fuse-I3), and close it without a request if no error can wait for the closing
/// process (`close_asks` false). That holds if the file was not open for writing, or if nothing acknowledged can be lost. If the servers
/// hold locks, every close sends a request, since it ends locks (see `lock`).
pub fn fopen_flags(close_asks: bool) -> FopenFlags {
    match close_asks {
        true => FopenFlags::FOPEN_KEEP_CACHE,
        false => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
    }
}
