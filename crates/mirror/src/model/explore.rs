//! All orders of events, for small sizes, from the states in which a mirror spends its time and from those in which it changes.

use std::collections::HashSet;

use super::world::{Action, Broken, Budget, World};
use crate::planted::{Rule, without};
use crate::types::{MemberId, Role};
use MemberId::{A, B};

/// One fault of each kind, two writes. A step is half a promise.
const SMALL: Budget = Budget {
    writes: 2,
    steps: 3,
    ticks: 2,
    flushes: 1,
    drops: 1,
    kills: 1,
    power: 1,
    leaves: 1,
    expects: 0,
    lows: 0,
    tells: 1,
    packets: 3,
    step_ms: 1_000,
    seqs: 1,
};

/// Looks at every world that `depth` actions can lead to, each once. Returns how many these are.
fn explore(begin: World, depth: u32) -> Result<usize, Broken> {
    let mut seen = HashSet::from([begin.key()]);
    let mut level = vec![begin];
    for _ in 0..depth {
        let mut next = Vec::new();
        for world in &level {
            for action in world.actions() {
                let mut after = world.clone();
                after.run(action).map_err(|broken| format!("{action:?}: {broken}"))?;
                if seen.insert(after.key()) {
                    next.push(after);
                }
            }
        }
        level = next;
    }
    Ok(seen.len())
}

fn pair() -> World {
    World::new(SMALL)
}

fn run(world: &mut World, actions: &[Action]) {
    actions.iter().for_each(|action| world.run(*action).expect("nothing is broken yet"));
}

/// One member has ended, and the other serves alone. Then the first one starts.
fn alone(ended: Action, stays: MemberId) -> World {
    let mut world = pair();
    run(&mut world, &[Action::Write(A, 0), Action::Deliver(0), Action::Deliver(0), ended]);
    world.rounds(8, &[stays]).expect("it is admitted");
    assert_eq!(world.role(stays), Role::Alone);
    let mut world = world.hushed();
    run(&mut world, &[Action::Write(stays, 1), Action::Start(stays.other())]);
    world.budget = Budget { writes: 1, ..SMALL };
    world
}

/// The one that is alone has bound itself to both.
fn joining() -> World {
    let mut world = alone(Action::Kill(B), A);
    world.budget = Budget { packets: u8::MAX, ticks: u8::MAX, ..SMALL };
    while !world.is_joining(A) {
        let is_quiet = world.is_quiet();
        run(&mut world, if is_quiet { &[Action::Tick(A), Action::Tick(B)] } else { &[Action::Deliver(0)] });
    }
    world.budget = Budget { writes: 1, ..SMALL };
    world
}

/// The MGS has declared a member in sync, and both lost power before they heard of it. The one that was alone has less on its medium.
pub fn unheard(budget: Budget) -> World {
    let mut world = joining();
    world.budget = Budget { packets: u8::MAX, power: 2, ..SMALL };
    while !world.is_pair() {
        run(&mut world, &[Action::Deliver(0)]);
    }
    let mut world = world.hushed();
    run(&mut world, &[Action::PowerLoss(A), Action::PowerLoss(B), Action::Start(A), Action::Start(B)]);
    world.budget = budget;
    world
}

/// Names, and where to begin.
fn begins() -> [(&'static str, World); 8] {
    let after = |actions: &[Action]| {
        let mut world = pair();
        world.budget.kills = 2;
        run(&mut world, actions);
        world.budget = Budget { writes: 1, ..SMALL };
        world
    };
    let killed = [Action::Write(A, 0), Action::Deliver(0), Action::Kill(A), Action::Kill(B)];
    let without_power = [Action::Write(A, 0), Action::Deliver(0), Action::Flush(B), Action::PowerLoss(A)];
    [
        ("a pair", pair()),
        ("a pair with entries under way", after(&[Action::Write(A, 0), Action::Write(A, 1)])),
        ("both killed", after(&killed)),
        ("the primary lost power", after(&without_power)),
        ("the primary alone, the backup returns", alone(Action::Kill(B), A)),
        ("the backup alone, the primary returns", alone(Action::PowerLoss(A), B)),
        ("a member joins", joining()),
        ("in sync and not told, and both lost power", unheard(Budget { writes: 1, ..SMALL })),
    ]
}

/// Budgets of one fault, each with a depth that holds a whole fail-over and what came late.
fn fail_overs() -> [(&'static str, Budget, u32); 4] {
    let narrow = Budget {
        writes: 1,
        flushes: 0,
        drops: 0,
        kills: 0,
        power: 0,
        leaves: 0,
        tells: 0,
        packets: 2,
        ..SMALL
    };
    [
        ("a kill", Budget { kills: 1, ..narrow }, 10),
        ("a loss of power", Budget { power: 1, ..narrow }, 10),
        ("a planned stop", Budget { leaves: 2, expects: 2, ..narrow }, 7),
        ("a cut network", Budget { drops: 2, ..narrow }, 12),
    ]
}

#[test]
fn no_order_of_events_breaks_an_invariant() {
    for (name, begin) in begins() {
        let worlds = explore(begin, if is_long() { 6 } else { 5 });
        let worlds = worlds.unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert!(worlds > 1_000, "{name}: {worlds} worlds are too few to say anything");
    }
}

#[test]
fn no_order_of_events_of_one_fail_over_breaks_an_invariant() {
    for (name, budget, depth) in fail_overs() {
        let worlds = explore(World::new(budget), if is_long() { depth + 1 } else { depth });
        let worlds = worlds.unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert!(worlds > 10_000, "{name}: {worlds} worlds are too few to say anything");
    }
}

#[test]
fn planted_faults_are_found_in_few_steps() {
    let rules = [
        Rule::AnswerAfterAck,
        Rule::SmallerFlushed,
        Rule::ReadsWait,
        Rule::ServeUnderPromise,
        Rule::CountFromAsking,
        Rule::OwnPromiseRunsOut,
        Rule::StartIsPromise,
        Rule::PowerLossTold,
    ];
    for rule in rules {
        let is_found = without(rule, || {
            fail_overs().into_iter().any(|(_, budget, depth)| explore(World::new(budget), depth).is_err())
                || begins().into_iter().any(|(_, begin)| explore(begin, 5).is_err())
        });
        assert!(is_found, "no order of events shows that {rule:?} is gone");
    }
}

fn is_long() -> bool {
    std::env::var_os("STRIA_LONG").is_some()
}
