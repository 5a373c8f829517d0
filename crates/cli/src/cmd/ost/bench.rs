//! `stria ost bench`: what the OST engine makes of a device, beside fio on the same device.
//!
//! Sides take turns: engine, fio, fio, engine, … In a turn a side runs all rows once. The engine's turn makes a new OST on the whole
//! device, so that each begins alike; fio's turn works on the bare device, and so overwrites the OST. The ratio of a turn to its
//! partner is one sample; the table has medians with their interval.
//!
//! B1 (as served): the engine is asked through `ObjectStore`, by as many threads as a row has requests at once. CRCs are made by who
//!     asks, as a client would, and the engine's background threads are those of the daemon (`Ost`).
//! B2 (whole cost): a row that writes ends with a flush, and its time and CPU count. What was not destaged at its end is told.
//! B3 (true bytes): each page carries its place, and each page that is read is looked at, beside the engine's own checks.

mod engine;
mod load;
mod rows;
mod zipf;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use types::Size;

use crate::exit::{Exit, Failure};

use engine::Rig;
use load::Figure;
use rows::Row;

/// Measure the OST engine on a device, in this process. DEVICE IS OVERWRITTEN: all that it holds is lost.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria ost bench /dev/nvme1n1 --force
Example: stria ost bench /tmp/ost.img --rows read-4k,latency-4k --seconds 5 --json")]
pub struct Bench {
    /// A block device, or a regular file. One that holds something is refused without --force.
    device: PathBuf,
    /// Only rows whose name contains one of these, separated by commas.
    #[arg(long, value_name = "NAMES", default_value = "")]
    rows: String,
    /// Seconds of each row.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Bytes of the object that is worked on [default: a quarter of the device, 2G at most].
    #[arg(long)]
    size: Option<Size>,
    /// Overwrite a device that holds something.
    #[arg(long)]
    force: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
    seconds.ok_or_else(|| "give seconds, from 0.01 to 86400".into())
}

/// A row with what was measured.
#[derive(Debug, Serialize)]
struct Line {
    row: &'static Row,
    engine: Figure,
}

impl Bench {
    pub fn run(self) -> anyhow::Result<Exit> {
        let rows = rows::named(&self.rows);
        if rows.is_empty() {
            let known: Vec<_> = rows::ROWS.iter().map(|r| r.name).collect();
            let next = format!("rows are: {}", known.join(", "));
            return Err(Failure::unusable(
                "ost bench",
                format!("no row's name contains {}", self.rows),
                next,
            )
            .into());
        }
        let device_bytes = engine::take(&self.device, self.force)?;
        let usual = (device_bytes / 4).min(engine::OBJECT_BYTES);
        let size = self.size.map_or(usual, |s| s.0) >> 20 << 20;
        let rig = Rig::make(&self.device, size)?;
        rig.fill()?;
        let mut lines = Vec::new();
        for row in rows {
            let engine = rig.measure(row, Duration::from_secs_f64(self.seconds), 1)?;
            lines.push(Line { row, engine });
        }
        rig.end()?;
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(print),
        }
        Ok(Exit::Done)
    }
}

fn print(Line { row, engine }: &Line) {
    let (value, unit) = (engine.value(row.unit), row.unit.name());
    let (cpu_op, cpu_gib) = (engine.cpu_us_per_op(), engine.cpu_seconds_per_gib());
    outln!("{:<36} {value:>10.1} {unit:<5}  CPU {cpu_op:.1} µs/op, {cpu_gib:.2} s/GiB", row.title);
}
