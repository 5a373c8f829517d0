use types::*;
use wire::meta::{GetAttr, ReadLink};

use crate::testing::*;

#[test]
fn lookup_tells_why_a_name_is_not_found() {
    let mut w = World::new();
    let (f, d) = (w.file(ROOT, "f"), w.dir(ROOT, "d"));
    let table = [
        (ROOT, "f", Ok(f)),
        (ROOT, "d", Ok(d)),
        (d, "f", Err(Code::NotFound)),
        (f, "f", Err(Code::NotDir)),
        (Fid(999), "f", Err(Code::NotFound)),
        (ROOT, ".", Err(Code::Invalid)),
    ];
    for (parent, name, want) in table {
        assert_eq!(w.lookup(parent, name), want, "{name} in {parent}");
    }
    assert_eq!(w.call(GetAttr { fid: f }).map(|i| i.attr.fid), Ok(f));
    assert_eq!(w.call(GetAttr { fid: Fid(999) }), Err(Code::Stale));
    assert_eq!(w.call(ReadLink { fid: f }), Err(Code::Invalid));
}

#[test]
fn dot_dot_leads_to_the_parent_also_after_a_rename_and_the_root_is_its_own() {
    let mut w = World::new();
    let (f, d, e) = (w.file(ROOT, "f"), w.dir(ROOT, "d"), w.dir(ROOT, "e"));
    let below = w.dir(d, "below");
    for (dir, want) in [(ROOT, Ok(ROOT)), (d, Ok(ROOT)), (below, Ok(d)), (f, Err(Code::NotDir))] {
        assert_eq!(w.lookup(dir, ".."), want, ".. of {dir}");
    }
    w.rename((d, "below"), (e, "moved"), 0, false).unwrap();
    assert_eq!(w.lookup(below, ".."), Ok(e));
    w.rmdir(e, "moved").unwrap();
    assert_eq!(w.lookup(below, ".."), Err(Code::NotFound));
}

#[test]
fn dot_dot_needs_search_permission_and_a_parent_that_is_known() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    let below = w.dir(d, "below");
    w.set_mode(below, 0o700);
    w.set_owner(below, 7, 7);
    w.who = 8;
    assert_eq!(w.lookup(below, ".."), Err(Code::Access));
    w.who = 7;
    assert_eq!(w.lookup(below, ".."), Ok(d));
    w.edit(below, |i| i.parents.clear());
    assert_eq!(w.lookup(below, ".."), Err(Code::Damaged));
    w.edit(below, |i| i.parents.push(crate::records::Parent { fid: Fid(999), h64: 0, collision: 0 }));
    assert_eq!(w.lookup(below, ".."), Err(Code::Damaged));
}
