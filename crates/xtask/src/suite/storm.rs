//! Name-space storms: four processes, spread over the mounts, in the same few directories. Each owns some names, of which it knows
//! exactly what they must be; all fight for others, of which every outcome must be one that some order of the calls gives. In the
//! end every mount shows the same tree, and fsck finds nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use testkit::{Rng, Wiring};

use super::{Bench, Test};

pub const TESTS: &[Test] = &[("storm::four_processes_in_shared_directories", storm)];

const WORKERS: u64 = 4;
const DIRECTORIES: u64 = 4;
/// Contended names of each directory; few, so that calls meet.
const SHARED: u64 = 6;
/// Names that a worker owns in each directory.
const OWNED: u64 = 8;
/// While others do nothing but move directories, a call may meet one again and again.
const STALE_MAX: usize = 100;

fn storm(b: &mut Bench) -> Result<()> {
    let dir = b.dir("storm")?;
    for n in 0..DIRECTORIES {
        fs::create_dir(dir.join(format!("d{n}")))?;
    }
    let calls = b.scale.storm_calls / WORKERS;
    let mut workers = Vec::new();
    for id in 0..WORKERS {
        workers.push(Process::start(&Orders {
            id,
            root: b.turn(id, &dir),
            seed: b.seed.wrapping_mul(1000) + id,
            calls,
            among: b.cluster.second.is_some(),
        })?);
    }
    workers.iter_mut().try_for_each(Process::go)?;
    let mut owned = BTreeMap::new();
    for worker in workers {
        owned.extend(worker.finish()?);
    }
    // 1. Through every mount, each worker's own tree is exactly as the worker knows it.
    let (here, there) = (tree(&dir)?, tree(&b.look(&dir))?);
    ensure!(here == there, "the mounts show different trees: {}", first_difference(&here, &there));
    for (path, kind) in &here {
        if path.contains("/own") {
            ensure!(owned.get(path) == Some(kind), "{path} is {kind}, its owner knows {:?}", owned.get(path));
        }
    }
    if let Some(lost) = owned.keys().find(|path| !here.contains_key(*path)) {
        bail!("{lost} is lost");
    }
    if b.cluster.wiring() == Wiring::Local {
        let (code, out) =
            b.cluster.stria(&["fsck", "--dir", &b.cluster.state_dir().display().to_string()])?;
        ensure!(code == 0, "fsck: {out}");
    }
    // 2. Every name is listed, found and removed; nothing keeps a directory from going.
    fs::remove_dir_all(b.look(&dir)).context("removal by the other place")?;
    ensure!(!dir.exists(), "the directory is still there");
    Ok(())
}

/// A worker's instructions.
#[derive(clap::Args)]
pub struct Orders {
    id: u64,
    root: PathBuf,
    seed: u64,
    calls: u64,
    /// There are other mounts.
    #[arg(long)]
    among: bool,
}

/// The other side of `Process`: works when told to on its input, and prints what it owns in the end.
pub fn work(orders: Orders) -> Result<()> {
    let Orders { id, root, seed, calls, among } = orders;
    io::stdin().read_line(&mut String::new())?;
    let owned = Worker { id, root, among, rng: Rng::new(seed), owned: BTreeMap::new() }.work(calls)?;
    for (path, kind) in owned {
        println!("{kind} {path}");
    }
    println!("{DONE}");
    Ok(())
}

/// The last line of a worker that came to its end.
const DONE: &str = "done";

/// A worker's process; killed if the test ends before it.
struct Process {
    id: u64,
    child: Child,
}

impl Process {
    fn start(orders: &Orders) -> Result<Process> {
        let Orders { id, root, seed, calls, among } = orders;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("storm-worker").arg(id.to_string()).arg(root);
        command.args([seed.to_string(), calls.to_string()]).args(among.then_some("--among"));
        command.env("RUST_BACKTRACE", "0");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Process { id: *id, child: pipes.spawn().context("storm-worker")? })
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.child.stdin.take().context("its input")?.write_all(b"go\n")?)
    }

    /// The worker's own names with content, or its failure.
    fn finish(mut self) -> Result<BTreeMap<String, String>> {
        let (mut said, mut complaint) = (String::new(), String::new());
        self.child.stdout.take().context("its output")?.read_to_string(&mut said)?;
        self.child.stderr.take().context("its complaints")?.read_to_string(&mut complaint)?;
        let status = self.child.wait()?;
        ensure!(
            status.success() && said.ends_with(&format!("{DONE}\n")),
            "worker {}: {status}: {complaint}",
            self.id
        );
        let lines = said.lines().filter_map(|l| l.split_once(' '));
        Ok(lines.map(|(kind, path)| (path.to_owned(), kind.to_owned())).collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

struct Worker {
    id: u64,
    root: PathBuf,
    /// There are other mounts.
    among: bool,
    rng: Rng,
    /// Path → kind and links.
    owned: BTreeMap<String, String>,
}

impl Worker {
    fn work(mut self, calls: u64) -> Result<BTreeMap<String, String>> {
        for n in 0..calls {
            let done = if self.rng.chance(50) { self.own() } else { self.contend() };
            done.with_context(|| format!("worker {} call {n}", self.id))?;
        }
        Ok(self.owned)
    }

    fn owned_name(&mut self) -> String {
        let (dir, name) = (self.rng.below(DIRECTORIES), self.rng.below(OWNED));
        format!("d{dir}/own{}-{name}", self.id)
    }
    fn shared_name(&mut self) -> String {
        format!("d{}/any{}", self.rng.below(DIRECTORIES), self.rng.below(SHARED))
    }

    /// A call on the worker's own names: its result is determined.
    fn own(&mut self) -> Result<()> {
        let (a, z) = (self.owned_name(), self.owned_name());
        let (at, to) = (self.root.join(&a), self.root.join(&z));
        let kind = |owned: &BTreeMap<String, String>, name: &String| owned.get(name).cloned();
        let (was, other) = (kind(&self.owned, &a), kind(&self.owned, &z));
        match self.rng.below(7) {
            0 => {
                expect(File::create_new(&at).map(drop), was.is_none().then_some(()).ok_or(Errno::EXIST), &a)?;
                self.owned.entry(a).or_insert_with(|| "file".into());
            }
            1 => {
                expect(fs::create_dir(&at), was.is_none().then_some(()).ok_or(Errno::EXIST), &a)?;
                self.owned.entry(a).or_insert_with(|| "directory".into());
            }
            2 => {
                let want = match was.as_deref() {
                    None => Err(Errno::NOENT),
                    Some("directory") => Err(Errno::ISDIR),
                    Some(_) => Ok(()),
                };
                expect(fs::remove_file(&at), want, &a)?;
                if want.is_ok() {
                    self.owned.remove(&a);
                }
            }
            3 => {
                let want = match was.as_deref() {
                    None => Err(Errno::NOENT),
                    Some("directory") => Ok(()),
                    Some(_) => Err(Errno::NOTDIR),
                };
                expect(fs::remove_dir(&at), want, &a)?;
                if want.is_ok() {
                    self.owned.remove(&a);
                }
            }
            4 | 5 => {
                let want = match (was.as_deref(), other.as_deref()) {
                    (None, _) => Err(Errno::NOENT),
                    (Some("directory"), Some("file")) => Err(Errno::NOTDIR),
                    (Some("file"), Some("directory")) => Err(Errno::ISDIR),
                    _ => Ok(()),
                };
                expect(fs::rename(&at, &to), want, &format!("{a} to {z}"))?;
                if let (Ok(()), Some(kind)) = (want, self.owned.remove(&a)) {
                    self.owned.insert(z, kind);
                } else if let Some(kind) = was {
                    self.owned.insert(a, kind);
                }
            }
            _ => {
                let seen = fs::symlink_metadata(&at).map(|m| kind_of(&m));
                ensure!(
                    seen.as_ref().ok() == was.as_ref(),
                    "{a} is {seen:?}, but I, its owner, know {was:?}"
                );
            }
        }
        Ok(())
    }

    /// A call on shared names: its result is one of several legal ones.
    fn contend(&mut self) -> Result<()> {
        let (a, z) = (self.shared_name(), self.shared_name());
        let (at, to) = (self.root.join(&a), self.root.join(&z));
        let (call, may): (&dyn Fn() -> io::Result<()>, &[Errno]) = match self.rng.below(9) {
            0 | 1 => (&|| File::create_new(&at).map(drop), &[Errno::EXIST]),
            2 => (&|| fs::create_dir(&at), &[Errno::EXIST]),
            3 => (&|| fs::remove_file(&at), &[Errno::NOENT, Errno::ISDIR]),
            4 => (&|| fs::remove_dir(&at), &[Errno::NOENT, Errno::NOTDIR, Errno::NOTEMPTY]),
            5 | 6 => {
                (&|| fs::rename(&at, &to), &[Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::NOTEMPTY])
            }
            7 => (&|| fs::hard_link(&at, &to), &[Errno::NOENT, Errno::EXIST, Errno::PERM]),
            _ => (&|| look(&at), &[Errno::NOENT]),
        };
        let is = |e: &io::Error, errno: Errno| e.raw_os_error() == Some(errno.raw_os_error());
        let mut done = call();
        // A call that meets a file moved or removed by another mount is retried (SEMANTICS, exceptions).
        for _ in 0..STALE_MAX {
            if !self.among || !done.as_ref().is_err_and(|e| is(e, Errno::STALE)) {
                break;
            }
            let _ = (look(&at), look(&to));
            done = call();
        }
        match done {
            Ok(()) => Ok(()),
            Err(e) if may.iter().any(|m| is(&e, *m)) => Ok(()),
            Err(e) => bail!("{a} {z}: {e}, may be {may:?}"),
        }
    }
}

fn look(name: &Path) -> io::Result<()> {
    let seen = fs::symlink_metadata(name)?;
    if !seen.is_dir() && seen.nlink() > DIRECTORIES * SHARED {
        return Err(io::Error::other(format!("{} links", seen.nlink())));
    }
    Ok(())
}

fn expect(got: io::Result<()>, want: Result<(), Errno>, what: &str) -> Result<()> {
    let errno = |e: &io::Error| e.raw_os_error();
    match (&got, want) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(e), Err(w)) if errno(e) == Some(w.raw_os_error()) => Ok(()),
        _ => bail!("{what}: {got:?}, must be {want:?}"),
    }
}

fn kind_of(m: &fs::Metadata) -> String {
    if m.is_dir() { "directory".into() } else { "file".into() }
}

/// Kinds of all names; for contended files also how many names the inode has, which must be as many as were found.
fn tree(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    let mut links: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for n in 0..DIRECTORIES {
        for entry in fs::read_dir(root.join(format!("d{n}")))? {
            let entry = entry?;
            let meta = fs::symlink_metadata(entry.path())?;
            if meta.is_file() {
                let seen = links.entry(meta.ino()).or_insert((meta.nlink(), 0));
                ensure!(
                    seen.0 == meta.nlink(),
                    "names of one inode say {} and {} links",
                    seen.0,
                    meta.nlink()
                );
                seen.1 += 1;
            }
            let name = format!("d{n}/{}", entry.file_name().to_string_lossy());
            ensure!(out.insert(name.clone(), kind_of(&meta)).is_none(), "{name} is listed twice");
        }
    }
    if let Some((ino, (says, found))) = links.iter().find(|(_, (says, found))| says != found) {
        bail!("inode {ino} says {says} links and has {found} names");
    }
    Ok(out)
}

fn first_difference(one: &BTreeMap<String, String>, two: &BTreeMap<String, String>) -> String {
    let names = one.keys().chain(two.keys());
    let mut differing = names.filter(|n| one.get(*n) != two.get(*n));
    differing.next().map_or_else(String::new, |n| format!("{n}: {:?} and {:?}", one.get(n), two.get(n)))
}
