//! An independent reader of an MDT's medium, as simple as possible. Tests use it to check that an MDT writes what `docs/formats`
//! specifies. It shares no code with the MDT except the checksums and the hash of names.
//!
//! ```text
//!   medium -- image.rs: superblocks, checkpoint, leaves, log --> records -- check.rs: what must be true of them --> findings
//! ```
//! verify-I1: it knows volume.md, mdt.md and meta.md, and nothing else.  verify-I2: it only reads.  verify-I3: all records are in memory: it is for media of
//! tests.

mod bytes;
mod changes;
mod check;
mod counts;
mod image;
mod records;

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use disk::Disk;

pub use image::{Image, Slot, read};

/// As `findings`, for an image file that no process has open.
pub fn findings_in(path: &Path) -> io::Result<Vec<String>> {
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok(findings(&ReadOnly { file, bytes }))
}

struct ReadOnly {
    file: std::fs::File,
    bytes: u64,
}

impl Disk for ReadOnly {
    fn size(&self) -> u64 {
        self.bytes
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// Everything that is wrong with an MDT's medium, also one that was not stopped. Empty: nothing.
pub fn findings(disk: &dyn Disk) -> Vec<String> {
    match read(disk) {
        Ok(image) => image.check(),
        Err(why) => vec![why],
    }
}

/// Panics if `findings` has any.
pub fn assert_whole(disk: &dyn Disk, when: &str) {
    let found = findings(disk);
    assert!(
        found.is_empty(),
        "{when}: the medium of the MDT is not what docs/formats says:\n{}",
        found.join("\n")
    );
}
