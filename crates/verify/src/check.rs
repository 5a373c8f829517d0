//! The invariants of an MDT's records.

use std::collections::{BTreeMap, BTreeSet};

use types::crc::crc32c;
use types::hash::h64;

use crate::bytes::{Bytes, Read};
use crate::changes::Changes;
use crate::counts::{each_above, record};
use crate::image::{Image, be, given_up, hex};
use crate::records::{self, DIR, Entry, FILE, Inode, SYMLINK};

const ROOT: u64 = 1;
const FIRST: u64 = 16;
const HINTS_MAX: usize = 256;
const NLINK_MAX: u32 = 65_000;
const XATTR_BYTES_MAX: usize = 65_536;

/// The records by kind, decoded.
#[derive(Default)]
struct Found {
    /// By parent and `h64 | collision`.
    entries: BTreeMap<(u64, u64), Entry>,
    inodes: BTreeMap<u64, Inode>,
    /// By fid and page: whether the page is only reserved space.
    pages: BTreeMap<(u64, u64), bool>,
    xattrs: BTreeSet<u64>,
    orphans: BTreeMap<u64, u64>,
    dead: BTreeSet<(u64, u32)>,
    sessions: BTreeSet<u64>,
    /// Limits of fids, leases and sessions.
    limits: BTreeMap<u8, u64>,
    totals: Option<u64>,
    changes: Changes,
    /// Whether changelog records may have been abandoned.
    are_changes_lost: bool,
}

impl Image {
    /// Everything that is wrong.
    pub fn check(&self) -> Vec<String> {
        let (mut found, mut out) = (Found::default(), Vec::new());
        for (key, value) in &self.records {
            if let Err(why) = found.take(key, value) {
                out.push(format!("record {}: {why}", hex(key)));
            }
        }
        found.entries(&mut out);
        found.inodes(self.shard, &mut out);
        found.the_rest(&mut out);
        for (session, slot) in self.slots.keys() {
            if !found.sessions.contains(session) {
                out.push(format!("slot {slot} of session {session}, which is none"));
            }
        }
        self.check_counts(&found.inodes, &mut out);
        found.changes.check(found.are_changes_lost, &mut out);
        out
    }
}

impl Found {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Read<()> {
        let (kind, rest) = (key[0], &key[1..]);
        let of_len =
            |n: usize| if rest.len() == n { Ok(()) } else { Err(format!("a key of {} bytes", key.len())) };
        let mut b = Bytes::of("its value", value);
        match kind {
            1 => {
                of_len(17)?;
                if rest[15] != 0 {
                    return Err("a hash without a free byte".into());
                }
                let cookie = be(&rest[8..16])? | u64::from(rest[16]);
                self.entries.insert((be(&rest[..8])?, cookie), records::entry(value)?);
            }
            2 => {
                of_len(8)?;
                let fid = be(rest)?;
                self.inodes.insert(fid, records::inode(fid, value)?);
            }
            3 => {
                of_len(12)?;
                let version = b.u8()?;
                let (crc, bytes) = (b.u32()?, b.all());
                if !matches!(version, 1 | 2) || crc32c(bytes) != crc || bytes.len() > 4096 {
                    return Err("version, CRC or length of an inline page".into());
                }
                self.pages.insert((be(&rest[..8])?, be(&rest[8..])?), version == 2);
            }
            4 => {
                of_len(8)?;
                xattrs(b)?;
                self.xattrs.insert(be(rest)?);
            }
            5 => {
                of_len(8)?;
                version(&mut b)?;
                self.orphans.insert(be(rest)?, b.u64()?);
                b.end()?;
            }
            6 => {
                of_len(12)?;
                version(&mut b)?;
                let generation = records::layout(&mut b)?;
                b.end()?;
                if u64::from(generation) != be(&rest[8..])? {
                    return Err("dead objects of another generation".into());
                }
                self.dead.insert((be(&rest[..8])?, generation));
            }
            7 => {
                of_len(8)?;
                self.sessions.insert(be(rest)?);
            }
            9 => {
                of_len(1)?;
                let limit = b.u64()?;
                b.end()?;
                if !(1..=3).contains(&rest[0]) {
                    return Err("a counter that is not known".into());
                }
                self.limits.insert(rest[0], limit);
            }
            10 => {
                of_len(0)?;
                version(&mut b)?;
                self.totals = Some(b.u64()?);
                b.end()?;
            }
            11 if rest.is_empty() => {
                version(&mut b)?;
                b.end()?;
            }
            11 => {
                of_len(8)?;
                record(value)?;
            }
            14 => {
                of_len(8)?;
                self.changes.take_change(be(rest)?, key, value)?;
            }
            15 if rest.is_empty() => self.changes.take_newest(value)?,
            15 => {
                of_len(4)?;
                self.changes.take_consumer(be(rest)?, value)?;
            }
            16 => {
                of_len(0)?;
                given_up(value)?;
                // The record describes the last abandoned range only.
                self.are_changes_lost = true;
            }
            _ => return Err("of no kind that is known".into()),
        }
        Ok(())
    }

    /// Names, and the inodes that they lead to.
    fn entries(&self, out: &mut Vec<String>) {
        let mut names = BTreeSet::new();
        for ((parent, cookie), Entry { fid, kind, name }) in &self.entries {
            let mut wrong = |why: &str| {
                let name = String::from_utf8_lossy(name);
                out.push(format!("name {name:?} of {fid:#x} in {parent:#x}: {why}"));
            };
            if h64(name) != cookie & !0xff {
                wrong("it does not lie at its hash");
            }
            if !names.insert((parent, name)) {
                wrong("it stands twice");
            }
            if self.inodes.get(parent).is_none_or(|dir| dir.kind != DIR) {
                wrong("its directory is none");
            }
            match self.inodes.get(fid) {
                None => wrong("no inode"),
                Some(inode) if inode.kind != *kind => wrong("another kind than its inode"),
                Some(inode)
                    if inode.parents.contains(&(*parent, *cookie)) || inode.nlink > HINTS_MAX as u32 => {}
                Some(_) => wrong("its inode does not know it"),
            }
        }
    }

    fn inodes(&self, shard: u16, out: &mut Vec<String>) {
        let (mut names, mut subdirs) = (BTreeMap::<u64, u32>::new(), BTreeMap::<u64, u32>::new());
        for ((parent, _), entry) in &self.entries {
            *names.entry(entry.fid).or_default() += 1;
            *subdirs.entry(*parent).or_default() += (entry.kind == DIR) as u32;
        }
        for (fid, inode) in &self.inodes {
            let mut wrong = |why: String| out.push(format!("inode {fid:#x}: {why}"));
            let names = names.get(fid).copied().unwrap_or(0);
            let is_orphan = self.orphans.contains_key(fid);
            // 1. Its number was given out.
            let (by, number) = ((fid >> 48) as u16, fid & ((1 << 48) - 1));
            let limit = self.limits.get(&1).copied().unwrap_or(0);
            if *fid != ROOT && by == shard && !(FIRST..limit).contains(&number) {
                wrong(format!("its number is not below the limit {limit}"));
            }
            // 2. Its names.
            let want = match inode.kind {
                DIR if names > 0 || *fid == ROOT => 2 + subdirs.get(fid).copied().unwrap_or(0),
                _ => names,
            };
            if inode.nlink != want || inode.nlink > NLINK_MAX && inode.kind != DIR {
                wrong(format!("{} links, {want} counted", inode.nlink));
            }
            if inode.kind == DIR && names > 1 || *fid == ROOT && (names > 0 || inode.kind != DIR) {
                wrong(format!("a directory with {names} names"));
            }
            if is_orphan != (names == 0 && *fid != ROOT) {
                wrong(format!("{names} names, and an orphan: {is_orphan}"));
            }
            let hints: BTreeSet<_> = inode.parents.iter().collect();
            if hints.len() != inode.parents.len() || hints.len() > HINTS_MAX {
                wrong("the same hint twice, or too many".into());
            }
            for hint in hints {
                if self.entries.get(hint).is_none_or(|entry| entry.fid != *fid) {
                    wrong(format!("its hint {hint:x?} leads to no name of it"));
                }
            }
            let mut top = 0;
            each_above(&self.inodes, *fid, |dir| top = dir);
            if top != ROOT && !is_orphan && !inode.parents.is_empty() {
                wrong("no way up to the root".into());
            }
            // 3. Its form.
            let size = match inode.kind {
                DIR => Some(4096),
                SYMLINK => Some(inode.target as u64),
                _ => None,
            };
            if size.is_some_and(|size| size != inode.size) || (inode.target > 0) != (inode.kind == SYMLINK) {
                wrong("size, or target".into());
            }
            for generation in [inode.layout, inode.pending].into_iter().flatten() {
                if inode.kind != FILE || generation > inode.generation {
                    wrong(format!("a layout of generation {generation}, of {}", inode.generation));
                }
                if self.dead.contains(&(*fid, generation)) {
                    wrong(format!("its layout {generation} is to be destroyed"));
                }
            }
        }
    }

    /// Records that belong to inodes, sessions, numbers.
    fn the_rest(&self, out: &mut Vec<String>) {
        for ((fid, page), is_kept) in &self.pages {
            match self.inodes.get(fid) {
                Some(inode) if inode.kind == FILE && inode.layout.is_none() => {
                    if page * 4096 >= inode.size && !is_kept {
                        out.push(format!("page {page} of {fid:#x} is past its size {}", inode.size));
                    }
                }
                _ => out.push(format!("page {page} of {fid:#x}, which has none")),
            }
        }
        for fid in self.xattrs.iter().filter(|fid| !self.inodes.contains_key(fid)) {
            out.push(format!("extended attributes of {fid:#x}, which is none"));
        }
        for (fid, session) in &self.orphans {
            if !self.inodes.contains_key(fid) || !self.sessions.contains(session) {
                out.push(format!("orphan {fid:#x} of session {session}: one of them is not there"));
            }
        }
        let limit = self.limits.get(&3).copied().unwrap_or(0);
        // The upper 16 bits are the shard.
        for session in self.sessions.iter().filter(|session| **session & ((1 << 48) - 1) >= limit) {
            out.push(format!("session {session} is not below the limit {limit}"));
        }
        if self.totals != Some(self.inodes.len() as u64) {
            out.push(format!("{:?} inodes in the totals, {} are there", self.totals, self.inodes.len()));
        }
        if !self.inodes.contains_key(&ROOT) {
            out.push("no root directory".into());
        }
    }
}

fn version(b: &mut Bytes<'_>) -> Read<()> {
    if b.u8()? == 1 { Ok(()) } else { b.wrong("version") }
}

fn xattrs(mut b: Bytes<'_>) -> Read<()> {
    version(&mut b)?;
    let (count, mut last, mut names, mut values) = (b.u32()?, Vec::new(), 0, 0);
    for _ in 0..count {
        let len = b.u8()?;
        let name = b.take(len as usize)?.to_vec();
        let value = b.u32()? as usize;
        b.take(value)?;
        if name <= last {
            return b.wrong("names are not in order");
        }
        (names, values, last) = (names + name.len() + 1, values + value, name);
    }
    b.end()?;
    if count == 0 || names > XATTR_BYTES_MAX || values > XATTR_BYTES_MAX {
        return b.wrong("no attributes, or too many");
    }
    Ok(())
}
