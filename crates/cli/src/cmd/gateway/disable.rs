//! `stria gateway … disable`: removes single exports or shares, or all that `enable` made.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::enable::{Start, apply, bad_word, keep};
use super::model::{Kind, Nfs, Smb};
use super::places::Places;
use super::{Away, NfsDisable, SmbDisable, enabled, host, mounted, read, refuse_unless_root, status, words};
use crate::exit::{Exit, Failure};

impl NfsDisable {
    pub fn run(self) -> anyhow::Result<Exit> {
        let at = self.away.base.places::<Nfs>()?;
        refuse_unless_root()?;
        let _lock = host::lock(&at)?;
        if self.exports.is_empty() {
            return self.away.all::<Nfs, Smb>(&at);
        }
        let old = enabled::<Nfs>(&at)?;
        let mut new = old.clone();
        for path in &self.exports {
            let path = words::normal_path(path, &old.mount.point).map_err(|why| bad_word("export", why))?;
            let before = new.exports.len();
            new.exports.retain(|e| e.path != path);
            refuse_unknown::<Nfs>(&path, before == new.exports.len())?;
        }
        take_away(&old, &new, &at)
    }
}

impl SmbDisable {
    pub fn run(self) -> anyhow::Result<Exit> {
        let at = self.away.base.places::<Smb>()?;
        refuse_unless_root()?;
        let _lock = host::lock(&at)?;
        if self.shares.is_empty() {
            return self.away.all::<Smb, Nfs>(&at);
        }
        let old = enabled::<Smb>(&at)?;
        let mut new = old.clone();
        for name in &self.shares {
            let before = new.shares.len();
            new.shares.retain(|s| s.name.to_lowercase() != name.to_lowercase());
            refuse_unknown::<Smb>(name, before == new.shares.len())?;
        }
        take_away(&old, &new, &at)
    }
}

fn refuse_unknown<K: Kind>(name: &str, is_unknown: bool) -> Result<(), Failure> {
    let next = format!("`stria gateway {} list` shows them", K::NAME);
    let refused =
        || Failure::unusable(format!("{} {name}", K::ENTRY), "there is none of this name here", next);
    if is_unknown { Err(refused()) } else { Ok(()) }
}

fn take_away<K: Kind>(old: &K, new: &K, at: &Places) -> anyhow::Result<Exit> {
    if new.entries().is_empty() {
        let next = format!("`stria gateway {} disable` ends the gateway", K::NAME);
        return Err(Failure::unusable("gateway", "nothing would be left to serve", next).into());
    }
    let program = host::program(new)?;
    keep(new, at)?;
    apply(Some(old), new, at, &program, Start { now: false, is_mounted_now: false })?;
    status::list(Some(new), at, false)
}

impl Away {
    /// Removes the server, the unit, the configuration, and the mount if the gateway made it and no other gateway serves it. The model goes
    /// last, so that an interrupted `disable` can be repeated.
    fn all<K: Kind, O: Kind>(&self, at: &Places) -> anyhow::Result<Exit> {
        let old = read::<K>(at)?;
        let has_run = host::stop(at)?;
        if host::has_systemd(at) && at.unit().exists() {
            host::systemctl(&["disable", &at.unit_name()])?;
        }
        host::remove(&at.unit())?;
        host::remove(&at.config())?;
        // Unmounted before any directory is deleted: a mount within it would lose its files.
        if let Some(mount) = old.as_ref().map(K::mount).filter(|m| m.source.is_some()) {
            let other = read::<O>(&at.of(O::NAME))?;
            if other.is_none_or(|o| o.mount().point != mount.point) {
                mounted::unmake(mount, at)?;
            }
        }
        remove_tree(&at.run())?;
        if self.purge {
            remove_tree(&at.state())?;
        }
        if host::has_systemd(at) {
            host::systemctl(&["daemon-reload"])?;
        }
        host::remove(&at.kept())?;
        let how = match (old.is_some(), has_run) {
            (false, false) => "it was not enabled",
            (_, true) => "stopped, and its configuration removed",
            (true, false) => "its configuration is removed; the server did not run",
        };
        outln!("{} gateway: {how}", K::NAME.to_uppercase());
        if !self.purge && at.state().exists() {
            outln!("{} keeps what the server stored; --purge removes it", at.state().display());
        }
        Ok(Exit::Done)
    }
}

fn remove_tree(dir: &Path) -> anyhow::Result<()> {
    mounted::refuse_mounts_below(dir)?;
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}
