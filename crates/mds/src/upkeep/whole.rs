//! The whole content of this MDT for its mirror's other member, which lacks more than the log has. `start/fill.rs` is the other end.
//!
//! mds-RP7: a copy is one state: a snapshot of the records, the slots and the pending counts, as of one position of the log. The log is held
//!     from there on (mds-RP6), so that the member goes on with the entries behind it.
//!
//! One copy at a time: part 0 begins a new one, and ends the one before. The last part that was given may be asked for again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kv::{Engine, View};
use pair::Copied;
use types::crc::crc32c;
use types::{Code, Fault, Key, Seq};
use wire::Wire;
use wire::check::RawRecord;

use crate::records::look::Walk;
use crate::upkeep::backup::{REPLY_BYTES, raw};
use crate::upkeep::hold::IDLE_MS;
use crate::{Core, Records};

/// A copy in progress.
pub struct Giving {
    copy: u64,
    used_ms: u64,
    /// `None`: all records of the table were given.
    walk: Option<Arc<Walk<Records>>>,
    after: Key,
    /// Slots and pending counts, which come last.
    rest: Vec<RawRecord>,
    end: Seq,
    /// The part that was given last, and its number.
    last: Option<(u64, Copied)>,
}

impl Core {
    pub fn give_part(&self, copy: u64, part: u64) -> Result<Copied, Fault> {
        let mut giving = self.giving.lock();
        if part == 0 {
            *giving = Some(self.begin_to_give()?);
        }
        let found = giving.as_mut().filter(|giving| part == 0 || giving.copy == copy);
        let giving = found.ok_or_else(|| over("another one began, or it was not continued in time"))?;
        if !self.holds(giving.end) {
            return Err(over("requests needed the space of the log behind it"));
        }
        giving.used_ms = self.clock.boot_ms();
        self.use_hold();
        let next = giving.last.as_ref().map_or(0, |(number, _)| number + 1);
        if let Some((number, last)) = &giving.last
            && *number == part
        {
            return Ok(last.clone());
        }
        let is_ended = giving.last.as_ref().is_some_and(|(_, last)| last.is_last);
        if part != next || is_ended {
            return Err(over(&format!("part {part} does not follow")));
        }
        let copied = self.next_part(giving)?;
        giving.last = Some((part, copied.clone()));
        Ok(copied)
    }

    /// mds-RP7.
    fn begin_to_give(&self) -> Result<Giving, Fault> {
        let (snap, slots, counts, at) = {
            let seat = self.executor.lead();
            seat.check_open()?;
            let at = self.volume.position();
            // No checkpoint trims the log before the hold stands: it would need leadership.
            self.hold(at);
            (self.kv.snapshot(), seat.slots.clone(), seat.counts.clone(), at)
        };
        assert!(snap.seq() <= at.seq, "the log has what the table has");
        let slots = slots.records().map(|(key, value)| raw(&key, value.raw())).collect::<Vec<_>>();
        let rows = counts.records().map(|(key, value)| raw(&key, &value));
        let copy = (u64::from(self.incarnation.0) << 32) | (self.copies.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(Giving {
            copy,
            used_ms: 0,
            walk: Some(self.walks.begin(snap)),
            after: Key::default(),
            rest: slots.into_iter().chain(rows).collect(),
            end: at.seq,
            last: None,
        })
    }

    fn next_part(&self, giving: &mut Giving) -> Result<Copied, Fault> {
        let mut records = Vec::new();
        if let Some(walk) = &giving.walk {
            let more;
            (records, more) = walk.slice(&self.kv, |snap| self.records_after(snap, &giving.after))?;
            if let Some(last) = records.last() {
                giving.after = Key::new(&last.key.0).expect("a key of the table");
            }
            if !more {
                giving.walk = None;
            }
        }
        let mut bytes: usize = records.iter().map(length).sum();
        while giving.walk.is_none() && bytes < REPLY_BYTES {
            let Some(record) = giving.rest.pop() else { break };
            bytes += length(&record);
            records.push(record);
        }
        let is_last = giving.walk.is_none() && giving.rest.is_empty();
        Ok(Copied { copy: giving.copy, is_last, end: giving.end, content: encode(&records) })
    }

    /// Drops a copy that its member does not continue.
    pub fn sweep_giving(&self) {
        let Some(mut giving) = self.giving.try_lock() else { return };
        if giving.as_ref().is_some_and(|g| self.clock.boot_ms().saturating_sub(g.used_ms) >= IDLE_MS) {
            *giving = None;
        }
    }
}

fn length(record: &RawRecord) -> usize {
    16 + record.key.0.len() + record.value.0.len()
}

fn over(why: &str) -> Fault {
    Fault::new(Code::Stale, format!("this copy of the MDT is over: {why}; begin anew with part 0"))
}

/// A part: the records, and a checksum of their bytes.
fn encode(records: &Vec<RawRecord>) -> Vec<u8> {
    let mut bytes = records.to_bytes();
    crc32c(&bytes).put(&mut bytes);
    bytes
}

pub fn decode(content: &[u8]) -> Result<Vec<RawRecord>, Fault> {
    let damaged = |why: &str| {
        Fault::new(Code::Damaged, format!("a part of the copy of the MDT cannot be read: {why}; begin anew"))
    };
    let (bytes, crc) = content.split_last_chunk::<4>().ok_or_else(|| damaged("its length"))?;
    if crc32c(bytes).to_le_bytes() != *crc {
        return Err(damaged("its checksum"));
    }
    Vec::<RawRecord>::from_bytes(bytes).map_err(|e| damaged(&e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docs/formats/mdt.md` has it.
    #[test]
    fn golden() {
        let records = vec![raw(&Key::new(&[2, 7]).unwrap(), b"abc"), raw(&Key::new(&[9]).unwrap(), b"")];
        let bytes = encode(&records);
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "0200000002000000020703000000616263010000000900000000b7484b52");
        assert_eq!(decode(&bytes).unwrap(), records);
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(decode(&wrong).unwrap_err().code, Code::Damaged, "byte {at}");
            assert_eq!(decode(&bytes[..at]).unwrap_err().code, Code::Damaged, "cut at {at}");
        }
    }
}
