//! Idmapped mounts of a mount: owners are shown, judged and made by the map.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use testkit::Wiring;

use super::mounting::{Own, public_dir};
use super::programs::script;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("idmap::owners_are_mapped", owners_are_mapped)),
    (Needs::Only(Wiring::Local), ("idmap::refused_without_the_option", refused)),
];

/// Ids 0 to 9,999 of the files are those from here on outside.
const HOST: u32 = 100_000;
const COUNT: u32 = 10_000;
const ALICE: u32 = 1000;
const CREW: u32 = 50;

/// The mount, while its program runs.
struct Mapped {
    program: Child,
    point: PathBuf,
}

impl Mapped {
    fn mount(dir: &Path, point: &Path) -> Result<Mapped> {
        let mut command = Command::new("python3");
        command.arg(script("idmap.py")?).args([dir, point]).args([0, HOST, COUNT].map(|n| n.to_string()));
        let mut program =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(program.stdout.as_mut().context("a pipe")?).read_line(&mut said)?;
        match said.trim() {
            "mounted" => Ok(Mapped { program, point: point.to_owned() }),
            _ => bail!("{}", String::from_utf8_lossy(&program.wait_with_output()?.stderr)),
        }
    }

    fn end(mut self) -> Result<()> {
        drop(self.program.stdin.take());
        ensure_eq(self.program.wait()?.success(), true, "the idmapped mount is taken away")
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
        let _ = rustix::mount::unmount(&self.point, rustix::mount::UnmountFlags::DETACH);
    }
}

/// [S-idmapped-mounts] What is there shows the mapped owner, what is made has the owner from which the map leads to its maker, and
/// permissions are those of the mapped caller: user, group, supplementary groups, owner of a sticky directory.
fn owners_are_mapped(b: &mut Bench) -> Result<()> {
    let mut own = Own::new(b);
    own.mount = public_dir("idmap")?;
    own.up("idmap")?;
    let real = own.mount.join("files");
    fs::create_dir(&real)?;
    for (name, uid, gid, mode) in [
        ("alices", ALICE, ALICE, 0o700),
        ("crews", 0, CREW, 0o770),
        ("all", 0, 0, 0o1777),
        ("roots", 0, 0, 0o755),
    ] {
        fs::create_dir(real.join(name))?;
        chown(real.join(name), Some(uid), Some(gid))?;
        fs::set_permissions(real.join(name), Permissions::from_mode(mode))?;
    }
    fs::write(real.join("all/roots"), "root's")?;
    let shown = public_dir("idmap-shown")?;
    let mapped = Mapped::mount(&real, &shown)?;
    let owner = |path: PathBuf| {
        fs::symlink_metadata(&path).map(|m| (m.uid(), m.gid())).with_context(|| path.display().to_string())
    };

    // 1. Existing files.
    ensure_eq(owner(shown.join("alices"))?, (HOST + ALICE, HOST + ALICE), "shown")?;
    ensure_eq(owner(real.join("alices"))?, (ALICE, ALICE), "kept")?;

    // 2. New files: by a user, and by callers with rights as owner, by a group, or as others.
    let alice = |groups: &str, what: &str| as_user(HOST + ALICE, groups, &shown, what);
    let crew = (HOST + CREW).to_string();
    let made = "cd alices && mkdir d && echo x > d/f && ln -s f d/l && mkfifo d/p && ln d/f d/g && mv d/g d/h && mknod d/w c 0 0";
    ensure_eq(alice("", made)?, 0, "names of all kinds")?;
    for name in ["d", "d/f", "d/l", "d/p", "d/h", "d/w"] {
        ensure_eq(owner(real.join("alices").join(name))?, (ALICE, ALICE), name)?;
    }
    ensure_eq(alice("", "echo x > crews/f")? == 0, false, "a stranger to the group")?;
    ensure_eq(alice(&crew, "echo x > crews/f")?, 0, "a supplementary group")?;
    ensure_eq(owner(real.join("crews/f"))?, (ALICE, ALICE), "made by right of a group")?;
    ensure_eq(alice("", "echo x > roots/f")? == 0, false, "a directory of root's")?;

    // 3. Changes: for the owner alone, and in a sticky directory removal and rename too.
    let changes = "cd alices/d && chmod 640 f && touch -d 2001-01-01 f && echo y >> f && truncate -s 1 h";
    ensure_eq(alice("", changes)?, 0, "changes of her own")?;
    ensure_eq(alice("", "rm -f all/roots")? == 0, false, "another's file in a sticky directory")?;
    ensure_eq(alice("", "chmod 600 all/roots")? == 0, false, "another's mode")?;
    ensure_eq(
        alice("", "echo z > all/mine && mv all/mine all/own && rm all/own && rm -r alices/d")?,
        0,
        "hers",
    )?;

    // 4. The host's root has no id in the map. It keeps its capabilities, and may give files to users of the map.
    expect_errno(fs::write(shown.join("all/given"), "x"), Errno::OVERFLOW, "made by an unmapped user")?;
    lchown(shown.join("all/roots"), Some(HOST + 7), Some(HOST + 8))?;
    ensure_eq(owner(real.join("all/roots"))?, (7, 8), "given away")?;
    expect_errno(
        lchown(shown.join("all/roots"), Some(5), None),
        Errno::OVERFLOW,
        "given to an unmapped user",
    )?;

    // 5. The mount itself goes on as ever, beside it.
    set_xattr(&real.join("all/roots"), "trusted.note", b"1", XattrFlags::empty())?;
    ensure_eq(list_xattrs(&shown.join("all/roots"))?, vec!["trusted.note".to_owned()], "what root lists")?;
    let others = as_user(
        ALICE,
        "",
        &real,
        "touch alices/by-number && test -O alices/by-number && ! touch roots/f 2>/dev/null",
    );
    ensure_eq(others?, 0, "a user beside the idmapped mount")?;
    symlink("target", real.join("all/link"))?;
    ensure_eq(owner(shown.join("all/link"))?, (HOST, HOST), "root's, seen through the map")?;
    mapped.end()?;
    own.down()?;
    fs::remove_dir(&own.mount)?;
    Ok(fs::remove_dir(&shown)?)
}

/// [S-idmapped-mounts] The kernel refuses the map where the mount was made without the option.
fn refused(b: &mut Bench) -> Result<()> {
    let own = Own::new(b);
    own.up("rw")?;
    File::create(own.mount.join("f"))?;
    let point = b.cluster.dir.join("refused");
    fs::create_dir(&point)?;
    match Mapped::mount(&own.mount, &point) {
        Ok(_) => bail!("a mount without the option idmap was idmapped"),
        Err(e) if e.to_string().contains("Invalid argument") => {}
        Err(e) => return Err(e),
    }
    own.down()
}
