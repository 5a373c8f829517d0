use types::*;
use wire::meta::*;

use super::{ACCESS, DEFAULT};
use crate::testing::*;

/// The kernel's form of (tag, perm, id).
fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out
}
const NONE: u32 = u32::MAX;
/// user::rwx, user:BOB:rwx, group::r-x, mask::rwx, other::---
fn for_bob() -> Vec<u8> {
    value(&[(1, 7, NONE), (2, 7, BOB), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)])
}
fn minimal() -> Vec<u8> {
    value(&[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)])
}

fn set(w: &mut World, fid: Fid, name: &[u8], value: &[u8]) -> Result<(), Code> {
    let req =
        SetXattr { fid, name: name.into(), value: value.into(), flags: 0, now: w.now, cred: cred(w.who) };
    w.call(req).map(drop)
}
fn get(w: &mut World, fid: Fid, name: &[u8]) -> Result<Vec<u8>, Code> {
    w.call(GetXattr { fid, name: name.into(), cred: cred(w.who) }).map(|r| r.value.0)
}
fn may_write(w: &mut World, fid: Fid, who: u32) -> bool {
    let inode = w.inode(fid);
    crate::access::allows(&inode, &cred(who), crate::access::WRITE)
}

#[test]
fn an_acl_and_the_mode_stay_in_step() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    assert_eq!(get(&mut w, f, ACCESS), Err(Code::NoData));
    set(&mut w, f, ACCESS, &for_bob()).expect("set");
    assert_eq!((w.attr(f).mode, get(&mut w, f, ACCESS)), (0o770, Ok(for_bob())));
    assert!(may_write(&mut w, f, BOB) && !may_write(&mut w, f, ALICE));
    // chmod is about the mask.
    let t = Time::default();
    let chmod = SetAttr {
        fid: f,
        valid: SET_MODE,
        mode: 0o740,
        uid: 0,
        gid: 0,
        atime: t,
        mtime: t,
        now: w.now,
        held: None,
        cred: cred(0),
    };
    w.call(chmod).expect("chmod");
    assert!(!may_write(&mut w, f, BOB));
    let masked = value(&[(1, 7, NONE), (2, 7, BOB), (4, 5, NONE), (16, 4, NONE), (32, 0, NONE)]);
    assert_eq!(get(&mut w, f, ACCESS), Ok(masked));
    // One that a mode can say leaves only that.
    set(&mut w, f, ACCESS, &minimal()).expect("set");
    assert_eq!((w.attr(f).mode, get(&mut w, f, ACCESS)), (0o640, Err(Code::NoData)));
    let remove = RemoveXattr { fid: f, name: ACCESS.into(), now: w.now, cred: cred(0) };
    assert!(w.call(remove).is_ok(), "as ext4: what is not there may be removed");
}

#[test]
fn refusals() {
    let mut w = World::new();
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    assert_eq!(set(&mut w, f, DEFAULT, &for_bob()), Err(Code::Access));
    assert_eq!(set(&mut w, f, ACCESS, b"jun"), Err(Code::Invalid));
    w.who = BOB;
    assert_eq!(set(&mut w, d, DEFAULT, &for_bob()), Err(Code::Perm));
}

/// [S-acl] A default ACL is handed down in place of the umask, to directories whole.
#[test]
fn a_default_acl_is_handed_down() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    set(&mut w, d, DEFAULT, &for_bob()).expect("set");
    let mut req = w.create_req(d, "f");
    (req.mode, req.umask) = (0o666, 0o077);
    let f = w.call(req).expect("create").open.inode.attr;
    assert_eq!(f.mode, 0o660, "the umask does not count");
    assert!(may_write(&mut w, f.fid, BOB));
    let sub = w.dir(d, "sub");
    assert_eq!(get(&mut w, sub, DEFAULT), Ok(for_bob()));
    let list = w.call(ListXattr { fid: sub, cred: cred(0) }).expect("list").names;
    assert_eq!(list.iter().map(|n| &n.0[..]).collect::<Vec<_>>(), [ACCESS, DEFAULT]);
    // Elsewhere the umask counts.
    let mut req = w.create_req(ROOT, "g");
    (req.mode, req.umask) = (0o666, 0o077);
    assert_eq!(w.call(req).expect("create").open.inode.attr.mode, 0o600);
}

/// Linux ignores the ACL while the group class has no rights: a named user then counts as other.
#[test]
fn without_group_bits_the_mode_alone_decides() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    set(&mut w, f, ACCESS, &value(&[(1, 6, NONE), (2, 0, BOB), (4, 0, NONE), (16, 0, NONE), (32, 2, NONE)]))
        .expect("set");
    assert!(may_write(&mut w, f, BOB));
}
