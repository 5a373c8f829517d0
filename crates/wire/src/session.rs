//! Sessions between a client and any target: handshake, keep-alive, flush, and the target's statistics.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};
use crate::object::Mac;

/// Request slots per session and target.
pub const SLOTS: u32 = 64;

/// True if `sequence` comes after `last` in a slot. Sequences wrap around and skip 0, which means *none yet* (serial number arithmetic of
/// RFC 1982). A busy slot uses up 2^32 of them within days.
pub fn comes_after(sequence: u32, last: u32) -> bool {
    last == 0 || (sequence != 0 && sequence.wrapping_sub(last) as i32 > 0)
}

/// The sequence that follows `last` in a slot.
pub fn next_sequence(last: u32) -> u32 {
    let next = last.checked_add(1).unwrap_or(1);
    assert!(comes_after(next, last), "a slot's next sequence is new there");
    next
}

bodies! {
    /// Registers a client with an MDT or OST. The same client uuid (after a reconnect) gets its session again.
    Attach {
        fs_uuid: Uuid,
        client: Uuid,
        /// The session: 0 asks an MDT for a new one; an OST gets the one that the MDT assigned.
        session: SessionId,
        /// Host, pid and mount point, as text.
        name: String,
        /// A tool (fsck, df, damage): it gets no session, holds no lease and does not count as a client.
        observer: bool,
        /// The users that the session may act for; kept with the session. OSTs ignore it.
        claims: Claims,
        /// A client in the MDT's process asks to leave locks to its kernel, which then do not exclude those of others.
        own_locks: bool,
        /// For an OST: the MDT's word that the session belongs to the sender's certificate (`AttachReply::ticket`).
        ticket: Mac,
    }
    AttachReply {
        session: SessionId,
        /// For each slot, in order, the highest sequence that the target has carried out.
        slots: Vec<u32>,
        flushed_seq: Seq,
        /// The highest entry that the target has, flushed or not. Less than an entry that the client saw acknowledged means loss.
        last_seq: Seq,
        /// Milliseconds without a keep-alive after which the MDT evicts the session.
        session_ttl_ms: u32,
        /// As in `KeepAliveReply`.
        mode: u32,
        /// This MDT checks each request, also reads, by the `Cred` in it: the client must send the true one. Otherwise the MDT trusts the
        /// client's kernel, and root's `Cred` is enough for reads.
        judges: bool,
        /// The MDT finds the groups of a user itself, and ignores those in a `Cred`.
        knows_groups: bool,
        /// The client's locks are its kernel's. No other client gets one meanwhile.
        own_locks: bool,
        /// From an MDT: what OSTs ask for when the client attaches there.
        ticket: Mac,
        /// The directory that the client sees as its root, by its nodemap. OSTs send the file system's root.
        root: Fid,
    }
    /// Reports that the client is alive, and the mode that it uses.
    KeepAlive { session: SessionId, mode: u32 }
    /// The mode that the client must use. Even: it is alone; odd: it shares the file system (see `wire::shared`). The number rises with
    /// each change. OSTs send 0.
    KeepAliveReply {
        mode: u32,
        /// The session's outbox, and the number of its newest notice (`wire::notice`): a lost notice shows. OSTs send 0.
        outbox: u64,
        notices: u64,
        /// As in `AttachReply`, by the key of now. OSTs send zeros.
        ticket: Mac,
    }
    /// Ends a session: its orphans are removed.
    Detach { session: SessionId }
    /// Makes all acknowledged changes durable; the reply's `flushed_seq` is the last durable entry.
    Flush {}
    /// Reads a target's numbers, for `statfs`, `df` and `status`.
    TargetStat {}
    TargetStatReply {
        target: TargetId,
        /// True for an MDT.
        is_mdt: bool,
        index: u32,
        uuid: Uuid,
        bytes_total: u64,
        bytes_free: u64,
        /// Bytes that ordinary users may still take.
        bytes_available: u64,
        /// Inodes (MDT) or objects (OST).
        files_total: u64,
        files_free: u64,
        sessions: u32,
        damage_count: u64,
        log_bytes_used: u64,
        log_bytes_total: u64,
        last_seq: Seq,
        /// The reason why the target's volume failed: it gives no promises any more and must be restarted. Empty if it works.
        failure: String,
        /// How many of the two superblock copies were good at the start, which wrote both anew.
        superblock_copies: u8,
        /// Bytes of large requests that were served of late, and the microseconds that the medium took for them. An MDT sends 0.
        late_bytes: u64,
        late_us: u64,
    }
}

/// The users that a session may act for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Claims {
    /// All users: a mount by root, whose kernel distinguishes users.
    #[default]
    All,
    /// One user: a mount by a plain user. Every request counts as this user's, whatever `Cred` it carries.
    User(Cred),
}

impl crate::codec::Wire for Claims {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Claims::All => out.push(0),
            Claims::User(cred) => {
                out.push(1);
                cred.put(out);
            }
        }
    }
    fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
        use crate::codec::Wire;
        Ok(match u8::get(r)? {
            0 => Claims::All,
            1 => Claims::User(Wire::get(r)?),
            _ => return Err(crate::Malformed("claims")),
        })
    }
}

calls! {
    0x0101 Attach => AttachReply, read;
    0x0102 KeepAlive => KeepAliveReply, read;
    0x0103 Detach => Empty, read;
    0x0104 Flush => Empty, read;
    0x0105 TargetStat => TargetStatReply, read;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_go_round_and_leave_out_0() {
        // sequence, last, after?
        let table = [
            (1, 0, true),
            (u32::MAX, 0, true),
            (1, 1, false),
            (2, 1, true),
            (1, 2, false),
            (1, u32::MAX, true),
            (u32::MAX, 1, false),
            (5, u32::MAX - 5, true),
            (0, 7, false),
        ];
        for (sequence, last, want) in table {
            assert_eq!(comes_after(sequence, last), want, "{sequence} after {last}");
        }
        assert_eq!((next_sequence(0), next_sequence(8), next_sequence(u32::MAX)), (1, 9, 1));
    }
}
