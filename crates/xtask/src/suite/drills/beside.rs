//! Programs that work beside drills, and must not notice them: fio with checksums, SQLite and PostgreSQL, which are killed and looked at
//! again and again, and recorded histories of calls on names, for which an order must exist.

use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use testkit::Rng;
use testkit::linear::{DIRS, Op, Place, Recorder, Said};
use types::Code;

use super::super::programs::postgres::Postgres;
use super::super::programs::sqlite;
use super::super::routers::verify_in;
use super::super::sys::own_files;

/// Acknowledged transactions between two crashes of a database.
const TRANSACTIONS: u64 = 60;
/// As in `testkit/tests/stories/linear.rs`: few names, so that calls meet.
const NAMES: [char; 3] = ['a', 'b', 'c'];
const CLIENTS: usize = 4;
/// Calls of each client of a history, and half of the longest pause between two. A history takes so long that events fall into some.
const CALMLY: (u64, Duration) = (10, Duration::from_millis(20));
/// As many calls as a history may have.
const BUSILY: (u64, Duration) = (30, Duration::ZERO);
/// Rounds of each program that a run must have, or it shows nothing.
const ROUNDS_MIN: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Fio,
    Sqlite,
    Postgres,
    Histories,
    /// Histories without pauses, so that many calls are under way at an event.
    BusyHistories,
}

struct Running {
    program: Program,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

/// Programs that run until they are asked to end.
pub struct Beside {
    ends: Arc<AtomicBool>,
    running: Vec<Running>,
}

/// The directory of a program on two hosts.
struct Dirs {
    dir: PathBuf,
    look: PathBuf,
    /// On the local file system.
    local: PathBuf,
}

impl Beside {
    /// Each program has a directory of its own, whose name ends with `seed`.
    pub fn start(mounts: &[PathBuf; 2], local: &Path, programs: &[Program], seed: u64) -> Result<Beside> {
        let ends = Arc::new(AtomicBool::new(false));
        let mut running = vec![];
        for (n, program) in programs.iter().enumerate() {
            let seed = seed + 1000 * n as u64;
            let name = format!("{program:?}-{seed}").to_lowercase();
            let [dir, look] = mounts.clone().map(|mount| mount.join(&name));
            let dirs = Dirs { dir, look, local: local.join(&name) };
            fs::create_dir(&dirs.dir).with_context(|| dirs.dir.display().to_string())?;
            let rounds = Arc::new(AtomicU64::new(0));
            let (stop, counted, program) = (ends.clone(), rounds.clone(), *program);
            let thread = std::thread::spawn(move || {
                own_files();
                match program {
                    Program::Fio => verify_in(&dirs.dir, &stop, &counted),
                    Program::Sqlite => sqlite_crashes(&dirs, &stop, &counted),
                    Program::Postgres => postgres_crashes(&dirs, &stop, &counted),
                    Program::Histories => histories(&dirs, seed, CALMLY, &stop, &counted),
                    Program::BusyHistories => histories(&dirs, seed, BUSILY, &stop, &counted),
                }
            });
            running.push(Running { program, rounds, thread });
        }
        Ok(Beside { ends, running })
    }

    /// Waits until each has done some rounds, or has failed.
    pub fn wait(&self) -> Result<()> {
        self.running.iter().try_for_each(|running| {
            let until = Instant::now() + Duration::from_secs(60);
            while running.rounds.load(Ordering::SeqCst) < ROUNDS_MIN && !running.thread.is_finished() {
                if Instant::now() > until {
                    bail!("{:?} does no rounds within a minute", running.program);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(())
        })
    }

    /// Ends them. Fails if one saw an error, or wrong content.
    pub fn finish(self) -> Result<()> {
        self.ends.store(true, Ordering::SeqCst);
        let mut said = vec![];
        let mut outcome = Ok(());
        for Running { program, rounds, thread } in self.running {
            let ended = thread.join().map_err(|_| anyhow!("its thread panicked")).flatten();
            outcome = outcome.and(ended.with_context(|| format!("{program:?} beside the drills")));
            said.push(format!("{program:?} {}", rounds.load(Ordering::SeqCst)));
        }
        println!("       rounds of programs beside: {}", said.join(", "));
        outcome
    }
}

/// The shell is killed during a transaction. Its acknowledged rows are there, as the other host sees it.
fn sqlite_crashes(dirs: &Dirs, ends: &AtomicBool, rounds: &AtomicU64) -> Result<()> {
    let (db, look) = (dirs.dir.join("db"), dirs.look.join("db"));
    sqlite::make(&db, "DELETE")?;
    let mut last = 0;
    while !ends.load(Ordering::SeqCst) {
        let mut committer = sqlite::committer(&db, 0, last + 1)?;
        committer.wait_for(last + TRANSACTIONS)?;
        last = committer.kill()?;
        sqlite::check(&look, &[last])?;
        last = sqlite::last_row(&look)?;
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

fn postgres_crashes(dirs: &Dirs, ends: &AtomicBool, rounds: &AtomicU64) -> Result<()> {
    let mut postgres = Postgres::make(dirs.dir.join("data"), dirs.local.clone())?;
    postgres.start()?;
    postgres.run("pgbench", &["-q", "-i", "-s", "1"])?;
    postgres.sql("CREATE TABLE ours (n INT PRIMARY KEY, data TEXT)")?;
    let mut last = 0;
    while !ends.load(Ordering::SeqCst) {
        let mut ours = postgres.committer(last + 1)?;
        ours.wait_for(last + TRANSACTIONS).with_context(|| postgres.last_words())?;
        postgres.crash()?;
        last = ours.finish(false)?;
        postgres.start()?;
        postgres.check(last)?;
        last = postgres.sql("SELECT max(n) FROM ours")?.parse()?;
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    postgres.stop_and_verify()
}

/// [S-several-mounts] Histories of four clients on two hosts, one after another, each in directories of its own.
fn histories(
    dirs: &Dirs,
    seed: u64,
    (calls, pause): (u64, Duration),
    ends: &AtomicBool,
    rounds: &AtomicU64,
) -> Result<()> {
    let mut rng = Rng::new(seed);
    for n in 0.. {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let roots = [&dirs.dir, &dirs.look].map(|dir| dir.join(n.to_string()));
        fs::create_dir(&roots[0])?;
        DIRS.iter().try_for_each(|dir| fs::create_dir(roots[0].join(dir.to_string())))?;
        let recorder = Recorder::default();
        let work = |client: usize, mut rng: Rng| -> Result<()> {
            for _ in 0..calls {
                let op = pick(&mut rng);
                let mut failed = None;
                recorder.call(client as u32, op, || match carry_out(&roots[client % 2], op) {
                    Ok(said) => Some(said),
                    Err(e) => {
                        failed = Some(e);
                        None
                    }
                });
                if let Some(e) = failed {
                    return Err(anyhow!(e).context(format!("{op:?} in history {n}")));
                }
                std::thread::sleep(pause * rng.below(3) as u32);
            }
            Ok(())
        };
        let outcome: Result<Vec<()>> = std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let rng = Rng::new(rng.next_u64());
                    scope.spawn(move || work(client, rng))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).collect()
        });
        outcome?;
        let history = recorder.history();
        if let Err(why) = history.judge_of_kernels(roots.len() as u32) {
            bail!("history {n} of seed {seed} is not linearizable: {why}all of it:\n{history}");
        }
        fs::remove_dir_all(&roots[0])?;
        rounds.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

fn pick(rng: &mut Rng) -> Op {
    let place = |rng: &mut Rng| Place { dir: *rng.pick(&DIRS), name: *rng.pick(&NAMES) };
    match rng.below(20) {
        0..6 => Op::Create(place(rng)),
        6..9 => Op::Unlink(place(rng)),
        9..13 => Op::Rename { from: place(rng), to: place(rng), noreplace: rng.chance(25) },
        13..16 => Op::List(*rng.pick(&DIRS)),
        _ => Op::Stat(place(rng)),
    }
}

/// A refusal that the model knows is an answer; another error is one that a program must not see.
fn carry_out(root: &Path, op: Op) -> std::io::Result<Said> {
    let at = |place: Place| root.join(place.dir.to_string()).join(place.name.to_string());
    // No call here makes a second name.
    let file = |about: &fs::Metadata| Said::File { fid: about.ino(), nlink: 1 };
    let done = match op {
        Op::Create(place) => File::options()
            .write(true)
            .create_new(true)
            .open(at(place))
            .and_then(|f| Ok(file(&f.metadata()?))),
        Op::Unlink(place) => fs::remove_file(at(place)).map(|()| Said::Done),
        Op::Rename { from, to, noreplace } => {
            let flags = if noreplace { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)
                .map(|()| Said::Done)
                .map_err(Into::into)
        }
        Op::Stat(place) => fs::symlink_metadata(at(place)).map(|about| file(&about)),
        Op::List(dir) => fs::read_dir(root.join(dir.to_string())).and_then(|entries| {
            let mut names = vec![];
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().chars().next().unwrap_or_default();
                names.push((name, entry.ino()));
            }
            names.sort();
            Ok(Said::Names(names))
        }),
        Op::Link { .. } | Op::Look(_) => unreachable!("they are not picked"),
    };
    match done {
        Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Ok(Said::No(Code::NotFound)),
            Some(Errno::EXIST) => Ok(Said::No(Code::Exists)),
            _ => Err(e),
        },
        done => done,
    }
}

/// Full load until the time is over, and `still` after each second of it.
pub fn under_load(
    mounts: &[PathBuf; 2],
    local: &Path,
    time: Duration,
    mut still: impl FnMut() -> Result<()>,
) -> Result<()> {
    let swapped = [mounts[1].clone(), mounts[0].clone()];
    let all = [Program::Fio, Program::Sqlite, Program::Histories];
    let loads = [
        Beside::start(mounts, local, &all, 1)?,
        Beside::start(&swapped, local, &all, 2)?,
        Beside::start(mounts, local, &[Program::Fio], 3)?,
    ];
    let until = Instant::now() + time;
    let mut outcome = Ok(());
    while outcome.is_ok() && Instant::now() < until {
        std::thread::sleep(Duration::from_secs(1));
        outcome = still();
    }
    loads.into_iter().try_for_each(Beside::finish).and(outcome)?;
    still()
}
