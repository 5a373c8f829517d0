//! The plan of a site: its hosts, and the parts of Stria that run on each.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

use super::Spec;

/// Port of the first management service. A host may have several, each with the next port.
const MGS_PORT: u16 = 7010;
/// Port of a router, on each of its nets.
pub const ROUTER_PORT: u16 = 7020;
/// Ports of the metadata server and of the object servers of the first file system; each further one has the next.
const MDS_PORT: u16 = 7100;
const OSS_PORT: u16 = 7300;
/// The same for servers of second members.
const SECOND_MDS_PORT: u16 = 7500;
const SECOND_OSS_PORT: u16 = 7700;
/// Servers of all file systems keep within the ports above.
const FILE_SYSTEMS_MAX: usize = 200;
const CLUSTERS_MAX: usize = 10;

/// A process of a site. A file system is named with its cluster, `alpha/work`: clusters may have file systems of the same name.
///
/// The order is that of a start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Router {
        host: String,
    },
    Mgs {
        cluster: String,
    },
    /// `second`: it has the second member of each mirror.
    Mds {
        fs: String,
        second: bool,
    },
    Oss {
        fs: String,
        host: String,
        second: bool,
    },
    Mount {
        fs: String,
        host: String,
    },
}

impl Part {
    pub fn router(host: &str) -> Part {
        Part::Router { host: host.into() }
    }
    pub fn mgs(cluster: &str) -> Part {
        Part::Mgs { cluster: cluster.into() }
    }
    pub fn mds(fs: &str) -> Part {
        Part::Mds { fs: fs.into(), second: false }
    }
    pub fn oss(fs: &str, host: &str) -> Part {
        Part::Oss { fs: fs.into(), host: host.into(), second: false }
    }
    pub fn second_mds(fs: &str) -> Part {
        Part::Mds { fs: fs.into(), second: true }
    }
    pub fn second_oss(fs: &str, host: &str) -> Part {
        Part::Oss { fs: fs.into(), host: host.into(), second: true }
    }

    pub fn is_second(&self) -> bool {
        matches!(self, Part::Mds { second: true, .. } | Part::Oss { second: true, .. })
    }
    pub fn mount(fs: &str, host: &str) -> Part {
        Part::Mount { fs: fs.into(), host: host.into() }
    }

    /// The command that runs it.
    pub fn verb(&self) -> &'static str {
        match self {
            Part::Router { .. } => "router",
            Part::Mgs { .. } => "mgs",
            Part::Mds { .. } => "mds",
            Part::Oss { .. } => "oss",
            Part::Mount { .. } => "mount",
        }
    }

    /// The cluster, and the file system in it. A router belongs to none, and a management service to no file system.
    pub fn place(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Part::Router { .. } => (None, None),
            Part::Mgs { cluster } => (Some(cluster), None),
            Part::Mds { fs, .. } | Part::Oss { fs, .. } | Part::Mount { fs, .. } => {
                let (cluster, name) = split(fs);
                (Some(cluster), Some(name))
            }
        }
    }

    /// Begins the names of its files, in the folder of its host.
    pub fn file_stem(&self) -> String {
        let (cluster, name) = self.place();
        let words = [Some(self.verb()), self.is_second().then_some("2"), cluster, name];
        words.into_iter().flatten().collect::<Vec<_>>().join("-")
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Router { host } => write!(f, "router on {host}"),
            Part::Mgs { cluster } => write!(f, "mgs of {cluster}"),
            Part::Mds { fs, second: false } => write!(f, "mds of {fs}"),
            Part::Mds { fs, second: true } => write!(f, "second mds of {fs}"),
            Part::Oss { fs, host, second: false } => write!(f, "oss of {fs} on {host}"),
            Part::Oss { fs, host, second: true } => write!(f, "second oss of {fs} on {host}"),
            Part::Mount { fs, host } => write!(f, "mount of {fs} on {host}"),
        }
    }
}

/// `alpha/work` as cluster and name.
pub fn split(fs: &str) -> (&str, &str) {
    fs.split_once('/').unwrap_or((fs, ""))
}

#[derive(Clone, Debug)]
struct FileSystem {
    name: String,
    mds: String,
    oss: Vec<String>,
    /// Hosts of the second members: of the MDT, and of the OSTs of each server.
    second: Option<(String, Vec<String>)>,
}

/// A way from one net to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub router: String,
    pub to: String,
    /// NID of the router on the near net.
    pub gateway: String,
}

/// As a configuration has it.
impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} via {}", self.to, self.gateway)
    }
}

/// The hosts, clusters, file systems, mounts and routers of a site.
#[derive(Clone, Debug)]
pub struct Plan {
    spec: Spec,
    tls: bool,
    osts_per_server: usize,
    ost_size: String,
    clusters: Vec<(String, String)>,
    file_systems: Vec<FileSystem>,
    mounts: Vec<(String, String)>,
    routers: Vec<String>,
    more: BTreeMap<Part, String>,
    variables: BTreeMap<String, Vec<(String, String)>>,
    images: BTreeMap<String, String>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan::new()
    }
}

impl Plan {
    pub fn new() -> Plan {
        Plan {
            spec: Spec::new(),
            tls: true,
            osts_per_server: 2,
            ost_size: "2G".into(),
            clusters: Vec::new(),
            file_systems: Vec::new(),
            mounts: Vec::new(),
            routers: Vec::new(),
            more: BTreeMap::new(),
            variables: BTreeMap::new(),
            images: BTreeMap::new(),
        }
    }

    /// A host; parts name it.
    #[must_use]
    pub fn host(mut self, name: &str, nets: &[&str]) -> Plan {
        self.spec = self.spec.host(name, nets);
        self
    }
    /// A cluster: a CA of its own, and a management service on this host.
    #[must_use]
    pub fn cluster(mut self, name: &str, mgs_host: &str) -> Plan {
        self.clusters.push((name.into(), mgs_host.into()));
        self
    }
    /// A file system, `alpha/work`, with a metadata server and object servers on these hosts.
    #[must_use]
    pub fn fs(mut self, fs: &str, mds_host: &str, oss_hosts: &[&str]) -> Plan {
        let oss = oss_hosts.iter().map(|host| (*host).to_owned()).collect();
        self.file_systems.push(FileSystem { name: fs.into(), mds: mds_host.into(), oss, second: None });
        self
    }
    /// The file system named last is mirrored: these hosts have the second members of its MDT, and of the OSTs of each object server.
    #[must_use]
    pub fn mirrored(mut self, mds_host: &str, oss_hosts: &[&str]) -> Plan {
        let oss: Vec<String> = oss_hosts.iter().map(|host| (*host).to_owned()).collect();
        let fs = self.file_systems.last_mut().expect("a file system is named first");
        assert_eq!(oss.len(), fs.oss.len(), "each object server has one for its second members");
        fs.second = Some((mds_host.into(), oss));
        self
    }
    /// A mount of a file system on a host.
    #[must_use]
    pub fn mount(mut self, fs: &str, host: &str) -> Plan {
        self.mounts.push((fs.into(), host.into()));
        self
    }
    /// A router on a host, with certificates of all clusters. All hosts know the routes.
    #[must_use]
    pub fn router(mut self, host: &str) -> Plan {
        self.routers.push(host.into());
        self
    }
    /// Processes say `tls = "off"`.
    #[must_use]
    pub fn without_tls(mut self) -> Plan {
        self.tls = false;
        self
    }
    /// OSTs of each object server: sparse files of this size, as `size` takes it.
    #[must_use]
    pub fn osts(mut self, per_server: usize, size: &str) -> Plan {
        (self.osts_per_server, self.ost_size) = (per_server, size.into());
        self
    }
    /// Lines that are added to the configuration of a part.
    #[must_use]
    pub fn more(mut self, part: Part, lines: &str) -> Plan {
        let text = self.more.entry(part).or_default();
        text.push_str(lines.trim_end());
        text.push('\n');
        self
    }
    /// An environment variable for all parts and commands on a host.
    #[must_use]
    pub fn variable(mut self, host: &str, name: &str, value: &str) -> Plan {
        self.variables.entry(host.into()).or_default().push((name.into(), value.into()));
        self
    }

    /// Images of the servers on a host lie in this folder of its own, where another file system can be mounted.
    #[must_use]
    pub fn images_in(mut self, host: &str, folder: &str) -> Plan {
        self.images.insert(host.into(), folder.into());
        self
    }

    pub fn spec(&self) -> &Spec {
        &self.spec
    }
    pub fn has_tls(&self) -> bool {
        self.tls
    }
    pub fn osts_per_server(&self) -> usize {
        self.osts_per_server
    }
    pub fn ost_size(&self) -> &str {
        &self.ost_size
    }
    pub fn more_of(&self, part: &Part) -> &str {
        self.more.get(part).map_or("", String::as_str)
    }
    pub fn image_folder(&self, host: &str) -> &str {
        self.images.get(host).map_or("", String::as_str)
    }
    pub fn variables_of(&self, host: &str) -> &[(String, String)] {
        self.variables.get(host).map_or(&[], Vec::as_slice)
    }
    /// Names of the clusters, each with the host of its management service.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.clusters.iter().map(|(name, host)| (name.as_str(), host.as_str()))
    }

    /// All processes, in the order of a start.
    pub fn parts(&self) -> Vec<Part> {
        let routers = self.routers.iter().map(|host| Part::router(host));
        let mgs = self.clusters.iter().map(|(name, _)| Part::mgs(name));
        let mds = self.file_systems.iter().map(|fs| Part::mds(&fs.name));
        let of = |fs: &FileSystem| fs.oss.iter().map(|host| Part::oss(&fs.name, host)).collect::<Vec<_>>();
        let oss = self.file_systems.iter().flat_map(of);
        let second = |fs: &FileSystem| {
            let (_, oss) = fs.second.clone().unwrap_or_default();
            let mds = fs.second.iter().map(|_| Part::second_mds(&fs.name));
            mds.chain(oss.iter().map(|host| Part::second_oss(&fs.name, host))).collect::<Vec<_>>()
        };
        let seconds = self.file_systems.iter().flat_map(second);
        let mounts = self.mounts.iter().map(|(fs, host)| Part::mount(fs, host));
        routers.chain(mgs).chain(mds).chain(oss).chain(seconds).chain(mounts).collect()
    }

    pub fn host_of<'a>(&'a self, part: &'a Part) -> Result<&'a str> {
        let found = match part {
            Part::Router { host } | Part::Oss { host, .. } | Part::Mount { host, .. } => Some(host.as_str()),
            Part::Mgs { cluster } => self.clusters().find(|(name, _)| name == cluster).map(|(_, host)| host),
            Part::Mds { fs, second } => {
                let fs = self.file_systems.iter().find(|f| f.name == *fs);
                fs.and_then(
                    |fs| if *second { fs.second.as_ref().map(|s| s.0.as_str()) } else { Some(&*fs.mds) },
                )
            }
        };
        found.with_context(|| format!("the site has no {part}"))
    }

    /// Indices of the OSTs of an object server, in the order of its devices.
    pub fn indices_of(&self, part: &Part) -> Vec<usize> {
        let Part::Oss { fs, host, second } = part else { return vec![] };
        let fs = self.file_systems.iter().find(|f| f.name == *fs);
        let hosts = fs.and_then(|fs| if *second { fs.second.as_ref().map(|s| &s.1) } else { Some(&fs.oss) });
        let at = hosts.and_then(|hosts| hosts.iter().position(|h| h == host));
        let first = at.unwrap_or(0) * self.osts_per_server;
        (first..first + self.osts_per_server).collect()
    }

    /// The nets of a host.
    pub fn nets_of(&self, host: &str) -> Vec<&str> {
        self.spec.nets().into_iter().filter(|net| self.spec.address(host, net).is_ok()).collect()
    }

    /// The port of a part, on each of its host's nets. A mount has none.
    pub fn port(&self, part: &Part) -> Result<Option<u16>> {
        let fs = |wanted: &str| self.file_systems.iter().position(|fs| fs.name == wanted);
        let found = match part {
            Part::Mount { .. } => return Ok(None),
            Part::Router { .. } => Some(ROUTER_PORT),
            Part::Mgs { cluster } => {
                let at = self.clusters().position(|(name, _)| name == cluster);
                at.map(|at| MGS_PORT + at as u16)
            }
            Part::Mds { fs: name, second: false } => fs(name).map(|at| MDS_PORT + at as u16),
            Part::Mds { fs: name, second: true } => fs(name).map(|at| SECOND_MDS_PORT + at as u16),
            Part::Oss { fs: name, second: false, .. } => fs(name).map(|at| OSS_PORT + at as u16),
            Part::Oss { fs: name, second: true, .. } => fs(name).map(|at| SECOND_OSS_PORT + at as u16),
        };
        found.map(Some).with_context(|| format!("the site has no {part}"))
    }

    /// The NIDs of a part, in the order of its nets.
    pub fn nids(&self, part: &Part) -> Result<Vec<String>> {
        let (host, port) =
            (self.host_of(part)?, self.port(part)?.with_context(|| format!("{part} has no port"))?);
        self.nets_of(host).into_iter().map(|net| Ok(self.spec.nid(host, net, port)?)).collect()
    }

    /// One route for each router and each pair of its nets.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for router in &self.routers {
            let nids = self.nids(&Part::router(router))?;
            for gateway in &nids {
                for to in
                    self.nets_of(router).into_iter().filter(|net| !gateway.ends_with(&format!("@{net}")))
                {
                    routes.push(Route { router: router.clone(), to: to.into(), gateway: gateway.clone() });
                }
            }
        }
        Ok(routes)
    }

    /// The NIDs by which a host reaches a cluster's management service: those on a net of the host, or all if there are routers between.
    pub fn mgs_nids(&self, cluster: &str, from: &str) -> Result<Vec<String>> {
        let all = self.nids(&Part::mgs(cluster))?;
        let nets = self.nets_of(from);
        let is_near = |nid: &&String| nid.rsplit_once('@').is_some_and(|(_, net)| nets.contains(&net));
        let near: Vec<String> = all.iter().filter(is_near).cloned().collect();
        Ok(if near.is_empty() { all } else { near })
    }

    /// Every name that a part has must be there.
    pub fn check(&self) -> Result<()> {
        ensure!(self.clusters.len() <= CLUSTERS_MAX, "more than {CLUSTERS_MAX} clusters");
        ensure!(self.file_systems.len() <= FILE_SYSTEMS_MAX, "more than {FILE_SYSTEMS_MAX} file systems");
        let parts = self.parts();
        for (n, part) in parts.iter().enumerate() {
            ensure!(!parts[..n].contains(part), "there are two of {part}");
            let host = self.host_of(part)?;
            ensure!(self.spec.hosts().any(|h| h == host), "{part}: there is no host {host}");
            ensure!(!self.nets_of(host).is_empty(), "{part}: host {host} is on no net");
            let (cluster, name) = part.place();
            if let Some(cluster) = cluster {
                ensure!(self.clusters().any(|(c, _)| c == cluster), "{part}: there is no cluster {cluster}");
            }
            ensure!(name != Some(""), "{part}: name the file system with its cluster, as alpha/work");
            if let Part::Mount { fs, .. } = part {
                ensure!(parts.contains(&Part::mds(fs)), "{part}: there is no file system {fs}");
            }
        }
        match self.more.keys().find(|part| !parts.contains(part)) {
            Some(part) => anyhow::bail!("lines are added to {part}, which the site has not"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed() -> Plan {
        Plan::new()
            .host("c0", &["tcp0"])
            .host("r0", &["tcp0", "tcp1"])
            .host("s0", &["tcp1"])
            .host("s1", &["tcp1"])
            .cluster("alpha", "s0")
            .fs("alpha/work", "s0", &["s0", "s1"])
            .mount("alpha/work", "c0")
            .router("r0")
    }

    #[test]
    fn parts_come_in_the_order_of_a_start() {
        let parts = routed().parts();
        let names: Vec<String> = parts.iter().map(Part::to_string).collect();
        assert_eq!(
            names,
            [
                "router on r0",
                "mgs of alpha",
                "mds of alpha/work",
                "oss of alpha/work on s0",
                "oss of alpha/work on s1",
                "mount of alpha/work on c0"
            ]
        );
        assert!(parts.is_sorted());
    }

    #[test]
    fn a_host_learns_of_the_management_service_by_the_net_that_both_are_on() {
        let plan = routed();
        assert_eq!(plan.mgs_nids("alpha", "s1").unwrap(), ["10.1.0.3:7010@tcp1"]);
        // Through a router.
        assert_eq!(plan.mgs_nids("alpha", "c0").unwrap(), ["10.1.0.3:7010@tcp1"]);
        assert_eq!(plan.nids(&Part::router("r0")).unwrap(), ["10.0.0.2:7020@tcp0", "10.1.0.2:7020@tcp1"]);
        let plan = routed().cluster("beta", "r0");
        assert_eq!(plan.mgs_nids("beta", "c0").unwrap(), ["10.0.0.2:7011@tcp0"]);
    }

    #[test]
    fn a_plan_that_names_what_is_not_there_is_refused() {
        routed().check().unwrap();
        let refused = |plan: Plan| plan.check().unwrap_err().to_string();
        assert_eq!(refused(routed().router("r1")), "router on r1: there is no host r1");
        assert_eq!(refused(routed().router("r0")), "there are two of router on r0");
        let without = refused(routed().mount("alpha/home", "c0"));
        assert_eq!(without, "mount of alpha/home on c0: there is no file system alpha/home");
        assert_eq!(
            refused(routed().fs("beta/work", "s0", &[])),
            "mds of beta/work: there is no cluster beta"
        );
        let more = refused(routed().more(Part::mds("alpha/x"), "nets = []"));
        assert_eq!(more, "lines are added to mds of alpha/x, which the site has not");
    }
}
