//! The frame of both programs: mount, wait, unmount on a signal.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use fuse::{MountOptions, Unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Mounts `door` at `mountpoint` and serves it until it is unmounted; SIGTERM, SIGINT and SIGHUP unmount it.
pub fn run<F: fuser::Filesystem>(door: F, mountpoint: &Path, options: &MountOptions) -> Result<()> {
    // Before mounting, so that a signal that comes early is not lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot catch signals")?;
    let mounted = Arc::new(crate::attach(door, mountpoint, options)?);
    let told = mounted.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if told.unmount(Unmount::Clean).is_err() {
                told.unmount(Unmount::Lazy).ok();
            }
        }
    });
    mounted.join()?;
    Ok(())
}
