//! Rules of name leases: which sessions may cache the names in a directory and the attributes of its children, and which of them must
//! forget something before a change is published.
//!
//! The holder of a directory's lease may cache its names, the absence of names, and the attributes of children with one link. A change takes
//! back only what it touches: the holder forgets that name or those attributes, and keeps the lease.
//!
//! One session's read and another session's change run these steps:
//!
//! ```text
//! read     1 grant   2 bars   3 contests   4 bars   5 read the published state   6 answer; its client keeps it if it forgot nothing meanwhile
//! change   1 bars    2 contests, holders   3 take back from other holders   4 publish   5 remove the bars
//! ```
//!
//! lease-L1: a session caches an answer only if it held the lease before the state was read, and no bar and no contest stood against it.
//! lease-L2: a change is published only after every other holder has forgotten what it touches, or the holder's lease has run out.
//! lease-L3: bars stand from before the look at the holders until the change is published.
//! lease-L4: what one session changes again and again only that session may cache, until it has left it alone for `REST_MS`. Then the
//!     others need not be told of each change. One that has to be told of all of them ends that (`end_sole`): of its own change that
//!     follows, whatever came between is older.
//!
//! lease-L5: a session that has given back the names in a directory with subdirectories is told of changes for `KEPT_MS` more. Its kernel may use the names of
//!     subdirectories so long: a notice for one that has not changed would take a working directory from programs, or what is mounted on it.
//!
//! `tests.rs` has the model of both sequences.

use std::collections::HashMap;

use types::{Fid, SessionId};

/// Term of a lease in milliseconds. A holder that is not heard of for so long has no lease any more, and no other session waits longer for
/// it. The client renews it every second.
pub const TERM_MS: u64 = 5_000;
/// lease-L4: how long a contested directory or inode must be left alone.
pub const REST_MS: u64 = 1_000;
/// lease-L5: how long a session is told of changes of names after it has given them back.
pub const KEPT_MS: u64 = 400;
/// lease-L4: so many changes within `REST_MS` that had to be told to others make it contested.
pub const CONFLICTS_MAX: u32 = 3;
/// Most directories and contested inodes of one table. An entry takes some 100 bytes.
pub const ENTRIES_MAX: usize = 8_192;

/// What a change touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Touch {
    /// A name in a directory, by the hash in its key.
    Name { dir: Fid, h64: u64 },
    /// The attributes of an inode.
    Attr { fid: Fid },
}

impl Touch {
    /// The inode whose bar and contest this concerns.
    pub fn fid(self) -> Fid {
        match self {
            Touch::Name { dir, .. } => dir,
            Touch::Attr { fid } => fid,
        }
    }
    pub fn what(self) -> What {
        match self {
            Touch::Name { .. } => What::Names,
            Touch::Attr { .. } => What::Attr,
        }
    }
}

/// Names in a directory, or attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Names,
    Attr,
}

/// lease-L4, of the names in a directory or of the attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Contest {
    /// Only this session may cache it, until this time.
    sole: Option<(SessionId, u64)>,
    /// lease-L5: until this time it tells the others.
    told_until_ms: u64,
    /// Leases up to this number were given back.
    given_back: u64,
    conflicts: u32,
    /// The time of the first of these conflicts.
    since_ms: u64,
}

impl Contest {
    fn is_over(&self, now_ms: u64) -> bool {
        self.sole.is_none_or(|(_, until)| until <= now_ms)
    }
    fn is_idle(&self, now_ms: u64) -> bool {
        self.is_over(now_ms) && (self.conflicts == 0 || self.since_ms + REST_MS <= now_ms)
    }
}

/// A session that holds the lease of a directory, by the number of its grant.
pub type Holder = (SessionId, u64);

/// Leases that were given back.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenBack<'a> {
    /// A later one stays: its session may look at the contest when that is over.
    pub leases: &'a [Holder],
    /// lease-L5: of names in a directory that has subdirectories.
    pub has_dirs: bool,
}

#[derive(Debug, Default)]
struct Entry {
    holders: Vec<Holder>,
    names: Contest,
    attr: Contest,
}

impl Entry {
    fn contest(&mut self, what: What) -> &mut Contest {
        match what {
            What::Names => &mut self.names,
            What::Attr => &mut self.attr,
        }
    }
    /// It has rested, so that what was given back before it is not used any more.
    fn end_contest(&mut self, what: What) {
        let ended = std::mem::take(self.contest(what));
        if let Some((sole, _)) = ended.sole.filter(|_| what == What::Names) {
            self.holders.retain(|held| held.0 == sole || held.1 > ended.given_back);
        }
    }
    fn is_idle(&self, now_ms: u64) -> bool {
        self.holders.is_empty() && self.names.is_idle(now_ms) && self.attr.is_idle(now_ms)
    }
}

/// Leases of some directories. The MDT has many tables, each under a lock of its own.
#[derive(Debug, Default)]
pub struct Table {
    entries: HashMap<Fid, Entry>,
    /// Contests with a session that may cache.
    contests: usize,
    last_grant: u64,
    /// When all entries were looked at last.
    swept_ms: u64,
}

impl Table {
    /// lease-L1: notes that a session holds the lease of `dir`. False: the table is full, and the session must not cache.
    pub fn grant(&mut self, dir: Fid, session: SessionId, now_ms: u64) -> bool {
        if !self.has_room(dir, now_ms) {
            return false;
        }
        // A session that asks again has given an earlier one back, and the MDT may not have heard so.
        self.last_grant += 1;
        let (entry, number) = (self.entries.entry(dir).or_default(), self.last_grant);
        match entry.holders.iter_mut().find(|(holder, _)| *holder == session) {
            Some(held) => held.1 = number,
            None => entry.holders.push((session, number)),
        }
        true
    }

    fn has_room(&mut self, fid: Fid, now_ms: u64) -> bool {
        if self.entries.len() < ENTRIES_MAX || self.entries.contains_key(&fid) {
            return true;
        }
        // A look at all entries, so once a second at most.
        if self.swept_ms + REST_MS <= now_ms {
            self.sweep(now_ms);
        }
        self.entries.len() < ENTRIES_MAX
    }

    pub fn holds(&self, dir: Fid, session: SessionId) -> bool {
        self.entries.get(&dir).is_some_and(|entry| entry.holders.iter().any(|held| held.0 == session))
    }

    /// All holders of `dir` but this session.
    pub fn others(&self, dir: Fid, session: SessionId) -> Vec<Holder> {
        let holders = self.entries.get(&dir).map_or(&[][..], |entry| &entry.holders);
        holders.iter().copied().filter(|held| held.0 != session).collect()
    }

    /// lease-L4: may the session cache this? A contest that is over ends here.
    pub fn may_cache(&mut self, fid: Fid, what: What, session: SessionId, now_ms: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&fid) else { return true };
        let contest = entry.contest(what);
        match contest.sole {
            Some((sole, until)) if until > now_ms => sole == session,
            Some(_) => {
                entry.end_contest(what);
                self.contests -= 1;
                true
            }
            None => true,
        }
    }

    /// lease-L4: true if no other session may cache it, so that none must be told of this change. The rest begins anew.
    pub fn is_sole(&mut self, fid: Fid, what: What, session: SessionId, now_ms: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&fid) else { return false };
        let contest = entry.contest(what);
        let told_until_ms = contest.told_until_ms;
        match &mut contest.sole {
            Some((sole, until)) if *sole == session && *until > now_ms => *until = now_ms + REST_MS,
            _ => return false,
        }
        if now_ms < told_until_ms {
            return false;
        }
        if what == What::Names {
            let given_back = entry.names.given_back;
            entry.holders.retain(|held| held.0 == session || held.1 > given_back);
        }
        true
    }

    /// A change must be told to other sessions. True: so many had to be that it is contested.
    pub fn note_conflict(&mut self, fid: Fid, what: What, now_ms: u64) -> bool {
        // Without room nothing is contested: each change is told.
        if !self.has_room(fid, now_ms) {
            return false;
        }
        let contest = self.entries.entry(fid).or_default().contest(what);
        if contest.since_ms + REST_MS <= now_ms {
            (contest.conflicts, contest.since_ms) = (0, now_ms);
        }
        contest.conflicts += 1;
        contest.conflicts >= CONFLICTS_MAX
    }

    /// lease-L4: from here on only this session may cache it. All others have forgotten it, and its bar stands.
    pub fn make_sole(
        &mut self,
        (fid, what): (Fid, What),
        session: SessionId,
        given_back: GivenBack<'_>,
        now_ms: u64,
    ) {
        if !self.has_room(fid, now_ms) {
            return;
        }
        let contest = self.entries.entry(fid).or_default().contest(what);
        let before = contest.sole.replace((session, now_ms + REST_MS));
        if before.is_none_or(|(sole, until)| sole != session || until <= now_ms) {
            contest.told_until_ms = if given_back.has_dirs { now_ms + KEPT_MS } else { 0 };
        }
        contest.given_back = given_back.leases.iter().map(|held| held.1).max().unwrap_or(0);
        self.contests += usize::from(before.is_none());
    }

    /// lease-L4: another session relies on being told, so the one that may cache it has to tell again.
    pub fn end_sole(&mut self, fid: Fid, what: What, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&fid) else { return };
        let contest = entry.contest(what);
        if contest.sole.is_some_and(|(sole, _)| sole != session) {
            *contest = Contest::default();
            self.contests -= 1;
        }
    }

    /// Contests whose end was not noticed yet count too.
    pub fn contests(&self) -> usize {
        self.contests
    }
    /// Leases held, one for each directory and session.
    pub fn held(&self) -> usize {
        self.entries.values().map(|entry| entry.holders.len()).sum()
    }
    /// Directories, each with the sessions that hold its lease.
    pub fn all(&self) -> impl Iterator<Item = (Fid, &[Holder])> {
        let held = self.entries.iter().filter(|(_, entry)| !entry.holders.is_empty());
        held.map(|(fid, entry)| (*fid, &entry.holders[..]))
    }

    /// Drops holders that are not `living`, and entries that say nothing any more.
    pub fn drop_dead(&mut self, living: impl Fn(SessionId) -> bool, now_ms: u64) {
        self.entries.values_mut().for_each(|entry| entry.holders.retain(|held| living(held.0)));
        self.sweep(now_ms);
    }

    /// The inode has gone, and its fid is never used again.
    pub fn gone(&mut self, fid: Fid) {
        if let Some(entry) = self.entries.remove(&fid) {
            self.contests -= usize::from(entry.names.sole.is_some()) + usize::from(entry.attr.sole.is_some());
        }
    }

    fn sweep(&mut self, now_ms: u64) {
        self.swept_ms = now_ms;
        for entry in self.entries.values_mut() {
            for what in [What::Names, What::Attr] {
                let contest = entry.contest(what);
                if contest.sole.is_some() && contest.is_over(now_ms) {
                    entry.end_contest(what);
                    self.contests -= 1;
                }
            }
        }
        self.entries.retain(|_, entry| !entry.is_idle(now_ms));
    }
}

#[cfg(test)]
mod tests;
