//! `stria mds`: a metadata server as a process of its own.

use clap::Args;

use crate::claims::{Groups, RootSquash};
use crate::cmd::ConfigArgs;
use crate::exit::Exit;
use crate::serve;
use crate::serve::device::Blank;

/// Run a metadata server with one MDT; its device is formatted only with --format, foreign content is refused.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria mds --print-config > mds.toml; stria mds --config mds.toml --format   (the first time)"
)]
pub struct Mds {
    #[command(flatten)]
    config: ConfigArgs,
    /// Make and format the target if its device is missing (then `size` is needed) or blank: once, for a new target.
    /// Without, such a device is an error.
    #[arg(long)]
    format: bool,
    /// Source of a user's groups [default: client, or what the file says]
    #[arg(long, value_enum)]
    groups: Option<Groups>,
    /// Clients' root counts as this user
    #[arg(long, value_name = "UID:GID")]
    root_squash: Option<RootSquash>,
}

impl Mds {
    pub fn run(self) -> anyhow::Result<Exit> {
        match self.config.load::<crate::config::Mds>()? {
            Some(mut config) => {
                config.groups = self.groups.unwrap_or(config.groups);
                config.root_squash = self.root_squash.or(config.root_squash);
                serve::role::mds(config, Blank::of(self.format))
            }
            None => Ok(Exit::Done),
        }
    }
}
