//! Space, holes, copies, and the ways to read and write beside read(2) and write(2).

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use testkit::{Rng, Wiring};

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[Test] = &[
    ("data::fallocate", allocate),
    ("data::holes", holes),
    ("data::random_ranges", random_ranges),
    ("data::sparse_copies", sparse_copies),
    ("data::copy_range", copy_range),
    ("data::direct", direct),
    ("data::mapped", mapped),
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
    b.cluster.stria(&["setstripe", "-c", "3", "-S", "64K", &striped.display().to_string()])?;
    let plain = dir.join("plain");
    fs::create_dir(&plain)?;
    b.cluster.stria(&["setstripe", "--inline", "0", &plain.display().to_string()])?;
    Ok([dir.join("inline"), plain.join("f"), striped.join("f")])
}

fn data_from(f: &File, at: u64) -> std::io::Result<u64> {
    Ok(seek(f, SeekFrom::Data(at))?)
}
fn hole_from(f: &File, at: u64) -> std::io::Result<u64> {
    Ok(seek(f, SeekFrom::Hole(at))?)
}

/// [S-fallocate] Space is kept, freed and zeroed as on ext4.
fn allocate(b: &mut Bench) -> Result<()> {
    let dir = b.dir("fallocate")?;
    for path in three_files(b, &dir)? {
        let f = open_rw(&path)?;
        let state = || -> Result<(u64, u64)> {
            let meta = f.metadata()?;
            Ok((meta.len(), meta.blocks()))
        };
        // 1. Space without bytes: zeros, holes to lseek, counted.
        fallocate(&f, NONE, 0, 40_960)?;
        ensure_eq(state()?, (40_960, 80), "allocated")?;
        ensure_same(&fs::read(&path)?, &[0; 40_960], "allocated bytes")?;
        expect_errno(data_from(&f, 0), Errno::NXIO, "data where nothing was written")?;
        // 2. A write uses what is kept.
        f.write_all_at(&[7; 5000], 10_000)?;
        ensure_eq(state()?, (40_960, 80), "written to kept space")?;
        ensure_eq((data_from(&f, 0)?, hole_from(&f, 8192)?), (8192, 16_384), "what was written")?;
        // 3. Zeros that keep their space, and a hole.
        fallocate(&f, ZERO.union(KEEP), 8192, 4096)?;
        ensure_eq((state()?, data_from(&f, 0)?), ((40_960, 80), 12_288), "a zeroed page")?;
        fallocate(&f, PUNCH, 0, 12_288)?;
        ensure_eq(state()?, (40_960, 56), "three pages punched")?;
        fallocate(&f, PUNCH, 12_300, 100)?;
        ensure_eq(state()?, (40_960, 56), "a part of a page punched")?;
        let mut want = vec![0; 40_960];
        want[12_288..15_000].fill(7);
        want[12_300..12_400].fill(0);
        ensure_same(&fs::read(&path)?, &want, "after punches")?;
        // 4. Space past the end, and what takes it back.
        fallocate(&f, KEEP, 40_960, 1 << 20)?;
        ensure_eq(state()?, (40_960, 56 + 2048), "space past the end")?;
        f.set_len(40_960)?;
        ensure_eq(state()?, (40_960, 56), "cut to its own size")?;
        fallocate(&f, ZERO, 40_000, 160_000)?;
        ensure_eq(f.metadata()?.len(), 200_000, "zeroed past the end")?;
        want.resize(200_000, 0);
        ensure_same(&fs::read(&path)?, &want, "zeroed past the end")?;
        f.set_len(0)?;
        ensure_eq(state()?, (0, 0), "emptied")?;
        // 5. What is refused.
        for mode in [0x08, 0x20, 0x40] {
            let refused = fallocate(&f, FallocateFlags::from_bits_retain(mode), 0, 4096);
            expect_errno(refused.map_err(Into::into), Errno::OPNOTSUPP, "collapse, insert, unshare")?;
        }
        expect_errno(fallocate(&f, NONE, 0, 0).map_err(Into::into), Errno::INVAL, "no bytes")?;
        let top = (16u64 << 40) - 4096;
        expect_errno(fallocate(&f, NONE, top, 1).map_err(Into::into), Errno::FBIG, "past the limit")?;
        let reader = File::open(&path)?;
        expect_errno(fallocate(&reader, NONE, 0, 1).map_err(Into::into), Errno::BADF, "read only")?;
    }
    // 6. It is the same after a restart.
    let kept = open_rw(&dir.join("kept"))?;
    fallocate(&kept, NONE, 0, 8 << 20)?;
    drop(kept);
    b.cluster.restart()?;
    let meta = fs::metadata(dir.join("kept"))?;
    ensure_eq((meta.len(), meta.blocks()), (8 << 20, 16_384), "after a restart")
}

/// [S-holes] lseek finds bytes and holes page by page, and st_blocks counts them.
fn holes(b: &mut Bench) -> Result<()> {
    let dir = b.dir("holes")?;
    for path in three_files(b, &dir)? {
        let f = open_rw(&path)?;
        let size = if path.ends_with("inline") { 50_000 } else { 3_000_000 };
        f.set_len(size)?;
        ensure_eq((f.metadata()?.blocks(), hole_from(&f, 17)?), (0, 17), "one hole")?;
        expect_errno(data_from(&f, 0), Errno::NXIO, "no data")?;
        f.write_all_at(b"x", 20_000)?;
        f.write_all_at(b"y", size - 1)?;
        ensure_eq(f.metadata()?.blocks() > 0, true, "bytes take blocks at once")?;
        let last = (size - 1) / 4096 * 4096;
        ensure_eq((data_from(&f, 0)?, data_from(&f, 20_481)?), (16_384, last), "data")?;
        ensure_eq((hole_from(&f, 16_390)?, hole_from(&f, last)?), (20_480, size), "holes")?;
        ensure_eq(data_from(&f, 20_001)?, 20_001, "within data")?;
        for past in [size, size + 1, 1 << 43] {
            expect_errno(data_from(&f, past), Errno::NXIO, "data past the end")?;
            expect_errno(hole_from(&f, past), Errno::NXIO, "a hole past the end")?;
        }
        fallocate(&f, PUNCH, 0, size + 1)?;
        ensure_eq((f.metadata()?.blocks(), f.metadata()?.len()), (0, size), "all punched")?;
    }
    Ok(())
}

/// [S-fallocate] [S-holes] Random writes, cuts, punches, zeros and allocations against a table of bytes and pages.
fn random_ranges(b: &mut Bench) -> Result<()> {
    let dir = b.dir("ranges")?;
    for (path, size_max) in three_files(b, &dir)?.into_iter().zip([60_000, 900_000, 900_000]) {
        let (f, mut rng) = (open_rw(&path)?, b.rng());
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
                    f.write_all_at(&vec![1 + n as u8 % 200; len as usize], at)?;
                    bytes.resize(bytes.len().max(end as usize), 0);
                    bytes[at as usize..end as usize].fill(1 + n as u8 % 200);
                    data[pages].fill(true);
                }
                1 => {
                    f.set_len(at)?;
                    bytes.resize(at as usize, 0);
                    data[at.div_ceil(4096) as usize..].fill(false);
                }
                2 => {
                    let grows = rng.chance(50);
                    fallocate(&f, if grows { NONE } else { KEEP }, at, len)?;
                    bytes.resize(bytes.len().max(if grows { end as usize } else { 0 }), 0);
                }
                3 => {
                    let grows = rng.chance(50);
                    fallocate(&f, if grows { ZERO } else { ZERO.union(KEEP) }, at, len)?;
                    zero(&mut bytes, at, end);
                    data[whole].fill(false);
                    bytes.resize(bytes.len().max(if grows { end as usize } else { 0 }), 0);
                }
                4 => {
                    fallocate(&f, PUNCH, at, len)?;
                    zero(&mut bytes, at, end);
                    data[whole].fill(false);
                }
                _ => {}
            }
            let what = format!("{} step {n}", path.display());
            let size = bytes.len() as u64;
            ensure_eq(f.metadata()?.len(), size, &what)?;
            if n % 8 == 0 {
                ensure_same(&fs::read(&path)?, &bytes, &what)?;
            }
            let from = rng.below(size_max);
            let page_of = |want: bool| {
                let last = (size as usize).div_ceil(4096);
                (from as usize / 4096..last).find(|p| data[*p] == want).map(|p| (p as u64 * 4096).max(from))
            };
            // A page at the end that was zeroed in part, whole as far as the file goes, may count either way.
            let got = data_from(&f, from).ok();
            let is_last = |at: Option<u64>| at.is_some_and(|at| at / 4096 == size.saturating_sub(1) / 4096);
            if from < size && got != page_of(true) && !is_last(got) && !is_last(page_of(true)) {
                bail!("{what}: data from {from} at {got:?}, expected {:?}", page_of(true));
            }
            let hole = hole_from(&f, from).ok();
            let want = (from < size).then(|| page_of(false).unwrap_or(size));
            if hole != want && !is_last(hole) && !is_last(want) && hole != Some(size) {
                bail!("{what}: a hole from {from} at {hole:?}, expected {want:?}");
            }
        }
    }
    Ok(())
}

fn zero(bytes: &mut [u8], at: u64, end: u64) {
    let size = bytes.len();
    bytes[(at as usize).min(size)..(end as usize).min(size)].fill(0);
}

/// [S-holes] `cp` and `tar -S` keep holes, also right after the bytes were written.
fn sparse_copies(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sparse_copies")?;
    for (name, size) in [("small", 60_000u64), ("large", 40 << 20)] {
        let path = dir.join(name);
        let f = open_rw(&path)?;
        f.set_len(size)?;
        f.write_all_at(b"somewhere in the middle", size / 2)?;
        // Still open, and the MDT knows nothing yet: who takes 0 blocks for "all zeros" would lose these bytes.
        let (copy, tar) = (format!("{name}.copy"), format!("{name}.tar"));
        run("tar", &["-Scf", &tar, name], &dir)?;
        run("cp", &["--sparse=auto", name, &copy], &dir)?;
        run("cmp", &[name, &copy], &dir)?;
        ensure_eq(fs::metadata(dir.join(&copy))?.blocks() <= 8, true, "blocks of the copy")?;
        ensure_eq(fs::metadata(dir.join(&tar))?.len() < 30_000, true, "the archive is small")?;
        fs::create_dir(dir.join(format!("{name}.x")))?;
        run("tar", &["-xf", &format!("../{tar}")], &dir.join(format!("{name}.x")))?;
        run("cmp", &[name, &format!("{name}.x/{name}")], &dir)?;
    }
    Ok(())
}

/// [S-fallocate] What is allocated can be written on a full file system, and a refused allocation leaves nothing behind.
fn full(b: &mut Bench) -> Result<()> {
    let dir = b.dir("full")?;
    b.cluster.stria(&["setstripe", "-c", "4", "--inline", "0", &dir.display().to_string()])?;
    let available = || -> Result<u64> {
        let s = rustix::fs::statvfs(&dir)?;
        Ok(s.f_bavail * s.f_frsize)
    };
    let settled = |what: &dyn Fn(u64) -> bool| -> Result<()> {
        // Space counts are up to a second old.
        for _ in 0..50 {
            if what(available()?) {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        bail!("{} bytes available", available()?)
    };
    let all = available()?;
    let (kept, size) = (open_rw(&dir.join("kept"))?, 64u64 << 20);
    fallocate(&kept, NONE, 0, size)?;
    settled(&|now| now <= all - size && now >= all - size - (8 << 20))?;
    // 1. More than there is, over several OSTs: refused whole.
    let greedy = open_rw(&dir.join("greedy"))?;
    let refused = fallocate(&greedy, NONE, 0, all);
    expect_errno(refused.map_err(Into::into), Errno::NOSPC, "more than there is")?;
    ensure_eq((greedy.metadata()?.len(), greedy.metadata()?.blocks()), (0, 0), "what was refused")?;
    settled(&|now| now >= all - size - (8 << 20))?;
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
        kept.write_all_at(&want[at..at + (1 << 20)], at as u64).with_context(|| format!("at {at}"))?;
    }
    ensure_same(&fs::read(dir.join("kept"))?, &want, "what was written to kept space")?;
    // 4. All of it comes back.
    drop((kept, greedy, filler));
    for name in ["kept", "greedy", "filler"] {
        fs::remove_file(dir.join(name))?;
    }
    settled(&|now| now >= all - (8 << 20))?;
    if b.cluster.wiring() == Wiring::Local {
        let (code, out) =
            b.cluster.stria(&["fsck", "--dir", &b.cluster.state_dir().display().to_string()])?;
        ensure_eq(code, 0, &format!("fsck: {out}"))?;
    }
    Ok(())
}

/// [S-copy-range] `copy_file_range` copies between files of the mount and within one.
fn copy_range(b: &mut Bench) -> Result<()> {
    let dir = b.dir("copy_range")?;
    let mut rng = b.rng();
    let mut want = vec![0u8; 5_000_000];
    rng.fill(&mut want);
    let [_, plain, striped] = three_files(b, &dir)?;
    fs::write(&plain, &want)?;
    let (from, to) = (open_rw(&plain)?, open_rw(&striped)?);
    // 1. Whole, in as many calls as it takes; then to the end of the source and past it.
    let (mut at_from, mut at_to) = (0, 0);
    while copy_file_range(&from, Some(&mut at_from), &to, Some(&mut at_to), want.len())? > 0 {}
    ensure_same(&fs::read(&striped)?, &want, "a whole copy")?;
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
    let part = fs::read(&plain)?[77..70_077].to_vec();
    want.resize(end as usize + 1000, 0);
    want.extend_from_slice(&part);
    ensure_same(&fs::read(&striped)?, &want, "parts")?;
    let small = open_rw(&dir.join("small"))?;
    ensure_eq(copy_file_range(&from, Some(&mut 77), &small, None, 9000)?, 9000, "a small copy")?;
    ensure_same(&fs::read(dir.join("small"))?, &part[..9000], "a small copy")?;
    // 3. Within one file: apart is a copy, overlapping is not.
    ensure_eq(copy_file_range(&to, Some(&mut 0), &to, Some(&mut 100_000), 100_000)?, 100_000, "within")?;
    let (head, tail) = want.split_at_mut(100_000);
    tail[..100_000].copy_from_slice(head);
    ensure_same(&fs::read(&striped)?, &want, "within one file")?;
    let overlap = copy_file_range(&to, Some(&mut 0), &to, Some(&mut 50_000), 100_000);
    expect_errno(overlap.map_err(Into::into), Errno::INVAL, "overlapping")?;
    // 4. Appending descriptors are refused; from and to elsewhere goes another way, and goes.
    let append = OpenOptions::new().append(true).open(&striped)?;
    let refused = copy_file_range(&from, Some(&mut 0), &append, None, 10);
    expect_errno(refused.map_err(Into::into), Errno::BADF, "appending")?;
    let elsewhere = tempfile_beside(b)?;
    std::io::copy(&mut File::open(&plain)?, &mut &elsewhere)?;
    ensure_eq(elsewhere.metadata()?.len(), 5_000_000, "to another file system")
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
        let direct = options.read(true).write(true).custom_flags(flags).open(&path)?;
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
        ensure_same(&fs::read(&path)?, &want, "in the end")?;
    }
    Ok(())
}

const MMAP: &str = r#"
import ctypes, mmap, os, signal, sys
path, size = sys.argv[1], int(sys.argv[2])
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
        run("python3", &["-c", MMAP, &path.display().to_string(), size], &dir)?;
    }
    Ok(())
}
