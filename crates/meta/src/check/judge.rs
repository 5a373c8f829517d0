//! Checks one record against all others.

use types::hash::h64;
use types::*;
use wire::check::Wrong;

use crate::counts::Counts;
use crate::inode::HINTS_MAX;
use crate::records::{self, EntryRecord, InlinePage, InodeRecord, Parent};
use crate::xattr::XattrsRecord;
use crate::{View, keys, names};

/// Facts about an inode that come from many records.
pub struct Links<'a> {
    /// The number of subdirectories in a directory.
    pub subdirs: &'a dyn Fn(Fid) -> u32,
    /// The number of names of an inode without a parent hint.
    pub unhinted: &'a dyn Fn(Fid) -> u32,
}

type Said = Vec<(Wrong, String)>;

pub fn judge(view: &dyn View, key: &Key, value: &[u8], links: &Links<'_>) -> Said {
    let fid = keys::parse_fid(key).unwrap_or_default();
    let judged = match key.as_bytes()[0] {
        keys::ENTRY => entry(view, key, value),
        keys::INODE => inode(view, fid, value, links),
        keys::INLINE => page(view, fid, key, value),
        keys::XATTRS => XattrsRecord::decode(value).map(|_| match inode_of(view, fid) {
            Some(_) => vec![],
            None => leftover("extended attributes", fid),
        }),
        keys::ORPHAN => records::decode_orphan(value).map(|session| orphan(view, fid, session)),
        keys::DEAD => match records::decode_dead(value) {
            Ok(layout) if keys::dead(fid, layout.generation) != *key => {
                Err(wire::Malformed("generation of dead objects"))
            }
            other => other.map(|_| vec![]),
        },
        keys::COUNTS if key.as_bytes().len() > 1 => Counts::decode(value).map(|_| {
            let is_dir = |i: InodeRecord| i.is_dir() && (i.attr.nlink > 0 || fid == Fid::ROOT);
            if inode_of(view, fid).is_some_and(is_dir) { vec![] } else { leftover("counts", fid) }
        }),
        _ => Ok(vec![]),
    };
    judged.unwrap_or_else(|e| vec![(Wrong::MalformedRecord, format!("record {key:?}: {e}"))])
}

pub fn inode_of(view: &dyn View, fid: Fid) -> Option<InodeRecord> {
    InodeRecord::decode(fid, &view.get(&keys::inode(fid))?).ok()
}

/// True if the inode's record exists, readable or not.
fn is_there(view: &dyn View, fid: Fid) -> bool {
    view.get(&keys::inode(fid)).is_some()
}

/// The number of subdirectories in `dir`.
pub fn subdirs_of(view: &dyn View, dir: Fid) -> u32 {
    let mut count = 0;
    view.range(&keys::entry(dir, 0, 0), &keys::entries_end(dir), &mut |_, value| {
        count += EntryRecord::decode(value).is_ok_and(|entry| entry.kind == Kind::Dir) as u32;
        true
    });
    count
}

fn leftover(what: &str, fid: Fid) -> Said {
    vec![(Wrong::Leftover, format!("{what} of {fid}, which has none"))]
}

/// True if the entry at a hint leads to the inode.
pub fn is_name_of(view: &dyn View, at: Parent, fid: Fid) -> bool {
    view.get(&names::key_of(at))
        .and_then(|value| EntryRecord::decode(&value).ok())
        .is_some_and(|entry| entry.fid == fid)
}

fn entry(view: &dyn View, key: &Key, value: &[u8]) -> Result<Said, wire::Malformed> {
    let (parent, hash, collision) = keys::parse_entry(key).ok_or(wire::Malformed("key of an entry"))?;
    let EntryRecord { fid, kind, name } = EntryRecord::decode(value)?;
    let (at, mut said) = (Parent { fid: parent, h64: hash, collision }, vec![]);
    let mut found = |wrong, what: String| {
        said.push((wrong, format!("{:?} in {parent}, fid {fid}: {what}", String::from_utf8_lossy(&name))));
    };
    // 1. The entry's place.
    if names::validate(&name).is_err() {
        found(Wrong::BadName, "no name of a file".into());
    } else if h64(&name) != hash {
        found(Wrong::MisplacedEntry, "it is not stored under its hash".into());
    } else if collision > 0
        && names::find_entry(view, parent, &name).is_ok_and(|f| f.is_some_and(|f| f.at != at))
    {
        found(Wrong::DoubleName, "the name exists twice".into());
    }
    match inode_of(view, parent) {
        Some(dir) if dir.is_dir() => {}
        // The unreadable inode record is a finding of its own.
        None if is_there(view, parent) => {}
        _ => found(Wrong::LostEntry, "its directory is missing, or is no directory".into()),
    }
    // 2. The entry's inode.
    match inode_of(view, fid) {
        None if is_there(view, fid) => {}
        None => found(Wrong::DanglingEntry, "no such file".into()),
        Some(inode) => {
            if inode.attr.kind != kind {
                found(Wrong::WrongKind, format!("it says {kind:?}, its inode {:?}", inode.attr.kind));
            }
            let has_another = || inode.parents.iter().any(|hint| is_name_of(view, *hint, fid));
            match inode.parents.contains(&at) {
                true => {}
                false if inode.is_dir() && (fid == Fid::ROOT || has_another()) => {
                    found(Wrong::TwoNames, "a directory with another name".into());
                }
                false if inode.attr.nlink as usize > HINTS_MAX => {}
                false => found(Wrong::MissingHint, "its inode has no hint for it".into()),
            }
        }
    }
    Ok(said)
}

fn inode(view: &dyn View, fid: Fid, value: &[u8], links: &Links<'_>) -> Result<Said, wire::Malformed> {
    let inode = InodeRecord::decode(fid, value)?;
    let mut said = vec![];
    let mut found = |wrong, what: String| said.push((wrong, format!("fid {fid}: {what}")));
    // 1. The inode's names.
    let mut hints = inode.parents.clone();
    hints.sort_by_key(|hint| (hint.fid, hint.h64, hint.collision));
    hints.dedup();
    hints.retain(|hint| is_name_of(view, *hint, fid));
    let bad = inode.parents.len() - hints.len();
    if bad > 0 {
        found(Wrong::BadHint, format!("{bad} of its hints lead to no name"));
    }
    let names = hints.len() as u32 + (links.unhinted)(fid);
    let is_orphan = view.get(&keys::orphan(fid)).is_some();
    let want = match (fid == Fid::ROOT || names > 0, inode.is_dir()) {
        (false, _) => 0,
        (true, true) => 2 + (links.subdirs)(fid),
        (true, false) => names,
    };
    match want {
        0 if !is_orphan => {
            let what = format!("no name, {} links recorded, {} bytes", inode.attr.nlink, inode.attr.size);
            found(Wrong::UnreachableInode, what);
        }
        want if want != inode.attr.nlink => {
            found(Wrong::LinkCount, format!("{} links recorded, {want} counted", inode.attr.nlink));
        }
        _ => {}
    }
    // 2. The inode's layouts.
    for layout in [&inode.layout, &inode.pending].into_iter().flatten() {
        let generation = layout.generation;
        if inode.attr.kind != Kind::File || generation > inode.generation {
            found(
                Wrong::BadLayout,
                format!("a layout of generation {}, which was never given", generation.0),
            );
        } else if view.get(&keys::dead(fid, generation)).is_some() {
            found(
                Wrong::BadLayout,
                format!("its objects of generation {} are to be destroyed", generation.0),
            );
        }
    }
    Ok(said)
}

fn page(view: &dyn View, fid: Fid, key: &Key, value: &[u8]) -> Result<Said, wire::Malformed> {
    InlinePage::decode(value)?;
    let number = key.as_bytes().get(9..13).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    let page = number.ok_or(wire::Malformed("key of an inline page"))?;
    let begin = u64::from(page) * PAGE_SIZE as u64;
    let has_it =
        |inode: InodeRecord| inode.is_inline() && (begin < inode.attr.size || InlinePage::is_reserved(value));
    let is_right = !is_there(view, fid) || inode_of(view, fid).is_none_or(has_it);
    Ok(match is_there(view, fid) && is_right {
        true => vec![],
        false => leftover(&format!("page {page}"), fid),
    })
}

fn orphan(view: &dyn View, fid: Fid, session: SessionId) -> Said {
    let stale = |what: String| vec![(Wrong::StaleOrphan, format!("orphan {fid}: {what}"))];
    match inode_of(view, fid) {
        None if is_there(view, fid) => vec![],
        None => stale("it has no inode".into()),
        Some(inode) if inode.parents.iter().any(|hint| is_name_of(view, *hint, fid)) => {
            stale("it has a name".into())
        }
        Some(_) if view.get(&keys::session(session)).is_none() => {
            stale(format!("session {session}, which had it open, is gone"))
        }
        Some(_) => vec![],
    }
}
