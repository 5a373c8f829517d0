//! Names in directories: finds an entry's key, and puts entries.
//!
//! An entry's key is `(parent, h64(name), collision number)`. Names with equal hashes take the lowest free number, 0 to 255. A number
//! never changes while its entry exists, because it is part of the listing's cookie. So the numbers may have holes, and only a scan of
//! the whole run of a hash proves that a name is absent.

use types::*;
use wire::codec::Malformed;

use crate::records::{EntryRecord, Parent};
use crate::{Txn, View, keys};

/// An entry and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub at: Parent,
    pub entry: EntryRecord,
}

/// The place of a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot {
    Taken(Found),
    /// The key at which the name may be put.
    Free(Parent),
}

/// Refuses invalid names: `NameTooLong`, otherwise `Invalid`.
pub fn validate(name: &[u8]) -> Result<(), Fault> {
    if name.len() > NAME_MAX {
        return Err(Code::NameTooLong.into());
    }
    match name {
        b"" | b"." | b".." => Err(Fault::new(Code::Invalid, "a name must not be empty, '.' or '..'")),
        _ if name.iter().any(|b| matches!(b, b'/' | 0)) => {
            Err(Fault::new(Code::Invalid, "a name must not hold '/' or NUL"))
        }
        _ => Ok(()),
    }
}

/// The entry of `name`, if it exists. One get if no other name has its hash.
pub fn find_entry(view: &dyn View, parent: Fid, name: &[u8]) -> Result<Option<Found>, Fault> {
    let at = Parent { fid: parent, h64: h64(name), collision: 0 };
    if let Some(value) = view.get(&key_of(at)) {
        let entry = EntryRecord::decode(&value).map_err(|e| broken(at, e))?;
        if entry.name == name {
            return Ok(Some(Found { at, entry }));
        }
    }
    Ok(scan_run(view, parent, name)?.0)
}

/// The entry of `name`, or the place for it: one scan of the run of its hash.
pub fn find_slot(view: &dyn View, parent: Fid, name: &[u8]) -> Result<Slot, Fault> {
    match scan_run(view, parent, name)? {
        (Some(found), _) => Ok(Slot::Taken(found)),
        (None, Some(free)) => {
            debug_assert!(view.get(&key_of(free)).is_none(), "a free place has no entry");
            Ok(Slot::Free(free))
        }
        (None, None) => {
            let why = format!("directory {parent}: 256 names share one hash; choose another name");
            Err(Fault::new(Code::NoSpace, why))
        }
    }
}

/// Scans all entries with the hash of `name`: the entry of that name, and the lowest free number before it.
fn scan_run(view: &dyn View, parent: Fid, name: &[u8]) -> Result<(Option<Found>, Option<Parent>), Fault> {
    let hash = h64(name);
    let place = |collision| Parent { fid: parent, h64: hash, collision };
    let end = keys::entry(parent, hash + (1 << types::hash::COLLISION_BITS), 0);
    let (mut free, mut outcome) = (0u16, Ok(None));
    view.range(&keys::entry(parent, hash, 0), &end, &mut |key, value| {
        let Some((_, _, collision)) = keys::parse_entry(key) else { return true };
        if collision as u16 == free {
            free += 1;
        }
        match EntryRecord::decode(value) {
            Ok(entry) if entry.name == name => outcome = Ok(Some(Found { at: place(collision), entry })),
            Ok(_) => {}
            Err(e) => outcome = Err(broken(place(collision), e)),
        }
        matches!(outcome, Ok(None))
    });
    Ok((outcome?, u8::try_from(free).ok().map(place)))
}

/// The entry of `name`; `NotFound` if there is none.
pub fn need_entry(view: &dyn View, parent: Fid, name: &[u8]) -> Result<Found, Fault> {
    find_entry(view, parent, name)?.ok_or(Fault { code: Code::NotFound, detail: String::new() })
}

/// Puts an entry at a place from `find_slot`, or replaces the one there.
pub fn put_entry(txn: &mut dyn Txn, at: Parent, fid: Fid, kind: Kind, name: &[u8]) {
    txn.put(key_of(at), EntryRecord { fid, kind, name: name.to_vec() }.encode());
}

pub fn remove_entry(txn: &mut dyn Txn, at: Parent) {
    txn.delete(&key_of(at));
}

/// True if a directory has no entries.
pub fn is_empty(view: &dyn View, dir: Fid) -> bool {
    let mut empty = true;
    view.range(&keys::entry_after(dir, 0), &keys::entries_end(dir), &mut |_, _| {
        empty = false;
        false
    });
    empty
}

pub fn key_of(at: Parent) -> Key {
    keys::entry(at.fid, at.h64, at.collision)
}

pub(crate) fn broken(at: Parent, e: Malformed) -> Fault {
    Fault::new(
        Code::Damaged,
        format!("entry record {:?} of directory {}: {e}; run stria fsck", key_of(at), at.fid),
    )
}

#[cfg(test)]
mod tests;
