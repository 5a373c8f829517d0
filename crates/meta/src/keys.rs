//! Keys of the MDT's records. The first byte is the kind; numbers are big-endian, so that byte order is number order.

use types::{Fid, Generation, Key, SessionId};

pub const ENTRY: u8 = 1;
pub const INODE: u8 = 2;
pub const INLINE: u8 = 3;
pub const XATTRS: u8 = 4;
pub const ORPHAN: u8 = 5;
pub const DEAD: u8 = 6;
pub const SESSION: u8 = 7;
pub const SLOT: u8 = 8;
pub const COUNTER: u8 = 9;
pub const TOTAL: u8 = 10;
pub const COUNTS: u8 = 11;
pub const PENDING: u8 = 12;
/// A copy of another record, in the head of a checkpoint.
pub const COPY: u8 = 13;
pub const CHANGE: u8 = 14;
pub const CONSUMER: u8 = 15;
/// Abandoned ranges of lost keys.
pub const GIVEN_UP: u8 = 16;

fn key<const N: usize>(parts: [&[u8]; N]) -> Key {
    let mut bytes = [0u8; types::key::KEY_MAX];
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Key::new(&bytes[..at]).expect("keys here are at most 18 bytes")
}

pub fn entry(parent: Fid, h64: u64, collision: u8) -> Key {
    key([&[ENTRY], &parent.0.to_be_bytes(), &h64.to_be_bytes(), &[collision]])
}
/// The first key after all entries of `parent` with cookies up to `cookie`, for listings.
pub fn entry_after(parent: Fid, cookie: u64) -> Key {
    let next = cookie.saturating_add(1);
    let mask = (1u64 << types::hash::COLLISION_BITS) - 1;
    entry(parent, next & !mask, (next & mask) as u8)
}
/// The key after the last entry of `parent`.
pub fn entries_end(parent: Fid) -> Key {
    match parent.0.checked_add(1) {
        Some(next) => key([&[ENTRY], &next.to_be_bytes()]),
        None => key([&[ENTRY + 1]]),
    }
}
pub fn inode(fid: Fid) -> Key {
    key([&[INODE], &fid.0.to_be_bytes()])
}
/// The fid of an inode's key; `None` for keys of other kinds.
pub fn fid_of_inode(key: &Key) -> Option<Fid> {
    let fid = key.as_bytes().strip_prefix(&[INODE])?;
    Some(Fid(u64::from_be_bytes(fid.try_into().ok()?)))
}
pub fn inline(fid: Fid, page: u32) -> Key {
    key([&[INLINE], &fid.0.to_be_bytes(), &page.to_be_bytes()])
}
pub fn xattrs(fid: Fid) -> Key {
    key([&[XATTRS], &fid.0.to_be_bytes()])
}
pub fn orphan(fid: Fid) -> Key {
    key([&[ORPHAN], &fid.0.to_be_bytes()])
}
pub fn dead(fid: Fid, generation: Generation) -> Key {
    key([&[DEAD], &fid.0.to_be_bytes(), &generation.0.to_be_bytes()])
}
pub fn counts(dir: Fid) -> Key {
    key([&[COUNTS], &dir.0.to_be_bytes()])
}
pub fn pending(dir: Fid) -> Key {
    key([&[PENDING], &dir.0.to_be_bytes()])
}
pub fn session(session: SessionId) -> Key {
    key([&[SESSION], &session.0.to_be_bytes()])
}
pub fn slot(session: SessionId, slot: u32) -> Key {
    key([&[SLOT], &session.0.to_be_bytes(), &slot.to_be_bytes()])
}
/// The key of a changelog record.
pub fn change(number: u64) -> Key {
    key([&[CHANGE], &number.to_be_bytes()])
}
pub fn consumer(id: u32) -> Key {
    key([&[CONSUMER], &id.to_be_bytes()])
}
/// The first key of a kind; `kind_start(kind + 1)` is its end.
pub fn kind_start(kind: u8) -> Key {
    key([&[kind]])
}

fn u64_at(k: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(k.get(at..at + 8)?.try_into().ok()?))
}

/// The `(parent, h64, collision)` of an entry's key.
pub fn parse_entry(k: &Key) -> Option<(Fid, u64, u8)> {
    let b = k.as_bytes();
    (b.len() == 18 && b[0] == ENTRY).then_some(())?;
    Some((Fid(u64_at(b, 1)?), u64_at(b, 9)?, b[17]))
}
/// The fid of a key of kinds 1 to 6, 11 and 12; for an entry, that of its directory.
pub fn parse_fid(k: &Key) -> Option<Fid> {
    Some(Fid(u64_at(k.as_bytes(), 1)?))
}
