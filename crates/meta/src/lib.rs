//! Metadata rules: one file per operation, over a synchronous transaction. Pure: no clock, no I/O, no threads.
//!
//! meta-I1: a refused operation changes nothing: the executor drops its transaction.
//! meta-I2: every link of an inode has a hint in its `parents`, up to `HINTS_MAX` of them, and every entry's inode exists.
//! meta-I3: objects that no layout names have a record in the unlink log until they are destroyed.
//! meta-I4: a directory's `nlink` is 2 plus its subdirectories; every other inode's is its number of names, at least the length of its
//! `parents`.
//! meta-I5: content that was acknowledged under a higher inline limit is taken: in a replay, and with a file that its client made under the lease of
//! the directory.

pub mod access;
pub mod accessed;
pub mod acl;
pub mod below;
pub mod check;
pub mod counts;
pub mod create;
mod dispatch;
mod fallocate;
pub mod flags;
mod format;
pub mod getattr;
pub mod grow;
pub mod ids;
pub mod inline;
pub mod inode;
pub mod judge;
pub mod keys;
pub mod leased;
pub mod link;
pub mod lock;
pub mod lookup;
mod make;
#[cfg(any(test, feature = "model"))]
pub mod mem;
pub mod migrate;
pub mod mkdir;
#[cfg(any(test, feature = "model"))]
pub mod model;
pub mod names;
pub mod note;
pub mod open;
pub mod path_of;
#[cfg(test)]
mod random_tests;
pub mod readdir;
pub mod readlink;
pub mod reap;
pub mod records;
pub mod rename;
pub mod restored;
pub mod rmdir;

pub mod scan;
pub mod set_acl;
pub mod setattr;
pub mod settle;
pub mod sharing;
pub mod stretch;
pub mod stripe;
pub mod symlink;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod tmpfile;
pub mod totals;
pub mod truncate;
pub mod unlink;
pub mod xattr;

pub use dispatch::{is_mutation, mutate, read};
pub use format::format;
pub use judge::{Judge, claimed};
pub use leased::{
    answers_for, concerned, dir_of_attributes, has_dirs, leased_dir, parent_in, parent_of, plain_dir,
};
pub use note::Note;
pub use reap::{dead_list, forget_dead, is_dead, leave_orphan, orphan_holder, orphan_in, orphans, reap};
pub use settle::rest;
pub use totals::{Totals, totals};

use std::borrow::Cow;

use types::{Epoch, Fid, Generation, Key, MirrorId, SessionId, Shard};
use wire::changelog::ChangeOp;
use wire::object::Capability;

/// A consistent view of an MDT's records.
pub trait View {
    /// The value, mostly borrowed from the table. A rule decodes it, and releases it before it changes records.
    fn get(&self, key: &Key) -> Option<Cow<'_, [u8]>>;
    /// Visits records with `from <= key < to` in key order until `f` returns false.
    fn range(&self, from: &Key, to: &Key, f: &mut dyn FnMut(&Key, &[u8]) -> bool);
}

/// A view that can be changed. The transaction sees its changes at once; other views see them when the batch commits, or never.
pub trait Txn: View {
    fn put(&mut self, key: Key, value: Vec<u8>);
    fn delete(&mut self, key: &Key);
    /// A fid or lease counter that is never assigned twice (reserved ahead, rule mds-O5).
    fn next_fid(&mut self) -> Fid;
    fn next_lease(&mut self) -> u32;
    /// True if a consumer wants such changes. Otherwise the rules make no note of them.
    fn is_noted(&self, _: ChangeOp) -> bool {
        false
    }
    /// Takes a note of the operation for the changelog.
    fn note(&mut self, _: Note) {}
}

/// Free space for the MDT's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// The MDT is full: operations that need space are refused with `NoSpace`, those that free space are allowed.
    pub is_full: bool,
    /// Size in bytes up to which new content lies inline, whatever the file system and the directory allow: names need the rest of the
    /// space.
    pub inline_max: u32,
}

impl Space {
    pub const AMPLE: Space = Space { is_full: false, inline_max: u32::MAX };
}

/// The context of an operation, beside the records.
pub struct Ctx<'a> {
    pub session: SessionId,
    /// The request is a replay after a restart: `want` fids are honoured.
    pub replay: bool,
    /// The file system's `inline_max`, bytes.
    pub inline_max: u32,
    /// OST mirrors in id order, which layouts may name.
    pub ost_mirrors: &'a [MirrorId],
    /// The index of each of these, as `stria df` shows it; empty: their places in the list.
    pub ost_indexes: &'a [u32],
    /// Those that get no new objects while there are others.
    pub draining: &'a [MirrorId],
    pub shard: Shard,
    pub epoch: Epoch,
    /// Makes a capability for `(fid, generation, rights, lease counter)`.
    pub make_cap: &'a dyn Fn(Fid, Generation, u8, u32) -> Capability,
    /// State of other sessions; `None`: there are none.
    pub sharing: Option<&'a dyn sharing::Sharing>,
    pub space: Space,
    /// `None`: the client's kernel checks rights, and the rules trust the claimed `Cred`s.
    pub judge: Option<Judge<'a>>,
    /// `None`: the session sees the whole file system.
    pub root: Option<&'a dyn below::Below>,
}
