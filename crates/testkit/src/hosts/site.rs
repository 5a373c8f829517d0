//! Real processes on hosts: management services, servers, mounts and routers, with certificates, from a `Plan`.
//!
//! testkit-S1: only processes that were started here are ever signalled, by their pid. Dropping a site ends them, unmounts, removes its
//! directory and then its hosts, whatever state they are in.
//! testkit-S2: a part is ready when the run that was started last has logged so, not an earlier one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::config;
use super::plan::{Part, Plan};
use super::tool::{is_alive, owner_of, unmount_below};
use super::{Host, Hosts};
use crate::cluster::{FUSE_SUPER_MAGIC, is_mounted};

/// How long a part may take to be ready. Recovery of a small file system takes well under a second.
const READY: Duration = Duration::from_secs(30);
const LOOK_EACH: Duration = Duration::from_millis(5);
/// Longest clean stop of a part by `stop_all`.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Lines of a log that an error shows.
const TAIL_LINES: usize = 15;
/// Begins the name of a site's directory.
const PREFIX: &str = "site-";

struct Run {
    child: Child,
    /// Where the log of this run begins.
    log_start: u64,
}

/// Processes on hosts, until it is dropped.
pub struct Site {
    hosts: Hosts,
    plan: Plan,
    bin: PathBuf,
    dir: PathBuf,
    running: BTreeMap<Part, Run>,
    /// Servers that moved, with their present hosts. Their files stay where they are.
    moved: BTreeMap<Part, String>,
    keep: bool,
}

impl Site {
    /// Makes hosts, certificates and configurations in a new directory below `parent`. Nothing runs yet.
    pub fn make(bin: &Path, parent: &Path, plan: Plan) -> Result<Site> {
        plan.check()?;
        let hosts = Hosts::make(plan.spec())?;
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let parent = parent.canonicalize()?;
        remove_stale(&parent);
        let dir = fresh_dir(&parent)?;
        let bin = bin.canonicalize().with_context(|| bin.display().to_string())?;
        let site =
            Site { hosts, plan, bin, dir, running: BTreeMap::new(), moved: BTreeMap::new(), keep: false };
        for host in site.hosts.hosts() {
            let dir = site.host_dir(host.name());
            fs::create_dir_all(dir.join(site.plan.image_folder(host.name())))?;
        }
        site.make_certificates()?;
        for part in site.plan.parts() {
            site.configure(&part)?;
        }
        Ok(site)
    }

    /// `make` and `start_all`, for a plan without routers.
    pub fn start(bin: &Path, parent: &Path, plan: Plan) -> Result<Site> {
        let mut site = Site::make(bin, parent, plan)?;
        site.start_all()?;
        Ok(site)
    }

    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }
    pub fn host(&self, name: &str) -> Result<&Host> {
        Ok(self.hosts.host(name)?)
    }
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    pub fn bin(&self) -> &Path {
        &self.bin
    }
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// Configurations, logs, images and mount points of a host.
    pub fn host_dir(&self, host: &str) -> PathBuf {
        self.dir.join(host)
    }

    /// Where a host has mounted a file system.
    pub fn mount(&self, fs: &str, host: &str) -> Result<PathBuf> {
        let part = Part::mount(fs, host);
        ensure!(self.plan.parts().contains(&part), "the site has no {part}");
        Ok(self.mount_point(&part, host))
    }
    fn mount_point(&self, part: &Part, host: &str) -> PathBuf {
        config::mount_point(part, &self.host_dir(host))
    }

    /// The CA of a cluster, as `stria cluster --dir` takes it.
    pub fn authority(&self, cluster: &str) -> PathBuf {
        self.dir.join(format!("ca-{cluster}"))
    }
    /// The folder of a certificate. `None`: the site has no TLS.
    pub fn certificate(&self, cluster: &str, role: pki::Role, host: &str) -> Option<PathBuf> {
        self.plan.has_tls().then(|| self.authority(cluster).join(format!("nodes/{host}.{role}")))
    }

    fn make_certificates(&self) -> Result<()> {
        if !self.plan.has_tls() {
            return Ok(());
        }
        for (cluster, mgs_host) in self.plan.clusters() {
            let dir = self.authority(cluster).display().to_string();
            // It makes an administrator's and a server's certificate of this host.
            self.make_certificate(&["init", "--name", cluster, "--node", mgs_host, "--dir", &dir])?;
            let mut made = vec![(mgs_host.to_owned(), pki::Role::Server)];
            for part in self.plan.parts() {
                let role = match part {
                    Part::Router { .. } => pki::Role::Router,
                    Part::Mount { .. } => pki::Role::Client,
                    Part::Mgs { .. } | Part::Mds { .. } | Part::Oss { .. } => pki::Role::Server,
                };
                let node = (self.plan.host_of(&part)?.to_owned(), role);
                if part.place().0.is_some_and(|c| c != cluster) || made.contains(&node) {
                    continue;
                }
                let (host, role) = (&*node.0, node.1.as_str());
                self.make_certificate(&["add-node", host, "--role", role, "--dir", &dir])?;
                made.push(node);
            }
        }
        Ok(())
    }

    fn make_certificate(&self, args: &[&str]) -> Result<()> {
        let out = Command::new(&self.bin).arg("cluster").args(args).stdin(Stdio::null()).output();
        let out = out.with_context(|| self.bin.display().to_string())?;
        ensure!(out.status.success(), "stria cluster {}: {}", args.join(" "), words(&out));
        Ok(())
    }

    fn configure(&self, part: &Part) -> Result<()> {
        let host = self.plan.host_of(part)?;
        let role = match part {
            Part::Router { .. } => {
                let certificate = |cluster: &str| self.certificate(cluster, pki::Role::Router, host);
                let text = config::router_text(&self.plan, host, &self.host_dir(host), certificate)?;
                return self.configure_router(host, &text);
            }
            Part::Mount { .. } => {
                fs::create_dir_all(self.mount_point(part, host))?;
                pki::Role::Client
            }
            Part::Mgs { .. } | Part::Mds { .. } | Part::Oss { .. } => pki::Role::Server,
        };
        let tls = part.place().0.and_then(|cluster| self.certificate(cluster, role, host));
        let text = config::text(&self.plan, part, &self.host_dir(host), tls.as_deref())?;
        Ok(fs::write(self.config_path(part)?, text)?)
    }

    /// Replaces the configuration of a router, before its next start.
    pub fn configure_router(&self, host: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.config_path(&Part::router(host))?, text)?)
    }

    /// Has an OSS start on another host from now on, at that host's addresses and with its certificate, as with drives that both hosts reach.
    pub fn move_to(&mut self, part: &Part, host: &str) -> Result<()> {
        ensure!(!self.running.contains_key(part), "stop the {part} before it moves");
        let Part::Oss { fs, .. } = part else { bail!("{part} has no addresses to move to") };
        ensure!(!part.is_second(), "{part} does not move");
        let there = Part::oss(fs, host);
        let cluster = part.place().0.context("an OSS has a cluster")?;
        let tls = self.certificate(cluster, pki::Role::Server, host);
        let files = self.host_dir(self.plan.host_of(part)?);
        let text = config::moved_text(&self.plan, (part, &there), &files, tls.as_deref())?;
        fs::write(self.config_path(part)?, text)?;
        self.moved.insert(part.clone(), host.to_owned());
        Ok(())
    }

    /// The host on which a part runs.
    fn place_of<'a>(&'a self, part: &'a Part) -> Result<&'a str> {
        match self.moved.get(part) {
            Some(host) => Ok(host),
            None => self.plan.host_of(part),
        }
    }

    pub fn config_path(&self, part: &Part) -> Result<PathBuf> {
        Ok(self.host_dir(self.plan.host_of(part)?).join(format!("{}.toml", part.file_stem())))
    }
    pub fn log_path(&self, part: &Part) -> Result<PathBuf> {
        Ok(self.host_dir(self.plan.host_of(part)?).join(format!("{}.log", part.file_stem())))
    }

    /// Starts what does not run, and waits until it is ready: routers, management services, servers, mounts.
    pub fn start_all(&mut self) -> Result<()> {
        let stage = |part: &Part| match part {
            Part::Router { .. } => 0,
            Part::Mgs { .. } => 1,
            Part::Mds { .. } | Part::Oss { .. } => 2,
            Part::Mount { .. } => 3,
        };
        for now in 0..=3 {
            let mut parts = self.plan.parts();
            parts.retain(|part| stage(part) == now && !self.running.contains_key(part));
            for part in &parts {
                let is_first = !self.log_path(part)?.exists();
                self.start_without_wait(part)?;
                // Targets get their indices in the order of the plan.
                if is_first && now == 2 {
                    self.wait_ready(part)?;
                }
            }
            parts.iter().try_for_each(|part| self.wait_ready(part))?;
        }
        Ok(())
    }

    /// Starts a part and waits until it is ready.
    pub fn start_part(&mut self, part: &Part) -> Result<()> {
        self.start_without_wait(part)?;
        self.wait_ready(part)
    }

    pub fn start_without_wait(&mut self, part: &Part) -> Result<()> {
        ensure!(!self.running.contains_key(part), "{part} runs already");
        let host = self.place_of(part)?;
        let (log_path, config) = (self.log_path(part)?, self.config_path(part)?);
        ensure!(config.exists(), "{part} has no configuration: call Site::configure_router");
        let mut command = self.command(host, &self.bin)?;
        command.args([part.verb(), "--config"]).arg(config);
        // As an operator does: the first time only, so that a lost medium is never taken for a new one.
        if matches!(part, Part::Mgs { .. } | Part::Mds { .. } | Part::Oss { .. }) && !log_path.exists() {
            command.arg("--format");
        }
        if part.is_second() && !log_path.exists() {
            self.make_second_devices(part, host)?;
        }
        let mut log = File::options().create(true).append(true).open(&log_path)?;
        let log_start = log.seek(SeekFrom::End(0))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("start the {part}"))?;
        self.running.insert(part.clone(), Run { child, log_start });
        Ok(())
    }

    /// A second member needs the index of the first one before it registers.
    fn make_second_devices(&self, part: &Part, host: &str) -> Result<()> {
        let (_, name) = part.place();
        let dir = self.host_dir(self.plan.host_of(part)?);
        for (device, index) in config::devices(&self.plan, part, &dir)?.iter().zip(self.plan.indices_of(part))
        {
            let mut command = self.command(host, &self.bin)?;
            command.args(["mkfs", "ost"]).arg(device).args(["--fsname", name.unwrap_or_default()]);
            command.args(["--size", self.plan.ost_size(), "--index", &index.to_string()]);
            let out = command.stdin(Stdio::null()).output()?;
            ensure!(out.status.success(), "mkfs of {part}: {}", words(&out));
        }
        Ok(())
    }

    pub fn wait_ready(&mut self, part: &Part) -> Result<()> {
        let until = Instant::now() + READY;
        while !self.is_ready(part)? {
            if let Some(status) = self.has_ended(part)? {
                bail!("{part} ended at start: {status}\n{}", self.log_tail(part));
            }
            if Instant::now() > until {
                bail!("{part} is not ready within {READY:?}\n{}", self.log_tails());
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(())
    }

    fn is_ready(&self, part: &Part) -> Result<bool> {
        let run = self.running.get(part).with_context(|| format!("{part} does not run"))?;
        let mut log = File::open(self.log_path(part)?)?;
        log.seek(SeekFrom::Start(run.log_start))?;
        let mut said = Vec::new();
        log.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said);
        let Part::Mount { host, .. } = part else {
            return Ok(said.contains(": ready ") || said.contains(" is ready "));
        };
        // As `Cluster::wait_mounted`: not `stat`, which the kernel may answer from its cache although the process is dead.
        let point = self.mount_point(part, host);
        let answers = || rustix::fs::statfs(&point).is_ok_and(|s| s.f_type == FUSE_SUPER_MAGIC);
        Ok(said.contains(": mounted ") && is_mounted(&point) && answers())
    }

    /// A command on a host with the environment of its parts.
    pub fn command(&self, host: &str, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = self.host(host)?.command(program);
        command.env("STRIA_NETS", self.plan.nets_of(host).join(","));
        let routes = self.plan.routes()?;
        if !routes.is_empty() {
            let texts: Vec<String> = routes.iter().map(ToString::to_string).collect();
            command.env("STRIA_ROUTES", texts.join("; "));
        }
        command.envs(self.plan.variables_of(host).iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// `stria` on a host, with the certificate of a cluster's administrator; gives exit code and both outputs.
    pub fn stria(&self, host: &str, cluster: &str, args: &[&str]) -> Result<(i32, String)> {
        let mut command = self.command(host, &self.bin)?;
        command.env("STRIA_TLS", self.administrator(cluster)?);
        let out = command.args(args).stdin(Stdio::null()).output()?;
        Ok((out.status.code().unwrap_or(-1), words(&out)))
    }

    /// The value of `STRIA_TLS` for an administrator of a cluster.
    pub fn administrator(&self, cluster: &str) -> Result<PathBuf> {
        let mgs = Part::mgs(cluster);
        let folder = self.certificate(cluster, pki::Role::Admin, self.plan.host_of(&mgs)?);
        Ok(folder.unwrap_or("off".into()))
    }

    /// The parts on a host that run.
    pub fn running_on(&self, host: &str) -> Vec<Part> {
        let on = |part: &&Part| self.place_of(part).is_ok_and(|h| h == host);
        self.running.keys().filter(on).cloned().collect()
    }
    pub fn pid(&self, part: &Part) -> Option<u32> {
        self.running.get(part).map(|run| run.child.id())
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, part: &Part) -> Result<()> {
        let mut run = self.running.remove(part).with_context(|| format!("{part} does not run"))?;
        run.child.kill()?;
        run.child.wait()?;
        Ok(())
    }
    /// `kill -9` of everything on a host at once, as when it loses its power.
    pub fn kill_host(&mut self, host: &str) -> Result<Vec<Part>> {
        let parts = self.running_on(host);
        parts.iter().try_for_each(|part| self.signal(part, Signal::KILL))?;
        parts.iter().try_for_each(|part| self.kill(part))?;
        Ok(parts)
    }

    /// Stops a part as an operator does (SIGTERM); fails if it takes longer than `within`.
    pub fn stop(&mut self, part: &Part, within: Duration) -> Result<()> {
        self.signal(part, Signal::TERM)?;
        self.await_end(part, within)
    }
    /// Waits for a process that was signalled to end.
    pub fn await_end(&mut self, part: &Part, within: Duration) -> Result<()> {
        let until = Instant::now() + within;
        while self.has_ended(part)?.is_none() {
            if Instant::now() > until {
                self.kill(part)?;
                bail!("{part} did not end within {within:?} of SIGTERM\n{}", self.log_tail(part));
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(())
    }
    /// Stops everything cleanly, the mounts first.
    pub fn stop_all(&mut self) -> Result<()> {
        let parts: Vec<Part> = self.running.keys().rev().cloned().collect();
        parts.iter().try_for_each(|part| self.stop(part, STOP_MAX))
    }

    /// SIGSTOP: the process hangs but its connections stay.
    pub fn freeze(&self, part: &Part) -> Result<()> {
        self.signal(part, Signal::STOP)
    }
    pub fn thaw(&self, part: &Part) -> Result<()> {
        self.signal(part, Signal::CONT)
    }
    pub fn signal(&self, part: &Part, what: Signal) -> Result<()> {
        let run = self.running.get(part).with_context(|| format!("{part} does not run"))?;
        Ok(kill_process(Pid::from_raw(run.child.id() as i32).context("pid")?, what)?)
    }

    /// The end of a process that ended by itself; it may be started again then.
    pub fn has_ended(&mut self, part: &Part) -> Result<Option<ExitStatus>> {
        let run = self.running.get_mut(part).with_context(|| format!("{part} does not run"))?;
        let ended = run.child.try_wait()?;
        if ended.is_some() {
            self.running.remove(part);
        }
        Ok(ended)
    }

    /// Fails, with the end of its log, if a part that was started has ended.
    pub fn ensure_all_run(&mut self) -> Result<()> {
        for part in self.running.keys().cloned().collect::<Vec<_>>() {
            if let Some(status) = self.has_ended(&part)? {
                bail!("{part} has ended: {status}\n{}", self.log_tail(&part));
            }
        }
        Ok(())
    }

    pub fn log(&self, part: &Part) -> Result<String> {
        let path = self.log_path(part)?;
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }
    /// The last lines of a part's log, under its path.
    pub fn log_tail(&self, part: &Part) -> String {
        let path = self.log_path(part).map(|path| path.display().to_string()).unwrap_or_default();
        let text = self.log(part).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!("{path}:\n  {}", tail.join("\n  "))
    }
    /// The last lines of all logs.
    pub fn log_tails(&self) -> String {
        let parts = self.plan.parts();
        parts.iter().map(|part| self.log_tail(part)).collect::<Vec<_>>().join("\n")
    }

    /// Keeps the directory for inspection.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for run in self.running.values_mut() {
            let _ = run.child.kill();
        }
        for run in self.running.values_mut() {
            let _ = run.child.wait();
        }
        let is_free = unmount_below(&self.dir);
        if is_free && !self.keep && !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn fresh_dir(parent: &Path) -> Result<PathBuf> {
    for n in 0..10_000 {
        let dir = parent.join(format!("{PREFIX}{}-{n}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e).with_context(|| dir.display().to_string()),
        }
    }
    bail!("no free name below {}", parent.display())
}

fn words(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Removes directories of processes that are gone, unless something that is mounted there stays.
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let owner = entry.file_name().to_str().and_then(|name| owner_of(name, PREFIX));
        let is_stale = owner.is_some_and(|pid| !is_alive(pid));
        if is_stale && unmount_below(&entry.path()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}
