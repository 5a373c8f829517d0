//! The content leases of files in their order (mds-X3), and the tokens that a session has given back (mds-X4).
//!
//! mds-Y1: `stretches` holds first and last of each stretch; stretches do not touch each other, nor the floor.
//! mds-Y2: `places` holds for each session how many leases it holds and waits for.
//! mds-Y3: `counts` has the leases of `inside` by kind.
//! mds-Y4: `recalled` has only leases that are held, and of each when another session wanted it last.
//! mds-Y5: leases of one session do not conflict. Its client orders its own calls, and turns a shared lease into an exclusive one so.
//! mds-Y6: leases of different sessions that are held together are all shared, or all many.
//! mds-Y7: a request for a many lease is granted an exclusive one, unless another session writes the file: it holds a many lease, it waits for
//!     one, or this request met its exclusive lease. So a lone writer stays exclusive, and writers beside each other do not take turns.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use types::{Code, Fault, Fid, SessionId};
use wire::shared::LeaseKind;

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
    /// What is held, or asked for.
    pub kind: LeaseKind,
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
    inside: BTreeMap<Id, LeaseKind>,
    /// mds-Y3.
    counts: Counts,
    queue: VecDeque<Waiting>,
}

/// mds-Y3.
#[derive(Default)]
struct Counts {
    shared: usize,
    many: usize,
    exclusive: usize,
}

impl Counts {
    fn of(&mut self, kind: LeaseKind) -> &mut usize {
        match kind {
            LeaseKind::Shared => &mut self.shared,
            LeaseKind::Many => &mut self.many,
            LeaseKind::Exclusive => &mut self.exclusive,
        }
    }
    fn all(&self) -> usize {
        self.shared + self.many + self.exclusive
    }
}

/// mds-Y6, of different sessions.
fn conflict(one: LeaseKind, other: LeaseKind) -> bool {
    one != other || one == LeaseKind::Exclusive
}

struct Waiting {
    section: Section,
    /// mds-Y7: another session's exclusive lease was in its way.
    has_met_writer: bool,
    since: Instant,
    asked: Instant,
}

impl Turns {
    /// mds-X3: grants the lease if its turn has come.
    pub fn enter(&mut self, fid: Fid, who: Section, now: Instant) -> Result<Option<LeaseKind>, Fault> {
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
            sections.counts = Counts::default();
            sections.inside.values().for_each(|kind| *sections.counts.of(*kind) += 1);
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
    pub fn holds_alone(&self, fid: Fid, id: Id) -> bool {
        self.by_fid.get(&fid).is_some_and(|of| of.inside.get(&id) == Some(&LeaseKind::Exclusive))
    }
    pub fn is_held_elsewhere(&self, fid: Fid, session: SessionId) -> bool {
        self.by_fid.get(&fid).is_some_and(|of| of.inside.keys().any(|(s, _)| *s != session))
    }

    /// Leases held: file, session and kind; and since when another session wants it.
    pub fn held(&self) -> impl Iterator<Item = (Fid, Id, LeaseKind, Option<Instant>)> {
        let since = |fid: Fid, id: Id| self.recalled.get(&(fid, id)).map(|recalled| recalled.since);
        self.by_fid.iter().flat_map(move |(fid, of)| {
            of.inside.iter().map(move |(id, kind)| (*fid, *id, *kind, since(*fid, *id)))
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

    fn admit(&mut self, who: Section, now: Instant) -> Option<LeaseKind> {
        if let Some(kind) = self.inside.get(&who.id()) {
            return Some(*kind);
        }
        let is_free = self.against(&who).next().is_none();
        let at = self.queue.iter().position(|w| w.section.id() == who.id()).unwrap_or(self.queue.len());
        // mds-Y5.
        let goes_with = |s: &Section| s.session == who.session || !conflict(s.kind, who.kind);
        let is_turn = self.queue.iter().take(at).all(|w| goes_with(&w.section));
        let meets_writer = self.meets_writer(&who);
        if is_turn && is_free {
            let has_met = self.queue.get(at).is_some_and(|waiting| waiting.has_met_writer);
            let kind = match who.kind {
                LeaseKind::Many if !(meets_writer || has_met) => LeaseKind::Exclusive,
                kind => kind,
            };
            self.begin(Section { kind, ..who });
            return Some(kind);
        }
        match self.queue.get_mut(at) {
            Some(waiting) => {
                (waiting.asked, waiting.has_met_writer) = (now, waiting.has_met_writer || meets_writer)
            }
            None => {
                let has_met_writer = meets_writer;
                self.queue.push_back(Waiting { section: who, has_met_writer, since: now, asked: now })
            }
        }
        None
    }

    /// mds-Y7.
    fn meets_writer(&self, who: &Section) -> bool {
        let is_other = |session: SessionId| session != who.session;
        let writes = |(id, kind): (&Id, &LeaseKind)| is_other(id.0) && *kind != LeaseKind::Shared;
        let waits = |w: &Waiting| is_other(w.section.session) && w.section.kind == LeaseKind::Many;
        who.kind == LeaseKind::Many
            && (self.counts.many + self.counts.exclusive > 0 && self.inside.iter().any(writes)
                || self.queue.iter().any(waits))
    }

    fn begin(&mut self, who: Section) {
        self.queue.retain(|w| w.section.id() != who.id());
        *self.counts.of(who.kind) += 1;
        if let Some(old) = self.inside.insert(who.id(), who.kind) {
            *self.counts.of(old) -= 1;
        }
    }

    /// False: it had no place here.
    fn end(&mut self, id: Id) -> bool {
        let was_inside = self.inside.remove(&id);
        if let Some(kind) = was_inside {
            *self.counts.of(kind) -= 1;
        }
        let before = self.queue.len();
        self.queue.retain(|w| w.section.id() != id);
        was_inside.is_some() || self.queue.len() < before
    }

    /// Leases of other sessions that conflict with `who`.
    fn against(&self, who: &Section) -> impl Iterator<Item = Id> {
        let Section { session, kind, .. } = *who;
        let compatible = match kind {
            LeaseKind::Shared => self.counts.shared,
            LeaseKind::Many => self.counts.many,
            LeaseKind::Exclusive => 0,
        };
        let held = (self.counts.all() > compatible).then(|| self.inside.iter());
        let conflicts = move |id: &Id, held: LeaseKind| id.0 != session && conflict(held, kind);
        held.into_iter().flatten().filter(move |(id, held)| conflicts(id, **held)).map(|(id, _)| *id)
    }

    fn is_over(&self) -> bool {
        self.inside.is_empty() && self.queue.is_empty()
    }
}
