//! The media of targets: opened; made and formatted only where that was asked for, and only when blank.
//!
//! I1: a medium with any content that is not a volume of the wanted kind and file system is refused and not touched.
//! I2: without `Blank::Format` nothing is made: a disk that is not mounted after a reboot must not become a new, empty target
//! on the disk below its mount point.

use std::io;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, FileDisk, Volume, VolumeError};

use crate::exit::Failure;
use types::Size;

/// Least size of an OST and an MDT in bytes: log and checkpoint slots, and room for something.
pub const TARGET_BYTES_MIN: u64 = 256 << 20;

/// What is on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Blank,
    Volume,
}

/// What becomes of a medium that is blank or not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// It becomes a new target.
    Format,
    /// It is an error: somebody misses a target.
    Refuse,
}
impl Blank {
    /// As the option `--format` says.
    pub fn of(format: bool) -> Blank {
        if format { Blank::Format } else { Blank::Refuse }
    }
}

/// What to do about a medium that is not what is expected; the same words for all roles.
pub const NOT_THERE: &str = "if it should hold a target, mount its disk or correct the path; to make a new one, start once with --format";

/// As `NOT_THERE`, of the directory of the cluster map.
pub const NOT_THERE_MAP: &str =
    "if it should be, mount its disk or correct `dir`; to begin with an empty map, start once with --format";

/// Opens a device or file; one that does not exist is made with `size` if new targets may be made.
pub fn open(path: &Path, size: Option<Size>, blank: Blank) -> anyhow::Result<Arc<dyn Disk>> {
    let shown = path.display();
    let disk = match (FileDisk::open(path), size) {
        (Ok(disk), _) => disk,
        (Err(e), _) if e.kind() == io::ErrorKind::NotFound && blank == Blank::Refuse => {
            return Err(Failure::unusable(shown, "it does not exist", NOT_THERE).into());
        }
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

/// Looks without writing. Foreign content is an error that names the device, and so is none where that is refused.
pub fn look_for_target(path: &Path, disk: &Arc<dyn Disk>, blank: Blank) -> anyhow::Result<Content> {
    match look(path, disk)? {
        Content::Blank if blank == Blank::Refuse => {
            Err(Failure::unusable(path.display(), "it is blank", NOT_THERE).into())
        }
        content => Ok(content),
    }
}

fn look(path: &Path, disk: &Arc<dyn Disk>) -> anyhow::Result<Content> {
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
        let open = |size| open(&path, size, Blank::Format);
        assert!(open(None).err().unwrap().to_string().contains("size"));
        assert!(open(Some(Size(1 << 20))).err().unwrap().to_string().contains("too small"));
        let disk = open(Some(Size(TARGET_BYTES_MIN))).unwrap();
        assert_eq!(look(&path, &disk).unwrap(), Content::Blank);
        disk.write_at(b"ext4 or whatever", 1080).unwrap();
        let refused = look(&path, &disk).unwrap_err().to_string();
        assert!(refused.contains("not Stria's") && refused.contains("ost0.img"), "{refused}");
        let mut head = [0; 16];
        disk.read_at(&mut head, 1080).unwrap();
        assert_eq!(&head, b"ext4 or whatever");
    }

    #[test]
    fn without_format_nothing_is_made_and_the_error_says_what_to_do() {
        let dir = TestDir::new("device-refuse");
        let path = dir.path().join("ost0.img");
        let size = Some(Size(TARGET_BYTES_MIN));
        let missing = open(&path, size, Blank::Refuse).err().unwrap().to_string();
        assert!(missing.contains("does not exist") && missing.contains("--format"), "{missing}");
        assert!(!path.exists());
        let disk = open(&path, size, Blank::Format).unwrap();
        let blank = look_for_target(&path, &disk, Blank::Refuse).unwrap_err().to_string();
        assert!(blank.contains("blank") && blank.contains("--format"), "{blank}");
        assert_eq!(look_for_target(&path, &disk, Blank::Format).unwrap(), Content::Blank);
    }
}
