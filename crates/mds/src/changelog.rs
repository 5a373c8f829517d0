//! The changelog: change records of operations, kept in the table until all consumers have acknowledged them (decision 0032).
//!
//! mds-C1: a change and its record are in the same log entry. While a consumer is registered for that kind of change, neither exists without
//!     the other.
//! mds-C2: numbers rise by one. Consumers read flushed records only, and a start continues behind the last surviving number. So a number that
//!     was read means the same change for ever.
//! mds-C3: a record is kept until every consumer has acknowledged it, or was told that it is lost.
//! mds-C4: records use a share of the MDT's space and no more. Beyond it the oldest half is dropped; the log and the affected consumers
//!     are told.

mod load;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use kv::{Damage, Engine, Value, View as _, record_bytes};
use meta::note::{ChangeRecord, ChangelogRecord, ConsumerRecord, consumer_of, number_from, number_of};
use meta::{Note, View, keys};
use types::{Code, Fault, Key, Seq, SessionId, Time};
use wire::changelog::*;
use wire::{Empty, Header, Request};

use crate::Core;
use crate::draft::Draft;
use crate::execute::{Done, Stop};
use crate::look::{SnapView, Trouble, look, until_loaded};
use crate::overlay::Layer;
use crate::serve::{parse, plain};

/// Most consumers. Trimming looks at the acknowledged number of each.
const CONSUMERS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 64;
/// Records that one entry deletes. A batch adds fewer, so a request that must free space makes progress.
const STEP: usize = 256;
/// Most changes and bytes of an answer, and most records read for one, since a mask may leave out nearly all.
const CHANGES_MAX: usize = 1024;
const ANSWER_BYTES_MAX: usize = 1 << 20;
const LOOKED_AT_MAX: u64 = 16 * 1024;
/// On a full MDT the changelog may use this part of its share: a seventieth of the space, out of the 4 % that stay reserved.
const CLOSED_SHARE: u64 = 8;
/// A typical record with its key.
const RECORD_BYTES: u64 = 64;
/// Entries whose flush is tracked one by one. Later ones are tracked together with the last.
const UNFLUSHED_MAX: usize = 4096;

/// State of the changelog in memory, so that the table need not be read for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    consumers: BTreeMap<u32, ConsumerRecord>,
    /// The newest consumer id that was given out.
    newest_consumer: u32,
    /// The first record; `last + 1` if there is none. All from here to `last` exist.
    first: u64,
    last: u64,
    /// `bytes_before` of the first record, and of the next one.
    first_at: u64,
    next_at: u64,
}

/// What a restore keeps of a backup's changelog: no consumers, and numbers past all that were used after the backup.
#[derive(Default)]
pub struct Left {
    is_any: bool,
    last: u64,
    newest_consumer: u32,
}

/// More changes than an MDT can make between a backup and its restore.
const NUMBERS_AFTER_BACKUP: u64 = 1 << 32;
const CONSUMERS_AFTER_BACKUP: u32 = 1 << 16;

impl Left {
    /// True for a record of the changelog, which is not restored.
    pub fn takes(&mut self, key: &Key, value: &[u8]) -> bool {
        let (last, consumer) = match key.as_bytes().first() {
            Some(&keys::CHANGE) => (number_of(key), None),
            Some(&keys::CONSUMER) => match consumer_of(key) {
                Some(0) => ChangelogRecord::decode(value)
                    .map_or((None, None), |r| (Some(r.number), Some(r.consumer))),
                id => (ConsumerRecord::decode(value).ok().map(|r| r.acked), id),
            },
            _ => return false,
        };
        self.is_any = true;
        self.last = self.last.max(last.unwrap_or(0));
        self.newest_consumer = self.newest_consumer.max(consumer.unwrap_or(0));
        true
    }

    pub fn record(&self) -> Option<(Key, Value)> {
        let number = self.last.saturating_add(NUMBERS_AFTER_BACKUP);
        let consumer = self.newest_consumer.saturating_add(CONSUMERS_AFTER_BACKUP);
        let record = ChangelogRecord { number, consumer };
        self.is_any.then(|| (keys::consumer(0), Value::new(&record.encode())))
    }
}

/// The ledger and its flush state. Only the executor's leader touches it.
#[derive(Debug, Default)]
pub struct Changelog {
    ledger: Ledger,
    /// Union of the consumers' masks.
    mask: u64,
    /// Records up to this number are flushed.
    flushed: u64,
    /// Entries that may not be flushed: seq of the last operation, number of the last record.
    unflushed: VecDeque<(Seq, u64)>,
}

/// Records of an entry that is being built, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    pub records: u64,
    pub bytes: u64,
}

impl Ledger {
    /// No consumer needs records up to this number.
    fn floor(&self) -> u64 {
        self.consumers.values().map(|c| c.acked).min().unwrap_or(self.last)
    }

    fn bytes(&self) -> u64 {
        self.next_at - self.first_at
    }

    fn consumer(&self, id: u32) -> Result<&ConsumerRecord, Fault> {
        self.consumers.get(&id).ok_or_else(|| no_consumer(id))
    }

    fn consumer_mut(&mut self, id: u32) -> Result<&mut ConsumerRecord, Fault> {
        self.consumers.get_mut(&id).ok_or_else(|| no_consumer(id))
    }

    /// Drops the oldest half of the flushed records, and returns the consumers that lose some. Unflushed records stay: a number that was
    /// reported as lost must not be given to a later change (mds-C2).
    fn give_up(&mut self, flushed: u64) -> Vec<Given> {
        let cut = (self.first + (self.last - self.first) / 2).min(flushed);
        let behind = self.consumers.values_mut().filter(|c| c.acked < cut);
        behind
            .map(|consumer| {
                let is_news = consumer.lost == (0, 0);
                let from = if is_news { consumer.acked + 1 } else { consumer.lost.0 };
                (consumer.lost, consumer.acked) = ((from, cut), cut);
                Given { name: consumer.name.clone(), is_news, from, to: cut }
            })
            .collect()
    }

    /// The changes of the table that turn this ledger into `next`. `forgotten`: numbers of deleted records.
    fn difference(&self, next: &Ledger, forgotten: Vec<u64>) -> Layer {
        let mut layer: Layer = forgotten.into_iter().map(|n| (keys::change(n), None)).collect();
        let gone = self.consumers.keys().filter(|id| !next.consumers.contains_key(*id));
        layer.extend(gone.map(|id| (keys::consumer(*id), None)));
        let put = next.consumers.iter().filter(|(id, consumer)| self.consumers.get(*id) != Some(consumer));
        layer.extend(put.map(|(id, consumer)| (keys::consumer(*id), Some(Value::new(&consumer.encode())))));
        if !self.consumers.keys().eq(next.consumers.keys()) {
            let outer = ChangelogRecord { number: next.last, consumer: next.newest_consumer };
            layer.insert(keys::kind_start(keys::CONSUMER), Some(Value::new(&outer.encode())));
        }
        layer
    }
}

/// Changes the ledger. Returns the numbers of records to delete.
type Alter<'a> = &'a mut dyn FnMut(&mut Ledger) -> Result<Vec<u64>, Fault>;

/// Changes that a consumer loses.
struct Given {
    name: String,
    is_news: bool,
    from: u64,
    to: u64,
}

impl Changelog {
    /// Reads the changelog at a start. Everything in the table is flushed then.
    pub fn load<E: Engine>(kv: &E) -> Result<Changelog, Fault> {
        let ledger = until_loaded(kv, &mut || Ledger::load(&kv.reader()))?;
        let mut changelog = Changelog { flushed: ledger.last, ..Changelog::default() };
        changelog.take(ledger);
        Ok(changelog)
    }

    /// The number of the next change.
    pub fn next(&self) -> u64 {
        self.ledger.last.saturating_add(1)
    }

    pub fn mask(&self) -> u64 {
        self.mask
    }

    fn take(&mut self, ledger: Ledger) {
        self.mask = ledger.consumers.values().fold(0, |mask, c| mask | c.mask);
        self.ledger = ledger;
    }

    /// Records for an operation's notes, numbered behind those that the entry has already.
    pub fn records(&self, noted: &mut Noted, time: Time, session: SessionId, notes: Vec<Note>) -> Layer {
        let record = |note| {
            let bytes_before = self.ledger.next_at + noted.bytes;
            let key = keys::change(self.ledger.last + noted.records + 1);
            let value = ChangeRecord { bytes_before, time, session, note }.encode();
            noted.records += 1;
            noted.bytes += record_bytes(&key, value.len());
            (key, Some(Value::new(&value)))
        };
        notes.into_iter().map(record).collect()
    }

    /// An entry with such records is in the log. `seq`: its last operation.
    pub fn add(&mut self, noted: Noted, seq: Seq, flushed: Seq) {
        assert!(
            self.unflushed.back().is_none_or(|(last, _)| *last < seq),
            "mds-C2: entries are added in log order"
        );
        self.ledger.last += noted.records;
        self.ledger.next_at += noted.bytes;
        self.note_flushed(flushed);
        let newest = (seq, self.ledger.last);
        let is_long = self.unflushed.len() >= UNFLUSHED_MAX;
        match self.unflushed.back_mut().filter(|_| is_long) {
            Some(back) => *back = newest,
            None => self.unflushed.push_back(newest),
        }
    }

    fn note_flushed(&mut self, flushed: Seq) {
        while let Some((_, number)) = self.unflushed.pop_front_if(|(seq, _)| *seq <= flushed) {
            assert!(number >= self.flushed && number <= self.ledger.last, "mds-C2: flushed numbers rise");
            self.flushed = number;
        }
    }

    pub fn bytes(&self) -> u64 {
        self.ledger.bytes()
    }

    /// First and last of the records.
    #[cfg(test)]
    pub fn numbers(&self) -> (u64, u64) {
        (self.ledger.first, self.ledger.last)
    }

    #[cfg(test)]
    pub fn force_give_up(&mut self) {
        self.ledger.give_up(self.flushed);
    }
}

impl Core {
    pub fn on_changelog_call(&self, head: &Header, body: &[u8]) -> Result<Done, Fault> {
        self.check_incarnation(head)?;
        match head.call {
            RegisterConsumer::CALL => self.on_register(&parse(body)?).map(plain),
            DeregisterConsumer::CALL => self.on_deregister(&parse(body)?).map(plain),
            ReadChanges::CALL => self.on_read_changes(&parse(body)?).map(plain),
            AckChanges::CALL => self.on_ack(&parse(body)?).map(plain),
            ListConsumers::CALL => self.on_list_consumers(&parse(body)?).map(plain),
            call => Err(Fault::new(Code::Unsupported, format!("call {call:#06x} is not known to this MDT"))),
        }
    }

    fn on_register(&self, req: &RegisterConsumer) -> Result<RegisterConsumerReply, Fault> {
        self.check_admin(&req.cap)?;
        check_name(&req.name)?;
        if req.mask == 0 || req.mask & !ChangeOp::MASK_ALL != 0 {
            return Err(Fault::new(
                Code::Invalid,
                format!("mask {:#x} names no changes, or unknown ones", req.mask),
            ));
        }
        let (mut said, now) = (Err(Code::NotReady.into()), self.clock.wall());
        self.alter(&mut |ledger| {
            if let Some((id, old)) = ledger.consumers.iter().find(|(_, c)| c.name == req.name) {
                said = match old.mask == req.mask {
                    true => Ok(RegisterConsumerReply { id: *id, after: old.acked }),
                    false => {
                        Err(Fault::new(Code::Exists, format!("a consumer '{}' with another mask", req.name)))
                    }
                };
                return Ok(Vec::new());
            }
            if ledger.consumers.len() >= CONSUMERS_MAX {
                return Err(Fault::new(
                    Code::NoSpace,
                    format!("a changelog has {CONSUMERS_MAX} consumers at most"),
                ));
            }
            ledger.newest_consumer += 1;
            let (id, after) = (ledger.newest_consumer, ledger.last);
            let RegisterConsumer { name, mask, .. } = req.clone();
            let consumer = ConsumerRecord { name, mask, acked: after, acked_at: now, lost: (0, 0) };
            ledger.consumers.insert(id, consumer);
            said = Ok(RegisterConsumerReply { id, after });
            Ok(Vec::new())
        })?;
        // Flushed, so that all later changes have records even after a power loss.
        self.flush()?;
        said
    }

    fn on_deregister(&self, req: &DeregisterConsumer) -> Result<Empty, Fault> {
        self.check_admin(&req.cap)?;
        self.alter(&mut |ledger| {
            ledger.consumer(req.id)?;
            ledger.consumers.remove(&req.id);
            Ok(Vec::new())
        })?;
        self.flush()?;
        self.trim_changes_so_far();
        Ok(Empty {})
    }

    fn on_read_changes(&self, req: &ReadChanges) -> Result<ReadChangesReply, Fault> {
        self.check_admin(&req.cap)?;
        until_loaded(&self.kv, &mut || {
            let (snap, consumer, upto) = {
                let mut seat = self.executor.lead();
                // Before the snapshot, so that the snapshot has all flushed records.
                seat.changelog.note_flushed(self.volume.flushed_seq());
                let consumer = seat.changelog.ledger.consumer(req.id).cloned();
                (self.kv.snapshot(), consumer, seat.changelog.flushed)
            };
            let view = SnapView::new(&snap);
            let after = consumer.as_ref().map_or(0, |c| req.after.max(c.acked));
            let read = consumer.and_then(|consumer| read(&view, &consumer, req, upto));
            match view.finish() {
                // Records before the damage are returned first.
                Err(Trouble::Damage(damage)) => Ok(read.and_then(|(reply, _)| match reply.upto > after {
                    true => Ok(reply),
                    false => Err(damaged(&damage, upto)),
                })),
                // Numbers that a start skipped have no records.
                done => done.map(|()| read.map(|(reply, seen)| told_upto(reply, seen, upto))),
            }
        })?
    }

    fn on_ack(&self, req: &AckChanges) -> Result<Empty, Fault> {
        self.check_admin(&req.cap)?;
        let flushed = {
            let mut seat = self.executor.lead();
            seat.changelog.note_flushed(self.volume.flushed_seq());
            seat.changelog.flushed
        };
        let now = self.clock.wall();
        self.alter(&mut |ledger| {
            let consumer = ledger.consumer_mut(req.id)?;
            if req.upto > flushed {
                let why = format!("change {} cannot have been read: the newest is {flushed}", req.upto);
                return Err(Fault::new(Code::Invalid, why));
            }
            if consumer.lost != (0, 0) && req.upto >= consumer.lost.1 {
                consumer.lost = (0, 0);
                consumer.acked_at = now;
            }
            if req.upto > consumer.acked {
                (consumer.acked, consumer.acked_at) = (req.upto, now);
            }
            Ok(Vec::new())
        })?;
        self.trim_changes_upto(req.upto);
        Ok(Empty {})
    }

    fn on_list_consumers(&self, req: &ListConsumers) -> Result<ListConsumersReply, Fault> {
        self.check_admin(&req.cap)?;
        let (ledger, newest) = {
            let mut seat = self.executor.lead();
            seat.changelog.note_flushed(self.volume.flushed_seq());
            (seat.changelog.ledger.clone(), seat.changelog.flushed)
        };
        let (records, bytes) = (ledger.last + 1 - ledger.first, ledger.bytes());
        let told = |(id, consumer): (u32, ConsumerRecord)| {
            let lost = lost_of(&consumer);
            let ConsumerRecord { name, mask, acked, acked_at, .. } = consumer;
            Consumer { id, name, mask, acked, acked_at, lost }
        };
        let consumers = ledger.consumers.into_iter().map(told).collect();
        Ok(ListConsumersReply { consumers, newest, records, bytes, bytes_max: self.room.changes_max() })
    }

    /// Changes the ledger, in an entry of its own.
    fn alter(&self, alter: Alter<'_>) -> Result<(), Fault> {
        loop {
            match self.until_here(&mut || self.try_alter(alter))? {
                Ok(()) => return Ok(()),
                Err(Stop::LogFull { used }) => self.checkpoint_below(used)?,
                Err(stop) => return Err(stop.fault()),
            }
        }
    }

    fn try_alter(&self, alter: Alter<'_>) -> Result<(), Stop> {
        // Declared first, so that it is freed after the hand-over of leadership.
        let snap;
        let mut seat = self.executor.lead();
        seat.check_open()?;
        let mut next = seat.changelog.ledger.clone();
        let forgotten = alter(&mut next)?;
        snap = self.kv.snapshot();
        let mut draft = Draft::new(&snap);
        draft.changes = seat.changelog.ledger.difference(&next, forgotten);
        self.commit(&mut seat, draft)?;
        seat.changelog.take(next);
        Ok(())
    }

    /// Called after an entry. Trims if the changelog exceeds its share, by as much as a batch adds.
    pub fn make_room_for_changes(&self) {
        if self.changes_long.load(Ordering::Relaxed) && self.changes_long.swap(false, Ordering::Relaxed) {
            // The first call drops records, the second deletes them. A failure is tried again with the next record.
            let _ = self.trim_changes().and_then(|_| self.trim_changes());
        }
    }

    /// Called by the keeper. Records that are added meanwhile wait for the next round.
    pub fn trim_changes_so_far(&self) {
        let last = self.executor.lead().changelog.ledger.last;
        self.trim_changes_upto(last);
    }

    /// The keeper tries again after a failure.
    fn trim_changes_upto(&self, upto: u64) {
        while !self.is_stopping() && matches!(self.trim_changes(), Ok(Some(first)) if first <= upto) {}
    }

    /// Deletes some records that no consumer needs, or drops some that exceed the share. Returns the first number that is left; `None`:
    /// there is nothing to do, or it is not possible now.
    fn trim_changes(&self) -> Result<Option<u64>, Fault> {
        let ledger = self.executor.lead().changelog.ledger.clone();
        let (floor, first) = (ledger.floor(), ledger.first);
        if first > floor {
            let is_done = self.changes_are_too_long(ledger.bytes()) && self.give_up_changes(first)?;
            return Ok(is_done.then_some(first));
        }
        // Lost records, and numbers that a start skipped, have nothing to delete.
        let (forgotten, next) =
            until_loaded(&self.kv, &mut || load::numbers(&self.kv.reader(), first, floor + 1, STEP))?;
        let first_at = match next > ledger.last {
            true => ledger.next_at,
            // If that record is damaged, the sum of bytes is wrong until the record is gone.
            false => look(&self.kv, &mut |view| {
                let next = view.get(&keys::change(next));
                next.and_then(|value| ChangeRecord::decode(&value).ok()).map(|r| r.bytes_before)
            })
            .ok()
            .flatten()
            .unwrap_or(ledger.first_at),
        };
        let done = self.unless_full(&mut |ledger| {
            if ledger.first != first {
                return Ok(Vec::new());
            }
            (ledger.first, ledger.first_at) = (next, first_at);
            Ok(forgotten.clone())
        })?;
        Ok(done.then_some(next))
    }

    /// On a full MDT only a part of the share is allowed, so that the reserve has space for it.
    pub fn changes_are_too_long(&self, bytes: u64) -> bool {
        let max = self.room.changes_max();
        let is_closed = || self.room.is_closed(self.kv.reader().medium_bytes());
        bytes > max || (bytes > max / CLOSED_SHARE && is_closed())
    }

    /// mds-C4. `first`: the first number at the time when the share was exceeded. Does nothing if it has changed since.
    pub fn give_up_changes(&self, first: u64) -> Result<bool, Fault> {
        // Only flushed records may be dropped.
        self.flush()?;
        let flushed = {
            let mut seat = self.executor.lead();
            seat.changelog.note_flushed(self.volume.flushed_seq());
            seat.changelog.flushed
        };
        if flushed < first {
            return Ok(false);
        }
        let mut given = Vec::new();
        let done = self.unless_full(&mut |ledger| {
            given = if ledger.first == first { ledger.give_up(flushed) } else { Vec::new() };
            Ok(Vec::new())
        })?;
        for Given { name, from, to, .. } in given.iter().filter(|g| done && g.is_news) {
            tracing::error!(
                consumer = name,
                from,
                to,
                "the changelog is full: this consumer is too far behind and has lost changes; let it look at the whole file system, \
                 then `stria changelog ack`, or deregister it"
            );
        }
        Ok(done)
    }

    /// As `alter`, but returns false on a full log and changes nothing. A checkpoint is under way then.
    fn unless_full(&self, alter: Alter<'_>) -> Result<bool, Fault> {
        match self.until_here(&mut || self.try_alter(alter))? {
            Ok(()) => Ok(true),
            Err(Stop::LogFull { .. } | Stop::NoIds) => Ok(false),
            Err(stop) => Err(stop.fault()),
        }
    }
}

fn told_upto(reply: ReadChangesReply, seen: u64, flushed: u64) -> ReadChangesReply {
    let upto = reply.upto.max(seen);
    ReadChangesReply { upto, more: upto < flushed, ..reply }
}

/// Records up to `flushed` that `consumer` wants and does not have yet, and the number up to which it looked.
fn read(
    view: &dyn View,
    consumer: &ConsumerRecord,
    req: &ReadChanges,
    flushed: u64,
) -> Result<(ReadChangesReply, u64), Fault> {
    let lost = lost_of(consumer).filter(|lost| lost.to > req.after);
    let after = req.after.max(consumer.acked);
    let max = (req.max as usize).clamp(1, CHANGES_MAX);
    let (mut changes, mut upto, mut bytes, mut broken, mut is_full) = (Vec::new(), after, 0, None, false);
    let end = flushed.min(after.saturating_add(LOOKED_AT_MAX));
    view.range(
        &keys::change(after.saturating_add(1)),
        &keys::change(end.saturating_add(1)),
        &mut |key, value| {
            is_full = changes.len() >= max || bytes > ANSWER_BYTES_MAX;
            if is_full {
                return false;
            }
            match (number_of(key), ChangeRecord::decode(value)) {
                (Some(number), Ok(record)) => {
                    upto = number;
                    if consumer.mask & record.note.op.bit() != 0 {
                        bytes += CHANGE_BYTES + value.len();
                        changes.push(record.to_wire(number));
                    }
                }
                _ => broken = Some(damaged(&Damage { key: *key, end: key.after() }, flushed)),
            }
            broken.is_none()
        },
    );
    match broken {
        Some(fault) if upto == after => Err(fault),
        broken => {
            let seen = if is_full || broken.is_some() { upto } else { end.max(upto) };
            Ok((ReadChangesReply { changes, upto, more: upto < flushed, lost }, seen))
        }
    }
}

/// `newest`: the newest flushed number.
fn damaged(damage: &Damage, newest: u64) -> Fault {
    let number = number_of(&damage.key).unwrap_or_default();
    // A single damaged record has no range behind it.
    let behind = damage.is_stretch().then(|| number_from(&damage.end).unwrap_or(newest + 1));
    let what = match behind {
        Some(behind) if behind > number + 1 => format!(
            "changes {number} to {last} are damaged; look at the whole file system, and acknowledge {last} to pass them over",
            last = behind - 1
        ),
        _ => format!(
            "change {number} is damaged; look at the whole file system, and acknowledge it to pass it over"
        ),
    };
    Fault::new(Code::Damaged, what)
}

/// What a record takes on the wire beside its names, about.
const CHANGE_BYTES: usize = 96;

fn lost_of(consumer: &ConsumerRecord) -> Option<LostChanges> {
    let (from, to) = consumer.lost;
    (to > 0).then_some(LostChanges { from, to })
}

fn check_name(name: &str) -> Result<(), Fault> {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good) {
        true => Ok(()),
        false => {
            let why =
                format!("a consumer's name is up to {NAME_BYTES_MAX} letters, digits, '.', '_' and '-'");
            Err(Fault::new(Code::Invalid, why))
        }
    }
}

fn no_consumer(id: u32) -> Fault {
    Fault::new(Code::NotFound, format!("no consumer {id} is registered; `stria changelog list` shows all"))
}
