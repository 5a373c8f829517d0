//! Results per target, a given file or device: the sum over the target's workers.

use crate::job::{Files, Job, Work};
use crate::record::{HostShare, Outcome, TargetShare};

/// By target, in the order in which they were given. Empty where no targets were given, or the engine does not tell of its workers.
pub fn shares(job: &Job, outcome: &Outcome) -> Vec<TargetShare> {
    let Work::Data(data) = &job.work else { return Vec::new() };
    let Files::Given { paths } = &data.files else { return Vec::new() };
    if paths.is_empty() || outcome.per_worker.len() != job.workers as usize {
        return Vec::new();
    }
    let none = |path: &std::path::PathBuf| TargetShare {
        target: path.display().to_string(),
        workers: 0,
        ops: 0,
        bytes: 0,
        seconds: 0.0,
    };
    let mut all: Vec<TargetShare> = paths.iter().map(none).collect();
    for (worker, share) in outcome.per_worker.iter().enumerate() {
        let owner = (worker + data.shift as usize) % job.workers as usize;
        let target = &mut all[owner % paths.len()];
        target.workers += 1;
        target.ops += share.ops;
        target.bytes += share.bytes;
        // They begin together: the last one's time is that of all.
        target.seconds = target.seconds.max(share.seconds);
    }
    // A target without workers would count as slow.
    all.retain(|target| target.workers > 0);
    all
}

/// One part as the share of its file system.
pub fn of_part(job: &Job, outcome: &Outcome, name: String) -> TargetShare {
    let Outcome { ops, bytes, seconds, .. } = *outcome;
    TargetShare { target: name, workers: job.workers, ops, bytes, seconds }
}

/// Merges the shares of parts that ran at the same time, by target.
pub fn together<'a>(parts: impl IntoIterator<Item = &'a TargetShare>) -> Vec<TargetShare> {
    let mut all: Vec<TargetShare> = Vec::new();
    for part in parts {
        match all.iter_mut().find(|known| known.target == part.target) {
            None => all.push(part.clone()),
            Some(known) => {
                known.workers += part.workers;
                known.ops += part.ops;
                known.bytes += part.bytes;
                known.seconds = known.seconds.max(part.seconds);
            }
        }
    }
    all
}

/// The same by host.
pub fn hosts_together<'a>(parts: impl IntoIterator<Item = &'a HostShare>) -> Vec<HostShare> {
    let mut all: Vec<HostShare> = Vec::new();
    for part in parts {
        match all.iter_mut().find(|known| known.host == part.host) {
            None => all.push(part.clone()),
            Some(known) => {
                known.workers += part.workers;
                known.ops += part.ops;
                known.bytes += part.bytes;
                known.seconds = known.seconds.max(part.seconds);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::*;
    use crate::record::WorkerShare;

    fn job(workers: u32, shift: u32) -> Job {
        let data = Data {
            op: DataOp::Read,
            order: Order::Sequential,
            files: Files::Given { paths: vec!["/dev/a".into(), "/dev/b".into(), "/dev/c".into()] },
            transfer_bytes: 4096,
            block_bytes: 4096,
            segments: 1,
            shift,
            ops_max: None,
            engine: Engine::Sync,
            direct: true,
            flush: Flush::Never,
            create: false,
            version: 0,
            accept: vec![1],
            read_back: 0,
        };
        Job {
            work: Work::Data(data),
            workers,
            limit: Limit::default(),
            verify: false,
            seed: 1,
            forget_pages: false,
            holds: Vec::new(),
        }
    }

    fn outcome(workers: u64) -> Outcome {
        let share =
            |w: u64| WorkerShare { ops: w + 1, bytes: 10 * (w + 1), seconds: w as f64 + 1.0, done: 0 };
        Outcome { per_worker: (0..workers).map(share).collect(), ..Outcome::default() }
    }

    fn told(shares: &[TargetShare]) -> Vec<(&str, u32, u64, u64, f64)> {
        shares.iter().map(|t| (&*t.target, t.workers, t.ops, t.bytes, t.seconds)).collect()
    }

    #[test]
    fn workers_are_summed_by_what_they_work_on() {
        // Workers 0 and 3 have the first, 1 and 4 the second, 2 the third.
        let shares_of_five = shares(&job(5, 0), &outcome(5));
        let wanted = [("/dev/a", 2, 5, 50, 4.0), ("/dev/b", 2, 7, 70, 5.0), ("/dev/c", 1, 3, 30, 3.0)];
        assert_eq!(told(&shares_of_five), wanted);
        // Shifted by one: worker 0 has the part of worker 1, the last one that of worker 0.
        let shifted = shares(&job(5, 1), &outcome(5));
        let wanted = [("/dev/a", 2, 8, 80, 5.0), ("/dev/b", 2, 5, 50, 4.0), ("/dev/c", 1, 2, 20, 2.0)];
        assert_eq!(told(&shifted), wanted);
        // Two workers leave the third alone.
        assert_eq!(shares(&job(2, 0), &outcome(2)).len(), 2);
        assert!(shares(&job(2, 0), &outcome(0)).is_empty(), "ior tells of no worker");
        let both = together(shares_of_five.iter().chain(&shifted));
        assert_eq!(told(&both)[0], ("/dev/a", 4, 13, 130, 5.0));
        assert_eq!(both.len(), 3);
    }
}
