//! The ledger of the changelog: numbers, sizes and consumers of the notes that rules make of each operation (decision 0032).
//!
//! mds-C1: a change and its changelog record are in the same log entry. So no registered consumer sees one without the other.
//! mds-C2: numbers rise by one. Only flushed records are sent, and a start goes on behind the surviving ones. So a number that was sent
//!     means that change for ever.
//! mds-C3: a record is kept until every consumer has acknowledged it, or has been notified of its loss.
//! mds-C4: records take a bounded share of the MDT's space. Beyond it the oldest half is abandoned. The log and the consumers that still
//!     wanted some of it are notified.

pub mod load;

use std::collections::{BTreeMap, VecDeque};

use kv::{Engine, Value, record_bytes};
use meta::note::{ChangeRecord, ChangelogRecord, ConsumerRecord, consumer_of, number_of};
use meta::{Note, keys};
use types::{Code, Fault, Key, Seq, SessionId, Time};

use crate::records::look::until_loaded;
use crate::records::overlay::Layer;

/// Bytes of a typical record with its key.
const RECORD_BYTES: u64 = 64;
/// Entries whose flush is tracked one by one; later ones are tracked together.
const UNFLUSHED_MAX: usize = 4096;

/// The state of the changelog that is in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub consumers: BTreeMap<u32, ConsumerRecord>,
    /// The newest id that any consumer got.
    pub newest_consumer: u32,
    /// The first record; `last + 1` if there is none. The table has all from here to `last`.
    pub first: u64,
    pub last: u64,
    /// `bytes_before` of the first record, and of the next one to be made.
    pub first_at: u64,
    pub next_at: u64,
}

/// The changelog of a restored MDT: no consumer is registered, and numbers that may have been given after the backup are skipped.
#[derive(Default)]
pub struct Left {
    is_any: bool,
    last: u64,
    newest_consumer: u32,
}

/// More changes than an MDT can have made since its last backup.
const NUMBERS_AFTER_BACKUP: u64 = 1 << 32;
const CONSUMERS_AFTER_BACKUP: u32 = 1 << 16;

impl Left {
    /// Takes a record of the changelog, which is not restored. False: it is another record.
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

/// The ledger, and the records that are not flushed yet. Only the leader uses it.
#[derive(Debug, Default)]
pub struct Changelog {
    pub ledger: Ledger,
    /// The union of all consumers' masks.
    mask: u64,
    /// Records up to this number are flushed.
    pub flushed: u64,
    /// Entries that may be unflushed: seq of the last operation, number of the last record.
    unflushed: VecDeque<(Seq, u64)>,
}

/// The changelog records of a draft, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    pub records: u64,
    pub bytes: u64,
}

impl Ledger {
    /// Every consumer has acknowledged the records up to here.
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

    /// Abandons the oldest half of the records, but no unflushed one, since a lost number must not become another change's (mds-C2).
    /// Returns the consumers that still wanted some of it.
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

    /// The table's changes from this ledger to `next`. `forgotten`: numbers of records to delete.
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

/// Records that a consumer has lost.
pub struct Given {
    pub name: String,
    pub is_news: bool,
    pub from: u64,
    pub to: u64,
}

impl Changelog {
    /// Loads the changelog at a start, when all records of the table are flushed.
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

    /// Makes records of an operation's notes, numbered behind those of the draft.
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

    /// Adds an entry's records once it is in the log. `seq`: of its last operation.
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
