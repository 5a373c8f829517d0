//! The log of a mount in the background: a mount has no directory of its own.
//!
//! Root's logs lie where only root may write: in /var/log/stria, else in /run/stria. A plain user's lie in $XDG_RUNTIME_DIR/stria. Without
//! these they lie in the temporary directory, which all users share.
//! cli-L1: a file that another user could have put there (a link, a fifo, a file of that user) is never written to.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::exit::Failure;

/// A name has at most 255 bytes; this leaves room for prefix and suffix.
const POINT_BYTES_MAX: usize = 160;
/// Mode bits that let other users change the directory.
const OTHERS_WRITE: u32 = 0o022;

/// Opens the log of the mount at `point` for appending, and returns its path.
pub fn open(point: &Path) -> Result<(File, PathBuf), Failure> {
    open_in(&own_directories(), &std::env::temp_dir(), &name_of(point))
}

/// Directories that only this user may write to, best first.
fn own_directories() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return vec!["/var/log/stria".into(), "/run/stria".into()];
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime.filter(|dir| dir.is_absolute()).into_iter().map(|dir| dir.join("stria")).collect()
}

/// Mount points that map to one name (`/a/b` and `/a-b`) share a log. A long name keeps its end and gets a checksum.
fn name_of(point: &Path) -> String {
    let mut name = point.to_string_lossy().replace('/', "-");
    if name.len() > POINT_BYTES_MAX {
        let crc = types::crc::crc32c(name.as_bytes());
        let cut = (name.len() - POINT_BYTES_MAX..).find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name = format!("-{crc:08x}-{}", &name[cut..]);
    }
    format!("stria-mount{name}.log")
}

fn open_in(own: &[PathBuf], shared: &Path, name: &str) -> Result<(File, PathBuf), Failure> {
    let in_own = own.iter().find_map(|dir| {
        make_own(dir).ok()?;
        let path = dir.join(name);
        Some((open_own_file(&path).ok()?, path))
    });
    if let Some(found) = in_own {
        return Ok(found);
    }
    // Another user may have taken the name in the shared directory to block this log; the second name cannot be predicted.
    let second = format!("{name}.{}", std::process::id());
    let mut why = None;
    for path in [name, &*second].map(|name| shared.join(name)) {
        match open_own_file(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) => why = why.or(Some((e, path))),
        }
    }
    let (why, path) = why.expect("both names were tried");
    let next = "remove it, or set TMPDIR to a directory of your own, or stay in the --foreground";
    Err(Failure::failed(format!("the log {}", path.display()), why, next))
}

/// Makes the directory if it is missing; refuses one in which other users may create files.
fn make_own(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let there = std::fs::symlink_metadata(dir)?;
    let is_ours = there.is_dir() && there.uid() == my_uid() && there.mode() & OTHERS_WRITE == 0;
    if is_ours { Ok(()) } else { Err(io::Error::other("others may write to it")) }
}

/// cli-L1: it follows no link and does not wait for the other end of a fifo. Then it checks the opened file, which no other user can
/// exchange.
fn open_own_file(path: &Path) -> io::Result<File> {
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600).custom_flags(careful.bits() as i32);
    let file = options.open(path)?;
    let there = file.metadata()?;
    if !there.is_file() || there.uid() != my_uid() || there.nlink() != 1 {
        return Err(io::Error::other("another user's, or no plain file of one name"));
    }
    Ok(file)
}

fn my_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Puts something at the path of the log.
    type Lay = fn(&Path);
    const NAME: &str = "stria-mount-mnt-s.log";

    #[test]
    fn it_lies_in_ones_own_directory_which_is_made_for_its_owner_only() {
        let dir = TestDir::new("mountlog-own");
        let own = dir.path().join("own");
        for line in ["one\n", "two\n"] {
            let (mut file, path) = open_in(std::slice::from_ref(&own), dir.path(), NAME).unwrap();
            assert_eq!(path, own.join(NAME));
            file.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(own.join(NAME)).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        // A directory that others may write, a link, and one that cannot be made: the next directory is used.
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        let (linked, good) = (dir.path().join("linked"), dir.path().join("good"));
        symlink(&good, &linked).unwrap();
        let all = [own, linked, dir.path().join("no/such"), good.clone()];
        assert_eq!(open_in(&all, dir.path(), NAME).unwrap().1, good.join(NAME));
    }

    #[test]
    fn what_another_could_have_laid_there_is_not_written_to() {
        let lay: [(&str, Lay); 4] = [
            ("link", |path| symlink(path.with_file_name("victim"), path).unwrap()),
            ("hard", |path| std::fs::hard_link(path.with_file_name("victim"), path).unwrap()),
            ("fifo", |path| {
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
            }),
            ("directory", |path| std::fs::create_dir(path).unwrap()),
        ];
        for (what, lay) in lay {
            let dir = TestDir::new(&format!("mountlog-{what}"));
            std::fs::write(dir.path().join("victim"), "theirs").unwrap();
            lay(&dir.path().join(NAME));
            let (mut file, path) = open_in(&[], dir.path(), NAME).unwrap();
            assert_ne!(path, dir.path().join(NAME), "{what}");
            file.write_all(b"ours").unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("victim")).unwrap(), "theirs", "{what}");
            // Neither name is free: the error says so, and nothing blocks.
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            let said = open_in(&[], dir.path(), NAME).unwrap_err().to_string();
            assert!(said.contains(NAME) && said.contains("--foreground"), "{what}: {said}");
        }
    }

    #[test]
    fn a_long_mount_point_has_a_name_of_its_own() {
        let long = |first: &str| PathBuf::from(format!("/{first}/{}/end", "ä/".repeat(400)));
        let (a, b) = (name_of(&long("a")), name_of(&long("b")));
        assert!(a != b && a.len() <= 255 && a.ends_with("-end.log"), "{a}");
        assert_eq!(name_of(Path::new("/mnt/s")), NAME);
        let dir = TestDir::new("mountlog-long");
        open_in(&[], dir.path(), &a).unwrap();
    }
}
