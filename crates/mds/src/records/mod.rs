//! The records of the table: how they are read, changed in a transaction, and written to the log.

pub mod ids;
pub mod kept;
pub mod ledger;
pub mod look;
pub mod overlay;
pub mod record;
