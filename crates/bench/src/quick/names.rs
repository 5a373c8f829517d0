//! Many small files, as mdtest does it: each worker makes, stats, reads and removes files in a directory of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::workers::{self, Done};
use super::workspace::{Measured, Params};
use crate::cache::{self, CacheState};
use crate::pattern::{Mark, Pattern};

/// Files that were made: those of each worker, in its directory.
pub struct Names {
    dirs: Vec<PathBuf>,
    files: Vec<Vec<PathBuf>>,
    file_bytes: usize,
    version: u64,
}

impl Names {
    /// Removes all, unmeasured.
    pub fn clear(self) -> Result<()> {
        self.dirs.iter().try_for_each(|dir| {
            fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
        })
    }

    /// A file's number over all workers, as its content says it.
    fn mark(&self, worker: usize, index: usize) -> Mark {
        Mark { file: (worker as u64) << 32 | index as u64, version: self.version }
    }

    fn cool(&self) -> CacheState {
        cache::cool(self.files.iter().flatten().map(PathBuf::as_path))
    }
}

pub fn create(
    root: &Path,
    file_bytes: usize,
    params: &Params,
    pattern: &Pattern,
    version: u64,
) -> Result<(Names, Done, f64)> {
    let dirs: Vec<PathBuf> = (0..params.workers).map(|w| root.join(format!("names.{version}.{w}"))).collect();
    let files =
        dirs.iter().map(|dir| (0..params.files_per_worker).map(|i| dir.join(format!("file.{i}"))).collect());
    let mut names = Names { files: files.collect(), dirs, file_bytes, version };
    for dir in &names.dirs {
        fs::create_dir(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    cache::settle();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let mut done = Done::default();
        let mut content = vec![0; file_bytes];
        for (index, path) in names.files[worker].iter().enumerate() {
            if index > 0 && clock.is_over() {
                break;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            if file_bytes > 0 {
                pattern.fill(names.mark(worker, index), 0, &mut content);
                file.write_all(&content)?;
            }
            drop(file);
            done.count(file_bytes);
        }
        Ok(done)
    })?;
    // What a directory lists must be what was made in it, no more and no less.
    let mut listed = 0;
    for (dir, files) in names.dirs.iter().zip(&mut names.files) {
        let made = fs::read_dir(dir)?.collect::<std::io::Result<Vec<_>>>()?.len();
        files.truncate(made);
        listed += made as u64;
    }
    ensure!(listed == done.ops, "{} files were made and {listed} are listed", done.ops);
    Ok((names, done, seconds))
}

/// Stats what another worker made, cold.
pub fn stat(names: &Names, params: &Params, _: &Pattern) -> Result<Measured> {
    let cache = names.cool();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let mut done = Done::default();
        for path in &names.files[(worker + 1) % params.workers] {
            if clock.is_over() {
                break;
            }
            // stat(2), as mdtest and most programs ask: statx(2) with the birth time, as Rust asks, is a request more on FUSE.
            let len = rustix::fs::lstat(path)?.st_size as u64;
            ensure!(
                len == names.file_bytes as u64,
                "{} has {len} bytes, not {}",
                path.display(),
                names.file_bytes
            );
            done.count(0);
            done.checked.sizes += 1;
        }
        Ok(done)
    })?;
    Ok((done, seconds, cache))
}

/// Opens, reads and closes what another worker made, cold. Every file's content is checked.
pub fn read(names: &Names, params: &Params, pattern: &Pattern) -> Result<Measured> {
    let cache = names.cool();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let whose = (worker + 1) % params.workers;
        // One byte more than there should be, so that a file that is too long shows.
        let mut content = vec![0; names.file_bytes + 1];
        let mut done = Done::default();
        for (index, path) in names.files[whose].iter().enumerate() {
            if clock.is_over() {
                break;
            }
            let len = File::open(path)?.read(&mut content)?;
            ensure!(len == names.file_bytes, "{} gave {len} bytes, not {}", path.display(), names.file_bytes);
            let checked = pattern.check(names.mark(whose, index), 0, &content[..len], 0);
            done.checked += checked.with_context(|| path.display().to_string())?;
            done.checked.sizes += 1;
            done.count(len);
        }
        Ok(done)
    })?;
    Ok((done, seconds, cache))
}

pub fn remove(names: Names, params: &Params) -> Result<(Done, f64)> {
    cache::settle();
    let (done, seconds) = workers::run(params.workers, &params.limit(), |worker, clock| {
        let mut done = Done::default();
        for path in &names.files[worker] {
            if clock.is_over() {
                break;
            }
            fs::remove_file(path)?;
            done.count(0);
        }
        Ok(done)
    })?;
    let made: u64 = names.files.iter().map(|files| files.len() as u64).sum();
    let mut left = 0;
    for dir in &names.dirs {
        left += fs::read_dir(dir)?.count() as u64;
    }
    ensure!(left == made - done.ops, "{} of {made} files were removed and {left} are listed", done.ops);
    names.clear()?;
    Ok((done, seconds))
}
