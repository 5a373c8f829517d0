//! Damage done to the media from outside: it is found, it is `EIO`, and its path is listed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use testkit::Wiring;

use super::json::SCHEMAS;
use super::schema::Schemas;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Own, ("damage::a_flipped_bit_is_eio_with_a_path", flipped_bit)),
    (Needs::Own, ("damage::a_scrub_finds_what_nobody_reads", scrub)),
    (Needs::Own, ("damage::records_of_an_mdt_are_scrubbed", records_scrubbed)),
    (Needs::Own, ("damage::names_that_an_mdt_lost_are_given_up", names_lost)),
    (Needs::Only(Wiring::Local), ("damage::a_stopped_mdt_gives_up_what_it_lost", names_lost_while_stopped)),
    (Needs::Own, ("damage::an_mdt_comes_back_from_its_backup", mdt_lost)),
    (Needs::Only(Wiring::Local), ("damage::a_mirrored_page_is_repaired", mirrored)),
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

    // Of a mirror both members lose it: from one of them it would be repaired.
    let needle = &data[(2 << 20)..(2 << 20) + 4096];
    let mut flipped = 0;
    for image in images(b, "ost")? {
        let Some((image, at)) = find_page(&[image], needle)? else { continue };
        let file = File::options().write(true).open(&image)?;
        file.write_all_at(&[needle[1234] ^ 0x10], at + 1234)?;
        flipped += 1;
    }
    ensure_eq(flipped, if b.cluster.wiring() == Wiring::Pair { 2 } else { 1 }, "images with the page")?;

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

/// [S-scrub] A flipped bit on the medium, in a file without readers: `stria scrub` finds it, and `stria damage list` names the file.
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

/// [S-scrub-records] A leaf of an MDT rots below it: the scrub has it written anew while memory has it, and else tells that it is bad.
fn records_scrubbed(b: &mut Bench) -> Result<()> {
    let dir = b.dir("rotten")?;
    for n in 0..NAMES {
        fs::write(dir.join(name(n)), format!("content {n}"))?;
    }
    // 1. The start brings the records into memory.
    b.cluster.restart()?;
    ensure_eq(listed(&dir)?.len(), NAMES, "names after a restart")?;
    for image in images(b, "mdt")? {
        flip_all(&image, name(1000).as_bytes())?;
    }
    let mount = b.cluster.mount.display().to_string();
    let scrub = |b: &Bench| b.cluster.stria(&["scrub", "start", &mount, "--rate", "0", "--wait"]);
    let (code, text) = scrub(b)?;
    ensure!(
        code == 0 && text.contains("written anew from memory"),
        "a scrub over a bad leaf (exit {code}): {text}"
    );
    let (code, text) = scrub(b)?;
    ensure!(code == 0 && !text.contains("written anew"), "the scrub after it (exit {code}): {text}");
    b.cluster.restart()?;
    ensure_eq(listed(&dir)?.len(), NAMES, "names after another restart")?;
    // 2. It rots while the MDT is stopped.
    b.cluster.stop()?;
    for image in images(b, "mdt")? {
        flip_all(&image, name(1000).as_bytes())?;
    }
    b.cluster.start_all()?;
    let (code, text) = scrub(b)?;
    ensure!(code == 1 && text.contains("BAD PAGE"), "a scrub over a leaf that is lost (exit {code}): {text}");
    let (code, text) = b.cluster.stria(&["fsck", &mount])?;
    ensure!(code == 1 && text.contains("are lost"), "fsck (exit {code}): {text}");
    Ok(())
}

/// Files of a directory in which an MDT's leaf rotted.
const NAMES: usize = 2000;

/// A leaf of an MDT that rots: its names are `EIO` and nothing else is, `fsck` says of which directory they are and changes nothing, and
/// `fsck --repair --yes` gives them up: their files are in `/lost+found`, whole, and the directory is as any other.
fn names_lost(b: &mut Bench) -> Result<()> {
    let dir = names_that_rot(b)?;
    b.cluster.start_all()?;
    let bystander = b.dir("sound")?.join("f");
    fs::write(&bystander, "kept")?;
    let at = b.cluster.mount.display().to_string();
    // 1. Access to the damage fails with an error, and all else is intact.
    expect_errno(fs::read(dir.join(name(1000))), Errno::IO, "a name that is lost")?;
    expect_errno(listed(&dir), Errno::IO, "a directory some of whose names are lost")?;
    ensure_eq(fs::read_to_string(bystander)?, "kept".into(), "another directory")?;
    let (_, out) = b.cluster.stria(&["mdt", "stat", &at])?;
    ensure!(out.contains("DAMAGED  1 ranges"), "mdt stat: {out}");
    // 2, 3.
    give_up(b, &[&at])?;
    let (_, out) = b.cluster.stria(&["mdt", "stat", &at])?;
    ensure!(!out.contains("DAMAGED"), "mdt stat after the repair: {out}");
    whole(b, &dir)
}

/// The same by `fsck` of a file system that is stopped, which writes to its media.
fn names_lost_while_stopped(b: &mut Bench) -> Result<()> {
    let dir = names_that_rot(b)?;
    let state = b.cluster.state_dir().display().to_string();
    give_up(b, &["--dir", &state])?;
    let (code, out) = b.cluster.stria(&["fsck", "--dir", &state])?;
    ensure!(code == 0, "fsck of what was repaired (exit {code}): {out}");
    b.cluster.start_all()?;
    whole(b, &dir)
}

fn name(n: usize) -> String {
    format!("a name that rots {n:04}")
}

fn listed(dir: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// The directory of `NAMES` files; everything is stopped, and one leaf of names has rotted.
fn names_that_rot(b: &mut Bench) -> Result<PathBuf> {
    let dir = b.dir("rotten")?;
    for n in 0..NAMES {
        fs::write(dir.join(name(n)), format!("content {n}"))?;
    }
    b.cluster.stop()?;
    for image in images(b, "mdt")? {
        flip_all(&image, name(1000).as_bytes())?;
    }
    Ok(dir)
}

/// Listing changes nothing, nor does --repair without a terminal for the question; --yes abandons the damaged data.
fn give_up(b: &Bench, which: &[&str]) -> Result<()> {
    let fsck = |more: &[&str]| b.cluster.stria(&[&["fsck"], which, more].concat());
    for more in [&[][..], &["--repair"], &[]] {
        let (code, out) = fsck(more)?;
        let is_told =
            ["/rotten", "names in directories", "are lost", "given up"].iter().all(|w| out.contains(w));
        ensure!(code == 1 && is_told, "fsck {which:?} {more:?} (exit {code}): {out}");
    }
    let (code, out) = fsck(&["--repair", "--yes"])?;
    ensure!(
        code == 0 && out.lines().any(|line| line == "clean"),
        "fsck {which:?} --repair --yes (exit {code}): {out}"
    );
    Ok(())
}

/// Abandoned data is gone for good, all else is intact, and it can be created again.
fn whole(b: &mut Bench, dir: &Path) -> Result<()> {
    let mount = b.cluster.mount.clone();
    for round in 0..2 {
        let mut found = Vec::new();
        let kept = listed(dir)?;
        ensure!(kept.len() < NAMES && kept.len() > NAMES / 2, "{} of {NAMES} are left", kept.len());
        for entry in fs::read_dir(mount.join("lost+found"))? {
            found.push(fs::read_to_string(entry?.path())?);
        }
        for name in kept {
            found.push(fs::read_to_string(dir.join(name))?);
        }
        found.sort_unstable();
        let mut want: Vec<String> = (0..NAMES).map(|n| format!("content {n}")).collect();
        want.sort_unstable();
        ensure!(found == want, "of {NAMES} files {} are there, or they hold something else", found.len());
        let (code, out) = b.cluster.stria(&["fsck", &mount.display().to_string()])?;
        ensure_eq(code, 0, &out)?;
        expect_errno(fs::read(dir.join(name(1000))), Errno::NOENT, "a name that was given up")?;
        if round == 0 {
            b.cluster.restart()?;
        }
    }
    fs::write(dir.join(name(1000)), "again")?;
    ensure_eq(fs::read_to_string(dir.join(name(1000)))?, "again".into(), "a name that is made again")?;
    fs::remove_dir_all(dir)?;
    Ok(fs::remove_dir_all(mount.join("lost+found"))?)
}

/// An MDT's medium is lost and restored from a `stria mdt backup` that was made in service. The state is that of the backup, and
/// `fsck` reports later changes.
fn mdt_lost(b: &mut Bench) -> Result<()> {
    let dir = b.dir("backup")?;
    let large = vec![7u8; 3 << 20];
    for n in 0..300 {
        fs::write(dir.join(format!("f{n}")), format!("content {n}"))?;
    }
    fs::write(dir.join("large"), &large)?;
    fs::write(dir.join("grows"), &large[..40 << 10])?;
    fs::write(dir.join("anew"), &large)?;
    fs::hard_link(dir.join("f1"), dir.join("link"))?;
    std::os::unix::fs::symlink("f2", dir.join("symlink"))?;
    rustix::fs::setxattr(dir.join("f3"), "user.colour", b"blue", rustix::fs::XattrFlags::empty())?;
    File::open(&dir)?.sync_all()?;
    let (mount, file) = (b.cluster.mount.display().to_string(), b.cluster.dir.join("mdt.stria"));
    let file = file.display().to_string();
    // 1. Written once; a file that is there is not written over.
    let (code, out) = b.cluster.stria(&["mdt", "backup", "--mount", &mount, &file])?;
    ensure!(code == 0, "mdt backup (exit {code}): {out}");
    let bytes = fs::read(&file)?;
    let (code, out) = b.cluster.stria(&["mdt", "backup", "--mount", &mount, &file])?;
    ensure!(
        code != 0 && out.contains(&file) && fs::read(&file)? == bytes,
        "a second one (exit {code}): {out}"
    );
    // 2. Changes after the backup.
    fs::write(dir.join("later"), &large)?;
    fs::write(dir.join("grows"), &large)?;
    File::create(dir.join("anew"))?.write_all_at(&large, 0)?;
    fs::remove_file(dir.join("f0"))?;
    fs::write(dir.join("f4"), "changed")?;
    File::open(&dir)?.sync_all()?;
    b.cluster.stop()?;
    let device = images(b, "mdt")?.pop().context("the MDT has an image")?;
    let device = device.display().to_string();
    // 3. Restore does not overwrite a device that holds data, and refuses an incomplete backup.
    let (code, out) = b.cluster.stria(&["mdt", "restore", &file, &device])?;
    ensure!(code != 0 && out.contains("--force"), "mdt restore over an MDT (exit {code}): {out}");
    let half = format!("{file}.half");
    fs::write(&half, &bytes[..bytes.len() / 2])?;
    let (code, out) = b.cluster.stria(&["mdt", "restore", &half, &device, "--force"])?;
    ensure!(code != 0, "mdt restore of half a backup (exit {code}): {out}");
    let (code, out) = b.cluster.stria(&["mdt", "restore", &file, &device, "--force"])?;
    ensure!(code == 0, "mdt restore (exit {code}): {out}");
    // 4. All that it had is there.
    b.cluster.start_all()?;
    for n in 0..300 {
        ensure_eq(fs::read_to_string(dir.join(format!("f{n}")))?, format!("content {n}"), "a file")?;
    }
    ensure_same(&fs::read(dir.join("large"))?, &large, "a file of objects")?;
    ensure_eq(fs::read_to_string(dir.join("link"))?, "content 1".into(), "a link")?;
    ensure_eq(fs::read_to_string(dir.join("symlink"))?, "content 2".into(), "a symlink")?;
    let mut colour = [0; 8];
    let len = rustix::fs::getxattr(dir.join("f3"), "user.colour", &mut colour)?;
    ensure_eq(colour[..len].to_vec(), b"blue".to_vec(), "an attribute")?;
    expect_errno(fs::read(dir.join("later")), Errno::NOENT, "a file that was made later")?;
    let (code, out) = b.cluster.stria(&["fsck", &mount])?;
    ensure!(code == 1 && out.contains("OrphanObject"), "objects of what is not there (exit {code}): {out}");
    // 5. Numbers are not reused: new files get objects of their own, and no byte that was written after the backup comes back.
    for (name, begin) in [("grows", 40 << 10), ("anew", 0)] {
        let file = File::options().write(true).read(true).truncate(begin == 0).open(dir.join(name))?;
        file.write_all_at(b"x", 100 << 10)?;
        file.set_len(2 << 20)?;
        file.sync_all()?;
        let mut got = vec![0; 2 << 20];
        file.read_exact_at(&mut got, 0)?;
        let mut want = [&large[..begin], &vec![0; (2 << 20) - begin]].concat();
        want[100 << 10] = b'x';
        ensure_same(&got, &want, &format!("{name}, which is written anew"))?;
    }
    fs::write(dir.join("later"), &large[..1 << 20])?;
    ensure_same(&fs::read(dir.join("later"))?, &large[..1 << 20], "a file that is made again")?;
    Ok(fs::remove_dir_all(&dir)?)
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
        // A match across the end of the chunk is whole in the next one.
        at = data + if n == chunk.len() { n - needle.len() } else { n } as u64;
    }
    ensure!(found > 0, "nothing in {} has the name", image.display());
    Ok(())
}

/// Of targets of a kind.
/// An address whose port two free ones follow.
fn three_free_ports() -> Result<String> {
    for port in (20_000..30_000).step_by(3) {
        let all: std::io::Result<Vec<_>> =
            (port..port + 3).map(|port| std::net::TcpListener::bind(("127.0.0.1", port))).collect();
        if all.is_ok() {
            return Ok(format!("127.0.0.1:{port}"));
        }
    }
    anyhow::bail!("no three ports are free")
}

/// The processes of a pair have a page of metrics each, at the addresses that `stria up -j` tells.
fn has_three_pages(up: &str) -> Result<()> {
    let value: serde_json::Value = serde_json::from_str(up).with_context(|| up.to_owned())?;
    Schemas::read(Path::new(SCHEMAS))?.check("stria-up.json", &value).with_context(|| up.to_owned())?;
    let servers = value["servers"].as_array().with_context(|| up.to_owned())?;
    ensure_eq(servers.len(), 2, up)?;
    let pages = std::iter::once((&value["metrics"], "role=\"up\"")).chain(
        servers.iter().map(|server| (&server["metrics"], "stria_target_serves{target=\"stria-OST0000\"}")),
    );
    for (page, wanted) in pages {
        let page = page.as_str().with_context(|| up.to_owned())?;
        let address = page.trim_start_matches("http://").trim_end_matches("/metrics");
        let text = super::metrics::get(address, "/metrics")?;
        ensure!(text.contains(wanted), "{page} has no {wanted}: {text}");
    }
    Ok(())
}

/// [S-repair] Pages that rot on the drives of both members of a mirror, each at one of them: a read gets the right bytes, the scrub repairs the
/// follower's, and the list calls them repaired.
fn mirrored(b: &mut Bench) -> Result<()> {
    let dir = b.cluster.dir.join("mirrored");
    let mount = dir.with_extension("mnt");
    fs::create_dir_all(&mount)?;
    let (mut rng, mut data) = (b.rng(), vec![0u8; 3 << 20]);
    rng.fill(&mut data);
    let (at, mounted) = (dir.display().to_string(), mount.display().to_string());
    let run = |words: &[&str]| -> Result<String> {
        let (code, text) = b.cluster.stria(words)?;
        ensure!(code == 0, "stria {words:?} (exit {code}): {text}");
        Ok(text)
    };
    run(&["up", "--dir", &at, "--mount", &mounted, "--pair", "--osts", "1"])?;
    let path = mount.join("victim");
    let told = || -> Result<String> {
        fs::write(&path, &data)?;
        File::open(&path)?.sync_all()?;
        run(&["down", "--dir", &at])?;
        // 1. A page of each member rots while the servers are down.
        for (image, page) in [("ost0000.img", 300), ("ost0000.1.img", 500)] {
            let needle = &data[page * 4096..(page + 1) * 4096];
            let (image, at) = find_page(&[dir.join(image)], needle)?.context("the page is in no image")?;
            let file = File::options().write(true).open(&image)?;
            file.write_all_at(&[needle[1234] ^ 0x10], at + 1234)?;
        }
        // 2. Programs read the right bytes from either primary.
        let page = three_free_ports()?;
        let up = run(&["up", "--dir", &at, "--mount", &mounted, "--metrics", &page, "-j"])?;
        has_three_pages(&up)?;
        super::semantics::wait_until("both members are in sync", || {
            Ok(b.cluster.stria(&["mirror", "list", "--dir", &at])?.0 == 0)
        })?;
        ensure_same(&fs::read(&path)?, &data, "a file with a page that one member lost")?;
        // 3. The scrub of each member finds the rest.
        run(&["scrub", "start", "--dir", &at, "--rate", "0", "--wait"])?;
        // 4. Both have the same content.
        let compared = run(&["mirror", "verify", "--all", "-j", "--dir", &at])?;
        let value: serde_json::Value = serde_json::from_str(&compared).with_context(|| compared.clone())?;
        let schemas = Schemas::read(Path::new(SCHEMAS)).context("run from the root of the checkout")?;
        schemas.check("stria-mirror-verify.json", &value).with_context(|| compared.clone())?;
        ensure!(value[0]["records"].as_u64() > Some(0), "{compared}");
        ensure!(value[1]["objects"].as_u64() > Some(0), "{compared}");
        run(&["damage", "list", "--dir", &at])
    };
    let told = told();
    let down = b.cluster.stria(&["down", "--dir", &at]);
    let told = told?;
    ensure_eq(down?.0, 0, "stria down")?;
    let repaired = told.lines().filter(|line| line.contains("repaired from the other member"));
    ensure!(repaired.count() == 2 && told.matches("/victim").count() == 2, "stria damage list: {told}");
    Ok(())
}

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
