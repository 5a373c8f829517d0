//! Power loss and kills: what was flushed survives, what survives is a prefix of what was acknowledged, and no id comes twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use disk::{Crash, SplitMix};
use types::{Code, Fid, Seq};

use super::image::check_image;
use super::rig::{Rig, format};
use super::rules::{self, body};
use crate::records::look::{SnapView, look};

/// An acknowledged operation, as its client keeps it, and the name space after it.
#[derive(Clone)]
pub struct Op {
    pub seq: Seq,
    call: u16,
    slot: u32,
    sequence: u32,
    body: Vec<u8>,
    reply: Vec<u8>,
    after: BTreeMap<String, Fid>,
}

/// A client that acts at random and remembers.
#[derive(Clone)]
pub struct Story {
    random: SplitMix,
    pub ops: Vec<Op>,
    sequences: [u32; 4],
    given: BTreeSet<Fid>,
}

impl Story {
    pub fn new(seed: u64) -> Story {
        Story { random: SplitMix::new(seed), ops: vec![], sequences: [0; 4], given: BTreeSet::new() }
    }

    pub fn names(&self) -> BTreeMap<String, Fid> {
        self.ops.last().map(|o| o.after.clone()).unwrap_or_default()
    }

    /// One random operation, compared with the model.
    pub fn step(&mut self, rig: &Rig) {
        let name = format!("n{}", self.random.below(20));
        let call = if self.random.below(3) < 2 { rules::MAKE } else { rules::REMOVE };
        let slot = self.random.below(4) as u32;
        self.sequences[slot as usize] += 1;
        let sequence = self.sequences[slot as usize];
        let mut after = self.names();
        let body = body(Fid(0), &name);
        match rig.mutate(call, slot, sequence, &body) {
            Ok((seq, reply)) => {
                let fid = Fid(u64::from_le_bytes(reply[..].try_into().unwrap()));
                if call == rules::MAKE {
                    assert!(self.given.insert(fid), "fid {fid} was given twice (mds-O5)");
                    assert!(after.insert(name, fid).is_none());
                } else {
                    assert_eq!(after.remove(&name), Some(fid));
                }
                self.ops.push(Op { seq, call, slot, sequence, body, reply, after });
            }
            Err(fault) => {
                let want = if call == rules::MAKE { Code::Exists } else { Code::NotFound };
                assert_eq!(fault.code, want);
                assert_eq!(after.contains_key(&name), call == rules::MAKE);
            }
        }
        match self.random.below(40) {
            0 => rig.mdt.core.checkpoint_now().unwrap(),
            1..4 => rig.mdt.core.flush_round().unwrap(),
            _ => {}
        }
        assert_eq!(rig.list(), self.names());
    }

    /// After a crash: the state is that after the last surviving operation, and nothing flushed is lost. The lost tail is
    /// forgotten here too; its operations are returned.
    pub fn check_survivors(&mut self, rig: &Rig, flushed: Seq) -> Vec<Op> {
        let last = rig.mdt.core.volume.last_seq();
        // Ids reserved at recovery and the session made later are entries too, so `last` may be beyond; what counts is
        // which operations the table shows.
        let listed = rig.list();
        let fits = |n: usize| if n == 0 { listed.is_empty() } else { self.ops[n - 1].after == listed };
        let newest_flushed = self.ops.iter().take_while(|o| o.seq <= flushed).count();
        let known: Vec<u32> = rig.attach(1).unwrap().slots;
        let survived =
            self.ops.iter().filter(|o| known.get(o.slot as usize).is_some_and(|s| *s >= o.sequence)).count();
        assert!(
            fits(survived),
            "the table is that after {survived} of {} operations (last seq {last})",
            self.ops.len()
        );
        assert!(survived >= newest_flushed, "{newest_flushed} operations were flushed, {survived} survived");
        self.ops.split_off(survived)
    }

    /// Sends what was lost again, as a client does, and expects the same answers; then everything once more, for nothing.
    pub fn replay(&mut self, rig: &Rig, lost: Vec<Op>) {
        for mut op in lost {
            if op.call == rules::MAKE {
                op.body[..8].copy_from_slice(&op.reply);
            }
            let (seq, reply) = rig.replay(op.call, op.slot, op.sequence, &op.body).unwrap();
            assert_eq!(reply, op.reply, "a replayed operation gives the same answer");
            assert_eq!(rig.list(), op.after);
            self.ops.push(Op { seq, ..op });
        }
        for op in self.ops.iter().rev().take(30) {
            let (_, reply) = rig.mutate(op.call, op.slot, op.sequence, &op.body).unwrap();
            assert!(reply.is_empty() || reply == op.reply, "a repeated request is answered, not carried out");
        }
        assert_eq!(rig.list(), self.names(), "repeated requests change nothing");
    }
}

fn crash_of(kind: u64, seed: u64) -> Crash {
    match kind {
        0 => Crash::KeepAll,
        1 => Crash::DropAll,
        2 => Crash::Writes(seed),
        3 => Crash::Sectors(seed),
        _ => Crash::Torn(seed),
    }
}

#[test]
fn after_power_loss_flushed_operations_stand_and_the_rest_is_a_prefix() {
    for seed in 0..25 {
        let mut story = Story::new(seed);
        let (mut rig, mut disk) = Rig::fresh();
        for round in 0..4 {
            for _ in 0..20 + story.random.below(150) {
                story.step(&rig);
            }
            let flushed = rig.mdt.core.volume.flushed_seq();
            let crash = crash_of((seed + round) % 5, story.random.next_u64());
            check_image(&rig, &disk, &format!("seed {seed}, round {round}"));
            disk = Arc::new(disk.crash(crash));
            drop(rig);
            rig = Rig::open(disk.clone());
            let lost = story.check_survivors(&rig, flushed);
            if crash == Crash::KeepAll {
                assert!(lost.is_empty(), "a kill loses nothing acknowledged");
            }
            story.replay(&rig, lost);
        }
    }
}

#[test]
fn power_may_fail_before_every_single_write() {
    let mut story = Story::new(99);
    let (rig, disk) = Rig::fresh();
    disk.record();
    let mut flushed_at = vec![];
    for _ in 0..60 {
        story.step(&rig);
        flushed_at.push(rig.mdt.core.volume.flushed_seq());
    }
    rig.mdt.core.checkpoint_now().unwrap();
    rig.mdt.stop(true).unwrap();
    let recording = disk.take_recording().unwrap();
    for cut in (0..=recording.events.len()).step_by(2) {
        let disk = Arc::new(recording.crash_at(cut, crash_of(1 + cut as u64 % 4, cut as u64)));
        verify::read(&*disk).unwrap_or_else(|why| panic!("cut before event {cut}: {why}"));
        let rig = Rig::open(disk.clone());
        let mut copy = Story { ops: story.ops.clone(), ..Story::new(0) };
        let lost = copy.check_survivors(&rig, Seq(0));
        // Replayed in order, the lost tail leads to the same end.
        copy.replay(&rig, lost);
        assert_eq!(rig.list(), story.names(), "cut before event {cut}");
        check_image(&rig, &disk, &format!("cut before event {cut}"));
    }
}

#[test]
fn o5_ids_are_never_given_again_after_power_loss() {
    let (mut rig, mut disk) = Rig::fresh();
    let (mut fids, mut leases, mut sessions) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for round in 0..12u8 {
        for n in 0..5 {
            let fid = rig.make(0, 0, &format!("r{round} {n}")).unwrap();
            assert!(fids.insert(fid), "round {round}: {fid} again");
            let (_, cap) = rig.mutate(rules::LEASE, 0, 0, &[]).unwrap();
            let cap = <wire::object::Capability as wire::Wire>::from_bytes(&cap).unwrap();
            assert!(
                leases.insert((cap.lease_epoch, cap.lease_counter)),
                "round {round}: a lease version again"
            );
        }
        assert!(leases.iter().max() == leases.last());
        assert!(sessions.insert(rig.session) || round > 0);
        // Nothing of this round was flushed but the reservations.
        disk = Arc::new(disk.crash(Crash::DropAll));
        drop(rig);
        rig = Rig::open(disk.clone());
    }
}

#[test]
fn o5_a_block_is_flushed_before_its_first_id_is_used() {
    let (rig, disk) = Rig::fresh();
    let limit = |rig: &Rig| {
        let key = types::Key::new(&[crate::records::ids::KIND_COUNTER, 1]).unwrap();
        let read = |view: &SnapView<'_>| meta::View::get(view, &key).map(|v| v[..].try_into().unwrap());
        u64::from_le_bytes(look(&rig.mdt.core.kv, &mut |view| read(view)).unwrap().unwrap())
    };
    // The foreground reserves when nobody does it in the background: draw through two blocks.
    let mut last = Fid(0);
    for n in 0..(2 * crate::records::ids::BLOCK + 1000) {
        let mut seat = rig.mdt.core.executor.lead();
        match seat.ids.next_fid() {
            Some(fid) if seat.ids.are_enough() => last = last.max(fid),
            _ => {
                drop(seat);
                rig.mdt.core.reserve_ids().unwrap();
            }
        }
        if n % 10_000 == 0 {
            let crashed = Rig::open(Arc::new(disk.crash(Crash::DropAll)));
            assert!(
                limit(&crashed) > last.0,
                "after power loss the reserved limit is above every fid given out"
            );
            assert!(crashed.make(0, 0, "x").unwrap() > last);
        }
    }
    assert!(last.0 > 2 * crate::records::ids::BLOCK - 100);
}

#[test]
fn a_clean_stop_keeps_everything_and_the_incarnation() {
    let (rig, disk) = Rig::fresh();
    let a = rig.make(1, 1, "a").unwrap();
    let incarnation = rig.mdt.core.incarnation;
    rig.mdt.stop(true).unwrap();
    assert_eq!(rig.make(1, 2, "b").unwrap_err().code, Code::NotReady);
    rig.mdt.stop(true).unwrap();
    let rig = Rig::open(disk);
    assert!(rig.mdt.was_clean());
    assert_eq!(rig.mdt.core.incarnation, incarnation);
    assert_eq!(rig.list(), BTreeMap::from([("a".into(), a)]));
}

#[test]
fn a_medium_without_a_root_or_of_another_kind_is_refused() {
    use disk::volume::{Format, Kind, Volume};
    let blank = Arc::new(disk::SimDisk::new(1 << 20));
    let label = super::rig::label();
    Volume::format(
        &*blank,
        &Format { label: label.clone(), log_bytes: 64 << 10, checkpoint_bytes: 65536 },
        false,
    )
    .unwrap();
    let fault = |d| Rig::try_open(d, false).err().unwrap();
    assert_eq!(fault(blank).code, Code::Damaged);
    let ost = Arc::new(disk::SimDisk::new(1 << 20));
    let label = disk::volume::Label { kind: Kind::Ost, ..label };
    Volume::format(&*ost, &Format { label, log_bytes: 64 << 10, checkpoint_bytes: 65536 }, false).unwrap();
    assert_eq!(fault(ost).code, Code::Invalid);
    let twice = Arc::new(disk::SimDisk::new(1 << 20));
    format(twice.clone());
    let spec = crate::FormatSpec { label: super::rig::label(), log_bytes: 64 << 10, checkpoint_bytes: 65536 };
    let again = crate::Mdt::format(twice, &spec, false, &rules::FlatRules, types::Time::default());
    assert_eq!(again.unwrap_err().code, Code::Exists);
}
