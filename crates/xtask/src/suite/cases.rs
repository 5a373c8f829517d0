//! Races that programs written against other file systems have found. Each runs on the wiring where it can fail most.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::io::Errno;
use testkit::Wiring;

use super::programs::{judge, script};
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (
        Needs::Only(Wiring::Local),
        ("cases::no_call_by_path_is_stale_while_its_name_is_removed_and_made", no_call_is_stale),
    ),
    (
        Needs::Only(Wiring::Local),
        ("cases::sizes_and_times_are_those_of_the_pages", |b| coherent(b, &["growing_size", "mapped_times"])),
    ),
    (
        Needs::Only(Wiring::Tcp),
        ("cases::pages_give_what_direct_and_first_writes_left", |b| {
            coherent(b, &["async_direct", "first_write"])
        }),
    ),
    (
        Needs::Only(Wiring::Two),
        ("cases::a_write_beside_a_mapped_store_is_not_lost", |b| coherent(b, &["mapped_beside_pwrite"])),
    ),
];

/// [S-direct], [S-mmap], [S-size-told], [S-times] Cases of `tests/programs/coherence.py`.
fn coherent(b: &mut Bench, cases: &[&str]) -> Result<()> {
    let dir = b.dir("coherent")?;
    judge(Command::new("python3").arg(script("coherence.py")?).arg(dir).args(cases), cases.len())
}

/// Calls of each kind; some hundred of them meet a removal.
const CALLS: usize = 1500;
/// So many of them must find their name, within this time.
const FOUND_MIN: usize = 20;
const FINDS_WITHIN: Duration = Duration::from_secs(10);

type Call = (&'static str, fn(&Path) -> io::Result<()>);

const ON_FILE: &[Call] = &[
    ("truncate", |p| OpenOptions::new().write(true).open(p).and_then(|f| f.set_len(0))),
    ("chmod", |p| fs::set_permissions(p, Permissions::from_mode(0o644))),
    ("setxattr", |p| Ok(rustix::fs::setxattr(p, "user.a", b"1", rustix::fs::XattrFlags::empty())?)),
    ("listxattr", |p| Ok(rustix::fs::listxattr(p, &mut [0u8; 256]).map(drop)?)),
    ("open", |p| File::open(p).map(drop)),
    ("open O_CREAT", |p| OpenOptions::new().create(true).truncate(false).write(true).open(p).map(drop)),
    ("open O_CREAT|O_TRUNC", |p| File::create(p).map(drop)),
    ("stat", |p| fs::metadata(p).map(drop)),
];
const ON_LINK: &[Call] = &[("readlink", |p| fs::read_link(p).map(drop))];
const ON_DIR: &[Call] = &[
    ("chmod of a directory", |p| fs::set_permissions(p, Permissions::from_mode(0o755))),
    ("listing", |p| fs::read_dir(p)?.try_for_each(|e| e.map(drop))),
    ("mkdir below", |p| fs::create_dir(p.join("x")).and_then(|()| fs::remove_dir(p.join("x")))),
    ("stat of a directory", |p| fs::metadata(p).map(drop)),
];

/// [S-no-estale] While others remove a name and make it again, a call by its path succeeds or finds none.
fn no_call_is_stale(b: &mut Bench) -> Result<()> {
    let dir = b.dir("stale")?;
    let (file, link, sub) = (dir.join("file"), dir.join("link"), dir.join("dir"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Two removers, so that a name goes between any two steps. Either may find a name already removed.
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = File::create(&file).and_then(|_| fs::remove_file(&file));
                    let _ = symlink("target", &link).and_then(|()| fs::remove_file(&link));
                    let _ = fs::create_dir(&sub).and_then(|()| fs::remove_dir(&sub));
                }
            });
        }
        let checked = [(ON_FILE, &file), (ON_LINK, &link), (ON_DIR, &sub)]
            .into_iter()
            .try_for_each(|(calls, path)| calls.iter().try_for_each(|(name, call)| check(name, *call, path)));
        is_over.store(true, Ordering::Relaxed);
        checked
    })
}

fn check(name: &str, call: fn(&Path) -> io::Result<()>, path: &Path) -> Result<()> {
    let allowed = [Errno::NOENT, Errno::EXIST, Errno::NOTEMPTY].map(|e| Some(e.raw_os_error()));
    let (mut done, mut absent, until) = (0, 0, Instant::now() + FINDS_WITHIN);
    // An absent name costs no request, so many calls may come before the next one is made.
    while done + absent < CALLS || done < FOUND_MIN && Instant::now() < until {
        match call(path) {
            Ok(()) => done += 1,
            Err(e) if allowed.contains(&e.raw_os_error()) => absent += 1,
            Err(e) => bail!("{name}, call {}: {e}", done + absent),
        }
    }
    // A creating open finds its name or makes it.
    let may_be_absent = !name.starts_with("open O_CREAT");
    if done < FOUND_MIN || (absent > 0) && !may_be_absent {
        bail!("{name}: {done} calls succeeded, {absent} found no name");
    }
    Ok(())
}
