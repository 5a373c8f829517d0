//! Two OSTs as a mirror: the take-over, the gate, exactly once over both, and the flushed seq that both have.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pair::{Companion, Logged, Place, Replica, StageId};
use parking_lot::Mutex;

use super::*;

/// The other OST, as the seat would serve it.
pub struct Link {
    other: Arc<Ost>,
    end: AtomicU64,
    line: u32,
    pub flushed: AtomicU64,
    stages: AtomicU64,
    serves: AtomicBool,
    /// Why the next commit fails.
    fault: Mutex<Option<Fault>>,
}

impl Link {
    pub fn new(other: &Arc<Ost>, end: Seq, line: u32) -> Arc<Link> {
        Arc::new(Link {
            other: other.clone(),
            end: AtomicU64::new(end.0),
            line,
            flushed: AtomicU64::new(end.0),
            stages: AtomicU64::new(0),
            serves: AtomicBool::new(true),
            fault: Mutex::default(),
        })
    }
}

impl Companion for Link {
    fn serves(&self) -> bool {
        self.serves.load(Ordering::Relaxed)
    }
    fn order(&self, count: u32) -> Result<Place, Fault> {
        let end = self.end.fetch_add(u64::from(count), Ordering::Relaxed);
        Ok(Place { line: Epoch(self.line), first: Seq(end + 1), last: Seq(end + u64::from(count)) })
    }
    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        if let Some(fault) = self.fault.lock().take() {
            return Err(fault);
        }
        assert!(self.other.can_append(content));
        self.other.append(&Logged { place, content: content.to_vec() })
    }
    fn committed(&self) -> Seq {
        self.other.last_seq()
    }
    fn flushed(&self) -> Seq {
        Seq(self.flushed.load(Ordering::Relaxed))
    }
    fn flush(&self, want: Seq) -> Result<(), Fault> {
        let flushed = Replica::flush(&*self.other)?;
        assert!(flushed >= want);
        self.flushed.store(flushed.0, Ordering::Relaxed);
        Ok(())
    }
    fn hands_over(&self) -> bool {
        self.flushed() != Seq(u64::MAX)
    }
    fn stage(&self, pages: &[u8]) -> Option<StageId> {
        let id = StageId(self.stages.fetch_add(1, Ordering::Relaxed));
        self.other.stage(id, pages).ok().map(|()| id)
    }
}

pub struct Pair {
    pub first: Rig,
    pub second: Rig,
    pub link: Arc<Link>,
}

/// Both members are empty, and the first one orders. A session is attached there.
pub fn pair() -> Pair {
    pair_over(|disk| disk)
}

/// As `pair`, with something above the first one's medium.
pub fn pair_over<D: disk::Disk + 'static>(above: impl Fn(Arc<SimDisk>) -> Arc<D>) -> Pair {
    let medium = || {
        let disk = Arc::new(SimDisk::new(12 << 20));
        Ost::format(&*disk, &FormatSpec::new("test", Uuid([8; 16]))).unwrap();
        disk
    };
    let disk = medium();
    let ost = Ost::open(above(disk.clone()) as Arc<dyn disk::Disk>, settings()).unwrap();
    ost.join(&reply_of_mgs()).unwrap();
    let (first, second) = (Rig { disk, ost }, Rig::open(medium(), settings()));
    second.ost.stand_by().unwrap();
    let link = Link::new(&second.ost, Seq(0), 4);
    first.ost.set_companion(Some(link.clone())).unwrap();
    first.attach();
    Pair { first, second, link }
}

#[test]
fn p9_a_standby_serves_nothing_and_after_a_take_over_everything_that_was_answered() {
    let Pair { first, second, .. } = pair();
    let bytes = vec![7; 100_000];
    let done = first.write(1, 0, &bytes);
    let part = first.write(2, 5000, b"a part");
    assert!(part.head.seq > done.head.seq);
    let refused = second.ask(&read_of(rw(), 0, 100));
    assert_eq!(refused.code(), Code::Moved);
    let stat = second.ask(&TargetStat {}).ok();
    assert_eq!(stat.last_seq, part.head.seq, "its numbers are told");
    // The first one is gone; the second one is above all that it showed.
    let shown = Incarnation(40);
    let alone = Link::new(&first.ost, second.ost.last_seq(), 5);
    let now = second.ost.promote(shown, alone.clone()).unwrap();
    assert!(now > shown && second.ost.incarnation() == now);
    first.ost.stand_by().unwrap();
    let old = Header { incarnation: Incarnation(1), session: SESSION, ..Header::default() };
    assert_eq!(second.say(old, &read_of(rw(), 0, 100), &[]).code(), Code::Moved, "oss-P3");
    let attached = second.attach();
    assert_eq!(attached.slots[2], 2);
    assert_eq!(
        (attached.last_seq, attached.flushed_seq),
        (part.head.seq, Seq(part.head.seq.0.min(alone.flushed().0)))
    );
    // A repeat is answered from its slot, and the bytes are those that were answered.
    let again = second.write(2, 5000, b"other!");
    assert_eq!((again.head.seq, again.ok()), (part.head.seq, part.ok()));
    let mut want = bytes;
    want[5000..5006].copy_from_slice(b"a part");
    assert!(second.read(0, 100_000) == want);
    let more = second.write(3, 0, b"new");
    assert_eq!(more.frame.incarnation, now);
    assert_eq!(first.ost.last_seq(), more.head.seq, "it is the standby now");
}

#[test]
fn p9_a_member_that_may_not_serve_refuses_also_what_was_read_already() {
    let Pair { first, link, .. } = pair();
    first.write(1, 0, &[1; 5000]).ok();
    link.serves.store(false, Ordering::Relaxed);
    for refused in [
        first.ask(&read_of(rw(), 0, 100)).code(),
        first.write(2, 0, b"x").code(),
        first.ask(&Flush {}).code(),
    ] {
        assert_eq!(refused, Code::NotReady);
    }
    first.ask(&TargetStat {}).ok();
    link.serves.store(true, Ordering::Relaxed);
    // It loses the promise while a read is under way.
    struct Once(Arc<Link>, AtomicU64);
    impl Companion for Once {
        fn serves(&self) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed) == 0
        }
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.0.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            self.0.commit(place, content)
        }
        fn committed(&self) -> Seq {
            self.0.committed()
        }
        fn flushed(&self) -> Seq {
            self.0.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.0.flush(want)
        }
        fn hands_over(&self) -> bool {
            false
        }
        fn stage(&self, pages: &[u8]) -> Option<StageId> {
            self.0.stage(pages)
        }
    }
    first.ost.set_companion(Some(Arc::new(Once(link, AtomicU64::new(0))))).unwrap();
    let said = first.ask(&read_of(rw(), 0, 100));
    assert_eq!(said.code(), Code::NotReady);
    assert!(said.bulk.is_empty(), "no byte of it leaves");
}

/// A seat that lets the standby read in one epoch, so many times.
struct Reads(Epoch, AtomicU64);

impl crate::mirror::Reading for Reads {
    fn serves_reads_of(&self, epoch: Epoch) -> bool {
        epoch == self.0
            && self.1.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }
}

#[test]
fn p9_a_standby_serves_reads_that_name_the_epoch_of_its_seat() {
    let Pair { first, second, .. } = pair();
    first.write(1, 0, &[7; 5000]).ok();
    let read = |epoch| {
        let head = Header { epoch: Epoch(epoch), session: SESSION, ..Header::default() };
        second.say(head, &read_of(rw(), 0, 5000), &[])
    };
    assert_eq!(read(9).code(), Code::Moved, "it has no seat yet");
    second.ost.read_beside(Arc::new(Reads(Epoch(9), AtomicU64::new(4))));
    let said = read(9);
    assert!(said.code() == Code::Ok && said.bulk == [7; 5000]);
    for other in [0, 8, 10] {
        assert_eq!(read(other).code(), Code::Moved, "epoch {other}");
    }
    // It attaches readers, and begins no session: that comes from the mirror.
    let head = Header { epoch: Epoch(9), ..Header::default() };
    let (before, attached) = (second.ost.last_seq(), second.attach_with(head));
    assert!(attached.slots.is_empty() && second.ost.last_seq() == before);
    let head = Header { epoch: Epoch(9), ..slotted(2) };
    assert_eq!(
        second.say(head, &write_of(rw(), 0, b"x"), b"x").code(),
        Code::Moved,
        "changes are the primary's"
    );
    // The promise ends while a read is under way.
    second.ost.read_beside(Arc::new(Reads(Epoch(9), AtomicU64::new(1))));
    let said = read(9);
    assert!(said.code() == Code::Moved && said.bulk.is_empty(), "no byte of it leaves");
}

#[test]
fn rp7_a_read_at_the_primary_waits_for_the_other_member_to_acknowledge() {
    let Pair { first, second, link } = pair();
    first.write(1, 0, &[1; 5000]).ok();
    /// Tells when the other member has the entry, and returns when the story allows it.
    struct Slow(Arc<Link>, Mutex<std::sync::mpsc::Sender<()>>, Mutex<std::sync::mpsc::Receiver<()>>);
    impl Companion for Slow {
        fn serves(&self) -> bool {
            true
        }
        fn order(&self, count: u32) -> Result<Place, Fault> {
            self.0.order(count)
        }
        fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
            self.0.commit(place, content)?;
            self.1.lock().send(()).expect("the story goes on");
            self.2.lock().recv().expect("the story goes on");
            Ok(())
        }
        fn committed(&self) -> Seq {
            self.0.committed()
        }
        fn flushed(&self) -> Seq {
            self.0.flushed()
        }
        fn flush(&self, want: Seq) -> Result<(), Fault> {
            self.0.flush(want)
        }
        fn hands_over(&self) -> bool {
            false
        }
        fn stage(&self, pages: &[u8]) -> Option<StageId> {
            self.0.stage(pages)
        }
    }
    let ((there, has_it), (go, may_go)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    first.ost.set_companion(Some(Arc::new(Slow(link, Mutex::new(there), Mutex::new(may_go))))).unwrap();
    second.ost.read_beside(Arc::new(Reads(Epoch(9), AtomicU64::new(2))));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| first.write(2, 0, &[2; 5000]).ok());
        has_it.recv().expect("it is at the other member");
        let head = Header { epoch: Epoch(9), session: SESSION, ..Header::default() };
        assert!(second.say(head, &read_of(rw(), 0, 5000), &[]).bulk == [2; 5000], "a reader sees it there");
        let reader = scope.spawn(|| first.read(0, 5000));
        // A read that did not wait would end in far less, with the old bytes.
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!reader.is_finished(), "it waits");
        go.send(()).expect("it waits for this");
        assert!(reader.join().expect("no panic") == vec![2; 5000], "bytes never go back in time");
        writer.join().expect("no panic");
    });
}

#[test]
fn a_flush_is_answered_once_both_members_are_flushed() {
    let Pair { first, second, link } = pair();
    let done = first.write(1, 0, &[1; 5000]);
    assert!(done.head.flushed_seq < done.head.seq);
    Replica::flush(&*first.ost).unwrap();
    assert!(first.ask(&TargetStat {}).head.flushed_seq < done.head.seq, "the other one has not");
    let flushed = first.ask(&Flush {});
    assert_eq!(flushed.head.flushed_seq, done.head.seq);
    assert_eq!(link.flushed(), done.head.seq);
    // Both lose power now.
    let ost = |rig: &Rig| Ost::open(Arc::new(rig.disk.crash(Crash::DropAll)), settings()).unwrap();
    assert_eq!(ost(&first).last_seq(), done.head.seq);
    assert_eq!(ost(&second).last_seq(), done.head.seq);
}

#[test]
fn a_failed_commit_ends_the_life_without_a_clean_mark_and_the_entry_can_be_cut() {
    let Pair { first, link, .. } = pair();
    let done = first.write(1, 0, &[1; 5000]);
    *link.fault.lock() = Some(Fault::new(Code::Timeout, "no answer"));
    assert_eq!(first.write(2, 0, &[2; 5000]).code(), Code::NotReady);
    assert_eq!(first.write(3, 0, &[3; 5000]).code(), Code::NotReady);
    assert_eq!(first.read(0, 5000), [1; 5000]);
    let before = first.ost.incarnation();
    first.ost.stop(true).unwrap();
    let after = |cut: Option<Seq>| {
        let disk = Arc::new(first.disk.crash(Crash::KeepAll));
        match cut {
            Some(after) => Ost::open_cut(disk, settings(), after).unwrap(),
            None => Ost::open(disk, settings()).unwrap(),
        }
    };
    let kept = after(None);
    assert!(kept.incarnation() > before);
    assert_eq!(kept.last_seq(), Seq(done.head.seq.0 + 1));
    assert_eq!(after(Some(done.head.seq)).last_seq(), done.head.seq);
    assert_eq!(kept.lines().unwrap(), [(Epoch(4), Seq(1))]);
}

#[test]
fn entries_of_the_log_bring_a_member_up_that_was_away() {
    let Pair { first, second, link } = pair();
    first.write(1, 0, &[1; 50_000]).ok();
    first.ost.set_companion(None).unwrap();
    for n in 2..10 {
        first.write(n, u64::from(n) * 3000, &[n as u8; 9000]).ok();
    }
    assert_eq!(first.ost.first(), Seq(1));
    while second.ost.last_seq() < first.ost.last_seq() {
        for entry in first.ost.entries(second.ost.last_seq(), 20_000).unwrap() {
            second.ost.append(&entry).unwrap();
        }
    }
    let want = first.read(0, 60_000);
    second.ost.promote(Incarnation(9), Link::new(&first.ost, second.ost.last_seq(), 5)).unwrap();
    first.ost.stand_by().unwrap();
    second.attach();
    assert!(second.read(0, 60_000) == want);
    assert_eq!(link.committed(), second.ost.last_seq());
}

#[test]
fn a_note_is_kept_over_a_loss_of_power() {
    let Pair { first, .. } = pair();
    assert!(first.ost.note().unwrap().is_empty());
    first.ost.keep_note(b"standing").unwrap();
    let again = Ost::open(Arc::new(first.disk.crash(Crash::DropAll)), settings()).unwrap();
    assert_eq!(again.note().unwrap(), b"standing");
    assert!(first.ost.keep_note(&[0; 5000]).is_err());
}

#[test]
fn a_member_with_other_content_takes_the_whole_content_beside_requests() {
    let Pair { first, second, .. } = pair();
    first.write(1, 0, &[1; 50_000]).ok();
    first.ost.set_companion(None).unwrap();
    first.write(2, 30_000, &[2; 90_000]).ok();
    // It lacks what the log does not have any more.
    let end = first.ost.last_seq();
    assert!(first.ost.is_filled_live());
    second.ost.begin_refill(Epoch(4), end).unwrap();
    assert_eq!((second.ost.last_seq(), second.ost.first()), (end, Seq(end.0 + 1)));
    let link = Link::new(&second.ost, end, 4);
    first.ost.set_companion(Some(link.clone())).unwrap();
    let mut filling = first.ost.fill().unwrap();
    let mut slot = 3;
    let filled = loop {
        first.write(slot, u64::from(slot) * 7000, &[slot as u8; 5000]).ok();
        slot += 1;
        let filled = filling.step().unwrap();
        if filled.end.is_some() {
            break filled;
        }
    };
    assert_eq!((filled.objects, filled.objects_total, filled.end), (1, 1, Some(first.ost.last_seq())));
    first.write(slot, 0, b"after the end").ok();
    let (want, slots) = (first.read(0, 200_000), first.attach().slots);
    second.ost.promote(Incarnation(9), Link::new(&first.ost, second.ost.last_seq(), 5)).unwrap();
    first.ost.stand_by().unwrap();
    assert_eq!(second.attach().slots, slots);
    assert!(second.read(0, 200_000) == want);
    // A repeat of a request of before the filling is answered from its slot.
    second.write(2, 30_000, &[9; 90_000]).ok();
    assert!(second.read(0, 200_000) == want);
}
