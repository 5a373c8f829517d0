//! A directory of our own inside the measured one, what was put into it so far, and the rows that run in it.
//!
//! I1. A row that reads finds what it needs or makes it first, outside the measured time; so each row also runs alone.
//! I2. Everything is inside one directory of ours, which goes when the workspace does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::files::{Layout, Stream};
use super::kind::Kind;
use super::names::Names;
use super::sample::Sample;
use super::workers::{Done, Limit};
use super::{files, names, sync};
use crate::cache::CacheState;
use crate::pattern::{PAGE_BYTES, Pattern};

/// What was done, in how many seconds, over which caches.
pub type Measured = (Done, f64, CacheState);

/// How much is moved, by how many.
#[derive(Clone, Debug)]
pub struct Params {
    pub workers: usize,
    /// Bytes of a sequential phase, over all workers.
    pub total_bytes: u64,
    /// Bytes of one sequential read or write; a multiple of 4 KiB.
    pub transfer_bytes: usize,
    /// Files that each worker makes in its own directory.
    pub files_per_worker: usize,
    /// Most operations of a random phase, per worker.
    pub random_ops: u64,
    /// After this time a phase stops with what it has got done; the flush at its end still counts.
    pub phase_limit: Duration,
    /// Sequential and random phases by-pass the kernel's page cache (`O_DIRECT`).
    pub direct: bool,
    /// Content is checked. Only a yardstick that keeps no data may go without.
    pub verify: bool,
    pub seed: u64,
    /// Set from outside (Ctrl-C): the row under way ends with an error, and what was made is removed.
    pub stop: Arc<AtomicBool>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            workers: 4,
            total_bytes: 1 << 30,
            transfer_bytes: 1 << 20,
            files_per_worker: 2000,
            random_ops: 1 << 20,
            phase_limit: Duration::from_secs(5),
            direct: false,
            verify: true,
            seed: 1,
            stop: Arc::default(),
        }
    }
}

impl Params {
    fn check(&self) -> Result<()> {
        ensure!(self.workers > 0, "at least 1 worker is needed");
        ensure!(self.files_per_worker > 0, "at least 1 file per worker is needed");
        let page = PAGE_BYTES;
        ensure!(
            self.transfer_bytes > 0 && self.transfer_bytes.is_multiple_of(page),
            "the transfer size must be a multiple of {page}"
        );
        let least = (self.workers * self.transfer_bytes) as u64;
        ensure!(
            self.total_bytes >= least,
            "the total must be at least workers x transfer size, {least} bytes"
        );
        Ok(())
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit { time: self.phase_limit, stop: self.stop.clone() }
    }

    /// Whole transfers per worker.
    pub fn transfers_per_worker(&self) -> u64 {
        self.total_bytes / self.workers as u64 / self.transfer_bytes as u64
    }
}

/// Distinguishes workspaces of one process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

pub struct Workspace {
    root: PathBuf,
    params: Params,
    pattern: Pattern,
    own: Option<Stream>,
    shared: Option<Stream>,
    empty: Option<Names>,
    small: Option<Names>,
    /// Rises with each set of files, so that no content occurs twice.
    version: u64,
}

impl Workspace {
    pub fn new(dir: &Path, params: &Params) -> Result<Workspace> {
        params.check()?;
        check_space(dir, params)?;
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let root = dir.join(format!("stria-bench.{}.{number}", std::process::id()));
        fs::create_dir(&root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Workspace {
            root,
            params: params.clone(),
            pattern: Pattern::new(params.seed, params.transfer_bytes, params.verify),
            own: None,
            shared: None,
            empty: None,
            small: None,
            version: 0,
        })
    }

    /// Where the files are: tests spoil them there.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Measures one row.
    pub fn run(&mut self, kind: Kind) -> Result<Sample> {
        let (done, seconds, cache) =
            self.measure(kind).with_context(|| format!("{} in {}", kind.title(), self.root.display()))?;
        ensure!(!self.params.stop.load(Ordering::Relaxed), "stopped by a signal; its files are removed");
        Ok(Sample::new(kind, &done, seconds, cache))
    }

    fn measure(&mut self, kind: Kind) -> Result<Measured> {
        match kind {
            Kind::NnWrite => self.write_stream(Layout::Own),
            Kind::SharedWrite => self.write_stream(Layout::Shared),
            Kind::NnRead => self.with_stream(Layout::Own, files::read),
            Kind::SharedRead => self.with_stream(Layout::Shared, files::read),
            Kind::RandomRead => self.with_stream(Layout::Own, files::read_random),
            Kind::ReadLatency => self.with_stream(Layout::Own, files::read_one_at_a_time),
            Kind::RandomWrite => {
                let result = self.with_stream(Layout::Own, files::write_random);
                // These files now hold two versions: the next reader wants fresh ones.
                self.remove_stream(Layout::Own)?;
                result
            }
            Kind::Fsync => {
                self.version += 1;
                sync::measure(&self.root, &self.params, &self.pattern, self.version)
            }
            Kind::EmptyCreate => self.create_names(0),
            Kind::SmallCreate => self.create_names(PAGE_BYTES),
            Kind::EmptyStat => self.with_names(0, names::stat),
            Kind::SmallStat => self.with_names(PAGE_BYTES, names::stat),
            Kind::EmptyRead => self.with_names(0, names::read),
            Kind::SmallRead => self.with_names(PAGE_BYTES, names::read),
            Kind::EmptyRemove => self.remove_names(0),
            Kind::SmallRemove => self.remove_names(PAGE_BYTES),
        }
    }

    fn stream(&mut self, layout: Layout) -> &mut Option<Stream> {
        match layout {
            Layout::Own => &mut self.own,
            Layout::Shared => &mut self.shared,
        }
    }

    fn write_stream(&mut self, layout: Layout) -> Result<Measured> {
        self.remove_stream(layout)?;
        self.version += 1;
        let (stream, done, seconds) =
            files::write(&self.root, layout, &self.params, &self.pattern, self.version)?;
        *self.stream(layout) = Some(stream);
        Ok((done, seconds, CacheState::Fresh))
    }

    fn with_stream(
        &mut self,
        layout: Layout,
        phase: fn(&Stream, &Params, &Pattern) -> Result<Measured>,
    ) -> Result<Measured> {
        if self.stream(layout).is_none() {
            self.write_stream(layout)?;
        }
        let stream = match layout {
            Layout::Own => &self.own,
            Layout::Shared => &self.shared,
        };
        phase(stream.as_ref().expect("it was written above"), &self.params, &self.pattern)
    }

    fn remove_stream(&mut self, layout: Layout) -> Result<()> {
        match self.stream(layout).take() {
            Some(stream) => stream.remove(),
            None => Ok(()),
        }
    }

    fn names(&mut self, file_bytes: usize) -> &mut Option<Names> {
        if file_bytes == 0 { &mut self.empty } else { &mut self.small }
    }

    fn create_names(&mut self, file_bytes: usize) -> Result<Measured> {
        if let Some(old) = self.names(file_bytes).take() {
            old.clear()?;
        }
        self.version += 1;
        let (names, done, seconds) =
            names::create(&self.root, file_bytes, &self.params, &self.pattern, self.version)?;
        *self.names(file_bytes) = Some(names);
        Ok((done, seconds, CacheState::Fresh))
    }

    fn with_names(
        &mut self,
        file_bytes: usize,
        phase: fn(&Names, &Params, &Pattern) -> Result<Measured>,
    ) -> Result<Measured> {
        if self.names(file_bytes).is_none() {
            self.create_names(file_bytes)?;
        }
        let names = if file_bytes == 0 { &self.empty } else { &self.small };
        phase(names.as_ref().expect("they were made above"), &self.params, &self.pattern)
    }

    fn remove_names(&mut self, file_bytes: usize) -> Result<Measured> {
        if self.names(file_bytes).is_none() {
            self.create_names(file_bytes)?;
        }
        let names = self.names(file_bytes).take().expect("they were made above");
        let (done, seconds) = names::remove(names, &self.params)?;
        Ok((done, seconds, CacheState::Fresh))
    }

    /// Removes everything and says if that failed, which dropping cannot.
    pub fn close(mut self) -> Result<()> {
        let root = std::mem::take(&mut self.root);
        fs::remove_dir_all(&root)
            .with_context(|| format!("cannot remove {}; remove it by hand", root.display()))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.root.as_os_str().is_empty() {
            // After a failure, which is what the caller hears about; a remainder is visible under our name.
            fs::remove_dir_all(&self.root).ok();
        }
    }
}

/// Own and shared files stand at the same time; a quarter on top for what the file system adds.
fn check_space(dir: &Path, params: &Params) -> Result<()> {
    let stat = rustix::fs::statvfs(dir).with_context(|| format!("cannot look at {}", dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let small = (params.workers as u64)
        .saturating_mul(params.files_per_worker as u64)
        .saturating_mul(PAGE_BYTES as u64);
    let bytes = params.total_bytes.saturating_mul(2).saturating_add(small).saturating_add(sync::FILE_BYTES);
    let need = bytes.saturating_add(bytes / 4);
    let mib = |bytes: u64| bytes >> 20;
    ensure!(
        free >= need,
        "{} has {} MiB free and {} MiB are needed; choose smaller sizes",
        dir.display(),
        mib(free),
        mib(need)
    );
    Ok(())
}
