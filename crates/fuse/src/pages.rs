//! Decides whether the kernel may keep a file's pages over an open, after other clients were attached.
//!
//! The kernel of a client that is alone keeps them. Pages from before other clients attached may be old when the client is alone again,
//! also those of files that it did not open meanwhile. So the first open of each file since then drops them. (The kernel could decide by
//! mtime. But that also drops pages that this mount writes: a mapping then shows bytes that a running write is about to replace, and keeps
//! showing them.)

use std::collections::HashSet;

use parking_lot::Mutex;
use types::Fid;

/// Beyond this, the set is cleared; each file's pages are then dropped once more.
const FILES_MAX: usize = 1 << 16;

#[derive(Default)]
pub struct Pages(Mutex<Known>);

#[derive(Default)]
struct Known {
    season: u64,
    fresh: HashSet<Fid>,
}

impl Pages {
    /// Called at an open while this client is alone. `season`: how often other clients have attached since the mount was made.
    pub fn may_be_kept(&self, fid: Fid, season: u64) -> bool {
        if season == 0 {
            return true;
        }
        let mut known = self.0.lock();
        if known.season != season || known.fresh.len() >= FILES_MAX {
            *known = Known { season, fresh: HashSet::new() };
        }
        !known.fresh.insert(fid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_open_after_others_were_there_drops_pages() {
        let pages = Pages::default();
        let (a, b) = (Fid(1), Fid(2));
        assert!(pages.may_be_kept(a, 0) && pages.may_be_kept(b, 0), "nobody was there");
        assert!(!pages.may_be_kept(a, 1) && pages.may_be_kept(a, 1));
        assert!(!pages.may_be_kept(b, 1));
        assert!(!pages.may_be_kept(a, 2), "they were there again");
    }
}
