//! Life and death of clusters: up, down, stale leftovers, dead servers, forced unmounts, fsck.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::cluster::is_mounted;
use testkit::{Cluster, Role, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test, set_stripe};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("life::up_detaches_down_ends_up_finds_again", up_down_up)),
    (Needs::Only(Wiring::Local), ("life::down_of_what_is_bound_elsewhere", bound_elsewhere)),
    (Needs::Only(Wiring::Local), ("life::two_clusters_and_a_refused_second_up", two_clusters)),
    (Needs::Only(Wiring::Local), ("life::leftovers_of_a_kill_are_cleared", leftovers)),
    (Needs::Own, ("life::fsck_is_clean_after_work", fsck_clean)),
    (Needs::Only(Wiring::Tcp), ("life::umount_with_frozen_servers", frozen_servers)),
    (Needs::Only(Wiring::Tcp), ("life::a_second_mount_comes_and_goes", second_mount)),
    (Needs::Only(Wiring::Tcp), ("life::osts_join_while_files_are_written", osts_join)),
    (Needs::Only(Wiring::Tcp), ("life::a_busy_mount_that_is_forced_leaves_its_point", forced_while_busy)),
];

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn up_down_up(b: &mut Bench) -> Result<()> {
    let (dir, mnt) = (b.cluster.dir.join("life"), b.cluster.dir.join("life-mnt/deep"));
    let (code, out) = b.cluster.stria(&[
        "up",
        "--dir",
        &text(&dir),
        "--osts",
        "3",
        "--ost-size",
        "1G",
        "--mount",
        &text(&mnt),
    ])?;
    ensure_eq(code, 0, &out)?;
    if !out.contains(&text(&mnt)) || !out.contains("OST0002") {
        bail!("up does not say what it made and where: {out}");
    }
    // Directories that `up` created above the mount point have the usual mode.
    let plain = b.dir("plain")?;
    let mode = |path: &Path| Ok::<_, std::io::Error>(fs::metadata(path)?.permissions().mode() & 0o777);
    ensure_eq(mode(&b.cluster.dir.join("life-mnt"))?, mode(&plain)?, "mode of the mount point's parent")?;
    let mut data = vec![0u8; 2_000_000];
    b.rng().fill(&mut data);
    fs::write(mnt.join("kept"), &data)?;
    let status = b.cluster.stria(&["status", "--dir", &text(&dir)])?;
    if status.0 != 0 || !status.1.contains("OST0002") {
        bail!("status: {}", status.1);
    }
    // Busy: a clear refusal that leaves all as it was.
    let held = File::open(mnt.join("kept"))?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir)])?;
    if code == 0 || !out.contains("in use") || !is_mounted(&mnt) {
        bail!("down of a busy mount: exit {code}: {out}");
    }
    drop(held);
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir)])?;
    ensure_eq(code, 0, &out)?;
    if is_mounted(&mnt) {
        bail!("still mounted after down");
    }
    let (code, out) = b.cluster.stria(&["up", "--dir", &text(&dir), "--mount", &text(&mnt)])?;
    ensure_eq(code, 0, &out)?;
    ensure_same(&fs::read(mnt.join("kept"))?, &data, "after down and up")?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir), "--purge"])?;
    ensure_eq(code, 0, &out)?;
    if dir.exists() && fs::read_dir(&dir)?.next().is_some() {
        bail!("--purge left files in {}", dir.display());
    }
    Ok(())
}

fn bound_elsewhere(b: &mut Bench) -> Result<()> {
    let (dir, mnt, other) =
        (b.cluster.dir.join("bound"), b.cluster.dir.join("bound-mnt"), b.cluster.dir.join("elsewhere"));
    fs::create_dir(&other)?;
    let up = ["up", "--dir", &text(&dir), "--osts", "1", "--ost-size", "1G", "--mount", &text(&mnt)];
    let (code, out) = b.cluster.stria(&up)?;
    ensure_eq(code, 0, &out)?;
    rustix::mount::mount_bind(&mnt, &other)?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir)])?;
    let served = fs::write(other.join("served"), "still");
    let gone = rustix::mount::unmount(&other, rustix::mount::UnmountFlags::empty());
    if code == 0 || !out.contains(&text(&other)) {
        bail!("down of what is mounted elsewhere, too: exit {code}: {out}");
    }
    served.context("a write through the bind mount after it")?;
    gone?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir)])?;
    ensure_eq(code, 0, &out)?;
    let (code, out) = b.cluster.stria(&["up", "--dir", &text(&dir), "--mount", &text(&mnt)])?;
    ensure_eq(code, 0, &out)?;
    ensure_eq(fs::read_to_string(mnt.join("served"))?, "still".into(), "what was written elsewhere")?;
    let (code, out) = b.cluster.stria(&["down", "--dir", &text(&dir), "--purge"])?;
    ensure_eq(code, 0, &out)
}

fn two_clusters(b: &mut Bench) -> Result<()> {
    let second =
        Cluster::start(b.cluster.bin(), &b.cluster.dir.join("more"), testkit::Shape::small(Wiring::Local))?;
    fs::write(second.mount.join("f"), "second")?;
    fs::write(b.cluster.mount.join("f"), "first")?;
    ensure_eq(fs::read_to_string(second.mount.join("f"))?, "second".into(), "the second cluster's file")?;
    let dir = text(&b.cluster.state_dir());
    let (code, out) = b.cluster.stria(&["up", "--dir", &dir, "--foreground"])?;
    let pid = b.cluster.pid(Role::All).map(|p| p.to_string()).unwrap_or_default();
    if code == 0 || !out.contains(&pid) {
        bail!("a second up on a live directory: exit {code}, must name pid {pid}: {out}");
    }
    let (code, out) = b.cluster.stria(&["up", "--dir", "/etc", "--foreground"])?;
    if code == 0 || !out.contains("/etc") {
        bail!("up in a foreign directory: exit {code}: {out}");
    }
    Ok(())
}

fn leftovers(b: &mut Bench) -> Result<()> {
    fs::write(b.cluster.mount.join("f"), "kept")?;
    b.cluster.kill(Role::All)?;
    if !is_mounted(&b.cluster.mount) {
        bail!("expected the dead mount to be there: this test would show nothing");
    }
    b.cluster.start_all()?;
    ensure_eq(fs::read_to_string(b.cluster.mount.join("f"))?, "kept".into(), "after kill -9 and up")
}

fn fsck_clean(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fsck")?;
    let mut rng = b.rng();
    for n in 0..200 {
        let mut data = vec![0u8; rng.below(if n % 10 == 0 { 2 << 20 } else { 9_000 }) as usize];
        rng.fill(&mut data);
        fs::write(dir.join(format!("f{n}")), &data)?;
    }
    fs::hard_link(dir.join("f0"), dir.join("link"))?;
    for n in (0..200).step_by(3) {
        fs::remove_file(dir.join(format!("f{n}")))?;
    }
    let open = File::create(dir.join("open"))?;
    open.write_all_at(&vec![1; 300_000], 0)?;
    fs::remove_file(dir.join("open"))?;
    if b.cluster.wiring() == Wiring::Local {
        let state = text(&b.cluster.state_dir());
        let (code, out) = b.cluster.stria(&["fsck", "--dir", &state])?;
        ensure_eq(code, 0, &format!("fsck while running: {out}"))?;
        drop(open);
        b.cluster.stop()?;
        let (code, out) = b.cluster.stria(&["fsck", "--dir", &state])?;
        ensure_eq(code, 0, &format!("fsck while stopped: {out}"))?;
        let found = testkit::verify::findings_in(&b.cluster.state_dir().join("mdt0000.img"))?;
        ensure_eq(found, vec![], "what the documents say of an MDT's medium, and what it has")?;
    }
    let (code, out) = b.cluster.stria(&["fsck", "--dir", "/nonexistent"])?;
    ensure_eq(code, 2, &format!("fsck that cannot look: {out}"))
}

/// [S-deadline] With dead servers `umount -f` returns within 5 s and SIGTERM ends the mount within seconds.
fn frozen_servers(b: &mut Bench) -> Result<()> {
    fs::write(b.cluster.mount.join("f"), "x")?;
    let servers = [Role::Mgs, Role::Mds, Role::Oss(0), Role::Oss(1)];
    for role in servers {
        b.cluster.freeze(role)?;
    }
    // A process hangs in the mount meanwhile.
    let mut stuck = Command::new("stat")
        .arg(b.cluster.mount.join("no-such-name"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let status = Command::new("umount").arg("-f").arg(&b.cluster.mount).stderr(Stdio::null()).status()?;
    let took = began.elapsed();
    if took > Duration::from_secs(5) {
        bail!("umount -f took {took:?} ({status})");
    }
    b.cluster.terminate(Role::Mount, Duration::from_secs(8))?;
    stuck.wait()?;
    for role in servers {
        b.cluster.thaw(role)?;
    }
    b.cluster.start_role(Role::Mount)?;
    b.cluster.wait_mounted()?;
    for role in servers {
        b.cluster.freeze(role)?;
    }
    let mut stuck = Command::new("stat")
        .arg(b.cluster.mount.join("no-such-name"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_millis(200));
    b.cluster.terminate(Role::Mount, Duration::from_secs(8))?;
    stuck.wait()?;
    for role in servers {
        b.cluster.thaw(role)?;
    }
    Ok(())
}

/// [S-several-mounts] A mount comes in while another has unsettled files open, both see everything, and it leaves again.
fn second_mount(b: &mut Bench) -> Result<()> {
    let second = b.cluster.dir.join("second");
    fs::create_dir(&second)?;
    // 1. The second mount reads the unflushed data of the first.
    let mut bytes = vec![7; 3 << 20];
    let first = File::options().read(true).write(true).create_new(true).open(b.cluster.mount.join("f"))?;
    first.write_all_at(&bytes, 0)?;
    let source = format!("{}:/stria", b.cluster.mgs());
    let (code, out) = b.cluster.stria(&["mount", &source, &text(&second)])?;
    ensure_eq(code, 0, &format!("stria mount {source}: {out}"))?;
    let done = work_at_both(&first, &b.cluster.mount, &second, &mut bytes);
    let ended = Command::new("umount").arg(&second).output()?;
    if done.is_err() {
        rustix::mount::unmount(&second, rustix::mount::UnmountFlags::DETACH).unwrap_or_default();
    }
    done?;
    if !ended.status.success() || is_mounted(&second) {
        bail!("umount of the second: {}", String::from_utf8_lossy(&ended.stderr));
    }
    // 3. Alone again: cached data is right.
    first.write_all_at(b"alone", 11)?;
    bytes[11..16].copy_from_slice(b"alone");
    ensure_same(&fs::read(b.cluster.mount.join("g"))?, &bytes, "after the second mount has gone")
}

/// Both ways, through descriptors of before and of now.
fn work_at_both(first: &File, here: &Path, second: &Path, bytes: &mut [u8]) -> Result<()> {
    ensure_same(&fs::read(second.join("f"))?, bytes, "what the first wrote before the second came")?;
    let file = File::options().read(true).write(true).open(second.join("f"))?;
    // A new open does not read the first mount's old cached data.
    let again = File::open(here.join("f"))?;
    for n in 0..200u64 {
        let (write, read) = if n % 2 == 0 { (first, &file) } else { (&file, &again) };
        write.write_all_at(&n.to_le_bytes(), n * 5000)?;
        bytes[n as usize * 5000..][..8].copy_from_slice(&n.to_le_bytes());
        let mut got = [0; 8];
        read.read_exact_at(&mut got, n * 5000)?;
        ensure_eq(u64::from_le_bytes(got), n, "what the other just wrote")?;
    }
    Ok(fs::rename(second.join("f"), second.join("g"))?)
}

fn forced_while_busy(b: &mut Bench) -> Result<()> {
    let second = b.cluster.dir.join("forced");
    fs::create_dir(&second)?;
    let source = format!("{}:/stria", b.cluster.mgs());
    let (code, out) = b.cluster.stria(&["mount", &source, &text(&second)])?;
    ensure_eq(code, 0, &format!("stria mount {source}: {out}"))?;
    let held = File::create(second.join("held"))?;
    let forced = Command::new("umount").arg("-f").arg(&second).output()?;
    let gone =
        wait_until("the mount point of a busy mount is free after umount -f", || Ok(!is_mounted(&second)));
    drop(held);
    if gone.is_err() {
        rustix::mount::unmount(&second, rustix::mount::UnmountFlags::DETACH).unwrap_or_default();
    }
    gone.with_context(|| format!("umount -f said {}", String::from_utf8_lossy(&forced.stderr)))?;
    // It is a directory like any other.
    ensure_eq(fs::read_dir(&second)?.count(), 0, "entries below the mount point")
}

/// Existing mounts write to OSTs that join, and applications do not notice.
fn osts_join(b: &mut Bench) -> Result<()> {
    const DEVICES: usize = 4;
    let dir = b.dir("join")?;
    set_stripe(b, &["-c", "-1", "-S", "64K", "--inline", "0"], &dir)?;
    let config = b.cluster.dir.join("oss-new.toml");
    let devices: Vec<String> =
        (0..DEVICES).map(|n| format!("\"{}/new{n}.img\"", b.cluster.dir.display())).collect();
    let tls = b.cluster.certificate(pki::Role::Server).map_or("off".into(), |dir| text(&dir));
    let lines = format!(
        "mgs = [\"{}\"]\nfsname = \"stria\"\ndevices = [{}]\nsize = \"1G\"\nlisten = \"127.0.0.1:0\"\ntls = \"{tls}\"\n",
        b.cluster.mgs(),
        devices.join(", ")
    );
    fs::write(&config, lines)?;
    let mut oss = Command::new(b.cluster.bin())
        .args(["oss", "--format", "--config", &text(&config)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(b.cluster.dir.join("oss-new.log"))?)
        .spawn()?;
    let log = b.cluster.dir.join("oss-new.log");
    wait_until("the new OSTs serve", || Ok(fs::read_to_string(&log)?.contains("ready")))?;
    // An MDT that is started now knows them at once, which clients may not.
    b.cluster.kill(Role::Mds)?;
    b.cluster.start_role(Role::Mds)?;
    let written = write_until_wide(b, &dir, 4 + DEVICES);
    let files = written.and_then(|files| {
        // Each file that was written has its content.
        for n in 0..files {
            ensure_same(
                &fs::read(dir.join(n.to_string()))?,
                &vec![n as u8; 1 << 20],
                "what was written meanwhile",
            )?;
        }
        Ok(files)
    });
    // The mount first: it would wait for those that end now.
    b.cluster.terminate(Role::Mount, Duration::from_secs(20)).ok();
    oss.kill()?;
    oss.wait()?;
    files.map(drop)
}

/// Writes files of 1 MiB over all OSTs until one lies on as many as `stripes`; gives how many files these are.
fn write_until_wide(b: &Bench, dir: &Path, stripes: usize) -> Result<usize> {
    let until = Instant::now() + Duration::from_secs(30);
    for n in 0.. {
        let path = dir.join(n.to_string());
        fs::write(&path, vec![n as u8; 1 << 20]).with_context(|| format!("file {n}"))?;
        let (_, count) = b.cluster.stria(&["getstripe", "-c", &text(&path)])?;
        if count.trim() == stripes.to_string() {
            return Ok(n + 1);
        }
        if Instant::now() > until {
            bail!("after {n} files they have {} stripes, expected {stripes}", count.trim());
        }
    }
    Ok(0)
}
