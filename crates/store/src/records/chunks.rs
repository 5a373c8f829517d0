//! Per-page state of an object (extents, patches) in chunks of neighbouring pages. A clone shares the chunks, and the next change copies
//! the one that it touches. A checkpoint clones under the engine's tail lock, so a clone's cost must not grow with the object.
//!
//! Most objects have pages in one chunk only. Such a chunk is held directly, without a list and a reference count.
//! store-C1: chunks are in the order of their numbers.  store-C2: a caller that empties a chunk also removes it.

use std::ops::Range;
use std::sync::Arc;

/// Pages of a chunk, 8 MiB: to copy one chunk takes a few microseconds; to copy the chunk list of a 2 GiB object takes less.
pub const CHUNK_PAGES: u32 = 2048;

/// Chunks by their number, which is that of their first page divided by `CHUNK_PAGES`.
#[derive(Clone, Debug)]
pub enum Chunks<C> {
    One(u32, C),
    Many(Vec<(u32, Arc<C>)>),
}

impl<C> Default for Chunks<C> {
    fn default() -> Chunks<C> {
        Chunks::Many(Vec::new())
    }
}

impl<C: Clone + Default> Chunks<C> {
    pub fn get(&self, number: u32) -> Option<&C> {
        match self {
            Chunks::One(only, chunk) => (*only == number).then_some(chunk),
            Chunks::Many(all) => {
                let at = all.binary_search_by_key(&number, |(number, _)| *number).ok()?;
                Some(&all[at].1)
            }
        }
    }

    /// Indexes, for `at` and `at_mut`, of the existing chunks that overlap pages `[first, limit)`.
    pub fn between(&self, first: u32, limit: u32) -> Range<usize> {
        let before = |number: u32| match self {
            Chunks::One(only, _) => (*only < number) as usize,
            Chunks::Many(all) => all.partition_point(|(other, _)| *other < number),
        };
        let from = before(first / CHUNK_PAGES);
        if first < limit { from..before((limit - 1) / CHUNK_PAGES + 1) } else { from..from }
    }
    /// A chunk and its number.
    pub fn at(&self, index: usize) -> (u32, &C) {
        match self {
            Chunks::One(only, chunk) => (*only, chunk),
            Chunks::Many(all) => (all[index].0, &all[index].1),
        }
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &C)> {
        let (one, many) = match self {
            Chunks::One(only, chunk) => (Some((*only, chunk)), &[][..]),
            Chunks::Many(all) => (None, &all[..]),
        };
        one.into_iter().chain(many.iter().map(|(number, chunk)| (*number, &**chunk)))
    }

    /// A chunk for changing; it is copied if it is shared.
    pub fn at_mut(&mut self, index: usize) -> &mut C {
        match self {
            Chunks::One(_, chunk) => chunk,
            Chunks::Many(all) => Arc::make_mut(&mut all[index].1),
        }
    }
    /// As `at_mut`, by number; inserts an empty chunk if there is none.
    pub fn get_mut(&mut self, number: u32) -> &mut C {
        let is_empty = matches!(self, Chunks::Many(all) if all.is_empty());
        if is_empty {
            *self = Chunks::One(number, C::default());
        }
        if matches!(self, Chunks::One(only, _) if *only != number)
            && let Chunks::One(only, chunk) = std::mem::take(self)
        {
            *self = Chunks::Many(vec![(only, Arc::new(chunk))]);
        }
        match self {
            Chunks::One(_, chunk) => chunk,
            Chunks::Many(all) => {
                debug_assert!(all.is_sorted_by(|a, b| a.0 < b.0), "store-C1");
                let found = all.binary_search_by_key(&number, |(number, _)| *number);
                let at = found.unwrap_or_else(|at| {
                    all.insert(at, (number, Arc::default()));
                    at
                });
                Arc::make_mut(&mut all[at].1)
            }
        }
    }

    /// Empties a chunk, without copying it if it is shared.
    pub fn clear(&mut self, index: usize) {
        match self {
            Chunks::One(_, chunk) => *chunk = C::default(),
            Chunks::Many(all) => all[index].1 = Arc::default(),
        }
    }
    /// Removes the empty chunks (store-C2).
    pub fn drop_empty(&mut self, is_empty: impl Fn(&C) -> bool) {
        match self {
            Chunks::One(_, chunk) if is_empty(chunk) => *self = Chunks::default(),
            Chunks::One(..) => {}
            Chunks::Many(all) => all.retain(|(_, chunk)| !is_empty(chunk)),
        }
    }
}
