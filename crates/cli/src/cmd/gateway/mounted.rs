//! The mount below a gateway: how it is, whether a directory lies on it, and how one that gateways own comes and goes.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::mount::UnmountFlags;
use serde::Serialize;

use super::host;
use super::model::{Entry, Mount};
use super::places::Places;
use crate::exit::Failure;
use crate::mounts;
use crate::serve::bounded;
use crate::serve::mounted::prepare_point;

/// A mount whose servers are down keeps its callers waiting for its operation time-out; a look gives up sooner.
const LOOK_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is there and answers.
    Mounted,
    NotMounted,
    /// Something else is mounted there.
    Foreign,
    /// Its process is gone.
    Dead,
    /// Its process lives and does not answer.
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

/// The mount point as the mount table has it.
pub fn point_of(given: &Path) -> anyhow::Result<PathBuf> {
    let absolute = super::super::absolute(given)?;
    if mounts::at(&absolute).is_some() {
        return Ok(absolute);
    }
    // A symlink may lead to it; a dead mount cannot be looked through.
    let point = absolute.clone();
    let real = bounded("resolve the mount point", LOOK_MAX, move || fs::canonicalize(point));
    Ok(real.and_then(Result::ok).filter(|real| mounts::at(real).is_some()).unwrap_or(absolute))
}

/// Whether the directory of an entry can be served, or why not.
pub fn check(entry: &Entry, point: &Path) -> Result<(), String> {
    let (directory, point) = (entry.directory.clone(), point.to_owned());
    bounded("look at a directory", LOOK_MAX, move || is_on(&directory, &point))
        .unwrap_or_else(|| Err("the mount does not answer".to_owned()))
}

fn is_on(directory: &Path, point: &Path) -> Result<(), String> {
    let real = fs::canonicalize(directory).map_err(|e| e.to_string())?;
    let meta = fs::metadata(&real).map_err(|e| e.to_string())?;
    if !meta.is_dir() {
        return Err("it is no directory".into());
    }
    let device = fs::metadata(point).map_err(|e| e.to_string())?.dev();
    let below = fs::canonicalize(point).map_err(|e| e.to_string())?;
    if meta.dev() != device || !real.starts_with(below) {
        return Err(format!("it lies outside of the mount, at {}", real.display()));
    }
    Ok(())
}

/// Refuses a mount that cannot be served.
pub fn refuse_unless_mounted(mount: &Mount, kind: &str) -> Result<(), Failure> {
    let state = state(&mount.point);
    let Some(why) = trouble(state) else { return Ok(()) };
    Err(Failure::unusable(mount.point.display(), why, next_step(mount, state, kind)))
}

/// What is wrong with a mount, if anything is.
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

/// Makes a mount that gateways own, unless it is there. True if it was made now.
pub fn make(mount: &Mount, source: &str, at: &Places) -> anyhow::Result<bool> {
    if state(&mount.point) == State::Mounted {
        return Ok(false);
    }
    // A mount makes no directory; this one is the gateway's own.
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

/// Takes a mount that gateways own away. A mount in use stays, and it is said who uses it.
pub fn unmake(mount: &Mount, at: &Places) -> anyhow::Result<()> {
    let unit = at.mount_unit(&mount.point);
    if host::has_systemd(at) && unit.exists() {
        host::systemctl(&["disable", "--now", &super::units::mount_unit_name(&mount.point)])?;
    }
    mounts::clear_stale(&mount.point);
    if mounts::at(&mount.point).is_some_and(|m| m.fs_type == mounts::FS_TYPE)
        && let Err(e) = rustix::mount::unmount(&mount.point, UnmountFlags::NOFOLLOW)
    {
        let users = mounts::named(&mount.point, 0);
        let next = "end these, then disable again";
        return Err(
            Failure::failed(mount.point.display(), format!("it stays mounted: {e}{users}"), next).into()
        );
    }
    host::remove(&unit)
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
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("/proc/self", dir.path().join("out")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("beside")).unwrap();
        let said = |name: &str| check(&entry(&dir.path().join(name)), dir.path());
        assert_eq!(said("inside"), Ok(()));
        assert_eq!(said("file"), Err("it is no directory".into()));
        assert!(said("gone").unwrap_err().contains("No such file"));
        assert!(said("out").unwrap_err().contains("outside of the mount"));
        assert!(
            said("beside").unwrap_err().contains("outside of the mount, at /usr"),
            "also on the same device"
        );
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
