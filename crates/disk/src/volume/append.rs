//! Adding entries to the log ring: the write is acknowledged when this returns, and flushed by a later flush.
//!
//! Whole pages are written: the tail's page from its begin, and zeros to the end of the last. A part of a page that the page cache does
//! not hold would have to be read from the device first, at every append on a block device and on every later lap. So one page
//! of the ring stays free: the zeros reach no live entry (V4).

use std::sync::atomic::Ordering;

use types::crc::crc32c;
use types::{Epoch, Seq};

use super::entry::{EntryKind, HEADER_BYTES, Header, entry_bytes};
use super::{Tail, Volume, VolumeError};

/// Largest payload in bytes: a request's bulk (1 MiB) and as much again for what goes with it.
pub const PAYLOAD_BYTES_MAX: usize = 2 << 20;
/// What the page cache reads and writes at once.
pub(super) const PAGE_BYTES: u64 = 4096;
/// On the first lap the ring is zeroed ahead in steps of this, so that one flush in so many bytes, and not each, makes the
/// file system below allocate. Whole pages alone would not do: each would be another extent to convert.
const PREPARE_BYTES: u64 = 1 << 20;

impl Volume {
    /// Appends an entry and returns its seq. Definite: on `LogFull` and `TooLarge` nothing was appended; `Failed` is unknown.
    /// Who needs the order of entries to be the order of applying holds a lock of its own around both.
    pub fn append(&self, epoch: Epoch, payload: &[u8]) -> Result<Seq, VolumeError> {
        // An entry larger than the ring would be refused as `LogFull` for ever.
        let max = PAYLOAD_BYTES_MAX.min(self.log_capacity() as usize - HEADER_BYTES);
        if payload.len() > max {
            return Err(VolumeError::TooLarge { len: payload.len(), max });
        }
        // The CRC of a large payload takes time that the tail lock should not be held for.
        let payload_crc = crc32c(payload);
        let mut tail = self.tail.lock();
        self.append_locked(&mut tail, EntryKind::Payload, epoch, payload, payload_crc)
    }

    /// Appends an empty entry if flushed entries wait to be sealed, so that the next flush seals them. Does nothing on a
    /// volume at rest.
    pub fn mark(&self) -> Result<(), VolumeError> {
        let mut tail = self.tail.lock();
        // Marks alone need no sealing, or each would ask for the next for ever.
        let waits = tail.seq_of_payload.min(self.flushed_seq().0) > tail.mark;
        if waits {
            // A mark is the volume's own and belongs to no epoch.
            self.append_locked(&mut tail, EntryKind::Mark, Epoch(0), &[], crc32c(&[]))?;
        }
        Ok(())
    }

    fn append_locked(
        &self,
        tail: &mut Tail,
        kind: EntryKind,
        epoch: Epoch,
        payload: &[u8],
        payload_crc: u32,
    ) -> Result<Seq, VolumeError> {
        // 1. Admit.
        self.check_writable()?;
        tail.check_started()?;
        let (bytes, capacity) = (entry_bytes(payload.len()), self.log_capacity());
        let used = tail.pos - tail.start;
        if used + bytes > capacity {
            return Err(VolumeError::LogFull { used, capacity, wanted: bytes });
        }
        // 2. Write header and payload in one piece, with what their first page held before and zeros behind.
        let header = Header {
            kind,
            tag: self.tag,
            seq: tail.seq + 1,
            pos: tail.pos,
            flushed_seq: self.flushed_seq.load(Ordering::Acquire),
            epoch,
            incarnation: tail.incarnation,
            payload_len: payload.len() as u32,
            payload_crc,
        };
        let end = tail.pos + bytes;
        let (page, written_end) = (page_begin(tail.pos), end.next_multiple_of(PAGE_BYTES));
        self.prepare(tail, written_end)?;
        assert_eq!(tail.page.len() as u64, tail.pos - page, "the tail's page is known");
        tail.page.extend_from_slice(&header.encode());
        tail.page.extend_from_slice(payload);
        tail.page.resize((written_end - page) as usize, 0);
        self.write_ring(page, &tail.page)?;
        tail.page.truncate((end - page) as usize);
        tail.page.drain(..(page_begin(end) - page) as usize);
        // 3. It is the log's end now.
        tail.pos = end;
        tail.seq = header.seq;
        tail.mark = header.flushed_seq;
        if kind == EntryKind::Payload {
            tail.seq_of_payload = header.seq;
        }
        Ok(Seq(header.seq))
    }

    /// Makes sure that the ring is written below `end`, a page's end, once the caller has written its pages, and zeroes to the next step.
    fn prepare(&self, tail: &mut Tail, end: u64) -> Result<(), VolumeError> {
        let lap = self.regions.log.len();
        if tail.prepared >= end.min(lap) {
            return Ok(());
        }
        // First lap: `start..pos` lies below `end` and nothing live above, so the zeros touch no entry (V4).
        let upto = end.next_multiple_of(PREPARE_BYTES).min(lap);
        if end < upto {
            self.write_ring(end, &vec![0; (upto - end) as usize])?;
        }
        tail.prepared = upto;
        Ok(())
    }

    /// What the page at the log's end holds below it.
    pub(super) fn read_tail_page(&self, pos: u64) -> Result<Vec<u8>, VolumeError> {
        let log = self.regions.log;
        let mut page = vec![0; (pos - page_begin(pos)) as usize];
        let place = log.begin + page_begin(pos) % log.len();
        let read = self.log.read_at(&mut page, place);
        read.map_err(|source| VolumeError::Read { what: "cannot read the log", source })?;
        Ok(page)
    }

    /// Writes at a logical position: one write, two where the ring wraps.
    fn write_ring(&self, pos: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        let log = self.regions.log;
        let at = pos % log.len();
        let (first, second) = bytes.split_at(bytes.len().min((log.len() - at) as usize));
        self.log.write_at(first, log.begin + at).map_err(|e| self.fail("log write", e))?;
        if !second.is_empty() {
            self.log.write_at(second, log.begin).map_err(|e| self.fail("log write", e))?;
        }
        Ok(())
    }
}

/// Of the page that a logical position lies in: the ring is whole pages.
fn page_begin(pos: u64) -> u64 {
    pos / PAGE_BYTES * PAGE_BYTES
}
