//! `stria oss`: an object storage server as a process of its own.

use clap::Args;

use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;
use crate::serve::device::Blank;

/// Run an object storage server, one OST per device; devices are formatted only with --format, foreign content is refused.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria oss --print-config > oss.toml; stria oss --config oss.toml --format   (the first time)"
)]
pub struct Oss {
    #[command(flatten)]
    config: ConfigArgs,
    /// Make and format targets whose devices are missing (then `size` is needed) or blank: once, for new targets.
    /// Without, such a device is an error.
    #[arg(long)]
    format: bool,
}

impl Oss {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load()? {
            Some(config) => serve::role::oss(config, Blank::of(self.format)),
            None => Ok(Exit::Done),
        }
    }
}
