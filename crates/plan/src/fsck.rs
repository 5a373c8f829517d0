//! The name space compared with the objects: what should be there and is not, and the other way round.
//!
//! The comparison is over two listings that were taken one after the other on a running system, so a single finding may be
//! a change that happened between them. K1: only what two rounds find alike (`confirmed`) is reported.
//! K2: nothing here repairs anything; the advice says what a person may do.

use std::collections::{HashMap, HashSet};

use types::{Attr, Fid, Kind, Layout, MirrorId, ObjectId};
use wire::meta::{FileState, ScanRecord};
use wire::object::ObjectStat;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// No inode, pending layout or purge record names the object.
    OrphanObject,
    /// The object holds flushed bytes by its written bit, and is not there.
    MissingObject,
    /// The object is on another mirror than the layout says.
    MisplacedObject,
    /// A name leads to an inode that does not exist.
    DanglingEntry,
    /// An inode has no name and is not an orphan that somebody holds open.
    UnreachableInode,
    /// The link count differs from the names counted.
    LinkCount,
    /// The objects prove a larger size than the settled one, or hold bytes past it.
    SizeMismatch,
    /// Objects wait to be destroyed in both rounds.
    SlowPurge,
}

/// One finding. Equal in two rounds = confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Finding {
    pub kind: Problem,
    /// The object, fid or name.
    pub what: String,
    /// Path as far as it is known; empty for what has none.
    pub path: String,
    pub advice: String,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    pub entries: u64,
    pub inodes: u64,
    pub inline_files: u64,
    pub striped_files: u64,
    pub orphans: u64,
    pub dead_records: u64,
    pub objects: u64,
    pub object_bytes: u64,
    /// Files that somebody writes: their sizes are not judged.
    pub writing: u64,
}

/// One round: the MDT's records and the mirrors' objects.
#[derive(Default)]
pub struct Round {
    names: HashMap<Fid, Vec<(Fid, Vec<u8>)>>,
    entry_kinds: HashMap<Fid, Kind>,
    inodes: HashMap<Fid, Known>,
    orphans: HashSet<Fid>,
    dead: Vec<(Fid, Layout)>,
    objects: HashMap<ObjectId, (MirrorId, ObjectStat)>,
    counts: Counts,
}

struct Known {
    attr: Attr,
    layout: Option<Layout>,
    pending: Option<Layout>,
    state: FileState,
}

impl Round {
    pub fn new() -> Round {
        Round::default()
    }

    pub fn add_record(&mut self, record: ScanRecord) {
        match record {
            ScanRecord::Entry { parent, name, fid, kind } => {
                self.counts.entries += 1;
                self.names.entry(fid).or_default().push((parent, name.0));
                self.entry_kinds.insert(fid, kind);
            }
            ScanRecord::Inode { inode, pending, .. } => {
                self.counts.inodes += 1;
                match (inode.attr.kind, &inode.layout) {
                    (Kind::File, None) => self.counts.inline_files += 1,
                    (Kind::File, Some(_)) => self.counts.striped_files += 1,
                    _ => {}
                }
                self.counts.writing += (inode.state != FileState::Settled) as u64;
                let known = Known { attr: inode.attr, layout: inode.layout, pending, state: inode.state };
                self.inodes.insert(known.attr.fid, known);
            }
            ScanRecord::Orphan { fid, .. } => {
                self.counts.orphans += 1;
                self.orphans.insert(fid);
            }
            ScanRecord::Dead { fid, layout } => {
                self.counts.dead_records += 1;
                self.dead.push((fid, layout));
            }
        }
    }

    pub fn add_object(&mut self, mirror: MirrorId, stat: ObjectStat) {
        self.counts.objects += 1;
        self.counts.object_bytes += stat.used;
        self.objects.insert(stat.object, (mirror, stat));
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Everything that looks wrong in this round, in a stable order.
    pub fn findings(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        self.check_entries(&mut out);
        self.check_inodes(&mut out);
        self.check_objects(&mut out);
        for (fid, layout) in &self.dead {
            let what = format!("file {fid} {}", layout.generation);
            out.push(finding(
                Problem::SlowPurge,
                what,
                String::new(),
                "an OST may be down; objects are destroyed when it is back",
            ));
        }
        out.sort();
        out
    }

    fn check_entries(&self, out: &mut Vec<Finding>) {
        for (fid, names) in self.names.iter().filter(|(fid, _)| !self.inodes.contains_key(fid)) {
            for (parent, name) in names {
                let path = self.path(*parent, name);
                out.push(finding(Problem::DanglingEntry, format!("fid {fid}"), path, "remove the name"));
            }
        }
    }

    fn check_inodes(&self, out: &mut Vec<Finding>) {
        let mut subdirs: HashMap<Fid, u32> = HashMap::new();
        for (fid, names) in self.names.iter().filter(|(fid, _)| self.entry_kinds.get(fid) == Some(&Kind::Dir))
        {
            if self.inodes.contains_key(fid) {
                names.iter().for_each(|(parent, _)| *subdirs.entry(*parent).or_default() += 1);
            }
        }
        for (fid, known) in &self.inodes {
            let names = self.names.get(fid).map_or(0, Vec::len) as u32;
            let what = || format!("fid {fid}");
            if names == 0 && *fid != Fid::ROOT {
                if !self.orphans.contains(fid) {
                    out.push(finding(
                        Problem::UnreachableInode,
                        what(),
                        String::new(),
                        "copy its content out by fid, then remove it",
                    ));
                }
                continue;
            }
            let want =
                if known.attr.kind == Kind::Dir { 2 + subdirs.get(fid).copied().unwrap_or(0) } else { names };
            if known.attr.nlink != want {
                let what = format!("fid {fid}: {} links recorded, {want} counted", known.attr.nlink);
                out.push(finding(
                    Problem::LinkCount,
                    what,
                    self.path_of(*fid),
                    "the record is wrong; names and content are whole",
                ));
            }
            if let Some(layout) = &known.layout {
                self.check_content(*fid, known, layout, out);
            }
        }
    }

    fn check_content(&self, fid: Fid, known: &Known, layout: &Layout, out: &mut Vec<Finding>) {
        let mut size = 0;
        for (object, mirror, written) in layout.objects(fid) {
            match self.objects.get(&object) {
                None if written => {
                    let what = format!("object {object} of mirror {mirror}");
                    out.push(finding(
                        Problem::MissingObject,
                        what,
                        self.path_of(fid),
                        "restore the file; reads of this range give EIO",
                    ));
                }
                None => {}
                Some((at, _)) if *at != mirror => {
                    let what = format!("object {object} is on mirror {at}, the layout says {mirror}");
                    out.push(finding(
                        Problem::MisplacedObject,
                        what,
                        self.path_of(fid),
                        "was a target's medium swapped? check 'stria status'",
                    ));
                }
                Some((_, stat)) => {
                    size = size.max(layout.size_from(object.component, object.stripe, stat.len))
                }
            }
        }
        if known.state == FileState::Settled && size > known.attr.size {
            let what = format!("fid {fid}: {} bytes settled, objects prove {size}", known.attr.size);
            out.push(finding(
                Problem::SizeMismatch,
                what,
                self.path_of(fid),
                "bytes past the settled size are not shown; truncate the file to its size",
            ));
        }
    }

    fn check_objects(&self, out: &mut Vec<Finding>) {
        let purged: HashSet<_> = self.dead.iter().map(|(fid, layout)| (*fid, layout.generation)).collect();
        for (object, (mirror, stat)) in &self.objects {
            let names = |layout: &Option<Layout>| {
                layout.as_ref().is_some_and(|l| {
                    let comp = l.components.get(object.component as usize);
                    l.generation == object.generation
                        && comp.is_some_and(|c| (object.stripe as usize) < c.mirrors.len())
                })
            };
            let known = self.inodes.get(&object.fid).is_some_and(|k| names(&k.layout) || names(&k.pending));
            if !known && !purged.contains(&(object.fid, object.generation)) {
                let what = format!("object {object} on mirror {mirror}, {} bytes", stat.len);
                out.push(finding(
                    Problem::OrphanObject,
                    what,
                    String::new(),
                    "no file names it; it only takes space",
                ));
            }
        }
    }

    fn path_of(&self, fid: Fid) -> String {
        match self.names.get(&fid).and_then(|n| n.first()) {
            Some((parent, name)) => self.path(*parent, name),
            None if fid == Fid::ROOT => "/".into(),
            None => format!("<{fid}>"),
        }
    }

    /// The path of a name; a loop or a gap in the tree ends it with the fid in angle brackets.
    fn path(&self, parent: Fid, name: &[u8]) -> String {
        /// Deeper than PATH_MAX allows a path to be.
        const DEPTH_MAX: usize = 2048;
        let mut parts = vec![String::from_utf8_lossy(name).into_owned()];
        let mut at = parent;
        while at != Fid::ROOT {
            match self.names.get(&at).and_then(|n| n.first()).filter(|_| parts.len() < DEPTH_MAX) {
                Some((up, name)) => {
                    parts.push(String::from_utf8_lossy(name).into_owned());
                    at = *up;
                }
                None => {
                    parts.push(format!("<{at}>"));
                    break;
                }
            }
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }
}

/// K1: what both rounds found.
pub fn confirmed(first: &[Finding], second: Vec<Finding>) -> Vec<Finding> {
    let seen: HashSet<&Finding> = first.iter().collect();
    second.into_iter().filter(|f| seen.contains(f)).collect()
}

fn finding(kind: Problem, what: String, path: String, advice: &str) -> Finding {
    Finding { kind, what, path, advice: advice.to_string() }
}

#[cfg(test)]
mod tests;
