//! `stria mgs`: the management service as a process of its own.

use clap::Args;

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;

/// Run the management service: keeper of the cluster map, which servers and clients ask first.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mgs --print-config > mgs.toml; stria mgs --config mgs.toml")]
pub struct Mgs {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Mgs {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load()? {
            Some(config) => serve::role::mgs(config),
            None => Ok(Exit::Done),
        }
    }
}
