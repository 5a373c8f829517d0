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
        (Fid(999), "f", Err(Code::Stale)),
        (ROOT, ".", Err(Code::Invalid)),
    ];
    for (parent, name, want) in table {
        assert_eq!(w.lookup(parent, name), want, "{name} in {parent}");
    }
    assert_eq!(w.call(GetAttr { fid: f }).map(|i| i.attr.fid), Ok(f));
    assert_eq!(w.call(GetAttr { fid: Fid(999) }), Err(Code::Stale));
    assert_eq!(w.call(ReadLink { fid: f }), Err(Code::Invalid));
}
