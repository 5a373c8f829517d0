//! The workloads of `bars share`: threads that work at once, each through one of the mounts.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Threads of every row.
pub const WORKERS: usize = 4;
/// Files of each thread.
const FILES: usize = 750;
/// Bytes of a file with content.
const SMALL: usize = 4096;
const WARM_ROUNDS: usize = 10;
const STREAM_BYTES: usize = 1 << 20;
/// Of each thread, in rows of content.
const CONTENT_BYTES: usize = 64 << 20;
/// The transfer of the study io500 for one file of many writers; no multiple of a page.
const ODD_BYTES: usize = 47_008;

/// A row: its title, and the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    Create,
    StatCold,
    StatWarm,
    Remove,
    SmallCreate,
    SmallRead,
    StreamWrite,
    StreamRead,
    OddWrite,
    OddRead,
}

impl Row {
    /// In the order in which they run: a row uses the files of those before.
    pub const ALL: [Row; 10] = [
        Row::Create,
        Row::StatCold,
        Row::StatWarm,
        Row::Remove,
        Row::SmallCreate,
        Row::SmallRead,
        Row::StreamWrite,
        Row::StreamRead,
        Row::OddWrite,
        Row::OddRead,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Row::Create => "create, empty",
            Row::StatCold => "stat, cold",
            Row::StatWarm => "stat, warm",
            Row::Remove => "remove",
            Row::SmallCreate => "create, 4 KiB",
            Row::SmallRead => "open, read, close, 4 KiB, cold",
            Row::StreamWrite => "N-N write, 1 MiB",
            Row::StreamRead => "N-N read, 1 MiB",
            Row::OddWrite => "N-1 write, 47,008 B",
            Row::OddRead => "N-1 read, 47,008 B",
        }
    }

    /// Values of content rows are MiB per second, others operations per second.
    pub fn is_content(self) -> bool {
        matches!(self, Row::StreamWrite | Row::StreamRead | Row::OddWrite | Row::OddRead)
    }

    /// The kernel's caches are dropped before it.
    fn is_cold(self) -> bool {
        matches!(self, Row::StatCold | Row::SmallRead | Row::StreamRead | Row::OddRead)
    }
}

/// Where the threads work.
pub struct Place {
    /// Thread `i` works through mount `i mod len`.
    pub mounts: Vec<PathBuf>,
    /// True: all threads have one directory, and a thread reads the files of its neighbour, which works through another mount. False: a
    /// directory for each thread, and it reads the files of another thread of its own mount.
    pub is_together: bool,
}

impl Place {
    fn root(&self, thread: usize, round: usize) -> PathBuf {
        self.mounts[thread % self.mounts.len()].join(format!("share.{round}"))
    }
    /// The directory of thread `of`, through the mount of `thread`.
    fn dir(&self, thread: usize, of: usize, round: usize) -> PathBuf {
        let root = self.root(thread, round);
        if self.is_together { root.join("all") } else { root.join(format!("{of}")) }
    }
    /// The thread whose files this one reads.
    fn read_of(&self, thread: usize) -> usize {
        let step = if self.is_together || self.mounts.len() == 1 { 1 } else { self.mounts.len() };
        (thread + step) % WORKERS
    }
}

/// Runs all rows once, and returns the rate of each in the order of `Row::ALL`.
pub fn run(place: &Place, round: usize, settle: &dyn Fn() -> Result<()>) -> Result<Vec<f64>> {
    for thread in 0..WORKERS {
        fs::create_dir_all(place.dir(0, thread, round))?;
    }
    let mut rates = Vec::new();
    for row in Row::ALL {
        settle()?;
        if row.is_cold() {
            drop_caches()?;
        }
        let seconds = timed(|thread| work(place, row, thread, round)).with_context(|| row.title())?;
        let per_thread = match row {
            Row::StatWarm => FILES * WARM_ROUNDS,
            _ if row.is_content() => CONTENT_BYTES >> 20,
            _ => FILES,
        };
        rates.push((per_thread * WORKERS) as f64 / seconds);
    }
    fs::remove_dir_all(place.root(0, round))?;
    Ok(rates)
}

/// Seconds until the last of all threads has ended, from their common start.
fn timed(work: impl Fn(usize) -> Result<()> + Sync) -> Result<f64> {
    let start = Barrier::new(WORKERS + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS)
            .map(|thread| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(thread)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(began.elapsed().as_secs_f64())
    })
}

fn work(place: &Place, row: Row, thread: usize, round: usize) -> Result<()> {
    let (own, other) = (place.dir(thread, thread, round), place.read_of(thread));
    let others = place.dir(thread, other, round);
    let empty = |dir: &Path, of: usize, n: usize| dir.join(format!("e{of}.{n}"));
    let small = |dir: &Path, of: usize, n: usize| dir.join(format!("s{of}.{n}"));
    match row {
        Row::Create => (0..FILES).try_for_each(|n| Ok(File::create_new(empty(&own, thread, n)).map(drop)?)),
        Row::StatCold => stat_all(FILES, |n| empty(&others, other, n)),
        Row::StatWarm => (0..WARM_ROUNDS).try_for_each(|_| stat_all(FILES, |n| empty(&others, other, n))),
        Row::Remove => (0..FILES).try_for_each(|n| Ok(fs::remove_file(empty(&own, thread, n))?)),
        Row::SmallCreate => (0..FILES).try_for_each(|n| {
            let file = File::create_new(small(&own, thread, n))?;
            Ok(file.write_all_at(&[thread as u8; SMALL], 0)?)
        }),
        Row::SmallRead => (0..FILES).try_for_each(|n| {
            let content = fs::read(small(&others, other, n))?;
            ensure!(content.len() == SMALL && content[0] == other as u8, "a file has other bytes");
            Ok(())
        }),
        Row::StreamWrite => {
            let file = File::create(own.join(format!("big{thread}")))?;
            transfers(STREAM_BYTES, |n, bytes| {
                bytes.fill(thread as u8);
                Ok(file.write_all_at(bytes, (n * STREAM_BYTES) as u64)?)
            })
        }
        Row::StreamRead => {
            let file = File::open(others.join(format!("big{other}")))?;
            transfers(STREAM_BYTES, |n, bytes| {
                file.read_exact_at(bytes, (n * STREAM_BYTES) as u64)?;
                ensure!(bytes[STREAM_BYTES / 2] == other as u8, "the file has other bytes");
                Ok(())
            })
        }
        Row::OddWrite => {
            let path = place.root(thread, round).join("one");
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            transfers(ODD_BYTES, |n, bytes| {
                bytes.fill(thread as u8);
                Ok(file.write_all_at(bytes, ((n * WORKERS + thread) * ODD_BYTES) as u64)?)
            })
        }
        Row::OddRead => {
            let file = File::open(place.root(thread, round).join("one"))?;
            transfers(ODD_BYTES, |n, bytes| {
                file.read_exact_at(bytes, ((n * WORKERS + other) * ODD_BYTES) as u64)?;
                let is_whole = bytes[0] == other as u8 && bytes[ODD_BYTES - 1] == other as u8;
                ensure!(is_whole, "the file has other bytes");
                Ok(())
            })
        }
    }
}

fn stat_all(count: usize, path: impl Fn(usize) -> PathBuf) -> Result<()> {
    (0..count).try_for_each(|n| Ok(fs::symlink_metadata(path(n)).map(drop)?))
}

fn transfers(bytes: usize, mut each: impl FnMut(usize, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0u8; bytes];
    (0..CONTENT_BYTES / bytes).try_for_each(|n| each(n, &mut buffer))
}

fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_apart_read_files_of_their_own_mount_and_threads_together_those_of_the_other() {
        let mounts = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        let apart = Place { mounts: mounts.clone(), is_together: false };
        assert!((0..WORKERS).all(|t| apart.read_of(t) != t && apart.read_of(t) % 2 == t % 2));
        assert_eq!(apart.dir(1, 3, 7), Path::new("/b/share.7/3"));
        let together = Place { mounts, is_together: true };
        assert!((0..WORKERS).all(|t| together.read_of(t) % 2 != t % 2));
        assert_eq!(together.dir(0, 3, 7), Path::new("/a/share.7/all"));
    }
}
