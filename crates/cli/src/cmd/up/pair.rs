//! `stria up --pair`: two server processes and a mirrored file system on one machine, for trying mirrors out.
//!
//! This process has the management service and the mount. Its children are the servers: each has one member of every mirror, and is the
//! first one of every second OST. One that died is started again after a moment, so that its return is seen as well.
//!
//! With `--metrics` each process has a page. The servers' ports follow this process's, so a scraper finds them after restarts too.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Context;
use disk::{Disk, FileDisk};
use mirror::on_map::members_of;
use net::{Fabric, Server};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use serde::Serialize;

use super::{COMPANY_LOOK_EACH, Up, listen_on_socket, serve_until_stopped, started};
use crate::cluster::Cluster;
use crate::detach::Herald;
use crate::exit::{Exit, Failure};
use crate::logs;
use crate::reach::Source;
use crate::rundir::{Lock, RunDir};
use crate::serve::device::{self, Blank};
use crate::serve::heart::Heart;
use crate::serve::mounted::{Client, SETTLE_LOCAL_MAX, SETTLE_MAX};
use crate::serve::register::{MgsPeers, Wait, wait_for};
use crate::serve::servers::{Domain, Node, Role, Servers, Wanted};
use crate::serve::{host_name, metrics, prepare_process, role};
use crate::stop::{self, Event, Manner};

/// The server processes.
pub const SERVERS: u32 = 2;
/// A server that died is started again after this time: long enough to see the file system go on without it.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Longest clean stop of a server. A checkpoint of a full log takes seconds.
const STOP_MAX: Duration = Duration::from_secs(60);
const LOOK_EACH: Duration = Duration::from_millis(20);
/// Its parent stops both servers, so a follower waits for a primary that has much to flush.
const COMPANY: Duration = Duration::from_secs(5);

/// The server processes of a pair, as their parent sees them.
pub struct Pair<'a> {
    up: &'a Up,
    pages: Option<Pages>,
    children: Vec<Place>,
}

/// A server process.
#[derive(Debug, Serialize)]
pub struct Process {
    name: char,
    pid: u32,
    log: String,
    /// Its page of metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
}

/// The state of a start when its servers begin.
pub struct Shown {
    pub cluster: Cluster,
    pub mgs: Arc<mgs::Mgs>,
    pub is_new: bool,
    pub notes: Vec<String>,
    pub begin: Instant,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "server {}   pid {}, log {}", self.name, self.pid, self.log)?;
        self.metrics.iter().try_for_each(|address| write!(f, ", metrics {address}"))
    }
}

/// The addresses of the servers' pages of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages(SocketAddr);

impl Pages {
    /// By the address of this process's page. Refused where the ports that follow cannot be listened on.
    fn beside(first: &str) -> anyhow::Result<Pages> {
        let what = || format!("--metrics {first}");
        let next = "give an address of this machine and a port that is followed by two free ones, such as 127.0.0.1:9710";
        let refuse = |why: String| Failure::unusable(what(), why, next);
        let found = first.to_socket_addrs().map_err(|e| refuse(e.to_string()))?.next();
        let address = found.ok_or_else(|| refuse("it is no address".into()))?;
        if address.port() == 0 || address.port() > u16::MAX - SERVERS as u16 {
            return Err(refuse("the servers of a pair have the next two ports".into()).into());
        }
        let pages = Pages(address);
        for number in 0..SERVERS {
            let of_server = pages.of(number);
            TcpListener::bind(of_server).map_err(|e| refuse(format!("the next port {of_server}: {e}")))?;
        }
        Ok(pages)
    }

    fn of(&self, number: u32) -> SocketAddr {
        SocketAddr::new(self.0.ip(), self.0.port() + 1 + number as u16)
    }
}

struct Place {
    number: u32,
    child: Option<Child>,
    died: Instant,
}

impl<'a> Pair<'a> {
    /// Starts both servers.
    pub fn start(up: &'a Up, pages: Option<Pages>) -> anyhow::Result<Pair<'a>> {
        let mut pair = Pair { up, pages, children: vec![] };
        for number in 0..SERVERS {
            let child = Some(pair.spawn(number)?);
            pair.children.push(Place { number, child, died: Instant::now() });
        }
        Ok(pair)
    }

    fn spawn(&self, number: u32) -> anyhow::Result<Child> {
        let program = std::env::current_exe().context("find this program")?;
        let run = RunDir::of(&self.up.dir);
        let path = run.server_log(number);
        let log = std::fs::File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| path.display().to_string())?;
        let mut command = Command::new(&program);
        command.args(["up", "--foreground", "--server", &number.to_string(), "--dir"]).arg(&self.up.dir);
        if let Some(cache) = self.up.mdt_cache {
            command.args(["--mdt-cache", &cache.to_string()]);
        }
        if let Some(pages) = &self.pages {
            command.args(["--metrics", &pages.of(number).to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().with_context(|| format!("start {}", program.display()))?;
        tracing::info!(server = number, pid = child.id(), log = %path.display(), "a server of the pair is starting");
        Ok(child)
    }

    /// The server processes, for people and tools.
    pub fn shown(&self) -> Vec<Process> {
        let run = RunDir::of(&self.up.dir);
        let show = |place: &Place| Process {
            name: letter(place.number),
            pid: place.child.as_ref().map_or(0, Child::id),
            log: run.server_log(place.number).display().to_string(),
            metrics: self.pages.map(|pages| format!("http://{}/metrics", pages.of(place.number))),
        };
        self.children.iter().map(show).collect()
    }

    /// Waits until every mirror is known; those of a new file system also have two members in sync. A server of a new one that ends before that is
    /// an error.
    pub fn wait_ready(
        &mut self,
        cluster: &Cluster,
        mgs: &mgs::Mgs,
        is_new: bool,
        events: &Receiver<Event>,
    ) -> anyhow::Result<()> {
        let wanted = (cluster.mdts + cluster.osts) as usize;
        let wait = Wait::silent("wait for both servers", Some(events));
        wait_for(&wait, || {
            self.look(!is_new)?;
            let map = mgs.map();
            let whole = map
                .mirrors
                .iter()
                .filter(|mirror| !is_new || members_of(mirror).is_some_and(|m| m.is_pair()))
                .count();
            match whole == wanted {
                true => Ok(()),
                false => {
                    let why = format!("{whole} of {wanted} mirrors have both members in sync");
                    Err(types::Fault::new(types::Code::NotReady, why).into())
                }
            }
        })
    }

    /// Looks for servers that have ended, and starts them again.
    pub fn look(&mut self, may_die: bool) -> anyhow::Result<()> {
        for at in 0..self.children.len() {
            let place = &mut self.children[at];
            if let Some(child) = &mut place.child
                && let Some(status) = child.try_wait()?
            {
                let log = RunDir::of(&self.up.dir).server_log(place.number);
                if !may_die {
                    let what = format!("server {} of the pair", letter(place.number));
                    return Err(Failure::failed(what, status, format!("read {}", log.display())).into());
                }
                tracing::warn!(server = %letter(place.number), %status, log = %log.display(), "a server of the pair has ended; the other one goes on, and this one is started again in {AGAIN_AFTER:?}");
                (place.child, place.died) = (None, Instant::now());
            }
            if self.children[at].child.is_none() && self.children[at].died.elapsed() >= AGAIN_AFTER {
                let child = self.spawn(self.children[at].number)?;
                self.children[at].child = Some(child);
            }
        }
        Ok(())
    }

    /// Both servers run.
    fn is_whole(&mut self) -> bool {
        self.children
            .iter_mut()
            .all(|place| place.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))))
    }

    /// Stops both servers cleanly.
    pub fn stop(mut self) -> anyhow::Result<()> {
        let end = |signal| {
            move |place: &Place| {
                if let Some(child) = &place.child {
                    // A process that has ended already is collected below.
                    let _ = kill_process(Pid::from_child(child), signal);
                }
            }
        };
        self.children.iter().for_each(end(Signal::TERM));
        let until = Instant::now() + STOP_MAX;
        let mut first = Ok(());
        for place in &mut self.children {
            let Some(child) = &mut place.child else { continue };
            let mut status = child.try_wait()?;
            while status.is_none() && Instant::now() < until {
                std::thread::sleep(LOOK_EACH);
                status = child.try_wait()?;
            }
            if !status.is_some_and(|status| status.success()) {
                // Its next start recovers.
                let (_, _) = (child.kill(), child.wait());
                let what = format!("stop server {} of the pair", letter(place.number));
                let why = status.map_or("it did not end in time".into(), |status| status.to_string());
                first = first
                    .and(Err(Failure::failed(what, why, "its next start recovers; read its log").into()));
            }
            place.child = None;
        }
        first
    }
}

impl Up {
    /// Serves the management service and the mount, beside two server processes, until it is asked to stop.
    pub(super) fn serve_pair(
        &self,
        shown: Shown,
        lock: &Lock,
        events: &Receiver<Event>,
        sender: Sender<Event>,
        herald: Herald,
    ) -> anyhow::Result<Exit> {
        let Shown { mut cluster, mgs, is_new, notes, begin } = shown;
        let run = RunDir::of(&self.dir);
        let mut servers = Servers::new();
        servers.serve_mgs(mgs.clone());
        let socket = listen_on_socket(&run, &servers)?;
        let pages = self.metrics.as_deref().map(Pages::beside).transpose()?;
        let page = metrics::serve(self.metrics.as_deref(), servers.source("up"))?;
        let mut pair = Pair::start(self, pages)?;
        pair.wait_ready(&cluster, &mgs, is_new, events)?;
        let mounted = self
            .mount
            .as_deref()
            .map(|point| mount(self, &cluster, point, servers.calls.clone(), sender))
            .transpose()?;
        let (client, mut heart) = mounted.unzip();
        if is_new {
            // From here on a missing image is an error.
            cluster.ready = true;
            cluster.write(&self.dir)?;
        }
        self.keep_mount(client.as_ref(), lock, &run)?;
        let state = if is_new { "made" } else { "started" };
        let mut started =
            self.started(&cluster, &run, state, std::process::id(), self.mount.as_deref(), notes);
        started.seconds = Some(begin.elapsed().as_secs_f64());
        (started.servers, started.metrics) = (pair.shown(), page.as_ref().map(started::address));
        started.lines(self.json).iter().for_each(|line| herald.say(line));
        herald.ready();
        let next = |events: &Receiver<Event>| next_event(&mut pair, events, COMPANY_LOOK_EACH);
        let (client, manner) = serve_until_stopped(client, events, next, &run, lock);
        lock.forget()?;
        heart.iter_mut().for_each(Heart::stop);
        if let Some(client) = client {
            client.finish(if manner == Manner::Forced { SETTLE_MAX } else { SETTLE_LOCAL_MAX });
        }
        if pair.is_whole() {
            mgs.keep_pairs();
        }
        let stopped = pair.stop();
        socket.stop();
        servers.stop()?;
        stopped?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        for place in &mut self.children {
            if let Some(mut child) = place.child.take() {
                let (_, _) = (child.kill(), child.wait());
            }
        }
    }
}

fn letter(number: u32) -> char {
    char::from(b'a' + number as u8)
}

/// Runs server `number` of the pair in `dir` until it is asked to stop, or its parent has ended.
pub fn serve_member(up: &Up, number: u32) -> anyhow::Result<Exit> {
    logs::start_for_servers();
    prepare_process();
    role::keep_files_private();
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let (_sender, events) = stop::listen()?;
    let (cluster, run) = (Cluster::existing(&up.dir)?, RunDir::of(&up.dir));
    let blank = if cluster.ready { Blank::Refuse } else { Blank::Format };
    // 1. Listen, then register.
    let mut servers = Servers::new();
    servers.company = COMPANY;
    servers.mdt.cache_bytes = crate::memory::mdt_cache(up.mdt_cache);
    let socket = run.server_socket(number);
    match std::fs::remove_file(&socket) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| socket.display().to_string());
        }
        _ => {}
    }
    let server = Server::listen(&format!("unix:{}", socket.display()), servers.hub.clone())
        .with_context(|| format!("listen on {}", socket.display()))?;
    let mgs = MgsPeers::at(servers.fabric.clone(), vec![run.nid()?]);
    let node = Node {
        fsname: &cluster.fsname,
        mgs: mgs.clone(),
        name: format!("{}-{}", host_name(), letter(number)),
        nids: vec![format!("unix:{}@local0", socket.display())],
        // Both are on this host.
        domain: Domain::default(),
        events: Some(&events),
    };
    let started =
        add_members(&mut servers, &cluster, &up.dir, number, blank, &node).and_then(|()| servers.beat(mgs));
    let paged = started.and_then(|()| metrics::serve(up.metrics.as_deref(), servers.source("server")));
    if paged.is_ok() {
        tracing::info!(server = %letter(number), "ready");
        role::serve_until_stopped(&events);
    }
    // 2. In any case the targets stop cleanly: the other server takes over.
    let stopped = servers.stop();
    server.stop();
    paged?;
    stopped?;
    Ok(Exit::Done)
}

/// First members before second ones, which need the mirrors of the other server's first ones.
fn add_members(
    servers: &mut Servers,
    cluster: &Cluster,
    dir: &Path,
    number: u32,
    blank: Blank,
    node: &Node<'_>,
) -> anyhow::Result<()> {
    let mdts = (0..cluster.mdts).map(|index| (Role::Mdt, index));
    let targets: Vec<_> = mdts.chain((0..cluster.osts).map(|index| (Role::Ost, index))).collect();
    let (firsts, seconds): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|(_, index)| index % SERVERS == number);
    let firsts = firsts.into_iter().map(|(role, index)| (role, index, Wanted::first(Some(index))));
    let seconds = seconds.into_iter().map(|(role, index)| (role, index, Wanted::second(Some(index))));
    let image = |(role, index, wanted)| {
        let path = cluster.member_image(dir, role == Role::Mdt, index, number);
        // A new image is in the place of one that was lost: the other server has the mirror.
        let is_new = cluster.ready && device::is_unregistered(&path);
        (role, path, if is_new { Wanted::second(Some(index)) } else { wanted })
    };
    let open = |path: &Path| -> anyhow::Result<Arc<dyn Disk>> {
        let next = "check the file, its permissions, and whether another process uses it";
        let disk = FileDisk::open(path).map_err(|e| Failure::failed(path.display(), e, next))?;
        Ok(Arc::new(disk))
    };
    let targets: Vec<_> = firsts.chain(seconds).map(image).collect();
    servers.add_each(&targets, blank, node, &open).map(drop)
}

/// Mounts the pair's file system, as `stria mount` would.
pub fn mount(
    up: &Up,
    cluster: &Cluster,
    point: &Path,
    calls: Arc<fuse::Calls>,
    sender: Sender<Event>,
) -> anyhow::Result<(Client, Heart)> {
    let nid = RunDir::of(&up.dir).nid()?;
    let wish = role::MountWish {
        source: Source::of(&[&nid], &cluster.fsname).map_err(anyhow::Error::msg)?,
        point: point.to_owned(),
        options: up.mount_options()?,
        tls: None,
        metrics: None,
        calls,
        herald: Herald::Stdout,
    };
    role::connect_here(&wish, Fabric::new(None), sender)
}

/// Waits for the next event, and looks after the servers meanwhile.
pub fn next_event(
    pair: &mut Pair<'_>,
    events: &Receiver<Event>,
    within: Duration,
) -> Result<Event, RecvTimeoutError> {
    if let Err(e) = pair.look(true) {
        tracing::error!("a server of the pair could not be started again: {e:#}");
    }
    events.recv_timeout(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_servers_have_the_next_two_ports() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let pages = Pages(SocketAddr::from(([127, 0, 0, 1], port)));
        assert_eq!([0, 1].map(|number| pages.of(number).port()), [port + 1, port + 2]);
        for (bad, why) in [
            ("127.0.0.1:0", "next two ports"),
            ("127.0.0.1:65534", "next two ports"),
            ("127.0.0.1", "--metrics"),
            // A port that is in use.
            (&format!("127.0.0.1:{}", port - 1), "the next port"),
        ] {
            let said = Pages::beside(bad).unwrap_err().to_string();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }
}
