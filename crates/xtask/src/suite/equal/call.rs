//! The calls of a sequence and how they are drawn: from few names and few descriptors, so that calls meet.

use std::fmt;

use testkit::Rng;

/// The users of calls. Groups overlap, so that group permissions matter.
#[derive(Clone, Copy, Debug)]
pub struct User {
    pub name: &'static str,
    pub id: u32,
    pub groups: &'static [u32],
}

pub const USERS: [User; 3] = [
    User { name: "root", id: 0, groups: &[] },
    User { name: "u1000", id: 1000, groups: &[2000] },
    User { name: "u1001", id: 1001, groups: &[2000, 3000] },
];

/// Descriptors are kept in this many places; opening into one closes what was there.
pub const SLOTS: u64 = 6;

#[derive(Clone, Debug)]
pub struct Step {
    /// Index into `USERS`.
    pub who: usize,
    /// Which times of the file and of its directory the call changes is compared, too.
    pub watch: bool,
    pub call: Call,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = if self.watch { ", with its times" } else { "" };
        write!(f, "{} {:?}{times}", USERS[self.who].name, self.call)
    }
}

impl Call {
    /// The descriptor that it works on, if it does.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Call::SetAppend(slot, _)
            | Call::Read(slot, _)
            | Call::Pread(slot, ..)
            | Call::Write(slot, ..)
            | Call::Pwrite(slot, ..)
            | Call::Seek(slot, ..)
            | Call::Ftruncate(slot, _)
            | Call::Fallocate(slot, ..)
            | Call::Fsync(slot)
            | Call::Fdatasync(slot)
            | Call::Flock(slot, _)
            | Call::Lock(slot, _)
            | Call::Fchmod(slot, _)
            | Call::Fchown(slot, ..)
            | Call::Futimens(slot, ..)
            | Call::Fstat(slot)
            | Call::SetFlags(slot, _)
            | Call::LinkFd(slot, _) => Some(*slot),
            _ => None,
        }
    }
}

pub type Slot = usize;

#[derive(Clone, Debug)]
pub enum Call {
    Open {
        slot: Slot,
        path: String,
        flags: u32,
        mode: u32,
    },
    TmpFile {
        slot: Slot,
        path: String,
        mode: u32,
    },
    Close(Slot),
    Dup {
        from: Slot,
        to: Slot,
    },
    SetAppend(Slot, bool),
    Read(Slot, usize),
    Pread(Slot, u64, usize),
    Write(Slot, usize, u8),
    Pwrite(Slot, u64, usize, u8),
    Seek(Slot, u32, i64),
    Ftruncate(Slot, u64),
    Fallocate(Slot, u32, u64, u64),
    CopyRange {
        from: Slot,
        at: u64,
        to: Slot,
        to_at: u64,
        len: usize,
    },
    Fsync(Slot),
    Fdatasync(Slot),
    Flock(Slot, u32),
    Lock(Slot, u32),
    Fchmod(Slot, u32),
    Fchown(Slot, Option<u32>, Option<u32>),
    Futimens(Slot, Time, Time),
    Fstat(Slot),
    /// `chattr`, with these of `FLAGS`.
    SetFlags(Slot, u32),
    LinkFd(Slot, String),
    Mkdir(String, u32),
    Rmdir(String),
    Unlink(String),
    Rename(String, String, u32),
    Link(String, String, bool),
    Symlink(String, String),
    Readlink(String),
    Mknod(String, Node, u32),
    Truncate(String, u64),
    Chmod(String, u32),
    Chown(String, Option<u32>, Option<u32>, bool),
    Utimens(String, Time, Time, bool),
    Stat(String, bool),
    Access(String, u32),
    List(String),
    SetXattr(String, &'static str, usize, u32, bool),
    GetXattr(String, &'static str, bool),
    ListXattr(String, bool),
    RemoveXattr(String, &'static str, bool),
    SetAcl(String, bool, usize),
    Umask(u32),
}

#[derive(Clone, Copy, Debug)]
pub enum Node {
    Fifo,
    Socket,
    Char,
    Block,
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Omit,
    Now,
    At(i64, i64),
}

/// Flags of `chattr` that both sides keep, but `a`: what that refuses to descriptors of before differs (S-flags).
pub const FLAGS: u32 = IMMUTABLE | NODUMP | NOATIME;
pub const IMMUTABLE: u32 = 0x10;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;

/// Longest runs of zeros that a file may get by its size: read whole at the end.
const FAR: u64 = 3 << 20;

pub fn sequence(seed: u64, len: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut who = 0;
    (0..len)
        .map(|_| {
            // A user stays for several calls, so that users open their own files.
            if rng.chance(12) {
                who = rng.below(USERS.len() as u64) as usize;
            }
            let watch = rng.chance(30);
            Step { who, watch, call: allowed(who, call(&mut rng)) }
        })
        .collect()
}

/// Only root does a chown without new ids: for other users its effect depends on set-id bits (SEMANTICS, exceptions).
fn allowed(who: usize, call: Call) -> Call {
    match call {
        Call::Chown(path, None, None, no) if who > 0 => Call::Chown(path, Some(USERS[who].id), None, no),
        Call::Fchown(slot, None, None) if who > 0 => Call::Fchown(slot, Some(USERS[who].id), None),
        call => call,
    }
}

fn call(r: &mut Rng) -> Call {
    match r.below(1000) {
        0..150 => Call::Open { slot: slot(r), path: file(r), flags: open_flags(r), mode: mode(r) },
        150..158 => Call::TmpFile { slot: slot(r), path: dir(r), mode: mode(r) },
        158..175 => Call::Close(slot(r)),
        175..185 => Call::Dup { from: slot(r), to: slot(r) },
        185..192 => Call::SetAppend(slot(r), r.chance(50)),
        192..230 => Call::Read(slot(r), length(r)),
        230..270 => Call::Pread(slot(r), place(r), length(r)),
        270..330 => Call::Write(slot(r), length(r), fill(r)),
        330..390 => Call::Pwrite(slot(r), place(r), length(r), fill(r)),
        390..425 => seek(r),
        425..455 => Call::Ftruncate(slot(r), place(r)),
        455..490 => fallocate(r),
        490..510 => {
            Call::CopyRange { from: slot(r), at: place(r), to: slot(r), to_at: place(r), len: length(r) }
        }
        510..514 => Call::Fsync(slot(r)),
        514..517 => Call::Fdatasync(slot(r)),
        517..523 => Call::SetFlags(slot(r), *r.pick(&[0, 0, NODUMP, NOATIME, NODUMP | NOATIME, IMMUTABLE])),
        523..532 => Call::Flock(slot(r), r.below(3) as u32),
        532..540 => Call::Lock(slot(r), r.below(3) as u32),
        540..550 => Call::Fchmod(slot(r), mode(r)),
        550..557 => Call::Fchown(slot(r), id(r), id(r)),
        557..565 => Call::Futimens(slot(r), time(r), time(r)),
        565..582 => Call::Fstat(slot(r)),
        582..590 => Call::Truncate(any(r), place(r)),
        590..596 => Call::LinkFd(slot(r), file(r)),
        596..646 => Call::Mkdir(dir(r), mode(r)),
        646..668 => Call::Rmdir(dir(r)),
        668..700 => Call::Unlink(any(r)),
        700..760 => Call::Rename(any(r), any(r), [0, 0, 0, 0, 0, 1, 1, 2, 2, 3][r.below(10) as usize]),
        760..785 => Call::Link(any(r), any(r), r.chance(30)),
        785..805 => Call::Symlink(target(r), join(r, &["s", "t", "a"])),
        805..815 => Call::Readlink(join(r, &["s", "t", "a"])),
        815..830 => Call::Mknod(file(r), node(r), mode(r)),
        830..855 => Call::Chmod(any(r), mode(r)),
        855..870 => Call::Chown(any(r), id(r), id(r), r.chance(50)),
        870..885 => Call::Utimens(any(r), time(r), time(r), r.chance(30)),
        885..915 => Call::Stat(any(r), r.chance(50)),
        915..925 => Call::Access(any(r), r.below(8) as u32),
        925..940 => Call::List(dir(r)),
        940..960 => {
            Call::SetXattr(any(r), xattr(r), r.below(200) as usize, r.below(4) as u32 % 3, r.chance(30))
        }
        960..970 => Call::GetXattr(any(r), xattr(r), r.chance(30)),
        970..977 => Call::ListXattr(any(r), r.chance(30)),
        977..983 => Call::RemoveXattr(any(r), xattr(r), r.chance(30)),
        983..993 => Call::SetAcl(any(r), r.chance(50), r.below(5) as usize),
        _ => Call::Umask(*r.pick(&[0o022, 0o077, 0o000, 0o027, 0o002])),
    }
}

fn slot(r: &mut Rng) -> Slot {
    r.below(SLOTS) as usize
}
fn fill(r: &mut Rng) -> u8 {
    1 + r.below(250) as u8
}

/// A path of one to three names whose last is one of `last`; now and then a path that is odd.
fn join(r: &mut Rng, last: &[&str]) -> String {
    if r.chance(2) {
        return odd(r);
    }
    let depth = [0, 0, 0, 0, 0, 1, 1, 1, 2][r.below(9) as usize];
    let mut path = String::new();
    for _ in 0..depth {
        path.push_str(r.pick::<&str>(&["d", "d", "d", "e", "e", "s", "a"]));
        path.push('/');
    }
    path + r.pick::<&str>(last)
}
fn file(r: &mut Rng) -> String {
    join(r, &["a", "a", "b", "b", "c", "d", "s", "t"])
}
fn dir(r: &mut Rng) -> String {
    join(r, &["d", "d", "d", "e", "e", "a", "s", "."])
}
fn any(r: &mut Rng) -> String {
    join(r, &["a", "a", "b", "c", "d", "e", "s", "t"])
}
/// No `..`: a link may not lead out of the test's directory.
fn target(r: &mut Rng) -> String {
    match r.below(20) {
        0 => "x/".repeat(2047) + "y",
        1 => "nowhere".into(),
        _ => ["a", "b", "d", "e", "d/a", "s", "t", "."][r.below(8) as usize].into(),
    }
}
fn odd(r: &mut Rng) -> String {
    match r.below(12) {
        0 => String::new(),
        1 => ".".into(),
        2 => "..".into(),
        3 => "a/".into(),
        4 => "d/".into(),
        5 => "d/.".into(),
        6 => "d/..".into(),
        7 => "d/../a".into(),
        8 => "n".repeat(255),
        9 => "n".repeat(256),
        10 => "d/".repeat(2046) + "abc",
        _ => "d//a".into(),
    }
}

fn open_flags(r: &mut Rng) -> u32 {
    use rustix::fs::OFlags;
    let mut flags = *r.pick(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR, OFlags::RDWR]);
    for (flag, percent) in [
        (OFlags::CREATE, 60),
        (OFlags::EXCL, 12),
        (OFlags::TRUNC, 15),
        (OFlags::APPEND, 20),
        (OFlags::DIRECTORY, 5),
        (OFlags::NOFOLLOW, 8),
        (OFlags::NOATIME, 3),
        (OFlags::SYNC, 1),
        (OFlags::DSYNC, 1),
        (OFlags::PATH, 3),
        (OFlags::DIRECT, 5),
    ] {
        if r.chance(percent) {
            flags |= flag;
        }
    }
    flags.bits()
}

fn mode(r: &mut Rng) -> u32 {
    match r.below(12) {
        0..3 => 0o777,
        3..5 => 0o755,
        5..7 => 0o666,
        7 => *r.pick(&[0o4755, 0o2755, 0o6777, 0o2644, 0o2775]),
        8 => *r.pick(&[0o1777, 0o3777, 0o1666]),
        9 => *r.pick(&[0, 0o600, 0o644, 0o070, 0o007, 0o111]),
        _ => r.below(0o10000) as u32,
    }
}

/// Where: around pages, around what stays inline, and now and then far out.
fn place(r: &mut Rng) -> u64 {
    match r.below(20) {
        0..10 => r.below(10_000),
        10..13 => 4096 * r.below(20),
        13..17 => 60_000 + r.below(12_000),
        17..19 => r.below(300_000),
        _ => r.below(FAR),
    }
}
fn length(r: &mut Rng) -> usize {
    (match r.below(20) {
        0 => 0,
        1..12 => r.below(5_000),
        12..15 => 4096,
        15..19 => r.below(20_000),
        _ => r.below(150_000),
    }) as usize
}
fn seek(r: &mut Rng) -> Call {
    let whence = r.below(5) as u32;
    let at = place(r) as i64;
    Call::Seek(slot(r), whence, if r.chance(20) { -at / 8 } else { at })
}
fn fallocate(r: &mut Rng) -> Call {
    // 0 allocate, 1 KEEP_SIZE, 3 PUNCH_HOLE, 16 ZERO_RANGE, 17 with KEEP_SIZE; 2 (PUNCH_HOLE alone) is refused.
    let flags = *r.pick(&[0, 0, 1, 1, 3, 3, 3, 16, 16, 17, 2]);
    Call::Fallocate(slot(r), flags, place(r), length(r) as u64)
}
fn id(r: &mut Rng) -> Option<u32> {
    *r.pick(&[None, Some(0), Some(1000), Some(1001), Some(2000), Some(3000)])
}
fn time(r: &mut Rng) -> Time {
    match r.below(5) {
        0 => Time::Omit,
        1 => Time::Now,
        _ => Time::At(r.below(1 << 29) as i64 - (1 << 20), r.below(1_000_000_000) as i64),
    }
}
fn node(r: &mut Rng) -> Node {
    *r.pick(&[Node::Fifo, Node::Fifo, Node::Socket, Node::Char, Node::Block, Node::File])
}
fn xattr(r: &mut Rng) -> &'static str {
    r.pick::<&str>(&[
        "user.a",
        "user.a",
        "user.b",
        "user.b",
        "trusted.t",
        "security.s",
        "system.x",
        "none",
        "user.",
    ])
}
