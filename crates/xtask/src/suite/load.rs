//! Many sessions at one MDT and one OST, through a kill of both (`testkit::load`).

use anyhow::Result;
use testkit::Shape;
use testkit::load::Plan;

use super::{Bench, Needs, Scale, Test};
use crate::load;

pub const TESTS: &[(Needs, Test)] =
    &[(Needs::Load, ("load::all_sessions_come_back_after_a_kill_of_the_servers", come_back))];

/// How long active sessions work before the kill.
const SECONDS: u64 = 3;

fn plan(scale: Scale) -> Plan {
    load::plan(scale.sessions, SECONDS)
}

pub fn shape(scale: Scale) -> Shape {
    plan(scale).shape()
}

fn come_back(b: &mut Bench) -> Result<()> {
    let plan = plan(b.scale);
    load::run(&mut b.cluster, &plan)
}
