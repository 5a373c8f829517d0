use super::*;

fn acl(entries: &[(u16, u16, u32)]) -> Acl {
    Acl(entries.iter().map(|&(tag, perm, id)| AclEntry { tag, perm, id }).collect())
}
fn cred(uid: u32, groups: &[u32]) -> Cred {
    Cred { uid, gid: uid, groups: groups.to_vec() }
}

/// user::rwx, user:5:rw-, group::r--, group:9:-w-, mask::rw-, other::--x
fn sample() -> Acl {
    acl(&[
        (USER_OBJ, 7, NO_ID),
        (USER, 6, 5),
        (GROUP_OBJ, 4, NO_ID),
        (GROUP, 2, 9),
        (MASK, 6, NO_ID),
        (OTHER, 1, NO_ID),
    ])
}

/// user | groups | all that is allowed, as sets of bits that are requested together
#[test]
fn the_most_specific_entry_decides() {
    let table: [(u32, &[u32], &[u32]); 6] = [
        (5, &[], &[4, 2, 6]),
        // A named user: the groups do not apply.
        (5, &[3, 9], &[4, 2, 6]),
        (6, &[3], &[4]),
        (6, &[9], &[2]),
        // One entry alone must grant all requested rights.
        (6, &[3, 9], &[4, 2]),
        (6, &[], &[1]),
    ];
    for (who, groups, allowed) in table {
        for wanted in 1..8 {
            let got = sample().allows(3, &cred(who, groups), wanted);
            assert_eq!(got, allowed.contains(&wanted), "{who} {groups:?} {wanted}");
        }
    }
    let mut masked = sample();
    masked.set_mode(0o747);
    assert!(!masked.allows(3, &cred(5, &[]), 2), "the mask takes away");
    assert!(masked.allows(3, &cred(6, &[]), 7), "but not from others");
}

#[test]
fn the_value_is_the_kernels() {
    let bytes = sample().to_xattr();
    assert_eq!(bytes[..12], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255]);
    assert_eq!(bytes.len(), 4 + 6 * 8);
    assert_eq!(Acl::from_xattr(&bytes), Ok(sample()));
    assert_eq!(Acl::from_bytes(&sample().to_bytes()), Ok(sample()));
    assert_eq!(Acl::from_xattr(&bytes[..4]), Ok(Acl::default()));
    let code = |bytes: &[u8]| Acl::from_xattr(bytes).map_err(|f| f.code);
    assert_eq!(code(&bytes[..3]), Err(Code::Invalid));
    assert_eq!(code(&bytes[..11]), Err(Code::Invalid));
    assert_eq!(code(&[3, 0, 0, 0]), Err(Code::Unsupported));
    assert_eq!(code(&[&[2, 0, 0, 0][..], &[0; 512 * 8]].concat()), Err(Code::TooLong));
}

#[test]
fn lists_that_do_not_fit_together_are_refused() {
    let (u, g, o) = ((USER_OBJ, 7, NO_ID), (GROUP_OBJ, 4, NO_ID), (OTHER, 1, NO_ID));
    let (named, mask) = ((USER, 6, 5), (MASK, 6, NO_ID));
    assert!(acl(&[u, g, o]).is_valid() && acl(&[u, g, mask, o]).is_valid());
    let bad: [&[(u16, u16, u32)]; 8] = [
        &[u, g],
        &[u, u, g, o],
        &[g, u, o],
        &[u, named, g, o],
        &[u, named, g, mask, mask, o],
        &[u, (USER, 6, NO_ID), g, mask, o],
        &[(USER_OBJ, 8, NO_ID), g, o],
        &[u, g, (0x40, 1, NO_ID), o],
    ];
    for entries in bad {
        assert!(!acl(entries).is_valid(), "{entries:?}");
    }
}

/// default ACL's mode | requested mode | mode | access ACL's mode
#[test]
fn what_is_made_has_what_both_allow() {
    for (asked, mode) in [(0o666, 0o660), (0o777, 0o761), (0o600, 0o600), (0o4755, 0o4741)] {
        let (access, got) = sample().inherited(asked);
        assert_eq!((got, access.mode_bits()), (mode, mode & 0o777), "{asked:o}");
    }
    let minimal = acl(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 0, NO_ID)]);
    assert_eq!(minimal.inherited(0o666), (Acl::default(), 0o640), "a mode says it all");
}

#[test]
fn a_chmod_changes_the_mask_and_not_the_group() {
    let mut list = sample();
    list.set_mode(0o712);
    assert_eq!(list.mode_bits(), 0o712);
    assert_eq!(list.perm_of(GROUP_OBJ), Some(4));
    let mut bare = acl(&[(USER_OBJ, 7, NO_ID), (GROUP_OBJ, 5, NO_ID), (OTHER, 0, NO_ID)]);
    bare.set_mode(0o640);
    assert_eq!((bare.perm_of(GROUP_OBJ), bare.mode_bits()), (Some(4), 0o640));
}
