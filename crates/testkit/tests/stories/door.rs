//! Promises that the door keeps, on a real mount of a cluster in memory whose power is cut. They need root and /dev/fuse; elsewhere
//! they say so and pass.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fuse::{MountFlags, MountOptions, Unmount};
use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};
use testkit::Wiring;
use testkit::story::{Story, StoryShape, bytes_of};

struct Point(PathBuf);

impl Point {
    fn new() -> Option<Point> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let path = std::env::temp_dir().join(format!(
            "stria-door-test.{}.{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&path).unwrap();
        Some(Point(path))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).ok();
        std::fs::remove_dir(&self.0).ok();
    }
}

fn open(path: &Path, flags: OFlags) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
    options.open(path).unwrap()
}

/// [S-sync-writes] A write through a descriptor with `O_SYNC` or `O_DSYNC`, with `O_DIRECT` or without, or with `RWF_DSYNC`, is durable
/// when it returns: bytes, size and the file's entry.
#[test]
fn a_synchronous_write_survives_the_loss_of_all_power() {
    let Some(point) = Point::new() else { return };
    let (none, by_call) = (OFlags::empty(), ReadWriteFlags::DSYNC);
    let table = [
        (OFlags::SYNC, ReadWriteFlags::empty(), true),
        (OFlags::DSYNC, ReadWriteFlags::empty(), true),
        (OFlags::DSYNC | OFlags::DIRECT, ReadWriteFlags::empty(), true),
        (none, by_call, true),
        (OFlags::DIRECT, by_call, true),
        // The flag makes the write durable.
        (none, ReadWriteFlags::empty(), false),
    ];
    for (flags, call, is_durable) in table {
        // Nothing is flushed but what is asked for.
        let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
        let mounted = fuse::mount(story.fs().clone(), &point.0, &MountOptions::new("a story")).unwrap();
        // The small one last: the MDT flushes before it lets a client write to new objects.
        for (name, len) in [("objects", 200 << 10), ("inline", 8192)] {
            let file = open(&point.0.join(name), flags);
            // The second write is an overwrite, whose size the MDT knows.
            for salt in 0..2 {
                let bytes = aligned(salt, len);
                let sent = pwritev2(&file, &[IoSlice::new(&bytes)], 0, call).unwrap();
                assert_eq!(sent, len);
            }
        }
        mounted.unmount(Unmount::Clean).unwrap();
        story.power_cut_and_remount(1);
        for (name, len) in [("inline", 8192), ("objects", 200 << 10)] {
            let is_there = story.exists(name) && story.read(name).unwrap() == aligned(1, len)[..];
            assert_eq!(is_there, is_durable, "{name} written with {flags:?} and {call:?}");
        }
    }
}

/// [S-mount-options] under `sync` content and names are durable before the call returns, under `dirsync` names. [S-sync-writes] ranges
/// that are allocated or copied through a synchronous descriptor are, too.
#[test]
fn what_a_synchronous_mount_or_descriptor_changes_survives_the_loss_of_all_power() {
    let Some(point) = Point::new() else { return };
    const LEN: usize = 200 << 10;
    let forms = [
        (MountFlags::empty(), OFlags::empty()),
        (MountFlags::SYNCHRONOUS, OFlags::empty()),
        (MountFlags::DIRSYNC, OFlags::empty()),
        (MountFlags::empty(), OFlags::DSYNC),
    ];
    // In which of these forms it is durable, for sure, and in which it is not.
    let (yes, no) = (Some(true), Some(false));
    let [names, attributes, content] = [[no, yes, yes, no], [no, yes, no, no], [no, yes, no, yes]];
    // The MDT may flush it for its own reasons.
    let perhaps = [None, yes, None, None];
    type Row = (&'static str, fn(&Path, OFlags), fn(&Story) -> bool, [Option<bool>; 4]);
    let table: &[Row] = &[
        ("mkdir", |dir, _| fs::create_dir(dir.join("d")).unwrap(), |s| s.exists("d"), names),
        ("rename", |dir, _| fs::rename(dir.join("f"), dir.join("g")).unwrap(), |s| s.exists("g"), names),
        ("unlink", |dir, _| fs::remove_file(dir.join("f")).unwrap(), |s| !s.exists("f"), names),
        (
            "chmod",
            |dir, _| fs::set_permissions(dir.join("f"), Permissions::from_mode(0o604)).unwrap(),
            |s| s.lookup("f").unwrap().mode & 0o777 == 0o604,
            attributes,
        ),
        (
            "truncate",
            |dir, flags| open(&dir.join("f"), flags).set_len(1000).unwrap(),
            |s| s.read("f").unwrap() == bytes_of(1, LEN)[..1000],
            perhaps,
        ),
        (
            "extend",
            |dir, flags| open(&dir.join("f"), flags).set_len(LEN as u64 + 5).unwrap(),
            |s| s.lookup("f").unwrap().size == LEN as u64 + 5,
            perhaps,
        ),
        (
            "O_TRUNC",
            |dir, _| drop(File::create(dir.join("f")).unwrap()),
            |s| s.lookup("f").unwrap().size == 0,
            attributes,
        ),
        (
            "write",
            |dir, flags| open(&dir.join("f"), flags).write_all_at(b"new", 70_000).unwrap(),
            |s| s.read("f").unwrap()[70_000..70_003] == *b"new",
            content,
        ),
        (
            "fallocate",
            |dir, flags| {
                fallocate(open(&dir.join("f"), flags), FallocateFlags::empty(), LEN as u64, 10_000).unwrap()
            },
            |s| s.lookup("f").unwrap().size == LEN as u64 + 10_000,
            content,
        ),
        (
            "punch",
            |dir, flags| {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(open(&dir.join("f"), flags), how, 8192, 4096).unwrap()
            },
            |s| s.read("f").unwrap()[8192..12_288].iter().all(|b| *b == 0),
            content,
        ),
        (
            "copy",
            |dir, flags| {
                let file = open(&dir.join("f"), flags);
                let n = copy_file_range(&file, Some(&mut 0), &file, Some(&mut (LEN as u64)), 5000).unwrap();
                assert_eq!(n, 5000);
            },
            |s| s.read("f").unwrap().get(LEN..) == Some(&bytes_of(1, LEN)[..5000]),
            content,
        ),
    ];
    for (what, change, shows, durable) in table {
        for ((flags, open_flags), is_durable) in forms.into_iter().zip(durable) {
            // A power cut may spare what was not flushed, so it is cut in several ways.
            let survives = |seed| {
                let mut story = Story::begin(StoryShape::quiet(Wiring::Local));
                story.create("f").unwrap();
                story.write("f", 0, &bytes_of(1, LEN)).unwrap();
                story.fsync("f").unwrap();
                story.close("f").unwrap();
                story.sync_names().unwrap();
                let options = MountOptions { flags, ..MountOptions::new("a story") };
                let mounted = fuse::mount(story.fs().clone(), &point.0, &options).unwrap();
                change(&point.0, open_flags);
                mounted.unmount(Unmount::Clean).unwrap();
                story.power_cut_and_remount(seed);
                shows(&story)
            };
            if let Some(is_durable) = is_durable {
                assert_eq!((1..=4).all(survives), *is_durable, "{what} with {flags:?} and {open_flags:?}");
            }
        }
    }
}

/// Pages of memory, as direct I/O may want them.
fn aligned(salt: u64, len: usize) -> AlignedBytes {
    let mut spare = vec![0; len + 4096];
    let skip = spare.as_ptr().align_offset(4096);
    spare[skip..skip + len].copy_from_slice(&bytes_of(salt, len));
    AlignedBytes { spare, skip, len }
}

struct AlignedBytes {
    spare: Vec<u8>,
    skip: usize,
    len: usize,
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.spare[self.skip..self.skip + self.len]
    }
}
