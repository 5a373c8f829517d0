//! Damage done to the media from outside: it is found, it is `EIO`, and its path is listed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Own, ("damage::a_flipped_bit_is_eio_with_a_path", flipped_bit)),
    (Needs::Own, ("damage::a_scrub_finds_what_nobody_reads", scrub)),
];

/// [S-checksums] A page that does not match is `EIO`, never other bytes, and `stria damage list` names the path.
fn flipped_bit(b: &mut Bench) -> Result<()> {
    let dir = b.dir("flip")?;
    let path = dir.join("victim");
    let mut rng = b.rng();
    let mut data = vec![0u8; 3 << 20];
    rng.fill(&mut data);
    fs::write(&path, &data)?;
    File::open(&path)?.sync_all()?;
    let bystander = dir.join("bystander");
    fs::write(&bystander, &data[..1 << 20])?;
    b.cluster.stop()?;

    let needle = &data[(2 << 20)..(2 << 20) + 4096];
    let (image, at) = find_page(&images(b)?, needle)?.context("the page is in no OST image")?;
    let file = File::options().read(true).write(true).open(&image)?;
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at + 1234)?;
    file.write_all_at(&[byte[0] ^ 0x10], at + 1234)?;
    drop(file);

    b.cluster.start_all()?;
    let victim = File::open(&path)?;
    let mut got = vec![0u8; 4096];
    expect_errno(victim.read_exact_at(&mut got, 2 << 20), Errno::IO, "the damaged page")?;
    victim.read_exact_at(&mut got, 0)?;
    ensure_same(&got, &data[..4096], "a page beside the damaged one")?;
    ensure_same(&fs::read(&bystander)?, &data[..1 << 20], "another file")?;
    let (code, text) = b.cluster.stria(&["damage", "list", &b.cluster.mount.display().to_string()])?;
    if !text.contains("/flip/victim") {
        bail!("stria damage list (exit {code}) does not name the path: {text}");
    }
    Ok(())
}

/// [S-scrub] A bit that changed on the medium of a file that nobody reads: `stria scrub` finds it and `stria damage list` names the file.
fn scrub(b: &mut Bench) -> Result<()> {
    let dir = b.dir("scrub")?;
    let path = dir.join("cold");
    let mut rng = b.rng();
    let mut data = vec![0u8; 3 << 20];
    rng.fill(&mut data);
    fs::write(&path, &data)?;
    File::open(&path)?.sync_all()?;
    let mount = b.cluster.mount.display().to_string();
    let (code, text) = b.cluster.stria(&["scrub", "start", &mount, "--rate", "0", "--wait"])?;
    if code != 0 || !text.contains("nothing bad") {
        bail!("a scrub of sound media (exit {code}): {text}");
    }
    b.cluster.stop()?;
    let (image, at) = find_page(&images(b)?, &data[1 << 20..(1 << 20) + 4096])?.context("no such page")?;
    let file = File::options().read(true).write(true).open(&image)?;
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at + 99)?;
    file.write_all_at(&[byte[0] ^ 1], at + 99)?;
    drop(file);
    b.cluster.start_all()?;
    let (code, text) = b.cluster.stria(&["scrub", "status", &mount])?;
    if code != 0 || !text.contains("last ended") {
        bail!("a restart forgot the last pass (exit {code}): {text}");
    }
    let (code, text) = b.cluster.stria(&["scrub", "start", &mount, "--wait"])?;
    if code != 1 || !text.contains("1 BAD PAGE") {
        bail!("a scrub of a damaged medium (exit {code}): {text}");
    }
    let (code, text) = b.cluster.stria(&["damage", "list", &mount])?;
    if code != 1 || !text.contains("/scrub/cold") {
        bail!("stria damage list (exit {code}) does not name the path: {text}");
    }
    let (code, text) = b.cluster.stria(&["scrub", "pause", &mount])?;
    if code != 1 || !text.contains("stria scrub start") {
        bail!("pausing what does not run (exit {code}): {text}");
    }
    Ok(())
}

fn images(b: &Bench) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for dir in [b.cluster.dir.clone(), b.cluster.state_dir()] {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with("ost") && name.ends_with(".img") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Where a page of these bytes lies: pages are 4 KiB aligned, holes are skipped.
fn find_page(images: &[PathBuf], needle: &[u8]) -> Result<Option<(PathBuf, u64)>> {
    let mut chunk = vec![0u8; 1 << 20];
    for image in images {
        let file = File::open(image)?;
        let len = file.metadata()?.len();
        let mut at = 0;
        while at < len {
            at = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data & !4095,
                Err(_) => break,
            };
            let n = file.read_at(&mut chunk, at)?;
            if let Some(page) = chunk[..n].chunks(4096).position(|p| p == needle) {
                return Ok(Some((image.clone(), at + page as u64 * 4096)));
            }
            at += n as u64;
        }
    }
    Ok(None)
}
