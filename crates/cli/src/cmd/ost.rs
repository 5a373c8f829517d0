//! `stria ost`: the medium of one OST, without a cluster.

mod bench;

use clap::{Args, Subcommand};

use crate::exit::Exit;

/// Work on the medium of one OST itself, without a cluster.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria ost bench /dev/nvme1n1 --force")]
pub struct Ost {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(bench::Bench),
}

impl Ost {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::Bench(c) => c.run(),
        }
    }
}
