//! Sessions: a target remembers them over restarts, so that a replay after a crash finds its slots.

use types::{Seq, SessionId};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::record::Record;
use crate::slots::Session;

/// Most sessions of one target: 1.5 KiB of slots each make 24 MiB of memory.
pub const SESSIONS_MAX: usize = 16_384;

impl Engine {
    pub(crate) fn begin(&self, session: SessionId) -> Result<(), StoreError> {
        let idlest = {
            let sessions = self.sessions.lock();
            if sessions.contains_key(&session) {
                return Ok(());
            }
            let is_full = sessions.len() >= SESSIONS_MAX;
            is_full
                .then(|| sessions.iter().min_by_key(|(id, s)| (s.last_seq(), **id)).map(|(id, _)| *id))
                .flatten()
        };
        // A client that died without a word leaves its session behind; a living one that is hit attaches again.
        if let Some(idlest) = idlest {
            self.end(idlest)?;
        }
        self.check_index_room(crate::checkpoint::SESSION_BYTES_MAX)?;
        self.commit::<StoreError>(None, &Record::SessionBegin { session }, || Ok(0))?;
        Ok(())
    }

    pub(crate) fn end(&self, session: SessionId) -> Result<(), StoreError> {
        if !self.sessions.lock().contains_key(&session) {
            return Ok(());
        }
        self.commit::<StoreError>(None, &Record::SessionEnd { session }, || Ok(0))?;
        Ok(())
    }

    pub(crate) fn apply_session_begin(&self, session: SessionId, begun: Seq) {
        self.sessions.lock().entry(session).or_insert_with(|| Box::new(Session::new(begun)));
    }

    pub(crate) fn apply_session_end(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }
}
