//! The files that this kernel has open, for orderings that the kernel does not keep by itself.
//!
//! fuse-G1. A reply never reports a size up to which the kernel cannot read yet. The kernel raises its own size when the extending call
//! ends, but shows programs the reported size before that. A read below `st_size` would then return nothing, and a mapping would get
//! SIGBUS.
//! fuse-G2. A page that the kernel filled before a direct write reached the servers does not outlive that write. The kernel drops the pages
//! only before such a write, and, if the write is asynchronous, not after it.
//!
//! A node lives as long as the kernel has the file open.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Fid, PAGE_SIZE};

/// As in `client::files`: opens of different files rarely collide.
const SHARDS: usize = 16;
/// Passes of `clear_again` before a direct write proceeds in any case. A further pass is needed only if a read filled a page whose lock the
/// kernel waited for.
pub const PASSES_MAX: u32 = 100;
/// How long a read waits while the kernel drops pages. Mostly the kernel has passed the page and finishes within microseconds. If it waits
/// for that page's lock, the read must be answered first.
const HELD_BACK: Duration = Duration::from_micros(300);

/// A read that waits for a direct write looks so often whether its page is dropped.
const LOOK_EACH: Duration = Duration::from_millis(1);

#[derive(Default)]
pub struct InUse {
    shards: [Shard; SHARDS],
}

#[derive(Default)]
struct Shard {
    nodes: Mutex<HashMap<Fid, Node>>,
    applied: Condvar,
}

#[derive(Default)]
struct Node {
    handles: u32,
    /// The handles that are open for reading and writing: only these can have a writable shared mapping.
    mappers: u32,
    /// Handles whose I/O bypasses the page cache, whatever the flags of their descriptors.
    uncached: Vec<u64>,
    /// Handles whose writes go through the page cache.
    writers: Vec<u64>,
    /// Those that may write, through pages or past them.
    writing: Vec<u64>,
    /// The kernel may hold pages that a read filled.
    is_filled: bool,
    direct: Vec<Direct>,
    growth: Option<Growth>,
    /// The last number given to a `Direct` or `Growth`.
    last_number: u64,
}

/// A direct write under way.
struct Direct {
    number: u64,
    range: Range<u64>,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The kernel is dropping its pages. `is_met`: a read filled one meanwhile with the old content.
    Clearing { is_met: bool },
    /// The write is under way; reads of its pages wait.
    Applying,
}

/// A call that extends a file, in one or several requests. The kernel runs one such call per file at a time.
struct Growth {
    number: u64,
    /// The calling thread; 0 if unknown.
    tid: u32,
    /// The kernel can read at least up to here.
    base: u64,
    /// The end of the answered requests: the kernel can read up to here as soon as the calling thread has run on.
    answered: u64,
    /// The end of the request that is under way.
    under_way: Option<u64>,
    /// The call leaves pages in the kernel, for which `retrieve` can ask.
    has_pages: bool,
}

/// The size that a reply may report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Size(u64),
    /// The size depends on whether the kernel can read up to `end` by now.
    Unsure {
        growth: u64,
        end: u64,
    },
}

/// A direct write that has begun; `end_direct` ends it.
#[derive(Debug)]
pub struct Begun {
    pub fid: Fid,
    pub number: u64,
    /// In bytes, rounded to whole pages.
    pub range: Range<u64>,
    /// The kernel's pages must be dropped before the write.
    pub must_clear: bool,
}

impl InUse {
    fn shard(&self, fid: Fid) -> &Shard {
        &self.shards[fid.0 as usize % SHARDS]
    }
    fn nodes(&self, fid: Fid) -> MutexGuard<'_, HashMap<Fid, Node>> {
        self.shard(fid).nodes.lock()
    }

    /// `uses`: it writes, it may have a writable mapping, its I/O bypasses the page cache.
    pub fn opened(&self, fid: Fid, handle: u64, (may_write, may_map, is_uncached): (bool, bool, bool)) {
        let mut nodes = self.nodes(fid);
        let node = nodes.entry(fid).or_default();
        node.handles += 1;
        node.mappers += may_map as u32;
        if may_write {
            node.writing.push(handle);
        }
        if is_uncached {
            node.uncached.push(handle);
        } else if may_write {
            node.writers.push(handle);
        }
    }

    pub fn released(&self, fid: Fid, handle: u64, may_map: bool) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        node.handles = node.handles.saturating_sub(1);
        node.mappers = node.mappers.saturating_sub(may_map as u32);
        node.uncached.retain(|h| *h != handle);
        node.writers.retain(|h| *h != handle);
        node.writing.retain(|h| *h != handle);
        if node.handles == 0 {
            nodes.remove(&fid);
        }
    }

    /// Whether a program may have a writable shared mapping of the file.
    pub fn may_be_mapped(&self, fid: Fid) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| node.mappers > 0)
    }

    /// fuse-P2: the kernel's pages of the file may change without a request before that.
    pub fn may_be_stored(&self, fid: Fid) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| node.mappers > 0 || !node.writers.is_empty())
    }

    /// A descriptor of this mount may write the file.
    pub fn is_written(&self, fid: Fid) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| !node.writing.is_empty())
    }

    pub fn is_uncached(&self, fid: Fid, handle: u64) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| node.uncached.contains(&handle))
    }

    // ---- fuse-G2 ----

    /// Called before a read that may fill pages of the kernel: waits for direct writes to these pages, until `deadline`. False: they are under
    /// way still, and `is_dropped` says that the page is dropped after the read.
    pub fn fill(
        &self,
        fid: Fid,
        range: Range<u64>,
        deadline: Instant,
        is_dropped: impl Fn() -> bool,
    ) -> bool {
        let shard = self.shard(fid);
        let mut nodes = shard.nodes.lock();
        let held_until = Instant::now() + HELD_BACK;
        loop {
            let Some(node) = nodes.get_mut(&fid) else { return true };
            node.is_filled = true;
            let is_held_long = Instant::now() >= held_until;
            let mut until = None;
            for write in node.direct.iter_mut().filter(|w| overlaps(&w.range, &range)) {
                match &mut write.step {
                    Step::Clearing { is_met } if is_held_long => *is_met = true,
                    Step::Clearing { .. } => until = until.max(Some(held_until)),
                    Step::Applying => until = Some(deadline),
                }
            }
            let Some(until) = until else { return true };
            if until == deadline && MutexGuard::unlocked(&mut nodes, &is_dropped) {
                return false;
            }
            let is_over =
                shard.applied.wait_until(&mut nodes, until.min(Instant::now() + LOOK_EACH)).timed_out();
            if is_over && Instant::now() >= deadline {
                return true;
            }
        }
    }

    /// Begins a direct write. `None`: the file is not in the table, so the kernel holds no pages of it.
    pub fn begin_direct(&self, fid: Fid, offset: u64, len: usize) -> Option<Begun> {
        let mut nodes = self.nodes(fid);
        let node = nodes.get_mut(&fid)?;
        node.last_number += 1;
        let page = PAGE_SIZE as u64;
        let range = offset / page * page..(offset + len as u64).next_multiple_of(page);
        let (number, must_clear) = (node.last_number, node.is_filled);
        let step = if must_clear { Step::Clearing { is_met: false } } else { Step::Applying };
        node.direct.push(Direct { number, range: range.clone(), step });
        Some(Begun { fid, number, range, must_clear })
    }

    /// Called after the kernel dropped the pages. True if a read filled one meanwhile, so that they must be dropped again. Otherwise reads
    /// of these pages wait from now on.
    pub fn clear_again(&self, begun: &Begun, pass: u32) -> bool {
        let shard = self.shard(begun.fid);
        let mut nodes = shard.nodes.lock();
        let node = nodes.get_mut(&begun.fid);
        let Some(write) = node.and_then(|n| n.direct.iter_mut().find(|w| w.number == begun.number)) else {
            return false;
        };
        let again = write.step == Step::Clearing { is_met: true } && pass < PASSES_MAX;
        write.step = if again { Step::Clearing { is_met: false } } else { Step::Applying };
        shard.applied.notify_all();
        again
    }

    /// Ends a direct write that was done or refused.
    pub fn end_direct(&self, begun: &Begun) {
        let shard = self.shard(begun.fid);
        let mut nodes = shard.nodes.lock();
        if let Some(node) = nodes.get_mut(&begun.fid) {
            node.direct.retain(|w| w.number != begun.number);
        }
        shard.applied.notify_all();
    }

    // ---- fuse-G1 ----

    /// Begins a request of thread `tid` that may extend the file of `size` bytes; it writes from `offset` to `end`.
    pub fn begin_growth(&self, fid: Fid, tid: u32, offset: u64, end: u64, size: u64, has_pages: bool) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        if let Some(growth) = &mut node.growth
            && growth.tid == tid
            && tid != 0
            && growth.answered == offset
        {
            // A further request of the same call, or the next call behind it: only the kernel knows.
            growth.under_way = Some(end);
            return;
        }
        // Another call on this file has begun, so the previous one has ended.
        node.growth = None;
        if end > size {
            node.last_number += 1;
            let (number, under_way) = (node.last_number, Some(end));
            node.growth = Some(Growth { number, tid, base: size, answered: size, under_way, has_pages });
        }
    }

    /// Called before the request is answered. It extended the file to `end`, or not at all.
    pub fn end_growth(&self, fid: Fid, end: Option<u64>) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        if let Some(growth) = &mut node.growth
            && growth.under_way.take().is_some()
        {
            growth.answered = growth.answered.max(end.unwrap_or(0));
            if growth.answered == growth.base || !growth.has_pages {
                node.growth = None;
            }
        }
    }

    /// The size is set explicitly: earlier extending calls have ended.
    pub fn size_set(&self, fid: Fid) {
        if let Some(node) = self.nodes(fid).get_mut(&fid) {
            node.growth = None;
        }
    }

    /// The kernel answered that it can read up to `end`.
    pub fn kernel_reads(&self, fid: Fid, number: u64, end: u64) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        let Some(growth) = node.growth.as_mut().filter(|g| g.number == number) else { return };
        growth.base = growth.base.max(end);
        if growth.under_way.is_none() && growth.base >= growth.answered {
            node.growth = None;
        }
    }

    /// The size that thread `tid` may be told of a file with `size` bytes at the servers. `is_unread`: the kernel has just answered that it
    /// cannot read up to the end of the answered requests.
    pub fn told(&self, fid: Fid, tid: u32, size: u64, is_unread: bool) -> Told {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return Told::Size(size) };
        let Some(growth) = &node.growth else { return Told::Size(size) };
        let is_own = growth.tid == tid && tid != 0;
        match growth.under_way {
            // The calling thread itself asks, so its call is over.
            None if is_own => {
                node.growth = None;
                Told::Size(size)
            }
            Some(_) if is_unread || growth.answered == growth.base => Told::Size(size.min(growth.base)),
            _ => Told::Unsure { growth: growth.number, end: growth.answered },
        }
    }
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests;
