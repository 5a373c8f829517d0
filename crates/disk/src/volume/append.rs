//! Appending entries to the log ring. An entry is written when the call returns, and a later flush makes it durable.
//!
//! Appends write whole pages: the tail's page from its begin, and zeros up to the end of the last page. A partial page that the page cache
//! does not hold would first be read from the device, at every append on a block device and on every later lap. Therefore one page
//! of the ring stays free, so that the zeros reach no live entry (disk-V4).

use std::sync::atomic::Ordering;

use types::crc::crc32c;
use types::{Epoch, Seq};

use super::entry::{ALIGN_BYTES, EntryKind, HEADER_BYTES, Header, entry_bytes};
use super::{LOG_BEGIN, LogPoint, Tail, Volume, VolumeError};

/// Largest payload in bytes: a request's bulk (1 MiB) and as much again for what goes with it.
pub const PAYLOAD_BYTES_MAX: usize = 2 << 20;
/// The unit in which the page cache reads and writes.
pub(super) const PAGE_BYTES: u64 = 4096;
/// On the first lap the ring is zeroed ahead in steps of this. On a file, then only one flush per step makes the file system below
/// allocate, and not every flush. Whole pages alone would not do: each would be another extent to convert.
const PREPARE_BYTES: u64 = 1 << 20;
/// Most operations in one entry.
pub const OPS_MAX: u32 = 1 << 16;

/// Entries to be appended together, as one piece of bytes in the form that the ring has. Headers are filled in by the append, once their
/// position is known. A reused value keeps its memory.
#[derive(Debug)]
pub struct Entries {
    /// A free page for the bytes that the tail's page holds before the first entry; then the entries.
    bytes: Vec<u8>,
    list: Vec<Piece>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    kind: EntryKind,
    ops: u32,
    epoch: Epoch,
    payload_len: u32,
    payload_crc: u32,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { bytes: vec![0; PAGE_BYTES as usize], list: Vec::new() }
    }
}

impl Entries {
    /// Adds an entry. `payload_crc` is the payload's `crc32c`; the caller computes it before it takes a lock, because that takes time.
    /// A payload has at most `Volume::payload_bytes_max` bytes.
    pub fn push(&mut self, epoch: Epoch, payload: &[u8], payload_crc: u32) {
        self.add(EntryKind::Payload, 1, epoch, payload, payload_crc);
    }

    fn add(&mut self, kind: EntryKind, ops: u32, epoch: Epoch, payload: &[u8], payload_crc: u32) {
        assert!((1..=OPS_MAX).contains(&ops), "an entry has 1 to {OPS_MAX} operations");
        assert!(kind == EntryKind::Payload || payload.is_empty(), "a flush mark has no payload");
        let end = self.bytes.len() + entry_bytes(payload.len()) as usize;
        self.bytes.extend_from_slice(&[0; HEADER_BYTES]);
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(end, 0);
        self.list.push(Piece { kind, ops, epoch, payload_len: payload.len() as u32, payload_crc });
    }

    /// Changes bytes of an entry's payload, and computes its CRC anew: for fields that are known only once the entries have their order.
    pub fn edit(&mut self, index: usize, change: impl FnOnce(&mut [u8])) {
        let before: u64 = self.sizes().take(index).sum();
        let begin = (PAGE_BYTES + before) as usize + HEADER_BYTES;
        let piece = &mut self.list[index];
        let payload = &mut self.bytes[begin..begin + piece.payload_len as usize];
        change(payload);
        piece.payload_crc = crc32c(payload);
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Bytes that the entries take in the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.bytes.len() as u64 - PAGE_BYTES
    }
    /// Bytes that each entry takes in the ring, in order.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.list.iter().map(|piece| entry_bytes(piece.payload_len as usize))
    }
    pub fn clear(&mut self) {
        self.bytes.truncate(PAGE_BYTES as usize);
        self.list.clear();
    }
}

impl Volume {
    /// Appends an entry and returns its seq. Definite: on `LogFull` and `TooLarge` nothing was appended; `Failed` is unknown.
    /// A caller that must apply entries in the order of the log holds a lock of its own around append and apply.
    pub fn append(&self, epoch: Epoch, payload: &[u8]) -> Result<Seq, VolumeError> {
        self.append_ops(epoch, payload, 1)
    }

    /// As `append`, for an entry of `ops` operations, 1 to `OPS_MAX`: a crash leaves all of them or none. Each operation has a
    /// seq of its own; the first one's is returned. Only an MDT's volume has entries of several operations.
    pub fn append_ops(&self, epoch: Epoch, payload: &[u8], ops: u32) -> Result<Seq, VolumeError> {
        self.check_payload(payload.len())?;
        let is_allowed = ops == 1 || (2..=OPS_MAX).contains(&ops) && self.superblock.lock().has_ops();
        assert!(is_allowed, "{ops} operations in an entry of this volume");
        // Computed before the tail lock is taken, because the CRC of a large payload takes time.
        let payload_crc = crc32c(payload);
        let mut tail = self.tail.lock();
        self.append_one(&mut tail, EntryKind::Payload, ops, epoch, payload, payload_crc)
    }

    /// Appends entries with one write, and returns the log's end before them: the first has the next seq, and so on. All or none, as
    /// `append` says. After a crash the first few of them may be there without the rest, as if each had been written alone.
    pub fn append_many(&self, entries: &mut Entries) -> Result<LogPoint, VolumeError> {
        for piece in &entries.list {
            self.check_payload(piece.payload_len as usize)?;
        }
        self.append_locked(&mut self.tail.lock(), entries)
    }

    /// True if an entry with so many bytes of payload fits the log now, behind so many flush marks.
    pub fn has_room(&self, payload_len: usize, marks: u64) -> bool {
        self.log_used() + marks * entry_bytes(0) + entry_bytes(payload_len) <= self.log_capacity()
    }

    /// Largest payload of this volume in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        // An entry larger than the ring would be refused with `LogFull` for ever.
        PAYLOAD_BYTES_MAX.min(self.log_capacity() as usize - HEADER_BYTES)
    }

    fn check_payload(&self, len: usize) -> Result<(), VolumeError> {
        let max = self.payload_bytes_max();
        if len > max { Err(VolumeError::TooLarge { len, max }) } else { Ok(()) }
    }

    /// Appends a flush mark, which is an empty entry, if flushed entries wait to be sealed; the next flush then seals them. Does nothing
    /// on an idle volume.
    pub fn mark(&self) -> Result<(), VolumeError> {
        let mut tail = self.tail.lock();
        if self.flushed_seq().0 > tail.mark {
            // A mark belongs to the volume itself, and to no epoch.
            self.append_one(&mut tail, EntryKind::Mark, 1, Epoch(0), &[], crc32c(&[]))?;
        }
        Ok(())
    }

    fn append_one(
        &self,
        tail: &mut Tail,
        kind: EntryKind,
        ops: u32,
        epoch: Epoch,
        payload: &[u8],
        payload_crc: u32,
    ) -> Result<Seq, VolumeError> {
        let mut entries = std::mem::take(&mut tail.own);
        entries.clear();
        entries.add(kind, ops, epoch, payload, payload_crc);
        let done = self.append_locked(tail, &mut entries);
        tail.own = entries;
        done.map(|before| Seq(before.seq.0 + 1))
    }

    fn append_locked(&self, tail: &mut Tail, entries: &mut Entries) -> Result<LogPoint, VolumeError> {
        // 1. Admit.
        self.check_writable()?;
        tail.check_started()?;
        let (bytes, capacity) = (entries.ring_bytes(), self.log_capacity());
        let used = tail.pos - tail.start;
        if used + bytes > capacity {
            return Err(VolumeError::LogFull { used, capacity, wanted: bytes });
        }
        // 2. Fill in the headers: disk-V1, each follows from the one before.
        let before = LogPoint { seq: Seq(tail.seq), pos: tail.pos };
        let flushed_seq = self.flushed_seq.load(Ordering::Acquire);
        let (mut seq, mut pos) = (tail.seq, tail.pos);
        for piece in &entries.list {
            let &Piece { kind, ops, epoch, payload_len, payload_crc } = piece;
            let header = Header {
                kind,
                ops,
                tag: self.tag,
                // disk-V8.
                seq: if kind == EntryKind::Mark { seq } else { seq + 1 },
                pos,
                flushed_seq,
                epoch,
                incarnation: tail.incarnation,
                payload_len,
                payload_crc,
            };
            let at = (PAGE_BYTES + pos - before.pos) as usize;
            entries.bytes[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
            seq = header.last_seq();
            pos += entry_bytes(payload_len as usize);
        }
        assert_eq!(pos - before.pos, bytes, "disk-V1: positions rise by the entries' bytes");
        let numbered = entries.list.iter().filter(|piece| piece.kind != EntryKind::Mark).count();
        assert!(seq >= before.seq.0 + numbered as u64, "disk-V1: each entry has a seq of its own");
        assert!(flushed_seq <= before.seq.0, "disk-V3: a flush mark names entries before its own");
        assert!(pos.is_multiple_of(ALIGN_BYTES as u64), "an entry ends where the next one may begin");
        // 3. Write everything at once, with the bytes that the first page held before, and zeros behind.
        let (page, written_end) = (page_begin(before.pos), pos.next_multiple_of(PAGE_BYTES));
        let lap_end = page_begin(tail.start) + self.regions.log.len();
        assert!(written_end <= lap_end, "disk-V4: neither entries nor zeros reach the live log");
        self.prepare(tail, written_end)?;
        assert_eq!(tail.page.len() as u64, before.pos - page, "the tail's page is known");
        let begin = PAGE_BYTES as usize - tail.page.len();
        entries.bytes[begin..PAGE_BYTES as usize].copy_from_slice(&tail.page);
        entries.bytes.resize(begin + (written_end - page) as usize, 0);
        self.write_ring(page, &entries.bytes[begin..])?;
        assert_eq!(tail.seq, before.seq.0, "the tail stays locked during the write");
        tail.page.clear();
        let of_page = begin + (page_begin(pos) - page) as usize..begin + (pos - page) as usize;
        tail.page.extend_from_slice(&entries.bytes[of_page]);
        // 4. Move the log's end.
        (tail.pos, tail.seq, tail.mark) = (pos, seq, flushed_seq);
        self.publish(tail);
        Ok(before)
    }

    /// Ensures that the ring will have been written below `end`, a page boundary, once the caller has written its pages: zeroes up to the
    /// next step.
    fn prepare(&self, tail: &mut Tail, end: u64) -> Result<(), VolumeError> {
        let lap = self.regions.log.len();
        if tail.prepared >= end.min(lap) || self.log.is_device() {
            return Ok(());
        }
        assert!(end.is_multiple_of(PAGE_BYTES), "the ring is prepared in whole pages");
        // First lap: all live entries lie below `end`, so the zeros overwrite none (disk-V4).
        let upto = end.next_multiple_of(PREPARE_BYTES).min(lap);
        if end < upto {
            self.write_ring(end, &vec![0; (upto - end) as usize])?;
        }
        tail.prepared = upto;
        Ok(())
    }

    /// Reads the part of the tail's page that lies below the log's end.
    pub(super) fn read_tail_page(&self, pos: u64) -> Result<Vec<u8>, VolumeError> {
        let log = self.regions.log;
        let mut page = vec![0; (pos - page_begin(pos)) as usize];
        let place = log.begin + page_begin(pos) % log.len();
        let read = self.log.read_at(&mut page, place);
        read.map_err(|source| VolumeError::Read { what: "cannot read the log", source })?;
        Ok(page)
    }

    /// Writes at a logical position: one device write, or two where the ring wraps.
    fn write_ring(&self, pos: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        let log = self.regions.log;
        assert!(log.begin >= LOG_BEGIN, "the ring lies behind the superblocks");
        assert!(log.range().end <= self.log.size(), "the ring lies within its medium");
        assert!(pos.is_multiple_of(PAGE_BYTES), "the ring is written from a page's begin");
        assert!((bytes.len() as u64).is_multiple_of(PAGE_BYTES), "the ring is written in whole pages");
        assert!(bytes.len() as u64 <= log.len(), "one write goes round the ring once at most");
        let at = pos % log.len();
        let (first, second) = bytes.split_at(bytes.len().min((log.len() - at) as usize));
        self.log.write_at(first, log.begin + at).map_err(|e| self.fail_write("log write", e))?;
        if !second.is_empty() {
            self.log.write_at(second, log.begin).map_err(|e| self.fail_write("log write", e))?;
        }
        Ok(())
    }
}

/// The begin of the page at a logical position: the ring is whole pages.
fn page_begin(pos: u64) -> u64 {
    pos / PAGE_BYTES * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::tests::{formatted, reopen, started};
    use super::*;

    #[test]
    fn v8_marks_of_earlier_releases_keep_their_seqs() {
        let disk = formatted();
        let volume = started(disk.clone());
        volume.append(Epoch(1), b"a").unwrap();
        volume.flush().unwrap();
        let append = |kind| {
            let mut tail = volume.tail.lock();
            volume.append_one(&mut tail, kind, 1, Epoch(0), &[], crc32c(&[])).unwrap()
        };
        append(EntryKind::NumberedMark);
        volume.append(Epoch(1), b"b").unwrap();
        append(EntryKind::Mark);
        volume.append(Epoch(1), b"c").unwrap();
        let (again, seen) = reopen(disk);
        let seen: Vec<_> = seen.into_iter().map(|(seq, _, payload)| (seq, payload)).collect();
        assert_eq!(seen, [(1, b"a".to_vec()), (3, b"b".to_vec()), (4, b"c".to_vec())]);
        assert_eq!(again.last_seq(), Seq(4));
    }
}
