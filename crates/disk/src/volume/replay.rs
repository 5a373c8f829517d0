//! Replay: reads the log from the checkpoint to the first entry that does not follow.
//!
//! The log ends where power loss cut it, unless a later entry proves that the missing entry was flushed. Then the log is damaged and replay
//! reports it (`Lost`), because a cut would silently lose durable data.

use std::fmt;
use std::ops::Range;

use types::crc::crc32c;
use types::{Epoch, Incarnation, Seq};

use super::append::PAYLOAD_BYTES_MAX;
use super::entry::{ALIGN_BYTES, EntryKind, HEADER_BYTES, Header, MAGIC, entry_bytes};
use super::superblock::Superblock;
use super::{LogPoint, Phase, Volume, VolumeError};

/// The ring is read in pieces of this many bytes.
const WINDOW_BYTES: usize = 1 << 20;
/// How far behind the end replay looks for proof of damage: more than is written between an entry and the end of its flush.
const PROOF_BYTES_MAX: u64 = 64 << 20;

/// An entry of the log, as replay shows it.
#[derive(Debug)]
pub struct LogEntry<'a> {
    pub epoch: Epoch,
    /// seq of its first operation.
    pub seq: Seq,
    /// Operations of the entry, each with a seq of its own.
    pub ops: u32,
    pub incarnation: Incarnation,
    /// Logical position of the entry's header.
    pub pos: u64,
    /// A flush mark in the log covers the entry: the data that it names is durable. The owner must verify data of other entries (disk-O2).
    pub flushed: bool,
    pub payload: &'a [u8],
}

/// The owner's decision on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// The log ends before this entry.
    Cut,
}

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplaySummary {
    /// Entries that were shown and kept; the volume's marks are not shown.
    pub kept: u64,
    /// The log's end after replay, behind the last kept entry.
    pub end: LogPoint,
    /// Entries up to here are known to have been flushed.
    pub flushed_seq: Seq,
    /// The entry at which the owner cut.
    pub cut: Option<Seq>,
    /// A flushed entry that cannot be read. `start` refuses while this stands.
    pub lost: Option<Lost>,
    pub cut_off: CutOff,
}

/// Valid entries that replay left out because an entry before them is missing: those behind a torn entry, or behind the owner's cut. After
/// power loss this is normal, since unflushed pages reach the medium in any order. After a mere kill it is not, and it is the only sign
/// that an unflushed entry was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CutOff {
    pub entries: u64,
    /// From the log's end to the end of the last one.
    pub bytes: u64,
}

/// Proof of damage: entry `seq` at `pos` is unreadable, although everything up to `flushed_seq` was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub seq: Seq,
    pub pos: u64,
    pub flushed_seq: Seq,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "log entry {} at position {} is damaged though entries up to {} were flushed, so later entries \
             cannot be trusted; keep the medium and restore the target from a copy, since no command abandons such a log yet",
            self.seq, self.pos, self.flushed_seq
        )
    }
}

impl Volume {
    /// Shows the entries after the checkpoint in order. May be called again before `start`; the last call counts.
    pub fn replay(
        &self,
        each: &mut dyn FnMut(&LogEntry<'_>) -> Verdict,
    ) -> Result<ReplaySummary, VolumeError> {
        if matches!(self.tail.lock().phase, Phase::Started | Phase::Closed) {
            return Err(VolumeError::WrongOrder("replay comes before start"));
        }
        let sb = self.superblock.lock().clone();
        // 1. Find the end and the last flush mark: whether an entry is flushed may be stored in later ones.
        let mut flushed = sb.flushed_seq.0;
        let mut scan = Scan::new(self, &sb);
        let mut behind_cut = 0;
        while let Some((header, _)) = scan.next()? {
            flushed = flushed.max(header.flushed_seq);
            behind_cut += 1;
        }
        let end = scan.point();
        let (lost, behind) = scan.look_behind()?;
        // 2. Show the entries.
        let mut summary = ReplaySummary {
            kept: 0,
            end: scan.begin_again(),
            flushed_seq: Seq(0),
            cut: None,
            lost,
            cut_off: behind,
        };
        while summary.end.pos < end.pos {
            let at = summary.end.pos;
            let Some((header, payload)) = scan.next()? else { break };
            if header.kind == EntryKind::Payload {
                let (seq, is_flushed) = (Seq(header.seq), header.last_seq() <= flushed);
                let Header { epoch, ops, incarnation, .. } = header;
                let entry = LogEntry { epoch, seq, ops, incarnation, pos: at, flushed: is_flushed, payload };
                if each(&entry) == Verdict::Cut {
                    summary.cut = Some(seq);
                    break;
                }
                summary.kept += 1;
            }
            summary.end = scan.point();
            if behind_cut == 0 || summary.end.pos > end.pos {
                return Err(VolumeError::Malformed("two reads of the log differ; check its medium"));
            }
            behind_cut -= 1;
        }
        summary.flushed_seq = Seq(flushed.min(summary.end.seq.0));
        // Entries behind the owner's cut are valid too.
        summary.cut_off.entries += behind_cut;
        summary.cut_off.bytes += end.pos - summary.end.pos;
        *self.cut_off.lock() = summary.cut_off;
        // 3. Set the log's end.
        let mut tail = self.tail.lock();
        assert!(summary.end.pos >= tail.start, "the log ends behind its start");
        (tail.pos, tail.seq) = (summary.end.pos, summary.end.seq.0);
        tail.phase = Phase::Replayed { cut: summary.cut.is_some(), lost };
        self.publish(&tail);
        Ok(summary)
    }
}

/// Walks the log from its start.
pub(super) struct Scan<'a> {
    volume: &'a Volume,
    sb: &'a Superblock,
    window: Window,
    pos: u64,
    seq: u64,
    incarnation: Incarnation,
    /// No byte from here on is read.
    limit: u64,
}

impl<'a> Scan<'a> {
    fn new(volume: &'a Volume, sb: &'a Superblock) -> Scan<'a> {
        let limit = sb.log_start.pos + volume.regions.log.len();
        Scan::between(volume, sb, sb.log_start, limit)
    }

    /// A walk through the part of the log from `begin` to position `limit`.
    pub fn between(volume: &'a Volume, sb: &'a Superblock, begin: LogPoint, limit: u64) -> Scan<'a> {
        let LogPoint { pos, seq } = begin;
        let window = Window { pos: 0, bytes: Vec::new() };
        Scan { volume, sb, window, pos, seq: seq.0, incarnation: Incarnation(0), limit }
    }

    pub fn point(&self) -> LogPoint {
        LogPoint { seq: Seq(self.seq), pos: self.pos }
    }

    fn begin_again(&mut self) -> LogPoint {
        (self.pos, self.seq) = (self.sb.log_start.pos, self.sb.log_start.seq.0);
        self.incarnation = Incarnation(0);
        self.point()
    }

    /// Bytes from the scan's position to the limit: mostly the end of the lap, since live entries can be up to there.
    fn room(&self) -> u64 {
        self.limit - self.pos
    }

    /// The next entry, if a valid one follows (disk-V1, disk-V2).
    pub fn next(&mut self) -> Result<Option<(Header, &[u8])>, VolumeError> {
        if self.room() < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let limit = self.pos + self.room();
        let header = Header::decode(self.window.get(self.volume, self.pos, HEADER_BYTES, limit)?);
        let Some(header) = header.filter(|h| self.follows(h)) else { return Ok(None) };
        let payload_len = header.payload_len as usize;
        let bytes = self.window.get(self.volume, self.pos, HEADER_BYTES + payload_len, limit)?;
        let payload = &bytes[HEADER_BYTES..];
        if crc32c(payload) != header.payload_crc {
            return Ok(None);
        }
        self.pos += entry_bytes(payload_len);
        assert!(self.pos <= limit, "an entry that is accepted ends within the lap");
        let rises = if header.kind == EntryKind::Mark {
            header.last_seq() == self.seq
        } else {
            header.last_seq() > self.seq
        };
        assert!(rises, "disk-V1: seq rises from entry to entry");
        self.seq = header.last_seq();
        self.incarnation = header.incarnation;
        Ok(Some((header, payload)))
    }

    fn follows(&self, h: &Header) -> bool {
        let len = h.payload_len as usize;
        h.tag == self.volume.tag
            && h.pos == self.pos
            && h.seq_before() == self.seq
            && (h.kind != EntryKind::Mark || self.sb.has_marks_without_seq())
            && (h.ops == 1 || self.sb.has_ops())
            && h.incarnation >= self.incarnation
            && self.may_count(h)
            && h.incarnation <= self.sb.incarnation
            && len <= PAYLOAD_BYTES_MAX
            && entry_bytes(len) <= self.room()
    }

    /// disk-V2: entries behind a cut tail are not valid.
    fn may_count(&self, h: &Header) -> bool {
        h.pos < self.sb.cut_pos || h.incarnation >= self.sb.cut_incarnation
    }

    /// Looks for proof that the missing entry at the end was flushed, and counts valid entries behind it.
    fn look_behind(&mut self) -> Result<(Option<Lost>, CutOff), VolumeError> {
        let (pos, want) = (self.pos, self.seq + 1);
        let mut behind = CutOff::default();
        let lost = |flushed_seq| Some(Lost { seq: Seq(want), pos, flushed_seq: Seq(flushed_seq) });
        if self.sb.flushed_seq.0 >= want {
            return Ok((lost(self.sb.flushed_seq.0), behind));
        }
        // After a clean stop the superblock knows the last entry, so no entry can be missing.
        if self.sb.clean {
            return Ok((None, behind));
        }
        // Look for a later entry whose flush mark covers the missing one. Its position may be laps ahead, if the newer superblock copy was
        // damaged and this is the older one.
        let limit = pos + self.room();
        let mut at = pos;
        while at + HEADER_BYTES as u64 <= limit.min(pos + PROOF_BYTES_MAX) {
            let bytes = self.window.get(self.volume, at, HEADER_BYTES, limit)?;
            if bytes[..4] == MAGIC.to_le_bytes()
                && let Some(h) = Header::decode(bytes)
                && h.tag == self.volume.tag
                && h.pos >= at
                && (h.pos - at).is_multiple_of(self.volume.regions.log.len())
                && self.may_count(&h)
            {
                if h.flushed_seq >= want {
                    return Ok((lost(h.flushed_seq), behind));
                }
                if self.is_left(&h, at, limit)? {
                    at += entry_bytes(h.payload_len as usize);
                    behind = CutOff { entries: behind.entries + 1, bytes: at - pos };
                    continue;
                }
            }
            at += ALIGN_BYTES as u64;
        }
        Ok((None, behind))
    }

    /// Was this entry appended behind the end in the same incarnation, and is it whole?
    fn is_left(&mut self, h: &Header, at: u64, limit: u64) -> Result<bool, VolumeError> {
        let len = h.payload_len as usize;
        let same_life = match self.incarnation {
            Incarnation(0) => self.sb.incarnation,
            of_last => of_last,
        };
        let may_be = h.pos == at && h.seq_before() >= self.seq && h.incarnation == same_life;
        if !may_be || len > PAYLOAD_BYTES_MAX || at + entry_bytes(len) > limit {
            return Ok(false);
        }
        let bytes = self.window.get(self.volume, at, HEADER_BYTES + len, limit)?;
        Ok(crc32c(&bytes[HEADER_BYTES..]) == h.payload_crc)
    }
}

/// A piece of the ring in memory, by logical position.
struct Window {
    pos: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// `len` bytes at `pos`; reads ahead, never past `limit`.
    fn get(&mut self, volume: &Volume, pos: u64, len: usize, limit: u64) -> Result<&[u8], VolumeError> {
        assert!(pos + len as u64 <= limit, "the log is not read past its lap");
        let held = self.pos..self.pos + self.bytes.len() as u64;
        if !contains(&held, pos, len) {
            let want = len.max(WINDOW_BYTES).min((limit - pos) as usize);
            self.bytes.resize(want, 0);
            self.pos = pos;
            if let Err(source) = read_ring(volume, pos, &mut self.bytes) {
                self.bytes.clear();
                return Err(VolumeError::Read { what: "cannot read the log", source });
            }
        }
        let at = (pos - self.pos) as usize;
        Ok(&self.bytes[at..at + len])
    }
}

fn contains(held: &Range<u64>, pos: u64, len: usize) -> bool {
    pos >= held.start && pos + len as u64 <= held.end
}

fn read_ring(volume: &Volume, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
    let log = volume.regions.log;
    assert!(buf.len() as u64 <= log.len(), "one read goes round the ring once at most");
    let at = pos % log.len();
    let first_len = buf.len().min((log.len() - at) as usize);
    let (first, second) = buf.split_at_mut(first_len);
    volume.log.read_at(first, log.begin + at)?;
    if !second.is_empty() {
        volume.log.read_at(second, log.begin)?;
    }
    // Announce the next window, to be read while this one is processed.
    let next = (at + buf.len() as u64) % log.len();
    volume.log.will_read(log.begin + next, (WINDOW_BYTES as u64).min(log.len() - next));
    Ok(())
}
