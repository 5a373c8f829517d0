//! `stria health`: one word for all, and a line for each thing that an administrator should know, the gravest first.

use std::path::PathBuf;

use bench::wrap::wrap;
use clap::Args;
use serde::Serialize;

use super::{DENIED, Line, Report, Status, UP, WAITING, of_running};
use crate::exit::Exit;
use crate::reach::{Reach, Service, Wires};

/// Percent of space from which a target is told as nearly full, and as full.
const SPACE_WARNING: u64 = 85;
const SPACE_ERROR: u64 = 97;
/// Percent of a log that waits for its checkpoint.
const LOG_WARNING: u64 = 80;
/// Percent of the room for changes that a consumer has not acknowledged.
const CHANGELOG_WARNING: u64 = 80;

/// Show whether all is well, and what is not: targets, mirrors, damage, space, logs, slow disks and links, management services. With --hints
/// also the next step for each, and what would make the file system safer.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria health
Example: stria health --hints --mgs 10.0.0.5@tcp
Exit codes: 0 all is well; 1 there are warnings or errors; 2 it could not be looked at.")]
pub struct Health {
    /// The directory that `stria up` was given. Without: every file system that is mounted here.
    #[arg(long, conflicts_with = "mgs")]
    dir: Option<PathBuf>,
    /// The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
    /// Show the next step for each finding, and advice.
    #[arg(long)]
    hints: bool,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// In order of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Something does not work, or may be lost.
    Error,
    /// It works, and someone should look.
    Warning,
    /// Nothing is wrong; it could be better.
    Advice,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub weight: Weight,
    pub what: String,
    pub hint: String,
}

/// One file system.
#[derive(Debug, Serialize)]
struct State {
    fsname: String,
    /// "ok", "warning", "error".
    health: &'static str,
    findings: Vec<Finding>,
}

/// The findings of `stria health --hints`, and the numbers that stand beside them on a page.
pub struct Seen {
    pub findings: Vec<Finding>,
    pub targets: usize,
    pub targets_up: usize,
    /// Mounts with a session.
    pub clients: u32,
}

impl Seen {
    /// Asks all targets of a file system.
    pub fn of(reach: &Reach) -> Seen {
        let report = of_running(reach);
        Seen {
            targets: report.targets.len(),
            targets_up: report.targets.iter().filter(|line| line.state == UP).count(),
            clients: report.targets.iter().filter_map(|line| line.sessions).max().unwrap_or(0),
            findings: state_of(&report, true).findings,
        }
    }
}

/// The word for all findings: "ok", "warning", "error".
pub fn word_of(findings: &[Finding]) -> &'static str {
    let has = |weight| findings.iter().any(|finding| finding.weight == weight);
    match (has(Weight::Error), has(Weight::Warning)) {
        (true, _) => "error",
        (_, true) => "warning",
        _ => "ok",
    }
}

impl Health {
    pub fn run(self) -> anyhow::Result<Exit> {
        let (hints, json) = (self.hints, self.json);
        let reports = Status { dir: self.dir, mgs: self.mgs, json }.reports()?;
        let is_denied = reports.iter().any(|report| report.state == DENIED);
        let states: Vec<State> = reports.iter().map(|report| state_of(report, hints)).collect();
        match json {
            true => outln!("{}", serde_json::to_string_pretty(&states)?),
            false => states.iter().for_each(|state| out!("{}", state.text(hints))),
        }
        let is_well = states.iter().all(|state| state.health == "ok");
        Ok(match (is_well, is_denied) {
            (_, true) => Exit::Unusable,
            (true, false) => Exit::Done,
            (false, false) => Exit::Findings,
        })
    }
}

impl State {
    fn text(&self, hints: bool) -> String {
        let mut out = format!("{}: {}\n", self.fsname, self.health);
        for finding in &self.findings {
            let word = match finding.weight {
                Weight::Error => "error",
                Weight::Warning => "warning",
                Weight::Advice => "advice",
            };
            out += &wrap(&format!("  {word}: {}", finding.what), 6);
            out.push('\n');
            if hints {
                out += &wrap(&format!("      next: {}", finding.hint), 12);
                out.push('\n');
            }
        }
        out
    }
}

fn state_of(report: &Report, with_advice: bool) -> State {
    let mut findings = findings_of(report);
    findings.retain(|finding| with_advice || finding.weight != Weight::Advice);
    findings.sort_by_key(|finding| finding.weight);
    State { fsname: report.fsname.clone(), health: word_of(&findings), findings }
}

fn findings_of(report: &Report) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |weight, what: String, hint: &str| {
        found.push(Finding { weight, what, hint: hint.to_owned() });
    };
    if report.targets.iter().all(|line| line.state == "stopped") && report.dir.is_some() {
        let next = "`stria up --dir` with its directory starts it";
        add(Weight::Error, format!("it is {}", report.state), next);
    } else if report.map_version.is_none() {
        add(
            Weight::Error,
            report.state.into(),
            "look whether the management service runs: `stria status` tells its address",
        );
    }
    for line in &report.targets {
        target(line, report.spared.contains(&line.name), &mut add);
    }
    for mirror in &report.not_whole {
        let what = format!(
            "mirror {} has {} of {} members in sync",
            mirror.name,
            mirror.members_in_sync,
            mirror.members.len()
        );
        let weight = if mirror.members_in_sync == 0 { Weight::Error } else { Weight::Warning };
        add(weight, what, "`stria mirror status` with its name tells what it waits for");
    }
    for slow in &report.slow {
        let what = format!("{} serves at {:.0} % of the others' rate", slow.name, slow.percent);
        add(
            Weight::Warning,
            what,
            "look at the disk and the host of that OST: `stria ost stat`, `iostat -x 1`",
        );
    }
    for link in &report.slow_links {
        add(Weight::Warning, link.text(), "look at its cable, port and driver: `ethtool`, `stria net stat`");
    }
    for service in report.management.iter().filter(|service| !service.is_well()) {
        add(
            Weight::Warning,
            service.text().trim().replace("\n    ", " "),
            "start it; the others serve meanwhile",
        );
    }
    if report.map_version.is_some() {
        if matches!(report.wires, Some(Wires::Plain)) {
            add(
                Weight::Advice,
                "connections have no TLS".into(),
                "`stria cluster init` makes certificates; see docs/SECURITY.md",
            );
        }
        if report.pairs == 0 && !report.targets.is_empty() {
            add(
                Weight::Advice,
                "each target has one copy".into(),
                "`stria target add` gives a mirror to a second server; see docs/operations.md",
            );
        }
    }
    found
}

fn target(line: &Line, is_spared: bool, add: &mut impl FnMut(Weight, String, &str)) {
    let name = &line.name;
    match line.state.as_str() {
        UP | "stopped" => {}
        WAITING => {
            let why = line.waits.as_deref().unwrap_or("it begins to serve");
            add(
                Weight::Warning,
                format!("{name} waits: {why}"),
                "nothing, if it goes on; `stria mirror status` shows the progress",
            );
        }
        "failed" => {
            let why = line.failure.as_deref().unwrap_or("its medium");
            let next = "replace the medium: `stria target replace` in a mirror; else restart its server once it is sound";
            add(Weight::Error, format!("{name} has failed: {why}"), next);
        }
        _ if is_spared => {
            let what = format!("{name} is down; its mirror goes on with one copy ({})", line.place);
            add(Weight::Warning, what, "start its server again, or `stria target replace` it");
        }
        state => {
            add(
                Weight::Error,
                format!("{name} is {state} ({})", line.place),
                "start its server, and look at its log",
            );
        }
    }
    if let Some(count) = line.damage_count.filter(|count| *count > 0) {
        let next = "`stria damage list` names the files; restore these";
        add(Weight::Error, format!("{name} has {count} damaged places"), next);
    }
    if let (Some(total), Some(free)) = (line.bytes_total.filter(|total| *total > 0), line.bytes_free) {
        let percent = total.saturating_sub(free) * 100 / total;
        let what = format!("{name} is {percent} % full");
        match percent {
            SPACE_ERROR.. => add(Weight::Error, what, "remove files, or add an OST: `stria target add`"),
            SPACE_WARNING.. => add(Weight::Warning, what, "plan for space: `stria df`, `stria target add`"),
            _ => {}
        }
    }
    if let (Some(used), Some(total)) = (line.log_bytes_used, line.log_bytes_total.filter(|total| *total > 0))
        && used * 100 / total >= LOG_WARNING
    {
        let what =
            format!("the log of {name} is {} % full: changes wait for its checkpoints", used * 100 / total);
        add(Weight::Warning, what, "look whether its disk is slow: `stria ost stat`, `stria mdt stat`");
    }
    if line.superblock_copies.is_some_and(|copies| copies == 1) {
        let what = format!("{name} found one of its two superblocks unreadable, and wrote it anew");
        add(Weight::Warning, what, "look at the medium: `smartctl -a`, the kernel's log");
    }
    if let Some(changelog) = &line.changelog {
        for consumer in &changelog.lost {
            let what = format!("consumer {consumer} of the changelog of {name} has lost changes");
            add(Weight::Warning, what, "have it scan anew; `stria changelog ack` confirms that");
        }
        if changelog.bytes_max > 0 && changelog.bytes * 100 / changelog.bytes_max >= CHANGELOG_WARNING {
            let what =
                format!("a consumer of the changelog of {name} is {} changes behind", changelog.behind);
            add(Weight::Warning, what, "start it, or `stria changelog deregister` it");
        }
    }
    if line.draining {
        add(
            Weight::Advice,
            format!("{name} is being drained"),
            "`stria target remove` once it is empty, or `stria target undrain`",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: &str) -> Line {
        Line { name: name.into(), state: state.into(), ..Line::default() }
    }

    fn report(targets: Vec<Line>) -> Report {
        let wires = Some(Wires::Plain);
        Report { map_version: Some(3), wires, targets, ..Report::empty("home".into(), UP) }
    }

    fn shown(report: &Report, hints: bool) -> (&'static str, Vec<String>) {
        let state = state_of(report, hints);
        (state.health, state.findings.into_iter().map(|finding| finding.what).collect())
    }

    #[test]
    fn a_healthy_file_system_has_no_findings_and_advice_only_with_hints() {
        let healthy = report(vec![line("home-OST0000", UP)]);
        assert_eq!(shown(&healthy, false), ("ok", vec![]));
        let (health, advice) = shown(&healthy, true);
        assert_eq!((health, advice.len()), ("ok", 2), "{advice:?}");
    }

    #[test]
    fn the_gravest_is_first_and_gives_the_word() {
        let full = Line { bytes_total: Some(1000), bytes_free: Some(100), ..line("home-OST0000", UP) };
        let (health, what) = shown(&report(vec![full]), false);
        assert_eq!((health, &*what[0]), ("warning", "home-OST0000 is 90 % full"));
        let full = Line { bytes_total: Some(1000), bytes_free: Some(100), ..line("home-OST0000", UP) };
        let damaged = Line { damage_count: Some(2), ..line("home-OST0001", UP) };
        let (health, what) = shown(&report(vec![full, damaged]), false);
        assert_eq!((health, &*what[0]), ("error", "home-OST0001 has 2 damaged places"));
    }

    #[test]
    fn a_target_that_is_down_is_a_warning_if_its_mirror_goes_on() {
        let mut report = report(vec![line("home-OST0000", "down")]);
        assert_eq!(shown(&report, false).0, "error");
        report.spared = vec!["home-OST0000".into()];
        assert_eq!(shown(&report, false).0, "warning");
    }

    #[test]
    fn each_finding_has_its_next_step_with_hints() {
        let failed = Line { failure: Some("EIO".into()), ..line("home-MDT0000", "failed") };
        let text = state_of(&report(vec![failed]), true).text(true);
        assert!(
            text.starts_with("home: error\n  error: home-MDT0000 has failed: EIO\n      next: "),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
