//! Files that are replaced by rename, as `sed -i`, `mv` and careful programs do, while others read them: at every moment the name
//! is there and leads to one whole version.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("programs::replaced_by_rename_is_never_missing_nor_half", replaced)),
    (Needs::Shared, ("programs::vim", vim)),
];

/// Lines of one version: each has its number. Four in a row are of one length.
fn version(n: u64) -> String {
    format!("version {n:08}\n").repeat(500 + (n / 4 * 37 % 5000) as usize)
}

/// Reads until told to stop; every read must give one whole version.
fn read_along(path: &Path, stop: &AtomicBool, reads: &AtomicU64) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let text = fs::read_to_string(path)
            .with_context(|| format!("{}: it is replaced, never gone", path.display()))?;
        let first = text.lines().next().unwrap_or_default();
        let n: u64 = first
            .strip_prefix("version ")
            .and_then(|n| n.parse().ok())
            .context("an empty or foreign file")?;
        ensure_same(text.as_bytes(), version(n).as_bytes(), "one whole version")?;
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn replaced(b: &mut Bench) -> Result<()> {
    let dir = b.dir("replaced")?;
    let path = dir.join("file");
    fs::write(&path, version(0))?;
    let rounds = b.scale.transactions / 10;
    let (stop, reads, others) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seen_elsewhere = b.look(&path);
    thread::scope(|scope| {
        let here = scope.spawn(|| read_along(&path, &stop, &reads));
        let there = scope.spawn(|| read_along(&seen_elsewhere, &stop, &others));
        let written = (1..=rounds).try_for_each(|n| replace_once(&dir, n));
        // Both have read, so that an empty run shows nothing as a success.
        while written.is_ok() && (reads.load(Ordering::Relaxed) == 0 || others.load(Ordering::Relaxed) == 0) {
            if here.is_finished() || there.is_finished() {
                break;
            }
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        written?;
        for reader in [here, there] {
            reader.join().map_err(|_| anyhow::anyhow!("reader panicked"))??;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    Ok(fs::remove_dir_all(dir)?)
}

/// The ways of replacing a file that users know, in turn.
fn replace_once(dir: &Path, n: u64) -> Result<()> {
    let text = version(n);
    match n % 4 {
        // sed cannot lengthen it: it changes the number in each line.
        3 => run("sed", &["-i", &format!("s/{:08}/{n:08}/", n - 1), "file"], dir).map(drop),
        1 => {
            fs::write(dir.join("next"), text)?;
            run("mv", &["-f", "next", "file"], dir).map(drop)
        }
        2 => {
            fs::write(dir.join("next"), text)?;
            Ok(fs::rename(dir.join("next"), dir.join("file"))?)
        }
        _ => {
            let file = fs::File::create(dir.join("next"))?;
            io::Write::write_all(&mut &file, text.as_bytes())?;
            file.sync_all()?;
            fs::rename(dir.join("next"), dir.join("file"))?;
            Ok(fs::File::open(dir)?.sync_all()?)
        }
    }
}

/// vim's three ways to save, with its swap file; a reader on the other mount gets the saved content.
fn vim(b: &mut Bench) -> Result<()> {
    let dir = b.dir("vim")?;
    for way in ["yes", "no", "auto"] {
        let name = format!("text-{way}");
        fs::write(dir.join(&name), "one\ntwo\nthree\n".repeat(2_000))?;
        for n in 0..3 {
            let set = format!("set backupcopy={way} writebackup swapfile directory=. fsync");
            let edit = format!("%s/two.*/two {n}/");
            run(
                "vim",
                &["-N", "-u", "NONE", "-es", "-c", &set, "-c", "preserve", "-c", &edit, "-c", "wq", &name],
                &dir,
            )?;
            let got = fs::read_to_string(b.look(&dir.join(&name)))?;
            ensure_same(got.as_bytes(), format!("one\ntwo {n}\nthree\n").repeat(2_000).as_bytes(), way)?;
        }
    }
    let mut left: Vec<_> =
        fs::read_dir(&dir)?.map(|e| e.map(|e| e.file_name())).collect::<io::Result<_>>()?;
    left.sort();
    if left != ["text-auto", "text-no", "text-yes"] {
        bail!("vim leaves {left:?}");
    }
    Ok(fs::remove_dir_all(dir)?)
}
