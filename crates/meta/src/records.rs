//! Values of the MDT's records, to the byte: a version byte, then the fields in order (docs/formats/meta.md).
//!
//! A record that does not decode is a fault of the MDT, not of a user: `Damaged`, with the key in the detail. Inodes and entries are the
//! most frequent records. They are written in the compact form of version 2 (`compact`); version 1 is still read, and is replaced by the
//! next change.

use types::*;
use wire::codec::{Malformed, Reader, Wire};
use wire::meta::{FLAGS_KEPT, FileState, Inode, StripeSpec};

use crate::acl::Acl;

mod compact;
mod v1;

pub use compact::{counted, may_be_of_dir};

/// Version of every record except inodes and entries, and of those that older programs wrote.
pub const VERSION: u8 = 1;
/// Version of inodes and entries.
pub const COMPACT: u8 = 2;

/// In `InodeRecord::flags`: the file was made without a name (`O_TMPFILE`) and may get its first one.
pub const LINKABLE: u32 = 1 << 31;

/// A parent hint: the place of one of an inode's entries. Kept per link, so that a fid has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub fid: Fid,
    pub h64: u64,
    pub collision: u8,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    pub fid: Fid,
    pub kind: Kind,
    pub name: Vec<u8>,
}

/// The value of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    pub attr: Attr,
    pub state: FileState,
    /// The highest generation ever assigned to a layout of this file.
    pub generation: Generation,
    pub parents: Vec<Parent>,
    /// `None`: inline, or not a regular file.
    pub layout: Option<Layout>,
    /// Assigned by `Grow` (rule meta-O4) or `Migrate` (meta-M1), not switched to yet.
    pub pending: Option<Layout>,
    pub spec: Option<StripeSpec>,
    /// The target of a symlink.
    pub target: Vec<u8>,
    /// When a user last set mtime (zero: never). Bytes that were written before then no longer change it.
    pub mtime_set_at: Time,
    /// `FLAG_*` of the wire, and `LINKABLE`.
    pub flags: u32,
    /// Empty if the mode alone expresses the rights.
    pub access_acl: Acl,
    /// A directory's default ACL, for new files in it.
    pub default_acl: Acl,
}

/// The fields of an inode that count for its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// From its first hint.
    pub parent: Option<Fid>,
    pub kind: Kind,
    pub size: u64,
    pub blocks: u64,
}

impl InodeRecord {
    pub fn new(attr: Attr) -> InodeRecord {
        InodeRecord {
            attr,
            state: FileState::Settled,
            generation: Generation(0),
            parents: Vec::new(),
            layout: None,
            pending: None,
            spec: None,
            target: Vec::new(),
            mtime_set_at: Time::default(),
            flags: 0,
            access_acl: Acl::default(),
            default_acl: Acl::default(),
        }
    }
    pub fn fid(&self) -> Fid {
        self.attr.fid
    }
    pub fn is_dir(&self) -> bool {
        self.attr.kind == Kind::Dir
    }
    /// A regular file whose content lies in the MDT's records.
    pub fn is_inline(&self) -> bool {
        self.attr.kind == Kind::File && self.layout.is_none()
    }
    /// The inode in the form that clients see.
    pub fn to_wire(&self) -> Inode {
        Inode {
            attr: self.attr,
            layout: self.layout.clone(),
            state: self.state,
            flags: self.flags & FLAGS_KEPT,
        }
    }
}

/// An inline page: CRC32C, then up to 4 KiB. Bytes of the page past the value's end read as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinePage {
    pub bytes: Vec<u8>,
}

/// The first byte of a page whose zeros only reserve space for later writes.
const RESERVED: u8 = 2;

impl InlinePage {
    /// Bytes of a page's head.
    pub const HEAD_BYTES: usize = 5;

    pub fn encode(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(InlinePage::HEAD_BYTES + bytes.len());
        out.push(VERSION);
        types::crc::crc32c(bytes).put(&mut out);
        out.extend_from_slice(bytes);
        out
    }
    /// A page without bytes of its own: it reads as `len` zeros, and takes the space of as many bytes.
    pub fn encode_reserved(len: usize) -> Vec<u8> {
        let mut out = InlinePage::encode(&vec![0; len]);
        out[0] = RESERVED;
        out
    }
    pub fn is_reserved(value: &[u8]) -> bool {
        value.first() == Some(&RESERVED)
    }
    /// The page's bytes, verified against their CRC.
    pub fn decode(value: &[u8]) -> Result<&[u8], Malformed> {
        let mut r = Reader::new(value);
        if !matches!(u8::get(&mut r)?, VERSION | RESERVED) {
            return Err(Malformed("inline page"));
        }
        let want = u32::get(&mut r)?;
        let bytes = r.take(r.remaining())?;
        if bytes.len() > PAGE_SIZE || types::crc::crc32c(bytes) != want {
            return Err(Malformed("inline page"));
        }
        Ok(bytes)
    }
}

/// The value of an orphan: the session that holds it open.
pub fn encode_orphan(session: SessionId) -> Vec<u8> {
    let mut out = vec![VERSION];
    session.put(&mut out);
    out
}
pub fn decode_orphan(bytes: &[u8]) -> Result<SessionId, Malformed> {
    whole(bytes)
}

/// The value of a record of the unlink log: the layout whose objects are to be destroyed.
pub fn encode_dead(layout: &Layout) -> Vec<u8> {
    let mut out = vec![VERSION];
    layout.put(&mut out);
    out
}
pub fn decode_dead(bytes: &[u8]) -> Result<Layout, Malformed> {
    whole(bytes)
}

/// Decodes a version byte and one value, to the end.
fn whole<T: Wire>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut r = versioned(bytes)?;
    let value = T::get(&mut r)?;
    r.end()?;
    Ok(value)
}

fn versioned(bytes: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut r = Reader::new(bytes);
    match u8::get(&mut r)? {
        VERSION => Ok(r),
        _ => Err(Malformed("record version")),
    }
}

#[cfg(test)]
mod tests;
