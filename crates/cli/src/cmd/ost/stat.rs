//! `stria ost stat`: what OSTs wrote to their devices, and how much of it users asked for.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde::Serialize;
use types::size::human;
use wire::ost::{OstStat, OstStatReply, purpose};

use super::{OnOsts, ask, ask_each, ended, percent, ratio, shown, time};
use crate::exit::Exit;

/// Show what OSTs wrote since their start: sizes of device writes by purpose, write amplification, the small-write log, the index in
/// memory, flushes, and drive writes per day against what the drive is rated for.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria ost stat --dir /tmp/s --target 0\nExample: stria ost stat /mnt/stria --watch=5 --rated-dwpd 0.3"
)]
pub struct Stat {
    #[command(flatten)]
    on: OnOsts,
    /// Show rates again and again, each over so many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// Drive writes per day that the device is rated for.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = positive)]
    rated_dwpd: f64,
}

fn positive(text: &str) -> Result<f64, String> {
    let n = text.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
    n.ok_or_else(|| "give a number above 0".into())
}

/// One OST since its start.
#[derive(Debug, Serialize)]
struct Line {
    target: String,
    /// Seconds since its start.
    seconds: u64,
    device_bytes: u64,
    user_writes: u64,
    user_bytes_written: u64,
    user_reads: u64,
    user_bytes_read: u64,
    device_bytes_written: u64,
    device_reads: u64,
    device_bytes_read: u64,
    /// Bytes written to the device, and to the log's device, for each byte that users wrote.
    write_amplification: Option<f64>,
    /// Device writes by purpose.
    writes: Vec<Writes>,
    flushes: u64,
    bytes_discarded: u64,
    log_bytes_used: u64,
    log_bytes_total: u64,
    /// Valid entries behind a missing one, which the start did not replay.
    log_cut_entries: u64,
    log_cut_bytes: u64,
    /// The log's own device, if it has one.
    log_device: Option<LogDevice>,
    patched_writes: u64,
    patched_bytes: u64,
    destaged_pages: u64,
    destaged_bytes: u64,
    overlay_bytes: u64,
    overlay_bytes_max: u64,
    /// Memory of objects and leaves, and its limit.
    index_memory_bytes: u64,
    index_memory_bytes_max: u64,
    /// Leaves of the last checkpoint, and how many of them are in memory.
    index_leaves: u64,
    index_leaves_loaded: u64,
    /// Objects changed since the last checkpoint began.
    index_objects_changed: u64,
    /// Why it refuses all changes, if it does.
    failure: Option<String>,
    /// Writes per day divided by the device's size: since the start, and over its life.
    drive_writes_per_day: Option<f64>,
    life: Life,
    rated_drive_writes_per_day: f64,
}

#[derive(Debug, Serialize)]
struct LogDevice {
    bytes: u64,
    bytes_written: u64,
    /// Writes per day divided by its size, since the start.
    drive_writes_per_day: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Writes {
    purpose: &'static str,
    count: u64,
    bytes: u64,
    sizes: Vec<Class>,
}

/// Writes of at least this many bytes and of less than twice that. The first class has smaller ones, too, the last larger ones.
#[derive(Clone, Copy, Debug, Serialize)]
struct Class {
    bytes: u64,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Life {
    /// Seconds since 1970; 0: unknown.
    since_sec: u64,
    days: f64,
    device_bytes_written: u64,
    user_bytes_written: u64,
    write_amplification: Option<f64>,
    drive_writes_per_day: Option<f64>,
}

/// One OST over an interval.
#[derive(Debug, Serialize)]
struct Rates {
    target: String,
    seconds: f64,
    user_writes: u64,
    user_bytes_written: u64,
    user_bytes_read: u64,
    device_bytes_written: u64,
    write_amplification: Option<f64>,
    destaged_bytes: u64,
    discarded_bytes: u64,
    flushes: u64,
    /// Present number.
    log_bytes_used: u64,
    log_bytes_total: u64,
    overlay_bytes: u64,
}

const DAY_SEC: f64 = 86_400.0;
/// A shorter time says nothing about a day.
const MEASURED_SEC_MIN: u64 = 60;

impl Stat {
    pub fn run(self) -> anyhow::Result<Exit> {
        let reach = self.on.reach()?;
        let osts = self.on.osts(&reach)?;
        let look = || {
            let cap = reach.capability(SystemTime::now());
            ask_each(&reach, &osts, |ost| ask(&reach, ost, &OstStat { cap: cap.clone() }))
        };
        if let Some(seconds) = self.watch {
            return self.watch_them(Duration::from_secs(seconds), look);
        }
        let (answers, silent) = look();
        let lines: Vec<Line> =
            answers.into_iter().map(|(name, s)| line_of(name, &s, self.rated_dwpd)).collect();
        match self.on.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(print_line),
        }
        ended(silent)
    }

    /// Until a signal comes, or the reader of the output is gone.
    fn watch_them(
        &self,
        pause: Duration,
        look: impl Fn() -> (Vec<(String, OstStatReply)>, Option<crate::exit::Failure>),
    ) -> anyhow::Result<Exit> {
        let (mut before, _) = look();
        let mut since = Instant::now();
        loop {
            std::thread::sleep(pause);
            let (now, _) = look();
            let seconds = since.elapsed().as_secs_f64();
            since = Instant::now();
            let rates: Vec<Rates> = now
                .iter()
                .filter_map(|(name, s)| {
                    let (_, b) = before.iter().find(|(n, _)| n == name)?;
                    // A target that was restarted counts from 0.
                    (b.started_sec == s.started_sec).then(|| rates_of(name.clone(), b, s, seconds))
                })
                .collect();
            match self.on.place.json {
                true => outln!("{}", serde_json::to_string(&rates)?),
                false => print_rates(&rates),
            }
            before = now;
        }
    }
}

fn bytes_written(s: &OstStatReply) -> u64 {
    s.writes.iter().map(|w| w.sizes.bytes).sum()
}

/// The part that goes to the log's own device.
fn bytes_to_log_device(s: &OstStatReply) -> u64 {
    let of_log = s.writes.iter().filter(|w| w.purpose == purpose::LOG && s.log_device_bytes > 0);
    of_log.map(|w| w.sizes.bytes).sum()
}

fn line_of(target: String, s: &OstStatReply, rated: f64) -> Line {
    let seconds = s.now_sec.saturating_sub(s.started_sec);
    let (written, to_log) = (bytes_written(s), bytes_to_log_device(s));
    let writes = s.writes.iter().map(|w| Writes {
        purpose: purpose::word(w.purpose),
        count: w.sizes.counts.iter().sum(),
        bytes: w.sizes.bytes,
        sizes: (0..).zip(&w.sizes.counts).map(|(i, n)| Class { bytes: 512 << i, count: *n }).collect(),
    });
    let per_day_of = |device_bytes: u64, bytes: u64, seconds: u64| {
        let days = seconds as f64 / DAY_SEC;
        (seconds >= MEASURED_SEC_MIN).then(|| bytes as f64 / device_bytes.max(1) as f64 / days)
    };
    let per_day = |bytes, seconds| per_day_of(s.device_bytes, bytes, seconds);
    let log_device = (s.log_device_bytes > 0).then(|| LogDevice {
        bytes: s.log_device_bytes,
        bytes_written: to_log,
        drive_writes_per_day: per_day_of(s.log_device_bytes, to_log, seconds),
    });
    let life_sec = match s.service_since_sec {
        0 => 0,
        since => s.now_sec.saturating_sub(since),
    };
    Line {
        target,
        seconds,
        device_bytes: s.device_bytes,
        user_writes: s.user.writes,
        user_bytes_written: s.user.bytes_written,
        user_reads: s.user.reads,
        user_bytes_read: s.user.bytes_read,
        device_bytes_written: written - to_log,
        device_reads: s.reads.counts.iter().sum(),
        device_bytes_read: s.reads.bytes,
        write_amplification: ratio(written, s.user.bytes_written),
        writes: writes.collect(),
        flushes: s.flushes,
        bytes_discarded: s.bytes_discarded,
        log_bytes_used: s.log_bytes_used,
        log_bytes_total: s.log_bytes_total,
        log_cut_entries: s.log_cut_entries,
        log_cut_bytes: s.log_cut_bytes,
        log_device,
        patched_writes: s.small.patched_writes,
        patched_bytes: s.small.patched_bytes,
        destaged_pages: s.small.destaged_pages,
        destaged_bytes: s.small.destaged_bytes,
        overlay_bytes: s.small.overlay_bytes,
        overlay_bytes_max: s.small.overlay_bytes_max,
        index_memory_bytes: s.index.memory_bytes,
        index_memory_bytes_max: s.index.memory_bytes_max,
        index_leaves: s.index.leaves,
        index_leaves_loaded: s.index.leaves_loaded,
        index_objects_changed: s.index.objects_changed,
        failure: Some(s.failure.clone()).filter(|why| !why.is_empty()),
        drive_writes_per_day: per_day(written - to_log, seconds),
        life: Life {
            since_sec: s.service_since_sec,
            days: life_sec as f64 / DAY_SEC,
            device_bytes_written: s.service_bytes_written,
            user_bytes_written: s.service_user_bytes_written,
            write_amplification: ratio(s.service_bytes_written, s.service_user_bytes_written),
            drive_writes_per_day: per_day(s.service_bytes_written, life_sec),
        },
        rated_drive_writes_per_day: rated,
    }
}

fn rates_of(target: String, before: &OstStatReply, s: &OstStatReply, seconds: f64) -> Rates {
    let user = s.user.bytes_written - before.user.bytes_written;
    let device = bytes_written(s) - bytes_written(before);
    Rates {
        target,
        seconds,
        user_writes: s.user.writes - before.user.writes,
        user_bytes_written: user,
        user_bytes_read: s.user.bytes_read - before.user.bytes_read,
        device_bytes_written: device,
        write_amplification: ratio(device, user),
        destaged_bytes: s.small.destaged_bytes - before.small.destaged_bytes,
        discarded_bytes: s.bytes_discarded - before.bytes_discarded,
        flushes: s.flushes - before.flushes,
        log_bytes_used: s.log_bytes_used,
        log_bytes_total: s.log_bytes_total,
        overlay_bytes: s.small.overlay_bytes,
    }
}

fn print_line(l: &Line) {
    outln!("{}: {} since its start, device of {}", l.target, time(l.seconds), human(l.device_bytes));
    if let Some(why) = &l.failure {
        outln!("    FAILED   it refuses all changes: {why}");
    }
    outln!(
        "    users    wrote {} in {} writes, read {} in {} reads",
        human(l.user_bytes_written),
        l.user_writes,
        human(l.user_bytes_read),
        l.user_reads
    );
    outln!(
        "    device   wrote {}, write amplification {}; read {}; {} flushes; {} discarded",
        human(l.device_bytes_written),
        shown(l.write_amplification),
        human(l.device_bytes_read),
        l.flushes,
        human(l.bytes_discarded)
    );
    let rated = l.rated_drive_writes_per_day;
    let budget = |dwpd: Option<f64>| match dwpd {
        Some(n) => format!("{n:.3} ({:.0} % of {rated} rated)", n / rated * 100.0),
        None => "not known yet".into(),
    };
    outln!("    drive writes per day   since the start {}", budget(l.drive_writes_per_day));
    outln!(
        "                           in its life of {:.1} days {}; {} written for {} of users",
        l.life.days,
        budget(l.life.drive_writes_per_day),
        human(l.life.device_bytes_written),
        human(l.life.user_bytes_written)
    );
    if let Some(log) = &l.log_device {
        let (bytes, of) = (human(log.bytes_written), human(log.bytes));
        outln!("    the log's device of {of}   wrote {bytes}; a day {}", budget(log.drive_writes_per_day));
    }
    if l.log_cut_entries > 0 {
        let bytes = human(l.log_cut_bytes);
        outln!(
            "    the start left {} sound log entries out, {bytes} behind the log's end",
            l.log_cut_entries
        );
    }
    outln!(
        "    log      {} of {} ({} %); {} small writes of {} went into it",
        human(l.log_bytes_used),
        human(l.log_bytes_total),
        percent(l.log_bytes_used, l.log_bytes_total),
        l.patched_writes,
        human(l.patched_bytes)
    );
    outln!(
        "    overlay  {} (at most {} so far); {} destaged, {}/s",
        human(l.overlay_bytes),
        human(l.overlay_bytes_max),
        human(l.destaged_bytes),
        human(l.destaged_bytes.checked_div(l.seconds).unwrap_or(0))
    );
    outln!(
        "    index    {} of {} in memory; {} of {} leaves loaded\n             {} objects changed since the last checkpoint",
        human(l.index_memory_bytes),
        human(l.index_memory_bytes_max),
        l.index_leaves_loaded,
        l.index_leaves,
        l.index_objects_changed
    );
    print_histogram(l);
}

/// Sizes as rows, purposes as columns; only those with writes.
fn print_histogram(l: &Line) {
    let shown: Vec<&Writes> = l.writes.iter().filter(|w| w.count > 0).collect();
    let classes = l.writes.iter().map(|w| w.sizes.len()).max().unwrap_or(0);
    let head: String = shown.iter().map(|w| format!("{:>12}", w.purpose)).collect();
    outln!("    {:<16}{head}", "device writes");
    for i in 0..classes {
        let count = |w: &Writes| w.sizes.get(i).map_or(0, |c| c.count);
        if shown.iter().all(|w| count(w) == 0) {
            continue;
        }
        let cells: String = shown
            .iter()
            .map(|w| match count(w) {
                0 => format!("{:>12}", "."),
                n => format!("{n:>12}"),
            })
            .collect();
        let from = if i == 0 { "below 1.0K".into() } else { format!("from {}", human(512 << i)) };
        outln!("    {from:<16}{cells}");
    }
    let bytes: String = shown.iter().map(|w| format!("{:>12}", human(w.bytes))).collect();
    outln!("    {:<16}{bytes}", "bytes");
}

fn print_rates(rates: &[Rates]) {
    outln!(
        "{:<18}{:>10}{:>10}{:>10}{:>10}{:>7}{:>11}{:>9}{:>7}{:>10}",
        "TARGET",
        "WRITES/s",
        "WRITE/s",
        "READ/s",
        "DEVICE/s",
        "AMPL",
        "DESTAGE/s",
        "FLUSH/s",
        "LOG",
        "OVERLAY"
    );
    for r in rates {
        let per_sec = |n: u64| (n as f64 / r.seconds) as u64;
        outln!(
            "{:<18}{:>10}{:>10}{:>10}{:>10}{:>7}{:>11}{:>9}{:>5} %{:>10}",
            r.target,
            per_sec(r.user_writes),
            human(per_sec(r.user_bytes_written)),
            human(per_sec(r.user_bytes_read)),
            human(per_sec(r.device_bytes_written)),
            shown(r.write_amplification),
            human(per_sec(r.destaged_bytes)),
            per_sec(r.flushes),
            percent(r.log_bytes_used, r.log_bytes_total),
            human(r.overlay_bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ost::{OstIndex, OstSizes, OstSmall, OstUser, OstWrites};

    fn reply(user: u64, data: u64, log: u64) -> OstStatReply {
        let sizes = |n: u64| OstSizes { counts: vec![n; 15], bytes: n };
        let of = |purpose, n| OstWrites { purpose, sizes: sizes(n) };
        OstStatReply {
            started_sec: 200_000,
            now_sec: 200_000 + 86_400,
            device_bytes: 1000,
            writes: vec![of(purpose::DATA, data), of(purpose::LOG, log)],
            reads: sizes(1),
            flushes: 5,
            bytes_discarded: 0,
            user: OstUser { writes: 2, bytes_written: user, reads: 0, bytes_read: 0 },
            small: OstSmall {
                patched_writes: 0,
                patched_bytes: 0,
                destaged_pages: 0,
                destaged_bytes: 0,
                overlay_bytes: 0,
                overlay_bytes_max: 0,
            },
            log_bytes_used: 1,
            log_bytes_total: 4,
            service_since_sec: 200_000 - 86_400,
            service_bytes_written: 3000,
            service_user_bytes_written: 1000,
            log_device_bytes: 0,
            log_cut_entries: 0,
            log_cut_bytes: 0,
            index: OstIndex {
                memory_bytes: 1,
                memory_bytes_max: 2,
                leaves: 3,
                leaves_loaded: 4,
                objects_changed: 5,
            },
            failure: String::new(),
        }
    }

    #[test]
    fn the_index_and_a_failure_are_shown() {
        let l = line_of("t".into(), &reply(0, 0, 0), 1.0);
        let index = (l.index_memory_bytes, l.index_memory_bytes_max, l.index_leaves, l.index_leaves_loaded);
        assert_eq!((index, l.index_objects_changed, l.failure), ((1, 2, 3, 4), 5, None));
        let failed = OstStatReply { failure: "a medium failed".into(), ..reply(0, 0, 0) };
        assert_eq!(line_of("t".into(), &failed, 1.0).failure.as_deref(), Some("a medium failed"));
    }

    #[test]
    fn a_logs_own_device_is_counted_apart() {
        let l = line_of("t".into(), &OstStatReply { log_device_bytes: 50, ..reply(400, 400, 100) }, 1.0);
        assert_eq!((l.device_bytes_written, l.write_amplification), (400, Some(1.25)));
        assert_eq!(l.drive_writes_per_day, Some(0.4));
        let log = l.log_device.unwrap();
        assert_eq!((log.bytes_written, log.drive_writes_per_day), (100, Some(2.0)));
    }

    #[test]
    fn amplification_and_drive_writes_are_what_they_say() {
        let l = line_of("t".into(), &reply(400, 400, 100), 1.0);
        assert_eq!((l.device_bytes_written, l.write_amplification), (500, Some(1.25)));
        assert_eq!(l.drive_writes_per_day, Some(0.5), "half the device in a day");
        assert_eq!((l.life.days, l.life.drive_writes_per_day), (2.0, Some(1.5)));
        assert_eq!(l.writes[0].sizes[3].bytes, 4096);
    }

    #[test]
    fn what_cannot_be_known_is_not_guessed() {
        let young = OstStatReply { now_sec: 200_010, service_since_sec: 0, ..reply(0, 0, 1) };
        let l = line_of("t".into(), &young, 1.0);
        assert_eq!((l.write_amplification, l.drive_writes_per_day), (None, None));
        assert_eq!(l.life.drive_writes_per_day, None);
    }

    #[test]
    fn rates_are_of_the_interval_alone() {
        let r = rates_of("t".into(), &reply(100, 100, 50), &reply(300, 300, 150), 2.0);
        assert_eq!((r.user_bytes_written, r.device_bytes_written), (200, 300));
        assert_eq!(r.write_amplification, Some(1.5));
    }
}
