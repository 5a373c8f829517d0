//! Jobs: the programs, users and clients that a target's requests come from. A request carries a tag; its client tells the name once.
//!
//! For people and tools; no rule depends on them.

use types::*;

use crate::codec::{bodies, calls};
use crate::{Empty, Request, batch, lock, meta, object, session, shared};

/// Longest name of a job, in bytes. Clients cut longer ones.
pub const NAME_MAX: usize = 128;

bodies! {
    /// The names of tags that requests of this frame's session carry from now on. Tags are the client's own, from 1 on.
    TellJobs { client: String, jobs: Vec<JobName> }
    JobName { tag: u32, job: String, uid: u32 }
    /// Reads the requests of a target by job: those that took most time, at most `max` of them.
    JobStats { max: u32 }
    JobStatsReply {
        rows: Vec<JobRow>,
        /// The sum of the others, and of jobs that are forgotten since they were idle.
        rest: JobCounts,
        /// How many jobs `rest` has.
        others: u32,
    }
    JobRow {
        session: SessionId,
        tag: u32,
        /// Empty: the client has not told the name yet.
        client: String,
        job: String,
        uid: u32,
        /// Seconds since the last request.
        idle_sec: u32,
        counts: JobCounts,
    }
    JobCounts {
        /// Requests by class, in the order of `CLASSES`.
        requests: Vec<u64>,
        errors: u64,
        bytes_read: u64,
        bytes_written: u64,
        /// Time until the answers, of all together.
        busy_us: u64,
        /// Parts of that time by cause, in the order of `CAUSES`, and before it: the request on its way, and behind others.
        waited_us: Vec<u64>,
    }
}

calls! {
    0x0180 TellJobs => Empty, read;
    0x0181 JobStats => JobStatsReply, read;
}

/// Classes of requests, as people know them from the calls of programs.
pub const CLASSES: [&str; 11] =
    ["read", "write", "open", "create", "remove", "rename", "stat", "setattr", "list", "flush", "other"];
pub const READ: usize = 0;
pub const WRITE: usize = 1;
pub const CREATE: usize = 3;
pub const STAT: usize = 6;
const OTHER: usize = CLASSES.len() - 1;

/// Causes of waits, as `spent::Cause` has them.
pub const CAUSES: [&str; 6] = ["queue", "device", "mirror", "log", "lock", "network"];

/// A name as people may see it, of at most `NAME_MAX` bytes. Users choose names, and a control character would change an administrator's
/// terminal. A name that was made so stays as it is.
pub fn name_of(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let len = out.len();
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
        if out.len() > NAME_MAX {
            // Half of an escape would be another name.
            out.truncate(len);
            break;
        }
    }
    out
}

/// The class of a call, as its place in `CLASSES`.
pub fn class_of(call: u16) -> usize {
    const BY_CLASS: [&[u16]; OTHER] = [
        &[object::Read::CALL, meta::ReadInline::CALL],
        &[object::Write::CALL, meta::WriteInline::CALL],
        &[meta::Open::CALL, meta::OpenRead::CALL, shared::Enter::CALL],
        &[
            meta::Create::CALL,
            meta::CreateWith::CALL,
            meta::MakeDir::CALL,
            meta::Symlink::CALL,
            meta::Link::CALL,
            meta::Tmpfile::CALL,
        ],
        &[meta::Unlink::CALL, meta::RemoveDir::CALL],
        &[meta::Rename::CALL],
        &[
            meta::Lookup::CALL,
            meta::GetAttr::CALL,
            meta::GetAttrs::CALL,
            meta::ReadLink::CALL,
            meta::GetXattr::CALL,
            meta::ListXattr::CALL,
            object::Glimpse::CALL,
        ],
        &[
            meta::SetAttr::CALL,
            meta::SetXattr::CALL,
            meta::RemoveXattr::CALL,
            meta::SetFlags::CALL,
            meta::Truncate::CALL,
            object::Truncate::CALL,
            object::Punch::CALL,
        ],
        &[meta::ReadDir::CALL],
        &[session::Flush::CALL],
    ];
    BY_CLASS.iter().position(|calls| calls.contains(&call)).unwrap_or(OTHER)
}

/// Requests that only hold others: they are counted one by one.
pub fn is_container(call: u16) -> bool {
    call == batch::Batch::CALL
}

/// Requests that may wait for other clients: their time tells nothing of the target.
pub fn may_wait(call: u16) -> bool {
    call == lock::AwaitLocks::CALL || call == lock::Lock::CALL
}

impl Default for JobCounts {
    fn default() -> JobCounts {
        JobCounts {
            requests: vec![0; CLASSES.len()],
            errors: 0,
            bytes_read: 0,
            bytes_written: 0,
            busy_us: 0,
            waited_us: vec![0; CAUSES.len()],
        }
    }
}

impl JobCounts {
    pub fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Adds another job's counts.
    pub fn add(&mut self, other: &JobCounts) {
        self.requests.resize(self.requests.len().max(other.requests.len()), 0);
        self.requests.iter_mut().zip(&other.requests).for_each(|(own, more)| *own += more);
        self.errors += other.errors;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.busy_us += other.busy_us;
        self.waited_us.resize(self.waited_us.len().max(other.waited_us.len()), 0);
        self.waited_us.iter_mut().zip(&other.waited_us).for_each(|(own, more)| *own += more);
    }

    /// The counts since `before`. Less than before: the target has begun anew, and all is new.
    pub fn since(&self, before: &JobCounts) -> JobCounts {
        if self.total() < before.total() {
            return self.clone();
        }
        let less = |own: &[u64], before: &[u64]| {
            let at = |n: usize| before.get(n).copied().unwrap_or(0);
            own.iter().enumerate().map(|(n, own)| own.saturating_sub(at(n))).collect()
        };
        JobCounts {
            requests: less(&self.requests, &before.requests),
            errors: self.errors.saturating_sub(before.errors),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            waited_us: less(&self.waited_us, &before.waited_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_name_are_escaped_once_and_its_length_is_bounded() {
        let evil = "evil\u{1b}[31mRED\nline\u{9b}2J\u{7f}";
        let shown = name_of(evil);
        assert_eq!(shown, r"evil\u{1b}[31mRED\nline\u{9b}2J\u{7f}");
        assert_eq!(name_of(&shown), shown);
        assert_eq!(name_of("größe 4711\\x"), "größe 4711\\x");
        let long = name_of(&"\u{1b}".repeat(NAME_MAX));
        assert!(long.len() <= NAME_MAX && long.ends_with(r"\u{1b}"), "{long}");
        assert_eq!(name_of(&"ü".repeat(NAME_MAX)).len(), NAME_MAX);
    }

    #[test]
    fn a_call_has_the_class_of_the_system_call_that_makes_it() {
        let class = |call| CLASSES[class_of(call)];
        assert_eq!(class(object::Read::CALL), "read");
        assert_eq!(class(meta::WriteInline::CALL), "write");
        assert_eq!(class(meta::CreateWith::CALL), "create");
        assert_eq!((class(session::Flush::CALL), class(session::KeepAlive::CALL)), ("flush", "other"));
        assert_eq!([READ, WRITE, CREATE, STAT].map(|n| CLASSES[n]), ["read", "write", "create", "stat"]);
    }

    #[test]
    fn counts_of_a_target_that_began_anew_are_all_new() {
        let counts = |requests: &[u64], busy_us| JobCounts {
            requests: requests.to_vec(),
            errors: 0,
            bytes_read: 10,
            bytes_written: 0,
            busy_us,
            waited_us: vec![busy_us / 2; 6],
        };
        let (before, after) = (counts(&[1, 2], 100), counts(&[2, 4], 150));
        let since = after.since(&before);
        assert_eq!(
            (since.requests, since.busy_us, since.bytes_read, since.waited_us),
            (vec![1, 2], 50, 0, vec![25; 6])
        );
        assert_eq!(before.since(&after), before);
        let mut sum = JobCounts::default();
        sum.add(&before);
        sum.add(&after);
        assert_eq!((&sum.requests[..2], sum.total(), sum.bytes_read), (&[3, 6][..], 9, 20));
    }
}
