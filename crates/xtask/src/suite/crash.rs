//! `kill -9` under load: no acknowledged change may be lost, whichever process is killed.
//!
//! Workers each own a directory and a model of it; with two mounts each call goes through one or the other, and both are looked at.
//! A mount that dies ends the calls through it and no others. A system call that fails leaves its file *unsure*: old or new content
//! (per page for writes) is then right, anything else is not. With a mount dies what it had not shipped: the last creations, small writes and
//! removals since an fsync may be gone, and then all later ones are, too.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Rng, Role};

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Own, ("crash::kill_any_process_loses_nothing_acknowledged", kill_any)),
    (Needs::Own, ("crash::orphans_of_a_killed_mount_are_freed", orphans_are_freed)),
];

const WORKERS: usize = 3;
const FILES_PER_WORKER: u64 = 12;

/// Expected content of a file: one certain content, or one of two.
#[derive(Clone)]
struct Expected {
    /// `None` = the name does not exist.
    now: Option<Vec<u8>>,
    /// The outcome of a call that failed: it may have happened.
    or: Option<Option<Vec<u8>>>,
}

struct Worker {
    /// The directory, by each mount.
    dirs: Vec<PathBuf>,
    /// How a call through that mount failed, if one did.
    failed: Vec<Option<String>>,
    rng: Rng,
    files: BTreeMap<String, Expected>,
    /// Changes that a mount may not have shipped yet, in order.
    unshipped: Vec<Unshipped>,
}

/// A change through a mount, and the content that the name had before.
#[derive(PartialEq)]
struct Unshipped {
    place: usize,
    name: String,
    before: Option<Vec<u8>>,
}

/// [S-kill] A `kill -9` of any process, or of all, loses nothing that a call acknowledged, but what a killed mount had not shipped.
/// [S-dead-mount] Nor do others' calls fail.
fn kill_any(b: &mut Bench) -> Result<()> {
    let root = b.dir("kills")?;
    let mut workers = Vec::new();
    for w in 0..WORKERS {
        let dir = root.join(w.to_string());
        fs::create_dir(&dir)?;
        let mut dirs = vec![dir.clone(), b.look(&dir)];
        dirs.truncate(b.cluster.mounts().count());
        let failed = vec![None; dirs.len()];
        let rng = Rng::new(b.seed * 1000 + w as u64);
        workers.push(Worker { dirs, failed, rng, files: BTreeMap::new(), unshipped: vec![] });
    }
    let mut rng = b.rng();
    // Every role gets its turn, and so does all at once.
    let mut victims = b.cluster.roles().into_iter().map(Victim::One).collect::<Vec<_>>();
    if victims.len() > 1 {
        victims.push(Victim::All);
    }
    for round in 0..b.scale.kills {
        let victim = victims[((b.seed + round) % victims.len() as u64) as usize];
        let context = || format!("round {round}, killed {victim:?}");
        workers =
            storm(b, workers, victim, Duration::from_millis(30 + rng.below(250))).with_context(context)?;
        let died = (0..b.cluster.mounts().count()).any(|n| victim.is_mount(n));
        for w in &mut workers {
            w.verify(died).with_context(context)?;
        }
    }
    for w in &workers {
        fs::remove_dir_all(&w.dirs[0])?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    One(Role),
    All,
}

impl Victim {
    /// Whether the mount with this number dies.
    fn is_mount(self, n: usize) -> bool {
        match self {
            Victim::All | Victim::One(Role::All) => true,
            Victim::One(Role::Mount) => n == 0,
            Victim::One(Role::SecondMount) => n == 1,
            Victim::One(_) => false,
        }
    }
}

/// Runs the workers for a while, kills the victim meanwhile, restarts it, and waits for the workers.
fn storm(b: &mut Bench, workers: Vec<Worker>, victim: Victim, lead: Duration) -> Result<Vec<Worker>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running: Vec<_> = workers
            .into_iter()
            .map(|mut w| {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) && w.step() {}
                    w
                })
            })
            .collect();
        thread::sleep(lead);
        let outcome = match victim {
            Victim::All => b.cluster.kill_all_and_start(),
            Victim::One(role) => b
                .cluster
                .kill(role)
                .and_then(|()| b.cluster.start_role(role))
                .and_then(|()| b.cluster.wait_mounted()),
        };
        let lives = (0..b.cluster.mounts().count()).any(|n| !victim.is_mount(n));
        if lives && outcome.is_ok() {
            // Workers whose mount survived must continue without an error once the victim is back.
            thread::sleep(Duration::from_millis(300));
        }
        stop.store(true, Ordering::Relaxed);
        let mut workers: Vec<Worker> = running
            .into_iter()
            .map(|t| t.join().map_err(|_| anyhow::anyhow!("worker panicked")))
            .collect::<Result<_>>()?;
        outcome?;
        for w in &mut workers {
            for (n, failed) in w.failed.iter_mut().enumerate() {
                match failed.take() {
                    Some(what) if !victim.is_mount(n) => {
                        bail!("a call through mount {n} failed though only {victim:?} was restarted: {what}")
                    }
                    _ => {}
                }
            }
        }
        Ok(workers)
    })
}

impl Worker {
    /// One system call (with open and close around it). False if no mount is left to make one through.
    fn step(&mut self) -> bool {
        let living: Vec<usize> = (0..self.dirs.len()).filter(|n| self.failed[*n].is_none()).collect();
        if living.is_empty() {
            return false;
        }
        let place = *self.rng.pick(&living);
        let name = format!("f{}", self.rng.below(FILES_PER_WORKER));
        if self.is_unsure(&name) {
            // The effect of a call through a dead mount is checked after the remount.
            return true;
        }
        let path = self.dirs[place].join(&name);
        let old = self.files.get(&name).and_then(|e| e.now.clone());
        let kind = self.rng.below(10);
        let (new, outcome) = match (old.clone(), kind) {
            (None, _) => (Some(Vec::new()), File::create_new(&path).map(drop)),
            (Some(mut bytes), 0..6) => {
                let big = self.rng.chance(15);
                let at = self.rng.below(if big { 400_000 } else { bytes.len() as u64 + 5_000 }) as usize;
                let mut data = vec![0u8; 1 + self.rng.below(if big { 120_000 } else { 6_000 }) as usize];
                self.rng.fill(&mut data);
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[at..at + data.len()].copy_from_slice(&data);
                (Some(bytes), write_once(&path, &data, at as u64))
            }
            (Some(mut bytes), 6) => {
                let len = self.rng.below(bytes.len() as u64 + 3_000);
                bytes.resize(len as usize, 0);
                (Some(bytes), OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(len)))
            }
            (Some(_), 7) => (None, fs::remove_file(&path)),
            (Some(bytes), 8) => {
                self.rename(place, name, bytes);
                return true;
            }
            (Some(bytes), _) => {
                let synced = File::open(&path).and_then(|f| f.sync_all());
                if synced.is_ok() {
                    self.was_shipped(place);
                }
                (Some(bytes), synced)
            }
        };
        if let Err(e) = &outcome {
            self.failed[place] =
                Some(format!("call {kind} on {}, there: {}: {e}", path.display(), old.is_some()));
        }
        if outcome.is_ok() && old != new {
            self.unshipped.push(Unshipped { place, name: name.clone(), before: old.clone() });
        }
        self.record(name, old, new, outcome.is_ok());
        true
    }

    /// A call through this mount waited for all changes that it had made.
    fn was_shipped(&mut self, place: usize) {
        self.unshipped.retain(|change| change.place != place);
    }

    fn is_unsure(&self, name: &str) -> bool {
        self.files.get(name).is_some_and(|e| e.or.is_some())
    }

    fn record(&mut self, name: String, old: Option<Vec<u8>>, new: Option<Vec<u8>>, done: bool) {
        let expected = match done {
            true => Expected { now: new, or: None },
            false => Expected { now: old, or: Some(new) },
        };
        self.files.insert(name, expected);
    }

    fn rename(&mut self, place: usize, name: String, bytes: Vec<u8>) {
        let target = format!("f{}", self.rng.below(FILES_PER_WORKER));
        if target == name || self.is_unsure(&target) {
            return;
        }
        let old_target = self.files.get(&target).and_then(|e| e.now.clone());
        let outcome = fs::rename(self.dirs[place].join(&name), self.dirs[place].join(&target));
        if let Err(e) = &outcome {
            self.failed[place] = Some(format!("rename of {name} to {target}: {e}"));
        } else {
            self.was_shipped(place);
        }
        self.record(name, Some(bytes.clone()), None, outcome.is_ok());
        self.record(target, old_target, Some(bytes), outcome.is_ok());
    }

    /// Compares the directory with the model, by each mount. The first mount settles the uncertain outcomes. `died`: a mount was killed.
    fn verify(&mut self, died: bool) -> Result<()> {
        let unshipped = std::mem::take(&mut self.unshipped);
        // The first lost change of each name that lost one, and names that lost none.
        let (mut lost, mut whole) = (Vec::new(), Vec::new());
        let first = self.rng.below(self.dirs.len() as u64) as usize;
        for n in 0..self.dirs.len() {
            let dir = &self.dirs[(first + n) % self.dirs.len()];
            for entry in fs::read_dir(dir)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if !self.files.contains_key(&name) {
                    bail!("{name} was never made, or is gone by another mount: {}", dir.display());
                }
            }
            for (name, expected) in &mut self.files {
                let path = dir.join(name);
                let got = match fs::read(&path) {
                    Ok(bytes) => Some(bytes),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                    Err(e) => return Err(e).with_context(|| path.display().to_string()),
                };
                // Of the last call of a mount, which had not closed its file yet, writes behind may be there in parts.
                let is_last =
                    |change: &Unshipped| unshipped.iter().rfind(|c| c.place == change.place) == Some(change);
                let is_back = |change: &Unshipped| {
                    let is_part = || is_last(change) && is_in_parts(&got, &change.before, &expected.now);
                    change.name == *name && (change.before == got || is_part())
                };
                match expected.check(&got) {
                    Ok(()) => whole.push(name.clone()),
                    Err(why) => match unshipped.iter().rposition(is_back).filter(|_| died && n == 0) {
                        Some(at) => lost.push(at),
                        None => return Err(why).with_context(|| path.display().to_string()),
                    },
                }
                *expected = Expected { now: got, or: None };
            }
            self.files.retain(|_, e| e.now.is_some());
        }
        let Some(first) = lost.into_iter().min() else { return Ok(()) };
        // The state of each name at that moment is what its first change from then on found.
        let mut seen = std::collections::BTreeSet::new();
        let mut survives = |change: &&Unshipped| {
            let is_first = seen.insert(change.name.clone());
            let is_there = self.files.contains_key(&change.name);
            is_first && whole.contains(&change.name) && change.before.is_some() != is_there
        };
        match unshipped[first..].iter().find(&mut survives) {
            Some(later) => bail!(
                "{} lost a change, and a later one of {} survived the kill of their mount",
                unshipped[first].name,
                later.name
            ),
            None => Ok(()),
        }
    }
}

impl Expected {
    fn check(&self, got: &Option<Vec<u8>>) -> Result<()> {
        if *got == self.now {
            return Ok(());
        }
        let Some(or) = &self.or else {
            return match (got, &self.now) {
                (Some(got), Some(want)) => ensure_same(got, want, "acknowledged content"),
                (None, _) => bail!("acknowledged, but the name is gone"),
                (_, None) => bail!("removed, but the name is back"),
            };
        };
        match (got, &self.now, or) {
            _ if got == or => Ok(()),
            // A write that was not acknowledged may have reached some pages.
            (Some(got), Some(old), Some(new)) => each_page_old_or_new(got, old, new),
            _ => bail!("neither what was before the failed call nor what it would have made"),
        }
    }
}

/// The call wrote `new` over `old`, or cut the file first. Each page is as one of them has it, or was not written yet.
fn is_in_parts(got: &Option<Vec<u8>>, old: &Option<Vec<u8>>, new: &Option<Vec<u8>>) -> bool {
    let (Some(got), Some(new)) = (got, new) else { return false };
    let old = old.as_deref().unwrap_or_default();
    let page_of = |bytes: &[u8], n: usize, len: usize| -> Vec<u8> {
        (0..len).map(|i| bytes.get(n * 4096 + i).copied().unwrap_or(0)).collect()
    };
    let is_known = |n: usize, page: &[u8]| {
        let is_empty = page.iter().all(|b| *b == 0);
        is_empty || page == page_of(old, n, page.len()) || page == page_of(new, n, page.len())
    };
    got.len() <= old.len().max(new.len()) && got.chunks(4096).enumerate().all(|(n, page)| is_known(n, page))
}

fn each_page_old_or_new(got: &[u8], old: &[u8], new: &[u8]) -> Result<()> {
    if got.len() < old.len().min(new.len()) || got.len() > old.len().max(new.len()) {
        bail!("{} bytes, expected between {} and {}", got.len(), old.len(), new.len());
    }
    for (n, page) in got.chunks(4096).enumerate() {
        let at = |bytes: &[u8]| -> Vec<u8> {
            (0..page.len()).map(|i| bytes.get(n * 4096 + i).copied().unwrap_or(0)).collect()
        };
        if page != at(old) && page != at(new) {
            bail!("page {n} is neither old nor new");
        }
    }
    Ok(())
}

fn write_once(path: &Path, data: &[u8], at: u64) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all_at(data, at)
}

/// The second half of [S-unlinked-open]: the space of an unlinked open file is freed also when its client dies.
fn orphans_are_freed(b: &mut Bench) -> Result<()> {
    let dir = b.dir("orphans")?;
    // Compare used space, not free space: an OST that joins late adds free space.
    let used = |mount: &Path| -> Result<u64> {
        let now = rustix::fs::statvfs(mount)?;
        Ok((now.f_blocks - now.f_bfree) * now.f_frsize)
    };
    let mount = b.cluster.mount.clone();
    let before = used(&mount)?;
    let path = dir.join("f");
    let file = File::create(&path)?;
    file.write_all_at(&vec![1; 32 << 20], 0)?;
    file.sync_all()?;
    // The numbers that `statfs` gives are up to a second old.
    super::semantics::wait_until("the file takes space", || Ok(used(&mount)? >= before + (30 << 20)))?;
    fs::remove_file(b.look(&path))?;
    b.cluster.kill_all_and_start()?;
    drop(file);
    let mount = b.cluster.mount.clone();
    super::semantics::wait_until("the orphan's space is freed", || Ok(used(&mount)? < before + (2 << 20)))
}
