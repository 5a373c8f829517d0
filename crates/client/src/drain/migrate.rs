//! Migration of one file's objects away from an OST, while other clients use the file (decision 0077).
//!
//! client-MG1: the file's exclusive lease is held from before the first look at its objects until the MDT has answered `CutOver`. So no byte
//!     changes meanwhile, and other clients learn the new layout with their next lease.
//! client-MG2: the new objects are flushed before `CutOver`, and the old ones too: then no client replays a write to them later.
//! client-MG3: if another client wants the file, the attempt is given up after the piece that is under way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plan::size::proven;
use plan::spans::{Whence, spans};
use types::{Attr, Buf, Code, FILE_SIZE_MAX, Fault, Fid, Layout, MirrorId, ObjectId, Time};
use wire::meta::{CutOver, DropPending, GetAttr, Migrate, Repoint};
use wire::object::{Capability, ObjectStat, SeekReserved};

use crate::Fs;
use crate::cache::api::OpenFlags;
use crate::cache::files::{Body, File};
use crate::cache::hold::To;
use crate::session::request::is_definite;
use crate::session::section::Section;
use crate::upkeep::objects::Stopped;
use crate::verbs::fallocate::Grows;
use crate::verbs::write::How;

/// Bytes that are read and then written at once: the longest wait of another client for the copy, apart from flushes.
const PIECE: u64 = 4 << 20;
/// Longest copy that makes other clients wait. The MDT evicts a session that does so for 30 s.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(15);

/// The outcome of a file's migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// All its content lies in new objects.
    Copied,
    /// It had no object there; its layout names another OST now.
    Repointed,
    /// It has nothing there any more.
    Nothing,
}

/// Why a file stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Another client uses it, or a server restarts: later it may move.
    Busy(String),
    /// Unlinked, and open somewhere.
    Unlinked,
    /// Ended by the caller.
    Ended,
    Failed(Fault),
}

impl From<Fault> for Kept {
    fn from(fault: Fault) -> Kept {
        match fault.code {
            Code::Timeout | Code::Stale | Code::NotReady | Code::Fenced | Code::Moved | Code::Busy => {
                Kept::Busy(fault.to_string())
            }
            _ => Kept::Failed(fault),
        }
    }
}

impl From<Stopped> for Kept {
    fn from(stopped: Stopped) -> Kept {
        stopped.fault().into()
    }
}

/// How a copy goes on.
pub(crate) struct Pace<'a> {
    /// It ends when another client wants the file.
    pub gives_way: bool,
    /// Called after each piece with its bytes; waits as a rate demands, and looks at the second argument meanwhile: the attempt is about to
    /// end. False: the caller ends it.
    pub go_on: &'a (dyn Fn(u64, &dyn Fn() -> bool) -> bool + Sync),
}

/// The objects of one generation, and the right to use them.
struct Side<'a> {
    layout: &'a Layout,
    cap: &'a Capability,
}

impl Fs {
    /// Moves the file's objects away from the mirror `off`, which is draining. `pending`: the generation of a layout that the file was seen to
    /// have beside its own.
    pub(crate) fn migrate(
        &self,
        fid: Fid,
        admin: &Capability,
        off: MirrorId,
        pending: Option<types::Generation>,
        pace: &Pace<'_>,
    ) -> Result<Moved, Kept> {
        let handle = match self.open(fid, OpenFlags::read_only()) {
            Ok((handle, _)) => handle,
            Err(fault) if matches!(fault.code, Code::NotFound | Code::Stale) => return Ok(Moved::Nothing),
            Err(fault) => return Err(fault.into()),
        };
        let opened = self.opened(handle)?;
        let moved = self.migrate_opened(&opened.file, (admin, off), pending, pace);
        drop(opened);
        self.release(handle);
        moved
    }

    fn migrate_opened(
        &self,
        file: &Arc<File>,
        (admin, off): (&Capability, MirrorId),
        pending: Option<types::Generation>,
        pace: &Pace<'_>,
    ) -> Result<Moved, Kept> {
        let (fid, deadline) = (file.fid, self.deadline());
        // 1. client-MG1.
        let section = self.section(file, To::Change, deadline)?;
        let token = if section.is_among_others() { file.hold.token() } else { 0 };
        if file.meta.lock().is_stale {
            self.refresh(file, None, deadline)?;
        }
        self.check_poison(file)?;
        let drop_pending = |generation| DropPending { fid, cap: admin.clone(), generation, token };
        let layout = file.share_body(deadline)?.layout.clone();
        let Some(layout) = layout else {
            // A growth that was abandoned may have left objects.
            self.ask_until(fid, &drop_pending(types::Generation(0)), deadline)?;
            return Ok(Moved::Nothing);
        };
        if let Some(generation) = pending {
            self.ask_until(fid, &drop_pending(generation), deadline)?;
        }
        if !layout.objects(fid).any(|(_, mirror, _)| mirror == off) {
            return Ok(Moved::Nothing);
        }
        let attr = self.ask_until(fid, &GetAttr { fid }, deadline)?.reply.attr;
        if attr.nlink == 0 {
            return Err(Kept::Unlinked);
        }
        let cap = file.held().ok_or_else(|| Kept::Busy("its capability is being renewed".into()))?;
        // 2. Without an object there, its layout changes and no byte is copied.
        let stats = self.glimpse(&cap, layout.objects(fid).map(|(o, m, _)| (o, m)), deadline)?;
        let is_there = |stat: &ObjectStat| stat.exists && mirror_of(&layout, stat.object) == off;
        let is_written = layout.objects(fid).any(|(_, mirror, written)| mirror == off && written);
        if !is_written && !stats.iter().any(is_there) {
            let (generation, components) = (layout.generation, layout.components.len() as u16);
            let (cap, now) = (admin.clone(), self.now());
            let req = Repoint { fid, cap, generation, components, token, empty: vec![off], now };
            let changed = self.ask_until(fid, &req, deadline)?.reply.inode.layout;
            file.own_body(deadline)?.layout = changed;
            return Ok(Moved::Repointed);
        }
        // 3. The MDT makes a layout.
        let (cap, now, generation) = (admin.clone(), self.now(), layout.generation);
        let avoid = self.mirrors_to_avoid();
        let given =
            self.ask_until(fid, &Migrate { fid, cap, generation, token, avoid, now }, deadline)?.reply;
        let old_cap = file.held().ok_or_else(|| Kept::Busy("its capability is being renewed".into()))?;
        let old = Side { layout: &layout, cap: &old_cap };
        let new = Side { layout: &given.layout, cap: &given.cap };
        let done = match given.layout.objects(fid).any(|(_, mirror, _)| mirror == off) {
            true => Err(Kept::Busy("the MDT has not heard yet that the OST is draining".into())),
            false => self
                .move_content(&section, (&old, &new), &stats, attr, pace)
                .and_then(|copied| self.cut_over(&section, (&old, &new), &copied, token, admin)),
        };
        if done.is_err() {
            // Otherwise the next attempt does so.
            _ = self.ask_until(fid, &drop_pending(given.layout.generation), self.deadline());
        }
        done.map(|()| Moved::Copied)
    }

    /// Copies all bytes and reserved ranges, and flushes them. Returns a file apart that has what was written.
    fn move_content(
        &self,
        section: &Section<'_>,
        (old, new): (&Side<'_>, &Side<'_>),
        stats: &[ObjectStat],
        attr: Attr,
        pace: &Pace<'_>,
    ) -> Result<Copied, Kept> {
        let (file, began) = (&section.file, Instant::now());
        let size = file.meta.lock().progress.size;
        let body = Body { is_loaded: true, layout: Some(old.layout.clone()) };
        let copy = Arc::new(File::apart(file.fid));
        let how = How::copied(attr.mtime);
        let must_end = || {
            self.must_give_way(section)
                && (pace.gives_way || !section.is_among_others() || began.elapsed() > OTHERS_WAIT_MAX)
        };
        let mut buf = Buf::new();
        let mut at = 0;
        while at < size {
            // A hole stays a hole.
            let Some(data) = self.seek_body(file, &body, at, Whence::Data, self.deadline())? else { break };
            let hole = self.seek_body(file, &body, data, Whence::Hole, self.deadline())?.unwrap_or(size);
            let end = hole.clamp(data + 1, size);
            at = data;
            while at < end {
                let len = (PIECE - at % PIECE).min(end - at) as usize;
                buf.clear();
                self.read_body(file, (&body, false), at, len, &mut buf, self.deadline())?;
                if buf.len() != len {
                    let why = format!("file {}: {} of {len} bytes at {at}", file.fid, buf.len());
                    return Err(Kept::Busy(why));
                }
                self.write_pieces(&copy, new.layout, new.cap, (at, &buf), how, self.deadline())
                    .map_err(|halt| halt.stopped)?;
                at += len as u64;
                if !(pace.go_on)(len as u64, &must_end) {
                    return Err(Kept::Ended);
                }
                // client-MG3.
                if must_end() {
                    return Err(Kept::Busy("another client uses it".into()));
                }
            }
        }
        self.copy_reserved(&copy, (old, new), stats, attr.mtime)?;
        // client-MG2.
        let there =
            old.layout.objects(file.fid).filter(|(o, ..)| stats.iter().any(|s| s.exists && s.object == *o));
        let mirrors: std::collections::BTreeSet<MirrorId> = there.map(|(_, mirror, _)| mirror).collect();
        let deadline = self.deadline();
        let links = mirrors.into_iter().map(|m| self.ost(m, deadline)).collect::<Result<Vec<_>, _>>()?;
        self.flush_links(links, deadline)?;
        let snapshot = copy.meta.lock().progress.snapshot();
        self.flush_marks(&copy, &snapshot.marks, deadline)?;
        Ok(Copied { copy, size })
    }

    /// Pages with space and without data have space in the new objects too.
    fn copy_reserved(
        &self,
        copy: &File,
        (old, new): (&Side<'_>, &Side<'_>),
        stats: &[ObjectStat],
        mtime: Time,
    ) -> Result<(), Kept> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for stat in stats.iter().filter(|s| s.exists && s.reserved_end > 0) {
            let link = self.ost(mirror_of(old.layout, stat.object), self.deadline())?;
            let mut offset = 0;
            while offset < stat.reserved_end {
                let req = SeekReserved { cap: old.cap.clone(), object: stat.object, offset };
                let found = link.ask(copy.fid, &req, self.deadline())?.reply;
                if found.begin >= found.end {
                    break;
                }
                ranges.extend(in_file(old.layout, stat.object, (found.begin, found.end)));
                offset = found.end;
            }
        }
        for (begin, end) in joined(ranges) {
            let spans = spans(new.layout, copy.fid, begin, end);
            self.reserve(copy, new.cap, &spans, Grows::No, mtime, self.deadline())?;
        }
        Ok(())
    }

    /// The MDT replaces the layout.
    fn cut_over(
        &self,
        section: &Section<'_>,
        (old, new): (&Side<'_>, &Side<'_>),
        copied: &Copied,
        token: u64,
        admin: &Capability,
    ) -> Result<(), Kept> {
        let (file, deadline) = (&section.file, self.deadline());
        // Other clients have come. They may think that this one is alone.
        if section.is_among_others() != self.is_shared() {
            return Err(Kept::Busy("another client has come".into()));
        }
        let snapshot = copied.copy.meta.lock().progress.snapshot();
        let stats = self.glimpse(new.cap, new.layout.objects(file.fid).map(|(o, m, _)| (o, m)), deadline)?;
        let req = CutOver {
            fid: file.fid,
            cap: admin.clone(),
            from: old.layout.generation,
            generation: new.layout.generation,
            token,
            size: copied.size,
            blocks: proven(new.layout, &stats).blocks,
            written: snapshot.written,
            now: self.now(),
        };
        let _order = file.lock_order(deadline)?;
        let mut body = file.own_body(deadline)?;
        let answer = self.ask_until(file.fid, &req, deadline).inspect_err(|fault| {
            if !is_definite(fault.code) {
                file.distrust();
            }
        })?;
        let inode = answer.reply.inode;
        self.id.gone.add(file.fid, Some(old.layout.generation));
        body.layout = inode.layout;
        let mut meta = file.meta.lock();
        meta.progress.start_anew(inode.attr.size, inode.attr.blocks, inode.attr.mtime);
        meta.cap = Some(new.cap.clone());
        meta.saw(answer.mark);
        Ok(())
    }

    /// client-MG3; and a client that is alone must not keep another one from coming in.
    fn must_give_way(&self, section: &Section<'_>) -> bool {
        self.is_stopping()
            || match section.is_among_others() {
                true => section.file.hold.is_wanted(),
                false => self.id.sharing.others_come(),
            }
    }
}

/// The content in new objects: what was written to them is noted at a file that is in no table.
struct Copied {
    copy: Arc<File>,
    size: u64,
}

fn mirror_of(layout: &Layout, object: ObjectId) -> MirrorId {
    layout.components[object.component as usize].mirrors[object.stripe as usize]
}

/// The ranges of the file that a range of an object covers.
fn in_file(layout: &Layout, object: ObjectId, (mut at, end): (u64, u64)) -> Vec<(u64, u64)> {
    let component = &layout.components[object.component as usize];
    let unit = match component.mirrors.len() {
        1 => u64::MAX,
        _ => u64::from(component.stripe_size),
    };
    let mut ranges = Vec::new();
    while at < end {
        let len = (unit - at % unit).min(end - at);
        // 0: a component without bytes.
        let behind = layout.size_from(object.component, object.stripe, at + 1);
        if behind > 0 {
            let begin = behind - 1;
            ranges.push((begin, begin.saturating_add(len).min(component.end).min(FILE_SIZE_MAX)));
        }
        at += len;
    }
    ranges
}

/// Ranges in order, without gaps and overlaps between neighbours.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.retain(|(begin, end)| begin < end);
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in ranges {
        match all.last_mut() {
            Some(last) if last.1 >= begin => last.1 = last.1.max(end),
            _ => all.push((begin, end)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Component, Generation, layout::STRIPE_SIZE_MIN};

    const UNIT: u64 = STRIPE_SIZE_MIN as u64;

    fn layout() -> Layout {
        let comp = |end, n: u32| Component {
            end,
            stripe_size: STRIPE_SIZE_MIN,
            mirrors: (0..n).map(MirrorId).collect(),
            written: vec![],
        };
        Layout { generation: Generation(1), components: vec![comp(4 * UNIT, 1), comp(u64::MAX, 3)] }
    }

    /// The ranges of all objects of a reserved range of the file are that range.
    #[test]
    fn ranges_of_objects_are_the_range_of_the_file() {
        let (layout, fid) = (layout(), Fid(9));
        for (begin, end) in
            [(0, UNIT), (UNIT, 9 * UNIT), (5 * UNIT + 4096, 6 * UNIT), (3 * UNIT, 20 * UNIT + 8192)]
        {
            let all = spans(&layout, fid, begin, end);
            let ranges = all.iter().flat_map(|s| in_file(&layout, s.object, (s.begin, s.end))).collect();
            assert_eq!(joined(ranges), [(begin, end)]);
        }
        assert_eq!(joined(vec![(5, 9), (1, 2), (2, 3), (7, 8)]), [(1, 3), (5, 9)]);
    }
}
