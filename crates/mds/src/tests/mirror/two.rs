//! An MDT and the other member of its mirror, each on a medium of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use disk::{Crash, SimDisk};
use kv::{Engine, View};
use meta::counts::Pending;
use pair::{Companion, Logged, Place, Replica, StageId};
use parking_lot::{Condvar, Mutex, MutexGuard};
use types::*;
use wire::map::Target;
use wire::mgmt::RegisterReply;

use crate::executor::slots::Slots;
use crate::pair::COMMIT_MS_MAX;
use crate::tests::rig::{HandClock, Rig, format, registered};
use crate::tests::rules::flat;
use crate::{Mdt, Records, Rules, Settings, Standby};

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

pub fn contents_of(rig: &Rig) -> Contents {
    let seat = rig.mdt.core.executor.lead();
    contents(&rig.mdt.core.kv, &seat.slots, &seat.counts)
}

/// The way to the other member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Requests do not arrive.
    Cut,
    /// The answer of an append is lost.
    Deaf,
    /// The other member was declared out.
    Out,
    /// This life of the primary is over.
    Over,
}

/// An entry as it was shipped, and the primary's events when it was acknowledged.
#[derive(Clone)]
pub struct Sent {
    pub at: usize,
    pub entry: Logged,
}

impl Sent {
    pub fn at_seq(&self, first: Seq) -> Logged {
        let Place { line, first: was, last } = self.entry.place;
        let place = Place { line, first, last: Seq(first.0 + last.0 - was.0) };
        Logged { place, content: self.entry.content.clone() }
    }
}

type Hook = Box<dyn Fn() + Send>;

/// The mirror as the primary sees it: the other member in this process, and a record of what it was sent.
pub struct Link {
    pub standby: Standby,
    a: Arc<SimDisk>,
    b: Arc<SimDisk>,
    way: Mutex<Way>,
    turned: Condvar,
    /// Commits that wait.
    pub waiting: AtomicU64,
    pub refuses_order: AtomicBool,
    pub serves: AtomicBool,
    line: Epoch,
    end: AtomicU64,
    committed: AtomicU64,
    flushed: AtomicU64,
    pub sent: Mutex<Vec<Sent>>,
    /// Events of both media at the begin and at the end of each call: between two marks, one medium rests.
    pub marks: Mutex<Vec<(usize, usize)>>,
    /// Runs before the other member takes an entry.
    pub hook: Mutex<Option<Hook>>,
}

impl Link {
    pub fn over(standby: Standby, a: Arc<SimDisk>, b: Arc<SimDisk>, end: Seq) -> Link {
        let flushed = Replica::flush(&standby).unwrap();
        Link {
            standby,
            a,
            b,
            way: Mutex::new(Way::Open),
            turned: Condvar::new(),
            waiting: AtomicU64::new(0),
            refuses_order: AtomicBool::new(false),
            serves: AtomicBool::new(true),
            line: Epoch(1),
            end: AtomicU64::new(end.0),
            committed: AtomicU64::new(end.0),
            flushed: AtomicU64::new(flushed.0),
            sent: Mutex::default(),
            marks: Mutex::default(),
            hook: Mutex::default(),
        }
    }

    pub fn mark(&self) -> (usize, usize) {
        let now = (self.a.events(), self.b.events());
        self.marks.lock().push(now);
        now
    }

    pub fn turn(&self, way: Way) {
        *self.way.lock() = way;
        self.turned.notify_all();
    }

    fn ship(&self, entry: &Logged) -> Result<(), Fault> {
        self.hook.lock().iter().for_each(|hook| hook());
        self.mark();
        Replica::append(&self.standby, entry)?;
        let (at, _) = self.mark();
        self.sent.lock().push(Sent { at, entry: entry.clone() });
        Ok(())
    }
}

impl Companion for Link {
    fn serves(&self) -> bool {
        self.serves.load(Ordering::SeqCst)
    }

    fn order(&self, count: u32) -> Result<Place, Fault> {
        if self.refuses_order.load(Ordering::SeqCst) {
            return Err(Fault::new(Code::NotReady, "this member does not order"));
        }
        let first = self.end.fetch_add(u64::from(count), Ordering::SeqCst) + 1;
        Ok(Place { line: self.line, first: Seq(first), last: Seq(first + u64::from(count) - 1) })
    }

    fn commit(&self, place: Place, content: &[u8]) -> Result<(), Fault> {
        let entry = Logged { place, content: content.to_vec() };
        let mut way = self.way.lock();
        let done = loop {
            let now = *way;
            match now {
                Way::Out => break Ok(()),
                Way::Over => break Err(Fault::new(Code::NotReady, "the life is over")),
                Way::Open => break MutexGuard::unlocked(&mut way, || self.ship(&entry)),
                Way::Deaf if self.standby.last_seq() < place.first => {
                    MutexGuard::unlocked(&mut way, || self.ship(&entry))?;
                }
                Way::Cut | Way::Deaf => {
                    self.waiting.fetch_add(1, Ordering::SeqCst);
                    while *way == now {
                        self.turned.wait(&mut way);
                    }
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                }
            }
        };
        if done.is_ok() {
            self.committed.store(place.last.0, Ordering::SeqCst);
        }
        done
    }

    fn committed(&self) -> Seq {
        Seq(self.committed.load(Ordering::SeqCst))
    }

    fn flushed(&self) -> Seq {
        let is_out = *self.way.lock() == Way::Out;
        if is_out { Seq(u64::MAX) } else { Seq(self.flushed.load(Ordering::SeqCst)) }
    }

    fn flush(&self, want: Seq) -> Result<(), Fault> {
        match *self.way.lock() {
            Way::Cut | Way::Over => return Err(Fault::new(Code::Timeout, "cut")),
            Way::Out => return Ok(()),
            Way::Open | Way::Deaf => {}
        }
        self.mark();
        let flushed = Replica::flush(&self.standby)?;
        self.mark();
        assert!(flushed >= want, "the primary asks for what the other member has");
        self.flushed.fetch_max(flushed.0, Ordering::SeqCst);
        Ok(())
    }

    fn hands_over(&self) -> bool {
        self.flushed() != Seq(u64::MAX)
    }

    fn stage(&self, _: &[u8]) -> Option<StageId> {
        None
    }
}

/// A pair, and the other member's medium as it was at the pairing.
pub struct Two {
    pub rig: Rig,
    pub a: Arc<SimDisk>,
    pub b: Arc<SimDisk>,
    pub b_before: SimDisk,
    pub link: Arc<Link>,
}

pub fn settings(rules: Arc<dyn Rules>, clock: &Arc<HandClock>) -> Settings {
    Settings { background: false, clock: clock.clone(), ..Settings::with_rules(rules) }
}

/// The other member is target 3 of the same mirror.
pub fn other() -> RegisterReply {
    let mut reply = registered();
    let first = reply.map.targets[0].clone();
    reply.map.targets.push(Target { id: TargetId(3), ..first });
    reply.target = TargetId(3);
    reply
}

pub fn flat_standby(disk: Arc<SimDisk>) -> Standby {
    Standby::open(disk, settings(flat(), &Arc::default())).unwrap()
}

/// Gives a standby all entries that a log has beyond it.
pub fn catch_up(standby: &Standby, of: &dyn Replica) {
    loop {
        let entries = of.entries(standby.last_seq(), 2000).unwrap();
        if entries.is_empty() {
            return;
        }
        entries.iter().for_each(|entry| Replica::append(standby, entry).unwrap());
    }
}

pub fn takes_over(standby: Standby) -> Rig {
    takes_over_above(standby, Incarnation(0))
}

pub fn takes_over_above(standby: Standby, above: Incarnation) -> Rig {
    Rig::around(standby.promote(above, None).unwrap(), Arc::default(), other()).unwrap()
}

impl Two {
    /// Both media begin with the same bytes. Their recordings begin at the pairing, with one client attached.
    pub fn over(a: Arc<SimDisk>, rules: Arc<dyn Rules>) -> Two {
        let clock = Arc::<HandClock>::default();
        let mdt = Mdt::open(a.clone(), settings(rules.clone(), &clock)).unwrap();
        mdt.flush().unwrap();
        let b = Arc::new(a.crash(Crash::KeepAll));
        let standby = Standby::open(b.clone(), settings(rules, &clock)).unwrap();
        Two::of((mdt, clock), a, b, standby)
    }

    /// An MDT that serves alone gets the other member.
    pub fn of(
        (mdt, clock): (Arc<Mdt>, Arc<HandClock>),
        a: Arc<SimDisk>,
        b: Arc<SimDisk>,
        standby: Standby,
    ) -> Two {
        let mut link = None;
        let begin = |lines: Vec<(Epoch, Seq)>, end| {
            assert_eq!(standby.lines(), (lines, end), "both logs are the same");
            let made = Arc::new(Link::over(standby, a.clone(), b.clone(), end));
            link = Some(made.clone());
            Ok(made as Arc<dyn Companion>)
        };
        mdt.set_companion(begin).unwrap();
        let again = mdt.set_companion(|_, _| unreachable!("it has one"));
        assert_eq!(again.unwrap_err().code, Code::Invalid);
        Two::begin((mdt, clock), a, b, link.unwrap())
    }

    /// A primary that starts with its mirror: the reservation of ids is ordered too.
    pub fn restarted(a: Arc<SimDisk>, b: Arc<SimDisk>) -> Two {
        let clock = Arc::<HandClock>::default();
        let own = Standby::open(a.clone(), settings(flat(), &clock)).unwrap();
        let standby = flat_standby(b.clone());
        catch_up(&standby, &own);
        assert_eq!(own.lines(), standby.lines());
        let (above, end) = (own.incarnation(), own.last_seq());
        let link = Arc::new(Link::over(standby, a.clone(), b.clone(), end));
        let mdt = own.promote(above, Some(link.clone())).unwrap();
        assert!(link.standby.last_seq() > end, "the other member has the reservation");
        Two::begin((mdt, clock), a, b, link)
    }

    fn begin(
        (mdt, clock): (Arc<Mdt>, Arc<HandClock>),
        a: Arc<SimDisk>,
        b: Arc<SimDisk>,
        link: Arc<Link>,
    ) -> Two {
        let rig = Rig::around(mdt, clock, registered()).unwrap();
        rig.mdt.flush().unwrap();
        link.sent.lock().clear();
        let b_before = b.crash(Crash::KeepAll);
        a.record();
        b.record();
        Two { rig, a, b, b_before, link }
    }

    pub fn fresh() -> Two {
        let a = Arc::new(SimDisk::new(1 << 20));
        format(a.clone());
        Two::over(a, flat())
    }

    /// Ends the primary and returns the other member.
    pub fn kill(self) -> Standby {
        let Two { rig, link, .. } = self;
        drop(rig);
        Arc::into_inner(link).unwrap().standby
    }

    pub fn until_it_waits(&self) {
        while self.link.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        self.rig.clock.0.fetch_add(COMMIT_MS_MAX, Ordering::SeqCst);
    }
}
