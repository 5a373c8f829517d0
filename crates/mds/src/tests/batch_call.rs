//! Several requests in one frame: each as if it had come alone, whatever becomes of the frame's answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::Crash;
use types::{Buf, Code, Fault, Fid, Seq};
use wire::batch::{BATCH_BYTES_MAX, Batch, BatchReply, OPS_MAX, Op};
use wire::codec::Bytes;
use wire::shared::Enter;
use wire::{Flags, Header, Reader, ReplyHead, Request, Wire};

use super::batches::entries;
use super::rig::{Rig, Said};
use super::rules::{self, body};

fn op(call: u16, slot: u32, sequence: u32, body: Vec<u8>) -> Op {
    Op { call, slot, sequence, bulk_len: 0, body: Bytes(body) }
}

fn make(slot: u32, sequence: u32, name: &str) -> Op {
    op(rules::MAKE, slot, sequence, body(Fid(0), name))
}
fn list() -> Op {
    op(rules::LIST, 0, 0, vec![])
}

/// The result of each operation, and the bulk bytes of all.
fn send(rig: &Rig, ops: &[Op]) -> Result<(Vec<Said>, Vec<u8>), Fault> {
    let head = Header { call: Batch::CALL, session: rig.session, ..Header::default() };
    let mut bulk = Buf::new();
    let (_, reply) = rig.send_bulk(head, &Batch { ops: ops.to_vec() }.to_bytes(), &[], &mut bulk)?;
    let answers = BatchReply::from_bytes(&reply).unwrap().answers;
    assert_eq!(answers.iter().map(|a| a.bulk_len as usize).sum::<usize>(), bulk.len());
    let said = answers.iter().map(|answer| {
        let mut r = Reader::new(&answer.body);
        let head = ReplyHead::get(&mut r).unwrap();
        match head.code {
            0 => Ok((head.seq, r.take(r.remaining()).unwrap().to_vec())),
            code => Err(Fault::new(Code::from_u16(code), head.detail)),
        }
    });
    Ok((said.collect(), bulk.to_vec()))
}

fn codes(said: &[Said]) -> Vec<Code> {
    said.iter().map(|s| s.as_ref().map_or_else(|f| f.code, |_| Code::Ok)).collect()
}

/// The same request alone.
fn alone(rig: &Rig, op: &Op) -> Said {
    rig.mutate(op.call, op.slot, op.sequence, &op.body)
}

#[test]
fn each_is_answered_as_if_it_were_alone_and_reads_see_what_is_before_them() {
    let (rig, _) = Rig::fresh();
    let remove = op(rules::REMOVE, 3, 1, body(Fid(0), "b"));
    let ops = [make(0, 1, "a"), make(1, 1, "b"), make(2, 1, "a"), list(), remove, list(), list()];
    let (said, bulk) = send(&rig, &ops).unwrap();
    let ok = Code::Ok;
    assert_eq!(codes(&said), [ok, ok, Code::Exists, ok, ok, ok, ok]);
    let names = |said: &Said| said.as_ref().unwrap().1.len() / 13;
    assert_eq!((names(&said[3]), names(&said[5]), &said[5]), (2, 1, &said[6]));
    assert_eq!(bulk, b"bulkbulkbulk");
    let seqs: BTreeSet<Seq> = [0, 1, 4].iter().map(|n| said[*n].as_ref().unwrap().0).collect();
    assert!(seqs.len() == 3 && !seqs.contains(&Seq(0)), "{seqs:?}");
    // mds-M4: under the same slots they are not done again.
    assert_eq!(alone(&rig, &ops[0]), said[0]);
    assert_eq!(send(&rig, &ops[..2]).unwrap().0, said[..2]);
}

#[test]
fn what_changes_something_shares_an_entry() {
    let (rig, disk) = Rig::fresh();
    rig.make(0, 1, "x").unwrap();
    // The records that the rules look at are in memory by now, or one of the next rounds brings them.
    let shared = (2..10).any(|sequence| {
        let name = |n: u32| char::from_u32('A' as u32 + 5 * (sequence - 2) + n).unwrap().to_string();
        let ops: Vec<_> = (0..5).map(|n| make(n, sequence, &name(n))).collect();
        let said = send(&rig, &ops).unwrap().0;
        assert!(said.iter().all(Said::is_ok));
        entries(&disk).last().unwrap().1 == 5
    });
    assert!(shared, "five in one entry");
}

/// A batch that is not taken leaves no trace.
#[test]
fn b1_a_batch_is_refused_as_a_whole() {
    let (rig, _) = Rig::fresh();
    let before = rig.mdt.core.volume.last_seq();
    let enter = op(Enter::CALL, 1, 1, vec![]);
    let bulky = Op { bulk_len: 1, ..list() };
    let many = (0..=OPS_MAX).map(|_| list()).chain([make(0, 1, "a")]).collect();
    let long = op(rules::LIST, 0, 0, vec![0; BATCH_BYTES_MAX]);
    let batches: [(Vec<Op>, Code); 6] = [
        (vec![make(0, 1, "a"), make(0, 2, "b")], Code::BadRequest),
        (vec![make(0, 1, "a"), enter], Code::Unsupported),
        (vec![make(0, 1, "a"), op(Batch::CALL, 0, 0, vec![])], Code::Unsupported),
        (vec![make(0, 1, "a"), bulky], Code::BadRequest),
        (many, Code::BadRequest),
        (vec![make(0, 1, "a"), long], Code::BadRequest),
    ];
    for (ops, code) in batches {
        assert_eq!(send(&rig, &ops).unwrap_err().code, code, "{} operations", ops.len());
    }
    let replay =
        Header { call: Batch::CALL, session: rig.session, flags: Flags::REPLAY, ..Header::default() };
    assert!(rig.send(replay, &Batch { ops: vec![make(0, 1, "a")] }.to_bytes()).is_err());
    let observer = Header { call: Batch::CALL, ..Header::default() };
    assert!(rig.send(observer, &Batch { ops: vec![make(0, 1, "a")] }.to_bytes()).is_err());
    assert_eq!((rig.mdt.core.volume.last_seq(), rig.list().len()), (before, 0));
}

#[test]
fn b4_what_has_no_room_in_the_answer_is_asked_for_alone() {
    let (rig, _) = Rig::fresh();
    for n in 0..700 {
        rig.make(0, n + 1, &format!("{n:0>20}")).unwrap();
    }
    let mut ops: Vec<_> = (0..OPS_MAX as u32 - 1).map(|_| list()).collect();
    ops.push(make(1, 1, "behind"));
    let said = send(&rig, &ops).unwrap().0;
    let done = said.iter().filter(|s| s.is_ok()).count();
    assert!(done > 100 && done < OPS_MAX - 1, "{done} answers of some 20 KiB in 4 MiB");
    assert!(codes(&said[done..]).iter().all(|code| *code == Code::TooMuch));
    assert!(!rig.list().contains_key("behind"), "what is behind is not begun");
    alone(&rig, ops.last().unwrap()).unwrap();
}

/// The answer of a batch is lost, and power with it, after so much of it came to the medium: each request that is sent again, alone, under
/// its slot, is done once.
#[test]
fn a_batch_that_was_done_in_part_is_finished_by_its_requests_alone() {
    let (rig, disk) = Rig::fresh();
    rig.make(63, 1, "x").unwrap();
    rig.mdt.flush().unwrap();
    disk.record();
    // So long that several entries take them.
    let name = |n: u32| format!("{n:0>20}");
    let mut ops: Vec<_> = (0..40).map(|n| make(n, 1, &name(n))).collect();
    (40..50).for_each(|n| ops.push(op(rules::FAT, n, 1, vec![n as u8; 2000])));
    let said = send(&rig, &ops).unwrap().0;
    assert!(said.iter().all(Said::is_ok), "{:?}", codes(&said));
    let recording = disk.take_recording().unwrap();
    let mut parts = BTreeSet::new();
    for cut in 0..=recording.events.len() {
        for crash in [Crash::DropAll, Crash::KeepAll, Crash::Sectors(cut as u64)] {
            let rig = Rig::open(Arc::new(recording.crash_at(cut, crash)));
            let have = rig.list();
            parts.insert(have.len());
            // In the order of their seqs, as a client replays.
            let mut order: Vec<_> = ops.iter().zip(&said).collect();
            order.sort_by_key(|(_, said)| said.as_ref().unwrap().0);
            for (op, said) in order {
                let (_, reply) = said.clone().unwrap();
                let fid = Fid::from_bytes(&reply).unwrap_or(Fid(0));
                let body = match op.call {
                    rules::MAKE => [&fid.to_bytes(), &op.body[8..]].concat(),
                    _ => op.body.0.clone(),
                };
                let again = rig.replay(op.call, op.slot, op.sequence, &body).unwrap();
                assert_eq!(again.1, reply, "cut before event {cut}: the same answer");
            }
            let names = rig.list();
            assert_eq!(names.len(), 41);
            for (n, said) in (0..40).zip(&said) {
                let fid = Fid::from_bytes(&said.as_ref().unwrap().1).unwrap();
                assert_eq!(names.get(&name(n)), Some(&fid), "cut before event {cut}");
            }
        }
    }
    assert!(parts.len() > 2, "of the batch there were {parts:?} names: none, some and all are to be met");
}
