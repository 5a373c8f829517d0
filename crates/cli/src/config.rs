//! The TOML files of `stria mgs|mds|oss|mount --config FILE`.
//!
//! Unknown keys are refused, so that a misspelt key cannot be ignored. `--print-config` prints the effective configuration with every
//! default and a comment on each key. Reading that text gives the same value.

mod etcd;
mod router;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use net::nid::{Address, BadNid, Nid, UNKNOWN_NET};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wire::map::Apart;

use crate::claims::{Groups, RootSquash};
use crate::exit::Failure;
use crate::nets::{Listen, Nets};
use crate::serve::metrics::check_address;
use types::Size;

pub use etcd::Keeping;
pub use router::{Cluster as RouterCluster, Router};

/// The default TCP port of an MGS.
pub const MGS_PORT: u16 = 7010;
/// Seconds after which an unanswered file operation fails with `ETIMEDOUT`.
pub const OP_TIMEOUT_SEC: u32 = 60;

/// How data moves between an OST and its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataIo {
    #[default]
    Auto,
    Direct,
    Cached,
}

impl From<DataIo> for disk::Io {
    fn from(io: DataIo) -> disk::Io {
        match io {
            DataIo::Auto => disk::Io::Auto,
            DataIo::Direct => disk::Io::Direct,
            DataIo::Cached => disk::Io::Cached,
        }
    }
}

/// The least memory for an MDT's records.
const MDT_CACHE_MIN: u64 = 1 << 20;

/// Parses the value of the option.
pub fn mdt_cache(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 < MDT_CACHE_MIN { Err("it must be at least 1M".into()) } else { Ok(size) }
}

/// A role's configuration.
pub trait Config: DeserializeOwned {
    /// An example for a commented configuration.
    fn example() -> Self;
    /// TOML with comments.
    fn print(&self) -> String;
    /// Checks the rules that the types cannot express.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mgs {
    #[serde(default = "mgs_listen")]
    pub listen: Listen,
    #[serde(default)]
    pub dir: Option<PathBuf>,
    #[serde(default)]
    pub etcd: Vec<String>,
    #[serde(default)]
    pub etcd_prefix: Option<String>,
    #[serde(default)]
    pub etcd_ca: Option<PathBuf>,
    #[serde(default)]
    pub etcd_cert: Option<PathBuf>,
    #[serde(default)]
    pub etcd_key: Option<PathBuf>,
    #[serde(default)]
    pub tls: Option<String>,
    #[serde(default)]
    pub metrics: Option<String>,
}

/// The failure domain that the two members of a mirror may not share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureDomain {
    None,
    #[default]
    Server,
    Rack,
}

impl FailureDomain {
    fn word(self) -> &'static str {
        match self {
            FailureDomain::None => "none",
            FailureDomain::Server => "server",
            FailureDomain::Rack => "rack",
        }
    }
}

impl From<FailureDomain> for Apart {
    fn from(domain: FailureDomain) -> Apart {
        match domain {
            FailureDomain::None => Apart::Nothing,
            FailureDomain::Server => Apart::Server,
            FailureDomain::Rack => Apart::Rack,
        }
    }
}

fn domain_keys(rack: &str, domain: FailureDomain) -> String {
    let comment =
        "Name of the rack, or of another thing that several servers lose together, such as a power feed.";
    let rack = key(comment, "rack", toml_of(rack));
    let comment = "A new second member here is refused if it shares this with the first one: \"server\", \"rack\" or \"none\".";
    rack + &key(comment, "failure_domain", toml_of(domain.word()))
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mds {
    pub mgs: Vec<String>,
    #[serde(default = "fsname")]
    pub fsname: String,
    pub device: PathBuf,
    #[serde(default)]
    pub second: bool,
    #[serde(default)]
    pub rack: String,
    #[serde(default)]
    pub failure_domain: FailureDomain,
    #[serde(default)]
    pub size: Option<Size>,
    #[serde(default = "any_port")]
    pub listen: Listen,
    #[serde(default)]
    pub nids: Vec<String>,
    #[serde(default)]
    pub groups: Groups,
    #[serde(default)]
    pub root_squash: Option<RootSquash>,
    #[serde(default)]
    pub mdt_cache: Option<Size>,
    #[serde(default)]
    pub nets: Vec<String>,
    #[serde(default)]
    pub routes: Vec<String>,
    #[serde(default)]
    pub tls: Option<String>,
    #[serde(default)]
    pub metrics: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oss {
    pub mgs: Vec<String>,
    #[serde(default = "fsname")]
    pub fsname: String,
    #[serde(default)]
    pub devices: Vec<PathBuf>,
    #[serde(default)]
    pub second_devices: Vec<PathBuf>,
    #[serde(default)]
    pub rack: String,
    #[serde(default)]
    pub failure_domain: FailureDomain,
    #[serde(default)]
    pub log_devices: Vec<PathBuf>,
    #[serde(default)]
    pub size: Option<Size>,
    #[serde(default = "any_port")]
    pub listen: Listen,
    #[serde(default)]
    pub nids: Vec<String>,
    #[serde(default)]
    pub io: DataIo,
    #[serde(default = "io_timeout_sec")]
    pub io_timeout_sec: u32,
    #[serde(default = "small_write_max")]
    pub small_write_max: Size,
    #[serde(default = "small_write_memory")]
    pub small_write_memory: Size,
    #[serde(default = "write_unit")]
    pub write_unit: Size,
    #[serde(default = "index_memory")]
    pub index_memory: Size,
    #[serde(default)]
    pub resync_rate: u32,
    #[serde(default)]
    pub nets: Vec<String>,
    #[serde(default)]
    pub routes: Vec<String>,
    #[serde(default)]
    pub tls: Option<String>,
    #[serde(default)]
    pub metrics: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    pub mgs: Vec<String>,
    #[serde(default = "fsname")]
    pub fsname: String,
    pub mountpoint: PathBuf,
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default, alias = "op_timeout")]
    pub op_timeout_sec: Option<u32>,
    #[serde(default)]
    pub nets: Vec<String>,
    #[serde(default)]
    pub routes: Vec<String>,
    #[serde(default)]
    pub tls: Option<String>,
    #[serde(default)]
    pub metrics: Option<String>,
}

/// The default is loopback: without TLS, any host that reaches a server's port has the rights that `SECURITY.md` describes.
fn mgs_listen() -> Listen {
    Listen(vec![format!("127.0.0.1:{MGS_PORT}")])
}
fn any_port() -> Listen {
    Listen(vec!["127.0.0.1:0".to_owned()])
}
fn fsname() -> String {
    "stria".to_owned()
}
fn io_timeout_sec() -> u32 {
    disk::PATIENCE.as_secs() as u32
}
fn small_write_max() -> Size {
    Size(store::Settings::default().patch_bytes_max.into())
}
fn small_write_memory() -> Size {
    Size(store::Settings::default().overlay_bytes_max)
}
fn write_unit() -> Size {
    Size(store::Settings::default().write_unit.into())
}
fn index_memory() -> Size {
    Size(store::Settings::default().index_bytes_max)
}

/// The example must run on one machine as it is printed.
fn example_mgs() -> Vec<String> {
    vec![format!("127.0.0.1:{MGS_PORT}@tcp0")]
}
const EXAMPLE_SIZE: Size = Size(8 << 30);

/// Reads and checks a configuration file.
pub fn read<C: Config>(path: &Path) -> Result<C, Failure> {
    let refuse = |why: String| Failure::unusable(path.display(), why, "see --print-config for the keys");
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    parse(&text).map_err(refuse)
}

pub fn parse<C: Config>(text: &str) -> Result<C, String> {
    let config: C = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    config.check()?;
    Ok(config)
}

/// A value as TOML; every value here can be expressed.
fn toml_of(value: &(impl Serialize + ?Sized)) -> String {
    toml::Value::try_from(value).expect("strings, numbers and lists of them have a TOML form").to_string()
}

/// A key with its comment. An absent value becomes a comment with an example.
pub fn key(comment: &str, name: &str, value: impl Display) -> String {
    format!("# {comment}\n{name} = {value}\n\n")
}
pub fn absent_key(comment: &str, name: &str, example: &str) -> String {
    format!("# {comment}\n# {name} = {example}\n\n")
}

fn size_key(size: Option<Size>) -> String {
    let comment = "Size of a device that does not exist yet: with --format it is made as a sparse file of this many bytes.";
    match size {
        Some(size) => key(comment, "size", toml_of(&size)),
        None => absent_key(comment, "size", "\"8G\""),
    }
}
fn mgs_key(nids: &[String]) -> String {
    key("NIDs of the management service, tried in order: address[:port][@net].", "mgs", toml_of(nids))
}
fn fsname_key(name: &str) -> String {
    key("Name of the file system.", "fsname", toml_of(name))
}
fn tls_key(tls: &Option<String>) -> String {
    let comment = "Folder with this host's certificate, from `stria cluster`, or \"off\". Default: /etc/stria/tls if it is there, else off, which a server accepts on loopback only.";
    match tls {
        Some(dir) => key(comment, "tls", toml_of(dir)),
        None => absent_key(comment, "tls", "\"/etc/stria/tls\""),
    }
}
fn metrics_key(metrics: &Option<String>) -> String {
    let comment = "Address:port of a page with numbers of this process for Prometheus, at /metrics (docs/metrics.md). It has no password: keep it on loopback, or behind a firewall.";
    match metrics {
        Some(address) => key(comment, "metrics", toml_of(address)),
        None => absent_key(comment, "metrics", "\"127.0.0.1:9710\""),
    }
}
fn listen_key(listen: &Listen) -> String {
    let comment = "Address:port[@net] to listen on, or a list with one for each net; port 0 takes a free one. For other hosts: this host's address (SECURITY.md).";
    key(comment, "listen", toml_of(listen))
}
/// The nets of a host that dials others.
fn nets_keys(nets: &[String], routes: &[String]) -> String {
    let comment = "Nets that this host is on; others are reached by routers. Empty: from `routes`, or all nets (docs/routers.md).";
    let own = key(comment, "nets", toml_of(nets));
    let comment =
        "Ways to the MGS by routers; the cluster map has the others: \"tcp1 via 10.0.0.9:7020@tcp0\".";
    own + &key(comment, "routes", toml_of(routes))
}
fn nids_key(nids: &[String]) -> String {
    let comment = "NIDs at which others reach this server, each address:port[@net]; empty: from `listen`, or the route to the MGS.";
    key(comment, "nids", toml_of(nids))
}

/// The rule of the management service, checked before anything is made.
pub fn check_fsname(name: &str) -> Result<(), String> {
    mgmt::check_fs_name(name).map_err(|fault| fault.detail)
}

fn check_mgs(nids: &[String]) -> Result<(), String> {
    if nids.is_empty() {
        return Err("`mgs` lists no NID".to_owned());
    }
    nids.iter().try_for_each(|nid| normal_nid(nid).map(drop))
}

fn check_listen(listen: &Listen) -> Result<(), String> {
    if listen.0.is_empty() {
        return Err("`listen` lists no address".to_owned());
    }
    listen
        .0
        .iter()
        .try_for_each(|address| Nid::parse(address).map(drop).map_err(|e| format!("`listen`: {e}")))
}

/// A server's own NIDs go into the cluster map unchanged. They have no default port.
fn check_nids(nids: &[String]) -> Result<(), String> {
    nids.iter().try_for_each(|nid| match Nid::parse(nid) {
        Ok(Nid { address: Address::Tcp(address), .. }) if address.ends_with(":0") => {
            Err(format!("`nids`: {nid:?} has port 0, which no client can reach; give the port of `listen`"))
        }
        Ok(_) => Ok(()),
        Err(e) => Err(format!("`nids`: {e}")),
    })
}

/// A NID in full: `10.0.0.5` becomes `10.0.0.5:7010@tcp0`. Unix NIDs (`unix:/path@local0`) stay unchanged. Unreachable NIDs are refused
/// here, so that no client waits for them.
pub fn normal_nid(text: &str) -> Result<String, String> {
    let (address, net) =
        text.rsplit_once('@').unwrap_or((text, if text.starts_with("unix:") { "local0" } else { "tcp0" }));
    if address.is_empty() || net.is_empty() {
        return Err(format!(
            "'{text}' is no NID: write address[:port][@net], such as 10.0.0.5:{MGS_PORT}@tcp0"
        ));
    }
    if let Some((kind, port)) = net.split_once(':') {
        return Err(format!(
            "'{text}' is no NID: the port stands before the net; write {address}:{port}@{kind}"
        ));
    }
    let has_port = address.starts_with("unix:")
        || address.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || host.starts_with('['))
        });
    // The kernel module calls this net `tcp`; Stria calls it `tcp0`.
    let net = if net == "tcp" { "tcp0" } else { net };
    let full = match (has_port, address.contains(':') && !address.starts_with('[')) {
        (true, _) => format!("{address}@{net}"),
        // An IPv6 literal, without regard to its zone. Otherwise the colon was meant for a port.
        (false, true) if is_ipv6(address) => format!("[{address}]:{MGS_PORT}@{net}"),
        (false, true) => return Err(format!("'{text}' is no NID: the port is no number from 1 to 65535")),
        (false, false) => format!("{address}:{MGS_PORT}@{net}"),
    };
    match Nid::parse(&full) {
        Ok(Nid { address: Address::Tcp(address), .. }) if address.ends_with(":0") => {
            Err(format!("'{text}' is no NID: port 0 cannot be reached"))
        }
        Ok(_) => Ok(full),
        Err(BadNid { why: UNKNOWN_NET, .. }) => {
            Err(format!("'{text}' is no NID: net {net} is not supported, known: tcp (tcp0, tcp1, ...)"))
        }
        Err(BadNid { why, .. }) => Err(format!("'{text}' is no NID: {why}")),
    }
}

fn is_ipv6(address: &str) -> bool {
    address.split('%').next().is_some_and(|literal| literal.parse::<std::net::Ipv6Addr>().is_ok())
}

impl Config for Mds {
    fn example() -> Mds {
        Mds {
            mgs: example_mgs(),
            fsname: fsname(),
            device: "/var/lib/stria/mdt.img".into(),
            second: false,
            rack: String::new(),
            failure_domain: FailureDomain::default(),
            size: Some(EXAMPLE_SIZE),
            listen: any_port(),
            nids: vec![],
            groups: Groups::Client,
            root_squash: None,
            mdt_cache: None,
            nets: vec![],
            routes: vec![],
            tls: None,
            metrics: None,
        }
    }
    fn print(&self) -> String {
        let head = "# stria mds --config FILE: a metadata server with one MDT.\n\n";
        let comment = "Block device or file of the MDT. A blank one is formatted with --format; foreign content is refused.";
        let device = key(comment, "device", toml_of(&self.device));
        let comment = "True: a new device becomes the second member of the MDT's mirror, beside the one on another server. Looked at once, when it registers.";
        let second = key(comment, "second", self.second);
        let (mgs, name) = (mgs_key(&self.mgs), fsname_key(&self.fsname));
        let claims = crate::claims::keys(self.groups, self.root_squash);
        let comment = "Memory for the MDT's records: it caches those used lately, and all are on the device. Default: a quarter of the machine's.";
        let cache = match &self.mdt_cache {
            Some(size) => key(comment, "mdt_cache", toml_of(size)),
            None => absent_key(comment, "mdt_cache", "\"4G\""),
        };
        [
            head,
            &*mgs,
            &name,
            &device,
            &second,
            &domain_keys(&self.rack, self.failure_domain),
            &size_key(self.size),
            &listen_key(&self.listen),
            &nids_key(&self.nids),
            &claims,
            &cache,
            &nets_keys(&self.nets, &self.routes),
            &tls_key(&self.tls),
            &metrics_key(&self.metrics),
        ]
        .concat()
    }
    fn check(&self) -> Result<(), String> {
        Nets::of(&self.nets, &self.routes)?;
        check_address(self.metrics.as_ref())?;
        check_mgs(&self.mgs)?;
        check_fsname(&self.fsname)?;
        check_listen(&self.listen)?;
        if self.mdt_cache.is_some_and(|size| size.0 < MDT_CACHE_MIN) {
            return Err("`mdt_cache` must be at least 1M".to_owned());
        }
        check_nids(&self.nids)
    }
}

impl Config for Oss {
    fn example() -> Oss {
        Oss {
            mgs: example_mgs(),
            fsname: fsname(),
            devices: vec!["/var/lib/stria/ost0.img".into(), "/var/lib/stria/ost1.img".into()],
            second_devices: vec![],
            rack: String::new(),
            failure_domain: FailureDomain::default(),
            log_devices: vec![],
            size: Some(EXAMPLE_SIZE),
            listen: any_port(),
            nids: vec![],
            io: DataIo::default(),
            io_timeout_sec: io_timeout_sec(),
            small_write_max: small_write_max(),
            small_write_memory: small_write_memory(),
            write_unit: write_unit(),
            index_memory: index_memory(),
            resync_rate: 0,
            nets: vec![],
            routes: vec![],
            tls: None,
            metrics: None,
        }
    }
    fn print(&self) -> String {
        let head = "# stria oss --config FILE: an object storage server, one OST per device.\n\n";
        let comment = "Block devices or files, one OST each. Blank ones are formatted with --format; foreign content is refused.";
        let devices = key(comment, "devices", toml_of(&self.devices));
        let comment = "Devices of second members: each doubles the OST on another server that has the index with which `stria mkfs ost --index` made it.";
        let seconds = key(comment, "second_devices", toml_of(&self.second_devices));
        let comment = "Devices with the logs of OSTs that were made with --log-device, in any order: each is found by its uuid.";
        let logs = key(comment, "log_devices", toml_of(&self.log_devices));
        let (mgs, name) = (mgs_key(&self.mgs), fsname_key(&self.fsname));
        let comment = "How data goes to a device: \"direct\" bypasses the page cache, \"cached\" uses it, \"auto\" is direct only for block devices.";
        let io = key(comment, "io", toml_of(&self.io));
        let comment = "Seconds without progress of a direct read or write after which the device counts as hung and the operation fails.";
        let patience = key(comment, "io_timeout_sec", self.io_timeout_sec);
        let comment =
            "Overwrites of fewer bytes go to the log first and are destaged later, many at once; 0: none.";
        let small = key(comment, "small_write_max", toml_of(&self.small_write_max));
        let comment = "Memory of each OST for such writes until they are destaged; half of its log at most.";
        let memory = key(comment, "small_write_memory", toml_of(&self.small_write_memory));
        let comment =
            "Destaging writes multiples of this: the drive's own unit of writing (64K of some QLC drives).";
        let unit = key(comment, "write_unit", toml_of(&self.write_unit));
        let comment = "Memory of each OST for its object index: objects used lately, and changes until the next checkpoint.";
        let index = key(comment, "index_memory", toml_of(&self.index_memory));
        let comment = "Most MiB per second that an OST gives to the other member of its mirror while that one is filled; 0: no limit.";
        let resync = key(comment, "resync_rate", self.resync_rate);
        [
            head,
            &*mgs,
            &name,
            &devices,
            &seconds,
            &domain_keys(&self.rack, self.failure_domain),
            &logs,
            &size_key(self.size),
            &listen_key(&self.listen),
            &nids_key(&self.nids),
            &io,
            &patience,
            &small,
            &memory,
            &unit,
            &index,
            &resync,
            &nets_keys(&self.nets, &self.routes),
            &tls_key(&self.tls),
            &metrics_key(&self.metrics),
        ]
        .concat()
    }
    fn check(&self) -> Result<(), String> {
        Nets::of(&self.nets, &self.routes)?;
        check_address(self.metrics.as_ref())?;
        check_mgs(&self.mgs)?;
        check_fsname(&self.fsname)?;
        check_listen(&self.listen)?;
        check_nids(&self.nids)?;
        // A larger write does not fit a log entry.
        if self.small_write_max.0 > 1 << 20 {
            return Err("`small_write_max` must be 1M at most".to_owned());
        }
        if !self.write_unit.0.is_power_of_two() || !(4096..=1 << 22).contains(&self.write_unit.0) {
            return Err("`write_unit` must be a power of two from 4K to 4M".to_owned());
        }
        if self.index_memory.0 < 1 << 20 {
            return Err("`index_memory` must be at least 1M".to_owned());
        }
        if self.io_timeout_sec == 0 {
            return Err("`io_timeout_sec` must be at least 1".to_owned());
        }
        let mut seen = std::collections::BTreeSet::new();
        match self
            .devices
            .iter()
            .chain(&self.second_devices)
            .chain(&self.log_devices)
            .find(|d| !seen.insert(*d))
        {
            Some(twice) => Err(format!("device {} is listed twice", twice.display())),
            None if self.devices.is_empty() && self.second_devices.is_empty() => {
                Err("`devices` lists none, and `second_devices` neither".to_owned())
            }
            None => Ok(()),
        }
    }
}

impl Config for Mount {
    fn example() -> Mount {
        Mount {
            mgs: example_mgs(),
            fsname: fsname(),
            mountpoint: "/mnt/stria".into(),
            options: vec![],
            op_timeout_sec: None,
            nets: vec![],
            routes: vec![],
            tls: None,
            metrics: None,
        }
    }
    fn print(&self) -> String {
        let head = "# stria mount --config FILE: a client that mounts the file system.\n\n";
        let point = key("Directory to mount on.", "mountpoint", toml_of(&self.mountpoint));
        let options = key("Mount options, as after -o.", "options", toml_of(&self.options));
        let comment = "Seconds without an answer after which a file operation fails with ETIMEDOUT.";
        let timeout = match self.op_timeout_sec {
            Some(seconds) => key(comment, "op_timeout_sec", seconds),
            None => absent_key(comment, "op_timeout_sec", &OP_TIMEOUT_SEC.to_string()),
        };
        [
            head,
            &*mgs_key(&self.mgs),
            &fsname_key(&self.fsname),
            &point,
            &options,
            &timeout,
            &nets_keys(&self.nets, &self.routes),
            &tls_key(&self.tls),
            &metrics_key(&self.metrics),
        ]
        .concat()
    }
    fn check(&self) -> Result<(), String> {
        Nets::of(&self.nets, &self.routes)?;
        check_address(self.metrics.as_ref())?;
        check_mgs(&self.mgs)?;
        check_fsname(&self.fsname)?;
        match self.op_timeout_sec {
            Some(0) => Err("`op_timeout_sec` is 0: no operation could ever be answered in time".to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
