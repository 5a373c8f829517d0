//! Rates and sums of a file system over a week, in one file of a fixed size.
//!
//! cli-DA1: the file has a ring of rows for each tier. A row is replaced by that of the same place a day or a week later, so the file never
//! grows. Each row has a checksum: a row that was written in part is passed over.
//!
//! The rows are written without a flush: `kill -9` loses none, and a power loss loses the last seconds at most.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use types::Uuid;
use types::crc::crc32c;

/// A ring of rows.
struct Tier {
    /// Seconds of a row.
    each_sec: u64,
    rows: u64,
}

/// A day in steps of 10 s, and a week in steps of 5 min.
const TIERS: [Tier; 2] = [Tier { each_sec: 10, rows: 8_640 }, Tier { each_sec: 300, rows: 2_016 }];
/// Bytes of the head and of each row.
const ROW: usize = 64;
const MAGIC: &[u8; 8] = b"STRIADSH";
const VERSION: u32 = 1;
/// Points of one answer. A page is not wider.
const POINTS_MAX: u64 = 720;

/// Size of the file.
pub const BYTES: u64 = (ROW as u64) * (1 + TIERS[0].rows + TIERS[1].rows);

/// One look at a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Time since the look before; 0: there was none, so nothing is known of rates.
    pub measured_ms: u32,
    pub clients: u32,
    /// Bytes read and written in that time.
    pub read: u64,
    pub written: u64,
    pub calls: u64,
    /// Space of all OSTs. 0: it is not known.
    pub used: u64,
    pub total: u64,
}

/// The looks of one slot of time together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    /// Seconds since 1970 at its begin; 0: it is empty.
    at_sec: u64,
    sum: Measure,
}

impl Row {
    /// Rates add up; of space and clients the last look counts.
    fn add(&mut self, more: &Measure) {
        let sum = &mut self.sum;
        sum.measured_ms = sum.measured_ms.saturating_add(more.measured_ms);
        sum.read = sum.read.saturating_add(more.read);
        sum.written = sum.written.saturating_add(more.written);
        sum.calls = sum.calls.saturating_add(more.calls);
        sum.clients = more.clients;
        if more.total > 0 {
            (sum.used, sum.total) = (more.used, more.total);
        }
    }

    fn encode(&self) -> [u8; ROW] {
        let Row { at_sec, sum } = self;
        let mut bytes = [0; ROW];
        bytes[..8].copy_from_slice(&at_sec.to_le_bytes());
        bytes[8..12].copy_from_slice(&sum.measured_ms.to_le_bytes());
        bytes[12..16].copy_from_slice(&sum.clients.to_le_bytes());
        for (n, value) in [sum.read, sum.written, sum.calls, sum.used, sum.total].iter().enumerate() {
            bytes[16 + n * 8..24 + n * 8].copy_from_slice(&value.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// `None`: the row is empty, or was written in part.
    fn decode(bytes: &[u8; ROW]) -> Option<Row> {
        let at_sec = u64_at(bytes, 0);
        if !is_sealed(bytes) || at_sec == 0 {
            return None;
        }
        let sum = Measure {
            measured_ms: u32_at(bytes, 8),
            clients: u32_at(bytes, 12),
            read: u64_at(bytes, 16),
            written: u64_at(bytes, 24),
            calls: u64_at(bytes, 32),
            used: u64_at(bytes, 40),
            total: u64_at(bytes, 48),
        };
        Some(Row { at_sec, sum })
    }
}

fn u64_at(bytes: &[u8; ROW], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

fn u32_at(bytes: &[u8; ROW], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// The last four bytes are the checksum of those before.
fn seal(bytes: &mut [u8; ROW]) {
    let crc = crc32c(&bytes[..ROW - 4]);
    bytes[ROW - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8; ROW]) -> bool {
    u32_at(bytes, ROW - 4) == crc32c(&bytes[..ROW - 4])
}

/// Magic, version and the file system; the rest is zero.
fn head_of(fs: Uuid) -> [u8; ROW] {
    let mut bytes = [0; ROW];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&fs.0);
    seal(&mut bytes);
    bytes
}

/// The history of one file system.
pub struct History {
    path: PathBuf,
    file: File,
    /// Zero: no file system was reached yet.
    fs: Uuid,
    rings: [Vec<Row>; 2],
}

/// Values of equal steps of time, the oldest first. `None`: nothing is known of that time.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Points {
    /// Seconds since 1970 at the begin of the first step.
    pub from_sec: u64,
    /// Seconds of a step.
    pub each_sec: u64,
    /// Bytes per second.
    pub read: Vec<Option<f64>>,
    pub written: Vec<Option<f64>>,
    /// Requests per second.
    pub calls: Vec<Option<f64>>,
    /// Bytes.
    pub used: Vec<Option<u64>>,
    pub total: Vec<Option<u64>>,
    pub clients: Vec<Option<u32>>,
}

impl History {
    /// Opens the file, or makes it. A file that cannot be read, or of another version, is set aside as `<path>.old`.
    pub fn open(path: &Path) -> io::Result<History> {
        match File::options().read(true).write(true).open(path) {
            Ok(file) => match History::load(path, file)? {
                Some(history) => Ok(history),
                None => {
                    tracing::warn!(
                        "{}: it is no history of this version; it is set aside as .old",
                        path.display()
                    );
                    History::anew(path, Uuid([0; 16]))
                }
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => History::anew(path, Uuid([0; 16])),
            Err(e) => Err(e),
        }
    }

    fn anew(path: &Path, fs: Uuid) -> io::Result<History> {
        if path.exists() {
            fs::rename(path, path.with_extension("old"))?;
        }
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(BYTES)?;
        file.write_all_at(&head_of(fs), 0)?;
        let rings = [0, 1].map(|tier: usize| vec![Row::default(); TIERS[tier].rows as usize]);
        Ok(History { path: path.to_owned(), file, fs, rings })
    }

    fn load(path: &Path, file: File) -> io::Result<Option<History>> {
        if file.metadata()?.len() != BYTES {
            return Ok(None);
        }
        let mut bytes = vec![0; BYTES as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut all = bytes.chunks_exact(ROW).map(|row| std::array::from_fn::<u8, ROW, _>(|n| row[n]));
        let head = all.next().unwrap_or([0; ROW]);
        let fs = Uuid(std::array::from_fn(|n| head[16 + n]));
        if head != head_of(fs) {
            return Ok(None);
        }
        let rings = [0, 1].map(|tier: usize| {
            let Tier { each_sec, rows } = TIERS[tier];
            let own = all.by_ref().take(rows as usize);
            // A row at a place of another time is none.
            let is_in_place =
                |n: u64, row: &Row| row.at_sec.is_multiple_of(each_sec) && row.at_sec / each_sec % rows == n;
            own.zip(0..)
                .map(|(bytes, n)| Row::decode(&bytes).filter(|row| is_in_place(n, row)).unwrap_or_default())
                .collect()
        });
        Ok(Some(History { path: path.to_owned(), file, fs, rings }))
    }

    /// Says which file system is looked at. The history of another one is set aside.
    pub fn belongs_to(&mut self, fs: Uuid) -> io::Result<()> {
        if self.fs == fs {
            return Ok(());
        }
        if self.fs != Uuid([0; 16]) {
            tracing::warn!("{}: it is of another file system; it is set aside as .old", self.path.display());
            *self = History::anew(&self.path, fs)?;
            return Ok(());
        }
        self.fs = fs;
        self.file.write_all_at(&head_of(fs), 0)
    }

    /// Adds a look to each tier. On an error the row is in memory only.
    pub fn add(&mut self, now_sec: u64, measure: &Measure) -> io::Result<()> {
        let mut at = ROW as u64;
        let mut written = Ok(());
        for (Tier { each_sec, rows }, ring) in TIERS.iter().zip(&mut self.rings) {
            let begin = now_sec - now_sec % each_sec;
            let n = begin / each_sec % rows;
            let row = &mut ring[n as usize];
            if row.at_sec != begin {
                *row = Row { at_sec: begin, ..Row::default() };
            }
            row.add(measure);
            written = written.and(self.file.write_all_at(&row.encode(), at + n * ROW as u64));
            at += rows * ROW as u64;
        }
        written
    }

    /// The last `span_sec`, at most a week. `looks_sec`: time between two looks; steps are not shorter, since most would be empty.
    pub fn points(&self, span_sec: u64, looks_sec: u64, now_sec: u64) -> Points {
        let span_sec = span_sec.clamp(60, TIERS[1].each_sec * TIERS[1].rows);
        let tier = usize::from(span_sec > TIERS[0].each_sec * TIERS[0].rows);
        let (Tier { each_sec, rows }, ring) = (&TIERS[tier], &self.rings[tier]);
        let width = span_sec.div_ceil(POINTS_MAX).max(looks_sec).div_ceil(*each_sec) * each_sec;
        let count = span_sec.div_ceil(width);
        // The slot that is under way ends the last step.
        let newest = now_sec - now_sec % width;
        let from_sec = newest.saturating_sub((count - 1) * width);
        let mut points = Points { from_sec, each_sec: width, ..Points::default() };
        for step in 0..count {
            let begin = from_sec + step * width;
            let mut sum: Option<Measure> = None;
            for at_sec in (begin..begin + width).step_by(*each_sec as usize) {
                let row = &ring[(at_sec / each_sec % rows) as usize];
                if row.at_sec == at_sec && at_sec > 0 {
                    let mut both = Row { at_sec, sum: sum.unwrap_or_default() };
                    both.add(&row.sum);
                    sum = Some(both.sum);
                }
            }
            points.push(sum);
        }
        points
    }
}

impl Points {
    fn push(&mut self, sum: Option<Measure>) {
        let seconds = sum.map(|sum| f64::from(sum.measured_ms) / 1000.0).filter(|seconds| *seconds > 0.0);
        let rate = |of: fn(&Measure) -> u64| Some(sum.as_ref().map(of)? as f64 / seconds?);
        self.read.push(rate(|sum| sum.read));
        self.written.push(rate(|sum| sum.written));
        self.calls.push(rate(|sum| sum.calls));
        let space = sum.filter(|sum| sum.total > 0);
        self.used.push(space.map(|sum| sum.used));
        self.total.push(space.map(|sum| sum.total));
        self.clients.push(sum.map(|sum| sum.clients));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    /// Begin of a slot of 5 min.
    const T: u64 = 1_800_000_000;

    fn measure(read: u64) -> Measure {
        Measure { measured_ms: 10_000, clients: 3, read, written: 2 * read, calls: 5, used: 40, total: 100 }
    }

    #[test]
    fn rows_outlive_the_process_and_give_rates() {
        let dir = TestDir::new("dash-history");
        let path = dir.path().join("history");
        let mut history = History::open(&path).unwrap();
        history.belongs_to(Uuid([7; 16])).unwrap();
        history.add(T, &measure(1000)).unwrap();
        history.add(T + 20, &measure(3000)).unwrap();
        drop(history);
        let history = History::open(&path).unwrap();
        let hour = history.points(3600, 10, T + 25);
        assert_eq!((hour.each_sec, hour.read.len(), hour.from_sec), (10, 360, T + 20 - 359 * 10));
        assert_eq!(hour.read[357..], [Some(100.0), None, Some(300.0)]);
        assert_eq!((hour.written[359], hour.calls[359]), (Some(600.0), Some(0.5)));
        assert_eq!((hour.used[359], hour.total[359], hour.clients[359]), (Some(40), Some(100), Some(3)));
        // Both looks are in one row of the week.
        let week = history.points(7 * 86_400, 10, T + 25);
        assert_eq!(week.read.iter().flatten().collect::<Vec<_>>(), [&200.0]);
        assert!(week.read.len() as u64 <= POINTS_MAX, "{}", week.read.len());
    }

    #[test]
    fn the_file_is_bounded_and_old_rows_give_way() {
        let dir = TestDir::new("dash-bounded");
        let path = dir.path().join("history");
        let mut history = History::open(&path).unwrap();
        // Looks of more than two weeks, one a minute, with the clock set back once.
        for n in 0..16 * 1440 {
            history.add(T + n * 60, &measure(n)).unwrap();
        }
        history.add(T - 86_400, &measure(1)).unwrap();
        assert_eq!((path.metadata().unwrap().len(), BYTES), (BYTES, 682_048));
        let rows: usize = history.rings.iter().map(Vec::len).sum();
        assert_eq!(rows, 10_656);
        let now = T + 16 * 86_400;
        for span in [3600, 86_400, 7 * 86_400, u64::MAX] {
            let points = history.points(span, 60, now);
            assert!(points.read.len() as u64 <= POINTS_MAX, "{span}: {}", points.read.len());
            assert!(points.read.iter().rev().skip(1).all(Option::is_some), "{span}");
        }
    }

    #[test]
    fn a_row_that_was_written_in_part_is_passed_over() {
        let dir = TestDir::new("dash-torn");
        let path = dir.path().join("history");
        let mut history = History::open(&path).unwrap();
        history.add(T, &measure(1000)).unwrap();
        history.add(T + 10, &measure(2000)).unwrap();
        let place = ROW as u64 * (1 + T / 10 % TIERS[0].rows);
        history.file.write_all_at(&[0xff; 3], place + 20).unwrap();
        drop(history);
        let points = History::open(&path).unwrap().points(60, 10, T + 10);
        assert_eq!(points.read.iter().flatten().collect::<Vec<_>>(), [&200.0]);
    }

    #[test]
    fn a_history_of_another_file_system_or_version_is_set_aside() {
        let dir = TestDir::new("dash-other");
        let path = dir.path().join("history");
        let mut history = History::open(&path).unwrap();
        history.belongs_to(Uuid([7; 16])).unwrap();
        history.add(T, &measure(1000)).unwrap();
        history.belongs_to(Uuid([8; 16])).unwrap();
        assert!(history.points(60, 10, T).read.iter().all(Option::is_none));
        assert!(dir.path().join("history.old").exists());
        fs::write(&path, "of another version").unwrap();
        assert!(History::open(&path).unwrap().points(60, 10, T).read.iter().all(Option::is_none));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn the_bytes_are_golden() {
        let row = Row { at_sec: 0x0102, sum: Measure { calls: 5, ..measure(9) } };
        let hex: String = row.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let body = "0201000000000000 10270000 03000000 0900000000000000 1200000000000000 0500000000000000 2800000000000000 6400000000000000 00000000";
        assert_eq!(hex[..120], body.replace(' ', ""));
        assert_eq!(Row::decode(&row.encode()), Some(row));
        assert_eq!(&head_of(Uuid([7; 16]))[..12], b"STRIADSH\x01\0\0\0");
        let mut changed = row.encode();
        for n in 0..ROW {
            changed[n] ^= 0x10;
            assert_eq!(Row::decode(&changed), None, "byte {n}");
            changed[n] ^= 0x10;
        }
    }
}
