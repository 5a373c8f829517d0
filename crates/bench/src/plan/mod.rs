//! Plans: what is measured, at which points, and which tables and figures are made of it. TOML; unknown fields are refused.
//!
//! `schema` is what the file says, `value` evaluates quantities, `expand` makes phases of it that can be run, `check` finds
//! what cannot work before anything is run, `estimate` and `show` say how much it moves. Plans of the studies are in the program.

mod builtin;
pub mod check;
mod environment;
pub mod estimate;
pub mod expand;
pub mod finding;
pub mod schema;
pub mod show;
pub mod value;

pub use builtin::{BUILT_IN, load, text};
pub use environment::Environment;
pub use expand::{PlannedPart, PlannedPhase, PlannedPoint, PlannedStep, Program, expand};
pub use finding::{Finding, Findings};
pub use schema::{Figure, Phase, Plan, Published, Scale, Step, Table};

#[cfg(test)]
mod tests;
