//! SQLite: WAL with its shared mapping, memory-mapped reads, rollback journals, many writers; servers killed under it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::{Role, Wiring};

use super::super::sys::*;
use super::super::{Bench, Needs, Test, set_stripe};
use super::databases::Committer;

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Shared, ("programs::sqlite_wal_and_mmap", wal_and_mmap)),
    (Needs::Shared, ("programs::sqlite_rollback_journal", rollback_journal)),
    (Needs::Only(Wiring::Tcp), ("programs::sqlite_goes_on_while_osts_are_killed", osts_killed)),
    (Needs::Own, ("programs::sqlite_after_a_kill_of_all", all_killed)),
];

/// A table of rows and a total of their numbers, which every transaction keeps equal.
const TABLES: &str = "CREATE TABLE t (w INT, n INT, data BLOB, PRIMARY KEY (w, n)); CREATE TABLE total (sum INT); INSERT INTO total VALUES (0);";

fn sqlite(db: &Path, script: &str) -> Result<String> {
    run(
        "sqlite3",
        &["-batch", "-bail", "-cmd", ".timeout 120000", &db.display().to_string(), script],
        Path::new("/"),
    )
}

/// One transaction of writer `w`, as one line.
pub fn transaction(w: u64, n: u64) -> String {
    format!(
        "BEGIN IMMEDIATE; INSERT INTO t VALUES ({w}, {n}, randomblob({})); UPDATE total SET sum = sum + {n}; COMMIT; SELECT {n};",
        100 + n * 37 % 3000
    )
}

pub fn make(db: &Path, journal: &str) -> Result<()> {
    sqlite(db, &format!("PRAGMA journal_mode={journal}; {TABLES}")).map(drop)
}

/// SQLite's `EXTRA`, not `FULL`: with a rollback journal the removal of the journal is the commit, and only `EXTRA` flushes the
/// directory after it, before the transaction is acknowledged.
pub fn committer(db: &Path, w: u64, first: u64) -> Result<Committer> {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail", "-cmd", ".timeout 120000", "-cmd", "PRAGMA synchronous=EXTRA;"]);
    command.args([
        "-cmd",
        ".output /dev/null",
        "-cmd",
        "PRAGMA mmap_size=268435456;",
        "-cmd",
        ".output stdout",
    ]);
    command.arg(db);
    Committer::start(command, first, move |n| transaction(w, n))
}

/// SQLite's own check, our total, and no acknowledged row is missing.
pub fn check(db: &Path, acknowledged: &[u64]) -> Result<()> {
    let integrity = sqlite(db, "PRAGMA mmap_size=268435456; PRAGMA integrity_check;")?;
    ensure_eq(integrity.lines().last(), Some("ok"), "integrity_check")?;
    let equal = sqlite(db, "SELECT (SELECT sum FROM total) = (SELECT coalesce(sum(n), 0) FROM t);")?;
    ensure_eq(equal.trim(), "1", "the total equals the sum of the rows")?;
    for (w, last) in acknowledged.iter().enumerate() {
        let count = sqlite(db, &format!("SELECT count(*) FROM t WHERE w = {w} AND n <= {last};"))?;
        ensure_eq(
            count.trim(),
            last.to_string().as_str(),
            &format!("rows of writer {w} that were acknowledged"),
        )?;
    }
    Ok(())
}

pub fn last_row(db: &Path) -> Result<u64> {
    Ok(sqlite(db, "SELECT coalesce(max(n), 0) FROM t;")?.trim().parse()?)
}

/// Several processes write into one database until each has `count` transactions.
fn write_together(db: &Path, writers: u64, count: u64) -> Result<()> {
    let mut running: Vec<_> = (0..writers).map(|w| committer(db, w, 1)).collect::<Result<_>>()?;
    running.iter_mut().try_for_each(|c| c.wait_for(count))?;
    let last: Vec<u64> = running.into_iter().map(|c| c.finish(true)).collect::<Result<_>>()?;
    check(db, &last)
}

fn wal_and_mmap(b: &mut Bench) -> Result<()> {
    let db = b.dir("sqlite-wal")?.join("db");
    make(&db, "WAL")?;
    write_together(&db, 4, b.scale.transactions / 4)?;
    let size = fs::metadata(&db)?.len();
    sqlite(
        &db,
        "PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM t WHERE n % 2 = 0; UPDATE total SET sum = (SELECT sum(n) FROM t); VACUUM;",
    )?;
    check(&db, &[])?;
    if fs::metadata(&db)?.len() >= size {
        bail!("VACUUM after half of the rows are deleted makes the file shorter: {size} bytes before");
    }
    b.cluster.restart()?;
    check(&db, &[])
}

fn rollback_journal(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sqlite-journal")?;
    for journal in ["DELETE", "TRUNCATE", "PERSIST"] {
        let db = dir.join(journal);
        make(&db, journal)?;
        write_together(&db, 3, b.scale.transactions / 40)?;
    }
    Ok(fs::remove_dir_all(dir)?)
}

/// OSTs die and come back while transactions are committed: SQLite hears nothing of it.
fn osts_killed(b: &mut Bench) -> Result<()> {
    let db = b.dir("sqlite-osts")?.join("db");
    // Rows enough for objects, over all OSTs.
    set_stripe(b, &["-c", "-1", "-S", "64K"], &db)?;
    make(&db, "WAL")?;
    let mut committer = committer(&db, 0, 1)?;
    let mut rng = b.rng();
    for round in 0..b.scale.kills / 4 {
        committer.wait_for(committer.acknowledged() + 1 + rng.below(40))?;
        let victim = Role::Oss(rng.below(2) as usize);
        b.cluster.kill(victim)?;
        thread::sleep(Duration::from_millis(rng.below(200)));
        b.cluster.start_role(victim)?;
        committer
            .wait_for(committer.acknowledged() + 1)
            .with_context(|| format!("round {round}, {victim:?}"))?;
    }
    let last = committer.finish(true)?;
    check(&db, &[last])
}

/// All processes are killed during transactions: acknowledged ones are there; others are there whole or not at all.
fn all_killed(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sqlite-kill")?;
    let mut rng = b.rng();
    for journal in ["WAL", "DELETE"] {
        let db = dir.join(journal);
        make(&db, journal)?;
        let mut last = 0;
        for _ in 0..b.scale.kills.div_ceil(10) {
            let mut committer = committer(&db, 0, last + 1)?;
            committer.wait_for(last + 1 + rng.below(60))?;
            b.cluster.kill_all_and_start()?;
            last = committer.kill()?;
            check(&db, &[last])?;
            // The transaction under way may have been committed without a word.
            let there = last_row(&db)?;
            if there > last + 1 {
                bail!("row {there} is there, though only {last} were acknowledged and one was under way");
            }
            last = there;
        }
    }
    Ok(())
}
