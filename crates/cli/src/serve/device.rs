//! The media of targets: opened, made where a size was given, formatted only when blank.
//!
//! I1: a medium with any content that is not a volume of the wanted kind and file system is refused and not touched.

use std::io;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FileDisk, Volume, VolumeError};

use crate::exit::Failure;
use crate::size::Size;

/// Least size of an OST and an MDT in bytes: log and checkpoint slots, and room for something.
pub const TARGET_BYTES_MIN: u64 = 256 << 20;

/// What is on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Blank,
    Volume,
}

/// Opens a device or file; one that does not exist is made with `size`.
pub fn open(path: &Path, size: Option<Size>) -> anyhow::Result<Arc<dyn Disk>> {
    let shown = path.display();
    let disk = match (FileDisk::open(path), size) {
        (Ok(disk), _) => disk,
        (Err(e), Some(size)) if e.kind() == io::ErrorKind::NotFound => make(path, size)?,
        (Err(e), None) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::unusable(
                shown,
                "it does not exist",
                "give `size` to have it made as a sparse file",
            )
            .into());
        }
        (Err(e), _) => {
            return Err(
                Failure::failed(shown, e, "check the path, its permissions and who else uses it").into()
            );
        }
    };
    Ok(Arc::new(disk))
}

fn make(path: &Path, size: Size) -> Result<FileDisk, Failure> {
    check_size(size).map_err(|why| Failure::unusable(path.display(), why, "give a larger size"))?;
    FileDisk::create(path, size.0)
        .map_err(|e| Failure::failed(path.display(), e, "check that its directory exists and may be written"))
}

/// A target's size as a person may ask for it.
pub fn check_size(size: Size) -> Result<(), String> {
    match size.0 >= TARGET_BYTES_MIN {
        true => Ok(()),
        false => Err(format!("{size} is too small for a target; the least is {}", Size(TARGET_BYTES_MIN))),
    }
}

/// Looks without writing. Foreign content is an error that names the device.
pub fn look(path: &Path, disk: &Arc<dyn Disk>) -> anyhow::Result<Content> {
    match Volume::open_read_only(disk.clone()) {
        Ok(_) => Ok(Content::Volume),
        Err(VolumeError::NoSuperblock) if is_blank(disk)? => Ok(Content::Blank),
        Err(VolumeError::NoSuperblock) => {
            let next =
                "give another device, or wipe this one (wipefs, blkdiscard) if its content is not needed";
            Err(Failure::unusable(path.display(), "it holds something that is not Stria's", next).into())
        }
        Err(e) => {
            Err(Failure::failed(path.display(), e, "see `stria fsck`, and keep a copy before any attempt")
                .into())
        }
    }
}

/// Bytes at the head that must be zero for a medium to count as blank, as `Volume::format` has it.
const BLANK_BYTES: usize = 1 << 20;

fn is_blank(disk: &Arc<dyn Disk>) -> io::Result<bool> {
    let mut head = vec![0; BLANK_BYTES.min(disk.size() as usize)];
    disk.read_at(&mut head, 0)?;
    Ok(head.iter().all(|b| *b == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn a_new_file_is_blank_and_foreign_content_is_refused_untouched() {
        let dir = TestDir::new("device");
        let path = dir.path().join("ost0.img");
        assert!(open(&path, None).err().unwrap().to_string().contains("size"));
        assert!(open(&path, Some(Size(1 << 20))).err().unwrap().to_string().contains("too small"));
        let disk = open(&path, Some(Size(TARGET_BYTES_MIN))).unwrap();
        assert_eq!(look(&path, &disk).unwrap(), Content::Blank);
        disk.write_at(b"ext4 or whatever", 1080).unwrap();
        let refused = look(&path, &disk).unwrap_err().to_string();
        assert!(refused.contains("not Stria's") && refused.contains("ost0.img"), "{refused}");
        let mut head = [0; 16];
        disk.read_at(&mut head, 1080).unwrap();
        assert_eq!(&head, b"ext4 or whatever");
    }
}
