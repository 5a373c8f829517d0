//! `stria router`: a router as a process of its own, and the look at one.

mod stat;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use net::Fabric;
use types::FsId;
use wire::Request;
use wire::router::RouterDrain;

use crate::cmd::ConfigArgs;
use crate::exit::{Exit, Failure};
use crate::reach::{self, MGS};
use crate::serve;
use crate::serve::router::SOCKET;

/// Run a router, which joins nets: hosts on one reach servers on another through it. Or look at one that runs here.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Example: stria router --print-config > router.toml; stria router --config router.toml
Example: stria router stat --interval 1
Example: stria router drain; stria router stat; stria router resume
Hosts learn of a router by `stria route add` (docs/routers.md)."
)]
pub struct Router {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Stat(stat::Stat),
    Drain(Drain),
    Resume(Resume),
}

/// Take no new circuits and end those that are idle, before the router is stopped. Hosts take other routers, and no program sees an error.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria router drain --within 30")]
struct Drain {
    #[command(flatten)]
    at: At,
    /// Seconds after which busy circuits are ended too; their requests are sent again by another way.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    within: u32,
}

/// Take new circuits again after a drain.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria router resume")]
struct Resume {
    #[command(flatten)]
    at: At,
}

/// The router on this host.
#[derive(Debug, Args)]
struct At {
    /// The key `dir` of the router's configuration.
    #[arg(long, default_value = "/var/lib/stria/router")]
    dir: PathBuf,
}

impl Router {
    pub fn run(self) -> anyhow::Result<Exit> {
        let Some(verb) = self.verb else {
            return match self.config.load()? {
                Some(config) => serve::router::router(config),
                None => Ok(Exit::Done),
            };
        };
        crate::logs::start_for_tools();
        match verb {
            Verb::Stat(c) => c.run(),
            Verb::Drain(c) => {
                let within_ms = Duration::from_secs(c.within.into()).as_millis() as u64;
                c.at.ask(&RouterDrain { is_on: true, within_ms })?;
                outln!(
                    "draining; `stria router stat` shows the circuits that are left, {} s at most",
                    c.within
                );
                Ok(Exit::Done)
            }
            Verb::Resume(c) => {
                c.at.ask(&RouterDrain { is_on: false, within_ms: 0 })?;
                outln!("it takes circuits again");
                Ok(Exit::Done)
            }
        }
    }
}

impl At {
    fn ask<R: Request>(&self, request: &R) -> anyhow::Result<R::Reply> {
        ask(&self.dir, request)
    }
}

fn ask<R: Request>(dir: &Path, request: &R) -> anyhow::Result<R::Reply> {
    let socket = dir.join(SOCKET);
    let peer = Fabric::new(None).peer_at(&format!("unix:{}", socket.display()), MGS);
    reach::ask(&*peer, FsId(0), MGS, request).map_err(|e| {
        let next = "start `stria router`, give its directory with --dir, or be its user";
        Failure::failed(format!("the router at {}", dir.display()), format!("{e:#}"), next).into()
    })
}
