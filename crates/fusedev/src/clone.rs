//! Opens a further descriptor of the same FUSE connection.
#![allow(unsafe_code, reason = "JUSTIFICATION: this ioctl has no safe wrapper anywhere; decision 0016")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: the kernel reads a 32-bit descriptor number from the argument, although the opcode claims to write one.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Opens the device again and ties it to `session`'s connection. Requests read from it are answered through it.
pub fn clone_device(session: impl AsFd) -> io::Result<OwnedFd> {
    let device = OwnedFd::from(File::options().read(true).write(true).open("/dev/fuse")?);
    let number = session.as_fd().as_raw_fd() as u32;
    // SAFETY: `CLONE` is the number of this ioctl, and its argument is a pointer to a u32 that the kernel only reads; `Setter` keeps
    // `number` alive for the call. The ioctl demands a device without a connection, which `device` is; otherwise it would return an error.
    unsafe { ioctl(&device, Setter::<CLONE, u32>::new(number)) }?;
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_connection_cannot_be_cloned() {
        assert_eq!(CLONE, 0x8004_e500);
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
            eprintln!("skipped: no /dev/fuse here");
            return;
        };
        assert!(clone_device(&device).is_err());
    }
}
