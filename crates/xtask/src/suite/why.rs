//! `stria why`: a fault is made, and the verdict must name it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::Wiring;

use super::drills::media::Ill;
use super::drills::scene::{CLUSTER, SERVERS, Scene};
use super::hosts::need_hosts;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Tcp), ("why::a_verdict_names_the_fault_that_was_made", faults_are_named))];

/// Each operation of a slow disk.
const SLOW: Duration = Duration::from_millis(15);
/// MiB per second of a slow link.
const RATE: u64 = 4;
/// A moment may have a pause of the load in it.
const TRIES: usize = 3;
/// Intervals until a look meets a wait that is short.
const LEASE_TRIES: usize = 10;

/// Shell programs of a job, one for each directory, until this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(job: &str, script: &str, dirs: &[PathBuf]) -> Result<Load> {
        let start = |dir: &PathBuf| {
            let text = format!("cd \"$0\" && while :; do {script}; done");
            let mut command = Command::new("sh");
            command.args(["-c", &text]).arg(dir).env("SLURM_JOB_ID", job);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            command.spawn().with_context(|| format!("load of job {job}"))
        };
        Ok(Load(dirs.iter().map(start).collect::<Result<_>>()?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // The shell and the program that it runs just now.
            let group = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
    }
}

fn why(scene: &Scene, subject: &str, place: &[&str]) -> Result<Value> {
    let words = [&["why", subject, "-j", "--interval", "1.5"], place].concat();
    let (code, text) = scene.site.stria("s0", CLUSTER, &words)?;
    ensure!(code == 0, "{words:?}: exit {code}: {text}");
    serde_json::from_str(&text).with_context(|| text.clone())
}

fn names(scene: &Scene, job: &str, wanted: &str) -> Result<Value> {
    let mgs = scene.mgs()?;
    let mut last = Value::Null;
    for _ in 0..TRIES {
        last = why(scene, job, &["--mgs", &mgs])?;
        if last["slow_part"] == wanted {
            println!("       {}", last["says"].as_str().unwrap_or_default());
            return Ok(last);
        }
    }
    anyhow::bail!("{job}: not {wanted}, but {last:#}")
}

/// While the disks of these servers are slow.
fn under<T>(scene: &Scene, servers: &[&str], run: impl FnOnce() -> Result<T>) -> Result<T> {
    servers.iter().try_for_each(|server| scene.medium(server)?.fall_ill(Ill::Slow(SLOW)))?;
    let done = run();
    servers.iter().try_for_each(|server| scene.medium(server)?.heal())?;
    done
}

fn dir(mount: &Path, name: &str) -> Result<PathBuf> {
    let dir = mount.join(name);
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// cli-WY2: the lease that is waited for is met by a look of one of some intervals.
fn named_lease(scene: &Scene, job: &str, mgs: &str) -> Result<Value> {
    let named = (0..LEASE_TRIES).find_map(|_| {
        let found = why(scene, job, &["--mgs", mgs]).ok()?;
        found["locks"].as_array()?.iter().find(|held| held["holder"].is_string()).cloned()
    });
    named.context("no look has met a wait for the lease")
}

fn faults_are_named(b: &mut Bench) -> Result<()> {
    need_hosts()?;
    let scene = Scene::begin(b.cluster.bin(), &b.cluster.dir.join("site"), true)?;
    let [near, far] = scene.mounts()?;
    let mgs = scene.mgs()?;
    let write = "dd if=/dev/zero of=f bs=256K count=16 conv=notrunc oflag=direct";
    // 1. A program that waits for itself.
    {
        let _load = Load::start("1001", "echo 1 >> notes; sleep 0.1", &[dir(&near, "idle")?])?;
        names(&scene, "1001", "client")?;
    }
    // 2. A link of 4 MiB/s at the client.
    {
        let files: Vec<PathBuf> = (0..2).map(|n| dir(&near, &format!("net{n}"))).collect::<Result<_>>()?;
        let _load = Load::start("1002", write, &files)?;
        scene.site.hosts().set_rate("c0", "tcp0", Some(RATE))?;
        let found = names(&scene, "1002", "network");
        scene.site.hosts().set_rate("c0", "tcp0", None)?;
        found?;
    }
    // 3. The disk of the other members, then those of both servers for a reader.
    let files: Vec<PathBuf> = (0..2).map(|n| dir(&far, &format!("disk{n}"))).collect::<Result<_>>()?;
    {
        let _load = Load::start("1003", write, &files)?;
        let found = under(&scene, &SERVERS[1..], || names(&scene, "1003", "mirror"))?;
        ensure!(found["target"].as_str().is_some_and(|name| name.contains("-OST")), "{found:#}");
        // A path stands for its targets, and a client for all of its jobs.
        let path = files[0].join("f").display().to_string();
        let of_path = why(&scene, &path, &["--mgs", &mgs])?;
        ensure!(of_path["kind"] == "path" && of_path["requests"].as_u64() > Some(0), "{of_path:#}");
        let point = far.display().to_string();
        let of_client = why(&scene, &point, &["--mgs", &mgs]);
        ensure!(of_client.is_ok_and(|found| found["requests"].as_u64() > Some(0)), "{point}");
    }
    {
        let _load = Load::start("1004", "dd if=f of=/dev/null bs=256K iflag=direct", &files)?;
        under(&scene, &SERVERS, || names(&scene, "1004", "device"))?;
    }
    // 4. Two clients that write and read one file wait for each other, among other things.
    {
        let shared = [dir(&near, "shared")?, far.join("shared")];
        let point = shared[0].display().to_string();
        let (code, said) = scene.site.stria("c0", CLUSTER, &["setstripe", "--inline", "0", &point])?;
        ensure!(code == 0, "{said}");
        let script = "dd if=/dev/zero of=f bs=256K count=4 conv=notrunc; cat f > /dev/null";
        let _load = Load::start("1005", script, &shared)?;
        let found = why(&scene, "1005", &["--mgs", &mgs])?;
        let parts = found["parts"].as_array().context("parts")?;
        let of_locks = parts.iter().find(|part| part["part"] == "lock").and_then(|part| part["us"].as_u64());
        ensure!(of_locks > Some(0), "{found:#}");
        let held = named_lease(&scene, "1005", &mgs)?;
        ensure!(held["path"] == "/shared/f" && held["waits"] != held["holder"], "{held:#}");
    }
    // 5. Two clients make and remove names in one directory.
    {
        let shared = [dir(&near, "names")?, far.join("names")];
        let _load = Load::start("1006", "touch x$$; ls > /dev/null; rm x$$", &shared)?;
        let held = named_lease(&scene, "1006", &mgs)?;
        ensure!(held["path"] == "/names" && held["waits"] != held["holder"], "{held:#}");
    }
    // 6. A name that had no request.
    let (code, said) = scene.site.stria("s0", CLUSTER, &["why", "9999", "--mgs", &mgs])?;
    ensure!(code == 2 && said.contains("no job and no client of that name"), "{code}: {said}");
    Ok(())
}
