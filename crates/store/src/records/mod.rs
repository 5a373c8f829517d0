//! The parts of an object, in memory and as bytes: index, leaves, extents, patches, log records, settings, errors.

pub mod chunks;
pub mod codec;
pub mod error;
pub mod extent;
pub mod fill;
pub mod index;
pub mod index_report;
pub mod leaf;
pub mod named;
pub mod page;
pub mod patch;
pub mod record;
pub mod reserved;
pub mod rewrite;
pub mod scrub_state;
pub mod settings;
pub mod shipped;
