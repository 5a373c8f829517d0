//! The executor: one mutating request from the door to the log and back, on the thread that brought it.
//!
//! ```text
//!   1 slot: was it done already?   2 ids: enough reserved?    3 rule over snapshot + overlay
//!   4 room: may the table grow?    5 one log entry            6 apply, publish, note the slot
//! ```
//! Steps 1 to 6 happen under the writer's lock, so log order is apply order (M1). What must wait (a checkpoint because the
//! log is full, a reservation of ids, records that are not in memory) is done outside it, and the request starts over: nothing of it had happened.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::volume::VolumeError;
use kv::{Absent, Batch, Engine};
use types::{Code, Epoch, Fault, Seq};
use wire::Request;
use wire::meta::Grow;

use crate::Core;
use crate::ids::Ids;
use crate::look::{Trouble, until_loaded};
use crate::overlay::Overlay;
use crate::record::{self, Origin};
use crate::slots::{Last, Slots, Verdict};

/// What only the holder of the writer's role touches.
pub struct Writer {
    pub slots: Slots,
    pub ids: Ids,
    /// The volume is closed or closing: nothing may be appended any more.
    pub closed: bool,
}

/// A request that was carried out, now or earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The reply's body without its head. Empty for a request older than its slot's last.
    pub reply: Arc<[u8]>,
    /// The entry that holds the change; 0 if nothing changed.
    pub seq: Seq,
}

/// How often a request starts over because the log was full or ids were short before its client is asked to try again. Each
/// time something was done about it; more than two would mean that others take the room at once.
const ATTEMPTS_MAX: u32 = 8;

/// Why a request must start over, or not be made.
pub enum Stop {
    Refused(Fault),
    /// Bytes that the log held then.
    LogFull {
        used: u64,
    },
    NoIds,
    /// A record that the rule asked for is not in memory.
    Absent(Absent),
}

impl From<Fault> for Stop {
    fn from(f: Fault) -> Stop {
        Stop::Refused(f)
    }
}

impl From<Trouble> for Stop {
    fn from(t: Trouble) -> Stop {
        match t {
            Trouble::Absent(what) => Stop::Absent(what),
            _ => Stop::Refused(t.into()),
        }
    }
}

/// A rule with all but its transaction filled in. It may run more than once, over transactions that came to nothing.
pub type Rule<'r> = &'r mut dyn FnMut(&mut Overlay<'_>) -> Result<Vec<u8>, Fault>;

impl Core {
    /// Carries out `rule` as one log entry, or answers from the slot if `origin` was carried out before.
    /// `lease_high` is set whenever the rule draws a lease number.
    pub fn transact(
        &self,
        call: u16,
        origin: Option<Origin>,
        lease_high: &Cell<u32>,
        rule: Rule<'_>,
    ) -> Result<Done, Fault> {
        for _ in 0..ATTEMPTS_MAX {
            // Bringing records is no attempt that failed: it has a bound of its own.
            let attempt =
                until_loaded(&self.kv, &mut || match self.attempt(call, origin, lease_high, rule) {
                    Err(Stop::Absent(what)) => Err(Trouble::Absent(what)),
                    done => Ok(done),
                })?;
            match attempt {
                Ok(done) => return Ok(done),
                Err(Stop::Refused(fault)) => return Err(fault),
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(Stop::NoIds) => self.reserve_ids()?,
                Err(Stop::Absent(what)) => return Err(Trouble::Absent(what).into()),
            }
        }
        Err(Fault::new(Code::NotReady, "the MDT's log fills faster than it can be checkpointed; try again"))
    }

    fn attempt(
        &self,
        call: u16,
        origin: Option<Origin>,
        lease_high: &Cell<u32>,
        rule: Rule<'_>,
    ) -> Result<Done, Stop> {
        // Freed after the lock: by then it is the last to hold the state that this request replaces.
        let snap;
        let mut writer = self.writer.lock();
        writer.check_open()?;
        // 1. slot
        if let Some(origin) = &origin {
            match writer.slots.admit(origin)? {
                Verdict::New => {}
                Verdict::Repeat(Last { reply, seq, .. }) => return Ok(Done { reply, seq }),
                Verdict::Old(seq) => return Ok(Done { reply: Arc::new([]), seq }),
            }
        }
        // 2. ids
        if !writer.ids.are_enough() {
            return Err(Stop::NoIds);
        }
        // 3. rule
        snap = self.kv.snapshot();
        let mut txn = Overlay::new(&snap, &mut writer.ids, lease_high);
        let reply = rule(&mut txn);
        // V1: trouble first. What a rule refused because of a record that was not there is not refused.
        let changes = txn.finish()?;
        let reply: Arc<[u8]> = reply?.into();
        if changes.0.is_empty() {
            // Nothing to keep and nothing to repeat: judged again, it gives the same answer.
            return Ok(Done { reply, seq: Seq(0) });
        }
        // 4. room
        self.room.check(&snap, &writer.slots, &changes)?;
        // 5. log, 6. apply
        let seq = self.commit(&mut writer, call, origin, &reply, changes)?;
        Ok(Done { reply, seq })
    }

    /// Appends one entry and applies it. The writer's lock is held, so that seq order is apply order (M1).
    fn commit(
        &self,
        writer: &mut Writer,
        call: u16,
        origin: Option<Origin>,
        reply: &Arc<[u8]>,
        changes: Batch,
    ) -> Result<Seq, Stop> {
        let payload = record::encode(call, origin, reply, &changes);
        let seq = match self.volume.append(self.epoch(), &payload) {
            Ok(seq) => seq,
            Err(VolumeError::LogFull { used, .. }) => return Err(Stop::LogFull { used }),
            Err(e) => return Err(self.volume_fault(e).into()),
        };
        writer.slots.apply(origin, seq, reply, &changes);
        let is_died = |c: &&kv::Change| c.value.is_some() && self.rules.is_dead(&c.key);
        // What a growth that found no room leaves is no news: who tries again and again would hurry the purge by that alone.
        let died = if call == Grow::CALL { 0 } else { changes.0.iter().filter(is_died).count() };
        self.kv.apply(seq, changes);
        self.purged.on_died(died);
        if writer.ids.are_low() {
            self.bells.flush.ring();
        }
        if self.log_is_half_full() {
            self.bells.checkpoint.ring();
        }
        Ok(seq)
    }

    /// Reserves the next block of every counter that is low: entry, flush, then use (O5).
    pub fn reserve_ids(&self) -> Result<(), Fault> {
        let _one = self.reserving.lock();
        for _ in 0..ATTEMPTS_MAX {
            let reserved = {
                let mut writer = self.writer.lock();
                writer.check_open()?;
                if !writer.ids.are_low() && writer.ids.are_enough() {
                    return Ok(());
                }
                let (changes, promise) = writer.ids.promise()?;
                match self.commit(&mut writer, 0, None, &Arc::from([]), changes) {
                    Ok(_) => Ok(promise),
                    Err(Stop::Refused(fault)) => return Err(fault),
                    Err(Stop::LogFull { used }) => Err(used),
                    // Reserving draws no ids and reads nothing.
                    Err(Stop::NoIds | Stop::Absent(_)) => Err(u64::MAX),
                }
            };
            match reserved {
                Ok(promise) => {
                    self.flush()?;
                    self.writer.lock().ids.keep(promise);
                    return Ok(());
                }
                Err(used) => self.checkpoint_below(used)?,
            }
        }
        Err(Fault::new(Code::NotReady, "the MDT's log is full; try again"))
    }

    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Relaxed))
    }

    pub fn flush(&self) -> Result<Seq, Fault> {
        self.volume.flush().map_err(|e| self.volume_fault(e))
    }

    /// The fault for a volume that did not do what it was asked. It has mostly failed for good: people must hear of it.
    pub fn volume_fault(&self, e: VolumeError) -> Fault {
        let label = self.volume.label();
        let fault = Fault::from(e);
        tracing::error!(fs = label.fs_name, index = label.index, %fault, "the MDT's volume refused; look at its medium and `stria status`");
        Fault::new(fault.code, format!("MDT {} of {}: {}", label.index, label.fs_name, fault.detail))
    }

    /// Ends the serving; who holds the writer's role is waited for. A clean close leaves a checkpoint that holds everything, and the clean mark.
    pub fn close(&self, clean: bool) -> Result<(), Fault> {
        let was_closed = std::mem::replace(&mut self.writer.lock().closed, true);
        self.stopping.store(true, Ordering::Release);
        if was_closed || !clean {
            return Ok(());
        }
        self.checkpoint_now()?;
        self.volume.close_clean().map_err(|e| self.volume_fault(e))
    }
}

impl Writer {
    fn check_open(&self) -> Result<(), Fault> {
        match self.closed {
            false => Ok(()),
            true => Err(Fault::new(Code::NotReady, "this MDT is stopping; try again when it is back")),
        }
    }
}
