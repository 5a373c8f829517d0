use types::*;

use crate::testing::*;
use crate::{keys, totals};

#[test]
fn the_last_name_takes_the_inode_along() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.link(f, ROOT, "g").expect("link");
    let now = w.now;
    assert_eq!(w.unlink(ROOT, "f", false), Ok((f, 1)));
    assert_eq!((w.attr(f).ctime, w.attr(ROOT).mtime, w.attr(ROOT).ctime), (now, now, now));
    assert_eq!(w.inode(f).parents.len(), 1);
    assert_eq!(w.unlink(ROOT, "g", false), Ok((f, 0)));
    assert!(w.is_gone(f));
    assert_eq!(totals(&w.txn).inodes, 1);
    assert_eq!(w.txn.records.len(), 3, "root, totals, and that directories are counted are left");
}

#[test]
fn a_held_file_becomes_an_orphan_with_its_last_name_only() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.link(f, ROOT, "g").expect("link");
    w.unlink(ROOT, "f", true).expect("unlink");
    assert!(!w.has(keys::orphan(f)));
    w.unlink(ROOT, "g", true).expect("unlink");
    assert!(w.has(keys::orphan(f)));
    assert_eq!((w.attr(f).nlink, w.inode(f).parents.len()), (0, 0));
}

#[test]
fn refusals() {
    let mut w = World::new();
    let tmp = w.mkdir(ROOT, "tmp", 0o1777).expect("mkdir").fid;
    w.dir(tmp, "d");
    w.file(tmp, "roots");
    w.who = ALICE;
    let own = w.file(tmp, "own");
    let table = [
        ("absent", tmp, "x", Code::NotFound),
        ("another's in a sticky directory", tmp, "roots", Code::Perm),
        ("no write on the directory", ROOT, "tmp", Code::Access),
        ("not a directory", own, "x", Code::NotDir),
        ("bad name", tmp, ".", Code::Invalid),
    ];
    for (name, parent, victim, want) in table {
        assert_eq!(w.unlink(parent, victim, false), Err(want), "{name}");
    }
    w.space = FULL;
    assert!(w.unlink(tmp, "own", false).is_ok(), "a full MDT lets go");
    w.who = 0;
    assert_eq!(w.unlink(tmp, "d", false), Err(Code::IsDir));
}
