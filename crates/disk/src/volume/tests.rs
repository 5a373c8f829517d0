//! The volume's life, call by call. `model` runs it at random, `crash` cuts it at every write.

use std::io::Read;

use parking_lot::Condvar;

use super::*;
use crate::{FaultyDisk, MemDisk, Op, SimDisk, When};

mod crash;
mod damage;
mod full;
mod group;
mod many;
mod model;
mod ops;
mod read_log;
mod rules;
mod twin;

pub const LOG_BYTES: u64 = 16 * 1024;
/// Bytes of the ring that entries may take.
pub const ENTRIES_BYTES: u64 = LOG_BYTES - 4096;
pub const SLOT_BYTES: u64 = 8 * 1024;
/// Superblocks, a small ring, two small slots and no data region: cheap to copy at every crash.
pub const MEDIUM_BYTES: u64 = superblock::LOG_BEGIN + LOG_BYTES + 2 * SLOT_BYTES;

pub fn label() -> Label {
    Label {
        kind: Kind::Ost,
        fs_name: "scratch".into(),
        fs_uuid: Uuid([1; 16]),
        uuid: Uuid([2; 16]),
        target: TargetId(3),
        index: 4,
        mirror: MirrorId(5),
        epoch: Epoch(6),
    }
}

pub fn small() -> super::Format {
    super::Format { label: label(), log_bytes: LOG_BYTES, checkpoint_bytes: SLOT_BYTES }
}

/// As `formatted`, of an MDT: its entries hold several operations.
pub fn formatted_mdt() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(MEDIUM_BYTES));
    let of_mdt = super::Format { label: Label { kind: Kind::Mdt, ..label() }, ..small() };
    Volume::format(&*disk, &of_mdt, false).unwrap();
    disk
}

/// A formatted medium, and the calls to open it.
pub fn formatted() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(MEDIUM_BYTES));
    Volume::format(&*disk, &small(), false).unwrap();
    disk
}

/// Opens and replays; returns the payloads with their seq and flushed flag.
pub fn reopen(disk: Arc<dyn Disk>) -> (Volume, Vec<(u64, bool, Vec<u8>)>) {
    let volume = Volume::open(disk).unwrap();
    let mut seen = Vec::new();
    let summary = volume
        .replay(&mut |e| {
            seen.push((e.seq.0, e.flushed, e.payload.to_vec()));
            Verdict::Keep
        })
        .unwrap();
    assert_eq!(summary.lost, None);
    assert_eq!(summary.kept, seen.len() as u64);
    assert_eq!(summary.end.seq, volume.last_seq());
    (volume, seen)
}

pub fn started(disk: Arc<dyn Disk>) -> Volume {
    let (volume, _) = reopen(disk);
    volume.start().unwrap();
    volume
}

fn payloads(disk: &Arc<SimDisk>) -> Vec<Vec<u8>> {
    reopen(disk.clone()).1.into_iter().map(|(_, _, p)| p).collect()
}

#[test]
fn what_was_appended_is_replayed_in_order() {
    let disk = formatted();
    let volume = started(disk.clone());
    let large = vec![7; 3000];
    for p in [&b"first"[..], b"", &large] {
        volume.append(Epoch(9), p).unwrap();
    }
    assert_eq!(volume.last_seq(), Seq(3));
    let again = Volume::open(disk).unwrap();
    let mut seen = Vec::new();
    let summary = again
        .replay(&mut |e| {
            seen.push((e.epoch, e.seq.0, e.incarnation, e.flushed, e.payload.to_vec()));
            Verdict::Keep
        })
        .unwrap();
    let entry = |seq, p: &[u8]| (Epoch(9), seq, Incarnation(1), false, p.to_vec());
    assert_eq!(seen, [entry(1, b"first"), entry(2, b""), entry(3, &large)]);
    assert_eq!((summary.kept, summary.end, summary.flushed_seq), (3, volume.position(), Seq(0)));
}

#[test]
fn the_order_of_life_is_kept() {
    let volume = Volume::open(formatted()).unwrap();
    let too_early = |e| matches!(e, VolumeError::WrongOrder(_));
    assert!(volume.append(Epoch(1), b"x").is_err_and(too_early));
    assert!(volume.flush().is_err_and(too_early));
    assert!(volume.start().is_err_and(too_early));
    assert!(volume.close_clean().is_err_and(too_early));
    assert!(volume.checkpoint(volume.position(), &mut |_| Ok(())).is_err_and(too_early));
    volume.replay(&mut |_| Verdict::Keep).unwrap();
    volume.start().unwrap();
    assert!(volume.start().is_err_and(too_early));
    assert!(volume.replay(&mut |_| Verdict::Keep).is_err_and(too_early));
    volume.append(Epoch(1), b"x").unwrap();
    volume.close_clean().unwrap();
    assert!(volume.append(Epoch(1), b"x").is_err_and(too_early));
    assert!(volume.close_clean().is_err_and(too_early));
}

#[test]
fn incarnation_rises_without_a_clean_stop_only() {
    let disk = formatted();
    let volume = started(disk.clone());
    assert_eq!((volume.was_clean(), volume.incarnation()), (true, Incarnation(1)));
    volume.append(Epoch(1), b"a").unwrap();
    volume.close_clean().unwrap();
    let volume = started(disk.clone());
    assert_eq!((volume.was_clean(), volume.incarnation(), volume.last_seq()), (true, Incarnation(1), Seq(1)));
    drop(volume);
    let (volume, seen) = reopen(disk);
    assert_eq!((volume.was_clean(), seen.len()), (false, 1));
    assert_eq!(volume.start().unwrap(), Incarnation(2));
    assert_eq!((volume.flushed_seq(), volume.sealed_seq()), (Seq(1), Seq(1)));
}

#[test]
fn a_flush_mark_seals_once_it_is_flushed_itself() {
    let volume = started(formatted());
    let state = || (volume.last_seq().0, volume.flushed_seq().0, volume.sealed_seq().0);
    volume.append(Epoch(1), b"a").unwrap();
    volume.append(Epoch(1), b"b").unwrap();
    assert_eq!(state(), (2, 0, 0));
    assert_eq!(volume.flush().unwrap(), Seq(2));
    assert_eq!(state(), (2, 2, 0), "flushed, and no flushed entry says so yet");
    volume.append(Epoch(1), b"c").unwrap();
    assert_eq!(state(), (3, 2, 0), "said by an entry that is not flushed");
    volume.flush().unwrap();
    assert_eq!(state(), (3, 3, 2));
    volume.mark().unwrap();
    assert_eq!(state(), (3, 3, 2));
    volume.flush().unwrap();
    assert_eq!(state(), (3, 3, 3), "entry 3 is sealed, and the mark has no seq");
    let end = volume.position();
    for _ in 0..3 {
        volume.mark().unwrap();
        volume.flush().unwrap();
    }
    assert_eq!(volume.position(), end, "a volume at rest writes no marks");
}

#[test]
fn v8_marks_are_not_shown_and_take_no_seq() {
    let disk = formatted();
    let volume = started(disk.clone());
    volume.append(Epoch(1), b"a").unwrap();
    volume.flush().unwrap();
    volume.mark().unwrap();
    volume.append(Epoch(1), b"b").unwrap();
    let (again, seen) = reopen(disk);
    assert_eq!(seen, [(1, true, b"a".to_vec()), (2, false, b"b".to_vec())]);
    assert_eq!(again.last_seq(), Seq(2));
}

#[test]
fn a_cut_ends_the_log_for_ever() {
    let disk = formatted();
    let volume = started(disk.clone());
    for p in [b"1", b"2", b"3", b"4"] {
        volume.append(Epoch(1), p).unwrap();
    }
    let volume = Volume::open(disk.clone()).unwrap();
    let cut = |e: &LogEntry<'_>| if e.payload == b"3" { Verdict::Cut } else { Verdict::Keep };
    let summary = volume.replay(&mut { cut }).unwrap();
    assert_eq!((summary.kept, summary.cut, summary.end.seq), (2, Some(Seq(3)), Seq(2)));
    assert_eq!(volume.start().unwrap(), Incarnation(2));
    // Even with nothing appended behind the cut, entries there are void (disk-V2) ...
    assert_eq!(payloads(&disk), [b"1", b"2"]);
    // ... and an entry of the same size does not join the old entry 4 to the log.
    assert_eq!(volume.append(Epoch(1), b"X").unwrap(), Seq(3));
    assert_eq!(payloads(&disk), [b"1", b"2", b"X"]);
}

#[test]
fn a_cut_after_a_clean_stop_takes_a_new_incarnation() {
    let disk = formatted();
    let volume = started(disk.clone());
    volume.append(Epoch(1), b"1").unwrap();
    volume.close_clean().unwrap();
    let volume = Volume::open(disk.clone()).unwrap();
    volume.replay(&mut |_| Verdict::Cut).unwrap();
    assert_eq!(volume.start().unwrap(), Incarnation(2));
    assert_eq!(payloads(&disk), Vec::<Vec<u8>>::new());
}

#[test]
fn a_full_log_refuses_until_a_checkpoint_trims_it() {
    let disk = formatted();
    let volume = started(disk.clone());
    let full = loop {
        match volume.append(Epoch(1), &[1; 1000]) {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert!(matches!(full, VolumeError::LogFull { capacity: ENTRIES_BYTES, .. }), "{full}");
    let (at, used) = (volume.position(), volume.log_used());
    assert!(used <= ENTRIES_BYTES && used + 1064 > ENTRIES_BYTES);
    volume.checkpoint(at, &mut |w| w.write_all(b"state")).unwrap();
    assert_eq!(volume.log_used(), 0);
    // The second lap wraps around the ring's end.
    for i in 0..10u8 {
        volume.append(Epoch(1), &[i; 1000]).unwrap();
    }
    let (again, seen) = reopen(disk);
    assert_eq!(seen.iter().map(|(_, _, p)| p[0]).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!(seen[0].0, at.seq.0 + 1);
    let mut state = Vec::new();
    again.checkpoint_reader().unwrap().unwrap().read_to_end(&mut state).unwrap();
    assert_eq!(state, b"state");
}

#[test]
fn appends_write_whole_pages_and_their_zeros_reach_no_live_entry() {
    use crate::Event;
    let disk = formatted();
    disk.record();
    let mut volume = started(disk.clone());
    let mut live = Vec::new();
    let mut n = 0u64;
    while volume.position().pos < 4 * LOG_BYTES {
        n += 1;
        let payload = model::payload(n, (n * 37 % 300) as usize);
        match volume.append(Epoch(1), &payload) {
            Ok(_) => live.push(payload),
            Err(VolumeError::LogFull { .. }) => {
                // The ring is as full as it may be: zeros would hit the oldest entry.
                assert_eq!(payloads(&disk), live);
                volume.checkpoint(volume.position(), &mut |_| Ok(())).unwrap();
                live.clear();
            }
            Err(e) => panic!("{e}"),
        }
        // A start knows the content of the tail's page, after a clean stop and without one.
        if n.is_multiple_of(29) {
            if n.is_multiple_of(2) {
                volume.close_clean().unwrap();
            }
            volume = started(disk.clone());
        }
    }
    let ring = superblock::LOG_BEGIN..superblock::LOG_BEGIN + LOG_BYTES;
    let mut writes = 0;
    for event in disk.take_recording().unwrap().events {
        if let Event::Write { offset, data } = event
            && ring.contains(&offset)
        {
            writes += 1;
            let at = (offset, data.len());
            assert!(offset.is_multiple_of(4096) && data.len().is_multiple_of(4096), "{at:?}");
        }
    }
    assert!(writes > 100);
}

#[test]
fn entries_larger_than_allowed_are_refused() {
    let volume = started(formatted());
    let too_large = |e| matches!(e, VolumeError::TooLarge { .. });
    assert!(volume.append(Epoch(1), &vec![0; LOG_BYTES as usize]).is_err_and(too_large));
    let disk = Arc::new(MemDisk::new(16 << 20));
    Volume::format(&*disk, &super::Format { log_bytes: 8 << 20, ..small() }, false).unwrap();
    let volume = started(disk.clone());
    assert!(volume.append(Epoch(1), &vec![0; PAYLOAD_BYTES_MAX + 1]).is_err_and(too_large));
    let largest: Vec<u8> = (0..PAYLOAD_BYTES_MAX).map(|i| (i % 253) as u8).collect();
    volume.append(Epoch(1), &largest).unwrap();
    volume.append(Epoch(1), b"small").unwrap();
    assert_eq!(reopen(disk).1, [(1, false, largest), (2, false, b"small".to_vec())]);
}

#[test]
fn checkpoints_of_many_chunks_come_back_and_slots_alternate() {
    let disk = Arc::new(MemDisk::new(32 << 20));
    Volume::format(&*disk, &super::Format { checkpoint_bytes: 8 << 20, ..small() }, false).unwrap();
    let volume = started(disk.clone());
    assert!(volume.checkpoint_reader().unwrap().is_none());
    for (round, len) in [0usize, 1, (1 << 20) - 1, 1 << 20, (3 << 20) + 17].into_iter().enumerate() {
        let state: Vec<u8> = (0..len).map(|i| (i * 31 + round) as u8).collect();
        volume.append(Epoch(1), b"x").unwrap();
        volume
            .checkpoint(volume.position(), &mut |w| state.chunks(70_001).try_for_each(|c| w.write_all(c)))
            .unwrap();
        let again = Volume::open_read_only(disk.clone()).unwrap();
        let mut reader = again.checkpoint_reader().unwrap().unwrap();
        assert_eq!((reader.payload_bytes(), reader.seq()), (len as u64, volume.last_seq()));
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        assert!(back == state, "round {round}");
    }
}

#[test]
fn a_checkpoint_that_fails_leaves_the_old_one_and_the_log() {
    let disk = formatted();
    let volume = started(disk.clone());
    volume.checkpoint(volume.position(), &mut |w| w.write_all(b"old")).unwrap();
    volume.append(Epoch(1), b"kept").unwrap();
    let full = volume.checkpoint(volume.position(), &mut |w| w.write_all(&[0; 2 * SLOT_BYTES as usize]));
    assert!(full.is_err_and(|e| matches!(e, VolumeError::CheckpointFull { capacity: SLOT_BYTES })));
    let broken = volume.checkpoint(volume.position(), &mut |_| Err(io::Error::other("owner's trouble")));
    assert!(broken.is_err_and(|e| matches!(e, VolumeError::CheckpointSource(_))));
    let nowhere = LogPoint { seq: Seq(50), pos: 4096 };
    assert!(
        volume.checkpoint(nowhere, &mut |_| Ok(())).is_err_and(|e| matches!(e, VolumeError::WrongOrder(_)))
    );
    let (again, seen) = reopen(disk);
    assert_eq!(seen, [(1, false, b"kept".to_vec())]);
    let mut state = Vec::new();
    again.checkpoint_reader().unwrap().unwrap().read_to_end(&mut state).unwrap();
    assert_eq!(state, b"old");
}

#[test]
fn a_checkpoint_seals_what_it_covers() {
    let volume = started(formatted());
    volume.append(Epoch(1), b"a").unwrap();
    let at = volume.position();
    volume.append(Epoch(1), b"b").unwrap();
    volume.checkpoint(at, &mut |_| Ok(())).unwrap();
    assert_eq!((volume.flushed_seq(), volume.sealed_seq()), (Seq(2), Seq(2)));
}

#[test]
fn one_failed_flush_or_write_fails_the_volume_for_good() {
    for op in [Op::Flush, Op::Write] {
        let faulty = Arc::new(FaultyDisk::new(formatted()));
        let volume = started(faulty.clone());
        volume.append(Epoch(1), b"a").unwrap();
        faulty.fail(op, When::Once);
        let failed = |e: VolumeError| matches!(e, VolumeError::Failed(_));
        match op {
            Op::Flush => assert!(volume.flush().is_err_and(failed)),
            _ => assert!(volume.append(Epoch(1), b"b").is_err_and(failed)),
        }
        assert!(volume.failure().unwrap().contains("injected"));
        assert!(volume.append(Epoch(1), b"c").is_err_and(failed));
        assert!(volume.flush().is_err_and(failed));
        assert!(volume.set_label(label()).is_err_and(failed));
        assert!(volume.checkpoint(volume.position(), &mut |_| Ok(())).is_err_and(failed));
        assert!(volume.close_clean().is_err_and(failed));
        assert_eq!(volume.flushed_seq(), Seq(0), "nothing was promised");
    }
}

#[test]
fn read_only_writes_nothing() {
    let disk = formatted();
    started(disk.clone()).append(Epoch(1), b"a").unwrap();
    disk.record();
    let volume = Volume::open_read_only(disk.clone()).unwrap();
    let mut count = 0;
    volume
        .replay(&mut |_| {
            count += 1;
            Verdict::Keep
        })
        .unwrap();
    assert_eq!(count, 1);
    let refused = |e| matches!(e, VolumeError::ReadOnly);
    assert!(volume.start().is_err_and(refused));
    assert!(volume.append(Epoch(1), b"b").is_err_and(refused));
    assert!(volume.set_label(label()).is_err_and(refused));
    assert!(volume.close_clean().is_err_and(refused));
    assert_eq!(disk.events(), 0);
}

#[test]
fn a_label_can_be_changed_but_not_its_identity() {
    let disk = formatted();
    let volume = started(disk.clone());
    let new = Label { fs_name: "x".repeat(64), epoch: Epoch(77), mirror: MirrorId(8), ..label() };
    volume.set_label(new.clone()).unwrap();
    assert_eq!(volume.label(), new);
    for bad in [
        Label { uuid: Uuid([9; 16]), ..label() },
        Label { kind: Kind::Mdt, ..label() },
        Label { fs_name: String::new(), ..label() },
        Label { fs_name: "x".repeat(65), ..label() },
    ] {
        assert!(volume.set_label(bad).is_err_and(|e| matches!(e, VolumeError::BadFormat(_))));
    }
    // Flushed on return.
    let after = Volume::open(Arc::new(disk.crash(crate::Crash::DropAll))).unwrap();
    assert_eq!(after.label(), new);
}

#[test]
fn format_refuses_what_is_not_blank_and_what_does_not_fit() {
    let disk = formatted();
    let again = Volume::format(&*disk, &small(), false);
    assert!(again.is_err_and(|e| e.to_string().contains("holds a Stria volume")));
    let foreign = MemDisk::new(MEDIUM_BYTES);
    foreign.write_at(b"\x53\xef", 1080).unwrap();
    assert!(Volume::format(&foreign, &small(), false).is_err_and(|e| matches!(e, VolumeError::NotBlank(_))));
    Volume::format(&foreign, &small(), true).unwrap();
    for bad in [
        super::Format { log_bytes: LOG_BYTES_MIN - 1, ..small() },
        super::Format { log_bytes: u64::MAX, ..small() },
        super::Format { checkpoint_bytes: u64::MAX - 5, ..small() },
        super::Format { checkpoint_bytes: MEDIUM_BYTES, ..small() },
    ] {
        let blank = MemDisk::new(MEDIUM_BYTES);
        assert!(Volume::format(&blank, &bad, false).is_err_and(|e| matches!(e, VolumeError::BadFormat(_))));
        assert!(blank.to_bytes().iter().all(|b| *b == 0), "refused before anything was written");
    }
    assert!(matches!(Volume::open(Arc::new(MemDisk::new(4096))), Err(VolumeError::NoSuperblock)));
}

#[test]
fn a_forced_format_gives_an_empty_volume_even_under_the_same_uuid() {
    let disk = formatted();
    let volume = started(disk.clone());
    for _ in 0..5 {
        volume.append(Epoch(1), b"old").unwrap();
    }
    volume.flush().unwrap();
    Volume::format(&*disk, &small(), true).unwrap();
    let (volume, seen) = reopen(disk.clone());
    assert_eq!(seen, []);
    assert_eq!((volume.start().unwrap(), volume.last_seq()), (Incarnation(2), Seq(0)));
    volume.append(Epoch(1), b"new").unwrap();
    assert_eq!(payloads(&disk), [b"new"]);
}

#[test]
fn regions_are_in_order_and_data_is_aligned() {
    let disk = Arc::new(MemDisk::new((64 << 20) + 5000));
    Volume::format(&*disk, &super::Format { log_bytes: 1_000_001, ..small() }, false).unwrap();
    let volume = Volume::open(disk).unwrap();
    assert_eq!(volume.log_capacity(), 1_003_520 - 4096);
    assert_eq!(volume.data_region(), (2 << 20)..(64 << 20) + 4096);
}

#[test]
fn the_first_lap_is_zeroed_ahead_and_the_second_is_not() {
    let disk = Arc::new(SimDisk::from_bytes({
        let mut bytes = vec![0; 4 << 20];
        bytes[1 << 20..].fill(0xa5);
        bytes
    }));
    Volume::format(&*disk, &super::Format { log_bytes: 2 << 20, ..small() }, false).unwrap();
    let volume = started(disk.clone());
    disk.record();
    volume.append(Epoch(1), b"x").unwrap();
    assert_eq!(disk.events(), 2, "zeros and the entry");
    volume.append(Epoch(1), b"x").unwrap();
    assert_eq!(disk.events(), 3, "only the entry");
    let zeroed_to = superblock::LOG_BEGIN as usize + (1 << 20);
    let mut ring = vec![0; 1 << 20];
    disk.read_at(&mut ring, superblock::LOG_BEGIN).unwrap();
    assert!(ring[200..].iter().all(|b| *b == 0));
    let mut beyond = [0];
    disk.read_at(&mut beyond, zeroed_to as u64).unwrap();
    assert_eq!(beyond, [0xa5]);
    // Once around; every byte of the ring is written then.
    for _ in 0..2 {
        volume.append(Epoch(1), &vec![1; 1_048_000]).unwrap();
        volume.checkpoint(volume.position(), &mut |_| Ok(())).unwrap();
    }
    let before = disk.events();
    for i in 1..=100 {
        volume.append(Epoch(1), &[2; 5000]).unwrap();
        assert!(disk.events() <= before + i + 1, "one write each, two where the ring wraps");
    }
    drop(volume);
    // A restart on a later lap does not zero either.
    let volume = started(disk.clone());
    let before = disk.events();
    volume.append(Epoch(1), b"x").unwrap();
    assert_eq!(disk.events(), before + 1);
}
