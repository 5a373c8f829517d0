//! The process of a router: its clusters and their maps, its control socket, and its end.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use net::nid::{Address, Nid};
use net::router::{Policy, Router, RouterSettings};
use net::routes::net_of;
use net::{Answer, Bell, Fabric, Hub, Server, Service};
use parking_lot::{Condvar, Mutex, RwLock};
use pki::Trust;
use types::{Code, Fault, FsId, Seq};
use wire::map::ClusterMap;
use wire::router::{RouterDrain, RouterStat};
use wire::{Empty, Header, ReplyHead, Request, Wire, encode_reply};

use crate::config;
use crate::exit::{Exit, Failure};
use crate::nets::Nets;
use crate::reach::MGS;
use crate::serve::register::MgsPeers;
use crate::serve::role::{keep_files_private, serve_until_stopped};
use crate::serve::{metrics, prepare_process};
use crate::tls::{self, Feed, Part, Watch};

/// The control socket in the router's directory.
pub const SOCKET: &str = "router.sock";
/// Time between two looks for a newer map.
const LOOK_EACH: Duration = Duration::from_secs(1);
/// A greeting waits this long for a map that may have the NID. Looks for unknown NIDs are at least this far apart.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(400);
/// Time between two samples of the history.
const SAMPLE_EACH: Duration = Duration::from_secs(1);
/// File systems in a row of the counters that no single one owns.
const SHARED: &str = "shared";

pub fn router(config: config::Router) -> anyhow::Result<Exit> {
    crate::logs::start_for_servers();
    prepare_process();
    keep_files_private();
    let (_sender, events) = crate::stop::listen()?;
    fs::create_dir_all(&config.dir).with_context(|| format!("make {}", config.dir.display()))?;
    let nets: Vec<String> = config.listen.iter().map(|nid| net_of(nid).to_owned()).collect();
    let routes = Nets::of(&nets, &config.routes).map_err(|e| anyhow::anyhow!(e))?;
    // 1. The clusters, with the maps of before.
    let mut clusters = Vec::new();
    for cluster in &config.cluster {
        clusters.push(Arc::new(Cluster::new(cluster, &config.dir, routes.clone())?));
    }
    let clusters: Arc<[Arc<Cluster>]> = clusters.into();
    for (cluster, config_of) in clusters.iter().zip(&config.cluster) {
        tls::refuse_open(&config.listen, config_of.tls.as_deref(), cluster.trust.as_ref())?;
    }
    let trusts: Vec<Arc<Trust>> = clusters.iter().filter_map(|c| c.trust.clone()).collect();
    // 2. Circuits.
    let router = Router::start(RouterSettings {
        listen: config.listen.clone(),
        trusts,
        allows_plain: clusters.iter().any(|cluster| cluster.trust.is_none()),
        circuits_max: (config.circuits_max as usize).min(circuits_of_files()),
        policy: Arc::new(Judge(clusters.clone())),
    });
    let router = Arc::new(router.map_err(|e| {
        let what = format!("listen on {}", config.listen.join(", "));
        Failure::failed(what, e, "give addresses of this machine, one per net, and free ports")
    })?);
    // 3. Its own upkeep.
    let mut watches = Vec::new();
    for cluster in clusters.iter() {
        let Some(trust) = &cluster.trust else { continue };
        let router = router.clone();
        let watch = Watch::start(trust.clone(), cluster.fabric.clone(), move || router.recheck())?;
        // The map of before is known already.
        watch.feed().lists(&cluster.known.read().crls);
        let is_first = cluster.feed.set(watch.feed()).is_ok();
        assert!(is_first, "a cluster has one set of certificates");
        watches.push(watch);
    }
    let keepers: Vec<Keeper> = clusters.iter().map(Keeper::start).collect::<Result<_, _>>()?;
    let sampler = Sampler::start(router.clone())?;
    let control = control(&config.dir, &router)?;
    let page = metrics::serve(config.metrics.as_deref(), metrics::OfRouter(router.clone()))?;
    tracing::info!(nids = ?router.nids(), clusters = clusters.len(), "router is ready");
    serve_until_stopped(&events);
    control.stop();
    drop((page, keepers, sampler, watches));
    router.stop();
    Ok(Exit::Done)
}

/// The circuits for which this process may open files: two sockets, and two pipes while bytes wait both ways.
fn circuits_of_files() -> usize {
    use rustix::process::{Resource, getrlimit};
    const OTHERS: u64 = 600;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let circuits = files.saturating_sub(OTHERS) / 6;
    usize::try_from(circuits).unwrap_or(usize::MAX).max(16)
}

/// A cluster whose hosts may pass.
struct Cluster {
    /// `None`: its hosts have no certificates.
    name: Option<String>,
    trust: Option<Arc<Trust>>,
    fabric: Arc<Fabric>,
    mgs: Vec<String>,
    /// Their addresses, with their nets.
    mgs_addresses: RwLock<HashSet<(SocketAddr, String)>>,
    /// Routers on the way to management services: a host may need them before it has a map.
    gateways: Vec<String>,
    /// Where its last map is kept.
    path: PathBuf,
    known: RwLock<Known>,
    /// Looks after its certificates.
    feed: OnceLock<Feed>,
    /// Rung for a look out of turn.
    bell: Bell,
    looks: Mutex<Looks>,
    looked: Condvar,
}

/// The NIDs of a map.
#[derive(Default)]
struct Known {
    version: u64,
    /// The file systems of the nodes, and none for routers.
    nids: HashMap<String, Vec<FsId>>,
    names: HashMap<FsId, String>,
    /// Revocation lists.
    crls: Vec<u8>,
}

#[derive(Default)]
struct Looks {
    count: u64,
    /// The last look that an unknown NID asked for.
    wanted_at: Option<Instant>,
    is_ending: bool,
}

impl Cluster {
    fn new(config: &config::RouterCluster, dir: &Path, nets: Nets) -> anyhow::Result<Cluster> {
        let trust = tls::trust(config.tls.as_deref(), Part::Server)?;
        if let Some(trust) = &trust
            && trust.identity().role != pki::Role::Router
        {
            let what = trust.identity().uri();
            let why = "it is no router's certificate, so hosts would refuse this router";
            let next = "make one with `stria cluster add-node HOST --role router`";
            return Err(Failure::unusable(what, why, next).into());
        }
        let name = trust.as_ref().map(|trust| trust.identity().cluster.to_string());
        let fabric = Fabric::with_trust(None, trust.clone());
        let gateways = nets.routes.iter().map(|route| route.gateway.clone()).collect();
        nets.apply(&fabric);
        let mgs = config.mgs.iter().map(|nid| config::normal_nid(nid)).collect::<Result<Vec<_>, _>>();
        let mgs = mgs.map_err(|e| anyhow::anyhow!(e))?;
        // Clusters without certificates are told apart by their management service. No two labels are alike as file names.
        let label =
            name.clone().map_or_else(|| format!("off {}", mgs.join(",")), |name| format!("tls {name}"));
        let plain =
            |c: char| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("%{:02x}", c as u32) };
        let label: String = label.chars().map(plain).collect();
        let cluster = Cluster {
            name,
            trust,
            fabric,
            mgs,
            mgs_addresses: RwLock::default(),
            gateways,
            path: dir.join(format!("map-{label}")),
            known: RwLock::default(),
            feed: OnceLock::new(),
            bell: Bell::default(),
            looks: Mutex::default(),
            looked: Condvar::new(),
        };
        match fs::read(&cluster.path).ok().map(|bytes| ClusterMap::from_bytes(&bytes)) {
            Some(Ok(map)) => cluster.take(&map),
            Some(Err(_)) => {
                tracing::warn!(path = %cluster.path.display(), "the map of before is not readable")
            }
            None => {}
        }
        Ok(cluster)
    }

    fn take(&self, map: &ClusterMap) {
        self.fabric.set_map(map);
        let mut known = Known { version: map.version, ..Known::default() };
        for node in &map.nodes {
            let mut of: Vec<FsId> = map.targets.iter().filter(|t| t.node == node.id).map(|t| t.fs).collect();
            of.sort();
            of.dedup();
            // A node whose targets have all left is no destination any more.
            if of.is_empty() {
                continue;
            }
            for nid in &node.nids {
                known.nids.entry(nid.clone()).or_default().extend(&of);
            }
        }
        for route in &map.routes {
            known.nids.entry(route.gateway.clone()).or_default();
        }
        known.names = map.file_systems.iter().map(|fs| (fs.id, fs.name.clone())).collect();
        known.crls = map.crls.to_vec();
        *self.known.write() = known;
        self.feed.get().iter().for_each(|feed| feed.take(map));
    }

    /// Asks for a newer map, and keeps it.
    fn look(&self) {
        let version = self.known.read().version;
        let mgs = MgsPeers::at(self.fabric.clone(), self.mgs.clone());
        match mgs.map(version, false) {
            Ok(Some(map)) => {
                self.take(&map);
                let fresh = self.path.with_extension("new");
                let kept = fs::File::create(&fresh)
                    .and_then(|mut file| file.write_all(&map.to_bytes()).and_then(|()| file.sync_all()))
                    .and_then(|()| fs::rename(&fresh, &self.path));
                if let Err(e) = kept {
                    tracing::warn!(path = %self.path.display(), "the map is not kept for the next start: {e}");
                }
            }
            Ok(None) => {}
            Err(e) => tracing::debug!("the management service does not answer: {e:#}"),
        }
        self.looks.lock().count += 1;
        self.looked.notify_all();
    }

    /// Waits for a map that may be newer, unless one was asked for just before.
    fn look_again(&self) {
        let mut looks = self.looks.lock();
        let now = Instant::now();
        if looks.wanted_at.is_some_and(|at| now.saturating_duration_since(at) < LOOK_WAIT_MAX) {
            return;
        }
        looks.wanted_at = Some(now);
        let count = looks.count;
        self.bell.ring();
        while looks.count == count && !looks.is_ending {
            if self.looked.wait_until(&mut looks, now + LOOK_WAIT_MAX).timed_out() {
                return;
            }
        }
    }

    /// A dialler may name a management service by its address where this configuration has its host's name. The dialler's own text is never
    /// looked up: it could stand for any host.
    fn is_mgs(&self, nid: &str) -> bool {
        if self.mgs.iter().any(|known| known == nid) {
            return true;
        }
        let literal = match Nid::parse(nid) {
            Ok(Nid { address: Address::Tcp(text), .. }) => text.parse::<SocketAddr>().ok(),
            _ => None,
        };
        literal.is_some_and(|address| self.mgs_addresses.read().contains(&(address, net_of(nid).to_owned())))
    }

    /// The addresses of the management services. It may wait for the resolver.
    fn resolve(&self) {
        let mut addresses = HashSet::new();
        for nid in &self.mgs {
            if let Ok(Nid { address: Address::Tcp(text), .. }) = Nid::parse(nid)
                && let Ok(all) = text.to_socket_addrs()
            {
                addresses.extend(all.map(|address| (address, net_of(nid).to_owned())));
            }
        }
        *self.mgs_addresses.write() = addresses;
    }

    fn find(&self, nid: &str, fs: FsId) -> Option<String> {
        let known = self.known.read();
        let of = match known.nids.get(nid) {
            Some(of) => of,
            None if self.gateways.iter().any(|gateway| gateway == nid) => return Some(SHARED.into()),
            None if self.is_mgs(nid) => return Some("mgs".into()),
            None => return None,
        };
        let named = match of[..] {
            _ if of.contains(&fs) => Some(fs),
            [only] => Some(only),
            _ => None,
        };
        Some(named.and_then(|fs| known.names.get(&fs).cloned()).unwrap_or_else(|| SHARED.into()))
    }
}

/// net-G1: the NIDs of a cluster's map, and of its management service.
struct Judge(Arc<[Arc<Cluster>]>);

impl Policy for Judge {
    fn judge(&self, cluster: Option<&str>, nid: &str, fs: FsId) -> Result<String, String> {
        let of = || self.0.iter().filter(|c| c.name.as_deref() == cluster);
        if let Some(found) = of().find_map(|c| c.find(nid, fs)) {
            return Ok(found);
        }
        // A server that has just registered is in a newer map.
        of().for_each(|c| c.look_again());
        of().find_map(|c| c.find(nid, fs)).ok_or_else(|| match cluster {
            Some(name) => format!("it is no NID of cluster {name}"),
            None => "it is no NID of a cluster without certificates".into(),
        })
    }
}

/// Keeps a cluster's map up to date.
struct Keeper {
    cluster: Arc<Cluster>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(cluster: &Arc<Cluster>) -> anyhow::Result<Keeper> {
        let own = cluster.clone();
        let keep = move || {
            while !own.looks.lock().is_ending {
                own.resolve();
                own.look();
                own.bell.wait(LOOK_EACH);
            }
        };
        let thread = std::thread::Builder::new().name("map".into()).spawn(keep)?;
        Ok(Keeper { cluster: cluster.clone(), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.cluster.looks.lock().is_ending = true;
        self.cluster.fabric.abort();
        self.cluster.bell.ring();
        self.cluster.looked.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps a cluster's map had panicked; report the lines above");
        }
    }
}

/// Samples the counters each second.
struct Sampler {
    end: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    fn start(router: Arc<Router>) -> anyhow::Result<Sampler> {
        let end = Arc::new(Bell::default());
        let bell = end.clone();
        let sample = move || {
            while !bell.wait(SAMPLE_EACH) {
                router.sample();
            }
        };
        let thread = std::thread::Builder::new().name("sample".into()).spawn(sample)?;
        Ok(Sampler { end, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that samples the counters had panicked; report the lines above");
        }
    }
}

/// Serves `stria router stat` and `drain`. Only the user of the router can reach the socket in its directory.
struct Control(Arc<Router>);

fn control(dir: &Path, router: &Arc<Router>) -> anyhow::Result<Server> {
    let hub = Hub::new();
    hub.add(MGS, Arc::new(Control(router.clone())));
    let path = dir.join(SOCKET);
    Server::listen(&format!("unix:{}", path.display()), hub)
        .with_context(|| format!("listen on {}; another router may run there", path.display()))
}

impl Service for Control {
    fn serve(&self, head: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        let done = ReplyHead::done(Seq(0), Seq(0));
        let reply = match head.call {
            RouterStat::CALL => RouterStat::from_bytes(body).ok().map(|request| {
                let mut stat = self.0.stat();
                let skip = stat.history.len().saturating_sub(request.history as usize);
                stat.history.drain(..skip);
                encode_reply(&done, Some(&stat))
            }),
            RouterDrain::CALL => RouterDrain::from_bytes(body).ok().map(|request| {
                tracing::info!(is_on = request.is_on, within_ms = request.within_ms, "drain");
                self.0.drain(request.is_on.then(|| Duration::from_millis(request.within_ms)));
                encode_reply(&done, Some(&Empty {}))
            }),
            _ => None,
        };
        answer.body = reply.unwrap_or_else(|| {
            let fault = Fault::new(Code::Unsupported, "a router does not know this request");
            encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>)
        });
    }
}
