//! `stria mm`, or this binary under the names `mmgetstate` and `mmlsfs`: commands of Storage Scale's users, with the lines that their scripts parse.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Args, Subcommand};
use types::{NodeId, PAGE_SIZE};
use wire::jobs::JobStats;
use wire::map::{ClusterMap, FileSystem, Node};

use crate::cmd::manage::Place;
use crate::cmd::param::only_mount;
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::reach::{self, Management, Service};

/// Names under which this binary is the command of `stria mm`.
pub const NAMES: [&str; 2] = ["mmgetstate", "mmlsfs"];
/// Bytes of a stripe, unless a directory says otherwise.
const STRIPE_BYTES: u32 = types::layout::STRIPE_SIZE;

/// Storage Scale's `mmgetstate` and `mmlsfs`, for scripts and hands that know them: the same columns, and with -Y the same lines with colons. The
/// management service is that of --mgs, or of a mount on this host. A state is "active" if a target of the node answers.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: ln -s /usr/bin/stria /usr/local/bin/mmgetstate
Example: stria mm mmgetstate -a -Y --mgs 10.0.0.5@tcp
Example: stria mm mmlsfs all
Exit codes: 0 it is shown; 1 a node is down; 2 the cluster could not be asked.")]
pub struct Mm {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[command(rename_all = "verbatim")]
enum Verb {
    /// Show the state of nodes.
    #[command(name = "mmgetstate", after_help = "Example: stria mm mmgetstate -aL")]
    GetState(GetState),
    /// Show attributes of file systems.
    #[command(name = "mmlsfs", after_help = "Example: stria mm mmlsfs home -Y")]
    LsFs(LsFs),
}

#[derive(Debug, Args)]
struct GetState {
    /// All nodes; without it those of this host's name.
    #[arg(short)]
    a: bool,
    /// More columns: nodes that are up, and all.
    #[arg(short = 'L')]
    long: bool,
    /// Lines with colons, for programs.
    #[arg(short = 'Y')]
    colons: bool,
    /// The management service: NID[,NID...]; without it that of a mount on this host.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
}

#[derive(Debug, Args)]
struct LsFs {
    /// The file system, or all.
    #[arg(default_value = "all")]
    device: String,
    /// Lines with colons, for programs.
    #[arg(short = 'Y')]
    colons: bool,
    /// The management service: NID[,NID...]; without it that of a mount on this host.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
}

/// `stria mm` for the words behind one of `NAMES`.
pub fn arguments(name: &str, words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    ["stria", "mm", name].map(OsString::from).into_iter().chain(words).collect()
}

impl Mm {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::GetState(state) => state.run(),
            Verb::LsFs(ls) => ls.run(),
        }
    }
}

fn manage(mgs: Option<&Service>) -> anyhow::Result<Management> {
    match mgs {
        Some(service) => service.manage(),
        None => Place::of(None, None, Some(only_mount()?)).manage(),
    }
}

impl GetState {
    fn run(self) -> anyhow::Result<Exit> {
        let management = manage(self.mgs.as_ref())?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let states = states(&management);
        let is_shown = |node: &Node| self.a || node.name == host;
        let nodes: Vec<&Node> = management.map.nodes.iter().filter(|node| is_shown(node)).collect();
        if nodes.is_empty() {
            let next = "-a shows all nodes";
            return Err(
                Failure::unusable("mmgetstate", format!("the cluster has no node {host}"), next).into()
            );
        }
        let up = states.values().filter(|state| **state == ACTIVE).count();
        let all = management.map.nodes.len();
        out!("{}", state_text(&nodes, &states, (up, all), (self.long, self.colons)));
        Ok(if nodes.iter().any(|node| states.get(&node.id) == Some(&DOWN)) {
            Exit::Findings
        } else {
            Exit::Done
        })
    }
}

const ACTIVE: &str = "active";
const DOWN: &str = "down";
/// A node without a target is a management service or a client, which no request reaches.
const UNKNOWN: &str = "unknown";

/// Of nodes with targets: whether one of them answers.
fn states(management: &Management) -> BTreeMap<NodeId, &'static str> {
    let mut states: BTreeMap<NodeId, &'static str> = BTreeMap::new();
    for reach in management.file_systems() {
        let targets = reach.targets();
        let answers = reach.ask_all(&targets, |target| reach.ask(target.id, &JobStats { max: 0 }).is_ok());
        for (target, is_up) in targets.into_iter().zip(answers) {
            let state = states.entry(target.node).or_insert(DOWN);
            if is_up {
                *state = ACTIVE;
            }
        }
    }
    states
}

fn state_text(
    nodes: &[&Node],
    states: &BTreeMap<NodeId, &'static str>,
    (up, all): (usize, usize),
    (long, colons): (bool, bool),
) -> String {
    let of = |node: &Node| states.get(&node.id).copied().unwrap_or(UNKNOWN);
    let quorum = all / 2 + 1;
    let mut out = String::new();
    if colons {
        out += "mmgetstate::HEADER:version:reserved:reserved:nodeName:nodeNumber:state:quorum:nodesUp:totalNodes:remarks:cnfsState:\n";
        for node in nodes {
            let (name, id, state) = (colon(&node.name), node.id.0, of(node));
            out += &format!(
                "mmgetstate::0:1:::{name}:{id}:{state}:{quorum}:{up}:{all}:(undefined):(undefined):\n"
            );
        }
        return out;
    }
    let wide = nodes.iter().map(|node| node.name.len()).max().unwrap_or(0).max("Node name".len());
    let head = match long {
        true => format!(
            " Node number  {:<wide$}  Quorum  Nodes up  Total nodes  GPFS state  Remarks",
            "Node name"
        ),
        false => format!(" Node number  {:<wide$}  GPFS state", "Node name"),
    };
    out += &format!("\n{head}\n{}\n", "-".repeat(head.len()));
    for node in nodes {
        let (id, name, state) = (node.id.0, &node.name, of(node));
        out += &match long {
            true => format!("{id:>8}      {name:<wide$}  {quorum:>6}  {up:>8}  {all:>11}  {state}\n"),
            false => format!("{id:>8}      {name:<wide$}  {state}\n"),
        };
    }
    out
}

impl LsFs {
    fn run(self) -> anyhow::Result<Exit> {
        let management = manage(self.mgs.as_ref())?;
        let map = &management.map;
        let name = self.device.trim_start_matches("/dev/");
        let all: Vec<&FileSystem> =
            map.file_systems.iter().filter(|fs| name == "all" || fs.name == name).collect();
        if all.is_empty() {
            return Err(reach::refuse_name(map, name, "the management service").into());
        }
        if self.colons {
            outln!("mmlsfs::HEADER:version:reserved:reserved:deviceName:fieldName:data:remarks:");
        }
        for fs in all {
            let point =
                mounts::ours().into_iter().find(|mount| mount.source.ends_with(&format!(":/{}", fs.name)));
            let point = point.map_or("none".to_owned(), |mount| mount.point.display().to_string());
            out!("{}", attributes_text(fs, &attributes(map, fs, &point), self.colons));
        }
        Ok(Exit::Done)
    }
}

/// An attribute: the option of `mmlsfs`, the field of -Y, the value, and its meaning.
type Attribute = (&'static str, &'static str, String, &'static str);

fn attributes(map: &ClusterMap, fs: &FileSystem, point: &str) -> Vec<Attribute> {
    let copies = |is_mdt| {
        let of = map.mirrors.iter().filter(|mirror| mirror.fs == fs.id && mirror.is_mdt == is_mdt);
        of.map(|mirror| mirror.members.len()).min().unwrap_or(1).to_string()
    };
    vec![
        ("-f", "minFragmentSize", PAGE_SIZE.to_string(), "Minimum fragment (subblock) size in bytes"),
        ("-m", "defaultMetadataReplicas", copies(true), "Default number of metadata replicas"),
        ("-M", "maxMetadataReplicas", "2".into(), "Maximum number of metadata replicas"),
        ("-r", "defaultDataReplicas", copies(false), "Default number of data replicas"),
        ("-R", "maxDataReplicas", "2".into(), "Maximum number of data replicas"),
        ("-Q", "quotasEnforced", "none".into(), "Quotas enforced"),
        ("-B", "blockSize", STRIPE_BYTES.to_string(), "Block size"),
        ("-V", "filesystemVersion", env!("CARGO_PKG_VERSION").into(), "File system version"),
        ("-T", "defaultMountPoint", point.to_owned(), "Default mount point"),
    ]
}

fn attributes_text(fs: &FileSystem, attributes: &[Attribute], colons: bool) -> String {
    let mut out = String::new();
    if colons {
        for (_, field, value, _) in attributes {
            out += &format!("mmlsfs::0:1:::{}:{field}:{}::\n", colon(&fs.name), colon(value));
        }
        return out;
    }
    out += &format!("\nFile system attributes for /dev/{}:\n", fs.name);
    out += &format!("{}\n", "=".repeat(31 + fs.name.len()));
    out += "flag                value                    description\n";
    out += "------------------- ------------------------ -----------------------------------\n";
    for (flag, _, value, meaning) in attributes {
        out += &format!(" {flag:<18} {value:<24} {meaning}\n");
    }
    out
}

/// A value of a line with colons: its own colons and percent signs are written as %3A and %25.
fn colon(value: &str) -> String {
    value.replace('%', "%25").replace(':', "%3A")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, name: &str) -> Node {
        Node { id: NodeId(id), name: name.into(), nids: vec![], rack: String::new() }
    }

    #[test]
    fn states_have_the_columns_and_the_fields_of_scale() {
        let nodes = [node(1, "oss1"), node(2, "a:b"), node(3, "mgs")];
        let nodes: Vec<&Node> = nodes.iter().collect();
        let states = BTreeMap::from([(NodeId(1), ACTIVE), (NodeId(2), DOWN)]);
        let colons = state_text(&nodes, &states, (1, 3), (false, true));
        let lines: Vec<Vec<&str>> = colons.lines().map(|line| line.split(':').collect()).collect();
        let at = |name: &str| lines[0].iter().position(|field| *field == name).expect("a field of the head");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{colons}");
        let column = |name: &str| lines[1..].iter().map(|line| line[at(name)]).collect::<Vec<_>>();
        assert_eq!(column("state"), ["active", "down", "unknown"]);
        assert_eq!(column("nodeName"), ["oss1", "a%3Ab", "mgs"]);
        assert_eq!((column("nodesUp"), column("quorum")), (vec!["1"; 3], vec!["2"; 3]));
        let text = state_text(&nodes, &states, (1, 3), (true, false));
        assert!(
            text.lines().any(|line| line.split_whitespace().eq(["2", "a:b", "2", "1", "3", "down"])),
            "{text}"
        );
    }

    #[test]
    fn attributes_have_the_flags_and_the_fields_of_scale() {
        let mut map = ClusterMap::empty();
        let fs = FileSystem {
            id: types::FsId(1),
            name: "home".into(),
            uuid: types::Uuid::default(),
            secret: types::Uuid::default(),
            inline_max: 0,
            commit_interval_ms: 1000,
        };
        map.file_systems.push(fs.clone());
        let attributes = attributes(&map, &fs, "/mnt/x:y");
        let colons = attributes_text(&fs, &attributes, true);
        assert!(colons.lines().any(|line| line == "mmlsfs::0:1:::home:defaultDataReplicas:1::"), "{colons}");
        assert!(
            colons.lines().any(|line| line == "mmlsfs::0:1:::home:defaultMountPoint:/mnt/x%3Ay::"),
            "{colons}"
        );
        let text = attributes_text(&fs, &attributes, false);
        assert!(
            text.lines().any(|line| line.starts_with(" -B ") && line.contains(&STRIPE_BYTES.to_string())),
            "{text}"
        );
    }

    #[test]
    fn a_link_of_that_name_is_the_command() {
        let words = ["/usr/bin/mmlsfs", "all", "-Y"].map(OsString::from).to_vec();
        assert_eq!(crate::cmd::arguments(words), ["stria", "mm", "mmlsfs", "all", "-Y"].map(OsString::from));
    }
}
