//! Which session has which file open.

use std::collections::{BTreeMap, HashMap};

use types::{Code, Fault, Fid, SessionId};

/// Files that one session may have open, as many as Linux lets one process have by default (`fs.nr_open`). Each takes some 200 bytes here.
pub const OPENS_MAX: usize = 1 << 20;

/// mds-I1: `counts` has of each session that has a file open how many those are.
#[derive(Default)]
pub struct Opens {
    /// True: for writing.
    by_fid: HashMap<Fid, BTreeMap<SessionId, bool>>,
    counts: HashMap<SessionId, usize>,
}

impl Opens {
    pub fn is_full(&self, session: SessionId) -> bool {
        self.counts.get(&session).is_some_and(|count| *count >= OPENS_MAX)
    }

    /// May the session have this file open, or, with `None`, a new one?
    pub fn check(&self, session: SessionId, fid: Option<Fid>) -> Result<(), Fault> {
        match self.is_full(session) && !fid.is_some_and(|fid| self.has(session, fid)) {
            false => Ok(()),
            true => Err(Fault::new(
                Code::NoSpace,
                format!(
                    "this mount has {OPENS_MAX} files open beside other mounts, as many as it may; close some"
                ),
            )),
        }
    }

    pub fn add(&mut self, session: SessionId, fid: Fid, write: bool) {
        let who = self.by_fid.entry(fid).or_default();
        let old = who.get(&session).copied();
        who.insert(session, write || old == Some(true));
        if old.is_none() {
            *self.counts.entry(session).or_default() += 1;
        }
    }

    pub fn remove(&mut self, session: SessionId, fid: Fid) {
        let Some(who) = self.by_fid.get_mut(&fid) else { return };
        if who.remove(&session).is_none() {
            return;
        }
        if who.is_empty() {
            self.by_fid.remove(&fid);
        }
        let count = self.counts.get_mut(&session).expect("mds-I1: it had this one open");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    pub fn has(&self, session: SessionId, fid: Fid) -> bool {
        self.by_fid.get(&fid).is_some_and(|who| who.contains_key(&session))
    }

    /// Another session that has the file open in a way of which `is_it` holds.
    pub fn elsewhere(&self, session: SessionId, fid: Fid, is_it: impl Fn(bool) -> bool) -> Option<SessionId> {
        let who = self.by_fid.get(&fid)?;
        who.iter().find(|(s, write)| **s != session && is_it(**write)).map(|(s, _)| *s)
    }

    /// The session has ended.
    pub fn forget(&mut self, session: SessionId) {
        if self.counts.remove(&session).is_none() {
            return;
        }
        self.by_fid.retain(|_, who| {
            who.remove(&session);
            !who.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_opens_are_counted_once_each() {
        let (a, b) = (SessionId(1), SessionId(2));
        let mut opens = Opens::default();
        let (f, g) = (Fid(7), Fid(8));
        opens.add(a, f, true);
        opens.add(a, f, false);
        opens.add(a, g, false);
        opens.add(b, f, false);
        assert_eq!((opens.counts[&a], opens.counts[&b]), (2, 1));
        assert_eq!(opens.elsewhere(b, f, |write| write), Some(a), "once for writing is for writing");
        assert_eq!(opens.elsewhere(a, f, |write| write), None);
        opens.remove(a, Fid(9));
        opens.remove(a, f);
        opens.remove(a, f);
        assert!(opens.counts[&a] == 1 && !opens.has(a, f) && opens.has(b, f));
        opens.forget(a);
        opens.remove(b, f);
        assert!(opens.counts.is_empty() && opens.by_fid.is_empty());
    }
}
