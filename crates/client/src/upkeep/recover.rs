//! Recovery of a file that a dead session left in the middle of writing or shrinking. The first client to open it or to ask for its
//! attributes recovers it.
//!
//! The client glimpses the objects, flushes them, and reports to the MDT the size that they prove. The glimpse carries a capability
//! with a new lease version, which fences the dead session.

use std::sync::Arc;
use std::time::Instant;

use plan::size::{cuts, proven};
use types::{Attr, Code, Fault, Fid};
use wire::meta::FileState;

use crate::Fs;
use crate::cache::files::{File, For};
use crate::cache::hold::To;
use crate::session::asks::Asks;

impl Fs {
    /// Recovers a file that the MDT holds as unsettled and that is not open here. Past the deadline no request is sent.
    pub(crate) fn recover(&self, fid: Fid, deadline: Instant) -> Result<Attr, Fault> {
        if Instant::now() >= deadline {
            return Err(Fault::new(Code::Timeout, format!("file {fid}: no time is left to ask its objects")));
        }
        let file = {
            let _fid_lock = self.names.lock_fid(fid, deadline)?;
            self.files.pin(fid, For::Writing)
        };
        let attr = self.recover_in_turn(&file, deadline);
        self.unpin(&file, For::Writing, deadline);
        attr
    }

    /// While other clients share the file system, `Fs::section` itself recovers a file that needs it.
    fn recover_in_turn(&self, file: &Arc<File>, deadline: Instant) -> Result<Attr, Fault> {
        let section = self.section(file, To::Change, deadline)?;
        match section.attr {
            Some(attr) => Ok(attr),
            None => self.recover_pinned(file, deadline),
        }
    }

    fn recover_pinned(&self, file: &Arc<File>, deadline: Instant) -> Result<Attr, Fault> {
        let _order = file.lock_order(deadline)?;
        let was_loaded = file.share_body(deadline)?.is_loaded;
        if was_loaded {
            // Another call opened the file meanwhile, and has recovered it.
            let answer = self.ask_open(file, true, Asks::Again, deadline)?;
            let attr = answer.reply.inode.attr;
            self.take_open(file, answer.reply, answer.mark, deadline)?;
            return self.overlay(file, attr, deadline);
        }
        self.recover_open(file, deadline)
    }

    /// Recovers a pinned file. The caller holds `order`.
    pub(crate) fn recover_open(&self, file: &Arc<File>, deadline: Instant) -> Result<Attr, Fault> {
        // 1. A capability with a new lease version; layout and state as they are.
        let answer = self.ask_open(file, true, Asks::Again, deadline)?;
        let (inode, cap) = (answer.reply.inode.clone(), answer.reply.cap.clone());
        self.take_open(file, answer.reply, answer.mark, deadline)?;
        let mut body = file.own_body(deadline)?;
        let (Some(layout), Some(cap)) = (&mut body.layout, cap) else {
            // The file is inline, so its content and size are in the MDT's record.
            body.is_loaded = true;
            return Ok(inode.attr);
        };
        tracing::info!("file {} was left {:?}; asking its objects", file.fid, inode.state);

        // 2. Ask the objects for their lengths; finish a shrink first.
        let objects = || layout.objects(file.fid).map(|(object, mirror, _)| (object, mirror));
        let mut stats = self.glimpse(&cap, objects(), deadline)?;
        if let FileState::Truncating { size, .. } = inode.state {
            self.cut_objects(&cap, layout, &cuts(layout, size, &stats), deadline)?;
            stats = self.glimpse(&cap, objects(), deadline)?;
        }
        let proven = proven(layout, &stats);

        // 3. plan-O3: flush before the report.
        let mut links = Vec::new();
        for (object, mirror, _) in layout.objects(file.fid) {
            if stats.iter().any(|s| s.object == object && s.exists) {
                let link = self.ost(mirror, deadline)?;
                if !links.iter().any(|l| Arc::ptr_eq(l, &link)) {
                    links.push(link);
                }
            }
        }
        self.flush_links(links, deadline)?;

        // 4. Report to the MDT.
        let size = match inode.state {
            FileState::Truncating { size, .. } => size,
            _ => inode.attr.size.max(proven.size),
        };
        let mtime = proven.mtime.unwrap_or_default();
        let (answer, done) = self.report_proven(file, layout, size, mtime, &proven, deadline)?;
        body.is_loaded = true;
        let attr = answer.reply.attr;
        let mut meta = file.meta.lock();
        meta.progress.start_anew(attr.size, attr.blocks, attr.mtime);
        meta.cutting = None;
        meta.is_marked = !done;
        meta.session = self.session();
        meta.saw(answer.mark);
        Ok(attr)
    }
}
