//! `stria mm`, or this binary under the names `mmgetstate` and `mmlsfs`: commands of Storage Scale's users, with the lines that their scripts parse.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Args, Subcommand};
use types::{Code, Fault, NodeId, PAGE_SIZE};
use wire::map::{ClusterMap, FileSystem, Node};
use wire::session::TargetStat;

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
/// management service is that of --mgs, or of a mount on this host. A node is a host: all server processes of one name, with the lowest of their
/// numbers. It is "active" if all of its processes answer, "down" if one does not, and "unknown" if it has no target or refuses to tell.
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
        let rows = rows(&management.map.nodes, &processes(&management));
        let is_shown = |row: &Row| self.a || row.name == host;
        let shown: Vec<&Row> = rows.iter().filter(|row| is_shown(row)).collect();
        if shown.is_empty() {
            let next = "-a shows all nodes";
            return Err(
                Failure::unusable("mmgetstate", format!("the cluster has no node {host}"), next).into()
            );
        }
        let up = rows.iter().filter(|row| row.state == State::Active).count();
        out!("{}", state_text(&shown, (up, rows.len()), (self.long, self.colons)));
        let is_down = shown.iter().any(|row| row.state == State::Down);
        Ok(if is_down { Exit::Findings } else { Exit::Done })
    }
}

/// The state of a process, or of the host that has it. Of several, the greatest tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Active,
    /// It refuses to tell, or it has no target: it is a management service, which has no state here.
    Unknown,
    Down,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Unknown => "unknown",
            State::Down => "down",
        }
    }

    /// Of a process, by the answer of one of its targets. An error that the process sends is an answer too: the target may not serve yet.
    fn of_answer<T>(answer: &anyhow::Result<T>) -> State {
        match answer.as_ref().map_err(|error| error.downcast_ref::<Fault>().map(|fault| fault.code)) {
            Ok(_) => State::Active,
            Err(Some(Code::Access | Code::Perm)) => State::Unknown,
            Err(Some(_)) => State::Active,
            Err(None) => State::Down,
        }
    }
}

/// The processes that have targets. One that answers for any target is active.
fn processes(management: &Management) -> BTreeMap<NodeId, State> {
    let mut states: BTreeMap<NodeId, State> = BTreeMap::new();
    for reach in management.file_systems() {
        let targets = reach.targets();
        let answers =
            reach.ask_all(&targets, |target| State::of_answer(&reach.ask(target.id, &TargetStat {})));
        for (target, answer) in targets.into_iter().zip(answers) {
            states.entry(target.node).and_modify(|state| *state = answer.min(*state)).or_insert(answer);
        }
    }
    states
}

/// A host: the processes of one name.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    id: NodeId,
    name: String,
    state: State,
}

/// One row for each name. A process without targets counts only on a host that has no other.
fn rows(nodes: &[Node], processes: &BTreeMap<NodeId, State>) -> Vec<Row> {
    let mut hosts: BTreeMap<&str, (NodeId, Option<State>)> = BTreeMap::new();
    for node in nodes {
        let (id, state) = hosts.entry(&node.name).or_insert((node.id, None));
        *id = node.id.min(*id);
        // None is less than any state.
        *state = processes.get(&node.id).copied().max(*state);
    }
    let row = |(name, (id, state)): (&str, (NodeId, Option<State>))| Row {
        id,
        name: name.to_owned(),
        state: state.unwrap_or(State::Unknown),
    };
    let mut rows: Vec<Row> = hosts.into_iter().map(row).collect();
    rows.sort_by_key(|row| row.id);
    rows
}

fn state_text(rows: &[&Row], (up, all): (usize, usize), (long, colons): (bool, bool)) -> String {
    let quorum = all / 2 + 1;
    let mut out = String::new();
    if colons {
        out += "mmgetstate::HEADER:version:reserved:reserved:nodeName:nodeNumber:state:quorum:nodesUp:totalNodes:remarks:cnfsState:\n";
        for Row { id, name, state } in rows {
            let (name, id, state) = (colon(name), id.0, state.word());
            out += &format!(
                "mmgetstate::0:1:::{name}:{id}:{state}:{quorum}:{up}:{all}:(undefined):(undefined):\n"
            );
        }
        return out;
    }
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("Node name".len());
    let head = match long {
        true => format!(
            " Node number  {:<wide$}  Quorum  Nodes up  Total nodes  GPFS state  Remarks",
            "Node name"
        ),
        false => format!(" Node number  {:<wide$}  GPFS state", "Node name"),
    };
    out += &format!("\n{head}\n{}\n", "-".repeat(head.len()));
    for Row { id, name, state } in rows {
        let (id, state) = (id.0, state.word());
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
        let rows = rows(&nodes, &BTreeMap::from([(NodeId(1), State::Active), (NodeId(2), State::Down)]));
        let rows: Vec<&Row> = rows.iter().collect();
        let colons = state_text(&rows, (1, 3), (false, true));
        let lines: Vec<Vec<&str>> = colons.lines().map(|line| line.split(':').collect()).collect();
        let at = |name: &str| lines[0].iter().position(|field| *field == name).expect("a field of the head");
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{colons}");
        let column = |name: &str| lines[1..].iter().map(|line| line[at(name)]).collect::<Vec<_>>();
        assert_eq!(column("state"), ["active", "down", "unknown"]);
        assert_eq!(column("nodeName"), ["oss1", "a%3Ab", "mgs"]);
        assert_eq!((column("nodesUp"), column("quorum")), (vec!["1"; 3], vec!["2"; 3]));
        let text = state_text(&rows, (1, 3), (true, false));
        assert!(
            text.lines().any(|line| line.split_whitespace().eq(["2", "a:b", "2", "1", "3", "down"])),
            "{text}"
        );
    }

    #[test]
    fn processes_of_one_host_are_one_node_and_it_is_active_if_all_answer() {
        let nodes =
            [node(1, "mgs1"), node(2, "h1"), node(5, "h2"), node(3, "h1"), node(4, "h2"), node(6, "mgs1")];
        let state_of = |of: &[(u64, State)], name: &str| {
            let processes = of.iter().map(|(id, state)| (NodeId(*id), *state)).collect();
            let rows = rows(&nodes, &processes);
            assert_eq!(rows.iter().map(|row| row.id.0).collect::<Vec<_>>(), [1, 2, 4], "{rows:?}");
            rows.into_iter().find(|row| row.name == name).expect("a row").state
        };
        use State::{Active, Down, Unknown};
        assert_eq!(state_of(&[(2, Active), (3, Active)], "h1"), Active);
        assert_eq!(state_of(&[(2, Active), (3, Down)], "h1"), Down);
        assert_eq!(state_of(&[(2, Active), (3, Unknown)], "h1"), Unknown);
        assert_eq!(state_of(&[(2, Down), (3, Unknown)], "h1"), Down);
        assert_eq!(state_of(&[(2, Active)], "h1"), Active, "the other process has no target");
        assert_eq!(state_of(&[(2, Active)], "mgs1"), Unknown, "no process has a target");
    }

    #[test]
    fn a_refusal_is_no_silence() {
        let fault = |code| Err::<(), _>(Fault::new(code, "").into());
        assert_eq!(State::of_answer(&Ok(())), State::Active);
        assert_eq!(State::of_answer(&fault(Code::NotReady)), State::Active);
        assert_eq!(State::of_answer(&fault(Code::Access)), State::Unknown);
        assert_eq!(State::of_answer(&Err::<(), _>(anyhow::anyhow!("connection refused"))), State::Down);
        // The role of a mount suffices, so that a plain user's command is not refused.
        assert!(pki::may(pki::Role::Client, <TargetStat as wire::Request>::CALL));
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
