//! Stories of a member whose flush failed, and whose server is started again before the other one has gone on (pair-S14).

use std::sync::atomic::Ordering;

use mirror::MemberId;

use super::stories::{failed, pair};
use super::world::{A, B, World, ensure};
use crate::End;
use crate::planted::Rule;

/// The flush of a member fails, and drops an entry. Its server is started again before the other one has gone on.
fn drop_entry_and_restart(world: &mut World, m: MemberId) -> Result<(), String> {
    world.disk(m).trouble = failed();
    world.round()?;
    ensure(world.seat(m).is_none(), "its life goes on")?;
    let mut disk = world.disk(m);
    (disk.trouble, disk.log[1].content) = (None, b"pdropped".to_vec());
    drop(disk);
    world.start(m);
    Ok(())
}

pub fn forgotten_failure(gone: Option<Rule>) -> Result<(), String> {
    for m in [A, B] {
        let mut world = pair(gone)?;
        world.between.has_mgs.store(false, Ordering::SeqCst);
        drop_entry_and_restart(&mut world, m)?;
        for _ in 0..4 {
            world.round()?;
            ensure(!world.serves(m), "a member serves without what its flush dropped")?;
        }
        world.between.has_mgs.store(true, Ordering::SeqCst);
        world.until("taken over", |world| world.serves(m.other()))?;
        world.write(m.other())?;
        world.until_in_sync()?;
        ensure(world.ends.contains(&(m, End::Doubted)), "it was not filled anew")?;
        // A fill has ended the doubt.
        world.kill(m);
        world.start(m);
        world.until_in_sync()?;
        ensure(world.ends.iter().filter(|(_, end)| *end == End::Doubted).count() == 1, "it is filled again")?;
    }
    Ok(())
}

#[test]
fn member_whose_flush_failed_is_filled_though_it_was_started_again() {
    forgotten_failure(None).expect("no fault is planted");
}

/// The other member has lost power, and with it the end of its log. That is less than the other one may have lost.
#[test]
fn member_that_lost_its_end_goes_before_one_whose_flush_failed() {
    let mut world = pair(None).expect("no fault is planted");
    // B has just flushed.
    let end = world.disk(B).log.len();
    world.until("flushed", |world| world.disk(B).durable == end).expect("it does so once a second");
    world.write(A).expect("it is served");
    world.between.has_mgs.store(false, Ordering::SeqCst);
    // B does not hear of it, or it would flush.
    world.set_open(A, false);
    drop_entry_and_restart(&mut world, A).expect("no fault is planted");
    world.lose_power(B);
    world.set_open(A, true);
    world.forget_answered();
    assert!(world.disk(B).end() < world.disk(A).end());
    world.start(B);
    world.between.has_mgs.store(true, Ordering::SeqCst);
    world.until("taken over", |world| world.serves(B)).expect("the better copy serves");
    world.until_in_sync().expect("the other one is filled");
    assert!(world.ends.contains(&(A, End::Doubted)), "{:?}", world.ends);
}

#[test]
fn of_two_members_whose_flushes_failed_the_longer_log_goes_on_and_fills_the_other_one() {
    [A, B].into_iter().for_each(both_doubted);
}

fn both_doubted(shorter: MemberId) {
    let mut world = pair(None).expect("no fault is planted");
    world.between.has_mgs.store(false, Ordering::SeqCst);
    (world.disk(A).trouble, world.disk(B).trouble) = (failed(), failed());
    world.round().expect("no fault is planted");
    assert!(world.seat(A).is_none() && world.seat(B).is_none());
    world.disk(shorter).log.pop();
    world.forget_answered();
    for m in [A, B] {
        world.disk(m).trouble = None;
        world.start(m);
    }
    world.between.has_mgs.store(true, Ordering::SeqCst);
    world.until("served", |world| world.serves(shorter.other())).expect("the longer one goes on");
    world.until_in_sync().expect("the other one is filled");
    let doubted: Vec<_> = world.ends.iter().filter(|(_, end)| *end == End::Doubted).collect();
    assert_eq!(doubted, [&(shorter, End::Doubted)], "{:?}", world.ends);
    for m in [A, B] {
        world.kill(m);
        world.start(m);
    }
    world.until("served", |world| world.serves(A) || world.serves(B)).expect("no doubt is left");
}
