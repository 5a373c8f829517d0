//! `stria mgs`: the management service as a process of its own, and what is done to its map while it is stopped.

mod rebuild;
mod to_etcd;

use clap::{Args, Subcommand};

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;
use crate::serve::device::Blank;

/// Run the management service: keeper of the cluster map, which servers and clients ask first.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example: stria mgs --print-config > mgs.toml; stria mgs --config mgs.toml --format   (the first time)"
)]
pub struct Mgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Make an empty cluster map if there is none: once, for a new cluster. Without, a missing map is an error. In etcd: refused if one is there.
    #[arg(long)]
    format: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Move(to_etcd::Move),
    Rebuild(rebuild::Rebuild),
}

impl Mgs {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.verb {
            Some(Verb::Move(verb)) => return verb.run(),
            Some(Verb::Rebuild(verb)) => return verb.run(),
            None => {}
        }
        match self.config.load()? {
            Some(config) => serve::keeper::mgs(config, Blank::of(self.format)),
            None => Ok(Exit::Done),
        }
    }
}
