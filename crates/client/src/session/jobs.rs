//! Jobs: the programs from which a client's requests come. A thread that serves a program's call sets the tag of its job, and each request
//! that it sends carries that. Servers are told the names with keep-alives. Threads of the client's own have no tag.
//!
//! client-J1: a tag stands for one job, as long as the client lives. A job that was idle for `IDLE` gives up its tag, so that tags do not run out.
//! If it goes on, it gets a new one, whose name is told: servers forget the former one about then.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use net::{Peer, rpc};
use parking_lot::Mutex;
use types::{Buf, Incarnation, SessionId};
use wire::Header;
use wire::jobs::{JobName, NAME_MAX, TellJobs, name_of};

use crate::session::link::Link;

/// Bounds memory; all further jobs share a tag.
const JOBS_MAX: usize = 60_000;
/// Name of those.
const OTHERS: &str = "(others)";
/// As long as servers keep counts of an idle job. A program that is busy asks for its tag every 30 s.
const IDLE: Duration = Duration::from_secs(600);
/// Pause between two searches for idle jobs at a full table.
const SWEEP_EACH: Duration = Duration::from_secs(10);
/// Names are told again so often: a server whose table is full drops those of jobs that do nothing there.
const TELL_EACH: Duration = Duration::from_secs(300);
/// Names in one request: they fit into a body.
const TOLD_MAX: usize = 4096;

thread_local! {
    static TAG: Cell<u32> = const { Cell::new(0) };
}

/// Sets the job of the requests that this thread sends from now on; 0: none.
pub fn set_job(tag: u32) {
    TAG.set(tag);
}

pub(crate) fn current() -> u32 {
    TAG.get()
}

#[derive(Default)]
pub(crate) struct Jobs(Mutex<Known>);

#[derive(Default)]
struct Known {
    tags: HashMap<(String, u32), u32>,
    jobs: BTreeMap<u32, Job>,
    /// The newest tag that was given.
    newest: u32,
    swept: Option<Instant>,
}

struct Job {
    name: String,
    uid: u32,
    /// When its tag was asked for last.
    used: Instant,
}

impl Job {
    fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) >= IDLE
    }
}

impl Known {
    fn used(&mut self, key: &(String, u32), now: Instant) -> Option<u32> {
        let tag = *self.tags.get(key)?;
        let job = self.jobs.get_mut(&tag)?;
        if job.is_idle(now) {
            self.jobs.remove(&tag);
            self.tags.remove(key);
            return None;
        }
        job.used = now;
        Some(tag)
    }

    fn has_room(&mut self, now: Instant) -> bool {
        // One more is for all others.
        let is_full = |known: &Known| known.tags.len() + 1 >= JOBS_MAX;
        let is_due = self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_EACH);
        if is_full(self) && is_due {
            self.swept = Some(now);
            self.jobs.retain(|_, job| !job.is_idle(now));
            self.tags.retain(|_, tag| self.jobs.contains_key(tag));
        }
        !is_full(self)
    }
}

impl Jobs {
    /// The tag of this job and user, and whether it is new.
    pub fn tag(&self, job: &str, uid: u32, now: Instant) -> (u32, bool) {
        let mut known = self.0.lock();
        let mut key = (name_of(job), uid);
        if let Some(tag) = known.used(&key, now) {
            return (tag, false);
        }
        if !known.has_room(now) {
            key = (OTHERS.to_owned(), u32::MAX);
            if let Some(tag) = known.used(&key, now) {
                return (tag, false);
            }
        }
        // Without a tag a job is not counted. It is not counted for another one.
        let Some(tag) = known.newest.checked_add(1) else { return (0, false) };
        known.newest = tag;
        known.jobs.insert(tag, Job { name: key.0.clone(), uid: key.1, used: now });
        known.tags.insert(key, tag);
        (tag, true)
    }

    /// The next names after tag `told`, at most as many as one request has, without those of idle jobs.
    pub fn names_after(&self, told: u32, now: Instant) -> Vec<JobName> {
        let known = self.0.lock();
        let Some(first) = told.checked_add(1) else { return Vec::new() };
        let names = known.jobs.range(first..).filter(|(_, job)| !job.is_idle(now)).take(TOLD_MAX);
        names.map(|(tag, job)| JobName { tag: *tag, job: job.name.clone(), uid: job.uid }).collect()
    }
}

/// The names that a service of a target was told.
#[derive(Default)]
pub(crate) struct Told {
    of: (SessionId, Incarnation),
    /// The last of their tags.
    last: u32,
    begun: Option<Instant>,
}

impl Told {
    /// Begins anew with another service, and from time to time.
    fn look(&mut self, of: (SessionId, Incarnation), now: Instant) {
        let is_long_ago = self.begun.is_none_or(|at| now.saturating_duration_since(at) >= TELL_EACH);
        if self.of != of || is_long_ago {
            *self = Told { of, last: 0, begun: Some(now) };
        }
    }
}

impl Link {
    /// Tells the names of jobs that this service of the target does not know. Names that could not be told come with the next keep-alive.
    pub fn tell_jobs(&self, peer: &dyn Peer, of: (SessionId, Incarnation), deadline: Instant) {
        let now = Instant::now();
        let mut told = self.told_jobs.lock();
        told.look(of, now);
        let name = &self.id.name;
        let client = &name[..name.floor_char_boundary(NAME_MAX)];
        loop {
            let jobs = self.id.jobs.names_after(told.last, now);
            let Some(last) = jobs.last().map(|job| job.tag) else { return };
            let req = TellJobs { client: client.to_owned(), jobs };
            let head = Header { session: of.0, ..self.header() };
            match rpc::call(peer, head, &req, &[], &mut Buf::new(), deadline) {
                Ok((_, _, Ok(_))) => told.last = last,
                Ok((_, _, Err(fault))) => {
                    return tracing::debug!("names of jobs to {}: {fault}", self.describe());
                }
                Err(e) => return tracing::debug!("names of jobs to {}: {e}", self.describe()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_keeps_its_tag_and_users_have_tags_of_their_own() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        assert_eq!(jobs.tag("4711", 1000, now), (1, true));
        assert_eq!(jobs.tag("4711", 1001, now), (2, true));
        assert_eq!(jobs.tag("4711", 1000, now), (1, false));
        let names: Vec<_> = jobs.names_after(1, now).into_iter().map(|name| (name.tag, name.uid)).collect();
        assert_eq!(names, [(2, 1001)]);
        let long = "ü".repeat(NAME_MAX);
        jobs.tag(&long, 0, now);
        assert!(jobs.names_after(2, now)[0].job.len() <= NAME_MAX);
    }

    #[test]
    fn a_name_with_control_characters_is_told_without_them() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        jobs.tag("evil\u{1b}[31mRED\nline", 1000, now);
        assert_eq!(jobs.names_after(0, now)[0].job, r"evil\u{1b}[31mRED\nline");
    }

    #[test]
    fn j1_jobs_beyond_the_bound_share_one_tag_until_others_are_idle() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        (0..JOBS_MAX + 10).for_each(|n| _ = jobs.tag(&n.to_string(), 0, now));
        let shared = JOBS_MAX as u32;
        assert_eq!(jobs.tag("one more", 5, now), (shared, false));
        assert_eq!(jobs.names_after(shared - 1, now)[0].job, OTHERS);
        let later = now + IDLE;
        assert_eq!(jobs.tag("one more", 5, later), (shared + 1, true), "a number that no job had");
        assert_eq!(jobs.tag("0", 0, later), (shared + 2, true));
        let names: Vec<_> = jobs.names_after(0, later).into_iter().map(|name| name.job).collect();
        assert_eq!(names, ["one more", "0"]);
    }

    #[test]
    fn j1_an_idle_job_that_goes_on_gets_a_new_tag_which_is_told() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        jobs.tag("4711", 1000, now);
        let used = now + IDLE / 2;
        assert_eq!(jobs.tag("4711", 1000, used), (1, false));
        assert_eq!(jobs.tag("4711", 1000, used + IDLE), (2, true));
        assert_eq!(jobs.names_after(0, used + IDLE).len(), 1, "not the former one");
    }

    #[test]
    fn names_are_told_again_from_time_to_time_and_to_another_service_at_once() {
        let (mut told, now) = (Told::default(), Instant::now());
        let of = |session| (SessionId(session), Incarnation(1));
        told.look(of(1), now);
        told.last = 7;
        told.look(of(1), now + TELL_EACH / 2);
        assert_eq!(told.last, 7);
        told.look(of(1), now + TELL_EACH);
        assert_eq!(told.last, 0);
        told.last = 7;
        told.look(of(2), now + TELL_EACH);
        assert_eq!(told.last, 0);
    }
}
