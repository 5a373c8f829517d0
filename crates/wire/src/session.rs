//! A client and any target: the handshake, keep-alive, flush and what a target says of itself.

use types::*;

use crate::Empty;
use crate::codec::{bodies, calls};

/// Request lanes per session and target.
pub const SLOTS: u32 = 64;

/// Does `sequence` come after `last` in a slot? Sequences go round and leave out 0, which stands for *nothing yet* (serial number
/// arithmetic of RFC 1982): a busy slot uses up 2^32 of them within days.
pub fn comes_after(sequence: u32, last: u32) -> bool {
    last == 0 || (sequence != 0 && sequence.wrapping_sub(last) as i32 > 0)
}

/// The sequence that follows `last` in a slot.
pub fn next_sequence(last: u32) -> u32 {
    last.checked_add(1).unwrap_or(1)
}

bodies! {
    /// Registers a client with an MDT or OST. The same client uuid again (after a reconnect) finds its session.
    Attach {
        fs_uuid: Uuid,
        client: Uuid,
        /// The session wanted: 0 asks an MDT for a new one; OSTs are told the one that the MDT gave.
        session: SessionId,
        /// For people: host, pid, mount point.
        name: String,
        /// A tool (fsck, df, damage): it takes no session, holds no lease and does not count as a client.
        observer: bool,
        /// Whom it may act for; kept with the session. OSTs do not look at it.
        claims: Claims,
    }
    AttachReply {
        session: SessionId,
        /// For each slot, in order, the highest sequence that the target has carried out.
        slots: Vec<u32>,
        flushed_seq: Seq,
        /// Highest entry that the target has (flushed or not); less than what the client saw acknowledged means loss.
        last_seq: Seq,
        /// Milliseconds without a keep-alive after which the session is dead.
        session_ttl_ms: u32,
        /// As in `KeepAliveReply`.
        mode: u32,
        /// This MDT judges each request by the `Cred` in it, also those that only read: send the true one. Else the client's
        /// kernel is taken at its word and root's will do for them.
        judges: bool,
        /// It finds the groups of a user out by itself and does not look at those in a `Cred`.
        knows_groups: bool,
    }
    /// Says that the client lives, and by which mode.
    KeepAlive { session: SessionId, mode: u32 }
    /// The mode that the client is to live by: even, it is alone; odd, it shares the file system (see `wire::shared`). It rises
    /// with each change. OSTs say 0.
    KeepAliveReply { mode: u32 }
    /// Ends a session: orphans of it are removed.
    Detach { session: SessionId }
    /// Makes everything acknowledged so far durable; the reply's `flushed_seq` says up to where.
    Flush {}
    /// A target's numbers, for `statfs`, `df` and `status`.
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
        /// Why the target's volume failed: it promises nothing any more and must be started anew. Empty: it has not.
        failure: String,
        /// Of the two superblock copies, how many were good when the target was started (and wrote both anew).
        superblock_copies: u8,
    }
}

/// Whom a session may act for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Claims {
    /// Anybody: a mount by root, whose kernel tells users apart.
    #[default]
    All,
    /// One user: a mount by a plain user. Every request is judged as theirs, whatever `Cred` it carries.
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
