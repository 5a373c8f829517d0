//! Records of a *filling*: an OST that is empty, or lacks too much, takes the whole content of the primary as ordered entries.
//!
//! A fill has the state of a range of an object as of its place in the order, and replaces that range. At the primary it changes nothing,
//! and its record has no places: it says which pages had bytes, so that an entry that travels later has just these.

use std::sync::Arc;

use disk::alloc::Run;
use types::{ObjectId, PAGE_SIZE, Seq, SessionId, Time};
use wire::session::SLOTS;
use wire::{Malformed, Reader, Wire};

use crate::Slot;

/// Most bytes that one fill carries: a write of the largest size.
pub const FILL_PAGES_MAX: u32 = (1 << 20) / PAGE_SIZE as u32;
/// Most stretches of pages with bytes, and most reserved runs, of one fill: 4 KiB of its record.
pub const FILL_RUNS_MAX: usize = 256;
/// Most sessions of one record: 106 KiB if each slot was used.
pub const FILL_SESSIONS_MAX: usize = 64;

/// The object, as of the fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FillAttrs {
    /// False: only its lease version is known.
    pub exists: bool,
    /// Bytes.
    pub len: u64,
    pub mtime: Time,
    pub lease: u64,
}

/// The state of pages `[first, limit)` of an object, and its attributes. Pages that are neither in `pages` nor in `reserved` are holes.
#[derive(Clone, Debug, PartialEq)]
pub struct FillRange {
    pub object: ObjectId,
    pub first: u32,
    pub limit: u32,
    pub attrs: FillAttrs,
    pub reserved: Vec<(u32, u32)>,
    /// Pages that have bytes.
    pub pages: Vec<(u32, u32)>,
}

impl FillRange {
    /// Number of pages that have bytes.
    pub fn count(&self) -> u32 {
        self.pages.iter().map(|(first, limit)| limit - first).sum()
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        self.object.put(out);
        self.first.put(out);
        self.limit.put(out);
        self.attrs.exists.put(out);
        self.attrs.len.put(out);
        self.attrs.mtime.put(out);
        self.attrs.lease.put(out);
        put_runs(&self.reserved, out);
        put_runs(&self.pages, out);
    }

    pub fn get(r: &mut Reader<'_>) -> Result<FillRange, Malformed> {
        let (object, first, limit): (_, u32, u32) = (Wire::get(r)?, Wire::get(r)?, Wire::get(r)?);
        let attrs = FillAttrs {
            exists: Wire::get(r)?,
            len: Wire::get(r)?,
            mtime: Wire::get(r)?,
            lease: Wire::get(r)?,
        };
        let (reserved, pages) = (get_runs(r, first, limit)?, get_runs(r, first, limit)?);
        let range = FillRange { object, first, limit, attrs, reserved, pages };
        let has_twice = range
            .reserved
            .iter()
            .any(|(first, limit)| range.pages.iter().any(|(from, to)| from < limit && first < to));
        // The sum of the runs is below 2^32, since they lie in the range.
        let is_all = (first, limit) == (0, u32::MAX);
        let is_empty = range.pages.is_empty() && range.reserved.is_empty() && attrs.len == 0;
        if first >= limit
            || attrs.len > types::FILE_SIZE_MAX
            || range.count() > FILL_PAGES_MAX
            || has_twice
            || !(attrs.exists || (is_all && is_empty))
        {
            return Err(Malformed("range of a fill"));
        }
        Ok(range)
    }
}

fn put_runs(runs: &[(u32, u32)], out: &mut Vec<u8>) {
    assert!(runs.len() <= FILL_RUNS_MAX, "a fill has {FILL_RUNS_MAX} runs at most");
    (runs.len() as u32).put(out);
    for (first, limit) in runs {
        first.put(out);
        limit.put(out);
    }
}

fn get_runs(r: &mut Reader<'_>, first: u32, limit: u32) -> Result<Vec<(u32, u32)>, Malformed> {
    let count = u32::get(r)? as usize;
    if count > FILL_RUNS_MAX {
        return Err(Malformed("runs of a fill"));
    }
    let (mut runs, mut at) = (Vec::with_capacity(count), first);
    for _ in 0..count {
        let (begin, end) = (u32::get(r)?, u32::get(r)?);
        if begin < at || end <= begin || end > limit {
            return Err(Malformed("runs of a fill"));
        }
        at = end;
        runs.push((begin, end));
    }
    Ok(runs)
}

/// A fill in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct FillRecord {
    pub range: FillRange,
    /// `None` at the member that ordered it: the record changes nothing there.
    pub placed: Option<FillPlaces>,
}

/// Places of the pages that have bytes, in page order, and one CRC per page.
#[derive(Clone, Debug, PartialEq)]
pub struct FillPlaces {
    pub runs: Vec<Run>,
    pub crcs: Arc<[u32]>,
}

impl FillRecord {
    pub fn put(&self, out: &mut Vec<u8>) {
        self.range.put(out);
        self.placed.is_some().put(out);
        let Some(FillPlaces { runs, crcs }) = &self.placed else { return };
        let pages: u32 = runs.iter().map(|run| run.pages).sum();
        assert!(
            pages == self.range.count() && pages as usize == crcs.len(),
            "a fill has a place for each page"
        );
        (runs.len() as u32).put(out);
        for run in runs {
            run.start.put(out);
            run.pages.put(out);
        }
        crcs.iter().for_each(|crc| crc.put(out));
    }

    pub fn get(r: &mut Reader<'_>) -> Result<FillRecord, Malformed> {
        let range = FillRange::get(r)?;
        let has_places: bool = Wire::get(r)?;
        if !has_places {
            return Ok(FillRecord { range, placed: None });
        }
        let count = u32::get(r)? as usize;
        if count > FILL_PAGES_MAX as usize {
            return Err(Malformed("places of a fill"));
        }
        let (mut runs, mut pages) = (Vec::with_capacity(count), 0u32);
        for _ in 0..count {
            let run = Run { start: Wire::get(r)?, pages: Wire::get(r)? };
            if run.pages == 0 || run.pages > FILL_PAGES_MAX || run.start >= 1 << 48 {
                return Err(Malformed("places of a fill"));
            }
            pages += run.pages;
            runs.push(run);
        }
        if pages != range.count() {
            return Err(Malformed("places of a fill"));
        }
        let crcs = (0..pages).map(|_| u32::get(r)).collect::<Result<Vec<u32>, _>>()?;
        Ok(FillRecord { range, placed: Some(FillPlaces { runs, crcs: crcs.into() }) })
    }

    /// The pages that have bytes, each with its place and CRC: none at the member that ordered the fill.
    pub fn sites(&self) -> impl Iterator<Item = (u32, u64, u32)> + '_ {
        let pages = self.range.pages.iter().flat_map(|(first, limit)| *first..*limit);
        let placed = self.placed.iter().flat_map(|placed| {
            let starts = placed.runs.iter().flat_map(|run| run.start..run.end());
            starts.zip(placed.crcs.iter().copied())
        });
        pages.zip(placed).map(|(page, (start, crc))| (page, start, crc))
    }
}

/// The sessions of a range of ids, as of their place in the order. They replace those of the range.
#[derive(Clone, Debug, PartialEq)]
pub struct FillSessions {
    pub first: SessionId,
    /// Inclusive.
    pub last: SessionId,
    /// In order.
    pub sessions: Vec<FilledSession>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FilledSession {
    pub session: SessionId,
    /// Mirror seq of the entry that began it.
    pub begun: Seq,
    /// Slots that have executed a request, in order.
    pub slots: Vec<(u8, Slot)>,
}

impl FillSessions {
    pub fn put(&self, out: &mut Vec<u8>) {
        assert!(self.sessions.len() <= FILL_SESSIONS_MAX, "a fill has {FILL_SESSIONS_MAX} sessions at most");
        self.first.put(out);
        self.last.put(out);
        (self.sessions.len() as u32).put(out);
        for s in &self.sessions {
            s.session.put(out);
            s.begun.put(out);
            out.push(s.slots.len() as u8);
            for (number, slot) in &s.slots {
                out.push(*number);
                slot.sequence.put(out);
                slot.seq.put(out);
                slot.answer.put(out);
            }
        }
    }

    pub fn get(r: &mut Reader<'_>) -> Result<FillSessions, Malformed> {
        let (first, last): (SessionId, SessionId) = (Wire::get(r)?, Wire::get(r)?);
        let count = u32::get(r)? as usize;
        if count > FILL_SESSIONS_MAX || first > last {
            return Err(Malformed("sessions of a fill"));
        }
        let mut sessions: Vec<FilledSession> = Vec::with_capacity(count);
        for _ in 0..count {
            let (session, begun): (SessionId, Seq) = (Wire::get(r)?, Wire::get(r)?);
            let used = r.byte()?;
            let is_in_order = sessions.last().is_none_or(|before| before.session < session);
            if !is_in_order || session < first || session > last || u32::from(used) > SLOTS {
                return Err(Malformed("sessions of a fill"));
            }
            let mut slots: Vec<(u8, Slot)> = Vec::with_capacity(usize::from(used));
            for _ in 0..used {
                let number = r.byte()?;
                let slot = Slot { sequence: Wire::get(r)?, seq: Wire::get(r)?, answer: Wire::get(r)? };
                let is_new = slots.last().is_none_or(|(before, _)| *before < number);
                if !is_new || u32::from(number) >= SLOTS || slot.sequence == 0 {
                    return Err(Malformed("slots of a fill"));
                }
                slots.push((number, slot));
            }
            sessions.push(FilledSession { session, begun, slots });
        }
        Ok(FillSessions { first, last, sessions })
    }
}

#[cfg(test)]
mod tests;
