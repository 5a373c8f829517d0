use types::*;
use wire::meta::*;

use crate::keys;
use crate::records::decode_orphan;
use crate::testing::*;
use crate::{View, reap};

fn tmpfile(w: &mut World, parent: Fid, change: impl FnOnce(&mut Tmpfile)) -> Result<Attr, Code> {
    let mut req = Tmpfile {
        parent,
        mode: 0o666,
        umask: 0o022,
        exclusive: false,
        now: w.now,
        cred: cred(w.who),
        want: Fid(0),
    };
    change(&mut req);
    w.call(req).map(|r| r.inode.attr)
}

#[test]
fn a_file_without_a_name_is_an_orphan_until_it_gets_one() {
    let mut w = World::new();
    let made = tmpfile(&mut w, ROOT, |_| ()).expect("tmpfile");
    assert_eq!((made.nlink, made.mode, made.kind), (0, 0o644, Kind::File));
    let key = keys::orphan(made.fid);
    assert_eq!(w.txn.get(&key).map(|v| decode_orphan(&v)), Some(Ok(SessionId(7))));
    assert_eq!(w.link(made.fid, ROOT, "f"), Ok(1));
    assert!(!w.has(key), "it has a name now");
    assert_eq!(w.lookup(ROOT, "f"), Ok(made.fid));
    // The end of its holder no longer matters; after losing its names it cannot get one again.
    reap(&mut w.txn, made.fid).expect("reap");
    assert_eq!(w.unlink(ROOT, "f", true), Ok((made.fid, 0)));
    assert_eq!(w.link(made.fid, ROOT, "g"), Err(Code::NotFound));
}

#[test]
fn an_exclusive_one_gets_no_name_and_goes_with_its_session() {
    let mut w = World::new();
    let made = tmpfile(&mut w, ROOT, |r| r.exclusive = true).expect("tmpfile");
    assert_eq!(w.link(made.fid, ROOT, "f"), Err(Code::NotFound));
    reap(&mut w.txn, made.fid).expect("reap");
    assert!(w.is_gone(made.fid));
}

#[test]
fn it_is_made_as_a_file_in_that_directory_would_be() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    w.edit(d, |i| (i.attr.mode, i.attr.gid) = (0o2777, CREW));
    w.who = ALICE;
    assert_eq!(tmpfile(&mut w, d, |_| ()).map(|a| (a.uid, a.gid)), Ok((ALICE, CREW)));
    w.set_mode(d, 0o755);
    assert_eq!(tmpfile(&mut w, d, |_| ()).err(), Some(Code::Access));
    w.who = 0;
    let f = w.file(ROOT, "f");
    assert_eq!(tmpfile(&mut w, f, |_| ()).err(), Some(Code::NotDir));
}

#[test]
fn a_replay_finds_its_own_work_or_makes_it_again() {
    let mut w = World::new();
    w.replay = true;
    let made = tmpfile(&mut w, ROOT, |r| r.want = Fid(500)).expect("made anew").fid;
    assert_eq!(made, Fid(500));
    let again = tmpfile(&mut w, ROOT, |r| r.want = made).expect("found");
    assert_eq!(again.fid, made);
}
