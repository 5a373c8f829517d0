use types::*;
use wire::accessed::{Accessed, ReadTime};
use wire::meta::FLAG_NOATIME;

use crate::testing::*;

const DAY: i64 = 24 * 60 * 60;

/// The atime of a file with these times after a read at `read`.
fn atime_after(times: [i64; 3], read: i64, sure: bool, flags: u32) -> i64 {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    w.edit(fid, |inode| {
        let [atime, mtime, ctime] = times.map(|seconds| Time::new(seconds, 0));
        inode.attr = Attr { atime, mtime, ctime, ..inode.attr };
        inode.flags = flags;
    });
    let reads = vec![
        ReadTime { fid: Fid(999), atime: Time::new(read, 0), sure },
        ReadTime { fid, atime: Time::new(read, 0), sure },
    ];
    w.call(Accessed { reads, cred: cred(0) }).unwrap();
    assert_eq!(w.attr(fid).ctime, Time::new(times[2], 0), "reading is no change");
    w.attr(fid).atime.sec
}

/// atime, mtime, ctime | read at | sure | flags | atime after
#[test]
fn access_times_follow_relatime() {
    let table = [
        ([10, 10, 10], 20, false, 0, 20),
        ([10, 15, 5], 20, false, 0, 20),
        ([10, 5, 15], 20, false, 0, 20),
        // It was read after its last change, and less than a day ago.
        ([12, 10, 10], 20, false, 0, 12),
        ([12, 10, 10], 12 + DAY - 1, false, 0, 12),
        ([12, 10, 10], 12 + DAY, false, 0, 12 + DAY),
        // The client has written to it.
        ([12, 10, 10], 20, true, 0, 20),
        // An atime never falls.
        ([30, 40, 40], 20, true, 0, 30),
        ([10, 10, 10], 20, true, FLAG_NOATIME, 10),
    ];
    for (times, read, sure, flags, want) in table {
        assert_eq!(atime_after(times, read, sure, flags), want, "{times:?} {read} {sure} {flags:#x}");
    }
}

#[test]
fn a_judged_session_ages_only_what_its_user_may_read() {
    let mut w = World::new();
    let (open, closed) = (w.file(ROOT, "open"), w.file(ROOT, "closed"));
    w.set_mode(open, 0o644);
    w.set_mode(closed, 0o600);
    let before = w.attr(closed).atime;
    w.judged = Some(ALICE);
    let atime = Time::new(5_000, 0);
    let reads = [open, closed].map(|fid| ReadTime { fid, atime, sure: true }).to_vec();
    w.call(Accessed { reads, cred: cred(0) }).unwrap();
    assert_eq!((w.attr(open).atime, w.attr(closed).atime), (atime, before));
}
