//! The last request executed in each slot of each session. The log entry of the change records it too, so that either both survive a
//! crash or neither does.

use types::{Seq, SessionId};
use wire::session::{SLOTS, comes_after};

use crate::state::engine::Engine;
use crate::{Origin, Slot};

/// A session as the target keeps it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Mirror seq of the log entry that began it.
    pub begun: Seq,
    /// Mirror seq of its last log entry.
    pub last: Seq,
    pub slots: [Slot; SLOTS as usize],
}

impl Session {
    pub fn new(begun: Seq) -> Session {
        Session { begun, last: begun, slots: [Slot::default(); SLOTS as usize] }
    }
}

impl Engine {
    /// Records a request as executed. A slot's sequences only rise; a session that has ended meanwhile has no slots.
    pub(crate) fn apply_slot(&self, origin: Origin, seq: Seq, answer: u64) {
        let mut sessions = self.sessions.lock();
        let Some(session) = sessions.get_mut(&origin.session) else { return };
        let slot = session.slots.get_mut(origin.slot as usize);
        if let Some(slot) = slot.filter(|s| comes_after(origin.sequence, s.sequence)) {
            *slot = Slot { sequence: origin.sequence, seq, answer };
            session.last = session.last.max(seq);
        }
    }

    pub(crate) fn slots_of(&self, session: SessionId) -> Option<Vec<Slot>> {
        self.sessions.lock().get(&session).map(|s| s.slots.to_vec())
    }

    pub(crate) fn slot_of(&self, session: SessionId, slot: u32) -> Option<Slot> {
        self.sessions.lock().get(&session)?.slots.get(slot as usize).copied()
    }
}
