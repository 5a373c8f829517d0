//! Two members of a mirror on media of their own: what was answered is at both, and what was told as flushed survives at both.

mod beside;
mod compare;
mod resync;
mod scrub;
mod trouble;
mod two;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::volume::Volume;
use disk::{Crash, Disk, SimDisk};
use net::{Answer, Service};
use pair::{Companion, Logged, Place, Replica};
use parking_lot::Mutex;
use types::*;
use wire::session::{Flush, KeepAlive, TargetStat, TargetStatReply};
use wire::{Header, Request, Wire, decode_reply};

pub use self::two::{Contents, contents};
use self::two::{
    Link, Two, Way, catch_up, contents_of, flat_standby, other, settings, takes_over, takes_over_above,
};
use super::counts::Play;
use super::crash::Story;
use super::image::check_image;
use super::rig::{HandClock, Rig, format};
use super::rules::{self, body, flat};
use crate::pair::planted::{Bug, is_found};
use crate::{FormatSpec, Mdt, MetaRules, Standby};

#[test]
fn rp1_both_members_have_the_same_records_slots_and_counts() {
    let a = Arc::new(SimDisk::new(2 << 20));
    let spec = FormatSpec::for_size(super::rig::label(), 2 << 20);
    let spec = FormatSpec { log_bytes: 128 << 10, checkpoint_bytes: 512 << 10, ..spec };
    Mdt::format(a.clone(), &spec, false, &MetaRules, Time::new(5, 0)).unwrap();
    let Two { rig, a, b, link, .. } = Two::over(a, Arc::new(MetaRules));
    let mut play = Play::new(rig, 11);
    for n in 0..1500 {
        play.step();
        if n % 100 == 0 {
            assert_eq!(contents_of(&play.rig), link.standby.contents(), "step {n}");
        }
    }
    let begun = contents_of(&play.rig);
    assert_eq!(begun, link.standby.contents());
    assert!(!begun[2].is_empty() && begun[0].len() > 50, "there is something to compare");
    check_image(&play.rig, &a, "the primary");
    check_image(&play.rig, &b, "the other member");
    assert!(
        Volume::open_read_only(b.clone() as Arc<dyn Disk>).unwrap().checkpoint_seq() > Seq(50),
        "it wrote checkpoints"
    );
    // A kill of the other member: it has its log, and the checkpoints that it wrote by itself.
    let again =
        Standby::open(Arc::new(b.crash(Crash::KeepAll)), settings(Arc::new(MetaRules), &Arc::default()));
    assert_eq!(begun, again.unwrap().contents());
}

/// At every event of the primary's medium the primary dies, and the other member takes over.
fn the_primary_dies() {
    (0..4).for_each(the_primary_dies_in);
}

fn the_primary_dies_in(seed: u64) {
    let Two { rig, a, b_before, link, .. } = Two::fresh();
    let (mut story, mut answered) = (Story::new(seed), vec![0]);
    for _ in 0..60 {
        story.step(&rig);
        answered.resize(story.ops.len() + 1, a.events());
    }
    let (events, sent) = (a.events(), link.sent.lock().clone());
    drop(rig);
    let b = Arc::new(b_before);
    let follower = flat_standby(b.clone());
    let (mut at, mut promoted) = (0, 0);
    for cut in 0..=events {
        let begin = at;
        while let Some(entry) = sent.get(at).filter(|entry| entry.at <= cut) {
            assert_eq!(follower.append(&entry.entry), Ok(()));
            at += 1;
        }
        // Between two entries the other member does not change, but the primary may answer.
        let count = answered.iter().rposition(|event| *event <= cut).unwrap();
        if begin == at && cut > 0 && count <= promoted {
            continue;
        }
        promoted = count;
        let rig = takes_over(flat_standby(Arc::new(b.crash(Crash::KeepAll))));
        let mut copy = story.clone();
        let lost = copy.check_survivors(&rig, Seq(0));
        let survived = copy.ops.len();
        assert!(survived >= count, "event {cut}: {count} requests were answered, {survived} are there");
        // Requests under way are sent again, and lead to the same end.
        copy.replay(&rig, lost);
        // No id comes twice (mds-O5).
        (0..5).for_each(|_| copy.step(&rig));
    }
    assert_eq!(at, sent.len(), "all entries were followed");
    assert!(at > 20, "{at} entries");
}

#[test]
fn rp1_whatever_was_answered_is_at_the_member_that_takes_over() {
    the_primary_dies();
    assert!(is_found(Bug::AnswersEarly, the_primary_dies));
}

/// Both media lose power at every write and flush.
fn both_lose_power() {
    (0..4).for_each(both_lose_power_in);
}

fn both_lose_power_in(seed: u64) {
    let Two { rig, a, b, link, .. } = Two::fresh();
    let mut story = Story::new(seed);
    let mut told = vec![];
    for _ in 0..80 {
        story.step(&rig);
        told.push(((a.events(), b.events()), rig.told.load(Ordering::SeqCst)));
    }
    rig.mdt.checkpoint().unwrap();
    rig.list();
    told.push((link.mark(), rig.told.load(Ordering::SeqCst)));
    story.step(&rig);
    link.mark();
    drop(rig);
    let marks = link.marks.lock().clone();
    let [of_a, of_b] = [&a, &b].map(|disk| disk.take_recording().unwrap());
    let (mut play_a, mut play_b) = (of_a.play(), of_b.play());
    let (mut before, mut points) = ((0, 0), 0);
    for mark in marks {
        assert!(before.0 == mark.0 || before.1 == mark.1, "one medium rests: {before:?}, {mark:?}");
        while before != mark {
            before = if before.0 < mark.0 { (before.0 + 1, before.1) } else { (before.0, before.1 + 1) };
            play_a.go_to(before.0);
            play_b.go_to(before.1);
            points += 1;
            let is_told = |at: (usize, usize)| at.0 <= before.0 && at.1 <= before.1;
            let flushed = told.iter().filter(|(at, _)| is_told(*at)).map(|(_, seq)| *seq).max().unwrap_or(0);
            let [left_a, left_b] = [&play_a, &play_b].map(|play| Arc::new(play.crash(Crash::DropAll).0));
            for rig in [Rig::open(left_a), takes_over(flat_standby(left_b))] {
                story.clone().check_survivors(&rig, Seq(flushed));
            }
        }
    }
    assert!(points > 50, "{points} points");
}

#[test]
fn rp3_whatever_was_told_as_flushed_survives_at_both() {
    both_lose_power();
    assert!(is_found(Bug::TellsTheLarger, both_lose_power));
}

#[test]
fn rp3_a_flush_fails_unless_both_members_flushed() {
    let two = Two::fresh();
    two.rig.make(1, 1, "a").unwrap();
    two.link.turn(Way::Cut);
    two.rig.list();
    let told = two.rig.told.load(Ordering::SeqCst);
    assert!(two.rig.ask(&Flush {}, two.rig.session).is_err());
    Replica::flush(&*two.rig.mdt).unwrap();
    two.rig.list();
    assert_eq!(two.rig.told.load(Ordering::SeqCst), told, "one member has flushed it");
    assert!(two.rig.mdt.core.volume.flushed_seq() > Seq(told));
    two.link.turn(Way::Open);
    two.rig.ask(&Flush {}, two.rig.session).unwrap();
    two.rig.list();
    assert_eq!(two.rig.told.load(Ordering::SeqCst), two.link.standby.last_seq().0);
    assert_eq!(two.link.standby.flushed_seq(), two.link.standby.last_seq());
}

/// The other member is asked, and until it answers a read shows the state before.
fn reads_beside_an_entry_under_way() {
    let two = Two::fresh();
    let seen = Arc::new(Mutex::new(vec![]));
    let (mdt, into) = (Arc::downgrade(&two.rig.mdt), seen.clone());
    *two.link.hook.lock() = Some(Box::new(move || {
        let mut answer = Buf::new();
        let head = Header { call: rules::LIST, ..Header::default() };
        let mut answer = net::Answer::new(head, &mut answer);
        net::Service::serve(&*mdt.upgrade().unwrap(), &head, &[], &[], &mut answer);
        into.lock().push(answer.body.clone());
    }));
    two.rig.make(1, 1, "a").unwrap();
    two.rig.make(1, 2, "b").unwrap();
    let seen = seen.lock();
    let shows = |body: &[u8], name: u8| body.windows(5).any(|w| w == [1, 0, 0, 0, name]);
    assert_eq!(seen.len(), 2);
    assert!(!shows(&seen[0], b'a') && shows(&seen[1], b'a') && !shows(&seen[1], b'b'));
}

#[test]
fn rp1_an_entry_is_not_visible_before_both_members_have_it() {
    reads_beside_an_entry_under_way();
    assert!(is_found(Bug::AppliesEarly, reads_beside_an_entry_under_way));
}

/// Makes "a" while the way is bad, ends the wait by `end`, and returns the answer.
fn waits(way: Way, end: impl FnOnce(&Two)) -> (Two, Result<Fid, Fault>) {
    let two = Two::fresh();
    two.link.turn(way);
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| two.rig.make(1, 1, "a"));
        two.until_it_waits();
        let list = Header { call: rules::LIST, ..Header::default() };
        assert_eq!(two.rig.send(list, &[]).unwrap_err().code, Code::NotReady, "nothing is served meanwhile");
        assert_eq!(two.rig.make(2, 1, "b").unwrap_err().code, Code::NotReady);
        let alive = KeepAlive { session: two.rig.session, mode: 0 };
        assert!(two.rig.ask(&alive, two.rig.session).is_ok(), "no session dies of the wait");
        end(&two);
        making.join().unwrap()
    });
    (two, made)
}

/// The request, repeated, is answered from its slot.
fn is_there_once(rig: &Rig, fid: Fid) {
    assert_eq!(rig.list(), BTreeMap::from([("a".into(), fid)]));
    assert_eq!(rig.make(1, 1, "a"), Ok(fid));
    assert_eq!(rig.list().len(), 1);
    rig.make(2, 1, "b").unwrap();
}

#[test]
fn rp2_an_entry_waits_until_the_other_member_is_back() {
    for way in [Way::Deaf, Way::Cut] {
        let (two, made) = waits(way, |two| two.link.turn(Way::Open));
        let fid = made.unwrap();
        is_there_once(&two.rig, fid);
        assert_eq!(contents_of(&two.rig), two.link.standby.contents());
        let rig = takes_over(two.kill());
        assert_eq!(rig.make(1, 1, "a"), Ok(fid));
        assert_eq!(rig.list().len(), 2);
    }
}

#[test]
fn rp2_an_entry_is_applied_when_the_other_member_is_declared_out_and_comes_to_it_later() {
    for way in [Way::Deaf, Way::Cut] {
        let (two, made) = waits(way, |two| {
            // As a member does before it asks to be alone.
            Replica::flush(&*two.rig.mdt).unwrap();
            two.link.turn(Way::Out);
        });
        let fid = made.unwrap();
        let left = Rig::open(Arc::new(two.a.crash(Crash::DropAll)));
        assert_eq!(left.list(), BTreeMap::from([("a".into(), fid)]), "it was flushed");
        is_there_once(&two.rig, fid);
        two.rig.make(3, 1, "c").unwrap();
        assert_ne!(contents_of(&two.rig), two.link.standby.contents());
        // The other member is back, and gets from the log what it lacks.
        catch_up(&two.link.standby, &*two.rig.mdt);
        assert_eq!(contents_of(&two.rig), two.link.standby.contents());
        two.link.turn(Way::Open);
        two.rig.make(3, 2, "d").unwrap();
        assert_eq!(contents_of(&two.rig), two.link.standby.contents());
    }
}

#[test]
fn rp2_an_entry_that_is_not_committed_ends_the_life_and_the_next_one_applies_it() {
    let (two, made) = waits(Way::Cut, |two| two.link.turn(Way::Over));
    assert_eq!(made.unwrap_err().code, Code::NotReady);
    assert_eq!(two.rig.list().len(), 0, "it is not visible");
    assert_eq!(two.rig.make(2, 1, "b").unwrap_err().code, Code::NotReady, "nothing is ordered any more");
    assert!(two.rig.mdt.checkpoint().is_err(), "a checkpoint would leave the entry out");
    two.rig.mdt.stop(true).unwrap();
    let rig = Rig::open(Arc::new(two.a.crash(Crash::KeepAll)));
    assert!(!rig.mdt.was_clean());
    assert_eq!(rig.list().keys().collect::<Vec<_>>(), ["a"]);
    rig.make(1, 1, "a").unwrap();
}

#[test]
fn rp1_a_refused_order_leaves_no_entry() {
    let two = Two::fresh();
    let before = (two.rig.mdt.core.volume.position(), contents_of(&two.rig));
    two.link.refuses_order.store(true, Ordering::SeqCst);
    assert_eq!(two.rig.make(1, 1, "a").unwrap_err().code, Code::NotReady);
    assert_eq!((two.rig.mdt.core.volume.position(), contents_of(&two.rig)), before);
    two.link.refuses_order.store(false, Ordering::SeqCst);
    let fid = two.rig.make(1, 1, "a").unwrap();
    is_there_once(&two.rig, fid);
}

#[test]
fn rp1_a_full_log_is_found_before_an_entry_is_ordered() {
    let two = Two::fresh();
    let core = &two.rig.mdt.core;
    let (mut sequence, mut trims) = (0, 0);
    while trims < 3 {
        let before = core.volume.first_seq();
        sequence += 1;
        two.rig.make(1, sequence, &format!("file {sequence}")).unwrap();
        trims += usize::from(core.volume.first_seq() > before);
    }
    assert_eq!(contents_of(&two.rig), two.link.standby.contents());
}

/// The log was full after all when its entry came.
#[test]
fn rp1_a_place_that_was_given_is_used_by_the_next_entry_or_the_life_ends() {
    let two = Two::fresh();
    let give = |count| {
        let place = Companion::order(&*two.link, count).unwrap();
        two.rig.mdt.core.executor.lead().place = Some(place);
        place
    };
    let place = give(1);
    two.rig.make(1, 1, "a").unwrap();
    assert_eq!(two.link.sent.lock().last().unwrap().entry.place, place);
    assert_eq!(contents_of(&two.rig), two.link.standby.contents());
    give(3);
    assert_eq!(two.rig.make(1, 2, "b").unwrap_err().code, Code::NotReady);
    assert_eq!(two.rig.make(1, 3, "c").unwrap_err().code, Code::NotReady);
    assert_eq!(two.rig.mdt.core.volume.last_seq(), place.last);
}

#[test]
fn an_mdt_that_serves_gets_a_mirror_and_no_entry_is_missing() {
    let a = Arc::new(SimDisk::new(16 << 20));
    let spec = FormatSpec::for_size(super::rig::label(), 16 << 20);
    Mdt::format(a.clone(), &spec, false, &rules::FlatRules, Time::default()).unwrap();
    let rig = Rig::open(a.clone());
    let (mut link, has_one) = (None, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut some, mut left) = (0, 20);
            while left > 0 {
                left -= u32::from(has_one.load(Ordering::SeqCst));
                some += 1;
                rig.make(1, some, &format!("file {some}")).unwrap();
            }
        });
        while rig.mdt.core.volume.last_seq() < Seq(20) {
            std::thread::yield_now();
        }
        let begin = |lines: Vec<(Epoch, Seq)>, end| {
            let b = Arc::new(a.crash(Crash::KeepAll));
            let standby = flat_standby(b.clone());
            assert_eq!(standby.lines(), (lines, end));
            let made = Arc::new(Link::over(standby, a.clone(), b, end));
            link = Some(made.clone());
            Ok(made as Arc<dyn Companion>)
        };
        rig.mdt.set_companion(begin).unwrap();
        has_one.store(true, Ordering::SeqCst);
    });
    let link = link.unwrap();
    assert!(link.sent.lock().len() >= 20);
    assert_eq!(contents_of(&rig), link.standby.contents());
    rig.ask(&Flush {}, rig.session).unwrap();
    assert_eq!(rig.told.load(Ordering::SeqCst), link.standby.flushed_seq().0);
}

#[test]
fn rp2_a_member_that_may_not_serve_refuses_and_says_where_to_go_if_it_was_replaced() {
    let two = Two::fresh();
    two.rig.make(1, 1, "a").unwrap();
    two.link.serves.store(false, Ordering::SeqCst);
    let list = Header { call: rules::LIST, ..Header::default() };
    assert_eq!(two.rig.send(list, &[]).unwrap_err().code, Code::NotReady);
    let alive = KeepAlive { session: two.rig.session, mode: 0 };
    assert!(two.rig.ask(&alive, two.rig.session).is_ok());
    let mut map = other().map;
    map.version += 1;
    map.mirrors[0].primary = TargetId(3);
    two.rig.mdt.set_map(&map).unwrap();
    assert_eq!(two.rig.send(list, &[]).unwrap_err().code, Code::Moved);
    // Its mirror knows better than the map.
    two.link.serves.store(true, Ordering::SeqCst);
    assert_eq!(two.rig.list().len(), 1);
}

#[test]
fn rp1_a_restarted_primary_orders_from_its_first_entry_on() {
    let two = Two::fresh();
    let fid = two.rig.make(1, 1, "a").unwrap();
    two.link.turn(Way::Out);
    two.rig.make(2, 1, "b").unwrap();
    let [a, b] = [&two.a, &two.b].map(|disk| Arc::new(disk.crash(Crash::KeepAll)));
    let two = Two::restarted(a, b);
    assert_eq!(two.rig.make(1, 1, "a"), Ok(fid), "it is answered from its slot");
    two.rig.make(1, 2, "c").unwrap();
    assert_eq!(contents_of(&two.rig), two.link.standby.contents());
    let rig = takes_over(two.kill());
    assert_eq!(rig.list().len(), 3);
}

/// An entry is lost on the way, and the next one comes.
fn an_entry_is_missing() {
    let two = Two::fresh();
    for (n, name) in (1..).zip(["a", "b", "c"]) {
        two.rig.make(1, n, name).unwrap();
    }
    let sent = two.link.sent.lock().clone();
    let follower = flat_standby(Arc::new(two.b_before.copy()));
    follower.append(&sent[0].entry).unwrap();
    assert_eq!(follower.append(&sent[2].entry).unwrap_err().code, Code::Stale);
    assert_eq!(follower.last_seq(), sent[0].entry.place.last, "a refusal leaves nothing");
    for entry in &sent[1..] {
        assert_eq!(follower.append(&entry.entry), Ok(()));
    }
    assert_eq!(follower.contents(), two.link.standby.contents());
}

#[test]
fn rp4_a_standby_takes_no_entry_that_does_not_follow() {
    an_entry_is_missing();
    assert!(is_found(Bug::TakesGaps, an_entry_is_missing));
}

#[test]
fn rp4_only_the_last_entry_is_taken_again_also_after_a_restart() {
    let two = Two::fresh();
    for (n, name) in (1..).zip(["a", "b"]) {
        two.rig.make(1, n, name).unwrap();
    }
    let sent = two.link.sent.lock().clone();
    let last = two.link.standby.last_seq();
    let again = flat_standby(Arc::new(two.b.crash(Crash::KeepAll)));
    for standby in [&two.link.standby, &again] {
        let before = standby.contents();
        assert_eq!(standby.append(&sent[1].entry), Ok(()));
        assert_eq!(standby.append(&sent[0].entry).unwrap_err().code, Code::Stale);
        // Another entry with the same seq.
        let other = sent[0].at_seq(sent[1].entry.place.first);
        assert_eq!(standby.append(&other).unwrap_err().code, Code::Stale);
        assert_eq!((standby.contents(), standby.last_seq()), (before, last));
    }
    let next = sent[1].at_seq(Seq(last.0 + 1));
    let old = Logged { place: Place { line: Epoch(0), ..next.place }, ..next.clone() };
    assert_eq!(two.link.standby.append(&old).unwrap_err().code, Code::Moved);
    let torn = Logged { content: next.content[1..].to_vec(), ..next.clone() };
    assert_eq!(two.link.standby.append(&torn).unwrap_err().code, Code::BadRequest);
    let backwards = Logged { place: Place { last: Seq(next.place.first.0 - 1), ..next.place }, ..next };
    assert_eq!(two.link.standby.append(&backwards).unwrap_err().code, Code::BadRequest);
}

/// A client that has not noticed the change of primary is told to attach.
fn a_member_takes_over() {
    let (a, clock) = (Arc::new(SimDisk::new(1 << 20)), Arc::<HandClock>::default());
    format(a.clone());
    let b = Arc::new(a.copy());
    // The primary has started more often.
    (0..3).for_each(|_| drop(Rig::open(a.clone())));
    let mdt = Mdt::open(a.clone(), settings(flat(), &clock)).unwrap();
    let standby = flat_standby(b.clone());
    catch_up(&standby, &*mdt);
    assert!(mdt.core.incarnation.0 > standby.incarnation().0 + 2);
    let two = Two::of((mdt, clock), a, b, standby);
    two.rig.make(1, 1, "a").unwrap();
    let (session, known) = (two.rig.session, two.rig.mdt.core.incarnation);
    let rig = takes_over_above(two.kill(), known);
    assert!(rig.mdt.core.incarnation > known);
    let head =
        Header { call: rules::MAKE, session, slot: 1, sequence: 2, incarnation: known, ..Header::default() };
    assert_eq!(rig.send(head, &body(Fid(0), "b")).unwrap_err().code, Code::Moved);
    assert_eq!(rig.session, session, "the session goes on");
    rig.make(1, 2, "b").unwrap();
}

#[test]
fn rp5_a_member_that_takes_over_has_a_new_incarnation() {
    a_member_takes_over();
    assert!(is_found(Bug::KeepsIncarnation, a_member_takes_over));
}

#[test]
fn a_standby_tells_its_numbers_and_sends_clients_to_the_primary() {
    let two = Two::fresh();
    for (n, name) in (1..).zip(["a", "b"]) {
        two.rig.make(1, n, name).unwrap();
    }
    let standby = &two.link.standby;
    let ask = |call| {
        let mut bulk = Buf::new();
        let mut answer = Answer::new(Header { call, ..Header::default() }, &mut bulk);
        let head = Header { call, ..Header::default() };
        Service::serve(standby, &head, &TargetStat {}.to_bytes(), &[], &mut answer);
        assert_eq!(answer.head.incarnation, standby.incarnation());
        decode_reply::<TargetStatReply>(&answer.body).expect("a reply").1
    };
    let (own, primary) = (ask(TargetStat::CALL).unwrap(), two.rig.mdt.core.target_stat().unwrap());
    assert_eq!((own.is_mdt, own.last_seq, own.sessions), (true, standby.last_seq(), 0));
    assert_eq!((own.files_total, own.bytes_total), (primary.files_total, primary.bytes_total));
    assert_eq!(ask(KeepAlive::CALL).unwrap_err().code, Code::Moved);
}
