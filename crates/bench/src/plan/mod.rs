//! Plans: what is measured, at which points, and which tables and figures are made of it. TOML; unknown fields are refused.
//!
//! `schema` is what the file says, `value` evaluates quantities, `expand` makes phases of it that can be run, `check` finds
//! what cannot work before anything is run.

pub mod expand;
pub mod schema;

pub use expand::{PlannedPart, PlannedPhase, PlannedPoint, PlannedStep, Program};
pub use schema::{Figure, Phase, Plan, Published, Scale, Step, Table};
