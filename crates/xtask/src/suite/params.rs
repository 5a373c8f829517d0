//! Parameters of targets and mounts, and pauses of tasks, by the commands that users type, over restarts.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::{ensure_eq, run};
use super::{Bench, Needs, Test, set_stripe};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("params::values_hold_as_long_as_they_should", values)),
    (Needs::Only(Wiring::Tcp), ("params::mounts_follow_kept_values_while_they_are_in_use", mounts)),
    (Needs::Only(Wiring::Local), ("params::the_mount_of_up_follows_kept_values", own_mount)),
    (Needs::Only(Wiring::Pair), ("params::a_comparison_is_a_task_that_can_be_paused", comparison)),
    (Needs::Only(Wiring::Tcp), ("params::paused_tasks_wait_until_they_are_resumed", pauses)),
];

/// A command's output; it must succeed.
fn done(b: &Bench, args: &[&str]) -> Result<String> {
    let mgs = b.cluster.mgs();
    let (code, out) = b.cluster.stria(&[args, &["--mgs", &mgs]].concat())?;
    ensure_eq(code, 0, &format!("{}: {out}", args.join(" ")))?;
    Ok(out)
}

fn value(b: &Bench, name: &str) -> Result<String> {
    Ok(done(b, &["get-param", "-n", name])?.trim().to_owned())
}

/// The only line of JSON for a name.
fn line(b: &Bench, name: &str) -> Result<serde_json::Value> {
    let out = done(b, &["get-param", "-j", name])?;
    let lines: serde_json::Value = serde_json::from_str(&out).with_context(|| out.clone())?;
    ensure_eq(lines.as_array().map(Vec::len), Some(1), &out)?;
    Ok(lines[0].clone())
}

/// Whether a new file of some bytes is in its inode. It has a directory of its own: a mount knows the limit with the lease of one.
fn is_inline(b: &Bench, name: &str) -> Result<bool> {
    let path = b.dir(name)?.join("file");
    fs::write(&path, "some bytes")?;
    File::open(&path)?.sync_all()?;
    let (code, out) = b.cluster.stria(&["getstripe", "-j", &path.display().to_string()])?;
    ensure_eq(code, 0, &out)?;
    let said: serde_json::Value = serde_json::from_str(&out).with_context(|| out.clone())?;
    said[0]["inline"].as_bool().with_context(|| out.clone())
}

/// Kills the servers of OSTs and starts them again: OSTs get their numbers in the order in which they register, so either may have OST 0.
fn restart_osts(b: &mut Bench) -> Result<()> {
    let servers: Vec<Role> =
        b.cluster.roles().into_iter().filter(|role| matches!(role, Role::Oss(_))).collect();
    for role in &servers {
        b.cluster.kill(*role)?;
    }
    for role in servers {
        b.cluster.start_role(role)?;
    }
    wait_until("the OSTs are back", || Ok(value(b, "stria-OST*.log.level").is_ok()))
}

/// A live value ends with the server, a kept one does not, and the targets do what they say.
fn values(b: &mut Bench) -> Result<()> {
    let all = done(b, &["get-param", "*"])?;
    for base in
        ["stria-OST0000.resync.rate=0", "stria-MDT0000.commit.interval=1s", "stria-MDT0000.log.level=info"]
    {
        ensure!(all.lines().any(|line| line == base), "{base}: {all}");
    }
    // 1. Kept, with an effect: new files get objects. It holds over a kill of the MDS.
    ensure!(is_inline(b, "before")?, "small files are inline");
    // Files that wait at the mount, or whose answers a killed MDS has lost, were taken under the limit of before.
    let waiting: Vec<_> = (0..300).map(|n| b.cluster.mount.join(format!("waiting{n}"))).collect();
    for path in &waiting {
        fs::write(path, vec![8; 3000])?;
    }
    ensure_eq(&*done(b, &["set-param", "-P", "inline.max=0"])?, "stria-MDT0000.inline.max=0\n", "set")?;
    ensure!(!is_inline(b, "kept")?, "a kept value is taken");
    b.cluster.kill(Role::Mds)?;
    b.cluster.start_role(Role::Mds)?;
    ensure!(!is_inline(b, "restarted")?, "a kept value is taken at the start");
    ensure_eq(&line(b, "inline.max")?["from"], &"kept".into(), "its origin")?;
    for path in &waiting {
        File::open(path)?.sync_all()?;
        ensure_eq(fs::read(path)?, vec![8; 3000], &path.display().to_string())?;
    }
    done(b, &["set-param", "-P", "-d", "inline.max"])?;
    ensure!(is_inline(b, "after")?, "the base value holds again");
    // 2. Live at one target, until its server ends.
    done(b, &["set-param", "stria-OST0000.resync.rate=5M", "stria-OST*.log.level=debug"])?;
    let said = done(b, &["get-param", "resync.rate"])?;
    ensure!(said.contains("stria-OST0000.resync.rate=5M\n"), "{said}");
    ensure!(said.contains("stria-OST0001.resync.rate=0\n"), "only the one that is named: {said}");
    // A new map is a line of that level.
    done(b, &["set-param", "-P", "commit.interval=900ms"])?;
    let is_logged = || Ok(fs::read_to_string(b.cluster.log_path(Role::Oss(0)))?.contains("DEBUG"));
    wait_until("lines of level debug", is_logged)?;
    restart_osts(b)?;
    ensure_eq(&*value(b, "stria-OST0000.resync.rate")?, "0", "a live value ends with the server")?;
    // 3. A new kept value ends the live one, and one of the wrong form changes nothing.
    done(b, &["set-param", "stria-OST0000.resync.rate=5M"])?;
    done(b, &["set-param", "-P", "stria-OST*.resync.rate=7M"])?;
    let known = line(b, "stria-OST0000.resync.rate")?;
    ensure_eq((&known["value"], &known["live"]), (&"7M".into(), &serde_json::Value::Null), "kept")?;
    let mgs = b.cluster.mgs();
    for (bad, why) in [
        ("stria-OST*.resync.rate=fast", "is not a size"),
        ("commit.interval=9m", "not between 10ms and 60s"),
        ("stria-OST0000.inline.max=1", "no target has that"),
        ("drain.pause=on", "give -P"),
        ("stria-OST0000.speed=1", "list-param"),
    ] {
        let (code, out) = b.cluster.stria(&["set-param", bad, "--mgs", &mgs])?;
        ensure!(code == 2 && out.contains(why), "{bad}: {code}: {out}");
    }
    ensure_eq(&*value(b, "stria-OST0001.resync.rate")?, "7M", "nothing was changed")
}

/// KiB that the kernel reads ahead for files of a mount.
fn read_ahead(mount: &Path) -> Result<u64> {
    let device = fs::metadata(mount)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    Ok(fs::read_to_string(&path).with_context(|| path.clone())?.trim().parse()?)
}

fn wait_read_ahead(mount: &Path, kib: u64) -> Result<()> {
    wait_until(&format!("read-ahead of {kib} KiB"), || Ok(read_ahead(mount)? == kib))
}

/// A command at the mount; it must succeed.
fn done_at(b: &Bench, mount: &Path, args: &[&str]) -> Result<String> {
    let mount = mount.display().to_string();
    let (code, out) = b.cluster.stria(&[args, &["--mount", &mount]].concat())?;
    ensure_eq(code, 0, &format!("{}: {out}", args.join(" ")))?;
    Ok(out)
}

/// Whether the servers have counted requests of this job. A program of a Slurm job of that number writes a file meanwhile.
fn counts_for(b: &Bench, number: u32, job: &str) -> Result<bool> {
    // A shell of the job changes the directory, so that all requests are of the job.
    let words = "cd \"$0\" && exec dd if=/dev/zero of=job bs=1M count=4 conv=fsync";
    let mut shell = Command::new("sh");
    shell.args(["-c", words]).arg(&b.cluster.mount).env("SLURM_JOB_ID", number.to_string());
    let out = shell.output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, text) =
        b.cluster.stria(&["jobstats", "-n", "0", "-j", &b.cluster.mount.display().to_string()])?;
    ensure_eq(code, 0, &text)?;
    let report: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let rows = report["rows"].as_array().with_context(|| text.clone())?;
    Ok(rows.iter().any(|row| row["name"] == job))
}

/// Kept values of mounts reach a mount in use. An option wins over them, and a live value of one mount over both.
fn mounts(b: &mut Bench) -> Result<()> {
    let mount = b.cluster.mount.clone();
    let base = read_ahead(&mount)?;
    ensure_eq(base, 4096, "KiB without a parameter")?;
    let second = b.cluster.dir.join("second");
    fs::create_dir(&second)?;
    let source = format!("{}:/stria", b.cluster.mgs());
    let place = second.display().to_string();
    let (code, out) = b.cluster.stria(&["mount", &source, &place, "-o", "read_ahead=65536"])?;
    ensure_eq(code, 0, &out)?;
    let tried = kept_live_and_given(b, &mount, &second);
    let ended = run("umount", &[&place], Path::new("/"));
    if ended.is_err() {
        rustix::mount::unmount(&second, rustix::mount::UnmountFlags::DETACH).unwrap_or_default();
    }
    tried.and(ended)?;
    // A mount that begins takes what is kept.
    done(b, &["set-param", "-P", "mount.read_ahead=512K"])?;
    b.cluster.terminate(Role::Mount, std::time::Duration::from_secs(30))?;
    b.cluster.start_role(Role::Mount)?;
    b.cluster.wait_mounted()?;
    ensure_eq(read_ahead(&mount)?, 512, "KiB at the start")?;
    done(b, &["set-param", "-P", "-d", "*"])?;
    wait_read_ahead(&mount, base)
}

fn kept_live_and_given(b: &Bench, mount: &Path, second: &Path) -> Result<()> {
    // 1. Kept.
    let said = done(b, &["set-param", "-P", "stria-client.mount.read_ahead=1M"])?;
    ensure_eq(&*said, "stria-client.mount.read_ahead=1M\n", "set")?;
    wait_read_ahead(mount, 1024)?;
    let shown = || -> Result<serde_json::Value> {
        let out = done_at(b, second, &["get-param", "-j", "mount.read_ahead"])?;
        let lines: serde_json::Value = serde_json::from_str(&out).with_context(|| out.clone())?;
        Ok(lines[0].clone())
    };
    wait_until("the second mount knows the kept value", || Ok(shown()?["kept"] == "1M"))?;
    ensure_eq(read_ahead(second)?, 64, "the option wins")?;
    ensure_eq((&shown()?["value"], &shown()?["from"]), (&"64K".into(), &"option".into()), "shown")?;
    // 2. Live, of one mount.
    done_at(b, second, &["set-param", "mount.read_ahead=128K"])?;
    ensure_eq((read_ahead(second)?, read_ahead(mount)?), (128, 1024), "a live value is of one mount")?;
    done_at(b, second, &["set-param", "-d", "mount.read_ahead"])?;
    ensure_eq(read_ahead(second)?, 64, "the option holds again")?;
    // 3. The job of programs.
    wait_until("jobs by the variable of Slurm", || counts_for(b, 31, "31"))?;
    done_at(b, mount, &["set-param", "-P", "mount.jobid_var=procname_uid"])?;
    wait_until("jobs by name and user", || counts_for(b, 32, "dd.0"))?;
    ensure!(!counts_for(b, 33, "33")?, "not by the variable any more");
    done_at(b, mount, &["set-param", "-P", "-d", "mount.jobid_var"])?;
    wait_until("jobs by the variable again", || counts_for(b, 34, "34"))?;
    // 4. Refusals.
    let mgs = b.cluster.mgs();
    for (bad, why) in [
        ("mount.read_ahead=2M", "-P for all mounts"),
        ("mount.op_timeout=1ms", "not between 1s and"),
        ("mount.jobid_var=variable", "is none of"),
        ("stria-OST0000.mount.dead_after=1s", "no target has that"),
    ] {
        let (code, out) = b.cluster.stria(&["set-param", bad, "--mgs", &mgs])?;
        ensure!(code == 2 && out.contains(why), "{bad}: {code}: {out}");
    }
    Ok(())
}

/// The mount of `stria up` is in the process of the management service.
fn own_mount(b: &mut Bench) -> Result<()> {
    let mount = b.cluster.mount.clone();
    let base = read_ahead(&mount)?;
    done_at(b, &mount, &["set-param", "-P", "mount.read_ahead=2M"])?;
    wait_read_ahead(&mount, 2048)?;
    done_at(b, &mount, &["set-param", "-P", "-d", "mount.*"])?;
    wait_read_ahead(&mount, base)
}

/// The tasks by name, with their pauses.
fn tasks(b: &Bench) -> Result<Vec<(String, bool)>> {
    let out = done(b, &["task", "list", "-j"])?;
    let lines: Vec<serde_json::Value> = serde_json::from_str(&out).with_context(|| out.clone())?;
    let of = |line: &serde_json::Value| Some((line["task"].as_str()?.to_owned(), line["paused"].as_bool()?));
    lines.iter().map(|line| of(line).with_context(|| out.clone())).collect()
}

/// A drain that is paused moves nothing, and a paused scrub reads nothing.
fn pauses(b: &mut Bench) -> Result<()> {
    let path = b.cluster.mount.join("file");
    set_stripe(b, &["-c", "1", "-i", "0", "--inline", "0"], &path)?;
    let mut file = File::create(&path)?;
    file.write_all(&vec![7; 3 << 20])?;
    file.sync_all()?;
    ensure_eq(tasks(b)?, vec![], "nothing goes on")?;
    // 1. The scrub: at this rate it would take minutes.
    done(b, &["scrub", "start", "--ost", "0", "--rate", "64K"])?;
    ensure_eq(tasks(b)?, vec![("scrub:stria-OST0000".into(), false)], "it goes on")?;
    done(b, &["task", "pause", "scrub:stria-OST0000"])?;
    restart_osts(b)?;
    ensure_eq(tasks(b)?, vec![("scrub:stria-OST0000".into(), true)], "paused over a restart")?;
    done(b, &["task", "resume", "scrub:*0000"])?;
    ensure_eq(tasks(b)?, vec![("scrub:stria-OST0000".into(), false)], "it goes on again")?;
    done(b, &["scrub", "stop", "--ost", "0"])?;
    // 2. The drain.
    done(b, &["task", "pause", "drain:stria-OST0000"])?;
    ensure_eq(tasks(b)?, vec![("drain:stria-OST0000".into(), true)], "a pause is not forgotten")?;
    let mgs = b.cluster.mgs();
    let drain = ["target", "drain", "stria-OST0000", "--for", "2", "--mgs", &mgs];
    let (code, out) = b.cluster.stria(&drain)?;
    ensure!(code == 1, "it has moved nothing: {code}: {out}");
    let at = b.cluster.stria(&["getstripe", "-j", &path.display().to_string()])?.1;
    done(b, &["task", "resume", "drain:stria-OST0000"])?;
    let (code, out) = b.cluster.stria(&["target", "drain", "stria-OST0000", "--for", "60", "--mgs", &mgs])?;
    ensure_eq(code, 0, &out)?;
    ensure!(
        at != b.cluster.stria(&["getstripe", "-j", &path.display().to_string()])?.1,
        "it has moved: {at}"
    );
    ensure_eq(fs::read(&path)?, vec![7; 3 << 20], "its bytes")?;
    let (code, out) = b.cluster.stria(&["task", "pause", "resync:stria-OST0000", "--mgs", &mgs])?;
    ensure!(code == 2 && out.contains("no target is meant"), "it has no second member: {code}: {out}");
    Ok(())
}

/// A scrub ends with a comparison of the members, which is listed. It stands still while it is paused.
fn comparison(b: &mut Bench) -> Result<()> {
    let path = b.cluster.mount.join("file");
    set_stripe(b, &["-c", "1", "-i", "0", "--inline", "0"], &path)?;
    fs::write(&path, vec![7; 1 << 20])?;
    File::open(&path)?.sync_all()?;
    let verify = "verify:stria-OST0000";
    done(b, &["task", "pause", verify])?;
    ensure_eq(tasks(b)?, vec![(verify.into(), true)], "a pause is not forgotten")?;
    done(b, &["scrub", "start", "--ost", "0", "--rate", "0", "--wait"])?;
    let listed = || -> Result<String> { done(b, &["task", "list"]) };
    wait_until("the comparison is listed", || Ok(listed()?.contains("objects of the two members compared")))?;
    ensure!(listed()?.contains("`stria task resume verify:stria-OST0000`"), "{}", listed()?);
    let mgs = b.cluster.mgs();
    for (bad, why) in [
        (["mirror", "verify", "stria-OST0000"], "its comparison is paused"),
        (["task", "pause", "verify:stria-MDT0000"], "comparisons are not paused"),
    ] {
        let (code, out) = b.cluster.stria(&[&bad[..], &["--mgs", &mgs]].concat())?;
        ensure!(code == 2 && out.contains(why), "{bad:?}: {code}: {out}");
    }
    // It was listed as one that goes on, and stands still.
    ensure!(listed()?.contains("objects of the two members compared"), "{}", listed()?);
    done(b, &["task", "resume", verify])?;
    wait_until("it ends", || Ok(tasks(b)?.is_empty()))?;
    done(b, &["mirror", "verify", "stria-OST0000"]).map(drop)
}
