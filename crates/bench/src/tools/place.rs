//! The place of each worker of a job, by `Data`'s rules, and the preparation before a program begins.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::job::{Data, DataOp, Files, Job, Work};

/// One worker's blocks: the first begins at `offset`, the next ones after `skip` bytes that belong to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub path: PathBuf,
    pub offset: u64,
    pub skip: u64,
    /// Byte behind the last block.
    pub end: u64,
}

pub fn place(data: &Data, workers: u32, worker: u32) -> Place {
    let owner = (u64::from(worker) + u64::from(data.shift)) % u64::from(workers.max(1));
    let (path, index, sharers) = match &data.files {
        Files::Own { stem } => (own_path(stem, owner), 0, 1),
        Files::Shared { path } => (path.clone(), owner, u64::from(workers)),
        Files::Given { paths } => {
            let (files, path) = (paths.len() as u64, owner % paths.len() as u64);
            (paths[path as usize].clone(), owner / files, (u64::from(workers) - path).div_ceil(files))
        }
    };
    let (offset, skip) = (index * data.block_bytes, (sharers - 1) * data.block_bytes);
    let end = offset + data.segments * data.block_bytes + data.segments.saturating_sub(1) * skip;
    Place { path, offset, skip, end }
}

/// `STEM.W`, as our own workers name it.
pub fn own_path(stem: &Path, worker: u64) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(format!(".{worker}"));
    name.into()
}

/// Removes files that the job creates. Checks that all others exist and are long enough, since programs would lay them out (and
/// iozone would wait for ever). Drops their cached pages if the job asks for it.
pub fn prepare(job: &Job) -> Result<()> {
    let Work::Data(data) = &job.work else { return Ok(()) };
    if let Files::Given { paths } = &data.files {
        ensure!(!paths.is_empty(), "no file is given");
    }
    for worker in 0..job.workers {
        let place = place(data, job.workers, worker);
        // ior names files of its own otherwise, and looks itself.
        if data.create {
            match std::fs::remove_file(&place.path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("removing {}", place.path.display()));
                }
                _ => {}
            }
        } else if data.op != DataOp::Write
            && job.forget_pages
            && let Ok(file) = File::open(&place.path)
        {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).ok();
        }
    }
    Ok(())
}

/// Is all that the job works on there?
pub fn check_length(job: &Job, data: &Data) -> Result<()> {
    if data.create {
        return Ok(());
    }
    for worker in 0..job.workers {
        let place = place(data, job.workers, worker);
        let there = std::fs::metadata(&place.path)
            .with_context(|| format!("{}: write it in a phase before", place.path.display()))?;
        if !there.file_type().is_block_device() && there.len() < place.end {
            bail!(
                "{} has {} bytes and the job needs {}: write it in a phase before",
                place.path.display(),
                there.len(),
                place.end
            );
        }
    }
    Ok(())
}
