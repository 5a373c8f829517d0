//! `stria bench show`: the steps of a plan at a scale, or the plan itself.

use std::path::PathBuf;

use bench::plan::{self, Environment};
use clap::Args;

use super::run::{bytes_of, set};
use crate::cmd::completions::{Offered, plans, scales};
use crate::exit::{Exit, Failure};

/// A plan at a scale on this machine: steps, points, phases, sizes, time, space, and the steps that it would skip.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench show pixstor-nvme --scale full
         stria bench show quick --toml > mine.toml")]
pub struct Show {
    /// A plan's name (see `stria bench list`), or the path of a file.
    #[arg(value_parser = Offered(plans), hide_possible_values = true)]
    plan: String,
    /// Which of the plan's scales.
    #[arg(long, value_name = "SCALE", default_value = "small", value_parser = Offered(scales))]
    scale: String,
    /// JSON output.
    #[arg(short = 'j', long, conflicts_with = "toml")]
    json: bool,
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
        let plan = plan::load(&self.plan).map_err(|why| unusable(&self.plan, &why))?;
        let environment = self.environment().map_err(|why| {
            Failure::unusable("bench show", format!("{why:#}"), "see `stria bench show --help`")
        })?;
        let shown = match self.json {
            true => plan::show::json(&plan, &self.scale, &environment).map(|json| format!("{json:#}\n")),
            false => plan::show::text(&plan, &self.scale, &environment),
        };
        let text = shown.map_err(|found| {
            let next =
                format!("correct it; `stria bench validate {}` lists all", crate::shell::word(&self.plan));
            Failure::unusable("bench show", found, next)
        })?;
        out!("{text}");
        Ok(Exit::Done)
    }

    fn environment(&self) -> anyhow::Result<Environment> {
        let mut environment = Environment::here();
        environment.overrides = self.set.iter().map(|text| set(text)).collect::<anyhow::Result<_>>()?;
        let bytes = self.targets.iter().map(|path| bytes_of(path)).collect::<anyhow::Result<Vec<u64>>>()?;
        environment.target_bytes = bytes.into_iter().min().unwrap_or(0);
        environment.targets =
            self.targets.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?;
        Ok(environment)
    }
}

pub fn unusable(name: &str, why: &anyhow::Error) -> Failure {
    let next = "see `stria bench list`, or correct the file; docs/bench-plans.md has the words";
    Failure::unusable(format!("bench plan {name}"), format!("{why:#}"), next)
}
