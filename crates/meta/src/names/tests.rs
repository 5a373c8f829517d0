use types::*;

use super::*;
use crate::testing::*;

#[test]
fn names_are_1_to_255_bytes_without_slash_and_nul() {
    let long = vec![b'x'; 255];
    let longer = vec![b'x'; 256];
    let table: [(&[u8], Option<Code>); 9] = [
        (b"a", None),
        (b"...", None),
        (b"\xff\x01 ", None),
        (&long, None),
        (&longer, Some(Code::NameTooLong)),
        (b"", Some(Code::Invalid)),
        (b".", Some(Code::Invalid)),
        (b"..", Some(Code::Invalid)),
        (b"a/b", Some(Code::Invalid)),
    ];
    for (name, want) in table {
        assert_eq!(validate(name).err().map(|f| f.code), want, "{:?}", String::from_utf8_lossy(name));
    }
    assert_eq!(validate(b"a\0").map_err(|f| f.code), Err(Code::Invalid));
}

/// names in the run of a hash by number | place of the tested name | free place for it
#[test]
fn colliding_names_take_the_lowest_free_number() {
    type Run = &'static [(u8, &'static str)];
    let table: [(Run, Option<u8>, Option<u8>); 6] = [
        (&[], None, Some(0)),
        (&[(0, "x")], None, Some(1)),
        (&[(0, "x"), (2, "y")], None, Some(1)),
        (&[(1, "x")], None, Some(0)),
        (&[(0, "x"), (1, "mine")], Some(1), None),
        (&[(3, "mine")], Some(3), None),
    ];
    for (run, found, free) in table {
        let mut w = World::new();
        run.iter().for_each(|(n, name)| w.collide(ROOT, "mine", *n, name, Fid(99)));
        // An entry next to the run does not count.
        let next = Parent { fid: ROOT, h64: h64(b"mine") + 256, collision: 0 };
        put_entry(&mut w.txn, next, Fid(98), Kind::File, b"neighbour");
        assert_eq!(
            find_entry(&w.txn, ROOT, b"mine").expect("sound").map(|f| f.at.collision),
            found,
            "{run:?}"
        );
        match find_slot(&w.txn, ROOT, b"mine").expect("sound") {
            Slot::Taken(f) => assert_eq!(Some(f.at.collision), found, "{run:?}"),
            Slot::Free(at) => assert_eq!(Some(at.collision), free, "{run:?}"),
        }
    }
}

#[test]
fn a_run_of_256_is_full_and_says_so() {
    let mut w = World::new();
    for n in 0..=255 {
        w.collide(ROOT, "mine", n, &format!("other{n}"), Fid(99));
    }
    assert_eq!(find_entry(&w.txn, ROOT, b"mine"), Ok(None));
    assert_eq!(w.create(ROOT, "mine"), Err(Code::NoSpace));
    remove_entry(&mut w.txn, Parent { fid: ROOT, h64: h64(b"mine"), collision: 200 });
    let fid = w.file(ROOT, "mine");
    assert_eq!((w.collision_of(ROOT, "mine"), w.lookup(ROOT, "mine")), (200, Ok(fid)));
}

/// Create, lookup, link, rename and remove work in a run with holes; parent hints have the right number.
#[test]
fn operations_work_on_colliding_names() {
    let mut w = World::new();
    w.collide(ROOT, "a", 0, "foreign", Fid(99));
    let a = w.file(ROOT, "a");
    assert_eq!((w.collision_of(ROOT, "a"), w.inode(a).parents[0].collision), (1, 1));
    remove_entry(&mut w.txn, Parent { fid: ROOT, h64: h64(b"a"), collision: 0 });
    assert_eq!(w.lookup(ROOT, "a"), Ok(a), "found behind the hole");
    assert_eq!(w.create(ROOT, "a"), Err(Code::Exists), "and not made again in the hole");
    w.collide(ROOT, "b", 0, "foreign2", Fid(99));
    w.rename((ROOT, "a"), (ROOT, "b"), 0, false).expect("rename");
    assert_eq!(w.inode(a).parents, [Parent { fid: ROOT, h64: h64(b"b"), collision: 1 }]);
    assert_eq!(w.unlink(ROOT, "b", false).map(|r| r.0), Ok(a));
    assert_eq!(w.lookup(ROOT, "b"), Err(Code::NotFound));
    assert!(w.is_gone(a));
}

#[test]
fn a_broken_entry_is_damage_and_not_absence() {
    let mut w = World::new();
    w.txn.put(keys::entry(ROOT, h64(b"a"), 0), vec![9, 9]);
    assert_eq!(w.lookup(ROOT, "a"), Err(Code::Damaged));
    assert_eq!(w.create(ROOT, "a"), Err(Code::Damaged));
    // The entry of another name is sound, but its inode does not exist.
    w.collide(ROOT, "lost", 0, "lost", Fid(77));
    assert_eq!(w.lookup(ROOT, "lost"), Err(Code::Damaged));
}
