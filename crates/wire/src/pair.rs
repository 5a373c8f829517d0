//! Between the two members of a mirror, and from a member to the MGS (decision 0068). Crate `mirror` has the rules.

use types::*;

use crate::codec::{Bytes, Malformed, Reader, Wire, bodies, calls};
use crate::object::Capability;

bodies! {
    /// The part of the cluster map about one mirror. Member 0 is the first of the mirror's members in the map.
    MembersOf { epoch: Epoch, primary: u8, states: Vec<u8> }
    /// The name of an entry; the line is an epoch.
    At { line: Epoch, seq: Seq }
    /// Lines with their first seqs, both rising, and the last seq.
    LinesOf { lines: Vec<At>, end: Seq }
    /// An asking for a promise not to act alone.
    TokenOf { life: Incarnation, number: u64, sent_ms: u64 }
    /// One message. `to`: the receiver's life as the sender knows it; 0: not known.
    Letter { map: MembersOf, from: Incarnation, to: Incarnation, note: NoteOf }
    /// Messages of one member to the other, to be taken in order. The reply has those that follow from them at once.
    /// `from`, here and below: the sender. A target that was taken out of the mirror is refused.
    Letters { mirror: MirrorId, from: TargetId, letters: Vec<Letter> }
    LettersReply { letters: Vec<Letter> }
    /// The primary asks the other member to flush its log. The reply has the acknowledgement.
    FlushLog { mirror: MirrorId, from: TargetId }
    /// Pages of entries that follow, as bulk. They are stored and belong to no object until an entry names `id`.
    Stage { mirror: MirrorId, from: TargetId, to: Incarnation, id: u64 }
    /// A member that lacks more than the log has asks for the whole content, part by part; `part` 0 begins a new copy.
    CopyAll { mirror: MirrorId, from: TargetId, copy: u64, part: u64 }
    /// `is_last`: the content ends here. `at`, `lines`: the log of the sender, as of this copy.
    CopyAllReply { copy: u64, is_last: bool, lines: LinesOf, content: Bytes }
    /// A page of an object. `form`: `page_form`. `crc`: of the bytes; 0 without bytes.
    PageOf { form: u8, crc: u32 }
    /// A page, and the CRC that the asking member's index has for it.
    PageWanted { page: u32, crc: u32 }
    /// A member asks the other one for pages that it cannot read itself. `epoch`: both must know the same one, so that both are in sync.
    /// `len`: bytes of all these pages.
    FetchPages { mirror: MirrorId, epoch: Epoch, object: ObjectId, len: u32, pages: Vec<PageWanted> }
    /// One for each page. The sound ones come as bulk, in order, and have the CRCs that were asked for.
    FetchPagesReply { pages: Vec<PageOf> }
    /// A range of an object, as the sender's index has it (docs/formats/wire.md).
    RangeSeen { object: ObjectId, first: u32, limit: u32, content: Bytes }
    /// The primary has the other member compare ranges with its own. `lists`: they are all objects behind `after`, up to `until`.
    CompareRanges {
        mirror: MirrorId,
        epoch: Epoch,
        lists: bool,
        after: Option<ObjectId>,
        until: Option<ObjectId>,
        ranges: Vec<RangeSeen>,
    }
    /// `differ`: one for each range. `others`: objects that the ranges should have and do not, some of them.
    CompareRangesReply { differ: Vec<bool>, others: Vec<ObjectId> }
    /// An administrator has the primary of an OST compare its content with the other member's. A run that is under way goes on.
    VerifyMirror { cap: Capability, starts: bool }
    VerifyMirrorReply {
        /// `verify_state`.
        state: u8,
        /// Objects that are compared, of about so many.
        done: u64,
        of: u64,
        ranges: u64,
        /// Differences that were found, and how many of them the other member was given anew.
        found: u64,
        filled: u64,
        /// The first of them.
        differences: Vec<Difference>,
        /// The reason that it did not end; empty otherwise.
        why: String,
        ended_sec: u64,
    }
    /// The primary of an MDT's mirror has the other member compare records of one state with its own (decision 0076).
    CompareRecords { mirror: MirrorId, epoch: Epoch, step: CompareStep }
    /// `run`: of the state that is kept; 0: none is. `part`: the answer about a range of keys.
    CompareRecordsReply { run: u64, part: Option<PartSeen> }
    /// A range of keys, as a member has it.
    PartSeen {
        /// The answer is about keys before this one, which may be less than was asked for.
        until: Bytes,
        /// From `until` on and before this key the member cannot read its records.
        lost_until: Option<Bytes>,
        records: u64,
        /// Of keys and values, in order: 32 bytes.
        hash: Bytes,
        /// Each record, if they were asked for.
        keys: Vec<KeySeen>,
    }
    /// `hash`: of the value.
    KeySeen { key: Bytes, hash: u64 }
    /// An administrator has the primary of an MDT compare its records with the other member's. A run that is under way goes on.
    VerifyRecords { cap: Capability, starts: bool }
    VerifyRecordsReply {
        /// `verify_state`.
        state: u8,
        /// Records that are compared, of about so many.
        done: u64,
        of: u64,
        /// The last log entry that the compared state has.
        seq: Seq,
        /// Records that differ, and ranges of keys that a member cannot read.
        found: u64,
        /// The first of them.
        differences: Vec<RecordDifference>,
        /// The reason that it did not end; empty otherwise.
        why: String,
        ended_sec: u64,
    }
    /// `what`: in words. `fid`: of the file or directory; `None`: it is of none.
    RecordDifference { found: u8, what: String, fid: Option<Fid> }
    /// Bytes from `offset` on.
    Difference { object: ObjectId, offset: u64 }
    /// A member's own report, for people and tools. A member that opens its target anew, or is being copied, answers too.
    MemberStat { mirror: MirrorId }
    MemberStatReply {
        /// "primary", "follower", "alone", "resyncing", "stopped".
        role: String,
        /// 0: the member is between two lives.
        life: Incarnation,
        epoch: Epoch,
        /// The last entry of its log.
        end: At,
        flushed: Seq,
        /// At a primary that is in contact with the other member: what that one has.
        acked: Option<Seq>,
        /// The last entry that the other member has flushed, as far as this one knows.
        peer_flushed: Seq,
        is_whole: bool,
        is_filling: bool,
        /// It has asked the MGS to be alone, and waits.
        is_asking: bool,
        /// The last answer of the MGS, or why there was none; empty: it granted what was asked.
        mgs_said: String,
        /// The event that this member waits for; empty: none.
        waits: String,
        /// The next step of an operator; empty: none.
        next: String,
        /// Progress of a resync; `of` 0: unknown.
        done: u64,
        of: u64,
        /// Seconds that a filling takes still, at its recent rate; 0: unknown.
        left_sec: u32,
    }
    /// An administrator has the primary hand its mirror over: it leaves in good order and begins a next life, as the follower.
    HandOver { mirror: MirrorId }
    /// It has begun. `epoch`: of the mirror as it was; the map's next one names the new primary.
    HandOverReply { epoch: Epoch }
    /// A member asks the other one for damage of its own that it cannot repair (decision 0076).
    ListLost { mirror: MirrorId, epoch: Epoch }
    ListLostReply {
        /// Of an OST: damaged pages, and others of the list of damage. Of an MDT: ranges of records.
        lost: u64,
        /// The first of the pages.
        places: Vec<Difference>,
    }
    /// An administrator has a follower in sync take the whole content of the primary anew. Without a token nothing is done, and the reply has
    /// the token. `loses_damaged`: what the primary cannot read is given up.
    Resync { mirror: MirrorId, token: String, loses_damaged: bool }
    /// `lost`, `places`: as of the primary.
    ResyncReply { token: String, begun: bool, lost: u64, places: Vec<Difference> }
    /// A member's request to the MGS about its mirror.
    AskMembers { mirror: MirrorId, member: TargetId, asking: AskingOf }
    /// The mirror as it is now, and why a request was not granted; empty: it was, or there was nothing to grant.
    AskMembersReply { version: u64, members: MembersOf, why: String }
}

/// Forms of a page.
pub mod page_form {
    /// It has no bytes.
    pub const HOLE: u8 = 0;
    pub const SOUND: u8 = 1;
    /// It cannot be read there either.
    pub const DAMAGED: u8 = 2;
    /// It has other bytes than were asked for.
    pub const OTHER: u8 = 3;
}

/// States of a comparison.
pub mod verify_state {
    pub const NONE: u8 = 0;
    pub const RUNNING: u8 = 1;
    pub const ENDED: u8 = 2;
    pub const FAILED: u8 = 3;
}

/// The result of a comparison of records.
pub mod record_difference {
    /// Both members have the record, with other values.
    pub const OTHER: u8 = 1;
    pub const ONLY_PRIMARY: u8 = 2;
    pub const ONLY_FOLLOWER: u8 = 3;
    /// The primary cannot read its records there.
    pub const LOST_PRIMARY: u8 = 4;
    pub const LOST_FOLLOWER: u8 = 5;
}

/// A step of a comparison of records. Keys are those `from` on and before `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareStep {
    /// Keep the present state, if `seq` is the last entry that it has. Ends the comparison before.
    Begin {
        seq: Seq,
    },
    Hash {
        run: u64,
        from: Bytes,
        until: Bytes,
    },
    Keys {
        run: u64,
        from: Bytes,
        until: Bytes,
    },
    End {
        run: u64,
    },
}

/// The content of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteOf {
    Hello {
        history: LinesOf,
        flushed: Seq,
        is_whole: bool,
        is_filling: bool,
    },
    Start {
        after: At,
    },
    Fill {
        history: LinesOf,
    },
    /// `first`: seq of its first operation.
    Entry {
        before: At,
        at: At,
        first: Seq,
        content: Bytes,
    },
    Ack {
        end: Seq,
        flushed: Seq,
        is_whole: bool,
        is_filling: bool,
    },
    Join {
        up_to: Seq,
    },
    Ask(TokenOf),
    Promise(TokenOf),
    Return(TokenOf),
    Leaving,
}

/// A member's request to the MGS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskingOf {
    Fetch { epoch: Epoch },
    Alone { epoch: Epoch, is_whole: bool, end: At, is_planned: bool },
    InSync { epoch: Epoch },
    Resyncing { epoch: Epoch, is_under_way: bool },
}

/// Writes and reads the variants of an enum: a byte, then the fields in order.
macro_rules! variants {
    ($name:ident, $what:literal, { $($number:literal $variant:ident $({ $($field:ident),* })? $(($inner:ident))?,)* }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? $(($inner))? => {
                        out.push($number);
                        $($($field.put(out);)*)?
                        $($inner.put(out);)?
                    })*
                }
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(match u8::get(r)? {
                    $($number => {
                        $($(let $field = Wire::get(r)?;)*)?
                        $(let $inner = Wire::get(r)?;)?
                        $name::$variant $({ $($field),* })? $(($inner))?
                    })*
                    _ => return Err(Malformed($what)),
                })
            }
        }
    };
}

variants!(NoteOf, "letter", {
    1 Hello { history, flushed, is_whole, is_filling },
    2 Start { after },
    3 Fill { history },
    4 Entry { before, at, first, content },
    5 Ack { end, flushed, is_whole, is_filling },
    6 Join { up_to },
    7 Ask(token),
    8 Promise(token),
    9 Return(token),
    10 Leaving,
});

variants!(CompareStep, "step of a comparison", {
    1 Begin { seq },
    2 Hash { run, from, until },
    3 Keys { run, from, until },
    4 End { run },
});

variants!(AskingOf, "asking", {
    1 Fetch { epoch },
    2 Alone { epoch, is_whole, end, is_planned },
    3 InSync { epoch },
    4 Resyncing { epoch, is_under_way },
});

calls! {
    0x0601 Letters => LettersReply, read;
    0x0602 FlushLog => LettersReply, read;
    0x0603 Stage => crate::Empty, read;
    0x0604 CopyAll => CopyAllReply, read;
    0x0605 MemberStat => MemberStatReply, read;
    0x0606 HandOver => HandOverReply, read;
    0x0607 FetchPages => FetchPagesReply, bulk;
    0x0608 CompareRanges => CompareRangesReply, read;
    0x0609 VerifyMirror => VerifyMirrorReply, read;
    0x060a Resync => ResyncReply, read;
    0x060b CompareRecords => CompareRecordsReply, read;
    0x060c VerifyRecords => VerifyRecordsReply, read;
    0x060d ListLost => ListLostReply, read;
    0x0610 AskMembers => AskMembersReply, read;
}
