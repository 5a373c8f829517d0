//! A cluster of real `stria` processes in a directory of its own, with a mount: what the mounted suites run on.
//!
//! Four wirings, one interface: everything in one process (`stria up`), one process per role over TCP on loopback, that with a
//! second mount of the same file system, or with a second member of each target on another server.
//! testkit-C1: only processes that were started here are ever signalled, by their pid.  testkit-C2: dropping a cluster ends its processes,
//! unmounts and removes its directory, whatever state it is in.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use pki::Authority;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// All roles and the mount in one process.
    Local,
    /// A process per role, frames over TCP on loopback.
    Tcp,
    /// As `Tcp`, and a second process mounts the file system, too (a story takes it for `Tcp`).
    Two,
    /// As `Tcp`, without a mount (a story takes it for `Tcp`).
    Servers,
    /// As `Tcp`, and each target is a mirror of two members: the MDT's are on two servers, and an OSS has the second members of another's
    /// OSTs (a story takes it for `Tcp`).
    Pair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The one process of `Wiring::Local`.
    All,
    Mgs,
    /// The second management service of a map in etcd.
    SecondMgs,
    Mds,
    /// The second member of the MDT, of `Wiring::Pair`.
    SecondMds,
    /// Each serves two OSTs. With `Wiring::Pair` it also has the second members of two others.
    Oss(usize),
    Mount,
    /// The second mount of `Wiring::Two`.
    SecondMount,
}

/// The cluster to build.
#[derive(Clone, Debug)]
pub struct Shape {
    pub wiring: Wiring,
    pub osts: usize,
    /// As for `--ost-size`.
    pub ost_size: String,
    /// The processes have certificates of a CA that is made for them. Not with `Wiring::Local`.
    pub tls: bool,
    /// Members of an etcd that has the cluster map. Then there are two management services. Not with `Wiring::Local`.
    pub etcd: Vec<String>,
}

impl Shape {
    pub fn small(wiring: Wiring) -> Shape {
        let tls = match std::env::var(TLS_VARIABLE).as_deref() {
            Ok("off") => false,
            Ok(_) => wiring != Wiring::Local,
            Err(_) => wiring == Wiring::Tcp,
        };
        Shape { wiring, osts: 4, ost_size: "2G".into(), tls, etcd: vec![] }
    }
}

pub struct Cluster {
    pub dir: PathBuf,
    pub mount: PathBuf,
    /// The second mount of `Wiring::Two`.
    pub second: Option<PathBuf>,
    bin: PathBuf,
    shape: Shape,
    ports: Vec<u16>,
    running: Vec<(Role, Child)>,
    keep: bool,
}

/// `statfs` of a file system behind FUSE (linux/magic.h).
pub(crate) const FUSE_SUPER_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Which clusters over TCP have certificates: `off` none, another value all. Without it those with one mount have them, and those with two
/// mounts show that a site may do without.
pub const TLS_VARIABLE: &str = "STRIA_SUITE_TLS";
/// How long a role may take to be ready; recovery of a small cluster takes well under a second.
const READY: Duration = Duration::from_secs(30);

impl Cluster {
    /// Makes a new cluster below `parent` and waits until it is mounted.
    pub fn start(bin: &Path, parent: &Path, shape: Shape) -> Result<Cluster> {
        let dir = fresh_dir(parent)?;
        let mount = dir.join("mnt");
        fs::create_dir_all(&mount)?;
        let second = (shape.wiring == Wiring::Two).then(|| dir.join("mnt2"));
        if let Some(second) = &second {
            fs::create_dir_all(second)?;
        }
        let ports = free_ports(4 + shape.osts.div_ceil(2))?;
        let mut cluster = Cluster {
            dir,
            mount,
            second,
            bin: bin.to_owned(),
            shape,
            ports,
            running: Vec::new(),
            keep: false,
        };
        if cluster.shape.tls {
            cluster.make_certificates()?;
        }
        cluster.write_configs()?;
        if cluster.shape.wiring == Wiring::Pair {
            anyhow::ensure!(
                cluster.servers() > 1,
                "members of a mirror are on two servers: give it 3 OSTs or more"
            );
            cluster.make_members()?;
        }
        cluster.start_all()?;
        if cluster.shape.wiring == Wiring::Pair {
            cluster.wait_in_sync()?;
        }
        Ok(cluster)
    }

    /// Every role of this wiring, in start order.
    pub fn roles(&self) -> Vec<Role> {
        match self.shape.wiring {
            Wiring::Local => vec![Role::All],
            Wiring::Tcp | Wiring::Two | Wiring::Servers | Wiring::Pair => {
                let oss = (0..self.servers()).map(Role::Oss);
                let second_mds = (self.shape.wiring == Wiring::Pair).then_some(Role::SecondMds);
                let first = (self.shape.wiring != Wiring::Servers).then_some(Role::Mount);
                let second = self.second.iter().map(|_| Role::SecondMount);
                let second_mgs = (!self.shape.etcd.is_empty()).then_some(Role::SecondMgs);
                let mgs = [Role::Mgs].into_iter().chain(second_mgs);
                let servers = mgs.chain([Role::Mds]).chain(second_mds).chain(oss);
                servers.chain(first).chain(second).collect()
            }
        }
    }

    /// Object servers over TCP.
    fn servers(&self) -> usize {
        self.shape.osts.div_ceil(2)
    }
    /// Indices of the OSTs of an object server.
    fn osts_of(&self, server: usize) -> std::ops::Range<usize> {
        2 * server..(2 * server + 2).min(self.shape.osts)
    }

    pub fn wiring(&self) -> Wiring {
        self.shape.wiring
    }
    pub fn bin(&self) -> &Path {
        &self.bin
    }
    /// The directory that `stria --dir` takes (`Local` only).
    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("d")
    }

    pub fn start_all(&mut self) -> Result<()> {
        let (mounts, servers): (Vec<Role>, Vec<Role>) =
            self.roles().into_iter().partition(|role| matches!(role, Role::Mount | Role::SecondMount));
        for role in servers {
            // The first one makes the map in etcd, without which the second one does not start.
            if role == Role::SecondMgs {
                self.wait_for_line(Role::Mgs, "management service is ready")?;
            }
            self.start_role(role)?;
        }
        self.wait_registered()?;
        for role in mounts {
            self.start_role(role)?;
        }
        self.wait_mounted()
    }

    /// Starts one role; the caller waits for what it needs.
    pub fn start_role(&mut self, role: Role) -> Result<()> {
        if self.running.iter().any(|(r, _)| *r == role) {
            bail!("{role:?} runs already");
        }
        let mut command = Command::new(&self.bin);
        command.args(self.arguments(role)).stdin(Stdio::null());
        let log = File::options().create(true).append(true).open(self.log_path(role))?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("start {}", self.bin.display()))?;
        self.running.push((role, child));
        Ok(())
    }

    fn arguments(&self, role: Role) -> Vec<String> {
        let conf = |name: String| vec!["--config".into(), self.dir.join(name).display().to_string()];
        let mut args: Vec<String> = Vec::new();
        match role {
            Role::All => {
                args.extend(["up", "--foreground", "--dir"].map(String::from));
                args.push(self.state_dir().display().to_string());
                args.extend(["--mount".into(), self.mount.display().to_string()]);
                if !self.state_dir().exists() {
                    args.extend(["--osts".into(), self.shape.osts.to_string()]);
                    args.extend(["--ost-size".into(), self.shape.ost_size.clone()]);
                }
            }
            Role::Mgs => (args.push("mgs".into()), args.extend(conf("mgs.toml".into()))).1,
            Role::SecondMgs => (args.push("mgs".into()), args.extend(conf("mgs2.toml".into()))).1,
            Role::Mds => (args.push("mds".into()), args.extend(conf("mds.toml".into()))).1,
            Role::SecondMds => (args.push("mds".into()), args.extend(conf("mds2.toml".into()))).1,
            Role::Oss(n) => (args.push("oss".into()), args.extend(conf(format!("oss{n}.toml")))).1,
            Role::Mount => (args.push("mount".into()), args.extend(conf("mount.toml".into()))).1,
            Role::SecondMount => (args.push("mount".into()), args.extend(conf("mount2.toml".into()))).1,
        }
        // As an operator does: the first time only, so that a lost medium is never taken for a new one.
        let is_server = matches!(role, Role::Mgs | Role::Mds | Role::SecondMds | Role::Oss(_));
        if is_server && !self.log_path(role).exists() {
            args.push("--format".into());
        }
        args
    }

    /// The MGS of a cluster over TCP.
    pub fn mgs(&self) -> String {
        format!("127.0.0.1:{}@tcp0", self.ports[0])
    }

    /// All management services, the first one first.
    pub fn mgs_all(&self) -> Vec<String> {
        let second = self.ports.last().map(|port| format!("127.0.0.1:{port}@tcp0"));
        std::iter::once(self.mgs()).chain(second.filter(|_| !self.shape.etcd.is_empty())).collect()
    }

    fn make_certificates(&self) -> Result<()> {
        let (host, now) = ("host".parse()?, SystemTime::now());
        let mut authority = Authority::init(&self.dir.join("ca"), &"suite".parse()?, &host, now)?;
        authority.issue(pki::Role::Client, &host, 30, now)?;
        Ok(())
    }

    /// The folder with the certificate of a role. `None`: the cluster has no TLS.
    pub fn certificate(&self, role: pki::Role) -> Option<PathBuf> {
        self.shape.tls.then(|| self.dir.join(format!("ca/nodes/host.{role}")))
    }

    fn write_configs(&self) -> Result<()> {
        let tls = |role| match self.certificate(role) {
            Some(dir) => format!("tls = \"{}\"\n", dir.display()),
            // The machine may have certificates of its own.
            None => "tls = \"off\"\n".to_string(),
        };
        let (server, client) = (tls(pki::Role::Server), tls(pki::Role::Client));
        let (d, mgs) = (self.dir.display(), self.mgs_all().join("\", \""));
        let write = |name: &str, text: String| fs::write(self.dir.join(name), text);
        let map = match self.shape.etcd.is_empty() {
            true => format!("dir = \"{d}/mgs\"\n"),
            false => {
                format!("etcd = [\"{}\"]\netcd_prefix = \"/stria/suite\"\n", self.shape.etcd.join("\", \""))
            }
        };
        let last = self.ports.last().unwrap_or(&0);
        for (name, port) in [("mgs.toml", &self.ports[0]), ("mgs2.toml", last)] {
            write(name, format!("listen = \"127.0.0.1:{port}\"\n{map}{server}"))?;
        }
        let is_pair = self.shape.wiring == Wiring::Pair;
        let mds = |member: usize, port: u16, more: &str| {
            format!(
                "mgs = [\"{mgs}\"]\nfsname = \"stria\"\ndevice = \"{d}/mdt0{}.img\"\nsize = \"4G\"\nlisten = \"127.0.0.1:{port}\"\n{more}{server}",
                if member == 0 { "" } else { ".second" },
            )
        };
        let servers = self.servers();
        write("mds.toml", mds(0, self.ports[1], ""))?;
        if is_pair {
            write(
                "mds2.toml",
                mds(1, self.ports[2 + servers], "second = true\nfailure_domain = \"none\"\n"),
            )?;
        }
        let listed = |server: usize, is_second: bool| {
            let quoted =
                self.osts_of(server).map(|i| format!("\"{}\"", self.ost_image(i, is_second).display()));
            quoted.collect::<Vec<_>>().join(", ")
        };
        for n in 0..servers {
            let second = match is_pair {
                true => format!(
                    "failure_domain = \"none\"\nsecond_devices = [{}]\n",
                    listed((n + 1) % servers, true)
                ),
                false => String::new(),
            };
            write(
                &format!("oss{n}.toml"),
                format!(
                    "mgs = [\"{mgs}\"]\nfsname = \"stria\"\ndevices = [{}]\n{second}size = \"{}\"\nlisten = \"127.0.0.1:{}\"\n{server}",
                    listed(n, false),
                    self.shape.ost_size,
                    self.ports[2 + n]
                ),
            )?;
        }
        for (name, mount) in [("mount.toml", Some(&self.mount)), ("mount2.toml", self.second.as_ref())] {
            if let Some(mount) = mount {
                let m = mount.display();
                write(
                    name,
                    format!("mgs = [\"{mgs}\"]\nfsname = \"stria\"\nmountpoint = \"{m}\"\n{client}"),
                )?;
            }
        }
        Ok(())
    }

    fn ost_image(&self, index: usize, is_second: bool) -> PathBuf {
        self.dir.join(format!("ost{index}{}.img", if is_second { ".second" } else { "" }))
    }

    /// Formats the OSTs of a pair with their indices: a second member needs that of the first one before both register.
    fn make_members(&self) -> Result<()> {
        for (index, is_second) in (0..self.shape.osts).flat_map(|index| [(index, false), (index, true)]) {
            let image = self.ost_image(index, is_second).display().to_string();
            let (code, out) = self.stria(&[
                "mkfs",
                "ost",
                &image,
                "--fsname",
                "stria",
                "--size",
                &self.shape.ost_size,
                "--index",
                &index.to_string(),
            ])?;
            anyhow::ensure!(code == 0, "mkfs of {image}: {out}");
        }
        Ok(())
    }

    /// Waits until both members of each mirror of a pair are in sync.
    pub fn wait_in_sync(&mut self) -> Result<()> {
        let until = Instant::now() + READY;
        loop {
            let (_, text) = self.stria(&["mirror", "list", "-j", "--mgs", &self.mgs()])?;
            let found: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            let mirrors = found.as_array().map_or(&[][..], Vec::as_slice);
            // One MDT.
            if mirrors.len() == self.shape.osts + 1 && mirrors.iter().all(is_in_sync) {
                return Ok(());
            }
            self.fail_if_ended()?;
            if Instant::now() > until {
                bail!("not in sync within {READY:?}: {text}: see the logs in {}", self.dir.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn log_path(&self, role: Role) -> PathBuf {
        self.dir.join(match role {
            Role::All => "all.log".to_owned(),
            Role::Mgs => "mgs.log".to_owned(),
            Role::SecondMgs => "mgs2.log".to_owned(),
            Role::Mds => "mds.log".to_owned(),
            Role::SecondMds => "mds2.log".to_owned(),
            Role::Oss(n) => format!("oss{n}.log"),
            Role::Mount => "mount.log".to_owned(),
            Role::SecondMount => "mount2.log".to_owned(),
        })
    }

    /// The mounts, the first one first.
    pub fn mounts(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.mount).chain(&self.second)
    }

    /// Waits until every OSS has logged once that its OSTs serve. A mount that attaches earlier learns of later OSTs only after a delay,
    /// so the set that it knows would depend on timing. A log line of an earlier run counts: the MGS remembers its targets.
    fn wait_registered(&mut self) -> Result<()> {
        let servers: Vec<Role> = self.roles().into_iter().filter(|r| matches!(r, Role::Oss(_))).collect();
        servers.into_iter().try_for_each(|role| self.wait_for_line(role, ": ready "))
    }

    fn wait_for_line(&mut self, role: Role, line: &str) -> Result<()> {
        let until = Instant::now() + READY;
        while !fs::read_to_string(self.log_path(role)).unwrap_or_default().contains(line) {
            self.fail_if_ended()?;
            if Instant::now() > until {
                bail!("{role:?} is not ready within {READY:?}: see the logs in {}", self.dir.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn fail_if_ended(&mut self) -> Result<()> {
        let mut ended = None;
        for (role, child) in &mut self.running {
            ended = ended.or(child.try_wait()?.map(|status| (*role, status)));
        }
        match ended {
            Some((role, status)) => {
                let log = fs::read_to_string(self.log_path(role)).unwrap_or_default();
                bail!("{role:?} ended at start: {status}\n{log}")
            }
            None => Ok(()),
        }
    }

    /// Waits until every mount answers.
    pub fn wait_mounted(&mut self) -> Result<()> {
        if self.shape.wiring == Wiring::Servers {
            return Ok(());
        }
        let until = Instant::now() + READY;
        loop {
            // Not `stat`: the kernel may answer it from its cache although the server is dead.
            // The answer must come from FUSE: once a dead mount is detached, the directory below it answers.
            let answers = |m: &PathBuf| rustix::fs::statfs(m).is_ok_and(|s| s.f_type == FUSE_SUPER_MAGIC);
            if self.mounts().all(|m| is_mounted(m) && answers(m)) {
                return Ok(());
            }
            self.fail_if_ended()?;
            if Instant::now() > until {
                bail!("not mounted within {READY:?}: see the logs in {}", self.dir.display());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, role: Role) -> Result<()> {
        let at = self
            .running
            .iter()
            .position(|(r, _)| *r == role)
            .with_context(|| format!("{role:?} does not run"))?;
        let (_, mut child) = self.running.remove(at);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// `kill -9` of a process that the kernel may keep for a while. It counts as running until `has_ended` says otherwise.
    pub fn kill_without_wait(&self, role: Role) -> Result<()> {
        self.signal_role(role, Signal::KILL)
    }

    /// The end of a process that ended by itself; it may be started again then.
    pub fn has_ended(&mut self, role: Role) -> Result<Option<ExitStatus>> {
        let Some(at) = self.running.iter().position(|(r, _)| *r == role) else {
            bail!("{role:?} does not run")
        };
        let ended = self.running[at].1.try_wait()?;
        if ended.is_some() {
            self.running.remove(at);
        }
        Ok(ended)
    }

    /// Stops a role as an operator does (SIGTERM); fails if it takes longer than `within`.
    pub fn terminate(&mut self, role: Role, within: Duration) -> Result<()> {
        let at = self
            .running
            .iter()
            .position(|(r, _)| *r == role)
            .with_context(|| format!("{role:?} does not run"))?;
        let (_, mut child) = self.running.remove(at);
        signal(&child, Signal::TERM)?;
        let until = Instant::now() + within;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                bail!("{role:?} did not end within {within:?} of SIGTERM");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// SIGSTOP: the process hangs but its connections stay.
    pub fn freeze(&self, role: Role) -> Result<()> {
        self.signal_role(role, Signal::STOP)
    }
    pub fn thaw(&self, role: Role) -> Result<()> {
        self.signal_role(role, Signal::CONT)
    }

    fn signal_role(&self, role: Role, what: Signal) -> Result<()> {
        let (_, child) = self
            .running
            .iter()
            .find(|(r, _)| *r == role)
            .with_context(|| format!("{role:?} does not run"))?;
        signal(child, what)
    }

    pub fn pid(&self, role: Role) -> Option<u32> {
        self.running.iter().find(|(r, _)| *r == role).map(|(_, c)| c.id())
    }

    /// Stops everything cleanly, the mount first, then starts it again.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_all()
    }

    pub fn stop(&mut self) -> Result<()> {
        for role in self.roles().into_iter().rev() {
            if self.pid(role).is_some() {
                self.terminate(role, Duration::from_secs(20))?;
            }
        }
        Ok(())
    }

    /// `kill -9` of every process at once, the dead mount cleared, everything started again.
    pub fn kill_all_and_start(&mut self) -> Result<()> {
        for (_, child) in &mut self.running {
            child.kill()?;
        }
        for (_, mut child) in self.running.drain(..) {
            child.wait()?;
        }
        self.start_all()
    }

    /// Keeps the directory for inspection.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Runs `stria` with arguments; gives exit code and both outputs.
    pub fn stria(&self, args: &[&str]) -> Result<(i32, String)> {
        let tls = self.certificate(pki::Role::Admin).unwrap_or("off".into());
        let out = Command::new(&self.bin).args(args).env("STRIA_TLS", tls).stdin(Stdio::null()).output()?;
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Ok((out.status.code().unwrap_or(-1), text))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            let _ = signal(child, Signal::CONT);
            let _ = child.kill();
            let _ = child.wait();
        }
        for mount in self.mounts() {
            while is_mounted(mount) {
                if unmount(mount, UnmountFlags::DETACH).is_err() {
                    break;
                }
            }
        }
        if !self.keep && !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Does a mirror, as `stria mirror list -j` shows it, have two members in sync?
pub fn is_in_sync(mirror: &serde_json::Value) -> bool {
    let members = mirror["members"].as_array().map_or(&[][..], Vec::as_slice);
    members.len() == 2 && members.iter().all(|member| member["state"] == "in sync")
}

fn signal(child: &Child, what: Signal) -> Result<()> {
    let pid = Pid::from_raw(child.id() as i32).context("pid")?;
    Ok(kill_process(pid, what)?)
}

/// Looks in the mount table only: asking the path itself could hang on a dead server.
pub fn is_mounted(path: &Path) -> bool {
    let wanted = path.to_string_lossy();
    fs::read_to_string("/proc/self/mountinfo")
        .map(|t| t.lines().any(|l| l.split(' ').nth(4) == Some(&*wanted)))
        .unwrap_or(false)
}

fn fresh_dir(parent: &Path) -> Result<PathBuf> {
    fs::create_dir_all(parent)?;
    for n in 0..10_000 {
        let dir = parent.join(format!("c{}-{n}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e).with_context(|| dir.display().to_string()),
        }
    }
    bail!("no free name below {}", parent.display())
}

/// Ports that were free a moment ago on loopback.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|l| Ok(l.local_addr()?.port())).collect()
}
