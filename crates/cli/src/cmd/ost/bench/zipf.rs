//! Zipf's law over blocks: the probability of the block of rank r is proportional to 1 / r^exponent.
//!
//! A table of the sums is inverted by a binary search, so the distribution is exact. Ranks are spread over the blocks, as in fio: popular
//! ones are seldom neighbours.

use disk::SplitMix;

/// Random numbers below the count of blocks, by Zipf's law.
#[derive(Debug)]
pub struct Zipf {
    /// At rank r (from 0): the probability of all ranks up to r.
    sums: Vec<f64>,
    /// Has no factor in common with the count, so that multiplying by it permutes the blocks.
    stride: u64,
}

impl Zipf {
    pub fn new(count: u64, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|s| *s /= sum);
        // Near the golden section of the count: neighbouring ranks land far apart.
        let mut stride = (count as f64 * 0.618_034) as u64 | 1;
        while gcd(stride, count) != 1 {
            stride += 2;
        }
        Zipf { sums, stride }
    }

    pub fn next(&self, rng: &mut SplitMix) -> u64 {
        self.place(self.rank(rng))
    }

    /// The rank from 0, the most popular.
    fn rank(&self, rng: &mut SplitMix) -> u64 {
        let point = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        self.sums.partition_point(|s| *s <= point).min(self.sums.len() - 1) as u64
    }

    fn place(&self, rank: u64) -> u64 {
        (rank as u128 * self.stride as u128 % self.sums.len() as u128) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_the_law_says() {
        let (count, exponent, draws) = (5000u64, 0.9, 400_000);
        let zipf = Zipf::new(count, exponent);
        let mut rng = SplitMix::new(1);
        let mut seen = vec![0u64; count as usize];
        (0..draws).for_each(|_| seen[zipf.rank(&mut rng) as usize] += 1);
        let all: f64 = (1..=count).map(|r| 1.0 / (r as f64).powf(exponent)).sum();
        // Ranges of ranks: the first alone, and then ever longer ones. Five standard deviations allow for chance.
        for (first, limit) in [(1, 2), (2, 3), (3, 10), (10, 100), (100, 1000), (1000, count + 1)] {
            let share: f64 = (first..limit).map(|r| 1.0 / (r as f64).powf(exponent)).sum::<f64>() / all;
            let got = seen[first as usize - 1..limit as usize - 1].iter().sum::<u64>() as f64;
            let (mean, spread) = (share * draws as f64, (draws as f64 * share * (1.0 - share)).sqrt());
            assert!(
                (got - mean).abs() < 5.0 * spread,
                "ranks {first}..{limit}: {got}, not {mean:.0} ± {spread:.0}"
            );
        }
    }

    #[test]
    fn each_rank_has_a_place_of_its_own_and_neighbours_are_far_apart() {
        for count in [1u64, 2, 7, 4096, 524_288] {
            let zipf = Zipf::new(count, 0.9);
            let mut places: Vec<_> = (0..count).map(|rank| zipf.place(rank)).collect();
            if count > 1000 {
                assert!(places.windows(2).take(100).all(|p| p[0].abs_diff(p[1]) > count / 4));
            }
            places.sort();
            assert!(places.into_iter().eq(0..count), "{count}");
        }
    }
}
