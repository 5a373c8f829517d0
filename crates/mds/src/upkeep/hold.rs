//! The part of the log that the mirror's other member still needs: entries that it reads, and those behind a copy of the whole content.
//!
//! mds-RP6: a checkpoint does not trim the log behind a hold. The hold ends after a minute without a read, or when the log is nearly full:
//!     then the other member needs the whole content (anew).

use disk::volume::{LogPoint, ReadEntry};
use types::{Fault, Seq};

use crate::Core;

/// A hold that was not used for this long ends.
pub const IDLE_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
pub struct Hold {
    at: LogPoint,
    used_ms: u64,
}

impl Core {
    /// Entries behind `after`, for the other member.
    pub fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<ReadEntry>, Fault> {
        let entries = self.volume.read_log(after, bytes_max).map_err(Fault::from)?;
        // The reader has all before these: it asks for no entry twice, unless it starts anew.
        match entries.first() {
            Some(entry) => self.hold(entry.begin),
            None => {
                let end = self.volume.position();
                self.hold.lock().iter_mut().for_each(|hold| hold.used_ms = self.clock.boot_ms());
                if end.seq == after {
                    self.hold(end);
                }
            }
        }
        Ok(entries)
    }

    /// mds-RP6.
    pub fn hold(&self, at: LogPoint) {
        *self.hold.lock() = Some(Hold { at, used_ms: self.clock.boot_ms() });
    }

    /// For a stop: the other member may have stopped before, and then lacks the last entries. With them in the log it needs no copy.
    pub fn hold_all(&self) {
        self.hold(self.volume.log_start());
    }

    /// True if the log is held so that it has all entries behind `after`.
    pub fn holds(&self, after: Seq) -> bool {
        self.hold.lock().is_some_and(|hold| hold.at.seq <= after)
    }

    /// Keeps the hold of a copy that goes on.
    pub fn use_hold(&self) {
        self.hold.lock().iter_mut().for_each(|hold| hold.used_ms = self.clock.boot_ms());
    }

    pub fn end_hold(&self) {
        *self.hold.lock() = None;
    }

    /// Where a checkpoint of the state at `at` trims the log.
    pub fn trimmed_to(&self, at: LogPoint) -> LogPoint {
        let mut hold = self.hold.lock();
        let is_idle = |hold: &Hold| self.clock.boot_ms().saturating_sub(hold.used_ms) >= IDLE_MS;
        let is_long =
            |hold: &Hold| is_nearly_full(at.pos - hold.at.pos.min(at.pos), self.volume.log_capacity());
        if hold.as_ref().is_some_and(|hold| is_idle(hold) || is_long(hold)) {
            *hold = None;
        }
        // Not behind what an earlier checkpoint has trimmed.
        match *hold {
            Some(Hold { at: held, .. }) if held.pos < at.pos && held.pos >= self.volume.log_start().pos => {
                held
            }
            _ => at,
        }
    }

    /// True if a checkpoint is due. While the log is held, one would trim little.
    pub fn log_is_half_full(&self) -> bool {
        let (used, capacity) = (self.volume.log_used(), self.volume.log_capacity());
        used * 2 > capacity && (is_nearly_full(used, capacity) || self.hold.lock().is_none())
    }
}

fn is_nearly_full(used: u64, capacity: u64) -> bool {
    used * 8 > capacity * 7
}
