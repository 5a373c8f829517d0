//! The jobs on the page: few of them with a name, and the sum of all others.
//!
//! watch-M3: every sample only rises, so that rates are right. A job keeps its place while it is active, and its samples begin at 0 with that. Each
//! request counts for one sample: those of a job before it had a place stay with the others. Counts of a client that the target forgets stay with
//! the job.

use std::collections::HashMap;

use wire::jobs::{JobCounts, JobStatsReply};

use crate::Sheet;
use crate::family::{JOB_BUSY, JOB_ERRORS, JOB_READ, JOB_REQUESTS, JOB_WRITTEN};

/// Jobs with a name, of one target.
pub const SHOWN_MAX: usize = 50;
/// After so many seconds without a request a job may lose its place.
const IDLE_SEC: u32 = 60;
/// The label of all others.
const OTHERS: &str = "(others)";

/// Job and uid.
type Key = (String, u32);

/// Requests, errors, bytes read, bytes written, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums([u64; 5]);

impl Sums {
    fn of(counts: &JobCounts) -> Sums {
        Sums([counts.total(), counts.errors, counts.bytes_read, counts.bytes_written, counts.busy_us])
    }
    fn add(&mut self, other: Sums) {
        self.0.iter_mut().zip(other.0).for_each(|(own, more)| *own += more);
    }
    fn less(self, other: Sums) -> Sums {
        Sums(std::array::from_fn(|n| self.0[n].saturating_sub(other.0[n])))
    }
    fn max(self, other: Sums) -> Sums {
        Sums(std::array::from_fn(|n| self.0[n].max(other.0[n])))
    }
}

/// A session and its tag.
type Part = (u64, u32);

/// A job on the target's side: the sum of its clients.
#[derive(Default)]
struct Job {
    /// Since the last page.
    did: Sums,
    busy_us: u64,
    idle_sec: u32,
}

/// The jobs of one target that have a place.
#[derive(Default)]
pub struct Shown {
    /// All rows of the last page, as many as one answer of a target has. A job's sum would fall when the target forgets one of its clients.
    parts: HashMap<Part, Sums>,
    /// The last page had all rows of the target: one that is new now has done nothing before.
    is_whole: bool,
    /// The counts of jobs while they have a place.
    jobs: HashMap<Key, Sums>,
    /// Those of all jobs while they had one.
    told: Sums,
    others: Sums,
}

impl Shown {
    /// Adds the samples of a target.
    pub fn add(&mut self, sheet: &mut Sheet, target: &str, stats: &JobStatsReply) {
        if stats.rows.is_empty() && stats.rest.total() == 0 {
            return;
        }
        let (rows, others) = self.update(stats);
        for ((job, uid), sums) in &rows {
            put(sheet, [target, job, &uid.to_string()], *sums);
        }
        put(sheet, [target, OTHERS, ""], others);
    }

    fn update(&mut self, stats: &JobStatsReply) -> (Vec<(Key, Sums)>, Sums) {
        let now = self.take(stats);
        self.jobs.retain(|key, _| now.contains_key(key));
        for (key, sums) in &mut self.jobs {
            sums.add(now[key].did);
            self.told.add(now[key].did);
        }
        self.give_places(&now);
        let total =
            stats.rows.iter().map(|row| Sums::of(&row.counts)).fold(Sums::of(&stats.rest), |mut all, row| {
                all.add(row);
                all
            });
        self.others = self.others.max(total.less(self.told));
        (self.jobs.iter().map(|(key, sums)| (key.clone(), *sums)).collect(), self.others)
    }

    /// The jobs with a name, by what their clients did since the last page.
    fn take(&mut self, stats: &JobStatsReply) -> HashMap<Key, Job> {
        let mut now: HashMap<Key, Job> = HashMap::new();
        let mut parts = HashMap::with_capacity(stats.rows.len());
        for row in &stats.rows {
            let (part, counts) = ((row.session.0, row.tag), Sums::of(&row.counts));
            let did = match self.parts.get(&part) {
                Some(last) => counts.less(*last),
                None if self.is_whole => counts,
                None => Sums::default(),
            };
            parts.insert(part, counts);
            if !row.job.is_empty() {
                let job = now
                    .entry((row.job.clone(), row.uid))
                    .or_insert(Job { idle_sec: u32::MAX, ..Job::default() });
                job.did.add(did);
                job.busy_us += row.counts.busy_us;
                job.idle_sec = row.idle_sec.min(job.idle_sec);
            }
        }
        (self.parts, self.is_whole) = (parts, stats.others == 0);
        now
    }

    /// Free places go to the jobs that took most time.
    fn give_places(&mut self, now: &HashMap<Key, Job>) {
        let mut waiting: Vec<&Key> = now.keys().filter(|key| !self.jobs.contains_key(*key)).collect();
        waiting.sort_unstable_by_key(|key| (std::cmp::Reverse(now[*key].busy_us), *key));
        if self.jobs.len() + waiting.len() > SHOWN_MAX {
            self.jobs.retain(|key, _| now[key].idle_sec < IDLE_SEC);
            waiting.retain(|key| now[*key].idle_sec < IDLE_SEC);
        }
        let room = SHOWN_MAX.saturating_sub(self.jobs.len());
        for key in waiting.into_iter().take(room) {
            self.jobs.insert(key.clone(), Sums::default());
        }
    }
}

fn put(sheet: &mut Sheet, labels: [&str; 3], Sums([requests, errors, read, written, us]): Sums) {
    let numbers = [
        (&JOB_REQUESTS, requests as f64),
        (&JOB_ERRORS, errors as f64),
        (&JOB_READ, read as f64),
        (&JOB_WRITTEN, written as f64),
        (&JOB_BUSY, us as f64 / 1e6),
    ];
    numbers.into_iter().for_each(|(family, number)| sheet.add(family, &labels, number));
}

#[cfg(test)]
mod tests {
    use types::SessionId;
    use wire::jobs::JobRow;

    use super::*;

    fn stats(rows: &[(u32, u64, u32)], rest: u64) -> JobStatsReply {
        let counts = |n: u64| {
            let mut counts = JobCounts { busy_us: n, ..JobCounts::default() };
            counts.requests[0] = n;
            counts
        };
        let row = |(job, n, idle_sec): &(u32, u64, u32)| JobRow {
            session: SessionId(1),
            tag: *job,
            client: "c".into(),
            job: format!("job{job}"),
            uid: 1000,
            idle_sec: *idle_sec,
            counts: counts(*n),
        };
        JobStatsReply { rows: rows.iter().map(row).collect(), rest: counts(rest), others: 0 }
    }

    #[test]
    fn the_others_never_fall_when_jobs_come_and_go() {
        let mut shown = Shown::default();
        let all = SHOWN_MAX as u32;
        let mut rows: Vec<(u32, u64, u32)> =
            (0..all + 10).map(|job| (job, 100 + u64::from(job), 0)).collect();
        let (first, mut before) = shown.update(&stats(&rows, 5));
        assert_eq!(first.len(), SHOWN_MAX);
        assert!(first.iter().all(|((job, _), _)| job != "job0"), "those of most time have the places");
        for round in 1..20u64 {
            rows.iter_mut().for_each(|row| row.1 += round);
            // Some become idle, and one is forgotten by the target.
            rows.iter_mut().filter(|row| u64::from(row.0) % 20 == round).for_each(|row| row.2 = IDLE_SEC);
            let forgotten = if round == 10 { rows.remove(3).1 } else { 0 };
            let (now, others) =
                shown.update(&stats(&rows, 5 + if round >= 10 { forgotten.max(1000) } else { 0 }));
            assert!(now.len() <= SHOWN_MAX);
            assert!(others.0[0] >= before.0[0], "round {round}: {others:?} after {before:?}");
            before = others;
        }
    }

    #[test]
    fn a_job_of_two_clients_is_one_sample_and_each_request_counts_once() {
        let mut shown = Shown::default();
        let mut both = stats(&[(1, 10, 0), (2, 5, 0)], 0);
        both.rows[1].job = both.rows[0].job.clone();
        let (rows, others) = shown.update(&both);
        assert_eq!((rows.len(), rows[0].1.0[0], others.0[0]), (1, 0, 15));
        both.rows[0].counts.requests[0] += 7;
        let (rows, others) = shown.update(&both);
        assert_eq!((rows[0].1.0[0], others.0[0]), (7, 15), "what a job does with a place is its own");
    }

    #[test]
    fn a_job_does_not_fall_when_the_target_forgets_one_of_its_clients() {
        let mut shown = Shown::default();
        let of_one_job = |parts: &[(u32, u64, u32)], rest| {
            let mut stats = stats(parts, rest);
            stats.rows.iter_mut().for_each(|row| row.job = "4711".into());
            stats
        };
        let mut page = |parts: &[(u32, u64, u32)], rest| {
            let (rows, others) = shown.update(&of_one_job(parts, rest));
            (rows[0].1.0[0], others.0[0])
        };
        assert_eq!(page(&[(1, 100, 0), (2, 50, 0)], 3), (0, 153));
        assert_eq!(page(&[(1, 110, 0), (2, 50, 0)], 3), (10, 153));
        // Its second client was idle; the first one goes on meanwhile.
        assert_eq!(page(&[(1, 115, 0)], 53), (15, 153), "neither falls, and nothing counts twice");
        assert_eq!(page(&[(1, 120, 0)], 53), (20, 153));
        assert_eq!(
            page(&[(1, 120, 0), (2, 4, 0)], 53),
            (24, 153),
            "it is back, and begins anew at the target"
        );
        assert_eq!(page(&[(1, 120, 0), (2, 9, 0)], 53), (29, 153));
    }

    #[test]
    fn what_a_client_did_before_its_name_was_told_stays_with_the_others() {
        let mut shown = Shown::default();
        let mut two = stats(&[(1, 10, 0), (2, 30, 0)], 0);
        two.rows[1].job.clear();
        shown.update(&two);
        two.rows[1].job = two.rows[0].job.clone();
        two.rows[1].counts.requests[0] += 2;
        let (rows, others) = shown.update(&two);
        assert_eq!((rows[0].1.0[0], others.0[0]), (2, 40));
    }

    #[test]
    fn a_row_that_did_not_fit_into_the_answer_before_is_not_counted_twice() {
        let mut shown = Shown::default();
        let part = JobStatsReply { others: 1, ..stats(&[(1, 90, 0)], 70) };
        shown.update(&part);
        let mut all = stats(&[(1, 90, 0), (2, 71, 0)], 0);
        all.rows[1].job = all.rows[0].job.clone();
        let (rows, others) = shown.update(&all);
        assert_eq!((rows[0].1.0[0], others.0[0]), (0, 161));
    }

    /// The bar of issue 29: a page with 10^4 jobs takes less than 100 ms. Here only that it is bounded.
    #[test]
    fn a_page_of_many_jobs_has_few_samples() {
        let rows: Vec<_> = (0..10_000).map(|job| (job, 1 + u64::from(job), 0)).collect();
        let (mut shown, mut sheet) = (Shown::default(), Sheet::default());
        shown.add(&mut sheet, "home-OST0000", &stats(&rows, 0));
        let page = sheet.text();
        let samples = page.lines().filter(|line| line.starts_with("stria_job_requests_total{")).count();
        assert_eq!(samples, SHOWN_MAX + 1);
    }
}
