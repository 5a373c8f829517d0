//! Looks at the file system by the functions of the commands, and keeps the figures for the page.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use types::TargetId;
use wire::jobs::JobCounts;

use super::history::Measure;
use super::state::{Damage, Health, Mirror, Rates, Reached, Shared, Top, TopRow, now_ms};
use super::tasks::{self, Draining, Drains, Task};
use crate::cmd::damage::{self, Where};
use crate::cmd::jobs::sample::Sample;
use crate::cmd::jobs::{By, Order, sort};
use crate::cmd::mirror::verify;
use crate::cmd::status::{Finding, Seen, Weight};
use crate::cmd::{df, mirror, scrub};
use crate::reach::Reach;

/// Rows of a top list, and damaged places that are named.
const TOP_ROWS: usize = 10;
const DAMAGE_NAMED: usize = 50;
/// Connections are made anew after this time: the certificate of this process may have been renewed.
const REACH_AGE_MAX: Duration = Duration::from_secs(600);
/// Kinds of top lists.
const TOPS: [By; 4] = [By::Job, By::User, By::Client, By::Target];

pub struct Watcher {
    place: Where,
    shared: std::sync::Arc<Shared>,
    reach: Option<(Reach, Instant)>,
    counted: Counted,
    drains: Drains,
}

/// Requests as they were counted at the last look.
#[derive(Default)]
struct Counted {
    before: Option<(Sample, Instant)>,
}

impl Watcher {
    pub fn new(place: Where, shared: std::sync::Arc<Shared>) -> Watcher {
        Watcher { place, shared, reach: None, counted: Counted::default(), drains: Drains::default() }
    }

    /// Looks at each interval. A look that takes longer is followed by the next at once.
    pub fn run(&mut self, every: Duration) {
        let mut next = Instant::now();
        loop {
            self.shared.state.lock().look_began = Some(Instant::now());
            self.look();
            self.shared.state.lock().look_began = None;
            next = (next + every).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn look(&mut self) {
        // 1. The cluster map. Without a new one the servers are asked by that of before.
        let fault = self.connect().err().map(|e| format!("{e:#}"));
        if let Some(why) = &fault {
            let reached = &mut self.shared.state.lock().reached;
            // Once, and not at each look.
            if reached.fault.is_none() {
                crate::logs::tell(&format!(
                    "stria: dash: {why}; the page goes on with the figures of before"
                ));
            }
            reached.miss(why.clone());
        }
        let Some((reach, _)) = &self.reach else {
            let mut state = self.shared.state.lock();
            let why = fault.unwrap_or_default();
            let name =
                if state.fsname.is_empty() { "The file system".to_owned() } else { state.fsname.clone() };
            state.health.see(Health::of(&name, vec![unreachable(&why)], (0, 0), 0));
            return;
        };
        // 2. All at the same time, since a server that is silent delays each of them by some seconds.
        let (shared, counted) = (&*self.shared, &mut self.counted);
        let (mut measure, mut running, mut compared) = (Measure::default(), vec![], vec![]);
        let (clients, marked) = std::thread::scope(|scope| {
            let health = scope.spawn(|| look_health(reach, shared, fault.as_deref()));
            let space = scope.spawn(|| look_space(reach, shared));
            scope.spawn(|| look_mirrors(reach, shared));
            scope.spawn(|| look_damage(reach, shared));
            scope.spawn(|| running = scrub::running(reach));
            scope.spawn(|| compared = verify::running(reach));
            counted.look(reach, shared, &mut measure);
            let why = "a look does not panic";
            (health.join().expect(why), space.join().expect(why))
        });
        // 3. Conclusions from several of them.
        let mut state = self.shared.state.lock();
        let lines = state.mirrors.seen.as_ref().map_or(&[][..], Vec::as_slice);
        let mut tasks: Vec<Task> =
            lines.iter().flat_map(|mirror| tasks::resyncs(std::slice::from_ref(&mirror.line))).collect();
        tasks.extend(self.drains.tasks(Instant::now(), &marked));
        tasks.extend(tasks::scrubs(running));
        tasks.extend(tasks::verifies(compared));
        state.tasks = tasks;
        measure.clients = clients;
        let summary =
            state.capacity.seen.as_ref().filter(|_| state.capacity.fault.is_none()).map(|seen| &seen.summary);
        (measure.used, measure.total) = summary.map_or((0, 0), |sum| (sum.bytes_used, sum.bytes_total));
        // 4. The history. A look that no server answered leaves a gap.
        if measure == Measure::default() {
            return;
        }
        drop(state);
        let kept = self.shared.history.lock().add(now_ms() / 1000, &measure);
        self.note_history(kept);
    }

    fn note_history(&self, kept: std::io::Result<()>) {
        let fault = kept
            .err()
            .map(|e| format!("the history is not kept on disk: {e}; make room, or give another --state"));
        self.shared.state.lock().history_fault = fault;
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let is_old = self.reach.as_ref().is_none_or(|(_, since)| since.elapsed() > REACH_AGE_MAX);
        if is_old {
            // An error leaves the former connections and map in use.
            self.reach = Some((self.place.reach()?.0, Instant::now()));
        }
        let Some((reach, _)) = &mut self.reach else { return Ok(()) };
        if !is_old {
            reach.refresh()?;
        }
        // A slow disk below the history must not delay the page.
        let kept = self.shared.history.lock().belongs_to(reach.file_system().uuid);
        {
            let mut state = self.shared.state.lock();
            state.fsname = reach.file_system().name.clone();
            state.reached.see(Reached { map_version: reach.map.version, tls: reach.wires.word() });
        }
        self.note_history(kept);
        Ok(())
    }
}

fn unreachable(why: &str) -> Finding {
    let (what, hint) = why.rsplit_once("; ").unwrap_or((why, "start it, or look at the network"));
    Finding { weight: Weight::Error, what: what.to_owned(), hint: hint.to_owned() }
}

/// Returns the number of clients.
fn look_health(reach: &Reach, shared: &Shared, fault: Option<&str>) -> u32 {
    let mut seen = Seen::of(reach);
    if let Some(why) = fault {
        seen.findings.insert(0, unreachable(why));
    }
    let counts = (seen.targets_up, seen.targets);
    let health = Health::of(&reach.file_system().name, seen.findings, counts, seen.clients);
    shared.state.lock().health.see(health);
    seen.clients
}

/// Returns the OSTs that are being drained.
fn look_space(reach: &Reach, shared: &Shared) -> Vec<Draining> {
    let shown = df::shown(reach);
    let marked = Draining::of(&shown);
    shared.state.lock().capacity.see(shown);
    marked
}

fn look_mirrors(reach: &Reach, shared: &Shared) {
    let of = |line: mirror::Line| Mirror { summary: line.summary(), notes: line.notes(), line };
    let mirrors = mirror::pairs(reach).into_iter().map(of).collect();
    shared.state.lock().mirrors.see(mirrors);
}

fn look_damage(reach: &Reach, shared: &Shared) {
    match damage::first(reach, DAMAGE_NAMED) {
        Ok((lines, count, bad)) => shared.state.lock().damage.see(Damage { count, bad, lines }),
        Err(e) => shared.state.lock().damage.miss(e.to_string()),
    }
}

impl Counted {
    fn look(&mut self, reach: &Reach, shared: &Shared, measure: &mut Measure) {
        let at = Instant::now();
        let (mut now, silent) = Sample::take(reach);
        if let Some(failure) = silent.as_ref().filter(|_| now.is_empty()) {
            // Nothing is known of this time. The next look counts from the one before.
            return shared.state.lock().rates.miss(failure.to_string());
        }
        let Some((before, since)) = self.before.take() else {
            self.before = Some((now, at));
            return;
        };
        now.keep_silent(&before);
        let seconds = at.saturating_duration_since(since).as_secs_f64().max(0.001);
        let sum = came(&before.totals(), &now.totals());
        measure.measured_ms = (seconds * 1000.0) as u32;
        (measure.read, measure.written, measure.calls) = (sum.bytes_read, sum.bytes_written, sum.total());
        let news = now.clone().since(&before);
        self.before = Some((now, at));
        let rate = |n: u64| n as f64 / seconds;
        let rates = Rates {
            seconds,
            read: rate(sum.bytes_read),
            written: rate(sum.bytes_written),
            calls: rate(sum.total()),
            errors: rate(sum.errors),
            top: TOPS.iter().map(|by| top(&news, *by, seconds)).collect(),
        };
        let mut state = shared.state.lock();
        state.rates.see(rates);
        if let Some(failure) = silent {
            state.rates.lack(failure.to_string());
        }
    }
}

/// Requests of all targets since the look before. A target that is seen for the first time has no look before.
fn came(before: &BTreeMap<TargetId, JobCounts>, now: &BTreeMap<TargetId, JobCounts>) -> JobCounts {
    let mut sum = JobCounts::default();
    let both = now.iter().filter_map(|(target, counts)| Some((counts, before.get(target)?)));
    both.for_each(|(counts, before)| sum.add(&counts.since(before)));
    sum
}

fn top(news: &Sample, by: By, seconds: f64) -> Top {
    let mut rows = news.rows(by);
    sort(&mut rows, Order::Time);
    rows.truncate(TOP_ROWS);
    let rate = |n: u64| n as f64 / seconds;
    let rows = rows.into_iter().map(|row| TopRow {
        read: rate(row.counts.bytes_read),
        written: rate(row.counts.bytes_written),
        calls: rate(row.counts.total()),
        busy: row.counts.busy_us as f64 / 1e4 / seconds,
        name: row.name,
    });
    Top { by, rows: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_counts_from_its_second_look_on_and_after_a_restart_from_its_start() {
        let counts = |calls: u64| {
            let mut counts = JobCounts { bytes_written: calls * 10, ..JobCounts::default() };
            counts.requests[wire::jobs::WRITE] = calls;
            counts
        };
        let totals =
            |all: &[(u32, u64)]| all.iter().map(|(target, n)| (TargetId(*target), counts(*n))).collect();
        let sum = came(&totals(&[(1, 100), (2, 100)]), &totals(&[(1, 103), (2, 4), (3, 5000)]));
        assert_eq!((sum.total(), sum.bytes_written), (7, 70));
    }
}
