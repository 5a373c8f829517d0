//! `stria why`: the slow part of a path, a job or a client.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bench::wrap::wrap;
use clap::Args;
use find::Striping;
use serde::Serialize;
use types::TargetId;
use wire::jobs::{JobCounts, JobStats};
use wire::map::{MemberState, Target};

use super::locks::Looks;
use super::sample::{One, Sample};
use super::verdict::{Seen, Time, Verdict, verdict};
use crate::cmd::damage::Where;
use crate::exit::{Exit, Failure};
use crate::mounts;
use crate::reach::{Reach, Service};

/// Round trips to each target; the fastest one is free of queues.
const TRIPS: usize = 5;
/// Names that are shown if the subject is none of them.
const NAMES_MAX: usize = 8;

/// Tell the slow part of what a path, a job or a client does now: the program, the network, the queue of a server, its processors, locks of other
/// clients, a log that is full, the other member of a mirror, or a drive. The servers count what each request waits for; this command compares
/// two moments. Meanwhile it looks which files' leases are waited for, and which clients hold them. A path stands for all requests to its MDT and its OSTs, whichever program makes them.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria why /mnt/stria/data/run7.h5
Example: stria why 4711 /mnt/stria               (a job, as `stria top` shows it)
Example: stria why --interval 30 node17 --mgs 10.0.0.5@tcp
Exit codes: 0 it is told; 1 a target did not answer, so a part may be missing; 2 there is no such job or client, or the file system could not be asked.")]
pub struct Why {
    /// A path on a mount, or a job or a client (also a part of its name), as `stria top` shows them.
    subject: String,
    /// A path on the mount, for a job or a client. It may be left out where one file system is mounted.
    #[arg(conflicts_with_all = ["dir", "mgs"])]
    mount: Option<PathBuf>,
    /// The directory of a running `stria up`.
    #[arg(long, conflicts_with = "mgs")]
    dir: Option<PathBuf>,
    /// The management service of servers that run: NID[,NID...], with :/FSNAME if it has several file systems.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
    /// Seconds between the two moments.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    interval: f64,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// The meaning of the subject.
enum Subject {
    /// The names of the targets of a path.
    Path(BTreeSet<String>),
    Job,
    Client,
}

#[derive(Debug, Serialize)]
struct Report {
    subject: String,
    /// "path", "job" or "client".
    kind: &'static str,
    seconds: f64,
    requests: u64,
    errors: u64,
    bytes_read: u64,
    bytes_written: u64,
    round_trip_us: Option<u64>,
    #[serde(flatten)]
    verdict: Verdict,
    facts: Vec<String>,
}

impl Why {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let path = Path::new(&self.subject);
        let is_path = path.exists()
            && (self.subject.contains('/')
                || mounts::ours()
                    .iter()
                    .any(|m| std::path::absolute(path).is_ok_and(|path| path.starts_with(&m.point))));
        let (reach, _) = self.place(is_path.then_some(path))?.reach()?;
        let targets = if is_path { Some(targets_of(&reach, path)?) } else { None };
        let pause = Duration::from_secs_f64(self.interval.clamp(0.1, 3600.0));
        let (before, _) = Sample::take(&reach);
        let begun = Instant::now();
        let looks = Looks::during(&reach, pause);
        let (now, silent) = Sample::take(&reach);
        let seconds = begun.elapsed().as_secs_f64();
        let names: Vec<(String, String)> = now.names();
        let now = now.since(&before);
        let subject = match targets {
            Some(targets) => Subject::Path(targets),
            None => self.subject_of(&names)?,
        };
        let report = self.report(&reach, (&now, &looks), &subject, seconds);
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&report)?),
            false => out!("{}", text(&report)),
        }
        match silent {
            Some(failure) => Err(failure.into()),
            None => Ok(Exit::Done),
        }
    }

    fn place(&self, path: Option<&Path>) -> anyhow::Result<Where> {
        if self.dir.is_some() || self.mgs.is_some() || self.mount.is_some() {
            return Ok(Where::of(self.dir.clone(), self.mgs.clone(), self.mount.clone()));
        }
        let point = match path {
            Some(path) => path.to_owned(),
            None => match mounts::ours().as_slice() {
                [only] => only.point.clone(),
                all => {
                    let why = match all.is_empty() {
                        true => "it is no path, and no file system of Stria is mounted here",
                        false => "it is no path, and several file systems are mounted here",
                    };
                    return Err(
                        Failure::unusable(&self.subject, why, "give a mount point, --dir or --mgs").into()
                    );
                }
            },
        };
        Ok(Where::of(None, None, Some(point)))
    }

    /// A job of that name, or clients that have it in theirs.
    fn subject_of(&self, names: &[(String, String)]) -> anyhow::Result<Subject> {
        if names.iter().any(|(job, _)| *job == self.subject) {
            return Ok(Subject::Job);
        }
        if names.iter().any(|(_, client)| client.contains(&self.subject)) {
            return Ok(Subject::Client);
        }
        let known: BTreeSet<&str> = names.iter().flat_map(|(job, client)| [job.as_str(), client]).collect();
        let shown: Vec<&str> = known.iter().copied().take(NAMES_MAX).collect();
        let why = "no job and no client of that name had a request in the last ten minutes";
        let next = match shown.is_empty() {
            true => "`stria jobstats` shows jobs once they have requests".to_owned(),
            false => format!("`stria jobstats` shows all names, such as {}", shown.join(", ")),
        };
        Err(Failure::unusable(&self.subject, why, next).into())
    }

    fn report(
        &self,
        reach: &Reach,
        (now, looks): (&Sample, &Looks),
        subject: &Subject,
        seconds: f64,
    ) -> Report {
        let is_meant = |one: &One<'_>| match subject {
            Subject::Path(targets) => targets.contains(one.target),
            Subject::Job => one.job == Some(self.subject.as_str()),
            Subject::Client => one.client.is_some_and(|client| client.contains(&self.subject)),
        };
        let mut counts: BTreeMap<String, JobCounts> = BTreeMap::new();
        let all: Vec<One<'_>> = now.all().filter(|one| one.counts.total() > 0).collect();
        for one in all.iter().filter(|one| is_meant(one)) {
            counts.entry(one.target.to_owned()).or_default().add(one.counts);
        }
        // Of a path, the jobs that use its targets are the subject themselves.
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        for one in all.iter().filter(|one| !is_meant(one) && counts.contains_key(one.target)) {
            *others.entry(one.job.unwrap_or(super::sample::OTHERS)).or_default() += one.counts.busy_us;
        }
        let other = others.into_iter().max_by_key(|(_, us)| *us);
        let other = other.map(|(job, us)| (job.to_owned(), us as f64 / 1e6 / seconds));
        let used: Vec<&Target> =
            reach.targets().into_iter().filter(|t| counts.contains_key(&name_of(reach, t))).collect();
        let mut sum = JobCounts::default();
        counts.values().for_each(|one| sum.add(one));
        let round_trip_us = round_trip(reach, &used);
        // A lease is a client's, whichever of its jobs wants it.
        let clients: BTreeSet<&str> =
            all.iter().filter(|one| is_meant(one)).filter_map(|one| one.client).collect();
        let of_path = matches!(subject, Subject::Path(_));
        let locks = looks.most(|waits| of_path || clients.contains(waits), |fid| reach.path_of(fid));
        let seen = Seen { seconds, counts: counts.into_iter().collect(), round_trip_us, other, locks };
        Report {
            subject: self.subject.clone(),
            kind: match subject {
                Subject::Path(_) => "path",
                Subject::Job => "job",
                Subject::Client => "client",
            },
            seconds,
            requests: sum.total(),
            errors: sum.errors,
            bytes_read: sum.bytes_read,
            bytes_written: sum.bytes_written,
            round_trip_us,
            verdict: verdict(&seen),
            facts: facts(reach, &used, (sum.errors, looks.names)),
        }
    }
}

fn name_of(reach: &Reach, target: &Target) -> String {
    mgmt::target_name(&reach.file_system().name, target.is_mdt, target.index)
}

/// The MDT, and the OSTs with the content of a file, or all of them for a directory.
fn targets_of(reach: &Reach, path: &Path) -> anyhow::Result<BTreeSet<String>> {
    let unusable = |why: String| Failure::unusable(path.display(), why, "give a path on a mount of Stria");
    let striping = Striping::of(path).map_err(|e| unusable(e.to_string()))?;
    let striping = striping.ok_or_else(|| unusable("it is on no mount of Stria".into()))?;
    let osts: BTreeSet<u32> = striping.osts_in_use().collect();
    let is_one_of = |target: &&Target| target.is_mdt || striping.is_dir || osts.contains(&target.index);
    Ok(reach.targets().into_iter().filter(is_one_of).map(|target| name_of(reach, target)).collect())
}

/// Of the fastest round trips to each target the longest.
fn round_trip(reach: &Reach, targets: &[&Target]) -> Option<u64> {
    let fastest = |id: TargetId| {
        let one = || {
            let begun = Instant::now();
            reach.ask(id, &JobStats { max: 0 }).ok().map(|_| begun.elapsed().as_micros() as u64)
        };
        (0..TRIPS).filter_map(|_| one()).min()
    };
    reach.ask_all(targets, |target| fastest(target.id)).into_iter().flatten().max()
}

/// Facts beside the counts that slow requests down.
fn facts(reach: &Reach, targets: &[&Target], (errors, names): (u64, u64)) -> Vec<String> {
    let mut facts = BTreeSet::new();
    for target in targets {
        let Some(mirror) = reach.map.mirrors.iter().find(|mirror| mirror.id == target.mirror) else {
            continue;
        };
        let name = name_of(reach, target);
        for member in &mirror.members {
            match member.state {
                MemberState::InSync => {}
                MemberState::Filling => {
                    _ = facts.insert(format!("{name} fills its other member, which uses both drives"))
                }
                _ => _ = facts.insert(format!("{name} has one copy now: `stria mirror list` tells why")),
            }
        }
    }
    if names > 0 {
        facts.insert(format!(
            "up to {names} changes of names waited at once until clients had forgotten them"
        ));
    }
    if errors > 0 {
        facts.insert(format!("{errors} requests were answered with an error: `stria health --hints`"));
    }
    facts.into_iter().collect()
}

fn text(report: &Report) -> String {
    let verdict = &report.verdict;
    let mut out = wrap(&format!("{}: {}", report.subject, verdict.says), 2) + "\n";
    out += &(wrap(&format!("  next: {}", verdict.next), 8) + "\n");
    let total = verdict.parts.iter().map(|time| time.us).sum::<u64>().max(1);
    for Time { part, us } in &verdict.parts {
        let percent = *us as f64 * 100.0 / total as f64;
        let each = *us as f64 / 1e3 / report.requests.max(1) as f64;
        let word = format!("{part:?}").to_lowercase();
        out += &format!("  {word:<10} {percent:>5.1} %  {each:>9.3} ms a request\n");
    }
    verdict.locks.iter().for_each(|held| out += &(wrap(&format!("  lease of {}", held.text()), 4) + "\n"));
    report.facts.iter().for_each(|fact| out += &(wrap(&format!("  {fact}"), 4) + "\n"));
    out
}
