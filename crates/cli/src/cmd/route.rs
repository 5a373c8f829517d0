//! `stria route`: ways between nets in the cluster map.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use net::Fabric;
use net::routes::{Routing, net_of, parse_route};
use serde::Serialize;
use types::Buf;
use wire::Header;
use wire::fabric::NetStat;
use wire::map::Route as MapRoute;
use wire::mgmt::ChangeRoutes;

use crate::exit::{Exit, Failure};
use crate::nets::Nets;
use crate::reach::{self, MGS, Management, Service};
use crate::tls::{self, Part};

/// How long one host is waited for by checks.
pub const CHECK_WAIT_MAX: Duration = Duration::from_secs(4);

/// Show, add, remove and check routes: which router leads from one net to another.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria route add tcp1 --via 10.0.0.9:7020@tcp0 --mgs 10.0.0.5@tcp
Example: stria route list --mgs 10.0.0.5@tcp
Example: stria route check --mgs 10.0.0.5@tcp     (from the host on which it runs)")]
pub struct Route {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Add),
    Del(Del),
    List(List),
    Check(Check),
}

/// Add a route to the map. Hosts learn of it within a second.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria route add tcp1 --via 10.0.0.9:7020@tcp0 --mgs 10.0.0.5@tcp")]
struct Add {
    /// The net that it leads to.
    net: String,
    /// NID of the router on the near net.
    #[arg(long, value_name = "NID")]
    via: String,
    /// Routes of the lowest number are taken while they work; those of the same number share the load.
    #[arg(long, default_value_t = 0)]
    priority: u32,
    #[command(flatten)]
    at: At,
}

/// Remove a route from the map. Connections by it go on until they end.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria route del tcp1 --via 10.0.0.9:7020@tcp0 --mgs 10.0.0.5@tcp")]
struct Del {
    /// The net that it leads to.
    net: String,
    /// NID of the router on the near net.
    #[arg(long, value_name = "NID")]
    via: String,
    #[command(flatten)]
    at: At,
}

/// List the routes of the map.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria route list --mgs 10.0.0.5@tcp -j")]
struct List {
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Try every way from this host: each router by itself, and a server behind it. Exit code 1 if one does not work.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria route check --mgs 10.0.0.5@tcp")]
struct Check {
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The cluster.
#[derive(Debug, Args)]
pub struct At {
    /// The management service: NID[,NID...].
    #[arg(long, value_name = "NID", value_parser = Service::parse, required_unless_present = "mount")]
    pub mgs: Option<Service>,
    /// A mount of the cluster on this host.
    #[arg(long, value_name = "PATH", conflicts_with = "mgs")]
    pub mount: Option<PathBuf>,
}

impl At {
    pub fn meet(&self) -> anyhow::Result<Management> {
        match (&self.mgs, &self.mount) {
            (Some(service), _) => service.manage(),
            (None, Some(path)) => Management::by_nids(&reach::mount_of(path)?.1.nids),
            (None, None) => unreachable!("one of them is required"),
        }
    }
}

#[derive(Debug, Serialize)]
struct Line {
    to: String,
    from: String,
    gateway: String,
    priority: u32,
}

#[derive(Debug, Serialize)]
struct Checked {
    /// The routers, in their order.
    hops: Vec<String>,
    to: String,
    /// The server that was asked.
    nid: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Route {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Add(c) => {
                let route = MapRoute { priority: c.priority, ..wish(&c.net, &c.via)? };
                change(&c.at, vec![], vec![route])?;
                outln!("added: {} via {}", c.net, c.via);
                Ok(Exit::Done)
            }
            Verb::Del(c) => {
                change(&c.at, vec![wish(&c.net, &c.via)?], vec![])?;
                outln!("removed: {} via {}", c.net, c.via);
                Ok(Exit::Done)
            }
            Verb::List(c) => c.run(),
            Verb::Check(c) => c.run(),
        }
    }
}

fn wish(net: &str, via: &str) -> anyhow::Result<MapRoute> {
    let route = parse_route(&format!("{net} via {via}"));
    route.map_err(|why| Failure::unusable("route", why, "see `stria route add --help`").into())
}

fn change(at: &At, remove: Vec<MapRoute>, add: Vec<MapRoute>) -> anyhow::Result<()> {
    at.meet()?.ask(&ChangeRoutes { remove, add })?;
    Ok(())
}

impl List {
    fn run(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let line = |route: &MapRoute| Line {
            to: route.to.clone(),
            from: net_of(&route.gateway).to_owned(),
            gateway: route.gateway.clone(),
            priority: route.priority,
        };
        let lines: Vec<Line> = met.map.routes.iter().map(line).collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&lines)?);
            return Ok(Exit::Done);
        }
        outln!("route:");
        for line in &lines {
            outln!(
                "    - net: {}\n      gateway: {}\n      priority: {}",
                line.to,
                line.gateway,
                line.priority
            );
        }
        if lines.is_empty() {
            outln!("    none; `stria route add` makes one");
        }
        Ok(Exit::Done)
    }
}

impl Check {
    fn run(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let routing = met.fabric.routing();
        let checked = check(&routing, &met)?;
        let is_well = checked.iter().all(|c| c.ok);
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&checked)?);
        }
        for c in checked.iter().filter(|_| !self.json) {
            let way = if c.hops.is_empty() { "straight".to_owned() } else { c.hops.join(" and ") };
            match (&c.ms, &c.why) {
                (Some(ms), _) => outln!("ok     {}  {} by {way}, {ms:.1} ms", c.to, c.nid),
                (None, why) => {
                    outln!("failed {}  {} by {way}: {}", c.to, c.nid, why.as_deref().unwrap_or("?"))
                }
            }
        }
        if checked.is_empty() && !self.json {
            outln!("the map has no server to reach");
        }
        Ok(if is_well { Exit::Done } else { Exit::Findings })
    }
}

/// Every way from this host to each net of the map, each by itself.
fn check(routing: &Routing, met: &Management) -> anyhow::Result<Vec<Checked>> {
    let nids = || met.map.nodes.iter().flat_map(|node| &node.nids).chain([&met.nid]);
    let nets: BTreeSet<&str> =
        nids().map(|nid| net_of(nid)).filter(|net| !net.starts_with("local")).collect();
    let mut checked = Vec::new();
    for net in nets {
        let Some(nid) = nids().find(|nid| net_of(nid) == net) else { continue };
        let ways = routing.ways(nid);
        if ways.is_empty() {
            let why = format!("no route leads there from {}", routing.own_nets().join(", "));
            let (to, nid) = (net.to_owned(), nid.clone());
            checked.push(Checked { hops: vec![], to, nid, ok: false, ms: None, why: Some(why) });
        }
        for way in ways {
            let routes = by_way(&way.hops, net);
            let outcome = ping(routing.own_nets(), routes, nid);
            let (ok, ms, why) = match outcome {
                Ok(time) => (true, Some(time.as_secs_f64() * 1e3), None),
                Err(e) => (false, None, Some(format!("{e:#}"))),
            };
            checked.push(Checked { hops: way.hops, to: net.to_owned(), nid: nid.clone(), ok, ms, why });
        }
    }
    Ok(checked)
}

/// The routes that leave this way only.
fn by_way(hops: &[String], net: &str) -> Vec<MapRoute> {
    let nets = hops.iter().skip(1).map(|hop| net_of(hop)).chain([net]);
    hops.iter()
        .zip(nets)
        .map(|(hop, to)| MapRoute { to: to.into(), gateway: hop.clone(), priority: 0 })
        .collect()
}

/// Connects anew, and gives the time of a request after that.
pub fn ping(own: Vec<String>, routes: Vec<MapRoute>, nid: &str) -> anyhow::Result<Duration> {
    let is_unix = nid.starts_with("unix:");
    let trust = if is_unix { None } else { tls::trust(None, Part::Command)? };
    let fabric = Fabric::with_trust(None, trust);
    fabric.set_nets(own, routes);
    let peer = fabric.peer_at(nid, MGS);
    let ask = || -> anyhow::Result<Duration> {
        let begin = Instant::now();
        let head = Header { target: MGS, ..Header::default() };
        let deadline = begin + CHECK_WAIT_MAX;
        net::rpc::call(&*peer, head, &NetStat {}, &[], &mut Buf::new(), deadline)?.2?;
        Ok(begin.elapsed())
    };
    ask().and_then(|_| ask()).map_err(|error| anyhow::Error::msg(without_next(&format!("{error:#}"))))
}

/// Without the time of the next attempt: this command makes none.
fn without_next(text: &str) -> String {
    let Some((before, rest)) = text.split_once(" (next attempt in ") else { return text.to_owned() };
    let behind = rest.split_once(')').map_or("", |(_, behind)| behind);
    format!("{before}{}", without_next(behind))
}

/// The nets and routes of this host, for commands without a cluster.
pub fn own_nets() -> Result<Nets, Failure> {
    Nets::of_environment()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_tells_of_no_next_attempt() {
        let text = "a: refused (next attempt in 10 ms); b: silent (next attempt in 7 ms)";
        assert_eq!(without_next(text), "a: refused; b: silent");
        let refused = ping(vec![], vec![], "127.0.0.1:1@tcp0").expect_err("a closed port").to_string();
        assert!(refused.contains("refused") && !refused.contains("attempt"), "{refused}");
    }
}
