//! `stria fsck`: the MDT checks its name space and compares it with the objects. It examines a running cluster through its socket, as an
//! observer. It recovers a stopped one in memory, over its media, which it only reads. Only `--repair` changes anything: a stopped cluster
//! is then served meanwhile, without clients.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use client::Fs;
use client::fsck::{Problem, Report};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::logs;
use crate::reach::{Reach, Service};
use crate::serve::local::Media;

use super::whole::{self, At, Job};

/// Check a file system, running, or stopped unless it is a pair: names, link counts, sums, lost and leaked objects, sizes. Nothing is written without --repair.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria fsck --dir /tmp/s
Example: stria fsck --dir /tmp/s --repair --yes
Exit codes: 0 clean; 1 findings; 2 could not look.")]
pub struct Fsck {
    /// The directory that `stria up` was given.
    #[arg(long, conflicts_with_all = ["path", "mgs"], required_unless_present_any = ["path", "mgs"])]
    dir: Option<PathBuf>,
    /// The management service of servers that run, in place of --dir: NID[,NID...], with :/FSNAME if it has several.
    #[arg(long, value_name = "NID", value_parser = Service::parse, conflicts_with = "path")]
    mgs: Option<Service>,
    /// A path on a mount, in place of --dir.
    path: Option<PathBuf>,
    /// JSON output.
    #[arg(short = 'j', long, conflicts_with = "repair")]
    json: bool,
    /// Tell what each repair would do, ask, then repair what has one safe answer.
    #[arg(long)]
    repair: bool,
    /// Repair without asking.
    #[arg(short = 'y', long, requires = "repair")]
    yes: bool,
}

/// A repair may uncover a further one: a removed name, a file without a name. More rounds than this mean damage that needs a human
/// decision.
const ROUNDS_MAX: usize = 8;

/// The output.
#[derive(Debug, Serialize)]
struct Shown {
    state: &'static str,
    entries: u64,
    inodes: u64,
    inline_files: u64,
    striped_files: u64,
    open_unlinked_files: u64,
    files_being_written: u64,
    objects: u64,
    object_bytes: u64,
    findings: Vec<Found>,
    /// Findings beyond those that are listed.
    not_listed: u64,
}

#[derive(Debug, Serialize)]
struct Found {
    kind: String,
    what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    advice: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    repair: String,
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<Exit> {
        logs::start_for_tools();
        // Any failure to examine is exit code 2, even if it is 1 elsewhere.
        let unusable = |e: anyhow::Error| Failure::relayed(Exit::Unusable, format!("fsck: {e:#}"));
        let mut shown = self.with(Media::Scratch, &mut check).map_err(unusable)?;
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&shown)?),
            false => out!("{}", shown.text()),
        }
        if self.repair && self.is_wanted(&shown)? {
            shown = self.with(Media::Real, &mut mend).map_err(unusable)?;
            out!("{}", shown.text());
        }
        Ok(if shown.is_clean() { Exit::Done } else { Exit::Findings })
    }

    fn with(&self, media: Media, job: Job<'_, Shown>) -> anyhow::Result<Shown> {
        let at = At::of(self.dir.as_deref(), self.mgs.as_ref(), self.path.as_deref());
        whole::with_cluster(at, media, job)
    }

    /// Whether there is something to repair, and the user agrees.
    fn is_wanted(&self, shown: &Shown) -> anyhow::Result<bool> {
        let repairs = shown.findings.iter().filter(|f| !f.repair.is_empty()).count();
        if repairs == 0 || self.yes {
            return Ok(repairs > 0);
        }
        if !std::io::stdin().is_terminal() {
            outln!("nothing was repaired: --yes does so without asking");
            return Ok(false);
        }
        out!("Do these {repairs} repairs? [y/N] ");
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    }
}

fn connect(reach: &Reach) -> anyhow::Result<std::sync::Arc<Fs>> {
    let settings = client::Settings {
        name: format!("stria fsck pid {}", std::process::id()),
        observer: true,
        ..client::Settings::default()
    };
    Ok(Fs::connect(reach.fabric.clone(), reach.map.clone(), reach.fs, settings)?)
}

fn check(reach: &Reach, state: &'static str) -> anyhow::Result<Shown> {
    let fs = connect(reach)?;
    let report = client::fsck::check(&fs, &reach.file_system().secret)?;
    fs.shutdown()?;
    Ok(shown(report, state))
}

/// Repairs until nothing repairable is left; returns the remaining findings.
fn mend(reach: &Reach, state: &'static str) -> anyhow::Result<Shown> {
    let (fs, secret) = (connect(reach)?, &reach.file_system().secret);
    let mut report = client::fsck::check(&fs, secret)?;
    for _ in 0..ROUNDS_MAX {
        let mut repaired = 0;
        for finding in report.findings.iter().filter(|f| !f.repair.is_empty()) {
            match client::fsck::repair(&fs, secret, &report, finding) {
                Ok(true) => {
                    repaired += 1;
                    outln!("repaired: {}: {}; {}", kind(finding.kind), finding.what, finding.repair);
                }
                // Another repair, or another process, has done it.
                Ok(false) => {}
                Err(fault) => outln!("not repaired: {}: {}; {fault}", kind(finding.kind), finding.what),
            }
        }
        report = client::fsck::check(&fs, secret)?;
        if repaired == 0 {
            break;
        }
    }
    fs.shutdown()?;
    Ok(shown(report, state))
}

fn shown(report: Report, state: &'static str) -> Shown {
    let counts = report.counts;
    let findings = report.findings.into_iter().map(|f| Found {
        kind: kind(f.kind),
        what: f.what,
        path: f.path,
        advice: f.advice,
        repair: f.repair,
    });
    Shown {
        state,
        entries: counts.entries,
        inodes: counts.inodes,
        inline_files: counts.inline_files,
        striped_files: counts.striped_files,
        open_unlinked_files: counts.orphans,
        files_being_written: counts.writing,
        objects: counts.objects,
        object_bytes: counts.object_bytes,
        findings: findings.collect(),
        not_listed: report.dropped,
    }
}

fn kind(problem: Problem) -> String {
    match problem {
        Problem::Records(wrong) => format!("{wrong:?}"),
        of_objects => format!("{of_objects:?}"),
    }
}

impl Shown {
    fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn text(&self) -> String {
        let mut out = format!(
            "looked at ({}): {} names, {} inodes ({} inline, {} striped, {} open and unlinked, {} being written), {} objects of {}\n",
            self.state,
            self.entries,
            self.inodes,
            self.inline_files,
            self.striped_files,
            self.open_unlinked_files,
            self.files_being_written,
            self.objects,
            types::size::human(self.object_bytes),
        );
        for f in &self.findings {
            let path = if f.path.is_empty() { String::new() } else { format!(" ({})", f.path) };
            let advice = match f.repair.is_empty() {
                true => f.advice.clone(),
                false => format!("repair: {}", f.repair),
            };
            out += &format!("{}: {}{path}; {advice}\n", f.kind, f.what);
        }
        if self.not_listed > 0 {
            out += &format!("and {} more, which are listed once these are repaired\n", self.not_listed);
        }
        match self.findings.len() {
            0 => out += "clean\n",
            n => out += &format!("{n} findings\n"),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_with_path_and_advice() {
        let found = |path: &str| Found {
            kind: "LinkCount".into(),
            what: "fid 0x10".into(),
            path: path.into(),
            advice: "look".into(),
            repair: String::new(),
        };
        let mut shown = Shown {
            state: "stopped",
            entries: 3,
            inodes: 2,
            inline_files: 1,
            striped_files: 0,
            open_unlinked_files: 0,
            files_being_written: 0,
            objects: 0,
            object_bytes: 0,
            findings: vec![],
            not_listed: 0,
        };
        assert!(shown.text().ends_with("0 objects of 0B\nclean\n"));
        shown.findings = vec![found("/a"), found("")];
        let text = shown.text();
        assert!(
            text.ends_with("LinkCount: fid 0x10 (/a); look\nLinkCount: fid 0x10; look\n2 findings\n"),
            "{text}"
        );
    }
}
