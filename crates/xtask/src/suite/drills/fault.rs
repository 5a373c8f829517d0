//! The events of drills, and how they are made.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use testkit::Rng;
use testkit::hosts::Part;

use super::super::semantics::wait_until;
use super::super::sys::ensure_eq;
use super::media::Ill;
use super::scene::{CLUSTER, SERVERS, Scene};

/// Longest stall of a call when a server is lost: two promises of 2 s, the asking, and the clients' return.
pub const LOST_MAX: Duration = Duration::from_secs(10);
/// Longest stall over a planned stop.
pub const PLANNED_MAX: Duration = Duration::from_secs(2);
const STOP_MAX: Duration = Duration::from_secs(20);
/// The absence of a server that was killed or stopped: longer than the other one waits for its promise.
const AWAY: Duration = Duration::from_secs(5);
/// The duration of a disk's fault.
const ILL: Duration = Duration::from_secs(5);
/// Load before a loss of power.
const LOAD: Duration = Duration::from_secs(2);
/// Longest random time that something is away.
const RANDOM_SEC_MAX: u64 = 30;

/// An event that a pair must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Killed(&'static str),
    Stopped(&'static str),
    /// Its processes stand still for so long.
    Frozen(&'static str, Duration),
    /// Its link is down for so long.
    Away(&'static str, Duration),
    /// The two servers do not hear each other for so long.
    Cut(Duration),
    /// The other server does not hear this one.
    CutOneWay(&'static str, Duration),
    /// Both are killed, and started again at once.
    Both,
    /// Both are stopped by command at the same moment: neither goes on without the other one. They start again at once.
    BothStopped,
    /// The power of these servers fails under load, at the same moment. Unflushed bytes of their disks are lost by the seed. They start again at once.
    PowerLost(&'static [&'static str], u64),
    /// The management service is killed, and started again after so long.
    MgsKilled(Duration),
    /// Primaries leave this server by command.
    Drained(&'static str),
    /// Primaries are spread over the servers by command.
    Balanced,
    /// The primary of the first mirror is handed over by command.
    Switched,
    Disk(&'static str, Ill),
    /// Flushes of its disk fail, and before its members are filled anew it ends by this signal.
    FlushForgotten(&'static str, Signal),
}

/// Of the log of a server.
const ENDED: &str = "a member of a mirror could not go on";

fn logs_of(scene: &Scene, server: &str) -> Result<String> {
    scene.site.running_on(server).iter().map(|part| scene.site.log(part)).collect()
}

/// The other server of the pair.
pub fn other(server: &str) -> &'static str {
    if server == SERVERS[0] { SERVERS[1] } else { SERVERS[0] }
}

impl Fault {
    /// Longest stall that a drill of it may have.
    pub fn stall_max(self) -> Duration {
        match self {
            Fault::Stopped(_)
            | Fault::Drained(_)
            | Fault::Balanced
            | Fault::Switched
            | Fault::MgsKilled(_) => PLANNED_MAX,
            _ => LOST_MAX,
        }
    }

    /// Any of the faults, those of disks if the site has disks that can fall ill.
    pub fn random(rng: &mut Rng, has_media: bool) -> Fault {
        let server = *rng.pick(&SERVERS);
        let time = Duration::from_secs(1 + rng.below(RANDOM_SEC_MAX));
        match rng.below(if has_media { 12 } else { 9 }) {
            0 => Fault::Killed(server),
            1 => Fault::Stopped(server),
            2 => Fault::Frozen(server, time),
            3 => Fault::Away(server, time),
            4 => Fault::Cut(time),
            5 => Fault::CutOneWay(server, time),
            6 => Fault::MgsKilled(time),
            7 => Fault::Drained(server),
            8 => Fault::Both,
            9 => Fault::Disk(server, Ill::Full),
            10 => Fault::Disk(server, Ill::Reads),
            _ => Fault::Disk(server, Ill::Flushes),
        }
    }

    /// A loss of power of one server or both.
    pub fn random_power(rng: &mut Rng) -> Fault {
        let servers = *rng.pick(&[&SERVERS[..1], &SERVERS[1..], &SERVERS[..], &SERVERS[..]]);
        Fault::PowerLost(servers, rng.next_u64())
    }

    /// Lets it happen, for as long as it takes. The caller starts servers that have ended.
    pub fn happen(self, scene: &mut Scene) -> Result<()> {
        let site = &mut scene.site;
        match self {
            Fault::Killed(server) => {
                ensure_eq(site.kill_host(server)?.len(), 2, &format!("processes of {server}"))?;
                std::thread::sleep(AWAY);
                Ok(())
            }
            Fault::Stopped(server) => {
                site.running_on(server).iter().try_for_each(|part| site.stop(part, STOP_MAX))
            }
            Fault::Frozen(server, time) => {
                let parts = site.running_on(server);
                ensure_eq(parts.len(), 2, &format!("processes of {server}"))?;
                parts.iter().try_for_each(|part| site.freeze(part))?;
                std::thread::sleep(time);
                parts.iter().try_for_each(|part| site.thaw(part))
            }
            Fault::Away(server, time) => {
                site.hosts().link_down(server, "tcp0")?;
                std::thread::sleep(time);
                Ok(site.hosts().link_up(server, "tcp0")?)
            }
            Fault::Cut(time) => {
                let [one, two] = SERVERS;
                site.hosts().blackhole(one, two)?;
                site.hosts().blackhole(two, one)?;
                std::thread::sleep(time);
                site.hosts().unblackhole(one, two)?;
                Ok(site.hosts().unblackhole(two, one)?)
            }
            Fault::CutOneWay(server, time) => {
                site.hosts().blackhole(server, other(server))?;
                std::thread::sleep(time);
                Ok(site.hosts().unblackhole(server, other(server))?)
            }
            Fault::Both => {
                let killed = site.kill_host(SERVERS[0])?.len() + site.kill_host(SERVERS[1])?.len();
                ensure_eq(killed, 4, "processes of the pair")
            }
            Fault::BothStopped => {
                let parts: Vec<_> = SERVERS.iter().flat_map(|server| site.running_on(server)).collect();
                ensure_eq(parts.len(), 4, "processes of the pair")?;
                parts.iter().try_for_each(|part| site.signal(part, Signal::TERM))?;
                parts.iter().try_for_each(|part| site.await_end(part, STOP_MAX))?;
                let mirrors = scene.mirrors()?;
                let members = mirrors.iter().filter_map(|mirror| mirror["members"].as_array()).flatten();
                let out = members.filter(|member| member["state"] != "in sync").count();
                // A server that hears of its stop after the other one has left goes on alone.
                scene.note(format!("out of sync after the stop: {out}"));
                Ok(())
            }
            Fault::PowerLost(servers, seed) => {
                // Writes before this moment count as flushed.
                servers.iter().try_for_each(|server| scene.medium(server)?.can_lose_power())?;
                std::thread::sleep(LOAD);
                let killed = servers.iter().map(|server| Ok(scene.site.kill_host(server)?.len()));
                ensure_eq(killed.sum::<Result<usize>>()?, 2 * servers.len(), "processes without power")?;
                servers.iter().try_for_each(|server| scene.medium(server)?.lose_power(seed))
            }
            Fault::MgsKilled(time) => {
                site.kill(&Part::mgs(CLUSTER))?;
                std::thread::sleep(time);
                Ok(())
            }
            Fault::Drained(server) => scene.command(&format!("server drain {server}")),
            Fault::Balanced => scene.command("server balance"),
            Fault::Switched => {
                let name = scene.mirrors()?[0]["name"].as_str().context("a name")?.to_owned();
                scene.command(&format!("mirror switch {name}"))
            }
            Fault::FlushForgotten(server, signal) => {
                let before = logs_of(scene, server)?.matches(ENDED).count();
                scene.medium(server)?.fall_ill(Ill::Flushes)?;
                if signal == Signal::KILL {
                    wait_until("a member ends for its flush", || {
                        Ok(logs_of(scene, server)?.matches(ENDED).count() > before)
                    })?;
                }
                let parts = scene.site.running_on(server);
                ensure_eq(parts.len(), 2, &format!("processes of {server}"))?;
                parts.iter().try_for_each(|part| scene.site.signal(part, signal))?;
                parts.iter().try_for_each(|part| scene.site.await_end(part, STOP_MAX))?;
                Ok(scene.medium(server)?.heal()?)
            }
            Fault::Disk(server, ill) => {
                let medium = scene.medium(server)?;
                medium.fall_ill(ill)?;
                std::thread::sleep(ILL);
                let noted = scene.note_ill(server, ill);
                // Even if the look at it failed.
                scene.medium(server)?.heal()?;
                noted
            }
        }
    }

    /// After the server's next start, and with all members in sync again.
    pub fn check(self, scene: &Scene) -> Result<()> {
        let Fault::FlushForgotten(server, _) = self else { return Ok(()) };
        let is_filled = logs_of(scene, server)?.contains("its medium has failed before");
        ensure!(is_filled, "{self}: no member of it was filled anew");
        Ok(())
    }

    /// True if it needs servers on media that can fail.
    pub fn needs_media(self) -> bool {
        matches!(self, Fault::Disk(..) | Fault::PowerLost(..) | Fault::FlushForgotten(..))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sec = |time: &Duration| time.as_secs();
        match self {
            Fault::Killed(server) => write!(f, "server {server} is killed (`kill -9`)"),
            Fault::Stopped(server) => write!(f, "server {server} is stopped by command"),
            Fault::Frozen(server, time) => {
                write!(f, "server {server} stands still for {} s (`SIGSTOP`)", sec(time))
            }
            Fault::Away(server, time) => write!(f, "the link of server {server} is down for {} s", sec(time)),
            Fault::Cut(time) => write!(f, "the servers do not hear each other for {} s", sec(time)),
            Fault::CutOneWay(server, time) => {
                write!(f, "server {} does not hear {server} for {} s", other(server), sec(time))
            }
            Fault::Both => write!(f, "both servers are killed, and started at once"),
            Fault::BothStopped => write!(f, "both servers are stopped by command, and started at once"),
            Fault::PowerLost(servers, _) => {
                write!(f, "the power of {} fails, and is back at once", servers.join(" and "))
            }
            Fault::MgsKilled(time) => write!(f, "the management service is killed for {} s", sec(time)),
            Fault::Drained(server) => write!(f, "primaries leave {server} (`stria server drain`)"),
            Fault::Balanced => write!(f, "primaries are spread (`stria server balance`)"),
            Fault::Switched => write!(f, "a primary is handed over (`stria mirror switch`)"),
            Fault::FlushForgotten(server, Signal::TERM) => {
                write!(f, "flushes of the disk of {server} fail, and it is stopped by command")
            }
            Fault::FlushForgotten(server, _) => {
                write!(
                    f,
                    "flushes of the disk of {server} fail, and it is killed (`kill -9`) before its members are filled"
                )
            }
            Fault::Disk(server, Ill::Slow(time)) => {
                write!(
                    f,
                    "each operation on the disk of {server} takes {} ms longer for 5 s",
                    time.as_millis()
                )
            }
            Fault::Disk(server, Ill::Capped(bytes)) => {
                write!(f, "the disk of {server} passes {} MiB/s for 5 s", bytes >> 20)
            }
            Fault::Disk(server, Ill::Full) => write!(f, "the disk of {server} is full for 5 s"),
            Fault::Disk(server, Ill::Reads) => write!(f, "reads of the disk of {server} fail for 5 s"),
            Fault::Disk(server, Ill::Flushes) => write!(f, "flushes of the disk of {server} fail for 5 s"),
        }
    }
}
