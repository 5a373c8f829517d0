//! Counts of directories: what rows follow from an entry, and what records and rows must add up to (meta.md).

use std::collections::BTreeMap;

use crate::bytes::{Bytes, Read};
use crate::image::{Changes, Image, be};
use crate::records::{self, DIR, FILE, Inode, SYMLINK};

const INODE: u8 = 2;
const COUNTS: u8 = 11;

/// Files, directories, others, bytes, blocks; modulo 2^64.
pub type Sums = [u64; 5];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub own: Sums,
    pub below: Sums,
}

fn add(to: &mut Sums, what: Sums) {
    to.iter_mut().zip(what).for_each(|(to, n)| *to = to.wrapping_add(n));
}

fn minus(what: Sums) -> Sums {
    what.map(u64::wrapping_neg)
}

fn numbers(mut get: impl FnMut() -> Read<u64>) -> Read<Sums> {
    Ok([get()?, get()?, get()?, get()?, get()?])
}

impl Row {
    pub fn decode(value: &[u8]) -> Read<Row> {
        let mut b = Bytes::of("pending counts", value);
        if b.u8()? != 1 {
            return b.wrong("version");
        }
        let mut get = || b.signed().map(|n| n as u64);
        let row = Row { own: numbers(&mut get)?, below: numbers(&mut get)? };
        b.end()?;
        Ok(row)
    }
}

/// `own` and `tree` of a record.
pub fn record(value: &[u8]) -> Read<(Sums, Sums)> {
    let mut b = Bytes::of("counts", value);
    if b.u8()? != 1 {
        return b.wrong("version");
    }
    let own = numbers(|| b.varint())?;
    let tree = if b.left() == 0 { own } else { numbers(|| b.varint())? };
    b.end()?;
    Ok((own, tree))
}

/// The directory in which an inode counts, and its sums.
fn counted(inode: &Inode) -> Option<(u64, Sums)> {
    let parent = inode.parents.first()?.0;
    let Inode { size, blocks, .. } = *inode;
    let sums = match inode.kind {
        FILE => [1, 0, 0, size, blocks],
        DIR => [0, 1, 0, 0, 0],
        SYMLINK => [0, 0, 1, size, blocks],
        _ => [0, 0, 1, 0, blocks],
    };
    Some((parent, sums))
}

impl Image {
    fn is_counting(&self) -> bool {
        self.records.contains_key(&[COUNTS][..])
    }

    fn inode(&self, fid: u64) -> Option<Inode> {
        let key = [&[INODE][..], &fid.to_be_bytes()].concat();
        records::inode(fid, self.records.get(&key)?).ok()
    }

    fn counts(&self, dir: u64) -> (Sums, Sums) {
        let key = [&[COUNTS][..], &dir.to_be_bytes()].concat();
        self.records.get(&key).and_then(|value| record(value).ok()).unwrap_or_default()
    }

    /// The rows after an entry that is about to be applied.
    pub fn learn(&mut self, changes: &Changes) -> Read<()> {
        if !self.is_counting() {
            return Ok(());
        }
        let (mut rows, mut gone) = (Vec::<(u64, Row)>::new(), Vec::new());
        for (key, value) in changes {
            let (kind, fid) = (key[0], if key.len() == 9 { be(&key[1..])? } else { 0 });
            match (kind, value) {
                (INODE, value) => {
                    let old = self.inode(fid);
                    let new = value.as_deref().and_then(|value| records::inode(fid, value).ok());
                    let is_dir = [&old, &new].into_iter().flatten().any(|inode| inode.kind == DIR);
                    let (old, new) = (old.as_ref().and_then(counted), new.as_ref().and_then(counted));
                    let moves = is_dir && old.map(|o| o.0) != new.map(|n| n.0);
                    let tree = if moves { self.counts(fid).1 } else { Sums::default() };
                    if let Some((parent, sums)) = old {
                        rows.push((parent, Row { own: minus(sums), below: minus(tree) }));
                    }
                    if let Some((parent, sums)) = new {
                        rows.push((parent, Row { own: sums, below: tree }));
                    }
                    if is_dir && new.is_none() && fid != 1 {
                        gone.push(fid);
                    }
                }
                (COUNTS, Some(value)) if key.len() == 9 => {
                    let ((own, tree), (own_before, tree_before)) = (record(value)?, self.counts(fid));
                    let (mut own_more, mut tree_more) = (own, tree);
                    add(&mut own_more, minus(own_before));
                    add(&mut tree_more, minus(tree_before));
                    let mut below = own_more;
                    add(&mut below, minus(tree_more));
                    rows.push((fid, Row { own: minus(own_more), below }));
                    if let Some((parent, _)) = self.inode(fid).as_ref().and_then(counted) {
                        rows.push((parent, Row { own: Sums::default(), below: tree_more }));
                    }
                }
                _ => {}
            }
        }
        for (dir, delta) in rows {
            let row = self.rows.entry(dir).or_default();
            add(&mut row.own, delta.own);
            add(&mut row.below, delta.below);
        }
        for dir in gone {
            self.rows.remove(&dir);
        }
        self.rows.retain(|_, row| *row != Row::default());
        Ok(())
    }

    /// Compares the sums of `inodes` with the records and rows.
    pub fn check_counts(&self, inodes: &BTreeMap<u64, Inode>, out: &mut Vec<String>) {
        if !self.is_counting() {
            return;
        }
        let is_dir = |fid: &u64| inodes.get(fid).is_some_and(|i| i.kind == DIR);
        // For each directory: its own sums and those of its subtree, by the inodes alone; and the sums that pending rows add.
        let (mut own, mut tree, mut rows) =
            (BTreeMap::<u64, Sums>::new(), BTreeMap::<u64, Sums>::new(), BTreeMap::<u64, Sums>::new());
        for (parent, sums) in inodes.values().filter_map(counted) {
            add(own.entry(parent).or_default(), sums);
            each_above(inodes, parent, |dir| add(tree.entry(dir).or_default(), sums));
        }
        for (dir, row) in &self.rows {
            if !is_dir(dir) {
                out.push(format!("pending counts of {dir:#x}, which is no directory"));
            }
            let mut sums = row.own;
            add(&mut sums, row.below);
            each_above(inodes, *dir, |dir| add(rows.entry(dir).or_default(), sums));
        }
        for (dir, inode) in inodes.iter().filter(|(_, inode)| inode.kind == DIR) {
            if inode.parents.is_empty() && *dir != 1 {
                continue;
            }
            let (mut own_said, mut tree_said) = self.counts(*dir);
            add(&mut own_said, self.rows.get(dir).map_or(Sums::default(), |row| row.own));
            add(&mut tree_said, rows.get(dir).copied().unwrap_or_default());
            let found =
                (own.get(dir).copied().unwrap_or_default(), tree.get(dir).copied().unwrap_or_default());
            if (own_said, tree_said) != found {
                out.push(format!(
                    "directory {dir:#x}: counts say {own_said:?} {tree_said:?}, it has {found:?}"
                ));
            }
        }
        for key in self.records.range(vec![COUNTS, 0]..vec![COUNTS + 1]).map(|(key, _)| key) {
            match be(&key[1..]) {
                Ok(dir) if is_dir(&dir) && (dir == 1 || !inodes[&dir].parents.is_empty()) => {}
                _ => out.push(format!("record {}: counts of what is no directory", crate::image::hex(key))),
            }
        }
    }
}

/// A directory and all above it.
pub fn each_above(inodes: &BTreeMap<u64, Inode>, dir: u64, mut each: impl FnMut(u64)) {
    let (mut at, mut depth) = (Some(dir), 0);
    while let Some(dir) = at.filter(|_| depth < 1 << 12) {
        each(dir);
        depth += 1;
        at = inodes.get(&dir).and_then(|inode| Some(inode.parents.first()?.0));
    }
}
