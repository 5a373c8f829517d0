//! `stria mm`, or this binary under the names `mmgetstate` and `mmlsfs`: commands of Storage Scale's users, with the lines that their scripts parse.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use types::{Code, Fault, NodeId, PAGE_SIZE};
use wire::map::{ClusterMap, FileSystem, Node};
use wire::session::TargetStat;

use crate::exit::{Exit, Failure, line_of};
use crate::mounts;
use crate::reach::{self, Management, Service, Source};

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
Exit codes: 0 it is shown; 1 a node is down, or one of several clusters could not be asked; 2 no cluster could be asked.")]
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
    #[command(
        name = "mmlsfs",
        after_help = "Example: stria mm mmlsfs home -Y\nExample: stria mm mmlsfs home -T"
    )]
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
    /// The file system, or all: those of each cluster with a mount on this host.
    #[arg(default_value = "all")]
    device: String,
    #[command(flatten)]
    filter: Filter,
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

/// The management services of the clusters that are meant, and the errors of others of them. One at least has answered.
fn managements(
    mgs: Option<&Service>,
    device: Option<&str>,
) -> anyhow::Result<(Vec<Management>, Vec<anyhow::Error>)> {
    if let Some(service) = mgs {
        return Ok((vec![service.manage()?], vec![]));
    }
    let (mut clusters, mut errors) = (vec![], vec![]);
    for nids in choose(&sources(), device)? {
        match Management::by_nids(&nids) {
            Ok(management) => clusters.push(management),
            Err(error) => errors.push(error),
        }
    }
    match errors.pop() {
        Some(error) if clusters.is_empty() => Err(error),
        last => Ok((clusters, errors.into_iter().chain(last).collect())),
    }
}

/// The file systems that are mounted here. A mount of another version, which cannot be read, is left out.
fn sources() -> Vec<Source> {
    mounts::ours().iter().filter_map(|mount| Source::parse(&mount.source).ok()).collect()
}

/// NIDs of management services, a list for each cluster: those with a mount of the device, or all if it is mounted nowhere here.
fn choose(sources: &[Source], device: Option<&str>) -> Result<Vec<Vec<String>>, Failure> {
    let of = |is_meant: &dyn Fn(&Source) -> bool| -> Vec<Vec<String>> {
        let nids = sources.iter().filter(|source| is_meant(source)).map(|source| source.nids.clone());
        let mut all: Vec<Vec<String>> = nids.collect();
        all.sort();
        all.dedup();
        all
    };
    let (named, all) = (of(&|source| Some(&*source.fsname) == device), of(&|_| true));
    match (named.is_empty(), all.len()) {
        (_, 0) => {
            let why = "no file system of Stria is mounted here, so the cluster is not known";
            Err(Failure::unusable("the cluster", why, "give --mgs"))
        }
        (false, _) => Ok(named),
        (true, several) if several > 1 && device.is_none() => {
            let why = format!("file systems of {several} clusters are mounted here");
            Err(Failure::unusable("the cluster", why, format!("name one: --mgs {}", all[0].join(","))))
        }
        (true, _) => Ok(all),
    }
}

impl GetState {
    fn run(self) -> anyhow::Result<Exit> {
        // Without a device it is one cluster.
        let (mut all, _) = managements(self.mgs.as_ref(), None)?;
        let management = all.pop().expect("a cluster was chosen");
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

/// Attributes that are shown: the option of `mmlsfs`, the field of -Y, and the meaning.
const SHOWN: [(&str, &str, &str); 9] = [
    ("f", "minFragmentSize", "Minimum fragment (subblock) size in bytes"),
    ("m", "defaultMetadataReplicas", "Default number of metadata replicas"),
    ("M", "maxMetadataReplicas", "Maximum number of metadata replicas"),
    ("r", "defaultDataReplicas", "Default number of data replicas"),
    ("R", "maxDataReplicas", "Maximum number of data replicas"),
    ("Q", "quotasEnforced", "Quotas enforced"),
    ("B", "blockSize", "Block size"),
    ("V", "filesystemVersion", "File system version"),
    ("T", "defaultMountPoint", "Default mount point"),
];
/// Options of Storage Scale for attributes that Stria does not have.
const NOT_SHOWN: [&str; 19] =
    ["a", "A", "d", "D", "E", "i", "I", "j", "k", "K", "L", "n", "o", "P", "S", "t", "u", "W", "z"];

/// Options of `mmlsfs` that choose attributes. None chooses all.
#[derive(Clone, Debug, Default)]
struct Filter(Vec<&'static str>);

impl Args for Filter {
    fn augment_args(command: Command) -> Command {
        let flag = |c: &'static str| Arg::new(c).short(c.chars().next()).action(ArgAction::SetTrue);
        let shown =
            SHOWN.map(|(c, _, meaning)| flag(c).help(format!("Show only: {}", meaning.to_lowercase())));
        command.args(shown).args(NOT_SHOWN.map(|c| flag(c).hide(true)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        Filter::augment_args(command)
    }
}

impl FromArgMatches for Filter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Filter, clap::Error> {
        let known = SHOWN.iter().map(|(c, ..)| *c).chain(NOT_SHOWN);
        Ok(Filter(known.filter(|c| matches.get_flag(c)).collect()))
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Filter::from_arg_matches(matches).map(|filter| *self = filter)
    }
}

impl Filter {
    fn check(&self) -> Result<(), Failure> {
        let Some(strange) = self.0.iter().find(|c| NOT_SHOWN.contains(c)) else { return Ok(()) };
        let all = SHOWN.map(|(c, ..)| format!("-{c}")).join(", ");
        let why = "Stria has no such attribute";
        Err(Failure::unusable(format!("mmlsfs -{strange}"), why, format!("it shows {all}")))
    }
}

impl LsFs {
    fn run(self) -> anyhow::Result<Exit> {
        self.filter.check()?;
        let name = self.device.trim_start_matches("/dev/");
        let (clusters, errors) = managements(self.mgs.as_ref(), Some(name))?;
        errors.iter().for_each(|error| eprintln!("stria: {}", line_of(error)));
        let of = |management: &'_ Management| -> Vec<FileSystem> {
            let all = management.map.file_systems.iter();
            all.filter(|fs| name == "all" || fs.name == name).cloned().collect()
        };
        let all: Vec<(&Management, FileSystem)> =
            clusters.iter().flat_map(|one| of(one).into_iter().map(move |fs| (one, fs))).collect();
        if all.is_empty() {
            let map = &clusters.last().expect("a cluster was chosen").map;
            return Err(reach::refuse_name(map, name, "the management service").into());
        }
        if self.colons {
            outln!("mmlsfs::HEADER:version:reserved:reserved:deviceName:fieldName:data:remarks:");
        }
        for (management, fs) in all {
            let point = mount_point(&mounts::ours(), &fs.name, &management.nid);
            let shown = attributes(&management.map, &fs, &point);
            let is_wanted =
                |attribute: &Attribute| self.filter.0.is_empty() || self.filter.0.contains(&attribute.0);
            let shown: Vec<Attribute> = shown.into_iter().filter(is_wanted).collect();
            out!("{}", attributes_text(&fs, &shown, self.colons));
        }
        Ok(if errors.is_empty() { Exit::Done } else { Exit::Findings })
    }
}

/// Where a file system is mounted here: by the management service of that NID if there is such a mount, else by any.
fn mount_point(all: &[mounts::Mount], fsname: &str, nid: &str) -> String {
    let source = |mount: &mounts::Mount| Source::parse(&mount.source).ok();
    let named: Vec<_> = all
        .iter()
        .filter_map(|mount| Some((mount, source(mount)?)))
        .filter(|(_, source)| source.fsname == fsname)
        .collect();
    let exact = named.iter().find(|(_, source)| source.nids.iter().any(|own| own == nid));
    let found = exact.or(named.first()).map(|(mount, _)| mount.point.display().to_string());
    found.unwrap_or_else(|| "none".to_owned())
}

/// An attribute: its row of `SHOWN`, with the value before the meaning.
type Attribute = (&'static str, &'static str, String, &'static str);

fn attributes(map: &ClusterMap, fs: &FileSystem, point: &str) -> Vec<Attribute> {
    let copies = |is_mdt| {
        let of = map.mirrors.iter().filter(|mirror| mirror.fs == fs.id && mirror.is_mdt == is_mdt);
        of.map(|mirror| mirror.members.len()).min().unwrap_or(1).to_string()
    };
    let value = |c: &str| match c {
        "f" => PAGE_SIZE.to_string(),
        "m" => copies(true),
        "r" => copies(false),
        "M" | "R" => "2".into(),
        "Q" => "none".into(),
        "B" => STRIPE_BYTES.to_string(),
        "V" => env!("CARGO_PKG_VERSION").into(),
        "T" => point.to_owned(),
        other => unreachable!("-{other} is no attribute of SHOWN"),
    };
    SHOWN.iter().map(|(c, field, meaning)| (*c, *field, value(c), *meaning)).collect()
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
        out += &format!(" -{flag:<17} {value:<24} {meaning}\n");
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
    fn the_cluster_is_that_of_the_device_and_two_are_not_guessed_from() {
        let sources: Vec<Source> = ["10.0.0.5:/home", "10.0.0.6:/work", "10.0.0.5:/data", "10.0.0.5:/home"]
            .iter()
            .map(|text| Source::parse(text).expect("a source"))
            .collect();
        let nids = |hosts: &[&str]| -> Vec<Vec<String>> {
            hosts.iter().map(|host| vec![format!("{host}:7010@tcp0")]).collect()
        };
        let chosen = |device| choose(&sources, device).map_err(|failure| failure.to_string());
        assert_eq!(chosen(Some("work")), Ok(nids(&["10.0.0.6"])));
        assert_eq!(chosen(Some("home")), Ok(nids(&["10.0.0.5"])));
        assert_eq!(chosen(Some("all")), Ok(nids(&["10.0.0.5", "10.0.0.6"])));
        assert_eq!(chosen(Some("elsewhere")), Ok(nids(&["10.0.0.5", "10.0.0.6"])));
        let refused = chosen(None).expect_err("two clusters");
        assert!(refused.contains("2 clusters") && refused.contains("--mgs 10.0.0.5"), "{refused}");
        assert_eq!(choose(&sources[2..], None).expect("one cluster"), nids(&["10.0.0.5"]));
        assert!(choose(&[], None).is_err_and(|failure| failure.to_string().ends_with("give --mgs")));
    }

    #[test]
    fn options_of_attributes_choose_them_and_others_are_refused_by_name() {
        use clap::Parser;
        let filter = |words: &str| {
            let all = ["stria", "mm", "mmlsfs"].into_iter().chain(words.split(' '));
            match crate::cmd::Cli::try_parse_from(all).expect("known options").command {
                crate::cmd::Command::Mm(Mm { verb: Verb::LsFs(ls) }) => ls.filter,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(filter("home -T -B").0, ["B", "T"]);
        assert!(filter("-Y home").0.is_empty() && filter("home -T").check().is_ok());
        let refused = filter("home -A").check().expect_err("not an attribute here").to_string();
        assert!(refused.starts_with("mmlsfs -A: Stria has no such attribute; it shows -f, -m"), "{refused}");
    }

    #[test]
    fn a_mount_of_the_cluster_goes_before_one_of_the_same_name() {
        let mount = |source: &str, point: &str| mounts::Mount {
            point: point.into(),
            fs_type: mounts::FS_TYPE.into(),
            source: source.into(),
        };
        let all = [mount("10.0.0.6:/home", "/other"), mount("10.0.0.5:/home", "/own")];
        assert_eq!(mount_point(&all, "home", "10.0.0.5:7010@tcp0"), "/own");
        assert_eq!(mount_point(&all, "home", "10.0.0.9:7010@tcp0"), "/other");
        assert_eq!(mount_point(&all, "work", "10.0.0.5:7010@tcp0"), "none");
    }

    #[test]
    fn a_link_of_that_name_is_the_command() {
        let words = ["/usr/bin/mmlsfs", "all", "-Y"].map(OsString::from).to_vec();
        assert_eq!(crate::cmd::arguments(words), ["stria", "mm", "mmlsfs", "all", "-Y"].map(OsString::from));
    }
}
