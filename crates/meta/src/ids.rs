//! Ids of another numbering (a nodemap's): in requests before the rules see them, and in replies before they leave.
//!
//! meta-ID1: every id of a user or group that a reply carries is mapped: in attributes, and in access control lists.
//! The credentials of a request are not here; the judge's replace them (meta-J1).

use types::{Attr, Code, Fault};
use wire::accessed::Accessed;
use wire::codec::{Bytes, Malformed};
use wire::meta::*;
use wire::shared::{Enter, LeaseKind};
use wire::{Request, Wire};

use crate::acl::Acl;
use crate::{is_mutation, set_acl};

/// A numbering. `None`: the id has no place in it.
pub struct Ids<'a> {
    pub uid: &'a dyn Fn(u32) -> Option<u32>,
    pub gid: &'a dyn Fn(u32) -> Option<u32>,
}

/// True if a node that may only read must not make this call. An open for reading among several sessions takes a lease, which changes
/// nothing that another node sees.
pub fn is_change(call: u16, body: &[u8]) -> bool {
    match call {
        Open::CALL => {
            Open::from_bytes(body).map_or(true, |r| r.write || r.append || r.truncate || r.keep_write)
        }
        Enter::CALL => Enter::from_bytes(body).map_or(true, |r| r.write || r.kind != LeaseKind::Shared),
        Release::CALL => false,
        // A hint of a read. Without it the access time stays, as on a medium that is mounted for reading.
        Accessed::CALL => true,
        _ => is_mutation(call) == Some(true),
    }
}

/// The request with mapped ids; `None`: it has none.
pub fn request_ids(call: u16, body: &[u8], ids: &Ids<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let malformed = |e: Malformed| Fault::new(Code::BadRequest, format!("call {call:#06x}: {e}"));
    match call {
        SetAttr::CALL => {
            let mut req = SetAttr::from_bytes(body).map_err(malformed)?;
            if req.valid & SET_UID != 0 {
                req.uid = (ids.uid)(req.uid).ok_or_else(|| no_place("user", req.uid))?;
            }
            if req.valid & SET_GID != 0 {
                req.gid = (ids.gid)(req.gid).ok_or_else(|| no_place("group", req.gid))?;
            }
            Ok((req.valid & (SET_UID | SET_GID) != 0).then(|| req.to_bytes()))
        }
        SetXattr::CALL => {
            let mut req = SetXattr::from_bytes(body).map_err(malformed)?;
            if !is_acl(&req.name.0) {
                return Ok(None);
            }
            req.value = Bytes(mapped_acl(&req.value.0, ids)?);
            Ok(Some(req.to_bytes()))
        }
        _ => Ok(None),
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == set_acl::ACCESS || name == set_acl::DEFAULT
}

fn no_place(what: &str, id: u32) -> Fault {
    Fault::new(Code::Invalid, format!("{what} {id} has no place in the nodemap of this node"))
}

fn mapped_acl(value: &[u8], ids: &Ids<'_>) -> Result<Vec<u8>, Fault> {
    let mut acl = Acl::from_xattr(value)?;
    acl.map_ids(&|is_user, id| match is_user {
        true => (ids.uid)(id).ok_or_else(|| no_place("user", id)),
        false => (ids.gid)(id).ok_or_else(|| no_place("group", id)),
    })?;
    Ok(acl.to_xattr())
}

/// The body of a reply with mapped ids; `None`: it has none. An id without a place stays out of reach of its own numbering, so `ids` gives
/// every id one.
pub fn reply_ids(call: u16, body: &[u8], reply: &[u8], ids: &Ids<'_>) -> Result<Option<Vec<u8>>, Fault> {
    // A request that is older than its slot's last has no reply any more.
    if reply.is_empty() {
        return Ok(None);
    }
    let malformed = |e: Malformed| Fault::new(Code::Io, format!("the reply to call {call:#06x}: {e}"));
    if call == GetXattr::CALL {
        let asked = GetXattr::from_bytes(body).map_err(malformed)?;
        let said = GetXattrReply::from_bytes(reply).map_err(malformed)?;
        // An empty value asks for the length.
        if !is_acl(&asked.name.0) || said.value.0.is_empty() {
            return Ok(None);
        }
        return Ok(Some(GetXattrReply { value: Bytes(mapped_acl(&said.value.0, ids)?) }.to_bytes()));
    }
    attrs_of(call, reply, &mut |attr| {
        attr.uid = (ids.uid)(attr.uid).unwrap_or(attr.uid);
        attr.gid = (ids.gid)(attr.gid).unwrap_or(attr.gid);
    })
    .map_err(malformed)
}

/// The reply after `change` of all attributes in it; `None`: it can have none.
fn attrs_of(
    call: u16,
    reply: &[u8],
    change: &mut dyn FnMut(&mut Attr),
) -> Result<Option<Vec<u8>>, Malformed> {
    macro_rules! replies {
        ($($($request:ident)* => |$reply:ident| $attrs:expr;)*) => {
            match call {
                $($($request::CALL => {
                    let mut $reply = <$request as Request>::Reply::from_bytes(reply)?;
                    $attrs.into_iter().for_each(|attr| change(attr));
                    Ok(Some($reply.to_bytes()))
                })*)*
                _ => Ok(None),
            }
        };
    }
    replies! {
        Lookup GetAttr SetAttr MakeDir Symlink Link SetFlags => |r| [&mut r.attr];
        Unlink RemoveDir WriteInline AllocateInline Settle => |r| [&mut r.attr];
        Create => |r| [&mut r.open.inode.attr];
        CreateWith Open Tmpfile Grow Switch MoveTail Migrate CutOver Repoint Truncate GetStripe => |r| [&mut r.inode.attr];
        OpenRead => |r| r.open.iter_mut().map(|open| &mut open.inode.attr);
        Enter => |r| r.open.iter_mut().map(|open| &mut open.inode.attr);
        Rename => |r| r.replaced.iter_mut().map(|gone| &mut gone.attr);
        GetAttrs => |r| r.inodes.iter_mut().flatten().map(|inode| &mut inode.attr);
        ReadDir => |r| r.entries.iter_mut().filter_map(|entry| Some(&mut entry.inode.as_mut()?.attr));
        Scan => |r| r.records.iter_mut().filter_map(|record| match record {
            ScanRecord::Inode { inode, .. } => Some(&mut inode.attr),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests {
    use types::{Cred, Fid, Kind, Time};

    use super::*;

    fn up(id: u32) -> Option<u32> {
        (id < 100).then_some(id + 5000)
    }
    fn down(id: u32) -> Option<u32> {
        Some(id.wrapping_sub(5000))
    }
    const TO_FS: Ids<'static> = Ids { uid: &up, gid: &up };
    const TO_CLIENT: Ids<'static> = Ids { uid: &down, gid: &down };

    fn inode() -> Inode {
        let time = Time::new(1, 2);
        let attr = Attr {
            fid: Fid(16),
            kind: Kind::File,
            mode: 0o644,
            uid: 5007,
            gid: 5008,
            nlink: 1,
            rdev: 0,
            size: 3,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        };
        Inode { attr, layout: None, state: FileState::Settled, flags: 0 }
    }

    fn told<R: Request>(reply: &R::Reply) -> R::Reply {
        let mapped = reply_ids(R::CALL, &[], &reply.to_bytes(), &TO_CLIENT).unwrap();
        R::Reply::from_bytes(&mapped.expect("it carries ids")).unwrap()
    }

    #[test]
    fn id1_replies_carry_the_clients_ids() {
        let ids = |attr: &Attr| (attr.uid, attr.gid);
        assert_eq!(ids(&told::<Lookup>(&inode()).attr), (7, 8));
        let open = || OpenReply { inode: inode(), cap: None };
        assert_eq!(ids(&told::<Open>(&open()).inode.attr), (7, 8));
        assert_eq!(ids(&told::<Create>(&CreateReply { made: true, open: open() }).open.inode.attr), (7, 8));
        let read = told::<OpenRead>(&OpenReadReply { open: Some(open()), crcs: None });
        assert_eq!(ids(&read.open.unwrap().inode.attr), (7, 8));
        let gone = UnlinkReply { attr: inode().attr, kept: false };
        let renamed = told::<Rename>(&RenameReply { replaced: Some(gone), whiteout: Fid(0) });
        assert_eq!(ids(&renamed.replaced.unwrap().attr), (7, 8));
        let several = told::<GetAttrs>(&GetAttrsReply { inodes: vec![None, Some(inode())] });
        assert_eq!(several.inodes[1].as_ref().map(|i| ids(&i.attr)), Some((7, 8)));
        let entry =
            |inode| DirEntry { name: b"n"[..].into(), fid: Fid(16), kind: Kind::File, cookie: 1, inode };
        let entries = vec![entry(Some(inode())), entry(None)];
        let listed = told::<ReadDir>(&ReadDirReply { parent: Fid(1), entries, more: false });
        assert_eq!(listed.entries[0].inode.as_ref().map(|i| ids(&i.attr)), Some((7, 8)));
        assert_eq!(reply_ids(ReadLink::CALL, &[], &[], &TO_CLIENT), Ok(None));
    }

    #[test]
    fn owners_and_lists_in_requests_get_the_file_systems_ids() {
        let (time, cred) = (Time::new(1, 0), Cred::root());
        let owner = |valid, uid| SetAttr {
            fid: Fid(16),
            valid,
            mode: 0,
            uid,
            gid: 3,
            atime: time,
            mtime: time,
            now: time,
            held: None,
            cred: cred.clone(),
        };
        let sent = |req: &SetAttr| request_ids(SetAttr::CALL, &req.to_bytes(), &TO_FS);
        let body = sent(&owner(SET_UID | SET_GID, 2)).unwrap().unwrap();
        let req = SetAttr::from_bytes(&body).unwrap();
        assert_eq!((req.uid, req.gid), (5002, 5003));
        assert_eq!(sent(&owner(SET_MODE, 2)), Ok(None));
        assert_eq!(sent(&owner(SET_UID, 100)).unwrap_err().code, Code::Invalid);
        // u::rw-,u:7:r--,g::r--,m::r--,o::---
        let entries =
            [(1u16, 6u16, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
        let list = |user: u32| {
            let mut value = 2u32.to_le_bytes().to_vec();
            for (tag, perm, id) in entries {
                tag.put(&mut value);
                perm.put(&mut value);
                (if tag == 2 { user } else { id }).put(&mut value);
            }
            value
        };
        let name = || b"system.posix_acl_access"[..].into();
        let set = SetXattr { fid: Fid(16), name: name(), value: Bytes(list(7)), flags: 0, now: time, cred };
        let body = request_ids(SetXattr::CALL, &set.to_bytes(), &TO_FS).unwrap().unwrap();
        let stored = SetXattr::from_bytes(&body).unwrap().value;
        assert_eq!(stored.0, list(5007));
        let get = GetXattr { fid: Fid(16), name: name(), cred: Cred::root() }.to_bytes();
        let reply = GetXattrReply { value: stored }.to_bytes();
        let told = reply_ids(GetXattr::CALL, &get, &reply, &TO_CLIENT).unwrap().unwrap();
        assert_eq!(GetXattrReply::from_bytes(&told).unwrap().value.0, list(7));
    }

    #[test]
    fn a_reader_makes_no_call_that_changes_something() {
        let open = |write, truncate| {
            let open = Open {
                fid: Fid(16),
                read: true,
                write,
                append: false,
                truncate,
                keep_write: false,
                held: None,
                now: Time::new(1, 0),
                cred: Cred::root(),
            };
            is_change(Open::CALL, &open.to_bytes())
        };
        assert_eq!([open(false, false), open(true, false), open(false, true)], [false, true, true]);
        let enter = |kind, write| {
            let (fid, now) = (Fid(16), Time::new(1, 0));
            is_change(
                Enter::CALL,
                &Enter { fid, token: 1, floor: 0, kind, write, now, held: None }.to_bytes(),
            )
        };
        let kinds = [LeaseKind::Shared, LeaseKind::Many, LeaseKind::Exclusive];
        assert_eq!(kinds.map(|kind| enter(kind, false)), [false, true, true]);
        assert!(enter(LeaseKind::Shared, true) && is_change(Open::CALL, &[]), "a body that does not decode");
        for (call, name) in wire::ALL_CALLS.iter().copied().flatten() {
            let may = [Release::CALL, Open::CALL, Enter::CALL].contains(call);
            assert!(may || is_change(*call, &[]) == (is_mutation(*call) == Some(true)), "{name}");
        }
    }
}
