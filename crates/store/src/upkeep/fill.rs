//! The primary's side of a filling: the whole content, in parts, as ordered entries beside live ones.
//!
//! store-RF1: a fill has the state of its range, and the object's attributes, as of its place in the order.
//! store-RF2: before the first fill of an object the receiver has a part of it, and live entries change that part. The fills replace it all.
//!     An object that the filling has passed is equal from there on, since live entries change equal objects alike.
//! store-RF3: the entry that ends a filling names its first one. A receiver that became empty in between lacks some, and goes on being
//!     filled.
//! store-RF4: the primary has flushed all fills before it orders the end. A receiver that counts as filled is never cut into its filling.

use std::sync::Arc;

use types::crc::crc32c;
use types::{ObjectId, PAGE_SIZE, Seq, SessionId};

use crate::records::error::StoreError;
use crate::records::fill::{
    FILL_PAGES_MAX, FILL_RUNS_MAX, FILL_SESSIONS_MAX, FillAttrs, FillRange, FillRecord, FillSessions,
    FilledSession,
};
use crate::records::index::{Object, State};
use crate::records::record::Record;
use crate::records::shipped::{Change, decode};
use crate::state::engine::{Engine, Stop};
use crate::state::mirror::Carried;

/// Objects of one entry, if they are small.
const OBJECTS_AT_ONCE: usize = 64;
/// Pages of small objects that share an entry: their bytes travel in it.
const PAGES_TOGETHER: u32 = 16;
/// A range that changed so often while it was read is read under the tail's lock.
const TRIES: usize = 3;

/// Rules that a test can take away.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// store-RF1: a range that changed since it was read is read again.
    RangeChecked,
    /// store-RF3: the end comes last.
    EndIsLast,
    /// Sessions are filled too.
    SessionsFilled,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Objects(Option<ObjectId>),
    /// Inside this object, from this page on.
    Inside(ObjectId, u32),
    Sessions(SessionId),
    End,
    Ended,
}

/// A filling of the other member under way. In memory only: one that was cut short begins anew.
pub struct Filling {
    engine: Arc<Engine>,
    at: At,
    /// Mirror seq of its first entry.
    since: Option<Seq>,
    objects: u64,
    bytes: u64,
    /// Pages that cannot be read here, and so are lost at the other member too: all of them, and those since the last look.
    lost: u64,
    lost_lately: Vec<(ObjectId, u32)>,
    /// Most pages of one range.
    pub(crate) pages_max: u32,
    #[cfg(test)]
    pub gone: Option<Planted>,
    /// Called between reading and commit.
    #[cfg(test)]
    pub between: Option<Box<dyn FnMut()>>,
}

/// Progress of a filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Filled {
    /// Objects that are filled, of about so many.
    pub objects: u64,
    pub objects_total: u64,
    pub bytes: u64,
    /// Pages that were given as lost.
    pub lost: u64,
    /// Mirror seq of the entry that ended it.
    pub end: Option<Seq>,
}

/// A range that is about to be filled.
struct Part {
    id: ObjectId,
    /// Kept in memory until the entry is committed.
    object: Arc<Object>,
    seen: Arc<State>,
    range: FillRange,
}

impl Part {
    fn is_last(&self) -> bool {
        self.range.limit == u32::MAX
    }
}

impl Filling {
    pub fn new(engine: Arc<Engine>) -> Filling {
        Filling {
            engine,
            at: At::Objects(None),
            since: None,
            objects: 0,
            bytes: 0,
            lost: 0,
            lost_lately: Vec::new(),
            pages_max: FILL_PAGES_MAX,
            #[cfg(test)]
            gone: None,
            #[cfg(test)]
            between: None,
        }
    }

    /// Orders and commits the next entry. At the end it does nothing more.
    pub fn step(&mut self) -> Result<Filled, StoreError> {
        let mut end = None;
        match self.at {
            At::Objects(after) => {
                let page = self.engine.index.page(after, OBJECTS_AT_ONCE)?;
                match page.is_empty() {
                    true => self.at = At::Sessions(SessionId(0)),
                    false => self.fill(page.into_iter().map(|(id, _)| (id, 0)).collect())?,
                }
            }
            At::Inside(id, page) => self.fill(vec![(id, page)])?,
            At::Sessions(first) => self.fill_sessions(first)?,
            At::End => {
                // store-RF4. Else a start without the last fills would cut them at the other member too, which counts as filled.
                self.engine.flush_own()?;
                let since = self.since.unwrap_or(Seq(self.engine.last_seq_now().0 + 1));
                end = self.commit(|_| Ok(vec![(Record::FillEnd { since }, None)]))?;
                self.at = At::Ended;
            }
            At::Ended => {}
        }
        #[cfg(test)]
        if self.gone == Some(Planted::EndIsLast) && matches!(self.at, At::Inside(..)) {
            self.at = At::End;
        }
        let (objects, bytes, lost) = (self.objects, self.bytes, self.lost);
        let objects_total = self.engine.index.objects().max(objects);
        Ok(Filled { objects, objects_total, bytes, lost, end })
    }

    /// Pages that were given as lost since the last call.
    pub fn take_lost(&mut self) -> Vec<(ObjectId, u32)> {
        std::mem::take(&mut self.lost_lately)
    }

    fn commit(
        &mut self,
        mut build: impl FnMut(&Engine) -> Result<Vec<(Record, Option<Carried>)>, Stop>,
    ) -> Result<Option<Seq>, StoreError> {
        match self.engine.commit_built(|| build(&self.engine)) {
            Ok(first) => {
                self.since = self.since.or(first);
                Ok(first)
            }
            Err(Stop::Failed(e)) => Err(e),
            Err(Stop::Again) => unreachable!("this state is read under the lock"),
        }
    }

    /// Fills these objects, each from a page on, as many as go together.
    fn fill(&mut self, wanted: Vec<(ObjectId, u32)>) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            // Before the first look: places that are seen from here on are not used again while this is held.
            let engine = self.engine.clone();
            let _reading = engine.readers.begin();
            let parts = self.parts(&wanted)?;
            let (bytes, lost) = engine.read_parts(&parts)?;
            let staged = engine.stage_fill(&parts, &bytes, &lost);
            #[cfg(test)]
            if let Some(between) = &mut self.between {
                between();
            }
            #[cfg(test)]
            let is_checked = self.gone != Some(Planted::RangeChecked);
            #[cfg(not(test))]
            let is_checked = true;
            let done = engine.commit_built(|| {
                if is_checked && !parts.iter().all(is_unchanged) {
                    return Err(Stop::Again);
                }
                Ok(built(&parts, &bytes, &lost, staged.as_ref()))
            });
            match done {
                Ok(first) => {
                    self.pass(&wanted, &parts, &lost, first);
                    return Ok(());
                }
                Err(Stop::Again) => {}
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
        // It changes faster than it is read: hold the changes back for one part of at most 1 MiB.
        let engine = self.engine.clone();
        let _kept = engine.index.load(&wanted[0].0)?;
        let (mut parts, mut lost) = (Vec::new(), Vec::new());
        let first = engine.commit_built(|| {
            parts = self.parts(&wanted[..1])?;
            let bytes;
            (bytes, lost) = engine.read_parts(&parts)?;
            Ok(built(&parts, &bytes, &lost, None))
        });
        match first {
            Ok(first) => {
                self.pass(&wanted[..1], &parts, &lost, first);
                Ok(())
            }
            Err(Stop::Failed(e)) => Err(e),
            Err(Stop::Again) => unreachable!("this state is read under the lock"),
        }
    }

    /// The next parts of these objects that one entry has. Objects that are gone have none.
    fn parts(&self, wanted: &[(ObjectId, u32)]) -> Result<Vec<Part>, StoreError> {
        let (mut parts, mut pages): (Vec<Part>, u32) = (Vec::new(), 0);
        for (id, first) in wanted {
            let object = self.engine.index.load(id)?;
            let seen = object.read().clone();
            if seen.is_absent() {
                continue;
            }
            let range = range_of(*id, &seen, *first, self.pages_max);
            let is_small = range.limit == u32::MAX && pages + range.count() <= PAGES_TOGETHER;
            if !is_small && !parts.is_empty() {
                break;
            }
            pages += range.count();
            parts.push(Part { id: *id, object, seen, range });
            if !is_small {
                break;
            }
        }
        Ok(parts)
    }

    /// `parts` of `wanted` are filled.
    fn pass(&mut self, wanted: &[(ObjectId, u32)], parts: &[Part], lost: &[bool], first: Option<Seq>) {
        let runs = parts.iter().flat_map(|part| part.range.pages.iter().map(|run| (part.id, *run)));
        let pages = runs.flat_map(|(id, (first, limit))| (first..limit).map(move |page| (id, page)));
        let gone = pages.zip(lost).filter(|(_, lost)| **lost).map(|(page, _)| page);
        let before = self.lost_lately.len();
        self.lost_lately.extend(gone);
        self.lost += (self.lost_lately.len() - before) as u64;
        self.since = self.since.or(first);
        self.bytes += parts.iter().map(|part| u64::from(part.range.count())).sum::<u64>() * PAGE_SIZE as u64;
        self.objects += parts.iter().filter(|part| part.is_last() && part.seen.exists).count() as u64;
        self.at = match parts.last() {
            Some(part) if part.is_last() => At::Objects(Some(part.id)),
            Some(part) => At::Inside(part.id, part.range.limit),
            // All of them are gone.
            None => At::Objects(wanted.last().map(|(id, _)| *id)),
        };
    }

    fn fill_sessions(&mut self, first: SessionId) -> Result<(), StoreError> {
        #[cfg(test)]
        if self.gone == Some(Planted::SessionsFilled) {
            self.at = At::End;
            return Ok(());
        }
        let mut next = None;
        self.commit(|engine| {
            let fill = engine.sessions_from(first);
            next = fill.last.0.checked_add(1).map(SessionId);
            Ok(vec![(Record::FillSessions(fill), None)])
        })?;
        self.at = next.map_or(At::End, At::Sessions);
        Ok(())
    }
}

impl Engine {
    /// At a member that is filled: the first entry of the filling that this entry ends.
    pub fn filled_since(&self, content: &[u8]) -> Option<Seq> {
        // An entry from the log may have other records around it.
        decode(content).ok()?.iter().rev().find_map(|item| match &item.change {
            Change::Plain(Record::FillEnd { since }) => Some(*since),
            _ => None,
        })
    }

    /// Gives the other member this range of an object anew, as an ordered entry. False: a page of it cannot be read here, so nothing is given.
    pub fn fill_range(&self, id: ObjectId, first: u32) -> Result<bool, StoreError> {
        let _kept = self.index.load(&id)?;
        loop {
            let _reading = self.readers.begin();
            let object = self.index.load(&id)?;
            let seen = object.read().clone();
            let range = match seen.is_absent() {
                true => FillRange {
                    object: id,
                    first: 0,
                    limit: u32::MAX,
                    attrs: attrs_of(&seen),
                    reserved: vec![],
                    pages: vec![],
                },
                false => range_of(id, &seen, first, FILL_PAGES_MAX),
            };
            let was_absent = seen.is_absent();
            let parts = [Part { id, object, seen, range }];
            let (bytes, lost) = self.read_parts(&parts)?;
            if lost.contains(&true) {
                return Ok(false);
            }
            // Each new try means that a request has changed the object.
            let done = self.commit_built(|| {
                let is_same = match was_absent {
                    true => parts[0].object.read().is_absent(),
                    false => is_unchanged(&parts[0]),
                };
                if is_same { Ok(built(&parts, &bytes, &lost, None)) } else { Err(Stop::Again) }
            });
            match done {
                Ok(_) => return Ok(true),
                Err(Stop::Again) => {}
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    fn last_seq_now(&self) -> Seq {
        self.mirror.end()
    }

    /// The pages of parts that have bytes, in order, and which of them cannot be read.
    fn read_parts(&self, parts: &[Part]) -> Result<(Vec<u8>, Vec<bool>), StoreError> {
        let pages: usize = parts.iter().map(|part| part.range.count() as usize).sum();
        let (mut bytes, mut lost) = (vec![0; pages * PAGE_SIZE], vec![false; pages]);
        let mut at = 0;
        for part in parts {
            for (first, limit) in &part.range.pages {
                let end = at + (limit - first) as usize;
                let of_run = &mut bytes[at * PAGE_SIZE..end * PAGE_SIZE];
                self.read_now(part.id, *first, of_run, &mut lost[at..end])?;
                at = end;
            }
        }
        Ok((bytes, lost))
    }

    /// Gives the pages of a large part to the other member ahead of the entry.
    fn stage_fill(&self, parts: &[Part], bytes: &[u8], lost: &[bool]) -> Option<Carried> {
        let is_large = parts.len() == 1 && parts[0].range.count() >= PAGES_TOGETHER;
        if !is_large || lost.contains(&true) {
            return None;
        }
        let id = self.mirror.companion()?.stage(bytes)?;
        Some(Carried::StagedFill(id, bytes.chunks_exact(PAGE_SIZE).map(crc32c).collect()))
    }

    /// Sessions from this id on, as many as one record has.
    fn sessions_from(&self, first: SessionId) -> FillSessions {
        let known = self.sessions.lock();
        let mut ids: Vec<SessionId> = known.keys().copied().filter(|id| *id >= first).collect();
        ids.sort_unstable();
        let last = ids.get(FILL_SESSIONS_MAX).map_or(SessionId(u64::MAX), |next| SessionId(next.0 - 1));
        ids.truncate(FILL_SESSIONS_MAX);
        let filled = |session: &SessionId| {
            let s = &known[session];
            let used = s.slots.iter().enumerate().filter(|(_, slot)| slot.sequence > 0);
            let slots = used.map(|(number, slot)| (number as u8, *slot)).collect();
            FilledSession { session: *session, begun: s.begun, slots }
        };
        FillSessions { first, last, sessions: ids.iter().map(filled).collect() }
    }
}

/// store-RF1: the range is as it was seen. The caller has held a `Reading` since before that.
fn is_unchanged(part: &Part) -> bool {
    let now = part.object.read();
    let (seen, range) = (&part.seen, &part.range);
    Arc::ptr_eq(&now, seen) || (!now.is_absent() && is_same(&now, seen, range.first, range.limit))
}

fn is_same(now: &State, seen: &State, first: u32, limit: u32) -> bool {
    let runs = |state: &State| -> Vec<(u32, u64, u32)> {
        state.extents.range(first, limit).map(|(page, e)| (page, e.run.start, e.run.pages)).collect()
    };
    let patches = |state: &State| -> Vec<(u32, Seq)> {
        state.patches.range(first, limit).map(|(page, patch)| (page, patch.seq())).collect()
    };
    runs(now) == runs(seen)
        && patches(now) == patches(seen)
        && reserved_in(now, first, limit).eq(reserved_in(seen, first, limit))
}

pub(crate) fn reserved_in(state: &State, first: u32, limit: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
    let clip = move |(begin, end): (u32, u32)| (begin.max(first), end.min(limit));
    state.reserved.iter().map(clip).filter(|(begin, end)| begin < end)
}

/// The range from `first` on that one record has: up to the object's end, if it is not too much.
pub(crate) fn range_of(object: ObjectId, state: &State, first: u32, pages_max: u32) -> FillRange {
    let (mut pages, mut left, mut at) = (Vec::new(), pages_max, first);
    while left > 0
        && pages.len() < FILL_RUNS_MAX
        && let Some(begin) = state.first_from(at)
    {
        at = state.end_of_run(begin).min(begin + left);
        left -= at - begin;
        pages.push((begin, at));
    }
    let mut limit = if state.first_from(at).is_some() { at } else { u32::MAX };
    let reserved: Vec<_> = reserved_in(state, first, limit).take(FILL_RUNS_MAX + 1).collect();
    if reserved.len() > FILL_RUNS_MAX {
        limit = reserved[FILL_RUNS_MAX].0;
    }
    let clip = |runs: Vec<(u32, u32)>| -> Vec<(u32, u32)> {
        runs.into_iter().map(|(begin, end)| (begin, end.min(limit))).filter(|(b, e)| b < e).collect()
    };
    FillRange { object, first, limit, attrs: attrs_of(state), reserved: clip(reserved), pages: clip(pages) }
}

fn attrs_of(state: &State) -> FillAttrs {
    let State { exists, len, mtime, lease, .. } = *state;
    FillAttrs { exists, len, mtime, lease }
}

/// Under the tail's lock: the records, with the attributes as they are now.
fn built(
    parts: &[Part],
    bytes: &[u8],
    lost: &[bool],
    staged: Option<&Carried>,
) -> Vec<(Record, Option<Carried>)> {
    let mut at = 0;
    let record = |part: &Part| {
        let end = at + part.range.count() as usize;
        let carried = match staged {
            Some(Carried::StagedFill(id, crcs)) => Carried::StagedFill(*id, crcs.clone()),
            _ => Carried::Read {
                bytes: bytes[at * PAGE_SIZE..end * PAGE_SIZE].to_vec(),
                lost: lost[at..end].to_vec(),
            },
        };
        at = end;
        let range = FillRange { attrs: attrs_of(&part.object.read()), ..part.range.clone() };
        (Record::Fill(FillRecord { range, placed: None }), Some(carried))
    };
    parts.iter().map(record).collect()
}
