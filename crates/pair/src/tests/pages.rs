//! Stories of pages that one member gives the other (pair-S10).

use mirror::Role;
use types::{Buf, Code, Fault, ObjectId, PAGE_SIZE, Seq};
use wire::pair::{CompareStep, PageOf, PageWanted, page_form};

use super::world::{A, B, World, ensure};
use crate::planted::Rule;
use crate::{PAGES_MAX, Peer, RecordPeer, Seat};

/// A page for each entry; the target of the tests has nothing else.
fn fetch(seat: &Seat, pages: &[u32], bytes: &mut Buf) -> Result<Vec<PageOf>, Fault> {
    let wanted: Vec<PageWanted> = pages.iter().map(|page| PageWanted { page: *page, crc: 7 }).collect();
    seat.fetch(ObjectId::default(), &wanted, bytes)
}

/// A is primary, and B follows it.
fn pair(gone: Option<Rule>) -> Result<World, String> {
    let mut world = World::new(gone);
    world.until("served", |world| world.serves(A) && world.role(B) == Role::Backup)?;
    world.write(A)?;
    Ok(world)
}

#[test]
fn each_member_in_sync_gives_the_other_one_pages() {
    let mut world = pair(None).expect("nothing fails");
    let mut bytes = Buf::new();
    for m in [A, B] {
        let pages = fetch(&world.up(m), &[0, 9, 0], &mut bytes).expect("the other one is in sync");
        let (sound, hole) =
            (PageOf { form: page_form::SOUND, crc: 7 }, PageOf { form: page_form::HOLE, crc: 0 });
        assert_eq!(pages, [sound.clone(), hole, sound]);
        assert_eq!(bytes.len(), 2 * PAGE_SIZE);
        assert!(bytes.starts_with(b"write 1"), "the entry of the other member's log");
        let many = fetch(&world.up(m), &vec![0; PAGES_MAX + 1], &mut bytes);
        assert_eq!(many.unwrap_err().code, Code::BadRequest);
    }
    // Without an answer it is a fault, and the member goes on.
    world.set_open(B, false);
    assert!(fetch(&world.up(A), &[0], &mut bytes).is_err());
    world.set_open(B, true);
    world.write(A).expect("it serves");
    world.up(A).stop().expect("its target answers");
    assert_eq!(fetch(&world.up(A), &[0], &mut bytes).unwrap_err().code, Code::NotReady, "pair-S7");
}

#[test]
fn records_are_compared_by_a_member_in_sync_that_has_the_same_entries() {
    let mut world = pair(None).expect("nothing fails");
    let begin = |world: &World, seq| world.up(A).compare_records(CompareStep::Begin { seq });
    let end = world.up(A).report().end.1;
    assert_eq!(begin(&world, end).expect("both are in sync").run, 1);
    assert_eq!(begin(&world, Seq(end.0 + 1)).expect("both are in sync").run, 0, "it lacks an entry");
    assert_eq!(world.up(B).lost_at_other().expect("both are in sync").lost, 1, "as the test's target has it");
    world.set_open(B, false);
    assert!(begin(&world, end).is_err(), "without an answer it is a fault");
    world.set_open(B, true);
    world.kill(B);
    world.until("declared out", |world| world.role(A) == Role::Alone).expect("the MGS answers");
    world.start(B);
    assert_eq!(begin(&world, end).expect_err("pair-S10").code, Code::NotReady);
    assert_eq!(world.up(B).lost_at_other().expect_err("pair-S10").code, Code::NotReady);
}

/// A member that was away lacks changes: it gives no pages, and takes none, until it is in sync again.
pub fn away(gone: Option<Rule>) -> Result<(), String> {
    let (mut world, mut bytes) = (pair(gone)?, Buf::new());
    world.kill(A);
    world.until("taken over", |world| world.serves(B))?;
    world.write(B)?;
    world.start(A);
    for (m, what) in [(A, "a member that lacks changes"), (B, "one that is alone")] {
        ensure(fetch(&world.up(m), &[0], &mut bytes).is_err(), &format!("{what} is given pages"))?;
    }
    world.until_in_sync()?;
    for m in [A, B] {
        fetch(&world.up(m), &[0], &mut bytes).map_err(|fault| fault.to_string())?;
    }
    Ok(())
}

#[test]
fn a_member_that_was_away_gives_and_takes_no_pages_until_it_is_in_sync() {
    away(None).expect("no fault is planted");
}
