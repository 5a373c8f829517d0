//! Counts of each directory and of its whole tree: files, directories, others, their bytes and blocks, exact after every entry.
//!
//! An inode counts in the directory of its first parent hint, however many names it has; one without a hint counts nowhere. Updating the
//! sums of every ancestor in each entry would double the cost of a create. So the records (kind 11) lag behind, and the difference is in
//! `Pending`, in the memory of the executor's leader.
//!
//! meta-D1: for each directory, `tree` of its record plus the rows of `Pending` of itself and of all directories below it is the present
//! content below it; `own` of its record plus that of its row is its own content.
//! meta-D2: `Pending` follows from the records and the log's entries alone (`learn`): a replay gives the same, and a checkpoint keeps its
//! rows.
//! meta-D3: a fold moves one row into its directory's record and on to its parent's row. It keeps meta-D1 whichever row it takes, so it
//! can stop after each. `learn` learns the effect of a fold from its entry, as of any other.
//!
//! Sums are modulo 2^64, so a removal exactly undoes an addition, even if the sizes of sparse files exceed 2^64 in total.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use types::*;
use wire::codec::{Malformed, Reader};
use wire::meta::{Contents, CountsReply};
use wire::{put_varint, unzigzag, zigzag};

use crate::inode::load_inode;
use crate::records::{self, Counted, VERSION};
use crate::{Txn, View, access, keys};

/// Number of rows above which each entry folds some. A file system with fewer directories, or a job in fewer, never folds for lack of
/// memory. The rows take 400 KiB of memory, and a quarter of that in a checkpoint.
pub const ROWS_LONG: usize = 4096;
/// Rows of one fold. The minimum costs the leader a fraction of a millisecond; the maximum bounds the rows even in a tree so deep that
/// each has many ancestors.
const FOLD_MIN: usize = 256;
pub const FOLD_MAX: usize = 512;
/// Most ancestors of a directory. More are a loop, which only damage can make.
const DEPTH_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub files: u64,
    pub dirs: u64,
    /// Symlinks, devices, pipes, sockets.
    pub others: u64,
    /// Sizes of files and symlinks.
    pub bytes: u64,
    /// In units of 512 bytes, of all but directories.
    pub blocks: u64,
}

impl Sums {
    /// The share of one inode in its directory's sums.
    fn of(inode: &Counted) -> Sums {
        let none = Sums::default();
        match inode.kind {
            Kind::File => Sums { files: 1, bytes: inode.size, blocks: inode.blocks, ..none },
            Kind::Dir => Sums { dirs: 1, ..none },
            Kind::Symlink => Sums { others: 1, bytes: inode.size, blocks: inode.blocks, ..none },
            _ => Sums { others: 1, blocks: inode.blocks, ..none },
        }
    }

    fn each(&self) -> [u64; 5] {
        [self.files, self.dirs, self.others, self.bytes, self.blocks]
    }

    fn from_each([files, dirs, others, bytes, blocks]: [u64; 5]) -> Sums {
        Sums { files, dirs, others, bytes, blocks }
    }

    fn get(mut number: impl FnMut() -> Result<u64, Malformed>) -> Result<Sums, Malformed> {
        Ok(Sums { files: number()?, dirs: number()?, others: number()?, bytes: number()?, blocks: number()? })
    }

    fn to_wire(self) -> Contents {
        let Sums { files, dirs, others, bytes, blocks } = self;
        Contents { files, dirs, others, bytes, blocks }
    }

    fn is_zero(&self) -> bool {
        *self == Sums::default()
    }
}

impl std::ops::Add for Sums {
    type Output = Sums;
    fn add(self, other: Sums) -> Sums {
        let (a, b) = (self.each(), other.each());
        Sums::from_each(std::array::from_fn(|n| a[n].wrapping_add(b[n])))
    }
}

impl std::ops::Neg for Sums {
    type Output = Sums;
    fn neg(self) -> Sums {
        Sums::from_each(self.each().map(u64::wrapping_neg))
    }
}

impl std::ops::Sub for Sums {
    type Output = Sums;
    fn sub(self, other: Sums) -> Sums {
        self + -other
    }
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Sums) {
        *self = *self + other;
    }
}

/// The counts of a directory; also the record of kind 11, which may lag behind (meta-D1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The content of the directory itself.
    pub own: Sums,
    /// Its own content and that of all directories below it.
    pub tree: Sums,
}

impl Counts {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.push(VERSION);
        self.own.each().iter().for_each(|n| put_varint(&mut out, *n));
        // For most directories, which have no subdirectories, both are the same.
        if self.tree != self.own {
            self.tree.each().iter().for_each(|n| put_varint(&mut out, *n));
        }
        debug_assert!(
            Counts::decode(&out).is_ok_and(|counts| counts == *self),
            "counts read back as written"
        );
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Counts, Malformed> {
        let mut r = versioned(bytes)?;
        let own = Sums::get(|| r.varint())?;
        if r.remaining() == 0 {
            return Ok(Counts { own, tree: own });
        }
        let tree = Sums::get(|| r.varint())?;
        r.end()?;
        if tree == own { Err(Malformed("counts that say the same twice")) } else { Ok(Counts { own, tree }) }
    }
}

fn versioned(bytes: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut r = Reader::new(bytes);
    if r.byte()? == VERSION { Ok(r) } else { Err(Malformed("record version")) }
}

/// The difference between a directory's counts and its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    own: Sums,
    /// Of directories below it, without `own`.
    below: Sums,
}

impl Row {
    fn is_zero(&self) -> bool {
        self.own.is_zero() && self.below.is_zero()
    }

    /// Differences may be negative, hence zigzag.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        out.push(VERSION);
        for n in self.own.each().into_iter().chain(self.below.each()) {
            put_varint(&mut out, zigzag(n as i64));
        }
        debug_assert!(Row::decode(&out).is_ok_and(|row| row == *self), "a row reads back as written");
        out
    }

    fn decode(bytes: &[u8]) -> Result<Row, Malformed> {
        let mut r = versioned(bytes)?;
        let mut number = || r.varint().map(|n| unzigzag(n) as u64);
        let row = Row { own: Sums::get(&mut number)?, below: Sums::get(&mut number)? };
        r.end()?;
        Ok(row)
    }
}

/// The differences between the counts and their records, by directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    rows: BTreeMap<Fid, Row>,
    /// `ROWS_LONG`, except in tests.
    pub rows_long: usize,
    /// True once the records were made, so that meta-D1 holds. In a file system of an older program they do not exist at first.
    counting: bool,
    /// The last row of the last fold, so that the folds visit all rows in turn.
    turn: Fid,
}

/// The effect of one entry's changes on the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    rows: Vec<(Fid, Row)>,
    /// Directories that lost their last name: the same entry deletes their records of counts.
    gone: Vec<Fid>,
    begins: bool,
    /// The entry added, removed or moved no directory.
    dirs_stay: bool,
}

/// The records to put, and the last row that they include.
pub struct Fold {
    pub puts: Vec<(Key, Vec<u8>)>,
    pub end: Fid,
}

/// A change: the key, and the new value or `None`.
pub type Changed<'c> = (&'c Key, Option<&'c [u8]>);

impl Learned {
    /// Keys of the records that the entry must delete too.
    pub fn obsolete(&self, view: &dyn View) -> Vec<Key> {
        let keys = self.gone.iter().map(|dir| keys::counts(*dir));
        keys.filter(|key| view.get(key).is_some()).collect()
    }

    fn at(&mut self, dir: Fid) -> &mut Row {
        let found = self.rows.iter().position(|(fid, _)| *fid == dir);
        let at = found.unwrap_or_else(|| {
            self.rows.push((dir, Row::default()));
            self.rows.len() - 1
        });
        &mut self.rows[at].1
    }

    fn inode(&mut self, view: &dyn View, key: &Key, new: Option<&[u8]>) {
        let Some(fid) = keys::parse_fid(key) else { return };
        let counted = |bytes: &[u8]| records::counted(fid, bytes).ok();
        let new = new.and_then(counted);
        // If no directory moves, its record only has new times, and a look at the old record would cost more than the rest of this. An
        // inode without a name is an orphan, even if the same entry gave its name to another inode.
        let is_named = |inode: Counted| inode.parent.is_some() || fid == Fid::ROOT;
        if self.dirs_stay && new.is_some_and(|inode| inode.kind == Kind::Dir && is_named(inode)) {
            return;
        }
        let old = view.get(key).and_then(|value| counted(&value));
        if old == new {
            return;
        }
        let place = |inode: &Option<Counted>| inode.as_ref().and_then(|i| Some((i.parent?, Sums::of(i))));
        let (from, to) = (place(&old), place(&new));
        let is_dir = [&old, &new].into_iter().flatten().any(|inode| inode.kind == Kind::Dir);
        // The sums of a directory's record move along with it. Pending rows below it reach the new ancestors by themselves.
        let moves = is_dir && from.map(|f| f.0) != to.map(|t| t.0);
        let tree = if moves { record(view, fid).tree } else { Sums::default() };
        if let Some((parent, sums)) = from {
            let row = self.at(parent);
            row.own += -sums;
            row.below += -tree;
        }
        if let Some((parent, sums)) = to {
            let row = self.at(parent);
            row.own += sums;
            row.below += tree;
        }
        if is_dir && to.is_none() {
            self.gone.push(fid);
        }
    }

    /// meta-D3: the sums that the record gained leave the row and enter the parent's row.
    fn folded(&mut self, view: &dyn View, dir: Fid, new: &[u8]) {
        let Ok(new) = Counts::decode(new) else { return };
        let old = record(view, dir);
        let (own, tree) = (new.own - old.own, new.tree - old.tree);
        let row = self.at(dir);
        row.own += -own;
        row.below += own - tree;
        if let Some(parent) = parent_of(view, dir) {
            self.at(parent).below += tree;
        }
    }
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { rows: BTreeMap::new(), rows_long: ROWS_LONG, counting: false, turn: Fid(0) }
    }
}

impl Pending {
    /// Called first, with the records of a checkpoint.
    pub fn look_at(&mut self, view: &dyn View) {
        self.counting = view.get(&keys::kind_start(keys::COUNTS)).is_some();
    }

    /// The record that marks the counts as kept existed, but is unreadable.
    pub fn go_on(&mut self) {
        self.counting = true;
    }

    pub fn is_counting(&self) -> bool {
        self.counting
    }

    pub fn is_long(&self) -> bool {
        self.rows.len() > self.rows_long
    }

    /// meta-D2: the effect of an entry whose `changes` are about to be applied to `view`.
    pub fn learn<'c>(&self, view: &dyn View, changes: impl Iterator<Item = Changed<'c>> + Clone) -> Learned {
        let mut learned = Learned { dirs_stay: !changes.clone().any(may_move_dir), ..Learned::default() };
        for (key, value) in changes {
            match (key.as_bytes(), value) {
                ([keys::COUNTS], Some(_)) => learned.begins = true,
                ([keys::INODE, ..], value) if self.counting => learned.inode(view, key, value),
                // The record's deletion comes with that of its directory, which has the same effect.
                ([keys::COUNTS, ..], Some(value)) if self.counting => {
                    keys::parse_fid(key).into_iter().for_each(|dir| learned.folded(view, dir, value));
                }
                _ => {}
            }
        }
        learned
    }

    /// Takes the effect of an entry that is in the log.
    pub fn add(&mut self, learned: Learned) {
        for (dir, delta) in learned.rows {
            let row = self.rows.entry(dir).or_default();
            row.own += delta.own;
            row.below += delta.below;
            if row.is_zero() {
                self.rows.remove(&dir);
            }
            debug_assert!(self.rows.get(&dir).is_none_or(|row| !row.is_zero()), "meta-D2: no row is empty");
        }
        for dir in learned.gone {
            self.rows.remove(&dir);
        }
        self.counting |= learned.begins;
    }

    /// meta-D3: the next records to put. The caller reports their log entry by `fold_ended`. A fold without effect is repeated with the
    /// same rows, whose records were loaded meanwhile, or with `max` of them.
    pub fn fold(&self, view: &dyn View, max: usize) -> Fold {
        let many = self.rows.len().saturating_sub(self.rows_long).clamp(FOLD_MIN, FOLD_MAX).min(max.max(1));
        let after = self.rows.range((Bound::Excluded(self.turn), Bound::Unbounded));
        let turn: Vec<(Fid, Row)> =
            after.chain(&self.rows).take(many.min(self.rows.len())).map(|(f, r)| (*f, *r)).collect();
        let end = turn.last().map_or(Fid(0), |(dir, _)| *dir);
        assert!(turn.len() <= FOLD_MAX, "a fold holds the leader for a bounded time");
        assert!(turn.is_empty() == self.rows.is_empty(), "meta-D3: a fold takes a row if there is one");
        let put = |(dir, row): (Fid, Row)| {
            let Counts { own, tree } = record(view, dir);
            let new = Counts { own: own + row.own, tree: tree + row.own + row.below };
            (keys::counts(dir), new.encode())
        };
        Fold { puts: turn.into_iter().map(put).collect(), end }
    }

    /// The next fold begins after `end`, the last row of this one.
    pub fn fold_ended(&mut self, end: Fid) {
        self.turn = end;
    }

    /// meta-D1: the counts of the directory `dir`.
    pub fn counts(&self, view: &dyn View, dir: Fid) -> Counts {
        let mut counts = record(view, dir);
        counts.own += self.rows.get(&dir).map_or(Sums::default(), |row| row.own);
        let mut known = HashMap::from([(dir, true)]);
        for (fid, row) in &self.rows {
            if dir == Fid::ROOT || is_below(view, *fid, &mut known) {
                counts.tree += row.own + row.below;
            }
        }
        counts
    }

    /// The call `Counts`.
    pub fn answer(&self, view: &dyn View, req: &wire::meta::Counts) -> Result<CountsReply, Fault> {
        let dir = load_inode(view, req.fid)?;
        if !dir.is_dir() {
            return Err(Code::NotDir.into());
        }
        access::need(&dir, &req.cred, access::READ | access::EXEC)?;
        let Counts { own, tree } = self.counts(view, req.fid);
        Ok(CountsReply { own: own.to_wire(), tree: tree.to_wire() })
    }

    /// The rows as records of kind 12, for a checkpoint.
    pub fn records(&self) -> impl Iterator<Item = (Key, Vec<u8>)> + '_ {
        self.rows.iter().map(|(dir, row)| (keys::pending(*dir), row.encode()))
    }

    /// Restores a row from a checkpoint.
    pub fn restore(&mut self, key: &Key, value: &[u8]) -> Result<(), Malformed> {
        let dir = keys::parse_fid(key).ok_or(Malformed("key"))?;
        match self.rows.insert(dir, Row::decode(value)?) {
            None => Ok(()),
            Some(_) => Err(Malformed("two rows of one directory")),
        }
    }
}

/// True if `fid` is below the directory that `known` has as the top. Every directory on the way is looked up once.
fn is_below(view: &dyn View, fid: Fid, known: &mut HashMap<Fid, bool>) -> bool {
    let (mut way, mut at) = (Vec::new(), Some(fid));
    let answer = loop {
        let Some(dir) = at.filter(|_| way.len() < DEPTH_MAX) else { break false };
        if let Some(answer) = known.get(&dir) {
            break *answer;
        }
        way.push(dir);
        at = parent_of(view, dir);
    };
    known.extend(way.into_iter().map(|dir| (dir, answer)));
    answer
}

/// The record of a directory's counts. Without one, the directory was empty at its last fold.
pub(crate) fn record(view: &dyn View, dir: Fid) -> Counts {
    view.get(&keys::counts(dir)).and_then(|value| Counts::decode(&value).ok()).unwrap_or_default()
}

fn parent_of(view: &dyn View, dir: Fid) -> Option<Fid> {
    let value = view.get(&keys::inode(dir))?;
    records::counted(dir, &value).ok()?.parent
}

/// True if the change may add, remove or move a directory: then its entry is put or deleted (meta-I2). The key of a deleted entry does
/// not tell its kind.
fn may_move_dir((key, value): Changed<'_>) -> bool {
    key.as_bytes().first() == Some(&keys::ENTRY) && value.is_none_or(records::may_be_of_dir)
}

/// Marks that counts are kept from here on: the records match the content.
pub fn begin(txn: &mut dyn Txn) {
    let (key, value) = begun();
    txn.put(key, value);
}

/// The record that marks the counts as kept.
pub fn begun() -> (Key, Vec<u8>) {
    (keys::kind_start(keys::COUNTS), vec![VERSION])
}

/// Computes all counts from the inodes alone: each record is shown to it, in any order. Uses memory for directories only.
#[derive(Default)]
pub struct Recount {
    own: BTreeMap<Fid, Sums>,
    parents: HashMap<Fid, Fid>,
}

impl Recount {
    pub fn take(&mut self, key: &Key, value: &[u8]) {
        if key.as_bytes().first() != Some(&keys::INODE) {
            return;
        }
        let Some(fid) = keys::parse_fid(key) else { return };
        if let Ok(inode @ Counted { parent: Some(parent), .. }) = records::counted(fid, value) {
            *self.own.entry(parent).or_default() += Sums::of(&inode);
            if inode.kind == Kind::Dir {
                self.parents.insert(fid, parent);
            }
        }
    }

    /// Directories and their parents, by first hints.
    pub(crate) fn parents(&self) -> &HashMap<Fid, Fid> {
        &self.parents
    }

    /// The excess of records and rows over the content (meta-D1), for each directory with an error. `said`: the records of kind 11.
    pub(crate) fn errors(self, said: &HashMap<Fid, Counts>, pending: &Pending) -> Vec<(Fid, Counts)> {
        let parents = self.parents.clone();
        let mut off: BTreeMap<Fid, Counts> = said.iter().map(|(dir, counts)| (*dir, *counts)).collect();
        for (dir, row) in &pending.rows {
            off.entry(*dir).or_default().own += row.own;
            let mut at = Some(*dir);
            for _ in 0..DEPTH_MAX {
                let Some(dir) = at else { break };
                off.entry(dir).or_default().tree += row.own + row.below;
                at = parents.get(&dir).copied();
            }
        }
        for (dir, Counts { own, tree }) in self.finish() {
            let off = off.entry(dir).or_default();
            *off = Counts { own: off.own - own, tree: off.tree - tree };
        }
        // A counts record of an inode that is not a directory is another finding.
        let is_dir = |dir: &Fid| *dir == Fid::ROOT || parents.contains_key(dir);
        off.into_iter().filter(|(dir, off)| is_dir(dir) && *off != Counts::default()).collect()
    }

    /// The counts of the directories that are not empty.
    pub fn finish(self) -> BTreeMap<Fid, Counts> {
        let mut all: BTreeMap<Fid, Counts> = BTreeMap::new();
        for (dir, sums) in self.own {
            all.entry(dir).or_default().own = sums;
            let mut at = Some(dir);
            for _ in 0..DEPTH_MAX {
                let Some(dir) = at else { break };
                all.entry(dir).or_default().tree += sums;
                at = self.parents.get(&dir).copied();
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
