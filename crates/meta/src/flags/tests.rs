use types::*;
use wire::meta::*;

use crate::testing::*;

fn set(w: &mut World, fid: Fid, flags: u32) -> Result<u32, Code> {
    let req = SetFlags { fid, flags, now: w.now, cred: cred(w.who) };
    w.call(req).map(|i| i.flags)
}

fn open(w: &mut World, fid: Fid, change: impl FnOnce(&mut Open)) -> Option<Code> {
    let mut req = Open {
        fid,
        read: true,
        write: false,
        append: false,
        truncate: false,
        keep_write: false,
        held: None,
        now: w.now,
        cred: cred(w.who),
    };
    change(&mut req);
    w.call(req).err()
}

fn chmod(w: &mut World, fid: Fid, valid: u32) -> Option<Code> {
    let t = Time::new(7, 0);
    let req = SetAttr {
        fid,
        valid,
        mode: 0o600,
        uid: 0,
        gid: 0,
        atime: t,
        mtime: t,
        now: w.now,
        held: None,
        cred: cred(w.who),
    };
    w.call(req).err()
}

/// who | from | to | outcome
#[test]
fn root_protects_and_the_owner_notes() {
    let table = [
        (0, 0, FLAG_IMMUTABLE, Ok(FLAG_IMMUTABLE)),
        (ALICE, 0, FLAG_NODUMP | FLAG_NOATIME, Ok(FLAG_NODUMP | FLAG_NOATIME)),
        (ALICE, 0, FLAG_APPEND, Err(Code::Perm)),
        (ALICE, FLAG_APPEND, 0, Err(Code::Perm)),
        (ALICE, FLAG_APPEND, FLAG_APPEND | FLAG_NODUMP, Ok(FLAG_APPEND | FLAG_NODUMP)),
        (BOB, 0, FLAG_NODUMP, Err(Code::Perm)),
        (0, FLAG_IMMUTABLE, FLAG_APPEND, Ok(FLAG_APPEND)),
        (0, FLAG_IMMUTABLE, FLAG_IMMUTABLE | FLAG_NODUMP, Err(Code::Perm)),
        (0, 0, 0x4, Err(Code::Unsupported)),
    ];
    for (who, from, to, want) in table {
        let mut w = World::new();
        let f = w.file(ROOT, "f");
        w.set_owner(f, ALICE, ALICE);
        w.edit(f, |i| i.flags = from);
        w.who = who;
        assert_eq!(set(&mut w, f, to), want, "{who} {from:#x} {to:#x}");
    }
}

/// Operations that an immutable or append-only file refuses, also to root; as ext4 does.
#[test]
fn a_protected_file_stays_as_it_is() {
    for (flag, is_append) in [(FLAG_IMMUTABLE, false), (FLAG_APPEND, true)] {
        let mut w = World::new();
        let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
        let perm = Some(Code::Perm);
        set(&mut w, f, flag).expect("set");
        assert_eq!(open(&mut w, f, |_| ()), None);
        assert_eq!(open(&mut w, f, |o| o.write = true), perm);
        assert_eq!(open(&mut w, f, |o| (o.write, o.append) = (true, true)).is_none(), is_append);
        assert_eq!(open(&mut w, f, |o| (o.write, o.append, o.truncate) = (true, true, true)), perm);
        assert_eq!(w.unlink(ROOT, "f", false).err(), perm);
        assert_eq!(w.link(f, d, "l").err(), perm);
        assert_eq!(w.rename((ROOT, "f"), (d, "f"), 0, false).err(), perm);
        w.file(ROOT, "g");
        assert_eq!(w.rename((ROOT, "g"), (ROOT, "f"), 0, false).err(), perm);
        let cut = Truncate { fid: f, size: 0, now: w.now, held: None, cred: cred(0) };
        assert_eq!(w.call(cut).err(), perm);
        assert_eq!(chmod(&mut w, f, SET_MODE), perm);
        assert_eq!(chmod(&mut w, f, SET_UID), perm);
        // As before a write, which may append.
        assert_eq!(chmod(&mut w, f, SET_KILLPRIV).is_none(), is_append);
        assert_eq!(chmod(&mut w, f, SET_MTIME), perm);
        assert_eq!(chmod(&mut w, f, SET_ATIME | SET_TOUCH), perm);
        assert_eq!(chmod(&mut w, f, SET_MTIME | SET_TOUCH), perm);
        assert_eq!(chmod(&mut w, f, SET_ATIME | SET_MTIME | SET_TOUCH).is_none(), is_append);
        let note = SetXattr {
            fid: f,
            name: bytes("user.a"),
            value: b"1"[..].into(),
            flags: 0,
            now: w.now,
            cred: cred(0),
        };
        assert_eq!(w.call(note).err(), perm);
        set(&mut w, f, 0).expect("clear");
        assert_eq!(w.unlink(ROOT, "f", false).err(), None);
    }
}

/// Bytes that are there are not written over; the end takes more.
#[test]
fn an_append_only_file_grows_at_its_end() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let write = |w: &mut World, offset: u64| {
        let req = WriteInline {
            fid: f,
            place: Place::At(offset),
            in_section: true,
            crcs: types::crc::fragment_crcs(0, b"abc"),
            now: w.now,
            held: None,
        };
        w.call_with(req, b"abc").err()
    };
    assert_eq!(write(&mut w, 0), None);
    set(&mut w, f, FLAG_APPEND).expect("set");
    assert_eq!((write(&mut w, 2), write(&mut w, 3)), (Some(Code::Perm), None));
    set(&mut w, f, FLAG_IMMUTABLE).expect("set");
    assert_eq!(write(&mut w, 6), Some(Code::Perm));
}

#[test]
fn a_protected_directory_keeps_its_names() {
    for (flag, takes_new) in [(FLAG_IMMUTABLE, false), (FLAG_APPEND, true)] {
        let mut w = World::new();
        let d = w.dir(ROOT, "d");
        w.file(d, "old");
        set(&mut w, d, flag).expect("set");
        assert_eq!(w.create(d, "new").is_ok(), takes_new);
        assert_eq!(w.mkdir(d, "newdir", 0o755).is_ok(), takes_new);
        assert_eq!(w.unlink(d, "old", false).err(), Some(Code::Perm));
        assert_eq!(w.rename((d, "old"), (ROOT, "x"), 0, false).err(), Some(Code::Perm));
        w.file(ROOT, "in");
        assert_eq!(w.rename((ROOT, "in"), (d, "in"), 0, false).is_ok(), takes_new);
        assert_eq!(w.rmdir(ROOT, "d").err(), Some(Code::Perm));
    }
}

/// New entries have what their directory has, but not what protects it.
#[test]
fn a_directory_hands_its_notes_down() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    let before = w.file(d, "before");
    set(&mut w, d, FLAG_NODUMP | FLAG_NOATIME | FLAG_APPEND).expect("set");
    let (f, below) = (w.file(d, "f"), w.dir(d, "below"));
    let deep = w.file(below, "deep");
    let tmp = Tmpfile {
        parent: below,
        mode: 0o644,
        umask: 0,
        exclusive: false,
        now: w.now,
        cred: cred(0),
        want: Fid(0),
    };
    let tmp = w.call(tmp).expect("tmpfile").inode.attr.fid;
    for (fid, want) in [(before, 0), (f, 0xc0), (below, 0xc0), (deep, 0xc0), (tmp, 0xc0)] {
        assert_eq!(w.inode(fid).flags & FLAGS_KEPT, want, "{fid}");
    }
}
