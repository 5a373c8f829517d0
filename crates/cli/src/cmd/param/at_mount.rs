//! Parameters of mounts: a mount of this host is asked by its attribute; of others only the kept value is known.

use std::io::ErrorKind;
use std::path::PathBuf;

use mgmt::params::{Param, client_name, kept_for_mounts};
use serde::Deserialize;
use wire::params::LiveParam;

use super::{Line, Meant};
use crate::exit::Failure;
use crate::reach::{Reach, Source};
use crate::serve::mount_params::base;
use crate::xattr;

/// The attribute that has the values (client `session/params.rs`).
const ATTRIBUTE: &str = "stria.params";

/// A mount of this host.
#[derive(Clone, Debug)]
pub struct AtMount {
    point: PathBuf,
    fsname: String,
}

/// A value at a mount, as its attribute has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Held {
    name: String,
    value: u64,
    base: u64,
    given: Option<u64>,
    kept: Option<u64>,
    live: Option<u64>,
}

impl Held {
    /// Of a mount that has no options, as the map alone tells.
    fn by_map(reach: &Reach, param: Param) -> Held {
        let (kept, base) = (kept_for_mounts(&reach.map, reach.fs, param), base(param));
        let name = param.def().name.to_owned();
        Held { name, value: kept.unwrap_or(base), base, given: None, kept, live: None }
    }

    fn line(&self, target: &str, param: Param) -> Line {
        let def = param.def();
        let text = |value: u64| def.show(value);
        Line {
            target: target.to_owned(),
            id: None,
            name: def.name,
            value: text(self.value),
            from: match (self.live, self.given, self.kept) {
                (Some(_), ..) => "live",
                (None, Some(_), _) => "option",
                (None, None, Some(_)) => "kept",
                (None, None, None) => "base",
            },
            base: text(self.base),
            kept: self.kept.map(text),
            option: self.given.map(text),
            live: self.live.map(text),
        }
    }
}

impl AtMount {
    pub fn new((point, source): (PathBuf, Source)) -> AtMount {
        AtMount { point, fsname: source.fsname }
    }

    fn is_of(&self, reach: &Reach) -> bool {
        self.fsname == reach.file_system().name
    }

    /// `None`: the mount has none to show, as one of an earlier version.
    fn held(&self) -> anyhow::Result<Option<Vec<Held>>> {
        let what = format!("the mount {}", self.point.display());
        let next = "`stria status` shows what is up";
        let json = xattr::find(&self.point, ATTRIBUTE).map_err(|e| Failure::failed(&what, e, next))?;
        let held = json.map(|json| serde_json::from_slice(&json)).transpose();
        Ok(held.map_err(|e| Failure::failed(what, e, "mount it anew with this version"))?)
    }

    /// Sets or ends live values.
    fn set(&self, changes: &[LiveParam]) -> anyhow::Result<()> {
        let line = |change: &LiveParam| match change.value {
            Some(value) => format!("{}={value}\n", change.name),
            None => format!("{}\n", change.name),
        };
        let text: String = changes.iter().map(line).collect();
        let what = format!("the mount {}", self.point.display());
        xattr::set(&self.point, ATTRIBUTE, text.as_bytes()).map_err(|e| match e.kind() {
            ErrorKind::PermissionDenied => Failure::unusable(what, e, "do it as root").into(),
            _ => Failure::failed(what, e, "the log of the mount's process has the reason").into(),
        })
    }
}

/// The parameters of a file system's mounts that are meant.
pub fn meant(reach: &Reach, all: &[Meant]) -> Vec<Param> {
    let is_meant = |param: &Param| all.iter().any(|one| one.of_mounts(reach).contains(param));
    mgmt::params::PARAMS.iter().copied().filter(is_meant).collect()
}

/// The lines of the mounts of a file system.
pub fn lines(reach: &Reach, all: &[Meant], at: Option<&AtMount>) -> anyhow::Result<Vec<Line>> {
    let params = meant(reach, all);
    if params.is_empty() {
        return Ok(vec![]);
    }
    let at = at.filter(|at| at.is_of(reach));
    let held = at.map(AtMount::held).transpose()?.flatten().unwrap_or_default();
    let name = client_name(&reach.file_system().name);
    let line = |param: Param| {
        let known = held.iter().find(|held| held.name == param.def().name).cloned();
        known.unwrap_or_else(|| Held::by_map(reach, param)).line(&name, param)
    };
    Ok(params.into_iter().map(line).collect())
}

/// Sets live values at the mount of this host. With `-P` it ends those that hide the kept ones. False: no mount of this file system is known.
pub fn set(
    reach: &Reach,
    mut changes: Vec<LiveParam>,
    at: Option<&AtMount>,
    persistent: bool,
) -> anyhow::Result<bool> {
    let Some(at) = at.filter(|at| at.is_of(reach)) else { return Ok(false) };
    if persistent {
        let held = at.held()?.unwrap_or_default();
        let hides = |name: &str| held.iter().any(|held| held.name == name && held.live.is_some());
        changes.retain(|change| hides(&change.name));
        changes.iter_mut().for_each(|change| change.value = None);
    }
    if !changes.is_empty() {
        at.set(&changes)?;
    }
    Ok(true)
}
