//! A client (or an MDS) and an OST: reading, writing, truncating, destroying and listing objects.
//!
//! Bulk bytes of a write follow the body; those of a read follow the reply body. CRCs are per fragment (see `types::crc`),
//! cut at multiples of 4 KiB of the *object* offset; stripes are multiples of 64 KiB, so file and object pages agree.

use types::*;

use crate::Empty;
use crate::codec::{Malformed, Reader, Wire, bodies, calls};

/// Rights in a capability.
pub const RIGHT_READ: u8 = 1;
pub const RIGHT_WRITE: u8 = 2;
/// Servers and tools (purge, fsck): any object.
pub const RIGHT_ADMIN: u8 = 4;

bodies! {
    /// What an open hands out for OST access; the MDT makes it, OSTs check it (see `object::cap`).
    Capability {
        fid: Fid,
        generation: Generation,
        rights: u8,
        /// `(MDT epoch, counter)`: objects keep the highest seen and refuse lower ones.
        lease_epoch: u32,
        lease_counter: u32,
        session: SessionId,
        /// Seconds since 1970.
        expiry_sec: u64,
        mac: Mac,
    }
    /// Writes bulk bytes at `offset`. Makes the object if there is none.
    Write {
        cap: Capability,
        object: ObjectId,
        offset: u64,
        crcs: Vec<u32>,
        mtime: Time,
        /// If there is no other space, the session's grant is for this.
        granted: bool,
    }
    WriteReply {
        /// The object's length in bytes after the write.
        len: u64,
        /// Pages that had no space before.
        pages: u32,
        /// The space for all pages of the range came out of the session's grant, which is that much smaller.
        granted: bool,
    }
    /// Space is to be kept for what the session holds unwritten: `bytes` of it in all. 0 gives all back. To be said again well within a
    /// minute, or the grant goes.
    Grant { bytes: u64 }
    /// How much is kept: less than wished for if the target fills, but no less than before unless that was wished for.
    GrantReply { bytes: u64 }
    /// Reads up to `len` bytes. Bytes past the object's end are not sent; holes are sent as zeros.
    Read { cap: Capability, object: ObjectId, offset: u64, len: u32 }
    ReadReply {
        /// False: there is no such object (a hole, or damage if the layout's written bit is set).
        exists: bool,
        /// CRC of each fragment of the bulk bytes.
        crcs: Vec<u32>,
    }
    /// Cuts or extends an object to `len` bytes; of an absent object nothing is made.
    Truncate { cap: Capability, object: ObjectId, len: u64 }
    /// Promises space to each page of the range that has none: a later write to it finds room. All or nothing. Makes the object if
    /// there is none.
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
        /// Some pages of the range were reserved before.
        mixed: bool,
    }
    /// Takes back what was promised to the pages of the range and is not used.
    Release { cap: Capability, object: ObjectId, offset: u64, len: u64 }
    /// Makes the bytes of the range zeros: whole pages become holes, or with `keep` stay reserved. Of an absent object nothing
    /// is made, and no object's length changes.
    Punch { cap: Capability, object: ObjectId, offset: u64, len: u64, keep: bool, mtime: Time }
    /// Where do objects have bytes, and where not, from an offset on?
    Seek { cap: Capability, objects: Vec<SeekFrom> }
    SeekFrom { object: ObjectId, offset: u64 }
    SeekReply { objects: Vec<Sought> }
    Sought {
        object: ObjectId,
        exists: bool,
        /// The first byte at or after the offset that lies in a page with bytes.
        data: Option<u64>,
        /// The first that does not; behind the object's end if no other.
        hole: u64,
    }
    /// Removes objects; absent ones are fine. `RIGHT_ADMIN`.
    Destroy { cap: Capability, objects: Vec<ObjectId> }
    /// Lengths and times of objects, as acknowledged (flushed or not). A higher lease version in the capability fences.
    Glimpse { cap: Capability, objects: Vec<ObjectId> }
    GlimpseReply { objects: Vec<ObjectStat> }
    ObjectStat {
        object: ObjectId,
        exists: bool,
        len: u64,
        /// Bytes allocated on the medium, or reserved there.
        used: u64,
        /// Where the last reserved page ends, bytes; 0 if none is.
        reserved_end: u64,
        mtime: Time,
    }
    /// Objects in id order after `after` (exclusive; `None` = from the start), for fsck. `RIGHT_ADMIN`.
    List { cap: Capability, after: Option<ObjectId>, max: u32 }
    ListReply { objects: Vec<ObjectStat>, more: bool }
    /// Reads every page of an object on the target and checks it; damage is recorded. `RIGHT_ADMIN`.
    Verify { cap: Capability, object: ObjectId }
    VerifyReply { bad_pages: u64 }
    /// A client found an object missing that its layout says was written.
    ReportMissing { cap: Capability, object: ObjectId, mirror: MirrorId }
    /// The damage list of this target. `RIGHT_ADMIN`.
    DamageList { cap: Capability }
    DamageListReply { damage: Vec<Damage> }
    /// One piece of known damage.
    Damage {
        object: ObjectId,
        /// Offset in the object, bytes; of the bad page. Of a bad part of the index: on the medium.
        offset: u64,
        /// 1 = checksum mismatch, 2 = object missing, 3 = medium error, 4 = a part of the index: `object` is its first.
        kind: u8,
        /// Seconds since 1970.
        found_sec: u64,
    }
    /// Forgets damage records of a file (all for fid 0). `RIGHT_ADMIN`.
    DamageClear { cap: Capability, fid: Fid }
    /// Looks at this target's scrub or changes its course; what is `None` stays. `RIGHT_ADMIN`.
    ScrubControl {
        cap: Capability,
        /// Of `scrub_action`.
        action: u8,
        /// Bytes per second; 0 = without a bound.
        rate: Option<u64>,
        /// From the end of a pass to the next, seconds; 0 = on request only.
        every_sec: Option<u64>,
    }
    ScrubReply {
        /// 0 = idle, 1 = running, 2 = paused.
        state: u8,
        rate: u64,
        every_sec: u64,
        /// From when on `every_sec` counts, seconds since 1970; 0 = not known yet.
        since_sec: u64,
        /// What a pass has to read, about.
        bytes_used: u64,
        /// Under way, or ended before its end.
        pass: ScrubPass,
        /// The last that came to its end.
        last: ScrubPass,
    }
    ScrubPass {
        /// Seconds since 1970; 0 = there was none.
        begun_sec: u64,
        /// 0 while it is under way.
        ended_sec: u64,
        bytes: u64,
        objects: u64,
        bad_pages: u64,
    }
}

/// What `ScrubControl` asks for.
pub mod scrub_action {
    pub const LOOK: u8 = 0;
    /// Begins a pass; a running one stays.
    pub const START: u8 = 1;
    pub const PAUSE: u8 = 2;
    pub const RESUME: u8 = 3;
    /// Ends the pass where it is.
    pub const STOP: u8 = 4;
}

/// 16 bytes of a keyed BLAKE3 over the capability's other fields.
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
    0x0302 Read => ReadReply, read;
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
}
