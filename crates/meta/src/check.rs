//! Fsck of the name space: reads every record of one state once, in key order; then checks what needs all of them together.
//!
//! meta-F1: memory is used for directories, for names without a parent hint, and for findings (`FINDINGS_MAX`), but not for files.
//! meta-F2: the finding about a record is a function of the view (`judge`). It is computed again over a fresh state before it is
//! reported, and once more inside the transaction that repairs it.  meta-F3: a record counts either wholly or not at all: `look` reads,
//! `add` counts.

mod judge;
mod repair;

use std::collections::{HashMap, HashSet};

use types::*;
use wire::check::{Looked, Wrong};
use wire::meta::FileState;

use crate::counts::{self, Pending, Recount};
use crate::inode::HINTS_MAX;
use crate::records::{EntryRecord, InodeRecord, Parent};
use crate::{View, keys, path_of, stretch};

use judge::{Links, judge, subdirs_of};
pub use repair::{counts_too_much, repair, repair_of};

/// Most findings that are kept. More than these come from one cause; another check after the repair finds the rest.
pub const FINDINGS_MAX: usize = 10_000;

/// One finding, from `judge` or from the sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub wrong: Wrong,
    /// The record at fault; for wrong counts, the directory's inode.
    pub key: Key,
    pub what: String,
    off: Off,
}

/// By how much sums are too large. This difference stays constant while the sums change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Off {
    Not,
    Counts(counts::Counts),
    Inodes(u64),
    /// Not a sum: all records before this key are lost.
    Lost(Key),
}

impl Finding {
    /// The end of the range of lost keys, for a finding about one.
    pub fn lost_before(&self) -> Option<Key> {
        match self.off {
            Off::Lost(end) => Some(end),
            _ => None,
        }
    }
}

/// One check.
#[derive(Default)]
pub struct Check {
    looked: Looked,
    subdirs: HashMap<Fid, u32>,
    /// Number of names without a parent hint, by inode.
    unhinted: HashMap<Fid, u32>,
    recount: Recount,
    said: HashMap<Fid, counts::Counts>,
    totals: Option<u64>,
    findings: Vec<Finding>,
    dropped: u64,
}

/// The result of reading one record. Empty if a record that it depends on is damaged.
#[derive(Default)]
pub struct Seen {
    found: Vec<(Wrong, String)>,
    /// The inode of an entry without a parent hint.
    unhinted: Option<Fid>,
}

impl Check {
    pub fn new() -> Check {
        Check::default()
    }

    /// meta-F3: reads one record and counts nothing yet: the view may have missed a record.
    pub fn look(&self, view: &dyn View, key: &Key, value: &[u8]) -> Seen {
        let links = Links {
            subdirs: &|dir| self.subdirs.get(&dir).copied().unwrap_or(0),
            unhinted: &|fid| self.unhinted.get(&fid).copied().unwrap_or(0),
        };
        let found = judge(view, key, value, &links);
        let unhinted = keys::parse_entry(key)
            .zip(EntryRecord::decode(value).ok())
            .map(|((fid, h64, collision), entry)| (Parent { fid, h64, collision }, entry.fid))
            .filter(|(at, fid)| judge::inode_of(view, *fid).is_some_and(|i| !i.parents.contains(at)))
            .map(|(_, fid)| fid);
        Seen { found, unhinted }
    }

    /// Counts a record, with the result of `look`.
    pub fn add(&mut self, key: &Key, value: &[u8], seen: Seen) {
        let looked = &mut self.looked;
        looked.records += 1;
        match (key.as_bytes()[0], keys::parse_fid(key)) {
            (keys::ENTRY, Some(parent)) => {
                looked.entries += 1;
                let is_dir = EntryRecord::decode(value).is_ok_and(|entry| entry.kind == Kind::Dir);
                if is_dir {
                    *self.subdirs.entry(parent).or_default() += 1;
                }
                if let Some(fid) = seen.unhinted {
                    *self.unhinted.entry(fid).or_default() += 1;
                }
            }
            (keys::INODE, Some(fid)) => {
                looked.inodes += 1;
                self.recount.take(key, value);
                if let Ok(inode) = InodeRecord::decode(fid, value) {
                    let is_file = inode.attr.kind == Kind::File;
                    looked.inline_files += (is_file && inode.layout.is_none()) as u64;
                    looked.striped_files += (is_file && inode.layout.is_some()) as u64;
                    looked.writing += (inode.state != FileState::Settled) as u64;
                }
            }
            (keys::ORPHAN, _) => looked.orphans += 1,
            (keys::DEAD, _) => looked.dead += 1,
            (keys::COUNTS, Some(dir)) => {
                if let Ok(counts) = counts::Counts::decode(value) {
                    self.said.insert(dir, counts);
                }
            }
            (keys::TOTAL, _) => self.totals = crate::Totals::decode(value).ok().map(|t| t.inodes),
            _ => {}
        }
        for (wrong, what) in seen.found {
            self.note(Finding { wrong, key: *key, what, off: Off::Not });
        }
    }

    /// Adds a finding about a record with a wrong checksum, or about all records from `key` on and before `end` that are lost.
    pub fn add_damaged(&mut self, key: &Key, end: &Key) {
        let (what, off) = match *end == key.after() {
            true => (format!("record {key:?}: its checksum is wrong"), Off::Not),
            false => {
                let of = stretch::of(key, end);
                (format!("{of}: the records from {key:?} on and before {end:?} are lost"), Off::Lost(*end))
            }
        };
        self.note(Finding { wrong: Wrong::DamagedRecord, key: *key, what, off });
    }

    pub fn looked(&self) -> Looked {
        self.looked.clone()
    }

    fn note(&mut self, finding: Finding) {
        match self.findings.len() < FINDINGS_MAX {
            true => self.findings.push(finding),
            false => self.dropped += 1,
        }
    }

    /// Ends the check: all findings in the order of repairs, and the number of dropped ones. `pending` is of the same state.
    pub fn finish(mut self, pending: &Pending) -> Findings {
        self.check_loops();
        let inodes = self.looked.inodes;
        if self.totals != Some(inodes) {
            let what = format!("{} inodes in the totals, {inodes} are there", self.totals.unwrap_or(0));
            let off = Off::Inodes(self.totals.unwrap_or(0).wrapping_sub(inodes));
            self.note(Finding { wrong: Wrong::WrongTotals, key: keys::kind_start(keys::TOTAL), what, off });
        }
        if pending.is_counting() {
            let recount = std::mem::take(&mut self.recount);
            for (dir, off) in recount.errors(&self.said, pending) {
                let what = format!("directory {dir}: {}", say(&off));
                self.note(Finding {
                    wrong: Wrong::WrongCounts,
                    key: keys::inode(dir),
                    what,
                    off: Off::Counts(off),
                });
            }
        }
        self.findings.sort_by_key(|finding| (finding.wrong, finding.key));
        assert!(self.findings.len() <= FINDINGS_MAX, "meta-F1: findings are bounded");
        assert!(self.looked.inodes <= self.looked.records, "meta-F3: each record counts once");
        Findings { found: self.findings, dropped: self.dropped, unhinted: self.unhinted }
    }

    /// Finds each loop of directories, once.
    fn check_loops(&mut self) {
        let (mut known, mut loops) = (HashSet::from([Fid::ROOT]), Vec::new());
        let parents = self.recount.parents();
        for dir in parents.keys() {
            let (mut way, mut on_way, mut at) = (Vec::new(), HashSet::new(), Some(*dir));
            while let Some(dir) = at.filter(|dir| !known.contains(dir)) {
                if !on_way.insert(dir) {
                    loops.push(way.iter().copied().skip_while(|d| *d != dir).min().unwrap_or(dir));
                    break;
                }
                way.push(dir);
                at = parents.get(&dir).copied();
            }
            known.extend(way);
        }
        for dir in loops {
            let what = format!("fid {dir}: it is below itself");
            self.note(Finding { wrong: Wrong::Loop, key: keys::inode(dir), what, off: Off::Not });
        }
    }
}

fn say(off: &counts::Counts) -> String {
    let each = |sums: &counts::Sums| {
        let [files, dirs, others, bytes, blocks] =
            [sums.files, sums.dirs, sums.others, sums.bytes, sums.blocks].map(|n| n as i64);
        format!(
            "{files:+} files, {dirs:+} directories, {others:+} others, {bytes:+} bytes, {blocks:+} blocks"
        )
    };
    format!("counted too much by {} in it, {} in all below", each(&off.own), each(&off.tree))
}

/// The findings of a check.
#[derive(Debug, Default)]
pub struct Findings {
    pub found: Vec<Finding>,
    /// Findings beyond `FINDINGS_MAX`.
    pub dropped: u64,
    unhinted: HashMap<Fid, u32>,
}

impl Findings {
    /// meta-F2: finding `n` as it shows now; `None` if it no longer does.
    pub fn confirm(&self, view: &dyn View, n: usize) -> Option<Finding> {
        let finding = self.found.get(n)?;
        if finding.off != Off::Not || finding.wrong == Wrong::DamagedRecord {
            // The error of a sum stays while the sum changes, but its directory may go. For damage the view itself is the evidence.
            let is_there = finding.wrong != Wrong::WrongCounts || view.get(&finding.key).is_some();
            return is_there.then(|| finding.clone());
        }
        if finding.wrong == Wrong::Loop {
            return is_in_a_loop(view, keys::parse_fid(&finding.key)?).then(|| finding.clone());
        }
        let value = view.get(&finding.key)?;
        let links =
            Links { subdirs: &|dir| subdirs_of(view, dir), unhinted: &|fid| self.unhinted_now(view, fid) };
        let said = judge(view, &finding.key, &value, &links);
        let (wrong, what) = said.into_iter().find(|(wrong, _)| *wrong == finding.wrong)?;
        assert!(finding.off == Off::Not, "meta-F2: only a finding about one record is judged again");
        Some(Finding { wrong, what, ..finding.clone() })
    }

    /// For an inode of few names all hints are there; otherwise that is the finding.
    fn unhinted_now(&self, view: &dyn View, fid: Fid) -> u32 {
        let then = self.unhinted.get(&fid).copied().unwrap_or(0);
        let links = judge::inode_of(view, fid).map_or(0, |inode| inode.attr.nlink);
        match links as usize > HINTS_MAX {
            // Names changed meanwhile. Only another check can tell which of them have hints.
            true => links.saturating_sub(judge::inode_of(view, fid).map_or(0, |i| i.parents.len() as u32)),
            false => then,
        }
    }
}

fn is_in_a_loop(view: &dyn View, dir: Fid) -> bool {
    let (mut seen, mut at) = (HashSet::new(), Some(dir));
    while let Some(dir) = at.filter(|dir| *dir != Fid::ROOT) {
        if !seen.insert(dir) {
            return true;
        }
        at = judge::inode_of(view, dir).and_then(|inode| Some(inode.parents.first()?.fid));
    }
    false
}

/// The path of a finding's subject, as far as names lead there.
pub fn path(view: &dyn View, finding: &Finding) -> Vec<u8> {
    let of = |fid| {
        let first = judge::inode_of(view, fid).and_then(|inode| inode.parents.first().copied());
        match (first, fid) {
            (None, Fid::ROOT) => Some(b"/".to_vec()),
            (None, _) => None,
            (first, _) => path_of::path_by(view, Fid::ROOT, fid, first).ok(),
        }
    };
    if let Some(end) = finding.lost_before() {
        return stretch::directory(&finding.key, &end).and_then(of).unwrap_or_default();
    }
    let Some(fid) = keys::parse_fid(&finding.key) else { return Vec::new() };
    let found = match keys::parse_entry(&finding.key) {
        None => of(fid),
        Some(_) => view.get(&finding.key).and_then(|value| {
            let name = EntryRecord::decode(&value).ok()?.name;
            let mut path = of(fid)?;
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend(name);
            Some(path)
        }),
    };
    found.unwrap_or_default()
}
