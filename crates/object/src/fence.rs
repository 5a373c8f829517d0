//! Fencing by lease version: an object keeps the highest version seen and refuses lower ones.
//!
//! A version is `(MDT epoch, counter)` and rises over a fail-over. To evict a client, the MDT glimpses the file's objects with the next
//! version. From then on the OST refuses the evicted client's writes. object-F1: the version that an object has seen never falls.

use types::{Code, Fault, ObjectId};
use wire::object::Capability;

use crate::cap::is_admin;

/// The version of a lease. The order is `(epoch, counter)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseVersion {
    pub epoch: u32,
    pub counter: u32,
}

impl LeaseVersion {
    /// Below every lease: never fences.
    pub const NONE: LeaseVersion = LeaseVersion { epoch: 0, counter: 0 };

    pub fn of(cap: &Capability) -> LeaseVersion {
        LeaseVersion { epoch: cap.lease_epoch, counter: cap.lease_counter }
    }
    /// One number with the same order: the form in which the store keeps it.
    pub fn to_u64(self) -> u64 {
        (self.epoch as u64) << 32 | self.counter as u64
    }
    pub fn from_u64(n: u64) -> LeaseVersion {
        LeaseVersion { epoch: (n >> 32) as u32, counter: n as u32 }
    }
}

/// Checks that a request with `cap` may reach an object that has seen version `seen`. Refuses with `Fenced`.
pub fn admit(cap: &Capability, object: &ObjectId, seen: LeaseVersion) -> Result<(), Fault> {
    let asked = LeaseVersion::of(cap);
    // Servers and tools hold no lease. The purge must be able to destroy an object that a later lease has touched.
    if is_admin(cap) || asked >= seen {
        return Ok(());
    }
    assert!(asked.to_u64() < seen.to_u64(), "object-F1: the number in the store has the order of versions");
    let detail = format!(
        "object {object} has seen lease version {}.{}, the request carries {}.{}: this client was evicted; open the file again",
        seen.epoch, seen.counter, asked.epoch, asked.counter
    );
    Err(Fault::new(Code::Fenced, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cap;
    use types::{SessionId, Uuid};

    #[test]
    fn lower_is_refused_equal_and_higher_pass() {
        let v = |epoch, counter| LeaseVersion { epoch, counter };
        let o = ObjectId::default();
        let with = |l| cap::make(&Uuid([1; 16]), o.fid, o.generation, 1, l, SessionId(1), 9);
        //          asked    seen     passes
        let table = [
            (v(1, 5), v(0, 0), true),
            (v(1, 5), v(1, 5), true),
            (v(1, 5), v(1, 6), false),
            (v(1, 5), v(2, 0), false),
            (v(2, 0), v(1, 900), true),
            (v(0, 0), v(0, 1), false),
        ];
        for (asked, seen, passes) in table {
            assert_eq!(admit(&with(asked), &o, seen).is_ok(), passes, "{asked:?} {seen:?}");
            assert_eq!(asked.to_u64() >= seen.to_u64(), passes, "order as a number");
            assert_eq!(LeaseVersion::from_u64(asked.to_u64()), asked);
        }
        assert!(admit(&cap::make_admin(&Uuid([1; 16]), 9), &o, v(9, 9)).is_ok());
    }
}
