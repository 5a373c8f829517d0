//! Reading the log of a started volume, beside appends and checkpoints: a member of a mirror sends entries to the other one.
//!
//! disk-V9: a reader gets each entry behind the one that it names, in order and verified, or an error. It never gets an entry that a checkpoint
//!     has trimmed meanwhile, since the ring may have been overwritten there.

use std::sync::atomic::Ordering;

use types::{Epoch, Seq};

use super::entry::EntryKind;
use super::replay::Scan;
use super::{LogPoint, Phase, Volume, VolumeError};

/// An entry of the log, as `read_log` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEntry {
    pub epoch: Epoch,
    /// seq of its first operation, and of its last one.
    pub first: Seq,
    pub last: Seq,
    /// Before the entry, and behind it.
    pub begin: LogPoint,
    pub end: LogPoint,
    pub payload: Vec<u8>,
}

impl Volume {
    /// The oldest seq that the log still has, or will have: the entry behind the one up to which the log is trimmed.
    pub fn first_seq(&self) -> Seq {
        Seq(self.log_start().seq.0 + 1)
    }

    /// The log is trimmed up to here.
    pub fn log_start(&self) -> LogPoint {
        self.superblock.lock().log_start
    }

    /// Entries behind `after`, the last seq of an entry, in order: at least one if there is one, and no further one once they have `bytes_max`
    /// bytes of payload. Cheap for a reader that goes on where its last read ended. `LogTrimmed` if the log begins later.
    ///
    /// A log that cannot be read is a trouble of the volume: the other member may wait for its entries.
    pub fn read_log(&self, after: Seq, bytes_max: usize) -> Result<Vec<ReadEntry>, VolumeError> {
        let what = "the log cannot be read for the other member";
        self.try_read_log(after, bytes_max).inspect_err(|e| match e {
            VolumeError::Read { source, .. } if !crate::is_passing(source) => {
                self.troubles.note_refused(what, source);
            }
            VolumeError::Malformed(why) => {
                self.troubles.note_refused(what, &std::io::Error::new(std::io::ErrorKind::InvalidData, *why));
            }
            _ => {}
        })
    }

    fn try_read_log(&self, after: Seq, bytes_max: usize) -> Result<Vec<ReadEntry>, VolumeError> {
        self.check_started()?;
        // 1. Where to begin. All below `end` is written, and is rewritten with the same bytes at most.
        let sb = self.superblock.lock().clone();
        let end = self.position();
        if after < sb.log_start.seq {
            return Err(self.trimmed(after));
        }
        let known = self.read_end.lock().filter(|at| at.seq == after && at.pos >= sb.log_start.pos);
        let mut scan = Scan::between(self, &sb, known.unwrap_or(sb.log_start), end.pos);
        // 2. Read and verify.
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while scan.point().pos < end.pos && (entries.is_empty() || bytes < bytes_max) {
            let begin = scan.point();
            let found = scan.next()?.map(|(header, payload)| {
                let is_wanted = header.kind == EntryKind::Payload && header.last_seq() > after.0;
                (header, is_wanted.then(|| payload.to_vec()))
            });
            // disk-V9: looked at after each read.
            if self.seen.start.load(Ordering::Acquire) > known.unwrap_or(sb.log_start).pos {
                return if self.log_start().seq > after {
                    Err(self.trimmed(after))
                } else {
                    // The entries before `after` are gone, and those behind it are not.
                    self.try_read_log(after, bytes_max)
                };
            }
            let Some((header, payload)) = found else {
                return Err(VolumeError::Malformed("an entry of the log cannot be read; check its medium"));
            };
            let Some(payload) = payload else { continue };
            let (first, last) = (Seq(header.seq), Seq(header.last_seq()));
            if first <= after {
                return Err(VolumeError::WrongOrder("the log is read from the end of an entry on"));
            }
            bytes += payload.len();
            entries.push(ReadEntry { epoch: header.epoch, first, last, begin, end: scan.point(), payload });
        }
        assert!(entries.is_sorted_by(|a, b| a.last < b.first), "disk-V9: entries are in order");
        *self.read_end.lock() = entries.last().map(|entry| entry.end).or(known);
        Ok(entries)
    }

    fn trimmed(&self, after: Seq) -> VolumeError {
        VolumeError::LogTrimmed { after, first: self.first_seq() }
    }

    /// Empties a started volume, durably: no checkpoint and no entry, and the next entry's first seq is `at` + 1, wherever the log was. For
    /// an owner that fills the volume with the content of another one. The caller lets no other thread append or write a checkpoint meanwhile.
    pub fn reset(&self, at: Seq) -> Result<(), VolumeError> {
        let _slots = self.slots.lock();
        self.check_started()?;
        if at.0 > u64::MAX >> 3 {
            return Err(VolumeError::Malformed("a seq is out of range"));
        }
        // 1. disk-V2: all that is in the ring lies before the tail, and no part of the log counts from there on.
        self.flush_now()?;
        let pos = self.position().pos;
        self.commit_rising(
            |sb| {
                sb.checkpoint = None;
                sb.log_start = LogPoint { seq: at, pos };
                sb.flushed_seq = at;
            },
            |was, sb| assert!(sb.log_start.pos >= was.log_start.pos, "disk-V4: the log's start only rises"),
        )?;
        // 2. The numbers begin anew, possibly lower: none was told since the start.
        let mut tail = self.tail.lock();
        assert_eq!(tail.phase, Phase::Started, "a reset keeps the volume started");
        assert_eq!(tail.pos, pos, "no entry came meanwhile");
        (tail.start, tail.seq, tail.mark) = (pos, at.0, at.0);
        for (seq, is) in [(&self.sealed_seq, at.0), (&self.flushed_seq, at.0)] {
            seq.store(is, Ordering::Release);
        }
        *self.read_end.lock() = None;
        self.publish(&tail);
        Ok(())
    }
}
