//! `stria oss`: an object storage server as a process of its own.

use clap::Args;

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;

/// Run an object storage server, one OST per device; blank devices are formatted, foreign content is refused.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria oss --print-config > oss.toml; stria oss --config oss.toml")]
pub struct Oss {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Oss {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load()? {
            Some(config) => serve::role::oss(config),
            None => Ok(Exit::Done),
        }
    }
}
