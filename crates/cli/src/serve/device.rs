//! Opens the media of targets. Makes and formats one only if that is asked for and the medium is blank.
//!
//! cli-V1: a medium with any content other than a target of the wanted kind, file system and index is refused and not touched.
//! cli-V2: without `Blank::Format` no medium is made: a disk that is not mounted after a reboot must not become a new, empty target on the
//! disk below its mount point.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use disk::content::{self, Content};
use disk::{Disk, FileDisk, Io, Kind, Label};

use crate::exit::Failure;
use types::Size;

/// Least size of an OST or MDT in bytes: log and checkpoint slots, and some free space.
pub const TARGET_BYTES_MIN: u64 = 256 << 20;

/// The usable content of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Blank,
    Target,
}

/// How to treat a medium that is blank or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// It becomes a new target.
    Format,
    /// It is an error: a target is missing.
    Refuse,
}
impl Blank {
    /// From the option `--format`.
    pub fn of(format: bool) -> Blank {
        if format { Blank::Format } else { Blank::Refuse }
    }
}

/// The next step for a missing target; the same text for all roles.
pub const NOT_THERE: &str = "if it should hold a target, mount its disk or correct the path; to make a new one, start once with --format";

/// As `NOT_THERE`, for the directory of the cluster map.
pub const NOT_THERE_MAP: &str =
    "if it should be, mount its disk or correct `dir`; to begin with an empty map, start once with --format";

/// The next step for a medium whose open does not return.
const HANGS: &str = "look at the device and its path (`dmesg`), and start again once it answers";

/// How data pages go to a device, and the longest time for one.
#[derive(Clone, Copy, Debug)]
pub struct DataWay {
    pub io: Io,
    pub patience: Duration,
}

impl DataWay {
    /// An MDT has no data pages.
    pub const CACHED: DataWay = DataWay { io: Io::Cached, patience: disk::PATIENCE };
}

/// Opens a device or file. A missing file is made with `size` if new targets may be made.
pub fn open(path: &Path, size: Option<Size>, blank: Blank, way: DataWay) -> anyhow::Result<Arc<dyn Disk>> {
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
        (Err(e), _) if e.kind() == io::ErrorKind::TimedOut => {
            return Err(Failure::failed(shown, e, HANGS).into());
        }
        (Err(e), _) => {
            return Err(Failure::failed(
                shown,
                e,
                "check the path, its permissions, and whether another process uses it",
            )
            .into());
        }
    };
    let disk = disk.with_io(way.io).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => Failure::failed(shown, e, HANGS),
        _ => Failure::failed(shown, e, "set io to auto or cached"),
    })?;
    tracing::debug!(device = %path.display(), direct = disk.is_direct(), "opened");
    Ok(Arc::new(disk.with_patience(way.patience)))
}

fn make(path: &Path, size: Size) -> Result<FileDisk, Failure> {
    check_size(size).map_err(|why| Failure::unusable(path.display(), why, "give a larger size"))?;
    // Only the last directory: with more, a target would be made below the mount point of a disk that is not mounted (cli-V2).
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let made = match parent.map_or(Ok(()), std::fs::create_dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    made.map_err(|e| Failure::failed(path.display(), e, "make the directory above it, or mount its disk"))?;
    FileDisk::create(path, size.0)
        .map_err(|e| Failure::failed(path.display(), e, "check that its directory exists and may be written"))
}

/// Whether a target would be made here: the device is missing or blank. False if it cannot be examined; opening it then reports why.
pub fn is_new(path: &Path) -> bool {
    match FileDisk::open_read_only(path) {
        Err(e) => e.kind() == io::ErrorKind::NotFound,
        Ok(disk) => matches!(content::look(&disk), Ok(Content::Blank)),
    }
}

/// True if a formatted target is here that no management service knows yet.
pub fn is_unregistered(path: &Path) -> bool {
    FileDisk::open_read_only(path)
        .is_ok_and(|disk| matches!(content::look(&disk), Ok(Content::Target(label)) if label.target.0 == 0))
}

/// Checks the size that a user asks for.
pub fn check_size(size: Size) -> Result<(), String> {
    match size.0 >= TARGET_BYTES_MIN {
        true => Ok(()),
        false => Err(format!("{size} is too small for a target; the least is {}", Size(TARGET_BYTES_MIN))),
    }
}

/// The target that belongs on a device.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub kind: Kind,
    pub fsname: &'a str,
    /// `None`: any index.
    pub index: Option<u32>,
}

impl Expected<'_> {
    /// A target that has not registered yet may still get any index.
    fn is_met_by(&self, label: &Label) -> bool {
        let is_index = |i| label.index == i || label.index == u32::MAX || label.target.0 == 0;
        label.kind == self.kind && label.fs_name == self.fsname && self.index.is_none_or(is_index)
    }
}

impl fmt::Display for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == Kind::Mdt { "MDT" } else { "OST" };
        let index = self.index.map_or(String::new(), |i| format!(" {i}"));
        write!(f, "{kind}{index} of file system '{}'", self.fsname)
    }
}

/// Examines a medium without writing. A target other than the expected one, or other content, is an error that names both. A blank medium
/// is an error if `blank` refuses it.
pub fn look_for_target(
    path: &Path,
    disk: &Arc<dyn Disk>,
    expected: Expected<'_>,
    blank: Blank,
) -> anyhow::Result<Found> {
    let shown = path.display();
    let found = content::look(&**disk).map_err(|e| {
        Failure::failed(&shown, e, "look at the medium (`dmesg`), and keep a copy before any attempt")
    })?;
    match found {
        Content::Target(label) if expected.is_met_by(&label) => Ok(Found::Target),
        Content::Target(label) => {
            let why = format!("it holds {}, and {expected} was expected", content::describe(&label));
            let next = "correct the device, or the file system's name, in the configuration";
            Err(Failure::unusable(shown, why, next).into())
        }
        Content::Blank if blank == Blank::Format => Ok(Found::Blank),
        Content::Blank => Err(Failure::unusable(shown, "it is blank", NOT_THERE).into()),
        Content::Log(label) => {
            let next = "name it under `log_devices`, and its OST here";
            Err(Failure::unusable(shown, format!("it holds only a log: {label}"), next).into())
        }
        Content::Unreadable(why) => {
            Err(Failure::failed(shown, why, "see `stria fsck`, and keep a copy before any attempt").into())
        }
        other => {
            let why = format!("it holds something that is not Stria's: {other}");
            let next =
                "give another device; if its content is not needed, `stria mkfs` with --force overwrites it";
            Err(Failure::unusable(shown, why, next).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    const OST: Expected<'_> = Expected { kind: Kind::Ost, fsname: "demo", index: None };

    #[test]
    fn a_new_file_is_blank_and_foreign_content_is_refused_untouched() {
        let dir = TestDir::new("device");
        let path = dir.path().join("ost0.img");
        let open = |size| open(&path, size, Blank::Format, DataWay::CACHED);
        assert!(open(None).err().unwrap().to_string().contains("size"));
        assert!(open(Some(Size(1 << 20))).err().unwrap().to_string().contains("too small"));
        let disk = open(Some(Size(TARGET_BYTES_MIN))).unwrap();
        let look = || look_for_target(&path, &disk, OST, Blank::Format);
        assert_eq!(look().unwrap(), Found::Blank);
        disk.write_at(b"XFSB or whatever", 0).unwrap();
        let refused = look().unwrap_err().to_string();
        assert!(refused.contains("not Stria's: XFS") && refused.contains("ost0.img"), "{refused}");
        let mut head = [0; 16];
        disk.read_at(&mut head, 0).unwrap();
        assert_eq!(&head, b"XFSB or whatever");
    }

    #[test]
    fn with_format_only_the_last_directory_is_made() {
        let dir = TestDir::new("device-parents");
        let size = Some(Size(TARGET_BYTES_MIN));
        let open = |path: &Path| open(path, size, Blank::Format, DataWay::CACHED).map(drop);
        let refused = open(&dir.path().join("disk/stria/ost0.img")).unwrap_err().to_string();
        assert!(refused.contains("make the directory above it"), "{refused}");
        assert!(!dir.path().join("disk").exists());
        for name in ["stria/ost0.img", "stria/ost1.img"] {
            open(&dir.path().join(name)).unwrap();
        }
    }

    #[test]
    fn without_format_nothing_is_made_and_the_error_says_what_to_do() {
        let dir = TestDir::new("device-refuse");
        let path = dir.path().join("ost0.img");
        let size = Some(Size(TARGET_BYTES_MIN));
        let missing = open(&path, size, Blank::Refuse, DataWay::CACHED).err().unwrap().to_string();
        assert!(missing.contains("does not exist") && missing.contains("--format"), "{missing}");
        assert!(!path.exists());
        let disk = open(&path, size, Blank::Format, DataWay::CACHED).unwrap();
        let blank = look_for_target(&path, &disk, OST, Blank::Refuse).unwrap_err().to_string();
        assert!(blank.contains("blank") && blank.contains("--format"), "{blank}");
        assert_eq!(look_for_target(&path, &disk, OST, Blank::Format).unwrap(), Found::Blank);
    }

    #[test]
    fn a_target_that_belongs_elsewhere_is_refused_with_both_names() {
        let (path, disk) = (Path::new("/dev/x"), Arc::new(disk::MemDisk::new(64 << 20)));
        let spec = oss::FormatSpec { index: 3, ..oss::FormatSpec::new("demo", types::Uuid([7; 16])) };
        oss::Ost::format(&*disk, &spec).unwrap();
        let volume = disk::Volume::open(disk.clone()).unwrap();
        let disk: Arc<dyn Disk> = disk;
        let look = |expected| look_for_target(path, &disk, expected, Blank::Format);
        let other = Expected { index: Some(4), ..OST };
        // Before it has registered it may still get any index.
        [OST, other].into_iter().for_each(|e| assert_eq!(look(e).unwrap(), Found::Target));
        volume.set_label(Label { target: types::TargetId(9), ..volume.label() }).unwrap();
        assert_eq!(look(Expected { index: Some(3), ..OST }).unwrap(), Found::Target);
        for (expected, word) in [
            (other, "OST 4 of file system 'demo'"),
            (Expected { fsname: "home", ..OST }, "OST of file system 'home'"),
            (Expected { kind: Kind::Mdt, ..OST }, "MDT of file system 'demo'"),
        ] {
            let refused = look(expected).unwrap_err().to_string();
            let words = ["/dev/x: it holds Stria OST 3 of file system 'demo', uuid 07", word, "was expected"];
            words.iter().for_each(|w| assert!(refused.contains(w), "no '{w}' in: {refused}"));
        }
    }
}
