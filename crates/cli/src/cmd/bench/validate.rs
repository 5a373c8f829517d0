//! `stria bench validate`: is a plan in order?

use bench::plan::{self, Environment, check};
use clap::Args;

use super::show::unusable;
use crate::exit::Exit;

/// Look for all that cannot work in a plan, at each of its scales, before anything is run. Exit code 1: something was found.
#[derive(Debug, Args)]
#[command(after_help = "Example: stria bench validate mine.toml")]
pub struct Validate {
    /// The path of a plan's file, or a plan's name.
    plan: String,
}

impl Validate {
    pub fn run(self) -> anyhow::Result<Exit> {
        let plan = plan::load(&self.plan).map_err(|why| unusable(&self.plan, &why))?;
        let Err(found) = check::check(&plan, &Environment::here()) else {
            let scales: Vec<&str> = plan.scales.keys().map(String::as_str).collect();
            outln!("{}: in order at {}", plan.name, scales.join(", "));
            return Ok(Exit::Done);
        };
        for finding in &found.list {
            outln!("{finding}");
        }
        outln!("{}: {} found", plan.name, found.list.len());
        Ok(Exit::Findings)
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
            Validate { plan: path.display().to_string() }.run()
        };
        let good = plan::text("quick").unwrap();
        assert_eq!(run(&good).unwrap(), Exit::Done);
        let bad = good.replacen(r#"op = "write""#, r#"op = "erase""#, 1);
        assert_eq!(run(&bad).unwrap(), Exit::Findings);
        let said = run(&good.replacen("title", "titel", 1)).unwrap_err();
        assert_eq!(crate::exit::code_of(&said), Exit::Unusable);
        let said = Validate { plan: "no-such-plan".into() }.run().unwrap_err().to_string();
        assert!(said.contains("the plans are quick, pixstor-nvme"), "{said}");
    }
}
