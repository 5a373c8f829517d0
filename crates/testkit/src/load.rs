//! Thousands of sessions at one MDT and one OST: how long they take to attach and to come back after the servers were killed, and what
//! they cost the servers.
//!
//! The servers are processes of their own over TCP on loopback. Worker processes drive lightweight sessions (`load/session.rs`): each has
//! connections of its own and lives by the protocol as a mount does. One of a hundred is active at any moment (`load/work.rs`).

mod ear;
mod link;
mod process;
mod session;
mod work;
mod worker;

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use net::rpc;
use types::Buf;
use wire::Header;
use wire::session::TargetStat;

use crate::cluster::{Cluster, Role, Shape, Wiring};
use process::{Process, Stats, Taken};

pub use worker::{DRIVERS, Orders, work};

/// Sessions of one worker process: each takes two of its file descriptors, or three with a line for notices.
const SESSIONS_PER_PROCESS: u64 = 5000;
/// A server keeps the last quarter of its connections from a peer that has many, and all workers are one peer. Beyond this many sessions
/// some share connections.
const CONNECTIONS_MAX: u64 = 14_000;
/// Threads of a server beside those that serve requests.
const THREADS_BESIDE: u64 = 16;
const SERVING_THREADS_MAX: u64 = 64;
/// File descriptors of a server beside its connections: media, logs, epoll, and connections to other servers.
const FILES_BESIDE: u64 = 64;
/// Space for the slots of a session in an OST's checkpoint: 1.7 KiB in less than a 1500th of the medium.
const OST_BYTES_PER_SESSION: u64 = 4 << 20;
/// Longest clean stop of a server.
const STOP_MAX: Duration = Duration::from_secs(20);
/// How long memory is left alone before it is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// The load to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub sessions: u64,
    /// How long the active sessions work before the servers are killed.
    pub work_for: Duration,
    /// Bar for the time from the kill until every session has had a successful request.
    pub back_within: Duration,
}

impl Plan {
    /// The cluster that the load wants.
    pub fn shape(&self) -> Shape {
        let ost_bytes = (self.sessions * OST_BYTES_PER_SESSION).max(2 << 30);
        Shape {
            wiring: Wiring::Servers,
            osts: 1,
            ost_size: format!("{}M", ost_bytes >> 20),
            tls: false,
            etcd: vec![],
        }
    }

    fn together(&self) -> u64 {
        self.sessions.div_ceil(CONNECTIONS_MAX).max(1)
    }
    fn connections(&self) -> u64 {
        self.sessions.div_ceil(self.together())
    }
    /// Sessions with a line for notices: as many as the MDS has connections left for.
    fn lines(&self) -> u64 {
        self.sessions.min(CONNECTIONS_MAX - self.connections())
    }
}

/// A server before, with idle sessions, and with active ones.
#[derive(Clone, Debug, Default)]
pub struct Server {
    pub name: &'static str,
    pub before: Taken,
    pub idle: Taken,
    pub active: Taken,
    pub back: Taken,
}

/// The servers are ended and started again.
#[derive(Clone, Debug, Default)]
pub struct Outage {
    /// From its begin until the servers are started, and until the last session is back.
    pub started: Duration,
    pub back: Duration,
    /// Operations since.
    pub stats: Stats,
}

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub sessions: u64,
    /// To each server, and more to the MDS for lines.
    pub connections: u64,
    pub lines: u64,
    pub attach: Duration,
    pub servers: Vec<Server>,
    /// Growth of the kernel's memory by all ends of the connections.
    pub kernel_bytes: u64,
    pub calm: Stats,
    pub kill: Outage,
    pub restart: Outage,
    pub leave: Duration,
    /// Sessions that the targets have after all have left.
    pub left: u64,
}

/// Runs the load on a fresh cluster of `Plan::shape`. `worker` makes the command of a process that calls `work`.
pub fn run(
    cluster: &mut Cluster,
    plan: &Plan,
    worker: &dyn Fn(&Orders) -> Result<Command>,
) -> Result<Report> {
    let (sessions, connections, lines) = (plan.sessions, plan.connections(), plan.lines());
    let mut report = Report { sessions, connections, lines, ..Report::default() };
    let roles = [("MDS", Role::Mds), ("OSS", Role::Oss(0))];
    let look = |cluster: &Cluster, role| Taken::by(cluster.pid(role).context("the server runs")?);
    let kernel_before = process::kernel_bytes()?;
    for (name, role) in roles {
        report.servers.push(Server { name, before: look(cluster, role)?, ..Server::default() });
    }
    // 1. All sessions attach.
    let mut crew = start(cluster, plan, worker)?;
    let began = Instant::now();
    order(&mut crew, "attach")?;
    report.attach = began.elapsed();
    std::thread::sleep(SETTLE);
    for (server, (_, role)) in report.servers.iter_mut().zip(roles) {
        server.idle = look(cluster, role)?;
    }
    report.kernel_bytes = process::kernel_bytes()?.saturating_sub(kernel_before);
    // 2. Some work.
    order(&mut crew, "look")?;
    order(&mut crew, "work")?;
    std::thread::sleep(plan.work_for);
    for (server, (_, role)) in report.servers.iter_mut().zip(roles) {
        server.active = look(cluster, role)?;
    }
    report.calm = order(&mut crew, "look")?;
    // 3. The servers die, and come back on the same ports and media.
    order(&mut crew, "killed")?;
    let began = Instant::now();
    for (_, role) in roles {
        cluster.kill(role)?;
    }
    report.kill = come_back(cluster, &mut crew, began)?;
    for (server, (_, role)) in report.servers.iter_mut().zip(roles) {
        server.back = look(cluster, role)?;
    }
    // 4. They are stopped cleanly, with checkpoints of all sessions.
    let began = Instant::now();
    for (_, role) in roles {
        cluster.terminate(role, STOP_MAX)?;
    }
    order(&mut crew, "stopped")?;
    report.restart = come_back(cluster, &mut crew, began)?;
    // 5. All sessions leave.
    let began = Instant::now();
    order(&mut crew, "leave")?;
    report.leave = began.elapsed();
    report.left = sessions_left(&cluster.mgs())?;
    Ok(report)
}

/// Starts the servers and waits until all sessions are back.
fn come_back(cluster: &mut Cluster, crew: &mut [Process], began: Instant) -> Result<Outage> {
    for role in [Role::Mds, Role::Oss(0)] {
        cluster.start_role(role)?;
    }
    let started = began.elapsed();
    order(crew, "back")?;
    let back = began.elapsed();
    Ok(Outage { started, back, stats: order(crew, "look")? })
}

/// Sessions that the targets still have.
fn sessions_left(mgs: &str) -> Result<u64> {
    let (fabric, map) = worker::fetch_map(mgs)?;
    fabric.set_map(&map);
    let mut left = 0;
    for target in &map.targets {
        let deadline = Instant::now() + Duration::from_secs(10);
        let (head, peer) = (Header::default(), fabric.peer(target.id)?);
        let (_, _, said) = rpc::call(&*peer, head, &TargetStat {}, &[], &mut Buf::new(), deadline)?;
        left += u64::from(said?.sessions);
    }
    Ok(left)
}

fn start(
    cluster: &Cluster,
    plan: &Plan,
    worker: &dyn Fn(&Orders) -> Result<Command>,
) -> Result<Vec<Process>> {
    let together = plan.together();
    let mut crew = Vec::new();
    for first in (0..plan.sessions).step_by(SESSIONS_PER_PROCESS as usize) {
        let sessions = SESSIONS_PER_PROCESS.min(plan.sessions - first);
        let lines = sessions.min(plan.lines().saturating_sub(first));
        let orders = Orders { mgs: cluster.mgs(), first, sessions, together, lines };
        crew.push(Process::start(worker(&orders)?)?);
    }
    Ok(crew)
}

/// All processes carry out the order at the same time.
fn order(crew: &mut [Process], what: &str) -> Result<Stats> {
    crew.iter_mut().try_for_each(|process| process.order(what))?;
    let mut all = Stats::default();
    for process in crew {
        all.add(process.hear().with_context(|| format!("order {what}"))?);
    }
    Ok(all)
}

impl Report {
    /// The bars that are not met.
    pub fn missed(&self, plan: &Plan) -> Vec<String> {
        let mut missed = Vec::new();
        let all = [&self.calm, &self.kill.stats, &self.restart.stats];
        let errors = all.iter().map(|stats| stats.errors).sum::<u64>();
        if errors > 0 {
            let shown = all.iter().flat_map(|stats| stats.shown.clone()).collect::<Vec<_>>();
            missed.push(format!("{errors} operations failed: {}", shown.join("; ")));
        }
        if self.left > 0 {
            missed.push(format!("{} sessions have not ended", self.left));
        }
        for Outage { back, .. } in [&self.kill, &self.restart] {
            if *back > plan.back_within {
                let within = plan.back_within;
                missed.push(format!("the sessions came back after {back:?}, not within {within:?}"));
            }
        }
        for Server { name, idle, active, back, .. } in &self.servers {
            for at in [idle, active, back] {
                if at.threads > SERVING_THREADS_MAX + THREADS_BESIDE {
                    missed.push(format!("the {name} has {} threads", at.threads));
                }
                let lines = if *name == "MDS" { self.lines } else { 0 };
                if at.files > self.connections + lines + FILES_BESIDE {
                    missed.push(format!("the {name} has {} file descriptors", at.files));
                }
            }
        }
        missed
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let Report { sessions, connections, lines, .. } = self;
        writeln!(
            f,
            "sessions {sessions}, connections to each server {connections}, lines to the MDS {lines}"
        )?;
        writeln!(f, "attach of all {}", secs(self.attach))?;
        for Server { name, before, idle, active, back } in &self.servers {
            let each = idle.rss_bytes.saturating_sub(before.rss_bytes) as f64 / *sessions as f64 / 1024.0;
            writeln!(
                f,
                "{name}: memory {} MiB, with idle sessions {} MiB ({each:.1} KiB each), active {} MiB, after the outage {} MiB",
                before.rss_bytes >> 20,
                idle.rss_bytes >> 20,
                active.rss_bytes >> 20,
                back.rss_bytes >> 20
            )?;
            writeln!(
                f,
                "{name}: threads {}, idle {}, active {}, after the outage {}; file descriptors {}, idle {}, active {}, after the outage {}",
                before.threads,
                idle.threads,
                active.threads,
                back.threads,
                before.files,
                idle.files,
                active.files,
                back.files
            )?;
        }
        let ends = 2 * (self.servers.len() as u64 * connections + lines);
        let each = self.kernel_bytes as f64 / ends as f64 / 1024.0;
        writeln!(f, "kernel: {} MiB, {each:.1} KiB for each end of a connection", self.kernel_bytes >> 20)?;
        write_times(f, "active", &self.calm)?;
        for (what, outage) in [("killed", &self.kill), ("stopped", &self.restart)] {
            let Outage { started, back, stats } = outage;
            writeln!(
                f,
                "servers {what} and started in {}, all sessions back after {}",
                secs(*started),
                secs(*back)
            )?;
            write_times(f, what, stats)?;
        }
        write!(f, "detach of all {}", secs(self.leave))
    }
}

fn write_times(f: &mut fmt::Formatter<'_>, when: &str, stats: &Stats) -> fmt::Result {
    for (op, times) in stats.took.iter().filter(|(_, times)| !times.is_empty()) {
        let mut times = times.clone();
        times.sort_unstable();
        let at = |share: usize| f64::from(times[(times.len() - 1) * share / 100]) / 1000.0;
        let (p50, p99, max) = (at(50), at(99), at(100));
        writeln!(f, "{when}: {op} {} times, p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms", times.len())?;
    }
    writeln!(f, "{when}: {} errors", stats.errors)?;
    stats.shown.iter().try_for_each(|why| writeln!(f, "  {why}"))
}
