//! The yardsticks use fuser's transport, so that Stria's own is measured against another. The mount options, threads, gate and the
//! flags of FUSE_INIT are the same as in Stria's mount.

use std::io::ErrorKind;
use std::path::Path;

use fuse::{MAX_REQUEST_BYTES, MountError, MountOptions, Mounted, Serve};
use fuser::{Config, Filesystem, FopenFlags, InitFlags, KernelConfig, Session, SessionACL};

use crate::gated::Gated;

pub fn attach<F: Filesystem>(
    door: F,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    fuse::attach_with(mountpoint, options, |device, gate| {
        let session = Session::from_fd(Gated { inner: door, gate }, device, config.acl, config)?;
        // ECONNABORTED: the mount ended while a request was being read from the kernel.
        let run = move || match session.run() {
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => Ok(()),
            ended => ended,
        };
        Ok(Box::new(run) as Serve)
    })
}

/// As `fuse::kernel_config`.
pub fn kernel_config(config: &mut KernelConfig, options: &MountOptions) {
    for flag in fuse::WANTED {
        config.add_capabilities(InitFlags::from_bits_retain(flag.bits())).ok();
    }
    if let Err(nearest) = config.set_max_write(MAX_REQUEST_BYTES) {
        config.set_max_write(nearest).ok();
    }
    if let Err(nearest) = config.set_max_readahead(options.read_ahead_kib.saturating_mul(1024)) {
        config.set_max_readahead(nearest).ok();
    }
    config.set_max_background(options.max_background.max(1)).ok();
}

pub fn fopen_flags(close_asks: bool) -> FopenFlags {
    FopenFlags::from_bits_retain(fuse::fopen_flags(close_asks).bits())
}
