//! Cuts of the network: each server and the mount are on hosts of their own (`testkit::hosts`), and a host's link goes away under load.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::Wiring;
use testkit::hosts::{Plan, Site};

use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("cut::calls_go_on_after_a_link_was_away", link_away))];

const FS: &str = "cut/cut";
/// How long a link is away.
const AWAY: Duration = Duration::from_secs(2);
/// Longest stall that the test accepts. The bar, which is reported and not asserted, is 4 s.
const STALL_MAX: Duration = Duration::from_secs(20);
const BAR: Duration = Duration::from_secs(4);
/// Direct reads and writes.
const PAGE: usize = 4096;

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
    let hosts = ["mgs", "mds", "oss", "client"];
    let plan = hosts.iter().fold(Plan::new(), |plan, host| plan.host(host, &["tcp0"]));
    let plan = plan.cluster("cut", "mgs").fs(FS, "mds", &["oss"]).mount(FS, "client").osts(1, "2G");
    let mut site = super::hosts::site(b, plan)?;
    cut_each(&site).with_context(|| site.log_tails())?;
    site.stop_all()
}

fn cut_each(site: &Site) -> Result<()> {
    let mount = &site.mount(FS, "client")?;
    for (kind, _) in CALLS {
        fs::create_dir_all(mount.join(kind.replace(' ', "-")))?;
    }
    let data: PathBuf = mount.join("direct-read/data");
    fs::write(data, vec![7u8; 256 * PAGE])?;
    fs::write(mount.join("rename/from"), "content")?;
    for host in ["mds", "oss"] {
        let stalls = under_load(mount, || {
            std::thread::sleep(Duration::from_millis(500));
            site.hosts().link_down(host, "tcp0")?;
            std::thread::sleep(AWAY);
            site.hosts().link_up(host, "tcp0")?;
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
