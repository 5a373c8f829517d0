//! Stories of clusters that lose power, links, servers and clients: one test per promise of docs/SEMANTICS.md, quoting it.
//!
//! `STRIA_LONG=1` tells each with many more seeds. A failure names its seed and event.

#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly fails, as it should")]

mod backup;
mod campaign;
mod damage;
mod door;
mod du;
mod exactly_once;
mod fsck;
mod fsync;
mod full;
mod kill;
mod left_over;
mod linear;
mod model;
mod names;
mod nothing_comes_back;
mod power_loss;
mod replay;
mod steps;
mod windows;
