//! Extended attributes: all of an inode's are in one record, sorted by name.
//!
//! `user.*` is for regular files and directories, and follows their permissions. Only root sees `trusted.*`, and only root changes
//! `security.*`. ACLs are stored in the inode and appear here under their `system.*` names. Other names are `Unsupported`.

use types::*;
use wire::Empty;
use wire::codec::{Bytes, Malformed, Reader, Wire};
use wire::meta::{
    GetXattr, GetXattrReply, ListXattr, ListXattrReply, RemoveXattr, SetXattr, XATTR_CREATE, XATTR_REPLACE,
};

use crate::access::{self, READ, WRITE};
use crate::acl::Acl;
use crate::inode::{STICKY, load_inode, need_room, store_inode};
use crate::records::{InodeRecord, VERSION};
use crate::set_acl::{self, Which};
use crate::{Ctx, Txn, View, keys, note};

/// Linux's limits: of a name, of all values of an inode (in Linux: of one value), and of a list of names.
pub const XATTR_NAME_MAX: usize = 255;
pub const XATTR_BYTES_MAX: usize = 64 << 10;
pub const XATTR_LIST_MAX: usize = 64 << 10;

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
const CAPABILITY: &[u8] = b"security.capability";

/// All of an inode's extended attributes, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct XattrsRecord(pub Vec<(Vec<u8>, Vec<u8>)>);

pub fn get_xattr(_: &Ctx<'_>, view: &dyn View, req: GetXattr) -> Result<GetXattrReply, Fault> {
    let space = Space::of(&req.name)?;
    let inode = load_inode(view, req.fid)?;
    match space {
        Space::Acl(which) => return Ok(GetXattrReply { value: Bytes(set_acl::get(&inode, which)?) }),
        Space::User if !takes_user(&inode) => return Err(Code::NoData.into()),
        Space::User => access::need(&inode, &req.cred, READ)?,
        Space::Trusted if !req.cred.may_all() => return Err(Code::NoData.into()),
        Space::Trusted | Space::Security => {}
    }
    let mut record = load(view, req.fid)?;
    match record.find(&req.name) {
        Ok(at) => Ok(GetXattrReply { value: Bytes(record.0.swap_remove(at).1) }),
        Err(_) => Err(Code::NoData.into()),
    }
}

pub fn list_xattr(_: &Ctx<'_>, view: &dyn View, req: ListXattr) -> Result<ListXattrReply, Fault> {
    let inode = load_inode(view, req.fid)?;
    let acls = set_acl::names(&inode).map(Bytes::from);
    let stored = load(view, req.fid)?.0.into_iter().map(|(name, _)| name);
    let shown = stored.filter(|name| req.cred.uid == 0 || !name.starts_with(TRUSTED)).map(Bytes);
    Ok(ListXattrReply { names: acls.chain(shown).collect() })
}

pub fn set_xattr(ctx: &Ctx<'_>, txn: &mut dyn Txn, req: SetXattr) -> Result<Empty, Fault> {
    if req.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Fault::new(Code::Invalid, format!("flags {:#x}", req.flags)));
    }
    let mut inode = load_inode(txn, req.fid)?;
    if let Space::Acl(which) = Space::of(&req.name)? {
        need_room(ctx)?;
        set_acl::set(&mut inode, which, Acl::from_xattr(&req.value.0)?, &req.cred)?;
        inode.attr.ctime = req.now;
        store_inode(txn, &inode);
        note::xattr(txn, req.fid, &req.name, &req.cred);
        return Ok(Empty {});
    }
    need_change(&inode, &req.name, &req.cred)?;
    if req.value.0.len() > XATTR_BYTES_MAX {
        return Err(Code::TooLong.into());
    }
    need_room(ctx)?;
    note::xattr(txn, req.fid, &req.name, &req.cred);
    let mut record = load(txn, req.fid)?;
    match record.find(&req.name) {
        Ok(_) if req.flags & XATTR_CREATE != 0 => return Err(Code::Exists.into()),
        Err(_) if req.flags & XATTR_REPLACE != 0 => return Err(Code::NoData.into()),
        Ok(at) => record.0[at].1 = req.value.0,
        Err(at) => record.0.insert(at, (req.name.0, req.value.0)),
    }
    if !record.fits() {
        let why = format!("file {}: at most {XATTR_BYTES_MAX} bytes of extended attributes", req.fid);
        return Err(Fault::new(Code::NoSpace, why));
    }
    store(txn, &mut inode, &record, req.now);
    Ok(Empty {})
}

pub fn remove_xattr(_: &Ctx<'_>, txn: &mut dyn Txn, req: RemoveXattr) -> Result<Empty, Fault> {
    let mut inode = load_inode(txn, req.fid)?;
    if let Space::Acl(which) = Space::of(&req.name)? {
        set_acl::set(&mut inode, which, Acl::default(), &req.cred)?;
        inode.attr.ctime = req.now;
        store_inode(txn, &inode);
        note::xattr(txn, req.fid, &req.name, &req.cred);
        return Ok(Empty {});
    }
    need_remove(&inode, &req.name, &req.cred)?;
    let mut record = load(txn, req.fid)?;
    match record.find(&req.name) {
        Ok(at) => record.0.remove(at),
        Err(_) => return Err(Code::NoData.into()),
    };
    store(txn, &mut inode, &record, req.now);
    note::xattr(txn, req.fid, &req.name, &req.cred);
    Ok(Empty {})
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    Acl(Which),
}

impl Space {
    fn of(name: &[u8]) -> Result<Space, Fault> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Fault::new(Code::Range, format!("a name of {} bytes", name.len())));
        }
        if name.contains(&0) {
            return Err(Code::Invalid.into());
        }
        let is_in = |space: &[u8]| name.starts_with(space) && name.len() > space.len();
        match name {
            set_acl::ACCESS => Ok(Space::Acl(Which::Access)),
            set_acl::DEFAULT => Ok(Space::Acl(Which::Default)),
            _ if is_in(USER) => Ok(Space::User),
            _ if is_in(TRUSTED) => Ok(Space::Trusted),
            _ if is_in(SECURITY) => Ok(Space::Security),
            USER | TRUSTED | SECURITY => Err(Fault::new(Code::Invalid, "an attribute without a name")),
            _ => Err(Fault::new(
                Code::Unsupported,
                "only user.*, trusted.* and security.* attributes and ACLs are kept",
            )),
        }
    }
}

fn takes_user(inode: &InodeRecord) -> bool {
    matches!(inode.attr.kind, Kind::File | Kind::Dir)
}

fn need_change(inode: &InodeRecord, name: &[u8], cred: &Cred) -> Result<(), Fault> {
    access::need_unprotected(inode)?;
    match Space::of(name)? {
        _ if cred.may_all() && !name.starts_with(USER) => Ok(()),
        Space::Trusted | Space::Security | Space::Acl(_) => {
            Err(Fault::new(Code::Perm, "only root changes trusted.* and security.*"))
        }
        Space::User if !takes_user(inode) => {
            Err(Fault::new(Code::Perm, "user.* is for regular files and directories"))
        }
        // In a directory such as /tmp all users may write, but only the owner may set attributes of the directory itself.
        Space::User if inode.is_dir() && inode.attr.mode & STICKY != 0 => {
            access::need_owner(inode, cred)?;
            access::need(inode, cred, WRITE)
        }
        Space::User => access::need(inode, cred, WRITE),
    }
}

/// As a change, except that a change of content removes file capabilities: a caller with the right to write may do so.
fn need_remove(inode: &InodeRecord, name: &[u8], cred: &Cred) -> Result<(), Fault> {
    match name == CAPABILITY {
        true => access::need(inode, cred, WRITE),
        false => need_change(inode, name, cred),
    }
}

fn load(view: &dyn View, fid: Fid) -> Result<XattrsRecord, Fault> {
    match view.get(&keys::xattrs(fid)) {
        None => Ok(XattrsRecord::default()),
        Some(value) => XattrsRecord::decode(&value).map_err(|e| {
            Fault::new(Code::Damaged, format!("extended attributes of file {fid}: {e}; run stria fsck"))
        }),
    }
}

fn store(txn: &mut dyn Txn, inode: &mut InodeRecord, record: &XattrsRecord, now: Time) {
    match record.0.is_empty() {
        true => txn.delete(&keys::xattrs(inode.fid())),
        false => txn.put(keys::xattrs(inode.fid()), record.encode()),
    }
    inode.attr.ctime = now;
    store_inode(txn, inode);
}

impl XattrsRecord {
    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(n, _)| n.as_slice().cmp(name))
    }
    fn fits(&self) -> bool {
        let values: usize = self.0.iter().map(|(_, value)| value.len()).sum();
        // In the result of listxattr each name ends with a NUL.
        let names: usize = self.0.iter().map(|(name, _)| name.len() + 1).sum();
        values <= XATTR_BYTES_MAX && names <= XATTR_LIST_MAX
    }

    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.0.is_sorted_by(|a, b| a.0 < b.0), "extended attributes are sorted by name");
        assert!(self.0.iter().all(|(name, _)| name.len() <= XATTR_NAME_MAX), "a name fits its length byte");
        let mut out = vec![VERSION];
        (self.0.len() as u32).put(&mut out);
        for (name, value) in &self.0 {
            out.push(name.len() as u8);
            out.extend_from_slice(name);
            (value.len() as u32).put(&mut out);
            out.extend_from_slice(value);
        }
        out
    }
    pub fn decode(bytes: &[u8]) -> Result<XattrsRecord, Malformed> {
        let mut r = Reader::new(bytes);
        if u8::get(&mut r)? != VERSION {
            return Err(Malformed("record version"));
        }
        let count = u32::get(&mut r)? as usize;
        let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..count {
            let name_len = u8::get(&mut r)? as usize;
            let name = r.take(name_len)?.to_vec();
            let value_len = u32::get(&mut r)? as usize;
            let value = r.take(value_len)?.to_vec();
            if list.last().is_some_and(|(last, _)| *last >= name) {
                return Err(Malformed("order of extended attributes"));
            }
            list.push((name, value));
        }
        r.end()?;
        Ok(XattrsRecord(list))
    }
}

#[cfg(test)]
mod tests;
