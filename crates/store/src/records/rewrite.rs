//! Merging changed objects into the leaves of the index. A leaf without changed objects stays where it is, unless the medium has lost it
//! and memory still has its content.

use std::io;
use std::sync::Arc;

use types::ObjectId;

use crate::records::codec::{Records, put_record};
use crate::records::index::State;
use crate::records::leaf::{Base, Leaf, Leaves, Unreadable};

/// Target size of a leaf, bytes: one read, and small enough that an isolated change costs little.
pub const LEAF_BYTES: usize = 32 << 10;

/// The result of a rewrite.
pub struct Rewritten {
    pub base: Base,
    /// Leaves that only the new base has.
    pub written: Vec<Arc<Leaf>>,
    /// Leaves that only the old base has.
    pub replaced: Vec<Arc<Leaf>>,
}

/// Why a rewrite failed.
#[derive(Debug)]
pub enum Failed {
    Read(Unreadable),
    Write(io::Error),
}

struct Rewriting<'a> {
    leaves: &'a Leaves,
    leaf_bytes: usize,
    made: Rewritten,
    /// Records that are in no new leaf yet, and the offset where each begins.
    bytes: Vec<u8>,
    begins: Vec<(ObjectId, usize)>,
    /// The last object of the leaf written last.
    last: Option<ObjectId>,
}

/// Makes the next base. `changed`: ids in order. `state_of`: the present state of each; `None` if the object is gone.
pub fn rewrite(
    leaves: &Leaves,
    base: &Base,
    leaf_bytes: usize,
    changed: &[ObjectId],
    state_of: impl Fn(&ObjectId) -> Option<Arc<State>>,
) -> Result<Rewritten, Failed> {
    let made = Rewritten { base: Base::default(), written: vec![], replaced: vec![] };
    let mut work = Rewriting { leaves, leaf_bytes, made, bytes: vec![], begins: vec![], last: None };
    debug_assert!(changed.is_sorted_by(|a, b| a < b), "each changed object is merged once, in order");
    match work.all(base, changed, state_of) {
        Ok(()) => {
            let made = work.made;
            let (old, new) =
                (base.leaves.len() + made.written.len(), made.base.leaves.len() + made.replaced.len());
            assert_eq!(old, new, "store-L2: each leaf stays or is replaced");
            Ok(made)
        }
        Err(e) => {
            work.made.written.iter().for_each(|leaf| leaves.give_back(leaf));
            Err(e)
        }
    }
}

impl Rewriting<'_> {
    fn all(
        &mut self,
        base: &Base,
        mut changed: &[ObjectId],
        state_of: impl Fn(&ObjectId) -> Option<Arc<State>>,
    ) -> Result<(), Failed> {
        for (i, leaf) in base.leaves.iter().enumerate() {
            let next = base.leaves.get(i + 1).map(|next| next.first);
            let count = next.map_or(changed.len(), |next| changed.partition_point(|id| *id < next));
            let (of_leaf, rest) = changed.split_at(count);
            changed = rest;
            // store-L3: pending records too small for a leaf are merged with the next leaf.
            if of_leaf.is_empty() && self.bytes.is_empty() && !leaf.is_rescued() {
                self.made.base.leaves.push(leaf.clone());
                continue;
            }
            match self.leaves.read(leaf) {
                Ok(content) => self.merge(&content, of_leaf, &state_of, leaf)?,
                Err(e) => {
                    self.leave(leaf, base, of_leaf, &state_of, e)?;
                    continue;
                }
            }
            self.made.replaced.push(leaf.clone());
            if next.is_none() || self.bytes.len() >= self.leaf_bytes / 2 {
                self.put_all()?;
            }
        }
        // Without old leaves the loop has not taken any changed object.
        for id in changed {
            self.add_changed(id, &state_of)?;
        }
        self.put_all()?;
        // If the last leaf is an old one, the old bound stays, although the objects after that leaf may be gone.
        self.made.base.last = match (self.made.base.leaves.last(), self.made.written.last()) {
            (Some(leaf), Some(written)) if Arc::ptr_eq(leaf, written) => self.last,
            (Some(_), _) => base.last,
            (None, _) => None,
        };
        Ok(())
    }

    /// Keeps an unreadable leaf in place if none of its objects was changed, since the other objects need their checkpoint. store-L3 does
    /// not hold there.
    fn leave(
        &mut self,
        leaf: &Arc<Leaf>,
        base: &Base,
        changed: &[ObjectId],
        state_of: &impl Fn(&ObjectId) -> Option<Arc<State>>,
        e: io::Error,
    ) -> Result<(), Failed> {
        let is_last = base.leaves.last().is_some_and(|last| Arc::ptr_eq(last, leaf));
        let (before, after) = changed.split_at(changed.partition_point(|id| *id < leaf.first));
        if after.iter().any(|id| !is_last || base.last.is_none_or(|last| *id <= last)) {
            return Err(Failed::Read(self.leaves.unreadable(leaf, e)));
        }
        self.leaves.note_trouble(&self.leaves.unreadable(leaf, e));
        before.iter().try_for_each(|id| self.add_changed(id, state_of))?;
        self.put_all()?;
        self.made.base.leaves.push(leaf.clone());
        after.iter().try_for_each(|id| self.add_changed(id, state_of))?;
        if is_last { self.put_all() } else { Ok(()) }
    }

    fn merge(
        &mut self,
        content: &[u8],
        mut changed: &[ObjectId],
        state_of: &impl Fn(&ObjectId) -> Option<Arc<State>>,
        leaf: &Leaf,
    ) -> Result<(), Failed> {
        for record in Records::of(content) {
            let record = record.map_err(|e| Failed::Read(self.leaves.unreadable(leaf, e)))?;
            while let Some((id, rest)) = changed.split_first().filter(|(id, _)| **id < record.id) {
                self.add_changed(id, state_of)?;
                changed = rest;
            }
            match changed.split_first().filter(|(id, _)| **id == record.id) {
                Some((id, rest)) => {
                    self.add_changed(id, state_of)?;
                    changed = rest;
                }
                None => {
                    self.begins.push((record.id, self.bytes.len()));
                    self.bytes.extend_from_slice(record.bytes);
                    self.put_some()?;
                }
            }
        }
        changed.iter().try_for_each(|id| self.add_changed(id, state_of))
    }

    fn add_changed(
        &mut self,
        id: &ObjectId,
        state_of: &impl Fn(&ObjectId) -> Option<Arc<State>>,
    ) -> Result<(), Failed> {
        let Some(state) = state_of(id) else { return Ok(()) };
        self.begins.push((*id, self.bytes.len()));
        put_record(&mut self.bytes, id, &state);
        self.put_some()
    }

    /// Writes leaves while the pending records fill two.
    fn put_some(&mut self) -> Result<(), Failed> {
        while self.bytes.len() >= 2 * self.leaf_bytes && self.begins.len() > 1 {
            self.put_about(self.leaf_bytes)?;
        }
        Ok(())
    }

    /// Writes all pending records, as one leaf or two halves.
    fn put_all(&mut self) -> Result<(), Failed> {
        let half = self.leaf_bytes / 2;
        if self.bytes.len() > 3 * half && self.begins.len() > 1 {
            let middle = self.bytes.len() / 2;
            let first = self.end_of(self.count_about(middle));
            // store-L3
            if first >= half && self.bytes.len() - first >= half {
                self.put_about(middle)?;
            }
        }
        if self.begins.is_empty() {
            return Ok(());
        }
        while !self.begins.is_empty() {
            self.put_about(self.bytes.len())?;
        }
        Ok(())
    }

    /// The number of first pending objects that have about `bytes` bytes, one at least. A very large object gets a leaf of its own, so
    /// that a read of the small ones before it stays cheap.
    fn count_about(&self, bytes: usize) -> usize {
        let count = self.begins.partition_point(|(_, begin)| *begin < bytes).max(1);
        let begin = self.begins[count - 1].1;
        let is_large = self.end_of(count) - begin > self.leaf_bytes;
        if is_large && begin >= self.leaf_bytes / 2 { count - 1 } else { count }
    }

    /// The offset where the first `count` pending objects end.
    fn end_of(&self, count: usize) -> usize {
        self.begins.get(count).map_or(self.bytes.len(), |(_, begin)| *begin)
    }

    fn put_about(&mut self, bytes: usize) -> Result<(), Failed> {
        let count = self.count_about(bytes);
        let end = self.end_of(count);
        assert!(count > 0 && end > 0, "a leaf has an object");
        let (first, _) = self.begins[0];
        let rest = self.bytes.split_off(end);
        let mut content = std::mem::replace(&mut self.bytes, rest);
        self.last = self.begins.drain(..count).next_back().map(|(id, _)| id);
        self.begins.iter_mut().for_each(|(_, begin)| *begin -= end);
        assert!(
            self.begins.first().is_none_or(|(_, begin)| *begin == 0),
            "records follow each other without a gap"
        );
        let leaf = self.leaves.write(first, count as u64, &mut content).map_err(Failed::Write)?;
        let leaf = Arc::new(leaf);
        self.made.base.leaves.push(leaf.clone());
        self.made.written.push(leaf);
        Ok(())
    }
}
