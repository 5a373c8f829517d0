//! `stria mgs`: the management service as a process of its own.

use clap::Args;

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;
use crate::serve::device::Blank;

/// Run the management service: keeper of the cluster map, which servers and clients ask first.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria mgs --print-config > mgs.toml; stria mgs --config mgs.toml --format   (the first time)"
)]
pub struct Mgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Make an empty cluster map if there is none: once, for a new cluster. Without, a missing map is an error.
    #[arg(long)]
    format: bool,
}

impl Mgs {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load()? {
            Some(config) => serve::role::mgs(config, Blank::of(self.format)),
            None => Ok(Exit::Done),
        }
    }
}
