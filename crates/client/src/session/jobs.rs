//! Jobs: the programs from which a client's requests come. A thread that serves a program's call sets the tag of its job, and each request
//! that it sends carries that. Servers are told the names with keep-alives. Threads of the client's own have no tag.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use std::time::Instant;

use net::{Peer, rpc};
use parking_lot::RwLock;
use types::{Buf, Incarnation, SessionId};
use wire::Header;
use wire::jobs::{JobName, NAME_MAX, TellJobs, name_of};

use crate::session::link::Link;

/// Bounds memory; all further jobs share the last tag.
const JOBS_MAX: usize = 60_000;
/// Name of those.
const OTHERS: &str = "(others)";
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
pub(crate) struct Jobs {
    known: RwLock<Known>,
    count: AtomicU32,
}

#[derive(Default)]
struct Known {
    tags: HashMap<(String, u32), u32>,
    /// By tag, from 1 on.
    names: Vec<(String, u32)>,
}

impl Jobs {
    /// The tag of this job and user, and whether it is new.
    pub fn tag(&self, job: &str, uid: u32) -> (u32, bool) {
        let key = (name_of(job), uid);
        if let Some(tag) = self.known.read().tags.get(&key) {
            return (*tag, false);
        }
        let mut known = self.known.write();
        if let Some(tag) = known.tags.get(&key) {
            return (*tag, false);
        }
        if known.names.len() >= JOBS_MAX {
            return (JOBS_MAX as u32, false);
        }
        let key = if known.names.len() + 1 == JOBS_MAX { (OTHERS.to_owned(), u32::MAX) } else { key };
        known.names.push(key.clone());
        let tag = known.names.len() as u32;
        known.tags.insert(key, tag);
        self.count.store(tag, Ordering::Release);
        (tag, true)
    }

    /// The newest tag.
    pub fn newest(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// The next names after tag `told`, at most as many as one request has.
    pub fn names_after(&self, told: u32) -> Vec<JobName> {
        let known = self.known.read();
        let names = known.names.iter().zip(1..).skip(told as usize).take(TOLD_MAX);
        names.map(|((job, uid), tag)| JobName { tag, job: job.clone(), uid: *uid }).collect()
    }
}

impl Link {
    /// Tells the names of jobs that this service of the target does not know. Names that could not be told come with the next keep-alive.
    pub fn tell_jobs(&self, peer: &dyn Peer, of: (SessionId, Incarnation), deadline: Instant) {
        let mut told = self.told_jobs.lock();
        if told.0 != of {
            *told = (of, 0);
        }
        let name = &self.id.name;
        let client = &name[..name.floor_char_boundary(NAME_MAX)];
        while told.1 < self.id.jobs.newest() {
            let jobs = self.id.jobs.names_after(told.1);
            let (count, req) = (jobs.len() as u32, TellJobs { client: client.to_owned(), jobs });
            let head = Header { session: of.0, ..self.header() };
            match rpc::call(peer, head, &req, &[], &mut Buf::new(), deadline) {
                Ok((_, _, Ok(_))) => told.1 += count,
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
        let jobs = Jobs::default();
        assert_eq!(jobs.tag("4711", 1000), (1, true));
        assert_eq!(jobs.tag("4711", 1001), (2, true));
        assert_eq!(jobs.tag("4711", 1000), (1, false));
        let names: Vec<_> = jobs.names_after(1).into_iter().map(|name| (name.tag, name.uid)).collect();
        assert_eq!((names, jobs.newest()), (vec![(2, 1001)], 2));
        let long = "ü".repeat(NAME_MAX);
        jobs.tag(&long, 0);
        assert!(jobs.names_after(2)[0].job.len() <= NAME_MAX);
    }

    #[test]
    fn a_name_with_control_characters_is_told_without_them() {
        let jobs = Jobs::default();
        jobs.tag("evil\u{1b}[31mRED\nline", 1000);
        assert_eq!(jobs.names_after(0)[0].job, r"evil\u{1b}[31mRED\nline");
    }

    #[test]
    fn jobs_beyond_the_bound_share_one_tag() {
        let jobs = Jobs::default();
        (0..JOBS_MAX + 10).for_each(|n| _ = jobs.tag(&n.to_string(), 0));
        assert_eq!(jobs.newest() as usize, JOBS_MAX);
        assert_eq!(jobs.tag("one more", 5), (JOBS_MAX as u32, false));
        let mut told = 0;
        while told < jobs.newest() {
            told += jobs.names_after(told).len() as u32;
        }
        assert_eq!(jobs.names_after(told - 1)[0].job, OTHERS);
    }
}
