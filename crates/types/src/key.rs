//! The key of a metadata record: up to 23 bytes, kept in place, ordered as bytes.

use std::fmt;

/// Longest key in bytes: entry keys (1 + 8 + 8 + 1) and what later records need.
pub const KEY_MAX: usize = 23;

/// A short byte string that is `Copy`. Order: as byte strings (a prefix sorts first). I1: bytes past `len` are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key {
    bytes: [u8; KEY_MAX],
    len: u8,
}

impl Key {
    /// `None` if longer than `KEY_MAX`.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let mut k = Key::default();
        k.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        k.len = bytes.len() as u8;
        Some(k)
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        (self.bytes, self.len).cmp(&(other.bytes, other.len))
    }
}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
