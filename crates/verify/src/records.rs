//! Values of records that are judged (meta.md): entries and inodes in both versions.

use crate::bytes::{Bytes, Read};

pub const FILE: u8 = 1;
pub const DIR: u8 = 2;
pub const SYMLINK: u8 = 3;

pub struct Entry {
    pub fid: u64,
    pub kind: u8,
    pub name: Vec<u8>,
}

pub struct Inode {
    pub kind: u8,
    pub size: u64,
    pub blocks: u64,
    pub nlink: u32,
    /// Parent, and `h64 | collision`.
    pub parents: Vec<(u64, u64)>,
    /// Highest given, and of layout and pending layout.
    pub generation: u32,
    pub layout: Option<u32>,
    pub pending: Option<u32>,
    pub target: usize,
}

pub fn entry(value: &[u8]) -> Read<Entry> {
    let mut b = Bytes::of("entry", value);
    let (kind, fid) = match b.u8()? {
        1 => {
            let fid = b.u64()?;
            (b.u8()?, fid)
        }
        2 => (b.u8()?, b.varint()?),
        _ => return b.wrong("version"),
    };
    let name = b.all().to_vec();
    let is_name = (1..=255).contains(&name.len()) && !name.iter().any(|c| matches!(c, 0 | b'/'));
    if !is_name || name == b"." || name == b".." || !(1..=7).contains(&kind) {
        return b.wrong("name, or kind");
    }
    Ok(Entry { fid, kind, name })
}

pub fn inode(fid: u64, value: &[u8]) -> Read<Inode> {
    let mut b = Bytes::of("inode", value);
    match b.u8()? {
        1 => first(fid, b),
        2 => second(b),
        _ => b.wrong("version"),
    }
}

fn first(fid: u64, mut b: Bytes<'_>) -> Read<Inode> {
    if b.u64()? != fid {
        return b.wrong("it is of another file");
    }
    let kind = b.u8()?;
    let (_mode, _uid, _gid, nlink, _rdev) = (b.u32()?, b.u32()?, b.u32()?, b.u32()?, b.u32()?);
    let (size, blocks) = (b.u64()?, b.u64()?);
    for _ in 0..4 {
        time(&mut b)?;
    }
    state(&mut b)?;
    let generation = b.u32()?;
    let mut parents = Vec::new();
    for _ in 0..b.u32()? {
        let (parent, h64) = (b.u64()?, b.u64()?);
        parents.push((parent, h64 | u64::from(b.u8()?)));
    }
    let mut optional = || -> Read<Option<u32>> {
        match b.u8()? {
            0 => Ok(None),
            1 => layout(&mut b).map(Some),
            _ => b.wrong("an option"),
        }
    };
    let (layout, pending) = (optional()?, optional()?);
    match b.u8()? {
        0 => {}
        1 => spec(&mut b)?,
        _ => return b.wrong("an option"),
    }
    let target = b.u32()? as usize;
    b.take(target)?;
    time(&mut b)?;
    flags(u64::from(b.u32()?), &b)?;
    acl(&mut b)?;
    acl(&mut b)?;
    b.end()?;
    Ok(Inode { kind, size, blocks, nlink, parents, generation, layout, pending, target })
}

fn second(mut b: Bytes<'_>) -> Read<Inode> {
    let b = &mut b;
    let (present, word) = (b.u16()?, b.u16()?);
    let kind = (word >> 12) as u8;
    if !(1..=7).contains(&kind) {
        return b.wrong("kind");
    }
    let mut parents = Vec::new();
    for _ in 0..b.varint()? {
        parents.push((b.varint()?, b.u64()?));
    }
    let has = |bit: u32| present >> bit & 1 == 1;
    // A field that is present must differ from its default.
    let number = |bit: u32, usual: u64, b: &mut Bytes<'_>| -> Read<u64> {
        match has(bit) {
            false => Ok(usual),
            true => match b.varint()? {
                n if n == usual => b.wrong(&format!("field {bit} is there and says nothing")),
                n => Ok(n),
            },
        }
    };
    let target = if has(0) { b.varint()? as usize } else { 0 };
    if target > 4095 || (has(0) && target == 0) {
        return b.wrong("target");
    }
    b.take(target)?;
    let size = number(1, if kind == DIR { 4096 } else { target as u64 }, b)?;
    let usual_blocks = match kind {
        DIR => 8,
        FILE => size.div_ceil(512),
        _ => 0,
    };
    let blocks = number(2, usual_blocks, b)?;
    let (_uid, _gid) = (b.varint32()?, b.varint32()?);
    let nlink = number(3, if kind == DIR { 2 } else { 1 }, b)?;
    number(4, 0, b)?;
    b.signed()?;
    if b.u32()? >= 1_000_000_000 {
        return b.wrong("nanoseconds");
    }
    for bit in 5..9 {
        if has(bit) {
            b.signed()?;
        }
    }
    if has(9) && state(b)? == 0 {
        return b.wrong("a settled state that is said");
    }
    let generation = number(10, 0, b)? as u32;
    let layout = if has(11) { Some(compact_layout(b)?) } else { None };
    let pending = if has(12) { Some(compact_layout(b)?) } else { None };
    if has(13) {
        spec(b)?;
    }
    flags(number(14, 0, b)?, b)?;
    if has(15) && acl(b)? + acl(b)? == 0 {
        return b.wrong("ACLs that say nothing");
    }
    b.end()?;
    Ok(Inode { kind, size, blocks, nlink: nlink as u32, parents, generation, layout, pending, target })
}

fn time(b: &mut Bytes<'_>) -> Read<()> {
    b.u64()?;
    if b.u32()? < 1_000_000_000 { Ok(()) } else { b.wrong("nanoseconds") }
}

/// Which state.
fn state(b: &mut Bytes<'_>) -> Read<u8> {
    let state = b.u8()?;
    match state {
        0 => {}
        1 => drop(b.u64()?),
        2 | 3 => drop((b.u64()?, b.u64()?)),
        _ => return b.wrong("state"),
    }
    Ok(state)
}

fn flags(flags: u64, b: &Bytes<'_>) -> Read<()> {
    if flags & !(0x10 | 0x20 | 0x40 | 0x80 | 1 << 31) == 0 { Ok(()) } else { b.wrong("flags") }
}

/// The generation.
pub fn layout(b: &mut Bytes<'_>) -> Read<u32> {
    let generation = b.u32()?;
    let mut end = 0;
    for _ in 0..b.u32()? {
        let before = std::mem::replace(&mut end, b.u64()?);
        let stripe_size = b.u32()?;
        let mirrors = b.u32()?;
        b.take(4 * mirrors as usize)?;
        let words = b.u32()?;
        b.take(8 * words as usize)?;
        component(before, end, stripe_size, mirrors.into(), b)?;
    }
    if end == u64::MAX { Ok(generation) } else { b.wrong("layout does not reach to the end") }
}

fn compact_layout(b: &mut Bytes<'_>) -> Read<u32> {
    let generation = b.varint32()?;
    let mut end = 0;
    for _ in 0..b.varint()? {
        let before = std::mem::replace(&mut end, b.varint()?.wrapping_sub(1));
        let stripe_size = 1u32.checked_shl(b.u8()?.into()).unwrap_or(0);
        let mirrors = b.varint()?;
        for _ in 0..mirrors {
            b.varint32()?;
        }
        for _ in 0..b.varint()? {
            b.varint()?;
        }
        component(before, end, stripe_size, mirrors, b)?;
    }
    if end == u64::MAX { Ok(generation) } else { b.wrong("layout does not reach to the end") }
}

fn component(before: u64, end: u64, stripe_size: u32, mirrors: u64, b: &Bytes<'_>) -> Read<()> {
    let is_well = before <= end && stripe_size.is_power_of_two() && mirrors > 0;
    if is_well { Ok(()) } else { b.wrong("component of a layout") }
}

fn spec(b: &mut Bytes<'_>) -> Read<()> {
    let components = b.u32()?;
    b.take(16 * components as usize)?;
    match b.u8()? {
        0 => Ok(()),
        1 => b.u32().map(drop),
        _ => b.wrong("an option"),
    }
}

/// How many entries.
fn acl(b: &mut Bytes<'_>) -> Read<u32> {
    let count = b.u32()?;
    if count > 511 {
        return b.wrong("ACL");
    }
    b.take(8 * count as usize)?;
    Ok(count)
}
