//! Which member serves a read, and what it waits for. Both members' drives work for one object.
//!
//! mirror-R1: at the primary a read of an object with an entry in flight waits until that entry is answerable. The backup may have served
//!     it already, and a reader that has seen the new bytes must not see the old ones elsewhere.
//! mirror-R2: a member serves reads only in a role that serves, at the moment at which it looks at its state. The backup applies entries on
//!     arrival, so it has every answered one.

use crate::planted::{Rule, kept};
use crate::types::{MirrorSeq, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Serve,
    /// Until entries up to here are answerable.
    Wait(MirrorSeq),
    /// This member does not serve; the request goes to the other one, or waits for a map.
    Refuse,
}

/// `last`: the last entry in the member's log that concerns the object. `answerable`: see `order::answerable`.
pub fn read(role: Role, last: MirrorSeq, answerable: MirrorSeq) -> Read {
    match role {
        Role::Backup => Read::Serve,
        Role::Primary | Role::Alone if last <= answerable || !kept(Rule::ReadsWait) => Read::Serve,
        Role::Primary | Role::Alone => Read::Wait(last),
        Role::Resyncing | Role::Stopped => Read::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_at_the_primary_only() {
        let (old, new) = (MirrorSeq(4), MirrorSeq(5));
        let table = [
            (Role::Primary, old, Read::Serve),
            (Role::Primary, new, Read::Wait(new)),
            (Role::Alone, old, Read::Serve),
            (Role::Backup, new, Read::Serve),
            (Role::Resyncing, old, Read::Refuse),
            (Role::Stopped, old, Read::Refuse),
        ];
        for (role, last, want) in table {
            assert_eq!(read(role, last, old), want, "{role:?} {last:?}");
        }
    }
}
