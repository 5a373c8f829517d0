//! Retained requests: acknowledged by a target but not yet flushed. If the target loses them, the client replays them.
//!
//! plan-P1: replays go in acknowledged order (the order of the target's log), so overlapping writes end with the same bytes.
//! plan-P2: a request that the recovered target has carried out, by its slot table, is not replayed.
//! plan-P3: memory is bounded: past `bytes_max` the client flushes the target before it retains more.

use std::collections::BTreeMap;

use types::Seq;
use wire::session::comes_after;

/// Memory of a retained request beside its bytes, so that many small requests stay within the bound too.
const ENTRY_BYTES: usize = 256;

/// A request that a target acknowledged as entry `seq`.
#[derive(Debug)]
pub struct Kept<T> {
    pub seq: Seq,
    pub slot: u32,
    pub sequence: u32,
    /// Body and bulk bytes.
    pub bytes: usize,
    pub what: T,
}

/// The acknowledged requests of one session at one target.
#[derive(Debug)]
pub struct Retention<T> {
    kept: BTreeMap<(Seq, u32), Kept<T>>,
    bytes: usize,
    bytes_max: usize,
}

impl<T> Retention<T> {
    pub fn new(bytes_max: usize) -> Retention<T> {
        Retention { kept: BTreeMap::new(), bytes: 0, bytes_max }
    }

    /// Retains a request. A repeated answer has the same entry and slot, and replaces the older request.
    pub fn keep(&mut self, kept: Kept<T>) {
        self.bytes += kept.bytes + ENTRY_BYTES;
        if let Some(old) = self.kept.insert((kept.seq, kept.slot), kept) {
            assert!(self.bytes >= old.bytes + ENTRY_BYTES, "plan-P3: the sum has every retained request");
            self.bytes -= old.bytes + ENTRY_BYTES;
        }
        assert!(self.bytes >= self.kept.len() * ENTRY_BYTES, "plan-P3: each retained request is counted");
    }

    /// Drops the requests up to entry `flushed`: they are durable.
    pub fn release(&mut self, flushed: Seq) {
        while let Some(first) = self.kept.first_entry().filter(|e| e.key().0 <= flushed) {
            self.bytes -= first.remove().bytes + ENTRY_BYTES;
        }
        assert!(!self.kept.is_empty() || self.bytes == 0, "plan-P3: no bytes are counted without a request");
    }

    /// plan-P3: true if the target must be flushed before the next request is sent.
    pub fn is_over(&self) -> bool {
        self.bytes > self.bytes_max
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn len(&self) -> usize {
        self.kept.len()
    }
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Takes out the requests that a recovered target has lost, in acknowledged order. `carried_out`: for each slot the highest sequence
    /// that the target has.
    pub fn take_lost(&mut self, carried_out: &[u32]) -> Vec<Kept<T>> {
        let is_lost =
            |k: &Kept<T>| carried_out.get(k.slot as usize).is_none_or(|have| comes_after(k.sequence, *have));
        let (lost, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.kept).into_iter().partition(|(_, k)| is_lost(k));
        self.kept = rest.into_iter().collect();
        self.bytes -= lost.iter().map(|(_, k)| k.bytes + ENTRY_BYTES).sum::<usize>();
        assert!(!self.kept.is_empty() || self.bytes == 0, "plan-P3: no bytes are counted without a request");
        assert!(lost.is_sorted_by_key(|(at, _)| *at), "plan-P1: a replay is in acknowledged order");
        debug_assert!(
            self.kept.values().all(|k| !is_lost(k)),
            "plan-P2: only requests that the target has stay behind"
        );
        lost.into_iter().map(|(_, k)| k).collect()
    }

    /// Takes out all requests, in acknowledged order: the session was evicted, so no replay is possible.
    pub fn take_all(&mut self) -> Vec<Kept<T>> {
        self.take_lost(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seq: u64, slot: u32, sequence: u32) -> Kept<u64> {
        Kept { seq: Seq(seq), slot, sequence, bytes: 1000, what: seq }
    }

    #[test]
    fn what_is_lost_comes_back_in_acknowledged_order() {
        let mut r = Retention::new(1 << 20);
        // Answers may come in another order than entries were made.
        for k in [kept(12, 0, 2), kept(10, 1, 1), kept(11, 0, 1), kept(13, 2, 5), kept(9, 3, 1)] {
            r.keep(k);
        }
        r.release(Seq(9));
        assert_eq!(r.len(), 4);
        // Slot 0 has carried out sequence 1, slot 1 sequence 1; slot 2 has none of our requests.
        let lost: Vec<u64> = r.take_lost(&[1, 1, 4]).into_iter().map(|k| k.what).collect();
        assert_eq!(lost, [12, 13]);
        assert_eq!(r.len(), 2);
        r.release(Seq(11));
        assert!(r.is_empty());
        assert_eq!(r.bytes(), 0);
    }

    #[test]
    fn a_target_without_our_slots_lost_everything() {
        let mut r = Retention::new(1 << 20);
        r.keep(kept(2, 0, 1));
        r.keep(kept(1, 5, 1));
        assert_eq!(r.take_lost(&[]).iter().map(|k| k.what).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn memory_is_bounded_by_flushing() {
        let mut r = Retention::new(3000);
        r.keep(kept(1, 0, 1));
        r.keep(kept(2, 1, 1));
        assert!(!r.is_over());
        r.keep(kept(2, 1, 1));
        assert!(!r.is_over(), "a repeated answer is kept once");
        r.keep(kept(3, 2, 1));
        assert!(r.is_over());
        r.release(Seq(1));
        assert!(!r.is_over());
    }
}
