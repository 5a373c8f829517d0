//! `stria version`: the build, and the versions of its disk and wire formats.

use clap::Args;
use serde::Serialize;

use crate::exit::Exit;

/// Print the version, and the frame and handshake versions that peers must share.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria version")]
pub struct Version {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shown {
    version: &'static str,
    frame_version: u32,
    handshake_version: u32,
}

impl Version {
    pub fn run(self) -> anyhow::Result<Exit> {
        let Shown { version, frame_version, handshake_version } = shown();
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&shown())?),
            false => outln!(
                "stria {version}\nframe version {frame_version}\nhandshake version {handshake_version}"
            ),
        }
        Ok(Exit::Done)
    }
}

fn shown() -> Shown {
    Shown {
        version: env!("CARGO_PKG_VERSION"),
        frame_version: wire::frame::VERSION.into(),
        handshake_version: net::HELLO_VERSION.into(),
    }
}
