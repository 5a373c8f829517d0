//! A tool's connection to a cluster: the fabric, the map and the chosen file system.
//!
//! Tools are observers: they have no session and hold no locks. Through the socket in `D/run` (readable only by its owner), or within the
//! serving process, they get the file system's secret, which signs their requests to OSTs.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use net::nid::{Address, Nid};
use net::{Fabric, Peer};
use types::{Buf, Fid, FsId, TargetId};
use wire::map::{ClusterMap, FileSystem, Target};
use wire::mgmt::{GetMap, is_not_leading};
use wire::object::Capability;
use wire::{Header, Request};

use crate::config;
use crate::exit::{Failure, unless_said};
use crate::mounts;
use crate::nets::Nets;
use crate::rundir::RunDir;
use crate::tls::{self, Part};

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
    /// The NID at which the MGS answered; none within its process.
    pub mgs: Option<String>,
    /// All NIDs of management services that were given.
    pub mgs_nids: Vec<String>,
    pub wires: Wires,
}

/// Connections to the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wires {
    /// Within this process, or through a Unix socket.
    Local,
    /// With TLS, by this identity.
    Tls(String),
    /// Over TCP without TLS.
    Plain,
}

impl Wires {
    /// The word for JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Wires::Local => "local",
            Wires::Tls(_) => "on",
            Wires::Plain => "off",
        }
    }
}

/// A management service, and one of its file systems if given: the value of `--mgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    nids: Vec<String>,
    fsname: Option<String>,
}

impl Service {
    /// `NID[,NID...]`, followed by `:/fsname` if the service has several file systems.
    pub fn parse(text: &str) -> Result<Service, String> {
        // The path of a unix socket may hold `:/` as well.
        let (nids, fsname) = match text.rsplit_once(":/") {
            Some((nids, name)) if !name.contains(['/', '@']) => (nids, Some(name)),
            _ => (text, None),
        };
        fsname.map_or(Ok(()), config::check_fsname)?;
        let nids = nids.split(',').map(config::normal_nid).collect::<Result<_, _>>()?;
        Ok(Service { nids, fsname: fsname.map(str::to_owned) })
    }

    /// The file system that is named, or the only one that there is.
    pub fn reach(&self) -> anyhow::Result<Reach> {
        let mut all = self.all()?;
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                let first = &last.map.file_systems[0].name;
                let known: Vec<&str> = last.map.file_systems.iter().map(|f| f.name.as_str()).collect();
                let why = format!("it has several file systems: {}", known.join(", "));
                let next = format!("name one: --mgs {}:/{first}", self.nids.join(","));
                Err(Failure::unusable(self.whom(), why, next).into())
            }
            (None, _) => {
                let next = "start a `stria mds` for it; the first time with --format";
                Err(Failure::unusable(self.whom(), "it knows no file system yet", next).into())
            }
        }
    }

    /// The named file system, or all.
    pub fn all(&self) -> anyhow::Result<Vec<Reach>> {
        let Management { fabric, map, nid: mgs, nids, wires } = self.manage()?;
        match &self.fsname {
            Some(name) => Ok(vec![Reach::in_map(fabric, map, name, (Some(mgs), nids, wires))?]),
            None => {
                let ids: Vec<FsId> = map.file_systems.iter().map(|f| f.id).collect();
                let of = |fs| Reach {
                    fabric: fabric.clone(),
                    map: map.clone(),
                    fs,
                    mgs: Some(mgs.clone()),
                    mgs_nids: nids.clone(),
                    wires: wires.clone(),
                };
                Ok(ids.into_iter().map(of).collect())
            }
        }
    }

    /// The service itself, whichever file system is named.
    pub fn manage(&self) -> anyhow::Result<Management> {
        Management::by_nids(&self.nids)
    }

    fn whom(&self) -> String {
        format!("the management service at {}", self.nids.join(", "))
    }
}

/// A management service, for what concerns the whole cluster.
pub struct Management {
    pub fabric: Arc<Fabric>,
    pub map: ClusterMap,
    /// The NID at which it answered.
    pub nid: String,
    nids: Vec<String>,
    wires: Wires,
}

impl Management {
    /// Through the first of `nids` that answers.
    pub fn by_nids(nids: &[String]) -> anyhow::Result<Management> {
        let (fabric, map, nid, wires) = ask_any(nids).map_err(|e| {
            let why = format!("it does not answer ({e:#})");
            let whom = format!("the management service at {}", nids.join(", "));
            unless_said(e, || Failure::unusable(whom, why, "start it, or correct the address"))
        })?;
        Ok(Management { fabric, map, nid, nids: nids.to_vec(), wires })
    }

    /// Asks the one that answered first; if it does not lead, the others.
    pub fn ask<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        let others = self.nids.iter().filter(|nid| **nid != self.nid);
        let mut refused = None;
        for nid in std::iter::once(&self.nid).chain(others) {
            match ask(&*self.fabric.peer_at(nid, MGS), FsId(0), MGS, request) {
                Err(e) if e.downcast_ref().is_some_and(is_not_leading) => refused = Some(e),
                // After a refusal the silence of another one says less.
                Err(e) if refused.is_none() || e.is::<types::Fault>() => return Err(e),
                Err(_) => {}
                Ok(reply) => return Ok(reply),
            }
        }
        Err(refused.unwrap_or_else(|| anyhow!("no NID is given")))
    }

    /// Its file systems, by id.
    pub fn file_systems(&self) -> Vec<Reach> {
        let of = |fs: &FileSystem| Reach {
            fabric: self.fabric.clone(),
            map: self.map.clone(),
            fs: fs.id,
            mgs: Some(self.nid.clone()),
            mgs_nids: self.nids.clone(),
            wires: self.wires.clone(),
        };
        let mut all: Vec<Reach> = self.map.file_systems.iter().map(of).collect();
        all.sort_by_key(|reach| reach.fs);
        all
    }
}

/// The map from the first of `nids` that answers, connections to all targets in it, and that NID.
fn ask_any(nids: &[String]) -> anyhow::Result<(Arc<Fabric>, ClusterMap, String, Wires)> {
    let mut last = anyhow!("no NID is given");
    for nid in nids {
        let is_remote = matches!(Nid::parse(nid), Ok(Nid { address: Address::Tcp(_), .. }));
        let trust = if is_remote { tls::trust(None, Part::Command)? } else { None };
        let wires = match &trust {
            Some(trust) => Wires::Tls(trust.identity().to_string()),
            None if is_remote => Wires::Plain,
            None => Wires::Local,
        };
        let fabric = Fabric::with_trust(None, trust);
        Nets::of_environment()?.apply(&fabric);
        match get_map(&*fabric.peer_at(nid, MGS), true) {
            Ok(map) => {
                let map = with_nid(map, nid);
                fabric.set_map(&map);
                return Ok((fabric, map, nid.clone(), wires));
            }
            Err(e) => {
                let e = e.context(format!("ask the management service at {nid}"));
                last = denied(nid).map_or(e, Into::into);
            }
        }
    }
    Err(last)
}

/// A socket that this user may not connect to: that does not mean that a server is down.
fn denied(nid: &str) -> Option<Failure> {
    let Ok(Nid { address: Address::Unix(socket), .. }) = Nid::parse(nid) else { return None };
    let refused = UnixStream::connect(&socket).err()?;
    (refused.kind() == ErrorKind::PermissionDenied).then(|| {
        let why = format!("{refused}: only root and the user of `stria up` may ask its servers");
        Failure::unusable(socket.display(), why, "do it as root, or as that user")
    })
}

/// Most targets that are asked at the same time.
const ASKED_MAX: usize = 32;

impl Reach {
    /// Through the first of `nids` that answers.
    pub fn by_nids(nids: &[String], fsname: &str) -> anyhow::Result<Reach> {
        let (fabric, map, mgs, wires) = ask_any(nids)?;
        Reach::in_map(fabric, map, fsname, (Some(mgs), nids.to_vec(), wires))
    }

    /// Takes the newest cluster map, from the first management service that answers. An error leaves the map of before.
    pub fn refresh(&mut self) -> anyhow::Result<()> {
        let mut last = anyhow!("no NID is given");
        for nid in &self.mgs_nids {
            match get_map(&*self.fabric.peer_at(nid, MGS), true) {
                Ok(map) if map.fs(self.fs).is_none() => {
                    last = refuse_name(&map, &self.file_system().name, "the management service").into();
                }
                Ok(map) => {
                    self.map = with_nid(map, nid);
                    self.fabric.set_map(&self.map);
                    return Ok(());
                }
                Err(e) => last = e.context(format!("the management service at {nid} does not answer")),
            }
        }
        Err(last)
    }

    /// The answers of all targets, in the order of `targets`, asked in parallel: a target that never answers delays no other.
    pub fn ask_all<'t, T: Send>(
        &self,
        targets: &[&'t Target],
        ask: impl Fn(&'t Target) -> T + Sync,
    ) -> Vec<T> {
        let ask = &ask;
        let each = |some: &[&'t Target]| -> Vec<T> {
            std::thread::scope(|scope| {
                let asked: Vec<_> = some.iter().map(|t| (*t, scope.spawn(move || ask(t)))).collect();
                asked.into_iter().map(|(_, one)| one.join().expect("asking does not panic")).collect()
            })
        };
        targets.chunks(ASKED_MAX).flat_map(each).collect()
    }

    /// Connects within the serving process.
    pub fn in_process(fabric: Arc<Fabric>, fsname: &str) -> anyhow::Result<Reach> {
        let map = get_map(&*fabric.peer(MGS)?, true)?;
        Reach::in_map(fabric, map, fsname, (None, vec![], Wires::Local))
    }

    fn in_map(
        fabric: Arc<Fabric>,
        map: ClusterMap,
        fsname: &str,
        (mgs, mgs_nids, wires): (Option<String>, Vec<String>, Wires),
    ) -> anyhow::Result<Reach> {
        match map.fs_named(fsname).map(|f| f.id) {
            Some(fs) => Ok(Reach { fabric, map, fs, mgs, mgs_nids, wires }),
            None => Err(refuse_name(&map, fsname, "the management service").into()),
        }
    }

    pub fn file_system(&self) -> &FileSystem {
        self.map.fs(self.fs).expect("the file system was found in this map")
    }

    /// The file system's targets, with all members of mirrors: MDTs first, then by index.
    pub fn targets(&self) -> Vec<&Target> {
        let mut targets: Vec<&Target> = self.map.targets.iter().filter(|t| t.fs == self.fs).collect();
        targets.sort_by_key(|t| (!t.is_mdt, t.index, t.id));
        targets
    }

    /// One target of each mirror, in the same order: that which orders changes.
    pub fn primaries(&self) -> Vec<&Target> {
        self.targets().into_iter().filter(|t| self.is_primary(t)).collect()
    }

    pub fn is_primary(&self, target: &Target) -> bool {
        self.map.mirror(target.mirror).is_none_or(|mirror| mirror.primary == target.id)
    }

    /// The primaries of the MDTs.
    pub fn mdts(&self) -> Vec<&Target> {
        self.primaries().into_iter().filter(|t| t.is_mdt).collect()
    }

    /// A capability for any object, as servers and tools use.
    pub fn capability(&self, now: SystemTime) -> Capability {
        let now_sec = now.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        object::cap::make_admin(&self.file_system().secret, now_sec + CAPABILITY_SEC)
    }

    pub fn ask<R: Request>(&self, target: TargetId, request: &R) -> anyhow::Result<R::Reply> {
        Ok(self.ask_with_head(target, request)?.1)
    }

    /// Returns the reply's header, too; it names the target's incarnation.
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

/// The error for a file system name that a management service does not know.
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

/// Targets without an address live in the process that answered at `nid`, and are reached there.
pub fn with_nid(mut map: ClusterMap, nid: &str) -> ClusterMap {
    for node in map.nodes.iter_mut().filter(|n| n.nids.is_empty()) {
        node.nids.push(nid.to_owned());
    }
    map
}

/// `NID[,NID…]:/fsname`, the source of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// In full form.
    pub nids: Vec<String>,
    pub fsname: String,
    /// As given. The mount table shows this form: mount(8) compares it with the line of fstab.
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

impl Source {
    /// The same text for every way to write the source.
    pub fn in_full(&self) -> String {
        format!("{}:/{}", self.nids.join(","), self.fsname)
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.given)
    }
}

/// The Stria mount that holds `path`, and the source of its file system.
pub fn mount_of(path: &Path) -> anyhow::Result<(PathBuf, Source)> {
    let absolute = std::path::absolute(path)?;
    // Symlinks may lead into a mount; a path that cannot be resolved is used as written.
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
    fn a_service_is_read_with_and_without_a_file_system() {
        for (text, nids, fsname) in [
            ("10.0.0.5@tcp", "10.0.0.5:7010@tcp0", None),
            ("10.0.0.5,10.0.0.6:99@tcp:/one", "10.0.0.5:7010@tcp0,10.0.0.6:99@tcp0", Some("one")),
            ("unix:/d/run/stria.sock", "unix:/d/run/stria.sock@local0", None),
            ("unix:/d/run/stria.sock@local0:/two", "unix:/d/run/stria.sock@local0", Some("two")),
        ] {
            let service = Service::parse(text).unwrap();
            assert_eq!((service.nids.join(",").as_str(), service.fsname.as_deref()), (nids, fsname));
        }
        for text in ["", "10.0.0.5@o2ib", "10.0.0.5:/"] {
            assert!(Service::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_service_that_is_not_there_is_told_with_the_next_step() {
        let refused = Service::parse("127.0.0.1:1@tcp").unwrap().reach().err().unwrap().to_string();
        assert!(
            refused.contains("127.0.0.1:1@tcp0: it does not answer") && refused.contains("start it"),
            "{refused}"
        );
    }

    #[test]
    fn a_path_outside_is_told_so() {
        let refused = mount_of(Path::new("/proc")).unwrap_err();
        assert!(refused.to_string().contains("not on a Stria file system"));
    }
}
