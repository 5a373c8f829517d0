//! Random operations against byte arrays, with crashes: what is found after one is exactly the state after some operation, no
//! earlier than the last flush, and after a mere kill the last one.

use super::life::{Life, Memory, draw_crash, each_seed, is_long};

/// Operations in all.
const STEPS: u64 = 20_000;
const STEPS_LONG: u64 = 1_000_000;

#[test]
fn random_operations_and_crashes_agree_with_byte_arrays() {
    let wanted = if is_long() { STEPS_LONG } else { STEPS };
    let (steps, crashes) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    each_seed(
        "random_operations_and_crashes_agree",
        |_| steps.get() >= wanted,
        |seed| {
            let mut life = Life::new(seed, Memory::SinceFlush);
            for _ in 0..4 {
                let some = 20 + life.rng.below(40 + 4 * (seed % 50));
                life.live(some);
                let crash = draw_crash(&mut life.rng);
                life.crash(crash);
                steps.set(steps.get() + some);
                crashes.set(crashes.get() + 1);
            }
            life.end();
        },
    );
    println!("       {} operations, {} crashes", steps.get(), crashes.get());
}
