//! Whose pages the kernel may keep from one open to the next, after other clients have been there.
//!
//! A lone client's kernel keeps them. What it kept from before others came may be old when it is alone again, also of files that it did
//! not open meanwhile, so the first open of each file since then drops them. (Mtime, by which the kernel offers to find out, drops the
//! pages that this mount writes, too: a mapping then shows bytes that a write under way is about to replace, and goes on doing so.)

use std::collections::HashSet;

use parking_lot::Mutex;
use types::Fid;

/// Beyond it all are forgotten, which costs each file a look at its bytes.
const FILES_MAX: usize = 1 << 16;

#[derive(Default)]
pub struct Pages(Mutex<Known>);

#[derive(Default)]
struct Known {
    season: u64,
    fresh: HashSet<Fid>,
}

impl Pages {
    /// At an open while alone. `season`: how often others came since the mount was made.
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
