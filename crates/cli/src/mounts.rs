//! Mount points as the kernel sees them: Stria's mounts, stale mounts, and the users of a mount.
//!
//! Nothing here opens or stats a path under a mount: a dead server would block it. The data comes from `/proc/self/mountinfo` and from
//! `/proc/<pid>` links, which the kernel prints without a request to the file system. Only to recognise a stale mount, `statfs` is called,
//! on a thread of its own with a bounded wait.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::exit::Failure;
use crate::serve::bounded;

/// File system type in the mount table.
pub const FS_TYPE: &str = "fuse.stria";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    pub fs_type: String,
    /// `NID:/fsname` for Stria mounts.
    pub source: String,
}

/// All mounts of this process's mount namespace, in the order of the table (later ones lie on top).
pub fn table() -> std::io::Result<Vec<Mount>> {
    Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mnt opts… - type source superopts`, with octal escapes in paths.
fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let point = PathBuf::from(unescape(left.split(' ').nth(4)?));
    let mut right = right.split(' ');
    Some(Mount { point, fs_type: right.next()?.to_owned(), source: unescape(right.next()?) })
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten();
        let value =
            octal.and_then(|o| std::str::from_utf8(o).ok()).and_then(|o| u8::from_str_radix(o, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The topmost mount at exactly `point`.
pub fn at(point: &Path) -> Option<Mount> {
    table().ok()?.into_iter().rev().find(|m| m.point == point)
}

/// The mount that holds `path`: the longest mount point that is a prefix of it. `path` must be absolute.
pub fn holding(path: &Path) -> Option<Mount> {
    let table = table().ok()?;
    let longest =
        table.iter().filter(|m| path.starts_with(&m.point)).map(|m| m.point.as_os_str().len()).max()?;
    table.into_iter().rev().find(|m| m.point.as_os_str().len() == longest && path.starts_with(&m.point))
}

/// All Stria mounts.
pub fn ours() -> Vec<Mount> {
    table().unwrap_or_default().into_iter().filter(|m| m.fs_type == FS_TYPE).collect()
}

/// The kernel answers `statfs` of a mount without a server at once. A server that hangs or was stopped does not answer; it is not gone.
const STALE_ANSWER_MAX: Duration = Duration::from_secs(1);

/// True if the process that served this mount is gone.
pub fn is_stale(mount: &Mount) -> bool {
    let point = mount.point.clone();
    mount.fs_type.starts_with("fuse")
        && is_answer_stale(bounded("statfs", STALE_ANSWER_MAX, move || rustix::fs::statfs(&point).map(drop)))
}

fn is_answer_stale(answer: Option<Result<(), Errno>>) -> bool {
    matches!(answer, Some(Err(Errno::NOTCONN | Errno::CONNABORTED)))
}

/// Unmounts stale Stria mounts at `point` and returns their number. A mount with a living server stays.
pub fn clear_stale(point: &Path) -> usize {
    let mut cleared = 0;
    while let Some(mount) = at(point) {
        if mount.fs_type != FS_TYPE || !is_stale(&mount) || detach(point).is_err() {
            break;
        }
        cleared += 1;
    }
    cleared
}

/// Refuses a point where something is mounted: a mount on top would hide its files. An autofs mount waits to be covered.
pub fn check_free(point: &Path) -> Result<(), Failure> {
    const WAITS_TO_BE_COVERED: &str = "autofs";
    let Some(there) = at(point).filter(|m| m.fs_type != WAITS_TO_BE_COVERED) else { return Ok(()) };
    let kind = if there.fs_type == FS_TYPE { String::new() } else { format!(" ({})", there.fs_type) };
    let why = format!("{}{kind} is mounted there already", there.source);
    Err(Failure::failed(point.display(), why, "unmount it, or choose another directory"))
}

/// Removes the mount from the tree at once; open files stay usable until the serving process ends.
fn detach(point: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // Ordinary users may unmount only through the set-uid helper.
        Err(Errno::PERM) => {
            let status =
                std::process::Command::new("fusermount3").args(["-uz", "-q", "--"]).arg(point).status();
            if status.is_ok_and(|s| s.success()) { Ok(()) } else { Err(Errno::PERM) }
        }
        done => done,
    }
}

/// A process that uses a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub pid: u32,
    pub command: String,
    /// `cwd`, `root`, `exe`, `fd 7`, `map`.
    pub how: String,
    pub path: PathBuf,
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {} ({}): {} {}", self.pid, self.command, self.how, self.path.display())
    }
}

/// Most users that are named in a message.
pub const USERS_MAX: usize = 20;

/// Users of the mount at `point` that this user may see: working directories, roots, programs, open files, mappings. The process `except`
/// (the server of the mount) does not count. Nor does this process: it may have inherited a file and ends with its answer.
pub fn users(point: &Path, except: u32) -> Vec<User> {
    let (mut found, own) = (Vec::new(), std::process::id());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| ![except, own].contains(pid)) else { continue };
        if let Some((how, path)) = use_by(&entry.path(), point) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned();
            found.push(User { pid, command, how, path });
        }
        if found.len() == USERS_MAX {
            break;
        }
    }
    found
}

/// For the end of a refusal: "; it is in use by …", or nothing if no user is visible.
pub fn named(point: &Path, except: u32) -> String {
    let users: Vec<String> = users(point, except).iter().map(User::to_string).collect();
    if users.is_empty() { String::new() } else { format!("; it is in use by {}", users.join(", ")) }
}

/// The first way in which a process uses the mount.
fn use_by(process: &Path, point: &Path) -> Option<(String, PathBuf)> {
    let under = |link: PathBuf| fs::read_link(link).ok().filter(|target| target.starts_with(point));
    for how in ["cwd", "root", "exe"] {
        if let Some(path) = under(process.join(how)) {
            return Some((how.to_owned(), path));
        }
    }
    for fd in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        if let Some(path) = under(fd.path()) {
            return Some((format!("fd {}", fd.file_name().to_string_lossy()), path));
        }
    }
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|l| l.find('/').map(|at| PathBuf::from(&l[at..])));
    mapped.into_iter().find(|p| p.starts_with(point)).map(|p| ("map".to_owned(), p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    90 22 0:51 / /tmp/with\\040space rw,nosuid - fuse.stria unix:/a\\134b@local0:/stria rw,user_id=0\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].fs_type, "ext4");
        assert_eq!(mounts[1].point, Path::new("/tmp/with space"));
        assert_eq!(mounts[1].source, "unix:/a\\b@local0:/stria");
    }

    #[test]
    fn every_path_lies_on_some_mount_and_plain_ones_are_not_stale() {
        let mount = holding(Path::new("/proc/self")).expect("/proc is mounted");
        assert_eq!(mount.fs_type, "proc");
        assert!(!is_stale(&mount));
        assert_eq!(clear_stale(Path::new("/proc")), 0);
        assert!(is_answer_stale(Some(Err(Errno::NOTCONN))));
        assert!(!is_answer_stale(None), "a server that does not answer may live");
        assert!(!is_answer_stale(Some(Ok(()))));
    }

    #[test]
    fn a_point_where_something_is_mounted_is_not_covered() {
        let refused = check_free(Path::new("/proc")).unwrap_err().to_string();
        assert!(refused.contains("(proc) is mounted there already; unmount it"), "{refused}");
        assert!(check_free(Path::new("/proc/self")).is_ok());
    }

    #[test]
    fn a_user_of_a_directory_is_found_with_what_it_does() {
        let dir = std::env::temp_dir().join(format!("stria-users-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").current_dir(&dir).spawn().unwrap();
        let found = users(&dir, std::process::id());
        let _ = child.kill();
        let _ = child.wait();
        fs::remove_dir(&dir).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].pid, found[0].how.as_str()), (child.id(), "cwd"));
        assert_eq!(found[0].command, "sleep");
    }
}
