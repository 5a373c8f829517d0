//! Checkpoints: the owner's whole state as a stream of chunks in one of two slots. The superblock names the valid one.
//!
//! A chunk is a 32-byte header and up to 1 MiB of payload; a chunk of length 0 ends the stream. Headers carry the seq of
//! the checkpoint and a running index, so that a chunk of an older checkpoint in the same slot is not accepted. The superblock keeps the
//! stream's length and a CRC over all headers.

use std::io::{self, Read, Write};
use std::ops::Range;

use types::Seq;
use types::crc::crc32c;

use super::bytes::*;
use super::superblock::{CheckpointRef, Region};
use super::{LogPoint, Volume, VolumeError};
use crate::Disk;

const CHUNK_HEADER_BYTES: usize = 32;
/// Large enough for a device's full speed, small enough to hold one in memory.
const CHUNK_BYTES_MAX: usize = 1 << 20;
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"SCK1");

impl Volume {
    /// Writes the state as of `at` (a `position()` at which the owner froze its state) and trims the log to it. The log
    /// stays in use meanwhile. On an error the old checkpoint and the whole log stay valid.
    pub fn checkpoint(
        &self,
        at: LogPoint,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        self.checkpoint_keeping(at, at, write)
    }

    /// As `checkpoint`, for a state that leaves some entries to the log: the log is trimmed only to `from`, an earlier position. Replay
    /// shows those entries again; the owner recognises them by `checkpoint_seq`.
    pub fn checkpoint_keeping(
        &self,
        at: LogPoint,
        from: LogPoint,
        write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        // 1. One checkpoint at a time, and only at a point of the live log.
        let _slots = self.slots.lock();
        self.check_started()?;
        {
            let tail = self.tail.lock();
            let start_seq = self.superblock.lock().log_start.seq;
            let is_in_log = tail.start <= from.pos && from.pos <= at.pos && at.pos <= tail.pos;
            let is_in_order = start_seq <= from.seq && from.seq <= at.seq && at.seq.0 <= tail.seq;
            if !is_in_log || !is_in_order {
                return Err(VolumeError::WrongOrder("a checkpoint must be at a point of the live log"));
            }
        }
        // 2. Stream to the slot that no superblock copy names (disk-V5).
        let slot = self.superblock.lock().checkpoint.map_or(0, |c| 1 - c.slot);
        let mut out = ChunkWriter::new(self, self.regions.slots[slot as usize], at.seq);
        let streamed = write(&mut out).and_then(|()| out.finish());
        if let Err(e) = streamed {
            return Err(out.refused.take().unwrap_or(VolumeError::CheckpointSource(e)));
        }
        let named = CheckpointRef {
            slot,
            stream_bytes: out.stream_bytes,
            payload_bytes: out.payload_bytes,
            seq: at.seq,
            crc: out.crc,
        };
        // 3. Flush the slot, the log up to `at`, and the data that its entries name: recovery verifies data only of later entries.
        assert!(out.stream_bytes <= self.regions.slots[slot as usize].len(), "a stream ends within its slot");
        assert!(out.payload_bytes <= out.stream_bytes, "a stream has its state and its headers");
        self.flush_now()?;
        assert!(
            self.flushed_seq() >= at.seq,
            "disk-V3: the log up to a checkpoint is flushed before it is named"
        );
        // 4. Name the checkpoint in both superblock copies, durably.
        self.commit(|sb| {
            sb.checkpoint = Some(named);
            sb.log_start = from;
        })?;
        // 5. Only now may the ring overwrite entries before `from` (disk-V4).
        let named_now = self.superblock.lock().checkpoint;
        assert_eq!(named_now, Some(named), "disk-V4: both superblock copies name the new checkpoint");
        let mut tail = self.tail.lock();
        assert!(from.pos >= tail.start, "disk-V4: the log's start only rises");
        tail.start = from.pos;
        self.publish(&tail);
        Ok(())
    }

    /// The last entry whose changes the checkpoint holds; the log may begin before it.
    pub fn checkpoint_seq(&self) -> Seq {
        self.superblock.lock().checkpoint.map_or(Seq(0), |c| c.seq)
    }

    /// Where the last checkpoint's stream lies on the medium. The owner may use the part of a slot behind it and behind the place that the
    /// next stream will take.
    pub fn checkpoint_place(&self) -> Option<Range<u64>> {
        let named = self.superblock.lock().checkpoint?;
        let begin = self.regions.slots[named.slot as usize].begin;
        Some(begin..begin + named.stream_bytes)
    }

    /// Bytes of state that a checkpoint can hold: a slot without its chunk headers.
    pub fn checkpoint_capacity(&self) -> u64 {
        let slot = self.regions.slots.iter().map(Region::len).min().unwrap_or(0);
        // One header per whole chunk, one for a last partial chunk, one for the end.
        let headers = (slot / CHUNK_BYTES_MAX as u64 + 2) * CHUNK_HEADER_BYTES as u64;
        slot.saturating_sub(headers)
    }

    /// Reads the state of the last checkpoint; `None` if the volume never made one. Bytes are verified before they are returned,
    /// and the end of the stream is the end of the state: damage or a missing part is an `InvalidData` error.
    pub fn checkpoint_reader(&self) -> Result<Option<CheckpointReader<'_>>, VolumeError> {
        let named = self.superblock.lock().checkpoint;
        Ok(named.map(|named| self.reader_of(named, false)))
    }

    /// Reads the last checkpoint from the medium itself, and verifies it. Returns its bytes; 0 if the volume never made one.
    pub fn check_checkpoint(&self) -> io::Result<u64> {
        loop {
            let now = || self.superblock.lock().checkpoint;
            let Some(named) = now() else { return Ok(0) };
            match io::copy(&mut self.reader_of(named, true), &mut io::sink()) {
                Ok(_) => return Ok(named.stream_bytes),
                // Its slot is another one's by now.
                Err(_) if now() != Some(named) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn reader_of(&self, named: CheckpointRef, is_past_caches: bool) -> CheckpointReader<'_> {
        CheckpointReader {
            disk: &*self.disk,
            region: self.regions.slots[named.slot as usize],
            named,
            is_past_caches,
            at: 0,
            index: 0,
            crc: 0,
            payload_bytes: 0,
            chunk: Vec::new(),
            given: 0,
            ended: false,
        }
    }
}

struct ChunkHeader {
    len: u32,
    index: u32,
    crc: u32,
    seq: u64,
}

impl ChunkHeader {
    fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut o = [0; CHUNK_HEADER_BYTES];
        put_u32(&mut o, 0, CHUNK_MAGIC);
        put_u32(&mut o, 4, self.len);
        put_u32(&mut o, 8, self.index);
        put_u32(&mut o, 12, self.crc);
        put_u64(&mut o, 16, self.seq);
        seal(&mut o);
        o
    }

    fn decode(b: &[u8; CHUNK_HEADER_BYTES]) -> Option<ChunkHeader> {
        let known = u32_at(b, 0) == CHUNK_MAGIC && u32_at(b, 24) == 0 && is_sealed(b);
        let h =
            ChunkHeader { len: u32_at(b, 4), index: u32_at(b, 8), crc: u32_at(b, 12), seq: u64_at(b, 16) };
        (known && h.len as usize <= CHUNK_BYTES_MAX).then_some(h)
    }
}

/// The CRC over the headers so far, extended by one more.
fn chain(crc: u32, header: &[u8; CHUNK_HEADER_BYTES]) -> u32 {
    let mut both = [0; 4 + CHUNK_HEADER_BYTES];
    put_u32(&mut both, 0, crc);
    put(&mut both, 4, header);
    crc32c(&both)
}

struct ChunkWriter<'a> {
    volume: &'a Volume,
    region: Region,
    seq: Seq,
    /// Space for the header, then the payload gathered so far.
    chunk: Vec<u8>,
    index: u32,
    stream_bytes: u64,
    payload_bytes: u64,
    crc: u32,
    /// The error, if it came from the volume and not from the owner's stream.
    refused: Option<VolumeError>,
}

impl<'a> ChunkWriter<'a> {
    fn new(volume: &'a Volume, region: Region, seq: Seq) -> ChunkWriter<'a> {
        let mut chunk = Vec::with_capacity(CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX);
        chunk.resize(CHUNK_HEADER_BYTES, 0);
        let (index, stream_bytes, payload_bytes, crc) = (0, 0, 0, 0);
        ChunkWriter { volume, region, seq, chunk, index, stream_bytes, payload_bytes, crc, refused: None }
    }

    /// Writes the gathered chunk; an empty one ends the stream.
    fn put_chunk(&mut self) -> io::Result<()> {
        let payload = &self.chunk[CHUNK_HEADER_BYTES..];
        let (len, crc) = (payload.len() as u32, crc32c(payload));
        let header = ChunkHeader { len, index: self.index, crc, seq: self.seq.0 }.encode();
        put(&mut self.chunk, 0, &header);
        if self.stream_bytes + self.chunk.len() as u64 > self.region.len() {
            return self.refuse(VolumeError::CheckpointFull { capacity: self.region.len() });
        }
        let place = self.region.begin + self.stream_bytes;
        let valid = self.volume.superblock.lock().checkpoint;
        let is_valid = valid.is_some_and(|c| self.volume.regions.slots[c.slot as usize] == self.region);
        assert!(!is_valid, "disk-V5: no superblock copy names the slot that is written");
        assert!(len as usize <= CHUNK_BYTES_MAX, "a reader accepts the chunk");
        assert!(self.region.range().end <= self.volume.disk.size(), "a slot lies within its medium");
        if let Err(e) = self.volume.disk.write_at(&self.chunk, place) {
            // No superblock names this slot (disk-V5), so no promise is affected.
            return self.refuse(VolumeError::CheckpointWrite(e));
        }
        self.stream_bytes += self.chunk.len() as u64;
        self.payload_bytes += len as u64;
        self.crc = chain(self.crc, &header);
        self.index += 1;
        self.chunk.truncate(CHUNK_HEADER_BYTES);
        Ok(())
    }

    /// Fails the owner's stream too, so that it stops early; the volume reports `refused`, whatever error the owner returns.
    fn refuse(&mut self, why: VolumeError) -> io::Result<()> {
        let told = io::Error::other(why.to_string());
        self.refused.get_or_insert(why);
        Err(told)
    }

    fn finish(&mut self) -> io::Result<()> {
        // An owner that ignored the write error must not get a checkpoint with a hole.
        if let Some(why) = &self.refused {
            return Err(io::Error::other(why.to_string()));
        }
        if self.chunk.len() > CHUNK_HEADER_BYTES {
            self.put_chunk()?;
        }
        self.put_chunk()
    }
}

impl Write for ChunkWriter<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = buf.len().min(CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX - self.chunk.len());
        self.chunk.extend_from_slice(&buf[..n]);
        if self.chunk.len() == CHUNK_HEADER_BYTES + CHUNK_BYTES_MAX {
            self.put_chunk()?;
        }
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a checkpoint; see `Volume::checkpoint_reader`.
pub struct CheckpointReader<'a> {
    disk: &'a dyn Disk,
    region: Region,
    named: CheckpointRef,
    is_past_caches: bool,
    at: u64,
    index: u32,
    crc: u32,
    payload_bytes: u64,
    chunk: Vec<u8>,
    given: usize,
    ended: bool,
}

impl CheckpointReader<'_> {
    /// Bytes of the whole state.
    pub fn payload_bytes(&self) -> u64 {
        self.named.payload_bytes
    }
    /// The last entry whose changes the state has.
    pub fn seq(&self) -> Seq {
        self.named.seq
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut header = [0; CHUNK_HEADER_BYTES];
        self.take(&mut header)?;
        let h = ChunkHeader::decode(&header).filter(|h| h.index == self.index && h.seq == self.named.seq.0);
        let h = h.ok_or_else(|| self.damage("its header"))?;
        // After an error below the chunk is empty, so that later reads fail too and no byte is returned twice.
        let mut chunk = std::mem::take(&mut self.chunk);
        self.given = 0;
        chunk.resize(h.len as usize, 0);
        self.take(&mut chunk)?;
        if crc32c(&chunk) != h.crc {
            return Err(self.damage("its checksum"));
        }
        self.chunk = chunk;
        self.index += 1;
        self.payload_bytes += h.len as u64;
        self.crc = chain(self.crc, &header);
        if h.len == 0 {
            let whole = (self.at, self.payload_bytes, self.crc)
                == (self.named.stream_bytes, self.named.payload_bytes, self.named.crc);
            if !whole {
                return Err(self.damage("the whole's length or checksum"));
            }
            self.ended = true;
        }
        Ok(())
    }

    fn take(&mut self, buf: &mut [u8]) -> io::Result<()> {
        if self.at + buf.len() as u64 > self.named.stream_bytes {
            return Err(self.damage("its length"));
        }
        let begin = self.region.begin + self.at;
        self.at += buf.len() as u64;
        if self.is_past_caches {
            return self.read_medium(buf, begin);
        }
        self.disk.read_at(buf, begin)?;
        self.disk.will_read(self.region.begin + self.at, CHUNK_BYTES_MAX as u64);
        Ok(())
    }

    fn read_medium(&self, buf: &mut [u8], begin: u64) -> io::Result<()> {
        // Direct I/O transfers whole pages only.
        const PAGE: u64 = types::PAGE_SIZE as u64;
        let skipped = (begin % PAGE) as usize;
        let mut pages = vec![0; (skipped + buf.len()).next_multiple_of(PAGE as usize)];
        self.disk.read_medium_at(&mut pages, begin - skipped as u64)?;
        buf.copy_from_slice(&pages[skipped..][..buf.len()]);
        Ok(())
    }

    fn damage(&self, what: &str) -> io::Error {
        let (index, slot) = (self.index, self.named.slot);
        let what = format!("checkpoint in slot {slot} is damaged: chunk {index}, {what}; copy from a mirror");
        io::Error::new(io::ErrorKind::InvalidData, what)
    }
}

impl Read for CheckpointReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !self.ended && self.given == self.chunk.len() {
            self.next_chunk()?;
        }
        assert!(self.given <= self.chunk.len(), "no byte of a chunk is returned twice");
        let n = buf.len().min(self.chunk.len() - self.given);
        buf[..n].copy_from_slice(&self.chunk[self.given..self.given + n]);
        self.given += n;
        Ok(n)
    }
}

#[cfg(test)]
mod hammered;
