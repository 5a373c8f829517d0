//! The state that the phases of a point have produced so far: files with their lengths and versions, trees with their items.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::finding::Trouble;
use super::PlannedPart;
use crate::job::{Data, DataOp, Files, Job, Names, NamesOp, Work};

#[derive(Clone, Debug, Default)]
pub struct State {
    /// An earlier phase could not be expanded, so missing files may be its output.
    pub is_incomplete: bool,
    version: u64,
    files: BTreeMap<PathBuf, Written>,
    trees: BTreeMap<PathBuf, Tree>,
}

/// Files that were written.
#[derive(Clone, Debug, Default)]
struct Written {
    count: u64,
    /// Of each. Of a device: as far as it was written for certain.
    bytes: u64,
    /// Versions that a file may have, each with its first byte. A version that was certainly overwritten is an error.
    versions: Vec<(u64, u64)>,
    /// The phase that created them may have been stopped early.
    is_cut: bool,
}

#[derive(Clone, Debug)]
pub struct Tree {
    /// Of the last create.
    pub version: u64,
    workers: u32,
    shape: (u32, u32, bool, bool),
    files: Option<Made>,
    dirs: Option<Made>,
    is_gone: bool,
    had_items: bool,
}

/// Items of each worker.
#[derive(Clone, Copy, Debug)]
struct Made {
    workers: u32,
    items_per_dir: u64,
    bytes: u64,
}

impl Tree {
    /// Does it stand without items, after it had some?
    pub fn was_emptied(&self) -> bool {
        self.had_items && self.files.is_none() && self.dirs.is_none() && !self.is_gone
    }
}

impl State {
    /// A version that no phase of this point wrote yet.
    pub fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Versions that the first `bytes` of these files may say.
    pub fn versions(&self, files: &Files, bytes: u64) -> Vec<u64> {
        let written = self.files.get(&key(files)).into_iter().flat_map(|written| &written.versions);
        written.filter(|(_, from)| *from < bytes).map(|(version, _)| *version).collect()
    }

    pub fn is_written(&self, files: &Files) -> bool {
        self.files.contains_key(&key(files))
    }

    /// The longest block with which `workers` workers stay inside the written range; `None` if nothing was written.
    pub fn block_most(&self, files: &Files, segments: u64, workers: u32) -> Option<u64> {
        let written = self.files.get(&key(files))?;
        Some(written.bytes / segments.saturating_mul(blocks_in_file(files, workers)).max(1))
    }

    /// A tree that stands.
    pub fn tree(&self, root: &Path) -> Option<&Tree> {
        self.trees.get(root).filter(|tree| !tree.is_gone)
    }

    /// Is all there that the job takes for granted? `others` are done at the same time.
    pub fn check<'a>(&self, job: &Job, mut others: impl Iterator<Item = &'a Job>) -> Result<(), Trouble> {
        match &job.work {
            Work::Data(data) => {
                let clashes = |other: &Job| match &other.work {
                    Work::Data(other) => other.create && key(&other.files) == key(&data.files),
                    Work::Names(_) => false,
                };
                if others.any(clashes) {
                    let what = "two parts that run at once use one file, and one of them empties it";
                    return Err(Trouble::new(what, "give them different names").at("data.name"));
                }
                if data.create || self.is_incomplete {
                    return Ok(());
                }
                self.check_reach(data, job.workers)
            }
            Work::Names(_) if self.is_incomplete => Ok(()),
            Work::Names(names) => self.check_names(names, job.workers),
        }
    }

    fn check_reach(&self, data: &Data, workers: u32) -> Result<(), Trouble> {
        // The first write of a device fills it; its size is known only at run time.
        if data.op == DataOp::Write && is_given(&data.files) {
            return Ok(());
        }
        let Some(written) = self.files.get(&key(&data.files)) else {
            let what = "it uses files that no phase of this step wrote";
            return Err(
                Trouble::new(what, "write them in a phase before, under the same name").at("data.name")
            );
        };
        if written.is_cut && matches!(data.files, Files::Given { .. }) {
            let what = "the files were made by a write that may have been stopped before their end";
            return Err(
                Trouble::new(what, "leave out the seconds and ops of the first write").at("data.files")
            );
        }
        let (count, bytes) = reach(data, workers);
        if bytes > written.bytes && is_given(&data.files) {
            let what = format!("it reaches to byte {bytes} and {} are written for certain", written.bytes);
            let next = "write all of it before, in order and without seconds or ops";
            return Err(Trouble::new(what, next).at("data.block"));
        }
        if count > written.count {
            let what = format!("it uses {count} files and {} were written", written.count);
            return Err(Trouble::new(what, "give both phases as many workers").at("workers"));
        }
        if bytes > written.bytes {
            let what = format!("it reaches to byte {bytes} of a file and {} were written", written.bytes);
            let next = "give both phases the same block or total, and the same workers";
            return Err(Trouble::new(what, next).at("data.block"));
        }
        Ok(())
    }

    fn check_names(&self, names: &Names, workers: u32) -> Result<(), Trouble> {
        let refuse = |what: &str, next: &str| Err(Trouble::new(what, next).at("names.op"));
        let tree = self.tree(&names.root);
        if names.op == NamesOp::MakeTree {
            return match tree {
                None => Ok(()),
                Some(_) => refuse("the tree stands already", "give it another name, or remove it before"),
            };
        }
        let Some(tree) = tree else {
            return refuse("no phase of this step made what it uses", "create it in a phase before");
        };
        if !names.shared && workers > tree.workers {
            return refuse("it has more workers than there are trees", "make trees for as many workers");
        }
        if tree.shape != shape(names) {
            return refuse(
                "its tree was made in another shape",
                "give both the same branch, depth and sharing",
            );
        }
        let made = match names.op {
            NamesOp::Create if tree.files.is_some() => {
                return refuse("the files are there already", "give another name, or remove them before");
            }
            NamesOp::MakeDir if tree.dirs.is_some() => {
                return refuse(
                    "the directories are there already",
                    "give another name, or remove them before",
                );
            }
            NamesOp::RemoveTree if tree.files.is_some() || tree.dirs.is_some() => {
                return refuse("there are items in the tree", "remove them in a phase before");
            }
            NamesOp::Stat | NamesOp::Read | NamesOp::Remove => tree.files,
            NamesOp::StatDir | NamesOp::RemoveDir => tree.dirs,
            _ => return Ok(()),
        };
        let Some(made) = made else {
            return refuse("no phase of this step made what it uses", "create it in a phase before");
        };
        if names.items_per_dir > made.items_per_dir || workers > made.workers {
            let next = "give both the same workers and items-per-dir";
            return refuse("it uses more items than were made", next);
        }
        if names.op == NamesOp::Read && names.read_bytes > made.bytes {
            let what = format!("it reads {} bytes and {} were written", names.read_bytes, made.bytes);
            return Err(Trouble::new(what, "give `write` as much, or read less").at("names.read"));
        }
        Ok(())
    }

    /// The jobs of one phase are done, all at once.
    pub fn note(&mut self, jobs: &[&Job]) {
        // First drop the versions that each job overwrote: of concurrent writers, any may have been the last.
        for job in jobs {
            self.forget_overwritten(job);
        }
        for job in jobs {
            match &job.work {
                Work::Data(data) if data.op != DataOp::Read => self.note_data(data, job),
                Work::Data(_) => {}
                Work::Names(names) => self.note_names(names, job.workers),
            }
        }
    }

    fn forget_overwritten(&mut self, job: &Job) {
        let Work::Data(data) = &job.work else { return };
        let Some(written) = self.files.get_mut(&key(&data.files)) else { return };
        let (count, bytes) = reach(data, job.workers);
        // In a cut file the overwriting job does whole transfers only, so a rest keeps its old version.
        if count < written.count || written.is_cut || !covers(data, job) {
            return;
        }
        for (_, from) in &mut written.versions {
            *from = bytes.max(*from);
        }
        let end = written.bytes;
        written.versions.retain(|(_, from)| *from < end);
    }

    fn note_data(&mut self, data: &Data, job: &Job) {
        let (count, bytes) = reach(data, job.workers);
        let key = key(&data.files);
        if data.create {
            self.files.remove(&key);
        }
        let written = self.files.entry(key).or_default();
        // For our own files, the run knows where a limit stopped the phase. The old content of a device is unknown.
        if data.create || covers(data, job) || !is_given(&data.files) {
            // Phases with fewer workers do not make the files of the others shorter.
            written.count = written.count.max(count);
            written.bytes = written.bytes.max(bytes);
        }
        written.is_cut |= data.create && !covers(data, job);
        written.versions.push((data.version, 0));
    }

    fn note_names(&mut self, names: &Names, workers: u32) {
        if names.op == NamesOp::MakeTree {
            let tree = Tree {
                version: 0,
                workers,
                shape: shape(names),
                files: None,
                dirs: None,
                is_gone: false,
                had_items: false,
            };
            self.trees.insert(names.root.clone(), tree);
        }
        let Some(tree) = self.trees.get_mut(&names.root) else { return };
        let made = Made { workers, items_per_dir: names.items_per_dir, bytes: names.write_bytes };
        match names.op {
            NamesOp::Create => (tree.files, tree.version) = (Some(made), names.version),
            NamesOp::MakeDir => tree.dirs = Some(made),
            NamesOp::Remove => tree.files = None,
            NamesOp::RemoveDir => tree.dirs = None,
            NamesOp::RemoveTree => tree.is_gone = true,
            NamesOp::MakeTree | NamesOp::Stat | NamesOp::Read | NamesOp::StatDir | NamesOp::Ask => {}
        }
        tree.had_items |= matches!(names.op, NamesOp::Create | NamesOp::MakeDir);
    }
}

/// A read that runs beside overwriting jobs also accepts their versions.
pub fn accept_parallel(job: &mut Job, parts: &[PlannedPart]) {
    let Work::Data(data) = &mut job.work else { return };
    for part in parts {
        if let Work::Data(other) = &part.job.work
            && other.op != DataOp::Read
            && other.version != data.version
            && key(&other.files) == key(&data.files)
        {
            data.accept.push(other.version);
        }
    }
}

/// Phases meet in the same files by it: those of a worker each, and of given ones in place of devices, are the same.
fn key(files: &Files) -> PathBuf {
    match files {
        Files::Own { stem } => PathBuf::from(format!("{}.0", stem.display())),
        Files::Shared { path } => path.clone(),
        Files::Given { paths } => paths.first().cloned().unwrap_or_default(),
    }
}

/// Is each byte up to `reach` written for certain, whatever the time it takes?
fn covers(data: &Data, job: &Job) -> bool {
    let transfers = data.block_bytes.saturating_mul(data.segments) / data.transfer_bytes.max(1);
    let is_even = match &data.files {
        // Of workers that files do not divide some file has fewer.
        Files::Given { paths } => u64::from(job.workers).is_multiple_of(paths.len().max(1) as u64),
        Files::Own { .. } | Files::Shared { .. } => true,
    };
    data.op == DataOp::Write
        && is_even
        && job.limit.seconds.is_none()
        && data.ops_max.is_none_or(|most| most >= transfers)
}

/// Does a job use files that were given?
pub fn is_outside(job: &Job) -> bool {
    matches!(&job.work, Work::Data(data) if is_given(&data.files))
}

fn is_given(files: &Files) -> bool {
    matches!(files, Files::Given { paths } if paths.iter().any(|path| path.is_absolute()))
}

/// How many files a work uses, and how far it reaches into each: always from the begin on.
pub fn reach(data: &Data, workers: u32) -> (u64, u64) {
    let bytes = data.block_bytes.saturating_mul(data.segments);
    let count = match &data.files {
        Files::Own { .. } => u64::from(workers),
        Files::Shared { .. } => 1,
        Files::Given { paths } => (paths.len() as u64).min(u64::from(workers)),
    };
    (count, bytes.saturating_mul(blocks_in_file(&data.files, workers)))
}

/// Workers that share a file.
fn blocks_in_file(files: &Files, workers: u32) -> u64 {
    match files {
        Files::Own { .. } => 1,
        Files::Shared { .. } => u64::from(workers),
        Files::Given { paths } => u64::from(workers).div_ceil(paths.len().max(1) as u64),
    }
}

fn shape(names: &Names) -> (u32, u32, bool, bool) {
    (names.branch, names.depth, names.leaves_only, names.shared)
}
