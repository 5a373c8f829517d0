//! SETATTR and replies about extended attributes: what the kernel asks for, and with whose rights it is done.

use std::time::Duration;
use std::time::SystemTime;

use client::SetAttr;
use fusedev::{Errno, INodeNo, ReplyAttr, ReplyXattr, Request, TimeOrNow};
use types::Fid;
use types::{Attr, Fault, Kind};

use crate::cred::is_root;
use crate::door::Door;
use crate::reply::{errno, time};

/// The change that a SETATTR asks for.
pub struct Wanted {
    pub set: SetAttr,
    /// The kernel has checked the caller, so the caller need not own the file.
    is_granted: bool,
    /// The request sets no attribute.
    is_nothing: bool,
}

impl Wanted {
    /// Takes the fields of the request; `by_handle`: the request names an open file.
    pub fn new(
        mode: Option<u32>,
        (uid, gid): (Option<u32>, Option<u32>),
        size: Option<u64>,
        (atime, mtime): (Option<TimeOrNow>, Option<TimeOrNow>),
        by_handle: bool,
    ) -> Wanted {
        let now = SystemTime::now();
        // A change of size sets mtime by itself; the kernel's NFS server asks for both.
        let mtime = mtime.filter(|time| size.is_none() || *time != TimeOrNow::Now);
        let touch = (atime, mtime) == (Some(TimeOrNow::Now), Some(TimeOrNow::Now));
        let sets_times = (atime.is_some() || mtime.is_some()) && !touch;
        let owners_only = mode.is_some() || uid.is_some() || gid.is_some() || sets_times;
        // The kernel has checked the caller. Two changes are allowed to users other than the owner, which a SETATTR of the client cannot
        // express: setting both times to now (users with write permission), and truncating through a descriptor that is open for writing.
        let is_granted = !owners_only && (size.is_none() || by_handle);
        let is_nothing = !owners_only && size.is_none() && atime.is_none() && mtime.is_none();
        let (atime, mtime) = (atime.map(|t| time(t, now)), mtime.map(|t| time(t, now)));
        let set = SetAttr {
            mode: mode.map(|m| m & 0o7777),
            uid,
            gid,
            size,
            atime,
            mtime,
            // A request without attributes changes ctime.
            touch: touch || is_nothing,
            kill_privileges: false,
        };
        Wanted { set, is_granted, is_nothing }
    }
}

impl Door {
    pub(crate) fn set_as_wanted(&self, rq: &Request, ino: INodeNo, wanted: &Wanted, reply: ReplyAttr) {
        let Wanted { set, is_granted, is_nothing } = wanted;
        let mut done = self.set(rq, self.fid(ino), set, *is_granted);
        if *is_nothing && let Ok(attr) = &done {
            // The kernel sends no attributes in two cases: a change of owner that keeps the owner, and the request to clear set-id bits
            // before a write. Both clear set-id bits. If the owner asks, it is a change even if there are none.
            let is_owner = is_root(rq) || rq.uid() == attr.uid;
            if is_owner {
                let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
                done = self.set(rq, self.fid(ino), &set, false);
            } else if attr.kind != Kind::Dir {
                done = self.drop_privileges(rq, self.fid(ino));
            }
        }
        match self.kept_attributes(ino, done) {
            Ok(attr) => reply.attr(&Duration::ZERO, &self.file_attr(&attr)),
            Err(fault) => reply.error(errno("setattr", &fault)),
        }
    }

    fn set(&self, request: &Request, fid: Fid, set: &SetAttr, is_granted: bool) -> Result<Attr, Fault> {
        let cred = if is_granted { self.reader(request) } else { self.cred(request) };
        let attr = match set.size {
            None => self.fs.setattr(fid, set, &cred)?,
            Some(size) => {
                self.in_use.size_set(fid);
                self.growing(request, fid, (0, size), false, || self.fs.setattr(fid, set, &cred), |_| size)?
            }
        };
        self.set_id.on_mode(attr.mode);
        // The MDT clears set-id bits at a change of owner; at a change of size this door has to do it.
        if set.size.is_some() && !is_root(request) {
            return self.drop_privileges(request, fid);
        }
        Ok(attr)
    }

    /// With size 0 the kernel asks for the needed buffer size.
    pub(crate) fn answer_xattr(
        &self,
        verb: &str,
        result: Result<Vec<u8>, Fault>,
        size: u32,
        reply: ReplyXattr,
    ) {
        match result {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(fault) => reply.error(errno(verb, &fault)),
        }
    }
}
