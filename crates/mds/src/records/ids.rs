//! Counters of fids, lease numbers and session ids.
//!
//! mds-O5: ids come from blocks that a log entry reserves. The entry is flushed before the first id of its block is given out. A power loss
//! skips the rest of a block and repeats no id.
//!
//! mds-I1: `next <= limit <= promised`; ids below `limit` may be given out, ids below `promised` are reserved in the log (not
//! yet flushed above `limit`).  mds-I2: `next` only rises.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Batch, Value};
use meta::View;
use types::{Code, Fault, Fid, Key, SessionId, Shard};

/// Key kind of the counters' records: `(9, which u8)` → limit u64, little-endian.
pub const KIND_COUNTER: u8 = meta::keys::COUNTER;
/// Ids in a block: at 100,000 creates per second one flush every 0.65 s, and 2^48 fids outlast four billion restarts.
pub const BLOCK: u64 = 65_536;
/// Most ids that one transaction may draw. A transaction starts only with so many left.
pub const TXN_IDS_MAX: u64 = 64;
/// A stored limit above this is damage: no device can log so many blocks, and blocks behind it would overflow.
const LIMIT_MAX: u64 = u64::MAX >> 2;
/// With fewer ids left, the flusher reserves the next block.
const LOW: u64 = BLOCK / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Fid = 1,
    Lease = 2,
    Session = 3,
}

const ALL: [Which; 3] = [Which::Fid, Which::Lease, Which::Session];

#[derive(Clone, Copy, Debug)]
struct Counter {
    next: u64,
    limit: u64,
    promised: u64,
}

impl Counter {
    fn draw(&mut self) -> Option<u64> {
        assert!(self.limit <= self.promised, "mds-M5: ids are given out only below a promised limit");
        let id = self.next;
        (id < self.limit).then(|| {
            self.next += 1;
            id
        })
    }
    fn left(&self) -> u64 {
        assert!(self.next <= self.limit, "mds-M5: no id at or above the limit was given out");
        self.limit - self.next
    }
}

#[derive(Clone, Debug)]
pub struct Ids {
    shard: Shard,
    counters: [Counter; 3],
    /// The newest lease number, for threads that may not wait for the executor.
    newest_lease: Arc<AtomicU64>,
}

impl Ids {
    /// Counters as a table has them. All ids up to the reserved limits count as used. None can be drawn before `promise`, a flush and `keep`.
    pub fn load(view: &dyn View) -> Result<Ids, Fault> {
        let first = |w: Which| if w == Which::Fid { Fid::FIRST } else { 1 };
        let mut counters = ALL.map(|w| Counter { next: first(w), limit: first(w), promised: first(w) });
        for which in ALL {
            if let Some(bytes) = view.get(&key(which)) {
                let limit = u64::from_le_bytes(bytes[..].try_into().map_err(|_| damaged(&key(which)))?);
                if limit > LIMIT_MAX {
                    return Err(damaged(&key(which)));
                }
                let start = limit.max(first(which));
                counters[which as usize - 1] = Counter { next: start, limit: start, promised: start };
            }
        }
        // Any lower number may have been given out before the restart.
        let newest_lease = Arc::new(AtomicU64::new(counters[Which::Lease as usize - 1].next - 1));
        Ok(Ids { shard: Shard(0), counters, newest_lease })
    }

    /// Limits of the fid counter and of session ids. No id from here on was given out.
    pub fn limits(&self) -> (u64, SessionId) {
        (self.counters[0].limit, SessionId(self.counters[2].limit))
    }

    /// The newest lease number that was given out, before or after the restart.
    pub fn newest_lease(&self) -> Arc<AtomicU64> {
        self.newest_lease.clone()
    }

    /// Sets the shard of fids. It is known once the MDT has registered, before the first fid is drawn.
    pub fn set_shard(&mut self, shard: Shard) {
        self.shard = shard
    }

    /// True when the background should reserve the next block.
    pub fn are_low(&self) -> bool {
        self.counters.iter().any(|c| c.left() < LOW && c.promised == c.limit)
    }
    /// True if a transaction may start.
    pub fn are_enough(&self) -> bool {
        self.counters.iter().all(|c| c.left() >= TXN_IDS_MAX)
    }

    /// The entry that reserves another block for each low counter. Call `keep` with the promise once the entry is flushed.
    pub fn promise(&mut self) -> Result<(Batch, Promise), Fault> {
        let mut batch = Batch::new();
        for which in ALL {
            let c = &mut self.counters[which as usize - 1];
            if c.left() >= LOW {
                continue;
            }
            // After a failed flush the next promise lies further on, and skips the block of this one.
            c.promised += BLOCK;
            if which != Which::Lease && c.promised > 1 << 48 {
                return Err(Fault::new(
                    Code::NoSpace,
                    "this shard has given out all of its 2^48 fids or session ids; use another",
                ));
            }
            assert!(c.promised > c.limit, "mds-M5: a promise raises the limit");
            batch.put(key(which), Value::new(&c.promised.to_le_bytes()));
        }
        Ok((batch, Promise(self.counters.map(|c| c.promised))))
    }

    /// The reservation is flushed, so its ids may be given out.
    pub fn keep(&mut self, promise: Promise) {
        for (c, promised) in self.counters.iter_mut().zip(promise.0) {
            assert!(promised <= c.promised, "mds-O5: a promise that was never made");
            c.limit = c.limit.max(promised);
            assert!(c.next <= c.limit && c.limit <= c.promised, "mds-I1");
        }
    }

    pub fn next_fid(&mut self) -> Option<Fid> {
        self.counters[0].draw().map(|n| Fid::new(self.shard, n))
    }
    /// Up to `count` fids in a row: the first, and how many. Transactions keep enough (`are_enough`).
    pub fn draw_fids(&mut self, count: u64) -> Option<(Fid, u64)> {
        let counter = &mut self.counters[0];
        let count = count.min(counter.left().saturating_sub(2 * TXN_IDS_MAX));
        let first = Fid::new(self.shard, counter.next);
        counter.next += count;
        assert!(counter.next <= counter.limit, "mds-M5: ids are given out only below a promised limit");
        (count > 0).then_some((first, count))
    }
    /// A lease number: its low half is the counter in capabilities, its high half is added to the epoch, so that versions
    /// rise also when the low half starts again.
    pub fn next_lease(&mut self) -> Option<u64> {
        let number = self.counters[1].draw()?;
        // Before the number leaves, so before any object sees it.
        self.newest_lease.store(number, Ordering::SeqCst);
        Some(number)
    }
    /// A session id, which is unique over all targets of the file system: the MGS gave this MDT its shard, and no other has it.
    pub fn next_session(&mut self) -> Option<SessionId> {
        let number = self.counters[2].draw()?;
        assert!(number < 1 << 48, "a shard's sessions have 48 bits");
        Some(SessionId((self.shard.0 as u64) << 48 | number))
    }

    /// Skips numbers as if they were given out and flushed, for the test of the low half's end.
    #[cfg(test)]
    pub fn skip_leases_to(&mut self, next: u64) {
        self.counters[1] = Counter { next, limit: next + BLOCK, promised: next + BLOCK };
        self.newest_lease.store(next - 1, Ordering::SeqCst);
    }

    /// Skips fids as if they were given out.
    #[cfg(test)]
    pub fn skip_fids(&mut self, some: u64) {
        self.counters[0].next += some;
    }

    /// True if this shard gave the fid out, or if it is another shard's. A replay may ask for no other.
    pub fn was_given(&self, fid: Fid) -> bool {
        fid.allocating_shard() != self.shard || fid.counter() < self.counters[0].next
    }
}

/// Limits that hold once their entry is flushed.
#[derive(Clone, Copy, Debug)]
pub struct Promise([u64; 3]);

/// Ids that a restore skips per counter: 127 days at 100,000 per second, more than a backup is old. Fids last for 256 restores.
const RESTORE_SKIP: u64 = 1 << 40;

/// Counter records of a restored MDT.
pub fn raised(view: &dyn View) -> Result<Vec<(Key, Value)>, Fault> {
    let mut all = Vec::new();
    for which in ALL {
        let Some(bytes) = view.get(&key(which)) else { continue };
        let limit = u64::from_le_bytes(bytes[..].try_into().map_err(|_| damaged(&key(which)))?);
        let limit = limit.saturating_add(RESTORE_SKIP);
        all.push((key(which), Value::new(&limit.to_le_bytes())));
    }
    Ok(all)
}

/// Keys of the counter records.
pub fn keys() -> [Key; 3] {
    ALL.map(key)
}

fn key(which: Which) -> Key {
    Key::new(&[KIND_COUNTER, which as u8]).expect("two bytes fit")
}

fn damaged(key: &Key) -> Fault {
    Fault::new(
        Code::Damaged,
        format!("counter record {key:?} cannot be read; restore the MDT from its mirror"),
    )
}

/// For transactions that draw no lease number.
pub fn no_lease() -> Cell<u32> {
    Cell::new(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docs/formats/mdt.md` has it: a limit for each counter.
    #[test]
    fn golden() {
        let mut ids = Ids::load(&meta::mem::MemTxn::default()).unwrap();
        let (batch, _) = ids.promise().unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let records: Vec<_> =
            batch.0.iter().map(|c| (hex(c.key.as_bytes()), c.value.as_ref().map(|v| hex(v.raw())))).collect();
        let limit = |first: u64| Some(hex(&(first + BLOCK).to_le_bytes()));
        let want = [("0901", limit(16)), ("0902", limit(1)), ("0903", limit(1))];
        assert_eq!(records, want.map(|(key, value)| (key.to_owned(), value)));
    }
}
