//! How a file system is mounted: options that the kernel minds, plain users, memory that is short.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, Dev, FileType, Mode, Timespec, Timestamps, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use testkit::cluster::is_mounted;
use testkit::{Role, Wiring};

use super::semantics::wait_until;
use super::sys::*;
use super::{Bench, Needs, Test, skip};

pub const TESTS: &[(Needs, Test)] = &[
    (Needs::Only(Wiring::Local), ("mounting::options", options)),
    (Needs::Only(Wiring::Local), ("mounting::remount", remount)),
    (Needs::Only(Wiring::Local), ("mounting::who_may_look", who_may_look)),
    (Needs::Only(Wiring::Local), ("mounting::plain_user", plain_user)),
    (Needs::Only(Wiring::Tcp), ("mounting::second_mount_with_options", second_mount)),
    (Needs::Own, ("mounting::short_memory", short_memory)),
];

const NOBODY: u32 = 65_534;

/// A file system of its own that is mounted again and again; ended with the test, however that ends.
pub struct Own<'a> {
    b: &'a Bench,
    dir: PathBuf,
    pub mount: PathBuf,
}

impl Own<'_> {
    pub fn new(b: &Bench) -> Own<'_> {
        Own { b, dir: b.cluster.dir.join("own"), mount: b.cluster.dir.join("own-mnt") }
    }

    pub fn up(&self, options: &str) -> Result<()> {
        let (dir, mount) = (self.dir.display().to_string(), self.mount.display().to_string());
        let mut args = vec!["up", "--dir", &dir, "--mount", &mount, "-o", options];
        if !self.dir.exists() {
            args.extend(["--ost-size", "1G", "--mdt-size", "1G"]);
        }
        let (code, out) = self.b.cluster.stria(&args)?;
        ensure_eq(code, 0, &out)
    }

    pub fn down(&self) -> Result<()> {
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

    // [S-atime] `noatime` and `nodiratime` are respected. A mount that ends has told what was read.
    own.up("rw")?;
    fs::create_dir(file("d"))?;
    own.down()?;
    for (option, file_counts, dir_counts) in
        [("noatime", false, false), ("nodiratime", true, false), ("rw", true, true)]
    {
        own.up("rw")?;
        for path in [file("f"), file("d")] {
            set_old_times(&path)?;
        }
        own.down()?;
        own.up(option)?;
        ensure_eq(fs::read_to_string(file("f"))?, "kept".into(), "content")?;
        fs::read_dir(file("d"))?.for_each(drop);
        own.down()?;
        own.up("rw")?;
        let is_new = |name: &str| fs::metadata(file(name)).map(|m| m.atime() > OLD);
        ensure_eq(
            (is_new("f")?, is_new("d")?),
            (file_counts, dir_counts),
            &format!("atime of file and directory under {option}"),
        )?;
        own.down()?;
    }

    own.up("noexec,noatime,sync,dirsync")?;
    let program = Command::new(file("id")).output().map(drop);
    expect_errno(program, Errno::ACCESS, "a program under noexec")?;
    fs::write(file("synced"), "at once")?;
    fs::rename(file("synced"), file("synced too"))?;
    let words = own.words()?;
    for word in ["noexec", "noatime", "sync", "dirsync"] {
        if !words.iter().any(|w| w == word) {
            bail!("{word} is not in the mount table: {words:?}");
        }
    }
    own.down()?;

    let (code, out) = b.cluster.stria(&["up", "--dir", &own.dir.display().to_string(), "-o", "cheese"])?;
    if code != 2 || !out.contains("cheese") {
        bail!("an unknown option: exit {code}: {out}");
    }
    Ok(())
}

/// [S-mount-options] A mount gets other flags by mount(2), and keeps to them: those of the kernel at once, those of the door when it
/// has looked.
fn remount(b: &mut Bench) -> Result<()> {
    let own = Own::new(b);
    own.up("rw")?;
    let file = own.mount.join("f");
    fs::write(&file, "kept")?;
    let set = |flags| mount_remount(&own.mount, flags, c"").context("mount(2)");
    let held = File::open(&file)?;
    set(MountFlags::RDONLY)?;
    expect_errno(OpenOptions::new().write(true).open(&file).map(drop), Errno::ROFS, "open for writing")?;
    expect_errno(fs::remove_file(&file), Errno::ROFS, "unlink")?;
    ensure_eq(fs::read_to_string(&file)?, "kept".into(), "a read")?;
    set(MountFlags::RELATIME)?;
    fs::write(&file, "written")?;
    ensure_eq(std::io::read_to_string(held)?, "written".into(), "a descriptor from before")?;
    // [S-atime] What is read counts again as soon as the door has seen the flag go.
    for (flags, counts) in [(MountFlags::NOATIME, false), (MountFlags::RELATIME, true)] {
        set(flags)?;
        follows(&own.mount, counts)?;
    }
    let writer = File::create(&file)?;
    let busy = set(MountFlags::RDONLY);
    ensure_eq(busy.is_err(), true, "read-only while a file is open for writing")?;
    drop(writer);
    own.down()
}

/// Waits until a file that is read gets a new atime, or gets none any more.
fn follows(mount: &Path, counts: bool) -> Result<()> {
    let mut round = 0;
    wait_until("the door follows the mount table", || {
        round += 1;
        let path = mount.join(format!("read{counts}{round}"));
        fs::write(&path, "x")?;
        set_old_times(&path)?;
        fs::read(&path)?;
        Ok((fs::metadata(&path)?.atime() > OLD) == counts)
    })
}

/// Long ago: whatever is read now is read after it.
const OLD: i64 = 1_000_000;

fn set_old_times(path: &Path) -> Result<()> {
    let old = Timespec { tv_sec: OLD, tv_nsec: 0 };
    let times = Timestamps { last_access: old, last_modification: old };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())?)
}

/// [S-mount-options] A mount by root is open to all users, and with `no_allow_other` to root only.
fn who_may_look(b: &mut Bench) -> Result<()> {
    // Below a directory that all may search.
    let own = Own { b, dir: b.cluster.dir.join("own"), mount: public_dir("own")? };
    let others = || as_user(NOBODY, "", Path::new("/"), &format!("cat {}/f >/dev/null", own.mount.display()));
    for (option, may) in [("rw", true), ("no_allow_other", false), ("allow_other", true)] {
        own.up(option)?;
        fs::write(own.mount.join("f"), "x")?;
        let got = others()?;
        own.down()?;
        ensure_eq(got == 0, may, &format!("another user reads under {option}"))?;
    }
    Ok(fs::remove_dir(&own.mount)?)
}

/// A new directory that is not below the cluster's, into which only root may look.
pub fn public_dir(name: &str) -> Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("stria-{name}.{}", std::process::id()));
    fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
    Ok(dir)
}

/// [S-several-mounts] [S-mount-options] A second mount has options of its own, while the first writes.
fn second_mount(b: &mut Bench) -> Result<()> {
    let second = b.cluster.dir.join("second");
    fs::create_dir(&second)?;
    fs::write(b.cluster.mount.join("old"), "x")?;
    fs::create_dir(b.cluster.mount.join("d"))?;
    let source = format!("{}:/stria", b.cluster.mgs());
    for (options, counts) in [("ro,noatime", false), ("rw", true)] {
        for name in ["old", "d"] {
            set_old_times(&b.cluster.mount.join(name))?;
        }
        let args = ["mount", &source, &second.display().to_string(), "-o", options];
        let (code, out) = b.cluster.stria(&args)?;
        ensure_eq(code, 0, &out)?;
        let looked = look_while_written(&b.cluster.mount, &second, !counts).and_then(|()| {
            ensure_eq(fs::read_to_string(second.join("old"))?, "x".into(), "content")?;
            fs::read_dir(second.join("d"))?.for_each(drop);
            Ok(())
        });
        let ended = run("umount", &[&second.display().to_string()], Path::new("/"));
        if ended.is_err() {
            rustix::mount::unmount(&second, rustix::mount::UnmountFlags::DETACH).unwrap_or_default();
        }
        looked.and(ended)?;
        // The mount has reported its access times, or its process does so now.
        let atimes = || {
            ["old", "d"].map(|name| fs::metadata(b.cluster.mount.join(name)).map(|m| m.atime() > OLD).ok())
        };
        if counts {
            wait_until("atime of what the second mount has read", || Ok(atimes() == [Some(true); 2]))?;
        } else {
            ensure_eq(atimes(), [Some(false); 2], "atime of what was read under noatime")?;
        }
    }
    Ok(())
}

/// The second mount reads all that the first appends, and changes nothing.
fn look_while_written(first: &Path, second: &Path, is_read_only: bool) -> Result<()> {
    const RECORDS: usize = 300;
    let (path, seen) = (first.join("grows"), second.join("grows"));
    fs::write(&path, "")?;
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(path)?;
        (0..RECORDS).try_for_each(|n| file.write_all(&[n as u8; 100]))
    });
    let mut size = 0;
    while size < RECORDS * 100 {
        let is_last = writer.is_finished();
        let bytes = fs::read(&seen)?;
        if bytes.len() < size || !bytes.iter().enumerate().all(|(at, byte)| *byte == (at / 100) as u8) {
            bail!("{} bytes that the first has not written so, after {size}", bytes.len());
        }
        size = bytes.len();
        if is_read_only {
            expect_errno(OpenOptions::new().append(true).open(&seen), Errno::ROFS, "open for writing")?;
            expect_errno(File::create(second.join("new")), Errno::ROFS, "create")?;
            expect_errno(fs::remove_file(&seen), Errno::ROFS, "unlink")?;
        }
        if is_last {
            break;
        }
    }
    writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
    ensure_eq(size, RECORDS * 100, "what the second saw in the end")
}

/// Why a plain user cannot mount here, if so.
pub fn plain_users_lack() -> Option<&'static str> {
    let helper = run("fusermount3", &["-V"], Path::new("/"));
    let device = fs::metadata("/dev/fuse").map(|m| m.permissions().mode() & 0o006).unwrap_or(0);
    (helper.is_err() || device != 0o006)
        .then_some("a plain user needs fusermount3 and a /dev/fuse that all may open")
}

/// [S-plain-user] A plain user makes, mounts and uses a file system of their own; others cannot see into it.
fn plain_user(b: &mut Bench) -> Result<()> {
    if let Some(lack) = plain_users_lack() {
        return skip(lack);
    }
    let home = public_dir("plain-user")?;
    let result = plain_user_in(b, &home);
    fs::remove_dir_all(&home).ok();
    result
}

fn plain_user_in(b: &Bench, home: &Path) -> Result<()> {
    fs::copy(b.cluster.bin(), home.join("stria"))?;
    chown(home, Some(NOBODY), Some(NOBODY))?;
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
    allow_other(home)
}

/// `allow_other` of a plain user is for /etc/fuse.conf to permit. Each in a mount name space of its own with such a file.
fn allow_other(home: &Path) -> Result<()> {
    // 1. Where it says nothing.  2. Where it permits: root and others look into it.  3. And without the option they may not.
    let script = "set -e
        as() { id=$1; shift; setpriv --reuid=$id --regid=$id --clear-groups env HOME=$PWD \"$@\"; }
        no() { if \"$@\"; then echo \"it may: $*\"; exit 1; fi; }
        mount --bind none.conf /etc/fuse.conf
        no as 65534 ./stria up --dir d --mount m -o allow_other 2>no.log
        grep -q user_allow_other no.log
        mount --bind all.conf /etc/fuse.conf
        as 65534 ./stria up --dir d --mount m -o allow_other
        as 65534 sh -c 'echo seen >m/f; chmod 644 m/f; chmod 755 m'
        grep -q seen m/f
        as 1 grep -q seen m/f
        no as 1 touch m/new
        as 65534 ./stria down --dir d
        as 65534 ./stria up --dir d --mount m
        no as 1 cat m/f
        no cat m/f
        as 65534 ./stria down --dir d";
    fs::write(home.join("none.conf"), "")?;
    fs::write(home.join("all.conf"), "user_allow_other\n")?;
    run("unshare", &["-m", "sh", "-xc", script], home).map(drop)
}

/// A group of processes that may use so much memory together, page cache among it.
struct Group(PathBuf);

impl Group {
    /// The test is skipped where such groups cannot be made.
    fn new(name: &str, limit_bytes: u64) -> Result<Group> {
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
        made.map_or_else(|| skip("no memory cgroup can be made here"), Ok)
    }

    fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Remaining processes move to the root of the hierarchy, since only an empty cgroup can be removed.
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
    let alone = Group::new("alone", PROGRAM_BYTES)?;
    write_in(&alone, &dir.join("alone"), 4 * PROGRAM_BYTES)?;
    map_in(&alone, &dir.join("mapped"), 4 * PROGRAM_BYTES)?;
    drop(alone);
    let role = if b.cluster.wiring() == Wiring::Local { Role::All } else { Role::Mount };
    let mount = b.cluster.pid(role).context("the mount's process")?;
    let together = Group::new("together", TOGETHER_BYTES)?;
    together.add(mount)?;
    map_in(&together, &dir.join("mapped together"), 3 * TOGETHER_BYTES / 2)?;
    every_thread_is_io_flusher(mount)
}

/// `PF_MEMALLOC_NOIO` in a thread's flags: what PR_SET_IO_FLUSHER sets.
const NO_IO_FOR_MEMORY: u64 = 0x0008_0000;

/// The flag that keeps the mount from waiting for itself in memory reclaim. (Without it a deadlock is rare, and no test is sure to
/// find it.)
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
        "--verify_state_save=0",
    ]);
    fio.arg(format!("--size={bytes}")).arg(format!("--filename={}", path.display()));
    match Command::new("fio").arg("--version").output() {
        Ok(_) => finish(group, &mut fio, "a program that maps"),
        Err(_) => skip("dirty mappings need fio"),
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
