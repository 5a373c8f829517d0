//! The key of a metadata record: up to 23 bytes, kept in place, ordered as bytes.

use std::fmt;

/// Longest key in bytes: entry keys (1 + 8 + 8 + 1), with a reserve for later records.
pub const KEY_MAX: usize = 23;

/// A short byte string that is `Copy`, ordered as byte strings (a prefix sorts first). The last byte is the length; the bytes between the
/// string and it are zero. So the order is that of three big-endian words, which matters because trees compare keys some twenty times per
/// access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Key([u8; KEY_MAX + 1]);

impl Key {
    /// `None` if longer than `KEY_MAX`.
    pub fn new(bytes: &[u8]) -> Option<Key> {
        let mut k = Key::default();
        k.0[..KEY_MAX].get_mut(..bytes.len())?.copy_from_slice(bytes);
        k.0[KEY_MAX] = bytes.len() as u8;
        Some(k)
    }
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..self.0[KEY_MAX] as usize]
    }

    /// The least key above this one. The highest key of all has none above it and is returned itself.
    pub fn after(&self) -> Key {
        let bytes = self.as_bytes();
        if bytes.len() < KEY_MAX {
            return Key::new(&[bytes, &[0]].concat()).expect("it has room for one more");
        }
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0xff) else { return *self };
        let mut next = bytes[..=last].to_vec();
        next[last] += 1;
        Key::new(&next).expect("it is no longer")
    }

    /// True if the key begins with `prefix`, as byte strings.
    #[inline]
    pub fn starts_with(&self, prefix: &Key) -> bool {
        let len = prefix.as_bytes().len();
        self.same_bytes(prefix) >= len && self.as_bytes().len() >= len
    }

    /// Up to eight bytes of the key from `from` on, as a number with the same order.
    #[inline]
    pub fn word_at(&self, from: usize) -> u64 {
        let [a, b, c] = self.words();
        // Without the length byte. After the key's bytes come zeros.
        let words = [a, b, c & !0xff, 0, 0];
        let (at, bits) = (from / 8, from % 8 * 8);
        let next = words.get(at + 1).map_or(0, |next| next.unbounded_shr(64 - bits as u32));
        words.get(at).map_or(0, |word| word << bits) | next
    }

    /// The longest common prefix of both keys.
    pub fn common_prefix(&self, other: &Key) -> Key {
        let (a, b) = (self.as_bytes(), other.as_bytes());
        let same = self.same_bytes(other).min(a.len()).min(b.len());
        Key::new(&a[..same]).expect("no longer than a key")
    }

    /// The number of equal bytes before the first difference; zeros after the strings count too.
    #[inline]
    fn same_bytes(&self, other: &Key) -> usize {
        let ([a, b, c], [d, e, f]) = (self.words(), other.words());
        let (bits, before) = match (a ^ d, b ^ e) {
            (0, 0) => (c ^ f, 16),
            (0, bits) => (bits, 8),
            (bits, _) => (bits, 0),
        };
        before + bits.leading_zeros() as usize / 8
    }

    #[inline]
    fn words(&self) -> [u64; 3] {
        std::array::from_fn(|n| u64::from_be_bytes(std::array::from_fn(|at| self.0[8 * n + at])))
    }
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.words().cmp(&other.words())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_between_a_key_and_the_one_after_it() {
        let key = |bytes: &[u8]| Key::new(bytes).expect("short enough");
        let ends = |last: u8| [&[7; KEY_MAX - 1][..], &[last]].concat();
        assert_eq!(key(&[]).after(), key(&[0]));
        assert_eq!(key(&[3, 0xff]).after(), key(&[3, 0xff, 0]));
        assert_eq!(key(&ends(8)).after(), key(&ends(9)));
        assert_eq!(key(&ends(0xff)).after(), key(&[&[7; KEY_MAX - 2][..], &[8]].concat()));
        assert_eq!(key(&[0xff; KEY_MAX]).after(), key(&[0xff; KEY_MAX]));
    }

    #[test]
    fn keys_sort_as_their_byte_strings() {
        let mut strings: Vec<Vec<u8>> = vec![vec![]];
        for len in [1, 2, 7, 8, 9, 15, 16, 17, 22, 23] {
            for byte in [0u8, 1, 0x7f, 0x80, 0xff] {
                strings.push(vec![byte; len]);
                // Differs in its last byte only.
                let mut other = vec![byte; len];
                other[len - 1] = byte.wrapping_add(1);
                strings.push(other);
            }
        }
        for a in &strings {
            for b in &strings {
                let (ka, kb) = (Key::new(a).unwrap(), Key::new(b).unwrap());
                assert_eq!(ka.cmp(&kb), a.cmp(b), "{a:?} and {b:?}");
                assert_eq!(ka == kb, a == b);
                assert_eq!(ka.starts_with(&kb), a.starts_with(b), "{a:?} and {b:?}");
                let same = (0..=a.len()).rev().find(|n| b.starts_with(&a[..*n])).unwrap();
                assert_eq!(ka.common_prefix(&kb).as_bytes(), &a[..same]);
            }
            for from in 0..=KEY_MAX + 2 {
                let mut word = [0; 8];
                let rest = a.get(from..).unwrap_or(&[]);
                let len = rest.len().min(8);
                word[..len].copy_from_slice(&rest[..len]);
                assert_eq!(Key::new(a).unwrap().word_at(from), u64::from_be_bytes(word), "{a:?} from {from}");
            }
            assert_eq!(Key::new(a).unwrap().as_bytes(), a);
        }
        assert_eq!(Key::new(&[0; 24]), None);
    }
}
