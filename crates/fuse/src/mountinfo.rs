//! The mount table of this process, as the kernel shows it. Reading it sends no request to any file system, so a dead mount cannot block
//! it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::mount::MountFlags;

/// The mount table of this process.
pub const TABLE: &str = "/proc/self/mountinfo";

/// Asks for the unique mount id, which is never reused (Linux 6.8).
const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// `major:minor`; names the device in `/sys/class/bdi`.
    pub device: String,
    pub point: PathBuf,
    pub fs_type: String,
    pub source: String,
    /// Flags of the mount and of its file system.
    pub flags: MountFlags,
    /// Options of the file system, flags among them.
    pub words: Vec<String>,
}

/// The visible mount at `point`: the last one in the table covers those before it.
pub fn at(point: &Path) -> io::Result<Option<Entry>> {
    let table = std::fs::read_to_string(TABLE)?;
    Ok(table.lines().filter_map(parse).rfind(|e| e.point == point))
}

/// All mount points of a device.
pub fn points_of(device: &str) -> io::Result<Vec<PathBuf>> {
    let table = std::fs::read_to_string(TABLE)?;
    Ok(table.lines().filter_map(parse).filter(|e| e.device == device).map(|e| e.point).collect())
}

/// The unique id of the visible mount at `point`; device numbers are reused at once. `None` if the kernel does not report it. No other
/// field is requested, so the kernel sends no request to the file system.
pub fn unique_id(point: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, point, flags, STATX_MNT_ID_UNIQUE).ok()?;
    (stat.stx_mask & STATX_MNT_ID_UNIQUE.bits() != 0).then_some(stat.stx_mnt_id)
}

fn parse(line: &str) -> Option<Entry> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ');
    let device = head.nth(2)?.to_string();
    let point = PathBuf::from(unescape(head.nth(1)?));
    let own_words = head.next()?.split(',');
    let mut tail = tail.split(' ');
    let fs_type = tail.next()?.to_string();
    let source = unescape(tail.next()?).to_string_lossy().into_owned();
    let words: Vec<String> = tail.next()?.split(',').map(str::to_owned).collect();
    let flags = own_words.chain(words.iter().map(String::as_str)).filter_map(flag_of).collect();
    Some(Entry { device, point, fs_type, source, flags, words })
}

/// The flag of a word in the mount table; `rw` and the like mean that a flag is not set.
fn flag_of(word: &str) -> Option<MountFlags> {
    let table = [
        ("ro", MountFlags::RDONLY),
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
        ("sync", MountFlags::SYNCHRONOUS),
        ("dirsync", MountFlags::DIRSYNC),
    ];
    table.into_iter().find(|(name, _)| *name == word).map(|(_, flag)| flag)
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(text: &str) -> OsString {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code =
            octal.and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_blanks_in_its_path_is_read() {
        let line = r"42 27 0:51 / /mnt/a\040b\134c rw,relatime shared:9 - fuse.stria 127.0.0.1:7010@tcp0:/demo rw,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.device, "0:51");
        assert_eq!(entry.point, Path::new(r"/mnt/a b\c"));
        assert_eq!(entry.fs_type, "fuse.stria");
        assert_eq!(entry.source, "127.0.0.1:7010@tcp0:/demo");
        assert_eq!(entry.flags, MountFlags::RELATIME);
        assert_eq!(entry.words, ["rw", "user_id=0"]);
    }

    #[test]
    fn flags_of_the_mount_and_of_its_file_system_are_told() {
        let flags = |mount: &str, fs: &str| parse(&format!("1 2 0:5 / /m {mount} - t s {fs}")).unwrap().flags;
        assert_eq!(flags("rw", "rw"), MountFlags::empty());
        assert_eq!(
            flags("rw,noatime", "ro,sync"),
            MountFlags::NOATIME | MountFlags::RDONLY | MountFlags::SYNCHRONOUS
        );
        assert_eq!(flags("ro,nosuid,nodev,noexec", "rw,dirsync").bits().count_ones(), 5);
    }

    #[test]
    fn lines_that_are_none_are_passed_over() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("1 2 0:5 / /m rw - t s"), None);
        assert_eq!(unescape(r"end\04"), r"end\04");
    }

    #[test]
    fn the_root_of_this_machine_is_mounted() {
        assert!(at(Path::new("/")).unwrap().is_some());
        assert_eq!(at(Path::new("/no such mount point")).unwrap(), None);
    }
}
