//! The changelog: change records of operations, kept in the table until all consumers have acknowledged them (decision 0032).
//!
//! mds-C1: a change and its record are in the same log entry. While a consumer is registered for that kind of change, neither exists without
//!     the other.
//! mds-C2: numbers rise by one. Consumers read flushed records only, and a start continues behind the last surviving number. So a number that
//!     was read means the same change for ever.
//! mds-C3: a record is kept until every consumer has acknowledged it, or was told that it is lost.
//! mds-C4: records use a share of the MDT's space and no more. Beyond it the oldest half is dropped; the log and the affected consumers
//!     are told.

pub mod load;

use std::collections::{BTreeMap, VecDeque};

use kv::{Engine, Value, record_bytes};
use meta::note::{ChangeRecord, ChangelogRecord, ConsumerRecord, NUMBER_MAX, consumer_of, number_of};
use meta::{Note, keys};
use types::{Code, Fault, Key, Seq, SessionId, Time};

use crate::records::look::until_loaded;
use crate::records::overlay::Layer;

/// Bytes of a typical record with its key.
const RECORD_BYTES: u64 = 64;
/// Entries whose flush is tracked one by one. Later ones are tracked together with the last.
const UNFLUSHED_MAX: usize = 4096;

/// State of the changelog in memory, so that the table need not be read for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub consumers: BTreeMap<u32, ConsumerRecord>,
    /// The newest consumer id that was given out.
    pub newest_consumer: u32,
    /// The first record; `last + 1` if there is none. All from here to `last` exist.
    pub first: u64,
    pub last: u64,
    /// `bytes_before` of the first record, and of the next one.
    pub first_at: u64,
    pub next_at: u64,
}

/// The part of a backup's changelog that a restore keeps: no consumers, and numbers past all that were used after the backup.
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
        let number = self.last.saturating_add(NUMBERS_AFTER_BACKUP).min(NUMBER_MAX);
        let consumer = self.newest_consumer.saturating_add(CONSUMERS_AFTER_BACKUP);
        let record = ChangelogRecord { number, consumer };
        self.is_any.then(|| (keys::consumer(0), Value::new(&record.encode())))
    }
}

/// The ledger and its flush state. Only the executor's leader touches it.
#[derive(Debug, Default)]
pub struct Changelog {
    pub ledger: Ledger,
    /// Union of the consumers' masks.
    mask: u64,
    /// Records up to this number are flushed.
    pub flushed: u64,
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
    pub fn floor(&self) -> u64 {
        self.consumers.values().map(|c| c.acked).min().unwrap_or(self.last)
    }

    pub fn bytes(&self) -> u64 {
        assert!(self.first_at <= self.next_at, "the records' bytes are a range");
        self.next_at - self.first_at
    }

    pub fn consumer(&self, id: u32) -> Result<&ConsumerRecord, Fault> {
        self.consumers.get(&id).ok_or_else(|| no_consumer(id))
    }

    pub fn consumer_mut(&mut self, id: u32) -> Result<&mut ConsumerRecord, Fault> {
        self.consumers.get_mut(&id).ok_or_else(|| no_consumer(id))
    }

    /// Drops the oldest half of the flushed records, and returns the consumers that lose some. Unflushed records stay: a number that was
    /// reported as lost must not be given to a later change (mds-C2).
    pub fn abandon(&mut self, flushed: u64) -> Vec<Given> {
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
    pub fn difference(&self, next: &Ledger, forgotten: Vec<u64>) -> Layer {
        assert!(next.last >= self.last, "mds-C2: numbers rise");
        assert!(next.newest_consumer >= self.newest_consumer, "ids of consumers rise");
        assert!(next.first >= self.first, "forgotten records do not come back");
        assert!(next.first <= next.last + 1, "the first record is at most the next one to be made");
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

/// Changes that a consumer loses.
pub struct Given {
    pub name: String,
    pub is_news: bool,
    pub from: u64,
    pub to: u64,
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

    pub fn take(&mut self, ledger: Ledger) {
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
        assert!(noted.records > 0, "an entry without records is not added");
        assert!(noted.bytes >= noted.records, "each record takes bytes");
        self.ledger.last += noted.records;
        self.ledger.next_at += noted.bytes;
        self.note_flushed(flushed);
        let newest = (seq, self.ledger.last);
        debug_assert!(
            self.unflushed.back().is_none_or(|(before, _)| *before < seq),
            "mds-C2: entries come in log order"
        );
        let is_long = self.unflushed.len() >= UNFLUSHED_MAX;
        match self.unflushed.back_mut().filter(|_| is_long) {
            Some(back) => *back = newest,
            None => self.unflushed.push_back(newest),
        }
    }

    pub fn note_flushed(&mut self, flushed: Seq) {
        while let Some((_, number)) = self.unflushed.pop_front_if(|(seq, _)| *seq <= flushed) {
            assert!(number >= self.flushed, "mds-C2: numbers rise");
            self.flushed = number;
        }
        assert!(self.flushed <= self.ledger.last, "a flushed record was made");
    }

    pub fn bytes(&self) -> u64 {
        self.ledger.bytes()
    }

    /// The numbers of the first and the last record.
    #[cfg(test)]
    pub fn numbers(&self) -> (u64, u64) {
        (self.ledger.first, self.ledger.last)
    }

    #[cfg(test)]
    pub fn force_abandon(&mut self) {
        self.ledger.abandon(self.flushed);
    }
}

fn no_consumer(id: u32) -> Fault {
    Fault::new(Code::NotFound, format!("no consumer {id} is registered; `stria changelog list` shows all"))
}
