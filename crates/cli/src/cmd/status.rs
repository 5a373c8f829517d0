//! `stria status`: whether a directory's cluster runs, its targets and their state. A stopped cluster is examined on its media.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bench::wrap::wrap;
use clap::Args;
use disk::{FileDisk, Volume};
use serde::Serialize;
use types::Incarnation;
use wire::map::Target;
use wire::session::TargetStatReply;

use crate::cluster::Cluster;
use crate::cmd::damage::ago;
use crate::cmd::mirror;
use crate::exit::{Exit, Failure, unless_said};
use crate::mounts;
use crate::reach::{self, Reach, Service, Wires};
use crate::rundir::{Holder, RunDir, State, Use};
use types::size::human;

mod asked;
mod health;
mod links;
mod services;

pub(super) use health::{Finding, Seen, Weight, word_of};

pub use health::Health;

/// Show what runs: process, mount, and each target with its state, space, sessions and log. Works on a stopped cluster too.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria status --dir /tmp/s
Example: stria status --mgs 10.0.0.5@tcp     (from any host that reaches the servers)
Example: stria status -j     (every mounted file system)
Exit codes: 0 all is well; 1 something is down or wrong; 2 it could not be looked at.")]
pub struct Status {
    /// The directory that `stria up` was given. Without: every file system that is mounted here.
    #[arg(long, conflicts_with = "mgs")]
    dir: Option<PathBuf>,
    /// The management service, with no mount here: NID[,NID...], and :/FSNAME for one of its file systems.
    #[arg(long, value_name = "NID", value_parser = Service::parse)]
    mgs: Option<Service>,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    fsname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<PathBuf>,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_sec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<PathBuf>,
    map_version: Option<u64>,
    /// Connections to the servers: "on" with TLS, "off" without, "local" within this host. Left out of what does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<&'static str>,
    #[serde(skip)]
    wires: Option<Wires>,
    /// Names of targets that do not serve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    down: Vec<String>,
    /// OSTs that serve large requests more slowly than their twins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slow: Vec<Slow>,
    /// Links of hosts and servers that are slower than their twins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    slow_links: Vec<links::Slow>,
    /// Mirrors with a member that lacks changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_whole: Vec<mirror::Line>,
    /// Management services that share a map in etcd.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    management: Vec<services::Service>,
    /// All mirrors of two members.
    #[serde(skip)]
    pairs: usize,
    /// Names of targets that are down and whose mirrors go on without them.
    #[serde(skip)]
    spared: Vec<String>,
    targets: Vec<Line>,
}

/// One that is slower than its twins: its medium, its host, or what else works there.
#[derive(Debug, Serialize)]
struct Slow {
    name: String,
    /// Percent of the median of the others.
    percent: f64,
}

/// Twins of one file system differ by chance and by load. Less than this is a fault.
const SLOW: f64 = 0.6;
/// Bytes that must have been served of late: less is chance.
const SLOW_BYTES_MIN: u64 = 32 << 20;

fn slow_of(targets: &[Line]) -> Vec<Slow> {
    let rates: Vec<(String, f64)> = targets
        .iter()
        .filter(|line| line.late_bytes >= SLOW_BYTES_MIN)
        .map(|line| (line.name.clone(), line.late_bytes as f64 / (line.late_us as f64).max(1.0)))
        .collect();
    let found = bench::uneven::uneven(&rates, SLOW);
    found.into_iter().map(|u| Slow { name: u.name, percent: (u.share * 100.0).round() }).collect()
}

/// States of a file system that runs.
const UP: &str = "up";
const DEGRADED: &str = "degraded";
const DOWN: &str = "down";
/// A member of a mirror whose server is up, and that has no content to serve yet.
const WAITING: &str = "waiting";
/// The management service refuses this user: nothing is known.
const DENIED: &str = "mounted, and may not be looked at";

/// One target. Fields that are unknown of a stopped or silent target are left out.
#[derive(Debug, Default, Serialize)]
struct Line {
    name: String,
    state: String,
    /// Of a member of a mirror of two: "primary", "follower".
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// An OST that gets no new objects, since its content moves to others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    draining: bool,
    /// Why a member of a mirror serves nothing now, though its server is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<u32>,
    /// Stopped targets: whether they stopped cleanly.
    #[serde(skip_serializing_if = "Option::is_none")]
    clean: Option<bool>,
    /// Capacity as in `stria df`: for records of an MDT, for objects of an OST.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_total: Option<u64>,
    /// Size of the device or image, with the log and the target's own structures.
    #[serde(skip_serializing_if = "Option::is_none")]
    medium_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes_used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_bytes_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage_count: Option<u64>,
    /// Why the target's volume failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    /// Consumers of its changelog; left out if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    changelog: Option<Consumers>,
    /// How many of the two copies were good when it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    superblock_copies: Option<u8>,
    /// Its location: file or NIDs.
    place: String,
    #[serde(skip)]
    late_bytes: u64,
    #[serde(skip)]
    late_us: u64,
}

/// Consumers of a changelog.
#[derive(Debug, Default, Serialize)]
struct Consumers {
    consumers: usize,
    /// Changes that the slowest consumer has not acknowledged.
    behind: u64,
    bytes: u64,
    bytes_max: u64,
    /// Consumers that have lost changes and have not acknowledged it.
    lost: Vec<String>,
}

impl Status {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let reports = self.reports()?;
        if self.json {
            match (&self.dir, reports.as_slice()) {
                (Some(_), [one]) => outln!("{}", serde_json::to_string_pretty(one)?),
                _ => outln!("{}", serde_json::to_string_pretty(&reports)?),
            }
        } else {
            reports.iter().for_each(|r| out!("{}", r.text()));
        }
        let is_well = reports.iter().all(Report::is_well);
        let is_denied = reports.iter().any(|r| r.state == DENIED);
        Ok(match (is_well, is_denied) {
            (false, _) => Exit::Findings,
            (true, true) => Exit::Unusable,
            (true, false) => Exit::Done,
        })
    }
}

impl Status {
    fn reports(&self) -> anyhow::Result<Vec<Report>> {
        Ok(match (&self.dir, &self.mgs) {
            (Some(dir), _) => vec![of_dir(&super::absolute(dir)?)?],
            (None, Some(service)) => service.all()?.iter().map(of_running).collect(),
            (None, None) => of_mounts()?,
        })
    }
}

fn of_dir(dir: &Path) -> anyhow::Result<Report> {
    let cluster = Cluster::existing(dir)?;
    let run = RunDir::of(dir);
    match run.state()? {
        State::Held(holder) if holder.what == Use::Up => {
            let reach = reach::through_socket(dir, &cluster.fsname).map_err(|e| {
                let why = format!("pid {} runs but does not answer ({e:#})", holder.pid);
                let next = "it may be starting or stopping; try again";
                unless_said(e, || Failure::unusable(dir.display(), why, next))
            })?;
            let mut report = of_running(&reach);
            for line in &mut report.targets {
                line.place = image_of(&cluster, dir, &line.name)
                    .map_or(line.place.clone(), |p| p.display().to_string());
            }
            Ok(Report {
                dir: Some(dir.into()),
                pid: Some(holder.pid),
                since_sec: Some(holder.since_sec),
                mount: holder.mount,
                ..report
            })
        }
        State::Held(holder) => Ok(of_stopped(&cluster, dir, Some(holder))),
        State::Free { .. } => Ok(of_stopped(&cluster, dir, None)),
    }
}

fn of_mounts() -> anyhow::Result<Vec<Report>> {
    let mounts = mounts::ours();
    if mounts.is_empty() {
        let next = "give --dir, or --mgs NID";
        return Err(Failure::unusable("status", "no Stria file system is mounted here", next).into());
    }
    let mut reports = Vec::new();
    for mount in mounts {
        let source = reach::Source::parse(&mount.source).map_err(|why| {
            Failure::unusable(mount.point.display(), why, "the mount was made by another version")
        })?;
        let report = match Reach::by_nids(&source.nids, &source.fsname) {
            Ok(reach) => of_running(&reach),
            // No target is down: this user may not ask.
            Err(e) if e.is::<Failure>() => {
                eprintln!("stria: {}: {e:#}", mount.point.display());
                Report::empty(source.fsname, DENIED)
            }
            Err(e) => {
                let line = Line {
                    name: "MGS".into(),
                    state: "silent".into(),
                    place: format!("{e:#}"),
                    ..Line::default()
                };
                Report { targets: vec![line], ..Report::empty(source.fsname, "mounted, servers silent") }
            }
        };
        reports.push(Report { mount: Some(mount.point), ..report });
    }
    Ok(reports)
}

fn of_running(reach: &Reach) -> Report {
    let name = reach.file_system().name.clone();
    let all = reach.targets();
    let targets = reach.ask_all(&all, |t| asked::line(reach, t));
    let serving = all.iter().zip(&targets).filter(|(t, line)| !t.is_mdt && line.state == UP);
    let serving: Vec<&Target> = serving.map(|(t, _)| *t).collect();
    let is_down = |line: &Line| line.state != UP && line.state != WAITING;
    let down: Vec<String> = targets.iter().filter(|t| is_down(t)).map(|t| t.name.clone()).collect();
    let state = match down.len() {
        0 => UP,
        n if n == targets.len() => DOWN,
        _ => DEGRADED,
    };
    let mirrors = mirror::lines(&reach.map, Some(reach.fs));
    let silent: Vec<_> = all.iter().zip(&targets).filter(|(_, line)| is_down(line)).collect();
    let silent_ids: Vec<u32> = silent.iter().map(|(t, _)| t.id.0).collect();
    let is_spared = |t: &Target| mirrors.iter().any(|m| m.has(t.id.0) && m.is_spared(t.id.0, &silent_ids));
    let spared = silent.iter().filter(|(t, _)| is_spared(t)).map(|(_, line)| line.name.clone()).collect();
    Report {
        spared,
        management: services::all(reach),
        pairs: mirrors.iter().filter(|m| m.members.len() > 1).count(),
        not_whole: mirrors.into_iter().filter(|m| !m.is_whole()).collect(),
        map_version: Some(reach.map.version),
        tls: Some(reach.wires.word()),
        wires: Some(reach.wires.clone()),
        down,
        slow: slow_of(&targets),
        slow_links: links::slow_of(reach, &serving),
        targets,
        ..Report::empty(name, state)
    }
}

fn line_of(name: String, place: String, incarnation: Incarnation, stat: TargetStatReply) -> Line {
    // It answers, but does not store later changes.
    let has_failed = !stat.failure.is_empty();
    Line {
        name,
        state: if has_failed { "failed" } else { UP }.into(),
        role: None,
        draining: false,
        waits: None,
        incarnation: Some(incarnation.0),
        clean: None,
        bytes_total: Some(stat.bytes_total),
        medium_bytes: None,
        bytes_free: Some(stat.bytes_free),
        files_used: Some(stat.files_total.saturating_sub(stat.files_free)),
        sessions: Some(stat.sessions),
        log_bytes_used: Some(stat.log_bytes_used),
        log_bytes_total: Some(stat.log_bytes_total),
        damage_count: Some(stat.damage_count),
        failure: has_failed.then_some(stat.failure),
        changelog: None,
        superblock_copies: Some(stat.superblock_copies),
        place,
        late_bytes: stat.late_bytes,
        late_us: stat.late_us,
    }
}

fn of_stopped(cluster: &Cluster, dir: &Path, holder: Option<Holder>) -> Report {
    let (mdts, osts) = ((0..cluster.mdts).map(|i| (true, i)), (0..cluster.osts).map(|i| (false, i)));
    let of_one: Vec<(bool, u32)> = mdts.chain(osts).collect();
    // Both images of a mirror have its name.
    let line = |(path, n): (PathBuf, usize)| {
        let (is_mdt, index) = of_one[n % of_one.len()];
        stopped_line(target_name(&cluster.fsname, is_mdt, index), &path)
    };
    let targets = cluster.images(dir).into_iter().zip(0..).map(line).collect();
    let state = match (&holder, cluster.ready) {
        (Some(_), _) => "being checked",
        (None, true) => "stopped",
        (None, false) => "incomplete (its first start was interrupted; `stria up` starts over)",
    };
    let pid = holder.map(|h| h.pid);
    Report { dir: Some(dir.into()), pid, targets, ..Report::empty(cluster.fsname.clone(), state) }
}

fn stopped_line(name: String, path: &Path) -> Line {
    let place = path.display().to_string();
    let volume = FileDisk::open_read_only(path).map_err(|e| e.to_string()).and_then(|disk| {
        Ok((disk::Disk::size(&disk), Volume::open_read_only(Arc::new(disk)).map_err(|e| e.to_string())?))
    });
    match volume {
        Ok((bytes, volume)) => Line {
            name,
            state: "stopped".into(),
            incarnation: Some(volume.incarnation().0),
            clean: Some(volume.was_clean()),
            bytes_total: Some(storable(&volume)),
            medium_bytes: Some(bytes),
            place,
            ..Line::default()
        },
        Err(why) => {
            Line { name, state: "unreadable".into(), place: format!("{place} ({why})"), ..Line::default() }
        }
    }
}

/// As a running target reports it: "size" has one meaning, running or not.
fn storable(volume: &Volume) -> u64 {
    match volume.label().kind {
        disk::Kind::Mdt => mds::usable_bytes(volume),
        disk::Kind::Ost => {
            let data = volume.layout().data;
            data.end - data.start
        }
    }
}

pub(super) fn target_name(fsname: &str, is_mdt: bool, index: u32) -> String {
    format!("{fsname}-{}{index:04x}", if is_mdt { "MDT" } else { "OST" })
}

/// The image of a target of a local cluster, by its name.
fn image_of(cluster: &Cluster, dir: &Path, name: &str) -> Option<PathBuf> {
    let index = |kind: &str| u32::from_str_radix(name.rsplit_once(kind)?.1, 16).ok();
    index("-MDT")
        .map(|i| cluster.mdt_image(dir, i))
        .or_else(|| index("-OST").map(|i| cluster.ost_image(dir, i)))
}

impl Report {
    fn empty(fsname: String, state: &'static str) -> Report {
        Report {
            fsname,
            dir: None,
            state,
            pid: None,
            since_sec: None,
            mount: None,
            map_version: None,
            tls: None,
            wires: None,
            down: vec![],
            slow: vec![],
            slow_links: vec![],
            not_whole: vec![],
            management: vec![],
            pairs: 0,
            spared: vec![],
            targets: vec![],
        }
    }

    fn is_well(&self) -> bool {
        let services = self.management.iter().all(services::Service::is_well);
        services && self.not_whole.is_empty() && self.targets.iter().all(Line::is_well)
    }

    fn text(&self) -> String {
        let mut out = format!("{}: {}", self.fsname, self.state);
        if !self.down.is_empty() {
            out += &format!(", {} of {} targets down", self.down.len(), self.targets.len());
        }
        if !self.not_whole.is_empty() {
            out += &format!(", {} of {} mirrors not whole", self.not_whole.len(), self.pairs);
        }
        if let Some(dir) = &self.dir {
            out += &format!(", {}", dir.display());
        }
        if let Some(pid) = self.pid {
            out += &format!(", pid {pid}");
        }
        if let Some(since_sec) = self.since_sec {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
            out += &format!(" (since {})", ago(now.saturating_sub(since_sec)));
        }
        out += &self
            .mount
            .as_ref()
            .map_or(", not mounted\n".into(), |m| format!(", mounted on {}\n", m.display()));
        match &self.wires {
            Some(Wires::Tls(peer)) => out += &format!("connections use TLS, by this command as {peer}\n"),
            Some(Wires::Plain) => {
                let why = "connections have no TLS (tls = off): a host that reaches a server's port has all rights, see SECURITY.md";
                out += &(wrap(why, 4) + "\n");
            }
            Some(Wires::Local) | None => {}
        }
        self.management.iter().for_each(|service| out += &service.text());
        // Members of mirrors have long names.
        let width = self.targets.iter().map(|t| t.name.len()).fold(20, usize::max);
        out += &format!(
            "{:<width$} {:<12} {:>8} {:>8} {:>9} {:>8} {:>6}  {}\n",
            "target", "state", "size", "free", "files", "sessions", "log", "place"
        );
        self.targets.iter().for_each(|t| out += &t.text(self.dir.as_deref(), width));
        for slow in &self.slow {
            let note = format!(
                "slow: {} at {:.0} % of its twins in the last minutes; look at its medium, its host and that host's links",
                slow.name, slow.percent
            );
            out += &(wrap(&note, 4) + "\n");
        }
        self.slow_links.iter().for_each(|slow| out += &(wrap(&slow.text(), 4) + "\n"));
        for mirror in &self.not_whole {
            let note =
                format!("{}; `stria mirror status {}` tells the next step", mirror.summary(), mirror.name);
            out += &(wrap(&note, 4) + "\n");
        }
        let (spared, needed): (Vec<&str>, Vec<&str>) =
            self.down.iter().map(String::as_str).partition(|name| self.spared.iter().any(|s| s == name));
        if !needed.is_empty() {
            let down = needed.join(", ");
            out += &wrap(&format!("down: {down}; start them: calls that need one wait, and then fail"), 4);
            out.push('\n');
        }
        if !spared.is_empty() {
            let down = spared.join(", ");
            out += &wrap(
                &format!("down: {down}; start them: their mirrors go on with the other member alone"),
                4,
            );
            out.push('\n');
        }
        out
    }
}

impl Line {
    fn is_well(&self) -> bool {
        matches!(self.state.as_str(), "up" | "stopped")
            && self.damage_count.unwrap_or(0) == 0
            && self.changelog.as_ref().is_none_or(|c| c.lost.is_empty())
    }

    /// The table, and below it the notes.
    fn text(&self, dir: Option<&Path>, width: usize) -> String {
        let size = |n: Option<u64>| n.map_or("-".into(), human);
        let log = match (self.log_bytes_used, self.log_bytes_total) {
            (Some(used), Some(total)) if total > 0 => format!("{}%", used * 100 / total),
            _ => "-".into(),
        };
        let files = self.files_used.map_or("-".into(), |n| n.to_string());
        let sessions = self.sessions.map_or("-".into(), |n| n.to_string());
        // The line above shows the directory.
        let below = dir.and_then(|dir| self.place.strip_prefix(dir.to_str()?)?.strip_prefix('/'));
        let state = self.role.map_or(self.state.clone(), |role| format!("{} {role}", self.state));
        let line = format!(
            "{:<width$} {state:<12} {:>8} {:>8} {files:>9} {sessions:>8} {log:>6}  {}",
            self.name,
            size(self.bytes_total),
            size(self.bytes_free),
            below.unwrap_or(&self.place)
        );
        let notes = self.notes().into_iter().map(|note| wrap(&format!("    {note}"), 4));
        [wrap(&line, 4)].into_iter().chain(notes).map(|line| line + "\n").collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.waits.iter().cloned().collect();
        if self.draining {
            notes.push("draining: it gets no new objects, see `stria target drain`".to_owned());
        }
        if self.clean == Some(false) {
            notes.push("not stopped cleanly: recovers at the next start".to_owned());
        }
        if let Some(why) = &self.failure {
            notes.push(format!("its volume failed: {why}; check the medium, then start the target anew"));
        }
        if self.superblock_copies == Some(1) {
            let why = "one of its two superblock copies was bad at its start and was written anew";
            notes.push(format!("{why}: check the medium"));
        }
        if let Some(n) = self.damage_count.filter(|n| *n > 0) {
            notes.push(format!("{n} damaged, see `stria damage list`"));
        }
        if let Some(Consumers { consumers, behind, bytes, bytes_max, lost }) = &self.changelog {
            let used = bytes * 100 / bytes_max.max(&1);
            notes.push(format!(
                "changelog: {consumers} consumers, the last {behind} changes behind, {used}% of its room"
            ));
            if !lost.is_empty() {
                notes.push(format!("changes were lost to {}, see `stria changelog list`", lost.join(", ")));
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;
    use types::Size;

    #[test]
    fn a_stopped_cluster_is_read_from_its_media() {
        let dir = TestDir::new("status-stopped");
        let cluster = Cluster::new("demo".into(), 1, Size(1 << 30), Size(1 << 30), None);
        cluster.write(dir.path()).unwrap();
        let label = disk::Label {
            kind: disk::Kind::Ost,
            fs_name: "demo".into(),
            fs_uuid: types::Uuid([1; 16]),
            uuid: types::Uuid([2; 16]),
            target: types::TargetId(3),
            index: 0,
            mirror: types::MirrorId(3),
            epoch: types::Epoch(1),
        };
        let disk = FileDisk::create(cluster.ost_image(dir.path(), 0), 64 << 20).unwrap();
        Volume::format(&disk, &disk::Format { label, log_bytes: 1 << 20, checkpoint_bytes: 1 << 20 }, false)
            .unwrap();
        drop(disk);
        let report = of_dir(dir.path()).unwrap();
        assert!(report.state.starts_with("incomplete"));
        let [mdt, ost] = report.targets.as_slice() else { panic!("{report:?}") };
        assert_eq!((mdt.name.as_str(), mdt.state.as_str()), ("demo-MDT0000", "unreadable"));
        assert_eq!(
            (ost.state.as_str(), ost.clean, ost.medium_bytes),
            ("stopped", Some(true), Some(64 << 20))
        );
        // Log, slots and superblocks are no space for objects.
        assert!(ost.bytes_total.is_some_and(|n| (59 << 20..62 << 20).contains(&n)), "{ost:?}");
        let text = report.text();
        assert!(text.contains("demo-OST0000         stopped         6"), "{text}");
        assert!(serde_json::to_string(&report).unwrap().contains("\"incarnation\":1"));
    }

    #[test]
    fn an_ost_that_is_slower_than_its_twins_is_named() {
        let line = |n: u32, late_bytes: u64, late_us: u64| Line {
            name: format!("a-OST000{n}"),
            late_bytes,
            late_us,
            ..Line::default()
        };
        let mib = 1u64 << 20;
        let mut lines =
            vec![line(0, 100 * mib, 500_000), line(1, 90 * mib, 470_000), line(2, 50 * mib, 260_000)];
        assert!(slow_of(&lines).is_empty(), "twins that are alike");
        lines.push(line(3, 80 * mib, 1_020_000));
        let report = Report { slow: slow_of(&lines), ..Report::empty("a".into(), UP) };
        assert!(report.text().contains("slow: a-OST0003 at 41 % of its twins"), "{}", report.text());
        // Too little to tell.
        lines[3] = line(3, mib, 976_000);
        assert!(slow_of(&lines).is_empty());
    }

    #[test]
    fn a_target_whose_volume_failed_is_not_up() {
        let stat = |failure: &str, superblock_copies| TargetStatReply {
            target: types::TargetId(2),
            is_mdt: false,
            index: 0,
            uuid: types::Uuid([2; 16]),
            bytes_total: 1 << 30,
            bytes_free: 1 << 29,
            bytes_available: 1 << 29,
            files_total: 10,
            files_free: 5,
            sessions: 1,
            damage_count: 0,
            log_bytes_used: 0,
            log_bytes_total: 1 << 20,
            last_seq: types::Seq(7),
            failure: failure.into(),
            superblock_copies,
            late_bytes: 0,
            late_us: 0,
        };
        let line =
            |failure, copies| line_of("a".into(), "/d".into(), types::Incarnation(1), stat(failure, copies));
        assert_eq!((line("", 2).state.as_str(), line("", 2).failure), ("up", None));
        let failed = line("flush: EIO", 2);
        assert_eq!(failed.state, "failed");
        assert!(failed.text(None, 20).contains("its volume failed: flush: EIO"), "{}", failed.text(None, 20));
        assert!(line("", 1).text(None, 20).contains("superblock"), "{}", line("", 1).text(None, 20));
    }

    #[test]
    fn a_mirror_that_is_not_whole_is_counted_and_told() {
        let report = |state| {
            let map = mirror::tests::doubled(state);
            let mirrors = mirror::lines(&map, None);
            let name = mgmt::member_name(&map, map.target(types::TargetId(4)).unwrap());
            Report {
                pairs: mirrors.len(),
                not_whole: mirrors.into_iter().filter(|m| !m.is_whole()).collect(),
                down: vec!["home-MDT0000".into(), name.clone()],
                spared: vec![name],
                ..Report::empty("home".into(), UP)
            }
        };
        let text = report(wire::map::MemberState::Out).text();
        for part in [
            ", 1 of 2 mirrors not whole,",
            "OST0000: 1 of 2 members in sync; oss2 is out; `stria mirror status home-OST0000`",
            "down: home-MDT0000; start them: calls that need one wait",
            "down: home-OST0000 (target 4); start them: their mirrors go on",
        ] {
            assert!(text.replace("\n    ", " ").contains(part), "{part}: {text}");
        }
        let whole = report(wire::map::MemberState::InSync);
        assert!(
            !whole.text().contains("whole") && !serde_json::to_string(&whole).unwrap().contains("not_whole")
        );
    }

    #[test]
    fn images_are_found_by_target_name() {
        let cluster = Cluster::new("a-OSTx".into(), 20, Size(1), Size(1), None);
        let image = |name| image_of(&cluster, Path::new("/d"), name);
        assert_eq!(image("a-OSTx-OST0010"), Some("/d/ost0010.img".into()));
        assert_eq!(image("a-OSTx-MDT0000"), Some("/d/mdt0000.img".into()));
        assert_eq!(image("MGS"), None);
    }
}
