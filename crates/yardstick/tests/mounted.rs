//! The yardsticks and the mounting itself, on real mounts. They need root and /dev/fuse; elsewhere they say so and pass.

#![allow(clippy::unwrap_used, reason = "a test: a failure of its own preparation is a failure of the test")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use fuse::{MountError, MountOptions, Mounted, Unmount};
use yardstick::null::Null;
use yardstick::pass::Pass;

/// A directory that goes when the test ends, after whatever is still mounted in it.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("stria-yardstick-test.{}.{name}", std::process::id()));
        fs::create_dir_all(path.join("mnt")).unwrap();
        fs::create_dir_all(path.join("src")).unwrap();
        TempDir(path)
    }
    fn mnt(&self) -> PathBuf {
        self.0.join("mnt")
    }
    fn src(&self) -> PathBuf {
        self.0.join("src")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        rustix::mount::unmount(self.mnt(), rustix::mount::UnmountFlags::DETACH).ok();
        fs::remove_dir(self.mnt()).ok();
        fs::remove_dir_all(&self.0).ok();
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

fn options(subtype: &str) -> MountOptions {
    let mut options = MountOptions::new("a source, with a comma");
    options.subtype = subtype.into();
    options.threads = 4;
    options
}

fn mount_null(dir: &TempDir) -> Mounted {
    yardstick::attach(Null::new(options("nulltest")), &dir.mnt(), &options("nulltest")).unwrap()
}

fn mount_pass(dir: &TempDir) -> Mounted {
    let pass = Pass::new(&dir.src(), options("passtest"), true).unwrap();
    yardstick::attach(pass, &dir.mnt(), &options("passtest")).unwrap()
}

/// Name operations that any file system must support.
fn check_names(root: &Path) {
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    for i in 0..500 {
        File::create_new(dir.join(format!("file.{i}"))).unwrap();
    }
    assert!(File::create_new(dir.join("file.7")).is_err());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 500);
    fs::rename(dir.join("file.7"), dir.join("file.8")).unwrap();
    assert!(!dir.join("file.7").exists());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 499);
    fs::hard_link(dir.join("file.8"), root.join("link")).unwrap();
    assert_eq!(fs::metadata(root.join("link")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(root.join("link")).unwrap().ino(),
        fs::metadata(dir.join("file.8")).unwrap().ino()
    );
    std::os::unix::fs::symlink("dir/file.8", root.join("soft")).unwrap();
    assert_eq!(fs::read_link(root.join("soft")).unwrap(), Path::new("dir/file.8"));
    assert!(fs::remove_dir(&dir).is_err());
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(fs::metadata(root.join("link")).unwrap().nlink(), 1);
    fs::set_permissions(root.join("link"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(root.join("link")).unwrap().mode() & 0o7777, 0o640);
    let file = OpenOptions::new().write(true).open(root.join("link")).unwrap();
    file.set_len(12_345).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12_345);
    fs::remove_file(root.join("link")).unwrap();
    fs::remove_file(root.join("soft")).unwrap();
    // Unlinked but open.
    assert_eq!(file.metadata().unwrap().len(), 12_345);
    drop(file);
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}

#[test]
fn the_null_file_system_keeps_names_and_sizes() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("null");
    let mounted = mount_null(&dir);
    check_names(&dir.mnt());
    fs::write(dir.mnt().join("big"), vec![1; 3 << 20]).unwrap();
    assert_eq!(fs::metadata(dir.mnt().join("big")).unwrap().len(), 3 << 20);
    mounted.unmount(Unmount::Clean).unwrap();
    mounted.join().unwrap();
    assert!(mounted.has_ended());
    assert_eq!(fs::read_dir(dir.mnt()).unwrap().count(), 0);
}

#[test]
fn the_pass_through_shows_what_lies_below() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("pass");
    let mounted = mount_pass(&dir);
    check_names(&dir.mnt());
    let content: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8).collect();
    fs::write(dir.mnt().join("file"), &content).unwrap();
    assert_eq!(fs::read(dir.src().join("file")).unwrap(), content);
    fs::write(dir.src().join("below"), &content).unwrap();
    assert_eq!(fs::read(dir.mnt().join("below")).unwrap(), content);
    // Appending through two descriptors: neither overwrites the other.
    let open = || OpenOptions::new().append(true).create(true).open(dir.mnt().join("log")).unwrap();
    let (mut one, mut two) = (open(), open());
    for _ in 0..10 {
        one.write_all(b"one").unwrap();
        two.write_all(b"two").unwrap();
    }
    assert_eq!(fs::read_to_string(dir.src().join("log")).unwrap(), "onetwo".repeat(10));
    drop((one, two));
    // Direct I/O, at a page border in memory as it demands.
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file =
        std::os::unix::fs::OpenOptionsExt::custom_flags(OpenOptions::new().read(true).write(true), direct)
            .open(dir.mnt().join("file"));
    if let Ok(file) = file {
        let mut buffer = vec![0; 3 * 4096];
        let begin = buffer.as_ptr().align_offset(4096);
        let page = &mut buffer[begin..begin + 4096];
        page.fill(9);
        file.write_all_at(page, 8192).unwrap();
        page.fill(0);
        file.read_exact_at(page, 8192).unwrap();
        assert!(page.iter().all(|b| *b == 9));
    }
    mounted.unmount(Unmount::Clean).unwrap();
    mounted.join().unwrap();
}

#[test]
fn a_mount_in_use_is_not_torn_away_unless_told() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("busy");
    let mounted = mount_null(&dir);
    let mut open = File::create_new(dir.mnt().join("open")).unwrap();
    assert!(matches!(mounted.unmount(Unmount::Clean), Err(MountError::Busy { .. })));
    mounted.unmount(Unmount::Lazy).unwrap();
    // Unlinked, but usable by its open descriptor.
    assert!(!dir.mnt().join("open").exists());
    open.write_all(b"still here").unwrap();
    assert!(!mounted.has_ended());
    drop(open);
    mounted.join().unwrap();
    // A second time is fine, and touches nothing that is not ours.
    mounted.unmount(Unmount::Force).unwrap();
}

#[test]
fn force_ends_a_mount_that_is_in_use() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("force");
    let mounted = mount_null(&dir);
    let mut open = File::create_new(dir.mnt().join("open")).unwrap();
    mounted.unmount(Unmount::Force).unwrap();
    mounted.join().unwrap();
    assert!(open.write_all(b"nobody takes this").is_err());
}

/// `umount -f` of a mount in use: the kernel ends it, says that it is busy, and leaves it there.
#[test]
fn what_was_ended_in_use_can_be_taken_away() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("ended");
    let mounted = mount_null(&dir);
    let open = File::create_new(dir.mnt().join("open")).unwrap();
    let forced = rustix::mount::unmount(dir.mnt(), rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(rustix::io::Errno::BUSY));
    mounted.join().unwrap();
    assert!(fs::read_dir(dir.mnt()).is_err(), "nobody serves it");
    mounted.unmount(Unmount::Lazy).unwrap();
    assert_eq!(fs::read_dir(dir.mnt()).unwrap().count(), 0);
    drop(open);
}

#[test]
fn a_mount_that_lives_on_elsewhere_says_so_and_is_served() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("elsewhere");
    let mounted = mount_null(&dir);
    rustix::mount::mount_bind(dir.mnt(), dir.src()).unwrap();
    for _ in 0..2 {
        let Err(MountError::Elsewhere { points, .. }) = mounted.unmount(Unmount::Clean) else {
            panic!("a bind mount has it");
        };
        assert_eq!(points, [dir.src()]);
        assert_eq!(fs::read_dir(dir.mnt()).unwrap().count(), 0);
    }
    File::create_new(dir.src().join("served")).unwrap();
    rustix::mount::unmount(dir.src(), rustix::mount::UnmountFlags::empty()).unwrap();
    mounted.unmount(Unmount::Clean).unwrap();
    mounted.join().unwrap();
}

#[test]
fn a_later_mount_with_the_number_of_one_that_has_ended_is_left_alone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("number");
    let device = || fs::metadata(dir.mnt()).unwrap().dev();
    // Free device numbers are given again; others may be quicker than we.
    let again = (0..100).find_map(|_| {
        let first = mount_null(&dir);
        let before = device();
        first.unmount(Unmount::Clean).unwrap();
        first.join().unwrap();
        let second = mount_null(&dir);
        (device() == before).then_some((first, second))
    });
    let (first, second) = again.unwrap();
    File::create_new(dir.mnt().join("of the second")).unwrap();
    first.unmount(Unmount::Lazy).unwrap();
    assert!(dir.mnt().join("of the second").exists());
    second.unmount(Unmount::Clean).unwrap();
}

#[test]
fn another_mount_on_the_same_point_is_left_alone() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("stacked");
    let first = mount_null(&dir);
    let second = mount_null(&dir);
    File::create_new(dir.mnt().join("of the second")).unwrap();
    first.unmount(Unmount::Force).unwrap();
    assert!(dir.mnt().join("of the second").exists());
    second.unmount(Unmount::Clean).unwrap();
    second.join().unwrap();
    first.unmount(Unmount::Clean).unwrap();
    first.join().unwrap();
}

/// A child that is gone when the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn start_nullfs(dir: &TempDir, subtype: &str) -> Server {
    let child =
        Command::new(env!("CARGO_BIN_EXE_nullfs")).arg(dir.mnt()).args(["--subtype", subtype]).spawn();
    let server = Server(child.unwrap());
    // It creates nothing before it is mounted, so a name can be made in it once it serves.
    let line = format!(" {} ", dir.mnt().display());
    let is_up = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&line);
    while !(is_up() && File::create(dir.mnt().join("probe")).is_ok()) {
        std::thread::yield_now();
    }
    server
}

#[test]
fn sigterm_unmounts() {
    if !can_mount() {
        return;
    }
    let dir = TempDir::new("term");
    let mut server = start_nullfs(&dir, "termtest");
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
    assert_eq!(fs::read_dir(dir.mnt()).unwrap().count(), 0);
}
