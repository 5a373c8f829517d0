//! Version 2 of inodes and entries: an inode of a typical file takes 30 bytes.
//!
//! meta-RC1: one value has one byte form. A field with its usual value is absent, and a bit says so; a present field has another value;
//! numbers are in their shortest form.  meta-RC2: the fields that count for a directory (`Counted`) come first, and can be read alone.

use types::*;
use wire::codec::{Malformed, Reader, Wire};
use wire::meta::{FLAGS_KEPT, FileState};
use wire::{put_varint, put_wide, unzigzag, unzigzag_wide, zigzag, zigzag_wide};

use super::{COMPACT, Counted, EntryRecord, InodeRecord, LINKABLE, Parent, VERSION, v1};
use crate::acl::Acl;
use crate::inode::{DIR_BLOCKS, DIR_SIZE, MODE_BITS};

/// Bits of the fields that are present.
mod has {
    pub const TARGET: u16 = 1 << 0;
    pub const SIZE: u16 = 1 << 1;
    pub const BLOCKS: u16 = 1 << 2;
    pub const NLINK: u16 = 1 << 3;
    pub const RDEV: u16 = 1 << 4;
    pub const ATIME: u16 = 1 << 5;
    pub const MTIME: u16 = 1 << 6;
    pub const CTIME: u16 = 1 << 7;
    pub const MTIME_SET_AT: u16 = 1 << 8;
    pub const STATE: u16 = 1 << 9;
    pub const GENERATION: u16 = 1 << 10;
    pub const LAYOUT: u16 = 1 << 11;
    pub const PENDING: u16 = 1 << 12;
    pub const SPEC: u16 = 1 << 13;
    pub const FLAGS: u16 = 1 << 14;
    pub const ACLS: u16 = 1 << 15;
}

/// Number of mode bits in the word that the mode shares with the kind.
const MODE_WIDTH: u32 = 12;
const NS_PER_SEC: i64 = 1_000_000_000;
/// Bytes of a hint without its fid.
const HINT_BYTES: usize = 8;
/// Fewest bytes of a layout's component.
const COMPONENT_BYTES_MIN: usize = 5;

fn usual_size(kind: Kind, target: &[u8]) -> u64 {
    match kind {
        Kind::Dir => DIR_SIZE,
        _ => target.len() as u64,
    }
}

fn usual_blocks(kind: Kind, size: u64) -> u64 {
    match kind {
        Kind::Dir => DIR_BLOCKS,
        Kind::File => size.div_ceil(512),
        _ => 0,
    }
}

fn usual_nlink(kind: Kind) -> u32 {
    if kind == Kind::Dir { 2 } else { 1 }
}

impl InodeRecord {
    /// Encodes the record. The fid is not included: the key has it.
    pub fn encode(&self) -> Vec<u8> {
        let Attr { kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime, .. } =
            self.attr;
        let layouts = [&self.layout, &self.pending].into_iter().flatten();
        let room = 64 + self.target.len() + self.parents.len() * 12 + layouts.count() * 128;
        let mut out = Vec::with_capacity(room);
        // 1. Which fields are present.
        let present = [
            (has::TARGET, !self.target.is_empty()),
            (has::SIZE, size != usual_size(kind, &self.target)),
            (has::BLOCKS, blocks != usual_blocks(kind, size)),
            (has::NLINK, nlink != usual_nlink(kind)),
            (has::RDEV, rdev != 0),
            (has::ATIME, atime != btime),
            (has::MTIME, mtime != btime),
            (has::CTIME, ctime != mtime),
            (has::MTIME_SET_AT, self.mtime_set_at != Time::default()),
            (has::STATE, self.state != FileState::Settled),
            (has::GENERATION, self.generation != Generation(0)),
            (has::LAYOUT, self.layout.is_some()),
            (has::PENDING, self.pending.is_some()),
            (has::SPEC, self.spec.is_some()),
            (has::FLAGS, self.flags != 0),
            (has::ACLS, !(self.access_acl.is_empty() && self.default_acl.is_empty())),
        ];
        let mask = present.iter().filter(|p| p.1).fold(0, |mask, p| mask | p.0);
        out.push(COMPACT);
        mask.put(&mut out);
        ((mode & MODE_BITS) as u16 | (kind as u16) << MODE_WIDTH).put(&mut out);
        // 2. The fields that count for the directory.
        put_varint(&mut out, self.parents.len() as u64);
        for Parent { fid, h64, collision } in &self.parents {
            debug_assert_eq!(*h64 as u8, 0, "hashes of names leave their low byte to the collision number");
            put_varint(&mut out, fid.0);
            (h64 | *collision as u64).put(&mut out);
        }
        if mask & has::TARGET != 0 {
            put_varint(&mut out, self.target.len() as u64);
            out.extend_from_slice(&self.target);
        }
        let number = |bit, value: u64, out: &mut Vec<u8>| {
            if mask & bit != 0 {
                put_varint(out, value);
            }
        };
        number(has::SIZE, size, &mut out);
        number(has::BLOCKS, blocks, &mut out);
        // 3. The other attributes.
        put_varint(&mut out, uid as u64);
        put_varint(&mut out, gid as u64);
        number(has::NLINK, nlink as u64, &mut out);
        number(has::RDEV, rdev as u64, &mut out);
        put_varint(&mut out, zigzag(btime.sec));
        btime.nsec.put(&mut out);
        let times = [
            (has::ATIME, atime),
            (has::MTIME, mtime),
            (has::CTIME, ctime),
            (has::MTIME_SET_AT, self.mtime_set_at),
        ];
        for (_, time) in times.into_iter().filter(|(bit, _)| mask & bit != 0) {
            put_distance(time, btime, &mut out);
        }
        // 4. The rest of the record.
        if mask & has::STATE != 0 {
            self.state.put(&mut out);
        }
        number(has::GENERATION, self.generation.0 as u64, &mut out);
        for layout in [&self.layout, &self.pending].into_iter().flatten() {
            put_layout(layout, &mut out);
        }
        if let Some(spec) = &self.spec {
            spec.put(&mut out);
        }
        number(has::FLAGS, self.flags as u64, &mut out);
        if mask & has::ACLS != 0 {
            self.access_acl.put(&mut out);
            self.default_acl.put(&mut out);
        }
        debug_assert!(
            InodeRecord::decode(self.fid(), &out).is_ok_and(|record| record == *self),
            "meta-RC1: an inode reads back as written"
        );
        out
    }

    pub fn decode(fid: Fid, bytes: &[u8]) -> Result<InodeRecord, Malformed> {
        let mut r = Reader::new(bytes);
        match r.byte()? {
            COMPACT => decode(fid, r),
            VERSION => v1::inode(fid, r),
            _ => Err(Malformed("record version")),
        }
    }
}

fn decode(fid: Fid, mut r: Reader<'_>) -> Result<InodeRecord, Malformed> {
    let r = &mut r;
    let Head { mask, kind, mode } = head(r)?;
    let is = |bit: u16| mask & bit != 0;
    let count = r.varint()? as usize;
    if count > r.remaining() / (HINT_BYTES + 1) {
        return Err(Malformed("parents"));
    }
    let mut parents = Vec::with_capacity(count);
    for _ in 0..count {
        let (fid, hash) = (Fid(r.varint()?), u64::get(r)?);
        parents.push(Parent { fid, h64: hash & !0xff, collision: hash as u8 });
    }
    let target = if is(has::TARGET) { target(r)?.to_vec() } else { Vec::new() };
    let size = field(is(has::SIZE), usual_size(kind, &target), || r.varint())?;
    let blocks = field(is(has::BLOCKS), usual_blocks(kind, size), || r.varint())?;
    let (uid, gid) = (short(r)?, short(r)?);
    let nlink = field(is(has::NLINK), usual_nlink(kind), || short(r))?;
    let rdev = field(is(has::RDEV), 0, || short(r))?;
    let btime = Time { sec: unzigzag(r.varint()?), nsec: u32::get(r)? };
    if btime.nsec as i64 >= NS_PER_SEC {
        return Err(Malformed("nanoseconds"));
    }
    let atime = field(is(has::ATIME), btime, || time_from(r, btime))?;
    let mtime = field(is(has::MTIME), btime, || time_from(r, btime))?;
    let ctime = field(is(has::CTIME), mtime, || time_from(r, btime))?;
    let mtime_set_at = field(is(has::MTIME_SET_AT), Time::default(), || time_from(r, btime))?;
    let state = field(is(has::STATE), FileState::Settled, || Wire::get(r))?;
    let generation = field(is(has::GENERATION), Generation(0), || short(r).map(Generation))?;
    let layout = is(has::LAYOUT).then(|| layout(r)).transpose()?;
    let pending = is(has::PENDING).then(|| self::layout(r)).transpose()?;
    let spec = is(has::SPEC).then(|| Wire::get(r)).transpose()?;
    let flags = field(is(has::FLAGS), 0, || short(r))?;
    let no_acls = (Acl::default(), Acl::default());
    let (access_acl, default_acl) = match is(has::ACLS) {
        true => field(true, no_acls, || Ok((Wire::get(r)?, Wire::get(r)?)))?,
        false => no_acls,
    };
    r.end()?;
    if flags & !(FLAGS_KEPT | LINKABLE) != 0 {
        return Err(Malformed("flags that are not known"));
    }
    let attr = Attr { fid, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime };
    Ok(InodeRecord {
        attr,
        state,
        generation,
        parents,
        layout,
        pending,
        spec,
        target,
        mtime_set_at,
        flags,
        access_acl,
        default_acl,
    })
}

/// meta-RC2: reads the fields that count for a directory from an inode of either version, without the rest.
pub fn counted(fid: Fid, bytes: &[u8]) -> Result<Counted, Malformed> {
    let mut r = Reader::new(bytes);
    match r.byte()? {
        COMPACT => {}
        VERSION => {
            let InodeRecord { attr: Attr { kind, size, blocks, .. }, parents, .. } = v1::inode(fid, r)?;
            return Ok(Counted { parent: parents.first().map(|p| p.fid), kind, size, blocks });
        }
        _ => return Err(Malformed("record version")),
    }
    let Head { mask, kind, .. } = head(&mut r)?;
    let mut parent = None;
    for _ in 0..r.varint()? {
        let fid = Fid(r.varint()?);
        r.take(HINT_BYTES)?;
        parent = parent.or(Some(fid));
    }
    let target = if mask & has::TARGET != 0 { target(&mut r)? } else { &[] };
    let size = field(mask & has::SIZE != 0, usual_size(kind, target), || r.varint())?;
    let blocks = field(mask & has::BLOCKS != 0, usual_blocks(kind, size), || r.varint())?;
    Ok(Counted { parent, kind, size, blocks })
}

/// True if this entry may name a directory: also if the version does not tell.
pub fn may_be_of_dir(entry: &[u8]) -> bool {
    !matches!(entry, [COMPACT, kind, ..] if *kind != Kind::Dir as u8)
}

struct Head {
    mask: u16,
    kind: Kind,
    mode: u32,
}

fn head(r: &mut Reader<'_>) -> Result<Head, Malformed> {
    let (mask, word) = (u16::get(r)?, u16::get(r)?);
    let kind = Kind::from_u8((word >> MODE_WIDTH) as u8).ok_or(Malformed("kind"))?;
    Ok(Head { mask, kind, mode: word as u32 & MODE_BITS })
}

/// meta-RC1: a present field differs from its usual value.
#[inline]
fn field<T: PartialEq>(
    is_present: bool,
    usual: T,
    get: impl FnOnce() -> Result<T, Malformed>,
) -> Result<T, Malformed> {
    if !is_present {
        return Ok(usual);
    }
    match get()? {
        value if value == usual => Err(Malformed("a field that says nothing")),
        value => Ok(value),
    }
}

fn target<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    match r.varint()? {
        0 => Err(Malformed("a field that says nothing")),
        len => r.take(usize::try_from(len).map_err(|_| Malformed("length"))?),
    }
}

/// A number of 32 bits.
fn short(r: &mut Reader<'_>) -> Result<u32, Malformed> {
    u32::try_from(r.varint()?).map_err(|_| Malformed("a number above 32 bits"))
}

/// A time is stored as its distance from the birth time: mostly a few bytes, at most 14.
fn put_distance(time: Time, btime: Time, out: &mut Vec<u8>) {
    let nsec = time.nsec as i64 - btime.nsec as i64;
    // Two-word arithmetic is slow, and nearly no file needs it.
    let near = time.sec.checked_sub(btime.sec).and_then(|sec| sec.checked_mul(NS_PER_SEC)?.checked_add(nsec));
    match near {
        Some(ns) => put_varint(out, zigzag(ns)),
        None => {
            let sec = time.sec as i128 - btime.sec as i128;
            put_wide(out, zigzag_wide(sec * NS_PER_SEC as i128 + nsec as i128));
        }
    }
}

fn time_from(r: &mut Reader<'_>, btime: Time) -> Result<Time, Malformed> {
    let distance = unzigzag_wide(r.wide()?);
    let near = i64::try_from(distance).ok().and_then(|d| d.checked_add(btime.nsec as i64));
    let (sec, nsec) = match near {
        Some(ns) => (ns.div_euclid(NS_PER_SEC) as i128, ns.rem_euclid(NS_PER_SEC)),
        None => {
            let ns = distance + btime.nsec as i128;
            (ns.div_euclid(NS_PER_SEC as i128), ns.rem_euclid(NS_PER_SEC as i128) as i64)
        }
    };
    let sec = i64::try_from(btime.sec as i128 + sec).map_err(|_| Malformed("a time"))?;
    Ok(Time { sec, nsec: nsec as u32 })
}

fn put_layout(layout: &Layout, out: &mut Vec<u8>) {
    put_varint(out, layout.generation.0 as u64);
    put_varint(out, layout.components.len() as u64);
    for Component { end, stripe_size, mirrors, written } in &layout.components {
        // The last component's end is the highest number there is. Plus one it is 0, which takes one byte.
        put_varint(out, end.wrapping_add(1));
        out.push(stripe_size.trailing_zeros() as u8);
        put_varint(out, mirrors.len() as u64);
        mirrors.iter().for_each(|m| put_varint(out, m.0 as u64));
        put_varint(out, written.len() as u64);
        written.iter().for_each(|word| put_varint(out, *word));
    }
}

fn layout(r: &mut Reader<'_>) -> Result<Layout, Malformed> {
    let generation = Generation(short(r)?);
    let count = r.varint()? as usize;
    if count > r.remaining() / COMPONENT_BYTES_MIN {
        return Err(Malformed("components"));
    }
    let mut components = Vec::with_capacity(count);
    for _ in 0..count {
        let end = r.varint()?.wrapping_sub(1);
        let stripe_size = 1u32.checked_shl(r.byte()? as u32).ok_or(Malformed("stripe size"))?;
        let mirrors = list(r, |r| short(r).map(MirrorId))?;
        let written = list(r, Reader::varint)?;
        components.push(Component { end, stripe_size, mirrors, written });
    }
    let layout = Layout { generation, components };
    if layout.is_valid() { Ok(layout) } else { Err(Malformed("layout")) }
}

/// A count, and as many numbers.
fn list<'a, T>(
    r: &mut Reader<'a>,
    get: impl Fn(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = r.varint()? as usize;
    if count > r.remaining() {
        return Err(Malformed("count"));
    }
    let mut out = Vec::with_capacity(count);
    for _ in 0..count {
        out.push(get(r)?);
    }
    Ok(out)
}

impl EntryRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + self.name.len());
        out.push(COMPACT);
        out.push(self.kind as u8);
        put_varint(&mut out, self.fid.0);
        out.extend_from_slice(&self.name);
        debug_assert!(
            EntryRecord::decode(&out).is_ok_and(|entry| entry == *self),
            "meta-RC1: an entry reads back as written"
        );
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<EntryRecord, Malformed> {
        let mut r = Reader::new(bytes);
        let entry = match r.byte()? {
            COMPACT => {
                let (kind, fid) = (Wire::get(&mut r)?, Fid(r.varint()?));
                EntryRecord { fid, kind, name: r.take(r.remaining())?.to_vec() }
            }
            VERSION => v1::entry(r)?,
            _ => return Err(Malformed("record version")),
        };
        match entry.name.len() {
            1..=NAME_MAX => Ok(entry),
            _ => Err(Malformed("entry name")),
        }
    }
}
