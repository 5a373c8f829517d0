//! Making names: files, special files, directories, symlinks, hard links.
//!
//! Each locks its name: a file that another thread makes under the same name before the MDT hears of it (`session::ship`) would be lost.

use std::sync::Arc;
use std::time::Instant;

use plan::settle::Mark;
use types::{Attr, Code, Cred, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{Create, CreateReply, Inode, Link, MakeDir, ReadLink, Symlink};

use crate::Fs;
use crate::cache::api::{Handle, Mode, OpenFlags};
use crate::cache::files::{File, For};
use crate::session::asks::Asks;
use crate::session::request::Answer;

impl Fs {
    /// Makes and opens a regular file. Without `exclusive`, an existing one is opened instead (and emptied if `truncate`).
    pub fn create(
        &self,
        parent: Fid,
        name: &[u8],
        mode: impl Into<Mode>,
        flags: OpenFlags,
        cred: &Cred,
    ) -> Result<(Attr, Handle), Fault> {
        self.refuse_observer()?;
        let deadline = self.deadline();
        // 1. client-C4: under the name lock, so that no unlink comes between the creation and the file's place in the table.
        let (name_lock, mode) = (self.names.lock(parent, name, deadline)?, mode.into());
        if let Some(made) = self.make_here((parent, name), mode, flags, cred, deadline) {
            return made;
        }
        let req = Create {
            exclusive: flags.exclusive,
            read: flags.read,
            write: flags.write,
            append: flags.append || flags.appends_itself,
            ..self.create_request(parent, name, Kind::File, mode, 0, cred)
        };
        let (before, times_told) = (self.xattrs_set(), self.id.sharing.times_told());
        let Answer { reply: CreateReply { made, open }, mark, .. } =
            self.ask_until(parent, &req, deadline)?;
        let fid = open.inode.attr.fid;
        let why = if flags.write { For::Writing } else { For::Reading };
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, why)
        };
        _ = self.id.sharing.note_open(&file);
        if made {
            self.note_bare(&file, before);
        }
        drop(name_lock);
        // 2. The rest is as in an open.
        let attr = self
            .take_created(&file, CreateReply { made, open }, mark, Asks::New(flags, cred), deadline)
            .and_then(|attr| self.hold_made(&file, attr, times_told, deadline))
            .and_then(|attr| match flags.truncate && !made {
                true => self.truncate_pinned(&file, 0, cred, deadline),
                false => Ok(attr),
            });
        self.make_handle(file, flags, attr, deadline).map(|(handle, attr)| (attr, handle))
    }

    fn take_created(
        &self,
        file: &Arc<File>,
        reply: CreateReply,
        mark: Mark,
        asks: Asks<'_>,
        deadline: Instant,
    ) -> Result<Attr, Fault> {
        if !reply.made {
            // The file existed. It may have been open here, and changed since the answer, so ask again in order.
            return self.open_again(file, asks, deadline);
        }
        let _order = file.lock_order(deadline)?;
        let attr = reply.open.inode.attr;
        self.take_open(file, reply.open, mark, deadline)?;
        Ok(attr)
    }

    /// Makes a descriptor for a pinned file. On an error the pin ends.
    pub(crate) fn make_handle(
        &self,
        file: Arc<File>,
        flags: OpenFlags,
        attr: Result<Attr, Fault>,
        deadline: Instant,
    ) -> Result<(Handle, Attr), Fault> {
        match attr.and_then(|attr| self.overlay(&file, attr, deadline)) {
            Ok(attr) => Ok((self.files.add_handle(file, flags), attr)),
            Err(fault) => {
                self.unpin(&file, if flags.write { For::Writing } else { For::Reading }, deadline);
                Err(fault)
            }
        }
    }

    fn create_request(
        &self,
        parent: Fid,
        name: &[u8],
        kind: Kind,
        mode: Mode,
        rdev: u32,
        cred: &Cred,
    ) -> Create {
        let Mode { bits: mode, umask } = mode;
        let (name, now, cred) = (Bytes::from(name), self.now(), cred.clone());
        Create {
            parent,
            name,
            kind,
            mode,
            umask,
            rdev,
            exclusive: true,
            read: false,
            write: false,
            append: false,
            now,
            cred,
            want: Fid(0),
        }
    }

    /// Makes a file of any kind but directory and symlink, and does not open it.
    pub fn mknod(
        &self,
        parent: Fid,
        name: &[u8],
        kind: Kind,
        mode: impl Into<Mode>,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        if matches!(kind, Kind::Dir | Kind::Symlink) {
            return Err(Fault::new(Code::Invalid, "mknod makes no directories and no symlinks"));
        }
        let req = self.create_request(parent, name, kind, mode.into(), rdev, cred);
        let _name_lock = self.names.lock(parent, name, self.deadline())?;
        Ok(self.ask(parent, &req)?.open.inode.attr)
    }

    pub fn mkdir(&self, parent: Fid, name: &[u8], mode: impl Into<Mode>, cred: &Cred) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        let Mode { bits: mode, umask } = mode.into();
        let _name_lock = self.names.lock(parent, name, self.deadline())?;
        let (name, now, cred) = (Bytes::from(name), self.now(), cred.clone());
        Ok(self.ask(parent, &MakeDir { parent, name, mode, umask, now, cred, want: Fid(0) })?.attr)
    }

    pub fn symlink(&self, parent: Fid, name: &[u8], target: &[u8], cred: &Cred) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        let _name_lock = self.names.lock(parent, name, self.deadline())?;
        let (name, target, now, cred) = (Bytes::from(name), Bytes::from(target), self.now(), cred.clone());
        Ok(self.ask(parent, &Symlink { parent, name, target, now, cred, want: Fid(0) })?.attr)
    }

    pub fn readlink(&self, fid: Fid) -> Result<Vec<u8>, Fault> {
        Ok(self.ask(fid, &ReadLink { fid })?.target.0)
    }

    /// Adds a name to a file.
    pub fn link(&self, fid: Fid, parent: Fid, name: &[u8], cred: &Cred) -> Result<Attr, Fault> {
        self.refuse_observer()?;
        let file = self.files.get(fid);
        let _name_lock = self.names.lock(parent, name, self.deadline())?;
        let (name, now, cred) = (Bytes::from(name), self.now(), cred.clone());
        let inode: Inode = self.ask(fid, &Link { fid, parent, name, now, cred })?;
        if let Some(file) = &file {
            // An orphan with a new name is no longer an orphan.
            file.meta.lock().is_orphan = false;
        }
        self.attr_of(&inode, file)
    }
}
