//! Cuts of the network: each server and the mount are hosts of their own (network namespaces on one bridge), and a host's link goes away under
//! load.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::{Wiring, is_mounted};

use super::semantics::wait_until;
use super::sys::run;
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("cut::calls_go_on_after_a_link_was_away", link_away))];

/// How long a link is away.
const AWAY: Duration = Duration::from_secs(2);
/// Longest stall that the test accepts. The bar, which is reported and not asserted, is 4 s.
const STALL_MAX: Duration = Duration::from_secs(20);
const BAR: Duration = Duration::from_secs(4);
/// Direct reads and writes.
const PAGE: usize = 4096;

/// Hosts on one bridge; removed when dropped.
struct Net {
    /// Begins the names of its namespaces.
    name: String,
    hosts: Vec<&'static str>,
}

impl Net {
    fn new(hosts: &[&'static str]) -> Result<Net> {
        let net = Net { name: format!("stria{}", std::process::id()), hosts: hosts.to_vec() };
        let bridge = net.ns("bridge");
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for (n, host) in hosts.iter().enumerate() {
            let ns = net.ns(host);
            ip(&["netns", "add", &ns])?;
            ip(&["-n", &ns, "link", "set", "lo", "up"])?;
            ip(&["-n", &ns, "link", "add", "eth0", "type", "veth", "peer", "name", host, "netns", &bridge])?;
            ip(&["-n", &bridge, "link", "set", host, "master", "br0", "up"])?;
            ip(&["-n", &ns, "addr", "add", &format!("{}/24", address(n)), "dev", "eth0"])?;
            ip(&["-n", &ns, "link", "set", "eth0", "up"])?;
        }
        Ok(net)
    }

    fn ns(&self, host: &str) -> String {
        format!("{}-{host}", self.name)
    }

    /// The bridge's end of a host's link: the host itself sees nothing but silence.
    fn set(&self, host: &str, state: &str) -> Result<()> {
        ip(&["-n", &self.ns("bridge"), "link", "set", host, state])
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in self.hosts.iter().chain(&["bridge"]) {
            // One that was not made yet needs no removal.
            let _ = ip(&["netns", "delete", &self.ns(host)]);
        }
    }
}

fn ip(args: &[&str]) -> Result<()> {
    run("ip", args, Path::new("/")).map(drop)
}

fn address(n: usize) -> String {
    format!("10.99.0.{}", n + 1)
}

/// A process on a host.
struct Process(Child);

impl Process {
    fn start(net: &Net, host: &str, bin: &Path, args: &[&str], log: &Path) -> Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        // Only the network is the host's: a mount is seen everywhere.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", net.ns(host))).arg("--").arg(bin).args(args);
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Process(command.spawn().context("nsenter (util-linux)")?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(15);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The longest call of each kind.
struct Stall {
    kind: &'static str,
    calls: u64,
    longest: Duration,
    error: Option<String>,
}

type Call = (&'static str, fn(&Path, u64) -> Result<()>);

const CALLS: &[Call] = &[
    ("lookup", |dir, n| match fs::symlink_metadata(dir.join(format!("none{n}"))) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => bail!("{other:?}"),
    }),
    ("create", |dir, n| {
        File::create_new(dir.join(format!("c{n}")))?;
        Ok(())
    }),
    ("write and fsync", |dir, n| {
        let mut file = File::create(dir.join(format!("w{}", n % 8)))?;
        file.write_all(&[n as u8; 100_000])?;
        Ok(file.sync_all()?)
    }),
    ("rename", |dir, n| {
        let (from, to) = (dir.join("from"), dir.join("to"));
        let (from, to) = if n % 2 == 0 { (from, to) } else { (to, from) };
        Ok(fs::rename(from, to)?)
    }),
    ("direct read", |dir, n| {
        let file = OpenOptions::new().read(true).custom_flags(DIRECT).open(dir.join("data"))?;
        let mut buf = vec![0u8; 2 * PAGE];
        let at = PAGE - buf.as_ptr() as usize % PAGE;
        Ok(file.read_exact_at(&mut buf[at..at + PAGE], n % 256 * PAGE as u64)?)
    }),
];

/// `O_DIRECT`.
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// Makes calls of each kind, one thread each, while `during` runs.
fn under_load(mount: &Path, during: impl FnOnce() -> Result<()>) -> Result<Vec<Stall>> {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = &ends;
        let load = |(kind, call): &'static Call| {
            let mut stall = Stall { kind, calls: 0, longest: Duration::ZERO, error: None };
            let dir = mount.join(kind.replace(' ', "-"));
            while !ends.load(Ordering::SeqCst) && stall.error.is_none() {
                let begin = Instant::now();
                stall.error = call(&dir, stall.calls).err().map(|e| format!("{e:#}"));
                stall.longest = stall.longest.max(begin.elapsed());
                stall.calls += 1;
            }
            stall
        };
        let loads: Vec<_> = CALLS.iter().map(|call| scope.spawn(move || load(call))).collect();
        let outcome = during();
        ends.store(true, Ordering::SeqCst);
        let stalls = loads.into_iter().map(|load| load.join().expect("a call does not panic")).collect();
        outcome.map(|()| stalls)
    })
}

/// [S-deadline] The link of a server's host is away for 2 s: calls wait, and go on without an error.
fn link_away(b: &mut Bench) -> Result<()> {
    let net = match Net::new(&["mgs", "mds", "oss", "client"]) {
        Ok(net) => net,
        Err(e) => return skip(format!("no network namespaces here: {e:#}")),
    };
    let dir = b.cluster.dir.join("cut");
    fs::create_dir_all(&dir)?;
    let mount = dir.join("mnt");
    fs::create_dir_all(&mount)?;
    let (d, m) = (dir.display(), mount.display());
    let mgs = format!("{}:7010@tcp0", address(0));
    let listen = |n: usize| format!("listen = \"{}:7010\"\n", address(n));
    let common = format!("tls = \"off\"\nmgs = [\"{mgs}\"]\nfsname = \"cut\"\n");
    let configs = [
        ("mgs", format!("tls = \"off\"\n{}dir = \"{d}/mgs\"\n", listen(0))),
        ("mds", format!("{common}{}device = \"{d}/mdt.img\"\nsize = \"1G\"\n", listen(1))),
        ("oss", format!("{common}{}devices = [\"{d}/ost.img\"]\nsize = \"2G\"\n", listen(2))),
        ("mount", format!("{common}mountpoint = \"{m}\"\n")),
    ];
    let mut processes = Vec::new();
    for (role, text) in &configs {
        let config = dir.join(format!("{role}.toml"));
        fs::write(&config, text)?;
        let host = if *role == "mount" { "client" } else { role };
        let (log, config) = (dir.join(format!("{role}.log")), config.display().to_string());
        let mut args = vec![*role, "--config", &config];
        args.extend((*role != "mount").then_some("--format"));
        processes.push(Process::start(&net, host, b.cluster.bin(), &args, &log)?);
        wait_until(&format!("{role} is up: {}", log.display()), || match *role {
            "mount" => Ok(is_mounted(&mount)),
            _ => Ok(fs::read_to_string(&log)?.contains("ready")),
        })?;
    }
    let outcome = cut_each(&net, &mount);
    run("umount", &[&mount.display().to_string()], Path::new("/"))?;
    // The mount first, the management service last.
    while let Some(process) = processes.pop() {
        drop(process);
    }
    outcome?;
    Ok(fs::remove_dir_all(&dir)?)
}

fn cut_each(net: &Net, mount: &Path) -> Result<()> {
    for (kind, _) in CALLS {
        fs::create_dir_all(mount.join(kind.replace(' ', "-")))?;
    }
    let data: PathBuf = mount.join("direct-read/data");
    fs::write(data, vec![7u8; 256 * PAGE])?;
    fs::write(mount.join("rename/from"), "content")?;
    for host in ["mds", "oss"] {
        let stalls = under_load(mount, || {
            std::thread::sleep(Duration::from_millis(500));
            net.set(host, "down")?;
            std::thread::sleep(AWAY);
            net.set(host, "up")?;
            std::thread::sleep(AWAY * 2);
            Ok(())
        })?;
        let mut line = format!("link of the {host} away for {} s; longest stalls:", AWAY.as_secs());
        for stall in &stalls {
            line += &format!(" {} {:.1} s,", stall.kind, stall.longest.as_secs_f64());
        }
        let over = stalls.iter().filter(|stall| stall.longest > BAR).count();
        println!("       {line} {over} over the bar of {} s", BAR.as_secs());
        for stall in stalls {
            ensure!(stall.error.is_none(), "{host}, {}: {:?}", stall.kind, stall.error);
            ensure!(stall.longest < STALL_MAX, "{host}, {}: {:?}", stall.kind, stall.longest);
            ensure!(stall.calls > 10, "{host}, {}: {} calls", stall.kind, stall.calls);
        }
        for (kind, _) in CALLS {
            // The next round's names are free.
            let dir = mount.join(kind.replace(' ', "-"));
            if *kind == "create" {
                fs::remove_dir_all(&dir)?;
                fs::create_dir(&dir)?;
            }
        }
        let rename = mount.join("rename");
        if !rename.join("from").exists() {
            fs::rename(rename.join("to"), rename.join("from"))?;
        }
    }
    Ok(())
}
