//! `stria bench list`: the built-in plans.

use bench::plan;
use bench::wrap::wrap;
use clap::Args;
use serde::Serialize;

use crate::exit::Exit;

/// The plans that `stria bench run` knows by name: what each measures, and the study that it repeats.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench list")]
pub struct List {
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: String,
    title: String,
    study: String,
}

impl List {
    pub fn run(self) -> anyhow::Result<Exit> {
        let plans = plan::BUILT_IN.iter().map(|(name, _)| plan::load(name)).collect::<Result<Vec<_>, _>>()?;
        let line = |plan: plan::Plan| Line { name: plan.name, title: plan.title, study: plan.study };
        let lines: Vec<Line> = plans.into_iter().map(line).collect();
        if self.json {
            outln!("{}", serde_json::to_string_pretty(&lines)?);
            return Ok(Exit::Done);
        }
        for Line { name, title, study } in lines {
            outln!("{}", wrap(&format!("{name:<14} {title}"), 17));
            if !study.is_empty() {
                outln!("{}", wrap(&format!("{:<14}   study: {study}", ""), 24));
            }
        }
        Ok(Exit::Done)
    }
}
