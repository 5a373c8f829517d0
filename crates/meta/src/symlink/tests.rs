use types::*;
use wire::meta::{ReadLink, Symlink};

use crate::testing::*;

/// target's length | outcome
#[test]
fn targets_are_1_to_4095_bytes() {
    let mut w = World::new();
    for (len, want) in
        [(0, Err(Code::NotFound)), (1, Ok(1)), (4095, Ok(4095)), (4096, Err(Code::NameTooLong))]
    {
        let target = bytes(&"t".repeat(len));
        let name = bytes(&format!("s{len}"));
        let req =
            Symlink { parent: ROOT, name, target: target.clone(), now: w.now, cred: cred(0), want: Fid(0) };
        let made = w.call(req);
        assert_eq!(made.as_ref().map(|i| i.attr.size).map_err(|c| *c), want);
        if let Ok(inode) = made {
            assert_eq!((inode.attr.kind, inode.attr.mode), (Kind::Symlink, 0o777));
            assert_eq!(w.call(ReadLink { fid: inode.attr.fid }).map(|r| r.target), Ok(target));
        }
    }
    // O_CREAT does not follow it here: the caller looks the target up.
    let mut create = w.create_req(ROOT, "s1");
    create.exclusive = false;
    assert_eq!(w.call(create), Err(Code::Exists));
}
