//! The executor: mutating requests become log entries. `execute.rs` comes first.

pub mod ask;
pub mod call;
pub mod combining;
pub mod draft;
pub mod execute;
pub mod room;
pub mod slots;
