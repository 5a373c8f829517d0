//! Write-behind of one file: writes that a program was told are done, until their targets have acknowledged them or they are lost.
//!
//! plan-B1: writes of a line never overlap. Of two overlapping writes the later one is added after the earlier one has ended.
//! plan-B2: each write is started once and ends once, and the first one that waits is started first.
//! plan-B3: a write joins only one that has not started and that it continues, within one request's range.

use std::collections::VecDeque;
use std::ops::Range;

use types::BULK_MAX;

/// Joined writes stay within one block of this size, so that full ones are aligned.
const BLOCK: u64 = BULK_MAX as u64;

/// A write: its bytes' range in the file, its number, and the caller's data of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Due<T> {
    pub range: Range<u64>,
    pub number: u64,
    pub what: T,
}

/// The writes of one file, in the order in which they were added.
#[derive(Debug)]
pub struct Line<T> {
    waiting: VecDeque<Due<T>>,
    started: Vec<(u64, Range<u64>)>,
    next: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { waiting: VecDeque::new(), started: Vec::new(), next: 0 }
    }
}

impl<T> Line<T> {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.started.is_empty()
    }

    /// plan-B1: true if a write of this range has to wait.
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.waiting.iter().any(|due| meets(&due.range)) || self.started.iter().any(|(_, r)| meets(r))
    }

    /// plan-B3: the write that takes in one of this range, if there is one and it `is_alike`.
    pub fn join(&mut self, range: &Range<u64>, is_alike: impl FnOnce(&T) -> bool) -> Option<&mut T> {
        let last = self.waiting.back_mut()?;
        let is_one_block = (range.end - 1) / BLOCK == last.range.start / BLOCK;
        if last.range.end != range.start || !is_one_block || !is_alike(&last.what) {
            return None;
        }
        last.range.end = range.end;
        Some(&mut last.what)
    }

    /// The data of writes that have not started.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.waiting.iter_mut().map(|due| &mut due.what)
    }

    /// Adds a write behind all others. The caller has asked `overlaps`.
    pub fn add(&mut self, range: Range<u64>, what: T) {
        assert!(!range.is_empty(), "a write has bytes");
        assert!(!self.overlaps(&range), "plan-B1: writes of a line never overlap");
        self.waiting.push_back(Due { range, number: self.next, what });
        self.next += 1;
    }

    /// The number behind the last write. `has_ended_below` of it tells whether all present writes have ended.
    pub fn end(&self) -> u64 {
        self.next
    }
    pub fn has_ended_below(&self, number: u64) -> bool {
        self.waiting.front().is_none_or(|due| due.number >= number)
            && self.started.iter().all(|(n, _)| *n >= number)
    }

    /// True if `start` gives a write. While one is under way, the last one waits for more bytes, unless it has a block or `is_urgent`.
    pub fn can_start(&self, is_urgent: bool) -> bool {
        let Some(Due { range, .. }) = self.waiting.front() else { return false };
        let is_grown = self.waiting.len() > 1 || range.end % BLOCK == 0 || range.end - range.start >= BLOCK;
        is_urgent || is_grown || self.started.is_empty()
    }

    /// plan-B2: takes the first write that waits. The caller carries it out and calls `ended`.
    pub fn start(&mut self, is_urgent: bool) -> Option<Due<T>> {
        if !self.can_start(is_urgent) {
            return None;
        }
        let due = self.waiting.pop_front()?;
        self.started.push((due.number, due.range.clone()));
        Some(due)
    }

    pub fn ended(&mut self, number: u64) {
        let at = self.started.iter().position(|(n, _)| *n == number);
        self.started.swap_remove(at.expect("plan-B2: a write that was started ends once"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers from a seed.
    struct Random(u64);
    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % limit
        }
    }

    #[test]
    fn small_writes_grow_while_another_one_is_under_way() {
        let mut line = Line::default();
        line.add(0..10, vec![1]);
        let first = line.start(false).expect("nothing is under way");
        assert_eq!((first.range, first.what), (0..10, vec![1]));
        line.add(10..20, vec![2]);
        assert!(!line.can_start(false) && line.can_start(true));
        line.join(&(20..30), |_| true).expect("it continues").push(3);
        assert!(line.join(&(31..40), |_| true).is_none(), "a gap");
        assert!(line.join(&(30..BLOCK + 1), |_| true).is_none(), "another block");
        line.join(&(30..BLOCK), |_| true).expect("up to the block's end").push(4);
        let second = line.start(false).expect("a whole block");
        assert_eq!((second.range, second.what), (10..BLOCK, vec![2, 3, 4]));
        assert!(line.join(&(BLOCK..BLOCK + 1), |_| true).is_none(), "it has started");
        assert!(
            line.overlaps(&(5..6))
                && line.overlaps(&(BLOCK - 1..BLOCK))
                && !line.overlaps(&(BLOCK..BLOCK + 1))
        );
        assert!(!line.has_ended_below(line.end()));
        line.ended(second.number);
        assert!(!line.has_ended_below(first.number + 1) && line.has_ended_below(first.number));
        line.ended(first.number);
        assert!(line.is_empty() && line.has_ended_below(line.end()));
    }

    /// plan-B1 to plan-B3: whatever order they are carried out in, the file has what its writes gave it one after the other.
    #[test]
    fn any_order_of_ends_gives_the_content_of_one_write_after_another() {
        const LEN: u64 = 3 * BLOCK / 4096;
        for seed in 0..2000 {
            let mut random = Random(seed);
            let (mut line, mut model, mut file) =
                (Line::<Vec<u8>>::default(), vec![0; LEN as usize], vec![0; LEN as usize]);
            let mut under_way: Vec<Due<Vec<u8>>> = Vec::new();
            let mut at = 0;
            for step in 1..=60u8 {
                match random.below(4) {
                    // A unit of this test stands for a page.
                    0 | 1 => {
                        if random.below(4) == 0 {
                            at = random.below(LEN);
                        }
                        let len = (1 + random.below(90)).min(LEN - at % LEN);
                        let begin = at % LEN;
                        at = begin + len;
                        let range = begin * 4096..at * 4096;
                        if line.overlaps(&range) {
                            continue;
                        }
                        let bytes = vec![step; len as usize];
                        model[begin as usize..at as usize].copy_from_slice(&bytes);
                        match line.join(&range, |_| true) {
                            Some(what) => what.extend(bytes),
                            None => line.add(range, bytes),
                        }
                    }
                    2 => under_way.extend(line.start(random.below(8) == 0)),
                    _ if under_way.is_empty() => {}
                    _ => {
                        let due = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                        let begin = (due.range.start / 4096) as usize;
                        assert_eq!(due.what.len() as u64 * 4096, due.range.end - due.range.start);
                        file[begin..begin + due.what.len()].copy_from_slice(&due.what);
                        line.ended(due.number);
                    }
                }
            }
            while let Some(due) = under_way.pop().or_else(|| line.start(true)) {
                let begin = (due.range.start / 4096) as usize;
                file[begin..begin + due.what.len()].copy_from_slice(&due.what);
                // Those that were taken above are ended here, too.
                line.ended(due.number);
            }
            assert!(line.is_empty() && file == model, "seed {seed}");
        }
    }
}
