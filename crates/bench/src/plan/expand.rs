//! What a plan comes to at one scale: steps, their points, and phases whose jobs are resolved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::schema::Need;
use crate::job::Job;

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedStep {
    pub id: String,
    pub title: String,
    pub needs: Vec<Need>,
    /// Run before the points, output kept; `{dir}` is replaced.
    pub commands: Vec<Vec<String>>,
    pub points: Vec<PlannedPoint>,
}

/// One combination of swept parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPoint {
    pub values: BTreeMap<String, serde_json::Value>,
    pub processes: u32,
    pub phases: Vec<PlannedPhase>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPhase {
    pub name: String,
    pub cold: bool,
    pub measured: bool,
    pub program: Program,
    /// The program that does the same in turn with it.
    pub against: Option<Program>,
    /// What is done at once; more than one for `together`.
    pub parts: Vec<PlannedPart>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPart {
    /// Empty if the phase has one part only.
    pub name: String,
    /// Its paths are relative: to the directory that the point gets.
    pub job: Job,
}

/// Who does a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    Stria,
    Fio,
    Ior,
    Mdtest,
    Iozone,
}
