//! What is on a medium: asked before it is formatted, so that nobody's file system is overwritten unknown.
//!
//! Signatures are looked for where `blkid` looks for them; the table is short, and what it does not know counts as content all the
//! same when the first MiB is not zero. Reads only.

mod signatures;

use std::io;

use crate::volume::{Kind, Label, LogLabel, Volume, VolumeError};
use crate::{Disk, end_within};

/// How much of the head must be zero for a medium to count as blank: partition tables and file systems all show there.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Some keep their descriptors at the end: md, the second GPT, ZFS.
pub(crate) const TAIL_BYTES: u64 = 1 << 20;

/// What `look` finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: no signature anywhere that one is looked for, and zeros in the first MiB.
    Blank,
    /// A target of Stria.
    Target(Box<Label>),
    /// The log of a target of Stria, whose data is elsewhere.
    Log(Box<LogLabel>),
    /// A Stria volume that this release cannot read: the reason.
    Unreadable(String),
    /// What else is known, in the words of a person, the surest first.
    Foreign(Vec<String>),
    /// Something of no known kind.
    Unknown,
}

/// Looks at the medium's head and tail.
pub fn look(disk: &dyn Disk) -> io::Result<Content> {
    match Volume::label_on(disk) {
        Ok(label) => return Ok(Content::Target(Box::new(label))),
        Err(VolumeError::NoSuperblock) => {}
        Err(VolumeError::Read { source, .. }) => return Err(source),
        Err(e) => return Ok(Content::Unreadable(e.to_string())),
    }
    match LogLabel::read(disk) {
        Ok(Some(label)) => return Ok(Content::Log(Box::new(label))),
        Ok(None) => {}
        Err(VolumeError::Read { source, .. }) => return Err(source),
        Err(e) => return Ok(Content::Unreadable(e.to_string())),
    }
    let found = signatures::find(&Probe(disk))?;
    if !found.is_empty() {
        return Ok(Content::Foreign(found));
    }
    Ok(if is_zero(disk)? { Content::Blank } else { Content::Unknown })
}

/// True if the first MiB is zero.
pub fn is_zero(disk: &dyn Disk) -> io::Result<bool> {
    let mut head = vec![0; HEAD_BYTES.min(disk.size()) as usize];
    disk.read_at(&mut head, 0)?;
    Ok(head.iter().all(|b| *b == 0))
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Blank => f.write_str("nothing"),
            Content::Target(label) => f.write_str(&describe(label)),
            Content::Log(label) => label.fmt(f),
            Content::Unreadable(why) => write!(f, "a Stria target that cannot be read ({why})"),
            Content::Foreign(found) => f.write_str(&found.join("; ")),
            Content::Unknown => f.write_str("data of no known kind in its first MiB"),
        }
    }
}

/// A target in the words of a person.
pub fn describe(label: &Label) -> String {
    let kind = if label.kind == Kind::Mdt { "MDT" } else { "OST" };
    let index = if label.index == u32::MAX { "of no index yet".into() } else { format!("{}", label.index) };
    let joined = if label.target.0 == 0 { ", never registered" } else { "" };
    format!("Stria {kind} {index} of file system '{}', uuid {}{joined}", label.fs_name, label.uuid)
}

/// A medium of which any part may be asked for; what lies outside it is not there.
pub(crate) struct Probe<'a>(pub &'a dyn Disk);

impl Probe<'_> {
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// `len` bytes at `offset`, or zeros if the medium ends before.
    pub fn at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if end_within(self.size(), offset, len as u64).is_ok() {
            self.0.read_at(&mut bytes, offset)?;
        }
        Ok(bytes)
    }

    pub fn has(&self, offset: u64, magic: &[u8]) -> io::Result<bool> {
        Ok(self.at(offset, magic.len())? == magic)
    }

    /// A label of a fixed field, as text up to the first zero; empty if there is none.
    pub fn text(&self, offset: u64, len: usize) -> io::Result<String> {
        let bytes = self.at(offset, len)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(len);
        // What a stranger wrote goes to a terminal.
        let shown = String::from_utf8_lossy(&bytes[..end]);
        Ok(shown.trim().chars().filter(|c| !c.is_control()).collect())
    }
}

#[cfg(test)]
mod tests;
