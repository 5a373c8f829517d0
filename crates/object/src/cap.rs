//! Capabilities: makes the one that an open hands out for OST access, and checks it before every OST request.
//!
//! A capability is signed with the file system's secret, which clients never see: 16 bytes of keyed BLAKE3 over every other field.
//! object-C1: a capability with any field changed does not pass.  object-C2: an expired one does not pass.  object-C3: it opens the
//! objects of its fid and generation only, unless it carries `RIGHT_ADMIN` (servers and tools).

use types::{Code, Fault, Fid, Generation, ObjectId, SessionId, Uuid};
use wire::object::{Capability, Mac, RIGHT_ADMIN, RIGHT_READ, RIGHT_WRITE};

use crate::LeaseVersion;

/// Rights that exist. Unknown bits are refused, so that an old capability cannot gain a meaning that a later version adds.
const RIGHTS_ALL: u8 = RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN;

/// Signs access to the objects of `(fid, generation)` for `session` until `expiry_sec` (seconds since 1970).
pub fn make(
    secret: &Uuid,
    fid: Fid,
    generation: Generation,
    rights: u8,
    lease: LeaseVersion,
    session: SessionId,
    expiry_sec: u64,
) -> Capability {
    let mut cap = Capability {
        fid,
        generation,
        rights,
        lease_epoch: lease.epoch,
        lease_counter: lease.counter,
        session,
        expiry_sec,
        mac: Mac::default(),
    };
    cap.mac = mac_of(secret, &cap);
    debug_assert!(
        expiry_sec == 0
            || rights & !RIGHTS_ALL != 0
            || check_right(secret, &cap, rights, expiry_sec - 1).is_ok(),
        "object-C1: an unchanged capability passes until it expires"
    );
    cap
}

/// Signs access to every object, for a server (purge) or a tool (fsck). It has no lease version, so it neither fences nor is fenced.
pub fn make_admin(secret: &Uuid, expiry_sec: u64) -> Capability {
    let rights = RIGHT_READ | RIGHT_WRITE | RIGHT_ADMIN;
    make(secret, Fid(0), Generation(0), rights, LeaseVersion::NONE, SessionId(0), expiry_sec)
}

/// Checks that `cap` gives `right` on `object` at `now_sec` (seconds since 1970). Refuses with `Fenced`.
pub fn check(
    secret: &Uuid,
    cap: &Capability,
    object: &ObjectId,
    right: u8,
    now_sec: u64,
) -> Result<(), Fault> {
    check_right(secret, cap, right, now_sec)?;
    if is_admin(cap) || (cap.fid == object.fid && cap.generation == object.generation) {
        return Ok(());
    }
    Err(refused(format!("it is for file {} {}, the request for object {object}", cap.fid, cap.generation)))
}

/// As `check`, for requests that name no object (lists, damage).
pub fn check_right(secret: &Uuid, cap: &Capability, right: u8, now_sec: u64) -> Result<(), Fault> {
    // The signature is checked first: no other field can be trusted before it holds.
    if !same(&mac_of(secret, cap).0, &cap.mac.0) {
        return Err(refused(format!("its signature is wrong (file {})", cap.fid)));
    }
    if cap.rights & !RIGHTS_ALL != 0 {
        return Err(refused(format!("its rights {:#x} are not known here", cap.rights)));
    }
    if cap.rights & right != right {
        return Err(refused(format!(
            "it lacks right {right:#x} (it has {:#x}, file {})",
            cap.rights, cap.fid
        )));
    }
    if now_sec >= cap.expiry_sec {
        return Err(refused(format!("it expired at {} (now {now_sec}, file {})", cap.expiry_sec, cap.fid)));
    }
    Ok(())
}

/// True for a server's or tool's capability.
pub fn is_admin(cap: &Capability) -> bool {
    cap.rights & RIGHT_ADMIN != 0
}

fn refused(why: String) -> Fault {
    Fault::new(Code::Fenced, format!("capability refused: {why}; open the file again"))
}

/// The key is derived from the secret with a context of its own, so that the secret can sign other data later.
fn mac_of(secret: &Uuid, cap: &Capability) -> Mac {
    let mut fields = [0u8; 8 + 4 + 1 + 4 + 4 + 8 + 8];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        fields[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    put(&cap.fid.0.to_le_bytes());
    put(&cap.generation.0.to_le_bytes());
    put(&[cap.rights]);
    put(&cap.lease_epoch.to_le_bytes());
    put(&cap.lease_counter.to_le_bytes());
    put(&cap.session.0.to_le_bytes());
    put(&cap.expiry_sec.to_le_bytes());
    assert!(at == fields.len(), "object-C1: the signature covers every field");
    let mut key = [0u8; 32];
    key[..16].copy_from_slice(&secret.0);
    key[16..].copy_from_slice(b"stria capability");
    let hash = blake3::keyed_hash(&key, &fields);
    let mut mac = [0u8; 16];
    mac.copy_from_slice(&hash.as_bytes()[..16]);
    Mac(mac)
}

/// Compares in time that does not depend on where the first difference is.
pub(crate) fn same(a: &[u8; 16], b: &[u8; 16]) -> bool {
    a.iter().zip(b).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Uuid = Uuid([7; 16]);
    const OBJECT: ObjectId =
        ObjectId { fid: Fid(0x11), generation: Generation(2), component: 0, stripe: 3, snapshot: 0 };

    fn cap() -> Capability {
        let lease = LeaseVersion { epoch: 1, counter: 9 };
        make(&SECRET, Fid(0x11), Generation(2), RIGHT_READ | RIGHT_WRITE, lease, SessionId(5), 1000)
    }

    #[test]
    fn a_good_capability_passes_until_it_expires() {
        assert_eq!(check(&SECRET, &cap(), &OBJECT, RIGHT_WRITE, 999), Ok(()));
        assert_eq!(check(&SECRET, &cap(), &OBJECT, RIGHT_WRITE, 1000).unwrap_err().code, Code::Fenced);
    }

    #[test]
    fn any_changed_field_is_refused() {
        let changed: [fn(&mut Capability); 8] = [
            |c| c.fid.0 ^= 1,
            |c| c.generation.0 ^= 1,
            |c| c.rights |= RIGHT_ADMIN,
            |c| c.lease_epoch += 1,
            |c| c.lease_counter += 1,
            |c| c.session.0 += 1,
            |c| c.expiry_sec += 1,
            |c| c.mac.0[15] ^= 0x80,
        ];
        for (i, change) in changed.iter().enumerate() {
            let mut c = cap();
            change(&mut c);
            let object = ObjectId { fid: c.fid, generation: c.generation, ..OBJECT };
            assert_eq!(
                check(&SECRET, &c, &object, RIGHT_READ, 1).unwrap_err().code,
                Code::Fenced,
                "field {i}"
            );
        }
        assert!(
            check(&Uuid([8; 16]), &cap(), &OBJECT, RIGHT_READ, 1).is_err(),
            "another file system's secret"
        );
    }

    #[test]
    fn rights_and_objects_are_bounds() {
        let other = ObjectId { fid: Fid(0x12), ..OBJECT };
        let next = ObjectId { generation: Generation(3), ..OBJECT };
        assert!(check(&SECRET, &cap(), &other, RIGHT_READ, 1).is_err());
        assert!(check(&SECRET, &cap(), &next, RIGHT_READ, 1).is_err());
        assert!(check(&SECRET, &cap(), &OBJECT, RIGHT_ADMIN, 1).is_err());
        let admin = make_admin(&SECRET, 1000);
        for object in [OBJECT, other, next] {
            assert_eq!(check(&SECRET, &admin, &object, RIGHT_ADMIN, 1), Ok(()));
        }
        let reader = make(&SECRET, Fid(0x11), Generation(2), RIGHT_READ, LeaseVersion::NONE, SessionId(5), 9);
        assert!(check(&SECRET, &reader, &OBJECT, RIGHT_WRITE, 1).is_err());
        let odd =
            make(&SECRET, Fid(0x11), Generation(2), RIGHT_READ | 0x40, LeaseVersion::NONE, SessionId(5), 9);
        assert!(check(&SECRET, &odd, &OBJECT, RIGHT_READ, 1).is_err(), "unknown right bits");
    }

    #[test]
    fn the_mac_is_golden() {
        // Pinned: MDTs and OSTs of different builds must agree.
        assert_eq!(cap().mac.0.map(|b| format!("{b:02x}")).concat(), GOLDEN_MAC);
    }
    const GOLDEN_MAC: &str = "95c8942c891fea5b268bcf5ae9411424";
}
