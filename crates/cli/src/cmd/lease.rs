//! `stria lease`, `stria client`, `stria waiters`: what clients may cache, which of them waits for which, and the end of one that hangs.

use std::collections::BTreeMap;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use serde::Serialize;
use types::{Fid, SessionId};
use wire::map::Target;
use wire::mdt::{EvictSession, MdtLeases, MdtLeasesReply};
use wire::shared::LeaseKind;

use crate::cmd::damage::Where;
use crate::cmd::ost::{ask_each, ended};
use crate::exit::{Exit, Failure};
use crate::reach::Reach;

/// Look at leases: what clients may cache of files.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria lease list /mnt/stria\nExample: stria lease list /mnt/stria/data.bin")]
pub struct Lease {
    #[command(subcommand)]
    verb: LeaseVerb,
}

#[derive(Debug, Subcommand)]
enum LeaseVerb {
    /// Show which client holds a lease of which file's content, of which kind, or the exclusive lease of which directory, and whether another client waits for it. (`stria client
    /// list` counts leases of names.)
    #[command(
        after_help = "Example: stria lease list /mnt/stria\nExample: stria lease list --client 10002 /mnt/stria"
    )]
    List(List),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: Where,
    /// Only leases of this session, as `stria client list` shows it.
    #[arg(long, value_name = "SESSION", value_parser = session)]
    client: Option<SessionId>,
}

/// Look at the clients of a file system, and end one that hangs.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria client list /mnt/stria\nExample: stria client evict --session 10002 --yes /mnt/stria"
)]
pub struct Client {
    #[command(subcommand)]
    verb: ClientVerb,
}

#[derive(Debug, Subcommand)]
enum ClientVerb {
    /// Show each client: its session, when it was heard of last, and how much it may cache.
    #[command(after_help = "Example: stria client list /mnt/stria")]
    List(Where),
    /// End a client's session, as if the client were dead: its leases, locks and unlinked files end, and its open files are `EIO` there. The
    /// client goes on with a new session. Without --yes it only shows what would end.
    #[command(after_help = "Example: stria client evict --session 10002 --yes /mnt/stria")]
    Evict(Evict),
}

#[derive(Debug, Args)]
struct Evict {
    #[command(flatten)]
    place: Where,
    /// The session, as `stria client list` shows it.
    #[arg(long, value_name = "SESSION", value_parser = session)]
    session: SessionId,
    /// Do it.
    #[arg(long)]
    yes: bool,
}

/// Show what waits for a lease, for how long, and which clients hold it. Exit code 1 if something waits.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria waiters /mnt/stria")]
pub struct Waiters {
    #[command(flatten)]
    place: Where,
}

/// A session in the form of the servers' logs, with or without its letter.
fn session(text: &str) -> Result<SessionId, String> {
    let digits = text.strip_prefix('s').unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map(SessionId)
        .map_err(|_| "give a session as `stria client list` shows it".into())
}

/// A lease of a file's content.
#[derive(Debug, Serialize)]
struct LeaseLine {
    path: String,
    fid: String,
    session: String,
    client: String,
    mode: &'static str,
    /// Since another client wants it first.
    wanted_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ClientLine {
    mdt: String,
    session: String,
    client: String,
    silent_ms: u64,
    lease_left_ms: u64,
    directories: u64,
    files: u64,
}

#[derive(Debug, Serialize)]
struct WaitLine {
    path: String,
    fid: String,
    session: String,
    client: String,
    mode: &'static str,
    waited_ms: u64,
    /// Clients that hold a lease of the file.
    holders: Vec<String>,
}

/// A change of names in a directory, or of attributes.
#[derive(Debug, Serialize)]
struct NameLine {
    path: String,
    fid: String,
    session: String,
    client: String,
    waited_ms: u64,
    /// The client that caches what is changed.
    holder: String,
}

fn mode(kind: LeaseKind) -> &'static str {
    match kind {
        LeaseKind::Shared => "shared",
        LeaseKind::Many => "many",
        LeaseKind::Exclusive => "exclusive",
    }
}

/// The names of clients, by session.
fn names(reply: &MdtLeasesReply) -> BTreeMap<SessionId, String> {
    reply.clients.iter().map(|client| (client.session, client.name.clone())).collect()
}

/// The leases of each MDT, and the error of one that did not answer.
type Looked = (Reach, Vec<(String, MdtLeasesReply)>, Option<Failure>);

fn look(place: &Where) -> anyhow::Result<Looked> {
    let (reach, fid) = place.reach()?;
    let mdts: Vec<&Target> = reach.mdts();
    let cap = reach.capability(SystemTime::now());
    let req = MdtLeases { cap, fid: fid.unwrap_or(Fid(0)) };
    let (answers, silent) = ask_each(&reach, &mdts, |mdt| reach.ask(mdt.id, &req));
    if answers.iter().any(|(_, reply)| reply.more) {
        eprintln!("stria: there are more leases than are shown; give a file to see those of it");
    }
    Ok((reach, answers, silent))
}

impl Lease {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let LeaseVerb::List(List { place, client }) = self.verb;
        let (reach, answers, silent) = look(&place)?;
        let mut lines = Vec::new();
        for (_, reply) in &answers {
            let names = names(reply);
            for file in reply.files.iter().filter(|file| client.is_none_or(|id| id == file.session)) {
                lines.push(LeaseLine {
                    path: reach.path_of(file.fid),
                    fid: file.fid.to_string(),
                    session: file.session.to_string(),
                    client: names.get(&file.session).cloned().unwrap_or_default(),
                    mode: mode(file.kind),
                    wanted_ms: (file.wanted_ms > 0).then_some(file.wanted_ms),
                });
            }
        }
        lines.sort_by(|a, b| (&a.path, &a.session).cmp(&(&b.path, &b.session)));
        match place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false if lines.is_empty() => outln!("no client holds a lease of content"),
            false => {
                outln!("{:<10}{:<12}{:<11}{:<24}FILE", "SESSION", "MODE", "WANTED", "CLIENT");
                for l in &lines {
                    let wanted = l.wanted_ms.map_or("-".into(), |ms| format!("{ms} ms"));
                    outln!("{:<10}{:<12}{wanted:<11}{:<24}{}", l.session, l.mode, short(&l.client), l.path);
                }
            }
        }
        ended(silent)
    }
}

impl Client {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            ClientVerb::List(place) => list_clients(&place),
            ClientVerb::Evict(evict) => evict.run(),
        }
    }
}

fn list_clients(place: &Where) -> anyhow::Result<Exit> {
    let (_, answers, silent) = look(place)?;
    let lines: Vec<ClientLine> = answers
        .iter()
        .flat_map(|(mdt, reply)| {
            reply.clients.iter().map(|client| ClientLine {
                mdt: mdt.clone(),
                session: client.session.to_string(),
                client: client.name.clone(),
                silent_ms: client.silent_ms,
                lease_left_ms: client.left_ms,
                directories: client.dirs,
                files: client.files,
            })
        })
        .collect();
    match place.json {
        true => outln!("{}", serde_json::to_string_pretty(&lines)?),
        false if lines.is_empty() => outln!("no client"),
        false => {
            outln!("{:<10}{:>10}{:>12}{:>8}{:>8}  CLIENT", "SESSION", "SILENT", "LEASE", "DIRS", "FILES");
            for l in &lines {
                let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
                let (silent, left) = (seconds(l.silent_ms), seconds(l.lease_left_ms));
                outln!(
                    "{:<10}{silent:>10}{left:>12}{:>8}{:>8}  {}",
                    l.session,
                    l.directories,
                    l.files,
                    l.client
                );
            }
        }
    }
    ended(silent)
}

impl Evict {
    fn run(self) -> anyhow::Result<Exit> {
        let (reach, answers, silent) = look(&self.place)?;
        let with = answers.iter().find(|(_, reply)| reply.clients.iter().any(|c| c.session == self.session));
        let Some((name, reply)) = with else {
            let next = "`stria client list` shows the sessions";
            return Err(Failure::unusable(format!("session {}", self.session), "there is none", next).into());
        };
        let held = reply.files.iter().filter(|file| file.session == self.session).count();
        let client = names(reply).remove(&self.session).unwrap_or_default();
        let target = reach.mdts().into_iter().find(|t| mgmt::member_name(&reach.map, t) == *name);
        if let (true, Some(target)) = (self.yes, target) {
            let cap = reach.capability(SystemTime::now());
            reach.ask(target.id, &EvictSession { cap, session: self.session })?;
        }
        match self.place.json {
            true => outln!(
                "{}",
                serde_json::json!({ "session": self.session.to_string(), "client": client, "files": held, "evicted": self.yes })
            ),
            false if self.yes => outln!("session {} of {client} has ended", self.session),
            false => outln!(
                "this would end session {} of {client}: its open files become EIO there, and its locks and {held} leases of files end; \
                 give --yes to do it",
                self.session
            ),
        }
        ended(silent)
    }
}

impl Waiters {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let (reach, answers, silent) = look(&self.place)?;
        let (mut lines, mut of_names, mut changes) = (Vec::new(), Vec::new(), 0);
        for (_, reply) in &answers {
            let names = names(reply);
            let name = |id: &SessionId| names.get(id).cloned().unwrap_or_default();
            changes += reply.changes_waiting;
            of_names.extend(reply.names.iter().map(|wait| NameLine {
                path: reach.path_of(wait.fid),
                fid: wait.fid.to_string(),
                session: wait.session.to_string(),
                client: name(&wait.session),
                waited_ms: wait.waited_ms,
                holder: format!("{} {}", wait.holder, name(&wait.holder)),
            }));
            for wait in &reply.waits {
                let holds =
                    |file: &&wire::mdt::FileLease| file.fid == wait.fid && file.session != wait.session;
                let holders = reply.files.iter().filter(holds);
                lines.push(WaitLine {
                    path: reach.path_of(wait.fid),
                    fid: wait.fid.to_string(),
                    session: wait.session.to_string(),
                    client: name(&wait.session),
                    mode: mode(wait.kind),
                    waited_ms: wait.waited_ms,
                    holders: holders
                        .map(|file| format!("{} {}", file.session, name(&file.session)))
                        .collect(),
                });
            }
        }
        let is_any = changes > 0 || !lines.is_empty();
        match self.place.json {
            true => outln!(
                "{}",
                serde_json::json!({ "files": lines, "names": of_names, "changes_of_names": changes })
            ),
            false => {
                lines.iter().for_each(|l| outln!("{}", l.text()));
                of_names.iter().for_each(|l| outln!("{}", l.text()));
                match changes {
                    0 if lines.is_empty() => outln!("nothing waits for a lease"),
                    0 => {}
                    some => {
                        outln!("{some} changes of names or attributes wait until clients have forgotten them")
                    }
                }
            }
        }
        ended(silent)?;
        Ok(if is_any { Exit::Findings } else { Exit::Done })
    }
}

impl NameLine {
    fn text(&self) -> String {
        let NameLine { path, session, client, waited_ms, holder, .. } = self;
        format!(
            "{path}: a change of session {session} {client} waits {waited_ms} ms until {holder} has forgotten it"
        )
    }
}

impl WaitLine {
    fn text(&self) -> String {
        let WaitLine { path, session, client, mode, waited_ms, holders, .. } = self;
        let held = if holders.is_empty() { "no client any more".into() } else { holders.join(", ") };
        format!(
            "{path}: session {session} {client} waits {waited_ms} ms for the {mode} lease; held by {held}"
        )
    }
}

/// The end of a client's name has its mount point, the begin its host.
fn short(name: &str) -> String {
    const MAX: usize = 22;
    match name.chars().count() {
        0..=MAX => name.into(),
        _ => name.chars().take(MAX - 1).chain(['…']).collect(),
    }
}
