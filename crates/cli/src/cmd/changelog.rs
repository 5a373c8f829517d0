//! `stria changelog`: manages the consumers of a file system's changelog and shows its changes.

mod show;

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::wrap::wrap;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use types::{Code, Fault, TargetId};
use wire::changelog::*;
use wire::object::Capability;
use wire::session::Flush;
use wire::{Empty, Request};

use crate::cluster::Cluster;
use crate::cmd::completions::Offered;
use crate::cmd::damage::ago;
use crate::exit::{Exit, Failure, line_of};
use crate::reach::{self, Reach};
use show::{Form, mask_of, words_of};

/// Pause of `--follow` when there is no new change. The MDT shows flushed changes, and flushes once a second.
const PAUSE: Duration = Duration::from_millis(250);
/// Most changes of one request.
const CHANGES_MAX: u32 = 1024;

/// All changes of a file system, in order and without a gap: for backups, indexes, mirrors and policies. Register a consumer, read, and
/// acknowledge the changes that it has processed; the MDT keeps changes until all consumers have acknowledged them.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria changelog register backup /mnt/stria
Example: stria changelog read backup --follow --json /mnt/stria
Example: stria changelog ack backup 1234 /mnt/stria")]
pub struct Changelog {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a consumer: from now on changes are kept for it. They take an eighth of the MDT's room at most: a consumer that is too far behind then
    /// loses the oldest, and is told.
    #[command(
        after_help = "Example: stria changelog register mirror --mask create,mkdir,unlink,rmdir,rename,link,symlink,mknod --dir /tmp/s"
    )]
    Register(Register),
    /// Forget a consumer, and what is kept for it alone.
    #[command(after_help = "Example: stria changelog deregister backup /mnt/stria")]
    Deregister(Named),
    /// Show changes that the consumer has not acknowledged, as far as a power loss of the MDT cannot take them back. Exit code 1 if some were lost.
    #[command(after_help = "Example: stria changelog read backup /mnt/stria
Example: stria changelog read backup --after 1200 --json --dir /tmp/s")]
    Read(Read),
    /// The consumer is done with all changes up to NUMBER.
    #[command(after_help = "Example: stria changelog ack backup 1234 /mnt/stria")]
    Ack(Ack),
    /// Show the consumers, and what is kept for them. Exit code 1 if one has lost changes.
    #[command(after_help = "Example: stria changelog list -j --dir /tmp/s")]
    List(List),
}

/// Which file system.
#[derive(Debug, Args)]
struct Place {
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with = "path", required_unless_present = "path")]
    dir: Option<PathBuf>,
    /// A path on a mount.
    path: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Named {
    /// The consumer's name.
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Register {
    /// Kinds of changes that it reads: all, or some of create, mkdir, link, symlink, mknod, unlink, rmdir, rename, close, layout, truncate, setattr,
    /// xattr, write; or as Lustre calls them (CREAT, UNLNK, ...). Separated by commas.
    #[arg(short = 'm', long, default_value = "all", value_parser = Offered(show::mask_words).try_map(|text| mask_of(&text)), hide_possible_values = true)]
    mask: u64,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    /// A name for the consumer: letters, digits, '.', '_' and '-'.
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Read {
    /// Go on behind this change.
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// Go on for ever, with each change as it comes, also over restarts of servers.
    #[arg(short = 'f', long)]
    follow: bool,
    /// JSON output: an object per line.
    #[arg(short = 'j', long)]
    json: bool,
    /// The columns of `lfs changelog`. Flags: 0x1 that was the last name; 0x2 the two names of a rename changed places.
    #[arg(long, conflicts_with = "json")]
    lustre: bool,
    /// The consumer's name.
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct Ack {
    /// The consumer's name.
    name: String,
    /// The last change that it is done with.
    number: u64,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
struct List {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

impl Changelog {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Register(register) => register.run(),
            Verb::Deregister(named) => {
                let mdt = Mdt::at(&named.place)?;
                let id = mdt.consumer(&named.name)?.id;
                let cap = mdt.cap();
                mdt.ask(&DeregisterConsumer { id, cap })?;
                Ok(Exit::Done)
            }
            Verb::Read(read) => read.run(),
            Verb::Ack(Ack { name, number, place }) => {
                let mdt = Mdt::at(&place)?;
                let (id, cap) = (mdt.consumer(&name)?.id, mdt.cap());
                mdt.ask(&AckChanges { id, upto: number, cap })?;
                Ok(Exit::Done)
            }
            Verb::List(list) => list.run(),
        }
    }
}

/// The MDT that holds the changelog. (There is one MDT; several will have a changelog each.)
struct Mdt {
    reach: Reach,
    id: TargetId,
    name: String,
}

impl Mdt {
    fn at(place: &Place) -> anyhow::Result<Mdt> {
        let reach = match (&place.dir, &place.path) {
            (Some(dir), _) => {
                let dir = super::absolute(dir)?;
                let cluster = Cluster::existing(&dir)?;
                reach::through_socket(&dir, &cluster.fsname).map_err(|e| {
                    let next = format!("start it with `stria up --dir {}`", crate::shell::path(&dir));
                    Failure::unusable(dir.display(), format!("the cluster does not answer ({e:#})"), next)
                })?
            }
            (None, Some(path)) => {
                let (_, source) = reach::mount_of(path)?;
                Reach::by_nids(&source.nids, &source.fsname)?
            }
            (None, None) => {
                return Err(
                    Failure::unusable("changelog", "no place was given", "give --dir or a path").into()
                );
            }
        };
        let mdt = reach.mdts().first().map(|t| (t.id, t.index));
        let Some((id, index)) = mdt else {
            let what = format!("file system '{}'", reach.file_system().name);
            return Err(Failure::unusable(
                what,
                "it has no MDT",
                "start `stria mds`; the first time with `--format`",
            )
            .into());
        };
        let name = format!("{}-MDT{index:04x}", reach.file_system().name);
        Ok(Mdt { reach, id, name })
    }

    fn cap(&self) -> Capability {
        self.reach.capability(SystemTime::now())
    }

    fn ask<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        self.reach.ask(self.id, request).map_err(|e| e.context(format!("changelog of {}", self.name)))
    }

    fn list(&self) -> anyhow::Result<ListConsumersReply> {
        self.ask(&ListConsumers { cap: self.cap() })
    }

    fn consumer(&self, name: &str) -> anyhow::Result<Consumer> {
        self.list()?.consumers.into_iter().find(|c| c.name == name).ok_or_else(|| {
            let what = format!("changelog of {}", self.name);
            let why = format!("no consumer '{name}' is registered");
            Failure::failed(
                what,
                why,
                "`stria changelog list` shows all, `stria changelog register` makes one",
            )
            .into()
        })
    }
}

impl Register {
    fn run(self) -> anyhow::Result<Exit> {
        let mdt = Mdt::at(&self.place)?;
        let (name, mask, cap) = (self.name.clone(), self.mask, mdt.cap());
        let RegisterConsumerReply { id, after } = mdt.ask(&RegisterConsumer { name, mask, cap })?;
        match self.json {
            true => outln!("{}", serde_json::json!({ "name": self.name, "id": id, "after": after })),
            false => outln!("{}: changes behind {after} are kept", self.name),
        }
        Ok(Exit::Done)
    }
}

impl Read {
    fn run(self) -> anyhow::Result<Exit> {
        let mdt = Mdt::at(&self.place)?;
        let form = match (self.json, self.lustre) {
            (true, _) => Form::Json,
            (_, true) => Form::Lustre,
            _ => Form::Text,
        };
        let (mut id, mut after, mut told_lost, mut is_silent) = (None, self.after, 0, false);
        loop {
            let reply = match self.ask(&mdt, &mut id, after) {
                Ok(reply) => reply,
                Err(e) if self.follow && may_pass(&e) => {
                    if !is_silent {
                        eprintln!("stria: {}; waiting for it", line_of(&e));
                    }
                    is_silent = true;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(e) => return Err(e),
            };
            is_silent = false;
            if let Some(lost) = reply.lost.filter(|lost| lost.to > told_lost) {
                told_lost = lost.to;
                self.tell_lost(&mdt, &lost);
            }
            reply.changes.iter().for_each(|change| outln!("{}", form.line(change)));
            after = reply.upto;
            if !reply.more {
                if !self.follow {
                    return Ok(if told_lost > 0 { Exit::Findings } else { Exit::Done });
                }
                std::io::stdout().flush()?;
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn ask(&self, mdt: &Mdt, id: &mut Option<u32>, after: u64) -> anyhow::Result<ReadChangesReply> {
        let id = match *id {
            Some(id) => id,
            None => {
                // The MDT shows only flushed changes. The flush makes the caller's own latest changes visible.
                let Empty {} = mdt.ask(&Flush {})?;
                *id.insert(mdt.consumer(&self.name)?.id)
            }
        };
        mdt.ask(&ReadChanges { id, after, max: CHANGES_MAX, cap: mdt.cap() })
    }

    fn tell_lost(&self, mdt: &Mdt, LostChanges { from, to }: &LostChanges) {
        let (name, place) = (&self.name, &mdt.name);
        eprintln!(
            "stria: changelog of {place}: '{name}' was too far behind, and changes {from} to {to} are lost; look at the whole file system, \
             then `stria changelog ack {name} {to}`"
        );
        if self.json {
            outln!("{}", serde_json::json!({ "lost": { "from": from, "to": to } }));
        }
    }
}

/// Whether an error is temporary: the MDT is away or busy.
fn may_pass(e: &anyhow::Error) -> bool {
    let is_said = |f: &Fault| matches!(f.code, Code::NotReady | Code::Moved | Code::Timeout);
    e.downcast_ref::<Failure>().is_none() && e.downcast_ref::<Fault>().is_none_or(is_said)
}

impl List {
    fn run(self) -> anyhow::Result<Exit> {
        let mdt = Mdt::at(&self.place)?;
        let list = mdt.list()?;
        let exit = if list.consumers.iter().any(|c| c.lost.is_some()) { Exit::Findings } else { Exit::Done };
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&show::json_of(&list))?),
            false => print_list(&list),
        }
        Ok(exit)
    }
}

fn print_list(list: &ListConsumersReply) {
    let human = types::size::human;
    outln!(
        "newest change {}; {} are kept, {} of {}",
        list.newest,
        list.records,
        human(list.bytes),
        human(list.bytes_max)
    );
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    for c in &list.consumers {
        let seen = ago(now_sec.saturating_sub(c.acked_at.sec.max(0) as u64));
        let behind = list.newest.saturating_sub(c.acked);
        // A long mask is broken between its words.
        let words = words_of(c.mask).replace(',', ", ");
        let line = format!("{:<20} acknowledged {} ({seen}), {behind} behind: {words}", c.name, c.acked);
        outln!("{}", wrap(&line, 21));
        if let Some(LostChanges { from, to }) = &c.lost {
            outln!("{:<20} has lost changes {from} to {to}, and has not acknowledged that", "");
        }
    }
}
