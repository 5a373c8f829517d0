use types::*;

use super::LINKS_MAX;
use crate::testing::*;

#[test]
fn links_share_an_inode_and_are_limited() {
    let mut w = World::new();
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    let now = w.now;
    assert_eq!(w.link(f, d, "g"), Ok(2));
    assert_eq!(w.lookup(d, "g"), Ok(f));
    assert_eq!((w.attr(f).ctime, w.attr(d).mtime), (now, now));
    assert!(w.attr(f).mtime < now, "the bytes did not change");
    assert_eq!(w.inode(f).parents.iter().map(|p| p.fid).collect::<Vec<_>>(), [ROOT, d]);
    let table = [
        ("a directory", d, ROOT, "e", Code::Perm),
        ("exists before directory", d, ROOT, "f", Code::Exists),
        ("exists", f, ROOT, "d", Code::Exists),
        ("no such file", Fid(99), ROOT, "x", Code::Stale),
        ("into a file", f, f, "x", Code::NotDir),
        ("bad name", f, ROOT, "", Code::Invalid),
    ];
    for (name, fid, parent, new, want) in table {
        assert_eq!(w.link(fid, parent, new), Err(want), "{name}");
    }
    w.who = ALICE;
    assert_eq!(w.link(f, ROOT, "x"), Err(Code::Access));
    w.who = 0;
    w.edit(f, |i| i.attr.nlink = LINKS_MAX - 1);
    assert_eq!(w.link(f, ROOT, "x"), Ok(65_000));
    assert_eq!(w.link(f, ROOT, "y"), Err(Code::TooManyLinks));
    w.full = true;
    assert_eq!(w.link(f, ROOT, "f"), Err(Code::Exists));
}

#[test]
fn an_orphan_gets_no_new_name_and_a_replay_finds_its_link() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.replay = true;
    assert_eq!(w.link(f, ROOT, "g"), Ok(2));
    assert_eq!(w.link(f, ROOT, "g"), Ok(2));
    w.replay = false;
    w.unlink(ROOT, "f", false).expect("unlink");
    w.unlink(ROOT, "g", true).expect("unlink");
    assert_eq!(w.link(f, ROOT, "h"), Err(Code::NotFound));
}
