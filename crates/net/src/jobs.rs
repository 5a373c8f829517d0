//! The requests of a target by job: the client's tag, to which the client tells a name. For people and tools; no rule depends on them.
//!
//! net-M2: threads count in stripes of their own. A job that was idle for `IDLE` is forgotten, and its counts go to the rest, so the sum of
//! all rows and the rest never falls. A full table of names drops those of jobs without a row. Clients tell names again from time to time, so a job
//! that goes on has its name again.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use spent::{Cause, Spent};
use types::{Code, Fault, Seq, SessionId};
use wire::jobs::{
    self, CLASSES, JobCounts, JobName, JobRow, JobStats, JobStatsReply, NAME_MAX, TellJobs, name_of,
};
use wire::{Empty, Header, ReplyHead, Request, Wire, encode_reply};

const STRIPES: usize = 8;
/// As Lustre's `job_cleanup_interval`.
const IDLE: Duration = Duration::from_secs(600);
/// Jobs of one stripe, and names: bounds of memory.
const JOBS_MAX: usize = 16_384;
const NAMES_MAX: usize = 65_536;
/// Rows of one answer: it fits into a body.
const ROWS_MAX: usize = 16_384;
/// Pause between two searches for idle jobs at a full table, and for names without a job.
const SWEEP_EACH: u64 = 10;

/// A session and its tag.
type Key = (u64, u32);

#[derive(Clone, Default)]
struct Counts {
    requests: [u64; CLASSES.len()],
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    ns: u64,
    waited: Spent,
    /// Seconds since the start of the clock, at the last request.
    last_sec: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.requests.iter_mut().zip(other.requests).for_each(|(own, more)| *own += more);
        self.errors += other.errors;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.ns += other.ns;
        self.waited.0.iter_mut().zip(other.waited.0).for_each(|(own, more)| *own += more);
        self.last_sec = self.last_sec.max(other.last_sec);
    }

    fn told(&self) -> JobCounts {
        JobCounts {
            requests: self.requests.to_vec(),
            errors: self.errors,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            busy_us: self.ns / 1000,
            waited_us: self.waited.0.map(|ns| ns / 1000).to_vec(),
        }
    }
}

struct Name {
    client: String,
    job: String,
    uid: u32,
}

#[derive(Default)]
pub(crate) struct Jobs {
    stripes: [Stripe; STRIPES],
    names: RwLock<HashMap<Key, Name>>,
    /// Counts of jobs that are forgotten.
    gone: Mutex<Counts>,
    swept_sec: AtomicU64,
    names_swept_sec: AtomicU64,
}

#[repr(align(128))]
#[derive(Default)]
struct Stripe(Mutex<HashMap<Key, Counts>>);

/// A request, or a part of one, that was answered.
#[derive(Clone, Copy)]
pub(crate) struct Done {
    pub call: u16,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// `types::Code` as a number; 0: done.
    pub code: u16,
    pub took: Duration,
    pub waited: Spent,
    /// When it was answered.
    pub at: Instant,
}

/// Seconds since the first use.
fn second(at: Instant) -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    at.saturating_duration_since(*BEGIN.get_or_init(Instant::now)).as_secs()
}

/// True once in `SWEEP_EACH`.
fn is_due(swept_sec: &AtomicU64, now: u64) -> bool {
    let before = swept_sec.load(Ordering::Relaxed);
    now >= before + SWEEP_EACH
        && swept_sec.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl Jobs {
    /// Counts a request in `stripe`. Without a tag there is nothing to count.
    pub fn count(&self, stripe: usize, key: Key, done: Done) {
        if key.1 == 0 {
            return;
        }
        let class = jobs::class_of(done.call);
        let is_whole = !jobs::is_container(done.call);
        let is_absent = [Code::NotFound as u16, Code::NoData as u16].contains(&done.code);
        // Programs look for names and attributes that are not there all the time.
        let is_error = done.code != 0 && !(class == jobs::STAT && is_absent);
        let mut one = Counts { errors: u64::from(is_error), last_sec: second(done.at), ..Counts::default() };
        one.requests[class] = u64::from(is_whole);
        match class {
            jobs::READ => one.bytes_read = done.bytes_out,
            jobs::WRITE | jobs::CREATE => one.bytes_written = done.bytes_in,
            _ => {}
        }
        if !jobs::may_wait(done.call) {
            (one.ns, one.waited) = (done.took.as_nanos() as u64, done.waited);
        }
        self.add(stripe, key, &one);
    }

    /// A request of this job has waited, which was seen outside of its own thread.
    pub fn count_wait(&self, key: Key, cause: Cause, time: Duration) {
        let mut one = Counts { last_sec: second(Instant::now()), ..Counts::default() };
        one.waited.add(cause, time);
        self.add(0, key, &one);
    }

    fn add(&self, stripe: usize, key: Key, one: &Counts) {
        let is_full = {
            let mut jobs = self.stripes[stripe % STRIPES].0.lock();
            match jobs.get_mut(&key) {
                Some(counts) => {
                    counts.add(one);
                    return;
                }
                None => jobs.len() >= JOBS_MAX,
            }
        };
        if is_full && !self.makes_room(one.last_sec) {
            return self.gone.lock().add(one);
        }
        self.stripes[stripe % STRIPES].0.lock().entry(key).or_default().add(one);
    }

    /// Looks for idle jobs, but seldom.
    fn makes_room(&self, now: u64) -> bool {
        is_due(&self.swept_sec, now) && self.sweep(now) > 0
    }

    /// Forgets idle jobs. Returns how many.
    fn sweep(&self, now: u64) -> usize {
        let idle: Vec<Key> = self
            .sums()
            .into_iter()
            .filter(|(_, counts)| now.saturating_sub(counts.last_sec) > IDLE.as_secs())
            .map(|(key, _)| key)
            .collect();
        for key in &idle {
            let mut sum = Counts::default();
            for stripe in &self.stripes {
                sum.add(&stripe.0.lock().remove(key).unwrap_or_default());
            }
            self.gone.lock().add(&sum);
        }
        idle.len()
    }

    fn sums(&self) -> HashMap<Key, Counts> {
        let mut sums: HashMap<Key, Counts> = HashMap::new();
        for stripe in &self.stripes {
            for (key, counts) in stripe.0.lock().iter() {
                sums.entry(*key).or_default().add(counts);
            }
        }
        sums
    }

    /// Keeps the names that a client tells.
    fn tell(&self, session: SessionId, client: &str, told: Vec<JobName>, now: u64) -> Result<(), Fault> {
        let is_long = |text: &str| text.len() > NAME_MAX;
        if told.len() > NAMES_MAX || is_long(client) || told.iter().any(|name| is_long(&name.job)) {
            return Err(Fault::new(Code::BadRequest, "names of jobs: too many, or one is too long"));
        }
        let mut names = self.names.write();
        let new = told.iter().filter(|name| !names.contains_key(&(session.0, name.tag))).count();
        if names.len() + new > NAMES_MAX && is_due(&self.names_swept_sec, now) {
            let used = self.sums();
            names.retain(|key, _| used.contains_key(key));
        }
        for JobName { tag, job, uid } in told {
            let key = (session.0, tag);
            if names.len() < NAMES_MAX || names.contains_key(&key) {
                // A client of another release, or one that lies, may tell control characters.
                names.insert(key, Name { client: name_of(client), job: name_of(&job), uid });
            }
        }
        Ok(())
    }

    /// The `max` jobs that took most time, the most first, and the sum of all others.
    pub fn stats(&self, max: usize) -> JobStatsReply {
        let now = second(Instant::now());
        self.sweep(now);
        let mut rest = self.gone.lock().clone();
        let mut sums: Vec<(Key, Counts)> = self.sums().into_iter().collect();
        sums.sort_unstable_by_key(|(key, counts)| (std::cmp::Reverse(counts.ns), *key));
        let others = sums.split_off(sums.len().min(max).min(ROWS_MAX));
        others.iter().for_each(|(_, counts)| rest.add(counts));
        let names = self.names.read();
        let row = |((session, tag), counts): (Key, Counts)| {
            let name = names.get(&(session, tag));
            JobRow {
                session: SessionId(session),
                tag,
                client: name.map(|name| name.client.clone()).unwrap_or_default(),
                job: name.map(|name| name.job.clone()).unwrap_or_default(),
                uid: name.map_or(u32::MAX, |name| name.uid),
                idle_sec: now.saturating_sub(counts.last_sec).min(u64::from(u32::MAX)) as u32,
                counts: counts.told(),
            }
        };
        let others_count = others.len() as u32;
        JobStatsReply { rows: sums.into_iter().map(row).collect(), rest: rest.told(), others: others_count }
    }

    /// Answers the calls about jobs. `None`: it is another one.
    pub fn answer(&self, head: &Header, body: &[u8]) -> Option<Vec<u8>> {
        let malformed = |e| Fault::new(Code::BadRequest, format!("{e}"));
        let done = ReplyHead::done(Seq(0), Seq(0));
        let said = match head.call {
            TellJobs::CALL => TellJobs::from_bytes(body)
                .map_err(malformed)
                .and_then(|told| self.tell(head.session, &told.client, told.jobs, second(Instant::now())))
                .map(|()| encode_reply(&done, Some(&Empty {}))),
            JobStats::CALL => JobStats::from_bytes(body)
                .map_err(malformed)
                .map(|asked| encode_reply(&done, Some(&self.stats(asked.max as usize)))),
            _ => return None,
        };
        Some(said.unwrap_or_else(|fault| encode_reply(&ReplyHead::refused(&fault, Seq(0)), None::<&Empty>)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_read() -> Done {
        Done {
            call: wire::object::Read::CALL,
            bytes_in: 30,
            bytes_out: 4096,
            code: 0,
            took: Duration::from_micros(50),
            waited: Spent([1000; spent::CAUSES]),
            at: Instant::now(),
        }
    }

    fn name(tag: u32, job: &str) -> JobName {
        JobName { tag, job: job.to_owned(), uid: 1000 + tag }
    }

    #[test]
    fn requests_of_all_threads_are_summed_under_the_name_that_the_client_told() {
        let jobs = Jobs::default();
        (0..20).for_each(|stripe| jobs.count(stripe, (7, 1), a_read()));
        jobs.count(0, (7, 2), Done { code: Code::Io as u16, took: Duration::from_millis(9), ..a_read() });
        jobs.count(0, (7, 0), a_read());
        let absent = Done { call: wire::meta::Lookup::CALL, code: Code::NotFound as u16, ..a_read() };
        jobs.count(0, (7, 2), Done { took: Duration::ZERO, ..absent });
        jobs.tell(SessionId(7), "host 5", vec![name(1, "4711"), name(2, "tar.1002")], 0).expect("names");
        let stats = jobs.stats(10);
        let rows: Vec<_> =
            stats.rows.iter().map(|row| (row.job.as_str(), row.uid, row.counts.total())).collect();
        assert_eq!(
            rows,
            [("tar.1002", 1002, 2), ("4711", 1001, 20)],
            "most time first, no row without a tag"
        );
        assert_eq!(stats.rows[1].counts.bytes_read, 20 * 4096);
        assert_eq!((stats.rows[0].counts.errors, stats.rows[0].client.as_str()), (1, "host 5"));
        assert_eq!((stats.others, stats.rest.total()), (0, 0));
    }

    #[test]
    fn control_characters_in_told_names_reach_no_terminal() {
        let jobs = Jobs::default();
        jobs.count(0, (7, 1), a_read());
        jobs.tell(SessionId(7), "host\u{9b}5", vec![name(1, "a\u{1b}[31mb\n")], 0).expect("names");
        let row = &jobs.stats(10).rows[0];
        assert_eq!((row.job.as_str(), row.client.as_str()), (r"a\u{1b}[31mb\n", r"host\u{9b}5"));
    }

    #[test]
    fn causes_have_the_names_of_the_protocol() {
        let names = spent::ALL.map(|cause| format!("{cause:?}").to_lowercase());
        assert_eq!(names.each_ref().map(String::as_str), jobs::CAUSES);
    }

    #[test]
    fn jobs_beyond_the_wanted_ones_are_in_the_rest() {
        let jobs = Jobs::default();
        for tag in 1..=100 {
            jobs.count(tag as usize, (1, tag), Done { took: Duration::from_micros(tag.into()), ..a_read() });
        }
        let stats = jobs.stats(10);
        let tags: Vec<_> = stats.rows.iter().map(|row| row.tag).collect();
        assert_eq!(tags, (91..=100).rev().collect::<Vec<_>>());
        assert_eq!((stats.others, stats.rest.total()), (90, 90));
    }

    /// net-M2: at the bound nothing is lost from the sum.
    #[test]
    fn a_full_table_counts_more_jobs_in_the_rest() {
        let jobs = Jobs::default();
        let count = JOBS_MAX as u32 + 50;
        (1..=count).for_each(|tag| jobs.count(3, (1, tag), a_read()));
        let stats = jobs.stats(usize::MAX);
        let sum = stats.rows.iter().map(|row| row.counts.total()).sum::<u64>() + stats.rest.total();
        assert_eq!((stats.rows.len(), sum), (ROWS_MAX, u64::from(count)));
    }

    #[test]
    fn names_are_bounded_and_long_ones_are_refused() {
        let jobs = Jobs::default();
        assert!(jobs.tell(SessionId(1), "c", vec![name(1, &"x".repeat(NAME_MAX + 1))], 0).is_err());
        for round in 0..3 {
            let many = (0..NAMES_MAX as u32).map(|tag| name(tag, "j")).collect();
            jobs.tell(SessionId(round), "c", many, round).expect("names");
            assert!(jobs.names.read().len() <= NAMES_MAX);
        }
    }

    #[test]
    fn a_name_for_which_there_was_no_room_is_kept_when_it_is_told_again() {
        let jobs = Jobs::default();
        let is_named = |session, tag| jobs.names.read().contains_key(&(session, tag));
        jobs.count(0, (1, 1), a_read());
        jobs.tell(SessionId(1), "c", (1..=NAMES_MAX as u32).map(|tag| name(tag, "j")).collect(), 0)
            .expect("names");
        // The last search was a moment ago.
        jobs.names_swept_sec.store(100, Ordering::Relaxed);
        jobs.tell(SessionId(2), "c", vec![name(1, "k")], 100).expect("names");
        assert!(!is_named(2, 1));
        jobs.tell(SessionId(1), "c", vec![name(5, "other")], 100).expect("names");
        assert_eq!(jobs.names.read()[&(1, 5)].job, "other", "a name that is there needs no room");
        jobs.tell(SessionId(2), "c", vec![name(1, "k")], 100 + SWEEP_EACH).expect("names");
        assert!(is_named(2, 1) && is_named(1, 1), "names of jobs with requests stay");
        assert_eq!(jobs.names.read().len(), 2);
    }
}
