//! `stria task`: work that goes on in the background, and pauses of it that last until they are taken back, also over restarts.
//!
//! A scrub keeps its pause on the OST; an MDT's lasts until it ends. Those of resyncs, drains and comparisons are parameters that the cluster
//! map keeps (`stria set-param -P`).

use std::collections::BTreeSet;
use std::time::Instant;

use clap::{Args, Subcommand};
use mgmt::params::{Param, kept, names};
use mgmt::{mirror_name, target_name};
use serde::Serialize;
use wire::map::{KeptParam, Mirror, Target};
use wire::mgmt::ChangeParams;

use crate::cmd::dash::tasks::{self, Draining, Drains, Task as Seen};
use crate::cmd::mirror::verify;
use crate::cmd::param::On;
use crate::cmd::{df, mirror, scrub};
use crate::exit::{Exit, Failure};
use crate::reach::{Management, Reach};

/// Show, pause and resume work in the background: fills of mirrors, drains of OSTs, scrubs, comparisons of mirrors' members.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: stria task list --mount /mnt/home\nExample: stria task pause 'scrub:*' --mount /mnt/home"
)]
pub struct Task {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what goes on and what is paused, how far it is, and what remains to be done by hand.
    #[command(after_help = "Example: stria task list --mgs 10.0.0.5@tcp")]
    List(List),
    /// Pause tasks: resync:TARGET, drain:TARGET, scrub:TARGET or verify:TARGET. It lasts until it is taken back, also over restarts. The
    /// comparison of an MDT is not paused: it keeps a snapshot in memory.
    #[command(after_help = "\
Example: stria task pause resync:home-OST0003 --mount /mnt/home
Exit codes: 0 it is paused; 1 a server did not do it; 2 nothing was tried.")]
    Pause(Which),
    /// Let paused tasks go on.
    #[command(after_help = "\
Example: stria task resume 'scrub:*' --mount /mnt/home
Exit codes: 0 it goes on; 1 a server did not do it; 2 nothing was tried.")]
    Resume(Which),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    on: On,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Which {
    /// KIND:TARGET as `stria task list` shows it. `*` stands for any characters of the target's name.
    #[arg(value_name = "TASK", required = true)]
    tasks: Vec<String>,
    #[command(flatten)]
    on: On,
    /// JSON output: the tasks that were named.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Resync,
    Drain,
    Scrub,
    Verify,
}

const KINDS: [(&str, Kind); 4] =
    [("resync", Kind::Resync), ("drain", Kind::Drain), ("scrub", Kind::Scrub), ("verify", Kind::Verify)];

impl Kind {
    /// The parameter that the cluster map keeps while a task is paused.
    fn param(self) -> Option<Param> {
        match self {
            Kind::Resync => Some(Param::ResyncPause),
            Kind::Drain => Some(Param::DrainPause),
            Kind::Verify => Some(Param::VerifyPause),
            Kind::Scrub => None,
        }
    }
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    /// KIND:TARGET.
    task: String,
    paused: bool,
    #[serde(flatten)]
    seen: Seen,
}

/// A task that was paused or resumed.
#[derive(Debug, Serialize)]
struct Done {
    task: String,
    paused: bool,
}

impl Task {
    pub fn run(self) -> anyhow::Result<Exit> {
        crate::logs::start_for_tools();
        match self.verb {
            Verb::List(list) => list.run(),
            Verb::Pause(which) => which.run(true),
            Verb::Resume(which) => which.run(false),
        }
    }
}

impl List {
    fn run(self) -> anyhow::Result<Exit> {
        let management = self.on.manage()?;
        let mut lines = vec![];
        for reach in management.file_systems() {
            lines.extend(lines_of(&reach));
        }
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&lines)?),
            false if lines.is_empty() => outln!("nothing goes on, and nothing is paused"),
            false => lines.iter().for_each(print),
        }
        Ok(Exit::Done)
    }
}

fn print(line: &Line) {
    let seen = &line.seen;
    let done = seen.percent.map_or_else(String::new, |percent| format!("  {percent:.0} %"));
    let left = seen.left_sec.filter(|_| !line.paused);
    let left = left.map_or_else(String::new, |sec| format!(", about {} left", crate::cmd::ost::time(sec)));
    let state = if line.paused { "paused" } else { "active" };
    outln!("{}  {state}{done}{left}", line.task);
    let next = if line.paused {
        format!("`stria task resume {}` lets it go on", line.task)
    } else {
        seen.next.clone()
    };
    for text in [&seen.what, &next].into_iter().filter(|text| !text.is_empty()) {
        outln!("{}", bench::wrap::wrap(&format!("    {text}"), 4));
    }
}

/// The tasks of a file system. A pause is shown also where there is nothing to do now, so that it is not forgotten.
fn lines_of(reach: &Reach) -> Vec<Line> {
    let line = |seen: Seen, paused| Line { task: format!("{}:{}", seen.kind, seen.name), paused, seen };
    let marked = Draining::of(&df::shown(reach));
    let mut seen = tasks::resyncs(&mirror::pairs(reach));
    seen.extend(Drains::default().tasks(Instant::now(), &marked));
    let mut lines: Vec<Line> = seen
        .into_iter()
        .map(|seen| {
            let paused = is_paused(reach, seen.kind, &seen.name);
            line(seen, paused)
        })
        .collect();
    for running in scrub::running(reach) {
        let paused = running.is_paused;
        lines.extend(tasks::scrubs(vec![running]).into_iter().map(|seen| line(seen, paused)));
    }
    for running in verify::running(reach) {
        let paused = is_paused(reach, "verify", &running.name);
        lines.extend(tasks::verifies(vec![running]).into_iter().map(|seen| line(seen, paused)));
    }
    let shown: BTreeSet<String> = lines.iter().map(|line| line.task.clone()).collect();
    for mirror in reach.map.mirrors.iter().filter(|mirror| mirror.fs == reach.fs) {
        for (kind, _) in KINDS {
            let name = mirror_name(&reach.map, mirror);
            if is_paused(reach, kind, &name) && !shown.contains(&format!("{kind}:{name}")) {
                lines.push(line(Seen::nothing(kind, name), true));
            }
        }
    }
    lines
}

/// By the parameter that the map keeps.
fn is_paused(reach: &Reach, kind: &str, name: &str) -> bool {
    let known = KINDS.iter().find(|(word, _)| *word == kind);
    let Some(param) = known.and_then(|(_, kind)| kind.param()) else { return false };
    let mirror = reach.map.mirrors.iter().find(|m| m.fs == reach.fs && mirror_name(&reach.map, m) == name);
    mirror.is_some_and(|mirror| kept(&reach.map, mirror.primary, param) == Some(1))
}

/// The kind and the pattern of names of KIND:TARGET.
fn parse(task: &str) -> Result<(Kind, &str), Failure> {
    let (word, pattern) = task.split_once(':').unwrap_or((task, ""));
    match KINDS.iter().find(|(known, _)| *known == word) {
        Some((_, kind)) if !pattern.is_empty() => Ok((*kind, pattern)),
        _ => {
            let next = "write resync:TARGET, drain:TARGET, scrub:TARGET or verify:TARGET";
            Err(Failure::unusable(format!("{task:?}"), "it names no task", next))
        }
    }
}

impl Which {
    fn run(self, pauses: bool) -> anyhow::Result<Exit> {
        let wanted: Vec<(Kind, &str)> =
            self.tasks.iter().map(|task| parse(task)).collect::<Result<_, _>>()?;
        let management = self.on.manage()?;
        let systems = management.file_systems();
        let (mut done, mut refused) = (vec![], None);
        for ((kind, pattern), task) in wanted.into_iter().zip(&self.tasks) {
            let before = (done.len(), refused.is_some());
            for reach in &systems {
                let mirrors: Vec<&Mirror> = matching(reach, kind, pattern);
                if mirrors.is_empty() {
                    continue;
                }
                match kind.param() {
                    None => refused = scrubs(reach, &mirrors, pauses, &mut done).or(refused),
                    Some(param) => {
                        keep(&management, reach, (param, pattern), pauses)?;
                        let word = task.split_once(':').map_or("", |(word, _)| word);
                        let named = mirrors.iter().map(|m| format!("{word}:{}", mirror_name(&reach.map, m)));
                        done.extend(named.map(|task| Done { task, paused: pauses }));
                    }
                }
            }
            if before == (done.len(), refused.is_some()) {
                let next = "`stria status` lists the targets; MDTs are not drained, and their comparisons are not paused; a mirror has two members";
                return Err(Failure::unusable(task, "no target is meant", next).into());
            }
        }
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(&done)?),
            false => {
                let word = if pauses { "is paused" } else { "goes on" };
                done.iter().for_each(|one| outln!("{} {word}", one.task));
            }
        }
        refused.map_or(Ok(Exit::Done), |failure| Err(failure.into()))
    }
}

/// The mirrors that a task of this kind may have.
fn matching<'r>(reach: &'r Reach, kind: Kind, pattern: &str) -> Vec<&'r Mirror> {
    let can = |mirror: &&Mirror| match kind {
        Kind::Resync => mirror.members.len() > 1,
        Kind::Drain => !mirror.is_mdt,
        Kind::Scrub => true,
        Kind::Verify => mirror.members.len() > 1 && !mirror.is_mdt,
    };
    let is_meant =
        |mirror: &&Mirror| mirror.fs == reach.fs && names(pattern, &mirror_name(&reach.map, mirror));
    reach.map.mirrors.iter().filter(can).filter(is_meant).collect()
}

fn keep(
    management: &Management,
    reach: &Reach,
    (param, pattern): (Param, &str),
    pauses: bool,
) -> anyhow::Result<()> {
    let change = KeptParam {
        fs: reach.fs,
        targets: pattern.to_owned(),
        name: param.def().name.to_owned(),
        value: pauses.then_some(1),
    };
    management.ask(&ChangeParams { changes: vec![change] })?;
    Ok(())
}

/// Each member scrubs by itself. One without a pass takes no pause: that is an error if it is so of all.
fn scrubs(reach: &Reach, mirrors: &[&Mirror], pauses: bool, done: &mut Vec<Done>) -> Option<Failure> {
    let mut refused = None;
    let meant: Vec<&Target> =
        reach.targets().into_iter().filter(|t| mirrors.iter().any(|m| m.has(t.id))).collect();
    let under_way = scrub::running(reach);
    let is_under_way = |t: &&Target| under_way.iter().any(|pass| pass.target == t.id);
    let some: Vec<&Target> = meant.iter().copied().filter(is_under_way).collect();
    for target in if some.is_empty() { meant } else { some } {
        let name = target_name(&reach.file_system().name, target.is_mdt, target.index);
        match scrub::pause(reach, target, pauses) {
            Ok(()) => done.push(Done { task: format!("scrub:{name}"), paused: pauses }),
            Err(e) => {
                let member = mgmt::member_name(&reach.map, target);
                eprintln!("stria: {member}: {e:#}");
                let next = "the line above says what to do; `stria task list` shows what goes on";
                refused = Some(Failure::failed(member, "it did not do it", next));
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_a_kind_and_a_target() {
        assert_eq!(parse("scrub:*").unwrap(), (Kind::Scrub, "*"));
        assert_eq!(parse("resync:home-OST0003").unwrap(), (Kind::Resync, "home-OST0003"));
        assert_eq!(parse("verify:home-OST*").unwrap(), (Kind::Verify, "home-OST*"));
        for bad in ["scrub", "fsck:x", "drain:", ""] {
            assert!(parse(bad).unwrap_err().to_string().contains("no task"), "{bad}");
        }
    }
}
