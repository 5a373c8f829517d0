//! `stria guard`: started by a mount, see `serve/guard.rs`.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Exit;
use crate::logs;
use crate::serve::guard;

/// Ends the connection of a mount when its process cannot; started by the mount itself.
#[derive(Debug, Args)]
#[command(hide = true)]
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
    pub fn run(self) -> anyhow::Result<Exit> {
        logs::start_for_servers();
        guard::watch(self.pid, self.connection, &self.point)
    }
}
