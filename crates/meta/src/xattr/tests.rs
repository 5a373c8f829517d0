use types::*;
use wire::codec::Bytes;
use wire::meta::*;

use super::XattrsRecord;
use crate::keys;
use crate::testing::*;

fn set(w: &mut World, fid: Fid, name: &str, value: &[u8], flags: u32) -> Result<(), Code> {
    let req = SetXattr { fid, name: bytes(name), value: value.into(), flags, now: w.now, cred: cred(w.who) };
    w.call(req).map(drop)
}
fn get(w: &mut World, fid: Fid, name: &str) -> Result<Vec<u8>, Code> {
    w.call(GetXattr { fid, name: bytes(name), cred: cred(w.who) }).map(|r| r.value.0)
}
fn list(w: &mut World, fid: Fid) -> Vec<Bytes> {
    w.call(ListXattr { fid, cred: cred(w.who) }).expect("list").names
}
fn remove(w: &mut World, fid: Fid, name: &str) -> Result<(), Code> {
    let req = RemoveXattr { fid, name: bytes(name), now: w.now, cred: cred(w.who) };
    w.call(req).map(drop)
}

/// [S-xattrs] Set, listed, removed; XATTR_CREATE and XATTR_REPLACE are obeyed.
#[test]
fn attributes_are_kept_listed_and_removed() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    assert_eq!(get(&mut w, f, "user.a"), Err(Code::NoData));
    assert_eq!(set(&mut w, f, "user.a", b"1", XATTR_REPLACE), Err(Code::NoData));
    assert_eq!(set(&mut w, f, "user.b", b"2", XATTR_CREATE), Ok(()));
    let now = w.now;
    assert_eq!(set(&mut w, f, "user.a", b"", 0), Ok(()));
    assert_eq!(w.attr(f).ctime, now);
    assert_eq!(set(&mut w, f, "user.b", b"3", XATTR_CREATE), Err(Code::Exists));
    assert_eq!(set(&mut w, f, "user.b", b"4", XATTR_REPLACE), Ok(()));
    assert_eq!((get(&mut w, f, "user.a"), get(&mut w, f, "user.b")), (Ok(vec![]), Ok(b"4".to_vec())));
    assert_eq!(list(&mut w, f), [bytes("user.a"), bytes("user.b")]);
    assert_eq!(remove(&mut w, f, "user.c"), Err(Code::NoData));
    assert_eq!(remove(&mut w, f, "user.a"), Ok(()));
    assert_eq!(remove(&mut w, f, "user.b"), Ok(()));
    assert!(list(&mut w, f).is_empty() && !w.has(keys::xattrs(f)), "no record without attributes");
    assert_eq!(set(&mut w, f, "user.a", b"", 4), Err(Code::Invalid));
}

/// space | name | user | outcome of set
#[test]
fn name_spaces_have_their_rules() {
    let long = format!("user.{}", "n".repeat(251));
    let table = [
        ("f", "user.x", ALICE, None),
        ("f", "user.x", BOB, Some(Code::Access)),
        ("d", "user.x", ALICE, None),
        ("sticky", "user.x", ALICE, Some(Code::Perm)),
        ("sticky", "user.x", 0, None),
        ("fifo", "user.x", 0, Some(Code::Perm)),
        ("f", "trusted.x", ALICE, Some(Code::Perm)),
        ("f", "trusted.x", 0, None),
        ("fifo", "security.x", 0, None),
        ("f", "system.posix_acl_access", 0, Some(Code::Invalid)),
        ("f", "system.x", 0, Some(Code::Unsupported)),
        ("f", "x", 0, Some(Code::Unsupported)),
        ("f", "user.", 0, Some(Code::Invalid)),
        ("f", "", 0, Some(Code::Range)),
        ("f", &long, ALICE, Some(Code::Range)),
        ("f", &long[..255], ALICE, None),
    ];
    for (what, name, who, want) in table {
        let mut w = World::new();
        let mut fifo = w.create_req(ROOT, "fifo");
        fifo.kind = Kind::Fifo;
        w.call(fifo).expect("mknod");
        for (dir, mode) in [("d", 0o755), ("sticky", 0o1777)] {
            w.mkdir(ROOT, dir, mode).expect("mkdir");
        }
        w.file(ROOT, "f");
        for mine in ["f", "d", "fifo"] {
            let fid = w.lookup(ROOT, mine).expect("there");
            w.set_owner(fid, ALICE, ALICE);
        }
        let fid = w.lookup(ROOT, what).expect("there");
        w.who = who;
        assert_eq!(set(&mut w, fid, name, b"v", 0).err(), want, "{what} {name} {who}");
        assert_eq!(get(&mut w, fid, name).is_ok(), want.is_none());
    }
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    assert_eq!(get(&mut w, f, "system.x"), Err(Code::Unsupported));
}

#[test]
fn values_take_64_kib_in_all() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    assert_eq!(set(&mut w, f, "user.a", &[1; 65_537], 0), Err(Code::TooLong));
    assert_eq!(set(&mut w, f, "user.a", &[1; 65_536], 0), Ok(()));
    assert_eq!(set(&mut w, f, "user.b", &[1], 0), Err(Code::NoSpace));
    assert_eq!(set(&mut w, f, "user.b", &[], 0), Ok(()));
    assert_eq!(get(&mut w, f, "user.a").map(|v| v.len()), Ok(65_536));
    w.space = FULL;
    assert_eq!(set(&mut w, f, "user.a", &[], 0), Err(Code::NoSpace));
    assert_eq!(remove(&mut w, f, "user.a"), Ok(()), "a full MDT lets go");
}

#[test]
fn the_record_is_pinned_and_refuses_what_it_did_not_write() {
    let record = XattrsRecord(vec![(b"user.a".to_vec(), b"xy".to_vec()), (b"user.b".to_vec(), vec![])]);
    let golden = b"\x01\x02\0\0\0\x06user.a\x02\0\0\0xy\x06user.b\0\0\0\0";
    assert_eq!(record.encode(), golden);
    assert_eq!(XattrsRecord::decode(golden), Ok(record));
    for cut in 0..golden.len() {
        assert!(XattrsRecord::decode(&golden[..cut]).is_err(), "cut at {cut}");
    }
    let unsorted = b"\x01\x02\0\0\0\x01b\0\0\0\0\x01a\0\0\0\0";
    assert!(XattrsRecord::decode(unsorted).is_err());
    assert!(XattrsRecord::decode(b"\x01\xff\xff\xff\xff").is_err());
}
