use types::*;
use wire::meta::MakeDir;

use crate::testing::*;

#[test]
fn a_directory_counts_in_its_parent() {
    let mut w = World::new();
    let now = w.now;
    let d = w.mkdir(ROOT, "d", 0o755).expect("mkdir");
    assert_eq!((d.kind, d.nlink, d.mode, d.size), (Kind::Dir, 2, 0o755, 4096));
    w.dir(d.fid, "e");
    w.file(d.fid, "f");
    assert_eq!((w.attr(ROOT).nlink, w.attr(d.fid).nlink), (3, 3));
    assert_eq!(w.attr(ROOT).mtime, now);
    assert_eq!(w.mkdir(ROOT, "d", 0o755), Err(Code::Exists));
    w.who = ALICE;
    assert_eq!(w.mkdir(ROOT, "d", 0o755), Err(Code::Exists));
    assert_eq!(w.mkdir(ROOT, "e", 0o755), Err(Code::Access));
    assert_eq!(w.mkdir(ROOT, "..", 0o755), Err(Code::Invalid));
}

/// parent's mode | requested mode | mode and group
#[test]
fn setgid_comes_from_the_parent_only() {
    for (parent, asked, mode, gid) in
        [(0o777, 0o7755, 0o1755, BOB), (0o2777, 0o755, 0o2755, CREW), (0o2777, 0o6700, 0o2700, CREW)]
    {
        let mut w = World::new();
        w.set_mode(ROOT, parent);
        w.set_owner(ROOT, 0, CREW);
        w.who = BOB;
        let d = w.mkdir(ROOT, "d", asked).expect("mkdir");
        assert_eq!((d.mode, d.gid, d.uid), (mode, gid, BOB), "{parent:o} {asked:o}");
    }
}

#[test]
fn a_replay_finds_its_directory() {
    let mut w = World::new();
    w.replay = true;
    let req = MakeDir {
        parent: ROOT,
        name: bytes("d"),
        mode: 0o755,
        now: w.now,
        cred: cred(0),
        want: Fid(600),
        umask: 0,
    };
    let first = w.call(req.clone()).expect("mkdir");
    assert_eq!(first.attr.fid, Fid(600));
    assert_eq!(w.call(req), Ok(first));
    assert_eq!(w.attr(ROOT).nlink, 3, "counted once");
}
