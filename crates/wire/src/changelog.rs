//! A tool and an MDT: what changed in the name space, in order (decision 0032). All calls ask for `RIGHT_ADMIN`.
//!
//! Changes are numbered 1, 2, 3 … per MDT; a number that was told once means that change for ever. A consumer reads what is behind a
//! number, keeps in mind how far it has come, and acknowledges; what all consumers have acknowledged is forgotten.

use types::*;

use crate::Empty;
use crate::codec::{Bytes, bodies, calls};
use crate::object::Capability;

/// What was done. Numbered as the records of Lustre's changelog, for those who know them by heart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChangeOp {
    Create = 1,
    MakeDir = 2,
    /// One more name; also the first one of a file that was made without.
    Link = 3,
    Symlink = 4,
    /// A device, pipe or socket.
    MakeNode = 5,
    Unlink = 6,
    RemoveDir = 7,
    Rename = 8,
    /// Its content is written, and nobody writes it any more.
    Close = 11,
    /// Its striping, or where its content lies.
    Layout = 12,
    Truncate = 13,
    /// Mode, owner, group, times, `chattr` flags: `Change::what`.
    SetAttr = 14,
    /// An extended attribute or an ACL: `Change::name`.
    SetXattr = 15,
    /// Its content changes.
    Write = 17,
}

/// Of the file that lost a name, that was its last.
pub const CHANGE_LAST: u8 = 1;
/// The two names of a rename changed places.
pub const CHANGE_EXCHANGE: u8 = 2;
/// Bits of `Change::what` beside `SET_MODE` to `SET_MTIME` of `SetAttr`: the file's flags.
pub const WHAT_FLAGS: u32 = 1 << 16;

impl ChangeOp {
    pub const ALL: [ChangeOp; 14] = [
        ChangeOp::Create,
        ChangeOp::MakeDir,
        ChangeOp::Link,
        ChangeOp::Symlink,
        ChangeOp::MakeNode,
        ChangeOp::Unlink,
        ChangeOp::RemoveDir,
        ChangeOp::Rename,
        ChangeOp::Close,
        ChangeOp::Layout,
        ChangeOp::Truncate,
        ChangeOp::SetAttr,
        ChangeOp::SetXattr,
        ChangeOp::Write,
    ];
    /// A mask of all.
    pub const MASK_ALL: u64 = {
        let (mut mask, mut n) = (0, 0);
        while n < ChangeOp::ALL.len() {
            mask |= ChangeOp::ALL[n].bit();
            n += 1;
        }
        mask
    };

    pub fn from_u8(n: u8) -> Option<ChangeOp> {
        ChangeOp::ALL.into_iter().find(|op| *op as u8 == n)
    }
    /// Its bit in a mask.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }
}

impl crate::codec::Wire for ChangeOp {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(r: &mut crate::Reader<'_>) -> Result<Self, crate::Malformed> {
        ChangeOp::from_u8(u8::get(r)?).ok_or(crate::Malformed("change"))
    }
}

bodies! {
    /// A new consumer: it will be told what is done from here on and is in `mask` (bit n: `ChangeOp` n). One of this name and mask that
    /// is there already is the answer, too.
    RegisterConsumer { name: String, mask: u64, cap: Capability }
    /// It reads behind `after`.
    RegisterConsumerReply { id: u32, after: u64 }
    /// What is kept for it alone is forgotten.
    DeregisterConsumer { id: u32, cap: Capability }
    /// Changes behind `after` (and behind what the consumer has acknowledged), `max` at most. Only what a power loss does not take back
    /// is told.
    ReadChanges { id: u32, after: u64, max: u32, cap: Capability }
    ReadChangesReply {
        changes: Vec<Change>,
        /// Everything up to here was looked at: go on behind it. Not below `after`.
        upto: u64,
        /// There is more to be told now.
        more: bool,
        /// Changes behind `after` that were forgotten before the consumer had read or acknowledged them. Told until they are acknowledged.
        lost: Option<LostChanges>,
    }
    /// Both ends are lost, too. Not each need have been in the consumer's mask.
    LostChanges { from: u64, to: u64 }
    /// One operation.
    Change {
        number: u64,
        op: ChangeOp,
        /// `CHANGE_*`.
        flags: u8,
        /// The MDT's.
        time: Time,
        session: SessionId,
        /// If the request said it: writes to open files do not.
        who: Option<Who>,
        /// What was changed: the file, not the directory that it is in.
        fid: Fid,
        /// Where its name is now, or was; 0 of what is done to a file and to none of its names.
        parent: Fid,
        /// Of an extended attribute: its name.
        name: Bytes,
        /// Of a rename, where it was.
        old_parent: Fid,
        old_name: Bytes,
        /// Of a rename: what lost the new name, or went to the old one (`CHANGE_EXCHANGE`); 0: none.
        other: Fid,
        /// `SET_*` and `WHAT_FLAGS` of `SetAttr`.
        what: u32,
    }
    Who { uid: u32, gid: u32 }
    /// The consumer wants nothing up to here any more. What all have acknowledged is forgotten.
    AckChanges { id: u32, upto: u64, cap: Capability }
    ListConsumers { cap: Capability }
    ListConsumersReply {
        consumers: Vec<Consumer>,
        /// The newest change that can be told.
        newest: u64,
        /// That are kept.
        records: u64,
        bytes: u64,
        /// From here on the oldest half is forgotten, whoever still wants it.
        bytes_max: u64,
    }
    Consumer {
        id: u32,
        name: String,
        mask: u64,
        acked: u64,
        /// When it last did so, or registered.
        acked_at: Time,
        lost: Option<LostChanges>,
    }
}

calls! {
    0x02a0 RegisterConsumer => RegisterConsumerReply, read;
    0x02a1 DeregisterConsumer => Empty, read;
    0x02a2 ReadChanges => ReadChangesReply, read;
    0x02a3 AckChanges => Empty, read;
    0x02a4 ListConsumers => ListConsumersReply, read;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_numbered_for_ever() {
        let numbers: Vec<u8> = ChangeOp::ALL.iter().map(|op| *op as u8).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 17]);
        for n in 0..=255 {
            assert_eq!(ChangeOp::from_u8(n).is_some(), numbers.contains(&n), "{n}");
        }
        assert_eq!(ChangeOp::MASK_ALL, 0x0002_f9fe);
    }
}
