//! Counts of directories through the door: exact over kills, power losses and checkpoints, folded or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Crash, Disk, SimDisk};
use kv::{Engine, View};
use meta::counts::{Counts, Recount};
use meta::keys;
use types::*;
use wire::meta::{
    Create, MakeDir, Place, RENAME_EXCHANGE, RENAME_WHITEOUT, Release, Rename, Truncate, Unlink, UnlinkReply,
    WriteInline,
};

use super::meta_rules::{fresh, rig};
use super::rig::Rig;
use crate::records::ids::no_lease;

fn cred() -> Cred {
    Cred::root()
}

/// The counts of the table, taken from every inode.
fn recount(rig: &Rig) -> BTreeMap<Fid, Counts> {
    let mut recount = Recount::default();
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        recount.take(key, value);
        Ok(())
    });
    each.unwrap();
    recount.finish()
}

fn of_kind(rig: &Rig, kind: Kind) -> Vec<Fid> {
    let mut fids = vec![];
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        let is_it = |fid| meta::records::counted(fid, value).is_ok_and(|i| i.kind == kind);
        fids.extend(keys::parse_fid(key).filter(|fid| key.as_bytes()[0] == keys::INODE && is_it(*fid)));
        Ok(())
    });
    each.unwrap();
    fids
}

/// Every directory's counts as the door tells them.
fn check(rig: &Rig, when: &str) {
    let wanted = recount(rig);
    for dir in of_kind(rig, Kind::Dir) {
        let said = rig.ask(&wire::meta::Counts { fid: dir, cred: cred() }, SessionId(0)).unwrap();
        let Counts { own, tree } = wanted.get(&dir).copied().unwrap_or_default();
        let each = |c: &wire::meta::Contents| [c.files, c.dirs, c.others, c.bytes, c.blocks];
        let sums = |s: meta::counts::Sums| [s.files, s.dirs, s.others, s.bytes, s.blocks];
        assert_eq!((each(&said.own), each(&said.tree)), (sums(own), sums(tree)), "{when}: directory {dir}");
    }
}

pub struct Play {
    pub rig: Rig,
    pub dirs: Vec<Fid>,
    pub files: Vec<Fid>,
    dice: u64,
}

impl Play {
    pub fn new(rig: Rig, dice: u64) -> Play {
        Play { rig, dirs: vec![Fid::ROOT], files: vec![], dice }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % limit
    }

    /// Something that changes names or content, or tries to.
    pub fn step(&mut self) {
        let (now, want) = (Time::new(10, 0), Fid(0));
        let [from, to] = [(); 2].map(|()| self.below(self.dirs.len()));
        let (parent, new_parent) = (self.dirs[from], self.dirs[to]);
        let [name, new_name] = [(); 2].map(|()| format!("n{}", self.below(6)).as_bytes().into());
        let session = self.rig.session;
        match self.below(10) {
            0..3 => {
                let (kind, mode, umask, rdev, exclusive) = (Kind::File, 0o644, 0, 0, true);
                let (read, write, append) = (false, true, false);
                let made = Create {
                    parent,
                    name,
                    kind,
                    mode,
                    umask,
                    rdev,
                    exclusive,
                    read,
                    write,
                    append,
                    now,
                    cred: cred(),
                    want,
                };
                self.files.extend(self.rig.ask(&made, session).ok().map(|r| r.open.inode.attr.fid));
            }
            3 if self.dirs.len() < 30 => {
                let made = MakeDir { parent, name, mode: 0o755, umask: 0, now, cred: cred(), want };
                self.dirs.extend(self.rig.ask(&made, session).ok().map(|i| i.attr.fid));
            }
            4 => {
                let left = self.rig.ask(&Unlink { parent, name, held: false, now, cred: cred() }, session);
                self.let_go(left.ok());
            }
            5..8 => {
                let (flags, cred) = ([0, RENAME_EXCHANGE, RENAME_WHITEOUT][self.below(3)], cred());
                let moved = Rename {
                    parent,
                    name,
                    new_parent,
                    new_name,
                    flags,
                    hold: false,
                    now,
                    cred,
                    want: Fid(0),
                };
                let left = self.rig.ask(&moved, session);
                self.let_go(left.ok().and_then(|r| r.replaced));
            }
            _ if self.files.is_empty() => {}
            8 => {
                let (at, bulk) = (self.below(self.files.len()), vec![7; 1 + self.below(3000)]);
                let fid = self.files[at];
                let crcs = crc::fragment_crcs(0, &bulk);
                let place = Place::At(0);
                let write = WriteInline { fid, place, in_section: true, crcs, now, held: None };
                drop(self.rig.ask_with(&write, session, &bulk));
            }
            _ => {
                let (at, size) = (self.below(self.files.len()), self.below(5000) as u64);
                let fid = self.files[at];
                drop(self.rig.ask(&Truncate { fid, size, now, cred: cred(), held: None }, session));
            }
        }
    }
}

impl Play {
    /// As a client does with what the MDT kept for calls on their way.
    fn let_go(&mut self, left: Option<UnlinkReply>) {
        if let Some(UnlinkReply { attr, kept: true }) = left {
            self.rig.ask(&Release { fid: attr.fid }, self.rig.session).unwrap();
        }
    }
}

/// A medium as a crash leaves it, served again.
fn again(disk: &SimDisk, crash: Crash) -> (Rig, Arc<SimDisk>) {
    let disk = Arc::new(disk.crash(crash));
    (rig(disk.clone() as Arc<dyn Disk>), disk)
}

#[test]
fn counts_are_exact_over_kills_power_losses_and_checkpoints() {
    for seed in 0..3 {
        let (rig, mut disk) = fresh();
        let mut play = Play::new(rig, seed);
        for round in 0..24 {
            // Few rows, so that they are folded all the time.
            play.rig.mdt.core.executor.lead().counts.rows_long = [2, 5, 100][round % 3];
            // A power loss took some.
            (play.dirs, play.files) = (of_kind(&play.rig, Kind::Dir), of_kind(&play.rig, Kind::File));
            (0..25).for_each(|_| play.step());
            check(&play.rig, &format!("seed {seed}, round {round}"));
            match play.below(8) {
                0 => play.rig.mdt.checkpoint().unwrap(),
                1..5 => drop(play.rig.mdt.flush()),
                5 | 6 => (play.rig, disk) = again(&disk, Crash::KeepAll),
                _ => (play.rig, disk) = again(&disk, Crash::DropAll),
            }
            check(&play.rig, &format!("seed {seed}, after round {round}"));
            verify::assert_whole(&*disk, &format!("seed {seed}, after round {round}"));
        }
        let all = recount(&play.rig)[&Fid::ROOT].tree;
        assert!(all.files > 0 && all.dirs > 5 && all.bytes > 0, "{all:?}");
        let mut folded = 0;
        let each = play.rig.mdt.core.kv.snapshot().each(&mut |key, _, _| {
            folded += (key.as_bytes()[0] == keys::COUNTS && key.as_bytes().len() > 1) as usize;
            Ok(())
        });
        each.unwrap();
        assert!(folded > 3, "{folded} directories have a record");
    }
}

/// A program that knew no counts made it: they are made at the first start, once, also if that ends on its way.
#[test]
fn an_older_file_system_is_counted_at_its_first_start() {
    let (rig, disk) = fresh();
    let mut play = Play::new(rig, 5);
    (0..150).for_each(|_| play.step());
    let core = &play.rig.mdt.core;
    // As if there had never been any.
    core.transact(&no_lease(), &mut |txn| {
        let (mut keys, all) = (vec![], keys::kind_start(keys::COUNTS)..keys::kind_start(keys::PENDING));
        meta::View::range(txn, &all.start, &all.end, &mut |key, _| {
            keys.push(*key);
            true
        });
        keys.iter().for_each(|key| meta::Txn::delete(txn, key));
        Ok(vec![])
    })
    .unwrap();
    core.executor.lead().counts = Default::default();
    play.step();
    play.rig.mdt.checkpoint().unwrap();
    let (rig, disk) = again(&disk, Crash::KeepAll);
    assert!(rig.mdt.core.executor.lead().counts.is_counting());
    check(&rig, "counted");
    assert!(recount(&rig).len() > 3);
    let (rig, _) = again(&disk, Crash::KeepAll);
    check(&rig, "after a second start");
}

/// So many directories, far apart, that what folding all of them needs does not stay in memory together: fewer are folded at a time.
#[test]
fn a_fold_comes_to_its_end_with_little_memory() {
    let (rig, _disk) = fresh();
    let core = &rig.mdt.core;
    let (now, want) = (Time::new(10, 0), Fid(0));
    let make = |parent, name: String| {
        let made =
            MakeDir { parent, name: name.as_bytes().into(), mode: 0o755, umask: 0, now, cred: cred(), want };
        rig.ask(&made, rig.session).unwrap().attr.fid
    };
    for n in 0..40 {
        core.executor.lead().ids.skip_fids(256);
        let dir = make(Fid::ROOT, format!("d{n}"));
        make(dir, "below".into());
    }
    let rows = || core.executor.lead().counts.records().count();
    assert!(rows() > 40, "{}", rows());
    core.executor.lead().counts.rows_long = 2;
    let before = core.kv.loads();
    for n in 0..60 {
        make(Fid::ROOT, format!("e{n}"));
    }
    assert!(rows() <= 3, "{}", rows());
    assert!(core.kv.loads() - before < 4000, "{} loads", core.kv.loads() - before);
    check(&rig, "folded");
}

/// A head of an earlier build has no copy of the record that says that directories are counted.
#[test]
fn what_says_that_directories_are_counted_may_be_lost() {
    let lost = [&[0u8; 24][..], &[keys::PENDING]].concat();
    let name =
        [&[1 | 0x80, keys::COUNTS][..], &25u32.to_le_bytes(), &crc::crc32c(&lost).to_le_bytes(), &lost];
    let name = name.concat();
    let trailer = [1u64.to_le_bytes(), (name.len() as u64).to_le_bytes()].concat();
    let batch = |records: u32, body: &[u8]| {
        let head = [records.to_le_bytes(), (body.len() as u32).to_le_bytes()].concat();
        let crc = crc::crc32c(&head).rotate_left(1) ^ crc::crc32c(body);
        [&head[..], &crc.to_le_bytes(), body].concat()
    };
    let head = [b"STRIAKV\0", &[2, 0, 0, 0, 0, 0, 0, 0][..]].concat();
    let stream = [head, batch(1, &name), batch(0, &trailer)].concat();
    let volume = disk::volume::Volume::open(fresh().1).unwrap();
    let empty = crate::upkeep::checkpoint::empty_on(&volume, Arc::new(u64::MAX.into())).unwrap();
    let state = crate::upkeep::checkpoint::read_state(empty, Seq(1), &mut &stream[..]).unwrap();
    assert!(state.counts.is_counting());
}

#[test]
fn counts_are_for_who_may_list() {
    let (rig, _disk) = fresh();
    let made = MakeDir {
        parent: Fid::ROOT,
        name: b"d"[..].into(),
        mode: 0o700,
        umask: 0,
        now: Time::new(9, 0),
        cred: cred(),
        want: Fid(0),
    };
    let fid = rig.ask(&made, rig.session).unwrap().attr.fid;
    let ask = |fid, uid| {
        let cred = Cred { uid, gid: uid, groups: vec![] };
        rig.ask(&wire::meta::Counts { fid, cred }, SessionId(0)).map_err(|f| f.code)
    };
    assert_eq!(ask(fid, 1000), Err(Code::Access));
    assert_eq!(ask(Fid::ROOT, 1000).unwrap().tree.dirs, 1);
    assert_eq!(ask(Fid(999), 0), Err(Code::Stale));
}
