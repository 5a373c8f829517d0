//! The combining lock of the executor: one thread at a time, the leader, may change the state of an MDT.
//!
//! A thread that finds the executor idle becomes its leader. Otherwise it queues its job; the leader runs it, or hands over leadership.
//! So the state stays in the caches of one processor, and one log entry carries many requests.
//!
//! mds-W1: at most one thread leads, and it sees every change of the leaders before it.
//! mds-W2: one leader runs a job, and its outcome is reported once.
//! mds-W3: while a thread waits, the lead is handed over and never dropped. Waiters with jobs and waiters without take turns.
//! mds-W4: sessions take turns: each gives one job in turn, so that no session keeps the others out of the next batch.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use disk::Waiting;
use parking_lot::{Mutex, MutexGuard};
use types::SessionId;

/// The combining lock, the state that only the leader touches (`S`), and the queue of jobs (`A` is the request, `O` its outcome).
pub struct Role<S, A, O> {
    line: Mutex<Line<A, O>>,
    /// Waiting threads and jobs, so that the leader can look without the queue's lock.
    waiting: AtomicUsize,
    /// The leader's state. Only the leader locks it, so the lock is never contended for long.
    seat: Mutex<S>,
}

struct Line<A, O> {
    is_led: bool,
    /// Threads that want to lead and bring no job.
    still: VecDeque<Arc<Ticket>>,
    /// A thread without a job had its turn, so the next turn belongs to the jobs (mds-W3).
    is_turn_of_jobs: bool,
    /// A queue for each session with jobs; none of them is empty.
    jobs: VecDeque<(SessionId, Queue<A, O>)>,
}

type Queue<A, O> = VecDeque<Arc<Job<A, O>>>;

/// A request that the leader runs for another thread.
pub struct Job<A, O> {
    pub ask: A,
    session: SessionId,
    ticket: Ticket,
    outcome: Mutex<Option<O>>,
}

#[derive(Default)]
struct Ticket {
    stage: AtomicU32,
    waiting: Waiting,
}

const WAITING: u32 = 0;
const HANDED: u32 = 1;
const TOLD: u32 = 2;

impl Ticket {
    fn wait(&self) -> u32 {
        self.waiting.until(0, || Some(self.stage.load(Ordering::Acquire)).filter(|s| *s != WAITING))
    }
    fn set(&self, stage: u32) {
        self.stage.store(stage, Ordering::Release);
        self.waiting.wake_all();
    }
}

/// The result of a wait with a job.
pub enum Turn<'a, S, A, O> {
    /// The thread is the leader, and runs its job itself.
    Lead(Held<'a, S, A, O>),
    Done(O),
}

/// Queued jobs, and the leadership if there was no leader.
type LinedUp<'a, S, A, O> = (Vec<Arc<Job<A, O>>>, Option<Held<'a, S, A, O>>);

impl<S, A, O> Role<S, A, O> {
    pub fn new(seat: S) -> Self {
        let line =
            Line { is_led: false, still: VecDeque::new(), is_turn_of_jobs: false, jobs: VecDeque::new() };
        Role { line: Mutex::new(line), waiting: AtomicUsize::new(0), seat: Mutex::new(seat) }
    }

    /// Returns leadership, or the outcome that a leader reported. `job` is called only if the job is queued.
    pub fn enter(&self, session: SessionId, job: impl FnOnce() -> A) -> Turn<'_, S, A, O> {
        if let Some(held) = self.try_hold() {
            return Turn::Lead(held);
        }
        // Made outside the queue's lock, because it copies the request.
        let job = Job::new(session, job());
        {
            let mut line = self.line.lock();
            if !line.is_led {
                line.is_led = true;
                drop(line);
                return Turn::Lead(self.sit());
            }
            line.push(job.clone());
            self.waiting.fetch_add(1, Ordering::Release);
        }
        self.await_turn(&job)
    }

    /// Queues several jobs at once, and takes leadership if there is no leader. The caller then runs queued jobs, and calls
    /// `await_turn` for each of its own, in their order.
    pub fn line_up(&self, session: SessionId, asks: Vec<A>) -> LinedUp<'_, S, A, O> {
        let jobs: Vec<_> = asks.into_iter().map(|ask| Job::new(session, ask)).collect();
        let mut line = self.line.lock();
        jobs.iter().for_each(|job| line.push(job.clone()));
        self.waiting.fetch_add(jobs.len(), Ordering::Release);
        let was_led = std::mem::replace(&mut line.is_led, true);
        drop(line);
        (jobs, (!was_led).then(|| self.sit()))
    }

    /// Waits for the outcome of a queued job, or for leadership.
    pub fn await_turn(&self, job: &Job<A, O>) -> Turn<'_, S, A, O> {
        match job.ticket.wait() {
            HANDED => Turn::Lead(self.sit()),
            _ => Turn::Done(job.outcome.lock().take().expect("it is set before the stage says so")),
        }
    }

    /// Leadership for a thread that brings no job. No batch is under way then.
    pub fn hold(&self) -> Held<'_, S, A, O> {
        if let Some(held) = self.try_hold() {
            return held;
        }
        let ticket = Arc::<Ticket>::default();
        {
            let mut line = self.line.lock();
            if !line.is_led {
                line.is_led = true;
                drop(line);
                return self.sit();
            }
            line.still.push_back(ticket.clone());
            self.waiting.fetch_add(1, Ordering::Release);
        }
        let stage = ticket.wait();
        assert_eq!(stage, HANDED, "a thread without a job can only become the leader");
        self.sit()
    }

    fn try_hold(&self) -> Option<Held<'_, S, A, O>> {
        let mut line = self.line.lock();
        let was_led = std::mem::replace(&mut line.is_led, true);
        drop(line);
        (!was_led).then(|| self.sit())
    }

    /// For the thread that `is_led` stands for: takes the leader's state.
    fn sit(&self) -> Held<'_, S, A, O> {
        Held { role: self, seat: Some(self.seat.lock()) }
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

impl<A, O> Line<A, O> {
    fn push(&mut self, job: Arc<Job<A, O>>) {
        match self.jobs.iter_mut().find(|(session, _)| *session == job.session) {
            Some((_, queue)) => {
                debug_assert!(!queue.is_empty(), "no queue of the line is empty");
                queue.push_back(job)
            }
            None => self.jobs.push_back((job.session, VecDeque::from([job]))),
        }
    }

    /// The next in turn (mds-W4).
    fn pop(&mut self) -> Option<Arc<Job<A, O>>> {
        let (session, mut queue) = self.jobs.pop_front()?;
        let job = queue.pop_front();
        assert!(job.is_some(), "no queue of the line is empty");
        if !queue.is_empty() {
            self.jobs.push_back((session, queue));
        }
        job
    }
}

/// The leadership. Dropping it hands over to the next waiting thread.
pub struct Held<'a, S, A, O> {
    role: &'a Role<S, A, O>,
    seat: Option<MutexGuard<'a, S>>,
}

impl<S, A, O> Held<'_, S, A, O> {
    /// Takes up to `max` jobs out of the queue; each must be reported or put back. A thread without a job waits for one such batch at most.
    pub fn take(&mut self, max: usize) -> Vec<Arc<Job<A, O>>> {
        if self.role.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut line = self.role.line.lock();
        if !std::mem::take(&mut line.is_turn_of_jobs) && !line.still.is_empty() {
            return Vec::new();
        }
        assert!(line.is_led, "mds-W1: only the leader takes jobs");
        let jobs: Vec<_> = std::iter::from_fn(|| line.pop()).take(max).collect();
        self.role.waiting.fetch_sub(jobs.len(), Ordering::Release);
        jobs
    }

    /// Returns jobs that were taken and not run to the head of the queue, in their order.
    pub fn put_back(&mut self, jobs: Vec<Arc<Job<A, O>>>) {
        if jobs.is_empty() {
            return;
        }
        let mut line = self.role.line.lock();
        self.role.waiting.fetch_add(jobs.len(), Ordering::Release);
        for job in jobs.into_iter().rev() {
            let place = line.jobs.iter().position(|(session, _)| *session == job.session);
            let mut queue = place.and_then(|at| line.jobs.remove(at)).map(|(_, q)| q).unwrap_or_default();
            let session = job.session;
            queue.push_front(job);
            line.jobs.push_front((session, queue));
        }
    }
}

impl<A, O> Job<A, O> {
    fn new(session: SessionId, ask: A) -> Arc<Self> {
        Arc::new(Job { ask, session, ticket: Ticket::default(), outcome: Mutex::new(None) })
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    pub fn tell(&self, outcome: O) {
        let before = self.outcome.lock().replace(outcome);
        assert!(before.is_none(), "mds-W2: a job is reported once");
        self.ticket.set(TOLD);
    }
}

impl<S, A, O> Drop for Held<'_, S, A, O> {
    fn drop(&mut self) {
        // First, so that the next leader finds the state unlocked.
        self.seat = None;
        let mut line = self.role.line.lock();
        assert!(line.is_led, "mds-W1: the leader leads until it hands over");
        let is_kept = line.is_turn_of_jobs && !line.jobs.is_empty();
        if let Some(ticket) = (!is_kept).then(|| line.still.pop_front()).flatten() {
            line.is_turn_of_jobs = true;
            self.role.waiting.fetch_sub(1, Ordering::Release);
            drop(line);
            ticket.set(HANDED);
        } else if let Some(job) = line.pop() {
            self.role.waiting.fetch_sub(1, Ordering::Release);
            drop(line);
            job.ticket.set(HANDED);
        } else {
            line.is_led = false;
        }
    }
}

impl<S, A, O> Deref for Held<'_, S, A, O> {
    type Target = S;
    fn deref(&self) -> &S {
        self.seat.as_ref().expect("it is held until it is dropped")
    }
}
impl<S, A, O> DerefMut for Held<'_, S, A, O> {
    fn deref_mut(&mut self) -> &mut S {
        self.seat.as_mut().expect("it is held until it is dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Count = Role<Vec<u64>, u64, u64>;

    /// As the executor does: its own job, then queued jobs for some rounds.
    fn add(role: &Count, session: u64, n: u64, rounds: usize) -> u64 {
        match role.enter(SessionId(session), || n) {
            Turn::Done(place) => place,
            Turn::Lead(mut held) => {
                held.push(n);
                let own = held.len() as u64;
                for _ in 0..rounds {
                    for job in held.take(3) {
                        held.push(job.ask);
                        job.tell(held.len() as u64);
                    }
                }
                own
            }
        }
    }

    /// mds-W1 to mds-W3: every job runs once and gets its own answer.
    #[test]
    fn each_job_is_done_once() {
        const THREADS: u64 = 4;
        const EACH: u64 = 2000;
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let role = &role;
                s.spawn(move || {
                    for n in 0..EACH {
                        let id = thread * EACH + n;
                        let place = add(role, thread % 2, id, (n % 4) as usize);
                        if n % 16 == 0 {
                            let held = role.hold();
                            assert_eq!(held[place as usize - 1], id, "the answer is of this job");
                        }
                    }
                });
            }
        });
        let mut all = role.hold().clone();
        all.sort_unstable();
        assert_eq!(all, (0..THREADS * EACH).collect::<Vec<_>>());
        assert_eq!(role.waiting(), 0);
    }

    /// Starts threads that wait with jobs `(session, n)`, in this order, behind the leader.
    fn behind<'s>(s: &'s std::thread::Scope<'s, '_>, role: &'s Count, jobs: &[(u64, u64)]) {
        for (session, n) in jobs.iter().copied() {
            let before = role.waiting();
            s.spawn(move || add(role, session, n, 0));
            while role.waiting() == before {
                std::thread::yield_now();
            }
        }
    }

    fn tell_all(jobs: Vec<Arc<Job<u64, u64>>>) -> Vec<u64> {
        jobs.iter().for_each(|job| job.tell(0));
        jobs.iter().map(|job| job.ask).collect()
    }

    #[test]
    fn w4_sessions_take_turns() {
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = role.hold();
            behind(s, &role, &[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30)]);
            assert_eq!(tell_all(held.take(4)), [10, 20, 30, 11]);
            assert_eq!(tell_all(held.take(4)), [12]);
        });
    }

    /// Many jobs queued at once keep no other session out of the next batch, and their thread may become the leader.
    #[test]
    fn w4_many_at_once_take_turns_too() {
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = role.hold();
            let many = s.spawn(|| {
                let (jobs, held) = role.line_up(SessionId(1), vec![10, 11, 12, 13]);
                assert!(held.is_none());
                let ends = jobs.iter().map(|job| match role.await_turn(job) {
                    Turn::Done(place) => place,
                    Turn::Lead(mut held) => {
                        held.push(job.ask);
                        100
                    }
                });
                ends.collect::<Vec<_>>()
            });
            while role.waiting() < 4 {
                std::thread::yield_now();
            }
            behind(s, &role, &[(2, 20)]);
            assert_eq!(tell_all(held.take(3)), [10, 20, 11]);
            drop(held);
            assert_eq!(many.join().unwrap(), [0, 0, 100, 100]);
        });
        assert_eq!(*role.hold(), [12, 13]);
    }

    #[test]
    fn what_was_put_back_comes_first() {
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = role.hold();
            behind(s, &role, &[(1, 10), (2, 20), (1, 11), (3, 30)]);
            let mut jobs = held.take(3);
            assert_eq!(tell_all(jobs.drain(..1).collect()), [10]);
            held.put_back(jobs);
            assert_eq!(tell_all(held.take(9)), [20, 30, 11]);
        });
    }

    #[test]
    fn who_wants_the_role_itself_is_not_kept_by_jobs() {
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = role.hold();
            behind(s, &role, &[(1, 10)]);
            let keeper = s.spawn(|| role.hold().len());
            while role.waiting() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(tell_all(held.take(9)), [0u64; 0]);
            drop(held);
            assert_eq!(keeper.join().unwrap(), 0, "before the job");
        });
        assert_eq!(*role.hold(), [10], "the job's own thread was given the role");
    }

    /// mds-W3: jobs get their turn, however many threads without jobs wait.
    #[test]
    fn jobs_are_not_kept_by_those_who_want_the_role_itself() {
        let role = Count::new(Vec::new());
        std::thread::scope(|s| {
            let held = role.hold();
            behind(s, &role, &[(1, 10), (2, 20)]);
            for n in 1..=3 {
                let role = &role;
                let before = role.waiting();
                s.spawn(move || role.hold().push(n));
                while role.waiting() == before {
                    std::thread::yield_now();
                }
            }
            drop(held);
        });
        let seat = role.hold();
        assert_eq!(*seat, [1, 10, 20, 2, 3], "the others have one turn only");
    }
}
