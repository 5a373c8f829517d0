//! Work that goes on in the background, with its progress and the time that is left: resyncs of mirrors, drains, passes of scrub,
//! comparisons of members.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cmd::mirror::verify;
use crate::cmd::{df, mirror, scrub};
use types::size::human;

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Task {
    /// "resync", "drain", "scrub", "verify".
    pub kind: &'static str,
    /// Mirror or OST.
    pub name: String,
    pub what: String,
    /// `None`: not known.
    pub percent: Option<f64>,
    pub left_sec: Option<u64>,
    /// Empty: it goes on by itself.
    pub next: String,
}

impl Task {
    /// A task of this kind that has nothing to do.
    pub fn nothing(kind: &'static str, name: String) -> Task {
        let what = "there is nothing to do now".into();
        Task { kind, name, what, percent: None, left_sec: None, next: String::new() }
    }
}

/// An OST that is being drained, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draining {
    pub name: String,
    pub used: u64,
    pub objects: u64,
}

impl Draining {
    /// The OSTs of a table of space that are marked and answer.
    pub fn of(shown: &df::Shown) -> Vec<Draining> {
        let is_marked = |line: &&df::Line| line.draining && line.is_up();
        let of = |line: &df::Line| Draining {
            name: line.name.clone(),
            used: line.bytes_used,
            objects: line.files_used,
        };
        shown.targets.iter().filter(is_marked).map(of).collect()
    }
}

/// Drains since this process saw them first: no server keeps how much there was at the begin.
#[derive(Default)]
pub struct Drains(BTreeMap<String, (Instant, u64)>);

impl Drains {
    /// The tasks of all OSTs that are marked now.
    pub fn tasks(&mut self, now: Instant, marked: &[Draining]) -> Vec<Task> {
        self.0.retain(|name, _| marked.iter().any(|one| one.name == *name));
        marked.iter().map(|one| self.task(now, one)).collect()
    }

    fn task(&mut self, now: Instant, one: &Draining) -> Task {
        let Draining { name, used, objects } = one;
        let (since, first) = self.0.entry(name.clone()).or_insert((now, *used));
        // Programs may have written since to files that are there still.
        *first = (*first).max(*used);
        let moved = *first - used;
        let took = now.saturating_duration_since(*since);
        let left_sec = left_of(took, moved, *used);
        let task = Task {
            kind: "drain",
            name: name.clone(),
            what: String::new(),
            percent: None,
            left_sec,
            next: String::new(),
        };
        match (objects, moved) {
            (0, _) => Task {
                what: "it is empty".into(),
                percent: Some(100.0),
                left_sec: None,
                next: format!("`stria target remove {name}` takes it out"),
                ..task
            },
            (_, 0) => Task {
                what: format!("{} in {objects} objects are there, and none has moved yet", human(*used)),
                percent: Some(0.0),
                next: format!("`stria target drain {name}` moves its content, unless it runs already"),
                ..task
            },
            _ => Task {
                what: format!("{} of {} have moved; {objects} objects are left", human(moved), human(*first)),
                percent: Some(percent(moved, *first)),
                ..task
            },
        }
    }
}

/// Mirrors with a member that lacks changes.
pub fn resyncs(lines: &[mirror::Line]) -> Vec<Task> {
    let task = |line: &mirror::Line| {
        let progress = line.progress();
        let left = progress.map(|(.., left_sec)| u64::from(left_sec)).filter(|left| *left > 0);
        let mut notes = line.notes();
        let first = if notes.is_empty() { line.summary() } else { notes.remove(0) };
        let (what, next) = first.split_once("; ").unwrap_or((&first, ""));
        Task {
            kind: "resync",
            name: line.name.clone(),
            what: what.to_owned(),
            percent: progress.map(|(done, of, _)| percent(done, of)),
            left_sec: left,
            next: next.to_owned(),
        }
    };
    lines.iter().filter(|line| !line.is_whole()).map(task).collect()
}

pub fn scrubs(running: Vec<scrub::Running>) -> Vec<Task> {
    let task = |one: scrub::Running| Task {
        kind: "scrub",
        name: one.name,
        what: {
            let note = if one.is_paused { "; it is paused" } else { "" };
            format!("{} of about {} read{note}", human(one.done), human(one.of))
        },
        // Files that are written meanwhile make a pass longer than it seemed.
        percent: Some(percent(one.done, one.of).min(99.0)),
        left_sec: one.of.saturating_sub(one.done).checked_div(one.rate).filter(|_| !one.is_paused),
        next: String::new(),
    };
    running.into_iter().map(task).collect()
}

pub fn verifies(running: Vec<verify::Running>) -> Vec<Task> {
    let task = |one: verify::Running| {
        let verify::Running { name, things, done, of, found } = one;
        let next = match found {
            0 => String::new(),
            _ => format!("`stria mirror verify {name}` shows the differences"),
        };
        Task {
            kind: "verify",
            what: format!("{done} of about {of} {things} of the two members compared, {found} differences"),
            // Files that are made meanwhile make it longer than it seemed.
            percent: Some(percent(done, of).min(99.0)),
            // It waits for the work of clients, so that the time is not known.
            left_sec: None,
            name,
            next,
        }
    };
    running.into_iter().map(task).collect()
}

fn percent(done: u64, of: u64) -> f64 {
    (done as f64 * 100.0 / of.max(1) as f64).clamp(0.0, 100.0)
}

/// `None`: nothing has moved yet.
fn left_of(took: Duration, moved: u64, left: u64) -> Option<u64> {
    let rate = moved as f64 / took.as_secs_f64().max(0.001);
    (moved > 0).then_some((left as f64 / rate) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::mirror::tests::doubled;
    use wire::map::MemberState;

    #[test]
    fn a_drain_tells_what_has_moved_and_the_time_that_is_left() {
        let (mut drains, now) = (Drains::default(), Instant::now());
        let mut task = |after: u64, used: u64, objects| {
            let one = Draining { name: "home-OST0001".into(), used: used << 20, objects };
            drains.tasks(now + Duration::from_secs(after), &[one]).remove(0)
        };
        let first = task(0, 100, 9);
        assert_eq!((first.percent, first.left_sec), (Some(0.0), None));
        assert!(first.next.starts_with("`stria target drain home-OST0001`"), "{first:?}");
        let later = task(10, 75, 6);
        assert_eq!((later.percent, later.left_sec, later.next.as_str()), (Some(25.0), Some(30), ""));
        assert_eq!(later.what, "25.0M of 100.0M have moved; 6 objects are left");
        let end = task(20, 1, 0);
        assert_eq!((end.percent, end.left_sec), (Some(100.0), None));
        assert!(end.next.contains("stria target remove home-OST0001"), "{end:?}");
        // A mark that was taken back and set again begins anew.
        assert!(drains.tasks(now, &[]).is_empty());
        assert!(drains.0.is_empty());
    }

    #[test]
    fn a_mirror_that_is_not_whole_is_a_task_with_its_next_step() {
        assert!(resyncs(&mirror::lines(&doubled(MemberState::InSync), None)).is_empty());
        let tasks = resyncs(&mirror::lines(&doubled(MemberState::Out), None));
        assert_eq!((tasks.len(), tasks[0].name.as_str()), (1, "home-OST0000"));
        assert_eq!(tasks[0].what, "target 4 on oss2 lacks changes");
        assert!(tasks[0].next.starts_with("it is resynced once it reaches the primary"), "{tasks:?}");
    }

    #[test]
    fn a_comparison_tells_its_differences_and_where_they_are_shown() {
        let running = |found| verify::Running {
            name: "home-OST0000".into(),
            things: "objects",
            done: 30,
            of: 120,
            found,
        };
        let tasks = verifies(vec![running(0), running(2)]);
        assert_eq!((tasks[0].percent, tasks[0].next.as_str()), (Some(25.0), ""));
        assert_eq!(tasks[1].what, "30 of about 120 objects of the two members compared, 2 differences");
        assert!(tasks[1].next.starts_with("`stria mirror verify home-OST0000`"), "{tasks:?}");
    }

    #[test]
    fn a_scrub_without_a_bound_leaves_the_time_open() {
        let running = |rate| scrub::Running {
            target: types::TargetId(1),
            name: "a".into(),
            done: 30 << 20,
            of: 90 << 20,
            rate,
            is_paused: false,
        };
        let tasks = scrubs(vec![running(0), running(10 << 20)]);
        assert_eq!(tasks.iter().map(|task| task.left_sec).collect::<Vec<_>>(), [None, Some(6)]);
        assert_eq!(tasks[0].what, "30.0M of about 90.0M read");
    }
}
