//! A finding about a plan: place, error and advice.

use std::fmt;

use super::schema::{Phase, Step};

/// A thing that is wrong, before it is known where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// `data.transfer`, or empty.
    pub field: String,
    pub what: String,
    pub next: String,
}

impl Trouble {
    pub fn new(what: impl Into<String>, next: impl Into<String>) -> Trouble {
        Trouble { field: String::new(), what: what.into(), next: next.into() }
    }

    /// Where it is, unless that is known already.
    pub fn at(mut self, field: &str) -> Trouble {
        if self.field.is_empty() {
            self.field = field.to_string();
        }
        self
    }
}

/// Trouble and its place in the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `step write, phase read, data.transfer`.
    pub place: String,
    pub what: String,
    pub next: String,
}

impl Finding {
    pub fn new(place: impl Into<String>, trouble: Trouble) -> Finding {
        let mut place = place.into();
        if !trouble.field.is_empty() {
            let comma = if place.is_empty() { "" } else { ", " };
            place = format!("{place}{comma}{}", trouble.field);
        }
        Finding { place, what: trouble.what, next: trouble.next }
    }

    pub fn of_phase(step: &Step, phase: &Phase, trouble: Trouble) -> Finding {
        Finding::new(format!("step {}, phase {}", step.id, phase.name), trouble)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.next)
    }
}

/// All that was found in one plan. As an error: a line each.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Findings {
    pub plan: String,
    pub list: Vec<Finding>,
}

impl Findings {
    pub fn new(plan: &str) -> Findings {
        Findings { plan: plan.to_string(), list: Vec::new() }
    }

    /// One finding per place: the same is found at each point of a sweep.
    pub fn add(&mut self, finding: Finding) {
        if self.list.iter().all(|known| known.place != finding.place) {
            self.list.push(finding);
        }
    }

    /// The value, if nothing was found.
    pub fn or<T>(self, value: T) -> Result<T, Findings> {
        if self.list.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> =
            self.list.iter().map(|finding| format!("plan {}, {finding}", self.plan)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Findings {}
