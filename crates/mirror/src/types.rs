//! Words of a mirror: its members, their states in the map, and the names of its entries.

use std::fmt;

use ::types::{Epoch, Incarnation};

/// One of the two members. The map says which targets they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberId {
    A,
    B,
}

impl MemberId {
    pub const BOTH: [MemberId; 2] = [MemberId::A, MemberId::B];

    pub fn other(self) -> MemberId {
        match self {
            MemberId::A => MemberId::B,
            MemberId::B => MemberId::A,
        }
    }
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The epoch under which an entry was ordered. One member orders under an epoch, so line and sequence name one entry for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Line(pub u32);

impl Line {
    pub fn of(epoch: Epoch) -> Line {
        Line(epoch.0)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

/// The number of an entry in a mirror, from 1, without gaps. 0 is before the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MirrorSeq(pub u64);

impl MirrorSeq {
    pub fn next(self) -> MirrorSeq {
        MirrorSeq(self.0 + 1)
    }
}

impl fmt::Debug for MirrorSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The name of an entry. Equal positions mean equal content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position {
    pub line: Line,
    pub seq: MirrorSeq,
}

impl Position {
    /// Before the first entry.
    pub const ZERO: Position = Position { line: Line(0), seq: MirrorSeq(0) };
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}.{:?}", self.line, self.seq)
    }
}

/// A member's state in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// Has every answered entry, unless it lost power; may be admitted.
    InSync,
    /// Is being brought up to date. The rules treat it as `Out`; people and tools see the difference.
    Resyncing,
    Out,
}

/// The part of the map that concerns one mirror. The MGS changes it by compare-and-swap of the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    pub epoch: Epoch,
    /// Orders the entries; always in sync.
    pub primary: MemberId,
    pub states: [MemberState; 2],
}

impl Members {
    pub fn is_in_sync(&self, member: MemberId) -> bool {
        self.states[member.index()] == MemberState::InSync
    }
    pub fn is_pair(&self) -> bool {
        MemberId::BOTH.iter().all(|member| self.is_in_sync(*member))
    }
    /// True if the member is the only one in sync.
    pub fn is_sole(&self, member: MemberId) -> bool {
        self.is_in_sync(member) && !self.is_in_sync(member.other())
    }
}

/// The rights of a member at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Orders, and answers what both members have.
    Primary,
    /// Appends, acknowledges, and serves reads.
    Backup,
    /// Orders, and answers what it has: no other member is in sync.
    Alone,
    /// Receives entries to become in sync; serves nothing.
    Resyncing,
    Stopped,
}

impl Role {
    pub fn orders(self) -> bool {
        matches!(self, Role::Primary | Role::Alone)
    }
}

/// A member's durable knowledge of itself: recorded at each change, before anything that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    pub map: Members,
    /// The member has every entry that it ever acknowledged.
    pub is_whole: bool,
    /// mirror-E1: the epoch under which it asked to be alone.
    pub asked: Option<Epoch>,
    /// mirror-F3: it is being filled, so that its history says nothing of its content.
    pub is_filling: bool,
}

/// How the member's last life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// All was flushed. `is_free`: its promise had run out or was returned, see `Given::is_over`.
    Clean { is_free: bool },
    /// The process died; the log is in the page cache.
    Killed,
    /// The host lost power or was reset: the unflushed tail of the log may be gone.
    PowerLost,
}

/// The two ends of an exchange. A letter to an earlier life of a member, or from one, is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    pub from: Incarnation,
    /// `None` as long as the sender has not heard of the receiver.
    pub to: Option<Incarnation>,
}
