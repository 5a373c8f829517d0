//! Paragraphs of docs/SEMANTICS.md about what a name can stand for, and how names change: special files, files without a name,
//! the flags of rename, listings that are left and taken up again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, makedev};
use rustix::io::Errno;

use super::sys::*;
use super::{Bench, Test};

pub const TESTS: &[Test] = &[
    ("kinds::special_files", special_files),
    ("kinds::rename_flags", rename_flags),
    ("kinds::nameless_files", nameless_files),
    ("kinds::any_name", any_name),
    ("kinds::link_limit", link_limit),
    ("kinds::seekdir", seekdir),
];

/// [S-special-files] Fifos, sockets and device nodes are whole.
fn special_files(b: &mut Bench) -> Result<()> {
    let dir = b.dir("special_files")?;
    let at = |name: &str| dir.join(name);
    // 1. The result of stat, under each of their names.
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, makedev(1, 3)),
        ("block", FileType::BlockDevice, makedev(259, 70_000)),
    ];
    for (name, kind, rdev) in kinds {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from(0o640), rdev).context(name)?;
        fs::hard_link(at(name), at("link"))?;
        fs::rename(at("link"), at("renamed"))?;
        for path in [at(name), at("renamed")] {
            let m = fs::symlink_metadata(b.look(&path))?;
            let got = (FileType::from_raw_mode(m.mode()), m.mode() & 0o7777, m.rdev(), m.nlink());
            ensure_eq(got, (kind, 0o640, rdev, 2), name)?;
        }
        fs::remove_file(at("renamed"))?;
    }
    // 2. They work among processes of the mount.
    let fifo = at("fifo");
    let writer = thread::spawn(move || fs::write(fifo, "through"));
    ensure_eq(fs::read_to_string(at("fifo"))?, "through".to_owned(), "fifo")?;
    writer.join().map_err(|_| anyhow::anyhow!("writer panicked"))??;
    let mut null = File::options().read(true).write(true).open(at("char"))?;
    null.write_all(b"gone")?;
    ensure_eq(null.read(&mut [0; 4])?, 0, "read of a null device")?;
    let listener = UnixListener::bind(at("bound"))?;
    ensure_eq(fs::metadata(at("bound"))?.file_type().is_socket(), true, "a bound socket")?;
    let mut asked = UnixStream::connect(at("bound"))?;
    let (mut got, _) = listener.accept()?;
    asked.write_all(b"hello")?;
    let mut hello = [0; 5];
    got.read_exact(&mut hello)?;
    ensure_same(&hello, b"hello", "through the socket")?;
    // 3. Only root makes devices.
    rustix::fs::chmod(&dir, Mode::from(0o777))?;
    ensure_eq(as_user(1000, "", &dir, "mknod c2 c 1 3")? == 0, false, "mknod by a user")?;
    ensure_eq(as_user(1000, "", &dir, "mkfifo f2")?, 0, "mkfifo by a user")
}

/// [S-rename-flags] `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.
fn rename_flags(b: &mut Bench) -> Result<()> {
    let dir = b.dir("rename_flags")?;
    let at = |name: &str| dir.join(name);
    for d in ["one/sub", "two"] {
        fs::create_dir_all(at(d))?;
    }
    for f in ["a", "b", "two/file"] {
        fs::write(at(f), f)?;
    }
    symlink("a", at("l"))?;
    let rename = |from: &str, to: &str, flags| -> std::io::Result<()> {
        Ok(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?)
    };
    let (noreplace, exchange) = (RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
    let refusals = [
        ("a", "b", noreplace, Errno::EXIST),
        ("a", "one", noreplace, Errno::EXIST),
        ("none", "new", noreplace, Errno::NOENT),
        ("a", "none", exchange, Errno::NOENT),
        ("one", "one/sub", exchange, Errno::INVAL),
        ("one/sub", "one", exchange, Errno::INVAL),
        ("a", "b", noreplace | exchange, Errno::INVAL),
    ];
    for (from, to, flags, want) in refusals {
        expect_errno(rename(from, to, flags), want, &format!("{from} to {to}, {flags:?}"))?;
    }
    rename("a", "c", noreplace)?;
    rename("c", "b", exchange)?;
    let read = |name: &str| fs::read_to_string(b.look(&at(name)));
    ensure_eq((read("c")?, read("b")?), ("b".into(), "a".into()), "two files")?;
    rename("b", "b", exchange)?;
    // Any kinds change places; link counts of the directories follow.
    rename("l", "one/sub", exchange)?;
    ensure_eq(
        (read("b")?, fs::symlink_metadata(at("one/sub"))?.is_symlink()),
        ("a".into(), true),
        "symlink",
    )?;
    rename("l", "one/sub", exchange)?;
    let links = || -> Result<(u64, u64)> {
        Ok((fs::metadata(b.look(&at("one")))?.nlink(), fs::metadata(b.look(&at("two")))?.nlink()))
    };
    ensure_eq(links()?, (3, 2), "links before")?;
    rename("one/sub", "two/file", exchange)?;
    ensure_eq(links()?, (2, 3), "links after")?;
    ensure_eq(fs::metadata(at("two/file"))?.is_dir(), true, "the directory moved")?;
    let up = fs::metadata(at("two/file/.."))?.ino();
    ensure_eq(up, fs::metadata(at("two"))?.ino(), "and knows its parent")?;
    // A directory that is not empty changes places, too.
    fs::write(at("two/file/full"), "")?;
    rename("two/file", "one", exchange)?;
    ensure_eq(fs::metadata(at("one/full")).is_ok(), true, "a full directory")
}

/// [S-nameless-files] `O_TMPFILE`, and `linkat` that gives the first name.
fn nameless_files(b: &mut Bench) -> Result<()> {
    let dir = b.dir("nameless_files")?;
    let make = |flags| rustix::fs::open(&dir, OFlags::TMPFILE | OFlags::RDWR | flags, Mode::from(0o644));
    let mut file = File::from(make(OFlags::empty())?);
    // Past what is inline, so that it has objects when it gets its name.
    let content = vec![7; 200_000];
    file.write_all(&content)?;
    ensure_eq((file.metadata()?.nlink(), fs::read_dir(&dir)?.count()), (0, 0), "without a name")?;
    let link = |file: &File, name: &str| -> std::io::Result<()> {
        Ok(rustix::fs::linkat(file, "", CWD, dir.join(name), AtFlags::EMPTY_PATH)?)
    };
    link(&file, "first")?;
    link(&file, "second")?;
    ensure_eq(file.metadata()?.nlink(), 2, "links")?;
    drop(file);
    ensure_same(&fs::read(b.look(&dir.join("first")))?, &content, "by its name")?;
    // The other way to name it, which needs no privilege.
    let file = File::from(make(OFlags::empty())?);
    let proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, &*proc, CWD, dir.join("third"), AtFlags::SYMLINK_FOLLOW)?;
    // With O_EXCL there is no way; and a file that lost its last name gets none again.
    let held = File::from(make(OFlags::EXCL)?);
    expect_errno(link(&held, "fourth"), Errno::NOENT, "link of an O_EXCL file")?;
    fs::remove_file(dir.join("third"))?;
    expect_errno(link(&file, "fourth"), Errno::NOENT, "link of an unlinked file")?;
    drop((file, held));
    ensure_eq(fs::read_dir(&dir)?.count(), 2, "names")
}

/// [S-names] Names are any bytes; paths and symlinks reach 4,095.
fn any_name(b: &mut Bench) -> Result<()> {
    let dir = b.dir("any_name")?;
    let all: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let names: Vec<Vec<u8>> =
        (1..=255u8).filter(|n| !b"/.".contains(n)).map(|n| vec![n]).chain([all]).collect();
    for name in &names {
        fs::write(dir.join(OsStr::from_bytes(name)), name)?;
    }
    let mut seen = Vec::new();
    for entry in fs::read_dir(b.look(&dir))? {
        let entry = entry?;
        ensure_same(&fs::read(entry.path())?, entry.file_name().as_bytes(), "content")?;
        seen.push(entry.file_name().as_bytes().to_vec());
    }
    seen.sort();
    let mut want = names;
    want.sort();
    ensure_eq(seen.len(), want.len(), "entries")?;
    ensure_eq(seen == want, true, "the same names")?;
    // The longest path that the kernel takes, below a directory so deep.
    let base = dir.as_os_str().len();
    let mut deep = dir.clone();
    while deep.as_os_str().len() + 1 + 200 < 4095 - 201 {
        deep.push("d".repeat(200));
    }
    fs::create_dir_all(&deep)?;
    let left = 4095 - deep.as_os_str().len() - 1;
    let longest = deep.join("f".repeat(left.min(255)));
    fs::write(&longest, "x").with_context(|| format!("{} bytes, {base} above", longest.as_os_str().len()))?;
    let target = "t".repeat(4095);
    symlink(&target, dir.join("link"))?;
    ensure_eq(fs::read_link(b.look(&dir.join("link")))? == Path::new(&target), true, "a long target")?;
    expect_errno(symlink("t".repeat(4096), dir.join("longer")), Errno::NAMETOOLONG, "a longer one")
}

/// [S-hard-links] At most 65,000 names.
fn link_limit(b: &mut Bench) -> Result<()> {
    let dir = b.dir("link_limit")?;
    let path = dir.join("0");
    fs::write(&path, "x")?;
    for n in 1..65_000 {
        fs::hard_link(&path, dir.join(n.to_string()))?;
    }
    ensure_eq(fs::metadata(b.look(&path))?.nlink(), 65_000, "links")?;
    expect_errno(fs::hard_link(&path, dir.join("more")), Errno::MLINK, "one more")?;
    fs::remove_file(dir.join("1"))?;
    fs::hard_link(&path, dir.join("more"))?;
    Ok(fs::remove_dir_all(&dir)?)
}

/// [S-big-directory] A listing that is left and taken up again goes on where it was, whatever came and went.
fn seekdir(b: &mut Bench) -> Result<()> {
    let dir = b.dir("seekdir")?;
    const COUNT: usize = 3_000;
    for n in 0..COUNT {
        File::create(dir.join(n.to_string()))?;
    }
    let mut listing = rustix::fs::Dir::new(rustix::fs::open(b.look(&dir), OFlags::RDONLY, Mode::empty())?)?;
    let mut seen = Vec::new();
    for entry in listing.by_ref() {
        let entry = entry?;
        seen.push((entry.file_name().to_bytes().to_vec(), entry.offset()));
    }
    ensure_eq(seen.len(), COUNT + 2, "entries")?;
    for at in [0, 1, 700, 1_500, COUNT] {
        // Removing names before the position may not shift the later ones.
        if let Some((name, _)) = seen[..at].iter().rev().find(|(name, _)| !name.starts_with(b".")) {
            fs::remove_file(dir.join(OsStr::from_bytes(name))).ok();
        }
        listing.seek(seen[at].1)?;
        for (name, _) in &seen[at + 1..] {
            match listing.next() {
                Some(entry) => ensure_same(entry?.file_name().to_bytes(), name, "the entry after a seekdir")?,
                None => bail!("the listing ended early after a seek to {at}"),
            }
        }
    }
    Ok(())
}
