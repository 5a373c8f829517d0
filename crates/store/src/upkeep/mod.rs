//! Work on stored state that no request asks for: destage, checkpoint, recovery, discard, scrub, survey, format.

pub mod checkpoint;
pub mod destage;
pub mod discard;
pub mod format;
pub mod recover;
pub mod scrub;
pub mod survey;
