//! The mount as the upper layer of overlayfs: whiteouts, copies on the first change, directories that move, and all of it after a restart.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use testkit::Wiring;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("overlay::rename_whiteout", rename_whiteout)),
    (Needs::Only(Wiring::Local), ("overlay::upper_layer_in_one_process", upper_layer)),
    (Needs::Only(Wiring::Two), ("overlay::upper_layer_beside_another_mount", upper_layer)),
];

fn is_whiteout(path: &Path) -> Result<bool> {
    let meta = fs::symlink_metadata(path)?;
    Ok(meta.file_type().is_char_device() && meta.rdev() == 0)
}

/// [S-rename-flags] One step: the file is at the new name, and a whiteout at the old one.
fn rename_whiteout(b: &mut Bench) -> Result<()> {
    let dir = b.dir("rename_whiteout")?;
    let (old, new) = (dir.join("old"), dir.join("new"));
    let rename = |flags| Ok::<_, std::io::Error>(renameat_with(CWD, &old, CWD, &new, flags)?);
    fs::write(&old, "first")?;
    rename(RenameFlags::WHITEOUT)?;
    ensure_eq(fs::read_to_string(b.look(&new))?, "first".into(), "what moved")?;
    ensure_eq((is_whiteout(&old)?, is_whiteout(&b.look(&old))?), (true, true), "whiteouts")?;
    fs::remove_file(&old)?;
    fs::write(&old, "second")?;
    let both = rename(RenameFlags::WHITEOUT | RenameFlags::NOREPLACE);
    expect_errno(both, Errno::EXIST, "over a file, with NOREPLACE")?;
    rename(RenameFlags::WHITEOUT)?;
    ensure_eq(fs::read_to_string(b.look(&new))?, "second".into(), "what replaced")?;
    fs::remove_file(&new)?;
    // A whiteout is a file as others are.
    rename(RenameFlags::WHITEOUT | RenameFlags::NOREPLACE)?;
    ensure_eq((is_whiteout(&old)?, is_whiteout(&new)?), (true, true), "a whiteout that moved")?;
    ensure_eq(as_user(1000, "", &dir, "true")?, 0, "setpriv")?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
    ensure_eq(as_user(1000, "", &dir, "mknod mine c 0 0")?, 0, "a whiteout by a user")?;
    Ok(fs::remove_dir_all(dir)?)
}

/// An overlay whose upper layer is on the mount.
struct Overlay {
    lower: PathBuf,
    upper: PathBuf,
    work: PathBuf,
    merged: PathBuf,
}

impl Overlay {
    fn make(b: &Bench) -> Result<Overlay> {
        let on_host = |name: &str| b.cluster.dir.join(name);
        let layers = b.dir("layers")?;
        let o = Overlay {
            lower: on_host("lower"),
            upper: layers.join("upper"),
            work: layers.join("work"),
            merged: on_host("merged"),
        };
        for dir in [&o.lower, &o.upper, &o.work, &o.merged] {
            fs::create_dir(dir)?;
        }
        Ok(o)
    }

    fn mount(&self) -> Result<()> {
        let [lower, upper, work] = [&self.lower, &self.upper, &self.work].map(|d| d.display().to_string());
        // overlayfs turns off features that the upper layer lacks, or does not mount.
        let options = format!(
            "lowerdir={lower},upperdir={upper},workdir={work},index=on,redirect_dir=on,metacopy=on,xino=off"
        );
        run(
            "mount",
            &["-t", "overlay", "overlay", "-o", &options, &self.merged.display().to_string()],
            Path::new("/"),
        )?;
        let point = self.merged.display().to_string();
        let table = fs::read_to_string("/proc/self/mounts")?;
        let line = table.lines().find(|l| l.split(' ').nth(1) == Some(&*point)).unwrap_or_default();
        for wanted in ["index=on", "redirect_dir=on", "metacopy=on"] {
            if !line.contains(wanted) {
                bail!("overlayfs turned {wanted} off: {line}");
            }
        }
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        Ok(rustix::mount::unmount(&self.merged, rustix::mount::UnmountFlags::empty())?)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.merged, rustix::mount::UnmountFlags::DETACH);
    }
}

/// [S-overlay] Operations on an overlay: changes of lower files, removals, moves, new names over old ones.
fn upper_layer(b: &mut Bench) -> Result<()> {
    let o = Overlay::make(b)?;
    let lower = |name: &str| o.lower.join(name);
    for name in ["same", "changed", "removed", "moved", "linked", "replaced"] {
        fs::write(lower(name), format!("lower {name}"))?;
    }
    fs::write(lower("large"), vec![7; 3 << 20])?;
    for dir in ["dir", "gone", "again"] {
        fs::create_dir(lower(dir))?;
        fs::write(lower(dir).join("inside"), format!("lower {dir}"))?;
    }
    fs::set_permissions(lower("changed"), fs::Permissions::from_mode(0o640))?;
    chown(lower("changed"), Some(1000), Some(1001))?;
    o.mount()?;
    let at = |name: &str| o.merged.join(name);
    fs::write(at("new"), "upper new")?;
    OpenOptions::new().append(true).open(at("changed"))?.write_all(b", changed")?;
    OpenOptions::new().append(true).open(at("large"))?.write_all(b"end")?;
    fs::remove_file(at("removed"))?;
    fs::rename(at("moved"), at("dir/moved"))?;
    fs::hard_link(at("linked"), at("link"))?;
    fs::write(at("temporary"), "upper replaced")?;
    fs::rename(at("temporary"), at("replaced"))?;
    fs::rename(at("dir"), at("directory"))?;
    fs::remove_dir_all(at("gone"))?;
    fs::remove_dir_all(at("again"))?;
    fs::create_dir(at("again"))?;
    fs::write(at("again/new"), "upper again")?;
    set_xattr(&at("same"), "user.note", b"1", rustix::fs::XattrFlags::empty())?;
    check(&o)?;
    for name in ["removed", "moved", "gone", "dir"] {
        ensure_eq(is_whiteout(&o.upper.join(name))?, true, &format!("a whiteout for {name}"))?;
    }
    ensure_eq(get_xattr(&o.upper.join("again"), "trusted.overlay.opaque")?, b"y".to_vec(), "opaque")?;
    ensure_eq(
        get_xattr(&o.upper.join("directory"), "trusted.overlay.redirect")?,
        b"dir".to_vec(),
        "redirect",
    )?;
    ensure_eq(fs::read_to_string(b.look(&o.upper.join("new")))?, "upper new".into(), "the layer by itself")?;
    // The lower layer has not changed, and the upper layer is there again after a restart of all.
    ensure_eq(fs::read_to_string(lower("changed"))?, "lower changed".into(), "the lower layer")?;
    o.unmount()?;
    b.cluster.restart()?;
    o.mount()?;
    check(&o)?;
    fs::remove_file(at("new"))?;
    ensure_eq(o.upper.join("new").exists(), false, "a name that only the upper layer had")?;
    o.unmount()
}

fn check(o: &Overlay) -> Result<()> {
    let mut names: Vec<String> = fs::read_dir(&o.merged)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let want = ["again", "changed", "directory", "large", "link", "linked", "new", "replaced", "same"];
    ensure_eq(names, want.map(str::to_owned).to_vec(), "names")?;
    let contents = [
        ("same", "lower same"),
        ("changed", "lower changed, changed"),
        ("new", "upper new"),
        ("replaced", "upper replaced"),
        ("link", "lower linked"),
        ("linked", "lower linked"),
        ("directory/inside", "lower dir"),
        ("directory/moved", "lower moved"),
        ("again/new", "upper again"),
    ];
    for (name, want) in contents {
        ensure_eq(fs::read_to_string(o.merged.join(name))?, want.to_owned(), name)?;
    }
    ensure_eq(fs::read_dir(o.merged.join("again"))?.count(), 1, "names of the directory that was made anew")?;
    let large = fs::read(o.merged.join("large"))?;
    ensure_eq((large.len(), &large[3 << 20..]), ((3 << 20) + 3, &b"end"[..]), "a large file")?;
    let meta = fs::metadata(o.merged.join("changed"))?;
    ensure_eq((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 1000, 1001), "mode and owner")?;
    let (a, b) = (fs::metadata(o.merged.join("link"))?, fs::metadata(o.merged.join("linked"))?);
    ensure_eq((a.ino(), a.nlink()), (b.ino(), 2), "two names")?;
    ensure_eq(get_xattr(&o.merged.join("same"), "user.note")?, b"1".to_vec(), "an attribute")
}
