//! Requests that wait for a worker, and the numbers of those that are served.
//!
//! net-E3: requests between the members of a mirror have workers that no other request takes, and letters some that not even those take. A
//!     member whose letters waited behind blocked requests of clients would give no promise, and the other one would take over. And
//!     requests that wait at two servers for each other's members would never end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use wire::Request;
use wire::pair::Letters;

use super::Job;

/// Workers beyond `Limits::workers` for requests between members: each target of a server asks for one flush, one copy and a few stages at
/// once. They are threads only while they are needed.
const OF_MEMBERS: usize = 24;
/// Further ones for letters, which are served in a moment.
const OF_LETTERS: usize = 8;

/// First byte of the calls between members of a mirror, and to the MGS about them.
const MEMBERS: u16 = 0x06;

/// The kinds of requests, those with fewer workers first.
const CLASSES: usize = 3;

fn class_of(call: u16) -> usize {
    match call {
        Letters::CALL => 2,
        call if call >> 8 == MEMBERS => 1,
        _ => 0,
    }
}

pub(super) struct Jobs {
    waiting: Mutex<[VecDeque<Job>; CLASSES]>,
    /// Lengths of `waiting`, to be read without the lock.
    counts: [AtomicUsize; CLASSES],
    serving: AtomicUsize,
    /// A request begins only while fewer are served than this, by its class.
    most: [usize; CLASSES],
}

/// A worker serves a request, until this is dropped.
pub(super) struct Serving<'a>(&'a AtomicUsize);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Jobs {
    /// `workers`: those of all requests. One of them receives (net-E1).
    pub fn new(workers: usize) -> Jobs {
        let ordinary = workers - 1;
        let most = [ordinary, ordinary + OF_MEMBERS, ordinary + OF_MEMBERS + OF_LETTERS];
        Jobs { waiting: Mutex::default(), counts: Default::default(), serving: AtomicUsize::new(0), most }
    }

    /// Begins to serve a request of this call. `None`: it must wait.
    pub fn begin(&self, call: u16) -> Option<Serving<'_>> {
        self.begin_of(class_of(call))
    }

    fn begin_of(&self, class: usize) -> Option<Serving<'_>> {
        let next = |serving| (serving < self.most[class]).then_some(serving + 1);
        self.serving.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        Some(Serving(&self.serving))
    }

    pub fn push(&self, job: Job) {
        let class = class_of(job.frame.head.call);
        self.waiting.lock()[class].push_back(job);
        self.counts[class].fetch_add(1, Ordering::SeqCst);
    }

    /// The number of workers that the most urgent request needs which waits and may begin: 0 if there is none.
    pub fn wanted(&self) -> usize {
        let serving = self.serving.load(Ordering::SeqCst);
        let may_begin =
            |class: &usize| self.counts[*class].load(Ordering::SeqCst) > 0 && serving < self.most[*class];
        (0..CLASSES).rev().find(may_begin).map_or(0, |class| self.most[class] + 1)
    }

    /// The next request that may begin, the most urgent first.
    pub fn pop(&self) -> Option<(Job, Serving<'_>)> {
        let mut waiting = self.waiting.lock();
        for class in (0..CLASSES).rev().filter(|class| self.counts[*class].load(Ordering::SeqCst) > 0) {
            let Some(serving) = self.begin_of(class) else { continue };
            if let Some(job) = waiting[class].pop_front() {
                self.counts[class].fetch_sub(1, Ordering::SeqCst);
                return Some((job, serving));
            }
        }
        None
    }
}
