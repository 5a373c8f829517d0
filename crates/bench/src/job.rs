//! A job: one phase, as a worker is told it. Everything is resolved: no variables, no plan, no scale.
//!
//! A job has `workers` workers over all its processes, numbered from 0. A worker's operations follow from the job and
//! its number alone. A file's content follows from seed, file, offset and version (`pattern`). Thus processes share nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::work::DEPTH_MAX;

/// The work of all workers of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub work: Work,
    /// Over all processes.
    pub workers: u32,
    pub limit: Limit,
    /// Content is stamped when written, and the stamps of a sample are checked when read.
    pub verify: bool,
    pub seed: u64,
    /// Before a worker reports ready, it asks the kernel to drop the cached pages of its files. For users without permission to drop
    /// all caches.
    pub forget_pages: bool,
    /// Transfers (of data) or items (of names) that each worker's part really holds, where an earlier phase was stopped by its
    /// limit; empty: all.
    #[serde(default)]
    pub holds: Vec<u64>,
}

/// Conditions that end a worker before all its work is done, and the warm-up that is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Limit {
    /// A worker begins no operation later than this after its begin; the flush at its end still counts.
    pub seconds: Option<f64>,
    /// Operations that begin (with a pace: are due) earlier than this after the begin are done and not counted, also if they end later.
    pub warmup_seconds: f64,
    /// Operations that each worker begins per second. Its latency then counts from when an operation should have begun.
    pub pace: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    Data(Data),
    Names(Names),
}

/// Reads or writes of bytes, as IOR numbers them: a worker has `segments` blocks of `block_bytes`, moved in transfers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    pub op: DataOp,
    pub order: Order,
    pub files: Files,
    /// Of one read or write. Direct I/O wants multiples of 4 KiB, or of the device's sector.
    pub transfer_bytes: u64,
    /// Contiguous bytes of one worker; a multiple of the transfer.
    pub block_bytes: u64,
    /// Blocks of each worker. In a shared file segment `s` of worker `w` of `n` begins at `(s * n + w) * block_bytes`.
    pub segments: u64,
    /// Worker `w` works on the part of worker `(w + shift) mod workers`.
    pub shift: u32,
    /// At most so many transfers by each worker.
    pub ops_max: Option<u64>,
    pub engine: Engine,
    /// `O_DIRECT`.
    pub direct: bool,
    pub flush: Flush,
    /// Files are made, or emptied when they are there; else they must be there and long enough.
    pub create: bool,
    /// Version in the stamps of written pages.
    pub version: u64,
    /// Versions that read or read-back pages may have: those from before the phase, and those written during it.
    pub accept: Vec<u64>,
    /// When all workers have ended, each reads at most so many of its own transfers back, past the page cache, which must say one of `accept`.
    pub read_back: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataOp {
    Write,
    Read,
    /// Each transfer is a read with this chance in percent, else a write.
    Mixed {
        read_percent: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Sequential,
    /// Each once, in a seeded order. With direct I/O a new round in another order begins when `Limit::seconds` or a count asks for more.
    /// Buffered I/O has one round, since a second would be served from the page cache.
    Random,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Files {
    /// A file per worker: `STEM.W`.
    Own { stem: PathBuf },
    /// One file for all.
    Shared { path: PathBuf },
    /// Files or devices that are there; worker `w` has the `w mod n`-th, its place in it as in a shared file of those workers.
    Given { paths: Vec<PathBuf> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// pread(2) and pwrite(2), one at a time.
    Sync,
    /// io_uring with so many in flight per worker.
    Uring { depth: u32 },
    /// No I/O: measures the generator's own cost.
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flush {
    Never,
    /// fsync(2) by each worker at its end, inside the measured time.
    End,
    /// After each write; part of that operation's latency.
    Each,
}

/// Operations on names, with mdtest's meaning. Each worker has a tree of `branch`^`depth` leaves, and `items_per_dir` items in each leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    pub op: NamesOp,
    /// The tree, or trees, are made in it.
    pub root: PathBuf,
    /// All workers share one tree and its directories; else each has a tree of its own, `ROOT/w.W`.
    pub shared: bool,
    pub branch: u32,
    pub depth: u32,
    /// Items are in the leaves of the tree only; else in each of its directories.
    pub leaves_only: bool,
    pub items_per_dir: u64,
    /// Written into each file that is made, in one write.
    pub write_bytes: u64,
    /// Read from each file, in one read; at most `write_bytes` can be there.
    pub read_bytes: u64,
    /// Reads open files for reading and writing, as mdtest's do.
    pub open_to_write: bool,
    /// fsync(2) after the write of each file.
    pub flush: bool,
    /// Worker `w` stats, reads and removes items of worker `(w + shift) mod workers`.
    pub shift: u32,
    pub order: Order,
    /// So often over all items: epochs of training.
    pub epochs: u32,
    pub version: u64,
    pub null: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamesOp {
    /// Makes the tree's directories; of a shared tree worker 0 makes all.
    MakeTree,
    RemoveTree,
    /// Makes files, writes them, closes them.
    Create,
    /// stat(2) of each file.
    Stat,
    /// Opens, reads, closes; with nothing to read opens and closes.
    Read,
    Remove,
    MakeDir,
    StatDir,
    RemoveDir,
    /// statx(2) that must ask the server (`AT_STATX_FORCE_SYNC`), again and again for one open file of one's own: requests per
    /// second, where the file system has a server. `items_per_dir` says how many.
    Ask,
}

impl Job {
    /// Replaces every path of the job.
    pub fn map_paths(&mut self, to: impl Fn(&Path) -> PathBuf) {
        let replace = |path: &mut PathBuf| *path = to(path);
        match &mut self.work {
            Work::Data(data) => match &mut data.files {
                Files::Own { stem: path } | Files::Shared { path } => replace(path),
                Files::Given { paths } => paths.iter_mut().for_each(replace),
            },
            Work::Names(names) => replace(&mut names.root),
        }
    }

    /// On whose part worker `worker` works.
    pub fn shifted(&self, worker: u32, shift: u32) -> u32 {
        let workers = u64::from(self.workers.max(1));
        ((u64::from(worker) + u64::from(shift)) % workers) as u32
    }
}

impl Work {
    /// Is nothing changed by it?
    pub fn is_read_only(&self) -> bool {
        match self {
            Work::Data(data) => data.op == DataOp::Read,
            Work::Names(names) => {
                matches!(names.op, NamesOp::Stat | NamesOp::Read | NamesOp::StatDir | NamesOp::Ask)
            }
        }
    }
}

impl Names {
    /// Directories of one tree that hold items.
    pub fn item_dirs(&self) -> u64 {
        let level = |n: u32| u64::from(self.branch).saturating_pow(n);
        match self.leaves_only {
            true => level(self.depth),
            false => (0..=self.depth.min(DEPTH_MAX)).map(level).fold(0, u64::saturating_add),
        }
    }

    /// Items of each worker.
    pub fn items_per_worker(&self) -> u64 {
        self.item_dirs().saturating_mul(self.items_per_dir)
    }
}
