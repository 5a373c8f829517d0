//! `stria net`: the connections of servers and of a mount.

mod list;
mod stat;
mod trace;

pub use list::Ping;

use anyhow::Context;
use clap::{Args, Subcommand};
use types::TargetId;
use wire::{Request, Wire};

use crate::cmd::damage::Where;
use crate::exit::Exit;
use crate::reach::{MGS, Reach};

/// Look at nets and connections: which NIDs there are and whether they answer, what went over connections, and each frame as it goes.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria net stat /mnt/stria\nExample: stria net trace --dir /tmp/s --count 100"
)]
pub struct Net {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::List),
    Show(list::Show),
    Ping(list::Ping),
    Stat(stat::Stat),
    Trace(trace::Trace),
}

impl Net {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::List(c) => c.run(),
            Verb::Show(c) => c.run(),
            Verb::Ping(c) => c.run(),
            Verb::Stat(c) => c.run(),
            Verb::Trace(c) => c.run(),
        }
    }
}

/// A process whose connections are shown.
#[derive(Clone)]
enum Process {
    /// The mount at a path.
    Mount(std::path::PathBuf),
    /// A server, by one of its targets.
    Server {
        name: String,
        target: TargetId,
    },
    Mgs,
}

impl Process {
    fn name(&self) -> String {
        match self {
            Process::Mount(point) => format!("mount {}", point.display()),
            Process::Server { name, .. } => format!("server {name}"),
            Process::Mgs => "management service".into(),
        }
    }

    /// Asks a server, or reads an attribute of a mount.
    fn ask<R: Request>(&self, reach: &Reach, request: &R, attribute: &str) -> anyhow::Result<R::Reply> {
        match self {
            Process::Mount(point) => {
                let value = crate::xattr::get(point, attribute)
                    .with_context(|| format!("ask the mount at {}", point.display()))?;
                R::Reply::from_bytes(&value).context("read the mount's answer")
            }
            Process::Server { target, .. } => reach.ask(*target, request),
            Process::Mgs => {
                let nid = reach.mgs.as_ref().context("the management service has no address")?;
                crate::reach::ask(&*reach.fabric.peer_at(nid, MGS), reach.fs, MGS, request)
            }
        }
    }
}

/// The mount at the place, if it is one, then the servers: each process once.
fn processes(place: &Where, reach: &Reach) -> anyhow::Result<Vec<Process>> {
    let mount = place.path().map(crate::reach::mount_of).transpose()?;
    let mount = mount.map(|(point, _)| Process::Mount(point));
    let servers = reach.map.nodes.iter().filter_map(|node| {
        let target = reach.map.targets.iter().find(|t| t.node == node.id && t.fs == reach.fs)?;
        Some(Process::Server { name: node.name.clone(), target: target.id })
    });
    // The process of `stria up` is one for all.
    let is_apart = |nid: &String| !reach.map.nodes.iter().any(|node| node.nids.contains(nid));
    let mgs = reach.mgs.iter().filter(|nid| is_apart(nid)).map(|_| Process::Mgs);
    Ok(mount.into_iter().chain(servers).chain(mgs).collect())
}
