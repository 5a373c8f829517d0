//! Tickets: an MDT's word to OSTs that a session belongs to the holder of a certificate.
//!
//! A client attaches at each OST with the session that the MDT gave it. The OST cannot ask the MDT, so the client brings a ticket: 16 bytes of
//! keyed BLAKE3 over session and owner. Only holders of the file system's secret can make one.
//! object-T1: a ticket is good for its session and its owner only.

use types::{SessionId, Uuid};
use wire::object::Mac;

/// Signs that `session` belongs to `owner` (`pki::Owner`; zeros: a client without a certificate).
pub fn make(secret: &Uuid, session: SessionId, owner: [u8; 16]) -> Mac {
    // Not the key of capabilities: bytes signed for one purpose mean nothing for the other.
    let mut key = [0u8; 32];
    key[..16].copy_from_slice(&secret.0);
    key[16..].copy_from_slice(b"stria own ticket");
    let mut fields = [0u8; 24];
    fields[..8].copy_from_slice(&session.0.to_le_bytes());
    fields[8..].copy_from_slice(&owner);
    let hash = blake3::keyed_hash(&key, &fields);
    let mut mac = [0u8; 16];
    mac.copy_from_slice(&hash.as_bytes()[..16]);
    Mac(mac)
}

/// object-T1.
pub fn is_good(secret: &Uuid, session: SessionId, owner: [u8; 16], ticket: &Mac) -> bool {
    crate::cap::same(&make(secret, session, owner).0, &ticket.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_for_its_session_and_owner_only() {
        let (secret, session, owner) = (Uuid([7; 16]), SessionId(9), [3; 16]);
        let ticket = make(&secret, session, owner);
        assert!(is_good(&secret, session, owner, &ticket));
        assert!(!is_good(&Uuid([8; 16]), session, owner, &ticket), "another key");
        assert!(!is_good(&secret, SessionId(10), owner, &ticket), "another session");
        assert!(!is_good(&secret, session, [0; 16], &ticket), "another owner");
        for bit in 0..128 {
            let mut bent = ticket;
            bent.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_good(&secret, session, owner, &bent), "bit {bit}");
        }
    }
}
