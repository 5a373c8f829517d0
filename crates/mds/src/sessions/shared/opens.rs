//! Which session has which file open.

use std::collections::{BTreeMap, HashMap, HashSet};

use types::{Code, Fault, Fid, SessionId};

/// Files that one session may have open, as many as Linux lets one process have by default (`fs.nr_open`). Each takes some 250 bytes here.
pub const OPENS_MAX: usize = 1 << 20;

/// mds-I1: `by_session` has for each session that has files open those files, so that its end looks at no others.
#[derive(Default)]
pub struct Opens {
    /// True: for writing.
    by_fid: HashMap<Fid, BTreeMap<SessionId, bool>>,
    by_session: HashMap<SessionId, HashSet<Fid>>,
}

impl Opens {
    pub fn is_full(&self, session: SessionId) -> bool {
        self.by_session.get(&session).is_some_and(|files| files.len() >= OPENS_MAX)
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
            self.by_session.entry(session).or_default().insert(fid);
        }
    }

    pub fn remove(&mut self, session: SessionId, fid: Fid) {
        if !self.close(session, fid) {
            return;
        }
        let files = self.by_session.get_mut(&session).expect("mds-I1: it had this one open");
        files.remove(&fid);
        if files.is_empty() {
            self.by_session.remove(&session);
        }
    }

    fn close(&mut self, session: SessionId, fid: Fid) -> bool {
        let Some(who) = self.by_fid.get_mut(&fid) else { return false };
        let was_open = who.remove(&session).is_some();
        if who.is_empty() {
            self.by_fid.remove(&fid);
        }
        was_open
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
        for fid in self.by_session.remove(&session).unwrap_or_default() {
            let was_open = self.close(session, fid);
            assert!(was_open, "mds-I1: the file was open in this session");
        }
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
        assert_eq!((opens.by_session[&a].len(), opens.by_session[&b].len()), (2, 1));
        assert_eq!(opens.elsewhere(b, f, |write| write), Some(a), "once for writing is for writing");
        assert_eq!(opens.elsewhere(a, f, |write| write), None);
        opens.remove(a, Fid(9));
        opens.remove(a, f);
        opens.remove(a, f);
        assert!(opens.by_session[&a].len() == 1 && !opens.has(a, f) && opens.has(b, f));
        opens.forget(a);
        opens.remove(b, f);
        assert!(opens.by_session.is_empty() && opens.by_fid.is_empty());
    }
}
