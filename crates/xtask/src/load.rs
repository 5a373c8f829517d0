//! `cargo xtask load`: thousands of sessions at one MDT and one OST (`testkit::load`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::Cluster;
use testkit::load::{self, Orders, Plan};

/// Bar for the time from a kill of the servers until every session has had a successful request.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// A worker's instructions.
#[derive(clap::Args)]
pub struct WorkerArgs {
    mgs: String,
    first: u64,
    sessions: u64,
    together: u64,
    lines: u64,
}

pub fn plan(sessions: u64, seconds: u64) -> Plan {
    Plan { sessions, work_for: Duration::from_secs(seconds), back_within: BACK_WITHIN }
}

pub fn load(bin: &Path, parent: &Path, sessions: u64, seconds: u64) -> Result<()> {
    let plan = plan(sessions, seconds);
    run(&mut Cluster::start(bin, parent, plan.shape())?, &plan)
}

/// Runs a plan on its cluster and prints the report; fails if a bar is not met.
pub fn run(cluster: &mut Cluster, plan: &Plan) -> Result<()> {
    let report = load::run(cluster, plan, &command)?;
    println!("{report}");
    let missed = report.missed(plan);
    ensure!(missed.is_empty(), "{}", missed.join("; "));
    Ok(())
}

fn command(orders: &Orders) -> Result<Command> {
    let Orders { mgs, first, sessions, together, lines } = orders;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["load-worker", mgs]).args([first, sessions, together, lines].map(|n| n.to_string()));
    Ok(command)
}

pub fn work(args: WorkerArgs) -> Result<()> {
    let WorkerArgs { mgs, first, sessions, together, lines } = args;
    load::work(&Orders { mgs, first, sessions, together, lines })
}
