//! How a file system is mounted: options that the kernel minds, plain users, memory that is short.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{Dev, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::sys::*;
use super::{Bench, Needs, Test};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("mounting::options", options)),
    (Needs::Only(Wiring::Local), ("mounting::plain_user", plain_user)),
    (Needs::Own, ("mounting::short_memory", short_memory)),
];

const NOBODY: u32 = 65_534;

/// A file system of its own that is mounted again and again; ended with the test, however that ends.
struct Own<'a> {
    b: &'a Bench,
    dir: PathBuf,
    mount: PathBuf,
}

impl Own<'_> {
    fn new(b: &Bench) -> Own<'_> {
        Own { b, dir: b.cluster.dir.join("own"), mount: b.cluster.dir.join("own-mnt") }
    }

    fn up(&self, options: &str) -> Result<()> {
        let (dir, mount) = (self.dir.display().to_string(), self.mount.display().to_string());
        let mut args = vec!["up", "--dir", &dir, "--mount", &mount, "-o", options];
        if !self.dir.exists() {
            args.extend(["--ost-size", "1G", "--mdt-size", "1G"]);
        }
        let (code, out) = self.b.cluster.stria(&args)?;
        ensure_eq(code, 0, &out)
    }

    fn down(&self) -> Result<()> {
        let (code, out) = self.b.cluster.stria(&["down", "--dir", &self.dir.display().to_string()])?;
        ensure_eq(code, 0, &out)
    }

    /// The words of the mount table.
    fn words(&self) -> Result<Vec<String>> {
        let table = fs::read_to_string("/proc/self/mounts")?;
        let point = self.mount.display().to_string();
        let line =
            table.lines().rfind(|l| l.split(' ').nth(1) == Some(&*point)).context("it is not mounted")?;
        Ok(line.split(' ').nth(3).unwrap_or_default().split(',').map(str::to_owned).collect())
    }
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        if is_mounted(&self.mount) {
            self.b.cluster.stria(&["down", "--force", "--dir", &self.dir.display().to_string()]).ok();
        }
    }
}

/// [S-mount-options] `ro`: `EROFS` for every change. `nosuid`, `nodev`, `noexec`: such bits, device nodes and programs have no effect.
fn options(b: &mut Bench) -> Result<()> {
    let own = Own::new(b);
    own.up("rw")?;
    let file = |name: &str| own.mount.join(name);
    fs::write(file("f"), "kept")?;
    fs::copy("/usr/bin/id", file("id"))?;
    chown(file("id"), Some(NOBODY), None)?;
    fs::set_permissions(file("id"), Permissions::from_mode(0o4755))?;
    let zero: Dev = makedev(1, 5);
    mknodat(rustix::fs::CWD, file("zero"), FileType::CharacterDevice, Mode::RUSR, zero)?;
    let effective = || run(&file("id").display().to_string(), &["-u"], Path::new("/"));
    ensure_eq(effective()?.trim(), "65534", "a set-user-id program")?;
    File::open(file("zero")).context("a device node")?;
    own.down()?;

    own.up("ro")?;
    ensure_eq(fs::read_to_string(file("f"))?, "kept".into(), "read of a read-only mount")?;
    expect_errno(File::create(file("new")).map(drop), Errno::ROFS, "create")?;
    expect_errno(OpenOptions::new().write(true).open(file("f")).map(drop), Errno::ROFS, "open for writing")?;
    expect_errno(fs::remove_file(file("f")), Errno::ROFS, "unlink")?;
    expect_errno(fs::create_dir(file("d")), Errno::ROFS, "mkdir")?;
    expect_errno(fs::rename(file("f"), file("g")), Errno::ROFS, "rename")?;
    expect_errno(fs::set_permissions(file("f"), Permissions::from_mode(0o600)), Errno::ROFS, "chmod")?;
    let set = set_xattr(&file("f"), "user.a", b"1", rustix::fs::XattrFlags::empty());
    expect_errno(set, Errno::ROFS, "setxattr")?;
    own.down()?;

    own.up("nosuid,nodev")?;
    ensure_eq(effective()?.trim(), "0", "a set-user-id program under nosuid")?;
    expect_errno(File::open(file("zero")).map(drop), Errno::ACCESS, "a device node under nodev")?;
    own.down()?;

    own.up("noexec,noatime,sync,dirsync")?;
    let program = Command::new(file("id")).output().map(drop);
    expect_errno(program, Errno::ACCESS, "a program under noexec")?;
    fs::write(file("synced"), "at once")?;
    fs::rename(file("synced"), file("synced too"))?;
    // [S-atime] `noatime` is respected.
    ensure_eq(run("cat", &["f"], &own.mount)?, "kept".into(), "content")?;
    let read = fs::metadata(file("f"))?;
    if read.atime() > read.mtime() {
        bail!("a read changed atime under noatime");
    }
    let words = own.words()?;
    for word in ["noexec", "noatime", "sync", "dirsync"] {
        if !words.iter().any(|w| w == word) {
            bail!("{word} is not in the mount table: {words:?}");
        }
    }
    own.down()?;

    let (code, out) = b.cluster.stria(&["up", "--dir", &own.dir.display().to_string(), "-o", "cheese"])?;
    if code != 2 || !out.contains("cheese") {
        bail!("an option that nobody knows: exit {code}: {out}");
    }
    Ok(())
}

/// [S-plain-user] A plain user makes, mounts and uses a file system of their own; others cannot see into it.
fn plain_user(b: &mut Bench) -> Result<()> {
    let helper = run("fusermount3", &["-V"], Path::new("/"));
    let device = fs::metadata("/dev/fuse").map(|m| m.permissions().mode() & 0o006).unwrap_or(0);
    if helper.is_err() || device != 0o006 {
        println!("       skipped: a plain user needs fusermount3 and a /dev/fuse that all may open");
        return Ok(());
    }
    // Not below the cluster's directory, into which only root may look.
    let home = std::env::temp_dir().join(format!("stria-plain-user.{}", std::process::id()));
    let result = plain_user_in(b, &home);
    fs::remove_dir_all(&home).ok();
    result
}

fn plain_user_in(b: &Bench, home: &Path) -> Result<()> {
    fs::create_dir(home)?;
    fs::copy(b.cluster.bin(), home.join("stria"))?;
    chown(home, Some(NOBODY), Some(NOBODY))?;
    fs::set_permissions(home, Permissions::from_mode(0o755))?;
    let script = |script: &str| as_user(NOBODY, "", home, &format!("export HOME=$PWD; {script}"));
    let up = "./stria up --dir d --mount m --ost-size 1G --mdt-size 1G";
    ensure_eq(script(&format!("{up} >up.log 2>&1"))?, 0, &read_log(home))?;
    let used = script("echo mine >m/f && grep -q mine m/f && test \"$(stat -c %u m/f)\" = 65534")?;
    let (seen, busy) = (
        fs::read_dir(home.join("m")).map(drop),
        script("cd m && ! ../stria down --dir ../d >../busy.log 2>&1")?,
    );
    let down = script("./stria down --dir d >down.log 2>&1")?;
    ensure_eq(used, 0, "use of one's own mount")?;
    expect_errno(seen, Errno::ACCESS, "root's look into it, without allow_other")?;
    ensure_eq(busy, 0, "down of a mount in use is refused")?;
    let said = fs::read_to_string(home.join("busy.log"))?;
    if !said.contains("in use") {
        bail!("it does not say that it is in use: {said}");
    }
    ensure_eq(down, 0, "down")?;
    if is_mounted(&home.join("m")) {
        bail!("still mounted after down");
    }
    Ok(())
}

/// A group of processes that may use so much memory together, page cache among it.
struct Group(PathBuf);

impl Group {
    /// `None`, with a word why, where such groups cannot be made.
    fn new(name: &str, limit_bytes: u64) -> Option<Group> {
        let hierarchies =
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        let made = hierarchies.iter().find_map(|(root, limit)| {
            let group = Group(Path::new(root).join(format!("stria-suite.{}.{name}", std::process::id())));
            fs::create_dir(&group.0).ok()?;
            // In a hierarchy without the memory controller there is no such file; `fs::write` would try to make one.
            let mut file = OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            file.write_all(limit_bytes.to_string().as_bytes()).ok()?;
            Some(group)
        });
        if made.is_none() {
            println!("       skipped: no memory cgroup can be made here");
        }
        made
    }

    fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever is still in it goes back to the root of the hierarchy; an empty one can be removed.
        let root = self.0.parent().map(|p| p.join("cgroup.procs")).unwrap_or_default();
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            fs::write(&root, pid).ok();
        }
        fs::remove_dir(&self.0).ok();
    }
}

const MIB: u64 = 1 << 20;
/// A program alone, with its share of the page cache.
const PROGRAM_BYTES: u64 = 32 * MIB;
/// Program and mount together: what a client keeps for a replay is in it.
const TOGETHER_BYTES: u64 = 512 * MIB;
/// The slowest machine needs seconds; a deadlock for ever.
const STUCK: Duration = Duration::from_secs(300);

/// [S-short-memory] A program that writes much more than the memory it may use, by write(2) or through a mapping, ends.
fn short_memory(b: &mut Bench) -> Result<()> {
    let dir = b.dir("short")?;
    let Some(alone) = Group::new("alone", PROGRAM_BYTES) else { return Ok(()) };
    write_in(&alone, &dir.join("alone"), 4 * PROGRAM_BYTES)?;
    map_in(&alone, &dir.join("mapped"), 4 * PROGRAM_BYTES)?;
    drop(alone);
    let role = if b.cluster.wiring() == Wiring::Local { Role::All } else { Role::Mount };
    let mount = b.cluster.pid(role).context("the mount's process")?;
    let Some(together) = Group::new("together", TOGETHER_BYTES) else { return Ok(()) };
    together.add(mount)?;
    map_in(&together, &dir.join("mapped together"), 3 * TOGETHER_BYTES / 2)?;
    every_thread_is_io_flusher(mount)
}

/// `PF_MEMALLOC_NOIO` in a thread's flags: what PR_SET_IO_FLUSHER sets.
const NO_IO_FOR_MEMORY: u64 = 0x0008_0000;

/// What keeps the mount from waiting for itself when it needs memory. (Without it a deadlock is rare, and no test finds it surely.)
fn every_thread_is_io_flusher(pid: u32) -> Result<()> {
    if let Err(e) = rustix::process::is_io_flusher() {
        println!("       skipped: the state IO_FLUSHER needs CAP_SYS_RESOURCE ({e})");
        return Ok(());
    }
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(task?.path().join("stat")) else { continue };
        let (_, after_name) = stat.rsplit_once(')').context("stat has no name")?;
        let flags: u64 = after_name.split_whitespace().nth(6).context("stat has no flags")?.parse()?;
        if flags & NO_IO_FOR_MEMORY == 0 {
            bail!("a thread of the mount may wait for its own mount when it needs memory: {stat}");
        }
    }
    Ok(())
}

/// Lines of text by write(2), and a look at them.
fn write_in(group: &Group, path: &Path, bytes: u64) -> Result<()> {
    let script = format!("yes stria | head -c {bytes} >\"$1\" && yes stria | head -c {bytes} | cmp - \"$1\"");
    finish(group, Command::new("sh").args(["-c", &script, "sh"]).arg(path), "a program that writes")
}

/// The same through a shared mapping, whose dirty pages only the kernel's reclaim and the end of the program write.
fn map_in(group: &Group, path: &Path, bytes: u64) -> Result<()> {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=map",
        "--ioengine=mmap",
        "--rw=write",
        "--bs=64k",
        "--verify=crc32c",
        "--fallocate=none",
    ]);
    fio.arg(format!("--size={bytes}")).arg(format!("--filename={}", path.display()));
    match Command::new("fio").arg("--version").output() {
        Ok(_) => finish(group, &mut fio, "a program that maps"),
        Err(_) => {
            println!("       skipped: dirty mappings need fio");
            Ok(())
        }
    }
}

fn finish(group: &Group, command: &mut Command, what: &str) -> Result<()> {
    // It starts outside, so that it can be put in; until then it waits for a byte.
    let program = command.get_program().to_owned();
    let args: Vec<_> = command.get_args().map(|a| a.to_owned()).collect();
    let mut child = Command::new("sh")
        .args(["-c", "read go; exec \"$@\"", "sh"])
        .arg(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    group.add(child.id())?;
    child.stdin.take().context("stdin")?.write_all(b"go\n")?;
    let until = Instant::now() + STUCK;
    loop {
        if let Some(status) = child.try_wait()? {
            return ensure_eq(status.success(), true, what);
        }
        if Instant::now() > until {
            child.kill().ok();
            bail!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read_log(home: &Path) -> String {
    fs::read_to_string(home.join("up.log")).unwrap_or_default()
}
