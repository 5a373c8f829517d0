//! `stria top`: rates of this moment.

use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use super::sample::Sample;
use super::screen::{self, Interval, Screen};
use super::{By, Line, Order, Row, sort, table};
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};

/// Show what jobs, users, clients, targets or calls ask of the servers now: rates of each interval, until it is interrupted. BUSY is the time
/// that servers work on requests: 300 % are three at once. On a terminal keys choose rows and order; the last line tells them. A pipe gets a
/// table for each interval.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria top /mnt/stria
Example: stria top --by user --order bytes /mnt/stria
Example: stria top --once -j --mgs 10.0.0.5@tcp
Exit codes: 0 it was interrupted or has ended; 1 a target did not answer with --once; 2 the file system could not be asked.")]
pub struct Top {
    #[command(flatten)]
    place: Where,
    /// Rows.
    #[arg(long, value_enum, default_value = "job")]
    by: By,
    /// Order of the rows.
    #[arg(long, value_enum, default_value = "time")]
    order: Order,
    /// Seconds of an interval.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    interval: f64,
    /// End after one interval.
    #[arg(long)]
    once: bool,
    /// Show so many rows; 0: all. A terminal shows as many as it has lines.
    #[arg(short = 'n', long, default_value_t = 20)]
    rows: usize,
}

/// The rates of one interval, as sums over its seconds.
#[derive(Debug, Serialize)]
struct Report {
    /// Milliseconds since 1970, at its end.
    at_ms: u64,
    seconds: f64,
    by: By,
    rows: Vec<Line>,
}

impl Top {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let (reach, fid) = self.place.reach()?;
        if fid.is_some() {
            let next = "give the mount point, or --dir";
            return Err(Failure::unusable("top", "rates are of the whole file system", next).into());
        }
        let pause = Duration::from_secs_f64(self.interval.clamp(0.1, 3600.0));
        let (mut before, mut since) = (Sample::take(&reach).0, Instant::now());
        let fsname = reach.file_system().name.clone();
        let mut next = move || {
            std::thread::sleep(pause);
            let (mut now, silent) = Sample::take(&reach);
            // All that a silent target counted would be new when it answers again.
            now.keep_silent(&before);
            let seconds = since.elapsed().as_secs_f64();
            since = Instant::now();
            let came = now.clone().since(&before);
            before = now;
            (came, seconds, silent)
        };
        let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        if is_terminal && !self.once && !self.place.json {
            screen::run(Screen::new(fsname, self.by, self.order), move || {
                let (came, seconds, silent) = next();
                Interval { came, seconds, silent: silent.map(|failure| failure.to_string()) }
            })?;
            return Ok(Exit::Done);
        }
        loop {
            let (came, seconds, silent) = next();
            let mut rows = came.rows(self.by);
            sort(&mut rows, self.order);
            rows.truncate(if self.rows == 0 { usize::MAX } else { self.rows });
            self.show(&rows, seconds, silent.as_ref())?;
            match (self.once, silent) {
                (true, Some(failure)) => return Err(failure.into()),
                (true, None) => return Ok(Exit::Done),
                (false, _) => {}
            }
        }
    }

    fn show(&self, rows: &[Row], seconds: f64, silent: Option<&Failure>) -> anyhow::Result<()> {
        if self.place.json {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let rows = rows.iter().map(Line::from).collect();
            let report = Report { at_ms: now.as_millis() as u64, seconds, by: self.by, rows };
            outln!("{}", serde_json::to_string(&report)?);
            return Ok(());
        }
        match rows {
            [] if silent.is_some() => {}
            [] => outln!("no requests of jobs in these {seconds:.1} s"),
            _ => out!("{}", table(self.by, rows, Some(seconds))),
        }
        if let Some(failure) = silent.filter(|_| !self.once) {
            outln!("{failure}");
        }
        Ok(())
    }
}
