//! Rot: flipped bits in superblocks, log and checkpoints are found, and never taken for the end of the log if they lie in
//! flushed entries that later ones vouch for.

use super::*;

/// Three flushed entries, each vouched for by a later flushed mark; positions of their headers.
fn sealed_log() -> (Arc<SimDisk>, Vec<u64>) {
    let disk = formatted();
    let volume = started(disk.clone());
    let mut places = Vec::new();
    for p in [&b"one"[..], b"two", b"three"] {
        places.push(superblock::LOG_BEGIN + volume.position().pos);
        volume.append(Epoch(1), p).unwrap();
    }
    volume.flush().unwrap();
    volume.mark().unwrap();
    volume.flush().unwrap();
    assert_eq!(volume.sealed_seq(), Seq(3));
    (disk, places)
}

fn flip(disk: &Arc<SimDisk>, place: u64) {
    FaultyDisk::new(disk.clone()).flip_bit(place, 3).unwrap();
}

#[test]
fn a_damaged_flushed_entry_is_not_the_end_of_the_log() {
    for entry in 0..3 {
        for offset in [0, 17, 60, 64] {
            let (disk, places) = sealed_log();
            flip(&disk, places[entry] + offset);
            let volume = Volume::open(disk.clone()).unwrap();
            let summary = volume.replay(&mut |_| Verdict::Keep).unwrap();
            assert_eq!(summary.kept, entry as u64);
            let lost = summary.lost.expect("the mark behind it proves that the entry was flushed");
            assert_eq!((lost.seq, lost.flushed_seq), (Seq(entry as u64 + 1), Seq(3)));
            assert!(volume.start().is_err_and(|e| matches!(e, VolumeError::LogDamaged(_))));
            // An operator may give it up; then it stays so.
            assert_eq!(volume.start_accepting_loss().unwrap(), Incarnation(2));
            assert_eq!(volume.append(Epoch(1), b"new").unwrap(), Seq(entry as u64 + 1));
            let (_, seen) = reopen(disk);
            assert_eq!(seen.last().unwrap().2, b"new");
            assert_eq!(seen.len(), entry + 1);
        }
    }
}

#[test]
fn a_damaged_entry_after_a_clean_stop_is_known_from_the_superblock() {
    let disk = formatted();
    let volume = started(disk.clone());
    let place = superblock::LOG_BEGIN + volume.position().pos;
    volume.append(Epoch(1), b"only").unwrap();
    volume.close_clean().unwrap();
    flip(&disk, place);
    let volume = Volume::open(disk).unwrap();
    let summary = volume.replay(&mut |_| Verdict::Keep).unwrap();
    assert_eq!(summary.lost.unwrap().seq, Seq(1));
}

#[test]
fn one_rotten_superblock_costs_nothing_and_two_are_refused() {
    let disk = formatted();
    let volume = started(disk.clone());
    for round in 0..8u8 {
        volume.append(Epoch(1), &[round; 3000]).unwrap();
        volume.checkpoint(volume.position(), &mut |w| w.write_all(&[round])).unwrap();
    }
    volume.append(Epoch(1), b"after").unwrap();
    volume.flush().unwrap();
    for place in superblock::PLACES {
        for offset in [0, 9, 40, 300, 4095] {
            let rotten = Arc::new(disk.crash(crate::Crash::DropAll));
            flip(&rotten, place + offset);
            let (again, seen) = reopen(rotten.clone());
            assert_eq!(again.superblock_copies_good(), 1);
            assert_eq!(seen, [(9, false, b"after".to_vec())]);
            let mut state = Vec::new();
            again.checkpoint_reader().unwrap().unwrap().read_to_end(&mut state).unwrap();
            assert_eq!(state, [7]);
            // The next start heals it.
            again.start().unwrap();
            assert_eq!(Volume::open(rotten).unwrap().superblock_copies_good(), 2);
        }
    }
    superblock::PLACES.into_iter().for_each(|p| flip(&disk, p + 100));
    assert!(matches!(Volume::open(disk), Err(VolumeError::NoSuperblock)));
}

#[test]
fn a_read_error_is_an_error_and_not_the_end_of_the_log() {
    let (disk, _) = sealed_log();
    let faulty = Arc::new(FaultyDisk::new(disk));
    let volume = Volume::open(faulty.clone()).unwrap();
    faulty.fail(Op::Read, When::Once);
    let failed = volume.replay(&mut |_| Verdict::Keep);
    assert!(failed.is_err_and(|e| matches!(e, VolumeError::Read { .. })));
    assert_eq!(volume.replay(&mut |_| Verdict::Keep).unwrap().kept, 3);
}

#[test]
fn every_damaged_byte_of_a_checkpoint_is_found() {
    let disk = formatted();
    let volume = started(disk.clone());
    // Twice, so that slot 1 counts and slot 0 holds a stranger of the same shape.
    for state in [[1; 40], [2; 40]] {
        volume.append(Epoch(1), b"x").unwrap();
        volume.checkpoint(volume.position(), &mut |w| w.write_all(&state)).unwrap();
    }
    let slot = superblock::LOG_BEGIN + LOG_BYTES + SLOT_BYTES;
    for offset in 0..32 + 40 + 32 {
        let rotten = Arc::new(disk.crash(crate::Crash::DropAll));
        flip(&rotten, slot + offset);
        let again = Volume::open(rotten).unwrap();
        let mut reader = again.checkpoint_reader().unwrap().unwrap();
        let e = reader.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidData, "byte {offset}");
        // The damage stays: a reader that goes on gets no bytes.
        assert!(reader.read(&mut [0; 10]).is_err());
    }
    // The other slot's stream, well formed in itself, is not the one that is named.
    let mut stranger = vec![0; 104];
    disk.read_at(&mut stranger, slot - SLOT_BYTES).unwrap();
    disk.write_at(&stranger, slot).unwrap();
    let again = Volume::open(disk).unwrap();
    assert!(again.checkpoint_reader().unwrap().unwrap().read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn a_medium_that_shrank_is_refused() {
    let disk = formatted();
    let mut bytes = vec![0; MEDIUM_BYTES as usize];
    disk.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(bytes.len() - 4096);
    let refused = Volume::open(Arc::new(MemDisk::from_bytes(bytes)));
    assert!(refused.is_err_and(|e| e.to_string().contains("smaller")));
}

#[test]
fn only_an_entry_that_follows_is_accepted() {
    use super::super::entry::{EntryKind, Header};
    // The log after a restart: entry 1 of incarnation 1, then incarnation 2 from the tail on.
    let disk = formatted();
    started(disk.clone()).append(Epoch(1), b"one").unwrap();
    let volume = started(disk.clone());
    let pos = volume.position().pos;
    let next = Header {
        ops: 1,
        kind: EntryKind::Payload,
        tag: volume.tag,
        seq: 2,
        pos,
        flushed_seq: 1,
        epoch: Epoch(1),
        incarnation: Incarnation(2),
        payload_len: 0,
        payload_crc: types::crc::crc32c(&[]),
    };
    let kept_with = |h: Header| {
        let medium = Arc::new(disk.crash(crate::Crash::KeepAll));
        medium.write_at(&h.encode(), superblock::LOG_BEGIN + pos).unwrap();
        Volume::open(medium).unwrap().replay(&mut |_| Verdict::Keep).unwrap().kept
    };
    assert_eq!(kept_with(next.clone()), 2);
    let strangers = [
        Header { tag: next.tag ^ 1, ..next.clone() },
        Header { seq: 3, ..next.clone() },
        Header { pos: pos + LOG_BYTES, ..next.clone() },
        Header { pos: pos - 8, ..next.clone() },
        Header { incarnation: Incarnation(1), ..next.clone() },
        Header { incarnation: Incarnation(3), ..next.clone() },
        Header { payload_len: 8, ..next.clone() },
        Header { payload_len: LOG_BYTES as u32, ..next.clone() },
        Header { payload_len: u32::MAX, ..next.clone() },
        Header { payload_crc: 1, ..next.clone() },
        Header { flushed_seq: 2, ..next.clone() },
        Header { ops: 2, ..next.clone() },
    ];
    for stranger in strangers {
        assert_eq!(kept_with(stranger.clone()), 1, "{stranger:?}");
    }
}

#[test]
fn no_rot_makes_a_panic_or_wrong_content() {
    let mut rng = crate::SplitMix::new(7);
    let (disk, _) = sealed_log();
    let entries = [&b"one"[..], b"two", b"three"];
    for round in 0..400 {
        let rotten = disk.crash(crate::Crash::KeepAll);
        for _ in 0..1 + rng.below(20) {
            let place = [
                rng.below(400),
                superblock::PLACES[1] + rng.below(400),
                superblock::LOG_BEGIN + rng.below(400),
            ][rng.below(3) as usize];
            rotten.write_at(&[rng.next_u64() as u8], place).unwrap();
        }
        let Ok(volume) = Volume::open(Arc::new(rotten)) else { continue };
        let mut count = 0;
        let summary = volume.replay(&mut |e| {
            assert_eq!(e.payload, entries[count], "round {round}");
            count += 1;
            Verdict::Keep
        });
        let summary = summary.unwrap();
        // Rot may take the proof too; what was shown was right, and a known loss is never started over.
        assert_eq!(volume.start().is_ok(), summary.lost.is_none());
    }
}

/// A bad entry that no flush mark covers ends the log, as a torn tail does; sound entries behind it are counted.
#[test]
fn sound_entries_behind_the_end_are_counted_and_left_out() {
    let disk = formatted();
    let volume = started(disk.clone());
    let mut places = Vec::new();
    for n in 0..5u8 {
        places.push(volume.position().pos);
        volume.append(Epoch(1), &[n; 100]).unwrap();
    }
    let end = volume.position().pos;
    drop(volume);
    // The payload of one, which the process wrote before it was killed.
    flip(&disk, superblock::LOG_BEGIN + places[2] + 70);
    let volume = Volume::open(disk.clone()).unwrap();
    let summary = volume.replay(&mut |_| Verdict::Keep).unwrap();
    assert_eq!((summary.kept, summary.lost), (2, None));
    assert_eq!(summary.cut_off, CutOff { entries: 2, bytes: end - places[2] });
    assert_eq!(volume.cut_off(), summary.cut_off);
    // The owner's cut counts too: entry 1 is sound.
    let volume = Volume::open(disk.clone()).unwrap();
    let cut = |e: &LogEntry<'_>| if e.seq == Seq(2) { Verdict::Cut } else { Verdict::Keep };
    let summary = volume.replay(&mut |e| cut(e)).unwrap();
    assert_eq!((summary.cut, summary.cut_off), (Some(Seq(2)), CutOff { entries: 3, bytes: end - places[1] }));
    // Once it is cut, it is of another life and not told again.
    volume.start().unwrap();
    volume.append(Epoch(1), b"new").unwrap();
    drop(volume);
    let volume = Volume::open(disk).unwrap();
    let summary = volume.replay(&mut |_| Verdict::Keep).unwrap();
    assert_eq!((summary.kept, summary.cut_off), (2, CutOff::default()));
    // A torn tail alone has nothing behind it.
    let disk = formatted();
    let volume = started(disk.clone());
    let place = volume.position().pos;
    volume.append(Epoch(1), b"only").unwrap();
    drop(volume);
    flip(&disk, superblock::LOG_BEGIN + place + 66);
    let volume = Volume::open(disk).unwrap();
    assert_eq!(volume.replay(&mut |_| Verdict::Keep).unwrap().cut_off, CutOff::default());
}
