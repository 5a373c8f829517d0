//! Replies whose length the kernel bounds: listings and extended attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::encode::{self, Body, ENTRY_LEN};
use crate::reply::{Raw, replies};
use crate::{Errno, FileAttr, FileType, Generation, INodeNo};

replies! {
    ReplyXattr;
}

impl ReplyXattr {
    /// The buffer size that the value needs; the reply to a request with size 0.
    pub fn size(self, size: u32) {
        self.0.body(Body::<8>::new().u32(size).bytes());
    }
    pub fn data(self, data: &[u8]) {
        self.0.body(data);
    }
}

/// The entries so far, at most as many as the kernel's buffer holds.
struct Listing {
    bytes: Vec<u8>,
    size: usize,
}

impl Listing {
    fn new(size: u32) -> Listing {
        let size = size as usize;
        Listing { bytes: Vec::with_capacity(size.min(crate::MAX_WRITE_BYTES as usize)), size }
    }

    /// False if there is no room. `head` stands before the entry.
    fn put(&mut self, head: &[u8], ino: INodeNo, cookie: u64, kind: u32, name: &OsStr) -> bool {
        let name = name.as_bytes();
        let unpadded = self.bytes.len() + head.len() + 24 + name.len();
        let end = unpadded.next_multiple_of(8);
        if end > self.size {
            return false;
        }
        self.bytes.extend_from_slice(head);
        let mut entry = Body::<24>::new();
        entry.u64(ino.0).u64(cookie).u32(name.len() as u32).u32(kind);
        self.bytes.extend_from_slice(entry.bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

pub struct ReplyDirectory {
    raw: Raw,
    listing: Listing,
}

impl ReplyDirectory {
    pub(crate) fn new(raw: Raw, size: u32) -> ReplyDirectory {
        ReplyDirectory { raw, listing: Listing::new(size) }
    }

    /// True if the kernel's buffer is full; then this entry was not added. `cookie`: where a listing continues after this entry.
    #[must_use]
    pub fn add(&mut self, ino: INodeNo, cookie: u64, kind: FileType, name: impl AsRef<OsStr>) -> bool {
        !self.listing.put(&[], ino, cookie, kind.mode() >> 12, name.as_ref())
    }
    pub fn ok(self) {
        self.raw.body(&self.listing.bytes);
    }
    pub fn error(self, errno: Errno) {
        self.raw.error(errno);
    }
}

pub struct ReplyDirectoryPlus {
    raw: Raw,
    listing: Listing,
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(raw: Raw, size: u32) -> ReplyDirectoryPlus {
        ReplyDirectoryPlus { raw, listing: Listing::new(size) }
    }

    /// As `ReplyDirectory::add`. Inode number 0 means an entry without attributes: it shows the number and kind of `attr`, and the kernel
    /// looks the name up when it needs more.
    #[must_use]
    pub fn add(
        &mut self,
        ino: INodeNo,
        cookie: u64,
        name: impl AsRef<OsStr>,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) -> bool {
        let mut head = Body::<ENTRY_LEN>::new();
        if ino.0 != 0 {
            encode::put_entry(&mut head, ttl, ttl, attr, generation);
        }
        !self.listing.put(head.bytes(), attr.ino, cookie, attr.kind.mode() >> 12, name.as_ref())
    }
    pub fn ok(self) {
        self.raw.body(&self.listing.bytes);
    }
    pub fn error(self, errno: Errno) {
        self.raw.error(errno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_never_outgrows_the_kernels_buffer_and_ends_on_whole_words() {
        for size in 0..200 {
            let mut listing = Listing::new(size);
            while listing.put(&[], INodeNo(7), 1, 8, OsStr::new("five5")) {
                assert_eq!(listing.bytes.len() % 32, 0);
            }
            assert_eq!(listing.bytes.len(), size as usize / 32 * 32);
        }
    }
}
