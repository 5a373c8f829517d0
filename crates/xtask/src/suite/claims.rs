//! An MDT that does not believe its clients: `groups = "server"` and `root_squash`, and the mount of a plain user.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::Result;
use rustix::io::Errno;
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::mounting::{plain_users_lack, public_dir};
use super::sys::*;
use super::{Bench, Needs, Test, skip};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("claims::root_is_squashed_and_groups_are_the_servers", server_judges)),
    (Needs::Only(Wiring::Tcp), ("claims::stria_mount_by_a_plain_user", plain_mount)),
];

const SQUASHED: u32 = 65_534;
/// A user of every system, in a group of its own with the same number.
const DAEMON: u32 = 1;
/// A group that no machine's user database has.
const FOREIGN: u32 = 424_242;

fn make(path: &Path, owner: u32, group: u32, mode: u32) -> Result<()> {
    fs::write(path, "content")?;
    chown(path, Some(owner), Some(group))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

fn make_dir(path: &Path, owner: u32, mode: u32) -> Result<()> {
    fs::create_dir(path)?;
    chown(path, Some(owner), Some(owner))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Lets the MDT judge groups itself and squash root. The restart drops the kernels' cached answers.
fn believe_nobody(b: &mut Bench) -> Result<()> {
    let path = b.cluster.dir.join("mds.toml");
    let config = fs::read_to_string(&path)?;
    fs::write(&path, config + "groups = \"server\"\nroot_squash = \"65534:65534\"\n")?;
    b.cluster.restart()
}

/// Whether the user is told "Permission denied", and not anything else, by a program.
fn is_denied(uid: u32, groups: &str, dir: &Path, script: &str) -> Result<bool> {
    let said =
        format!("LC_ALL=C; export LC_ALL; {{ {script}; }} 2>&1 >/dev/null | grep -q 'Permission denied'");
    Ok(as_user(uid, groups, dir, &said)? == 0)
}

/// [S-claims] With `groups = "server"` the MDT ignores the groups that a client claims; `root_squash` maps root to the given ids.
fn server_judges(b: &mut Bench) -> Result<()> {
    let mount = b.cluster.mount.clone();
    let at = |name: &str| mount.join(name);
    fs::set_permissions(&mount, Permissions::from_mode(0o755))?;
    make(&at("secret"), 0, 0, 0o600)?;
    make(&at("of a foreign group"), 0, FOREIGN, 0o640)?;
    make(&at("of daemons"), 0, DAEMON, 0o640)?;
    make(&at("of nobody"), SQUASHED, SQUASHED, 0o600)?;
    make_dir(&at("open"), 0, 0o1777)?;
    make_dir(&at("closed"), 0, 0o700)?;
    make(&at("closed/f"), 0, 0, 0o644)?;
    make(&at("open/of daemon"), DAEMON, DAEMON, 0o600)?;
    // Without: the kernel's word counts.
    let foreign = FOREIGN.to_string();
    ensure_eq(
        as_user(DAEMON, &foreign, &mount, "cat 'of a foreign group' >/dev/null")?,
        0,
        "with a group that is believed",
    )?;
    ensure_eq(fs::read_to_string(at("secret"))?, "content".into(), "root's file")?;
    believe_nobody(b)?;

    // 1. Root is squashed: it has the rights of the user `nobody`, and no more.
    expect_errno(File::open(at("secret")), Errno::ACCESS, "root reads root's file")?;
    expect_errno(File::options().write(true).open(at("of daemons")), Errno::ACCESS, "root writes")?;
    expect_errno(
        fs::read_dir(at("closed")).and_then(|d| d.collect::<Result<Vec<_>, _>>()),
        Errno::ACCESS,
        "root lists a closed directory",
    )?;
    expect_errno(fs::read(at("closed/f")), Errno::ACCESS, "root looks into a closed directory")?;
    expect_errno(File::create(at("new")), Errno::ACCESS, "root makes a file")?;
    expect_errno(fs::remove_file(at("secret")), Errno::ACCESS, "root removes root's file")?;
    expect_errno(
        fs::remove_file(at("open/of daemon")),
        Errno::PERM,
        "root removes another's file in a sticky directory",
    )?;
    expect_errno(
        fs::set_permissions(at("secret"), Permissions::from_mode(0o666)),
        Errno::PERM,
        "root's chmod",
    )?;
    expect_errno(chown(at("of nobody"), Some(0), None), Errno::PERM, "root's chown")?;
    ensure_eq(fs::read_to_string(at("of nobody"))?, "content".into(), "nobody's file")?;
    fs::write(at("open/new"), "x")?;
    let new = fs::metadata(at("open/new"))?;
    ensure_eq((new.uid(), new.gid()), (SQUASHED, SQUASHED), "owner of what root makes")?;

    // 2. Groups are those of the server's user database, whatever the process says that it has.
    let file = "cat 'of a foreign group'";
    ensure_eq(is_denied(DAEMON, &foreign, &mount, file)?, true, "a group that only the client knows")?;
    ensure_eq(
        is_denied(SQUASHED, &format!("{DAEMON},0"), &mount, "cat 'of daemons'")?,
        true,
        "another's group",
    )?;
    ensure_eq(as_user(DAEMON, "", &mount, "cat 'of daemons' >/dev/null")?, 0, "one's own group")?;
    ensure_eq(
        as_user(DAEMON, "", &mount, "echo >> 'open/of daemon' && rm 'open/of daemon'")?,
        0,
        "one's own file",
    )?;

    // 3. [S-idmapped-mounts] An id-mapped mount is refused: its kernel would not send the caller's ids.
    let idmapped = b.cluster.dir.join("idmapped");
    fs::create_dir(&idmapped)?;
    let (source, point) = (format!("{}:/stria", b.cluster.mgs()), idmapped.display().to_string());
    let (code, out) = b.cluster.stria(&["mount", &source, &point, "-o", "idmap"])?;
    ensure_eq((code != 0, out.contains("the servers judge each request")), (true, true), &out)
}

/// [S-claims] [S-plain-user] A plain user mounts a file system of others, and is that user there.
fn plain_mount(b: &mut Bench) -> Result<()> {
    if let Some(lack) = plain_users_lack() {
        return skip(lack);
    }
    let mount = b.cluster.mount.clone();
    fs::set_permissions(&mount, Permissions::from_mode(0o755))?;
    make_dir(&mount.join("theirs"), DAEMON, 0o700)?;
    make_dir(&mount.join("others"), 1000, 0o700)?;
    make(&mount.join("secret"), 0, 0, 0o600)?;
    make(&mount.join("of a foreign group"), 0, FOREIGN, 0o640)?;
    believe_nobody(b)?;
    let home = public_dir("plain-mount")?;
    let done = work_as_daemon(b, &home);
    if is_mounted(&home.join("m")) {
        run("umount", &["-l", &home.join("m").display().to_string()], Path::new("/"))?;
    }
    fs::remove_dir_all(&home)?;
    done
}

fn work_as_daemon(b: &mut Bench, home: &Path) -> Result<()> {
    fs::copy(b.cluster.bin(), home.join("stria"))?;
    chown(home, Some(DAEMON), Some(DAEMON))?;
    let (source, foreign) = (format!("{}:/stria", b.cluster.mgs()), FOREIGN.to_string());
    let script = |script: &str| as_user(DAEMON, &foreign, home, &format!("export HOME=$PWD; {script}"));
    let code = script(&format!("mkdir m && ./stria mount {source} m >mount.log 2>&1"))?;
    ensure_eq(code, 0, &fs::read_to_string(home.join("mount.log")).unwrap_or_default())?;
    ensure_eq(is_mounted(&home.join("m")), true, "in the mount table")?;
    let work = "cd m/theirs && mkdir d && echo mine >d/f && ln d/f g && mv g d/h && grep -q mine d/h && chmod 640 d/f
        head -c 3000000 /dev/urandom >big && cp big copy && cmp big copy && rm copy";
    ensure_eq(script(work)?, 0, "work in a directory of theirs")?;
    for forbidden in ["cat m/secret", "ls m/others", "echo >m/new", "cat 'm/of a foreign group'"] {
        ensure_eq(is_denied(DAEMON, &foreign, home, forbidden)?, true, forbidden)?;
    }
    // Another mount shows the right owner. The user's own mount is closed to all others, also to root.
    let made = "test \"$(stat -c %u:%g:%a:%h theirs/d/f)\" = 1:1:640:2 && grep -q mine theirs/d/h && test $(stat -c %s theirs/big) = 3000000";
    ensure_eq(as_user(DAEMON, "", &b.cluster.mount, made)?, 0, "what was made, by another mount")?;
    expect_errno(fs::read_dir(home.join("m")), Errno::ACCESS, "root's look into it")?;
    // The user's session goes on when the MDS comes back.
    b.cluster.kill(Role::Mds)?;
    b.cluster.start_role(Role::Mds)?;
    ensure_eq(script("echo more >>m/theirs/d/f && rm m/theirs/big")?, 0, "after a restart of the MDS")?;
    ensure_eq(script("fusermount3 -u m")?, 0, "unmount")?;
    ensure_eq(is_mounted(&home.join("m")), false, "still mounted")
}
