//! oss-P12: a medium without space, or that gives neither pages nor its index back. The other member takes over, if there is one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::{FaultyDisk, Op, Trouble, When};
use pair::Replica;

use super::mirror::{Link, Pair, pair_over};
use super::repair::Other;
use super::*;

/// A pair whose first member, which orders, has a medium that fails as a test wants. It asks the second one for pages.
fn pair_with_faults() -> (Pair, Arc<FaultyDisk>) {
    let faulty = std::cell::RefCell::new(None);
    let pair = pair_over(|disk| {
        let above = Arc::new(FaultyDisk::new(disk));
        *faulty.borrow_mut() = Some(above.clone());
        above
    });
    let (is_away, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let other = Other { ost: pair.second.ost.clone(), is_away, asked };
    pair.first.ost.set_peer(Some(Arc::new(other)));
    (pair, faulty.into_inner().unwrap())
}

/// From now on the first one is alone.
fn leave_alone(pair: &Pair) {
    pair.link.flushed.store(u64::MAX, Ordering::Relaxed);
}

fn is_unreadable(ost: &Ost) -> bool {
    matches!(ost.trouble(), Some(Trouble::Unreadable(_)))
}

#[test]
fn p12_a_write_that_finds_the_host_full_is_sent_again_if_the_other_member_takes_over() {
    let (pair, faulty) = pair_with_faults();
    pair.first.write(1, 0, &[1; 8192]).ok();
    faulty.fill_host();
    assert_eq!(pair.first.write(2, 8192, &[2; 65_536]).code(), Code::NotReady);
    let Some(Trouble::Refused { is_full: true, .. }) = pair.first.ost.trouble() else { panic!() };
    assert_eq!(pair.first.ost.core.store.health().failure, None, "the volume lives");
    assert!(pair.first.read(0, 8192) == [1; 8192], "what is there is read");
    leave_alone(&pair);
    assert_eq!(
        pair.first.write(2, 8192, &[2; 65_536]).code(),
        Code::NoSpace,
        "there is none that takes over"
    );
    faulty.empty_host();
    pair.first.write(2, 8192, &[2; 65_536]).ok();
}

#[test]
fn p12_a_write_that_the_medium_refuses_is_sent_again_if_the_other_member_takes_over() {
    let (pair, faulty) = pair_with_faults();
    pair.first.write(1, 0, &[1; 8192]).ok();
    // The data comes before the log.
    faulty.fail(Op::Write, When::Once);
    assert_eq!(pair.first.write(2, 8192, &[2; 65_536]).code(), Code::NotReady);
    assert!(matches!(pair.first.ost.trouble(), Some(Trouble::Refused { is_full: false, .. })));
}

/// A pair whose first member has started anew: its objects are in leaves on the medium, and not in memory.
fn with_leaves_away() -> (Pair, Arc<FaultyDisk>) {
    let (Pair { first, second, .. }, faulty) = pair_with_faults();
    first.write(1, 0, &[1; 8192]).ok();
    first.ost.core.store.checkpoint().unwrap();
    first.ost.stop(true).unwrap();
    let ost = Ost::open(faulty.clone() as Arc<dyn disk::Disk>, settings()).unwrap();
    ost.join(&reply_of_mgs()).unwrap();
    let link = Link::new(&second.ost, ost.last_seq(), 4);
    ost.set_companion(Some(link.clone())).unwrap();
    let first = Rig { disk: first.disk, ost };
    first.attach();
    (Pair { first, second, link }, faulty)
}

fn make_leaves_unreadable(pair: &Pair, faulty: &FaultyDisk) {
    let slots = pair.first.ost.core.engine().unwrap().volume().layout().slots;
    slots.into_iter().for_each(|slot| faulty.make_unreadable(slot));
}

#[test]
fn p12_a_part_of_the_index_that_cannot_be_read_has_the_other_member_take_over() {
    let (pair, faulty) = with_leaves_away();
    make_leaves_unreadable(&pair, &faulty);
    assert_eq!(pair.first.ask(&read_of(rw(), 0, 8192)).code(), Code::NotReady);
    assert!(is_unreadable(&pair.first.ost));
    leave_alone(&pair);
    assert_eq!(pair.first.ask(&read_of(rw(), 0, 8192)).code(), Code::Io, "there is none that takes over");
}

#[test]
fn p12_a_scrub_that_meets_an_unreadable_part_of_the_index_tells_the_seat() {
    let (pair, faulty) = with_leaves_away();
    make_leaves_unreadable(&pair, &faulty);
    let found = pair.first.ost.core.store.verify_leaves(ObjectId::default(), object()).unwrap();
    assert!(found.bad.is_some_and(|bad| !bad.is_saved));
    assert!(is_unreadable(&pair.first.ost));
}

/// All reads fail: pages come from the other member, and cannot be written anew. The medium is not used on.
#[test]
fn p12_a_page_that_can_neither_be_read_nor_written_anew_has_the_other_member_take_over() {
    let (pair, faulty) = pair_with_faults();
    pair.first.write(1, 0, &[1; 8192]).ok();
    faulty.fail(Op::Read, When::Always);
    assert_eq!(pair.first.ask(&read_of(rw(), 0, 8192)).code(), Code::NotReady);
    assert!(matches!(pair.first.ost.trouble(), Some(Trouble::Refused { is_full: false, .. })));
    assert_eq!(pair.first.ost.core.store.damage(), [], "the page may be sound");
    leave_alone(&pair);
    assert_eq!(pair.first.ask(&read_of(rw(), 0, 8192)).code(), Code::Damaged);
    faulty.fail(Op::Read, When::Never);
    assert!(pair.first.read(0, 8192) == [1; 8192]);
}

/// One place that cannot be read back is no reason to hand over: another one does.
#[test]
fn p12_a_page_is_written_anew_at_another_place_if_one_is_refused() {
    let (pair, faulty) = pair_with_faults();
    let (first, needle, mut bytes) = (&pair.first, b"a needle in a hay...", [1; 8192]);
    bytes[5000..5020].copy_from_slice(needle);
    first.write(1, 0, &bytes).ok();
    super::damage::rot(first, needle);
    // The next write is that of the first new place.
    faulty.fail(Op::Write, When::Once);
    assert!(first.read(0, 8192) == bytes);
    assert_eq!(first.ost.trouble(), None);
}
