//! A story with the seats' own threads and the machine's clock.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use mirror::{MemberId, MemberState, Members};
use parking_lot::Mutex;
use types::{Epoch, Fault};

use super::world::{A, B, Between, Disk, Target, TestPost, join, refill, setup};
use crate::{Companion, End, Logged, MachineClock, Seat, Turn};

/// Longer than any step takes on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

/// A host's daemon: it opens the target anew when a life ends, as long as it is let.
struct Daemon {
    me: MemberId,
    disk: Arc<Mutex<Disk>>,
    /// The order of the log. The target's note is kept while a thread holds it.
    tail: Arc<Mutex<()>>,
    between: Arc<Between>,
}

impl Daemon {
    fn start(&self) -> Arc<Seat> {
        let map = Members { epoch: Epoch(1), primary: A, states: [MemberState::InSync; 2] };
        let setup = setup(self.me, map, &self.disk.lock(), 1);
        let post = Arc::new(TestPost(self.me, self.between.clone()));
        let seat =
            Seat::start(setup, Arc::new(Target(self.disk.clone(), None)), post, Arc::new(MachineClock));
        let seat = seat.expect("it starts");
        self.between.seats.lock()[self.me.index()] = Some(seat.clone());
        seat
    }

    fn stop(&self) {
        let seat = self.between.seats.lock()[self.me.index()].take().expect("it is up");
        seat.stop().expect("its target answers");
    }

    /// The seat, once it is to serve.
    fn serving(&self) -> Arc<Seat> {
        let mut seat = self.between.seats.lock()[self.me.index()].clone().expect("it is up");
        loop {
            match seat.wait(BOUND) {
                Turn::Serve { .. } => return seat,
                Turn::Quiet => panic!("{:?} does not serve: {:#?}", self.me, seat.report()),
                Turn::Ended(end) => seat = self.again(end),
            }
        }
    }

    fn again(&self, end: End) -> Arc<Seat> {
        self.between.seats.lock()[self.me.index()] = None;
        match end {
            End::Cut(after) => self.disk.lock().log.retain(|entry| entry.place.last <= after),
            End::Refill => {
                let (post, map) = (TestPost(self.me, self.between.clone()), self.between.mgs.lock().0);
                refill(self.me, &mut self.disk.lock(), &post, &map, 1).expect("the other one serves");
            }
            End::Deposed | End::Outlived => {}
            End::Failed(_) | End::Medium(_) | End::Doubted | End::Unreadable(_) | End::Stopped => {
                panic!("{:?} has ended: {end:?}", self.me)
            }
        }
        self.start()
    }

    /// So many writes on each of four threads. A thread appends in the order of the places.
    fn write(&self, seat: &Arc<Seat>, writes: u64) -> Vec<JoinHandle<Result<(), Fault>>> {
        let one = |seat: Arc<Seat>, disk: Arc<Mutex<Disk>>, tail: Arc<Mutex<()>>| {
            move || {
                (0..writes).try_for_each(|n| {
                    let content = format!("p{n}").into_bytes();
                    let order = tail.lock();
                    let place = seat.order(1 + n as u32 % 3)?;
                    disk.lock().log.push(Logged { place, content: content.clone() });
                    drop(order);
                    seat.commit(place, &content)
                })
            }
        };
        (0..4).map(|_| std::thread::spawn(one(seat.clone(), self.disk.clone(), self.tail.clone()))).collect()
    }
}

#[test]
fn a_nudge_ends_the_wait_of_a_supervisor_once() {
    let map = Members { epoch: Epoch(1), primary: A, states: [MemberState::InSync; 2] };
    let between = Between::new(map);
    let a = Daemon { me: A, disk: Arc::default(), tail: Arc::default(), between };
    let seat = a.start();
    seat.nudge();
    let begin = std::time::Instant::now();
    assert_eq!(seat.wait(BOUND), Turn::Quiet);
    assert!(begin.elapsed() < BOUND, "it did not wait for the time-out");
    // The nudge is used up, and an end counts before a nudge.
    assert_eq!(seat.wait(Duration::from_millis(1)), Turn::Quiet);
    seat.nudge();
    a.stop();
    assert_eq!(seat.wait(BOUND), Turn::Ended(End::Stopped));
}

#[test]
fn members_with_threads_fail_over_and_join_under_load() {
    let map = Members { epoch: Epoch(1), primary: A, states: [MemberState::InSync; 2] };
    let between = Between::new(map);
    let [a, b] =
        [A, B].map(|me| Daemon { me, disk: Arc::default(), tail: Arc::default(), between: between.clone() });
    a.start();
    b.start();
    // 1. A pair serves.
    let seat = a.serving();
    join(a.write(&seat, 50));
    assert_eq!(a.disk.lock().contents(), b.disk.lock().contents());
    // 2. B takes over.
    drop(seat);
    a.stop();
    let seat = b.serving();
    join(b.write(&seat, 50));
    // 3. A joins while B is written to.
    let mut returned = a.start();
    let until = std::time::Instant::now() + BOUND;
    while !between.mgs.lock().0.is_pair() {
        join(b.write(&seat, 5));
        if let Turn::Ended(end) = returned.wait(Duration::ZERO) {
            returned = a.again(end);
        }
        assert!(std::time::Instant::now() < until, "{:#?} and {:#?}", returned.report(), seat.report());
    }
    join(b.write(&seat, 50));
    assert_eq!(a.disk.lock().contents(), b.disk.lock().contents());
    b.stop();
    a.stop();
}
