//! Room on OSTs that are full for the moment: what was removed is destroyed by the purge a little later, and whoever writes meanwhile
//! waits for that instead of being told `NoSpace`.
//!
//! A refused request is answered and definite, so the next try is a new one, with a sequence of its own. Nothing is held while
//! waiting: no section, no lock of the file, no slot.

use std::time::{Duration, Instant};

use plan::room::{Next, Room};
use types::{Code, Fault, MirrorId};
use wire::purge::Dying;

use crate::Fs;
use crate::files::File;
use crate::objects::Stopped;

/// An MDT that does not answer for so long keeps nobody from hearing that there is no space.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Between two looks at replaced files whose time is not over (`replaced`): at most a second in all.
const REPLACED_PAUSE: Duration = Duration::from_millis(20);

/// What one operation has tried so far.
#[derive(Default)]
pub(crate) struct Tries {
    pub count: u32,
    room: Option<Room>,
}

impl Stopped {
    /// Of requests to several OSTs: the first fault, and the mirrors that said `NoSpace`. Another fault goes first.
    pub fn at(faults: Vec<(MirrorId, Fault)>) -> Option<Stopped> {
        let is_full = faults.iter().all(|(_, fault)| fault.code == Code::NoSpace);
        let mirrors = faults.iter().map(|(mirror, _)| *mirror).collect();
        let other = |(_, fault): &(MirrorId, Fault)| is_full || fault.code != Code::NoSpace;
        let fault = faults.into_iter().find(other)?.1;
        Some(if is_full { Stopped::Full { fault, mirrors } } else { fault.into() })
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
        let mdt = self.mdt(file.fid)?;
        let room = match &mut tries.room {
            Some(room) => room,
            none => {
                let begin = Instant::now();
                while self.replaced.has_before(begin) && mdt.is_ready() && mdt.wait(REPLACED_PAUSE, deadline)
                {
                    self.release_replaced();
                }
                none.insert(Room::new(begin))
            }
        };
        let req = Dying { mirrors };
        while room.goes_on(Instant::now()) {
            let limit = deadline.min(Instant::now() + ANSWER_MAX);
            match self.ask_until(file.fid, &req, limit).map(|answer| room.heard(&answer.reply)) {
                Ok(Next::Try) => return Ok(()),
                Ok(Next::Pause(pause)) if mdt.wait(pause, deadline) => {}
                Ok(Next::Pause(_)) => break,
                Err(why) => {
                    tracing::debug!(%why, "who finds an OST full cannot ask whether space is about to be free");
                    break;
                }
            }
        }
        Err(fault)
    }
}
