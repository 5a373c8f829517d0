//! Upkeep: checkpoints, purge, checks, backups, counts and the changelog, each mostly on a background thread.

pub mod abandoned;
pub mod backup;
pub mod changelog;
pub mod check;
pub mod checkpoint;
pub mod compare;
pub mod counts;
pub mod hold;
pub mod purge;
pub mod scrub;
pub mod verify;
pub mod whole;
