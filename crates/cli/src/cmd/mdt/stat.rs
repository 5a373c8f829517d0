//! `stria mdt stat`: what an MDT's records take on its medium and in memory.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde::Serialize;
use types::size::human;
use wire::map::Target;
use wire::mdt::{MdtStat, MdtStatReply};

use crate::cmd::damage::Where;
use crate::cmd::ost::{ask_each, ended, percent, time};
use crate::exit::{Exit, Failure};

/// Show what MDTs hold: their records, the room that these take, and how large content may be that lies with them. Shows also their
/// memory, the log, and how long changes waited for what other clients cache.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria mdt stat /mnt/stria\nExample: stria mdt stat --dir /tmp/s --watch=5")]
pub struct Stat {
    #[command(flatten)]
    place: Where,
    /// Show rates again and again, each over so many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
}

/// One MDT.
#[derive(Debug, Serialize)]
struct Line {
    target: String,
    /// Since its start.
    seconds: u64,
    /// Changes ever made.
    changes: u64,
    sessions: u32,
    records: u64,
    leaves: u64,
    room_bytes_used: u64,
    room_bytes_total: u64,
    /// Content is inline up to this size unless `setstripe` says otherwise, in bytes.
    inline_max: u32,
    /// The limit for new inline content while space is short.
    inline_limit: Option<u32>,
    memory_bytes: u64,
    memory_bytes_max: u64,
    leaves_brought: u64,
    leaves_taken_out: u64,
    stretches_lost: u64,
    moves: u64,
    states_kept: u64,
    log_bytes_used: u64,
    log_bytes_total: u64,
    /// Directories whose names clients cache, one for each client.
    leases: u64,
    /// Changes that waited for clients to forget, since the start.
    recalls: u64,
    recall_us: u64,
    recall_us_max: u64,
    /// Why it refuses all changes, if it does.
    failure: Option<String>,
}

/// One MDT over an interval.
#[derive(Debug, Serialize)]
struct Rates {
    target: String,
    seconds: f64,
    changes: u64,
    leaves_brought: u64,
    leaves_taken_out: u64,
    /// Present number.
    records: u64,
    room_bytes_used: u64,
    room_bytes_total: u64,
    memory_bytes: u64,
    memory_bytes_max: u64,
    log_bytes_used: u64,
    log_bytes_total: u64,
}

impl Stat {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (reach, fid) = self.place.reach()?;
        if fid.is_some() {
            let next = "give the mount point, or --dir";
            return Err(Failure::unusable("mdt", "it shows whole MDTs, not single files", next).into());
        }
        let mdts: Vec<&Target> = reach.mdts();
        let look = || {
            let cap = reach.capability(SystemTime::now());
            ask_each(&reach, &mdts, |mdt| reach.ask(mdt.id, &MdtStat { cap: cap.clone() }))
        };
        if let Some(seconds) = self.watch {
            return self.watch_them(Duration::from_secs(seconds), look);
        }
        let (answers, silent) = look();
        let lines: Vec<Line> = answers.into_iter().map(|(name, s)| line_of(name, s)).collect();
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(|l| out!("{}", l.text())),
        }
        ended(silent)
    }

    /// Until a signal comes, or the reader of the output is gone.
    fn watch_them(
        &self,
        pause: Duration,
        look: impl Fn() -> (Vec<(String, MdtStatReply)>, Option<Failure>),
    ) -> anyhow::Result<Exit> {
        let ((mut before, _), mut since) = (look(), Instant::now());
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
            match self.place.json {
                true => outln!("{}", serde_json::to_string(&rates)?),
                false => print_rates(&rates),
            }
            before = now;
        }
    }
}

fn line_of(target: String, s: MdtStatReply) -> Line {
    Line {
        target,
        seconds: s.now_sec.saturating_sub(s.started_sec),
        changes: s.last_seq,
        sessions: s.sessions,
        records: s.records,
        leaves: s.leaves,
        room_bytes_used: s.room_bytes_used,
        room_bytes_total: s.room_bytes_total,
        inline_max: s.inline_max,
        inline_limit: (s.inline_limit < u32::MAX).then_some(s.inline_limit),
        memory_bytes: s.memory_bytes,
        memory_bytes_max: s.memory_bytes_max,
        leaves_brought: s.leaves_brought,
        leaves_taken_out: s.leaves_taken_out,
        stretches_lost: s.stretches_lost,
        moves: s.moves,
        states_kept: s.states_kept,
        log_bytes_used: s.log_bytes_used,
        log_bytes_total: s.log_bytes_total,
        leases: s.leases,
        recalls: s.recalls,
        recall_us: s.recall_us,
        recall_us_max: s.recall_us_max,
        failure: (!s.failure.is_empty()).then_some(s.failure),
    }
}

fn rates_of(target: String, before: &MdtStatReply, s: &MdtStatReply, seconds: f64) -> Rates {
    Rates {
        target,
        seconds,
        changes: s.last_seq.saturating_sub(before.last_seq),
        leaves_brought: s.leaves_brought.saturating_sub(before.leaves_brought),
        leaves_taken_out: s.leaves_taken_out.saturating_sub(before.leaves_taken_out),
        records: s.records,
        room_bytes_used: s.room_bytes_used,
        room_bytes_total: s.room_bytes_total,
        memory_bytes: s.memory_bytes,
        memory_bytes_max: s.memory_bytes_max,
        log_bytes_used: s.log_bytes_used,
        log_bytes_total: s.log_bytes_total,
    }
}

impl Line {
    fn text(&self) -> String {
        let mut out = format!(
            "{}: {} since its start, {} sessions, change {}\n",
            self.target,
            time(self.seconds),
            self.sessions,
            self.changes
        );
        if let Some(why) = &self.failure {
            out += &format!("    FAILED   it refuses all changes: {why}\n");
        }
        out += &format!(
            "    records  {} in {} leaves, {} of {} ({} %)\n",
            self.records,
            self.leaves,
            human(self.room_bytes_used),
            human(self.room_bytes_total),
            percent(self.room_bytes_used, self.room_bytes_total)
        );
        if self.room_bytes_used >= self.room_bytes_total {
            out += "    FULL     it takes no new name and no new content: remove files, or move it to a larger device\n";
        }
        out += &match self.inline_max.min(self.inline_limit.unwrap_or(u32::MAX)) {
            0 => "    inline   nothing, where `stria setstripe` said nothing else".into(),
            max => {
                format!(
                    "    inline   content of up to {}, where `stria setstripe` said nothing else",
                    human(max.into())
                )
            }
        };
        out += &self
            .inline_limit
            .map(|limit| format!("; new content of {} at most, as room is short", human(limit.into())))
            .unwrap_or_default();
        out += "\n";
        out += &format!(
            "    memory   {} of {} (mdt_cache); {} leaves brought into it, {} taken out\n",
            human(self.memory_bytes),
            human(self.memory_bytes_max),
            self.leaves_brought,
            self.leaves_taken_out
        );
        if self.stretches_lost > 0 {
            out += &format!(
                "    DAMAGED  {} ranges of records are known to be lost: `stria fsck` checks all records and names them\n",
                self.stretches_lost
            );
        }
        out += &format!(
            "    log      {} of {} ({} %); changes moved to the tree {} times, {} older states kept\n",
            human(self.log_bytes_used),
            human(self.log_bytes_total),
            percent(self.log_bytes_used, self.log_bytes_total),
            self.moves,
            self.states_kept
        );
        out += &format!(
            "    leases   {} held; {} changes waited for other clients, {} us on average, {} us at most\n",
            self.leases,
            self.recalls,
            self.recall_us / self.recalls.max(1),
            self.recall_us_max
        );
        out
    }
}

fn print_rates(rates: &[Rates]) {
    outln!(
        "{:<18}{:>10}{:>11}{:>11}{:>12}{:>7}{:>10}{:>7}{:>7}",
        "TARGET",
        "CHANGES/s",
        "BROUGHT/s",
        "TAKEN/s",
        "RECORDS",
        "ROOM",
        "MEMORY",
        "",
        "LOG"
    );
    for r in rates {
        let per_sec = |n: u64| (n as f64 / r.seconds) as u64;
        outln!(
            "{:<18}{:>10}{:>11}{:>11}{:>12}{:>5} %{:>10}{:>5} %{:>5} %",
            r.target,
            per_sec(r.changes),
            per_sec(r.leaves_brought),
            per_sec(r.leaves_taken_out),
            r.records,
            percent(r.room_bytes_used, r.room_bytes_total),
            human(r.memory_bytes),
            percent(r.memory_bytes, r.memory_bytes_max),
            percent(r.log_bytes_used, r.log_bytes_total)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply() -> MdtStatReply {
        MdtStatReply {
            started_sec: 100,
            now_sec: 160,
            last_seq: 5000,
            sessions: 2,
            records: 3000,
            leaves: 40,
            room_bytes_used: 600,
            room_bytes_total: 1000,
            inline_max: 16 << 10,
            inline_limit: u32::MAX,
            memory_bytes: 1 << 20,
            memory_bytes_max: 1 << 30,
            leaves_brought: 3,
            leaves_taken_out: 1,
            stretches_lost: 0,
            moves: 7,
            states_kept: 0,
            log_bytes_used: 10,
            log_bytes_total: 40,
            leases: 9,
            recalls: 4,
            recall_us: 1000,
            recall_us_max: 700,
            failure: String::new(),
        }
    }

    #[test]
    fn what_is_wrong_stands_out_and_only_then() {
        let well = line_of("s-MDT0000".into(), reply()).text();
        assert_eq!(
            well,
            "s-MDT0000: 60 s since its start, 2 sessions, change 5000\n\
             \x20   records  3000 in 40 leaves, 600B of 1000B (60 %)\n\
             \x20   inline   content of up to 16.0K, where `stria setstripe` said nothing else\n\
             \x20   memory   1.0M of 1.0G (mdt_cache); 3 leaves brought into it, 1 taken out\n\
             \x20   log      10B of 40B (25 %); changes moved to the tree 7 times, 0 older states kept\n\
             \x20   leases   9 held; 4 changes waited for other clients, 250 us on average, 700 us at most\n"
        );
        let ill = MdtStatReply {
            stretches_lost: 2,
            failure: "a medium failed".into(),
            room_bytes_used: 1000,
            inline_limit: 512,
            ..reply()
        };
        let ill = line_of("s-MDT0000".into(), ill).text();
        assert!(ill.contains("FAILED   it refuses all changes: a medium failed"), "{ill}");
        assert!(ill.contains("DAMAGED  2 ranges"), "{ill}");
        assert!(ill.contains("FULL     it takes no new name"), "{ill}");
        assert!(ill.contains("up to 512B, where") && ill.contains("of 512B at most"), "{ill}");
    }

    #[test]
    fn rates_are_differences_and_the_rest_is_as_it_is_now() {
        let now = MdtStatReply { last_seq: 5600, leaves_brought: 13, leaves_taken_out: 5, ..reply() };
        let r = rates_of("t".into(), &reply(), &now, 2.0);
        assert_eq!((r.changes, r.leaves_brought, r.leaves_taken_out, r.records), (600, 10, 4, 3000));
        assert_eq!(percent(u64::MAX / 2, u64::MAX), 49);
        assert_eq!(percent(1, 0), 0);
    }
}
