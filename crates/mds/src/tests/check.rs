//! Damage of each kind is found, told with the repair, repaired, and gone: as the verifier says, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::SimDisk;
use kv::{Engine, View};
use meta::records::{self, EntryRecord, InodeRecord, Parent};
use meta::{Totals, Txn, keys, names};
use types::*;
use wire::check::{Check, CheckReply, Finding, Repair, Wrong};
use wire::object::Capability;

use super::counts::Play;
use super::meta_rules::fresh;
use super::rig::{Rig, SECRET};
use crate::records::ids::no_lease;
use crate::records::kept::Kept;
use crate::records::overlay::Overlay;
use crate::upkeep::abandoned::Abandoned;

fn cap() -> Capability {
    object::cap::make_admin(&SECRET, 1 << 40)
}

/// A whole check: its number and all findings.
fn check(rig: &Rig) -> (u64, Vec<Finding>) {
    let (mut run, mut seen, mut all) = (0, 0, vec![]);
    loop {
        let said: CheckReply = rig.ask(&Check { cap: cap(), run, seen }, SessionId(0)).unwrap();
        (run, seen) = (said.run, seen + said.findings.len() as u32);
        all.extend(said.findings);
        if said.done {
            return (run, all);
        }
    }
}

fn kinds(findings: &[Finding]) -> BTreeSet<Wrong> {
    findings.iter().map(|f| f.wrong).collect()
}

/// Repairs what can be until nothing is left to repair; what was told first, and what was told last.
pub fn mend(rig: &Rig) -> (BTreeSet<Wrong>, BTreeSet<Wrong>) {
    let (mut run, mut findings) = check(rig);
    let first = kinds(&findings);
    for _ in 0..6 {
        let mut repaired = false;
        for (number, _) in findings.iter().enumerate().filter(|(_, f)| !f.repair.is_empty()) {
            let said = rig.ask(&Repair { cap: cap(), run, number: number as u32 }, SessionId(0)).unwrap();
            repaired |= said.repaired;
        }
        (run, findings) = check(rig);
        if !repaired {
            break;
        }
    }
    (first, kinds(&findings))
}

/// A tree, everything in it folded, so that there are records of counts.
fn tree() -> (Rig, Arc<SimDisk>) {
    let (rig, disk) = fresh();
    rig.mdt.core.executor.lead().counts.rows_long = 0;
    let mut play = Play::new(rig, 21);
    for _ in 0..120 {
        (play.dirs, play.files) = (of_kind(&play.rig, Kind::Dir), of_kind(&play.rig, Kind::File));
        play.step();
    }
    (play.rig, disk)
}

fn inodes(rig: &Rig) -> Vec<InodeRecord> {
    let mut all = vec![];
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        if key.as_bytes()[0] == keys::INODE {
            all.push(InodeRecord::decode(keys::parse_fid(key).unwrap(), value).unwrap());
        }
        Ok(())
    });
    each.unwrap();
    all
}

fn of_kind(rig: &Rig, kind: Kind) -> Vec<Fid> {
    inodes(rig).into_iter().filter(|i| i.attr.kind == kind).map(|i| i.fid()).collect()
}

/// A file with a name, and a directory with something in it.
struct Cast {
    file: InodeRecord,
    dir: InodeRecord,
    session: SessionId,
}

type Damage = fn(&Cast, &mut Overlay<'_>);

/// Puts raw records, as no rule would.
fn damage(rig: &Rig, damage: Damage) {
    let all = inodes(rig);
    let named = |i: &&InodeRecord| i.attr.nlink > 0 && !i.parents.is_empty();
    let file =
        all.iter().filter(named).find(|i| i.attr.kind == Kind::File && i.attr.size > 0).unwrap().clone();
    let has_some = |i: &&InodeRecord| all.iter().any(|below| below.parents.iter().any(|p| p.fid == i.fid()));
    let dir = all.iter().filter(named).filter(|i| i.is_dir()).find(has_some).unwrap().clone();
    let cast = Cast { file, dir, session: rig.session };
    rig.mdt
        .core
        .transact(&no_lease(), &mut |txn| {
            damage(&cast, txn);
            Ok(vec![])
        })
        .unwrap();
}

fn place(dir: Fid, name: &str) -> Parent {
    Parent { fid: dir, h64: hash::h64(name.as_bytes()), collision: 0 }
}

fn put_name(txn: &mut Overlay<'_>, at: Parent, fid: Fid, kind: Kind, name: &str) {
    names::put_entry(txn, at, fid, kind, name.as_bytes());
}

fn put_inode(txn: &mut Overlay<'_>, inode: &InodeRecord, change: impl FnOnce(&mut InodeRecord)) {
    let mut inode = inode.clone();
    change(&mut inode);
    txn.put(keys::inode(inode.fid()), inode.encode());
}

const NONE: Fid = Fid(0x9999);

/// Each damage: its name, its change, the finding, and whether it can be repaired.
const DAMAGES: &[(&str, Damage, Wrong, bool)] = &[
    (
        "a name of nothing",
        |_, t| put_name(t, place(Fid::ROOT, "x"), NONE, Kind::File, "x"),
        Wrong::DanglingEntry,
        true,
    ),
    (
        "a name of a directory that is none",
        |_, t| put_name(t, place(Fid::ROOT, "x"), NONE, Kind::Dir, "x"),
        Wrong::DanglingEntry,
        true,
    ),
    (
        "a name in a file",
        |c, t| put_name(t, place(c.file.fid(), "x"), c.file.fid(), Kind::File, "x"),
        Wrong::LostEntry,
        true,
    ),
    (
        "a name of another kind",
        |c, t| {
            let value = meta::View::get(t, &names::key_of(c.file.parents[0])).unwrap().into_owned();
            let name = String::from_utf8(EntryRecord::decode(&value).unwrap().name).unwrap();
            put_name(t, c.file.parents[0], c.file.fid(), Kind::Dir, &name);
        },
        Wrong::WrongKind,
        true,
    ),
    (
        "a name at another hash",
        |c, t| {
            let value = meta::View::get(t, &names::key_of(c.file.parents[0])).unwrap().into_owned();
            t.delete(&names::key_of(c.file.parents[0]));
            let at = Parent { h64: 0x5500, ..c.file.parents[0] };
            t.put(names::key_of(at), value);
            put_inode(t, &c.file, |i| i.parents[0] = at);
        },
        Wrong::MisplacedEntry,
        true,
    ),
    (
        "a file without its hint",
        |c, t| put_inode(t, &c.file, |i| i.parents.clear()),
        Wrong::MissingHint,
        true,
    ),
    (
        "a directory without its hint",
        |c, t| put_inode(t, &c.dir, |i| i.parents.clear()),
        Wrong::MissingHint,
        true,
    ),
    (
        "a hint of nothing",
        |c, t| put_inode(t, &c.file, |i| i.parents.insert(0, place(Fid::ROOT, "nowhere"))),
        Wrong::BadHint,
        true,
    ),
    (
        "a file with too many links",
        |c, t| put_inode(t, &c.file, |i| i.attr.nlink += 5),
        Wrong::LinkCount,
        true,
    ),
    (
        "a directory with too many links",
        |c, t| put_inode(t, &c.dir, |i| i.attr.nlink += 5),
        Wrong::LinkCount,
        true,
    ),
    (
        "a file that lost its name",
        |c, t| t.delete(&names::key_of(c.file.parents[0])),
        Wrong::UnreachableInode,
        true,
    ),
    (
        "a directory that lost its name",
        |c, t| t.delete(&names::key_of(c.dir.parents[0])),
        Wrong::UnreachableInode,
        true,
    ),
    ("an inode that is gone", |c, t| t.delete(&keys::inode(c.file.fid())), Wrong::WrongTotals, true),
    (
        "an orphan with a name",
        |c, t| t.put(keys::orphan(c.file.fid()), records::encode_orphan(c.session)),
        Wrong::StaleOrphan,
        true,
    ),
    (
        "an orphan of nothing",
        |c, t| t.put(keys::orphan(NONE), records::encode_orphan(c.session)),
        Wrong::StaleOrphan,
        true,
    ),
    (
        "an orphan of nobody",
        |c, t| {
            t.delete(&names::key_of(c.file.parents[0]));
            put_inode(t, &c.file, |i| (i.parents, i.attr.nlink) = (vec![], 0));
            t.put(keys::orphan(c.file.fid()), records::encode_orphan(SessionId(1 << 40)));
        },
        Wrong::StaleOrphan,
        true,
    ),
    (
        "a page of nothing",
        |_, t| t.put(keys::inline(NONE, 0), records::InlinePage::encode(b"x")),
        Wrong::Leftover,
        true,
    ),
    (
        "a page past the end",
        |c, t| t.put(keys::inline(c.file.fid(), 12), records::InlinePage::encode(b"x")),
        Wrong::Leftover,
        true,
    ),
    (
        "attributes of nothing",
        |_, t| {
            let record = meta::xattr::XattrsRecord(vec![(b"user.a".to_vec(), b"b".to_vec())]);
            t.put(keys::xattrs(NONE), record.encode());
        },
        Wrong::Leftover,
        true,
    ),
    (
        "counts of nothing",
        |_, t| t.put(keys::counts(NONE), meta::counts::Counts::default().encode()),
        Wrong::Leftover,
        true,
    ),
    (
        "counts of a directory that are gone",
        |c, t| t.delete(&keys::counts(c.dir.fid())),
        Wrong::WrongCounts,
        true,
    ),
    ("counts of all that are gone", |_, t| t.delete(&keys::counts(Fid::ROOT)), Wrong::WrongCounts, true),
    (
        "totals",
        |_, t| t.put(keys::kind_start(keys::TOTAL), Totals { inodes: 5_000 }.encode()),
        Wrong::WrongTotals,
        true,
    ),
    (
        "a name that is none",
        |c, t| put_name(t, place(Fid::ROOT, "a/b"), c.file.fid(), Kind::File, "a/b"),
        Wrong::BadName,
        false,
    ),
    (
        "a second name of a directory",
        |c, t| put_name(t, place(Fid::ROOT, "x"), c.dir.fid(), Kind::Dir, "x"),
        Wrong::TwoNames,
        false,
    ),
    (
        "a directory in itself",
        |c, t| {
            let at = place(c.dir.fid(), "x");
            t.delete(&names::key_of(c.dir.parents[0]));
            put_name(t, at, c.dir.fid(), Kind::Dir, "x");
            put_inode(t, &c.dir, |i| i.parents = vec![at]);
        },
        Wrong::Loop,
        false,
    ),
    ("nonsense", |c, t| t.put(keys::inode(c.file.fid()), vec![7; 9]), Wrong::MalformedRecord, false),
    (
        "a layout that was never given",
        |c, t| {
            put_inode(t, &c.file, |i| {
                let component = Component {
                    end: u64::MAX,
                    stripe_size: 65536,
                    mirrors: vec![MirrorId(2)],
                    written: vec![],
                };
                i.pending = Some(Layout { generation: Generation(77), components: vec![component] });
            });
        },
        Wrong::BadLayout,
        false,
    ),
];

#[test]
fn each_damage_is_found_and_what_has_one_answer_is_repaired() {
    for (what, harm, wrong, can_be_repaired) in DAMAGES {
        let (rig, disk) = tree();
        assert_eq!(check(&rig).1, [], "{what}: before");
        damage(&rig, *harm);
        assert!(!verify::findings(&*disk).is_empty(), "{what}: the verifier sees it");
        let (first, last) = mend(&rig);
        assert!(first.contains(wrong), "{what}: {first:?}");
        match can_be_repaired {
            true => {
                assert_eq!(last, BTreeSet::new(), "{what}: after the repairs");
                verify::assert_whole(&*disk, what);
            }
            false => assert!(last.contains(wrong), "{what}: {last:?}"),
        }
    }
}

/// A finding that is over when it is told has no words, and its repair does nothing.
#[test]
fn what_does_not_show_any_more_is_not_told_and_not_repaired() {
    let (rig, disk) = tree();
    damage(&rig, |c, t| put_inode(t, &c.file, |i| i.attr.nlink += 5));
    let (run, found) = check(&rig);
    assert_eq!(kinds(&found), BTreeSet::from([Wrong::LinkCount]));
    let again = Repair { cap: cap(), run, number: 0 };
    assert!(rig.ask(&again, SessionId(0)).unwrap().repaired);
    assert!(!rig.ask(&again, SessionId(0)).unwrap().repaired);
    let said = rig.ask(&Check { cap: cap(), run, seen: 0 }, SessionId(0)).unwrap();
    assert_eq!((said.findings[0].what.as_str(), said.done), ("", true));
    verify::assert_whole(&*disk, "repaired");
    // It is over when another begins; and it is for who has the file system's key.
    check(&rig);
    assert_eq!(rig.ask(&again, SessionId(0)).unwrap_err().code, Code::Stale);
    let forged = object::cap::make_admin(&Uuid([1; 16]), 1 << 40);
    assert!(rig.ask(&Check { cap: forged, run: 0, seen: 0 }, SessionId(0)).is_err());
}

/// Changes during a check are not found to be damage: the check reads one state, whatever follows it.
#[test]
fn a_check_between_changes_finds_nothing() {
    let (rig, disk) = tree();
    let mut play = Play::new(rig, 5);
    for round in 0..20 {
        let (run, seen) = (0, 0);
        let begun = play.rig.ask(&Check { cap: cap(), run, seen }, SessionId(0)).unwrap();
        assert_eq!((begun.findings, begun.done), (vec![], true), "round {round}");
        (play.dirs, play.files) = (of_kind(&play.rig, Kind::Dir), of_kind(&play.rig, Kind::File));
        (0..10).for_each(|_| play.step());
    }
    verify::assert_whole(&*disk, "at the end");
}

/// mds-G2: what a start needs is given up only for its copy.
#[test]
fn what_a_start_needs_is_given_up_only_for_its_copy() {
    let (rig, _disk) = tree();
    let core = &rig.mdt.core;
    core.checkpoint_now().unwrap();
    let (kept, none) = (core.checkpointing.lock().clone(), Kept::default());
    let key = |bytes: &[u8]| Key::new(bytes).unwrap();
    let copies = |first: &[u8], end: &[u8], kept: &Kept| {
        let copies = core.copies_for(&Abandoned { first: key(first), end: key(end) }, kept, true);
        copies.map(|copies| copies.into_keys().collect::<Vec<_>>()).map_err(|stop| stop.fault().code)
    };
    let (counter, root) = (keys::COUNTER, keys::inode(Fid::ROOT));
    assert_eq!(copies(&[counter], &[counter + 1], &kept), Ok(crate::records::ids::keys().to_vec()));
    assert_eq!(copies(&[counter], &[counter + 1], &none), Err(Code::Damaged));
    assert_eq!(copies(&[keys::INODE], &[keys::INODE + 1], &kept), Ok(vec![root]));
    assert_eq!(copies(&[keys::INODE], root.as_bytes(), &none), Ok(vec![]));
    assert_eq!(copies(&[keys::COUNTS], &[keys::COUNTS, 0], &none), Ok(vec![meta::counts::begun().0]));
}
