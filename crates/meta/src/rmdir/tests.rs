use types::*;

use crate::testing::*;

#[test]
fn only_empty_directories_go() {
    let mut w = World::new();
    let d = w.dir(ROOT, "d");
    w.file(ROOT, "f");
    w.file(d, "f");
    let table = [
        ("d", Code::NotEmpty),
        ("f", Code::NotDir),
        ("x", Code::NotFound),
        (".", Code::Invalid),
        ("..", Code::NotEmpty),
        ("a/b", Code::Invalid),
    ];
    for (name, want) in table {
        assert_eq!(w.rmdir(ROOT, name), Err(want), "{name}");
    }
    w.who = ALICE;
    assert_eq!(w.rmdir(ROOT, "d"), Err(Code::Access));
    w.who = 0;
    w.unlink(d, "f", false).expect("unlink");
    let now = w.now;
    assert_eq!(w.rmdir(ROOT, "d"), Ok((d, 0)));
    assert!(w.is_gone(d));
    assert_eq!((w.attr(ROOT).nlink, w.attr(ROOT).mtime), (2, now));
    assert_eq!(w.create(d, "f"), Err(Code::NotFound), "nothing is made in what is gone");
}

/// The entries of the directory with the next fid do not count.
#[test]
fn emptiness_ends_at_the_next_directory() {
    let mut w = World::new();
    let (a, b) = (w.dir(ROOT, "a"), w.dir(ROOT, "b"));
    assert_eq!(b.0, a.0 + 1);
    w.file(b, "f");
    assert!(w.rmdir(ROOT, "a").is_ok());
    assert_eq!(w.rmdir(ROOT, "b"), Err(Code::NotEmpty));
}
