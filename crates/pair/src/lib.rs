//! One member of a mirror at work: it carries out what the rules of crate `mirror` say, for an MDT or an OST (decision 0068).
//!
//! ```text
//! MDT, OST      `Replica`    what the target does for the mirror: log, flush, apply, note
//!    │ ▲        `Companion`  what the mirror does for the target that orders: place, copy, flush of the other member
//!    ▼ │
//! Seat          `mirror::Member`, its clock, its letters, its requests to the MGS
//!    │ ▲
//!    ▼ │        `Post`       letters over the fabric; requests to the MGS
//! the other member's seat, the MGS
//! ```
//!
//! Seqs are those of the mirror: an MDT's log seq, an OST's mirror seq. An entry takes one or more of them.
//!
//! One mutex is over the member. Its effects are carried out in order under it, and calls to the other member or the MGS never are. Promises wait
//! for it, so nothing long is done under it: a target writes checkpoints beside entries, and flushes come before the events that need them. So a
//! target calls `Companion` without any lock that its `Replica` needs, and each appends in the order of the places that it got. A target that
//! cannot log an entry after it has its place must end.
//!
//! Threads of a seat, one more if its target can be filled (`pair-fill`): `pair-tick` (promises, the member's clock), `pair-send` (letters, entries from the log), `pair-ask` (requests to the MGS,
//! flushes of the other member's entries). Letters are served on threads of the fabric, and entries are sent on those that commit them.
//!
//! pair-S1: a life has a number above all of its earlier ones, which is in the note before a letter of it leaves. If the note was put back, the
//!     other member tells of a later life, and the next one begins above that (mirror-O6).
//! pair-S2: a note is durable before anything that follows from it leaves.
//! pair-S3: the note has each line before the log has an entry of it. The log may be trimmed past the begin of a line.
//! pair-S4: `commit` returns once the entry is answerable (mirror-O2), or with a fault once the life has ended.
//! pair-S5: entries are shipped in order, behind what the other member has acknowledged.
//! pair-S6: an entry that the target cannot append yet is not given to the member. The acknowledgement has the end before it.
//! pair-S7: a life that has ended answers no letter, orders nothing and lets no thread wait.
//! pair-S8: the other's flushed seq does not fall in a life: neither when the copies that are needed rise from one to two, as the join has the
//!     other flush (mirror-J3), nor when the other starts again.
//! pair-S11: a member whose medium has failed ends its life if the other one is in sync, also if the failure was met outside of a call of the
//!     seat. Otherwise its letters would keep the other member from taking over. Its content is doubted: the other member fills it.
//! pair-S12: the same holds for a medium that does not give a part of the content back, or refuses writes, while the other member is in
//!     contact too. The content of a medium that refuses writes is not doubted. The last good copy goes on with what it has. Of two members
//!     that have trouble at once the follower ends first.
//! pair-S15: a life that ends by a fault tells the other member, as a planned stop does. On one full disk both would end otherwise, and again and
//!     again: the other one counts as in contact for as long as its promise lasts.
//! pair-S9: a member that is filled is asked by its acknowledgements whether the filling is complete. One that is not, though it has the last
//!     entry, is filled anew.
//! pair-S10: pages are given and taken by members that are in sync with each other under one epoch, so that their content is equal.

mod clock;
mod letters;
mod note;
#[cfg(test)]
mod planted;
mod post;
mod seat;

pub use clock::{Clock, MachineClock};
pub use note::{LogLines, check_note_is_of, copied_note, doubted_note, filling_note, noted_standing};
pub use post::{FabricPost, Post};
pub use seat::{End, FillPace, Report, Seat, Setup, Turn};

use disk::Trouble;
use types::{Buf, Epoch, Fault, ObjectId, Seq};
use wire::pair::{
    CompareRanges, CompareRangesReply, CompareRecords, CompareRecordsReply, CompareStep, ListLostReply,
    PageOf, PageWanted,
};

/// The place of an entry: the line that it belongs to, and its seqs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The epoch under which it was ordered. The entry's head in the log has it.
    pub line: Epoch,
    pub first: Seq,
    pub last: Seq,
}

/// An entry of a log, as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    pub place: Place,
    pub content: Vec<u8>,
}

/// Pages that were given to the other member ahead of the entry that names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StageId(pub u64);

/// A target as its seat sees it. Each call is carried out completely before it returns. A fault ends the member's life: the target is
/// stopped and opened anew.
pub trait Replica: Send + Sync {
    /// Makes the member's note durable beside the log. At most `NOTE_BYTES_MAX` bytes.
    fn keep_note(&self, note: &[u8]) -> Result<(), Fault>;

    /// Flushes the log. Returns the last seq that is durable.
    fn flush(&self) -> Result<Seq, Fault>;

    /// The trouble of the target's medium, for which the other member should take over (pair-S11, pair-S12).
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// The oldest seq that the log still has, so that `entries` can give it.
    fn first(&self) -> Seq;

    /// Entries behind `after`, in order: at least one if there is one, and about `bytes_max` of content.
    fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Logged>, Fault>;

    /// False if the entry names pages that are not staged here, or would wait for space. The other member then sends it again, with its
    /// pages.
    fn can_append(&self, _content: &[u8]) -> bool {
        true
    }

    /// Takes the next entry into log and state.
    fn append(&self, entry: &Logged) -> Result<(), Fault>;

    /// Stores pages for an entry that follows.
    fn stage(&self, _id: StageId, _pages: &[u8]) -> Result<(), Fault> {
        Err(Fault::new(types::Code::Unsupported, "this target has no pages to stage"))
    }

    /// A part of the whole content, for a member that begins anew. See `wire::pair::CopyAll`.
    fn copy_out(&self, copy: u64, part: u64) -> Result<Copied, Fault>;

    /// Pages of an object for the other member, which cannot read them. Each is read and verified now, from the applied state. Appends the
    /// bytes of the sound ones to `bytes`.
    fn give_pages(
        &self,
        _object: ObjectId,
        _wanted: &[PageWanted],
        _bytes: &mut Vec<u8>,
    ) -> Result<Vec<PageOf>, Fault> {
        Err(Fault::new(types::Code::Unsupported, "this target has no pages to give"))
    }

    /// Compares ranges of the other member with this target's, from the applied state: for each whether it differs, and objects that they
    /// should have and do not.
    fn compare(&self, _wanted: &CompareRanges) -> Result<CompareRangesReply, Fault> {
        Err(Fault::new(types::Code::Unsupported, "this target has no ranges to compare"))
    }

    /// Damage of this target that it cannot repair, at least what it knows of. A filling of the other member would take it there.
    fn list_lost(&self) -> Result<ListLostReply, Fault> {
        Ok(ListLostReply { lost: 0, places: vec![] })
    }

    /// A step of a comparison of records, at the member that does not order.
    fn compare_records(&self, _wanted: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        Err(Fault::new(types::Code::Unsupported, "this target has no records to compare, or orders itself"))
    }

    /// True if the target can take the whole content as entries, in this life (`begin_refill`). Otherwise its life ends with `End::Refill`.
    fn is_filled_live(&self) -> bool {
        false
    }

    /// True if `begin_refill` is short: promises wait for it. Otherwise this life ends (`End::Refill`), and the target is made empty before the
    /// next one.
    fn is_emptied_at_once(&self) -> bool {
        true
    }

    /// Durably drops log and content, but for the note. The next entry is the one behind `end`, which is of this line.
    fn begin_refill(&self, _line: Epoch, _end: Seq) -> Result<(), Fault> {
        Err(not_filled_live())
    }

    /// The first entry of the filling that this one ends.
    fn filled_since(&self, _content: &[u8]) -> Option<Seq> {
        None
    }

    /// A filling of the other member, from the begin.
    fn fill(&self) -> Result<Box<dyn Filling>, Fault> {
        Err(not_filled_live())
    }
}

fn not_filled_live() -> Fault {
    Fault::new(types::Code::Unsupported, "this target is filled by a copy")
}

/// A filling of the other member, at the target that orders.
pub trait Filling: Send {
    /// Orders and commits the next part, beside other entries.
    fn step(&mut self) -> Result<Filled, Fault>;
}

/// Progress of a filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Filled {
    /// Objects that are filled, of about so many.
    pub objects: u64,
    pub objects_total: u64,
    pub bytes: u64,
    /// Pages that cannot be read here, and so are lost at both.
    pub lost: u64,
    /// The entry that ended it.
    pub end: Option<Seq>,
}

/// The other member, for a target in either role.
pub trait Peer: Send + Sync {
    /// Pages of an object as the other member has them, `PAGES_MAX` at most, with the bytes of the sound ones. Returns within a bound.
    /// Refused unless both members are in sync, before and after (pair-S10).
    fn fetch(&self, object: ObjectId, wanted: &[PageWanted], bytes: &mut Buf) -> Result<Vec<PageOf>, Fault>;

    /// Has the other member compare ranges with its own, as `fetch`. Mirror and epoch of the request are set here.
    fn compare(&self, wanted: CompareRanges) -> Result<CompareRangesReply, Fault>;
}

/// The other member, for an MDT that orders.
pub trait RecordPeer: Send + Sync {
    /// Has the other member carry out a step of a comparison of records. Refused unless both are in sync, before and after (pair-S10). A `Begin`
    /// takes a second at most.
    fn compare_records(&self, step: CompareStep) -> Result<CompareRecordsReply, Fault>;
}

/// Most pages of one `fetch`: the bulk of a frame.
pub const PAGES_MAX: usize = types::BULK_MAX / types::PAGE_SIZE;

/// A part of the whole content.
#[derive(Clone, Debug)]
pub struct Copied {
    pub copy: u64,
    pub is_last: bool,
    /// The last entry that the content has.
    pub end: Seq,
    pub content: Vec<u8>,
}

/// Most bytes of a note: it lies in the superblock.
pub const NOTE_BYTES_MAX: usize = 2048;

/// The mirror as the target sees it that orders.
pub trait Companion: Send + Sync {
    /// True while this member may serve requests that order or read at the primary. Asked for each request, when its state is looked at.
    fn serves(&self) -> bool;

    /// The place of the next entry, which takes `count` seqs. The target appends it to its own log under this line, then calls `commit`.
    /// Refused if this member does not order now.
    fn order(&self, count: u32) -> Result<Place, Fault>;

    /// Returns once each member that must have the entry has it. A fault means that this life ends: the entry is neither applied nor answered.
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault>;

    /// The last seq that every member in sync has.
    fn committed(&self) -> Seq;

    /// The last seq that the other member has made durable; the highest number if the other one need not have anything.
    fn flushed(&self) -> Seq;

    /// Has the other member make durable at least the entries up to `want`, if there must be another one.
    fn flush(&self, want: Seq) -> Result<(), Fault>;

    /// True if a trouble of the target's medium ends this life, or has ended it: the other member takes over, and requests that met the
    /// trouble are to be sent again.
    fn hands_over(&self) -> bool;

    /// Gives pages to the other member, ahead of their entry. `None`: there is none that takes entries now.
    fn stage(&self, pages: &[u8]) -> Option<StageId>;

    /// As `stage`. `meanwhile` may be called once, while the pages are on their way.
    fn stage_beside(&self, pages: &[u8], _meanwhile: &mut dyn FnMut()) -> Option<StageId> {
        self.stage(pages)
    }
}

#[cfg(test)]
mod tests;
