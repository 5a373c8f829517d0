//! Ways from this host to a NID: straight on a net of its own, or by routers.
//!
//! Pure. A route leads from one net to one other by one router, so ways are paths in the graph of nets.
//! net-W1: a way visits no net twice and has at most `HOPS_MAX` routers.
//! net-W2: a NID on a net of this host is reached straight, never by a router.
//! net-W3: ways are ordered by the sum of their priorities, then by the number of routers. Ways that are alike there share the load.

use wire::map::Route;

/// Most routers in a row.
pub const HOPS_MAX: usize = 4;
/// Most ways that are tried to one NID.
const WAYS_MAX: usize = 16;

/// The routers to pass, by their NIDs; none: straight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    pub hops: Vec<String>,
    /// Ways of an equal rank share the load.
    pub rank: (u32, usize),
}

/// The nets of this host, and the routes that it knows.
#[derive(Clone, Debug, Default)]
pub struct Routing {
    /// Empty: not told.
    own: Vec<String>,
    /// From this host's configuration: it must reach the MGS before it has a map.
    given: Vec<Route>,
    of_map: Vec<Route>,
}

/// The net of a NID.
pub fn net_of(nid: &str) -> &str {
    match nid.rsplit_once('@') {
        Some((_, "tcp")) | None => "tcp0",
        Some((_, net)) => net,
    }
}

impl Routing {
    pub fn new(own: Vec<String>, given: Vec<Route>) -> Routing {
        Routing { own, given, of_map: vec![] }
    }

    /// Replaces the routes of the map.
    pub fn set_map(&mut self, routes: &[Route]) {
        if self.of_map != routes {
            self.of_map = routes.to_vec();
        }
    }

    /// The nets that this host is on: as configured, else those of the routers that it was given. Empty: not told.
    pub fn own_nets(&self) -> Vec<String> {
        if !self.own.is_empty() {
            return self.own.clone();
        }
        let mut nets: Vec<String> = self.given.iter().map(|r| net_of(&r.gateway).to_string()).collect();
        // The second router of a chain is on no net of this host.
        nets.retain(|net| !self.given.iter().any(|r| r.to == *net));
        nets.sort();
        nets.dedup();
        nets
    }

    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.given.iter().chain(self.of_map.iter().filter(|r| !self.given.contains(r)))
    }

    /// The ways to a NID, best first. A host that was not told its nets is taken to be on all of them.
    pub fn ways(&self, nid: &str) -> Vec<Way> {
        let own = self.own_nets();
        let to = net_of(nid);
        let straight = Way { hops: vec![], rank: (0, 0) };
        if own.is_empty() || to.starts_with("local") || own.iter().any(|net| net == to) {
            return vec![straight];
        }
        let mut found = Vec::new();
        for net in &own {
            self.walk(net, to, &mut vec![net], &mut vec![], 0, &mut found);
        }
        found.sort_by(|a: &Way, b| (a.rank, &a.hops).cmp(&(b.rank, &b.hops)));
        found.dedup();
        found.truncate(WAYS_MAX);
        debug_assert!(found.iter().all(|w| (1..=HOPS_MAX).contains(&w.hops.len())), "net-W1");
        found
    }

    /// Depth first: goes on from `at` by every route.
    fn walk<'a>(
        &'a self,
        at: &'a str,
        to: &str,
        nets: &mut Vec<&'a str>,
        hops: &mut Vec<&'a str>,
        priority: u32,
        found: &mut Vec<Way>,
    ) {
        if at == to {
            let hops: Vec<String> = hops.iter().map(|hop| hop.to_string()).collect();
            found.push(Way { rank: (priority, hops.len()), hops });
            return;
        }
        if hops.len() == HOPS_MAX || found.len() >= 4 * WAYS_MAX {
            return;
        }
        for route in self.routes().filter(|r| net_of(&r.gateway) == at) {
            // net-W1.
            if nets.contains(&route.to.as_str()) {
                continue;
            }
            nets.push(&route.to);
            hops.push(&route.gateway);
            self.walk(&route.to, to, nets, hops, priority.saturating_add(route.priority), found);
            hops.pop();
            nets.pop();
        }
    }
}

/// Reads `NET via NID [priority N]`, as a configuration has it, or `NET=NID`, as a mount option has it.
pub fn parse_route(text: &str) -> Result<Route, String> {
    let bad = |why: &str| format!("'{text}' is no route: {why}; write tcp1 via 10.0.0.9:7020@tcp0");
    let words: Vec<&str> = match text.split_once('=') {
        Some((to, gateway)) => vec![to, "via", gateway],
        None => text.split_whitespace().collect(),
    };
    let (to, gateway, priority) = match words[..] {
        [to, "via", gateway] => (to, gateway, 0),
        [to, "via", gateway, "priority", n] => {
            (to, gateway, n.parse().map_err(|_| bad("the priority is no number"))?)
        }
        _ => return Err(bad("it has other words")),
    };
    check_net(to).map_err(|why| bad(&why))?;
    let nid = crate::nid::Nid::parse(gateway).map_err(|e| bad(&e.to_string()))?;
    let route = Route { to: to.to_string(), gateway: nid.to_string(), priority };
    match net_of(&route.gateway) == to {
        true => Err(bad("the router's NID is on the net that it leads to; give its NID on the near net")),
        false => Ok(route),
    }
}

/// Refuses a text that names no net of TCP.
pub fn check_net(net: &str) -> Result<(), String> {
    match net.strip_prefix("tcp").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        true => Ok(()),
        false => Err(format!("'{net}' is no net; known: tcp0, tcp1, ...")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Route {
        parse_route(text).expect("a route")
    }
    fn routing(own: &[&str], given: &[&str], of_map: &[&str]) -> Routing {
        let all = |texts: &[&str]| texts.iter().map(|t| route(t)).collect::<Vec<_>>();
        let mut routing = Routing::new(own.iter().map(|n| n.to_string()).collect(), all(given));
        routing.set_map(&all(of_map));
        routing
    }
    fn hops(routing: &Routing, nid: &str) -> Vec<Vec<String>> {
        routing.ways(nid).into_iter().map(|w| w.hops).collect()
    }
    const NONE: [&str; 0] = [];

    #[test]
    fn a_host_that_was_not_told_its_nets_dials_straight() {
        assert_eq!(hops(&routing(&[], &[], &["tcp1 via r:1@tcp0"]), "h:1@tcp1"), [NONE]);
    }

    #[test]
    fn own_nets_are_reached_straight_and_others_by_routers_alone() {
        let r = routing(&["tcp0"], &[], &["tcp1 via r:1@tcp0", "tcp0 via r:1@tcp1"]);
        assert_eq!(hops(&r, "h:1@tcp0"), [NONE]);
        assert_eq!(hops(&r, "h:1"), [NONE]);
        assert_eq!(hops(&r, "unix:/x@local0"), [NONE]);
        assert_eq!(hops(&r, "h:1@tcp1"), [["r:1@tcp0"]]);
        assert!(hops(&r, "h:1@tcp2").is_empty());
    }

    #[test]
    fn chains_are_found_and_ranked_by_priority_then_length() {
        let r = routing(
            &["tcp0"],
            &[],
            &["tcp1 via a:1@tcp0", "tcp2 via b:1@tcp1", "tcp2 via c:1@tcp0 priority 5", "tcp1 via d:1@tcp0"],
        );
        let want = [vec!["a:1@tcp0", "b:1@tcp1"], vec!["d:1@tcp0", "b:1@tcp1"], vec!["c:1@tcp0"]];
        assert_eq!(hops(&r, "h:1@tcp2"), want);
        let ways = r.ways("h:1@tcp2");
        assert_eq!(ways[0].rank, ways[1].rank);
        assert!(ways[1].rank < ways[2].rank);
    }

    #[test]
    fn nets_follow_from_given_routers() {
        let r = routing(&[], &["tcp1 via a:1@tcp0", "tcp2 via b:1@tcp1"], &[]);
        assert_eq!(r.own_nets(), ["tcp0"]);
        assert_eq!(hops(&r, "h:1@tcp2"), [["a:1@tcp0", "b:1@tcp1"]]);
    }

    #[test]
    fn circles_end() {
        let texts: Vec<String> = (0..6)
            .flat_map(|a| {
                (0..6).filter(move |b| a != *b).map(move |b| format!("tcp{b} via r{a}{b}:1@tcp{a}"))
            })
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let r = routing(&["tcp0"], &[], &texts);
        let ways = r.ways("h:1@tcp5");
        assert_eq!(ways[0].hops, ["r05:1@tcp0"]);
        assert_eq!(ways.len(), WAYS_MAX);
        assert!(ways.iter().all(|w| w.hops.len() <= HOPS_MAX));
    }

    #[test]
    fn routes_are_read_or_refused_with_the_form() {
        assert_eq!(route("tcp1=10.0.0.9:7020@tcp0"), route("tcp1 via 10.0.0.9:7020@tcp0"));
        assert_eq!(route("tcp1 via 10.0.0.9:7020 priority 3").gateway, "10.0.0.9:7020@tcp0");
        for text in [
            "",
            "tcp1",
            "o2ib via h:1",
            "tcp1 via h",
            "tcp0 via h:1@tcp0",
            "tcp1 via h:1 priority x",
            "tcp via h:1@tcp1",
        ] {
            assert!(parse_route(text).expect_err(text).contains("write tcp1 via"), "{text}");
        }
    }
}
