//! Real programs on the mount, a file per topic. Each is run as its users run it, and judged by its own checks and by ours.
//!
//! Where a program has two sides (a writer and a reader, two committers), the second works through [`Bench::look`].

mod builds;
pub mod databases;
mod fio;
mod git;
mod load;
pub mod postgres;
mod power;
mod replace;
mod scripts;
pub mod sqlite;
mod trees;

use super::{Needs, Test};

pub use scripts::{judge, script};

pub fn all() -> Vec<(Needs, Test)> {
    [
        trees::TESTS,
        git::TESTS,
        fio::TESTS,
        builds::TESTS,
        replace::TESTS,
        scripts::TESTS,
        load::TESTS,
        sqlite::TESTS,
        postgres::TESTS,
        power::TESTS,
    ]
    .concat()
}
