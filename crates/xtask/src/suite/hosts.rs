//! Hosts on a net (`testkit::hosts`): clients of two hosts work on the same files, and hosts lose packets under load.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::hosts::{Hosts, Part, Plan, Site, Spec};
use testkit::{Rng, Wiring};

use super::semantics::wait_until;
use super::sys::{ensure_eq, ensure_same, own_files};
use super::{Bench, Needs, Test, skip};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("hosts::two_hosts_see_each_others_files", two_hosts)),
    (Needs::Only(Wiring::Tcp), ("hosts::hosts_lose_their_power_and_come_back", power_lost)),
    (Needs::Only(Wiring::Tcp), ("hosts::a_clients_link_is_away_under_writes", client_away)),
    (Needs::Only(Wiring::Tcp), ("hosts::answers_of_a_server_are_lost_under_writes", answers_lost)),
    (Needs::Only(Wiring::Tcp), ("hosts::an_oss_moves_to_another_address_under_writes", oss_moves)),
    (Needs::Only(Wiring::Tcp), ("hosts::a_host_with_a_slow_link_is_named_by_status", slow_link)),
];

/// Rates of links in MiB/s: even ones are the limit, and not processors.
const LINK_RATE: u64 = 30;
const SLOW_LINK_RATE: u64 = 3;
/// A host writes so much before it syncs.
const WRITTEN_BYTES: usize = 4 << 20;

const LINK_AWAY: Duration = Duration::from_secs(3);
const ANSWERS_LOST: Duration = Duration::from_secs(2);
const STOP_MAX: Duration = Duration::from_secs(10);
/// Longest stall of writes over a planned move.
const MOVE_MAX: Duration = Duration::from_secs(4);
pub const FS: &str = "alpha/work";
const FILES: usize = 40;
const LARGE_BYTES: usize = 6_000_011;

/// Makes a site of a plan. Where hosts cannot be made (not root, a program is missing, no namespaces), the test is skipped with the reason.
pub fn site(b: &Bench, plan: Plan) -> Result<Site> {
    need_hosts()?;
    Site::start(b.cluster.bin(), &b.cluster.dir.join("site"), plan)
}

/// Skips the test where hosts cannot be made. An error of a site itself must not pass for that.
pub fn need_hosts() -> Result<()> {
    match Hosts::make(&Spec::new().host("probe", &["tcp0"])) {
        Ok(_) => Ok(()),
        Err(e) => skip(e.to_string()),
    }
}

/// Two client hosts and two server hosts on one net, with certificates.
fn small() -> Plan {
    let hosts = ["c0", "c1", "s0", "s1"];
    let plan = hosts.iter().fold(Plan::new(), |plan, host| plan.host(host, &["tcp0"]));
    let plan = plan.cluster("alpha", "s0").fs(FS, "s0", &["s1"]).osts(2, "1G");
    plan.mount(FS, "c0").mount(FS, "c1")
}

fn content(rng: &mut Rng, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

/// [S-several-mounts] A file that one host has written has the same bytes on the other, and names change for both.
fn two_hosts(b: &mut Bench) -> Result<()> {
    // Another cluster on the same hosts has a file system of the same name.
    let plan = small().cluster("beta", "s1").fs("beta/work", "s1", &["s1"]).mount("beta/work", "c1");
    let mut site = site(b, plan)?;
    let mounts = [site.mount(FS, "c0")?, site.mount(FS, "c1")?];
    let mut rng = b.rng();
    let mut files = BTreeMap::new();
    for n in 0..FILES {
        let length = if n % 10 == 9 { LARGE_BYTES } else { n * 2039 };
        files.insert(format!("f{n}"), content(&mut rng, length));
    }
    // 1. Each host writes half of the files, and the other reads them.
    for (n, (name, bytes)) in files.iter().enumerate() {
        fs::write(mounts[n % 2].join(name), bytes)?;
    }
    for (n, (name, bytes)) in files.iter().enumerate() {
        ensure_same(&fs::read(mounts[(n + 1) % 2].join(name))?, bytes, &format!("{name} on the other host"))?;
    }
    // 2. The other host overwrites the middle of a large file, renames it and removes a file.
    let (name, bytes) = files.iter_mut().find(|(_, bytes)| bytes.len() == LARGE_BYTES).context("a file")?;
    let patch = content(&mut rng, 100_003);
    bytes[1_000_000..1_100_003].copy_from_slice(&patch);
    File::options().write(true).open(mounts[1].join(name))?.write_all_at(&patch, 1_000_000)?;
    fs::rename(mounts[1].join(name), mounts[1].join("renamed"))?;
    ensure_same(&fs::read(mounts[0].join("renamed"))?, bytes, "overwritten by the other host")?;
    fs::remove_file(mounts[1].join("f0"))?;
    ensure!(!mounts[0].join("f0").exists(), "the other host has removed it");
    // 3. Targets are at the addresses of their hosts, and connections have TLS.
    let mgs = site.plan().mgs_nids("alpha", "c0")?.join(",");
    let (code, text) = site.stria("c0", "alpha", &["status", "--mgs", &mgs])?;
    ensure_eq(code, 0, &text)?;
    for part in [Part::mds(FS), Part::oss(FS, "s1")] {
        let nid = &site.plan().nids(&part)?[0];
        ensure!(text.contains(nid), "status does not name {nid}: {text}");
        let log = site.log(&part)?;
        ensure!(log.contains("connections over TCP use TLS"), "{part}: {log}");
    }
    // 4. The other cluster's file system has nothing of it, and its administrator is none here.
    ensure_eq(fs::read_dir(site.mount("beta/work", "c1")?)?.count(), 0, "names of the other file system")?;
    let mut foreign = site.command("c0", site.bin())?;
    foreign.args(["status", "--mgs", &mgs]).env("STRIA_TLS", site.administrator("beta")?);
    ensure!(!foreign.output()?.status.success(), "an administrator of another cluster is answered");
    site.stop_all()
}

/// [S-kill] All processes of a host are killed at once, first of the servers', then of a client's, and started again.
fn power_lost(b: &mut Bench) -> Result<()> {
    let mut site = site(b, small())?;
    let (mount, other) = (site.mount(FS, "c0")?, site.mount(FS, "c1")?);
    let bytes = content(&mut b.rng(), LARGE_BYTES);
    fs::write(mount.join("f"), &bytes)?;
    File::open(mount.join("f"))?.sync_all()?;
    for (host, count) in [("s1", 1), ("s0", 2)] {
        ensure_eq(site.kill_host(host)?.len(), count, &format!("processes of {host}"))?;
        ensure_eq(site.running_on(host), vec![], host)?;
        site.start_all()?;
        ensure_eq(site.running_on(host).len(), count, &format!("processes of {host}, again"))?;
        // A server that starts again waits for all its sessions. At the same time, as an idle mount comes back with its next keep-alive.
        std::thread::scope(|scope| -> Result<()> {
            let look = scope.spawn(|| fs::read(other.join("f")));
            ensure_same(&fs::read(mount.join("f"))?, &bytes, &format!("after {host} was killed"))?;
            let seen = look.join().expect("a read does not panic")?;
            ensure_same(&seen, &bytes, &format!("on the other host, after {host} was killed"))
        })?;
        fs::write(other.join(host), &bytes)?;
        ensure_same(&fs::read(mount.join(host))?, &bytes, &format!("written after {host} was killed"))?;
    }
    // A stopped process keeps its callers waiting, and they go on with it.
    let oss = Part::oss(FS, "s1");
    site.freeze(&oss)?;
    let written = std::thread::scope(|scope| {
        let write = scope.spawn(|| {
            fs::write(mount.join("waits"), &bytes).and_then(|()| File::open(mount.join("waits"))?.sync_all())
        });
        let stopped = wait_until("the process is stopped", || {
            let pid = site.pid(&oss).context("it runs")?;
            Ok(fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T "))
        });
        stopped.and(site.thaw(&oss)).and(write.join().expect("a write does not panic").map_err(Into::into))
    });
    written?;
    ensure_same(&fs::read(other.join("waits"))?, &bytes, "written over a stopped server")?;
    // The dead mount is replaced. A look into it would wait until the leases of the killed one have ended.
    ensure_eq(site.kill_host("c0")?, vec![Part::mount(FS, "c0")], "processes of c0")?;
    site.start_all()?;
    site.ensure_all_run()
}

/// [S-deadline] The link of a client's host is away for 3 s: its programs wait and get no error, and what they wrote is there.
fn client_away(b: &mut Bench) -> Result<()> {
    let mut site = site(b, small())?;
    under_writes(&mut site, "a client's link lost", |site| {
        site.hosts().link_down("c0", "tcp0")?;
        std::thread::sleep(LINK_AWAY);
        Ok(site.hosts().link_up("c0", "tcp0")?)
    })
    .map(drop)
}

/// [S-deadline] A server receives requests, and its answers are lost for 2 s: each request is carried out once.
fn answers_lost(b: &mut Bench) -> Result<()> {
    let mut site = site(b, small())?;
    for server in ["s1", "s0"] {
        under_writes(&mut site, &format!("answers of {server} lost"), |site| {
            site.hosts().blackhole(server, "c0")?;
            std::thread::sleep(ANSWERS_LOST);
            Ok(site.hosts().unblackhole(server, "c0")?)
        })?;
    }
    Ok(())
}

/// [S-deadline] An OSS is stopped, or killed, and starts at other addresses with the same devices. Clients follow the map.
fn oss_moves(b: &mut Bench) -> Result<()> {
    let plan =
        ["c0", "c1", "s0", "s1", "s2"].iter().fold(Plan::new(), |plan, host| plan.host(host, &["tcp0"]));
    let plan = plan.cluster("alpha", "s0").fs(FS, "s0", &["s1", "s2"]).osts(1, "1G");
    let mut site = site(b, plan.mount(FS, "c0").mount(FS, "c1"))?;
    let oss = Part::oss(FS, "s1");
    let stall = under_writes(&mut site, "an OSS stopped and moved to another host", |site| {
        site.stop(&oss, STOP_MAX)?;
        site.move_to(&oss, "s2")?;
        site.start_part(&oss)
    })?;
    ensure!(stall < MOVE_MAX, "writes stood still for {stall:?}");
    if b.scale.is_short() {
        // The management service waits for 7 s of silence, which a test of its rule needs not.
        return Ok(());
    }
    under_writes(&mut site, "an OSS killed and moved back", |site| {
        site.kill(&oss)?;
        site.move_to(&oss, "s1")?;
        site.start_part(&oss)
    })
    .map(drop)
}

/// [mgmt-S1] Three client hosts write, one of them over a link with a tenth of the others' rate: `stria status` names that host only.
fn slow_link(b: &mut Bench) -> Result<()> {
    let clients = ["c0", "c1", "c2"];
    let plan = ["s0", "s1"].iter().chain(&clients).fold(Plan::new(), |plan, host| plan.host(host, &["tcp0"]));
    let plan = plan.cluster("alpha", "s0").fs(FS, "s0", &["s1"]).osts(1, "1G");
    let mut site = site(b, clients.iter().fold(plan, |plan, host| plan.mount(FS, host)))?;
    let mgs = site.plan().mgs_nids("alpha", "s0")?.join(",");
    let status = |site: &Site| -> Result<serde_json::Value> {
        let (code, text) = site.stria("s0", "alpha", &["status", "-j", "--mgs", &mgs])?;
        ensure_eq(code, 0, &text)?;
        let found: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok(found[0]["slow_links"].clone())
    };
    ensure_eq(status(&site)?, serde_json::Value::Null, "links of an idle file system")?;
    for host in clients {
        site.hosts().set_rate(host, "tcp0", Some(if host == "c1" { SLOW_LINK_RATE } else { LINK_RATE }))?;
    }
    let bytes = content(&mut b.rng(), WRITTEN_BYTES);
    let ends = AtomicBool::new(false);
    let mounts = clients.iter().map(|host| Ok((*host, site.mount(FS, host)?))).collect::<Result<Vec<_>>>()?;
    let mut named = serde_json::Value::Null;
    let write = |(host, mount): &(&str, PathBuf)| -> Result<()> {
        let file = File::create(mount.join(host))?;
        while !ends.load(Ordering::SeqCst) {
            file.write_all_at(&bytes, 0)?;
            file.sync_all()?;
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let write = &write;
        let writers: Vec<_> = mounts.iter().map(|mount| scope.spawn(move || write(mount))).collect();
        let found = wait_until("a link is named", || {
            named = status(&site)?;
            Ok(!named.is_null())
        });
        ends.store(true, Ordering::SeqCst);
        let written: Result<Vec<()>> =
            writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect();
        found.and(written.map(drop))
    })
    .with_context(|| format!("logs:\n{}", site.log_tails()))?;
    let [slow] = named.as_array().context("a list")?.as_slice() else {
        anyhow::bail!("one link is slow, and status names {named}");
    };
    let address = site.host("c1")?.address("tcp0")?;
    ensure_eq(slow["kind"].as_str(), Some("host"), &named.to_string())?;
    ensure_eq(slow["name"].as_str(), Some("c1"), &named.to_string())?;
    ensure_eq(slow["nids"].as_str(), Some(format!("{address}@tcp0").as_str()), &named.to_string())?;
    println!(
        "       host c1 at {} % of its twins, of {SLOW_LINK_RATE} in {LINK_RATE} MiB/s",
        slow["percent"]
    );
    site.stop_all()
}

/// Bytes of a record: some are inline in the MDT, and a file of them is soon in objects.
const RECORD_BYTES: usize = 20_011;
/// Threads that write, each its own files.
const WRITERS: usize = 3;
/// Records of a file before the next one is begun.
const RECORDS_OF_A_FILE: u64 = 16;

/// Writes through host c0 while `during` runs. Then each record that was synced is read through host c1.
pub fn under_writes(
    site: &mut Site,
    what: &str,
    during: impl FnOnce(&mut Site) -> Result<()>,
) -> Result<Duration> {
    let roots = [site.mount(FS, "c0")?, site.mount(FS, "c1")?];
    under_writes_at(&roots, what, || during(&mut *site))
        .with_context(|| format!("logs:\n{}", site.log_tails()))
}

/// As `under_writes`: writes at the first of two mounts of a file system, and reads at the second.
pub fn under_writes_at(
    [root, look]: &[PathBuf; 2],
    what: &str,
    during: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let dir = root.join(what.replace([' ', '/'], "-"));
    fs::create_dir(&dir)?;
    let (ends, synced) = (AtomicBool::new(false), AtomicU64::new(0));
    let more = |by: u64| {
        let at = synced.load(Ordering::SeqCst);
        wait_until("writes go on", || Ok(synced.load(Ordering::SeqCst) >= at + by))
    };
    let written = std::thread::scope(|scope| -> Result<Vec<(u64, Duration)>> {
        let (dir, ends, synced) = (&dir, &ends, &synced);
        let write = |writer| write_records(dir, writer, ends, synced);
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(n))).collect();
        // Even if a step fails the threads must end.
        let outcome = more(10).and_then(|()| during()).and_then(|()| more(10));
        ends.store(true, Ordering::SeqCst);
        let written = writers.into_iter().map(|writer| writer.join().expect("a writer does not panic"));
        let written: Result<Vec<_>> = written.collect();
        outcome.and(written)
    })
    .with_context(|| what.to_owned())?;
    let longest = written.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    let records: u64 = written.iter().map(|(records, _)| records).sum();
    println!("       {what}: {records} records synced, longest stall {:.1} s", longest.as_secs_f64());
    let look = look.join(dir.file_name().context("a name")?);
    for (writer, (records, _)) in written.iter().enumerate() {
        for n in 0..*records {
            let mut got = vec![0; RECORD_BYTES];
            let (name, at) = place(writer, n);
            File::open(look.join(&name))?.read_exact_at(&mut got, at).with_context(|| name.clone())?;
            ensure_same(&got, &record(writer, n), &format!("{name} at {at}, on the other host"))?;
        }
    }
    Ok(longest)
}

/// Gives how many records were synced, and the longest time that one took.
fn write_records(
    dir: &Path,
    writer: usize,
    ends: &AtomicBool,
    synced: &AtomicU64,
) -> Result<(u64, Duration)> {
    let (mut n, mut longest) = (0, Duration::ZERO);
    own_files();
    while !ends.load(Ordering::SeqCst) {
        let begin = Instant::now();
        let (name, _) = place(writer, n);
        let mut file = File::options().create(true).append(true).open(dir.join(name))?;
        file.write_all(&record(writer, n))?;
        file.sync_all()?;
        longest = longest.max(begin.elapsed());
        n += 1;
        synced.fetch_add(1, Ordering::SeqCst);
    }
    Ok((n, longest))
}

/// The file of a record, and its place there.
fn place(writer: usize, n: u64) -> (String, u64) {
    (format!("w{writer}-{}", n / RECORDS_OF_A_FILE), n % RECORDS_OF_A_FILE * RECORD_BYTES as u64)
}

fn record(writer: usize, n: u64) -> Vec<u8> {
    content(&mut Rng::new(n * WRITERS as u64 + writer as u64 + 1), RECORD_BYTES)
}
