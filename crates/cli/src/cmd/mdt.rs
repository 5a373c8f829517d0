//! `stria mdt`: details of MDTs.

mod backup;
mod bench;
mod stat;

use clap::{Args, Subcommand};

use crate::exit::Exit;

/// Look at MDTs closely: what running ones hold, and in memory; what the metadata engine makes of a device; backups.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mdt stat /mnt/stria\nExample: stria mdt bench /dev/nvme1n1 --force")]
pub struct Mdt {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(bench::Bench),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Stat(stat::Stat),
    /// Asks a server by TCP; started by `bench`.
    #[command(hide = true)]
    BenchClient(bench::Client),
}

impl Mdt {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Bench(c) => c.run(),
            Verb::Backup(c) => c.run(),
            Verb::Restore(c) => c.run(),
            Verb::Stat(c) => c.run(),
            Verb::BenchClient(c) => c.run(),
        }
    }
}
