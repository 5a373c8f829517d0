//! How a file system is mounted: options that the kernel minds, plain users, memory that is short.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Dev, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use testkit::Wiring;
use testkit::cluster::is_mounted;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("mounting::options", options)),
    (Needs::Only(Wiring::Local), ("mounting::plain_user", plain_user)),
];

const NOBODY: u32 = 65_534;

/// A file system of its own that is mounted again and again; ended with the test, however that ends.
struct Own<'a> {
    b: &'a Bench,
    dir: PathBuf,
    mount: PathBuf,
}

impl Own<'_> {
    fn new(b: &Bench) -> Own<'_> {
        Own { b, dir: b.cluster.dir.join("own"), mount: b.cluster.dir.join("own-mnt") }
    }

    fn up(&self, options: &str) -> Result<()> {
        let (dir, mount) = (self.dir.display().to_string(), self.mount.display().to_string());
        let mut args = vec!["up", "--dir", &dir, "--mount", &mount, "-o", options];
        if !self.dir.exists() {
            args.extend(["--ost-size", "1G", "--mdt-size", "1G"]);
        }
        let (code, out) = self.b.cluster.stria(&args)?;
        ensure_eq(code, 0, &out)
    }

    fn down(&self) -> Result<()> {
        let (code, out) = self.b.cluster.stria(&["down", "--dir", &self.dir.display().to_string()])?;
        ensure_eq(code, 0, &out)
    }

    /// The words of the mount table.
    fn words(&self) -> Result<Vec<String>> {
        let table = fs::read_to_string("/proc/self/mounts")?;
        let point = self.mount.display().to_string();
        let line =
            table.lines().rfind(|l| l.split(' ').nth(1) == Some(&*point)).context("it is not mounted")?;
        Ok(line.split(' ').nth(3).unwrap_or_default().split(',').map(str::to_owned).collect())
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.mount) {
            self.b.cluster.stria(&["down", "--force", "--dir", &self.dir.display().to_string()]).ok();
        }
    }
}

/// [S-mount-options] `ro`: `EROFS` for every change. `nosuid`, `nodev`, `noexec`: such bits, device nodes and programs have no effect.
fn options(b: &mut Bench) -> Result<()> {
    let own = Own::new(b);
    own.up("rw")?;
    let file = |name: &str| own.mount.join(name);
    fs::write(file("f"), "kept")?;
    fs::copy("/usr/bin/id", file("id"))?;
    chown(file("id"), Some(NOBODY), None)?;
    fs::set_permissions(file("id"), Permissions::from_mode(0o4755))?;
    let zero: Dev = makedev(1, 5);
    mknodat(rustix::fs::CWD, file("zero"), FileType::CharacterDevice, Mode::RUSR, zero)?;
    let effective = || run(&file("id").display().to_string(), &["-u"], Path::new("/"));
    ensure_eq(effective()?.trim(), "65534", "a set-user-id program")?;
    File::open(file("zero")).context("a device node")?;
    own.down()?;

    own.up("ro")?;
    ensure_eq(fs::read_to_string(file("f"))?, "kept".into(), "read of a read-only mount")?;
    expect_errno(File::create(file("new")).map(drop), Errno::ROFS, "create")?;
    expect_errno(OpenOptions::new().write(true).open(file("f")).map(drop), Errno::ROFS, "open for writing")?;
    expect_errno(fs::remove_file(file("f")), Errno::ROFS, "unlink")?;
    expect_errno(fs::create_dir(file("d")), Errno::ROFS, "mkdir")?;
    expect_errno(fs::rename(file("f"), file("g")), Errno::ROFS, "rename")?;
    expect_errno(fs::set_permissions(file("f"), Permissions::from_mode(0o600)), Errno::ROFS, "chmod")?;
    let set = set_xattr(&file("f"), "user.a", b"1", rustix::fs::XattrFlags::empty());
    expect_errno(set, Errno::ROFS, "setxattr")?;
    own.down()?;

    own.up("nosuid,nodev")?;
    ensure_eq(effective()?.trim(), "0", "a set-user-id program under nosuid")?;
    expect_errno(File::open(file("zero")).map(drop), Errno::ACCESS, "a device node under nodev")?;
    own.down()?;

    own.up("noexec,noatime,sync,dirsync")?;
    let program = std::process::Command::new(file("id")).output().map(drop);
    expect_errno(program, Errno::ACCESS, "a program under noexec")?;
    fs::write(file("synced"), "at once")?;
    fs::rename(file("synced"), file("synced too"))?;
    let words = own.words()?;
    for word in ["noexec", "noatime", "sync", "dirsync"] {
        if !words.iter().any(|w| w == word) {
            bail!("{word} is not in the mount table: {words:?}");
        }
    }
    own.down()?;

    let (code, out) = b.cluster.stria(&["up", "--dir", &own.dir.display().to_string(), "-o", "cheese"])?;
    if code != 2 || !out.contains("cheese") {
        bail!("an option that nobody knows: exit {code}: {out}");
    }
    Ok(())
}

/// [S-plain-user] A plain user makes, mounts and uses a file system of their own; others cannot see into it.
fn plain_user(b: &mut Bench) -> Result<()> {
    let helper = run("fusermount3", &["-V"], Path::new("/"));
    let device = fs::metadata("/dev/fuse").map(|m| m.permissions().mode() & 0o006).unwrap_or(0);
    if helper.is_err() || device != 0o006 {
        println!("       skipped: a plain user needs fusermount3 and a /dev/fuse that all may open");
        return Ok(());
    }
    // Not below the cluster's directory, into which only root may look.
    let home = std::env::temp_dir().join(format!("stria-plain-user.{}", std::process::id()));
    let result = plain_user_in(b, &home);
    fs::remove_dir_all(&home).ok();
    result
}

fn plain_user_in(b: &Bench, home: &Path) -> Result<()> {
    fs::create_dir(home)?;
    fs::copy(b.cluster.bin(), home.join("stria"))?;
    chown(home, Some(NOBODY), Some(NOBODY))?;
    fs::set_permissions(home, Permissions::from_mode(0o755))?;
    let script = |script: &str| as_user(NOBODY, "", home, &format!("export HOME=$PWD; {script}"));
    let up = "./stria up --dir d --mount m --ost-size 1G --mdt-size 1G";
    ensure_eq(script(&format!("{up} >up.log 2>&1"))?, 0, &read_log(home))?;
    let used = script("echo mine >m/f && grep -q mine m/f && test \"$(stat -c %u m/f)\" = 65534")?;
    let (seen, busy) = (
        fs::read_dir(home.join("m")).map(drop),
        script("cd m && ! ../stria down --dir ../d >../busy.log 2>&1")?,
    );
    let down = script("./stria down --dir d >down.log 2>&1")?;
    ensure_eq(used, 0, "use of one's own mount")?;
    expect_errno(seen, Errno::ACCESS, "root's look into it, without allow_other")?;
    ensure_eq(busy, 0, "down of a mount in use is refused")?;
    let said = fs::read_to_string(home.join("busy.log"))?;
    if !said.contains("in use") {
        bail!("it does not say that it is in use: {said}");
    }
    ensure_eq(down, 0, "down")?;
    if is_mounted(&home.join("m")) {
        bail!("still mounted after down");
    }
    Ok(())
}

fn read_log(home: &Path) -> String {
    fs::read_to_string(home.join("up.log")).unwrap_or_default()
}
