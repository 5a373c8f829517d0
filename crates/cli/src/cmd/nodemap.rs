//! `stria nodemap`: treatment of clients by certificate or address, in the cluster map.

use core::net::{IpAddr, SocketAddr};

use clap::{Args, Subcommand, ValueEnum};
use mgmt::nodemap::{self, NOBODY, Peer};
use net::routes::check_net;
use pki::Role;
use serde::Serialize;
use types::Cred;
use wire::map::{ClusterMap, IdRange, Nodemap as Entry, Squash};
use wire::mgmt::ChangeNodemaps;

use crate::cmd::route::At;
use crate::exit::{Exit, Failure};

/// Space before the first and after it.
const PRIORITY: u32 = 100;

/// Ban clients, let them only read or see one directory, squash or map their users: by certificate or address.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria nodemap add lab --node 'lab*' --read-only --squash root --mgs 10.0.0.5@tcp
Example: stria nodemap test --cert client/lab7 --nid 10.1.2.3@tcp1 --uid 0 --mgs 10.0.0.5@tcp
A node takes the first nodemap that matches it, in the order of priority and then name. Without a match it is treated as without nodemaps.")]
pub struct Nodemap {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Set),
    Modify(Set),
    List(List),
    Test(Test),
    Remove(Remove),
}

/// Add or change a nodemap. Options that are not given stay as they are; a new nodemap has the given effects only.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria nodemap add strangers --priority 900 --node '*' --ban --mgs 10.0.0.5@tcp
Example: stria nodemap modify lab --uid-map 1000:5000:100 --gid-map 100:600:1 --mgs 10.0.0.5@tcp
Example: stria nodemap add guests --node 'guest*' --root /projects/guests --mgs 10.0.0.5@tcp
A change of users' ids or of the root, and a ban, end the sessions of the clients that it concerns: what they have not written back is lost.")]
struct Set {
    /// The nodemap.
    name: String,
    /// The lowest number is looked at first. A new nodemap: 100.
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
    /// Role of the certificate: server, client, admin or router. '' matches all, here and below.
    #[arg(long)]
    role: Option<String>,
    /// Node name of the certificate; * stands for any characters.
    #[arg(long, value_name = "PATTERN")]
    node: Option<String>,
    /// Net on which the node reaches a server: tcp0, tcp1, ... or local0 for the server's own host.
    #[arg(long)]
    net: Option<String>,
    /// Addresses, as 10.1.0.0/16. Behind a router a server sees the router's address.
    #[arg(long, value_name = "CIDR")]
    address: Option<String>,
    /// Refuse the node. --ban=false ends it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ban: Option<bool>,
    /// Refuse all changes. --read-only=false ends it.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    read_only: Option<bool>,
    /// Callers that become one user.
    #[arg(long)]
    squash: Option<SquashWord>,
    /// User and group of squashed callers, and of ids that no range has. A new nodemap: 65534:65534.
    #[arg(long, value_name = "UID:GID")]
    squash_to: Option<Ids>,
    /// Users FROM, FROM+1, ... of the node are TO, TO+1, ... of the file system. Several with commas; `none` ends it.
    #[arg(long, value_name = "FROM:TO:COUNT")]
    uid_map: Option<Ranges>,
    /// As --uid-map, for groups.
    #[arg(long, value_name = "FROM:TO:COUNT")]
    gid_map: Option<Ranges>,
    /// The directory that the node sees as its root, as a path in the file system. / ends it.
    #[arg(long, value_name = "PATH")]
    root: Option<String>,
    #[command(flatten)]
    at: At,
}

/// List the nodemaps in the order in which they are looked at.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria nodemap list --mgs 10.0.0.5@tcp -j")]
struct List {
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Show which nodemap a node takes, and what it does to a caller. Nothing is changed, and no node is asked.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria nodemap test --cert client/lab7 --nid 10.1.2.3@tcp1 --uid 1000 --mgs 10.0.0.5@tcp"
)]
struct Test {
    /// The node's certificate. Absent: it has none.
    #[arg(long, value_name = "ROLE/NODE")]
    cert: Option<Certificate>,
    /// The address that a server sees, and the net on which it does.
    #[arg(long, value_name = "ADDRESS@NET")]
    nid: Option<Place>,
    /// A user of the node.
    #[arg(long, default_value_t = 0)]
    uid: u32,
    /// Its group. Absent: the number of the user.
    #[arg(long)]
    gid: Option<u32>,
    #[command(flatten)]
    at: At,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// Remove a nodemap. Its nodes take the next one that matches.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria nodemap remove lab --mgs 10.0.0.5@tcp")]
struct Remove {
    /// The nodemap.
    name: String,
    #[command(flatten)]
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SquashWord {
    None,
    /// User 0.
    Root,
    /// Every user.
    All,
}

impl SquashWord {
    fn of(squash: Squash) -> &'static str {
        match squash {
            Squash::None => "none",
            Squash::Root => "root",
            Squash::All => "all",
        }
    }
    fn squash(self) -> Squash {
        match self {
            SquashWord::None => Squash::None,
            SquashWord::Root => Squash::Root,
            SquashWord::All => Squash::All,
        }
    }
}

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ids(u32, u32);

impl std::str::FromStr for Ids {
    type Err = String;
    fn from_str(text: &str) -> Result<Ids, String> {
        let ids = text.split_once(':').and_then(|(u, g)| Some(Ids(u.parse().ok()?, g.parse().ok()?)));
        ids.ok_or_else(|| format!("'{text}' is not UID:GID, for instance 65534:65534"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges(Vec<IdRange>);

impl std::str::FromStr for Ranges {
    type Err = String;
    fn from_str(text: &str) -> Result<Ranges, String> {
        let range = |part: &str| {
            let numbers: Option<Vec<u32>> = part.split(':').map(|n| n.parse().ok()).collect();
            match numbers.as_deref() {
                Some([from, to, count]) => Ok(IdRange { from: *from, to: *to, count: *count }),
                _ => Err(format!("'{part}' is not FROM:TO:COUNT, for instance 1000:5000:100")),
            }
        };
        match text {
            "none" => Ok(Ranges(vec![])),
            text => Ok(Ranges(text.split(',').map(range).collect::<Result<_, _>>()?)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Certificate {
    role: Role,
    node: pki::Name,
}

impl std::str::FromStr for Certificate {
    type Err = String;
    fn from_str(text: &str) -> Result<Certificate, String> {
        let (role, node) = text.split_once('/').ok_or("write ROLE/NODE, for instance client/lab7")?;
        let error = |e: pki::BadIdentity| e.to_string();
        Ok(Certificate { role: role.parse().map_err(error)?, node: node.parse().map_err(error)? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    net: String,
    address: Option<IpAddr>,
}

impl std::str::FromStr for Place {
    type Err = String;
    fn from_str(text: &str) -> Result<Place, String> {
        let (address, net) = text.rsplit_once('@').unwrap_or((text, "tcp0"));
        let net = if net == "tcp" { "tcp0" } else { net };
        if net == "local0" && address.is_empty() {
            return Ok(Place { net: net.into(), address: None });
        }
        check_net(net)?;
        let socket = |_| address.parse::<SocketAddr>().map(|socket| socket.ip());
        let ip = address.parse().or_else(socket);
        let ip =
            ip.map_err(|_| format!("'{address}' is no address; write one as 10.1.2.3@tcp1, or @local0"))?;
        Ok(Place { net: net.into(), address: Some(ip) })
    }
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    priority: u32,
    role: Option<String>,
    node: Option<String>,
    net: Option<String>,
    address: Option<String>,
    ban: bool,
    read_only: bool,
    squash: &'static str,
    squash_uid: u32,
    squash_gid: u32,
    uid_map: Vec<Range>,
    gid_map: Vec<Range>,
    root: Option<String>,
}

#[derive(Debug, Serialize)]
struct Range {
    from: u32,
    to: u32,
    count: u32,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Outcome {
    nodemap: Option<String>,
    ban: bool,
    read_only: bool,
    root: String,
    uid: u32,
    gid: u32,
}

impl Nodemap {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Add(c) => c.add(),
            Verb::Modify(c) => c.modify(),
            Verb::List(c) => c.run(),
            Verb::Test(c) => c.run(),
            Verb::Remove(c) => c.run(),
        }
    }
}

fn find(map: &ClusterMap, name: &str) -> anyhow::Result<Entry> {
    let found = map.nodemaps.iter().find(|n| n.name == name).cloned();
    Ok(found.ok_or_else(|| nodemap::missing(name))?)
}

impl Set {
    fn add(self) -> anyhow::Result<Exit> {
        let new = self.over(Entry {
            name: self.name.clone(),
            priority: PRIORITY,
            role: String::new(),
            node: String::new(),
            net: String::new(),
            address: String::new(),
            ban: false,
            read_only: false,
            squash: Squash::None,
            squash_uid: NOBODY,
            squash_gid: NOBODY,
            uids: vec![],
            gids: vec![],
            root: String::new(),
        });
        self.at.meet()?.ask(&ChangeNodemaps { remove: vec![], add: vec![new] })?;
        outln!("added: {}", self.name);
        Ok(Exit::Done)
    }

    fn modify(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let old = find(&met.map, &self.name)?;
        let new = self.over(old.clone());
        if new == old {
            let next = "give an option of `stria nodemap modify --help`";
            return Err(Failure::unusable("options", "they change nothing", next).into());
        }
        met.ask(&ChangeNodemaps { remove: vec![old], add: vec![new] })?;
        outln!("changed: {}", self.name);
        Ok(Exit::Done)
    }

    /// The nodemap with the given options.
    fn over(&self, mut entry: Entry) -> Entry {
        let text =
            |given: &Option<String>, old: &mut String| given.iter().for_each(|new| old.clone_from(new));
        text(&self.role, &mut entry.role);
        text(&self.node, &mut entry.node);
        text(&self.net, &mut entry.net);
        text(&self.address, &mut entry.address);
        entry.priority = self.priority.unwrap_or(entry.priority);
        entry.ban = self.ban.unwrap_or(entry.ban);
        entry.read_only = self.read_only.unwrap_or(entry.read_only);
        entry.squash = self.squash.map_or(entry.squash, SquashWord::squash);
        if let Some(Ids(uid, gid)) = self.squash_to {
            (entry.squash_uid, entry.squash_gid) = (uid, gid);
        }
        if let Some(Ranges(ranges)) = &self.uid_map {
            entry.uids.clone_from(ranges);
        }
        if let Some(Ranges(ranges)) = &self.gid_map {
            entry.gids.clone_from(ranges);
        }
        if let Some(root) = &self.root {
            entry.root = nodemap::plain_root(root);
        }
        entry
    }
}

impl Remove {
    fn run(self) -> anyhow::Result<Exit> {
        let met = self.at.meet()?;
        let old = find(&met.map, &self.name)?;
        met.ask(&ChangeNodemaps { remove: vec![old], add: vec![] })?;
        outln!("removed: {}", self.name);
        Ok(Exit::Done)
    }
}

impl Line {
    fn of(n: &Entry) -> Line {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let ranges = |ranges: &[IdRange]| {
            ranges.iter().map(|r| Range { from: r.from, to: r.to, count: r.count }).collect()
        };
        Line {
            name: n.name.clone(),
            priority: n.priority,
            role: some(&n.role),
            node: some(&n.node),
            net: some(&n.net),
            address: some(&n.address),
            ban: n.ban,
            read_only: n.read_only,
            squash: SquashWord::of(n.squash),
            squash_uid: n.squash_uid,
            squash_gid: n.squash_gid,
            uid_map: ranges(&n.uids),
            gid_map: ranges(&n.gids),
            root: some(&n.root),
        }
    }

    fn matches(&self) -> String {
        let part = |name: &str, text: &Option<String>| text.as_ref().map(|text| format!("{name} {text}"));
        let parts =
            [("role", &self.role), ("node", &self.node), ("net", &self.net), ("address", &self.address)];
        parts.iter().filter_map(|(name, text)| part(name, text)).collect::<Vec<_>>().join(", ")
    }

    fn does(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.ban.then(|| "ban".into()));
        parts.extend(self.read_only.then(|| "read only".into()));
        let is_mapped = !self.uid_map.is_empty() || !self.gid_map.is_empty();
        if self.squash != "none" {
            parts.push(format!("squash {} to {}:{}", self.squash, self.squash_uid, self.squash_gid));
        }
        for (name, ranges) in [("users", &self.uid_map), ("groups", &self.gid_map)] {
            let shown = |r: &Range| format!("{}:{}:{}", r.from, r.to, r.count);
            if !ranges.is_empty() {
                parts.push(format!("{name} {}", ranges.iter().map(shown).collect::<Vec<_>>().join(",")));
            }
        }
        if is_mapped && self.squash == "none" {
            parts.push(format!("others are {}:{}", self.squash_uid, self.squash_gid));
        }
        parts.extend(self.root.iter().map(|root| format!("root {root}")));
        if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
    }
}

impl List {
    fn run(self) -> anyhow::Result<Exit> {
        let map = self.at.meet()?.map;
        let lines: Vec<Line> = nodemap::in_order(&map).iter().map(Line::of).collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&lines)?);
            return Ok(Exit::Done);
        }
        outln!("nodemap:");
        for line in &lines {
            outln!("    - name: {}\n      priority: {}", line.name, line.priority);
            outln!("      matches: {}\n      does: {}", line.matches(), line.does());
        }
        if lines.is_empty() {
            outln!("    none; `stria nodemap add` makes one");
        }
        Ok(Exit::Done)
    }
}

impl Test {
    fn run(self) -> anyhow::Result<Exit> {
        let map = self.at.meet()?.map;
        let outcome = self.look(&map);
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&outcome)?);
            return Ok(Exit::Done);
        }
        match &outcome.nodemap {
            Some(name) => outln!("nodemap: {name}"),
            None => outln!("nodemap: none matches"),
        }
        let refused = |is_refused| if is_refused { "refused" } else { "allowed" };
        outln!("mounts:  {}", refused(outcome.ban));
        outln!("changes: {}", refused(outcome.ban || outcome.read_only));
        outln!("root:    {}", outcome.root);
        outln!("caller:  {}:{} is {}:{}", self.uid, self.group(), outcome.uid, outcome.gid);
        Ok(Exit::Done)
    }

    fn group(&self) -> u32 {
        self.gid.unwrap_or(self.uid)
    }

    fn look(&self, map: &ClusterMap) -> Outcome {
        let own = Place { net: "local0".into(), address: None };
        // A node with a certificate comes over TCP.
        let over_tcp = Place { net: "tcp0".into(), address: None };
        let place = self.nid.as_ref().unwrap_or(if self.cert.is_some() { &over_tcp } else { &own });
        let peer = Peer {
            certificate: self.cert.as_ref().map(|c| (c.role.as_str(), c.node.as_str())),
            net: &place.net,
            address: place.address,
        };
        let list = nodemap::in_order(map);
        let found = nodemap::find(&list, &peer);
        let claimed = Cred { uid: self.uid, gid: self.group(), groups: vec![] };
        let caller = found.map_or_else(|| claimed.clone(), |found| nodemap::caller(found, &claimed));
        Outcome {
            nodemap: found.map(|found| found.name.clone()),
            ban: found.is_some_and(|found| found.ban),
            read_only: found.is_some_and(|found| found.read_only),
            root: found.map(|found| found.root.clone()).filter(|r| !r.is_empty()).unwrap_or("/".into()),
            uid: caller.uid,
            gid: caller.gid,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(subcommand)]
        verb: Verb,
    }

    fn words(line: &str) -> Result<Verb, String> {
        let words = ["nodemap"].into_iter().chain(line.split(' ')).chain(["--mgs", "10.0.0.5@tcp"]);
        Words::try_parse_from(words).map(|w| w.verb).map_err(|e| e.to_string())
    }

    fn set(line: &str, old: Entry) -> Entry {
        match words(line) {
            Ok(Verb::Add(set) | Verb::Modify(set)) => set.over(old),
            other => panic!("{other:?}"),
        }
    }

    fn empty() -> Entry {
        let (role, node, net, address) = Default::default();
        let (uids, gids, squash) = (vec![], vec![], Squash::None);
        let (squash_uid, squash_gid, priority) = (NOBODY, NOBODY, PRIORITY);
        let (ban, read_only, name) = (false, false, "lab".into());
        Entry {
            name,
            priority,
            role,
            node,
            net,
            address,
            ban,
            read_only,
            squash,
            squash_uid,
            squash_gid,
            uids,
            gids,
            root: String::new(),
        }
    }

    #[test]
    fn options_that_are_not_given_leave_a_nodemap_as_it_is() {
        let one = set("add lab --node lab* --read-only --squash root --squash-to 7:8", empty());
        assert_eq!(
            (one.node.as_str(), one.read_only, one.ban, one.squash),
            ("lab*", true, false, Squash::Root)
        );
        assert_eq!((one.squash_uid, one.squash_gid, one.priority), (7, 8, 100));
        assert_eq!(set("modify lab", one.clone()), one);
        let two = set("modify lab --read-only=false --ban --uid-map 1:2:3,10:20:30", one);
        assert_eq!((two.read_only, two.ban, two.uids.len(), two.squash), (false, true, 2, Squash::Root));
        assert_eq!(set("modify lab --uid-map none", two.clone()).uids, []);
        let below = set("modify lab --root /projects//a/", two);
        assert_eq!(below.root, "/projects/a");
        assert_eq!(set("modify lab --root /", below).root, "");
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for line in [
            "add lab --squash some",
            "add lab --squash-to 7",
            "add lab --uid-map 1:2",
            "add lab --ban=perhaps",
            "test --cert lab7",
            "test --cert user/lab7",
            "test --nid lab7@tcp1",
            "test --nid 10.1.2.3@o2ib",
        ] {
            assert!(words(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_test_tells_the_nodemap_and_the_caller() {
        let lab = set("add lab --node lab* --read-only --squash root", empty());
        let far =
            set("add far --address 10.1.0.0/16 --ban --priority 1", Entry { name: "far".into(), ..empty() });
        let map = ClusterMap { nodemaps: vec![lab, far], ..ClusterMap::empty() };
        let look = |line: &str| match words(line) {
            Ok(Verb::Test(test)) => test.look(&map),
            other => panic!("{other:?}"),
        };
        let of = |nodemap: Option<&str>, ban, read_only, uid, gid| {
            let nodemap = nodemap.map(str::to_owned);
            Outcome { nodemap, ban, read_only, root: "/".into(), uid, gid }
        };
        assert_eq!(look("test --cert client/lab7"), of(Some("lab"), false, true, NOBODY, NOBODY));
        assert_eq!(look("test --cert client/lab7 --uid 5"), of(Some("lab"), false, true, 5, 5));
        assert_eq!(
            look("test --cert client/lab7 --nid 10.1.2.3@tcp1 --uid 5 --gid 6"),
            of(Some("far"), true, false, 5, 6)
        );
        assert_eq!(look("test --nid 10.1.2.3:7010@tcp"), of(Some("far"), true, false, 0, 0));
        assert_eq!(look("test --uid 5"), of(None, false, false, 5, 5));
    }
}
