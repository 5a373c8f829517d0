//! `stria router stat`: what goes through a router.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use wire::router::{RouterRow, RouterSample, RouterStat, RouterStatReply};

use super::At;
use crate::exit::Exit;

const MB: f64 = 1e6;

/// Show a router's circuits by nets, file system and host: MB/s from the host and to it, stalls, and the processor time. Without --interval
/// the rates are means since the router's start.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria router stat
Example: stria router stat --interval 1 --count 10 -j
Example: stria router stat --history 600 -j     (one line for each of the last 600 seconds)
A stall: the receiving end took nothing for a time, while bytes for it were there.")]
pub struct Stat {
    #[command(flatten)]
    at: At,
    /// Show the rates of each so many seconds, until it is interrupted.
    #[arg(long, value_name = "SECONDS", conflicts_with = "history")]
    interval: Option<f64>,
    /// End after so many.
    #[arg(long, requires = "interval")]
    count: Option<u64>,
    /// Show each of the last so many seconds, an hour at most.
    #[arg(long, value_name = "SECONDS")]
    history: Option<u32>,
    /// JSON output. With --interval or --history one object on each line.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The rates of one interval.
#[derive(Debug, Serialize)]
struct Report {
    /// Milliseconds since 1970, at its end.
    at_ms: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nids: Vec<String>,
    draining: bool,
    circuits: u32,
    circuits_max: u32,
    /// In this interval, both directions.
    mb_s: f64,
    cpu_percent: f64,
    stalls: u64,
    refused: u64,
    failed: u64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    from: String,
    to: String,
    fs: String,
    peer: String,
    circuits: u32,
    /// From the host that dialled, and to it.
    mb_s_in: f64,
    mb_s_out: f64,
    bytes_in: u64,
    bytes_out: u64,
    stalls: u64,
    stall_ms: u64,
}

/// One second of the history.
#[derive(Debug, Serialize)]
struct Second {
    at_ms: u64,
    mb_s: f64,
    cpu_percent: f64,
    circuits: u32,
    flows: Vec<Flow>,
}

#[derive(Debug, Serialize)]
struct Flow {
    from: String,
    to: String,
    fs: String,
    mb_s_in: f64,
    mb_s_out: f64,
}

impl Stat {
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(seconds) = self.history {
            let stat = self.at.ask(&RouterStat { history: seconds })?;
            return self.tell_history(stat.history.into_iter().map(second_of).collect());
        }
        let mut before = self.at.ask(&RouterStat { history: 0 })?;
        let Some(interval) = self.interval else {
            let since = before.uptime_ms as f64 / 1e3;
            let report = report_of(None, before, since);
            match self.json {
                true => outln!("{}", serde_json::to_string_pretty(&report)?),
                false => out!("{}", report.text()),
            }
            return Ok(Exit::Done);
        };
        let mut taken = Instant::now();
        let mut left = self.count;
        while left != Some(0) {
            std::thread::sleep(Duration::from_secs_f64(interval.clamp(0.05, 86_400.0)));
            let now = self.at.ask(&RouterStat { history: 0 })?;
            let seconds = taken.elapsed().as_secs_f64();
            taken = Instant::now();
            let report = report_of(Some(&before), now.clone(), seconds);
            match self.json {
                true => outln!("{}", serde_json::to_string(&report)?),
                false => outln!("{}", report.text()),
            }
            before = now;
            left = left.map(|n| n - 1);
        }
        Ok(Exit::Done)
    }

    fn tell_history(&self, seconds: Vec<Second>) -> anyhow::Result<Exit> {
        if !self.json {
            outln!(
                "{:>14} {:>9} {:>6} {:>9}  by nets and file system",
                "unix time",
                "MB/s",
                "CPU %",
                "circuits"
            );
        }
        for second in seconds {
            if self.json {
                outln!("{}", serde_json::to_string(&second)?);
                continue;
            }
            let flows: Vec<String> = second
                .flows
                .iter()
                .map(|f| format!("{}>{} {} {:.1}+{:.1}", f.from, f.to, f.fs, f.mb_s_in, f.mb_s_out))
                .collect();
            let (at, flows) = (second.at_ms as f64 / 1e3, flows.join("  "));
            outln!(
                "{at:>14.1} {:>9.1} {:>6.1} {:>9}  {flows}",
                second.mb_s,
                second.cpu_percent,
                second.circuits
            );
        }
        Ok(Exit::Done)
    }
}

fn second_of(sample: RouterSample) -> Second {
    let flow = |f: wire::router::RouterFlow| Flow {
        from: f.from,
        to: f.to,
        fs: f.fs,
        mb_s_in: f.bytes_out as f64 / MB,
        mb_s_out: f.bytes_back as f64 / MB,
    };
    let bytes: u64 = sample.flows.iter().map(|f| f.bytes_out + f.bytes_back).sum();
    Second {
        at_ms: sample.at_ms,
        mb_s: bytes as f64 / MB,
        cpu_percent: sample.cpu_us as f64 / 1e4,
        circuits: sample.circuits,
        flows: sample.flows.into_iter().map(flow).collect(),
    }
}

/// The differences between two answers; without a first one, all since the start.
fn report_of(before: Option<&RouterStatReply>, now: RouterStatReply, seconds: f64) -> Report {
    let seconds = seconds.max(1e-3);
    let key = |row: &RouterRow| (row.from.clone(), row.to.clone(), row.fs.clone(), row.peer.clone());
    let old: BTreeMap<_, &RouterRow> =
        before.iter().flat_map(|b| &b.rows).map(|row| (key(row), row)).collect();
    let was = |get: fn(&RouterStatReply) -> u64| before.map_or(0, get);
    let (cpu, refused, failed) = (was(|b| b.cpu_us), was(|b| b.refused), was(|b| b.failed));
    let rows: Vec<Row> = now
        .rows
        .iter()
        .map(|row| {
            let old = old.get(&key(row));
            let since = |get: fn(&RouterRow) -> u64| get(row).saturating_sub(old.map_or(0, |old| get(old)));
            Row {
                from: row.from.clone(),
                to: row.to.clone(),
                fs: row.fs.clone(),
                peer: row.peer.clone(),
                circuits: row.circuits,
                mb_s_in: since(|r| r.bytes_out) as f64 / MB / seconds,
                mb_s_out: since(|r| r.bytes_back) as f64 / MB / seconds,
                bytes_in: row.bytes_out,
                bytes_out: row.bytes_back,
                stalls: since(|r| r.stalls),
                stall_ms: since(|r| r.stall_us) / 1000,
            }
        })
        .collect();
    Report {
        at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
        seconds,
        nids: now.nids,
        draining: now.is_draining,
        circuits: now.circuits,
        circuits_max: now.circuits_max,
        mb_s: rows.iter().map(|row| row.mb_s_in + row.mb_s_out).sum(),
        cpu_percent: now.cpu_us.saturating_sub(cpu) as f64 / 1e4 / seconds,
        stalls: rows.iter().map(|row| row.stalls).sum(),
        refused: now.refused - refused.min(now.refused),
        failed: now.failed - failed.min(now.failed),
        rows,
    }
}

impl Report {
    fn text(&self) -> String {
        let drain = if self.draining { ", draining" } else { "" };
        let mut out = format!("router {}\n", self.nids.join(", "));
        out += &format!(
            "    {} circuits of {}{drain}, {:.1} MB/s, {:.1} % CPU, {} refused, {} not reached\n",
            self.circuits, self.circuits_max, self.mb_s, self.cpu_percent, self.refused, self.failed
        );
        out += &format!(
            "    {:<5} {:<5} {:<8} {:<15} {:>5} {:>8} {:>8} {:>9} {:>9} {:>6} {:>8}\n",
            "from",
            "to",
            "fs",
            "host",
            "circ",
            "MB/s in",
            "MB/s out",
            "MB in",
            "MB out",
            "stalls",
            "stall ms"
        );
        for r in &self.rows {
            out += &format!(
                "    {:<5} {:<5} {:<8} {:<15} {:>5} {:>8.1} {:>8.1} {:>9.1} {:>9.1} {:>6} {:>8}\n",
                r.from,
                r.to,
                r.fs,
                r.peer,
                r.circuits,
                r.mb_s_in,
                r.mb_s_out,
                r.bytes_in as f64 / MB,
                r.bytes_out as f64 / MB,
                r.stalls,
                r.stall_ms
            );
        }
        out
    }
}
