//! Ends a connection from outside, and drops the pages that the kernel has of it.
//!
//! The kernel ends a connection by itself when the last descriptor of its device is closed. A process that is stopped closes none, and one
//! that is killed may hang in a notice: that waits for a page, which waits for an answer.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::Notifier;

/// The place of the kernel's files about connections, where a system has it mounted.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The switch that ends one connection. A later connection with the same number is another one.
#[derive(Debug)]
pub struct Switch(File);

impl Switch {
    /// `number`: the minor device number of the mount. A plain user has the switches of own mounts, root has all.
    pub fn of(number: u32) -> io::Result<Switch> {
        let path = PathBuf::from(CONNECTIONS).join(format!("{number}/abort"));
        match File::options().write(true).open(path) {
            // It is mounted nowhere. Root can look at it all the same.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Switch::unmounted(number).map_err(|_| e),
            file => Ok(Switch(file?)),
        }
    }

    fn unmounted(number: u32) -> io::Result<Switch> {
        let all = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&all)?;
        let root = fsmount(&all, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        Ok(Switch(openat(root, format!("{number}/abort"), flags, Mode::empty())?.into()))
    }

    /// Every waiting and later request fails with `ENOTCONN`. Pages that the kernel has stay.
    pub fn end(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }
}

impl Notifier {
    /// For a process that serves no requests. Before the connection has ended, a notice may wait for an answer.
    pub fn of_device(device: OwnedFd) -> Notifier {
        Notifier(Arc::new(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_does_not_exist_has_no_switch() {
        assert_eq!(Switch::of(u32::MAX >> 12).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
