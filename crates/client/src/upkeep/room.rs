//! Waits for free space on full OSTs. The purge destroys removed files a little later, and a write waits for that before it fails with
//! `NoSpace`.
//!
//! A refused request is definite, so the next try is a new request with a sequence of its own. A wait holds no section, no lock of the file
//! and no slot.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plan::room::{Next, Room, Vain};
use types::{Code, Fault, MirrorId};
use wire::purge::Dying;

use crate::Fs;
use crate::cache::files::File;
use crate::upkeep::elsewhere::Want;
use crate::upkeep::objects::Stopped;

/// Longest wait for the MDT's answer. Without one the write fails with `NoSpace`.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks at removed files that are still kept (`removed`), for at most a second in all.
const REPLACED_PAUSE: Duration = Duration::from_millis(20);
/// Longest time to release removed files: that second, and one for the MDT's answer. The rest of the time is for the purge.
const REPLACED_MAX: Duration = Duration::from_secs(2);
/// Most threads that wait long at once: half of the threads that serve a mount, so that a removal finds a free one. Other threads wait for a
/// moment only (plan-W4).
pub const WAITERS_MAX: u32 = 8;
/// Most inline-to-object migrations of one call that find no space.
const GROWTHS_MAX: u32 = 8;

/// Tries of one operation so far.
#[derive(Default)]
pub(crate) struct Tries {
    pub count: u32,
    /// Inline-to-object migrations that found no space.
    growths: u32,
    /// The wanted range that found no space, and the mirrors that had none.
    pub want: Want,
    pub refused: BTreeSet<MirrorId>,
    room: Option<Room>,
    seat: Option<Seat>,
}

impl Tries {
    pub fn of(want: Want) -> Tries {
        Tries { want, ..Tries::default() }
    }
}

/// The waits of one client.
#[derive(Default)]
pub(crate) struct Waits {
    under_way: AtomicU32,
    vain: Mutex<Vain>,
}

impl Waits {
    fn take_seat(self: &Arc<Waits>) -> Option<Seat> {
        let more = |n: u32| (n < WAITERS_MAX).then_some(n + 1);
        self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Seat(self.clone()))
    }
}

/// Permission to wait long.
struct Seat(Arc<Waits>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stopped {
    /// Joins the faults of requests to several OSTs: any fault other than `NoSpace`, or `NoSpace` with the mirrors that returned it.
    pub fn at(faults: Vec<(MirrorId, Fault)>) -> Option<Stopped> {
        let is_full = faults.iter().all(|(_, fault)| fault.code == Code::NoSpace);
        let mirrors = faults.iter().map(|(mirror, _)| *mirror).collect();
        let other = |(_, fault): &(MirrorId, Fault)| is_full || fault.code != Code::NoSpace;
        let fault = faults.into_iter().find(other)?.1;
        Some(if is_full { Stopped::Full { fault, mirrors, seen: 0 } } else { fault.into() })
    }
}

impl Fs {
    /// OSTs are full. Returns when another try makes sense, or with the fault.
    pub(crate) fn await_room(
        &self,
        file: &File,
        (fault, mirrors): (Fault, Vec<MirrorId>),
        tries: &mut Tries,
        deadline: Instant,
    ) -> Result<(), Fault> {
        if tries.seat.is_none() {
            tries.seat = self.waits.take_seat();
        }
        let is_first = tries.room.is_none();
        let room = tries.room.get_or_insert_with(|| Room::new(Instant::now()));
        if is_first && tries.seat.is_some() {
            self.await_removed(file, deadline)?;
        }
        room.refused(&mirrors);
        match self.await_purge(file, &mirrors, room, tries.seat.is_some(), deadline)? {
            true => {
                // Any OST may have free space now.
                tries.refused.clear();
                Ok(())
            }
            false => {
                if let Some(state) = room.outlasted(Instant::now()) {
                    self.waits.vain.lock().note(&mirrors, state);
                }
                Err(fault)
            }
        }
    }

    /// A migration of an inline file found no space. Each try writes all its bytes again, and leaves a record in the unlink log.
    pub(crate) fn await_growth(
        &self,
        file: &File,
        (fault, mirrors): (Fault, Vec<MirrorId>),
        tries: &mut Tries,
        deadline: Instant,
    ) -> Result<(), Fault> {
        tries.growths += 1;
        match tries.growths > GROWTHS_MAX {
            true => Err(fault),
            // The next layout avoids these mirrors.
            false if self.is_room_elsewhere(&mirrors, tries) => Ok(()),
            false => self.await_room(file, (fault, mirrors), tries, deadline),
        }
    }

    /// Releases removed files that are kept for a moment.
    fn await_removed(&self, file: &File, deadline: Instant) -> Result<(), Fault> {
        let mdt = self.mdt(file.fid)?;
        let begin = Instant::now();
        let limit = deadline.min(begin + REPLACED_MAX);
        while self.removed.has_before(begin) && mdt.is_ready() && mdt.wait(REPLACED_PAUSE, limit) {
            if let Err(why) = self.release_removed(limit) {
                tracing::debug!(%why, "a write that found an OST full cannot release removed files");
                break;
            }
        }
        Ok(())
    }

    /// Waits for the purge. True: another try makes sense.
    fn await_purge(
        &self,
        file: &File,
        mirrors: &[MirrorId],
        room: &mut Room,
        long: bool,
        deadline: Instant,
    ) -> Result<bool, Fault> {
        let mdt = self.mdt(file.fid)?;
        let req = Dying { mirrors: mirrors.to_vec() };
        while room.goes_on(Instant::now()) {
            let limit = deadline.min(Instant::now() + ANSWER_MAX);
            let said = match self.ask_until(file.fid, &req, limit) {
                Ok(answer) => answer.reply,
                Err(why) => {
                    tracing::debug!(%why, "a write that found an OST full cannot ask whether space is about to become free");
                    return Ok(false);
                }
            };
            match room.heard(&said) {
                Next::Try(pause) => {
                    if !pause.is_zero() {
                        mdt.wait(pause, deadline);
                    }
                    return Ok(true);
                }
                Next::Pause(_) if self.waits.vain.lock().holds(mirrors, &said) => return Ok(false),
                Next::Pause(pause)
                    if room.may_pause(Instant::now(), pause, long) && mdt.wait(pause, deadline) => {}
                Next::Pause(_) => break,
            }
        }
        Ok(long && room.may_try_once_more())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_wait_at_once() {
        let waits = Arc::<Waits>::default();
        let seats: Vec<_> = (0..WAITERS_MAX).map(|_| waits.take_seat().expect("a seat")).collect();
        assert!(waits.take_seat().is_none());
        drop(seats);
        assert!(waits.take_seat().is_some(), "a wait that has ended frees its seat");
    }
}
