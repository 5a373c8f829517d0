//! Random walks, far beyond the sizes of which all orders can be looked at.

use super::explore::unheard;
use super::world::{Action, Broken, Budget, World};
use crate::promise::ASK_MS;
use crate::types::MemberId;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A walk of a seed from a new pair, healed at its end. `trace` has its actions.
pub fn walk(seed: u64, trace: &mut Vec<Action>) -> Result<(), Broken> {
    walk_from(World::new, seed, trace)
}

/// The same from another beginning.
pub fn walk_from(begin: fn(Budget) -> World, seed: u64, trace: &mut Vec<Action>) -> Result<(), Broken> {
    let mut random = Random::new(seed);
    let few = |random: &mut Random, most: u64| random.below(most + 1) as u8;
    let budget = Budget {
        writes: 1 + few(&mut random, 5),
        steps: 10 + few(&mut random, 30),
        ticks: 10 + few(&mut random, 40),
        flushes: few(&mut random, 4),
        drops: few(&mut random, 12),
        kills: few(&mut random, 3),
        power: few(&mut random, 4),
        leaves: few(&mut random, 2),
        expects: few(&mut random, 2),
        lows: u8::from(seed % 4 == 3),
        tells: few(&mut random, 2),
        packets: 4 + few(&mut random, 12),
        step_ms: ASK_MS,
        seqs: 3,
    };
    let mut world = begin(budget);
    let length = 30 + random.below(120);
    for _ in 0..length {
        let actions = world.actions();
        let sum: u64 = actions.iter().map(weight).sum();
        if sum == 0 {
            break;
        }
        let mut at = random.below(sum);
        let chosen = actions.iter().find(|action| {
            let weight = weight(action);
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        });
        let action = *chosen.expect("the sum is of them");
        trace.push(action);
        world.run(action)?;
    }
    let one = [None, Some(MemberId::A), Some(MemberId::B)][random.below(3) as usize];
    world.heal(one)
}

fn weight(action: &Action) -> u64 {
    match action {
        Action::Deliver(_) => 8,
        Action::Tick(_) | Action::Step => 6,
        Action::Write(..) | Action::Read(..) | Action::Start(_) => 3,
        Action::Flush(_) | Action::Drop(_) | Action::Tell(..) => 2,
        Action::Kill(_) | Action::PowerLoss(_) | Action::Leave(_) | Action::Expect(_) | Action::Stop(_) => 1,
        Action::StartLow(_) => 6,
    }
}

const WALKS: u64 = 10_000;
const WALKS_LONG: u64 = 1_000_000;

#[test]
fn random_walks_break_no_invariant_and_heal() {
    let one = std::env::var("STRIA_SEED").ok().map(|s| s.parse::<u64>().expect("STRIA_SEED is a number"));
    let walks = if std::env::var_os("STRIA_LONG").is_some() { WALKS_LONG } else { WALKS };
    let seeds = || one.map_or(0..walks, |seed| seed..seed + 1);
    for seed in seeds() {
        let mut trace = Vec::new();
        if let Err(broken) = walk(seed, &mut trace) {
            panic!("{broken}\n{trace:?}\nagain: STRIA_SEED={seed} cargo test -p stria-mirror random_walks");
        }
    }
    for seed in seeds().step_by(10) {
        let mut trace = Vec::new();
        if let Err(broken) = walk_from(unheard, seed, &mut trace) {
            panic!(
                "{broken}, from `unheard`\n{trace:?}\nagain: STRIA_SEED={seed} cargo test -p stria-mirror random_walks"
            );
        }
    }
}
