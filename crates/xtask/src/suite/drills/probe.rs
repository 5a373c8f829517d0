//! Probes of a drill: four kinds of calls, each every 10 ms. The longest time of a call is the stall that a program sees.
//!
//! Writes and creations go through host c0, reads and `stat` through c1: what they look at changes on the other host, so no cache answers.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;

use super::super::semantics::wait_until;
use super::super::sys::own_files;

pub const EACH: Duration = Duration::from_millis(10);
pub const KINDS: [Kind; 4] = [Kind::Write, Kind::Create, Kind::Read, Kind::Stat];
/// A record, and what a read asks for: one page, so that direct I/O takes it.
const RECORD_BYTES: usize = 4096;
/// Records of a file before the next one is begun.
const RECORDS_OF_A_FILE: u64 = 1024;
/// Files that a reader takes in turn.
const READ_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 4 KiB at the end of a file, and `fsync`.
    Write,
    Create,
    /// 4 KiB of a file by direct I/O.
    Read,
    /// Of the file that is written on the other host.
    Stat,
}

/// The results of the probes of one kind.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub calls: u64,
    pub longest: Duration,
    /// Calls that failed, and what the first one said.
    pub errors: u64,
    pub first_error: Option<String>,
}

struct Probe {
    kind: Kind,
    calls: Arc<AtomicU64>,
    thread: JoinHandle<Seen>,
}

/// Running probes.
pub struct Probes {
    ends: Arc<AtomicBool>,
    dir: PathBuf,
    look: PathBuf,
    probes: Vec<Probe>,
}

impl Probes {
    /// `dir` is new, on one host; `look` is the same directory on another one.
    pub fn start(dir: PathBuf, look: PathBuf) -> Result<Probes> {
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let file = File::create(dir.join("read"))?;
        (0..READ_BYTES / RECORD_BYTES as u64)
            .try_for_each(|n| file.write_all_at(&record(n), n * RECORD_BYTES as u64))?;
        file.sync_all()?;
        File::create(place(&dir, 0))?;
        let ends = Arc::new(AtomicBool::new(false));
        let probes = KINDS.map(|kind| {
            let calls = Arc::new(AtomicU64::new(0));
            let (counted, stop, dir, look) = (calls.clone(), ends.clone(), dir.clone(), look.clone());
            Probe {
                kind,
                calls,
                thread: std::thread::spawn(move || probe(kind, &dir, &look, &counted, &stop)),
            }
        });
        Ok(Probes { ends, dir, look, probes: probes.into() })
    }

    /// Waits until each probe has ended a call that began from now on.
    pub fn go_on(&self) -> Result<()> {
        for probe in &self.probes {
            let at = probe.calls.load(Ordering::SeqCst);
            wait_until(&format!("calls of the kind {} go on", probe.kind), || {
                Ok(probe.calls.load(Ordering::SeqCst) > at + 1)
            })?;
        }
        Ok(())
    }

    /// Ends the probes. Gives what each saw, and reads all synced records on the other host.
    pub fn stop(self) -> Result<Vec<(Kind, Seen)>> {
        self.ends.store(true, Ordering::SeqCst);
        let seen: Vec<_> = self
            .probes
            .into_iter()
            .map(|probe| (probe.kind, probe.thread.join().expect("a probe does not panic")))
            .collect();
        let written = seen
            .iter()
            .find(|(kind, _)| *kind == Kind::Write)
            .map_or(0, |(_, seen)| seen.calls - seen.errors);
        // After an error it is unknown which records are there, and the drill has failed anyway.
        if seen.iter().all(|(_, seen)| seen.errors == 0) {
            check_records(&self.look, written)?;
        }
        fs::remove_dir_all(&self.dir)?;
        Ok(seen)
    }
}

fn probe(kind: Kind, dir: &Path, look: &Path, calls: &AtomicU64, ends: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    own_files();
    while !ends.load(Ordering::SeqCst) {
        let begin = Instant::now();
        let done = call(kind, dir, look, seen.calls);
        let took = begin.elapsed();
        seen.calls += 1;
        seen.longest = seen.longest.max(took);
        if let Err(e) = done {
            seen.errors += 1;
            seen.first_error.get_or_insert(format!("{kind}: {e} after {took:.1?}"));
        }
        calls.store(seen.calls, Ordering::SeqCst);
        std::thread::sleep(EACH.saturating_sub(took));
    }
    seen
}

/// The n-th call of a kind.
fn call(kind: Kind, dir: &Path, look: &Path, n: u64) -> std::io::Result<()> {
    match kind {
        Kind::Write => {
            let file = File::options().create(true).truncate(false).write(true).open(place(dir, n))?;
            file.write_all_at(&record(n), n % RECORDS_OF_A_FILE * RECORD_BYTES as u64)?;
            file.sync_all()
        }
        Kind::Create => {
            let path = dir.join(format!("made{}", n % 1000));
            // A name of an earlier round is free again.
            if n >= 1000 {
                fs::remove_file(&path)?;
            }
            File::create_new(path).map(drop)
        }
        Kind::Read => {
            let file = File::options()
                .read(true)
                .custom_flags(OFlags::DIRECT.bits() as i32)
                .open(look.join("read"))?;
            let n = n % (READ_BYTES / RECORD_BYTES as u64);
            let mut got = Page([0; RECORD_BYTES]);
            file.read_exact_at(&mut got.0, n * RECORD_BYTES as u64)?;
            match got.0[..] == record(n)[..] {
                true => Ok(()),
                false => Err(std::io::Error::other(format!("page {n} has other bytes than were written"))),
            }
        }
        Kind::Stat => fs::metadata(place(look, 0)).map(drop),
    }
}

/// Direct I/O wants its buffer at a page border.
#[repr(align(4096))]
struct Page([u8; RECORD_BYTES]);

/// The file of a record.
fn place(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("written{}", n / RECORDS_OF_A_FILE))
}

/// Content that no other record has.
fn record(n: u64) -> Vec<u8> {
    let words = (0..RECORD_BYTES as u64 / 8).flat_map(|at| (n << 20 | at).to_le_bytes());
    words.collect()
}

fn check_records(look: &Path, written: u64) -> Result<()> {
    for n in 0..written {
        let mut got = vec![0; RECORD_BYTES];
        let path = place(look, n);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        file.read_exact_at(&mut got, n % RECORDS_OF_A_FILE * RECORD_BYTES as u64)
            .with_context(|| format!("record {n}, which was synced: {}", path.display()))?;
        ensure!(got == record(n), "record {n}, which was synced, has other bytes in {}", path.display());
    }
    Ok(())
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Write => "write",
            Kind::Create => "create",
            Kind::Read => "read",
            Kind::Stat => "stat",
        })
    }
}
