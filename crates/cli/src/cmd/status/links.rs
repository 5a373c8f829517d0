//! Links of hosts and servers that are slower than their twins (mgmt-S1), as the OSSs measure them.

use std::collections::BTreeMap;

use mgmt::{End, Link, SlowLink, slow_links};
use serde::Serialize;
use wire::fabric::{LinkStat, NetStat};
use wire::map::Target;

use crate::reach::Reach;

/// A link that is slower than its twins.
#[derive(Debug, Serialize)]
pub(super) struct Slow {
    /// "host": a host that sends to the servers; "server".
    kind: &'static str,
    /// As the host's certificate, or the map, names it; left out if neither does.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Address and net of a host, NIDs of a server.
    nids: String,
    /// Percent of the median of the others.
    percent: f64,
}

/// Asks each process that serves one of these OSTs, once. `None`s of silent ones are left out: their targets are told as down.
pub(super) fn slow_of(reach: &Reach, osts: &[&Target]) -> Vec<Slow> {
    let by_node: BTreeMap<_, &Target> = osts.iter().rev().map(|t| (t.node, *t)).collect();
    let asked: Vec<&Target> = by_node.into_values().collect();
    let told = reach.ask_all(&asked, |t| Some((t, reach.ask(t.id, &NetStat {}).ok()?.links)));
    let told: Vec<(Server, Vec<LinkStat>)> = told
        .into_iter()
        .flatten()
        .filter_map(|(t, links)| {
            let node = reach.map.node(t.node)?;
            Some((Server { name: node.name.clone(), nids: node.nids.join(", ") }, links))
        })
        .collect();
    find(&told)
}

struct Server {
    name: String,
    nids: String,
}

fn find(told: &[(Server, Vec<LinkStat>)]) -> Vec<Slow> {
    let each = || told.iter().flat_map(|(server, links)| links.iter().map(move |link| (server, link)));
    let of = |(server, link): (&Server, &LinkStat)| Link {
        server: server.name.clone(),
        net: link.net.clone(),
        host: link.address.clone(),
        bytes: link.bytes,
        each_us: link.each_us,
        any_us: link.any_us,
    };
    let links: Vec<Link> = each().map(of).collect();
    let shown = |SlowLink { end, net, share }: SlowLink| {
        let percent = (share * 100.0).round();
        match end {
            End::Host(address) => {
                let name = each().find(|(_, link)| link.address == address && !link.name.is_empty());
                let name = name.map(|(_, link)| link.name.clone());
                Slow { kind: "host", name, nids: format!("{address}@{net}"), percent }
            }
            End::Server(name) => {
                let nids = told.iter().find(|(server, _)| server.name == name);
                let nids = nids.map_or(String::new(), |(server, _)| server.nids.clone());
                Slow { kind: "server", name: Some(name), nids, percent }
            }
        }
    };
    slow_links(&links).into_iter().map(shown).collect()
}

impl Slow {
    pub(super) fn text(&self) -> String {
        let Slow { kind, name, nids, percent } = self;
        let place = name.as_ref().map_or(nids.clone(), |name| format!("{name} ({nids})"));
        let next = "look at its cables, ports and memory, and at what else it does";
        format!("slow: link of {kind} {place} at {percent:.0} % of its twins in the last minutes; {next}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_host_is_named_by_its_certificate_and_its_nid() {
        let link = |n: u32, name: &str, us: u64| LinkStat {
            address: format!("10.0.0.{n}"),
            net: "tcp0".into(),
            name: name.into(),
            bytes: 64 << 20,
            each_us: 4 * us,
            any_us: us,
        };
        let server = || Server { name: "s0".into(), nids: "10.0.0.9:7011@tcp0".into() };
        let told = |last: LinkStat| {
            let links = vec![link(4, "c0", 500_000), link(6, "c2", 520_000), last];
            find(&[(server(), links)]).iter().map(Slow::text).collect::<Vec<_>>()
        };
        assert!(told(link(5, "c1", 600_000)).is_empty());
        let slow = told(link(5, "c1", 1_428_572));
        assert!(
            slow[0].starts_with("slow: link of host c1 (10.0.0.5@tcp0) at 36 % of its twins"),
            "{slow:?}"
        );
        let plain = told(link(5, "", 1_428_572));
        assert!(plain[0].starts_with("slow: link of host 10.0.0.5@tcp0 at 36 %"), "{plain:?}");
    }
}
