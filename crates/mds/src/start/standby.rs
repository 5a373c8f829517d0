//! A member of a mirror that has the log and the state of its primary, and serves no client (decision 0066).
//!
//! mds-RP4: a standby's log has no gaps: it takes the entry that follows its last one, and no other. It acknowledges its last entry again,
//!     if that is the same entry. Earlier ones are refused, since a primary ships one entry at a time.
//! mds-RP5: a standby that takes over shows an incarnation above all that its mirror ever showed, so that each client attaches anew.

use std::sync::Arc;

use disk::volume::{Volume, VolumeError};
use kv::{Engine, Tidied};
use parking_lot::Mutex;
use types::{Code, Epoch, Fault, Incarnation, Seq};

#[cfg(test)]
use crate::pair::planted;
use crate::pair::{Companion, Shipped};
use crate::start::replica::Entry;
use crate::upkeep::checkpoint::{self, State};
use crate::{Mdt, Settings};

/// An MDT before it serves: every MDT at its start, and the other member of a mirror all the time.
pub struct Standby {
    volume: Volume,
    was_clean: bool,
    settings: Settings,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    /// Of the newest entry that was shipped here: the primary's epoch and incarnation.
    primary: (Epoch, Incarnation),
    /// The log has an entry that could not be applied. Only a restart helps.
    is_behind: bool,
}

impl Standby {
    pub(super) fn new(volume: Volume, state: State, was_clean: bool, settings: Settings) -> Standby {
        let primary = (volume.label().epoch, Incarnation(0));
        Standby { volume, was_clean, settings, inner: Mutex::new(Inner { state, primary, is_behind: false }) }
    }

    pub(super) fn into_parts(self) -> (Volume, State, bool, Settings) {
        (self.volume, self.inner.into_inner().state, self.was_clean, self.settings)
    }

    /// The seq of the last operation that this member has.
    pub fn last_seq(&self) -> Seq {
        self.volume.last_seq()
    }

    /// Entries up to here are durable at this member.
    pub fn flushed_seq(&self) -> Seq {
        self.volume.flushed_seq()
    }

    /// Takes the next entry into log and state. Returns the last seq, which acknowledges all entries so far. A refusal is definite, unless the
    /// volume failed.
    pub fn append(&self, shipped: &Shipped<'_>) -> Result<Seq, Fault> {
        let inner = &mut *self.inner.lock();
        inner.check()?;
        let Shipped { epoch, incarnation, first, ops, payload } = *shipped;
        if (epoch, incarnation) < inner.primary {
            let why = format!(
                "an entry of {epoch}, {incarnation} came, and the newest primary has {:?}",
                inner.primary
            );
            return Err(Fault::new(Code::Moved, format!("{why}; the sender is not the primary any more")));
        }
        let entry = Entry::decode(payload, ops).map_err(|why| {
            Fault::new(
                Code::BadRequest,
                format!("shipped log entry {first}: {why}; run one release on both servers"),
            )
        })?;
        let last = self.volume.last_seq();
        if shipped.last() == last && inner.state.shows(first, &entry.record)? {
            return Ok(last);
        }
        let follows = first.0 == last.0 + 1;
        #[cfg(test)]
        let follows = follows || planted::has(planted::Bug::TakesGaps);
        if !follows {
            return Err(Fault::new(
                Code::Stale,
                format!("log entry {first} does not follow {last}, the last one of this member; resync it"),
            ));
        }
        // Before the append, since it may fail.
        let ready = inner.state.prepare(&*self.settings.rules, entry)?;
        let first = self.append_own(inner, shipped)?;
        inner.primary = (epoch, incarnation);
        if let Err(fault) = inner.state.apply(first, ready) {
            // The medium did not show an abandoned range. The log has the entry, so the next start applies it.
            inner.is_behind = true;
            tracing::error!(%fault, "a standby could not apply an entry of its log; look at its medium, then restart it");
            return Err(fault);
        }
        if let Err(fault) = self.keep_house(inner) {
            // The entry is here all the same. The log goes on until it is full.
            tracing::error!(%fault, "a standby's checkpoint failed; the log goes on until it is full");
        }
        Ok(self.volume.last_seq())
    }

    fn append_own(&self, inner: &mut Inner, shipped: &Shipped<'_>) -> Result<Seq, Fault> {
        let append = || self.volume.append_ops(shipped.epoch, shipped.payload, shipped.ops);
        match append() {
            Err(VolumeError::LogFull { .. }) => {
                // The table may evict nothing here, or the entry would not be ready any more.
                self.checkpoint(inner)?;
                Ok(append()?)
            }
            done => Ok(done?),
        }
    }

    /// No thread works for a standby: checkpoints and evictions are due between two entries.
    fn keep_house(&self, inner: &mut Inner) -> Result<(), Fault> {
        let mut is_due = checkpoint::is_half_full(&self.volume);
        loop {
            match inner.state.kv.tidy() {
                Tidied::Done => break,
                Tidied::More => {}
                Tidied::Unwritten => {
                    is_due = true;
                    break;
                }
            }
        }
        if is_due { self.checkpoint(inner) } else { Ok(()) }
    }

    fn checkpoint(&self, inner: &mut Inner) -> Result<(), Fault> {
        inner.check()?;
        let State { kv, slots, counts, kept } = &mut inner.state;
        kv.settle();
        let (snap, at) = (kv.snapshot(), self.volume.position());
        Ok(checkpoint::write(&self.volume, kv, &*self.settings.rules, (&snap, slots, counts), at, kept)?)
    }

    /// Makes durable all that was acknowledged, with earlier flush marks.
    pub fn flush(&self) -> Result<Seq, Fault> {
        match self.volume.mark() {
            // The checkpoint says the same as the mark, and more.
            Err(VolumeError::LogFull { .. }) => self.checkpoint(&mut self.inner.lock())?,
            done => done?,
        }
        Ok(self.volume.flush()?)
    }

    /// Takes over: flushes the whole log, and serves clients in a new life. `above`: the highest incarnation that the map or a primary of this
    /// mirror is known to have shown.
    pub fn promote(self, above: Incarnation) -> Result<Arc<Mdt>, Fault> {
        self.inner.lock().check()?;
        let above = above.max(self.inner.lock().primary.1);
        #[cfg(test)]
        if planted::has(planted::Bug::KeepsIncarnation) {
            return self.serve();
        }
        let incarnation = self.volume.begin_life(above)?;
        assert!(incarnation > above, "mds-RP5: no client knows this incarnation yet");
        self.serve()
    }
}

impl Inner {
    fn check(&self) -> Result<(), Fault> {
        match self.is_behind {
            false => Ok(()),
            true => Err(Fault::new(
                Code::NotReady,
                "this standby could not apply an entry of its log; restart it",
            )),
        }
    }
}

/// Both members in one process.
impl Companion for Standby {
    fn append(&self, entry: &Shipped<'_>) -> Result<Seq, Fault> {
        Standby::append(self, entry)
    }

    fn flush(&self, _: Seq) -> Result<Seq, Fault> {
        Standby::flush(self)
    }

    fn last_seq(&self) -> Result<Seq, Fault> {
        Ok(Standby::last_seq(self))
    }
}

#[cfg(test)]
impl Standby {
    pub fn incarnation(&self) -> Incarnation {
        self.volume.incarnation()
    }

    /// Records, slots and counts, to be compared.
    pub fn contents(&self) -> crate::tests::mirror::Contents {
        let inner = self.inner.lock();
        crate::tests::mirror::contents(&inner.state.kv, &inner.state.slots, &inner.state.counts)
    }
}
