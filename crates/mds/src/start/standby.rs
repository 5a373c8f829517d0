//! A member of a mirror that has the log and the state of its primary, and serves no client (decision 0066).
//!
//! mds-RP4: a standby's log has no gaps: it takes the entry that follows its last one, and no other. It takes its last entry again as done,
//!     if that is the same entry. Earlier ones are refused.
//! mds-RP9: an entry waits for no checkpoint: its sender's seat would give no promise meanwhile. One that finds the log full is put off
//!     (`can_append`), unless the last checkpoint failed.
//! mds-RP5: a standby that takes over shows an incarnation above all that its mirror ever showed, so that each client attaches anew.

mod house;
mod scrubbing;

use std::sync::Arc;

use disk::Trouble;
use disk::volume::{Kind, Label, Volume, VolumeError};
use kv::Engine;
use net::{Answer, Service};
use pair::{Companion, Copied, Logged, Place, Replica};
use parking_lot::Mutex;
use types::{Code, Epoch, Fault, Incarnation, Seq};
use wire::mdt::ScrubRecords;
use wire::mgmt::RegisterReply;
use wire::pair::{CompareRecords, CompareRecordsReply};
use wire::session::{TargetStat, TargetStatReply};
use wire::{Empty, Header, ReplyHead, Request, Wire, encode_reply};

use crate::executor::room::Room;
use crate::joined::{fs_uuid_of, take_identity};
use crate::pair::Lines;
#[cfg(test)]
use crate::pair::planted;
use crate::serve::stat::Stood;
use crate::start::replica::Entry;
use crate::start::standby::house::House;
use crate::start::standby::scrubbing::Scrubbing;
use crate::upkeep::checkpoint::State;
use crate::upkeep::compare::{Comparing, Side};
use crate::{Mdt, Records, Settings, logged};

/// Most operations of an entry, by its head.
const OPS_MAX: u64 = 1 << 16;

/// An MDT before it serves: every MDT at its start, and the other member of a mirror all the time.
///
/// The MDT that it becomes takes the state and shares the volume. So a mirror that holds the standby can still read the log then, keep its note and
/// flush.
pub struct Standby {
    volume: Arc<Volume>,
    was_clean: bool,
    settings: Settings,
    /// `None`: it became an MDT, or was closed.
    inner: Arc<Mutex<Option<Inner>>>,
    house: House,
    comparing: Comparing,
    scrubbing: Scrubbing,
}

struct Inner {
    state: State,
    lines: Lines,
    /// The log has an entry that could not be applied. Only a restart helps.
    is_behind: bool,
}

/// A standby that becomes an MDT.
pub(super) struct Parts {
    pub volume: Arc<Volume>,
    pub state: State,
    pub lines: Lines,
    pub was_clean: bool,
    pub settings: Settings,
}

impl Standby {
    pub(super) fn new(
        volume: Volume,
        state: State,
        lines: Lines,
        was_clean: bool,
        settings: Settings,
    ) -> Standby {
        let inner = Arc::new(Mutex::new(Some(Inner { state, lines, is_behind: false })));
        let (house, comparing) = Default::default();
        let scrubbing = Scrubbing::new(&settings);
        Standby { volume: Arc::new(volume), was_clean, settings, inner, house, comparing, scrubbing }
    }

    pub(super) fn take_parts(&self) -> Result<Parts, Fault> {
        self.end_house();
        self.parts_of(&mut self.inner.lock())
    }

    fn parts_of(&self, inner: &mut Option<Inner>) -> Result<Parts, Fault> {
        let Inner { state, lines, .. } = inner.take().ok_or_else(gone)?;
        let (volume, settings) = (self.volume.clone(), self.settings.clone());
        Ok(Parts { volume, state, lines, was_clean: self.was_clean, settings })
    }

    /// Identity of this target, from its superblock.
    pub fn label(&self) -> Label {
        self.volume.label()
    }

    /// Takes the identity that the MGS gave, as `Mdt::join` does.
    pub fn join(&self, reply: &RegisterReply) -> Result<(), Fault> {
        take_identity(&self.volume, reply, fs_uuid_of(reply)?)
    }

    /// The incarnation of this life.
    pub fn incarnation(&self) -> Incarnation {
        self.volume.incarnation()
    }

    /// False if the last stop was not clean, so that the log was replayed.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    /// The bytes that `keep_note` made durable.
    pub fn note(&self) -> Vec<u8> {
        self.volume.note()
    }

    /// The lines of the log that was replayed and has grown since, each with its first seq in this log; and the last seq. A checkpoint may have
    /// trimmed earlier lines, and the begin of the first one.
    pub fn lines(&self) -> (Vec<(Epoch, Seq)>, Seq) {
        let inner = self.inner.lock();
        (inner.as_ref().map_or(vec![], |inner| inner.lines.list()), self.volume.last_seq())
    }

    /// The seq of the last operation that this member has.
    pub fn last_seq(&self) -> Seq {
        self.volume.last_seq()
    }

    /// Entries up to here are durable at this member.
    pub fn flushed_seq(&self) -> Seq {
        self.volume.flushed_seq()
    }

    /// Its clients have their sessions at the primary.
    fn target_stat(&self) -> Result<TargetStatReply, Fault> {
        let inner = self.inner.lock();
        let State { kv, slots, .. } = &inner.as_ref().ok_or_else(gone)?.state;
        let (volume, rules, room) = (&*self.volume, &*self.settings.rules, &Room::new(kv, slots));
        Stood { volume, kv, rules, room, sessions: 0 }.target_stat()
    }

    /// Takes the next entry into log and state. A refusal is definite, unless the volume failed.
    fn take(&self, Place { line, first, last }: Place, content: &[u8]) -> Result<(), Fault> {
        let mut inner = self.inner.lock();
        let inner = inner.as_mut().ok_or_else(gone)?;
        inner.check()?;
        if let Some(newest) = inner.lines.newest().filter(|newest| line < *newest) {
            let why = format!("an entry of line {line} came, and this member has entries of line {newest}");
            return Err(Fault::new(Code::Moved, format!("{why}; the sender is not the primary any more")));
        }
        let ops = (last.0 + 1).checked_sub(first.0).filter(|ops| (1..=OPS_MAX).contains(ops));
        let entry = ops
            .ok_or_else(|| format!("it goes from {first} to {last}"))
            .and_then(|ops| Entry::decode(content, ops as u32));
        let entry = entry.map_err(|why| {
            Fault::new(
                Code::BadRequest,
                format!("log entry {first} of the mirror: {why}; run one release on both servers"),
            )
        })?;
        let has = self.volume.last_seq();
        if last == has && inner.state.shows(first, &entry.record)? {
            return Ok(());
        }
        let follows = first.0 == has.0 + 1;
        #[cfg(test)]
        let follows = follows || planted::has(planted::Bug::TakesGaps);
        if !follows {
            return Err(Fault::new(
                Code::Stale,
                format!("log entry {first} does not follow {has}, the last one of this member; resync it"),
            ));
        }
        // Before the append, since it may fail.
        let ops = entry.record.ops();
        let ready = inner.state.prepare(&*self.settings.rules, entry)?;
        let first = self.append_own(inner, line, content, ops)?;
        inner.lines.note(line, first);
        if let Err(fault) = inner.state.apply(first, ready) {
            // The medium did not show an abandoned range. The log has the entry, so the next start applies it.
            inner.is_behind = true;
            tracing::error!(%fault, "a standby could not apply an entry of its log; look at its medium, then restart it");
            return Err(fault);
        }
        self.keep_house(inner);
        Ok(())
    }

    fn append_own(&self, inner: &mut Inner, line: Epoch, content: &[u8], ops: u32) -> Result<Seq, Fault> {
        let append = || self.volume.append_ops(line, content, ops);
        match append() {
            Err(VolumeError::LogFull { .. }) => {
                // The table may evict nothing here, or the entry would not be ready any more.
                self.checkpoint(inner)?;
                Ok(append()?)
            }
            done => Ok(done?),
        }
    }

    /// Ends what shares the table.
    fn end_house(&self) {
        self.scrubbing.end();
        self.house.end();
        self.comparing.end();
    }

    /// mds-CM1: the present state, if `seq` is its last entry.
    fn side_at(&self, seq: Seq) -> Result<Option<(Arc<Records>, Side)>, Fault> {
        let (kv, snap, slots, counts) = {
            let inner = self.inner.lock();
            let inner = inner.as_ref().ok_or_else(gone)?;
            inner.check()?;
            let is_same = self.volume.last_seq() == seq;
            #[cfg(test)]
            let is_same = is_same || planted::has(planted::Bug::ComparesAnyState);
            if !is_same {
                return Ok(None);
            }
            let State { kv, slots, counts, .. } = &inner.state;
            (kv.clone(), kv.snapshot(), slots.clone(), counts.clone())
        };
        let side = Side::of(&self.comparing.walks, snap, &slots, &counts);
        Ok(Some((kv, side)))
    }

    /// Stops in good order: a checkpoint of everything, and the clean mark.
    pub fn close(&self) -> Result<(), Fault> {
        self.end_house();
        let mut inner = self.inner.lock();
        self.checkpoint(inner.as_mut().ok_or_else(gone)?)?;
        *inner = None;
        Ok(self.volume.close_clean()?)
    }

    /// Takes over: flushes the whole log, and serves clients in a new life. `above`: the highest incarnation that the map or a primary of this
    /// mirror is known to have shown. `companion`: the mirror, if there is one; it knows the log up to its end, and orders from here on.
    pub fn promote(
        &self,
        above: Incarnation,
        companion: Option<Arc<dyn Companion>>,
    ) -> Result<Arc<Mdt>, Fault> {
        #[cfg(test)]
        if planted::has(planted::Bug::KeepsIncarnation) {
            return self.serve(companion);
        }
        self.end_house();
        // A flush of the mirror comes at any time, and its mark must not lie between two lives.
        let parts = {
            let mut inner = self.inner.lock();
            inner.as_ref().ok_or_else(gone)?.check()?;
            let incarnation = self.volume.begin_life(above)?;
            assert!(incarnation > above, "mds-RP5: no client knows this incarnation yet");
            self.parts_of(&mut inner)?
        };
        parts.serve(companion)
    }
}

type Reply = Box<dyn FnOnce(&ReplyHead) -> Vec<u8>>;

fn told<T: Wire + 'static>(reply: T) -> Reply {
    Box::new(move |head| encode_reply(head, Some(&reply)))
}

/// Numbers of this member, and its scrub. Other requests are for the primary.
impl Service for Standby {
    fn serve(&self, head: &Header, body: &[u8], _: &[u8], answer: &mut Answer<'_>) {
        answer.bulk.clear();
        let done = answer.check_role(head.call).and_then(|()| match head.call {
            TargetStat::CALL => self.target_stat().map(told),
            ScrubRecords::CALL => self.on_scrub_records(body).map(told),
            _ => Err(Fault::new(
                Code::Moved,
                "this MDT is the other member of its mirror and serves no clients; ask for the newest map",
            )),
        });
        answer.head.incarnation = self.incarnation();
        let flushed = self.flushed_seq();
        let head = ReplyHead::done(Seq(0), flushed);
        answer.body = match done {
            Ok(reply) => reply(&head),
            Err(fault) => encode_reply::<Empty>(&ReplyHead::refused(&fault, flushed), None),
        };
    }
}

/// As the member of a mirror that does not order.
impl Replica for Standby {
    fn trouble(&self) -> Option<Trouble> {
        self.volume.trouble()
    }

    fn keep_note(&self, note: &[u8]) -> Result<(), Fault> {
        Ok(self.volume.set_note(note)?)
    }

    /// Makes durable all that was acknowledged, with earlier flush marks. The owner calls it once in a commit interval.
    fn flush(&self) -> Result<Seq, Fault> {
        self.comparing.sweep();
        self.begin_to_scrub();
        // Once it is an MDT, that one makes marks and checkpoints.
        if let Some(inner) = self.inner.lock().as_mut() {
            self.renew_leaves(inner)?;
            match self.volume.mark() {
                // The checkpoint says the same as the mark, and more.
                Err(VolumeError::LogFull { .. }) => self.free_log(inner)?,
                done => done?,
            }
        }
        Ok(self.volume.flush()?)
    }

    fn first(&self) -> Seq {
        self.volume.first_seq()
    }

    fn entries(&self, after: Seq, bytes_max: usize) -> Result<Vec<Logged>, Fault> {
        Ok(self.volume.read_log(after, bytes_max)?.into_iter().map(logged).collect())
    }

    /// mds-RP9.
    fn can_append(&self, content: &[u8]) -> bool {
        self.has_room(content.len())
    }

    fn append(&self, entry: &Logged) -> Result<(), Fault> {
        self.take(entry.place, &entry.content)
    }

    fn compare_records(&self, wanted: &CompareRecords) -> Result<CompareRecordsReply, Fault> {
        self.comparing.answer(wanted, |seq| self.side_at(seq))
    }

    fn copy_out(&self, _: u64, _: u64) -> Result<Copied, Fault> {
        Err(Fault::new(
            Code::NotReady,
            "this MDT does not order in its mirror, and gives no copy; ask its primary",
        ))
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

fn gone() -> Fault {
    Fault::new(Code::NotReady, "this standby has become an MDT, or was closed; open it anew")
}

pub fn check_kind(volume: &Volume) -> Result<(), Fault> {
    let label = volume.label();
    if label.kind == Kind::Mdt {
        return Ok(());
    }
    Err(Fault::new(
        Code::Invalid,
        format!("this device holds an OST of {}, not an MDT; give it to an oss", label.fs_name),
    ))
}

#[cfg(test)]
impl Standby {
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// For tests that spoil it.
    pub fn with_state(&self, spoil: impl FnOnce(&mut State)) {
        spoil(&mut self.inner.lock().as_mut().expect("it is a standby").state);
    }

    /// Records, slots and counts, to be compared.
    pub fn contents(&self) -> crate::tests::mirror::Contents {
        let inner = self.inner.lock();
        let inner = inner.as_ref().expect("it is a standby");
        crate::tests::mirror::contents(&inner.state.kv, &inner.state.slots, &inner.state.counts)
    }
}
