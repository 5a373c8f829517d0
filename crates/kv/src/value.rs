//! A record's value with its CRC32C: computed once, checked at every read.

use std::sync::Arc;

use types::Key;
use types::crc::crc32c;

/// Longest value in bytes: an inode's xattrs at their limit (64 KiB) several times over; bounds what a loader believes.
pub const VALUE_MAX: usize = 1 << 20;

/// The bytes of `key` are not the ones that were stored: memory or medium changed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Damage {
    pub key: Key,
    /// The first key behind the damage: for one record the next possible key, for a lost range the first key that may be known again.
    pub end: Key,
}

impl Damage {
    /// Of one record.
    pub fn of(key: Key) -> Damage {
        Damage { key, end: key.after() }
    }
    /// A range of keys is lost, and the number of records in it is unknown.
    pub fn is_stretch(&self) -> bool {
        self.end != self.key.after()
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_stretch() {
            true => write!(f, "the records from {:?} on and before {:?} are lost", self.key, self.end)?,
            false => {
                write!(f, "record {:?} failed its checksum: what it holds cannot be believed", self.key)?
            }
        }
        write!(f, "; restore it from a mirror or run fsck")
    }
}

/// Bytes and the CRC32C that they had when they were written. Shared: a clone only raises a reference count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    bytes: Arc<[u8]>,
    crc: u32,
}

impl Value {
    /// Trusts the bytes and computes their CRC.
    pub fn new(bytes: &[u8]) -> Value {
        Value { crc: crc32c(bytes), bytes: bytes.into() }
    }

    /// Bytes with the CRC that was stored with them; the first read shows whether they agree.
    pub fn stored(bytes: &[u8], crc: u32) -> Value {
        Value { bytes: bytes.into(), crc }
    }

    /// The bytes, if they are still the ones that were written.
    pub fn verified(&self, key: &Key) -> Result<&[u8], Damage> {
        verified(key, &self.bytes, self.crc)
    }

    pub fn crc(&self) -> u32 {
        self.crc
    }
    /// The unverified bytes, for callers that carry the CRC along.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }
}

/// `bytes`, if they are still the ones that had this CRC.
pub(crate) fn verified<'a>(key: &Key, bytes: &'a [u8], crc: u32) -> Result<&'a [u8], Damage> {
    if crc32c(bytes) == crc { Ok(bytes) } else { Err(Damage::of(*key)) }
}
