//! A process that drives some of the sessions: a few threads take the session that is due next, step it and put it back.
//!
//! The leader (`process.rs`) gives orders by lines on standard input, and each is answered by lines that end with `ok`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::io::{BufRead, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use net::{Fabric, rpc};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use types::{Buf, FsId, MirrorId, TargetId, Uuid};
use wire::Header;
use wire::map::ClusterMap;
use wire::mgmt::GetMap;

use super::session::Session;
use super::work::Op;

/// Threads of a process that drive sessions.
pub const DRIVERS: usize = 48;
/// A hundredth of the sessions is active at any moment, and each of them for this long.
const ACTIVE_SHARE: usize = 100;
const ACTIVE_FOR: Duration = Duration::from_secs(1);
/// Bound of a wait for all sessions. The leader's bars are shorter.
const WAIT_MAX: Duration = Duration::from_secs(600);
const LOOK_EACH: Duration = Duration::from_millis(5);
/// Errors that are reported in full.
const ERRORS_SHOWN: usize = 5;

/// Instructions for one process.
#[derive(Clone, Debug)]
pub struct Orders {
    pub mgs: String,
    /// Number of its first session, and how many it has.
    pub first: u64,
    pub sessions: u64,
    /// Sessions that share connections. More than one only where file descriptors are too few.
    pub together: u64,
    /// Of these, sessions with a line for notices, which is a connection to the MDT.
    pub lines: u64,
}

/// The cluster, as all sessions see it.
pub struct Place {
    pub fs: FsId,
    pub fs_uuid: Uuid,
    pub mdt: TargetId,
    pub ost: TargetId,
    pub ost_mirror: MirrorId,
}

/// State of all sessions of a process.
pub struct Shared {
    pub place: Place,
    outage: AtomicU64,
    /// The last outage was a clean stop.
    is_clean: AtomicBool,
    attached: AtomicU64,
    back: AtomicU64,
    stats: Mutex<Stats>,
}

#[derive(Default)]
struct Stats {
    /// Latencies in microseconds, by operation.
    done: Vec<(Op, u32)>,
    errors: u64,
    shown: Vec<String>,
}

impl Shared {
    pub fn outage(&self) -> u64 {
        self.outage.load(Ordering::SeqCst)
    }
    fn begin_outage(&self, is_clean: bool) {
        self.back.store(0, Ordering::SeqCst);
        self.is_clean.store(is_clean, Ordering::SeqCst);
        self.outage.fetch_add(1, Ordering::SeqCst);
    }
    pub fn is_clean(&self) -> bool {
        self.is_clean.load(Ordering::SeqCst)
    }
    pub fn count_attached(&self) {
        self.attached.fetch_add(1, Ordering::SeqCst);
    }
    pub fn count_back(&self) {
        self.back.fetch_add(1, Ordering::SeqCst);
    }
    pub fn done(&self, op: Op, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.stats.lock().done.push((op, us));
    }
    pub fn failed(&self, why: String) {
        let mut stats = self.stats.lock();
        stats.errors += 1;
        if stats.shown.len() < ERRORS_SHOWN {
            stats.shown.push(why);
        }
    }
}

/// A session's place in the queue of those that are due. An entry with another turn than the seat's is void.
struct Seat {
    session: Mutex<(u64, Session)>,
    /// Held while one of the sessions that share connections sends, so that none of them opens another connection.
    connections: Arc<Mutex<()>>,
    is_active: AtomicBool,
}

/// Turn of an entry that wakes a session whatever its turn is.
const ANY_TURN: u64 = u64::MAX;

type Due = Reverse<(Instant, usize, u64)>;

struct Drive {
    shared: Arc<Shared>,
    seats: Vec<Seat>,
    queue: Mutex<BinaryHeap<Due>>,
    changed: Condvar,
    is_working: AtomicBool,
    is_over: AtomicBool,
}

impl Drive {
    fn push(&self, at: Instant, seat: usize, turn: u64) {
        let mut queue = self.queue.lock();
        let is_next = queue.peek().is_none_or(|Reverse((first, ..))| at < *first);
        queue.push(Reverse((at, seat, turn)));
        drop(queue);
        if is_next {
            self.changed.notify_one();
        }
    }

    fn pop(&self) -> Option<(usize, u64)> {
        let mut queue = self.queue.lock();
        while !self.is_over.load(Ordering::SeqCst) {
            let until = match queue.peek() {
                Some(Reverse((at, seat, turn))) if *at <= Instant::now() => {
                    let next = (*seat, *turn);
                    queue.pop();
                    // Another thread waits for the entry behind this one.
                    self.changed.notify_one();
                    return Some(next);
                }
                Some(Reverse((at, ..))) => *at,
                None => Instant::now() + ACTIVE_FOR,
            };
            let _ = self.changed.wait_until(&mut queue, until);
        }
        None
    }

    fn work(&self) {
        while let Some((at, turn)) = self.pop() {
            let seat = &self.seats[at];
            // A session that another thread has is stepped already.
            let Some(mut session) = seat.session.try_lock() else { continue };
            if turn != ANY_TURN && turn != session.0 {
                continue;
            }
            session.0 += 1;
            let one = seat.connections.lock();
            let due = session.1.step(&self.shared, seat.is_active.load(Ordering::SeqCst));
            drop(one);
            let turn = session.0;
            drop(session);
            self.push(due, at, turn);
        }
    }

    /// Makes other sessions active, each second.
    fn pace(&self) {
        let share = self.seats.len().div_ceil(ACTIVE_SHARE);
        let mut first = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            if !self.is_working.load(Ordering::SeqCst) {
                std::thread::sleep(LOOK_EACH);
                continue;
            }
            let chosen: Vec<usize> = (first..first + share).map(|n| n % self.seats.len()).collect();
            for seat in &chosen {
                self.seats[*seat].is_active.store(true, Ordering::SeqCst);
                self.push(Instant::now(), *seat, ANY_TURN);
            }
            std::thread::sleep(ACTIVE_FOR);
            chosen.iter().for_each(|seat| self.seats[*seat].is_active.store(false, Ordering::SeqCst));
            first = (first + share) % self.seats.len();
        }
    }

    fn wait_for_all(&self, count: &AtomicU64, what: &str) -> Result<()> {
        let (all, until) = (self.seats.len() as u64, Instant::now() + WAIT_MAX);
        while count.load(Ordering::SeqCst) < all {
            if Instant::now() > until {
                bail!("{} of {all} sessions {what} within {WAIT_MAX:?}", count.load(Ordering::SeqCst));
            }
            std::thread::sleep(LOOK_EACH);
        }
        Ok(())
    }

    /// Ends all sessions.
    fn leave(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let queue = self.queue.lock();
        self.changed.notify_all();
        drop(queue);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..DRIVERS {
                scope.spawn(|| {
                    while let Some(seat) = self.seats.get(next.fetch_add(1, Ordering::SeqCst) as usize) {
                        let mut session = seat.session.lock();
                        let _one = seat.connections.lock();
                        let until = Instant::now() + WAIT_MAX;
                        while !session.1.leave() && Instant::now() < until {
                            std::thread::sleep(LOOK_EACH);
                        }
                    }
                });
            }
        });
    }

    fn take_stats(&self) -> String {
        let stats = std::mem::take(&mut *self.shared.stats.lock());
        let mut said = String::new();
        for op in Op::ALL {
            let times = stats.done.iter().filter(|(done, _)| *done == op);
            let times = times.map(|(_, us)| us.to_string()).collect::<Vec<_>>().join(" ");
            let _ = writeln!(said, "took {} {times}", op.name());
        }
        stats.shown.iter().for_each(|why| _ = writeln!(said, "error {why}"));
        let _ = writeln!(said, "errors {}", stats.errors);
        said
    }
}

/// Runs a process of sessions until its input ends.
pub fn work(orders: &Orders) -> Result<()> {
    ensure!(orders.sessions > 0 && orders.together > 0, "there is nothing to drive");
    raise_files()?;
    let (_, map) = fetch_map(&orders.mgs)?;
    let drive = Arc::new(prepare(orders, &map)?);
    let threads: Vec<_> = (0..DRIVERS)
        .map(|_| {
            let drive = drive.clone();
            std::thread::spawn(move || drive.work())
        })
        .collect();
    let pacer = {
        let drive = drive.clone();
        std::thread::spawn(move || drive.pace())
    };
    for line in std::io::stdin().lock().lines() {
        let mut said = String::new();
        match line?.as_str() {
            "attach" => {
                let now = Instant::now();
                (0..drive.seats.len()).for_each(|seat| drive.push(now, seat, ANY_TURN));
                drive.wait_for_all(&drive.shared.attached, "attached")?;
            }
            "work" => drive.is_working.store(true, Ordering::SeqCst),
            "look" => said = drive.take_stats(),
            "killed" => drive.shared.begin_outage(false),
            "stopped" => drive.shared.begin_outage(true),
            "back" => drive.wait_for_all(&drive.shared.back, "came back")?,
            "leave" => drive.leave(),
            other => bail!("the order {other:?} is not known"),
        }
        println!("{said}ok");
        std::io::stdout().flush()?;
    }
    drive.is_over.store(true, Ordering::SeqCst);
    drive.changed.notify_all();
    threads
        .into_iter()
        .chain([pacer])
        .try_for_each(|t| t.join().map_err(|_| anyhow::anyhow!("a driver panicked")))
}

fn prepare(orders: &Orders, map: &ClusterMap) -> Result<Drive> {
    let fs = map.file_systems.first().context("the map has a file system")?;
    let mdt = map.mdt_of(fs.id, types::Fid::ROOT).context("the map has an MDT")?.primary;
    let [ost] = map.ost_mirrors(fs.id)[..] else { bail!("the load wants exactly one OST") };
    let place = Place { fs: fs.id, fs_uuid: fs.uuid, mdt, ost: ost.primary, ost_mirror: ost.id };
    let (outage, is_clean, attached, back, stats) = Default::default();
    let shared = Arc::new(Shared { place, outage, is_clean, attached, back, stats });
    let mut seats = Vec::with_capacity(orders.sessions as usize);
    let mut node = None;
    let listening = Fabric::new(None);
    listening.set_map(map);
    for n in 0..orders.sessions {
        if n % orders.together == 0 {
            let fabric = Fabric::new(None);
            fabric.set_map(map);
            node = Some((fabric, Arc::new(Mutex::new(()))));
        }
        let (fabric, connections) = node.clone().context("the first session has made one")?;
        let number = orders.first + n;
        let mut client = [0xa1; 16];
        client[..8].copy_from_slice(&number.to_le_bytes());
        client[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        let listens = (n < orders.lines).then_some(&listening);
        let session = Session::new(number, Uuid(client), &fabric, listens, &shared)?;
        seats.push(Seat {
            session: Mutex::new((0, session)),
            connections,
            is_active: AtomicBool::new(false),
        });
    }
    let (queue, changed, is_working, is_over) = Default::default();
    Ok(Drive { shared, seats, queue, changed, is_working, is_over })
}

pub fn fetch_map(mgs: &str) -> Result<(Arc<Fabric>, ClusterMap)> {
    let fabric = Fabric::new(None);
    let peer = fabric.peer_at(mgs, mgs::MGS);
    let req = GetMap { known_version: 0, server: false };
    let deadline = Instant::now() + Duration::from_secs(10);
    let (_, _, said) = rpc::call(&*peer, Header::default(), &req, &[], &mut Buf::new(), deadline)?;
    Ok((fabric, said?.map.context("the MGS has a map")?))
}

/// Each session has a connection to each server.
fn raise_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}
