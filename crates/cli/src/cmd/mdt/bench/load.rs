//! Threads that do one row's work on one side, one operation at a time each, and their counters.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use disk::SplitMix;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::rows::{Row, Work};
use super::tree::{Hand, Name, Side, Tree};
use crate::cmd::measure::threads::{self, Took, histogram};

/// Operations between two looks at the clock, which costs a twentieth of a stat.
const LOOKS: u64 = 64;
/// The number of the thread that creates files beside the others.
const WRITER: usize = 8;
/// The writer creates the files that are due, then waits this long.
const TICK: Duration = Duration::from_millis(1);

/// The result of a row on one side in one turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figure {
    /// In the row's unit.
    pub value: f64,
    pub ops: u64,
    pub seconds: f64,
    /// The part of `seconds` that the flush at the end took.
    pub flush_seconds: f64,
    /// CPU time of the processes, user and system.
    pub cpu_seconds: f64,
    /// Latency of an operation; for stats, the mean of several in a row.
    pub p50_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub memory_bytes: u64,
    /// Files that the writer beside it created per second.
    pub made_per_second: f64,
}

/// The result of one thread.
pub struct Done {
    pub ops: u64,
    latencies: Histogram<u64>,
}

impl Figure {
    pub fn of(took: &Took<Done>) -> anyhow::Result<Figure> {
        let mut all = histogram();
        for done in &took.done {
            all.add(&done.latencies)?;
        }
        let ops = took.done.iter().map(|d| d.ops).sum();
        let us = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Figure {
            value: ops as f64 / took.seconds,
            ops,
            seconds: took.seconds,
            cpu_seconds: took.cpu_seconds,
            p50_us: us(0.5),
            p999_us: us(0.999),
            max_us: all.max() as f64 / 1e3,
            ..Figure::default()
        })
    }

    pub fn cpu_seconds_per_million(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.ops as f64
    }
}

/// When a row ends: after its time, by a signal, or when another thread has no more work.
pub struct Until<'a> {
    pub time: Duration,
    pub stop: &'a AtomicBool,
    pub over: &'a AtomicBool,
}

impl Until<'_> {
    /// Calls `some` repeatedly; it returns how many operations it did, or zero when there is no more work.
    pub fn repeat(
        &self,
        began: Instant,
        mut some: impl FnMut() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Done> {
        let mut done = Done { ops: 0, latencies: histogram() };
        let mut last = Instant::now();
        while !self.stop.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed) {
            let ops = some()?;
            if ops == 0 {
                break;
            }
            let now = Instant::now();
            done.ops += ops;
            done.latencies.saturating_record((now - last).as_nanos() as u64 / ops);
            last = now;
            if now - began >= self.time {
                break;
            }
        }
        Ok(done)
    }
}

/// Stats of random files by this many threads; `looks` gives each thread its way to stat a file by number.
pub fn looks<L: FnMut(u64) -> anyhow::Result<()>>(
    threads: usize,
    entries: u64,
    (time, seed, stop): (Duration, u64, &AtomicBool),
    look: impl Fn(usize) -> anyhow::Result<L> + Sync,
) -> anyhow::Result<Figure> {
    let over = AtomicBool::new(false);
    let until = Until { time, stop, over: &over };
    let work = |thread: usize, began| {
        let mut rng = SplitMix::new(seed << 8 | thread as u64);
        let mut look = look(thread)?;
        until.repeat(began, || {
            for _ in 0..LOOKS {
                look(rng.below(entries))?;
            }
            Ok(LOOKS)
        })
    };
    Figure::of(&threads::run(threads, &over, work, || Ok(()))?)
}

/// A directory of a thread, and the range of its existing files.
pub type Own<D> = (D, Range<u64>);

/// One side with its tree, and the files that the last row left.
pub struct World<S: Side> {
    /// Declared before the side, so that directories are closed before it is dropped.
    pub left: Vec<Own<S::Dir>>,
    pub side: S,
    pub tree: Tree,
    /// Files that a row may create.
    pub files_max: u64,
    /// Whether rows that change something end with a flush, which counts.
    pub flushes: bool,
    pub stop: Arc<AtomicBool>,
    /// Directories made so far, beyond those of the tree.
    made: u64,
}

impl<S: Side> World<S> {
    pub fn new(side: S, tree: Tree, files_max: u64, flushes: bool, stop: Arc<AtomicBool>) -> World<S> {
        World { left: vec![], side, tree, files_max, flushes, stop, made: 0 }
    }

    /// Stats the whole tree once, so that no row meets a cold cache after a start; returns the seconds that it took.
    pub fn warm(&self) -> anyhow::Result<f64> {
        let began = Instant::now();
        let mut hand = self.side.hand(0)?;
        let entries = self.side.dirs().iter().map(|dir| hand.list(dir)).sum::<anyhow::Result<u64>>()?;
        ensure!(entries >= self.tree.entries, "{entries} files of {} are there", self.tree.entries);
        Ok(began.elapsed().as_secs_f64())
    }

    pub fn measure(&mut self, row: &Row, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        let is_continued = row.work == Work::Remove && self.left.len() == row.threads;
        if !is_continued {
            self.clear()?;
        }
        let figure = match row.work {
            Work::Create => self.create(row.threads, time),
            Work::Remove => self.remove(row.threads, time),
            Work::Stat => self.stat(row.threads, time, seed),
            Work::List => self.list(row.threads, time, seed),
            Work::Mixed => self.mixed(row.threads, time, seed),
            Work::Scaling { .. } => bail!("it is made of others"),
        };
        figure.context(row.title)
    }

    pub fn stat(&self, threads: usize, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        looks(threads, self.tree.entries, (time, seed, &self.stop), |thread| self.looker(thread))
    }

    fn looker(&self, thread: usize) -> anyhow::Result<impl FnMut(u64) -> anyhow::Result<()>> {
        let mut hand = self.side.hand(thread)?;
        Ok(move |n| {
            let (dir, file) = self.tree.place(n);
            hand.stat(&self.side.dirs()[dir], &Name::file(file))
        })
    }

    pub fn create(&mut self, threads: usize, time: Duration) -> anyhow::Result<Figure> {
        let dirs = self.make_dirs(threads)?;
        let each_max = self.files_max / threads as u64;
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let work = |thread: usize, began| {
            let mut hand = self.side.hand(thread)?;
            let mut files = 0;
            until.repeat(began, || {
                if files == each_max {
                    return Ok(0);
                }
                hand.create(&dirs[thread], &Name::file(files))?;
                files += 1;
                Ok(1)
            })
        };
        let took = threads::run(threads, &over, work, || self.end())?;
        self.left = dirs.into_iter().zip(&took.done).map(|(dir, done)| (dir, 0..done.ops)).collect();
        self.changed(&took)
    }

    /// Ends when the first thread has no file left, so that all threads work all the time.
    fn remove(&mut self, threads: usize, time: Duration) -> anyhow::Result<Figure> {
        if self.left.is_empty() {
            self.create(threads, time)?;
        }
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let left = &self.left;
        let work = |thread: usize, began| {
            let mut hand = self.side.hand(thread)?;
            let (dir, files) = &left[thread];
            let mut files = files.clone();
            until.repeat(began, || {
                let Some(file) = files.next() else {
                    over.store(true, Ordering::Relaxed);
                    return Ok(0);
                };
                hand.remove(dir, &Name::file(file))?;
                Ok(1)
            })
        };
        let took = threads::run(threads, &over, work, || self.end())?;
        for ((_, files), done) in self.left.iter_mut().zip(&took.done) {
            files.start += done.ops;
        }
        self.clear()?;
        self.changed(&took)
    }

    fn list(&self, threads: usize, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let dirs = self.side.dirs();
        let work = |thread: usize, began| {
            let mut rng = SplitMix::new(seed << 8 | thread as u64);
            let mut hand = self.side.hand(thread)?;
            until.repeat(began, || hand.list(&dirs[rng.below(dirs.len() as u64) as usize]))
        };
        Figure::of(&threads::run(threads, &over, work, || Ok(()))?)
    }

    fn mixed(&mut self, threads: usize, time: Duration, seed: u64) -> anyhow::Result<Figure> {
        let dirs = self.make_dirs(threads)?;
        let over = AtomicBool::new(false);
        let until = Until { time, stop: &self.stop, over: &over };
        let work = |thread: usize, began| {
            let mut rng = SplitMix::new(seed << 8 | thread as u64);
            let (mut hand, dir) = (self.side.hand(thread)?, &dirs[thread]);
            let mut files = 0..0;
            until.repeat(began, || {
                for _ in 0..2 {
                    for _ in 0..3 {
                        let (dir, file) = self.tree.place(rng.below(self.tree.entries));
                        hand.stat(&self.side.dirs()[dir], &Name::file(file))?;
                    }
                    hand.create(dir, &Name::file(files.end))?;
                    files.end += 1;
                    // All of them: the next turn must find as many as this one did.
                    hand.remove(dir, &Name::file(files.start))?;
                    files.start += 1;
                }
                Ok(10)
            })
        };
        self.changed(&threads::run(threads, &over, work, || self.end())?)
    }

    /// Runs `work` while another thread creates this many files per second; returns how many it created, too.
    pub fn beside_writer<T>(
        &mut self,
        per_second: u32,
        work: impl FnOnce(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, f64)> {
        if per_second == 0 {
            return Ok((work(self)?, 0.0));
        }
        let dir = self.make_dirs(1)?.pop().context("one was asked for")?;
        let (is_over, files) = (AtomicBool::new(false), AtomicU64::new(0));
        let write = || -> anyhow::Result<()> {
            let mut hand = self.side.hand(WRITER)?;
            let began = Instant::now();
            while !is_over.load(Ordering::Relaxed) {
                let due = (began.elapsed().as_secs_f64() * f64::from(per_second)) as u64;
                while files.load(Ordering::Relaxed) < due.min(self.files_max) {
                    hand.create(&dir, &Name::file(files.load(Ordering::Relaxed)))?;
                    files.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(TICK);
            }
            Ok(())
        };
        let (done, made, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(write);
            let (began, before) = (Instant::now(), files.load(Ordering::Relaxed));
            let done = work(self);
            let made = (files.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            (done, made, writer.join())
        });
        written.map_err(|_| anyhow::anyhow!("the writer panicked"))?.context("the writer")?;
        self.left = vec![(dir, 0..files.into_inner())];
        self.clear()?;
        Ok((done?, made))
    }

    /// Removes the files that rows left.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        let left = std::mem::take(&mut self.left);
        let over = AtomicBool::new(false);
        let work = |thread: usize, _| {
            let mut hand = self.side.hand(thread)?;
            let (dir, files) = &left[thread];
            files.clone().try_for_each(|file| hand.remove(dir, &Name::file(file)))
        };
        threads::run(left.len(), &over, work, || Ok(()))?;
        Ok(())
    }

    pub fn make_dirs(&mut self, count: usize) -> anyhow::Result<Vec<S::Dir>> {
        let mut hand = self.side.hand(0)?;
        // Names that no other process uses: a restarted one cannot know which files exist.
        let first = u64::from(std::process::id() % 1000) * 1_000_000 + self.made;
        self.made += count as u64;
        (0..count as u64).map(|n| hand.make_dir(&Name::new(b'w', first + n))).collect()
    }

    fn changed(&self, took: &Took<Done>) -> anyhow::Result<Figure> {
        let flush_seconds = if self.flushes { took.end_seconds } else { 0.0 };
        Ok(Figure { flush_seconds, ..Figure::of(took)? })
    }

    fn end(&self) -> anyhow::Result<()> {
        if self.flushes { self.side.flush() } else { Ok(()) }
    }
}
