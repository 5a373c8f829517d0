//! `stria index`, `stria find -db`: start `stria-index`, which is a program of its own (decision 0080).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::exit::{Exit, Failure};

const PROGRAM: &str = "stria-index";

/// Keep an index of a file system for `stria find -db`: names, sizes, owners, times and striping in an SQLite file. `stria index run` scans
/// once and then follows the changelog; `stria index status` shows how far it is; `stria index analytics` writes a page of what is there. Each
/// has `--help`.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    override_usage = "stria index <run|status|analytics> --db <FILE> [MOUNT]",
    after_help = "Example: stria index run --db /var/lib/stria/index.db /mnt/stria
Example: stria index status --db /var/lib/stria/index.db
Example: stria index analytics --db /var/lib/stria/index.db --out /srv/www/stria
Example: stria find -db /var/lib/stria/index.db /mnt/stria -name '*.h5' -size +1G"
)]
pub struct Index {
    /// As of `stria-index`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Index {
    pub fn run(self) -> anyhow::Result<Exit> {
        Err(become_index(&self.words))
    }
}

/// Becomes `stria-index`. It is beside this program, or on the path of programs.
pub fn become_index(words: &[OsString]) -> anyhow::Error {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside.filter(|beside| beside.exists()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let why = Command::new(&program).args(words).exec();
    let next = "build it with `cargo build --release -p stria-index`, and install it beside stria";
    Failure::unusable(program.display(), why, next).into()
}
