//! oss-P10: damage is repaired from the other member of the mirror before it is told.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pair::{Peer, Replica};
use wire::object::scrub_action::{LOOK, START};
use wire::pair::{
    CompareRanges, CompareRangesReply, Difference, ListLostReply, PageOf, PageWanted, VerifyMirror,
    VerifyMirrorReply, verify_state,
};

use super::damage::rot;
use super::mirror::{Pair, pair};
use super::*;

/// The other OST, as a seat would reach it.
pub struct Other {
    pub ost: Arc<Ost>,
    pub is_away: AtomicBool,
    pub asked: AtomicU64,
}

impl Peer for Other {
    fn fetch(&self, object: ObjectId, wanted: &[PageWanted], bytes: &mut Buf) -> Result<Vec<PageOf>, Fault> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Fault::new(Code::NotReady, "the members are not in sync"));
        }
        let mut pages = Vec::new();
        let forms = self.ost.give_pages(object, wanted, &mut pages)?;
        bytes.space(pages.len()).copy_from_slice(&pages);
        Ok(forms)
    }

    fn compare(&self, wanted: CompareRanges) -> Result<CompareRangesReply, Fault> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Fault::new(Code::NotReady, "the members are not in sync"));
        }
        Replica::compare(&*self.ost, &wanted)
    }
}

const NEEDLES: [&[u8]; 3] = [b"the first needle....", b"the second needle...", b"the third needle...."];

/// Both members have these bytes, flushed, with a needle in pages 1, 2 and 4.
fn with_needles() -> (Pair, Vec<u8>, [Arc<Other>; 2]) {
    let pair = pair();
    let mut data = vec![b'.'; 30_000];
    for (page, needle) in [1, 2, 4].into_iter().zip(NEEDLES) {
        data[page * 4096 + 77..page * 4096 + 97].copy_from_slice(needle);
    }
    pair.first.write(1, 0, &data).ok();
    (0..2).for_each(|_| pair.first.ost.core.flush_round().unwrap());
    (0..2).for_each(|_| pair.second.ost.core.flush_round().unwrap());
    let other = |rig: &Rig| {
        let (is_away, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Other { ost: rig.ost.clone(), is_away, asked })
    };
    let others = [other(&pair.second), other(&pair.first)];
    pair.first.ost.set_peer(Some(others[0].clone()));
    pair.second.ost.set_peer(Some(others[1].clone()));
    (pair, data, others)
}

fn listed(rig: &Rig) -> Vec<(u64, bool)> {
    let damage = rig.ask(&DamageList { cap: admin() }).ok().damage;
    damage.into_iter().map(|damage| (damage.offset, damage.is_repaired)).collect()
}

#[test]
fn p10_a_read_of_damaged_pages_gives_the_bytes_and_they_are_listed_as_repaired() {
    let (Pair { first, .. }, data, [other, _]) = with_needles();
    NEEDLES.iter().for_each(|needle| rot(&first, needle));
    assert!(first.read(0, 30_000) == data);
    assert_eq!(listed(&first), [(4096, true), (8192, true), (16_384, true)]);
    assert_eq!(
        other.asked.load(Ordering::Relaxed),
        1,
        "pages that lie near each other are asked for together"
    );
    assert!(first.read(0, 30_000) == data);
    assert_eq!(other.asked.load(Ordering::Relaxed), 1);
    first.ask(&Flush {}).ok();
    let again = first.crashed(Crash::DropAll);
    again.attach();
    assert!(again.read(0, 30_000) == data);
    assert_eq!(listed(&again), [(4096, true), (8192, true), (16_384, true)]);
}

#[test]
fn p10_changes_of_parts_of_damaged_pages_are_carried_out() {
    let (Pair { first, second, .. }, mut data, _) = with_needles();
    NEEDLES.iter().for_each(|needle| rot(&first, needle));
    first.write(2, 4096 + 5, b"part").ok();
    data[4096 + 5..4096 + 9].copy_from_slice(b"part");
    let object = object();
    let punch = Punch { cap: rw(), object, offset: 8192 + 5, len: 100, keep: false, mtime: Time::new(9, 0) };
    first.say(slotted(3), &punch, &[]).ok();
    data[8192 + 5..8192 + 105].fill(0);
    first.say(slotted(4), &Truncate { cap: rw(), object, len: 16_384 + 200 }, &[]).ok();
    data.truncate(16_384 + 200);
    assert!(first.read(0, 30_000) == data);
    assert_eq!(listed(&first).iter().filter(|(_, is_repaired)| !is_repaired).count(), 0);
    assert_eq!(first.ost.last_seq(), second.ost.last_seq(), "a repair is no entry of the mirror");
}

#[test]
fn p10_damage_is_told_while_the_other_member_is_away_and_repaired_later() {
    let (Pair { first, .. }, data, [other, _]) = with_needles();
    rot(&first, NEEDLES[0]);
    other.is_away.store(true, Ordering::Relaxed);
    assert_eq!(first.ask(&read_of(rw(), 0, 30_000)).code(), Code::Damaged);
    assert_eq!(listed(&first), [(4096, false)]);
    other.is_away.store(false, Ordering::Relaxed);
    assert!(first.read(0, 30_000) == data);
    assert_eq!(listed(&first), [(4096, true)], "it is not lost any more");
}

#[test]
fn p10_a_page_that_both_members_lost_is_damage() {
    let (Pair { first, second, .. }, data, _) = with_needles();
    NEEDLES.iter().for_each(|needle| rot(&first, needle));
    rot(&second, NEEDLES[0]);
    assert_eq!(first.ask(&read_of(rw(), 0, 30_000)).code(), Code::Damaged);
    assert_eq!(listed(&first), [(4096, false), (8192, true), (16_384, true)], "the others are repaired");
    assert!(first.read(8192, 20_000) == data[8192..28_192]);
}

#[test]
fn p11_damage_of_the_list_is_repaired_or_counts_as_lost() {
    let (Pair { first, second, .. }, _, [other, _]) = with_needles();
    NEEDLES.iter().for_each(|needle| rot(&first, needle));
    other.is_away.store(true, Ordering::Relaxed);
    for page in [1, 2, 4] {
        assert_eq!(first.ask(&read_of(rw(), page * 4096, 100)).code(), Code::Damaged);
    }
    let lost = || {
        let ListLostReply { lost, places } = Replica::list_lost(&*first.ost).unwrap();
        (lost, places.into_iter().map(|place| place.offset).collect::<Vec<_>>())
    };
    assert_eq!(lost(), (3, vec![4096, 8192, 16_384]), "the other member is away");
    // One is written anew, the other member has one, and none has the third.
    first.write(2, 8192, &[7; 4096]).ok();
    rot(&second, NEEDLES[0]);
    other.is_away.store(false, Ordering::Relaxed);
    assert_eq!(lost(), (1, vec![4096]));
    assert_eq!(listed(&first), [(4096, false), (8192, false), (16_384, true)]);
    first.write(3, 4096, &[7; 4096]).ok();
    assert_eq!(lost(), (0, vec![]));
    first
        .ost
        .core
        .store
        .record_damage(store::Damage {
            object: object(),
            offset: 0,
            kind: store::DamageKind::Index,
            found_sec: 1,
            is_repaired: false,
        })
        .unwrap();
    assert_eq!(lost(), (1, vec![0]), "objects of a lost leaf are not known");
}

#[test]
fn v1_members_are_compared_and_a_scrub_ends_with_that() {
    let (Pair { first, second, .. }, _, [other, _]) = with_needles();
    let ask = |rig: &Rig, starts| rig.ask(&VerifyMirror { cap: admin(), starts });
    assert_eq!(ask(&first, false).ok().state, verify_state::NONE);
    assert_eq!(ask(&second, true).code(), Code::Moved, "a standby orders nothing");
    let run = || {
        while ask(&first, false).ok().state == verify_state::RUNNING {
            first.ost.core.verify_round().unwrap();
        }
        ask(&first, false).ok()
    };
    assert_eq!(ask(&first, true).ok().state, verify_state::RUNNING);
    let VerifyMirrorReply { state, done, of, ranges, found, ended_sec, .. } = run();
    assert_eq!((state, done, of, ranges, found, ended_sec), (verify_state::ENDED, 1, 1, 1, 0, NOW_SEC));
    // The other member has lost its content, and no checksum tells.
    second.ost.begin_refill(Epoch(4), first.ost.last_seq()).unwrap();
    other.is_away.store(true, Ordering::Relaxed);
    ask(&first, true).ok();
    let reply = run();
    assert_eq!(reply.state, verify_state::FAILED);
    assert!(reply.why.contains("not in sync"), "{}", reply.why);
    other.is_away.store(false, Ordering::Relaxed);
    let control = |action| ScrubControl { cap: admin(), action, rate: Some(0), every_sec: None };
    first.ask(&control(START)).ok();
    while first.ask(&control(LOOK)).ok().state != 0 {
        first.ost.core.scrub_round().unwrap();
    }
    let reply = run();
    assert_eq!((reply.state, reply.found, reply.filled), (verify_state::ENDED, 1, 1));
    assert_eq!(reply.differences, [Difference { object: object(), offset: 0 }]);
    ask(&first, true).ok();
    assert_eq!(run().found, 0, "they are equal now");
}

#[test]
fn p10_the_scrub_of_either_member_repairs_what_it_finds() {
    let (Pair { first, second, .. }, data, _) = with_needles();
    for rig in [&first, &second] {
        rot(rig, NEEDLES[1]);
        let control = |action| ScrubControl { cap: admin(), action, rate: Some(0), every_sec: None };
        rig.ask(&control(START)).ok();
        while rig.ask(&control(LOOK)).ok().state != 0 {
            rig.ost.core.scrub_round().unwrap();
        }
        let last = rig.ask(&control(LOOK)).ok().last;
        assert_eq!((last.bad_pages, last.repaired), (0, 1));
        assert_eq!(listed(rig), [(8192, true)]);
    }
    assert!(first.read(0, 30_000) == data);
}
