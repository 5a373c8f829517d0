//! Hosts as network namespaces, on nets that are bridges: several hosts' worth of network on one machine.
//!
//! A host has its own links, addresses, ports and host name. Its files and mounts are those of the machine, so that a test sees the mount of
//! every host. A link of a host has the name of its net (`tcp0`). Its other end is a port of the net's bridge, in a namespace that holds
//! all bridges, `switch`.
//! testkit-H1: nothing outside the namespaces is changed. Links, addresses, rates and cuts are inside them, and go with them.
//! testkit-H2: a name begins with `stria-PID-`. Dropping `Hosts` removes its namespaces. `Hosts::make` removes those of processes that are
//! gone, and ends what still runs in them.

pub mod config;
pub mod plan;
pub mod site;
mod tool;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

pub use plan::{Part, Plan, Route};
pub use site::Site;
use tool::{IP, NSENTER, TC, UNSHARE};

/// Begins the name of every namespace.
const PREFIX: &str = "stria-";
/// Host numbers are the last byte of an address; the bridge's hardware address uses 255.
const HOSTS_MAX: usize = 254;
/// Net numbers are the second byte of an address.
const NETS_MAX: u8 = 200;
const SWITCH: &str = "switch";
/// Bytes that a limited link sends at once, as a time at its rate: longer than a timer tick of any kernel.
const BURST_PER_SECOND: u64 = 100;
/// A packet of segmentation offload has up to 64 KiB and must fit the burst.
const BURST_BYTES_MIN: u64 = 256 << 10;
/// Longest time that a packet waits in a limited link.
const QUEUE: &str = "50ms";

/// The hosts to make, and the nets that each is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    hosts: Vec<(String, Vec<String>)>,
}

impl Spec {
    pub fn new() -> Spec {
        Spec::default()
    }

    /// One more host. Nets are `tcp0`, `tcp1` and so on; a net is made with its first host.
    #[must_use]
    pub fn host(mut self, name: &str, nets: &[&str]) -> Spec {
        self.hosts.push((name.to_owned(), nets.iter().map(|net| (*net).to_owned()).collect()));
        self
    }

    /// Names of the hosts, in order.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|(name, _)| name.as_str())
    }

    /// The nets that have hosts, in the order of their numbers.
    pub fn nets(&self) -> Vec<&str> {
        let numbered = self.hosts.iter().flat_map(|(_, nets)| nets).map(|net| (net_number(net).ok(), &**net));
        numbered.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// The address that a host will have on a net. It follows from the order of hosts: the third host on `tcp1` has 10.1.0.3.
    pub fn address(&self, host: &str, net: &str) -> io::Result<Ipv4Addr> {
        let at = self.hosts.iter().position(|(name, _)| name == host);
        let at = at.ok_or_else(|| unusable(format!("there is no host {host}")))?;
        if !self.hosts[at].1.iter().any(|n| n == net) {
            return Err(unusable(format!("host {host} is not on net {net}")));
        }
        Ok(Ipv4Addr::new(10, net_number(net)?, 0, at as u8 + 1))
    }

    /// `address:port@net`.
    pub fn nid(&self, host: &str, net: &str, port: u16) -> io::Result<String> {
        Ok(format!("{}:{port}@{net}", self.address(host, net)?))
    }

    fn check(&self) -> io::Result<()> {
        if self.hosts.len() > HOSTS_MAX {
            return Err(unusable(format!("{} hosts, and {HOSTS_MAX} is the most", self.hosts.len())));
        }
        for (n, (name, nets)) in self.hosts.iter().enumerate() {
            // The name is part of a path and of a certificate.
            if name.parse::<pki::Name>().is_err() || name == SWITCH {
                return Err(unusable(format!("{name:?} is no name of a host: a-z, 0-9 and '-'")));
            }
            if self.hosts[..n].iter().any(|(earlier, _)| earlier == name) {
                return Err(unusable(format!("there are two hosts {name}")));
            }
            for (m, net) in nets.iter().enumerate() {
                net_number(net)?;
                if nets[..m].contains(net) {
                    return Err(unusable(format!("host {name} is on net {net} twice")));
                }
            }
        }
        Ok(())
    }
}

fn net_number(net: &str) -> io::Result<u8> {
    let number = net.strip_prefix("tcp").and_then(|n| n.parse().ok());
    // `tcp01` would be a second name of `tcp1`.
    number.filter(|n| *n < NETS_MAX && net == format!("tcp{n}")).ok_or_else(|| {
        unusable(format!("{net:?} is no net that can be made: tcp0, tcp1 ... tcp{}", NETS_MAX - 1))
    })
}

fn unusable(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// A host that exists.
#[derive(Debug)]
pub struct Host {
    name: String,
    namespace: String,
    addresses: BTreeMap<String, Ipv4Addr>,
    number: usize,
    nsenter: PathBuf,
    unshare: PathBuf,
}

impl Host {
    pub fn name(&self) -> &str {
        &self.name
    }
    /// As `ip netns exec` takes it.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
    pub fn nets(&self) -> impl Iterator<Item = &str> {
        self.addresses.keys().map(String::as_str)
    }

    pub fn address(&self, net: &str) -> io::Result<Ipv4Addr> {
        let address = self.addresses.get(net).copied();
        address.ok_or_else(|| unusable(format!("host {} is not on net {net}", self.name)))
    }

    /// `address:port@net`.
    pub fn nid(&self, net: &str, port: u16) -> io::Result<String> {
        Ok(format!("{}:{port}@{net}", self.address(net)?))
    }

    /// A program on this host. The process that is spawned becomes the program, so its pid is the program's. Only its network and its host
    /// name are the host's: a mount that it makes is seen everywhere.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.nsenter);
        command.arg(format!("--net={}", path_of(&self.namespace).display())).arg("--");
        command.arg(&self.unshare).args(["--uts", "--", "sh", "-c"]);
        command.args(["echo \"$0\" >/proc/sys/kernel/hostname && exec \"$@\"", &self.name]);
        command.arg(program);
        command
    }

    fn link(&self, net: &str) -> io::Result<(&str, String)> {
        let (net, _) = self
            .addresses
            .get_key_value(net)
            .ok_or_else(|| unusable(format!("host {} is not on net {net}", self.name)))?;
        Ok((net, format!("{net}-{}", self.number)))
    }
}

fn path_of(namespace: &str) -> PathBuf {
    Path::new(tool::NAMESPACES).join(namespace)
}

/// Hosts and their nets, until they are dropped.
#[derive(Debug)]
pub struct Hosts {
    spec: Spec,
    hosts: Vec<Host>,
    switch: String,
}

static STALE: Once = Once::new();
/// Several `Hosts` of one process have different names.
static SERIAL: AtomicU32 = AtomicU32::new(0);

impl Hosts {
    /// Makes them. Fails, and leaves nothing, if the process is not root or a program is missing.
    pub fn make(spec: &Spec) -> io::Result<Hosts> {
        spec.check()?;
        tool::check()?;
        // Before the first namespace of this process: those that have its pid in their name are an earlier process's, too.
        STALE.call_once(|| tool::remove_stale(true));
        tool::remove_stale(false);

        let prefix = format!("{PREFIX}{}-{}-", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let (nsenter, unshare) = (NSENTER.path()?, UNSHARE.path()?);
        let host = |(at, (name, nets)): (usize, &(String, Vec<String>))| -> io::Result<Host> {
            let addresses = nets.iter().map(|net| Ok((net.clone(), spec.address(name, net)?)));
            Ok(Host {
                name: name.clone(),
                namespace: format!("{prefix}{name}"),
                addresses: addresses.collect::<io::Result<_>>()?,
                number: at + 1,
                nsenter: nsenter.clone(),
                unshare: unshare.clone(),
            })
        };
        let hosts = spec.hosts.iter().enumerate().map(host).collect::<io::Result<_>>()?;
        let made = Hosts { spec: spec.clone(), hosts, switch: format!("{prefix}{SWITCH}") };
        // `Drop` removes the namespaces that an error leaves.
        made.make_nets()?;
        made.hosts.iter().try_for_each(|host| made.make_host(host))?;
        Ok(made)
    }

    fn make_nets(&self) -> io::Result<()> {
        let switch = &self.switch;
        IP.run(&["netns", "add", switch])?;
        for net in self.spec.nets() {
            let address = bridge_address(net)?;
            IP.run(&["-n", switch, "link", "add", net, "address", &address, "type", "bridge"])?;
            IP.run(&["-n", switch, "link", "set", net, "up"])?;
        }
        Ok(())
    }

    fn make_host(&self, host: &Host) -> io::Result<()> {
        let (switch, ns) = (&*self.switch, &*host.namespace);
        IP.run(&["netns", "add", ns])?;
        IP.run(&["-n", ns, "link", "set", "lo", "up"])?;
        for (net, address) in &host.addresses {
            let (_, port) = host.link(net)?;
            let address = format!("{address}/24");
            IP.run(&["-n", ns, "link", "add", net, "type", "veth", "peer", "name", &port, "netns", switch])?;
            IP.run(&["-n", switch, "link", "set", &port, "master", net, "up"])?;
            IP.run(&["-n", ns, "addr", "add", &address, "dev", net])?;
            IP.run(&["-n", ns, "link", "set", net, "up"])?;
        }
        Ok(())
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }
    /// All hosts, in the order of the specification.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }
    pub fn host(&self, name: &str) -> io::Result<&Host> {
        let host = self.hosts.iter().find(|host| host.name == name);
        host.ok_or_else(|| unusable(format!("there is no host {name}")))
    }

    /// Limits a host's link to so many MiB per second, each direction by itself. `None`: no limit.
    pub fn set_rate(&self, host: &str, net: &str, mib_per_second: Option<u64>) -> io::Result<()> {
        let host = self.host(host)?;
        let (net, port) = host.link(net)?;
        for (ns, device) in [(&host.namespace, net), (&self.switch, &port)] {
            // Each end limits what it sends. A missing discipline is no error.
            TC.run(&["-n", ns, "qdisc", "del", "dev", device, "root"]).ok();
            let Some(rate) = mib_per_second else { continue };
            if rate == 0 {
                return Err(unusable("a rate of 0 MiB/s; take the link down instead".into()));
            }
            let bytes = rate << 20;
            let (bits, burst) = (bytes * 8, (bytes / BURST_PER_SECOND).max(BURST_BYTES_MIN));
            let (bits, burst) = (format!("{bits}bit"), burst.to_string());
            let limit = ["rate", &bits, "burst", &burst, "latency", QUEUE];
            TC.run(&[&["-n", ns, "qdisc", "add", "dev", device, "root", "tbf"], &limit[..]].concat())?;
        }
        Ok(())
    }

    /// The bridge's port of the link goes down: the host's packets are lost and nothing reaches it. Its own addresses and routes stay.
    pub fn link_down(&self, host: &str, net: &str) -> io::Result<()> {
        let (_, port) = self.host(host)?.link(net)?;
        IP.run(&["-n", &self.switch, "link", "set", &port, "down"])
    }

    pub fn link_up(&self, host: &str, net: &str) -> io::Result<()> {
        let (_, port) = self.host(host)?.link(net)?;
        IP.run(&["-n", &self.switch, "link", "set", &port, "up"])
    }

    /// Packets from one host to another are lost, on all nets that both are on. Those of the other direction arrive.
    ///
    /// They go to the hardware address of the bridge itself, which has no address of IP and drops them. The kernel's `ip route add blackhole`
    /// is an error at the sender, and it would show there before any time-out.
    pub fn blackhole(&self, from: &str, to: &str) -> io::Result<()> {
        self.each_common_net(from, to, |ns, net, address| {
            let bridge = bridge_address(net)?;
            IP.run(&[
                "-n",
                ns,
                "neigh",
                "replace",
                address,
                "lladdr",
                &bridge,
                "dev",
                net,
                "nud",
                "permanent",
            ])
        })
    }

    /// Ends `blackhole`.
    pub fn unblackhole(&self, from: &str, to: &str) -> io::Result<()> {
        self.each_common_net(from, to, |ns, net, address| {
            IP.run(&["-n", ns, "neigh", "del", address, "dev", net])
        })
    }

    fn each_common_net(
        &self,
        from: &str,
        to: &str,
        act: impl Fn(&str, &str, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        let (from, to) = (self.host(from)?, self.host(to)?);
        let common: Vec<&str> = from.nets().filter(|net| to.addresses.contains_key(*net)).collect();
        if common.is_empty() {
            return Err(unusable(format!("hosts {} and {} have no net in common", from.name, to.name)));
        }
        common.into_iter().try_for_each(|net| act(&from.namespace, net, &to.address(net)?.to_string()))
    }
}

/// A locally administered address that no host's link has, as their kernel draws them at random.
fn bridge_address(net: &str) -> io::Result<String> {
    Ok(format!("02:73:74:00:{:02x}:ff", net_number(net)?))
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().map(|host| &host.namespace).chain([&self.switch]) {
            // An error of `make` leaves some that were not made.
            if path_of(namespace).exists() {
                IP.run(&["netns", "delete", namespace]).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_the_order_of_hosts_and_the_number_of_the_net() {
        let spec = Spec::new().host("c0", &["tcp0"]).host("r0", &["tcp0", "tcp1"]).host("s0", &["tcp1"]);
        spec.check().unwrap();
        assert_eq!(spec.address("c0", "tcp0").unwrap(), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(spec.nid("r0", "tcp1", 7020).unwrap(), "10.1.0.2:7020@tcp1");
        assert_eq!(spec.nid("s0", "tcp1", 7010).unwrap(), "10.1.0.3:7010@tcp1");
        assert_eq!(spec.nets(), ["tcp0", "tcp1"]);
        assert_eq!(spec.address("s0", "tcp0").unwrap_err().to_string(), "host s0 is not on net tcp0");
        assert_eq!(spec.address("s1", "tcp1").unwrap_err().to_string(), "there is no host s1");
    }

    #[test]
    fn nets_are_in_the_order_of_their_numbers() {
        let spec = Spec::new().host("a", &["tcp10", "tcp2"]).host("b", &["tcp0", "tcp2"]);
        assert_eq!(spec.nets(), ["tcp0", "tcp2", "tcp10"]);
    }

    #[test]
    fn names_that_would_clash_or_make_no_path_are_refused() {
        let refused = |spec: Spec| spec.check().unwrap_err().to_string();
        let twice = Spec::new().host("a", &["tcp0"]).host("a", &["tcp1"]);
        assert_eq!(refused(twice), "there are two hosts a");
        assert!(refused(Spec::new().host("a/b", &[])).contains("is no name of a host"));
        assert!(refused(Spec::new().host("switch", &[])).contains("is no name of a host"));
        assert_eq!(refused(Spec::new().host("a", &["tcp0", "tcp0"])), "host a is on net tcp0 twice");
        for net in ["tcp01", "tcp200", "tcp", "o2ib", "tcp-1"] {
            assert!(refused(Spec::new().host("a", &[net])).contains("is no net that can be made"), "{net}");
        }
    }
}
