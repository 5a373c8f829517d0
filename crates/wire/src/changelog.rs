//! The changelog between a tool and an MDT: changes of the name space, in order (decision 0032). All calls need `RIGHT_ADMIN`.
//!
//! Changes are numbered 1, 2, 3 … per MDT; a number that was once sent always means the same change. A consumer reads the changes after a
//! number, remembers its position, and acknowledges. The MDT forgets changes that all consumers have acknowledged.

use types::*;

use crate::Empty;
use crate::codec::{Bytes, bodies, calls};
use crate::object::Capability;

/// The kind of a change. The numbers are those of Lustre's changelog records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChangeOp {
    Create = 1,
    MakeDir = 2,
    /// One more name; also the first name of a file that was made without one.
    Link = 3,
    Symlink = 4,
    /// A device, pipe or socket.
    MakeNode = 5,
    Unlink = 6,
    RemoveDir = 7,
    Rename = 8,
    /// The content was written, and no client writes it any more.
    Close = 11,
    /// The striping, or the place of the content.
    Layout = 12,
    Truncate = 13,
    /// Mode, owner, group, times, `chattr` flags: `Change::what`.
    SetAttr = 14,
    /// An extended attribute or an ACL: `Change::name`.
    SetXattr = 15,
    /// The content changes.
    Write = 17,
}

/// The removed name was the file's last one.
pub const CHANGE_LAST: u8 = 1;
/// The two names of a rename were exchanged.
pub const CHANGE_EXCHANGE: u8 = 2;
/// Bit of `Change::what`, beside the bits `SET_MODE` to `SET_MTIME` of `SetAttr`: the file's flags changed.
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
    /// A mask of all kinds.
    pub const MASK_ALL: u64 = {
        let (mut mask, mut n) = (0u64, 0);
        while n < ChangeOp::ALL.len() {
            mask |= ChangeOp::ALL[n].bit();
            n += 1;
        }
        assert!(mask.count_ones() as usize == ChangeOp::ALL.len(), "each kind has a bit of its own");
        mask
    };

    pub fn from_u8(n: u8) -> Option<ChangeOp> {
        ChangeOp::ALL.into_iter().find(|op| *op as u8 == n)
    }
    /// The bit of this kind in a mask.
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
    /// Registers a consumer. It gets the changes from here on that are in `mask` (bit n: `ChangeOp` n). If a consumer of this name and
    /// mask exists already, the reply names it.
    RegisterConsumer { name: String, mask: u64, cap: Capability }
    /// The consumer's id, and the number after which it reads.
    RegisterConsumerReply { id: u32, after: u64 }
    /// Removes a consumer. Changes that are kept only for it are forgotten.
    DeregisterConsumer { id: u32, cap: Capability }
    /// Reads at most `max` changes after `after`, and after the consumer's last acknowledgement. Only changes that survive a power loss
    /// are sent.
    ReadChanges { id: u32, after: u64, max: u32, cap: Capability }
    ReadChangesReply {
        changes: Vec<Change>,
        /// The MDT looked at all changes up to this number: continue after it. Not below `after`.
        upto: u64,
        /// More changes can be read now.
        more: bool,
        /// Changes after `after` that were forgotten before the consumer had read or acknowledged them. Repeated until the consumer
        /// acknowledges them.
        lost: Option<LostChanges>,
    }
    /// A range of lost changes, both ends included. Some of them may not have been in the consumer's mask.
    LostChanges { from: u64, to: u64 }
    /// One operation.
    Change {
        number: u64,
        op: ChangeOp,
        /// `CHANGE_*`.
        flags: u8,
        /// By the MDT's clock.
        time: Time,
        session: SessionId,
        /// The user, if the request named one. Writes to open files name none.
        who: Option<Who>,
        /// The changed file, not its directory.
        fid: Fid,
        /// The directory of its name, now or before; 0 if the change concerns the file but none of its names.
        parent: Fid,
        /// The name of an extended attribute or directory entry.
        name: Bytes,
        /// The old place of a renamed file.
        old_parent: Fid,
        old_name: Bytes,
        /// For a rename: the file that lost the new name, or that moved to the old name (`CHANGE_EXCHANGE`); 0 if there is none.
        other: Fid,
        /// For `SetAttr`: bits `SET_*` and `WHAT_FLAGS`.
        what: u32,
    }
    Who { uid: u32, gid: u32 }
    /// Acknowledges all changes up to `upto`. The MDT forgets what all consumers have acknowledged.
    AckChanges { id: u32, upto: u64, cap: Capability }
    ListConsumers { cap: Capability }
    ListConsumersReply {
        consumers: Vec<Consumer>,
        /// The newest change that can be read.
        newest: u64,
        /// Number and bytes of the kept changes.
        records: u64,
        bytes: u64,
        /// Above this many bytes the MDT forgets the oldest half, even if a consumer has not read it.
        bytes_max: u64,
    }
    Consumer {
        id: u32,
        name: String,
        mask: u64,
        acked: u64,
        /// Time of the last acknowledgement, or of the registration.
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
