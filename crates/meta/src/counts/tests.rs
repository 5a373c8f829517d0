//! meta-D1 to meta-D3 under random operations, in entries of one and of many, with folds and checkpoints in between.

use hammer::Dice;
use types::*;
use wire::meta::{
    AllocateInline, Grow, Place, RENAME_EXCHANGE, RENAME_NOREPLACE, Release, Settle, Switch, Symlink,
    Tmpfile, Truncate, WriteInline,
};

use super::*;
use crate::mem::MemTxn;
use crate::records::InodeRecord;
use crate::testing::*;

fn sums(files: u64, dirs: u64, others: u64, bytes: u64, blocks: u64) -> Sums {
    Sums { files, dirs, others, bytes, blocks }
}

/// A world like the executor's: `old` is the applied state, and `pending` learns from later changes.
struct Scene {
    w: World,
    old: MemTxn,
    pending: Pending,
}

impl Scene {
    fn new() -> Scene {
        let w = World::new();
        let (old, mut pending) = (w.txn.clone(), Pending::default());
        pending.look_at(&old);
        assert!(pending.is_counting(), "a new file system counts from the first day");
        Scene { w, old, pending }
    }

    /// Makes one entry of all changes since the last entry.
    fn commit(&mut self) {
        let (old, new) = (&self.old.records, &self.w.txn.records);
        let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (key, None));
        let put =
            new.iter().filter(|(key, value)| old.get(key) != Some(value)).map(|(k, v)| (k, Some(&v[..])));
        let learned = self.pending.learn(&self.old, gone.chain(put));
        let obsolete = learned.obsolete(&self.old);
        obsolete.iter().for_each(|key| self.w.txn.delete(key));
        self.pending.add(learned);
        self.old = self.w.txn.clone();
    }

    fn fold(&mut self) {
        let fold = self.pending.fold(&self.old, FOLD_MAX);
        fold.puts.into_iter().for_each(|(key, value)| self.w.txn.put(key, value));
        self.commit();
        self.pending.fold_ended(fold.end);
    }

    fn checkpoint(&mut self) {
        let mut restored = Pending::default();
        self.pending.records().for_each(|(key, value)| restored.restore(&key, &value).expect("a row"));
        restored.look_at(&self.old);
        assert_eq!((&restored.rows, restored.counting), (&self.pending.rows, true));
        self.pending = restored;
    }

    fn counts(&self, dir: Fid) -> Counts {
        self.pending.counts(&self.old, dir)
    }

    /// meta-D1: compares with sums over whole records, the slow way.
    fn check(&self) {
        let inodes: Vec<InodeRecord> = inodes(&self.old).collect();
        let mut recount = Recount::default();
        self.old.records.iter().for_each(|(key, value)| recount.take(key, value));
        let recount = recount.finish();
        let mut by_parent = ByParent::new();
        for inode in &inodes {
            by_parent.entry(inode.parents.first().map(|p| p.fid)).or_default().push(inode);
        }
        for dir in inodes.iter().filter(|i| i.is_dir()) {
            let (own, tree) = (slow_own(&by_parent, dir.fid()), slow_tree(&by_parent, dir.fid()));
            let wanted = Counts { own, tree };
            assert_eq!(self.counts(dir.fid()), wanted, "directory {}", dir.fid());
            assert_eq!(
                recount.get(&dir.fid()).copied().unwrap_or_default(),
                wanted,
                "recount of {}",
                dir.fid()
            );
        }
        let rows =
            self.old.records.keys().filter(|k| k.as_bytes()[0] == keys::COUNTS && k.as_bytes().len() > 1);
        let dirs: Vec<Fid> =
            rows.filter_map(keys::parse_fid).chain(self.pending.rows.keys().copied()).collect();
        for dir in dirs {
            assert!(inodes.iter().any(|i| i.is_dir() && i.fid() == dir), "counts of {dir}, which is gone");
        }
    }
}

type ByParent<'i> = BTreeMap<Option<Fid>, Vec<&'i InodeRecord>>;

fn slow_own(inodes: &ByParent<'_>, dir: Fid) -> Sums {
    let mut total = Sums::default();
    for inode in inodes.get(&Some(dir)).into_iter().flatten() {
        let Attr { kind, size, blocks, .. } = inode.attr;
        total += match kind {
            Kind::Dir => sums(0, 1, 0, 0, 0),
            Kind::File => sums(1, 0, 0, size, blocks),
            Kind::Symlink => sums(0, 0, 1, size, blocks),
            _ => sums(0, 0, 1, 0, blocks),
        };
    }
    total
}

fn slow_tree(inodes: &ByParent<'_>, dir: Fid) -> Sums {
    let below = inodes.get(&Some(dir)).into_iter().flatten().filter(|i| i.is_dir());
    below.map(|i| slow_tree(inodes, i.fid())).fold(slow_own(inodes, dir), |total, sums| total + sums)
}

#[test]
fn bytes_are_pinned() {
    let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let own = sums(1, 2, 3, 300, 8);
    assert_eq!(hex(Counts { own, tree: own }.encode()), "01010203ac0208");
    let counts = Counts { own, tree: sums(1, 2, 3, 300, 9) };
    assert_eq!(hex(counts.encode()), "01010203ac0208010203ac0209");
    assert_eq!(Counts::decode(&counts.encode()), Ok(counts));
    assert_eq!(Counts::decode(&[1, 0, 0, 0, 0, 0]), Ok(Counts::default()));
    assert!(Counts::decode(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).is_err(), "the same twice");
    assert!(Counts::decode(&[2, 0, 0, 0, 0, 0]).is_err() && Counts::decode(&[1, 0, 0, 0, 0, 0, 0]).is_err());
    let row = Row { own: -sums(1, 0, 0, 64, 0), below: sums(0, 1, 0, 0, 0) };
    assert_eq!(hex(row.encode()), "010100007f00".to_owned() + "0002000000");
    assert_eq!(Row::decode(&row.encode()), Ok(row));
    assert_eq!(keys::counts(Fid(0x10)).as_bytes(), [11, 0, 0, 0, 0, 0, 0, 0, 0x10]);
    assert_eq!(begun(), (Key::new(&[11]).expect("short"), vec![1]));
}

#[test]
fn bytes_nobody_wrote_do_not_panic() {
    let own = sums(1, 2, 3, 300, 8);
    let seeds = [Counts { own, tree: own }.encode(), Counts { own, tree: own + own }.encode()];
    let counts = hammer::Hammer::new("counts").seeds(seeds);
    counts.run(
        |b| Counts::decode(b).ok(),
        |b, c| {
            assert_eq!(c.encode(), b);
            b.len()
        },
    );
    let rows = hammer::Hammer::new("pending counts").seeds([Row { own, below: -own }.encode()]);
    rows.run(
        |b| Row::decode(b).ok(),
        |b, row| {
            assert_eq!(row.encode(), b);
            b.len()
        },
    );
}

/// The place in which each inode counts, case by case.
#[test]
fn an_inode_counts_where_its_first_name_is() {
    let mut c = Scene::new();
    let (a, b) = (c.w.dir(ROOT, "a"), c.w.dir(ROOT, "b"));
    let below = c.w.dir(a, "below");
    let f = c.w.file(below, "f");
    c.w.edit(f, |i| (i.attr.size, i.attr.blocks) = (5000, 16));
    c.commit();
    let one = sums(1, 0, 0, 5000, 16);
    assert_eq!(c.counts(below), Counts { own: one, tree: one });
    assert_eq!(c.counts(a), Counts { own: sums(0, 1, 0, 0, 0), tree: sums(1, 1, 0, 5000, 16) });
    assert_eq!(c.counts(ROOT).tree, sums(1, 3, 0, 5000, 16));
    // A second name does not count until the first is removed.
    c.w.link(f, b, "again").expect("link");
    c.commit();
    assert_eq!(c.counts(b), Counts::default());
    c.w.unlink(below, "f", false).expect("unlink");
    c.commit();
    assert_eq!((c.counts(below), c.counts(b).own), (Counts::default(), one));
    // An inode without a name counts nowhere.
    c.w.unlink(b, "again", true).expect("unlink");
    c.commit();
    assert_eq!(c.counts(ROOT).tree, sums(0, 3, 0, 0, 0));
    c.check();
}

/// In one entry a directory loses its name and a file gets it: no entry is deleted, and no entry is of a directory.
#[test]
fn a_directory_whose_name_a_file_was_given_in_the_same_entry_is_counted_no_more() {
    let mut c = Scene::new();
    let a = c.w.dir(ROOT, "a");
    let d = c.w.dir(a, "d");
    c.commit();
    // As a removal leaves it while another session has it open.
    let in_a = |key: &&Key| key.as_bytes()[0] == keys::ENTRY && key.as_bytes()[1..9] == a.0.to_be_bytes();
    let entry = *c.w.txn.records.keys().find(in_a).expect("the entry of d");
    c.w.txn.delete(&entry);
    c.w.edit(d, |i| i.parents.clear());
    c.w.file(a, "d");
    assert!(c.w.txn.records.contains_key(&entry), "it is under the same key");
    c.commit();
    assert!(c.w.inode(d).parents.is_empty());
    assert_eq!(c.counts(a).own, sums(1, 0, 0, 0, 0));
    c.check();
}

/// A file system of a program without counts.
#[test]
fn nothing_is_learned_before_all_was_counted_once() {
    let mut c = Scene::new();
    let key = keys::kind_start(keys::COUNTS);
    c.w.txn.delete(&key);
    c.old.delete(&key);
    c.pending.look_at(&c.old);
    let dir = c.w.dir(ROOT, "d");
    c.w.file(dir, "f");
    c.commit();
    assert!(c.pending.rows.is_empty() && !c.pending.is_counting());
    // Slices, and the record that ends the conversion.
    let mut recount = Recount::default();
    c.old.records.iter().for_each(|(key, value)| recount.take(key, value));
    for (dir, counts) in recount.finish() {
        c.w.txn.put(keys::counts(dir), counts.encode());
        c.commit();
    }
    begin(&mut c.w.txn);
    c.commit();
    assert!(c.pending.rows.is_empty() && c.pending.is_counting());
    c.check();
    c.w.file(dir, "g");
    c.commit();
    c.check();
}

/// Sparse files whose sizes together exceed 64 bits.
#[test]
fn sums_that_overflow_come_back() {
    let mut c = Scene::new();
    let dir = c.w.dir(ROOT, "d");
    for name in ["a", "b", "c", "d"] {
        let f = c.w.file(dir, name);
        c.w.edit(f, |i| i.attr.size = u64::MAX / 2);
        c.commit();
        c.fold();
    }
    for name in ["a", "b", "c", "d"] {
        c.w.unlink(dir, name, false).expect("unlink");
        c.commit();
    }
    c.fold();
    assert_eq!(c.counts(ROOT).tree, sums(0, 1, 0, 0, 0));
}

/// Many directories at once: rows stay bounded, in a tree so deep that each has many ancestors.
#[test]
fn rows_stay_bounded() {
    let mut pending = Pending { counting: true, ..Pending::default() };
    let (mut txn, like) = (MemTxn::default(), World::new().attr(ROOT));
    // Chains of 20 directories, side by side.
    for fid in 1000..61_000u64 {
        let parent = if fid % 20 == 0 { Fid::ROOT } else { Fid(fid - 1) };
        let attr = Attr { fid: Fid(fid), kind: Kind::Dir, ..like };
        let mut inode = InodeRecord::new(attr);
        inode.parents.push(crate::records::Parent { fid: parent, h64: 0, collision: 0 });
        crate::inode::store_inode(&mut txn, &inode);
    }
    let mut most = 0;
    for n in 0..20_000u64 {
        let leaf = Fid(1019 + n * 20 % 60_000);
        pending.add(Learned {
            rows: vec![(leaf, Row { own: sums(1, 0, 0, 0, 0), ..Row::default() })],
            ..Learned::default()
        });
        if pending.is_long() {
            let Fold { puts, end } = pending.fold(&txn, FOLD_MAX);
            assert!(puts.len() <= FOLD_MAX);
            assert!(pending.fold(&txn, FOLD_MAX).puts == puts, "one that came to nothing is made again");
            assert!(pending.fold(&txn, 3).puts == puts[..3], "or the first of it");
            let learned = pending.learn(&txn, puts.iter().map(|(k, v)| (k, Some(&v[..]))));
            pending.add(learned);
            pending.fold_ended(end);
            puts.into_iter().for_each(|(key, value)| txn.put(key, value));
        }
        most = most.max(pending.rows.len());
    }
    assert!(most < 2 * ROWS_LONG, "{most} rows");
    assert_eq!(pending.counts(&txn, Fid::ROOT).tree, sums(20_000, 0, 0, 0, 0));
}

struct Play {
    c: Scene,
    dice: Dice,
}

impl Play {
    fn fids(&self, want: impl Fn(&InodeRecord) -> bool) -> Vec<Fid> {
        inodes(&self.c.w.txn).filter(want).map(|i| i.fid()).collect()
    }
    fn one_of(&mut self, fids: &[Fid]) -> Fid {
        fids[self.dice.below(fids.len())]
    }
    fn dir(&mut self) -> Fid {
        let dirs = self.fids(|i| i.is_dir());
        self.one_of(&dirs)
    }
    fn file(&mut self) -> Option<Fid> {
        let files = self.fids(|i| i.attr.kind == Kind::File);
        (!files.is_empty()).then(|| self.one_of(&files))
    }
    fn name(&mut self) -> String {
        format!("n{}", self.dice.below(5))
    }

    /// Runs one operation; a refused one changes nothing.
    fn step(&mut self) {
        let (dir, name, to, new_name) = (self.dir(), self.name(), self.dir(), self.name());
        let (now, dirs) = (self.c.w.now, self.fids(|i| i.is_dir()).len());
        let w = &mut self.c.w;
        match self.dice.below(20) {
            0..2 => drop(w.create(dir, &name)),
            2 => {
                let content = vec![7; self.dice.below(20_000)];
                drop(w.call_with(w.create_with_req(dir, &name, &content), &content));
            }
            // Trees of limited depth.
            3..6 if dirs < 60 => drop(w.mkdir(dir, &name, 0o755)),
            6 => {
                let target = bytes(&"t".repeat(1 + self.dice.below(9)));
                drop(w.call(Symlink {
                    parent: dir,
                    name: bytes(&name),
                    target,
                    now,
                    cred: cred(0),
                    want: Fid(0),
                }));
            }
            7 => drop(w.rmdir(dir, &name)),
            8 | 9 => drop(w.unlink(dir, &name, self.dice.below(2) == 0)),
            10..14 => {
                let flags = [0, 0, RENAME_EXCHANGE, RENAME_NOREPLACE][self.dice.below(4)];
                drop(w.rename((dir, &name), (to, &new_name), flags, self.dice.below(2) == 0));
            }
            14 => {
                let made = Tmpfile {
                    parent: dir,
                    mode: 0o600,
                    umask: 0,
                    exclusive: false,
                    now,
                    cred: cred(0),
                    want: Fid(0),
                };
                drop(w.call(made));
            }
            _ => {
                if let Some(file) = self.file() {
                    self.change(file, dir, &name);
                }
            }
        }
    }

    fn change(&mut self, fid: Fid, dir: Fid, name: &str) {
        let (now, size) = (self.c.w.now, self.dice.below(20_000) as u64);
        let generation = self.c.w.inode(fid).generation;
        let w = &mut self.c.w;
        match self.dice.below(8) {
            0 => drop(w.link(fid, dir, name)),
            1 => {
                let bulk = vec![7; 1 + size as usize / 4];
                let crcs = types::crc::fragment_crcs(0, &bulk);
                let (place, in_section) = (Place::At(size), self.dice.below(2) == 0);
                drop(w.call_with(WriteInline { fid, place, in_section, crcs, now, held: None }, &bulk));
            }
            2 => drop(w.call(Truncate { fid, size, now, cred: cred(0), held: None })),
            3 => drop(w.call(Truncate { fid, size: 0, now, cred: cred(0), held: None })),
            4 => drop(w.call(Grow { fid, now, held: None, avoid: vec![] })),
            5 => drop(w.call(Switch { fid, generation, written: vec![], now, held: None })),
            6 => drop(w.call(Release { fid })),
            _ => {
                let done = self.dice.below(2) == 0;
                let (blocks, written) = (size.div_ceil(4096) * 8, vec![]);
                let settle = Settle {
                    fid,
                    generation,
                    size,
                    blocks,
                    mtime: now,
                    written,
                    done,
                    hint: false,
                    is_part: false,
                    held: None,
                };
                drop(w.call(settle));
                let allocate = AllocateInline {
                    fid,
                    offset: 0,
                    len: size + 1,
                    erase: false,
                    allocate: true,
                    grow: done,
                    now,
                    held: None,
                };
                drop(w.call(allocate));
            }
        }
    }
}

fn inodes(txn: &MemTxn) -> impl Iterator<Item = InodeRecord> {
    let inodes = txn.records.iter().filter(|(key, _)| key.as_bytes()[0] == keys::INODE);
    inodes.map(|(key, value)| {
        InodeRecord::decode(keys::parse_fid(key).expect("a key"), value).expect("the rules wrote it")
    })
}

#[test]
fn counts_are_exact_after_every_entry() {
    let (seeds, steps) = if std::env::var_os("STRIA_LONG").is_some() { (40, 5000) } else { (3, 700) };
    for seed in 0..seeds {
        let mut play = Play { c: Scene::new(), dice: Dice::new(seed) };
        let mut most = Sums::default();
        for _ in 0..steps {
            // Half of the entries hold one operation, the others several.
            for _ in 0..[1, 1, 3, 7][play.dice.below(4)] {
                play.step();
            }
            play.c.commit();
            match play.dice.below(12) {
                0 => play.c.fold(),
                1 => play.c.checkpoint(),
                _ => {}
            }
            play.c.check();
            let now = play.c.counts(ROOT).tree;
            most = Sums::from_each(std::array::from_fn(|n| most.each()[n].max(now.each()[n])));
        }
        assert!(most.each().iter().all(|n| *n > 5), "seed {seed}: the play has all sorts: {most:?}");
    }
}
