//! A disk on a loop device. In a process of its own: a child that has not yet become `losetup` holds the locks of tests beside it.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::PathBuf;
use std::process::Command;

use disk::{Disk, FileDisk, Io};

struct Remove(PathBuf);
impl Drop for Remove {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Detach(String);
impl Drop for Detach {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A loop device over a file. Needs root and loop devices; says so and passes without.
#[test]
fn a_block_device_is_direct_by_itself() {
    let image = std::env::temp_dir().join(format!("stria-device-{}", std::process::id()));
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let image = Remove(image);
    let losetup = |args: &[&str]| Command::new("losetup").args(args).output();
    let made = losetup(&["--show", "-f", image.0.to_str().unwrap()]);
    let device = match made {
        Ok(out) if out.status.success() => String::from_utf8(out.stdout).unwrap().trim().to_owned(),
        Ok(out) => return eprintln!("SKIPPED: {}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => return eprintln!("SKIPPED: losetup: {e}"),
    };
    let detach = Detach(device);
    let disk = FileDisk::open(&detach.0).unwrap();
    assert!(disk.is_direct());
    disk::conformance::check(&disk);
    drop(disk);
    let disk = FileDisk::open(&detach.0).unwrap().with_io(Io::Cached).unwrap();
    assert!(!disk.is_direct());
    disk.write_at(&vec![0; 4 << 20], 0).unwrap();
    disk::conformance::check(&disk);
}
