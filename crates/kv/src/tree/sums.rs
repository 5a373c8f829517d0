//! Sums over the leaves of a tree, kept up to date by each edit.

use crate::Size;

/// Sums over the leaves of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub leaves: u64,
    /// Pages that leaves take on the medium.
    pub pages: u64,
    /// Memory of the leaves that are `Child::Leaf`.
    pub here_bytes: u64,
    /// Leaves that are `Away`, filled or not.
    pub away: u64,
    /// Records that were in leaves that became lost.
    pub lost: Size,
}

impl Sums {
    pub fn plus(self, more: Sums) -> Sums {
        Sums {
            leaves: self.leaves + more.leaves,
            pages: self.pages + more.pages,
            here_bytes: self.here_bytes + more.here_bytes,
            away: self.away + more.away,
            lost: Size {
                records: self.lost.records + more.lost.records,
                bytes: self.lost.bytes + more.lost.bytes,
            },
        }
    }
    pub fn minus(self, less: Sums) -> Sums {
        assert!(self.leaves >= less.leaves, "a tree loses no more leaves than it has");
        assert!(self.pages >= less.pages, "a tree loses no more pages than it has");
        assert!(self.here_bytes >= less.here_bytes, "a tree loses no more memory than it has");
        assert!(self.away >= less.away, "a tree loses no more `Away`s than it has");
        Sums {
            leaves: self.leaves - less.leaves,
            pages: self.pages - less.pages,
            here_bytes: self.here_bytes - less.here_bytes,
            away: self.away - less.away,
            lost: self.lost,
        }
    }
}
