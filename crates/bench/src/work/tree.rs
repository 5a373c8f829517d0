//! The directories of a tree of names: their paths are made when they are needed, since a tree may have millions.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::job::Names;

/// Levels at most: of two, a path of them fits into the 4096 bytes that a path may have.
pub const DEPTH_MAX: u32 = 256;

/// Directories are numbered level by level from the root, which is 0, so that each comes after its parent.
pub struct Tree {
    root: String,
    branch: u64,
    count: u64,
    /// Number of the first directory that holds items: all after it do too.
    first_of_items: u64,
}

impl Tree {
    pub fn new(names: &Names, root: &Path) -> Result<Tree> {
        let text =
            root.to_str().context("a path that is no UTF-8 cannot be measured: take another directory")?;
        ensure!(
            names.depth <= DEPTH_MAX,
            "a tree of {} levels is too deep: {DEPTH_MAX} at most",
            names.depth
        );
        let branch = u64::from(names.branch).max(1);
        let (mut count, mut level) = (1u64, 1u64);
        for _ in 0..names.depth {
            let next = level.checked_mul(branch).and_then(|level| Some((level, count.checked_add(level)?)));
            (level, count) =
                next.context("the tree has more than 2^64 directories: lower branch or depth")?;
        }
        let first_of_items = if names.leaves_only { count - level } else { 0 };
        Ok(Tree { root: text.to_owned(), branch, count, first_of_items })
    }

    /// Directories in all.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Directories that hold items.
    pub fn item_dirs(&self) -> u64 {
        self.count - self.first_of_items
    }

    /// Puts the path of directory `index` into `path`.
    pub fn dir(&self, index: u64, path: &mut String) {
        path.clear();
        path.push_str(&self.root);
        // Which level it is on, and where in that level.
        let (mut rest, mut level, mut depth) = (index, 1, 0);
        while rest >= level {
            rest -= level;
            level *= self.branch;
            depth += 1;
        }
        for _ in 0..depth {
            level /= self.branch;
            write!(path, "/d.{}", rest / level).expect("writing to a string cannot fail");
            rest %= level;
        }
    }

    /// Puts the path of the `index`-th directory that holds items into `path`.
    pub fn item_dir(&self, index: u64, path: &mut String) {
        self.dir(self.first_of_items + index, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{NamesOp, Order};

    fn names(branch: u32, depth: u32, leaves_only: bool) -> Names {
        Names {
            op: NamesOp::Create,
            root: "r".into(),
            shared: false,
            branch,
            depth,
            leaves_only,
            items_per_dir: 1,
            write_bytes: 0,
            read_bytes: 0,
            open_to_write: false,
            flush: false,
            shift: 0,
            order: Order::Sequential,
            epochs: 1,
            version: 1,
            null: false,
        }
    }

    #[test]
    fn directories_come_level_by_level() {
        let table: [(u32, u32, bool, &[&str], u64); 4] = [
            (3, 0, true, &["/r"], 1),
            (
                2,
                2,
                true,
                &["/r", "/r/d.0", "/r/d.1", "/r/d.0/d.0", "/r/d.0/d.1", "/r/d.1/d.0", "/r/d.1/d.1"],
                4,
            ),
            (2, 1, false, &["/r", "/r/d.0", "/r/d.1"], 3),
            (1, 2, true, &["/r", "/r/d.0", "/r/d.0/d.0"], 1),
        ];
        for (branch, depth, leaves_only, want, items) in table {
            let tree = Tree::new(&names(branch, depth, leaves_only), Path::new("/r")).unwrap();
            let mut path = String::new();
            let dirs = (0..tree.count()).map(|index| {
                tree.dir(index, &mut path);
                path.clone()
            });
            assert_eq!(dirs.collect::<Vec<_>>(), want);
            assert_eq!(tree.item_dirs(), items);
            tree.item_dir(items - 1, &mut path);
            assert_eq!(&path, want.last().unwrap());
        }
    }

    /// No list of paths is kept: of this one it would take a terabyte.
    #[test]
    fn a_large_tree_takes_no_room_and_a_hostile_one_is_refused() {
        let tree = Tree::new(&names(100_000, 2, true), Path::new("/r")).unwrap();
        let mut path = String::new();
        tree.item_dir(tree.item_dirs() - 1, &mut path);
        assert_eq!((tree.item_dirs(), path.as_str()), (10_000_000_000, "/r/d.99999/d.99999"));
        for (branch, depth, why) in [(1, u32::MAX, "too deep"), (u32::MAX, 3, "lower branch or depth")] {
            let said = Tree::new(&names(branch, depth, true), Path::new("/r")).map(|_| ()).unwrap_err();
            assert!(said.to_string().contains(why), "{said}");
        }
    }
}
