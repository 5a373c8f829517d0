//! Reads at the member of a mirror that does not order: so the drives of both servers work for readers.
//!
//! client-M2: a read goes there only under the epoch that the primary told after this client's attach and replay. That member compares it. So
//!     it has every change that was answered, and none that this client must replay is missing. Any failure there means: read at the primary.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use net::{Peer, rpc};
use parking_lot::Mutex;
use types::{Buf, Epoch, Incarnation, SessionId, TargetId};
use wire::Header;
use wire::object::Read;
use wire::session::Attach;

use crate::session::link::Link;

/// Bytes of an object that are read at one member before the other one's turn.
const TURN_SHIFT: u32 = 20;
/// Longest wait for an answer. A member that stands still is out of its mirror by then.
const ANSWER_MAX: Duration = Duration::from_secs(3);
const ATTACH_MAX: Duration = Duration::from_secs(1);
/// After a failure reads go to the primary for so long. It doubles with each failure in a row.
const REST_MIN: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(10);

/// The other member, as this client reads there.
pub(crate) struct Known {
    target: TargetId,
    epoch: Epoch,
    session: SessionId,
    pub peer: Arc<dyn Peer>,
}

impl Known {
    pub fn address(&self, head: &mut Header) {
        (head.target, head.epoch, head.session) = (self.target, self.epoch, self.session);
        // Its own incarnations say nothing to a reader.
        head.incarnation = Incarnation(0);
    }
}

#[derive(Default)]
pub(crate) struct Aside(Mutex<State>);

#[derive(Default)]
struct State {
    /// A member in sync, by the map.
    second: Option<TargetId>,
    known: Option<Arc<Known>>,
    rest: Duration,
    rests_until: Option<Instant>,
}

impl Aside {
    /// Takes the member that the map shows. Returns the one that reads went to before, if it is another one.
    pub fn set(&self, second: Option<TargetId>) -> Option<TargetId> {
        let mut state = self.0.lock();
        if state.second == second {
            return None;
        }
        std::mem::replace(&mut *state, State { second, ..State::default() }).second
    }

    /// It did not answer, or refused.
    pub fn has_failed(&self, known: &Arc<Known>) {
        let mut state = self.0.lock();
        if state.known.as_ref().is_some_and(|now| Arc::ptr_eq(now, known)) {
            state.fail();
        }
    }

    pub fn has_answered(&self) {
        // Only a hint: another thread may hold it.
        if let Some(mut state) = self.0.try_lock() {
            state.rest = Duration::ZERO;
        }
    }
}

impl State {
    fn fail(&mut self) {
        self.known = None;
        self.rest = (self.rest * 2).clamp(REST_MIN, REST_MAX);
        self.rests_until = Some(Instant::now() + self.rest);
    }
}

/// True if it is the other member's turn to answer this read.
fn is_its_turn(read: &Read) -> bool {
    let turn = read.offset >> TURN_SHIFT;
    // Files of one piece are spread as well.
    (read.object.fid.0 ^ u64::from(read.object.stripe) ^ turn) & 1 == 1
}

impl Link {
    /// client-M2. The member that this read goes to instead of the primary.
    pub fn aside_for(&self, read: &Read, deadline: Instant) -> Option<Arc<Known>> {
        let epoch = Epoch(self.epoch.load(Ordering::Acquire));
        // A range lock is the primary's.
        if read.lock != 0 || epoch == Epoch(0) || !is_its_turn(read) || !self.is_attached() || !self.keeps() {
            return None;
        }
        // One thread attaches, and the others read at the primary meanwhile.
        let mut state = self.aside.0.try_lock()?;
        let target = state.second?;
        let session = self.session();
        if let Some(known) = &state.known
            && (known.target, known.epoch, known.session) == (target, epoch, session)
        {
            return Some(known.clone());
        }
        if state.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let known = self.attach_aside(target, epoch, deadline.min(Instant::now() + ATTACH_MAX)).map(Arc::new);
        match &known {
            Some(known) => state.known = Some(known.clone()),
            None => state.fail(),
        }
        known
    }

    fn attach_aside(&self, target: TargetId, epoch: Epoch, deadline: Instant) -> Option<Known> {
        let peer = self.fabric().peer(target).ok()?;
        let (session, req): (SessionId, Attach) = self.attach_request(&*peer)?;
        let head = Header { session, target, epoch, ..self.header() };
        let (_, _, reply) = rpc::call(&*peer, head, &req, &[], &mut Buf::new(), deadline).ok()?;
        reply.ok().map(|_| Known { target, epoch, session, peer })
    }

    pub fn aside_deadline(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + ANSWER_MAX)
    }
}

#[cfg(test)]
mod tests {
    use types::{Fid, Generation, ObjectId};
    use wire::object::{Capability, Mac};

    use super::*;

    #[test]
    fn both_members_have_their_turns_within_a_file_and_among_files() {
        let cap = || Capability {
            fid: Fid(0),
            generation: Generation(0),
            rights: 0,
            lease_epoch: 0,
            lease_counter: 0,
            session: SessionId(0),
            expiry_sec: 0,
            mac: Mac::default(),
        };
        let read = |fid: u64, offset: u64| Read {
            cap: cap(),
            object: ObjectId { fid: Fid(fid), ..ObjectId::default() },
            offset,
            len: 4096,
            lock: 0,
        };
        let turns = |reads: Vec<Read>| reads.iter().filter(|read| is_its_turn(read)).count();
        assert_eq!(turns((0..64).map(|i| read(7, i << 20)).collect()), 32);
        assert_eq!(turns((0..64).map(|fid| read(fid, 0)).collect()), 32);
        assert_eq!(turns((0..256).map(|i| read(6, i * 4096)).collect()) % 256, 0, "a turn is not divided");
    }

    #[test]
    fn a_member_that_fails_rests_longer_each_time_and_a_new_map_ends_that() {
        let aside = Aside::default();
        assert_eq!(aside.set(Some(TargetId(4))), None);
        let mut state = aside.0.lock();
        let rests: Vec<Duration> = (0..8)
            .map(|_| {
                state.fail();
                state.rest
            })
            .collect();
        assert_eq!((rests[0], rests[1], rests[7]), (REST_MIN, REST_MIN * 2, REST_MAX));
        drop(state);
        assert_eq!(aside.set(Some(TargetId(4))), None, "the same member goes on resting");
        assert!(aside.0.lock().rests_until.is_some());
        assert_eq!(aside.set(None), Some(TargetId(4)));
        aside.set(Some(TargetId(4)));
        assert!(aside.0.lock().rests_until.is_none());
    }
}
