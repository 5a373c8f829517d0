use std::collections::BTreeSet;

use types::*;
use wire::meta::{ReadDir, ReadDirReply};

use super::*;
use crate::testing::*;

fn page(w: &mut World, dir: Fid, cookie: u64, max: u32) -> ReadDirReply {
    w.call(ReadDir { dir, cookie, max, plus: false, cred: Cred::root() }).expect("readdir")
}

/// [S-big-directory] Entries that stay are listed exactly once while others come and go.
#[test]
fn what_stays_is_listed_once_while_others_come_and_go() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    for n in 0..200 {
        w.file(d, &format!("stay{n}"));
    }
    for n in 0..50 {
        w.file(d, &format!("go{n}"));
    }
    let (mut cookie, mut seen, mut n) = (0, Vec::new(), 0);
    loop {
        let p = page(&mut w, d, cookie, 9);
        assert_eq!(p.parent, ROOT);
        seen.extend(p.entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
        cookie = p.entries.last().map_or(cookie, |e| e.cookie);
        if n < 50 {
            w.unlink(d, &format!("go{n}"), false).expect("unlink");
            w.file(d, &format!("come{n}"));
        }
        n += 1;
        if !p.more {
            break;
        }
    }
    let stayed: Vec<&String> = seen.iter().filter(|s| s.starts_with("stay")).collect();
    assert_eq!((stayed.len(), stayed.iter().collect::<BTreeSet<_>>().len()), (200, 200));
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "nothing twice");
}

#[test]
fn pages_split_within_a_run_of_collisions() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    (1..=255).for_each(|n| w.collide(ROOT, "f", n, &format!("x{n}"), f));
    let (mut cookie, mut count) = (0, 0);
    loop {
        let p = page(&mut w, ROOT, cookie, 1);
        let Some(e) = p.entries.first() else { break };
        assert!(
            e.cookie > cookie && e.cookie > types::hash::COOKIE_DOTDOT && i64::try_from(e.cookie).is_ok()
        );
        (cookie, count) = (e.cookie, count + 1);
    }
    assert_eq!(count, 256);
}

#[test]
fn pages_are_bounded_in_entries_and_bytes() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    let name = |n: usize| format!("{n:0>200}");
    for n in 0..ENTRIES_MAX + 10 {
        let at = Parent { fid: d, h64: h64(name(n).as_bytes()), collision: 0 };
        names::put_entry(&mut w.txn, at, ROOT, Kind::File, name(n).as_bytes());
    }
    let p = page(&mut w, d, 0, u32::MAX);
    assert!(p.entries.len() == ENTRIES_MAX && p.more);
    assert_eq!(page(&mut w, d, 0, 0).entries.len(), 1);
    // With inodes of 1,000 stripes each the bytes end the page.
    let big = w.file(ROOT, "big");
    let stripes = (0..1000).map(MirrorId).collect();
    let component = Component { end: u64::MAX, stripe_size: 1 << 20, mirrors: stripes, written: vec![] };
    w.edit(big, |i| i.layout = Some(Layout { generation: Generation(1), components: vec![component] }));
    for n in 0..1000 {
        let at = Parent { fid: d, h64: h64(name(n).as_bytes()), collision: 0 };
        names::put_entry(&mut w.txn, at, big, Kind::File, name(n).as_bytes());
    }
    let p =
        w.call(ReadDir { dir: d, cookie: 0, max: 4096, plus: true, cred: Cred::root() }).expect("readdir");
    let body = wire::Wire::to_bytes(&p).len();
    assert!(p.more && body > BYTES_MAX / 2 && body < BYTES_MAX + 10_000, "{body} bytes");
    assert!(p.entries.iter().all(|e| e.inode.as_ref().is_some_and(|i| i.attr.fid == e.fid)));
}

#[test]
fn what_is_no_directory_is_refused() {
    let mut w = World::new();
    let f = w.file(ROOT, "f");
    for (dir, want) in [(f, Code::NotDir), (Fid(99), Code::NotFound)] {
        assert_eq!(w.call(ReadDir { dir, cookie: 0, max: 10, plus: false, cred: Cred::root() }), Err(want));
    }
    let empty = w.dir(ROOT, "d");
    assert_eq!(page(&mut w, empty, 0, 10), ReadDirReply { parent: ROOT, entries: vec![], more: false });
    assert!(page(&mut w, ROOT, u64::MAX, 10).entries.is_empty());
}
