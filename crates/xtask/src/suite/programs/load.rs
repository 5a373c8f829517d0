//! Load generators that check their results: dbench, fs_mark, stress-ng.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("programs::dbench", dbench)),
    (Needs::Shared, ("programs::fs_mark", fs_mark)),
    (Needs::Shared, ("programs::stress_ng", stress_ng)),
];

fn dbench(b: &mut Bench) -> Result<()> {
    let dir = b.dir("dbench")?;
    let seconds = b.scale.load_seconds.to_string();
    let text = run("dbench", &["-D", ".", "-t", &seconds, "-x", "3"], &dir)?;
    // The semaphore is for the start of all clients in one moment only.
    let failed = |l: &&str| l.contains("failed") && !l.contains("barrier semaphore");
    if !text.contains("Throughput") || text.lines().any(|l| failed(&l)) {
        bail!("dbench: {text}");
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// Small files from several processes over several directories, each synchronised before it is closed. A directory for each
/// process: `fs_mark` takes its random names from the microsecond it starts at, and two processes of one start can meet in it
/// (seen once in 40 runs: 250 names twice, in one directory).
fn fs_mark(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fsmark")?;
    let count = (b.scale.tree_files / 20).to_string();
    for (sync, size) in [("1", "3000"), ("5", "100000"), ("0", "70000")] {
        let log = b.cluster.dir.join("fs_mark.log").display().to_string();
        fs::create_dir(dir.join("d"))?;
        run(
            "fs_mark",
            &[
                "-d", "d/a", "-d", "d/b", "-d", "d/c", "-D", "8", "-n", &count, "-s", size, "-S", sync, "-L",
                "2", "-k", "-l", &log,
            ],
            &dir,
        )?;
        let files = count_files(&dir.join("d"))?;
        ensure_eq(files, 2 * 3 * (b.scale.tree_files / 20), "files that fs_mark kept")?;
        fs::remove_dir_all(dir.join("d"))?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

fn count_files(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// Of `stress-ng --class filesystem` and a few others: what works on files of the working directory. Not here, with the reason:
/// bind-mount, binderfs, procfs, eventfd, seal: other file systems. fanotify, dnotify, lease: the kernel's own, per node.
/// fiemap, file-ioctl, verity: calls of block file systems. ioprio: a block device's scheduler. inode-flags: does nothing on
/// ext4. xattr: a round sets 4,096 attributes of one file, of which ext4 refuses all but 104, and takes half a minute here.
const STRESSORS: &[&str] = &[
    "access",
    "aio",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dup",
    "fallocate",
    "fcntl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inotify",
    "io",
    "iomix",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "mmap",
    "msync",
    "open",
    "readahead",
    "rename",
    "revio",
    "seek",
    "sendfile",
    "splice",
    "symlink",
    "sync-file",
    "touch",
    "utime",
];

/// Files of the stressors are small: the kind of operation matters, not the amount.
const SMALL: &[&str] = &[
    "--copy-file-bytes=128m",
    "--fallocate-bytes=16m",
    "--hdd-bytes=8m",
    "--iomix-bytes=16m",
    "--mmap-bytes=16m",
    "--msync-bytes=16m",
    "--readahead-bytes=16m",
    "--revio-bytes=16m",
    "--seek-size=16m",
    "--sync-file-bytes=16m",
];

fn stress_ng(b: &mut Bench) -> Result<()> {
    let dir = b.dir("stress")?;
    let seconds = b.scale.load_seconds.div_ceil(5);
    // One after another each has the whole second; the short form runs several at once.
    let at_once = if b.scale.is_short() { 4 } else { 1 };
    let (mut failed, below) = (Vec::new(), &dir);
    for some in STRESSORS.chunks(at_once) {
        std::thread::scope(|scope| {
            let runs: Vec<_> =
                some.iter().map(|s| scope.spawn(move || stress(&below.join(s), s, seconds))).collect();
            for (stressor, run) in some.iter().zip(runs) {
                let outcome = run.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")));
                // Beside others on a busy machine a second may be too short for one operation.
                let outcome = match outcome {
                    Err(e) if at_once > 1 && format!("{e:#}").contains(DID_NOTHING) => {
                        stress(&below.join(format!("{stressor}-again")), stressor, 5)
                    }
                    outcome => outcome,
                };
                failed.extend(outcome.err().map(|e| format!("{e:#}")));
            }
        });
    }
    if !failed.is_empty() {
        bail!("{} of {} stressors: {}", failed.len(), STRESSORS.len(), failed.join("\n"));
    }
    // The stressor chattr leaves an immutable file if it ends between setting the flag and taking it back.
    _ = Command::new("chattr").args(["-R", "-f", "-ia"]).arg(&dir).output()?;
    Ok(fs::remove_dir_all(dir)?)
}

const DID_NOTHING: &str = "did nothing";

/// Two instances; they verify what they do, and one that does nothing (for want of a call) has failed.
fn stress(dir: &Path, stressor: &str, seconds: u64) -> Result<()> {
    fs::create_dir(dir)?;
    let seconds = format!("--timeout={seconds}");
    let which = format!("--{stressor}=2");
    let common = ["--verify", "--metrics-brief", "--no-rand-seed", "--temp-path=.", which.as_str(), &seconds];
    let text = run("stress-ng", &[&common[..], SMALL].concat(), dir)?;
    let done = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|w| *w != stressor);
        words.nth(1)?.parse::<u64>().ok()
    });
    match done {
        Some(0) | None => bail!("{stressor} {DID_NOTHING}: {text}"),
        Some(_) => Ok(()),
    }
}
