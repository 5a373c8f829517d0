//! A tool's way to a cluster: the fabric, the map and the file system that it means.
//!
//! Tools are observers: they take no session and hold nothing. Through the socket in `D/run` (readable by its owner only) or
//! as the process itself they are given the file system's secret, which signs what they ask of OSTs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use net::{Fabric, Peer};
use types::{Buf, Fid, FsId, TargetId};
use wire::map::{ClusterMap, FileSystem, Target};
use wire::mgmt::GetMap;
use wire::object::Capability;
use wire::{Header, Request};

use crate::config;
use crate::exit::Failure;
use crate::mounts;
use crate::rundir::RunDir;

/// The MGS as a target of the fabric.
pub const MGS: TargetId = TargetId(0);
/// Longest wait of a tool for one answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Seconds that a tool's capability holds: the longest fsck.
const CAPABILITY_SEC: u64 = 24 * 3600;

pub struct Reach {
    pub fabric: Arc<Fabric>,
    pub map: ClusterMap,
    pub fs: FsId,
}

impl Reach {
    /// Through the first of `nids` that answers.
    pub fn by_nids(nids: &[String], fsname: &str) -> anyhow::Result<Reach> {
        let mut last = anyhow!("no NID is given");
        for nid in nids {
            match Reach::by_nid(nid, fsname) {
                Ok(reach) => return Ok(reach),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    fn by_nid(nid: &str, fsname: &str) -> anyhow::Result<Reach> {
        let fabric = Fabric::new(None);
        let mgs = fabric.peer_at(nid, MGS);
        let map = get_map(&*mgs, true).with_context(|| format!("ask the management service at {nid}"))?;
        let map = with_nid(map, nid);
        fabric.set_map(&map);
        Reach::in_map(fabric, map, fsname)
    }

    /// Within the process that serves.
    pub fn in_process(fabric: Arc<Fabric>, fsname: &str) -> anyhow::Result<Reach> {
        let map = get_map(&*fabric.peer(MGS)?, true)?;
        Reach::in_map(fabric, map, fsname)
    }

    fn in_map(fabric: Arc<Fabric>, map: ClusterMap, fsname: &str) -> anyhow::Result<Reach> {
        match map.fs_named(fsname).map(|f| f.id) {
            Some(fs) => Ok(Reach { fabric, map, fs }),
            None => Err(refuse_name(&map, fsname, "the management service").into()),
        }
    }

    pub fn file_system(&self) -> &FileSystem {
        self.map.fs(self.fs).expect("the file system was found in this map")
    }

    /// The file system's targets: MDTs first, then by index.
    pub fn targets(&self) -> Vec<&Target> {
        let mut targets: Vec<&Target> = self.map.targets.iter().filter(|t| t.fs == self.fs).collect();
        targets.sort_by_key(|t| (!t.is_mdt, t.index));
        targets
    }

    /// A capability for any object, as servers and tools use.
    pub fn capability(&self, now: SystemTime) -> Capability {
        let now_sec = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        object::cap::make_admin(&self.file_system().secret, now_sec + CAPABILITY_SEC)
    }

    pub fn ask<R: Request>(&self, target: TargetId, request: &R) -> anyhow::Result<R::Reply> {
        Ok(self.ask_with_head(target, request)?.1)
    }

    /// With the reply's header, which tells the target's incarnation.
    pub fn ask_with_head<R: Request>(
        &self,
        target: TargetId,
        request: &R,
    ) -> anyhow::Result<(Header, R::Reply)> {
        ask_with_head(&*self.fabric.peer(target)?, self.fs, target, request)
    }

    /// The path of a fid, or the fid itself where no path is known.
    pub fn path_of(&self, fid: Fid) -> String {
        let path = self
            .map
            .mdt_of(self.fs, fid)
            .ok_or_else(|| anyhow!("no MDT"))
            .and_then(|mirror| self.ask(mirror.primary, &wire::meta::PathOf { fid }));
        match path {
            Ok(reply) => String::from_utf8_lossy(&reply.path.0).into_owned(),
            Err(_) => format!("(no path: fid {fid})"),
        }
    }
}

/// One request to one target, with a bounded wait.
pub fn ask<R: Request>(peer: &dyn Peer, fs: FsId, target: TargetId, request: &R) -> anyhow::Result<R::Reply> {
    Ok(ask_with_head(peer, fs, target, request)?.1)
}

fn ask_with_head<R: Request>(
    peer: &dyn Peer,
    fs: FsId,
    target: TargetId,
    request: &R,
) -> anyhow::Result<(Header, R::Reply)> {
    let head = Header { fs, target, ..Header::default() };
    let deadline = Instant::now() + ANSWER_WAIT_MAX;
    let (head, _, reply) = net::rpc::call(peer, head, request, &[], &mut Buf::new(), deadline)?;
    Ok((head, reply?))
}

/// The service `whom` has no file system of this name.
pub fn refuse_name(map: &ClusterMap, fsname: &str, whom: &str) -> Failure {
    let known: Vec<&str> = map.file_systems.iter().map(|f| f.name.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let next = format!("{whom} knows the file systems: {known}");
    Failure::unusable(format!("file system '{fsname}'"), "there is none of this name", next)
}

pub fn get_map(mgs: &dyn Peer, server: bool) -> anyhow::Result<ClusterMap> {
    let reply = ask(mgs, FsId(0), MGS, &GetMap { known_version: 0, server })?;
    reply.map.ok_or_else(|| anyhow!("the management service sent no map"))
}

/// Targets without an address live in the process that answered at `nid`: they are reached there.
pub fn with_nid(mut map: ClusterMap, nid: &str) -> ClusterMap {
    for node in map.nodes.iter_mut().filter(|n| n.nids.is_empty()) {
        node.nids.push(nid.to_owned());
    }
    map
}

/// `NID[,NID…]:/fsname`, as mounts name their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// In full.
    pub nids: Vec<String>,
    pub fsname: String,
    /// As it was given. The mount table shows this: mount(8) compares it with the line of fstab.
    given: String,
}

impl Source {
    pub fn parse(text: &str) -> Result<Source, String> {
        let example = "such as 10.0.0.5@tcp0:/stria";
        let (nids, fsname) =
            text.rsplit_once(":/").ok_or(format!("'{text}' is not NID:/fsname, {example}"))?;
        let nids: Vec<&str> = nids.split(',').collect();
        Source::of(&nids, fsname)
    }

    pub fn of(given: &[impl AsRef<str>], fsname: &str) -> Result<Source, String> {
        config::check_fsname(fsname)?;
        let given: Vec<&str> = given.iter().map(AsRef::as_ref).collect();
        let nids = given.iter().copied().map(config::normal_nid).collect::<Result<Vec<_>, _>>()?;
        Ok(Source { nids, fsname: fsname.to_owned(), given: format!("{}:/{fsname}", given.join(",")) })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.given)
    }
}

/// The Stria mount that holds `path`, and where its file system is reached.
pub fn mount_of(path: &Path) -> anyhow::Result<(PathBuf, Source)> {
    let absolute = std::path::absolute(path)?;
    // Symlinks may lead into a mount; what cannot be resolved is looked up as it is written.
    let real = std::fs::canonicalize(&absolute).unwrap_or(absolute);
    let mount = mounts::holding(&real).filter(|m| m.fs_type == mounts::FS_TYPE).ok_or_else(|| {
        Failure::unusable(path.display(), "it is not on a Stria file system", "`stria df` lists the mounts")
    })?;
    let source = Source::parse(&mount.source)
        .map_err(|why| Failure::unusable(path.display(), why, "the mount was made by another version"))?;
    Ok((mount.point, source))
}

/// The running cluster in `dir`.
pub fn through_socket(dir: &Path, fsname: &str) -> anyhow::Result<Reach> {
    Reach::by_nids(&[RunDir::of(dir).nid()?], fsname)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_sources_are_read_in_full_and_printed_as_they_were_given() {
        for (text, nids, fsname) in [
            ("10.0.0.5:/stria", "10.0.0.5:7010@tcp0", "stria"),
            ("10.0.0.5:99@tcp1,10.0.0.6@tcp:/a-b", "10.0.0.5:99@tcp1,10.0.0.6:7010@tcp0", "a-b"),
            ("unix:/d/run/stria.sock@local0:/demo", "unix:/d/run/stria.sock@local0", "demo"),
        ] {
            let source = Source::parse(text).unwrap();
            assert_eq!((source.nids.join(","), source.fsname.as_str()), (nids.to_owned(), fsname));
            assert_eq!(source.to_string(), text);
        }
        for text in ["10.0.0.5", "10.0.0.5:/", ":/x", "10.0.0.5:/a/b", "10.0.0.5:x"] {
            assert!(Source::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_outside_is_told_so() {
        let refused = mount_of(Path::new("/proc")).unwrap_err();
        assert!(refused.to_string().contains("not on a Stria file system"));
    }
}
