//! The executor, recovery and sessions, under a rule set of a few lines (`rules`), on media that lose power (`rig`).

mod backup;
mod batch_call;
mod batches;
mod changelog;
mod check;
mod counts;
mod crash;
mod exactly_once;
mod fair;
mod hammered;
mod image;
mod leases;
mod limits;
mod locks;
mod matrix;
mod meta_rules;
pub mod mirror;
mod nodemap;
mod opens;
mod overdue;
mod owners;
mod purge;
mod rig;
mod rules;
mod sessions;
