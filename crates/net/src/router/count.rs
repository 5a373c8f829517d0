//! Counters of a router: by nets, file system and dialler, in all and by second.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use wire::router::{RouterFlow, RouterRow, RouterSample, RouterStatReply};

/// Rows that are kept apart; what comes on top is counted under the name `others`.
const KEYS_MAX: usize = 4096;
/// Seconds of history.
const SAMPLES_MAX: usize = 3600;
/// Nets and file systems of one second.
const FLOWS_MAX: usize = 256;

/// The row of a circuit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub from: String,
    pub to: String,
    pub fs: String,
    pub peer: String,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    circuits: AtomicUsize,
    opened: AtomicU64,
    /// Bytes from the dialler, and bytes to it.
    out: AtomicU64,
    back: AtomicU64,
    stalls: AtomicU64,
    stall_ns: AtomicU64,
}

pub(super) struct Counts {
    begun: Instant,
    rows: Mutex<HashMap<Key, Arc<Row>>>,
    circuits: AtomicUsize,
    refused: AtomicU64,
    failed: AtomicU64,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    samples: VecDeque<RouterSample>,
    /// Sums at the last sample.
    before: BTreeMap<(String, String, String), (u64, u64)>,
    cpu_ns: u64,
    number: u64,
}

/// A circuit's place in its row, until it is dropped.
pub(super) struct Counted {
    counts: Arc<Counts>,
    row: Arc<Row>,
}

/// A direction of a circuit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Out,
    Back,
}

impl Counted {
    pub fn new(counts: &Arc<Counts>, key: Key) -> Counted {
        let mut rows = counts.rows.lock();
        let key = match rows.len() >= KEYS_MAX && !rows.contains_key(&key) {
            true => Key { fs: "others".into(), peer: "others".into(), ..key },
            false => key,
        };
        let row = rows.entry(key).or_default().clone();
        drop(rows);
        row.circuits.fetch_add(1, Ordering::Relaxed);
        row.opened.fetch_add(1, Ordering::Relaxed);
        counts.circuits.fetch_add(1, Ordering::Relaxed);
        Counted { counts: counts.clone(), row }
    }

    pub fn moved(&self, way: Way, bytes: usize) {
        let counter = if way == Way::Out { &self.row.out } else { &self.row.back };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The receiving end took nothing for a time.
    pub fn stalled(&self, since: Instant) {
        self.row.stalls.fetch_add(1, Ordering::Relaxed);
        self.row.stall_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.row.circuits.fetch_sub(1, Ordering::Relaxed);
        self.counts.circuits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub fn new() -> Counts {
        Counts {
            begun: Instant::now(),
            rows: Mutex::default(),
            circuits: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            history: Mutex::new(History { cpu_ns: cpu_ns(), ..History::default() }),
        }
    }

    pub fn circuits(&self) -> usize {
        self.circuits.load(Ordering::Relaxed)
    }
    pub fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stat(&self) -> RouterStatReply {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let mut rows: Vec<RouterRow> = self
            .rows
            .lock()
            .iter()
            .map(|(key, row)| RouterRow {
                from: key.from.clone(),
                to: key.to.clone(),
                fs: key.fs.clone(),
                peer: key.peer.clone(),
                circuits: row.circuits.load(Ordering::Relaxed) as u32,
                opened: get(&row.opened),
                bytes_out: get(&row.out),
                bytes_back: get(&row.back),
                stalls: get(&row.stalls),
                stall_us: get(&row.stall_ns) / 1000,
            })
            .collect();
        rows.sort_by(|a, b| (&a.from, &a.to, &a.fs, &a.peer).cmp(&(&b.from, &b.to, &b.fs, &b.peer)));
        let history = self.history.lock();
        RouterStatReply {
            nids: vec![],
            is_draining: false,
            uptime_ms: self.begun.elapsed().as_millis() as u64,
            cpu_us: cpu_ns() / 1000,
            circuits: self.circuits() as u32,
            circuits_max: 0,
            refused: get(&self.refused),
            failed: get(&self.failed),
            rows,
            history: history.samples.iter().cloned().collect(),
        }
    }

    /// Adds what went through since the sample before.
    pub fn sample(&self) {
        let mut sums: BTreeMap<(String, String, String), (u64, u64)> = BTreeMap::new();
        for (key, row) in self.rows.lock().iter() {
            let sum = sums.entry((key.from.clone(), key.to.clone(), key.fs.clone())).or_default();
            sum.0 += row.out.load(Ordering::Relaxed);
            sum.1 += row.back.load(Ordering::Relaxed);
        }
        let now_cpu = cpu_ns();
        let mut history = self.history.lock();
        let mut flows = Vec::new();
        for ((from, to, fs), (out, back)) in &sums {
            let before =
                history.before.get(&(from.clone(), to.clone(), fs.clone())).copied().unwrap_or_default();
            let (out, back) = (out - before.0, back - before.1);
            if (out > 0 || back > 0) && flows.len() < FLOWS_MAX {
                let (from, to, fs) = (from.clone(), to.clone(), fs.clone());
                flows.push(RouterFlow { from, to, fs, bytes_out: out, bytes_back: back });
            }
        }
        history.number += 1;
        let sample = RouterSample {
            number: history.number,
            at_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
            cpu_us: now_cpu.saturating_sub(history.cpu_ns) / 1000,
            circuits: self.circuits() as u32,
            flows,
        };
        history.cpu_ns = now_cpu;
        history.before = sums;
        if history.samples.len() >= SAMPLES_MAX {
            history.samples.pop_front();
        }
        history.samples.push_back(sample);
    }
}

/// Processor time of this process.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
