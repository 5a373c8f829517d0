use types::*;

use super::*;
use crate::testing::*;

fn file(mode: u32, uid: u32, gid: u32) -> InodeRecord {
    let mut w = World::new();
    let fid = w.file(ROOT, "f");
    w.set_mode(fid, mode);
    w.set_owner(fid, uid, gid);
    w.inode(fid)
}

/// mode | owner, group | who | bits that are allowed
#[test]
fn the_first_class_that_matches_decides() {
    let table = [
        (0o754, (ALICE, 9), ALICE, 7),
        (0o754, (9, ALICE), ALICE, 5),
        (0o754, (9, CREW), ALICE, 5),
        (0o754, (9, CREW), BOB, 4),
        (0o000, (9, 9), 0, 7),
        // The owner has fewer rights than others: the owner's bits apply.
        (0o077, (ALICE, ALICE), ALICE, 0),
        (0o707, (9, CREW), ALICE, 0),
    ];
    for (mode, (uid, gid), who, allowed) in table {
        let f = file(mode, uid, gid);
        for wanted in 1..=7 {
            assert_eq!(
                allows(&f, &cred(who), wanted),
                wanted & allowed == wanted,
                "{mode:o} {who} wants {wanted}"
            );
        }
    }
}

/// directory's mode, owner | victim's owner | who | outcome
#[test]
fn the_sticky_bit_leaves_removal_to_owners() {
    let table = [
        (0o777, 9, 9, ALICE, None),
        (0o1777, 9, 9, ALICE, Some(Code::Perm)),
        (0o1777, 9, ALICE, ALICE, None),
        (0o1777, ALICE, 9, ALICE, None),
        (0o1777, 9, 9, 0, None),
        (0o1755, 9, ALICE, ALICE, Some(Code::Access)),
        (0o772, 9, ALICE, ALICE, Some(Code::Access)),
    ];
    for (mode, dir_owner, owner, who, want) in table {
        let (dir, victim) = (file(mode, dir_owner, 9), file(0, owner, 9));
        let got = need_remove(&dir, &victim, &cred(who)).err().map(|f| f.code);
        assert_eq!(got, want, "{mode:o} {dir_owner} {owner} {who}");
    }
}

/// As from an idmapped mount, whose kernel has checked already.
#[test]
fn a_checked_caller_is_refused_nothing_but_what_nobody_may() {
    let strangers = file(0o000, 0, 0);
    for cred in [Cred::checked(BOB, BOB), Cred::checked(u32::MAX, u32::MAX)] {
        assert!(allows(&strangers, &cred, READ | WRITE | EXEC) && is_owner(&strangers, &cred));
        assert!(keeps_setgid(&cred, 7));
        let mut immutable = strangers.clone();
        immutable.flags = FLAG_IMMUTABLE;
        assert!(need(&immutable, &cred, WRITE).is_err());
        assert!(!allows(&strangers, &cred.unchecked(), READ));
    }
}
