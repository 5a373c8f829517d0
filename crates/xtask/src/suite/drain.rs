//! Retiring an OST while programs at two mounts use its files.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::{Rng, Wiring};

use super::sys::ensure_eq;
use super::{Bench, Needs, Test, set_stripe};

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Two), ("drain::an_ost_is_drained_under_load", drained)),
    (Needs::Only(Wiring::Pair), ("drain::a_mirrored_ost_is_drained_under_load", drained)),
];

/// Writes, appends and reads through a mapping until its input ends, and compares with what it knows.
const USER: &str = r#"
import mmap, os, random, select, sys
base = sys.argv[1]
rng = random.Random(int(sys.argv[2]))
fd = os.open(base + "-random", os.O_RDWR | os.O_CREAT)
want = bytearray(rng.randbytes(600000))
os.pwrite(fd, want, 0)
log = os.open(base + "-log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
said = b""
mapped = os.open(base + "-mapped", os.O_RDWR)
held = os.pread(mapped, 400000, 0)
pages = mmap.mmap(mapped, 400000, prot=mmap.PROT_READ)
print("begun", flush=True)
rounds = 0
while rounds < 100 or not select.select([sys.stdin], [], [], 0)[0]:
    at, size = rng.randrange(590000), rng.randrange(1, 9000)
    data = rng.randbytes(size)
    os.pwrite(fd, data, at)
    want[at:at + size] = data
    line = b"line %d\n" % rounds
    os.write(log, line)
    said += line
    at = rng.randrange(590000)
    assert os.pread(fd, 8000, at) == want[at:at + 8000][:len(want) - at], at
    at = rng.randrange(390000)
    assert pages[at:at + 5000] == held[at:at + 5000], at
    rounds += 1
    if rounds % 20 == 0:
        os.fsync(fd)
assert os.pread(fd, len(want) + 1, 0) == want
assert os.pread(os.open(base + "-log", os.O_RDONLY), len(said) + 1, 0) == said
assert pages[:] == held
print("ended", rounds, flush=True)
"#;

struct User(Child);

impl User {
    fn start(base: &Path, seed: u64) -> Result<User> {
        let mut command = Command::new("python3");
        command.args(["-c", USER]).arg(base).arg(seed.to_string());
        let mut user = User(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("python3")?);
        let mut begun = [0; 6];
        user.0.stdout.as_mut().context("piped")?.read_exact(&mut begun)?;
        ensure_eq(&begun, b"begun\n", "the program begins")?;
        Ok(user)
    }

    fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().context("piped")?.read_to_string(&mut said)?;
        ensure!(self.0.wait()?.success() && said.starts_with("ended "), "a program beside the drain: {said}");
        Ok(())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Path, content, and size, blocks and mtime.
type Known = (PathBuf, Vec<u8>, (u64, u64, i64, i64));

fn known(path: &Path, bytes: Vec<u8>) -> Result<Known> {
    File::open(path)?.sync_all()?;
    let m = fs::metadata(path)?;
    Ok((path.to_owned(), bytes, (m.len(), m.blocks(), m.mtime(), m.mtime_nsec())))
}

/// Files of several sizes and stripings, one of them with holes and one with two names.
fn files(b: &Bench, dir: &Path, index: &str) -> Result<Vec<Known>> {
    let (mut rng, mut all) = (Rng::new(b.seed), Vec::new());
    let striped: [&[&str]; 3] = [&["-c", "1", "-i", index], &["-c", "-1", "-S", "64K"], &[]];
    for (n, size) in [1000, 70_000, 1 << 20, 3_000_001, 200_000, 9 << 20, 65_536].into_iter().enumerate() {
        let path = dir.join(format!("file{n}"));
        if n % 3 < 2 {
            set_stripe(b, &[striped[n % 3], &["--inline", "0"]].concat(), &path)?;
        }
        let mut bytes = vec![0; size];
        rng.fill(&mut bytes);
        fs::write(&path, &bytes)?;
        all.push(known(&path, bytes)?);
    }
    fs::hard_link(dir.join("file3"), dir.join("file3-too"))?;
    let path = dir.join("sparse");
    set_stripe(b, &["-c", "-1", "-S", "64K", "--inline", "0"], &path)?;
    let (file, mut bytes) = (File::create(&path)?, vec![0; 4 << 20]);
    for at in [0, 300_000, 3 << 20] {
        rng.fill(&mut bytes[at..at + 5000]);
        file.write_all_at(&bytes[at..at + 5000], at as u64)?;
    }
    file.set_len(4 << 20)?;
    all.push(known(&path, bytes)?);
    Ok(all)
}

fn check(b: &Bench, all: &[Known], when: &str) -> Result<()> {
    for (path, bytes, before) in all {
        for path in [path.clone(), b.look(path)] {
            let what = format!("{when}: {}", path.display());
            ensure!(fs::read(&path).with_context(|| what.clone())? == *bytes, "{what}: other bytes");
            let m = fs::metadata(&path)?;
            ensure_eq((m.len(), m.blocks(), m.mtime(), m.mtime_nsec()), *before, &what)?;
        }
    }
    Ok(())
}

/// Asks first, and confirms by the token. Both answers.
fn removed(b: &Bench, words: &[&str]) -> Result<String> {
    let (code, asked) = b.cluster.stria(&[words, &["--dry-run"]].concat())?;
    ensure!(code == 0, "{words:?}: {code}: {asked}");
    let token = asked.split("--confirm ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let token = token.with_context(|| asked.clone())?;
    let (code, out) = b.cluster.stria(&[words, &["--confirm", token]].concat())?;
    ensure!(code == 0 && out.contains("removed target"), "{words:?}: {code}: {out}");
    Ok(asked + &out)
}

/// [S-drained]
fn drained(b: &mut Bench) -> Result<()> {
    let (dir, mgs) = (b.dir("drained")?, b.cluster.mgs());
    let (name, index) = ("stria-OST0000", "0");
    let all = files(b, &dir, index)?;
    // 1. Programs at both mounts, and one file each whose bytes they map.
    let mut users = Vec::new();
    for (n, base) in [dir.join("a"), b.look(&dir.join("b"))].into_iter().enumerate() {
        for part in ["random", "log", "mapped"] {
            let path = dir.join(format!("{}-{part}", ["a", "b"][n]));
            set_stripe(b, &["-c", "1", "-i", index, "--inline", "0"], &path)?;
        }
        File::create(dir.join(format!("{}-mapped", ["a", "b"][n])))?
            .write_all(&vec![n as u8 + 5; 400_000])?;
        users.push(User::start(&base, n as u64)?);
    }
    // 2. The drain, beside them.
    let (code, out) = b.cluster.stria(&["target", "drain", name, "-j", "--for", "60", "--mgs", &mgs])?;
    ensure_eq(code, 0, &out)?;
    // Lines of its log stand beside it.
    let json = out.find('{').zip(out.rfind('}')).map(|(begin, end)| &out[begin..=end]);
    let said: serde_json::Value =
        serde_json::from_str(json.unwrap_or_default()).with_context(|| out.clone())?;
    ensure!(said["empty"] == true && said["objects_left"] == 0, "{out}");
    ensure!(said["files_moved"].as_u64().is_some_and(|files| files >= 8), "{out}");
    users.into_iter().try_for_each(User::end)?;
    check(b, &all, "after the drain")?;
    let (code, out) = b.cluster.stria(&["status", "--mgs", &mgs])?;
    ensure!(code == 0 && out.contains("draining: it gets no new objects"), "{code}: {out}");
    let (code, out) = b.cluster.stria(&["fsck", "--mgs", &mgs])?;
    ensure_eq(code, 0, &format!("fsck: {out}"))?;
    // 3. Its removal loses nothing, and the file system goes on.
    let out = removed(b, &["target", "remove", name, "--force", "--mgs", &mgs])?;
    ensure!(out.contains("no file has an object there") && out.contains(name), "{out}");
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    check(b, &all, "after the removal")?;
    for (n, (path, _, _)) in all.iter().enumerate() {
        let path = b.turn(n as u64, path);
        let mut file = File::options().append(true).open(&path)?;
        file.write_all(&vec![3; 100_000])?;
        file.sync_all()?;
    }
    let new = dir.join("new");
    fs::write(&new, vec![4; 20 << 20])?;
    ensure!(fs::read(b.look(&new))? == vec![4; 20 << 20], "a new file");
    let (code, out) = b.cluster.stria(&["fsck", "--mgs", &mgs])?;
    ensure_eq(code, 0, &format!("fsck after the removal: {out}"))
}
