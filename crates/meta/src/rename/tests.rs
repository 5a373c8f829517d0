use types::*;
use wire::meta::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, Rename, RenameReply};

use crate::testing::*;
use crate::{keys, names};

const MOVED: RenameReply = RenameReply { replaced: None, whiteout: Fid(0) };

/// A tree: /a/ad/ /a/f /b/bd/x /b/g /b/empty/
struct Tree {
    w: World,
    a: Fid,
    ad: Fid,
    f: Fid,
    b: Fid,
    bd: Fid,
    g: Fid,
    empty: Fid,
}

fn tree() -> Tree {
    let mut w = World::new();
    let (a, b) = (w.dir(ROOT, "a"), w.dir(ROOT, "b"));
    let (ad, bd, empty) = (w.dir(a, "ad"), w.dir(b, "bd"), w.dir(b, "empty"));
    let (f, g) = (w.file(a, "f"), w.file(b, "g"));
    w.file(bd, "x");
    Tree { w, a, ad, f, b, bd, g, empty }
}

/// name | from | to | flags | refusal
#[test]
fn refusals() {
    let Tree { mut w, a, ad, f, b, bd, .. } = tree();
    const EX: u32 = RENAME_EXCHANGE;
    let table = [
        ("absent", (a, "x"), (b, "y"), 0, Code::NotFound),
        ("parent is a file", (f, "x"), (b, "y"), 0, Code::NotDir),
        ("new parent is a file", (a, "f"), (f, "y"), 0, Code::NotDir),
        ("new parent is gone", (a, "f"), (Fid(99), "y"), 0, Code::NotFound),
        ("file over directory", (a, "f"), (b, "empty"), 0, Code::IsDir),
        ("directory over file", (a, "ad"), (b, "g"), 0, Code::NotDir),
        ("over a full directory", (a, "ad"), (b, "bd"), 0, Code::NotEmpty),
        ("over its own parent", (b, "bd"), (ROOT, "b"), 0, Code::NotEmpty),
        ("below itself", (ROOT, "a"), (ad, "x"), 0, Code::Invalid),
        ("into itself", (ROOT, "a"), (a, "x"), 0, Code::Invalid),
        ("below itself, over a file", (ROOT, "b"), (bd, "x"), 0, Code::Invalid),
        ("no replace", (a, "f"), (b, "g"), RENAME_NOREPLACE, Code::Exists),
        ("no replace, same", (a, "f"), (a, "f"), RENAME_NOREPLACE, Code::Exists),
        ("exchange with nothing", (a, "f"), (b, "y"), EX, Code::NotFound),
        ("exchange with what is below", (ROOT, "b"), (b, "bd"), EX, Code::Invalid),
        ("exchange with what is above", (b, "bd"), (ROOT, "b"), EX, Code::Invalid),
        ("both flags", (a, "f"), (b, "g"), 3, Code::Invalid),
        ("whiteout and exchange", (a, "f"), (b, "g"), RENAME_WHITEOUT | EX, Code::Invalid),
        ("whiteout, no replace", (a, "f"), (b, "g"), RENAME_WHITEOUT | RENAME_NOREPLACE, Code::Exists),
        ("whiteout of what is absent", (a, "x"), (b, "y"), RENAME_WHITEOUT, Code::NotFound),
        ("unknown flag", (a, "f"), (b, "y"), 8, Code::Invalid),
        ("dot", (a, "."), (b, "y"), 0, Code::Invalid),
        ("dotdot", (a, "f"), (b, ".."), 0, Code::Invalid),
    ];
    let before = w.txn.records.clone();
    for (name, from, to, flags, want) in table {
        assert_eq!(w.rename(from, to, flags, false), Err(want), "{name}");
        assert!(w.txn.records == before, "{name}");
    }
}

#[test]
fn a_file_moves_and_replaces() {
    let Tree { mut w, a, f, b, g, .. } = tree();
    let now = w.now;
    assert_eq!(w.rename((a, "f"), (b, "new"), 0, false), Ok(MOVED));
    assert_eq!((w.lookup(b, "new"), w.lookup(a, "f")), (Ok(f), Err(Code::NotFound)));
    for fid in [a, b] {
        assert_eq!((w.attr(fid).mtime, w.attr(fid).ctime), (now, now));
    }
    assert_eq!((w.attr(f).ctime, w.attr(a).nlink, w.attr(b).nlink), (now, 3, 4));
    // Over a file with two names: it loses one.
    w.link(g, a, "g2").expect("link");
    let replaced =
        w.rename((b, "new"), (b, "g"), 0, true).expect("rename").replaced.map(|r| (r.attr.fid, r.attr.nlink));
    assert_eq!(replaced, Some((g, 1)));
    assert_eq!((w.lookup(b, "g"), w.lookup(a, "g2")), (Ok(f), Ok(g)));
    assert!(!w.has(keys::orphan(g)));
    // Over its last name: the file is removed.
    let replaced =
        w.rename((b, "g"), (a, "g2"), 0, false).expect("rename").replaced.map(|r| (r.attr.fid, r.attr.nlink));
    assert_eq!(replaced, Some((g, 0)));
    assert!(w.is_gone(g) && !w.has(keys::orphan(g)));
    assert_eq!(w.inode(f).parents.len(), 1);
}

/// overlayfs moves a file away and needs its old name marked as removed in the same step.
#[test]
fn a_whiteout_takes_the_old_name() {
    for flags in [RENAME_WHITEOUT, RENAME_WHITEOUT | RENAME_NOREPLACE] {
        let Tree { mut w, a, f, b, .. } = tree();
        w.set_mode(a, 0o2755);
        w.set_owner(a, ALICE, 50);
        w.who = ALICE;
        w.set_mode(b, 0o777);
        let whiteout = w.rename((a, "f"), (b, "y"), flags, false).expect("rename").whiteout;
        assert_eq!((w.lookup(a, "f"), w.lookup(b, "y")), (Ok(whiteout), Ok(f)));
        let attr = w.attr(whiteout);
        assert_eq!((attr.kind, attr.rdev, attr.mode, attr.nlink), (Kind::Char, 0, 0, 1));
        assert_eq!((attr.uid, attr.gid), (ALICE, 50), "made by her, in a setgid directory");
        assert_eq!(w.inode(whiteout).parents[0].fid, a);
        assert_eq!(w.unlink(a, "f", false), Ok((whiteout, 0)));
    }
}

#[test]
fn a_whiteout_is_left_where_a_file_replaces_or_a_directory_goes() {
    let Tree { mut w, a, ad, f, b, g, .. } = tree();
    let reply = w.rename((a, "f"), (b, "g"), RENAME_WHITEOUT, false).expect("rename");
    assert_eq!(reply.replaced.map(|r| r.attr.fid), Some(g));
    assert_eq!((w.lookup(a, "f"), w.lookup(b, "g")), (Ok(reply.whiteout), Ok(f)));
    let (links_a, links_b) = (w.attr(a).nlink, w.attr(b).nlink);
    let reply = w.rename((a, "ad"), (b, "ad"), RENAME_WHITEOUT, false).expect("rename");
    assert_eq!((w.lookup(a, "ad"), w.lookup(b, "ad")), (Ok(reply.whiteout), Ok(ad)));
    assert_eq!((w.attr(a).nlink, w.attr(b).nlink), (links_a - 1, links_b + 1));
    // Within a directory.
    let inside = w.rename((b, "ad"), (b, "da"), RENAME_WHITEOUT, false).expect("rename").whiteout;
    assert_eq!((w.lookup(b, "ad"), w.lookup(b, "da"), w.attr(b).nlink), (Ok(inside), Ok(ad), links_b + 1));
    // Two names of one inode: nothing happens, so no whiteout is made.
    w.link(f, a, "f2").expect("link");
    assert_eq!(w.rename((b, "g"), (a, "f2"), RENAME_WHITEOUT, false), Ok(MOVED));
}

/// [S-exactly-once] A replay makes the whiteout of the first answer, if it may.
#[test]
fn a_replayed_whiteout_keeps_its_number() {
    let Tree { mut w, a, b, .. } = tree();
    let wanted = Fid(5_000);
    let req = |w: &World, name: &str, want| Rename {
        parent: a,
        name: bytes(name),
        new_parent: b,
        new_name: bytes("y"),
        flags: RENAME_WHITEOUT,
        hold: false,
        now: w.now,
        cred: cred(0),
        want,
    };
    w.replay = true;
    let first = req(&w, "f", wanted);
    assert_eq!(w.call(first).map(|r| r.whiteout), Ok(wanted));
    // Another file has the fid by now.
    w.unlink(b, "y", false).expect("unlink");
    w.file(a, "h");
    let second = req(&w, "h", wanted);
    let other = w.call(second).expect("rename").whiteout;
    assert!(other != wanted && w.lookup(a, "h") == Ok(other));
}

#[test]
fn a_full_mdt_makes_no_whiteout() {
    let Tree { mut w, a, b, .. } = tree();
    w.space = FULL;
    let before = w.txn.records.clone();
    assert_eq!(w.rename((a, "f"), (b, "g"), RENAME_WHITEOUT, false), Err(Code::NoSpace));
    assert!(w.txn.records == before);
    assert!(w.rename((a, "f"), (b, "g"), 0, false).is_ok());
}

#[test]
fn a_held_victim_becomes_an_orphan() {
    let Tree { mut w, a, b, f, g, empty, .. } = tree();
    w.rename((a, "f"), (b, "g"), 0, true).expect("rename");
    assert!(w.has(keys::orphan(g)) && w.attr(g).nlink == 0 && !w.has(keys::orphan(f)));
    // A directory too: a call that changes its attributes may be in progress.
    w.rename((a, "ad"), (b, "empty"), 0, true).expect("rename");
    assert!(w.has(keys::orphan(empty)) && w.attr(empty).nlink == 0);
    assert_eq!(w.create(empty, "f"), Err(Code::NotFound), "it takes no names");
}

#[test]
fn two_names_of_one_inode_both_stay() {
    let Tree { mut w, a, b, f, .. } = tree();
    w.link(f, b, "f2").expect("link");
    let before = w.txn.records.clone();
    for (to, flags) in [((b, "f2"), 0), ((b, "f2"), RENAME_EXCHANGE), ((a, "f"), 0)] {
        assert_eq!(w.rename((a, "f"), to, flags, false), Ok(MOVED));
        assert!(w.txn.records == before);
    }
}

/// Links and parent hints of directories follow, and so does the walk to the root.
#[test]
fn directories_move_and_replace_empty_ones() {
    let Tree { mut w, a, ad, b, bd, empty, .. } = tree();
    assert_eq!(w.rename((b, "bd"), (ad, "bd"), 0, false), Ok(MOVED));
    assert_eq!((w.attr(b).nlink, w.attr(ad).nlink, w.attr(bd).nlink), (3, 3, 2));
    assert_eq!(w.inode(bd).parents[0].fid, ad);
    assert_eq!(w.rename((ROOT, "a"), (bd, "a"), 0, false), Err(Code::Invalid), "now bd lies below a");
    let replaced = w
        .rename((ad, "bd"), (b, "empty"), 0, false)
        .expect("rename")
        .replaced
        .map(|r| (r.attr.fid, r.attr.nlink));
    assert_eq!(replaced, Some((empty, 0)));
    assert!(w.is_gone(empty));
    assert_eq!((w.attr(b).nlink, w.attr(ad).nlink), (3, 2));
    // In one directory, over an empty one.
    w.dir(b, "e2");
    w.rename((b, "empty"), (b, "e2"), 0, false).expect("rename");
    assert_eq!((w.attr(b).nlink, w.attr(a).nlink), (3, 3));
    assert_eq!(w.lookup(b, "e2"), Ok(bd));
}

#[test]
fn exchange_swaps_names_and_counts() {
    let Tree { mut w, a, ad, b, f, g, .. } = tree();
    assert_eq!(w.rename((a, "f"), (b, "g"), RENAME_EXCHANGE, true), Ok(MOVED));
    assert_eq!((w.lookup(a, "f"), w.lookup(b, "g")), (Ok(g), Ok(f)));
    assert_eq!((w.inode(g).parents[0].fid, w.inode(f).parents[0].fid), (a, b));
    let found = names::need_entry(&w.txn, a, b"f").expect("there");
    assert_eq!(w.inode(g).parents, [found.at]);
    // A directory and a file: the link counts move.
    assert_eq!(w.rename((a, "ad"), (b, "g"), RENAME_EXCHANGE, false), Ok(MOVED));
    assert_eq!((w.lookup(a, "ad"), w.lookup(b, "g")), (Ok(f), Ok(ad)));
    assert_eq!((w.attr(a).nlink, w.attr(b).nlink), (2, 5));
    assert_eq!(names::need_entry(&w.txn, b, b"g").map(|e| e.entry.kind), Ok(Kind::Dir));
    assert_eq!((w.attr(f).nlink, w.attr(ad).nlink), (1, 2));
}

/// user | change of modes | from | to | outcome
#[test]
fn rights() {
    type Case = (&'static str, u32, u32, u32, u32, &'static str, Option<Code>);
    // name | modes of a, b, ad | ad's owner | source | outcome; Alice asks, a and b belong to another user.
    let table: [Case; 8] = [
        ("a file", 0o777, 0o777, 0o755, 0, "f", None),
        ("no write on a", 0o755, 0o777, 0o755, 0, "f", Some(Code::Access)),
        ("no write on b", 0o777, 0o755, 0o755, 0, "f", Some(Code::Access)),
        ("no search on b", 0o777, 0o776, 0o755, 0, "f", Some(Code::Access)),
        ("sticky a", 0o1777, 0o777, 0o755, 0, "f", Some(Code::Perm)),
        ("another's directory to a new parent", 0o777, 0o777, 0o755, 0, "ad", Some(Code::Access)),
        ("one that she may write", 0o777, 0o777, 0o757, 0, "ad", None),
        ("her own in a sticky directory", 0o1777, 0o777, 0o755, ALICE, "ad", None),
    ];
    for (name, mode_a, mode_b, mode_ad, owner, source, want) in table {
        let Tree { mut w, a, b, ad, .. } = tree();
        [(a, mode_a), (b, mode_b), (ad, mode_ad)].into_iter().for_each(|(fid, mode)| w.set_mode(fid, mode));
        w.set_owner(ad, owner, owner);
        w.who = ALICE;
        assert_eq!(w.rename((a, source), (b, "new"), 0, false).err(), want, "{name}");
    }
    // Within one parent the moved directory itself is not written to.
    let Tree { mut w, a, .. } = tree();
    w.set_mode(a, 0o777);
    w.who = ALICE;
    assert_eq!(w.rename((a, "ad"), (a, "ad2"), 0, false), Ok(MOVED));
    w.space = FULL;
    assert_eq!(w.rename((a, "ad2"), (a, "ad3"), 0, false), Err(Code::NoSpace));
}

#[test]
fn a_sticky_target_directory_protects_what_would_be_replaced() {
    let Tree { mut w, a, b, .. } = tree();
    w.set_mode(a, 0o777);
    w.set_mode(b, 0o1777);
    w.who = ALICE;
    assert_eq!(w.rename((a, "f"), (b, "g"), 0, false), Err(Code::Perm));
    assert_eq!(w.rename((a, "f"), (b, "g"), RENAME_EXCHANGE, false), Err(Code::Perm));
    assert_eq!(w.rename((a, "f"), (b, "new"), 0, false), Ok(MOVED));
}
