//! `stria mdt bench`: the performance of the metadata engine on a device, compared with ext4 on the same device.
//!
//! Sides take turns: MDT, ext4, ext4, MDT, … In a turn a side runs all rows once. A side that gets the device from the other makes its file
//! system anew, with the same tree. The ratio of a turn to its partner is one sample; the table has medians with their interval. Rows that
//! are compared with something other than ext4 have their partner within the MDT's turn.
//!
//! cli-BM1 (as served): the MDT is called through `net::Peer` with whole requests, and replies are decoded, as by a client. Its log is on
//! the device, and its background threads are those of the daemon.
//! cli-BM2 (whole cost): a row that changes something ends with a flush on both sides (ext4: `syncfs`), whose time and CPU count.
//! cli-BM3 (alike): both sides have the same names. ext4 is called with descriptors of directories, so a path has one component on both
//! sides.

mod asked;
mod client;
mod ext4;
mod load;
mod plain;
mod rig;
mod rows;
mod table;
mod together;
mod tree;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::wrap::wrap;
use clap::Args;
use disk::Disk;
use types::Size;
use types::size::human;

use crate::cmd::measure::{device, seconds};
use crate::config::mdt_cache;
use crate::exit::{Exit, Failure};

pub use client::Client;
use tree::Tree;
use turns::Turns;

/// Space for a log and checkpoints of a useful size.
const DEVICE_BYTES_MIN: u64 = 64 << 20;

/// Measure the metadata engine on a device, beside ext4. DEVICE IS OVERWRITTEN: all that it holds is lost.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mdt bench /dev/nvme1n1 --force
Example: stria mdt bench /tmp/mdt.img --rows create,remove --pairs 6 --json
Example: stria mdt bench /dev/nvme1n1 --force --entries 10000000 --rows stat")]
pub struct Bench {
    /// A block device, or a regular file of its full size. One that holds something is refused without --force, and it is said what.
    device: PathBuf,
    /// Only rows whose name contains one of these, separated by commas.
    #[arg(long, value_name = "NAMES", default_value = "")]
    rows: String,
    /// Pairs of turns; each gives one sample of a ratio.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Seconds of each row in each turn.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Files that are there before the rows.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=900_000_000))]
    entries: u64,
    /// Memory limit for the MDT's records [default: a quarter of the machine's, at least 64M].
    #[arg(long, value_name = "SIZE", value_parser = mdt_cache)]
    mdt_cache: Option<Size>,
    /// Only the MDT's side.
    #[arg(long)]
    no_ext4: bool,
    /// Say where in memory what requests share lies: `perf stat -e mem:ADDRESS/8:w -p PID` counts who writes it.
    #[arg(long)]
    addresses: bool,
    /// Overwrite a device that holds something.
    #[arg(long)]
    force: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<Exit> {
        let rows = rows::named(&self.rows);
        if rows.is_empty() {
            let known: Vec<_> = rows::ROWS.iter().map(|r| r.name).collect();
            let next = format!("rows are: {}", known.join(", "));
            let why = format!("no row's name contains {}", self.rows);
            return Err(Failure::unusable("mdt bench", why, next).into());
        }
        // Nothing is written before the turns run. Each file needs an inode of ext4 and one more for free space, and the rows need as many
        // again.
        let bytes_min = DEVICE_BYTES_MIN + self.entries * turns::INODE_BYTES;
        let better = "for useful results twice that";
        let device_bytes = device::take(&self.device, bytes_min, better, self.force)?.size();
        let stop = Arc::new(AtomicBool::new(false));
        super::super::bench::stop_by_signals(&stop)?;
        let turns = Turns {
            device: self.device.clone(),
            device_bytes,
            rows,
            tree: Tree { entries: self.entries },
            cache_bytes: crate::memory::mdt_cache(self.mdt_cache),
            pairs: self.pairs,
            seconds: self.seconds,
            has_ext4: !self.no_ext4,
            addresses: self.addresses,
            stop,
        };
        let about = turns.seconds_expected();
        eprintln!("{} is overwritten; about {about:.0} s and the making of trees", self.device.display());
        let (lines, notes) = turns.run()?;
        let results = table::results(&lines);
        if self.json {
            outln!(
                "{}",
                serde_json::to_string_pretty(&serde_json::json!({
                    "device": self.device, "device_bytes": device_bytes, "entries": self.entries,
                    "pairs": self.pairs, "notes": notes, "rows": results,
                }))?
            );
            return Ok(Exit::Done);
        }
        outln!(
            "{} of {}, {} files, {} turns; medians with 95 % interval\n",
            self.device.display(),
            human(device_bytes),
            self.entries,
            self.pairs,
        );
        out!("{}", table::table(&results));
        notes.iter().for_each(|note| outln!("\n{}", wrap(note, 0)));
        Ok(Exit::Done)
    }
}
