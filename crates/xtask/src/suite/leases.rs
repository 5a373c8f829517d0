//! Leases between two mounts of real processes.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, IoSlice, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::{Role, Wiring};

use super::programs::{judge, script};
use super::sys::ensure_eq;
use super::{Bench, Needs, Test, skip};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Two), ("leases::no_page_is_older_than_the_last_write", pages)),
    (Needs::Only(Wiring::Two), ("leases::no_lookup_is_older_than_the_last_change", cached_names)),
    (Needs::Only(Wiring::Two), ("leases::histories_of_two_mounts_are_linearizable", histories)),
    (Needs::Only(Wiring::Two), ("leases::small_files_are_seen_elsewhere_at_once", shipped)),
    (Needs::Only(Wiring::Two), ("leases::two_mounts_write_one_file_in_strides", strides)),
];

pub const OWN: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Two), ("leases::a_stopped_mount_delays_a_change_by_its_term", stopped)),
    (Needs::Only(Wiring::Two), ("leases::a_stopped_mount_gives_up_the_file_that_it_writes", stopped_writer)),
    (Needs::Only(Wiring::Two), ("leases::calls_of_many_pieces_are_whole_where_root_allows", many_pieces)),
];

/// [S-several-mounts], [S-mmap] Reads, direct reads and mappings of both mounts after writes and stores of both, by one file.
fn pages(b: &mut Bench) -> Result<()> {
    let dir = b.dir("pages")?;
    let there = b.look(&dir);
    let rounds = if b.scale.is_short() { "300" } else { "10000" };
    judge(Command::new("python3").arg(script("pages.py")?).arg(dir).arg(there).arg(rounds), 1)
}

/// [S-several-mounts] Names that both kernels have cached, after changes at either mount.
fn cached_names(b: &mut Bench) -> Result<()> {
    let dir = b.dir("cached-names")?;
    let there = b.look(&dir);
    let rounds = if b.scale.is_short() { "120" } else { "5000" };
    judge(Command::new("python3").arg(script("names.py")?).arg(dir).arg(there).arg(rounds), 1)
}

/// [S-several-mounts], [S-append] Calls of four processes at both mounts, on registers, names, a log and sizes: each takes effect at one moment
/// between its begin and its end. The checker finds planted faults first.
fn histories(b: &mut Bench) -> Result<()> {
    let program = script("histories.py")?;
    judge(Command::new("python3").arg(&program).arg("--self-test"), 1)?;
    let dir = b.dir("histories")?;
    let there = b.look(&dir);
    let time = if b.scale.is_short() { "3s" } else { "180s" };
    // Sizes have exceptions in SEMANTICS: the kernel drops answers about them.
    let kinds = ["1", "register,names,log"];
    judge(Command::new("python3").arg(program).arg(dir).arg(there).arg(time).args(kinds), 1)
}

/// [S-shipped] Files that one mount makes and removes in bulk, as the other one finds them at that moment.
fn shipped(b: &mut Bench) -> Result<()> {
    let base = b.dir("shipped")?;
    for round in 0..12 {
        let dir = base.join(round.to_string());
        fs::create_dir(&dir)?;
        let there = b.look(&dir);
        let content = |n: usize| format!("{round} {n}").repeat(n * 17 % 900);
        let mut last = None;
        for n in 0..60 {
            fs::write(dir.join(n.to_string()), content(n))?;
            last = (n == 59).then(|| fs::metadata(&dir)).transpose()?;
        }
        // What the other mount asks first brings all of it.
        let last = last.context("the last round has looked")?;
        let times = |of: &fs::Metadata| (of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        match round % 4 {
            0 => ensure_eq(fs::read_dir(&there)?.count(), 60, "names")?,
            1 => ensure_eq(fs::read_to_string(there.join("59"))?, content(59), "the last file")?,
            2 => ensure_eq(times(&fs::metadata(&there)?), times(&last), "times of the directory")?,
            _ => ensure!(fs::remove_dir(&there).is_err_and(|e| e.kind() == ErrorKind::DirectoryNotEmpty)),
        }
        for n in 0..60 {
            ensure_eq(fs::read_to_string(there.join(n.to_string()))?, content(n), "content")?;
        }
        // A name is made once, whichever mount is quicker.
        ensure!(File::create_new(there.join("7")).is_err_and(|e| e.kind() == ErrorKind::AlreadyExists));
        fs::rename(there.join("7"), there.join("seven"))?;
        ensure!(File::create_new(dir.join("seven")).is_err_and(|e| e.kind() == ErrorKind::AlreadyExists));
        fs::remove_file(dir.join("seven"))?;
        for n in (0..60).filter(|n| *n != 7) {
            fs::remove_file(dir.join(n.to_string()))?;
        }
        fs::remove_dir(&there)?;
        ensure!(!dir.exists(), "a directory that the other mount has removed");
    }
    Ok(fs::remove_dir_all(base)?)
}

/// [S-several-mounts] Two mounts write one file beside each other, at strides that cross stripes and such that do not. Sizes are right at once,
/// and both read what both wrote.
fn strides(b: &mut Bench) -> Result<()> {
    const ROUNDS: usize = 40;
    let dir = b.dir("strides")?;
    let there = b.look(&dir);
    let byte = |n: usize| (n % 251) as u8 + 1;
    for (name, layout, len) in
        [("hard", "-c 2 -S 64k", 47_008), ("narrow", "-c 1", 47_008), ("aligned", "-c 2 -S 1m", 1 << 20)]
    {
        let paths = [dir.join(name), there.join(name)];
        File::create(&paths[0])?;
        rustix::fs::setxattr(&paths[0], "stria.layout", layout.as_bytes(), rustix::fs::XattrFlags::empty())?;
        let write = |path: &Path, who: usize| -> Result<()> {
            let file = File::options().read(true).write(true).open(path)?;
            for n in (who..2 * ROUNDS).step_by(2) {
                let (at, data) = ((n * len) as u64, vec![byte(n); len]);
                file.write_all_at(&data, at)?;
                let mut back = vec![0; len];
                file.read_exact_at(&mut back, at)?;
                ensure!(back == data, "{name}: the mount does not read what it wrote at {at}");
            }
            Ok(())
        };
        std::thread::scope(|scope| -> Result<()> {
            let writers = [0, 1].map(|who| {
                scope.spawn({
                    let path = &paths[who];
                    move || write(path, who)
                })
            });
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        })?;
        for path in &paths {
            let size = fs::metadata(path)?.len();
            ensure!(size == (2 * ROUNDS * len) as u64, "{}: {size} bytes", path.display());
            let all = fs::read(path)?;
            let is_right = |(n, part): (usize, &[u8])| part.iter().all(|b| *b == byte(n));
            ensure!(all.chunks(len).enumerate().all(is_right), "{}: other bytes", path.display());
        }
    }
    Ok(())
}

/// The term, and what two keep-alives and a busy machine take.
const DELAY_MAX: Duration = Duration::from_secs(9);
/// Names that both mounts have cached.
const FILES: usize = 20;

/// [S-leases] A mount that is stopped delays a change of what it caches by its term, and no other change. It shows nothing old afterwards.
fn stopped(b: &mut Bench) -> Result<()> {
    let dir = b.dir("leased")?;
    // The second mount looks into neither of the other two.
    let (cached, other) = (dir.join("cached"), dir.join("x/other"));
    [&cached, &other].into_iter().try_for_each(fs::create_dir_all)?;
    let file = |dir: &Path, n: usize| dir.join(format!("f{n}"));
    (0..FILES).try_for_each(|n| File::create(file(&cached, n)).map(drop))?;
    let (here, there) = (cached.clone(), b.look(&cached));
    let see = |dir: &Path| (0..FILES).try_for_each(|n| fs::metadata(file(dir, n)).map(drop));
    see(&here)?;
    see(&there)?;
    b.cluster.freeze(Role::SecondMount)?;
    let changed = (|| -> Result<()> {
        // What the stopped mount has not cached.
        let began = Instant::now();
        File::create(other.join("new"))?;
        let free = began.elapsed();
        let began = Instant::now();
        fs::set_permissions(file(&here, 3), Permissions::from_mode(0o640))?;
        let waited = began.elapsed();
        ensure!(waited < DELAY_MAX, "a change waited {waited:?} for a stopped mount");
        ensure!(
            free < waited,
            "another change waited {free:?}, as long as one of what is cached ({waited:?})"
        );
        // The lease has run out, so further changes do not wait.
        let began = Instant::now();
        fs::remove_file(file(&here, 4))?;
        fs::rename(file(&here, 5), file(&here, 100))?;
        ensure!(began.elapsed() < Duration::from_secs(2), "changes wait for a lease that has run out");
        Ok(())
    })();
    b.cluster.thaw(Role::SecondMount)?;
    changed?;
    let mode = fs::metadata(file(&there, 3))?.permissions().mode() & 0o777;
    ensure!(mode == 0o640, "the mount shows mode {mode:o} of before it was stopped");
    ensure!(!file(&there, 4).exists() && !file(&there, 5).exists(), "it shows names that are gone");
    ensure!(file(&there, 100).exists() && file(&there, 6).exists(), "it does not show what is there");
    Ok(())
}

/// The content leases of a stopped mount end with its term. Its session is looked at once a second, and the file is asked from its objects.
const CONTENT_DELAY_MAX: Duration = Duration::from_secs(12);

/// [S-leases], [S-dead-mount] A mount that is stopped while it holds the exclusive lease of a file delays readers by its term. They find all
/// that it wrote. It does not write over later changes.
fn stopped_writer(b: &mut Bench) -> Result<()> {
    let dir = b.dir("leased-content")?;
    let here = dir.join("f");
    fs::write(&here, vec![1; 300_000])?;
    let there = b.look(&here);
    let writer = File::options().read(true).write(true).open(&there)?;
    writer.write_all_at(&[2; 200_000], 200_000)?;
    b.cluster.freeze(Role::SecondMount)?;
    let began = Instant::now();
    let read = fs::read(&here);
    let waited = began.elapsed();
    let changed = File::options().write(true).open(&here).and_then(|f| f.write_all_at(&[3; 100], 0));
    b.cluster.thaw(Role::SecondMount)?;
    let read = read?;
    changed?;
    ensure!(waited < CONTENT_DELAY_MAX, "a read waited {waited:?} for a stopped mount");
    let is_right =
        read.len() == 400_000 && read[..200_000] == [1; 200_000] && read[200_000..] == [2; 200_000];
    ensure!(is_right, "what the stopped mount had written is not there: {} bytes", read.len());
    // Its session was ended, so its descriptor fails, or works on what is there now.
    drop(writer.sync_all());
    drop(writer);
    // Until the kernel has told of the close, the file is errored there.
    let until = Instant::now() + Duration::from_secs(10);
    let again = loop {
        match fs::read(&there) {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            again => break again?,
        }
    };
    let read = fs::read(&here)?;
    ensure!(read == again && read[..100] == [3; 100], "the mounts differ after the stopped one went on");
    Ok(())
}

/// The kernel's limit of pages per request, for mounts that are made later.
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// What SEMANTICS names.
const PAGES: &str = "2304";
const APPENDS: usize = 60;

/// [S-append] Vectors, and a megabyte from unaligned memory, that both mounts append: with the limit raised each is one request, and whole.
fn many_pieces(b: &mut Bench) -> Result<()> {
    let Ok(limit) = fs::read_to_string(PAGES_LIMIT) else { return skip("Linux before 6.13") };
    if fs::write(PAGES_LIMIT, PAGES).is_err() {
        return skip("the limit of pages per request cannot be raised here");
    }
    let restarted = b.cluster.restart();
    // Mounts that are made later by others are not to differ.
    fs::write(PAGES_LIMIT, limit.trim())?;
    restarted?;
    let dir = b.dir("pieces")?;
    for (name, pieces, bytes) in [("small", 1000, 10), ("larger", 1000, 900), ("unaligned", 1, 1 << 20)] {
        let file = dir.join(name);
        File::create(&file)?;
        let append = |path: &Path, byte: u8| -> Result<()> {
            let mut to = File::options().append(true).open(path)?;
            // Large memory begins at a page, plus a header: one byte further it is unaligned in any case.
            let memory = vec![byte; bytes + 1];
            let slices = vec![IoSlice::new(&memory[1..]); pieces];
            for _ in 0..APPENDS {
                let written = to.write_vectored(&slices)?;
                ensure!(written == pieces * bytes, "an append of {} bytes wrote {written}", pieces * bytes);
            }
            Ok(())
        };
        let there = b.look(&file);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| append(&there, b'B'));
            append(&file, b'A')?;
            other.join().ok().context("a writer panicked")?
        })?;
        let content = fs::read(&file)?;
        let calls = content.chunks(pieces * bytes);
        ensure!(calls.len() == 2 * APPENDS, "{name}: {} bytes in the file", content.len());
        for (n, call) in calls.enumerate() {
            ensure!(call.iter().all(|byte| *byte == call[0]), "{name}: append {n} is mixed with another");
        }
        fs::remove_file(file)?;
    }
    Ok(())
}
