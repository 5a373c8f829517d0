//! The changelog from its users' view: the output of `stria changelog` alone must tell all changes below a mount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("changelog::consumers_are_told_what_was_done", told)),
    (Needs::Only(Wiring::Tcp), ("changelog::who_follows_misses_nothing_over_kills", followed)),
];

/// Names below a directory, by the fid of the directory that they are in, as the changes tell them.
#[derive(Default)]
struct Mirror(BTreeMap<(String, String), String>);

impl Mirror {
    fn apply(&mut self, change: &Value) -> Result<()> {
        let text = |key: &str| change[key].as_str().map(str::to_owned).unwrap_or_default();
        let (at, fid) = ((text("parent"), text("name")), text("fid"));
        match text("op").as_str() {
            "create" | "mkdir" | "link" | "symlink" | "mknod" => {
                ensure_eq(self.0.insert(at, fid), None, &change.to_string())?;
            }
            "unlink" | "rmdir" => ensure_eq(self.0.remove(&at), Some(fid), &change.to_string())?,
            "rename" => {
                let old = (text("old_parent"), text("old_name"));
                ensure_eq(self.0.remove(&old), Some(fid.clone()), &change.to_string())?;
                let other = Some(text("replaced") + &text("exchanged")).filter(|f| !f.is_empty());
                ensure_eq(self.0.insert(at, fid), other, &change.to_string())?;
                if change["exchanged"].is_string() {
                    self.0.insert(old, text("exchanged"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The same from a walk.
fn walk(dir: &Path, into: &mut BTreeMap<(String, String), String>) -> Result<()> {
    let parent = fid(dir)?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
        into.insert((parent.clone(), name), fid(&path)?);
        if fs::symlink_metadata(&path)?.is_dir() {
            walk(&path, into)?;
        }
    }
    Ok(())
}

/// As `stria` writes it.
fn fid(path: &Path) -> Result<String> {
    Ok(format!("{:#x}", fs::symlink_metadata(path)?.ino()))
}

fn lines(out: &str) -> Result<Vec<Value>> {
    out.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// [S-changelog]
fn told(b: &mut Bench) -> Result<()> {
    let dir = b.dir("changelog")?;
    let place = b.cluster.mount.display().to_string();
    let run = |args: &[&str]| b.cluster.stria(&[&["changelog"], args, &[place.as_str()]].concat());
    let done = |args: &[&str]| -> Result<String> {
        let (code, out) = run(args)?;
        ensure_eq(code, 0, &format!("{args:?}: {out}"))?;
        Ok(out)
    };
    done(&["register", "all"])?;
    done(&["register", "gone", "--mask", "unlink,RMDIR"])?;
    // 1. A little of everything.
    let (a, sub) = (dir.join("a"), dir.join("sub"));
    fs::create_dir(&sub)?;
    fs::write(&a, "some bytes")?;
    fs::write(dir.join("large"), vec![7; 300_000])?;
    fs::hard_link(&a, sub.join("b"))?;
    symlink("nowhere", dir.join("s"))?;
    fs::set_permissions(&a, fs::Permissions::from_mode(0o600))?;
    set_xattr(&a, "user.colour", b"blue", rustix::fs::XattrFlags::empty())?;
    File::options().write(true).open(&a)?.set_len(3)?;
    fs::rename(&a, sub.join("c"))?;
    fs::rename(sub.join("c"), dir.join("s"))?;
    fs::remove_file(sub.join("b"))?;
    fs::create_dir(dir.join("d"))?;
    fs::rename(dir.join("d"), sub.join("d"))?;
    fs::create_dir(dir.join("e"))?;
    fs::remove_dir(dir.join("e"))?;
    fs::write(dir.join("two\nlines"), "")?;
    // A mount tells of new files a moment later.
    fs::File::open(&dir)?.sync_all()?;
    // 2. As programs read it: the names are those that a walk finds.
    let changes = lines(&done(&["read", "all", "--json"])?)?;
    let mut mirror = Mirror::default();
    changes.iter().try_for_each(|change| mirror.apply(change))?;
    let mut walked = BTreeMap::new();
    walk(&dir, &mut walked)?;
    ensure_eq(mirror.0, walked, "names")?;
    let ops: Vec<_> = changes.iter().filter_map(|c| c["op"].as_str()).collect();
    for op in ["write", "setattr", "xattr", "truncate", "layout"] {
        ensure!(ops.contains(&op), "no {op} in {ops:?}");
    }
    let numbers: Vec<_> = changes.iter().filter_map(|c| c["number"].as_u64()).collect();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    ensure_eq(numbers, (first..=last).collect(), "numbers")?;
    // 3. Text output, and the commands of Lustre.
    let text = done(&["read", "gone"])?;
    ensure_eq(text.lines().count(), 2, &text)?;
    ensure!(
        text.contains(" unlink ") && text.contains("/b\n") && text.contains("/e (its last name)\n"),
        "{text}"
    );
    let text = done(&["read", "all", "--lustre"])?;
    ensure!(
        text.contains(" 01CREAT ") && text.contains(" 08RENME ") && text.contains("two\\nlines"),
        "{text}"
    );
    // 4. Records that all consumers acknowledged are gone.
    let middle = (first + last) / 2;
    done(&["ack", "all", &middle.to_string()])?;
    let changes = lines(&done(&["read", "all", "--json"])?)?;
    ensure_eq(changes[0]["number"].as_u64(), Some(middle + 1), "the next")?;
    let list: Value = serde_json::from_str(&done(&["list", "-j"])?)?;
    ensure_eq(list["consumers"][0]["acked"].as_u64(), Some(middle), "acknowledged")?;
    // A mount may report its writes a second later, so there may be more records by now.
    let kept = |list: &Value| list["records"].as_u64().unwrap_or_default();
    ensure!(kept(&list) > last - first, "the other has not: {list}");
    done(&["ack", "gone", &last.to_string()])?;
    let list: Value = serde_json::from_str(&done(&["list", "-j"])?)?;
    ensure!(kept(&list) >= last - middle && kept(&list) <= last - first, "{list}");
    let (_, out) = b.cluster.stria(&["status"])?;
    ensure!(out.contains("changelog: 2 consumers"), "{out}");
    // 5. Refused requests.
    let (code, out) = run(&["ack", "all", &(last + 100).to_string()])?;
    ensure!(code == 1 && out.contains("cannot have been read"), "{code}: {out}");
    let (code, out) = run(&["read", "nobody"])?;
    ensure!(code == 1 && out.contains("no consumer 'nobody' is registered"), "{code}: {out}");
    let (code, out) = run(&["register", "x", "--mask", "sing"])?;
    ensure!(code == 2 && out.contains("is no kind of change"), "{code}: {out}");
    let (code, out) = b.cluster.stria(&["changelog", "list", "/proc"])?;
    ensure!(code == 2 && out.contains("not on a Stria file system"), "{code}: {out}");
    // 6. The last consumer is deregistered.
    done(&["deregister", "all"])?;
    done(&["deregister", "gone"])?;
    fs::remove_dir_all(&dir)?;
    let list: Value = serde_json::from_str(&done(&["list", "-j"])?)?;
    ensure_eq(list["records"].as_u64(), Some(0), "kept for nobody")?;
    Ok(())
}

/// A tool that was started once goes on reading while the metadata server is killed and started, again and again.
fn followed(b: &mut Bench) -> Result<()> {
    let dir = b.dir("followed")?;
    let place = b.cluster.mount.display().to_string();
    let (code, out) = b.cluster.stria(&["changelog", "register", "f", "--mask", "create", &place])?;
    ensure_eq(code, 0, &out)?;
    let into = b.cluster.dir.join("followed.json");
    let mut follower = Command::new(b.cluster.bin())
        .args(["changelog", "read", "f", "--follow", "--json", &place])
        .stdin(Stdio::null())
        .stdout(File::create(&into)?)
        .stderr(Stdio::null())
        .spawn()?;
    let outcome = (|| {
        let mut made = 0;
        for _ in 0..5 {
            for _ in 0..50 {
                fs::write(dir.join(format!("f{made}")), "x")?;
                made += 1;
            }
            b.cluster.kill(Role::Mds)?;
            b.cluster.start_role(Role::Mds)?;
        }
        fs::write(dir.join("last"), "x")?;
        wait_until("the last name is told", || Ok(fs::read_to_string(&into)?.contains("\"last\"")))?;
        let told = lines(&fs::read_to_string(&into)?)?;
        let names: Vec<_> = told.iter().filter_map(|c| c["name"].as_str().map(str::to_owned)).collect();
        let wanted = (0..made).map(|n| format!("f{n}")).chain(["last".to_owned()]).collect();
        ensure_eq(names, wanted, "each name once, in order")
    })();
    follower.kill()?;
    follower.wait()?;
    outcome
}
