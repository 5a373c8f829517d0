//! A file system fills up: free space of every OST is used, and acknowledged data is there.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use testkit::{Rng, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Local), ("full::files_use_the_room_of_all_osts", room_of_all))];

const MIB: usize = 1 << 20;
/// An OST that has less than 2 MiB is not moved on to, and a write of 1 MiB is refused whole.
const SLACK: u64 = 2 * 4 * MIB as u64;

/// Part `n` of file `of`.
fn part(seed: u64, of: u64, n: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed ^ (of << 32) ^ n).fill(&mut bytes);
    bytes
}

/// Writes parts until there is no room; returns how many are there.
fn write_parts(seed: u64, of: u64, file: &mut File, len: usize) -> Result<u64> {
    for n in 0.. {
        match file.write_all(&part(seed, of, n, len)) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => return Ok(n),
            Err(e) => return Err(e).context(format!("part {n} of file {of}")),
        }
    }
    unreachable!("it fills up")
}

fn check_parts(seed: u64, of: u64, path: &Path, len: usize, count: u64) -> Result<()> {
    let (file, mut found) = (File::open(path)?, vec![0; len]);
    for n in 0..count {
        file.read_exact_at(&mut found, n * len as u64)?;
        if found != part(seed, of, n, len) {
            bail!("{}: part {n} is not what was written", path.display());
        }
    }
    Ok(())
}

/// [S-no-space] [S-striping] `ENOSPC` comes when all OSTs are full, whatever the size of writes and however many files grow.
fn room_of_all(b: &mut Bench) -> Result<()> {
    let (dir, mnt) = (b.cluster.dir.join("full"), b.cluster.dir.join("full-mnt"));
    let (dir_text, mnt_text) = (dir.display().to_string(), mnt.display().to_string());
    let up = ["up", "--dir", &dir_text, "--osts", "2", "--ost-size", "256M", "--mount", &mnt_text];
    let (code, out) = b.cluster.stria(&up)?;
    ensure_eq(code, 0, &out)?;
    let seed = b.seed;
    let available = || -> Result<u64> {
        let s = rustix::fs::statvfs(&mnt)?;
        Ok(s.f_bavail * s.f_frsize)
    };
    let full = || wait_until("all OSTs are full", || Ok(available()? < SLACK));
    let all = available()?;
    // 1. One file, by large writes: its first 64 MiB are on one OST.
    let path = mnt.join("one");
    let mut one = File::create_new(&path)?;
    let count = write_parts(seed, 0, &mut one, MIB)?;
    one.sync_all()?;
    if count * (MIB as u64) < all - SLACK {
        bail!("{count} MiB of {} were written", all >> 20);
    }
    full()?;
    check_parts(seed, 0, &path, MIB, count)?;
    drop(one);
    fs::remove_file(&path)?;
    wait_until("its space is back", || Ok(available()? >= all - SLACK))?;
    // 2. Three, in turns, by writes that are no pages, until none of them finds room.
    let names = ["a", "b", "c"].map(|name| mnt.join(name));
    let mut files = names.iter().map(File::create_new).collect::<Result<Vec<_>, _>>()?;
    let (len, mut counts, mut open) = (100_001, [0u64; 3], vec![0, 1, 2]);
    while !open.is_empty() {
        let mut left = vec![];
        for of in open {
            match files[of].write_all(&part(seed, 1 + of as u64, counts[of], len)) {
                Ok(()) => {
                    counts[of] += 1;
                    left.push(of);
                }
                Err(e) if e.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {}
                Err(e) => return Err(e).context(format!("file {of}")),
            }
        }
        open = left;
    }
    full()?;
    files.iter().try_for_each(File::sync_all)?;
    drop(files);
    // 3. All of it is there, also after a restart; and nothing else is.
    let check = || (0..3).try_for_each(|of| check_parts(seed, 1 + of as u64, &names[of], len, counts[of]));
    check()?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &dir_text])?;
    ensure_eq(code, 0, &out)?;
    let (code, out) = b.cluster.stria(&up)?;
    ensure_eq(code, 0, &out)?;
    check()?;
    let (code, out) = b.cluster.stria(&["fsck", "--dir", &dir_text])?;
    ensure_eq(code, 0, &format!("fsck: {out}"))?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &dir_text, "--purge"])?;
    ensure_eq(code, 0, &out)
}
