//! Parameters of targets and pauses of tasks, by the commands that users type, over restarts.

use std::fs::{self, File};
use std::io::Write;

use anyhow::{Context, Result, ensure};
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, set_stripe};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Tcp), ("params::values_hold_as_long_as_they_should", values)),
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
