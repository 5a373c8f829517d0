//! Revocation and rotation while clients work: the cluster map carries revocation lists, and a revoked node is out at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use testkit::cluster::is_mounted;
use testkit::{Cluster, Role, Shape, Stranger, Wiring};
use types::{Code, SessionId};
use wire::object::List;

use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("revoke::a_revoked_node_is_out_at_once_and_others_go_on", revoked))];

/// A program that writes, reads back and compares until it is stopped. Its first error ends it.
pub(super) struct Work {
    ends: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Work {
    pub(super) fn start(dir: PathBuf) -> Work {
        let (ends, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, done) = (ends.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            let kept =
                File::options().create(true).truncate(false).read(true).write(true).open(dir.join("kept"))?;
            for round in 0u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let fresh = dir.join(format!("f{}", round % 8));
                let bytes: Vec<u8> = (0..400_000u64).map(|n| (n * 31 + round) as u8).collect();
                fs::write(&fresh, &bytes).with_context(|| format!("write of round {round}"))?;
                ensure!(fs::read(&fresh)? == bytes, "content of round {round}");
                // A file that stays open, whose capability is older than each change.
                use std::os::unix::fs::FileExt;
                let at = round % 16 * 400_000;
                kept.write_all_at(&bytes, at)
                    .with_context(|| format!("write to an open file, round {round}"))?;
                kept.sync_data().with_context(|| format!("fsync of round {round}"))?;
                let mut back = vec![0; bytes.len()];
                kept.read_exact_at(&mut back, at)?;
                ensure!(back == bytes, "content of an open file, round {round}");
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Work { ends, rounds, thread: Some(thread) }
    }

    /// Waits until it has worked since now without an error.
    pub(super) fn goes_on(&mut self, after: &str) -> Result<()> {
        let before = self.rounds.load(Ordering::Relaxed);
        wait_until(&format!("the client works on after {after}"), || {
            Ok(self.rounds.load(Ordering::Relaxed) >= before + 3 || self.has_ended())
        })?;
        match self.has_ended() {
            true => self.end().with_context(|| format!("after {after}")),
            false => Ok(()),
        }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it ends once")?;
        thread.join().map_err(|_| anyhow!("the worker panicked"))?
    }
}

/// A mount of another host, which ends with this.
struct Login {
    child: Child,
    point: PathBuf,
    log: PathBuf,
}

impl Login {
    fn start(cluster: &Cluster, folder: &Path) -> Result<Login> {
        let (point, log) = (cluster.dir.join("login"), cluster.dir.join("login.log"));
        fs::create_dir(&point)?;
        let config = cluster.dir.join("login.toml");
        let text = format!(
            "mgs = [\"{}\"]\nfsname = \"stria\"\nmountpoint = \"{}\"\ntls = \"{}\"\n",
            cluster.mgs(),
            point.display(),
            folder.display()
        );
        fs::write(&config, text)?;
        let into = File::create(&log)?;
        let child = Command::new(cluster.bin())
            .args(["mount", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(into.try_clone()?)
            .stderr(into)
            .spawn()?;
        let login = Login { child, point, log };
        wait_until("the other host mounts", || {
            Ok(is_mounted(&login.point) && fs::read_dir(&login.point).is_ok())
        })?;
        Ok(login)
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.point) {
            let _ = unmount(&self.point, UnmountFlags::DETACH);
        }
    }
}

/// Copies files from one folder over those of another.
fn copy(from: &Path, to: &Path, files: &[&str]) -> Result<()> {
    files.iter().try_for_each(|file| fs::copy(from.join(file), to.join(file)).map(drop))?;
    Ok(())
}

fn lines_of(log: &Path, part: &str) -> Result<usize> {
    Ok(fs::read_to_string(log)?.lines().filter(|line| line.contains(part)).count())
}

const FILES: [&str; 4] = ["ca.pem", "crl.pem", "node.pem", "node.key"];

/// The cluster with the administrator's own CA directory: the processes' folders are copies, so that lists reach them by the map only.
struct Site {
    cluster: Cluster,
    ca: PathBuf,
}

impl Site {
    fn start(b: &Bench) -> Result<Site> {
        let parent = b.cluster.dir.parent().context("a cluster has a parent")?.to_path_buf();
        let shape = Shape { wiring: Wiring::Tcp, osts: 2, ost_size: "1G".into(), tls: true, etcd: vec![] };
        let cluster = Cluster::start(b.cluster.bin(), &parent, shape)?;
        let ca = cluster.dir.join("office");
        let copied = Command::new("cp").arg("-a").args([&cluster.dir.join("ca"), &ca]).status()?;
        ensure!(copied.success(), "the CA directory is copied");
        Ok(Site { cluster, ca })
    }

    /// A new certificate, in a folder of its host.
    fn host(&self, role: pki::Role, node: &str) -> Result<PathBuf> {
        let mut authority = pki::Authority::open(&self.ca)?;
        let name = node.parse()?;
        authority.issue(role, &name, 30, SystemTime::now())?;
        let folder = self.cluster.dir.join(format!("{node}.{role}"));
        fs::create_dir(&folder)?;
        copy(&authority.node_dir(role, &name), &folder, &FILES)?;
        Ok(folder)
    }

    /// A command of the administrator in the CA directory; its words.
    fn office(&self, words: &[&str]) -> Result<String> {
        let dir = self.ca.display().to_string();
        let (code, text) = self.cluster.stria(&[&["cluster"], words, &["--dir", &dir]].concat())?;
        ensure!(code == 0, "{words:?}: {code}: {text}");
        Ok(text)
    }

    fn logs(&self) -> [PathBuf; 4] {
        ["mgs.log", "mds.log", "oss0.log", "mount.log"].map(|log| self.cluster.dir.join(log))
    }
}

/// [DATA] [SECURITY] A client and a server are revoked, and the CA is rotated, while another client writes.
fn revoked(b: &mut Bench) -> Result<()> {
    let mut site = Site::start(b)?;
    let mgs = site.cluster.mgs();
    let dir = site.cluster.mount.join("work");
    fs::create_dir(&dir)?;
    let mut work = Work::start(dir.clone());

    // 1. Another client has a lock, and a file that it writes.
    let login = Login::start(&site.cluster, &site.host(pki::Role::Client, "login7")?)?;
    let its = File::create(login.point.join("its"))?;
    flock(&its, FlockOperation::NonBlockingLockExclusive)?;
    fs::write(login.point.join("large"), vec![7; 3_000_000])?;
    let same = File::open(site.cluster.mount.join("its"))?;
    let is_free = || flock(&same, FlockOperation::NonBlockingLockExclusive).is_ok();
    ensure!(!is_free(), "the lock is the other client's");

    // 2. Revoked, it is out: its sessions end, its lock is free, and its host is told the reason.
    let text = site.office(&["revoke", "login7", "--reason", "key-compromise", "--mgs", &mgs])?;
    ensure!(text.contains("published revocation list"), "{text}");
    ensure!(!text.contains("keys"), "a client knows no key: {text}");
    for log in ["mds.log", "oss0.log"] {
        let log = site.cluster.dir.join(log);
        wait_until("its sessions end", || {
            Ok(lines_of(&log, "a session ends: its certificate is revoked")? > 0)
        })?;
    }
    wait_until("its lock is free", || Ok(is_free()))?;
    wait_until("its calls fail", || Ok(fs::write(login.point.join("more"), b"x").is_err()))?;
    wait_until("its log says why", || Ok(lines_of(&login.log, "revoked")? > 0))?;
    work.goes_on("the end of another client")?;
    let text = site.office(&["publish", "--mgs", &mgs])?;
    ensure!(text.contains("already"), "published once: {text}");

    // 3. An older list is refused, and a client may publish none.
    let other = site.cluster.dir.join("ca").display().to_string();
    let (code, text) = site.cluster.stria(&["cluster", "publish", "--mgs", &mgs, "--dir", &other])?;
    ensure!(code == 1 && text.contains("is not newer than list"), "an older list: {code}: {text}");

    // 4. A spare server that has registered nothing, but knows the key.
    let spare = Stranger::at(&mgs, &site.host(pki::Role::Server, "spare")?)?;
    let admin = site.cluster.certificate(pki::Role::Admin).context("it has certificates")?;
    let mut keeper = Stranger::at(&mgs, &admin)?;
    let list =
        |by: &Stranger, cap| by.ask(by.target(false)?, SessionId(0), &List { cap, after: None, max: 10 });
    list(&spare, spare.capability())?;
    let text = site.office(&["revoke", "spare", "--mgs", &mgs])?;
    ensure!(text.contains("the keys of all file systems were changed"), "{text}");
    wait_until("the revoked server has no connection", || Ok(list(&spare, spare.capability()).is_err()))?;
    let fault = keeper.refused(
        keeper.target(false)?,
        SessionId(0),
        &List { cap: spare.capability(), after: None, max: 10 },
    )?;
    ensure!(fault.code == Code::Fenced && fault.detail.contains("signature"), "the key of before: {fault}");
    keeper = Stranger::at(&mgs, &admin)?;
    list(&keeper, keeper.capability())?;
    work.goes_on("the change of the key")?;

    // 5. The OSS starts anew: clients need a ticket by the key of now.
    site.cluster.kill(Role::Oss(0))?;
    site.cluster.start_role(Role::Oss(0))?;
    work.goes_on("a restart of an OSS")?;
    // It was away, and the map of its registration has the list. Its folder has it too.
    let kept = site.cluster.dir.join("ca/nodes/host.server/crl-map.pem");
    ensure!(kept.exists(), "a list of the map is kept beside the certificate");

    // 6. The client's certificate is renewed, and the former one revoked.
    renew(&site, &mut work)?;

    // 7. The CA is rotated: both CAs, then new certificates, then one CA.
    rotate(&site, &mut work)?;
    work.end()?;
    ensure_eq(fs::read(site.cluster.mount.join("large"))?.len(), 3_000_000, "content of the revoked client")?;
    Ok(())
}

/// As `docs/cluster-ca.md` says: the new folder first, then the former certificate is revoked. The mount goes on, and loses nothing.
fn renew(site: &Site, work: &mut Work) -> Result<()> {
    const ENDS: &str = "a session ends: its certificate is revoked";
    let [mds, oss] = ["mds.log", "oss0.log"].map(|log| site.cluster.dir.join(log));
    let ended = lines_of(&mds, ENDS)? + lines_of(&oss, ENDS)?;
    let folder = site.cluster.certificate(pki::Role::Client).context("it has certificates")?;
    for round in 1..=2 {
        work.goes_on("the step before")?;
        // Not written back yet.
        let path = site.cluster.mount.join(format!("renewed{round}"));
        let bytes: Vec<u8> = (0..1_000_000u64).map(|n| (n * 17 + round) as u8).collect();
        let mut open = File::create(&path)?;
        open.write_all(&bytes)?;
        flock(&open, FlockOperation::NonBlockingLockExclusive)?;
        let former = pki::Trust::load(&folder)?.identity().serial;
        let known = |log: &Path| lines_of(log, "a session is used with another certificate of its node");
        let before = (known(&mds)?, known(&oss)?);
        site.office(&["issue", "host", "--role", "client"])?;
        copy(&site.ca.join("nodes/host.client"), &folder, &FILES)?;
        // One OSS has both OSTs.
        wait_until("each server knows the new certificate", || {
            Ok(known(&mds)? > before.0 && known(&oss)? >= before.1 + 2)
        })?;
        let text = site.office(&["revoke", &former.to_string(), "--mgs", &site.cluster.mgs()])?;
        ensure!(text.contains("published revocation list"), "{text}");
        work.goes_on("the end of its host's former certificate")?;
        open.write_all(&bytes)?;
        open.sync_all()?;
        ensure!(fs::read(&path)? == [&bytes[..], &bytes].concat(), "content over a renewal");
    }
    let now = lines_of(&mds, ENDS)? + lines_of(&oss, ENDS)?;
    ensure_eq(now, ended, "sessions that ended by the renewals")
}

fn rotate(site: &Site, work: &mut Work) -> Result<()> {
    const ANEW: &str = "certificates were loaded anew";
    let mgs = site.cluster.mgs();
    let nodes = ["host.server", "host.client", "host.admin"];
    let give = |files: &[&str]| -> Result<()> {
        let folders = nodes
            .map(|node| (site.ca.join("nodes").join(node), site.cluster.dir.join("ca/nodes").join(node)));
        folders.iter().try_for_each(|(from, to)| copy(from, to, files))
    };
    site.office(&["rotate"])?;
    for (files, what) in
        [(&FILES[..2], "both CAs"), (&FILES[2..], "new certificates"), (&FILES[..2], "one CA")]
    {
        if what == "one CA" {
            site.office(&["rotate", "--finish", "--yes"])?;
        }
        let before = site.logs().iter().map(|log| lines_of(log, ANEW)).collect::<Result<Vec<_>>>()?;
        give(files)?;
        for (log, before) in site.logs().iter().zip(before) {
            wait_until(&format!("{} has {what}", log.display()), || Ok(lines_of(log, ANEW)? > before))?;
        }
        let text = site.office(&["publish", "--mgs", &mgs])?;
        ensure!(text.contains("revocation list"), "{text}");
        work.goes_on(what)?;
    }
    Ok(())
}
