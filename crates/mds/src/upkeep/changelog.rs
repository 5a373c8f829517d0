//! The changelog for its consumers: registration, reading, acknowledgement, and trimming (mds-C3 and mds-C4 in `records/ledger.rs`).

use std::sync::atomic::Ordering;

use kv::{Damage, Engine, View as _};
use meta::note::{ChangeRecord, ConsumerRecord, number_from, number_of};
use meta::{View, keys};
use types::{Code, Fault};
use wire::changelog::*;
use wire::{Empty, Header, Request};

use crate::Core;
use crate::executor::draft::Draft;
use crate::executor::execute::Stop;
use crate::records::ledger::{Given, Ledger, load};
use crate::records::look::{SnapView, Trouble, look, until_loaded};
use crate::reply::{Done, parse, plain};

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
/// Changes the ledger. Returns the numbers of records to delete.
type Alter<'a> = &'a mut dyn FnMut(&mut Ledger) -> Result<Vec<u64>, Fault>;

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
                seat.changelog.note_flushed(self.flushed_seq());
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
            seat.changelog.note_flushed(self.flushed_seq());
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
            seat.changelog.note_flushed(self.flushed_seq());
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
            let is_done = self.changes_are_too_long(ledger.bytes()) && self.abandon_changes(first)?;
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
            .unwrap_or(ledger.first_at)
            // From the medium: it bounds a sum and must not break it.
            .min(ledger.next_at),
        };
        assert!(next > first, "each step deletes or skips a record");
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
    pub fn abandon_changes(&self, first: u64) -> Result<bool, Fault> {
        // Only flushed records may be dropped.
        self.flush()?;
        let flushed = {
            let mut seat = self.executor.lead();
            seat.changelog.note_flushed(self.flushed_seq());
            seat.changelog.flushed
        };
        if flushed < first {
            return Ok(false);
        }
        let mut given = Vec::new();
        let done = self.unless_full(&mut |ledger| {
            given = if ledger.first == first { ledger.abandon(flushed) } else { Vec::new() };
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
    debug_assert!(upto >= after, "mds-C2: numbers rise");
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

/// Bytes of a record on the wire beside its names, about.
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
