//! In which order a worker visits its transfers or items.

use crate::job::Order;
use crate::pattern::next;

/// Gives each of `0..count` once; begun again, in another random order, when `again` is called.
pub struct Turns {
    count: u64,
    order: Order,
    seed: u64,
    /// Sequential: the next one. Random: the state of a generator with a period of a power of two.
    state: u64,
    given: u64,
}

impl Turns {
    pub fn new(count: u64, order: Order, seed: u64) -> Turns {
        let mut turns = Turns { count, order, seed, state: 0, given: 0 };
        turns.restart();
        turns
    }

    pub fn again(&mut self) {
        self.seed = self.seed.wrapping_add(1);
        self.restart();
    }

    fn restart(&mut self) {
        self.given = 0;
        let mut seed = self.seed;
        self.state = match self.order {
            Order::Sequential => 0,
            Order::Random => next(&mut seed) & self.mask(),
        };
    }

    fn mask(&self) -> u64 {
        self.count.max(1).next_power_of_two() - 1
    }

    /// A full-period generator modulo a power of two (Hull and Dobell, 1962: odd increment, multiplier 1 modulo 4).
    fn step(&mut self) -> u64 {
        let mut seed = self.seed;
        let increment = next(&mut seed) | 1;
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(increment) & self.mask();
        // The low bits of such a generator have short periods: the order of bits is turned round.
        let bits = self.mask().count_ones();
        if bits == 0 { 0 } else { self.state.reverse_bits() >> (64 - bits) }
    }
}

impl Turns {
    /// Of one round.
    pub fn len(&self) -> u64 {
        self.count
    }
}

impl Iterator for Turns {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.given == self.count {
            return None;
        }
        self.given += 1;
        if self.order == Order::Sequential {
            return Some(self.given - 1);
        }
        // More than half of the period is below `count`, so this ends soon.
        loop {
            let turn = self.step();
            if turn < self.count {
                return Some(turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_once_in_each_round() {
        for count in [0, 1, 2, 3, 100, 128, 1000] {
            for order in [Order::Sequential, Order::Random] {
                let mut turns = Turns::new(count, order, 5);
                let mut rounds = Vec::new();
                for _ in 0..2 {
                    let round: Vec<u64> = turns.by_ref().collect();
                    let mut sorted = round.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                    rounds.push(round);
                    turns.again();
                }
                if count >= 100 {
                    assert_eq!(rounds[0] == rounds[1], order == Order::Sequential);
                    let steps = rounds[0].windows(2).filter(|w| w[1] == w[0] + 1).count() as u64;
                    assert!(order == Order::Sequential || steps < count / 10, "{steps} of {count}");
                }
            }
        }
    }
}
