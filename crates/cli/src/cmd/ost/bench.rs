//! `stria ost bench`: the performance of the OST engine on a device, compared with fio on the same device.
//!
//! Sides take turns: engine, fio, fio, engine, … In a turn a side runs all rows once. The engine's turn makes a new OST on the whole
//! device, and on the log device if there is one, so that each begins alike. fio's turn works on the bare device, and so overwrites the
//! OST. The ratio of a turn to its partner is one sample; the table has medians with their interval. Soaks are long and run in the first
//! pair only. A full or aged OST has turns of its own, without fio, which are compared with the fresh ones.
//!
//! cli-BO1 (as served): the engine is called through `ObjectStore`, by as many threads as a row has concurrent requests. The callers
//! compute CRCs, as a client would, and the engine's background threads are those of the daemon (`Ost`).
//! cli-BO2 (whole cost): a row that writes ends with a flush on both sides, whose time and CPU count.
//! cli-BO3 (true bytes): each page carries its place, and each page that is read is checked, beside the engine's own checks.

mod device;
mod engine;
mod fio;
mod load;
mod rows;
mod state;
mod table;
mod turns;
mod zipf;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::wrap::wrap;
use clap::Args;
use types::Size;
use types::size::human;

use crate::cmd::measure::seconds;
use crate::exit::{Exit, Failure};

use engine::Devices;
use state::State;
use turns::Turns;

/// Measure the OST engine on a device, beside fio. DEVICE IS OVERWRITTEN: all that it holds is lost.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria ost bench /dev/nvme1n1 --force
Example: stria ost bench /tmp/ost.img --rows read-4k,latency-4k --pairs 6 --json
Example: stria ost bench /dev/sdc --log-device /dev/nvme0n1p3 --force --rows burst,soak,flush
Example: stria ost bench /dev/nvme1n1 --force --states fresh,full,aged --rows read,write")]
pub struct Bench {
    /// A block device, or a regular file of its full size. One that holds something is refused without --force, and it is said what.
    device: PathBuf,
    /// Keep the engine's log on this device or file, which is OVERWRITTEN as DEVICE is, and refused alike. fio works on DEVICE alone.
    #[arg(long, value_name = "DEVICE")]
    log_device: Option<PathBuf>,
    /// Only rows whose name contains one of these, separated by commas.
    #[arg(long, value_name = "NAMES", default_value = "")]
    rows: String,
    /// Pairs of turns; each gives one sample of a ratio.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Seconds of each row in each turn.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of each soak; of an OST that is full or aged, a quarter of it.
    #[arg(long, default_value_t = 60.0, value_parser = seconds)]
    soak_seconds: f64,
    /// Bytes of the object that is worked on [default: a quarter of the device, 2G at most].
    #[arg(long)]
    size: Option<Size>,
    /// States of the OST before the rows. Each other state is compared with fresh.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fresh")]
    states: Vec<State>,
    /// Creates, overwrites and deletes that make an OST an aged one.
    #[arg(long, value_name = "OPERATIONS", default_value_t = 1_000_000)]
    age: u64,
    /// Only the engine's side.
    #[arg(long)]
    no_fio: bool,
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
            return Err(Failure::unusable("ost bench", why, next).into());
        }
        // Nothing is written before the turns run.
        let devices = Devices { main: self.device.clone(), log: self.log_device.clone() };
        let sizes = devices.take(self.force)?;
        let device_bytes = sizes.main;
        let usual = (device_bytes / 4).min(engine::OBJECT_BYTES);
        let size = self.size.map_or(usual, |s| s.0) >> 20 << 20;
        if size == 0 || size > device_bytes / 2 {
            let next = "give at least 1M and at most half of the device";
            return Err(Failure::unusable("ost bench", format!("--size of {size} bytes"), next).into());
        }
        let fio = if self.no_fio { None } else { fio::version() };
        let stop = Arc::new(AtomicBool::new(false));
        super::super::bench::stop_by_signals(&stop)?;
        let turns = Turns {
            devices,
            rows,
            size,
            pairs: self.pairs,
            seconds: self.seconds,
            soak_seconds: self.soak_seconds,
            states: self.states.clone(),
            age: self.age,
            has_fio: fio.is_some(),
            stop,
        };
        let both = match &self.log_device {
            None => format!("{} is", self.device.display()),
            Some(log) => format!("{} and {} are", self.device.display(), log.display()),
        };
        eprintln!("{both} overwritten; about {:.0} s", turns.seconds_expected());
        let (lines, notes) = turns.run()?;
        let results = table::results(&lines);
        if self.json {
            let log_bytes = sizes.log_bytes();
            outln!(
                "{}",
                serde_json::to_string_pretty(&serde_json::json!({
                    "device": self.device, "device_bytes": device_bytes, "object_bytes": size, "log_bytes": log_bytes,
                    "log_device": self.log_device,
                    "fio": fio, "pairs": self.pairs, "notes": notes, "rows": results,
                }))?
            );
            return Ok(Exit::Done);
        }
        let beside = match &fio {
            Some(version) => format!("beside {version} (io_uring, past the page cache)"),
            None if self.no_fio => "alone".into(),
            None => "alone: fio is not installed".into(),
        };
        let log = self.log_device.as_ref().map_or(String::new(), |device| {
            format!(", log of {} on {}", human(sizes.log_bytes()), device.display())
        });
        outln!(
            "{} of {}{log}, object of {}, {} turns, engine {beside}; medians with 95 % interval\n",
            self.device.display(),
            human(device_bytes),
            human(size),
            self.pairs,
        );
        out!("{}", table::table(&results));
        notes.iter().for_each(|note| outln!("\n{}", wrap(note, 0)));
        Ok(Exit::Done)
    }
}
