//! The content leases of files in their order (mds-X3), and the tokens that a session has given back (mds-X4).
//!
//! mds-Y1: `stretches` holds first and last of each stretch; stretches do not touch each other, nor the floor.
//! mds-Y2: `places` holds for each session how many leases it holds and waits for.
//! mds-Y3: `exclusive` counts the exclusive ones of `inside`.
//! mds-Y4: `recalled` has only leases that are held, and of each when another session wanted it last.
//! mds-Y5: leases of one session do not conflict. Its client orders its own calls, and turns a shared lease into an exclusive one so.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid, SessionId};

/// Who waits for a section and does not ask again within this has given up.
pub const ASKS_WITHIN: Duration = Duration::from_secs(2);
/// Leases that one session may hold and wait for. A client keeps fewer (`client::session::section`), and some for its calls.
pub const SECTIONS_MAX: usize = 65_536;
/// A holder is told again after this time, if its notice was lost.
const TOLD_AGAIN: Duration = Duration::from_secs(1);
/// Stretches of sections that a session has left. Between two of them is one that it has not left.
const STRETCHES_MAX: usize = 2 * SECTIONS_MAX;

/// The sections that a session has left: mostly all from some on, but for few that take long.
#[derive(Default)]
pub struct Ended {
    /// All below it.
    floor: u64,
    /// mds-Y1: first and last of each stretch; they do not touch each other, nor the floor.
    stretches: BTreeMap<u64, u64>,
}

impl Ended {
    pub fn raise(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        let above = self.stretches.split_off(&floor);
        let cut = self.stretches.last_key_value().map_or(0, |(_, last)| last.saturating_add(1));
        (self.floor, self.stretches) = (floor.max(cut), above);
        // mds-Y1.
        if let Some(last) = self.stretches.remove(&self.floor) {
            self.floor = last.saturating_add(1);
        }
    }

    pub fn left(&mut self, token: u64) {
        if self.is_over(token) {
            return;
        }
        let before = self.stretches.range(..token).next_back().filter(|(_, last)| **last == token - 1);
        let first = before.map_or(token, |(first, _)| *first);
        let after = token.checked_add(1).and_then(|next| self.stretches.remove(&next));
        let last = after.unwrap_or(token);
        match first == self.floor {
            true => self.floor = last.saturating_add(1),
            false => _ = self.stretches.insert(first, last),
        }
        // Only a client that leaves out tokens comes here.
        if self.stretches.len() > STRETCHES_MAX
            && let Some((first, _)) = self.stretches.first_key_value()
        {
            self.raise(*first);
        }
    }

    pub fn is_over(&self, token: u64) -> bool {
        let at = || self.stretches.range(..=token).next_back();
        token < self.floor || at().is_some_and(|(_, last)| *last >= token)
    }

    #[cfg(test)]
    pub fn stretches(&self) -> usize {
        self.stretches.len()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    pub session: SessionId,
    pub token: u64,
    pub exclusive: bool,
}

/// The session that holds it, and its token.
pub type Id = (SessionId, u64);

impl Section {
    fn id(&self) -> Id {
        (self.session, self.token)
    }
}

/// The sections of all files.
///
/// mds-Y2: `places` has of each session how many it is in and waits for.
#[derive(Default)]
pub struct Turns {
    by_fid: HashMap<Fid, Sections>,
    places: HashMap<SessionId, usize>,
    /// mds-Y4.
    recalled: HashMap<(Fid, Id), Recalled>,
}

/// A lease that another session wants.
#[derive(Clone, Copy)]
pub struct Recalled {
    pub since: Instant,
    told: Instant,
    /// The last request of a session that wants it.
    wanted: Instant,
}

impl Recalled {
    /// Some session waits for it just now.
    pub fn is_wanted(&self, now: Instant) -> bool {
        now.duration_since(self.wanted) < ASKS_WITHIN
    }
}

/// Those of one file.
#[derive(Default)]
struct Sections {
    /// Which are exclusive.
    inside: BTreeMap<Id, bool>,
    /// mds-Y3.
    exclusive: usize,
    queue: VecDeque<Waiting>,
}

struct Waiting {
    section: Section,
    since: Instant,
    asked: Instant,
}

impl Turns {
    /// mds-X3: lets `who` in if its turn has come.
    pub fn enter(&mut self, fid: Fid, who: Section, now: Instant) -> Result<bool, Fault> {
        self.check(fid, &who)?;
        let sections = self.by_fid.entry(fid).or_default();
        for gone in sections.pass_silent(&who, now) {
            release(&mut self.places, gone);
        }
        if !sections.has(&who) {
            *self.places.entry(who.session).or_default() += 1;
        }
        Ok(sections.admit(who, now))
    }

    /// It was let in before this MDT was started anew.
    pub fn claim(&mut self, fid: Fid, who: Section) -> Result<(), Fault> {
        self.check(fid, &who)?;
        let sections = self.by_fid.entry(fid).or_default();
        if !sections.has(&who) {
            *self.places.entry(who.session).or_default() += 1;
        }
        sections.begin(who);
        Ok(())
    }

    fn check(&self, fid: Fid, who: &Section) -> Result<(), Fault> {
        let is_full = || self.places.get(&who.session).is_some_and(|places| *places >= SECTIONS_MAX);
        match is_full() && !self.by_fid.get(&fid).is_some_and(|s| s.has(who)) {
            false => Ok(()),
            true => Err(Fault::new(
                Code::NotReady,
                format!(
                    "this mount has {SECTIONS_MAX} calls on files under way, as many as it may; the next goes on when one has ended"
                ),
            )),
        }
    }

    /// Holders that keep `who` from its lease, and that are to be told so now.
    pub fn recall(&mut self, fid: Fid, who: &Section, now: Instant) -> Vec<Id> {
        let Some(sections) = self.by_fid.get(&fid) else { return vec![] };
        let is_due = |id: &Id| match self.recalled.get_mut(&(fid, *id)) {
            Some(recalled) => {
                recalled.wanted = now;
                let is_due = now.duration_since(recalled.told) >= TOLD_AGAIN;
                if is_due {
                    recalled.told = now;
                }
                is_due
            }
            None => {
                self.recalled.insert((fid, *id), Recalled { since: now, told: now, wanted: now });
                true
            }
        };
        sections.against(who).filter(is_due).collect()
    }

    pub fn let_go(&mut self, fid: Fid, session: SessionId, token: u64) {
        self.recalled.remove(&(fid, (session, token)));
        let Some(sections) = self.by_fid.get_mut(&fid) else { return };
        if sections.end((session, token)) {
            release(&mut self.places, session);
        }
        if sections.is_over() {
            self.by_fid.remove(&fid);
        }
    }

    /// The session has closed the file, and gives all leases of it back with that. Returns their tokens.
    pub fn close(&mut self, fid: Fid, session: SessionId) -> Vec<u64> {
        let Some(sections) = self.by_fid.get(&fid) else { return vec![] };
        let held: Vec<u64> =
            sections.inside.keys().filter(|(s, _)| *s == session).map(|(_, token)| *token).collect();
        held.iter().for_each(|token| self.let_go(fid, session, *token));
        held
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId) {
        self.recalled.retain(|(_, (s, _)), _| *s != session);
        if self.places.remove(&session).is_none() {
            return;
        }
        self.by_fid.retain(|_, sections| {
            sections.inside.retain(|(s, _), _| *s != session);
            sections.exclusive = sections.inside.values().filter(|exclusive| **exclusive).count();
            sections.queue.retain(|w| w.section.session != session);
            !sections.is_over()
        });
    }

    /// Leases that other sessions wanted (mds-Y4).
    pub fn recalled(&self) -> impl Iterator<Item = (Fid, Id, Recalled)> {
        self.recalled.iter().map(|((fid, id), recalled)| (*fid, *id, *recalled))
    }

    pub fn holds(&self, fid: Fid, id: Id) -> bool {
        self.by_fid.get(&fid).is_some_and(|of| of.inside.contains_key(&id))
    }
    pub fn is_held_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.by_fid.get(&fid).is_some_and(|of| of.inside.keys().any(|(s, _)| *s != session))
    }

    /// Leases held: file, session, and whether it is exclusive; and since when another session wants it.
    pub fn held(&self) -> impl Iterator<Item = (Fid, Id, bool, Option<Instant>)> {
        let since = |fid: Fid, id: Id| self.recalled.get(&(fid, id)).map(|recalled| recalled.since);
        self.by_fid.iter().flat_map(move |(fid, of)| {
            of.inside.iter().map(move |(id, exclusive)| (*fid, *id, *exclusive, since(*fid, *id)))
        })
    }
    /// Requests that wait: since when.
    pub fn waits(&self) -> impl Iterator<Item = (Fid, Section, Instant)> {
        self.by_fid
            .iter()
            .flat_map(|(fid, of)| of.queue.iter().map(|waiting| (*fid, waiting.section, waiting.since)))
    }

    #[cfg(test)]
    pub fn waiting(&self, fid: Fid) -> usize {
        self.by_fid.get(&fid).map_or(0, |s| s.queue.len())
    }
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.places.values().sum()
    }
}

fn release(places: &mut HashMap<SessionId, usize>, session: SessionId) {
    let count = places.get_mut(&session).expect("mds-Y2: it had a place");
    *count -= 1;
    if *count == 0 {
        places.remove(&session);
    }
}

impl Sections {
    fn has(&self, who: &Section) -> bool {
        self.inside.contains_key(&who.id()) || self.queue.iter().any(|w| w.section.id() == who.id())
    }

    /// mds-X3: those that are not asked for any more, but for `who`, lose their places.
    fn pass_silent(&mut self, who: &Section, now: Instant) -> Vec<SessionId> {
        let mut gone = Vec::new();
        self.queue.retain(|Waiting { section, asked, .. }| {
            let stays = section.id() == who.id() || now.duration_since(*asked) < ASKS_WITHIN;
            if !stays {
                gone.push(section.session);
            }
            stays
        });
        gone
    }

    fn admit(&mut self, who: Section, now: Instant) -> bool {
        if self.inside.contains_key(&who.id()) {
            return true;
        }
        let is_free = self.against(&who).next().is_none();
        let at = self.queue.iter().position(|w| w.section.id() == who.id()).unwrap_or(self.queue.len());
        // mds-Y5.
        let goes_with = |s: &Section| s.session == who.session || !(s.exclusive || who.exclusive);
        let is_turn = self.queue.iter().take(at).all(|w| goes_with(&w.section));
        if is_turn && is_free {
            self.begin(who);
            return true;
        }
        match self.queue.get_mut(at) {
            Some(waiting) => waiting.asked = now,
            None => self.queue.push_back(Waiting { section: who, since: now, asked: now }),
        }
        false
    }

    fn begin(&mut self, who: Section) {
        self.queue.retain(|w| w.section.id() != who.id());
        let old = self.inside.insert(who.id(), who.exclusive);
        self.exclusive += usize::from(who.exclusive);
        self.exclusive -= usize::from(old == Some(true));
    }

    /// False: it had no place here.
    fn end(&mut self, id: Id) -> bool {
        let was_inside = self.inside.remove(&id);
        self.exclusive -= usize::from(was_inside == Some(true));
        let before = self.queue.len();
        self.queue.retain(|w| w.section.id() != id);
        was_inside.is_some() || self.queue.len() < before
    }

    /// Leases of other sessions that conflict with `who`.
    fn against(&self, who: &Section) -> impl Iterator<Item = Id> {
        let Section { session, exclusive: is_exclusive, .. } = *who;
        let held = (is_exclusive || self.exclusive > 0).then(|| self.inside.iter());
        let conflicts = move |id: &Id, exclusive: bool| id.0 != session && (is_exclusive || exclusive);
        held.into_iter()
            .flatten()
            .filter(move |(id, exclusive)| conflicts(id, **exclusive))
            .map(|(id, _)| *id)
    }

    fn is_over(&self) -> bool {
        self.inside.is_empty() && self.queue.is_empty()
    }
}
