//! Work on stored state that no request asks for: destage, checkpoint, recovery, discard, scrub, survey, format,
//! and the work of a mirror's members for each other.

pub mod checkpoint;
pub mod compare;
pub mod destage;
pub mod discard;
pub mod fill;
pub mod follow;
pub mod format;
pub mod recover;
pub mod refill;
pub mod repair;
pub mod scrub;
pub mod ship;
pub mod survey;
