//! Handshakes, rotation, reload and mutated bytes, over CA directories that are made for each test.

mod hammered;
mod handshakes;
pub mod kit;
mod reloads;
mod rotation;
mod published;
