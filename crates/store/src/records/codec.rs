//! Encoding of objects in the leaves of the index, and in the checkpoints of earlier releases. See docs/formats/ost.md, "Index".
//!
//! Integers are LEB128 varints, delta-encoded where neighbours are close.
//! store-K1: no object takes more than the `*_BYTES_MAX` here say, so that space can be checked before a write is admitted.

use std::io::{self, Read};

use types::{Fid, Generation, ObjectId, PAGE_SIZE, Seq, Time};
use wire::Wire;

use crate::records::extent::{Extent, ExtentMap};
use crate::records::index::State;
use crate::records::patch::{Patch, Patches};
use crate::records::reserved::Reserved;
use disk::alloc::Run;

/// Varints: record length 5, fid 10, generation 5, component 3, stripe 3, flags 1, length 7, mtime 10 + 5, lease 10, extent count 5,
/// counts of reserved runs and patches 10.
pub const OBJECT_BYTES_MAX: u64 = 74;
/// Varints: page gap 5, place 7 (below 2^48, as a signed difference), pages 2; each page's CRC is counted separately.
pub const EXTENT_BYTES_MAX: u64 = 14;
/// A reserved page: an extent of one page with its CRC, which it may become, or a run of its own (gap 5, pages 5). Its neighbours
/// decide which, so both are counted.
pub const RESERVED_PAGE_BYTES: u64 = EXTENT_BYTES_MAX + 4 + 10;
/// A patched page: its patch (page gap 5, log entry 10), and the extent of one page with its CRC that it becomes.
pub const PATCHED_PAGE_BYTES: u64 = 15 + EXTENT_BYTES_MAX + 4;

/// Appends an object's record as a leaf has it: its length, then the object.
pub fn put_record(buf: &mut Vec<u8>, id: &ObjectId, state: &State) {
    let mut object = Vec::with_capacity(64);
    put_object(&mut object, id, state);
    put_varint(buf, object.len() as u64);
    buf.extend_from_slice(&object);
}

/// One object of a leaf, still encoded.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    pub id: ObjectId,
    /// The whole record, with its length.
    pub bytes: &'a [u8],
    /// The record without its length.
    object: &'a [u8],
}

impl RawRecord<'_> {
    pub fn state(&self) -> io::Result<State> {
        let mut object = self.object;
        let (_, state) = get_object(&mut object, 0, Some(Seq(0)))?;
        if object.is_empty() { Ok(state) } else { Err(malformed("object of a leaf")) }
    }
}

/// The objects of a leaf in order. The iterator ends after the first malformed record.
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub fn of(leaf: &'a [u8]) -> Records<'a> {
        Records { rest: leaf }
    }

    fn take(&mut self) -> io::Result<RawRecord<'a>> {
        let all = self.rest;
        let mut behind = all;
        let len = get_varint(&mut behind)?;
        let (object, rest) = usize::try_from(len)
            .ok()
            .and_then(|len| behind.split_at_checked(len))
            .ok_or_else(|| malformed("length of an object"))?;
        let id = get_id(&mut &*object, 0)?;
        self.rest = rest;
        Ok(RawRecord { id, bytes: &all[..all.len() - rest.len()], object })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = io::Result<RawRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let found = self.take();
        if found.is_err() {
            self.rest = &[];
        }
        Some(found)
    }
}

pub fn put_id(buf: &mut Vec<u8>, id: &ObjectId, fid_before: u64) {
    put_varint(buf, id.fid.0 - fid_before);
    put_varint(buf, id.generation.0 as u64);
    put_varint(buf, id.component as u64);
    put_varint(buf, id.stripe as u64);
}

pub fn get_id(r: &mut impl Read, fid_before: u64) -> io::Result<ObjectId> {
    let fid = get_varint(r)?.checked_add(fid_before).ok_or_else(|| malformed("fid"))?;
    let generation = Generation(get_u32(r)?);
    let component = get_limited(r, u16::MAX as u64, "component")? as u16;
    let stripe = get_limited(r, u16::MAX as u64, "stripe")? as u16;
    Ok(ObjectId { fid: Fid(fid), generation, component, stripe, snapshot: 0 })
}

fn put_object(buf: &mut Vec<u8>, id: &ObjectId, state: &State) {
    put_id(buf, id, 0);
    buf.push(state.exists as u8);
    put_varint(buf, state.len);
    put_varint(buf, zigzag(state.mtime.sec));
    put_varint(buf, state.mtime.nsec as u64);
    put_varint(buf, state.lease);
    put_varint(buf, state.extents.len() as u64);
    let (mut page_before, mut place_before) = (0u32, 0i64);
    for (page, e) in state.extents.iter() {
        put_varint(buf, (page - page_before) as u64);
        put_varint(buf, zigzag(e.run.start as i64 - place_before));
        put_varint(buf, e.run.pages as u64);
        e.crcs().iter().for_each(|crc| crc.put(buf));
        (page_before, place_before) = (page + e.run.pages, e.run.end() as i64);
    }
    put_varint(buf, state.reserved.len() as u64);
    let mut page_before = 0;
    for (first, limit) in state.reserved.iter() {
        put_varint(buf, (first - page_before) as u64);
        put_varint(buf, (limit - first) as u64);
        page_before = limit;
    }
    put_varint(buf, state.patches.len() as u64);
    let mut page_before = 0;
    for (page, patch) in state.patches.iter() {
        put_varint(buf, (page - page_before) as u64);
        put_varint(buf, patch.since().0);
        page_before = page;
    }
}

/// `named_after`: the log entry from which patches' first entries are counted; `None`: the encoding has no patches.
pub fn get_object(
    r: &mut impl Read,
    fid_before: u64,
    named_after: Option<Seq>,
) -> io::Result<(ObjectId, State)> {
    let id = get_id(r, fid_before)?;
    let exists = match get_bytes(r)? {
        [0] => false,
        [1] => true,
        _ => return Err(malformed("object flags")),
    };
    let len = get_limited(r, types::FILE_SIZE_MAX, "object length")?;
    let sec = unzigzag(get_varint(r)?);
    let nsec = get_limited(r, 999_999_999, "nanoseconds")? as u32;
    let lease = get_varint(r)?;
    let extents = get_extents(r, len)?;
    let reserved = get_reserved(r, &extents)?;
    let (mtime, patches) = (Time { sec, nsec }, Patches::default());
    let mut state = State { exists, len, mtime, lease, extents, patches, reserved };
    if let Some(named_after) = named_after {
        get_patches(r, &mut state, named_after)?;
    }
    Ok((id, state))
}

fn get_patches(r: &mut impl Read, state: &mut State, named_after: Seq) -> io::Result<()> {
    let limit = state.len.div_ceil(PAGE_SIZE as u64);
    let mut page = 0;
    for i in 0..get_limited(r, limit, "count of patches")? {
        let gap = get_limited(r, limit, "page gap")?;
        page += gap;
        let after = get_varint(r)?;
        let since = named_after.0.checked_add(after).ok_or_else(|| malformed("entry of a patch"))?;
        let is_sound = page < limit && (i == 0 || gap > 0) && after > 0;
        if !is_sound || state.reserved.count(page as u32, page as u32 + 1) > 0 {
            return Err(malformed("patch"));
        }
        let is_new = state.extents.site(page as u32).is_none();
        state.patches.insert(page as u32, Patch::named(Seq(since), is_new));
    }
    Ok(())
}

fn get_reserved(r: &mut impl Read, extents: &ExtentMap) -> io::Result<Reserved> {
    let limit = types::FILE_SIZE_MAX / PAGE_SIZE as u64;
    let mut reserved = Reserved::default();
    let mut page = 0;
    for i in 0..get_limited(r, limit, "count of reserved runs")? {
        let first = page + get_limited(r, limit, "page gap")?;
        let end = first + get_limited(r, limit, "pages of a reserved run")?;
        // Runs do not touch, and a page that has data is not reserved.
        let is_sound = first < end && end <= limit && (i == 0 || first > page);
        if !is_sound || extents.count(first as u32, end as u32) > 0 {
            return Err(malformed("reserved run"));
        }
        reserved.insert(first as u32, end as u32);
        page = end;
    }
    Ok(reserved)
}

fn get_extents(r: &mut impl Read, len: u64) -> io::Result<ExtentMap> {
    let limit = len.div_ceil(PAGE_SIZE as u64);
    let mut map = ExtentMap::default();
    let (mut page, mut place, mut freed) = (0u64, 0i64, Vec::new());
    for _ in 0..get_limited(r, limit, "extent count")? {
        page += get_limited(r, limit, "page gap")?;
        place = place.checked_add(unzigzag(get_varint(r)?)).ok_or_else(|| malformed("place"))?;
        let pages = get_limited(r, limit, "pages of an extent")?;
        if pages == 0 || page + pages > limit || !(0..1 << 48).contains(&place) {
            return Err(malformed("extent"));
        }
        let mut crcs = Vec::new();
        for _ in 0..pages {
            crcs.push(u32::from_le_bytes(get_bytes(r)?));
        }
        let run = Run { start: place as u64, pages: pages as u32 };
        map.put(page as u32, Extent::new(run, &crcs.into(), 0), &mut freed);
        page += pages;
        place += pages as i64;
    }
    Ok(map)
}

pub fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed {what} in a checkpoint"))
}

pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

pub fn get_varint(r: &mut impl Read) -> io::Result<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = get_bytes(r)?;
        let bits = (byte & 0x7f) as u64;
        if shift == 63 && bits > 1 {
            return Err(malformed("number"));
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(malformed("number"))
}

pub fn get_limited(r: &mut impl Read, max: u64, what: &str) -> io::Result<u64> {
    let n = get_varint(r)?;
    if n <= max { Ok(n) } else { Err(malformed(what)) }
}

pub fn get_u32(r: &mut impl Read) -> io::Result<u32> {
    Ok(get_limited(r, u32::MAX as u64, "number")? as u32)
}

pub fn get_bytes<const N: usize>(r: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    r.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}
pub fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}
