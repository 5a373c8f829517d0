//! Changes of the cluster map by an administrator: removed targets and nodes, with mounts that use them.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::{ensure_eq, expect_errno};
use super::{Bench, Needs, Test, set_stripe};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Two), ("manage::a_removed_ost_fails_its_bytes_only", removed_ost)),
    (Needs::Only(Wiring::Tcp), ("manage::file_systems_of_one_service_share_nothing", two_file_systems)),
];

/// Far below the operation time-out of 60 s, which a missing target costs.
const SOON: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(30);
const BYTES: usize = 3 << 20;

/// The token that a dry run prints.
fn token(b: &Bench, words: &[&str]) -> Result<String> {
    let mgs = b.cluster.mgs();
    let (code, out) = b.cluster.stria(&[words, &["--dry-run", "-j", "--mgs", &mgs]].concat())?;
    ensure_eq(code, 0, &format!("{words:?}: {out}"))?;
    let said: serde_json::Value = serde_json::from_str(&out).with_context(|| out.clone())?;
    ensure_eq(said["removed"].as_bool(), Some(false), "a dry run removes nothing")?;
    Ok(said["token"].as_str().with_context(|| format!("{words:?}: {out}"))?.to_owned())
}

fn confirm(b: &Bench, words: &[&str], token: &str) -> Result<(i32, String)> {
    let mgs = b.cluster.mgs();
    b.cluster.stria(&[words, &["--confirm", token, "--mgs", &mgs]].concat())
}

/// A file whose only object lies on the OST of this index.
fn file_on(b: &Bench, dir: &Path, name: &str, index: &str) -> Result<PathBuf> {
    let path = dir.join(name);
    set_stripe(b, &["-c", "1", "-i", index, "--inline", "0"], &path)?;
    fs::write(&path, vec![7; BYTES])?;
    File::open(&path)?.sync_all()?;
    Ok(path)
}

/// The first target of the second OSS, and one of the first OSS: servers that start together get their indexes in any order.
fn first_of_second(b: &Bench) -> Result<(String, String)> {
    let config = fs::read_to_string(b.cluster.dir.join("oss1.toml"))?;
    let listen = config.lines().find_map(|line| line.strip_prefix("listen = ")).context("it listens")?;
    let nid = format!("{}@tcp0", listen.trim_matches('"'));
    let (code, out) = b.cluster.stria(&["node", "list", "-j", "--mgs", &b.cluster.mgs()])?;
    ensure_eq(code, 0, &out)?;
    let nodes: serde_json::Value = serde_json::from_str(&out)?;
    let (mut its, mut other) = (None, None);
    for node in nodes.as_array().with_context(|| out.clone())? {
        let target = node["targets"][0].as_str().with_context(|| out.clone())?.to_owned();
        match node["nids"][0].as_str() == Some(nid.as_str()) {
            true => its = Some(target),
            false if target.contains("-OST") => other = Some(target),
            false => {}
        }
    }
    its.zip(other).with_context(|| out.clone())
}

fn lines_of(b: &Bench, log: &str, part: &str) -> Result<usize> {
    let text = fs::read_to_string(b.cluster.dir.join(log))?;
    Ok(text.lines().filter(|line| line.contains(part)).count())
}

/// [S-removed-ost]
fn removed_ost(b: &mut Bench) -> Result<()> {
    let dir = b.dir("removed")?;
    let mgs = b.cluster.mgs();
    let (first, second) = (b.cluster.mount.clone(), b.cluster.second.clone().context("two mounts")?);
    let on_second = |path: &Path| -> Result<PathBuf> { Ok(second.join(path.strip_prefix(&first)?)) };
    let (name, other) = first_of_second(b)?;
    let [index, other] = [&name, &other].map(|name| name.trim_start_matches("stria-OST000"));
    let there = file_on(b, &dir, "there", index)?;
    let here = file_on(b, &dir, "here", other)?;
    let removed = file_on(b, &dir, "removed-later", index)?;
    let (there_too, here_too) = (on_second(&there)?, on_second(&here)?);
    ensure_eq(fs::read(&here_too)?.len(), BYTES, "bytes at the other mount")?;

    // 1. A target that is up, and a node with targets, stay.
    let words = ["target", "remove", &*name];
    let (code, out) = b.cluster.stria(&[&words[..], &["--dry-run", "--mgs", &mgs]].concat())?;
    ensure!(code == 1 && out.contains("is up; stop its server first"), "{code}: {out}");
    ensure!(out.contains("files have ") && out.contains("nothing was changed"), "{out}");
    let (code, out) = b.cluster.stria(&["node", "remove", "n1", "--mgs", &mgs])?;
    ensure!(code == 1 && out.contains("has targets: stria-"), "{code}: {out}");
    let (code, out) = b.cluster.stria(&["fs", "remove", "stria", "--mgs", &mgs])?;
    ensure!(code == 1 && out.contains("has targets that are up"), "{code}: {out}");

    // 2. Its server is stopped. A call that waits for it ends once the OST is removed.
    b.cluster.terminate(Role::Oss(1), STOP)?;
    let reader = {
        let there = there_too.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            File::open(there).and_then(|mut file| file.read_to_end(&mut bytes))
        })
    };
    let old = token(b, &words)?;
    let (code, out) = b.cluster.stria(&[&words[..], &["--mgs", &mgs]].concat())?;
    ensure!(code == 1 && out.contains("is not known") && out.contains(&format!("--confirm {old}")), "{out}");
    let (code, out) = confirm(b, &words, "0000-0000-0000")?;
    ensure!(code == 1 && out.contains("look again with --dry-run"), "{code}: {out}");
    let (code, out) = confirm(b, &words, &old)?;
    ensure!(code == 0 && out.contains(&format!("removed target {name}")), "{code}: {out}");
    let (code, out) = confirm(b, &words, &old)?;
    ensure!(code == 1 && out.contains("no target"), "a token counts once: {code}: {out}");
    let begun = Instant::now();
    expect_errno(reader.join().expect("the reader does not panic"), Errno::IO, "a read that waited")?;
    for path in [&there, &there_too] {
        expect_errno(fs::read(path), Errno::IO, "bytes of the removed OST")?;
    }
    ensure!(begun.elapsed() < SOON, "the error took {:?}", begun.elapsed());
    ensure_eq(fs::metadata(&there)?.len(), BYTES as u64, "the file keeps its attributes")?;
    for log in ["mount.log", "mount2.log"] {
        let said =
            format!("{name} was removed from the cluster: reads and writes of bytes there fail with EIO");
        ensure!(lines_of(b, log, &said)? == 1, "{log} does not say once that the OST was removed");
    }

    // 3. Files elsewhere, and new ones, are well at both mounts.
    ensure_eq(fs::read(&here_too)?.len(), BYTES, "bytes of another OST")?;
    let config = b.cluster.dir.join("oss1.toml");
    let text = fs::read_to_string(&config)?;
    // 4. The removed target does not come back, and the other one of that server does.
    b.cluster.start_role(Role::Oss(1))?;
    wait_until("all targets are up", || Ok(b.cluster.stria(&["status", "--mgs", &mgs])?.0 == 0))?;
    for said in ["it was removed, or registered with another", "is left out"] {
        ensure!(lines_of(b, "oss1.log", said)? > 0, "oss1.log does not say: {said}");
    }
    b.cluster.terminate(Role::Oss(1), STOP)?;
    let device = format!("\"{}/ost2.img\", ", b.cluster.dir.display());
    ensure!(text.contains(&device), "{text}");
    fs::write(&config, text.replace(&device, ""))?;
    b.cluster.start_role(Role::Oss(1))?;
    wait_until("all targets are up", || Ok(b.cluster.stria(&["status", "--mgs", &mgs])?.0 == 0))?;
    for n in 0..24 {
        let path = dir.join(format!("new{n}"));
        set_stripe(b, &["-c", "1", "--inline", "0"], &path)?;
        fs::write(&path, vec![n; 1 << 20])?;
        File::open(&path)?.sync_all()?;
        ensure_eq(fs::read(on_second(&path)?)?, vec![n; 1 << 20], "a new file")?;
    }

    // 5. A mount that never knew the OST gives EIO as well, and says why.
    b.cluster.terminate(Role::SecondMount, STOP)?;
    b.cluster.start_role(Role::SecondMount)?;
    b.cluster.wait_mounted()?;
    let begun = Instant::now();
    expect_errno(fs::read(&there_too), Errno::IO, "bytes of an OST that was removed before")?;
    ensure!(begun.elapsed() < SOON, "the error took {:?}", begun.elapsed());
    ensure!(
        lines_of(b, "mount2.log", "was removed from the cluster, with the bytes there")? > 0,
        "no reason"
    );

    // 6. The check names such files. They can be removed, and then nothing of them is left.
    let (code, out) = b.cluster.stria(&["fsck", &b.cluster.mount.display().to_string()])?;
    ensure!(code == 1 && out.contains("removed/there"), "fsck before: {code}: {out}");
    for path in [&there, &removed] {
        fs::remove_file(path)?;
    }
    let (code, out) = b.cluster.stria(&["fsck", &b.cluster.mount.display().to_string()])?;
    ensure!(code == 0, "fsck afterwards: {code}: {out}");
    Ok(())
}

/// The processes of a second file system, which end with this.
struct Second {
    running: Vec<Child>,
    mount: PathBuf,
}

impl Second {
    fn start(&mut self, b: &Bench, role: &str, more: &str) -> Result<()> {
        let config = b.cluster.dir.join(format!("other-{role}.toml"));
        let text = format!("mgs = [\"{}\"]\nfsname = \"other\"\ntls = \"off\"\n{more}", b.cluster.mgs());
        fs::write(&config, text)?;
        let log = File::create(b.cluster.dir.join(format!("other-{role}.log")))?;
        let mut command = Command::new(b.cluster.bin());
        command.arg(role).arg("--config").arg(config);
        if role != "mount" {
            command.arg("--format");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.running.push(command.spawn()?);
        Ok(())
    }

    /// Ends them, the mount first.
    fn stop(&mut self) -> Result<()> {
        while let Some(mut child) = self.running.pop() {
            kill_process(Pid::from_raw(child.id() as i32).context("pid")?, Signal::TERM)?;
            wait_until("a process of the second file system ends", || Ok(child.try_wait()?.is_some()))?;
        }
        Ok(())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        if is_mounted(&self.mount) {
            let _ = unmount(&self.mount, UnmountFlags::DETACH);
        }
    }
}

fn listed(b: &Bench) -> Result<Vec<(String, u64, u64, bool)>> {
    let (_, out) = b.cluster.stria(&["fs", "list", "-j", "--mgs", &b.cluster.mgs()])?;
    let all: Vec<serde_json::Value> = serde_json::from_str(&out).with_context(|| out.clone())?;
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(u64::MAX);
    let line = |v: &serde_json::Value| {
        let is_up = v["down"].as_array().is_some_and(Vec::is_empty);
        (v["name"].as_str().unwrap_or_default().to_owned(), number(&v["mdts"]), number(&v["osts"]), is_up)
    };
    Ok(all.iter().map(line).collect())
}

/// [S-file-systems]
fn two_file_systems(b: &mut Bench) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (dir, mgs) = (b.cluster.dir.display().to_string(), b.cluster.mgs());
    let create = ["fs", "create", "other", "--inline-max", "4K", "--mgs", &mgs];
    let (code, out) = b.cluster.stria(&create)?;
    ensure!(code == 0 && out.contains("file system other (id 2) is made"), "{code}: {out}");
    let (code, out) = b.cluster.stria(&create)?;
    ensure!(code == 1 && out.contains("is already there"), "{code}: {out}");
    let stria = ("stria".to_owned(), 1, 4, true);
    ensure_eq(listed(b)?, vec![stria.clone(), ("other".into(), 0, 0, true)], "an empty one")?;

    // 1. Its OST may come before its MDT.
    let mount = b.cluster.dir.join("other");
    fs::create_dir(&mount)?;
    let mut second = Second { running: vec![], mount: mount.clone() };
    let listen = "listen = \"127.0.0.1:0\"\nsize = \"1G\"";
    second.start(b, "oss", &format!("{listen}\ndevices = [\"{dir}/other-ost.img\"]\n"))?;
    wait_until("its OST is in the map", || Ok(listed(b)?[1] == ("other".into(), 0, 1, true)))?;
    second.start(b, "mds", &format!("{listen}\ndevice = \"{dir}/other-mdt.img\"\n"))?;
    let both = vec![stria.clone(), ("other".into(), 1, 1, true)];
    wait_until("both are up", || Ok(listed(b)? == both))?;
    second.start(b, "mount", &format!("mountpoint = \"{}\"\n", mount.display()))?;
    wait_until("it is mounted", || Ok(is_mounted(&mount) && fs::read_dir(&mount).is_ok()))?;

    // 2. Files of the same number have objects of the same number in both. Their bytes and names are their own.
    let mounts = [b.cluster.mount.clone(), mount.clone()];
    let mut numbers = [vec![], vec![]];
    for n in 0..40u8 {
        for (which, root) in mounts.iter().enumerate() {
            let path = root.join(format!("{which}-{n}"));
            fs::write(&path, vec![n ^ (which as u8) << 7; 300_000])?;
            File::open(&path)?.sync_all()?;
            numbers[which].push(fs::metadata(&path)?.ino());
        }
    }
    ensure!(numbers[0].iter().any(|ino| numbers[1].contains(ino)), "no number is used twice: {numbers:?}");
    for which in [0, 1] {
        // From the OSTs, not from the kernel.
        fs::write("/proc/sys/vm/drop_caches", "3")?;
        ensure_eq(fs::read_dir(&mounts[which])?.count(), 40, "names")?;
        for n in 0..40u8 {
            let bytes = fs::read(mounts[which].join(format!("{which}-{n}")))?;
            ensure!(bytes == vec![n ^ (which as u8) << 7; 300_000], "file {n} of file system {which}");
        }
    }

    // 3. One goes, the other stays.
    let words = ["fs", "remove", "other"];
    let (code, out) = b.cluster.stria(&[&words[..], &["--mgs", &mgs]].concat())?;
    ensure!(code == 1 && out.contains("has targets that are up: other-"), "{code}: {out}");
    second.stop()?;
    let token = token(b, &words)?;
    let (code, out) = confirm(b, &words, &token)?;
    ensure!(code == 0 && out.contains("removed file system other"), "{code}: {out}");
    ensure_eq(listed(b)?, vec![stria], "the one that is left")?;
    second.start(b, "oss", &format!("{listen}\ndevices = [\"{dir}/other-ost.img\"]\n"))?;
    let mut oss = second.running.pop().context("it was started")?;
    wait_until("the server of a removed target ends", || Ok(oss.try_wait()?.is_some()))?;
    ensure!(lines_of(b, "other-oss.log", "it was removed, or registered with another")? > 0, "no reason");
    for n in 0..40u8 {
        ensure!(fs::read(b.cluster.mount.join(format!("0-{n}")))? == vec![n; 300_000], "file {n} afterwards");
    }
    Ok(())
}
