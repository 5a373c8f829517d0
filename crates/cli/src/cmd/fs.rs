//! `stria fs`: the file systems of one management service.

use clap::{Args, Subcommand};
use wire::mgmt::RemovalKind;

use crate::cmd::manage::remove::Remove;
use crate::exit::Exit;

/// Take a file system out of a management service that has several.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria fs remove scratch --dry-run --mgs 10.0.0.5@tcp")]
pub struct Fs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Remove a file system with all its targets from the cluster map. Their devices are not touched. Its servers must be stopped. Without --confirm
    /// it only shows what would be lost, and ends with exit code 1.
    #[command(after_help = "\
Example: stria fs remove scratch --dry-run --mgs 10.0.0.5@tcp
Example: stria fs remove scratch --mgs 10.0.0.5@tcp --confirm 20f4-ed4b-a77c")]
    Remove(RemoveFs),
}

#[derive(Debug, Args)]
struct RemoveFs {
    /// The file system's name.
    name: String,
    #[command(flatten)]
    how: Remove,
}

impl Fs {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Remove(RemoveFs { name, how }) => how.run(RemovalKind::FileSystem, name, false),
        }
    }
}
