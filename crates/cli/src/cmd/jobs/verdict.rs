//! The slow part of the requests of a job, a client or some targets: a rule over counts of one interval.
//!
//! cli-WY1: the parts of the time of requests add up to it. The largest one is the slow part, unless the servers had hardly a request in hand.

use serde::Serialize;
use wire::jobs::{CAUSES, JobCounts};

use super::locks::Held;

/// Below so many requests in hand at the servers, on average, the time is spent before requests are sent.
const IN_HAND_MIN: f64 = 0.3;
/// Round trips that take this part of each second of one caller are what a caller waits for.
const ROUND_TRIPS_MIN: f64 = 0.5;

/// A part of the way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// There was no request.
    Nothing,
    /// The program, or its mount.
    Client,
    Network,
    Queue,
    /// The processors of the servers.
    Processor,
    Lock,
    Log,
    Mirror,
    Device,
}

/// The parts of `JobCounts::waited_us`, in the order of `CAUSES`.
const OF_CAUSES: [Part; 6] = [Part::Queue, Part::Device, Part::Mirror, Part::Log, Part::Lock, Part::Network];
/// Before a server's clock begins; the others are within `JobCounts::busy_us`.
const BEFORE: [Part; 2] = [Part::Queue, Part::Network];

/// Requests of one interval.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub seconds: f64,
    /// By target.
    pub counts: Vec<(String, JobCounts)>,
    /// The fastest of some round trips from this host to the farthest of the targets.
    pub round_trip_us: Option<u64>,
    /// The other job that took most time at these targets, and how many requests it had in hand on average.
    pub other: Option<(String, f64)>,
    /// The files whose leases are waited for, most of it first.
    pub locks: Vec<Held>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub slow_part: Part,
    /// Of the time of all requests, 0 to 1.
    pub share: f64,
    /// The target with most of it.
    pub target: Option<String>,
    pub says: String,
    pub next: String,
    /// The largest first.
    pub parts: Vec<Time>,
    /// The files whose leases are waited for, most of it first.
    pub locks: Vec<Held>,
}

/// The time of all requests in one part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Time {
    pub part: Part,
    pub us: u64,
}

/// The parts of the time of requests, the largest first.
fn parts(counts: &JobCounts) -> Vec<Time> {
    let waited = |n: usize| counts.waited_us.get(n).copied().unwrap_or(0);
    let mut all: Vec<Time> =
        OF_CAUSES.into_iter().enumerate().map(|(n, part)| Time { part, us: waited(n) }).collect();
    let within = all.iter().filter(|time| !BEFORE.contains(&time.part)).map(|time| time.us).sum::<u64>();
    all.push(Time { part: Part::Processor, us: counts.busy_us.saturating_sub(within) });
    all.retain(|time| time.us > 0);
    all.sort_by_key(|time| std::cmp::Reverse(time.us));
    all
}

fn part_of(counts: &JobCounts, part: Part) -> u64 {
    parts(counts).into_iter().find(|time| time.part == part).map_or(0, |time| time.us)
}

pub fn verdict(seen: &Seen) -> Verdict {
    const { assert!(OF_CAUSES.len() == CAUSES.len()) };
    let mut sum = JobCounts::default();
    seen.counts.iter().for_each(|(_, counts)| sum.add(counts));
    let (requests, parts) = (sum.total(), parts(&sum));
    let total = parts.iter().map(|time| time.us).sum::<u64>();
    let in_hand = total as f64 / 1e6 / seen.seconds;
    let rate = requests as f64 / seen.seconds;
    let of = |slow_part, share: f64, target: Option<String>, says: String, next: &str| Verdict {
        slow_part,
        share,
        target,
        says,
        next: next.to_owned(),
        parts: parts.clone(),
        locks: seen.locks.clone(),
    };
    if requests == 0 {
        let says = format!("no request came to the servers in {:.1} s", seen.seconds);
        let next = "the mount answers from its cache, or the program does something else: `top` and `strace -c -f -p PID` on its host tell";
        return of(Part::Nothing, 0.0, None, says, next);
    }
    let spent_on_trips = seen.round_trip_us.map_or(0.0, |us| rate * us as f64 / 1e6);
    if in_hand < IN_HAND_MIN {
        if let (Some(us), true) = (seen.round_trip_us, spent_on_trips >= ROUND_TRIPS_MIN) {
            let says = format!(
                "the slow part is the network: {rate:.0} requests per second with round trips of {:.2} ms fill {:.0} % of the time of one caller",
                us as f64 / 1e3,
                spent_on_trips * 100.0
            );
            let next = "more callers or larger requests hide round trips; `stria net ping` and `stria net list` show links and rails";
            return of(Part::Network, spent_on_trips.min(1.0), None, says, next);
        }
        let says = format!(
            "the slow part is the program or its host: the servers have {in_hand:.2} requests in hand on average ({rate:.0} per second)"
        );
        let next = "look at the program and at the processors of its host; more processes, or asynchronous I/O, keep the servers busy";
        return of(Part::Client, 1.0 - in_hand, None, says, next);
    }
    let Time { part: slow, us } = parts[0];
    let share = us as f64 / total as f64;
    let most = seen.counts.iter().max_by_key(|(_, counts)| part_of(counts, slow));
    let target = most.map(|(name, _)| name.clone());
    let (what, next) = words(slow, seen.other.as_ref());
    let mut at = target.as_deref().map_or(String::new(), |name| format!(", most of it at {name}"));
    if let (Part::Lock, Some(held)) = (slow, seen.locks.first()) {
        at += &format!("; most often {} waits for {}, which holds {}", held.waits, held.holder(), held.path);
    }
    let says = format!(
        "the slow part is {what}: {:.0} % of the time of requests, {:.2} ms each{at}",
        share * 100.0,
        us as f64 / 1e3 / requests as f64
    );
    of(slow, share, target, says, &next)
}

fn words(part: Part, other: Option<&(String, f64)>) -> (&'static str, String) {
    match part {
        Part::Device => (
            "the drive",
            "`iostat -x` on its host tells how busy it is; scrubs (`stria scrub status`) and fills (`stria mirror list`) use it too; more stripes use more drives (`stria setstripe -c`)".into(),
        ),
        Part::Mirror => (
            "the other member of a mirror",
            "`stria mirror list` shows whether it is filled just now; its drive and the network between the two servers are next to look at".into(),
        ),
        Part::Log => (
            "a log that is nearly full",
            "small writes come faster than they are moved to their place: larger writes go past the log; `stria ost stat` shows its fill".into(),
        ),
        Part::Lock => (
            "waiting for other clients, which give leases or locks back",
            "several clients change the same files or directories: a file or a directory for each process ends it; `stria waiters` shows what waits at this moment".into(),
        ),
        Part::Network => (
            "the network",
            "requests or answers are long on their way: `stria net list` and `stria net ping` show links; a client that reads slowly looks alike".into(),
        ),
        Part::Queue => (
            "the queue of the server",
            match other {
                Some((job, in_hand)) => format!(
                    "other requests go first; job {job} has {in_hand:.1} requests in hand there on average (`stria top`); `workers` of its configuration is how many are served at once"
                ),
                None => "its own requests wait behind each other; `workers` of the server's configuration is how many are served at once".into(),
            },
        ),
        Part::Processor | Part::Client | Part::Nothing => (
            "the processors of the servers",
            "`top` on the server's host tells how busy they are; TLS and checksums need them; more targets on more hosts share the work".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds by cause in the order of `CAUSES`; `busy` has those within it.
    fn counts(requests: u64, busy: u64, waited: [u64; 6]) -> JobCounts {
        let mut counts = JobCounts { busy_us: busy * 1000, ..JobCounts::default() };
        counts.waited_us = waited.map(|ms| ms * 1000).to_vec();
        counts.requests[wire::jobs::WRITE] = requests;
        counts
    }

    fn seen(of: &[(&str, JobCounts)]) -> Seen {
        let counts = of.iter().map(|(name, counts)| ((*name).to_owned(), counts.clone())).collect();
        Seen { seconds: 1.0, counts, round_trip_us: Some(100), ..Seen::default() }
    }

    /// cli-WY1
    #[test]
    fn the_largest_part_is_the_slow_one() {
        let table = [
            ([0, 800, 50, 0, 0, 10], Part::Device),
            ([0, 100, 700, 0, 0, 10], Part::Mirror),
            ([0, 100, 0, 600, 0, 10], Part::Log),
            ([0, 100, 0, 0, 600, 10], Part::Lock),
            ([0, 100, 0, 0, 10, 2000], Part::Network),
            ([3000, 100, 0, 0, 10, 20], Part::Queue),
            ([0, 100, 0, 0, 10, 20], Part::Processor),
        ];
        for (waited, wanted) in table {
            let found = verdict(&seen(&[("home-OST0001", counts(100, 900, waited))]));
            assert_eq!(found.slow_part, wanted, "{found:?}");
            let sum = found.parts.iter().map(|time| time.us).sum::<u64>();
            assert_eq!(sum, (900 + waited[0] + waited[5]) * 1000, "the parts add up");
            assert!((found.share - found.parts[0].us as f64 / sum as f64).abs() < 1e-9);
            assert!(found.says.contains("% of the time of requests") && !found.next.is_empty());
        }
    }

    #[test]
    fn the_target_with_most_of_the_slow_part_is_named() {
        let slow = counts(10, 900, [0, 800, 0, 0, 0, 0]);
        let found = verdict(&seen(&[
            ("home-OST0000", counts(500, 900, [0, 90, 0, 0, 0, 0])),
            ("home-OST0003", slow),
        ]));
        assert_eq!((found.slow_part, found.target.as_deref()), (Part::Processor, Some("home-OST0000")));
        let slow = counts(10, 9000, [0, 8900, 0, 0, 0, 0]);
        let found = verdict(&seen(&[
            ("home-OST0000", counts(500, 900, [0, 90, 0, 0, 0, 0])),
            ("home-OST0003", slow),
        ]));
        assert_eq!(found.target.as_deref(), Some("home-OST0003"));
        assert!(found.says.contains("the drive") && found.says.contains("home-OST0003"), "{}", found.says);
    }

    #[test]
    fn servers_with_little_in_hand_are_not_the_slow_part() {
        let idle = |requests, trip| {
            let mut seen = seen(&[("home-MDT0000", counts(requests, 20, [0; 6]))]);
            seen.round_trip_us = trip;
            verdict(&seen)
        };
        assert_eq!(idle(100, Some(100)).slow_part, Part::Client);
        assert_eq!(idle(100, None).slow_part, Part::Client);
        let far = idle(100, Some(9_000));
        assert_eq!(far.slow_part, Part::Network);
        assert!(far.says.contains("9.00 ms fill 90 %"), "{}", far.says);
        assert_eq!(idle(0, Some(100)).slow_part, Part::Nothing);
    }

    #[test]
    fn the_lease_that_is_waited_for_most_is_named() {
        let mut seen = seen(&[("home-MDT0000", counts(10, 900, [0, 0, 0, 0, 800, 0]))]);
        assert!(!verdict(&seen).says.contains("most often"));
        let (path, fid) = ("/data/log".to_owned(), "0x20".to_owned());
        seen.locks = vec![Held { path, fid, waits: "n2".into(), holder: Some("n1".into()), share: 0.9 }];
        let found = verdict(&seen);
        assert!(found.says.ends_with("most often n2 waits for n1, which holds /data/log"), "{}", found.says);
        assert_eq!((found.slow_part, found.locks.len()), (Part::Lock, 1));
    }

    #[test]
    fn the_job_that_fills_the_queue_is_named() {
        let mut seen = seen(&[("home-OST0000", counts(10, 100, [900, 0, 0, 0, 0, 0]))]);
        seen.other = Some(("4711".into(), 12.5));
        let found = verdict(&seen);
        assert_eq!(found.slow_part, Part::Queue);
        assert!(found.next.contains("job 4711 has 12.5 requests in hand"), "{}", found.next);
    }
}
