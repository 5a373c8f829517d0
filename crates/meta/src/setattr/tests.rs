use types::*;
use wire::meta::{
    FLAG_APPEND, FLAG_IMMUTABLE, Inode, SET_ATIME, SET_GID, SET_KILLPRIV, SET_MODE, SET_MTIME, SET_TOUCH,
    SET_UID, SetAttr, SetFlags,
};

use crate::testing::*;

const THEN: Time = Time { sec: 5, nsec: 6 };
const NOW: Time = Time { sec: 9000, nsec: 1 };

fn ask(valid: u32) -> SetAttr {
    let (fid, atime, mtime, now, held) = (ROOT, THEN, THEN, NOW, None);
    SetAttr { fid, valid, mode: 0, uid: 0, gid: 0, atime, mtime, now, held, cred: cred(0) }
}

/// A file of Alice's, and the request about it.
fn set(mode: u32, who: u32, change: impl FnOnce(&mut SetAttr)) -> (Result<Inode, Code>, Attr) {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.set_mode(f, mode);
    w.set_owner(f, ALICE, ALICE);
    let mut req = ask(0);
    (req.fid, req.cred) = (f, cred(who));
    change(&mut req);
    let reply = w.call(req);
    (reply, w.attr(f))
}

/// who | asked | mode after, or the refusal
#[test]
fn chmod_is_the_owners() {
    let table = [
        (ALICE, 0o600, Ok(0o600)),
        (0, 0o107777, Ok(0o7777)),
        (BOB, 0o600, Err(Code::Perm)),
        (ALICE, 0o2755, Ok(0o2755)),
    ];
    for (who, asked, want) in table {
        let (reply, attr) = set(0o644, who, |r| (r.valid, r.mode) = (SET_MODE, asked));
        assert_eq!(reply.map(|i| i.attr.mode), want, "{who} {asked:o}");
        assert_eq!(attr.ctime == NOW, want.is_ok());
    }
    // The file's group is not hers: setgid is dropped, not refused.
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.set_owner(f, ALICE, 9);
    for (who, want) in [(ALICE, 0o755), (0, 0o2755)] {
        let mut req = ask(SET_MODE);
        (req.fid, req.cred, req.mode) = (f, cred(who), 0o2755);
        assert_eq!(w.call(req).map(|i| i.attr.mode), Ok(want));
    }
}

/// A request without attributes changes ctime; on an immutable file it is refused.
#[test]
fn a_request_that_names_nothing_changes_ctime_unless_the_file_is_immutable() {
    for (flags, want) in [(0, Ok(())), (FLAG_APPEND, Ok(())), (FLAG_IMMUTABLE, Err(Code::Perm))] {
        let mut w = World::new();
        let f = w.file(ROOT, "f");
        w.call(SetFlags { fid: f, flags, now: THEN, cred: cred(0) }).unwrap();
        let before = w.attr(f).ctime;
        let mut req = ask(0);
        req.fid = f;
        assert_eq!(w.call(req).map(|_| ()), want, "{flags:#x}");
        assert_eq!(w.attr(f).ctime, if want.is_ok() { NOW } else { before });
    }
}

/// who, judged | mode | what is left of it, or the refusal
#[test]
fn whose_write_changes_a_file_takes_its_privileges() {
    let table = [
        (BOB, false, 0o6755, Ok(0o755)),
        (BOB, false, 0o4444, Ok(0o444)),
        (BOB, false, 0o2644, Ok(0o644)),
        // Without execution it is no privilege, and stays to who is in the group.
        (ALICE, false, 0o2644, Ok(0o2644)),
        (ALICE, true, 0o6755, Ok(0o755)),
        (BOB, true, 0o4777, Ok(0o777)),
        (BOB, true, 0o4755, Err(Code::Access)),
    ];
    for (who, is_judged, mode, want) in table {
        let mut w = World::new();
        let f = w.file(ROOT, "f");
        w.set_owner(f, ALICE, ALICE);
        w.set_mode(f, mode);
        w.judged = is_judged.then_some(who);
        let mut req = ask(SET_KILLPRIV);
        (req.fid, req.cred) = (f, cred(who));
        assert_eq!(w.call(req).map(|i| i.attr.mode), want, "{who} {mode:o}");
    }
}

/// who | what is asked: new uid, new gid | outcome
#[test]
fn chown_is_roots_and_chgrp_is_the_owners_among_his_groups() {
    let table = [
        (0, Some(BOB), Some(BOB), None),
        (ALICE, Some(ALICE), None, None),
        (ALICE, None, Some(CREW), None),
        (ALICE, Some(ALICE), Some(ALICE), None),
        (ALICE, Some(BOB), None, Some(Code::Perm)),
        (ALICE, None, Some(9), Some(Code::Perm)),
        (BOB, Some(BOB), None, Some(Code::Perm)),
        (BOB, Some(ALICE), None, Some(Code::Perm)),
        (BOB, None, Some(BOB), Some(Code::Perm)),
        (BOB, None, Some(ALICE), Some(Code::Perm)),
    ];
    for (who, uid, gid, want) in table {
        let (reply, attr) = set(0o644, who, |r| {
            r.valid = uid.map_or(0, |_| SET_UID) | gid.map_or(0, |_| SET_GID);
            (r.uid, r.gid) = (uid.unwrap_or(77), gid.unwrap_or(77));
        });
        assert_eq!(reply.err(), want, "{who} {uid:?} {gid:?}");
        if want.is_none() {
            assert_eq!((attr.uid, attr.gid), (uid.unwrap_or(ALICE), gid.unwrap_or(ALICE)));
        }
    }
}

/// mode | who | mode after a chown to what it was
#[test]
fn chown_clears_setuid_and_setgid() {
    let table = [
        (0o6755, 0, 0o755),
        (0o6755, ALICE, 0o755),
        // Without group execute setgid is no program's; those in the group keep it.
        (0o6744, 0, 0o2744),
        (0o6744, ALICE, 0o2744),
        (0o1644, ALICE, 0o1644),
    ];
    for (mode, who, want) in table {
        let (reply, _) = set(mode, who, |r| (r.valid, r.uid) = (SET_UID, ALICE));
        assert_eq!(reply.map(|i| i.attr.mode), Ok(want), "{mode:o} {who}");
    }
    let mut w = World::new();
    let d = w.mkdir(ROOT, "d", 0o755).expect("mkdir").fid;
    w.set_mode(d, 0o6755);
    let mut req = ask(SET_UID);
    (req.fid, req.uid) = (d, ALICE);
    assert_eq!(w.call(req).map(|i| i.attr.mode), Ok(0o6755), "directories keep them");
}

/// mode | who | times asked | outcome
#[test]
fn owners_and_writers_set_times() {
    let table = [
        (0o644, ALICE, THEN, None),
        (0o000, ALICE, THEN, None),
        (0o000, 0, THEN, None),
        (0o666, BOB, NOW, None),
        (0o666, BOB, THEN, Some(Code::Perm)),
        (0o644, BOB, NOW, Some(Code::Access)),
        (0o644, BOB, THEN, Some(Code::Perm)),
    ];
    for (mode, who, time, want) in table {
        let (reply, attr) = set(mode, who, |r| {
            let touch = if time == NOW { SET_TOUCH } else { 0 };
            (r.valid, r.atime, r.mtime) = (SET_ATIME | SET_MTIME | touch, time, time)
        });
        assert_eq!(reply.err(), want, "{mode:o} {who} {time:?}");
        assert_eq!(
            (attr.atime == time, attr.mtime == time, attr.ctime == NOW),
            (want.is_none(), want.is_none(), want.is_none())
        );
    }
}

/// As on ext4: one time alone is the owner's to set, whatever it is.
#[test]
fn one_time_alone_is_never_a_touch() {
    for valid in [SET_ATIME | SET_TOUCH, SET_MTIME | SET_TOUCH] {
        for (who, want) in [(ALICE, None), (0, None), (BOB, Some(Code::Perm))] {
            let (reply, _) = set(0o666, who, |r| (r.valid, r.atime, r.mtime) = (valid, NOW, NOW));
            assert_eq!(reply.err(), want, "{valid} {who}");
        }
    }
}

#[test]
fn unknown_bits_and_files_are_refused_and_a_refused_part_refuses_all() {
    assert_eq!(set(0o644, 0, |r| r.valid = 128).0, Err(Code::BadRequest));
    assert_eq!(set(0o644, 0, |r| r.fid = Fid(99)).0, Err(Code::Stale));
    let (reply, attr) = set(0o644, ALICE, |r| (r.valid, r.mode, r.uid) = (SET_MODE | SET_UID, 0o600, BOB));
    assert_eq!((reply, attr.mode), (Err(Code::Perm), 0o644));
}
