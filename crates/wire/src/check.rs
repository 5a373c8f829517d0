//! Fsck of the name space, which the MDT does itself; and raw records, for backups. All of it is for servers and tools: each call
//! carries an admin capability.

use types::{Epoch, Incarnation, MirrorId, Seq, TargetId, Time, Uuid};

use crate::codec::{Bytes, Malformed, Reader, Wire, bodies, calls};
use crate::object::Capability;

bodies! {
    /// Goes on with check `run` for a moment; 0 begins one, in the place of any other. `seen`: findings that the caller has.
    Check { cap: Capability, run: u64, seen: u32 }
    CheckReply {
        run: u64,
        /// There are no more findings.
        done: bool,
        looked: Looked,
        /// The next ones behind `seen`. None come before everything was looked at.
        findings: Vec<Finding>,
        /// Of those that were found, how many were not kept.
        dropped: u64,
    }
    /// What was looked at.
    Looked {
        entries: u64,
        inodes: u64,
        inline_files: u64,
        striped_files: u64,
        /// Somebody writes them: their sizes are not judged.
        writing: u64,
        orphans: u64,
        dead: u64,
        /// Of all kinds.
        records: u64,
    }
    Finding {
        wrong: Wrong,
        /// What was found, for people.
        what: String,
        /// As far as there is one.
        path: Bytes,
        /// What `Repair` would do; empty if there is no one safe answer.
        repair: String,
    }
    /// Repairs the finding with this number, counted from 0, if it still shows.
    Repair { cap: Capability, run: u64, number: u32 }
    RepairReply { repaired: bool }
    /// The records of one state, as they are stored: goes on behind the key `after` with copy `run`; 0 begins one, in the place of any other.
    CopyOut { cap: Capability, run: u64, after: Bytes }
    CopyReply {
        run: u64,
        /// With the first records.
        head: Option<BackupHead>,
        /// In key order.
        records: Vec<RawRecord>,
        done: bool,
    }
    RawRecord { key: Bytes, value: Bytes }
    /// Whose records they are.
    BackupHead {
        fs_name: String,
        fs_uuid: Uuid,
        target_uuid: Uuid,
        target: TargetId,
        index: u32,
        mirror: MirrorId,
        epoch: Epoch,
        incarnation: Incarnation,
        /// The last entry that is in them.
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

/// What is wrong with a record, or among records. The order is that of repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wrong {
    /// A record cannot be read: its checksum is wrong.
    DamagedRecord = 1,
    /// A record says what no record says.
    MalformedRecord = 2,
    /// A name that no file can have.
    BadName = 3,
    /// A name stands twice in its directory.
    DoubleName = 4,
    /// The directory of a name is none.
    LostEntry = 5,
    /// A name leads to an inode that does not exist.
    DanglingEntry = 6,
    /// A name does not lie where its hash says, so nobody finds it.
    MisplacedEntry = 7,
    /// A name says that it leads to another kind of file than its inode is.
    WrongKind = 8,
    /// An inode says that it has a name that it has not.
    BadHint = 9,
    /// An inode does not know one of its names.
    MissingHint = 10,
    /// A directory has more than one name, or the root has one.
    TwoNames = 11,
    /// Directories that are below themselves.
    Loop = 12,
    /// An orphan that has names, or no inode, or nobody who has it open.
    StaleOrphan = 13,
    /// An inode has no name and is not an orphan that somebody holds open.
    UnreachableInode = 14,
    /// The link count differs from the names counted.
    LinkCount = 15,
    /// A layout that was never given, or whose objects are to be destroyed.
    BadLayout = 16,
    /// Content, attributes or counts of what has none.
    Leftover = 17,
    /// What a directory is said to hold is not what it holds.
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
