//! Searching trees by tests, as `find` and `lfs find` do: the language of tests, and a walk by several threads.
//!
//! A test asks a `Subject`, which an entry of a walk is. So another source of entries needs no other language.

mod expr;
mod glob;
mod measure;
mod names;
mod parse;
mod perm;
mod show;
mod striping;
mod walk;

pub use expr::{Context, Expr, Kind, Stat, Subject, Test, Which};
pub use glob::Glob;
pub use measure::{Measure, Sign};
pub use names::{Names, gid_of, uid_of};
pub use parse::{Query, parse};
pub use perm::Perm;
pub use show::Show;
pub use striping::{Part, Striping};
pub use walk::{Found, Visitor, entry, visit, walk};
