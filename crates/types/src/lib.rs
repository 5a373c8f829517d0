//! Basic types of Stria: ids, units, layout arithmetic, checksums, the hash of names, and error codes.
//!
//! All of it is plain data and pure functions: no I/O, no clock, no `unsafe`. Every other crate may import this one; it imports none of
//! them.

pub mod attr;
pub mod buf;
pub mod crc;
pub mod error;
pub mod hash;
pub mod id;
pub mod key;
pub mod layout;
pub mod size;
pub mod time;
pub mod word;

pub use attr::{Attr, Cred, Kind};
pub use buf::Buf;
pub use error::{Code, Fault};
pub use hash::h64;
pub use id::*;
pub use key::Key;
pub use layout::{Component, Layout, Piece};
pub use size::Size;
pub use time::{Civil, Time};
pub use word::Word;

/// Size in bytes of the page that a checksum covers.
pub const PAGE_SIZE: usize = 4096;
/// Longest name of a directory entry in bytes (POSIX `NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest symlink target in bytes (`PATH_MAX` less its NUL).
pub const SYMLINK_MAX: usize = 4095;
/// Largest file in bytes: 16 TiB, ext4's limit with 4 KiB blocks less one page so that arithmetic cannot wrap.
pub const FILE_SIZE_MAX: u64 = (16 << 40) - 4096;
/// Default of `inline_max`: files up to this many bytes are stored in their MDT records.
pub const INLINE_MAX: u32 = 64 * 1024;
/// Most bulk bytes of one request: the largest FUSE request here, and a stripe's default size.
pub const BULK_MAX: usize = 1 << 20;
