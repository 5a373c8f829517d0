//! What an answer lets a client cache (crate `lease`): which directory's lease it takes, and whose attributes the answer has.

use types::{Fid, Kind};
use wire::meta::{
    Create, CreateWith, GetAttr, GetAttrs, Link, Lookup, MakeDir, ReadDir, RemoveDir, Rename, Symlink,
};
use wire::{Reader, Request, Wire};

use crate::inode::{SETGID, load_inode};
use crate::readdir::{BYTES_MAX, ENTRIES_MAX};
use crate::records::{EntryRecord, InodeRecord, counted};
use crate::{View, keys, names};

/// The directory whose lease the call may ask for. `None`: its answer is not cached.
pub fn leased_dir(call: u16, body: &[u8]) -> Option<Fid> {
    let takes = matches!(
        call,
        Lookup::CALL | ReadDir::CALL | Create::CALL | CreateWith::CALL | MakeDir::CALL | Symlink::CALL
    );
    // Each of these bodies begins with the directory.
    let dir = Fid::get(&mut Reader::new(body)).ok().filter(|_| takes)?;
    let is_up = call == Lookup::CALL && name_of(body).is_none_or(|name| name == b"..");
    (!is_up).then_some(dir)
}

fn name_of(lookup: &[u8]) -> Option<&[u8]> {
    let r = &mut Reader::new(lookup);
    Fid::get(r).ok()?;
    let len = u32::get(r).ok()?;
    r.take(len as usize).ok()
}

/// Directories that a call is about: those that it names, and those that lie under names in it.
pub fn concerned(view: &dyn View, call: u16, body: &[u8]) -> Vec<Fid> {
    let child = |dir: Fid, name: &[u8]| {
        let found = names::find_entry(view, dir, name).ok().flatten();
        found.filter(|found| found.entry.kind == Kind::Dir).map(|found| found.entry.fid)
    };
    match call {
        GetAttrs::CALL => GetAttrs::from_bytes(body).map_or(vec![], |req| req.fids),
        Rename::CALL => match Rename::from_bytes(body) {
            Ok(Rename { parent, name, new_parent, new_name, .. }) => {
                let inside = [child(parent, &name), child(new_parent, &new_name)];
                [parent, new_parent].into_iter().chain(inside.into_iter().flatten()).collect()
            }
            Err(_) => vec![],
        },
        // It may have attributes of directories in it.
        ReadDir::CALL => ReadDir::from_bytes(body).map_or(vec![], |req| {
            let mut dirs = vec![req.dir];
            let (begin, end) = (keys::entry_after(req.dir, req.cookie), keys::entries_end(req.dir));
            let mut left = (req.max as usize).clamp(1, ENTRIES_MAX);
            view.range(&begin, &end, &mut |_, value| {
                let entry = EntryRecord::decode(value).ok().filter(|entry| entry.kind == Kind::Dir);
                dirs.extend(entry.map(|entry| entry.fid));
                left -= 1;
                left > 0
            });
            dirs
        }),
        Link::CALL => Link::from_bytes(body).map_or(vec![], |req| vec![req.fid, req.parent]),
        _ => {
            // Each of the other bodies begins with what it is about.
            let Ok(first) = Fid::get(&mut Reader::new(body)) else { return vec![] };
            let is_named = matches!(call, Lookup::CALL | RemoveDir::CALL);
            let inside = name_of(body).filter(|_| is_named).and_then(|name| match name {
                b".." => parent_of(view, first),
                name => child(first, name),
            });
            [Some(first), inside].into_iter().flatten().collect()
        }
    }
}

/// The inline limit that a directory sets, if it sets one. The outer `None`: new files there have attributes that only the MDT can tell, because of
/// a default ACL, the set-group bit or `chattr` flags.
pub fn plain_dir(view: &dyn View, dir: Fid) -> Option<Option<u32>> {
    let dir = load_inode(view, dir).ok()?;
    let is_plain = dir.is_dir()
        && dir.attr.nlink > 0
        && dir.default_acl.is_empty()
        && dir.attr.mode & SETGID == 0
        && dir.flags == 0;
    is_plain.then(|| dir.spec.as_ref().and_then(|spec| spec.inline_max))
}

/// The directory of an inode with this record, by its first hint. The root's is the root itself.
pub fn parent_in(fid: Fid, record: &[u8]) -> Option<Fid> {
    if fid == Fid::ROOT {
        return Some(fid);
    }
    counted(fid, record).ok()?.parent
}

/// The inode with this record is a directory that has subdirectories.
pub fn has_dirs(fid: Fid, record: &[u8]) -> bool {
    InodeRecord::decode(fid, record).is_ok_and(|inode| inode.is_dir() && inode.attr.nlink > 2)
}

pub fn parent_of(view: &dyn View, fid: Fid) -> Option<Fid> {
    view.get(&keys::inode(fid)).and_then(|record| parent_in(fid, &record))
}

/// The directory of a `GetAttr`'s inode.
pub fn dir_of_attributes(view: &dyn View, call: u16, body: &[u8]) -> Option<Fid> {
    let GetAttr { fid } = GetAttr::from_bytes(body).ok().filter(|_| call == GetAttr::CALL)?;
    if fid == Fid::ROOT { Some(fid) } else { parent_of(view, fid) }
}

/// The inodes whose attributes a call answers; for a listing perhaps more. `None`: the attributes must not be cached. A change of an inode is
/// told to the holders of its first hint's directory, so each must lie in the directory whose lease is asked for.
pub fn answers_for(view: &dyn View, call: u16, body: &[u8]) -> Option<Vec<Fid>> {
    match call {
        GetAttr::CALL => GetAttr::from_bytes(body).ok().map(|req| vec![req.fid]),
        Lookup::CALL => {
            let (dir, name) = (leased_dir(call, body)?, name_of(body)?);
            // An absent name has no attributes.
            let Some(found) = names::find_entry(view, dir, name).ok()? else { return Some(vec![]) };
            (parent_of(view, found.entry.fid) == Some(dir)).then(|| vec![found.entry.fid])
        }
        ReadDir::CALL => {
            let req = ReadDir::from_bytes(body).ok()?;
            if !req.plus {
                return Some(vec![]);
            }
            children(view, &req)
        }
        _ => None,
    }
}

/// The inodes of a page, without a look at them: those of the page that is answered, or more.
fn children(view: &dyn View, req: &ReadDir) -> Option<Vec<Fid>> {
    let (max, mut fids, mut bytes) = ((req.max as usize).clamp(1, ENTRIES_MAX), Vec::new(), 0);
    let mut are_here = true;
    view.range(&keys::entry_after(req.dir, req.cookie), &keys::entries_end(req.dir), &mut |_, value| {
        if fids.len() >= max || bytes >= BYTES_MAX {
            return false;
        }
        bytes += value.len();
        match EntryRecord::decode(value) {
            Ok(entry) => {
                are_here &= parent_of(view, entry.fid) == Some(req.dir);
                fids.push(entry.fid);
            }
            Err(_) => are_here = false,
        }
        are_here
    });
    are_here.then_some(fids)
}
