//! Requests that this process has served, by target and call: how many, how they ended, how long they took. For people and tools; no rule
//! depends on them.
//!
//! net-M1: threads count in stripes of their own, so that requests of different threads write no cache line in common.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spent::{Cause, Spent};
use wire::{ALL_CALLS, Header};

use crate::jobs::{Done, Jobs};

/// Upper bounds of the buckets of times: `FIRST_US` times powers of two, 8 µs to 16.8 s. One more bucket has all that is above.
pub const BUCKETS: usize = 22;
const FIRST_US: u64 = 8;

const STRIPES: usize = 8;
/// Calls that are counted each, and the last place for all others.
const KINDS: usize = kinds() + 1;

const fn kinds() -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < ALL_CALLS.len() {
        sum += ALL_CALLS[at].len();
        at += 1;
    }
    sum
}

/// Upper bounds of the buckets, in seconds.
pub fn bounds_sec() -> [f64; BUCKETS] {
    std::array::from_fn(|n| (FIRST_US << n) as f64 / 1e6)
}

/// The place of a call in `KINDS`.
fn place(call: u16) -> usize {
    static PLACES: OnceLock<Vec<(u16, usize)>> = OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let numbers = ALL_CALLS.iter().copied().flatten().map(|(number, _)| *number);
        let mut places: Vec<_> = numbers.enumerate().map(|(at, number)| (number, at)).collect();
        places.sort_unstable();
        places
    });
    places.binary_search_by_key(&call, |(number, _)| *number).map_or(KINDS - 1, |at| places[at].1)
}

#[derive(Default)]
struct Counts {
    /// The last one has times above all bounds.
    buckets: [AtomicU64; BUCKETS + 1],
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

#[repr(align(128))]
struct Stripe([OnceLock<Box<Counts>>; KINDS]);

/// The requests of one target.
pub(crate) struct Calls {
    stripes: Box<[Stripe]>,
    pub jobs: Jobs,
}

impl Default for Calls {
    fn default() -> Calls {
        let stripes = (0..STRIPES).map(|_| Stripe([const { OnceLock::new() }; KINDS])).collect();
        Calls { stripes, jobs: Jobs::default() }
    }
}

/// A request under way.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    call: u16,
    bytes_in: u64,
    bulk_in: u64,
    at: Instant,
    /// Session and tag of the job.
    job: (u64, u32),
    /// Waits of this thread before the request, or, of a parked request, its own waits until then.
    waited: Waited,
}

#[derive(Clone, Copy)]
enum Waited {
    /// The sums of the serving thread when it began.
    Since(Spent),
    /// A parked request waits for a flush from then on.
    Parked(Spent, Instant),
}

impl Begun {
    pub fn now(head: &Header) -> Begun {
        let bytes_in = u64::from(head.body_len) + u64::from(head.bulk_len);
        let job = (head.session.0, head.job_tag);
        let waited = Waited::Since(Spent::at_begin());
        Begun { call: head.call, bytes_in, bulk_in: head.bulk_len.into(), at: Instant::now(), job, waited }
    }
}

impl Begun {
    /// The request is parked from now on; its thread goes on to others.
    pub fn parked(self) -> Begun {
        Begun { waited: Waited::Parked(self.waited(), Instant::now()), ..self }
    }

    /// By cause, until now.
    fn waited(&self) -> Spent {
        match self.waited {
            Waited::Since(before) => Spent::since(before),
            Waited::Parked(mut spent, at) => {
                // Only flushes are parked.
                spent.add(Cause::Device, at.elapsed());
                spent
            }
        }
    }
}

/// Requests of one call, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Its name; empty: calls that this release does not know.
    pub name: &'static str,
    /// By time until the answer: the bounds are `bounds_sec`, and the last one has all that is above.
    pub buckets: [u64; BUCKETS + 1],
    /// Answers with an error.
    pub errors: u64,
    /// Time until the answer, of all together.
    pub time: Duration,
    /// Bodies and bulk, without the heads of frames.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

impl Served {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    MINE.get().unwrap_or_else(|| {
        let mine = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
        MINE.set(Some(mine));
        mine
    })
}

impl Calls {
    /// Counts a request that was answered now.
    pub fn count(&self, begun: Begun, reply: &Header, reply_body: &[u8]) {
        let stripe = stripe();
        let counts = self.stripes[stripe].0[place(begun.call)].get_or_init(Box::default);
        let at = Instant::now();
        let took = at - begun.at;
        let add = |count: &AtomicU64, more: u64| count.fetch_add(more, Ordering::Relaxed);
        let us = took.as_micros() as u64;
        // The first bound that is not below.
        let bucket = us.div_ceil(FIRST_US).next_power_of_two().trailing_zeros() as usize;
        add(&counts.buckets[bucket.min(BUCKETS)], 1);
        add(&counts.nanoseconds, took.as_nanos() as u64);
        add(&counts.bytes_in, begun.bytes_in);
        add(&counts.bytes_out, u64::from(reply.body_len) + u64::from(reply.bulk_len));
        // A reply body begins with the code of its outcome.
        let code = reply_body.get(..2).map_or(0, |code| u16::from_le_bytes([code[0], code[1]]));
        add(&counts.errors, u64::from(code != 0));
        let (bytes_in, bytes_out) = (begun.bulk_in, u64::from(reply.bulk_len));
        let waited = begun.waited();
        self.jobs.count(
            stripe,
            begun.job,
            Done { call: begun.call, bytes_in, bytes_out, code, took, waited, at },
        );
    }

    /// Counts a part of a request, whose time is counted with the whole.
    pub fn count_part(&self, begun: Begun, call: u16, bytes_in: u64) {
        let (took, waited) = Default::default();
        let done = Done { call, bytes_in, bytes_out: 0, code: 0, took, waited, at: begun.at };
        self.jobs.count(stripe(), begun.job, done);
    }

    /// All calls that came.
    pub fn served(&self) -> Vec<Served> {
        let names = ALL_CALLS.iter().copied().flatten().map(|(_, name)| *name).chain([""]);
        let sum_of = |(kind, name): (usize, &'static str)| {
            let mut sum = Served { name, ..Served::default() };
            for counts in self.stripes.iter().filter_map(|stripe| stripe.0[kind].get()) {
                let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
                sum.buckets.iter_mut().zip(&counts.buckets).for_each(|(own, more)| *own += get(more));
                sum.errors += get(&counts.errors);
                sum.time += Duration::from_nanos(get(&counts.nanoseconds));
                sum.bytes_in += get(&counts.bytes_in);
                sum.bytes_out += get(&counts.bytes_out);
            }
            sum
        };
        names.enumerate().map(sum_of).filter(|served| served.count() > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_a_place_of_its_own_and_unknown_ones_share_the_last() {
        let mut places: Vec<_> =
            ALL_CALLS.iter().copied().flatten().map(|(number, _)| place(*number)).collect();
        places.sort_unstable();
        assert_eq!(places, (0..KINDS - 1).collect::<Vec<_>>());
        assert_eq!(place(0xffff), KINDS - 1);
    }

    #[test]
    fn counts_of_all_threads_are_summed_by_call() {
        let calls = Calls::default();
        let head = |call| Header { call, body_len: 10, bulk_len: 100, ..Header::default() };
        let reply = Header { body_len: 2, ..Header::default() };
        let (one, other) = (ALL_CALLS[0][0], ALL_CALLS[1][0]);
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| {
                    calls.count(Begun::now(&head(one.0)), &reply, &[0, 0]);
                    calls.count(Begun::now(&head(other.0)), &reply, &[5, 0]);
                });
            }
        });
        let count = 2 * STRIPES as u64;
        let served = calls.served();
        let of = |name: &str| served.iter().find(|served| served.name == name).expect("it came");
        assert_eq!(served.len(), 2);
        assert_eq!((of(one.1).count(), of(one.1).errors), (count, 0));
        assert_eq!((of(other.1).count(), of(other.1).errors), (count, count));
        assert_eq!((of(one.1).bytes_in, of(one.1).bytes_out), (110 * count, 2 * count));
    }

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_is_not_below() {
        let calls = Calls::default();
        for ms in [0, 1, 5_000, 60_000] {
            let at = Instant::now().checked_sub(Duration::from_millis(ms)).expect("a time before");
            calls.count(
                Begun { at, ..Begun::now(&Header { call: 1, ..Header::default() }) },
                &Header::default(),
                &[],
            );
        }
        let served = calls.served();
        let bounds = bounds_sec();
        let found: Vec<_> =
            served[0].buckets.iter().enumerate().filter(|(_, n)| **n > 0).map(|(at, _)| at).collect();
        assert_eq!(served[0].count(), 4);
        assert_eq!(found.last(), Some(&BUCKETS), "60 s are above all bounds");
        let five = found[found.len() - 2];
        assert!(bounds[five] >= 5.0 && bounds[five - 1] < 5.0, "{:?}", bounds[five]);
        let least = found[found.len() - 3];
        assert!(bounds[least] >= 0.001, "{}", bounds[least]);
    }
}
