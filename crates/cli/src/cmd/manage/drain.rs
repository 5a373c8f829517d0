//! Retires an OST: marks it in the cluster map, then moves the content of all files to other OSTs as a client of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use client::Fs;
use client::drain::{How, Report, Why, drain};
use mgmt::params::{Param, kept};
use serde::Serialize;
use types::size::{Size, human};
use types::{MirrorId, Uuid};
use wire::map::ClusterMap;
use wire::mgmt::{GetMap, SetDraining};
use wire::session::{TargetStat, TargetStatReply};

use super::Place;
use crate::exit::{Exit, Failure};
use crate::reach::{self, Management, Reach};
use crate::shell;

/// Time between two lines of progress, and between two looks for a newer map.
const TOLD_EACH: Duration = Duration::from_secs(2);
const LOOK_EACH: Duration = Duration::from_millis(100);
/// Files that are named at the end.
const NAMED_MAX: usize = 20;

#[derive(Debug, Args)]
pub(super) struct Drain {
    /// The OST's name, such as stria-OST0003, or its id.
    #[arg(value_name = "NAME|ID")]
    name: String,
    /// Copy at most so many bytes per second.
    #[arg(long, value_name = "BYTES")]
    rate: Option<Size>,
    /// Only mark it: new objects go elsewhere, and its content stays.
    #[arg(long, conflicts_with = "rate")]
    no_move: bool,
    /// End after so many seconds with what is left. Another run goes on.
    #[arg(long = "for", value_name = "SECONDS", conflicts_with = "no_move")]
    seconds: Option<u64>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Undrain {
    /// The OST's name, such as stria-OST0003, or its id.
    #[arg(value_name = "NAME|ID")]
    name: String,
    #[command(flatten)]
    place: Place,
}

/// The JSON output.
#[derive(Debug, Default, Serialize)]
struct Shown {
    target: String,
    draining: bool,
    /// No file has bytes there, or would write there.
    empty: bool,
    files_moved: u64,
    bytes_moved: u64,
    /// Files without an object there, whose layout named it.
    layouts_changed: u64,
    files_left: u64,
    objects_left: u64,
    /// Objects that no file names.
    objects_leaked: u64,
    left: Vec<LeftLine>,
}

#[derive(Debug, Serialize)]
struct LeftLine {
    path: String,
    why: &'static str,
    what: String,
}

/// The mark of `stria task pause drain:NAME`.
fn is_paused(map: &ClusterMap, mirror: MirrorId) -> bool {
    let primary = map.mirror(mirror).map(|mirror| mirror.primary);
    primary.is_some_and(|target| kept(map, target, Param::DrainPause) == Some(1))
}

impl Undrain {
    pub fn run(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let (_, name, is_new) = mark(&management, &self.name, false)?;
        match self.place.json {
            true => {
                let shown = Shown { target: name, ..Shown::default() };
                outln!("{}", serde_json::to_string_pretty(&shown)?);
            }
            false if is_new => outln!("{name} takes new objects again; what has moved stays where it is"),
            false => outln!("{name} was not draining"),
        }
        Ok(Exit::Done)
    }
}

impl Drain {
    pub fn run(self) -> anyhow::Result<Exit> {
        let management = self.place.manage()?;
        let (mirror, name, is_new) = mark(&management, &self.name, true)?;
        let place = self.place.options(&management);
        let shown = Shown { target: name.clone(), draining: true, ..Shown::default() };
        if self.no_move {
            match self.place.json {
                true => outln!("{}", serde_json::to_string_pretty(&shown)?),
                false => {
                    outln!("{name} {} draining: it gets no new objects", if is_new { "is" } else { "was" });
                    let word = shell::word(&name);
                    outln!(
                        "next: `stria target drain {word} {place}` moves its content, and `stria target undrain {word} {place}` takes the mark back"
                    );
                }
            }
            return Ok(Exit::Done);
        }
        // The map with the mark.
        let management = self.place.manage()?;
        let fs = management.map.mirror(mirror).map(|mirror| mirror.fs);
        let reach = management.file_systems().into_iter().find(|reach| Some(reach.fs) == fs);
        let reach = reach.with_context(|| format!("the file system of {name} is not in the cluster map"))?;
        let report = self.work(&management, &reach, (mirror, &name))?;
        self.tell(&report, shown, &place)
    }

    /// Drains as a client, which follows the map.
    fn work(
        &self,
        management: &Management,
        reach: &Reach,
        (mirror, name): (MirrorId, &str),
    ) -> anyhow::Result<Report> {
        reach.fabric.set_fs(reach.fs);
        let settings = client::Settings {
            name: format!("stria target drain {name} pid {}", std::process::id()),
            ships_names: false,
            ..client::Settings::default()
        };
        let fs = Fs::connect(reach.fabric.clone(), reach.map.clone(), reach.fs, settings)
            .map_err(|fault| Failure::unusable(format!("drain {name}"), fault, "see `stria status`"))?;
        let wants_map = Arc::new(AtomicBool::new(false));
        let to_set = wants_map.clone();
        fs.on_map_wanted(Box::new(move || to_set.store(true, Ordering::SeqCst)));
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let how = How {
            rate: self.rate.map(|rate| rate.0),
            until: self.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            ..How::TOOL
        };
        let secret: Uuid = reach.file_system().secret;
        let newest = parking_lot::Mutex::new(Report::default());
        let paused = AtomicBool::new(is_paused(&reach.map, mirror));
        let is_done = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            scope.spawn(|| {
                self.watch(management, &fs, (mirror, name), &newest, (&is_done, &wants_map, &paused))
            });
            // Called after each file, by the thread that then takes the next one.
            let tell = |report: &Report| {
                *newest.lock() = report.clone();
                let is_over =
                    || stop.load(Ordering::SeqCst) || how.until.is_some_and(|until| Instant::now() >= until);
                while paused.load(Ordering::SeqCst) && !is_over() {
                    std::thread::sleep(LOOK_EACH);
                }
            };
            // A drain that begins paused moves no file.
            tell(&Report::default());
            let done = drain(&fs, &secret, mirror, &how, &stop, &tell);
            is_done.store(true, Ordering::SeqCst);
            done
        });
        let report = done.map_err(|fault| {
            Failure::failed(format!("drain {name}"), fault, "see `stria status`, and run it again")
        });
        fs.shutdown()?;
        Ok(report?)
    }

    /// Prints lines of progress, and follows the cluster map.
    fn watch(
        &self,
        management: &Management,
        fs: &Fs,
        (mirror, name): (MirrorId, &str),
        newest: &parking_lot::Mutex<Report>,
        (is_done, wants_map, paused): (&AtomicBool, &AtomicBool, &AtomicBool),
    ) {
        let (began, mut told) = (Instant::now(), Instant::now());
        let mut version = management.map.version;
        while !is_done.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_EACH);
            let is_time = told.elapsed() >= TOLD_EACH;
            if (is_time || wants_map.swap(false, Ordering::SeqCst))
                && let Ok(reply) = management.ask(&GetMap { known_version: version, server: true })
                && let Some(map) = reply.map
            {
                version = map.version;
                paused.store(is_paused(&map, mirror), Ordering::SeqCst);
                fs.set_map(reach::with_nid(map, &management.nid));
            }
            if !is_time {
                continue;
            }
            told = Instant::now();
            let report = newest.lock().clone();
            let used = used_bytes(management, mirror).unwrap_or_default();
            if !self.place.json {
                let note = if paused.load(Ordering::SeqCst) { "; paused" } else { "" };
                outln!("{}{note}", progress(name, &report, used, began.elapsed()));
            }
        }
    }

    fn tell(&self, report: &Report, shown: Shown, place: &str) -> anyhow::Result<Exit> {
        let name = &shown.target;
        let lines = report.left.iter().take(NAMED_MAX).map(|left| LeftLine {
            path: left.path.clone(),
            why: match left.why {
                Why::Busy => "busy",
                Why::Unlinked => "unlinked",
                Why::Failed => "failed",
            },
            what: left.what.clone(),
        });
        let shown = Shown {
            target: name.clone(),
            empty: report.is_empty(),
            files_moved: report.files,
            bytes_moved: report.bytes,
            layouts_changed: report.repointed,
            files_left: report.left_count,
            objects_left: report.objects,
            objects_leaked: report.leaked,
            left: lines.collect(),
            ..shown
        };
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&shown)?),
            false => out!("{}", shown.text(place)),
        }
        Ok(if shown.empty { Exit::Done } else { Exit::Findings })
    }
}

impl Shown {
    fn text(&self, place: &str) -> String {
        let (name, word) = (&self.target, shell::word(&self.target));
        let mut out = format!(
            "moved {} files of {} ({} layouts changed without a copy)\n",
            self.files_moved,
            human(self.bytes_moved),
            self.layouts_changed
        );
        if self.empty {
            if self.objects_leaked > 0 {
                out += &format!(
                    "{} objects there belong to no file; `stria fsck` names them\n",
                    self.objects_leaked
                );
            }
            out += &format!("{name} is empty; `stria target remove {word} {place}` takes it out\n");
            return out;
        }
        out += &format!("{} files and {} objects are left on {name}:\n", self.files_left, self.objects_left);
        for LeftLine { path, why, what } in &self.left {
            out += &format!("  {path}: {why}: {what}\n");
        }
        let more = self.files_left.saturating_sub(self.left.len() as u64);
        if more > 0 {
            out += &format!("  and {more} more\n");
        }
        out += &format!("next: `stria target drain {word} {place}` goes on\n");
        out
    }
}

/// Marks the OST, or takes the mark back. Returns its mirror, that one's name, and whether the map has changed.
fn mark(management: &Management, name: &str, draining: bool) -> anyhow::Result<(MirrorId, String, bool)> {
    let reply = management.ask(&SetDraining { name: name.to_owned(), draining }).map_err(|e| {
        let why = format!("{e:#}");
        let (why, next) = why.split_once("; ").unwrap_or((&why, "see `stria status`"));
        let what = match draining {
            true => format!("target drain {name}"),
            false => format!("target undrain {name}"),
        };
        Failure::failed(what, why, next)
    })?;
    let map = &management.map;
    let name = map.mirror(reply.mirror).map_or_else(|| name.to_owned(), |m| mgmt::mirror_name(map, m));
    Ok((reply.mirror, name, reply.is_new))
}

fn used_bytes(management: &Management, mirror: MirrorId) -> Option<u64> {
    let primary = management.map.mirror(mirror)?.primary;
    let target = management.map.target(primary)?;
    let peer = management.fabric.peer(primary).ok()?;
    let stat: TargetStatReply = reach::ask(&*peer, target.fs, primary, &TargetStat {}).ok()?;
    Some(stat.bytes_total.saturating_sub(stat.bytes_free))
}

/// `used`: bytes that are left on the OST.
fn progress(name: &str, report: &Report, used: u64, since: Duration) -> String {
    let rate = (report.bytes as f64 / since.as_secs_f64().max(0.001)) as u64;
    let left = match rate {
        0 => String::new(),
        rate => format!(", about {} left", minutes(used / rate)),
    };
    format!(
        "{name}: round {}, {} files and {} moved, {}/s; {} to go{left}",
        report.rounds,
        report.files + report.repointed,
        human(report.bytes),
        human(rate),
        human(used)
    )
}

fn minutes(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_names_what_is_left_or_the_next_command() {
        let mut shown = Shown {
            target: "home-OST0000".into(),
            draining: true,
            empty: true,
            files_moved: 7,
            bytes_moved: 3 << 20,
            ..Shown::default()
        };
        let text = shown.text("--mgs a");
        assert!(
            text.ends_with(
                "home-OST0000 is empty; `stria target remove home-OST0000 --mgs a` takes it out\n"
            )
        );
        assert!(text.starts_with("moved 7 files of 3.0M"), "{text}");
        shown.empty = false;
        (shown.files_left, shown.objects_left) = (2, 3);
        shown.left.push(LeftLine { path: "/a".into(), why: "busy", what: "another client uses it".into() });
        let text = shown.text("--mgs a");
        for part in [
            "2 files and 3 objects are left on home-OST0000:\n  /a: busy: another client uses it\n  and 1 more\n",
            "next: `stria target drain home-OST0000 --mgs a` goes on",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn progress_tells_rate_and_time_left() {
        let report = Report { rounds: 1, files: 2, bytes: 10 << 20, ..Report::default() };
        let line = progress("home-OST0000", &report, 100 << 20, Duration::from_secs(10));
        assert_eq!(
            line,
            "home-OST0000: round 1, 2 files and 10.0M moved, 1.0M/s; 100.0M to go, about 1 min left"
        );
        assert!(!progress("x", &Report::default(), 1, Duration::from_secs(1)).contains("about"));
    }
}
