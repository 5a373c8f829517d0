//! The counts of all targets at one moment, and their sums by any of the keys.

use std::collections::{BTreeMap, HashMap};

use find::Names;
use types::{Code, Fault, SessionId, TargetId};
use wire::jobs::{CLASSES, JobCounts, JobRow, JobStats, JobStatsReply};
use wire::map::Target;

use super::{By, Row};
use crate::exit::Failure;
use crate::reach::Reach;

/// Jobs of one target that are asked for: as many as a target tells.
const ROWS: u32 = u32::MAX;
/// The row of jobs that a target has forgotten.
pub(super) const OTHERS: &str = "(others)";
/// A job whose client has not told its name to any target yet.
const UNNAMED: &str = "(no name yet)";

/// A target, a session and its tag.
type Key = (TargetId, SessionId, u32);

#[derive(Clone)]
struct Who {
    client: String,
    job: String,
    uid: u32,
}

/// The counts of one job at one target.
pub(super) struct One<'a> {
    pub target: &'a str,
    /// `None`: jobs that are not told singly, or have no name yet.
    pub job: Option<&'a str>,
    pub client: Option<&'a str>,
    pub counts: &'a JobCounts,
}

/// One moment.
#[derive(Clone)]
pub struct Sample {
    counts: HashMap<Key, JobCounts>,
    /// Counts of jobs that the targets do not tell singly.
    rest: BTreeMap<TargetId, JobCounts>,
    names: HashMap<(SessionId, u32), Who>,
    targets: BTreeMap<TargetId, String>,
}

impl Sample {
    /// Asks all targets of a file system. The second members of mirrors count too: reads go there. Error: a primary does not answer.
    pub fn take(reach: &Reach) -> (Sample, Option<Failure>) {
        let targets: Vec<&Target> = reach.targets();
        let answers = reach.ask_all(&targets, |target| reach.ask(target.id, &JobStats { max: ROWS }));
        let mut sample = Sample {
            counts: HashMap::new(),
            rest: BTreeMap::new(),
            names: HashMap::new(),
            targets: BTreeMap::new(),
        };
        let mut silent = None;
        for (target, answer) in targets.into_iter().zip(answers) {
            let name = mgmt::target_name(&reach.file_system().name, target.is_mdt, target.index);
            match answer {
                Ok(reply) => sample.add(target.id, name, reply),
                Err(e) if reach.is_primary(target) => {
                    silent.get_or_insert_with(|| failure_of(&name, &e));
                }
                Err(_) => {}
            }
        }
        (sample, silent)
    }

    fn add(&mut self, target: TargetId, name: String, reply: JobStatsReply) {
        self.targets.insert(target, name);
        self.rest.insert(target, reply.rest);
        for JobRow { session, tag, client, job, uid, counts, .. } in reply.rows {
            self.counts.insert((target, session, tag), counts);
            if !job.is_empty() {
                self.names.insert((session, tag), Who { client, job, uid });
            }
        }
    }

    /// Jobs of one client at one target, each with the time of its requests and how many these are.
    #[cfg(test)]
    pub fn of_jobs(jobs: &[(&str, u64, u64)]) -> Sample {
        let (target, session) = (TargetId(1), SessionId(7));
        let mut sample = Sample {
            counts: HashMap::new(),
            rest: BTreeMap::new(),
            names: HashMap::new(),
            targets: BTreeMap::from([(target, "home-OST0000".to_owned())]),
        };
        for (tag, (job, busy_us, reads)) in (1..).zip(jobs) {
            let mut counts = JobCounts { busy_us: *busy_us, ..JobCounts::default() };
            counts.requests[wire::jobs::READ] = *reads;
            sample.counts.insert((target, session, tag), counts);
            let who = Who { client: "c".into(), job: (*job).to_owned(), uid: 4_000_000_000 };
            sample.names.insert((session, tag), who);
        }
        sample
    }

    /// No target answered.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// All requests of each target since its start.
    pub fn totals(&self) -> BTreeMap<TargetId, JobCounts> {
        let mut totals = self.rest.clone();
        self.counts.iter().for_each(|((target, ..), counts)| totals.entry(*target).or_default().add(counts));
        totals
    }

    /// Takes over the counts of targets that were silent this time. Otherwise all that such a target counted since its start would be new
    /// when it answers again.
    pub fn keep_silent(&mut self, before: &Sample) {
        for (target, name) in &before.targets {
            if self.targets.contains_key(target) {
                continue;
            }
            self.targets.insert(*target, name.clone());
            self.rest.extend(before.rest.get(target).map(|counts| (*target, counts.clone())));
            let theirs = before.counts.iter().filter(|(key, _)| key.0 == *target);
            self.counts.extend(theirs.map(|(key, counts)| (*key, counts.clone())));
        }
        before.names.iter().for_each(|(key, who)| {
            self.names.entry(*key).or_insert_with(|| who.clone());
        });
    }

    /// The counts since `before`.
    pub fn since(mut self, before: &Sample) -> Sample {
        // A target that forgets an idle job adds its counts to the rest. They are not new.
        let mut forgotten: BTreeMap<TargetId, JobCounts> = BTreeMap::new();
        for (key, counts) in before.counts.iter().filter(|(key, _)| !self.counts.contains_key(key)) {
            forgotten.entry(key.0).or_default().add(counts);
        }
        for (key, counts) in &mut self.counts {
            if let Some(before) = before.counts.get(key) {
                *counts = counts.since(before);
            }
        }
        for (target, counts) in &mut self.rest {
            let Some(before) = before.rest.get(target) else { continue };
            let has_begun_anew = counts.total() < before.total();
            *counts = counts.since(before);
            if let Some(forgotten) = forgotten.get(target).filter(|_| !has_begun_anew) {
                let is_more = counts.total() >= forgotten.total();
                *counts = if is_more { counts.since(forgotten) } else { JobCounts::default() };
            }
        }
        self
    }

    /// All counts, each once.
    pub(super) fn all(&self) -> impl Iterator<Item = One<'_>> {
        let name = |target: &TargetId| self.targets.get(target).map_or("", String::as_str);
        let singly = self.counts.iter().map(move |((target, session, tag), counts)| {
            let who = self.names.get(&(*session, *tag));
            let (job, client) = (who.map(|who| who.job.as_str()), who.map(|who| who.client.as_str()));
            One { target: name(target), job, client, counts }
        });
        let rest = self.rest.iter();
        singly.chain(rest.map(move |(target, counts)| One {
            target: name(target),
            job: None,
            client: None,
            counts,
        }))
    }

    /// Jobs and their clients.
    pub(super) fn names(&self) -> Vec<(String, String)> {
        self.names.values().map(|who| (who.job.clone(), who.client.clone())).collect()
    }

    /// The sums. Rows without a request are left out.
    pub fn rows(&self, by: By) -> Vec<Row> {
        let names = Names::default();
        let mut sums: BTreeMap<String, JobCounts> = BTreeMap::new();
        let singly = self.counts.iter().map(|((target, session, tag), counts)| {
            (*target, self.names.get(&(*session, *tag)), UNNAMED, counts)
        });
        let rest = self.rest.iter().map(|(target, counts)| (*target, None, OTHERS, counts));
        for (target, who, otherwise, counts) in singly.chain(rest) {
            if counts.total() == 0 {
                continue;
            }
            let name = match by {
                By::Job => who.map(|who| who.job.clone()),
                By::User => who.map(|who| user(&names, who.uid)),
                By::Client => who.map(|who| who.client.clone()),
                By::Target => self.targets.get(&target).cloned(),
                By::Call => {
                    by_call(counts)
                        .for_each(|(class, part)| sums.entry(class.into()).or_default().add(&part));
                    continue;
                }
            };
            sums.entry(name.unwrap_or_else(|| otherwise.to_owned())).or_default().add(counts);
        }
        sums.into_iter().map(|(name, counts)| Row { name, counts }).collect()
    }
}

/// The error line of a target that gave no counts. A refusal names the certificate that is needed, and does not say that the target is silent.
fn failure_of(name: &str, error: &anyhow::Error) -> Failure {
    match error.downcast_ref::<Fault>().filter(|fault| fault.code == Code::Access) {
        Some(Fault { detail, .. }) => {
            let (why, next) =
                detail.split_once("; ").unwrap_or((detail, "use an administrator's certificate"));
            Failure::unusable(name, why, next)
        }
        None => {
            let next = "`stria status` shows the targets; its requests are missing here";
            Failure::unusable(name, format!("it does not answer ({error:#})"), next)
        }
    }
}

/// A uid, and its name where this host knows it.
fn user(names: &Names, uid: u32) -> String {
    names.user(uid).map_or_else(|| uid.to_string(), |name| format!("{name} ({uid})"))
}

/// The counts by class. Time and errors are known of all classes together; they are spread by requests.
fn by_call(counts: &JobCounts) -> impl Iterator<Item = (&'static str, JobCounts)> {
    let total = counts.total().max(1);
    CLASSES.iter().copied().zip(counts.requests.clone()).enumerate().filter(|(_, (_, n))| *n > 0).map(
        move |(at, (class, n))| {
            let mut part = JobCounts::default();
            part.requests[at] = n;
            part.busy_us = counts.busy_us * n / total;
            match at {
                wire::jobs::READ => part.bytes_read = counts.bytes_read,
                wire::jobs::WRITE => part.bytes_written = counts.bytes_written,
                _ => {}
            }
            (class, part)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(reads: u64) -> JobCounts {
        let mut counts = JobCounts { bytes_read: reads * 4096, ..JobCounts::default() };
        counts.requests[wire::jobs::READ] = reads;
        counts
    }

    fn reply(session: u64, tag: u32, job: &str, reads: u64) -> JobStatsReply {
        let row = JobRow {
            session: SessionId(session),
            tag,
            client: format!("host{session}"),
            job: job.into(),
            uid: 4_000_000_000 + tag,
            idle_sec: 0,
            counts: counts(reads),
        };
        JobStatsReply { rows: vec![row], rest: counts(1), others: 3 }
    }

    fn sample(of: &[(u32, JobStatsReply)]) -> Sample {
        let (counts, names) = Default::default();
        let mut sample = Sample { counts, rest: BTreeMap::new(), names, targets: BTreeMap::new() };
        of.iter().for_each(|(target, reply)| {
            sample.add(TargetId(*target), format!("home-OST{target:04}"), reply.clone());
        });
        sample
    }

    fn shown(sample: &Sample, by: By) -> Vec<(String, u64)> {
        sample.rows(by).into_iter().map(|row| (row.name, row.counts.total())).collect()
    }

    #[test]
    fn a_name_that_one_target_knows_counts_at_all_and_the_rest_is_shown() {
        let sample =
            sample(&[(1, reply(7, 1, "4711", 10)), (2, reply(7, 1, "", 5)), (3, reply(8, 1, "", 2))]);
        let own = |name: &str, n| (name.to_owned(), n);
        assert_eq!(shown(&sample, By::Job), [own("(no name yet)", 2), own("(others)", 3), own("4711", 15)]);
        assert_eq!(shown(&sample, By::Target)[1], own("home-OST0002", 6));
        assert_eq!(shown(&sample, By::User)[2], own("4000000001", 15));
        assert_eq!(shown(&sample, By::Client)[2], own("host7", 15));
        assert_eq!(shown(&sample, By::Call), [own("read", 20)]);
    }

    #[test]
    fn a_refusal_names_the_certificate_and_silence_names_the_targets() {
        let who = pki::Identity::parse("stria://alpha/client/login1", pki::Serial(1)).expect("an identity");
        let call = <JobStats as wire::Request>::CALL;
        let refused = failure_of("home-MDT0000", &Fault::new(Code::Access, pki::refusal(&who, call)).into());
        assert!(
            refused.to_string().starts_with(
                "home-MDT0000: client login1 of alpha may not send JobStats: it needs an administrator's certificate; set STRIA_TLS"
            ),
            "{refused}"
        );
        let silent = failure_of("home-MDT0000", &anyhow::anyhow!("refused")).to_string();
        assert!(silent.contains("it does not answer (refused); `stria status`"), "{silent}");
    }

    #[test]
    fn an_idle_job_that_a_target_forgets_is_not_new() {
        let before = sample(&[(1, reply(7, 1, "4711", 10))]);
        let mut after = reply(7, 2, "4712", 3);
        after.rest = counts(13);
        let after = sample(&[(1, after)]);
        assert_eq!(after.totals()[&TargetId(1)].total(), 16);
        let rows = shown(&after.since(&before), By::Job);
        assert_eq!(rows, [("(others)".to_owned(), 2), ("4712".to_owned(), 3)]);
    }

    #[test]
    fn a_target_that_was_silent_once_has_no_burst_afterwards() {
        let before = sample(&[(1, reply(7, 1, "4711", 1000)), (2, reply(7, 1, "", 5))]);
        let mut silent = sample(&[(2, reply(7, 1, "", 5))]);
        silent.keep_silent(&before);
        assert_eq!(shown(&silent.clone().since(&before), By::Job), []);
        let after = sample(&[(1, reply(7, 1, "4711", 1002)), (2, reply(7, 1, "", 5))]);
        assert_eq!(shown(&after.since(&silent), By::Job), [("4711".to_owned(), 2)]);
    }

    #[test]
    fn rates_are_of_what_came_between_two_moments() {
        let before = sample(&[(1, reply(7, 1, "4711", 10))]);
        let after = sample(&[(1, reply(7, 1, "4711", 25)), (2, reply(7, 2, "tar.0", 4))]);
        let rows = shown(&after.since(&before), By::Job);
        assert_eq!(rows, [("(others)".to_owned(), 1), ("4711".to_owned(), 15), ("tar.0".to_owned(), 4)]);
    }
}
