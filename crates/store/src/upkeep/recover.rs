//! Opening an OST: load the checkpoint, replay the log, and derive the free space from both.

use std::cell::Cell;

use disk::LogPoint;
use disk::volume::{Kind, LogEntry, Media, Verdict, Volume};
use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE, Seq};

use crate::records::error::{DamageKind, StoreError};
use crate::records::extent::Site;
use crate::records::patch::Fragment;
use crate::records::record::{self, At, PatchRecord, Placed, Record, TruncateRecord};
use crate::records::settings::Settings;
use crate::state::engine::{Engine, Entry};
use crate::state::space::Space;
use crate::upkeep::checkpoint::read_checkpoint;
use crate::verbs::read::Unread;
use disk::alloc::Run;
use disk::freed::Freed;

/// The state of an entry's data on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Each page has its bytes, or cannot be read.
    ThereOrDamaged,
    /// Some page's bytes do not match the entry's CRC.
    Torn,
}

impl Engine {
    /// As `open_with`, with the default settings.
    pub fn open(media: impl Into<Media>) -> Result<Engine, StoreError> {
        Engine::open_with(media, Settings::default())
    }

    /// Opens and recovers. After a kill every acknowledged change is there; after a power loss every flushed one.
    pub fn open_with(media: impl Into<Media>, settings: Settings) -> Result<Engine, StoreError> {
        Engine::open_from(media.into(), settings, None)
    }

    /// As `open_with`, and cuts the log behind mirror seq `after`: the other members of the mirror went on from there. Refused if the
    /// checkpoint has more.
    pub fn open_cut(media: impl Into<Media>, settings: Settings, after: Seq) -> Result<Engine, StoreError> {
        Engine::open_from(media.into(), settings, Some(after))
    }

    fn open_from(media: Media, mut settings: Settings, cut_after: Option<Seq>) -> Result<Engine, StoreError> {
        let vol = Volume::open(media)?;
        settings.patch_whole &= !vol.disk().is_cached();
        if vol.label().kind != Kind::Ost {
            return Err(StoreError::Corrupt("this volume is not an OST".into()));
        }
        let engine = Engine::new(vol, settings);
        let total_pages = engine.space.lock().total_pages();
        // 1. Load the state as of the checkpoint.
        engine.mirror.set_log_begin(engine.vol.position().seq);
        if let Some(mut stream) = engine.vol.checkpoint_reader()? {
            let log_begin = engine.vol.position();
            let (head, objects) = read_checkpoint(&mut stream, log_begin, total_pages)
                .map_err(|e| StoreError::Corrupt(e.to_string()))?;
            let place = engine.vol.checkpoint_place().unwrap_or(0..0);
            engine.load(head, objects, place)?;
        } else {
            let none = engine.index.leaves.free_all_but(&Default::default(), None);
            none.map_err(|e| StoreError::Corrupt(e.to_string()))?;
        }
        if let Some(run) = engine.named.lock().twice() {
            return Err(StoreError::Corrupt(format!("objects name pages that are not their own ({run:?})")));
        }
        // 2. Replay the log after it.
        let lacking = Cell::new(engine.space.lock().pages().patched);
        if let Some(after) = cut_after.filter(|after| engine.mirror.end() > *after) {
            return Err(StoreError::Ahead { end: engine.mirror.end(), after });
        }
        engine.replay(total_pages, &lacking, cut_after)?;
        // 3. Flush, so that no superseded page waits to be reused (store-O1), and begin a new incarnation (store-O5).
        engine.vol.start()?;
        // 4. Pages that no object names are free.
        let free = engine.named.lock().free(engine.service.lock().sub_block_order);
        assert_eq!(free.total_pages(), total_pages, "the allocator has the whole data region");
        let mut space = Space::new(free, Freed::at_start(&**engine.vol.disk()));
        space.set_pages(engine.space.lock().pages());
        *engine.space.lock() = space;
        Ok(engine)
    }

    /// `lacking`: the number of patches that the checkpoint names and that still lack their bytes; the log must have these.
    fn replay(
        &self,
        total_pages: u64,
        lacking: &Cell<u64>,
        cut_after: Option<Seq>,
    ) -> Result<(), StoreError> {
        let mut failed = None;
        let mut freed: Vec<Run> = Vec::new();
        self.vol.replay(&mut |entry| {
            if failed.is_some() {
                return Verdict::Cut;
            }
            match self.replay_entry(entry, total_pages, &mut freed, lacking, cut_after) {
                Ok(verdict) => verdict,
                Err(e) => {
                    failed = Some(e);
                    Verdict::Cut
                }
            }
        })?;
        failed.map_or(Ok(()), Err)?;
        self.mirror.pass_checkpoint(self.vol.checkpoint_seq());
        self.mirror.note_applied();
        self.check_patches(lacking.get())
    }

    fn replay_entry(
        &self,
        entry: &LogEntry<'_>,
        pages: u64,
        freed: &mut Vec<Run>,
        lacking: &Cell<u64>,
        cut_after: Option<Seq>,
    ) -> Result<Verdict, StoreError> {
        // The entry's checksum matches, so a malformed payload is from another release or a bug: the log is not cut there.
        let decoded = record::decode(entry.payload)
            .map_err(|e| StoreError::Corrupt(format!("log entry {}: {e}", entry.seq)))?;
        check_places(&decoded.record, pages)
            .map_err(|what| StoreError::Corrupt(format!("log entry {}: {what}", entry.seq)))?;
        let point = LogPoint { seq: Seq(entry.seq.0 - 1), pos: entry.pos };
        // The log goes back to before the checkpoint, because it has the bytes of the patches that the checkpoint names.
        if entry.seq <= self.vol.checkpoint_seq() {
            self.mirror.note_old(entry.seq, decoded.at.unwrap_or_default());
            if let Record::Patch(p) = &decoded.record {
                let filled = self.fill_patches(p, entry.seq, point)?;
                lacking.set(lacking.get().saturating_sub(filled as u64));
            }
            return Ok(Verdict::Keep);
        }
        self.mirror.pass_checkpoint(self.vol.checkpoint_seq());
        // An entry of an earlier release has its log seq as mirror seq, so that mirror seqs go on above.
        let is_public = decoded.record.is_public();
        let at = decoded.at.unwrap_or(At { line: entry.epoch, seq: entry.seq });
        if is_public && cut_after.is_some_and(|after| at.seq > after) {
            return Ok(Verdict::Cut);
        }
        // Later entries may remove patches again, so the count is checked before them.
        self.check_patches(lacking.get())?;
        // store-O2: without a flush after this entry, its data may not have reached the medium.
        if !entry.flushed && self.look_at_data(&decoded.record)? == Data::Torn {
            return Ok(Verdict::Cut);
        }
        self.count_replayed(&decoded.record);
        // A patch that was logged again has no mirror seq.
        match is_public && at.seq.0 > 0 {
            true => self.mirror.note_public(entry.seq, at, 1),
            false => self.mirror.note_private(entry.seq),
        }
        if decoded.at.is_none() {
            self.mirror.set_unshipped(self.mirror.end());
        }
        let (seq, mirror_seq) = (entry.seq, self.mirror.end());
        let about = Entry { seq, mirror_seq, point, origin: decoded.origin, answer: decoded.answer };
        // Objects loaded here stay in memory until they are changed (store-I6 of `index`).
        let _kept =
            decoded.record.objects().iter().map(|id| self.index.load(id)).collect::<Result<Vec<_>, _>>()?;
        self.apply(&about, &decoded.record, freed);
        match self.named.lock().twice() {
            None => Ok(Verdict::Keep),
            Some(run) => {
                let what = format!("log entry {} names pages that are not its own ({run:?})", entry.seq);
                Err(StoreError::Corrupt(what))
            }
        }
    }

    /// Adds an entry's bytes to patches that the checkpoint names; returns the number of patches that start with this entry.
    fn fill_patches(&self, p: &PatchRecord, seq: Seq, point: LogPoint) -> Result<usize, StoreError> {
        let Some(object) = self.index.find(&p.object)? else { return Ok(0) };
        if object.read().patches.is_empty() {
            return Ok(0);
        }
        let mut begun = Vec::new();
        self.index.change(&p.object, |state| {
            let begins = |f: &&Fragment| state.patches.fill(f, seq);
            begun.extend(p.fragments.iter().filter(begins).map(|f| f.page));
        });
        self.name_patches(&p.object, &begun, seq, point);
        Ok(begun.len())
    }

    /// Fails unless the log had the bytes of every patch that the checkpoint names.
    fn check_patches(&self, lacking: u64) -> Result<(), StoreError> {
        match lacking {
            0 => Ok(()),
            n => Err(StoreError::Corrupt(format!(
                "the log has no bytes for {n} pages that the checkpoint names"
            ))),
        }
    }

    /// store-O2. A page that does not match its CRC was torn by the power loss. A page that the medium cannot read does not prove that: to
    /// cut the log there might drop flushed entries after it. Such a page is kept and recorded as damage.
    fn look_at_data(&self, record: &Record) -> Result<Data, StoreError> {
        match record {
            Record::Write(w) => {
                let mut crcs = &w.crcs[..];
                for p in &w.placed {
                    let (of_run, rest) = crcs.split_at(p.run.pages as usize);
                    if self.look_at_run(w.object, p, of_run)? == Data::Torn {
                        return Ok(Data::Torn);
                    }
                    crcs = rest;
                }
                Ok(Data::ThereOrDamaged)
            }
            Record::Truncate(TruncateRecord { object, len, tail: Some((start, crc)), .. }) => {
                let page = (len / PAGE_SIZE as u64) as u32;
                let placed = Placed { page, run: Run { start: *start, pages: 1 } };
                self.look_at_run(*object, &placed, &[*crc])
            }
            Record::Punch(p) => {
                for z in &p.zeroed {
                    let placed = Placed { page: z.page, run: Run { start: z.start, pages: 1 } };
                    if self.look_at_run(p.object, &placed, &[z.crc])? == Data::Torn {
                        return Ok(Data::Torn);
                    }
                }
                Ok(Data::ThereOrDamaged)
            }
            Record::Repair(r) => {
                let placed = Placed { page: r.page, run: Run { start: r.start, pages: 1 } };
                self.look_at_run(r.object, &placed, &[r.crc])
            }
            Record::Fill(fill) => {
                for (page, start, crc) in fill.sites() {
                    let placed = Placed { page, run: Run { start, pages: 1 } };
                    if self.look_at_run(fill.range.object, &placed, &[crc])? == Data::Torn {
                        return Ok(Data::Torn);
                    }
                }
                Ok(Data::ThereOrDamaged)
            }
            _ => Ok(Data::ThereOrDamaged),
        }
    }

    fn look_at_run(&self, object: ObjectId, placed: &Placed, crcs: &[u32]) -> Result<Data, StoreError> {
        let Placed { page, run } = *placed;
        let mut buf = vec![0; run.pages as usize * PAGE_SIZE];
        if self.vol.disk().read_many(&mut [(self.at(run.start), &mut buf)]).is_ok() {
            let is_there = buf.chunks_exact(PAGE_SIZE).zip(crcs).all(|(bytes, crc)| crc32c(bytes) == *crc);
            return Ok(if is_there { Data::ThereOrDamaged } else { Data::Torn });
        }
        // Find the page that fails within the run.
        let mut bytes = [0; PAGE_SIZE];
        for (i, crc) in crcs.iter().enumerate() {
            let site = Site { page: run.start + i as u64, crc: *crc };
            match self.read_site(site, &mut bytes) {
                Ok(()) => {}
                // The page may be sound or torn, and either verdict would be final. So the start fails and is tried again.
                Err(Unread::NotNow) => return Err(self.unread(object, page + i as u32, Unread::NotNow)),
                Err(Unread::Damage(DamageKind::Medium)) => {
                    self.unreadable.lock().push((object, page + i as u32, site))
                }
                Err(Unread::Damage(_)) => return Ok(Data::Torn),
            }
        }
        Ok(Data::ThereOrDamaged)
    }

    /// Takes the pages that recovery could not read and kept, as object and offset. The caller that opened the store records them as
    /// damage, since it has a clock. A second call returns none.
    pub fn take_unreadable(&self) -> Vec<(ObjectId, u64)> {
        let found = std::mem::take(&mut *self.unreadable.lock());
        let is_named = |object: &ObjectId, page: u32, site: Site| {
            let object = self.index.find(object).ok().flatten();
            object.is_some_and(|o| o.read().extents.site(page) == Some(site))
        };
        let named = found.into_iter().filter(|(object, page, site)| is_named(object, *page, *site));
        named.map(|(object, page, _)| (object, page as u64 * PAGE_SIZE as u64)).collect()
    }
}

fn check_places(record: &Record, total_pages: u64) -> Result<(), String> {
    let outside = |run: Run| match run.end() <= total_pages {
        true => Ok(()),
        false => Err(format!("{run:?} lies outside the medium's {total_pages} pages")),
    };
    match record {
        Record::Write(w) => w.placed.iter().try_for_each(|p| outside(p.run)),
        Record::Punch(p) => p.zeroed.iter().try_for_each(|z| outside(Run { start: z.start, pages: 1 })),
        Record::Truncate(t) => t.tail.map_or(Ok(()), |(start, _)| outside(Run { start, pages: 1 })),
        Record::Repair(r) => {
            [r.before, r.start].into_iter().try_for_each(|start| outside(Run { start, pages: 1 }))
        }
        Record::Fill(f) => f.placed.iter().flat_map(|p| &p.runs).try_for_each(|run| outside(*run)),
        _ => Ok(()),
    }
}
