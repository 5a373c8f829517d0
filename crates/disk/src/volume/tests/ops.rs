//! Entries of several operations: each operation has a seq of its own, and all of them are there or none.

use super::super::append::OPS_MAX;
use super::*;

#[test]
fn each_operation_of_an_entry_has_a_number() {
    let disk = formatted_mdt();
    let volume = started(disk.clone());
    assert_eq!(volume.append_ops(Epoch(1), b"three", 3).unwrap(), Seq(1));
    assert_eq!(volume.position().seq, Seq(3));
    assert_eq!(volume.flush().unwrap(), Seq(3), "all three");
    assert_eq!(volume.append(Epoch(1), b"one").unwrap(), Seq(4));
    assert_eq!(volume.append_ops(Epoch(1), b"most", OPS_MAX).unwrap(), Seq(5));
    drop(volume);
    let again = Volume::open(disk).unwrap();
    let mut seen = Vec::new();
    let summary = again
        .replay(&mut |e| {
            seen.push((e.seq.0, e.ops, e.flushed));
            Verdict::Keep
        })
        .unwrap();
    assert_eq!(seen, [(1, 3, true), (4, 1, false), (5, 65536, false)]);
    assert_eq!((summary.kept, summary.end.seq), (3, Seq(65540)));
}

#[test]
fn a_checkpoint_between_entries_of_several_goes_on_behind_them() {
    let disk = formatted_mdt();
    let volume = started(disk.clone());
    volume.append_ops(Epoch(1), b"a", 5).unwrap();
    volume.checkpoint(volume.position(), &mut |_| Ok(())).unwrap();
    volume.append_ops(Epoch(1), b"b", 2).unwrap();
    drop(volume);
    let (again, seen) = reopen(disk);
    assert_eq!(seen.iter().map(|(seq, _, _)| *seq).collect::<Vec<_>>(), [6]);
    assert_eq!(again.last_seq(), Seq(7));
}

/// The owner cuts whole entries, however many operations they hold.
#[test]
fn entries_behind_a_cut_are_counted_as_entries() {
    let disk = formatted_mdt();
    let volume = started(disk.clone());
    volume.append_ops(Epoch(1), b"kept", 4).unwrap();
    volume.append_ops(Epoch(1), b"cut", 7).unwrap();
    volume.append_ops(Epoch(1), b"behind", 9).unwrap();
    drop(volume);
    let again = Volume::open(disk).unwrap();
    let cut = |e: &LogEntry<'_>| if e.payload == b"cut" { Verdict::Cut } else { Verdict::Keep };
    let summary = again.replay(&mut |e| cut(e)).unwrap();
    assert_eq!((summary.cut, summary.end.seq, summary.cut_off.entries), (Some(Seq(5)), Seq(4), 2));
}

/// An older release ends its scan at such an entry, and would cut off the entries behind it.
#[test]
fn a_volume_that_was_started_says_what_its_log_may_hold() {
    let incompat = |disk: &Arc<SimDisk>| {
        let mut block = vec![0; superblock::SUPERBLOCK_BYTES];
        disk.read_at(&mut block, 0).unwrap();
        bytes::u64_at(&block, 32)
    };
    let (mdt, ost) = (formatted_mdt(), formatted());
    assert_eq!((incompat(&mdt), incompat(&ost)), (0, 0));
    drop((started(mdt.clone()), started(ost.clone())));
    let marks = superblock::MARKS_WITHOUT_SEQ;
    assert_eq!((incompat(&mdt), incompat(&ost)), (superblock::ENTRIES_OF_OPS | marks, marks));
}

#[test]
#[should_panic(expected = "2 operations in an entry of this volume")]
fn an_ost_has_no_entries_of_several() {
    let _ = started(formatted()).append_ops(Epoch(1), b"x", 2);
}
