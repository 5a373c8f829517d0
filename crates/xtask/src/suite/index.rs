//! `stria index`: the index tells what a walk finds, over changes at two mounts, kills and a lost consumer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use testkit::{Rng, Wiring};

use super::schema::Schemas;
use super::semantics::wait_until;
use super::sys::ensure_eq;
use super::{Bench, Needs, Test};

pub const OWN: &[(Needs, Test)] =
    &[(Needs::Only(Wiring::Two), ("index::it_finds_what_a_walk_finds_over_kills", over_kills))];

/// Everything but access times, which no change record tells.
const ALL: &str = "%p|%P|%f|%d|%s|%b|%n|%i|%m|%U|%G|%y|%l|%T@|%C@|%W@|%Lc|%LS|%Li|%Lo\\0";

/// A running `stria index run`, until it is dropped.
struct Indexer(Child);

impl Indexer {
    fn start(b: &Bench, db: &Path) -> Result<Indexer> {
        Indexer::of(b, db, &b.cluster.mount)
    }

    fn of(b: &Bench, db: &Path, mount: &Path) -> Result<Indexer> {
        let log = fs::File::create(Indexer::log(b))?;
        let mut command = Command::new(b.cluster.bin());
        command.args(["index", "run", "--db"]).arg(db).arg(mount);
        Ok(Indexer(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
    }

    fn log(b: &Bench) -> PathBuf {
        b.cluster.dir.join("index.log")
    }
}

impl Drop for Indexer {
    fn drop(&mut self) {
        // As `kill -9`.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The results, each ended by NUL, in their order.
fn found(b: &Bench, words: &[&str]) -> Result<(i32, Vec<String>)> {
    let out = Command::new(b.cluster.bin()).arg("find").args(words).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let mut all: Vec<String> = text.split('\0').filter(|one| !one.is_empty()).map(str::to_owned).collect();
    all.sort();
    let code = out.status.code().unwrap_or(-1);
    ensure!(code <= 1, "{words:?}: exit {code}: {}", String::from_utf8_lossy(&out.stderr));
    Ok((code, all))
}

/// Results that only one of them has. Empty if both find the same.
fn differences(b: &Bench, db: &str, tests: &[&str]) -> Result<Vec<String>> {
    let place = b.cluster.mount.display().to_string();
    let (walked_code, walked) = found(b, &[&[&place[..]], tests, &["-printf", ALL]].concat())?;
    let (code, indexed) = found(b, &[&["-db", db, &place], tests, &["-printf", ALL]].concat())?;
    let only = |of: &[String], other: &[String], by: &str| -> Vec<String> {
        of.iter().filter(|one| !other.contains(one)).map(|one| format!("{by}: {one}")).collect()
    };
    let mut all = [only(&walked, &indexed, "walk"), only(&indexed, &walked, "index")].concat();
    if (code, walked_code) != (0, 0) {
        all.push(format!("exit codes {walked_code} and {code}"));
    }
    Ok(all)
}

fn is_equal(b: &Bench, db: &str, tests: &[&str]) -> Result<bool> {
    Ok(differences(b, db, tests)?.is_empty())
}

/// Changes of names, content and attributes at both mounts.
fn change(b: &Bench, rng: &mut Rng, dir: &Path, count: u64) -> Result<()> {
    let any = |rng: &mut Rng, what: &str, of: u64| dir.join(format!("{what}{}", rng.below(of)));
    for n in 0..count {
        let at = |path: PathBuf| b.turn(n, &path);
        let (file, other) = (at(any(rng, "f", 40)), at(any(rng, "f", 40)));
        let (sub, below) = (at(any(rng, "d", 8)), at(any(rng, "d", 8)));
        // Whatever is not there, or in the way, is an error of that call, as in any program.
        let any_of = [&file, &sub][rng.below(2) as usize];
        let _ = match rng.below(14) {
            0..=2 => fs::write(&file, vec![1; rng.below(120_000) as usize]),
            3 | 11 => fs::create_dir(&sub).and_then(|()| fs::write(sub.join("inner.h5"), "x")),
            4 => fs::rename(&file, &other),
            5 => fs::rename(&sub, below.join(format!("moved{n}"))),
            6 => fs::rename(&file, below.join("file")),
            7 => fs::remove_file(&file),
            8 => fs::hard_link(&file, &other),
            9 => fs::set_permissions(
                &file,
                std::os::unix::fs::PermissionsExt::from_mode(0o600 + (n as u32 & 0o77)),
            ),
            10 | 12 => rustix::fs::renameat_with(
                rustix::fs::CWD,
                any_of,
                rustix::fs::CWD,
                &below,
                rustix::fs::RenameFlags::EXCHANGE,
            )
            .map_err(Into::into),
            _ => fs::remove_dir_all(&sub),
        };
    }
    Ok(())
}

/// Moves a tree from one place to another until it is told to end. A scan meets parts of it, or none.
fn move_about(tree: &Path, other: &Path, is_over: &AtomicBool) -> std::io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        fs::rename(tree, other)?;
        fs::rename(other, tree)?;
    }
    Ok(())
}

/// Waits until the index has a file that is made now.
fn wait_until_it_follows(b: &Bench, db: &Path, dir: &Path) -> Result<()> {
    let (file, mount) = (db.display().to_string(), b.cluster.mount.display().to_string());
    fs::write(dir.join("last"), "x")?;
    wait_until("the index follows", || {
        Ok(found(b, &["-db", &file, &mount, "-name", "last", "-print0"])?.1.len() == 1)
    })?;
    Ok(fs::remove_file(dir.join("last"))?)
}

fn over_kills(b: &mut Bench) -> Result<()> {
    let (dir, mut rng) = (b.dir("index")?, b.rng());
    let db = b.cluster.dir.join("index.db");
    let file = db.display().to_string();
    let mount = b.cluster.mount.display().to_string();
    change(b, &mut rng, &dir, 300)?;
    // 1. One scan.
    let (code, said) = b.cluster.stria(&["index", "run", "--once", "--db", &file, &mount])?;
    ensure_eq(code, 0, &said)?;
    wait_until("the index has what a walk finds", || {
        b.cluster.stria(&["index", "run", "--once", "--db", &file, &mount])?;
        is_equal(b, &file, &[])
    })?;
    // 2. Changes while it follows, is killed, and while none follows.
    for _ in 0..3 {
        let _indexer = Indexer::start(b, &db)?;
        change(b, &mut rng, &dir, 400)?;
        wait_until_it_follows(b, &db, &dir)?;
        change(b, &mut rng, &dir, 100)?;
    }
    change(b, &mut rng, &dir, 200)?;
    let indexer = Indexer::start(b, &db)?;
    // Before it has the file for itself, a second one would take it, and the first one would end.
    wait_until_it_follows(b, &db, &dir)?;
    wait_until("a second indexer is refused", || {
        let (code, said) = b.cluster.stria(&["index", "run", "--once", "--db", &file, &mount])?;
        Ok(code == 2 && said.contains("another `stria index run` writes it"))
    })?;
    wait_until("the index has all changes over kills", || is_equal(b, &file, &[]))?;
    // 3. Tests give the same, however SQL narrows them.
    for tests in [
        "-name *inner*",
        "-iname *INNER.h? -type f",
        "-size +50k",
        "( -size -1k -o -links +1 ) -type f",
        "-type d -empty",
        "-mmin -60 ! -name f1*",
        "-uid 0 -perm /077",
        "-inline",
        "( -perm 644 -o -perm -111 ) -links 1",
        "-empty",
        "-blocks +100 -stripe-size 1M",
        "-stripe-count 1 ! -inline",
        "-mindepth 2 -maxdepth 3",
        "-newermt 2020-01-01 -path */moved*",
        "( -name ab -o -name f3 )",
    ] {
        let words: Vec<&str> = tests.split(' ').collect();
        // Space of a file that was just written is told a moment later.
        let mut last = Vec::new();
        let done = wait_until(tests, || {
            last = differences(b, &file, &words)?;
            Ok(last.is_empty())
        });
        done.with_context(|| format!("{last:#?}"))?;
    }
    let below = dir.join("start").display().to_string();
    fs::create_dir_all(&below)?;
    wait_until("a start below is found", || {
        let walked = found(b, &[&below, "-print0"])?;
        Ok(walked == found(b, &["-db", &file, &below, "-print0"]).unwrap_or_default())
    })?;
    // 4. Without its consumer it scans anew.
    let (_, consumers) = b.cluster.stria(&["changelog", "list", "-j", &mount])?;
    let consumers: serde_json::Value = serde_json::from_str(&consumers)?;
    let name = consumers["consumers"][0]["name"].as_str().context("a consumer")?.to_owned();
    ensure!(name.starts_with("index-"), "{consumers}");
    ensure_eq(b.cluster.stria(&["changelog", "deregister", &name, &mount])?.0, 0, "deregister")?;
    for n in 0..40 {
        let below = dir.join(format!("z/tree/sub{n}"));
        fs::create_dir_all(&below)?;
        (0..25).try_for_each(|n| fs::write(below.join(format!("n{n}")), "x"))?;
    }
    fs::create_dir(dir.join("a")).context("a")?;
    let (is_over, moved) = (AtomicBool::new(false), (dir.join("z/tree"), dir.join("a/tree")));
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| move_about(&moved.0, &moved.1, &is_over));
        let anew = wait_until("a new consumer", || {
            let (_, list) = b.cluster.stria(&["changelog", "list", "-j", &mount])?;
            let (_, status) = b.cluster.stria(&["index", "status", "--db", &file])?;
            Ok(list.contains("index-") && !list.contains(&name) && status.contains("following"))
        });
        is_over.store(true, Ordering::Relaxed);
        moving.join().map_err(|_| anyhow::anyhow!("the moving thread panicked"))?.context("moves")?;
        anew
    })?;
    wait_until("all files after a new scan", || is_equal(b, &file, &[]))?;
    drop(indexer);
    // 5. A page with the sums of what a walk finds.
    let out = b.cluster.dir.join("analytics");
    b.cluster.stria(&["index", "run", "--once", "--db", &file, &mount])?;
    let shown = out.display().to_string();
    let (_, status) = b.cluster.stria(&["index", "status", "-j", "--db", &file])?;
    let status: serde_json::Value = serde_json::from_str(&status).with_context(|| status.clone())?;
    let schemas = Schemas::read(Path::new("docs/json")).context("run from the root of the checkout")?;
    schemas.check("stria-index-status.json", &status)?;
    ensure_eq(status["old"].as_bool(), Some(false), "an index that looked a moment ago")?;
    let (code, said) = b.cluster.stria(&["index", "analytics", "--db", &file, "--out", &shown])?;
    ensure!(code == 0 && said.trim().ends_with("index.html"), "{code}: {said}");
    let (_, walked) = found(b, &[&mount, "-type", "f", "-printf", "%i %s\\0"])?;
    let files: std::collections::BTreeSet<String> = walked.into_iter().collect();
    let bytes = files.iter().filter_map(|one| one.split(' ').nth(1)?.parse::<u64>().ok()).sum::<u64>();
    for table in ["sizes", "ages", "owners", "types"] {
        let text = fs::read_to_string(out.join(format!("{table}.csv")))?;
        let column = |n: usize| {
            text.lines().skip(1).filter_map(|line| line.rsplit(',').nth(n)?.parse::<u64>().ok()).sum::<u64>()
        };
        ensure_eq((column(1), column(0)), (files.len() as u64, bytes), table)?;
    }
    let page = fs::read_to_string(out.join("index.html"))?;
    ensure!(page.contains("<h2>Largest directories</h2>") && page.contains(".h5"), "{page}");
    // 6. Other paths and other files are refused.
    let (code, said) = b.cluster.stria(&["find", "-db", &file, "/proc"])?;
    ensure!(code == 2 && said.contains("not below"), "{code}: {said}");
    let (code, said) = b.cluster.stria(&["find", "-db", "/no/such/index", &mount])?;
    ensure!(code == 2 && said.contains("there is no index"), "{code}: {said}");
    let (code, said) = b.cluster.stria(&["index", "run", "--once", "--db", &file, "/proc"])?;
    ensure!(code == 2 && said.contains("no mount of Stria"), "{code}: {said}");
    let (code, said) = b.cluster.stria(&["index", "status", "--db", &file])?;
    ensure!(code == 0 && said.contains("following"), "{code}: {said}");
    Ok(())
}
