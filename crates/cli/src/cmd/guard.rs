//! `stria guard`: started by a mount, see `serve/guard.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use crate::exit::Exit;
use crate::logs;
use crate::serve::guard;

/// Ends the connection of a mount when its process cannot; started by the mount itself.
#[derive(Debug, Parser)]
#[command(name = "stria guard")]
pub struct Guard {
    /// The mount process.
    #[arg(long)]
    pid: u32,
    /// The number of the mount's device.
    #[arg(long)]
    connection: u32,
    /// The mount point, for messages and the list of processes.
    #[arg(long)]
    point: PathBuf,
}

impl Guard {
    /// It is no command for users, so `Cli` does not have it: completions and pages would show it.
    pub fn asked(args: &[OsString]) -> Option<Guard> {
        (args.get(1)? == "guard").then(|| Guard::parse_from(&args[1..]))
    }

    pub fn run(self) -> anyhow::Result<Exit> {
        logs::start_for_servers();
        guard::watch(self.pid, self.connection, &self.point)
    }
}
