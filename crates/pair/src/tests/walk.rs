//! Random walks of stories: kills, losses of power, pauses, cuts, a lost MGS, trimmed logs, requests. Each walk is healed at its end.

use std::sync::atomic::Ordering;

use hammer::Dice;
use mirror::MemberId;

use super::world::{A, B, World};

const WALKS: u64 = 150;
const WALKS_LONG: u64 = 20_000;

/// Returns how many requests were answered.
fn walk(seed: u64, trace: &mut Vec<String>) -> Result<usize, String> {
    let (mut dice, mut world, mut writes) = (Dice::new(seed), World::new(None), Vec::new());
    world.until("served", |world| world.serves(A))?;
    for _ in 0..80 {
        let m = [A, B][dice.below(2)];
        let action = dice.below(30);
        trace.push(format!("{action} at {m:?}"));
        match action {
            0 => world.kill(m),
            1 => world.lose_power_of_one(m),
            2 | 3 => start(&mut world, m),
            4 => world.is_paused[m.index()] ^= true,
            5 => world.set_open(m, dice.below(2) == 0),
            6 => world.between.has_mgs.store(dice.below(3) > 0, Ordering::SeqCst),
            7 => world.trim(m),
            8 => world.flush(m),
            9..14 => {
                writes.extend([A, B].into_iter().find(|m| world.serves(*m)).and_then(|m| world.begin_next(m)))
            }
            _ => world.round()?,
        }
        world.check()?;
    }
    world.between.has_mgs.store(true, Ordering::SeqCst);
    for m in [A, B] {
        world.is_paused[m.index()] = false;
        world.set_open(m, true);
        start(&mut world, m);
    }
    world.until_in_sync()?;
    for write in writes {
        // It is answered, or its life has ended.
        let _ = write.join().expect("it does not panic");
    }
    world.check()?;
    Ok(world.answered())
}

fn start(world: &mut World, m: MemberId) {
    if world.seat(m).is_none() {
        world.is_paused[m.index()] = false;
        world.start(m);
    }
}

#[test]
fn random_walks_of_two_seats_lose_nothing_and_heal() {
    let one =
        std::env::var("STRIA_SEED").ok().map(|seed| seed.parse::<u64>().expect("STRIA_SEED is a number"));
    let walks = if std::env::var_os("STRIA_LONG").is_some() { WALKS_LONG } else { WALKS };
    let mut answered = 0;
    for seed in one.map_or(0..walks, |seed| seed..seed + 1) {
        let mut trace = Vec::new();
        match walk(seed, &mut trace) {
            Ok(of_walk) => answered += of_walk,
            Err(broken) => {
                panic!("{broken}\n{trace:?}\nagain: STRIA_SEED={seed} cargo test -p stria-pair random_walks")
            }
        }
    }
    assert!(one.is_some() || answered as u64 > 2 * walks, "{answered} requests are too few to say anything");
}
