//! Exclusive leases of directories: a client makes and removes files there before the MDT hears of it (`client::session::unshipped`).
//!
//! mds-Z1: another session is answered about a leased directory, and changes it, only after the holder has shipped all changes in it and has given
//!     the lease back, or its session has ended.
//! mds-Z2: a lease is granted only once no other session caches names in the directory or its attributes. While it stands, none may.
//! mds-Z3: fids that were given away are given to no other session (mds-O5), and need no record: a restart skips them.
//! mds-Z4: none are given while space is low, so that what a client has promised finds its space.
//! mds-Z5: leases are in memory. After a restart a session claims its own with `Hold`, before any other session is answered (mds-X1).
//! mds-Z6: a client that is alone gets fids without a lease (number 0): it ships all before another comes in (mds-X2).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kv::{Engine, View};
use lease::Touch;
use parking_lot::{Condvar, Mutex};
use types::{Code, Fault, Fid, SessionId};
use wire::meta::{Counts, LEASED_FIDS_MAX, LeaseDir, LeaseDirReply, LeaveDir, Scan};
use wire::notice::{GiveBack, Wanted};
use wire::shared::HeldDir;
use wire::{Empty, Header, Request};

use crate::Core;
use crate::records::look::look;
use crate::reply::refuse_observer;
use crate::sessions::leases::{Bars, Forgot, Home, LOOK_EACH, RECALL_MAX, mixed};
use crate::sessions::recalls::Recalling;

/// Words of marks. Directories that share one only cost a look at the table.
const MARKS: usize = 1 << 12;
/// Most leases of one MDT. An entry takes some 100 bytes.
const DIRS_MAX: usize = 65_536;
/// A directory that another session wanted is not leased again for so long.
const REST: Duration = Duration::from_secs(1);
/// A holder is told again after this time, if its notice was lost.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// A number above it is not one that an MDT gave.
const NUMBER_MAX: u64 = u64::MAX >> 1;

pub const NONE: LeaseDirReply = LeaseDirReply { first: Fid(0), count: 0, inline_max: 0, number: 0 };

pub struct Makers {
    count: AtomicUsize,
    /// Leases by the hash of the directory, to be read without the lock.
    marks: Vec<AtomicU32>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    dirs: HashMap<Fid, Maker>,
    /// Directories that were given back because others wanted them, until when they rest.
    resting: HashMap<Fid, Instant>,
    last: u64,
}

struct Maker {
    session: SessionId,
    number: u64,
    /// When another session wanted it first, and when the holder was told last.
    wanted: Option<Instant>,
    told: Option<Instant>,
}

fn mark(fid: Fid) -> usize {
    mixed(fid) % MARKS
}

impl Makers {
    pub fn new() -> Makers {
        Makers {
            count: AtomicUsize::new(0),
            marks: (0..MARKS).map(|_| AtomicU32::new(0)).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn may_be_held(&self, fid: Fid) -> bool {
        self.count.load(Ordering::SeqCst) > 0 && self.marks[mark(fid)].load(Ordering::SeqCst) > 0
    }

    /// mds-Z2. It writes no shared memory while no directory is leased.
    pub fn is_held_elsewhere(&self, dir: Fid, session: SessionId) -> bool {
        self.may_be_held(dir)
            && self.state.lock().dirs.get(&dir).is_some_and(|maker| maker.session != session)
    }
    pub fn is_held_by(&self, dir: Fid, session: SessionId) -> bool {
        self.may_be_held(dir)
            && self.state.lock().dirs.get(&dir).is_some_and(|maker| maker.session == session)
    }

    fn all(&self) -> Vec<Fid> {
        self.state.lock().dirs.keys().copied().collect()
    }
    /// Leases held, and since when another session wants them.
    fn holder(&self, dir: Fid) -> Option<SessionId> {
        self.state.lock().dirs.get(&dir).map(|maker| maker.session)
    }

    pub fn held(&self) -> Vec<(Fid, SessionId, Option<Instant>)> {
        self.state.lock().dirs.iter().map(|(dir, maker)| (*dir, maker.session, maker.wanted)).collect()
    }

    /// Returns the lease's number. `None`: another session has it, or wants it or did lately, or there are too many.
    fn grant(&self, dir: Fid, session: SessionId, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        state.resting.retain(|_, until| *until > now);
        let is_free = |maker: &Maker| maker.session == session && maker.told.is_none();
        if !state.dirs.get(&dir).is_none_or(is_free)
            || state.resting.contains_key(&dir)
            || state.dirs.len() >= DIRS_MAX
        {
            return None;
        }
        state.last += 1;
        let number = state.last;
        self.insert(&mut state, dir, Maker { session, number, wanted: None, told: None });
        Some(number)
    }

    /// mds-Z5. The session has not reported yet; another's lease stands.
    pub fn claim(&self, session: SessionId, HeldDir { dir, number }: HeldDir) {
        let mut state = self.state.lock();
        let is_free = state.dirs.get(&dir).is_none_or(|maker| maker.session == session);
        if !is_free || state.dirs.len() >= DIRS_MAX || number > NUMBER_MAX {
            return;
        }
        state.last = state.last.max(number);
        self.insert(&mut state, dir, Maker { session, number, wanted: None, told: None });
    }

    fn insert(&self, state: &mut State, dir: Fid, maker: Maker) {
        if state.dirs.insert(dir, maker).is_none() {
            self.marks[mark(dir)].fetch_add(1, Ordering::SeqCst);
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn remove(&self, state: &mut State, dir: Fid) {
        if state.dirs.remove(&dir).is_some() {
            let before = self.marks[mark(dir)].fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "a mark is taken away once");
            self.count.fetch_sub(1, Ordering::SeqCst);
            self.changed.notify_all();
        }
    }

    /// A late copy has no effect on a later lease.
    pub fn leave(&self, session: SessionId, dir: Fid, number: u64) {
        let mut state = self.state.lock();
        let is_it = |maker: &Maker| maker.session == session && maker.number == number;
        if state.dirs.get(&dir).is_some_and(is_it) {
            if state.dirs.get(&dir).is_some_and(|maker| maker.told.is_some()) {
                state.resting.insert(dir, Instant::now() + REST);
            }
            self.remove(&mut state, dir);
        }
    }

    /// The session has ended.
    pub fn forget(&self, session: SessionId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let dirs: Vec<Fid> =
            state.dirs.iter().filter(|(_, m)| m.session == session).map(|(dir, _)| *dir).collect();
        dirs.into_iter().for_each(|dir| self.remove(&mut state, dir));
    }

    /// The directory has gone.
    pub fn gone(&self, dir: Fid) {
        if self.may_be_held(dir) {
            self.remove(&mut self.state.lock(), dir);
        }
    }

    /// The holder of a directory that another session wants, and its lease if it is to be told now.
    fn want(&self, dir: Fid, session: SessionId, now: Instant) -> Option<(SessionId, Option<u64>)> {
        let mut state = self.state.lock();
        let maker = state.dirs.get_mut(&dir).filter(|maker| maker.session != session)?;
        let is_due = maker.told.is_none_or(|told| now.duration_since(told) >= TOLD_AGAIN);
        if is_due {
            maker.told = Some(now);
            maker.wanted.get_or_insert(now);
        }
        Some((maker.session, is_due.then_some(maker.number)))
    }

    fn wait(&self, dir: Fid, session: SessionId) {
        let mut state = self.state.lock();
        if state.dirs.get(&dir).is_some_and(|maker| maker.session != session) {
            self.changed.wait_for(&mut state, LOOK_EACH);
        }
    }
}

impl Core {
    pub fn on_lease_dir(&self, head: &Header, req: &LeaseDir) -> Result<LeaseDirReply, Fault> {
        let joined = self.joined()?;
        self.check_incarnation(head)?;
        if head.session == SessionId(0) {
            return Err(refuse_observer());
        }
        self.check_session(head.session)?;
        self.check_whole()?;
        if self.sessions.one_user(head.session)?.is_some() {
            return Ok(NONE);
        }
        // mds-Z4: the first sign of low space is a lower inline limit.
        let space = self.room.space(self.kv.reader().medium_bytes());
        if space.is_full || space.inline_max != u32::MAX {
            return Ok(NONE);
        }
        let Some(own) = look(&self.kv, &mut |view| self.rules.plain_dir(view, req.dir))? else {
            return Ok(NONE);
        };
        let number = match self.sharers.is_sharing() {
            true => match self.grant_dir(req.dir, head.session)? {
                Some(number) => number,
                None => return Ok(NONE),
            },
            // mds-Z6.
            false => 0,
        };
        let inline_max = own.unwrap_or_else(|| self.inline_max(&joined));
        let drawn = {
            let mut seat = self.executor.lead();
            seat.check_open()?;
            let drawn = seat.ids.draw_fids(u64::from(req.count.min(LEASED_FIDS_MAX)));
            if seat.ids.are_low() {
                self.bells.flush.ring();
            }
            drawn
        };
        match drawn {
            Some((first, count)) => Ok(LeaseDirReply { first, count: count as u32, inline_max, number }),
            None => {
                self.makers.leave(head.session, req.dir, number);
                Ok(NONE)
            }
        }
    }

    /// mds-Z2: the steps of a change that touches the directory (crate `lease`). `None`: others use it.
    fn grant_dir(&self, dir: Fid, session: SessionId) -> Result<Option<u64>, Fault> {
        let (bars, mut forgot) = (Bars::new(&self.leases), Forgot::new());
        let parent = look(&self.kv, &mut |view| self.rules.parent_of(view, dir))?;
        // Only its attributes are touched.
        let home = Home { parent, has_dirs: false };
        let touches = [Touch::Attr { fid: dir }];
        let recall =
            self.leases.conflicts(session, &touches, &bars, &forgot, self.clock.boot_ms(), |_| Ok(home));
        // Its bar stands for the names, too.
        if self.leases.has_others(dir, session, self.clock.boot_ms()) {
            return Ok(None);
        }
        if let Some(recall) = recall.map_err(crate::executor::execute::Stop::fault)? {
            self.recall(&recall, &mut forgot)?;
        }
        Ok(self.makers.grant(dir, session, Instant::now()))
    }

    pub fn on_leave_dir(&self, session: SessionId, req: &LeaveDir) -> Result<Empty, Fault> {
        self.check_session(session)?;
        self.makers.leave(session, req.dir, req.number);
        Ok(Empty {})
    }

    /// mds-Z1: before a request is carried out that is about leased directories of other sessions.
    pub fn await_makers(&self, session: SessionId, call: u16, body: &[u8]) -> Result<(), Fault> {
        if self.makers.count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let dirs = match call {
            Counts::CALL | Scan::CALL => self.makers.all(),
            _ => look(&self.kv, &mut |view| self.rules.concerned(view, call, body))?,
        };
        for dir in dirs {
            if self.makers.is_held_elsewhere(dir, session) {
                self.recall_dir(dir, session)?;
            }
        }
        Ok(())
    }

    /// mds-L3: waits under no lock, until the lease is given back or its session has ended.
    pub fn recall_dir(&self, dir: Fid, session: SessionId) -> Result<(), Fault> {
        let began = Instant::now();
        let of = self.makers.holder(dir).into_iter().map(|holder| (dir, holder)).collect();
        let _waiting = self.leases.recalls.begin(Recalling { session, began, of })?;
        let _wait = spent::waiting(spent::Cause::Lock);
        while let Some((holder, number)) = self.makers.want(dir, session, Instant::now()) {
            let Some(holder) = self.sessions.get(holder) else {
                self.makers.forget(holder);
                continue;
            };
            if let Some(number) = number {
                holder.notices.push(&GiveBack { items: vec![Wanted { fid: dir, token: number }] });
            }
            self.makers.wait(dir, session);
            if self.is_stopping() {
                return Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back"));
            }
            if holder.is_lease_over(self.clock.boot_ms()) || began.elapsed() >= RECALL_MAX {
                let Some(_one) = self.ending.try_lock_for(LOOK_EACH) else { continue };
                tracing::warn!(
                    session = holder.id.0,
                    client = holder.name,
                    dir = dir.0,
                    "a client does not give the lease of a directory back; it is evicted"
                );
                self.evict(holder.id)?;
            }
        }
        self.leases.counts.note(began);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    #[test]
    fn a_directory_is_leased_to_one_session_until_it_gives_it_back() {
        let (makers, now) = (Makers::new(), Instant::now());
        let dir = Fid(20);
        assert!(!makers.is_held_elsewhere(dir, B));
        let first = makers.grant(dir, A, now).expect("free");
        assert!(makers.is_held_elsewhere(dir, B) && !makers.is_held_elsewhere(dir, A));
        assert!(makers.is_held_by(dir, A) && !makers.is_held_by(dir, B));
        assert_eq!(makers.grant(dir, B, now), None);
        // Asked for again, by a client that has given it back and was not heard.
        let second = makers.grant(dir, A, now).expect("its own");
        makers.leave(A, dir, first);
        assert!(makers.is_held_by(dir, A), "a late copy ends no later lease");
        assert_eq!(makers.want(dir, B, now), Some((A, Some(second))));
        assert_eq!(makers.want(dir, B, now), Some((A, None)), "told once a second");
        assert_eq!((makers.want(dir, A, now), makers.grant(dir, A, now)), (None, None), "it goes back first");
        makers.leave(A, dir, second);
        assert_eq!(makers.want(dir, B, now), None);
        assert_eq!(makers.grant(dir, A, now), None, "it rests, since another wanted it");
        assert!(makers.grant(dir, A, now + REST * 2).is_some());
        makers.forget(A);
        assert!(!makers.is_held_by(dir, A) && makers.marks.iter().all(|m| m.load(Ordering::SeqCst) == 0));
        makers.claim(B, HeldDir { dir, number: 99 });
        makers.claim(A, HeldDir { dir, number: 100 });
        makers.claim(A, HeldDir { dir: Fid(21), number: u64::MAX });
        assert!(makers.is_held_elsewhere(dir, A) && makers.held().len() == 1);
        makers.gone(dir);
        assert!(makers.grant(Fid(30), A, now).is_some_and(|number| number > 99));
        assert_eq!(makers.held(), [(Fid(30), A, None)]);
    }
}
