//! The jobs on the page: few of them with a name, and the sum of all others.
//!
//! watch-M3: every sample only rises, so that rates are right. A job keeps its place while it is active. Requests of a job before it had a place
//! stay with the others.

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
}

/// The jobs of one target that have a place.
#[derive(Default)]
pub struct Shown {
    last: HashMap<Key, Sums>,
    /// The counts of these jobs while they had a place.
    told: Sums,
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
        let mut now: HashMap<Key, (Sums, u32)> = HashMap::new();
        let mut total = Sums::of(&stats.rest);
        for row in &stats.rows {
            total.add(Sums::of(&row.counts));
            if !row.job.is_empty() {
                let (sums, idle_sec) =
                    now.entry((row.job.clone(), row.uid)).or_insert((Sums::default(), u32::MAX));
                sums.add(Sums::of(&row.counts));
                *idle_sec = row.idle_sec.min(*idle_sec);
            }
        }
        self.last.retain(|key, _| now.contains_key(key));
        for (key, last) in &mut self.last {
            self.told.add(now[key].0.less(*last));
            *last = now[key].0;
        }
        let mut waiting: Vec<&Key> = now.keys().filter(|key| !self.last.contains_key(*key)).collect();
        waiting.sort_unstable_by_key(|key| (std::cmp::Reverse(now[*key].0.0[4]), *key));
        if self.last.len() + waiting.len() > SHOWN_MAX {
            self.last.retain(|key, _| now[key].1 < IDLE_SEC);
            waiting.retain(|key| now[*key].1 < IDLE_SEC);
        }
        let room = SHOWN_MAX.saturating_sub(self.last.len());
        for key in waiting.into_iter().take(room) {
            self.last.insert(key.clone(), now[key].0);
        }
        let rows = self.last.iter().map(|(key, sums)| (key.clone(), *sums)).collect();
        (rows, total.less(self.told))
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
        assert_eq!((rows.len(), rows[0].1.0[0], others.0[0]), (1, 15, 15));
        both.rows[0].counts.requests[0] += 7;
        let (rows, others) = shown.update(&both);
        assert_eq!((rows[0].1.0[0], others.0[0]), (22, 15), "what a job does with a place is its own");
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
