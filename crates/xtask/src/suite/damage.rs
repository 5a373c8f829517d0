//! Damage done to the media from outside: it is found, it is `EIO`, and its path is listed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Own, ("damage::a_flipped_bit_is_eio_with_a_path", flipped_bit)),
    (Needs::Own, ("damage::a_scrub_finds_what_nobody_reads", scrub)),
    (Needs::Own, ("damage::names_that_an_mdt_lost_are_given_up", names_lost)),
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
    let (image, at) = find_page(&images(b, "ost")?, needle)?.context("the page is in no OST image")?;
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
    let (image, at) =
        find_page(&images(b, "ost")?, &data[1 << 20..(1 << 20) + 4096])?.context("no such page")?;
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

/// Files of a directory in which an MDT's leaf rotted.
const NAMES: usize = 2000;

/// A leaf of an MDT that rots: its names are `EIO` and nothing else is, `fsck` says of which directory they are and changes nothing, and
/// `fsck --repair --yes` gives them up: their files are in `/lost+found`, whole, and the directory is as any other.
fn names_lost(b: &mut Bench) -> Result<()> {
    let (dir, bystander) = (b.dir("rotten")?, b.dir("sound")?);
    let name = |n: usize| format!("a name that rots {n:04}");
    for n in 0..NAMES {
        fs::write(dir.join(name(n)), format!("content {n}"))?;
    }
    fs::write(bystander.join("f"), "kept")?;
    b.cluster.stop()?;
    for image in images(b, "mdt")? {
        flip_all(&image, name(1000).as_bytes())?;
    }
    b.cluster.start_all()?;
    let mount = b.cluster.mount.clone();
    let at = mount.display().to_string();
    let listed = || -> std::io::Result<Vec<_>> { fs::read_dir(&dir)?.map(|e| Ok(e?.file_name())).collect() };
    // 1. It is told, as loudly as it can be, and what is beside it is well.
    expect_errno(fs::read(dir.join(name(1000))), Errno::IO, "a name that is lost")?;
    expect_errno(listed(), Errno::IO, "a directory some of whose names are lost")?;
    ensure_eq(fs::read_to_string(bystander.join("f"))?, "kept".into(), "another directory")?;
    let (_, out) = b.cluster.stria(&["mdt", "stat", &at])?;
    ensure!(out.contains("DAMAGED  1 stretches"), "mdt stat: {out}");
    // 2. A look changes nothing, nor does --repair where nobody can be asked.
    for args in [&["fsck", &at][..], &["fsck", &at, "--repair"]] {
        let (code, out) = b.cluster.stria(args)?;
        let is_told =
            ["/rotten", "names in directories", "are lost", "given up"].iter().all(|w| out.contains(w));
        ensure!(code == 1 && is_told, "{args:?} (exit {code}): {out}");
        expect_errno(listed(), Errno::IO, "after a look")?;
    }
    // 3. They are given up.
    let (code, out) = b.cluster.stria(&["fsck", &at, "--repair", "--yes"])?;
    ensure!(code == 0 && out.ends_with("clean\n"), "fsck --repair --yes (exit {code}): {out}");
    let (_, out) = b.cluster.stria(&["mdt", "stat", &at])?;
    ensure!(!out.contains("DAMAGED"), "mdt stat after the repair: {out}");
    let whole = |b: &Bench| -> Result<()> {
        let mut found = Vec::new();
        let kept = listed()?.len();
        ensure!(kept < NAMES && kept > NAMES / 2, "{kept} of {NAMES} are left");
        for entry in fs::read_dir(mount.join("lost+found"))? {
            found.push(fs::read_to_string(entry?.path())?);
        }
        for name in listed()? {
            found.push(fs::read_to_string(dir.join(name))?);
        }
        found.sort_unstable();
        let mut want: Vec<String> = (0..NAMES).map(|n| format!("content {n}")).collect();
        want.sort_unstable();
        ensure!(found == want, "of {NAMES} files {} are there, or they hold something else", found.len());
        let (code, out) = b.cluster.stria(&["fsck", &at])?;
        ensure_eq(code, 0, &out)
    };
    whole(b)?;
    expect_errno(fs::read(dir.join(name(1000))), Errno::NOENT, "a name that was given up")?;
    // 4. For good, and it can be made again.
    b.cluster.restart()?;
    whole(b)?;
    fs::write(dir.join(name(1000)), "again")?;
    ensure_eq(fs::read_to_string(dir.join(name(1000)))?, "again".into(), "a name that is made again")?;
    fs::remove_dir_all(&dir)?;
    Ok(fs::remove_dir_all(mount.join("lost+found"))?)
}

/// A bit of these bytes changes wherever they are in the file; holes are skipped.
fn flip_all(image: &Path, needle: &[u8]) -> Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    let (mut chunk, mut at, mut found) = (vec![0u8; 1 << 20], 0, 0);
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let n = file.read_at(&mut chunk, data)?;
        for (i, part) in chunk[..n].windows(needle.len()).enumerate() {
            if part == needle {
                file.write_all_at(&[part[0] ^ 1], data + i as u64)?;
                found += 1;
            }
        }
        // What goes over the end is whole in the next.
        at = data + if n == chunk.len() { n - needle.len() } else { n } as u64;
    }
    ensure!(found > 0, "nothing in {} has the name", image.display());
    Ok(())
}

/// Of targets of a kind.
fn images(b: &Bench, kind: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for dir in [b.cluster.dir.clone(), b.cluster.state_dir()] {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with(kind) && name.ends_with(".img") {
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
