//! A standby that lacks more than the primary's log has: it becomes empty, and is then filled by ordered entries (fill.rs).
//!
//! Each step is an ordinary private entry, so a crash leaves a store that opens. Its content says nothing until the filling has ended: the
//! member's note has that (mirror-F3), and the next life begins here again.

use types::{Code, Epoch, Fault, Fid, ObjectId, Seq, SessionId};

use crate::records::error::StoreError;
use crate::records::record::{At, Record};
use crate::state::engine::Engine;
use crate::state::tail::Batch;
use crate::upkeep::follow::push;

/// Objects of one entry, and sessions of one batch.
const OBJECTS_AT_ONCE: usize = 256;
const SESSIONS_AT_ONCE: usize = 256;

/// With so many objects at most a member becomes empty while promises wait: 8 entries and a small checkpoint.
const EMPTIED_AT_ONCE_MAX: u64 = 2048;

impl Engine {
    /// True if `begin_refill` is short.
    pub fn is_emptied_at_once(&self) -> bool {
        self.index.objects() <= EMPTIED_AT_ONCE_MAX
    }

    /// As `begin_refill`, of a member that has no life at present: however long it takes, unless the caller stops. Its place in the mirror
    /// says nothing until it is filled.
    pub fn make_empty(&self, is_stopping: &dyn Fn() -> bool) -> Result<(), StoreError> {
        let At { line, seq } = self.mirror.at_end();
        self.begin_refill_unless(line, seq, is_stopping)
    }

    /// Removes all objects and sessions, durably. The next entry of the mirror is the one behind `end`, the last one of line `line`.
    pub fn begin_refill(&self, line: Epoch, end: Seq) -> Result<(), StoreError> {
        self.begin_refill_unless(line, end, &|| false)
    }

    fn begin_refill_unless(
        &self,
        line: Epoch,
        end: Seq,
        is_stopping: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let _one = self.following.lock();
        self.mirror.check_alive()?;
        if !self.mirror.is_standby() {
            return Err(StoreError::Foreign("this member orders entries itself".into()));
        }
        self.shrink_stages(0);
        // 1. Private entries: they have no mirror seq, so they count as nothing of the mirror.
        loop {
            let objects: Vec<ObjectId> =
                self.index.page(None, OBJECTS_AT_ONCE)?.into_iter().map(|(id, _)| id).collect();
            if objects.is_empty() {
                break;
            }
            if is_stopping() {
                let why = "this member is stopping; its next life becomes empty, and is filled";
                return Err(StoreError::Refused(Fault::new(Code::NotReady, why)));
            }
            if self.index.is_full() {
                self.make_index_room()?;
            }
            let _kept = objects.iter().map(|id| self.index.load(id)).collect::<Result<Vec<_>, _>>()?;
            let mut batch = Batch::default();
            push(&mut batch, line, (None, 0), Record::Destroy { objects });
            self.log_following(batch, None, || {})?;
        }
        loop {
            let sessions: Vec<SessionId> =
                self.sessions.lock().keys().copied().take(SESSIONS_AT_ONCE).collect();
            if sessions.is_empty() {
                break;
            }
            let mut batch = Batch::default();
            for session in sessions {
                push(&mut batch, line, (None, 0), Record::SessionEnd { session });
            }
            self.log_following(batch, None, || {})?;
        }
        if !self.damage.lock().is_empty() {
            let mut batch = Batch::default();
            push(&mut batch, line, (None, 0), Record::DamageClear { fid: Fid(0) });
            self.log_following(batch, None, || {})?;
        }
        // 2. The checkpoint has the new place in the mirror, and trims all entries of before.
        {
            let _tail = self.tail.still();
            self.mirror.begin_anew(At { line, seq: end }, self.vol.last_seq());
        }
        self.make_checkpoint()?;
        // 3. The pages of before are free once the entries that took them away are sealed.
        self.seal()
    }
}
