//! What is on a medium: asked before it is formatted, so that nobody's file system is overwritten unknown.
//!
//! Signatures are looked for where `blkid` looks for them; the table is short, and what it does not know counts as content all the
//! same when the first MiB is not zero. Reads only.

mod signatures;

use std::io;

use crate::volume::{Kind, LOG_BEGIN, Label, LogLabel, PLACES, SUPERBLOCK_BYTES, Volume, VolumeError};
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
    /// What else is known, in the words of a person, the surest first. Last a target of Stria or its log, if one copy of two still
    /// says that it was there.
    Foreign(Vec<String>),
    /// Something of no known kind.
    Unknown,
}

/// Looks at the medium's head and tail.
pub fn look(disk: &dyn Disk) -> io::Result<Content> {
    if let Some(ours) = look_for_ours(disk)? {
        // One copy alone may be what somebody left over who took the medium for himself.
        let others = if Volume::copies_on(disk) == PLACES.len() { Vec::new() } else { find_beside(disk) };
        let left = format!("{ours}, of which one of two copies is left");
        return Ok(if others.is_empty() {
            ours
        } else {
            Content::Foreign(others.into_iter().chain([left]).collect())
        });
    }
    let found = signatures::find(&Probe { disk, end: disk.size() })?;
    if !found.is_empty() {
        return Ok(Content::Foreign(found));
    }
    Ok(if is_zero(disk)? { Content::Blank } else { Content::Unknown })
}

/// Stria's, by at least one copy of what says so.
fn look_for_ours(disk: &dyn Disk) -> io::Result<Option<Content>> {
    match Volume::label_on(disk) {
        Ok(label) => return Ok(Some(Content::Target(Box::new(label)))),
        Err(VolumeError::NoSuperblock) => {}
        Err(VolumeError::Read { source, .. }) => return Err(source),
        Err(e) => return Ok(Some(Content::Unreadable(e.to_string()))),
    }
    match LogLabel::read(disk) {
        Ok(label) => Ok(label.map(|l| Content::Log(Box::new(l)))),
        Err(VolumeError::Read { source, .. }) => Err(source),
        Err(e) => Ok(Some(Content::Unreadable(e.to_string()))),
    }
}

/// What others wrote where one copy was lost. Before the log only the two copies are ours and the rest is zero: a signature there is no
/// page of a user, which may look like anything and must not keep its target from a start after a torn superblock. So log and data are
/// looked at only if somebody else has written before them.
fn find_beside(disk: &dyn Disk) -> Vec<String> {
    // What cannot be read is what the other copy is for.
    let end = match is_ours_alone(disk) {
        Ok(false) => disk.size(),
        Ok(true) | Err(_) => LOG_BEGIN,
    };
    signatures::find(&Probe { disk, end }).unwrap_or_default()
}

/// True if all between and behind the two copies is zero, up to the log.
fn is_ours_alone(disk: &dyn Disk) -> io::Result<bool> {
    let mut head = vec![0; LOG_BEGIN.min(disk.size()) as usize];
    disk.read_at(&mut head, 0)?;
    let copies = PLACES.map(|place| place as usize..place as usize + SUPERBLOCK_BYTES);
    Ok(head.iter().enumerate().all(|(at, b)| *b == 0 || copies.iter().any(|c| c.contains(&at))))
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
pub(crate) struct Probe<'a> {
    disk: &'a dyn Disk,
    /// Nor is what lies behind this.
    end: u64,
}

impl Probe<'_> {
    pub fn size(&self) -> u64 {
        self.disk.size()
    }

    /// `len` bytes at `offset`, or zeros if what may be looked at ends before.
    pub fn at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if end_within(self.end, offset, len as u64).is_ok() {
            self.disk.read_at(&mut bytes, offset)?;
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
