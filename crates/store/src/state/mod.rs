//! The engine's state in memory: log tail, overlay, sessions' slots, free space, grants, counters.

pub mod engine;
pub mod grants;
pub mod overlay;
pub mod readers;
pub mod room;
pub mod service;
pub mod slots;
pub mod space;
pub mod stats;
pub mod tail;
pub mod waste;
