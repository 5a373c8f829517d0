//! Paragraphs of docs/SEMANTICS.md about the protection of files beside the mode: ACLs, `chattr` flags, system attributes,
//! set-id bits. Where programs of the system set these, they are used.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use rustix::fs::{IFlags, XattrFlags, ioctl_setflags};
use rustix::io::Errno;

use super::sys::*;
use super::{Bench, Test};

pub const TESTS: &[Test] = &[
    ("guards::acl", acl),
    ("guards::acl_inherited", acl_inherited),
    ("guards::acl_is_copied", acl_is_copied),
    ("guards::immutable", immutable),
    ("guards::append_only", append_only),
    ("guards::flags_show_in_ctime", flags_show_in_ctime),
    ("guards::attribute_spaces", attribute_spaces),
    ("guards::set_id", set_id),
];

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

/// Fails unless user `uid` can do `script` in `dir`, or cannot.
fn ensure_may(may: bool, uid: u32, groups: &str, dir: &Path, script: &str) -> Result<()> {
    let got = as_user(uid, groups, dir, &format!("{{ {script}; }} > /dev/null"))?;
    ensure_eq(got == 0, may, &format!("uid {uid} [{groups}] does {script}"))
}

/// [S-acl] A named user or group has the rights of its ACL entry, limited by the mask; mode and ACL change together.
fn acl(b: &mut Bench) -> Result<()> {
    let dir = b.dir("acl")?;
    let path = dir.join("f");
    fs::write(&path, "x")?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let seen = &b.look(&dir);
    ensure_may(false, 1000, "", seen, "cat f")?;
    run("setfacl", &["-m", "u:1000:rw,g:2000:r,u:1001:-", "f"], &dir)?;
    ensure_eq(mode(&b.look(&path))?, 0o660, "the group bits are the mask")?;
    ensure_may(true, 1000, "", seen, "cat f && echo >> f")?;
    ensure_may(true, 1002, "2000", seen, "cat f")?;
    ensure_may(false, 1002, "2000", seen, "echo >> f")?;
    ensure_may(false, 1001, "2000", seen, "cat f")?;
    ensure_may(false, 1003, "", seen, "cat f")?;
    // chmod moves the mask.
    fs::set_permissions(&path, Permissions::from_mode(0o640))?;
    ensure_may(false, 1000, "", seen, "echo >> f")?;
    let text = run("getfacl", &["-cnp", "f"], seen)?;
    let want = "user::rw-\nuser:1000:rw-\t#effective:r--\nuser:1001:---\ngroup::---\ngroup:2000:r--\nmask::r--\nother::---\n\n";
    ensure_eq(text.replace("\t\t", "\t"), want.replace("\t\t", "\t"), "getfacl")?;
    // The owner's business, or root's; a directory's list is searched by, too.
    ensure_may(false, 1000, "", &dir, "setfacl -m u:1000:rwx f")?;
    fs::create_dir(dir.join("d"))?;
    fs::write(dir.join("d/f"), "x")?;
    fs::set_permissions(dir.join("d"), Permissions::from_mode(0o700))?;
    run("setfacl", &["-m", "u:1000:x", "d"], &dir)?;
    ensure_may(true, 1000, "", seen, "cat d/f")?;
    ensure_may(false, 1000, "", seen, "ls d")?;
    run("setfacl", &["-b", "f", "d"], &dir)?;
    ensure_eq((mode(&path)?, list_xattrs(&path)?.is_empty()), (0o600, true), "without a list")?;
    symlink("f", dir.join("l"))?;
    run("setfacl", &["-d", "-m", "u:1000:rwx", "f"], &dir)
        .map_or(Ok(()), |_| bail!("a file has no default list"))
}

/// [S-acl] A new file gets the directory's default ACL in place of the umask.
fn acl_inherited(b: &mut Bench) -> Result<()> {
    let dir = b.dir("acl_inherited")?;
    run("setfacl", &["-d", "-m", "u:1000:rwx,o::-", "."], &dir)?;
    run("sh", &["-c", "umask 077; echo x > f; mkdir d; mkfifo p; cp /bin/true program"], &dir)?;
    let look = |name: &str| b.look(&dir.join(name));
    ensure_eq(
        (mode(&look("f"))?, mode(&look("d"))?, mode(&look("p"))?, mode(&look("program"))?),
        (0o660, 0o770, 0o660, 0o750),
        "modes",
    )?;
    let both = list_xattrs(&look("d"))?;
    ensure_eq(
        both.clone(),
        vec!["system.posix_acl_access".into(), "system.posix_acl_default".into()],
        "lists of a directory",
    )?;
    ensure_eq(get_xattr(&look("d"), &both[1])?, get_xattr(&dir, &both[1])?, "the default list")?;
    ensure_may(true, 1000, "", &b.look(&dir), "cat f; true")?;
    fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    ensure_may(true, 1000, "", &b.look(&dir), "cat f && echo >> f && touch d/by.1000")?;
    ensure_may(false, 1001, "", &b.look(&dir), "cat f")
}

/// [S-acl] Copies by cp, tar and rsync have the lists.
fn acl_is_copied(b: &mut Bench) -> Result<()> {
    let dir = b.dir("acl_is_copied")?;
    fs::create_dir_all(dir.join("from/d"))?;
    fs::write(dir.join("from/d/f"), "x")?;
    run("setfacl", &["-R", "-m", "u:1000:rwX,g:2000:r", "from"], &dir)?;
    run("setfacl", &["-d", "-m", "u:1001:rwx", "from/d"], &dir)?;
    run("cp", &["-a", "from", "cp"], &dir)?;
    run("rsync", &["-aAX", "from/", "rsync/"], &dir)?;
    run("sh", &["-c", "mkdir tar && tar --acls -C from -cf - . | tar --acls -C tar -xpf -"], &dir)?;
    let lists =
        |root: &str| run("sh", &["-c", "cd $0 && getfacl -nR . && getfacl -n d/f", root], &b.look(&dir));
    let want = lists("from")?;
    for copy in ["cp", "rsync", "tar"] {
        ensure_eq(lists(copy)?, want.clone(), copy)?;
    }
    Ok(())
}

/// Operations that even root cannot do on a file with `flag`.
fn ensure_guarded(b: &Bench, dir: &Path, flag: &str) -> Result<()> {
    let (path, seen) = (dir.join("f"), b.look(&dir.join("f")));
    let perm = Errno::PERM;
    run("chattr", &[&format!("+{flag}"), "f"], dir)?;
    let listed = run("lsattr", &["f"], &b.look(dir))?;
    ensure_eq(listed.split(' ').next().unwrap_or("").contains(flag), true, "lsattr")?;
    expect_errno(OpenOptions::new().write(true).open(&seen), perm, "open for writing")?;
    expect_errno(OpenOptions::new().write(true).truncate(true).open(&path), perm, "O_TRUNC")?;
    expect_errno(fs::remove_file(&path), perm, "unlink")?;
    expect_errno(fs::rename(&path, dir.join("g")), perm, "rename")?;
    fs::write(dir.join("other"), "x")?;
    expect_errno(fs::rename(dir.join("other"), &path), perm, "rename over it")?;
    expect_errno(fs::hard_link(&path, dir.join("link")), perm, "link")?;
    expect_errno(fs::set_permissions(&path, Permissions::from_mode(0o600)), perm, "chmod")?;
    expect_errno(std::os::unix::fs::chown(&path, Some(1), None), perm, "chown")?;
    expect_errno(set_xattr(&path, "user.a", b"1", XattrFlags::empty()), perm, "setxattr")?;
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
    expect_errno(File::open(&path)?.set_modified(old), perm, "utimensat")?;
    ensure_eq(fs::read(&seen)?, b"content".to_vec(), "content")
}

/// [S-flags] `chattr +i`: nothing of the file changes, for root either; of a directory, no names.
fn immutable(b: &mut Bench) -> Result<()> {
    let dir = b.dir("immutable")?;
    let path = dir.join("f");
    fs::write(&path, "content")?;
    let open = OpenOptions::new().write(true).open(&path)?;
    ensure_guarded(b, &dir, "i")?;
    expect_errno(OpenOptions::new().append(true).open(&path), Errno::PERM, "open for appending")?;
    expect_errno(open.write_at(b"x", 0), Errno::PERM, "a write by an open handle")?;
    expect_errno(open.set_len(0), Errno::PERM, "a cut by an open handle")?;
    // Not even its ctime, which a name looked up anew would bring.
    let before = open.metadata()?;
    expect_errno(std::os::unix::fs::chown(&path, None, None), Errno::PERM, "chown without ids")?;
    fs::rename(&path, &path)?;
    let after = fs::metadata(b.look(&path))?;
    ensure_eq((after.ctime(), after.ctime_nsec()), (before.ctime(), before.ctime_nsec()), "ctime")?;
    run("chattr", &["-i", "f"], &dir)?;
    fs::write(&path, "new")?;
    fs::create_dir(dir.join("d"))?;
    fs::write(dir.join("d/f"), "x")?;
    run("chattr", &["+i", "d"], &dir)?;
    expect_errno(File::create(b.look(&dir).join("d/new")), Errno::PERM, "create in it")?;
    expect_errno(fs::remove_file(dir.join("d/f")), Errno::PERM, "unlink in it")?;
    fs::write(dir.join("d/f"), "its files change")?;
    run("chattr", &["-i", "d"], &dir)?;
    // Only root may set flags; unsupported flags are refused.
    fs::set_permissions(&dir, Permissions::from_mode(0o777))?;
    ensure_may(false, 1000, "", &dir, "touch mine && chattr +i mine")?;
    ensure_may(true, 1000, "", &dir, "chattr +d mine && lsattr mine | grep -q d-")?;
    ensure_may(false, 1000, "", &dir, "chattr +c mine")
}

/// [S-flags] `chattr +a`: bytes are added and nothing else.
fn append_only(b: &mut Bench) -> Result<()> {
    let dir = b.dir("append_only")?;
    let path = dir.join("f");
    fs::write(&path, "content")?;
    let open = OpenOptions::new().write(true).open(&path)?;
    ensure_guarded(b, &dir, "a")?;
    OpenOptions::new().append(true).open(b.look(&path))?.write_all(b" and more")?;
    expect_errno(open.write_at(b"x", 0), Errno::PERM, "an overwrite by an open handle")?;
    ensure_eq(fs::read_to_string(&path)?, "content and more".into(), "appended")?;
    // Also when the bytes lie in objects.
    OpenOptions::new().append(true).open(&path)?.write_all(&[b'.'; 200_000])?;
    expect_errno(open.write_at(b"x", 100_000), Errno::PERM, "a write over bytes in objects")?;
    File::open(&path)?.set_modified(SystemTime::now()).map_or(Ok(()), |()| bail!("a time was set"))?;
    run("touch", &["f"], &dir)?;
    fs::create_dir(dir.join("d"))?;
    run("chattr", &["+a", "d"], &dir)?;
    ["f", "d"].into_iter().try_for_each(|name| refuses_one_time(&dir, name))?;
    run("chattr", &["-a", "d"], &dir)?;
    run("chattr", &["-a", "f"], &dir)?;
    run("touch", &["-a", "f"], &dir)?;
    run("touch", &["-m", "f"], &dir)?;
    Ok(fs::remove_file(&path)?)
}

/// On an append-only file, both times together may be set to now, one alone may not.
fn refuses_one_time(dir: &Path, name: &str) -> Result<()> {
    for which in ["-a", "-m"] {
        let out = Command::new("touch").args([which, name]).current_dir(dir).env("LC_ALL", "C").output()?;
        if out.status.success() || !String::from_utf8_lossy(&out.stderr).contains("not permitted") {
            bail!("touch {which} {name}, which is append-only: {}", out.status);
        }
    }
    Ok(())
}

/// [S-flags] After flags are set, stat shows the new change time at once: the kernel does not update it by itself.
fn flags_show_in_ctime(b: &mut Bench) -> Result<()> {
    let path = b.dir("flags_show_in_ctime")?.join("f");
    fs::write(&path, "content")?;
    let file = File::open(&path)?;
    let changed = |m: fs::Metadata| (m.ctime(), m.ctime_nsec());
    for round in 0..200 {
        let before = changed(file.metadata()?);
        let flags = if round % 2 == 0 { IFlags::NODUMP } else { IFlags::empty() };
        ioctl_setflags(&file, flags)?;
        let after = changed(file.metadata()?);
        if after <= before {
            bail!("round {round}: ctime {after:?} is not after {before:?}");
        }
        ensure_eq(changed(fs::metadata(b.look(&path))?), after, "ctime by name")?;
    }
    Ok(())
}

/// [S-xattrs] Each name space has its rules.
fn attribute_spaces(b: &mut Bench) -> Result<()> {
    let dir = b.dir("attribute_spaces")?;
    fs::set_permissions(&dir, Permissions::from_mode(0o777))?;
    let f = dir.join("f");
    fs::write(&f, "x")?;
    std::os::unix::fs::chown(&f, Some(1000), None)?;
    let plain = XattrFlags::empty();
    // trusted: root's, and not to be seen by others.
    set_xattr(&f, "trusted.t", b"1", plain)?;
    set_xattr(&f, "security.selinux", b"label", plain)?;
    set_xattr(&f, "user.u", b"1", plain)?;
    let mut names = list_xattrs(&b.look(&f))?;
    names.sort();
    ensure_eq(names.join(" "), "security.selinux trusted.t user.u".to_owned(), "root's listing")?;
    ensure_may(true, 1000, "", &b.look(&dir), "getfattr -d -m - f | grep -q user.u")?;
    ensure_may(false, 1000, "", &b.look(&dir), "getfattr -d -m - f | grep -q trusted.t")?;
    ensure_may(false, 1000, "", &b.look(&dir), "getfattr -n trusted.t f")?;
    ensure_may(false, 1000, "", &b.look(&dir), "setfattr -n trusted.x -v 1 f")?;
    // user: for files and directories; with the rights of content.
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("p"), rustix::fs::FileType::Fifo, 0o666.into(), 0)?;
    expect_errno(set_xattr(&dir.join("p"), "user.a", b"1", plain), Errno::PERM, "user.* of a fifo")?;
    set_xattr(&dir.join("p"), "trusted.a", b"1", plain)?;
    ensure_may(false, 1001, "", &dir, "setfattr -n user.v -v 1 f")?;
    fs::set_permissions(&f, Permissions::from_mode(0o600))?;
    ensure_may(false, 1001, "", &b.look(&dir), "getfattr -n user.u f")?;
    // Errors and sizes.
    expect_errno(set_xattr(&f, "nowhere.a", b"1", plain), Errno::OPNOTSUPP, "an unknown space")?;
    expect_errno(set_xattr(&f, "user.", b"1", plain), Errno::INVAL, "no name")?;
    expect_errno(set_xattr(&f, "user.big", &[0; 65_537], plain), Errno::TOOBIG, "a value too large")?;
    expect_errno(get_xattr(&f, "user.none"), Errno::NODATA, "none")?;
    let short = rustix::fs::getxattr(&f, "security.selinux", &mut [0u8; 2][..]).map_err(std::io::Error::from);
    expect_errno(short, Errno::RANGE, "a small buffer")?;
    // Any change of content removes file capabilities, also one by root.
    fs::set_permissions(&f, Permissions::from_mode(0o666))?;
    // (Not where writes go past the kernel's pages; see the exceptions.)
    let writers = if b.cluster.second.is_none() { &[0, 1001][..] } else { &[] };
    for &writer in writers {
        run("setcap", &["cap_net_raw+ep", "f"], &dir)?;
        ensure_eq(run("getcap", &["f"], &b.look(&dir))?.contains("cap_net_raw"), true, "getcap")?;
        ensure_may(true, writer, "", &dir, "echo y >> f")?;
        ensure_eq(run("getcap", &["f"], &b.look(&dir))?, String::new(), "after a write")?;
    }
    Ok(())
}

/// [S-set-id] Set-id bits go when content or owner change, but for a process with CAP_FSETID.
fn set_id(b: &mut Bench) -> Result<()> {
    let dir = b.dir("set_id")?;
    fs::set_permissions(&dir, Permissions::from_mode(0o777))?;
    let f = dir.join("f");
    // size of the file | who | what | mode before | after
    let table: [(usize, u32, &str, u32, u32); 9] = [
        (1, 1001, "echo >> f", 0o6777, 0o777),
        (200_000, 1001, "echo >> f", 0o6777, 0o777),
        (1, 1001, "truncate -s 5 f", 0o6777, 0o777),
        (1, 1001, "echo > f", 0o4777, 0o777),
        (1, 0, "echo >> f", 0o6777, 0o6777),
        (1, 0, "chown 1002:1002 f", 0o6777, 0o777),
        (1, 0, "chgrp 1003 f", 0o6745, 0o2745),
        (1, 1000, "chmod 2755 f", 0o644, 0o755),
        (1, 1000, "chmod u+s f", 0o644, 0o4644),
    ];
    // Each at either mount, whichever of them made the file; and both know it at once.
    for (round, (size, who, what, before, after)) in (0..2).flat_map(|round| table.map(|line| (round, line)))
    {
        fs::write(&f, vec![b'x'; size])?;
        std::os::unix::fs::chown(&f, Some(1000), Some(1009))?;
        fs::set_permissions(&f, Permissions::from_mode(before))?;
        let place = &b.turn(round, &dir);
        ensure_may(true, who, "", place, what)?;
        for seen in [f.clone(), b.look(&f)] {
            let what = format!("{what} by {who} in {} on {size} bytes, {before:o}", place.display());
            ensure_eq(mode(&seen)?, after, &format!("{what}: {}", seen.display()))?;
        }
    }
    Ok(())
}
