//! Content against a model: random writes, reads, truncates, appends and reopenings of several files, compared byte for byte.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use testkit::Rng;

use super::sys::*;
use super::{Bench, Test, set_stripe};

pub const TESTS: &[Test] = &[("content::random_operations_match_a_model", random_operations)];

/// One file and its expected content.
struct Modelled {
    path: PathBuf,
    /// Descriptors that take turns; with two mounts, one of each.
    files: [File; 2],
    bytes: Vec<u8>,
    size_max: u64,
}

fn open(path: &PathBuf) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .context(path.display().to_string())
}

fn random_operations(b: &mut Bench) -> Result<()> {
    let dir = b.dir("content")?;
    // A file that stays inline, one around the border, one that spans stripes of 64 KiB, one progressive.
    fs::create_dir(dir.join("striped"))?;
    set_stripe(b, &["-c", "3", "-S", "64K"], &dir.join("striped"))?;
    let mut files = Vec::new();
    for (name, size_max) in
        [("inline", 30_000), ("border", 90_000), ("striped/f", 2 << 20), ("plain", 6 << 20)]
    {
        let path = dir.join(name);
        files.push(Modelled {
            files: [open(&path)?, open(&b.look(&path))?],
            path,
            bytes: Vec::new(),
            size_max,
        });
    }
    let mut rng = b.rng();
    let count = b.scale.operations / 20;
    for n in 0..count {
        let which = rng.below(files.len() as u64) as usize;
        step(&mut rng, &mut files[which], (n % 2) as usize)
            .with_context(|| format!("operation {n} of seed {}", b.seed))?;
    }
    for m in &files {
        ensure_same(&fs::read(b.look(&m.path))?, &m.bytes, "as the other place sees it")?;
    }
    let files: Vec<(PathBuf, Vec<u8>)> = files.into_iter().map(|m| (m.path, m.bytes)).collect();
    b.cluster.restart()?;
    for (path, bytes) in &files {
        ensure_same(&fs::read(path)?, bytes, &format!("{} after a restart", path.display()))?;
    }
    Ok(())
}

fn step(rng: &mut Rng, m: &mut Modelled, turn: usize) -> Result<()> {
    let span = if rng.chance(10) { 300_000 } else { 9_000 };
    let len_max = 1 + rng.below(span);
    let at = rng.below(m.size_max);
    let at = if rng.chance(30) { at & !4095 } else { at };
    let len = len_max.min(m.size_max - at.min(m.size_max - 1)) as usize;
    match rng.below(100) {
        0..45 => {
            let mut data = vec![0u8; len];
            rng.fill(&mut data);
            m.files[turn].write_all_at(&data, at)?;
            let end = at as usize + len;
            m.bytes.resize(m.bytes.len().max(end), 0);
            m.bytes[at as usize..end].copy_from_slice(&data);
        }
        45..80 => {
            let mut got = vec![0u8; len];
            let n = m.files[turn].read_at(&mut got, at)?;
            let from = (at as usize).min(m.bytes.len());
            let want = &m.bytes[from..(from + len).min(m.bytes.len())];
            ensure_same(&got[..n], want, &format!("{} at {at}", m.path.display()))?;
        }
        80..88 => {
            m.files[turn].set_len(at)?;
            m.bytes.resize(at as usize, 0);
        }
        88..94 if (m.bytes.len() as u64) < m.size_max => {
            let mut data = vec![0u8; rng.below(5_000) as usize];
            rng.fill(&mut data);
            OpenOptions::new().append(true).open(&m.path)?.write_all(&data)?;
            m.bytes.extend_from_slice(&data);
        }
        94..96 => m.files[turn].sync_data()?,
        96..98 => ensure_eq(m.files[turn].metadata()?.len(), m.bytes.len() as u64, "size")?,
        _ => m.files[0] = open(&m.path)?,
    }
    Ok(())
}
