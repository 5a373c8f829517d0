//! Opening an OST: the checkpoint, then the log, then the free space that follows from both.

use std::sync::Arc;

use disk::Disk;
use disk::volume::{Kind, LogEntry, Verdict, Volume};
use types::PAGE_SIZE;
use types::crc::crc32c;

use crate::alloc::{Buddy, Run};
use crate::checkpoint::{index_bytes_max, read_snapshot};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::extent::Site;
use crate::record::{self, Record};
use crate::space::Space;

impl Engine {
    /// Opens and recovers. Everything acknowledged before a mere kill is there; after power loss everything flushed is.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Engine, StoreError> {
        let vol = Volume::open(disk)?;
        if vol.label().kind != Kind::Ost {
            return Err(StoreError::Corrupt("this volume is not an OST".into()));
        }
        let region = vol.data_region();
        let total_pages = (region.end - region.start) / PAGE_SIZE as u64;
        let index_bytes_max = index_bytes_max(vol.checkpoint_capacity());
        let engine = Engine::new(vol, Space::new(Buddy::all_used(total_pages)), index_bytes_max);
        // 1. The state as of the checkpoint.
        if let Some(mut stream) = engine.vol.checkpoint_reader()? {
            let snapshot = read_snapshot(&mut stream).map_err(|e| StoreError::Corrupt(e.to_string()))?;
            engine.load(snapshot);
        }
        // 2. What came after it.
        engine.replay(total_pages)?;
        // 3. From here on all of it is flushed, so nothing waits to be reused (O1), and the incarnation is new (O5).
        engine.vol.start()?;
        // 4. What nothing names is free.
        *engine.space.lock() = Space::new(engine.find_free(total_pages)?);
        Ok(engine)
    }

    fn replay(&self, total_pages: u64) -> Result<(), StoreError> {
        let mut failed = None;
        let mut freed: Vec<Run> = Vec::new();
        self.vol.replay(&mut |entry| {
            if failed.is_some() {
                return Verdict::Cut;
            }
            match self.replay_entry(entry, total_pages, &mut freed) {
                Ok(verdict) => verdict,
                Err(e) => {
                    failed = Some(e);
                    Verdict::Cut
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn replay_entry(
        &self,
        entry: &LogEntry<'_>,
        pages: u64,
        freed: &mut Vec<Run>,
    ) -> Result<Verdict, StoreError> {
        // The entry's checksum holds, so a payload that cannot be read is from another release or a bug: it is not cut away.
        let decoded = record::decode(entry.payload)
            .map_err(|e| StoreError::Corrupt(format!("log entry {}: {e}", entry.seq)))?;
        check_places(&decoded.record, pages)
            .map_err(|what| StoreError::Corrupt(format!("log entry {}: {what}", entry.seq)))?;
        // O2: nobody has said that this entry's data reached the medium.
        if !entry.flushed && !self.is_data_there(&decoded.record) {
            return Ok(Verdict::Cut);
        }
        self.apply(entry.seq, decoded.origin, decoded.answer, &decoded.record, freed);
        Ok(Verdict::Keep)
    }

    /// True if every page that the record names has the bytes that it says.
    fn is_data_there(&self, record: &Record) -> bool {
        let mut page = [0; PAGE_SIZE];
        match record {
            Record::Write(w) => {
                let mut crcs = w.crcs.iter();
                let mut buf = vec![0; 0];
                w.placed.iter().all(|p| {
                    buf.resize(p.run.pages as usize * PAGE_SIZE, 0);
                    self.vol.disk().read_at(&mut buf, self.at(p.run.start)).is_ok()
                        && buf.chunks_exact(PAGE_SIZE).all(|bytes| Some(&crc32c(bytes)) == crcs.next())
                })
            }
            Record::Truncate(t) => {
                t.tail.is_none_or(|(start, crc)| self.read_site(Site { page: start, crc }, &mut page).is_ok())
            }
            _ => true,
        }
    }

    /// Everything that no extent names. Extents that overlap or lie outside are refused.
    fn find_free(&self, total_pages: u64) -> Result<Buddy, StoreError> {
        let snapshot = self.index.snapshot();
        let mut runs: Vec<(Run, usize)> = Vec::new();
        for (i, (_, state)) in snapshot.iter().enumerate() {
            runs.extend(state.extents.iter().map(|(_, e)| (e.run, i)));
        }
        runs.sort_unstable();
        let mut buddy = Buddy::all_used(total_pages);
        let mut at = 0;
        for (run, i) in runs {
            if run.start < at || run.end() > total_pages {
                let what = format!("object {} names pages that are not its own ({run:?})", snapshot[i].0);
                return Err(StoreError::Corrupt(what));
            }
            buddy.give_back(at, run.start - at);
            at = run.end();
        }
        buddy.give_back(at, total_pages - at);
        Ok(buddy)
    }
}

fn check_places(record: &Record, total_pages: u64) -> Result<(), String> {
    let outside = |run: Run| match run.end() <= total_pages {
        true => Ok(()),
        false => Err(format!("{run:?} lies outside the medium's {total_pages} pages")),
    };
    match record {
        Record::Write(w) => w.placed.iter().try_for_each(|p| outside(p.run)),
        Record::Truncate(t) => t.tail.map_or(Ok(()), |(start, _)| outside(Run { start, pages: 1 })),
        _ => Ok(()),
    }
}
