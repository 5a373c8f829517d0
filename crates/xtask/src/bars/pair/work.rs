//! The workloads of `bars pair`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::Rng;

const STREAM_MIB: u64 = 256;
const MIB: usize = 1 << 20;
/// Callers of the rows of overwrites and creations.
const CALLERS: u64 = 16;
const PAGE: usize = 4096;
const OVERWRITE: Duration = Duration::from_secs(4);
/// Files of each caller.
const FILES: u64 = 250;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    Write,
    Read,
    Overwrite,
    Create,
}

impl Row {
    /// In the order in which they run: a row uses the file of those before.
    pub const ALL: [Row; 4] = [Row::Write, Row::Read, Row::Overwrite, Row::Create];

    pub fn title(self) -> &'static str {
        match self {
            Row::Write => "streaming write and fsync",
            Row::Read => "streaming read",
            Row::Overwrite => "4 KiB overwrite, O_DIRECT, 16 callers",
            Row::Create => "create, 16 callers",
        }
    }
    pub fn unit(self) -> &'static str {
        match self {
            Row::Write | Row::Read => "MiB per second",
            Row::Overwrite | Row::Create => "per second",
        }
    }
}

/// Runs all rows once.
pub fn run(mount: &Path, round: usize, settle: &dyn Fn() -> Result<()>) -> Result<Vec<(Row, f64)>> {
    let root = mount.join(format!("pair.{round}"));
    fs::create_dir_all(&root)?;
    let file = root.join("stream");
    let mut rates = Vec::new();
    for row in Row::ALL {
        settle()?;
        let rate = match row {
            Row::Write => STREAM_MIB as f64 / write(&file, STREAM_MIB)?,
            Row::Read => STREAM_MIB as f64 / read(&file, STREAM_MIB)?,
            Row::Overwrite => overwrite(&file)?,
            Row::Create => create(&root)?,
        };
        rates.push((row, rate));
    }
    fs::remove_dir_all(&root)?;
    Ok(rates)
}

/// Writes so many MiB to a file, and flushes it. Returns the seconds.
pub fn write(path: &Path, mib: u64) -> Result<f64> {
    let (buffer, begin) = (vec![0x5a; MIB], Instant::now());
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    (0..mib).try_for_each(|n| file.write_all_at(&buffer, n * MIB as u64))?;
    file.sync_all()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Reads so many MiB of a file that is in no cache. Returns the seconds.
pub fn read(path: &Path, mib: u64) -> Result<f64> {
    drop_caches()?;
    let (mut buffer, begin) = (vec![0; MIB], Instant::now());
    let file = File::open(path)?;
    for n in 0..mib {
        file.read_exact_at(&mut buffer, n * MIB as u64)?;
        ensure!(buffer[0] == 0x5a && buffer[MIB - 1] == 0x5a, "MiB {n} has other bytes");
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// Overwrites per second, at random places.
fn overwrite(path: &Path) -> Result<f64> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(direct).open(path)?;
    let (done, seconds) = at_once(|caller| {
        let mut room = vec![0x5a; 2 * PAGE];
        let first = room.as_ptr().align_offset(PAGE);
        let page = &mut room[first..first + PAGE];
        let (mut rng, begin, mut done) = (Rng::new(caller), Instant::now(), 0);
        while begin.elapsed() < OVERWRITE {
            let place = rng.below(STREAM_MIB * (MIB / PAGE) as u64);
            file.write_all_at(page, place * PAGE as u64)?;
            done += 1;
        }
        Ok(done)
    })?;
    Ok(done as f64 / seconds)
}

/// Creations per second, in a directory of each caller.
fn create(root: &Path) -> Result<f64> {
    for caller in 0..CALLERS {
        fs::create_dir(root.join(format!("{caller}")))?;
    }
    let (done, seconds) = at_once(|caller| {
        let dir = root.join(format!("{caller}"));
        (0..FILES).try_for_each(|n| File::create_new(dir.join(format!("f{n}"))).map(drop))?;
        Ok(FILES)
    })?;
    Ok(done as f64 / seconds)
}

/// The sum of what all callers did, and the seconds until the last of them has ended.
fn at_once(work: impl Fn(u64) -> Result<u64> + Sync) -> Result<(u64, f64)> {
    let start = Barrier::new(CALLERS as usize + 1);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(caller)
                })
            })
            .collect();
        start.wait();
        let (begin, mut done) = (Instant::now(), 0);
        for caller in callers {
            done += caller.join().map_err(|_| anyhow::anyhow!("a caller panicked"))??;
        }
        Ok((done, begin.elapsed().as_secs_f64()))
    })
}

pub fn drop_caches() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
}
