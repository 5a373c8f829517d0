//! Parameters of a mount: their base values, and those that its kernel and its door follow. The client follows the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::Tuned;
use fuse::{JobIds, MountOptions, Mounted};
use mgmt::params::{Param, Params};

use crate::config::OP_TIMEOUT_SEC;
use crate::options::{DEAD_AFTER, Options};

/// The value without an option, and without a kept or live value.
pub fn base(param: Param) -> u64 {
    match param {
        Param::MountDeadAfter => DEAD_AFTER.as_millis() as u64,
        Param::MountOpTimeout => u64::from(OP_TIMEOUT_SEC) * 1000,
        Param::MountReadAhead => u64::from(fuse::READ_AHEAD_KIB) * 1024,
        Param::MountWriteBehind => client::Settings::default().write_behind as u64,
        _ => 0,
    }
}

/// The parameters of a mount with these options.
pub fn of(options: &Options) -> Tuned {
    Tuned { params: Arc::new(Params::of_mount(&options.given())), base }
}

/// The part of the parameters that mounts have at their door.
pub struct AtDoor {
    options: Options,
    jobs: Arc<JobIds>,
    tuned: Tuned,
}

impl AtDoor {
    /// Sets the values of now in `how`.
    pub fn begin(tuned: &Tuned, options: &Options, how: &mut MountOptions) -> AtDoor {
        let jobs = Arc::new(JobIds::new(options.jobid_of(tuned.value(Param::MountJobId))));
        how.jobid = jobs.clone();
        how.read_ahead_kib = (tuned.value(Param::MountReadAhead) / 1024) as u32;
        AtDoor { options: options.clone(), jobs, tuned: tuned.clone() }
    }

    /// Follows later changes.
    pub fn follow(self, mounted: &Arc<Mounted>) {
        let AtDoor { options, jobs, tuned: Tuned { params, base } } = self;
        let (mounted, ahead) = (Arc::downgrade(mounted), AtomicU64::new(u64::MAX));
        params.on_change(move |params| {
            let Some(mounted) = mounted.upgrade() else { return false };
            let value = |param| params.get(param).unwrap_or_else(|| base(param));
            jobs.set(options.jobid_of(value(Param::MountJobId)));
            let bytes = value(Param::MountReadAhead);
            // Only where it changes: root may have set the device's limit by hand since the mount.
            if ![u64::MAX, bytes].contains(&ahead.swap(bytes, Ordering::Relaxed)) {
                mounted.set_read_ahead(bytes);
            }
            true
        });
    }
}
