//! Nets that routers join: file systems of two clusters on the same hosts, routers that die, are paused and drained, and rails.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::Wiring;
use testkit::hosts::{Part, Plan, Site};

use super::hosts::{FS, site, under_writes};
use super::semantics::wait_until;
use super::sys::{ensure_eq, ensure_same, run};
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("routers::files_of_two_clusters_go_through_routers_that_die", routed)),
    (Needs::Only(Wiring::Tcp), ("routers::one_of_two_rails_is_away", rails)),
];

/// The longest stall when one of two routers or rails is lost: it is noticed after 2 s.
const STALL_MAX: Duration = Duration::from_secs(6);
/// Text that no packet may have.
const MARKER: &str = "marker-b1946ac92492d234";
const BETA: &str = "beta/work";

/// Clients on tcp0. Routers r0 and r1 lead to cluster alpha on tcp1, and r2 from there to cluster beta on tcp2.
fn plan() -> Plan {
    Plan::new()
        .host("c0", &["tcp0"])
        .host("c1", &["tcp0"])
        .host("r0", &["tcp0", "tcp1"])
        .host("r1", &["tcp0", "tcp1"])
        .host("r2", &["tcp1", "tcp2"])
        .host("s0", &["tcp1"])
        .host("s1", &["tcp1"])
        .host("b0", &["tcp2"])
        .cluster("alpha", "s0")
        .fs(FS, "s0", &["s1"])
        .cluster("beta", "b0")
        .fs(BETA, "b0", &["b0"])
        .router("r0")
        .router("r1")
        .router("r2")
        .mount(FS, "c0")
        .mount(FS, "c1")
        .mount(BETA, "c0")
        .osts(2, "1G")
}

/// `tcpdump` on all interfaces of a host, until it is dropped.
struct Capture(Child);

impl Capture {
    fn start(site: &Site, host: &str, file: &Path) -> Result<Capture> {
        let mut command = site.command(host, "tcpdump")?;
        let log = fs::File::create(file.with_extension("log"))?;
        command.args(["-i", "any", "-U", "--immediate-mode", "-s", "0", "-w"]).arg(file);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let capture = Capture(child);
        let said = || fs::read_to_string(file.with_extension("log"));
        wait_until("tcpdump listens", || Ok(said()?.contains("listening on")))
            .with_context(|| said().unwrap_or_default())?;
        Ok(capture)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn contains(file: &Path, text: &str) -> Result<bool> {
    let bytes = fs::read(file)?;
    Ok(bytes.windows(text.len()).any(|part| part == text.as_bytes()))
}

/// The rows of a router's counters.
fn rows(site: &Site, router: &str) -> Result<Vec<serde_json::Value>> {
    let dir = site.host_dir(router).join("router").display().to_string();
    let (code, text) = site.stria(router, "alpha", &["router", "stat", "--dir", &dir, "-j"])?;
    ensure_eq(code, 0, &text)?;
    let stat: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    Ok(stat["rows"].as_array().context("rows")?.clone())
}

fn circuits(rows: &[serde_json::Value]) -> u64 {
    rows.iter().filter_map(|row| row["circuits"].as_u64()).sum()
}

/// Files of fio are as large as this: a round takes about a second.
const FIO_SIZE: &str = "--size=8m";

pub fn need_fio() -> Result<()> {
    match Command::new("fio").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(_) => skip("the load beside the writers needs fio"),
    }
}

/// Rounds of fio until `ends`: it writes blocks with checksums, reads all of them and compares.
pub fn verify_in(dir: &Path, ends: &AtomicBool, rounds: &AtomicU64) -> Result<()> {
    while !ends.load(Ordering::SeqCst) {
        let args = [
            "--name=verified",
            "--rw=randwrite",
            "--bsrange=4k-256k",
            FIO_SIZE,
            "--numjobs=2",
            "--ioengine=psync",
            "--fallocate=none",
            "--end_fsync=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--do_verify=1",
            "--verify_state_save=0",
            "--group_reporting",
        ];
        run("fio", &args, dir)?;
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// As `under_writes`, with fio beside the writers.
fn under_load(site: &mut Site, what: &str, during: impl FnOnce(&mut Site) -> Result<()>) -> Result<Duration> {
    let dir = site.mount(FS, "c0")?.join(format!("fio-{}", what.replace(' ', "-")));
    fs::create_dir(&dir)?;
    let (ends, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let fio = scope.spawn(|| verify_in(&dir, &ends, &rounds));
        let stall = under_writes(site, what, |site| {
            during(site)?;
            let at = rounds.load(Ordering::SeqCst);
            // The round that is under way, and a whole one after the event.
            wait_until("fio goes on", || Ok(fio.is_finished() || rounds.load(Ordering::SeqCst) > at + 1))
        });
        ends.store(true, Ordering::SeqCst);
        // Its error tells more than the writers' one.
        fio.join().expect("the thread of fio does not panic").with_context(|| what.to_owned())?;
        println!("       {what}: fio verified {} rounds", rounds.load(Ordering::SeqCst));
        stall
    })
}

/// [S-deadline] [S-kill] Routers are killed, paused, cut off and drained under writes: programs wait, see no error, and lose nothing.
fn routed(b: &mut Bench) -> Result<()> {
    need_fio()?;
    let mut site = site(b, plan())?;
    let (alpha, beta) = (site.mount(FS, "c0")?, site.mount(BETA, "c0")?);

    // 1. No packet has a name or content. Connections may all have chosen one router: both are captured.
    let files = ["r0", "r1"].map(|host| site.dir().join(format!("packets-{host}")));
    let captures = [Capture::start(&site, "r0", &files[0])?, Capture::start(&site, "r1", &files[1])?];
    let content = format!("{MARKER} ").repeat(60_000);
    for n in 0..4 {
        let name = format!("{MARKER}-{n}");
        fs::write(alpha.join(&name), &content)?;
        let seen = fs::read(site.mount(FS, "c1")?.join(&name))?;
        ensure_same(&seen, content.as_bytes(), &name)?;
    }
    // A packet without TLS shows that each capture would have it.
    let other = "in-the-clear-7c9e6679";
    for (host, file) in ["r0", "r1"].iter().zip(&files) {
        let address = site.host(host)?.address("tcp0")?;
        let send = format!("echo {other} > /dev/udp/{address}/9");
        wait_until("a packet is captured", || {
            ensure!(site.command("c0", "bash")?.args(["-c", &send]).status()?.success(), "{send}");
            contains(file, other)
        })?;
    }
    drop(captures);
    let mut captured = 0;
    for file in &files {
        captured += fs::metadata(file)?.len();
        ensure!(!contains(file, MARKER)?, "a name or content is in a packet of {}", file.display());
    }
    // A capture loses packets on a busy host.
    ensure!(captured > content.len() as u64, "the files went through the routers: {captured} bytes");

    // 2. Two clusters by the same routers, one of them behind a chain; nothing of one is in the other.
    fs::write(beta.join("f"), &content)?;
    ensure_same(&fs::read(beta.join("f"))?, content.as_bytes(), "behind two routers")?;
    ensure_eq(fs::read_dir(&beta)?.count(), 1, "names of beta")?;
    let both = [rows(&site, "r0")?, rows(&site, "r1")?].concat();
    let hosts = |peer: &str| both.iter().filter(|row| row["peer"] == peer && row["fs"] == "work").count();
    ensure!(hosts("c0") > 0 && hosts("c1") > 0, "rows by host and file system: {both:?}");
    ensure!(rows(&site, "r2")?.iter().any(|row| row["from"] == "tcp1" && row["to"] == "tcp2"), "the chain");
    let mgs = site.plan().mgs_nids("alpha", "c0")?.join(",");
    let check = ["route", "check", "--mgs", &*mgs];
    let (code, text) = site.stria("c0", "alpha", &check)?;
    ensure_eq((code, text.matches("ok ").count()), (0, 2), &text)?;

    // 3. A router is killed, and one that is paused answers nothing.
    let (r0, r1) = (Part::router("r0"), Part::router("r1"));
    let stall = under_load(&mut site, "a router paused", |site| {
        site.freeze(&r1)?;
        std::thread::sleep(Duration::from_secs(4));
        site.thaw(&r1)
    })?;
    ensure!(stall < STALL_MAX, "the stall was {stall:?}");
    let stall = under_load(&mut site, "a router killed", |site| site.kill(&r0))?;
    ensure!(stall < STALL_MAX, "the stall was {stall:?}");
    let (code, text) = site.stria("c0", "alpha", &check)?;
    ensure!(code == 1 && text.contains("failed"), "the dead router is named: {text}");

    // 4. It comes back and the other one is drained: its circuits go over.
    site.start_part(&r0)?;
    let drain = |site: &mut Site| {
        let dir = site.host_dir("r1").join("router").display().to_string();
        let (code, text) = site.stria("r1", "alpha", &["router", "drain", "--dir", &dir, "--within", "3"])?;
        ensure_eq(code, 0, &text)?;
        wait_until("the drained router has no circuit", || Ok(circuits(&rows(site, "r1")?) == 0))
    };
    under_load(&mut site, "a router drained", drain)?;
    ensure!(circuits(&rows(&site, "r0")?) > 0, "the other router has the circuits");

    // 5. Without a route, and with a certificate that is no router's, the error says what is missing.
    let mut lost = site.command("c0", site.bin())?;
    lost.args(["net", "ping", &site.plan().nids(&Part::mds(FS))?[0]]);
    lost.env("STRIA_ROUTES", "").env("STRIA_TLS", site.administrator("alpha")?);
    let out = lost.output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    ensure!(!out.status.success() && text.contains("no route leads to net tcp1 from tcp0"), "{text}");
    site.stop_all()
}

/// The link of one of two rails is away: the other one serves, and it comes back.
fn rails(b: &mut Bench) -> Result<()> {
    need_fio()?;
    let nets = ["tcp0", "tcp1"];
    let plan = ["c0", "c1", "s0", "s1"].iter().fold(Plan::new(), |plan, host| plan.host(host, &nets));
    let plan =
        plan.cluster("alpha", "s0").fs(FS, "s0", &["s1"]).mount(FS, "c0").mount(FS, "c1").osts(2, "1G");
    let mut site = site(b, plan)?;
    // Large writes of several programs use both rails.
    let dir = site.mount(FS, "c0")?;
    let bytes = vec![7u8; 8 << 20];
    let write = || -> Result<()> {
        std::thread::scope(|scope| {
            let files: Vec<_> = (0..6).map(|n| dir.join(format!("large-{n}"))).collect();
            let threads: Vec<_> =
                files.into_iter().map(|file| scope.spawn(|| fs::write(file, &bytes))).collect();
            threads.into_iter().try_for_each(|thread| Ok(thread.join().expect("a write does not panic")?))
        })
    };
    write()?;
    let received = |site: &Site, net: &str| -> Result<u64> {
        let show = site.command("s1", "ip")?.args(["-j", "-s", "link"]).output()?;
        let links: serde_json::Value = serde_json::from_slice(&show.stdout)?;
        let link = links.as_array().and_then(|all| all.iter().find(|l| l["ifname"] == net));
        link.and_then(|l| l["stats64"]["rx"]["bytes"].as_u64()).with_context(|| format!("{net} in {links}"))
    };
    for net in nets {
        ensure!(received(&site, net)? > 8 << 20, "rail {net} has its part");
    }
    let stall = under_load(&mut site, "a rail lost", |site| {
        site.hosts().link_down("s1", "tcp1")?;
        std::thread::sleep(Duration::from_secs(4));
        Ok(site.hosts().link_up("s1", "tcp1")?)
    })
    .with_context(|| site.log_tails())?;
    ensure!(stall < STALL_MAX, "the stall was {stall:?}");
    let before = received(&site, "tcp1")?;
    wait_until("the rail is used again", || {
        write()?;
        Ok(received(&site, "tcp1")? > before + (8 << 20))
    })
    .with_context(|| site.log_tail(&Part::mount(FS, "c0")))?;
    site.stop_all()
}
