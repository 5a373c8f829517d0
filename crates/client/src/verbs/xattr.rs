//! Extended attributes. Those under `stria.` are computed here and not stored.
//!
//! - `stria.layout`: a directory's or file's striping. Read: a directory's words, a file's text; set and remove: `setstripe`'s words.
//! - `stria.layout.text`, `.yaml`, `.json`: what `getstripe` shows of either, to be read only.
//! - `stria.fid`, `stria.path`: what the file system calls it.  - `stria.df`: its targets' numbers, as JSON.
//! - `stria.net`: counters of the mount's connections; `stria.net.trace.N`: its frames after number N (`wire::fabric`).
//! - `stria.params`: the parameters of the mount, as JSON. Root sets it: `NAME=NUMBER` or `NAME`, each on a line.
//! - `stria.du`: what lies in a directory and below it, as JSON.

use std::sync::atomic::Ordering;

use plan::show::Shown;
use types::{Code, Cred, Fault, Fid, Kind};
use wire::codec::Bytes;
use wire::meta::{GetStripe, GetStripeReply, GetXattr, ListXattr, PathOf, RemoveXattr, SetStripe, SetXattr};

use crate::Fs;
use crate::cache::files::File;

const LAYOUT: &[u8] = b"stria.layout";
const LAYOUT_TEXT: &[u8] = b"stria.layout.text";
const LAYOUT_YAML: &[u8] = b"stria.layout.yaml";
const LAYOUT_JSON: &[u8] = b"stria.layout.json";
const FID: &[u8] = b"stria.fid";
const PATH: &[u8] = b"stria.path";
const DF: &[u8] = b"stria.df";
const PARAMS: &[u8] = b"stria.params";
const NET: &[u8] = b"stria.net";
/// Begins the name of the attribute that traces frames.
pub const TRACE_ATTRIBUTE: &[u8] = b"stria.net.trace.";
const DU: &[u8] = b"stria.du";
const VIRTUAL: &[u8] = b"stria.";
const SECURITY: &[u8] = b"security.";

impl Fs {
    /// The value of an attribute, for root.
    pub fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>, Fault> {
        self.getxattr_as(fid, name, &Cred::root())
    }

    pub fn getxattr_as(&self, fid: Fid, name: &[u8], cred: &Cred) -> Result<Vec<u8>, Fault> {
        match name {
            LAYOUT => self.layout_value(fid).map(String::into_bytes),
            LAYOUT_TEXT => self.layout_shown(fid, plan::show::text).map(String::into_bytes),
            LAYOUT_YAML => self.layout_shown(fid, plan::show::yaml).map(String::into_bytes),
            LAYOUT_JSON => self.layout_shown(fid, plan::show::json).map(String::into_bytes),
            FID => Ok(fid.to_string().into_bytes()),
            PATH => Ok(self.ask(fid, &PathOf { fid })?.path.0),
            DF => self.df_json().map(String::into_bytes),
            PARAMS => self.params_json().map(String::into_bytes),
            NET => Ok(self.net_stat()),
            _ if name.starts_with(TRACE_ATTRIBUTE) => self.net_trace(&name[TRACE_ATTRIBUTE.len()..]),
            DU => self.du_json(fid, cred).map(String::into_bytes),
            _ if name.starts_with(VIRTUAL) => Err(Code::NoData.into()),
            // The kernel asks for the capabilities of each file that is written, for any user.
            _ if name.starts_with(SECURITY) && self.is_bare(fid) => Err(Code::NoData.into()),
            _ => Ok(self.ask(fid, &GetXattr { fid, name: Bytes::from(name), cred: cred.clone() })?.value.0),
        }
    }

    /// `flags` as setxattr(2).
    pub fn setxattr(
        &self,
        fid: Fid,
        name: &[u8],
        value: &[u8],
        flags: u32,
        cred: &Cred,
    ) -> Result<(), Fault> {
        self.refuse_observer()?;
        if name == LAYOUT {
            return self.set_layout(fid, value, cred);
        }
        if name == PARAMS {
            return self.set_params(value, cred);
        }
        refuse_virtual(name)?;
        let (name, value, now, cred) = (Bytes::from(name), Bytes::from(value), self.now(), cred.clone());
        self.will_set_xattr(fid);
        self.ask(fid, &SetXattr { fid, name, value, flags, now, cred }).map(|_| ())
    }

    /// Names of stored attributes. Computed ones are not listed, so that programs do not copy them.
    pub fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>, Fault> {
        self.listxattr_as(fid, &Cred::root())
    }

    pub fn listxattr_as(&self, fid: Fid, cred: &Cred) -> Result<Vec<Vec<u8>>, Fault> {
        Ok(self.ask(fid, &ListXattr { fid, cred: cred.clone() })?.names.into_iter().map(|n| n.0).collect())
    }

    pub fn removexattr(&self, fid: Fid, name: &[u8], cred: &Cred) -> Result<(), Fault> {
        self.refuse_observer()?;
        if name == LAYOUT {
            return self
                .ask(fid, &SetStripe { fid, spec: None, now: self.now(), cred: cred.clone() })
                .map(|_| ());
        }
        refuse_virtual(name)?;
        let (name, now, cred) = (Bytes::from(name), self.now(), cred.clone());
        self.ask(fid, &RemoveXattr { fid, name, now, cred }).map(|_| ())
    }

    /// Counters that rise when an extended attribute may have been set.
    pub(crate) fn xattrs_set(&self) -> (u64, u64) {
        (self.seasons_shared(), self.xattrs_set.load(Ordering::SeqCst))
    }

    /// Notes that a file that was made here after `before` has no extended attributes.
    pub(crate) fn note_bare(&self, file: &File, before: (u64, u64)) {
        let mut meta = file.meta.lock();
        // Checked under the lock: a call that sets an attribute raises the counter first, and removes the note second.
        if self.xattrs_set() == before && !self.is_shared() {
            meta.bare_in = Some(before.0);
        }
    }

    fn will_set_xattr(&self, fid: Fid) {
        self.xattrs_set.fetch_add(1, Ordering::SeqCst);
        if let Some(file) = self.files.get(fid) {
            file.meta.lock().bare_in = None;
        }
    }

    /// True if the file is known to have no extended attributes. ACLs do not count.
    fn is_bare(&self, fid: Fid) -> bool {
        if self.id.unshipped.is_new(fid) {
            return true;
        }
        let noted = self.files.get(fid).and_then(|file| file.meta.lock().bare_in);
        noted.is_some_and(|season| !self.is_shared() && season == self.seasons_shared())
    }

    fn set_layout(&self, fid: Fid, value: &[u8], cred: &Cred) -> Result<(), Fault> {
        let text =
            std::str::from_utf8(value).map_err(|_| Fault::new(Code::Invalid, "striping is UTF-8 text"))?;
        let spec =
            plan::stripe::parse(text).map_err(|e| Fault::new(Code::Invalid, format!("striping {e}")))?;
        self.ask(fid, &SetStripe { fid, spec: Some(spec), now: self.now(), cred: cred.clone() })?;
        if let Some(file) = self.files.get(fid) {
            file.meta.lock().inline_max = None;
        }
        Ok(())
    }

    /// The striping of a directory, or the layout of a file.
    fn layout_value(&self, fid: Fid) -> Result<String, Fault> {
        let reply = self.ask(fid, &GetStripe { fid })?;
        if reply.inode.attr.kind == Kind::Dir {
            return reply.spec.map(|spec| plan::stripe::print(&spec)).ok_or_else(|| Code::NoData.into());
        }
        Ok(self.shown(fid, &reply, plan::show::text))
    }

    /// For `getstripe`, which puts its path in the place of the fid.
    pub fn layout_shown(&self, fid: Fid, form: fn(Shown<'_>) -> String) -> Result<String, Fault> {
        Ok(self.shown(fid, &self.ask(fid, &GetStripe { fid })?, form))
    }

    fn shown(&self, fid: Fid, reply: &GetStripeReply, form: fn(Shown<'_>) -> String) -> String {
        let index_of = |mirror| self.cluster.ost_index(mirror);
        let osts: Vec<u32> = self.cluster.osts().iter().filter_map(|(mirror, _)| index_of(*mirror)).collect();
        form(Shown {
            path: &fid.to_string(),
            fid,
            is_dir: reply.inode.attr.kind == Kind::Dir,
            layout: reply.inode.layout.as_ref(),
            spec: reply.spec.as_ref(),
            inline_max: reply.inline_max,
            osts: &osts,
            index_of: &index_of,
        })
    }
}

fn refuse_virtual(name: &[u8]) -> Result<(), Fault> {
    match name.starts_with(VIRTUAL) {
        true => Err(Fault::new(Code::Perm, format!("{} is not to be set", String::from_utf8_lossy(name)))),
        false => Ok(()),
    }
}
