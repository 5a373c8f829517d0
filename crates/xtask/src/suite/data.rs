//! Space, holes, copies, and the ways to read and write beside read(2) and write(2). Calls take turns between two descriptors, and
//! what they did is looked at through both: with two mounts, one of each.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use testkit::{Rng, Wiring};

use super::sys::*;
use super::{Bench, Needs, Test, set_stripe};

pub const TESTS: &[Test] = &[
    ("data::fallocate", allocate),
    ("data::holes", holes),
    ("data::random_ranges", random_ranges),
    ("data::sparse_copies", sparse_copies),
    ("data::copy_range", copy_range),
    ("data::direct", direct),
    ("data::mapped", mapped),
    ("data::mapped_while_it_is_written", mapped_while_written),
];
pub const OWN: &[(Needs, Test)] = &[(Needs::Own, ("data::full", full))];

const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(KEEP);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
const NONE: FallocateFlags = FallocateFlags::empty();

fn open_rw(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).context(path.display().to_string())
}

/// A file that is inline, one with one stripe, and one of three stripes of 64 KiB.
fn three_files(b: &Bench, dir: &Path) -> Result<[PathBuf; 3]> {
    let striped = dir.join("striped");
    fs::create_dir(&striped)?;
    set_stripe(b, &["-c", "3", "-S", "64K"], &striped)?;
    let plain = dir.join("plain");
    fs::create_dir(&plain)?;
    set_stripe(b, &["--inline", "0"], &plain)?;
    Ok([dir.join("inline"), plain.join("f"), striped.join("f")])
}

/// A file by two descriptors, one of each mount: calls take turns, and both must show the same.
struct Twice {
    paths: [PathBuf; 2],
    files: [File; 2],
    calls: Cell<usize>,
}

impl Twice {
    fn open(b: &Bench, path: &Path) -> Result<Twice> {
        let paths = [path.to_owned(), b.look(path)];
        Ok(Twice { files: [open_rw(path)?, open_rw(&paths[1])?], paths, calls: Cell::new(0) })
    }
    /// Whose turn it is.
    fn next(&self) -> &File {
        self.calls.set(self.calls.get() + 1);
        &self.files[self.calls.get() % 2]
    }
    fn both<T: PartialEq + std::fmt::Debug>(&self, what: impl Fn(&File) -> io::Result<T>) -> io::Result<T> {
        let errno = |r: &io::Result<T>| r.as_ref().err().and_then(io::Error::raw_os_error);
        let [here, there] = [what(&self.files[0]), what(&self.files[1])];
        if here.as_ref().ok() != there.as_ref().ok() || errno(&here) != errno(&there) {
            return Err(io::Error::other(format!("{here:?} at one mount, {there:?} at the other")));
        }
        here
    }
    fn data_from(&self, at: u64) -> io::Result<u64> {
        self.both(|f| Ok(seek(f, SeekFrom::Data(at))?))
    }
    fn hole_from(&self, at: u64) -> io::Result<u64> {
        self.both(|f| Ok(seek(f, SeekFrom::Hole(at))?))
    }
    /// Size and blocks.
    fn state(&self) -> io::Result<(u64, u64)> {
        self.both(|f| f.metadata().map(|m| (m.len(), m.blocks())))
    }
    fn ensure_bytes(&self, want: &[u8], what: &str) -> Result<()> {
        self.paths.iter().try_for_each(|path| ensure_same(&fs::read(path)?, want, what))
    }
}

/// [S-fallocate] Space is kept, freed and zeroed as on ext4.
fn allocate(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fallocate")?;
    for path in three_files(b, &dir)? {
        let f = Twice::open(b, &path)?;
        let state = || f.state();
        // 1. Space without bytes: zeros, holes to lseek, counted.
        fallocate(f.next(), NONE, 0, 40_960)?;
        ensure_eq(state()?, (40_960, 80), "allocated")?;
        f.ensure_bytes(&[0; 40_960], "allocated bytes")?;
        expect_errno(f.data_from(0), Errno::NXIO, "data where nothing was written")?;
        // 2. A write uses the reserved space.
        f.next().write_all_at(&[7; 5000], 10_000)?;
        ensure_eq(state()?, (40_960, 80), "written to kept space")?;
        ensure_eq((f.data_from(0)?, f.hole_from(8192)?), (8192, 16_384), "what was written")?;
        // 3. Zeros that keep their space, and a hole.
        fallocate(f.next(), ZERO.union(KEEP), 8192, 4096)?;
        ensure_eq((state()?, f.data_from(0)?), ((40_960, 80), 12_288), "a zeroed page")?;
        fallocate(f.next(), PUNCH, 0, 12_288)?;
        ensure_eq(state()?, (40_960, 56), "three pages punched")?;
        fallocate(f.next(), PUNCH, 12_300, 100)?;
        ensure_eq(state()?, (40_960, 56), "a part of a page punched")?;
        let mut want = vec![0; 40_960];
        want[12_288..15_000].fill(7);
        want[12_300..12_400].fill(0);
        f.ensure_bytes(&want, "after punches")?;
        // 4. Space past the end, and the calls that free it.
        fallocate(f.next(), KEEP, 40_960, 1 << 20)?;
        ensure_eq(state()?, (40_960, 56 + 2048), "space past the end")?;
        f.next().set_len(40_960)?;
        ensure_eq(state()?, (40_960, 56), "cut to its own size")?;
        fallocate(f.next(), ZERO, 40_000, 160_000)?;
        ensure_eq(state()?.0, 200_000, "zeroed past the end")?;
        want.resize(200_000, 0);
        f.ensure_bytes(&want, "zeroed past the end")?;
        f.next().set_len(0)?;
        ensure_eq(state()?, (0, 0), "emptied")?;
        // 5. Refused modes.
        for mode in [0x08, 0x20, 0x40] {
            let refused = fallocate(f.next(), FallocateFlags::from_bits_retain(mode), 0, 4096);
            expect_errno(refused.map_err(Into::into), Errno::OPNOTSUPP, "collapse, insert, unshare")?;
        }
        expect_errno(fallocate(f.next(), NONE, 0, 0).map_err(Into::into), Errno::INVAL, "no bytes")?;
        let top = (16u64 << 40) - 4096;
        expect_errno(fallocate(f.next(), NONE, top, 1).map_err(Into::into), Errno::FBIG, "past the limit")?;
        let reader = File::open(&path)?;
        expect_errno(fallocate(&reader, NONE, 0, 1).map_err(Into::into), Errno::BADF, "read only")?;
    }
    // 6. It is the same after a restart.
    let kept = open_rw(&b.look(&dir.join("kept")))?;
    fallocate(&kept, NONE, 0, 8 << 20)?;
    drop(kept);
    b.cluster.restart()?;
    ensure_eq(Twice::open(b, &dir.join("kept"))?.state()?, (8 << 20, 16_384), "after a restart")
}

/// [S-holes] lseek finds bytes and holes page by page, and st_blocks counts them.
fn holes(b: &mut Bench) -> Result<()> {
    let dir = b.dir("holes")?;
    for path in three_files(b, &dir)? {
        let f = Twice::open(b, &path)?;
        let size = if path.ends_with("inline") { 50_000 } else { 3_000_000 };
        f.next().set_len(size)?;
        ensure_eq((f.state()?.1, f.hole_from(17)?), (0, 17), "one hole")?;
        expect_errno(f.data_from(0), Errno::NXIO, "no data")?;
        f.next().write_all_at(b"x", 20_000)?;
        f.next().write_all_at(b"y", size - 1)?;
        ensure_eq(f.state()?.1 > 0, true, "bytes take blocks at once")?;
        let last = (size - 1) / 4096 * 4096;
        ensure_eq((f.data_from(0)?, f.data_from(20_481)?), (16_384, last), "data")?;
        ensure_eq((f.hole_from(16_390)?, f.hole_from(last)?), (20_480, size), "holes")?;
        ensure_eq(f.data_from(20_001)?, 20_001, "within data")?;
        for past in [size, size + 1, 1 << 43] {
            expect_errno(f.data_from(past), Errno::NXIO, "data past the end")?;
            expect_errno(f.hole_from(past), Errno::NXIO, "a hole past the end")?;
        }
        fallocate(f.next(), PUNCH, 0, size + 1)?;
        ensure_eq(f.state()?, (size, 0), "all punched")?;
    }
    Ok(())
}

/// [S-fallocate] [S-holes] Random writes, cuts, punches, zeros and allocations against a table of bytes and pages.
fn random_ranges(b: &mut Bench) -> Result<()> {
    let dir = b.dir("ranges")?;
    for (path, size_max) in three_files(b, &dir)?.into_iter().zip([60_000, 900_000, 900_000]) {
        let (f, mut rng) = (Twice::open(b, &path)?, b.rng());
        let mut bytes: Vec<u8> = Vec::new();
        // Pages with bytes.
        let mut data = vec![false; 300];
        for n in 0..600 {
            let mask = if rng.chance(50) { !4095 } else { !0 };
            let at = rng.below(size_max) & mask;
            let len = (1 + rng.below(size_max / 3)).min(size_max - at);
            let (end, pages) = (at + len, at as usize / 4096..((at + len) as usize).div_ceil(4096));
            let whole = at.div_ceil(4096) as usize..(end / 4096).max(at.div_ceil(4096)) as usize;
            match rng.below(6) {
                0 => {
                    f.next().write_all_at(&vec![1 + n as u8 % 200; len as usize], at)?;
                    bytes.resize(bytes.len().max(end as usize), 0);
                    bytes[at as usize..end as usize].fill(1 + n as u8 % 200);
                    data[pages].fill(true);
                }
                1 => {
                    f.next().set_len(at)?;
                    bytes.resize(at as usize, 0);
                    data[at.div_ceil(4096) as usize..].fill(false);
                }
                2 => {
                    let grows = rng.chance(50);
                    fallocate(f.next(), if grows { NONE } else { KEEP }, at, len)?;
                    bytes.resize(bytes.len().max(if grows { end as usize } else { 0 }), 0);
                }
                3 => {
                    let grows = rng.chance(50);
                    fallocate(f.next(), if grows { ZERO } else { ZERO.union(KEEP) }, at, len)?;
                    zero(&mut bytes, at, end);
                    data[whole].fill(false);
                    bytes.resize(bytes.len().max(if grows { end as usize } else { 0 }), 0);
                }
                4 => {
                    fallocate(f.next(), PUNCH, at, len)?;
                    zero(&mut bytes, at, end);
                    data[whole].fill(false);
                }
                _ => {}
            }
            let what = format!("{} step {n}", path.display());
            let size = bytes.len() as u64;
            ensure_eq(f.state()?.0, size, &what)?;
            if n % 8 == 0 {
                f.ensure_bytes(&bytes, &what)?;
            }
            let from = rng.below(size_max);
            let page_of = |want: bool| {
                let last = (size as usize).div_ceil(4096);
                (from as usize / 4096..last).find(|p| data[*p] == want).map(|p| (p as u64 * 4096).max(from))
            };
            // A page at the end that was zeroed in part, whole as far as the file goes, may count either way.
            let got = position(f.data_from(from))?;
            let is_last = |at: Option<u64>| at.is_some_and(|at| at / 4096 == size.saturating_sub(1) / 4096);
            if from < size && got != page_of(true) && !is_last(got) && !is_last(page_of(true)) {
                bail!("{what}: data from {from} at {got:?}, expected {:?}", page_of(true));
            }
            let hole = position(f.hole_from(from))?;
            let want = (from < size).then(|| page_of(false).unwrap_or(size));
            if hole != want && !is_last(hole) && !is_last(want) && hole != Some(size) {
                bail!("{what}: a hole from {from} at {hole:?}, expected {want:?}");
            }
        }
    }
    Ok(())
}

/// `None` where there is none (`ENXIO`); any other error is one.
fn position(found: io::Result<u64>) -> io::Result<Option<u64>> {
    match found {
        Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(None),
        found => found.map(Some),
    }
}

fn zero(bytes: &mut [u8], at: u64, end: u64) {
    let size = bytes.len();
    bytes[(at as usize).min(size)..(end as usize).min(size)].fill(0);
}

/// [S-holes] `cp` and `tar -S` keep holes, also right after the bytes were written.
fn sparse_copies(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sparse_copies")?;
    let there = &b.look(&dir);
    for (name, size) in [("small", 60_000u64), ("large", 40 << 20)] {
        let path = dir.join(name);
        let f = open_rw(&path)?;
        f.set_len(size)?;
        f.write_all_at(b"somewhere in the middle", size / 2)?;
        // The file is still open and the MDT has no size yet: a tool that takes 0 blocks for "all zeros" would lose these bytes.
        let (copy, tar) = (format!("{name}.copy"), format!("{name}.tar"));
        run("tar", &["-Scf", &tar, name], there)?;
        run("cp", &["--sparse=auto", name, &copy], there)?;
        run("cmp", &[name, &copy], &dir)?;
        for place in [&dir, there] {
            ensure_eq(fs::metadata(place.join(&copy))?.blocks() <= 8, true, "blocks of the copy")?;
        }
        ensure_eq(fs::metadata(dir.join(&tar))?.len() < 30_000, true, "the archive is small")?;
        fs::create_dir(dir.join(format!("{name}.x")))?;
        run("tar", &["-xf", &format!("../{tar}")], &dir.join(format!("{name}.x")))?;
        run("cmp", &[name, &format!("{name}.x/{name}")], &dir)?;
    }
    Ok(())
}

/// [S-fallocate] Allocated ranges can be written on a full file system, and a refused allocation leaves nothing behind.
fn full(b: &mut Bench) -> Result<()> {
    let dir = b.dir("full")?;
    set_stripe(b, &["-c", "4", "--inline", "0"], &dir)?;
    let available = || -> Result<u64> {
        let s = rustix::fs::statvfs(&dir)?;
        Ok(s.f_bavail * s.f_frsize)
    };
    let settled = |when: &str, what: &dyn Fn(u64) -> bool| -> Result<()> {
        // Space counts are up to a second old, and the host may have other work. A client that asked for a grant at the full OSTs gets it
        // once they have space, and gives it back after a minute.
        for _ in 0..900 {
            if what(available()?) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        bail!("{when}: {} bytes available", available()?)
    };
    // The space of what earlier tests removed comes back first.
    let mut all = available()?;
    for _ in 0..30 {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        if std::mem::replace(&mut all, available()?) == all {
            break;
        }
    }
    let (kept, size) = (Twice::open(b, &dir.join("kept"))?, 64u64 << 20);
    fallocate(kept.next(), NONE, 0, size)?;
    settled(&format!("{size} kept of {all}"), &|now| now <= all - size && now >= all - size - (8 << 20))?;
    // 1. More than there is, over several OSTs: refused whole.
    let greedy = open_rw(&dir.join("greedy"))?;
    let refused = fallocate(&greedy, NONE, 0, all);
    expect_errno(refused.map_err(Into::into), Errno::NOSPC, "more than there is")?;
    ensure_eq((greedy.metadata()?.len(), greedy.metadata()?.blocks()), (0, 0), "what was refused")?;
    settled(&format!("more than {all} refused"), &|now| now >= all - size - (8 << 20))?;
    // 2. Nearly all of it, and then writes until nothing goes any more.
    let most = available()? - (64 << 20);
    fallocate(&greedy, KEEP, 0, most)?;
    let mut filler = open_rw(&dir.join("filler"))?;
    let chunk = vec![5u8; 1 << 20];
    let mut n = 0u64;
    while filler.write_all(&chunk).is_ok() {
        n += 1;
        if n > 4096 {
            bail!("{n} MiB were written where 64 are free");
        }
    }
    // 3. Every byte that was promised finds its place.
    let mut rng = Rng::new(b.seed);
    let mut want = vec![0u8; size as usize];
    rng.fill(&mut want);
    for at in (0..size as usize).step_by(1 << 20) {
        kept.next().write_all_at(&want[at..at + (1 << 20)], at as u64).with_context(|| format!("at {at}"))?;
    }
    kept.ensure_bytes(&want, "what was written to kept space")?;
    // 4. All of it comes back.
    drop((kept, greedy, filler));
    for name in ["kept", "greedy", "filler"] {
        fs::remove_file(dir.join(name))?;
    }
    settled(&format!("all of {all} removed"), &|now| now >= all - (8 << 20))?;
    if b.cluster.wiring() == Wiring::Local {
        let (code, out) =
            b.cluster.stria(&["fsck", "--dir", &b.cluster.state_dir().display().to_string()])?;
        ensure_eq(code, 0, &format!("fsck: {out}"))?;
    }
    Ok(())
}

/// [S-copy-range] `copy_file_range` copies between files of the mount and within one; each round at another mount, looked at from both.
fn copy_range(b: &mut Bench) -> Result<()> {
    let dir = b.dir("copy_range")?;
    let mut rng = b.rng();
    let mut written = vec![0u8; 5_000_000];
    rng.fill(&mut written);
    for round in 0..2 {
        let base = dir.join(round.to_string());
        fs::create_dir(&base)?;
        let [_, plain, striped] = three_files(b, &base)?;
        let (acts, there) = (b.turn(round, &base), b.turn(round + 1, &base));
        let at = |path: &Path| Ok::<_, anyhow::Error>(acts.join(path.strip_prefix(&base)?));
        // The source is of the other mount.
        fs::write(there.join(plain.strip_prefix(&base)?), &written)?;
        copies(&acts, &there, &at(&plain)?, &at(&striped)?, written.clone())
            .with_context(|| format!("at {}", acts.display()))?;
        // From and to elsewhere goes another way, and goes; so it does from one mount to the other.
        let elsewhere = tempfile_beside(b)?;
        io::copy(&mut File::open(&plain)?, &mut &elsewhere)?;
        ensure_eq(elsewhere.metadata()?.len(), 5_000_000, "to another file system")?;
        let source = File::open(b.look(&plain))?;
        let copied = copy_file_range(&source, Some(&mut 3), &open_rw(&base.join("over"))?, None, 10_000)?;
        ensure_same(&fs::read(b.look(&base.join("over")))?, &written[3..3 + copied], "from the other mount")?;
        ensure_eq(copied > 0, true, "something was copied from the other mount")?;
    }
    Ok(())
}

/// Runs calls in `acts`; checks the result there and in `there`, the same directory by the other mount.
fn copies(acts: &Path, there: &Path, plain: &Path, striped: &Path, mut want: Vec<u8>) -> Result<()> {
    let both = |path: &Path, want: &[u8], what: &str| -> Result<()> {
        ensure_same(&fs::read(path)?, want, what)?;
        ensure_same(
            &fs::read(there.join(path.strip_prefix(acts)?))?,
            want,
            &format!("{what}, by the other mount"),
        )
    };
    let (from, to) = (open_rw(plain)?, open_rw(striped)?);
    // 1. Whole, in as many calls as it takes; then to the end of the source and past it.
    let (mut at_from, mut at_to) = (0, 0);
    while copy_file_range(&from, Some(&mut at_from), &to, Some(&mut at_to), want.len())? > 0 {}
    both(striped, &want, "a whole copy")?;
    let mut at = 4_999_990;
    ensure_eq(copy_file_range(&from, Some(&mut at), &to, Some(&mut 10), 100)?, 10, "the last ten bytes")?;
    let last = want[4_999_990..].to_vec();
    want[10..20].copy_from_slice(&last);
    // 2. Parts, unaligned, past the target's end, and inline.
    let end = want.len() as u64;
    ensure_eq(
        copy_file_range(&from, Some(&mut 77), &to, Some(&mut (end + 1000)), 70_000)?,
        70_000,
        "a part",
    )?;
    let part = fs::read(plain)?[77..70_077].to_vec();
    want.resize(end as usize + 1000, 0);
    want.extend_from_slice(&part);
    both(striped, &want, "parts")?;
    let small = open_rw(&acts.join("small"))?;
    ensure_eq(copy_file_range(&from, Some(&mut 77), &small, None, 9000)?, 9000, "a small copy")?;
    both(&acts.join("small"), &part[..9000], "a small copy")?;
    // 3. Within one file: apart is a copy, overlapping is not.
    ensure_eq(copy_file_range(&to, Some(&mut 0), &to, Some(&mut 100_000), 100_000)?, 100_000, "within")?;
    let (head, tail) = want.split_at_mut(100_000);
    tail[..100_000].copy_from_slice(head);
    both(striped, &want, "within one file")?;
    let overlap = copy_file_range(&to, Some(&mut 0), &to, Some(&mut 50_000), 100_000);
    expect_errno(overlap.map_err(Into::into), Errno::INVAL, "overlapping")?;
    // 4. Appending descriptors are refused.
    let append = OpenOptions::new().append(true).open(striped)?;
    let refused = copy_file_range(&from, Some(&mut 0), &append, None, 10);
    expect_errno(refused.map_err(Into::into), Errno::BADF, "appending")
}

/// A file that is not on the mount, and has no name any more.
fn tempfile_beside(b: &Bench) -> Result<File> {
    let path = b.cluster.dir.join("elsewhere");
    let file = open_rw(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// [S-direct] Direct and buffered users of a file see each other's writes.
fn direct(b: &mut Bench) -> Result<()> {
    let dir = b.dir("direct")?;
    for path in three_files(b, &dir)? {
        let buffered = open_rw(&path)?;
        let mut options = OpenOptions::new();
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let direct = options.read(true).write(true).custom_flags(flags).open(b.look(&path))?;
        let (mut rng, mut want) = (b.rng(), vec![0u8; 400_000]);
        buffered.write_all_at(&want, 0)?;
        for n in 0..120 {
            let at = rng.below(350_000) as usize;
            // Unaligned offsets, lengths and memory are as good as any.
            let at = if rng.chance(50) { at & !4095 } else { at };
            let len = 1 + rng.below(40_000) as usize;
            let mut data = vec![0u8; len];
            rng.fill(&mut data);
            let (writer, reader) = if n % 2 == 0 { (&direct, &buffered) } else { (&buffered, &direct) };
            writer.write_all_at(&data, at as u64)?;
            want[at..at + len].copy_from_slice(&data);
            let from = at.saturating_sub(5000);
            let mut got = vec![0u8; len + 5000];
            reader.read_exact_at(&mut got, from as u64)?;
            ensure_same(&got, &want[from..from + got.len()], &format!("{} step {n}", path.display()))?;
        }
        for place in [&path, &b.look(&path)] {
            ensure_same(&fs::read(place)?, &want, "in the end")?;
        }
    }
    Ok(())
}

const MMAP: &str = r#"
import ctypes, mmap, os, signal, sys
path, size, other = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b'\x07' * size, 0)
shared = mmap.mmap(fd, size)
private = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE)
def child(f):
    pid = os.fork()
    if pid == 0:
        try: os._exit(0 if f() else 1)
        except BaseException as e: print(e, file=sys.stderr); os._exit(2)
    return os.waitpid(pid, 0)[1]
def check(ok, what):
    if not ok: sys.exit(what)
# Written through the mapping, read by read(2), by another process, and by another mapping.
shared[5000:5005] = b'hello'
check(os.pread(fd, 5, 5000) == b'hello', 'read(2) misses what the mapping wrote')
check(child(lambda: open(path, 'rb').read()[5000:5005] == b'hello') == 0, 'another process misses it')
check(private[5000:5005] == b'hello', 'another mapping misses it')
# Written by write(2), seen through the mapping.
os.pwrite(fd, b'world', 9000)
check(shared[9000:9005] == b'world', 'the mapping misses what write(2) wrote')
# A private mapping keeps its changes.
private[100:103] = b'own'
check(os.pread(fd, 3, 100) == b'\x07' * 3, 'a private change came out')
# msync: a fresh descriptor that goes past the cache finds it.
shared[12000:12004] = b'sync'
shared.flush()
direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
check(os.preadv(direct, [page], 8192) == 4096 and page[3808:3812] == b'sync', 'msync did not write')
# The same for who reads it by another path (with two mounts, through the other), whole or in part of a page.
def elsewhere(at, n):
    with open(other, 'rb') as f: return os.pread(f.fileno(), n, at)
check(elsewhere(12000, 4) == b'sync' and elsewhere(5000, 5) == b'hello', 'msync did not reach the other place')
there = os.open(other, os.O_RDWR)
check(os.pread(there, 4, 12000) == b'sync', 'msync did not reach a descriptor of the other place')
shared[12002:12004] = b'ed'
shared.flush(8192, 4096)
check(os.pread(there, 4, 12000) == b'syed', 'msync of a page did not reach the other place')
# What the other writes: read(2) sees it, and a mapping that is made anew.
os.pwrite(there, b'from there', 20000)
check(os.pread(fd, 10, 20000) == b'from there', 'read(2) misses what the other wrote')
shared.close(); private.close()
shared = mmap.mmap(fd, size)
check(shared[20000:20010] == b'from there', 'a new mapping misses what the other wrote')
shared[20000:20004] = b'FROM'
shared.close()
os.fsync(fd)
check(os.pread(there, 10, 20000) == b'FROM there', 'fsync did not write what a mapping changed')
shared = mmap.mmap(fd, size)
# Cut under the mapping: what is past the end is a signal, what is below is there, and zeros come back.
def past():
    os.ftruncate(fd, 4096)
    return shared[4095] == 7 and shared[8192] == 0
check(child(past) == signal.SIGBUS, 'no SIGBUS past the end')
os.ftruncate(fd, size)
check(shared[4095] == 7 and shared[5000:5005] == b'\0' * 5, 'what was cut came back')
# Advice is harmless.
for advice in (os.POSIX_FADV_SEQUENTIAL, os.POSIX_FADV_RANDOM, os.POSIX_FADV_WILLNEED, os.POSIX_FADV_DONTNEED):
    os.posix_fadvise(fd, 0, 0, advice)
libc = ctypes.CDLL(None)
libc.readahead.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_size_t]
check(libc.readahead(fd, 0, size) == 0, 'readahead')
check(os.pread(fd, 4096, 0) == b'\x07' * 4096, 'after advice')
"#;

/// [S-mmap] Shared mappings and descriptors see one file; private ones keep their changes; msync writes; a cut is a signal.
fn mapped(b: &mut Bench) -> Result<()> {
    let dir = b.dir("mapped")?;
    for path in three_files(b, &dir)? {
        let size = if path.ends_with("inline") { "40000" } else { "3000000" };
        for round in 0..2 {
            let (acts, other) = (b.turn(round, &path), b.turn(round + 1, &path));
            let (acts, other) = (acts.display().to_string(), other.display().to_string());
            run("python3", &["-c", MMAP, &acts, size, &other], &dir)?;
        }
    }
    Ok(())
}

/// Writes pages in place and looks at each through a mapping at once, while others read the mapping and ask for attributes.
const WRITTEN: &str = r#"
import mmap, os, random, struct, sys
path, pages, writes = sys.argv[1], 64, 1000
with open(path, 'wb') as f: f.write(bytes(4096 * pages))
children = []
def beside(act):
    child = os.fork()
    if child == 0:
        while True: act()
    children.append(child)
def mapping():
    return mmap.mmap(os.open(path, os.O_RDWR), 4096 * pages, prot=mmap.PROT_READ)
seen = mapping()
try:
    beside(lambda: os.stat(path))
    beside(lambda: [seen[n * 4096] for n in range(pages)])
    fd, mine = os.open(path, os.O_RDWR), mapping()
    for n in range(1, writes):
        at = random.randrange(pages) * 4096
        os.pwrite(fd, struct.pack('<Q', n) * 512, at)
        got = struct.unpack_from('<Q', mine, at)[0]
        assert got == n, f'write {n} to byte {at}: the mapping shows write {got}'
finally:
    for child in children: os.kill(child, 9)
    for child in children: os.waitpid(child, 0)
"#;

/// [S-mmap] Data written by a descriptor is in the mapping when the call returns, also while other processes use the file.
fn mapped_while_written(b: &mut Bench) -> Result<()> {
    let dir = b.dir("mapped-written")?;
    for path in three_files(b, &dir)? {
        run("python3", &["-c", WRITTEN, &path.display().to_string()], &dir)?;
    }
    Ok(())
}
