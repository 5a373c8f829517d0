//! Progress display of a run: on a terminal a bar with live rates, else a line for each record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::crew::{Live, LiveWorker};
use crate::job::{DataOp, Work};
use crate::plan::PlannedPart;
use crate::record::{Record, Unit};
use crate::report::number::number;

/// Below this a data phase's operations are told, from it on its bytes.
const BYTES_FROM: u64 = 64 << 10;

pub struct Progress {
    bar: ProgressBar,
    /// Lines are wanted where no bar can be drawn.
    lines: bool,
    state: Arc<Mutex<State>>,
}

/// The current phase, and the last reports of its workers.
struct State {
    title: String,
    unit: Unit,
    /// Operations or bytes in all of the phase; 0: unknown.
    total: u64,
    begun: Instant,
    last: BTreeMap<(String, u32), u64>,
    last_at: Instant,
}

impl Progress {
    pub fn new(wanted: bool, phases: u64) -> Progress {
        let target = if wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(phases), target);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} (about {eta} left)  {msg}");
        bar.set_style(style.expect("the template is fixed and tested"));
        bar.enable_steady_tick(Duration::from_millis(500));
        let now = Instant::now();
        let state = State {
            title: String::new(),
            unit: Unit::Ops,
            total: 0,
            begun: now,
            last: BTreeMap::new(),
            last_at: now,
        };
        let lines = wanted && bar.is_hidden();
        Progress { bar, lines, state: Arc::new(Mutex::new(state)) }
    }

    /// Shows how the workers go.
    pub fn watcher(&self) -> impl FnMut(Live<'_>) + 'static {
        let (bar, state) = (self.bar.clone(), self.state.clone());
        move |live| {
            let mut state = state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            bar.set_message(state.describe(live.workers, Instant::now()));
        }
    }

    pub fn begin_phase(&self, title: &str, parts: &[PlannedPart]) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let (unit, total) = unit_of(parts);
        *state = State { title: title.into(), unit, total, begun: now, last: BTreeMap::new(), last_at: now };
        self.bar.set_message(title.to_owned());
    }

    pub fn end_phase(&self) {
        self.bar.inc(1);
    }

    /// Repeats beyond the first few were not counted before.
    pub fn begin_repeat(&self, repeat: u32, least: u32, phases: u64) {
        if repeat >= least {
            self.bar.inc_length(phases);
        }
    }

    pub fn measured(&self, title: &str, record: &Record) {
        let unit = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).unit;
        let value = record.outcome.value(unit).map_or_else(|| "-".into(), number);
        self.say(&format!("{title} #{}: {value} {}", record.repeat + 1, unit.title()));
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if self.lines {
            eprintln!("{line}");
        } else {
            self.bar.println(line);
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The unit of a phase's progress, and its maximum.
fn unit_of(parts: &[PlannedPart]) -> (Unit, u64) {
    let mut unit = Unit::Ops;
    let mut total = 0;
    for part in parts {
        let workers = u64::from(part.job.workers);
        match &part.job.work {
            Work::Data(data) => {
                let ops = (data.segments.saturating_mul(data.block_bytes / data.transfer_bytes.max(1)))
                    .min(data.ops_max.unwrap_or(u64::MAX));
                let is_mixed = matches!(data.op, DataOp::Mixed { .. });
                unit = if data.transfer_bytes >= BYTES_FROM || is_mixed { Unit::MiBps } else { Unit::Iops };
                let each = if unit == Unit::MiBps { ops.saturating_mul(data.transfer_bytes) } else { ops };
                total = each.saturating_mul(workers).saturating_add(total);
            }
            Work::Names(names) => {
                let each = names.items_per_worker().saturating_mul(u64::from(names.epochs.max(1)));
                total = each.saturating_mul(workers).saturating_add(total);
            }
        }
    }
    (unit, total)
}

impl State {
    /// The line that is shown: the rate since the last one, the range over workers, the slowest.
    fn describe(&mut self, workers: &[LiveWorker<'_>], now: Instant) -> String {
        let of = |worker: &LiveWorker<'_>| if self.unit == Unit::MiBps { worker.bytes } else { worker.ops };
        let scale = if self.unit == Unit::MiBps { f64::from(1 << 20) } else { 1.0 };
        let seconds = now.duration_since(self.last_at).as_secs_f64().max(1e-3);
        let key = |worker: &LiveWorker<'_>| (worker.part.to_owned(), worker.number);
        let done: BTreeMap<_, u64> = workers.iter().map(|worker| (key(worker), of(worker))).collect();
        let rate = |(key, done): (&(String, u32), &u64)| {
            done.saturating_sub(self.last.get(key).copied().unwrap_or(0)) as f64 / scale / seconds
        };
        let rates: Vec<f64> = done.iter().map(rate).collect();
        let sum: u64 = done.values().sum();
        let mut line = format!("{}: {} {}", self.title, number(rates.iter().sum()), self.unit.title());
        let slowest = done.iter().min_by_key(|(_, done)| **done).filter(|_| done.len() > 1);
        if let Some(((part, worker), _)) = slowest {
            let most = rates.iter().copied().fold(0.0, f64::max);
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            let of = if part.is_empty() { String::new() } else { format!(" of {part}") };
            line += &format!(" ({}..{} each, slowest: worker {worker}{of})", number(least), number(most));
        }
        if self.total > 0 {
            let share = sum as f64 / self.total as f64;
            line += &format!(" {:.0} %", 100.0 * share.min(1.0));
            let elapsed = now.duration_since(self.begun).as_secs_f64();
            if share > 0.02 && share < 1.0 {
                line += &format!(", {:.0} s of the phase left", elapsed / share - elapsed);
            }
        }
        self.last = done;
        self.last_at = now;
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_rates_spread_and_the_slowest() {
        let begun = Instant::now();
        let mut state = State {
            title: "nn".into(),
            unit: Unit::MiBps,
            total: 100 << 20,
            begun,
            last: BTreeMap::new(),
            last_at: begun,
        };
        let later = begun + Duration::from_secs(1);
        let worker = |number, mib: u64| LiveWorker { part: "", number, ops: 9, bytes: mib << 20 };
        // Only some have said something, then others too: each is compared with itself.
        let line = state.describe(&[worker(6, 30), worker(2, 20)], later);
        assert_eq!(line, "nn: 50.0 MiB/s (20.0..30.0 each, slowest: worker 2) 50 %, 1 s of the phase left");
        // The next line shows the rate since the last one.
        let line = state.describe(&[worker(2, 29), worker(6, 31)], later + Duration::from_secs(1));
        assert!(line.starts_with("nn: 10.0 MiB/s (1.00..9.00 each, slowest: worker 2) 60 %"), "{line}");
        let write = LiveWorker { part: "write", number: 0, ops: 9, bytes: 0 };
        let line = state.describe(&[write, LiveWorker { bytes: 1 << 20, part: "read", ..write }], later);
        assert!(line.contains("slowest: worker 0 of write"), "{line}");
    }
}
