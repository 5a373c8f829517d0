//! The engine's state in memory: log tail, overlay, sessions' slots, free space, grants, the mirror, counters.

pub mod engine;
pub mod finding;
pub mod grants;
pub mod lane;
pub mod mirror;
pub mod overlay;
pub mod readers;
pub mod room;
pub mod service;
pub mod sharing;
pub mod slots;
pub mod space;
pub mod stages;
pub mod stats;
pub mod tail;
pub mod under_way;
pub mod waste;
