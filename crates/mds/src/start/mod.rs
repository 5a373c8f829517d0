//! Start: format a new MDT, recover one from its medium, run its background threads.

pub mod fill;
pub mod format;
pub mod recover;
pub mod replica;
pub mod standby;
pub mod workers;
