use types::*;
use wire::meta::{Create, CreateReply, FileState, StripeSpec};

use crate::testing::*;
use crate::{keys, totals};

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
        ("parent is gone", Box::new(|r| r.parent = Fid(999)), Code::Stale),
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
    w.full = true;
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

/// directory's mode and group | who | asked mode | mode and group of what is made
#[test]
fn a_setgid_directory_hands_its_group_down() {
    let table = [
        (0o777, CREW, BOB, 0o2755, 0o2755, BOB),
        (0o2777, CREW, BOB, 0o644, 0o644, CREW),
        // Bob is not in the group: his program must not run as it.
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

/// [S-replay] The fid that the first answer gave is given again; what survived is found, not refused.
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
    // A wanted fid that is taken, or was never ours to give, is not honoured.
    for (name, taken) in [("g", want), ("h", ROOT), ("i", Fid(1 << 48 | 500))] {
        let other = create(&mut w, |r| (r.name, r.want) = (bytes(name), taken)).expect("create");
        assert_ne!(other.open.inode.attr.fid, taken);
    }
    w.replay = false;
    assert_eq!(create(&mut w, |r| r.want = want), Err(Code::Exists));
    let fresh = create(&mut w, |r| (r.name, r.want) = (bytes("j"), Fid(700))).expect("create");
    assert!(fresh.open.inode.attr.fid != Fid(700) && !w.has(keys::inode(Fid(700))));
}
