//! Room on OSTs that are full for the moment: what was removed is destroyed by the purge a little later, and whoever writes meanwhile
//! waits for that instead of being told `NoSpace`.
//!
//! A refused request is answered and definite, so the next try is a new one, with a sequence of its own. Nothing is held while
//! waiting: no section, no lock of the file, no slot.

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

/// An MDT that does not answer for so long keeps nobody from hearing that there is no space.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Between two looks at removed files whose time is not over (`removed`): at most a second in all.
const REPLACED_PAUSE: Duration = Duration::from_millis(20);
/// For letting removed files go: that second, and one for the MDT to answer. What is left of the time is for the purge.
const REPLACED_MAX: Duration = Duration::from_secs(2);
/// Most that wait long at once, half of the threads that serve a mount: who removes something finds one that is free. Others wait for a
/// moment only (plan-W4).
pub const WAITERS_MAX: u32 = 8;
/// Growths of one call that found no room.
const GROWTHS_MAX: u32 = 8;

/// What one operation has tried so far.
#[derive(Default)]
pub(crate) struct Tries {
    pub count: u32,
    /// Growths of an inline file that found no room.
    growths: u32,
    /// What it wants where it found no room, and the mirrors that had none.
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

/// Who has one may wait long.
struct Seat(Arc<Waits>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stopped {
    /// Of requests to several OSTs: the first fault, and the mirrors that said `NoSpace`. Another fault goes first.
    pub fn at(faults: Vec<(MirrorId, Fault)>) -> Option<Stopped> {
        let is_full = faults.iter().all(|(_, fault)| fault.code == Code::NoSpace);
        let mirrors = faults.iter().map(|(mirror, _)| *mirror).collect();
        let other = |(_, fault): &(MirrorId, Fault)| is_full || fault.code != Code::NoSpace;
        let fault = faults.into_iter().find(other)?.1;
        Some(if is_full { Stopped::Full { fault, mirrors, seen: 0 } } else { fault.into() })
    }
}

impl Fs {
    /// OSTs said that they are full. Returns when it is worth another try, or with the fault.
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
                // What was freed may be anywhere.
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

    /// An inline file's objects found no room. Each try costs all its bytes once more, and leaves a dead record.
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
            // The next layout avoids these.
            false if self.is_room_elsewhere(&mirrors, tries) => Ok(()),
            false => self.await_room(file, (fault, mirrors), tries, deadline),
        }
    }

    /// Releases files that were removed by now and are kept for a moment.
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

    /// True: it is worth another try.
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
                    tracing::debug!(%why, "who finds an OST full cannot ask whether space is about to be free");
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
    fn only_so_many_wait_at_once() {
        let waits = Arc::<Waits>::default();
        let seats: Vec<_> = (0..WAITERS_MAX).map(|_| waits.take_seat().expect("a seat")).collect();
        assert!(waits.take_seat().is_none());
        drop(seats);
        assert!(waits.take_seat().is_some(), "who has ended leaves its seat");
    }
}
