//! Unflushed requests: they are retained until their target has flushed them. The files of requests that were flushed lately are remembered.
//!
//! A target may come back without entries that it reported as flushed: its medium lied, or a page was damaged before recovery knew of the
//! flush. No replay helps then, since the requests are no longer retained. The remembered files tell which files lost something.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plan::replay::{Kept, Retention};
use types::{Fid, Seq};

use crate::session::slots::Sendable;

/// Most released requests that are remembered, 1 MiB per target; neighbours of one file count once. Recovery knows of a flush within one commit
/// interval, so it can lose nothing that is older than two of them.
const RELEASED_MAX: usize = 65_536;

pub(crate) struct Owed {
    kept: Retention<Sendable>,
    /// The file of each kept entry.
    fids: BTreeMap<Seq, Fid>,
    released: VecDeque<(Seq, Fid)>,
}

impl Owed {
    pub fn new(bytes_max: usize) -> Owed {
        Owed { kept: Retention::new(bytes_max), fids: BTreeMap::new(), released: VecDeque::new() }
    }

    pub fn keep(&mut self, kept: Kept<Sendable>) {
        self.fids.insert(kept.seq, kept.what.fid);
        self.kept.keep(kept);
    }

    /// The target reports everything up to `flushed` as durable.
    pub fn release(&mut self, flushed: Seq) {
        self.kept.release(flushed);
        while let Some(first) = self.fids.first_entry().filter(|e| *e.key() <= flushed) {
            let (seq, fid) = first.remove_entry();
            match self.released.back_mut() {
                Some((last, of)) if *of == fid => *last = seq,
                _ => self.released.push_back((seq, fid)),
            }
        }
        let over = self.released.len().saturating_sub(RELEASED_MAX);
        self.released.drain(..over);
    }

    /// Files of released entries above `have`, which the target has lost. Returned once.
    pub fn take_released_above(&mut self, have: Seq) -> BTreeSet<Fid> {
        let (gone, rest): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.released).into_iter().partition(|(seq, _)| *seq > have);
        self.released = rest;
        gone.into_iter().map(|(_, fid)| fid).collect()
    }

    pub fn is_over(&self) -> bool {
        self.kept.is_over()
    }

    pub fn take_lost(&mut self, carried_out: &[u32]) -> Vec<Kept<Sendable>> {
        let lost = self.kept.take_lost(carried_out);
        debug_assert!(lost.is_sorted_by_key(|kept| kept.seq), "plan-P1: replays go in acknowledged order");
        for kept in &lost {
            self.fids.remove(&kept.seq);
        }
        lost
    }

    pub fn take_all(&mut self) -> Vec<Kept<Sendable>> {
        self.fids.clear();
        self.kept.take_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Header;

    fn kept(seq: u64, fid: u64) -> Kept<Sendable> {
        let what = Sendable { head: Header::default(), body: vec![], bulk: vec![], fid: Fid(fid) };
        Kept { seq: Seq(seq), slot: 0, sequence: seq as u32, bytes: 0, what }
    }

    #[test]
    fn whose_requests_were_released_is_known_and_told_once() {
        let mut owed = Owed::new(1 << 20);
        for (seq, fid) in [(3, 7), (5, 8), (6, 8), (7, 7), (9, 9), (12, 10)] {
            owed.keep(kept(seq, fid));
        }
        owed.release(Seq(9));
        // A request that is still kept is replayed, or is lost by itself.
        assert_eq!(owed.take_lost(&[]).len(), 1);
        assert_eq!(owed.take_released_above(Seq(5)), [Fid(7), Fid(8), Fid(9)].into());
        assert_eq!(owed.take_released_above(Seq(5)), [].into());
        assert_eq!(owed.take_released_above(Seq(0)), [Fid(7)].into());
        // Numbers start over below what was lost; nothing old is left in the way.
        owed.keep(kept(6, 20));
        owed.release(Seq(6));
        assert_eq!(owed.take_released_above(Seq(5)), [Fid(20)].into());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut owed = Owed::new(1 << 20);
        for n in 0..RELEASED_MAX as u64 + 10 {
            owed.keep(kept(n + 1, n));
            owed.release(Seq(n + 1));
        }
        assert_eq!(owed.take_released_above(Seq(0)).len(), RELEASED_MAX);
    }
}
