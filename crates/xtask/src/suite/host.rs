//! Targets that are sparse files on a disk with less room than they promise: what it shows, what it gives back, and that a full one loses
//! nothing.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test, skip};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("host::a_small_disk_gets_its_room_back_and_may_be_full", small_disk)),
    (Needs::Only(Wiring::Local), ("host::a_pair_on_one_disk_may_be_full_and_lose_an_image", one_disk)),
    (Needs::Only(Wiring::Tcp), ("host::a_drive_that_cannot_be_opened_takes_one_target_away", bad_drive)),
];

const MIB: u64 = 1 << 20;
/// Beside what is in use, a disk may keep this much more after all was removed: logs, the tree of the file system below, pieces under 1 MiB.
const SLACK_BYTES: u64 = 48 * MIB;

/// An ext4 of 1 GiB in a file, and a file system of Stria on it that promises more.
struct Small<'a> {
    b: &'a Bench,
    host: PathBuf,
    mount: PathBuf,
}

impl<'a> Small<'a> {
    fn new(b: &'a Bench) -> Result<Small<'a>> {
        let small = Small { b, host: b.cluster.dir.join("host"), mount: b.cluster.dir.join("small") };
        let image = b.cluster.dir.join("host.img");
        File::create(&image)?.set_len(1024 * MIB)?;
        for dir in [&small.host, &small.mount] {
            fs::create_dir(dir)?;
        }
        let (image, host) = (image.display().to_string(), small.host.display().to_string());
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &image], Path::new("/"))?;
        if run("mount", &["-o", "loop", &image, &host], Path::new("/")).is_err() {
            return skip("no loop device can be mounted here");
        }
        Ok(small)
    }

    fn dir(&self) -> PathBuf {
        self.host.join("d")
    }

    fn stria(&self, args: &[&str]) -> Result<(i32, String)> {
        let dir = self.dir().display().to_string();
        self.b.cluster.stria(&[&args[..1], &["--dir", &dir], &args[1..]].concat())
    }

    fn up(&self, more: &[&str]) -> Result<(i32, String)> {
        let mount = self.mount.display().to_string();
        self.stria(&[&["up", "--mount", &mount], more].concat())
    }

    fn well(&self, args: &[&str]) -> Result<String> {
        let (code, out) = self.stria(args)?;
        ensure_eq(code, 0, &format!("{args:?}: {out}"))?;
        Ok(out)
    }

    fn used(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.host)?;
        Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
    }

    fn room(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(&self.host)?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Its room is back: not more than this is in use.
    fn wait_for_room(&self, when: &str, used_max: u64) -> Result<()> {
        let waited = wait_until(when, || Ok(self.used()? <= used_max));
        waited.with_context(|| format!("{} of {used_max} bytes in use", self.used().unwrap_or(0)))
    }

    /// Bytes into a file until there is no room; the file.
    fn fill(&self, name: &str) -> Result<PathBuf> {
        let path = self.mount.join(name);
        let (mut file, bytes) = (File::create(&path)?, vec![0x5a; MIB as usize]);
        let full = loop {
            let written = (0..8).try_for_each(|_| file.write_all(&bytes));
            if let Err(e) = written.and_then(|()| file.sync_data()) {
                break e;
            }
        };
        ensure_eq(Errno::from_io_error(&full), Some(Errno::NOSPC), "a write to a full disk")?;
        Ok(path)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.mount) {
            self.stria(&["down", "--force"]).ok();
        }
        unmount(&self.host, UnmountFlags::DETACH).ok();
    }
}

/// One disk below both members and the map of `stria up --pair` becomes full; then an image is lost, and made anew.
fn one_disk(b: &mut Bench) -> Result<()> {
    let mut kept = vec![0; 5 * MIB as usize];
    b.rng().fill(&mut kept);
    let small = Small::new(b)?;
    let (code, out) = small.up(&["--pair", "--osts", "1", "--ost-size", "1G", "--mdt-size", "1G"])?;
    ensure_eq(code, 0, &out)?;
    let file = small.mount.join("kept");
    fs::write(&file, &kept)?;
    File::open(&file)?.sync_all()?;
    let is_kept = || ensure_eq(fs::read(&file)? == kept, true, "what was synced");
    let dir = small.dir().display().to_string();
    let in_sync = || {
        let list = || Ok(b.cluster.stria(&["mirror", "list", "--dir", &dir])?.0 == 0);
        wait_until("all members are in sync", list)
    };
    // 1. Full: writes are refused, and data can be read. Removal frees space, and the mirrors are whole again.
    let big = small.fill("big")?;
    is_kept()?;
    fs::remove_file(big)?;
    in_sync()?;
    fs::write(small.mount.join("more"), &kept)?;
    is_kept()?;
    // 2. Without one image the file system comes up, and says so.
    small.well(&["down"])?;
    let image = small.dir().join("ost0000.img");
    fs::remove_file(&image)?;
    let (code, out) = small.up(&[])?;
    ensure!(code == 0 && out.contains("ost0000.img is missing"), "exit {code}: {out}");
    is_kept()?;
    // 3. A new one is filled.
    let (name, path) = ("stria-OST0000", image.display().to_string());
    let replace = |more: &[&str]| {
        let words = ["target", "replace", name, "--device", &path, "--size", "1G", "--dir"];
        b.cluster.stria(&[&words[..], &[dir.as_str()], more].concat())
    };
    wait_until("the lost member is out", || Ok(replace(&["--dry-run"])?.1.contains("--confirm")))?;
    let (_, shown) = replace(&["--dry-run"])?;
    let token = shown.split("--confirm ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let (code, out) = replace(&["--confirm", token.with_context(|| shown.clone())?])?;
    ensure_eq(code, 0, &out)?;
    small.well(&["down"])?;
    let (code, out) = small.up(&[])?;
    ensure_eq(code, 0, &out)?;
    in_sync()?;
    is_kept()?;
    let (code, out) = b.cluster.stria(&["mirror", "verify", "--all", "--dir", &dir])?;
    ensure_eq(code, 0, &out)?;
    small.well(&["down", "--purge"]).map(drop)
}

/// [S-host-room] [S-no-space]
fn small_disk(b: &mut Bench) -> Result<()> {
    let mut kept = vec![0; 5 * MIB as usize];
    b.rng().fill(&mut kept);
    let small = Small::new(b)?;
    let (code, out) = small.up(&["--osts", "2", "--ost-size", "1G", "--mdt-size", "1G"])?;
    ensure!(code == 0 && out.contains("writes fail when it is full"), "exit {code}: {out}");
    let file = small.mount.join("kept");
    fs::write(&file, &kept)?;
    File::open(&file)?.sync_all()?;
    let is_kept = || ensure_eq(fs::read(&file)? == kept, true, "what was synced");
    let empty = small.used()?;
    // 1. No more is promised than there is, by statfs nor by `stria df`.
    let stat = rustix::fs::statvfs(&small.mount)?;
    let (promised, room) = (stat.f_bavail * stat.f_frsize, small.room()?);
    ensure!(promised <= room && promised > room / 4, "{promised} bytes available, and the disk has {room}");
    // 2. Removed just before a stop: the next start gives the room back.
    let gone = small.mount.join("gone");
    fs::write(&gone, vec![7; 200 * MIB as usize])?;
    File::open(&gone)?.sync_all()?;
    ensure!(small.used()? > empty + 170 * MIB, "200 MiB took {} of the disk", small.used()? - empty);
    // The mount's statfs may be up to a second old.
    let free = || Ok::<_, anyhow::Error>(rustix::fs::statvfs(&small.mount)?.f_bfree);
    wait_until("its space is taken", || Ok(free()? + 170 * MIB / stat.f_frsize <= stat.f_bfree))?;
    fs::remove_file(gone)?;
    wait_until("its objects are destroyed", || Ok(free()? + 8 * MIB / stat.f_frsize >= stat.f_bfree))?;
    ensure!(small.used()? > empty + 170 * MIB, "freed space rests for a while: {}", small.used()? - empty);
    small.well(&["down"])?;
    let (code, out) = small.up(&[])?;
    ensure_eq(code, 0, &out)?;
    small.wait_for_room("room that was freed before the stop", empty + SLACK_BYTES)?;
    // 3. Full: writes are refused, data can be read, and removal frees space at once.
    let big = small.fill("big")?;
    ensure!(small.room()? < 8 * MIB, "the disk is full: {} left", small.room()?);
    is_kept()?;
    fs::remove_file(&big)?;
    small.wait_for_room("room on a disk that was full", empty + SLACK_BYTES)?;
    // 4. Stopped and started on a full disk.
    let big = small.fill("big")?;
    small.well(&["down"])?;
    File::create(small.host.join("last"))?.write_all(&vec![1; small.room()? as usize]).ok();
    let (code, out) = small.up(&[])?;
    ensure_eq(code, 0, &format!("up on a full disk: {out}"))?;
    is_kept()?;
    fs::remove_file(&big)?;
    small.wait_for_room("room after a start on a full disk", empty + SLACK_BYTES + MIB)?;
    fs::write(small.mount.join("again"), &kept)?;
    // 5. Too little space to start: the error gives the remedy, and all data is there after it.
    let big = small.fill("big")?;
    small.well(&["down"])?;
    fs::remove_file(small.dir().join("run/spare")).ok();
    let last = small.host.join("last");
    File::create(&last)?.write_all(&vec![1; small.room()? as usize]).ok();
    let (code, out) = small.up(&[])?;
    ensure!(
        code == 1 && out.contains("the disk that holds it is full: make room there (`df -h "),
        "{code}: {out}"
    );
    ensure!(!is_mounted(&small.mount), "mounted all the same");
    fs::remove_file(last)?;
    let (code, out) = small.up(&[])?;
    ensure_eq(code, 0, &out)?;
    is_kept()?;
    fs::remove_file(big)?;
    small.well(&["fsck"])?;
    // 6. On a full disk it can be looked at, and purged.
    small.fill("big")?;
    small.well(&["down"])?;
    fs::remove_file(small.dir().join("run/spare")).ok();
    let last = small.host.join("last");
    File::create(&last)?.write_all(&vec![1; small.room()? as usize]).ok();
    small.well(&["fsck"])?;
    small.well(&["down", "--purge"])?;
    ensure!(!small.dir().exists(), "it is not purged");
    Ok(())
}

/// cli-SV1: a server starts without a drive that is not there, and without one with foreign content; its other target is served meanwhile.
/// A server with no drive at all does not start.
fn bad_drive(b: &mut Bench) -> Result<()> {
    let mgs = b.cluster.mgs();
    // One for each OST; the second server has two of them.
    let files: Vec<PathBuf> = (0..4).map(|index| b.cluster.mount.join(format!("on{index}"))).collect();
    for (file, index) in files.iter().zip(["0", "1", "2", "3"]) {
        fs::write(file, "")?;
        super::set_stripe(b, &["-c", "1", "-i", index, "--inline", "0"], file)?;
        fs::write(file, format!("content {index}"))?;
        fs::File::open(file)?.sync_all()?;
    }
    let drives = [2, 3].map(|index| b.cluster.dir.join(format!("ost{index}.img")));
    let away = b.cluster.dir.join("away.img");
    let stop = |b: &mut Bench| b.cluster.terminate(Role::Oss(1), Duration::from_secs(60));
    let down = |b: &Bench| -> Result<String> {
        let (_, json) = b.cluster.stria(&["status", "-j", "--mgs", &mgs])?;
        let json: serde_json::Value = serde_json::from_str(&json)?;
        let names = json[0]["down"].as_array().into_iter().flatten().filter_map(|name| name.as_str());
        Ok(names.collect::<Vec<_>>().join(", "))
    };
    let one_is_down = |b: &mut Bench, why: &str| {
        b.cluster.start_role(Role::Oss(1))?;
        let one = || Ok(down(b)?.strip_prefix("stria-OST000").is_some_and(|index| index.len() == 1));
        wait_until("only one target is down", one).with_context(|| down(b).unwrap_or_default())?;
        let away = down(b)?;
        for (index, file) in files.iter().enumerate().filter(|(index, _)| !away.ends_with(&index.to_string()))
        {
            ensure_eq(fs::read_to_string(file)?, format!("content {index}"), "a file of another drive")?;
        }
        let log = fs::read_to_string(b.cluster.log_path(Role::Oss(1)))?;
        let is_told =
            |line: &&str| line.contains("ost2.img") && line.contains(why) && line.contains("left out");
        ensure!(log.lines().any(|line| is_told(&line)), "no line tells that it is left out: {log}");
        stop(b)
    };
    // 1. It is not there.
    stop(b)?;
    fs::rename(&drives[0], &away)?;
    one_is_down(b, "it does not exist")?;
    // 2. Something else is on it.
    fs::write(&drives[0], vec![b'x'; 1 << 20])?;
    one_is_down(b, "is not Stria's")?;
    // 3. None is there.
    fs::rename(&drives[1], b.cluster.dir.join("other.img"))?;
    b.cluster.start_role(Role::Oss(1))?;
    wait_until("it ends", || Ok(b.cluster.has_ended(Role::Oss(1))?.is_some_and(|status| !status.success())))?;
    fs::rename(b.cluster.dir.join("other.img"), &drives[1])?;
    // 4. It is back.
    fs::rename(&away, &drives[0])?;
    b.cluster.start_role(Role::Oss(1))?;
    wait_until("all are up again", || Ok(down(b)?.is_empty()))?;
    for (index, file) in files.iter().enumerate() {
        ensure_eq(fs::read_to_string(file)?, format!("content {index}"), "a file")?;
    }
    Ok(())
}
