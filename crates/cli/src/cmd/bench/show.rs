//! `stria bench show`: what a plan does at a scale, or the plan itself.

use std::path::PathBuf;

use bench::plan::{self, Environment, Plan};
use clap::Args;

use crate::exit::{Exit, Failure};

/// What a plan does at a scale on this machine: steps, points, phases, sizes, time, room, and what would be skipped.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench show pixstor-nvme --scale full
         stria bench show quick --toml > mine.toml")]
pub struct Show {
    /// A plan's name (see `stria bench list`), or the path of a file.
    plan: String,
    /// Which of the plan's scales.
    #[arg(long, value_name = "SCALE", default_value = "small")]
    scale: String,
    /// The plan's file itself, as a start for one's own.
    #[arg(long, conflicts_with_all = ["set", "targets"])]
    toml: bool,
    /// A value in place of the scale's: threads=1,2,4 or total=8G. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Files or devices for the steps that take them; nothing is written by `show`.
    #[arg(long, value_name = "PATH", num_args = 1.., value_delimiter = ',')]
    targets: Vec<PathBuf>,
}

impl Show {
    pub fn run(self) -> anyhow::Result<Exit> {
        if self.toml {
            let text = plan::text(&self.plan).map_err(|why| unusable(&self.plan, &why))?;
            out!("{text}");
            return Ok(Exit::Done);
        }
        let (plan, environment) = prepare(&self.plan, &self.set, &self.targets)?;
        let text = plan::show::text(&plan, &self.scale, &environment).map_err(|found| {
            let next = format!("correct it; `stria bench validate {}` lists all", self.plan);
            Failure::unusable("bench show", found, next)
        })?;
        out!("{text}");
        Ok(Exit::Done)
    }
}

/// The plan and what it is expanded for, from the options that several verbs have.
pub fn prepare(name: &str, set: &[String], targets: &[PathBuf]) -> anyhow::Result<(Plan, Environment)> {
    let plan = plan::load(name).map_err(|why| unusable(name, &why))?;
    let mut environment = Environment::here().with_targets(targets).map_err(|why| {
        Failure::unusable("bench", format!("{why:#}"), "give files or devices that can be read as --targets")
    })?;
    for text in set {
        environment.set(text).map_err(|why| {
            Failure::unusable("bench", format!("{why:#}"), "write --set threads=1,2,4 or --set total=8G")
        })?;
    }
    Ok((plan, environment))
}

pub fn unusable(name: &str, why: &anyhow::Error) -> Failure {
    let next = "see `stria bench list`, or correct the file; docs/bench-plans.md has the words";
    Failure::unusable(format!("bench plan {name}"), format!("{why:#}"), next)
}
