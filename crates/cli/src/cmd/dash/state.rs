//! The figures of the last look, as the page gets them: `/api/state.json`. Each section has the time of its figures, and why they are not newer.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;

use super::history::{History, Points};
use super::tasks::Task;
use crate::cmd::status::{Finding, Weight, word_of};
use crate::cmd::{damage, df, jobs, mirror};

/// A part of the page.
#[derive(Debug, Serialize)]
pub struct Section<T> {
    /// Milliseconds since 1970 of the figures; 0: there are none yet.
    pub at_ms: u64,
    /// Why the last look failed. The figures are those of an earlier one, unless `is_part`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// With a fault: the figures are of the last look all the same, and lack a part.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_part: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<T>,
}

impl<T> Default for Section<T> {
    fn default() -> Section<T> {
        Section { at_ms: 0, fault: None, is_part: false, seen: None }
    }
}

impl<T> Section<T> {
    pub fn see(&mut self, seen: T) {
        *self = Section { at_ms: now_ms(), seen: Some(seen), ..Section::default() };
    }
    /// The look failed.
    pub fn miss(&mut self, why: String) {
        (self.fault, self.is_part) = (Some(why), false);
    }
    /// The look has figures, and lacks a part of them.
    pub fn lack(&mut self, why: String) {
        (self.fault, self.is_part) = (Some(why), true);
    }
}

/// The cluster map.
#[derive(Debug, Serialize)]
pub struct Reached {
    pub map_version: u64,
    /// "on", "off", "local".
    pub tls: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Health {
    /// "ok", "warning", "error".
    pub word: &'static str,
    pub sentence: String,
    /// The gravest first.
    pub findings: Vec<Finding>,
    pub targets: usize,
    pub targets_up: usize,
    pub clients: u32,
}

impl Health {
    pub fn of(
        fsname: &str,
        findings: Vec<Finding>,
        (targets_up, targets): (usize, usize),
        clients: u32,
    ) -> Health {
        let word = word_of(&findings);
        let count = |weight| findings.iter().filter(|finding| finding.weight == weight).count();
        let number = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let (errors, warnings) = (count(Weight::Error), count(Weight::Warning));
        let sentence = match (errors, warnings) {
            (0, 0) => format!("{fsname} is well: {targets_up} of {targets} targets serve."),
            (0, n) => format!("{fsname} works, with {} to look at.", number(n, "warning")),
            (n, 0) => format!("{fsname} has {}.", number(n, "error")),
            (n, m) => format!("{fsname} has {} and {}.", number(n, "error"), number(m, "warning")),
        };
        Health { word, sentence, findings, targets, targets_up, clients }
    }
}

/// Rates of the last interval.
#[derive(Debug, Serialize)]
pub struct Rates {
    pub seconds: f64,
    /// Bytes per second.
    pub read: f64,
    pub written: f64,
    /// Requests per second, and those of them that failed.
    pub calls: f64,
    pub errors: f64,
    pub top: Vec<Top>,
}

/// The busiest ones of a kind.
#[derive(Debug, Serialize)]
pub struct Top {
    pub by: jobs::By,
    pub rows: Vec<TopRow>,
}

#[derive(Debug, Serialize)]
pub struct TopRow {
    pub name: String,
    pub read: f64,
    pub written: f64,
    pub calls: f64,
    /// Percent of the time that servers worked for it; 300: three requests at once.
    pub busy: f64,
}

#[derive(Debug, Serialize)]
pub struct Mirror {
    #[serde(flatten)]
    pub line: mirror::Line,
    pub summary: String,
    /// The reason for which its members wait, and the next step.
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Damage {
    pub count: usize,
    /// Not repaired.
    pub bad: usize,
    /// The first of them.
    pub lines: Vec<damage::Line>,
}

#[derive(Debug, Default, Serialize)]
pub struct State {
    pub version: &'static str,
    /// Milliseconds since 1970 when this was sent.
    pub now_ms: u64,
    pub every_sec: u64,
    /// Milliseconds that the look of now has taken so far; 0: none is under way. A server that is silent makes it long.
    pub looking_ms: u64,
    #[serde(skip)]
    pub look_began: Option<Instant>,
    /// Empty: not known yet.
    pub fsname: String,
    pub reached: Section<Reached>,
    pub health: Section<Health>,
    pub capacity: Section<df::Shown>,
    pub rates: Section<Rates>,
    pub mirrors: Section<Vec<Mirror>>,
    pub tasks: Vec<Task>,
    pub damage: Section<Damage>,
    /// Why the history is not kept on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_fault: Option<String>,
}

/// Between the watcher and the page.
pub struct Shared {
    pub state: Mutex<State>,
    pub history: Mutex<History>,
    every_sec: u64,
}

impl Shared {
    pub fn new(history: History, every_sec: u64) -> Shared {
        let state = State { version: env!("CARGO_PKG_VERSION"), every_sec, ..State::default() };
        Shared { state: Mutex::new(state), history: Mutex::new(history), every_sec }
    }

    pub fn json(&self) -> serde_json::Result<Vec<u8>> {
        let mut state = self.state.lock();
        state.now_ms = now_ms();
        state.looking_ms = state.look_began.map_or(0, |began| began.elapsed().as_millis() as u64);
        serde_json::to_vec(&*state)
    }

    pub fn points(&self, span_sec: u64) -> Points {
        self.history.lock().points(span_sec, self.every_sec, now_ms() / 1000)
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_says_how_it_is() {
        let finding = |weight| Finding { weight, what: "it".into(), hint: "do".into() };
        let (error, warning, advice) = (Weight::Error, Weight::Warning, Weight::Advice);
        for (weights, word, sentence) in [
            (vec![], "ok", "home is well: 4 of 5 targets serve."),
            (vec![advice], "ok", "home is well: 4 of 5 targets serve."),
            (vec![warning], "warning", "home works, with 1 warning to look at."),
            (vec![error, error], "error", "home has 2 errors."),
            (vec![error, warning, advice], "error", "home has 1 error and 1 warning."),
        ] {
            let health = Health::of("home", weights.into_iter().map(finding).collect(), (4, 5), 2);
            assert_eq!((health.word, health.sentence.as_str()), (word, sentence));
        }
    }

    #[test]
    fn a_look_that_fails_leaves_the_figures_of_before() {
        let mut section = Section::default();
        section.see(7);
        let at_ms = section.at_ms;
        section.miss("it does not answer".into());
        assert_eq!((section.at_ms, section.seen), (at_ms, Some(7)));
        section.see(8);
        assert_eq!((section.fault, section.seen), (None, Some(8)));
    }
}
