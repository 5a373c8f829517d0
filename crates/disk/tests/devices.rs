//! A block device is opened once, by whatever path. Needs root and loop devices; says so and passes without.
//!
//! One test: a child process, until it has become another program, holds the locks of tests that run beside it.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use disk::{Disk, FileDisk};

/// A directory, and loop devices and mounts on files in it: all gone when it is dropped.
struct Place {
    dir: PathBuf,
    loops: Vec<PathBuf>,
    points: Vec<PathBuf>,
}

impl Place {
    fn new() -> Place {
        let dir = std::env::temp_dir().join(format!("stria-devices-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Place { dir, loops: vec![], points: vec![] }
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
        path
    }

    /// A loop device on a file; the reason if there is none.
    fn attach(&mut self, file: &Path, options: &[&str]) -> Result<PathBuf, String> {
        let out = run(Command::new("losetup").args(["-f", "--show"]).args(options).arg(file))?;
        let device = PathBuf::from(String::from_utf8(out.stdout).unwrap().trim());
        self.loops.push(device.clone());
        Ok(device)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.points.iter().for_each(|p| drop(run(Command::new("umount").arg(p))));
        self.loops.iter().for_each(|l| drop(run(Command::new("losetup").arg("-d").arg(l))));
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn run(command: &mut Command) -> Result<Output, String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if out.status.success() { Ok(out) } else { Err(format!("{command:?}: {said}")) }
}

#[track_caller]
fn refused(opened: io::Result<FileDisk>, words: &[&str]) {
    let e = opened.expect_err("it is in use");
    assert_eq!(e.kind(), io::ErrorKind::ResourceBusy, "{e}");
    words.iter().for_each(|w| assert!(e.to_string().contains(w), "no '{w}' in: {e}"));
}

#[test]
fn a_device_is_opened_once_by_whatever_road() {
    let mut place = Place::new();
    let file = place.file("a");
    let device = match place.attach(&file, &[]) {
        Ok(device) => device,
        Err(why) => return eprintln!("skipped: no loop device: {why}"),
    };
    let name = device.to_str().unwrap().to_owned();

    // 1. Twice, and by another node of the same device: a lock on the node alone would not detect that.
    let open = FileDisk::open(&device).unwrap();
    assert_eq!(open.size(), 16 << 20);
    refused(FileDisk::open(&device), &["in use"]);
    let node = place.dir.join("node");
    let number = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(&device).unwrap());
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &node, rustix::fs::FileType::BlockDevice, mode, number).unwrap();
    // A file system that allows no device nodes cannot be used for this.
    match FileDisk::open(&node) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        other => refused(other, &["in use"]),
    }

    // 2. The file behind it, whether the device is open or not; under any name.
    refused(FileDisk::open(&file), &["in use"]);
    drop(open);
    let link = place.dir.join("hard link");
    std::fs::hard_link(&file, &link).unwrap();
    refused(FileDisk::open(&link), &["is the file behind", &name]);

    // 3. Another loop device on the same file.
    let second = place.attach(&file, &[]).unwrap();
    let open = FileDisk::open(&second).unwrap();
    refused(FileDisk::open(&device), &["stands on a file that is in use"]);
    drop(open);

    // 4. The file was opened first, and then a loop device put on it.
    let late = place.file("b");
    let open = FileDisk::open(&late).unwrap();
    let over_open = place.attach(&late, &[]).unwrap();
    refused(FileDisk::open(&over_open), &["stands on a file that is in use"]);
    drop(open);
    drop(FileDisk::open(&over_open).unwrap());

    // 5. Two parts of one file are two media.
    let parts = place.file("c");
    let low = place.attach(&parts, &["--sizelimit", "8388608"]).unwrap();
    let high = place.attach(&parts, &["--offset", "8388608"]).unwrap();
    let both = (FileDisk::open(&low).unwrap(), FileDisk::open(&high).unwrap());
    assert_eq!((both.0.size(), both.1.size()), (8 << 20, 8 << 20));

    // 6. A mounted device, and one that is read-only.
    let data = place.file("d");
    let mounted = place.attach(&data, &[]).unwrap();
    let made = run(Command::new("mkfs.ext4").arg("-q").arg(&mounted));
    let point = place.dir.join("mnt");
    std::fs::create_dir(&point).unwrap();
    match made.and_then(|_| run(Command::new("mount").arg(&mounted).arg(&point))) {
        Err(why) => eprintln!("skipped: a mounted device: {why}"),
        Ok(_) => {
            place.points.push(point.clone());
            let words = ["it is mounted on", point.to_str().unwrap()];
            refused(FileDisk::open(&mounted), &words);
            refused(FileDisk::open(&data), &["is the file behind", "mounted on"]);
        }
    }
    let fixed = place.file("e");
    let fixed = place.attach(&fixed, &["--read-only"]).unwrap();
    let e = FileDisk::open(&fixed).unwrap_err();
    assert!(e.to_string().contains("is a read-only device"), "{e}");
    assert!(FileDisk::open_read_only(&fixed).is_ok());
}
