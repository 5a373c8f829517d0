//! The paragraphs of docs/SEMANTICS.md that programs see, one test each. What one place does is looked at from the other
//! (`Bench::look`): with two mounts that is the other mount, with one it is the same.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use testkit::Rng;

use super::sys::*;
use super::{Bench, Test, set_stripe};

pub const TESTS: &[Test] = &[
    ("semantics::read_your_writes", read_your_writes),
    ("semantics::append", append),
    ("semantics::truncate", truncate),
    ("semantics::sparse", sparse),
    ("semantics::growth", growth),
    ("semantics::striping", striping),
    ("semantics::names", names),
    ("semantics::rename", rename),
    ("semantics::hard_links", hard_links),
    ("semantics::unlinked_open", unlinked_open),
    ("semantics::big_directory", big_directory),
    ("semantics::permissions", permissions),
    ("semantics::sticky", sticky),
    ("semantics::setgid_directory", setgid_directory),
    ("semantics::times", times),
    ("semantics::atime", atime),
    ("semantics::xattrs", xattrs),
    ("semantics::statfs", statfs),
];

fn open_rw(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .context(path.display().to_string())
}

/// [S-read-your-writes] A read returns the last completed write, byte for byte, through any descriptor of the mount.
fn read_your_writes(b: &mut Bench) -> Result<()> {
    let dir = b.dir("read_your_writes")?;
    let path = dir.join("f");
    let (one, two) = (open_rw(&path)?, open_rw(&b.look(&path))?);
    let mut rng = b.rng();
    let mut want: Vec<u8> = Vec::new();
    for n in 0..400 {
        // Offsets around pages, around inline_max and well into objects.
        let at = rng.below(if n < 200 { 80_000 } else { 3 << 20 }) as usize;
        let mut data = vec![0u8; 1 + rng.below(20_000) as usize];
        rng.fill(&mut data);
        if want.len() < at + data.len() {
            want.resize(at + data.len(), 0);
        }
        want[at..at + data.len()].copy_from_slice(&data);
        one.write_all_at(&data, at as u64)?;
        let mut got = vec![0u8; data.len()];
        two.read_exact_at(&mut got, at as u64)?;
        ensure_same(&got, &data, "just written")?;
    }
    ensure_same(&fs::read(b.look(&path))?, &want, "the whole file")?;
    ensure_eq(two.read_at(&mut [0; 10], want.len() as u64)?, 0, "read at the end")?;
    Ok(())
}

/// [S-append] Writes through `O_APPEND` descriptors never overwrite each other.
fn append(b: &mut Bench) -> Result<()> {
    let path = b.dir("append")?.join("log");
    let writers: Vec<_> = (0..4u8)
        .map(|w| {
            let path = b.turn(w.into(), &path);
            thread::spawn(move || -> Result<()> {
                let mut f = OpenOptions::new().append(true).create(true).open(path)?;
                for n in 0..500u32 {
                    let record = [&[w][..], &n.to_le_bytes(), &[w; 95]].concat();
                    f.write_all(&record)?;
                }
                Ok(())
            })
        })
        .collect();
    for w in writers {
        w.join().map_err(|_| anyhow::anyhow!("writer panicked"))??;
    }
    let bytes = fs::read(&path)?;
    ensure_eq(bytes.len(), 4 * 500 * 100, "size")?;
    let mut next = [0u32; 4];
    for record in bytes.chunks(100) {
        let w = record[0] as usize;
        let n = u32::from_le_bytes(record[1..5].try_into()?);
        if record[5..].iter().any(|x| *x as usize != w) {
            bail!("a record of writer {w} is mixed");
        }
        ensure_eq(n, next[w], "order of one writer's records")?;
        next[w] += 1;
    }
    Ok(())
}

/// [S-truncate] `truncate` cuts or extends to exactly the given size.
fn truncate(b: &mut Bench) -> Result<()> {
    let dir = b.dir("truncate")?;
    for (n, size) in [5_000usize, 60_000, 300_000, 5 << 20].into_iter().enumerate() {
        let path = dir.join(format!("f{n}"));
        let (f, seen) = (open_rw(&path)?, b.look(&path));
        let mut want = vec![0u8; size];
        Rng::new(n as u64).fill(&mut want);
        f.write_all_at(&want, 0)?;
        for cut in [size - 1, size / 2 + 3, size / 3, 4096, 100, 1, 0] {
            f.set_len(cut as u64)?;
            want.truncate(cut);
            ensure_eq(fs::metadata(&seen)?.len(), cut as u64, "size after cut")?;
            let longer = cut + 70_000;
            f.set_len(longer as u64)?;
            want.resize(longer, 0);
            ensure_same(&fs::read(&seen)?, &want, &format!("{size} bytes cut to {cut}, then longer"))?;
        }
    }
    Ok(())
}

/// [S-sparse] Files may be sparse and reach 16 TiB less 4 KiB; a larger size is `EFBIG`.
fn sparse(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sparse")?;
    let f = open_rw(&dir.join("f"))?;
    let top = (16u64 << 40) - 4096;
    f.write_all_at(b"end", top - 3)?;
    f.write_all_at(b"middle", 5 << 40)?;
    let seen = File::open(b.look(&dir.join("f")))?;
    ensure_eq(seen.metadata()?.len(), top, "size")?;
    let mut got = [9u8; 9];
    seen.read_exact_at(&mut got, (5 << 40) - 3)?;
    ensure_same(&got, b"\0\0\0middle", "hole and bytes")?;
    seen.read_exact_at(&mut got[..3], top - 3)?;
    ensure_same(&got[..3], b"end", "the last bytes")?;
    expect_errno(f.write_at(b"x", top), Errno::FBIG, "write past the limit")?;
    expect_errno(f.set_len(top + 1), Errno::FBIG, "truncate past the limit")?;
    drop((f, seen));
    wait_until("a sparse file of 9 bytes takes less than 1 MiB", || {
        Ok(fs::metadata(dir.join("f"))?.blocks() * 512 < 1 << 20)
    })
}

/// [S-growth] A file starts inline and migrates to objects when it outgrows `inline_max`; readers see its bytes throughout.
fn growth(b: &mut Bench) -> Result<()> {
    let path = b.dir("growth")?.join("f");
    let seen_at = b.look(&path);
    let total = 400_000usize;
    let byte = |i: usize| (i % 251) as u8;
    let (tell, reads) = std::sync::mpsc::channel();
    let writer = {
        let path = path.clone();
        thread::spawn(move || -> Result<()> {
            let mut f = File::create(path)?;
            for at in (0..total).step_by(1000) {
                f.write_all(&(at..at + 1000).map(byte).collect::<Vec<_>>())?;
                // Inline, at the border and after it the reader gets its turn: one read that begins and ends now.
                if at % 20_000 == 0 {
                    reads.try_iter().for_each(drop);
                    // No more of them come from a reader that has failed.
                    let _ = reads.recv().and_then(|()| reads.recv());
                }
            }
            Ok(())
        })
    };
    let mut sizes = std::collections::BTreeSet::new();
    while !writer.is_finished() {
        let seen = match fs::read(&seen_at) {
            Ok(seen) => seen,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e).context("a read while the file grows"),
        };
        if let Some(bad) = seen.iter().enumerate().position(|(i, x)| *x != byte(i)) {
            bail!("a reader saw a foreign byte at {bad} of {}", seen.len());
        }
        sizes.insert(seen.len());
        // The writer may have ended.
        let _ = tell.send(());
    }
    drop(tell);
    ensure_eq(sizes.len() >= 20, true, &format!("reads while it grew found {sizes:?}"))?;
    writer.join().map_err(|_| anyhow::anyhow!("writer panicked"))??;
    ensure_same(&fs::read(&seen_at)?, &(0..total).map(byte).collect::<Vec<_>>(), "the grown file")
}

/// [S-striping] One stripe up to 64 MiB, four up to 1 GiB, then all; `setstripe` is inherited.
fn striping(b: &mut Bench) -> Result<()> {
    let dir = b.dir("striping")?;
    let path = dir.join("plain");
    let f = open_rw(&path)?;
    f.write_all_at(&[1; 200_000], 0)?;
    let shown = b.cluster.stria(&["getstripe", &path.display().to_string()])?;
    if shown.0 != 0 || !shown.1.contains("stripe_count") {
        bail!("getstripe: {}", shown.1);
    }
    let wide = dir.join("wide");
    fs::create_dir(&wide)?;
    set_stripe(b, &["-c", "4", "-S", "256K"], &wide)?;
    let ask = |args: &[&str], path: &Path| b.cluster.stria(&[args, &[&path.display().to_string()]].concat());
    // getstripe shows the setting before any file has objects: for the directory, and for a file created in it.
    let (code, shown) = ask(&["getstripe", "-d"], &wide)?;
    ensure!(
        code == 0 && shown.contains("-c 4 -S 256K") && shown.contains("stripe_count:  4"),
        "{code}: {shown}"
    );
    ensure_eq(ask(&["getstripe", "-d", "-c", "-S", "-i"], &wide)?.1.trim(), "4 262144 -1", "of a directory")?;
    let empty = dir.join("empty");
    let (code, said) = ask(&["setstripe", "-c", "900"], &empty)?;
    ensure!(
        code == 0 && said.contains("OSTs that there are"),
        "more stripes than OSTs in silence: {code}: {said}"
    );
    let (_, shown) = ask(&["getstripe"], &b.look(&empty))?;
    ensure!(
        shown.contains("inline") && shown.contains("-c 900"),
        "an empty file shows not what was set: {shown}"
    );
    let (code, said) = ask(&["setstripe", "-i", "900"], &wide)?;
    ensure!(code == 2 && said.contains("none of this index"), "an OST that is not there: {code}: {said}");
    let (code, said) = ask(&["setstripe", "-c", "-1"], &dir.join("all"))?;
    ensure!(code == 0 && said.is_empty(), "all OSTs: {code}: {said}");
    let sub = b.look(&wide).join("sub");
    fs::create_dir(&sub)?;
    let file = sub.join("f");
    let mut data = vec![0u8; 3_000_000];
    b.rng().fill(&mut data);
    fs::write(&file, &data)?;
    let file = b.look(&file);
    let count = b.cluster.stria(&["getstripe", "-c", &file.display().to_string()])?;
    ensure_eq(count.1.trim(), "4", "inherited stripe count")?;
    let size = b.cluster.stria(&["getstripe", "-S", &file.display().to_string()])?;
    ensure_eq(size.1.trim(), "262144", "inherited stripe size")?;
    ensure_same(&fs::read(&file)?, &data, "content over four stripes")?;
    let full = b.cluster.stria(&["setstripe", "-c", "1", &file.display().to_string()])?;
    if full.0 == 0 {
        bail!("setstripe on a file with content succeeded");
    }
    Ok(())
}

/// [S-names] Names are 1 to 255 bytes of anything but `/` and NUL.
fn names(b: &mut Bench) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let dir = b.dir("names")?;
    let longest = "n".repeat(255);
    File::create(dir.join(&longest))?;
    expect_errno(File::create(dir.join("n".repeat(256))), Errno::NAMETOOLONG, "256 bytes")?;
    let odd: Vec<u8> = (1..=254u8).filter(|c| *c != b'/').collect();
    File::create(dir.join(std::ffi::OsStr::from_bytes(&odd)))?;
    let mut seen: Vec<Vec<u8>> =
        fs::read_dir(b.look(&dir))?.map(|e| Ok(e?.file_name().as_bytes().to_vec())).collect::<Result<_>>()?;
    seen.sort();
    ensure_eq(seen, vec![odd, longest.into_bytes()], "names listed")?;
    let target = "t/".repeat(2047) + "x";
    symlink(&target, dir.join("link"))?;
    ensure_eq(fs::read_link(b.look(&dir.join("link")))?.as_os_str().len(), 4095, "symlink target")?;
    Ok(())
}

/// [S-rename] `rename` replaces in one step; loops and non-empty directories are refused.
fn rename(b: &mut Bench) -> Result<()> {
    let dir = b.dir("rename")?;
    fs::create_dir_all(dir.join("a/b/c"))?;
    let (acts, dir) = (dir.clone(), b.look(&dir));
    expect_errno(fs::rename(dir.join("a"), dir.join("a/b/c/d")), Errno::INVAL, "a directory below itself")?;
    fs::create_dir(dir.join("e"))?;
    expect_errno(fs::rename(dir.join("e"), dir.join("a")), Errno::NOTEMPTY, "over a non-empty directory")?;
    fs::write(dir.join("f"), "f")?;
    expect_errno(fs::rename(dir.join("f"), dir.join("e")), Errno::ISDIR, "a file over a directory")?;
    expect_errno(fs::rename(dir.join("e"), dir.join("f")), Errno::NOTDIR, "a directory over a file")?;
    fs::rename(dir.join("a"), dir.join("e"))?;
    ensure_eq(acts.join("e/b/c").is_dir(), true, "the directory by its new name")?;
    // Rename is atomic: an open of the name during repeated replacement finds a whole file.
    let (name, stop) = (dir.join("name"), dir.join("stop"));
    fs::write(&name, vec![b'0'; 1000])?;
    let writer = {
        let (dir, name, stop) = (acts.clone(), acts.join("name"), acts.join("stop"));
        thread::spawn(move || -> Result<()> {
            for n in 0..500u32 {
                let temp = dir.join("temp");
                fs::write(&temp, vec![b'0' + (n % 10) as u8; 1000])?;
                fs::rename(&temp, &name)?;
            }
            Ok(fs::write(stop, "")?)
        })
    };
    while !stop.exists() {
        let bytes = fs::read(&name).context("the name was missing")?;
        if bytes.len() != 1000 || bytes.iter().any(|x| *x != bytes[0]) {
            bail!("neither the old nor the new file: {} bytes", bytes.len());
        }
        if writer.is_finished() && !stop.exists() {
            break;
        }
    }
    writer.join().map_err(|_| anyhow::anyhow!("writer panicked"))?
}

/// [S-hard-links] Hard links share one inode; its content goes with the last name and descriptor.
fn hard_links(b: &mut Bench) -> Result<()> {
    let dir = b.dir("hard_links")?;
    let (one, two) = (dir.join("one"), dir.join("two"));
    fs::write(&one, "shared")?;
    let one_seen = b.look(&one);
    fs::hard_link(&one_seen, b.look(&two))?;
    let (m1, m2) = (fs::metadata(&one_seen)?, fs::metadata(&two)?);
    ensure_eq((m1.ino(), m1.nlink()), (m2.ino(), 2), "inode and links")?;
    OpenOptions::new().append(true).open(&two)?.write_all(b" bytes")?;
    ensure_eq(fs::read_to_string(&one_seen)?, "shared bytes".into(), "written through the other name")?;
    fs::remove_file(&one_seen)?;
    ensure_eq(fs::metadata(&two)?.nlink(), 1, "links left")?;
    ensure_eq(fs::read_to_string(&two)?, "shared bytes".into(), "after one name went")?;
    expect_errno(fs::hard_link(&dir, dir.join("d")), Errno::PERM, "link to a directory")
}

/// [S-unlinked-open] A file that is unlinked or replaced while open lives until it is closed.
fn unlinked_open(b: &mut Bench) -> Result<()> {
    let dir = b.dir("unlinked_open")?;
    for size in [100usize, 500_000] {
        let path = dir.join("f");
        let f = open_rw(&path)?;
        f.write_all_at(&vec![7; size], 0)?;
        fs::remove_file(b.look(&path))?;
        f.write_all_at(&vec![8; size], size as u64)?;
        let mut got = vec![0; 2 * size];
        f.read_exact_at(&mut got, 0)?;
        ensure_same(&got, &[vec![7; size], vec![8; size]].concat(), "unlinked while open")?;
        ensure_eq(f.metadata()?.nlink(), 0, "links")?;
        fs::write(&path, "old")?;
        let old = File::open(&path)?;
        let there = b.look(&dir);
        fs::write(there.join("new"), "new")?;
        fs::rename(there.join("new"), there.join("f"))?;
        let mut text = String::new();
        (&old).read_to_string(&mut text)?;
        ensure_eq(text, "old".into(), "replaced while open")?;
        ensure_eq(fs::read_to_string(&path)?, "new".into(), "the name")?;
        f.sync_all()?;
    }
    Ok(())
}

/// [S-big-directory] A directory of 100,000 entries lists each entry exactly once, also while it changes.
fn big_directory(b: &mut Bench) -> Result<()> {
    let dir = b.dir("big_directory")?;
    let count = b.scale.entries;
    for n in 0..count {
        File::create(dir.join(format!("stays.{n}")))?;
    }
    // Names come and go until the listing has ended; a few are always there, and none comes twice.
    const PRESENT: u64 = 20;
    let (listed, changed) = (AtomicBool::new(false), AtomicU64::new(0));
    let (changes, listing) = (
        || -> Result<()> {
            let name = |n: u64| dir.join(format!("comes.{n}"));
            for n in 0.. {
                File::create(name(n))?;
                if n >= PRESENT {
                    fs::remove_file(name(n - PRESENT))?;
                }
                changed.store(n, Ordering::Relaxed);
                if listed.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(())
        },
        || -> Result<(Vec<u8>, std::collections::HashMap<String, u64>)> {
            let (mut stay, mut come) = (vec![0u8; count], std::collections::HashMap::new());
            for entry in fs::read_dir(b.look(&dir))? {
                let name = entry?.file_name().into_string().unwrap_or_default();
                match name.strip_prefix("stays.") {
                    Some(n) => stay[n.parse::<usize>()?] += 1,
                    None => *come.entry(name).or_insert(0) += 1,
                }
            }
            Ok((stay, come))
        },
    );
    let (found, changes) = thread::scope(|scope| {
        let changer = scope.spawn(changes);
        while changed.load(Ordering::Relaxed) < PRESENT && !changer.is_finished() {
            thread::yield_now();
        }
        let before = changed.load(Ordering::Relaxed);
        let found = listing();
        let changes = changed.load(Ordering::Relaxed) - before;
        listed.store(true, Ordering::Relaxed);
        changer.join().map_err(|_| anyhow::anyhow!("changer panicked"))??;
        found.map(|found| (found, changes))
    })?;
    let (seen, come) = found;
    ensure_eq(changes > 0, true, "names came and went during the listing")?;
    if let Some((name, times)) = come.iter().find(|(_, times)| **times > 1) {
        bail!("{name}, which came meanwhile, was listed {times} times");
    }
    if let Some(n) = seen.iter().position(|c| *c != 1) {
        bail!("entry {n} was listed {} times", seen[n]);
    }
    Ok(fs::remove_dir_all(&dir)?)
}

/// [S-permissions] Permission bits, owner, group and supplementary groups decide; new files get `mode & ~umask`.
fn permissions(b: &mut Bench) -> Result<()> {
    let dir = b.dir("permissions")?;
    fs::set_permissions(&dir, Permissions::from_mode(0o777))?;
    let path = dir.join("f");
    fs::write(&path, "x")?;
    std::os::unix::fs::chown(&path, Some(1000), Some(2000))?;
    for (mode, uid, groups, script, want) in [
        (0o600, 1000, "", "cat f", 0),
        (0o600, 1001, "", "cat f", 1),
        (0o640, 1001, "", "cat f", 1),
        (0o640, 1001, "2000", "cat f", 0),
        (0o640, 1001, "2000", "echo y >> f", 2),
        (0o604, 1001, "", "cat f", 0),
        (0o604, 1001, "2000", "cat f", 1),
        (0o666, 1001, "", "chmod 777 f", 1),
        (0o666, 1001, "", "chown 1001 f", 1),
    ] {
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        let got = as_user(uid, groups, &b.look(&dir), &format!("{script} > /dev/null"))?;
        if (got == 0) != (want == 0) {
            bail!("mode {mode:o}, uid {uid}, groups [{groups}], {script}: exit {got}");
        }
    }
    ensure_eq(as_user(1000, "", &b.look(&dir), "umask 027; echo > g; mkdir d")?, 0, "create as a user")?;
    let (g, d) = (fs::metadata(dir.join("g"))?, fs::metadata(dir.join("d"))?);
    ensure_eq((g.mode() & 0o7777, g.uid(), g.gid()), (0o640, 1000, 1000), "file under umask 027")?;
    ensure_eq(d.mode() & 0o7777, 0o750, "directory under umask 027")?;
    let odd = OpenOptions::new().write(true).create_new(true).mode(0o000).open(dir.join("h"))?;
    (&odd).write_all(b"the creator may write whatever the mode")?;
    Ok(())
}

/// [S-sticky] In a sticky directory only the owner of the file or directory, or root, may unlink or rename.
fn sticky(b: &mut Bench) -> Result<()> {
    let dir = b.dir("sticky")?;
    fs::set_permissions(&dir, Permissions::from_mode(0o1777))?;
    ensure_eq(as_user(1000, "", &dir, "echo > mine")?, 0, "create")?;
    let there = b.look(&dir);
    if as_user(1001, "", &there, "rm -f mine")? == 0 || as_user(1001, "", &there, "mv mine yours")? == 0 {
        bail!("a stranger removed or renamed a file of a sticky directory");
    }
    ensure_eq(as_user(1000, "", &there, "mv mine other && rm other")?, 0, "the owner")
}

/// [S-setgid-directory] A new file in a setgid directory gets the directory's group.
fn setgid_directory(b: &mut Bench) -> Result<()> {
    let dir = b.dir("setgid_directory")?;
    std::os::unix::fs::chown(&dir, None, Some(2000))?;
    fs::set_permissions(&dir, Permissions::from_mode(0o2777))?;
    ensure_eq(as_user(1000, "", &b.look(&dir), "echo > f; mkdir d; ln -s x l")?, 0, "create")?;
    let (f, d) = (fs::metadata(dir.join("f"))?, fs::metadata(dir.join("d"))?);
    ensure_eq(
        (f.gid(), d.gid(), d.mode() & 0o2000),
        (2000, 2000, 0o2000),
        "group of file and directory, setgid of directory",
    )?;
    ensure_eq(fs::symlink_metadata(dir.join("l"))?.gid(), 2000, "group of a symlink")
}

/// [S-times] Times are kept to the nanosecond; changes change what POSIX says.
fn times(b: &mut Bench) -> Result<()> {
    let dir = b.dir("times")?;
    let path = dir.join("f");
    let (f, seen, seen_dir) = (open_rw(&path)?, b.look(&path), b.look(&dir));
    let stamps = Timestamps {
        last_access: Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 },
        last_modification: Timespec { tv_sec: -5, tv_nsec: 987_654_321 },
    };
    rustix::fs::futimens(&f, &stamps)?;
    let m = fs::metadata(&seen)?;
    ensure_eq(
        (m.atime(), m.atime_nsec(), m.mtime(), m.mtime_nsec()),
        (1_000_000_000, 123_456_789, -5, 987_654_321),
        "utimensat",
    )?;
    let (d0, before) = (fs::metadata(&seen_dir)?, m);
    f.write_all_at(b"x", 0)?;
    let after = fs::metadata(&seen)?;
    if after.mtime() < before.ctime() - 1
        || (after.ctime(), after.ctime_nsec()) < (before.ctime(), before.ctime_nsec())
    {
        bail!("a write left mtime {} and ctime {}", after.mtime(), after.ctime());
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let chmod = fs::metadata(&seen)?;
    if (chmod.ctime(), chmod.ctime_nsec()) <= (after.ctime(), after.ctime_nsec())
        || chmod.mtime_nsec() != after.mtime_nsec()
    {
        bail!("chmod must change ctime and leave mtime");
    }
    fs::write(dir.join("g"), "")?;
    let d1 = fs::metadata(&seen_dir)?;
    if (d1.mtime(), d1.mtime_nsec()) <= (d0.mtime(), d0.mtime_nsec())
        || (d1.ctime(), d1.ctime_nsec()) <= (d0.ctime(), d0.ctime_nsec())
    {
        bail!("a new name must change the directory's mtime and ctime");
    }
    Ok(())
}

/// [S-atime] Reading changes atime as by `relatime`. Opening a file for reading only counts as reading it. `O_NOATIME` is respected.
fn atime(b: &mut Bench) -> Result<()> {
    let dir = b.dir("atime")?;
    let (file, link, sub) = (dir.join("f"), dir.join("l"), dir.join("d"));
    fs::write(&file, "read me")?;
    symlink("f", &link)?;
    fs::create_dir(&sub)?;
    let all = [&file, &link, &sub];
    let read_all = || -> Result<()> {
        fs::read(&file)?;
        fs::read_link(&link)?;
        fs::read_dir(&sub)?.for_each(drop);
        Ok(())
    };
    let times = || all.map(|p| fs::symlink_metadata(b.look(p)).map(|m| (m.atime(), m.atime_nsec())));
    let set = |seconds: [i64; 2]| {
        let [last_access, last_modification] = seconds.map(|tv_sec| Timespec { tv_sec, tv_nsec: 5 });
        let times = Timestamps { last_access, last_modification };
        all.into_iter().try_for_each(|p| {
            rustix::fs::utimensat(rustix::fs::CWD, p, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        })
    };
    // Not read since the change of the times themselves (ctime): now it is.
    set([1_000_000, 1_000_000])?;
    let noatime =
        OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NOATIME.bits() as i32).open(&file)?;
    noatime.read_at(&mut [0; 4], 0)?;
    drop(noatime);
    ensure_eq(fs::metadata(&file)?.atime(), 1_000_000, "after a read with O_NOATIME")?;
    let noatime = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NOATIME;
    let listed = rustix::fs::open(&sub, noatime, rustix::fs::Mode::empty())?;
    ensure_eq(rustix::fs::Dir::new(listed)?.count(), 2, "entries of an empty directory")?;
    let sync = rustix::fs::AtFlags::STATX_FORCE_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, &sub, sync, rustix::fs::StatxFlags::ATIME)?;
    ensure_eq(stat.stx_atime.tv_sec, 1_000_000, "after a listing with O_NOATIME")?;
    read_all()?;
    wait_until("atime of what was read", || {
        Ok(times().into_iter().all(|t| t.is_ok_and(|t| t.0 > 1_000_000)))
    })?;
    let before = times().map(Result::ok);
    let ctimes = all.map(|p| fs::symlink_metadata(p).map(|m| (m.ctime(), m.ctime_nsec())).ok());
    read_all()?;
    // Told before this listing is answered, or never: read a moment ago, so not again.
    ensure_eq(times().map(Result::ok), before, "atime after a second read")?;
    ensure_eq(
        all.map(|p| fs::symlink_metadata(p).map(|m| (m.ctime(), m.ctime_nsec())).ok()),
        ctimes,
        "ctime",
    )?;
    // A change makes the next read count; a day does, too.
    fs::write(&file, "changed")?;
    let changed = fs::metadata(&file)?;
    fs::read(&file)?;
    wait_until("atime after a change", || {
        let now = fs::metadata(b.look(&file))?;
        Ok((now.atime(), now.atime_nsec()) > (changed.mtime(), changed.mtime_nsec()))
    })
}

/// [S-xattrs] `user.*` attributes are kept, listed and removed.
fn xattrs(b: &mut Bench) -> Result<()> {
    let dir = b.dir("xattrs")?;
    let path = dir.join("f");
    fs::write(&path, "")?;
    for p in [&path, &dir] {
        let seen = &b.look(p);
        set_xattr(p, "user.one", b"1", XattrFlags::empty())?;
        set_xattr(p, "user.big", &[5; 30_000], XattrFlags::CREATE)?;
        expect_errno(set_xattr(seen, "user.one", b"2", XattrFlags::CREATE), Errno::EXIST, "XATTR_CREATE")?;
        expect_errno(set_xattr(p, "user.two", b"2", XattrFlags::REPLACE), Errno::NODATA, "XATTR_REPLACE")?;
        ensure_eq(get_xattr(seen, "user.big")?, vec![5; 30_000], "value")?;
        let mut names = list_xattrs(seen)?;
        names.retain(|n| n.starts_with("user."));
        names.sort();
        ensure_eq(names, vec!["user.big".into(), "user.one".into()], "names")?;
        rustix::fs::removexattr(p.as_path(), "user.one")?;
        expect_errno(get_xattr(seen, "user.one"), Errno::NODATA, "removed")?;
        if set_xattr(p, "user.toobig", &[0; 65_000], XattrFlags::empty()).is_ok() {
            bail!("more than 64 KiB of attributes were accepted");
        }
    }
    Ok(())
}

/// [S-statfs] `statfs` gives the sum; `stria df` shows each target; removing a file gives its space back.
fn statfs(b: &mut Bench) -> Result<()> {
    let dir = b.dir("statfs")?;
    let seen = b.look(&b.cluster.mount);
    let before = rustix::fs::statvfs(&seen)?;
    let path = dir.join("f");
    let mut f = File::create(&path)?;
    for _ in 0..64 {
        f.write_all(&vec![3; 1 << 20])?;
    }
    f.sync_all()?;
    drop(f);
    wait_until("space of 64 MiB is taken", || {
        let now = rustix::fs::statvfs(&seen)?;
        Ok(before.f_bfree.saturating_sub(now.f_bfree) * now.f_frsize >= 60 << 20)
    })?;
    fs::remove_file(&path)?;
    wait_until("space is given back", || {
        let now = rustix::fs::statvfs(&seen)?;
        Ok(before.f_bfree.saturating_sub(now.f_bfree) * now.f_frsize < 8 << 20)
    })?;
    let (code, text) = b.cluster.stria(&["df", &b.cluster.mount.display().to_string()])?;
    let lines = ["MDT0000_UUID", "OST0003_UUID", "filesystem_summary"];
    if code != 0 || lines.iter().any(|l| !text.contains(l)) {
        bail!("stria df: {text}");
    }
    let kind = Command::new("df").args(["-T", &b.cluster.mount.display().to_string()]).output()?;
    if !String::from_utf8_lossy(&kind.stdout).contains("fuse.stria") {
        bail!("df -T: {}", String::from_utf8_lossy(&kind.stdout));
    }
    Ok(())
}

/// Polls for an effect of background work, with a deadline.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    // Another suite may run beside this one.
    let longest = std::time::Duration::from_secs(45);
    let until = std::time::Instant::now() + longest;
    while !done()? {
        if std::time::Instant::now() > until {
            bail!("not within {longest:?}: {what}");
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}
