//! The mount below a gateway: its state, whether a directory on it can be served, and how a mount that gateways own is made and removed.
//!
//! cli-GD1: a served directory lies on the gateway's mount, and no component of its path is a symlink: the server would follow it out of
//! the mount.
//! cli-GD2: no user but root may replace a component of the path. Otherwise that user could put a symlink there after the check.
//! `gateway KIND check` repeats both checks each time the unit starts the server.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::mount::UnmountFlags;
use serde::Serialize;

use super::host;
use super::model::{Entry, Kind, Mount};
use super::places::Places;
use crate::exit::Failure;
use crate::mounts;
use crate::serve::bounded;
use crate::serve::mounted::prepare_point;

/// On a mount with dead servers, a call blocks for its operation time-out; a look gives up sooner.
const LOOK_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is mounted and answers.
    Mounted,
    NotMounted,
    /// Another kind of file system is mounted there.
    Foreign,
    /// The process that served it is gone.
    Dead,
    /// Its process lives but does not answer.
    Silent,
}

pub fn state(point: &Path) -> State {
    let Some(mount) = mounts::at(point) else { return State::NotMounted };
    if mount.fs_type != mounts::FS_TYPE {
        return State::Foreign;
    }
    if mounts::is_stale(&mount) {
        return State::Dead;
    }
    let point = point.to_owned();
    match bounded("statfs", LOOK_MAX, move || rustix::fs::statfs(&point).is_ok()) {
        Some(_) => State::Mounted,
        None => State::Silent,
    }
}

/// The mount point as it stands in the mount table.
pub fn point_of(given: &Path) -> anyhow::Result<PathBuf> {
    let absolute = super::super::absolute(given)?;
    if mounts::at(&absolute).is_some() {
        return Ok(absolute);
    }
    // A symlink may lead to it. A dead mount cannot be resolved.
    let point = absolute.clone();
    let real = bounded("resolve the mount point", LOOK_MAX, move || fs::canonicalize(point));
    Ok(real.and_then(Result::ok).filter(|real| mounts::at(real).is_some()).unwrap_or(absolute))
}

/// Why the directory of an entry cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub why: String,
    /// The directory does not exist, and only root can make it. The server may start: clients of this entry get errors.
    pub is_missing: bool,
}

impl Unfit {
    fn new(why: impl Into<String>) -> Unfit {
        Unfit { why: why.into(), is_missing: false }
    }
}

/// Checks that the directory of an entry can be served (cli-GD1, cli-GD2).
pub fn check(entry: &Entry, point: &Path) -> Result<(), Unfit> {
    let (directory, point) = (entry.directory.clone(), point.to_owned());
    bounded("look at a directory", LOOK_MAX, move || is_on(&directory, &point))
        .unwrap_or_else(|| Err(Unfit::new("the mount does not answer")))
}

/// Checks all entries before the server starts. A missing directory does not keep the other entries from being served.
pub fn check_before_start<K: Kind>(kind: &K) -> Result<(), Failure> {
    for entry in kind.entries() {
        match check(&entry, &kind.mount().point) {
            Err(unfit) if !unfit.is_missing => return Err(refusal::<K>(&entry, &unfit)),
            _ => {}
        }
    }
    Ok(())
}

/// The error line of an entry that cannot be served.
pub fn refusal<K: Kind>(entry: &Entry, unfit: &Unfit) -> Failure {
    let what = format!("{} {}: {}", K::ENTRY, entry.name, entry.directory.display());
    let next = format!(
        "correct the directory, or take it away with `stria gateway {} disable --{} {}`",
        K::NAME,
        K::ENTRY,
        entry.name
    );
    Failure::unusable(what, &unfit.why, next)
}

/// Walks the whole path from `/` on: a component of it that another user can replace decides what the server opens later.
fn is_on(directory: &Path, point: &Path) -> Result<(), Unfit> {
    let outside = || Unfit::new(format!("it lies outside of the mount {}", point.display()));
    let look = |path: &Path| fs::symlink_metadata(path);
    let failed = |e: io::Error| Unfit::new(e.to_string());
    if !directory.starts_with(point) {
        return Err(outside());
    }
    let mut at = PathBuf::from("/");
    let mut above = look(&at).map_err(failed)?;
    for part in directory.components().skip(1) {
        if !matches!(part, Component::Normal(_)) {
            return Err(outside());
        }
        let below = at.join(part);
        let there = match look(&below) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let is_missing = !others_may_change(&above);
                return Err(Unfit { why: e.to_string(), is_missing });
            }
            other => other.map_err(failed)?,
        };
        if there.is_symlink() {
            let why = format!("{} is a symlink; name the directory that it leads to", below.display());
            return Err(Unfit::new(why));
        }
        if others_may_replace(&above, &there) {
            let why = format!("users other than root may replace {}", below.display());
            return Err(Unfit::new(why));
        }
        (at, above) = (below, there);
    }
    if !above.is_dir() {
        return Err(Unfit::new("it is no directory"));
    }
    if above.dev() != fs::metadata(point).map_err(failed)?.dev() {
        return Err(outside());
    }
    Ok(())
}

/// Whether users other than root may add, rename and remove names in a directory. The group bits bound the access list, too.
/// The user of this process counts as root: `enable` and `check` run as root.
fn others_may_change(directory: &Metadata) -> bool {
    !is_trusted(directory.uid()) || directory.mode() & 0o022 != 0
}

/// In a directory with the sticky bit, a name belongs to the owner of its file.
fn others_may_replace(above: &Metadata, file: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    let is_kept = is_trusted(above.uid()) && above.mode() & STICKY != 0 && is_trusted(file.uid());
    others_may_change(above) && !is_kept
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Refuses a mount that cannot be served.
pub fn refuse_unless_mounted(mount: &Mount, kind: &str) -> Result<(), Failure> {
    let state = state(&mount.point);
    let Some(why) = trouble(state) else { return Ok(()) };
    Err(Failure::unusable(mount.point.display(), why, next_step(mount, state, kind)))
}

/// Why a mount cannot be served, if so.
pub fn trouble(state: State) -> Option<&'static str> {
    match state {
        State::Mounted => None,
        State::NotMounted => Some("no Stria file system is mounted there"),
        State::Foreign => Some("another kind of file system is mounted there"),
        State::Dead => Some("the process of this mount has died"),
        State::Silent => Some("the mount does not answer"),
    }
}

pub fn next_step(mount: &Mount, state: State, kind: &str) -> String {
    let enable = format!("`stria gateway {kind} enable --now`");
    match (state, &mount.source) {
        (State::Silent, _) => "see `stria status`: its servers may be down".into(),
        (State::Foreign, _) => "give the mount point of a Stria file system".into(),
        (_, Some(_)) => format!("{enable} mounts it and starts the server anew"),
        (_, None) => format!("mount it (`stria mount`, or --source NID:/fsname), then {enable}"),
    }
}

/// Mounts a file system for gateways, unless it is mounted. True if it was mounted now.
pub fn make(mount: &Mount, source: &str, at: &Places) -> anyhow::Result<bool> {
    if state(&mount.point) == State::Mounted {
        return Ok(false);
    }
    // `stria mount` makes no directory; this one belongs to the gateway.
    prepare_point(&mount.point)?;
    if host::has_systemd(at) {
        host::systemctl(&["daemon-reload"])?;
        let unit = super::units::mount_unit_name(&mount.point);
        host::systemctl(&["enable", &unit])?;
        host::systemctl(&["restart", &unit])?;
        return Ok(true);
    }
    let mut args: Vec<OsString> = vec!["mount".into(), source.into(), mount.point.clone().into()];
    mount.options.iter().for_each(|o| args.extend(["-o".into(), o.into()]));
    let mut command = Command::new(std::env::current_exe()?);
    let out = command.args(args).stdin(Stdio::null()).output().context("stria mount")?;
    if out.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let said = said.trim().trim_start_matches("stria: ").replace('\n', " ");
    let exit =
        if out.status.code() == Some(2) { crate::exit::Exit::Unusable } else { crate::exit::Exit::Findings };
    Err(Failure::relayed(exit, said).into())
}

/// Removes a mount that gateways own. A mount in use stays, and the error names its users.
pub fn unmake(mount: &Mount, at: &Places) -> anyhow::Result<()> {
    // Unmounted before systemd stops the unit: SIGTERM makes the mount's process unmount by force.
    unmount_unless_used(&mount.point)?;
    let unit = at.mount_unit(&mount.point);
    if host::has_systemd(at) && unit.exists() {
        host::systemctl(&["disable", "--now", &super::units::mount_unit_name(&mount.point)])?;
    }
    host::remove(&unit)
}

fn unmount_unless_used(point: &Path) -> Result<(), Failure> {
    mounts::clear_stale(point);
    if mounts::at(point).is_none_or(|m| m.fs_type != mounts::FS_TYPE) {
        return Ok(());
    }
    let Err(e) = rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) else { return Ok(()) };
    let users = mounts::named(point, 0);
    let why = format!("it stays mounted: {e}{users}");
    Err(Failure::failed(point.display(), why, "end these, then disable again"))
}

/// Refuses to delete a directory in which something is mounted: its content would be deleted, too.
pub fn refuse_mounts_below(dir: &Path) -> Result<(), Failure> {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    match mounts::table().unwrap_or_default().into_iter().find(|m| m.point.starts_with(&dir)) {
        None => Ok(()),
        Some(there) => {
            let why = format!("it is not deleted, since {} is mounted in it", there.point.display());
            Err(Failure::failed(dir.display(), why, "unmount that, then disable again"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    fn entry(directory: &Path) -> Entry {
        Entry {
            name: "/a".into(),
            path: "/a".into(),
            directory: directory.into(),
            access: "rw",
            squash: "root".into(),
            hosts: vec![],
            options: vec![],
        }
    }

    #[test]
    fn what_is_no_directory_of_the_mount_is_refused() {
        let dir = TestDir::new("gateway-check");
        fs::create_dir(dir.path().join("inside")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let said = |name: &str| check(&entry(&dir.path().join(name)), dir.path());
        assert_eq!(said("inside"), Ok(()));
        assert_eq!(said("file"), Err(Unfit::new("it is no directory")));
        let gone = said("gone").unwrap_err();
        assert!(gone.why.contains("No such file") && gone.is_missing, "{gone:?}");
        assert!(said("inside/../inside").unwrap_err().why.contains("outside of the mount"));
        let beside = check(&entry(Path::new("/usr")), dir.path()).unwrap_err();
        assert!(beside.why.contains("outside of the mount"), "{beside:?}");
        let other = check(&entry(Path::new("/proc/self")), Path::new("/")).unwrap_err();
        assert!(!other.is_missing, "{other:?}");
    }

    #[test]
    fn a_symlink_in_the_path_of_a_served_directory_is_refused() {
        let dir = TestDir::new("gateway-symlink");
        fs::create_dir_all(dir.path().join("inside/below")).unwrap();
        for (target, link) in [("/usr", "out"), ("inside", "within")] {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        for name in ["out", "within", "within/below"] {
            let unfit = check(&entry(&dir.path().join(name)), dir.path()).unwrap_err();
            assert!(unfit.why.contains("is a symlink") && !unfit.is_missing, "{name}: {unfit:?}");
        }
    }

    #[test]
    fn a_directory_that_other_users_may_replace_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = TestDir::new("gateway-replace");
        let above = dir.path().join("above");
        fs::create_dir_all(above.join("a")).unwrap();
        let with_mode = |mode: u32, name: &str| {
            fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
            check(&entry(&above.join(name)), dir.path())
        };
        assert_eq!(with_mode(0o755, "a"), Ok(()));
        for mode in [0o775, 0o757, 0o777] {
            let unfit = with_mode(mode, "a").unwrap_err();
            assert!(unfit.why.contains("may replace"), "{mode:o}: {unfit:?}");
            assert!(!with_mode(mode, "gone").unwrap_err().is_missing, "{mode:o}: another user may make it");
        }
        assert_eq!(with_mode(0o1777, "a"), Ok(()), "the sticky bit keeps the name with its owner");
        assert!(!with_mode(0o1777, "gone").unwrap_err().is_missing);
        fs::set_permissions(above.join("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(with_mode(0o755, "a"), Ok(()), "users may write in the served directory itself");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&above, Some(1000), None).unwrap();
            assert!(with_mode(0o755, "a").unwrap_err().why.contains("may replace"), "its owner may");
        }
    }

    #[test]
    fn a_directory_with_a_mount_in_it_is_not_deleted() {
        let dir = TestDir::new("gateway-below");
        assert_eq!(refuse_mounts_below(dir.path()).map_err(|e| e.to_string()), Ok(()));
        let refused = refuse_mounts_below(Path::new("/proc")).unwrap_err().to_string();
        assert!(refused.contains("/proc is mounted in it; unmount that"), "{refused}");
        assert!(refuse_mounts_below(Path::new("/")).is_err());
    }

    #[test]
    fn a_plain_directory_is_not_mounted_and_proc_is_foreign() {
        let dir = TestDir::new("gateway-state");
        assert_eq!(state(dir.path()), State::NotMounted);
        assert_eq!(state(Path::new("/proc")), State::Foreign);
        let mount = Mount { point: dir.path().into(), source: None, options: vec![] };
        let refused = refuse_unless_mounted(&mount, "nfs").unwrap_err().to_string();
        assert!(refused.contains("no Stria file system is mounted there; mount it"), "{refused}");
    }
}
