//! Plans define the measurements, their points, and the tables and figures of the report. TOML; unknown fields are refused.
//!
//! `schema` is the file's structure, `value` evaluates quantities, `expand` makes runnable phases, `check` finds errors
//! before a run, `estimate` and `show` give the amount of I/O. Plans of the studies are in the program.

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
