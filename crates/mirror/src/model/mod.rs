//! The rules in a world that fails: all orders of events for small sizes, random walks for larger ones, and planted faults.

mod explore;
mod faults;
mod fill;
mod walk;
mod world;
