//! Sessions: a target keeps them over restarts, so that a client's replay after a crash finds its slots.

use types::{Seq, SessionId};

use crate::records::error::StoreError;
use crate::records::fill::FillSessions;
use crate::records::record::Record;
use crate::state::engine::{Engine, Stop};
use crate::state::slots::Session;

impl Engine {
    pub(crate) fn begin(&self, session: SessionId) -> Result<(), StoreError> {
        if self.sessions.lock().contains_key(&session) {
            return Ok(());
        }
        loop {
            // Evict the idlest session: most likely its client is dead, and a living client attaches again.
            // One is evicted for one that begins, so that the sessions' space in the checkpoint does not grow (store-RM1).
            if let Some(idlest) = self.in_the_way_of(session) {
                self.end(idlest)?;
            }
            // Another session may have begun meanwhile. With one too many, the next start would refuse the checkpoint.
            let admit = || if self.has_room_for(session) { Ok(0) } else { Err(Stop::Again) };
            match self.commit(None, Record::SessionBegin { session }, admit) {
                Ok(_) => return Ok(()),
                Err(Stop::Again) => {}
                Err(Stop::Failed(e)) => return Err(e),
            }
        }
    }

    pub(crate) fn has_room_for(&self, session: SessionId) -> bool {
        let sessions = self.sessions.lock();
        sessions.contains_key(&session) || self.has_session_room(sessions.len())
    }

    /// The session idle for longest, if there is no space for one more.
    fn in_the_way_of(&self, session: SessionId) -> Option<SessionId> {
        if self.has_room_for(session) {
            return None;
        }
        let sessions = self.sessions.lock();
        sessions.iter().min_by_key(|(id, s)| (s.last, **id)).map(|(id, _)| *id)
    }

    pub(crate) fn end(&self, session: SessionId) -> Result<(), StoreError> {
        if !self.sessions.lock().contains_key(&session) {
            return Ok(());
        }
        self.commit::<StoreError>(None, Record::SessionEnd { session }, || Ok(0))?;
        Ok(())
    }

    pub(crate) fn apply_session_begin(&self, session: SessionId, begun: Seq) {
        self.sessions.lock().entry(session).or_insert_with(|| Box::new(Session::new(begun)));
    }

    pub(crate) fn apply_fill_sessions(&self, fill: &FillSessions) {
        let is_gone = |id: &SessionId| {
            (fill.first..=fill.last).contains(id)
                && fill.sessions.binary_search_by_key(id, |s| s.session).is_err()
        };
        let gone: Vec<SessionId> = self.sessions.lock().keys().copied().filter(is_gone).collect();
        gone.into_iter().for_each(|session| self.apply_session_end(session));
        let mut sessions = self.sessions.lock();
        for s in &fill.sessions {
            let mut session = Session::new(s.begun);
            for (number, slot) in &s.slots {
                session.slots[usize::from(*number)] = *slot;
                session.last = session.last.max(slot.seq);
            }
            sessions.insert(s.session, Box::new(session));
        }
    }

    pub(crate) fn apply_session_end(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
        self.end_grant(session);
    }
}
