//! The targets of one process: opens, registers, joins, serves and stops them in order.
//!
//! cli-SV1: a device that cannot be opened, or whose target is refused, is left out. So one bad drive takes one target away, and not all of its
//!     server.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use client::Fs;
use disk::content::Content;
use disk::{Disk, FileDisk, Label, LogLabel, Media, Volume};
use net::{Fabric, Hub, Service};
use pair::Replica;
use parking_lot::Mutex;
use pki::Trust;
use types::{Code, Epoch, Fault, MirrorId, SessionId, TargetId, Time, Uuid};
use wire::map::{Apart, ClusterMap};
use wire::mgmt::RegisterReply;

use crate::exit::Failure;
use crate::reach::MGS;
use crate::serve::device::{self, Blank, Expected, Found};
use crate::serve::heart::{Beat, Heart};
use crate::serve::metrics::OfServers;
use crate::serve::place::{Around, Holding, Kind, Opening, Place, Resting, may_be_replaced};
use crate::serve::register::{Announcement, MgsPeers, new_uuid};
use crate::stop::Event;
use crate::tls::Feed;

/// A follower that stops waits so long for its primary, which may be stopping too.
const COMPANY: Duration = Duration::from_secs(1);

/// An MDT or OST that this process serves.
#[derive(Clone)]
pub enum Target {
    Mdt(Arc<mds::Mdt>),
    Ost(Arc<oss::Ost>),
}

/// A device that holds the log of an OST and nothing else.
pub struct LogDevice {
    path: PathBuf,
    label: LogLabel,
    disk: Arc<dyn Disk>,
}

impl LogDevice {
    fn open(path: &Path) -> anyhow::Result<LogDevice> {
        let disk = FileDisk::open(path).map_err(|e| {
            Failure::failed(
                path.display(),
                e,
                "check `log_devices`, and whether another process uses the device",
            )
        })?;
        let found = disk::content::look(&disk)
            .map_err(|e| Failure::failed(path.display(), e, "look at the medium (`dmesg`)"))?;
        match found {
            Content::Log(label) => {
                Ok(LogDevice { path: path.to_owned(), label: *label, disk: Arc::new(disk) })
            }
            other => {
                let why = format!("it should hold the log of an OST and holds {other}");
                let next = "correct `log_devices`; `stria mkfs ost --log-device` makes such a log";
                Err(Failure::unusable(path.display(), why, next).into())
            }
        }
    }
}

/// The kind of target to make on a blank medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Mdt,
    Ost,
}

impl Role {
    pub fn kind(self) -> disk::Kind {
        match self {
            Role::Mdt => disk::Kind::Mdt,
            Role::Ost => disk::Kind::Ost,
        }
    }

    /// The role of its process, in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Role::Mdt => "mds",
            Role::Ost => "oss",
        }
    }
}

/// The place in its file system that a target wants when it registers for the first time. Later it keeps the place that it got.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// `None`: the index of its format, else the next free one.
    pub index: Option<u32>,
    /// The second member of the mirror of that index.
    pub second: bool,
}

impl Wanted {
    pub fn first(index: Option<u32>) -> Wanted {
        Wanted { index, second: false }
    }
    pub fn second(index: Option<u32>) -> Wanted {
        Wanted { index, second: true }
    }
}

/// The failure domain of this server.
#[derive(Clone, Debug)]
pub struct Domain {
    pub rack: String,
    /// Of new second members here.
    pub apart: Apart,
}

impl Default for Domain {
    fn default() -> Domain {
        Domain { rack: String::new(), apart: Apart::Nothing }
    }
}

/// This process, as the MGS knows it.
#[derive(Clone)]
pub struct Node<'a> {
    pub fsname: &'a str,
    pub mgs: MgsPeers,
    pub name: String,
    /// Empty: reached only within this process and through its socket.
    pub nids: Vec<String>,
    pub domain: Domain,
    pub events: Option<&'a Receiver<Event>>,
}

/// A target that is open and not registered yet.
struct Opened {
    how: Opening,
    /// An error may be mended by the other member of a mirror.
    resting: Result<Resting, Fault>,
    label: Label,
    bytes_total: u64,
    wanted: Wanted,
}

pub struct Servers {
    pub hub: Arc<Hub>,
    pub fabric: Arc<Fabric>,
    /// How MDTs are served.
    pub mdt: mds::Settings,
    /// How OSTs are served.
    pub ost: oss::Settings,
    /// `Around::company`.
    pub company: Duration,
    /// Logs on separate devices, until their OSTs are opened.
    pub logs: Vec<LogDevice>,
    places: Vec<Arc<Place>>,
    mgs: Option<Arc<mgs::Mgs>>,
    last: Option<RegisterReply>,
    heart: Option<Heart>,
    /// Looks after the certificates of this process.
    pub feed: Option<Feed>,
    /// The kernel's requests to a mount in this process.
    pub calls: Arc<fuse::Calls>,
    /// Mounts in this process.
    clients: Arc<Mutex<Vec<Weak<Fs>>>>,
}

impl Servers {
    pub fn new() -> Servers {
        Servers::with_trust(None)
    }

    /// With certificates, connections to other processes use TLS.
    pub fn with_trust(trust: Option<Arc<Trust>>) -> Servers {
        let hub = Hub::new();
        let fabric = Fabric::with_trust(Some(hub.clone()), trust);
        Servers {
            hub,
            fabric,
            mdt: mds::Settings::default(),
            ost: oss::Settings::default(),
            company: COMPANY,
            logs: vec![],
            places: vec![],
            mgs: None,
            last: None,
            heart: None,
            feed: None,
            calls: Arc::default(),
            clients: Arc::default(),
        }
    }

    /// Serves the MGS whose map is in `dir`.
    pub fn serve_mgs(&mut self, mgs: Arc<mgs::Mgs>) {
        self.hub.add(MGS, mgs.clone());
        self.mgs = Some(mgs);
    }

    /// Opens, registers and serves these targets. False: some are left out (cli-SV1).
    pub fn add_each(
        &mut self,
        targets: &[(Role, PathBuf, Wanted)],
        blank: Blank,
        node: &Node,
        open: &dyn Fn(&Path) -> anyhow::Result<Arc<dyn Disk>>,
    ) -> anyhow::Result<bool> {
        let mut left_out = Vec::new();
        for (role, path, wanted) in targets {
            let of = (*role, path.as_path(), *wanted);
            let opened = open(path).and_then(|disk| self.open(of, disk, blank, node.fsname));
            let why = match opened {
                Ok(opened) => self.add(opened, node)?,
                Err(why) => Some(why),
            };
            match why {
                None => {}
                // New targets are made by hand, so the error is seen at once.
                Some(why) if blank == Blank::Format => return Err(why),
                Some(why) => left_out.push((path, why)),
            }
        }
        if self.places.is_empty()
            && let Some((_, why)) = left_out.drain(..).next()
        {
            return Err(why);
        }
        for (path, why) in &left_out {
            let path = path.display();
            tracing::error!(
                "{why:#}: {path} is left out, and the other devices are served; mend it or replace it (`stria target replace`), then start this server again"
            );
        }
        Ok(left_out.is_empty())
    }

    /// Opens, registers and serves one target.
    pub fn add_one(
        &mut self,
        of: (Role, &Path, Wanted),
        disk: Arc<dyn Disk>,
        blank: Blank,
        node: &Node,
    ) -> anyhow::Result<()> {
        let opened = self.open(of, disk, blank, node.fsname)?;
        self.add(opened, node)?.map_or(Ok(()), Err)
    }

    /// Opens the target on `disk`, and formats a blank one if asked.
    fn open(
        &mut self,
        (role, path, wanted): (Role, &Path, Wanted),
        disk: Arc<dyn Disk>,
        blank: Blank,
        fsname: &str,
    ) -> anyhow::Result<Opened> {
        let shown = path.display();
        let Wanted { index, second } = wanted;
        let expected = Expected { kind: role.kind(), fsname, index };
        if device::look_for_target(path, &disk, expected, blank)? == Found::Blank {
            if second && index.is_none() {
                let why = "it is blank, and a second member needs the index of the target that it doubles";
                let next = "make it with `stria mkfs ost --index N`, then start again";
                return Err(Failure::unusable(shown, why, next).into());
            }
            tracing::info!(device = %shown, size_bytes = disk.size(), "formatting a blank device");
            format(role, disk.clone(), fsname).with_context(|| format!("format {shown}"))?;
        }
        let bytes_total = disk.size();
        let how = self.opening(role, path, disk)?;
        let resting = how.open(Holding::Whole);
        let label = match &resting {
            Ok(resting) => resting.label(),
            // A member of a mirror may have the other one's content instead, as the map tells after the registration.
            Err(fault) if fault.code == Code::Damaged && role == Role::Mdt => {
                Volume::label_on(&*how.media.main).with_context(|| format!("open {shown}"))?
            }
            Err(fault) => return Err(fault.clone()).with_context(|| format!("open {shown}")),
        };
        Ok(Opened { how, resting, label, bytes_total, wanted })
    }

    /// Registers a target and serves it. `Some`: why it cannot be served.
    fn add(&mut self, opened: Opened, node: &Node) -> anyhow::Result<Option<anyhow::Error>> {
        let Opened { how, resting, label, bytes_total, wanted } = opened;
        let path = how.path.clone();
        let shown = path.display();
        let announcement = Announcement {
            label: &label,
            index: wanted.index,
            second: wanted.second,
            bytes_total,
            node_name: &node.name,
            nids: &node.nids,
            domain: &node.domain,
        };
        let reply = match announcement.register(&node.mgs, node.events) {
            Ok(reply) => reply,
            // The management service refuses it for good: it was removed, or another one is in its place.
            Err(why) if why.is::<Fault>() => return Ok(Some(why.context(shown.to_string()))),
            Err(why) => return Err(why.context(shown.to_string())),
        };
        self.hub.set_node(reply.node);
        self.fabric.set_node(reply.node);
        self.fabric.set_map(&reply.map);
        self.feed.iter().for_each(|feed| feed.take(&reply.map));
        let around = Around {
            hub: self.hub.clone(),
            fabric: self.fabric.clone(),
            mgs: node.mgs.clone(),
            how,
            company: self.company,
        };
        let resting = match resting {
            Ok(resting) => Some(resting),
            Err(fault) if may_be_replaced(&reply.map, reply.mirror, reply.target, &fault) => None,
            Err(fault) => return Ok(Some(anyhow::Error::from(fault).context(format!("open {shown}")))),
        };
        let place =
            Place::take(around, resting, reply.clone()).with_context(|| format!("join with {shown}"))?;
        tracing::info!(device = %shown, target = %reply.target, index = reply.index, "serving");
        self.places.push(place);
        self.last = Some(reply);
        Ok(None)
    }

    /// The media and settings of a target.
    fn opening(&mut self, role: Role, path: &Path, disk: Arc<dyn Disk>) -> anyhow::Result<Opening> {
        let what = || format!("open {}", path.display());
        let log = Volume::log_on(&*disk).map_err(Fault::from).with_context(what)?;
        let place = log.and_then(|uuid| self.logs.iter().position(|l| l.label.uuid == uuid));
        if let (Some(uuid), None) = (log, place) {
            let why = format!("its log is on another device, log {uuid}, which is not there");
            let next = "attach that device and name it under `log_devices`";
            return Err(Failure::unusable(path.display(), why, next).into());
        }
        let log = place.map(|i| self.logs.swap_remove(i).disk);
        let kind = match role {
            // Each target has values of its own.
            Role::Mdt => Kind::Mdt(mds::Settings { params: Arc::default(), ..self.mdt.clone() }),
            Role::Ost => Kind::Ost(oss::Settings { params: Arc::default(), ..self.ost.clone() }),
        };
        Ok(Opening { media: Media { main: disk, log }, path: path.to_owned(), kind })
    }

    /// Opens the devices that hold only a log. One that cannot be opened keeps its OST from being opened, and no other.
    pub fn open_logs(&mut self, paths: &[PathBuf], blank: Blank) -> anyhow::Result<()> {
        for path in paths {
            match LogDevice::open(path) {
                Ok(log) => self.logs.push(log),
                Err(why) if blank == Blank::Format => return Err(why),
                Err(why) => tracing::error!("{why:#}: this log device is left out, and so is its OST"),
            }
        }
        Ok(())
    }

    /// A log without its OST is an error now; otherwise it would be noticed too late.
    pub fn check_logs_used(&self) -> anyhow::Result<()> {
        let Some(left) = self.logs.first() else { return Ok(()) };
        let why = format!("it holds {}, which is none of `devices`", left.label);
        let next = "name its OST under `devices`, or take it from `log_devices`";
        Err(Failure::unusable(left.path.display(), why, next).into())
    }

    /// The numbers of these servers, for the page of metrics.
    pub fn source(&self, role: &'static str) -> OfServers {
        let (hub, fabric, places) = (self.hub.clone(), self.fabric.clone(), self.places.clone());
        let (mgs, calls) = (self.mgs.clone(), self.calls.clone());
        OfServers { role, hub, fabric, places, mgs, calls, jobs: Default::default() }
    }

    /// Gives the targets a newer map: those that joined first do not know the later ones.
    pub fn set_map(&self, map: &ClusterMap) {
        tell(&self.fabric, &self.hub, &self.places, map)
    }

    /// Client sessions at the MDTs: target, session, the client's name.
    pub fn sessions(&self) -> Vec<(TargetId, SessionId, String)> {
        let mdts = self.places.iter().filter_map(|place| match place.target()? {
            Target::Mdt(mdt) => Some((place.id(), mdt)),
            Target::Ost(_) => None,
        });
        mdts.flat_map(|(id, mdt)| {
            mdt.sessions().into_iter().map(move |(session, name, _)| (id, session, name))
        })
        .collect()
    }

    /// The client of this process gets each newer map, for the parameters that it keeps.
    pub fn tell_maps(&self, fs: &Arc<Fs>) {
        self.clients.lock().push(Arc::downgrade(fs));
        // One may have come since the client was made.
        self.mgs.iter().for_each(|mgs| fs.set_map(mgs.map()));
    }

    /// Starts the heartbeats, once all targets are there.
    pub fn beat(&mut self, mgs: MgsPeers) -> anyhow::Result<()> {
        let Some(reply) = &self.last else { return Ok(()) };
        let (fabric, hub, places) = (self.fabric.clone(), self.hub.clone(), self.places.clone());
        let (feed, clients) = (self.feed.clone(), self.clients.clone());
        if let Some(feed) = &feed {
            let places = places.clone();
            feed.also(move |trust| {
                places.iter().filter_map(|place| place.target()).for_each(|target| target.end_revoked(trust));
            });
        }
        self.heart = Some(Heart::start(Beat {
            mgs,
            node: Some(reply.node),
            targets: self.places.iter().map(|place| place.id()).collect(),
            known_version: reply.map.version,
            on_map: Box::new(move |map| {
                // First, since a target may take long over a map.
                feed.iter().for_each(|feed| feed.take(map));
                let clients: Vec<Arc<Fs>> = clients.lock().iter().filter_map(Weak::upgrade).collect();
                clients.iter().for_each(|fs| fs.set_map(map.clone()));
                tell(&fabric, &hub, &places, map);
            }),
        })?);
        Ok(())
    }

    /// Stops all targets: MDTs first, since their purge workers call OSTs. It tries all and returns the first error.
    pub fn stop(mut self) -> anyhow::Result<()> {
        // First, since the other server may stop too.
        self.places.iter().for_each(|place| place.expect_stop());
        if let Some(heart) = &mut self.heart {
            heart.stop();
        }
        let (mdts, osts): (Vec<_>, Vec<_>) = self.places.drain(..).partition(|place| place.is_mdt());
        let mut first = Ok(());
        for places in [mdts, osts] {
            // At once: each waits for its device, and a mirror for its other member.
            let stopped: Vec<_> = std::thread::scope(|scope| {
                let stops: Vec<_> = places.iter().map(|place| scope.spawn(|| place.stop())).collect();
                stops.into_iter().map(|stop| stop.join().expect("a panic ends the process")).collect()
            });
            for (place, stopped) in places.iter().zip(stopped) {
                let Err(fault) = stopped else { continue };
                let target = place.id();
                tracing::error!(%target, "did not stop cleanly, its next start will recover: {fault}");
                first = first.and(Err(anyhow::Error::from(fault).context(format!("stop target {target}"))));
            }
        }
        self.hub.remove(MGS);
        first
    }
}

fn tell(fabric: &Fabric, hub: &Hub, places: &[Arc<Place>], map: &ClusterMap) {
    fabric.set_map(map);
    // OSTs first: they take another key at once, while an MDT may end sessions for the map's nodemaps.
    let (mdts, osts): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.is_mdt());
    for place in osts.into_iter().chain(mdts) {
        let id = place.id();
        if map.target(id).is_none() {
            // Another management service, or an older map, does not know it. Only a removal leaves its id among those that were used.
            if id > map.ids_used.target {
                tracing::warn!(target = %id, version = map.version, "a cluster map does not have it; is the management service the right one?");
                continue;
            }
            // A client with an older map must not store bytes that no newer map finds.
            if hub.serves(id) {
                hub.remove(id);
                tracing::error!(target = %id, "it was removed from the cluster and is not served any more; stop this server, or take the target's device out of its configuration");
            }
            place.set_map(map);
            continue;
        }
        place.set_map(map);
    }
}

impl Target {
    pub fn join(&self, reply: &RegisterReply, fabric: Arc<Fabric>) -> Result<(), Fault> {
        match self {
            Target::Mdt(t) => t.join(reply, fabric),
            Target::Ost(t) => t.join(reply),
        }
    }
    pub fn service(&self) -> Arc<dyn Service> {
        match self {
            Target::Mdt(t) => t.clone(),
            Target::Ost(t) => t.clone(),
        }
    }
    fn end_revoked(&self, trust: &Trust) {
        let is_revoked = |serial| trust.is_revoked(serial);
        match self {
            Target::Mdt(t) => t.end_revoked(&is_revoked),
            Target::Ost(t) => t.end_revoked(&is_revoked),
        }
    }
    pub fn set_map(&self, map: &ClusterMap) -> Result<(), Fault> {
        match self {
            Target::Mdt(t) => t.set_map(map),
            // An OST needs no other target, only the nodemaps.
            Target::Ost(t) => {
                t.set_map(map);
                Ok(())
            }
        }
    }
    pub fn replica(&self) -> Arc<dyn Replica> {
        match self {
            Target::Mdt(t) => t.clone(),
            Target::Ost(t) => t.clone(),
        }
    }
    pub fn flush(&self) -> Result<(), Fault> {
        match self {
            Target::Mdt(t) => t.flush(),
            Target::Ost(t) => t.flush(),
        }
    }
    /// `clean`: with a checkpoint and the clean mark.
    pub fn stop(&self, clean: bool) -> Result<(), Fault> {
        match self {
            Target::Mdt(t) => t.stop(clean),
            Target::Ost(t) => t.stop(clean),
        }
    }
}

/// Ids and the file system's uuid come from the MGS; `join` fills them in.
fn format(role: Role, disk: Arc<dyn Disk>, fsname: &str) -> anyhow::Result<()> {
    let uuid = new_uuid()?;
    match role {
        Role::Mdt => {
            let spec = mds::FormatSpec::for_size(new_mdt(fsname, uuid), disk.size());
            mds::Mdt::format(disk, &spec, false, &mds::MetaRules, Time::from(SystemTime::now()))?;
        }
        Role::Ost => oss::Ost::format(&*disk, &oss::FormatSpec::new(fsname, uuid))?,
    }
    Ok(())
}

/// The label of an MDT before it registers.
pub fn new_mdt(fsname: &str, uuid: Uuid) -> Label {
    Label {
        kind: disk::Kind::Mdt,
        fs_name: fsname.to_owned(),
        fs_uuid: Uuid::default(),
        uuid,
        target: TargetId(0),
        index: u32::MAX,
        mirror: MirrorId(0),
        epoch: Epoch(0),
    }
}
