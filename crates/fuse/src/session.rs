//! What is negotiated with the kernel. One place for the door and for the yardsticks that it is measured against.

use fuser::{Config, FopenFlags, InitFlags, KernelConfig, MountOption, SessionACL};

use crate::options::{MAX_REQUEST_BYTES, MountOptions};

/// Capabilities that are asked for where the kernel has them. Kernel write-back is not among them, and never will be: it would
/// let the kernel own size and mtime.
const WANTED: [InitFlags; 10] = [
    // Reads of one file may be answered in any order.
    InitFlags::FUSE_ASYNC_READ,
    // Direct I/O larger than one request is sent in parallel.
    InitFlags::FUSE_ASYNC_DIO,
    // Lookups and creates in one directory need not wait for each other.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // A listing brings attributes, when the kernel sees that they are asked for.
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    // O_TRUNC arrives with the open: one request, and one entry in the log, instead of two.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    // We drop set-id bits, so the kernel need not ask for security.capability before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // The kernel checks ACLs; the umask is ours, since a default ACL takes its place.
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_DONT_MASK,
    // A symlink's target never changes for a fid.
    InitFlags::FUSE_CACHE_SYMLINKS,
];

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

/// fuser's settings: threads, each with its own device fd, and who may use the mount.
pub fn session_config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        MountOption::Subtype(options.subtype.clone()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    config
}

/// What the kernel may do with an open file: keep its pages (I3), and close it without asking if no error can be waiting for the
/// closer (`close_asks` false): it was not open for writing, or nothing that was acknowledged can be lost.
pub fn fopen_flags(close_asks: bool) -> FopenFlags {
    match close_asks {
        true => FopenFlags::FOPEN_KEEP_CACHE,
        false => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
    }
}
