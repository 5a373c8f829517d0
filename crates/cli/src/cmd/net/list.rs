//! `stria net list` and `show`: the nets of a cluster and the NIDs on them; `stria net ping`: whether one answers.

use std::collections::BTreeMap;

use clap::Args;
use net::routes::net_of;
use serde::Serialize;

use crate::cmd::route::{At, own_nets, ping};
use crate::config;
use crate::exit::{Exit, Failure};
use crate::reach::{Management, Service};

/// List the nets of a cluster: how many nodes and routers are on each, and whether this host is.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria net list --mgs 10.0.0.5@tcp")]
pub struct List {
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Show the NIDs on each net, and whether they answer to this host. Exit code 1 if one does not.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria net show tcp1 --mgs 10.0.0.5@tcp")]
pub struct Show {
    /// Only this net.
    net: Option<String>,
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Ask the servers at these NIDs whether they answer, by the way that this host's nets and routes give. Exit code 1 if one does not.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria ping 10.0.0.5:7011@tcp1
Example: STRIA_NETS=tcp0 stria net ping 10.1.0.5:7011@tcp1 --mgs 10.0.0.5@tcp     (with the routes of that cluster)")]
pub struct Ping {
    /// NIDs of servers.
    #[arg(required = true)]
    nids: Vec<String>,
    /// A management service whose map gives the routes.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Net {
    net: String,
    nodes: usize,
    routers: usize,
    /// This host dials NIDs on it straight.
    own: bool,
}

#[derive(Debug, Serialize)]
struct Shown {
    net: String,
    nids: Vec<Nid>,
}

#[derive(Debug, Serialize)]
struct Nid {
    nid: String,
    node: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The NIDs of nodes by net.
fn by_net(met: &Management) -> BTreeMap<String, Vec<(String, String)>> {
    let mut nets: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut add = |nid: &str, node: &str| {
        nets.entry(net_of(nid).to_owned()).or_default().push((nid.to_owned(), node.to_owned()));
    };
    // The MGS is in no map unless it serves targets too.
    if !met.map.nodes.iter().any(|node| node.nids.contains(&met.nid)) {
        add(&met.nid, "management service");
    }
    for node in &met.map.nodes {
        node.nids.iter().for_each(|nid| add(nid, &node.name));
    }
    nets
}

impl List {
    pub fn run(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let own = met.fabric.routing().own_nets();
        let mut nets: BTreeMap<String, Net> = BTreeMap::new();
        for (net, nids) in by_net(&met) {
            nets.entry(net).or_default().nodes = nids.len();
        }
        for route in &met.map.routes {
            nets.entry(route.to.clone()).or_default();
            nets.entry(net_of(&route.gateway).to_owned()).or_default().routers += 1;
        }
        let nets: Vec<Net> = nets
            .into_iter()
            .map(|(net, found)| Net { own: own.is_empty() || own.contains(&net), net, ..found })
            .collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&nets)?);
            return Ok(Exit::Done);
        }
        outln!("{:<8} {:>6} {:>8}  this host", "net", "nodes", "routers");
        for net in nets {
            let own = if net.own { "dials it straight" } else { "by routers" };
            outln!("{:<8} {:>6} {:>8}  {own}", net.net, net.nodes, net.routers);
        }
        Ok(Exit::Done)
    }
}

impl Show {
    pub fn run(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let routing = met.fabric.routing();
        let mut shown = Vec::new();
        for (net, nids) in by_net(&met) {
            if self.net.as_ref().is_some_and(|wanted| *wanted != net) {
                continue;
            }
            let asked = |(nid, node): (String, String)| {
                let outcome = ping(routing.own_nets(), routing.routes().cloned().collect(), &nid);
                match outcome {
                    Ok(time) => {
                        Nid { nid, node, status: "up", ms: Some(time.as_secs_f64() * 1e3), why: None }
                    }
                    Err(e) => Nid { nid, node, status: "down", ms: None, why: Some(format!("{e:#}")) },
                }
            };
            shown.push(Shown { net, nids: nids.into_iter().map(asked).collect() });
        }
        if let (Some(wanted), true) = (&self.net, shown.is_empty()) {
            let why = "no node of the cluster is on it";
            return Err(
                Failure::unusable(format!("net {wanted}"), why, "`stria net list` shows the nets").into()
            );
        }
        let is_well = shown.iter().flat_map(|net| &net.nids).all(|nid| nid.status == "up");
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&shown)?),
            false => {
                outln!("net:");
                for net in &shown {
                    outln!("    - net type: {}\n      NI(s):", net.net);
                    for nid in &net.nids {
                        outln!(
                            "        - nid: {}\n          node: {}\n          status: {}",
                            nid.nid,
                            nid.node,
                            nid.status
                        );
                        nid.why.iter().for_each(|why| outln!("          why: {why}"));
                    }
                }
            }
        }
        Ok(if is_well { Exit::Done } else { Exit::Findings })
    }
}

impl Ping {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (own, routes) = match &self.mgs {
            Some(service) => {
                let routing = service.manage()?.fabric.routing();
                (routing.own_nets(), routing.routes().cloned().collect())
            }
            None => {
                let nets = own_nets()?;
                (nets.own, nets.routes)
            }
        };
        let mut all = Vec::new();
        for given in &self.nids {
            let nid = config::normal_nid(given)
                .map_err(|why| Failure::unusable("ping", why, "give address:port@net"))?;
            let net = net_of(&nid).to_owned();
            all.push(match ping(own.clone(), routes.clone(), &nid) {
                Ok(time) => Pinged { nid, net, status: "up", ms: Some(time.as_secs_f64() * 1e3), why: None },
                Err(e) => Pinged { nid, net, status: "down", ms: None, why: Some(format!("{e:#}")) },
            });
        }
        let is_well = all.iter().all(|nid| nid.status == "up");
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            for nid in &all {
                match (nid.ms, &nid.why) {
                    (Some(ms), _) => outln!("{}: {ms:.3} ms", nid.nid),
                    (None, why) => {
                        let (why, nid) = (why.as_deref().unwrap_or("?"), &nid.nid);
                        outln!(
                            "{nid}: no answer: {why}; check that its server runs, and that the address is right"
                        );
                    }
                }
            }
        }
        Ok(if is_well { Exit::Done } else { Exit::Findings })
    }
}

/// One NID that was asked.
#[derive(Debug, Serialize)]
struct Pinged {
    nid: String,
    net: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}
