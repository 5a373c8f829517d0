//! git: commit, clone, repack, check; and committers that race for `index.lock`.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::super::sys::*;
use super::super::{Bench, Needs, Test};
use super::trees::tree;

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Shared, ("programs::git", git)), (Needs::Shared, ("programs::git_index_lock_races", races))];

/// Three others are in the way for milliseconds each.
const COMMITTED_WITHIN: Duration = Duration::from_secs(120);

const IDENT: [&str; 6] = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "gc.auto=0"];

fn git(b: &mut Bench) -> Result<()> {
    let source = tree(b)?;
    let dir = b.dir("git")?;
    let repo = dir.join("repo");
    run("cp", &["-r", &source.join("d0").display().to_string(), "repo"], &dir)?;
    run("git", &["init", "-q"], &repo)?;
    run("git", &["add", "-A"], &repo)?;
    run("git", &[&IDENT[..], &["commit", "-qm", "one"]].concat(), &repo)?;
    fs::write(repo.join("new"), "two")?;
    run("git", &["add", "-A"], &repo)?;
    run("git", &[&IDENT[..], &["commit", "-qm", "two"]].concat(), &repo)?;
    run("git", &["clone", "-q", "--no-hardlinks", "repo", "clone"], &dir)?;
    run("git", &["repack", "-adq"], &dir.join("clone"))?;
    run("git", &["fsck", "--strict"], &dir.join("clone"))?;
    let status = run("git", &["status", "--porcelain"], &dir.join("clone"))?;
    ensure_eq(status.trim(), "", "git status of a fresh clone")?;
    Ok(fs::remove_dir_all(dir)?)
}

/// Committers in one repository, half of them through the other mount: `index.lock` and the lock of the branch let one in at a
/// time. A refused committer retries; no commit is lost, none is torn, and no lock is left.
fn races(b: &mut Bench) -> Result<()> {
    let dir = b.dir("git-races")?;
    let repo = dir.join("repo");
    fs::create_dir(&repo)?;
    run("git", &["init", "-q"], &repo)?;
    let each = b.scale.transactions / 40;
    let places = [repo.clone(), b.look(&repo), repo.clone(), b.look(&repo)];
    let refused = thread::scope(|scope| {
        let running: Vec<_> = (0..places.len())
            .map(|w| {
                let place = &places[w];
                scope.spawn(move || (0..each).map(|n| commit(place, w, n)).sum::<Result<u64>>())
            })
            .collect();
        let counts =
            running.into_iter().map(|r| r.join().map_err(|_| anyhow::anyhow!("a committer panicked"))?);
        counts.sum::<Result<u64>>()
    })?;
    ensure!(refused > 0, "nobody ever met another's lock: this test would show nothing");
    // By the history, not by the index: git reads that before it locks it, so on any file system one may undo another's `add`.
    for w in 0..places.len() {
        let log = run("git", &["log", "--format=%s", &format!("--grep=^{w} "), "HEAD"], &repo)?;
        ensure_eq(log.lines().count() as u64, each, &format!("commits of committer {w}"))?;
        for n in 0..each {
            ensure_eq(
                run("git", &["show", &format!("HEAD:f{w}-{n}")], &repo)?,
                format!("{w} {n}"),
                "a committed file",
            )?;
        }
    }
    run("git", &["fsck", "--strict"], &repo)?;
    run("git", &["reset", "-q"], &repo)?;
    ensure_eq(run("git", &["status", "--porcelain"], &repo)?.as_str(), "", "git status after the races")?;
    let locks = run("find", &[".git", "-name", "*.lock"], &repo)?;
    ensure_eq(locks.as_str(), "", "locks that are left")?;
    Ok(fs::remove_dir_all(dir)?)
}

/// Errors of git when another committer was faster: its locks, HEAD that moved on, an index that lost our `add` to another's.
const IN_THE_WAY: &[&str] = &["index.lock", "cannot lock ref", "HEAD.lock", "did not match any file"];

/// Adds and commits one file, again and again until no other is in the way; gives how often one was.
fn commit(repo: &Path, w: usize, n: u64) -> Result<u64> {
    let (name, message) = (format!("f{w}-{n}"), format!("{w} {n}"));
    fs::write(repo.join(&name), &message)?;
    let partial = [&IDENT[..], &["commit", "-qm", &message, "--", &name]].concat();
    let (mut refused, until) = (0, Instant::now() + COMMITTED_WITHIN);
    while let Err(e) = run("git", &["add", &name], repo).and_then(|_| run("git", &partial, repo)) {
        let text = format!("{e:#}");
        if !IN_THE_WAY.iter().any(|w| text.contains(w)) {
            bail!(e);
        }
        ensure!(Instant::now() < until, "refused {refused} times in {COMMITTED_WITHIN:?}, last by {text}");
        refused += 1;
    }
    Ok(refused)
}
