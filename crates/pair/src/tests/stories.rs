//! The stories. Those that find a planted fault are functions of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mirror::promise::PROMISE_MS;
use mirror::{MemberId, MemberState, Role};
use types::{Code, Fault, Incarnation, Seq};

use disk::Trouble;

use super::world::{A, B, World, ensure, join};
use crate::planted::Rule;
use crate::{Companion, End};

/// A pair of which A is primary, with entries.
pub fn pair(gone: Option<Rule>) -> Result<World, String> {
    let mut world = World::new(gone);
    world.until("served", |world| world.serves(A) && world.role(B) == Role::Backup)?;
    for _ in 0..5 {
        world.write(A)?;
    }
    Ok(world)
}

/// B serves alone, and A is down with some entries that B does not have.
fn failed_over(gone: Option<Rule>, tail: usize) -> Result<World, String> {
    let mut world = pair(gone)?;
    world.set_open(A, false);
    let under_way: Vec<_> = (0..tail).map(|_| world.begin_write(A, b'p')).collect();
    world.kill(A);
    for write in under_way {
        let end = write.join().expect("it does not panic");
        ensure(
            end.is_err_and(|fault| fault.code == Code::NotReady),
            "an entry was answered that one member had",
        )?;
    }
    world.set_open(A, true);
    world.until("taken over", |world| world.serves(B))?;
    Ok(world)
}

#[test]
fn pair_serves_and_both_have_each_entry() {
    let mut world = pair(None).expect("nothing fails");
    assert_eq!([A, B].map(|m| world.role(m)), [Role::Primary, Role::Backup]);
    assert_eq!(world.above, [Some(Incarnation(1 << 12)), None], "the primary alone is to serve");
    assert_eq!(world.disk(A).contents(), world.disk(B).contents());
    assert_eq!(world.answered(), 5);
    assert!(world.up(B).serves_reads() && !world.up(B).serves());
    assert_eq!(world.up(B).order(1).unwrap_err().code, Code::NotReady);

    let (a, end) = (world.up(A), world.disk(A).end());
    assert_eq!(a.committed(), end);
    assert!(a.flushed() < end);
    a.flush(end).expect("B answers");
    assert_eq!((a.flushed(), world.disk(B).durable), (end, 5));
    let (one, two) = (a.stage(b"page"), a.stage(b"other"));
    assert!(one.is_some() && two.is_some() && one != two, "{one:?} {two:?}");
    assert_eq!(world.disk(B).staged[0], (one.expect("staged"), b"page".to_vec()));
    assert_eq!(world.up(B).stage(b"page"), None, "the primary takes no entries");
    world.write(A).expect("it is served");
    world.rounds(4).expect("nothing fails");
    assert_eq!(a.flushed(), world.disk(A).end(), "the backup flushes by itself once a second");
}

pub fn killed_primary(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    let (until_ms, answered) = (world.now_ms() + PROMISE_MS, world.answered());
    world.set_open(A, false);
    let write = world.begin_write(A, b'p');
    if gone.is_some() {
        // Without the rule the thread does not wait for anything.
        write.join().expect("it does not panic").map_err(|fault| fault.to_string())?;
        world.kill(A);
    } else {
        world.kill(A);
        ensure(write.join().expect("it does not panic").is_err(), "it is answered by one member")?;
    }
    world.set_open(A, true);
    while world.now_ms() < until_ms {
        ensure(!world.serves(B), "B serves though A may do so as well")?;
        world.round()?;
    }
    world.until("taken over", |world| world.serves(B))?;
    ensure(world.above[1].is_some_and(|above| above > Incarnation(1 << 12)), "the incarnation rises")?;
    ensure(world.answered() >= answered, "nothing is forgotten")?;
    world.write(B)
}

#[test]
fn backup_serves_alone_after_the_promise_and_has_all_that_was_answered() {
    killed_primary(None).expect("no fault is planted");
}

pub fn failed() -> Option<Trouble> {
    Some(Trouble::Failed("a flush failed".into()))
}

fn unreadable() -> Option<Trouble> {
    Some(Trouble::Unreadable("a leaf cannot be read".into()))
}

/// The medium of the primary fails while it serves. A failure that only the target has met counts.
pub fn failed_medium(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    world.disk(A).trouble = failed();
    ensure(world.up(A).hands_over(), "a request that met the failure is not sent again")?;
    world.round()?;
    ensure(!world.serves(A), "a member serves whose medium has failed")?;
    ensure(world.map().is_in_sync(B), "the other one is not spared")?;
    world.until("taken over", |world| world.serves(B))?;
    let is_doubted = |(m, end): &(MemberId, End)| *m == A && matches!(end, End::Medium(_));
    ensure(world.ends.iter().any(is_doubted), "its content is not doubted")?;
    world.write(B)?;
    // Alone a member goes on, as there is none to take over.
    world.disk(B).trouble = failed();
    ensure(!world.up(B).hands_over(), "the last member has none to hand over to")?;
    world.round()?;
    ensure(world.serves(B), "the last member ended for its medium")?;
    world.disk(B).trouble = None;
    // With another medium it follows.
    world.kill(A);
    world.disk(A).trouble = None;
    world.start(A);
    world.until_in_sync()
}

#[test]
fn member_whose_medium_has_failed_ends_and_the_other_one_takes_over() {
    failed_medium(None).expect("no fault is planted");
}

/// A part of the primary's content cannot be read: the other member takes over, and fills it anew.
#[test]
fn member_that_cannot_read_a_part_of_its_content_is_filled_by_the_other_one() {
    for m in [A, B] {
        let mut world = pair(None).expect("no fault is planted");
        world.write(A).expect("it serves");
        world.disk(m).trouble = unreadable();
        world.rounds(2).expect("nothing fails");
        assert!(matches!(world.ends[..], [(it, End::Unreadable(_)), ..] if it == m), "{:?}", world.ends);
        world.until("the other one serves", |world| world.serves(m.other())).expect("it is in sync");
        world.write(m.other()).expect("it serves");
        // It has no content of its own any more, and takes the other one's.
        world.until_in_sync().expect("it is filled");
        assert!(world.ends.iter().any(|(it, end)| *it == m && *end == End::Refill), "{:?}", world.ends);
        assert_eq!(world.disk(m).trouble, None);
    }
}

/// The other member is away: the one that has trouble with its content may be the last one, and goes on with what it has.
pub fn last_copy(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    world.write(A)?;
    world.kill(B);
    // The promise has run out, and the map still has B in sync.
    world.between.has_mgs.store(false, Ordering::SeqCst);
    world.rounds(6)?;
    world.disk(A).trouble = unreadable();
    world.round()?;
    ensure(world.ends.is_empty(), "a member ended that may be the last one")?;
    world.between.has_mgs.store(true, Ordering::SeqCst);
    world.until("alone", |world| world.serves(A))?;
    ensure(!world.up(A).hands_over(), "there is none to hand over to")?;
    world.write(A)?;
    // Once the other one has all of it, it takes over.
    world.start(B);
    world.until("handed over", |world| world.serves(B))?;
    world.until_in_sync()
}

#[test]
fn last_copy_goes_on_though_a_part_of_it_cannot_be_read() {
    last_copy(None).expect("no fault is planted");
}

/// A medium that refuses writes keeps what it has: the member follows as soon as there is space.
#[test]
fn member_without_space_hands_over_and_keeps_its_content() {
    let mut world = pair(None).expect("no fault is planted");
    world.write(A).expect("it serves");
    world.disk(A).trouble = Some(Trouble::Refused { why: "no space".into(), is_full: true });
    assert!(world.up(A).hands_over());
    world.rounds(2).expect("nothing fails");
    let [(A, End::Failed(why))] = &world.ends[..] else { panic!("{:?}", world.ends) };
    assert_eq!(why.code, Code::NoSpace, "the pause is that of a full medium");
    world.until("taken over", |world| world.serves(B)).expect("it is in sync");
    world.write(B).expect("it serves");
    // Alone it goes on without space.
    world.disk(B).trouble = world.disk(A).trouble.take();
    world.rounds(3).expect("nothing fails");
    assert!(world.serves(B) && !world.up(B).hands_over());
    world.disk(B).trouble = None;
    world.start(A);
    world.until_in_sync().expect("it lacks one entry");
    assert!(world.ends.iter().all(|(_, end)| *end != End::Refill), "{:?}", world.ends);
}

/// An entry must come from the primary's log, which cannot be read: the other member would wait for it, and so would the request.
#[test]
fn member_that_cannot_read_its_log_for_the_other_one_hands_over() {
    let mut world = pair(None).expect("no fault is planted");
    world.disk(A).is_log_lost = true;
    // The other member lacks pages of this entry, which the log has.
    let write = world.begin_write(A, b'n');
    world.until("taken over", |world| world.serves(B)).expect("it is in sync");
    assert_eq!(write.join().expect("it does not panic").unwrap_err().code, Code::NotReady);
    assert!(matches!(world.ends[..], [(A, End::Failed(_))]), "{:?}", world.ends);
    world.write(B).expect("it serves");
    world.disk(A).is_log_lost = false;
    world.disk(A).trouble = None;
    world.start(A);
    world.until_in_sync().expect("the entry is cut, and comes again");
}

#[test]
fn log_that_cannot_be_read_for_a_moment_is_read_again() {
    let mut world = pair(None).expect("no fault is planted");
    world.disk(A).is_log_lost = true;
    world.disk(A).is_passing = true;
    let write = world.begin_write(A, b'n');
    world.rounds(4).expect("nothing fails");
    assert!(!write.is_finished() && world.ends.is_empty(), "{:?}", world.ends);
    world.disk(A).is_log_lost = false;
    world.until("shipped", |world| world.disk(A).contents() == world.disk(B).contents()).expect("it is read");
    write.join().expect("it does not panic").expect("it is answered");
    assert!(world.ends.is_empty() && world.serves(A), "{:?}", world.ends);
}

/// Two hosts become full at the same moment: one member goes on, as an unmirrored target does.
#[test]
fn of_two_members_without_space_the_primary_stays() {
    let mut world = pair(None).expect("no fault is planted");
    world.write(A).expect("it serves");
    for m in [A, B] {
        world.disk(m).trouble = Some(Trouble::Refused { why: "no space".into(), is_full: true });
    }
    world.until("alone", |world| world.role(A) == Role::Alone).expect("it is told at once");
    world.rounds(10).expect("nothing fails");
    assert!(matches!(world.ends[..], [(B, End::Failed(_))]), "{:?}", world.ends);
    world.write(A).expect("it serves");
}

/// One disk below both becomes full: the follower meets it with an entry, and the primary a moment later.
pub fn refused_entry(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    world.disk(B).is_refusing = true;
    let write = world.begin_write(A, b'p');
    world.until("ended", |world| world.seat(B).is_none())?;
    world.disk(A).trouble = Some(Trouble::Refused { why: "no space".into(), is_full: true });
    world.rounds(3)?;
    ensure(world.role(A) == Role::Alone, "the primary ended as well")?;
    ensure(matches!(world.ends[..], [(B, End::Failed(_))]), "another member ended")?;
    write.join().expect("it does not panic").map_err(|fault| fault.to_string())?;
    world.write(A)
}

/// The owner of its target met the fault, as in its promotion.
#[test]
fn life_that_its_owner_ends_tells_the_other_member() {
    let mut world = pair(None).expect("no fault is planted");
    world.disk(A).trouble = failed();
    let began_ms = world.now_ms();
    world.up(A).fail(Fault::new(Code::Io, "it was not promoted"));
    world.pump().expect("nothing breaks");
    assert!(world.serves(B) && world.now_ms() == began_ms, "{:?}", world.up(B).report());
}

#[test]
fn follower_that_cannot_append_tells_its_primary_at_once() {
    refused_entry(None).expect("no fault is planted");
}

#[test]
fn returned_member_is_cut_and_joins_under_load() {
    let mut world = failed_over(None, 2).expect("it is taken over");
    world.write(B).expect("it serves");
    world.start(A);
    let mut writes = Vec::new();
    for _ in 0..40 {
        writes.extend((0..3).filter_map(|_| world.begin_next(B)));
        world.round().expect("nothing breaks");
    }
    assert!(writes.len() > 10, "B serves meanwhile");
    join(writes);
    assert!(world.ends.iter().any(|(m, end)| *m == A && matches!(end, End::Cut(_))), "{:?}", world.ends);
    world.until_in_sync().expect("it joins");
    assert_eq!([A, B].map(|m| world.role(m)), [Role::Backup, Role::Primary]);
}

#[test]
fn returned_member_is_filled_if_the_log_is_trimmed() {
    let mut world = failed_over(None, 2).expect("it is taken over");
    for _ in 0..5 {
        world.write(B).expect("it serves");
    }
    let trimmed = world.disk(B).log.len();
    world.disk(B).trimmed = trimmed;
    world.write(B).expect("it serves");
    world.start(A);
    world.until_in_sync().expect("it joins");
    assert!(world.ends.contains(&(A, End::Refill)), "{:?}", world.ends);
    world.write(B).expect("both take it");
}

#[test]
fn member_with_an_empty_device_is_filled() {
    let mut world = failed_over(None, 2).expect("it is taken over");
    let trimmed = world.disk(B).log.len();
    world.disk(B).trimmed = trimmed;
    *world.disk(A) = Default::default();
    // Its first map is the MGS's, which has it out by now.
    world.start(A);
    world.until_in_sync().expect("it joins");
    assert!(world.ends.contains(&(A, End::Refill)), "{:?}", world.ends);
}

/// A's log ends before what B's still has, and both are filled by entries.
fn to_be_filled(gone: Option<Rule>) -> Result<World, String> {
    let mut world = failed_over(gone, 2)?;
    for _ in 0..5 {
        world.write(B)?;
    }
    let trimmed = world.disk(B).log.len();
    world.disk(B).trimmed = trimmed;
    world.write(B)?;
    world.is_filled_live = true;
    world.kill(B);
    world.start(B);
    world.start(A);
    Ok(world)
}

pub fn filled_live(gone: Option<Rule>) -> Result<(), String> {
    let mut world = to_be_filled(gone)?;
    world.until("filling", |world| world.up(A).report().is_filling)?;
    let mut writes = Vec::new();
    for _ in 0..20 {
        writes.extend(world.begin_next(B));
        world.round()?;
    }
    join(writes);
    world.until_in_sync()?;
    ensure(world.ends.iter().all(|(_, end)| *end != End::Refill), "its life went on")?;
    world.write(B)?;
    world.until_in_sync()
}

#[test]
fn member_is_filled_by_entries_beside_requests_and_its_life_goes_on() {
    filled_live(None).expect("no fault is planted");
}

#[test]
fn paused_filling_says_so_and_ends_in_sync_once_it_is_resumed() {
    let mut world = to_be_filled(None).expect("it is taken over");
    let is_paused = world.disk(B).is_fill_paused.clone();
    is_paused.store(true, Ordering::SeqCst);
    world
        .until("it says so", |world| world.up(B).report().filling_said.contains("paused"))
        .expect("it waits");
    for _ in 0..50 {
        world.round().expect("promises go on");
    }
    assert!(world.up(A).report().is_filling, "it is not filled");
    world.write(B).expect("it serves meanwhile");
    is_paused.store(false, Ordering::SeqCst);
    world.until_in_sync().expect("it is filled");
    assert!(world.up(B).report().filling_said.is_empty());
}

#[test]
fn member_with_much_content_becomes_empty_between_two_lives() {
    let mut world = to_be_filled(None).expect("it is taken over");
    world.disk(A).is_large = true;
    world.until_in_sync().expect("it is filled");
    assert_eq!(world.ends.iter().filter(|end| **end == (A, End::Refill)).count(), 1, "{:?}", world.ends);
    world.write(B).expect("both take it");
}

#[test]
fn promises_and_acknowledgements_flow_while_a_log_is_full() {
    let mut world = pair(None).expect("nothing fails");
    let (map, had) = (world.map(), world.disk(B).end());
    world.disk(B).is_full = true;
    let write = world.begin_write(A, b'p');
    // Several promises long.
    world.rounds(20).expect("nothing breaks");
    assert_eq!((world.map(), world.up(A).report().acked), (map, Some(had)));
    assert!(world.serves(A) && world.up(B).serves_reads() && !write.is_finished());
    world.disk(B).is_full = false;
    world.until("shipped", |world| world.disk(B).end() == world.disk(A).end()).expect("it is sent again");
    join(vec![write]);
    assert!(world.ends.is_empty(), "{:?}", world.ends);
}

#[test]
fn member_whose_medium_was_put_back_is_told_of_its_later_life() {
    let mut world = pair(None).expect("nothing fails");
    let old = world.disk(B).note.clone();
    for _ in 0..3 {
        world.kill(B);
        world.start(B);
        world.until("in contact", |world| world.role(B) == Role::Backup).expect("nothing breaks");
    }
    let known = world.up(B).report().life;
    world.kill(B);
    world.disk(B).note = old;
    world.start(B);
    assert!(world.up(B).report().life < known);
    world.until_in_sync().expect("it is answered");
    assert!(world.ends.contains(&(B, End::Outlived)), "{:?}", world.ends);
    assert!(world.up(B).report().life > known);
}

#[test]
fn member_that_ends_while_it_is_filled_serves_nothing_and_is_filled_again() {
    let mut world = to_be_filled(None).expect("it is taken over");
    world.until("filling", |world| world.up(A).report().is_filling).expect("it is filled");
    world.kill(A);
    assert!(world.up(B).report().filling.is_none_or(|filled| filled.end.is_none()));
    world.start(A);
    assert!(world.up(A).report().is_filling, "its note says so");
    // Now the primary is lost. The other one lacks content, and waits for it.
    world.kill(B);
    world.rounds(20).expect("nothing breaks");
    assert!(!world.serves(A) && !world.up(A).serves_reads());
    world.start(B);
    world.until_in_sync().expect("it is filled anew");
}

#[test]
fn paused_primary_does_not_serve_when_it_wakes() {
    let mut world = pair(None).expect("nothing fails");
    world.is_paused[0] = true;
    for m in [A, B] {
        world.set_open(m, false);
    }
    world.until("taken over", |world| world.serves(B)).expect("A stands still");
    world.write(B).expect("it serves");
    // A wakes: its threads look at the clock first.
    let a = world.up(A);
    assert!(!a.serves() && a.order(1).is_err());
    world.is_paused[0] = false;
    for m in [A, B] {
        world.set_open(m, true);
    }
    world.until_in_sync().expect("it joins");
    assert!(world.ends.contains(&(A, End::Deposed)), "{:?}", world.ends);
}

#[test]
fn one_direction_that_is_cut_leaves_one_member_that_serves() {
    for sender in [A, B] {
        let mut world = pair(None).expect("nothing fails");
        world.set_open(sender, false);
        world.until("alone", |world| !world.map().is_pair()).expect("one asks");
        world.until("served", |world| world.serves(A) != world.serves(B)).expect("one is admitted");
        let primary = world.map().primary;
        world.write(primary).expect("it serves");
        world.rounds(10).expect("nothing breaks");
        world.set_open(sender, true);
        world.until_in_sync().expect("they find each other");
    }
}

#[test]
fn members_in_contact_need_no_mgs() {
    let mut world = pair(None).expect("nothing fails");
    world.between.has_mgs.store(false, Ordering::SeqCst);
    for _ in 0..60 {
        world.write(A).expect("it serves");
        world.round().expect("nothing breaks");
        assert!(world.serves(A) && world.up(B).serves_reads());
    }
    // Both start again without it.
    for m in [A, B] {
        world.kill(m);
        world.start(m);
    }
    world.until("served", |world| world.serves(A)).expect("a pair in contact does without the MGS");
    assert_eq!(world.map().epoch, types::Epoch(1));
}

/// A planned stop of one member.
fn leave(world: &mut World, m: MemberId) {
    let seat = world.up(m);
    let leave = std::thread::spawn(move || seat.leave());
    while !leave.is_finished() {
        world.pump().expect("nothing breaks");
        std::thread::yield_now();
    }
    leave.join().expect("it does not panic").expect("its target answers");
    world.between.seats.lock()[m.index()] = None;
    let kept = crate::note::Kept::decode(&world.disk(m).note).expect("it was kept");
    assert_eq!(kept.stop, Some(true), "its promise was returned");
    world.pump().expect("nothing breaks");
}

#[test]
fn planned_stop_takes_no_time_out() {
    for leaving in [A, B] {
        let mut world = pair(None).expect("nothing fails");
        let began_ms = world.now_ms();
        leave(&mut world, leaving);
        let other = leaving.other();
        assert!(world.serves(other), "{leaving:?}: {:?}", world.up(other).report());
        assert_eq!(world.now_ms(), began_ms, "no time has passed");
        world.write(other).expect("it serves");
        world.start(leaving);
        world.until_in_sync().expect("it joins");
    }
}

/// mirror-E5. So either of them may be lost before the next start.
#[test]
fn stop_of_both_leaves_both_in_sync() {
    let mut world = pair(None).expect("nothing fails");
    let map = world.map();
    world.up(B).expect_stop();
    leave(&mut world, A);
    world.up(B).await_primary(Duration::from_secs(60));
    leave(&mut world, B);
    assert_eq!(world.map(), map);
    let began_ms = world.now_ms();
    (world.start(A), world.start(B));
    world.until("served", |world| world.serves(A)).expect("it has all");
    assert!(world.now_ms() < began_ms + PROMISE_MS, "no time-out has passed");
    world.until_in_sync().expect("nothing was lost");
    assert_eq!(world.map(), map);

    // A primary goes on, though its process stops as well: its last requests wait for an answer.
    world.up(A).expect_stop();
    leave(&mut world, B);
    assert!(world.serves(A));
    world.write(A).expect("it serves");
}

#[test]
fn member_that_lost_its_tail_is_not_in_sync_until_it_has_it_again() {
    let mut world = pair(None).expect("nothing fails");
    world.lose_power(B);
    assert!(world.disk(B).log.is_empty());
    world.start(B);
    let mut writes = Vec::new();
    for _ in 0..60 {
        let has_all = world.disk(B).log.len() >= world.answered();
        assert!(has_all || !world.up(B).serves_reads(), "B serves with less than it had");
        world.round().expect("nothing breaks");
        writes.extend(world.begin_next(A));
    }
    world.until_in_sync().expect("it joins");
    assert!(writes.len() > 5);
    join(writes);

    // The other way: the primary loses what the backup has, and serves again only with all of it.
    world.lose_power(A);
    world.start(A);
    world.until("served", |world| world.serves(B)).expect("B has all");
    world.until_in_sync().expect("it joins");
}

#[test]
fn late_letters_of_a_former_life_change_nothing() {
    let mut world = pair(None).expect("nothing fails");
    world.between.is_late[0].store(true, Ordering::SeqCst);
    let write = world.begin_write(A, b'p');
    world.rounds(1).expect("nothing breaks");
    world.kill(A);
    assert!(write.join().expect("it does not panic").is_err());
    world.between.is_late[0].store(false, Ordering::SeqCst);
    world.until("taken over", |world| world.serves(B)).expect("A is away");
    world.write(B).expect("it serves");
    let before = world.disk(B).log.len();
    world.between.deliver_late();
    assert_eq!(world.disk(B).log.len(), before);
    world.start(A);
    world.until_in_sync().expect("it joins");
}

/// Both ask under one epoch while the MGS is away. A member that starts again is bound by that.
pub fn asked_and_started_again(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    world.between.has_mgs.store(false, Ordering::SeqCst);
    [A, B].iter().for_each(|m| world.set_open(*m, false));
    world.until("asked", |world| [A, B].iter().all(|m| world.up(*m).report().is_asking))?;
    for m in [A, B] {
        world.kill(m);
        world.set_open(m, true);
        world.start(m);
    }
    for _ in 0..10 {
        world.round()?;
        ensure(!world.serves(A) && !world.serves(B), "it serves though the MGS may admit the other one")?;
    }
    world.between.has_mgs.store(true, Ordering::SeqCst);
    world.until_in_sync()
}

#[test]
fn member_that_asked_to_be_alone_is_silent_in_its_next_life_too() {
    asked_and_started_again(None).expect("no fault is planted");
}

/// The log of B does not reach back to the begin of its line when B starts again, and A has entries of an earlier line that B never had.
pub fn trimmed_line(gone: Option<Rule>) -> Result<(), String> {
    let mut world = failed_over(gone, 8)?;
    // An entry of A ends where the last one of B begins: a cut there would succeed.
    for _ in 0..2 {
        world.write(B)?;
    }
    let trimmed = world.disk(B).log.len() - 1;
    world.disk(B).trimmed = trimmed;
    world.kill(B);
    world.start(B);
    world.until("served again", |world| world.serves(B))?;
    world.start(A);
    world.until_in_sync()
}

#[test]
fn lines_are_known_though_the_log_is_trimmed_behind_their_begin() {
    trimmed_line(None).expect("no fault is planted");
}

/// An entry comes without its pages, and again from the log, with them.
pub fn pages_are_missing(gone: Option<Rule>) -> Result<(), String> {
    let mut world = pair(gone)?;
    let write = world.begin_write(A, b'n');
    // The thread has sent the entry, and has it come from the log; or B has failed.
    let (a, b) = (world.up(A), world.up(B));
    while !a.shared().state.lock().must_ship && b.report().ended.is_none() {
        std::thread::yield_now();
    }
    world.until("shipped from the log", |world| world.disk(A).contents() == world.disk(B).contents())?;
    write.join().expect("it does not panic").map_err(|fault| fault.to_string())?;
    ensure(world.disk(B).log.last().is_some_and(|entry| entry.content[0] == b'p'), "it came with its pages")?;
    ensure(world.ends.is_empty() && world.serves(A), "no life has ended")
}

#[test]
fn entry_without_its_pages_is_shipped_from_the_log() {
    pages_are_missing(None).expect("no fault is planted");
}

/// The flushed seq that a lone member has told stays told when the other one joins, at each step of the join (`World::check`).
pub fn flushed_while_joining(gone: Option<Rule>) -> Result<(), String> {
    let mut world = failed_over(gone, 2)?;
    world.start(A);
    let mut writes = Vec::new();
    for _ in 0..40 {
        writes.extend(world.begin_next(B));
        let durable = world.disk(B).log.len();
        world.disk(B).durable = durable;
        world.round()?;
    }
    world.until_in_sync()?;
    join(writes);
    Ok(())
}

#[test]
fn flushed_seq_does_not_fall_when_a_member_joins() {
    flushed_while_joining(None).expect("no fault is planted");
}

#[test]
fn a_stopped_seat_refuses_everything_and_lets_nobody_wait() {
    let mut world = pair(None).expect("nothing fails");
    let a = world.up(A);
    world.set_open(A, false);
    let write = world.begin_write(A, b'p');
    a.stop().expect("its target answers");
    assert_eq!(write.join().expect("it does not panic").unwrap_err().code, Code::NotReady);
    assert!(
        !a.serves()
            && a.order(1).is_err()
            && a.flush(Seq(u64::MAX - 1)).is_err()
            && a.stage(b"page").is_none()
    );
    assert_eq!(a.report().ended, Some(End::Stopped));
    assert_eq!(a.report().states, [MemberState::InSync; 2]);
}
