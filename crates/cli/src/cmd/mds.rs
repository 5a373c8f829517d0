//! `stria mds`: a metadata server as a process of its own.

use clap::Args;

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;

/// Run a metadata server with one MDT; a blank device is formatted, foreign content is refused.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mds --print-config > mds.toml; stria mds --config mds.toml")]
pub struct Mds {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Mds {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load()? {
            Some(config) => serve::role::mds(config),
            None => Ok(Exit::Done),
        }
    }
}
