//! POSIX access control lists, stored and evaluated as Linux does.
//!
//! An inode has an access ACL only if the mode cannot express it. Owner, group class (the mask, if there is one) and others are in both
//! and stay equal: chmod changes the ACL, a new ACL changes the mode. A directory's default ACL applies to new files in it instead of the
//! umask.

use types::*;
use wire::codec::{Malformed, Reader, Wire};

/// Most entries: as many as fit a page in the kernel's form.
pub const ENTRIES_MAX: usize = 511;
/// Version of the attribute's value, as in the kernel.
const XATTR_VERSION: u32 = 2;
/// The id of entries without a user or group.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    tag: u16,
    /// 4 read, 2 write, 1 execute.
    perm: u16,
    /// The named user or group.
    id: u32,
}

/// A list in the kernel's order. Empty: there is no ACL.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes an attribute's value. A list without entries removes the ACL.
    pub fn from_xattr(value: &[u8]) -> Result<Acl, Fault> {
        let mut r = Reader::new(value);
        let invalid = |_: Malformed| Fault::new(Code::Invalid, "not the form of an ACL");
        if u32::get(&mut r).map_err(invalid)? != XATTR_VERSION {
            return Err(Fault::new(Code::Unsupported, "an ACL of another version"));
        }
        if r.remaining() / 8 > ENTRIES_MAX {
            return Err(Code::TooLong.into());
        }
        let acl = Acl::get_entries(&mut r).map_err(invalid)?;
        match acl.is_empty() || acl.is_valid() {
            true => Ok(acl),
            false => Err(Fault::new(Code::Invalid, "an ACL whose entries do not fit together")),
        }
    }

    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + 8 * self.0.len());
        XATTR_VERSION.put(&mut out);
        self.put_entries(&mut out);
        debug_assert!(Acl::from_xattr(&out).is_ok_and(|acl| acl == *self), "a shown ACL can be set again");
        out
    }

    /// Gives the named users (`true`) and groups other ids.
    pub fn map_ids(&mut self, map: &dyn Fn(bool, u32) -> Result<u32, Fault>) -> Result<(), Fault> {
        for entry in self.0.iter_mut().filter(|e| matches!(e.tag, USER | GROUP)) {
            entry.id = map(entry.tag == USER, entry.id)?;
        }
        Ok(())
    }

    /// Decodes entries to the end of `r`.
    fn get_entries(r: &mut Reader<'_>) -> Result<Acl, Malformed> {
        let mut entries = Vec::with_capacity(r.remaining() / 8);
        while r.remaining() > 0 {
            let (tag, perm, id) = (u16::get(r)?, u16::get(r)?, u32::get(r)?);
            let id = if matches!(tag, USER | GROUP) { id } else { NO_ID };
            entries.push(AclEntry { tag, perm, id });
        }
        Ok(Acl(entries))
    }
    fn put_entries(&self, out: &mut Vec<u8>) {
        for AclEntry { tag, perm, id } in &self.0 {
            tag.put(out);
            perm.put(out);
            id.put(out);
        }
    }

    /// True if owner, group and others occur once each, in the kernel's order, with a mask if any entry names a user or group.
    fn is_valid(&self) -> bool {
        let rank = |tag| [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].iter().position(|t| *t == tag);
        let ranks: Option<Vec<usize>> = self.0.iter().map(|e| rank(e.tag)).collect();
        let in_order = ranks.is_some_and(|r| r.is_sorted());
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        let is_named = count(USER) + count(GROUP) > 0;
        in_order
            && [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|t| count(*t) == 1)
            && count(MASK) <= 1
            && (!is_named || count(MASK) == 1)
            && self.0.iter().all(|e| e.perm <= 7 && (!matches!(e.tag, USER | GROUP) || e.id != NO_ID))
    }

    fn perm_of(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|e| e.tag == tag).map(|e| e.perm as u32)
    }
    fn set_perm(&mut self, tag: u16, perm: u32) {
        self.0.iter_mut().filter(|e| e.tag == tag).for_each(|e| e.perm = perm as u16 & 7);
    }
    /// The entry that has the mode's group bits.
    fn group_class(&self) -> u16 {
        if self.perm_of(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The nine mode bits of this list.
    pub fn mode_bits(&self) -> u32 {
        let of = |tag| self.perm_of(tag).unwrap_or(0);
        let bits = of(USER_OBJ) << 6 | of(self.group_class()) << 3 | of(OTHER);
        assert!(bits <= 0o777, "an ACL makes the nine bits of a mode only");
        bits
    }

    /// True if a mode can express the list.
    pub fn is_minimal(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Takes the mode of a chmod.
    pub fn set_mode(&mut self, mode: u32) {
        self.set_perm(USER_OBJ, mode >> 6);
        self.set_perm(self.group_class(), mode >> 3);
        self.set_perm(OTHER, mode);
    }

    /// The access ACL and mode of a new file with `mode` under this default ACL: each grants only what the other grants too.
    pub fn inherited(&self, mode: u32) -> (Acl, u32) {
        let mut acl = self.clone();
        acl.set_mode(self.mode_bits() & mode);
        assert!(
            acl.mode_bits() & !(mode & 0o777) == 0,
            "an inherited ACL grants nothing that the mode does not"
        );
        let mode = mode & !0o777 | acl.mode_bits();
        if acl.is_minimal() { (Acl::default(), mode) } else { (acl, mode) }
    }

    /// True if the list grants `cred`, which is not the owner, all of `wanted` on a file of group `gid`.
    pub fn allows(&self, gid: u32, cred: &Cred, wanted: u32) -> bool {
        let mask = self.perm_of(MASK).unwrap_or(7);
        let has = |e: &AclEntry, mask: u32| e.perm as u32 & mask & wanted == wanted;
        if let Some(named) = self.0.iter().find(|e| e.tag == USER && e.id == cred.uid) {
            return has(named, mask);
        }
        let is_mine = |e: &&AclEntry| match e.tag {
            GROUP_OBJ => cred.is_in_group(gid),
            GROUP => cred.is_in_group(e.id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(is_mine).peekable();
        match groups.peek() {
            Some(_) => groups.any(|e| has(e, mask)),
            None => self.0.iter().any(|e| e.tag == OTHER && has(e, 7)),
        }
    }
}

/// The form in records: a count, then the entries.
impl Wire for Acl {
    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        self.put_entries(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = u32::get(r)? as usize;
        if count > ENTRIES_MAX {
            return Err(Malformed("entries of an ACL"));
        }
        let bytes = r.take(count * 8)?;
        let acl = Acl::get_entries(&mut Reader::new(bytes))?;
        let mut form = Vec::with_capacity(bytes.len());
        acl.put_entries(&mut form);
        match acl.is_empty() || (acl.is_valid() && form == bytes) {
            true => Ok(acl),
            false => Err(Malformed("an ACL")),
        }
    }
}

#[cfg(test)]
mod tests;
