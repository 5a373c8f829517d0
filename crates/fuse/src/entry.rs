//! Replies about names and attributes, with the time-outs that leases allow.

use client::{Handle, Leave, TimeOuts};
use fusedev::*;
use types::{Attr, Code, Fault, Fid, Kind};

use crate::coherence::AttrReply;
use crate::door::Door;
use crate::reply::errno;

impl Door {
    /// Replies with attributes that the kernel may cache as `leave` allows.
    pub(crate) fn put_attr(&self, reply: AttrReply, attr: &Attr, leave: &Leave) {
        let replying = self.fs.reply(leave.dir());
        let ttl = replying.time_outs(leave, None).attr;
        match reply {
            AttrReply::Attr(reply) => reply.attr(&ttl, &self.file_attr(attr)),
            AttrReply::Statx(reply) => reply.statx(&ttl, &self.file_attr(attr), &StatxAttr::default()),
        }
    }
    pub(crate) fn answer_entry(
        &self,
        verb: &str,
        (name, result): (&[u8], Result<Attr, Fault>),
        leave: &Leave,
        reply: ReplyEntry,
    ) {
        let replying = self.fs.reply(leave.dir());
        let is_dir = result.as_ref().is_ok_and(|attr| attr.kind == Kind::Dir);
        let TimeOuts { name, attr: attr_ttl } = replying.time_outs(leave, Some((name, is_dir)));
        match result {
            Ok(attr) => {
                self.set_id.on_mode(attr.mode);
                reply.entry_with_ttls(&attr_ttl, &name, &self.file_attr(&attr), self.generation(attr.fid))
            }
            Err(fault) if fault.code == Code::NotFound && !name.is_zero() => reply.absent(&name),
            Err(fault) => reply.error(errno(verb, &fault)),
        }
    }

    /// As `answer_entry`, of a name that was made.
    pub(crate) fn answer_made(
        &self,
        verb: &str,
        at: (Fid, &[u8]),
        made: Result<Attr, Fault>,
        reply: ReplyEntry,
    ) {
        let leave = made.as_ref().map_or(Leave::default(), |attr| self.fs.leave_of(at.0, at.1, attr));
        self.answer_entry(verb, (at.1, made), &leave, reply);
    }

    pub(crate) fn answer_created(
        &self,
        verb: &str,
        at: Option<(Fid, &[u8])>,
        made: Result<(Attr, Handle), Fault>,
        open: client::OpenFlags,
        reply: ReplyCreate,
    ) {
        match made {
            Ok((attr, handle)) => {
                self.set_id.on_mode(attr.mode);
                let leave = at.map_or(Leave::default(), |(dir, name)| self.fs.leave_of(dir, name, &attr));
                let replying = self.fs.reply(leave.dir());
                let TimeOuts { name, attr: attr_ttl } =
                    replying.time_outs(&leave, at.map(|(_, name)| (name, false)));
                let flags = self.fopen_flags(attr.fid, handle, open.write);
                self.note_opened(attr.fid, handle, open, flags);
                let generation = self.generation(attr.fid);
                reply.created(
                    &attr_ttl,
                    &name,
                    &self.file_attr(&attr),
                    generation,
                    FileHandle(handle.0),
                    flags,
                )
            }
            Err(fault) => reply.error(errno(verb, &fault)),
        }
    }
}
