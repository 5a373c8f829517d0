//! `stria cluster`: the CA of a cluster, and the certificates of its nodes.
//!
//! Each command works in the CA directory, and ends with the lines that carry its result to the hosts. With --mgs, revocation lists go to the
//! cluster map at once.

mod list;
mod publish;
mod told;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use pki::{Authority, AuthorityError, Leftover, NODE_DAYS, NODE_DAYS_MAX, Name, Reason, Record, Role};

use crate::exit::{Exit, Failure};
use crate::reach::Service;
use crate::shell;

/// Issue, revoke and renew the certificates of a cluster's nodes.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster init --name alpha
Example: stria cluster add-node oss1
Example: stria cluster list
docs/cluster-ca.md tells how certificates reach the hosts, and how a CA is rotated.")]
pub struct Cluster {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(Init),
    AddNode(AddNode),
    Issue(Issue),
    Revoke(Revoke),
    Publish(publish::Publish),
    Rotate(Rotate),
    List(List),
}

/// Make the CA of a new cluster, and the first certificates: an administrator's and a server's for this host.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster init --name alpha
Example: stria cluster init --name alpha --node mds1 --dir /srv/alpha-ca")]
struct Init {
    /// Name of the cluster: a-z, 0-9, '.' and '-', 63 at most. It stands in every certificate and cannot be changed.
    #[arg(long)]
    name: Name,
    /// Name of this host in its certificates [default: its host name].
    #[arg(long, value_name = "HOST")]
    node: Option<Name>,
    #[command(flatten)]
    at: At,
}

/// Issue the certificate of a new node: a server, unless --role says otherwise.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster add-node oss1
Example: stria cluster add-node login1 --role client")]
struct AddNode {
    /// Name of the node: a-z, 0-9, '.' and '-', 63 at most. Its host name, unless you have another scheme.
    node: Name,
    /// What the node may do: serve, mount, administer the cluster, or join nets.
    #[arg(long, default_value = "server", value_parser = roles())]
    role: Role,
    #[command(flatten)]
    life: Life,
    #[command(flatten)]
    at: At,
}

/// Issue a certificate again, before it expires or after its key was lost. The earlier one stays valid until it is revoked.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria cluster issue oss1 --role server")]
struct Issue {
    /// Name of the node.
    node: Name,
    /// What the node may do.
    #[arg(long, value_parser = roles())]
    role: Role,
    #[command(flatten)]
    life: Life,
    #[command(flatten)]
    at: At,
}

/// Revoke the certificates of a node, or one by its serial. With --mgs the cluster refuses them at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster revoke login1 --reason key-compromise --mgs 10.0.0.5@tcp
Example: stria cluster revoke 3fa91c02d4")]
struct Revoke {
    /// Name of a node, or the first digits of a serial (8 at least), as `stria cluster list` shows it.
    #[arg(value_name = "NODE|SERIAL")]
    which: String,
    /// Only the certificates with this role.
    #[arg(long, value_parser = roles())]
    role: Option<Role>,
    /// Why, for the list and for people.
    #[arg(long, default_value = "unspecified", value_parser = reasons())]
    reason: Reason,
    /// Put the new revocation list into the map of this management service: NID[,NID...]. Needs an administrator's certificate.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
    #[command(flatten)]
    at: At,
}

/// Make a new CA beside the current one, and issue all valid certificates again; later, with --finish, end the earlier CA.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria cluster rotate
Example: stria cluster rotate --finish")]
struct Rotate {
    /// End the rotation: certificates of the earlier CA count no longer.
    #[arg(long)]
    finish: bool,
    /// End it although valid certificates of the earlier CA were not issued again.
    #[arg(long, requires = "finish")]
    yes: bool,
    #[command(flatten)]
    at: At,
}

/// Show all certificates. Exit code 1 if one expires within 30 days, or the CA within a year.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria cluster list\nExample: stria cluster list -j")]
struct List {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
struct Life {
    /// Days until the certificate expires.
    #[arg(long, default_value_t = NODE_DAYS, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODE_DAYS_MAX)))]
    days: u32,
}

#[derive(Debug, Args)]
struct At {
    /// Directory of the CA.
    #[arg(long, value_name = "DIR", default_value = "/etc/stria/ca")]
    dir: PathBuf,
}

impl At {
    fn open(&self) -> Result<Authority, Failure> {
        Authority::open(&super::absolute(&self.dir).unwrap_or(self.dir.clone())).map_err(failure)
    }
}

fn roles() -> impl TypedValueParser<Value = Role> {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str)).try_map(|text| text.parse::<Role>())
}

fn reasons() -> impl TypedValueParser<Value = Reason> {
    let read = |text: String| Reason::ALL.into_iter().find(|reason| reason.as_str() == text);
    PossibleValuesParser::new(Reason::ALL.map(Reason::as_str))
        .try_map(move |text| read(text).ok_or("no such reason"))
}

impl Cluster {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let now = SystemTime::now();
        match self.verb {
            Verb::Init(c) => c.run(now),
            Verb::AddNode(c) => issue(&c.at, c.role, &c.node, c.life.days, now),
            Verb::Issue(c) => issue(&c.at, c.role, &c.node, c.life.days, now),
            Verb::Revoke(c) => c.run(now),
            Verb::Publish(c) => c.run(now),
            Verb::Rotate(c) if c.finish => c.finish(now),
            Verb::Rotate(c) => c.begin(now),
            Verb::List(c) => list::run(&c.at.open()?, c.json, now),
        }
    }
}

impl Init {
    fn run(self, now: SystemTime) -> anyhow::Result<Exit> {
        let dir = super::absolute(&self.at.dir)?;
        let host = match self.node {
            Some(node) => node,
            None => told::this_host().ok_or_else(|| {
                let why = "this host's name is no name of a node (a-z, 0-9, '.' and '-', 63 at most)";
                Failure::unusable("cluster init", why, "give one by --node")
            })?,
        };
        let made = Authority::init(&dir, &self.name, &host, now).map_err(failure)?;
        outln!("made the CA of cluster {} in {}", self.name, shell::path(&dir));
        outln!("  Its key signs every node: let only root read the directory, and keep a copy of it.");
        let issued: Vec<Record> = made.list(now).into_iter().map(|l| l.record).collect();
        issued.iter().for_each(told::issued);
        outln!("next, for the daemons and the administrator of {host}:");
        [Role::Server, Role::Admin].iter().for_each(|role| told::copy_folder(&made, *role, &host, now));
        outln!("for each further host: stria cluster add-node HOST{}", told::dir_option(&dir));
        Ok(Exit::Done)
    }
}

fn issue(at: &At, role: Role, node: &Name, days: u32, now: SystemTime) -> anyhow::Result<Exit> {
    let mut authority = at.open()?;
    let record = authority.issue(role, node, days, now).map_err(failure)?;
    told::issued(&record);
    outln!("next, for {node}; a process that runs takes it within a second:");
    told::copy_folder(&authority, role, node, now);
    Ok(Exit::Done)
}

impl Revoke {
    fn run(self, now: SystemTime) -> anyhow::Result<Exit> {
        let mut authority = self.at.open()?;
        let revoked = authority.revoke(&self.which, self.role, self.reason, now).map_err(failure)?;
        let name = |r: &Record| format!("{} certificate {} of {}", r.role, r.serial.short(), r.node);
        revoked.before.iter().for_each(|r| outln!("{} was revoked before", name(r)));
        revoked.now.iter().for_each(|r| outln!("revoked {}", name(r)));
        if let Some(service) = &self.mgs {
            return publish::run(&authority, service, now);
        }
        if !revoked.now.is_empty() {
            let number = authority.list_number();
            outln!(
                "next: put revocation list {number} into the cluster map, so that all refuse them at once:"
            );
            outln!("  stria cluster publish --mgs NID{}", told::dir_option(authority.dir()));
            outln!("  or copy it to the servers; a process takes it within a second:");
            told::copy_files(&authority, &["crl.pem"], Some(Role::Server), now);
        }
        Ok(Exit::Done)
    }
}

impl Rotate {
    fn begin(self, now: SystemTime) -> anyhow::Result<Exit> {
        let mut authority = self.at.open()?;
        let again = authority.rotate(now).map_err(failure)?;
        outln!("made CA {}, and issued {} certificates again by it", authority.generation(), again.len());
        outln!("next: 1. every host gets both CAs:");
        told::copy_files(&authority, &["crl.pem", "ca.pem"], None, now);
        outln!("      2. when all hosts have them, each gets its new certificate:");
        again.iter().for_each(|r| told::copy_folder(&authority, r.role, &r.node, now));
        outln!(
            "      3. when all hosts have it: stria cluster rotate --finish{}",
            told::dir_option(authority.dir())
        );
        Ok(Exit::Done)
    }

    fn finish(self, now: SystemTime) -> anyhow::Result<Exit> {
        let mut authority = self.at.open()?;
        let leftover = if self.yes { Leftover::Drop } else { Leftover::Refuse };
        let left = authority.finish(leftover, now).map_err(failure)?;
        outln!("CA {} is the only one of cluster {}", authority.generation(), authority.cluster());
        left.iter().for_each(|r| {
            outln!("  {} certificate {} of {} counts no longer", r.role, r.serial.short(), r.node)
        });
        outln!("next: every host forgets the earlier CA:");
        told::copy_files(&authority, &["crl.pem", "ca.pem"], None, now);
        outln!(
            "      and the cluster map gets its list: stria cluster publish --mgs NID{}",
            told::dir_option(authority.dir())
        );
        Ok(Exit::Done)
    }
}

/// The begin of error lines.
const WHAT: &str = "cluster";

/// The error line of the CA directory's errors.
fn failure(error: AuthorityError) -> Failure {
    let next = next_step(&error);
    match &error {
        AuthorityError::Io { .. } | AuthorityError::Make(_) | AuthorityError::Left { .. } => {
            Failure::failed(WHAT, error, next)
        }
        _ => Failure::unusable(WHAT, error, next),
    }
}

fn next_step(error: &AuthorityError) -> String {
    let init = |dir: &Path| format!("`stria cluster init --name NAME{}` makes one", told::dir_option(dir));
    match error {
        AuthorityError::None { dir } => format!("give its --dir; {}", init(dir)),
        AuthorityError::Exists { .. } => "use it, or give another --dir".into(),
        AuthorityError::InUse { .. } => "wait until it has ended".into(),
        AuthorityError::Io { .. } => {
            "put that right and run the command again; it completes what was begun".into()
        }
        AuthorityError::Damaged { .. } => "restore the directory from its copy".into(),
        AuthorityError::OpenKey { path, .. } => {
            format!("`chmod 600 {}`; if others may have read it, rotate the CA", shell::path(path))
        }
        AuthorityError::Days => "give another --days".into(),
        AuthorityError::CaExpired { .. } => "`stria cluster rotate` makes a new one".into(),
        AuthorityError::Unknown { .. } => "`stria cluster list` shows nodes, roles and serials".into(),
        AuthorityError::Ambiguous { .. } => "give more digits".into(),
        AuthorityError::Rotating { .. } => "end it first: `stria cluster rotate --finish`".into(),
        AuthorityError::NotRotating => "`stria cluster rotate` begins one".into(),
        AuthorityError::Left { .. } => "issue them again, or give --yes: they then count no longer".into(),
        AuthorityError::Make(_) => "try again; if it stays so, report it".into(),
    }
}
