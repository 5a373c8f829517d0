//! Bounds the data that is being written to a medium, so that a log write waits for little of it. A commit has one log write at each member,
//! and media serve requests in their order of arrival.
//!
//! A thread in the lane waits for its own medium alone.

use parking_lot::{Condvar, Mutex};

/// Most bytes under way: a fast drive is busy with these, and a drive of 150 MiB/s has written them in 30 ms.
const UNDER_WAY_MAX: usize = 4 << 20;
/// Smaller writes pass: they hold up a log write as little as another one.
const SMALL: usize = 64 << 10;

#[derive(Debug, Default)]
pub struct Lane {
    under_way: Mutex<usize>,
    freed: Condvar,
}

/// A place in the lane, until it is dropped.
pub struct Place<'a> {
    lane: &'a Lane,
    bytes: usize,
}

impl Lane {
    /// Waits for a place. A write that is larger than the lane has it for itself.
    pub fn enter(&self, bytes: usize) -> Place<'_> {
        let bytes = if bytes < SMALL { 0 } else { bytes };
        let mut under_way = self.under_way.lock();
        let is_full = |under_way: &usize| *under_way > 0 && *under_way + bytes > UNDER_WAY_MAX;
        if bytes > 0 && is_full(&under_way) {
            let _wait = spent::waiting(spent::Cause::Device);
            while is_full(&under_way) {
                self.freed.wait(&mut under_way);
            }
        }
        *under_way += bytes;
        Place { lane: self, bytes }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.lane.under_way.lock() -= self.bytes;
            self.lane.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_writes_wait_for_a_place_and_small_ones_do_not() {
        let lane = Lane::default();
        let large = lane.enter(5 << 20);
        drop(lane.enter(SMALL - 1));
        std::thread::scope(|s| {
            let waits = s.spawn(|| drop(lane.enter(1 << 20)));
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(!waits.is_finished());
            drop(large);
        });
        assert_eq!(*lane.under_way.lock(), 0);
        let four: Vec<_> = (0..4).map(|_| lane.enter(1 << 20)).collect();
        assert_eq!(*lane.under_way.lock(), UNDER_WAY_MAX);
        drop(four);
    }
}
