//! One file per operation of `Fs`.

pub(crate) mod behind;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod du;
pub(crate) mod fallocate;
pub(crate) mod fsync;
pub(crate) mod grow;
pub(crate) mod lookup;
pub(crate) mod net;
pub(crate) mod open;
pub(crate) mod put;
mod ranges;
pub(crate) mod read;
pub(crate) mod readdir;
pub(crate) mod rename;
pub(crate) mod seek;
pub(crate) mod set_flags;
pub(crate) mod setattr;
pub(crate) mod statfs;
pub(crate) mod tmpfile;
pub(crate) mod truncate;
pub(crate) mod unlink;
pub(crate) mod write;
pub(crate) mod xattr;
