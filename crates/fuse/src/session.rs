//! What is negotiated with the kernel. One place for the door and for the yardsticks that it is measured against.

use std::io;

use fusedev::{FopenFlags, InitFlags, KernelConfig};

use crate::options::{MAX_REQUEST_BYTES, MountOptions};

/// Capabilities that are asked for where the kernel has them. Kernel write-back is not among them, and never will be: it would
/// let the kernel own size and mtime. Nor is O_TRUNC with the open: the kernel finds only after it that a program runs from the file
/// (`ETXTBSY`), and the program would have lost its text.
pub const WANTED: [InitFlags; 11] = [
    // Reads of one file may be answered in any order.
    InitFlags::FUSE_ASYNC_READ,
    // Direct I/O larger than one request is sent in parallel.
    InitFlags::FUSE_ASYNC_DIO,
    // Lookups and creates in one directory need not wait for each other.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // A listing brings attributes, when the kernel sees that they are asked for.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // We drop set-id bits, so the kernel need not ask for security.capability before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // Files that several clients use are opened for direct I/O; programs may map them still.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // The kernel checks ACLs; the umask is ours, since a default ACL takes its place.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // A file is found by its number alone (`.` and `..`), so a handle outlives what the kernel remembers.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // A symlink's target never changes for a fid.
    InitFlags::FUSE_CACHE_SYMLINKS,
];

/// fcntl and flock are asked of the servers. Without it they are the kernel's own.
pub fn ask_for_locks(config: &mut KernelConfig) -> bool {
    config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS).is_ok()
}

/// Mounts of it may be idmapped. Then the kernel judges, and does not say who asks: not where the servers want to judge each request.
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

/// Sets the connection's limits and capabilities; to be called from `Filesystem::init`.
pub fn kernel_config(config: &mut KernelConfig, options: &MountOptions) {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!(?flag, "this kernel lacks a FUSE capability; going on without it");
        }
    }
    // Each setter names the nearest value that it would take: a kernel with lower limits gets its own.
    if let Err(nearest) = config.set_max_write(MAX_REQUEST_BYTES) {
        config.set_max_write(nearest).ok();
    }
    if let Err(nearest) = config.set_max_readahead(options.read_ahead_kib.saturating_mul(1024)) {
        config.set_max_readahead(nearest).ok();
    }
    config.set_max_background(options.max_background.max(1)).ok();
}

/// Among other clients: nothing is kept, every read and write comes here, and mappings are allowed all the same.
pub fn fopen_flags_shared() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO
}

/// What the kernel may do with an open file: keep its pages (fuse-I3), and close it without asking if no error can be waiting for the
/// closer (`close_asks` false): it was not open for writing, or nothing that was acknowledged can be lost. Where locks are at the servers
/// every closer asks, since its locks go (see `lock`).
pub fn fopen_flags(close_asks: bool) -> FopenFlags {
    match close_asks {
        true => FopenFlags::FOPEN_KEEP_CACHE,
        false => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
    }
}
