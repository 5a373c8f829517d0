//! What an object has of its pages, in chunks of neighbouring pages: a clone shares them, and the next change copies the one that it
//! touches. A checkpoint clones under the engine's tail lock, so it must not matter how much an object has.
//!
//! Most objects have pages in one chunk only; such a chunk is held as it is, without a list and a reference count.
//! store-C1: chunks are in the order of their numbers.  store-C2: an empty chunk is taken out by who emptied it.

use std::ops::Range;
use std::sync::Arc;

/// Pages of a chunk, 8 MiB: to copy one takes a few microseconds, and a list of those of 2 GiB less than that.
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

    /// Which of the chunks there are have pages of `[first, limit)`; for `at` and `at_mut`.
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

    /// To be changed; copied if it is shared.
    pub fn at_mut(&mut self, index: usize) -> &mut C {
        match self {
            Chunks::One(_, chunk) => chunk,
            Chunks::Many(all) => Arc::make_mut(&mut all[index].1),
        }
    }
    /// As `at_mut`; an empty one is made if there is none.
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
                let found = all.binary_search_by_key(&number, |(number, _)| *number);
                let at = found.unwrap_or_else(|at| {
                    all.insert(at, (number, Arc::default()));
                    at
                });
                Arc::make_mut(&mut all[at].1)
            }
        }
    }

    /// Empties one without copying it, if it is shared.
    pub fn clear(&mut self, index: usize) {
        match self {
            Chunks::One(_, chunk) => *chunk = C::default(),
            Chunks::Many(all) => all[index].1 = Arc::default(),
        }
    }
    /// Takes those out that are empty (store-C2).
    pub fn drop_empty(&mut self, is_empty: impl Fn(&C) -> bool) {
        match self {
            Chunks::One(_, chunk) if is_empty(chunk) => *self = Chunks::default(),
            Chunks::One(..) => {}
            Chunks::Many(all) => all.retain(|(_, chunk)| !is_empty(chunk)),
        }
    }
}
