//! One role per process: `stria mgs|mds|oss|mount`, over TCP.

use std::cell::Cell;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use net::nid::{Address, Nid};
use net::{Fabric, Limits, Server};
use pki::Trust;
use wire::map::ClusterMap;

use crate::config;
use crate::detach::Herald;
use crate::exit::{Exit, Failure};
use crate::nets::{Listen, Nets};
use crate::options::{DEAD_AFTER, Options};
use crate::reach::{self, Source};
use crate::serve::device::{Blank, DataWay};
use crate::serve::heart::{Beat, Heart};
use crate::serve::mounted::{
    Client, SETTLE_FORCED_MAX, SETTLE_MAX, Wish, check_point, claims_of_this_process,
};
use crate::serve::register::{MgsPeers, Wait, check_name, gave_up, wait_for};
use crate::serve::servers::{Domain, Node, Role, Servers, Wanted};
use crate::serve::{device, host_name, metrics, prepare_process};
use crate::stop::{self, Event, Manner};
use crate::tls::{self, Feed, Part, Watch};
use types::Size;

/// Time between two looks for a signal while connecting.
const SIGNAL_LOOK_EACH: Duration = Duration::from_millis(50);
/// Time without a mount after which the user is told the reason.
const SILENT_MAX: Duration = Duration::from_secs(4);
/// Longest time for an aborted connect to end.
const ABORTED_CONNECT_MAX: Duration = Duration::from_secs(2);

pub fn mds(config: config::Mds, blank: Blank) -> anyhow::Result<Exit> {
    // A file system has one MDT for now.
    let wanted = if config.second { Wanted::second(Some(0)) } else { Wanted::first(None) };
    let devices = [(config.device, wanted)];
    let domain = Domain { rack: config.rack, apart: config.failure_domain.into() };
    let mdt = mds::Settings {
        cache_bytes: crate::memory::mdt_cache(config.mdt_cache),
        ..crate::claims::settings(config.groups, config.root_squash)
    };
    let at = Place {
        mgs: config.mgs,
        fsname: &config.fsname,
        listen: &config.listen,
        nids: config.nids,
        domain,
        mdt,
        store: store::Settings::default(),
        resync_rate: 0,
        logs: &[],
        tls: config.tls,
        metrics: config.metrics,
        nets: Nets::of(&config.nets, &config.routes).map_err(|e| anyhow::anyhow!(e))?,
    };
    targets(Role::Mdt, &devices, config.size, blank, DataWay::CACHED, at)
}

pub fn oss(config: config::Oss, blank: Blank) -> anyhow::Result<Exit> {
    let mdt = mds::Settings::default();
    let logs = &config.log_devices;
    let domain = Domain { rack: config.rack, apart: config.failure_domain.into() };
    let at = Place {
        mgs: config.mgs,
        fsname: &config.fsname,
        listen: &config.listen,
        nids: config.nids,
        domain,
        mdt,
        store: store::Settings {
            patch_bytes_max: config.small_write_max.0 as u32,
            overlay_bytes_max: config.small_write_memory.0,
            index_bytes_max: config.index_memory.0,
            write_unit: config.write_unit.0 as u32,
            ..store::Settings::default()
        },
        resync_rate: u64::from(config.resync_rate) << 20,
        logs,
        tls: config.tls,
        metrics: config.metrics,
        nets: Nets::of(&config.nets, &config.routes).map_err(|e| anyhow::anyhow!(e))?,
    };
    let patience = Duration::from_secs(config.io_timeout_sec.into());
    let way = DataWay { io: config.io.into(), patience };
    let firsts = config.devices.into_iter().map(|path| (path, Wanted::first(None)));
    let seconds = config.second_devices.into_iter().map(|path| (path, Wanted::second(None)));
    let devices: Vec<_> = firsts.chain(seconds).collect();
    targets(Role::Ost, &devices, config.size, blank, way, at)
}

/// The address of a server, its file system and its settings.
struct Place<'a> {
    mgs: Vec<String>,
    fsname: &'a str,
    listen: &'a Listen,
    nids: Vec<String>,
    domain: Domain,
    mdt: mds::Settings,
    store: store::Settings,
    /// Bytes per second.
    resync_rate: u64,
    /// Devices that hold only logs of OSTs.
    logs: &'a [PathBuf],
    tls: Option<String>,
    metrics: Option<String>,
    nets: Nets,
}

fn targets(
    role: Role,
    devices: &[(PathBuf, Wanted)],
    size: Option<Size>,
    blank: Blank,
    way: DataWay,
    at: Place,
) -> anyhow::Result<Exit> {
    crate::logs::start_for_servers();
    prepare_process();
    keep_files_private();
    let (_sender, events) = stop::listen()?;
    let trust = tls::trust(at.tls.as_deref(), Part::Server)?;
    tls::refuse_open(&at.listen.0, at.tls.as_deref(), trust.as_ref())?;
    let mut servers = Servers::with_trust(trust.clone());
    servers.mdt = at.mdt;
    servers.ost.store = at.store;
    servers.ost.resync_rate = at.resync_rate;
    servers.open_logs(at.logs, blank)?;
    // 1. Listen before registering: the kernel may choose the port, and the MGS must learn it.
    let (server, watch) = listen(at.listen, &servers, trust)?;
    servers.feed = watch.as_ref().map(Watch::feed);
    let mgs_nids = at
        .mgs
        .iter()
        .map(|nid| config::normal_nid(nid))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| anyhow::anyhow!(e))?;
    let nids = match at.nids.is_empty() {
        true => server.nids().iter().map(|nid| reachable(nid, &mgs_nids)).collect::<Result<_, _>>()?,
        false => at.nids,
    };
    at.nets.or_environment()?.with_nids(&nids).apply(&servers.fabric);
    let mgs = MgsPeers::at(servers.fabric.clone(), mgs_nids);
    let node =
        Node { fsname: at.fsname, mgs, name: host_name(), nids, domain: at.domain, events: Some(&events) };
    // 2. Each target: open and recover, register, join, serve.
    let started = start_targets(&mut servers, role, devices, size, blank, way, &node);
    let paged = started.and_then(|()| metrics::serve(at.metrics.as_deref(), servers.source(role.word())));
    if paged.is_ok() {
        tracing::info!(nids = ?node.nids, "ready");
        serve_until_stopped(&events);
    }
    // 3. In any case: each target takes no new requests, then gets its clean mark. Members of mirrors hear the other one until then.
    let stopped = servers.stop();
    server.stop();
    drop(paged?);
    stopped?;
    Ok(Exit::Done)
}

fn start_targets(
    servers: &mut Servers,
    role: Role,
    devices: &[(PathBuf, Wanted)],
    size: Option<Size>,
    blank: Blank,
    way: DataWay,
    node: &Node,
) -> anyhow::Result<()> {
    // A wrong name is found before a target is made.
    let mut new = devices.iter().filter(|(path, _)| blank == Blank::Format && device::is_new(path));
    if let Some((_, wanted)) = new.next() {
        check_name(role, wanted.second, node)?;
    }
    let targets: Vec<_> = devices.iter().map(|(path, wanted)| (role, path.clone(), *wanted)).collect();
    let are_all = servers.add_each(&targets, blank, node, &|path| device::open(path, size, blank, way))?;
    if are_all {
        servers.check_logs_used()?;
    }
    servers.beat(node.mgs.clone())
}

/// Files of servers hold users' data and the file system's secret: only their owner may read them.
pub fn keep_files_private() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// A server, and the thread that looks after its certificates.
pub fn listen(
    listen: &Listen,
    servers: &Servers,
    trust: Option<Arc<Trust>>,
) -> anyhow::Result<(Arc<Server>, Option<Watch>)> {
    let server = Server::listen_at(&listen.0, servers.hub.clone(), Limits::default(), trust.clone());
    let server = Arc::new(server.map_err(|e| {
        Failure::failed(
            format!("listen on {}", listen.0.join(", ")),
            e,
            "give an address of this machine and a free port",
        )
    })?);
    let watch = match trust {
        Some(trust) => {
            tracing::info!("connections over TCP use TLS, as {}", trust.identity().uri());
            let accepted = server.clone();
            Some(Watch::start(trust, servers.fabric.clone(), move || accepted.recheck())?)
        }
        None => None,
    };
    Ok((server, watch))
}

/// The address of a server without `nids`. No client can reach a wildcard address, so it is replaced by the address from which this host
/// reaches the MGS.
fn reachable(nid: &str, mgs_nids: &[String]) -> anyhow::Result<String> {
    let (address, net) = nid.rsplit_once('@').unwrap_or((nid, "tcp0"));
    let Ok(bound) = address.parse::<SocketAddr>() else { return Ok(nid.to_owned()) };
    if bound.ip().is_loopback() && is_elsewhere(mgs_nids) {
        let why = "it listens on loopback, and the management service is on a network: no host there could reach it";
        let next = "give this host's address in `listen`, such as 10.0.0.7:7011; with a certificate, or `tls = \"off\"` on a network that you trust (SECURITY.md)";
        return Err(Failure::unusable(nid, why, next).into());
    }
    if !bound.ip().is_unspecified() {
        return Ok(nid.to_owned());
    }
    let mgs =
        mgs_nids.iter().filter_map(|n| n.rsplit_once('@')).map(|(address, _)| address.to_owned()).next();
    let local = mgs.and_then(|mgs| {
        // Connecting a datagram socket sends no packet; it only consults the routing table.
        let probe = std::net::UdpSocket::bind(if bound.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }).ok()?;
        probe.connect(mgs).ok()?;
        probe.local_addr().ok()
    });
    let why = "the address that others reach this server by is not known";
    let local = local.ok_or_else(|| Failure::unusable(nid, why, "give `nids`, or an address in `listen`"))?;
    Ok(format!("{}@{net}", SocketAddr::new(local.ip(), bound.port())))
}

/// True if the MGS has an address, and none of its addresses is this host's loopback. An unresolved name proves nothing.
fn is_elsewhere(mgs_nids: &[String]) -> bool {
    let resolve = |nid: &String| match Nid::parse(nid).ok()?.address {
        Address::Tcp(address) => Some(address.to_socket_addrs().ok()?.map(|a| a.ip()).collect::<Vec<_>>()),
        Address::Unix(_) => None,
    };
    let resolved: Option<Vec<_>> = mgs_nids.iter().map(resolve).collect();
    resolved.is_some_and(|ips| !ips.iter().flatten().any(|ip| ip.is_loopback()))
}

/// A server is never in use like a mount: any signal stops it cleanly, and a second one at once.
pub fn serve_until_stopped(events: &Receiver<Event>) {
    // The channel cannot close: the thread that listens for signals lives as long as the process.
    while let Ok(event) = events.recv() {
        if let Event::Stop(_) = event {
            tracing::info!("stopping");
            stop::begin();
            return;
        }
    }
}

/// The options of a mount process.
pub struct MountWish {
    pub source: Source,
    pub point: PathBuf,
    pub options: Options,
    /// The keys `tls` and `metrics` of its configuration.
    pub tls: Option<String>,
    pub metrics: Option<String>,
    /// Where the kernel's requests are counted.
    pub calls: Arc<fuse::Calls>,
    /// Where a wait is reported.
    pub herald: Herald,
}

pub fn mount(wish: MountWish, on_ready: impl FnOnce()) -> anyhow::Result<Exit> {
    prepare_process();
    let (sender, events) = stop::listen()?;
    check_point(&wish.point)?;
    let what = format!("mount {}", wish.point.display());
    let trust = tls::trust(wish.tls.as_deref(), Part::Mount)?;
    let fabric = Fabric::with_trust(None, trust.clone());
    wish.options.nets.clone().or_environment()?.apply(&fabric);
    let watch = match trust {
        Some(trust) => Some(Watch::start(trust, fabric.clone(), || {})?),
        None => None,
    };
    let page = metrics::serve(
        wish.metrics.as_deref(),
        metrics::OfMount { fabric: fabric.clone(), calls: wish.calls.clone() },
    )?;
    let (client, mut heart) =
        connect_unless_stopped(wish, fabric, watch.as_ref().map(Watch::feed), (sender, &events))?;
    on_ready();
    let manner = serve_mount(&client, &events);
    drop(page);
    heart.stop();
    let limit = if manner == Manner::Forced { SETTLE_FORCED_MAX } else { SETTLE_MAX };
    match client.finish(limit) {
        true => Ok(Exit::Done),
        false => {
            let why =
                "its process was silent past its lease, so its guard ended it and dropped cached content";
            Err(Failure::failed(what, why, "mount it again").into())
        }
    }
}

/// Connecting may wait for servers for minutes. So it runs on a thread of its own, while this thread listens for signals.
fn connect_unless_stopped(
    wish: MountWish,
    fabric: Arc<Fabric>,
    feed: Option<Feed>,
    (sender, events): (Sender<Event>, &Receiver<Event>),
) -> anyhow::Result<(Client, Heart)> {
    let (connecting, what) = (fabric.clone(), format!("mount {}", wish.source));
    let (done, result) = mpsc::channel();
    let (herald, begin, mut has_said) = (wish.herald, Instant::now(), false);
    let awaited = Awaited::new(format!("the management service at {}", wish.source.nids.join(", ")));
    let retry = wish.options.retry;
    // One try takes this long if a server accepts the connection but does not answer.
    let limit = retry.max(reach::ANSWER_WAIT_MAX);
    let tells = awaited.clone();
    std::thread::Builder::new().name("connect".into()).spawn(move || {
        let client = connect(&wish, (connecting, feed), sender, &tells);
        // After a signal there is no receiver; dropping a mount that was just made unmounts it.
        let _ = done.send(client);
    })?;
    let abort = || -> anyhow::Result<()> {
        fabric.abort();
        if let Ok(Ok((client, _))) = result.recv_timeout(ABORTED_CONNECT_MAX) {
            client.unmount(Manner::Forced)?;
        }
        Ok(())
    };
    loop {
        match result.recv_timeout(SIGNAL_LOOK_EACH) {
            Ok(client) => return client,
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("{what}: the connecting thread panicked"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // One try may take a whole operation time-out if a server accepts the connection but does not answer.
        if !has_said && begin.elapsed() > SILENT_MAX {
            has_said = true;
            let (whom, max) = (awaited.get(), retry.as_secs());
            let line =
                format!("{what}: waiting for {whom}, {max} s at most; `stria status --mgs` shows what is up");
            tracing::info!("{line}");
            herald.say_to_parent(&line);
        }
        if begin.elapsed() > limit + ABORTED_CONNECT_MAX {
            abort()?;
            let why = format!("{} has not answered", awaited.get());
            return Err(gave_up(&what, begin.elapsed(), &why).into());
        }
        if let Ok(Event::Stop(_)) = events.try_recv() {
            abort()?;
            return Err(Failure::failed(what, "asked to stop before it was mounted", "start it again").into());
        }
    }
}

/// The server that a mount waits for: set by the connecting thread, reported by the thread that listens for signals.
#[derive(Clone)]
struct Awaited(Arc<Mutex<String>>);

impl Awaited {
    fn new(whom: String) -> Awaited {
        Awaited(Arc::new(Mutex::new(whom)))
    }
    fn set(&self, whom: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = whom;
    }
    fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Mounts within a process that serves something else, too. Waits for the servers.
pub fn connect_here(
    wish: &MountWish,
    fabric: Arc<Fabric>,
    sender: Sender<Event>,
) -> anyhow::Result<(Client, Heart)> {
    connect(wish, (fabric, None), sender, &Awaited::new("the file system".into()))
}

fn connect(
    wish: &MountWish,
    (fabric, feed): (Arc<Fabric>, Option<Feed>),
    sender: Sender<Event>,
    awaited: &Awaited,
) -> anyhow::Result<(Client, Heart)> {
    fabric.set_dead_after(wish.options.dead_after.unwrap_or(DEAD_AFTER));
    // 1. A map with the file system, its MDT and at least one OST.
    let what = format!("mount {}", wish.source);
    let mgs = MgsPeers::at(fabric.clone(), wish.source.nids.clone());
    let say = |line: &str| wish.herald.say_to_parent(line);
    let begin = Instant::now();
    let wait = Wait { what: &what, max: wish.options.retry, events: None, say: &say };
    let map = wait_for(&wait, || usable_map(&mgs, &wish.source.fsname))?;
    awaited.set(mdt_of(&map, &wish.source.fsname));
    fabric.set_map(&map);
    let fs =
        map.fs_named(&wish.source.fsname).map(|f| f.id).context("the file system is in the usable map")?;
    fabric.set_fs(fs);
    // 2. From here on newer maps are followed: a server that starts meanwhile has another address than in this map.
    let mounted: Arc<OnceLock<Arc<client::Fs>>> = Arc::default();
    let (following, known_version) = (mounted.clone(), map.version);
    let to_follow = fabric.clone();
    feed.iter().for_each(|feed| feed.take(&map));
    let of_map = feed.clone();
    let on_map = Box::new(move |map: &ClusterMap| {
        of_map.iter().for_each(|feed| feed.take(map));
        to_follow.set_map(map);
        following.get().into_iter().for_each(|fs| fs.set_map(map.clone()));
    });
    let heart = Heart::start(Beat { mgs: mgs.clone(), node: None, targets: vec![], known_version, on_map })?;
    // 3. Connect and mount; targets may still be starting.
    let wait = Wait { max: wait.max.saturating_sub(begin.elapsed()), ..wait };
    let client = wait_for(&wait, || {
        // Fetched for each try: connecting with an old map would bring back old addresses.
        let map = usable_map(&mgs, &wish.source.fsname)?;
        let how = Wish {
            fabric: fabric.clone(),
            map: &map,
            fs,
            point: &wish.point,
            source: wish.source.to_string(),
            options: &wish.options,
            client_name: format!("{} pid {} {}", host_name(), std::process::id(), wish.point.display()),
            claims: claims_of_this_process(),
            calls: wish.calls.clone(),
        };
        Client::start(how, sender.clone()).map_err(|e| match e.is::<Failure>() {
            true => e,
            false => e.context(format!("{} does not serve", awaited.get())),
        })
    })?;
    // From here on the client gets newer maps; one that came since the start is fetched.
    client.fs().on_map_wanted(Box::new(heart.want_map()));
    if mounted.set(client.fs().clone()).is_ok()
        && let Ok(newest) = usable_map(&mgs, &wish.source.fsname)
    {
        client.fs().set_map(newest);
    }
    if let Some(feed) = feed {
        let (fs, known) = (Arc::downgrade(client.fs()), Cell::new(None));
        feed.also(move |trust| {
            let now = Some(trust.identity().serial);
            if known.replace(now) != now {
                fs.upgrade().iter().for_each(|fs| fs.tell_servers());
            }
        });
    }
    tracing::info!(mount = %wish.point.display(), source = %wish.source, "mounted");
    Ok((client, heart))
}

/// The name and addresses of the MDT, for a message.
fn mdt_of(map: &ClusterMap, fsname: &str) -> String {
    let fs = map.fs_named(fsname).map(|f| f.id);
    let primary = fs.and_then(|fs| map.mdt_of(fs, types::Fid::ROOT)).map(|mirror| mirror.primary);
    let mdt = primary.and_then(|target| map.target(target));
    let nids = mdt.and_then(|t| map.node(t.node)).map_or(String::new(), |n| n.nids.join(", "));
    format!("{fsname}-MDT{:04x} at {nids}", mdt.map_or(0, |t| t.index))
}

/// The newest map, once it has the file system with an MDT and an OST. If the MGS knows only other file systems, the name is probably
/// wrong: that is an error at once. If it knows none, it has just been made, and the caller waits.
fn usable_map(mgs: &MgsPeers, fsname: &str) -> anyhow::Result<ClusterMap> {
    let whom = || format!("the management service at {}", mgs.describe());
    let answer = mgs.map(0, false).with_context(|| format!("{} does not answer", whom()))?;
    let map = answer.with_context(|| format!("{} sent no map", whom()))?;
    let Some(fs) = map.fs_named(fsname).map(|f| f.id) else {
        anyhow::ensure!(!map.file_systems.is_empty(), "{} knows no file system yet", whom());
        return Err(reach::refuse_name(&map, fsname, &whom()).into());
    };
    let has = |is_mdt: bool| map.targets.iter().any(|t| t.fs == fs && t.is_mdt == is_mdt);
    anyhow::ensure!(has(true), "file system '{fsname}' has no MDT yet");
    anyhow::ensure!(has(false), "file system '{fsname}' has no OST yet");
    Ok(map)
}

/// Waits until the mount is gone; returns how it was asked to go.
fn serve_mount(client: &Client, events: &Receiver<Event>) -> Manner {
    while let Ok(event) = events.recv() {
        match event {
            Event::Unmounted => return Manner::Polite,
            Event::Stop(manner) => {
                if manner == Manner::Forced {
                    stop::begin_forced(stop::FORCED_MOUNT_STOP_MAX);
                }
                match client.unmount(manner) {
                    Ok(()) => return manner,
                    Err(e) => {
                        let users = crate::mounts::named(&client.point(), std::process::id());
                        tracing::error!("still mounted: {e}{users}; a second signal unmounts all the same")
                    }
                }
            }
        }
    }
    Manner::Polite
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_nobody_could_reach_is_told_so_at_start() {
        let mgs = |address: &str| vec![format!("{address}:7010@tcp0")];
        let same = |nid: &str, mgs: &[String]| assert_eq!(reachable(nid, mgs).unwrap(), nid);
        same("127.0.0.1:7011@tcp0", &mgs("127.0.0.1"));
        same("127.0.0.1:7011@tcp0", &mgs("localhost"));
        same("192.0.2.7:7011@tcp0", &mgs("192.0.2.5"));
        same("unix:/d/s.sock@local0", &mgs("192.0.2.5"));
        let refused = reachable("127.0.0.1:7011@tcp0", &mgs("192.0.2.5")).unwrap_err().to_string();
        assert!(refused.contains("loopback") && refused.contains("`listen`"), "{refused}");
        assert_eq!(reachable("0.0.0.0:7011@tcp0", &mgs("127.0.0.1")).unwrap(), "127.0.0.1:7011@tcp0");
    }
}
