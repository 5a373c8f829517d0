use types::*;
use wire::meta::{
    Create, CreateReply, CreateWith, FileState, OpenReply, Place, ReadInline, StripeSpec, WriteInline,
};

use crate::testing::*;
use crate::{Space, keys, totals};

fn create(w: &mut World, change: impl FnOnce(&mut Create)) -> Result<CreateReply, Code> {
    let mut req = w.create_req(ROOT, "f");
    change(&mut req);
    w.call(req)
}

/// name | change of the request | outcome
#[test]
fn refusals() {
    let mut w = World::new();
    let (f, _) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    type Change = Box<dyn Fn(&mut Create)>;
    let table: [(&str, Change, Code); 11] = [
        ("exists", Box::new(|_| ()), Code::Exists),
        ("a directory is there", Box::new(|r| (r.name, r.exclusive) = (bytes("d"), false)), Code::IsDir),
        ("long", Box::new(|r| r.name = bytes(&"x".repeat(256))), Code::NameTooLong),
        ("slash", Box::new(|r| r.name = bytes("a/b")), Code::Invalid),
        ("parent is a file", Box::new(move |r| (r.parent, r.name) = (f, bytes("g"))), Code::NotDir),
        ("parent is gone", Box::new(|r| r.parent = Fid(999)), Code::NotFound),
        ("no write on parent", Box::new(|r| (r.name, r.cred) = (bytes("g"), cred(ALICE))), Code::Access),
        ("exists before no write", Box::new(|r| r.cred = cred(ALICE)), Code::Exists),
        ("device by a user", Box::new(|r| (r.kind, r.cred) = (Kind::Block, cred(ALICE))), Code::Perm),
        ("a directory is no file", Box::new(|r| r.kind = Kind::Dir), Code::Invalid),
        (
            "no write on the file",
            Box::new(|r| (r.exclusive, r.write, r.cred) = (false, true, cred(ALICE))),
            Code::Access,
        ),
    ];
    let before = w.txn.records.clone();
    for (name, change, want) in table {
        assert_eq!(create(&mut w, change), Err(want), "{name}");
        assert!(w.txn.records == before, "{name}");
    }
    w.space = FULL;
    assert_eq!(create(&mut w, |r| r.name = bytes("g")), Err(Code::NoSpace));
    assert!(create(&mut w, |r| r.exclusive = false).is_ok(), "a full MDT still opens");
}

#[test]
fn a_file_is_made_with_all_its_records() {
    let mut w = World::new();
    let was = w.attr(ROOT);
    w.set_mode(ROOT, 0o777);
    w.who = ALICE;
    let now = w.now;
    let made = create(&mut w, |r| r.mode = 0o104640).expect("create");
    let attr = made.open.inode.attr;
    assert!(made.made && made.open.cap.is_none() && made.open.inode.state == FileState::Settled);
    assert_eq!((attr.kind, attr.mode, attr.nlink, attr.size), (Kind::File, 0o4640, 1, 0));
    assert_eq!((attr.uid, attr.gid), (ALICE, ALICE));
    assert_eq!([attr.atime, attr.mtime, attr.ctime, attr.btime], [now; 4]);
    let dir = w.attr(ROOT);
    assert_eq!((dir.mtime, dir.ctime, dir.atime, dir.nlink), (now, now, was.atime, 2));
    assert_eq!(w.inode(attr.fid).parents[0].fid, ROOT);
    assert_eq!(totals(&w.txn).inodes, 2);
}

#[test]
fn without_exclusive_what_is_there_is_opened() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    let again = create(&mut w, |r| (r.exclusive, r.write) = (false, true)).expect("open");
    assert!(!again.made && again.open.inode.attr.fid == f);
}

#[test]
fn special_files_keep_their_device_numbers() {
    let mut w = World::new();
    for (name, kind, kept) in
        [("c", Kind::Char, 77), ("b", Kind::Block, 77), ("p", Kind::Fifo, 0), ("s", Kind::Socket, 0)]
    {
        let made = create(&mut w, |r| (r.name, r.kind, r.rdev) = (bytes(name), kind, 77)).expect("mknod");
        assert_eq!((made.open.inode.attr.kind, made.open.inode.attr.rdev), (kind, kept));
    }
}

/// As on Linux: a whiteout leads to no driver.
#[test]
fn a_whiteout_is_made_by_everybody() {
    let mut w = World::new();
    w.set_mode(ROOT, 0o777);
    let mut mknod = |name: &str, kind, rdev| {
        create(&mut w, |r| (r.name, r.kind, r.rdev, r.cred) = (bytes(name), kind, rdev, cred(ALICE)))
            .map(|made| made.open.inode.attr.rdev)
    };
    assert_eq!(mknod("white", Kind::Char, 0), Ok(0));
    assert_eq!(mknod("null", Kind::Char, 0x103), Err(Code::Perm));
    assert_eq!(mknod("block", Kind::Block, 0), Err(Code::Perm));
}

/// directory's mode and group | user | requested mode | mode and group of the new file
#[test]
fn a_setgid_directory_hands_its_group_down() {
    let table = [
        (0o777, CREW, BOB, 0o2755, 0o2755, BOB),
        (0o2777, CREW, BOB, 0o644, 0o644, CREW),
        // Bob is not in the group, so his program must not run as it.
        (0o2777, CREW, BOB, 0o2755, 0o755, CREW),
        (0o2777, CREW, BOB, 0o2745, 0o2745, CREW),
        (0o2777, CREW, ALICE, 0o2755, 0o2755, CREW),
        (0o2777, CREW, 0, 0o2755, 0o2755, CREW),
    ];
    for (dir_mode, group, who, asked, mode, gid) in table {
        let mut w = World::new();
        w.set_mode(ROOT, dir_mode);
        w.set_owner(ROOT, 0, group);
        w.who = who;
        let attr = create(&mut w, |r| r.mode = asked).expect("create").open.inode.attr;
        assert_eq!((attr.mode, attr.gid), (mode, gid), "{dir_mode:o} {who} {asked:o}");
    }
}

#[test]
fn striping_is_inherited() {
    let mut w = World::new();
    let spec = StripeSpec { components: vec![], inline_max: Some(4096) };
    w.edit(ROOT, |i| i.spec = Some(spec.clone()));
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    let below = w.file(d, "g");
    for fid in [f, d, below] {
        assert_eq!(w.inode(fid).spec.as_ref(), Some(&spec));
    }
}

/// [S-replay] A replay assigns the fid of the first answer again. If the file survived, it is found and not refused.
#[test]
fn a_replay_makes_the_same_file_again() {
    let mut w = World::new();
    w.replay = true;
    let want = Fid(500);
    let first = create(&mut w, |r| r.want = want).expect("create");
    assert_eq!((first.made, first.open.inode.attr.fid), (true, want));
    let again = create(&mut w, |r| r.want = want).expect("its own work");
    assert_eq!((again.made, again.open.inode.attr), (true, first.open.inode.attr));
    assert_eq!(create(&mut w, |r| r.want = Fid(501)), Err(Code::Exists), "another's file");
    // A wanted fid that is in use, or that this MDT never assigned, is not honoured.
    for (name, taken) in [("g", want), ("h", ROOT), ("i", Fid(1 << 48 | 500))] {
        let other = create(&mut w, |r| (r.name, r.want) = (bytes(name), taken)).expect("create");
        assert_ne!(other.open.inode.attr.fid, taken);
    }
    w.replay = false;
    assert_eq!(create(&mut w, |r| r.want = want), Err(Code::Exists));
    let fresh = create(&mut w, |r| (r.name, r.want) = (bytes("j"), Fid(700))).expect("create");
    assert!(fresh.open.inode.attr.fid != Fid(700) && !w.has(keys::inode(Fid(700))));
}

/// A client makes files under fids that it was given, and asks again if it has no answer.
#[test]
fn a_file_is_made_once_under_the_fid_that_its_client_was_given() {
    let mut w = World::new();
    let want = Fid(500);
    let make =
        |w: &mut World, name: &str| create_with(w, b"bytes", |r| (r.name, r.want) = (bytes(name), want));
    let first = make(&mut w, "f").expect("made");
    assert_eq!(first.inode.attr.fid, want);
    assert_eq!(make(&mut w, "f").expect("its own work").inode.attr, first.inode.attr);
    // The fid is in use.
    assert_ne!(make(&mut w, "g").expect("made").inode.attr.fid, want);
    assert_eq!(create_with(&mut w, b"", |r| r.name = bytes("f")), Err(Code::Exists));
    // A judged session is given none.
    w.judged = Some(ALICE);
    w.set_mode(ROOT, 0o777);
    w.who = ALICE;
    let other = create_with(&mut w, b"", |r| (r.name, r.want) = (bytes("h"), Fid(700))).expect("made");
    assert_ne!(other.inode.attr.fid, Fid(700));
}

/// [S-claims] A false replay flag gives no access to another user's file.
#[test]
fn a_judged_session_replays_its_own_files_only() {
    let mut w = World::new();
    w.set_mode(ROOT, 0o777);
    let theirs = w.file(ROOT, "f");
    w.set_mode(theirs, 0o600);
    (w.replay, w.judged, w.who) = (true, Some(ALICE), ALICE);
    assert_eq!(create(&mut w, |r| r.want = theirs), Err(Code::Exists));
    assert_eq!(create(&mut w, |r| (r.want, r.exclusive, r.write) = (theirs, false, true)), Err(Code::Access));
    assert_eq!(create_with(&mut w, b"", |r| r.want = theirs), Err(Code::Exists));
    let mine = create(&mut w, |r| (r.name, r.want) = (bytes("g"), Fid(500))).expect("create");
    let again = create(&mut w, |r| (r.name, r.want) = (bytes("g"), Fid(500))).expect("her own work");
    assert_eq!(again.open.inode.attr, mine.open.inode.attr);
}

fn create_with(
    w: &mut World,
    content: &[u8],
    change: impl FnOnce(&mut CreateWith),
) -> Result<OpenReply, Code> {
    let mut req = w.create_with_req(ROOT, "f", content);
    change(&mut req);
    w.call_with(req, content)
}

fn content_of(w: &mut World, fid: Fid) -> Vec<u8> {
    let read = ReadInline { fid, offset: 0, len: 1 << 20, held: None };
    let mut out = Buf::new();
    let said =
        World::with_ctx(false, Space::AMPLE, |ctx| crate::inline::read_inline(ctx, &w.txn, read, &mut out));
    said.expect("it reads");
    out.to_vec()
}

/// One request leaves the same records as a create and a write.
#[test]
fn a_file_with_content_is_as_if_it_had_been_written() {
    for len in [0, 1, 4095, 4096, 4097, 20_000, INLINE_MAX as usize] {
        let content: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let (mut one, mut two) = (World::new(), World::new());
        let (now, written) = (Time::new(200, 1), Time::new(201, 2));
        let change = |r: &mut CreateWith| (r.now, r.written, r.mode, r.umask) = (now, written, 0o666, 0o22);
        let made = create_with(&mut one, &content, change).expect("create");
        let apart = create(&mut two, |r| (r.now, r.mode, r.umask, r.write) = (now, 0o666, 0o22, true));
        let fid = apart.expect("create").open.inode.attr.fid;
        let crcs = crc::fragment_crcs(0, &content);
        if len > 0 {
            let place = Place::At(0);
            let write = WriteInline { fid, place, in_section: true, crcs, now: written, held: None };
            two.call_with(write, &content).expect("write");
        }
        assert!(one.txn.records == two.txn.records && one.txn.notes == two.txn.notes, "{len} bytes");
        assert_eq!(made.inode.attr, two.attr(fid), "{len} bytes");
        assert!(content_of(&mut one, fid) == content);
        assert_eq!(one.attr(ROOT).mtime, now);
    }
}

/// name | change of the request | outcome
#[test]
fn a_file_with_content_is_refused_whole() {
    let mut w = World::new();
    w.file(ROOT, "there");
    let spec = StripeSpec { components: vec![], inline_max: Some(4096) };
    let small = w.dir(ROOT, "small");
    w.edit(small, |i| i.spec = Some(spec));
    type Change = Box<dyn Fn(&mut CreateWith)>;
    let table: [(&str, Change, Code); 7] = [
        ("exists", Box::new(|r| r.name = bytes("there")), Code::Exists),
        (
            "exists, and is asked for",
            Box::new(|r| (r.name, r.want) = (bytes("there"), Fid(500))),
            Code::Exists,
        ),
        ("long name", Box::new(|r| r.name = bytes(&"x".repeat(256))), Code::NameTooLong),
        ("no write on parent", Box::new(|r| r.cred = cred(ALICE)), Code::Access),
        ("parent is gone", Box::new(|r| r.parent = Fid(999)), Code::NotFound),
        ("longer than lies inline there", Box::new(move |r| r.parent = small), Code::NeedLayout),
        ("other bytes", Box::new(|r| r.crcs[1] ^= 1), Code::BadChecksum),
    ];
    let before = w.txn.records.clone();
    for (name, change, want) in table {
        assert_eq!(create_with(&mut w, &[1; 4097], change), Err(want), "{name}");
        assert!(w.txn.records == before, "{name}");
    }
    assert!(create_with(&mut w, &[1; 4096], |r| r.parent = small).is_ok());
    let long = vec![0; INLINE_MAX as usize + 1];
    assert_eq!(create_with(&mut w, &long, |_| ()), Err(Code::NeedLayout));
    w.space = Space { is_full: false, inline_max: 4095 };
    assert_eq!(create_with(&mut w, &[1; 4096], |_| ()), Err(Code::NeedLayout));
    assert!(create_with(&mut w, &[1; 4095], |r| r.name = bytes("shorter")).is_ok());
    w.space = FULL;
    assert_eq!(create_with(&mut w, &[1; 10], |_| ()), Err(Code::NoSpace));
}

/// meta-I5: an administrator lowers the limit between an answer and its replay, or while a file waits at its client.
#[test]
fn content_that_was_taken_under_a_higher_limit_is_kept() {
    let mut w = World::new();
    let small = w.dir(ROOT, "small");
    w.edit(small, |i| i.spec = Some(StripeSpec { components: vec![], inline_max: Some(10) }));
    let bytes = [5; 300];
    assert_eq!(create_with(&mut w, &bytes, |r| r.parent = small), Err(Code::NeedLayout));
    let shipped = create_with(&mut w, &bytes, |r| (r.parent, r.want) = (small, Fid(500))).expect("shipped");
    assert_eq!(shipped.inode.attr.size, 300);
    let crcs = crc::fragment_crcs(0, &bytes);
    let write = |w: &mut World, at| {
        let (place, now) = (Place::At(at), Time::new(900, 0));
        let crcs = crcs.clone();
        w.call_with(WriteInline { fid: Fid(500), place, in_section: true, crcs, now, held: None }, &bytes)
    };
    assert_eq!(write(&mut w, 0), Err(Code::NeedLayout), "a new request goes by the limit of now");
    w.replay = true;
    assert_eq!(write(&mut w, 0).expect("replayed").attr.size, 300);
}

/// [S-replay] A lost file is made again. If it survived and changed since, it stays as it is.
#[test]
fn a_replay_with_content_changes_nothing_that_is_there() {
    let mut w = World::new();
    w.replay = true;
    let want = Fid(500);
    let first = create_with(&mut w, b"first", |r| r.want = want).expect("create");
    assert_eq!(first.inode.attr.fid, want);
    let (crcs, now) = (crc::fragment_crcs(0, b"later"), Time::new(900, 0));
    w.call_with(
        WriteInline { fid: want, place: Place::At(0), in_section: true, crcs, now, held: None },
        b"later",
    )
    .expect("write");
    let before = w.txn.records.clone();
    let again = create_with(&mut w, b"first", |r| r.want = want).expect("its own work");
    assert!(again.inode.attr.fid == want && w.txn.records == before);
    assert_eq!(create_with(&mut w, b"first", |r| r.want = Fid(501)), Err(Code::Exists), "another's file");
}
