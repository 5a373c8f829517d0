//! What the door knows of the files that this kernel has open, for orders that the kernel does not keep by itself.
//!
//! fuse-G1. No answer tells a size that the kernel cannot read yet. The kernel raises its own size when the call that extends the file ends,
//!     and shows programs ours before that: a read below `st_size` would give nothing, and a mapping SIGBUS.
//! fuse-G2. A page that the kernel filled before a direct write has reached the servers does not outlive that write. The kernel drops the
//!     pages before such a write only, and when it is asynchronous not after it.
//!
//! A node lives as long as the kernel has the file open.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use types::{Fid, PAGE_SIZE};

/// As in `client::files`: opens of different files rarely meet.
const SHARDS: usize = 16;
/// Passes of `clear_again` before a direct write goes on all the same. Each further one needs a page whose lock the kernel waited for, and
/// which was held back in vain.
pub const PASSES_MAX: u32 = 100;
/// How long a read is held back while the kernel drops pages. Mostly it has passed the page by then, and is done within microseconds; if
/// it waits for that page's lock, the read must be answered first.
const HELD_BACK: Duration = Duration::from_micros(300);

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
    /// Of these, open for reading and writing: only such a descriptor can have a shared mapping that is written to.
    mappers: u32,
    /// Handles whose reads and writes pass the page cache by, whatever the flags of their descriptors.
    uncached: Vec<u64>,
    /// The kernel may have pages that a read filled.
    is_filled: bool,
    direct: Vec<Direct>,
    growth: Option<Growth>,
    /// Numbers of `Direct` and `Growth`.
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
    /// The kernel is dropping its pages; `is_met`: one was filled meanwhile, with what was there before.
    Clearing { is_met: bool },
    /// It is being carried out: who asks for a page waits.
    Applying,
}

/// A call that makes a file longer. The kernel runs one at a time for each file, of one or several requests.
struct Growth {
    number: u64,
    /// Its thread; 0: unknown.
    tid: u32,
    /// The kernel reads at least so far.
    base: u64,
    /// Answered requests end here: the kernel reads so far as soon as its thread has run on.
    answered: u64,
    /// Where the request that is under way ends.
    under_way: Option<u64>,
    /// It leaves pages in the kernel, which can be asked for.
    has_pages: bool,
}

/// What may be told of a file's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Size(u64),
    /// It depends on whether the kernel reads up to `end` by now.
    Unsure {
        growth: u64,
        end: u64,
    },
}

/// A direct write that has begun; to be ended by `end_direct`.
#[derive(Debug)]
pub struct Begun {
    pub fid: Fid,
    pub number: u64,
    /// Bytes, whole pages.
    pub range: Range<u64>,
    /// Pages are to be dropped before it is carried out.
    pub must_clear: bool,
}

impl InUse {
    fn shard(&self, fid: Fid) -> &Shard {
        &self.shards[fid.0 as usize % SHARDS]
    }
    fn nodes(&self, fid: Fid) -> MutexGuard<'_, HashMap<Fid, Node>> {
        self.shard(fid).nodes.lock()
    }

    pub fn opened(&self, fid: Fid, handle: u64, may_map: bool, is_uncached: bool) {
        let mut nodes = self.nodes(fid);
        let node = nodes.entry(fid).or_default();
        node.handles += 1;
        node.mappers += may_map as u32;
        if is_uncached {
            node.uncached.push(handle);
        }
    }

    pub fn released(&self, fid: Fid, handle: u64, may_map: bool) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        node.handles = node.handles.saturating_sub(1);
        node.mappers = node.mappers.saturating_sub(may_map as u32);
        node.uncached.retain(|h| *h != handle);
        if node.handles == 0 {
            nodes.remove(&fid);
        }
    }

    /// May a program have a shared mapping that it writes to?
    pub fn may_be_mapped(&self, fid: Fid) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| node.mappers > 0)
    }

    pub fn is_uncached(&self, fid: Fid, handle: u64) -> bool {
        self.nodes(fid).get(&fid).is_some_and(|node| node.uncached.contains(&handle))
    }

    // ---- fuse-G2 ----

    /// Before a read that may fill pages of the kernel: it waits for a direct write to them, until `deadline`.
    pub fn fill(&self, fid: Fid, range: Range<u64>, deadline: Instant) {
        let shard = self.shard(fid);
        let mut nodes = shard.nodes.lock();
        let held_until = Instant::now() + HELD_BACK;
        loop {
            let Some(node) = nodes.get_mut(&fid) else { return };
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
            let Some(until) = until else { return };
            let is_over = shard.applied.wait_until(&mut nodes, until).timed_out();
            if is_over && until == deadline {
                return;
            }
        }
    }

    /// A direct write begins. `None`: the file is not in the table, so the kernel keeps no pages of it.
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

    /// The kernel has dropped the pages. True: one was asked for meanwhile, so they are to be dropped once more; else who asks waits from
    /// here on.
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

    /// It is carried out, or refused.
    pub fn end_direct(&self, begun: &Begun) {
        let shard = self.shard(begun.fid);
        let mut nodes = shard.nodes.lock();
        if let Some(node) = nodes.get_mut(&begun.fid) {
            node.direct.retain(|w| w.number != begun.number);
        }
        shard.applied.notify_all();
    }

    // ---- fuse-G1 ----

    /// A request begins that may extend the file, of `size` bytes, to `end`, from `offset` on, by the thread `tid`.
    pub fn begin_growth(&self, fid: Fid, tid: u32, offset: u64, end: u64, size: u64, has_pages: bool) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        if let Some(growth) = &mut node.growth
            && growth.tid == tid
            && tid != 0
            && growth.answered == offset
        {
            // The same call, or the next one behind it: only the kernel knows.
            growth.under_way = Some(end);
            return;
        }
        // Another call of this file has begun, so the one before has ended.
        node.growth = None;
        if end > size {
            node.last_number += 1;
            let (number, under_way) = (node.last_number, Some(end));
            node.growth = Some(Growth { number, tid, base: size, answered: size, under_way, has_pages });
        }
    }

    /// The request is about to be answered; it did so much that the file reaches `end`, or nothing.
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

    /// The size is being set: what grew before has ended.
    pub fn size_set(&self, fid: Fid) {
        if let Some(node) = self.nodes(fid).get_mut(&fid) {
            node.growth = None;
        }
    }

    /// The kernel reads up to `end`: it said so.
    pub fn kernel_reads(&self, fid: Fid, number: u64, end: u64) {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return };
        let Some(growth) = node.growth.as_mut().filter(|g| g.number == number) else { return };
        growth.base = growth.base.max(end);
        if growth.under_way.is_none() && growth.base >= growth.answered {
            node.growth = None;
        }
    }

    /// What may be told to the thread `tid` of a file that has `size` bytes at the servers. `is_unread`: the kernel has just said that
    /// it does not read up to where the answered requests end.
    pub fn told(&self, fid: Fid, tid: u32, size: u64, is_unread: bool) -> Told {
        let mut nodes = self.nodes(fid);
        let Some(node) = nodes.get_mut(&fid) else { return Told::Size(size) };
        let Some(growth) = &node.growth else { return Told::Size(size) };
        let is_own = growth.tid == tid && tid != 0;
        match growth.under_way {
            // Its thread asks, so its call is over.
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
