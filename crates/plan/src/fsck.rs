//! The name space compared with the objects: what should be there and is not, and the other way round.
//!
//! The comparison is over two listings that were taken one after the other on a running system, so a single finding may be
//! a change that happened between them. K1: only what two rounds find alike (`confirmed`), and what then still shows when it
//! is looked at alone (`still_shows`), is reported; what comes and goes all the time may be found in two rounds.
//! K2: nothing here repairs anything; the advice says what a person may do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use types::{Attr, Fid, Generation, Kind, Layout, MirrorId, ObjectId};
use wire::meta::{FileState, ScanRecord};
use wire::object::ObjectStat;

pub use purge::{Purges, Verdict};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Problem {
    /// No inode, pending layout or purge record names the object.
    OrphanObject,
    /// The object holds flushed bytes by its written bit, and is not there.
    MissingObject,
    /// The object, or a copy of it, is on another mirror than the layout says.
    MisplacedObject,
    /// A name leads to an inode that does not exist.
    DanglingEntry,
    /// A name says that it leads to another kind of file than its inode is.
    WrongKind,
    /// An inode has no name and is not an orphan that somebody holds open.
    UnreachableInode,
    /// A directory has more than one name, or the root has one.
    TwoNames,
    /// The link count differs from the names counted.
    LinkCount,
    /// The objects prove a larger size than the settled one, or hold bytes past it.
    SizeMismatch,
    /// Objects wait to be destroyed, and nothing of it happens.
    SlowPurge,
}

/// What a finding is about: the same in each round, whatever numbers its text has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum About {
    Object(ObjectId, MirrorId),
    Inode(Fid),
    Name { parent: Fid, name: Vec<u8>, fid: Fid },
    Dead(Fid, Generation),
}

impl About {
    /// The file that it belongs to.
    pub fn fid(&self) -> Fid {
        match self {
            About::Object(object, _) => object.fid,
            About::Inode(fid) | About::Dead(fid, _) | About::Name { fid, .. } => *fid,
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

/// One round: the MDT's records and the mirrors' objects; or the few of them that one finding is about.
#[derive(Default)]
pub struct Round {
    names: HashMap<Fid, Vec<Name>>,
    inodes: HashMap<Fid, Known>,
    orphans: HashSet<Fid>,
    dead: BTreeSet<(Fid, Generation)>,
    /// By both, so that two copies of an object are two.
    objects: BTreeMap<(ObjectId, MirrorId), ObjectStat>,
    counts: Counts,
}

struct Name {
    parent: Fid,
    name: Vec<u8>,
    kind: Kind,
}

struct Known {
    attr: Attr,
    layout: Option<Layout>,
    pending: Option<Layout>,
    parents: Vec<Fid>,
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
                self.names.entry(fid).or_default().push(Name { parent, name: name.0, kind });
            }
            ScanRecord::Inode { inode, pending, parents, .. } => {
                self.counts.inodes += 1;
                match (inode.attr.kind, &inode.layout) {
                    (Kind::File, None) => self.counts.inline_files += 1,
                    (Kind::File, Some(_)) => self.counts.striped_files += 1,
                    _ => {}
                }
                self.counts.writing += (inode.state != FileState::Settled) as u64;
                let known =
                    Known { attr: inode.attr, layout: inode.layout, pending, parents, state: inode.state };
                self.inodes.insert(known.attr.fid, known);
            }
            ScanRecord::Orphan { fid, .. } => {
                self.counts.orphans += 1;
                self.orphans.insert(fid);
            }
            ScanRecord::Dead { fid, layout } => {
                self.counts.dead_records += 1;
                self.dead.insert((fid, layout.generation));
            }
        }
    }

    pub fn add_object(&mut self, mirror: MirrorId, stat: ObjectStat) {
        self.counts.objects += 1;
        self.counts.object_bytes += stat.used;
        self.objects.insert((stat.object, mirror), stat);
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whose objects wait to be destroyed. That is no finding; `Purges` says when it becomes one.
    pub fn dead(&self) -> &BTreeSet<(Fid, Generation)> {
        &self.dead
    }

    /// The directories in which the inode has names, by its entries and by its own record.
    pub fn parents_of(&self, fid: Fid) -> BTreeSet<Fid> {
        let named = self.names.get(&fid).into_iter().flatten().map(|n| n.parent);
        let told = self.inodes.get(&fid).into_iter().flat_map(|k| k.parents.iter().copied());
        named.chain(told).collect()
    }

    /// Everything that looks wrong in this round, in a stable order.
    pub fn findings(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        self.check_entries(&mut out);
        self.check_inodes(&mut out);
        self.check_objects(&mut out);
        out.sort();
        out
    }

    fn check_entries(&self, out: &mut Vec<Finding>) {
        for (fid, names) in &self.names {
            let kind = self.inodes.get(fid).map(|known| known.attr.kind);
            for name in names {
                let mut found = |problem, what, advice| {
                    let about = About::Name { parent: name.parent, name: name.name.clone(), fid: *fid };
                    out.push(finding(problem, about, what, self.path(name), advice));
                };
                match kind {
                    None => found(Problem::DanglingEntry, format!("fid {fid}"), "remove the name"),
                    Some(kind) if kind != name.kind => found(
                        Problem::WrongKind,
                        format!("fid {fid}: its name says {:?}, its inode {kind:?}", name.kind),
                        "the inode is right; make a new name for it, then remove this one",
                    ),
                    Some(_) => {}
                }
            }
        }
    }

    fn check_inodes(&self, out: &mut Vec<Finding>) {
        let subdirs = self.count_subdirs();
        for (fid, known) in &self.inodes {
            let names = self.names.get(fid).map_or(0, Vec::len) as u32;
            let is_dir = known.attr.kind == Kind::Dir;
            let mut found = |problem, what, advice| {
                out.push(finding(problem, About::Inode(*fid), what, self.path_of(*fid), advice));
            };
            if names == 0 && *fid != Fid::ROOT {
                if !self.orphans.contains(fid) {
                    let advice = "copy its content out by fid, then remove it";
                    out.push(finding(
                        Problem::UnreachableInode,
                        About::Inode(*fid),
                        format!("fid {fid}"),
                        String::new(),
                        advice,
                    ));
                }
                continue;
            }
            if is_dir && names > (*fid != Fid::ROOT) as u32 {
                let what = format!("fid {fid}: directory with the names {}", self.paths_of(*fid).join(", "));
                found(Problem::TwoNames, what, "a directory has one name; which of them is right?");
            }
            let want = if is_dir { 2 + subdirs.get(fid).copied().unwrap_or(0) } else { names };
            if known.attr.nlink != want {
                let what = format!("fid {fid}: {} links recorded, {want} counted", known.attr.nlink);
                found(Problem::LinkCount, what, "the record is wrong; names and content are whole");
            }
            if let Some(layout) = &known.layout {
                self.check_content(*fid, known, layout, out);
            }
        }
    }

    /// Names of directories in each directory. What a name says counts only where there is no inode to ask.
    fn count_subdirs(&self) -> HashMap<Fid, u32> {
        let mut subdirs: HashMap<Fid, u32> = HashMap::new();
        for (fid, names) in &self.names {
            let kind = self.inodes.get(fid).map(|known| known.attr.kind);
            for name in names.iter().filter(|name| kind.unwrap_or(name.kind) == Kind::Dir) {
                *subdirs.entry(name.parent).or_default() += 1;
            }
        }
        subdirs
    }

    fn check_content(&self, fid: Fid, known: &Known, layout: &Layout, out: &mut Vec<Finding>) {
        let mut size = 0;
        for (object, mirror, written) in layout.objects(fid) {
            let mut found = |problem, at, what, advice| {
                out.push(finding(problem, About::Object(object, at), what, self.path_of(fid), advice));
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
        if known.state == FileState::Settled && size > known.attr.size {
            let what = format!("fid {fid}: {} bytes settled, objects prove {size}", known.attr.size);
            out.push(finding(
                Problem::SizeMismatch,
                About::Inode(fid),
                what,
                self.path_of(fid),
                "bytes past the settled size are not shown; truncate the file to its size",
            ));
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
            let known = self.inodes.get(&object.fid).is_some_and(|k| names(&k.layout) || names(&k.pending));
            if !known && !self.dead.contains(&(object.fid, object.generation)) {
                let what = format!("object {object} on mirror {mirror}, {} bytes", stat.len);
                out.push(finding(
                    Problem::OrphanObject,
                    About::Object(*object, *mirror),
                    what,
                    String::new(),
                    "no file names it; it only takes space",
                ));
            }
        }
    }

    fn path_of(&self, fid: Fid) -> String {
        match self.first_name(fid) {
            Some(name) => self.path(name),
            None if fid == Fid::ROOT => "/".into(),
            None => format!("<{fid}>"),
        }
    }

    fn paths_of(&self, fid: Fid) -> Vec<String> {
        let mut paths: Vec<_> = self.names.get(&fid).into_iter().flatten().map(|n| self.path(n)).collect();
        paths.sort();
        paths
    }

    fn first_name(&self, fid: Fid) -> Option<&Name> {
        self.names.get(&fid).and_then(|names| names.iter().min_by_key(|n| (n.parent, &n.name)))
    }

    /// The path of a name; a loop or a gap in the tree ends it with the fid in angle brackets.
    fn path(&self, name: &Name) -> String {
        /// Deeper than PATH_MAX allows a path to be.
        const DEPTH_MAX: usize = 2048;
        let mut parts = vec![String::from_utf8_lossy(&name.name).into_owned()];
        let mut at = name.parent;
        while at != Fid::ROOT {
            match self.first_name(at).filter(|_| parts.len() < DEPTH_MAX) {
                Some(up) => {
                    parts.push(String::from_utf8_lossy(&up.name).into_owned());
                    at = up.parent;
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

/// What both rounds found, as the second tells it.
pub fn confirmed(first: &[Finding], second: Vec<Finding>) -> Vec<Finding> {
    let seen: HashSet<_> = first.iter().map(|f| (f.kind, &f.about)).collect();
    second.into_iter().filter(|f| seen.contains(&(f.kind, &f.about))).collect()
}

/// The finding as a look at it alone tells it, under the path that the whole round knew; `None` if it does not show there.
pub fn still_shows(finding: &Finding, look: &Round) -> Option<Finding> {
    let mut again =
        look.findings().into_iter().find(|f| f.kind == finding.kind && f.about == finding.about)?;
    again.path.clone_from(&finding.path);
    Some(again)
}

fn finding(kind: Problem, about: About, what: String, path: String, advice: &str) -> Finding {
    Finding { kind, about, what, path, advice: advice.to_string() }
}

mod purge;
#[cfg(test)]
mod tests;
