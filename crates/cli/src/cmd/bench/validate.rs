//! `stria bench validate`: checks a plan.

use bench::plan::{self, Environment, Finding, check};
use clap::Args;
use serde::Serialize;

use super::show::unusable;
use crate::cmd::completions::{Offered, plans};
use crate::exit::Exit;

/// Look for all that cannot work in a plan, at each of its scales, before anything is run. Exit code 1: something was found.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench validate mine.toml")]
pub struct Validate {
    /// The path of a plan's file, or a plan's name.
    #[arg(value_parser = Offered(plans), hide_possible_values = true)]
    plan: String,
    /// JSON output.
    #[arg(short = 'j', long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Validated {
    plan: String,
    scales: Vec<String>,
    findings: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    place: String,
    what: String,
    next: String,
}

impl Validate {
    pub fn run(self) -> anyhow::Result<Exit> {
        let plan = plan::load(&self.plan).map_err(|why| unusable(&self.plan, &why))?;
        let found =
            check::check(&plan, &Environment::here()).err().map(|found| found.list).unwrap_or_default();
        let exit = if found.is_empty() { Exit::Done } else { Exit::Findings };
        let scales: Vec<String> = plan.scales.keys().cloned().collect();
        if self.json {
            let of = |f: Finding| Found { place: f.place, what: f.what, next: f.next };
            let shown = Validated { plan: plan.name, scales, findings: found.into_iter().map(of).collect() };
            outln!("{}", serde_json::to_string_pretty(&shown)?);
            return Ok(exit);
        }
        found.iter().for_each(|finding| outln!("{finding}"));
        match found.len() {
            0 => outln!("{}: in order at {}", plan.name, scales.join(", ")),
            n => outln!("{}: {n} found", plan.name),
        }
        Ok(exit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    #[test]
    fn the_exit_code_says_whether_a_plan_is_in_order() {
        let dir = TestDir::new("bench-validate");
        let path = dir.path().join("mine.toml");
        let run = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Validate { plan: path.display().to_string(), json: false }.run()
        };
        let good = plan::text("quick").unwrap();
        assert_eq!(run(&good).unwrap(), Exit::Done);
        let bad = good.replacen(r#"op = "write""#, r#"op = "erase""#, 1);
        assert_eq!(run(&bad).unwrap(), Exit::Findings);
        let said = run(&good.replacen("title", "titel", 1)).unwrap_err();
        assert_eq!(crate::exit::code_of(&said), Exit::Unusable);
        let said = Validate { plan: "no-such-plan".into(), json: false }.run().unwrap_err().to_string();
        assert!(said.contains("the plans are quick, pixstor-nvme"), "{said}");
    }
}
