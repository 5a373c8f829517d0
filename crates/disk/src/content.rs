//! Detects the content of a medium before it is formatted, so that no file system is overwritten unnoticed.
//!
//! Signatures are looked for where `blkid` looks for them. The table is short; a medium without a known signature still counts as
//! having content if its first MiB is not zero. Reads only.

mod signatures;

use std::io;

use crate::volume::{Kind, LOG_BEGIN, Label, LogLabel, PLACES, SUPERBLOCK_BYTES, Volume, VolumeError};
use crate::{Disk, end_within};

/// The part of the head that must be zero for a medium to count as blank: partition tables and file systems all show there.
pub const HEAD_BYTES: u64 = 1 << 20;
/// The part of the tail in which some formats keep their descriptors: md, the second GPT, ZFS.
pub(crate) const TAIL_BYTES: u64 = 1 << 20;

/// The result of `look`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: no known signature, and zeros in the first MiB.
    Blank,
    /// A target of Stria.
    Target(Box<Label>),
    /// The log of a target of Stria, whose data is elsewhere.
    Log(Box<LogLabel>),
    /// A Stria volume that this release cannot read: the reason.
    Unreadable(String),
    /// Other known content, in words, the most certain first. Last comes a target of Stria or its log, if one copy of two still
    /// shows that it was there.
    Foreign(Vec<String>),
    /// Content of no known kind.
    Unknown,
}

/// Looks at the medium's head and tail.
pub fn look(disk: &dyn Disk) -> io::Result<Content> {
    if let Some(ours) = look_for_ours(disk)? {
        // A single copy may be the remains of a target whose medium another program has taken.
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

/// Stria's own content, proven by at least one superblock or label copy.
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

/// Foreign signatures beside a single copy. Before the log only the two copies are Stria's and the rest is zero: a signature there is not
/// a page of a user. A user's page may look like anything, and must not keep its target from starting after a torn superblock. So log and
/// data are searched only if another program has written before them.
fn find_beside(disk: &dyn Disk) -> Vec<String> {
    // The other copy exists for the case that one cannot be read.
    let end = match is_ours_alone(disk) {
        Ok(false) => disk.size(),
        Ok(true) | Err(_) => LOG_BEGIN,
    };
    signatures::find(&Probe { disk, end }).unwrap_or_default()
}

/// True if all bytes between and behind the two copies are zero, up to the log.
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

/// A target in words.
pub fn describe(label: &Label) -> String {
    let kind = if label.kind == Kind::Mdt { "MDT" } else { "OST" };
    let index = if label.index == u32::MAX { "of no index yet".into() } else { format!("{}", label.index) };
    let joined = if label.target.0 == 0 { ", never registered" } else { "" };
    format!("Stria {kind} {index} of file system '{}', uuid {}{joined}", label.fs_name, label.uuid)
}

/// A medium whose any part may be requested; parts outside it are absent.
pub(crate) struct Probe<'a> {
    disk: &'a dyn Disk,
    /// Parts behind this are absent too.
    end: u64,
}

impl Probe<'_> {
    pub fn size(&self) -> u64 {
        self.disk.size()
    }

    /// `len` bytes at `offset`, or zeros if the medium's readable part ends before.
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
        // Foreign bytes may go to a terminal: control characters are removed.
        let shown = String::from_utf8_lossy(&bytes[..end]);
        Ok(shown.trim().chars().filter(|c| !c.is_control()).collect())
    }
}

#[cfg(test)]
mod tests;
