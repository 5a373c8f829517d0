//! `stria du`: sizes of directories without a walk over them: the MDT keeps counts.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgAction, Args};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};
use crate::{reach, xattr};

/// Show what directories hold in all, as `du -s` does, at once however much that is. A file with several links counts where its
/// first is; symlinks are not followed. What other mounts have written in the last second may be missing.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Example: stria du -sh /mnt/stria/*\nExample: stria du --json /mnt/stria/data"
)]
pub struct Du {
    /// Only the total of each path. It is what is always shown; the option is there for the habit.
    #[arg(short = 's', long)]
    summarize: bool,
    /// Sizes with a letter instead of 1024-byte blocks.
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Sizes as files say them, holes and all, instead of the space that they take. A directory says 4096.
    #[arg(long)]
    apparent_size: bool,
    /// As --apparent-size, in bytes.
    #[arg(short = 'b', long, conflicts_with = "human")]
    bytes: bool,
    /// How many files, directories and others there are, instead of sizes.
    #[arg(long, conflicts_with_all = ["apparent_size", "bytes"])]
    inodes: bool,
    /// All numbers as JSON, in bytes.
    #[arg(short = 'j', long)]
    json: bool,
    /// Paths on mounts; default: the directory that one is in.
    #[arg(default_value = ".")]
    paths: Vec<PathBuf>,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The mount's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    tree: Sums,
    own: Sums,
    unsettled: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct Sums {
    files: u64,
    dirs: u64,
    others: u64,
    bytes: u64,
    blocks: u64,
}

/// The numbers of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Usage {
    /// Allocated space.
    disk_bytes: u64,
    /// Sum of the sizes.
    apparent_bytes: u64,
    /// Including directories and the path itself.
    inodes: u64,
    files: u64,
    dirs: u64,
    others: u64,
    /// Files and other entries of the directory itself, and directories.
    entries: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    path: String,
    #[serde(flatten)]
    usage: Usage,
}

const BLOCK: u64 = 512;
/// The size that `stat` shows for every directory.
const DIR_BYTES: u64 = 4096;

impl Du {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (mut all, mut exit) = (Vec::new(), Exit::Done);
        for path in &self.paths {
            match usage_of(path) {
                Ok(usage) if self.json => {
                    all.push(Found { path: path.to_string_lossy().into_owned(), usage })
                }
                Ok(usage) => outln!("{}\t{}", self.shown(&usage), path.display()),
                // As in du: the other paths are still shown.
                Err(e) if self.paths.len() > 1 => {
                    eprintln!("stria: {}", crate::exit::line_of(&e));
                    exit = Exit::Findings;
                }
                Err(e) => return Err(e),
            }
        }
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&all)?);
        }
        Ok(exit)
    }

    fn shown(&self, usage: &Usage) -> String {
        let n = match () {
            () if self.inodes => usage.inodes,
            () if self.apparent_size || self.bytes => usage.apparent_bytes,
            () => usage.disk_bytes,
        };
        match self.human {
            true => human(n),
            false if self.inodes || self.bytes => n.to_string(),
            false => n.div_ceil(1024).to_string(),
        }
    }
}

fn usage_of(path: &Path) -> anyhow::Result<Usage> {
    let about = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    if !about.is_dir() {
        let place = super::absolute(path)?.parent().map(Path::to_path_buf).unwrap_or_default();
        reach::mount_of(&place)?;
        let (files, others) = if about.is_file() { (1, 0) } else { (0, 1) };
        let apparent_bytes = if about.is_file() || about.is_symlink() { about.len() } else { 0 };
        let disk_bytes = about.blocks() * BLOCK;
        return Ok(Usage { disk_bytes, apparent_bytes, inodes: 1, files, dirs: 0, others, entries: 0 });
    }
    reach::mount_of(path)?;
    let json = xattr::get(path, "stria.du").map_err(|e| match e.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NODATA.raw_os_error() => {
            let next = "it is of an older version: mount again with this one";
            Failure::unusable(path.display(), "its mount does not count directories", next).into()
        }
        _ => anyhow::Error::from(e).context(format!("ask the mount of {}", path.display())),
    })?;
    let answer: Answer = serde_json::from_slice(&json).context("read the mount's answer")?;
    if answer.unsettled > 0 {
        let (many, path) = (answer.unsettled, path.display());
        eprintln!(
            "stria: {many} files that this mount has written are not settled yet, so the sizes of {path} may be too small"
        );
    }
    Ok(Usage::of(answer))
}

impl Usage {
    fn of(answer: Answer) -> Usage {
        let Answer { tree: Sums { files, dirs, others, bytes, blocks }, own, .. } = answer;
        // The directory itself counts, too.
        let of_dirs = (dirs + 1).wrapping_mul(DIR_BYTES);
        Usage {
            disk_bytes: blocks.wrapping_mul(BLOCK).wrapping_add(of_dirs),
            apparent_bytes: bytes.wrapping_add(of_dirs),
            inodes: files + dirs + others + 1,
            files,
            dirs,
            others,
            entries: own.files + own.dirs + own.others,
        }
    }
}

/// As in du: rounded up, with one digit after the point below ten.
fn human(n: u64) -> String {
    let (mut unit, mut letter) = (1u64, "");
    for next in ["K", "M", "G", "T", "P", "E"] {
        if n.div_ceil(unit) < 1024 {
            break;
        }
        (unit, letter) = (unit << 10, next);
    }
    let tenths = (n as u128 * 10).div_ceil(unit as u128);
    match unit > 1 && tenths < 100 {
        true => format!("{}.{}{letter}", tenths / 10, tenths % 10),
        false => format!("{}{letter}", n.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_du_writes_them() {
        let table = [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (4096, "4.0K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            (9 << 20, "9.0M"),
            ((1 << 20) - 1, "1.0M"),
            (1536 << 20, "1.5G"),
            (u64::MAX, "16E"),
        ];
        for (n, text) in table {
            assert_eq!(human(n), text, "{n}");
        }
    }

    #[test]
    fn the_directories_are_counted_with_what_they_hold() {
        let tree = Sums { files: 3, dirs: 2, others: 1, bytes: 10_000, blocks: 24 };
        let own = Sums { files: 1, dirs: 2, ..Sums::default() };
        let usage = Usage::of(Answer { tree, own, unsettled: 0 });
        assert_eq!((usage.disk_bytes, usage.apparent_bytes), (24 * 512 + 3 * 4096, 10_000 + 3 * 4096));
        assert_eq!((usage.inodes, usage.entries), (7, 3));
    }
}
