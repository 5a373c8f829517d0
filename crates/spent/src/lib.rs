//! Where the time of a request goes. The thread that serves a request sums its waits by cause; `stria why` reads the sums.
//!
//! spent-C1: a wait within another one counts for the inner one, and the outer one goes on behind it. So the sum of all causes is never longer than
//! the request.
//! spent-C2: the sums of a thread only rise. A request takes the difference over its own time, also where one request serves another.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The reason of a wait. The protocol has their names in this order (`wire::jobs::CAUSES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A free thread of the server, or the turn behind other requests.
    Queue,
    /// The drive: its reads, writes and flushes, or the page cache of the file system below.
    Device,
    /// The other member of a mirror.
    Mirror,
    /// Space in a target's log or memory, which is being moved to its place.
    Log,
    /// Another client, which has to give a lease or a lock back.
    Lock,
    /// Bytes of the request on their way here, or of the answer on their way back.
    Network,
}

pub const CAUSES: usize = 6;
pub const ALL: [Cause; CAUSES] =
    [Cause::Queue, Cause::Device, Cause::Mirror, Cause::Log, Cause::Lock, Cause::Network];

/// Nanoseconds by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent(pub [u64; CAUSES]);

thread_local! {
    static MINE: Cell<Spent> = const { Cell::new(Spent([0; CAUSES])) };
    /// Waits of the next request before this thread had it.
    static ARRIVED: Cell<Spent> = const { Cell::new(Spent([0; CAUSES])) };
    /// The wait that this thread is in, and since when it counts.
    static PRESENT: Cell<Option<(Cause, Instant)>> = const { Cell::new(None) };
}

impl Spent {
    /// The sums of this thread.
    pub fn now() -> Spent {
        MINE.get()
    }

    /// The sums of this thread as a request begins, without the waits of that request so far (`arrived`).
    pub fn at_begin() -> Spent {
        let (now, arrived) = (MINE.get(), ARRIVED.take());
        Spent(std::array::from_fn(|n| now.0[n] - arrived.0[n]))
    }

    /// Waits of this thread since `before`, which was taken on it.
    pub fn since(before: Spent) -> Spent {
        let now = MINE.get();
        Spent(std::array::from_fn(|n| now.0[n] - before.0[n]))
    }

    pub fn add(&mut self, cause: Cause, time: Duration) {
        self.0[cause as usize] += time.as_nanos() as u64;
    }

    /// The cause with the longest sum. `None`: there was no wait.
    pub fn longest(&self) -> Option<Cause> {
        ALL.into_iter()
            .filter(|cause| self.0[*cause as usize] > 0)
            .max_by_key(|cause| self.0[*cause as usize])
    }
}

/// Adds a wait of the request that this thread serves, which was measured elsewhere.
pub fn note(cause: Cause, time: Duration) {
    let mut mine = MINE.get();
    mine.add(cause, time);
    MINE.set(mine);
}

/// The next request of this thread was received in `received`, and waited for the thread since then.
pub fn arrived(received: Duration, queued: Duration) {
    let mut arrived = Spent::default();
    arrived.add(Cause::Network, received);
    arrived.add(Cause::Queue, queued);
    note(Cause::Network, received);
    note(Cause::Queue, queued);
    ARRIVED.set(arrived);
}

/// This thread waits until the value is dropped.
#[must_use = "the wait ends with this value"]
pub struct Wait {
    /// It goes on behind this one.
    outer: Option<Cause>,
    /// The sums are of one thread.
    _of_thread: PhantomData<*const ()>,
}

pub fn waiting(cause: Cause) -> Wait {
    let now = Instant::now();
    let outer = PRESENT.replace(Some((cause, now)));
    if let Some((outer, since)) = outer {
        note(outer, now - since);
    }
    Wait { outer: outer.map(|(cause, _)| cause), _of_thread: PhantomData }
}

impl Wait {
    /// The wait was for another reason, as its end has shown.
    pub fn was_for(&mut self, cause: Cause) {
        PRESENT.set(PRESENT.get().map(|(_, since)| (cause, since)));
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some((cause, since)) = PRESENT.replace(self.outer.map(|outer| (outer, now))) {
            note(cause, now - since);
        }
    }
}

/// The reason for which threads wait behind one that does their work too.
#[derive(Debug, Default)]
pub struct Led(AtomicU8);

/// A leader that waited less than this had the others wait for their turn only.
const LED_MIN_NS: u64 = 50_000;

impl Led {
    /// The leader has waited so for its work.
    pub fn note(&self, waited: &Spent) {
        let longest = waited.longest().filter(|cause| waited.0[*cause as usize] >= LED_MIN_NS);
        self.0.store(longest.unwrap_or(Cause::Queue) as u8, Ordering::Relaxed);
    }

    /// Waits behind the leader by `wait`.
    pub fn behind<T>(&self, wait: impl FnOnce() -> T) -> T {
        let mut waiting = waiting(Cause::Queue);
        let done = wait();
        waiting.was_for(ALL[usize::from(self.0.load(Ordering::Relaxed))]);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// spent-C1
    #[test]
    fn a_wait_within_another_counts_for_the_inner_one() {
        let (before, begun) = (Spent::now(), Instant::now());
        let outer = waiting(Cause::Mirror);
        std::thread::sleep(MS);
        {
            let _inner = waiting(Cause::Device);
            std::thread::sleep(2 * MS);
        }
        std::thread::sleep(MS);
        drop(outer);
        let (spent, all) = (Spent::since(before), begun.elapsed());
        assert!(spent.0[Cause::Mirror as usize] >= 2_000_000 && spent.0[Cause::Device as usize] >= 2_000_000);
        assert_eq!(spent.0.iter().filter(|ns| **ns > 0).count(), 2, "{spent:?}");
        assert!(u128::from(spent.0.iter().sum::<u64>()) <= all.as_nanos());
    }

    /// spent-C2
    #[test]
    fn a_request_within_another_counts_for_both() {
        let outer = Spent::now();
        note(Cause::Lock, MS);
        let inner = Spent::now();
        note(Cause::Device, 3 * MS);
        assert_eq!(Spent::since(inner).0[Cause::Device as usize], 3_000_000);
        assert_eq!(Spent::since(outer).longest(), Some(Cause::Device));
        assert_eq!(Spent::since(outer).0[Cause::Lock as usize], 1_000_000);
        assert_eq!(Spent::since(Spent::now()).longest(), None);
    }

    #[test]
    fn the_way_of_a_request_to_its_thread_counts_once() {
        arrived(2 * MS, MS);
        let before = Spent::at_begin();
        note(Cause::Device, MS);
        let spent = Spent::since(before).0;
        assert_eq!((spent[Cause::Network as usize], spent[Cause::Queue as usize]), (2_000_000, 1_000_000));
        assert_eq!(Spent::since(Spent::at_begin()), Spent::default());
    }

    #[test]
    fn those_behind_a_leader_wait_for_what_it_waits_for() {
        let before = Spent::now();
        let led = Led::default();
        led.behind(|| std::thread::sleep(MS));
        assert_eq!(Spent::since(before).longest(), Some(Cause::Queue));
        let before = Spent::now();
        led.note(&Spent([0, 10, 5_000_000, 0, 0, 0]));
        led.behind(|| std::thread::sleep(MS));
        assert_eq!(Spent::since(before).longest(), Some(Cause::Mirror));
        led.note(&Spent([0, 10, 5_000, 0, 0, 0]));
        let before = Spent::now();
        led.behind(|| std::thread::sleep(MS));
        assert_eq!(Spent::since(before).longest(), Some(Cause::Queue), "too short to tell");
    }
}
