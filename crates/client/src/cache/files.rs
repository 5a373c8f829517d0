//! Open files, files that wait for their size and attribute update, and descriptors.
//!
//! client-C4 here: `pin` puts a file into the table before its `Open` is sent, so that an `Unlink` that runs at the same time finds it.
//! client-C1 here: locks are taken in the order name lock, `quiet`, shard, `order`, `body`, `whole`, `meta`; see each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use plan::settle::{Mark, Progress};
use types::{Attr, Fault, Fid, Layout, SessionId, Time};
use wire::meta::{FLAG_APPEND, FLAG_IMMUTABLE, FileState};
use wire::object::Capability;

use crate::cache::api::{Handle, OpenFlags};
use crate::cache::content::Kept;
use crate::cache::hold::Hold;

/// Shards of the table. Opens of different files seldom share one; 16 are enough for the threads of one mount.
const SHARDS: usize = 16;
/// Several times the files that a fast mount closes in a second; 2 MiB.
const LEFT_ALONE_MAX: usize = 1 << 18;

pub(crate) struct File {
    pub fid: Fid,
    /// Held during requests about the content: open for writing, settle, truncate, inline-to-object migration.
    pub order: Mutex<()>,
    /// Reads and writes hold it shared. A change of the layout or a truncation holds it exclusively.
    pub body: Arc<RwLock<Body>>,
    /// client-W1: writes of several requests hold it exclusively, others shared. The body is held shared before it.
    pub whole: RwLock<()>,
    /// Held for moments, never over a request.
    pub meta: Mutex<Meta>,
    /// Beside other clients: the lease of the content.
    pub hold: Hold,
}

/// The place of the content.
#[derive(Default)]
pub(crate) struct Body {
    /// False until the first `Open` has answered, and a file of a dead session is recovered.
    pub is_loaded: bool,
    /// `None`: inline.
    pub layout: Option<Layout>,
}

#[derive(Default)]
pub(crate) struct Meta {
    pub progress: Progress,
    pub cap: Option<Capability>,
    /// Descriptors, and calls that work on the file without one.
    pub pins: u32,
    pub writers: u32,
    /// The MDT has it as written by this session. A `Settle` with `done` is due when the last writer closes.
    pub is_marked: bool,
    /// Unlinked while open. The last close releases it.
    pub is_orphan: bool,
    /// The file is gone, so no update is due.
    pub is_gone: bool,
    /// The errored state: the file lost acknowledged bytes, and every use fails until the last descriptor is closed.
    pub poison: Option<Fault>,
    /// client-WB5: a write behind failed. As `poison`, but all that was acknowledged is there, and is settled.
    pub failed_behind: Option<Fault>,
    /// The last entry of the MDT that concerns the file.
    pub mdt_mark: Option<Mark>,
    pub inline_max: Option<u32>,
    /// `chattr` flags, as the MDT last told them.
    pub flags: u32,
    /// A truncation to this size was begun at the MDT, and its cuts at OSTs failed. It is finished before anything else.
    pub cutting: Option<u64>,
    /// A write that was refused in part has left bytes past the file's end.
    pub overshot: bool,
    /// The file is queued for the settle thread.
    pub is_queued: bool,
    /// The furthest end and the latest time of its writes behind.
    pub behind: Option<(u64, Time)>,
    /// The session that the marks and capabilities belong to.
    pub session: SessionId,
    /// Changed while this client was alone. The client reports that before it believes the MDT.
    pub knows_better: bool,
    /// The MDT knows, beside other clients, that the file is open here.
    pub is_noted: bool,
    /// Beside other clients: the kernel has forgotten attributes from before this client began to write.
    pub is_kernel_told: bool,
    /// Content that came with an open, and a counter of local changes: see `content.rs`.
    pub content: Kept,
    /// The generation counter of sharing in which this client made the file. While it holds, the file has no extended attributes.
    pub bare_in: Option<u64>,
    /// Other clients worked on it until this client was alone again. The client asks the MDT before it uses its own state.
    pub is_stale: bool,
    /// Of a stale file: what others wrote comes to what this client wrote, since it had a many lease (client-CL8).
    pub is_part: bool,
}

impl Meta {
    /// Raises the mark of the MDT's last change of this file. Seq 0: nothing was changed.
    pub fn saw(&mut self, mark: Mark) {
        let is_later = self.mdt_mark.is_none_or(|m| m.at != mark.at || m.seq < mark.seq);
        if mark.seq.0 > 0 && is_later {
            self.mdt_mark = Some(mark);
        }
    }
    /// The size, as reads see it.
    pub fn size(&self) -> u64 {
        self.behind.map_or(self.progress.size, |(end, _)| self.progress.size.max(end))
    }
    /// Programs were told that the writes behind are done.
    fn show_behind(&self, attr: &mut Attr) {
        if let Some((end, mtime)) = self.behind {
            (attr.size, attr.mtime) = (attr.size.max(end), mtime);
            attr.ctime = attr.ctime.max(mtime);
        }
    }
    /// True if an update is due once the bytes are flushed.
    pub fn needs_settling(&self) -> bool {
        !self.is_gone
            && self.poison.is_none()
            && (self.progress.is_untold() || (self.is_marked && self.writers == 0))
    }
    /// False: something is to be done first, or a write asks for more than bytes.
    pub fn may_write_behind(&self) -> bool {
        let is_plain = self.flags & (FLAG_APPEND | FLAG_IMMUTABLE) == 0;
        is_plain && self.cap.is_some() && self.cutting.is_none() && !self.overshot && !self.is_stale
    }
    /// True if the file may leave the table.
    fn is_idle(&self) -> bool {
        self.pins == 0 && !self.needs_settling() && !self.is_queued
    }
}

/// A descriptor.
pub(crate) struct Opened {
    pub file: Arc<File>,
    pub flags: OpenFlags,
}

pub(crate) struct Files {
    shards: Vec<RwLock<HashMap<Fid, Arc<File>>>>,
    handles: Vec<RwLock<HashMap<u64, Arc<Opened>>>>,
    next_handle: AtomicU64,
    /// Files in the table. At 0 an unlink need not ask whether the file is open.
    count: AtomicUsize,
    /// Held by calls that found the table empty and rely on that. Pins wait for them.
    quiet: RwLock<()>,
    quiet_count: AtomicUsize,
    /// Files for the settle thread.
    queue: Mutex<Vec<Arc<File>>>,
    /// Files that left the table while the MDT still has them as open here.
    left: Mutex<Vec<Fid>>,
    /// Files that left the table since the MDT last said that this client is alone. Their close was not reported.
    left_alone: Mutex<LeftAlone>,
}

/// Files in the order in which they left, numbered, since the oldest may be dropped between two looks.
#[derive(Default)]
struct LeftAlone {
    fids: VecDeque<Fid>,
    /// Number of the first one.
    first: u64,
}

impl LeftAlone {
    fn drop_below(&mut self, end: u64) {
        let count = (end.saturating_sub(self.first) as usize).min(self.fids.len());
        self.fids.drain(..count);
        self.first += count as u64;
    }
    fn end(&self) -> u64 {
        self.first + self.fids.len() as u64
    }
}

/// While it exists, no `pin` returns.
pub(crate) struct Quiet<'a> {
    files: &'a Files,
    _guard: RwLockReadGuard<'a, ()>,
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.files.quiet_count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The use of a pin. Writers keep the file marked at the MDT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    Reading,
    Writing,
}

impl Files {
    pub fn new() -> Files {
        Files {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            handles: (0..SHARDS).map(|_| RwLock::default()).collect(),
            next_handle: AtomicU64::new(1),
            count: AtomicUsize::new(0),
            quiet: RwLock::new(()),
            quiet_count: AtomicUsize::new(0),
            queue: Mutex::default(),
            left: Mutex::default(),
            left_alone: Mutex::default(),
        }
    }

    fn shard(&self, fid: Fid) -> &RwLock<HashMap<Fid, Arc<File>>> {
        &self.shards[fid.0 as usize % SHARDS]
    }

    pub fn get(&self, fid: Fid) -> Option<Arc<File>> {
        self.shard(fid).read().get(&fid).cloned()
    }
    pub fn all(&self) -> Vec<Arc<File>> {
        self.shards.iter().flat_map(|s| s.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// True if this client has the file open.
    pub fn is_held(&self, fid: Fid) -> bool {
        self.get(fid).is_some_and(|f| f.meta.lock().pins > 0)
    }

    /// Finds or makes the file and ties it to the table until `unpin`.
    pub fn pin(&self, fid: Fid, why: For) -> Arc<File> {
        let mut shard = self.shard(fid).write();
        let make = || {
            self.count.fetch_add(1, Ordering::SeqCst);
            Arc::new(File::apart(fid))
        };
        let file = shard.entry(fid).or_insert_with(make).clone();
        let mut meta = file.meta.lock();
        meta.pins += 1;
        meta.writers += (why == For::Writing) as u32;
        drop(meta);
        drop(shard);
        // Both counts are SeqCst: either this thread sees a call that relies on the empty table, or that call sees this file.
        if self.quiet_count.load(Ordering::SeqCst) > 0 {
            drop(self.quiet.write());
        }
        file
    }

    /// Succeeds if the table is empty. No file is open until the result is dropped.
    pub fn quiet(&self) -> Option<Quiet<'_>> {
        if self.count.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let guard = self.quiet.read();
        self.quiet_count.fetch_add(1, Ordering::SeqCst);
        let quiet = Quiet { files: self, _guard: guard };
        (self.count.load(Ordering::SeqCst) == 0).then_some(quiet)
    }

    /// Removes a pin. True: it was the last pin of an orphan, which the caller releases.
    pub fn unpin(&self, file: &Arc<File>, why: For) -> bool {
        let is_released = {
            let mut meta = file.meta.lock();
            meta.pins -= 1;
            meta.writers -= (why == For::Writing) as u32;
            let is_last = meta.pins == 0;
            if is_last {
                meta.failed_behind = None;
            }
            if is_last && meta.is_orphan {
                meta.is_gone = true;
            }
            is_last && meta.is_orphan
        };
        self.enqueue(file);
        self.forget_if_idle(file);
        is_released
    }

    /// Queues the file for the settle thread, if an update is due.
    pub fn enqueue(&self, file: &Arc<File>) {
        let mut meta = file.meta.lock();
        if meta.needs_settling() && !meta.is_queued {
            meta.is_queued = true;
            drop(meta);
            self.queue.lock().push(file.clone());
        }
    }

    /// Takes all queued files. Each stays marked as queued until `dequeued`.
    pub fn take_queue(&self) -> Vec<Arc<File>> {
        std::mem::take(&mut self.queue.lock())
    }

    /// Takes some of the newest queued files, if there are more than `backlog`.
    pub fn take_beyond(&self, backlog: usize, max: usize) -> Option<Vec<Arc<File>>> {
        let mut queue = self.queue.lock();
        let len = queue.len();
        (len > backlog).then(|| queue.split_off(len.saturating_sub(max)))
    }

    /// The settle thread has finished with the file for this round.
    pub fn dequeued(&self, file: &Arc<File>) {
        file.meta.lock().is_queued = false;
        self.forget_if_idle(file);
    }

    fn forget_if_idle(&self, file: &Arc<File>) {
        if !file.meta.lock().is_idle() {
            return;
        }
        let mut shard = self.shard(file.fid).write();
        // Checked again under the shard's lock, under which pins are made.
        if file.meta.lock().is_idle() && shard.get(&file.fid).is_some_and(|f| Arc::ptr_eq(f, file)) {
            shard.remove(&file.fid);
            self.count.fetch_sub(1, Ordering::SeqCst);
            match file.meta.lock().is_noted {
                true => self.left(file.fid),
                false => self.left_unnoted(file.fid),
            }
        }
    }

    pub fn left(&self, fid: Fid) {
        self.left.lock().push(fid);
    }
    /// Queues closes to be reported before those that wait already.
    pub fn left_before<'a>(&self, fids: impl Iterator<Item = &'a Fid>) {
        self.left.lock().splice(..0, fids.copied());
    }
    /// Notes a close that was not reported. If there are too many, the oldest are dropped; the MDT may keep those as open until the session ends.
    pub fn left_unnoted(&self, fid: Fid) {
        let mut left = self.left_alone.lock();
        left.fids.push_back(fid);
        let end = left.end();
        left.drop_below(end.saturating_sub(LEFT_ALONE_MAX as u64));
    }
    /// The number behind the last one.
    pub fn end_of_left_alone(&self) -> u64 {
        self.left_alone.lock().end()
    }
    /// The MDT has not noted the opens of those below `end`, so their closes need no report.
    pub fn forget_left_alone(&self, end: u64) {
        self.left_alone.lock().drop_below(end);
    }
    /// Another client attaches. The MDT may have noted the opens of all these before this client knew it, so their closes are reported.
    pub fn tell_left_alone(&self) {
        let unnoted = {
            let mut left = self.left_alone.lock();
            left.first = left.end();
            std::mem::take(&mut left.fids)
        };
        self.left.lock().extend(unnoted);
    }
    pub fn take_left(&self) -> Vec<Fid> {
        std::mem::take(&mut self.left.lock())
    }

    pub fn add_handle(&self, file: Arc<File>, flags: OpenFlags) -> Handle {
        let n = self.next_handle.fetch_add(1, Ordering::Relaxed);
        self.handles[n as usize % SHARDS].write().insert(n, Arc::new(Opened { file, flags }));
        Handle(n)
    }
    pub fn handle(&self, handle: Handle) -> Option<Arc<Opened>> {
        self.handles[handle.0 as usize % SHARDS].read().get(&handle.0).cloned()
    }
    pub fn take_handle(&self, handle: Handle) -> Option<Arc<Opened>> {
        self.handles[handle.0 as usize % SHARDS].write().remove(&handle.0)
    }
    pub fn take_handles(&self) -> Vec<Arc<Opened>> {
        self.handles.iter().flat_map(|h| h.write().drain().map(|(_, o)| o).collect::<Vec<_>>()).collect()
    }
}

impl File {
    /// A file of no table, in which a copy notes what it writes.
    pub fn apart(fid: Fid) -> File {
        let (order, body, whole, meta, hold) = Default::default();
        File { fid, order, body, whole, meta, hold }
    }

    /// A change of layout or size may or may not have been carried out. The next use of the objects opens the file again, after that change
    /// (client-C3).
    pub fn distrust(&self) {
        self.meta.lock().cap = None;
    }

    /// True once an open has answered, while layout and size are not being changed.
    pub fn is_loaded(&self) -> bool {
        self.body.try_read().is_some_and(|b| b.is_loaded)
    }

    /// The content is in objects, as far as can be told without a wait.
    pub fn is_striped(&self) -> bool {
        self.body.try_read().is_some_and(|b| b.is_loaded && b.layout.is_some())
    }

    pub fn is_inline(&self) -> bool {
        self.body.try_read().is_some_and(|b| b.is_loaded && b.layout.is_none())
    }

    pub fn is_behind(&self) -> bool {
        self.meta.lock().behind.is_some()
    }

    /// Writes behind hold the body, perhaps for long: with them no lock is taken.
    fn is_in_objects(&self, deadline: Instant) -> Result<bool, Fault> {
        if self.is_behind() {
            return Ok(true);
        }
        let body = self.share_body(deadline)?;
        Ok(body.is_loaded && body.layout.is_some())
    }

    /// Under a shared lease: size and blocks are those of the grant.
    pub fn overlay_size(&self, mut attr: Attr, deadline: Instant) -> Result<Attr, Fault> {
        if self.is_in_objects(deadline)? {
            let meta = self.meta.lock();
            (attr.size, attr.blocks) = (meta.progress.size, meta.progress.blocks);
            meta.show_behind(&mut attr);
        }
        Ok(attr)
    }

    /// Replaces attributes by local ones while local changes are not reported.
    pub fn overlay(&self, mut attr: Attr, deadline: Instant) -> Result<Attr, Fault> {
        if !self.is_in_objects(deadline)? {
            return Ok(attr);
        }
        let meta = self.meta.lock();
        if meta.is_stale {
            if meta.is_part {
                (attr.size, attr.mtime) =
                    (attr.size.max(meta.progress.size), attr.mtime.max(meta.progress.mtime));
            }
            return Ok(attr);
        }
        attr.size = meta.progress.size;
        attr.blocks = meta.progress.blocks;
        if meta.progress.is_changed() {
            attr.mtime = meta.progress.mtime;
            attr.ctime = attr.ctime.max(meta.progress.written_at);
        }
        meta.show_behind(&mut attr);
        Ok(attr)
    }
}

/// Does this session have to settle the file at its last close?
pub(crate) fn is_written(state: FileState) -> bool {
    matches!(state, FileState::Writing(_) | FileState::Shared { .. })
}

/// In which state an open found a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Settled,
    /// A session that is gone wrote or cut it, and never said what came of it.
    LeftOver,
}

/// The MDT knows these bits now.
pub(crate) fn mark_written(layout: &mut types::Layout, written: &wire::meta::WrittenBits) {
    let Some(component) = layout.components.get_mut(written.component as usize) else { return };
    for stripe in 0..component.mirrors.len() as u16 {
        if written.bits.get(stripe as usize / 64).is_some_and(|w| w >> (stripe % 64) & 1 == 1) {
            component.set_written(stripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_while_it_is_pinned_or_owes_something() {
        let files = Files::new();
        let file = files.pin(Fid(5), For::Writing);
        assert!(files.is_held(Fid(5)) && files.quiet().is_none());
        file.meta.lock().progress.reached(10, types::Time::new(1, 0));
        assert!(!files.unpin(&file, For::Writing));
        assert!(files.get(Fid(5)).is_some() && !files.is_held(Fid(5)), "closed but not settled");
        let queue = files.take_queue();
        assert_eq!(queue.len(), 1);
        let snapshot = file.meta.lock().progress.snapshot();
        file.meta.lock().progress.was_told(&snapshot);
        files.dequeued(&queue[0]);
        assert!(files.quiet().is_some() && files.get(Fid(5)).is_none());
    }

    #[test]
    fn the_last_close_of_an_orphan_releases_it() {
        let files = Files::new();
        let (a, b) = (files.pin(Fid(5), For::Reading), files.pin(Fid(5), For::Reading));
        a.meta.lock().is_orphan = true;
        assert!(!files.unpin(&a, For::Reading));
        assert!(files.unpin(&b, For::Reading));
        assert!(files.quiet().is_some());
    }

    /// Of those that came after the count the MDT may have taken note, and is told.
    #[test]
    fn what_is_closed_after_the_count_is_kept_though_the_oldest_go() {
        let (files, max) = (Files::new(), LEFT_ALONE_MAX as u64);
        (0..max).for_each(|n| files.left_unnoted(Fid(n)));
        let counted = files.end_of_left_alone();
        [max, max + 1].into_iter().for_each(|n| files.left_unnoted(Fid(n)));
        assert_eq!(files.left_alone.lock().fids.len(), LEFT_ALONE_MAX);
        files.forget_left_alone(counted);
        files.tell_left_alone();
        assert_eq!(files.take_left(), [Fid(max), Fid(max + 1)]);
        // Nor does a count take what is closed after those it counted were told.
        files.left_unnoted(Fid(6));
        let counted = files.end_of_left_alone();
        files.tell_left_alone();
        assert_eq!(files.take_left(), [Fid(6)]);
        files.left_unnoted(Fid(7));
        files.forget_left_alone(counted);
        files.tell_left_alone();
        assert_eq!(files.take_left(), [Fid(7)]);
    }

    #[test]
    fn handles_are_never_used_twice() {
        let files = Files::new();
        let file = files.pin(Fid(5), For::Reading);
        let first = files.add_handle(file.clone(), OpenFlags::read_only());
        assert!(files.take_handle(first).is_some() && files.handle(first).is_none());
        assert_ne!(files.add_handle(file, OpenFlags::read_only()), first);
        assert_eq!(files.take_handles().len(), 1);
    }
}
