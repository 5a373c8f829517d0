use types::*;
use wire::meta::{Release, SetXattr};

use super::*;
use crate::testing::*;
use crate::totals;

fn layout(generation: u32) -> Layout {
    let component =
        Component { end: u64::MAX, stripe_size: 1 << 20, mirrors: vec![MirrorId(4)], written: vec![1] };
    Layout { generation: Generation(generation), components: vec![component] }
}

#[test]
fn all_records_of_an_inode_go_and_its_objects_are_listed() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    w.edit(f, |i| (i.layout, i.pending) = (Some(layout(3)), Some(layout(4))));
    let set =
        SetXattr { fid: f, name: bytes("user.a"), value: bytes("b"), flags: 0, now: w.now, cred: cred(0) };
    w.call(set).expect("setxattr");
    w.unlink(ROOT, "f", false).expect("unlink");
    let left: Vec<u8> = w.txn.records.keys().map(|k| k.as_bytes()[0]).collect();
    assert_eq!(left, [keys::INODE, keys::DEAD, keys::DEAD, keys::TOTAL, keys::COUNTS]);
    assert_eq!(dead_list(&w.txn, 10), [(f, layout(3)), (f, layout(4))]);
    assert_eq!(dead_list(&w.txn, 1), [(f, layout(3))]);
    let dead: Vec<_> = w.txn.records.keys().filter(|k| is_dead(k)).copied().collect();
    assert_eq!(dead, [3, 4].map(|n| keys::dead(f, Generation(n))));
    forget_dead(&mut w.txn, f, Generation(3));
    assert_eq!(dead_list(&w.txn, 10), [(f, layout(4))]);
}

#[test]
fn inline_pages_go_with_their_file_only() {
    let mut w = World::new();
    let (f, g) = (w.file(ROOT, "f"), w.file(ROOT, "g"));
    for (fid, page) in [(f, 0), (f, 15), (g, 0)] {
        w.txn.put(keys::inline(fid, page), crate::records::InlinePage::encode(b"x"));
    }
    w.unlink(ROOT, "f", false).expect("unlink");
    assert!(!w.has(keys::inline(f, 0)) && !w.has(keys::inline(f, 15)) && w.has(keys::inline(g, 0)));
}

/// [S-unlinked-open] Orphans live until `Release`, or until the end of their session.
#[test]
fn orphans_end_by_release_or_with_their_session() {
    let mut w = World::new();
    let (f, g) = (w.file(ROOT, "f"), w.file(ROOT, "g"));
    w.edit(f, |i| i.layout = Some(layout(1)));
    w.unlink(ROOT, "f", true).expect("unlink");
    w.unlink(ROOT, "g", true).expect("unlink");
    assert_eq!(orphans(&w.txn, Fid(0), 9), [(f, SessionId(7)), (g, SessionId(7))]);
    assert_eq!(orphans(&w.txn, f, 9), [(g, SessionId(7))], "a page goes on behind the last");
    assert_eq!(orphans(&w.txn, Fid(0), 1), [(f, SessionId(7))]);
    assert_eq!(totals(&w.txn).inodes, 3, "they still take an inode each");
    w.call(Release { fid: f }).expect("release");
    assert!(w.is_gone(f) && !w.has(keys::orphan(f)));
    assert_eq!(dead_list(&w.txn, 10), [(f, layout(1))]);
    w.call(Release { fid: f }).expect("again is fine");
    w.call(Release { fid: ROOT }).expect("no orphan is fine");
    reap(&mut w.txn, g).expect("reap");
    assert!(w.is_gone(g) && orphans(&w.txn, Fid(0), 9).is_empty());
    assert_eq!(totals(&w.txn).inodes, 1);
}
