//! Requests that share an entry of the log: each ends as if it had been alone, and all of them are there or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Crash, Disk, FaultyDisk, Op, SimDisk, SplitMix, When};
use types::{Code, Fid, Key, Seq};
use wire::Wire;

use super::rig::{Rig, Said, format};
use super::rules::{self, body};
use crate::executor::execute::LOOKS_MAX;

type Names = BTreeMap<String, Fid>;

/// The results of requests that are queued together, in the order of the queue.
fn in_line(rig: &Rig, asks: &[Ask]) -> Vec<Said> {
    let executor = &rig.mdt.core.executor;
    std::thread::scope(|s| {
        let held = executor.lead();
        let mut threads = Vec::new();
        for ask in asks {
            let before = executor.waiting();
            threads.push(s.spawn(|| ask.send(rig)));
            while executor.waiting() == before {
                std::thread::yield_now();
            }
        }
        drop(held);
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[derive(Clone, Debug)]
struct Ask {
    call: u16,
    slot: u32,
    sequence: u32,
    name: String,
    /// The first number of its body.
    want: Fid,
}

impl Ask {
    fn make(slot: u32, sequence: u32, name: &str) -> Ask {
        Ask { call: rules::MAKE, slot, sequence, name: name.into(), want: Fid(0) }
    }

    fn send(&self, rig: &Rig) -> Said {
        rig.mutate(self.call, self.slot, self.sequence, &body(self.want, &self.name))
    }

    /// Carried out on the model.
    fn apply(&self, names: &mut Names, reply: &[u8]) {
        let fid = Fid::from_bytes(reply).unwrap();
        match self.call {
            rules::MAKE => assert_eq!(names.insert(self.name.clone(), fid), None, "{self:?}"),
            _ => assert_eq!(names.remove(&self.name), Some(fid), "{self:?}"),
        }
    }

    /// Would these names refuse it so?
    fn is_refused_by(&self, names: &Names, code: Code) -> bool {
        match code {
            Code::Exists => self.call == rules::MAKE && names.contains_key(&self.name),
            Code::NotFound => self.call == rules::REMOVE && !names.contains_key(&self.name),
            _ => false,
        }
    }
}

/// Operations of each entry in the log, and the seq of its first.
pub fn entries(disk: &SimDisk) -> Vec<(Seq, u32)> {
    let volume = disk::Volume::open(Arc::new(disk.crash(Crash::KeepAll))).unwrap();
    let mut entries = Vec::new();
    volume
        .replay(&mut |entry| {
            entries.push((entry.seq, entry.ops));
            disk::Verdict::Keep
        })
        .unwrap();
    entries
}

#[test]
fn who_stands_in_line_shares_an_entry() {
    let (rig, disk) = Rig::fresh();
    rig.make(0, 1, "x").unwrap();
    // The records that the rules look at are in memory by now, or one of the next rounds brings them.
    let shared = (2..10).find_map(|sequence| {
        let name = |n: u32| char::from_u32('A' as u32 + 5 * (sequence - 2) + n).unwrap().to_string();
        let asks: Vec<_> = (0..5).map(|n| Ask::make(n, sequence, &name(n))).collect();
        let mut seqs: Vec<Seq> = in_line(&rig, &asks).into_iter().map(|said| said.unwrap().0).collect();
        seqs.sort();
        let (first, ops) = *entries(&disk).last().unwrap();
        (ops == 5).then_some((first, seqs))
    });
    let (first, seqs) = shared.expect("five in one entry");
    assert_eq!(seqs, (first.0..first.0 + 5).map(Seq).collect::<Vec<_>>(), "each has a seq of its own");
}

/// A request that is queued behind others that look at many records waits for few of them, also if they are refused.
#[test]
fn a_batch_whose_rules_have_looked_at_much_takes_no_more() {
    let (rig, disk) = Rig::fresh();
    rig.mdt.core.kv.admit_all();
    let walk = |looks: u64, slot, sequence, name: &str| Ask {
        call: rules::WALK,
        slot,
        sequence,
        name: name.into(),
        want: Fid(looks),
    };
    walk(1, 9, 1, "x").send(&rig).unwrap();
    let half = LOOKS_MAX / 2;
    let asks = [
        walk(half, 0, 1, "a"),
        walk(half, 1, 1, "b"),
        Ask::make(2, 1, "c"),
        walk(2 * LOOKS_MAX, 3, 1, ""),
        Ask::make(4, 1, "d"),
        Ask::make(5, 1, "e"),
    ];
    let said: Vec<_> = in_line(&rig, &asks).into_iter().map(|said| said.map_err(|f| f.code).err()).collect();
    assert_eq!(said, [None, None, None, Some(Code::Invalid), None, None]);
    let ops: Vec<u32> = entries(&disk).iter().rev().take(3).map(|(_, ops)| *ops).collect();
    assert_eq!(ops, [2, 1, 2], "the last first");
}

/// One request changes a record that is not in memory. The others do not wait for it, and are not refused if it cannot be read.
#[test]
fn a_request_that_misses_a_record_starts_over_alone() {
    let (rig, disk) = Rig::fresh();
    let kv = &rig.mdt.core.kv;
    kv.admit_all();
    rig.make(0, 1, "x").unwrap();
    let round = |sequence, names: [&str; 3]| {
        let asks: Vec<_> =
            names.iter().zip(0..).map(|(name, slot)| Ask::make(slot, sequence, name)).collect();
        in_line(&rig, &asks)
            .into_iter()
            .map(|said| said.map_err(|fault| fault.code).err())
            .collect::<Vec<_>>()
    };
    let ops = |entries: Vec<(Seq, u32)>, some: usize| -> Vec<u32> {
        entries.iter().rev().take(some).map(|(_, ops)| *ops).collect()
    };
    kv.lack(Key::new(b"\x01b").unwrap(), false);
    assert_eq!(round(2, ["a", "b", "c"]), [None, Some(Code::Io), None]);
    assert_eq!(ops(entries(&disk), 1), [2]);
    kv.lack(Key::new(b"\x01e").unwrap(), true);
    assert_eq!(round(3, ["d", "e", "f"]), [None, None, None]);
    assert_eq!(ops(entries(&disk), 2), [1, 2]);
}

/// Rounds of requests about few names; their log is full every few rounds, and records are brought now and then.
#[test]
fn e3_the_order_of_seqs_explains_every_answer() {
    let (mut rig, disk) = Rig::fresh();
    let mut disk: Arc<SimDisk> = disk;
    let (mut random, mut names, mut sequence, mut refused, mut shared) =
        (SplitMix::new(7), Names::new(), 0, 0, 0);
    for round in 0..300 {
        sequence += 1;
        let asks: Vec<Ask> = (0..1 + random.below(7) as u32)
            .map(|slot| {
                let call = if random.below(3) < 2 { rules::MAKE } else { rules::REMOVE };
                Ask { call, slot, sequence, name: format!("{}", random.below(6)), want: Fid(0) }
            })
            .collect();
        let said = in_line(&rig, &asks);
        let mut done: Vec<_> =
            asks.iter().zip(&said).filter_map(|(ask, said)| Some((said.as_ref().ok()?, ask))).collect();
        done.sort_by_key(|((seq, _), _)| *seq);
        assert!(done.windows(2).all(|two| two[0].0.0 < two[1].0.0), "a seq was given twice");
        let mut states = vec![names.clone()];
        for ((_, reply), ask) in &done {
            ask.apply(&mut names, reply);
            states.push(names.clone());
        }
        for (ask, said) in asks.iter().zip(&said) {
            let Err(fault) = said else { continue };
            refused += 1;
            assert!(states.iter().any(|s| ask.is_refused_by(s, fault.code)), "{ask:?}: {fault}");
        }
        assert_eq!(rig.list(), names);
        shared += entries(&disk).last().is_some_and(|(_, ops)| *ops > 1) as u32;
        if round % 16 == 0 {
            disk = Arc::new(disk.crash(Crash::KeepAll));
            rig = Rig::open(disk.clone());
            assert_eq!(rig.list(), names, "after a kill");
            for ((seq, reply), ask) in done {
                assert_eq!(ask.send(&rig), Ok((*seq, reply.clone())), "each is answered from its slot");
            }
        }
    }
    assert!(refused > 100 && shared > 50, "{refused} refused, {shared} rounds shared an entry");
}

#[test]
fn e2_power_loss_leaves_all_of_a_batch_or_none() {
    let (rig, disk) = Rig::fresh();
    rig.mdt.core.kv.admit_all();
    rig.make(0, 1, "x").unwrap();
    const BATCH: u32 = 12;
    let (mut all, mut none) = (0, 0);
    for sequence in 2..8 {
        rig.mdt.flush().unwrap();
        let before = rig.list();
        // Several sectors.
        let asks: Vec<_> =
            (0..BATCH).map(|n| Ask::make(n, sequence, &format!("same start {sequence}{n:02}"))).collect();
        in_line(&rig, &asks).into_iter().for_each(|said| _ = said.unwrap());
        let is_one_entry = entries(&disk).last().is_some_and(|(_, ops)| *ops == BATCH);
        for seed in 0..40 {
            let names = Rig::open(Arc::new(disk.crash(Crash::Sectors(seed)))).list();
            match (names.len() - before.len()) as u32 {
                _ if !is_one_entry => {}
                BATCH => all += 1,
                0 => none += 1,
                n => panic!("{n} of a batch of {BATCH}"),
            }
        }
    }
    assert!(all > 0 && none > 0, "{all} times all, {none} times none");
}

#[test]
fn the_same_request_twice_in_the_line_is_carried_out_once() {
    let (rig, _) = Rig::fresh();
    rig.make(0, 1, "x").unwrap();
    let asks = [Ask::make(1, 1, "a"), Ask::make(1, 1, "a"), Ask::make(1, 1, "a")];
    let said = in_line(&rig, &asks);
    assert!(said.iter().all(|s| *s == said[0] && s.is_ok()), "{said:?}");
    let after = rig.mdt.core.volume.last_seq();
    assert_eq!(said[0].as_ref().unwrap().0, after);
}

/// mds-E1: a refusal that rests on what another of the batch made is not told if that never came to be.
#[test]
fn e1_when_the_entry_fails_nobody_is_told_what_rested_on_it() {
    let sim = Arc::new(SimDisk::new(1 << 20));
    format(sim.clone());
    let disk = Arc::new(FaultyDisk::new(sim));
    let rig = Rig::open(disk.clone() as Arc<dyn Disk>);
    rig.make(0, 1, "x").unwrap();
    disk.fail(Op::Write, When::Always);
    let said = in_line(&rig, &[Ask::make(1, 1, "a"), Ask::make(2, 1, "a"), Ask::make(3, 1, "x")]);
    for said in said {
        let fault = said.unwrap_err();
        assert!(fault.code != Code::Exists, "{fault}");
    }
    assert_eq!(rig.list().into_keys().collect::<Vec<_>>(), ["x"]);
}
