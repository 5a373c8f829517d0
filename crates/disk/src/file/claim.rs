//! Opens a file or device so that no other process writes it.
//!
//! disk-C1: a regular file is claimed by `flock` (exclusive; shared when read-only). `open_unclaimed` claims nothing, and writes nothing.
//! disk-C2: a block device that is written is also claimed by `O_EXCL`: the kernel refuses one that is mounted, that has a partition in
//!     use, or that md, dm or another process has claimed, whichever of its nodes it was opened by.
//! disk-C3: a loop device and the file behind it are one medium: opening one for writing is refused while the other is in use.
//! A refusal names the user of the medium, where that can be found out.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, major, minor};
use rustix::io::Errno;

use super::{Access, explain};

/// udev holds a shared lock on a device while it probes its content, after each writer's close: not for longer than this.
const UDEV_TRIES: u32 = 40;
const UDEV_TRY_EACH: Duration = Duration::from_millis(50);

/// Keeps other processes away while it lives, together with the opened file itself.
#[derive(Debug)]
pub(super) struct Claim {
    /// The file behind a loop device, locked.
    _behind: Option<File>,
}

impl Claim {
    pub fn open(path: &Path, access: Access) -> io::Result<(File, Claim)> {
        // 1. Find out its kind before it is opened: a device is opened exclusively.
        let is_writer = access == Access::ReadWrite;
        let about = look_at(path)?;
        let is_block = about.file_type().is_block_device();
        // The kernel opens a read-only device for writing too, and refuses the first write.
        if is_block && is_writer && read(&sys_of(about.rdev()).join("ro")).is_some_and(|ro| ro == "1") {
            let kind = io::ErrorKind::ReadOnlyFilesystem;
            return Err(explain(
                kind.into(),
                path,
                "is a read-only device (`blockdev --setrw` changes that)",
            ));
        }
        // 2. Open it (disk-C2).
        let flags = if is_block && is_writer { OFlags::EXCL.bits() as i32 } else { 0 };
        let file = OpenOptions::new().read(true).write(is_writer).custom_flags(flags).open(path);
        let file = file.map_err(|e| refused(e, path, &about))?;
        // 3. Lock it (disk-C1).
        lock(&file, path, access, if is_block { UDEV_TRIES } else { 1 })?;
        // 4. Check the file below it or the device above it (disk-C3).
        let mut behind = None;
        if is_writer && is_block {
            behind = lock_behind(path, &about)?;
        } else if is_writer && let Some(user) = loop_over(&about) {
            let why =
                format!("is the file behind {user}, so it is that device's; detach it, or give the device");
            return Err(explain(io::ErrorKind::ResourceBusy.into(), path, &why));
        }
        Ok((file, Claim { _behind: behind }))
    }

    /// Opens for reading without a claim. Other processes may write it meanwhile.
    pub fn none(path: &Path) -> io::Result<(File, Claim)> {
        look_at(path)?;
        let file = File::open(path).map_err(|e| explain(e, path, "cannot be opened"))?;
        Ok((file, Claim { _behind: None }))
    }

    /// Claims a file that was just made, and that no other process knows yet.
    pub fn of_new(file: &File, path: &Path) -> io::Result<Claim> {
        lock(file, path, Access::ReadWrite, 1)?;
        Ok(Claim { _behind: None })
    }
}

/// A regular file or block device.
fn look_at(path: &Path) -> io::Result<Metadata> {
    let about = std::fs::metadata(path).map_err(|e| explain(e, path, "cannot be opened"))?;
    if about.is_file() || about.file_type().is_block_device() {
        return Ok(about);
    }
    let kind = io::ErrorKind::InvalidInput;
    Err(explain(kind.into(), path, "is neither a regular file nor a block device"))
}

fn lock(file: &File, path: &Path, access: Access, tries: u32) -> io::Result<()> {
    let how = match access {
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    for left in (0..tries).rev() {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if left > 0 => std::thread::sleep(UDEV_TRY_EACH),
            Err(Errno::WOULDBLOCK) => break,
            Err(e) => return Err(explain(e.into(), path, "cannot be locked")),
        }
    }
    let why = "is in use by another process (or opened twice in this one); stop that first";
    Err(explain(io::ErrorKind::ResourceBusy.into(), path, why))
}

fn refused(e: io::Error, path: &Path, about: &Metadata) -> io::Error {
    let errno = e.raw_os_error().map(Errno::from_raw_os_error);
    let is_block = about.file_type().is_block_device();
    if is_block && errno == Some(Errno::BUSY) {
        let user = users(about).unwrap_or_else(|| "another process has claimed it".into());
        return explain(io::ErrorKind::ResourceBusy.into(), path, &format!("is in use: {user}"));
    }
    explain(e, path, "cannot be opened")
}

/// The user of a device or of a partition of it, in words.
fn users(about: &Metadata) -> Option<String> {
    let whole = (about.rdev(), sys_of(about.rdev()));
    let parts = std::fs::read_dir(&whole.1).ok()?.flatten().map(|e| e.path());
    let parts = parts.filter(|p| p.join("partition").exists()).filter_map(|p| Some((number_in(&p)?, p)));
    [whole.clone()].into_iter().chain(parts).find_map(|(number, sys)| {
        let of = if number == whole.0 { String::new() } else { format!("its partition {} ", name_of(&sys)) };
        let by = user(number, &sys)?;
        Some(format!("{of}{}{by}", if of.is_empty() { "it " } else { "" }))
    })
}

fn user(number: u64, sys: &Path) -> Option<String> {
    if let Some(point) = mount_point(number) {
        return Some(format!("is mounted on {point}"));
    }
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_swap = |line: &str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        std::fs::metadata(name).is_ok_and(|m| m.file_type().is_block_device() && m.rdev() == number)
    };
    if swaps.lines().skip(1).any(is_swap) {
        return Some("is swap space in use".into());
    }
    let holder = std::fs::read_dir(sys.join("holders")).ok()?.flatten().next()?;
    Some(format!("belongs to {}", holder.file_name().to_string_lossy()))
}

fn mount_point(number: u64) -> Option<String> {
    let id = format!("{}:{}", major(number), minor(number));
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|l| l.split(' ').nth(2) == Some(&id))?;
    line.split(' ').nth(4).map(str::to_owned)
}

/// Locks the file behind a loop device. A file that cannot be found (deleted, or in another name space) cannot be opened by other
/// processes here either. If the device is only a part of the file, the lock is shared: others may use other parts.
fn lock_behind(path: &Path, about: &Metadata) -> io::Result<Option<File>> {
    let sys = sys_of(about.rdev());
    let is_partition = sys.join("partition").exists();
    let of_loop = if is_partition { sys.join("../loop") } else { sys.join("loop") };
    let Some(name) = read(&of_loop.join("backing_file")) else { return Ok(None) };
    let Ok(file) = File::open(&name) else { return Ok(None) };
    let is_zero = |what: &str| read(&of_loop.join(what)).is_none_or(|n| n == "0");
    let is_whole = !is_partition && is_zero("offset") && is_zero("sizelimit");
    let access = if is_whole { Access::ReadWrite } else { Access::ReadOnly };
    lock(&file, Path::new(&name), access, 1)
        .map_err(|e| explain(e, path, "stands on a file that is in use"))?;
    Ok(Some(file))
}

/// The loop device that stands on this file, if there is one.
fn loop_over(about: &Metadata) -> Option<String> {
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten();
    let devices = devices.map(|e| e.path()).filter(|p| name_of(p).starts_with("loop"));
    devices.into_iter().find_map(|sys| {
        let behind = std::fs::metadata(read(&sys.join("loop/backing_file"))?).ok()?;
        let is_same = (behind.dev(), behind.ino()) == (about.dev(), about.ino());
        let point = || mount_point(number_in(&sys)?).map(|p| format!(" (mounted on {p})"));
        is_same.then(|| format!("/dev/{}{}", name_of(&sys), point().unwrap_or_default()))
    })
}

fn sys_of(number: u64) -> PathBuf {
    let link = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
    // The link is resolved, because `..` must lead to the whole device and not to the link's directory.
    link.canonicalize().unwrap_or(link)
}

fn name_of(sys: &Path) -> String {
    sys.file_name().unwrap_or(OsStr::new("?")).to_string_lossy().into_owned()
}

fn number_in(sys: &Path) -> Option<u64> {
    let text = read(&sys.join("dev"))?;
    let (a, b) = text.split_once(':')?;
    Some(rustix::fs::makedev(a.parse().ok()?, b.parse().ok()?))
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}
