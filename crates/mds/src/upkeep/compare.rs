//! One member's records for a comparison with the other member's, range by range (decision 0076). `verify.rs` is the primary's side of it.
//!
//! mds-CM1: both members compare one state, as of one position of the log. The primary leads while both take it, so that no entry comes between.
//! mds-CM2: records are read without a lock that entries need. A take-over waits for one range at most.
//! mds-CM3: a record that a member cannot read is damage of that member, and no difference.
//!
//! All that follows from the log counts: the table's records, slots, and pending counts. A member has no record of its own beside those.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kv::Engine;
use meta::counts::Pending;
use parking_lot::Mutex;
use types::{Code, Fault, Key};
use wire::codec::Bytes;
use wire::pair::{CompareRecords, CompareRecordsReply, CompareStep, KeySeen, PartSeen};

use crate::Records;
use crate::executor::slots::Slots;
use crate::records::look::{Next, Page, Walk, Walks, page_before};

/// Most records of a range, and most bytes of them, about: a page of both members is in memory at once.
const RECORDS_MAX: usize = if cfg!(test) { 16 } else { 4096 };
const BYTES_MAX: usize = 1 << 20;
/// A state that was not asked for so long is dropped: it keeps replaced leaves on the medium.
const IDLE: Duration = Duration::from_secs(60);

/// One member's state.
pub struct Side {
    walk: Arc<Walk<Records>>,
    /// Slots and pending counts, which are not in the table.
    rest: BTreeMap<Key, Vec<u8>>,
}

/// Records of a range of keys.
pub struct Part {
    /// All from the begin of the range on and before `until`, in order.
    pub records: Vec<(Key, Vec<u8>)>,
    pub until: Key,
    /// mds-CM3: from `until` on and before this key nothing can be read.
    pub lost_until: Option<Key>,
}

impl Side {
    pub fn of(
        walks: &Walks<Records>,
        snap: <Records as Engine>::Snap,
        slots: &Slots,
        counts: &Pending,
    ) -> Side {
        let slots = slots.records().map(|(key, value)| (key, value.raw().to_vec()));
        Side { walk: walks.begin(snap), rest: slots.chain(counts.records()).collect() }
    }

    pub fn rest(&self) -> u64 {
        self.rest.len() as u64
    }

    /// As many records from `from` on and before `until` as a range may have.
    pub fn part(&self, kv: &Records, from: &Key, until: &Key) -> Result<Part, Fault> {
        let Page { mut records, next } =
            self.walk.slice(kv, |snap| page_before(kv, snap, from, until, RECORDS_MAX, BYTES_MAX))?;
        let (mut limit, mut lost_until) = match next {
            Next::Nothing => (*until, None),
            Next::More(key) => (key.min(*until), None),
            Next::Damage(damage) if damage.key < *until => (damage.key, Some(damage.end)),
            Next::Damage(_) => (*until, None),
        };
        assert!(*from <= limit && limit <= *until, "a part lies in its range");
        if *from < limit {
            let rest = self.rest.range(*from..limit).take(RECORDS_MAX + 1);
            records.extend(rest.map(|(key, value)| (*key, value.clone())));
            records.sort_unstable_by_key(|(key, _)| *key);
        }
        if records.len() > RECORDS_MAX {
            records.truncate(RECORDS_MAX);
            let (last, _) = records.last().expect("there are more than none");
            (limit, lost_until) = (last.after(), None);
        }
        Ok(Part { records, until: limit, lost_until })
    }
}

impl Part {
    /// The begin of the next part.
    pub fn next(&self) -> Key {
        self.lost_until.unwrap_or(self.until)
    }

    /// The part of it before a key.
    pub fn cut(&mut self, until: &Key) {
        if *until < self.until {
            self.records.retain(|(key, _)| key < until);
            (self.until, self.lost_until) = (*until, None);
        }
    }

    pub fn hash(&self) -> [u8; 32] {
        let mut hash = blake3::Hasher::new();
        for (key, value) in &self.records {
            let key = key.as_bytes();
            hash.update(&[key.len() as u8]);
            hash.update(key);
            hash.update(&(value.len() as u32).to_le_bytes());
            hash.update(value);
        }
        *hash.finalize().as_bytes()
    }

    fn seen(&self, has_keys: bool) -> PartSeen {
        let keys = self.records.iter().filter(|_| has_keys);
        PartSeen {
            until: bytes(&self.until),
            lost_until: self.lost_until.as_ref().map(bytes),
            records: self.records.len() as u64,
            hash: Bytes(self.hash().to_vec()),
            keys: keys.map(|(key, value)| KeySeen { key: bytes(key), hash: hash_of(value) }).collect(),
        }
    }
}

/// Of one value.
pub fn hash_of(value: &[u8]) -> u64 {
    let hash = blake3::hash(value);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

pub fn bytes(key: &Key) -> Bytes {
    Bytes(key.as_bytes().to_vec())
}

pub fn key_of(bytes: &Bytes) -> Result<Key, Fault> {
    Key::new(bytes).ok_or_else(|| Fault::new(Code::BadRequest, "a key that is too long"))
}

/// The state that a standby keeps for its primary. One at a time.
#[derive(Default)]
pub struct Comparing {
    kept: Mutex<Kept>,
    pub walks: Arc<Walks<Records>>,
    runs: AtomicU64,
}

#[derive(Default)]
struct Kept {
    run: Option<Run>,
    /// No state is kept any more.
    is_over: bool,
}

struct Run {
    number: u64,
    kv: Arc<Records>,
    side: Side,
    used: Instant,
}

impl Comparing {
    /// `take`: the present state, if it is that of the position that was asked for.
    pub fn answer(
        &self,
        wanted: &CompareRecords,
        take: impl FnOnce(types::Seq) -> Result<Option<(Arc<Records>, Side)>, Fault>,
    ) -> Result<CompareRecordsReply, Fault> {
        let mut kept = self.kept.lock();
        if kept.is_over {
            return Err(Fault::new(Code::NotReady, "this standby ends, and compares nothing any more"));
        }
        let (run, from, until, has_keys) = match &wanted.step {
            CompareStep::Begin { seq } => {
                kept.run = None;
                let Some((kv, side)) = take(*seq)? else {
                    return Ok(CompareRecordsReply { run: 0, part: None });
                };
                let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
                kept.run = Some(Run { number, kv, side, used: Instant::now() });
                return Ok(CompareRecordsReply { run: number, part: None });
            }
            CompareStep::End { run } => {
                kept.run = kept.run.take().filter(|kept| kept.number != *run);
                return Ok(CompareRecordsReply { run: 0, part: None });
            }
            CompareStep::Hash { run, from, until } => (*run, from, until, false),
            CompareStep::Keys { run, from, until } => (*run, from, until, true),
        };
        let (from, until) = (key_of(from)?, key_of(until)?);
        if from > until {
            return Err(Fault::new(Code::BadRequest, "a range of keys ends before it begins"));
        }
        let Some(kept) = kept.run.as_mut().filter(|kept| kept.number == run) else {
            return Err(Fault::new(
                Code::Stale,
                "this standby has dropped the state that it compared; begin anew",
            ));
        };
        kept.used = Instant::now();
        let part = kept.side.part(&kept.kv, &from, &until)?;
        Ok(CompareRecordsReply { run, part: Some(part.seen(has_keys)) })
    }

    /// Drops a state that the primary does not ask for.
    pub fn sweep(&self) {
        if let Some(mut kept) = self.kept.try_lock() {
            kept.run = kept.run.take().filter(|run| run.used.elapsed() < IDLE);
        }
    }

    /// mds-CM2. Nothing of the table is held afterwards.
    pub fn end(&self) {
        let mut kept = self.kept.lock();
        (kept.run, kept.is_over) = (None, true);
    }
}
