//! The calls of `ObjectStore`, one file each.

pub mod api;
pub mod damage;
pub mod destroy;
pub mod list;
pub mod punch;
pub mod read;
pub mod reserve;
pub mod seek;
pub mod sessions;
pub mod small;
pub mod truncate;
pub mod write;
