//! `stria version`: the build, and the versions of what it writes to disks and wires.

use clap::Args;

use crate::exit::Exit;

/// Print the version, and the frame and handshake versions that peers must share.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria version")]
pub struct Version {}

impl Version {
    pub fn run(self) -> anyhow::Result<Exit> {
        outln!("stria {}", env!("CARGO_PKG_VERSION"));
        outln!("frame version {}", wire::frame::VERSION);
        outln!("handshake version {}", net::HELLO_VERSION);
        Ok(Exit::Done)
    }
}
