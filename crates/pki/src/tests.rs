//! Handshakes, rotation, reload and mutated bytes, over CA directories that are made for each test.

mod hammered;
mod handshakes;
pub mod kit;
mod published;
mod reloads;
mod rotation;
