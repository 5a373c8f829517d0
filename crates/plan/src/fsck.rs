//! Objects compared with the layouts that name them: what should be there and is not, and the other way round. (The name space the MDT
//! checks itself: `meta::check`.)
//!
//! Both are listed in the order of files and compared file by file, so memory is taken for what is found and for the files that wait to be
//! destroyed. The listings go on while the system changes, so a single finding may be a change that happened between them. plan-K1: only
//! what two rounds find alike (`confirmed`), and what then still shows when it is looked at alone (`still_shows`), is reported; what comes
//! and goes all the time may be found in two rounds.
//! plan-K2: nothing here repairs anything; the advice says what a person may do.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use types::{Fid, Generation, Layout, MirrorId, ObjectId};
use wire::check::Wrong;
use wire::meta::{FileState, ScanRecord};
use wire::object::ObjectStat;

pub use purge::{Purges, Verdict};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// Something of the name space, as the MDT found it.
    Records(Wrong),
    /// No inode, pending layout or purge record names the object.
    OrphanObject,
    /// The object holds flushed bytes by its written bit, and is not there.
    MissingObject,
    /// The object, or a copy of it, is on another mirror than the layout says.
    MisplacedObject,
    /// The objects prove a larger size than the settled one, or hold bytes past it.
    SizeMismatch,
    /// Objects wait to be destroyed, and nothing of it happens.
    SlowPurge,
}

/// What a finding is about: the same in each round, whatever numbers its text has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    /// The MDT's finding with this number.
    Records(u32),
    Object(ObjectId, MirrorId),
    Inode(Fid),
    Dead(Fid, Generation),
}

impl About {
    /// The file that it belongs to.
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
    /// The object, fid or name, with what was found.
    pub what: String,
    /// Path as far as it is known; empty for what has none.
    pub path: String,
    pub advice: String,
    /// What a repair would do; empty if there is no one safe answer.
    pub repair: String,
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

/// One file: its inode, if it has one, and the objects that bear its number.
pub struct File {
    fid: Fid,
    known: Option<Known>,
    /// By both, so that two copies of an object are two.
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

    /// Of an inode's record; others say nothing here.
    pub fn add_record(&mut self, record: ScanRecord) {
        if let ScanRecord::Inode { inode, pending, .. } = record {
            let (size, layout, state) = (inode.attr.size, inode.layout, inode.state);
            self.known = Some(Known { size, layout, pending, state });
        }
    }

    pub fn add_object(&mut self, mirror: MirrorId, stat: ObjectStat) {
        self.objects.insert((stat.object, mirror), stat);
    }

    /// Everything that looks wrong, in a stable order.
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

    /// Of the queue of the purge, which is looked at last: what was removed meanwhile is there by then.
    pub fn add_dead(&mut self, fid: Fid, generation: Generation) {
        self.dead.insert((fid, generation));
    }

    /// Whose objects wait to be destroyed. That is no finding; `Purges` says when it becomes one.
    pub fn dead(&self) -> &BTreeSet<(Fid, Generation)> {
        &self.dead
    }

    pub fn finish(mut self) -> Vec<Finding> {
        let dead = &self.dead;
        self.findings.retain(|finding| !waits_for_the_purge(finding, dead));
        self.findings
    }
}

/// Nobody names such an object, and it will be destroyed.
pub fn waits_for_the_purge(finding: &Finding, dead: &BTreeSet<(Fid, Generation)>) -> bool {
    match (finding.kind, &finding.about) {
        (Problem::OrphanObject, About::Object(object, _)) => dead.contains(&(object.fid, object.generation)),
        _ => false,
    }
}

/// What both rounds found, as the second tells it.
pub fn confirmed(first: &[Finding], second: Vec<Finding>) -> Vec<Finding> {
    let seen: HashSet<_> = first.iter().map(|f| (f.kind, &f.about)).collect();
    second.into_iter().filter(|f| seen.contains(&(f.kind, &f.about))).collect()
}

/// The finding as a look at its file alone tells it; `None` if it does not show there.
pub fn still_shows(finding: &Finding, look: &File) -> Option<Finding> {
    look.findings().into_iter().find(|f| f.kind == finding.kind && f.about == finding.about)
}

fn finding(kind: Problem, about: About, what: String, advice: &str) -> Finding {
    Finding { kind, about, what, path: String::new(), advice: advice.to_string(), repair: String::new() }
}

mod purge;
#[cfg(test)]
mod tests;
