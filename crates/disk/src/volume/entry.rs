//! The header of a log entry: 64 bytes before the payload, which is padded with zeros to 8 bytes.

use types::{Epoch, Incarnation, Uuid};

use super::bytes::*;

pub const HEADER_BYTES: usize = 64;
/// Entries begin at multiples of this, so a scan looks for headers in steps of it.
pub const ALIGN_BYTES: usize = 8;
pub const MAGIC: u32 = u32::from_le_bytes(*b"SLE1");

/// The writer of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryKind {
    /// The volume's owner.
    Payload = 1,
    /// The volume itself, to carry a flush mark. It takes a seq of its own; earlier releases wrote such marks.
    NumberedMark = 2,
    /// The volume itself, to carry a flush mark. It takes no seq, so entries have the same seqs on every member of a mirror.
    Mark = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: EntryKind,
    /// Operations of the entry, 1 to 65536: each has a seq of its own. 1 in marks.
    pub ops: u32,
    pub tag: u64,
    /// seq of the first operation. In a mark without a seq: the last one before it.
    pub seq: u64,
    pub pos: u64,
    /// The flush mark: flushed_seq when this entry was appended.
    pub flushed_seq: u64,
    pub epoch: Epoch,
    pub incarnation: Incarnation,
    pub payload_len: u32,
    pub payload_crc: u32,
}

impl Header {
    /// seq of the last operation; of a mark, the seq of the last entry up to it.
    pub fn last_seq(&self) -> u64 {
        self.seq + u64::from(self.ops) - 1
    }

    /// seq of the last entry before this one.
    pub fn seq_before(&self) -> u64 {
        match self.kind {
            EntryKind::Mark => self.seq,
            EntryKind::Payload | EntryKind::NumberedMark => self.seq - 1,
        }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!((1..=1 << 16).contains(&self.ops), "the number of operations fits its field");
        let mut o = [0; HEADER_BYTES];
        put_u32(&mut o, 0, MAGIC);
        o[4] = self.kind as u8;
        o[6..8].copy_from_slice(&((self.ops - 1) as u16).to_le_bytes());
        put_u64(&mut o, 8, self.tag);
        put_u64(&mut o, 16, self.seq);
        put_u64(&mut o, 24, self.pos);
        put_u64(&mut o, 32, self.flushed_seq);
        put_u32(&mut o, 40, self.epoch.0);
        put_u32(&mut o, 44, self.incarnation.0);
        put_u32(&mut o, 48, self.payload_len);
        put_u32(&mut o, 52, self.payload_crc);
        seal(&mut o);
        o
    }

    /// `None` if these bytes are no header: wrong length, magic, CRC, kind or reserved bytes, a mark of several
    /// operations, or a flush mark above the seq before the entry.
    pub fn decode(b: &[u8]) -> Option<Header> {
        if b.len() != HEADER_BYTES || u32_at(b, 0) != MAGIC || !is_sealed(b) {
            return None;
        }
        let h = Header {
            kind: match b[4] {
                1 => EntryKind::Payload,
                2 => EntryKind::NumberedMark,
                3 => EntryKind::Mark,
                _ => return None,
            },
            ops: u32::from(u16::from_le_bytes([b[6], b[7]])) + 1,
            tag: u64_at(b, 8),
            seq: u64_at(b, 16),
            pos: u64_at(b, 24),
            flushed_seq: u64_at(b, 32),
            epoch: Epoch(u32_at(b, 40)),
            incarnation: Incarnation(u32_at(b, 44)),
            payload_len: u32_at(b, 48),
            payload_crc: u32_at(b, 52),
        };
        let reserved_is_zero = b[5] == 0 && b[56..60].iter().all(|x| *x == 0);
        let is_one_or_payload = h.ops == 1 || h.kind == EntryKind::Payload;
        let is_in_range = h.seq.checked_add(u64::from(h.ops)).is_some();
        let has_seq = h.seq >= 1;
        (reserved_is_zero && is_one_or_payload && is_in_range && has_seq && h.flushed_seq <= h.seq_before())
            .then_some(h)
    }
}

/// Bytes that an entry takes in the ring.
pub fn entry_bytes(payload_len: usize) -> u64 {
    (HEADER_BYTES + payload_len).next_multiple_of(ALIGN_BYTES) as u64
}

/// The volume's tag in its entries.
pub fn tag_of(uuid: &Uuid) -> u64 {
    u64_at(&uuid.0, 0) ^ u64_at(&uuid.0, 8).rotate_left(1)
}

#[cfg(test)]
mod tests;
