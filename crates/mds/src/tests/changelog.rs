//! The changelog through the door: nothing is missing, nothing comes twice, whatever becomes of the MDT and however slow somebody reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Crash, Disk, SimDisk, SplitMix};
use kv::{Engine, View};
use meta::keys;
use types::*;
use wire::changelog::*;
use wire::meta::{Create, CreateReply, Link, Rename, RenameReply, SET_MODE, SetAttr, Unlink, UnlinkReply};
use wire::object::Capability;
use wire::{Flags, Header, Request, Wire};

use super::meta_rules::{fresh, rig};
use super::rig::{Rig, SECRET};

mod rot;
mod verified;

fn cap() -> Capability {
    object::cap::make_admin(&SECRET, 1 << 40)
}

fn cred() -> Cred {
    Cred::root()
}

const NOW: Time = Time { sec: 10, nsec: 0 };

impl Rig {
    fn register(&self, name: &str, ops: &[ChangeOp]) -> u32 {
        self.try_register(name, ops).unwrap().id
    }

    fn try_register(&self, name: &str, ops: &[ChangeOp]) -> Result<RegisterConsumerReply, Fault> {
        let mask = ops.iter().fold(0, |mask, op| mask | op.bit());
        self.ask(&RegisterConsumer { name: name.into(), mask, cap: cap() }, SessionId(0))
    }

    fn changes(&self, id: u32, after: u64, max: u32) -> ReadChangesReply {
        self.ask(&ReadChanges { id, after, max, cap: cap() }, SessionId(0)).unwrap()
    }

    fn ack(&self, id: u32, upto: u64) -> Result<(), Fault> {
        self.ask(&AckChanges { id, upto, cap: cap() }, SessionId(0)).map(|_| ())
    }

    fn consumers(&self) -> ListConsumersReply {
        self.ask(&ListConsumers { cap: cap() }, SessionId(0)).unwrap()
    }

    fn create(&self, name: &str) -> Result<Fid, Fault> {
        self.ask(&create(name, Fid(0)), self.session).map(|r| r.open.inode.attr.fid)
    }

    fn unlink(&self, name: &str) -> Result<(), Fault> {
        let name = name.as_bytes().into();
        let gone = Unlink { parent: Fid::ROOT, name, held: false, now: NOW, cred: cred() };
        self.ask(&gone, self.session).map(|_| ())
    }

    /// Change records in the table: first and last number.
    fn stored(&self) -> Option<(u64, u64)> {
        let mut numbers = vec![];
        let each = self.mdt.core.kv.snapshot().each(&mut |key, _, _| {
            numbers.extend(meta::note::number_of(key));
            Ok(())
        });
        each.unwrap();
        let (first, last) = (*numbers.first()?, *numbers.last()?);
        assert_eq!(numbers.len() as u64, last - first + 1, "numbers rise by one");
        Some((first, last))
    }
}

fn create(name: &str, want: Fid) -> Create {
    Create {
        parent: Fid::ROOT,
        name: name.as_bytes().into(),
        kind: Kind::File,
        mode: 0o644,
        rdev: 0,
        exclusive: true,
        write: true,
        now: NOW,
        cred: cred(),
        want,
        umask: 0,
        read: false,
        append: false,
    }
}

fn again(disk: &SimDisk, crash: Crash) -> (Rig, Arc<SimDisk>) {
    let disk = Arc::new(disk.crash(crash));
    (rig(disk.clone() as Arc<dyn Disk>), disk)
}

/// One operation that a client did, as it expects the changelog to tell it.
#[derive(Clone, Debug)]
struct Done {
    sequence: u32,
    what: What,
    fid: Fid,
    /// The MDT kept what it removed.
    kept: bool,
}

#[derive(Clone, Debug)]
enum What {
    Create(String),
    Unlink(String),
    Link(String),
    Rename(String, String),
    Chmod,
}

impl Done {
    fn op(&self) -> ChangeOp {
        match self.what {
            What::Create(_) => ChangeOp::Create,
            What::Unlink(_) => ChangeOp::Unlink,
            What::Link(_) => ChangeOp::Link,
            What::Rename(..) => ChangeOp::Rename,
            What::Chmod => ChangeOp::SetAttr,
        }
    }

    fn is_told_by(&self, change: &Change) -> bool {
        let (name, old_name) = match &self.what {
            What::Create(name) | What::Unlink(name) | What::Link(name) => (name.as_str(), ""),
            What::Rename(old, new) => (new.as_str(), old.as_str()),
            What::Chmod => ("", ""),
        };
        let names = (change.name.0.as_slice(), change.old_name.0.as_slice());
        (change.op, change.fid) == (self.op(), self.fid) && names == (name.as_bytes(), old_name.as_bytes())
    }

    fn request(&self) -> (u16, Vec<u8>) {
        let (parent, now, cred, held) = (Fid::ROOT, NOW, cred(), self.kept);
        let bytes = |name: &String| name.as_bytes().into();
        match &self.what {
            What::Create(name) => (Create::CALL, create(name, self.fid).to_bytes()),
            What::Unlink(name) => {
                (Unlink::CALL, Unlink { parent, name: bytes(name), held, now, cred }.to_bytes())
            }
            What::Link(name) => {
                (Link::CALL, Link { fid: self.fid, parent, name: bytes(name), now, cred }.to_bytes())
            }
            What::Rename(old, new) => {
                let (name, new_name) = (bytes(old), bytes(new));
                let rename = Rename {
                    parent,
                    name,
                    new_parent: parent,
                    new_name,
                    flags: 0,
                    hold: held,
                    now,
                    cred,
                    want: Fid(0),
                };
                (Rename::CALL, rename.to_bytes())
            }
            What::Chmod => {
                let chmod = SetAttr {
                    fid: self.fid,
                    valid: SET_MODE,
                    mode: 0o600,
                    uid: 0,
                    gid: 0,
                    atime: now,
                    mtime: now,
                    now,
                    held: None,
                    cred,
                };
                (SetAttr::CALL, chmod.to_bytes())
            }
        }
    }

    /// The reply's body if it was done; all requests are of one slot.
    fn send(&self, rig: &Rig, flags: u16) -> Result<Vec<u8>, Fault> {
        let (call, body) = self.request();
        let head = Header { call, session: rig.session, sequence: self.sequence, flags, ..Header::default() };
        rig.send(head, &body).map(|(_, body)| body)
    }
}

/// A consumer and the records that it has read so far.
struct Reader {
    id: u32,
    ops: Vec<ChangeOp>,
    /// Where it goes on; it forgets that now and then, and begins behind what it has acknowledged.
    after: u64,
    told: BTreeMap<u64, Change>,
}

impl Reader {
    fn read(&mut self, rig: &Rig, random: &mut SplitMix) {
        let reply = rig.changes(self.id, self.after, 1 + random.below(20) as u32);
        assert_eq!(reply.lost, None);
        for change in reply.changes {
            let number = change.number;
            assert!(number > self.after, "in order");
            if let Some(old) = self.told.insert(number, change.clone()) {
                assert_eq!(old, change, "mds-C2: a number means one change for ever");
            }
        }
        self.after = reply.upto;
        match random.below(6) {
            0 => rig.ack(self.id, self.after).unwrap(),
            1 => self.after = 0,
            _ => {}
        }
    }
}

/// A client works and repeats what was lost; two read. 50 restarts after kills and power losses.
#[test]
fn no_restart_makes_a_gap_or_tells_a_lie() {
    let all = ChangeOp::ALL.to_vec();
    for seed in 0..3 {
        let mut random = SplitMix::new(seed);
        let (mut rig, mut disk) = fresh();
        let mut readers = [("all", all.clone()), ("names", vec![ChangeOp::Create, ChangeOp::Unlink])]
            .map(|(name, ops)| Reader { id: rig.register(name, &ops), ops, after: 0, told: BTreeMap::new() });
        let (mut done, mut sequence): (Vec<Done>, _) = (Vec::new(), 0);
        let (mut lost_ever, mut kept_ever) = (0, 0);
        for round in 0..50 {
            for _ in 0..random.below(40) {
                sequence += 1;
                let [a, b] = [(); 2].map(|()| format!("n{}", random.below(8)));
                let known = done.get(random.below(1 + done.len() as u64) as usize).map_or(Fid(0), |d| d.fid);
                let (what, fid) = match random.below(8) {
                    0..3 => (What::Create(a), Fid(0)),
                    3 => (What::Unlink(a), Fid(0)),
                    4 => (What::Link(a), known),
                    5 | 6 => (What::Rename(a, b), Fid(0)),
                    _ => (What::Chmod, known),
                };
                // Whose name it is, for the oracle.
                let fid = match &what {
                    What::Unlink(name) | What::Rename(name, _) => fid_of(&rig, name),
                    _ => fid,
                };
                let mut one = Done { sequence, what, fid, kept: false };
                let said = one.send(&rig, 0);
                if let (What::Create(_), Ok(reply)) = (&one.what, &said) {
                    one.fid = CreateReply::from_bytes(reply).unwrap().open.inode.attr.fid;
                }
                // As a client sends it again.
                one.kept = match (&one.what, &said) {
                    (What::Unlink(_), Ok(reply)) => UnlinkReply::from_bytes(reply).unwrap().kept,
                    (What::Rename(..), Ok(reply)) => {
                        RenameReply::from_bytes(reply).unwrap().replaced.is_some_and(|left| left.kept)
                    }
                    _ => false,
                };
                // A rename from one name of a file to another does nothing, and has no place in the slot.
                let last = rig.attach(1).unwrap().slots[0];
                if said.is_ok() && last == sequence {
                    done.push(one);
                }
                match random.below(20) {
                    0 => rig.mdt.flush().unwrap(),
                    1 if round % 3 == 0 => rig.mdt.checkpoint().unwrap(),
                    2..6 => readers.iter_mut().for_each(|r| r.read(&rig, &mut random)),
                    _ => {}
                }
            }
            let crash =
                [Crash::KeepAll, Crash::DropAll, Crash::Torn(random.next_u64())][random.below(3) as usize];
            (rig, disk) = again(&disk, crash);
            verify::assert_whole(&*disk, &format!("seed {seed}, round {round}"));
            let known = rig.attach(1).unwrap().slots[0];
            let survived = done.iter().take_while(|d| d.sequence <= known).count();
            assert!(crash != Crash::KeepAll || survived == done.len());
            (lost_ever, kept_ever) = (lost_ever + done.len() - survived, kept_ever + survived);
            for one in &done[survived..] {
                one.send(&rig, Flags::REPLAY).unwrap();
                // Sent once more it is answered, and leaves no second record.
                one.send(&rig, Flags::REPLAY).unwrap();
            }
        }
        rig.mdt.flush().unwrap();
        for reader in &mut readers {
            while reader.after < rig.consumers().newest {
                reader.read(&rig, &mut random);
            }
            let wanted: Vec<_> = (1..).zip(&done).filter(|(_, d)| reader.ops.contains(&d.op())).collect();
            assert_eq!(
                reader.told.keys().copied().collect::<Vec<_>>(),
                wanted.iter().map(|(n, _)| *n).collect::<Vec<u64>>(),
                "seed {seed}: numbers that were told"
            );
            for (number, done) in wanted {
                let told = &reader.told[&number];
                assert!(done.is_told_by(told), "seed {seed}: {done:?} was told as {told:?}");
                assert_eq!(told.session, rig.session);
            }
        }
        assert!(lost_ever > 20 && kept_ever > 100, "{lost_ever} {kept_ever}");
    }
}

fn fid_of(rig: &Rig, name: &str) -> Fid {
    let lookup = wire::meta::Lookup { parent: Fid::ROOT, name: name.as_bytes().into(), cred: cred() };
    rig.ask(&lookup, SessionId(0)).map_or(Fid(0), |i| i.attr.fid)
}

#[test]
fn nobody_is_told_what_a_power_loss_takes_back() {
    let (rig, disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    rig.create("a").unwrap();
    let reply = rig.changes(id, 0, 10);
    assert_eq!((reply.changes, reply.upto, reply.more), (vec![], 0, false), "it is not flushed");
    assert_eq!(rig.ack(id, 1).unwrap_err().code, Code::Invalid);
    rig.mdt.flush().unwrap();
    rig.create("b").unwrap();
    let reply = rig.changes(id, 0, 10);
    assert_eq!((reply.changes.len(), reply.upto, reply.more), (1, 1, false));
    let (rig, _) = again(&disk, Crash::DropAll);
    assert_eq!(rig.changes(id, 0, 10).changes, reply.changes);
    // The second number means another change now; nobody had heard of the first.
    rig.create("c").unwrap();
    rig.mdt.flush().unwrap();
    let told = rig.changes(id, 1, 10).changes;
    assert_eq!((told.len(), told[0].number, &told[0].name.0[..]), (1, 2, &b"c"[..]));
}

#[test]
fn records_are_kept_until_all_have_acknowledged_them() {
    let (rig, disk) = fresh();
    rig.create("before").unwrap();
    assert_eq!(rig.stored(), None, "nobody wants to know");
    let a = rig.register("a", &ChangeOp::ALL);
    let b = rig.register("b", &[ChangeOp::Unlink]);
    assert_eq!(
        rig.try_register("b", &[ChangeOp::Unlink]).unwrap(),
        RegisterConsumerReply { id: b, after: 0 }
    );
    assert_eq!(rig.try_register("b", &ChangeOp::ALL).unwrap_err().code, Code::Exists);
    for n in 0..600 {
        rig.create(&format!("f{n}")).unwrap();
    }
    rig.unlink("f0").unwrap();
    rig.mdt.flush().unwrap();
    assert_eq!(rig.stored(), Some((1, 601)));
    let mine = rig.changes(b, 0, 10);
    assert_eq!((mine.changes.len(), mine.changes[0].number, mine.upto, mine.more), (1, 601, 601, false));
    assert_eq!(mine.changes[0].flags, CHANGE_LAST);
    rig.ack(b, mine.upto).unwrap();
    assert_eq!(rig.stored(), Some((1, 601)), "the other has not read them");
    rig.ack(a, 300).unwrap();
    assert_eq!(rig.stored(), Some((301, 601)));
    // One that acknowledges less than before takes nothing back.
    rig.ack(a, 2).unwrap();
    let list = rig.consumers();
    assert_eq!((list.records, list.newest), (301, 601));
    let table: Vec<_> = list.consumers.iter().map(|c| (c.id, c.name.as_str(), c.acked)).collect();
    assert_eq!(table, [(a, "a", 300), (b, "b", 601)]);
    // A start finds where things were, also how many bytes there are.
    let (rig, disk) = again(&disk, Crash::KeepAll);
    assert_eq!(rig.consumers(), list);
    let mut bytes = 0;
    let each = rig.mdt.core.kv.snapshot().each(&mut |key, value, _| {
        bytes += if key.as_bytes()[0] == keys::CHANGE { kv::record_bytes(key, value.len()) } else { 0 };
        Ok(())
    });
    each.unwrap();
    assert_eq!(list.bytes, bytes);
    // The last one out: nothing is kept, and no number is given twice.
    for id in [a, b] {
        rig.ask(&DeregisterConsumer { id, cap: cap() }, SessionId(0)).unwrap();
    }
    assert_eq!((rig.stored(), rig.consumers().consumers), (None, vec![]));
    assert_eq!(rig.ack(a, 1).unwrap_err().code, Code::NotFound);
    let (rig, disk) = again(&disk, Crash::DropAll);
    verify::assert_whole(&*disk, "with no consumer");
    let c = rig.try_register("a", &ChangeOp::ALL).unwrap();
    assert_eq!((c.id, c.after), (b + 1, 601), "who knew the old one is not taken for the new one");
    rig.create("after").unwrap();
    assert_eq!(rig.stored(), Some((602, 602)));
}

/// mds-C4: the oldest half goes; who had it behind it does not notice, who had not is told exactly what it missed.
#[test]
fn too_much_is_given_up_and_never_in_silence() {
    let (rig, disk) = fresh();
    let (slow, fast) = (rig.register("slow", &ChangeOp::ALL), rig.register("fast", &ChangeOp::ALL));
    let (mut told, mut largest, mut made) = (0, 0, 0);
    let mut lost = None;
    while lost.is_none() || made % 97 != 0 {
        made += 1;
        assert!(made < 20_000, "the changelog never got too long");
        // Names come and go, so that nothing but the changelog grows.
        match made % 2 {
            1 => assert!(rig.create("x").is_ok()),
            _ => rig.unlink("x").unwrap(),
        }
        if made % 50 == 0 {
            rig.mdt.flush().unwrap();
            let reply = rig.changes(fast, told, 1000);
            assert_eq!((reply.lost, reply.changes.len() as u64), (None, reply.upto - told));
            told = reply.upto;
            rig.ack(fast, told).unwrap();
        }
        let list = rig.consumers();
        largest = largest.max(list.bytes * 100 / list.bytes_max);
        lost = list.consumers.iter().find_map(|c| c.lost.clone());
    }
    assert!((95..110).contains(&largest), "{largest} % of the room were used");
    rig.mdt.flush().unwrap();
    let reply = rig.changes(slow, 0, 1);
    let LostChanges { from, to } = reply.lost.clone().unwrap();
    assert_eq!((from, reply.changes[0].number), (1, to + 1), "what is lost and what is there is all");
    assert_eq!(rig.stored().unwrap().0, to + 1);
    // It is told again until it says that it knows, over a restart, too.
    let (rig, disk) = again(&disk, Crash::DropAll);
    verify::assert_whole(&*disk, "after much was given up");
    assert_eq!(rig.changes(slow, 0, 1).lost, reply.lost);
    assert_eq!(rig.changes(slow, to - 1, 1).lost, reply.lost);
    assert_eq!(rig.changes(slow, to, 1).lost, None, "it has gone on behind it");
    rig.ack(slow, to).unwrap();
    assert_eq!(rig.changes(slow, 0, 1).lost, None);
    assert_eq!(rig.changes(fast, told, 1).lost, None);
}

/// Requests of one frame make room as those do that come alone; nobody else is there who could.
#[test]
fn batches_make_room_too() {
    let (rig, _disk) = fresh();
    rig.register("idle", &ChangeOp::ALL);
    let mut largest = 0;
    let is_lost = || rig.consumers().consumers[0].lost.is_some();
    for round in 0..2000 {
        if is_lost() {
            break;
        }
        // A request that finds the log full goes on alone, and would make the room.
        rig.mdt.checkpoint().unwrap();
        let (call, body) = Done { sequence: 0, what: What::Chmod, fid: Fid::ROOT, kept: false }.request();
        let op = |slot| {
            let (sequence, body) = (round + 1, wire::codec::Bytes(body.clone()));
            wire::batch::Op { call, slot, sequence, bulk_len: 0, body }
        };
        rig.ask(&wire::batch::Batch { ops: (0..32).map(op).collect() }, rig.session).unwrap();
        let list = rig.consumers();
        largest = largest.max(list.bytes * 100 / list.bytes_max);
        assert!(round < 1999, "the changelog never got too long");
    }
    assert!((80..115).contains(&largest), "{largest} % of the room were used");
}

/// Records never keep anybody from deleting files, nor take the room that checkpoints need.
#[test]
fn on_a_full_mdt_the_changelog_gives_way() {
    let (rig, disk) = fresh();
    let id = rig.register("idle", &ChangeOp::ALL);
    let mut made = 0;
    while rig.create(&format!("a file of some length {made}")).is_ok() {
        made += 1;
    }
    assert!(made > 200, "{made} files");
    // The rules refuse from 90 % on, so pages are put by hand until no record fits.
    let mut page = 0;
    let mut put = || {
        page += 1;
        rig.mdt.core.transact(&crate::records::ids::no_lease(), &mut |txn| {
            meta::Txn::put(txn, keys::inline(Fid(1 << 40), page), vec![0; 200]);
            Ok(vec![])
        })
    };
    // In leaves records take less than before they moved there.
    loop {
        let more = std::iter::from_fn(|| put().ok()).count();
        assert_eq!(put().unwrap_err().code, Code::NoSpace);
        if more == 0 {
            break;
        }
        rig.mdt.checkpoint().unwrap();
    }
    let is_closed = || rig.mdt.core.room.is_closed(rig.mdt.core.kv.reader().medium_bytes());
    let mut was_closed = false;
    let chmod = |fid| Done { sequence: 0, what: What::Chmod, fid, kept: false }.send(&rig, 0);
    let fid = fid_of(&rig, "a file of some length 0");
    for _ in 0..5000 {
        chmod(fid).unwrap();
        was_closed |= is_closed();
    }
    assert!(was_closed);
    rig.mdt.checkpoint().unwrap();
    (0..made).for_each(|n| rig.unlink(&format!("a file of some length {n}")).unwrap());
    rig.mdt.checkpoint().unwrap();
    let (rig, _) = again(&disk, Crash::DropAll);
    let list = rig.consumers();
    assert!(list.bytes <= list.bytes_max + list.bytes_max / 10, "{list:?}");
    assert!(rig.changes(id, 0, 1).lost.is_some());
}

/// mds-C2 of what is given up: it is flushed, so no later change has its number.
#[test]
fn what_is_lost_is_not_given_to_another_change() {
    let (rig, disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    rig.create("a").unwrap();
    rig.mdt.flush().unwrap();
    rig.create("b").unwrap();
    rig.create("c").unwrap();
    assert!(rig.mdt.core.volume.flushed_seq() < rig.mdt.core.volume.last_seq());
    {
        let mut seat = rig.mdt.core.executor.lead();
        seat.changelog.force_abandon();
    }
    let lost = rig.consumers().consumers[0].lost.clone();
    assert_eq!(lost, Some(LostChanges { from: 1, to: 1 }), "2 and 3 are not flushed");
    // As the MDT does it: what it gives up is flushed first, so it survives.
    rig.mdt.core.abandon_changes(1).unwrap();
    let told = rig.changes(id, 0, 10);
    let (rig, _) = again(&disk, Crash::DropAll);
    rig.create("d").unwrap();
    rig.create("e").unwrap();
    rig.mdt.flush().unwrap();
    let next = rig.changes(id, told.upto, 10).changes;
    let names: Vec<_> = next.iter().map(|c| c.name.0.clone()).collect();
    assert_eq!(names, [b"d", b"e"], "nothing that came later is behind what was told");
}

/// The changelog also has the changes that the MDT makes by itself.
#[test]
fn internal_changes_have_records() {
    let (rig, _disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    let fid = rig.create("a").unwrap();
    rig.mdt
        .core
        .transact(&crate::records::ids::no_lease(), &mut |txn| {
            let inode = meta::inode::load_inode(txn, fid)?;
            let state = wire::meta::FileState::Shared { era: 1, proven: 0 };
            meta::inode::store_inode(txn, &meta::records::InodeRecord { state, ..inode });
            meta::rest(txn, fid, 1)?;
            Ok(vec![])
        })
        .unwrap();
    rig.mdt.flush().unwrap();
    let told = rig.changes(id, 0, 10).changes;
    let ops: Vec<_> = told.iter().map(|c| (c.op, c.fid)).collect();
    assert_eq!(ops, [(ChangeOp::Create, fid), (ChangeOp::Close, fid)]);
    assert_eq!(told[1].session, SessionId(0));
}

/// A record that rots is named, and costs nothing but itself.
#[test]
fn damage_stops_neither_a_start_nor_who_goes_on_behind_it() {
    for broken in [1, 3, 5] {
        let (rig, _disk) = fresh();
        let id = rig.register("c", &ChangeOp::ALL);
        for name in ["a", "b", "c", "d", "e"] {
            rig.create(name).unwrap();
        }
        rig.mdt.flush().unwrap();
        let mut batch = kv::Batch::new();
        batch.put(keys::change(broken), kv::Value::stored(b"rot", 7));
        rig.mdt.core.kv.apply(rig.mdt.core.volume.last_seq(), batch);
        let read = |rig: &Rig| {
            let said = |after| rig.ask(&ReadChanges { id, after, max: 10, cap: cap() }, SessionId(0));
            if broken > 1 {
                assert_eq!(said(0).unwrap().upto, broken - 1);
            }
            let fault = said(broken - 1).unwrap_err();
            assert!(
                fault.code == Code::Damaged && fault.detail.contains(&format!("change {broken} ")),
                "{fault}"
            );
        };
        read(&rig);
        // As a start does that finds it so.
        let loaded = crate::records::ledger::Changelog::load(&rig.mdt.core.kv).unwrap();
        assert_eq!(loaded.numbers(), (1, 5));
        assert!((150..500).contains(&loaded.bytes()), "{}", loaded.bytes());
        rig.ack(id, broken).unwrap();
        assert_eq!(rig.changes(id, 0, 10).changes.len() as u64, 5 - broken);
        rig.create("f").unwrap();
        rig.mdt.flush().unwrap();
        rig.ack(id, 6).unwrap();
        assert_eq!((rig.stored(), rig.consumers().bytes), (None, 0));
    }
}

/// An entry of several operations is there whole or not at all, and so are its records.
#[test]
fn a_torn_batch_leaves_names_and_records_alike() {
    let (rig, disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    rig.create("warm").unwrap();
    disk.record();
    let mut shared = 0;
    for round in 0..8 {
        let executor = &rig.mdt.core.executor;
        let before = rig.mdt.core.volume.last_seq();
        std::thread::scope(|s| {
            let held = executor.lead();
            for n in 0..5u32 {
                let (waiting, rig) = (executor.waiting(), &rig);
                s.spawn(move || rig.create(&format!("f{round}-{n}")).unwrap());
                while executor.waiting() == waiting {
                    std::thread::yield_now();
                }
            }
            drop(held);
        });
        shared += (rig.mdt.core.volume.last_seq().0 - before.0 >= 5) as u32;
    }
    assert!(shared > 0);
    let recording = disk.take_recording().unwrap();
    drop(rig);
    for cut in 0..=recording.events.len() {
        let crash = [Crash::Torn(cut as u64), Crash::Sectors(cut as u64), Crash::KeepAll][cut % 3];
        let disk = Arc::new(recording.crash_at(cut, crash));
        let rig = super::meta_rules::rig(disk);
        let (mut names, mut after) = (vec![], 0);
        loop {
            let reply = rig.changes(id, after, 10);
            names.extend(reply.changes.into_iter().map(|c| c.name.0));
            after = reply.upto;
            if !reply.more {
                break;
            }
        }
        let list = wire::meta::ReadDir { dir: Fid::ROOT, cookie: 0, max: 1000, plus: false, cred: cred() };
        let mut listed: Vec<_> =
            rig.ask(&list, SessionId(0)).unwrap().entries.into_iter().map(|e| e.name.0).collect();
        names.sort();
        listed.sort();
        assert_eq!(names, listed, "cut before event {cut}");
    }
}

#[test]
fn only_who_has_the_right_may_and_only_what_makes_sense() {
    let (rig, _disk) = fresh();
    let id = rig.register("c", &ChangeOp::ALL);
    let reader = Capability { rights: wire::object::RIGHT_READ, ..cap() };
    let forged = object::cap::make_admin(&Uuid([1; 16]), 1 << 40);
    let late = object::cap::make_admin(&SECRET, 1);
    for cap in [reader, forged, late] {
        let no = |said: Result<(), Fault>| assert_eq!(said.unwrap_err().code, Code::Fenced);
        let (name, mask) = ("d".to_owned(), 2);
        no(rig.ask(&RegisterConsumer { name, mask, cap: cap.clone() }, SessionId(0)).map(drop));
        no(rig.ask(&DeregisterConsumer { id, cap: cap.clone() }, SessionId(0)).map(drop));
        no(rig.ask(&ReadChanges { id, after: 0, max: 1, cap: cap.clone() }, SessionId(0)).map(drop));
        no(rig.ask(&AckChanges { id, upto: 0, cap: cap.clone() }, SessionId(0)).map(drop));
        no(rig.ask(&ListConsumers { cap }, SessionId(0)).map(drop));
    }
    for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
        assert_eq!(rig.try_register(name, &ChangeOp::ALL).unwrap_err().code, Code::Invalid, "{name}");
    }
    for mask in [0, 1, 1 << 63] {
        let said = rig.ask(&RegisterConsumer { name: "d".into(), mask, cap: cap() }, SessionId(0));
        assert_eq!(said.unwrap_err().code, Code::Invalid);
    }
    for n in 1..64 {
        rig.register(&format!("c{n}"), &[ChangeOp::Write]);
    }
    assert_eq!(rig.try_register("c64", &ChangeOp::ALL).unwrap_err().code, Code::NoSpace);
    // Numbers that no honest reader has.
    assert_eq!(rig.ack(id, u64::MAX).unwrap_err().code, Code::Invalid);
    let reply = rig.changes(id, u64::MAX, u32::MAX);
    assert_eq!((reply.changes, reply.upto, reply.more), (vec![], u64::MAX, false));
}
