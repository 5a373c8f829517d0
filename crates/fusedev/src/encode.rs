//! Encodes the bodies of replies, in the kernel's byte order and layout.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{FileAttr, FileHandle, FopenFlags, Generation, StatxAttr};

pub const ENTRY_LEN: usize = 128;

/// The fields that a STATX reply fills in: the basic ones and the birth time.
const STATX_MASK: u32 = 0x7ff | 0x800;

/// A body of fixed length, filled from the front.
pub struct Body<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Body<N> {
    pub fn new() -> Body<N> {
        Body { bytes: [0; N], len: 0 }
    }
    pub fn put(&mut self, bytes: &[u8]) -> &mut Body<N> {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
    pub fn u16(&mut self, value: u16) -> &mut Body<N> {
        self.put(&value.to_ne_bytes())
    }
    pub fn u32(&mut self, value: u32) -> &mut Body<N> {
        self.put(&value.to_ne_bytes())
    }
    pub fn u64(&mut self, value: u64) -> &mut Body<N> {
        self.put(&value.to_ne_bytes())
    }
    /// The whole body; bytes that were not put are zero.
    pub fn bytes(&self) -> &[u8; N] {
        &self.bytes
    }
}

/// Seconds and nanoseconds. Nanoseconds count forward, also before 1970. Times out of range are clamped.
pub fn seconds(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (-whole, 0),
                nanos => (-whole - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

fn mode(attr: &FileAttr) -> u32 {
    attr.kind.mode() | (attr.perm as u32 & 0o7777)
}

pub fn put_attr<const N: usize>(body: &mut Body<N>, attr: &FileAttr) {
    let (atime, mtime, ctime) = (seconds(attr.atime), seconds(attr.mtime), seconds(attr.ctime));
    body.u64(attr.ino.0).u64(attr.size).u64(attr.blocks);
    body.u64(atime.0 as u64).u64(mtime.0 as u64).u64(ctime.0 as u64);
    body.u32(atime.1).u32(mtime.1).u32(ctime.1);
    body.u32(mode(attr)).u32(attr.nlink).u32(attr.uid).u32(attr.gid).u32(attr.rdev);
    body.u32(attr.blksize).u32(attr.flags);
}

pub fn put_entry<const N: usize>(
    body: &mut Body<N>,
    attr_ttl: &Duration,
    entry_ttl: &Duration,
    attr: &FileAttr,
    generation: Generation,
) {
    body.u64(attr.ino.0).u64(generation.0);
    body.u64(entry_ttl.as_secs()).u64(attr_ttl.as_secs());
    body.u32(entry_ttl.subsec_nanos()).u32(attr_ttl.subsec_nanos());
    put_attr(body, attr);
}

pub fn put_open<const N: usize>(body: &mut Body<N>, fh: FileHandle, flags: FopenFlags) {
    body.u64(fh.0).u32(flags.bits()).u32(0);
}

pub fn attr(ttl: &Duration, attr: &FileAttr) -> Body<104> {
    let mut body = Body::new();
    body.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0);
    put_attr(&mut body, attr);
    body
}

pub fn statx(ttl: &Duration, attr: &FileAttr, more: &StatxAttr) -> Body<288> {
    let mut body = Body::new();
    body.u64(ttl.as_secs()).u32(ttl.subsec_nanos()).u32(0).u64(0).u64(0);
    body.u32(STATX_MASK).u32(attr.blksize).u64(more.attributes);
    body.u32(attr.nlink).u32(attr.uid).u32(attr.gid).u16(mode(attr) as u16).u16(0);
    body.u64(attr.ino.0).u64(attr.size).u64(attr.blocks).u64(more.attributes_mask);
    for time in [attr.atime, attr.crtime, attr.ctime, attr.mtime] {
        let (seconds, nanos) = seconds(time);
        body.u64(seconds as u64).u32(nanos).u32(0);
    }
    // The kernel's `new_encode_dev`: minor in bits 0-7 and 20-31, major between them.
    let (major, minor) = ((attr.rdev >> 8) & 0xfff, (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xfff00));
    body.u32(major).u32(minor).u32(0).u32(0);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_count_forward_before_1970_too() {
        assert_eq!(seconds(UNIX_EPOCH), (0, 0));
        assert_eq!(seconds(UNIX_EPOCH + Duration::new(5, 3)), (5, 3));
        assert_eq!(seconds(UNIX_EPOCH - Duration::new(5, 0)), (-5, 0));
        // 4.7 s before 1970 is 5 s before it plus 300 ms.
        assert_eq!(seconds(UNIX_EPOCH - Duration::new(4, 700_000_000)), (-5, 300_000_000));
    }
}
