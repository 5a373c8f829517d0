//! A leaf's bytes on the medium: the format is in docs/formats/mdt.md.

use std::sync::Arc;

use types::Key;
use types::key::KEY_MAX;

use super::{BYTES_MAX, CELL, HEAD, INDEX, IS_LARGE, Leaf, SMALL_MAX, blank};
use crate::value::verified;
use crate::{Damage, VALUE_MAX, Value};

const MAGIC: [u8; 4] = *b"SKL1";
const HEADER_BYTES: usize = 16;
const SHORT: &str = "it is too short";

impl Leaf {
    /// Replaces `out`. A value that fails its CRC is not written: a checkpoint must not launder damage.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), Damage> {
        for i in 0..self.records() {
            let (key, content) = self.record(i);
            verified(&key, content.raw(), content.crc())?;
        }
        let bytes = &self.bytes[..self.begin_of(self.records())];
        assert!(self.records > 0, "kv-L2: a leaf that is written has at least one record");
        assert!(bytes.len() <= BYTES_MAX, "a leaf that is written can be read");
        debug_assert!(self.check(bytes.len()).is_ok(), "kv-L1, kv-L3: a leaf that is written can be read");
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&[self.prefix_len, 0]);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.large.len() as u32).to_le_bytes());
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(bytes);
        for value in &self.large {
            out.extend_from_slice(&(value.raw().len() as u32).to_le_bytes());
            out.extend_from_slice(&value.crc().to_le_bytes());
        }
        self.large.iter().for_each(|value| out.extend_from_slice(value.raw()));
        let pages = out.len().div_ceil(types::PAGE_SIZE) as u64;
        assert_eq!(pages, self.pages(), "a leaf takes as many pages as it counts for");
        Ok(())
    }

    /// Pages that the leaf takes on the medium.
    pub fn pages(&self) -> u64 {
        let large: usize = self.large.iter().map(|value| 8 + value.raw().len()).sum();
        let bytes = HEADER_BYTES + self.prefix_len() + self.begin_of(self.records()) + large;
        bytes.div_ceil(types::PAGE_SIZE) as u64
    }

    /// Decodes bytes that `encode` made; for other bytes, returns the reason.
    pub fn decode(bytes: &[u8]) -> Result<Arc<Leaf>, &'static str> {
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(SHORT)?;
        if head[..4] != MAGIC || head[7] != 0 {
            return Err("it is no leaf of a table, or one of another version");
        }
        let u32_at =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (records, prefix_len, len) = (u16::from_le_bytes([head[4], head[5]]), head[6], u32_at(8));
        let (prefix, rest) = rest.split_at_checked(prefix_len.into()).ok_or(SHORT)?;
        let prefix = Key::new(prefix).ok_or("what its keys begin with")?;
        let (cells, rest) = rest.split_at_checked(len).filter(|_| len <= BYTES_MAX).ok_or("its length")?;
        let mut leaf = blank(prefix, prefix_len, records, len);
        let new = Arc::get_mut(&mut leaf).expect("it was just made and is not shared");
        new.bytes[..len].copy_from_slice(cells);
        new.large = large(rest, u32_at(12))?;
        new.check(len).map(|()| leaf)
    }

    /// Checks everything that other functions rely on: kv-L1, kv-L3.
    fn check(&self, len: usize) -> Result<(), &'static str> {
        let (records, prefix) = (self.records(), self.prefix_len());
        let (mut at, mut large, mut before) = (INDEX * records, 0, None::<Key>);
        if records == 0 || len < at {
            return Err("its number of records");
        }
        for i in 0..records {
            let end = self.begin_of(i + 1);
            let cell = self.bytes[..len]
                .get(at..end)
                .filter(|cell| cell.len() >= CELL)
                .ok_or("where a cell ends")?;
            let (rest, value) = (usize::from(cell[0]), u16::from_le_bytes([cell[1], cell[2]]));
            let value_len = if value == IS_LARGE { 0 } else { usize::from(value) };
            let tail = rest.saturating_sub(HEAD);
            if value_len > SMALL_MAX || prefix + rest > KEY_MAX || cell.len() != CELL + tail + value_len {
                return Err("a cell's lengths");
            }
            if self.head(i).to_be_bytes().iter().skip(rest).any(|byte| *byte != 0) {
                return Err("a head");
            }
            if value == IS_LARGE {
                if cell[3..CELL] != u32::to_le_bytes(large) || large as usize >= self.large.len() {
                    return Err("the number of a large value");
                }
                large += 1;
            }
            let key = self.key(i);
            if before.is_some_and(|before| before >= key) {
                return Err("the order of its keys");
            }
            (at, before) = (end, Some(key));
        }
        if self.prefix != self.first().common_prefix(&self.last()) {
            return Err("what its keys begin with");
        }
        match at == len && large as usize == self.large.len() {
            true => Ok(()),
            false => Err("its length"),
        }
    }
}

fn large(bytes: &[u8], count: usize) -> Result<Box<[Value]>, &'static str> {
    let (heads, mut rest) = count.checked_mul(8).and_then(|n| bytes.split_at_checked(n)).ok_or(SHORT)?;
    let mut values = Vec::with_capacity(count);
    for head in heads.chunks_exact(8) {
        let u32_of = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = u32_of(0) as usize;
        if !(SMALL_MAX + 1..=VALUE_MAX).contains(&len) {
            return Err("the length of a large value");
        }
        let (value, behind) = rest.split_at_checked(len).ok_or(SHORT)?;
        values.push(Value::stored(value, u32_of(4)));
        rest = behind;
    }
    if rest.is_empty() { Ok(values.into()) } else { Err("bytes behind its end") }
}

#[cfg(test)]
mod tests {
    use hammer::Hammer;
    use types::crc::crc32c;

    use super::super::{Piece, pack};
    use super::*;

    fn leaf_of(records: &[(&[u8], Vec<u8>)]) -> Arc<Leaf> {
        let records: Vec<_> =
            records.iter().map(|(key, value)| (Key::new(key).unwrap(), Value::new(value))).collect();
        pack(records.iter().map(|(key, value)| Piece::New(key, value)).collect(), 4000).remove(0)
    }

    fn encoded(leaf: &Leaf) -> Vec<u8> {
        let mut out = Vec::new();
        leaf.encode(&mut out).unwrap();
        assert_eq!(out.len().div_ceil(types::PAGE_SIZE) as u64, leaf.pages());
        out
    }

    /// Three records, one of them large.
    fn sample() -> Arc<Leaf> {
        leaf_of(&[
            (&[2, 7], b"hello".to_vec()),
            (&[2, 7, 1, 2, 3, 4, 5, 6], vec![]),
            (&[2, 9], vec![b'a'; 513]),
        ])
    }

    #[test]
    fn golden() {
        let bytes = encoded(&sample());
        let (head, large) = bytes.split_at(bytes.len() - 513);
        assert_eq!(head.iter().map(|b| format!("{b:02x}")).collect::<String>(), GOLDEN);
        assert!(large.iter().all(|byte| *byte == b'a'));
    }
    const GOLDEN: &str = concat!(
        "534b4c31030001002f00000001000000020000000703020107000000091e0028002f000105004cbb719a68656c6c6f",
        "0700000000000004050601ffff0000000001020000dd8af28f"
    );

    /// Checksums of all values, wherever the lengths lead.
    fn repair(bytes: &mut [u8]) {
        let u32_at =
            |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?) as usize);
        let Some(&[n0, n1, p]) = bytes.get(4..7) else { return };
        let (n, p) = (usize::from(u16::from_le_bytes([n0, n1])), usize::from(p));
        let (Some(b), Some(m)) = (u32_at(bytes, 8), u32_at(bytes, 12)) else { return };
        let mut at = 16 + p + INDEX * n;
        for _ in 0..n {
            let Some(&[rest, v0, v1]) = bytes.get(at..at + 3) else { return };
            let (begin, len) =
                (at + CELL + usize::from(rest).saturating_sub(HEAD), u16::from_le_bytes([v0, v1]));
            let len = if len == IS_LARGE { 0 } else { usize::from(len) };
            let Some(value) = bytes.get(begin..begin + len) else { return };
            if [v0, v1] != [0xff; 2] {
                let crc = crc32c(value);
                bytes[at + 3..at + CELL].copy_from_slice(&crc.to_le_bytes());
            }
            at = begin + len;
        }
        let (heads, mut at) = (16 + p + b, 16 + p + b + 8 * m);
        for head in (heads..).step_by(8).take(m.min(bytes.len())) {
            let Some(len) = u32_at(bytes, head) else { return };
            let Some(value) = bytes.get(at..at + len) else { return };
            let crc = crc32c(value);
            bytes[head + 4..head + 8].copy_from_slice(&crc.to_le_bytes());
            at += len;
        }
    }

    #[test]
    fn a_leaf_is_read_or_refused() {
        let many: Vec<Vec<u8>> = (0..30u8).map(|n| vec![3, n / 7, n, 0, 0, n]).collect();
        let many: Vec<_> = many.iter().map(|key| (&key[..], vec![key[2]; 20])).collect();
        let seeds = [encoded(&sample()), encoded(&leaf_of(&[(&[], vec![])])), encoded(&leaf_of(&many))];
        // A step of 128 bytes and the leaf's own, and a large value for each 8 bytes of its heads.
        let hammer = Hammer::new("MDT leaf").seeds(seeds).repair(&repair).bound(8, 8 << 10);
        let outcome = hammer.run(
            |bytes| Leaf::decode(bytes).ok(),
            |bytes, leaf: Arc<Leaf>| {
                let mut again = Vec::new();
                // Else a value's checksum is wrong, which is that value's damage and not the leaf's.
                if leaf.encode(&mut again).is_ok() {
                    assert_eq!(again, bytes, "two byte forms");
                }
                for i in 0..leaf.records() {
                    let (key, content) = leaf.record(i);
                    assert_eq!(leaf.get(&key).map(|found| found.raw()), Some(content.raw()));
                }
                bytes.len()
            },
        );
        assert!(outcome.accepted > outcome.inputs / 50, "{outcome:?}");
    }
}
