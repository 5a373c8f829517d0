//! Objects between a client (or an MDS) and an OST: reading, writing, truncating, destroying and listing.
//!
//! Bulk bytes of a write follow the body; those of a read follow the reply body. CRCs are per fragment (see `types::crc`), cut at
//! multiples of 4 KiB of the *object* offset. Stripes are multiples of 64 KiB, so pages of objects are pages of the file.

use types::*;

use crate::Empty;
use crate::codec::{Malformed, Reader, Wire, bodies, calls};

/// Rights in a capability.
pub const RIGHT_READ: u8 = 1;
pub const RIGHT_WRITE: u8 = 2;
/// Access to any object, for servers and tools (purge, fsck).
pub const RIGHT_ADMIN: u8 = 4;

bodies! {
    /// The right to access objects at OSTs, which an open hands out. The MDT signs it, and OSTs check it (see `object::cap`).
    Capability {
        fid: Fid,
        generation: Generation,
        rights: u8,
        /// `(MDT epoch, counter)`: an object keeps the highest version seen and refuses lower ones.
        lease_epoch: u32,
        lease_counter: u32,
        session: SessionId,
        /// Seconds since 1970.
        expiry_sec: u64,
        mac: Mac,
    }
    /// Writes bulk bytes at `offset`. Creates the object if it does not exist.
    Write {
        cap: Capability,
        object: ObjectId,
        offset: u64,
        crcs: Vec<u32>,
        mtime: Time,
        /// The write may use the session's grant if there is no other free space.
        granted: bool,
        /// The range lock under which it is sent (`LockRange`); 0: none.
        lock: u64,
    }
    WriteReply {
        /// A lower bound of the object's length in bytes after the write: at least the write's end.
        len: u64,
        /// Pages that had no space before.
        pages: u32,
        /// The space for all pages of the range came from the session's grant, which is smaller by that much.
        granted: bool,
    }
    /// Asks the OST to keep `bytes` of free space in total for unwritten data of this session. 0 returns all. To be renewed well within a
    /// minute, or the grant expires.
    Grant { bytes: u64 }
    /// The kept bytes: fewer than requested if the target fills up, but no fewer than before unless that was requested.
    GrantReply { bytes: u64 }
    /// Reads up to `len` bytes. The reply has no bytes past the object's end; holes are sent as zeros. `lock` as in `Write`.
    Read { cap: Capability, object: ObjectId, offset: u64, len: u32, lock: u64 }
    ReadReply {
        /// False: the object does not exist (a hole, or damage if the layout's written bit is set).
        exists: bool,
        /// CRC of each fragment of the bulk bytes.
        crcs: Vec<u32>,
    }
    /// Locks a range of an object for this session's call `lock`, which is not 0 (decision 0055). `write`: exclusively. Answered when it is
    /// granted; `NotReady` asks to repeat it. Other requests wait for it. It ends after 5 s, or with a restart of the OST: requests that name
    /// it are refused as `Fenced` then.
    LockRange { cap: Capability, object: ObjectId, offset: u64, len: u64, write: bool, lock: u64 }
    /// Ends the locks of this session's call `lock` on these objects. No error if they are not held.
    UnlockRange { lock: u64, objects: Vec<ObjectId> }
    /// Cuts or extends an object to `len` bytes. An absent object stays absent.
    Truncate { cap: Capability, object: ObjectId, len: u64 }
    /// Reserves space for each page of the range that has none, so that a later write to it finds space. All or nothing. Creates the
    /// object if it does not exist.
    Reserve {
        cap: Capability,
        object: ObjectId,
        offset: u64,
        len: u64,
        /// The object is at least this long afterwards, bytes.
        end: u64,
        mtime: Time,
    }
    ReserveReply {
        /// Pages that had no space.
        pages: u64,
        /// Some pages of the range had reserved space before.
        mixed: bool,
    }
    /// Frees the unused reserved space of the pages of the range.
    Release { cap: Capability, object: ObjectId, offset: u64, len: u64 }
    /// Makes the bytes of the range zeros: whole pages become holes, or stay reserved with `keep`. An absent object stays absent, and no
    /// object changes its length.
    Punch { cap: Capability, object: ObjectId, offset: u64, len: u64, keep: bool, mtime: Time }
    /// Finds the next data and the next hole of each object, from an offset on.
    Seek { cap: Capability, objects: Vec<SeekFrom> }
    SeekFrom { object: ObjectId, offset: u64 }
    SeekReply { objects: Vec<Sought> }
    Sought {
        object: ObjectId,
        exists: bool,
        /// The first byte at or after the offset that lies in a page with data.
        data: Option<u64>,
        /// The first that lies in no page with data; past the object's end if there is no other.
        hole: u64,
    }
    /// Finds the first reserved range of an object at or after `offset`: pages with space and without data.
    SeekReserved { cap: Capability, object: ObjectId, offset: u64 }
    /// Bytes; `begin` is `end` if there is none.
    SeekReservedReply { begin: u64, end: u64 }
    /// Removes objects; absent ones are no error. Needs `RIGHT_ADMIN`.
    Destroy { cap: Capability, objects: Vec<ObjectId> }
    /// Reads lengths and times of objects, as acknowledged (flushed or not). A higher lease version in the capability fences.
    Glimpse { cap: Capability, objects: Vec<ObjectId> }
    GlimpseReply { objects: Vec<ObjectStat> }
    ObjectStat {
        object: ObjectId,
        exists: bool,
        len: u64,
        /// Bytes allocated or reserved on the medium.
        used: u64,
        /// The end of the last reserved page in bytes; 0 if there is none.
        reserved_end: u64,
        mtime: Time,
    }
    /// Lists objects in id order after `after` (exclusive; `None` = from the start), for fsck. Needs `RIGHT_ADMIN`.
    List { cap: Capability, after: Option<ObjectId>, max: u32 }
    ListReply { objects: Vec<ObjectStat>, more: bool }
    /// Reads and checks every page of an object on the target; damage is recorded. Needs `RIGHT_ADMIN`.
    Verify { cap: Capability, object: ObjectId }
    VerifyReply { bad_pages: u64 }
    /// Reports a missing object that its layout marks as written.
    ReportMissing { cap: Capability, object: ObjectId, mirror: MirrorId }
    /// Reads the damage list of this target. Needs `RIGHT_ADMIN`.
    DamageList { cap: Capability }
    DamageListReply { damage: Vec<Damage> }
    /// One piece of known damage.
    Damage {
        object: ObjectId,
        /// Offset of the bad page in the object, bytes. For a bad part of the index: the offset on the medium.
        offset: u64,
        /// 1 = checksum mismatch, 2 = object missing, 3 = medium error, 4 = a part of the index, of which `object` is the first.
        kind: u8,
        /// Seconds since 1970.
        found_sec: u64,
        /// The page has its bytes again, from the other member of the mirror.
        is_repaired: bool,
    }
    /// Removes the damage records of a file (all for fid 0). Needs `RIGHT_ADMIN`.
    DamageClear { cap: Capability, fid: Fid }
    /// Reads or changes the state of this target's scrub; a field that is `None` stays. Needs `RIGHT_ADMIN`.
    ScrubControl {
        cap: Capability,
        /// A number of `scrub_action`.
        action: u8,
        /// Bytes per second; 0 = no bound.
        rate: Option<u64>,
        /// Seconds from the end of a pass to the next; 0 = on request only.
        every_sec: Option<u64>,
    }
    ScrubReply {
        /// `scrub_state`.
        state: u8,
        rate: u64,
        every_sec: u64,
        /// Begin of the interval `every_sec`, seconds since 1970; 0 = not known yet.
        since_sec: u64,
        /// Bytes that a pass has to read, about.
        bytes_used: u64,
        /// The pass in progress, or one that was stopped.
        pass: ScrubPass,
        /// The last complete pass.
        last: ScrubPass,
    }
    ScrubPass {
        /// Seconds since 1970; 0 = no pass yet.
        begun_sec: u64,
        /// Seconds since 1970; 0 while the pass is in progress.
        ended_sec: u64,
        bytes: u64,
        objects: u64,
        bad_pages: u64,
        /// Pages that were bad, and were repaired from the other member of the mirror. They are not in `bad_pages`.
        repaired: u64,
    }
}

/// The actions of `ScrubControl`.
/// Values of `ScrubReply::state`; OSTs keep them on their media too.
pub mod scrub_state {
    /// No pass is under way.
    pub const IDLE: u8 = 0;
    pub const RUNNING: u8 = 1;
    pub const PAUSED: u8 = 2;
}

pub mod scrub_action {
    pub const LOOK: u8 = 0;
    /// Begins a pass; a running one stays.
    pub const START: u8 = 1;
    pub const PAUSE: u8 = 2;
    pub const RESUME: u8 = 3;
    /// Stops the pass at its present position.
    pub const STOP: u8 = 4;
}

/// The first 16 bytes of a keyed BLAKE3 over the capability's other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mac(pub [u8; 16]);
impl Wire for Mac {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Mac(r.take(16)?.try_into().expect("take gave 16 bytes")))
    }
}

calls! {
    0x0301 Write => WriteReply, mutate;
    0x0320 Grant => GrantReply, read;
    0x0302 Read => ReadReply, bulk;
    0x0303 Truncate => Empty, mutate;
    0x0304 Destroy => Empty, mutate;
    0x0305 Glimpse => GlimpseReply, read;
    0x0306 List => ListReply, read;
    0x0307 Verify => VerifyReply, read;
    0x0308 ReportMissing => Empty, read;
    0x0309 DamageList => DamageListReply, read;
    0x030a DamageClear => Empty, read;
    0x030b Reserve => ReserveReply, mutate;
    0x030c Release => Empty, mutate;
    0x030d Punch => Empty, mutate;
    0x030e Seek => SeekReply, read;
    0x030f ScrubControl => ScrubReply, read;
    0x0330 LockRange => Empty, read;
    0x0331 UnlockRange => Empty, read;
    0x0332 SeekReserved => SeekReservedReply, read;
}
