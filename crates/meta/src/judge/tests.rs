use types::*;
use wire::meta::*;
use wire::object::{Capability, Mac};

use crate::testing::*;

fn open(w: &mut World, fid: Fid, write: bool) -> Result<OpenReply, Code> {
    let (now, cred) = (w.now, Cred::root());
    let (append, truncate, keep_write, held) = (false, false, false, None);
    w.call(Open { fid, read: true, write, append, truncate, keep_write, held, now, cred })
}

/// The operations on a fid's content that `held` allows: read, write, grow and renew.
fn ask(w: &mut World, fid: Fid, held: Option<Capability>) -> [Option<Code>; 4] {
    let now = w.now;
    let crcs = types::crc::fragment_crcs(0, b"abc");
    let again = Open {
        fid,
        read: false,
        write: false,
        append: false,
        truncate: false,
        keep_write: true,
        held: held.clone(),
        now,
        cred: Cred::root(),
    };
    let place = Place::At(0);
    let write = WriteInline { fid, place, in_section: false, crcs, now, held: held.clone() };
    [
        w.call(ReadInline { fid, offset: 0, len: 3, held: held.clone() }).err(),
        w.call_with(write, b"abc").err(),
        w.call(again).err(),
        w.call(Grow { fid, now, held, avoid: vec![] }).err(),
    ]
}

fn take_privileges(w: &mut World, fid: Fid, held: Option<Capability>) -> Option<Code> {
    let (valid, now, t, cred) = (SET_KILLPRIV, w.now, Time::default(), cred(ALICE));
    w.call(SetAttr { fid, valid, mode: 0, uid: 0, gid: 0, atime: t, mtime: t, now, held, cred }).err()
}

/// [S-claims] meta-J2: for an operation by fid, a judged session proves its right by the capability of an open of that file.
#[test]
fn without_the_proof_of_an_open_nothing_of_the_content_is_had() {
    let mut w = World::new();
    let (f, other) = (w.file(ROOT, "f"), w.file(ROOT, "other"));
    w.set_owner(f, ALICE, ALICE);
    w.judged = Some(ALICE);
    let given = open(&mut w, f, true).expect("her own").cap.expect("a proof");
    let read_only = open(&mut w, f, false).expect("her own").cap;
    let elsewhere = open(&mut w, other, false).expect("all may read it").cap;
    let forged = Some(Capability { mac: Mac([2; 16]), ..given.clone() });
    let no = Some(Code::Access);
    for held in [None, elsewhere, forged] {
        assert_eq!(ask(&mut w, f, held.clone()), [no; 4], "{held:?}");
    }
    assert_eq!(ask(&mut w, f, read_only), [None, no, no, no]);
    // The proof is valid even if the file changed since.
    w.set_owner(f, BOB, BOB);
    w.set_mode(f, 0);
    assert_eq!(open(&mut w, f, false).err(), no);
    // Clearing the set-id bits before a write is a change of content too.
    assert_eq!([None, Some(given.clone())].map(|held| take_privileges(&mut w, f, held)), [no, None]);
    assert_eq!(ask(&mut w, f, Some(given)), [None; 4]);
}
