//! Pages that the primary of the mirror gave ahead of the entries that will name them. They are on the medium, and belong to no object.
//!
//! store-RP5: a stage that no entry has named yet may be dropped at any time. The entry is then refused, and comes again with its pages.

use std::collections::{HashMap, VecDeque};

use types::PAGE_SIZE;

use crate::records::shipped::StageId;
use crate::state::engine::Engine;
use disk::alloc::Run;

/// Most bytes of stages that no entry has named: 256 writes of the largest size. On a small medium an eighth of its data region.
const STAGED_BYTES_MAX: u64 = 256 << 20;
const STAGED_SHARE: u64 = 8;

#[derive(Debug)]
pub struct Stage {
    pub runs: Vec<Run>,
    /// One per page.
    pub crcs: Vec<u32>,
    /// An entry that is about to be taken names it.
    is_named: bool,
}

#[derive(Debug, Default)]
pub struct Stages {
    by_id: HashMap<StageId, Stage>,
    /// Oldest first. Some are gone already.
    order: VecDeque<StageId>,
    /// Pages of all stages.
    pages: u64,
}

impl Stages {
    /// Adds a stage. Returns another one that had its id: the primary of an earlier life gave that.
    pub fn add(&mut self, id: StageId, runs: Vec<Run>, crcs: Vec<u32>) -> Option<Stage> {
        self.pages += crcs.len() as u64;
        self.order.push_back(id);
        let before = self.by_id.insert(id, Stage { runs, crcs, is_named: false });
        self.pages -= before.as_ref().map_or(0, |stage| stage.crcs.len() as u64);
        before
    }

    /// Keeps the stage for an entry that names it with these page CRCs. False: it is not here.
    pub fn name(&mut self, id: StageId, crcs: &[u32]) -> bool {
        let stage = self.by_id.get_mut(&id).filter(|stage| stage.crcs == crcs);
        stage.map(|stage| stage.is_named = true).is_some()
    }

    pub fn runs(&self, id: StageId, crcs: &[u32]) -> Option<&[Run]> {
        self.by_id.get(&id).filter(|stage| stage.crcs == crcs).map(|stage| &*stage.runs)
    }

    pub fn take(&mut self, id: StageId) -> Option<Stage> {
        let stage = self.by_id.remove(&id)?;
        self.pages -= stage.crcs.len() as u64;
        Some(stage)
    }

    /// Takes the oldest stages that no entry names, until `pages_max` pages are left.
    fn shrink(&mut self, pages_max: u64) -> Vec<Stage> {
        let (mut gone, mut named) = (Vec::new(), Vec::new());
        while self.pages > pages_max
            && let Some(id) = self.order.pop_front()
        {
            match self.by_id.get(&id).map(|stage| stage.is_named) {
                Some(true) => named.push(id),
                Some(false) => gone.extend(self.take(id)),
                None => {}
            }
        }
        named.into_iter().rev().for_each(|id| self.order.push_front(id));
        // Ids whose stages are gone would pile up otherwise.
        if self.order.len() > 2 * self.by_id.len() + 64 {
            self.order.retain(|id| self.by_id.contains_key(id));
        }
        gone
    }
}

impl Engine {
    /// Frees stages that no entry names, all but about `keep` bytes.
    pub(crate) fn shrink_stages(&self, keep: u64) {
        let gone = self.stages.lock().shrink(keep / PAGE_SIZE as u64);
        gone.into_iter().for_each(|stage| self.free_stage(stage));
    }

    pub(crate) fn free_stage(&self, stage: Stage) {
        let mut space = self.space.lock();
        stage.runs.iter().for_each(|run| space.buddy.give_back(run.start, u64::from(run.pages)));
    }

    pub(crate) fn staged_bytes_max(&self) -> u64 {
        let region = self.vol.data_region();
        STAGED_BYTES_MAX.min((region.end - region.start) / STAGED_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stages_go_first_and_named_ones_stay() {
        let mut stages = Stages::default();
        for n in 0..10u64 {
            let run = Run { start: n, pages: 1 };
            assert!(stages.add(StageId(n), vec![run], vec![n as u32]).is_none());
        }
        assert!(!stages.name(StageId(1), &[7]), "other bytes have this id");
        assert!(stages.name(StageId(1), &[1]));
        let gone = stages.shrink(4);
        let starts: Vec<u64> = gone.iter().map(|stage| stage.runs[0].start).collect();
        assert_eq!(starts, [0, 2, 3, 4, 5, 6]);
        assert!(stages.runs(StageId(1), &[1]).is_some());
        assert_eq!(stages.take(StageId(1)).unwrap().runs[0].start, 1);
        let again = stages.add(StageId(9), vec![], vec![]);
        assert_eq!(again.unwrap().runs[0].start, 9, "an id that comes again replaces its stage");
        assert_eq!((stages.shrink(0).len(), stages.pages), (2, 0), "an empty one takes nothing");
    }
}
