//! `stria fsck`: compares the name space with the objects. A running cluster is looked at through its socket, as an observer; a
//! stopped one is recovered in memory over its media, which are only read.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use client::Fs;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::exit::{Exit, Failure};
use crate::logs;
use crate::reach::{self, Reach};
use crate::rundir::{RunDir, State, Use};
use crate::serve::device::Blank;
use crate::serve::local;

/// Check a file system, running or stopped: lost and leaked objects, link counts, sizes. Nothing is repaired or written.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: stria fsck --dir /tmp/s
Exit codes: 0 clean; 1 findings; 2 could not look.")]
pub struct Fsck {
    /// The directory that `stria up` was given.
    #[arg(long, conflicts_with = "path", required_unless_present = "path")]
    dir: Option<PathBuf>,
    /// A path on a mount, in place of --dir.
    path: Option<PathBuf>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

/// What is printed.
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
}

#[derive(Debug, Serialize)]
struct Found {
    kind: String,
    what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    advice: String,
}

impl Fsck {
    pub fn run(self) -> anyhow::Result<Exit> {
        logs::start_for_tools();
        // Whatever keeps us from looking is exit code 2, also what would be 1 elsewhere.
        let shown = self.look().map_err(|e| Failure::relayed(Exit::Unusable, format!("fsck: {e:#}")))?;
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&shown)?),
            false => out!("{}", shown.text()),
        }
        Ok(if shown.findings.is_empty() { Exit::Done } else { Exit::Findings })
    }

    fn look(&self) -> anyhow::Result<Shown> {
        let Some(dir) = &self.dir else {
            let path = self.path.as_deref().unwrap_or(Path::new("."));
            let (_, source) = reach::mount_of(path)?;
            return check(&Reach::by_nids(&source.nids, &source.fsname)?, "running");
        };
        let dir = super::absolute(dir)?;
        let cluster = Cluster::existing(&dir)?;
        let run = RunDir::of(&dir);
        match run.state()? {
            State::Held(holder) if holder.what == Use::Up => {
                let reach = reach::through_socket(&dir, &cluster.fsname);
                check(
                    &reach.with_context(|| format!("ask the running cluster (pid {})", holder.pid))?,
                    "running",
                )
            }
            State::Held(holder) => {
                anyhow::bail!("pid {} looks at {} now; wait until it is done", holder.pid, dir.display())
            }
            State::Free { .. } => check_stopped(&cluster, &dir, &run),
        }
    }
}

fn check_stopped(cluster: &Cluster, dir: &Path, run: &RunDir) -> anyhow::Result<Shown> {
    anyhow::ensure!(cluster.ready, "{} was never completed; `stria up` starts it over", dir.display());
    let _lock = run.take(Use::Check, None)?;
    let servers =
        local::start(cluster, dir, local::scratch_mgs(dir)?, local::Media::Scratch, Blank::Refuse, None)?;
    let shown = check(&Reach::in_process(servers.fabric.clone(), &cluster.fsname)?, "stopped");
    // Nothing of it is kept, so how they end does not matter.
    let _ = servers.stop();
    shown
}

fn check(reach: &Reach, state: &'static str) -> anyhow::Result<Shown> {
    let settings = client::Settings {
        name: format!("stria fsck pid {}", std::process::id()),
        observer: true,
        ..client::Settings::default()
    };
    let fs = Fs::connect(reach.fabric.clone(), reach.map.clone(), reach.fs, settings)?;
    let report = client::fsck::check(&fs, &reach.file_system().secret)?;
    fs.shutdown()?;
    let counts = report.counts;
    let findings = report.findings.into_iter().map(|f| Found {
        kind: format!("{:?}", f.kind),
        what: f.what,
        path: f.path,
        advice: f.advice,
    });
    Ok(Shown {
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
    })
}

impl Shown {
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
            out += &format!("{}: {}{path}; {}\n", f.kind, f.what, f.advice);
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
