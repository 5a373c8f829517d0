//! A combining lock (flat combining): one thread at a time changes the state of an MDT, and does so for the threads that wait.
//!
//! A thread that finds the lock free becomes the leader. A thread that finds it taken queues its job; the leader runs the job, or hands
//! leadership over to that thread. So the state stays in the caches of one processor, and one log entry carries many requests.
//!
//! mds-W1: at most one thread is the leader, and it sees everything that earlier leaders did.
//! mds-W2: one leader runs a job, and reports its outcome once.
//! mds-W3: the lock is never free while a thread waits. Threads with jobs and threads without one take turns.
//! mds-W4: jobs leave the queue round-robin by session, one of each. A session that queues much delays no other session by more than a batch.

use spent::{Led, Spent};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use disk::Waiting;
use parking_lot::{Mutex, MutexGuard};
use types::SessionId;

/// State `S` that only the leader touches, and a queue of jobs. A job asks `A`, and its outcome is `O`.
pub struct CombiningLock<S, A, O> {
    queue: Mutex<Queue<A, O>>,
    /// Entries of the queue. The leader reads this without the queue's lock.
    waiting: AtomicUsize,
    /// Taken by the leader only, so it is contended just while leadership is handed over.
    state: Mutex<S>,
}

struct Queue<A, O> {
    has_leader: bool,
    /// Threads that want leadership and have no job.
    without_job: VecDeque<Arc<Ticket>>,
    /// mds-W3: such a thread was served last, so a job comes next.
    is_turn_of_jobs: bool,
    /// Jobs by session. No inner queue is empty.
    jobs: VecDeque<(SessionId, Jobs<A, O>)>,
}

type Jobs<A, O> = VecDeque<Arc<Job<A, O>>>;

/// A request of a thread that waits.
pub struct Job<A, O> {
    pub ask: A,
    session: SessionId,
    ticket: Ticket,
    outcome: Mutex<Option<O>>,
}

#[derive(Default)]
struct Ticket {
    stage: AtomicU32,
    led: Led,
    waiting: Waiting,
}

const WAITING: u32 = 0;
/// The thread that waits is the leader now.
const HANDED_OVER: u32 = 1;
/// The job has its outcome.
const DONE: u32 = 2;

impl Ticket {
    fn wait(&self) -> u32 {
        let look = || Some(self.stage.load(Ordering::Acquire)).filter(|s| *s != WAITING);
        self.led.behind(|| self.waiting.until(0, look))
    }
    fn set(&self, stage: u32) {
        self.stage.store(stage, Ordering::Release);
        self.waiting.wake_all();
    }
}

/// The end of a wait with a job.
pub enum Turn<'a, S, A, O> {
    /// The thread is the leader, and runs its own job.
    Lead(Leadership<'a, S, A, O>),
    Done(O),
}

/// Jobs that were queued, and leadership if the lock was free.
type Queued<'a, S, A, O> = (Vec<Arc<Job<A, O>>>, Option<Leadership<'a, S, A, O>>);

impl<S, A, O> CombiningLock<S, A, O> {
    pub fn new(state: S) -> Self {
        let queue = Queue {
            has_leader: false,
            without_job: VecDeque::new(),
            is_turn_of_jobs: false,
            jobs: VecDeque::new(),
        };
        CombiningLock { queue: Mutex::new(queue), waiting: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    /// Becomes the leader, or waits until a leader ran the job. `job` is called only if the job is queued.
    pub fn enter(&self, session: SessionId, job: impl FnOnce() -> A) -> Turn<'_, S, A, O> {
        if let Some(leadership) = self.try_lead() {
            return Turn::Lead(leadership);
        }
        // Built outside the queue's lock: it copies a request.
        let job = Job::new(session, job());
        {
            let mut queue = self.queue.lock();
            if !queue.has_leader {
                queue.has_leader = true;
                drop(queue);
                return Turn::Lead(self.begin());
            }
            queue.push(job.clone());
            self.waiting.fetch_add(1, Ordering::Release);
        }
        self.await_turn(&job)
    }

    /// Queues several jobs at once, and becomes the leader if the lock is free. The caller then calls `await_turn` for each job in order.
    pub fn enqueue(&self, session: SessionId, asks: Vec<A>) -> Queued<'_, S, A, O> {
        let jobs: Vec<_> = asks.into_iter().map(|ask| Job::new(session, ask)).collect();
        let mut queue = self.queue.lock();
        jobs.iter().for_each(|job| queue.push(job.clone()));
        self.waiting.fetch_add(jobs.len(), Ordering::Release);
        let had_leader = std::mem::replace(&mut queue.has_leader, true);
        drop(queue);
        (jobs, (!had_leader).then(|| self.begin()))
    }

    /// Waits for the outcome of a queued job, or for leadership.
    pub fn await_turn(&self, job: &Job<A, O>) -> Turn<'_, S, A, O> {
        match job.ticket.wait() {
            HANDED_OVER => Turn::Lead(self.begin()),
            stage => {
                assert_eq!(stage, DONE, "mds-W2: a wait ends with leadership or an outcome");
                Turn::Done(job.outcome.lock().take().expect("mds-W2: the outcome is set before the stage"))
            }
        }
    }

    /// Becomes the leader without a job. Nothing is under way then.
    pub fn lead(&self) -> Leadership<'_, S, A, O> {
        if let Some(leadership) = self.try_lead() {
            return leadership;
        }
        let ticket = Arc::<Ticket>::default();
        {
            let mut queue = self.queue.lock();
            if !queue.has_leader {
                queue.has_leader = true;
                drop(queue);
                return self.begin();
            }
            queue.without_job.push_back(ticket.clone());
            self.waiting.fetch_add(1, Ordering::Release);
        }
        let stage = ticket.wait();
        assert_eq!(stage, HANDED_OVER, "mds-W2: a ticket without a job has no outcome");
        self.begin()
    }

    fn try_lead(&self) -> Option<Leadership<'_, S, A, O>> {
        let mut queue = self.queue.lock();
        let had_leader = std::mem::replace(&mut queue.has_leader, true);
        drop(queue);
        (!had_leader).then(|| self.begin())
    }

    /// The thread was made the leader. The last one may still hold the state for a moment.
    fn begin(&self) -> Leadership<'_, S, A, O> {
        Leadership { lock: self, state: Some(self.state.lock()) }
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }
}

impl<A, O> Queue<A, O> {
    fn push(&mut self, job: Arc<Job<A, O>>) {
        match self.jobs.iter_mut().find(|(session, _)| *session == job.session) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.jobs.push_back((job.session, VecDeque::from([job]))),
        }
    }

    /// mds-W4: the next job.
    fn pop(&mut self) -> Option<Arc<Job<A, O>>> {
        let (session, mut jobs) = self.jobs.pop_front()?;
        let job = jobs.pop_front();
        assert!(job.is_some(), "mds-W4: a session in the queue has a job");
        if !jobs.is_empty() {
            self.jobs.push_back((session, jobs));
        }
        job
    }
}

/// Leadership. Dropping it hands it over to the next thread of the queue, or frees the lock.
pub struct Leadership<'a, S, A, O> {
    lock: &'a CombiningLock<S, A, O>,
    state: Option<MutexGuard<'a, S>>,
}

impl<S, A, O> Leadership<'_, S, A, O> {
    /// Takes up to `max` jobs out of the queue. The caller must report an outcome of each, or put it back. A thread that waits without a job
    /// waits for one such batch at most.
    pub fn take(&mut self, max: usize) -> Vec<Arc<Job<A, O>>> {
        if self.lock.waiting.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut queue = self.lock.queue.lock();
        assert!(queue.has_leader, "mds-W1: the leader takes jobs");
        if !std::mem::take(&mut queue.is_turn_of_jobs) && !queue.without_job.is_empty() {
            return Vec::new();
        }
        let jobs: Vec<_> = std::iter::from_fn(|| queue.pop()).take(max).collect();
        self.lock.left(jobs.len());
        jobs
    }

    /// Returns jobs that were taken and not begun to the head of the queue, in their order.
    pub fn put_back(&mut self, jobs: Vec<Arc<Job<A, O>>>) {
        if jobs.is_empty() {
            return;
        }
        let mut queue = self.lock.queue.lock();
        self.lock.waiting.fetch_add(jobs.len(), Ordering::Release);
        for job in jobs.into_iter().rev() {
            assert_eq!(
                job.ticket.stage.load(Ordering::Acquire),
                WAITING,
                "mds-W2: a job that has an outcome is not run again"
            );
            let place = queue.jobs.iter().position(|(session, _)| *session == job.session);
            let mut of_session =
                place.and_then(|at| queue.jobs.remove(at)).map(|(_, jobs)| jobs).unwrap_or_default();
            let session = job.session;
            of_session.push_front(job);
            queue.jobs.push_front((session, of_session));
        }
    }
}

impl<S, A, O> CombiningLock<S, A, O> {
    /// So many entries left the queue.
    fn left(&self, count: usize) {
        let before = self.waiting.fetch_sub(count, Ordering::Release);
        assert!(before >= count, "more jobs left the queue than were in it");
    }
}

impl<A, O> Job<A, O> {
    fn new(session: SessionId, ask: A) -> Arc<Self> {
        Arc::new(Job { ask, session, ticket: Ticket::default(), outcome: Mutex::new(None) })
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Reports the outcome to the thread that waits. `waited`: by this thread, for the batch; that one has waited for the same.
    pub fn finish(&self, outcome: O, waited: &Spent) {
        self.ticket.led.note(waited);
        let earlier = self.outcome.lock().replace(outcome);
        assert!(earlier.is_none(), "mds-W2: an outcome is reported once");
        self.ticket.set(DONE);
    }
}

impl<S, A, O> Drop for Leadership<'_, S, A, O> {
    fn drop(&mut self) {
        // Before the hand-over, so that the next leader finds the state free.
        self.state = None;
        let mut queue = self.lock.queue.lock();
        let is_for_jobs = queue.is_turn_of_jobs && !queue.jobs.is_empty();
        if let Some(ticket) = (!is_for_jobs).then(|| queue.without_job.pop_front()).flatten() {
            queue.is_turn_of_jobs = true;
            self.lock.left(1);
            drop(queue);
            ticket.set(HANDED_OVER);
        } else if let Some(job) = queue.pop() {
            self.lock.left(1);
            drop(queue);
            job.ticket.set(HANDED_OVER);
        } else {
            queue.has_leader = false;
        }
    }
}

impl<S, A, O> Deref for Leadership<'_, S, A, O> {
    type Target = S;
    fn deref(&self) -> &S {
        self.state.as_ref().expect("the leader has the state until it is dropped")
    }
}
impl<S, A, O> DerefMut for Leadership<'_, S, A, O> {
    fn deref_mut(&mut self) -> &mut S {
        self.state.as_mut().expect("the leader has the state until it is dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Count = CombiningLock<Vec<u64>, u64, u64>;

    /// As the executor does it: the leader's own job, then queued ones for a few rounds.
    fn add(lock: &Count, session: u64, n: u64, rounds: usize) -> u64 {
        match lock.enter(SessionId(session), || n) {
            Turn::Done(place) => place,
            Turn::Lead(mut leader) => {
                leader.push(n);
                let own = leader.len() as u64;
                for _ in 0..rounds {
                    for job in leader.take(3) {
                        leader.push(job.ask);
                        job.finish(leader.len() as u64, &Spent::default());
                    }
                }
                own
            }
        }
    }

    /// mds-W1 to mds-W3: every job is run once, and its outcome is its own.
    #[test]
    fn each_job_is_done_once() {
        const THREADS: u64 = 4;
        const EACH: u64 = 2000;
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let lock = &lock;
                s.spawn(move || {
                    for n in 0..EACH {
                        let id = thread * EACH + n;
                        let place = add(lock, thread % 2, id, (n % 4) as usize);
                        if n % 16 == 0 {
                            let held = lock.lead();
                            assert_eq!(held[place as usize - 1], id, "the answer is of this job");
                        }
                    }
                });
            }
        });
        let mut all = lock.lead().clone();
        all.sort_unstable();
        assert_eq!(all, (0..THREADS * EACH).collect::<Vec<_>>());
        assert_eq!(lock.waiting(), 0);
    }

    /// Threads that wait with jobs `(session, n)`, in this order, behind the leader.
    fn behind<'s>(s: &'s std::thread::Scope<'s, '_>, lock: &'s Count, jobs: &[(u64, u64)]) {
        for (session, n) in jobs.iter().copied() {
            let before = lock.waiting();
            s.spawn(move || add(lock, session, n, 0));
            while lock.waiting() == before {
                std::thread::yield_now();
            }
        }
    }

    fn tell_all(jobs: Vec<Arc<Job<u64, u64>>>) -> Vec<u64> {
        jobs.iter().for_each(|job| job.finish(0, &Spent::default()));
        jobs.iter().map(|job| job.ask).collect()
    }

    #[test]
    fn w4_sessions_take_turns() {
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = lock.lead();
            behind(s, &lock, &[(1, 10), (1, 11), (1, 12), (2, 20), (3, 30)]);
            assert_eq!(tell_all(held.take(4)), [10, 20, 30, 11]);
            assert_eq!(tell_all(held.take(4)), [12]);
        });
    }

    /// Many jobs queued at once delay no other session by more than a batch, and their thread may become the leader.
    #[test]
    fn w4_many_at_once_take_turns_too() {
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = lock.lead();
            let many = s.spawn(|| {
                let (jobs, held) = lock.enqueue(SessionId(1), vec![10, 11, 12, 13]);
                assert!(held.is_none());
                let ends = jobs.iter().map(|job| match lock.await_turn(job) {
                    Turn::Done(place) => place,
                    Turn::Lead(mut leader) => {
                        leader.push(job.ask);
                        100
                    }
                });
                ends.collect::<Vec<_>>()
            });
            while lock.waiting() < 4 {
                std::thread::yield_now();
            }
            behind(s, &lock, &[(2, 20)]);
            assert_eq!(tell_all(held.take(3)), [10, 20, 11]);
            drop(held);
            assert_eq!(many.join().unwrap(), [0, 0, 100, 100]);
        });
        assert_eq!(*lock.lead(), [12, 13]);
    }

    #[test]
    fn jobs_that_were_put_back_come_first() {
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = lock.lead();
            behind(s, &lock, &[(1, 10), (2, 20), (1, 11), (3, 30)]);
            let mut jobs = held.take(3);
            assert_eq!(tell_all(jobs.drain(..1).collect()), [10]);
            held.put_back(jobs);
            assert_eq!(tell_all(held.take(9)), [20, 30, 11]);
        });
    }

    #[test]
    fn a_thread_without_a_job_does_not_wait_for_queued_jobs() {
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            let mut held = lock.lead();
            behind(s, &lock, &[(1, 10)]);
            let keeper = s.spawn(|| lock.lead().len());
            while lock.waiting() < 2 {
                std::thread::yield_now();
            }
            assert_eq!(tell_all(held.take(9)), [0u64; 0]);
            drop(held);
            assert_eq!(keeper.join().unwrap(), 0, "before the job");
        });
        assert_eq!(*lock.lead(), [10], "the job's own thread became the leader");
    }

    /// mds-W3: however many threads want to lead without a job, jobs have their turn.
    #[test]
    fn jobs_do_not_wait_for_all_threads_without_one() {
        let lock = Count::new(Vec::new());
        std::thread::scope(|s| {
            let held = lock.lead();
            behind(s, &lock, &[(1, 10), (2, 20)]);
            for n in 1..=3 {
                let lock = &lock;
                let before = lock.waiting();
                s.spawn(move || lock.lead().push(n));
                while lock.waiting() == before {
                    std::thread::yield_now();
                }
            }
            drop(held);
        });
        let seat = lock.lead();
        assert_eq!(*seat, [1, 10, 20, 2, 3], "the threads without a job have one turn only");
    }
}
