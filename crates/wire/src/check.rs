//! Fsck of the name space, which the MDT performs itself; and raw records, for backups. These calls are for servers and tools: each
//! carries an admin capability.

use types::{Epoch, Incarnation, MirrorId, Seq, TargetId, Time, Uuid};

use crate::codec::{Bytes, Malformed, Reader, Wire, bodies, calls};
use crate::object::Capability;

bodies! {
    /// Continues check `run` for a moment. Run 0 begins a new check, which replaces any other. `seen`: findings that the caller has.
    Check { cap: Capability, run: u64, seen: u32 }
    CheckReply {
        run: u64,
        /// The caller has all findings.
        done: bool,
        looked: Looked,
        /// The next findings after `seen`. The first ones come after the whole name space was read.
        findings: Vec<Finding>,
        /// Findings that the MDT did not keep.
        dropped: u64,
    }
    /// Numbers of the records that were read.
    Looked {
        entries: u64,
        inodes: u64,
        inline_files: u64,
        striped_files: u64,
        /// Files in a writing state: their sizes are not checked.
        writing: u64,
        orphans: u64,
        dead: u64,
        /// Records of all kinds.
        records: u64,
    }
    Finding {
        wrong: Wrong,
        /// The observed state, as text.
        what: String,
        /// The path, as far as one exists.
        path: Bytes,
        /// The change that `Repair` would make; empty if no single safe repair exists.
        repair: String,
    }
    /// Repairs the finding with this number, counted from 0, if a new check of it still shows it.
    Repair { cap: Capability, run: u64, number: u32 }
    RepairReply { repaired: bool }
    /// Reads the stored records of one state, after the key `after` of copy `run`. Run 0 begins a new copy, which replaces any other.
    CopyOut { cap: Capability, run: u64, after: Bytes }
    CopyReply {
        run: u64,
        /// Only in the reply with the first records.
        head: Option<BackupHead>,
        /// In key order.
        records: Vec<RawRecord>,
        done: bool,
    }
    RawRecord { key: Bytes, value: Bytes }
    /// The origin of the copied records.
    BackupHead {
        fs_name: String,
        fs_uuid: Uuid,
        target_uuid: Uuid,
        target: TargetId,
        index: u32,
        mirror: MirrorId,
        epoch: Epoch,
        incarnation: Incarnation,
        /// The last log entry that the records include.
        seq: Seq,
        made: Time,
    }
}

calls! {
    0x02b0 Check => CheckReply, read;
    0x02b1 Repair => RepairReply, read;
    0x02b2 CopyOut => CopyReply, read;
}

impl Default for Looked {
    fn default() -> Looked {
        let [entries, inodes, inline_files, striped_files, writing, orphans, dead, records] = [0; 8];
        Looked { entries, inodes, inline_files, striped_files, writing, orphans, dead, records }
    }
}

/// The kind of a finding about one or several records. The order is the order of repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wrong {
    /// A record cannot be read: its checksum is wrong.
    DamagedRecord = 1,
    /// A record has values that no record may have.
    MalformedRecord = 2,
    /// A name that no file can have.
    BadName = 3,
    /// A name exists twice in its directory.
    DoubleName = 4,
    /// The directory of a name is not a directory, or does not exist.
    LostEntry = 5,
    /// A name leads to an inode that does not exist.
    DanglingEntry = 6,
    /// An entry is not stored at the key of its hash, so no lookup finds it.
    MisplacedEntry = 7,
    /// An entry's file kind differs from that of its inode.
    WrongKind = 8,
    /// An inode has a parent hint for a name that does not exist.
    BadHint = 9,
    /// An inode has no parent hint for one of its names.
    MissingHint = 10,
    /// A directory has more than one name, or the root has one.
    TwoNames = 11,
    /// Directories that lie below themselves.
    Loop = 12,
    /// An orphan that has names, that has no inode, or that no session has open.
    StaleOrphan = 13,
    /// An inode has no name, and is not an orphan that a session holds open.
    UnreachableInode = 14,
    /// The link count differs from the names counted.
    LinkCount = 15,
    /// A layout that was never assigned, or whose objects wait for the purge.
    BadLayout = 16,
    /// Content, attributes or counts of an inode that does not exist or cannot have them.
    Leftover = 17,
    /// The counts of a directory differ from its content.
    WrongCounts = 18,
    /// The number of inodes is wrong.
    WrongTotals = 19,
}

impl Wrong {
    pub const ALL: [Wrong; 19] = {
        use Wrong::*;
        [
            DamagedRecord,
            MalformedRecord,
            BadName,
            DoubleName,
            LostEntry,
            DanglingEntry,
            MisplacedEntry,
            WrongKind,
            BadHint,
            MissingHint,
            TwoNames,
            Loop,
            StaleOrphan,
            UnreachableInode,
            LinkCount,
            BadLayout,
            Leftover,
            WrongCounts,
            WrongTotals,
        ]
    };
}

impl Wire for Wrong {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let n = u8::get(r)?;
        Wrong::ALL.into_iter().find(|wrong| *wrong as u8 == n).ok_or(Malformed("what is wrong"))
    }
}
