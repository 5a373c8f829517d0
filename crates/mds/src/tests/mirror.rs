//! Two members of a mirror on media of their own: what was answered is at both, and what was told as flushed survives at both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::volume::{LogEntry, Verdict, Volume};
use disk::{Crash, Disk, SimDisk};
use kv::{Engine, View};
use meta::counts::Pending;
use parking_lot::Mutex;
use types::*;
use wire::Header;
use wire::map::Target;
use wire::mgmt::RegisterReply;
use wire::session::{Flush, KeepAlive};

use super::counts::Play;
use super::crash::Story;
use super::image::check_image;
use super::rig::{HandClock, Rig, format, registered};
use super::rules::{self, body, flat};
use crate::executor::slots::Slots;
use crate::pair::planted::{Bug, is_found};
use crate::{Companion, FormatSpec, Mdt, MetaRules, Records, Rules, Settings, Shipped, Standby};

/// Records, slots and counts.
pub type Contents = [BTreeMap<Vec<u8>, Vec<u8>>; 3];

pub fn contents(kv: &Records, slots: &Slots, counts: &Pending) -> Contents {
    let mut records = BTreeMap::new();
    let each = kv.snapshot().each(&mut |key, value, _| {
        records.insert(key.as_bytes().to_vec(), value.to_vec());
        Ok(())
    });
    each.unwrap();
    let slots = slots.records().map(|(key, value)| (key.as_bytes().to_vec(), value.raw().to_vec()));
    let counts = counts.records().map(|(key, value)| (key.as_bytes().to_vec(), value));
    [records, slots.collect(), counts.collect()]
}

fn contents_of(rig: &Rig) -> Contents {
    let seat = rig.mdt.core.executor.lead();
    contents(&rig.mdt.core.kv, &seat.slots, &seat.counts)
}

/// The way to the other member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Requests do not arrive.
    Cut,
    /// The answer of an append is lost.
    Deaf,
}

/// An entry as it was shipped, and the primary's events when it was acknowledged.
#[derive(Clone)]
struct Sent {
    at: usize,
    epoch: Epoch,
    incarnation: Incarnation,
    first: Seq,
    ops: u32,
    payload: Vec<u8>,
}

impl Sent {
    fn shipped(&self) -> Shipped<'_> {
        let Sent { epoch, incarnation, first, ops, ref payload, .. } = *self;
        Shipped { epoch, incarnation, first, ops, payload }
    }
}

type Hook = Box<dyn Fn() + Send>;

/// The other member, and a record of what it was sent.
struct Link {
    standby: Standby,
    a: Arc<SimDisk>,
    b: Arc<SimDisk>,
    way: Mutex<Way>,
    sent: Mutex<Vec<Sent>>,
    /// Events of both media at the begin and at the end of each call: between two marks, one medium rests.
    marks: Mutex<Vec<(usize, usize)>>,
    /// Runs before the other member takes an entry.
    hook: Mutex<Option<Hook>>,
}

impl Link {
    fn mark(&self) -> (usize, usize) {
        let now = (self.a.events(), self.b.events());
        self.marks.lock().push(now);
        now
    }

    fn check(&self) -> Result<Way, Fault> {
        match *self.way.lock() {
            Way::Cut => Err(Fault::new(Code::Timeout, "cut")),
            way => Ok(way),
        }
    }
}

impl Companion for Link {
    fn append(&self, entry: &Shipped<'_>) -> Result<Seq, Fault> {
        let way = self.check()?;
        self.hook.lock().iter().for_each(|hook| hook());
        self.mark();
        let has = self.standby.append(entry)?;
        let (at, _) = self.mark();
        let Shipped { epoch, incarnation, first, ops, payload } = *entry;
        self.sent.lock().push(Sent { at, epoch, incarnation, first, ops, payload: payload.to_vec() });
        match way {
            Way::Deaf => Err(Fault::new(Code::Timeout, "the answer is lost")),
            _ => Ok(has),
        }
    }

    fn flush(&self, _: Seq) -> Result<Seq, Fault> {
        self.check()?;
        self.mark();
        let flushed = self.standby.flush();
        self.mark();
        flushed
    }

    fn last_seq(&self) -> Result<Seq, Fault> {
        self.check().map(|_| self.standby.last_seq())
    }
}

/// A pair, and the other member's medium as it was at the pairing.
struct Two {
    rig: Rig,
    a: Arc<SimDisk>,
    b: Arc<SimDisk>,
    b_before: SimDisk,
    link: Arc<Link>,
}

fn settings(rules: Arc<dyn Rules>, clock: &Arc<HandClock>) -> Settings {
    Settings { background: false, clock: clock.clone(), ..Settings::with_rules(rules) }
}

/// The other member is target 3 of the same mirror.
fn other() -> RegisterReply {
    let mut reply = registered();
    let first = reply.map.targets[0].clone();
    reply.map.targets.push(Target { id: TargetId(3), ..first });
    reply.target = TargetId(3);
    reply
}

fn flat_standby(disk: Arc<SimDisk>) -> Standby {
    Standby::open(disk, settings(flat(), &Arc::default())).unwrap()
}

/// Gives a standby all entries that the log of `a` has beyond it.
fn catch_up(standby: &Standby, a: &Arc<SimDisk>) {
    let of_a = Volume::open_read_only(a.clone() as Arc<dyn Disk>).unwrap();
    let replayed = of_a.replay(&mut |entry| {
        let LogEntry { epoch, seq, ops, incarnation, payload, .. } = *entry;
        if seq > standby.last_seq() {
            standby.append(&Shipped { epoch, incarnation, first: seq, ops, payload }).unwrap();
        }
        Verdict::Keep
    });
    replayed.unwrap();
}

fn takes_over(standby: Standby) -> Rig {
    Rig::around(standby.promote(Incarnation(0)).unwrap(), Arc::default(), other()).unwrap()
}

impl Two {
    /// Both media begin with the same bytes. Their recordings begin at the pairing, with one client attached.
    fn over(a: Arc<SimDisk>, rules: Arc<dyn Rules>) -> Two {
        let clock = Arc::<HandClock>::default();
        let mdt = Mdt::open(a.clone(), settings(rules.clone(), &clock)).unwrap();
        mdt.flush().unwrap();
        let b = Arc::new(a.crash(Crash::KeepAll));
        let standby = Standby::open(b.clone(), settings(rules, &clock)).unwrap();
        Two::of((mdt, clock), a, b, standby)
    }

    fn of(
        (mdt, clock): (Arc<Mdt>, Arc<HandClock>),
        a: Arc<SimDisk>,
        b: Arc<SimDisk>,
        standby: Standby,
    ) -> Two {
        let link = Arc::new(Link {
            standby,
            a: a.clone(),
            b: b.clone(),
            way: Mutex::new(Way::Open),
            sent: Mutex::default(),
            marks: Mutex::default(),
            hook: Mutex::default(),
        });
        mdt.pair(link.clone()).unwrap();
        let rig = Rig::around(mdt, clock, registered()).unwrap();
        rig.mdt.flush().unwrap();
        link.sent.lock().clear();
        let b_before = b.crash(Crash::KeepAll);
        a.record();
        b.record();
        Two { rig, a, b, b_before, link }
    }

    fn fresh() -> Two {
        let a = Arc::new(SimDisk::new(1 << 20));
        format(a.clone());
        Two::over(a, flat())
    }

    /// Ends the primary and returns the other member.
    fn kill(self) -> Standby {
        let Two { rig, link, .. } = self;
        drop(rig);
        Arc::into_inner(link).unwrap().standby
    }

    fn until_it_waits(&self) {
        while !self.rig.mdt.waits_for_companion() {
            std::thread::yield_now();
        }
    }
}

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
            assert_eq!(follower.append(&entry.shipped()), Ok(entry.shipped().last()));
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
    *two.link.way.lock() = Way::Cut;
    two.rig.list();
    let told = two.rig.told.load(Ordering::SeqCst);
    assert!(two.rig.ask(&Flush {}, two.rig.session).is_err());
    two.rig.mdt.flush_own().unwrap();
    two.rig.list();
    assert_eq!(two.rig.told.load(Ordering::SeqCst), told, "one member has flushed it");
    assert!(two.rig.mdt.core.volume.flushed_seq() > Seq(told));
    *two.link.way.lock() = Way::Open;
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
    *two.link.way.lock() = way;
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
        let (two, made) = waits(way, |two| {
            *two.link.way.lock() = Way::Open;
            two.rig.mdt.pair(two.link.clone()).unwrap();
        });
        let fid = made.unwrap();
        is_there_once(&two.rig, fid);
        assert_eq!(contents_of(&two.rig), two.link.standby.contents());
        let rig = takes_over(two.kill());
        assert_eq!(rig.make(1, 1, "a"), Ok(fid));
        assert_eq!(rig.list().len(), 2);
    }
}

#[test]
fn rp2_an_entry_is_flushed_and_applied_when_the_other_member_is_declared_out() {
    for way in [Way::Deaf, Way::Cut] {
        let (two, made) = waits(way, |two| two.rig.mdt.go_on_alone().unwrap());
        let fid = made.unwrap();
        let left = Rig::open(Arc::new(two.a.crash(Crash::DropAll)));
        assert_eq!(left.list(), BTreeMap::from([("a".into(), fid)]), "it was flushed");
        is_there_once(&two.rig, fid);
        // The other member lacks entries now.
        *two.link.way.lock() = Way::Open;
        assert_eq!(two.rig.mdt.pair(two.link.clone()).unwrap_err().code, Code::Stale);
        two.rig.make(3, 1, "c").unwrap();
    }
}

#[test]
fn rp2_a_stop_ends_the_wait_and_the_next_start_applies_the_entry() {
    let (two, made) = waits(Way::Cut, |two| two.rig.mdt.stop(true).unwrap());
    assert_eq!(made.unwrap_err().code, Code::NotReady);
    assert!(two.rig.mdt.checkpoint().is_err(), "a checkpoint would leave the entry out");
    let rig = Rig::open(Arc::new(two.a.crash(Crash::KeepAll)));
    assert!(!rig.mdt.was_clean());
    assert_eq!(rig.list().keys().collect::<Vec<_>>(), ["a"]);
    rig.make(1, 1, "a").unwrap();
}

/// An entry is lost on the way, and the next one comes.
fn an_entry_is_missing() {
    let two = Two::fresh();
    for (n, name) in (1..).zip(["a", "b", "c"]) {
        two.rig.make(1, n, name).unwrap();
    }
    let sent = two.link.sent.lock().clone();
    let follower = flat_standby(Arc::new(two.b_before.copy()));
    let last = follower.append(&sent[0].shipped()).unwrap();
    assert_eq!(follower.append(&sent[2].shipped()).unwrap_err().code, Code::Stale);
    assert_eq!(follower.last_seq(), last, "a refusal leaves nothing");
    for entry in &sent[1..] {
        assert_eq!(follower.append(&entry.shipped()), Ok(entry.shipped().last()));
    }
    assert_eq!(follower.contents(), two.link.standby.contents());
}

#[test]
fn rp4_a_standby_takes_no_entry_that_does_not_follow() {
    an_entry_is_missing();
    assert!(is_found(Bug::TakesGaps, an_entry_is_missing));
}

#[test]
fn rp4_only_the_last_entry_is_acknowledged_again_also_after_a_restart() {
    let two = Two::fresh();
    for (n, name) in (1..).zip(["a", "b"]) {
        two.rig.make(1, n, name).unwrap();
    }
    let sent = two.link.sent.lock().clone();
    let last = two.link.standby.last_seq();
    let again = flat_standby(Arc::new(two.b.crash(Crash::KeepAll)));
    for standby in [&two.link.standby, &again] {
        let before = standby.contents();
        assert_eq!(standby.append(&sent[1].shipped()), Ok(last));
        assert_eq!(standby.append(&sent[0].shipped()).unwrap_err().code, Code::Stale);
        // Another entry with the same seq.
        let other = Sent { first: sent[1].first, ..sent[0].clone() };
        assert_eq!(standby.append(&other.shipped()).unwrap_err().code, Code::Stale);
        assert_eq!((standby.contents(), standby.last_seq()), (before, last));
    }
    let old = Sent { epoch: Epoch(0), first: Seq(last.0 + 1), ..sent[1].clone() };
    assert_eq!(two.link.standby.append(&old.shipped()).unwrap_err().code, Code::Moved);
    let torn = Sent { payload: sent[1].payload[1..].to_vec(), first: Seq(last.0 + 1), ..sent[1].clone() };
    assert_eq!(two.link.standby.append(&torn.shipped()).unwrap_err().code, Code::BadRequest);
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
    catch_up(&standby, &a);
    assert!(mdt.core.incarnation.0 > standby.incarnation().0 + 2);
    let two = Two::of((mdt, clock), a, b, standby);
    two.rig.make(1, 1, "a").unwrap();
    let (session, known) = (two.rig.session, two.rig.mdt.core.incarnation);
    let rig = takes_over(two.kill());
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
    let standby = flat_standby(Arc::new(Two::fresh().b.crash(Crash::KeepAll)));
    let mdt = standby.promote(Incarnation(77)).unwrap();
    assert!(mdt.core.incarnation > Incarnation(77), "also above those that only the map knows");
}
