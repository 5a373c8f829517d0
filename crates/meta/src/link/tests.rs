use types::*;
use wire::meta::PathOf;

use super::LINKS_MAX;
use crate::inode::HINTS_MAX;
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
fn links_beyond_the_hints_count_and_the_record_stays_small() {
    let mut w = World::new();
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    let many = HINTS_MAX as u32 + 100;
    for n in 0..many {
        assert_eq!(w.link(f, d, &format!("l{n}")), Ok(n + 2));
    }
    assert_eq!(w.inode(f).parents.len(), HINTS_MAX);
    assert!(w.inode(f).encode().len() < 8192);
    // Those with hints go first; what is left has a name but no hint.
    w.unlink(ROOT, "f", false).expect("unlink");
    for n in 0..many {
        assert!(w.lookup(d, &format!("l{n}")) == Ok(f));
        assert_eq!(w.unlink(d, &format!("l{n}"), false), Ok((f, many - n - 1)));
        match w.call(PathOf { fid: f }) {
            Ok(reply) => assert_eq!(reply.path, bytes(&format!("/d/l{}", n + 1)), "the next one"),
            Err(code) => assert_eq!(code, if n + 1 == many { Code::Stale } else { Code::NotFound }),
        }
        // A link that is renamed is remembered again.
        if n + 2 == many {
            let (from, to) = (format!("l{}", n + 1), "last");
            w.rename((d, &from), (ROOT, to), 0, false).expect("rename");
            assert_eq!(w.call(PathOf { fid: f }).map(|r| r.path), Ok(bytes("/last")));
            w.rename((ROOT, to), (d, &from), 0, false).expect("rename");
        }
    }
    assert!(w.is_gone(f));
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
