//! The name space against a reference: the same random calls on the mount and on a directory of the machine's own file system
//! must give the same results, the same errors, and in the end the same tree.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use testkit::Rng;

use super::{Bench, Test};

pub const TESTS: &[Test] = &[
    ("names::random_operations_match_the_local_file_system", random_operations),
    ("names::listings_beside_renames_of_another_mount", listings_beside_renames),
];

/// The result of a call, without values that may differ between file systems (inode numbers, sizes of directories).
type Outcome = Result<String, Option<i32>>;

/// [S-big-directory] Files that go to and fro between two names within a directory, through the other mount where there is one, are in each
/// listing under one of them.
fn listings_beside_renames(b: &mut Bench) -> Result<()> {
    const FILES: usize = 200;
    const LISTINGS: usize = 300;
    let dir = b.dir("listed")?;
    let other = b.look(&dir);
    let names = |n: usize| [format!("file{n}"), format!("other{n}")];
    for n in 0..FILES {
        fs::write(dir.join(&names(n)[0]), b"")?;
    }
    let is_over = AtomicBool::new(false);
    let (missed, renamed) = std::thread::scope(|s| {
        let renaming = s.spawn(|| -> Result<usize> {
            for count in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return Ok(count);
                }
                let [old, new] = names(count % FILES);
                let [old, new] = if (count / FILES).is_multiple_of(2) { [old, new] } else { [new, old] };
                fs::rename(other.join(old), other.join(new))?;
            }
            unreachable!("it ends with the listings")
        });
        let list = || -> Result<usize> {
            let mut missed = 0;
            for _ in 0..LISTINGS {
                let found =
                    fs::read_dir(&dir)?.map(|e| Ok(e?.file_name())).collect::<Result<HashSet<_>>>()?;
                let has = |n: usize| names(n).iter().any(|name| found.contains(OsStr::new(name)));
                missed += usize::from(!(0..FILES).all(has));
            }
            Ok(missed)
        };
        let missed = list();
        is_over.store(true, Ordering::Relaxed);
        let renamed = renaming.join().map_err(|_| anyhow::anyhow!("the renaming thread panicked"));
        Ok::<_, anyhow::Error>((missed?, renamed??))
    })?;
    if missed > 0 || renamed == 0 {
        bail!("{missed} of {LISTINGS} listings miss a file, beside {renamed} renames");
    }
    fs::remove_dir_all(&dir)?;
    Ok(())
}

fn random_operations(b: &mut Bench) -> Result<()> {
    for seed in b.seed..b.seed + b.scale.seeds {
        let ours = b.dir(&format!("names{seed}"))?;
        let reference = b.cluster.dir.join(format!("names-reference{seed}"));
        fs::create_dir(&reference)?;
        let mut rng = Rng::new(seed);
        // With two mounts the kernel asks for each name of each path, and the trees grow deep.
        let operations = b.scale.operations_per_seed() / if b.cluster.second.is_some() { 8 } else { 1 };
        for n in 0..operations {
            let op = Op::random(&mut rng);
            let place = b.turn(n, &ours);
            let got = match op.run(&place) {
                Err(Some(STALE)) if b.cluster.second.is_some() => op.look_and_run(&place),
                got => got,
            };
            let want = op.run(&reference);
            if got != want {
                bail!("operation {n} of seed {seed}: {op:?} gives {got:?}, the local file system {want:?}");
            }
            if n % 5_000 == 4_999 {
                compare(&b.turn(n / 5_000, &ours), &reference)
                    .with_context(|| format!("after operation {n} of seed {seed}"))?;
            }
        }
        compare(&ours, &reference)?;
        compare(&b.look(&ours), &reference)?;
        b.cluster.restart()?;
        compare(&ours, &reference).context("after a restart")?;
        fs::remove_dir_all(&ours)?;
        fs::remove_dir_all(&reference)?;
    }
    Ok(())
}

const STALE: i32 = rustix::io::Errno::STALE.raw_os_error();

#[derive(Debug)]
enum Op {
    Create(PathBuf),
    MakeDir(PathBuf),
    Symlink(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Unlink(PathBuf),
    RemoveDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Stat(PathBuf),
    List(PathBuf),
    Chmod(PathBuf, u32),
    Write(PathBuf, usize),
    ReadLink(PathBuf),
}

/// A path of one to three names out of few, so that calls meet.
fn path(rng: &mut Rng) -> PathBuf {
    let depth = 1 + rng.below(3);
    (0..depth).map(|_| format!("n{}", rng.below(5))).collect()
}

impl Op {
    fn random(rng: &mut Rng) -> Op {
        match rng.below(100) {
            0..20 => Op::Create(path(rng)),
            20..35 => Op::MakeDir(path(rng)),
            35..39 => Op::Symlink(path(rng), path(rng)),
            39..46 => Op::Link(path(rng), path(rng)),
            46..56 => Op::Unlink(path(rng)),
            56..62 => Op::RemoveDir(path(rng)),
            62..77 => Op::Rename(path(rng), path(rng)),
            77..86 => Op::Stat(path(rng)),
            86..91 => Op::List(path(rng)),
            91..94 => Op::Chmod(path(rng), 0o400 | rng.below(0o400) as u32),
            94..98 => Op::Write(path(rng), rng.below(9_000) as usize),
            _ => Op::ReadLink(path(rng)),
        }
    }

    /// Retries as a program does after `ESTALE`, which SEMANTICS allows for a rename that meets a directory moved by the other mount.
    fn look_and_run(&self, root: &Path) -> Outcome {
        if let Op::Rename(from, to) = self {
            for name in [from, to] {
                let _ = fs::symlink_metadata(root.join(name));
            }
        }
        self.run(root)
    }

    fn run(&self, root: &Path) -> Outcome {
        let at = |p: &PathBuf| root.join(p);
        let done = |r: io::Result<()>| r.map(|()| String::new());
        let result = match self {
            Op::Create(p) => done(fs::File::create_new(at(p)).map(drop)),
            Op::MakeDir(p) => done(fs::create_dir(at(p))),
            Op::Symlink(target, p) => done(symlink(target, at(p))),
            Op::Link(from, to) => done(fs::hard_link(at(from), at(to))),
            Op::Unlink(p) => done(fs::remove_file(at(p))),
            Op::RemoveDir(p) => done(fs::remove_dir(at(p))),
            Op::Rename(from, to) => done(fs::rename(at(from), at(to))),
            Op::Stat(p) => fs::symlink_metadata(at(p)).map(|m| shown(&m)),
            Op::List(p) => list(&at(p)).map(|names| names.join(" ")),
            Op::Chmod(p, mode) => done(fs::set_permissions(at(p), fs::Permissions::from_mode(*mode))),
            Op::Write(p, len) => done(append(&at(p), *len)),
            Op::ReadLink(p) => fs::read_link(at(p)).map(|t| t.display().to_string()),
        };
        result.map_err(|e| e.raw_os_error())
    }
}

fn append(path: &Path, len: usize) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().append(true).open(path)?.write_all(&vec![b'x'; len])
}

fn shown(m: &fs::Metadata) -> String {
    let size = if m.is_dir() { 0 } else { m.size() };
    format!("{:o} links {} size {size} owner {}:{}", m.mode(), m.nlink(), m.uid(), m.gid())
}

fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(dir)?
        .map(|e| Ok(e?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Both trees have the same names with the same attributes, and the same names share inodes.
fn compare(ours: &Path, reference: &Path) -> Result<()> {
    let (got, want) = (tree(ours)?, tree(reference)?);
    for (path, attributes) in &want {
        if got.get(path) != Some(attributes) {
            bail!("{path}: {:?}, the local file system has {attributes:?}", got.get(path));
        }
    }
    match got.keys().find(|p| !want.contains_key(*p)) {
        Some(extra) => bail!("{extra} is there, but not in the local file system"),
        None => Ok(()),
    }
}

fn tree(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut out = BTreeMap::new();
    let mut first_name_of: BTreeMap<u64, String> = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for name in list(&dir)? {
            let path = dir.join(name);
            let meta = fs::symlink_metadata(&path)?;
            let key = path.strip_prefix(root)?.display().to_string();
            let twin = first_name_of.entry(meta.ino()).or_insert_with(|| key.clone());
            out.insert(key, format!("{} same as {twin}", shown(&meta)));
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    Ok(out)
}
