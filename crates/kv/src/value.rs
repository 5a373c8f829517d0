//! A record's value with its CRC32C: made once, checked whenever it is read.

use std::sync::Arc;

use types::Key;
use types::crc::crc32c;

/// Longest value in bytes: an inode's xattrs at their limit (64 KiB) several times over; bounds what a loader believes.
pub const VALUE_MAX: usize = 1 << 20;

/// The bytes of `key` are not the ones that were stored: memory or medium changed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record {key:?} failed its checksum: what it holds cannot be believed; restore it from a mirror or run fsck"
)]
pub struct Damage {
    pub key: Key,
}

/// Bytes and the CRC32C that they had when they were written. Shared: a clone costs a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    bytes: Arc<[u8]>,
    crc: u32,
}

impl Value {
    /// Takes the bytes as true and computes their CRC.
    pub fn new(bytes: &[u8]) -> Value {
        Value { crc: crc32c(bytes), bytes: bytes.into() }
    }

    /// Bytes with the CRC that was stored with them; whether they agree shows at the first read.
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
    /// The bytes as they are, for those that carry the CRC along.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }
}

/// `bytes`, if they are still the ones that had this CRC.
pub(crate) fn verified<'a>(key: &Key, bytes: &'a [u8], crc: u32) -> Result<&'a [u8], Damage> {
    if crc32c(bytes) == crc { Ok(bytes) } else { Err(Damage { key: *key }) }
}
