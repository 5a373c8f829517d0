//! `stria scrub`: reads every page of the OSTs and all records of the MDTs from their media and checks them, in the background.

use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;
use types::size::human;
use types::{Size, TargetId};
use wire::map::Target;
use wire::mdt::ScrubRecords;
use wire::object::{ScrubControl, ScrubPass, ScrubReply, scrub_action, scrub_state};

use crate::cmd::damage::{Where, ago};
use crate::exit::{Exit, Failure};
use crate::reach::Reach;

/// Read every page of the OSTs, and all records of the MDTs, from their media and check them, in the background; bad pages are listed by `stria damage list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria scrub start --dir /tmp/s --wait\nExample: stria scrub set /mnt/stria --rate 200M --every 14d"
)]
pub struct Scrub {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show state, progress and the last pass of each target. Exit code 1 if the last or the present pass found bad pages.
    #[command(after_help = "Example: stria scrub status /mnt/stria -j")]
    Status(OnTargets),
    /// Begin a pass over all objects and records; where one runs already, it goes on. That of an OST goes on after a restart, too.
    #[command(after_help = "Example: stria scrub start --dir /tmp/s --ost 3 --rate 0 --wait")]
    Start(Start),
    /// Hold a pass where it is, until `resume`.
    #[command(after_help = "Example: stria scrub pause /mnt/stria")]
    Pause(OnTargets),
    /// Let a paused pass go on.
    #[command(after_help = "Example: stria scrub resume /mnt/stria")]
    Resume(OnTargets),
    /// End a pass before its end. The next begins anew.
    #[command(after_help = "Example: stria scrub stop /mnt/stria --ost 0 --ost 1")]
    Stop(OnTargets),
    /// Set how fast it reads on OSTs and how often it begins by itself there. It is kept on the OST.
    #[command(
        after_help = "On an MDT the parameters scrub.rate and scrub.every say so: stria set-param.\nExample: stria scrub set --dir /tmp/s --rate 100M --every 28d\nExample: stria scrub set --dir /tmp/s --every never"
    )]
    Set(Set),
}

#[derive(Debug, Args)]
struct OnTargets {
    #[command(flatten)]
    place: Where,
    /// Only this OST, by index; may be given several times.
    #[arg(long, value_name = "INDEX")]
    ost: Vec<u32>,
}

#[derive(Debug, Args)]
struct Start {
    #[command(flatten)]
    on: OnTargets,
    /// Bytes per second that each target reads at most, from now on; 0: no bound. An MDT forgets it at its end.
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,
    /// Wait until the pass has ended everywhere. Exit code 1 if it found bad pages.
    #[arg(long)]
    wait: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
struct Set {
    #[command(flatten)]
    on: OnTargets,
    /// Bytes per second that each OST reads at most; 0: no bound.
    #[arg(long, value_name = "SIZE", required_unless_present = "every")]
    rate: Option<Size>,
    /// From the end of a pass to the begin of the next: 12h, 28d, 4w, or never.
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<u64>,
}

/// The scrub state of one target. Those of an MDT count records as objects, and leaves of its table as pages.
#[derive(Debug, Serialize)]
struct Line {
    target: String,
    #[serde(skip)]
    id: TargetId,
    #[serde(skip)]
    is_mdt: bool,
    state: &'static str,
    /// Bytes per second; 0: no bound.
    rate: u64,
    /// Seconds; 0: never by itself.
    every_sec: u64,
    /// Seconds since 1970; 0: never.
    next_sec: u64,
    bytes_used: u64,
    pass: PassLine,
    last: PassLine,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct PassLine {
    begun_sec: u64,
    ended_sec: u64,
    bytes: u64,
    objects: u64,
    bad_pages: u64,
    /// Repaired from the other member of the mirror; at an MDT written anew from memory.
    repaired: u64,
}

/// Time between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(300);
/// How long `--wait` tolerates a target that does not answer: longer than a restart takes.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// The request to each target.
#[derive(Clone, Copy, Default)]
struct Wish {
    action: u8,
    rate: Option<u64>,
    every_sec: Option<u64>,
}

impl Scrub {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        let plain = |action| Wish { action, ..Wish::default() };
        match self.verb {
            Verb::Status(on) => on.ask(plain(scrub_action::LOOK), false),
            Verb::Pause(on) => on.ask(plain(scrub_action::PAUSE), false),
            Verb::Resume(on) => on.ask(plain(scrub_action::RESUME), false),
            Verb::Stop(on) => on.ask(plain(scrub_action::STOP), false),
            Verb::Start(s) => {
                let rate = s.rate.map(|r| r.0);
                s.on.ask(Wish { rate, ..plain(scrub_action::START) }, s.wait)
            }
            Verb::Set(s) => {
                let rate = s.rate.map(|r| r.0);
                s.on.ask(Wish { rate, every_sec: s.every, ..plain(scrub_action::LOOK) }, false)
            }
        }
    }
}

impl OnTargets {
    fn ask(&self, wish: Wish, wait: bool) -> anyhow::Result<Exit> {
        let (reach, fid) = self.place.reach()?;
        if fid.is_some() {
            let next = "give the mount point, or --dir";
            return Err(Failure::unusable("scrub", "it reads whole targets, not single files", next).into());
        }
        let targets = self.targets(&reach, wish.is_setting())?;
        // All get the request before the first refusal is reported: one that cannot be paused must not stop the others' requests.
        let answers: Vec<_> = targets.iter().map(|t| (*t, ask(&reach, t, wish))).collect();
        let mut refused = None;
        let mut lines = Vec::new();
        for (target, answer) in answers {
            match answer {
                Ok(reply) => lines.push(line_of(&reach, target, &reply)),
                Err(e) => {
                    let name = name_of(&reach, target);
                    eprintln!("stria: {name}: {e:#}");
                    refused = Some(name);
                }
            }
        }
        let mut unfinished = None;
        if wait {
            // Those that began a pass; errors of the others were reported.
            let begun: Vec<&Target> = targets
                .into_iter()
                .filter(|t| lines.iter().any(|l| l.target == name_of(&reach, t)))
                .collect();
            lines = wait_for(&reach, &begun)?;
            unfinished = lines.iter().find(|l| l.state != "idle" || l.pass.begun_sec != l.last.begun_sec);
        }
        match self.place.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false => lines.iter().for_each(print_line),
        }
        if let Some(name) = refused {
            let next = "the line above says what to do; `stria status` shows the target";
            return Err(Failure::failed(name, "it did not do it", next).into());
        }
        if let Some(line) = unfinished {
            let how = if line.state == "paused" { "paused" } else { "stopped" };
            let why = format!("its pass was {how} before it was complete");
            let next = "`stria scrub resume` or `start` continues it";
            return Err(Failure::failed(&line.target, why, next).into());
        }
        let is_status = wish.action == scrub_action::LOOK && !wish.is_setting();
        let is_bad = |l: &Line| l.last.bad_pages > 0 || (is_status && l.pass.bad_pages > 0);
        let found = (wait || is_status) && lines.iter().any(is_bad);
        Ok(if found { Exit::Findings } else { Exit::Done })
    }

    /// `osts_only`: without the MDTs. The choice of an OST leaves them out, too.
    fn targets<'a>(&self, reach: &'a Reach, osts_only: bool) -> anyhow::Result<Vec<&'a Target>> {
        let all = reach.targets();
        let has = |index| all.iter().any(|t| !t.is_mdt && t.index == index);
        if let Some(index) = self.ost.iter().find(|index| !has(**index)) {
            let next = "`stria status` lists the OSTs";
            return Err(Failure::unusable(format!("OST {index}"), "there is none of this index", next).into());
        }
        let is_wanted = |t: &&Target| match t.is_mdt {
            true => self.ost.is_empty() && !osts_only,
            false => self.ost.is_empty() || self.ost.contains(&t.index),
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }
}

impl Wish {
    /// It is only about an OST's kept settings.
    fn is_setting(&self) -> bool {
        self.action == scrub_action::LOOK && self.rate.or(self.every_sec).is_some()
    }
}

/// A pass that runs or is paused: the target's name, bytes read, about how many there are, and the bound of its rate, 0 for none.
pub(super) struct Running {
    pub target: TargetId,
    pub name: String,
    pub done: u64,
    pub of: u64,
    pub rate: u64,
    pub is_paused: bool,
}

/// The passes on the targets that answer.
pub(super) fn running(reach: &Reach) -> Vec<Running> {
    let look = |target| Some(line_of(reach, target, &ask(reach, target, Wish::default()).ok()?));
    let lines = reach.ask_all(&reach.targets(), look);
    let running = lines.into_iter().flatten().filter(|line| matches!(line.state, "running" | "paused"));
    running
        .map(|line| Running {
            target: line.id,
            name: line.target,
            done: line.pass.bytes,
            of: line.bytes_used,
            rate: line.rate,
            is_paused: line.state == "paused",
        })
        .collect()
}

fn name_of(reach: &Reach, target: &Target) -> String {
    mgmt::member_name(&reach.map, target)
}

fn ask(reach: &Reach, target: &Target, wish: Wish) -> anyhow::Result<ScrubReply> {
    let Wish { action, rate, every_sec } = wish;
    if target.is_mdt {
        return reach.ask(target.id, &ScrubRecords { action, rate });
    }
    let cap = reach.capability(SystemTime::now());
    reach.ask(target.id, &ScrubControl { cap, action, rate, every_sec })
}

/// Pauses the pass of a target, or lets it go on.
pub(super) fn pause(reach: &Reach, target: &Target, is_on: bool) -> anyhow::Result<()> {
    let action = if is_on { scrub_action::PAUSE } else { scrub_action::RESUME };
    ask(reach, target, Wish { action, ..Wish::default() }).map(drop)
}

/// Waits until no pass runs; paused passes do not count. A target that does not answer is asked again: it may be restarting.
fn wait_for(reach: &Reach, targets: &[&Target]) -> anyhow::Result<Vec<Line>> {
    let is_terminal = std::io::stderr().is_terminal();
    let mut silent_since = None;
    loop {
        let asked =
            targets.iter().map(|target| Ok(line_of(reach, target, &ask(reach, target, Wish::default())?)));
        let lines: Vec<Line> = match asked.collect::<anyhow::Result<_>>() {
            Ok(lines) => lines,
            Err(e) if silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX => return Err(e),
            Err(_) => {
                std::thread::sleep(LOOK);
                continue;
            }
        };
        silent_since = None;
        let running = lines.iter().filter(|l| l.state == "running").count();
        if is_terminal {
            let (done, all) = lines.iter().fold((0, 0), |(d, a), l| (d + l.pass.bytes, a + l.bytes_used));
            eprint!(
                "\r{} of about {} read, {running} of {} targets under way   ",
                human(done),
                human(all),
                lines.len()
            );
        }
        if running == 0 {
            if is_terminal {
                eprintln!();
            }
            return Ok(lines);
        }
        std::thread::sleep(LOOK);
    }
}

fn line_of(reach: &Reach, target: &Target, s: &ScrubReply) -> Line {
    let pass = |p: &ScrubPass| PassLine {
        begun_sec: p.begun_sec,
        ended_sec: p.ended_sec,
        bytes: p.bytes,
        objects: p.objects,
        bad_pages: p.bad_pages,
        repaired: p.repaired,
    };
    Line {
        target: name_of(reach, target),
        id: target.id,
        is_mdt: target.is_mdt,
        state: match s.state {
            scrub_state::IDLE => "idle",
            scrub_state::RUNNING => "running",
            scrub_state::PAUSED => "paused",
            _ => "unknown to this version",
        },
        rate: s.rate,
        every_sec: s.every_sec,
        next_sec: if s.every_sec == 0 || s.since_sec == 0 {
            0
        } else {
            s.since_sec.saturating_add(s.every_sec)
        },
        bytes_used: s.bytes_used,
        pass: pass(&s.pass),
        last: pass(&s.last),
    }
}

fn print_line(l: &Line) {
    let now_sec = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let rate = if l.rate == 0 { "without a bound".into() } else { format!("at most {}/s", human(l.rate)) };
    outln!("{}: {}, {rate}", l.target, l.state);
    let (objects, see, source) = match l.is_mdt {
        true => ("records", "`stria fsck` tells which records are lost", "written anew from memory"),
        false => ("objects", "`stria damage list`", "repaired from the other member"),
    };
    let bad = |p: &PassLine| {
        let bad = match p.bad_pages {
            0 => "nothing bad".to_owned(),
            1 => format!("1 BAD PAGE ({see})"),
            n => format!("{n} BAD PAGES ({see})"),
        };
        match p.repaired {
            0 => bad,
            n => format!("{bad}, {n} {source}"),
        }
    };
    if l.state != "idle" {
        let p = &l.pass;
        let share = (p.bytes * 100).checked_div(l.bytes_used).unwrap_or(0).min(99);
        let left = match (l.state, l.rate) {
            ("running", rate) if rate > 0 => {
                format!(", about {} left", span(l.bytes_used.saturating_sub(p.bytes) / rate))
            }
            _ => String::new(),
        };
        let (read, used) = (human(p.bytes), human(l.bytes_used));
        let begun = ago(now_sec.saturating_sub(p.begun_sec));
        outln!(
            "    begun {begun}: {share} % ({read} of about {used}){left}, {} {objects}, {}",
            p.objects,
            bad(p)
        );
    } else if l.pass.begun_sec > l.last.begun_sec {
        let ended = ago(now_sec.saturating_sub(l.pass.ended_sec));
        outln!("    stopped before its end {ended}: {} read, {}", human(l.pass.bytes), bad(&l.pass));
    }
    match l.last.ended_sec {
        0 => outln!("    no pass has been completed yet"),
        ended => {
            let (ago, p) = (ago(now_sec.saturating_sub(ended)), &l.last);
            let took = span(ended.saturating_sub(p.begun_sec));
            outln!(
                "    last ended {ago} after {took}: {} in {} {objects}, {}",
                human(p.bytes),
                p.objects,
                bad(p)
            );
        }
    }
    match l.next_sec {
        _ if l.state != "idle" => {}
        0 => outln!("    begins on request only"),
        next => outln!("    begins by itself in {}", span(next.saturating_sub(now_sec))),
    }
}

/// A time for humans.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// `12h`, `28d`, `4w`, `never` in seconds.
fn interval(text: &str) -> Result<u64, String> {
    if text == "never" {
        return Ok(0);
    }
    let refuse = || format!("'{text}' is no time: write a number with h, d or w, such as 28d, or never");
    let unit = match text.chars().last() {
        Some('h') => 3600,
        Some('d') => 86_400,
        Some('w') => 7 * 86_400,
        _ => return Err(refuse()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| refuse())?;
    count.checked_mul(unit).filter(|sec| *sec > 0).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_people_write_them() {
        for (text, seconds) in [("never", 0), ("1h", 3600), ("28d", 2_419_200), ("4w", 2_419_200)] {
            assert_eq!(interval(text), Ok(seconds));
        }
        for text in ["", "28", "d", "-1d", "0d", "1.5d", "28 d", "99999999999999999w", "7ü"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_told_as_people_say_them() {
        for (seconds, text) in
            [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")]
        {
            assert_eq!(span(seconds), text);
        }
    }
}
