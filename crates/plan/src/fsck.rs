//! Compares objects with the layouts that name them: missing objects and objects without a layout. (The MDT checks its name space itself:
//! `meta::check`.)
//!
//! Objects and inodes are listed in the order of fids and compared file by file. Memory is needed only for findings and for the files
//! that wait for the purge. The system changes while the listings run, so a single finding may be a change between the two.
//! plan-K1: only a finding that two rounds share (`confirmed`), and that a look at its file alone still shows (`still_shows`), is
//! reported. The look is needed because objects that come and go all the time may show in two rounds.
//! plan-K2: this module repairs nothing; the advice says what an administrator may do.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use types::{Fid, Generation, Layout, MirrorId, ObjectId};
use wire::check::Wrong;
use wire::meta::{FileState, ScanRecord};
use wire::object::ObjectStat;

pub use purge::{Purges, Verdict};

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// A finding of the name space, reported by the MDT.
    Records(Wrong),
    /// No inode, pending layout or purge record names the object.
    OrphanObject,
    /// The layout's written bit says that the object holds flushed bytes, but the object does not exist.
    MissingObject,
    /// The object, or a copy of it, is on another mirror than the layout says.
    MisplacedObject,
    /// The objects prove a larger size than the settled one, or hold bytes past it.
    SizeMismatch,
    /// Objects wait to be destroyed, and the purge makes no progress.
    SlowPurge,
}

/// The subject of a finding. It is the same in each round, even if the numbers in the text change.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// The MDT's finding with this number.
    Records(u32),
    Object(ObjectId, MirrorId),
    Inode(Fid),
    Dead(Fid, Generation),
}

impl About {
    /// The file that the finding belongs to; the root for a finding of the MDT.
    pub fn fid(&self) -> Fid {
        match self {
            About::Records(_) => Fid::ROOT,
            About::Object(object, _) => object.fid,
            About::Inode(fid) | About::Dead(fid, _) => *fid,
        }
    }
}

/// One finding. Two rounds that find the same kind about the same thing have confirmed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Finding {
    pub kind: Problem,
    pub about: About,
    /// The object, fid or name, with the observed state.
    pub what: String,
    /// The path as far as it is known; empty if there is none.
    pub path: String,
    pub advice: String,
    /// The change that a repair would make; empty if no single safe repair exists.
    pub repair: String,
}

/// Numbers of the records and objects that the check read.
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
    /// Files in the state `Writing`: their sizes are not checked.
    pub writing: u64,
}

/// One file: its inode, if it has one, and the objects with its fid.
pub struct File {
    fid: Fid,
    known: Option<Known>,
    /// The key has the mirror too, so that two copies of an object are two entries.
    objects: BTreeMap<(ObjectId, MirrorId), ObjectStat>,
}

struct Known {
    size: u64,
    layout: Option<Layout>,
    pending: Option<Layout>,
    state: FileState,
}

impl File {
    pub fn new(fid: Fid) -> File {
        File { fid, known: None, objects: BTreeMap::new() }
    }

    /// Takes the state of the file from an inode's record; other records are ignored.
    pub fn add_record(&mut self, record: ScanRecord) {
        if let ScanRecord::Inode { inode, pending, .. } = record {
            let (size, layout, state) = (inode.attr.size, inode.layout, inode.state);
            self.known = Some(Known { size, layout, pending, state });
        }
    }

    pub fn add_object(&mut self, mirror: MirrorId, stat: ObjectStat) {
        self.objects.insert((stat.object, mirror), stat);
    }

    /// All findings of this file, in a stable order.
    pub fn findings(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        if let Some(known) = &self.known
            && let Some(layout) = &known.layout
        {
            self.check_content(known, layout, &mut out);
        }
        self.check_objects(&mut out);
        out.sort();
        out
    }

    fn check_content(&self, known: &Known, layout: &Layout, out: &mut Vec<Finding>) {
        let (mut size, fid) = (0, self.fid);
        for (object, mirror, written) in layout.objects(fid) {
            let mut found = |problem, at, what, advice| {
                out.push(finding(problem, About::Object(object, at), what, advice));
            };
            let (mut is_here, mut is_elsewhere) = (false, false);
            for ((_, at), stat) in self.copies_of(object) {
                if *at == mirror {
                    is_here = true;
                    size = size.max(layout.size_from(object.component, object.stripe, stat.len));
                } else {
                    is_elsewhere = true;
                    let what = format!("object {object} is on mirror {at}, the layout says {mirror}");
                    let advice = "was a target's medium swapped? check 'stria status'";
                    found(Problem::MisplacedObject, *at, what, advice);
                }
            }
            if written && !is_here && !is_elsewhere {
                let what = format!("object {object} of mirror {mirror}");
                let advice = "restore the file; reads of this range give EIO";
                found(Problem::MissingObject, mirror, what, advice);
            }
        }
        if known.state == FileState::Settled && size > known.size {
            let what = format!("fid {fid}: {} bytes settled, objects prove {size}", known.size);
            let advice = "bytes past the settled size are not shown; truncate the file to its size";
            out.push(finding(Problem::SizeMismatch, About::Inode(fid), what, advice));
        }
    }

    fn copies_of(&self, object: ObjectId) -> impl Iterator<Item = (&(ObjectId, MirrorId), &ObjectStat)> {
        self.objects.range((object, MirrorId(0))..=(object, MirrorId(u32::MAX)))
    }

    fn check_objects(&self, out: &mut Vec<Finding>) {
        for ((object, mirror), stat) in &self.objects {
            let names = |layout: &Option<Layout>| {
                layout.as_ref().is_some_and(|l| {
                    let comp = l.components.get(object.component as usize);
                    l.generation == object.generation
                        && comp.is_some_and(|c| (object.stripe as usize) < c.mirrors.len())
                })
            };
            let is_known = self.known.as_ref().is_some_and(|k| names(&k.layout) || names(&k.pending));
            if !is_known {
                let what = format!("object {object} on mirror {mirror}, {} bytes", stat.len);
                let advice = "no file names it; it only takes space";
                out.push(finding(Problem::OrphanObject, About::Object(*object, *mirror), what, advice));
            }
        }
    }
}

/// One round over all files.
#[derive(Default)]
pub struct Round {
    findings: Vec<Finding>,
    dead: BTreeSet<(Fid, Generation)>,
    pub objects: u64,
    pub object_bytes: u64,
}

impl Round {
    pub fn add_file(&mut self, file: &File) {
        self.objects += file.objects.len() as u64;
        self.object_bytes += file.objects.values().map(|stat| stat.used).sum::<u64>();
        self.findings.extend(file.findings());
    }

    /// Adds a record of the purge queue. The queue is read last: by then it has the files that were removed during the round.
    pub fn add_dead(&mut self, fid: Fid, generation: Generation) {
        self.dead.insert((fid, generation));
    }

    /// The files whose objects wait for the purge. That is not a finding by itself; `Purges` decides when it becomes one.
    pub fn dead(&self) -> &BTreeSet<(Fid, Generation)> {
        &self.dead
    }

    pub fn finish(mut self) -> Vec<Finding> {
        let dead = &self.dead;
        self.findings.retain(|finding| !waits_for_the_purge(finding, dead));
        self.findings
    }
}

/// True for an orphan object whose file is in the purge queue: the purge will destroy it.
pub fn waits_for_the_purge(finding: &Finding, dead: &BTreeSet<(Fid, Generation)>) -> bool {
    match (finding.kind, &finding.about) {
        (Problem::OrphanObject, About::Object(object, _)) => dead.contains(&(object.fid, object.generation)),
        _ => false,
    }
}

/// The findings of the second round that the first round had too.
pub fn confirmed(first: &[Finding], second: Vec<Finding>) -> Vec<Finding> {
    let seen: HashSet<_> = first.iter().map(|f| (f.kind, &f.about)).collect();
    second.into_iter().filter(|f| seen.contains(&(f.kind, &f.about))).collect()
}

/// The same finding from a new look at its file alone; `None` if it no longer shows.
pub fn still_shows(finding: &Finding, look: &File) -> Option<Finding> {
    look.findings().into_iter().find(|f| f.kind == finding.kind && f.about == finding.about)
}

fn finding(kind: Problem, about: About, what: String, advice: &str) -> Finding {
    Finding { kind, about, what, path: String::new(), advice: advice.to_string(), repair: String::new() }
}

mod purge;
#[cfg(test)]
mod tests;
