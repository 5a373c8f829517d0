use types::*;
use wire::meta::{PathOf, PathsOf};

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
    w.space = FULL;
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
    // Names with hints are removed first; the last name has no hint.
    w.unlink(ROOT, "f", false).expect("unlink");
    for n in 0..many {
        assert!(w.lookup(d, &format!("l{n}")) == Ok(f));
        assert_eq!(w.unlink(d, &format!("l{n}"), false), Ok((f, many - n - 1)));
        match w.call(PathOf { fid: f }) {
            Ok(reply) => assert_eq!(reply.path, bytes(&format!("/d/l{}", n + 1)), "the next one"),
            Err(code) => assert_eq!(code, if n + 1 == many { Code::Stale } else { Code::NotFound }),
        }
        // A renamed link gets a hint again.
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
fn a_fid_has_a_path_by_each_link() {
    let mut w = World::new();
    let (a, d) = (w.dir(ROOT, "a"), w.dir(ROOT, "d"));
    let (f, sub) = (w.file(a, "f"), w.dir(d, "sub"));
    w.link(f, sub, "g").unwrap();
    w.link(f, sub, "h").unwrap();
    let paths = |w: &mut World, fid| {
        w.call(PathsOf { fid }).map(|r| {
            let text = |p: &wire::codec::Bytes| String::from_utf8_lossy(&p.0).into_owned();
            (r.names, r.paths.iter().map(text).collect::<Vec<_>>())
        })
    };
    let of =
        |names: u32, paths: &[&str]| Ok((names, paths.iter().map(|p| p.to_string()).collect::<Vec<_>>()));
    assert_eq!(paths(&mut w, f), of(3, &["/a/f", "/d/sub/g", "/d/sub/h"]));
    assert_eq!(paths(&mut w, sub), of(1, &["/d/sub"]), "a directory has one, whatever its link count");
    assert_eq!(paths(&mut w, ROOT), of(1, &["/"]));
    // A directory that moves takes its whole tree along.
    w.rename((d, "sub"), (a, "moved"), 0, false).unwrap();
    w.unlink(a, "f", false).unwrap();
    assert_eq!(paths(&mut w, f), of(2, &["/a/moved/g", "/a/moved/h"]));
    w.unlink(sub, "g", false).unwrap();
    w.unlink(sub, "h", true).unwrap();
    assert_eq!(paths(&mut w, f), Err(Code::NotFound), "open, without a name");
    assert_eq!(paths(&mut w, Fid(99)), Err(Code::Stale));
    w.judged = Some(ALICE);
    assert_eq!(
        paths(&mut w, sub),
        Err(Code::Perm),
        "paths may lead through directories that are closed to others"
    );
}

/// A file with the most links, deep in the tree: paths that do not fit the reply are left out, and the number of names is reported.
#[test]
fn paths_are_as_many_as_an_answer_holds() {
    let mut w = World::new();
    let mut dir = ROOT;
    for _ in 0..40 {
        dir = w.dir(dir, &"d".repeat(250));
    }
    let f = w.file(dir, "f");
    for n in 0..200 {
        w.link(f, dir, &format!("l{n}")).unwrap();
    }
    let reply = w.call(PathsOf { fid: f }).unwrap();
    let bytes: usize = reply.paths.iter().map(|p| p.0.len()).sum();
    assert_eq!(reply.names, 201);
    assert!(bytes <= 1 << 20 && bytes > (1 << 20) - 11_000, "{bytes} bytes of {} paths", reply.paths.len());
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
