//! Promises that the door keeps, on a real mount of a cluster in memory whose power is cut. They need root and /dev/fuse; elsewhere
//! they say so and pass.

use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fuse::{MountOptions, Unmount};
use rustix::fs::OFlags;
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
        let path = std::env::temp_dir().join(format!("stria-door-test.{}", std::process::id()));
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
        // What makes it durable is the flag.
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
