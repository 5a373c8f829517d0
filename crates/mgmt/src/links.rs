//! Finds the host, or the server, whose link is slower than its twins: a cable, a switch's port, a memory module.
//!
//! mgmt-S1: a host's link is slow at a server when both of its rates there are below `SLOW` of the median of the other hosts on the same
//! net. One rate is that of the link while at least one transfer comes, and the other that of each transfer. Of a server that all hosts
//! keep busy, the host with many transfers has the greater part, so by the first alone a host with one transfer would seem slow. By the
//! second alone a host would seem slow that shares its link among many transfers.
//! mgmt-S2: a link is judged only with at least `TWINS_MIN` on its net, itself among them, each with `BYTES_MIN` of late. An idle link is
//! never named, and no other is compared with it.
//! mgmt-S3: a host is named when at least half of the servers that can judge it find its link slow.
//! mgmt-S4: servers are compared as hosts are: by what one host sends to each of them. So a slow host makes no server slow.

use std::collections::BTreeMap;

/// Less than this share of the median of the others is a fault.
pub const SLOW: f64 = 0.6;
/// Links of one net that are measured.
pub const TWINS_MIN: usize = 3;
/// Less is chance.
pub const BYTES_MIN: u64 = 8 << 20;

/// Transfers of late from one host to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub server: String,
    pub net: String,
    /// The host's address.
    pub host: String,
    pub bytes: u64,
    /// Time of all transfers, and time in which at least one came.
    pub each_us: u64,
    pub any_us: u64,
}

/// The end that is slow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Host(String),
    Server(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SlowLink {
    pub end: End,
    pub net: String,
    /// Its rate as a share of the median of the others.
    pub share: f64,
}

/// Bytes and times of one among twins.
#[derive(Clone, Copy, Default)]
struct Sums {
    bytes: u64,
    each_us: u64,
    any_us: u64,
}

impl Sums {
    fn add(&mut self, link: &Link) {
        self.bytes += link.bytes;
        self.each_us += link.each_us;
        self.any_us += link.any_us;
    }
    fn rates(&self) -> [f64; 2] {
        [self.any_us, self.each_us].map(|us| self.bytes as f64 / us.max(1) as f64)
    }
}

/// The slow ones, slowest first.
pub fn slow_links(links: &[Link]) -> Vec<SlowLink> {
    let hosts = slow(links, |link| (&link.server, &link.host));
    let servers = slow(links, |link| (&link.host, &link.server));
    let hosts = hosts.into_iter().map(|(net, name, share)| SlowLink { end: End::Host(name), net, share });
    let servers =
        servers.into_iter().map(|(net, name, share)| SlowLink { end: End::Server(name), net, share });
    let mut found: Vec<SlowLink> = hosts.chain(servers).collect();
    found.sort_by(|a, b| a.share.total_cmp(&b.share).then_with(|| a.end.cmp(&b.end)));
    found
}

/// Net, name and share of slow ends. `ends`: the end of a link at which twins are compared, and the end that is one of the twins.
fn slow(links: &[Link], ends: impl Fn(&Link) -> (&String, &String)) -> Vec<(String, String, f64)> {
    let mut met = BTreeMap::<(&str, &str), BTreeMap<&str, Sums>>::new();
    for link in links {
        let (at, twin) = ends(link);
        met.entry((&link.net, at)).or_default().entry(twin).or_default().add(link);
    }
    // One share at each other end that can judge it.
    let mut judged = BTreeMap::<(&str, String), Vec<f64>>::new();
    for ((net, _), twins) in met {
        for (twin, share) in shares(&twins) {
            judged.entry((net, twin)).or_default().push(share);
        }
    }
    let slow = judged.into_iter().filter_map(|((net, twin), mut shares)| {
        shares.sort_by(f64::total_cmp);
        // mgmt-S3: if the greatest share of the lower half is slow, so is at least half.
        let share = shares[(shares.len() - 1) / 2];
        (share < SLOW).then(|| (net.to_owned(), twin, share))
    });
    slow.collect()
}

/// mgmt-S1, mgmt-S2: each one's rate as a share of the median of the others: the greater of the two shares.
fn shares(twins: &BTreeMap<&str, Sums>) -> Vec<(String, f64)> {
    let twins: Vec<(&str, [f64; 2])> = twins
        .iter()
        .filter(|(_, sums)| sums.bytes >= BYTES_MIN)
        .map(|(name, sums)| (*name, sums.rates()))
        .collect();
    if twins.len() < TWINS_MIN {
        return Vec::new();
    }
    let share = |at: usize, which: usize| {
        let others = twins.iter().enumerate().filter(|(other, _)| *other != at);
        let mut others: Vec<f64> = others.map(|(_, (_, rates))| rates[which]).collect();
        others.sort_by(f64::total_cmp);
        // Of an even number the lower of the two in the middle: one quick link makes no others slow.
        twins[at].1[which] / others[(others.len() - 1) / 2]
    };
    (0..twins.len()).map(|at| (twins[at].0.to_owned(), share(at, 0).max(share(at, 1)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// `(server, host, MiB, microseconds per MiB while any transfer comes, and of each)`
    fn link(&(server, host, mib, any, each): &(&str, &str, u64, u64, u64)) -> Link {
        Link {
            server: server.into(),
            net: "tcp0".into(),
            host: host.into(),
            bytes: mib * MIB,
            each_us: mib * each,
            any_us: mib * any,
        }
    }

    fn name(end: &End) -> String {
        let (End::Host(name) | End::Server(name)) = end;
        name.clone()
    }

    fn found(table: &[(&str, &str, u64, u64, u64)]) -> Vec<(String, u32)> {
        let links: Vec<Link> = table.iter().map(link).collect();
        slow_links(&links).iter().map(|s| (name(&s.end), (s.share * 100.0).round() as u32)).collect()
    }

    #[test]
    fn s1_a_link_is_named_that_is_slow_as_a_whole_and_in_each_transfer() {
        let none: &[(&str, u32)] = &[];
        // The third host's link, and what is named.
        let table = [
            ((50, 1000, 4000), none),
            // Its rates are 61 % and 59 % of the others'.
            ((50, 1640, 6780), none),
            ((50, 2857, 11_429), &[("c", 35)]),
            // The greater of 10 % and 51 %.
            ((50, 10_000, 8000), &[("c", 51)]),
            // One transfer at a time beside twins with four: slow as a whole, and not each.
            ((50, 4000, 4000), none),
            // Many transfers share its link.
            ((50, 1000, 16_000), none),
            // mgmt-S2: too little to tell.
            ((7, 10_000, 40_000), none),
            ((8, 10_000, 40_000), &[("c", 10)]),
            ((0, 0, 0), none),
        ];
        for ((mib, any, each), want) in table {
            let links = [("s", "a", 100, 1000, 4000), ("s", "b", 90, 1010, 4040), ("s", "c", mib, any, each)];
            let want: Vec<_> = want.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
            assert_eq!(found(&links), want, "{mib} MiB, {any} and {each} µs each");
        }
    }

    #[test]
    fn s2_two_links_of_a_net_are_not_judged() {
        let mut links = vec![("s", "a", 100, 1000, 4000), ("s", "c", 50, 9000, 36_000)];
        assert!(found(&links).is_empty());
        // An idle third one changes nothing, and one of another net neither.
        links.push(("s", "b", 1, 1000, 4000));
        assert!(found(&links).is_empty());
        let mut all: Vec<Link> = links.iter().map(link).collect();
        all.push(Link { net: "tcp1".into(), ..link(&("s", "d", 100, 1000, 4000)) });
        assert!(slow_links(&all).is_empty());
    }

    #[test]
    fn s3_a_host_is_named_by_half_of_its_servers() {
        let even = |server| [(server, "a", 50, 1000, 4000), (server, "b", 50, 1000, 4000)];
        let mut links = [even("s"), even("t"), even("u")].concat();
        links.extend([("s", "c", 50, 5000, 20_000), ("t", "c", 50, 1000, 4000), ("u", "c", 50, 1000, 4000)]);
        assert!(found(&links).is_empty(), "one of three");
        links[7] = ("t", "c", 50, 4000, 16_000);
        assert_eq!(found(&links), [("c".to_owned(), 25)]);
        // A server that it sent nothing does not judge it.
        links.truncate(7);
        assert_eq!(found(&links), [("c".to_owned(), 20)]);
    }

    #[test]
    fn s4_a_slow_server_is_named_and_a_slow_host_makes_none_slow() {
        let mut links = Vec::new();
        for (server, us) in [("s", 1000), ("t", 1020), ("u", 3000)] {
            links.extend(["a", "b", "c"].map(|host| (server, host, 20, us, 4 * us)));
        }
        let servers: Vec<Link> = links.iter().map(link).collect();
        let slow = slow_links(&servers);
        assert_eq!(slow.len(), 1, "{slow:?}");
        assert_eq!((&slow[0].end, (slow[0].share * 100.0).round() as u32), (&End::Server("u".into()), 34));
        // A slow host sends most of its bytes to one server.
        links.iter_mut().for_each(|l| (l.3, l.4) = (1000, 4000));
        links.extend(
            [("s", 10), ("t", 10), ("u", 900)].map(|(server, mib)| (server, "d", mib, 10_000, 40_000)),
        );
        assert_eq!(found(&links), [("d".to_owned(), 10)]);
    }
}
